//! How often what happened, since this process opened the ledger.

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
    /// Counts what a caller was told that asked for permission.
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

    /// Counts whether memory had an answer.
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

/// How often what happened in this process. See [`Hapax::counts`](crate::Hapax::counts).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Permissions given.
    pub granted: u64,
    /// Those of them that were not the first attempt.
    pub retried: u64,
    /// Outcomes told again, from memory or from the ledger.
    pub replayed: u64,
    /// Those of them that were told from memory.
    pub cache_hits: u64,
    /// Requests that memory could not answer.
    pub cache_misses: u64,
    /// Locks that were held by others.
    pub lock_failures: u64,
    /// Keys that were used with another payload.
    pub conflicts: u64,
    /// Requests that somebody has to look at first.
    pub blocked: u64,
    /// Requests that found somebody of another process at it.
    pub in_flight: u64,
}
