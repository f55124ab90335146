//! Epochs at the seam: the epoch of each domain, and the effects that its end voids.

use hapax_core::epoch::{Bound, Domain};
use hapax_core::name::{Name, Namespace};

use crate::error::StoreError;

/// The reads of epochs.
pub trait EpochView {
    /// The epoch that a domain is in; 0 before its first transition.
    fn epoch(&mut self, namespace: &Namespace, domain: &Domain) -> Result<u64, StoreError>;

    /// All domains of a namespace that have left epoch 0, with their epochs, by name.
    fn epochs(&mut self, namespace: &Namespace) -> Result<Vec<Bound>, StoreError>;
}

/// The writes of epochs.
pub trait EpochTxn {
    /// Moves a domain to this epoch.
    fn put_epoch(&mut self, namespace: &Namespace, epoch: &Bound) -> Result<(), StoreError>;

    /// Effects that are bound to this epoch and are running, unknown or indeterminate.
    fn bound(&mut self, namespace: &Namespace, epoch: &Bound) -> Result<Vec<Name>, StoreError>;
}
