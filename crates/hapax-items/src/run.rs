//! A run of a workflow: one item after the other, until it is over.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt as _;
use hapax::document::print;
use hapax::json::Json;
use hapax::part::Part;
use hapax::{Claim, Effect, Hapax, How, Key, Namespace, Outcome, Safety, State, Timestamp};

use hapax_core::outcome::Cause;

use crate::identity;
use crate::note::{Account, FailureRecord, ItemNote, Read, RunNote};
use crate::route::{BudgetUsage, NextStep, route};
use crate::sandbox;
use crate::scope::{Item, ended_by};
use crate::service::{Items, Settings};
use crate::stop::{Brake, FollowUp, StopReason, Stopped};
use crate::tool::{Tool, operations};
use crate::version::Version;

tokio::task_local! {
    /// Set while a handler runs: a handler that begins another item would wait for itself.
    static INSIDE: ();
}

/// A run, as seen by the program that does the work. Cheap to clone.
///
/// It closes when the work has come to its end, and with it the items that were taken up. A later
/// call on a clone does nothing, and does not return.
#[derive(Clone)]
pub struct Run(Arc<Inner>);

struct Inner {
    settings: Arc<Settings>,
    hapax: Hapax,
    /// The whole that the items and runs of this workflow are parts of.
    whole: Key,
    claim: Claim,
    key: Key,
    version: Version,
    maintained: bool,
    /// The tools that the workflow may use.
    tools: BTreeMap<String, Arc<dyn Tool>>,
    /// Repairs of this version that were tried lately, and their cost.
    repaired: (u32, u64),
    brake: Brake,
    calls: AtomicU64,
    /// One item at a time.
    gate: tokio::sync::Mutex<()>,
    note: Mutex<RunNote>,
}

/// The parts to build a run from.
pub(crate) struct RunStart {
    pub(crate) items: Items,
    pub(crate) settings: Arc<Settings>,
    pub(crate) claim: Claim,
    pub(crate) whole: Key,
    pub(crate) note: RunNote,
    pub(crate) repaired: (u32, u64),
}

/// How many lines and bytes of its log a run keeps.
const LOG: (usize, usize) = (200, 32 * 1024);

/// How many bytes of questions and answers a run keeps.
const READS: usize = 1024 * 1024;

/// How many items a run names.
const NAMED: usize = 1_000;

impl Run {
    pub(crate) fn begin(beginning: RunStart) -> Self {
        let RunStart { items, settings, claim, whole, note, repaired } = beginning;
        let (hapax, key, version) = (items.hapax().clone(), claim.key(), note.version);
        Self(Arc::new(Inner {
            maintained: settings.maintainer.is_some(),
            tools: items.tools_of(&settings),
            settings,
            hapax,
            whole,
            claim,
            key,
            version,
            repaired,
            brake: Brake::default(),
            calls: AtomicU64::new(0),
            gate: tokio::sync::Mutex::default(),
            note: Mutex::new(note),
        }))
    }

    /// The workflow.
    pub fn workflow(&self) -> &str {
        &self.0.settings.name
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        self.0.hapax.namespace()
    }

    pub(crate) fn hapax(&self) -> &Hapax {
        &self.0.hapax
    }

    /// How long a tool may take.
    pub(crate) fn tool_timeout(&self) -> Duration {
        self.0.settings.tool_timeout
    }

    pub(crate) fn brake(&self) -> &Brake {
        &self.0.brake
    }

    pub(crate) fn check(&self) -> Result<(), Stopped> {
        self.0.brake.check()
    }

    pub(crate) fn stop(&self, why: StopReason) -> Stopped {
        self.0.brake.pull(why)
    }

    /// Closes the run once the items that were taken up have come to their end.
    pub(crate) async fn close(&self) -> Result<(), Stopped> {
        let _alone = self.0.gate.lock().await;
        self.0.brake.close()
    }

    pub(crate) fn note(&self) -> MutexGuard<'_, RunNote> {
        self.0.note.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a line into the run's log, which people and maintainers read.
    pub fn log(&self, line: &str) {
        let mut note = self.note();
        let line: String = line.chars().take(2_000).collect();
        tracing::info!(name: "script", workflow = self.workflow(), %line);
        note.log.push(line);
        while note.log.len() > LOG.0 || note.log.iter().map(String::len).sum::<usize>() > LOG.1 {
            note.log.remove(0);
        }
    }

    /// A tool that the workflow may use, and whether this operation changes anything.
    pub(crate) fn tool(
        &self,
        tool: &str,
        operation: &str,
    ) -> Result<(Arc<dyn Tool>, bool), Stopped> {
        self.check()?;
        let calls = self.0.settings.limits.calls;
        if self.0.calls.fetch_add(1, Ordering::Relaxed) >= calls {
            return Err(self.stop(StopReason::logic(format!("more than {calls} calls of tools"))));
        }
        let found = self.0.tools.get(tool).cloned();
        let found = found.ok_or_else(|| self.stop(StopReason::logic(format!("no tool {tool}"))))?;
        let known = found.operations().iter().find(|known| known.name == operation);
        let mutates = known.map(|known| known.mutates).ok_or_else(|| {
            self.stop(StopReason::logic(format!("{tool} has no operation {operation:?}")))
        })?;
        Ok((found, mutates))
    }

    /// A tool that the workflow may use, if there is one of this name.
    pub(crate) fn known_tool(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.0.tools.get(name).cloned()
    }

    /// The tools that the workflow may use, with their operations.
    pub(crate) fn tools(&self) -> sandbox::Tools {
        operations(&self.0.tools)
    }

    /// Calls a tool outside of any item: only to read. If the call fails, the run is over, and this
    /// does not return.
    pub async fn call(&self, tool: &str, operation: &str, arguments: &Json) -> Json {
        let answer = async {
            match self.tool(tool, operation)? {
                (tool, false) => self.read(&*tool, operation, arguments).await,
                (_, true) => Err(self.stop(outside(tool, operation))),
            }
        };
        or_never(answer.await).await
    }

    pub(crate) async fn read(
        &self,
        tool: &dyn Tool,
        operation: &str,
        arguments: &Json,
    ) -> Result<Json, Stopped> {
        let work = AssertUnwindSafe(tool.read(operation, arguments)).catch_unwind();
        let name = format!("{}.{operation}", tool.name());
        let answer = match tokio::time::timeout(self.tool_timeout(), work).await {
            Ok(Ok(Ok(answer))) => answer,
            Ok(Ok(Err(error))) => {
                return Err(
                    self.stop(StopReason::new(error.class, format!("{name}: {}", error.message)))
                );
            }
            Ok(Err(_)) => return Err(self.stop(StopReason::logic(format!("{name} panicked")))),
            Err(_) => {
                let why = format!("{name} did not answer in time");
                return Err(self.stop(StopReason::new(crate::Class::Transient, why)));
            }
        };
        let read = Read {
            tool: tool.name().to_owned(),
            operation: operation.to_owned(),
            arguments: print(arguments),
            answer: print(&answer),
        };
        let mut note = self.note();
        let size = |read: &Read| read.arguments.len() + read.answer.len();
        match note.reads.iter().map(size).sum::<usize>() + size(&read) > READS {
            true => note.reads_cut = true,
            false => note.reads.push(read),
        }
        drop(note);
        Ok(answer)
    }

    /// Works on one item. The handler always runs; [`Item::is_done`] tells it whether there is
    /// anything to do. Items run one at a time, and none inside another.
    ///
    /// Any error ends the run: there is no error to catch, and this does not return.
    pub async fn with_item<F, Fut, E>(&self, id: &str, title: &str, handler: F) -> Json
    where
        F: FnOnce(Item) -> Fut,
        Fut: Future<Output = Result<Json, E>>,
        E: std::fmt::Display,
    {
        let handler = |item| async {
            handler(item).await.map_err(|error| self.stop(StopReason::logic(error.to_string())))
        };
        or_never(self.try_item(id, title, handler).await).await
    }

    pub(crate) async fn try_item<F, Fut>(
        &self,
        id: &str,
        title: &str,
        handler: F,
    ) -> Result<Json, Stopped>
    where
        F: FnOnce(Item) -> Fut,
        Fut: Future<Output = Result<Json, Stopped>>,
    {
        self.check()?;
        if INSIDE.try_with(|()| ()).is_ok() {
            return Err(self.stop(nested(id)));
        }
        let sizes = [("id", id, 1), ("title", title, 0)];
        if let Some((what, _, _)) =
            sizes.iter().find(|(_, text, least)| text.len() > 512 || text.trim().len() < *least)
        {
            let why =
                format!("the {what} of an item has at most 512 bytes, and an id is not empty");
            return Err(self.stop(StopReason::logic(why)));
        }
        let _alone = self.0.gate.lock().await;
        self.check()?;
        let _open = self.0.brake.open();
        let worked = Box::pin(self.work(id, title, handler)).await;
        worked.unwrap_or_else(|error| Err(self.stop(ended_by(&error))))
    }

    async fn work<F, Fut>(
        &self,
        id: &str,
        title: &str,
        handler: F,
    ) -> Result<Result<Json, Stopped>, hapax::Error>
    where
        F: FnOnce(Item) -> Fut,
        Fut: Future<Output = Result<Json, Stopped>>,
    {
        let inner = &*self.0;
        let key = identity::item(self.namespace(), self.workflow(), id)
            .map_err(|error| hapax::Error::Refused { reason: error.to_string() })?;
        self.name_item(id);
        let before = inner.hapax.parts().show(key).await?;
        let account = match &before {
            Some(part) => self.account(key, part).await?,
            None => Account::default(),
        };
        let note = ItemNote {
            workflow: self.workflow().to_owned(),
            id: id.to_owned(),
            title: title.to_owned(),
            version: inner.version,
            run: inner.key,
            account,
            failure: None,
        };
        let mut handler = Some(handler);
        let mut answer = Ok(Json::Null);
        let effect = inner
            .claim
            .effect(key)
            .payload(id.as_bytes())
            .safety(Safety::Transactional)
            .label(title.chars().take(60).collect::<String>())
            .part(note.part(inner.whole))
            .wait(Duration::ZERO);
        let is_new = before.is_none();
        let (handler_of, answer_of) = (&mut handler, &mut answer);
        let done = effect
            .run(|claim| async move {
                let first = claim.nth() == 1 && is_new;
                let (attempt, seen) = self.seen(key).await?;
                let item = Item::open(
                    self.clone(),
                    (id, title),
                    (key, attempt),
                    seen,
                    Some(claim.clone()),
                    first,
                );
                let Some(handler) = handler_of.take() else { return Ok(Outcome::from("null")) };
                let mut handled = self.handle(handler, item.clone()).await;
                // Before the first run of an item, no mutation can be unfinished.
                if handled.is_ok() && !first {
                    handled = item.settle_unfinished(&claim).await.and(handled);
                }
                match handled {
                    Ok(value) => {
                        let outcome = Outcome::from(print(&value).as_str());
                        *answer_of = Ok(value);
                        Ok(outcome)
                    }
                    Err(stopped) => {
                        *answer_of = Err(stopped);
                        // The item did not fail: the failure is the run's, and the next run takes
                        // the item up.
                        if let Some(other) = self.late() {
                            let why = format!("broken off by a late call for {other:?}");
                            return Err(hapax::Failure::not_done(why));
                        }
                        let (failure, escalated) = self.failed(account);
                        let account = account.after(&failure, now_ms());
                        self.note().failure = Some(failure.clone());
                        let reason = format!("{}: {}", failure.class, failure.message);
                        let note = ItemNote { account, failure: Some(failure), ..note };
                        claim.keep(note.part(inner.whole));
                        Err(match escalated {
                            true => hapax::Failure::partial(reason),
                            false => hapax::Failure::not_done(reason),
                        })
                    }
                }
            })
            .await;
        match (done, handler) {
            // It is done or skipped: the handler runs all the same, and may change nothing.
            (Ok(hapax::Done { how: How::Replayed, .. }), Some(handler))
            | (Err(hapax::Error::Refused { .. }), Some(handler)) => {
                let (attempt, seen) = self.seen(key).await?;
                let item = Item::open(self.clone(), (id, title), (key, attempt), seen, None, false);
                Ok(self.handle(handler, item).await)
            }
            (Ok(_), _) => Ok(answer),
            (Err(hapax::Error::Blocked(blocked)), Some(_)) => {
                let why = format!("item {id:?} waits for a person to decide: {}", blocked.reason);
                let why =
                    StopReason::new(crate::Class::Indeterminate, why).follow_up(FollowUp::Wait);
                Ok(Err(self.stop(why)))
            }
            (Err(hapax::Error::Failed { .. } | hapax::Error::Blocked(_)), None)
                if answer.is_err() =>
            {
                Ok(answer)
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Runs a handler until it, or the run, is over.
    async fn handle<F, Fut>(&self, handler: F, item: Item) -> Result<Json, Stopped>
    where
        F: FnOnce(Item) -> Fut,
        Fut: Future<Output = Result<Json, Stopped>>,
    {
        // Closes the item even if the handler panics or the waiting caller is dropped.
        let _closes = CloseOnDrop(&item);
        let work = AssertUnwindSafe(INSIDE.scope((), handler(item.clone()))).catch_unwind();
        let work = async {
            let result = work.await;
            item.close().await;
            result
        };
        let result = tokio::select! {
            biased;
            () = self.0.brake.pulled() => return Err(Stopped(())),
            result = work => result,
        };
        match result {
            Ok(result) => self.check().and(result),
            Err(_) => Err(self.stop(StopReason::logic("the handler panicked"))),
        }
    }

    /// The number of the current attempt at an item, and when the item was first seen.
    async fn seen(&self, key: Key) -> Result<(u32, Timestamp), hapax::Error> {
        let effect = self.0.hapax.effects().show(key).await?;
        let effect = effect.ok_or_else(|| hapax::Error::Refused {
            reason: "the item vanished while it was being worked on".into(),
        })?;
        Ok((effect.generation, effect.created))
    }

    /// The failures of an item since a person last decided.
    async fn account(&self, key: Key, part: &Part) -> Result<Account, hapax::Error> {
        let by_itself = |effect: &Effect| match &effect.state {
            State::Failed(failure) => !matches!(failure.cause, Cause::Resolved | Cause::Reset),
            _ => true,
        };
        let effect = self.0.hapax.effects().show(key).await?;
        let counts = effect.is_some_and(|effect| by_itself(&effect));
        let note = ItemNote::read(part).filter(|_| counts);
        Ok(note.map(|note| note.account).unwrap_or_default())
    }

    /// The item of a late call, after its handler had ended, if that is why the run is over.
    pub(crate) fn late(&self) -> Option<String> {
        self.0.brake.why().and_then(|why| why.late)
    }

    /// The record of a failure, and whether it is escalated.
    pub(crate) fn failed(&self, account: Account) -> (FailureRecord, bool) {
        let unknown = || StopReason::logic("the run ended without a reason");
        let why = self.0.brake.why().unwrap_or_else(unknown);
        let now = now_ms();
        let (repairs, cost) = self.0.repaired;
        let spent = BudgetUsage { repairs, cost, ..account.failed(now).spent(now) };
        let settings = &self.0.settings;
        let (next, retry_at) = match why.follow_up {
            FollowUp::Wait => ("wait", None),
            FollowUp::Reconcile => ("reconcile", None),
            FollowUp::Escalate => ("escalate", None),
            FollowUp::ByClass => match route(why.class, spent, &settings.budget, self.0.maintained)
            {
                next @ NextStep::Retry { within_ms } => {
                    let dice = hapax::remote::random_id().map_or(u128::MAX, u128::from_be_bytes);
                    let within = (dice % u128::from(within_ms.max(1))) as u64;
                    (next.as_str(), Some(now + within))
                }
                next => (next.as_str(), None),
            },
        };
        let StopReason { class, message, stack, mutation, .. } = why;
        let next = next.to_owned();
        let escalated = next == "escalate";
        let failure = FailureRecord { class, message, stack, next, retry_at, mutation };
        (failure, escalated)
    }

    fn name_item(&self, id: &str) {
        let mut note = self.note();
        note.item = Some(id.to_owned());
        note.items.push(id.to_owned());
        if note.items.len() > NAMED {
            note.items.remove(0);
            note.unnamed += 1;
        }
    }

    /// Notes that the run is between two items.
    pub(crate) fn leave_item(&self) {
        self.note().item = None;
    }
}

/// Closes an item when it is dropped.
struct CloseOnDrop<'a>(&'a Item);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close_now();
    }
}

/// The value, or a future that never ends: the waiting code is dropped with the run.
pub(crate) async fn or_never<T>(result: Result<T, Stopped>) -> T {
    match result {
        Ok(value) => value,
        Err(Stopped(())) => std::future::pending().await,
    }
}

pub(crate) fn outside(tool: &str, operation: &str) -> StopReason {
    StopReason::logic(format!("{tool}.{operation} outside of any item: wrap it in withItem"))
}

pub(crate) fn nested(id: &str) -> StopReason {
    StopReason::logic(format!(
        "withItem({id:?}) inside of another withItem: one item after the other"
    ))
}

pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |past| past.as_millis() as u64)
}
