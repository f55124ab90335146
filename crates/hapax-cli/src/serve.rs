//! `hapax dev` and `hapax serve`: the ledger under an address.

use std::path::Path;
use std::time::Duration;

use hapax::Hapax;
use hapax::outbox::{Dispatcher, OutboxConfig};
use hapax_items::Items;
use hapax_pipeline::projector::Projector;
use hapax_server::access::{Access, Allowance, TokenCache};
use hapax_server::listener::{self, ConnectionLimits, ListeningSocket};
use hapax_server::server::{Server, ServerSettings, Systems};
use hapax_server::telemetry::Telemetry;
use hapax_server::tls::Tls;
use hapax_sinks::stdout::Stdout;

use crate::args::{Dev, Global, LogFormat, Serve};
use crate::config::{Config, ServerSection};
use crate::exit::{Exit, Failed};
use crate::outbox::dispatch::project_with;
use crate::{log, output, service, stop};

/// The address to listen on by default.
const LISTEN: &str = "127.0.0.1:8765";

/// `hapax dev`.
pub(crate) async fn dev(global: &Global, args: &Dev) -> Result<Exit, Failed> {
    log::listen(None, args.log_format)?;
    let listener = service::bound("--listen", &args.listen).await?;
    let address = service::local(&listener)?;
    if !address.ip().is_loopback() {
        return Err(Failed::usage(format!("{} is reachable from elsewhere", args.listen))
            .next("Serve others with tokens: hapax serve"));
    }
    let hapax = output::builder(global).holder(title("dev")).open(&global.db).await?;
    let config = args.config.exists().then(|| Config::read(&args.config)).transpose()?;
    let (outbox, mut systems) = match &config {
        Some(config) => (config.outbox()?, systems(config)?),
        None => (printed()?, Systems::default()),
    };
    if let Some(config) = &config {
        systems.items = workflows(config, &hapax, &global.db).await?;
    }
    let environment = systems.pipeline.environment.clone();
    let dispatcher = hapax.outbox().dispatch(outbox).await?;
    let message = format!(
        "http://{address} serves {}; stop with Ctrl-C. In another terminal:\n       \
         curl -d '{{}}' -H 'Content-Type: application/json' http://{address}/v1/effects/hello/claim",
        global.db.display()
    );
    log::say(args.log_format, "serving", &message);
    let settings = ServerSettings::default();
    let server = Server::with(hapax.clone(), Access::Everybody, settings, systems);
    let socket = ListeningSocket { listener, tls: None, limits: ConnectionLimits::default() };
    served(&server, socket, hapax, (Some(dispatcher), environment), args.log_format).await
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
pub(crate) async fn serve(global: &Global, args: &Serve) -> Result<Exit, Failed> {
    let config = Config::read_or_default(&args.config)?;
    let (outbox, mut systems) = (config.outbox()?, systems(&config)?);
    let environment = systems.pipeline.environment.clone();
    let tls = tls(&config)?;
    check_numbers(&config.server)?;
    let listen = args.listen.as_deref().or(config.server.listen.as_deref()).unwrap_or(LISTEN);
    if args.check_config {
        let file = args.config.display();
        let message = match args.config.exists() {
            true => format!("{file} is right"),
            false => format!("there is no {file} here; the defaults would be used"),
        };
        match global.json {
            true => output::json(&serde_json::json!({ "right": true })),
            false => output::print(&message),
        }
        return Ok(Exit::Done);
    }
    log::listen(None, args.log_format)?;
    let listener = service::bound("--listen", listen).await?;
    let address = service::local(&listener)?;
    let hapax = output::builder(global).holder(title("serve")).open(&global.db).await?;
    systems.items = workflows(&config, &hapax, &global.db).await?;
    let dispatches = config.server.dispatch.unwrap_or(true) && config.has_sinks();
    let dispatcher = match dispatches {
        true => Some(hapax.outbox().dispatch(outbox).await?),
        false => None,
    };
    if hapax.tokens().list().await?.is_empty() {
        let message = "there is no token, so every request is refused; make one: hapax token create --role operator";
        log::say(args.log_format, "no_tokens", message);
    }
    service::reload_on_hangup(tls.clone())?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let say = |event, message: &str| log::say(args.log_format, event, message);
    say("serving", &format!("{scheme}://{address} serves the ledger; stop with Ctrl-C"));
    if tls.is_none() && !address.ip().is_loopback() {
        say("no_tls", "tokens go over the network in the clear; set tls_certificate and tls_key");
    }
    let access = Access::Tokens(TokenCache::default());
    let server = Server::with(hapax.clone(), access, settings(&config.server), systems);
    let socket = ListeningSocket { listener, tls, limits: limits(&config.server) };
    served(&server, socket, hapax, (dispatcher, environment), args.log_format).await
}

/// Serves until a signal stops it, and ends everything in the right order: new requests, running
/// requests, deliveries, the lease.
async fn served(
    server: &std::sync::Arc<Server>,
    socket: ListeningSocket,
    hapax: Hapax,
    (dispatcher, environment): (Option<Dispatcher>, String),
    format: LogFormat,
) -> Result<Exit, Failed> {
    let telemetry = Telemetry::start(&hapax, &server.meters(), Some(&server.extract()))?;
    let stop_signal = stop::requested()?;
    service::start_passes(&hapax).await;
    service::is_ready();
    let stopped = async {
        stop_signal.await;
        service::is_stopping();
        server.stop();
        log::say(format, "stopping", "finishing running requests");
    };
    server.keep_anchors();
    server.tend_results();
    server.tend_items();
    let projecting = tokio::spawn({
        let (hapax, projector) = (hapax.clone(), Projector::new(&hapax)?);
        let projector = projector.counting(server.meters(), &environment);
        async move { project_with(projector, &hapax, false).await }
    });
    let drain = socket.limits.drain;
    listener::serve(socket, telemetry.traced(server.router()), stopped).await;
    let _ = tokio::time::timeout(drain, server.drained()).await;
    projecting.abort();
    if let Some(dispatcher) = dispatcher {
        dispatcher.stop().await?;
    }
    telemetry.stop().await;
    hapax.close().await?;
    Ok(Exit::Done)
}

/// A limit of 0 would refuse every request.
fn check_numbers(section: &ServerSection) -> Result<(), Failed> {
    let ServerSection { rate, burst, at_once, connections, .. } = *section;
    let least = [rate, burst].into_iter().flatten().min().unwrap_or(1) as usize;
    let least = [at_once, connections].into_iter().flatten().fold(least, usize::min);
    match least {
        0 => Err(Failed::usage("server.rate, burst, at_once and connections are at least 1")
            .next("Leave a setting out for its default.")),
        _ => Ok(()),
    }
}

fn tls(config: &Config) -> Result<Option<Tls>, Failed> {
    let ServerSection { tls_certificate, tls_key, .. } = &config.server;
    match (tls_certificate, tls_key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => {
            let (certificate, key) = (config.beside(certificate), config.beside(key));
            service::tls("server.tls_certificate and tls_key", &certificate, &key).map(Some)
        }
        _ => Err(Failed::usage("server.tls_certificate and server.tls_key go together")),
    }
}

fn settings(section: &ServerSection) -> ServerSettings {
    let default = ServerSettings::default();
    let allowance = Allowance {
        rate: section.rate.unwrap_or(default.allowance.rate),
        burst: section.burst.or(section.rate).unwrap_or(default.allowance.burst),
        at_once: section.at_once.unwrap_or(default.allowance.at_once),
    };
    ServerSettings {
        largest_request: section.largest_request.unwrap_or(default.largest_request),
        longest_wait: section.longest_wait.unwrap_or(default.longest_wait),
        key_lifetime: section.key_lifetime.unwrap_or(default.key_lifetime),
        allowance,
        ..default
    }
}

fn limits(section: &ServerSection) -> ConnectionLimits {
    let default = ConnectionLimits::default();
    // Longer than a request may wait, so that running requests can finish.
    let longest = settings(section).longest_wait + Duration::from_secs(5);
    ConnectionLimits {
        connections: section.connections.unwrap_or(default.connections),
        drain: section.drain.unwrap_or(longest),
        ..default
    }
}

fn title(command: &str) -> String {
    format!("hapax {command}, process {}", std::process::id())
}
