//! Cached results: their index entries, and the ontologies they are made from.
//!
//! A result is the outcome of an effect like any other. This module lets people count results,
//! explain why one was not found, and remove unused ones. Removing one loses nothing but the work
//! of making it again.

use crate::key::Key;
use crate::name::Name;
use crate::time::Timestamp;

/// The index entry by which a result is found and counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexEntry {
    /// The IRI of the ontology it was made from.
    pub ontology: String,
    /// That ontology's version. A result of another version is not recorded.
    pub version: String,
    /// A short hash of the text, to show people which part of a key differs.
    pub text_hash: String,
    /// A short hash of the parameters.
    pub params_hash: String,
    /// Whether it is a result that a client requested, and not a part of one.
    pub whole: bool,
}

/// An existing result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedResult {
    /// The key of its effect.
    pub key: Key,
    /// Its index entry.
    pub entry: IndexEntry,
    /// Its size in bytes.
    pub bytes: u64,
    /// When it was recorded.
    pub created: Timestamp,
    /// When it was last used, as far as accesses were recorded.
    pub used: Timestamp,
}

/// Counts and size of the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStats {
    /// Results that clients requested.
    pub whole: u64,
    /// Parts of results.
    pub parts: u64,
    /// The bytes of all of them.
    pub bytes: u64,
}

/// Which results to look for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResultFilter {
    /// Only of this ontology.
    pub ontology: Option<String>,
    /// Only of this text.
    pub text_hash: Option<String>,
    /// At most this many, most recently used first.
    pub limit: usize,
}

/// Which results to remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evict {
    /// Results of an ontology, except those of its present version.
    Outdated {
        /// The ontology.
        ontology: String,
    },
    /// All results of an ontology.
    Of {
        /// The ontology.
        ontology: String,
    },
    /// One.
    One(Key),
    /// All.
    All,
    /// The least recently used.
    Oldest,
}

/// An ontology, as much as a store knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ontology {
    /// Its IRI.
    pub id: String,
    /// The hash of its content.
    pub version: String,
    /// Its content for extractors, as JSON. Empty in lists.
    pub content: String,
    /// Its metadata for people, as JSON.
    pub metadata: String,
    /// When it was stored.
    pub updated: Timestamp,
}

/// Cache accesses of one kind to one key, recorded in bulk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheAccess {
    /// The effect that was asked for.
    pub name: Name,
    /// The ontology.
    pub ontology: String,
    /// The kind of access.
    pub kind: AccessKind,
    /// How often, since they were last recorded.
    pub times: u64,
    /// Details, as JSON.
    pub about: String,
}

/// The kind of a cache access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessKind {
    /// The result was there.
    Hit,
    /// It was not.
    Miss,
    /// Another caller was making it.
    Shared,
    /// A part of a result was used; only the time of that is recorded.
    Used,
}

impl AccessKind {
    /// Whether the access used the result.
    pub const fn is_use(self) -> bool {
        matches!(self, Self::Hit | Self::Used)
    }
}
