//! Workflows, items and escalations over HTTP.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hapax::json::Json;
use hapax::{Claim, Safety};
use hapax_items::{
    Call, Class, Items, Maintainer, Operation, Plan, Settings, Tool, ToolError, Version,
};
use hapax_server::server::Systems;

use super::*;

/// A mail tool whose failures a test chooses.
#[derive(Clone, Default)]
struct Mail(Arc<Mutex<Office>>);

#[derive(Default)]
struct Office {
    /// The next failures: whether the mail is sent all the same, and the class of the error.
    next: VecDeque<(bool, Class)>,
    sent: Vec<String>,
    /// Each mail waits for a permit of this semaphore.
    closed: Option<Arc<tokio::sync::Semaphore>>,
}

const OPERATIONS: [Operation; 1] = [Operation { name: "send", mutates: true }];

impl Mail {
    fn office(&self) -> std::sync::MutexGuard<'_, Office> {
        self.0.lock().expect("no panic inside")
    }

    fn fails(&self, happens: bool, class: Class) {
        self.office().next.push_back((happens, class));
    }

    fn sent(&self) -> Vec<String> {
        self.office().sent.clone()
    }

    fn close(&self) -> Arc<tokio::sync::Semaphore> {
        let closed = Arc::new(tokio::sync::Semaphore::new(0));
        self.office().closed = Some(closed.clone());
        closed
    }
}

#[async_trait]
impl Tool for Mail {
    fn name(&self) -> &str {
        "mail"
    }

    fn operations(&self) -> &[Operation] {
        &OPERATIONS
    }

    fn plan(&self, _: &str, arguments: &Json) -> Result<Plan, ToolError> {
        let to = arguments.get("to").cloned().ok_or_else(|| ToolError::logic("to whom?"))?;
        let text = arguments.get("text").cloned().unwrap_or(Json::Null);
        Ok(Plan {
            target: "smtp://example.org".into(),
            identity: Json::object([("to", to)]),
            payload: Json::object([("text", text)]),
        })
    }

    fn safety(&self, _: &str) -> Safety {
        Safety::Opaque
    }

    async fn mutate(&self, call: &Call, _: &Claim) -> Result<Json, ToolError> {
        let closed = self.office().closed.clone();
        if let Some(closed) = closed {
            closed.acquire().await.expect("opened").forget();
        }
        let mut office = self.office();
        let fails = office.next.pop_front();
        if fails.is_none_or(|(happens, _)| happens) {
            office.sent.push(hapax::document::print(&call.plan.identity));
        }
        match fails {
            Some((_, class)) => Err(ToolError { class, message: "the line went dead".into() }),
            None => Ok(Json::object([("nth", Json::number(office.sent.len() as u64))])),
        }
    }

    fn check_by_hand(&self, _: &Call) -> String {
        "whether it is in the Sent folder".into()
    }
}

/// A maintainer that always proposes this script.
struct Once(&'static str);

#[async_trait]
impl Maintainer for Once {
    async fn propose(&self, _: &str, _: &str) -> Result<String, String> {
        let impact = "potentially_impactful";
        Ok(json!({ "script": self.0, "impact": impact, "explanation": "mended", "cost": 0.5 })
            .to_string())
    }
}

fn served(mail: &Mail, access: Access, workflow: Settings) -> Client {
    let hapax = Hapax::builder().in_memory();
    let retries = hapax::Backoff { base_ms: 1, cap_ms: 1, attempts: 3 };
    let budget = hapax_items::FailureBudget { retries, ..hapax_items::FailureBudget::default() };
    let workflow = Settings { budget, ..workflow };
    let items = Items::new(hapax.clone(), vec![Arc::new(mail.clone())], vec![workflow]);
    let systems = Systems { items: Some(items.expect("set up")), ..Systems::default() };
    let server = Server::with(hapax.clone(), access, ServerSettings::default(), systems);
    let headers = vec![("host", "localhost".to_owned())];
    Client { app: server.router(), hapax, headers }
}

fn dev(mail: &Mail) -> Client {
    served(mail, Access::Everybody, Settings::new("letters"))
}

const TWO: &str = r#"
for (const id of ["a b/c", "d"]) {
    await withItem(id, `Delivery ${id}`, async (ctx) => {
        if (ctx.item.isDone) return;
        console.log(`writing ${id}`);
        await mail.send({ to: id, text: "hello" });
    });
}
"#;

const SCRIPT: &str = "/v1/workflows/letters/script";
const RUNS: &str = "/v1/workflows/letters/runs";

async fn publish(client: &Client, source: &str) -> (u16, Value) {
    client.ask(Method::PUT, SCRIPT, Some(json!({ "source": source }))).await
}

async fn run(client: &Client) -> (u16, Value) {
    client.clone().with("prefer", "wait=30").post(RUNS, json!({})).await
}

/// Proves I-12, I-13 and S-2: a script is published and run. A mutation whose outcome is unknown is
/// escalated with everything that is known of it, and the workflow goes on as the person decided.
#[tokio::test]
async fn a_workflow_is_run_and_decided_over_http() {
    let mail = Mail::default();
    let client = dev(&mail);
    assert_eq!(publish(&client, TWO).await, (200, json!({ "version": "1.0" })));
    assert_eq!(publish(&client, TWO).await.1["version"], "1.0", "the same again");
    mail.fails(true, Class::Indeterminate);
    let (status, failed) = run(&client).await;
    assert_eq!((status, &failed["code"]), (502, &json!("HX0705")), "{failed}");
    assert_eq!(failed["retryable"], json!(false));

    let (_, listed) = client.get("/v1/escalations?workflow=letters").await;
    let open = &listed["escalations"][0];
    let unknown = &open["unknown"][0];
    assert_eq!(open["item"]["id"], "a b/c");
    assert_eq!(open["item"]["state"], "needs_attention");
    assert_eq!(open["actions"], json!(["did-not-happen", "happened", "skip", "reprocess"]));
    assert_eq!(unknown["check"], "whether it is in the Sent folder");
    assert_eq!(unknown["mutation"]["identity"], json!({ "to": "a b/c" }));
    assert_eq!(unknown["mutation"]["payload"], json!({ "text": "hello" }));
    assert_eq!(unknown["mutation"]["state"], "indeterminate");
    assert!(unknown["why"].as_str().is_some_and(|why| why.contains("line went dead")), "{unknown}");
    let path = format!("/v1/escalations/{}", open["key"].as_str().expect("a key"));
    assert_eq!(client.get(&path).await.1, *open);

    // Nothing goes on before the decision. It names the attempt that the person saw, and brings the
    // result.
    let (status, waits) = run(&client).await;
    assert_eq!((status, &waits["code"]), (502, &json!("HX0705")), "{waits}");
    let act = format!("{path}/act");
    let say = |action: &str, attempt: &Value| json!({ "action": action, "attempt": attempt, "note": "seen" });
    let (status, stale) = client.post(&act, say("skip", &json!(attempt(9)))).await;
    assert_eq!((status, &stale["code"]), (409, &json!("HX0706")), "{stale}");
    for (wrong, code) in [
        (say("try-again", &open["judged"]), "HX0702"),
        (say("happened", &open["judged"]), "HX0702"),
        (say("guess", &open["judged"]), "HX0312"),
        (json!({ "action": "skip", "attempt": open["judged"], "note": " " }), "HX0312"),
        (
            json!({ "action": "skip", "attempt": open["judged"], "note": "n", "result": 1 }),
            "HX0312",
        ),
    ] {
        let (status, refused) = client.post(&act, wrong).await;
        assert_eq!((status, &refused["code"]), (400, &json!(code)), "{refused}");
    }
    let mut happened = say("happened", &open["judged"]);
    happened["result"] = Value::Null;
    let (status, acted) = client.post(&act, happened).await;
    assert_eq!((status, &acted["item"]["state"]), (200, &json!("failed")), "{acted}");
    assert_eq!(client.get(&path).await.1["code"], "HX0701", "it is decided");

    let (status, ran) = run(&client).await;
    assert_eq!((status, &ran["state"]), (200, &json!("succeeded")), "{ran}");
    assert_eq!(ran["items"], json!(["a b/c", "d"]));
    assert_eq!(ran["log"], json!(["writing a b/c", "writing d"]));
    assert_eq!(mail.sent().len(), 2, "each was sent once");

    let (_, item) = client.get("/v1/workflows/letters/items/a%20b%2Fc").await;
    assert_eq!((&item["state"], &item["attempt"]), (&json!("done"), &json!(1)), "{item}");
    assert_eq!(item["mutations"][0]["state"], "applied");
    assert_eq!(item["mutations"][0]["result"], Value::Null);
    let (_, shown) = client.get("/v1/workflows/letters").await;
    assert_eq!((&shown["version"], &shown["newest_run"]["id"]), (&json!("1.0"), &ran["id"]));
    assert_eq!(shown["tools"][0]["operations"], json!([{ "operation": "send", "mutates": true }]));
    assert_eq!(shown["items"].as_array().map(Vec::len), Some(2));
    assert_eq!(shown["versions"][0]["by"], "development");
    let (_, list) = client.get("/v1/workflows").await;
    assert_eq!(list["workflows"][0]["newest_run"]["state"], "succeeded");
    let text = client.text("/metrics").await;
    assert!(text.contains(r#"hapax_item_runs_total{result="succeeded"} 1"#), "{text}");
}

/// Proves I-9: a person begins a new attempt, and the earlier attempts stay visible.
#[tokio::test]
async fn an_item_is_processed_again_by_decision() {
    let mail = Mail::default();
    let client = dev(&mail);
    publish(&client, TWO).await;
    assert_eq!(run(&client).await.0, 200);
    let path = "/v1/workflows/letters/items/a%20b%2Fc";
    let (_, item) = client.get(path).await;
    let again = json!({ "attempt": item["judged"], "note": "it was lost in the post" });
    let (status, reset) = client.post(&format!("{path}/reprocess"), again.clone()).await;
    assert_eq!(
        (status, &reset["state"]),
        (200, &json!("failed")),
        "the next run begins it: {reset}"
    );
    assert_eq!(client.post(&format!("{path}/reprocess"), again.clone()).await.0, 200, "sent twice");
    assert_eq!(run(&client).await.0, 200);
    assert_eq!(mail.sent().len(), 3);
    let (status, stale) = client.post(&format!("{path}/reprocess"), again).await;
    assert_eq!((status, &stale["code"]), (409, &json!("HX0706")), "{stale}");
    let (_, now) = client.get(path).await;
    assert_eq!((&now["mutations_of"], &now["state"]), (&json!(2), &json!("done")));
    let (_, before) = client.get(&format!("{path}?attempt=1")).await;
    assert_eq!(before["mutations"][0]["attempt"], 1);
    assert_ne!(before["mutations"][0]["key"], now["mutations"][0]["key"]);
    assert_eq!(client.get(&format!("{path}?attempt=3")).await.0, 404);
}

/// Proves S-2: a run goes on without its client, one at a time, and a client finds it again by its key.
#[tokio::test]
async fn a_run_goes_on_in_the_background() {
    let mail = Mail::default();
    let open = mail.close();
    let client = dev(&mail);
    publish(&client, TWO).await;
    let keyed = client.clone().with("idempotency-key", "k1");
    let response = keyed.send(&Method::POST, RUNS, Some("{}")).await;
    assert_eq!(response.status(), StatusCode::ACCEPTED);
    let place = response.headers()["location"].to_str().expect("a place").to_owned();
    let (_, begun) = read(response).await;
    assert_eq!(begun["state"], "running", "{begun}");
    assert!(place.ends_with(begun["id"].as_str().expect("an id")));
    let (status, running) = run(&client).await;
    assert_eq!((status, &running["code"]), (409, &json!("HX0703")), "{running}");
    assert_eq!(running["retryable"], json!(true));
    // The same request again names the same run.
    let response = keyed.send(&Method::POST, RUNS, Some("{}")).await;
    assert_eq!(response.headers()["idempotent-replayed"], "true");
    assert_eq!(read(response).await.1["id"], begun["id"]);
    open.add_permits(2);
    let waiting = client.clone().with("prefer", "wait=30");
    assert_eq!(waiting.get(&place).await.1["state"], "succeeded");
    let (_, listed) = client.get(&format!("{RUNS}?limit=1")).await;
    assert_eq!(listed["runs"][0]["id"], begun["id"]);
    let next = listed["next"].as_u64().expect("a full page has a next one");
    assert_eq!(client.get(&format!("{RUNS}?beyond={next}")).await.1["runs"], json!([]));

    // An id of the client's own is run once.
    let named = json!({ "id": "november" });
    let waiting = client.clone().with("prefer", "wait=30");
    let (status, first) = waiting.post(RUNS, named.clone()).await;
    assert_eq!((status, &first["id"]), (200, &json!("november")), "{first}");
    assert_eq!(waiting.post(RUNS, named).await.1, first);
    assert_eq!(mail.sent().len(), 2);
}

/// Proves I-11 over HTTP: a repair that may be impactful waits for a person, who can read it.
#[tokio::test]
async fn a_repair_is_approved_over_http() {
    const FAULTY: &str = r#"await withItem("a", "A", async (ctx) => {
        if (ctx.item.isDone) return; null.x; await mail.send({ to: "a" }); });"#;
    const MENDED: &str = r#"await withItem("a", "A", async (ctx) => {
        if (ctx.item.isDone) return; await mail.send({ to: "a" }); });"#;
    let mail = Mail::default();
    let maintainer: Arc<dyn Maintainer> = Arc::new(Once(MENDED));
    let settings = Settings { maintainer: Some(maintainer), ..Settings::new("letters") };
    let client = served(&mail, Access::Everybody, settings);
    publish(&client, FAULTY).await;
    let (status, held) = run(&client).await;
    assert_eq!((status, &held["code"]), (409, &json!("HX0704")), "{held}");
    let (_, shown) = client.get("/v1/workflows/letters").await;
    let version = &shown["versions"][0];
    assert_eq!((&version["version"], &version["standing"]), (&json!("1.1"), &json!("held")));
    assert_eq!((&shown["version"], &shown["held"]), (&json!("1.0"), &json!(1)));
    let (_, escalations) = client.get("/v1/escalations").await;
    let held = &escalations["held"][0];
    assert_eq!((&held["workflow"], &held["version"]), (&json!("letters"), &json!("1.1")));
    assert_eq!(held["attempt"], version["judged"], "{held} {version}");
    let repair = &version["repair"];
    assert_eq!((&repair["of"], &repair["impactful"]), (&json!("1.0"), &json!(true)), "{repair}");
    assert_eq!((&repair["cost"], &repair["blast_radius"]), (&json!(500), &json!(["a"])));
    let (_, source) = client.get(&format!("{SCRIPT}?version=1.1")).await;
    assert_eq!(source["source"], MENDED);
    assert_eq!(client.get(SCRIPT).await.1["source"], FAULTY);

    let decide = "/v1/workflows/letters/versions/1.1/decide";
    let say = |approve, attempt: &Value| json!({ "approve": approve, "attempt": attempt, "note": "read it" });
    let (status, stale) = client.post(decide, say(true, &json!(attempt(9)))).await;
    assert_eq!((status, &stale["code"]), (409, &json!("HX0706")), "{stale}");
    let (status, decided) = client.post(decide, say(true, &version["judged"])).await;
    assert_eq!((status, &decided["active"]), (200, &json!(true)), "{decided}");
    assert_eq!(client.post(decide, say(true, &version["judged"])).await.0, 200, "sent twice");
    assert_eq!(client.post(decide, say(false, &version["judged"])).await.0, 409, "it is decided");
    let other = "/v1/workflows/letters/versions/7.0/decide";
    assert_eq!(client.post(other, say(true, &version["judged"])).await.1["code"], "HX0701");
    let (status, ran) = run(&client).await;
    assert_eq!(
        (status, &ran["version"]),
        (200, &json!(Version { major: 1, minor: 1 }.to_string()))
    );
    assert_eq!(mail.sent().len(), 1);
}

/// Proves S-6: scripts, names and pages have limits, and requests beyond them are refused.
#[tokio::test]
async fn an_unknown_workflow_is_refused() {
    let mail = Mail::default();
    let client = dev(&mail);
    let (status, none) = run(&client).await;
    assert_eq!((status, &none["code"]), (404, &json!("HX0701")), "{none}");
    let (status, bad) = publish(&client, "await (").await;
    assert_eq!((status, &bad["code"]), (400, &json!("HX0702")), "{bad}");
    let (status, large) = publish(&client, &format!("//{}", "x".repeat(300_000))).await;
    assert_eq!((status, &large["code"]), (400, &json!("HX0702")), "{large}");
    let odd = json!({ "source": "1" });
    let (status, _) = client.ask(Method::PUT, "/v1/workflows/a%20b/script", Some(odd)).await;
    assert_eq!(status, 400);
    // A script is sent as it is, without JSON around it.
    for (kind, status) in
        [("text/javascript", 200), ("text/javascript; charset=utf-8", 200), ("text/plain", 415)]
    {
        let request = Request::builder()
            .method(Method::PUT)
            .uri(SCRIPT)
            .header("host", "localhost")
            .header("content-type", kind)
            .body(Body::from(TWO));
        let sent = client.app.clone().call(request.expect("a request")).await.expect("an answer");
        assert_eq!(sent.status().as_u16(), status, "{kind}");
    }
    for path in [
        "/v1/workflows/nothing",
        "/v1/workflows/nothing/script",
        "/v1/workflows/letters/script?version=9.0",
        "/v1/workflows/letters/runs/none",
        "/v1/workflows/letters/items/none",
        "/v1/escalations/none",
    ] {
        assert_eq!(client.get(path).await.1["code"], "HX0701", "{path}");
    }
    for path in [
        &format!("/v1/workflows/{}", "x".repeat(65)),
        &format!("/v1/workflows/letters/items/{}", "x".repeat(513)),
        "/v1/workflows/letters/items?limit=1001",
        "/v1/workflows/letters/items?state=lost",
        "/v1/workflows/letters/script?version=one",
        "/v1/escalations?limit=0",
    ] {
        assert_eq!(client.get(path).await.0, 400, "{path}");
    }
    for id in ["", "a b", "scheduled:2026-11-17T06:00:00Z"] {
        assert_eq!(client.post(RUNS, json!({ "id": id })).await.0, 400, "{id:?}");
    }
    // A server without workflows answers 404.
    assert_eq!(Client::dev().get("/v1/workflows").await.0, 404);
}

/// Items are listed by state, page by page.
#[tokio::test]
async fn items_are_listed_by_state() {
    let mail = Mail::default();
    let client = dev(&mail);
    let many = "for (const id of [1, 2, 3]) await withItem(`i${id}`, '', async (ctx) => {
        if (!ctx.item.isDone && id == 3) await mail.send({ to: 'x' }); });";
    publish(&client, many).await;
    mail.fails(false, Class::Permission);
    assert_eq!(run(&client).await.0, 502);
    let path = "/v1/workflows/letters/items";
    let (_, done) = client.get(&format!("{path}?state=done&limit=1")).await;
    assert_eq!(done["items"][0]["id"], "i2");
    let next = done["next"].as_u64().expect("there are more");
    let (_, done) = client.get(&format!("{path}?state=done&limit=1&beyond={next}")).await;
    assert_eq!(done["items"][0]["id"], "i1");
    let (_, listed) = client.get(&format!("{path}?state=needs_attention")).await;
    assert_eq!((&listed["items"][0]["id"], &listed["next"]), (&json!("i3"), &Value::Null));
    assert_eq!(listed["items"][0]["failure"]["class"], "permission");
}

/// Proves S-6: namespaces have workflows, runs and escalations of their own; the journal names the
/// token's holder as the person who decided.
#[tokio::test]
async fn namespaces_have_workflows_of_their_own() {
    let mail = Mail::default();
    let server = served(&mail, Access::Tokens(TokenCache::default()), Settings::new("letters"));
    let ours = server.showing(Role::Steward, Some("ours")).await;
    let theirs = server.showing(Role::Steward, Some("theirs")).await;
    publish(&ours, TWO).await;
    mail.fails(true, Class::Indeterminate);
    assert_eq!(run(&ours).await.0, 502);
    let (_, listed) = ours.get("/v1/escalations").await;
    let open = &listed["escalations"][0];
    let path = format!("/v1/escalations/{}", open["key"].as_str().expect("a key"));
    assert_eq!(
        theirs.get("/v1/escalations").await.1,
        json!({ "escalations": [], "next": null, "held": [] })
    );
    assert_eq!(theirs.get("/v1/workflows").await.1["workflows"], json!([]));
    assert_eq!(theirs.get(&path).await.0, 404);
    let skip = json!({ "action": "skip", "attempt": open["judged"], "note": "let it go" });
    assert_eq!(theirs.post(&format!("{path}/act"), skip.clone()).await.0, 404);
    let (_, acted) = ours.post(&format!("{path}/act"), skip).await;
    assert_eq!(acted["item"]["state"], "skipped", "{acted}");
    let key = open["key"].as_str().expect("a key");
    let (_, history) = ours.get(&format!("/v1/effects/{key}/history")).await;
    assert!(history.to_string().contains("a test"), "the token's holder decided: {history}");

    publish(&theirs, TWO).await;
    assert_eq!(run(&theirs).await.0, 200);
    assert_eq!(mail.sent().len(), 3, "theirs are others");
}
