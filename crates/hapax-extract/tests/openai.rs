//! Tests of the extractor with an endpoint that answers well, badly, late, too much or not at all.
//! Tests with calls compare the extractor's count of calls with the endpoint's.

mod standin;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hapax::Hapax;
use hapax_extract::openai::{ApiKey, OpenAi, Prices, Settings};
use hapax_extract::{
    ChunkRequest, Class, Extract, ExtractionRequest, Extractor, ExtractorError, Individual,
    Mention, Ontology, Params, Property, Statement,
};
use serde_json::{Value, json};
use standin::{Play, StandIn};
use tokio::sync::Barrier;

const TEXT: &str = "Cristiano Ronaldo plays for Al-Nassr. Ronaldo was born in Funchal.";
const PLAYER: &str = "http://example.org/Player";
const CLUB: &str = "http://example.org/Club";
const PLAYS_FOR: &str = "http://example.org/playsFor";
const KEY: &str = "sk-very-secret-0123456789";
const PRICES: Prices =
    Prices { input_micros_per_million: 150_000, output_micros_per_million: 600_000 };

fn ontology() -> Ontology {
    let class = |id: &str, label: &str| Class {
        id: id.into(),
        label: Some(label.into()),
        ..Class::default()
    };
    Ontology {
        id: "http://example.org/sports".into(),
        classes: vec![class(PLAYER, "Player"), class(CLUB, "Club")],
        properties: vec![Property {
            id: PLAYS_FOR.into(),
            label: Some("plays for".into()),
            domain: vec![PLAYER.into()],
            range: vec![CLUB.into()],
            ..Property::default()
        }],
        individuals: vec![Individual {
            id: "http://example.org/alNassr".into(),
            label: Some("Al-Nassr FC".into()),
            synonyms: vec!["Al-Nassr".into()],
            types: vec![CLUB.into()],
        }],
        ..Ontology::default()
    }
}

fn settings(standin: &StandIn) -> Settings {
    Settings::new(standin.base(), "m-1")
}

fn extractor(standin: &StandIn) -> OpenAi {
    OpenAi::new(settings(standin)).expect("good settings")
}

fn entity(class: &str, name: &str, quote: &str, occurrence: u32) -> Value {
    json!({ "class": class, "name": name, "quote": quote, "occurrence": occurrence })
}

fn good() -> String {
    let entities = [
        entity(CLUB, "Al-Nassr", "Al-Nassr", 1),
        entity(PLAYER, "Cristiano Ronaldo", "Cristiano Ronaldo", 1),
        entity(PLAYER, "Cristiano Ronaldo", "Ronaldo", 2),
    ];
    json!({ "entities": entities }).to_string()
}

fn mentions() -> Vec<Mention> {
    let mention = |class: &str, individual: Option<&str>, name: &str, start, end| Mention {
        class: class.into(),
        individual: individual.map(Into::into),
        name: name.into(),
        start,
        end,
    };
    vec![
        mention(PLAYER, None, "Cristiano Ronaldo", 0, 17),
        mention(CLUB, Some("http://example.org/alNassr"), "Al-Nassr FC", 28, 36),
        mention(PLAYER, None, "Cristiano Ronaldo", 38, 45),
    ]
}

/// Requests the entities of the text.
async fn ask(extractor: &OpenAi) -> Result<hapax_extract::Answered<Vec<Mention>>, ExtractorError> {
    ask_with(extractor, &Params::default()).await
}

async fn ask_with(
    extractor: &OpenAi,
    params: &Params,
) -> Result<hapax_extract::Answered<Vec<Mention>>, ExtractorError> {
    let ontology = ontology();
    let request =
        ChunkRequest { chunk: TEXT, context: "On football.", ontology: &ontology, params };
    extractor.entities(request).await
}

/// Compares both counts.
fn counted(extractor: &OpenAi, standin: &StandIn, calls: u64, failed: u64) {
    let spent = extractor.spent();
    assert_eq!((standin.calls(), spent.calls, spent.failed_calls), (calls, calls, failed));
    let completed = calls - failed;
    assert_eq!((spent.tokens_in, spent.tokens_out), (completed * 100, completed * 10));
}

fn never(error: ExtractorError) -> String {
    match error {
        ExtractorError::Never(reason) => reason,
        ExtractorError::Later { reason, .. } => panic!("may work later: {reason}"),
    }
}

fn later(error: ExtractorError) -> (String, Option<Duration>) {
    match error {
        ExtractorError::Later { reason, after } => (reason, after),
        ExtractorError::Never(reason) => panic!("will not work: {reason}"),
    }
}

/// Proves X-9.
#[tokio::test]
async fn a_good_answer_is_mapped_to_its_places_in_the_chunk() {
    let standin = StandIn::playing([Play::Completes(good())]).await;
    let mut settings = settings(&standin);
    settings.prices = Some(PRICES);
    let extractor = OpenAi::new(settings).unwrap();
    let params = Params { seed: Some(7), temperature: 0.5, ..Params::default() };
    let answer = ask_with(&extractor, &params).await.unwrap();
    assert_eq!(answer.found, mentions());
    assert_eq!((answer.calls, answer.tokens_in, answer.tokens_out), (1, 100, 10));
    assert_eq!(extractor.spent().cost_micros, Some(21));
    counted(&extractor, &standin, 1, 0);

    standin.request(0, |request| {
        assert_eq!(request.path, "/v1/chat/completions");
        assert!(request.headers.get("accept-encoding").is_none());
        assert!(request.headers.get("authorization").is_none());
        let body = &request.body;
        assert_eq!((&body["model"], &body["temperature"]), (&json!("m-1"), &json!(0.5)));
        assert_eq!((&body["seed"], &body["max_tokens"]), (&json!(7), &json!(4096)));
        assert_eq!(body["response_format"]["type"], "json_schema");
        let question = body["messages"].to_string();
        for shown in [PLAYER, CLUB, TEXT, "On football.", "Al-Nassr FC"] {
            assert!(question.contains(shown), "{shown}");
        }
    });
}

/// Proves X-9.
#[tokio::test]
async fn relations_are_stated_between_mentions_by_the_properties_that_were_asked_for() {
    let quote = "Cristiano Ronaldo plays for Al-Nassr";
    let one = json!({ "subject": 0, "property": PLAYS_FOR, "object": 1, "quote": quote });
    let answer = json!({ "relations": [one] }).to_string();
    let standin = StandIn::playing([Play::Completes(answer)]).await;
    let extractor = extractor(&standin);
    let (ontology, params, mentions) = (ontology(), Params::default(), mentions());
    let request = ChunkRequest { chunk: TEXT, context: "", ontology: &ontology, params: &params };
    let properties = [&ontology.properties[0]];
    let answer = extractor.relations(request, &mentions, &properties).await.unwrap();
    let expected =
        Statement { subject: 0, property: PLAYS_FOR.into(), object: 1, start: 0, end: quote.len() };
    assert_eq!(answer.found, [expected]);
    counted(&extractor, &standin, 1, 0);
}

#[tokio::test]
async fn no_request_is_sent_where_there_is_nothing_to_find() {
    let standin = StandIn::playing([]).await;
    let extractor = extractor(&standin);
    let (empty, params) = (Ontology::default(), Params::default());
    let request = ChunkRequest { chunk: TEXT, context: "", ontology: &empty, params: &params };
    assert_eq!(extractor.entities(request).await, Ok(hapax_extract::Answered::default()));
    let relations = extractor.relations(request, &mentions(), &[]).await;
    assert_eq!(relations, Ok(hapax_extract::Answered::default()));
    counted(&extractor, &standin, 0, 0);
}

/// Proves X-9.
#[tokio::test]
async fn a_broken_answer_is_sent_back_once_and_mended() {
    let broken = "Here you are: {\"entities\": [{\"class\": ";
    let plays =
        [Play::Completes(broken.into()), Play::Completes(format!("```json\n{}\n```", good()))];
    let standin = StandIn::playing(plays).await;
    let extractor = extractor(&standin);
    let answer = ask(&extractor).await.unwrap();
    assert_eq!(answer.found, mentions());
    assert_eq!((answer.calls, answer.tokens_in, answer.tokens_out), (2, 200, 20));
    counted(&extractor, &standin, 2, 0);
    let messages = &standin.bodies()[1]["messages"];
    assert_eq!(messages[2], json!({ "role": "assistant", "content": broken }));
    let complaint = messages[3]["content"].as_str().unwrap();
    assert!(complaint.contains("the answer is not"), "{complaint}");
    assert_eq!(extractor.spent().repairs, 1);
}

/// Proves X-9.
#[tokio::test]
async fn an_answer_that_is_broken_twice_is_an_error_that_says_how() {
    let secret_of_the_text = "x".repeat(5_000);
    for (second, why) in [
        (Play::Completes("still not".into()), "the answer is not a JSON object"),
        (Play::Completes("  ".into()), "the answer is empty"),
        (Play::Completes(format!("{{\"{secret_of_the_text}\": 1}}")), "missing field `entities`"),
        (Play::Completes("{\"entities\": [1]}".into()), "the answer has another shape"),
        (Play::CutOff(good()), "cut off after 4096 tokens"),
    ] {
        let standin = StandIn::playing([Play::Completes("no".into()), second]).await;
        let extractor = extractor(&standin);
        let reason = never(ask(&extractor).await.unwrap_err());
        assert!(reason.contains(why), "{reason}");
        assert!(reason.chars().count() < 400, "{reason}");
        counted(&extractor, &standin, 2, 0);
    }
}

/// Proves X-9.
#[tokio::test]
async fn mentions_outside_the_text_or_the_ontology_are_refused_and_the_rest_is_kept() {
    let fine = entity(CLUB, "Al-Nassr", "Al-Nassr", 1);
    let wrong = [
        (entity("http://example.org/Dog", "Funchal", "Funchal", 1), "Dog\\\" is not in the list"),
        (entity(PLAYER, "Messi", "Messi", 1), "Messi\\\" is not in the chunk"),
        (entity(PLAYER, "Ronaldo", "Ronaldo", 3), "it is there 2 times"),
        (entity(PLAYER, "Ronaldo", "Ronaldo", 0), "it is there 2 times"),
    ];
    for (item, complaint) in wrong {
        let answer = json!({ "entities": [item, fine] }).to_string();
        let standin =
            StandIn::playing([Play::Completes(answer.clone()), Play::Completes(answer)]).await;
        let extractor = extractor(&standin);
        let answer = ask(&extractor).await.unwrap();
        assert_eq!(answer.found, [mentions()[1].clone()]);
        assert_eq!(answer.discarded, 1);
        let sent_back = standin.bodies()[1]["messages"][3].to_string();
        assert!(sent_back.contains(complaint), "{sent_back}");
        assert_eq!((extractor.spent().repairs, extractor.spent().left_out), (1, 1));
        counted(&extractor, &standin, 2, 0);
    }
}

/// Proves X-9.
#[tokio::test]
async fn a_second_answer_that_is_worse_does_not_lose_the_first() {
    let wrong = entity(PLAYER, "Messi", "Messi", 1);
    let first = json!({ "entities": [wrong, entity(CLUB, "Al-Nassr", "Al-Nassr", 1)] });
    for second in ["I cannot.", "{\"entities\": []}"] {
        let plays = [Play::Completes(first.to_string()), Play::Completes(second.into())];
        let standin = StandIn::playing(plays).await;
        let extractor = extractor(&standin);
        assert_eq!(ask(&extractor).await.unwrap().found, [mentions()[1].clone()]);
        counted(&extractor, &standin, 2, 0);
    }
}

#[tokio::test]
async fn a_model_that_refuses_is_not_asked_again_and_the_callers_model_is_the_one_asked() {
    let choice = json!({ "message": { "content": null, "refusal": "not\u{7} this" } });
    let body = json!({ "choices": [choice] }).to_string();
    let standin = StandIn::playing([Play::Answers(200, vec![], body)]).await;
    let extractor = extractor(&standin);
    let params = Params { model: Some("m-2".into()), ..Params::default() };
    let reason = never(ask_with(&extractor, &params).await.unwrap_err());
    assert_eq!(reason, "the model will not answer this: not\\u{7} this");
    assert_eq!((standin.calls(), extractor.spent().calls), (1, 1));
    assert_eq!(standin.bodies()[0]["model"], "m-2");
}

/// Proves X-9.
#[tokio::test]
async fn a_call_whose_caller_left_was_still_made() {
    let standin = StandIn::playing([Play::Stalls]).await;
    let extractor = extractor(&standin);
    let given_up = tokio::time::timeout(Duration::from_millis(500), ask(&extractor)).await;
    assert!(given_up.is_err());
    counted(&extractor, &standin, 1, 1);
}

/// Proves X-9.
#[tokio::test]
async fn relations_that_cannot_be_are_refused() {
    let quote = "Cristiano Ronaldo plays for Al-Nassr";
    let item = |subject: usize, property: &str, object: usize, quote: &str| json!({ "subject": subject, "property": property, "object": object, "quote": quote });
    for (item, complaint) in [
        (item(0, "http://example.org/owns", 1, quote), "is not in the list"),
        (item(0, PLAYS_FOR, 3, quote), "there is no entity 3"),
        (item(0, PLAYS_FOR, 0, quote), "both subject and object"),
        (item(1, PLAYS_FOR, 0, quote), "cannot be the subject of"),
        (item(0, PLAYS_FOR, 2, quote), "cannot be the object of"),
        (item(0, PLAYS_FOR, 1, "signed with"), "is not in the chunk"),
    ] {
        let answer = json!({ "relations": [item] }).to_string();
        let standin =
            StandIn::playing([Play::Completes(answer.clone()), Play::Completes(answer)]).await;
        let extractor = extractor(&standin);
        let (ontology, params, mentions) = (ontology(), Params::default(), mentions());
        let request =
            ChunkRequest { chunk: TEXT, context: "", ontology: &ontology, params: &params };
        let properties = [&ontology.properties[0]];
        let answer = extractor.relations(request, &mentions, &properties).await.unwrap();
        assert_eq!(answer.found, []);
        let sent_back = standin.bodies()[1]["messages"][3].to_string();
        assert!(sent_back.contains(complaint), "{sent_back}");
        counted(&extractor, &standin, 2, 0);
    }
}

/// Proves X-9.
#[tokio::test]
async fn an_endpoint_that_fails_may_work_later_and_is_not_asked_again() {
    for status in [500, 502, 503, 529] {
        let body = json!({ "error": { "message": "out\u{1b}of\nservice" } }).to_string();
        let standin = StandIn::playing([Play::Answers(status, vec![], body)]).await;
        let extractor = extractor(&standin);
        let (reason, after) = later(ask(&extractor).await.unwrap_err());
        assert!(reason.contains(&status.to_string()), "{reason}");
        assert!(reason.contains("out\\u{1b}of\\nservice"), "{reason}");
        assert_eq!(after, None);
        counted(&extractor, &standin, 1, 1);
    }
}

/// Proves X-9.
#[tokio::test]
async fn an_endpoint_that_says_nothing_is_given_up_after_the_timeout() {
    let standin = StandIn::playing([Play::Stalls]).await;
    let mut settings = settings(&standin);
    settings.timeout = Duration::from_millis(500);
    let extractor = OpenAi::new(settings).unwrap();
    let (reason, _) = later(ask(&extractor).await.unwrap_err());
    assert_eq!(reason, "the endpoint has not answered within 500ms");
    counted(&extractor, &standin, 1, 1);
}

/// Proves X-9.
#[tokio::test]
async fn a_connection_that_goes_before_the_answer_ends_may_work_later() {
    for (play, why) in [
        (Play::Breaks, "the endpoint's answer broke off: "),
        (Play::Vanishes, "the endpoint went away before it answered: "),
    ] {
        let standin = StandIn::playing([play, Play::Completes(good())]).await;
        let extractor = extractor(&standin);
        let (reason, _) = later(ask(&extractor).await.unwrap_err());
        assert!(reason.starts_with(why), "{reason}");
        counted(&extractor, &standin, 1, 1);
        assert_eq!(ask(&extractor).await.unwrap().found, mentions());
        counted(&extractor, &standin, 2, 1);
    }
}

#[tokio::test]
async fn an_endpoint_that_is_not_there_may_be_later() {
    let port = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", port.local_addr().unwrap());
    drop(port);
    let extractor = OpenAi::new(Settings::new(base, "m-1")).unwrap();
    let (reason, _) = later(ask(&extractor).await.unwrap_err());
    assert!(reason.starts_with("the endpoint cannot be reached"), "{reason}");
    assert_eq!((extractor.spent().calls, extractor.spent().failed_calls), (1, 1));
}

fn busy(retry_after: &str) -> Play {
    let body = json!({ "error": { "message": "slow down" } }).to_string();
    Play::Answers(429, vec![("retry-after", retry_after.to_owned())], body)
}

/// Proves X-9.
#[tokio::test]
async fn a_short_pause_is_waited_out_once() {
    let standin = StandIn::playing([busy("1"), Play::Completes(good())]).await;
    let patient = extractor(&standin);
    let answer = ask(&patient).await.unwrap();
    assert_eq!((answer.found, answer.calls), (mentions(), 2));
    counted(&patient, &standin, 2, 1);

    let standin = StandIn::playing([busy("0"), busy("0"), Play::Completes(good())]).await;
    let twice = extractor(&standin);
    let (reason, after) = later(ask(&twice).await.unwrap_err());
    assert!(reason.contains("429") && reason.contains("slow down"), "{reason}");
    assert_eq!(after, Some(Duration::ZERO));
    counted(&twice, &standin, 2, 2);
}

/// Proves X-9.
#[tokio::test]
async fn a_long_pause_is_passed_on() {
    let standin = StandIn::playing([busy("120")]).await;
    let in_seconds = extractor(&standin);
    assert_eq!(later(ask(&in_seconds).await.unwrap_err()).1, Some(Duration::from_secs(120)));
    counted(&in_seconds, &standin, 1, 1);

    let soon = SystemTime::now() + Duration::from_secs(3_600);
    let standin = StandIn::playing([busy(&httpdate::fmt_http_date(soon))]).await;
    let dated = extractor(&standin);
    let after = later(ask(&dated).await.unwrap_err()).1.unwrap();
    assert!((3_000..=3_600).contains(&after.as_secs()), "{after:?}");
    counted(&dated, &standin, 1, 1);

    let standin = StandIn::playing([Play::Answers(429, vec![], String::new())]).await;
    let unstated = extractor(&standin);
    assert_eq!(later(ask(&unstated).await.unwrap_err()).1, None);
    counted(&unstated, &standin, 1, 1);
}

/// Proves X-9.
#[tokio::test]
async fn a_permanent_error_is_reported_in_the_endpoints_words() {
    let endless = format!("\"{}\"", "no\\u0007 ".repeat(10_000));
    for (status, body, why) in [
        (401, r#"{"error": {"message": "bad key"}}"#, "refused a call without a key (401"),
        (403, r#"{"error": "not you"}"#, "refused a call without a key (403"),
        (404, r#"{"error": {"message": "no model m-1"}}"#, "404 Not Found: no model m-1"),
        (400, r#"{"error": {"message": "temperature?"}}"#, "400 Bad Request: temperature?"),
        (422, &endless, "422"),
        (200, "<html>hello</html>", "no chat completion"),
        (200, r#"{"choices": []}"#, "it has no choices"),
    ] {
        let standin = StandIn::playing([Play::Answers(status, vec![], body.into())]).await;
        let extractor = extractor(&standin);
        let reason = never(ask(&extractor).await.unwrap_err());
        assert!(reason.contains(why), "{reason}");
        assert!(reason.chars().count() < 500 && !reason.contains('\u{7}'), "{reason}");
        counted(&extractor, &standin, 1, 1);
    }
}

/// Proves X-9.
#[tokio::test]
async fn an_answer_that_is_too_long_is_refused() {
    let standin = StandIn::playing([Play::Completes(" ".repeat(100_000))]).await;
    let mut settings = settings(&standin);
    settings.max_response_bytes = 10_000;
    let extractor = OpenAi::new(settings).unwrap();
    let reason = never(ask(&extractor).await.unwrap_err());
    assert_eq!(reason, "the endpoint answered with more than 10000 bytes");
    counted(&extractor, &standin, 1, 1);
}

/// Proves X-9.
#[tokio::test]
async fn no_redirect_is_followed() {
    for status in [301, 302, 307, 308] {
        let headers = vec![("location", "/elsewhere".to_owned())];
        let plays = [Play::Answers(status, headers, String::new()), Play::Completes(good())];
        let standin = StandIn::playing(plays).await;
        let extractor = extractor(&standin);
        let reason = never(ask(&extractor).await.unwrap_err());
        assert!(reason.ends_with("redirects are not followed"), "{reason}");
        counted(&extractor, &standin, 1, 1);
    }
}

/// Proves X-9.
#[tokio::test]
async fn an_endpoint_that_does_not_know_schemas_is_asked_in_its_dialect() {
    let unknown = |what: &str| {
        let message = format!("Unsupported parameter: {what}");
        Play::Answers(400, vec![], json!({ "error": { "message": message } }).to_string())
    };
    let plays = [
        unknown("'response_format' of type json_schema"),
        unknown("'max_tokens', use 'max_completion_tokens'"),
        Play::Completes(good()),
        Play::Completes(good()),
    ];
    let standin = StandIn::playing(plays).await;
    let extractor = extractor(&standin);
    assert_eq!(ask(&extractor).await.unwrap().calls, 3);
    // The learnt dialect is used again.
    assert_eq!(ask(&extractor).await.unwrap().calls, 1);
    counted(&extractor, &standin, 4, 2);
    let bodies = standin.bodies();
    assert_eq!(bodies[1]["response_format"], json!({ "type": "json_object" }));
    assert_eq!(bodies[3]["response_format"], json!({ "type": "json_object" }));
    assert_eq!(bodies[3]["max_completion_tokens"], 4096);
    assert_eq!(bodies[3]["max_tokens"], Value::Null);
}

#[tokio::test]
async fn as_many_calls_are_under_way_as_allowed_and_no_more() {
    let two = Arc::new(Barrier::new(2));
    let meets = |_| Play::Meets(good(), Arc::clone(&two));
    let standin = StandIn::playing((0..6).map(meets)).await;
    let mut settings = settings(&standin);
    settings.max_concurrent_calls = 2;
    let extractor = Arc::new(OpenAi::new(settings).unwrap());
    let begin = |_| {
        let extractor = Arc::clone(&extractor);
        tokio::spawn(async move { ask(&extractor).await })
    };
    let calls: Vec<_> = (0..6).map(begin).collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(standin.most_inside(), 2);
    counted(&extractor, &standin, 6, 0);
}

#[tokio::test]
async fn no_more_calls_are_begun_in_a_minute_than_allowed() {
    let standin = StandIn::playing([Play::Completes(good()), Play::Completes(good())]).await;
    let mut settings = settings(&standin);
    settings.requests_per_minute = NonZeroU32::new(1);
    let extractor = OpenAi::new(settings).unwrap();
    ask(&extractor).await.unwrap();
    let second = tokio::time::timeout(Duration::from_millis(300), ask(&extractor)).await;
    assert!(second.is_err(), "the second call does not wait");
    counted(&extractor, &standin, 1, 0);
}

/// Proves X-9.
#[tokio::test]
async fn the_api_key_is_sent_to_the_endpoint_only() {
    let statuses = [200, 302, 400, 401, 403, 404, 429, 500, 503];
    let mut plays: Vec<Play> = statuses.iter().map(|status| Play::Echoes(*status)).collect();
    plays.extend([Play::Breaks, Play::Vanishes]);
    let standin = StandIn::playing(plays.clone()).await;
    let mut settings = settings(&standin);
    settings.api_key = Some(ApiKey::new(KEY).unwrap());
    let shown = format!("{settings:?} {:?}", settings.api_key);
    assert!(!shown.contains("secret"), "{shown}");
    let extractor = OpenAi::new(settings).unwrap();
    for _ in &plays {
        let error = ask(&extractor).await.unwrap_err();
        let shown = format!("{error} {error:?} {extractor:?} {}", extractor.identity());
        assert!(!shown.contains("secret"), "{shown}");
    }
    standin.request(0, |request| {
        assert_eq!(request.headers["authorization"], format!("Bearer {KEY}"));
    });
    counted(&extractor, &standin, plays.len() as u64, plays.len() as u64);
}

/// Proves X-9.
#[test]
fn the_identity_names_what_changes_answers() {
    let identity = |base: &str, model: &str| {
        OpenAi::new(Settings::new(base, model)).expect("good settings").identity()
    };
    let one = identity("https://api.example.org/v1/", "m-1");
    assert_eq!(one, "openai.1 base=https://api.example.org/v1 model=\"m-1\" prompt=1");
    assert_ne!(one, identity("https://api.example.org/v1", "m-2"));
    assert_ne!(one, identity("https://api.example.com/v1", "m-1"));
}

/// Proves X-9: a setting that changes no answer does not change the key, so nothing is paid for
/// again.
#[test]
fn the_identity_leaves_out_who_asks_how_often_and_at_what_price() {
    let settings = Settings::new("https://api.example.org/v1", "m-1");
    let one = OpenAi::new(settings.clone()).expect("good settings").identity();
    let other = Settings {
        api_key: Some(ApiKey::new(KEY).unwrap()),
        timeout: Duration::from_secs(1),
        connect_timeout: Duration::from_secs(1),
        max_response_bytes: 1,
        max_concurrent_calls: 1,
        requests_per_minute: NonZeroU32::new(1),
        prices: Some(PRICES),
        ..settings
    };
    assert_eq!(OpenAi::new(other).expect("good settings").identity(), one);
}

/// Proves X-9: a result has the cost of its own calls, and reused chunks cost nothing again.
#[tokio::test]
async fn a_result_says_what_it_cost() {
    let relations = json!({ "relations": [] }).to_string();
    for prices in [Some(PRICES), None] {
        let plays = [
            Play::Completes("no".into()),
            Play::Completes(good()),
            Play::Completes(relations.clone()),
        ];
        let standin = StandIn::playing(plays).await;
        let settings = Settings { prices, ..settings(&standin) };
        let extractor = Arc::new(OpenAi::new(settings).unwrap());
        let hapax = Hapax::builder().in_memory();
        let extract = Extract::new(hapax, extractor.clone(), hapax_extract::Settings::default());
        extract.put_ontology(&ontology(), None, "ada").await.unwrap();
        let metadata = async |params: &str| {
            let params = hapax::json::Json::parse(params.as_bytes()).unwrap();
            let request =
                ExtractionRequest { params, ..ExtractionRequest::new(TEXT, ontology().id) };
            let extracted = extract.extract(&request, None).await.unwrap();
            let json: Value = serde_json::from_slice(extracted.json()).unwrap();
            json["metadata"].clone()
        };
        // One answer was sent back: three calls, each of 100 tokens read and 10 written.
        let paid = metadata("{}").await;
        assert_eq!((&paid["calls"], &paid["tokensIn"]), (&json!(3), &json!(300)));
        assert_eq!(paid.get("costMicros"), prices.map(|_| json!(63)).as_ref());
        assert_eq!((&paid["model"], &paid["temperature"]), (&json!("m-1"), &json!(0)));
        assert_eq!(extractor.spent().cost_micros, prices.map(|_| 63));
        assert_eq!(metadata("{}").await, paid, "a hit has the cost of its making");
        let reused = metadata(r#"{"concurrency": 1}"#).await;
        assert_eq!(reused.get("costMicros"), prices.map(|_| json!(0)).as_ref());
        counted(&extractor, &standin, 3, 0);
    }
}
