//! Extraction over HTTP.

#[path = "../../../hapax-extract/tests/standin/mod.rs"]
#[expect(dead_code, reason = "it plays more than is played here")]
mod standin;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hapax_extract::openai::OpenAi;
use hapax_extract::{
    Answered, Builtin, ChunkRequest, Extract, Extractor, Mention, Ontology, Property, Statement,
};
use hapax_server::server::Systems;
use standin::{Play, StandIn};

use super::*;

const IRI: &str = "https://example.org/rivers";

fn rivers() -> Value {
    let iri = |name: &str| format!("{IRI}#{name}");
    json!({
        "id": IRI,
        "classes": [{ "id": iri("River"), "label": "river" }, { "id": iri("City"), "label": "city" }],
        "properties": [{ "id": iri("flowsThrough"), "label": "flows through",
            "domain": [iri("River")], "range": [iri("City")] }],
        "individuals": [
            { "id": iri("Danube"), "label": "Danube", "type": [iri("River")] },
            { "id": iri("Vienna"), "label": "Vienna", "type": [iri("City")] },
        ],
    })
}

const TURTLE: &str = "
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix e: <https://example.org/lakes#> .
<https://example.org/lakes> a owl:Ontology ; rdfs:label \"Lakes\" .
e:Lake a owl:Class ; rdfs:label \"lake\" .
e:Como a e:Lake ; rdfs:label \"Como\" .
";

async fn kept() -> Client {
    keeping(Client::dev()).await
}

async fn keeping(client: Client) -> Client {
    let (status, kept) = client.post("/api/v1/ontologies", rivers()).await;
    assert_eq!((status, &kept["oldVersion"]), (200, &Value::Null), "{kept}");
    client
}

/// A server whose texts this extractor reads, and a client of it.
fn read_by(hapax: Hapax, extractor: Arc<dyn Extractor>) -> Client {
    let systems = Systems { extractor, ..Systems::default() };
    let server = Server::with(hapax.clone(), Access::Everybody, ServerSettings::default(), systems);
    Client { app: server.router(), hapax, headers: vec![("host", "localhost".to_owned())] }
}

/// The events of a stream, by name.
fn events(body: &str) -> Vec<(String, Value)> {
    let lines = |prefix: &'static str| body.lines().filter_map(move |l| l.strip_prefix(prefix));
    let data = lines("data: ").map(|data| serde_json::from_str(data).expect("JSON"));
    lines("event: ").map(str::to_owned).zip(data).collect()
}

fn text() -> Value {
    json!({ "text": "The Danube flows through Vienna.", "ontologyId": IRI })
}

/// Proves X-3 and X-4: the fields of an answer, and that another request id finds the same result.
#[tokio::test]
async fn a_text_is_read_once() {
    let client = kept().await;
    let (status, first) = client.post("/api/v1/extract", text()).await;
    assert_eq!((status, &first["cacheHit"]), (200, &json!(false)), "{first}");
    assert_eq!(first["entities"].as_array().map(Vec::len), Some(2));
    assert_eq!(first["relations"][0]["predicate"], format!("{IRI}#flowsThrough"));
    assert!(first["computedAt"].as_str().is_some_and(|at| at.ends_with('Z')));
    let mut again = text();
    again["requestId"] = json!("r-2");
    let (_, second) = client.post("/api/v1/extract", again).await;
    assert_eq!(second["cacheHit"], json!(true));
    for same in ["idempotencyKey", "computedAt", "entities", "relations"] {
        assert_eq!(second[same], first[same]);
    }
    let query = "text=The%20Danube%20flows%20through%20Vienna.&ontologyId=https%3A%2F%2Fexample.org%2Frivers";
    let (status, why) = client.get(&format!("/api/v1/debug/idempotency-key?{query}")).await;
    assert_eq!((status, &why["key"], &why["found"]), (200, &first["idempotencyKey"], &json!(true)));
    assert_eq!(why["components"]["ontologyVersion"], first["ontologyVersion"]);
    assert_eq!(why["components"]["text"], "The Danube flows through Vienna.");
    let (_, other) = client
        .get(&format!(
            "/api/v1/debug/idempotency-key?{query}&extractionParams=%7B%22seed%22%3A7%7D"
        ))
        .await;
    assert_eq!(
        (&other["found"], &other["nearest"]["differs"]),
        (&json!(false), &json!(["extractionParams"]))
    );
}

/// Proves X-1: the key follows the public formula, so a client can compute it by itself.
#[tokio::test]
async fn the_key_is_the_clients_own() {
    use hapax::json::Json;
    use hapax::key::extraction::Extraction;

    let client = kept().await;
    let mut request = text();
    request["extractionParams"] = json!({ "llmModel": "claude-3-5-sonnet", "temperature": 0, "maxTokens": 4096, "concurrency": 4 });
    let (_, answer) = client.post("/api/v1/extract", request.clone()).await;
    let params = Json::parse(request["extractionParams"].to_string().as_bytes()).unwrap();
    let own = Extraction {
        text: "The Danube flows through Vienna.",
        ontology_id: IRI,
        ontology_version: answer["ontologyVersion"].as_str().unwrap_or_default(),
        params: &params,
    };
    assert_eq!(answer["idempotencyKey"], own.derive().unwrap().short());
}

/// Proves X-13: a problem names the mistake, its place and the next step.
#[tokio::test]
async fn the_problem_of_a_bad_request_names_the_mistake() {
    let client = kept().await;
    let (status, unknown) =
        client.post("/api/v1/extract", json!({ "text": "x", "ontologyId": "nope" })).await;
    assert_eq!((status, &unknown["code"]), (404, &json!("HX0601")), "{unknown}");
    for (params, says) in [
        (json!({ "temperature": "hot" }), "/extractionParams/temperature"),
        (json!({ "temp": 1, "temperature": 1 }), "/extractionParams/temp"),
        (json!({ "maxTokens": 0 }), "/extractionParams/maxTokens"),
    ] {
        let mut request = text();
        request["extractionParams"] = params;
        let (status, refused) = client.post("/api/v1/extract", request).await;
        assert_eq!((status, &refused["code"]), (400, &json!("HX0602")), "{refused}");
        assert!(refused["detail"].as_str().is_some_and(|text| text.contains(says)), "{refused}");
    }
    let mut request = text();
    request["text"] = json!(" \n ");
    let (status, refused) = client.post("/api/v1/extract", request).await;
    assert_eq!((status, &refused["code"]), (400, &json!("HX0602")));
    let twice = r#"{"text":"x","ontologyId":"o","extractionParams":{"seed":1,"seed":2}}"#;
    let (status, refused) =
        read(client.send(&Method::POST, "/api/v1/extract", Some(twice)).await).await;
    assert_eq!((status, &refused["code"]), (400, &json!("HX0602")), "{refused}");
    let (status, refused) = client
        .post("/api/v1/ontologies", json!({ "id": "o", "classes": [{ "label": "x" }] }))
        .await;
    assert_eq!((status, &refused["code"]), (400, &json!("HX0602")));
    assert!(
        refused["detail"].as_str().is_some_and(|text| text.contains("/classes/0")),
        "{refused}"
    );
}

/// Proves X-1 and X-13: any other parameter is a part of the key. A name that is probably misspelt
/// gets a warning, and is no refusal.
#[tokio::test]
async fn an_extra_parameter_is_a_part_of_the_key() {
    use hapax::json::Json;
    use hapax::key::extraction::Extraction;

    let client = kept().await;
    let (_, plain) = client.post("/api/v1/extract", text()).await;
    assert_eq!(plain.get("warnings"), None);
    let asking = |params: &Value| {
        let mut request = text();
        request["extractionParams"] = params.clone();
        client.post("/api/v1/extract", request)
    };
    let params =
        json!({ "promptVersion": 2, "stop": ["a", { "b": null }], "nested": { "c": true } });
    let (status, first) = asking(&params).await;
    assert_eq!((status, &first["cacheHit"]), (200, &json!(false)), "{first}");
    assert_eq!((first.get("warnings"), &first["metadata"]["reused"]), (None, &json!(0)));
    let given = Json::parse(params.to_string().as_bytes()).unwrap();
    let own = Extraction {
        text: "The Danube flows through Vienna.",
        ontology_id: IRI,
        ontology_version: first["ontologyVersion"].as_str().unwrap_or_default(),
        params: &given,
    };
    assert_eq!(first["idempotencyKey"], own.derive().unwrap().short());
    assert_eq!(asking(&params).await.1["cacheHit"], json!(true));
    let (_, other) = asking(&json!({ "promptVersion": 3 })).await;
    assert_eq!(other["cacheHit"], json!(false));
    assert_ne!(other["idempotencyKey"], first["idempotencyKey"]);
    for hit in [false, true] {
        let (status, misspelt) = asking(&json!({ "max_tokens": 5, "language": "en" })).await;
        assert_eq!((status, &misspelt["cacheHit"]), (200, &json!(hit)), "{misspelt}");
        let warnings = misspelt["warnings"].as_array().expect("warnings");
        let warning = warnings[0].as_str().unwrap_or_default();
        assert_eq!(warnings.len(), 1);
        assert!(warning.starts_with("/extractionParams/max_tokens: "), "{warning}");
        assert!(warning.contains("did you mean maxTokens"), "{warning}");
    }
}

/// Proves X-3 and X-10: the metadata of a result has the time, the model and the temperature of its
/// making, also where the result comes from the cache.
#[tokio::test]
async fn the_metadata_of_a_result_is_that_of_its_making() {
    let client = kept().await;
    let asking = |request_id: &str| {
        let mut request = text();
        request["extractionParams"] = json!({ "model": "m-7", "temp": 0.25 });
        request["requestId"] = json!(request_id);
        client.post("/api/v1/extract", request)
    };
    let (_, first) = asking("r-1").await;
    let metadata = &first["metadata"];
    assert_eq!((&metadata["model"], &metadata["temperature"]), (&json!("m-7"), &json!(0.25)));
    assert_eq!(metadata["computedAt"], first["computedAt"]);
    let (_, again) = asking("r-2").await;
    assert_eq!((&again["cacheHit"], &again["metadata"]), (&json!(true), metadata));
    let (_, plain) = client.post("/api/v1/extract", text()).await;
    let metadata = &plain["metadata"];
    assert_eq!((&metadata["model"], &metadata["temperature"]), (&Value::Null, &json!(0)));
}

/// Proves X-11: a request without a key is counted once, wherever its key is asked for.
#[tokio::test]
async fn requests_without_a_key_are_counted() {
    let client = kept().await;
    let counted = async || {
        let metrics = client.text("/metrics").await;
        let name = "hapax_extraction_key_errors_total ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|count| count.parse::<u64>().ok()).expect("a count")
    };
    let bad = |params: &str| {
        format!(r#"{{"text":"The Danube.","ontologyId":"{IRI}","extractionParams":{params}}}"#)
    };
    let streaming = client.clone().with("accept", "text/event-stream");
    let bodies = [bad(r#"{"seed":1,"seed":2}"#), bad(r#"{"topK":1e400}"#), bad(r#"{"seed":"x"}"#)];
    let mut expected = 0;
    for body in &bodies {
        for client in [&client, &streaming] {
            let response = client.send(&Method::POST, "/api/v1/extract", Some(body)).await;
            let (status, refused) = read(response).await;
            assert_eq!((status, &refused["code"]), (400, &json!("HX0602")), "{refused}");
            expected += 1;
            assert_eq!(counted().await, expected, "{body}");
        }
    }
    client.post("/api/v1/extract", text()).await;
    assert_eq!(counted().await, expected);
}

/// Proves X-1: of two requests that collide in the formula, each is told its own key, with and
/// without progress.
#[tokio::test]
async fn a_colliding_request_is_told_the_key_that_its_result_is_under() {
    let client = kept().await;
    let streaming = client.clone().with("accept", "text/event-stream");
    let key = async |client: &Client, model: &str| {
        let mut request = text();
        request["extractionParams"] = json!({ "llmModel": model });
        let request = request.to_string();
        let response = client.send(&Method::POST, "/api/v1/extract", Some(&request)).await;
        let key = response.headers()["x-idempotency-key"].to_str().unwrap().to_owned();
        response.into_body().collect().await.expect("a body");
        key
    };
    let (one, two) = ("m-4f5644535ddaa37d", "m-72e302aa6115329c");
    let first = key(&client, one).await;
    let second = key(&streaming, two).await;
    assert_ne!(first, second, "they collide");
    assert_eq!(key(&client, two).await, second);
    assert_eq!(key(&streaming, two).await, second);
    assert_eq!(key(&streaming, one).await, first);
}

/// Proves X-5 and X-9: an answer whose entities were all discarded says so, and is not cached.
#[tokio::test]
async fn an_answer_whose_entities_were_all_discarded_is_not_cached() {
    let entity = |class: &str, quote: &str| json!({ "class": format!("{IRI}#{class}"), "name": quote, "quote": quote, "occurrence": 1 });
    let answer =
        |entities: [Value; 2]| Play::Completes(json!({ "entities": entities }).to_string());
    let wrong = || answer([entity("Lake", "Danube"), entity("City", "Prague")]);
    let right = answer([entity("River", "Danube"), entity("City", "Vienna")]);
    let relations = Play::Completes(json!({ "relations": [] }).to_string());
    let standin = StandIn::playing([wrong(), wrong(), right, relations]).await;
    let settings = hapax_extract::openai::Settings::new(standin.base(), "m-1");
    let extractor = Arc::new(OpenAi::new(settings).expect("good settings"));
    let client = keeping(read_by(Hapax::builder().in_memory(), extractor)).await;
    let (status, empty) = client.post("/api/v1/extract", text()).await;
    assert_eq!((status, &empty["cacheHit"]), (200, &json!(false)), "{empty}");
    assert_eq!((&empty["entities"], &empty["relations"]), (&json!([]), &json!([])));
    let says = empty["warnings"][0].as_str().unwrap_or_default();
    assert!(says.contains("2 entities") && says.contains("not cached"), "{empty}");
    let metadata = &empty["metadata"];
    assert_eq!((&metadata["discarded"], &metadata["calls"]), (&json!(2), &json!(2)));
    let (_, stats) = client.get("/api/v1/cache").await;
    assert_eq!((&stats["totalCachedResults"], &stats["cachedChunks"]), (&json!(0), &json!(0)));
    let (_, full) = client.post("/api/v1/extract", text()).await;
    assert_eq!((&full["cacheHit"], full.get("warnings")), (&json!(false), None), "{full}");
    assert_eq!(full["entities"].as_array().map(Vec::len), Some(2));
    let (_, again) = client.post("/api/v1/extract", text()).await;
    assert_eq!((&again["cacheHit"], standin.calls()), (&json!(true), 4));
}

/// Proves X-7: an ontology is read in several formats, shown, changed, and removed with its results.
#[tokio::test]
async fn an_ontology_is_kept_shown_and_removed() {
    let client = kept().await;
    let turtle = client.clone().with("content-type", "text/turtle");
    let request = Request::post("/api/v1/ontologies?version=1.2.3")
        .header("host", "localhost")
        .header("content-type", "text/turtle")
        .body(Body::from(TURTLE))
        .unwrap();
    let (status, lakes) = read(turtle.app.clone().call(request).await.unwrap()).await;
    assert_eq!(
        (status, &lakes["ontologyId"]),
        (200, &json!("https://example.org/lakes")),
        "{lakes}"
    );
    let (_, all) = client.get("/api/v1/ontologies").await;
    assert_eq!(all["ontologies"].as_array().map(Vec::len), Some(2));
    let (_, shown) = client.get("/api/v1/ontologies/https%3A%2F%2Fexample.org%2Flakes").await;
    assert_eq!(shown["metadata"]["declaredVersion"], "1.2.3");
    assert_eq!(shown["content"]["individuals"][0]["label"], "Como");
    client.post("/api/v1/extract", text()).await;
    let (_, stats) = client.get("/api/v1/cache").await;
    assert_eq!((&stats["totalCachedResults"], &stats["cachedChunks"]), (&json!(1), &json!(1)));
    let mut changed = rivers();
    changed["classes"][0]["synonyms"] = json!(["stream"]);
    let (_, change) = client.post("/api/v1/ontologies", changed).await;
    assert_eq!(change["entriesInvalidated"], json!(2));
    let (_, anew) = client.post("/api/v1/extract", text()).await;
    assert_eq!(
        (&anew["cacheHit"], &anew["ontologyVersion"]),
        (&json!(false), &change["newVersion"])
    );
    let (status, gone) =
        client.delete("/api/v1/ontologies/https%3A%2F%2Fexample.org%2Frivers").await;
    assert_eq!((status, &gone["newVersion"]), (200, &Value::Null), "{gone}");
    let (status, _) = client.delete("/api/v1/ontologies/https%3A%2F%2Fexample.org%2Frivers").await;
    assert_eq!(status, 404);
    let (status, _) = client.post("/api/v1/extract", text()).await;
    assert_eq!(status, 404);
}

/// Proves X-7 and X-11: results are counted, and an operator can remove them.
#[tokio::test]
async fn results_are_counted_and_removed() {
    let client = kept().await;
    let response = client.send(&Method::POST, "/api/v1/extract", Some(&text().to_string())).await;
    let key = response.headers()["x-idempotency-key"].to_str().unwrap().to_owned();
    client.post("/api/v1/extract", text()).await;
    let (_, stats) = client.get("/api/v1/cache").await;
    assert_eq!(
        (&stats["hits"], &stats["executed"], &stats["cacheHitRate"]),
        (&json!(1), &json!(1), &json!(0.5))
    );
    let metrics = client.text("/metrics").await;
    for says in [
        "hapax_extraction_requests_total{outcome=\"hit\"} 1",
        "hapax_extraction_requests_total{outcome=\"executed\"} 1",
        "hapax_extraction_cache_lookup_seconds_count 1",
        "hapax_extraction_cache_store_seconds_count 1",
        "hapax_extraction_dedup_wait_seconds_count 0",
        "hapax_extraction_cached_results 1",
        "hapax_extraction_evictions_total 0",
        "hapax_extraction_invalidations_total 0",
        "hapax_extraction_key_errors_total 0",
        "hapax_extraction_lookup_errors_total 0",
    ] {
        assert!(metrics.contains(says), "{says} is not in\n{metrics}");
    }
    let (status, _) = client.delete(&format!("/api/v1/cache/{key}")).await;
    assert_eq!(status, 200);
    assert_eq!(client.delete(&format!("/api/v1/cache/{key}")).await.0, 404);
    let (_, anew) = client.post("/api/v1/extract", text()).await;
    assert_eq!(anew["cacheHit"], json!(false));
    let (_, removed) = client.delete("/api/v1/cache?ontologyId=other").await;
    assert_eq!(removed["removed"], json!(0));
    let (_, removed) = client.delete("/api/v1/cache").await;
    assert_eq!(removed["removed"], json!(2));
}

/// Proves X-12: a client that accepts events gets the progress, and the result as the last event.
#[tokio::test]
async fn progress_is_streamed() {
    let client = kept().await;
    let long: String = (0..200).map(|n| format!("In year {n} the Danube rose.\n")).collect();
    let request =
        json!({ "text": long, "ontologyId": IRI, "extractionParams": { "chunkSize": 400 } });
    let streaming = client.clone().with("accept", "text/event-stream");
    let response =
        streaming.send(&Method::POST, "/api/v1/extract", Some(&request.to_string())).await;
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    let body = String::from_utf8_lossy(&body).into_owned();
    let events: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    let chunks = events.iter().filter(|event| **event == "chunk").count();
    assert!(chunks > 5, "{events:?}");
    assert_eq!(
        (events[0], events[events.len() - 2], events[events.len() - 1]),
        ("chunks", "merging", "result")
    );
    let last = body.lines().rfind(|line| line.starts_with("data: ")).unwrap();
    let result: Value = serde_json::from_str(&last["data: ".len()..]).unwrap();
    assert_eq!(result["entities"][0]["name"], "Danube");
    assert_eq!(result["metadata"]["chunks"], json!(chunks));
    assert_eq!(
        result["idempotencyKey"],
        serde_json::from_str::<Value>(
            &body.lines().find(|line| line.starts_with("data: ")).unwrap()["data: ".len()..],
        )
        .unwrap()["idempotencyKey"],
        "every event has it"
    );
    let unknown = json!({ "text": "x", "ontologyId": "nope" }).to_string();
    let response = streaming.send(&Method::POST, "/api/v1/extract", Some(&unknown)).await;
    let (status, unknown) = read(response).await;
    assert_eq!((status, &unknown["code"]), (404, &json!("HX0601")));
}

/// Namespaces do not see each other's ontologies or results.
#[tokio::test]
async fn namespaces_are_apart() {
    let server = Client::guarded(ServerSettings::default());
    let ours = server.showing(Role::Operator, Some("ours")).await;
    let theirs = server.showing(Role::Operator, Some("theirs")).await;
    assert_eq!(ours.post("/api/v1/ontologies", rivers()).await.0, 200);
    assert_eq!(ours.post("/api/v1/extract", text()).await.0, 200);
    assert_eq!(theirs.post("/api/v1/extract", text()).await.0, 404);
    assert_eq!(theirs.post("/api/v1/ontologies", rivers()).await.0, 200);
    let (_, read) = theirs.post("/api/v1/extract", text()).await;
    assert_eq!(read["cacheHit"], json!(false));
    let (_, stats) = theirs.get("/api/v1/cache").await;
    assert_eq!(stats["totalCachedResults"], json!(1));
    let viewer = server.showing(Role::Viewer, Some("ours")).await;
    assert_eq!(viewer.post("/api/v1/extract", text()).await.0, 403);
    assert_eq!(viewer.delete("/api/v1/cache").await.0, 403);
    assert_eq!(viewer.get("/api/v1/cache").await.0, 200);
}

/// The refusal of an endpoint.
fn refusal(status: u16, headers: Vec<(&'static str, String)>, says: &str) -> Play {
    Play::Answers(status, headers, json!({ "error": { "message": says } }).to_string())
}

/// Proves X-9 and X-13: the problem of a failed endpoint has its message, the key, and the delay
/// where a retry may help.
#[tokio::test]
async fn the_problem_of_a_failed_endpoint_has_the_key_and_the_time_to_ask_again() {
    let busy = || refusal(429, vec![("retry-after", "120".to_owned())], "slow down");
    let standin = StandIn::playing([busy(), refusal(401, vec![], "who are you"), busy()]).await;
    let settings = hapax_extract::openai::Settings::new(standin.base(), "m-1");
    let extractor = Arc::new(OpenAi::new(settings).expect("good settings"));
    let client = keeping(read_by(Hapax::builder().in_memory(), extractor)).await;
    let ask = async |client: &Client| {
        client.send(&Method::POST, "/api/v1/extract", Some(&text().to_string())).await
    };

    let response = ask(&client).await;
    assert_eq!(response.headers()["retry-after"], "120");
    let key = response.headers()["x-idempotency-key"].to_str().unwrap().to_owned();
    let (status, later) = read(response).await;
    assert_eq!((status, &later["code"]), (502, &json!("HX0603")), "{later}");
    assert_eq!(later["retryable"], json!(true));
    assert!(later["detail"].as_str().is_some_and(|text| text.contains("slow down")), "{later}");

    let response = ask(&client).await;
    assert!(response.headers().get("retry-after").is_none());
    assert_eq!(response.headers()["x-idempotency-key"], key);
    let (status, never) = read(response).await;
    assert_eq!((status, &never["code"]), (502, &json!("HX0605")), "{never}");
    assert_eq!(never["retryable"], json!(false));
    assert!(never["detail"].as_str().is_some_and(|text| text.contains("who are you")), "{never}");

    let response = ask(&client.clone().with("accept", "text/event-stream")).await;
    assert_eq!(response.headers()["x-idempotency-key"], key);
    assert_eq!(response.status(), StatusCode::OK);
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    let events = events(&String::from_utf8_lossy(&body));
    let short = format!("sha256-{}", &key["sha256:".len()..][..16]);
    assert!(events.iter().all(|(_, data)| data["idempotencyKey"] == short), "{events:?}");
    let (name, problem) = events.last().expect("an end");
    assert_eq!((name.as_str(), &problem["retryAfter"]), ("problem", &json!(120)));
    for same in ["type", "code", "status", "title", "detail", "retryable", "next_action"] {
        assert_eq!(problem[same], later[same]);
    }
    assert_eq!(standin.calls(), 3);
}

/// Changes the ontology at each call.
struct Meddler {
    ontologies: Extract,
    calls: AtomicUsize,
}

impl Extractor for Meddler {
    fn identity(&self) -> String {
        "meddler.1".into()
    }

    fn entities<'a>(&'a self, _: ChunkRequest<'a>) -> hapax_extract::Answer<'a, Vec<Mention>> {
        Box::pin(async {
            let nth = self.calls.fetch_add(1, Ordering::SeqCst);
            let mut changed = rivers();
            changed["classes"][0]["label"] = json!(format!("stream {nth}"));
            let changed = Ontology::parse_json(changed.to_string().as_bytes()).expect("one");
            self.ontologies.put_ontology(&changed, None, "ada").await.expect("it is kept");
            Ok(Answered::default())
        })
    }

    fn relations<'a>(
        &'a self,
        _: ChunkRequest<'a>,
        _: &'a [Mention],
        _: &'a [&'a Property],
    ) -> hapax_extract::Answer<'a, Vec<Statement>> {
        Box::pin(async { Ok(Answered::default()) })
    }
}

/// Proves X-7 and X-13: an ontology that changes during each try is a conflict, which a retry may end.
#[tokio::test]
async fn an_ontology_that_keeps_changing_is_a_conflict() {
    let hapax = Hapax::builder().in_memory();
    let settings = hapax_extract::Settings::default();
    let ontologies = Extract::new(hapax.clone(), Arc::new(Builtin::default()), settings);
    let meddler = Arc::new(Meddler { ontologies, calls: AtomicUsize::new(0) });
    let client = keeping(read_by(hapax, meddler.clone())).await;
    let response = client.send(&Method::POST, "/api/v1/extract", Some(&text().to_string())).await;
    assert_eq!(response.headers()["retry-after"], "1");
    assert!(response.headers().contains_key("x-idempotency-key"));
    let (status, problem) = read(response).await;
    assert_eq!((status, &problem["code"]), (409, &json!("HX0604")), "{problem}");
    assert_eq!(problem["retryable"], json!(true));
    assert_eq!(meddler.calls.load(Ordering::SeqCst), 8);
}
