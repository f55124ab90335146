//! How an effect is read, and how a change of it is recorded: the journal entry, the record, and
//! the release of its lock.

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::effect::{self, Ask, Change, Effect, Report, Safety};
use hapax_core::fingerprint::Fingerprint;
use hapax_core::journal::{Entry, EntryKind};
use hapax_core::lease::LeaseId;
use hapax_core::name::Name;
use hapax_core::outbox::Event;
use hapax_core::outcome::{Outcome, bounded};
use hapax_core::planted::{Bug, planted};
use hapax_core::time::Now;

use crate::error::StoreError;
use crate::failpoint::{Point, pass};
use crate::outbox;
use crate::txn::{Txn, View};

/// One effect.
pub(crate) fn find(view: &mut dyn View, name: &Name) -> Result<Option<Effect>, StoreError> {
    Ok(view.effects(std::slice::from_ref(name))?.pop().flatten())
}

/// Writes a change: the journal entry, the record, and the release of its lock.
pub(crate) fn write(
    txn: &mut dyn Txn,
    name: &Name,
    change: &Change,
    note: EntryNote<'_>,
) -> Result<(), StoreError> {
    let id = match change.event {
        EntryKind::Granted => change.effect.fence.0,
        _ => txn.next_entry()?,
    };
    pass(Point::ChangeJudged)?;
    if change.event != EntryKind::Expired || !planted(Bug::Unjournalled) {
        txn.append(&entry(id, name, change, note))?;
    }
    pass(Point::ChangeJournalled)?;
    txn.put_effect(name, &change.effect)?;
    pass(Point::ChangeRecorded)?;
    match change.effect.lock {
        Some(lock) if !change.effect.state.name().keeps_lock() => {
            txn.drop_lock(&name.namespace, lock, change.effect.attempt)
        }
        _ => Ok(()),
    }
}

/// The entry of a change.
pub(super) fn entry(id: u64, name: &Name, change: &Change, note: EntryNote<'_>) -> Entry {
    let mut entry = Entry::of(id, name, change);
    entry.actor = note.actor.map(str::to_owned);
    if let Some(text) = note.text {
        entry.note = Some(if note.actor.is_some() { bounded(text) } else { text.to_owned() });
    }
    entry
}

/// The actor and the note of a journal entry.
#[derive(Clone, Copy, Default)]
pub(crate) struct EntryNote<'a> {
    pub(super) actor: Option<&'a str>,
    /// Replaces the record's own reason.
    pub(super) text: Option<&'a str>,
}

impl<'a> EntryNote<'a> {
    pub(crate) fn by(actor: &'a str, text: &'a str) -> Self {
        Self { actor: Some(actor), text: Some(text) }
    }
}

/// Something that the ledger did itself, and records as an effect.
pub(crate) struct LedgerEffect<'a> {
    pub(crate) name: Name,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) label: String,
    pub(crate) outcome: Outcome,
    /// An event for followers, which needs no route.
    pub(crate) event: Option<Event>,
    pub(crate) note: EntryNote<'a>,
}

/// Records an effect that is granted and settled at once, under a fence that was just taken. A
/// caller that claimed its key before is overtaken.
pub(crate) fn record_ledger_effect(
    txn: &mut dyn Txn,
    now: Now,
    fence: Fence,
    done: LedgerEffect<'_>,
) -> Result<(), StoreError> {
    let LedgerEffect { name, fingerprint, label, outcome, event, note } = done;
    let mut attempt = [0; 16];
    attempt.copy_from_slice(&name.key.as_bytes()[..16]);
    let ask = Ask {
        fingerprint,
        safety: Safety::Transactional,
        lock: None,
        bound: None,
        label: Some(label),
        ttl_ms: None,
        attempt: AttemptId::from_bytes(attempt),
        lease: LeaseId::from_bytes([0; 16]),
        deadline_ms: None,
        about: None,
        part: None,
    };
    let generation = find(txn, &name)?.map_or(0, |there| there.generation);
    let (_, Some(mut granted)) = effect::claim(now, None, &ask, fence) else { return Ok(()) };
    granted.effect.generation += generation;
    write(txn, &name, &granted, EntryNote::default())?;
    let (report, by) = (Report::Succeeded(outcome), (ask.attempt, Some(fence)));
    let (_, settled) = effect::settle(now, Some(&granted.effect), by, &report, None);
    let Some(settled) = settled else { return Ok(()) };
    if let Some(event) = event {
        outbox::record_unrouted(txn, now, &name, &settled.effect, event)?;
    }
    write(txn, &name, &settled, note)
}
