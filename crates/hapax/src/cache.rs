//! Outcomes in memory, for as long as this process is known to be up to date.
//!
//! A reset on another node waits until every live lease has seen it, so what is cached here
//! is good while our lease is. When we cannot be sure of the lease, nothing is answered from
//! memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hapax_core::fingerprint::Fingerprint;
use hapax_core::name::Name;
use hapax_core::outcome::Outcome;
use quick_cache::Weighter;
use quick_cache::sync::Cache as Bounded;

/// How many bytes of outcomes are kept.
const BYTES: u64 = 64 * 1024 * 1024;
/// What an entry costs beside its body.
const OVERHEAD: u64 = 256;

#[derive(Clone)]
struct Remembered {
    fingerprint: Fingerprint,
    outcome: Outcome,
}

#[derive(Clone)]
struct BySize;

impl Weighter<Name, Remembered> for BySize {
    fn weight(&self, _: &Name, value: &Remembered) -> u64 {
        OVERHEAD + value.outcome.body().map_or(0, |body| body.len() as u64)
    }
}

pub(crate) struct Cache {
    outcomes: Bounded<Name, Remembered, BySize>,
    start: Instant,
    /// Milliseconds after `start` until which the cache may be believed.
    fresh_until: AtomicU64,
}

impl Cache {
    pub(crate) fn new() -> Self {
        let outcomes = Bounded::with_weighter((BYTES / OVERHEAD) as usize, BYTES, BySize);
        Self { outcomes, start: Instant::now(), fresh_until: AtomicU64::new(0) }
    }

    /// The outcome of an effect, if it is remembered for this very payload.
    pub(crate) fn get(&self, name: &Name, fingerprint: Fingerprint) -> Option<Outcome> {
        if self.start.elapsed().as_millis() as u64 >= self.fresh_until.load(Ordering::Acquire) {
            return None;
        }
        let found = self.outcomes.get(name)?;
        (found.fingerprint == fingerprint).then_some(found.outcome)
    }

    pub(crate) fn put(&self, name: &Name, fingerprint: Fingerprint, outcome: Outcome) {
        self.outcomes.insert(name.clone(), Remembered { fingerprint, outcome });
    }

    /// Our lease was good at `since`, so nothing we have not seen can be done for this long.
    pub(crate) fn fresh(&self, since: Instant, term: Duration) {
        let until = since.saturating_duration_since(self.start) + term;
        self.fresh_until.store(until.as_millis() as u64, Ordering::Release);
    }

    /// Forgets everything, before whatever made it stale is acknowledged.
    pub(crate) fn clear(&self) {
        self.outcomes.clear();
    }

    /// Answers nothing until [`fresh`](Self::fresh) is called again.
    pub(crate) fn doubt(&self) {
        self.fresh_until.store(0, Ordering::Release);
        self.clear();
    }
}
