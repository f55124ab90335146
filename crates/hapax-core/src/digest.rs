//! FramedHasher SHA-256: the one way this crate turns several fields into one digest.
//!
//! Every variable-length field is preceded by its length as a big-endian `u64`, so no two
//! different field lists produce the same bytes (`a:b` + `c` is never `a` + `b:c`).

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use crate::planted::{Bug, planted};

/// A SHA-256 state that frames its input fields.
#[derive(Clone)]
pub(crate) struct FramedHasher(Sha256);

impl FramedHasher {
    /// Starts with a domain-separation tag, unframed because it is constant.
    pub(crate) fn new(tag: &str) -> Self {
        Self(Sha256::new_with_prefix(tag.as_bytes()))
    }

    pub(crate) fn field(mut self, bytes: &[u8]) -> Self {
        match planted(Bug::ColonJoin) {
            true => self.0.update(b":"),
            false => self.0.update((bytes.len() as u64).to_be_bytes()),
        }
        self.0.update(bytes);
        self
    }

    pub(crate) fn number(mut self, number: u64) -> Self {
        self.0.update(number.to_be_bytes());
        self
    }

    pub(crate) fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Why a printed digest or id could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, got {got:?}")]
pub struct ParseError {
    /// The form that was expected, such as `sha256:<64 hex digits>`.
    pub expected: &'static str,
    /// The start of what was given.
    pub got: String,
}

pub(crate) fn parse_hex<const N: usize>(
    text: &str,
    prefix: &str,
    expected: &'static str,
) -> Result<[u8; N], ParseError> {
    let refuse = || ParseError { expected, got: text.chars().take(80).collect() };
    let hex = text.strip_prefix(prefix).ok_or_else(refuse)?;
    let bytes = HEXLOWER.decode(hex.as_bytes()).map_err(|_| refuse())?;
    bytes.try_into().map_err(|_| refuse())
}

/// A fixed-size byte newtype with a printed form: display, parsing, debug.
macro_rules! printed_bytes {
    ($(#[$doc:meta])* $name:ident, $len:literal, $prefix:literal, $form:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name([u8; $len]);

        impl $name {
            /// Wraps raw bytes.
            pub const fn from_bytes(bytes: [u8; $len]) -> Self {
                Self(bytes)
            }

            /// The raw bytes.
            pub const fn as_bytes(&self) -> &[u8; $len] {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str($prefix)?;
                f.write_str(&data_encoding::HEXLOWER.encode(&self.0))
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{self}")
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::digest::ParseError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $crate::digest::parse_hex(text, $prefix, $form).map(Self)
            }
        }
    };
}
pub(crate) use printed_bytes;
