//! The answers to callers: every answer of the [transitions](crate::effect), as values that name
//! the difference they found.

use crate::attempt::{AttemptId, Fence};
use crate::effect::{Effect, StateName};
use crate::epoch::Mismatch;
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::outcome::Outcome;
use crate::time::{LeaseInstant, Timestamp};

/// What the caller must do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Do it. Everything you write must name this attempt.
    Granted(Grant),
    /// It was done. Here is what came of it.
    Replayed {
        /// The outcome.
        outcome: Outcome,
        /// Until when it is remembered; for ever unless given.
        expires: Option<Timestamp>,
        /// How long that is from now, by the store's clock.
        left_ms: Option<u64>,
    },
    /// Another holder is doing it.
    InFlight {
        /// The attempt in flight.
        attempt: AttemptId,
    },
    /// Not known: a transaction that has not ended has the key's row. Ask again, with the same
    /// attempt.
    Undecided {
        /// The transaction in the way, for people.
        reason: String,
    },
    /// Same key, another payload: the caller's mistake, never ours to guess about.
    Conflict {
        /// The fingerprint in the record.
        recorded: Fingerprint,
        /// The fingerprint of this claim.
        asked: Fingerprint,
    },
    /// The outcome is not known, or only part of it happened. Reconcile, roll back, or ask a
    /// person.
    Blocked(Blocked),
    /// Its lock is held by an effect that is running.
    Locked {
        /// The effect that holds it.
        holder: Key,
    },
    /// The claim or the record is bound to another epoch than the one its domain is in.
    Outdated(Mismatch),
    /// The record rules the claim out: its attempt is over, a person skipped the effect, or it is
    /// bound elsewhere.
    Refused {
        /// The reason, for people.
        reason: String,
    },
}

/// Permission to perform an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The identity to name in everything written for it.
    pub attempt: AttemptId,
    /// The number to hand to targets that compare.
    pub fence: Fence,
    /// Which attempt of its generation this is, from 1.
    pub nth: u32,
    /// How long it is until the grant's own deadline, if it has one: less, where an attempt asks again.
    pub left_ms: Option<u64>,
}

/// Why an effect cannot be granted now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// The effect in the way, when it is another one that holds the lock.
    pub holder: Option<Key>,
    /// The state it is stuck in.
    pub state: StateName,
    /// The attempt that a reconciler or a person judges.
    pub attempt: AttemptId,
    /// Why, for people.
    pub reason: String,
}

impl Blocked {
    /// The block by this effect's own state.
    pub fn by(effect: &Effect) -> Self {
        Self {
            holder: None,
            state: effect.state.name(),
            attempt: effect.attempt,
            reason: effect.state.reason().unwrap_or_default().to_owned(),
        }
    }
}

/// The answer to a settle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// Recorded.
    Recorded,
    /// Recorded before, word for word.
    Repeated,
    /// Another attempt overtook this one, or it is settled otherwise. The record was not changed; a
    /// success is journalled as a contradiction.
    Fenced(Fenced),
    /// The attempt was voided: its epoch is over. The report is noted for the person who decides.
    Outdated(Mismatch),
}

/// The record that a stale attempt found in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fenced {
    /// The state found; nothing if the key is gone.
    pub state: Option<StateName>,
    /// The attempt found.
    pub attempt: Option<AttemptId>,
}

impl Fenced {
    /// By this record, or by its absence.
    pub fn by(current: Option<&Effect>) -> Self {
        Self {
            state: current.map(|effect| effect.state.name()),
            attempt: current.map(|effect| effect.attempt),
        }
    }
}

impl std::fmt::Display for Fenced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.state, self.attempt) {
            (Some(state), Some(attempt)) => write!(f, "{state}, by {attempt}"),
            _ => f.write_str("no record"),
        }
    }
}

/// The attempt and state that a person was shown when deciding about an effect. If the record has
/// another attempt or state by now, the decision changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The attempt.
    pub attempt: AttemptId,
    /// The state it was in.
    pub state: StateName,
}

/// The answer to a reconciler's or a person's judgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// Decided; the effect is now in this state.
    Decided(StateName),
    /// Not yet: ask again, not before this instant where one is given.
    Undecided {
        /// When a "no" begins to count.
        not_before: Option<LeaseInstant>,
    },
    /// The judgement is about an attempt that is no longer the one in question, or the state
    /// does not allow it. Nothing was written.
    Fenced(Fenced),
}
