//! Liveness: each process holds an operating-system lock on a file of its lease.
//!
//! The system releases the lock when the process dies, however it dies. A free lock is proof of
//! death, so no process waits out a crash; a held lock proves nothing, because a stopped process
//! holds it too. The lock is shared, so that processes that work for a holder can hold it as well:
//! it is free when the last of them is gone.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use hapax_core::lease::LeaseId;
use hapax_store::StoreError;

/// The lease files beside one database.
#[derive(Debug)]
pub(crate) struct LivenessLocks {
    directory: PathBuf,
    held: Mutex<HashMap<LeaseId, File>>,
}

impl LivenessLocks {
    pub(crate) fn beside(database: &Path) -> Self {
        let mut directory = database.as_os_str().to_owned();
        directory.push("-leases");
        Self { directory: directory.into(), held: Mutex::default() }
    }

    /// Takes the lock of a lease, and holds it for as long as this process lives.
    pub(crate) fn hold(&self, lease: LeaseId) -> Result<(), StoreError> {
        let path = self.path(lease);
        let io =
            |error: std::io::Error| StoreError::Unavailable(format!("{}: {error}", path.display()));
        std::fs::create_dir_all(&self.directory).map_err(io)?;
        let file = File::create(&path).map_err(io)?;
        file.lock_shared().map_err(io)?;
        self.held().insert(lease, file);
        Ok(())
    }

    /// Whether the holder of this lease is certainly dead.
    pub(crate) fn is_gone(&self, lease: LeaseId) -> bool {
        if self.held().contains_key(&lease) {
            return false;
        }
        match File::open(self.path(lease)) {
            Ok(file) => match file.try_lock() {
                Ok(()) => true,
                Err(TryLockError::WouldBlock | TryLockError::Error(_)) => false,
            },
            Err(_) => false,
        }
    }

    /// Removes the file of a lease that is over. The directory goes with the last one.
    pub(crate) fn remove(&self, lease: LeaseId) {
        self.held().remove(&lease);
        let _ = std::fs::remove_file(self.path(lease));
        let _ = std::fs::remove_dir(&self.directory);
    }

    pub(crate) fn path(&self, lease: LeaseId) -> PathBuf {
        self.directory.join(lease.to_string())
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<LeaseId, File>> {
        self.held.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_gone_only_when_its_lock_is_free() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("x.db");
        let (mine, theirs) = (LivenessLocks::beside(&database), LivenessLocks::beside(&database));
        let lease = LeaseId::from_bytes([1; 16]);
        assert!(!mine.is_gone(lease), "no file is no proof");
        theirs.hold(lease).unwrap();
        assert!(!mine.is_gone(lease));
        drop(theirs);
        assert!(mine.is_gone(lease));
        mine.remove(lease);
        assert!(!database.with_file_name("x.db-leases").exists());
    }
}
