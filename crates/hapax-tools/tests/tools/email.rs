//! The e-mail tool.

use std::time::Duration;

use hapax::{Finding, Safety, Settling};
use hapax_items::{Class, Difference, Tool as _};
use hapax_testkit::{Cut, Mail, free_port};
use hapax_tools::email::{Login, MailboxSettings, Tls};
use hapax_tools::{Email, EmailSettings};

use crate::stage::{call, call_for, compare, found, json, mutate, text};

fn ada(password: &str) -> Login {
    Login { user: "ada".into(), password: password.into() }
}

fn settings(port: u16) -> EmailSettings {
    EmailSettings {
        port,
        tls: Tls::None,
        message_id_domain: "hapax.example".into(),
        timeout: Duration::from_secs(30),
        max_bytes: 32 * 1024 * 1024,
        ..EmailSettings::new("127.0.0.1", "Hapax <hapax@example.org>")
    }
}

fn mailbox(port: u16) -> MailboxSettings {
    MailboxSettings {
        port,
        tls: Tls::None,
        mailbox: "INBOX".into(),
        settling: Duration::from_secs(120),
        ..MailboxSettings::new("127.0.0.1", ada("secret"))
    }
}

const HELLO: &str = r#"{"to": ["Grace@Example.ORG", "ada@example.org"], "cc": "ada@EXAMPLE.org",
    "subject": "Grüße", "text": "Hello,\nthere."}"#;

#[tokio::test]
async fn a_message_is_sent_once_with_an_id_of_its_key() {
    let mail = Mail::open();
    let tool = Email::new(settings(mail.smtp())).expect("a tool");
    let send = call(&tool, "send", HELLO);
    let identity = r#"{"cc":[],"to":["Grace@example.org","ada@example.org"]}"#;
    assert_eq!(text(&send.plan.identity), identity);
    let hex = send.key.to_string().replace("sha256:", "");
    let id = format!("<{hex}@hapax.example>");
    let result = mutate(&tool, &send).await.unwrap();
    assert_eq!(text(&result), format!(r#"{{"messageId":"{id}"}}"#));
    let [message] = &mail.delivered()[..] else { panic!("{:?}", mail.delivered()) };
    assert!(message.replace("\n ", " ").contains(&format!("Message-ID: {id}")), "{message}");
    let unfolded = message.replace("\n ", " ");
    assert!(unfolded.contains(&format!("X-Idempotency-Key: {}", send.key)), "{message}");
    assert!(message.contains("From: Hapax <hapax@example.org>"), "{message}");
    assert!(message.contains("To: Grace@example.org, ada@example.org"), "{message}");
    assert!(message.contains("Hello,\nthere."), "{message}");
}

#[tokio::test]
async fn a_message_has_two_forms_if_it_is_given_two() {
    let mail = Mail::open();
    let tool = Email::new(settings(mail.smtp())).expect("a tool");
    let both =
        r#"{"to": "ada@example.org", "subject": "s", "text": "plain", "html": "<b>bold</b>"}"#;
    mutate(&tool, &call(&tool, "send", both)).await.unwrap();
    let message = mail.delivered().pop().unwrap();
    assert!(message.contains("multipart/alternative"), "{message}");
    assert!(message.contains("plain") && message.contains("<b>bold</b>"), "{message}");
}

/// Proves I-6.
#[test]
fn payloads_differ_in_three_degrees() {
    let tool = Email::new(settings(1)).expect("a tool");
    let hello = r#""subject": "s", "text": "Hello, there.", "html": "<p>Hello"#;
    for (other, expected) in [
        (
            r#""subject": " s", "text": "Hello,\r\n there.", "html": "<p>Hello "#,
            Difference::Equivalent,
        ),
        (r#""subject": "s", "text": "Hello, there.", "html": "<p>Hi"#, Difference::Minor),
        (r#""subject": "s", "text": "hello, there.", "html": "<p>Hello"#, Difference::Significant),
        (r#""subject": "t", "text": "Hello, there.", "html": "<p>Hello"#, Difference::Significant),
    ] {
        let arguments = |rest| format!(r#"{{"to": "ada@example.org", {rest}"}}"#);
        let degree = compare(&tool, "send", &arguments(hello), &arguments(other));
        assert_eq!(degree, expected, "{other}");
    }
}

/// Proves I-8, K-7: before the final dot the message was not sent; after it the outcome is unknown
/// until the mailbox has been looked at.
#[tokio::test]
async fn a_line_that_is_cut_leaves_no_doubt_but_one() {
    let mut mail = Mail::open();
    let through = |port| EmailSettings { mailbox: Some(mailbox(mail.imap())), ..settings(port) };
    let cases = [("MAIL FROM", "from"), ("RCPT TO", "to"), ("DATA\r\n", "data")];
    for (place, item) in cases {
        let cut = Cut::before(mail.smtp(), place);
        let tool = Email::new(through(cut.port())).expect("a tool");
        let send = call_for(item, &tool, "send", HELLO);
        let error = mutate(&tool, &send).await.unwrap_err();
        assert_eq!(error.class, Class::Transient, "{place}: {error}");
        assert!(cut.has_cut(), "{place}");
        assert_eq!(tool.reconcile(&send).await, Finding::NotFound, "{place}");
    }

    // More than the buffers on the way can hold, so that the end cannot have been written.
    let line = "All work and no play makes Jack a dull boy. 0123456789\\n";
    let content = format!("the cut is here\\n{}", line.repeat(16 * 1024 * 1024 / line.len()));
    let long = format!(r#"{{"to": "ada@example.org", "subject": "s", "text": "{content}"}}"#);
    let cut = Cut::before(mail.smtp(), "the cut is here");
    let tool = Email::new(through(cut.port())).expect("a tool");
    let send = call(&tool, "send", &long);
    let error = mutate(&tool, &send).await.unwrap_err();
    assert_eq!(error.class, Class::Transient, "{error}");
    assert!(error.message.starts_with("sending the content"), "{error}");
    assert_eq!(tool.reconcile(&send).await, Finding::NotFound);
    assert!(mail.delivered().is_empty());

    let cut = Cut::after(mail.smtp(), "\r\n.\r\n");
    let tool = Email::new(through(cut.port())).expect("a tool");
    assert_eq!(tool.safety("send"), Safety::Reconcilable(Settling::AfterMs(120_000)));
    let send = call(&tool, "send", HELLO);
    let error = mutate(&tool, &send).await.unwrap_err();
    assert_eq!(error.class, Class::Indeterminate, "{error}");
    hapax_testkit::until("the message is delivered", || mail.delivered().len() == 1);
    let hex = send.key.to_string().replace("sha256:", "");
    let id = format!(r#"{{"messageId":"<{hex}@hapax.example>"}}"#);
    assert_eq!(found(tool.reconcile(&send).await), id);
    assert_eq!(tool.reconcile(&call_for("two", &tool, "send", HELLO)).await, Finding::NotFound);

    mail.kill_imap();
    assert!(matches!(tool.reconcile(&send).await, Finding::CannotTell(_)));
    let blind = Email::new(settings(cut.port())).expect("a tool");
    assert_eq!(blind.safety("send"), Safety::Opaque);
    assert!(matches!(blind.reconcile(&send).await, Finding::CannotTell(_)));
}

/// Proves I-10.
#[tokio::test]
async fn each_refusal_has_its_class_and_no_mail_is_delivered() {
    let mut mail = Mail::open();
    let tool = Email::new(settings(mail.smtp())).expect("a tool");
    let refused = async |to: &str, subject: &str| {
        let arguments = format!(
            r#"{{"to": ["ada@example.org", "{to}"], "subject": "{subject}", "text": "t"}}"#
        );
        mutate(&tool, &call(&tool, "send", &arguments)).await.expect_err(to)
    };
    for (to, subject, expected) in [
        ("nobody@example.org", "s", Class::Precondition),
        ("ada@elsewhere.example", "s", Class::Permission),
        ("later@example.org", "s", Class::Transient),
        ("grace@example.org", "spam", Class::Precondition),
    ] {
        let error = refused(to, subject).await;
        assert_eq!(error.class, expected, "{to}: {error}");
    }
    assert!(refused("nobody@example.org", "s").await.message.contains("There is no such mailbox"));
    assert!(mail.delivered().is_empty());
    mail.kill_smtp();
    assert_eq!(
        refused("grace@example.org", "s").await.class,
        Class::Transient,
        "the server is down"
    );
    let nowhere = Email::new(settings(free_port())).expect("a tool");
    let error = mutate(&nowhere, &call(&nowhere, "send", HELLO)).await.unwrap_err();
    assert_eq!(error.class, Class::Transient, "{error}");
}

#[tokio::test]
async fn with_tls_and_a_password_it_is_the_same() {
    let mail = Mail::secured();
    let trust = Some(mail.certificate());
    let imap = MailboxSettings { tls: Tls::StartTls, trust: trust.clone(), ..mailbox(mail.imap()) };
    let secured = EmailSettings {
        tls: Tls::StartTls,
        trust,
        login: Some(ada("secret")),
        mailbox: Some(imap.clone()),
        ..settings(mail.smtp())
    };
    let tool = Email::new(secured.clone()).expect("a tool");
    let send = call(&tool, "send", HELLO);
    let result = mutate(&tool, &send).await.unwrap();
    assert_eq!(found(tool.reconcile(&send).await), text(&result));
    for (wrong, expected) in [
        (EmailSettings { login: Some(ada("wrong")), ..secured.clone() }, Class::Permission),
        (EmailSettings { login: None, ..secured.clone() }, Class::Permission),
        (EmailSettings { trust: None, ..secured.clone() }, Class::Precondition),
        (EmailSettings { tls: Tls::None, ..secured.clone() }, Class::Permission),
    ] {
        let tool = Email::new(wrong).expect("a tool");
        let error = mutate(&tool, &send).await.unwrap_err();
        assert_eq!(error.class, expected, "{error}");
        assert!(!error.message.contains("wrong") && !error.message.contains("secret"), "{error}");
    }
    assert_eq!(mail.delivered().len(), 1);
    for wrong in [
        MailboxSettings { login: ada("wrong"), ..imap.clone() },
        MailboxSettings { trust: None, ..imap.clone() },
        MailboxSettings { mailbox: "Absent".into(), ..imap },
    ] {
        let settings = EmailSettings { mailbox: Some(wrong), ..secured.clone() };
        let tool = Email::new(settings).expect("a tool");
        let finding = tool.reconcile(&send).await;
        assert!(matches!(finding, Finding::CannotTell(_)), "{finding:?}");
    }
    assert!(!format!("{secured:?}").contains("\"secret\""));
    let clear = EmailSettings { host: "mail.example.org".into(), tls: Tls::None, ..settings(25) };
    assert!(Email::new(clear).is_err(), "nothing goes over a network in the clear");
}

#[test]
fn a_malformed_request_is_the_scripts_mistake() {
    let tool = Email::new(EmailSettings { max_bytes: 10, ..settings(1) }).expect("a tool");
    for arguments in [
        r#"{"subject": "s", "text": "t"}"#,
        r#"{"to": [], "subject": "s", "text": "t"}"#,
        r#"{"to": "nobody", "subject": "s", "text": "t"}"#,
        r#"{"to": "a@b.example\r\nBcc: c@d.example", "subject": "s", "text": "t"}"#,
        r#"{"to": [1], "subject": "s", "text": "t"}"#,
        r#"{"to": "a@b.example", "subject": "s\r\nBcc: c@d.example", "text": "t"}"#,
        r#"{"to": "a@b.example", "subject": "s", "text": "01234567890"}"#,
        r#"{"to": "a@b.example", "subject": "s", "text": "t", "bcc": "c@d.example"}"#,
    ] {
        let error = tool.plan("send", &json(arguments)).unwrap_err();
        assert_eq!(error.class, Class::Logic, "{arguments}: {error}");
    }
}
