//! `Idempotency-Key`, as clients send it.

use std::time::{Duration, Instant, SystemTime};

use hapax::outbox::OutboxConfig;
use hapax::{Hapax, Role};
use hapax_server::access::Access;
use hapax_server::server::ServerSettings;
use http::Method;
use serde_json::json;

use super::{Client, attempt, hapax_sinks_stub, operations, read};

/// Proves S-2 for keys: a request that is sent again under its key is carried out once. A refusal
/// is not kept, so the next try is judged anew.
#[tokio::test]
async fn a_mutating_call_is_repeated_under_its_key() {
    let client = Client::dev();
    let keyed = client.clone().with("idempotency-key", "\"first\"");
    let claim = json!({ "attempt": attempt(1) });
    let (_, granted) = keyed.post("/v1/effects/a/claim", claim.clone()).await;
    // A client that names its attempt gets the grant again. Two workers with one key do not both get it.
    let (_, again) = keyed.post("/v1/effects/a/claim", claim).await;
    assert_eq!((&again["attempt"], &again["fence"]), (&granted["attempt"], &granted["fence"]));
    let (status, problem) = keyed.post("/v1/effects/a/claim", json!({})).await;
    assert_eq!((status, &problem["code"]), (409, &json!("HX0201")));
    let settle = json!({ "attempt": granted["attempt"], "fence": granted["fence"],
        "report": "succeeded", "body": "done" });
    let settled = keyed.post("/v1/effects/a/settle", settle.clone()).await;
    assert_eq!(settled, (200, json!({ "repeated": false })));
    let text = settle.to_string();
    let response = keyed.send(&Method::POST, "/v1/effects/a/settle", Some(&text)).await;
    assert_eq!(response.headers()["idempotent-replayed"], "true");
    assert_eq!(read(response).await, settled);
    let other = json!({ "attempt": granted["attempt"], "report": "failed" });
    let (status, problem) = keyed.post("/v1/effects/a/settle", other).await;
    assert_eq!((status, &problem["code"]), (422, &json!("HX0202")));
    // A grant that is over is not answered again.
    let (status, replayed) = keyed.post("/v1/effects/a/claim", json!({})).await;
    assert_eq!((status, &replayed["verdict"]), (200, &json!("replayed")));

    // Keys of one namespace do not count in another.
    let elsewhere = keyed.clone().with("hapax-namespace", "billing");
    let (_, theirs) = elsewhere.post("/v1/effects/a/claim", json!({})).await;
    assert_eq!(theirs["verdict"], "granted");
    assert_ne!(theirs["attempt"], granted["attempt"]);

    // A request that was refused for a reason that can be removed is carried out at the next try.
    let (_, granted) = client.post("/v1/effects/b/claim", json!({})).await;
    let event = json!({ "event_name": "counted", "dataset_id": "d", "payload": {} });
    let settle = json!({ "attempt": granted["attempt"], "report": "succeeded", "events": [event] });
    let keyed = client.clone().with("idempotency-key", "second");
    assert_eq!(keyed.post("/v1/effects/b/settle", settle.clone()).await.0, 422);
    let outbox = OutboxConfig::new().sink("printer", hapax_sinks_stub::Nowhere).expect("a name");
    let outbox = outbox.route("*", "*", &["printer"]).expect("a name");
    client.hapax.outbox().configure(&outbox).await.expect("declared");
    assert_eq!(keyed.post("/v1/effects/b/settle", settle).await.0, 200);
}

/// Proves N-5 for the API: an answer under a key is given only to the token it was made for.
#[tokio::test]
async fn a_key_belongs_to_its_token() {
    let client = Client::guarded(ServerSettings::default());
    let ada = client.showing(Role::Operator, Some("default")).await;
    let bob = client.showing(Role::Operator, Some("default")).await;
    let (_, granted) = ada.post("/v1/effects/a/claim", json!({})).await;
    let (attempt, fence) = (&granted["attempt"], &granted["fence"]);
    let settle = json!({ "attempt": attempt, "fence": fence, "report": "succeeded" }).to_string();
    for (caller, repeated, replayed) in
        [(&ada, false, false), (&ada, false, true), (&bob, true, false)]
    {
        let caller = caller.clone().with("idempotency-key", "k");
        let answer = caller.send(&Method::POST, "/v1/effects/a/settle", Some(&settle)).await;
        assert_eq!(answer.headers().contains_key("idempotent-replayed"), replayed);
        assert_eq!(read(answer).await, (200, json!({ "repeated": repeated })));
    }
}

/// Proves S-2: answers are kept for as long as `/v1/config` says.
#[tokio::test]
async fn a_key_is_remembered_for_as_long_as_is_said() {
    let serving = |key_lifetime| {
        let settings = ServerSettings { key_lifetime, ..ServerSettings::default() };
        Client::of(Hapax::builder().in_memory(), Access::Everybody, settings)
    };
    let settled = async |client: &Client| {
        let (_, granted) = client.post("/v1/effects/a/claim", json!({})).await;
        let (attempt, fence) = (&granted["attempt"], &granted["fence"]);
        json!({ "attempt": attempt, "fence": fence, "report": "succeeded" }).to_string()
    };
    let week = Duration::from_secs(7 * 24 * 3600);
    let client = serving(week);
    let (_, config) = client.get("/v1/config").await;
    assert_eq!(config["idempotency_key_lifetime"], week.as_secs());
    assert_eq!(
        (&config["largest_request"], &config["longest_wait"]),
        (&json!(1048576), &json!(60))
    );
    let (keyed, settle) = (client.clone().with("idempotency-key", "k"), settled(&client).await);
    for replayed in [false, true] {
        let answer = keyed.send(&Method::POST, "/v1/effects/a/settle", Some(&settle)).await;
        assert_eq!(answer.headers().contains_key("idempotent-replayed"), replayed);
        let expires = answer.headers()["idempotency-expires"].to_str().expect("text");
        let expires = httpdate::parse_http_date(expires).expect("a date");
        let left = expires.duration_since(SystemTime::now()).expect("in the future");
        assert!(left <= week && left > week - Duration::from_secs(60), "{left:?}");
    }

    let client = serving(Duration::from_secs(1));
    assert_eq!(client.get("/v1/config").await.1["idempotency_key_lifetime"], 1);
    let (keyed, settle) = (client.clone().with("idempotency-key", "k"), settled(&client).await);
    let response = keyed.send(&Method::POST, "/v1/effects/a/settle", Some(&settle)).await;
    assert_eq!(read(response).await.1, json!({ "repeated": false }));
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let response = keyed.send(&Method::POST, "/v1/effects/a/settle", Some(&settle)).await;
        if !response.headers().contains_key("idempotent-replayed") {
            // The call was carried out again, and the effect itself was settled before.
            assert_eq!(read(response).await, (200, json!({ "repeated": true })));
            break;
        }
        assert!(Instant::now() < deadline, "the answer is replayed beyond its lifetime");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Proves S-2: a malformed key is refused by every call that accepts a key.
#[tokio::test]
async fn a_key_that_cannot_be_read_is_refused_everywhere() {
    let client = Client::dev().with("idempotency-key", "two words");
    let mutating = operations().into_iter().filter(|(method, ..)| *method != Method::GET);
    for (method, path, _) in mutating {
        let (status, problem) = read(client.send(&method, &path, Some("{}")).await).await;
        assert_eq!((status, &problem["code"]), (400, &json!("HX0302")), "{method} {path}");
    }
}

/// Proves S-2, S-6: the OpenAPI document says of each call whether its response is replayed, and
/// the server does so.
#[tokio::test]
async fn routes_that_ignore_a_key_say_so() {
    let client = Client::dev();
    let (_, document) = client.get("/v1/openapi.json").await;
    let description = |method: &str, path: &str| {
        let parameters = document["paths"][path][method]["parameters"].as_array().expect("some");
        let key = parameters.iter().find(|one| one["name"] == "Idempotency-Key").expect("a key");
        key["description"].as_str().expect("text").to_owned()
    };
    for path in [
        "/v1/effects/{key}/claim",
        "/v1/effects/{key}/look",
        "/v1/leases",
        "/v1/leases/{id}/renew",
        "/v1/control/{computation}",
        "/v1/control/{computation}/receive",
        "/v1/epochs/{domain}",
        "/v1/operations",
        "/api/v1/extract",
        "/api/v1/ontologies",
    ] {
        assert!(description("post", path).contains("evaluated anew"), "{path}");
    }
    for (method, path) in [
        ("post", "/v1/effects/{key}/settle"),
        ("delete", "/v1/leases/{id}"),
        ("put", "/v1/workflows/{workflow}/script"),
        ("delete", "/api/v1/ontologies/{ontology}"),
    ] {
        assert!(description(method, path).contains("carried out once"), "{method} {path}");
    }

    // The same key gets the same lease; other terms under it are a mistake.
    let keyed = client.clone().with("idempotency-key", "k");
    let terms = json!({ "term_ms": 60_000, "holder": "ada" });
    let (status, lease) = keyed.post("/v1/leases", terms.clone()).await;
    assert_eq!(status, 200);
    assert_eq!(keyed.post("/v1/leases", terms.clone()).await, (200, lease.clone()));
    for other in [
        json!({ "term_ms": 60_001, "holder": "ada" }),
        json!({ "term_ms": 60_000, "holder": "bob" }),
    ] {
        let (status, problem) = keyed.post("/v1/leases", other).await;
        assert_eq!((status, &problem["code"]), (422, &json!("HX0202")));
    }
    let (_, leases) = client.get("/v1/leases").await;
    assert_eq!(leases["leases"][0]["lease"], lease["lease"], "nothing was changed");
    assert_eq!(leases["leases"][0]["term_ms"], lease["term_ms"], "nothing was changed");
    let close = format!("/v1/leases/{}", lease["lease"].as_str().expect("an id"));
    assert_eq!(keyed.send(&Method::DELETE, &close, None).await.status(), 204);
    assert_eq!(client.get("/v1/leases").await.1["leases"], json!([]));
    // The lease is opened anew; the first response is not replayed.
    let answer = keyed.send(&Method::POST, "/v1/leases", Some(&terms.to_string())).await;
    assert!(!answer.headers().contains_key("idempotent-replayed"));
    assert_eq!(read(answer).await, (200, lease.clone()));
    let (_, leases) = client.get("/v1/leases").await;
    assert_eq!(leases["leases"][0]["lease"], lease["lease"]);
}
