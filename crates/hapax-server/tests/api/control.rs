//! Epochs and control requests over HTTP.

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
    let key = hapax_control::derive_key("connector.health_probe.v1", 0, b"{}").expect("a key");
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
