//! What permissions hang on: one row with an `until`, held by a process or a remote client.
//!
//! Any number of claims hang on one lease, so a million running effects cost one renewal. A
//! lease that lapsed is dead for good. Time alone kills a lease only while the store's own
//! [`Pulse`] has been steady for the lease's length: a stall makes everyone late at once, and
//! being late together is not being dead.

use crate::digest::printed_bytes;
use crate::planted::{Bug, planted};
use crate::time::{LeaseInstant, Now};

printed_bytes! {
    /// 128 random bits that identify a lease.
    LeaseId, 16, "lease_", "lease_<32 hex digits>"
}

/// A holder's promise to be back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Which one.
    pub id: LeaseId,
    /// How long a renewal lasts.
    pub term_ms: u64,
    /// When it lapses unless renewed.
    pub until: LeaseInstant,
    /// Taken over or given back; never to be renewed.
    pub dead: bool,
    /// Who holds it, for people: a process id and host, or a client's name.
    pub holder: String,
    /// The newest [notice](crate::effect) this holder has acted upon.
    pub seen: u64,
}

impl Lease {
    /// Seen by a holder that remembers no outcomes, and so has nothing to act upon, ever.
    pub const FORGETFUL: u64 = i64::MAX as u64;

    /// A lease opened now.
    pub fn open(now: Now, id: LeaseId, term_ms: u64, holder: String, seen: u64) -> Self {
        Self { id, term_ms, until: now.lease.plus_ms(term_ms), dead: false, holder, seen }
    }

    /// Renews it, unless it is dead. One whose time is up but which nobody has taken over is
    /// still alive: being late is no crime until somebody acts on it.
    pub fn renew(&self, now: Now) -> Option<Self> {
        let until = now.lease.plus_ms(self.term_ms);
        let dead = self.dead && !planted(Bug::DeadLeaseRenewed);
        let renewed = Self { until, dead: false, ..self.clone() };
        (!dead && self.until.era == now.lease.era).then_some(renewed)
    }

    /// Whether its time is up and the store's pulse lets that count.
    pub fn lapsed(&self, now: Now, pulse: &Pulse) -> bool {
        self.dead || self.overdue(now, self.until, pulse)
    }

    /// Whether nobody will come back for it: held elsewhere, and silent for many terms. Others
    /// are forgotten when their process is gone, or somebody takes over.
    pub fn is_forgotten(&self, now: Now, pulse: &Pulse) -> bool {
        let late = self.until.plus_ms(self.term_ms.saturating_mul(10));
        self.seen == Self::FORGETFUL && self.overdue(now, late, pulse)
    }

    /// Whether `instant` has passed, for a holder of this lease.
    pub fn overdue(&self, now: Now, instant: LeaseInstant, pulse: &Pulse) -> bool {
        instant.era != now.lease.era
            || (instant.reached(now.lease) && pulse.steady_for(now, self.term_ms))
    }
}

/// Whether the store has been writable of late: the last beat, and since when they have come
/// without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pulse {
    /// The newest beat.
    pub last: LeaseInstant,
    /// The first beat after the newest gap.
    pub since: LeaseInstant,
}

impl Pulse {
    /// A beat now. Half the shortest lease without one is a gap: a shorter stall cannot make
    /// a holder late that renews every third of its lease.
    pub fn beat(&self, now: Now, shortest_term_ms: u64) -> Self {
        let gap = self.last.era != now.lease.era
            || now.lease.ms.saturating_sub(self.last.ms) > shortest_term_ms / 2;
        Self { last: now.lease, since: if gap { now.lease } else { self.since } }
    }

    /// Whether beats have come without a gap for this long. Call it on a pulse just beaten.
    pub fn steady_for(&self, now: Now, term_ms: u64) -> bool {
        planted(Bug::StallKills)
            || self.since.era == now.lease.era
                && now.lease.ms.saturating_sub(self.since.ms) >= term_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now { lease: LeaseInstant { era: 1, ms }, ..Now::default() }
    }

    fn lease() -> Lease {
        Lease::open(at(0), LeaseId::from_bytes([1; 16]), 900, "p".into(), 0)
    }

    fn beaten(beats: impl IntoIterator<Item = u64>) -> Pulse {
        beats.into_iter().fold(Pulse::default(), |pulse, ms| pulse.beat(at(ms), 900))
    }

    /// Proves K-6.
    #[test]
    fn a_dead_lease_is_never_revived() {
        assert_eq!(lease().renew(at(300)).unwrap().until.ms, 1200);
        assert_eq!(Lease { dead: true, ..lease() }.renew(at(300)), None);
        let rebooted = Now { lease: LeaseInstant { era: 2, ms: 5 }, ..Now::default() };
        assert_eq!(lease().renew(rebooted), None);
        assert!(lease().lapsed(rebooted, &Pulse::default()));
    }

    /// Proves K-17.
    #[test]
    fn after_a_stall_nothing_lapses_for_one_lease_length() {
        let steady = beaten((0..=1200).step_by(300));
        assert!(lease().lapsed(at(1200), &steady));

        let stalled = beaten([0, 300, 600, 5000]);
        assert!(!lease().lapsed(at(5000), &stalled));
        let back = [5300, 5600, 5900].iter().fold(stalled, |p, ms| p.beat(at(*ms), 900));
        assert!(lease().lapsed(at(5900), &back));
    }

    #[test]
    fn only_what_is_held_elsewhere_is_forgotten_by_time() {
        let steady = beaten((0..=12_000).step_by(300));
        let elsewhere = Lease { seen: Lease::FORGETFUL, ..lease() };
        assert!(elsewhere.is_forgotten(at(12_000), &steady));
        assert!(!elsewhere.is_forgotten(at(9_000), &steady), "late, and perhaps coming back");
        assert!(!lease().is_forgotten(at(12_000), &steady));
    }

    #[test]
    fn before_its_time_is_up_a_lease_holds() {
        assert!(!lease().lapsed(at(899), &beaten((0..900).step_by(100))));
    }
}
