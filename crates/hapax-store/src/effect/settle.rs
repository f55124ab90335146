//! Settling: an attempt reports how it went.

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::effect::{self, Change, Effect, Fenced, Report, Settled, State, StateName};
use hapax_core::journal::{Entry, EntryKind};
use hapax_core::name::Name;
use hapax_core::planted::{Bug, planted};
use hapax_core::time::Now;

use super::{EntryNote, find, write};
use crate::command::Settle;
use crate::error::StoreError;
use crate::limits::check_note;
use crate::ontology;
use crate::outbox::{self, Attachments};
use crate::part;
use crate::txn::Txn;

/// Judges a report inside a caller's own transaction. Only [`Settled::Recorded`] lets the caller
/// commit. A settle that was recorded before is an error there. After every other answer, too, the
/// caller rolls back: its other writes were committed with the first settle, or belong to an
/// attempt that was overtaken.
pub fn settle_in(
    txn: &mut dyn Txn,
    name: &Name,
    (attempt, fence): (AttemptId, Fence),
    report: &Report,
    attachments: &Attachments,
) -> Result<Settled, StoreError> {
    match judge(txn, name, (attempt, Some(fence)), report, attachments)? {
        Settled::Repeated if !planted(Bug::RepeatedSettleCommits) => {
            Err(StoreError::AlreadyRecorded(attempt))
        }
        settled => Ok(settled),
    }
}

/// Judges a report that comes as a command.
pub(crate) fn settle(txn: &mut dyn Txn, command: &Settle) -> Result<Settled, StoreError> {
    let Settle { name, attempt, fence, report, attachments } = command;
    judge(txn, name, (*attempt, *fence), report, attachments)
}

/// Judges a report and writes the change.
fn judge(
    txn: &mut dyn Txn,
    name: &Name,
    (attempt, fence): (AttemptId, Option<Fence>),
    report: &Report,
    attachments: &Attachments,
) -> Result<Settled, StoreError> {
    check(attachments)?;
    let now = txn.now();
    if let (Report::Succeeded(_), Some(entry)) = (report, &attachments.index_entry) {
        ontology::check_version(txn, &name.namespace, entry)?;
    }
    let current = find(txn, name)?;
    let over = match current.as_ref().and_then(|effect| effect.bound.as_ref()) {
        Some(bound) => bound.check(txn.epoch(&name.namespace, &bound.domain)?).err(),
        None => None,
    };
    let (settled, change) = effect::settle(now, current.as_ref(), (attempt, fence), report, over);
    if let Some(change) = change {
        let mut note = EntryNote::default();
        if let State::Succeeded(_) = change.effect.state {
            outbox::record(txn, name, &change.effect, &attachments.events)?;
            note.text = attachments.note.as_deref();
        }
        write(txn, name, &change, note)?;
        if let Some(part) = &attachments.part {
            txn.put_part(name, part)?;
        }
        if let (State::Succeeded(outcome), Some(entry)) =
            (&change.effect.state, &attachments.index_entry)
        {
            txn.put_index_entry(name, entry, outcome.size(), now)?;
        }
    } else if let (Settled::Fenced(_), Report::Succeeded(outcome)) = (&settled, report) {
        contradict(txn, now, name, current.as_ref(), attempt, *outcome.digest().as_bytes())?;
    }
    Ok(settled)
}

fn check(attachments: &Attachments) -> Result<(), StoreError> {
    check_note(attachments.note.as_deref())?;
    part::check(attachments.part.as_ref())
}

/// The change that a success makes to a running effect, if it follows from these two alone: it has
/// nothing to record but its outcome and a note. Every other report, and a success in an epoch, is
/// judged in a transaction.
pub fn plain_success(now: Now, effect: &Effect, command: &Settle) -> Option<Change> {
    let Settle { attempt, fence, report, attachments, .. } = command;
    let Attachments { events, index_entry: None, part: None, note: _ } = attachments else {
        return None;
    };
    if effect.bound.is_some() || !events.is_empty() || check(attachments).is_err() {
        return None;
    }
    match (report, effect::settle(now, Some(effect), (*attempt, *fence), report, None)) {
        (Report::Succeeded(_), (Settled::Recorded, change)) => change,
        _ => None,
    }
}

/// Journals that a stale attempt reports success. An operator must look at both attempts.
fn contradict(
    txn: &mut dyn Txn,
    now: Now,
    name: &Name,
    current: Option<&Effect>,
    attempt: AttemptId,
    digest: [u8; 32],
) -> Result<(), StoreError> {
    let found = Fenced::by(current);
    let entry = Entry {
        id: txn.next_entry()?,
        at: now.wall,
        namespace: name.namespace.clone(),
        key: name.key,
        event: EntryKind::Contradicted,
        state: found.state.unwrap_or(StateName::Succeeded),
        attempt,
        generation: current.map_or(0, |effect| effect.generation),
        digest: Some(digest),
        actor: None,
        note: Some(format!("a stale attempt reports success; the record is: {found}")),
    };
    txn.append(&entry)
}
