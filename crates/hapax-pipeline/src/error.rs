//! Why an operation has no result, sorted by what to do next.

use hapax::{Failure, Key, KeyError, Refusal};

/// Why an operation has no result.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A field of the key is missing, or an argument is invalid. Fix the caller.
    #[error("{0}")]
    Invalid(String),
    /// A guard refused it. Nothing was changed, or what was changed has to be rolled back.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// Another operation holds the dataset's lock, and the policy is to skip.
    #[error("skipped: {holder} holds the dataset's lock")]
    Skipped {
        /// The operation that holds the lock.
        holder: Key,
    },
    /// A review was opened, because another operation holds the lock, the last retry failed, or the
    /// outcome is unknown or partial. See `hapax reviews list`.
    #[error("escalated: {reason}; review {review}")]
    Escalated {
        /// The review that was opened.
        review: Key,
        /// Why.
        reason: String,
    },
    /// It failed, and its retries are used up.
    #[error("failed after {tries} tries: {reason}")]
    Failed {
        /// How often.
        tries: u32,
        /// Why, the last time.
        reason: String,
    },
    /// Any other error of the ledger.
    #[error(transparent)]
    Ledger(#[from] hapax::Error),
}

impl Error {
    /// The code, which has a page of its own in the documentation.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "HX0501",
            Self::Refused(_) => "HX0502",
            Self::Skipped { .. } => "HX0204",
            Self::Escalated { .. } => "HX0503",
            Self::Failed { .. } => "HX0206",
            Self::Ledger(error) => error.code(),
        }
    }
}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Self {
        Self::Invalid(error.to_string())
    }
}

/// The error of work that has no result. Any error converts into [`WorkError::Failure`] with
/// [`Failure::ambiguous`], the safe one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkError {
    /// It did not happen, because of a temporary problem: it is retried at once.
    Transient(String),
    /// A guard refused the result that a transaction was about to settle. Roll the transaction
    /// back.
    Refused(Refusal),
    /// Anything else.
    Failure(Failure),
}

impl WorkError {
    /// It did not happen, because of a temporary problem.
    pub fn transient(reason: impl Into<String>) -> Self {
        Self::Transient(reason.into())
    }

    /// It did not happen, for certain.
    pub fn not_done(reason: impl Into<String>) -> Self {
        Self::Failure(Failure::not_done(reason))
    }

    /// Some of it happened.
    pub fn partial(reason: impl Into<String>) -> Self {
        Self::Failure(Failure::partial(reason))
    }

    /// It may have happened.
    pub fn ambiguous(reason: impl Into<String>) -> Self {
        Self::Failure(Failure::ambiguous(reason))
    }
}

impl<E: std::error::Error> From<E> for WorkError {
    fn from(error: E) -> Self {
        Self::Failure(error.into())
    }
}
