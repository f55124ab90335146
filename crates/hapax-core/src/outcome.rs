//! The recorded result of an effect that happened, or did not.

use std::sync::Arc;

use crate::digest::{printed_bytes, sha256};

printed_bytes! {
    /// The SHA-256 of an outcome's body.
    Digest, 32, "sha256:", "sha256:<64 hex digits>"
}

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha256(bytes))
    }
}

/// Bodies above this size are remembered by digest and size only, unless set otherwise.
pub const DEFAULT_KEEP_LIMIT: usize = 16 * 1024 * 1024;

/// The longest text kept as the reason of a failure, in bytes.
pub const MAX_REASON: usize = 4096;

/// The result of an effect that happened.
///
/// ```
/// use hapax_core::outcome::{Digest, Outcome};
///
/// let receipt = Outcome::from("receipt 7");
/// assert_eq!((receipt.size(), receipt.body()), (9, Some(&b"receipt 7"[..])));
/// // Too large to keep: remembered by digest and size.
/// let large = receipt.within(4);
/// assert_eq!((large.size(), large.body()), (9, None));
/// assert_eq!(large.digest(), Digest::of(b"receipt 7"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    digest: Digest,
    size: u64,
    body: Option<Arc<[u8]>>,
}

impl Outcome {
    /// An outcome with this body.
    pub fn new(body: impl Into<Arc<[u8]>>) -> Self {
        let body = body.into();
        Self { digest: Digest::of(&body), size: body.len() as u64, body: Some(body) }
    }

    /// An outcome whose body was not kept: it happened, and only the digest and the size are known.
    pub fn not_kept(digest: Digest, size: u64) -> Self {
        Self { digest, size, body: None }
    }

    /// Drops the body if it is larger than `limit` bytes.
    pub fn within(self, limit: usize) -> Self {
        if self.size > limit as u64 { Self { body: None, ..self } } else { self }
    }

    /// The SHA-256 of the body, kept or not.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The size of the body, kept or not.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The body, unless it was too large to keep.
    pub fn body(&self) -> Option<&[u8]> {
        self.body.as_deref()
    }

    /// The body, shared.
    pub fn shared_body(&self) -> Option<Arc<[u8]>> {
        self.body.clone()
    }
}

impl From<Vec<u8>> for Outcome {
    fn from(body: Vec<u8>) -> Self {
        Self::new(body)
    }
}

impl From<String> for Outcome {
    fn from(body: String) -> Self {
        Self::new(body.into_bytes())
    }
}

impl From<&str> for Outcome {
    fn from(body: &str) -> Self {
        Self::new(body.as_bytes())
    }
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::new([])
    }
}

/// Why an effect is known not to have happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// How we know.
    pub cause: Cause,
    /// The reason, for people.
    pub reason: String,
}

/// How we know that an effect did not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The holder said so.
    Reported,
    /// The holder vanished or could not say, and its work was transactional.
    Lapsed,
    /// The grant never reached its caller.
    Released,
    /// It happened in part and was rolled back.
    RolledBack,
    /// A reconciler looked and did not find it.
    Reconciled,
    /// A person said so.
    Resolved,
    /// A person cleared the record; the next claim starts a new generation.
    Reset,
}

impl Cause {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 7] = [
        Self::Reported,
        Self::Lapsed,
        Self::Released,
        Self::RolledBack,
        Self::Reconciled,
        Self::Resolved,
        Self::Reset,
    ];

    /// The cause with this code in a database.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Its code in a database.
    pub const fn code(self) -> u8 {
        self as u8
    }
}

/// Shortens a reason to [`MAX_REASON`] bytes, at a character border.
pub fn bounded(reason: impl Into<String>) -> String {
    cut(reason, MAX_REASON)
}

/// Shortens a text to this many bytes, at a character border.
pub(crate) fn cut(text: impl Into<String>, most: usize) -> String {
    let mut text = text.into();
    if text.len() > most {
        let mut end = most.saturating_sub('…'.len_utf8());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves K-12.
    #[test]
    fn an_outcome_above_the_limit_keeps_digest_and_size() {
        let whole = Outcome::new(vec![7; 100]);
        let cut = whole.clone().within(99);
        assert_eq!((cut.digest(), cut.size(), cut.body()), (whole.digest(), 100, None));
        assert_eq!(whole.clone().within(100), whole);
    }

    #[test]
    fn reasons_are_cut_at_a_character() {
        assert_eq!(bounded("short"), "short");
        assert!(bounded("é".repeat(4000)).len() <= MAX_REASON);
    }
}
