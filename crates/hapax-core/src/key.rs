//! The name of an effect: 32 bytes of SHA-256 over framed, domain-separated fields.
//!
//! Each derivation has a name and a version. [`Key::derive`] is the open one; the named ones
//! live in the submodules. Two hold a formula fixed elsewhere ([`control`], [`extraction`]),
//! two only recognise records of older pipelines ([`pipeline`]).
//!
//! A key never depends on the clock, on the order in which fields are given, or on a
//! shortened hash.

pub mod control;
pub mod extraction;
pub mod http;
pub mod mutation;
pub mod pipeline;

use crate::digest::{FramedHasher, printed_bytes};

pub use crate::digest::ParseError;

printed_bytes! {
    /// The name of an effect, printed `sha256:<64 hex>`.
    ///
    /// ```
    /// use hapax_core::key::Key;
    ///
    /// let key = Key::derive("invoice.v1", &[("customer", b"acme"), ("month", b"2026-10")])?;
    /// assert_eq!(key, Key::derive("invoice.v1", &[("month", b"2026-10"), ("customer", b"acme")])?);
    /// assert_eq!(key.to_string().parse::<Key>(), Ok(key));
    /// # Ok::<(), hapax_core::key::KeyError>(())
    /// ```
    Key, 32, "sha256:", "sha256:<64 hex digits>"
}

/// Why a key could not be derived.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A required field is missing, empty or only white space.
    #[error("key field `{field}` is missing or blank")]
    Blank {
        /// The field's name.
        field: &'static str,
    },
    /// The derivation is not named `name.vN`.
    #[error("derivation name {name:?} is not of the form name.vN, such as invoice.v1")]
    Name {
        /// The name that was given.
        name: String,
    },
    /// The derivation belongs to hapax and has a constructor of its own.
    #[error("derivation {name:?} is reserved; use its own constructor")]
    Reserved {
        /// The name that was given.
        name: String,
    },
    /// A field was given twice.
    #[error("key field {field:?} is given twice")]
    Repeated {
        /// The field's name.
        field: String,
    },
    /// A field has a value its derivation cannot take.
    #[error("key field `{field}` {problem}")]
    Invalid {
        /// The field's name.
        field: &'static str,
        /// The problem of its value.
        problem: String,
    },
}

/// The named derivations, in the order of the specification.
pub const DERIVATIONS: [&str; 7] = [
    pipeline::V1,
    pipeline::KFM_V11,
    pipeline::KFM_V10,
    control::V1,
    extraction::V1,
    mutation::V1,
    http::V1,
];

impl Key {
    /// Derives a key of your own from named fields.
    ///
    /// The derivation's name ends in a version, so that a later rule never meets an older
    /// one's keys. The order of `fields` does not matter; a repeated name is refused.
    pub fn derive(derivation: &str, fields: &[(&str, &[u8])]) -> Result<Self, KeyError> {
        if !is_versioned(derivation) {
            return Err(KeyError::Name { name: derivation.to_owned() });
        }
        if DERIVATIONS.contains(&derivation) {
            return Err(KeyError::Reserved { name: derivation.to_owned() });
        }
        Self::framed(derivation, fields)
    }

    fn framed(derivation: &str, fields: &[(&str, &[u8])]) -> Result<Self, KeyError> {
        let mut fields: Vec<_> = fields.to_vec();
        fields.sort_unstable_by_key(|(name, _)| *name);
        if let Some(pair) = fields.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(KeyError::Repeated { field: pair[0].0.to_owned() });
        }
        let start = FramedHasher::new("hapax.key.v1:").field(derivation.as_bytes());
        let framed =
            fields.iter().fold(start.number(fields.len() as u64), |framed, (name, value)| {
                framed.field(name.as_bytes()).field(value)
            });
        Ok(Self(framed.finish()))
    }
}

/// `name.vN`: lower-case words, digits, `.`, `-`, `_`, then a version without leading zero.
fn is_versioned(name: &str) -> bool {
    let Some((stem, version)) = name.rsplit_once(".v") else { return false };
    let stem_ok = stem.starts_with(|c: char| c.is_ascii_lowercase())
        && stem.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '.' | '-' | '_'));
    let version_ok = version.starts_with(|c: char| matches!(c, '1'..='9'))
        && version.chars().all(|c| c.is_ascii_digit());
    name.len() <= 128 && stem_ok && version_ok
}

fn required<'a>(field: &'static str, value: &'a str) -> Result<&'a str, KeyError> {
    if value.trim().is_empty() { Err(KeyError::Blank { field }) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Proves K-1.
    #[test]
    fn the_same_fields_under_two_names_give_two_keys() {
        let fields: &[(&str, &[u8])] = &[("a", b"1")];
        let first = Key::derive("mine.v1", fields).unwrap();
        assert_ne!(first, Key::derive("mine.v2", fields).unwrap());
        assert_ne!(first, Key::derive("yours.v1", fields).unwrap());
    }

    #[test]
    fn names_without_a_version_and_reserved_names_are_refused() {
        for name in ["mine", "mine.v", "mine.v0", "Mine.v1", ".v1", "mine.v1x", ""] {
            assert!(matches!(Key::derive(name, &[]), Err(KeyError::Name { .. })), "{name}");
        }
        for name in DERIVATIONS.into_iter().filter(|name| is_versioned(name)) {
            assert!(matches!(Key::derive(name, &[]), Err(KeyError::Reserved { .. })), "{name}");
        }
        let twice: &[(&str, &[u8])] = &[("a", b"1"), ("a", b"2")];
        assert_eq!(Key::derive("mine.v1", twice), Err(KeyError::Repeated { field: "a".into() }));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// Proves K-1: framing is injective, wherever the field boundaries fall.
        #[test]
        fn moving_a_boundary_between_fields_changes_the_key(
            text in "[a:|]{2,12}", cut in 0usize..12, other in 0usize..12,
        ) {
            let (cut, other) = (cut.min(text.len()), other.min(text.len()));
            let split = |at: usize| {
                let (a, b) = text.as_bytes().split_at(at);
                Key::derive("mine.v1", &[("a", a), ("b", b)]).unwrap()
            };
            prop_assert_eq!(cut == other, split(cut) == split(other));
        }
    }
}
