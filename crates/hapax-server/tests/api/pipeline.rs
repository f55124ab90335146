//! Operations, datasets and reviews over HTTP.

use hapax::Hapax;
use hapax::outbox::OutboxConfig;
use serde_json::{Value, json};

use super::{Access, Client, ServerSettings, attempt, hapax_sinks_stub};

fn operation(dataset: &str, version: &str) -> Value {
    json!({
        "pipeline_id": "hydrology", "task_id": "load", "dataset_id": dataset,
        "operation_type": "publish", "version": version, "checksum_in": "sha256:5f2b",
        "params_hash": "sha256:9c41", "timestamp_bucket": "2026-11-16T00:00:00Z",
    })
}

fn with(mut document: Value, members: &Value) -> Value {
    for (name, value) in members.as_object().expect("an object") {
        document[name] = value.clone();
    }
    document
}

/// Proves P-7 and S-2: a client in any language claims, performs and settles an operation, under
/// the same guards, contract and lock as any other.
#[tokio::test]
async fn an_operation_is_performed_elsewhere_once() {
    let client = Client::dev();
    let contract = r#"{"required":["rows"]}"#;
    let declared = json!({ "owner": "hydrology", "output_contract": contract });
    let (status, known) = client.post("/v1/datasets/flow", declared.clone()).await;
    assert_eq!((status, known), (200, json!({ "known": false })));
    assert_eq!(client.get("/v1/datasets/flow").await.1, declared);
    let ask = with(operation("flow", "v1"), &json!({ "attempt": attempt(1) }));
    let (status, granted) = client.post("/v1/operations", ask.clone()).await;
    assert_eq!((status, &granted["verdict"]), (200, &json!("granted")), "{granted}");
    let (_, again) = client.post("/v1/operations", ask).await;
    assert_eq!(
        (&again["key"], &again["fence"]),
        (&granted["key"], &granted["fence"]),
        "the same attempt"
    );

    let (status, locked) = client.post("/v1/operations", operation("flow", "v2")).await;
    assert_eq!((status, &locked["code"]), (409, &json!("HX0204")), "{locked}");
    let key = granted["key"].as_str().expect("a key");
    let settle = format!("/v1/operations/{key}/settle");
    let output = json!({ "dataset_id": "flow", "version": "v1", "checksum": "sha256:aa",
        "uri": "s3://flow/v1.csv" });
    let done = json!({ "attempt": attempt(1), "report": "succeeded", "body": "7 rows",
        "outputs": [output], "documents": [{ "rows": 7 }], "cpu_ms": 1500 });
    assert_eq!(client.post(&settle, done).await, (200, json!({ "repeated": false })));
    let (_, replayed) = client.post("/v1/operations", operation("flow", "v1")).await;
    assert_eq!(replayed["outcome"]["body"], "7 rows");
    let (_, lineage) = client.get(&format!("/v1/operations/{key}/lineage")).await;
    let events = lineage["events"].as_array().expect("events");
    let words: Vec<_> = events.iter().map(|event| event["eventType"].clone()).collect();
    assert_eq!(words, ["START", "COMPLETE"]);
    assert_eq!(events[1]["outputs"][0]["name"], "flow");
    assert_eq!(events[1]["run"]["facets"]["hapax_energy"]["cpu_ms"], 1500);

    // An output that breaks the contract leaves the operation partial, and refused.
    let ask = with(operation("flow", "v3"), &json!({ "attempt": attempt(3) }));
    let (_, granted) = client.post("/v1/operations", ask).await;
    let key = granted["key"].as_str().expect("a key");
    let unfit = json!({ "attempt": attempt(3), "report": "succeeded", "documents": [{}] });
    let (status, refused) = client.post(&format!("/v1/operations/{key}/settle"), unfit).await;
    assert_eq!((status, &refused["code"]), (409, &json!("HX0502")), "{refused}");
    let (_, effect) = client.get(&format!("/v1/effects/{key}")).await;
    assert_eq!(effect["state"], "partial");

    let (status, bad) =
        client.post("/v1/operations", with(operation("flow", " "), &json!({}))).await;
    assert_eq!((status, &bad["code"]), (400, &json!("HX0501")), "{bad}");
    let none = json!({ "attempt": attempt(9), "report": "failed", "reason": "no" });
    assert_eq!(client.post("/v1/operations/nothing/settle", none).await.0, 404);
    assert_eq!(client.delete("/v1/datasets/flow").await, (200, json!({ "known": true })));
    assert_eq!(client.get("/v1/datasets/flow").await.0, 404);
    for wrong in [
        json!({ "masked": 16 }),
        json!({ "sovereignty": "tribal", "shards": 2 }),
        json!({ "input_contract": "{\"$ref\":\"http://elsewhere\"}" }),
    ] {
        assert_eq!(client.post("/v1/datasets/flow", wrong).await.0, 400);
    }
}

/// Proves P-14: neither an answer about a masked dataset nor a review of it names an exact place; a
/// field that cannot be masked is refused.
#[tokio::test]
async fn a_refusal_over_http_names_no_place() {
    let client = Client::dev();
    let contract = r#"{"additionalProperties":{"type":"integer"}}"#;
    let read = json!({ "masked": 5, "review": true, "input_contract": contract });
    client.post("/v1/datasets/read", read).await;
    let written = json!({ "masked": 5, "review": true, "output_contract": contract });
    client.post("/v1/datasets/written", written).await;
    let breach = json!([{ "38.512347,-97.321234": "x" }]);
    let ask = |dataset: &str, version: &str| {
        with(operation(dataset, version), &json!({ "justification": "a survey" }))
    };
    let claim = with(ask("read", "v1"), &json!({ "documents": breach }));
    let (status, refused) = client.post("/v1/operations", claim).await;
    assert_eq!((status, &refused["code"]), (409, &json!("HX0502")), "{refused}");
    let claim = with(ask("written", "v1"), &json!({ "attempt": attempt(1) }));
    let (_, granted) = client.post("/v1/operations", claim).await;
    let key = granted["key"].as_str().expect("a key");
    let made = json!({ "attempt": attempt(1), "report": "succeeded", "documents": breach });
    let (status, unfit) = client.post(&format!("/v1/operations/{key}/settle"), made).await;
    assert_eq!((status, &unfit["code"]), (409, &json!("HX0502")), "{unfit}");
    let (_, reviews) = client.get("/v1/reviews").await;
    assert_eq!(reviews["reviews"].as_array().map(Vec::len), Some(2), "{reviews}");
    let (_, effect) = client.get(&format!("/v1/effects/{key}")).await;
    let exact = ask("written", "38.512347,-97.321234");
    let (status, invalid) = client.post("/v1/operations", exact).await;
    assert_eq!((status, &invalid["code"]), (400, &json!("HX0501")), "{invalid}");
    assert!(invalid["detail"].as_str().is_some_and(|why| why.starts_with("version: ")));
    for body in [refused, unfit, reviews, effect, invalid] {
        let body = body.to_string();
        assert!(!body.contains("38.512347") && !body.contains("97.321234"), "{body}");
    }
}

/// Proves P-13, P-16: a review is listed, and decided once.
#[tokio::test]
async fn a_review_is_answered_over_http() {
    let client = Client::dev();
    // A missing argument is the client's to give: no review is opened.
    client.post("/v1/datasets/dug", json!({ "masked": 5, "review": true })).await;
    let (status, refused) = client.post("/v1/operations", operation("dug", "v1")).await;
    assert_eq!((status, &refused["code"]), (409, &json!("HX0502")), "{refused}");
    assert_eq!(client.get("/v1/reviews").await.1["reviews"], json!([]));
    let declared = json!({ "review": true, "input_contract": r#"{"required":["rows"]}"# });
    client.post("/v1/datasets/sites", declared).await;
    let (status, refused) = client.post("/v1/operations", operation("sites", "v1")).await;
    assert_eq!((status, &refused["code"]), (409, &json!("HX0502")), "{refused}");
    let (_, listed) = client.get("/v1/reviews").await;
    let review = &listed["reviews"][0];
    assert_eq!((&review["dataset_id"], &review["standing"]), (&json!("sites"), &json!("pending")));
    let complete = with(operation("sites", "v1"), &json!({ "documents": [{ "rows": 7 }] }));
    let (status, waiting) = client.post("/v1/operations", complete.clone()).await;
    assert!(
        status == 409 && waiting["detail"].as_str().is_some_and(|d| d.contains("review")),
        "{waiting}"
    );
    let decide = format!("/v1/reviews/{}/decide", review["review"].as_str().expect("a key"));
    let say =
        |approve: bool| json!({ "attempt": review["attempt"], "approve": approve, "note": "seen" });
    assert_eq!(client.post(&decide, say(true)).await.0, 200);
    assert_eq!(client.post(&decide, say(true)).await.0, 200, "the same again");
    assert_eq!(client.post(&decide, say(false)).await.0, 409, "it is decided");
    assert_eq!(client.get("/v1/reviews").await.1["reviews"], json!([]));
    assert_eq!(client.get("/v1/reviews?all=true").await.1["reviews"][0]["standing"], "approved");
    assert_eq!(client.post("/v1/operations", complete).await.1["verdict"], "granted");
}

/// Proves P-16: an operator escalates an operation with a reason; a steward decides.
#[tokio::test]
async fn an_operation_is_escalated_over_http() {
    let client = Client::dev();
    let ask = with(operation("flow", "v1"), &json!({ "attempt": attempt(1) }));
    let (_, granted) = client.post("/v1/operations", ask).await;
    let key = granted["key"].as_str().expect("a key");
    let failed = json!({ "attempt": attempt(1), "report": "failed", "reason": "no" });
    client.post(&format!("/v1/operations/{key}/settle"), failed).await;
    let escalate = format!("/v1/operations/{key}/escalate");
    for unjustified in [json!({}), json!({ "note": " " })] {
        assert_eq!(client.post(&escalate, unjustified).await.0, 400);
    }
    let why = json!({ "note": "the gauge is odd" });
    assert_eq!(client.post("/v1/operations/nothing/escalate", why.clone()).await.0, 404);
    let (status, escalated) = client.post(&escalate, why).await;
    assert_eq!((status, &escalated["standing"]), (200, &json!("pending")), "{escalated}");
    let (_, listed) = client.get("/v1/reviews").await;
    let review = &listed["reviews"][0];
    assert_eq!((&review["review"], &review["operation"]), (&escalated["review"], &json!(key)));
    assert_eq!(
        (&review["reason"], &review["asked_by"]),
        (&json!("the gauge is odd"), &json!("development"))
    );
    let (status, refused) = client.post("/v1/operations", operation("flow", "v1")).await;
    assert_eq!((status, &refused["code"]), (409, &json!("HX0502")), "{refused}");
    let decide = format!("/v1/reviews/{}/decide", review["review"].as_str().expect("a key"));
    let yes = json!({ "attempt": review["attempt"], "approve": true, "note": "mended" });
    assert_eq!(client.post(&decide, yes).await.0, 200);
    let (_, granted) = client.post("/v1/operations", operation("flow", "v1")).await;
    assert_eq!(granted["verdict"], "granted", "{granted}");
}

/// Proves P-14: no answer about a masked dataset has a place finer than allowed, and neither have
/// the files of the database. The test searches both after a success, failures, a refusal and notes
/// of people.
#[tokio::test]
async fn exact_places_are_in_no_answer() {
    const PLANTED: [&str; 4] = ["38.512347", "97.321234", "37.912345", "98.454321"];
    let directory = tempfile::tempdir().expect("a directory");
    let hapax = Hapax::open(directory.path().join("hapax.db")).await.expect("a ledger");
    let client = Client::of(hapax, Access::Everybody, ServerSettings::default());
    let outbox = OutboxConfig::new().sink("shelf", hapax_sinks_stub::Nowhere).expect("a name");
    let outbox = outbox.route("*", "*", &["shelf"]).expect("a name");
    client.hapax.outbox().configure(&outbox).await.expect("declared");
    let declared = json!({ "masked": 5, "review": true, "output_contract": "true" });
    client.post("/v1/datasets/sites", declared).await;
    let place = "dug at 38.512347, -97.321234";
    let geojson = json!({ "type": "Feature", "properties": { "note": place },
        "geometry": { "type": "Point", "coordinates": [-98.454321, 37.912345] } });
    let exact = json!({ "justification": place, "governance_ref": place,
        "inputs": [{ "name": place, "uri": "s3://x/POINT(-98.454321 37.912345)" }] });
    let mut answers = String::new();
    let mut keep = |(_, answer): (u16, Value)| {
        answers += &answer.to_string();
        answer
    };
    let mut keys = Vec::new();
    let mut reset = None;
    for (version, status, report) in [
        (
            "v1",
            200,
            json!({ "report": "succeeded", "body": geojson.to_string(), "documents": [geojson],
            "events": [{ "event_name": "surveyed", "dataset_id": "sites", "payload": geojson }],
            "outputs": [{ "dataset_id": "sites", "version": "v1", "checksum": "sha256:aa",
                "uri": "s3://sites/geo:38.512347,-97.321234" }] }),
        ),
        ("v2", 200, json!({ "report": "failed", "reason": place })),
        ("v3", 409, json!({ "report": "succeeded", "body": place })),
        ("v4", 200, json!({ "report": "released", "reason": place })),
        ("v5", 200, json!({ "report": "ambiguous", "reason": place })),
        ("v6", 200, json!({ "report": "partial", "reason": place })),
    ] {
        let named = json!({ "attempt": attempt(version.as_bytes()[1]) });
        let ask = with(with(operation("sites", version), &exact), &named);
        let granted = keep(client.post("/v1/operations", ask.clone()).await);
        let Some(key) = granted["key"].as_str() else {
            panic!("{version}: {granted}");
        };
        // The routes for any effect do not bypass the contract or the mask.
        let around = json!({ "attempt": named["attempt"], "report": "succeeded", "body": place });
        let (refused, why) = client.post(&format!("/v1/effects/{key}/settle"), around).await;
        assert_eq!((refused, &why["code"]), (400, &json!("HX0501")), "{why}");
        assert!(why["detail"].as_str().is_some_and(|why| why.contains("/v1/operations")), "{why}");
        for payload in [place.to_owned(), geojson.to_string()] {
            let step = json!({ "attempt": named["attempt"], "step": "fill", "payload": payload,
                "nth": 0 });
            let (refused, why) = client.post(&format!("/v1/effects/{key}/undo"), step).await;
            assert_eq!((refused, &why["code"]), (409, &json!("HX0502")), "{why}");
            keep((refused, why));
        }
        let settle = format!("/v1/operations/{key}/settle");
        let settled = client.post(&settle, with(report, &named)).await;
        assert_eq!(settled.0, status, "{version}: {}", settled.1);
        keep(settled);
        let why = json!({ "note": place });
        keep(client.post(&format!("/v1/operations/{key}/escalate"), why).await);
        keep(client.post("/v1/operations", ask).await);
        keys.push(key.to_owned());
        if version == "v3" || version == "v5" {
            let effect = client.get(&format!("/v1/effects/{key}")).await.1;
            let (state, decision) = match version {
                // The operation made no documents for the contract to check.
                "v3" => ("partial", json!({ "decision": "skip" })),
                _ => ("indeterminate", json!({ "decision": "happened", "body": place })),
            };
            assert_eq!(effect["state"], state);
            let resolve = with(json!({ "attempt": effect["attempt"], "note": place }), &decision);
            assert_eq!(client.post(&format!("/v1/effects/{key}/resolve"), resolve).await.0, 200);
        }
        if version == "v5" {
            let again = json!({ "attempt": named["attempt"], "note": place });
            reset = Some((format!("/v1/effects/{key}/reset"), again));
        }
    }
    let (path, again) = reset.expect("one to clear");
    let refused = keep(client.post(&path, again.clone()).await);
    assert_eq!(refused["code"], "HX0502", "a review was opened: {refused}");
    for review in client.get("/v1/reviews").await.1["reviews"].as_array().expect("reviews") {
        let key = review["review"].as_str().expect("a key");
        let yes = json!({ "attempt": review["attempt"], "approve": true, "note": place });
        assert_eq!(client.post(&format!("/v1/reviews/{key}/decide"), yes).await.0, 200);
        keys.push(key.to_owned());
    }
    assert_eq!(client.post(&path, again).await.0, 200);
    client.hapax.pass().await.expect("sealed");
    for path in ["effects", "journal", "outbox", "reviews?all=true", "datasets", "leases", "sinks"]
    {
        keep(client.get(&format!("/v1/{path}")).await);
    }
    for key in &keys {
        for path in ["", "/history", "/steps"] {
            keep(client.get(&format!("/v1/effects/{key}{path}")).await);
        }
    }
    for key in &keys[..6] {
        let lineage = keep(client.get(&format!("/v1/operations/{key}/lineage")).await);
        assert!(lineage["events"].as_array().is_some_and(|events| events.len() >= 2), "{lineage}");
    }
    answers += &client.text("/metrics").await;
    assert!(answers.contains("h3") && answers.contains("START"), "{answers}");
    let files = std::fs::read_dir(directory.path()).expect("a directory").flatten();
    let files = files.map(|file| file.path()).filter(|path| path.is_file());
    let bytes: Vec<u8> = files.flat_map(|path| std::fs::read(path).expect("a file")).collect();
    let database = String::from_utf8_lossy(&bytes);
    assert!(database.contains("h3:"), "it is the one");
    for digits in PLANTED {
        assert!(!answers.contains(digits), "{digits} is in {answers}");
        assert!(!database.contains(digits), "{digits} is in the database");
    }
}

/// Proves P-15: every meter has its name and its labels, and counts in the unit that its name states.
#[tokio::test]
async fn the_energy_of_operations_is_counted_in_its_unit() {
    let client = Client::dev();
    let ask = with(operation("flow", "v1"), &json!({ "attempt": attempt(1) }));
    let (_, granted) = client.post("/v1/operations", ask).await;
    let key = granted["key"].as_str().expect("a key");
    // One core for an hour: 10 watt-hours and 4.5 grams.
    let done = json!({ "attempt": attempt(1), "report": "succeeded", "cpu_ms": 3_600_000 });
    client.post(&format!("/v1/operations/{key}/settle"), done).await;
    let text = client.text("/metrics").await;
    let took = |name: &str| {
        let line = text.lines().find(|line| {
            line.starts_with(&format!("{name}_total{{")) && line.contains("pipeline=\"hydrology\"")
        });
        let count = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        count.unwrap_or_else(|| panic!("{name} is not in {text}"))
    };
    assert!((took("kfm_energy_joules") - 36_000.0).abs() < 1e-6);
    assert!((took("kfm_carbon_grams") - 4.5).abs() < 1e-9);
    for name in [
        "kfm_idempotent_replays",
        "kfm_lock_acquire_failures",
        "kfm_retry_events",
        "kfm_lineage_rewrite_ops",
        "kfm_idem_cache_hits",
        "kfm_idem_cache_misses",
    ] {
        assert!(text.contains(&format!("# TYPE {name}_total counter")), "{name} in {text}");
    }
    let (_, lineage) = client.get(&format!("/v1/operations/{key}/lineage")).await;
    let energy = &lineage["events"][1]["run"]["facets"]["hapax_energy"];
    assert_eq!(energy["cpu_ms"], 3_600_000, "{energy}");
}

/// Proves P-15: operations are counted with their labels.
#[tokio::test]
async fn operations_are_counted_with_their_labels() {
    let client = Client::dev();
    let ask = with(operation("flow", "v1"), &json!({ "attempt": attempt(1) }));
    let (_, granted) = client.post("/v1/operations", ask).await;
    client.post("/v1/operations", operation("flow", "v2")).await;
    let key = granted["key"].as_str().expect("a key");
    let done = json!({ "attempt": attempt(1), "report": "succeeded" });
    client.post(&format!("/v1/operations/{key}/settle"), done).await;
    client.post("/v1/operations", operation("flow", "v1")).await;
    let text = client.text("/metrics").await;
    let labels = r#"dataset_id="flow",env="default",operation_type="publish",pipeline="hydrology",sovereignty_event="false",task="load""#;
    for name in [
        "kfm_idempotent_replays",
        "kfm_lock_acquire_failures",
        "kfm_idem_cache_hits",
        "kfm_idem_cache_misses",
    ] {
        assert!(text.contains(&format!("{name}_total{{{labels}}} 1")), "{name} in {text}");
    }
    // Meters without a count are listed with 0.
    for name in ["kfm_retry_events", "kfm_lineage_rewrite_ops"] {
        assert!(text.contains(&format!("{name}_total{{{labels}}} 0")), "{name} in {text}");
    }
    // Effects that are no operation are counted without labels, under other names.
    client.post("/v1/effects/other/claim", json!({ "attempt": attempt(2) })).await;
    let done = json!({ "attempt": attempt(2), "report": "succeeded" });
    client.post("/v1/effects/other/settle", done).await;
    client.post("/v1/effects/other/claim", json!({})).await;
    let text = client.text("/metrics").await;
    let replays = text.lines().find_map(|line| line.strip_prefix("hapax_replays_total "));
    assert_eq!(replays, Some("2"), "{text}");
    let operations: Vec<_> = text.lines().filter(|line| line.starts_with("kfm_")).collect();
    assert!(operations.iter().all(|line| line.contains(labels)), "{operations:?}");
}

/// Proves S-6: a declaration that could not be read back is refused, and blocks no operation.
#[tokio::test]
async fn a_declaration_that_cannot_be_kept_is_refused() {
    let client = Client::dev();
    let slo = json!({ "window_ms": 973_325_200_910_911_104_u64, "objective_ppm": 1 });
    let retries = json!({ "quick": 1, "again": 1, "base_ms": 1, "cap_ms": u64::MAX });
    for wrong in [json!({ "slo": slo }), json!({ "retries": retries })] {
        let (status, problem) = client.post("/v1/datasets/flow", wrong).await;
        assert_eq!(status, 400, "{problem}");
        assert_eq!(client.get("/v1/datasets/flow").await.0, 404);
        let (status, granted) = client.post("/v1/operations", operation("flow", "v1")).await;
        assert!(status == 200 || granted["code"] == "HX0201", "{granted}");
    }
}
