//! The errors that a caller gets in place of an outcome, sorted by what the caller does next.

use std::path::PathBuf;

use hapax_core::attempt::AttemptId;
use hapax_core::effect::{Blocked, Fenced, Report};
use hapax_core::epoch::Mismatch;
use hapax_core::fingerprint::Fingerprint;
use hapax_core::key::Key;
use hapax_store::StoreError;

/// Why there is no outcome.
///
/// ```
/// use hapax::{Error, Failure, Hapax, Key};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let hapax = Hapax::builder().in_memory();
/// let key = Key::derive("charge.v1", &[("order", b"42")])?;
/// let charge = |amount: &'static [u8]| {
///     hapax.effect(key).payload(amount).run(|_| async { Ok::<_, Failure>("receipt 7") })
/// };
/// charge(b"EUR 10.00").await?;
/// match charge(b"EUR 99.00").await {
///     Err(error @ Error::Conflict { .. }) => assert_eq!(error.code(), "HX0202"),
///     other => panic!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another attempt is doing it, and the wait is over. Ask again later.
    #[error("in flight: {attempt} is running")]
    InFlight {
        /// The attempt that is doing it.
        attempt: AttemptId,
    },
    /// Another transaction has the key's row and has not ended, so it is not known whether the claim is granted.
    /// Ask again later.
    #[error("undecided: {reason}")]
    Undecided {
        /// Why it is not known.
        reason: String,
    },
    /// Same key, another payload. Fix the caller.
    #[error(
        "conflict: the key was used for another request, with fingerprint {recorded}; this one has {asked}"
    )]
    Conflict {
        /// The recorded fingerprint.
        recorded: Fingerprint,
        /// The fingerprint of this request.
        asked: Fingerprint,
    },
    /// The outcome is not known, or only part of it happened. An operator must look.
    #[error("blocked: {} is {}: {}", .0.holder.map_or_else(|| "it".to_owned(), |key| key.to_string()), .0.state, .0.reason)]
    Blocked(Blocked),
    /// Another effect holds the lock, and the wait is over. Ask again later.
    #[error("locked: {holder} holds the lock")]
    Locked {
        /// The effect that holds it.
        holder: Key,
    },
    /// A guard refused it.
    #[error("refused: {reason}")]
    Refused {
        /// The guard, and its reason.
        reason: String,
    },
    /// It did not happen. It may be tried again.
    #[error("failed: {reason}")]
    Failed {
        /// Why.
        reason: String,
    },
    /// Another attempt overtook this one. Stop; your result was not recorded.
    #[error("fenced: this attempt was overtaken; the record is: {0}")]
    Fenced(Fenced),
    /// Its epoch is not the one its domain is in. A new request was refused; an effect under way is
    /// void. Derive a new key in the current epoch.
    #[error("epoch mismatch: {0}")]
    Epoch(Mismatch),
    /// The lease or the deadline was over, or about to be, and the work was cancelled.
    #[error("the lease or the deadline was about to lapse, and the work was cancelled")]
    LeaseLost,
    /// The effect was settled in a transaction that was not committed.
    #[error("the transaction that settled it was not committed")]
    NotCommitted,
    /// This ledger cannot do that.
    #[error("not supported here: {0}")]
    Unsupported(&'static str),
    /// The work ran, and its outcome could not be recorded. Do not do it again under another key.
    #[error("the work ran ({result}), and its outcome could not be recorded: {error}")]
    Unrecorded {
        /// How the work ended.
        result: WorkResult,
        /// The attempt that did it.
        attempt: AttemptId,
        /// The file that keeps the outcome until a process can record it. `None` if it could not be kept: then
        /// an operator has to decide.
        kept: Option<PathBuf>,
        /// Why it could not be recorded.
        error: StoreError,
    },
    /// The store's own error. Nothing was run.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Error {
    /// The code, which has a page of its own in the documentation.
    pub fn code(&self) -> &'static str {
        match self {
            Self::InFlight { .. } => "HX0201",
            Self::Conflict { .. } => "HX0202",
            Self::Blocked(_) => "HX0203",
            Self::Locked { .. } => "HX0204",
            Self::Refused { .. } => "HX0205",
            Self::Failed { .. } => "HX0206",
            Self::Undecided { .. } => "HX0212",
            Self::Fenced(_) => "HX0207",
            Self::LeaseLost => "HX0208",
            Self::NotCommitted => "HX0209",
            Self::Unsupported(_) => "HX0210",
            Self::Epoch(_) => "HX0211",
            Self::Unrecorded { .. } => "HX0213",
            Self::Store(error) => error.code(),
        }
    }
}

/// How work ended whose outcome could not be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkResult {
    /// It happened.
    Succeeded,
    /// It did not happen.
    Failed,
    /// Some of it happened.
    Partial,
    /// The work cannot tell.
    Ambiguous,
}

impl WorkResult {
    pub(crate) fn of(report: &Report) -> Self {
        match report {
            Report::Succeeded(_) => Self::Succeeded,
            Report::Failed(_) | Report::Released(_) => Self::Failed,
            Report::Partial(_) => Self::Partial,
            Report::Ambiguous(_) => Self::Ambiguous,
        }
    }
}

impl std::fmt::Display for WorkResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Succeeded => "it succeeded",
            Self::Failed => "it failed: nothing happened",
            Self::Partial => "only some of it happened",
            Self::Ambiguous => "whether it happened is not known",
        })
    }
}

/// The error of a handler that has no result.
///
/// Any error converts into the safe one, [`Failure::ambiguous`]: the effect's safety class then
/// decides what it means.
///
/// ```
/// use hapax::Failure;
///
/// fn judged(status: u16) -> Result<&'static str, Failure> {
///     match status {
///         200 => Ok("booked"),
///         207 => Err(Failure::partial("one leg of two was booked")),
///         400..500 => Err(Failure::not_done("the bank refused it")),
///         _ => Err(Failure::ambiguous("the bank did not answer")),
///     }
/// }
/// assert!(judged(504).is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    NotDone,
    Partial,
    Ambiguous,
}

impl Failure {
    /// It did not happen, for certain. It may be tried again.
    pub fn not_done(reason: impl Into<String>) -> Self {
        Self { kind: FailureKind::NotDone, reason: reason.into() }
    }

    /// Some of it happened. The registered steps have to be rolled back.
    pub fn partial(reason: impl Into<String>) -> Self {
        Self { kind: FailureKind::Partial, reason: reason.into() }
    }

    /// The same failure, with its reason redacted.
    pub fn redacted(self, redact: impl FnOnce(&str) -> String) -> Self {
        Self { reason: redact(&self.reason), ..self }
    }

    /// The reason, for people.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// It may have happened: a timeout, a broken connection.
    pub fn ambiguous(reason: impl Into<String>) -> Self {
        Self { kind: FailureKind::Ambiguous, reason: reason.into() }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut reason = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            reason = format!("{reason}: {cause}");
            source = cause.source();
        }
        Self::ambiguous(reason)
    }
}
