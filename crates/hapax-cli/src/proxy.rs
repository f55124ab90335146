//! `hapax proxy`: requests to any service happen once.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hapax::{Safety, Settling};
use hapax_server::idempotency::{
    IdempotencyLayer, Identity, KeyNeed, OnInFlight, Preset, Settings, Tenant,
};
use hapax_server::listener::{self, ConnectionLimits, ListeningSocket};
use hapax_server::proxy::Upstream;
use hapax_server::telemetry::Telemetry;
use hapax_server::watch::Watch;
use tower_layer::Layer as _;

use crate::args::{self, Global, Proxy};
use crate::exit::{Exit, Failed};
use crate::{log, output, service, stop};

pub(crate) async fn main(global: &Global, args: &Proxy) -> Result<Exit, Failed> {
    log::listen(None, args.log_format)?;
    let say = |event, message: &str| log::say(args.log_format, event, message);
    let upstream = Upstream::new(&args.upstream, args.timeout)
        .map_err(|error| Failed::usage(format!("--upstream: {error}")))?;
    let upstream = if args.preserve_host { upstream.preserve_host() } else { upstream };
    let settings = settings(args)?;
    if let Some(path) = &args.probe
        && !(path.starts_with('/') && path.contains("{key}"))
    {
        return Err(Failed::usage("--probe is a path of the service, with {key} in it")
            .next("For example: --probe '/charges/by-key/{key}'"));
    }
    let identity = args.identity.clone().unwrap_or_default();
    if let Some(path) = &args.probe {
        can_probe(path, &identity)?;
    }
    let by_tenant = args.probe.as_ref().is_none_or(|path| path.contains("{tenant}"));
    if args.tenant_header.is_some() && !by_tenant {
        return Err(Failed::usage("--tenant-header needs {tenant} in --probe")
            .next("Put {tenant} into the path of --probe, so that it looks up the right tenant."));
    }
    let namespace = output::namespace(global)?;
    let tls = match (&args.tls_certificate, &args.tls_key) {
        (Some(certificate), Some(key)) => {
            Some(service::tls("--tls-certificate and --tls-key", certificate, key)?)
        }
        _ => None,
    };
    let listener = service::bound("--listen", &args.listen).await?;
    let address = service::local(&listener)?;
    let aside = match &args.metrics {
        Some(address) => Some(service::bound("--metrics", address).await?),
        None => None,
    };
    let hapax = output::builder(global).open(&global.db).await?.in_namespace(namespace);
    let mut layer = IdempotencyLayer::new(hapax.clone(), settings.clone());
    if let Some(path) = args.probe.clone() {
        let (prober, settling) = (upstream.clone(), settling(args.settling));
        layer = layer.safety(Safety::Reconcilable(settling)).look(move |request| {
            let (prober, path, settings) = (prober.clone(), path.clone(), settings.clone());
            async move { prober.probe(&path, &request, &settings).await }
        });
    }
    service::reload_on_hangup(tls.clone())?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let message = format!(
        "{scheme}://{address} passes requests on to {}, each key once; stop with Ctrl-C",
        args.upstream
    );
    say("serving", &message);
    let watch = Watch::new(hapax.clone());
    if let Some(listener) = aside {
        let address = service::local(&listener)?;
        say("watched", &format!("metrics at http://{address}/metrics"));
        let socket = ListeningSocket { listener, tls: None, limits: ConnectionLimits::default() };
        tokio::spawn(listener::serve(socket, watch.router(), std::future::pending()));
    }
    say("identity", &rule(&identity));
    // Longer than the service may take, so that running requests can finish.
    let drain = args.timeout + Duration::from_secs(5);
    let limits =
        ConnectionLimits { connections: args.connections, drain, ..ConnectionLimits::default() };
    let stop_signal = stop::requested()?;
    let stopped = async {
        stop_signal.await;
        service::is_stopping();
        watch.stop();
        say("stopping", "finishing running requests");
    };
    let socket = ListeningSocket { listener, tls, limits };
    let telemetry = Telemetry::start(&hapax, &Arc::default(), None)?;
    let app = watch.over(Router::new().fallback_service(layer.layer(upstream)));
    service::start_passes(&hapax).await;
    service::is_ready();
    listener::serve(socket, telemetry.traced(app), stopped).await;
    let _ = tokio::time::timeout(drain, layer.drained()).await;
    telemetry.stop().await;
    hapax.close().await?;
    Ok(Exit::Done)
}

/// Refuses a probe that could report on the request of another caller.
fn can_probe(path: &str, identity: &Identity) -> Result<(), Failed> {
    match identity {
        Identity::Credentials | Identity::None => Ok(()),
        Identity::Jwt(_) | Identity::Header(_) if path.contains("{caller}") => Ok(()),
        Identity::Jwt(_) | Identity::Header(_) => {
            Err(Failed::usage(format!("--identity {identity} needs {{caller}} in --probe"))
                .next("Put {caller} into the path of --probe, so that it looks up the right one."))
        }
        Identity::Cookie(_) | Identity::Authorization => {
            Err(Failed::usage(format!("--identity {identity} cannot be combined with --probe"))
                .next("A credential does not go into a path. Use jwt:CLAIM or header:NAME."))
        }
    }
}

/// The line that says what a caller is.
fn rule(identity: &Identity) -> String {
    let scoped = |caller: &str| format!("a caller is {caller}; each has keys of its own");
    match identity {
        Identity::Credentials => {
            "a caller is its Authorization, Cookie and API-key headers; its keys are refused with \
             others (see --identity)"
                .to_owned()
        }
        Identity::Jwt(claim) => {
            scoped(&format!("the claim {claim} of a bearer token, which the service verifies"))
        }
        Identity::Header(name) => scoped(&format!("the header {name}, which a gateway has to set")),
        Identity::Cookie(name) => scoped(&format!("the cookie {name}")),
        Identity::Authorization => scoped("its header Authorization"),
        Identity::None => {
            "callers are not told apart: any client with the same key and body gets the answer"
                .to_owned()
        }
    }
}

fn settling(time: Duration) -> Settling {
    Settling::of_ms(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

fn settings(args: &Proxy) -> Result<Settings, Failed> {
    let preset = match args.preset {
        args::Preset::Ietf => Preset::Ietf,
        args::Preset::Stripe => Preset::Stripe,
        args::Preset::Aws => Preset::Aws,
        args::Preset::Iceberg => Preset::Iceberg,
    };
    let mut settings = Settings::new(preset)
        .lifetime(Some(args.lifetime))
        .largest_request(args.largest_request)
        .largest_answer(args.largest_answer)
        .longest_answer(args.timeout)
        .at_once(args.connections);
    if let Some(identity) = args.identity.clone() {
        settings = settings.identity(identity);
    }
    if args.optional {
        settings = settings.need(KeyNeed::Optional);
    }
    if let Some(wait) = args.wait {
        settings = settings.in_flight(OnInFlight::Wait(wait));
    }
    if let Some(name) = &args.tenant_header {
        let name = name.parse();
        let name =
            name.map_err(|_| Failed::usage("invalid --tenant-header: not the name of a header"))?;
        settings = settings.tenant(Tenant::Header(name));
    }
    if let Some(wrong) = args.redact.iter().find(|pointer| !pointer.starts_with('/')) {
        return Err(Failed::usage(format!("--redact {wrong}: a JSON pointer begins with /")));
    }
    for (status, fate) in &args.meaning {
        settings = settings.meaning(*status, *fate);
    }
    Ok(settings.and_kept_headers(args.keep_header.clone()).redacted(args.redact.clone()))
}
