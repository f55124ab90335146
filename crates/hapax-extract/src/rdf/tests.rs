//! Tests of the import.

use proptest::prelude::*;

use super::*;
use crate::ontology::limits::{MAX_ID, MAX_LABEL};
use crate::ontology::{Class, Individual, Property};

const TURTLE: &str = include_str!("../../tests/football.ttl");
const RDF_XML: &str = include_str!("../../tests/football.rdf");
const JSON_LD: &str = include_str!("../../tests/football.jsonld");

const EX: &str = "https://example.org/football#";

fn ex(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("{EX}{name}")).collect()
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// The ontology that all three documents describe.
fn football() -> Ontology {
    let class = |name: &str, label: Option<&str>, synonyms: &[&str], above: &[&str]| Class {
        id: format!("{EX}{name}"),
        label: label.map(str::to_owned),
        synonyms: texts(synonyms),
        sub_class_of: ex(above),
        properties: Vec::new(),
    };
    let xsd = |name: &str| format!("http://www.w3.org/2001/XMLSchema#{name}");
    Ontology {
        id: "https://example.org/football".into(),
        label: Some("Football".into()),
        classes: vec![
            class("Club", Some("club"), &["Verein", "football club", "soccer club"], &[]),
            class("Person", None, &[], &[]),
            class("Player", Some("player"), &["Spieler"], &["Person"]),
            class("Trainer", Some("Trainer"), &["entraîneur"], &["Person"]),
        ],
        properties: vec![
            Property {
                id: format!("{EX}founded"),
                label: Some("founded in".into()),
                synonyms: Vec::new(),
                domain: ex(&["Club"]),
                range: vec![xsd("gYear")],
            },
            Property {
                id: format!("{EX}nickname"),
                label: None,
                synonyms: Vec::new(),
                domain: Vec::new(),
                range: vec!["http://www.w3.org/2000/01/rdf-schema#Literal".into()],
            },
            Property {
                id: format!("{EX}worksFor"),
                label: Some("works for".into()),
                synonyms: texts(&["is under contract with"]),
                domain: ex(&["Player", "Trainer"]),
                range: ex(&["Club"]),
            },
        ],
        individuals: vec![
            Individual {
                id: format!("{EX}Ajax"),
                label: Some("AFC Ajax".into()),
                synonyms: texts(&["Ajax"]),
                types: ex(&["Club"]),
            },
            Individual {
                id: format!("{EX}Johan_Cruijff"),
                label: None,
                synonyms: Vec::new(),
                types: ex(&["Player", "Trainer"]),
            },
            Individual {
                id: format!("{EX}Offside"),
                label: None,
                synonyms: Vec::new(),
                types: Vec::new(),
            },
        ],
    }
}

fn turtle(body: &str) -> Result<Ontology, OntologyError> {
    let document = format!(
        "@prefix owl: <http://www.w3.org/2002/07/owl#> .
         @prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
         @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
         @prefix skos: <http://www.w3.org/2004/02/skos/core#> .
         @prefix : <urn:x:> .
         {body}"
    );
    import(document.as_bytes(), Syntax::Turtle, None, Some("urn:x"))
}

/// Proves X-2.
#[test]
fn the_same_graph_is_the_same_ontology_in_every_syntax() {
    let documents =
        [(TURTLE, Syntax::Turtle), (RDF_XML, Syntax::RdfXml), (JSON_LD, Syntax::JsonLd)];
    for (document, syntax) in documents {
        let ontology = import(document.as_bytes(), syntax, None, None).unwrap();
        assert_eq!(ontology, football(), "{syntax}");
        assert_eq!(ontology.version(), football().version());
        let again = import(ontology.to_json().as_bytes(), Syntax::Json, None, None).unwrap();
        assert_eq!(again, football());
    }
}

/// Proves X-2.
#[test]
fn the_order_of_statements_makes_no_difference() {
    let statements = [
        ":A a owl:Class ; rdfs:label \"a\"@en , \"b\" , \"c\"@de , \"d\"@fr .",
        ":B rdfs:subClassOf :A ; skos:altLabel \"y\" , \"x\" .",
        ":p a rdf:Property ; rdfs:domain :A , :B , [ owl:unionOf ( :C :D ) ] .",
        ":i a :B , :A .",
        ":A skos:prefLabel \"e\"@en .",
    ];
    let forth = turtle(&statements.join("\n")).unwrap();
    let mut back = statements;
    back.reverse();
    assert_eq!(turtle(&back.join("\n")).unwrap(), forth);
    assert_eq!(forth.classes[0].names().collect::<Vec<_>>(), ["e", "a", "b", "c", "d"]);
    assert_eq!(forth.classes[1].id, "urn:x:B", "only a class can be a kind of something");
    assert_eq!(forth.properties[0].domain, ["urn:x:A", "urn:x:B", "urn:x:C", "urn:x:D"]);
}

#[test]
fn a_label_is_english_or_of_no_language_where_there_is_one() {
    for (labels, expected) in [
        (r#"rdfs:label "x"@de , "y"@en"#, vec!["y", "x"]),
        (r#"rdfs:label "x"@en-GB , "y""#, vec!["y", "x"]),
        (r#"rdfs:label "x"@de , "y"@en-GB"#, vec!["y", "x"]),
        (r#"rdfs:label "x"@fr , "y"@de"#, vec!["y", "x"]),
        (r#"rdfs:label "x"@en ; skos:prefLabel "y"@en"#, vec!["y", "x"]),
        (r#"skos:altLabel "x" ; skos:hiddenLabel "y""#, vec!["A", "x", "y"]),
        (r#"rdfs:label "x"@en , "x"@de ; skos:altLabel "x""#, vec!["x"]),
        ("rdfs:label \"\"\" two\n   lines \"\"\"", vec!["two lines"]),
        (r#"rdfs:label " " ; skos:altLabel """#, vec!["A"]),
    ] {
        let ontology = turtle(&format!(":A a owl:Class ; {labels} .")).unwrap();
        assert_eq!(ontology.classes[0].names().collect::<Vec<_>>(), expected, "{labels}");
    }
}

#[test]
fn unions_are_taken_apart_and_what_has_no_name_is_left_out() {
    let ontology = turtle(
        ":A a owl:Class ; rdfs:subClassOf :B , owl:Thing , :A ,
             [ a owl:Restriction ; owl:onProperty :p ; owl:someValuesFrom :B ] .
         [] a owl:Class ; rdfs:subClassOf :A .
         [] a :A .
         :p a owl:ObjectProperty ; rdfs:domain [ owl:unionOf ( :A [ owl:unionOf ( :B :C ) ] ) ] ;
             rdfs:range [ a owl:Restriction ] .
         _:u owl:unionOf _:l . _:l rdf:first :A ; rdf:rest _:m . _:m rdf:first _:u ; rdf:rest _:l .
         :q a owl:ObjectProperty ; rdfs:range _:u .",
    )
    .unwrap();
    let [class] = ontology.classes.as_slice() else { panic!("{:?}", ontology.classes) };
    assert_eq!(class.sub_class_of, ["urn:x:B"]);
    assert_eq!(ontology.properties[0].domain, ["urn:x:A", "urn:x:B", "urn:x:C"]);
    assert!(ontology.properties[0].range.is_empty());
    assert_eq!(ontology.properties[1].range, ["urn:x:A"]);
    assert!(ontology.individuals.is_empty());
}

#[test]
fn properties_are_statements_about_the_world() {
    let ontology = turtle(
        ":a a owl:ObjectProperty . :b a owl:DatatypeProperty . :c a rdf:Property .
         :d a owl:AnnotationProperty . :e a rdf:Property , owl:AnnotationProperty .
         :f a owl:TransitiveProperty . :g a owl:FunctionalProperty .
         :h a owl:AnnotationProperty , owl:ObjectProperty .",
    )
    .unwrap();
    let ids: Vec<_> = ontology.properties.iter().map(|property| property.id.as_str()).collect();
    assert_eq!(ids, ["urn:x:a", "urn:x:b", "urn:x:c", "urn:x:f", "urn:x:g", "urn:x:h"]);
}

#[test]
fn an_ontology_has_its_own_id_or_a_given_one() {
    let import = |document: &str, id| import(document.as_bytes(), Syntax::Turtle, None, id);
    let none = "<urn:a> a <http://www.w3.org/2002/07/owl#Class> .";
    assert_eq!(import(none, None), Err(OntologyError::NoId));
    assert_eq!(import(none, Some("urn:o")).unwrap().id, "urn:o");
    let two = "<urn:b> a <http://www.w3.org/2002/07/owl#Ontology> ;
            <http://purl.org/dc/elements/1.1/title> \"B\" .
        <urn:a> a <http://www.w3.org/2002/07/owl#Ontology> .";
    assert_eq!(
        import(two, None).unwrap_err().to_string(),
        "the document is several ontologies (urn:a, urn:b); give the id of the one that is meant"
    );
    assert_eq!(import(two, Some("urn:b")).unwrap().label.as_deref(), Some("B"));
    let json = br#"{"id": "urn:a"}"#;
    assert_eq!(super::import(json, Syntax::Json, None, Some("urn:o")).unwrap().id, "urn:o");
}

#[test]
fn a_base_makes_relative_iris_absolute() {
    let document = b"<#A> a <http://www.w3.org/2002/07/owl#Class> .";
    let import = |base| import(document, Syntax::Turtle, base, Some("urn:o"));
    assert_eq!(
        import(Some("https://example.org/o")).unwrap().classes[0].id,
        "https://example.org/o#A"
    );
    assert!(import(None).unwrap_err().to_string().starts_with("not Turtle at line 1 column 1: "));
    for syntax in [Syntax::Turtle, Syntax::RdfXml, Syntax::JsonLd] {
        let error = super::import(b"{}", syntax, Some("o"), None).unwrap_err();
        assert!(
            error.to_string().starts_with("the base \"o\" is not an absolute IRI: "),
            "{error}"
        );
    }
}

#[test]
fn a_relative_iri_without_a_base_is_refused_in_json_ld_too() {
    let document = br##"{"@id": "#A", "@type": "http://www.w3.org/2002/07/owl#Class"}"##;
    let import = |base| import(document, Syntax::JsonLd, base, Some("urn:o"));
    assert_eq!(import(Some("urn:o")).unwrap().classes[0].id, "urn:o#A");
    assert_eq!(
        import(None).unwrap_err().to_string(),
        "<#A>: is relative, and there is no base; write the IRI in full, or give a base"
    );
}

#[test]
fn a_syntax_error_is_refused_with_line_and_column() {
    for (document, syntax, expected) in [
        ("<urn:a> a <urn:b> .\n<urn:ä> \"x\" .", Syntax::Turtle, "not Turtle at line 2 column 9: "),
        ("x:y a x:z .", Syntax::Turtle, "not Turtle at line 1 column 1: "),
        ("<a xmlns='urn:a'>\n <b></a>", Syntax::RdfXml, "not RDF/XML at line 2 column "),
        ("\u{feff}{\n \"@id\": }", Syntax::JsonLd, "not JSON-LD at line 2 column 9: "),
        ("{\"@id\": 7}", Syntax::JsonLd, "not JSON-LD: "),
    ] {
        let error = import(document.as_bytes(), syntax, None, Some("urn:o")).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

#[test]
fn a_remote_context_is_refused_and_never_fetched() {
    let document = br#"{"@context": "https://schema.org", "@id": "urn:a"}"#;
    let error = import(document, Syntax::JsonLd, None, None).unwrap_err();
    assert_eq!(error.pointer(), Some("/@context"));
}

#[test]
fn limits_hold_for_rdf_and_name_the_resource() {
    let long = "x".repeat(MAX_LABEL + 1);
    let error = turtle(&format!(":A a owl:Class ; rdfs:label \"{long}\" .")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "<urn:x:A>: is longer than 1000 characters; give the name only, not its explanation"
    );
    let long = "x".repeat(MAX_ID);
    let error = turtle(&format!(":{long} a owl:Class .")).unwrap_err();
    assert!(error.to_string().ends_with(": is longer than 2048 bytes; give a shorter IRI"));
    // Objects of a predicate that is not read may have any length.
    assert!(turtle(&format!(":A a owl:Class ; rdfs:seeAlso :{long} .")).is_ok());

    let prefix = "x".repeat(1024 * 1024);
    let many = ":a :b y: .\n".repeat(600);
    let error = turtle(&format!("@prefix y: <urn:{prefix}> .\n{many}")).unwrap_err();
    assert!(error.to_string().contains("prefixes written out"), "{error}");

    let document = vec![b' '; MAX_JSON_LD + 1];
    assert!(import(&document, Syntax::JsonLd, None, None).is_err());
    assert!(import(&[b' '; MAX_DOCUMENT + 1], Syntax::Turtle, None, Some("urn:o")).is_err());
}

#[test]
fn a_union_that_everything_shares_is_paid_for_each_time() {
    let members: String = (0..1_000).map(|n| format!(":c{n} ")).collect();
    let users: String =
        (0..600).map(|n| format!(":p{n} rdfs:domain _:u ; a rdf:Property .\n")).collect();
    let error = turtle(&format!("_:u owl:unionOf ( {members} ) .\n{users}")).unwrap_err();
    assert!(error.to_string().starts_with("the members of all unions"), "{error}");
}

#[test]
fn a_syntax_is_known_by_its_media_type_or_file() {
    for (media_type, path, syntax) in [
        ("application/json", "o.json", Some(Syntax::Json)),
        ("Text/Turtle; charset=utf-8", "a/o.TTL", Some(Syntax::Turtle)),
        ("application/rdf+xml", "o.owl", Some(Syntax::RdfXml)),
        ("application/xml", "o.v2.rdf", Some(Syntax::RdfXml)),
        ("application/ld+json;profile=x", "o.jsonld", Some(Syntax::JsonLd)),
        ("application/owl+xml", "o.ofn", None),
        ("", "ttl", None),
    ] {
        assert_eq!(Syntax::of_media_type(media_type), syntax, "{media_type}");
        assert_eq!(Syntax::of_path(Path::new(path)), syntax, "{path}");
    }
    assert_eq!(Syntax::of_path(Path::new("o.xml")), Some(Syntax::RdfXml));
}

const SYNTAXES: [Syntax; 4] = [Syntax::Json, Syntax::Turtle, Syntax::RdfXml, Syntax::JsonLd];

/// Words that get a parser further than random bytes do.
fn soup() -> impl Strategy<Value = String> {
    let words = [
        "@prefix",
        "@base",
        "@context",
        "@id",
        "@type",
        "@graph",
        "@list",
        "@reverse",
        "@value",
        "@language",
        "@container",
        "@nest",
        "@index",
        "@included",
        "@set",
        "@json",
        "@none",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        ":",
        ",",
        ";",
        ".",
        "\"",
        "'",
        "<",
        ">",
        "</",
        "/>",
        "<!--",
        "-->",
        "<![CDATA[",
        "<!ENTITY",
        "<!DOCTYPE",
        "<?xml",
        "&a;",
        "&#x0;",
        "rdf:RDF",
        "rdf:about",
        "rdf:li",
        "rdf:parseType",
        "=",
        "a",
        "_:a",
        "urn:a",
        "@en",
        "^^",
        "\\u",
        "1",
        "-",
        "e9",
        "true",
        "null",
        "\n",
        " ",
        "ä",
        "\u{1f600}",
        "\0",
    ];
    proptest::collection::vec(proptest::sample::select(words.to_vec()), 0..60)
        .prop_map(|words| words.concat())
}

/// Well-formed JSON of JSON-LD's keywords, most of it nonsense.
fn nonsense() -> impl Strategy<Value = serde_json::Value> {
    let words = [
        "@context",
        "@id",
        "@type",
        "@graph",
        "@list",
        "@reverse",
        "@value",
        "@language",
        "@container",
        "@nest",
        "@index",
        "@included",
        "@set",
        "@json",
        "@none",
        "@vocab",
        "@base",
        "@version",
        "@propagate",
        "@protected",
        "@prefix",
        "@direction",
        "@default",
        "a",
        "a:b",
        "_:b",
        "urn:a",
        "",
        ":",
        "ltr",
        "en",
        "#",
        "../x",
    ];
    let word = proptest::sample::select(words.to_vec());
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i32>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        word.clone().prop_map(Into::into),
    ];
    leaf.prop_recursive(6, 60, 6, move |inner| {
        let members = proptest::collection::vec((word.clone(), inner.clone()), 0..6);
        prop_oneof![
            proptest::collection::vec(inner, 0..5).prop_map(Into::into),
            members.prop_map(|members| {
                members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            }),
        ]
    })
}

/// A valid document with a piece of it cut out, repeated or replaced.
fn damaged(document: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let piece = (0..document.len(), 0..40usize, any::<Vec<u8>>(), any::<bool>());
    piece.prop_map(move |(at, length, other, twice)| {
        let end = (at + length).min(document.len());
        let (before, after) = (&document.as_bytes()[..at], &document.as_bytes()[end..]);
        let middle = if twice { document.as_bytes()[at..end].repeat(2) } else { other };
        [before, &middle, after].concat()
    })
}

proptest! {
    #[test]
    fn random_bytes_are_refused_or_read_and_nothing_else(bytes: Vec<u8>) {
        for syntax in SYNTAXES {
            let _ = import(&bytes, syntax, Some("urn:base"), Some("urn:o"));
        }
    }

    #[test]
    fn words_of_the_syntaxes_in_any_order_are_refused_or_read(text in soup()) {
        for syntax in SYNTAXES {
            let _ = import(text.as_bytes(), syntax, Some("urn:base"), Some("urn:o"));
        }
    }

    #[test]
    fn nonsense_in_json_ld_is_refused_or_read(json in nonsense()) {
        let _ = import(json.to_string().as_bytes(), Syntax::JsonLd, None, Some("urn:o"));
        let _ = import(json.to_string().as_bytes(), Syntax::Json, None, None);
    }

    #[test]
    fn damaged_documents_are_refused_or_read(
        turtle in damaged(TURTLE), xml in damaged(RDF_XML), json in damaged(JSON_LD),
    ) {
        let _ = import(&turtle, Syntax::Turtle, None, None);
        let _ = import(&xml, Syntax::RdfXml, None, None);
        let _ = import(&json, Syntax::JsonLd, None, None);
    }
}
