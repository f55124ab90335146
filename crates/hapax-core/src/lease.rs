//! Leases, which permissions depend on: one row with an `until`, held by a process or a remote
//! client.
//!
//! Any number of claims depend on one lease, so a million running effects cost one renewal. A lease
//! that is marked dead is never revived. Time alone kills a lease only while the store's own
//! [`Pulse`] has been steady for the lease's length: a stall makes every holder late at once, and
//! being late together is not being dead. Each lease is judged by its own term, so a short one
//! neither slows nor hastens the expiry of the others. A new era, which is a reboot, ends the
//! leases of this machine's processes at once. A client elsewhere may work on, so its lease lapses
//! one term later.

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
    /// The holder, for people: a process id and host, or a client's name.
    pub holder: String,
    /// The newest [notice](crate::effect) this holder has acted upon.
    pub seen: u64,
}

impl Lease {
    /// The `seen` of a holder that caches no outcomes, and so never has to act upon a notice.
    pub const FORGETFUL: u64 = i64::MAX as u64;

    /// A lease opened now.
    pub fn open(now: Now, id: LeaseId, term_ms: u64, holder: String, seen: u64) -> Self {
        Self { id, term_ms, until: now.lease.plus_ms(term_ms), dead: false, holder, seen }
    }

    /// Whether its holder is a client that may be on another machine, and not a process that opened
    /// the store. Such a client caches no outcomes.
    pub fn is_remote(&self) -> bool {
        self.seen == Self::FORGETFUL
    }

    /// When it was opened or last renewed.
    pub fn renewed(&self) -> LeaseInstant {
        LeaseInstant { ms: self.until.ms.saturating_sub(self.term_ms), ..self.until }
    }

    /// Renews it, unless it is dead or its process belongs to an earlier era. A lease whose time is
    /// up is still alive: being late is no crime until another claimant acts on it.
    pub fn renew(&self, now: Now) -> Option<Self> {
        let until = now.lease.plus_ms(self.term_ms);
        let dead = self.dead && !planted(Bug::DeadLeaseRenewed);
        let renewed = Self { until, dead: false, ..self.clone() };
        (!dead && (self.until.era == now.lease.era || self.is_remote())).then_some(renewed)
    }

    /// The lease with one term left, if it has far more: the clock was ahead when it was renewed,
    /// and has been set right since.
    pub fn set_right(&self, now: Now) -> Option<Self> {
        let most = now.lease.plus_ms(self.term_ms);
        let ahead = self.until.era == most.era && self.until.ms > most.ms.saturating_add(AHEAD_MS);
        ahead.then(|| Self { until: most, ..self.clone() })
    }

    /// Whether its time is up and the store's pulse lets that count.
    pub fn lapsed(&self, now: Now, pulse: &Pulse) -> bool {
        self.dead || self.overdue(now, self.until, pulse)
    }

    /// Whether it has been silent for so many terms that its holder will not come back.
    pub fn is_forgotten(&self, now: Now, pulse: &Pulse) -> bool {
        let late = self.until.plus_ms(self.term_ms.saturating_mul(10));
        self.overdue(now, late, pulse)
    }

    /// How long a holder may go on working after it asked for a renewal that was granted, by its
    /// own clock. The store counts the term from the arrival of the request, so its `until` is
    /// later. The rest of the term is for clocks that run apart, and for stopping the work.
    pub fn working_ms(term_ms: u64) -> u64 {
        term_ms - term_ms / 8
    }

    /// Whether `instant` has passed, for a holder of this lease.
    pub fn overdue(&self, now: Now, instant: LeaseInstant, pulse: &Pulse) -> bool {
        self.died_before(now, instant)
            || (instant.reached(now.lease) && pulse.steady_for(now, self.term_ms))
    }

    /// Whether its holder lives, for a reader, which beats no pulse. `gone` is the store's own evidence that the
    /// holder died, where it has any. Time alone makes a holder silent and never dead, because a stall makes every
    /// holder late at once.
    pub fn liveness(&self, now: Now, gone: bool) -> Liveness {
        if gone || self.dead || self.died_before(now, self.until) {
            Liveness::Dead
        } else if self.until.reached(now.lease) {
            Liveness::Silent
        } else {
            Liveness::Alive
        }
    }

    /// Whether its holder was a process of an earlier era, of which this instant is.
    fn died_before(&self, now: Now, instant: LeaseInstant) -> bool {
        instant.era != now.lease.era && !self.is_remote()
    }
}

/// Whether a holder lives, as far as a reader can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Liveness {
    /// Its lease is in force.
    Alive,
    /// Its lease or the deadline of its grant is over. It may have died, or be stopped or cut off, and may come back.
    Silent,
    /// Its process has ended, or its lease was given back or taken over.
    Dead,
}

impl Liveness {
    /// The name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Silent => "silent",
            Self::Dead => "dead",
        }
    }
}

impl std::fmt::Display for Liveness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// How far ahead of a reading of the clock other instants may lie: concurrent transactions read the
/// clock at different times.
const AHEAD_MS: u64 = 60_000;

/// How many lengths of gaps a [`Pulse`] tells apart: those of more than 32, 38, 45, 53, 64 … ms, four to each
/// doubling, up to 217,088 ms.
pub const GAPS: usize = 52;

/// The nth of these lengths, in milliseconds.
fn gap_ms(nth: usize) -> u64 {
    [32, 38, 45, 53][nth % 4] << (nth / 4)
}

/// Whether the store has been writable of late: its last beat, and when the gaps before it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pulse {
    /// The newest beat.
    pub last: LeaseInstant,
    /// When the newest gap of more than each length ended, in milliseconds of the same era.
    pub gaps: [u64; GAPS],
}

impl Default for Pulse {
    fn default() -> Self {
        Self { last: LeaseInstant::default(), gaps: [0; GAPS] }
    }
}

impl Pulse {
    /// A beat now. After a reboot, and when a clock that was ahead has been set right, the pulse begins anew.
    pub fn beat(&self, now: Now) -> Self {
        let (last, ms) = (now.lease, now.lease.ms);
        let set_right = self.last.ms > ms.saturating_add(AHEAD_MS);
        if self.last.era != last.era || set_right {
            return Self { last, gaps: [ms; GAPS] };
        }
        let silent = ms.saturating_sub(self.last.ms);
        let mut gaps = self.gaps;
        for (nth, ended) in gaps.iter_mut().enumerate() {
            if silent > gap_ms(nth) {
                *ended = ms;
            }
        }
        Self { last, gaps }
    }

    /// Whether beats have come for one term without a gap that matters to a lease of that term.
    /// Call it on a pulse just beaten.
    pub fn steady_for(&self, now: Now, term_ms: u64) -> bool {
        planted(Bug::StallKills)
            || self.last.era == now.lease.era
                && now.lease.ms.saturating_sub(self.gaps[gap_length(term_ms)]) >= term_ms
    }
}

/// The longest gap that does not matter to a lease of this term, as its place in [`Pulse::gaps`]: a little
/// less than half the term. A shorter stall cannot make a holder late that renews every third of its
/// term, and such renewals alone keep the pulse steady.
fn gap_length(term_ms: u64) -> usize {
    if planted(Bug::ShortestTermForAll) {
        return 0;
    }
    (0..GAPS).rev().find(|nth| gap_ms(*nth) <= term_ms / 2).unwrap_or(0)
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
        beats.into_iter().fold(Pulse::default(), |pulse, ms| pulse.beat(at(ms)))
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

    /// Proves K-6, K-18: a client on another machine does not end with this one's boot.
    #[test]
    fn a_clients_lease_lapses_one_term_after_a_reboot() {
        let theirs = Lease { seen: Lease::FORGETFUL, ..lease() };
        let after = |ms| Now { lease: LeaseInstant { era: 2, ms }, ..Now::default() };
        let beaten = (50..=950).step_by(100).fold(Pulse::default(), |p, ms| p.beat(after(ms)));
        assert!(!theirs.lapsed(after(949), &beaten));
        assert!(theirs.lapsed(after(950), &beaten));
        assert!(lease().lapsed(after(50), &Pulse::default().beat(after(50))));
        assert_eq!(theirs.renew(after(300)).unwrap().until, after(1200).lease);
    }

    /// Proves K-17.
    #[test]
    fn after_a_stall_nothing_lapses_for_one_lease_length() {
        let steady = beaten((0..=1200).step_by(200));
        assert!(lease().lapsed(at(1200), &steady));

        let stalled = beaten([0, 200, 400, 5000]);
        assert!(!lease().lapsed(at(5000), &stalled));
        let back = (5200..=5900).step_by(100).fold(stalled, |p, ms| p.beat(at(ms)));
        assert!(lease().lapsed(at(5900), &back));
    }

    /// Proves K-17.
    #[test]
    fn a_silent_lease_is_forgotten_after_ten_terms() {
        let steady = beaten((0..=12_000).step_by(200));
        assert!(!lease().is_forgotten(at(9_800), &steady), "late, and perhaps coming back");
        assert!(lease().is_forgotten(at(9_900), &steady));
    }

    /// Proves K-17: a gap that counts for a short lease does not count for a long one, and a stall
    /// that a long lease outlasts still protects a short one.
    #[test]
    fn each_lease_is_judged_by_its_own_term() {
        let lease =
            |term_ms| Lease::open(at(0), LeaseId::from_bytes([1; 16]), term_ms, "p".into(), 0);
        let every_second = beaten((0..=20_000).step_by(1_000));
        assert!(lease(5_000).lapsed(at(20_000), &every_second));
        assert!(!lease(1_000).lapsed(at(20_000), &every_second), "each beat ends a gap for it");
        let beaten_more = (20_300..=21_000).step_by(100).fold(every_second, |p, ms| p.beat(at(ms)));
        assert!(!lease(1_000).lapsed(at(20_999), &beaten_more));
        assert!(lease(1_000).lapsed(at(21_000), &beaten_more));
    }

    /// Proves K-17: exactly one term, and no gap of about half of it.
    #[test]
    fn a_pulse_is_steady_for_a_term_after_the_last_gap_that_matters() {
        for (term_ms, longest_gap) in
            [(100, 45), (900, 424), (8_192, 4_096), (15_000, 6_784), (1 << 40, 217_088)]
        {
            let begun = Pulse::default().beat(at(1_000));
            let fine = begun.beat(at(1_000 + longest_gap));
            let then = 1_000 + term_ms;
            assert!(fine.steady_for(at(then), term_ms), "{term_ms}");
            assert!(!fine.steady_for(at(then - 1), term_ms), "{term_ms}");
            let gap = begun.beat(at(1_001 + longest_gap));
            assert!(!gap.steady_for(at(then + longest_gap), term_ms), "{term_ms}");
            assert!(gap.steady_for(at(then + longest_gap + 1), term_ms), "{term_ms}");
        }
        let rebooted = Now { lease: LeaseInstant { era: 2, ms: 1 << 50 }, ..Now::default() };
        assert!(!Pulse::default().beat(at(0)).steady_for(rebooted, 100));
        assert_eq!(Pulse::default().beat(rebooted).gaps, [1 << 50; GAPS]);
    }

    /// Proves K-17: a clock that was ahead for a moment does not stop the expiry until that time comes.
    #[test]
    fn a_clock_that_was_ahead_and_is_set_right_is_forgotten() {
        const YEAR: u64 = 365 * 86_400_000;
        let ahead = beaten([0, 200, YEAR]);
        let renewed = lease().renew(at(YEAR)).unwrap();
        assert_eq!(renewed.set_right(at(1_000)).unwrap().until.ms, 1_900);
        assert_eq!(lease().set_right(at(0)), None);
        let near = Lease { until: at(60_900).lease, ..lease() };
        assert_eq!(near.set_right(at(0)), None, "read a moment ago by another transaction");
        assert!(Lease { until: at(60_901).lease, ..lease() }.set_right(at(0)).is_some());
        let right = ahead.beat(at(1_000));
        assert_eq!((right.last.ms, right.gaps), (1_000, [1_000; GAPS]));
        let back = (1_100..=1_900).step_by(100).fold(right, |p, ms| p.beat(at(ms)));
        assert!(back.steady_for(at(1_900), 900));
        let concurrent = beaten([0, 61_000]).beat(at(1_000));
        assert_eq!(concurrent.gaps[0], 61_000, "a beat that was read earlier and comes later");
    }

    /// Proves K-23: a reader shows a holder as dead on evidence only.
    #[test]
    fn time_alone_makes_a_holder_silent_and_never_dead() {
        let theirs = Lease { seen: Lease::FORGETFUL, ..lease() };
        for lease in [lease(), theirs.clone()] {
            assert_eq!(lease.liveness(at(899), false), Liveness::Alive);
            assert_eq!(lease.liveness(at(900), false), Liveness::Silent);
            assert_eq!(lease.liveness(at(1 << 50), false), Liveness::Silent);
            assert_eq!(lease.liveness(at(0), true), Liveness::Dead);
            assert_eq!(Lease { dead: true, ..lease }.liveness(at(0), false), Liveness::Dead);
        }
        let rebooted = Now { lease: LeaseInstant { era: 2, ms: 5 }, ..Now::default() };
        assert_eq!(lease().liveness(rebooted, false), Liveness::Dead);
        assert_eq!(theirs.liveness(rebooted, false), Liveness::Silent, "it is on another machine");
    }

    #[test]
    fn a_new_lease_is_alive_for_its_term() {
        let lease = lease();
        assert_eq!((lease.dead, lease.until.ms, lease.term_ms), (false, 900, 900));
        assert_eq!(Lease::working_ms(800), 700);
    }

    #[test]
    fn a_lease_holds_until_its_time_is_up() {
        assert!(!lease().lapsed(at(899), &beaten((0..900).step_by(100))));
    }
}
