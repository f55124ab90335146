//! Why there is no result.

use std::time::Duration;

use hapax::KeyError;

use crate::ontology::error::OntologyError;
use crate::params::ParamsError;

/// Why there is no result.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such ontology.
    #[error("there is no ontology {0:?}")]
    UnknownOntology(String),
    /// The text is empty or too long.
    #[error("{0}")]
    Text(String),
    /// A parameter is not what it should be.
    #[error(transparent)]
    Params(#[from] ParamsError),
    /// An ontology is not what it should be.
    #[error(transparent)]
    Ontology(#[from] OntologyError),
    /// The request has no key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The extractor failed. Nothing is recorded; the caller may retry.
    #[error("the extractor failed: {reason}")]
    Extractor {
        /// Why.
        reason: String,
        /// How long to wait before the retry, if the extractor gave a time.
        after: Option<Duration>,
    },
    /// The extractor cannot answer, and will not until the operator or the caller changes
    /// something.
    #[error("the extractor cannot answer: {0}")]
    Hopeless(String),
    /// The ontology changed again and again while the text was being read.
    #[error("the ontology {0:?} keeps changing; ask again when it does not")]
    Restless(String),
    /// The ledger's own error.
    #[error(transparent)]
    Ledger(#[from] hapax::Error),
}

impl Error {
    /// Whether the request has no key, because of its text or its parameters.
    pub fn is_without_key(&self) -> bool {
        matches!(self, Self::Text(_) | Self::Params(_) | Self::Key(_))
    }

    /// The code, which has a page of its own in the documentation.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownOntology(_) => "HX0601",
            Self::Text(_) | Self::Params(_) | Self::Ontology(_) | Self::Key(_) => "HX0602",
            Self::Extractor { .. } => "HX0603",
            Self::Restless(_) => "HX0604",
            Self::Hopeless(_) => "HX0605",
            Self::Ledger(error) => error.code(),
        }
    }
}
