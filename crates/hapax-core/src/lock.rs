//! Locks, which serialise effects that touch the same thing.
//!
//! A lock row names the effect and the attempt that hold it. Settling releases it, and an
//! outcome that is partial, unknown or indeterminate keeps it.

use crate::attempt::AttemptId;
use crate::digest::FramedHasher;
use crate::key::Key;

/// A 64-bit hash of the names that are locked. A collision makes two things wait for each other,
/// and does nothing worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockKey(pub u64);

impl LockKey {
    /// The lock of these names, such as a dataset and an operation type.
    ///
    /// ```
    /// use hapax_core::lock::LockKey;
    ///
    /// assert_ne!(LockKey::of(&["gauges", "write"]), LockKey::of(&["gauges", "read"]));
    /// ```
    pub fn of(names: &[&str]) -> Self {
        let start = FramedHasher::new("hapax.lock.v1:").number(names.len() as u64);
        let digest = names.iter().fold(start, |f, name| f.field(name.as_bytes())).finish();
        let mut head = [0; 8];
        head.copy_from_slice(&digest[..8]);
        Self(u64::from_be_bytes(head))
    }
}

impl std::fmt::Display for LockKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "lock_{:016x}", self.0)
    }
}

impl std::str::FromStr for LockKey {
    type Err = NoLock;

    fn from_str(text: &str) -> Result<Self, NoLock> {
        let digits = text.strip_prefix("lock_").filter(|digits| digits.len() == 16);
        let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        number.map(Self).ok_or(NoLock)
    }
}

/// A text that names no lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a lock is written lock_ and 16 hexadecimal digits")]
pub struct NoLock;

/// A lock that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock {
    /// Which one.
    pub key: LockKey,
    /// The effect that holds it.
    pub holder: Key,
    /// The attempt that took it.
    pub attempt: AttemptId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_read_as_it_is_written() {
        let key = LockKey(0x00ab_cdef_0123_4567);
        assert_eq!(key.to_string(), "lock_00abcdef01234567");
        assert_eq!("lock_00abcdef01234567".parse(), Ok(key));
        for bad in [
            "lock_00abcdef0123456",
            "lock_000abcdef01234567",
            "00abcdef01234567",
            "lock_00abcdef0123456z",
        ] {
            assert_eq!(bad.parse::<LockKey>(), Err(NoLock), "{bad}");
        }
    }

    /// Proves P-4 for the framing of the lock key.
    #[test]
    fn lock_names_are_framed() {
        assert_ne!(LockKey::of(&["ab", "c"]), LockKey::of(&["a", "bc"]));
        assert_eq!(LockKey::of(&["d", "op"]), LockKey::of(&["d", "op"]));
    }
}
