//! The subclass relation of an ontology, over any number of steps.
//!
//! Classes that are kinds of each other in a circle are all kinds of each other; no function here
//! loops in such a circle.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use crate::ontology::{Ontology, Property};

/// The class that every class is a kind of.
pub(crate) const THING: &str = "http://www.w3.org/2002/07/owl#Thing";

const RESOURCE: &str = "http://www.w3.org/2000/01/rdf-schema#Resource";

/// The classes of an ontology, by number, and what each is a kind of.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    numbers: HashMap<String, u32>,
    above: Vec<Vec<u32>>,
    /// The superclasses of a class, itself included, in ascending order; computed on first use.
    all_above: Vec<OnceLock<Vec<u32>>>,
}

impl Kinds {
    pub(crate) fn new(ontology: &Ontology) -> Self {
        let mut kinds = Self::default();
        for class in &ontology.classes {
            let number = kinds.add(&class.id);
            for above in &class.sub_class_of {
                let above = kinds.add(above);
                kinds.above[number as usize].push(above);
            }
        }
        for property in &ontology.properties {
            for class in property.domain.iter().chain(&property.range) {
                kinds.add(class);
            }
        }
        kinds
    }

    fn add(&mut self, class: &str) -> u32 {
        if let Some(number) = self.numbers.get(class) {
            return *number;
        }
        let number = self.above.len() as u32;
        self.numbers.insert(class.to_owned(), number);
        self.above.push(Vec::new());
        self.all_above.push(OnceLock::new());
        number
    }

    /// The number of a class, if the ontology has it.
    pub(crate) fn number(&self, class: &str) -> Option<u32> {
        self.numbers.get(class).copied()
    }

    /// The superclasses of a class, itself included, in ascending order.
    pub(crate) fn all_above(&self, class: u32) -> &[u32] {
        self.all_above[class as usize].get_or_init(|| {
            let mut seen = HashSet::from([class]);
            let mut all = vec![class];
            let mut next = 0;
            while let Some(&class) = all.get(next) {
                next += 1;
                let above = self.above[class as usize].iter();
                all.extend(above.filter(|&&above| seen.insert(above)));
            }
            all.sort_unstable();
            all
        })
    }

    /// Whether the first class is the second or a kind of it.
    pub(crate) fn is_a(&self, class: &str, other: &str) -> bool {
        class == other
            || is_everything(other)
            || self
                .number(class)
                .zip(self.number(other))
                .is_some_and(|(class, other)| self.all_above(class).binary_search(&other).is_ok())
    }

    /// Whether one of the two is a kind of the other.
    pub(crate) fn related(&self, one: &str, other: &str) -> bool {
        self.is_a(one, other) || self.is_a(other, one)
    }

    /// The class that is a kind of the most of the others; of several, the one whose IRI comes
    /// first.
    pub(crate) fn narrowest<'c>(&self, classes: &'c [String]) -> Option<&'c str> {
        let others = |class: &str| classes.iter().filter(|other| self.is_a(class, other)).count();
        let narrower = |class: &&'c str| (Reverse(others(class)), *class);
        classes.iter().map(String::as_str).min_by_key(narrower)
    }
}

fn is_everything(class: &str) -> bool {
    class == THING || class == RESOURCE
}

/// The classes that a property may hold between.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) subjects: Admitted,
    pub(crate) objects: Admitted,
}

/// The classes that may stand at one end of a property; none, if any class may.
#[derive(Debug)]
pub(crate) struct Admitted(Option<Vec<u32>>);

impl Ends {
    /// The ends of every property, in the ontology's order. A class that lists a property as its
    /// own is one of the classes of its subjects.
    pub(crate) fn all(ontology: &Ontology, kinds: &Kinds) -> Vec<Self> {
        let mut own: HashMap<&str, Vec<&str>> = HashMap::new();
        for class in &ontology.classes {
            for property in &class.properties {
                own.entry(property).or_default().push(&class.id);
            }
        }
        let ends = |property: &Property| {
            let owners = own.get(property.id.as_str()).into_iter().flatten().copied();
            let domain = property.domain.iter().map(String::as_str).chain(owners);
            let range = property.range.iter().map(String::as_str);
            Self {
                subjects: Admitted::new(kinds, domain.collect()),
                objects: Admitted::new(kinds, range.collect()),
            }
        };
        ontology.properties.iter().map(ends).collect()
    }
}

impl Admitted {
    fn new(kinds: &Kinds, classes: Vec<&str>) -> Self {
        if classes.is_empty() || classes.iter().any(|class| is_everything(class)) {
            return Self(None);
        }
        Self(Some(classes.into_iter().filter_map(|class| kinds.number(class)).collect()))
    }

    /// Whether a class is admitted that has these superclasses, itself included, in ascending
    /// order.
    pub(crate) fn admits(&self, all_above: &[u32]) -> bool {
        let among = |class: &u32| all_above.binary_search(class).is_ok();
        self.0.as_ref().is_none_or(|admitted| admitted.iter().any(among))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ontology::Class;

    fn kinds(classes: &[(&str, &[&str])]) -> Kinds {
        let class = |(id, above): &(&str, &[&str])| Class {
            id: (*id).to_owned(),
            sub_class_of: above.iter().map(|above| (*above).to_owned()).collect(),
            ..Class::default()
        };
        let classes = classes.iter().map(class).collect();
        Kinds::new(&Ontology { classes, ..Ontology::default() })
    }

    #[test]
    fn a_class_is_a_kind_of_itself_and_of_everything_above_it() {
        let kinds = kinds(&[("river", &["water"]), ("water", &["place"]), ("city", &["place"])]);
        assert!(kinds.is_a("river", "river") && kinds.is_a("river", "place"));
        assert!(!kinds.is_a("place", "river") && !kinds.is_a("river", "city"));
        assert!(kinds.is_a("unheard of", THING) && !kinds.is_a("unheard of", "place"));
        assert!(kinds.related("place", "river") && !kinds.related("city", "river"));
    }

    #[test]
    fn classes_in_a_circle_are_kinds_of_each_other() {
        let kinds = kinds(&[("a", &["b"]), ("b", &["c"]), ("c", &["a"]), ("d", &["d"])]);
        assert!(kinds.is_a("a", "c") && kinds.is_a("c", "b"));
        assert!(!kinds.is_a("a", "d") && !kinds.is_a("d", "a"));
    }

    #[test]
    fn the_narrowest_class_is_the_same_in_any_order() {
        let kinds = kinds(&[("river", &["water"]), ("water", &["place"])]);
        let classes = |ids: [&str; 3]| ids.map(str::to_owned).to_vec();
        let one = classes(["place", "river", "water"]);
        let other = classes(["water", "place", "river"]);
        assert_eq!(kinds.narrowest(&one), Some("river"));
        assert_eq!(kinds.narrowest(&other), Some("river"));
        assert_eq!(kinds.narrowest(&[]), None);
    }
}
