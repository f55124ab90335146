//! Where a store gets its time from.

use std::sync::Mutex;

use hapax_core::time::{LeaseInstant, Now, Timestamp};

/// A store's clocks. Each store has a real one; tests bring their own.
pub trait Clock: Send + Sync + 'static {
    /// One reading of both clocks.
    fn now(&self) -> Now;
}

/// A clock that moves only when a test advances it.
#[derive(Debug)]
pub struct ManualClock(Mutex<Now>);

impl Default for ManualClock {
    fn default() -> Self {
        Self(Mutex::new(Now {
            wall: Timestamp(1_800_000_000_000),
            lease: LeaseInstant { era: 1, ms: 1_000_000 },
            wall_trusted: true,
        }))
    }
}

impl ManualClock {
    /// Moves both clocks on.
    pub fn advance(&self, ms: u64) {
        self.change(|now| {
            now.wall = now.wall.plus_ms(ms);
            now.lease = now.lease.plus_ms(ms);
        });
    }

    /// Changes the reading in any way, as a broken clock might.
    pub fn change(&self, change: impl FnOnce(&mut Now)) {
        change(&mut self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Now {
        *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
