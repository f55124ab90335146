//! The exports to a collector. `cargo xtask contract` has another project's program decode them.

use std::process::Stdio;
use std::time::Instant;

use super::pipeline::operation;
use super::proxy::Service;
use super::receiver::Receiver;
use super::serve::{Server, curl};
use super::{LONG, LedgerDir, Ran, wait_until};

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// A trace, and the span of it that calls.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

fn bytes(hex: &str) -> Vec<u8> {
    let at = (0..hex.len() / 2).map(|at| &hex[2 * at..2 * at + 2]);
    at.map(|byte| u8::from_str_radix(byte, 16).expect("hex")).collect()
}

/// Whether the collector got a request on this path that has these bytes in it.
fn received(collector: &Receiver, path: &str, bytes: &[u8]) -> bool {
    collector.got().iter().any(|request| {
        request.path == path
            && request.header("content-type") == Some("application/x-protobuf")
            && request.body.windows(bytes.len()).any(|window| window == bytes)
    })
}

/// A label as it is on the wire: its name, and its value, a text.
fn label(name: &str, value: &str) -> Vec<u8> {
    let field = |tag: u8, inside: &[u8]| {
        let length = u8::try_from(inside.len()).expect("short");
        [&[tag, length], inside].concat()
    };
    [field(0x0a, name.as_bytes()), field(0x12, &field(0x0a, value.as_bytes()))].concat()
}

/// Proves P-15 and X-11 for OTLP: the names of the specification, and spans that are children of
/// the caller's span.
#[test]
fn a_collector_receives_spans_and_metrics() {
    let (dir, collector) = (LedgerDir::new(), Receiver::start(&[("200 OK", "")]));
    let mut command = dir.command(&["dev", "--listen", "127.0.0.1:0"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env(ENDPOINT, collector.url(""));
    command.env("OTEL_METRIC_EXPORT_INTERVAL", "100");
    let server = Server::started(command.spawn().expect("it starts"));
    let parent = format!("traceparent: 00-{TRACE}-{CALLER}-01");
    let url = format!("http://{}/v1/effects/a", server.address);
    curl(&["-H", &parent, &url]);
    let api = format!("http://{}/api/v1", server.address);
    let ontology = r#"{"id": "e:o", "classes": [{"id": "e:River", "label": "river"}]}"#;
    let json = "Content-Type: application/json";
    curl(&["-H", json, "-d", ontology, &format!("{api}/ontologies")]);
    let text = r#"{"text": "The river.", "ontologyId": "e:o"}"#;
    for known in ["\"cacheHit\":false", "\"cacheHit\":true"] {
        let answer = curl(&["-H", json, "-d", text, &format!("{api}/extract")]);
        assert!(answer.contains(known), "{answer}");
    }
    let publish = r#"{"pipeline_id": "hydrology", "task_id": "load", "dataset_id": "flow",
        "operation_type": "publish", "version": "v1", "checksum_in": "sha256:5f2b",
        "params_hash": "sha256:9c41", "timestamp_bucket": "2026-11-16T00:00:00Z"}"#;
    let operations = format!("http://{}/v1/operations", server.address);
    assert!(curl(&["-H", json, "-d", publish, &operations]).contains("granted"));
    for name in [
        "hapax.replays",
        "kfm.idempotent_replays",
        "kfm.lock_acquire_failures",
        "kfm.retry_events",
        "kfm.lineage_rewrite_ops",
        "kfm.idem_cache_hits",
        "kfm.idem_cache_misses",
        "kfm.energy_joules",
        "kfm.carbon_grams",
        "an estimate of the energy",
        "an estimate of what operations that succeeded emitted",
        "hapax.outbox.pending",
        "hapax.extraction.requests",
        "hapax.extraction.evictions",
        "hapax.extraction.cached_results",
        "hapax.extraction.cache_lookup",
        "hapax.extraction.cache_store",
    ] {
        wait_until(name, || received(&collector, "/v1/metrics", name.as_bytes()));
    }
    let hit = label("outcome", "hit");
    wait_until("a label", || received(&collector, "/v1/metrics", &hit));
    // The rest is exported before the end.
    assert_eq!(server.stop().0, Some(0));
    let id = bytes(TRACE);
    assert!(received(&collector, "/v1/traces", &id), "the span is part of the caller's trace");
    assert!(received(&collector, "/v1/traces", b"GET /v1/effects/{key}"));
}

/// Proves P-15, S-3 for the proxy: its span is a child of the caller's span and the parent of the
/// service's. Without a collector, the caller's own span is forwarded.
#[test]
fn a_trace_goes_through_the_proxy() {
    let (service, collector) = (Service::start(), Receiver::start(&[("200 OK", "")]));
    let parent = format!("traceparent: 00-{TRACE}-{CALLER}-01");
    let through = |endpoint: Option<String>| {
        let dir = LedgerDir::new();
        let words = ["proxy", "--listen", "127.0.0.1:0", "--upstream", service.url()];
        let mut command = dir.command(&words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.envs(endpoint.map(|endpoint| (ENDPOINT, endpoint)));
        let proxy = Server::started(command.spawn().expect("it starts"));
        let url = format!("http://{}/charges", proxy.address);
        for _ in 0..2 {
            curl(&["-H", &parent, "-H", "Idempotency-Key: k", "-d", "EUR 10", &url]);
        }
        assert_eq!(proxy.stop().0, Some(0));
        let last = service.requests("post /charges ").pop().expect("a request");
        let header = last.lines().find_map(|line| line.strip_prefix("traceparent: "));
        let header = header.expect("a header").trim().to_owned();
        let (trace, span) = header[3..52].split_once('-').expect("a trace and a span");
        assert_eq!((trace, last.matches("traceparent").count()), (TRACE, 1));
        span.to_owned()
    };
    assert_eq!(through(None), CALLER);
    assert!(collector.got().is_empty());
    let span = through(Some(collector.url("")));
    assert_eq!(service.calls(), 2, "a replayed answer is not passed on");
    assert_ne!(span, CALLER);
    let (trace, caller, span) = (bytes(TRACE), bytes(CALLER), bytes(&span));
    let traces = collector.got().into_iter().filter(|request| request.path == "/v1/traces");
    let traces: Vec<u8> = traces.flat_map(|request| request.body).collect();
    let times = |part: &[u8]| traces.windows(part.len()).filter(|window| *window == part).count();
    // Two requests, two spans; the service saw one of them.
    assert_eq!((times(&trace), times(&caller), times(&span)), (2, 2, 1));
    assert!(received(&collector, "/v1/metrics", b"hapax.grants"));
}

/// Proves P-15 and P-19: the metrics and logs of one run reach a collector before the process ends.
#[test]
fn a_single_run_exports_its_metrics_before_it_ends() {
    let dir = LedgerDir::new();
    std::fs::write(dir.path("hapax.toml"), "[datasets.sites]\nmasked = 5\n").expect("a file");
    dir.hapax(&["datasets", "declare"]).exits(0);
    let exported = |words: &[&str], code| {
        let collector = Receiver::start(&[("200 OK", "")]);
        let run = dir.command(words).env(ENDPOINT, collector.url("")).output();
        Ran::from(run.expect("hapax runs")).exits(code);
        collector
    };
    let publish = operation("flow", "v1", &["--", "echo", "done"]);
    let first = exported(&publish, 0);
    assert!(received(&first, "/v1/metrics", b"kfm.idem_cache_misses"));
    for (name, value) in [
        ("pipeline", "hydrology"),
        ("task", "load"),
        ("dataset_id", "flow"),
        ("env", "default"),
        ("operation_type", "publish"),
        ("sovereignty_event", "false"),
    ] {
        assert!(received(&first, "/v1/metrics", &label(name, value)), "{name}={value}");
    }
    let second = exported(&publish, 0);
    assert!(received(&second, "/v1/metrics", b"kfm.idempotent_replays"));
    let refused = exported(&operation("sites", "v1", &["--", "true"]), 64);
    assert!(received(&refused, "/v1/logs", b"a guard said no"));
    assert!(received(&refused, "/v1/logs", b"sites"));
}

/// A silent collector costs a few seconds, and never the result.
#[test]
fn a_collector_that_is_silent_is_not_waited_for() {
    let dir = LedgerDir::new();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", silent.local_addr().expect("an address"));
    let (start, words) = (Instant::now(), operation("flow", "v1", &["--", "sh", "-c", "exit 3"]));
    let ran = dir.command(&words).env(ENDPOINT, url).output();
    Ran::from(ran.expect("hapax runs")).exits(3).says("some telemetry was not exported");
    assert!(start.elapsed() < LONG, "{:?}", start.elapsed());
}
