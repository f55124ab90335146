//! Outcomes in memory, valid for as long as this process knows that its lease is good.
//!
//! A reset on another node waits until every live lease has seen it, so a cached outcome is valid
//! while our lease is. When the lease may be over, the cache answers nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hapax_core::fingerprint::Fingerprint;
use hapax_core::name::Name;
use hapax_core::outcome::Outcome;
use hapax_store::Clock;
use quick_cache::Weighter;
use quick_cache::sync::Cache as Bounded;

/// How many bytes of outcomes the cache holds, unless the builder says otherwise.
pub(crate) const BYTES: u64 = 64 * 1024 * 1024;
/// The cost of an entry beside its body, in bytes.
const OVERHEAD: u64 = 256;

#[derive(Clone)]
struct Remembered {
    fingerprint: Fingerprint,
    outcome: Outcome,
    /// When the record expires at the earliest, by the cache's clock.
    until_ms: Option<u64>,
    /// How often the cache had been cleared when the engine asked the store for this outcome. A later clear makes
    /// the entry invalid at once, also before it is removed.
    cleared: u64,
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
    /// The clock that leases are judged by, which also counts while the machine sleeps.
    clock: Arc<dyn Clock>,
    /// Until when the cache may be trusted, by that clock.
    fresh_until_ms: AtomicU64,
    cleared: AtomicU64,
}

/// When the engine asked the store, so that an answer older than a [`Cache::clear`] is not cached.
#[derive(Clone, Copy)]
pub(crate) struct AskedAt {
    cleared: u64,
    at_ms: u64,
}

impl AskedAt {
    /// Whether the cache was not cleared between the two requests.
    pub(crate) fn is_as_good_as(self, other: Self) -> bool {
        self.cleared == other.cleared
    }
}

impl Cache {
    pub(crate) fn new(clock: Arc<dyn Clock>, bytes: u64) -> Self {
        let outcomes = Bounded::with_weighter((bytes / OVERHEAD) as usize, bytes, BySize);
        let (fresh_until_ms, cleared) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { outcomes, clock, fresh_until_ms, cleared }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now().lease.ms
    }

    /// The outcome of an effect, if it is cached for this very payload.
    pub(crate) fn get(&self, name: &Name, fingerprint: Fingerprint) -> Option<Outcome> {
        let found = self.find(name, fingerprint)?;
        let expired = found.until_ms.is_some_and(|until| self.now_ms() >= until);
        (!expired).then_some(found.outcome)
    }

    /// The outcome of an effect, if it is cached for this very payload and never expires.
    pub(crate) fn get_lasting(&self, name: &Name, fingerprint: Fingerprint) -> Option<Outcome> {
        let found = self.find(name, fingerprint)?;
        found.until_ms.is_none().then_some(found.outcome)
    }

    fn find(&self, name: &Name, fingerprint: Fingerprint) -> Option<Remembered> {
        if self.now_ms() >= self.fresh_until_ms.load(Ordering::Acquire) {
            return None;
        }
        let cleared = self.cleared.load(Ordering::Acquire);
        let counts =
            |found: &Remembered| found.fingerprint == fingerprint && found.cleared == cleared;
        self.outcomes.get(name).filter(counts)
    }

    /// Whether there was a lease and it may be over: a reset may then not have waited for this process.
    pub(crate) fn is_in_doubt(&self) -> bool {
        let until = self.fresh_until_ms.load(Ordering::Acquire);
        until > 0 && self.now_ms() >= until
    }

    /// How often the cache was cleared; `None` while this process may have missed a reset.
    pub(crate) fn stamp(&self) -> Option<u64> {
        let cleared = self.cleared.load(Ordering::Acquire);
        (self.now_ms() < self.fresh_until_ms.load(Ordering::Acquire)).then_some(cleared)
    }

    /// Call this before asking the store for the outcome that goes to [`put`](Self::put).
    pub(crate) fn asked(&self) -> AskedAt {
        AskedAt { cleared: self.cleared.load(Ordering::Acquire), at_ms: self.now_ms() }
    }

    /// Caches the store's answer, unless the cache was cleared since it was asked. A record that
    /// was settled after the request expires no earlier than one `ttl` after the request.
    pub(crate) fn put(
        &self,
        asked: AskedAt,
        name: &Name,
        fingerprint: Fingerprint,
        outcome: Outcome,
        ttl: Option<Duration>,
    ) {
        let ttl_ms = ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        let until_ms = ttl_ms.map(|ttl_ms| asked.at_ms.saturating_add(ttl_ms));
        if self.asked().is_as_good_as(asked) {
            let cleared = asked.cleared;
            let remembered = Remembered { fingerprint, outcome, until_ms, cleared };
            self.outcomes.insert(name.clone(), remembered);
        }
    }

    /// Our lease was good at `since_ms`, so no reset can finish without us for one term of the
    /// store's clock. Our clock may be slower and rounds differently, so the cache trusts it for an eighth less.
    pub(crate) fn fresh(&self, since_ms: u64, term: Duration) {
        let until = since_ms.saturating_add((term - term / 8).as_millis() as u64);
        self.fresh_until_ms.store(until, Ordering::Release);
    }

    /// Clears the cache, before the change that made it stale is acknowledged.
    pub(crate) fn clear(&self) {
        self.cleared.fetch_add(1, Ordering::AcqRel);
        self.outcomes.clear();
    }

    /// Answers nothing until [`fresh`](Self::fresh) is called again.
    pub(crate) fn doubt(&self) {
        self.fresh_until_ms.store(0, Ordering::Release);
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_core::key::Key;
    use hapax_core::name::Namespace;

    fn remembered(fingerprint: Fingerprint, text: &str) -> Remembered {
        Remembered { fingerprint, outcome: Outcome::from(text), until_ms: None, cleared: 0 }
    }

    /// Proves K-11: an answer to a request made before the cache was cleared is not cached.
    #[test]
    fn an_outcome_asked_for_before_a_reset_is_not_cached() {
        let name = Name { namespace: Namespace::default(), key: Key::from_bytes([1; 32]) };
        let clock = Arc::new(hapax_sqlite::BootClock::default());
        let (cache, print) = (Cache::new(clock, BYTES), Fingerprint::of(b""));
        cache.fresh(cache.now_ms(), Duration::from_secs(60));
        let before = cache.asked();
        cache.clear();
        cache.put(before, &name, print, Outcome::from("stale"), None);
        assert_eq!(cache.get(&name, print), None);
        // An entry that was put just before the clear, and is removed just after it, is not valid.
        let stale = Remembered { cleared: 0, ..remembered(print, "stale") };
        cache.outcomes.insert(name.clone(), stale);
        assert_eq!(cache.get(&name, print), None);
        cache.put(cache.asked(), &name, print, Outcome::from("fresh"), None);
        assert_eq!(cache.get(&name, print), Some(Outcome::from("fresh")));
        cache.fresh(0, Duration::from_millis(1));
        assert_eq!(cache.get(&name, print), None, "the lease may be over");
    }

    #[test]
    fn one_without_room_remembers_nothing() {
        let name = Name { namespace: Namespace::default(), key: Key::from_bytes([1; 32]) };
        let clock = Arc::new(hapax_store::ManualClock::default());
        let (cache, print) = (Cache::new(clock, 0), Fingerprint::of(b""));
        cache.fresh(cache.now_ms(), Duration::from_secs(60));
        cache.put(cache.asked(), &name, print, Outcome::from("receipt"), None);
        assert_eq!(cache.get(&name, print), None);
    }

    /// Proves K-11: the store's clock may end the lease a little earlier than ours does.
    #[test]
    fn a_lease_is_in_doubt_before_its_term_is_over() {
        let clock = Arc::new(hapax_store::ManualClock::default());
        let cache = Cache::new(clock.clone(), BYTES);
        assert!(!cache.is_in_doubt(), "there was none");
        cache.fresh(cache.now_ms(), Duration::from_millis(100));
        clock.advance(80);
        assert!(!cache.is_in_doubt());
        clock.advance(18);
        assert!(cache.is_in_doubt());
    }

    /// Proves K-11 for memory: the cache does not answer with an outcome that has expired.
    #[test]
    fn an_outcome_is_replayed_until_it_expires() {
        let name = Name { namespace: Namespace::default(), key: Key::from_bytes([1; 32]) };
        let clock = Arc::new(hapax_store::ManualClock::default());
        let (cache, print) = (Cache::new(clock.clone(), BYTES), Fingerprint::of(b""));
        cache.fresh(cache.now_ms(), Duration::from_secs(60));
        let (asked, outcome) = (cache.asked(), Outcome::from("receipt"));
        clock.advance(300);
        cache.put(asked, &name, print, outcome.clone(), Some(Duration::from_secs(1)));
        clock.advance(699);
        assert_eq!(cache.get(&name, print), Some(outcome));
        clock.advance(1);
        assert_eq!(cache.get(&name, print), None);
    }
}
