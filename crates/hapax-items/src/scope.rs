//! An item while its handler runs: the mutations that it may make, and those that it made before.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use hapax::document::print;
use hapax::json::Json;
use hapax::part::Part;
use hapax::{
    Blocked, Claim, Done, Failure, Finding, Fingerprint, How, Judged, Key, Outcome, State,
    StateName, Timestamp,
};
use hapax_core::key::mutation::Mutation;

use crate::applied_mutations::AppliedMutations;
use crate::class::Class;
use crate::manual_result;
use crate::note::{MUTATION, MutationNote};
use crate::run::{Run, or_never};
use crate::stop::{FollowUp, StopReason, Stopped};
use crate::tool::{Call, Difference, Tool, ToolError};

/// An item, as its handler sees it. Cheap to clone.
///
/// It closes when its handler ends. From then on a clone that was kept can change nothing. While
/// the run goes on, a call on it ends the run, like a mutation on an item that is done. Once the
/// run is over, the call changes nothing and does not return, and the record stays as it is.
#[derive(Clone)]
pub struct Item(Arc<Inner>);

struct Inner {
    run: Run,
    key: Key,
    /// The whole that the mutations of this attempt are parts of.
    whole: Key,
    id: String,
    title: String,
    attempt: u32,
    first_seen: Timestamp,
    /// Permission to work on it; none, if it is done.
    claim: Option<Claim>,
    applied: AppliedMutations,
    used: Mutex<HashSet<Key>>,
    /// One mutation at a time, so that at most one has an unknown outcome.
    turn: tokio::sync::Mutex<()>,
    /// Whether its handler has ended.
    closed: AtomicBool,
}

/// A mutation, looked up among those that are known to have been applied.
pub(crate) enum Recall {
    /// It was applied in the same way, with this result.
    Result(Arc<[u8]>),
    /// It is not among those that were read. The ledger looks it up, and perhaps the tool does.
    LookUp(Box<PlannedMutation>),
}

/// A planned mutation.
pub(crate) struct PlannedMutation {
    key: Key,
    note: MutationNote,
    part: Part,
    tool: Arc<dyn Tool>,
}

impl PlannedMutation {
    /// Adds this mutation to a failure.
    fn stopped(&self, why: StopReason) -> StopReason {
        why.at_mutation(self.key, &self.note.plan.payload)
    }
}

impl Item {
    /// An item that is being worked on.
    pub(crate) fn open(
        run: Run,
        (id, title): (&str, &str),
        (key, attempt): (Key, u32),
        first_seen: Timestamp,
        claim: Option<Claim>,
        is_new: bool,
    ) -> Self {
        let whole = of_attempt(key, attempt);
        let applied = match is_new || claim.is_none() {
            true => AppliedMutations::default(),
            false => AppliedMutations::of(run.hapax().clone(), whole),
        };
        let (id, title) = (id.to_owned(), title.to_owned());
        let (used, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        Self(Arc::new(Inner {
            run,
            key,
            whole,
            id,
            title,
            attempt,
            first_seen,
            claim,
            applied,
            used,
            turn,
            closed: AtomicBool::new(false),
        }))
    }

    pub(crate) fn run(&self) -> &Run {
        &self.0.run
    }

    /// The whole that the mutations of this attempt are parts of.
    pub(crate) fn whole(&self) -> Key {
        self.0.whole
    }

    /// Closes it once the mutation in flight has come to its end.
    pub(crate) async fn close(&self) {
        let _alone = self.0.turn.lock().await;
        self.close_now();
    }

    /// Closes it: no other mutation is begun.
    pub(crate) fn close_now(&self) {
        self.0.closed.store(true, Ordering::Release);
    }

    fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::Acquire)
    }

    /// Refuses a mutation that is requested after the handler has ended.
    fn late(&self, tool: &str, operation: &str) -> Stopped {
        let (run, id) = (&self.0.run, &self.0.id);
        let why = format!(
            "{tool}.{operation} on {id:?}, whose handler has ended: await it inside of the handler"
        );
        tracing::warn!(name: "late_mutation", workflow = run.workflow(), item = id, "{why}");
        run.stop(StopReason::logic(why).late(id))
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// Its title, for people.
    pub fn title(&self) -> &str {
        &self.0.title
    }

    /// Whether nothing may be changed for it any more: it is done, a person skipped it, or its
    /// handler has ended.
    pub fn is_done(&self) -> bool {
        self.0.claim.is_none() || self.is_closed()
    }

    /// The number of this attempt, from 1. A new attempt begins when a person requests it.
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// When it was first seen: the same time in every run.
    pub fn first_seen(&self) -> Timestamp {
        self.0.first_seen
    }

    /// The seed of the randomness, so that a replay draws the same.
    pub(crate) fn seed(&self) -> u64 {
        seed(self.0.key, self.0.attempt)
    }

    /// Calls a tool. A mutation happens once, however often the handler runs; if it fails the run
    /// is over, and this does not return.
    pub async fn call(&self, tool: &str, operation: &str, arguments: &Json) -> Json {
        or_never(self.try_call(tool, operation, arguments).await).await
    }

    async fn try_call(
        &self,
        tool: &str,
        operation: &str,
        arguments: &Json,
    ) -> Result<Json, Stopped> {
        let run = &self.0.run;
        let result = match run.tool(tool, operation)? {
            (tool, false) => return run.read(&*tool, operation, arguments).await,
            (tool, true) => match self.recall(tool, operation, arguments.clone())? {
                Recall::Result(result) => result,
                Recall::LookUp(mutation) => self.apart(mutation).await?,
            },
        };
        Json::parse(&result).map_err(|error| {
            run.stop(StopReason::logic(format!("the recorded result cannot be read: {error}")))
        })
    }

    /// Plans a mutation and looks, without waiting, whether it is known to have been applied.
    pub(crate) fn recall(
        &self,
        tool: Arc<dyn Tool>,
        operation: &str,
        arguments: Json,
    ) -> Result<Recall, Stopped> {
        let Inner { run, id, attempt, whole, .. } = &*self.0;
        if self.is_closed() {
            return Err(self.late(tool.name(), operation));
        }
        if self.is_done() {
            return Err(run.stop(StopReason::logic(format!(
                "{}.{operation} on {id:?}, which is done: return early if ctx.item.isDone",
                tool.name()
            ))));
        }
        let (subkey, arguments) = split(arguments).map_err(|why| {
            run.stop(StopReason::logic(format!("{}.{operation}: {why}", tool.name())))
        })?;
        let plan = tool.plan(operation, &arguments).map_err(|error| {
            let why = format!("{}.{operation}: {}", tool.name(), error.message);
            run.stop(StopReason::new(error.class, why))
        })?;
        let mutation = Mutation {
            namespace: run.namespace().as_str(),
            workflow: run.workflow(),
            item_id: id,
            attempt: u64::from(*attempt),
            tool: tool.name(),
            target_resource: &plan.target,
            operation,
            identity: &plan.identity,
            subkey: subkey.as_deref(),
        };
        let key = mutation.key().map_err(|error| run.stop(StopReason::logic(error.to_string())))?;
        if !self.0.used.lock().unwrap_or_else(PoisonError::into_inner).insert(key) {
            return Err(run.stop(StopReason::logic(format!(
                "a second {}.{operation} of {} for {id:?}: put both into one, or tell them apart \
                 with a `subkey` that says what each is for",
                tool.name(),
                print(&plan.identity)
            ))));
        }
        let body = MutationNote::body(&mutation, &plan.payload)
            .map_err(|error| run.stop(StopReason::logic(error.to_string())))?;
        if let Some(result) = self.0.applied.known(key, &body) {
            return Ok(Recall::Result(result));
        }
        let note = MutationNote {
            item: id.clone(),
            workflow: run.workflow().to_owned(),
            attempt: *attempt,
            tool: tool.name().to_owned(),
            operation: operation.to_owned(),
            subkey,
            plan,
        };
        let part = Part { whole: *whole, kind: MUTATION.into(), body };
        Ok(Recall::LookUp(Box::new(PlannedMutation { key, note, part, tool })))
    }

    /// Performs a mutation on a task of its own: even if the run is dropped, a mutation that has
    /// begun comes to its end and is recorded.
    async fn apart(&self, mutation: Box<PlannedMutation>) -> Result<Arc<[u8]>, Stopped> {
        let item = self.clone();
        let work = tokio::spawn(async move { item.perform(&mutation).await });
        work.await.unwrap_or_else(|error| {
            let why = format!("an attempt was cut short: {error}");
            Err(self.0.run.stop(StopReason::new(Class::Indeterminate, why)))
        })
    }

    /// Performs a mutation and returns its result, or ends the run.
    pub(crate) async fn perform(&self, mutation: &PlannedMutation) -> Result<Arc<[u8]>, Stopped> {
        let run = &self.0.run;
        let _alone = self.0.turn.lock().await;
        run.check()?;
        if self.is_closed() {
            return Err(self.late(&mutation.note.tool, &mutation.note.operation));
        }
        let Some(claim) = &self.0.claim else {
            return Err(run.stop(StopReason::logic("it is done")));
        };
        if let Some(result) = self.0.applied.find(mutation.key, &mutation.part.body).await {
            return Ok(result);
        }
        let mut ended = self.attempt_once(claim, mutation).await;
        if let Err(AttemptFailure::Blocked(blocked)) = &ended
            && blocked.state == StateName::Unknown
        {
            // An earlier run began it: look for it first, and attempt it only if it did not happen.
            if let Some(result) = self.recover(mutation).await? {
                return Ok(result);
            }
            ended = self.attempt_once(claim, mutation).await;
        }
        match ended {
            Err(AttemptFailure::Ambiguous(error)) => {
                match self.reconcile(mutation, &mutation.note).await? {
                    Some(outcome) => self.result(mutation, &outcome).await,
                    None => {
                        let why = format!("{}; it did not happen", error.message);
                        Err(run.stop(mutation.stopped(StopReason::new(Class::Transient, why))))
                    }
                }
            }
            ended => ended.map_err(|ended| run.stop(mutation.stopped(ended.why(mutation)))),
        }
    }

    /// Looks for the mutation that an earlier run sent, which may differ from the one
    /// requested now.
    async fn recover(&self, mutation: &PlannedMutation) -> Result<Option<Arc<[u8]>>, Stopped> {
        let run = &self.0.run;
        let sent = run.hapax().parts().show(mutation.key).await;
        let sent = sent.map_err(|error| run.stop(ended_by(&error)))?;
        let sent = sent.unwrap_or_else(|| mutation.part.clone());
        let note = MutationNote::read(&sent.body).unwrap_or_else(|| mutation.note.clone());
        match self.reconcile(mutation, &note).await? {
            Some(outcome) => self.accept(mutation, &sent, &outcome).await.map(Some),
            None => Ok(None),
        }
    }

    async fn attempt_once(
        &self,
        claim: &Claim,
        mutation: &PlannedMutation,
    ) -> Result<Arc<[u8]>, AttemptFailure> {
        let PlannedMutation { key, note, part, tool } = mutation;
        let timeout = self.0.run.tool_timeout();
        let mut failed = None;
        let effect = claim
            .effect(*key)
            // The tool decides whether two payloads differ, so the fingerprint covers only the key.
            .fingerprint(Fingerprint::of(key.as_bytes()))
            .safety(tool.safety(&note.operation))
            .label(note.label())
            .part(part.clone())
            .wait(Duration::ZERO);
        let done = effect
            .run(|claim| {
                let failed = &mut failed;
                async move {
                    let call = note.call(*key, (claim.attempt(), claim.fence()));
                    match mutate(&**tool, &call, &claim, timeout).await {
                        Ok(result) => Ok(Outcome::from(print(&result).as_str())),
                        Err(error) => {
                            let (class, message) = (error.class, error.message.clone());
                            *failed = Some(error);
                            Err(match class {
                                Class::Indeterminate => Failure::ambiguous(message),
                                class => Failure::not_done(format!("{class}: {message}")),
                            })
                        }
                    }
                }
            })
            .await;
        match (done, failed) {
            (Ok(Done { outcome, how: How::Executed }), _) => {
                outcome.shared_body().ok_or_else(AttemptFailure::without_result)
            }
            // It was applied with another payload, or by a holder that finished after its lease had
            // lapsed.
            (Ok(Done { outcome, .. }), _) => {
                let part =
                    self.0.run.hapax().parts().show(*key).await.map_err(AttemptFailure::Hapax)?;
                let accepted = self
                    .accept(mutation, &part.unwrap_or_else(|| mutation.part.clone()), &outcome)
                    .await;
                accepted.map_err(|_| AttemptFailure::Stopped)
            }
            (Err(hapax::Error::Blocked(blocked)), Some(error))
                if blocked.state == StateName::Unknown =>
            {
                Err(AttemptFailure::Ambiguous(error))
            }
            (Err(hapax::Error::Blocked(blocked)), _) => Err(AttemptFailure::Blocked(blocked)),
            (Err(hapax::Error::Failed { .. }), Some(error)) => Err(AttemptFailure::Failed(error)),
            (Err(error), _) => Err(AttemptFailure::Hapax(error)),
        }
    }

    /// Looks once for a mutation of unknown outcome. Returns its outcome, or none if it did not
    /// happen; if the lookup cannot decide, the run is over.
    async fn reconcile(
        &self,
        mutation: &PlannedMutation,
        sent: &MutationNote,
    ) -> Result<Option<Outcome>, Stopped> {
        let run = &self.0.run;
        let (hapax, key) = (run.hapax(), mutation.key);
        let judged = look(hapax, key, sent, Some(&*mutation.tool), run.tool_timeout()).await;
        let state = async {
            judged?;
            Ok::<_, hapax::Error>(hapax.effects().show(key).await?.map(|effect| effect.state))
        };
        match state.await {
            Ok(Some(State::Succeeded(outcome))) => Ok(Some(outcome)),
            Ok(Some(State::Failed(_)) | None) => Ok(None),
            Ok(Some(state)) => {
                let follow_up = match state.name() {
                    StateName::Unknown => FollowUp::Reconcile,
                    _ => FollowUp::ByClass,
                };
                let why = format!(
                    "{}.{}: whether it happened is not known: {}",
                    mutation.note.tool,
                    mutation.note.operation,
                    state.reason().unwrap_or("it is under way")
                );
                Err(run.stop(StopReason::new(Class::Indeterminate, why).follow_up(follow_up)))
            }
            Err(error) => Err(run.stop(ended_by(&error))),
        }
    }

    /// The result of a mutation that was applied: its own, or the one that a person gave.
    async fn result(
        &self,
        mutation: &PlannedMutation,
        outcome: &Outcome,
    ) -> Result<Arc<[u8]>, Stopped> {
        if let Some(result) = outcome.shared_body() {
            return Ok(result);
        }
        let (run, key) = (&self.0.run, mutation.key);
        let result = async {
            match run.hapax().effects().show(key).await? {
                Some(applied) => manual_result::result_of(run.hapax(), key, applied.attempt).await,
                None => Ok(None),
            }
        };
        let result = result.await.map_err(|error| run.stop(ended_by(&error)))?;
        result.ok_or_else(|| run.stop(AttemptFailure::without_result().why(mutation)))
    }

    /// Goes on with the result of a mutation that was applied, if the requested payload is
    /// close enough to the recorded one.
    async fn accept(
        &self,
        mutation: &PlannedMutation,
        before: &Part,
        outcome: &Outcome,
    ) -> Result<Arc<[u8]>, Stopped> {
        let run = &self.0.run;
        if *before == mutation.part {
            return self.result(mutation, outcome).await;
        }
        let difference = match MutationNote::read(&before.body) {
            Some(recorded) => compare(mutation, recorded).await,
            None => Difference::Significant,
        };
        if difference != Difference::Significant {
            tracing::info!(name: "payload_differs", key = %mutation.key, difference = difference.as_str(), "the call differs from the applied one; the run continues with the applied one");
            return self.result(mutation, outcome).await;
        }
        let why = format!(
            "{}.{} of {} was applied with another payload, and is not applied again",
            mutation.note.tool,
            mutation.note.operation,
            print(&mutation.note.plan.identity)
        );
        let why = StopReason::new(Class::Precondition, why).follow_up(FollowUp::Escalate);
        Err(run.stop(mutation.stopped(why)))
    }
}

/// The whole that the mutations of one attempt at an item are parts of.
pub(crate) fn of_attempt(item: Key, attempt: u32) -> Key {
    let digest = Fingerprint::of_parts(&[b"attempt.v1", item.as_bytes(), &attempt.to_be_bytes()]);
    Key::from_bytes(*digest.as_bytes())
}

/// The seed of the randomness in one attempt at an item.
pub(crate) fn seed(item: Key, attempt: u32) -> u64 {
    let whole = of_attempt(item, attempt);
    whole.as_bytes()[..8].iter().fold(0, |seed, byte| seed << 8 | u64::from(*byte))
}

/// Separates the subkey, which is for the host, from the other arguments.
pub(crate) fn split(arguments: Json) -> Result<(Option<String>, Json), String> {
    let Json::Object(mut members) = arguments else {
        return Err("the arguments of a tool are an object".into());
    };
    let subkey = members.extract_if(.., |(name, _)| name == "subkey").last();
    let subkey = match subkey {
        None => None,
        Some((_, Json::String(subkey))) if !subkey.trim().is_empty() && subkey.len() <= 512 => {
            Some(subkey)
        }
        Some(_) => return Err("a `subkey` is a text of 1 to 512 bytes".into()),
    };
    Ok((subkey, Json::Object(members)))
}

async fn mutate(
    tool: &dyn Tool,
    call: &Call,
    claim: &Claim,
    timeout: Duration,
) -> Result<Json, ToolError> {
    let work = AssertUnwindSafe(tool.mutate(call, claim)).catch_unwind();
    match tokio::time::timeout(timeout, work).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(ToolError::indeterminate("the tool panicked")),
        Err(_) => {
            let seconds = timeout.as_secs();
            Err(ToolError::indeterminate(format!("the tool did not answer within {seconds} s")))
        }
    }
}

/// Has a tool look once whether a mutation happened, and records its finding.
pub(crate) async fn look(
    hapax: &hapax::Hapax,
    key: Key,
    note: &MutationNote,
    tool: Option<&dyn Tool>,
    timeout: Duration,
) -> Result<Option<Judged>, hapax::Error> {
    let remote = hapax.remote();
    let Some(look) = remote.look(key).await? else { return Ok(None) };
    let Some(tool) = tool else {
        tracing::warn!(name: "no_such_tool", tool = note.tool, %key, "the tool of an unfinished mutation is not configured");
        let why = format!("there is no tool {:?} any more", note.tool);
        return remote.found(key, look, Finding::CannotTell(why)).await.map(Some);
    };
    let call = note.call(key, (look.attempt, look.fence));
    let work = AssertUnwindSafe(tool.reconcile(&call)).catch_unwind();
    let finding = match tokio::time::timeout(timeout, work).await {
        Ok(Ok(finding)) => finding,
        Ok(Err(_)) => Finding::CannotTell("the tool panicked".into()),
        Err(_) => Finding::CannotTell("the tool did not answer in time".into()),
    };
    remote.found(key, look, finding).await.map(Some)
}

/// How long a comparison may take.
pub(crate) const COMPARING: Duration = Duration::from_secs(1);

/// The tool's comparison of two payloads. If the tool panics or stalls, the difference is
/// significant.
async fn compare(mutation: &PlannedMutation, recorded: MutationNote) -> Difference {
    let (tool, note) = (mutation.tool.clone(), mutation.note.clone());
    let work = tokio::task::spawn_blocking(move || {
        tool.compare_payload(&note.operation, &recorded.plan.payload, &note.plan.payload)
    });
    match tokio::time::timeout(COMPARING, work).await {
        Ok(Ok(difference)) => difference,
        _ => Difference::Significant,
    }
}

/// How an attempt at a mutation ended without a result.
enum AttemptFailure {
    Failed(ToolError),
    Ambiguous(ToolError),
    Blocked(Blocked),
    Hapax(hapax::Error),
    WithoutResult,
    Stopped,
}

impl AttemptFailure {
    fn without_result() -> Self {
        Self::WithoutResult
    }

    fn why(self, mutation: &PlannedMutation) -> StopReason {
        let name = format!("{}.{}", mutation.note.tool, mutation.note.operation);
        match self {
            Self::Failed(error) | Self::Ambiguous(error) => {
                StopReason::new(error.class, format!("{name}: {}", error.message))
            }
            Self::Blocked(blocked) => StopReason::new(
                Class::Indeterminate,
                format!("{name}: whether it happened is not known: {}", blocked.reason),
            ),
            Self::WithoutResult => StopReason::new(
                Class::Indeterminate,
                format!("{name} was applied, and its result was too large to keep"),
            ),
            Self::Hapax(error) => ended_by(&error),
            // The reason was recorded before.
            Self::Stopped => StopReason::logic("the run is over"),
        }
    }
}

/// Why a run ends after an error of the ledger.
pub(crate) fn ended_by(error: &hapax::Error) -> StopReason {
    match error {
        hapax::Error::Refused { .. } => {
            StopReason::new(Class::Precondition, error.to_string()).follow_up(FollowUp::Escalate)
        }
        _ => StopReason::new(Class::Transient, format!("the ledger: {error}")),
    }
}
