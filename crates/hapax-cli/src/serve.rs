//! `hapax dev` and `hapax serve`: the ledger under an address.

use std::path::Path;
use std::time::Duration;

use hapax::Hapax;
use hapax::outbox::{Dispatcher, Outbox};
use hapax_server::access::{Access, Allowance, Tokens};
use hapax_server::listener::{self, Doors, Limits};
use hapax_server::server::{Server, Terms};
use hapax_server::tls::Tls;
use hapax_sinks::stdout::Stdout;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Dev, Global, LogFormat, Serve};
use crate::config::{Config, Served};
use crate::exit::{Exit, Failed};
use crate::otlp::Telemetry;
use crate::{log, output, stop};

/// Where to listen, if nobody says.
const LISTEN: &str = "127.0.0.1:8765";

/// `hapax dev`.
pub(crate) async fn dev(global: &Global, asked: &Dev) -> Result<Exit, Failed> {
    log::listen(None, LogFormat::Text)?;
    let listener = bound(&asked.listen).await?;
    let address = local(&listener)?;
    if !address.ip().is_loopback() {
        return Err(Failed::usage(format!("{} is reachable from elsewhere", asked.listen))
            .next("Serve others with tokens: hapax serve"));
    }
    let hapax = output::builder(global).holder(title("dev")).open(&global.db).await?;
    let outbox = match asked.config.exists() {
        true => Config::read(&asked.config)?.outbox()?,
        false => printed()?,
    };
    let dispatcher = hapax.dispatch(outbox).await?;
    eprintln!(
        "hapax: http://{address} serves {}; stop with Ctrl-C. In another terminal:\n       \
         curl -d '{{}}' -H 'Content-Type: application/json' http://{address}/v1/effects/hello/claim",
        global.db.display()
    );
    let server = Server::new(hapax.clone(), Access::Everybody, Terms::default());
    let doors = Doors { listener, tls: None, limits: Limits::default() };
    served(&server, doors, hapax, Some(dispatcher)).await
}

/// Every event is printed.
fn printed() -> Result<Outbox, Failed> {
    let outbox = Outbox::new().sink("stdout", Stdout);
    let outbox = outbox.and_then(|outbox| outbox.route("*", "*", &["stdout"]));
    outbox.map_err(|error| Failed::usage(error.to_string()))
}

/// `hapax serve`.
pub(crate) async fn serve(global: &Global, asked: &Serve) -> Result<Exit, Failed> {
    let config = match asked.config.exists() || asked.config != Path::new("hapax.toml") {
        true => Config::read(&asked.config)?,
        false => Config::default(),
    };
    let outbox = config.outbox()?;
    let tls = tls(&config)?;
    let listen = asked.listen.as_deref().or(config.server.listen.as_deref()).unwrap_or(LISTEN);
    if asked.check_config {
        let what = format!("{} is right", asked.config.display());
        match global.json {
            true => output::json(&serde_json::json!({ "right": true })),
            false => output::print(&what),
        }
        return Ok(Exit::Done);
    }
    log::listen(None, asked.log_format)?;
    let listener = bound(listen).await?;
    let address = local(&listener)?;
    let hapax = output::builder(global).holder(title("serve")).open(&global.db).await?;
    let dispatches = config.server.dispatch.unwrap_or(true) && config.has_sinks();
    let dispatcher = match dispatches {
        true => Some(hapax.dispatch(outbox).await?),
        false => None,
    };
    if hapax.tokens().await?.is_empty() {
        eprintln!("hapax: nobody is let in yet; make a token: hapax token create --role operator");
    }
    let scheme = if tls.is_some() { "https" } else { "http" };
    eprintln!("hapax: {scheme}://{address} serves the ledger; stop with Ctrl-C");
    if tls.is_none() && !address.ip().is_loopback() {
        eprintln!(
            "hapax: tokens go over the network in the clear; set tls_certificate and tls_key"
        );
    }
    if let Some(tls) = tls.clone() {
        tokio::spawn(reloading(tls));
    }
    let access = Access::Tokens(Tokens::default());
    let server = Server::new(hapax.clone(), access, terms(&config.server));
    let doors = Doors { listener, tls, limits: limits(&config.server) };
    served(&server, doors, hapax, dispatcher).await
}

/// Serves until it is told to stop, and brings everything to its end in the right order: no new
/// requests, those under way, deliveries, the lease.
async fn served(
    server: &std::sync::Arc<Server>,
    doors: Doors,
    hapax: Hapax,
    dispatcher: Option<Dispatcher>,
) -> Result<Exit, Failed> {
    let telemetry = Telemetry::start(&hapax)?;
    let told = stop::told()?;
    notify(&[sd_notify::NotifyState::Ready]);
    let stopped = async {
        told.await;
        notify(&[sd_notify::NotifyState::Stopping]);
        server.stop();
        eprintln!("hapax: finishing what was begun");
    };
    listener::serve(doors, telemetry.traced(server.router()), stopped).await;
    if let Some(dispatcher) = dispatcher {
        dispatcher.stop().await?;
    }
    telemetry.stop().await;
    hapax.close().await?;
    Ok(Exit::Done)
}

/// Tells systemd, where it is there to be told.
fn notify(state: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(name: "notify_failed", %error, "systemd could not be told");
    }
}

/// Reads the certificate again whenever SIGHUP comes.
async fn reloading(tls: Tls) {
    let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
    while hangup.recv().await.is_some() {
        match tls.reload() {
            Ok(()) => tracing::info!(name: "tls_reloaded", "the certificate was read again"),
            Err(error) => {
                tracing::error!(name: "tls_not_reloaded", %error, "the old certificate stays");
            }
        }
    }
}

fn tls(config: &Config) -> Result<Option<Tls>, Failed> {
    let Served { tls_certificate, tls_key, .. } = &config.server;
    match (tls_certificate, tls_key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => {
            Tls::read(&config.beside(certificate), &config.beside(key))
                .map(Some)
                .map_err(|error| Failed::usage(format!("server.tls_certificate: {error}")))
        }
        _ => Err(Failed::usage("server.tls_certificate and server.tls_key go together")),
    }
}

fn terms(served: &Served) -> Terms {
    let default = Terms::default();
    let allowance = Allowance {
        rate: served.rate.unwrap_or(default.allowance.rate),
        burst: served.burst.or(served.rate).unwrap_or(default.allowance.burst),
        at_once: served.at_once.unwrap_or(default.allowance.at_once),
    };
    Terms {
        largest_request: served.largest_request.unwrap_or(default.largest_request),
        longest_wait: served.longest_wait.unwrap_or(default.longest_wait),
        key_lifetime: served.key_lifetime.unwrap_or(default.key_lifetime),
        allowance,
        ..default
    }
}

fn limits(served: &Served) -> Limits {
    let default = Limits::default();
    // Longer than a request may wait, so that what was begun is finished.
    let longest = terms(served).longest_wait + Duration::from_secs(5);
    Limits {
        connections: served.connections.unwrap_or(default.connections),
        drain: served.drain.unwrap_or(longest),
        ..default
    }
}

fn title(command: &str) -> String {
    format!("hapax {command}, process {}", std::process::id())
}

/// Takes the address, or says what to do about it.
pub(crate) async fn bound(address: &str) -> Result<TcpListener, Failed> {
    TcpListener::bind(address).await.map_err(|error| {
        Failed::new(Exit::Unreachable, format!("--listen {address}: {error}"))
            .next("Choose another address or port; port 0 is any that is free.")
    })
}

pub(crate) fn local(listener: &TcpListener) -> Result<std::net::SocketAddr, Failed> {
    listener.local_addr().map_err(|error| Failed::new(Exit::Unreachable, error.to_string()))
}
