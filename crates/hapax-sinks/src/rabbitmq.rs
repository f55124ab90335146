//! RabbitMQ, and other brokers that speak AMQP 0-9-1 with confirms.
//!
//! Each event is published persistent and mandatory, with the outbox id as its `message-id`, and
//! counts as delivered when the broker has confirmed it: for a durable queue, when it is on disk.
//! The broker does not compare ids; the receiver does.

mod confirms;

use std::sync::Arc;
use std::time::Duration;

use amqprs::BasicProperties;
use amqprs::channel::{BasicPublishArguments, Channel, ConfirmSelectArguments};
use amqprs::connection::{Connection, OpenConnectionArguments};
use amqprs::tls::TlsAdaptor;
use hapax::outbox::{Acks, Delivery, DeliveryRefusal, Record, Retryability, Sink};
use percent_encoding::percent_decode_str;
use tokio::sync::{Mutex, Semaphore};
use url::Url;

use crate::envelope;
use crate::ordering::{Arrival, Deliver, by_ordering_key};
use crate::template::PathTemplate;
use confirms::Confirms;

/// How long the name of an exchange may be, in bytes.
const LONGEST: usize = 255;

/// A broker that takes events.
#[derive(Clone)]
pub struct RabbitMq {
    inner: Arc<Inner>,
}

/// How an exchange is reached.
#[derive(Debug, Clone)]
pub struct RabbitMqSettings {
    /// The exchange; the default one, which routes by queue, if it is empty.
    pub exchange: String,
    /// How long a confirmation may take.
    pub timeout: Duration,
    /// How long the receiver remembers ids.
    pub remembers: Option<Duration>,
    /// How many publications are in flight at once.
    pub lanes: usize,
}

impl Default for RabbitMqSettings {
    fn default() -> Self {
        let (exchange, timeout) = (String::new(), Duration::from_secs(10));
        Self { exchange, timeout, remembers: None, lanes: 256 }
    }
}

/// Why a broker was refused.
#[derive(Debug, thiserror::Error)]
pub enum RabbitMqError {
    /// Its URL is not an AMQP URL.
    #[error("not a URL like amqp://user:password@host:5672/vhost, or amqps:// for TLS")]
    Url,
    /// The name of the exchange is too long.
    #[error("an exchange's name has at most {LONGEST} bytes")]
    Exchange,
    /// No certificates are trusted on this machine.
    #[error("TLS cannot be used: {0}")]
    Tls(String),
}

struct Inner {
    address: OpenConnectionArguments,
    routing: PathTemplate,
    settings: RabbitMqSettings,
    link: Mutex<Option<Arc<Link>>>,
    lanes: Semaphore,
}

/// A connection, and the confirmations that it waits for.
struct Link {
    /// Dropping it closes it.
    _connection: Connection,
    channel: Channel,
    /// Locked while a message is published: confirmations come by number.
    turn: Mutex<()>,
    confirms: Confirms,
}

impl RabbitMq {
    /// An exchange of the broker at this URL, with this routing key. Connects when the first
    /// event comes.
    pub fn new(
        url: &str,
        routing: PathTemplate,
        settings: RabbitMqSettings,
    ) -> Result<Self, RabbitMqError> {
        if settings.exchange.len() > LONGEST {
            return Err(RabbitMqError::Exchange);
        }
        let address = address(url)?;
        let lanes = Semaphore::new(settings.lanes.max(1));
        let link = Mutex::new(None);
        Ok(Self { inner: Arc::new(Inner { address, routing, settings, link, lanes }) })
    }
}

/// Reads a URL, with its escapes decoded.
fn address(url: &str) -> Result<OpenConnectionArguments, RabbitMqError> {
    let url = Url::parse(url).map_err(|_| RabbitMqError::Url)?;
    let tls = match url.scheme() {
        "amqp" => false,
        "amqps" => true,
        _ => return Err(RabbitMqError::Url),
    };
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or(RabbitMqError::Url)?;
    let plain = |text: &str| {
        let text = percent_decode_str(text).decode_utf8().map_err(|_| RabbitMqError::Url)?;
        if text.len() > LONGEST { Err(RabbitMqError::Url) } else { Ok(text.into_owned()) }
    };
    let (user, password) = match (url.username(), url.password()) {
        ("", None) => ("guest".into(), "guest".into()),
        (user, password) => (plain(user)?, plain(password.unwrap_or_default())?),
    };
    let port = url.port().unwrap_or(if tls { 5671 } else { 5672 });
    let mut address = OpenConnectionArguments::new(host, port, &user, &password);
    let vhost = plain(url.path().strip_prefix('/').unwrap_or_default())?;
    address.virtual_host(if vhost.is_empty() { "/" } else { &vhost });
    if tls {
        address.tls_adaptor(TlsAdaptor::new(trusted()?, host.to_owned()));
    }
    Ok(address)
}

/// A TLS connector with the certificates that this machine trusts.
fn trusted() -> Result<tokio_rustls::TlsConnector, RabbitMqError> {
    let mut roots = rustls::RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err(RabbitMqError::Tls("no trusted certificates on this machine".into()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| RabbitMqError::Tls(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(tokio_rustls::TlsConnector::from(Arc::new(config)))
}

impl Sink for RabbitMq {
    async fn send(&self, deliveries: &[Delivery], acks: &Acks) {
        by_ordering_key(&self.inner, deliveries, acks).await;
    }

    fn remembers(&self) -> Option<Duration> {
        self.inner.settings.remembers
    }
}

impl Inner {
    async fn connect(&self) -> Result<Link, amqprs::error::Error> {
        let connection = Connection::open(&self.address).await?;
        let channel = connection.open_channel(None).await?;
        let confirms = Confirms::default();
        channel.register_callback(confirms.clone()).await?;
        channel.confirm_select(ConfirmSelectArguments::default()).await?;
        let (watched, lost) = (connection.clone(), confirms.clone());
        tokio::spawn(async move {
            watched.listen_network_io_failure().await;
            lost.close("the connection was lost".into());
        });
        Ok(Link { _connection: connection, channel, turn: Mutex::default(), confirms })
    }

    async fn link(&self) -> Result<Arc<Link>, DeliveryRefusal> {
        let down =
            |reason: String| DeliveryRefusal { reason, retryability: Retryability::SinkDown };
        let mut link = self.link.lock().await;
        if let Some(link) = link.as_ref().filter(|link| link.confirms.is_open()) {
            return Ok(link.clone());
        }
        let connected = tokio::time::timeout(self.settings.timeout, self.connect()).await;
        let connected = connected
            .map_err(|_| down(format!("no answer within {:?}", self.settings.timeout)))?
            .map_err(|error| down(error.to_string()))?;
        Ok(link.insert(Arc::new(connected)).clone())
    }
}

impl Deliver for Inner {
    fn lanes(&self) -> &Semaphore {
        &self.lanes
    }

    async fn deliver(&self, record: &Record) -> Result<Arrival, DeliveryRefusal> {
        let routing = self.routing.of(record).ok_or_else(|| DeliveryRefusal {
            reason: "the routing key would be longer than 255 bytes".into(),
            retryability: Retryability::Never,
        })?;
        let link = self.link().await?;
        let published = link.publish(&self.settings.exchange, &routing, record);
        match tokio::time::timeout(self.settings.timeout, published).await {
            Ok(Ok(())) => Ok(Arrival::New),
            Ok(Err(refusal)) => Err(refusal),
            Err(_) => {
                let reason = format!("no confirmation within {:?}", self.settings.timeout);
                link.confirms.close(reason.clone());
                Err(DeliveryRefusal { reason, retryability: Retryability::SinkDown })
            }
        }
    }
}

impl Link {
    async fn publish(
        &self,
        exchange: &str,
        routing: &str,
        record: &Record,
    ) -> Result<(), DeliveryRefusal> {
        let id = record.id.to_string();
        let mut properties = BasicProperties::default();
        properties
            .with_message_id(&id)
            .with_message_type(&record.event.name.chars().take(63).collect::<String>())
            .with_content_type("application/json")
            .with_persistence(true);
        let mut address = BasicPublishArguments::new(exchange, routing);
        address.mandatory(true);
        let text = envelope::text(record).into_bytes();
        let answer = {
            let _turn = self.turn.lock().await;
            let answer = self.confirms.expect(id)?;
            let sent = self.channel.basic_publish(properties, text, address).await;
            if let Err(error) = sent {
                self.confirms.close(error.to_string());
            }
            answer
        };
        answer.await.unwrap_or_else(|_| Err(self.confirms.closed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_with_their_escapes() {
        let read = address("amqp://app:p%40ss@mq.example/%2Fdata").unwrap();
        assert_eq!((read.get_host(), read.get_port()), ("mq.example", 5672));
        assert_eq!(read.get_virtual_host(), "/data");
        assert_eq!(address("amqp://mq").unwrap().get_virtual_host(), "/");
        for odd in ["http://mq", "amqp://", "mq:5672", ""] {
            assert!(address(odd).is_err(), "{odd}");
        }
    }
}
