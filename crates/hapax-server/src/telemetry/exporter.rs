//! The exporters to a collector, by OTLP over HTTP. Our own client carries what they send.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use bytes::Bytes;
use hapax::outbox::SinkStats;
use hapax::{Counts, Hapax};
use hapax_extract::{Extract, Stopwatch};
use hapax_pipeline::{Labels, Meter, Meters};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry::logs::{AnyValue, LogRecord as _, Logger as _, LoggerProvider as _, Severity};
use opentelemetry::metrics::{AsyncInstrument, MeterProvider as _};
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{
    SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{HeaderExtractor, HeaderInjector, HttpClient, HttpError};
use opentelemetry_otlp::{LogExporter, MetricExporter, SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::{SdkLogger, SdkLoggerProvider};
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tracing::{Level, Metadata};

use super::TelemetryError;

/// How long a collector may take, and how much it may answer.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
const LARGEST_ANSWER: usize = 1024 * 1024;

/// How often the outbox statistics are read.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

pub(super) struct Exporter {
    meters: SdkMeterProvider,
    tracers: SdkTracerProvider,
    loggers: SdkLoggerProvider,
}

/// The logger of log records, once there is a collector.
static LOGGER: OnceLock<SdkLogger> = OnceLock::new();

/// Sends a log event to the collector.
pub fn record(about: &Metadata<'_>, fields: Map<String, Value>) {
    let Some(logger) = LOGGER.get() else { return };
    let mut record = logger.create_log_record();
    let severity = match *about.level() {
        Level::ERROR => Severity::Error,
        Level::WARN => Severity::Warn,
        Level::INFO => Severity::Info,
        Level::DEBUG => Severity::Debug,
        Level::TRACE => Severity::Trace,
    };
    record.set_severity_number(severity);
    record.set_severity_text(about.level().as_str());
    record.set_event_name(about.name());
    for (name, value) in fields {
        let value = match value {
            Value::String(text) => AnyValue::from(text),
            Value::Bool(truth) => AnyValue::from(truth),
            Value::Number(number) => match number.as_i64() {
                Some(number) => AnyValue::from(number),
                None => AnyValue::from(number.to_string()),
            },
            other => AnyValue::from(other.to_string()),
        };
        match name.as_str() {
            "message" => record.set_body(value),
            _ => record.add_attribute(name, value),
        }
    }
    logger.emit(record);
}

impl Exporter {
    pub(super) fn start(
        hapax: &Hapax,
        operations: &Arc<Meters>,
        extract: Option<&Extract>,
    ) -> Result<Self, TelemetryError> {
        let refuse = TelemetryError::Invalid;
        let client = ExportClient::new().map_err(|error| refuse(error.to_string()))?;
        let resource = Resource::builder()
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        let resource = match std::env::var_os("OTEL_SERVICE_NAME") {
            Some(_) => resource.build(),
            None => resource.with_service_name("hapax").build(),
        };
        let metrics = MetricExporter::builder().with_http().with_http_client(client.clone());
        let metrics = metrics.build().map_err(|error| refuse(error.to_string()))?;
        let meters = SdkMeterProvider::builder()
            .with_reader(PeriodicReader::builder(metrics).build())
            .with_resource(resource.clone())
            .build();
        count(hapax, operations, &meters);
        if let Some(extract) = extract {
            count_extractions(extract, &meters);
        }
        let records = LogExporter::builder().with_http().with_http_client(client.clone());
        let records = records.build().map_err(|error| refuse(error.to_string()))?;
        let loggers = SdkLoggerProvider::builder()
            .with_batch_exporter(records)
            .with_resource(resource.clone())
            .build();
        let _ = LOGGER.set(loggers.logger("hapax"));
        let spans = SpanExporter::builder().with_http().with_http_client(client);
        let spans = spans.build().map_err(|error| refuse(error.to_string()))?;
        let tracers =
            SdkTracerProvider::builder().with_batch_exporter(spans).with_resource(resource).build();
        Ok(Self { meters, tracers, loggers })
    }

    pub(super) fn traced(&self, app: Router) -> Router {
        app.layer(from_fn_with_state(self.tracers.tracer("hapax"), span))
    }

    pub(super) fn stop(self) {
        let Self { meters, tracers, loggers } = self;
        for stopped in [meters.shutdown(), tracers.shutdown(), loggers.shutdown()] {
            if let Err(error) = stopped {
                tracing::warn!(name: "telemetry_lost", %error, "some telemetry was not exported");
            }
        }
    }
}

/// How a number is read.
type Read<T> = fn(&T) -> u64;

/// The server's own counters, of all effects.
const COUNTED: [(&str, Read<Counts>); 8] = [
    ("hapax.grants", |counts| counts.granted),
    ("hapax.retries", |counts| counts.retried),
    ("hapax.replays", |counts| counts.replayed),
    ("hapax.cache_hits", |counts| counts.cache_hits),
    ("hapax.cache_misses", |counts| counts.cache_misses),
    ("hapax.lock_failures", |counts| counts.lock_failures),
    ("hapax.conflicts", |counts| counts.conflicts),
    ("hapax.blocked", |counts| counts.blocked),
];

fn count(hapax: &Hapax, operations: &Arc<Meters>, meters: &SdkMeterProvider) {
    let meter = meters.meter("hapax");
    // Under the names of the specification: operations of pipelines, with their labels.
    for counted in Meter::ALL {
        let operations = operations.clone();
        let observed = move |observe: &dyn Fn(u64, &[KeyValue])| {
            let series = operations.series();
            for (_, labels, count) in series.iter().filter(|(other, ..)| *other == counted) {
                let values = labels.values().map(str::to_owned);
                let labels = Labels::NAMES.into_iter().zip(values);
                let labels: Vec<_> = labels.map(|(n, v)| KeyValue::new(n, v)).collect();
                observe(*count, &labels);
            }
        };
        let (name, says) = (counted.name(), counted.description());
        match counted.unit() {
            None => {
                let report = move |observer: &dyn AsyncInstrument<u64>| {
                    observed(&|count, labels| observer.observe(count, labels));
                };
                let counter = meter.u64_observable_counter(name).with_description(says);
                counter.with_callback(report).build();
            }
            Some(unit) => {
                let report = move |observer: &dyn AsyncInstrument<f64>| {
                    observed(&|count, labels| observer.observe(count as f64 * unit, labels));
                };
                let counter = meter.f64_observable_counter(name).with_description(says);
                counter.with_callback(report).build();
            }
        }
    }
    for (name, read) in COUNTED {
        let hapax = hapax.clone();
        meter
            .u64_observable_counter(name)
            .with_callback(move |observer| observer.observe(read(&hapax.counts()), &[]))
            .build();
    }
    let sinks: Arc<Mutex<Vec<SinkStats>>> = Arc::default();
    let gauges: [(&'static str, Read<SinkStats>); 2] = [
        ("hapax.outbox.pending", |stats| stats.pending),
        ("hapax.outbox.failed", |stats| stats.failed),
    ];
    for (name, read) in gauges {
        let sinks = sinks.clone();
        meter
            .u64_observable_gauge(name)
            .with_callback(move |observer| {
                for stats in sinks.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).iter() {
                    let sink = KeyValue::new("sink", stats.sink.name.to_string());
                    observer.observe(read(stats), &[sink]);
                }
            })
            .build();
    }
    let (hapax, sinks) = (hapax.clone(), Arc::downgrade(&sinks));
    tokio::spawn(async move {
        while let Some(sinks) = sinks.upgrade() {
            if let Ok(stats) = hapax.outbox().stats().await {
                *sinks.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = stats;
            }
            drop(sinks);
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    });
}

/// All extraction metrics that Prometheus gets, under the same names with dots.
fn count_extractions(extract: &Extract, meters: &SdkMeterProvider) {
    let meter = meters.meter("hapax");
    let mut counts = extract.meters().counts();
    counts.dedup_by(|one, other| one.name == other.name);
    for counted in counts {
        let (extract, name) = (extract.clone(), counted.name.clone());
        let report = move |observer: &dyn AsyncInstrument<u64>| {
            for count in extract.meters().counts().iter().filter(|count| count.name == name) {
                let of = count.of.iter();
                let of: Vec<_> = of.map(|(n, v)| KeyValue::new(n.clone(), v.clone())).collect();
                observer.observe(count.value, &of);
            }
        };
        match counted.falls {
            true => {
                meter.u64_observable_gauge(counted.name).with_callback(report).build();
            }
            false => {
                meter.u64_observable_counter(counted.name).with_callback(report).build();
            }
        }
    }
    for stopwatch in extract.meters().stopwatches() {
        let histogram = meter
            .f64_histogram(stopwatch.name())
            .with_unit("s")
            .with_boundaries(Stopwatch::BOUNDS.to_vec())
            .build();
        stopwatch.tell(move |seconds| histogram.record(seconds, &[]));
    }
}

/// One request.
async fn span(State(tracer): State<SdkTracer>, mut request: Request, next: Next) -> Response {
    let propagator = TraceContextPropagator::new();
    let parent =
        propagator.extract_with_context(&Context::new(), &HeaderExtractor(request.headers()));
    let method = request.method().to_string();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("", MatchedPath::as_str);
    let span = tracer
        .span_builder(format!("{method} {route}").trim().to_owned())
        .with_kind(SpanKind::Server)
        .with_attributes([
            KeyValue::new("http.request.method", method),
            KeyValue::new("http.route", route.to_owned()),
        ])
        .start_with_context(&tracer, &parent);
    let context = parent.with_span(span);
    propagator.inject_context(&context, &mut HeaderInjector(request.headers_mut()));
    let response = next.run(request).await;
    let status = response.status();
    let span = context.span();
    span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
    if status.is_server_error() {
        span.set_status(Status::error(status.as_str().to_owned()));
    }
    span.end();
    response
}

/// Sends exports on the runtime of this process: exporters have threads of their own.
#[derive(Debug, Clone)]
struct ExportClient {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    runtime: Handle,
}

impl ExportClient {
    fn new() -> std::io::Result<Self> {
        let connector =
            HttpsConnectorBuilder::new().with_native_roots()?.https_or_http().enable_http1();
        let client = Client::builder(TokioExecutor::new()).build(connector.build());
        Ok(Self { client, runtime: Handle::current() })
    }
}

#[async_trait::async_trait]
impl HttpClient for ExportClient {
    async fn send_bytes(
        &self,
        request: http::Request<Bytes>,
    ) -> Result<http::Response<Bytes>, HttpError> {
        let sending = self.client.request(request.map(Full::new));
        let answer = async move {
            let (head, body) = sending.await?.into_parts();
            let body = Limited::new(body, LARGEST_ANSWER).collect().await?.to_bytes();
            Ok::<_, HttpError>(http::Response::from_parts(head, body))
        };
        self.runtime.spawn(async { tokio::time::timeout(EXPORT_TIMEOUT, answer).await? }).await?
    }
}
