//! The IRIs that the import understands.

pub(super) const RDF: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#";
pub(super) const RDFS: &str = "http://www.w3.org/2000/01/rdf-schema#";
pub(super) const OWL: &str = "http://www.w3.org/2002/07/owl#";
const SKOS: &str = "http://www.w3.org/2004/02/skos/core#";
const TERMS: &str = "http://purl.org/dc/terms/";
const ELEMENTS: &str = "http://purl.org/dc/elements/1.1/";

/// The predicates that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Type,
    SubClassOf,
    Domain,
    Range,
    UnionOf,
    First,
    Rest,
    PreferredLabel,
    Label,
    Synonym,
    Title,
}

impl Verb {
    pub(super) fn of(predicate: &str) -> Option<Self> {
        let known = [
            (RDF, "type", Self::Type),
            (RDF, "first", Self::First),
            (RDF, "rest", Self::Rest),
            (RDFS, "subClassOf", Self::SubClassOf),
            (RDFS, "domain", Self::Domain),
            (RDFS, "range", Self::Range),
            (RDFS, "label", Self::Label),
            (OWL, "unionOf", Self::UnionOf),
            (SKOS, "prefLabel", Self::PreferredLabel),
            (SKOS, "altLabel", Self::Synonym),
            (SKOS, "hiddenLabel", Self::Synonym),
            (TERMS, "title", Self::Title),
            (ELEMENTS, "title", Self::Title),
        ];
        let mut known = known.into_iter();
        known.find(|(space, name, _)| predicate.strip_prefix(space) == Some(name)).map(|it| it.2)
    }
}

/// The kinds of resource that are read, by their type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Ontology,
    Class,
    /// Between things.
    ObjectProperty,
    /// Of a thing and a value, such as a number.
    DatatypeProperty,
    /// Either of these.
    AnyProperty,
    /// About the ontology and not about the world.
    AnnotationProperty,
    Individual,
}

impl Kind {
    pub(super) fn of(class: &str) -> Option<Self> {
        if let Some(name) = class.strip_prefix(OWL) {
            return match name {
                "Ontology" => Some(Self::Ontology),
                "Class" => Some(Self::Class),
                "ObjectProperty"
                | "TransitiveProperty"
                | "SymmetricProperty"
                | "AsymmetricProperty"
                | "ReflexiveProperty"
                | "IrreflexiveProperty"
                | "InverseFunctionalProperty" => Some(Self::ObjectProperty),
                "DatatypeProperty" => Some(Self::DatatypeProperty),
                "FunctionalProperty" => Some(Self::AnyProperty),
                "AnnotationProperty" | "OntologyProperty" => Some(Self::AnnotationProperty),
                "NamedIndividual" => Some(Self::Individual),
                _ => None,
            };
        }
        if class.strip_prefix(RDFS) == Some("Class") {
            return Some(Self::Class);
        }
        (class.strip_prefix(RDF) == Some("Property")).then_some(Self::AnyProperty)
    }
}

/// Whether an IRI belongs to RDF, RDFS or OWL.
pub(super) fn is_of_a_language(iri: &str) -> bool {
    [RDF, RDFS, OWL].iter().any(|space| iri.starts_with(space))
}
