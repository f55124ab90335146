//! The reader beside the writer: everything that waits is read from one snapshot.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use hapax_store::Reading;
use rusqlite::Connection;

use crate::error::store_error;
use crate::store::Shared;
use crate::txn::{Memory, SqliteTxn};

/// How many reads share a snapshot at most.
const BATCH: usize = 256;

/// Works until every sender is gone.
pub(crate) fn run(db: &Connection, shared: &Arc<Shared>, queue: &Receiver<Reading>) {
    let mut memory = Memory::default();
    while let Ok(first) = queue.recv() {
        // Taken before the snapshot: whoever asks later may know of a commit it does not have.
        let readings: Vec<_> =
            std::iter::once(first).chain(queue.try_iter().take(BATCH - 1)).collect();
        let snapshot = db.unchecked_transaction();
        memory.forget_rows();
        for reading in readings {
            match (shared.stopped(), &snapshot) {
                (Some(error), _) => reading(Err(error)),
                (None, Err(error)) => {
                    reading(Err(hapax_store::StoreError::Unavailable(error.to_string())))
                }
                (None, Ok(_)) => reading(Ok(&mut SqliteTxn::new(db, &shared.around, &mut memory))),
            }
        }
        if let Err(error) = snapshot.and_then(rusqlite::Transaction::rollback) {
            tracing::warn!(name: "read_not_ended", error = %store_error(error), "a read could not be ended");
        }
    }
}
