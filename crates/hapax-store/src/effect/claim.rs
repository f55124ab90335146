//! Claiming: a caller asks for permission to perform an effect.

use hapax_core::attempt::Fence;
use hapax_core::effect::{self, Ask, Blocked, Change, Effect, Grant, State, Verdict};
use hapax_core::lock::Lock;
use hapax_core::name::Name;
use hapax_core::time::Now;

use super::expire::{HeldEffect, load};
use super::record::entry;
use super::{EntryNote, write};
use crate::command;
use crate::error::StoreError;
use crate::failpoint::{Point, pass};
use crate::limits::{check_length, check_note};
use crate::part;
use crate::txn::{Txn, View};

/// Judges a claim and writes the change. Public for claims in a caller's transaction, which end
/// with it and need no lease.
pub fn claim(txn: &mut dyn Txn, name: &Name, ask: &Ask) -> Result<Verdict, StoreError> {
    check(ask)?;
    if let Some(outdated) = outdated(txn, name, ask)? {
        return Ok(outdated);
    }
    let now = txn.now();
    if let Some(verdict) = claim_first(txn, now, name, ask)? {
        return Ok(verdict);
    }
    let current = load(txn, now, name, Some(ask.lease))?;
    let judge = |fence| effect::claim(now, current.as_ref(), ask, fence);
    // The grant takes its number last, because expiring the lock's holder takes a number too.
    if let (verdict, None) = judge(Fence(0)) {
        return Ok(verdict);
    }
    if let Some(lock) = other_holder(txn, name, ask)? {
        let holder = load(txn, now, &holder_of(name, &lock), Some(ask.lease))?;
        if let Some(refusal) = refusal(&lock, holder) {
            return Ok(refusal);
        }
    }
    let (verdict, change) = judge(Fence(txn.next_entry()?));
    if let Some(change) = change {
        write(txn, name, &change, EntryNote { actor: None, text: ask.about.as_deref() })?;
        if let Some(part) = &ask.part {
            txn.put_part(name, part)?;
        }
    }
    if let Some(key) = ask.lock {
        txn.put_lock(&name.namespace, &Lock { key, holder: name.key, attempt: ask.attempt })?;
    }
    Ok(verdict)
}

/// Judges a claim whose grant depends on a lease.
pub(crate) fn claim_on_lease(
    txn: &mut dyn Txn,
    command: &command::Claim,
) -> Result<Verdict, StoreError> {
    check_lease(txn, &command.ask)?;
    claim(txn, &command.name, &command.ask)
}

/// The verdict on a claim, if it writes nothing. `None` if the claim must be judged in a
/// transaction.
pub fn look(view: &mut dyn View, name: &Name, ask: &Ask) -> Result<Option<Verdict>, StoreError> {
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

/// Grants a claim of a new key without loading it first. Most keys are new, and the store detects
/// an existing one as it writes.
fn claim_first(
    txn: &mut dyn Txn,
    now: Now,
    name: &Name,
    ask: &Ask,
) -> Result<Option<Verdict>, StoreError> {
    let Some(grant) = FirstGrant::judge(now, ask).filter(|_| ask.lock.is_none()) else {
        return Ok(None);
    };
    pass(Point::ChangeJudged)?;
    let Some(fence) = txn.put_first(name, grant.effect())? else { return Ok(None) };
    pass(Point::ChangeRecorded)?;
    let (grant, change) = grant.under(fence);
    txn.append(&entry(
        fence.0,
        name,
        &change,
        EntryNote { actor: None, text: ask.about.as_deref() },
    ))?;
    pass(Point::ChangeJournalled)?;
    if let Some(part) = &ask.part {
        txn.put_part(name, part)?;
    }
    Ok(Some(Verdict::Granted(grant)))
}

/// The grant to the first claim of a key. The store makes sure, as it writes, that there is no effect
/// of this key, that the lease is in force, and that the lock is free.
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
