//! Webhooks against a receiver on loopback.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hapax::outbox::{
    Event, OutboxConfig, Payload, Policy, RecordFilter, Sink, SinkSettings, Status, Trace,
};
use hapax::{Backoff, Failure, Hapax, Key};
use hapax_sinks::webhook::{Secret, Webhook, WebhookError, WebhookSettings, verify};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const LONG: Duration = Duration::from_secs(20);

/// A received request.
#[derive(Debug, Clone)]
struct Got {
    head: String,
    body: Vec<u8>,
}

impl Got {
    fn header(&self, name: &str) -> Option<&str> {
        let named = |line: &&str| line.to_lowercase().starts_with(&format!("{name}:"));
        Some(self.head.lines().find(named)?.split_once(':')?.1.trim())
    }
}

/// A receiver that plays these answers in turn, and then answers 200.
struct Receiver {
    port: u16,
    got: Arc<Mutex<Vec<Got>>>,
}

impl Receiver {
    async fn start(answers: &[&str]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let got: Arc<Mutex<Vec<Got>>> = Arc::default();
        let answers: Vec<String> =
            answers.iter().rev().map(|answer| (*answer).to_owned()).collect();
        let (answers, keep) = (Arc::new(Mutex::new(answers)), got.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, answers.clone(), keep.clone()));
            }
        });
        Self { port, got }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/events", self.port)
    }

    fn got(&self) -> Vec<Got> {
        self.got.lock().expect("no panic").clone()
    }
}

async fn serve(
    mut client: TcpStream,
    answers: Arc<Mutex<Vec<String>>>,
    got: Arc<Mutex<Vec<Got>>>,
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if client.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut request = Got { head, body: Vec::new() };
        let length = request.header("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
        while bytes.len() < end + length {
            client.read_buf(&mut bytes).await?;
        }
        request.body = bytes[end..end + length].to_vec();
        bytes.drain(..end + length);
        got.lock().expect("no panic").push(request);
        let answer = answers.lock().expect("no panic").pop();
        let answer = answer.unwrap_or_else(|| "200 OK\r\ncontent-length: 0\r\n\r\n".into());
        client.write_all(format!("HTTP/1.1 {answer}").as_bytes()).await?;
    }
}

fn settings() -> WebhookSettings {
    WebhookSettings {
        secrets: vec![Secret::parse(SECRET).expect("a secret")],
        allow_private: true,
        timeout: Duration::from_secs(5),
        ..WebhookSettings::default()
    }
}

/// The trace that events belong to.
const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Emits this many events to a sink, and returns the status, the tries and the last error of each.
async fn deliver(sink: impl Sink, events: u8) -> Vec<(Status, u32, Option<String>)> {
    let hapax = Hapax::builder().in_memory();
    let backoff = Backoff { base_ms: 1, cap_ms: 5, attempts: u32::MAX };
    let policy = Policy { backoff, ..Policy::default() };
    let settings = SinkSettings { policy, ..SinkSettings::default() };
    let outbox = OutboxConfig::new().sink_with("hook", sink, settings).expect("a name");
    let outbox = outbox.route("*", "*", &["hook"]).expect("a name");
    let dispatcher = hapax.outbox().dispatch(outbox).await.expect("a dispatcher");
    for n in 0..events {
        let run = hapax.effect(Key::from_bytes([n; 32])).run(|claim| async move {
            let payload = Payload::parse(format!("{{\"n\":{n}}}").as_bytes())?;
            let trace = Trace::parse(TRACE);
            claim.emit(Event { trace, ..Event::new("counted", "flow", payload) })?;
            Ok::<_, Failure>("emitted")
        });
        run.await.expect("done");
    }
    tokio::time::timeout(LONG, dispatcher.idle()).await.expect("it comes to rest");
    let filter = RecordFilter { limit: 100, ..RecordFilter::default() };
    let mut found = hapax.outbox().records(filter).await.expect("a read");
    found.reverse();
    let one = |found: &hapax::outbox::RecordStatus| {
        let delivery = &found.deliveries[0];
        (found.status, delivery.tried, delivery.error.clone())
    };
    found.iter().map(one).collect()
}

/// Proves O-5, O-8: signed, with a stable id, in order, over one connection.
#[tokio::test]
async fn events_are_posted_and_signed() {
    let receiver = Receiver::start(&["500 Oops\r\ncontent-length: 0\r\n\r\n"]).await;
    let hook = Webhook::new(&receiver.url(), settings()).expect("a webhook");
    let results = deliver(hook, 3).await;
    assert_eq!(
        results.iter().map(|(status, ..)| *status).collect::<Vec<_>>(),
        [Status::Dispatched; 3]
    );
    let got = receiver.got();
    assert_eq!(got.len(), 4, "one of them twice");
    assert_eq!(got[0].header("webhook-id"), got[1].header("webhook-id"));
    let secrets = [Secret::parse(SECRET).expect("a secret")];
    for (nth, request) in got[1..].iter().enumerate() {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("now").as_secs();
        let header = |name: &str| request.header(name);
        verify(&secrets, header, &request.body, now, Duration::from_secs(60)).expect("signed");
        let body = String::from_utf8_lossy(&request.body);
        assert!(body.ends_with(&format!(r#""payload":{{"n":{nth}}}}}"#)), "{body}");
        assert!(body.contains(request.header("webhook-id").expect("an id")));
        assert_eq!(request.header("traceparent"), Some(TRACE));
        assert!(body.contains(&format!(r#""traceparent":"{TRACE}""#)), "{body}");
    }
}

/// Proves O-6: each answer decides whether its event is delivered, retried or failed.
#[tokio::test]
async fn answers_decide_what_becomes_of_an_event() {
    let large = format!("200 OK\r\ncontent-length: 1000000\r\n\r\n{}", "x".repeat(1_000_000));
    for (answers, status, tried, error) in [
        (vec!["400 Bad Request\r\ncontent-length: 0\r\n\r\n"], Status::Failed, 1, "400"),
        (
            vec!["302 Found\r\nlocation: /else\r\ncontent-length: 0\r\n\r\n"],
            Status::Failed,
            1,
            "redirects",
        ),
        (
            vec!["429 Slow\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n"],
            Status::Dispatched,
            2,
            "",
        ),
        (vec!["408 Late\r\ncontent-length: 0\r\n\r\n"; 5], Status::Failed, 5, "408"),
        (vec![large.as_str()], Status::Dispatched, 1, ""),
        (vec!["200 OK\r\ncontent-length: 9\r\n\r\ncut"], Status::Dispatched, 1, ""),
    ] {
        let receiver = Receiver::start(&answers).await;
        let hook = WebhookSettings { timeout: Duration::from_millis(500), ..settings() };
        let results = deliver(Webhook::new(&receiver.url(), hook).expect("a webhook"), 1).await;
        assert_eq!((results[0].0, results[0].1), (status, tried), "{answers:.60?}");
        let last_error = results[0].2.clone().unwrap_or_default();
        assert!(last_error.contains(error), "{last_error}");
    }
}

/// Proves O-8: private addresses are refused, written out or behind a name.
#[tokio::test]
async fn private_addresses_are_refused_unless_allowed() {
    let guarded = || WebhookSettings { allow_private: false, ..settings() };
    let literal = Webhook::new("http://169.254.169.254/latest", guarded());
    assert!(matches!(literal, Err(WebhookError::Private(_))));
    assert!(matches!(Webhook::new("ftp://example.org", guarded()), Err(WebhookError::Url(_))));
    let receiver = Receiver::start(&[]).await;
    let named = format!("http://localhost:{}/", receiver.port);
    let hook = Webhook::new(&named, guarded()).expect("judged when it is looked up");
    let hapax = Hapax::builder().in_memory();
    let outbox = OutboxConfig::new().sink("hook", hook).and_then(|o| o.route("*", "*", &["hook"]));
    let dispatcher = hapax.outbox().dispatch(outbox.expect("a name")).await.expect("a dispatcher");
    let run = hapax.effect(Key::from_bytes([1; 32])).run(|claim| async move {
        claim.emit(Event::new("counted", "flow", Payload::parse(b"{}")?))?;
        Ok::<_, Failure>("emitted")
    });
    run.await.expect("done");
    let wait = async {
        loop {
            let filter = RecordFilter { limit: 1, ..RecordFilter::default() };
            let found = hapax.outbox().records(filter).await.expect("a read");
            if let Some(error) = &found[0].deliveries[0].error {
                return error.clone();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let error = tokio::time::timeout(LONG, wait).await.expect("it is refused");
    assert!(error.contains("private address"), "{error}");
    assert_eq!(receiver.got().len(), 0);
    drop(dispatcher);
}
