//! One text and one hash per ontology.
//!
//! Each function destructures its type by field name. A new field does not compile until its author
//! has decided whether an extractor can read it.

use std::cmp::Ordering;

use data_encoding::HEXLOWER;
use hapax_core::canonical::canonical;
use hapax_core::json::Json;
use sha2::{Digest as _, Sha256};

use super::{Class, Individual, Ontology, Property};

impl Ontology {
    /// `sha256:` and the hash of everything an extractor can read: classes, properties and
    /// individuals with their labels and synonyms. The order of a list and repetitions in it make
    /// no difference. The ontology's own id and label are not in it: the id is a part of every key
    /// by itself, and the label is for people.
    ///
    /// It is the SHA-256 of the RFC 8785 text of the JSON form without `id` and `label`, with every
    /// list sorted by UTF-16 code unit, those of objects by their `id`.
    pub fn version(&self) -> String {
        let Self { id: _, label: _, classes, properties, individuals } = self.clone().sorted();
        let readable = Json::object([
            ("classes", array(&classes, Class::json)),
            ("individuals", array(&individuals, Individual::json)),
            ("properties", array(&properties, Property::json)),
        ]);
        format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(text(&readable))))
    }

    /// Its JSON form, as RFC 8785 writes it. Lists keep their order, so that
    /// [`Ontology::parse_json`] reads the same ontology again.
    pub fn to_json(&self) -> String {
        let Self { id, label, classes, properties, individuals } = self;
        text(&object([
            ("id", Some(Json::text(id))),
            ("label", label.as_deref().map(Json::text)),
            ("classes", Some(array(classes, Class::json))),
            ("properties", Some(array(properties, Property::json))),
            ("individuals", some(array(individuals, Individual::json))),
        ]))
    }

    /// The same ontology with every list in order and without repetitions.
    pub fn sorted(mut self) -> Self {
        let Self { id: _, label: _, classes, properties, individuals } = &mut self;
        for Class { id: _, label: _, synonyms, sub_class_of, properties } in &mut *classes {
            [synonyms, sub_class_of, properties].into_iter().for_each(sort_texts);
        }
        for Property { id: _, label: _, synonyms, domain, range } in &mut *properties {
            [synonyms, domain, range].into_iter().for_each(sort_texts);
        }
        for Individual { id: _, label: _, synonyms, types } in &mut *individuals {
            [synonyms, types].into_iter().for_each(sort_texts);
        }
        sort(classes, |class| &class.id, Class::json);
        sort(properties, |property| &property.id, Property::json);
        sort(individuals, |individual| &individual.id, Individual::json);
        self
    }
}

impl Class {
    fn json(&self) -> Json {
        let Self { id, label, synonyms, sub_class_of, properties } = self;
        object([
            ("id", Some(Json::text(id))),
            ("label", label.as_deref().map(Json::text)),
            ("synonyms", texts(synonyms)),
            ("subClassOf", texts(sub_class_of)),
            ("properties", texts(properties)),
        ])
    }
}

impl Property {
    fn json(&self) -> Json {
        let Self { id, label, synonyms, domain, range } = self;
        object([
            ("id", Some(Json::text(id))),
            ("label", label.as_deref().map(Json::text)),
            ("synonyms", texts(synonyms)),
            ("domain", texts(domain)),
            ("range", texts(range)),
        ])
    }
}

impl Individual {
    fn json(&self) -> Json {
        let Self { id, label, synonyms, types } = self;
        object([
            ("id", Some(Json::text(id))),
            ("label", label.as_deref().map(Json::text)),
            ("synonyms", texts(synonyms)),
            ("type", texts(types)),
        ])
    }
}

/// Leaves out absent members, so that a field that is added later and not used changes no version.
fn object<const N: usize>(members: [(&str, Option<Json>); N]) -> Json {
    let there = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Json::Object(there.collect())
}

fn array<T>(items: &[T], json: fn(&T) -> Json) -> Json {
    Json::Array(items.iter().map(json).collect())
}

fn texts(texts: &[String]) -> Option<Json> {
    some(array(texts, |text| Json::text(text)))
}

fn some(array: Json) -> Option<Json> {
    array.as_array().is_some_and(|items| !items.is_empty()).then_some(array)
}

fn text(json: &Json) -> String {
    canonical(json).expect("only a number can be refused, and an ontology has none")
}

fn sort_texts(texts: &mut Vec<String>) {
    texts.sort_by(|a, b| by_utf16(a, b));
    texts.dedup();
}

/// Sorts by id. Two items with the same id are not valid, but have an order too, so that the
/// version is defined.
fn sort<T: PartialEq>(items: &mut Vec<T>, id: fn(&T) -> &str, json: fn(&T) -> Json) {
    items.sort_by(|a, b| {
        by_utf16(id(a), id(b)).then_with(|| by_utf16(&text(&json(a)), &text(&json(b))))
    });
    items.dedup();
}

/// As JavaScript and RFC 8785 order texts, which is neither the order of bytes nor of a language.
fn by_utf16(a: &str, b: &str) -> Ordering {
    a.encode_utf16().cmp(b.encode_utf16())
}
