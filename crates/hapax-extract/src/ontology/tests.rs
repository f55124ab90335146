//! Tests of an ontology's JSON form and its version.

use super::limits::{MAX_ID, MAX_LABEL, MAX_SYNONYMS};
use super::*;
use crate::ontology::error::OntologyError;

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn football() -> Ontology {
    Ontology {
        id: "https://example.org/football".into(),
        label: Some("Football".into()),
        classes: vec![
            Class {
                id: "f:Player".into(),
                label: Some("player".into()),
                synonyms: texts(&["footballer", "Fußballer"]),
                sub_class_of: texts(&["f:Person", "f:Employee"]),
                properties: texts(&["f:scores", "f:playsFor"]),
            },
            Class { id: "f:Club".into(), ..Class::default() },
        ],
        properties: vec![
            Property {
                id: "f:playsFor".into(),
                label: Some("plays for".into()),
                synonyms: texts(&["is signed with", "joined"]),
                domain: texts(&["f:Player", "f:Coach"]),
                range: texts(&["f:Club", "f:Team"]),
            },
            Property { id: "f:scores".into(), ..Property::default() },
        ],
        individuals: vec![
            Individual {
                id: "f:Ajax".into(),
                label: Some("AFC Ajax".into()),
                synonyms: texts(&["Ajax", "Amsterdam"]),
                types: texts(&["f:Club", "f:Employer"]),
            },
            Individual { id: "f:Cruijff".into(), ..Individual::default() },
        ],
    }
}

/// Proves X-2.
#[test]
fn a_version_is_a_hash_that_stays_the_same() {
    assert_eq!(
        football().version(),
        "sha256:ea67352bc16d18118b86bf4d86d653786733dc05a195de3e1ef868d8b326c9f7"
    );
}

/// Proves X-2.
#[test]
fn the_order_of_a_list_and_repetitions_do_not_change_a_version() {
    let mut other = football();
    let Ontology { id: _, label: _, classes, properties, individuals } = &mut other;
    classes.reverse();
    properties.reverse();
    individuals.reverse();
    for Class { id: _, label: _, synonyms, sub_class_of, properties } in &mut *classes {
        [synonyms, sub_class_of, properties].into_iter().for_each(|list| list.reverse());
    }
    for Property { id: _, label: _, synonyms, domain, range } in &mut *properties {
        [synonyms, domain, range].into_iter().for_each(|list| list.reverse());
    }
    for Individual { id: _, label: _, synonyms, types } in &mut *individuals {
        [synonyms, types].into_iter().for_each(|list| list.reverse());
    }
    assert_ne!(other, football());
    assert_eq!(other.version(), football().version());

    everything_twice(&mut other);
    assert_eq!(other.version(), football().version());
}

fn everything_twice(ontology: &mut Ontology) {
    ontology.classes.extend(ontology.classes.clone());
    ontology.properties.extend(ontology.properties.clone());
    ontology.individuals.extend(ontology.individuals.clone());
    for class in &mut ontology.classes {
        class.synonyms.extend(class.synonyms.clone());
    }
}

/// Proves X-2.
#[test]
fn everything_an_extractor_can_read_changes_a_version() {
    let changes = changes();
    assert_eq!(changes.len(), 14);
    let mut versions = vec![football().version()];
    for (field, change) in changes {
        let mut changed = football();
        change(&mut changed);
        let version = changed.version();
        assert!(!versions.contains(&version), "{field}");
        versions.push(version);
    }
}

type Change = (&'static str, fn(&mut Ontology));

/// One change per field that an extractor can read, each to a text that no other field has. The
/// types are destructured by field name, so that a new field has to be added here too.
fn changes() -> Vec<Change> {
    let Ontology { id: _, label: _, classes, properties, individuals } = football();
    let Class { id: _, label: _, synonyms: _, sub_class_of: _, properties: _ } = &classes[0];
    let Property { id: _, label: _, synonyms: _, domain: _, range: _ } = &properties[0];
    let Individual { id: _, label: _, synonyms: _, types: _ } = &individuals[0];
    vec![
        ("class id", |o| o.classes[0].id = "x".into()),
        ("class label", |o| o.classes[0].label = Some("x".into())),
        ("class synonyms", |o| o.classes[0].synonyms.push("x".into())),
        ("class subClassOf", |o| o.classes[0].sub_class_of.push("x".into())),
        ("class properties", |o| o.classes[0].properties.push("x".into())),
        ("property id", |o| o.properties[0].id = "x".into()),
        ("property label", |o| o.properties[0].label = Some("x".into())),
        ("property synonyms", |o| o.properties[0].synonyms.push("x".into())),
        ("property domain", |o| o.properties[0].domain.push("x".into())),
        ("property range", |o| o.properties[0].range.push("x".into())),
        ("individual id", |o| o.individuals[0].id = "x".into()),
        ("individual label", |o| o.individuals[0].label = Some("x".into())),
        ("individual synonyms", |o| o.individuals[0].synonyms.push("x".into())),
        ("individual type", |o| o.individuals[0].types.push("x".into())),
    ]
}

/// Proves X-2.
#[test]
fn an_ontologys_own_id_and_label_are_not_in_its_version() {
    let named = Ontology { id: "x".into(), label: None, ..football() };
    assert_eq!(named.version(), football().version());
}

/// Proves X-2.
#[test]
fn lists_are_sorted_by_utf16_code_unit() {
    // U+FF5E comes before U+1F600 in bytes and after it in UTF-16, where the latter is D83D DE00.
    let (tilde, face) = ("\u{ff5e}", "\u{1f600}");
    assert!(tilde < face);
    let named = |id: &str| Class { id: id.into(), ..Class::default() };
    let mut ontology = Ontology { classes: vec![named(tilde), named(face)], ..football() };
    ontology.individuals[0].synonyms = texts(&[tilde, face, "z", "Z", "é"]);
    let sorted = ontology.sorted();
    assert_eq!(sorted.classes, [named(face), named(tilde)]);
    assert_eq!(sorted.individuals[0].synonyms, ["Z", "z", "é", face, tilde]);

    let bare = Ontology { classes: vec![named(tilde), named(face)], ..Ontology::default() };
    let text = format!(
        r#"{{"classes":[{{"id":"{face}"}},{{"id":"{tilde}"}}],"individuals":[],"properties":[]}}"#
    );
    use sha2::Digest as _;
    let hash = data_encoding::HEXLOWER.encode(&sha2::Sha256::digest(text));
    assert_eq!(bare.version(), format!("sha256:{hash}"));
}

#[test]
fn a_written_ontology_reads_back_equal() {
    let text = football().to_json();
    assert!(text.starts_with(r#"{"classes":[{"id":"f:Player","label":"player","properties":["#));
    assert_eq!(Ontology::parse_json(text.as_bytes()).unwrap(), football());

    let bare = Ontology { id: "x".into(), ..Ontology::default() };
    assert_eq!(bare.to_json(), r#"{"classes":[],"id":"x","properties":[]}"#);
    assert_eq!(Ontology::parse_json(bare.to_json().as_bytes()).unwrap(), bare);
    // The derived reader and the strict one read the same.
    assert_eq!(serde_json::from_str::<Ontology>(&text).unwrap(), football());
}

#[test]
fn an_error_names_the_place_the_problem_and_the_remedy() {
    let long_id = format!(r#"{{"id":"{}"}}"#, "x".repeat(MAX_ID + 1));
    let long_label = format!(r#"{{"id":"x","label":"{}"}}"#, "ä".repeat(MAX_LABEL + 1));
    let many = format!(
        r#"{{"id":"x","classes":[{{"id":"y","synonyms":[{}]}}]}}"#,
        vec![r#""z""#; MAX_SYNONYMS + 1].join(",")
    );
    for (document, expected) in [
        ("[]", "the document: is a list and must be an object; write {…} here"),
        ("{}", "/id: is missing or empty; give its IRI"),
        (r#"{"id":" "}"#, "/id: is missing or empty; give its IRI"),
        (r#"{"id":7}"#, "/id: is a number and must be a text; write it in quotes, or leave it out"),
        (&long_id, "/id: is longer than 2048 bytes; give a shorter IRI"),
        (
            &long_label,
            "/label: is longer than 1000 characters; give the name only, not its explanation",
        ),
        (
            &many,
            "/classes/0/synonyms: has 1001 synonyms, and at most 1000 can be read; leave out what is not needed, or split the ontology",
        ),
        (
            r#"{"id":"x","label":null}"#,
            "/label: is null and must be a text; write it in quotes, or leave it out",
        ),
        (
            r#"{"id":"x","a/b~c":1}"#,
            "/a~1b~0c: is not known; remove it; there are id, label, classes, properties and individuals",
        ),
        (
            r#"{"id":"x","classes":[{"id":"a"},{"id":"b\n"}]}"#,
            "/classes/1/id: has a control character, such as a line break; remove it",
        ),
        (
            r#"{"id":"x","classes":[{"id":"a"},{"id":"b"},{"id":"a"}]}"#,
            "/classes/2/id: is the same as /classes/0/id; make one of the two, or give it an id of its own",
        ),
        (
            r#"{"id":"x","classes":[{"id":"a","superClass":[]}]}"#,
            "/classes/0/superClass: is not known; remove it; there are id, label, synonyms, subClassOf and properties",
        ),
        (
            r#"{"id":"x","classes":[{"id":"a","subClassOf":"b"}]}"#,
            "/classes/0/subClassOf: is a text and must be a list; write […] here, or leave it out",
        ),
        (
            r#"{"id":"x","classes":[{"id":"a","subClassOf":["b",""]}]}"#,
            "/classes/0/subClassOf/1: is missing or empty; give its IRI",
        ),
        (
            r#"{"id":"x","properties":[{"id":"a","label":""}]}"#,
            "/properties/0/label: is empty; leave it out",
        ),
        (
            r#"{"id":"x","individuals":[{"id":"a","synonyms":["b",true]}]}"#,
            "/individuals/0/synonyms/1: is true or false and must be a text; write it in quotes, or leave it out",
        ),
        (
            r#"{"id":"x","individuals":[{"id":"a","synonyms":["b"," "]}]}"#,
            "/individuals/0/synonyms/1: is empty; leave it out",
        ),
    ] {
        let error = Ontology::parse_json(document.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), expected);
        let pointer = expected.split(": ").next().unwrap().replace("the document", "");
        assert_eq!(error.pointer(), Some(pointer.as_str()));
    }
}

#[test]
fn malformed_json_is_refused_with_line_and_column() {
    let error = Ontology::parse_json("{\"id\":\n \"ä\" 1}".as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "not JSON at line 2 column 6: expected `,` or `}`");
    let twice = Ontology::parse_json(br#"{"id":"a","id":"b"}"#).unwrap_err();
    assert_eq!(twice.to_string(), r#"not JSON at line 1 column 11: duplicate name "id""#);
    assert!(Ontology::parse_json(b"\xff").is_err());
    let large = vec![b' '; limits::MAX_DOCUMENT + 1];
    let error = Ontology::parse_json(&large).unwrap_err();
    assert!(matches!(error, OntologyError::TooLarge { limit: limits::MAX_DOCUMENT, .. }));
}

#[test]
fn the_limits_themselves_are_allowed() {
    let mut most = football();
    most.classes[0].id = "x".repeat(MAX_ID);
    most.classes[0].label = Some("ä".repeat(MAX_LABEL));
    most.classes[0].synonyms = (0..MAX_SYNONYMS).map(|n| n.to_string()).collect();
    assert_eq!(Ontology::parse_json(most.to_json().as_bytes()).unwrap(), most);

    most.classes =
        (0..limits::MAX_CLASSES).map(|n| Class { id: n.to_string(), ..Class::default() }).collect();
    assert!(Ontology::parse_json(most.to_json().as_bytes()).is_ok());
    most.classes.push(Class { id: "one more".into(), ..Class::default() });
    let error = Ontology::parse_json(most.to_json().as_bytes()).unwrap_err();
    assert_eq!(error.pointer(), Some("/classes"));
}
