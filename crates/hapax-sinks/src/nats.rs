//! NATS JetStream.
//!
//! Each event is published with `Nats-Msg-Id`, which is the outbox id, and counts as delivered when
//! the stream has acknowledged it. A stream drops a repeated id within its duplicate window, which
//! is two minutes by default.

use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::Context;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::{Client, ConnectOptions, HeaderMap};
use hapax::outbox::{Acks, Delivery, DeliveryRefusal, Record, Retryability, Sink};
use tokio::sync::{OnceCell, Semaphore};

use crate::envelope;
use crate::ordering::{Arrival, Deliver, by_ordering_key};
use crate::template::PathTemplate;

/// A JetStream that takes events.
#[derive(Clone)]
pub struct Nats {
    inner: Arc<Inner>,
}

/// How a stream is reached.
#[derive(Debug, Clone)]
pub struct NatsSettings {
    /// The text of a credentials file (`.creds`).
    pub credentials: Option<String>,
    /// How long an acknowledgement may take.
    pub timeout: Duration,
    /// The duplicate window of the stream.
    pub remembers: Duration,
    /// How many publications are in flight at once.
    pub lanes: usize,
}

impl Default for NatsSettings {
    fn default() -> Self {
        Self {
            credentials: None,
            timeout: Duration::from_secs(10),
            remembers: Duration::from_secs(120),
            lanes: 256,
        }
    }
}

struct Inner {
    servers: String,
    subject: PathTemplate,
    settings: NatsSettings,
    link: OnceCell<(Client, Context)>,
    lanes: Semaphore,
}

impl Nats {
    /// Streams that listen to this subject, on these servers (`nats://host:4222`, several with
    /// commas between them). Connects when the first event comes.
    pub fn new(servers: &str, subject: PathTemplate, settings: NatsSettings) -> Self {
        let lanes = Semaphore::new(settings.lanes.max(1));
        let servers = servers.to_owned();
        Self { inner: Arc::new(Inner { servers, subject, settings, link: OnceCell::new(), lanes }) }
    }
}

impl Sink for Nats {
    async fn send(&self, deliveries: &[Delivery], acks: &Acks) {
        by_ordering_key(&self.inner, deliveries, acks).await;
    }

    fn remembers(&self) -> Option<Duration> {
        Some(self.inner.settings.remembers)
    }
}

impl Inner {
    async fn connect(&self) -> Result<(Client, Context), String> {
        let options = match &self.settings.credentials {
            Some(text) => ConnectOptions::new()
                .credentials(text)
                .map_err(|error| format!("the credentials cannot be used: {error}"))?,
            None => ConnectOptions::new(),
        };
        let servers: Vec<&str> = self.servers.split(',').map(str::trim).collect();
        let client = options
            .name("hapax")
            .connection_timeout(self.settings.timeout)
            .reconnect_delay_callback(|tries| {
                Duration::from_millis(50 << tries.min(6)).min(Duration::from_secs(2))
            })
            .connect(servers)
            .await
            .map_err(|error| error.to_string())?;
        let mut stream = async_nats::jetstream::new(client.clone());
        stream.set_timeout(self.settings.timeout);
        Ok((client, stream))
    }

    /// Connects on first use, and fails while the connection is down. The client would keep an
    /// event without a connection, and send it at any later time.
    async fn ready(&self) -> Result<(), String> {
        let (client, _) = self.link.get_or_try_init(|| self.connect()).await?;
        match client.connection_state() {
            State::Connected => Ok(()),
            _ => Err("not connected".into()),
        }
    }
}

impl Deliver for Inner {
    fn lanes(&self) -> &Semaphore {
        &self.lanes
    }

    async fn deliver(&self, record: &Record) -> Result<Arrival, DeliveryRefusal> {
        let subject = self.subject.of(record).ok_or_else(|| DeliveryRefusal {
            reason: "the subject would be longer than 255 bytes".into(),
            retryability: Retryability::Never,
        })?;
        self.ready()
            .await
            .map_err(|reason| DeliveryRefusal { reason, retryability: Retryability::SinkDown })?;
        let (_, stream) = self.link.get().ok_or_else(|| DeliveryRefusal {
            reason: "not connected".into(),
            retryability: Retryability::SinkDown,
        })?;
        let mut headers = HeaderMap::new();
        headers.insert(async_nats::header::NATS_MESSAGE_ID, record.id.to_string().as_str());
        headers.insert("Content-Type", "application/json");
        if let Some(trace) = &record.event.trace {
            headers.insert("traceparent", trace.as_str());
        }
        let text = envelope::text(record);
        let sent = stream.publish_with_headers(subject, headers, text.into());
        let acknowledged = match tokio::time::timeout(self.settings.timeout, sent).await {
            Ok(Ok(acknowledged)) => acknowledged.await,
            Ok(Err(error)) => Err(error),
            Err(_) => Err(PublishErrorKind::TimedOut.into()),
        };
        match acknowledged {
            Ok(acknowledged) if acknowledged.duplicate => Ok(Arrival::Known),
            Ok(_) => Ok(Arrival::New),
            Err(error) => Err(refusal(&error)),
        }
    }
}

fn refusal(error: &PublishError) -> DeliveryRefusal {
    let retryability = match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => Retryability::Never,
        // No stream listens to the subject, the server is gone, or it has no room.
        _ => Retryability::SinkDown,
    };
    DeliveryRefusal { reason: error.to_string(), retryability }
}
