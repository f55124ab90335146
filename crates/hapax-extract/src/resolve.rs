//! Resolves mentions to things: several mentions of one thing become one.
//!
//!   mention ──same individual, or same class and folded name──▶ group
//!   group ──same name, class a kind of the other's──▶ the narrower
//!   group ──part of one longer name, same class──▶ the longer
//!
//! An id depends on the class and the name of a thing, and on nothing else in the text.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use crate::graph::{ChunkGraph, Mention};
use crate::kinds::Kinds;
use crate::ontology::Ontology;
use crate::sentence::spaced;

/// Longer names than this, in words, have no short forms.
const LONGEST: usize = 8;

/// A thing that a text mentions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thing {
    /// The individual's IRI, or `e-<32 hex>` of the class and the folded name.
    pub id: String,
    /// The IRI of its class.
    pub class: String,
    /// Its name in the ontology, else as it is first written.
    pub name: String,
}

/// The thing of each mention.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resolved {
    /// The things, each once, by id.
    pub things: Vec<Thing>,
    /// For every chunk and every mention in it, an index in `things`.
    pub of: Vec<Vec<usize>>,
}

/// Finds out which mentions are of one thing.
pub fn resolve(found: &[ChunkGraph], ontology: &Ontology) -> Resolved {
    let mut groups = Groups::default();
    let of: Vec<Vec<usize>> = found
        .iter()
        .map(|found| found.mentions.iter().map(|mention| groups.of(mention)).collect())
        .collect();
    let kinds = Kinds::new(ontology);
    let known = Known::new(ontology);
    for group in &mut groups.all {
        if let Some(iri) = &group.individual {
            group.name = known.label(iri).unwrap_or(&group.name).to_owned();
            group.folded = fold(&group.name);
        }
    }
    groups.join_kinds(&kinds);
    groups.join_short_forms(&kinds, &known);
    groups.finish(of)
}

/// The id of a thing that is no individual of the ontology.
pub fn entity_id(class: &str, name: &str) -> String {
    let name = fold(name);
    let mut hash = Sha256::new();
    for field in [class, &name] {
        hash.update((field.len() as u64).to_be_bytes());
        hash.update(field.as_bytes());
    }
    format!("e-{}", HEXLOWER.encode(&hash.finalize()[..16]))
}

/// A name in lower case, with one space between its words.
fn fold(name: &str) -> String {
    name.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The names in the ontology.
struct Known<'o> {
    individuals: HashMap<&'o str, Option<&'o str>>,
    /// Folded names of classes. A mention with such a name has no name of its own.
    classes: HashMap<&'o str, BTreeSet<String>>,
}

impl<'o> Known<'o> {
    fn new(ontology: &'o Ontology) -> Self {
        let individuals = ontology.individuals.iter();
        let mut classes: HashMap<&str, BTreeSet<String>> = HashMap::new();
        for class in &ontology.classes {
            let names = classes.entry(&class.id).or_default();
            names.insert(fold(&spaced(&class.name())));
            names.extend(class.synonyms.iter().map(|name| fold(name)));
        }
        Self {
            individuals: individuals.map(|one| (one.id.as_str(), one.label.as_deref())).collect(),
            classes,
        }
    }

    fn label(&self, individual: &str) -> Option<&'o str> {
        self.individuals.get(individual).copied().flatten()
    }

    fn is_unnamed(&self, group: &Group) -> bool {
        let names = self.classes.get(group.class.as_str());
        group.individual.is_none() && names.is_some_and(|names| names.contains(&group.folded))
    }
}

/// Mentions that are known to be of one thing.
#[derive(Debug)]
struct Group {
    individual: Option<String>,
    class: String,
    name: String,
    folded: String,
    /// The group that it turned out to be a part of.
    part_of: Option<usize>,
}

#[derive(Debug, Default)]
struct Groups {
    all: Vec<Group>,
    numbers: HashMap<(Option<String>, String, String), usize>,
}

impl Groups {
    /// The group of a mention, which may be a new one.
    fn of(&mut self, mention: &Mention) -> usize {
        let folded = fold(&mention.name);
        let key = match &mention.individual {
            Some(iri) => (Some(iri.clone()), String::new(), String::new()),
            None => (None, mention.class.clone(), folded.clone()),
        };
        *self.numbers.entry(key).or_insert_with(|| {
            self.all.push(Group {
                individual: mention.individual.clone(),
                class: mention.class.clone(),
                name: mention.name.clone(),
                folded,
                part_of: None,
            });
            self.all.len() - 1
        })
    }

    /// Joins a group to the one of the same name whose class is the narrowest, if there is only one
    /// such.
    fn join_kinds(&mut self, kinds: &Kinds) {
        let mut named: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, group) in self.all.iter().enumerate() {
            named.entry(&group.folded).or_default().push(at);
        }
        let narrower = |same: &[usize], group: usize| -> Vec<usize> {
            let goes_first = |&&other: &&usize| {
                other != group && goes_before(kinds, &self.all[other], &self.all[group])
            };
            same.iter().filter(goes_first).copied().collect()
        };
        let mut joined = Vec::new();
        for same in named.values().filter(|same| same.len() > 1) {
            for &group in same {
                let mut last = narrower(same, group);
                last.retain(|&other| narrower(same, other).is_empty());
                if let [only] = last[..] {
                    joined.push((group, only));
                }
            }
        }
        for (group, only) in joined {
            self.all[group].part_of = Some(only);
        }
    }

    /// Joins a group whose name is the beginning or the end of exactly one longer name.
    fn join_short_forms(&mut self, kinds: &Kinds, known: &Known<'_>) {
        let words = |group: &Group| group.folded.split(' ').count();
        let mut longer: HashMap<String, Vec<usize>> = HashMap::new();
        let mut open: Vec<usize> = Vec::new();
        for (at, group) in self.all.iter().enumerate() {
            if group.part_of.is_some() || known.is_unnamed(group) || words(group) > LONGEST {
                continue;
            }
            for part in parts(&group.folded) {
                longer.entry(part.to_owned()).or_default().push(at);
            }
            if group.individual.is_none() {
                open.push(at);
            }
        }
        open.sort_by_key(|&at| std::cmp::Reverse(words(&self.all[at])));
        for short in open {
            let Some(candidates) = longer.get(&self.all[short].folded) else { continue };
            let class = &self.all[short].class;
            let fitting =
                candidates.iter().filter(|&&long| kinds.is_a(&self.all[long].class, class));
            let whole: BTreeSet<usize> = fitting.map(|&long| self.root(long)).collect();
            if whole.len() == 1 {
                self.all[short].part_of = whole.first().copied();
            }
        }
    }

    fn root(&self, mut group: usize) -> usize {
        while let Some(whole) = self.all[group].part_of {
            group = whole;
        }
        group
    }

    fn finish(self, mut of: Vec<Vec<usize>>) -> Resolved {
        let roots: BTreeSet<usize> = (0..self.all.len()).map(|group| self.root(group)).collect();
        let mut things: Vec<(Thing, usize)> = Vec::with_capacity(roots.len());
        for root in roots {
            let Group { individual, class, name, folded, .. } = &self.all[root];
            let id = individual.clone().unwrap_or_else(|| entity_id(class, folded));
            things.push((Thing { id, class: class.clone(), name: name.clone() }, root));
        }
        things.sort_by(|(one, _), (other, _)| one.id.cmp(&other.id));
        let places: HashMap<usize, usize> =
            things.iter().enumerate().map(|(place, (_, root))| (*root, place)).collect();
        for group in of.iter_mut().flatten() {
            *group = places[&self.root(*group)];
        }
        Resolved { things: things.into_iter().map(|(thing, _)| thing).collect(), of }
    }
}

/// Whether `one` is `other` with a narrower class, for two groups of one name. Of classes that are
/// kinds of each other, the one whose IRI comes first counts as the narrower.
fn goes_before(kinds: &Kinds, one: &Group, other: &Group) -> bool {
    if other.individual.is_some() {
        return false;
    }
    if one.individual.is_some() {
        return kinds.related(&one.class, &other.class);
    }
    kinds.is_a(&one.class, &other.class)
        && (!kinds.is_a(&other.class, &one.class) || one.class < other.class)
}

/// Every beginning and every end of a name, in whole words, but not all of it.
fn parts(name: &str) -> BTreeSet<&str> {
    let spaces = name.match_indices(' ').map(|(at, _)| at);
    spaces.flat_map(|at| [&name[..at], &name[at + 1..]]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ontology() -> Ontology {
        serde_json::from_value(serde_json::json!({
            "classes": [
                {"id": "place", "label": "place"},
                {"id": "river", "label": "river", "subClassOf": ["place"]},
                {"id": "city", "label": "city", "subClassOf": ["place"]},
                {"id": "person", "label": "person"},
                {"id": "engineer", "label": "engineer", "subClassOf": ["person"]},
                {"id": "human", "subClassOf": ["mortal"]},
                {"id": "mortal", "subClassOf": ["human"]},
            ],
            "individuals": [{"id": "ex:ada", "label": "Ada Lovelace", "type": ["person"]}],
        }))
        .expect("an ontology")
    }

    /// Mentions as `class/name` or `class/name/individual`, all in one chunk; returns the thing of
    /// each.
    fn taken(mentions: &[&str]) -> Vec<(String, String)> {
        let mention = |written: &&str| {
            let mut parts = written.split('/').map(str::to_owned);
            Mention {
                class: parts.next().expect("a class"),
                name: parts.next().expect("a name"),
                individual: parts.next(),
                start: 0,
                end: 0,
            }
        };
        let found =
            ChunkGraph { mentions: mentions.iter().map(mention).collect(), statements: Vec::new() };
        let resolved = resolve(&[found], &ontology());
        let thing =
            |&at: &usize| (resolved.things[at].class.clone(), resolved.things[at].name.clone());
        resolved.of[0].iter().map(thing).collect()
    }

    fn names(mentions: &[&str]) -> Vec<String> {
        taken(mentions).into_iter().map(|(class, name)| format!("{class}/{name}")).collect()
    }

    /// Proves X-8.
    #[test]
    fn one_class_and_one_name_are_one_thing_whatever_the_case_and_the_white_space() {
        assert_eq!(names(&["river/Rio Grande", "river/RIO  GRANDE"]), ["river/Rio Grande"; 2]);
        assert_eq!(names(&["river/Avon", "city/Avon"]), ["river/Avon", "city/Avon"]);
    }

    #[test]
    fn one_individual_is_one_thing_under_the_name_the_ontology_has() {
        let found = names(&["person/Countess/ex:ada", "person/Ada/ex:ada"]);
        assert_eq!(found, ["person/Ada Lovelace"; 2]);
    }

    #[test]
    fn a_short_form_joins_the_only_longer_name() {
        let long = "person/Charles Babbage";
        assert_eq!(names(&[long, "person/Babbage"]), [long; 2]);
        assert_eq!(names(&["person/Charles", long]), [long; 2]);
        let both = names(&[long, "person/Henry Babbage", "person/Babbage"]);
        assert_eq!(both[2], "person/Babbage");
        assert_eq!(names(&[long, "city/Babbage"])[1], "city/Babbage");
        assert_eq!(names(&[long, "person/bage"])[1], "person/bage");
    }

    #[test]
    fn a_short_form_joins_an_individual_too() {
        let found = names(&["person/Ada Lovelace/ex:ada", "person/Lovelace"]);
        assert_eq!(found, ["person/Ada Lovelace"; 2]);
    }

    #[test]
    fn short_forms_of_short_forms_join_the_longest() {
        let long = "person/Ada King Lovelace";
        assert_eq!(names(&[long, "person/King Lovelace", "person/Lovelace"]), [long; 3]);
    }

    #[test]
    fn an_unnamed_thing_is_no_short_form() {
        let found = names(&["river/River Avon", "river/river"]);
        assert_eq!(found, ["river/River Avon", "river/river"]);
    }

    #[test]
    fn a_name_joins_the_narrower_class_if_there_is_only_one() {
        assert_eq!(names(&["place/Avon", "river/Avon"]), ["river/Avon"; 2]);
        let apart = names(&["place/Avon", "river/Avon", "city/Avon"]);
        assert_eq!(apart, ["place/Avon", "river/Avon", "city/Avon"]);
        assert_eq!(
            names(&["person/Brunel", "engineer/Isambard Brunel"])[0],
            "engineer/Isambard Brunel"
        );
    }

    #[test]
    fn classes_in_a_circle_join_the_same_way_in_any_order() {
        assert_eq!(names(&["mortal/Zeno", "human/Zeno"]), ["human/Zeno"; 2]);
        assert_eq!(names(&["human/Zeno", "mortal/Zeno"]), ["human/Zeno"; 2]);
    }

    #[test]
    fn a_name_of_an_individual_joins_it() {
        let found = names(&["engineer/ada lovelace", "person/Ada Lovelace/ex:ada"]);
        assert_eq!(found, ["person/Ada Lovelace"; 2]);
    }

    /// Proves X-8.
    #[test]
    fn an_id_is_the_same_in_every_run_and_every_text() {
        expect_test::expect!["e-02d29ac79deeac730750d964dd1a1492"]
            .assert_eq(&entity_id("ex:river", "Rio  GRANDE"));
        assert_eq!(entity_id("ex:river", "Rio  GRANDE"), entity_id("ex:river", "rio grande"));
        assert_ne!(entity_id("ex:riverr", "io"), entity_id("ex:river", "rio"));
    }
}
