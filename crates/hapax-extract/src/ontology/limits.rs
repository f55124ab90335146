//! Limits on the size of an ontology. They keep one document from taking all memory, and are far
//! above the size of any ontology that people read.

/// The length of a document, in bytes.
pub const MAX_DOCUMENT: usize = 32 * 1024 * 1024;
/// The length of a JSON-LD document, in bytes. Less, because its parser holds all of it several
/// times.
pub const MAX_JSON_LD: usize = 8 * 1024 * 1024;
/// The number of classes in an ontology.
pub const MAX_CLASSES: usize = 50_000;
/// The number of its properties.
pub const MAX_PROPERTIES: usize = 50_000;
/// The number of its individuals.
pub const MAX_INDIVIDUALS: usize = 500_000;
/// The number of synonyms of one of these. Labels in other languages are synonyms, and there are
/// hundreds of languages.
pub const MAX_SYNONYMS: usize = 1_000;
/// The number of references from one of these in one list.
pub const MAX_REFERENCES: usize = 10_000;
/// The length of a label or a synonym, in characters.
pub const MAX_LABEL: usize = 1_000;
/// The length of an id, in bytes.
pub const MAX_ID: usize = 2_048;
/// The number of triples in an RDF document.
pub const MAX_TRIPLES: usize = 5_000_000;
/// The steps that it takes to list the members of all unions, once for each property that uses one.
pub const MAX_UNION_STEPS: usize = 1_000_000;
/// The length of all terms of an RDF document together, in bytes, with prefixes and entities
/// expanded.
pub const MAX_WRITTEN_OUT: usize = 512 * 1024 * 1024;
/// The depth of nested elements in an RDF/XML document.
pub const MAX_XML_DEPTH: usize = 256;
/// The length of a tag of an RDF/XML document with its attributes, in bytes.
pub const MAX_XML_TAG: usize = 64 * 1024;
