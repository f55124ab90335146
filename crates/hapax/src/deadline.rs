//! How long a caller waits for another attempt, and how it spends that time.

use std::time::Duration;

use hapax_core::retry::Backoff;
use tokio::time::Instant;

use crate::engine::random;

/// How long a caller is willing to wait, and how often it has.
pub(crate) struct Deadline {
    until: Instant,
    waits: u32,
}

impl Deadline {
    const PAUSES: Backoff = Backoff { base_ms: 10, cap_ms: 500, attempts: u32::MAX };

    pub(crate) fn until(until: Instant) -> Self {
        Self { until, waits: 0 }
    }

    /// The time left, if there is any.
    pub(crate) fn left(&self) -> Option<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// Waits a while, if there is time left.
    pub(crate) async fn pause(&mut self) -> Option<()> {
        let left = self.left()?;
        self.waits = self.waits.saturating_add(1);
        let dice = random().map_or(u64::MAX, u64::from_be_bytes);
        let pause = Self::PAUSES.delay_ms(self.waits, dice).unwrap_or(500);
        tokio::time::sleep(Duration::from_millis(pause.max(1)).min(left)).await;
        Some(())
    }
}
