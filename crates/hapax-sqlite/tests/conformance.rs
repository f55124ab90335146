//! The conformance suite on SQLite.

use std::sync::Arc;

use hapax_sqlite::{Options, SqliteStore};
use hapax_store::{Job, ManualClock, Reading, Store, StoreError};

/// A store in a directory that goes when the test does.
struct Temporary {
    store: SqliteStore,
    _directory: tempfile::TempDir,
}

impl Store for Temporary {
    fn submit(&self, jobs: Vec<Job>) {
        self.store.submit(jobs);
    }

    fn read(&self, reading: Reading) {
        self.store.read(reading);
    }

    fn attach(&self, lease: hapax_core::lease::LeaseId) -> Result<(), StoreError> {
        self.store.attach(lease)
    }
}

fn open(clock: Arc<ManualClock>) -> Temporary {
    let directory = tempfile::tempdir().expect("a directory");
    let store =
        SqliteStore::open(directory.path().join("ledger.db"), Options { clock }).expect("a store");
    Temporary { store, _directory: directory }
}

hapax_store::conformance!(open);
