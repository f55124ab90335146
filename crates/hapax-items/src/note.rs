//! The records of items, runs and mutations beside their effects.

use hapax::document::{Object, Written, list, number, text, words};
use hapax::json::{Json, JsonError};
use hapax::part::Part;
use hapax::{AttemptId, Fence, Key};
use hapax_core::key::mutation::Mutation;

use crate::class::Class;
use crate::route::BudgetUsage;
use crate::tool::{Call, Plan};
use crate::version::Version;

/// The kinds of parts.
pub(crate) const WORKFLOW: &str = "workflow";
pub(crate) const SCRIPT: &str = "script";
pub(crate) const RUN: &str = "run";
pub(crate) const ITEM: &str = "item";
pub(crate) const MUTATION: &str = "mutation";

/// Why an item or a run stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureRecord {
    /// Its class.
    pub class: Class,
    /// The error message.
    pub message: String,
    /// The place in the script, if the script failed.
    pub stack: Option<String>,
    /// The next step: `retry`, `repair`, `reconcile`, `escalate` or `wait`.
    pub next: String,
    /// When the retry is due, in milliseconds since 1970.
    pub retry_at: Option<u64>,
    /// The mutation that it stopped at, if it stopped at one.
    pub mutation: Option<StoppedMutation>,
}

/// A mutation that an item stopped at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoppedMutation {
    /// Its key.
    pub key: Key,
    /// The payload of the request that stopped, as JSON; only the beginning, if it is long.
    pub payload: String,
}

impl FailureRecord {
    fn write(&self, to: Object) -> Object {
        to.text("class", self.class.as_str())
            .text("message", self.message.as_str())
            .text("stack", self.stack.as_deref())
            .text("next", self.next.as_str())
            .number("retry_at", self.retry_at)
            .text(
                "mutation",
                self.mutation.as_ref().map(|mutation| mutation.key.to_string()).as_deref(),
            )
            .text("asked", self.mutation.as_ref().map(|mutation| mutation.payload.as_str()))
    }

    fn read(json: &Json) -> Option<Self> {
        Some(Self {
            class: text(json, "class")?.parse().ok()?,
            message: text(json, "message")?,
            stack: text(json, "stack"),
            next: text(json, "next").unwrap_or_default(),
            retry_at: number(json, "retry_at"),
            mutation: text(json, "mutation").and_then(|key| {
                let payload = text(json, "asked").unwrap_or_default();
                Some(StoppedMutation { key: key.parse().ok()?, payload })
            }),
        })
    }
}

/// The failures of an item, or of runs that failed outside of any item, since a person last
/// decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Account {
    pub(crate) failures: u32,
    pub(crate) since_ms: u64,
}

impl Account {
    /// The account with one more failure, now.
    pub(crate) fn failed(self, now_ms: u64) -> Self {
        let since_ms = if self.failures == 0 { now_ms } else { self.since_ms };
        Self { failures: self.failures.saturating_add(1), since_ms }
    }

    /// The account after a failure: only transient failures count, not the times a person had to
    /// decide.
    pub(crate) fn after(self, failure: &FailureRecord, now_ms: u64) -> Self {
        match failure.class {
            Class::Transient => self.failed(now_ms),
            _ => self,
        }
    }

    pub(crate) fn spent(self, now_ms: u64) -> BudgetUsage {
        let for_ms = now_ms.saturating_sub(self.since_ms);
        BudgetUsage { failures: self.failures, for_ms, ..BudgetUsage::default() }
    }

    fn write(self, to: Object) -> Object {
        let some = |number: u64| (number > 0).then_some(number);
        to.number("failures", some(u64::from(self.failures))).number("since", some(self.since_ms))
    }

    fn read(json: &Json) -> Self {
        let count = |name: &str| number(json, name).unwrap_or_default();
        let failures = u32::try_from(count("failures")).unwrap_or(u32::MAX);
        Self { failures, since_ms: count("since") }
    }
}

/// The record of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ItemNote {
    pub(crate) workflow: String,
    pub(crate) id: String,
    pub(crate) title: String,
    /// The version of the script that took it up last.
    pub(crate) version: Version,
    pub(crate) run: Key,
    pub(crate) account: Account,
    pub(crate) failure: Option<FailureRecord>,
}

impl ItemNote {
    pub(crate) fn part(&self, whole: Key) -> Part {
        let document = Object::default()
            .text("workflow", self.workflow.as_str())
            .text("id", self.id.as_str())
            .text("title", self.title.as_str())
            .text("version", self.version.to_string().as_str())
            .text("run", self.run.to_string().as_str());
        let document = self.account.write(document);
        let document = match &self.failure {
            Some(failure) => failure.write(document),
            None => document,
        };
        Part { whole, kind: ITEM.into(), body: document.print().into_bytes() }
    }

    pub(crate) fn read(part: &Part) -> Option<Self> {
        let json = Json::parse(&part.body).ok()?;
        Some(Self {
            workflow: text(&json, "workflow")?,
            id: text(&json, "id")?,
            title: text(&json, "title")?,
            version: text(&json, "version")?.parse().ok()?,
            run: text(&json, "run")?.parse().ok()?,
            account: Account::read(&json),
            failure: FailureRecord::read(&json),
        })
    }
}

/// The record of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunNote {
    pub(crate) workflow: String,
    pub(crate) id: String,
    pub(crate) version: Version,
    pub(crate) began_ms: u64,
    /// The items it has taken up, in order; the last ones, if there are many.
    pub(crate) items: Vec<String>,
    /// How many it took up before those.
    pub(crate) unnamed: u64,
    /// The item it stopped at.
    pub(crate) item: Option<String>,
    pub(crate) log: Vec<String>,
    /// Its questions to tools and their answers, to try a repaired script against.
    pub(crate) reads: Vec<Read>,
    /// Whether there were more questions than are kept.
    pub(crate) reads_cut: bool,
    pub(crate) account: Account,
    pub(crate) failure: Option<FailureRecord>,
}

/// A read that a script requested, and the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) tool: String,
    pub(crate) operation: String,
    pub(crate) arguments: String,
    pub(crate) answer: String,
}

impl RunNote {
    /// How many items it took up.
    pub(crate) fn count(&self) -> usize {
        self.items.len() + self.unnamed as usize
    }

    pub(crate) fn part(&self, whole: Key) -> Part {
        let texts =
            |texts: &[String]| texts.iter().map(|text| Json::text(text)).collect::<Vec<_>>();
        let reads = self.reads.iter().map(|read| {
            let Read { tool, operation, arguments, answer } = read;
            Json::Array([tool, operation, arguments, answer].map(|text| Json::text(text)).to_vec())
        });
        let document = Object::default()
            .text("workflow", self.workflow.as_str())
            .text("id", self.id.as_str())
            .text("version", self.version.to_string().as_str())
            .number("began", self.began_ms)
            .list("items", texts(&self.items))
            .number("unnamed", (self.unnamed > 0).then_some(self.unnamed))
            .text("item", self.item.as_deref())
            .list("log", texts(&self.log))
            .list("reads", reads)
            .flag("reads_cut", self.reads_cut);
        let document = self.account.write(document);
        let document = match &self.failure {
            Some(failure) => failure.write(document),
            None => document,
        };
        Part { whole, kind: RUN.into(), body: document.print().into_bytes() }
    }

    pub(crate) fn read(part: &Part) -> Option<Self> {
        let json = Json::parse(&part.body).ok()?;
        Some(Self {
            workflow: text(&json, "workflow")?,
            id: text(&json, "id")?,
            version: text(&json, "version")?.parse().ok()?,
            began_ms: number(&json, "began")?,
            items: list(&json, "items", words),
            unnamed: number(&json, "unnamed").unwrap_or_default(),
            item: text(&json, "item"),
            log: list(&json, "log", words),
            reads: list(&json, "reads", |read| {
                let word = |at: usize| read.as_array()?.get(at)?.as_str().map(str::to_owned);
                Some(Read {
                    tool: word(0)?,
                    operation: word(1)?,
                    arguments: word(2)?,
                    answer: word(3)?,
                })
            }),
            reads_cut: hapax::document::flag(&json, "reads_cut"),
            account: Account::read(&json),
            failure: FailureRecord::read(&json),
        })
    }
}

/// The record of a mutation. Two mutations that are requested in the same way have the same bytes,
/// so that a replay compares without parsing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MutationNote {
    pub(crate) item: String,
    pub(crate) workflow: String,
    /// The attempt at the item that it belongs to.
    pub(crate) attempt: u32,
    pub(crate) tool: String,
    pub(crate) operation: String,
    pub(crate) subkey: Option<String>,
    pub(crate) plan: Plan,
}

impl MutationNote {
    /// The bytes of the record.
    pub(crate) fn body(mutation: &Mutation<'_>, payload: &Json) -> Result<Vec<u8>, JsonError> {
        let document = Written::default()
            .number("attempt", mutation.attempt)
            .with("identity", mutation.identity)?
            .text("item", mutation.item_id)
            .text("operation", mutation.operation)
            .with("payload", payload)?
            .text("subkey", mutation.subkey)
            .text("target", mutation.target_resource)
            .text("tool", mutation.tool)
            .text("workflow", mutation.workflow);
        Ok(document.print().into_bytes())
    }

    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let json = Json::parse(body).ok()?;
        Some(Self {
            item: text(&json, "item")?,
            workflow: text(&json, "workflow")?,
            attempt: u32::try_from(number(&json, "attempt")?).ok()?,
            tool: text(&json, "tool")?,
            operation: text(&json, "operation")?,
            subkey: text(&json, "subkey"),
            plan: Plan {
                target: text(&json, "target")?,
                identity: json.get("identity")?.clone(),
                payload: json.get("payload")?.clone(),
            },
        })
    }

    pub(crate) fn call(&self, key: Key, (attempt, fence): (AttemptId, Fence)) -> Call {
        let (operation, plan) = (self.operation.clone(), self.plan.clone());
        Call { operation, plan, key, attempt, fence }
    }

    /// The tool and the operation.
    pub(crate) fn name(&self) -> String {
        format!("{}.{}", self.tool, self.operation)
    }

    /// A short label, for people.
    pub(crate) fn label(&self) -> String {
        let label = format!("{} {}", self.name(), self.plan.target);
        label.chars().take(60).collect()
    }
}
