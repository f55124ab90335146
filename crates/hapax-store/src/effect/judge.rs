//! Judging: what a reconciler found, and what a person decided.

use hapax_core::effect::{self, Change, Effect, Fenced, Judged};
use hapax_core::name::Name;
use hapax_core::planted::{Bug, planted};
use hapax_core::time::Now;

use super::expire::load;
use super::{EntryNote, find, write};
use crate::command::{Reconcile, Reset, Resolve, RolledBack};
use crate::error::StoreError;
use crate::limits::check_length;
use crate::txn::Txn;

/// Records a reconciler's finding.
pub(crate) fn reconcile(txn: &mut dyn Txn, command: &Reconcile) -> Result<Judged, StoreError> {
    let Reconcile { name, attempt, fence, looked, finding } = command;
    judge(txn, name, None, |now, effect| {
        effect::reconcile(now, effect, (*attempt, *fence), *looked, finding)
    })
}

/// Records a person's decision.
pub(crate) fn resolve(txn: &mut dyn Txn, command: &Resolve) -> Result<Judged, StoreError> {
    let Resolve { name, seen, resolution, actor, note } = command;
    judge(txn, name, Some((actor, note)), |now, effect| {
        effect::resolve(now, effect, *seen, resolution, note)
    })
}

/// Records that all registered steps were undone.
pub(crate) fn roll_back(txn: &mut dyn Txn, command: &RolledBack) -> Result<Judged, StoreError> {
    let RolledBack { name, attempt } = command;
    judge(txn, name, None, |now, effect| effect::rolled_back(now, effect, *attempt))
}

/// Clears a record, and raises a notice, so that every node forgets its outcome.
pub(crate) fn reset(txn: &mut dyn Txn, command: &Reset) -> Result<Judged, StoreError> {
    let Reset { name, seen, actor, note } = command;
    let judged = judge(txn, name, Some((actor, note)), |now, effect| {
        effect::reset(now, effect, *seen, note)
    })?;
    if let Judged::Decided(_) = judged {
        txn.raise_notice()?;
    }
    Ok(judged)
}

fn judge(
    txn: &mut dyn Txn,
    name: &Name,
    by: Option<(&str, &str)>,
    decide: impl FnOnce(Now, Option<&Effect>) -> (Judged, Option<Change>),
) -> Result<Judged, StoreError> {
    if let Some((actor, _)) = by {
        check_length("the actor", actor)?;
    }
    let now = txn.now();
    let shown = find(txn, name)?.map(|effect| effect.seen());
    let current = load(txn, now, name, None)?;
    // Loading has just expired the effect, and the person has not seen the new state.
    let changed = current.as_ref().map(Effect::seen) != shown;
    if by.is_some() && changed && !planted(Bug::UnseenReset) {
        return Ok(Judged::Fenced(Fenced::by(current.as_ref())));
    }
    let (judged, change) = decide(now, current.as_ref());
    if let Some(change) = change {
        let note = by.map(|(actor, note)| EntryNote::by(actor, note)).unwrap_or_default();
        write(txn, name, &change, note)?;
    }
    Ok(judged)
}
