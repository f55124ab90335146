//! Effects: their records, and the requests and answers about them.

use data_encoding::BASE64;
use hapax::remote::Report;
use hapax::{EffectStatus, Settling, State, StateName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::epoch::Epoch;
use super::outbox::Event;
use super::time;

/// The record of an effect.
#[derive(Debug, Serialize, ToSchema)]
pub struct Effect {
    /// The key, as `sha256:<64 hex digits>`.
    pub key: String,
    /// A name for people.
    pub label: Option<String>,
    /// The state it is in.
    #[schema(value_type = StateNames)]
    pub state: &'static str,
    /// The reason for the state, for people.
    pub reason: Option<String>,
    /// Whether the holder of a running effect lives; null if the effect does not run.
    pub holder: Option<Liveness>,
    /// The name of that holder, for people; null if it has none.
    pub held_by: Option<String>,
    /// The last sign of a silent or dead holder: the last renewal of its lease, or the end of its
    /// deadline. Null if it is not known.
    pub silent_since: Option<String>,
    /// The newest attempt.
    pub attempt: String,
    /// The newest attempt's fence.
    pub fence: u64,
    /// How many attempts this generation has seen.
    pub attempts: u32,
    /// Starts at 1; a reset or an expiry begins the next.
    pub generation: u32,
    /// Whether its outcome can be found out when its holder vanishes.
    pub safety: Safety,
    /// How long a request of a vanished holder may still arrive at the target. Only with
    /// `reconcilable`.
    pub settling_ms: Option<u64>,
    /// The digest of its payload.
    pub fingerprint: String,
    /// The lock that serialises it.
    pub lock: Option<String>,
    /// The epoch that it belongs to; null if it is bound to none.
    pub epoch: Option<Epoch>,
    /// When the record was made.
    pub created: String,
    /// When it last changed.
    pub updated: String,
    /// When the record expires; null if it never does.
    pub expires: Option<String>,
    /// The outcome, if it happened.
    pub outcome: Option<Outcome>,
}

/// The names of states, for the schema.
#[derive(ToSchema)]
#[schema(as = StateName, rename_all = "lowercase")]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum StateNames {
    Running,
    Succeeded,
    Failed,
    Partial,
    Unknown,
    Indeterminate,
    Skipped,
}

/// Whether the holder of a running effect lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Liveness {
    /// Its lease is in force.
    Alive,
    /// Its lease or its deadline is over. It may come back; otherwise the effect is expired.
    Silent,
    /// It has ended. The next claim, or a running server, expires the effect.
    Dead,
}

impl Liveness {
    fn of(liveness: hapax::Liveness) -> Self {
        match liveness {
            hapax::Liveness::Alive => Self::Alive,
            hapax::Liveness::Silent => Self::Silent,
            hapax::Liveness::Dead => Self::Dead,
        }
    }
}

impl Effect {
    /// An effect and its holder.
    pub fn of(status: &EffectStatus) -> Self {
        let EffectStatus { name, effect, holder } = status;
        let (safety, settling_ms) = Safety::of(effect.safety);
        let outcome = match &effect.state {
            State::Succeeded(outcome) => Some(Outcome::of(outcome)),
            _ => None,
        };
        Self {
            key: name.key.to_string(),
            label: effect.label.clone(),
            state: effect.state.name().as_str(),
            reason: effect.state.reason().map(str::to_owned),
            holder: status.liveness().map(Liveness::of),
            held_by: holder.as_ref().and_then(|holder| holder.name.clone()),
            silent_since: holder.as_ref().and_then(|holder| holder.since).map(time),
            attempt: effect.attempt.to_string(),
            fence: effect.fence.0,
            attempts: effect.attempts,
            generation: effect.generation,
            safety,
            settling_ms,
            fingerprint: effect.fingerprint.to_string(),
            lock: effect.lock.map(|lock| lock.to_string()),
            epoch: effect.bound.as_ref().map(Epoch::of),
            created: time(effect.created),
            updated: time(effect.updated),
            expires: effect.expires().map(time),
            outcome,
        }
    }
}

/// Whether the outcome of an effect can be found out when its holder vanishes.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Safety {
    /// Nothing happened unless the outcome was recorded. The ledger grants it again.
    Transactional,
    /// The outcome can be looked up. The reconciler does so before the effect is granted again.
    Reconcilable,
    /// The outcome cannot be found out by program. A person decides.
    #[default]
    Opaque,
}

impl Safety {
    fn of(safety: hapax::Safety) -> (Self, Option<u64>) {
        match safety {
            hapax::Safety::Transactional => (Self::Transactional, None),
            hapax::Safety::Opaque => (Self::Opaque, None),
            hapax::Safety::Reconcilable(Settling::TargetRefusesLate) => {
                (Self::Reconcilable, Some(0))
            }
            hapax::Safety::Reconcilable(Settling::AfterMs(ms)) => (Self::Reconcilable, Some(ms)),
        }
    }

    /// The same in the ledger's terms; `settling_ms` counts for `reconcilable` only.
    pub fn to_domain(self, settling_ms: Option<u64>) -> hapax::Safety {
        match self {
            Self::Transactional => hapax::Safety::Transactional,
            Self::Opaque => hapax::Safety::Opaque,
            Self::Reconcilable => {
                let ms = settling_ms.unwrap_or(Settling::USUAL_MS);
                hapax::Safety::Reconcilable(Settling::of_ms(ms))
            }
        }
    }
}

/// The outcome of an effect that happened.
#[derive(Debug, Serialize, ToSchema)]
pub struct Outcome {
    /// The SHA-256 of its body.
    pub digest: String,
    /// The size of its body, in bytes.
    pub size: u64,
    /// Its body, if it was kept and is text.
    pub body: Option<String>,
    /// Its body, if it was kept and is not text.
    pub body_base64: Option<String>,
}

impl Outcome {
    /// The document of an outcome.
    pub fn of(outcome: &hapax::Outcome) -> Self {
        let text = outcome.body().map(std::str::from_utf8);
        let (body, body_base64) = match (text, outcome.body()) {
            (Some(Ok(text)), _) => (Some(text.to_owned()), None),
            (_, bytes) => (None, bytes.map(|bytes| BASE64.encode(bytes))),
        };
        let (digest, size) = (outcome.digest().to_string(), outcome.size());
        Self { digest, size, body, body_base64 }
    }
}

/// A claim: the request for permission to perform an effect.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The payload, as text. The same key with another payload is a conflict.
    #[schema(max_length = 1_048_576)]
    pub payload: Option<String>,
    /// The digest of the payload instead, as `sha256:<64 hex digits>`.
    #[schema(pattern = "^sha256:[0-9a-f]{64}$")]
    pub fingerprint: Option<String>,
    /// Whether the outcome can be found out when the holder vanishes.
    #[serde(default)]
    pub safety: Safety,
    /// With `reconcilable`: how long a request of a vanished holder may still arrive at the target.
    /// Default: one minute. 0: the target refuses late arrivals.
    #[schema(maximum = 31_536_000_000_u64)]
    pub settling_ms: Option<u64>,
    /// The parts of the name of the lock that serialises it, such as a dataset and an operation type.
    #[schema(max_items = 8)]
    pub lock: Option<Vec<String>>,
    /// Whether to wait for the lock too.
    #[serde(default)]
    pub wait_for_lock: bool,
    /// The epoch that the claim belongs to. It must be the current one.
    pub epoch: Option<Epoch>,
    /// A name for people.
    #[schema(max_length = 256)]
    pub label: Option<String>,
    /// How long the record is kept once it is settled. Default: for ever.
    #[schema(minimum = 1, maximum = 315_360_000_000_u64)]
    pub ttl_ms: Option<u64>,
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

/// The answer to a claim.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Verdict {
    /// Do it. Name this attempt and its fence in every report of it.
    Granted {
        /// The id of the attempt.
        attempt: String,
        /// A number that only grows, for targets that compare fences.
        fence: u64,
        /// Which attempt of its generation this is, from 1.
        nth: u32,
        /// Stop working this many milliseconds after you sent the request. Null if only the lease
        /// limits the grant: then the lease's own `work_ms` counts.
        work_ms: Option<u64>,
    },
    /// It was done. Here is what came of it.
    Replayed {
        /// The recorded outcome.
        outcome: Outcome,
        /// When the record expires; null if it never does.
        expires: Option<String>,
    },
}

/// The result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReportName {
    /// It happened.
    Succeeded,
    /// It did not happen, for certain.
    Failed,
    /// Some of it happened.
    Partial,
    /// The holder does not know whether it happened.
    Ambiguous,
    /// Nothing was tried.
    Released,
}

/// The report that settles an attempt.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Settle {
    /// The attempt that was granted.
    #[schema(pattern = "^att_[0-9a-f]{32}$")]
    pub attempt: String,
    /// The fence that it was granted with.
    pub fence: u64,
    /// The result.
    pub report: ReportName,
    /// The body of the outcome, as text; only with `succeeded`.
    pub body: Option<String>,
    /// The body of the outcome, in base64; only with `succeeded`.
    pub body_base64: Option<String>,
    /// The reason, for people; with every report except `succeeded`.
    #[schema(max_length = 4096)]
    pub reason: Option<String>,
    /// The events to emit; only with `succeeded`. They are recorded together with the outcome.
    #[serde(default)]
    #[schema(max_items = 1000)]
    pub events: Vec<Event>,
}

/// The bytes of a body, which is given as text or in base64.
pub(crate) fn bytes(text: Option<&str>, base64: Option<&str>) -> Result<Vec<u8>, &'static str> {
    match (text, base64) {
        (Some(_), Some(_)) => Err("body and body_base64 are given; one is enough"),
        (Some(text), None) => Ok(text.as_bytes().to_vec()),
        (None, Some(text)) => {
            BASE64.decode(text.as_bytes()).map_err(|_| "body_base64 is not base64")
        }
        (None, None) => Ok(Vec::new()),
    }
}

impl Settle {
    /// The report in the ledger's terms.
    pub(crate) fn to_domain(&self) -> Result<Report, &'static str> {
        let reason = || self.reason.clone().unwrap_or_default();
        let body = bytes(self.body.as_deref(), self.body_base64.as_deref())?;
        let bare = body.is_empty() && self.events.is_empty();
        match self.report {
            ReportName::Succeeded if self.reason.is_some() => {
                Err("a reason goes with anything but succeeded")
            }
            ReportName::Succeeded => Ok(Report::Succeeded(body.into())),
            _ if !bare => Err("a body and events go with succeeded"),
            ReportName::Failed => Ok(Report::Failed(reason())),
            ReportName::Partial => Ok(Report::Partial(reason())),
            ReportName::Ambiguous => Ok(Report::Ambiguous(reason())),
            ReportName::Released => Ok(Report::Released(reason())),
        }
    }
}

/// The answer to a report, or to the registration of a step.
#[derive(Debug, Serialize, ToSchema)]
pub struct Settled {
    /// Whether the same report was recorded before.
    pub repeated: bool,
}

/// How to undo a step that is about to be taken.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Undo {
    /// The attempt that was granted.
    #[schema(pattern = "^att_[0-9a-f]{32}$")]
    pub attempt: String,
    /// The number of the step within its attempt, from 0. The same step under the same number is
    /// recorded once.
    #[schema(maximum = 63)]
    pub nth: usize,
    /// The name of the handler that undoes it.
    #[schema(min_length = 1, max_length = 256)]
    pub step: String,
    /// The input of that handler.
    #[serde(default)]
    #[schema(max_length = 65_536)]
    pub payload: String,
}

/// How to undo a step that was taken.
#[derive(Debug, Serialize, ToSchema)]
pub struct Step {
    /// The name of the handler that undoes it.
    pub step: String,
    /// The input of that handler.
    pub payload: String,
}

/// The report that all steps of an attempt were undone.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Undone {
    /// The attempt that left it partial.
    #[schema(pattern = "^att_[0-9a-f]{32}$")]
    pub attempt: String,
}

/// The decision of an operator about an effect whose outcome is unknown.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resolve {
    /// The attempt that the operator was shown.
    #[schema(pattern = "^att_[0-9a-f]{32}$")]
    pub attempt: String,
    /// The state that the operator was shown.
    #[schema(value_type = StateNames)]
    pub state: StateSeen,
    /// The decision.
    pub decision: Decision,
    /// With `happened`: the body of the outcome.
    pub body: Option<String>,
    /// The reason; kept in the journal.
    #[schema(min_length = 1, max_length = 4096)]
    pub note: String,
}

/// The decision of an operator.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It happened.
    Happened,
    /// It did not happen; it may be claimed again.
    DidNotHappen,
    /// Let it go; it is not claimed again.
    Skip,
    /// Have the reconciler look again.
    AskAgain,
}

/// The request to clear a record, so that the effect can happen again.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Reset {
    /// The attempt that the steward was shown.
    #[schema(pattern = "^att_[0-9a-f]{32}$")]
    pub attempt: String,
    /// The state that the steward was shown.
    #[schema(value_type = StateNames)]
    pub state: StateSeen,
    /// The reason; kept in the journal.
    #[schema(min_length = 1, max_length = 4096)]
    pub note: String,
}

/// The state that the client was shown, by its name.
#[derive(Debug, Clone, Copy)]
pub struct StateSeen(pub StateName);

impl<'de> Deserialize<'de> for StateSeen {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let all = StateName::ALL.map(StateName::as_str).join(", ");
        StateName::from_name(&text)
            .map(Self)
            .ok_or_else(|| serde::de::Error::custom(format!("a state is one of {all}")))
    }
}

/// The answer to a decision or a finding.
#[derive(Debug, Serialize, ToSchema)]
pub struct Judged {
    /// The state of the effect now.
    #[schema(value_type = StateNames)]
    pub state: &'static str,
}

impl Judged {
    pub(crate) fn of(state: StateName) -> Self {
        Self { state: state.as_str() }
    }
}

/// The start of a look: the attempt whose outcome the client finds out at the target.
#[derive(Debug, Serialize, ToSchema)]
pub struct Looked {
    /// The attempt whose outcome is unknown.
    pub attempt: String,
    /// Its fence. If the target compares fences, show it a higher one while you look.
    pub fence: u64,
    /// When the look began; send it back with the finding.
    pub began: String,
}

/// The finding of a look.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LookResult {
    /// The attempt that the client looked for.
    #[schema(pattern = "^att_[0-9a-f]{32}$")]
    pub attempt: String,
    /// Its fence.
    pub fence: u64,
    /// When the look began, as `look` returned it.
    #[schema(pattern = "^[0-9]{1,20}-[0-9]{1,20}$")]
    pub began: String,
    /// Whether it happened; null if the target could not say.
    pub happened: Option<bool>,
    /// With `happened: true`: the body of the outcome.
    pub body: Option<String>,
}
