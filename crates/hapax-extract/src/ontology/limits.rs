//! How much of everything an ontology may have. They keep one document from taking all memory, and
//! are far from what an ontology that is read by people has.

/// How long a document is, in bytes.
pub const MAX_DOCUMENT: usize = 32 * 1024 * 1024;
/// How long a JSON-LD document is, in bytes. Less, because its reader holds all of it several times.
pub const MAX_JSON_LD: usize = 8 * 1024 * 1024;
/// How many classes an ontology has.
pub const MAX_CLASSES: usize = 50_000;
/// How many properties it has.
pub const MAX_PROPERTIES: usize = 50_000;
/// How many individuals it has.
pub const MAX_INDIVIDUALS: usize = 500_000;
/// How many synonyms one of these has. Labels in other languages are synonyms, and there are
/// hundreds of languages.
pub const MAX_SYNONYMS: usize = 1_000;
/// How many others one of these refers to in one list.
pub const MAX_REFERENCES: usize = 10_000;
/// How long a label or a synonym is, in characters.
pub const MAX_LABEL: usize = 1_000;
/// How long an id is, in bytes.
pub const MAX_ID: usize = 2_048;
/// How many triples an RDF document has.
pub const MAX_TRIPLES: usize = 5_000_000;
/// How many steps it takes to list the members of all unions, once for each property that uses one.
pub const MAX_UNION_STEPS: usize = 1_000_000;
/// How long all of an RDF document's terms are together, in bytes, once prefixes and entities are
/// written out.
pub const MAX_WRITTEN_OUT: usize = 512 * 1024 * 1024;
/// How deep the elements of an RDF/XML document are nested.
pub const MAX_XML_DEPTH: usize = 256;
/// How long a tag of an RDF/XML document is with its attributes, in bytes.
pub const MAX_XML_TAG: usize = 64 * 1024;
