//! Readers beside the writer: many waiting reads share one snapshot.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use hapax_store::Reading;
use rusqlite::Connection;

use crate::connection_cache::ConnectionCache;
use crate::error::OrStoreError;
use crate::store::Shared;
use crate::txn::SqliteTxn;

/// How many reads share a snapshot at most. The other reader takes the rest.
const BATCH: usize = 32;

/// Works until every sender is gone.
pub(crate) fn run(db: &Connection, shared: &Arc<Shared>, queue: &Mutex<Receiver<Reading>>) {
    let mut cache = ConnectionCache::with_room();
    loop {
        // Reads are taken before the snapshot: a caller that asks later may know of a commit that
        // the snapshot does not have.
        let readings: Vec<Reading> = {
            let queue = queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let Ok(first) = queue.recv() else { return };
            std::iter::once(first).chain(queue.try_iter().take(BATCH - 1)).collect()
        };
        let snapshot = db.unchecked_transaction().or_store_error().and_then(|snapshot| {
            cache.refresh(db)?;
            Ok(snapshot)
        });
        let mut txn = SqliteTxn::new(db, &shared.context, &mut cache);
        for reading in readings {
            txn.begin_command();
            match (shared.stopped(), &snapshot) {
                (Some(error), _) => reading(Err(error)),
                (None, Err(error)) => reading(Err(error.clone())),
                (None, Ok(_)) => reading(Ok(&mut txn)),
            }
        }
        if let Err(error) = snapshot.and_then(|snapshot| snapshot.rollback().or_store_error()) {
            tracing::warn!(name: "read_not_ended", %error, "a read could not be ended");
        }
    }
}
