//! Why nothing could be measured.

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The options do not fit together. Correct them.
    #[error("{0}")]
    Invalid(String),
    /// A baseline, a server or a file that is measured failed.
    #[error("{0}")]
    Unreachable(String),
    /// The ledger failed.
    #[error(transparent)]
    Hapax(#[from] hapax::Error),
    /// A system on the ledger failed.
    #[error(transparent)]
    Pipeline(#[from] hapax_pipeline::Error),
    /// Extraction failed.
    #[error(transparent)]
    Extract(#[from] hapax_extract::Error),
    /// A workflow failed.
    #[error(transparent)]
    Items(#[from] hapax_items::Error),
}

impl From<hapax::StoreError> for Error {
    fn from(error: hapax::StoreError) -> Self {
        Self::Hapax(error.into())
    }
}
