//! `hapax proxy`: requests to any service happen once.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hapax::{Safety, Settling};
use hapax_server::idempotency::{IdempotencyLayer, KeyNeed, OnInFlight, Preset, Settings, Tenant};
use hapax_server::listener::{self, Doors, Limits};
use hapax_server::proxy::Upstream;
use hapax_server::telemetry::Telemetry;
use hapax_server::watch::Watch;
use tower_layer::Layer as _;

use crate::args::{self, Global, Proxy};
use crate::exit::{Exit, Failed};
use crate::{door, log, output, stop};

pub(crate) async fn main(global: &Global, asked: &Proxy) -> Result<Exit, Failed> {
    log::listen(None, asked.log_format)?;
    let say = |event, what: &str| log::say(asked.log_format, event, what);
    let upstream = Upstream::new(&asked.upstream, asked.timeout)
        .map_err(|error| Failed::usage(format!("--upstream: {error}")))?;
    let settings = settings(asked)?;
    if let Some(path) = &asked.probe
        && !(path.starts_with('/') && path.contains("{key}"))
    {
        return Err(Failed::usage("--probe is a path of the service, with {key} in it")
            .next("For example: --probe '/charges/by-key/{key}'"));
    }
    let by_tenant = asked.probe.as_ref().is_none_or(|path| path.contains("{tenant}"));
    if asked.tenant_header.is_some() && !by_tenant {
        return Err(Failed::usage("--probe does not tell tenants apart, and --tenant-header does")
            .next("Put {tenant} into the path of the probe, so that it asks for the right one."));
    }
    let namespace = output::namespace(global)?;
    let tls = match (&asked.tls_certificate, &asked.tls_key) {
        (Some(certificate), Some(key)) => {
            Some(door::tls("--tls-certificate and --tls-key", certificate, key)?)
        }
        _ => None,
    };
    let listener = door::bound("--listen", &asked.listen).await?;
    let address = door::local(&listener)?;
    let aside = match &asked.metrics {
        Some(address) => Some(door::bound("--metrics", address).await?),
        None => None,
    };
    let hapax = output::builder(global).open(&global.db).await?.in_namespace(namespace);
    let mut layer = IdempotencyLayer::new(hapax.clone(), settings.clone());
    if let Some(path) = asked.probe.clone() {
        let (prober, settling) = (upstream.clone(), settling(asked.settling));
        layer = layer.safety(Safety::Reconcilable(settling)).look(move |sought| {
            let (prober, path, settings) = (prober.clone(), path.clone(), settings.clone());
            async move { prober.probe(&path, &sought, &settings).await }
        });
    }
    door::reload_on_hangup(tls.clone())?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let what = format!(
        "{scheme}://{address} passes requests on to {}, each key once; stop with Ctrl-C",
        asked.upstream
    );
    say("serving", &what);
    let watch = Watch::new(hapax.clone());
    if let Some(listener) = aside {
        let address = door::local(&listener)?;
        say("watched", &format!("http://{address}/metrics says what is counted"));
        let doors = Doors { listener, tls: None, limits: Limits::default() };
        tokio::spawn(listener::serve(doors, watch.router(), std::future::pending()));
    }
    // Longer than the service may take, so that running requests can finish.
    let drain = asked.timeout + Duration::from_secs(5);
    let limits = Limits { connections: asked.connections, drain, ..Limits::default() };
    let told = stop::told()?;
    let stopped = async {
        told.await;
        door::is_stopping();
        watch.stop();
        say("stopping", "finishing what was begun");
    };
    let doors = Doors { listener, tls, limits };
    let telemetry = Telemetry::start(&hapax, &Arc::default(), None)?;
    let app = watch.over(Router::new().fallback_service(layer.layer(upstream)));
    door::is_ready();
    listener::serve(doors, telemetry.traced(app), stopped).await;
    let _ = tokio::time::timeout(drain, layer.drained()).await;
    telemetry.stop().await;
    hapax.close().await?;
    Ok(Exit::Done)
}

fn settling(time: Duration) -> Settling {
    Settling::of_ms(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

fn settings(asked: &Proxy) -> Result<Settings, Failed> {
    let preset = match asked.preset {
        args::Preset::Ietf => Preset::Ietf,
        args::Preset::Stripe => Preset::Stripe,
        args::Preset::Aws => Preset::Aws,
        args::Preset::Iceberg => Preset::Iceberg,
    };
    let mut settings = Settings::new(preset)
        .lifetime(Some(asked.lifetime))
        .largest_request(asked.largest_request)
        .largest_answer(asked.largest_answer)
        .longest_answer(asked.timeout)
        .at_once(asked.connections);
    if asked.optional {
        settings = settings.need(KeyNeed::Optional);
    }
    if let Some(wait) = asked.wait {
        settings = settings.in_flight(OnInFlight::Wait(wait));
    }
    if let Some(name) = &asked.tenant_header {
        let name = name.parse();
        let name =
            name.map_err(|_| Failed::usage("invalid --tenant-header: not the name of a header"))?;
        settings = settings.tenant(Tenant::Header(name));
    }
    if let Some(wrong) = asked.redact.iter().find(|pointer| !pointer.starts_with('/')) {
        return Err(Failed::usage(format!("--redact {wrong}: a JSON pointer begins with /")));
    }
    for (status, fate) in &asked.meaning {
        settings = settings.meaning(*status, *fate);
    }
    Ok(settings.and_kept_headers(asked.keep_header.clone()).redacted(asked.redact.clone()))
}
