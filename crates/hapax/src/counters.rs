//! The counters of this process since it opened the ledger.

use std::sync::atomic::{AtomicU64, Ordering};

use hapax_core::effect::Verdict;

/// A number that only grows.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) granted: Counter,
    pub(crate) retried: Counter,
    pub(crate) replayed: Counter,
    pub(crate) cache_hits: Counter,
    pub(crate) cache_misses: Counter,
    pub(crate) lock_failures: Counter,
    pub(crate) conflicts: Counter,
    pub(crate) blocked: Counter,
    in_flight: Counter,
}

impl Counters {
    /// Counts the verdict on a caller's claim.
    pub(crate) fn verdict(&self, verdict: &Verdict) {
        match verdict {
            Verdict::Granted(grant) => {
                self.granted.add();
                if grant.nth > 1 {
                    self.retried.add();
                }
            }
            Verdict::Replayed { .. } => self.replayed.add(),
            Verdict::Locked { .. } => self.lock_failures.add(),
            Verdict::Conflict { .. } => self.conflicts.add(),
            Verdict::Blocked(_) => self.blocked.add(),
            Verdict::InFlight { .. } => self.in_flight.add(),
            Verdict::Refused { .. } | Verdict::Outdated(_) | Verdict::Undecided { .. } => {}
        }
    }

    /// Counts a cache hit or a cache miss.
    pub(crate) fn remembered(&self, hit: bool) {
        match hit {
            true => [&self.cache_hits, &self.replayed].into_iter().for_each(Counter::add),
            false => self.cache_misses.add(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            granted: self.granted.get(),
            retried: self.retried.get(),
            replayed: self.replayed.get(),
            cache_hits: self.cache_hits.get(),
            cache_misses: self.cache_misses.get(),
            lock_failures: self.lock_failures.get(),
            conflicts: self.conflicts.get(),
            blocked: self.blocked.get(),
            in_flight: self.in_flight.get(),
        }
    }
}

/// The counters of this process. See [`Hapax::counts`](crate::Hapax::counts).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Claims granted.
    pub granted: u64,
    /// Grants that were not the first attempt.
    pub retried: u64,
    /// Outcomes replayed, from the cache or from the ledger.
    pub replayed: u64,
    /// Outcomes replayed from the cache.
    pub cache_hits: u64,
    /// Requests that the cache could not answer.
    pub cache_misses: u64,
    /// Claims refused because another effect held the lock.
    pub lock_failures: u64,
    /// Keys that were used with another payload.
    pub conflicts: u64,
    /// Claims blocked until a reconciler, a rollback or an operator decides.
    pub blocked: u64,
    /// Claims that found another attempt in flight.
    pub in_flight: u64,
}
