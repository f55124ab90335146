//! Checks a model's answer against the chunk and the ontology.
//!
//! An answer is not trusted. An item that is not in the chunk, not in the ontology or not possible
//! between two such classes is refused by itself, with its fault.

use std::collections::HashMap;

use hapax_sinks::excerpt::excerpt;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::kinds::Kinds;
use super::places::{places, stands_in};
use crate::extractor::ChunkRequest;
use crate::graph::{Mention, Statement};
use crate::ontology::{Individual, Ontology, Property};

/// How much of an answer is quoted in a fault, in characters.
const REPEATED: usize = 80;

/// How long a name may be, in characters.
const NAME: usize = 300;

/// A checked answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reading<T> {
    /// The items that passed; none if the answer could not be read at all.
    pub(super) found: Option<Vec<T>>,
    /// The faults of the other items.
    pub(super) faults: Vec<String>,
}

impl<T> Reading<T> {
    pub(super) fn unreadable(why: String) -> Self {
        Self { found: None, faults: vec![why] }
    }
}

#[derive(Deserialize)]
struct Entities {
    entities: Vec<EntityItem>,
}

#[derive(Deserialize)]
struct EntityItem {
    class: String,
    #[serde(default)]
    name: Option<String>,
    quote: String,
    #[serde(default)]
    occurrence: Option<usize>,
}

#[derive(Deserialize)]
struct Relations {
    relations: Vec<RelationItem>,
}

#[derive(Deserialize)]
struct RelationItem {
    subject: usize,
    property: String,
    object: usize,
    quote: String,
}

/// The mentions that an answer names, in the order of the text.
pub(super) fn entities(answer: &str, request: &ChunkRequest<'_>) -> Reading<Mention> {
    let items = match read::<Entities>(answer) {
        Ok(Entities { entities }) => entities,
        Err(why) => return Reading::unreadable(why),
    };
    let (kinds, named) = (Kinds::of(request.ontology), Named::of(request.ontology));
    let (mut found, faults) = sift(items, |item| mention(&item, request, &kinds, &named), "entity");
    found.sort_by(|a, b| (a.start, a.end, &a.class).cmp(&(b.start, b.end, &b.class)));
    found.dedup_by(|a, b| (a.start, a.end, &a.class) == (b.start, b.end, &b.class));
    Reading { found: Some(found), faults }
}

fn mention(
    item: &EntityItem,
    request: &ChunkRequest<'_>,
    kinds: &Kinds<'_>,
    named: &Named<'_>,
) -> Result<Mention, String> {
    let (class, quote) = (&item.class, item.quote.trim());
    if !kinds.has(class) {
        return Err(format!("the class {:?} is not in the list", excerpt(class, REPEATED)));
    }
    let places = places(request.chunk, quote);
    if places.is_empty() {
        return Err(format!("the quote {:?} is not in the chunk", excerpt(quote, REPEATED)));
    }
    let nth = item.occurrence.unwrap_or(1);
    let Some(place) = nth.checked_sub(1).and_then(|nth| places.get(nth)) else {
        let (quote, times) = (excerpt(quote, REPEATED), places.len());
        return Err(format!("{quote:?} has no occurrence {nth}; it is there {times} times"));
    };
    let written = &request.chunk[place.clone()];
    let name = item.name.as_deref().map(str::trim).filter(|name| {
        let fits = !name.is_empty() && name.chars().count() <= NAME;
        fits && (stands_in(request.chunk, name) || stands_in(request.context, name))
    });
    let individual = item.name.as_deref().and_then(|name| named.get(name, class, kinds));
    let individual = individual.or_else(|| named.get(written, class, kinds));
    let label = individual.and_then(|individual| individual.label.as_deref());
    Ok(Mention {
        class: class.clone(),
        individual: individual.map(|individual| individual.id.clone()),
        name: label.or(name).unwrap_or(written).to_owned(),
        start: place.start,
        end: place.end,
    })
}

/// The individuals of an ontology by their names, in lower case.
struct Named<'a>(HashMap<String, Vec<&'a Individual>>);

impl<'a> Named<'a> {
    fn of(ontology: &'a Ontology) -> Self {
        let mut named: HashMap<String, Vec<&Individual>> = HashMap::new();
        for individual in &ontology.individuals {
            for name in individual.label.iter().chain(&individual.synonyms) {
                let same = named.entry(name.trim().to_lowercase()).or_default();
                if !same.iter().any(|other| other.id == individual.id) {
                    same.push(individual);
                }
            }
        }
        Self(named)
    }

    /// The individual with this name that may be of this class; none if there are several.
    fn get(&self, called: &str, class: &str, kinds: &Kinds<'_>) -> Option<&'a Individual> {
        let same = self.0.get(&called.trim().to_lowercase())?;
        let mut fitting = same.iter().filter(|individual| kinds.fits(class, &individual.types));
        let first = fitting.next()?;
        fitting.next().is_none().then_some(first)
    }
}

/// The relations that an answer states, in the order of the text.
pub(super) fn relations(
    answer: &str,
    request: &ChunkRequest<'_>,
    mentions: &[Mention],
    properties: &[&Property],
) -> Reading<Statement> {
    let items = match read::<Relations>(answer) {
        Ok(Relations { relations }) => relations,
        Err(why) => return Reading::unreadable(why),
    };
    let kinds = Kinds::of(request.ontology);
    let (mut found, faults) =
        sift(items, |item| statement(&item, request, mentions, properties, &kinds), "relation");
    let order = |statement: &Statement| {
        (statement.start, statement.end, statement.subject, statement.object)
    };
    found.sort_by(|a, b| order(a).cmp(&order(b)).then_with(|| a.property.cmp(&b.property)));
    found.dedup();
    Reading { found: Some(found), faults }
}

fn statement(
    item: &RelationItem,
    request: &ChunkRequest<'_>,
    mentions: &[Mention],
    properties: &[&Property],
    kinds: &Kinds<'_>,
) -> Result<Statement, String> {
    let property = properties.iter().find(|property| property.id == item.property);
    let Some(property) = property else {
        let property = excerpt(&item.property, REPEATED);
        return Err(format!("the property {property:?} is not in the list"));
    };
    let entity = |nth: usize| {
        let missing = || format!("there is no entity {nth}; there are {}", mentions.len());
        mentions.get(nth).ok_or_else(missing)
    };
    let (subject, object) = (entity(item.subject)?, entity(item.object)?);
    if item.subject == item.object {
        return Err(format!("entity {} is both subject and object", item.subject));
    }
    if !kinds.may_begin(property, &subject.class) {
        return Err(format!("a <{}> cannot be the subject of <{}>", subject.class, property.id));
    }
    if !kinds.fits(&object.class, &property.range) {
        return Err(format!("a <{}> cannot be the object of <{}>", object.class, property.id));
    }
    // Of several places, take the one that contains the most of the two mentions.
    let places = places(request.chunk, item.quote.trim());
    let holds = |mention: &Mention, place: &std::ops::Range<usize>| {
        usize::from(place.start <= mention.start && mention.end <= place.end)
    };
    let place = places.iter().enumerate().max_by_key(|(nth, place)| {
        (holds(subject, place) + holds(object, place), std::cmp::Reverse(*nth))
    });
    let Some((_, place)) = place else {
        let quote = excerpt(&item.quote, REPEATED);
        return Err(format!("the quote {quote:?} is not in the chunk"));
    };
    Ok(Statement {
        subject: item.subject,
        property: item.property.clone(),
        object: item.object,
        start: place.start,
        end: place.end,
    })
}

/// Reads the JSON in an answer, also where a model has put a fence or a remark around it.
fn read<T: DeserializeOwned>(answer: &str) -> Result<T, String> {
    let json = match (answer.find('{'), answer.rfind('}')) {
        (Some(start), Some(end)) if start < end => &answer[start..=end],
        _ if answer.trim().is_empty() => return Err("the answer is empty".into()),
        _ => return Err("the answer is not a JSON object".into()),
    };
    serde_json::from_str(json).map_err(|error| {
        let why = excerpt(&error.to_string(), 2 * REPEATED);
        match error.classify() {
            serde_json::error::Category::Data => format!("the answer has another shape: {why}"),
            _ => format!("the answer is not JSON: {why}"),
        }
    })
}

/// Splits items into those that pass the test and the faults of the others.
fn sift<I, T>(
    items: Vec<I>,
    test: impl Fn(I) -> Result<T, String>,
    what: &str,
) -> (Vec<T>, Vec<String>) {
    let (mut found, mut faults) = (Vec::new(), Vec::new());
    for (nth, item) in items.into_iter().enumerate() {
        match test(item) {
            Ok(fine) => found.push(fine),
            Err(fault) => faults.push(format!("{what} {nth}: {fault}")),
        }
    }
    (found, faults)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ontology::Class;
    use crate::params::Params;

    fn mentions(chunk: &str, context: &str, item: &str) -> Vec<Mention> {
        let thing = Class { id: "thing".into(), ..Class::default() };
        let individual = |id: &str, label: &str| Individual {
            id: id.into(),
            label: Some(label.into()),
            types: vec!["thing".into()],
            ..Individual::default()
        };
        let ontology = Ontology {
            classes: vec![thing],
            individuals: vec![
                individual("paris-1", "Paris"),
                individual("paris-2", "paris"),
                individual("rome", "Rome"),
            ],
            ..Ontology::default()
        };
        let request =
            ChunkRequest { chunk, context, ontology: &ontology, params: &Params::default() };
        let reading = entities(&format!("{{\"entities\": [{item}]}}"), &request);
        assert_eq!(reading.faults, Vec::<String>::new());
        reading.found.unwrap()
    }

    #[test]
    fn a_name_that_is_not_in_the_text_is_not_taken_over() {
        let item = r#"{"class": "thing", "name": "Ada Lovelace", "quote": "Ada"}"#;
        assert_eq!(mentions("Ada said so.", "", item)[0].name, "Ada");
        assert_eq!(mentions("Ada said so.", "Ada  Lovelace", item)[0].name, "Ada Lovelace");
    }

    #[test]
    fn an_individual_is_meant_only_where_there_is_one_of_that_name() {
        let item = |quote: &str| format!(r#"{{"class": "thing", "quote": "{quote}"}}"#);
        let found = mentions("From ROME to Paris.", "", &item("ROME"));
        assert_eq!((found[0].individual.as_deref(), &*found[0].name), (Some("rome"), "Rome"));
        assert_eq!(mentions("From ROME to Paris.", "", &item("Paris"))[0].individual, None);
    }

    #[test]
    fn the_same_mention_twice_is_one() {
        let item = r#"{"class": "thing", "quote": "Ada"}"#;
        assert_eq!(mentions("Ada said so.", "", &format!("{item}, {item}")).len(), 1);
    }
}
