//! One ordering key at one sink: its deliveries in order, and its state.
//!
//! ```text
//!      ┌──────────▶ Waiting ──due──┐
//!   Drained ──▶ Ready ◀─────────────┤
//!      ▲          │ └──▶ Alone ─────┘   its dispatchers ended again and again
//!      │          ▼
//!      ├────── InFlight
//!      │          └──▶ Parked           a delivery failed for good
//!      └─────────────────┘              until an operator redrives it
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hapax_core::outbox::Record;
use hapax_core::time::Timestamp;
use hapax_store::outbox::{GuardCheck, QueuedDelivery};
use tokio::time::Instant;

/// How often a delivery's dispatcher must end until the delivery is sent alone.
const SUSPECT: u32 = 3;

/// The deliveries of one ordering key.
pub(super) struct OrderingKey {
    pub(super) state: KeyState,
    /// Ordered by sequence number. Those in flight come first.
    pub(super) deliveries: VecDeque<PendingDelivery>,
    /// The smallest sequence number that was not taken in, because there was no room.
    pub(super) left_out: Option<u64>,
}

/// The state of an ordering key. The queue's schedules are hints; this decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyState {
    /// Nothing of it is in flight, and it is in no schedule.
    Drained,
    /// Its first delivery can be sent.
    Ready,
    /// Its first delivery is due then.
    Waiting(Instant),
    /// Its first delivery is sent once nothing else is in flight.
    Alone,
    /// So many of its deliveries are in flight.
    InFlight(usize),
    /// It waits behind a failed delivery until an operator redrives that.
    Parked {
        /// The sequence number of the failed delivery.
        failed: u64,
        /// Once the failure is durable, the newest share request that may have missed it.
        missed_by: Option<u64>,
    },
}

impl OrderingKey {
    pub(super) fn new() -> Self {
        Self { state: KeyState::Drained, deliveries: VecDeque::new(), left_out: None }
    }

    /// How many of its deliveries are in flight.
    pub(super) fn in_flight(&self) -> usize {
        match self.state {
            KeyState::InFlight(count) => count,
            _ => 0,
        }
    }

    pub(super) fn is_parked(&self) -> bool {
        matches!(self.state, KeyState::Parked { .. })
    }

    /// The position of a delivery that is in flight.
    pub(super) fn position(&self, seq: u64) -> Option<usize> {
        self.deliveries.iter().take(self.in_flight()).position(|one| one.record.seq == seq)
    }

    /// Removes the delivery at this position, which was in flight.
    pub(super) fn remove(&mut self, position: usize) {
        self.deliveries.remove(position);
        self.state = match self.in_flight() {
            0 | 1 => KeyState::Drained,
            count => KeyState::InFlight(count - 1),
        };
    }
}

/// A delivery that the sink has not acknowledged yet.
pub(super) struct PendingDelivery {
    pub(super) record: Arc<Record>,
    pub(super) transaction: u64,
    pub(super) row: u64,
    pub(super) tried: u32,
    pub(super) refused: bool,
    /// Why the guards bar it.
    pub(super) barred: Option<String>,
    pub(super) due: Instant,
}

/// The history of a delivery, which decides how it is sent.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum History {
    /// Nothing against it: at most its dispatcher ended once or twice, with many deliveries in
    /// flight.
    Clean,
    /// The sink has refused it.
    Refused,
    /// Its dispatchers ended again and again. It is sent alone, which shows whether it is the reason.
    Suspect,
    /// It was sent alone, and its dispatcher ended again. It is given up, or with `block` sent alone.
    Deadly,
    /// The guards bar it.
    Barred,
}

impl PendingDelivery {
    /// Makes one from a delivery that was read. `wall` is the store's clock at the read, `now` ours.
    pub(super) fn new(queued: QueuedDelivery, (now, wall): (Instant, Timestamp)) -> Self {
        let wait_ms = queued.due.0.saturating_sub(wall.0).max(0) as u64;
        Self {
            record: Arc::new(queued.record),
            transaction: queued.transaction,
            row: queued.row,
            tried: queued.tried,
            refused: queued.refused,
            barred: match queued.guards {
                GuardCheck::Barred(objection) => Some(objection),
                GuardCheck::Passed | GuardCheck::Unchecked => None,
            },
            due: now + Duration::from_millis(wait_ms),
        }
    }

    pub(super) fn history(&self, attempts: u32) -> History {
        match self.tried {
            _ if self.barred.is_some() => History::Barred,
            _ if self.refused => History::Refused,
            0..SUSPECT => History::Clean,
            tried if tried >= attempts.max(SUSPECT + 1) => History::Deadly,
            _ => History::Suspect,
        }
    }
}
