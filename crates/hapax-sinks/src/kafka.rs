//! Kafka, through librdkafka.
//!
//! The producer is idempotent and waits for all replicas that are in sync. Each event carries its
//! outbox id in the header `hapax-id`, and its dataset as the key, so that the events of a dataset
//! stay in one partition. To the broker a new producer is another one, so the receiver has to
//! compare ids.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hapax::outbox::{Acks, Delivery, DeliveryRefusal, Record, Retryability, Sink};
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use tokio::sync::Semaphore;

use crate::envelope;
use crate::ordering::{Arrival, Deliver, by_ordering_key};
use crate::template::PathTemplate;

/// A cluster that takes events.
#[derive(Clone)]
pub struct Kafka {
    inner: Arc<Inner>,
}

/// How a topic is reached.
#[derive(Debug, Clone)]
pub struct KafkaSettings {
    /// Settings of librdkafka, by its own names.
    pub properties: BTreeMap<String, String>,
    /// How long an acknowledgement may take.
    pub timeout: Duration,
    /// How long the receiver remembers ids.
    pub remembers: Option<Duration>,
    /// How many ordering keys are sent at once.
    pub lanes: usize,
}

impl Default for KafkaSettings {
    fn default() -> Self {
        let (properties, timeout) = (BTreeMap::new(), Duration::from_secs(10));
        Self { properties, timeout, remembers: None, lanes: 256 }
    }
}

struct Inner {
    config: ClientConfig,
    topic: PathTemplate,
    settings: KafkaSettings,
    producer: Mutex<Option<FutureProducer>>,
    lanes: Semaphore,
}

impl Kafka {
    /// A topic of the cluster that these brokers belong to (`host:9092`, several with commas
    /// between them). Connects when the first event comes.
    pub fn new(
        brokers: &str,
        topic: PathTemplate,
        settings: KafkaSettings,
    ) -> Result<Self, KafkaError> {
        let mut config = ClientConfig::new();
        config.set("linger.ms", "1").set("client.id", "hapax");
        for (name, value) in &settings.properties {
            config.set(name, value);
        }
        // The delivery guarantee depends on these.
        config
            .set("bootstrap.servers", brokers)
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("message.timeout.ms", settings.timeout.as_millis().max(1).to_string());
        // Reports unknown settings now.
        config.create_native_config()?;
        let lanes = Semaphore::new(settings.lanes.max(1));
        let producer = Mutex::new(None);
        Ok(Self { inner: Arc::new(Inner { config, topic, settings, producer, lanes }) })
    }
}

impl Sink for Kafka {
    async fn send(&self, deliveries: &[Delivery], acks: &Acks) {
        by_ordering_key(&self.inner, deliveries, acks).await;
    }

    fn remembers(&self) -> Option<Duration> {
        self.inner.settings.remembers
    }
}

impl Inner {
    fn producer(&self) -> Result<FutureProducer, KafkaError> {
        let mut producer = self.producer.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match &*producer {
            Some(producer) => Ok(producer.clone()),
            None => Ok(producer.insert(self.config.create()?).clone()),
        }
    }

    fn refusal(&self, error: &KafkaError) -> DeliveryRefusal {
        let code = error.rdkafka_error_code();
        if code == Some(RDKafkaErrorCode::Fatal) {
            // This producer cannot be used any more; the next event makes a new one.
            *self.producer.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
        }
        let retryability = match code {
            Some(RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::InvalidMessageSize) => {
                Retryability::Never
            }
            _ => Retryability::SinkDown,
        };
        DeliveryRefusal { reason: error.to_string(), retryability }
    }
}

impl Deliver for Inner {
    fn lanes(&self) -> &Semaphore {
        &self.lanes
    }

    async fn deliver(&self, record: &Record) -> Result<Arrival, DeliveryRefusal> {
        let topic = self.topic.of(record).ok_or_else(|| DeliveryRefusal {
            reason: "the topic's name would be longer than 255 bytes".into(),
            retryability: Retryability::Never,
        })?;
        let producer = self.producer().map_err(|error| self.refusal(&error))?;
        let (text, id) = (envelope::text(record), record.id.to_string());
        let header = |key, value| Header { key, value: Some(value) };
        let mut headers = OwnedHeaders::new()
            .insert(header("hapax-id", &id))
            .insert(header("hapax-event", &record.event.name));
        if let Some(trace) = &record.event.trace {
            headers = headers.insert(Header { key: "traceparent", value: Some(trace.as_str()) });
        }
        let message =
            FutureRecord::to(&topic).key(&record.event.dataset).payload(&text).headers(headers);
        match producer.send(message, self.settings.timeout).await {
            Ok(_) => Ok(Arrival::New),
            Err((error, _)) => Err(self.refusal(&error)),
        }
    }
}
