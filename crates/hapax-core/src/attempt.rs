//! One permission to perform an effect: an identity for hapax, a number for targets.

use crate::digest::printed_bytes;

printed_bytes! {
    /// 128 random bits that identify one grant. Every write for an effect names the attempt that it
    /// was granted to.
    AttemptId, 16, "att_", "att_<32 hex digits>"
}

/// A number from one store-wide counter that only grows, for targets that can compare.
///
/// It is the id of the journal entry that records the grant, so it cannot go back while the journal
/// is intact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

impl std::fmt::Display for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
