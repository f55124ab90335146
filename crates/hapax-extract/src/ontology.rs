//! What an extractor looks for: classes, properties and named individuals.
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
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What there is.
    pub classes: Vec<Class>,
    /// What it may have to do with each other.
    pub properties: Vec<Property>,
    /// What has a name of its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub individuals: Vec<Individual>,
}

/// A class of things.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Class {
    /// Its IRI.
    pub id: String,
    /// What it is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What else it is called.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub synonyms: Vec<String>,
    /// The classes that it is a kind of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sub_class_of: Vec<String>,
    /// The properties that are its own, beside those whose domain it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<String>,
}

/// What two things may have to do with each other.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Property {
    /// Its IRI.
    pub id: String,
    /// What it is called, such as `plays for`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What else it is called.
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
    /// What it is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What else it is called.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub synonyms: Vec<String>,
    /// Its classes.
    #[serde(rename = "type", skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
}

#[cfg(test)]
mod tests;
