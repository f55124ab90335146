//! Limits on what is stored, the same on every store.

use crate::error::StoreError;

/// Limits on what is stored. They hold for every store alike.
#[derive(Debug, Clone, Copy)]
pub struct Limits;

impl Limits {
    /// The longest label, holder or actor, in bytes.
    pub const LABEL: usize = 256;
    /// The longest note that a grant or a success has in the journal, in bytes.
    pub const NOTE: usize = 64 * 1024;
    /// How many rollback steps one attempt may register.
    pub const STEPS: usize = 64;
    /// The largest payload of a rollback step, in bytes.
    pub const STEP_PAYLOAD: usize = 64 * 1024;
    /// How many sinks there may be.
    pub const SINKS: usize = 64;
    /// How many routes.
    pub const ROUTES: usize = 1_000;
    /// How many datasets are declared.
    pub const DATASETS: usize = 100_000;
    /// How many domains with epochs there may be.
    pub const DOMAINS: usize = 10_000;
    /// How many ontologies a namespace may have.
    pub const ONTOLOGIES: usize = 10_000;
    /// The largest ontology, in bytes.
    pub const ONTOLOGY: usize = 32 * 1024 * 1024;
    /// The longest id of an ontology, in bytes.
    pub const ONTOLOGY_ID: usize = 2_048;
    /// The most cache accesses that one command records.
    pub const ACCESSES: usize = 4_096;
    /// The largest body of a part, in bytes.
    pub const PART: usize = 4 * 1024 * 1024;
    /// How many tokens there may be.
    pub const TOKENS: usize = 10_000;
    /// The shortest lease, in milliseconds.
    pub const SHORTEST_TERM_MS: u64 = 100;
}

/// Refuses a note for the journal that is too long.
pub(crate) fn check_note(note: Option<&str>) -> Result<(), StoreError> {
    match note.map(str::len) {
        Some(size) if size > Limits::NOTE => {
            let most = Limits::NOTE;
            Err(StoreError::Invalid(format!("a note of {size} bytes; at most {most} are kept")))
        }
        _ => Ok(()),
    }
}

/// Refuses a text for people that is too long.
pub(crate) fn check_length(what: &str, text: &str) -> Result<(), StoreError> {
    if text.len() <= Limits::LABEL {
        return Ok(());
    }
    Err(StoreError::Invalid(format!(
        "{what} is {} bytes long; at most {} are kept",
        text.len(),
        Limits::LABEL
    )))
}
