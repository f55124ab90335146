//! A replay with another payload, by the tools that reach servers.

use std::sync::Arc;
use std::time::Duration;

use hapax::Hapax;
use hapax_items::{Action, Class, Difference, Error, Items, MutationState, Settings, Tool};
use hapax_sinks::webhook::Secret;
use hapax_testkit::Mail;
use hapax_tools::email::Tls;
use hapax_tools::{Email, EmailSettings, Http, HttpSettings, Webhook, WebhookToolSettings};

use crate::site::Site;
use crate::stage::compare;

/// Applies a change, and requests it again with other payloads: equivalent, minor and significant.
/// Asserts that it is applied once.
async fn replayed(tool: Arc<dyn Tool>, operation: &str, [applied, others @ ..]: [&str; 4]) {
    let name = tool.name().to_owned();
    let settings = Settings { tool_timeout: Duration::from_secs(20), ..Settings::new("letters") };
    let hapax = Hapax::builder().in_memory();
    let items = Items::new(hapax, vec![tool.clone()], vec![settings]).expect("set up");
    let drive = async |arguments: &str, end: &str| {
        let script = format!(
            r#"await withItem("a", "Item", async (ctx) => {{
                if (ctx.item.isDone) return;
                console.log(JSON.stringify(await {name}.{operation}({arguments})));
                {end}
            }});"#
        );
        items.publish("letters", &script, "ada").await.expect("published");
        let failure = match items.drive("letters", None).await {
            Err(Error::Failed { failure, .. }) => failure,
            other => panic!("{arguments}: {other:?}"),
        };
        let log = items.runs("letters", None, 1).await.expect("runs").remove(0).log;
        (failure.class, failure.message, log)
    };
    let stop = r#"throw new Error("stop");"#;
    let (class, message, result) = drive(applied, stop).await;
    assert_eq!((class, result.len()), (Class::Logic, 1), "{message}");
    let degrees = [Difference::Equivalent, Difference::Minor, Difference::Significant];
    for (requested, degree) in others.into_iter().zip(degrees) {
        assert_eq!(compare(&*tool, operation, applied, requested), degree, "{requested}");
        let open = items.escalations(None, 1).await.expect("a list").remove(0);
        let person = ("ada", "it is mended");
        let acted = items.act(open.key, open.judged, Action::TryAgain, None, person).await;
        acted.expect("decided");
        let (class, message, log) = drive(requested, stop).await;
        match degree {
            Difference::Significant => {
                assert_eq!(class, Class::Precondition, "{requested}: {message}");
                assert!(log.is_empty(), "{name} got no result");
            }
            _ => {
                assert!(
                    class == Class::Logic && message.contains("stop"),
                    "{requested}: {message}"
                );
                assert_eq!(log, result, "{requested}");
            }
        }
    }
    let item = items.show("letters", "a").await.expect("an item");
    let mutations = items.mutations(item.key, 1).await.expect("mutations");
    let states: Vec<_> = mutations.iter().map(|each| (each.state, each.attempts)).collect();
    assert_eq!(states, [(MutationState::Applied, 1)], "{name}");
}

/// Proves I-6: an HTTP server gets one request, whatever the difference.
#[tokio::test]
async fn a_request_is_not_sent_again_with_another_payload() {
    let site = Site::start().await;
    site.answers("/orders", 201, r#"{"id": 7}"#);
    let settings = HttpSettings {
        base: Some(site.url("/").parse().expect("a URL")),
        allow_private: true,
        ..HttpSettings::new("crm")
    };
    let tool = Arc::new(Http::new(settings).expect("a tool"));
    let changes = [
        r#"{"url": "orders", "body": {"a": 1}, "headers": {"prefer": "1"}}"#,
        r#"{"url": "orders", "body": {"a": 1.0}, "headers": {"prefer": "1"}}"#,
        r#"{"url": "orders", "body": {"a": 1}, "headers": {"prefer": "2"}}"#,
        r#"{"url": "orders", "body": {"a": 2}, "headers": {"prefer": "1"}}"#,
    ];
    replayed(tool, "post", changes).await;
    assert_eq!((site.done(), site.got().len()), (1, 1));
}

/// Proves I-6: a webhook is sent once, whatever the difference.
#[tokio::test]
async fn a_webhook_is_not_sent_again_with_another_payload() {
    let site = Site::start().await;
    site.answers("/events", 204, "");
    let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a secret");
    let settings = WebhookToolSettings {
        name: "hook".into(),
        allow_private: true,
        ..WebhookToolSettings::new(site.url("/events"), vec![secret])
    };
    let tool = Arc::new(Webhook::new(settings).expect("a tool"));
    let changes = [
        r#"{"event": "e", "data": {"a": 1, "b": null}}"#,
        r#"{"event": "e", "data": {"b": null, "a": 1.0}}"#,
        r#"{"event": "e", "data": {"a": 1}}"#,
        r#"{"event": "e", "data": {"a": 2, "b": null}}"#,
    ];
    replayed(tool, "send", changes).await;
    assert_eq!((site.done(), site.got().len()), (1, 1));
}

/// Proves I-6: a mail is sent once, whatever the difference.
#[tokio::test]
async fn a_mail_is_not_sent_again_with_another_payload() {
    let mail = Mail::open();
    let settings = EmailSettings {
        name: "mail".into(),
        port: mail.smtp(),
        tls: Tls::None,
        timeout: Duration::from_secs(30),
        ..EmailSettings::new("127.0.0.1", "Hapax <hapax@example.org>")
    };
    let tool = Arc::new(Email::new(settings).expect("a tool"));
    let changes = [
        r#"{"to": "ada@example.org", "subject": "s", "text": "one two", "html": "<b>one</b>"}"#,
        r#"{"to": "ada@example.org", "subject": "s", "text": "one\n two", "html": "<b>one</b>"}"#,
        r#"{"to": "ada@example.org", "subject": "s", "text": "one two", "html": "<i>one</i>"}"#,
        r#"{"to": "ada@example.org", "subject": "s", "text": "one", "html": "<b>one</b>"}"#,
    ];
    replayed(tool, "send", changes).await;
    assert_eq!(mail.delivered().len(), 1);
}
