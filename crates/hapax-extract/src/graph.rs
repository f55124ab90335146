//! What is found in a text: entities, relations between them, and where they stand.

use serde::{Deserialize, Serialize};

/// An entity as one chunk mentions it, before anything is known of the other chunks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mention {
    /// The IRI of its class.
    pub class: String,
    /// The IRI of the individual, if the ontology names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub individual: Option<String>,
    /// What it is called: the ontology's label where there is one, else as it is written here.
    pub name: String,
    /// Where it stands in the chunk, in bytes.
    pub start: usize,
    /// The byte after it.
    pub end: usize,
}

/// A relation as one chunk states it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// Which of the chunk's entities is its subject: a place in [`Found::mentions`].
    pub subject: usize,
    /// The IRI of the property.
    pub property: String,
    /// Which is its object.
    pub object: usize,
    /// Where it is stated in the chunk, in bytes.
    pub start: usize,
    /// The byte after it.
    pub end: usize,
}

/// What one chunk says. Its offsets count from its own beginning, so that it is the same wherever
/// the chunk stands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Found {
    /// The entities it mentions, in the order of the text.
    pub mentions: Vec<Mention>,
    /// The relations it states.
    pub said: Vec<Said>,
}

/// Where in the normalised text something stands. Offsets count characters (Unicode scalar
/// values), from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Which chunk, from 0.
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
    /// What it is called.
    pub name: String,
    /// Every way it is written, sorted.
    pub forms: Vec<String>,
    /// Every place it stands.
    pub mentions: Vec<Place>,
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
    /// Every place it is stated.
    pub mentions: Vec<Place>,
}

/// What a text says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Graph {
    /// By id.
    pub entities: Vec<Entity>,
    /// By subject, predicate, object.
    pub relations: Vec<Relation>,
}
