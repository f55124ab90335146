//! Effects, and what is asked and said of them.

use data_encoding::BASE64;
use hapax::remote::Report;
use hapax::{Key, Settling, State, StateName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::epoch::Epoch;
use super::outbox::Event;
use super::time;

/// An effect as it is remembered.
#[derive(Debug, Serialize, ToSchema)]
pub struct Effect {
    /// What names it, as `sha256:<64 hex digits>`.
    pub key: String,
    /// What people call it.
    pub label: Option<String>,
    /// Where it stands.
    #[schema(value_type = StateNames)]
    pub state: &'static str,
    /// Why it stands there, for people.
    pub reason: Option<String>,
    /// The newest attempt.
    pub attempt: String,
    /// The newest attempt's fence.
    pub fence: u64,
    /// How many attempts this generation has seen.
    pub attempts: u32,
    /// Starts at 1; a reset or an expiry begins the next.
    pub generation: u32,
    /// What it means when its holder vanishes.
    pub safety: Safety,
    /// How long a late arrival is possible, where it can be looked up.
    pub settling_ms: Option<u64>,
    /// The digest of its payload.
    pub fingerprint: String,
    /// What it is serialised by.
    pub lock: Option<String>,
    /// The epoch it counts in; in every one unless given.
    pub epoch: Option<Epoch>,
    /// When the record was made.
    pub created: String,
    /// When it last changed.
    pub updated: String,
    /// When it is forgotten; never unless given.
    pub expires: Option<String>,
    /// What came of it, if it happened.
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

impl Effect {
    /// An effect under its key.
    pub fn of(key: Key, effect: &hapax::Effect) -> Self {
        let (safety, settling_ms) = Safety::of(effect.safety);
        let outcome = match &effect.state {
            State::Succeeded(outcome) => Some(Outcome::of(outcome)),
            _ => None,
        };
        Self {
            key: key.to_string(),
            label: effect.label.clone(),
            state: effect.state.name().as_str(),
            reason: effect.state.reason().map(str::to_owned),
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

/// What it means when a holder vanishes.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Safety {
    /// Nothing happened unless the outcome was recorded. It is granted again.
    Transactional,
    /// It can be looked up; somebody looks first.
    Reconcilable,
    /// Nobody can tell. A person decides.
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

    /// What is meant by it.
    pub fn meant(self, settling_ms: Option<u64>) -> hapax::Safety {
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

/// What came of an effect that happened.
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
    /// An outcome.
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

/// A request for permission.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// What is to be done, as text. The same key with another payload is a conflict.
    #[schema(max_length = 1_048_576)]
    pub payload: Option<String>,
    /// The digest of the payload instead, as `sha256:<64 hex digits>`.
    #[schema(pattern = "^sha256:[0-9a-f]{64}$")]
    pub fingerprint: Option<String>,
    /// What it means when the holder vanishes.
    #[serde(default)]
    pub safety: Safety,
    /// With `reconcilable`: how long a late arrival is possible. A minute unless given; 0 where the
    /// target refuses late arrivals.
    #[schema(maximum = 31_536_000_000_u64)]
    pub settling_ms: Option<u64>,
    /// What it is serialised by, such as a dataset and an operation type.
    #[schema(max_items = 8)]
    pub lock: Option<Vec<String>>,
    /// Whether to wait for the lock too.
    #[serde(default)]
    pub wait_for_lock: bool,
    /// The epoch it is asked for in, which must be the current one.
    pub epoch: Option<Epoch>,
    /// What people call it.
    #[schema(max_length = 256)]
    pub label: Option<String>,
    /// How long to remember it once settled; for ever unless given.
    #[schema(minimum = 1, maximum = 315_360_000_000_u64)]
    pub ttl_ms: Option<u64>,
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

/// The answer to a request for permission.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Verdict {
    /// Do it. Name this attempt and its fence in every report of it.
    Granted {
        /// The identity of the attempt.
        attempt: String,
        /// A number that only grows, for targets that compare.
        fence: u64,
        /// Which attempt of its generation this is, from 1.
        nth: u32,
        /// Stop working this long after you sent the request, in milliseconds. Nothing where only the
        /// lease counts, which has a `work_ms` of its own.
        work_ms: Option<u64>,
    },
    /// It was done. This is what came of it.
    Replayed {
        /// What came of it.
        outcome: Outcome,
        /// Until when it is remembered; for ever unless given.
        expires: Option<String>,
    },
}

/// How an attempt went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReportName {
    /// It happened.
    Succeeded,
    /// It did not happen, for certain.
    Failed,
    /// Some of it happened.
    Partial,
    /// The holder cannot tell.
    Ambiguous,
    /// Nothing was tried.
    Released,
}

/// A report of how an attempt went.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Settle {
    /// The attempt that was granted.
    #[schema(pattern = "^att_[0-9a-f]{32}$")]
    pub attempt: String,
    /// The fence that it was granted with.
    pub fence: u64,
    /// How it went.
    pub report: ReportName,
    /// What came of it, as text; with `succeeded`.
    pub body: Option<String>,
    /// What came of it, as bytes; with `succeeded`.
    pub body_base64: Option<String>,
    /// Why, for people; with anything else.
    #[schema(max_length = 4096)]
    pub reason: Option<String>,
    /// What there is to tell of it; with `succeeded`. Recorded together with the outcome.
    #[serde(default)]
    #[schema(max_items = 1000)]
    pub events: Vec<Event>,
}

/// The bytes that a text or its base64 stand for.
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
    /// What is reported.
    pub(crate) fn meant(&self) -> Result<Report, &'static str> {
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

/// What became of a report.
#[derive(Debug, Serialize, ToSchema)]
pub struct Settled {
    /// Whether the same was recorded before.
    pub repeated: bool,
}

/// How to undo a step that is about to be taken.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Undo {
    /// The attempt that was granted.
    #[schema(pattern = "^att_[0-9a-f]{32}$")]
    pub attempt: String,
    /// Which of the attempt's steps it is, from 0. The same step under the same number is one.
    #[schema(maximum = 63)]
    pub nth: usize,
    /// What knows how to undo it.
    #[schema(min_length = 1, max_length = 256)]
    pub step: String,
    /// What it needs to know.
    #[serde(default)]
    #[schema(max_length = 65_536)]
    pub payload: String,
}

/// How to undo a step that was taken.
#[derive(Debug, Serialize, ToSchema)]
pub struct Step {
    /// What knows how to undo it.
    pub step: String,
    /// What it needs to know.
    pub payload: String,
}

/// All steps of an attempt were undone.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Undone {
    /// The attempt that left it partial.
    #[schema(pattern = "^att_[0-9a-f]{32}$")]
    pub attempt: String,
}

/// What somebody decides about an effect that nobody knows the outcome of.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resolve {
    /// The attempt that was looked at.
    #[schema(pattern = "^att_[0-9a-f]{32}$")]
    pub attempt: String,
    /// The state that it was seen in.
    #[schema(value_type = StateNames)]
    pub state: StateSeen,
    /// What was found, or decided.
    pub decision: Decision,
    /// With `happened`: what came of it.
    pub body: Option<String>,
    /// Why; kept in the journal.
    #[schema(min_length = 1, max_length = 4096)]
    pub note: String,
}

/// What somebody found, or decided.
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

/// Clears a record, so that the effect can happen again.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Reset {
    /// The attempt that was looked at.
    #[schema(pattern = "^att_[0-9a-f]{32}$")]
    pub attempt: String,
    /// The state that it was seen in.
    #[schema(value_type = StateNames)]
    pub state: StateSeen,
    /// Why; kept in the journal.
    #[schema(min_length = 1, max_length = 4096)]
    pub note: String,
}

/// The state that an effect was seen in, by its name.
#[derive(Debug, Clone, Copy)]
pub struct StateSeen(pub StateName);

impl<'de> Deserialize<'de> for StateSeen {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let named = StateName::ALL.into_iter().find(|name| name.as_str() == text);
        let all = StateName::ALL.map(StateName::as_str).join(", ");
        named.map(Self).ok_or_else(|| serde::de::Error::custom(format!("a state is one of {all}")))
    }
}

/// What became of a decision.
#[derive(Debug, Serialize, ToSchema)]
pub struct Judged {
    /// The state it is in now.
    #[schema(value_type = StateNames)]
    pub state: &'static str,
}

impl Judged {
    pub(crate) fn of(state: StateName) -> Self {
        Self { state: state.as_str() }
    }
}

/// A look that has begun for an attempt that may have happened.
#[derive(Debug, Serialize, ToSchema)]
pub struct Looked {
    /// The attempt to look for.
    pub attempt: String,
    /// Its fence. A target that compares numbers is shown a higher one while looking.
    pub fence: u64,
    /// When the look began; to be given back with what was found.
    pub began: String,
}

/// What a look has found.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Found {
    /// The attempt that was looked for.
    #[schema(pattern = "^att_[0-9a-f]{32}$")]
    pub attempt: String,
    /// Its fence.
    pub fence: u64,
    /// When the look began.
    #[schema(pattern = "^[0-9]{1,20}-[0-9]{1,20}$")]
    pub began: String,
    /// Whether it is there; nothing if the target could not say.
    pub happened: Option<bool>,
    /// With `happened: true`: what came of it.
    pub body: Option<String>,
}
