//! Computations of the control plane, and requests for them.

use hapax_control::Pause;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::effect::Outcome;

/// A registered computation.
#[derive(Debug, Serialize, ToSchema)]
pub struct Computation {
    /// Its full name, which is what is hashed.
    pub computation: String,
    /// The domain whose epochs it counts in.
    pub domain: String,
    /// Whether it has a key and may be sent again.
    pub retryable: bool,
    /// How long to wait before each retry, in milliseconds.
    pub pauses_ms: Vec<u64>,
}

impl Computation {
    /// A computation.
    pub fn of(computation: &hapax_control::Computation) -> Self {
        Self {
            computation: computation.name().to_owned(),
            domain: computation.domain().to_string(),
            retryable: computation.retry().is_some(),
            pauses_ms: pauses_ms(computation),
        }
    }

    /// How it is retried, for people.
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
    /// What it says, as text; this or the next.
    #[schema(max_length = 1_048_576)]
    pub request: Option<String>,
    /// What it says, as bytes.
    pub request_base64: Option<String>,
    /// The epoch it is asked for in; the current one unless given. Whoever gives an attempt gives
    /// its epoch.
    #[schema(maximum = 9_223_372_036_854_775_807_u64)]
    pub epoch: Option<u64>,
    /// How long the grant lasts, whatever the lease. A minute unless given, where there is no lease.
    #[schema(minimum = 1, maximum = 86_400_000)]
    pub deadline_ms: Option<u64>,
    /// The lease that the grant hangs on.
    #[schema(pattern = "^lease_[0-9a-f]{32}$")]
    pub lease: Option<String>,
    /// The identity of the attempt, if the client chooses it. The same one gets the same answer.
    #[schema(pattern = "^att_[0-9a-f]{32}$")]
    pub attempt: Option<String>,
}

/// The answer to a request that is about to be sent.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum ControlVerdict {
    /// Send it, with its key and epoch; then settle the record.
    Granted {
        /// What the peer is told; nothing if it is never sent again.
        key: Option<String>,
        /// The epoch it counts in.
        epoch: u64,
        /// The key of the record, to settle it by.
        record: String,
        /// The identity of the attempt.
        attempt: String,
        /// A number that only grows, for targets that compare.
        fence: u64,
        /// Which attempt of its generation this is, from 1.
        nth: u32,
        /// Stop working this long after you sent the request, in milliseconds. Nothing where only the
        /// lease counts, which has a `work_ms` of its own.
        work_ms: Option<u64>,
        /// How long to wait before each retry, in milliseconds; as many as there are.
        pauses_ms: Vec<u64>,
    },
    /// It was answered. This is what came of it.
    Replayed {
        /// What the peer was told.
        key: Option<String>,
        /// The epoch it counts in.
        epoch: u64,
        /// What came of it.
        outcome: Outcome,
    },
}
