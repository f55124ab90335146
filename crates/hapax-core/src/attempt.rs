//! One permission to perform an effect: an identity for us, a number for others.

use crate::digest::printed_bytes;

printed_bytes! {
    /// 128 random bits that identify one grant. Whatever is written for an effect names the
    /// attempt it was granted to.
    AttemptId, 16, "att_", "att_<32 hex digits>"
}

/// A number from one store-wide counter that only grows, for targets that can compare.
///
/// It is the id of the journal entry that records the grant, so nothing that leaves the
/// journal alone can turn it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

impl std::fmt::Display for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
