//! The webhook tool.

use std::time::{Duration, UNIX_EPOCH};

use hapax::{Finding, Safety, Settling};
use hapax_items::{Class, Difference, Tool as _};
use hapax_sinks::webhook::{Secret, verify};
use hapax_testkit::{Cut, free_port};
use hapax_tools::{Webhook, WebhookToolSettings};

use crate::site::Site;
use crate::stage::{call, compare, found, json, mutate, text};

fn secret() -> Secret {
    Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a secret")
}

fn settings(port: u16) -> WebhookToolSettings {
    let url = format!("http://127.0.0.1:{port}/events");
    WebhookToolSettings { allow_private: true, ..WebhookToolSettings::new(url, vec![secret()]) }
}

const PAID: &str = r#"{"event": "order.paid", "data": {"n": 1.0, "id": "7"}}"#;

#[tokio::test]
async fn a_webhook_is_signed_and_has_an_id_of_its_key() {
    let site = Site::start().await;
    site.answers("/events", 204, "");
    let tool = Webhook::new(settings(site.port)).expect("a tool");
    let send = call(&tool, "send", PAID);
    assert_eq!(text(&send.plan.identity), r#"{"event":"order.paid"}"#);
    let id = format!("msg_{}", send.key.to_string().trim_start_matches("sha256:"));
    let result = mutate(&tool, &send).await.unwrap();
    assert_eq!(text(&result), format!(r#"{{"id":"{id}"}}"#));
    let [got] = &site.got()[..] else { panic!("{:?}", site.got()) };
    assert_eq!(got.body, r#"{"data":{"id":"7","n":1},"type":"order.paid"}"#);
    let now = UNIX_EPOCH.elapsed().unwrap().as_secs();
    let tolerance = Duration::from_secs(60);
    let header = |name: &str| got.header(name);
    assert_eq!(verify(&[secret()], header, got.body.as_bytes(), now, tolerance), Ok(&*id));
}

/// Proves I-6.
#[test]
fn payloads_differ_in_three_degrees() {
    let tool = Webhook::new(settings(1)).expect("a tool");
    for (one, other, expected) in [
        (r#"{"a": 1, "b": 2}"#, r#"{"b": 2.0, "a": 1}"#, Difference::Equivalent),
        (r#"{"a": {"b": null, "c": 1}}"#, r#"{"a": {"c": 1}}"#, Difference::Minor),
        (r#"{"a": [null]}"#, r#"{"a": []}"#, Difference::Significant),
        (r#"{"a": 1}"#, r#"{"a": 2}"#, Difference::Significant),
    ] {
        let arguments = |data| format!(r#"{{"event": "e", "data": {data}}}"#);
        let degree = compare(&tool, "send", &arguments(one), &arguments(other));
        assert_eq!(degree, expected, "{one} {other}");
    }
}

/// Proves I-8, K-7: a lost answer leaves the outcome unknown; a receiver that remembers ids can be
/// asked.
#[tokio::test]
async fn a_receiver_that_remembers_ids_is_asked_again() {
    let site = Site::start().await;
    site.answers("/events", 200, "");
    site.honour_keys();
    let cut = Cut::after(site.port, "order.paid\"}");
    let opaque = Webhook::new(settings(cut.port())).expect("a tool");
    let send = call(&opaque, "send", PAID);
    let error = mutate(&opaque, &send).await.unwrap_err();
    assert_eq!(error.class, Class::Indeterminate, "{error}");
    assert_eq!(opaque.safety("send"), Safety::Opaque);
    assert!(matches!(opaque.reconcile(&send).await, Finding::CannotTell(_)));

    let honouring = WebhookToolSettings { honours_id: true, ..settings(site.port) };
    let tool = Webhook::new(honouring).expect("a tool");
    assert_eq!(tool.safety("send"), Safety::Reconcilable(Settling::TargetRefusesLate));
    assert!(found(tool.reconcile(&send).await).starts_with(r#"{"id":"msg_"#));
    assert_eq!((site.got().len(), site.done()), (2, 1), "sent twice, taken once");
}

/// Proves I-10.
#[tokio::test]
async fn each_refusal_has_its_class() {
    let down = Webhook::new(settings(free_port())).expect("a tool");
    let error = mutate(&down, &call(&down, "send", PAID)).await.unwrap_err();
    assert_eq!(error.class, Class::Transient, "{error}");
    let site = Site::start().await;
    let tool = Webhook::new(settings(site.port)).expect("a tool");
    for (status, expected) in [
        (400, Class::Logic),
        (401, Class::Permission),
        (410, Class::Precondition),
        (429, Class::Transient),
        (500, Class::Indeterminate),
    ] {
        site.answers("/events", status, "");
        let error = mutate(&tool, &call(&tool, "send", PAID)).await.unwrap_err();
        assert_eq!(error.class, expected, "{error}");
    }
    for arguments in ["{}", r#"{"event": " "}"#, r#"{"event": "e", "date": 1}"#] {
        assert_eq!(tool.plan("send", &json(arguments)).unwrap_err().class, Class::Logic);
    }
    let public = WebhookToolSettings { allow_private: false, ..settings(site.port) };
    assert!(Webhook::new(public).is_err(), "a private address");
    let unsigned = WebhookToolSettings { secrets: Vec::new(), ..settings(site.port) };
    assert!(Webhook::new(unsigned).is_err());
}
