//! Epochs of domains.

use hapax::{Bound, Domain};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One epoch of one domain.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Epoch {
    /// The domain.
    #[schema(pattern = "^[a-z][a-z0-9_-]{0,63}$")]
    pub domain: String,
    /// The number of the epoch. A domain that never advanced is in epoch 0.
    #[schema(maximum = 9_223_372_036_854_775_807_u64)]
    pub epoch: u64,
}

impl Epoch {
    /// The document of an epoch.
    pub fn of(bound: &Bound) -> Self {
        Self { domain: bound.domain.to_string(), epoch: bound.epoch }
    }

    /// The same in the ledger's terms.
    pub(crate) fn to_domain(&self) -> Result<Bound, String> {
        if self.epoch > i64::MAX as u64 {
            return Err("epoch is at most 9223372036854775807".into());
        }
        let domain = Domain::new(&self.domain).map_err(|error| error.to_string())?;
        Ok(Bound { domain, epoch: self.epoch })
    }
}

/// The current epoch of a domain.
#[derive(Debug, Serialize, ToSchema)]
pub struct Current {
    /// The domain.
    pub domain: String,
    /// Its epoch.
    pub epoch: u64,
    /// When this epoch began; null if the domain never left epoch 0.
    pub since: Option<String>,
    /// The person or service that ended the epoch before.
    pub by: Option<String>,
    /// The reason that was given.
    pub reason: Option<String>,
}

/// The request to end an epoch.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Advance {
    /// The epoch that the client saw, which is to end. Nothing happens if it is over already.
    #[schema(maximum = 9_223_372_036_854_775_806_u64)]
    pub seen: u64,
    /// The reason, for people.
    #[schema(min_length = 1, max_length = 4096)]
    pub reason: String,
    /// The number of the new epoch. Default: the next one. At most 4294967296 further.
    #[schema(minimum = 1, maximum = 9_223_372_036_854_775_807_u64)]
    pub to: Option<u64>,
}

/// The answer to the request to end an epoch.
#[derive(Debug, Serialize, ToSchema)]
pub struct Transition {
    /// The domain.
    pub domain: String,
    /// The current epoch.
    pub epoch: u64,
    /// Whether this request ended the epoch; false if it was over already.
    pub moved: bool,
    /// How many attempts were in flight and are void now.
    pub voided: usize,
}

impl Transition {
    /// The document of a transition.
    pub fn of(domain: &Domain, transition: hapax::Transition) -> Self {
        let hapax::Transition { epoch, moved, voided } = transition;
        Self { domain: domain.to_string(), epoch, moved, voided }
    }
}
