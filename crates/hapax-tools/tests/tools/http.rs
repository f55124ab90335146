//! The HTTP tool.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use axum::http::header::AUTHORIZATION;
use hapax::json::Json;
use hapax::{Finding, Hapax, Safety, Settling};
use hapax_items::{Class, Difference, Error, Items, Tool as _};
use hapax_testkit::{Cut, free_port};
use hapax_tools::http::Probe;
use hapax_tools::{Http, HttpSettings};

use crate::site::Site;
use crate::stage::{call, compare, found, json, mutate, text};

fn settings(port: u16) -> HttpSettings {
    HttpSettings {
        base: format!("http://127.0.0.1:{port}/v1").parse().ok(),
        allow_private: true,
        timeout: Duration::from_secs(10),
        ..HttpSettings::new("http")
    }
}

fn tool(port: u16) -> Http {
    Http::new(settings(port)).expect("a tool")
}

/// Proves I-4: the identity is apart from the payload, and the key goes to the server.
#[tokio::test]
async fn a_mutation_goes_out_once_with_its_key() {
    let site = Site::start().await;
    site.answers("/v1/orders", 201, r#"{"id": 7, "n": 1.0}"#);
    let tool = tool(site.port);
    let arguments = r#"{"url": "orders", "body": {"b": 2, "a": 1.0}, "headers": {"Prefer": "x"}}"#;
    let call = call(&tool, "post", arguments);
    assert_eq!(call.plan.target, format!("http://127.0.0.1:{}", site.port));
    assert_eq!(text(&call.plan.identity), format!(r#"{{"url":"{}"}}"#, site.url("/v1/orders")));
    let result = mutate(&tool, &call).await.unwrap();
    let expected =
        r#"{"body":{"id":7,"n":1},"headers":{"content-type":"application/json"},"status":201}"#;
    assert_eq!(text(&result), expected);
    let [got] = &site.got()[..] else { panic!("{:?}", site.got()) };
    assert_eq!((got.method.as_str(), got.uri.as_str()), ("POST", "/v1/orders"));
    assert_eq!(got.body, r#"{"a":1,"b":2}"#);
    assert_eq!(got.header("idempotency-key"), Some(&*format!("\"{}\"", call.key)));
    assert_eq!(got.header("content-type"), Some("application/json"));
    assert_eq!(got.header("prefer"), Some("x"));
    assert_eq!(got.header("host"), Some(&*format!("127.0.0.1:{}", site.port)));
}

/// Proves I-3: a script may name any method but CONNECT; it is sent as it is written and separates
/// mutations.
#[tokio::test]
async fn any_method_may_be_named() {
    let site = Site::start().await;
    site.answers("/v1/orders", 207, "{}");
    let tool = tool(site.port);
    let arguments =
        |method: &str| format!(r#"{{"method": "{method}", "url": "orders", "body": "x"}}"#);
    let methods = ["PROPPATCH", "POST", "purge", "M-SEARCH!#$%&'*+.^_`|~9"];
    let mut keys = Vec::new();
    for method in methods {
        let call = call(&tool, "request", &arguments(method));
        assert_eq!(call.plan.identity.get("method").and_then(Json::as_str), Some(method));
        mutate(&tool, &call).await.unwrap();
        assert!(tool.check_by_hand(&call).contains(&format!("whether {method} http://")));
        keys.push(text(&call.plan.identity));
    }
    let got: Vec<_> = site.got().iter().map(|got| got.method.to_string()).collect();
    assert_eq!(got, methods);
    keys.dedup();
    assert_eq!(keys.len(), methods.len());
    for refused in ["", "A B", "A\\nB", "GET/", "é", "CONNECT"] {
        let error = tool.plan("request", &json(&arguments(refused))).unwrap_err();
        assert_eq!(error.class, Class::Logic, "{refused}: {error}");
    }
    assert!(tool.plan("request", &json(r#"{"url": "orders"}"#)).is_err());
}

/// Proves I-3: the key that a server is sent is the host's. A script that sets one ends its run,
/// and nothing is sent.
#[tokio::test]
async fn a_script_cannot_set_the_key() {
    let site = Site::start().await;
    site.answers("/v1/orders", 201, "{}");
    let hapax = Hapax::builder().in_memory();
    let items = Items::new(hapax, vec![Arc::new(tool(site.port))], Vec::new()).expect("set up");
    let order = async |id: &str, headers: &str| {
        let script = format!(
            r#"await withItem("{id}", "Order", async () => {{
                try {{ await http.post({{ url: "orders", headers: {headers} }}); }} catch {{}}
            }});"#
        );
        items.publish("orders", &script, "ada").await.expect("a script");
        items.run("orders", None).await
    };
    for (id, headers) in [
        ("1", r#"{ "Idempotency-Key": "mine" }"#),
        ("2", r#"{ "idempotency-key": "mine" }"#),
        ("3", r#"{ "IDEMPOTENCY-KEY": "mine" }"#),
        ("4", r#"{ prefer: "x", ["Idempotency" + "-Key"]: "mine" }"#),
        ("5", r#"{ "idempotency-key ": "mine" }"#),
        ("6", r#"{ prefer: "x\r\nIdempotency-Key: mine" }"#),
    ] {
        let ended = order(id, headers).await;
        let Err(Error::Failed { failure, .. }) = ended else { panic!("{headers}: {ended:?}") };
        assert_eq!(failure.class, Class::Logic, "{headers}: {}", failure.message);
    }
    assert!(site.got().is_empty(), "{:?}", site.got());
    order("7", r#"{ prefer: "x" }"#).await.expect("it is sent");
    let item = items.show("orders", "7").await.expect("an item");
    let key = items.mutations(item.key, 1).await.expect("mutations")[0].key;
    let got = site.got();
    let keys: Vec<_> = got.iter().flat_map(|got| got.headers.get_all("idempotency-key")).collect();
    assert_eq!(keys, [&*format!("\"{key}\"")]);
}

/// Proves I-6.
#[test]
fn payloads_differ_in_three_degrees() {
    let tool = tool(1);
    let degree = |one: &str, other: &str| {
        let arguments = |rest: &str| format!(r#"{{"url": "a", {rest}}}"#);
        compare(&tool, "post", &arguments(one), &arguments(other))
    };
    for (one, other, expected) in [
        (r#""body": {"a": 1, "b": 2}"#, r#""body": {"b": 2.0, "a": 1}"#, Difference::Equivalent),
        (r#""body": "two  words\n""#, r#""body": "two words""#, Difference::Equivalent),
        (
            r#""body": 1, "headers": {"prefer": "a"}"#,
            r#""body": 1, "headers": {"Prefer": "b"}"#,
            Difference::Minor,
        ),
        (r#""body": 1, "headers": {"prefer": "a"}"#, r#""body": 1"#, Difference::Significant),
        (r#""body": {"a": 1}"#, r#""body": {"a": 2}"#, Difference::Significant),
        (r#""body": "two words""#, r#""body": "twowords""#, Difference::Significant),
        (r#""body": "1""#, r#""body": 1"#, Difference::Significant),
    ] {
        assert_eq!(degree(one, other), expected, "{one} {other}");
    }
}

/// Proves I-8: a request that was not sent has failed; one that may have arrived has an unknown
/// outcome.
#[tokio::test]
async fn each_phase_has_its_class() {
    let refused = tool(free_port());
    let error = mutate(&refused, &call(&refused, "put", r#"{"url": "a"}"#)).await.unwrap_err();
    assert_eq!(error.class, Class::Transient, "{error}");

    let site = Site::start().await;
    site.answers("/v1/a", 200, "1");
    let cut = Cut::after(site.port, "the end");
    let before_the_answer = tool(cut.port());
    let put = call(&before_the_answer, "put", r#"{"url": "a", "body": "the end"}"#);
    let error = mutate(&before_the_answer, &put).await.unwrap_err();
    assert_eq!(error.class, Class::Indeterminate, "{error}");
    assert!(cut.has_cut());
    assert_eq!(site.done(), 1, "it did happen");

    let cut = Cut::before(site.port, "PUT");
    let before_anything = tool(cut.port());
    let put = call(&before_anything, "put", r#"{"url": "a"}"#);
    let error = mutate(&before_anything, &put).await.unwrap_err();
    assert_eq!(error.class, Class::Indeterminate, "{error}");
    assert_eq!(site.done(), 1, "it did not, but who knows");

    site.stall();
    let hasty = HttpSettings { timeout: Duration::from_millis(300), ..settings(site.port) };
    let hasty = Http::new(hasty).expect("a tool");
    let error = mutate(&hasty, &call(&hasty, "delete", r#"{"url": "a"}"#)).await.unwrap_err();
    assert_eq!(error.class, Class::Indeterminate, "{error}");
    assert_eq!(error.message, "no answer within 0.3 s");
    let error = hasty.read("get", &json(r#"{"url": "a"}"#)).await.unwrap_err();
    assert_eq!(error.class, Class::Transient, "a read can be repeated");
}

/// Proves I-10.
#[tokio::test]
async fn each_status_has_its_class() {
    let site = Site::start().await;
    let tool = tool(site.port);
    let retry = vec![("retry-after", "5".to_owned())];
    for (path, answer, expected) in [
        ("/v1/400", (400, Vec::new(), b"no\x1b such".to_vec()), Class::Logic),
        ("/v1/401", (401, Vec::new(), Vec::new()), Class::Permission),
        ("/v1/403", (403, Vec::new(), Vec::new()), Class::Permission),
        ("/v1/404", (404, Vec::new(), Vec::new()), Class::Precondition),
        ("/v1/409", (409, Vec::new(), Vec::new()), Class::Precondition),
        ("/v1/422", (422, Vec::new(), Vec::new()), Class::Precondition),
        ("/v1/429", (429, Vec::new(), Vec::new()), Class::Transient),
        ("/v1/503", (503, Vec::new(), Vec::new()), Class::Indeterminate),
        ("/v1/503-later", (503, retry, Vec::new()), Class::Transient),
        ("/v1/500", (500, Vec::new(), Vec::new()), Class::Indeterminate),
        ("/v1/504", (504, Vec::new(), Vec::new()), Class::Indeterminate),
        ("/v1/303", (303, Vec::new(), Vec::new()), Class::Indeterminate),
        ("/v1/308", (308, Vec::new(), Vec::new()), Class::Precondition),
    ] {
        site.answers_with(path, answer);
        let url = format!(r#"{{"url": "{}"}}"#, site.url(path));
        let error = mutate(&tool, &call(&tool, "post", &url)).await.unwrap_err();
        assert_eq!(error.class, expected, "{path}: {error}");
    }
    let error = mutate(&tool, &call(&tool, "post", r#"{"url": "400"}"#)).await.unwrap_err();
    assert_eq!(error.message, r"the server answered 400 Bad Request: no\u{1b} such");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let site = Site::start().await;
    let elsewhere = vec![("location", site.url("/v1/b"))];
    site.answers_with("/v1/a", (307, elsewhere, Vec::new()));
    let tool = tool(site.port);
    let error = mutate(&tool, &call(&tool, "post", r#"{"url": "a"}"#)).await.unwrap_err();
    assert!(error.message.ends_with("redirects are not followed"), "{error}");
    assert_eq!(site.got().len(), 1);
}

#[tokio::test]
async fn an_answer_beyond_the_limit_is_not_read() {
    let site = Site::start().await;
    site.answers("/v1/a", 200, vec![b' '; 1001]);
    let tool = Http::new(HttpSettings { max_response: 1000, ..settings(site.port) }).unwrap();
    let error = mutate(&tool, &call(&tool, "post", r#"{"url": "a"}"#)).await.unwrap_err();
    assert_eq!(error.class, Class::Indeterminate, "{error}");
    assert!(error.message.contains("more than 1000 bytes"), "{error}");
    let error = tool.read("get", &json(r#"{"url": "a"}"#)).await.unwrap_err();
    assert_eq!(error.class, Class::Precondition, "{error}");
    let large = format!(r#"{{"url": "a", "body": "{}"}}"#, "x".repeat(2 * 1024 * 1024));
    assert_eq!(tool.plan("post", &json(&large)).unwrap_err().class, Class::Logic);
}

#[tokio::test]
async fn questions_have_answers_of_any_kind() {
    let site = Site::start().await;
    let tool = tool(site.port);
    let kind = |kind: &str| vec![("content-type", kind.to_owned()), ("etag", "7".to_owned())];
    let read = async |path: &str| {
        let arguments = json(&format!(r#"{{"url": "{path}"}}"#));
        text(&tool.read("get", &arguments).await.expect("an answer"))
    };
    site.answers_with("/v1/json", (200, kind("application/problem+json"), b"{\"a\":1}".to_vec()));
    assert!(read("json").await.starts_with(r#"{"body":{"a":1},"#));
    let large = b"{\"a\":12345678901234567890}".to_vec();
    site.answers_with("/v1/large", (200, kind("application/json"), large));
    assert!(read("large").await.starts_with(r#"{"body":"{\"a\":12345678901234567890}","#));
    site.answers_with("/v1/text", (200, kind("text/plain"), b"{}".to_vec()));
    let expected =
        r#"{"body":"{}","headers":{"content-type":"text/plain","etag":"7"},"status":200}"#;
    assert_eq!(read("text").await, expected);
    site.answers_with("/v1/bytes", (200, Vec::new(), vec![0xff, 0xfe]));
    let expected = r#"{"body":"//4=","encoding":"base64","headers":{},"status":200}"#;
    assert_eq!(read("bytes").await, expected);
    assert_eq!(read("absent").await, r#"{"body":null,"headers":{},"status":404}"#);
    let head = tool.read("head", &json(r#"{"url": "json"}"#)).await.unwrap();
    assert_eq!(head.get("body"), Some(&hapax_core::json::Json::Null));
    assert_eq!(tool.read("post", &json(r#"{"url": "a"}"#)).await.unwrap_err().class, Class::Logic);
    assert!(site.got().iter().all(|got| got.header("idempotency-key").is_none()));
}

/// Proves K-7: a probe's "no" counts only after a while, unless the server honours keys.
#[tokio::test]
async fn a_probe_finds_what_happened() {
    let site = Site::start().await;
    let probe = Probe { url: "by-key/{key}".into(), pointer: None };
    let settling = Duration::from_secs(90);
    let probing = HttpSettings { probe: Some(probe), settling, ..settings(site.port) };
    let tool = Http::new(probing.clone()).expect("a tool");
    assert_eq!(tool.safety("post"), Safety::Reconcilable(Settling::AfterMs(90_000)));
    let honouring = Http::new(HttpSettings { honours_key: true, ..probing.clone() }).unwrap();
    assert_eq!(honouring.safety("post"), Safety::Reconcilable(Settling::TargetRefusesLate));

    let post = call(&tool, "post", r#"{"url": "orders"}"#);
    assert_eq!(tool.reconcile(&post).await, Finding::NotFound);
    let request = site.got().pop().expect("a question");
    let escaped = post.key.to_string().replace(':', "%3A");
    assert_eq!((request.method.as_str(), request.uri), ("GET", format!("/v1/by-key/{escaped}")));
    let path = format!("/v1/by-key/{escaped}");
    site.answers(&path, 200, r#"{"id": 7}"#);
    assert!(found(tool.reconcile(&post).await).starts_with(r#"{"body":{"id":7},"#));
    for status in [401, 410, 429, 500] {
        site.answers(&path, status, "");
        let finding = tool.reconcile(&post).await;
        assert!(matches!(finding, Finding::CannotTell(_)), "{status}: {finding:?}");
    }

    let probe = Probe { url: "search?key={key}".into(), pointer: Some("/found/0".into()) };
    let tool = Http::new(HttpSettings { probe: Some(probe), ..probing }).expect("a tool");
    site.answers("/v1/search", 200, r#"{"found": []}"#);
    assert_eq!(tool.reconcile(&post).await, Finding::NotFound);
    site.answers("/v1/search", 200, r#"{"found": [{"id": 8}]}"#);
    assert!(found(tool.reconcile(&post).await).starts_with(r#"{"body":{"id":8},"#));
    site.answers_with("/v1/search", (200, Vec::new(), b"welcome".to_vec()));
    assert!(matches!(tool.reconcile(&post).await, Finding::CannotTell(_)));
    assert_eq!(site.done(), 0, "looking changes nothing");
}

/// Proves K-7: to a server that honours the key, the same request again is a lookup.
#[tokio::test]
async fn a_server_that_honours_keys_is_asked_again() {
    let site = Site::start().await;
    site.honour_keys();
    site.answers("/v1/orders", 201, r#"{"id": 7}"#);
    let cut = Cut::after(site.port, "the end");
    let honouring = |port| HttpSettings { honours_key: true, ..settings(port) };
    let tool = Http::new(honouring(cut.port())).expect("a tool");
    assert_eq!(tool.safety("post"), Safety::Reconcilable(Settling::TargetRefusesLate));
    let post = call(&tool, "post", r#"{"url": "orders", "body": "the end"}"#);
    let error = mutate(&tool, &post).await.unwrap_err();
    assert_eq!(error.class, Class::Indeterminate, "{error}");
    assert!(matches!(tool.reconcile(&post).await, Finding::CannotTell(_)), "the line is still bad");

    let tool = Http::new(honouring(site.port)).expect("a tool");
    let mut again = call(&tool, "post", r#"{"url": "orders", "body": "the end"}"#);
    again.key = post.key;
    assert!(found(tool.reconcile(&again).await).starts_with(r#"{"body":{"id":7},"#));
    assert_eq!((site.got().len(), site.done()), (3, 1), "requested three times, done once");

    site.answers("/v1/refused", 400, "");
    let refused = call(&tool, "post", r#"{"url": "refused"}"#);
    assert_eq!(tool.reconcile(&refused).await, Finding::NotFound);
    site.answers("/v1/busy", 409, "");
    let busy = call(&tool, "post", r#"{"url": "busy"}"#);
    assert_eq!(mutate(&tool, &busy).await.unwrap_err().class, Class::Indeterminate);
    assert!(matches!(tool.reconcile(&busy).await, Finding::CannotTell(_)));
}

#[tokio::test]
async fn without_probe_and_key_an_outcome_stays_unknown() {
    let tool = tool(1);
    assert_eq!(tool.safety("post"), Safety::Opaque);
    let post = call(&tool, "post", r#"{"url": "orders"}"#);
    assert!(matches!(tool.reconcile(&post).await, Finding::CannotTell(_)));
    assert!(tool.check_by_hand(&post).contains(&post.key.to_string()));
}

#[tokio::test]
async fn a_private_address_is_refused_in_every_disguise() {
    let tool = Http::new(HttpSettings::new("http")).expect("a tool");
    let refused = tool.plan("post", &json(r#"{"url": "http://127.0.0.1/"}"#)).unwrap_err();
    assert_eq!(refused.class, Class::Permission, "{refused}");
    // A host name is judged when it is resolved.
    let post = call(&tool, "post", r#"{"url": "http://localhost:1/"}"#);
    let refused = mutate(&tool, &post).await.unwrap_err();
    assert_eq!(refused.class, Class::Permission, "{refused}");
    let refused = tool.read("get", &json(r#"{"url": "http://localhost:1/"}"#)).await.unwrap_err();
    assert_eq!(refused.class, Class::Permission, "{refused}");
}

#[tokio::test]
async fn secrets_stay_where_they_belong() {
    let site = Site::start().await;
    site.answers("/v1/a", 400, "who is Bearer hunter2 or hunter2?");
    let secret = (AUTHORIZATION, HeaderValue::from_static("Bearer hunter2"));
    let with = HttpSettings { headers: vec![secret.clone()], ..settings(site.port) };
    let tool = Http::new(with.clone()).expect("a tool");
    let error = mutate(&tool, &call(&tool, "post", r#"{"url": "a"}"#)).await.unwrap_err();
    assert_eq!(site.got()[0].header("authorization"), Some("Bearer hunter2"));
    assert!(error.message.ends_with("who is … or …?"), "{error}");
    assert!(!format!("{with:?}").contains("hunter2"));
    let anywhere = HttpSettings { headers: vec![secret], ..HttpSettings::new("http") };
    assert!(Http::new(anywhere).is_err(), "a script could send it to anybody");
    for header in ["authorization", "Host", "Idempotency-Key", "cookie", "X-Anything"] {
        let arguments = json(&format!(r#"{{"url": "a", "headers": {{"{header}": "x"}}}}"#));
        assert_eq!(tool.plan("post", &arguments).unwrap_err().class, Class::Logic, "{header}");
        let allow_headers = vec![header.parse().unwrap()];
        let allowing = HttpSettings { allow_headers, ..settings(site.port) };
        assert_eq!(Http::new(allowing).is_ok(), header == "X-Anything", "{header}");
    }
}

#[test]
fn a_malformed_request_is_the_scripts_mistake() {
    let tool = tool(1);
    for (operation, arguments) in [
        ("post", "[]"),
        ("post", "{}"),
        ("post", r#"{"url": 1}"#),
        ("post", r#"{"url": "a", "bodi": 1}"#),
        ("post", r#"{"url": "a", "body": {"n": 12345678901234567890}}"#),
        ("post", r#"{"url": "a", "headers": {"prefer": "a\nb"}}"#),
        ("post", r#"{"url": "a", "headers": {"prefer": "a", "Prefer": "b"}}"#),
        ("get", r#"{"url": "a"}"#),
        ("trace", r#"{"url": "a"}"#),
    ] {
        let error = tool.plan(operation, &json(arguments)).unwrap_err();
        assert_eq!(error.class, Class::Logic, "{operation} {arguments}: {error}");
    }
}
