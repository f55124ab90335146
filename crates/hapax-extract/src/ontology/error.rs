//! Errors of documents that are not an ontology.

use crate::rdf::Syntax;

/// Why a document is not an ontology. Reading the same input again does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OntologyError {
    /// It is not written in its syntax.
    #[error("not {syntax}{}: {problem}", at.map_or_else(String::new, |at| format!(" at {at}")))]
    Syntax {
        /// The syntax it should be written in.
        syntax: Syntax,
        /// Where the error is, if the reader knows.
        at: Option<Position>,
        /// The problem.
        problem: String,
    },
    /// A part of a JSON document is not what it has to be.
    #[error("{}: {problem}; {remedy}", if pointer.is_empty() { "the document" } else { pointer })]
    Invalid {
        /// The place of the part: a JSON pointer (RFC 6901).
        pointer: String,
        /// The problem.
        problem: String,
        /// The remedy.
        remedy: String,
    },
    /// The statements of an RDF document about one resource cannot be used.
    #[error("<{iri}>: {problem}; {remedy}")]
    Resource {
        /// The IRI of the resource.
        iri: String,
        /// The problem.
        problem: String,
        /// The remedy.
        remedy: String,
    },
    /// Something exceeds its limit.
    #[error("{what} may be at most {limit}; leave out what is not needed, or split the ontology")]
    TooLarge {
        /// The thing that is too large, or of which there is too much.
        what: &'static str,
        /// How much is allowed.
        limit: usize,
    },
    /// An RDF document does not say which ontology it is.
    #[error(
        "the document says of nothing that it is an owl:Ontology; add such a statement with the \
         ontology's IRI, or give an id"
    )]
    NoId,
    /// An RDF document is more than one ontology.
    #[error(
        "the document is several ontologies ({}); give the id of the one that is meant",
        ids.join(", ")
    )]
    SeveralIds {
        /// Their IRIs, sorted.
        ids: Vec<String>,
    },
    /// A JSON-LD document refers to a context elsewhere, which is never fetched.
    #[error(
        "{pointer}: the context {url:?} is elsewhere and is not fetched; put what it says into the \
         document in its place"
    )]
    RemoteContext {
        /// The place of the reference: a JSON pointer (RFC 6901).
        pointer: String,
        /// The URL of the context.
        url: String,
    },
    /// The base for relative IRIs is not an absolute IRI.
    #[error("the base {base:?} is not an absolute IRI: {problem}")]
    Base {
        /// The base that was given.
        base: String,
        /// The problem.
        problem: String,
    },
}

impl OntologyError {
    /// The JSON pointer to the problem, where there is one.
    pub fn pointer(&self) -> Option<&str> {
        match self {
            Self::Invalid { pointer, .. } | Self::RemoteContext { pointer, .. } => Some(pointer),
            _ => None,
        }
    }

    pub(crate) fn syntax(syntax: Syntax, at: Option<Position>, problem: impl ToString) -> Self {
        Self::Syntax { syntax, at, problem: problem.to_string() }
    }
}

/// A place in a document. Both count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Position {
    /// The place of a byte, which may be the one after the last.
    pub(crate) fn of(offset: usize, document: &[u8]) -> Self {
        let before = &document[..offset.min(document.len())];
        let line = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let is_first_of_a_character = |byte: &&u8| **byte & 0b1100_0000 != 0b1000_0000;
        Self {
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            column: 1 + before[line..].iter().filter(is_first_of_a_character).count(),
        }
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {} column {}", self.line, self.column)
    }
}
