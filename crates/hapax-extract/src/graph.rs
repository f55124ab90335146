//! The findings in a text: entities, relations between them, and their places.

use serde::{Deserialize, Serialize};

/// An entity as one chunk mentions it, without regard to the other chunks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mention {
    /// The IRI of its class.
    pub class: String,
    /// The IRI of the individual, if the ontology names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub individual: Option<String>,
    /// Its name: the ontology's label where there is one, else as it is written here.
    pub name: String,
    /// Where it stands in the chunk, in bytes.
    pub start: usize,
    /// The byte after it.
    pub end: usize,
}

/// A relation as one chunk states it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// Its subject: an index in [`ChunkGraph::mentions`].
    pub subject: usize,
    /// The IRI of the property.
    pub property: String,
    /// Its object: another index in [`ChunkGraph::mentions`].
    pub object: usize,
    /// Where it is stated in the chunk, in bytes.
    pub start: usize,
    /// The byte after it.
    pub end: usize,
}

/// The findings of one chunk. Offsets count from the beginning of the chunk, so that the findings
/// are the same wherever the chunk stands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ChunkGraph {
    /// The entities it mentions, in the order of the text.
    pub mentions: Vec<Mention>,
    /// The relations it states. Recorded answers call them `said`.
    #[serde(rename = "said")]
    pub statements: Vec<Statement>,
}

/// A place in the normalised text. Offsets count characters (Unicode scalar values), from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Span {
    /// The number of the chunk, from 0.
    pub chunk: usize,
    /// The first character.
    pub start: usize,
    /// The character after the last.
    pub end: usize,
}

/// An entity of the whole text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entity {
    /// The same for the same thing in every run: the individual's IRI, or `e-<32 hex>` of its class
    /// and name.
    pub id: String,
    /// The IRI of its class.
    #[serde(rename = "type")]
    pub class: String,
    /// Its name.
    pub name: String,
    /// Every way it is written, sorted.
    pub forms: Vec<String>,
    /// Every place where it is mentioned.
    pub mentions: Vec<Span>,
}

/// A relation of the whole text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relation {
    /// The id of an entity.
    pub subject: String,
    /// The IRI of a property.
    pub predicate: String,
    /// The id of an entity.
    pub object: String,
    /// Every place where it is stated.
    pub mentions: Vec<Span>,
}

/// The entities and relations of a text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Graph {
    /// Sorted by id.
    pub entities: Vec<Entity>,
    /// Sorted by subject, predicate and object.
    pub relations: Vec<Relation>,
}
