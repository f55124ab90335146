//! Readings of a store's clocks, as values.
//!
//! A store has two: the wall clock, for people and for expiry of old records, and a lease
//! clock that no adjustment moves. Nothing in this crate reads either.

/// Milliseconds since the Unix epoch, by the store's wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// This long after.
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add_unsigned(ms))
    }
}

/// An instant of the lease clock: milliseconds since the start of an era.
///
/// For an embedded store an era is one boot of the machine. Instants of different eras cannot be
/// compared, and everything that was due in an earlier era is overdue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LeaseInstant {
    /// The era.
    pub era: u64,
    /// Milliseconds since its start.
    pub ms: u64,
}

impl LeaseInstant {
    /// This long after, in the same era.
    pub fn plus_ms(self, ms: u64) -> Self {
        Self { ms: self.ms.saturating_add(ms), ..self }
    }

    /// Whether this instant lies at or before `now`.
    pub fn reached(self, now: LeaseInstant) -> bool {
        self.era != now.era || self.ms <= now.ms
    }
}

/// One reading of both clocks, taken by the store inside its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// The wall clock.
    pub wall: Timestamp,
    /// The lease clock.
    pub lease: LeaseInstant,
    /// Whether the wall clock may be believed when it says that a record is too old.
    pub wall_trusted: bool,
}

impl Now {
    /// The time of an earlier instant by the wall clock, for people. None if it is of another era.
    pub fn wall_at(self, instant: LeaseInstant) -> Option<Timestamp> {
        let passed_ms = self.lease.ms.saturating_sub(instant.ms);
        let at = Timestamp(self.wall.0.saturating_sub_unsigned(passed_ms));
        (instant.era == self.lease.era).then_some(at)
    }
}
