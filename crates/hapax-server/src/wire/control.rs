//! Computations of the control plane, and requests for them.

use hapax_control::Pause;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::effect::{Outcome, Safety};

/// A registered computation.
#[derive(Debug, Serialize, ToSchema)]
pub struct Computation {
    /// The full name, which the key is derived from.
    pub computation: String,
    /// The domain whose epochs it belongs to.
    pub domain: String,
    /// Whether its requests have a key and may be retried.
    pub retryable: bool,
    /// The pauses before each retry, in milliseconds.
    pub pauses_ms: Vec<u64>,
}

impl Computation {
    /// The document of a computation.
    pub fn of(computation: &hapax_control::Computation) -> Self {
        Self {
            computation: computation.name().to_owned(),
            domain: computation.domain().to_string(),
            retryable: computation.retry().is_some(),
            pauses_ms: pauses_ms(computation),
        }
    }

    /// The retry policy as text.
    pub fn policy(computation: &hapax_control::Computation) -> String {
        let Some(retry) = computation.retry() else { return "never retried".into() };
        let times = if retry.retries == 1 { "retry" } else { "retries" };
        match retry.pause {
            Pause::Fixed(pause) => {
                format!("{} {times}, {}", retry.retries, humantime::format_duration(pause))
            }
            Pause::Doubling(first) => {
                let first = humantime::format_duration(first);
                format!("{} {times}, {first} and doubling", retry.retries)
            }
        }
    }
}

pub(crate) fn pauses_ms(computation: &hapax_control::Computation) -> Vec<u64> {
    let retry = computation.retry();
    let pauses = (1..).map_while(|nth| retry?.pause_before(nth));
    pauses.map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)).collect()
}

/// A request that is about to be sent to a peer.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ControlClaim {
    /// The request, as text; either this or `request_base64`.
    #[schema(max_length = 1_048_576)]
    pub request: Option<String>,
    /// The request, in base64.
    pub request_base64: Option<String>,
    /// The epoch that the request belongs to. Default: the current one. Required together with `attempt`.
    #[schema(maximum = 9_223_372_036_854_775_807_u64)]
    pub epoch: Option<u64>,
    /// The grant lapses after this long, even if its lease is renewed. Default without lease: 1 minute.
    #[schema(minimum = 1, maximum = 86_400_000)]
    pub deadline_ms: Option<u64>,
    /// The lease that the grant depends on.
    #[schema(pattern = "^lease_[0-9a-f]{32}$")]
    pub lease: Option<String>,
    /// The id of the attempt, if the client chooses it. A claim with the same id gets the same answer.
    #[schema(pattern = "^att_[0-9a-f]{32}$")]
    pub attempt: Option<String>,
}

/// A request that was received from a peer and is about to be performed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ControlReceive {
    /// The request, as text; either this or `request_base64`. The same bytes that its key was
    /// derived from.
    #[schema(max_length = 1_048_576)]
    pub request: Option<String>,
    /// The request, in base64.
    pub request_base64: Option<String>,
    /// The key that it came with; null if the request is never retried.
    #[schema(pattern = "^sha256:[0-9a-f]{64}$")]
    pub key: Option<String>,
    /// The epoch that it came with.
    #[schema(maximum = 9_223_372_036_854_775_807_u64)]
    pub epoch: u64,
    /// Whether the outcome can be found out when the holder vanishes.
    #[serde(default)]
    pub safety: Safety,
    /// With `reconcilable`: how long a request of a vanished holder may still arrive at the target.
    /// Default: one minute. 0: the target refuses late arrivals.
    #[schema(maximum = 31_536_000_000_u64)]
    pub settling_ms: Option<u64>,
    /// The grant lapses after this long, even if its lease is renewed. Default without lease: 1 minute.
    #[schema(minimum = 1, maximum = 86_400_000)]
    pub deadline_ms: Option<u64>,
    /// The lease that the grant depends on.
    #[schema(pattern = "^lease_[0-9a-f]{32}$")]
    pub lease: Option<String>,
    /// The id of the attempt, if the client chooses it. A claim with the same id gets the same answer.
    #[schema(pattern = "^att_[0-9a-f]{32}$")]
    pub attempt: Option<String>,
}

/// The answer to a request that is about to be sent or performed.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum ControlVerdict {
    /// Send it, with its key and epoch, or perform it if it was received; then settle the record.
    Granted {
        /// The idempotency key of the request; null if it is never retried.
        key: Option<String>,
        /// The epoch that the request belongs to.
        epoch: u64,
        /// The key of the record; settle the request under it.
        record: String,
        /// The id of the attempt.
        attempt: String,
        /// A number that only grows, for targets that compare fences.
        fence: u64,
        /// Which attempt of its generation this is, from 1.
        nth: u32,
        /// Stop working this many milliseconds after you sent the request. Null if only the lease
        /// limits the grant: then the lease's own `work_ms` counts.
        work_ms: Option<u64>,
        /// The pauses before each retry, in milliseconds; one for each retry.
        pauses_ms: Vec<u64>,
    },
    /// It was answered. Here is what came of it.
    Replayed {
        /// The idempotency key of the request; null if it is never retried.
        key: Option<String>,
        /// The epoch that the request belongs to.
        epoch: u64,
        /// The recorded outcome.
        outcome: Outcome,
    },
}
