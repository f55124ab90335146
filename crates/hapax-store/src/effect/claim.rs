//! Claiming: a caller asks for permission to perform an effect.

use hapax_core::attempt::Fence;
use hapax_core::effect::{self, Ask, Blocked, Change, Effect, Grant, State, Verdict};
use hapax_core::lock::Lock;
use hapax_core::name::Name;
use hapax_core::time::Now;

use super::expire::{HeldEffect, load};
use super::record::entry;
use super::{EntryNote, write};
use crate::error::StoreError;
use crate::failpoint::{Point, pass};
use crate::limits::{check_length, check_note};
use crate::part;
use crate::txn::{Txn, View};

/// The life that a grant depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DependsOn {
    /// The lease that the claim names, which must be in force.
    Lease,
    /// The caller's transaction, in which it claims, works and settles.
    Transaction,
}

/// Judges a claim and writes the change.
pub fn claim(
    txn: &mut dyn Txn,
    name: &Name,
    ask: &Ask,
    depends_on: DependsOn,
) -> Result<Verdict, StoreError> {
    if depends_on == DependsOn::Lease {
        check_lease(txn, ask)?;
    }
    check(ask)?;
    if let Some(outdated) = outdated(txn, name, ask)? {
        return Ok(outdated);
    }
    let now = txn.now();
    let note = EntryNote { actor: None, text: ask.about.as_deref() };
    // Most claims are for a new key. Without a lock, the store writes the grant first, and notices an
    // existing key as it writes.
    if let Some(first) = FirstGrant::judge(now, ask).filter(|_| ask.lock.is_none()) {
        pass(Point::ChangeJudged)?;
        if let Some(fence) = txn.put_first(name, first.effect())? {
            pass(Point::ChangeRecorded)?;
            let (grant, change) = first.under(fence);
            txn.append(&entry(fence.0, name, &change, note))?;
            pass(Point::ChangeJournalled)?;
            put_part(txn, name, ask)?;
            return Ok(Verdict::Granted(grant));
        }
    }
    let current = load(txn, now, name, Some(ask.lease))?;
    let judge = |fence| effect::claim(now, current.as_ref(), ask, fence);
    // Takes the entry number last: expiring the lock's owner writes an entry too, whose number must be
    // lower.
    if let (verdict, None) = judge(Fence(0)) {
        return Ok(verdict);
    }
    if let Some(lock) = other_holder(txn, name, ask)? {
        let owner = load(txn, now, &holder_of(name, &lock), Some(ask.lease))?;
        if let Some(refusal) = refusal(&lock, owner) {
            return Ok(refusal);
        }
    }
    let (verdict, change) = judge(Fence(txn.next_entry()?));
    if let Some(change) = change {
        write(txn, name, &change, note)?;
        put_part(txn, name, ask)?;
    }
    if let Some(key) = ask.lock {
        txn.put_lock(&name.namespace, &Lock { key, holder: name.key, attempt: ask.attempt })?;
    }
    Ok(verdict)
}

fn put_part(txn: &mut dyn Txn, name: &Name, ask: &Ask) -> Result<(), StoreError> {
    ask.part.as_ref().map_or(Ok(()), |part| txn.put_part(name, part))
}

/// The verdict on a claim, if it writes nothing. `None` if the claim must be judged in a
/// transaction.
pub fn peek(view: &mut dyn View, name: &Name, ask: &Ask) -> Result<Option<Verdict>, StoreError> {
    check_lease(view, ask)?;
    check(ask)?;
    if let Some(outdated) = outdated(view, name, ask)? {
        return Ok(Some(outdated));
    }
    let now = view.now();
    let current = match HeldEffect::load(view, now, name, Some(ask.lease))? {
        Some(held) if !held.surely_stands(now) => return Ok(None),
        held => held.map(|held| held.effect),
    };
    if let (verdict, None) = effect::claim(now, current.as_ref(), ask, Fence(0)) {
        return Ok(Some(verdict));
    }
    let Some(lock) = other_holder(view, name, ask)? else { return Ok(None) };
    match HeldEffect::load(view, now, &holder_of(name, &lock), Some(ask.lease))? {
        Some(held) if held.surely_stands(now) => Ok(refusal(&lock, Some(held.effect))),
        _ => Ok(None),
    }
}

/// Refuses a claim whose lease is over.
fn check_lease(view: &mut dyn View, ask: &Ask) -> Result<(), StoreError> {
    match view.lease(ask.lease)? {
        Some(lease) if !lease.dead => Ok(()),
        _ => Err(StoreError::LeaseDead(ask.lease)),
    }
}

fn check(ask: &Ask) -> Result<(), StoreError> {
    if let Some(label) = &ask.label {
        check_length("the label", label)?;
    }
    check_note(ask.about.as_deref())?;
    part::check(ask.part.as_ref())
}

/// The verdict on a claim in an epoch that is not the domain's.
fn outdated(view: &mut dyn View, name: &Name, ask: &Ask) -> Result<Option<Verdict>, StoreError> {
    let Some(bound) = &ask.bound else { return Ok(None) };
    let epoch = view.epoch(&name.namespace, &bound.domain)?;
    Ok(bound.check(epoch).err().map(Verdict::Outdated))
}

/// The grant to the first claim of a key. A store that writes it makes sure that there is no effect of
/// this key, that the lease is in force, and that the lock is free.
#[derive(Debug, Clone)]
pub struct FirstGrant {
    grant: Grant,
    change: Change,
}

impl FirstGrant {
    /// The grant, if it follows from the claim alone. A claim in an epoch, and one that is refused, is
    /// judged in a transaction.
    pub fn of(now: Now, ask: &Ask) -> Option<Self> {
        if ask.bound.is_some() || check(ask).is_err() {
            return None;
        }
        Self::judge(now, ask)
    }

    fn judge(now: Now, ask: &Ask) -> Option<Self> {
        match effect::claim(now, None, ask, Fence(0)) {
            (Verdict::Granted(grant), Some(change)) => Some(Self { grant, change }),
            _ => None,
        }
    }

    /// The record, before its fence is known.
    pub fn effect(&self) -> &Effect {
        &self.change.effect
    }

    /// The grant and its change under this fence.
    pub fn under(mut self, fence: Fence) -> (Grant, Change) {
        self.change.effect.fence = fence;
        (Grant { fence, ..self.grant }, self.change)
    }
}

/// The lock that a claim asks for, if another effect holds it.
fn other_holder(view: &mut dyn View, name: &Name, ask: &Ask) -> Result<Option<Lock>, StoreError> {
    let Some(key) = ask.lock else { return Ok(None) };
    let lock = view.lock(&name.namespace, key)?;
    Ok(lock.filter(|lock| lock.holder != name.key))
}

/// The name of the effect that holds a lock, which is in the claimant's namespace.
fn holder_of(name: &Name, lock: &Lock) -> Name {
    Name { namespace: name.namespace.clone(), key: lock.holder }
}

/// The verdict on a claim of a lock, if this effect still holds it.
fn refusal(lock: &Lock, holder: Option<Effect>) -> Option<Verdict> {
    let effect = holder?;
    if effect.attempt != lock.attempt || !effect.state.name().keeps_lock() {
        return None;
    }
    Some(match effect.state {
        State::Running { .. } => Verdict::Locked { holder: lock.holder },
        _ => Verdict::Blocked(Blocked { holder: Some(lock.holder), ..Blocked::by(&effect) }),
    })
}
