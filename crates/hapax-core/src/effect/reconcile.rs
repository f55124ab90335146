//! How a reconciler's finding changes an effect whose outcome is unknown.
//!
//! "Not found" is not "did not happen". A "no" counts at once where the target refuses late
//! arrivals. Elsewhere it counts when the settling time has passed on one clock, from the moment at
//! which the holder could last have sent.

use super::{Change, Effect, EntryKind, Fenced, Judged, State, failed, judged};
use crate::attempt::{AttemptId, Fence};
use crate::outcome::{Cause, Outcome, bounded};
use crate::planted::{Bug, planted};
use crate::safety::{Safety, Settling};
use crate::time::{LeaseInstant, Now};

/// A reconciler's finding at the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// It is there. Final.
    Happened(Outcome),
    /// It is not there. The settling time decides whether that counts.
    NotFound,
    /// The target could not be asked, or could not say.
    CannotTell(String),
}

/// How often a reconciler may fail to tell before a person is asked.
pub const MAX_TRIES: u32 = 8;

/// Judges a reconciler's finding. Fenced by the attempt it looked for and its fence: an attempt
/// whose claim was repeated may have been granted twice. A "no" is as old as the instant at which
/// the reconciler began to look: it cannot have seen anything sent since.
pub fn reconcile(
    now: Now,
    current: Option<&Effect>,
    (attempt, fence): (AttemptId, Fence),
    looked: LeaseInstant,
    finding: &Finding,
) -> (Judged, Option<Change>) {
    let fenced = (Judged::Fenced(Fenced::by(current)), None);
    let is_its_grant = |effect: &&Effect| effect.attempt == attempt && effect.fence == fence;
    let Some(effect) = current.filter(is_its_grant) else { return fenced };
    let State::Unknown { reason, since, tries } = &effect.state else { return fenced };
    let state = match finding {
        Finding::Happened(outcome) => State::Succeeded(outcome.clone()),
        // The settling time was counted in an era that is over, so the count begins anew.
        Finding::NotFound
            if since.era != now.lease.era && counts_from(effect.safety, *since).is_some() =>
        {
            let since = now.lease;
            let state = State::Unknown { reason: reason.clone(), since, tries: *tries };
            let not_before = counts_from(effect.safety, since);
            let change = Change { effect: effect.moved(now, state), event: EntryKind::Reconciled };
            return (Judged::Undecided { not_before }, Some(change));
        }
        Finding::NotFound => match counts_from(effect.safety, *since) {
            Some(at)
                if (looked.era != now.lease.era || !at.reached(looked))
                    && !planted(Bug::NoAtOnce) =>
            {
                return (Judged::Undecided { not_before: Some(at) }, None);
            }
            _ => failed(Cause::Reconciled, "the reconciler did not find it"),
        },
        Finding::CannotTell(why) if tries + 1 >= MAX_TRIES => State::Indeterminate {
            reason: bounded(format!(
                "{reason}; the reconciler could not tell {MAX_TRIES} times: {why}"
            )),
        },
        Finding::CannotTell(_) => {
            let state = State::Unknown { reason: reason.clone(), since: *since, tries: tries + 1 };
            let change = Change { effect: effect.moved(now, state), event: EntryKind::Reconciled };
            return (Judged::Undecided { not_before: None }, Some(change));
        }
    };
    judged(now, effect, state, EntryKind::Reconciled)
}

/// When "not found" begins to mean "did not happen".
fn counts_from(safety: Safety, since: LeaseInstant) -> Option<LeaseInstant> {
    match safety {
        Safety::Reconcilable(Settling::AfterMs(ms)) => Some(since.plus_ms(ms)),
        Safety::Reconcilable(Settling::TargetRefusesLate)
        | Safety::Transactional
        | Safety::Opaque => None,
    }
}
