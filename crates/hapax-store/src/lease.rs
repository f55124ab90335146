//! Leases at the seam: how they are opened and renewed.
//!
//! A holder that renews learns the newest notice, which it must act upon. Each renewal beats the
//! store's pulse: only a store that was writable of late lets time alone count against a lease.

use hapax_core::lease::{Lease, LeaseId, Pulse};
use hapax_core::time::Now;

use crate::command::{LeaseAnswer, OpenLease, RenewLease};
use crate::error::StoreError;
use crate::limits::{Limits, check_length};
use crate::txn::Txn;

/// The reads of leases.
pub trait LeaseView {
    /// A lease.
    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, StoreError>;

    /// All leases that are not dead.
    fn leases(&mut self) -> Result<Vec<Lease>, StoreError>;

    /// The store's own evidence that a lease's holder died. `false` when it has none.
    fn is_gone(&mut self, lease: &Lease) -> bool;

    /// The store's pulse, as it was last beaten.
    fn pulse(&mut self) -> Result<Pulse, StoreError>;

    /// The newest notice: a count of the changes that every node must act upon.
    fn notice(&mut self) -> Result<u64, StoreError>;
}

/// The writes of leases.
pub trait LeaseTxn {
    /// Writes a lease, new or not.
    fn put_lease(&mut self, lease: &Lease) -> Result<(), StoreError>;

    /// Ends a lease: marks it dead, and removes it once no running, non-transactional effect
    /// depends on it.
    fn drop_lease(&mut self, id: LeaseId) -> Result<(), StoreError>;

    /// Writes the store's pulse.
    fn put_pulse(&mut self, pulse: &Pulse) -> Result<(), StoreError>;

    /// Raises the notice by one.
    fn raise_notice(&mut self) -> Result<u64, StoreError>;
}

/// Opens a lease, or renews it if its holder asks again.
pub(crate) fn open(txn: &mut dyn Txn, command: &OpenLease) -> Result<LeaseAnswer, StoreError> {
    let OpenLease { id, term_ms, ref holder, forgetful } = *command;
    check_length("the holder", holder)?;
    if term_ms < Limits::SHORTEST_TERM_MS {
        return Err(StoreError::Invalid(format!(
            "a lease of {term_ms} ms is shorter than {} ms",
            Limits::SHORTEST_TERM_MS
        )));
    }
    let (now, notice) = (txn.now(), txn.notice()?);
    let lease = match txn.lease(id)? {
        // The holder asks again because an answer was lost. The lease is renewed from now.
        Some(lease) => match lease.renew(now) {
            Some(renewed) => renewed,
            None => return Ok(LeaseAnswer::Dead),
        },
        None => {
            let seen = if forgetful { Lease::FORGETFUL } else { notice };
            Lease::open(now, id, term_ms, holder.clone(), seen)
        }
    };
    txn.put_lease(&lease)?;
    beat(txn, now)?;
    Ok(LeaseAnswer::Held { lease, notice })
}

/// Renews a lease whose holder has acted upon every notice up to `seen`.
pub(crate) fn renew(txn: &mut dyn Txn, command: &RenewLease) -> Result<LeaseAnswer, StoreError> {
    let RenewLease { id, seen } = *command;
    let now = txn.now();
    let notice = txn.notice()?;
    beat(txn, now)?;
    let Some(lease) = txn.lease(id)?.and_then(|lease| lease.renew(now)) else {
        return Ok(LeaseAnswer::Dead);
    };
    let seen = if seen == Lease::FORGETFUL { seen } else { seen.min(notice) };
    let lease = Lease { seen, ..lease };
    txn.put_lease(&lease)?;
    Ok(LeaseAnswer::Held { lease, notice })
}

/// Beats the store's pulse. Only a steady pulse lets time alone count against a lease.
pub(crate) fn beat(txn: &mut dyn Txn, now: Now) -> Result<Pulse, StoreError> {
    let pulse = txn.pulse()?.beat(now);
    txn.put_pulse(&pulse)?;
    Ok(pulse)
}
