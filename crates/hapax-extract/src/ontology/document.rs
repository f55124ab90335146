//! Reads an ontology's JSON form strictly: an unknown or mistyped member is refused, with its
//! place.

use std::collections::HashMap;

use hapax_core::json::Json;

use super::error::{OntologyError, Position};
use super::limits::{
    MAX_CLASSES, MAX_DOCUMENT, MAX_ID, MAX_INDIVIDUALS, MAX_LABEL, MAX_PROPERTIES, MAX_REFERENCES,
    MAX_SYNONYMS,
};
use super::{Class, Individual, Ontology, Property};
use crate::rdf::Syntax;

impl Ontology {
    /// Reads the JSON form. An error names the place by a JSON pointer, the problem and the remedy.
    ///
    /// ```
    /// use hapax_extract::Ontology;
    ///
    /// let football = br#"{"id": "https://example.org/football", "classes": [{"id": ""}]}"#;
    /// let error = Ontology::parse_json(football).unwrap_err();
    /// assert_eq!(error.pointer(), Some("/classes/0/id"));
    /// ```
    pub fn parse_json(bytes: &[u8]) -> Result<Self, OntologyError> {
        read(bytes, None)
    }
}

/// Reads and checks. A given id replaces the document's own.
pub(crate) fn read(bytes: &[u8], id: Option<&str>) -> Result<Ontology, OntologyError> {
    if bytes.len() > MAX_DOCUMENT {
        return Err(OntologyError::TooLarge { what: "a document's bytes", limit: MAX_DOCUMENT });
    }
    let json = parse(bytes, Syntax::Json)?;
    let mut ontology = ontology(&json, &DocumentPath::Root)?;
    if let Some(id) = id {
        id.clone_into(&mut ontology.id);
    }
    check(&ontology).map_err(Flaw::in_json)?;
    Ok(ontology)
}

pub(crate) fn parse(bytes: &[u8], syntax: Syntax) -> Result<Json, OntologyError> {
    Json::parse(bytes).map_err(|error| {
        let at = Position::of(error.at.offset, bytes);
        OntologyError::syntax(syntax, Some(at), error.problem)
    })
}

/// The path from the document to a part of it. It is written out as a JSON pointer only for an
/// error.
pub(crate) enum DocumentPath<'a> {
    Root,
    Member(&'a DocumentPath<'a>, &'a str),
    Item(&'a DocumentPath<'a>, usize),
}

impl DocumentPath<'_> {
    pub(crate) fn pointer(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Member(parent, name) => {
                format!("{}/{}", parent.pointer(), name.replace('~', "~0").replace('/', "~1"))
            }
            Self::Item(parent, index) => format!("{}/{index}", parent.pointer()),
        }
    }

    fn refuse(&self, problem: impl Into<String>, remedy: impl Into<String>) -> OntologyError {
        let (problem, remedy) = (problem.into(), remedy.into());
        OntologyError::Invalid { pointer: self.pointer(), problem, remedy }
    }
}

type Read<T> = Result<T, OntologyError>;

fn ontology(json: &Json, place: &DocumentPath) -> Read<Ontology> {
    let mut ontology = Ontology::default();
    each_member(json, place, |name, value, place| {
        match name {
            "id" => ontology.id = text(value, place)?,
            "label" => ontology.label = Some(text(value, place)?),
            "classes" => ontology.classes = list(value, place, class)?,
            "properties" => ontology.properties = list(value, place, property)?,
            "individuals" => ontology.individuals = list(value, place, individual)?,
            _ => return Err(unknown(place, "id, label, classes, properties and individuals")),
        }
        Ok(())
    })?;
    Ok(ontology)
}

fn class(json: &Json, place: &DocumentPath) -> Read<Class> {
    let mut class = Class::default();
    each_member(json, place, |name, value, place| {
        match name {
            "id" => class.id = text(value, place)?,
            "label" => class.label = Some(text(value, place)?),
            "synonyms" => class.synonyms = list(value, place, text)?,
            "subClassOf" => class.sub_class_of = list(value, place, text)?,
            "properties" => class.properties = list(value, place, text)?,
            _ => return Err(unknown(place, "id, label, synonyms, subClassOf and properties")),
        }
        Ok(())
    })?;
    Ok(class)
}

fn property(json: &Json, place: &DocumentPath) -> Read<Property> {
    let mut property = Property::default();
    each_member(json, place, |name, value, place| {
        match name {
            "id" => property.id = text(value, place)?,
            "label" => property.label = Some(text(value, place)?),
            "synonyms" => property.synonyms = list(value, place, text)?,
            "domain" => property.domain = list(value, place, text)?,
            "range" => property.range = list(value, place, text)?,
            _ => return Err(unknown(place, "id, label, synonyms, domain and range")),
        }
        Ok(())
    })?;
    Ok(property)
}

fn individual(json: &Json, place: &DocumentPath) -> Read<Individual> {
    let mut individual = Individual::default();
    each_member(json, place, |name, value, place| {
        match name {
            "id" => individual.id = text(value, place)?,
            "label" => individual.label = Some(text(value, place)?),
            "synonyms" => individual.synonyms = list(value, place, text)?,
            "type" => individual.types = list(value, place, text)?,
            _ => return Err(unknown(place, "id, label, synonyms and type")),
        }
        Ok(())
    })?;
    Ok(individual)
}

fn each_member(
    json: &Json,
    place: &DocumentPath,
    mut read: impl FnMut(&str, &Json, &DocumentPath) -> Read<()>,
) -> Read<()> {
    let Json::Object(members) = json else {
        return Err(mistaken(place, json, "an object", "write {…} here"));
    };
    members
        .iter()
        .try_for_each(|(name, value)| read(name, value, &DocumentPath::Member(place, name)))
}

fn list<T>(
    json: &Json,
    place: &DocumentPath,
    read: fn(&Json, &DocumentPath) -> Read<T>,
) -> Read<Vec<T>> {
    let Json::Array(items) = json else {
        return Err(mistaken(place, json, "a list", "write […] here, or leave it out"));
    };
    items.iter().enumerate().map(|(at, item)| read(item, &DocumentPath::Item(place, at))).collect()
}

fn text(json: &Json, place: &DocumentPath) -> Read<String> {
    let text = json.as_str().map(str::to_owned);
    text.ok_or_else(|| mistaken(place, json, "a text", "write it in quotes, or leave it out"))
}

fn unknown(place: &DocumentPath, known: &str) -> OntologyError {
    place.refuse("is not known", format!("remove it; there are {known}"))
}

fn mistaken(place: &DocumentPath, json: &Json, wanted: &str, remedy: &str) -> OntologyError {
    let found = match json {
        Json::Null => "null",
        Json::Bool(_) => "true or false",
        Json::Number(_) => "a number",
        Json::String(_) => "a text",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    };
    place.refuse(format!("is {found} and must be {wanted}"), remedy)
}

/// A defect of an ontology.
#[derive(Debug)]
pub(crate) struct Flaw {
    pointer: String,
    /// The id of the class, property or individual that has it, or the ontology's.
    owner: String,
    problem: String,
    remedy: &'static str,
}

impl Flaw {
    pub(crate) fn in_json(self) -> OntologyError {
        let Self { pointer, owner: _, problem, remedy } = self;
        OntologyError::Invalid { pointer, problem, remedy: remedy.into() }
    }

    /// An RDF document has no JSON pointers, but the thing has an IRI.
    pub(crate) fn in_rdf(self) -> OntologyError {
        let Self { pointer: _, owner, problem, remedy } = self;
        OntologyError::Resource { iri: owner, problem, remedy: remedy.into() }
    }
}

/// Checks the rules that hold for every ontology, in whatever syntax it was written.
pub(crate) fn check(ontology: &Ontology) -> Result<(), Flaw> {
    let Ontology { id, label, classes, properties, individuals } = ontology;
    let own = Owner { list: "", index: 0, id };
    own.id(id, "id")?;
    own.label(label.as_deref())?;
    own.count(classes, MAX_CLASSES, "classes")?;
    own.count(properties, MAX_PROPERTIES, "properties")?;
    own.count(individuals, MAX_INDIVIDUALS, "individuals")?;
    distinct("classes", classes.iter().map(|class| class.id.as_str()))?;
    distinct("properties", properties.iter().map(|property| property.id.as_str()))?;
    distinct("individuals", individuals.iter().map(|individual| individual.id.as_str()))?;
    for (index, Class { id, label, synonyms, sub_class_of, properties }) in
        classes.iter().enumerate()
    {
        let owner = Owner { list: "/classes", index, id };
        owner.named(label.as_deref(), synonyms)?;
        owner.references(sub_class_of, "subClassOf")?;
        owner.references(properties, "properties")?;
    }
    for (index, Property { id, label, synonyms, domain, range }) in properties.iter().enumerate() {
        let owner = Owner { list: "/properties", index, id };
        owner.named(label.as_deref(), synonyms)?;
        owner.references(domain, "domain")?;
        owner.references(range, "range")?;
    }
    for (index, Individual { id, label, synonyms, types }) in individuals.iter().enumerate() {
        let owner = Owner { list: "/individuals", index, id };
        owner.named(label.as_deref(), synonyms)?;
        owner.references(types, "type")?;
    }
    Ok(())
}

fn distinct<'a>(
    list: &'static str,
    ids: impl ExactSizeIterator<Item = &'a str>,
) -> Result<(), Flaw> {
    let mut seen: HashMap<&str, usize> = HashMap::with_capacity(ids.len());
    for (index, id) in ids.enumerate() {
        if let Some(first) = seen.insert(id, index) {
            return Err(Flaw {
                pointer: format!("/{list}/{index}/id"),
                owner: id.to_owned(),
                problem: format!("is the same as /{list}/{first}/id"),
                remedy: "make one of the two, or give it an id of its own",
            });
        }
    }
    Ok(())
}

/// The class, property, individual or ontology whose parts are checked.
struct Owner<'a> {
    list: &'static str,
    index: usize,
    id: &'a str,
}

impl Owner<'_> {
    fn named(&self, label: Option<&str>, synonyms: &[String]) -> Result<(), Flaw> {
        self.id(self.id, "id")?;
        self.label(label)?;
        self.count(synonyms, MAX_SYNONYMS, "synonyms")?;
        let mut numbered = synonyms.iter().enumerate();
        numbered.try_for_each(|(at, synonym)| self.name(synonym, || format!("synonyms/{at}")))
    }

    fn label(&self, label: Option<&str>) -> Result<(), Flaw> {
        label.map_or(Ok(()), |label| self.name(label, || "label".into()))
    }

    fn references(&self, ids: &[String], member: &str) -> Result<(), Flaw> {
        self.count(ids, MAX_REFERENCES, member)?;
        let mut numbered = ids.iter().enumerate();
        numbered.try_for_each(|(at, id)| self.reference(id, || format!("{member}/{at}")))
    }

    fn id(&self, id: &str, member: &str) -> Result<(), Flaw> {
        self.reference(id, || member.to_owned())
    }

    fn reference(&self, id: &str, member: impl Fn() -> String) -> Result<(), Flaw> {
        if id.trim().is_empty() {
            return Err(self.flaw(&member(), "is missing or empty", "give its IRI"));
        }
        if id.len() > MAX_ID {
            let problem = format!("is longer than {MAX_ID} bytes");
            return Err(self.flaw(&member(), problem, "give a shorter IRI"));
        }
        if id.chars().any(char::is_control) {
            let problem = "has a control character, such as a line break";
            return Err(self.flaw(&member(), problem, "remove it"));
        }
        Ok(())
    }

    fn name(&self, name: &str, member: impl Fn() -> String) -> Result<(), Flaw> {
        if name.trim().is_empty() {
            return Err(self.flaw(&member(), "is empty", "leave it out"));
        }
        if name.chars().nth(MAX_LABEL).is_some() {
            let problem = format!("is longer than {MAX_LABEL} characters");
            return Err(self.flaw(&member(), problem, "give the name only, not its explanation"));
        }
        Ok(())
    }

    fn count<T>(&self, items: &[T], most: usize, member: &str) -> Result<(), Flaw> {
        if items.len() <= most {
            return Ok(());
        }
        let problem = format!("has {} {member}, and at most {most} can be read", items.len());
        Err(self.flaw(member, problem, "leave out what is not needed, or split the ontology"))
    }

    fn flaw(&self, member: &str, problem: impl Into<String>, remedy: &'static str) -> Flaw {
        let pointer = match self.list {
            "" => format!("/{member}"),
            list => format!("{list}/{}/{member}", self.index),
        };
        // An IRI that is too long is not repeated in full.
        let owner = self.id.chars().take(200).collect();
        Flaw { pointer, owner, problem: problem.into(), remedy }
    }
}
