//! Statements about resources, made once and written in two ways: JSON-LD and Turtle.
//!
//! Every resource has a name, none is blank, so two graphs are the same if their statements are.

use std::fmt::Write as _;

use hapax::Timestamp;
use hapax::json::Json;

use super::{names, owner};
use crate::run::Run;
use hapax::document::Object;

/// The vocabularies in use, by prefix.
pub(crate) const VOCABULARIES: [(&str, &str); 9] = [
    ("dcat", "http://www.w3.org/ns/dcat#"),
    ("dcterms", "http://purl.org/dc/terms/"),
    ("foaf", "http://xmlns.com/foaf/0.1/"),
    ("hapax", "urn:hapax:ns:"),
    ("prov", "http://www.w3.org/ns/prov#"),
    ("rdf", "http://www.w3.org/1999/02/22-rdf-syntax-ns#"),
    ("rdfs", "http://www.w3.org/2000/01/rdf-schema#"),
    ("spdx", "http://spdx.org/rdf/terms#"),
    ("xsd", "http://www.w3.org/2001/XMLSchema#"),
];

/// The object of a statement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Term {
    /// A resource, by an IRI that needs no escaping.
    Iri(String),
    /// A word of a vocabulary.
    Word(&'static str),
    /// A text.
    Text(String),
    /// A value of a type.
    Typed(String, &'static str),
}

impl Term {
    pub(crate) fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    pub(crate) fn time(at: Timestamp) -> Self {
        Self::Typed(names::time(at), "xsd:dateTime")
    }

    fn turtle(&self) -> String {
        match self {
            Self::Iri(iri) => format!("<{iri}>"),
            Self::Word(word) => (*word).to_owned(),
            Self::Text(text) => quoted(text),
            Self::Typed(text, kind) => format!("{}^^{kind}", quoted(text)),
        }
    }

    fn json(&self) -> Json {
        match self {
            Self::Iri(iri) => Json::object([("@id", Json::text(iri))]),
            Self::Word(word) => Json::object([("@id", Json::text(word))]),
            Self::Text(text) => Json::text(text),
            Self::Typed(text, kind) => {
                Json::object([("@type", Json::text(kind)), ("@value", Json::text(text))])
            }
        }
    }
}

/// Resources in the order in which they came up, and the statements about each.
#[derive(Default)]
pub(crate) struct Graph(Vec<(String, Vec<(String, Term)>)>);

impl Graph {
    /// Adds a statement about a resource, unless it is there already.
    pub(crate) fn say(&mut self, subject: &str, predicate: &str, object: Term) {
        let at = self.0.iter().position(|(name, _)| name == subject).unwrap_or_else(|| {
            self.0.push((subject.to_owned(), Vec::new()));
            self.0.len() - 1
        });
        let statement = (predicate.to_owned(), object);
        if !self.0[at].1.contains(&statement) {
            self.0[at].1.push(statement);
        }
    }

    /// Links a resource to the documents about it.
    pub(crate) fn documents(&mut self, subject: &str, documents: &[(&str, String)]) {
        for (kind, name) in documents {
            self.say(subject, &format!("hapax:{kind}"), Term::Iri(name.clone()));
        }
    }

    /// Adds the owner of a dataset of the run as an agent, and returns its IRI.
    pub(crate) fn agent(&mut self, run: &Run, dataset: &str) -> Option<Term> {
        let owner = owner(run, dataset)?;
        let agent = names::agent(owner);
        for kind in ["prov:Agent", "foaf:Agent"] {
            self.say(&agent, TYPE, Term::Word(kind));
        }
        self.say(&agent, "foaf:name", Term::text(owner));
        Some(Term::Iri(agent))
    }

    pub(crate) fn json_ld(&self) -> Json {
        let context = VOCABULARIES
            .iter()
            .fold(Object::default(), |object, (name, iri)| object.text(name, *iri));
        let nodes = self.0.iter().map(|(subject, statements)| node(subject, statements)).collect();
        Json::object([("@context", context.json()), ("@graph", Json::Array(nodes))])
    }

    pub(crate) fn turtle(&self) -> String {
        let mut out = String::new();
        for (name, iri) in VOCABULARIES {
            let _ = writeln!(out, "@prefix {name}: <{iri}> .");
        }
        for (subject, statements) in &self.0 {
            let lines = statements.iter().map(|(p, o)| format!("    {p} {}", o.turtle()));
            let lines = lines.collect::<Vec<_>>().join(" ;\n");
            let _ = write!(out, "\n<{subject}>\n{lines} .\n");
        }
        out
    }
}

/// The predicate for the type of a resource.
pub(crate) const TYPE: &str = "rdf:type";

fn node(subject: &str, statements: &[(String, Term)]) -> Json {
    let mut members: Vec<(String, Vec<Json>)> = Vec::new();
    for (predicate, object) in statements {
        let (name, value) = match object {
            Term::Word(word) if predicate == TYPE => ("@type", Json::text(word)),
            _ => (predicate.as_str(), object.json()),
        };
        match members.iter_mut().find(|(known, _)| known == name) {
            Some((_, values)) => values.push(value),
            None => members.push((name.to_owned(), vec![value])),
        }
    }
    let node = Object::default().text("@id", subject);
    members.into_iter().fold(node, |node, (name, values)| node.list(&name, values)).json()
}

fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        let _ = match c {
            '"' | '\\' => write!(out, "\\{c}"),
            c if c.is_control() => write!(out, "\\u{:04X}", u32::from(c)),
            c => write!(out, "{c}"),
        };
    }
    out.push('"');
    out
}
