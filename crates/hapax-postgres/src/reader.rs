//! Readers beside the lanes: one snapshot serves all queued reads.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use hapax_store::{Reading, StoreError};

use crate::connect::Link;
use crate::error::PgFailure;
use crate::store::Shared;
use crate::txn::{Access, PgTxn};

/// How many reads share a snapshot at most.
const BATCH: usize = 256;

/// Works until every sender is gone.
pub(crate) fn run(shared: &Arc<Shared>, queue: &Arc<Mutex<Receiver<Reading>>>) {
    let mut link = None;
    loop {
        // Taken before the snapshot: a later caller may know of a commit that the snapshot lacks.
        let readings: Vec<Reading> = {
            let queue = queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let Ok(first) = queue.recv() else { return };
            std::iter::once(first).chain(queue.try_iter().take(BATCH - 1)).collect()
        };
        let opened = match shared.queue.stopped() {
            Some(error) => Err(error.into()),
            None => open(shared, &mut link),
        };
        match opened {
            Ok(link) => {
                for reading in readings {
                    serve(shared, link, reading);
                }
                // An unused snapshot would keep the server from cleaning up.
                if link.run("COMMIT").is_err() {
                    tracing::debug!("a read could not be ended");
                }
            }
            Err(failure) => {
                let error = failure.into_store_error();
                for reading in readings {
                    reading(Err(error.clone()));
                }
            }
        }
    }
}

/// A connection with a snapshot, which the first statement takes.
fn open<'a>(shared: &Shared, link: &'a mut Option<Link>) -> Result<&'a Link, PgFailure> {
    if link.as_ref().is_some_and(Link::is_closed) {
        *link = None;
    }
    let link = match link {
        Some(link) => link,
        none => none.insert(shared.connect()?),
    };
    link.begin("ISOLATION LEVEL REPEATABLE READ READ ONLY", "SET LOCAL jit = off");
    Ok(link)
}

fn serve(shared: &Shared, link: &Link, reading: Reading) {
    match shared.clock.estimate(link) {
        Ok(now) => {
            reading(Ok(&mut PgTxn::new(link, &shared.namespaces, now, Access::ReadOnly)));
        }
        Err(failure) => {
            let error: StoreError = failure.into_store_error();
            reading(Err(error));
        }
    }
}
