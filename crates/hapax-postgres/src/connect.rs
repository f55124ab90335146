//! One connection to the database, and the thread-bound runtime that drives it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hapax_core::planted::{Bug, planted};
use hapax_store::StoreError;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::runtime::Runtime;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, NoTls, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::{PgFailure, described};

/// How long the server has to answer a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the server has to answer any other call.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Where the database is and how to speak to it.
#[derive(Clone)]
pub(crate) struct Address {
    config: Config,
    tls: Option<MakeRustlsConnect>,
}

impl Address {
    /// Reads a `postgres://` URL. `sslmode` decides whether TLS is used; by default it is, unless
    /// every server is on this machine. With TLS, certificates are always verified.
    pub(crate) fn parse(url: &str) -> Result<Self, StoreError> {
        let (url, sslmode, root) = take_tls_options(url)?;
        let mut config: Config = url
            .parse()
            .map_err(|error| StoreError::Invalid(format!("the database URL: {error}")))?;
        config
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .connect_timeout(CONNECT_TIMEOUT)
            .keepalives_idle(Duration::from_secs(10))
            .tcp_user_timeout(Duration::from_secs(10));
        if config.get_application_name().is_none() {
            config.application_name("hapax");
        }
        let is_local = config.get_hosts().iter().all(|host| match host {
            Host::Tcp(name) => matches!(name.as_str(), "localhost" | "127.0.0.1" | "::1"),
            Host::Unix(_) => true,
        });
        let tls = match sslmode.as_deref() {
            Some("disable") => false,
            Some("require" | "verify-ca" | "verify-full") => true,
            None | Some("allow" | "prefer") => !is_local,
            Some(other) => {
                return Err(StoreError::Invalid(format!("the database URL: sslmode={other}?")));
            }
        };
        config.ssl_mode(if tls { SslMode::Require } else { SslMode::Disable });
        let tls = if tls { Some(connector(root.as_deref())?) } else { None };
        Ok(Self { config, tls })
    }

    /// Connects, and checks whether the session is direct: it is if it returns the random word that we
    /// set at startup. A pooler refuses or loses the word.
    async fn connect(&self) -> Result<(Client, bool), tokio_postgres::Error> {
        let word = format!("{:016x}", getrandom::u64().unwrap_or_default());
        let mut config = self.config.clone();
        let options = config.get_options().unwrap_or_default();
        // Our statements are short; compiling them would take longer than running them.
        config.options(format!("{options} -c jit=off -c hapax.session={word}"));
        let client = match self.connect_with(&config).await {
            Ok(client) => client,
            Err(error) if error.code() == Some(&SqlState::PROTOCOL_VIOLATION) => {
                return Ok((self.connect_with(&self.config).await?, false));
            }
            Err(error) => return Err(error),
        };
        // A session setting survives a reload of the configuration, which may turn synchronous_commit
        // off.
        let is_direct = "SELECT current_setting('hapax.session', true) IS NOT DISTINCT FROM $1,
             CASE WHEN current_setting('hapax.session', true) IS NOT DISTINCT FROM $1 AND $2
             THEN set_config('synchronous_commit', CASE current_setting('synchronous_commit')
                 WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false) END";
        let durable = !planted(Bug::CommitFollowsReload);
        let params = [(&word as &(dyn ToSql + Sync), Type::TEXT), (&durable, Type::BOOL)];
        let row = client.query_typed_one(is_direct, &params).await?;
        Ok((client, row.try_get(0)?))
    }

    async fn connect_with(&self, config: &Config) -> Result<Client, tokio_postgres::Error> {
        match &self.tls {
            Some(tls) => {
                let (client, connection) = config.connect(tls.clone()).await?;
                tokio::spawn(connection);
                Ok(client)
            }
            None => {
                let (client, connection) = config.connect(NoTls).await?;
                tokio::spawn(connection);
                Ok(client)
            }
        }
    }
}

/// A connection for the caller's own transactions, driven by the caller's runtime.
pub async fn client(url: &str) -> Result<Client, StoreError> {
    let address = Address::parse(url)?;
    match tokio::time::timeout(CONNECT_TIMEOUT * 2, address.connect_with(&address.config)).await {
        Ok(client) => client.map_err(|error| StoreError::Unavailable(described(&error))),
        Err(_) => Err(StoreError::Unavailable("the server does not answer".into())),
    }
}

/// Takes the options that the driver does not know out of the URL.
fn take_tls_options(url: &str) -> Result<(String, Option<String>, Option<String>), StoreError> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(StoreError::Invalid("a database URL begins with postgres://".into()));
    }
    let Some((base, query)) = url.split_once('?') else { return Ok((url.into(), None, None)) };
    let (mut kept, mut sslmode, mut root) = (Vec::new(), None, None);
    for option in query.split('&') {
        match option.split_once('=') {
            Some(("sslmode", value)) => sslmode = Some(value.to_owned()),
            Some(("sslrootcert", value)) => root = Some(value.replace("%2F", "/")),
            _ => kept.push(option),
        }
    }
    let separator = if kept.is_empty() { "" } else { "?" };
    Ok((format!("{base}{separator}{}", kept.join("&")), sslmode, root))
}

fn connector(root: Option<&str>) -> Result<MakeRustlsConnect, StoreError> {
    let mut roots = rustls::RootCertStore::empty();
    match root {
        Some(path) => {
            let unreadable = |error: &dyn std::fmt::Display| {
                StoreError::Invalid(format!("sslrootcert={path}: {error}"))
            };
            for certificate in
                CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))?
            {
                let certificate = certificate.map_err(|error| unreadable(&error))?;
                roots.add(certificate).map_err(|error| unreadable(&error))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| StoreError::Invalid(format!("TLS: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// One connection, driven by the thread that owns it.
pub(crate) struct Link {
    runtime: Runtime,
    client: Client,
    /// Whether the session is ours alone. Behind a pooler it is not, and then a prepared statement may
    /// belong to another client.
    direct: bool,
    prepared: RefCell<HashMap<&'static str, Statement>>,
}

/// A parameter and its type, which saves the round trip that asks the server for it.
pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// A statement to prepare once per connection, and its parameters.
pub(crate) type PreparedQuery<'a> = (&'static str, &'a [Param<'a>]);

impl Link {
    pub(crate) fn connect(address: &Address) -> Result<Self, PgFailure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| PgFailure::Lost(format!("no runtime: {error}")))?;
        let (client, direct) = runtime.block_on(async {
            match tokio::time::timeout(CONNECT_TIMEOUT * 2, address.connect()).await {
                Ok(Ok(connected)) => Ok(connected),
                Ok(Err(error)) if error.code().is_some_and(|code| &code.code()[..2] == "28") => {
                    Err(PgFailure::Refused(StoreError::Unavailable(described(&error))))
                }
                Ok(Err(error)) => Err(PgFailure::Lost(described(&error))),
                Err(_) => Err(PgFailure::Lost("the server does not answer".into())),
            }
        })?;
        Ok(Self { runtime, client, direct, prepared: RefCell::default() })
    }

    /// Whether the session is ours alone, so that it keeps its settings.
    pub(crate) fn is_ours(&self) -> bool {
        self.direct
    }

    /// Gives a session of ours the planner settings of `hapax.quick` once, instead of at each call.
    pub(crate) fn set_quick_settings(&self) -> Result<(), PgFailure> {
        match self.direct {
            true => self.run(
                "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
                 SET plan_cache_mode = force_generic_plan; SET lock_timeout = '50ms'",
            ),
            false => Ok(()),
        }
    }

    /// Whether the server has closed the connection, as far as this side has noticed.
    pub(crate) fn is_closed(&self) -> bool {
        self.runtime.block_on(tokio::task::yield_now());
        self.client.is_closed()
    }

    /// Drives a future to its end on this connection, for at most [`CALL_TIMEOUT`].
    pub(crate) fn wait<T>(
        &self,
        future: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, PgFailure> {
        self.runtime.block_on(async {
            match tokio::time::timeout(CALL_TIMEOUT, future).await {
                Ok(result) => Ok(result?),
                Err(_) => Err(PgFailure::Lost("the server does not answer".into())),
            }
        })
    }

    /// Runs statements without parameters or results.
    pub(crate) fn run(&self, sql: &str) -> Result<(), PgFailure> {
        self.wait(self.client.batch_execute(sql))
    }

    /// Begins a transaction, with `mode` after BEGIN and these statements in it. It is sent together
    /// with the next statement. Its result is not read here:
    /// [`ServerClock::read_in_transaction`](crate::clock::ServerClock::read_in_transaction) checks it.
    pub(crate) fn begin(&self, mode: &str, statements: &str) {
        let sql = format!("BEGIN {mode}; SET LOCAL hapax.begun = 'yes'; {statements}");
        let mut sent = std::pin::pin!(self.client.batch_execute(&sql));
        let _ = self.runtime.block_on(std::future::poll_fn(|context| {
            std::task::Poll::Ready(sent.as_mut().poll(context))
        }));
    }

    /// Runs a statement that is prepared once, if the session is ours.
    pub(crate) fn query_prepared(&self, query: PreparedQuery<'_>) -> Result<Vec<Row>, PgFailure> {
        self.wait(self.run_prepared(query))
    }

    /// Runs two prepared statements in one round trip.
    pub(crate) fn query_both(
        &self,
        a: PreparedQuery<'_>,
        b: PreparedQuery<'_>,
    ) -> Result<(Vec<Row>, Vec<Row>), PgFailure> {
        self.wait(async { tokio::try_join!(self.run_prepared(a), self.run_prepared(b)) })
    }

    async fn run_prepared(
        &self,
        (sql, params): PreparedQuery<'_>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        if !self.direct {
            return self.client.query_typed(sql, params).await;
        }
        let known = self.prepared.borrow().get(sql).cloned();
        let statement = match known {
            Some(statement) => statement,
            None => {
                let types: Vec<Type> = params.iter().map(|(_, kind)| kind.clone()).collect();
                let statement = self.client.prepare_typed(sql, &types).await?;
                self.prepared.borrow_mut().insert(sql, statement.clone());
                statement
            }
        };
        let values: Vec<_> = params.iter().map(|(value, _)| *value).collect();
        self.client.query(&statement, &values).await
    }

    pub(crate) fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, PgFailure> {
        self.wait(self.client.query_typed(sql, params))
    }

    pub(crate) fn one(&self, sql: &str, params: &[Param<'_>]) -> Result<Row, PgFailure> {
        let row = self.query(sql, params)?.pop();
        row.ok_or_else(|| StoreError::Corrupt(format!("no row: {sql}")).into())
    }

    pub(crate) fn execute(&self, sql: &str, params: &[Param<'_>]) -> Result<u64, PgFailure> {
        self.wait(self.client.execute_typed(sql, params))
    }
}
