//! Locks at the seam: which effect and attempt hold each.

use hapax_core::attempt::AttemptId;
use hapax_core::lock::{Lock, LockKey};
use hapax_core::name::Namespace;

use crate::error::StoreError;

/// The reads of locks.
pub trait LockView {
    /// The lock of this key, if it is held.
    fn lock(&mut self, namespace: &Namespace, key: LockKey) -> Result<Option<Lock>, StoreError>;
}

/// The writes of locks.
pub trait LockTxn {
    /// Writes a lock that was just taken.
    fn put_lock(&mut self, namespace: &Namespace, lock: &Lock) -> Result<(), StoreError>;

    /// Releases a lock, if this attempt holds it.
    fn drop_lock(
        &mut self,
        namespace: &Namespace,
        key: LockKey,
        attempt: AttemptId,
    ) -> Result<(), StoreError>;
}
