//! Results that may be forgotten: what they are found by, and the ontologies they are made from.
//!
//! A result is the outcome of an effect like any other. What stands beside it here lets people
//! count results, explain why one was not found, and remove those that nobody asks for. Removing
//! one loses nothing but the work of making it again.

use crate::key::Key;
use crate::name::Name;
use crate::time::Timestamp;

/// What a result is found and counted by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shelved {
    /// The IRI of the ontology it was made from.
    pub ontology: String,
    /// That ontology's version. A result of another one is not recorded.
    pub version: String,
    /// A short hash of the text, to tell people which part of a key differs.
    pub text_hash: String,
    /// A short hash of the parameters.
    pub params_hash: String,
    /// Whether it is what somebody asked for, and not a part of it.
    pub whole: bool,
}

/// A result that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shelf {
    /// The key of its effect.
    pub key: Key,
    /// What it is found by.
    pub shelved: Shelved,
    /// Its size in bytes.
    pub bytes: u64,
    /// When it was recorded.
    pub created: Timestamp,
    /// When it was last asked for, as far as that has been written down.
    pub used: Timestamp,
}

/// How much there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stock {
    /// Results that somebody asked for.
    pub whole: u64,
    /// Parts of results.
    pub parts: u64,
    /// The bytes of all of them.
    pub bytes: u64,
}

/// Which results to look for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sought {
    /// Only of this ontology.
    pub ontology: Option<String>,
    /// Only of this text.
    pub text_hash: Option<String>,
    /// At most this many, those first that were used last.
    pub limit: usize,
}

/// Which results to remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evict {
    /// Those of an ontology, but for its present version.
    Outdated {
        /// Which.
        ontology: String,
    },
    /// All of an ontology.
    Of {
        /// Which.
        ontology: String,
    },
    /// One.
    One(Key),
    /// All.
    All,
    /// Those that nobody has asked for for the longest.
    Oldest,
}

/// An ontology, as much as a store knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ontology {
    /// Its IRI.
    pub id: String,
    /// The hash of its content.
    pub version: String,
    /// What extractors read of it, as JSON. Empty in lists.
    pub content: String,
    /// What people read of it, as JSON.
    pub metadata: String,
    /// When it was kept.
    pub updated: Timestamp,
}

/// What is written down about requests, in bulk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// The effect that was asked for.
    pub name: Name,
    /// The ontology.
    pub ontology: String,
    /// What became of it.
    pub what: What,
    /// How often, since it was last written down.
    pub times: u64,
    /// More, as JSON.
    pub about: String,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// The result was there.
    Hit,
    /// It was not.
    Miss,
    /// Somebody else was at it.
    Shared,
    /// It is a part that was of use; only that is written down.
    Used,
}

impl What {
    /// Whether the result was of use.
    pub const fn is_use(self) -> bool {
        matches!(self, Self::Hit | Self::Used)
    }
}
