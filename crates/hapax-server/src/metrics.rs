//! Prometheus metrics.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::response::Response;
use hapax::outbox::SinkStats;
use hapax::{Counts, Role};
use hapax_pipeline::{Labels, Meter, Meters};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use prometheus::{
    CounterVec, Encoder as _, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::access::Caller;
use crate::problem::{FORBIDDEN, Problem};
use crate::server::Server;

/// The metrics of requests.
pub(crate) struct Requests {
    answered: IntCounterVec,
    seconds: HistogramVec,
    in_flight: IntGauge,
}

/// The metrics of the server itself.
pub(crate) struct Metrics {
    pub(crate) requests: Requests,
    /// Runs that ended, by result.
    pub(crate) runs: IntCounterVec,
    /// Mutations that were looked up, by result.
    pub(crate) reconciled: IntCounterVec,
    /// Open escalations, as maintenance counted them in its last pass.
    pub(crate) escalations: IntGauge,
}

/// The histogram buckets of response times, in seconds.
const BOUNDS: [f64; 12] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

impl Default for Requests {
    fn default() -> Self {
        let answered = Opts::new("hapax_http_requests_total", "Requests that were answered.");
        let seconds = HistogramOpts::new(
            "hapax_http_request_duration_seconds",
            "How long requests took to be answered.",
        );
        let in_flight = Opts::new("hapax_http_requests_under_way", "Requests not answered yet.");
        // Names and labels are constants and valid.
        Self {
            answered: IntCounterVec::new(answered, &["method", "route", "status"])
                .expect("right names"),
            seconds: HistogramVec::new(seconds.buckets(BOUNDS.to_vec()), &["method", "route"])
                .expect("right names"),
            in_flight: IntGauge::with_opts(in_flight).expect("a right name"),
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let runs = Opts::new("hapax_item_runs_total", "Runs of workflows that ended.");
        let reconciled = Opts::new(
            "hapax_item_mutations_reconciled_total",
            "Mutations whose outcome was unknown, and was looked for.",
        );
        let escalations =
            Opts::new("hapax_item_escalations_open", "Open escalations of items and runs.");
        // Names and labels are constants and valid.
        Self {
            requests: Requests::default(),
            runs: IntCounterVec::new(runs, &["result"]).expect("right names"),
            reconciled: IntCounterVec::new(reconciled, &["result"]).expect("right names"),
            escalations: IntGauge::with_opts(escalations).expect("a right name"),
        }
    }
}

/// Counts a request as in flight until it is dropped.
struct InFlightGuard(IntGauge);

impl InFlightGuard {
    fn of(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A request in flight, with its start time.
pub(crate) struct InFlightRequest {
    method: &'static str,
    route: Option<MatchedPath>,
    began: Instant,
    _in_flight: InFlightGuard,
}

impl Requests {
    /// Starts to measure a request. Its label is the route's pattern, so there are no more labels
    /// than routes in the code.
    pub(crate) fn watch(&self, request: &Request) -> InFlightRequest {
        let known = ["GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"];
        let method = known.into_iter().find(|known| *known == request.method().as_str());
        InFlightRequest {
            method: method.unwrap_or("other"),
            route: request.extensions().get::<MatchedPath>().cloned(),
            began: Instant::now(),
            _in_flight: InFlightGuard::of(&self.in_flight),
        }
    }

    /// Counts the request and its duration.
    pub(crate) fn count(&self, request: InFlightRequest, status: StatusCode) {
        let route = request.route.as_ref().map_or("none", MatchedPath::as_str);
        let labels = [request.method, route, status.as_str()];
        self.answered.with_label_values(&labels).inc();
        let took = request.began.elapsed().as_secs_f64();
        self.seconds.with_label_values(&labels[..2]).observe(took);
    }

    /// Adds these metrics to a registry.
    pub(crate) fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.answered.clone()))?;
        registry.register(Box::new(self.seconds.clone()))?;
        registry.register(Box::new(self.in_flight.clone()))
    }
}

/// Serves all metrics, to callers that may see every namespace.
pub(crate) async fn show(State(server): State<Arc<Server>>, request: Request) -> Response {
    let caller = request.extensions().get::<Caller>();
    if !caller.is_some_and(|caller| caller.everywhere && caller.role >= Role::Viewer) {
        let detail = "this concerns every namespace, and the token is good in one";
        return Problem::new(StatusCode::FORBIDDEN, &FORBIDDEN, detail).into_response();
    }
    let stats = match server.hapax.outbox().stats().await {
        Ok(stats) => stats,
        Err(error) => return Problem::of(&error).into_response(),
    };
    text(gathered(&server, &stats))
}

/// The response in the text format of Prometheus.
pub(crate) fn text(registry: prometheus::Result<Registry>) -> Response {
    let mut text = Vec::new();
    let written =
        registry.and_then(|registry| TextEncoder::new().encode(&registry.gather(), &mut text));
    if let Err(error) = written {
        tracing::warn!(name: "metrics_not_written", %error, "writing metrics failed");
    }
    let mut response = Response::new(text.into());
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn gathered(server: &Server, sinks: &[SinkStats]) -> prometheus::Result<Registry> {
    let (registry, metrics) = (Registry::new(), &server.metrics);
    metrics.requests.register(&registry)?;
    registry.register(Box::new(metrics.runs.clone()))?;
    registry.register(Box::new(metrics.reconciled.clone()))?;
    registry.register(Box::new(metrics.escalations.clone()))?;
    register_counts(&registry, server.hapax.counts(), &server.meters())?;
    server.extract.meters().register(&registry)?;
    let gauge = |name, help| IntGaugeVec::new(Opts::new(name, help), &["sink"]);
    let pending = gauge("hapax_outbox_pending", "Events that a sink does not have yet.")?;
    let failed = gauge("hapax_outbox_failed", "Events given up until they are redriven.")?;
    let paused = gauge("hapax_outbox_paused", "Whether a sink gets nothing for now.")?;
    for stats in sinks {
        let sink = stats.sink.name.as_str();
        pending.with_label_values(&[sink]).set(stats.pending as i64);
        failed.with_label_values(&[sink]).set(stats.failed as i64);
        paused.with_label_values(&[sink]).set(i64::from(stats.sink.paused));
    }
    for gauge in [pending, failed, paused] {
        registry.register(Box::new(gauge))?;
    }
    Ok(registry)
}

/// Adds the counts of a process: those of its ledger, and those of operations on it.
pub(crate) fn register_counts(
    registry: &Registry,
    counts: Counts,
    meters: &Meters,
) -> prometheus::Result<()> {
    for (name, help, count) in [
        ("hapax_grants_total", "Permissions given.", counts.granted),
        ("hapax_retries_total", "Permissions given after an earlier attempt.", counts.retried),
        ("hapax_replays_total", "Outcomes replayed.", counts.replayed),
        ("hapax_cache_hits_total", "Outcomes that the cache had.", counts.cache_hits),
        ("hapax_cache_misses_total", "Outcomes that the cache did not have.", counts.cache_misses),
        ("hapax_lock_failures_total", "Requests whose lock was held.", counts.lock_failures),
        ("hapax_conflicts_total", "Keys used with another payload.", counts.conflicts),
        ("hapax_blocked_total", "Requests whose effect needs attention.", counts.blocked),
    ] {
        let counter = IntCounter::new(name, help)?;
        counter.inc_by(count);
        registry.register(Box::new(counter))?;
    }
    // Operations of pipelines, each with its labels. Other effects are counted above only.
    let series = meters.series();
    for meter in Meter::ALL {
        let name = format!("{}_total", meter.name().replace('.', "_"));
        let counter = CounterVec::new(Opts::new(name, meter.description()), &Labels::NAMES)?;
        let unit = meter.unit().unwrap_or(1.0);
        for (_, labels, count) in series.iter().filter(|(other, ..)| *other == meter) {
            counter.with_label_values(&labels.values()).inc_by(*count as f64 * unit);
        }
        registry.register(Box::new(counter))?;
    }
    Ok(())
}
