//! Expiry: what becomes of an effect whose holder has lapsed.

use std::collections::BTreeSet;

use hapax_core::effect::{self, Effect, State};
use hapax_core::lease::{Lease, LeaseId, Pulse};
use hapax_core::name::Name;
use hapax_core::planted::{Bug, planted};
use hapax_core::time::Now;

use super::{EntryNote, find, write};
use crate::error::StoreError;
use crate::lease::beat;
use crate::txn::{Txn, View};

/// Expires effects that lapsed holders left running. Transactional effects are left for the next
/// claim: until another claimant overtakes one, its late settle is still good.
pub(crate) fn expire(txn: &mut dyn Txn, limit: usize) -> Result<usize, StoreError> {
    let now = txn.now();
    let pulse = beat(txn, now)?;
    for lease in txn.leases()? {
        if let Some(lease) = lease.set_right(now) {
            txn.put_lease(&lease)?;
        }
        // A lapsed holder may still come back, as long as no other claimant has acted on its lapse.
        if txn.is_gone(&lease) || lease.is_forgotten(now, &pulse) {
            txn.put_lease(&Lease { dead: true, ..lease })?;
        }
    }
    // In the order of names, in which every command locks rows.
    let names: BTreeSet<_> = txn.overdue(now.lease, limit)?.into_iter().collect();
    let mut expired = 0;
    for name in names {
        let after = load(txn, now, &name, None)?;
        expired += usize::from(after.is_some_and(|e| !matches!(e.state, State::Running { .. })));
    }
    Ok(expired)
}

/// Removes expired records, unless the wall clock is doubted.
pub(crate) fn sweep(txn: &mut dyn Txn, limit: usize) -> Result<usize, StoreError> {
    let now = txn.now();
    if now.wall_trusted { txn.sweep(now, limit) } else { Ok(0) }
}

/// Loads an effect, and expires it first if its holder has lapsed.
pub(super) fn load(
    txn: &mut dyn Txn,
    now: Now,
    name: &Name,
    asker: Option<LeaseId>,
) -> Result<Option<Effect>, StoreError> {
    let Some(held) = HeldEffect::load(txn, now, name, asker)? else { return Ok(None) };
    let pulse = if held.late { beat(txn, now)? } else { Pulse::default() };
    if !held.lapsed(now, &pulse) {
        return Ok(Some(held.effect));
    }
    let HeldEffect { effect, lease, gone, .. } = held;
    if let Some(lease) = lease.filter(|lease| gone || lease.lapsed(now, &pulse)) {
        txn.put_lease(&Lease { dead: true, ..lease })?;
    }
    let why = if gone { "its holder died" } else { "its lease or deadline lapsed" };
    let Some(change) = effect::expire(now, &effect, why) else { return Ok(Some(effect)) };
    if asker.is_none() || !planted(Bug::LockWithoutExpiry) {
        write(txn, name, &change, EntryNote::default())?;
    }
    Ok(Some(change.effect))
}

/// An effect, and what is known of its holder.
pub(super) struct HeldEffect {
    pub(super) effect: Effect,
    lease: Option<Lease>,
    /// The store has evidence that the holder died.
    gone: bool,
    /// The time of its lease, or its own, is up.
    late: bool,
}

impl HeldEffect {
    pub(super) fn load(
        view: &mut dyn View,
        now: Now,
        name: &Name,
        asker: Option<LeaseId>,
    ) -> Result<Option<Self>, StoreError> {
        let Some(effect) = find(view, name)? else { return Ok(None) };
        let State::Running { lease: id, deadline } = effect.state else {
            return Ok(Some(Self { effect, lease: None, gone: false, late: false }));
        };
        let lease = view.lease(id)?;
        let gone = asker != Some(id) && lease.as_ref().is_some_and(|lease| view.is_gone(lease));
        let late = lease.as_ref().is_some_and(|lease| {
            lease.until.reached(now.lease) || deadline.is_some_and(|at| at.reached(now.lease))
        });
        Ok(Some(Self { effect, lease, gone, late }))
    }

    /// Whether its holder surely has not lapsed, or it has none. Otherwise it must be loaded in a
    /// transaction, which beats the pulse and may expire it.
    pub(super) fn surely_stands(&self, now: Now) -> bool {
        !self.late && !self.lapsed(now, &Pulse::default())
    }

    fn lapsed(&self, now: Now, pulse: &Pulse) -> bool {
        effect::lapsed(now, &self.effect.state, self.lease.as_ref(), pulse, self.gone)
    }
}
