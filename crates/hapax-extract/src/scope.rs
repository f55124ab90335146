//! Decides which properties can hold between the things that a chunk mentions.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::graph::Mention;
use crate::kinds::{Ends, Kinds};
use crate::ontology::{Ontology, Property};

/// An ontology, prepared for finding the properties that a chunk may state.
#[derive(Debug)]
pub struct PropertyScope {
    ontology: Arc<Ontology>,
    kinds: Kinds,
    ends: Vec<Ends>,
    /// The index of each individual in the ontology.
    named: HashMap<String, usize>,
}

impl PropertyScope {
    /// Prepares an ontology.
    pub fn new(ontology: &Arc<Ontology>) -> Self {
        let kinds = Kinds::new(ontology);
        let ends = Ends::all(ontology, &kinds);
        let named = ontology.individuals.iter().enumerate();
        let named = named.map(|(at, named)| (named.id.clone(), at)).collect();
        Self { ontology: ontology.clone(), kinds, ends, named }
    }

    /// The properties that can hold between things of these classes, in the ontology's order. A
    /// class stands for everything that it is a kind of.
    pub fn among(&self, classes: &BTreeSet<&str>) -> Vec<&Property> {
        if classes.is_empty() {
            return Vec::new();
        }
        let numbers = classes.iter().filter_map(|class| self.kinds.number(class));
        let mut above: Vec<u32> =
            numbers.flat_map(|class| self.kinds.all_above(class)).copied().collect();
        above.sort_unstable();
        above.dedup();
        let fits = |ends: &Ends| ends.subjects.admits(&above) && ends.objects.admits(&above);
        let properties = self.ontology.properties.iter().zip(&self.ends);
        properties.filter(|(_, ends)| fits(ends)).map(|(property, _)| property).collect()
    }

    /// The properties that can hold between these mentions. An individual counts for every class
    /// that the ontology gives it.
    pub fn between(&self, mentions: &[Mention]) -> Vec<&Property> {
        let mut classes: BTreeSet<&str> = BTreeSet::new();
        for mention in mentions {
            classes.insert(&mention.class);
            let at = mention.individual.as_deref().and_then(|iri| self.named.get(iri));
            let types = at.map(|at| self.ontology.individuals[*at].types.iter());
            classes.extend(types.into_iter().flatten().map(String::as_str));
        }
        self.among(&classes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ontology() -> Ontology {
        serde_json::from_value(serde_json::json!({
            "classes": [
                {"id": "place", "properties": ["near"]},
                {"id": "river", "subClassOf": ["place", "stream"]},
                {"id": "stream", "subClassOf": ["river"]},
                {"id": "city", "subClassOf": ["place"]},
                {"id": "person"},
            ],
            "properties": [
                {"id": "flows", "domain": ["river"], "range": ["city"]},
                {"id": "knows", "domain": ["person"], "range": ["person"]},
                {"id": "near"},
                {"id": "any"},
            ],
            "individuals": [{"id": "thames", "type": ["place", "river"]}],
        }))
        .expect("an ontology")
    }

    fn ids(classes: &[&str]) -> Vec<String> {
        let ontology = Arc::new(ontology());
        let scope = PropertyScope::new(&ontology);
        let found = scope.among(&classes.iter().copied().collect());
        found.into_iter().map(|property| property.id.clone()).collect()
    }

    /// Proves X-8.
    #[test]
    fn a_property_is_in_scope_if_both_its_ends_are_there() {
        assert_eq!(ids(&["river", "city"]), ["flows", "near", "any"]);
        assert_eq!(ids(&["person"]), ["knows", "any"]);
        assert_eq!(ids(&["river", "person"]), ["knows", "near", "any"]);
    }

    #[test]
    fn a_class_counts_for_what_it_is_a_kind_of_even_in_a_circle() {
        assert_eq!(ids(&["stream", "city"]), ["flows", "near", "any"]);
        assert_eq!(ids(&["place"]), ["near", "any"]);
    }

    #[test]
    fn nothing_is_in_scope_where_nothing_is_mentioned() {
        assert_eq!(ids(&[]), [""; 0]);
    }

    #[test]
    fn a_property_of_a_class_of_its_own_has_that_class_as_domain() {
        assert_eq!(ids(&["city"]), ["near", "any"]);
        assert_eq!(ids(&["other"]), ["any"]);
    }

    #[test]
    fn an_individual_counts_for_all_of_its_classes() {
        let scope = PropertyScope::new(&Arc::new(ontology()));
        let mention = |class: &str, individual: Option<&str>| Mention {
            class: class.to_owned(),
            individual: individual.map(str::to_owned),
            name: String::new(),
            start: 0,
            end: 0,
        };
        let mentions = [mention("place", Some("thames")), mention("city", None)];
        let found = scope.between(&mentions);
        assert!(found.iter().any(|property| property.id == "flows"));
    }
}
