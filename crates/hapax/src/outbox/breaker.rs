//! The circuit breaker of a sink.
//!
//!   closed ──down, several times in a row──▶ open ──a while──▶ trying ──delivered──▶ closed
//!                                             ▲                  │
//!                                             └──────down────────┘

use std::time::Duration;

use hapax_core::retry::Backoff;
use tokio::time::Instant;

/// How many times in a row a sink must seem to be down before the breaker opens.
const TRIPS: u32 = 3;

/// How long the breaker stays open: longer each time.
const ALONE: Backoff = Backoff { base_ms: 1_000, cap_ms: 30_000, attempts: u32::MAX };

/// Keeps the dispatcher from trying every delivery at a sink that is down.
#[derive(Debug)]
pub(super) struct Breaker {
    downs: u32,
    /// Until when nothing is sent, and how many times in a row the breaker has opened.
    open: Option<(Instant, u32)>,
    /// Whether one delivery is in flight as a probe.
    trying: bool,
}

impl Breaker {
    pub(super) fn new() -> Self {
        Self { downs: 0, open: None, trying: false }
    }

    /// How many of these deliveries may be sent now.
    pub(super) fn admits(&self, now: Instant, many: usize) -> usize {
        match self.open {
            None => many,
            Some((until, _)) if now < until || self.trying => 0,
            Some(_) => many.min(1),
        }
    }

    /// When to look again, if nothing may be sent now.
    pub(super) fn next(&self) -> Option<Instant> {
        self.open.filter(|_| !self.trying).map(|(until, _)| until)
    }

    /// Notes that deliveries are sent.
    pub(super) fn sends(&mut self) {
        self.trying = self.open.is_some();
    }

    /// The sink took a delivery, or refused it for a reason of its own: it is up.
    pub(super) fn answered(&mut self) {
        *self = Self::new();
    }

    /// The sink seems to be down.
    pub(super) fn down(&mut self, now: Instant, dice: u64) {
        self.downs += 1;
        let nth = match self.open {
            None if self.downs < TRIPS => return,
            None => 1,
            // Deliveries sent before the breaker opened come back one after the other.
            Some((_, nth)) if !self.trying => nth,
            Some((_, nth)) => nth + 1,
        };
        let half = ALONE.ceiling_ms(nth).unwrap_or(ALONE.cap_ms) / 2;
        let jitter = (u128::from(dice) * u128::from(half)) >> 64;
        self.open = Some((now + Duration::from_millis(half + jitter as u64), nth));
        self.trying = false;
    }

    /// Whether the breaker is open.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sink_that_is_down_is_left_alone_for_longer_and_longer() {
        let start = Instant::now();
        let mut breaker = Breaker::new();
        breaker.down(start, 0);
        breaker.answered();
        for _ in 0..TRIPS {
            assert_eq!(breaker.admits(start, 9), 9);
            breaker.down(start, 0);
        }
        let mut now = start;
        for half_ms in [500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000] {
            assert_eq!((breaker.admits(now, 9), breaker.is_open()), (0, true));
            assert_eq!(breaker.next(), Some(now + Duration::from_millis(half_ms)));
            now += Duration::from_millis(half_ms);
            assert_eq!(breaker.admits(now, 9), 1, "one finds out");
            breaker.sends();
            assert_eq!((breaker.admits(now, 9), breaker.next()), (0, None));
            breaker.down(now, 0);
        }
        now += Duration::from_secs(60);
        breaker.sends();
        breaker.answered();
        assert_eq!((breaker.admits(now, 9), breaker.is_open()), (9, false));
    }
}
