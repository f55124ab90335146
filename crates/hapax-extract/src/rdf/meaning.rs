//! Turns the statements of a document into an ontology.
//!
//! A node without an IRI is not a class, a property or an individual; restrictions on what a class
//! may have are therefore skipped. Several domains are read as any of them, as authors mean it,
//! and not as all of them at once, as RDFS does.

use std::collections::HashSet;

use super::statements::{Node, Statements, is_iri};
use super::vocabulary::{Kind, OWL, RDF, RDFS, Verb, is_of_a_language};
use crate::ontology::error::OntologyError;
use crate::ontology::limits::MAX_UNION_STEPS;
use crate::ontology::{Class, Individual, Ontology, Property};

/// The ontology of a document, in no particular order.
pub(super) fn ontology(
    statements: &Statements,
    id: Option<&str>,
) -> Result<Ontology, OntologyError> {
    let id = match id {
        Some(id) => id.to_owned(),
        None => own_id(statements)?,
    };
    let classes = class_ids(statements);
    let named = || statements.subjects().filter(|subject| is_iri(subject));
    let mut steps = 0;
    let properties = named().filter_map(|id| property(statements, id, &mut steps).transpose());
    Ok(Ontology {
        label: title(statements, &id),
        classes: classes.iter().map(|class| self::class(statements, class)).collect(),
        properties: properties.collect::<Result<_, _>>()?,
        individuals: named().filter_map(|id| individual(statements, id, &classes)).collect(),
        id,
    })
}

fn own_id(statements: &Statements) -> Result<String, OntologyError> {
    let is_ontology = |subject: &&Node| is_iri(subject) && is(statements, subject, Kind::Ontology);
    let mut ids: Vec<String> =
        statements.subjects().filter(is_ontology).map(|id| id.to_string()).collect();
    ids.sort();
    match ids.len() {
        0 => Err(OntologyError::NoId),
        1 => Ok(ids.remove(0)),
        _ => Err(OntologyError::SeveralIds { ids }),
    }
}

fn is(statements: &Statements, subject: &str, kind: Kind) -> bool {
    statements.nodes(subject, Verb::Type).any(|class| Kind::of(class) == Some(kind))
}

/// Everything that is declared a class, or a kind of something, since only a class can be.
fn class_ids(statements: &Statements) -> HashSet<&Node> {
    let is_class = |subject: &&Node| {
        is_iri(subject)
            && (is(statements, subject, Kind::Class)
                || statements.nodes(subject, Verb::SubClassOf).next().is_some())
    };
    statements.subjects().filter(is_class).collect()
}

fn class(statements: &Statements, id: &Node) -> Class {
    let above = statements.nodes(id, Verb::SubClassOf);
    let above = above.filter(|class| is_iri(class) && *class != id && !is_everything(class));
    let (label, synonyms) = names(statements, id);
    Class {
        id: id.to_string(),
        label,
        synonyms,
        sub_class_of: above.map(|class| class.to_string()).collect(),
        properties: Vec::new(),
    }
}

fn is_everything(class: &str) -> bool {
    class.strip_prefix(OWL) == Some("Thing") || class.strip_prefix(RDFS) == Some("Resource")
}

fn property(
    statements: &Statements,
    id: &Node,
    steps: &mut usize,
) -> Result<Option<Property>, OntologyError> {
    let is = |kind| is(statements, id, kind);
    let about_the_world = is(Kind::ObjectProperty)
        || is(Kind::DatatypeProperty)
        || (is(Kind::AnyProperty) && !is(Kind::AnnotationProperty));
    if !about_the_world {
        return Ok(None);
    }
    let domain = members(statements, id, Verb::Domain, steps)?;
    let mut range = members(statements, id, Verb::Range, steps)?;
    if range.is_empty() && is(Kind::DatatypeProperty) {
        // An empty range would admit things, which are no values.
        range.push(format!("{RDFS}Literal"));
    }
    let (label, synonyms) = names(statements, id);
    Ok(Some(Property { id: id.to_string(), label, synonyms, domain, range }))
}

/// The classes that are a property's domain or range, with unions expanded. A union has no IRI,
/// only a list of its members, each of which may be a union again. It may also be circular, or
/// shared by many properties, so each step counts towards a limit.
fn members(
    statements: &Statements,
    property: &str,
    verb: Verb,
    steps: &mut usize,
) -> Result<Vec<String>, OntologyError> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut pending: Vec<&Node> = statements.nodes(property, verb).collect();
    while let Some(node) = pending.pop() {
        *steps += 1;
        if *steps > MAX_UNION_STEPS {
            let what = "the members of all unions, counted once per use";
            return Err(OntologyError::TooLarge { what, limit: MAX_UNION_STEPS });
        }
        if !seen.insert(node) || node.strip_prefix(RDF) == Some("nil") {
            continue;
        }
        if is_iri(node) {
            found.push(node.to_string());
            continue;
        }
        for verb in [Verb::UnionOf, Verb::First, Verb::Rest] {
            pending.extend(statements.nodes(node, verb));
        }
    }
    Ok(found)
}

fn individual(statements: &Statements, id: &Node, classes: &HashSet<&Node>) -> Option<Individual> {
    let types: Vec<&Node> = statements
        .nodes(id, Verb::Type)
        .filter(|class| is_iri(class) && !is_of_a_language(class))
        .collect();
    let declared = is(statements, id, Kind::Individual);
    if !declared && !types.iter().any(|class| classes.contains(class)) {
        return None;
    }
    let (label, synonyms) = names(statements, id);
    let types = types.into_iter().map(|class| class.to_string()).collect();
    Some(Individual { id: id.to_string(), label, synonyms, types })
}

fn title(statements: &Statements, id: &str) -> Option<String> {
    let title = |verb| matches!(verb, Verb::Title | Verb::Label | Verb::PreferredLabel);
    let mut titles: Vec<_> = statements.texts(id).filter(|text| title(text.0)).collect();
    titles.sort_by_key(rank);
    titles.into_iter().map(|(_, text, _)| on_one_line(text)).find(|text| !text.is_empty())
}

/// The best label, and all other names.
fn names(statements: &Statements, id: &str) -> (Option<String>, Vec<String>) {
    let mut texts: Vec<_> = statements.texts(id).filter(|text| text.0 != Verb::Title).collect();
    texts.sort_by_key(rank);
    let mut label = None;
    let mut synonyms = Vec::new();
    for (verb, text, _) in texts {
        let text = on_one_line(text);
        let is_label = matches!(verb, Verb::Label | Verb::PreferredLabel);
        if is_label && label.is_none() && !text.is_empty() {
            label = Some(text);
        } else if !text.is_empty() {
            synonyms.push(text);
        }
    }
    synonyms.retain(|synonym| Some(synonym) != label.as_ref());
    (label, synonyms)
}

/// Sorts names: English, then no language, then varieties of English, then other languages. Within
/// a language a preferred label comes first, then a label, then the others.
fn rank<'a>(
    (verb, text, language): &(Verb, &'a str, Option<&'a str>),
) -> (u8, Option<&'a str>, u8, &'a str) {
    let (language_rank, language) = match *language {
        Some("en") => (0, None),
        None => (1, None),
        Some(language) if language.starts_with("en-") => (2, Some(language)),
        other => (3, other),
    };
    let verb = match verb {
        Verb::PreferredLabel => 0,
        Verb::Label => 1,
        _ => 2,
    };
    (language_rank, language, verb, text)
}

/// The indentation of a document is not part of a name.
fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
