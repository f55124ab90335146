//! The rules, and their texts for people.

use std::fmt;

use serde::Serialize;

/// The rules of the linter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// An idempotency key that is made by hand: from a hash, the clock or a random value.
    KeyDerivation,
    /// A map, set, cache or table that remembers finished work.
    DedupeStore,
    /// A loop that makes a remote call again when it failed.
    RetryLoop,
    /// An inline allow that names no reason or no rule.
    AllowWithoutReason,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::KeyDerivation, Self::DedupeStore, Self::RetryLoop, Self::AllowWithoutReason];

    /// Its name in reports, configuration and comments.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KeyDerivation => "key-derivation",
            Self::DedupeStore => "dedupe-store",
            Self::RetryLoop => "retry-loop",
            Self::AllowWithoutReason => "allow-without-reason",
        }
    }

    /// The rule of this name, if it is one that can be allowed.
    pub(crate) fn allowable(name: &str) -> Option<Self> {
        let rule = Self::ALL.into_iter().find(|rule| rule.as_str() == name)?;
        (rule != Self::AllowWithoutReason).then_some(rule)
    }

    /// The title of its findings.
    pub fn title(self) -> &'static str {
        match self {
            Self::KeyDerivation => "An idempotency key is derived by hand",
            Self::DedupeStore => "What was done is remembered outside the ledger",
            Self::RetryLoop => "A remote call is retried by hand",
            Self::AllowWithoutReason => "A finding is allowed without a reason",
        }
    }

    /// The remedy.
    pub fn instead(self) -> &'static str {
        match self {
            Self::KeyDerivation => {
                "derive it with hapax: `Key::derive(\"name.v1\", fields)`, or `hapax key` elsewhere"
            }
            Self::DedupeStore => {
                "ask the ledger: `hapax.effect(key).run(..)`, its API, or its inbox"
            }
            Self::RetryLoop => {
                "run the call as an effect, `hapax.effect(key).run(..)`, and let hapax try again"
            }
            Self::AllowWithoutReason => "write `hapax-lint: allow(rule) why it is right here`",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
