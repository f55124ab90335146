//! A delivery that waits for its turn, and its history.

use std::sync::Arc;
use std::time::Duration;

use hapax_core::outbox::Record;
use hapax_core::time::Timestamp;
use hapax_store::outbox::{GuardCheck, QueuedDelivery};
use tokio::time::Instant;

/// How often a delivery's dispatcher must die until the delivery is sent alone.
const SUSPECT: u32 = 3;

/// A delivery that is not acknowledged yet.
pub(super) struct PendingDelivery {
    pub(super) record: Arc<Record>,
    pub(super) transaction: u64,
    pub(super) row: u64,
    pub(super) tried: u32,
    pub(super) refused: bool,
    /// Why guards bar it.
    pub(super) barred: Option<String>,
    pub(super) due: Instant,
}

/// The history of a delivery.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Past {
    /// Nothing against it: at most its dispatcher died once or twice, with many deliveries in flight.
    Clean,
    /// The sink has refused it.
    Refused,
    /// Its dispatchers died, again and again. It is sent alone, to find out whether it is the reason.
    Suspect,
    /// It was sent alone, and its dispatcher died again.
    Deadly,
    /// Guards bar it.
    Barred,
}

impl PendingDelivery {
    /// Makes one from a delivery that was read, at this moment and this time of the store.
    pub(super) fn of(queued: QueuedDelivery, (now, wall): (Instant, Timestamp)) -> Self {
        let wait = queued.due.0.saturating_sub(wall.0).max(0) as u64;
        Self {
            record: Arc::new(queued.record),
            transaction: queued.transaction,
            row: queued.row,
            tried: queued.tried,
            refused: queued.refused,
            barred: match queued.guards {
                GuardCheck::Barred(against) => Some(against),
                GuardCheck::Passed | GuardCheck::Unchecked => None,
            },
            due: now + Duration::from_millis(wait),
        }
    }

    pub(super) fn past(&self, attempts: u32) -> Past {
        match self.tried {
            _ if self.barred.is_some() => Past::Barred,
            _ if self.refused => Past::Refused,
            0..SUSPECT => Past::Clean,
            tried if tried >= attempts.max(SUSPECT + 1) => Past::Deadly,
            _ => Past::Suspect,
        }
    }
}
