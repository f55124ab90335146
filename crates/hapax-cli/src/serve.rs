//! `hapax dev` and `hapax serve`: the ledger under an address.

use std::path::Path;
use std::time::Duration;

use hapax::Hapax;
use hapax::outbox::{Dispatcher, OutboxConfig};
use hapax_items::Items;
use hapax_pipeline::projector::Projector;
use hapax_server::access::{Access, Allowance, Tokens};
use hapax_server::listener::{self, Doors, Limits};
use hapax_server::server::{Server, Systems, Terms};
use hapax_server::telemetry::Telemetry;
use hapax_server::tls::Tls;
use hapax_sinks::stdout::Stdout;

use crate::args::{Dev, Global, LogFormat, Serve};
use crate::config::{Config, Served};
use crate::exit::{Exit, Failed};
use crate::outbox::dispatch::project_with;
use crate::{door, log, output, stop};

/// The address to listen on by default.
const LISTEN: &str = "127.0.0.1:8765";

/// `hapax dev`.
pub(crate) async fn dev(global: &Global, asked: &Dev) -> Result<Exit, Failed> {
    log::listen(None, asked.log_format)?;
    let listener = door::bound("--listen", &asked.listen).await?;
    let address = door::local(&listener)?;
    if !address.ip().is_loopback() {
        return Err(Failed::usage(format!("{} is reachable from elsewhere", asked.listen))
            .next("Serve others with tokens: hapax serve"));
    }
    let hapax = output::builder(global).holder(title("dev")).open(&global.db).await?;
    let config = asked.config.exists().then(|| Config::read(&asked.config)).transpose()?;
    let (outbox, mut systems) = match &config {
        Some(config) => (config.outbox()?, systems(config)?),
        None => (printed()?, Systems::default()),
    };
    if let Some(config) = &config {
        systems.items = workflows(config, &hapax, &global.db).await?;
    }
    let environment = systems.pipeline.environment.clone();
    let dispatcher = hapax.outbox().dispatch(outbox).await?;
    let what = format!(
        "http://{address} serves {}; stop with Ctrl-C. In another terminal:\n       \
         curl -d '{{}}' -H 'Content-Type: application/json' http://{address}/v1/effects/hello/claim",
        global.db.display()
    );
    log::say(asked.log_format, "serving", &what);
    let terms = Terms::default();
    let server = Server::with(hapax.clone(), Access::Everybody, terms, systems);
    let doors = Doors { listener, tls: None, limits: Limits::default() };
    served(&server, doors, hapax, (Some(dispatcher), environment), asked.log_format).await
}

/// The settings of the systems on the ledger, from the file.
fn systems(config: &Config) -> Result<Systems, Failed> {
    Ok(Systems {
        registry: config.registry()?,
        pipeline: config.pipeline(None),
        extractor: config.extractor()?,
        extraction: config.extraction()?,
        items: None,
    })
}

/// Workflows, where the file has any, or tools for them.
async fn workflows(config: &Config, hapax: &Hapax, db: &Path) -> Result<Option<Items>, Failed> {
    match config.has_items() {
        true => config.items(hapax, db).await.map(Some),
        false => Ok(None),
    }
}

/// Prints every event.
fn printed() -> Result<OutboxConfig, Failed> {
    let outbox = OutboxConfig::new().sink("stdout", Stdout);
    let outbox = outbox.and_then(|outbox| outbox.route("*", "*", &["stdout"]));
    outbox.map_err(|error| Failed::usage(error.to_string()))
}

/// `hapax serve`.
pub(crate) async fn serve(global: &Global, asked: &Serve) -> Result<Exit, Failed> {
    let config = Config::read_or_default(&asked.config)?;
    let (outbox, mut systems) = (config.outbox()?, systems(&config)?);
    let environment = systems.pipeline.environment.clone();
    let tls = tls(&config)?;
    check_numbers(&config.server)?;
    let listen = asked.listen.as_deref().or(config.server.listen.as_deref()).unwrap_or(LISTEN);
    if asked.check_config {
        let file = asked.config.display();
        let what = match asked.config.exists() {
            true => format!("{file} is right"),
            false => format!("there is no {file} here; the defaults would be used"),
        };
        match global.json {
            true => output::json(&serde_json::json!({ "right": true })),
            false => output::print(&what),
        }
        return Ok(Exit::Done);
    }
    log::listen(None, asked.log_format)?;
    let listener = door::bound("--listen", listen).await?;
    let address = door::local(&listener)?;
    let hapax = output::builder(global).holder(title("serve")).open(&global.db).await?;
    systems.items = workflows(&config, &hapax, &global.db).await?;
    let dispatches = config.server.dispatch.unwrap_or(true) && config.has_sinks();
    let dispatcher = match dispatches {
        true => Some(hapax.outbox().dispatch(outbox).await?),
        false => None,
    };
    if hapax.tokens().list().await?.is_empty() {
        let what = "there is no token, so every request is refused; make one: hapax token create --role operator";
        log::say(asked.log_format, "no_tokens", what);
    }
    door::reload_on_hangup(tls.clone())?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let say = |event, what: &str| log::say(asked.log_format, event, what);
    say("serving", &format!("{scheme}://{address} serves the ledger; stop with Ctrl-C"));
    if tls.is_none() && !address.ip().is_loopback() {
        say("no_tls", "tokens go over the network in the clear; set tls_certificate and tls_key");
    }
    let access = Access::Tokens(Tokens::default());
    let server = Server::with(hapax.clone(), access, terms(&config.server), systems);
    let doors = Doors { listener, tls, limits: limits(&config.server) };
    served(&server, doors, hapax, (dispatcher, environment), asked.log_format).await
}

/// Serves until a signal stops it, and ends everything in the right order: new requests, running
/// requests, deliveries, the lease.
async fn served(
    server: &std::sync::Arc<Server>,
    doors: Doors,
    hapax: Hapax,
    (dispatcher, environment): (Option<Dispatcher>, String),
    format: LogFormat,
) -> Result<Exit, Failed> {
    let telemetry = Telemetry::start(&hapax, &server.meters(), Some(&server.extract()))?;
    let told = stop::told()?;
    door::is_ready();
    let stopped = async {
        told.await;
        door::is_stopping();
        server.stop();
        log::say(format, "stopping", "finishing what was begun");
    };
    server.keep_anchors();
    server.tend_results();
    server.tend_items();
    let telling = tokio::spawn({
        let (hapax, projector) = (hapax.clone(), Projector::new(&hapax)?);
        let projector = projector.counting(server.meters(), &environment);
        async move { project_with(projector, &hapax, false).await }
    });
    let drain = doors.limits.drain;
    listener::serve(doors, telemetry.traced(server.router()), stopped).await;
    let _ = tokio::time::timeout(drain, server.drained()).await;
    telling.abort();
    if let Some(dispatcher) = dispatcher {
        dispatcher.stop().await?;
    }
    telemetry.stop().await;
    hapax.close().await?;
    Ok(Exit::Done)
}

/// A limit of 0 would refuse every request.
fn check_numbers(served: &Served) -> Result<(), Failed> {
    let Served { rate, burst, at_once, connections, .. } = *served;
    let least = [rate, burst].into_iter().flatten().min().unwrap_or(1) as usize;
    let least = [at_once, connections].into_iter().flatten().fold(least, usize::min);
    match least {
        0 => Err(Failed::usage("server.rate, burst, at_once and connections are at least 1")
            .next("Leave a setting out for its default.")),
        _ => Ok(()),
    }
}

fn tls(config: &Config) -> Result<Option<Tls>, Failed> {
    let Served { tls_certificate, tls_key, .. } = &config.server;
    match (tls_certificate, tls_key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => {
            let (certificate, key) = (config.beside(certificate), config.beside(key));
            door::tls("server.tls_certificate and tls_key", &certificate, &key).map(Some)
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
    // Longer than a request may wait, so that running requests can finish.
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
