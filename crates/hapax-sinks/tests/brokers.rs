//! Real brokers, killed and paused while events are in flight.

#[path = "brokers/fire.rs"]
mod fire;
#[cfg(feature = "kafka")]
#[path = "brokers/kafka.rs"]
mod kafka;

use std::time::Duration;

use async_nats::jetstream;
use hapax_sinks::nats::{Nats, NatsSettings};
use hapax_sinks::rabbitmq::{RabbitMq, RabbitMqSettings};
use hapax_sinks::redis::{Redis, RedisSettings};
use hapax_sinks::template::PathTemplate;
use hapax_testkit::Broker;

use fire::{Arrived, Fire, under_fire};

/// Short, so that a paused broker is noticed soon.
const TIMEOUT: Duration = Duration::from_millis(500);

impl Fire for Broker {
    fn kill(&mut self) {
        Broker::kill(self);
    }

    fn restart(&mut self) {
        Broker::restart(self);
    }

    fn pause(&mut self) {
        Broker::pause(self);
    }

    fn resume(&mut self) {
        Broker::resume(self);
    }
}

/// Proves O-5, O-8: JetStream has every event once, in order, with its trace.
#[tokio::test(flavor = "multi_thread")]
async fn nats_is_killed_and_paused_under_load() {
    let mut broker = Broker::nats();
    let url = broker.url();
    let connect = || async { async_nats::connect(&url).await.expect("a connection") };
    let config = jetstream::stream::Config {
        name: "EVENTS".into(),
        subjects: vec!["events.>".into()],
        ..jetstream::stream::Config::default()
    };
    let stream = jetstream::new(connect().await).create_stream(config).await;
    drop(stream.expect("a stream"));
    let settings = NatsSettings { timeout: TIMEOUT, ..NatsSettings::default() };
    let sink = Nats::new(
        &url,
        PathTemplate::parse("events.{event}.{dataset}").expect("a place"),
        settings,
    );

    let emitted = under_fire(&mut broker, sink).await;

    let stream = jetstream::new(connect().await).get_stream("EVENTS").await.expect("a stream");
    let last = stream.get_info().await.expect("its state").state.last_sequence;
    let mut arrived = Vec::new();
    for sequence in 1..=last {
        let message = stream.get_raw_message(sequence).await.expect("a message");
        let read = Arrived::read(&message.payload);
        assert_eq!(message.subject.as_str(), format!("events.counted.{}", read.dataset));
        let trace = message.headers.get("traceparent").map(|value| value.as_str());
        assert_eq!(trace, Some(fire::TRACE));
        arrived.push(read);
    }
    assert_eq!(fire::check(&emitted, &arrived), 0, "the stream knows what it had");
}

/// Proves O-5, O-8: Redis has every event once, in order.
#[tokio::test(flavor = "multi_thread")]
async fn redis_is_killed_and_paused_under_load() {
    let mut broker = Broker::redis();
    let settings = RedisSettings { timeout: TIMEOUT, ..RedisSettings::default() };
    let place = PathTemplate::parse("events").expect("a place");
    let sink = Redis::new(&broker.url(), place, settings).expect("a URL");

    let emitted = under_fire(&mut broker, sink).await;

    let client = redis::Client::open(broker.url()).expect("a URL");
    let mut connection = client.get_multiplexed_async_connection().await.expect("a connection");
    let mut range = redis::cmd("XRANGE");
    range.arg("events").arg("-").arg("+");
    type Entry = (String, Vec<(String, String)>);
    let entries: Vec<Entry> = range.query_async(&mut connection).await.expect("entries");
    let data = |(_, fields): &Entry| {
        let (_, data) = fields.iter().find(|(name, _)| name == "data").expect("data");
        Arrived::read(data.as_bytes())
    };
    let arrived: Vec<Arrived> = entries.iter().map(data).collect();
    assert_eq!(fire::check(&emitted, &arrived), 0, "ids are kept beside the entries");
}

/// Proves O-5, O-8: RabbitMQ has every confirmed event, in order; a repeated event has the same id.
#[tokio::test(flavor = "multi_thread")]
async fn rabbitmq_is_killed_and_paused_under_load() {
    use amqprs::channel::{BasicConsumeArguments, QueueDeclareArguments};
    use amqprs::connection::{Connection, OpenConnectionArguments};

    let mut broker = Broker::rabbitmq();
    let port = broker.port();
    let connect = || async {
        let arguments = OpenConnectionArguments::new("127.0.0.1", port, "guest", "guest");
        let connection = Connection::open(&arguments).await.expect("a connection");
        let channel = connection.open_channel(None).await.expect("a channel");
        (connection, channel)
    };
    let (connection, channel) = connect().await;
    let queue = QueueDeclareArguments::durable_client_named("events");
    channel.queue_declare(queue).await.expect("a queue");
    drop((channel, connection));
    broker.settle();
    let settings = RabbitMqSettings { timeout: TIMEOUT, ..RabbitMqSettings::default() };
    let place = PathTemplate::parse("events").expect("a place");
    let sink = RabbitMq::new(&broker.url(), place, settings).expect("a URL");

    let emitted = under_fire(&mut broker, sink).await;

    let (_connection, channel) = connect().await;
    let queue = QueueDeclareArguments::new("events").passive(true).finish();
    let (_, many, _) = channel.queue_declare(queue).await.expect("an answer").expect("the queue");
    let consume = BasicConsumeArguments::new("events", "test").auto_ack(true).finish();
    let (_tag, mut messages) = channel.basic_consume_rx(consume).await.expect("a consumer");
    let mut arrived = Vec::new();
    for _ in 0..many {
        let message = tokio::time::timeout(fire::LONG, messages.recv()).await.expect("in time");
        let message = message.expect("a message");
        let read = Arrived::read(&message.content.expect("a body"));
        let properties = message.basic_properties.expect("properties");
        assert_eq!(properties.message_id(), Some(&read.id));
        arrived.push(read);
    }
    fire::check(&emitted, &arrived);
}

/// Proves O-8: an event that no queue takes does not count as delivered.
#[tokio::test(flavor = "multi_thread")]
async fn rabbitmq_without_a_queue_is_down() {
    let broker = Broker::rabbitmq();
    let place = PathTemplate::parse("nobody").expect("a place");
    let sink = RabbitMq::new(&broker.url(), place, RabbitMqSettings::default()).expect("a URL");
    let error = fire::first_error(sink).await;
    assert!(error.contains("no queue takes it"), "{error}");
}

/// Proves O-8: an event that no stream takes does not count as delivered.
#[tokio::test(flavor = "multi_thread")]
async fn nats_without_a_stream_is_down() {
    let broker = Broker::nats();
    let place = PathTemplate::parse("nobody").expect("a place");
    let error = fire::first_error(Nats::new(&broker.url(), place, NatsSettings::default())).await;
    assert!(error.contains("no stream found"), "{error}");
}
