//! The statements of a document that an ontology is read from, by subject.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use oxrdf::{NamedNode, NamedOrBlankNode, Term};

use super::vocabulary::Verb;
use crate::ontology::error::OntologyError;
use crate::ontology::limits::{MAX_TRIPLES, MAX_WRITTEN_OUT};

/// An IRI, or `_:` and the name of a blank node, which no IRI can begin with.
pub(super) type Node = Rc<str>;

pub(super) fn is_iri(node: &str) -> bool {
    !node.starts_with("_:")
}

/// The object of a statement.
#[derive(Debug)]
pub(super) enum Object {
    Node(Node),
    Text { text: String, language: Option<String> },
}

/// The statements, by subject.
#[derive(Debug, Default)]
pub(super) struct Statements {
    subjects: HashMap<Node, Vec<(Verb, Object)>>,
    nodes: HashSet<Node>,
    triples: usize,
    written_out: usize,
}

impl Statements {
    /// Counts a statement, and keeps it if its predicate is read.
    pub(super) fn add(
        &mut self,
        subject: NamedOrBlankNode,
        predicate: &NamedNode,
        object: Term,
    ) -> Result<(), OntologyError> {
        self.count(&subject, predicate, &object)?;
        let Some(verb) = Verb::of(predicate.as_str()) else { return Ok(()) };
        let subject = match subject {
            NamedOrBlankNode::NamedNode(node) => self.node(node.as_str()),
            NamedOrBlankNode::BlankNode(node) => self.node(&format!("_:{}", node.as_str())),
        };
        let object = match object {
            Term::NamedNode(node) => Object::Node(self.node(node.as_str())),
            Term::BlankNode(node) => Object::Node(self.node(&format!("_:{}", node.as_str()))),
            Term::Literal(literal) => Object::Text {
                text: literal.value().to_owned(),
                language: literal.language().map(str::to_ascii_lowercase),
            },
        };
        self.subjects.entry(subject).or_default().push((verb, object));
        Ok(())
    }

    /// All subjects.
    pub(super) fn subjects(&self) -> impl Iterator<Item = &Node> {
        self.subjects.keys()
    }

    /// The nodes that are the objects of a subject with this verb.
    pub(super) fn nodes(&self, subject: &str, verb: Verb) -> impl Iterator<Item = &Node> {
        self.facts(subject).filter_map(move |(stated, object)| match object {
            Object::Node(node) if *stated == verb => Some(node),
            _ => None,
        })
    }

    /// Every text about a subject, with its verb and its language.
    pub(super) fn texts(&self, subject: &str) -> impl Iterator<Item = (Verb, &str, Option<&str>)> {
        self.facts(subject).filter_map(|(verb, object)| match object {
            Object::Text { text, language } => Some((*verb, text.as_str(), language.as_deref())),
            Object::Node(_) => None,
        })
    }

    fn facts(&self, subject: &str) -> impl Iterator<Item = &(Verb, Object)> {
        self.subjects.get(subject).into_iter().flatten()
    }

    /// Counts expanded terms: a short document can expand to a long one, because a prefix is
    /// written once and used often.
    fn count(
        &mut self,
        subject: &NamedOrBlankNode,
        predicate: &NamedNode,
        object: &Term,
    ) -> Result<(), OntologyError> {
        let subject = match subject {
            NamedOrBlankNode::NamedNode(node) => node.as_str().len(),
            NamedOrBlankNode::BlankNode(node) => node.as_str().len(),
        };
        let object = match object {
            Term::NamedNode(node) => node.as_str().len(),
            Term::BlankNode(node) => node.as_str().len(),
            Term::Literal(literal) => literal.value().len(),
        };
        self.triples += 1;
        self.written_out += subject + predicate.as_str().len() + object;
        if self.triples > MAX_TRIPLES {
            return Err(OntologyError::TooLarge { what: "the triples", limit: MAX_TRIPLES });
        }
        if self.written_out > MAX_WRITTEN_OUT {
            let what = "the bytes of all terms with their prefixes written out";
            return Err(OntologyError::TooLarge { what, limit: MAX_WRITTEN_OUT });
        }
        Ok(())
    }

    fn node(&mut self, name: &str) -> Node {
        if let Some(node) = self.nodes.get(name) {
            return Rc::clone(node);
        }
        let node: Node = Rc::from(name);
        self.nodes.insert(Rc::clone(&node));
        node
    }
}
