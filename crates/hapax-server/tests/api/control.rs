//! Epochs and control requests over HTTP.

use hapax::{Hapax, Role};
use hapax_control::{Computation, Registry, derive_key};
use hapax_server::access::{Access, TokenCache};
use hapax_server::server::{Server, ServerSettings, Systems};
use serde_json::{Value, json};

use super::{Client, attempt};

const PROBE: &str = "/v1/control/connector.health_probe.v1";

/// Proves C-3, C-4: a client claims, sends and settles in one epoch; the server derives the key.
#[tokio::test]
async fn a_request_is_sent_elsewhere_once_in_its_epoch() {
    let client = Client::dev();
    let ask = |n: u8| json!({ "request": "{}", "attempt": attempt(n), "epoch": 0 });
    let (status, mut granted) = client.post(PROBE, ask(1)).await;
    assert_eq!((status, &granted["verdict"]), (200, &json!("granted")), "{granted}");
    let key = derive_key("connector.health_probe.v1", 0, b"{}").expect("a key");
    assert_eq!((&granted["key"], &granted["epoch"]), (&json!(key.to_string()), &json!(0)));
    assert_eq!(granted["pauses_ms"], json!([1_000, 1_000]));
    // A request is claimed again before it is sent again. The time to work is what is left of it.
    let (_, mut again) = client.post(PROBE, ask(1)).await;
    let (left, first) = (again["work_ms"].take(), granted["work_ms"].take());
    assert!(left.is_u64() && left.as_u64() <= first.as_u64(), "{left} of {first}");
    assert_eq!(again, granted);
    let (status, in_flight) = client.post(PROBE, ask(2)).await;
    assert_eq!((status, &in_flight["code"]), (409, &json!("HX0201")));

    let record = granted["record"].as_str().expect("a record");
    let settle = json!({ "attempt": attempt(1), "report": "succeeded", "body": "healthy" });
    let other = format!("/v1/control/connector.rollout_notify.v1/{record}/settle");
    assert_eq!(client.post(&other, settle.clone()).await.0, 404, "not one of its requests");
    let (status, settled) = client.post(&format!("{PROBE}/{record}/settle"), settle).await;
    assert_eq!((status, settled), (200, json!({ "repeated": false })));
    let (_, replayed) = client.post(PROBE, ask(3)).await;
    assert_eq!(replayed["outcome"]["body"], "healthy");

    // A request that is in flight when the epoch ends becomes void.
    let (_, late) =
        client.post(PROBE, json!({ "request": "late", "attempt": attempt(4), "epoch": 0 })).await;
    let end = json!({ "seen": 0, "reason": "the leader was replaced" });
    let (_, ended) = client.post("/v1/epochs/connector", end.clone()).await;
    let expected = json!({ "domain": "connector", "epoch": 1, "moved": true, "voided": 1 });
    assert_eq!(ended, expected);
    assert_eq!(client.post("/v1/epochs/connector", end).await.1["moved"], false, "it was over");
    let beyond = json!({ "seen": 0, "to": 1_u64 << 63, "reason": "there is no such epoch" });
    assert_eq!(client.post("/v1/epochs/connector", beyond).await.0, 400);
    let named = |problem: &Value| (problem["code"].clone(), problem["error"].clone());
    let mismatch = (json!("HX0211"), json!("ERR_EPOCH_MISMATCH"));
    let settle = json!({ "attempt": attempt(4), "report": "succeeded" });
    let record = late["record"].as_str().expect("a record");
    let (status, void) = client.post(&format!("{PROBE}/{record}/settle"), settle).await;
    assert_eq!((status, named(&void)), (409, mismatch.clone()));
    let (_, stuck) = client.get("/v1/effects?state=stuck").await;
    assert_eq!(stuck["effects"][0]["epoch"], json!({ "domain": "connector", "epoch": 0 }));
    let (status, old) = client.post(PROBE, json!({ "request": "{}", "epoch": 0 })).await;
    assert_eq!((status, named(&old)), (409, mismatch));
    let (_, new) = client.post(PROBE, json!({ "request": "{}" })).await;
    assert_eq!((&new["verdict"], &new["epoch"]), (&json!("granted"), &json!(1)));
    let (_, epochs) = client.get("/v1/epochs").await;
    assert_eq!(epochs["epochs"], json!([{ "domain": "connector", "epoch": 1 }]));
    assert_eq!(client.get("/v1/epochs/federation").await.1["epoch"], 0);
    let (_, current) = client.get("/v1/epochs/connector").await;
    assert_eq!(current["reason"], "the leader was replaced");
}

/// Proves C-2: a request that is never retried has no key, so each claim is a new one, unless it
/// repeats its attempt.
#[tokio::test]
async fn a_fail_fast_computation_has_no_key() {
    let client = Client::dev();
    let path = "/v1/control/connector.fencing_acquire.v1";
    let (_, first) = client.post(path, json!({ "request": "{}" })).await;
    let (_, second) = client.post(path, json!({ "request": "{}" })).await;
    assert_eq!((&first["verdict"], &second["verdict"]), (&json!("granted"), &json!("granted")));
    assert_eq!((&first["key"], &first["pauses_ms"]), (&Value::Null, &json!([])));
    assert_ne!(first["record"], second["record"]);
    let claim = json!({ "request": "{}", "attempt": attempt(7), "epoch": 0 });
    let (_, first) = client.post(path, claim.clone()).await;
    let (_, again) = client.post(path, claim).await;
    let granted = |answer: &Value| (answer["attempt"].clone(), answer["fence"].clone());
    assert_eq!(granted(&first), granted(&again), "a lost answer is requested again");
}

/// Proves C-2: only registered computations are dispatched.
#[tokio::test]
async fn an_unregistered_computation_is_not_dispatched() {
    let client = Client::dev();
    let (status, problem) = client.post("/v1/control/connector.unheard_of.v1", json!({})).await;
    assert_eq!((status, &problem["code"]), (404, &json!("HX0401")));
    assert_eq!(problem["error"], "ERR_KEY_DERIVATION_FAILED");
    let (_, list) = client.get("/v1/control").await;
    let names: Vec<_> = list["computations"].as_array().expect("a list").iter().collect();
    assert_eq!(names.len(), 5);
    assert_eq!(names[0]["computation"], "connector.fencing_acquire.v1");
    assert_eq!((&names[0]["retryable"], &names[1]["retryable"]), (&json!(false), &json!(true)));
    for bad in [
        json!({}),
        json!({ "request": "a", "request_base64": "YQ==" }),
        json!({ "request": "a", "attempt": attempt(1) }),
        json!({ "request_base64": "?" }),
        json!({ "epoch": u64::MAX }),
        json!({ "attempt": "att_1" }),
        json!({ "unheard_of": 1 }),
    ] {
        assert_eq!(client.post(PROBE, bad.clone()).await.0, 400, "{bad}");
    }
    for bad in [
        json!({ "seen": 0, "reason": " " }),
        json!({ "seen": 0, "reason": "to itself", "to": 0 }),
        json!({ "seen": 5, "reason": "back", "to": 5 }),
        json!({ "seen": 0, "reason": "too far", "to": i64::MAX }),
        json!({ "seen": 7, "reason": "it has not begun" }),
    ] {
        assert_eq!(client.post("/v1/epochs/connector", bad.clone()).await.0, 400, "{bad}");
    }
    assert_eq!(client.get("/v1/epochs/No.Domain").await.0, 400);
}

const RECEIVE: &str = "/v1/control/connector.health_probe.v1/receive";

/// The key of a probe.
fn probe(epoch: u64, request: &[u8]) -> String {
    derive_key("connector.health_probe.v1", epoch, request).expect("a key").to_string()
}

/// The names of a problem: its code, and its name in the control plane.
fn names(problem: &Value) -> (Value, Value) {
    (problem["code"].clone(), problem["error"].clone())
}

/// Proves C-3, C-10: a request that a client received is performed once, also where sender and
/// receiver share the ledger.
#[tokio::test]
async fn a_received_request_is_performed_once() {
    let client = Client::dev();
    let sent = json!({ "request": "{}", "attempt": attempt(1), "epoch": 0 });
    let (_, sent) = client.post(PROBE, sent).await;
    let receive = |n: u8| {
        let key = &sent["key"];
        json!({ "request_base64": "e30=", "key": key, "epoch": 0, "attempt": attempt(n) })
    };
    let (status, mut granted) = client.post(RECEIVE, receive(2)).await;
    assert_eq!((status, &granted["verdict"]), (200, &json!("granted")), "{granted}");
    assert_eq!((&granted["key"], &granted["epoch"]), (&sent["key"], &json!(0)));
    assert_ne!(granted["record"], sent["record"]);
    // The same attempt gets the same grant; another one is told that it is under way.
    let (_, mut again) = client.post(RECEIVE, receive(2)).await;
    assert!(again["work_ms"].take().as_u64() <= granted["work_ms"].take().as_u64());
    assert_eq!(again, granted);
    let (status, in_flight) = client.post(RECEIVE, receive(3)).await;
    assert_eq!((status, &in_flight["code"]), (409, &json!("HX0201")));

    let record = granted["record"].as_str().expect("a record");
    let settle = json!({ "attempt": attempt(2), "report": "succeeded", "body": "healthy" });
    let other = format!("/v1/control/connector.rollout_notify.v1/{record}/settle");
    assert_eq!(client.post(&other, settle.clone()).await.0, 404, "not one of its requests");
    for repeated in [false, true] {
        let settled = client.post(&format!("{PROBE}/{record}/settle"), settle.clone()).await;
        assert_eq!(settled, (200, json!({ "repeated": repeated })));
    }
    let (status, replayed) = client.post(RECEIVE, receive(3)).await;
    assert_eq!((status, &replayed["verdict"]), (200, &json!("replayed")));
    assert_eq!(replayed["outcome"]["body"], "healthy");
    // The sender's own record is still under way.
    let record = sent["record"].as_str().expect("a record");
    assert_eq!(client.get(&format!("/v1/effects/{record}")).await.1["state"], "running");
}

/// Proves C-10: the receiving side checks the epoch, then the recorded payload, then the key. A
/// request with several faults is refused for the first of them, and leaves no record.
#[tokio::test]
async fn a_received_request_is_checked_in_order() {
    let client = Client::dev();
    let key = probe(0, b"{}");
    let (status, _) =
        client.post(RECEIVE, json!({ "request": "{}", "key": key, "epoch": 0 })).await;
    assert_eq!(status, 200);
    let conflict = (json!("HX0202"), json!("ERR_IDEMPOTENCY_CONFLICT"));
    let mismatch = (json!("HX0211"), json!("ERR_EPOCH_MISMATCH"));
    let underived = (json!("HX0401"), json!("ERR_KEY_DERIVATION_FAILED"));
    for (request, status, expected) in [
        // Neither the epoch, nor the payload, nor the key is right.
        (json!({ "request": "{2}", "key": key, "epoch": 1 }), 409, &mismatch),
        // The payload differs, so the key does not follow from it either.
        (json!({ "request": "{2}", "key": key, "epoch": 0 }), 422, &conflict),
        (json!({ "request": "{2}", "key": probe(0, b"{3}"), "epoch": 0 }), 400, &underived),
        (json!({ "request": "{2}", "key": probe(1, b"{2}"), "epoch": 0 }), 400, &underived),
        (json!({ "request": "{2}", "epoch": 0 }), 400, &underived),
    ] {
        let (got, problem) = client.post(RECEIVE, request.clone()).await;
        assert_eq!((got, &names(&problem)), (status, expected), "{request}: {problem}");
    }
    let (_, found) = client.get("/v1/effects").await;
    assert_eq!(found["effects"].as_array().map(Vec::len), Some(1));

    // A key of an epoch that is over counts for nothing, also where its outcome is recorded.
    let end = json!({ "seen": 0, "reason": "the leader was replaced" });
    client.post("/v1/epochs/connector", end).await;
    let old = json!({ "request": "{}", "key": key, "epoch": 0 });
    let (status, problem) = client.post(RECEIVE, old).await;
    assert_eq!((status, names(&problem)), (409, mismatch));
    let new = json!({ "request": "{}", "key": probe(1, b"{}"), "epoch": 1 });
    assert_eq!(client.post(RECEIVE, new).await.1["verdict"], "granted");

    for bad in [
        json!({ "request": "{}", "key": key }),
        json!({ "request": "{}", "key": "mine", "epoch": 1 }),
        json!({ "request": "{}", "request_base64": "e30=", "key": key, "epoch": 1 }),
        json!({ "key": key, "epoch": 1 }),
        json!({ "request": "{}", "key": key, "epoch": u64::MAX }),
        json!({ "request": "{}", "key": key, "epoch": 1, "unheard_of": 1 }),
    ] {
        let (status, problem) = client.post(RECEIVE, bad.clone()).await;
        assert_eq!((status, &problem["code"]), (400, &json!("HX0312")), "{bad}");
    }
}

/// Proves C-2, C-10: a request that is never retried comes without a key, and each attempt at it
/// has a record of its own.
#[tokio::test]
async fn a_received_request_without_a_key_is_recorded_for_its_attempt() {
    let client = Client::dev();
    let path = "/v1/control/connector.fencing_acquire.v1/receive";
    let receive = |n: u8| json!({ "request": "{}", "epoch": 0, "attempt": attempt(n) });
    let (_, first) = client.post(path, receive(1)).await;
    let (_, again) = client.post(path, receive(1)).await;
    let (_, second) = client.post(path, receive(2)).await;
    assert_eq!((&first["verdict"], &first["key"]), (&json!("granted"), &Value::Null), "{first}");
    assert_eq!((&first["record"], &first["fence"]), (&again["record"], &again["fence"]));
    assert_ne!(first["record"], second["record"]);
    let keyed = json!({ "request": "{}", "epoch": 0, "key": probe(0, b"{}") });
    let (status, problem) = client.post(path, keyed).await;
    assert_eq!((status, &problem["error"]), (400, &json!("ERR_KEY_DERIVATION_FAILED")));
}

/// Proves C-2, C-10: the document's short names stand for full names, from which the key follows. A
/// short name of two computations is refused, with both.
#[tokio::test]
async fn a_short_name_is_accepted_where_it_is_unambiguous() {
    let hapax = Hapax::builder().in_memory();
    let second = Computation::fail_fast("federation.rollout_notify.v1").expect("a computation");
    let registry = Registry::standard().with(second).expect("a registry");
    let systems = Systems { registry, ..Systems::default() };
    let server = Server::with(hapax.clone(), Access::Everybody, ServerSettings::default(), systems);
    let headers = vec![("host", "localhost".to_owned())];
    let client = Client { app: server.router(), hapax, headers };

    let claim = json!({ "request": "{}" });
    let (_, granted) = client.post("/v1/control/health_probe", claim.clone()).await;
    assert_eq!(granted["key"], probe(0, b"{}"));
    let received = json!({ "request": "{}", "key": granted["key"], "epoch": 0 });
    let (_, granted) = client.post("/v1/control/health_probe/receive", received.clone()).await;
    assert_eq!(granted["verdict"], "granted", "{granted}");
    let record = granted["record"].as_str().expect("a record");
    let settle = json!({ "attempt": granted["attempt"], "report": "succeeded" });
    let settled = client.post(&format!("/v1/control/health_probe/{record}/settle"), settle).await;
    assert_eq!(settled.0, 200, "{settled:?}");
    let (_, replayed) = client.post(RECEIVE, received).await;
    assert_eq!(replayed["verdict"], "replayed");

    let (status, ambiguous) = client.post("/v1/control/rollout_notify", claim.clone()).await;
    assert_eq!((status, &ambiguous["error"]), (400, &json!("ERR_KEY_DERIVATION_FAILED")));
    let detail = ambiguous["detail"].as_str().expect("text");
    for name in ["connector.rollout_notify.v1", "federation.rollout_notify.v1"] {
        assert!(detail.contains(name), "{detail}");
    }
    assert_eq!(client.post("/v1/control/probe", claim).await.0, 404);
}

/// Proves C-5, C-10: without its ledger the server grants nothing, and names the error of the
/// document, also where the caller's token can no longer be read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_ledger_nothing_is_granted() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = hapax_testkit::Postgres::start();
    let builder = Hapax::builder().signing_key(directory.path().join("key"));
    let hapax = builder.open(server.url("postgres")).await.expect("a ledger");
    let settings = ServerSettings::default();
    let open = Client::of(hapax.clone(), Access::Everybody, settings);
    let guarded = Client::of(hapax, Access::Tokens(TokenCache::default()), settings);
    let guarded = guarded.showing(Role::Operator, None).await;
    server.stop();
    let received = json!({ "request": "{}", "key": probe(0, b"{}"), "epoch": 0 });
    for client in [open, guarded] {
        for (path, body) in [(PROBE, json!({ "request": "{}" })), (RECEIVE, received.clone())] {
            let (status, problem) = client.post(path, body).await;
            assert_eq!(status, 503, "{path}: {problem}");
            assert_eq!(problem["error"], "ERR_DEDUP_STORE_UNAVAILABLE", "{path}: {problem}");
            assert_eq!(problem["retryable"], true);
        }
    }
}
