//! An ontology as the built-in extractor reads it: every name and every verb pattern, as phrases
//! that are searched for in one pass.
//!
//! The order in which the ontology lists things makes no difference.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use aho_corasick::BuildError;

use super::inflect;
use super::phrase::Phrases;
use super::word;
use crate::graph::Mention;
use crate::kinds::{Admitted, Ends, Kinds, THING};
use crate::ontology::Ontology;
use crate::sentence::spaced;

/// A compiled ontology.
#[derive(Debug)]
pub(super) struct Lexicon {
    pub(super) kinds: Kinds,
    pub(super) names: Phrases<Name>,
    pub(super) patterns: Phrases<Reading>,
    /// The IRIs of the properties that a [`Reading`] refers to by number.
    pub(super) properties: Vec<String>,
    pub(super) ends: Vec<Ends>,
    numbers: HashMap<String, usize>,
    types: HashMap<String, Vec<String>>,
    labels: HashMap<String, String>,
}

/// A thing that a name may stand for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    /// Classes sort after all individuals.
    pub(super) is_class: bool,
    pub(super) case: Case,
    /// The IRI of the individual, or of the class.
    pub(super) iri: String,
    pub(super) class: String,
    pub(super) label: String,
    pub(super) plural: bool,
}

/// The case that a name has to be written in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Case {
    /// Exactly so: an acronym.
    Exact(String),
    /// With a capital: Bath is a city, a bath is not.
    Capital,
    /// Any way.
    Any,
}

impl Case {
    /// Names of one word that begin with a capital keep it; acronyms keep all.
    fn of(name: &str, is_class: bool) -> Self {
        let upper = name.contains(char::is_uppercase);
        if upper && !name.contains(char::is_lowercase) {
            Self::Exact(name.to_owned())
        } else if !is_class && !name.contains(' ') && name.starts_with(char::is_uppercase) {
            Self::Capital
        } else {
            Self::Any
        }
    }

    pub(super) fn admits(&self, written: &str) -> bool {
        match self {
            Self::Exact(name) => name == written,
            Self::Capital => written.starts_with(char::is_uppercase),
            Self::Any => true,
        }
    }
}

/// One way to read a verb pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reading {
    /// An index in [`Lexicon::properties`].
    pub(super) property: usize,
    /// Whether the object stands first.
    pub(super) turned: bool,
    /// Whether it is a participle. After `was` it swaps subject and object, and ` by ` has to
    /// follow.
    pub(super) participle: bool,
}

impl Lexicon {
    pub(super) fn new(ontology: &Ontology) -> Result<Self, BuildError> {
        let kinds = Kinds::new(ontology);
        let mut names: BTreeMap<String, Vec<Name>> = BTreeMap::new();
        let mut types = HashMap::new();
        let mut labels = HashMap::new();
        let mut add = |written: &str, name: Name| {
            names.entry(word::fold(written)).or_default().push(name);
        };
        for individual in &ontology.individuals {
            let label = spaced(&individual.name());
            let class = kinds.narrowest(&individual.types).unwrap_or(THING).to_owned();
            types.insert(individual.id.clone(), individual.types.clone());
            for written in all(&label, &individual.synonyms) {
                let case = Case::of(&written, false);
                let (iri, class, label) = (individual.id.clone(), class.clone(), label.clone());
                add(&written, Name { is_class: false, case, iri, class, label, plural: false });
            }
        }
        for class in &ontology.classes {
            let label = spaced(&class.name());
            labels.insert(class.id.clone(), label.clone());
            for one in all(&label, &class.synonyms) {
                let forms = inflect::plurals(&one).into_iter().map(|form| (form, true));
                for (written, plural) in forms.chain([(one.clone(), false)]) {
                    let case = match Case::of(&one, true) {
                        Case::Exact(_) => Case::Exact(written.clone()),
                        free => free,
                    };
                    let (iri, label) = (class.id.clone(), label.clone());
                    let class = class.id.clone();
                    add(&written, Name { is_class: true, case, iri, class, label, plural });
                }
            }
        }
        names.values_mut().for_each(|names| names.sort());
        let mut ordered: Vec<_> =
            ontology.properties.iter().zip(Ends::all(ontology, &kinds)).collect();
        ordered.sort_by(|(one, _), (other, _)| one.id.cmp(&other.id));
        let mut patterns: BTreeMap<String, Vec<Reading>> = BTreeMap::new();
        for (number, (property, _)) in ordered.iter().enumerate() {
            let label = spaced(&property.name());
            for written in all(&label, &property.synonyms) {
                for (phrase, turned, participle) in readings(&word::fold(&written)) {
                    let reading = Reading { property: number, turned, participle };
                    patterns.entry(phrase).or_default().push(reading);
                }
            }
        }
        for readings in patterns.values_mut() {
            readings.sort();
            readings.dedup();
        }
        let properties: Vec<String> = ordered.iter().map(|(one, _)| one.id.clone()).collect();
        Ok(Self {
            kinds,
            names: Phrases::new(names)?,
            patterns: Phrases::new(patterns)?,
            numbers: properties.iter().cloned().zip(0..).collect(),
            properties,
            ends: ordered.into_iter().map(|(_, ends)| ends).collect(),
            types,
            labels,
        })
    }

    /// The number by which readings refer to a property.
    pub(super) fn number(&self, property: &str) -> Option<usize> {
        self.numbers.get(property).copied()
    }

    /// Every known class of a mention.
    pub(super) fn types<'a>(&'a self, mention: &'a Mention) -> &'a [String] {
        let individual = mention.individual.as_deref().and_then(|iri| self.types.get(iri));
        match individual {
            Some(types) if !types.is_empty() => types,
            _ => std::slice::from_ref(&mention.class),
        }
    }

    /// Whether a mention is of one of these classes.
    pub(super) fn fits(&self, mention: &Mention, admitted: &Admitted) -> bool {
        // Nothing is known of a class that the ontology does not have.
        let above =
            |class: &String| self.kinds.number(class).map(|class| self.kinds.all_above(class));
        self.types(mention).iter().any(|class| admitted.admits(above(class).unwrap_or_default()))
    }

    /// Whether only the class of a mention is known.
    pub(super) fn is_unnamed(&self, mention: &Mention) -> bool {
        mention.individual.is_none() && self.labels.get(&mention.class) == Some(&mention.name)
    }
}

/// The label and all synonyms, each once.
fn all(label: &str, synonyms: &[String]) -> BTreeSet<String> {
    let synonyms = synonyms.iter().map(|synonym| spaced(synonym));
    synonyms.chain([label.to_owned()]).filter(|name| !name.is_empty()).collect()
}

/// The phrases that state a property with this folded label. The flags say whether the object
/// stands first, and whether the phrase is a participle, which swaps subject and object after
/// `was`.
fn readings(label: &str) -> BTreeSet<(String, bool, bool)> {
    let words: Vec<&str> = label.split(' ').collect();
    let mut found = BTreeSet::from([(label.to_owned(), false, false)]);
    match words.as_slice() {
        ["is" | "are" | "was" | "were" | "be"] => found.clear(),
        ["is" | "are" | "was" | "were" | "be", little]
            if little.len() <= 2 || *little == "from" =>
        {
            let forms = ["is", "are", "was", "were", "been", "being"];
            found.extend(forms.map(|form| (format!("{form} {little}"), false, false)));
        }
        ["is" | "are" | "was" | "were" | "be", rest @ ..] => return readings(&rest.join(" ")),
        ["has" | "have" | "had", rest @ ..] if !rest.is_empty() => {
            let rest = rest.join(" ");
            for form in ["has", "have", "had", "having"] {
                for article in ["", " a", " an", " the", " its", " his", " her", " their"] {
                    found.insert((format!("{form}{article} {rest}"), false, false));
                }
            }
            found.insert((format!("{rest} of"), true, false));
        }
        [one] => {
            let verb = inflect::verb(one);
            found.clear();
            found.extend(active(&verb, false));
            if !found.contains(&(label.to_owned(), false, true)) {
                found.insert((label.to_owned(), false, false));
            }
            found.extend(verb.participles.iter().map(|form| (format!("{form} by"), true, false)));
            found.insert((format!("{one} of"), true, false));
        }
        [one, "by"] => found.extend(active(&inflect::verb(one), true)),
        [one, rest @ ..] => {
            let verb = inflect::verb(one);
            let rest = rest.join(" ");
            let forms = verb.plain.iter().chain(&verb.finite).chain(&verb.participles);
            found.extend(forms.map(|form| (format!("{form} {rest}"), false, false)));
        }
        [] => {}
    }
    found
}

/// The active forms of a verb. A pattern that is turned already leaves out the plain form, which
/// was guessed.
fn active(verb: &inflect::Verb, turned: bool) -> Vec<(String, bool, bool)> {
    let plain = verb.plain.iter().filter(|_| !turned);
    let forms = plain.chain(&verb.finite).chain(&verb.participles);
    let participle = |form: &String| verb.participles.contains(form);
    forms.map(|form| (form.clone(), turned, participle(form))).collect()
}
