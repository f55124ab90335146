//! Epochs of domains.

use hapax::{Bound, Domain};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One epoch of one domain.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Epoch {
    /// Of which domain.
    #[schema(pattern = "^[a-z][a-z0-9_-]{0,63}$")]
    pub domain: String,
    /// Its number. A domain that never went over to another epoch is in 0.
    #[schema(maximum = 9_223_372_036_854_775_807_u64)]
    pub epoch: u64,
}

impl Epoch {
    /// An epoch.
    pub fn of(bound: &Bound) -> Self {
        Self { domain: bound.domain.to_string(), epoch: bound.epoch }
    }

    /// What is meant by it.
    pub(crate) fn meant(&self) -> Result<Bound, String> {
        if self.epoch > i64::MAX as u64 {
            return Err("epoch is at most 9223372036854775807".into());
        }
        let domain = Domain::new(&self.domain).map_err(|error| error.to_string())?;
        Ok(Bound { domain, epoch: self.epoch })
    }
}

/// The epoch that a domain is in.
#[derive(Debug, Serialize, ToSchema)]
pub struct Current {
    /// Which domain.
    pub domain: String,
    /// Its epoch.
    pub epoch: u64,
    /// Since when, if it ever left epoch 0.
    pub since: Option<String>,
    /// Who ended the one before.
    pub by: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

/// A wish for a new epoch.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Advance {
    /// The epoch that was seen, which is to end. Nothing happens if it is over already.
    #[schema(maximum = 9_223_372_036_854_775_806_u64)]
    pub seen: u64,
    /// Why, for people.
    #[schema(min_length = 1, max_length = 4096)]
    pub reason: String,
    /// The number of the new epoch, where it is not the next one; at most 4294967296 further.
    #[schema(minimum = 1, maximum = 9_223_372_036_854_775_807_u64)]
    pub to: Option<u64>,
}

/// What became of it.
#[derive(Debug, Serialize, ToSchema)]
pub struct Transition {
    /// Of which domain.
    pub domain: String,
    /// The epoch it is in now.
    pub epoch: u64,
    /// Whether it was this wish that brought it there.
    pub moved: bool,
    /// How many attempts were under way, and are void.
    pub voided: usize,
}

impl Transition {
    /// A transition.
    pub fn of(domain: &Domain, transition: hapax::Transition) -> Self {
        let hapax::Transition { epoch, moved, voided } = transition;
        Self { domain: domain.to_string(), epoch, moved, voided }
    }
}
