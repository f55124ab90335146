//! An ontology: the classes, properties and named individuals that an extractor looks for.
//!
//! An ontology is read from its JSON form ([`Ontology::parse_json`]) or from RDF
//! ([`crate::rdf::import`]), is checked on the way in, and has a version that is the hash of
//! everything an extractor can read of it ([`Ontology::version`]). It imports nothing: a class that
//! it refers to need not be in it.

use serde::{Deserialize, Serialize};

pub(crate) mod document;
pub(crate) mod error;
pub mod limits;
mod name;
mod version;

/// An ontology, as much of it as an extractor can read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Ontology {
    /// Its IRI.
    pub id: String,
    /// A label for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The classes of things.
    pub classes: Vec<Class>,
    /// The relations that may hold between things.
    pub properties: Vec<Property>,
    /// The things with a name of their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub individuals: Vec<Individual>,
}

/// A class of things.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Class {
    /// Its IRI.
    pub id: String,
    /// Its label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Its other names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub synonyms: Vec<String>,
    /// The classes that it is a kind of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sub_class_of: Vec<String>,
    /// Its own properties, beside those whose domain it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<String>,
}

/// A relation that may hold between two things.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Property {
    /// Its IRI.
    pub id: String,
    /// Its label, such as `plays for`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Its other names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub synonyms: Vec<String>,
    /// The classes of its subjects; any, if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub domain: Vec<String>,
    /// The classes of its objects; any, if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub range: Vec<String>,
}

/// A thing with a name of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Individual {
    /// Its IRI.
    pub id: String,
    /// Its label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Its other names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub synonyms: Vec<String>,
    /// Its classes.
    #[serde(rename = "type", skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
}

#[cfg(test)]
mod tests;
