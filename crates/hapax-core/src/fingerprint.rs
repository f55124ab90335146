//! The digest of an effect's payload, which tells a repeat from a conflict.

use crate::digest::{FramedHasher, printed_bytes};

printed_bytes! {
    /// The digest of a payload, printed `sha256:<64 hex>`.
    Fingerprint, 32, "sha256:", "sha256:<64 hex digits>"
}

impl Fingerprint {
    /// The fingerprint of a payload in one piece.
    ///
    /// ```
    /// use hapax_core::fingerprint::Fingerprint;
    ///
    /// assert_ne!(Fingerprint::of(b"EUR 10.00"), Fingerprint::of(b"EUR 99.00"));
    /// ```
    pub fn of(payload: &[u8]) -> Self {
        Self::of_parts(&[payload])
    }

    /// The fingerprint of a payload in several pieces; their boundaries are part of it.
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let start = FramedHasher::new("hapax.fingerprint.v1:").number(parts.len() as u64);
        Self(parts.iter().fold(start, |framed, part| framed.field(part)).finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_parts_of_the_same_bytes_have_another_fingerprint() {
        assert_ne!(Fingerprint::of_parts(&[b"ab", b"c"]), Fingerprint::of_parts(&[b"a", b"bc"]));
        assert_ne!(Fingerprint::of(b""), Fingerprint::of_parts(&[]));
    }
}
