//! Items: the tools that scripts may use, and the workflows that use them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hapax::{Backoff, Hapax};
use hapax_items::{FailureBudget, Items, Limits, Maintainer, Program, Settings, Tool};
use hapax_sinks::webhook::Secret;
use hapax_tools::email::{Email, EmailSettings, Login, MailboxSettings, Tls};
use hapax_tools::http::{Http, HttpSettings, Probe};
use hapax_tools::{
    Database, Endpoint, EndpointSettings, FileSettings, FileTool, Kv, Sql, Webhook,
    WebhookToolSettings,
};
use http::{HeaderName, HeaderValue};
use serde::Deserialize;

use super::{Config, humantime_text};
use crate::exit::Failed;

/// A tool, `[tools.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum ToolSection {
    Http {
        /// The prefix that every URL must have.
        base: Option<String>,
        /// Headers that every request has; `env:NAME` and `file:PATH` stand for their contents.
        #[serde(default)]
        headers: BTreeMap<String, String>,
        #[serde(default, with = "humantime_text")]
        timeout: Option<Duration>,
        #[serde(default)]
        allow_private: bool,
        /// A URL with {key} in it that answers whether a mutation happened.
        probe: Option<String>,
        /// A pointer to a value that the probe's answer must have.
        probe_pointer: Option<String>,
        #[serde(default)]
        honours_key: bool,
        #[serde(default, with = "humantime_text")]
        settling: Option<Duration>,
    },
    Webhook {
        url: String,
        secrets: Vec<String>,
        #[serde(default, with = "humantime_text")]
        timeout: Option<Duration>,
        #[serde(default)]
        allow_private: bool,
        #[serde(default)]
        honours_id: bool,
    },
    Email {
        host: String,
        port: Option<u16>,
        from: String,
        /// `none`, `starttls` or `wrapper`.
        tls: Option<MailTls>,
        user: Option<String>,
        password: Option<String>,
        message_id_domain: Option<String>,
        #[serde(default, with = "humantime_text")]
        timeout: Option<Duration>,
        /// The mailbox in which sent messages can be found.
        imap: Option<Imap>,
    },
    File {
        root: PathBuf,
        max_bytes: Option<usize>,
    },
    /// In the ledger's own database.
    Sql {
        /// On PostgreSQL, the role whose rights scripts have.
        role: Option<String>,
    },
    /// In the ledger's own database.
    Kv {},
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum MailTls {
    None,
    Starttls,
    Wrapper,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Imap {
    host: String,
    port: Option<u16>,
    tls: Option<MailTls>,
    user: String,
    password: String,
    mailbox: Option<String>,
    #[serde(default, with = "humantime_text")]
    settling: Option<Duration>,
}

/// A workflow, `[workflows.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkflowSection {
    /// The tools it may use; all, if none are named.
    tools: Option<Vec<String>>,
    /// When it runs by itself: a cron expression, in UTC.
    schedule: Option<String>,
    #[serde(default, with = "humantime_text")]
    tool_timeout: Option<Duration>,
    retries: Option<u32>,
    #[serde(default, with = "humantime_text")]
    retry_pause: Option<Duration>,
    #[serde(default, with = "humantime_text")]
    retry_for: Option<Duration>,
    repairs: Option<u32>,
    repair_cost: Option<f64>,
    #[serde(default, with = "humantime_text")]
    repair_within: Option<Duration>,
    /// How long a script may compute, and how much memory it may have.
    #[serde(default, with = "humantime_text")]
    script_time: Option<Duration>,
    script_memory: Option<usize>,
    maintainer: Option<MaintainerSection>,
}

/// The maintainer, which repairs scripts: a program or a service.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MaintainerSection {
    /// A program and its arguments.
    command: Option<Vec<String>>,
    /// The URL of a service.
    url: Option<String>,
    #[serde(default)]
    secrets: Vec<String>,
    #[serde(default)]
    allow_private: bool,
    #[serde(default, with = "humantime_text")]
    timeout: Option<Duration>,
}

impl MailTls {
    fn tls(self) -> Tls {
        match self {
            Self::None => Tls::None,
            Self::Starttls => Tls::StartTls,
            Self::Wrapper => Tls::Wrapper,
        }
    }
}

impl Config {
    /// Whether the file has tools or workflows.
    pub(crate) fn has_items(&self) -> bool {
        !self.tools.is_empty() || !self.workflows.is_empty()
    }

    /// Items on this ledger, with the file's tools and workflows.
    pub(crate) async fn items(&self, hapax: &Hapax, db: &Path) -> Result<Items, Failed> {
        let mut tools = Vec::new();
        for (name, tool) in &self.tools {
            let made = self.tool(name, tool, hapax, db).await;
            tools.push(made.map_err(|flaw| self.wrong("tools", name, &flaw))?);
        }
        let mut workflows = Vec::new();
        for (name, workflow) in &self.workflows {
            let maintainer = workflow.maintainer.as_ref().map(|section| self.maintainer(section));
            let maintainer = maintainer.transpose();
            let maintainer = maintainer
                .map_err(|flaw| self.wrong("workflows", name, &format!("maintainer: {flaw}")))?;
            workflows.push(Settings { maintainer, ..settings(name, workflow) });
        }
        Items::new(hapax.clone(), tools, workflows).map_err(|error| {
            Failed::usage(format!("{}: {error}", self.path.display()))
                .next("docs/items.md has the settings of tools and workflows.")
        })
    }

    /// The names of the tools.
    pub(crate) fn tool_names(&self) -> Vec<String> {
        self.tools.keys().cloned().collect()
    }

    fn wrong(&self, section: &str, name: &str, flaw: &str) -> Failed {
        Failed::usage(format!("{}: {section}.{name}: {flaw}", self.path.display()))
            .next("docs/items.md has the settings of tools and workflows.")
    }

    async fn tool(
        &self,
        name: &str,
        tool: &ToolSection,
        hapax: &Hapax,
        db: &Path,
    ) -> Result<Arc<dyn Tool>, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        Ok(match tool {
            ToolSection::Http { .. } => Arc::new(self.http(name, tool)?),
            ToolSection::Webhook { url, secrets, timeout, allow_private, honours_id } => {
                let usual = WebhookToolSettings::new(url, self.secrets(secrets)?);
                let settings = WebhookToolSettings {
                    name: name.into(),
                    timeout: timeout.unwrap_or(usual.timeout),
                    allow_private: *allow_private,
                    honours_id: *honours_id,
                    ..usual
                };
                Arc::new(Webhook::new(settings).map_err(|error| text(&error))?)
            }
            ToolSection::Email { .. } => Arc::new(self.email(name, tool)?),
            ToolSection::File { root, max_bytes } => {
                let usual = FileSettings::new(self.beside(root));
                let max_bytes = max_bytes.unwrap_or(usual.max_bytes);
                let settings = FileSettings { name: name.into(), max_bytes, ..usual };
                Arc::new(FileTool::new(settings).map_err(|error| text(&error))?)
            }
            ToolSection::Sql { role } => {
                let database = database(hapax, db).map_err(|error| text(&error))?;
                Arc::new(Sql::new(name, database, role.clone()).map_err(|error| text(&error))?)
            }
            ToolSection::Kv {} => {
                let database = database(hapax, db).map_err(|error| text(&error))?;
                Arc::new(Kv::new(name, database, hapax.namespace().clone()))
            }
        })
    }

    fn secrets(&self, names: &[String]) -> Result<Vec<Secret>, String> {
        names.iter().map(|secret| self.secret(secret)).collect()
    }

    fn maintainer(&self, section: &MaintainerSection) -> Result<Arc<dyn Maintainer>, String> {
        let timeout = section.timeout.unwrap_or(Duration::from_secs(300));
        match (&section.command, &section.url) {
            (Some(command), None) if section.secrets.is_empty() && !command.is_empty() => {
                Ok(Arc::new(Program { command: command.clone(), timeout }))
            }
            (None, Some(url)) => {
                let (secrets, allow_private) =
                    (self.secrets(&section.secrets)?, section.allow_private);
                let settings = EndpointSettings { secrets, timeout, allow_private };
                let endpoint = Endpoint::new(url, settings).map_err(|error| error.to_string())?;
                Ok(Arc::new(endpoint))
            }
            _ => {
                Err("either `command`, a program and its arguments, or `url` and `secrets`".into())
            }
        }
    }

    fn http(&self, name: &str, tool: &ToolSection) -> Result<Http, String> {
        let ToolSection::Http {
            base,
            headers,
            timeout,
            allow_private,
            probe,
            probe_pointer,
            honours_key,
            settling,
        } = tool
        else {
            return Err("no http tool".into());
        };
        let usual = HttpSettings::new(name);
        let mut sent = Vec::new();
        for (header, value) in headers {
            let wrong = |error: &dyn std::fmt::Display| format!("headers.{header}: {error}");
            let mut value = HeaderValue::from_str(&self.value(value)?).map_err(|e| wrong(&e))?;
            value.set_sensitive(true);
            sent.push((HeaderName::from_bytes(header.as_bytes()).map_err(|e| wrong(&e))?, value));
        }
        let base = base.as_ref().map(|base| base.parse());
        let probe = probe.clone().map(|url| Probe { url, pointer: probe_pointer.clone() });
        let settings = HttpSettings {
            base: base.transpose().map_err(|error| format!("base: {error}"))?,
            headers: sent,
            timeout: timeout.unwrap_or(usual.timeout),
            allow_private: *allow_private,
            probe,
            honours_key: *honours_key,
            settling: settling.unwrap_or(usual.settling),
            ..usual
        };
        Http::new(settings).map_err(|error| error.to_string())
    }

    fn email(&self, name: &str, tool: &ToolSection) -> Result<Email, String> {
        let ToolSection::Email {
            host,
            port,
            from,
            tls,
            user,
            password,
            message_id_domain,
            timeout,
            imap,
        } = tool
        else {
            return Err("no email tool".into());
        };
        let usual = EmailSettings::new(host, from);
        let login = match (user, password) {
            (Some(user), Some(password)) => {
                Some(Login { user: user.clone(), password: self.value(password)? })
            }
            (None, None) => None,
            _ => return Err("user and password go together".into()),
        };
        let mailbox = match imap {
            Some(imap) => {
                let password = self.value(&imap.password)?;
                let login = Login { user: imap.user.clone(), password };
                let usual = MailboxSettings::new(&imap.host, login);
                Some(MailboxSettings {
                    port: imap.port.unwrap_or(usual.port),
                    tls: imap.tls.map_or(usual.tls, MailTls::tls),
                    mailbox: imap.mailbox.clone().unwrap_or(usual.mailbox.clone()),
                    settling: imap.settling.unwrap_or(usual.settling),
                    ..usual
                })
            }
            None => None,
        };
        let domain = message_id_domain.clone().unwrap_or(usual.message_id_domain.clone());
        let settings = EmailSettings {
            name: name.into(),
            port: port.unwrap_or(usual.port),
            tls: tls.map_or(usual.tls, MailTls::tls),
            login,
            message_id_domain: domain,
            timeout: timeout.unwrap_or(usual.timeout),
            mailbox,
            ..usual
        };
        Email::new(settings).map_err(|error| error.to_string())
    }
}

/// The ledger's own database.
fn database(hapax: &Hapax, db: &Path) -> Result<Database, hapax::Error> {
    let url = db.to_str().filter(|text| text.starts_with("postgres") && text.contains("://"));
    Database::of(hapax, url)
}

fn settings(name: &str, section: &WorkflowSection) -> Settings {
    let usual = Settings::new(name);
    let ms =
        |time: Option<Duration>, usual: u64| time.map_or(usual, |time| time.as_millis() as u64);
    let FailureBudget { retries, retry_ms, repairs, repair_ms, repair_cost } = usual.budget;
    let base_ms = ms(section.retry_pause, retries.base_ms);
    let retries = Backoff {
        base_ms,
        cap_ms: retries.cap_ms.max(base_ms),
        attempts: section.retries.unwrap_or(retries.attempts),
    };
    let cost = section.repair_cost.map(|cost| (cost.clamp(0.0, 1e12) * 1_000.0) as u64);
    let budget = FailureBudget {
        retries,
        retry_ms: ms(section.retry_for, retry_ms),
        repairs: section.repairs.unwrap_or(repairs),
        repair_ms: ms(section.repair_within, repair_ms),
        repair_cost: cost.unwrap_or(repair_cost),
    };
    Settings {
        tools: section.tools.clone(),
        schedule: section.schedule.clone(),
        tool_timeout: section.tool_timeout.unwrap_or(usual.tool_timeout),
        limits: Limits {
            cpu: section.script_time.unwrap_or(usual.limits.cpu),
            memory_bytes: section.script_memory.unwrap_or(usual.limits.memory_bytes),
            ..usual.limits
        },
        budget,
        ..usual
    }
}
