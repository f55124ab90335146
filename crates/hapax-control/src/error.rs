//! Why there is no answer, under the names that the design gives.

use hapax::{Failure, Fingerprint, KeyError, Mismatch, StoreError};

use crate::registry::UnresolvedName;

/// Why a request has no answer.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The same key, another payload. Reject the retry, alert the caller.
    #[error("the key is recorded with another payload: {recorded}, and came with {asked}")]
    Conflict {
        /// The recorded fingerprint.
        recorded: Fingerprint,
        /// The fingerprint of the request.
        asked: Fingerprint,
    },
    /// A key of another epoch. Derive a new one in the current epoch.
    #[error(transparent)]
    Epoch(#[from] Mismatch),
    /// No key can be derived, or the key that came is not the derived one.
    #[error("no key can be derived: {0}")]
    KeyDerivation(String),
    /// The ledger is unavailable, so nothing was sent, or run.
    #[error("the ledger cannot be reached: {0}")]
    Unavailable(StoreError),
    /// It was sent, or run, and the ledger could not record it. It is recorded as soon as possible;
    /// ask again.
    #[error("it was done or is running, and recording it failed: {0}")]
    Unrecorded(StoreError),
    /// It was sent until its policy or the retry budget ended it, and no try reached the peer.
    #[error("not done; sent {sent} of {most} times: {reason}")]
    Failed {
        /// How often it was sent.
        sent: u32,
        /// How often its policy allows.
        most: u32,
        /// Why, the last time.
        reason: String,
    },
    /// It was sent until its policy or the retry budget ended it, and may have reached the peer.
    /// The caller may ask again in this epoch: the peer honours its key.
    #[error("no answer, and it may have been done; sent {sent} of {most} times: {reason}")]
    Unanswered {
        /// How often it was sent.
        sent: u32,
        /// How often its policy allows.
        most: u32,
        /// Why, the last time.
        reason: String,
    },
    /// The peer refused it. It was not sent again.
    #[error("the peer refused: {0}")]
    Refused(String),
    /// Any other error of the ledger.
    #[error(transparent)]
    Ledger(hapax::Error),
}

impl Error {
    /// The name in the design, where it has one; otherwise the ledger's code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Conflict { .. } => "ERR_IDEMPOTENCY_CONFLICT",
            Self::Epoch(_) => "ERR_EPOCH_MISMATCH",
            Self::KeyDerivation(_) => "ERR_KEY_DERIVATION_FAILED",
            Self::Unavailable(_) => "ERR_DEDUP_STORE_UNAVAILABLE",
            _ => self.page(),
        }
    }

    /// The code that has a page of its own.
    pub fn page(&self) -> &'static str {
        match self {
            Self::Conflict { .. } => "HX0202",
            Self::Epoch(_) => "HX0211",
            Self::KeyDerivation(_) => "HX0401",
            Self::Unavailable(_) => "HX0402",
            Self::Failed { .. } => "HX0206",
            Self::Unrecorded(_) => "HX0404",
            Self::Unanswered { .. } => "HX0405",
            Self::Refused(_) => "HX0403",
            Self::Ledger(error) => error.code(),
        }
    }
}

impl From<hapax::Error> for Error {
    fn from(error: hapax::Error) -> Self {
        match error {
            hapax::Error::Conflict { recorded, asked } => Self::Conflict { recorded, asked },
            hapax::Error::Epoch(mismatch) => Self::Epoch(mismatch),
            hapax::Error::Store(error) if is_away(&error) => Self::Unavailable(error),
            hapax::Error::Unrecorded { error, .. } => Self::Unrecorded(error),
            other => Self::Ledger(other),
        }
    }
}

/// Whether the store is at fault, and not the request.
fn is_away(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Unavailable(_)
            | StoreError::Full(_)
            | StoreError::CommitUnknown(_)
            | StoreError::Stopped(_)
            | StoreError::Incompatible(_)
    )
}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Self {
        Self::KeyDerivation(error.to_string())
    }
}

impl From<UnresolvedName> for Error {
    fn from(error: UnresolvedName) -> Self {
        Self::KeyDerivation(error.to_string())
    }
}

/// A sender's error, when it has no answer. Any error converts into the safe one,
/// [`ambiguous`](Self::ambiguous).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendError {
    pub(crate) kind: Kind,
    pub(crate) reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    NotDone,
    Ambiguous,
    Refused,
}

impl SendError {
    /// It did not reach the peer, for certain. It is sent again, as its policy allows.
    pub fn not_done(reason: impl Into<String>) -> Self {
        Self { kind: Kind::NotDone, reason: reason.into() }
    }

    /// It may have reached the peer, which honours its key. It is sent again, as its policy allows.
    pub fn ambiguous(reason: impl Into<String>) -> Self {
        Self { kind: Kind::Ambiguous, reason: reason.into() }
    }

    /// The peer has decided not to do it. It is not sent again.
    pub fn refused(reason: impl Into<String>) -> Self {
        Self { kind: Kind::Refused, reason: reason.into() }
    }
}

impl<E: std::error::Error> From<E> for SendError {
    fn from(error: E) -> Self {
        Self::ambiguous(error.to_string())
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        match error.kind {
            Kind::NotDone | Kind::Refused => Self::not_done(error.reason),
            Kind::Ambiguous => Self::ambiguous(error.reason),
        }
    }
}
