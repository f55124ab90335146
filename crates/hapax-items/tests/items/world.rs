//! A tool whose mutations the tests can see, and which acts as they say.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use hapax::document::print;
use hapax::json::Json;
use hapax::{Claim, Finding, Hapax, Safety, Settling};
use hapax_items::{
    Call, Class, Difference, Error, FailureBudget, Items, Operation, Plan, Settings, Tool,
    ToolError,
};
use tokio::sync::Barrier;

/// The tool's next action; by default it does what it is asked.
#[derive(Debug, Clone)]
pub(crate) enum Next {
    Fail(Class),
    /// It happens, and then the tool fails with this class.
    HappenAnd(Class),
    /// It happens, with this result.
    Answer(Json),
    Panic,
    Hang,
    /// It waits at the barrier twice, to show that it has begun and to be let on; then it happens.
    Wait(Arc<Barrier>),
}

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) safety: Safety,
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    next: VecDeque<Next>,
    done: Vec<String>,
    findings: VecDeque<Finding>,
    /// The payloads that were looked for.
    looks: Vec<String>,
    difference: fn() -> Difference,
    /// The classes with which the next questions fail.
    unread: VecDeque<Class>,
}

const OPERATIONS: [Operation; 2] =
    [Operation { name: "send", mutates: true }, Operation { name: "inbox", mutates: false }];

impl World {
    pub(crate) fn new(safety: Safety) -> Self {
        let inner = Inner {
            next: VecDeque::new(),
            done: Vec::new(),
            findings: VecDeque::new(),
            looks: Vec::new(),
            difference: || Difference::Significant,
            unread: VecDeque::new(),
        };
        Self { safety, inner: Arc::new(Mutex::new(inner)) }
    }

    pub(crate) fn opaque() -> Self {
        Self::new(Safety::Opaque)
    }

    pub(crate) fn reconcilable() -> Self {
        Self::new(Safety::Reconcilable(Settling::TargetRefusesLate))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().expect("no panic inside")
    }

    pub(crate) fn next(&self, next: impl IntoIterator<Item = Next>) {
        self.lock().next.extend(next);
    }

    pub(crate) fn finds(&self, findings: impl IntoIterator<Item = Finding>) {
        self.lock().findings.extend(findings);
    }

    pub(crate) fn compares(&self, difference: fn() -> Difference) {
        self.lock().difference = difference;
    }

    /// The next question fails.
    pub(crate) fn answers_not(&self, class: Class) {
        self.lock().unread.push_back(class);
    }

    /// The mutations that have happened, in order.
    pub(crate) fn done(&self) -> Vec<String> {
        self.lock().done.clone()
    }

    pub(crate) fn looks(&self) -> usize {
        self.lock().looks.len()
    }

    /// The payloads that were looked for, in order.
    pub(crate) fn lookups(&self) -> Vec<String> {
        self.lock().looks.clone()
    }
}

#[async_trait]
impl Tool for World {
    fn name(&self) -> &str {
        "mail"
    }

    fn operations(&self) -> &[Operation] {
        &OPERATIONS
    }

    fn plan(&self, _: &str, arguments: &Json) -> Result<Plan, ToolError> {
        let to = arguments.get("to").and_then(Json::as_str);
        let to = to.ok_or_else(|| ToolError::logic("`to` is missing"))?;
        let text = arguments.get("text").cloned().unwrap_or(Json::Null);
        Ok(Plan {
            target: "smtp://example.org".into(),
            identity: Json::object([("to", Json::text(to))]),
            payload: Json::object([("text", text)]),
        })
    }

    fn compare_payload(&self, _: &str, _: &Json, _: &Json) -> Difference {
        let difference = self.lock().difference;
        difference()
    }

    fn safety(&self, _: &str) -> Safety {
        self.safety
    }

    async fn mutate(&self, call: &Call, _: &Claim) -> Result<Json, ToolError> {
        let next = self.lock().next.pop_front();
        let happen = || {
            let mut inner = self.lock();
            let to = call.plan.identity.get("to").and_then(Json::as_str).unwrap_or_default();
            inner.done.push(format!("{to}: {}", print(&call.plan.payload)));
            inner.done.len()
        };
        match next {
            None => Ok(Json::object([("nth", Json::number(happen() as u64))])),
            Some(Next::Fail(class)) => {
                Err(ToolError { class, message: "the post office is closed".into() })
            }
            Some(Next::HappenAnd(class)) => {
                happen();
                Err(ToolError { class, message: "the line went dead".into() })
            }
            Some(Next::Answer(result)) => {
                happen();
                Ok(result)
            }
            Some(Next::Panic) => panic!("the post office burned down"),
            Some(Next::Hang) => std::future::pending().await,
            Some(Next::Wait(gate)) => {
                gate.wait().await;
                gate.wait().await;
                Ok(Json::object([("nth", Json::number(happen() as u64))]))
            }
        }
    }

    async fn reconcile(&self, call: &Call) -> Finding {
        let mut inner = self.lock();
        inner.looks.push(print(&call.plan.payload));
        let silent = Finding::CannotTell("no answer".into());
        inner.findings.pop_front().unwrap_or(silent)
    }

    async fn read(&self, _: &str, _: &Json) -> Result<Json, ToolError> {
        if let Some(class) = self.lock().unread.pop_front() {
            return Err(ToolError { class, message: "the office is closed".into() });
        }
        Ok(Json::Array(["a", "b"].map(Json::text).to_vec()))
    }

    fn check_by_hand(&self, call: &Call) -> String {
        let to = call.plan.identity.get("to").and_then(Json::as_str).unwrap_or_default();
        format!("whether a letter to {to} is in the Sent folder")
    }
}

/// The settings of most tests: no waiting between tries.
pub(crate) fn settings(name: &str) -> Settings {
    let retries = hapax::Backoff { base_ms: 1, cap_ms: 1, attempts: 3 };
    let budget = FailureBudget { retries, ..FailureBudget::default() };
    Settings { budget, tool_timeout: Duration::from_millis(500), ..Settings::new(name) }
}

pub(crate) fn items_on(hapax: Hapax, world: &World) -> Items {
    Items::new(hapax, vec![Arc::new(world.clone())], vec![settings("letters")]).expect("set up")
}

pub(crate) fn items(world: &World) -> Items {
    items_on(Hapax::builder().in_memory(), world)
}

/// Publishes a script and drives it.
pub(crate) async fn drive(items: &Items, script: &str) -> Result<usize, Error> {
    items.publish("letters", script, "ada").await?;
    items.drive("letters", None).await.map(|ran| ran.items)
}

/// How a run failed: class, next step, message.
pub(crate) fn failed(result: Result<usize, Error>) -> (Class, String, String) {
    match result {
        Err(Error::Failed { failure, .. }) => (failure.class, failure.next, failure.message),
        other => panic!("{other:?}"),
    }
}

pub(crate) const ONE: &str = r#"
await withItem("a", "Letter to Ada", async (ctx) => {
    if (ctx.item.isDone) return;
    const sent = await mail.send({ to: "ada", text: "hello" });
    return sent.nth;
});
"#;
