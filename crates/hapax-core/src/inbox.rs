//! Receiving once: an event that comes at least once, under an id that does not change.

/// The longest name of a source, and the longest id, in bytes.
const LONGEST: usize = 255;

/// Whether an event came before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receipt {
    /// It is here for the first time: act on it, in the transaction that received it.
    First,
    /// It was received before: answer as then, and do nothing.
    Again,
}

/// Why an event could not be received.
#[derive(Debug, thiserror::Error)]
pub enum InboxError<E> {
    /// The source or the id is empty, is too long or has a NUL.
    #[error("a source and an id have 1 to {LONGEST} bytes each")]
    Id,
    /// The database returned an error.
    #[error(transparent)]
    Database(#[from] E),
}

/// Whether a source and an id can be kept.
pub fn check<E>(source: &str, id: &str) -> Result<(), InboxError<E>> {
    let fits = |text: &str| !text.is_empty() && text.len() <= LONGEST && !text.contains('\0');
    if fits(source) && fits(id) { Ok(()) } else { Err(InboxError::Id) }
}
