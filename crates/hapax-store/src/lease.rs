//! Leases at the seam: the rows of leases, the store's pulse and its newest notice.

use hapax_core::lease::{Lease, LeaseId, Pulse};

use crate::error::StoreError;

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
