//! The life of one effect: every state, every transition, in one place.
//!
//! ```text
//!  absent ──claim──▶ running ──settle──▶ succeeded
//!                     │ │ └────────────▶ failed ──claim──▶ running (a new attempt)
//!                     │ └──────────────▶ partial ──rolled back──▶ failed
//!                     └──lapsed, or the holder cannot say──▶ by safety class:
//!                          transactional ▶ failed
//!                          reconcilable  ▶ unknown ──reconcile──▶ succeeded | failed
//!                                             └──(limit)──▶ indeterminate
//!                          opaque        ▶ indeterminate ──a person──▶ succeeded | failed | skipped
//! ```
//!
//! Each function takes the current record and returns a value: the caller's answer, and the change
//! to write, if any. An answer that refuses writes nothing. Stores load, ask and write; they never
//! decide.

use crate::attempt::{AttemptId, Fence};
use crate::epoch::{Bound, Mismatch};
use crate::fingerprint::Fingerprint;
use crate::journal::EntryKind;
use crate::lease::{Lease, LeaseId, Liveness, Pulse};
use crate::lock::LockKey;
use crate::outcome::{Cause, Failure, MAX_REASON, Outcome, bounded, cut};
use crate::part::Part;
use crate::planted::{Bug, planted};
pub use crate::safety::{Safety, Settling};
use crate::time::{LeaseInstant, Now, Timestamp};

mod reconcile;

pub use reconcile::{Finding, MAX_TRIES, reconcile};

pub use crate::verdict::{Blocked, Fenced, Grant, Judged, Seen, Settled, Verdict};

/// One effect as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// The digest of the payload.
    pub fingerprint: Fingerprint,
    /// The consequence of a vanished holder.
    pub safety: Safety,
    /// The lock that serialises it.
    pub lock: Option<LockKey>,
    /// The epoch it counts in; in every one unless given.
    pub bound: Option<Bound>,
    /// Its label, for people.
    pub label: Option<String>,
    /// How long it is remembered once settled; for ever unless given.
    pub ttl_ms: Option<u64>,
    /// Starts at 1; the grant after a reset or an expiry begins the next.
    pub generation: u32,
    /// How many attempts this generation has seen.
    pub attempts: u32,
    /// The newest attempt.
    pub attempt: AttemptId,
    /// The newest attempt's fence.
    pub fence: Fence,
    /// When the record was made.
    pub created: Timestamp,
    /// When it last changed.
    pub updated: Timestamp,
    /// Its state.
    pub state: State,
}

/// The state of an effect. Data that only one state has lives inside that state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// A holder has permission and may be at work.
    Running {
        /// The lease that the permission depends on.
        lease: LeaseId,
        /// Its own deadline, if it has one.
        deadline: Option<LeaseInstant>,
    },
    /// It happened.
    Succeeded(Outcome),
    /// It is known not to have happened.
    Failed(Failure),
    /// Some of it happened; a rollback is owed.
    Partial {
        /// Why, for people.
        reason: String,
    },
    /// It may have happened.
    Unknown {
        /// Why, for people.
        reason: String,
        /// When the holder could last have sent anything.
        since: LeaseInstant,
        /// How often a reconciler could not tell.
        tries: u32,
    },
    /// No process can tell. A person decides.
    Indeterminate {
        /// Why, for people.
        reason: String,
    },
    /// A person skipped it.
    Skipped {
        /// Why, for people.
        reason: String,
    },
}

/// The name of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is documented at the state of its name")]
pub enum StateName {
    Running,
    Succeeded,
    Failed,
    Partial,
    Unknown,
    Indeterminate,
    Skipped,
}

impl StateName {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 7] = [
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Partial,
        Self::Unknown,
        Self::Indeterminate,
        Self::Skipped,
    ];

    /// The states that need attention, in the order of their codes.
    pub const NEEDING_ATTENTION: [Self; 3] = [Self::Partial, Self::Unknown, Self::Indeterminate];

    /// The state with this code in a database or a journal entry.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// The state with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Its code in a database or a journal entry.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Partial => "partial",
            Self::Unknown => "unknown",
            Self::Indeterminate => "indeterminate",
            Self::Skipped => "skipped",
        }
    }

    /// A settled record may expire; nothing is owed for it.
    pub fn is_settled(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Skipped)
    }

    /// Whether the effect waits for a reconciler, a rollback or a person.
    pub fn needs_attention(self) -> bool {
        Self::NEEDING_ATTENTION.contains(&self)
    }

    /// Whether its holder may still report; the end of its epoch voids an effect in such a state.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Running | Self::Unknown | Self::Indeterminate)
    }

    /// Whether a lock is kept in this state.
    pub fn keeps_lock(self) -> bool {
        !self.is_settled()
    }
}

impl std::fmt::Display for StateName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl State {
    /// The name of this state.
    pub fn name(&self) -> StateName {
        match self {
            Self::Running { .. } => StateName::Running,
            Self::Succeeded(_) => StateName::Succeeded,
            Self::Failed(_) => StateName::Failed,
            Self::Partial { .. } => StateName::Partial,
            Self::Unknown { .. } => StateName::Unknown,
            Self::Indeterminate { .. } => StateName::Indeterminate,
            Self::Skipped { .. } => StateName::Skipped,
        }
    }

    /// The reason for the state, for people, if there is one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Running { .. } | Self::Succeeded(_) => None,
            Self::Failed(failure) => Some(&failure.reason),
            Self::Partial { reason }
            | Self::Unknown { reason, .. }
            | Self::Indeterminate { reason }
            | Self::Skipped { reason } => Some(reason),
        }
    }
}

impl Effect {
    /// When the record expires, if it ever does.
    pub fn expires(&self) -> Option<Timestamp> {
        let ttl_ms = self.ttl_ms.filter(|_| self.state.name().is_settled())?;
        Some(self.updated.plus_ms(ttl_ms))
    }

    /// The attempt and state that a person is shown, to be named in a decision.
    pub fn seen(&self) -> Seen {
        Seen { attempt: self.attempt, state: self.state.name() }
    }

    /// Whether the record counts as absent.
    pub fn expired(&self, now: Now) -> bool {
        now.wall_trusted && self.expires().is_some_and(|at| at <= now.wall)
    }

    fn moved(&self, now: Now, state: State) -> Self {
        Self { state, updated: now.wall, ..self.clone() }
    }

    /// The next state when the holder is gone or cannot say what happened.
    fn ambiguous(&self, now: Now, reason: String) -> State {
        match self.safety {
            Safety::Transactional => State::Failed(Failure { cause: Cause::Lapsed, reason }),
            Safety::Reconcilable(_) => State::Unknown { reason, since: now.lease, tries: 0 },
            Safety::Opaque if planted(Bug::OpaqueAgain) => failed(Cause::Lapsed, &reason),
            Safety::Opaque => State::Indeterminate { reason },
        }
    }
}

/// The change to write: the new record and its journal event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The record after the change.
    pub effect: Effect,
    /// The journal's event.
    pub event: EntryKind,
}

/// A request for permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The digest of the payload.
    pub fingerprint: Fingerprint,
    /// The consequence of a vanished holder.
    pub safety: Safety,
    /// The lock that serialises it.
    pub lock: Option<LockKey>,
    /// The epoch it is asked for in, which must be the current one.
    pub bound: Option<Bound>,
    /// Its label, for people.
    pub label: Option<String>,
    /// How long to remember it once settled.
    pub ttl_ms: Option<u64>,
    /// The identity of the grant, if there is one.
    pub attempt: AttemptId,
    /// The lease that the grant will depend on.
    pub lease: LeaseId,
    /// How long the grant may last, whatever the lease.
    pub deadline_ms: Option<u64>,
    /// The note in the grant's journal entry, if it is granted.
    pub about: Option<String>,
    /// The part that it is, if it is one.
    pub part: Option<Part>,
}

/// Judges a claim. `fence` is the number a grant would carry.
///
/// The caller has compared the epoch with its domain's and has let a lapsed holder [`expire`]
/// before. It looks at the lock afterwards.
pub fn claim(
    now: Now,
    current: Option<&Effect>,
    ask: &Ask,
    fence: Fence,
) -> (Verdict, Option<Change>) {
    let Some(effect) = current else { return grant(now, ask, fence, None) };
    if effect.attempt == ask.attempt && matches!(effect.state, State::Failed(_)) {
        // A claim delivered twice: its first copy was granted and is over.
        return (
            Verdict::Refused { reason: format!("{} is over; ask with a new one", ask.attempt) },
            None,
        );
    }
    let reset = matches!(&effect.state, State::Failed(failure) if failure.cause == Cause::Reset);
    if reset || effect.expired(now) {
        return grant(now, ask, fence, Some(effect));
    }
    let replayed =
        planted(Bug::ReplayBeforeConflict) && matches!(effect.state, State::Succeeded(_));
    if effect.fingerprint != ask.fingerprint && !replayed {
        let (recorded, asked) = (effect.fingerprint, ask.fingerprint);
        return (Verdict::Conflict { recorded, asked }, None);
    }
    if effect.bound != ask.bound {
        return (in_another_epoch(effect, ask), None);
    }
    match &effect.state {
        // The same holder asks again because an answer was lost. A holder on another lease that
        // uses the same attempt, as two processes with one client's key do, counts as another
        // holder.
        State::Running { lease, .. } if effect.attempt == ask.attempt && *lease == ask.lease => {
            (Verdict::Granted(granted(now, effect)), None)
        }
        State::Running { .. } => (Verdict::InFlight { attempt: effect.attempt }, None),
        State::Succeeded(outcome) => {
            let (outcome, expires) = (outcome.clone(), effect.expires());
            let left_ms = expires.map(|at| at.0.saturating_sub(now.wall.0).max(0) as u64);
            (Verdict::Replayed { outcome, expires, left_ms }, None)
        }
        State::Failed(_) => {
            let again = Effect {
                attempts: effect.attempts.saturating_add(1),
                created: effect.created,
                generation: effect.generation,
                ..first_grant(now, ask, fence)
            };
            (
                Verdict::Granted(granted(now, &again)),
                Some(Change { effect: again, event: EntryKind::Granted }),
            )
        }
        State::Partial { .. } | State::Unknown { .. } | State::Indeterminate { .. } => {
            (Verdict::Blocked(Blocked::by(effect)), None)
        }
        State::Skipped { reason } => {
            (Verdict::Refused { reason: format!("an operator skipped it: {reason}") }, None)
        }
    }
}

/// The verdict on a claim whose epoch is not the recorded one.
fn in_another_epoch(effect: &Effect, ask: &Ask) -> Verdict {
    match (&effect.bound, &ask.bound) {
        (Some(bound), Some(asked)) if bound.domain == asked.domain => {
            let (domain, bound, current) = (bound.domain.clone(), bound.epoch, asked.epoch);
            Verdict::Outdated(Mismatch { domain, bound, current })
        }
        (Some(bound), _) => {
            Verdict::Refused { reason: format!("it is bound to {bound}; ask for it there") }
        }
        (None, _) => {
            Verdict::Refused { reason: "it is bound to no epoch; ask for it in none".into() }
        }
    }
}

fn grant(now: Now, ask: &Ask, fence: Fence, before: Option<&Effect>) -> (Verdict, Option<Change>) {
    let generation = before.map_or(1, |effect| effect.generation.saturating_add(1));
    let effect = Effect { generation, ..first_grant(now, ask, fence) };
    (Verdict::Granted(granted(now, &effect)), Some(Change { effect, event: EntryKind::Granted }))
}

fn granted(now: Now, effect: &Effect) -> Grant {
    let deadline = match effect.state {
        State::Running { deadline, .. } => deadline,
        _ => None,
    };
    let left_ms = deadline.map(|deadline| deadline.ms.saturating_sub(now.lease.ms));
    Grant { attempt: effect.attempt, fence: effect.fence, nth: effect.attempts, left_ms }
}

/// The record of an effect that is granted for the first time.
fn first_grant(now: Now, ask: &Ask, fence: Fence) -> Effect {
    Effect {
        fingerprint: ask.fingerprint,
        safety: ask.safety,
        lock: ask.lock,
        bound: ask.bound.clone(),
        label: ask.label.clone(),
        ttl_ms: ask.ttl_ms,
        generation: 1,
        attempts: 1,
        attempt: ask.attempt,
        fence,
        created: now.wall,
        updated: now.wall,
        state: State::Running {
            lease: ask.lease,
            deadline: ask.deadline_ms.map(|ms| now.lease.plus_ms(ms)),
        },
    }
}

/// Whether the holder of a running effect has lapsed. `gone` is the store's own evidence that the
/// holder died, where it has any.
pub fn lapsed(now: Now, state: &State, lease: Option<&Lease>, pulse: &Pulse, gone: bool) -> bool {
    let State::Running { deadline, .. } = state else { return false };
    let Some(lease) = lease else { return true };
    gone || lease.lapsed(now, pulse)
        || deadline.is_some_and(|deadline| lease.overdue(now, deadline, pulse))
}

/// Whether the holder of a running effect lives, for a reader: as [`Lease::liveness`] judges its lease, and silent after
/// its own deadline. `None` if the effect does not run.
pub fn liveness(now: Now, state: &State, lease: Option<&Lease>, gone: bool) -> Option<Liveness> {
    let State::Running { deadline, .. } = state else { return None };
    let Some(lease) = lease else { return Some(Liveness::Dead) };
    let is_over = deadline.is_some_and(|deadline| deadline.reached(now.lease));
    Some(match lease.liveness(now, gone) {
        Liveness::Alive if is_over => Liveness::Silent,
        liveness => liveness,
    })
}

/// Expires a lapsed claim by its safety class. The attempt of transactional work is void; any other
/// holder may still settle until a reconciler or a person has decided.
pub fn expire(now: Now, effect: &Effect, why: &str) -> Option<Change> {
    let State::Running { .. } = effect.state else { return None };
    let state = effect.ambiguous(now, bounded(why));
    Some(Change { effect: effect.moved(now, state), event: EntryKind::Expired })
}

/// Voids an effect that was open when its epoch ended: it can no longer be known whether it
/// happened, and its holder's report no longer counts.
pub fn void(now: Now, effect: &Effect, why: &str) -> Option<Change> {
    if !effect.state.name().is_open() {
        return None;
    }
    let reason = match &effect.state {
        State::Indeterminate { reason } => with_remark(reason, why),
        _ => bounded(why),
    };
    let effect = effect.moved(now, State::Indeterminate { reason });
    Some(Change { effect, event: EntryKind::Expired })
}

/// A holder's report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// It happened.
    Succeeded(Outcome),
    /// It did not happen, for certain.
    Failed(String),
    /// Some of it happened.
    Partial(String),
    /// The holder cannot tell.
    Ambiguous(String),
    /// The grant never reached its caller, so nothing was tried.
    Released(String),
}

/// Judges a holder's report. A settle that no other attempt overtook is good however late, but not
/// after the end of its epoch: `over` is the mismatch that the caller found between the effect's
/// epoch and its domain's.
///
/// A report names the attempt and the fence it was granted with, because an attempt that is asked
/// for again may be granted twice. Only a claimant that never learned of its grant names no fence,
/// and it can only release.
pub fn settle(
    now: Now,
    current: Option<&Effect>,
    (attempt, fence): (AttemptId, Option<Fence>),
    report: &Report,
    over: Option<Mismatch>,
) -> (Settled, Option<Change>) {
    let fenced = (Settled::Fenced(Fenced::by(current)), None);
    let is_its_fence = |effect: &Effect| match fence {
        Some(fence) => fence == effect.fence || planted(Bug::FenceUnnamed),
        None => matches!(report, Report::Released(_)),
    };
    let is_its_grant = |effect: &&Effect| {
        effect.attempt == attempt && is_its_fence(effect) || planted(Bug::StaleSettle)
    };
    let Some(effect) = current.filter(is_its_grant) else { return fenced };
    let open = effect.state.name().is_open();
    if let Some(mismatch) = over.filter(|_| open) {
        return (Settled::Outdated(mismatch), remark(now, effect, report));
    }
    let state = match report {
        Report::Succeeded(outcome) => State::Succeeded(outcome.clone()),
        Report::Failed(reason) => failed(Cause::Reported, reason),
        Report::Partial(reason) => State::Partial { reason: bounded(reason) },
        Report::Ambiguous(reason) => effect.ambiguous(now, bounded(reason)),
        Report::Released(reason) => failed(Cause::Released, reason),
    };
    let reported_before = matches!(report, Report::Ambiguous(_))
        && matches!(effect.state, State::Unknown { .. } | State::Indeterminate { .. });
    if open && !reported_before {
        return (
            Settled::Recorded,
            Some(Change { effect: effect.moved(now, state), event: EntryKind::Settled }),
        );
    }
    let same = match (&effect.state, &state) {
        (State::Succeeded(recorded), State::Succeeded(reported)) => {
            recorded.digest() == reported.digest()
        }
        (recorded, reported) => recorded == reported,
    };
    if same || reported_before { (Settled::Repeated, None) } else { fenced }
}

/// Notes the report of a voided attempt's holder, for the person who decides.
fn remark(now: Now, effect: &Effect, report: &Report) -> Option<Change> {
    let (claim, why) = match report {
        Report::Succeeded(outcome) => (format!("that it happened, with {}", outcome.digest()), ""),
        Report::Failed(why) => ("that it did not happen".into(), why.as_str()),
        Report::Partial(why) => ("that some of it happened".into(), why.as_str()),
        Report::Ambiguous(_) | Report::Released(_) => return None,
    };
    let why: String = why.chars().take(200).collect();
    let colon = if why.is_empty() { "" } else { ": " };
    let remark = format!("since then its holder says {claim}{colon}{why}");
    let with = |reason: &str| (!reason.contains(&remark)).then(|| with_remark(reason, &remark));
    let state = match &effect.state {
        State::Indeterminate { reason } => State::Indeterminate { reason: with(reason)? },
        State::Unknown { reason, since, tries } => {
            State::Unknown { reason: with(reason)?, since: *since, tries: *tries }
        }
        _ => return None,
    };
    Some(Change { effect: effect.moved(now, state), event: EntryKind::Settled })
}

/// A reason with a remark added. If both are too long, the reason is cut and the remark stays.
fn with_remark(reason: &str, remark: &str) -> String {
    if reason.is_empty() {
        return bounded(remark);
    }
    let room = MAX_REASON.saturating_sub(remark.len() + "; ".len());
    bounded(format!("{}; {remark}", cut(reason, room)))
}

fn failed(cause: Cause, reason: &str) -> State {
    State::Failed(Failure { cause, reason: bounded(reason) })
}

fn judged(now: Now, effect: &Effect, state: State, event: EntryKind) -> (Judged, Option<Change>) {
    let name = state.name();
    (Judged::Decided(name), Some(Change { effect: effect.moved(now, state), event }))
}

/// A person's decision about an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// It happened, with this result.
    Happened(Outcome),
    /// It did not happen; it may be claimed again.
    DidNotHappen,
    /// Skip it; it will not be granted again.
    Skip,
    /// Have the reconciler look again.
    AskAgain,
}

/// Judges a person's decision. Fenced by the attempt and the state that the person was shown.
pub fn resolve(
    now: Now,
    current: Option<&Effect>,
    seen: Seen,
    resolution: &Resolution,
    note: &str,
) -> (Judged, Option<Change>) {
    let fenced = (Judged::Fenced(Fenced::by(current)), None);
    let Some(effect) = current.filter(|effect| effect.seen() == seen) else { return fenced };
    let state = match (&effect.state, resolution) {
        (State::Indeterminate { reason }, Resolution::AskAgain)
            if matches!(effect.safety, Safety::Reconcilable(_)) =>
        {
            State::Unknown { reason: reason.clone(), since: now.lease, tries: 0 }
        }
        (_, Resolution::AskAgain) => return fenced,
        (
            State::Partial { .. } | State::Unknown { .. } | State::Indeterminate { .. },
            resolution,
        ) => match resolution {
            Resolution::Happened(outcome) => State::Succeeded(outcome.clone()),
            Resolution::DidNotHappen => failed(Cause::Resolved, note),
            _ => State::Skipped { reason: bounded(note) },
        },
        (State::Failed(_), Resolution::Skip) => State::Skipped { reason: bounded(note) },
        _ => return fenced,
    };
    judged(now, effect, state, EntryKind::Resolved)
}

/// Records that a partial effect was rolled back.
pub fn rolled_back(
    now: Now,
    current: Option<&Effect>,
    attempt: AttemptId,
) -> (Judged, Option<Change>) {
    match current {
        Some(effect)
            if effect.attempt == attempt && matches!(effect.state, State::Partial { .. }) =>
        {
            judged(now, effect, failed(Cause::RolledBack, "rolled back"), EntryKind::RolledBack)
        }
        _ => (Judged::Fenced(Fenced::by(current)), None),
    }
}

/// Clears a record, whatever its state, so that the next claim begins a new generation. Refused
/// while the effect is running, and if the record is not what the person was shown.
pub fn reset(
    now: Now,
    current: Option<&Effect>,
    seen: Seen,
    note: &str,
) -> (Judged, Option<Change>) {
    match current {
        Some(effect)
            if effect.seen() == seen && seen.state != StateName::Running
                || planted(Bug::UnseenReset) && effect.attempt == seen.attempt =>
        {
            judged(now, effect, failed(Cause::Reset, note), EntryKind::Reset)
        }
        _ => (Judged::Fenced(Fenced::by(current)), None),
    }
}

#[cfg(test)]
mod tests;
