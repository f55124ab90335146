//! The verdicts that let a caller go on.

use hapax_core::effect::{Grant, Verdict};
use hapax_core::outcome::Outcome;
use hapax_core::time::Timestamp;

use crate::error::Error;

/// A verdict that a caller can act upon. Every other is an error, which says what to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permit {
    /// Do it.
    Granted(Grant),
    /// It was done.
    Replayed {
        /// The recorded outcome.
        outcome: Outcome,
        /// Until when the ledger remembers it; for ever unless given.
        expires: Option<Timestamp>,
    },
}

impl Permit {
    /// The permit in a verdict, or the error in its place.
    pub fn of(verdict: Verdict) -> Result<Self, Error> {
        match verdict {
            Verdict::Granted(grant) => Ok(Self::Granted(grant)),
            Verdict::Replayed { outcome, expires, .. } => Ok(Self::Replayed { outcome, expires }),
            Verdict::InFlight { attempt } => Err(Error::InFlight { attempt }),
            Verdict::Undecided { reason } => Err(Error::Undecided { reason }),
            Verdict::Conflict { recorded, asked } => Err(Error::Conflict { recorded, asked }),
            Verdict::Blocked(blocked) => Err(Error::Blocked(blocked)),
            Verdict::Locked { holder } => Err(Error::Locked { holder }),
            Verdict::Outdated(mismatch) => Err(Error::Epoch(mismatch)),
            Verdict::Refused { reason } => Err(Error::Refused { reason }),
        }
    }
}
