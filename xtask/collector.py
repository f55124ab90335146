"""Starts hapax with itself as its OpenTelemetry collector, and decodes what it is told with the
messages that OpenTelemetry publishes for Python."""

import http.server
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request

from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces

MESSAGES = {
    "/v1/logs": logs.ExportLogsServiceRequest,
    "/v1/metrics": metrics.ExportMetricsServiceRequest,
    "/v1/traces": traces.ExportTraceServiceRequest,
}
OPERATION = {
    "pipeline_id": "hydrology", "task_id": "load", "dataset_id": "flow", "operation_type": "append",
    "version": "v1", "checksum_in": "sha256:5f2b", "params_hash": "sha256:9c41",
    "timestamp_bucket": "2026-11-16T00:00:00Z",
}
LABELS = ["pipeline", "task", "dataset_id", "env", "operation_type", "sovereignty_event"]
RIVERS = "https://example.org/rivers"
ONTOLOGY = {"id": RIVERS, "classes": [{"id": "e:River", "label": "river"}]}
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
told = []


class Collector(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        message = MESSAGES[self.path]()
        message.ParseFromString(body)
        told.append(message)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def ask(url, body):
    headers = {"content-type": "application/json", "traceparent": f"00-{TRACE}-{PARENT}-01"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def main(hapax):
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{collector.server_port}"
    variables = os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    with tempfile.TemporaryDirectory() as place:
        words = [hapax, "dev", "--listen", "127.0.0.1:0"]
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        server = subprocess.Popen(words, cwd=place, env=variables, **pipes)
        try:
            server_url = re.search(r"http://\S+", server.stderr.readline())[0]
            url = server_url + "/v1/effects/a"
            granted = ask(url + "/claim", {})
            ask(url + "/settle", {"attempt": granted["attempt"], "report": "succeeded"})
            for _ in range(3):
                assert ask(url + "/claim", {})["verdict"] == "replayed"
            # Two at one dataset: the second is told so, and so is the collector.
            assert ask(server_url + "/v1/operations", OPERATION)["verdict"] == "granted"
            try:
                ask(server_url + "/v1/operations", OPERATION | {"version": "v2"})
                raise AssertionError("the lock was held")
            except urllib.error.HTTPError as error:
                assert error.code == 409, error
            # A text is read once and found once.
            ask(server_url + "/api/v1/ontologies", ONTOLOGY)
            for known in [False, True]:
                read = {"text": "The river Danube.", "ontologyId": RIVERS}
                assert ask(server_url + "/api/v1/extract", read)["cacheHit"] is known
            server.send_signal(signal.SIGTERM)
            assert server.wait(timeout=60) == 0
        finally:
            server.kill()
    values, times, spans, events, named = {}, {}, [], [], {}
    for message in told:
        for resource in getattr(message, "resource_logs", []):
            for scope in resource.scope_logs:
                events.extend(record.event_name for record in scope.log_records)
        for resource in getattr(message, "resource_metrics", []):
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.sum.data_points:
                        assert metric.sum.is_monotonic, metric
                        labels = [a.value.string_value for a in point.attributes]
                        values[".".join([metric.name, *labels])] = point.as_int
                        names = frozenset(a.key for a in point.attributes)
                        named.setdefault(metric.name, set()).add(names)
                    for point in metric.histogram.data_points:
                        assert metric.unit == "s" and len(point.explicit_bounds) == 12, metric
                        times[metric.name] = point.count
                    for point in metric.gauge.data_points:
                        values[metric.name] = point.as_int
        for resource in getattr(message, "resource_spans", []):
            names = {a.key: a.value.string_value for a in resource.resource.attributes}
            assert names["service.name"] == "hapax", names
            for scope in resource.scope_spans:
                spans.extend(scope.spans)
    assert values["hapax.replays"] == 3, values
    # The effect, the operation, the text and its chunk.
    assert values["hapax.grants"] == 4, values
    assert "lock_acquire_failed" in events, events
    assert named["kfm.lock_acquire_failures"] == {frozenset(LABELS)}, named
    assert named["hapax.extraction.requests"] == {frozenset(["outcome"])}, named
    for name, value in {
        "requests.hit": 1, "requests.executed": 1, "requests.shared": 0, "requests.failed": 0,
        "chunks.extracted": 1, "evictions": 0, "invalidations": 0, "lookup_errors": 0,
        "key_errors": 0, "calls": 0, "tokens.read": 0, "cost_micros": 0, "cached_results": 0,
    }.items():
        assert values[f"hapax.extraction.{name}"] == value, (name, values)
    assert times == {"hapax.extraction.cache_lookup": 1, "hapax.extraction.cache_store": 1}, times
    assert len(spans) == 10, spans
    for span in spans:
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT), span
    print(f"{len(values)} numbers, {len(times)} times, {len(spans)} spans and {len(events)} log records were decoded")


main(sys.argv[1])
