//! Effects that belong together: a mutation is a part of an item, an item of a workflow.
//!
//! A part is an effect like any other. This module adds the whole that it belongs to, its kind, and
//! data beside its outcome, such as the payload it was asked for with.

use crate::effect::{Effect, StateName};
use crate::key::Key;
use crate::name::Name;

/// The part that an effect is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The key of the whole. There need not be an effect of that key.
    pub whole: Key,
    /// The kind of part, such as `mutation`.
    pub kind: String,
    /// Its data. The newest grant or report that gives some counts.
    pub body: Vec<u8>,
}

/// An existing part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartRecord {
    /// Its position among all parts, in the order of their first grants.
    pub position: u64,
    /// The name of its effect.
    pub name: Name,
    /// Its effect.
    pub effect: Effect,
    /// The part.
    pub part: Part,
}

/// Which parts to look for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartFilter {
    /// Only of this whole.
    pub whole: Option<Key>,
    /// Only of this kind.
    pub kind: String,
    /// Only in these states; in any, if empty.
    pub states: Vec<StateName>,
    /// The newest first.
    pub newest_first: bool,
    /// Only beyond this place, in the order of the list.
    pub beyond: Option<u64>,
    /// At most this many.
    pub limit: usize,
}
