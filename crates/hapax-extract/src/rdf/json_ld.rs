//! Measures what a JSON-LD document refers to and costs, before it is parsed.
//!
//! Contexts are the expensive part. A context may be a URL, which is never fetched, and a short
//! context can stand before each of a hundred thousand names.

use hapax_core::json::Json;
use oxrdf::{NamedOrBlankNode, Quad, Term};

use crate::ontology::document::DocumentPath;
use crate::ontology::error::OntologyError;
use crate::ontology::limits::{MAX_ID, MAX_WRITTEN_OUT};

/// How often definitions, or values, may be copied: a few seconds of work.
const MAX_COPIES: usize = 20_000_000;

/// The base for a document without one. A JSON-LD parser silently drops a relative IRI that has no
/// base, and every statement about it; this base makes such IRIs visible.
pub(super) const NO_BASE: &str = "no-base:/";

/// Refuses IRIs that were relative and had no base.
pub(super) fn refuse_relative(quad: &Quad) -> Result<(), OntologyError> {
    let subject = match &quad.subject {
        NamedOrBlankNode::NamedNode(node) => Some(node),
        NamedOrBlankNode::BlankNode(_) => None,
    };
    let object = match &quad.object {
        Term::NamedNode(node) => Some(node),
        Term::BlankNode(_) | Term::Literal(_) => None,
    };
    let mut iris = [subject, Some(&quad.predicate), object].into_iter().flatten();
    match iris.find_map(|iri| iri.as_str().strip_prefix(NO_BASE)) {
        None => Ok(()),
        Some(relative) => Err(OntologyError::Resource {
            iri: relative.chars().take(200).collect(),
            problem: "is relative, and there is no base".into(),
            remedy: "write the IRI in full, or give a base".into(),
        }),
    }
}

/// Refuses remote contexts, and documents that cost too much.
pub(super) fn measure(document: &Json) -> Result<(), OntologyError> {
    let mut cost = Cost::default();
    cost.visit(document, &DocumentPath::Root, 1)?;
    if cost.contexts.saturating_mul(cost.definitions) > MAX_COPIES {
        let what = "the definitions in contexts times the contexts";
        return Err(OntologyError::TooLarge { what, limit: MAX_COPIES });
    }
    if cost.copies > MAX_COPIES {
        let what = "the values, each times the depth that it stands in";
        return Err(OntologyError::TooLarge { what, limit: MAX_COPIES });
    }
    if cost.texts.saturating_mul(cost.longest) > MAX_WRITTEN_OUT {
        let what = "the texts times the longest definition in a context";
        return Err(OntologyError::TooLarge { what, limit: MAX_WRITTEN_OUT });
    }
    Ok(())
}

#[derive(Default)]
struct Cost {
    /// How many contexts there are.
    contexts: usize,
    /// How many definitions are in all of them.
    definitions: usize,
    /// The longest of these, in bytes.
    longest: usize,
    /// How many texts and names there are anywhere.
    texts: usize,
    /// How often values are copied: each once by every object and list around it.
    copies: usize,
}

impl Cost {
    fn visit(
        &mut self,
        json: &Json,
        place: &DocumentPath,
        depth: usize,
    ) -> Result<(), OntologyError> {
        self.copies += depth;
        match json {
            Json::String(_) => self.texts += 1,
            Json::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    self.visit(item, &DocumentPath::Item(place, at), depth + 1)?;
                }
            }
            Json::Object(members) => {
                for (name, value) in members {
                    let place = DocumentPath::Member(place, name);
                    self.texts += 1;
                    if name == "@context" {
                        self.context(value, &place)?;
                    }
                    self.visit(value, &place, depth + 1)?;
                }
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => {}
        }
        Ok(())
    }

    fn context(&mut self, json: &Json, place: &DocumentPath) -> Result<(), OntologyError> {
        self.contexts += 1;
        match json {
            Json::String(url) => Err(elsewhere(url, place)),
            Json::Array(contexts) => {
                let mut numbered = contexts.iter().enumerate();
                numbered
                    .try_for_each(|(at, json)| self.context(json, &DocumentPath::Item(place, at)))
            }
            Json::Object(definitions) => {
                self.definitions += definitions.len();
                definitions.iter().try_for_each(|(name, value)| {
                    let place = DocumentPath::Member(place, name);
                    match value {
                        Json::String(url) if name == "@import" => Err(elsewhere(url, &place)),
                        Json::String(text) => self.definition(text, &place),
                        value => match value.get("@id") {
                            Some(Json::String(text)) => self.definition(text, &place),
                            _ => Ok(()),
                        },
                    }
                })
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => Ok(()),
        }
    }

    fn definition(&mut self, text: &str, place: &DocumentPath) -> Result<(), OntologyError> {
        self.longest = self.longest.max(text.len());
        if text.len() <= MAX_ID {
            return Ok(());
        }
        Err(OntologyError::Invalid {
            pointer: place.pointer(),
            problem: format!("is longer than {MAX_ID} bytes"),
            remedy: "give a shorter IRI".into(),
        })
    }
}

fn elsewhere(url: &str, place: &DocumentPath) -> OntologyError {
    OntologyError::RemoteContext { pointer: place.pointer(), url: url.chars().take(200).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(document: &str) -> Result<(), OntologyError> {
        measure(&Json::parse(document.as_bytes()).expect("JSON"))
    }

    #[test]
    fn a_context_that_is_elsewhere_is_named_with_its_place() {
        for (document, pointer) in [
            (r#"{"@context": "https://schema.org"}"#, "/@context"),
            (r#"[{"@context": [{}, "https://schema.org"]}]"#, "/0/@context/1"),
            (r#"{"@context": {"@import": "https://schema.org"}}"#, "/@context/@import"),
            (r#"{"@context": {"a": {"@context": "https://schema.org"}}}"#, "/@context/a/@context"),
        ] {
            let error = measured(document).unwrap_err();
            assert_eq!(error.pointer(), Some(pointer));
            assert_eq!(
                error.to_string(),
                format!(
                    "{pointer}: the context \"https://schema.org\" is elsewhere and is not fetched; \
                     put what it says into the document in its place"
                )
            );
        }
        assert!(measured(r#"{"@context": [null, {"a": "https://schema.org/"}]}"#).is_ok());
    }

    #[test]
    fn contexts_that_would_be_copied_without_end_are_refused() {
        let definitions: Vec<_> = (0..5_000).map(|n| format!(r#""a{n}":"b:{n}""#)).collect();
        let nodes = vec![r#"{"@context":{}}"#; 5_000];
        let document = format!(
            r#"{{"@context":{{{}}},"@graph":[{}]}}"#,
            definitions.join(","),
            nodes.join(",")
        );
        assert!(measured(&document).unwrap_err().to_string().contains("times the contexts"));

        let (long, short) = ("x".repeat(2_000), vec![r#""a:b""#; 300_000].join(","));
        let document = format!(r#"{{"@context":{{"a":"{long}"}},"@graph":[{short}]}}"#);
        assert!(measured(&document).unwrap_err().to_string().contains("times the longest"));

        let (open, close) = (r#"{"a":"#.repeat(100), "}".repeat(100));
        let document = format!("{open}[{}1]{close}", "1,".repeat(300_000));
        assert!(measured(&document).unwrap_err().to_string().contains("times the depth"));

        let document = format!(r#"{{"@context":{{"a":"{}"}}}}"#, "x".repeat(MAX_ID + 1));
        assert_eq!(measured(&document).unwrap_err().pointer(), Some("/@context/a"));
    }
}
