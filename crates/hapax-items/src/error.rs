//! What a caller is told, sorted by what to do next.

use hapax::{AttemptId, Key, KeyError};

use crate::note::Failure;

/// Why something about items did not go as asked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such workflow, version, run, item or escalation.
    #[error("there is no {0}")]
    NotFound(String),
    /// What was asked makes no sense. Fix the request.
    #[error("{0}")]
    Invalid(String),
    /// Somebody is running the workflow already. Wait for that.
    #[error("{workflow} is running already")]
    Running {
        /// Which.
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
        /// Why, and what happens next.
        failure: Box<Failure>,
    },
    /// The decision was made about something that has changed since. Look again.
    #[error("{what} has changed since attempt {attempt}; look again and decide anew")]
    Stale {
        /// What.
        what: String,
        /// The attempt that was judged.
        attempt: AttemptId,
    },
    /// The ledger's own.
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
