//! Where a key lives: a namespace and the key in it.

use std::sync::Arc;

use crate::key::Key;

/// A part of the ledger with an owner of its own.
///
/// ```
/// use hapax_core::name::Namespace;
///
/// assert_eq!(Namespace::new("billing")?.as_str(), "billing");
/// assert!(Namespace::new("no blanks").is_err());
/// # Ok::<(), hapax_core::name::NamespaceError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace(Arc<str>);

/// Why a namespace was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("namespace {0:?} must be 1 to 64 of a-z, 0-9, `.`, `-`, `_` and start with a letter")]
pub struct NamespaceError(String);

impl Namespace {
    /// The namespace of this name.
    pub fn new(name: &str) -> Result<Self, NamespaceError> {
        let ok = name.len() <= 64
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '.' | '-' | '_'));
        if ok {
            Ok(Self(name.into()))
        } else {
            Err(NamespaceError(name.chars().take(80).collect()))
        }
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self("default".into())
    }
}

impl std::fmt::Display for Namespace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

/// The full name of an effect. The same key in two namespaces is two effects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// The namespace.
    pub namespace: Namespace,
    /// The key.
    pub key: Key,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_have_a_plain_spelling() {
        assert_eq!(Namespace::new("team-1.dev").unwrap().as_str(), "team-1.dev");
        for bad in ["", "A", "1a", "a b", "a/b", &"a".repeat(65)] {
            assert!(Namespace::new(bad).is_err(), "{bad:?}");
        }
    }
}
