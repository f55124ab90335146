//! Redis Streams.
//!
//! Each event is an entry of a stream, with the fields `id`, `event` and `data`. Its id is kept
//! beside it for a while, so that the same event does not become two entries.

use std::sync::Arc;
use std::time::Duration;

use hapax::outbox::{Acks, Delivery, DeliveryRefusal, Record, Retryability, Sink};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, Script, ServerErrorKind};
use tokio::sync::{Mutex, Semaphore};

use crate::envelope;
use crate::ordering::{Arrival, Deliver, by_ordering_key};
use crate::template::PathTemplate;

/// Adds the entry first: whatever fails then, the event is there, and at worst once more.
const ADD: &str = "
    if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
    redis.call('XADD', KEYS[1], '*', 'id', ARGV[1], 'event', ARGV[2], 'data', ARGV[3])
    redis.call('SET', KEYS[2], 1, 'PX', ARGV[4])
    return 1";

/// A Redis that takes events.
#[derive(Clone)]
pub struct Redis {
    inner: Arc<Inner>,
}

/// How a stream is reached.
#[derive(Debug, Clone)]
pub struct RedisSettings {
    /// How long an answer may take.
    pub timeout: Duration,
    /// How long ids are kept; each costs about a hundred bytes of the server's memory.
    pub remembers: Duration,
    /// How many events are in flight at once.
    pub lanes: usize,
}

impl Default for RedisSettings {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10), remembers: Duration::from_secs(3600), lanes: 256 }
    }
}

struct Inner {
    client: Client,
    stream: PathTemplate,
    settings: RedisSettings,
    add: Script,
    link: Mutex<Option<MultiplexedConnection>>,
    lanes: Semaphore,
}

impl Redis {
    /// A stream of this name, on the server at this URL (`redis://`, or `rediss://` for TLS).
    /// Connects when the first event comes.
    pub fn new(
        url: &str,
        stream: PathTemplate,
        settings: RedisSettings,
    ) -> Result<Self, RedisError> {
        let client = Client::open(url)?;
        let (add, lanes) = (Script::new(ADD), Semaphore::new(settings.lanes.max(1)));
        let link = Mutex::new(None);
        Ok(Self { inner: Arc::new(Inner { client, stream, settings, add, link, lanes }) })
    }
}

impl Sink for Redis {
    async fn send(&self, deliveries: &[Delivery], acks: &Acks) {
        by_ordering_key(&self.inner, deliveries, acks).await;
    }

    fn remembers(&self) -> Option<Duration> {
        Some(self.inner.settings.remembers)
    }
}

impl Inner {
    async fn connection(&self) -> Result<MultiplexedConnection, RedisError> {
        let mut link = self.link.lock().await;
        if let Some(connection) = &*link {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.settings.timeout))
            .set_response_timeout(Some(self.settings.timeout));
        let mut connection =
            self.client.get_multiplexed_async_connection_with_config(&config).await?;
        warn_if_forgetful(&mut connection).await;
        Ok(link.insert(connection).clone())
    }
}

impl Deliver for Inner {
    fn lanes(&self) -> &Semaphore {
        &self.lanes
    }

    async fn deliver(&self, record: &Record) -> Result<Arrival, DeliveryRefusal> {
        let stream = self.stream.of(record).ok_or_else(|| DeliveryRefusal {
            reason: "the stream's name would be longer than 255 bytes".into(),
            retryability: Retryability::Never,
        })?;
        let mut connection = self.connection().await.map_err(|error| refusal(&error))?;
        let id = record.id.to_string();
        let mut add = self.add.key(&stream);
        add.key(format!("{stream}:hapax:{id}"))
            .arg(&id)
            .arg(&record.event.name)
            .arg(envelope::text(record))
            .arg(self.settings.remembers.as_millis().max(1) as u64);
        match add.invoke_async::<u8>(&mut connection).await {
            Ok(0) => Ok(Arrival::Known),
            Ok(_) => Ok(Arrival::New),
            Err(error) => {
                if !matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) {
                    *self.link.lock().await = None;
                }
                Err(refusal(&error))
            }
        }
    }
}

fn refusal(error: &RedisError) -> DeliveryRefusal {
    let retryability = match error.kind() {
        // The script ran, and a command in it was refused, for example because the key is not a
        // stream.
        ErrorKind::Server(ServerErrorKind::ResponseError) => Retryability::Perhaps,
        _ => Retryability::SinkDown,
    };
    DeliveryRefusal { reason: error.to_string(), retryability }
}

/// Warns if the server acknowledges before its disk does: a crash loses acknowledged events.
async fn warn_if_forgetful(connection: &mut MultiplexedConnection) {
    let mut ask = redis::cmd("CONFIG");
    ask.arg("GET").arg("append*");
    let Ok(settings) = ask.query_async::<Vec<(String, String)>>(connection).await else { return };
    let is =
        |name: &str, value: &str| settings.iter().any(|pair| pair.0 == name && pair.1 == value);
    if !(is("appendonly", "yes") && is("appendfsync", "always")) {
        tracing::warn!(name: "redis_not_durable",
            "this Redis acknowledges before its disk does and can lose events when it crashes: \
             set appendonly yes and appendfsync always",
        );
    }
}
