//! Imports ontologies from the syntaxes of RDF.
//!
//!   bytes ──reader──▶ statements ──meaning──▶ Ontology ──check──▶ sorted
//!
//! The same graph gives the same ontology and the same version, in any syntax and any order.
//! Nothing is ever fetched: neither contexts nor imports nor external entities.

use std::fmt;
use std::path::Path;

use crate::ontology::document::{self, check};
use crate::ontology::error::{OntologyError, Position};
use crate::ontology::limits::{MAX_DOCUMENT, MAX_JSON_LD};
use crate::ontology::{Ontology, document::Flaw};

mod json_ld;
mod meaning;
mod statements;
#[cfg(test)]
mod tests;
mod vocabulary;
mod xml;

use statements::Statements;

/// The syntax of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Syntax {
    /// The ontology's own JSON form.
    Json,
    /// Turtle.
    Turtle,
    /// RDF/XML, as most OWL files are.
    RdfXml,
    /// JSON-LD, with its context in it.
    JsonLd,
}

impl Syntax {
    /// The syntax of a media type. Parameters such as a charset make no difference.
    pub fn of_media_type(media_type: &str) -> Option<Self> {
        let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match essence.as_str() {
            "application/json" => Some(Self::Json),
            "text/turtle" | "application/x-turtle" => Some(Self::Turtle),
            "application/rdf+xml" | "application/xml" | "text/xml" => Some(Self::RdfXml),
            "application/ld+json" => Some(Self::JsonLd),
            _ => None,
        }
    }

    /// The syntax of a file, by its extension.
    pub fn of_path(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "json" => Some(Self::Json),
            "ttl" => Some(Self::Turtle),
            "rdf" | "owl" | "xml" => Some(Self::RdfXml),
            "jsonld" => Some(Self::JsonLd),
            _ => None,
        }
    }
}

impl fmt::Display for Syntax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Json => "JSON",
            Self::Turtle => "Turtle",
            Self::RdfXml => "RDF/XML",
            Self::JsonLd => "JSON-LD",
        })
    }
}

/// Reads an ontology. Relative IRIs are resolved against the base. A given id replaces the
/// document's own.
///
/// ```
/// use hapax_extract::rdf::{Syntax, import};
///
/// let football = br#"
///     @prefix owl: <http://www.w3.org/2002/07/owl#> .
///     @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
///     <https://example.org/football> a owl:Ontology .
///     <https://example.org/football#Club> a owl:Class ; rdfs:label "club"@en, "Verein"@de .
/// "#;
/// let ontology = import(football, Syntax::Turtle, None, None)?;
/// assert_eq!(ontology.classes[0].names().collect::<Vec<_>>(), ["club", "Verein"]);
/// # Ok::<(), hapax_extract::OntologyError>(())
/// ```
pub fn import(
    bytes: &[u8],
    syntax: Syntax,
    base: Option<&str>,
    id: Option<&str>,
) -> Result<Ontology, OntologyError> {
    let limit = if syntax == Syntax::JsonLd { MAX_JSON_LD } else { MAX_DOCUMENT };
    if bytes.len() > limit {
        return Err(OntologyError::TooLarge { what: "a document's bytes", limit });
    }
    let statements = match syntax {
        Syntax::Json => return document::read(bytes, id),
        Syntax::Turtle => turtle(without_mark(bytes), base)?,
        Syntax::RdfXml => rdf_xml(without_mark(bytes), base)?,
        Syntax::JsonLd => json_ld(without_mark(bytes), base)?,
    };
    let ontology = meaning::ontology(&statements, id)?.sorted();
    check(&ontology).map_err(Flaw::in_rdf)?;
    Ok(ontology)
}

/// Some editors begin a file with a byte order mark.
fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes)
}

fn turtle(bytes: &[u8], base: Option<&str>) -> Result<Statements, OntologyError> {
    let mut parser = oxttl::TurtleParser::new();
    if let Some(base) = base {
        parser = parser.with_base_iri(base).map_err(|error| no_base(base, &error))?;
    }
    let mut statements = Statements::default();
    for triple in parser.for_slice(bytes) {
        let triple = triple.map_err(|error| {
            let offset = usize::try_from(error.location().start.offset).unwrap_or(usize::MAX);
            let at = Position::of(offset, bytes);
            OntologyError::syntax(Syntax::Turtle, Some(at), error.message())
        })?;
        statements.add(triple.subject, &triple.predicate, triple.object)?;
    }
    Ok(statements)
}

fn rdf_xml(bytes: &[u8], base: Option<&str>) -> Result<Statements, OntologyError> {
    xml::measure(bytes)?;
    let mut parser = oxrdfxml::RdfXmlParser::new();
    if let Some(base) = base {
        parser = parser.with_base_iri(base).map_err(|error| no_base(base, &error))?;
    }
    let mut statements = Statements::default();
    let mut triples = parser.for_slice(bytes);
    while let Some(triple) = triples.next() {
        let triple = triple.map_err(|error| {
            let offset = usize::try_from(triples.buffer_position()).unwrap_or(usize::MAX);
            OntologyError::syntax(Syntax::RdfXml, Some(Position::of(offset, bytes)), error)
        })?;
        statements.add(triple.subject, &triple.predicate, triple.object)?;
    }
    Ok(statements)
}

/// Named graphs are merged with the default graph: a document often wraps its ontology in one.
fn json_ld(bytes: &[u8], base: Option<&str>) -> Result<Statements, OntologyError> {
    let document = document::parse(bytes, Syntax::JsonLd)?;
    json_ld::measure(&document)?;
    let base = base.unwrap_or(json_ld::NO_BASE);
    let parser = oxjsonld::JsonLdParser::new().with_base_iri(base);
    let mut statements = Statements::default();
    for quad in parser.map_err(|error| no_base(base, &error))?.for_slice(bytes) {
        let quad = quad.map_err(|error| OntologyError::syntax(Syntax::JsonLd, None, error))?;
        json_ld::refuse_relative(&quad)?;
        statements.add(quad.subject, &quad.predicate, quad.object)?;
    }
    Ok(statements)
}

fn no_base(base: &str, error: &dyn fmt::Display) -> OntologyError {
    OntologyError::Base { base: base.to_owned(), problem: error.to_string() }
}
