//! The report of an attempt: what it carries (events, a note, other data), and how it is sent until the
//! ledger has answered.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::effect::{Blocked, Effect, Fenced, Report, Settled, State};
use hapax_core::name::Name;
use hapax_core::outbox::Event;
use hapax_core::outcome::{Cause, Outcome};
use hapax_core::part::Part;
use hapax_core::planted::{Bug, planted};
use hapax_core::result_index::IndexEntry;
use hapax_core::retry::Backoff;
use hapax_store::failpoint::{Point, pass};
use hapax_store::outbox::{Attachments, Emission};
use hapax_store::{StoreError, command, read};
use tokio::time::Instant;

use crate::cache::AskedAt;
use crate::claim::{Claim, report_later};
use crate::effect::{Done, EffectBuilder, How};
use crate::engine::{Inner, random};
use crate::error::{Error, Failure, FailureKind, WorkResult};
use crate::spool;

/// The pauses between two tries to record a report.
const SETTLE_RETRIES: Backoff = Backoff { base_ms: 20, cap_ms: 2_000, attempts: u32::MAX };

/// How long a report waits for its answer before it is kept in a file.
const SOON: Duration = Duration::from_secs(2);

/// A report that the ledger did not record.
pub(crate) struct NotRecorded {
    pub(crate) error: StoreError,
    /// The file that keeps it.
    kept: Option<PathBuf>,
}

/// The emissions of an attempt so far.
#[derive(Default)]
pub(crate) struct CollectedAttachments(Mutex<Attachments>);

impl CollectedAttachments {
    fn lock(&self) -> MutexGuard<'_, Attachments> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The emissions to record with the outcome.
    pub(crate) fn waiting(&self) -> Attachments {
        self.lock().clone()
    }

    /// The emissions to record when there is no outcome: only the part.
    pub(crate) fn in_any_case(&self) -> Attachments {
        Attachments { part: self.lock().part.clone(), ..Attachments::default() }
    }
}

impl Claim {
    /// Emits an event. It is recorded in the transaction that settles the effect, and delivered
    /// afterwards to every sink it is routed to. If the effect does not succeed, no event is recorded.
    pub fn emit(&self, event: Event) -> Result<(), Error> {
        let events = &mut self.attachments.lock().events;
        let ordinal = events.len() as u32;
        events.push(Emission { ordinal, event });
        Ok(())
    }

    /// Replaces all events emitted so far, for work that is done anew within one attempt.
    pub fn emit_instead(&self, events: Vec<Event>) {
        let emission = |(ordinal, event)| Emission { ordinal, event };
        self.attachments.lock().events = (0..).zip(events).map(emission).collect();
    }

    /// Adds the outcome to the result index, as a result that may be forgotten. It is recorded only
    /// if it was made from the present version of its ontology.
    pub fn index_result(&self, entry: IndexEntry) {
        self.attachments.lock().index_entry = Some(entry);
    }

    /// The data to keep of this part, whatever the result. See
    /// [`Hapax::parts`](crate::Hapax::parts).
    pub fn keep(&self, part: Part) {
        self.attachments.lock().part = Some(part);
    }

    /// A note for the journal entry of a success: at most 64 KiB. A later note replaces an earlier one.
    pub fn note(&self, note: impl Into<String>) {
        self.attachments.lock().note = Some(note.into());
    }
}

/// Reports a result, and retries while the store cannot be reached: the same attempt may report
/// twice without harm. After the first failure the report is kept in a file. When it takes too long, the
/// caller gets the error and the report goes on in the background.
pub(crate) async fn settle(
    inner: &Arc<Inner>,
    name: &Name,
    (attempt, fence): (AttemptId, Fence),
    report: Report,
    attachments: Attachments,
) -> Result<Settled, NotRecorded> {
    let fence = Some(fence);
    let command = command::Settle { name: name.clone(), attempt, fence, report, attachments };
    let deadline = Instant::now() + inner.record_within;
    let mut kept = None;
    for nth in 1.. {
        let asked = match pass(Point::SettleAsk) {
            Ok(()) => ask(inner, &command, deadline, &mut kept).await,
            Err(error) => Err(error),
        };
        match asked.and_then(|answer| pass(Point::SettleAnswered).map(|()| answer)) {
            Ok(settled) => {
                spool::remove(kept.as_deref());
                return Ok(settled);
            }
            Err(error) if spool::is_of_the_store(&error) => {
                if kept.is_none() {
                    kept = spool::keep(inner, &command).await;
                }
                if !error.is_transient() {
                    return Err(NotRecorded { error, kept });
                }
                let dice = random().map_or(u64::MAX, u64::from_be_bytes);
                let pause = SETTLE_RETRIES.delay_ms(nth, dice).unwrap_or(SETTLE_RETRIES.cap_ms);
                let next = Instant::now() + Duration::from_millis(pause);
                if next >= deadline {
                    report_later(inner, command, kept.clone());
                    return Err(NotRecorded { error, kept });
                }
                tracing::warn!(name: "outcome_not_recorded_yet", %error, key = %name.key, "recording the outcome failed; retrying");
                tokio::time::sleep_until(next).await;
            }
            Err(error) => return Err(NotRecorded { error, kept }),
        }
    }
    let error = StoreError::Unavailable("gave up settling".into());
    Err(NotRecorded { error, kept })
}

/// Sends a report once, and waits for the answer until the deadline. After that the
/// report may still be carried out.
/// A report that is not answered soon is kept in a file.
async fn ask(
    inner: &Inner,
    command: &command::Settle,
    deadline: Instant,
    kept: &mut Option<PathBuf>,
) -> Result<Settled, StoreError> {
    let mut answer = std::pin::pin!(inner.ask(command.clone()));
    loop {
        let soon = (Instant::now() + SOON).min(deadline);
        match tokio::time::timeout_at(soon, &mut answer).await {
            Ok(answer) => return answer,
            Err(_) if soon == deadline => {
                return Err(StoreError::CommitUnknown("the store has not answered".into()));
            }
            Err(_) => {
                if kept.is_none() {
                    *kept = spool::keep(inner, command).await;
                }
                tracing::warn!(name: "outcome_not_recorded_yet", key = %command.name.key, "the store does not answer; waiting until the outcome is recorded");
            }
        }
    }
}

/// The error of an attempt whose work ended like this, and could not be reported.
fn unrecorded(claim: &Claim, result: WorkResult, not: NotRecorded) -> Error {
    let NotRecorded { error, kept } = not;
    match spool::is_of_the_store(&error) {
        true => Error::Unrecorded { result, attempt: claim.attempt(), kept, error },
        false => error.into(),
    }
}

/// # How it went
impl EffectBuilder {
    pub(crate) async fn succeed(&self, claim: &Claim, outcome: Outcome) -> Result<Done, Error> {
        let inner = &self.hapax.inner;
        if claim.settled_in() {
            return match self.committed(claim).await? {
                Some(done) => Ok(done),
                None => {
                    let reason = "settled in a transaction that was rolled back".into();
                    let (report, none) = (Report::Failed(reason), Attachments::default());
                    let settled = settle(inner, &self.name, claim.by(), report, none).await;
                    settled.map_err(|not| unrecorded(claim, WorkResult::Failed, not))?;
                    Err(Error::NotCommitted)
                }
            };
        }
        let outcome = outcome.within(inner.keep_limit);
        let report = Report::Succeeded(outcome.clone());
        let asked = inner.cache.asked();
        if planted(Bug::RememberBeforeSettle) {
            self.remember(asked, outcome.clone());
        }
        let attachments = claim.attachments.waiting();
        let emits = !attachments.events.is_empty();
        match settle(inner, &self.name, claim.by(), report, attachments).await {
            Ok(Settled::Fenced(fenced)) => Err(Error::Fenced(fenced)),
            Ok(Settled::Outdated(mismatch)) => Err(Error::Epoch(mismatch)),
            Ok(Settled::Recorded | Settled::Repeated) => {
                if emits {
                    inner.emitted.notify_one();
                }
                Ok(self.remember(asked, outcome))
            }
            // The result is of no use any more, and another caller may make a new one at once.
            Err(NotRecorded { error: error @ StoreError::Superseded(_), .. }) => {
                let _ = self.fail(claim, Failure::not_done(error.to_string())).await;
                Err(error.into())
            }
            // The effect happened, and cannot be recorded with its events.
            Err(NotRecorded {
                error:
                    error @ (StoreError::Unrouted { .. }
                    | StoreError::Differs(_)
                    | StoreError::Republished { .. }
                    | StoreError::Guarded { .. }
                    | StoreError::Invalid(_)),
                ..
            }) => {
                let failure = Failure::ambiguous(format!("its events were refused: {error}"));
                let _ = self.fail(claim, failure).await;
                Err(error.into())
            }
            Err(not) => Err(unrecorded(claim, WorkResult::Succeeded, not)),
        }
    }

    /// The outcome that a caller's transaction has committed, if it has.
    async fn committed(&self, claim: &Claim) -> Result<Option<Done>, Error> {
        let asked = self.hapax.inner.cache.asked();
        let effect = self
            .load_after(claim, WorkResult::Ambiguous)
            .await?
            .filter(|effect| effect.attempt == claim.attempt());
        Ok(effect.and_then(|effect| match effect.state {
            State::Succeeded(outcome) => {
                self.hapax.inner.emitted.notify_one();
                Some(self.remember(asked, outcome))
            }
            _ => None,
        }))
    }

    fn remember(&self, asked: AskedAt, outcome: Outcome) -> Done {
        self.keep(asked, &outcome, self.ttl);
        Done { outcome, how: How::Executed }
    }

    /// Caches an outcome, unless it counts in one epoch only.
    pub(crate) fn keep(&self, asked: AskedAt, outcome: &Outcome, ttl: Option<Duration>) {
        if self.bound.is_none() {
            let cache = &self.hapax.inner.cache;
            cache.put(asked, &self.name, self.fingerprint, outcome.clone(), ttl);
        }
    }

    pub(crate) async fn fail(&self, claim: &Claim, failure: Failure) -> Result<Done, Error> {
        if claim.settled_in()
            && let Some(done) = self.committed(claim).await?
        {
            return Ok(done);
        }
        let reason = failure.reason;
        let did_not_happen = failure.kind == FailureKind::NotDone;
        let report = match failure.kind {
            FailureKind::NotDone => Report::Failed(reason.clone()),
            FailureKind::Partial => Report::Partial(reason.clone()),
            FailureKind::Ambiguous if planted(Bug::AmbiguousIsFailure) => {
                Report::Failed(reason.clone())
            }
            FailureKind::Ambiguous => Report::Ambiguous(reason.clone()),
        };
        let (inner, result) = (&self.hapax.inner, WorkResult::of(&report));
        let attachments = claim.attachments.in_any_case();
        let settled = settle(inner, &self.name, claim.by(), report, attachments).await;
        match settled.map_err(|not| unrecorded(claim, result, not))? {
            Settled::Fenced(fenced) => Err(Error::Fenced(fenced)),
            Settled::Outdated(mismatch) => Err(Error::Epoch(mismatch)),
            Settled::Recorded | Settled::Repeated => {
                self.after_failure(claim, reason, (result, did_not_happen)).await
            }
        }
    }

    /// The answer to a caller whose failure is recorded. A reconciler, an operator or another attempt may have
    /// changed the record since, and only a record of this attempt says that nothing happened.
    async fn after_failure(
        &self,
        claim: &Claim,
        reason: String,
        (result, did_not_happen): (WorkResult, bool),
    ) -> Result<Done, Error> {
        let reset = |effect: &Effect| matches!(&effect.state, State::Failed(failure) if failure.cause == Cause::Reset);
        let effect = match self.load_after(claim, result).await? {
            Some(effect) if effect.attempt == claim.attempt() && !reset(&effect) => effect,
            _ if did_not_happen => return Err(Error::Failed { reason }),
            other => return Err(Error::Fenced(Fenced::by(other.as_ref()))),
        };
        Err(match effect.state {
            State::Succeeded(outcome) => return Ok(Done { outcome, how: How::Replayed }),
            State::Failed(failure) => Error::Failed { reason: failure.reason },
            State::Skipped { reason } => {
                Error::Refused { reason: format!("an operator skipped it: {reason}") }
            }
            _ => Error::Blocked(Blocked::by(&effect)),
        })
    }

    /// The record, after work that ended like this.
    async fn load_after(&self, claim: &Claim, result: WorkResult) -> Result<Option<Effect>, Error> {
        self.load().await.map_err(|error| match error {
            Error::Store(error) => unrecorded(claim, result, NotRecorded { error, kept: None }),
            other => other,
        })
    }

    pub(crate) async fn load(&self) -> Result<Option<Effect>, Error> {
        let name = self.name.clone();
        let mut effects = read(&*self.hapax.inner.store, move |view| view.effects(&[name])).await?;
        Ok(effects.pop().flatten())
    }

    /// The reported failure of the attempt that was waited for, unless another attempt was made since.
    pub(crate) async fn failed_as(&self, attempt: AttemptId) -> Result<(), Error> {
        match self.load().await? {
            Some(Effect { state: State::Failed(failure), attempt: last, .. })
                if last == attempt && failure.cause == Cause::Reported =>
            {
                Err(Error::Failed { reason: failure.reason })
            }
            _ => Ok(()),
        }
    }
}
