//! `hapax.toml`: sinks and routes, and how the ledger is served.

mod dataset;
mod extraction;
mod items;
mod lineage;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hapax::Backoff;
use hapax::outbox::{Guards, OnExhausted, OutboxConfig, Policy, SinkSettings};
use hapax_control::{Computation, Registry, Retry};
use hapax_sinks::file::LinesFile;
#[cfg(feature = "kafka")]
use hapax_sinks::kafka::{Kafka, KafkaSettings};
#[cfg(feature = "nats")]
use hapax_sinks::nats::{Nats, NatsSettings};
#[cfg(feature = "rabbitmq")]
use hapax_sinks::rabbitmq::{RabbitMq, RabbitMqSettings};
#[cfg(feature = "redis")]
use hapax_sinks::redis::{Redis, RedisSettings};
use hapax_sinks::stdout::Stdout;
#[cfg(any(feature = "nats", feature = "rabbitmq", feature = "redis", feature = "kafka"))]
use hapax_sinks::template::PathTemplate;
use hapax_sinks::webhook::{Secret, Webhook, WebhookSettings};
use serde::Deserialize;

use crate::exit::Failed;
use dataset::{DatasetSection, PipelineSection};
use extraction::Extraction;
use items::{ToolSection, WorkflowSection};

/// The largest file that is read.
const LARGEST: u64 = 1024 * 1024;

/// The contents of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    #[serde(default)]
    pub(crate) sinks: BTreeMap<String, Sink>,
    #[serde(default)]
    pub(crate) routes: Vec<Route>,
    #[serde(default)]
    pub(crate) server: ServerSection,
    #[serde(default)]
    control: Plane,
    #[serde(default)]
    pipeline: PipelineSection,
    #[serde(default)]
    extraction: Extraction,
    #[serde(default)]
    tools: BTreeMap<String, ToolSection>,
    #[serde(default)]
    workflows: BTreeMap<String, WorkflowSection>,
    #[serde(default)]
    guards: Up,
    #[serde(default)]
    datasets: BTreeMap<String, DatasetSection>,
    #[serde(skip)]
    pub(crate) path: PathBuf,
}

/// How the ledger is served by `hapax serve`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerSection {
    pub(crate) listen: Option<String>,
    /// Files in PEM; both or none.
    pub(crate) tls_certificate: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    /// Whether this process delivers events too; yes, unless said otherwise.
    pub(crate) dispatch: Option<bool>,
    pub(crate) connections: Option<usize>,
    pub(crate) largest_request: Option<usize>,
    #[serde(default, with = "humantime_text")]
    pub(crate) longest_wait: Option<Duration>,
    #[serde(default, with = "humantime_text")]
    pub(crate) key_lifetime: Option<Duration>,
    #[serde(default, with = "humantime_text")]
    pub(crate) drain: Option<Duration>,
    /// The allowance of each namespace: requests a second on average, in a burst, at the same time.
    pub(crate) rate: Option<u32>,
    pub(crate) burst: Option<u32>,
    pub(crate) at_once: Option<usize>,
}

/// The control plane.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plane {
    /// By full name, beside the built-in ones.
    #[serde(default)]
    computations: BTreeMap<String, ComputationSection>,
}

/// How a computation is retried.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ComputationSection {
    /// Whether it has a key and may be sent again; yes, unless said otherwise.
    retryable: Option<bool>,
    retries: Option<u32>,
    #[serde(default, with = "humantime_text")]
    pause: Option<Duration>,
    /// Whether each pause is twice as long as the one before.
    doubling: Option<bool>,
}

/// Which guards are up; all, unless said otherwise.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Up {
    personal: Option<bool>,
    secrets: Option<bool>,
    registered: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Route {
    event: String,
    #[serde(default = "any")]
    dataset: String,
    sinks: Vec<String>,
}

fn any() -> String {
    "*".into()
}

#[derive(Debug, Deserialize)]
pub(crate) struct Sink {
    #[serde(flatten)]
    kind: Kind,
    #[serde(flatten)]
    trouble: RetrySettings,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Kind {
    Webhook {
        url: String,
        /// `env:NAME`, `file:PATH` or the secret itself; several while one is being replaced.
        #[serde(default)]
        secrets: Vec<String>,
        #[serde(default)]
        allow_private: bool,
        #[serde(default, with = "humantime_text")]
        timeout: Option<Duration>,
        #[serde(default, with = "humantime_text")]
        remembers: Option<Duration>,
    },
    File {
        path: PathBuf,
        rotate_bytes: Option<u64>,
    },
    Stdout {},
    /// Run events to a collector of OpenLineage, or to a file of lines.
    Openlineage {
        url: Option<String>,
        path: Option<PathBuf>,
        /// `env:NAME`, `file:PATH` or the token itself.
        token: Option<String>,
        #[serde(default)]
        allow_private: bool,
    },
    /// STAC, DCAT and PROV-O as files.
    Catalog {
        path: PathBuf,
    },
    /// Statements to the HTTP endpoint of a graph, such as …/db/neo4j/tx/commit.
    Graph {
        url: String,
        user: Option<String>,
        password: Option<String>,
        #[serde(default)]
        allow_private: bool,
    },
    #[cfg_attr(not(feature = "nats"), expect(dead_code, reason = "refused when it is named"))]
    Nats {
        url: String,
        subject: String,
        /// `env:NAME`, `file:PATH` or the text of a credentials file.
        credentials: Option<String>,
        #[serde(default, with = "humantime_text")]
        timeout: Option<Duration>,
        #[serde(default, with = "humantime_text")]
        remembers: Option<Duration>,
    },
    #[cfg_attr(not(feature = "rabbitmq"), expect(dead_code, reason = "refused when it is named"))]
    Rabbitmq {
        url: String,
        #[serde(default)]
        exchange: String,
        routing_key: String,
        #[serde(default, with = "humantime_text")]
        timeout: Option<Duration>,
        #[serde(default, with = "humantime_text")]
        remembers: Option<Duration>,
    },
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "refused when it is named"))]
    Redis {
        url: String,
        stream: String,
        #[serde(default, with = "humantime_text")]
        timeout: Option<Duration>,
        #[serde(default, with = "humantime_text")]
        remembers: Option<Duration>,
    },
    #[cfg_attr(not(feature = "kafka"), expect(dead_code, reason = "refused when it is named"))]
    Kafka {
        brokers: String,
        topic: String,
        /// Settings of librdkafka; `env:NAME` and `file:PATH` stand for their contents.
        #[serde(default)]
        properties: BTreeMap<String, String>,
        #[serde(default, with = "humantime_text")]
        timeout: Option<Duration>,
        #[serde(default, with = "humantime_text")]
        remembers: Option<Duration>,
    },
}

/// How to retry, and when to give up.
#[derive(Debug, Deserialize)]
struct RetrySettings {
    attempts: Option<u32>,
    #[serde(default, with = "humantime_text")]
    backoff: Option<Duration>,
    #[serde(default, with = "humantime_text")]
    max_backoff: Option<Duration>,
    on_exhausted: Option<String>,
}

/// `10s`, `5m`, `7d`.
mod humantime_text {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, de::Error as _};

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        humantime::parse_duration(&text).map(Some).map_err(D::Error::custom)
    }
}

impl Config {
    /// Reads the file, and reports where it is wrong.
    pub(crate) fn read(path: &Path) -> Result<Self, Failed> {
        let refuse = |flaw: String| Failed::usage(format!("{}: {flaw}", path.display()));
        let size = std::fs::metadata(path).map_err(|error| {
            refuse(error.to_string()).next(
                "docs/operations.md has its settings, docs/outbox.md those of sinks and routes.",
            )
        })?;
        if size.len() > LARGEST {
            return Err(refuse(format!("larger than {LARGEST} bytes")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
        let config = toml::from_str::<Self>(&text).map_err(|error| refuse(error.to_string()))?;
        if let Some((sink, setting)) = unknown_setting(&text) {
            return Err(refuse(format!("sinks.{sink}: there is no setting {setting}"))
                .next("docs/outbox.md lists the settings of each kind of sink."));
        }
        Ok(Self { path: path.to_owned(), ..config })
    }

    /// Reads the file; the default settings, where the usual `hapax.toml` is missing.
    pub(crate) fn read_or_default(path: &Path) -> Result<Self, Failed> {
        match path.exists() || path != Path::new("hapax.toml") {
            true => Self::read(path),
            false => Ok(Self::default()),
        }
    }

    /// The computations of the control plane: those that are built in, and the file's own.
    pub(crate) fn registry(&self) -> Result<Registry, Failed> {
        let mut registry = Registry::standard();
        for (name, policy) in &self.control.computations {
            let refuse = |flaw: &str| {
                let place = format!("{}: control.computations.{name:?}", self.path.display());
                Failed::usage(format!("{place}: {flaw}"))
            };
            let computation = match (policy.retryable.unwrap_or(true), policy) {
                (false, ComputationSection { retries: None, pause: None, doubling: None, .. }) => {
                    Computation::fail_fast(name)
                }
                (false, _) => {
                    return Err(refuse("retries, pause and doubling need retryable = true"));
                }
                (true, ComputationSection { retries: Some(retries), pause: Some(pause), .. }) => {
                    let retry = match policy.doubling.unwrap_or(false) {
                        true => Retry::doubling(*retries, *pause),
                        false => Retry::fixed(*retries, *pause),
                    };
                    Computation::retryable(name, retry)
                }
                (true, ComputationSection { retries: Some(0), .. }) => {
                    Computation::retryable(name, Retry::fixed(0, Duration::ZERO))
                }
                (true, ComputationSection { retries: None, .. }) => {
                    return Err(refuse("retries is missing; or say retryable = false"));
                }
                (true, _) => return Err(refuse("pause is missing, such as pause = \"1s\"")),
            };
            let registered = computation.and_then(|computation| registry.with(computation));
            registry = registered.map_err(|error| refuse(&error.to_string()))?;
        }
        Ok(registry)
    }

    /// The sinks and routes themselves.
    pub(crate) fn outbox(&self) -> Result<OutboxConfig, Failed> {
        let mut outbox = OutboxConfig::new().guards(Guards {
            personal: self.guards.personal.unwrap_or(true),
            secrets: self.guards.secrets.unwrap_or(true),
            registered: self.guards.registered.unwrap_or(false),
        });
        for (name, dataset) in self.datasets()? {
            outbox = outbox.dataset(&name, dataset);
        }
        for (name, sink) in &self.sinks {
            outbox = self.add(outbox, name, sink).map_err(|flaw| {
                Failed::usage(format!("{}: sinks.{name}: {flaw}", self.path.display()))
            })?;
        }
        for route in &self.routes {
            let sinks: Vec<&str> = route.sinks.iter().map(String::as_str).collect();
            outbox = outbox
                .route(&route.event, &route.dataset, &sinks)
                .map_err(|error| Failed::usage(format!("{}: {error}", self.path.display())))?;
        }
        Ok(outbox)
    }

    fn add(&self, outbox: OutboxConfig, name: &str, sink: &Sink) -> Result<OutboxConfig, String> {
        let policy = sink.trouble.policy()?;
        let settings = SinkSettings { policy, ..SinkSettings::default() };
        let added = match &sink.kind {
            Kind::Stdout {} => outbox.sink_with(name, Stdout, settings),
            Kind::File { path, rotate_bytes } => {
                let file = LinesFile::new(self.beside(path));
                let file = rotate_bytes.map_or(file.clone(), |bytes| file.rotate_at(bytes));
                outbox.sink_with(name, file, settings)
            }
            Kind::Openlineage { .. } | Kind::Catalog { .. } | Kind::Graph { .. } => {
                return self.add_lineage(outbox, name, &sink.kind, settings);
            }
            Kind::Webhook { url, secrets, allow_private, timeout, remembers } => {
                let default = WebhookSettings::default();
                let secrets = secrets.iter().map(|secret| self.secret(secret));
                let hook = WebhookSettings {
                    secrets: secrets.collect::<Result<_, _>>()?,
                    allow_private: *allow_private,
                    timeout: timeout.unwrap_or(default.timeout),
                    remembers: *remembers,
                    ..default
                };
                let hook = Webhook::new(url, hook).map_err(|error| error.to_string())?;
                outbox.sink_with(name, hook, settings)
            }
            #[cfg(feature = "nats")]
            Kind::Nats { url, subject, credentials, timeout, remembers } => {
                let default = NatsSettings::default();
                let credentials = credentials.as_ref().map(|text| self.value(text));
                let nats = NatsSettings {
                    credentials: credentials.transpose()?,
                    timeout: timeout.unwrap_or(default.timeout),
                    remembers: remembers.unwrap_or(default.remembers),
                    ..default
                };
                let nats = Nats::new(&self.value(url)?, place(subject)?, nats);
                outbox.sink_with(name, nats, settings)
            }
            #[cfg(feature = "rabbitmq")]
            Kind::Rabbitmq { url, exchange, routing_key, timeout, remembers } => {
                let default = RabbitMqSettings::default();
                let rabbitmq = RabbitMqSettings {
                    exchange: exchange.clone(),
                    timeout: timeout.unwrap_or(default.timeout),
                    remembers: *remembers,
                    ..default
                };
                let rabbitmq = RabbitMq::new(&self.value(url)?, place(routing_key)?, rabbitmq)
                    .map_err(|error| error.to_string())?;
                outbox.sink_with(name, rabbitmq, settings)
            }
            #[cfg(feature = "redis")]
            Kind::Redis { url, stream, timeout, remembers } => {
                let default = RedisSettings::default();
                let redis = RedisSettings {
                    timeout: timeout.unwrap_or(default.timeout),
                    remembers: remembers.unwrap_or(default.remembers),
                    ..default
                };
                let redis = Redis::new(&self.value(url)?, place(stream)?, redis)
                    .map_err(|error| error.to_string())?;
                outbox.sink_with(name, redis, settings)
            }
            #[cfg(not(feature = "nats"))]
            Kind::Nats { .. } => return Err(left_out("nats")),
            #[cfg(not(feature = "rabbitmq"))]
            Kind::Rabbitmq { .. } => return Err(left_out("rabbitmq")),
            #[cfg(not(feature = "redis"))]
            Kind::Redis { .. } => return Err(left_out("redis")),
            #[cfg(not(feature = "kafka"))]
            Kind::Kafka { .. } => return Err(left_out("kafka")),
            #[cfg(feature = "kafka")]
            Kind::Kafka { brokers, topic, properties, timeout, remembers } => {
                let default = KafkaSettings::default();
                let value = |(name, text): (&String, &String)| {
                    Ok::<_, String>((name.clone(), self.value(text)?))
                };
                let kafka = KafkaSettings {
                    properties: properties.iter().map(value).collect::<Result<_, _>>()?,
                    timeout: timeout.unwrap_or(default.timeout),
                    remembers: *remembers,
                    ..default
                };
                let kafka = Kafka::new(&self.value(brokers)?, place(topic)?, kafka)
                    .map_err(|error| error.to_string())?;
                outbox.sink_with(name, kafka, settings)
            }
        };
        added.map_err(|error| error.to_string())
    }

    /// Whether there is anything to deliver to.
    pub(crate) fn has_sinks(&self) -> bool {
        !self.sinks.is_empty()
    }

    /// A path relative to the file's own directory.
    pub(crate) fn beside(&self, path: &Path) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }

    fn secret(&self, text: &str) -> Result<Secret, String> {
        Secret::parse(&self.value(text)?).map_err(|error| error.to_string())
    }

    /// The value of a text: a variable, a file, or the text itself.
    fn value(&self, text: &str) -> Result<String, String> {
        match text.split_once(':') {
            Some(("env", name)) => {
                std::env::var(name).map_err(|_| format!("the variable {name} is not set"))
            }
            Some(("file", path)) => std::fs::read_to_string(self.beside(Path::new(path)))
                .map(|text| text.trim_end().to_owned())
                .map_err(|error| format!("{path}: {error}")),
            _ => Ok(text.to_owned()),
        }
    }
}

/// A setting that a sink of its kind does not have: a misspelt one would be ignored.
fn unknown_setting(text: &str) -> Option<(String, String)> {
    let file: toml::Table = toml::from_str(text).ok()?;
    let sinks = file.get("sinks")?.as_table()?;
    sinks.iter().find_map(|(name, sink)| {
        let sink = sink.as_table()?;
        let own: &[&str] = match sink.get("kind")?.as_str()? {
            "webhook" => &["url", "secrets", "allow_private", "timeout", "remembers"],
            "file" => &["path", "rotate_bytes"],
            "nats" => &["url", "subject", "credentials", "timeout", "remembers"],
            "rabbitmq" => &["url", "exchange", "routing_key", "timeout", "remembers"],
            "redis" => &["url", "stream", "timeout", "remembers"],
            "kafka" => &["brokers", "topic", "properties", "timeout", "remembers"],
            "openlineage" => &["url", "path", "token", "allow_private"],
            "catalog" => &["path"],
            "graph" => &["url", "user", "password", "allow_private"],
            _ => &[],
        };
        let all = ["kind", "attempts", "backoff", "max_backoff", "on_exhausted"];
        let is_known = |key: &str| own.contains(&key) || all.contains(&key);
        let unknown = sink.keys().find(|key| !is_known(key))?;
        Some((name.clone(), unknown.clone()))
    })
}

/// The error for a sink that this program was built without.
#[cfg(not(all(feature = "nats", feature = "rabbitmq", feature = "redis", feature = "kafka")))]
fn left_out(kind: &str) -> String {
    format!("this hapax was built without {kind}; build it with --features {kind}")
}

#[cfg(any(feature = "nats", feature = "rabbitmq", feature = "redis", feature = "kafka"))]
fn place(text: &str) -> Result<PathTemplate, String> {
    PathTemplate::parse(text).map_err(|error| format!("{text:?}: {error}"))
}

impl RetrySettings {
    fn policy(&self) -> Result<Policy, String> {
        let default = Policy::default();
        let ms = |time: Option<Duration>, or: u64| time.map_or(or, |time| time.as_millis() as u64);
        let on_exhausted = match self.on_exhausted.as_deref() {
            None | Some("park") => OnExhausted::Park,
            Some("skip") => OnExhausted::Skip,
            Some("block") => OnExhausted::Block,
            Some(other) => {
                return Err(format!("on_exhausted {other:?} is none of park, skip, block"));
            }
        };
        let attempts = self.attempts.unwrap_or(default.attempts);
        if attempts == 0 {
            return Err("attempts is at least 1".into());
        }
        let backoff = Backoff {
            base_ms: ms(self.backoff, default.backoff.base_ms),
            cap_ms: ms(self.max_backoff, default.backoff.cap_ms),
            attempts: u32::MAX,
        };
        Ok(Policy { attempts, backoff, on_exhausted })
    }
}
