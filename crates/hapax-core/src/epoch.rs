//! Epochs of domains, and the effects that are bound to them.
//!
//! A domain's epoch only grows. An effect that is bound to an epoch may be claimed and settled in
//! that epoch and in no other. Effects that are open when it ends are
//! [voided](crate::effect::void).

use std::sync::Arc;

use crate::digest::FramedHasher;
use crate::key::Key;

/// A part of a namespace whose epochs are counted together, such as `connector`.
///
/// ```
/// use hapax_core::epoch::Domain;
///
/// assert_eq!(Domain::new("connector")?.as_str(), "connector");
/// assert!(Domain::new("no blanks").is_err());
/// # Ok::<(), hapax_core::epoch::DomainError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Domain(Arc<str>);

/// Why a domain was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("domain {0:?} must be 1 to 64 of a-z, 0-9, `-`, `_` and start with a letter")]
pub struct DomainError(String);

impl Domain {
    /// The domain of this name.
    pub fn new(name: &str) -> Result<Self, DomainError> {
        let ok = name.len() <= 64
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-' | '_'));
        if ok { Ok(Self(name.into())) } else { Err(DomainError(name.chars().take(80).collect())) }
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key of the record of this domain's transition to this epoch.
    pub fn transition(&self, to: u64) -> Key {
        let framed = FramedHasher::new("hapax.epoch.v1:").field(self.0.as_bytes()).number(to);
        Key::from_bytes(framed.finish())
    }
}

impl std::fmt::Display for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

/// The greatest epoch a domain can be in. Keys can be derived for greater ones, and are refused.
pub const MAX: u64 = i64::MAX as u64;

/// The longest step of a transition, so that a typing mistake does not use up all epochs.
pub const LONGEST_STEP: u64 = 1 << 32;

/// One epoch of one domain.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Bound {
    /// The domain.
    pub domain: Domain,
    /// Its epoch. A domain is in epoch 0 before its first transition.
    pub epoch: u64,
}

impl Bound {
    /// Whether the domain is in this epoch.
    pub fn check(&self, current: u64) -> Result<(), Mismatch> {
        if self.epoch == current {
            return Ok(());
        }
        Err(Mismatch { domain: self.domain.clone(), bound: self.epoch, current })
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "epoch {} of {}", self.epoch, self.domain)
    }
}

/// An effect or a claim is bound to another epoch than the one its domain is in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it is bound to epoch {bound} of {domain}, which is in epoch {current}")]
pub struct Mismatch {
    /// The domain.
    pub domain: Domain,
    /// The epoch it is bound to.
    pub bound: u64,
    /// The epoch the domain is in.
    pub current: u64,
}

/// The answer to a request for a new epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// The epoch the domain is in now.
    pub epoch: u64,
    /// Whether this request brought it there.
    pub moved: bool,
    /// How many open effects were voided.
    pub voided: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_has_a_name_and_a_key_for_each_transition() {
        let domain = Domain::new("connector").unwrap();
        assert_eq!((domain.as_str(), domain.to_string()), ("connector", "connector".into()));
        for bad in ["", "1st", "Connector", "a b", &"a".repeat(65)] {
            assert_eq!(Domain::new(bad).map_err(|_| ()), Err(()), "{bad}");
        }
        assert!(Domain::new(&"a".repeat(64)).is_ok());
        assert_ne!(domain.transition(1), domain.transition(2));
    }
}
