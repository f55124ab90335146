//! Command-line arguments of servers, proxies and tokens.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use hapax_server::idempotency::{Identity, Settlement};

use super::duration;

/// Serve the ledger in ./hapax.db on this machine, with nothing to configure.
///
/// Programs on this machine need no token. Events are delivered as hapax.toml says, or printed
/// if there is no such file.
#[derive(Debug, clap::Args)]
pub(crate) struct Dev {
    /// Where to listen; port 0 is any that is free
    #[arg(long, env = "HAPAX_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8765")]
    pub(crate) listen: String,
    /// The file with sinks and routes
    #[arg(long, env = "HAPAX_CONFIG", value_name = "FILE", default_value = "hapax.toml")]
    pub(crate) config: PathBuf,
    /// The log format: for people, or one JSON object a line
    #[arg(long, env = "HAPAX_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

/// Serve a ledger to a team, as hapax.toml says.
///
/// Each client shows a token: see `hapax token create`. SIGHUP reads the certificate again; SIGTERM
/// lets running requests end.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// The file with the sections [server], [control], [sinks] and [[routes]]
    #[arg(long, env = "HAPAX_CONFIG", value_name = "FILE", default_value = "hapax.toml")]
    pub(crate) config: PathBuf,
    /// Where to listen, instead of what the file says
    #[arg(long, env = "HAPAX_LISTEN", value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Check the file, and do nothing else
    #[arg(long)]
    pub(crate) check_config: bool,
    /// The log format: for people, or one JSON object a line
    #[arg(long, env = "HAPAX_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Make a token, and print it: it is not shown again
    Create {
        /// Its role
        #[arg(long, value_enum)]
        role: Role,
        /// Good in every namespace, instead of --namespace
        #[arg(long)]
        every_namespace: bool,
        /// The holder of the token
        #[arg(long, env = "USER", default_value = "unknown")]
        holder: String,
        /// Let it expire after this long; never unless given
        #[arg(long, value_parser = duration, value_name = "DURATION")]
        lifetime: Option<Duration>,
    },
    /// List tokens, without their secrets
    List,
    /// Revoke a token; servers know within a second
    Revoke {
        /// Its id, as `token list` names it, or the token itself
        token: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Read
    Viewer,
    /// Read; perform effects, deliver events, resolve effects
    Operator,
    /// All that, and clear records
    Steward,
}

/// Receive webhooks on loopback, check their signatures, and print them.
///
/// Prints each message once; one whose id came before is only reported.
#[derive(Debug, clap::Args)]
pub(crate) struct Listen {
    /// The port; any free one unless given
    #[arg(long, default_value_t = 0)]
    pub(crate) port: u16,
    /// Accept only messages signed with this; may be given several times
    #[arg(long, env = "HAPAX_WEBHOOK_SECRET", value_name = "whsec_…", hide_env_values = true)]
    pub(crate) secret: Vec<String>,
    /// The status to answer with
    #[arg(long, default_value_t = 204)]
    pub(crate) answer: u16,
}

/// Stand before any HTTP service and forward each Idempotency-Key once.
///
/// A repeated request gets the recorded answer, with Idempotent-Replayed: true. The same key with
/// another body is refused. A request that was forwarded and not answered is not forwarded again:
/// its outcome is unknown until --probe or a person has found out.
#[derive(Debug, clap::Args)]
pub(crate) struct Proxy {
    /// Where requests go
    #[arg(long, value_name = "URL")]
    pub(crate) upstream: String,
    /// Send the client's Host to the service, in place of the service's own
    #[arg(long)]
    pub(crate) preserve_host: bool,
    /// Where to listen
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDRESS:PORT")]
    pub(crate) listen: String,
    /// The certificate to listen with, and its chain, in PEM; SIGHUP reads it again
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// The certificate's key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Where to serve /metrics, /healthz and /readyz, to any client that can reach it
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) metrics: Option<String>,
    /// The conventions to follow: the header, the statuses, the answers that are kept
    #[arg(long, value_enum, default_value_t = Preset::Ietf)]
    pub(crate) preset: Preset,
    /// Forward requests without a key, instead of refusing them
    #[arg(long)]
    pub(crate) optional: bool,
    /// Wait this long for the same request in flight; otherwise answer 409 at once
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) wait: Option<Duration>,
    /// Tell clients apart by this header, which a gateway before the proxy has to set
    #[arg(long, value_name = "HEADER")]
    pub(crate) tenant_header: Option<String>,
    /// Tell callers apart, who get no answers of each other: jwt:CLAIM, header:NAME, cookie:NAME,
    /// authorization or none; unless given, a key is refused with other credentials
    #[arg(long, value_parser = identity, value_name = "RULE")]
    pub(crate) identity: Option<Identity>,
    /// How long the service may take to answer
    #[arg(long, value_parser = duration, value_name = "DURATION", default_value = "30s")]
    pub(crate) timeout: Duration,
    /// How long answers are kept
    #[arg(long, value_parser = duration, value_name = "DURATION", default_value = "24h")]
    pub(crate) lifetime: Duration,
    /// A path of the service that reports on {key}, of {tenant} or {caller}, at {path}: 2xx it happened, 404 it did not
    #[arg(long, value_name = "/PATH/{key}")]
    pub(crate) probe: Option<String>,
    /// How long after a 404 the request may still arrive; 0s if the service refuses late ones
    #[arg(long, value_parser = duration, value_name = "DURATION", default_value = "60s")]
    pub(crate) settling: Duration,
    /// The largest request with a key, in bytes
    #[arg(long, default_value_t = 1024 * 1024, value_name = "BYTES")]
    pub(crate) largest_request: usize,
    /// The largest answer that is kept, in bytes
    #[arg(long, default_value_t = 1024 * 1024, value_name = "BYTES")]
    pub(crate) largest_answer: usize,
    /// The meaning of a status, in place of the preset's: 503=unknown
    #[arg(long, value_parser = meaning, value_name = "STATUS=kept|not-done|unknown")]
    pub(crate) meaning: Vec<(http::StatusCode, Settlement)>,
    /// Keep this header of answers too
    #[arg(long, value_name = "HEADER")]
    pub(crate) keep_header: Vec<http::HeaderName>,
    /// Redact this part of answers before they are recorded, as a JSON pointer
    #[arg(long, value_name = "/POINTER")]
    pub(crate) redact: Vec<String>,
    /// How many connections at once, and how many requests are forwarded at once
    #[arg(long, default_value_t = 1024, value_name = "N")]
    pub(crate) connections: usize,
    /// The log format: for people, or one JSON object a line
    #[arg(long, env = "HAPAX_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

fn identity(text: &str) -> Result<Identity, String> {
    let known = || match text.split_once(':') {
        None if text == "authorization" => Some(Identity::Authorization),
        None if text == "none" => Some(Identity::None),
        Some(("jwt", claim)) if !claim.is_empty() => Some(Identity::Jwt(claim.to_owned())),
        Some(("header", name)) => name.parse().ok().map(Identity::Header),
        Some(("cookie", name)) if !name.is_empty() => Some(Identity::Cookie(name.to_owned())),
        _ => None,
    };
    known().ok_or_else(|| {
        "write jwt:CLAIM, header:NAME, cookie:NAME, authorization or none, such as jwt:sub".into()
    })
}

fn meaning(text: &str) -> Result<(http::StatusCode, Settlement), String> {
    let known = || -> Option<_> {
        let (status, fate) = text.split_once('=')?;
        let fate = match fate {
            "kept" => Settlement::Settled,
            "not-done" => Settlement::NotDone,
            "unknown" => Settlement::Unknown,
            _ => return None,
        };
        Some((status.parse().ok()?, fate))
    };
    known()
        .ok_or_else(|| "write a status and kept, not-done or unknown, such as 503=unknown".into())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// The IETF's draft: a key is required, 409 in flight, 422 for another body
    Ietf,
    /// A key is optional, every answer but a refusal is kept, 400 for another body
    Stripe,
    /// X-Amz-Client-Token, optional; 400 for another body
    Aws,
    /// A UUID, optional; the same request waits for the one in flight
    Iceberg,
}
