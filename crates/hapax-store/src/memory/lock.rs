//! Locks, in memory.

use hapax_core::attempt::AttemptId;
use hapax_core::lock::{Lock, LockKey};
use hapax_core::name::Namespace;

use super::MemoryTxn;
use crate::error::StoreError;
use crate::lock::{LockTxn, LockView};

impl LockView for MemoryTxn<'_> {
    fn lock(&mut self, namespace: &Namespace, key: LockKey) -> Result<Option<Lock>, StoreError> {
        Ok(self.tables.locks.get(&(namespace.clone(), key)).copied())
    }
}

impl LockTxn for MemoryTxn<'_> {
    fn put_lock(&mut self, namespace: &Namespace, lock: &Lock) -> Result<(), StoreError> {
        self.set(|tables| &mut tables.locks, (namespace.clone(), lock.key), Some(*lock));
        Ok(())
    }

    fn drop_lock(
        &mut self,
        namespace: &Namespace,
        key: LockKey,
        attempt: AttemptId,
    ) -> Result<(), StoreError> {
        if self.lock(namespace, key)?.is_some_and(|lock| lock.attempt == attempt) {
            self.set(|tables| &mut tables.locks, (namespace.clone(), key), None);
        }
        Ok(())
    }
}
