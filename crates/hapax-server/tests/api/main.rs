//! The API over HTTP.

mod client;
mod control;
mod extraction;
mod items;
mod keys;
mod pipeline;

use std::time::Duration;

use client::Client;

use axum::body::Body;
use hapax::outbox::OutboxConfig;
use hapax::{Hapax, Namespace, Role};
use hapax_server::access::{Access, Allowance, TokenCache};
use hapax_server::server::{Server, ServerSettings};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower_service::Service as _;

async fn read(response: Response<Body>) -> (u16, Value) {
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

fn attempt(n: u8) -> String {
    format!("att_{}", format!("{n:02x}").repeat(16))
}

/// Proves K-23: a running effect is shown with its holder, and is stuck once the holder is dead.
#[tokio::test]
async fn the_holder_of_a_running_effect_is_shown() {
    let client = Client::dev();
    let lease = format!("lease_{}", "07".repeat(16));
    let open = json!({ "term_ms": 30_000, "holder": "worker 3", "lease": lease });
    assert_eq!(client.post("/v1/leases", open).await.0, 200);
    let claim = json!({ "safety": "transactional", "lease": lease });
    assert_eq!(client.post("/v1/effects/charge-7/claim", claim).await.0, 200);
    assert_eq!(client.post("/v1/effects/charge-8/claim", json!({})).await.0, 200);
    let (_, shown) = client.get("/v1/effects/charge-7").await;
    assert_eq!((&shown["state"], &shown["holder"]), (&json!("running"), &json!("alive")));
    assert_eq!((&shown["held_by"], &shown["silent_since"]), (&json!("worker 3"), &Value::Null));
    let (_, shown) = client.get("/v1/effects/charge-8").await;
    assert_eq!((&shown["holder"], &shown["held_by"]), (&json!("alive"), &Value::Null));
    let (_, stuck) = client.get("/v1/effects?state=stuck").await;
    assert_eq!(stuck["effects"], json!([]));

    assert_eq!(client.delete(&format!("/v1/leases/{lease}")).await.0, 204);
    let (_, stuck) = client.get("/v1/effects?state=stuck").await;
    let (_, shown) = client.get("/v1/effects/charge-7").await;
    assert_eq!(stuck["effects"], json!([shown]));
    assert_eq!((&shown["state"], &shown["holder"]), (&json!("running"), &json!("dead")));
}

/// Proves S-2: a client claims, performs and settles; every later claim gets the recorded outcome.
#[tokio::test]
async fn an_effect_is_performed_elsewhere_once() {
    let client = Client::dev();
    let claim = json!({ "payload": "EUR 10", "attempt": attempt(1) });
    let (status, mut granted) = client.post("/v1/effects/charge-7/claim", claim.clone()).await;
    assert_eq!((status, &granted["verdict"]), (200, &json!("granted")), "{granted}");
    // A client whose answer was lost repeats its claim. It gets the same grant, and what is left of
    // the time to work.
    let (_, mut again) = client.post("/v1/effects/charge-7/claim", claim.clone()).await;
    let (left, first) = (again["work_ms"].take(), granted["work_ms"].take());
    assert!(left.as_u64() <= first.as_u64() && first == 60_000, "{left} of {first}");
    assert_eq!(again, granted);
    let other = json!({ "payload": "EUR 10", "attempt": attempt(2) });
    let (status, in_flight) = client.post("/v1/effects/charge-7/claim", other.clone()).await;
    assert_eq!((status, &in_flight["code"]), (409, &json!("HX0201")));
    assert_eq!(
        (&in_flight["retryable"], &in_flight["attempt"]),
        (&json!(true), &json!(attempt(1)))
    );
    let (status, conflict) =
        client.post("/v1/effects/charge-7/claim", json!({ "payload": "EUR 99" })).await;
    assert_eq!((status, &conflict["code"]), (422, &json!("HX0202")));

    // A client that waits gets the answer as soon as the effect is settled.
    let waiting = client.clone().with("prefer", "wait=30");
    let waiting = tokio::spawn(async move {
        let attached = waiting.get("/v1/effects/charge-7").await;
        let claimed = waiting.post("/v1/effects/charge-7/claim", other).await;
        (attached, claimed)
    });
    let settle = json!({ "attempt": attempt(1), "report": "succeeded", "body": "receipt 7" });
    let (status, settled) = client.post("/v1/effects/charge-7/settle", settle.clone()).await;
    assert_eq!((status, settled), (200, json!({ "repeated": false })));
    let ((_, attached), (_, replayed)) = waiting.await.expect("no panic");
    assert_eq!(attached["state"], "succeeded");
    assert_eq!(replayed["verdict"], "replayed");
    assert_eq!(replayed["outcome"]["body"], "receipt 7");
    let (_, settled) = client.post("/v1/effects/charge-7/settle", settle).await;
    assert_eq!(settled, json!({ "repeated": true }));
    let stale = json!({ "attempt": attempt(9), "report": "failed", "reason": "late" });
    let (status, fenced) = client.post("/v1/effects/charge-7/settle", stale).await;
    assert_eq!((status, &fenced["code"]), (409, &json!("HX0207")));

    let (_, history) = client.get("/v1/effects/charge-7/history").await;
    let entries = history["entries"].as_array().expect("entries");
    let events: Vec<_> = entries.iter().map(|entry| entry["event"].as_str()).collect();
    assert_eq!(events, [Some("granted"), Some("settled")]);
    let (_, found) = client.get("/v1/effects?state=succeeded&label=charge&limit=1").await;
    assert_eq!(found["effects"][0]["label"], "charge-7");
    let next = found["next"].as_u64().expect("a full page has a next one");
    let (_, found) = client.get(&format!("/v1/effects?before={next}")).await;
    assert_eq!(found, json!({ "effects": [], "next": null }));
}

/// Proves K-6 over HTTP: a grant without a lease outlives the server that gave it.
#[tokio::test]
async fn a_grant_without_a_lease_outlives_its_server() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("hapax.db");
    let claim = json!({ "safety": "transactional" });
    let first = Hapax::open(&path).await.expect("a ledger");
    let client = Client::of(first.clone(), Access::Everybody, ServerSettings::default());
    let (_, granted) = client.post("/v1/effects/a/claim", claim.clone()).await;
    assert_eq!(granted["verdict"], "granted");
    first.close().await.expect("closed");
    drop((first, client));
    let second = Hapax::open(&path).await.expect("a ledger");
    let client = Client::of(second, Access::Everybody, ServerSettings::default());
    client.hapax.remote().keep_anchors().await.expect("kept");
    assert_eq!(client.post("/v1/effects/a/claim", claim).await.1["code"], "HX0201");
    let settle = json!({ "attempt": granted["attempt"], "report": "succeeded" });
    assert_eq!(client.post("/v1/effects/a/settle", settle).await.0, 200);
}

/// Proves K-6 over HTTP: claims that depend on a client's lease lapse with it.
#[tokio::test]
async fn a_lease_is_held_by_a_client() {
    let client = Client::dev();
    let open = json!({ "term_ms": 60_000, "holder": "worker 3" });
    let (status, lease) = client.post("/v1/leases", open).await;
    assert_eq!((status, &lease["holder"]), (200, &json!("worker 3")));
    let id = lease["lease"].as_str().expect("an id").to_owned();
    let (_, leases) = client.get("/v1/leases").await;
    let mut listed = lease.clone();
    // Only the holder gets the work deadline.
    listed.as_object_mut().expect("an object").remove("work_ms");
    assert_eq!(leases["leases"], json!([listed]));
    let claim = json!({ "lease": id, "attempt": attempt(1), "safety": "transactional" });
    assert_eq!(client.post("/v1/effects/job/claim", claim.clone()).await.0, 200);
    let (status, renewed) = client.post(&format!("/v1/leases/{id}/renew"), json!({})).await;
    assert_eq!((status, &renewed), (200, &lease));

    // A client of another namespace cannot renew, use or close the lease, nor learn that it exists.
    let stranger = client.clone().with("hapax-namespace", "other");
    let (_, theirs) = stranger.post(&format!("/v1/leases/{id}/renew"), json!({})).await;
    let nobodys = format!("lease_{}", "0".repeat(32));
    let (_, none) = stranger.post(&format!("/v1/leases/{nobodys}/renew"), json!({})).await;
    assert_eq!((&theirs["code"], &theirs["title"]), (&none["code"], &none["title"]));
    assert_eq!(stranger.post("/v1/effects/job/claim", claim).await.1["code"], "HX0110");
    assert_eq!(stranger.ask(Method::DELETE, &format!("/v1/leases/{id}"), None).await.0, 204);
    assert_eq!(client.post(&format!("/v1/leases/{id}/renew"), json!({})).await.0, 200);

    assert_eq!(client.ask(Method::DELETE, &format!("/v1/leases/{id}"), None).await.0, 204);
    let (_, over) = client.post(&format!("/v1/leases/{id}/renew"), json!({})).await;
    assert_eq!(over["code"], "HX0110");
    let (_, granted) =
        client.post("/v1/effects/job/claim", json!({ "safety": "transactional" })).await;
    assert_eq!(granted["nth"], 2, "its holder is gone: {granted}");
}

/// Proves K-5 over HTTP: an unknown outcome is looked up, or resolved by an operator.
#[tokio::test]
async fn an_unknown_outcome_is_found_out() {
    let client = Client::dev();
    let lost = |key: &'static str, body: Value| {
        let client = client.clone();
        async move {
            let (_, granted) = client.post(&format!("/v1/effects/{key}/claim"), body).await;
            let attempt = granted["attempt"].clone();
            let report = json!({ "attempt": attempt, "report": "ambiguous", "reason": "timeout" });
            let settled = client.post(&format!("/v1/effects/{key}/settle"), report).await;
            assert_eq!(settled.0, 200, "{settled:?}");
            attempt
        }
    };
    let attempt = lost("pay", json!({ "safety": "reconcilable", "settling_ms": 0 })).await;
    let (_, mut found) = client.post("/v1/effects/pay/look", json!({})).await;
    assert_eq!(found["attempt"], attempt);
    found["happened"] = json!(true);
    found["body"] = json!("seen at the bank");
    let (status, judged) = client.post("/v1/effects/pay/found", found).await;
    assert_eq!((status, judged), (200, json!({ "state": "succeeded" })));
    assert_eq!(client.post("/v1/effects/pay/look", json!({})).await.0, 404);

    let attempt = lost("mail", json!({})).await;
    let (status, blocked) = client.post("/v1/effects/mail/claim", json!({})).await;
    assert_eq!((status, &blocked["code"]), (409, &json!("HX0203")));
    assert_eq!(blocked["attempt"], attempt);
    let (_, stuck) = client.get("/v1/effects?state=stuck").await;
    assert_eq!(stuck["effects"].as_array().map(Vec::len), Some(1));
    let resolve = json!({ "attempt": attempt, "decision": "did_not_happen", "note": "asked ada" });
    let (status, judged) = client.post("/v1/effects/mail/resolve", resolve.clone()).await;
    assert_eq!((status, judged), (200, json!({ "state": "failed" })));
    // A repeated decision gets the same answer.
    assert_eq!(client.post("/v1/effects/mail/resolve", resolve.clone()).await.0, 200);
    let stale = json!({ "attempt": self::attempt(9), "decision": "skip", "note": "let it go" });
    let (status, refused) = client.post("/v1/effects/mail/resolve", stale).await;
    assert_eq!((status, &refused["code"]), (409, &json!("HX0207")));
    let reset = json!({ "attempt": attempt, "note": "once more" });
    assert_eq!(client.post("/v1/effects/mail/reset", reset).await.0, 200);

    let (_, granted) = client.post("/v1/effects/move/claim", json!({})).await;
    let attempt = granted["attempt"].clone();
    let undo = json!({ "attempt": attempt, "nth": 0, "step": "refund", "payload": "EUR 10" });
    for repeated in [false, true] {
        let answer = client.post("/v1/effects/move/undo", undo.clone()).await;
        assert_eq!(answer, (200, json!({ "repeated": repeated })));
    }
    let half = json!({ "attempt": attempt, "report": "partial", "reason": "one leg of two" });
    assert_eq!(client.post("/v1/effects/move/settle", half).await.0, 200);
    let (_, steps) = client.get("/v1/effects/move/steps").await;
    assert_eq!(steps["steps"], json!([{ "step": "refund", "payload": "EUR 10" }]));
    let (_, judged) = client.post("/v1/effects/move/undone", json!({ "attempt": attempt })).await;
    assert_eq!(judged, json!({ "state": "failed" }));
}

/// Proves O-1 over HTTP: events are recorded together with the outcome, or neither is.
#[tokio::test]
async fn events_are_recorded_with_the_settle() {
    let client = Client::dev();
    let outbox = OutboxConfig::new().sink("printer", hapax_sinks_stub::Nowhere).expect("a name");
    let outbox = outbox.route("artifact_*", "*", &["printer"]).expect("a name");
    client.hapax.outbox().configure(&outbox).await.expect("declared");
    let (_, granted) = client.post("/v1/effects/publish/claim", json!({})).await;
    let settle = |event: &str| {
        json!({ "attempt": granted["attempt"], "report": "succeeded", "events": [
            { "event_name": event, "dataset_id": "flow", "payload": { "rows": 7 } },
        ]})
    };
    let (status, refused) = client.post("/v1/effects/publish/settle", settle("unheard_of")).await;
    assert_eq!((status, &refused["code"]), (422, &json!("HX0111")));
    assert_eq!(client.get("/v1/effects/publish").await.1["state"], "running");
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let traced = client.clone().with("traceparent", trace);
    let (status, _) = traced.post("/v1/effects/publish/settle", settle("artifact_published")).await;
    assert_eq!(status, 200);
    let (_, listed) = client.get("/v1/outbox?status=pending&sink=printer").await;
    let record = &listed["records"][0];
    assert_eq!((&record["payload"], &record["status"]), (&json!({ "rows": 7 }), &json!("pending")));
    assert_eq!(record["traceparent"], trace, "it belongs to its emitter's trace");
    let operation = json!({ "pipeline_id": "p", "task_id": "t", "dataset_id": "levels",
        "operation_type": "publish", "version": "v1", "checksum_in": "c", "params_hash": "h",
        "timestamp_bucket": "2026-11-16T00:00:00Z" });
    let (_, granted) = client.post("/v1/operations", operation).await;
    let key = granted["key"].as_str().expect("a key");
    let report = json!({ "attempt": granted["attempt"], "report": "succeeded", "events": [
        { "event_name": "artifact_seen", "dataset_id": "levels", "payload": {} } ]});
    let (status, answer) = traced.post(&format!("/v1/operations/{key}/settle"), report).await;
    assert_eq!(status, 200, "{answer}");
    let (_, listed) = client.get("/v1/outbox?status=pending").await;
    let records = listed["records"].as_array().expect("records");
    assert_eq!(records.len(), 2);
    assert!(records.iter().all(|record| record["traceparent"] == trace), "{listed}");
    let id = record["outbox_id"].as_str().expect("an id");
    assert_eq!(client.get(&format!("/v1/outbox/{id}")).await.1, *record);
    let stranger = client.clone().with("hapax-namespace", "other");
    assert_eq!(stranger.get(&format!("/v1/outbox/{id}")).await.0, 404);
    assert_eq!(client.get("/v1/sinks").await.1["sinks"][0]["pending"], 2);
    assert_eq!(client.post("/v1/outbox/redrive", json!({})).await.1, json!({ "redriven": 0 }));
    let (_, paused) = client.post("/v1/sinks/printer/pause", json!({})).await;
    assert_eq!(paused, json!({ "sink": "printer", "paused": true }));
    assert_eq!(client.post("/v1/sinks/nobody/resume", json!({})).await.0, 404);
}

mod hapax_sinks_stub {
    use hapax::outbox::{Acks, Delivery, Sink};

    /// Delivers nothing.
    pub(super) struct Nowhere;

    impl Sink for Nowhere {
        async fn send(&self, _: &[Delivery], _: &Acks) {}
    }
}

/// Every operation of the OpenAPI document: its method, its path, and the role it needs.
fn operations() -> Vec<(Method, String, Role)> {
    let document: Value =
        serde_json::from_str(hapax_server::api::openapi_text()).expect("a document");
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for method in item.as_object().expect("an item").keys() {
            let role = match (method.as_str(), path.rsplit('/').next()) {
                ("get", _) => Role::Viewer,
                (_, Some("reset" | "{domain}" | "{dataset}" | "decide" | "act" | "reprocess")) => {
                    Role::Steward
                }
                _ => Role::Operator,
            };
            let id = if path.contains("leases") {
                "lease_00000000000000000000000000000000"
            } else {
                "1"
            };
            let path = path.replace("{key}", "k").replace("{id}", id);
            let path = path.replace("{domain}", "d").replace("{computation}", "a.b.v1");
            let path = path.replace("{dataset}", "flow").replace("{workflow}", "letters");
            let path =
                path.replace("{version}", "1.0").replace("{item}", "a").replace("{run}", "r");
            let method = method.to_uppercase().parse().expect("a method");
            operations.push((method, path, role));
        }
    }
    operations
}

/// Proves S-6: every route refuses a caller without a token, and a caller whose role is too low.
#[tokio::test]
async fn every_route_denies_by_default() {
    let client = Client::guarded(ServerSettings::default());
    let roles = [None, Some(Role::Viewer), Some(Role::Operator), Some(Role::Steward)];
    let operations = operations();
    assert!(operations.len() > 60, "{}", operations.len());
    for role in roles {
        let asking = match role {
            Some(role) => client.showing(role, Some("billing")).await,
            None => client.clone(),
        };
        for (method, path, needed) in &operations {
            if path.ends_with("/stream") && role.is_some() {
                continue;
            }
            let body = (*method == Method::POST).then_some("{}");
            let status = asking.send(method, path, body).await.status();
            match role {
                None => assert_eq!(status, StatusCode::UNAUTHORIZED, "{method} {path}"),
                Some(role) if role < *needed => {
                    assert_eq!(status, StatusCode::FORBIDDEN, "{role} {method} {path}");
                }
                Some(role) => {
                    let everywhere = path.contains("/sinks")
                        || path.contains("verification")
                        || path.contains("/datasets/");
                    let expected = everywhere && status == StatusCode::FORBIDDEN;
                    let refused = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
                    assert!(expected || !refused.contains(&status), "{role} {method} {path}");
                }
            }
        }
    }
    assert_eq!(
        client.get("/v1/nothing").await.0,
        401,
        "a missing route has the same answer as a closed one"
    );
    assert_eq!(client.get("/metrics").await.0, 401);
    let billing = client.showing(Role::Steward, Some("billing")).await;
    assert_eq!(billing.get("/metrics").await.0, 403, "it shows every namespace");
    for open in ["/healthz", "/readyz", "/v1/openapi.json"] {
        assert_eq!(client.get(open).await.0, 200, "{open}");
    }
}

/// Proves S-6: a token is good only in its namespace, and only until it is revoked.
#[tokio::test]
async fn a_token_is_good_in_its_namespace() {
    let client = Client::guarded(ServerSettings::default());
    let billing = client.showing(Role::Operator, Some("billing")).await;
    assert_eq!(billing.post("/v1/effects/a/claim", json!({})).await.0, 200);
    let (status, _) = billing.clone().with("hapax-namespace", "default").get("/v1/effects").await;
    assert_eq!(status, 403);
    // Another tenant's key gets the same answer as a key that does not exist.
    let other = client.showing(Role::Operator, Some("other")).await;
    assert_eq!(other.get("/v1/effects/a").await, other.get("/v1/effects/b").await);
    assert_eq!(other.get("/v1/effects").await.1["effects"], json!([]));
    let everywhere = client.showing(Role::Viewer, None).await;
    let there = everywhere.clone().with("hapax-namespace", "billing");
    assert_eq!(there.get("/v1/effects/a").await.0, 200);
    assert_eq!(everywhere.get("/v1/effects/a").await.0, 404);
    let odd = everywhere.clone().with("hapax-namespace", "No Name");
    assert_eq!(odd.get("/v1/effects/a").await.0, 400);

    for token in client.hapax.tokens().list().await.expect("tokens") {
        assert!(client.hapax.tokens().revoke(token.id).await.expect("revoked"));
    }
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while billing.get("/v1/effects").await.0 != 401 {
        assert!(tokio::time::Instant::now() < deadline, "a revoked token is still good");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for odd in ["Basic abc", "Bearer", "Bearer hpx_00_00", ""] {
        assert_eq!(client.clone().with("authorization", odd).get("/v1/effects").await.0, 401);
    }
}

/// Proves S-6 for pages in a browser: they cannot reach a server that asks for no token.
#[tokio::test]
async fn a_web_page_is_not_let_in() {
    let app = Client::dev();
    let from = |host: &str, origin: Option<&str>| {
        let mut client = app.clone();
        client.headers = vec![("host", host.to_owned())];
        if let Some(origin) = origin {
            client = client.with("origin", origin);
        }
        async move { client.get("/v1/effects").await.0 }
    };
    assert_eq!(from("localhost:8765", None).await, 200);
    assert_eq!(from("[::1]:8765", Some("http://[::1]:8765")).await, 200);
    assert_eq!(from("evil.example:8765", None).await, 403);
    assert_eq!(from("localhost.evil.example", None).await, 403);
    assert_eq!(from("localhost:8765", Some("https://evil.example")).await, 403);
    assert_eq!(from("localhost:8765", Some("http://localhost:1")).await, 403);
    assert_eq!(from("localhost:8765", Some("null")).await, 403);
}

/// Proves S-6 for requests: a request beyond a limit is refused with a problem that has a code.
#[tokio::test]
async fn an_unreadable_request_is_refused() {
    let client = Client::dev();
    let claim = "/v1/effects/a/claim";
    let code = |response| async { read(response).await.1["code"].clone() };
    let sent = |body: &str| {
        let (client, body) = (client.clone(), body.to_owned());
        async move { client.send(&Method::POST, claim, Some(&body)).await }
    };
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let many = format!(r#"{{"lock":[{}]}}"#, ["\"x\""; 9].join(","));
    for (body, status) in [
        ("", 400),
        ("{", 400),
        (r#"{"paylod":"x"}"#, 400),
        (r#"{"attempt":"att_1"}"#, 400),
        (r#"{"payload":"a","fingerprint":"sha256:00"}"#, 400),
        (r#"{"deadline_ms":0}"#, 400),
        (r#"{"safety":"sure"}"#, 400),
        (r#"{"ttl_ms":18446744073709551615}"#, 400),
        (r#"{"safety":"reconcilable","settling_ms":18446744073709551615}"#, 400),
        (&deep, 400),
        (&many, 400),
        (&format!(r#"{{"label":"{}"}}"#, "x".repeat(300)), 400),
    ] {
        let response = sent(body).await;
        let received = response.status().as_u16();
        assert_eq!(received, status, "{}", body.chars().take(60).collect::<String>());
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        assert_eq!(response.headers()["x-content-type-options"], "nosniff");
        assert_eq!(response.headers()["content-security-policy"], "default-src 'none'");
        assert_eq!(response.headers()["cache-control"], "no-store");
        assert_eq!(response.headers()["referrer-policy"], "no-referrer");
        assert_eq!(response.headers()["cross-origin-resource-policy"], "same-origin");
    }
    let large = sent(&format!(r#"{{"payload":"{}"}}"#, "x".repeat(1_100_000))).await;
    assert_eq!(large.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(code(large).await, "HX0303");
    let packed = client.clone().with("content-encoding", "gzip");
    let packed = packed.send(&Method::POST, claim, Some("{}")).await;
    assert_eq!(code(packed).await, "HX0316");
    let bare = client.send(&Method::POST, claim, None).await;
    assert_eq!(code(bare).await, "HX0316");
    let wrong = client.send(&Method::PUT, claim, Some("{}")).await;
    assert_eq!(wrong.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(wrong.headers()["allow"], "POST");
    assert_eq!(code(wrong).await, "HX0314");
    for path in [
        "/v1/effects?limit=0",
        "/v1/effects?limit=1001",
        "/v1/effects?stat=x",
        "/v1/effects/%20/claim",
    ] {
        let method = if path.ends_with("claim") { Method::POST } else { Method::GET };
        let answer = client.send(&method, path, Some("{}")).await;
        assert_eq!(code(answer).await, "HX0312", "{path}");
    }
    assert_eq!(client.get("/v1/effects?state=running").await.1["effects"], json!([]));
}

/// Proves S-6 for how often: a namespace beyond its allowance is refused, and other namespaces are not.
#[tokio::test]
async fn a_namespace_has_an_allowance() {
    let allowance = Allowance { rate: 1, burst: 3, at_once: 1 };
    let client = Client::guarded(ServerSettings { allowance, ..ServerSettings::default() });
    let one = client.showing(Role::Operator, Some("one")).await;
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(one.get("/v1/config").await.0);
    }
    assert_eq!(statuses, [200, 200, 200, 429]);
    let response = one.send(&Method::GET, "/v1/config", None).await;
    assert!(response.headers().contains_key("retry-after"));

    let other = client.showing(Role::Operator, Some("other")).await;
    let (_, granted) = other.post("/v1/effects/a/claim", json!({})).await;
    let waiting = other.clone().with("prefer", "wait=20");
    let waiting = tokio::spawn(async move { waiting.get("/v1/effects/a").await });
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    // The waiting request takes all the room, so the test settles through the ledger.
    while !waiting.is_finished() {
        assert!(tokio::time::Instant::now() < deadline);
        let (status, problem) = other.get("/v1/config").await;
        if status == 429 && problem["detail"].as_str().is_some_and(|d| d.contains("under way")) {
            let key = hapax_server::wire::key("a").expect("a key");
            let attempt = granted["attempt"].as_str().expect("one").parse().expect("an id");
            let fence = hapax::Fence(granted["fence"].as_u64().expect("a number"));
            let report = hapax::remote::Report::Succeeded("done".into());
            let ledger = client.hapax.in_namespace(Namespace::new("other").expect("a name"));
            ledger
                .remote()
                .settle(key, (attempt, fence), report, Vec::new(), None)
                .await
                .expect("settled");
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(waiting.await.expect("no panic").1["state"], "succeeded");
}

/// Proves K-15 over HTTP: the journal is read, followed, proved and verified, each namespace on its own.
#[tokio::test]
async fn the_journal_is_followed_and_proved() {
    let directory = tempfile::tempdir().expect("a directory");
    let hapax = Hapax::builder().background(false).open(directory.path().join("hapax.db"));
    let hapax = hapax.await.expect("a ledger");
    let client = Client::of(hapax, Access::Everybody, ServerSettings::default());
    assert_eq!(client.get("/v1/journal/checkpoint").await.0, 404);
    let stream = client.send(&Method::GET, "/v1/journal/stream", None).await;
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    for namespace in ["default", "billing"] {
        let client = client.clone().with("hapax-namespace", namespace);
        assert_eq!(client.post("/v1/effects/a/claim", json!({})).await.0, 200);
    }
    client.hapax.pass().await.expect("sealed");
    let mut events = stream.into_body();
    let mut text = String::new();
    while !text.contains("id: 1") {
        let frame = tokio::time::timeout(Duration::from_secs(30), events.frame()).await;
        let frame = frame.expect("in time").expect("a frame").expect("no error");
        text.push_str(&String::from_utf8_lossy(frame.data_ref().expect("data")));
    }
    assert!(text.contains("event: granted"), "{text}");
    let back = client.clone().with("last-event-id", "0");
    let mut events = back.send(&Method::GET, "/v1/journal/stream", None).await.into_body();
    let frame = tokio::time::timeout(Duration::from_secs(30), events.frame()).await;
    let frame = frame.expect("in time").expect("a frame").expect("no error");
    let text = String::from_utf8_lossy(frame.data_ref().expect("data")).into_owned();
    assert!(text.contains("id: 1\n"), "{text}");

    let (_, listed) = client.get("/v1/journal?from=1").await;
    assert_eq!((&listed["size"], &listed["next"]), (&json!(2), &json!(2)));
    assert_eq!(listed["entries"][0]["namespace"], "billing");
    let entry = listed["entries"][0]["entry"].as_u64().expect("a number");
    let (_, proof) = client.get(&format!("/v1/journal/{entry}/proof")).await;
    assert_eq!(proof["entry"]["namespace"], "billing");
    let (status, journal) = client.get("/v1/journal/checkpoint").await;
    let note = journal["checkpoint"].as_str().expect("a signed head");
    assert_eq!((status, note.lines().nth(1)), (200, Some("2")), "it says how many: {journal}");
    assert_eq!(client.hapax.journal().checkpoint().await.expect("a read").as_deref(), Some(note));
    assert_eq!(journal["public_key"], proof["public_key"]);
    let (_, found) = client.get("/v1/journal/verification").await;
    assert_eq!((&found["intact"], &found["sealed"]), (&json!(true), &json!(2)));

    // A caller that is good in one namespace sees nothing of another.
    let guarded = Client::of(
        client.hapax.clone(),
        Access::Tokens(TokenCache::default()),
        ServerSettings::default(),
    );
    let default = guarded.showing(Role::Viewer, Some("default")).await;
    let (_, listed) = default.get("/v1/journal").await;
    assert_eq!(listed["entries"].as_array().map(Vec::len), Some(1));
    assert_eq!(default.get(&format!("/v1/journal/{entry}/proof")).await.0, 404);
    assert_eq!(default.get("/v1/journal/verification").await.0, 403);
}

/// Proves S-1: a server that received a stop signal is alive and not ready.
#[tokio::test]
async fn a_server_that_stops_is_not_ready() {
    let hapax = Hapax::builder().in_memory();
    let server = Server::new(hapax.clone(), Access::Everybody, ServerSettings::default());
    let client = Client { app: server.router(), hapax, headers: Vec::new() };
    assert_eq!(client.text("/readyz").await, "ready\n");
    server.stop();
    let (status, problem) = client.get("/readyz").await;
    assert_eq!((status, &problem["code"]), (503, &json!("HX0317")), "{problem}");
    assert_eq!(client.text("/healthz").await, "alive\n");
}

/// Requests are counted by the pattern of their route, which does not reveal keys.
#[tokio::test]
async fn requests_are_counted() {
    let client = Client::dev();
    client.post("/v1/effects/secret-name/claim", json!({})).await;
    let response = client.send(&Method::GET, "/metrics", None).await;
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    let text = String::from_utf8_lossy(&body);
    let line = "hapax_http_requests_total{method=\"POST\",route=\"/v1/effects/{key}/claim\",status=\"200\"} 1";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("hapax_grants_total 1"));
    assert!(!text.contains("secret-name"));
}

/// `docs/openapi.json` is the document that the server serves.
#[test]
fn the_document_is_up_to_date() {
    expect_test::expect_file!["../../../../docs/openapi.json"]
        .assert_eq(hapax_server::api::openapi_text());
}
