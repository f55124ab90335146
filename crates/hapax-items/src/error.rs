//! Errors, sorted by what the caller does next.

use hapax::{AttemptId, Key, KeyError};

use crate::note::FailureRecord;

/// Why an operation on items failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such workflow, version, run, item or escalation.
    #[error("there is no {0}")]
    NotFound(String),
    /// The request makes no sense. Fix it.
    #[error("{0}")]
    Invalid(String),
    /// The workflow is running already. Wait for that run.
    #[error("{workflow} is running already")]
    Running {
        /// The workflow.
        workflow: String,
    },
    /// A person has to decide first.
    #[error("{what} needs attention: {reason}")]
    Attention {
        /// An item or a run.
        what: String,
        /// Its key.
        key: Key,
        /// Why.
        reason: String,
    },
    /// The run came to its end before the script did.
    #[error("the run ended: {}: {}", .failure.class, .failure.message)]
    Failed {
        /// The item it was at.
        item: Option<String>,
        /// Why, and the next step.
        failure: Box<FailureRecord>,
    },
    /// The decision was made about an older attempt. Look again.
    #[error("{what} has changed since attempt {attempt}; look again and decide anew")]
    Stale {
        /// The item or escalation.
        what: String,
        /// The attempt that was judged.
        attempt: AttemptId,
    },
    /// An error of the ledger.
    #[error(transparent)]
    Hapax(#[from] hapax::Error),
}

impl Error {
    /// The code, which has a page of its own in the documentation.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "HX0701",
            Self::Invalid(_) => "HX0702",
            Self::Running { .. } => "HX0703",
            Self::Attention { .. } => "HX0704",
            Self::Failed { .. } => "HX0705",
            Self::Stale { .. } => "HX0706",
            Self::Hapax(error) => error.code(),
        }
    }
}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Self {
        Self::Invalid(error.to_string())
    }
}
