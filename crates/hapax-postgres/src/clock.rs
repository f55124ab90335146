//! The server's clock, and the estimate that this process makes of it.
//!
//! A decision about another process reads the server's clock inside its transaction. For up to 200 ms
//! after a reading, this process adds its own monotonic clock, which is good enough to date an entry.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use hapax_core::time::{LeaseInstant, Now, Timestamp};
use hapax_store::{Clock, StoreError};

use crate::connect::Link;
use crate::error::PgFailure;

/// Leases are measured by the server's wall clock too, so all its instants are of one era. The pulse
/// deals with clock jumps and with a failover to another server.
pub(crate) const ERA: u64 = 1;

/// How long this process estimates the time from one reading.
const READING_VALID_MS: u64 = 200;

/// How far the server's clock may run ahead of this process's before this process doubts it.
const TOLERANCE_MS: i64 = 60_000;

#[derive(Clone, Copy)]
struct Reading {
    server_ms: i64,
    local: Instant,
}

/// The server's clock, or a test's.
pub(crate) struct ServerClock {
    test_clock: Option<Arc<dyn Clock>>,
    /// The first reading and the newest.
    readings: Mutex<Option<(Reading, Reading)>>,
}

impl ServerClock {
    pub(crate) fn new(test_clock: Option<Arc<dyn Clock>>) -> Self {
        Self { test_clock, readings: Mutex::new(None) }
    }

    /// Reads the server's clock.
    pub(crate) fn read(&self, link: &Link) -> Result<Now, PgFailure> {
        self.query(link).map(|(now, _)| now)
    }

    /// Reads the server's clock in a transaction that [`Link::begin`] has begun. Fails if it was not
    /// begun: the next writes would be committed statement by statement.
    pub(crate) fn read_in_transaction(&self, link: &Link) -> Result<Now, PgFailure> {
        match self.query(link)? {
            (now, true) => Ok(now),
            (_, false) => Err(PgFailure::Lost("the transaction was not begun".into())),
        }
    }

    /// The server's time, and whether a transaction is open.
    fn query(&self, link: &Link) -> Result<(Now, bool), PgFailure> {
        let rows = link.query_prepared((
            "SELECT hapax.now_ms(), coalesce(current_setting('hapax.begun', true) = 'yes', false)",
            &[],
        ))?;
        let Some(row) = rows.first() else {
            return Err(StoreError::Corrupt("the server has no clock".into()).into());
        };
        let (server_ms, begun) = (row.try_get(0)?, row.try_get(1)?);
        if let Some(clock) = &self.test_clock {
            return Ok((clock.now(), begun));
        }
        let newest = Reading { server_ms, local: Instant::now() };
        let mut readings = self.lock();
        let (first, _) = readings.unwrap_or((newest, newest));
        *readings = Some((first, newest));
        Ok((now(first, newest, 0), begun))
    }

    /// The server's time, estimated from the last reading, or read again if that is too old.
    pub(crate) fn estimate(&self, link: &Link) -> Result<Now, PgFailure> {
        if let Some(clock) = &self.test_clock {
            return Ok(clock.now());
        }
        let readings = *self.lock();
        if let Some((first, newest)) = readings {
            let ahead = newest.local.elapsed().as_millis() as u64;
            if ahead <= READING_VALID_MS {
                return Ok(now(first, newest, ahead));
            }
        }
        self.read(link)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(Reading, Reading)>> {
        self.readings.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn now(first: Reading, newest: Reading, ahead_ms: u64) -> Now {
    let server = newest.server_ms.saturating_sub(first.server_ms);
    let local = newest.local.duration_since(first.local).as_millis() as i64;
    let wall = Timestamp(newest.server_ms).plus_ms(ahead_ms);
    Now {
        wall,
        lease: LeaseInstant { era: ERA, ms: wall.0.max(0) as u64 },
        wall_trusted: server <= local + local / 1000 + TOLERANCE_MS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Proves K-17 for this store: the server's clock is doubted when it outruns ours.
    #[test]
    fn a_server_clock_that_jumps_ahead_is_doubted() {
        let local = Instant::now();
        let first = Reading { server_ms: 1_000, local };
        let after = |server_ms, secs| {
            let newest = Reading { server_ms, local: local + Duration::from_secs(secs) };
            now(first, newest, 0).wall_trusted
        };
        assert!(after(3_601_000, 3_600));
        assert!(after(0, 3_600), "behind is harmless");
        assert!(!after(3_601_000, 1));
    }

    /// Without a transaction, its writes would be committed statement by statement.
    #[test]
    fn a_transaction_that_was_not_begun_is_noticed() {
        let server = hapax_testkit::Postgres::start();
        let url = server.database("begun");
        crate::PgStore::migrate(&url).unwrap();
        let link = Link::connect(&crate::connect::Address::parse(&url).unwrap()).unwrap();
        let clock = ServerClock::new(None);
        assert!(clock.read(&link).is_ok());
        assert!(matches!(clock.read_in_transaction(&link), Err(PgFailure::Lost(_))));
        link.begin("READ ONLY", "SET LOCAL jit = off");
        assert!(clock.read_in_transaction(&link).is_ok());
        link.run("COMMIT").unwrap();
        assert!(matches!(clock.read_in_transaction(&link), Err(PgFailure::Lost(_))), "it is over");
    }
}
