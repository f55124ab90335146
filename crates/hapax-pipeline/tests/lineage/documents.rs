//! The form of the documents.

use expect_test::{expect, expect_file};
use hapax::json::Json;
use hapax_pipeline::lineage::{
    Completed, attestation, cypher, dcat, names, openlineage, prov, stac,
};
use hapax_pipeline::{Moment, RunChange};

use crate::fixture::{awkward, completed, cut, ids, moment, moments, run, shown};

const PRODUCER: &str = "https://example.org/hapax";

/// Proves P-11.
#[test]
fn an_event_of_openlineage_says_what_was_read_and_what_was_made() {
    expect_file!["expected/openlineage.json"]
        .assert_eq(&shown(&openlineage::event(&completed(), PRODUCER)));
}

/// Proves P-7.
#[test]
fn only_a_run_that_happened_claims_outputs() {
    let row = |moment: &Moment| {
        let event = openlineage::event(moment, PRODUCER);
        let text = |pointer: &str| event.pointer(pointer).and_then(Json::as_str).unwrap_or("-");
        let outputs = event.get("outputs").and_then(Json::as_array).unwrap().len();
        let [kind, state, why] = [
            "/eventType",
            "/run/facets/hapax_idempotency/state",
            "/run/facets/errorMessage/message",
        ]
        .map(text);
        let prov = event.pointer("/run/facets/hapax_documents/prov").is_some();
        format!("{kind} {state}: {outputs} outputs, prov {prov}, {why}\n")
    };
    expect![[r#"
        START running: 0 outputs, prov false, -
        RUNNING unsettled: 0 outputs, prov false, disk full
        FAIL failed: 0 outputs, prov false, disk full
        ABORT given_up: 0 outputs, prov false, -
        COMPLETE succeeded: 0 outputs, prov true, -
        COMPLETE succeeded: 1 outputs, prov true, -
    "#]]
    .assert_eq(&moments().iter().map(row).collect::<String>());
}

/// Proves P-13 for lineage.
#[test]
fn whether_an_event_is_about_sovereignty_is_always_said() {
    let label = |moment: &Moment| {
        let event = openlineage::event(moment, PRODUCER);
        event.pointer("/run/facets/hapax_governance/sovereignty_event").cloned()
    };
    assert_eq!(label(&awkward()), Some(Json::Bool(true)));
    assert!(moments().iter().all(|moment| label(moment) == Some(Json::Bool(false))));
    let turtle = prov::turtle(&Completed::of(&awkward()).unwrap());
    assert!(turtle.contains(r#"hapax:sovereigntyEvent "true"^^xsd:boolean"#), "{turtle}");
}

/// Proves P-11.
#[test]
fn prov_says_what_was_done_by_whom_from_what() {
    let moment = completed();
    let turtle = prov::turtle(&Completed::of(&moment).unwrap());
    let statements = turtle.split_once("\n\n").map(|(_, statements)| statements).unwrap();
    expect_file!["expected/prov.ttl"].assert_eq(&cut(statements));
}

/// Proves P-11.
#[test]
fn an_item_of_stac_says_where_the_bytes_are_and_what_they_hash_to() {
    let moment = completed();
    let done = Completed::of(&moment).unwrap();
    let items = done.editions();
    expect_file!["expected/item.json"].assert_eq(&shown(&stac::item(&done, &items[0])));
    let dataset = items[0].dataset;
    let collection = stac::collection(&stac::Newest::of(&done, dataset), dataset, &ids(&items));
    expect_file!["expected/collection.json"].assert_eq(&shown(&collection));
    let newest = stac::Newest::read(&collection);
    assert_eq!(newest, Some(stac::Newest::of(&done, dataset)), "it is read again");
}

/// Proves P-11.
#[test]
fn a_dataset_of_dcat_has_its_distributions() {
    let moment = completed();
    let document = dcat::json_ld(&Completed::of(&moment).unwrap());
    expect_file!["expected/dcat.json"].assert_eq(&shown(document.get("@graph").unwrap()));
}

/// Proves P-12.
#[test]
fn graph_writes_are_dataset_activity_attribute_actor_document() {
    let texts = |moment: &Moment| -> Vec<_> {
        cypher::statements(moment).into_iter().map(|statement| statement.text).collect()
    };
    let written = texts(&completed());
    expect_file!["expected/statements.cypher"].assert_eq(&(written.join("\n\n") + "\n"));
    // No text has values of a run in it, so all runs have the same texts.
    for moment in moments().iter().chain([&awkward()]) {
        assert_eq!(texts(moment), written);
        assert_eq!(cypher::statements(moment), cypher::statements(moment));
    }
}

/// Proves P-12.
#[test]
fn values_of_a_run_are_parameters_of_its_cypher_statements() {
    let body = cypher::transaction(&cypher::statements(&completed()));
    let statements = body.get("statements").and_then(Json::as_array).unwrap();
    let parameters = statements.iter().map(|it| shown(it.get("parameters").unwrap()));
    expect_file!["expected/parameters.txt"].assert_eq(&parameters.collect::<String>());
}

#[test]
fn an_attestation_says_what_made_an_artifact() {
    let moment = completed();
    let done = Completed::of(&moment).unwrap();
    let artifact = done.editions()[0].artifacts[0];
    let statement = attestation::statement(&done, artifact, PRODUCER).unwrap();
    expect_file!["expected/attestation.json"].assert_eq(&shown(&statement));
    let mut other = artifact.clone();
    other.checksum = "crc32:8a3f".into();
    assert_eq!(attestation::statement(&done, &other, PRODUCER), None);
}

#[test]
fn an_envelope_opens_for_a_good_signature_only() {
    use attestation::{EnvelopeError, PAYLOAD_TYPE, open, pae, seal};

    assert_eq!(
        pae("http://example.com/HelloWorld", b"hello world"),
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    );
    let statement = Json::parse(br#"{"a":1}"#).unwrap();
    let sign = |bytes: &[u8]| ("k1".to_owned(), bytes.iter().rev().copied().collect::<Vec<_>>());
    let verify = |bytes: &[u8], signature: &[u8]| signature == sign(bytes).1;
    let envelope = seal(&statement, sign);
    assert_eq!(envelope.pointer("/signatures/0/keyid"), Some(&Json::text("k1")));
    assert_eq!(open(&envelope, verify).unwrap().get("a").and_then(Json::as_u64), Some(1));
    assert_eq!(open(&envelope, |_, _| false), Err(EnvelopeError::Signature));

    let changed = |name: &str, value: Json| {
        let Json::Object(members) = envelope.clone() else { unreachable!() };
        let change = |(member, old): (String, Json)| {
            let value = if member == name { value.clone() } else { old };
            (member, value)
        };
        open(&Json::Object(members.into_iter().map(change).collect()), verify)
    };
    // {"a":2}, under the signature of another.
    assert_eq!(changed("payload", Json::text("eyJhIjoyfQ==")), Err(EnvelopeError::Signature));
    assert_eq!(changed("payload", Json::text("?")), Err(EnvelopeError::Malformed("payload")));
    assert_eq!(changed("payloadType", Json::Null), Err(EnvelopeError::Malformed("payloadType")));
    let other = changed("payloadType", Json::text("text/plain"));
    assert_eq!(other, Err(EnvelopeError::PayloadType("text/plain".into())));
    assert_eq!(changed("signatures", Json::Array(Vec::new())), Err(EnvelopeError::Signature));
    assert!(EnvelopeError::PayloadType("x".into()).to_string().contains(PAYLOAD_TYPE));
}

/// Proves P-11.
#[test]
fn names_are_derived_and_differ_where_runs_do() {
    let id = |change: fn(&mut hapax_pipeline::Run)| {
        let mut run = run();
        change(&mut run);
        names::run_id(&run)
    };
    let same = id(|_| {});
    assert_eq!(same, id(|_| {}));
    assert!(same.starts_with("019a7e92-d780-7"), "{same}");
    assert_eq!((same.as_bytes()[14], same.len()), (b'7', 36));
    let others = [
        id(|run| run.generation = 2),
        id(|run| run.attempt = hapax::AttemptId::from_bytes([8; 16])),
        id(|run| run.namespace = hapax::Namespace::new("other").unwrap()),
        id(|run| run.key = hapax::Key::derive("other.v1", &[]).unwrap()),
        id(|run| run.started.at.0 += 1),
    ];
    assert!(others.iter().all(|other| *other != same));
    assert_eq!(names::artifact("a:b", "c"), "urn:hapax:artifact:a%3Ab:c");
    assert_ne!(names::stac_item("a", "b-c"), names::stac_item("a-b", "c"));
}

/// Proves P-7.
#[test]
fn an_operation_that_did_not_happen_has_no_provenance() {
    let failed = moment(run(), RunChange::Fail { reason: "no".into() });
    assert!(Completed::of(&failed).is_none());
    let by_hand = moment(run(), RunChange::Complete { product: None, digest: None });
    assert!(Completed::of(&by_hand).unwrap().editions().is_empty());
}
