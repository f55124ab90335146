//! Kafka, on the mock cluster of librdkafka; there is no Kafka in Debian.

use std::time::Duration;

use hapax_sinks::kafka::{Kafka, KafkaSettings};
use hapax_sinks::template::PathTemplate;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::{ClientConfig, Message as _, Offset, TopicPartitionList, message::Headers as _};

use super::fire::{Arrived, Fire, TRACE, check, under_fire};

struct Mock(MockCluster<'static, DefaultProducerContext>);

impl Fire for Mock {
    fn kill(&mut self) {
        self.0.broker_down(1).expect("down");
    }

    fn restart(&mut self) {
        self.0.broker_up(1).expect("up");
    }

    fn pause(&mut self) {
        self.0.broker_round_trip_time(1, Duration::from_secs(30)).expect("slow");
    }

    fn resume(&mut self) {
        self.0.broker_round_trip_time(1, Duration::ZERO).expect("quick");
        // Cuts off requests that were in flight in the meantime.
        self.kill();
        self.restart();
    }
}

/// Proves O-5, O-8: every event arrives, in order, on librdkafka's mock cluster.
#[tokio::test(flavor = "multi_thread")]
async fn kafka_goes_down_and_comes_back_under_load() {
    let mut cluster = Mock(MockCluster::new(1).expect("a cluster"));
    cluster.0.create_topic("events", 4, 1).expect("a topic");
    let brokers = cluster.0.bootstrap_servers();
    let settings = KafkaSettings { timeout: Duration::from_secs(1), ..KafkaSettings::default() };
    let place = PathTemplate::parse("events").expect("a place");
    let sink = Kafka::new(&brokers, place, settings).expect("settings");

    let emitted = under_fire(&mut cluster, sink).await;

    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &brokers)
        .set("group.id", "test")
        .set("enable.partition.eof", "true")
        .create()
        .expect("a consumer");
    let mut partitions = TopicPartitionList::new();
    for partition in 0..4 {
        let all = partitions.add_partition_offset("events", partition, Offset::Beginning);
        all.expect("a partition");
    }
    consumer.assign(&partitions).expect("a topic");
    let (mut arrived, mut ended) = (Vec::new(), 0);
    while ended < 4 {
        match consumer.poll(Duration::from_secs(30)).expect("an answer in time") {
            Ok(message) => {
                let read = Arrived::read(message.payload().expect("a payload"));
                let headers = message.headers().expect("headers");
                assert_eq!(headers.get(0).value, Some(read.id.as_bytes()));
                let trace = headers.iter().find(|header| header.key == "traceparent");
                assert_eq!(trace.and_then(|header| header.value), Some(TRACE.as_bytes()));
                assert_eq!(message.key(), Some(read.dataset.as_bytes()));
                arrived.push(read);
            }
            Err(rdkafka::error::KafkaError::PartitionEOF(_)) => ended += 1,
            Err(error) => panic!("{error}"),
        }
    }
    check(&emitted, &arrived);
}

/// Settings that librdkafka does not know are refused at once.
#[test]
fn unknown_settings_are_refused() {
    let properties = [("sasl.mechanisn".to_owned(), "PLAIN".to_owned())].into();
    let settings = KafkaSettings { properties, ..KafkaSettings::default() };
    let place = PathTemplate::parse("events").expect("a place");
    let error = Kafka::new("127.0.0.1:1", place, settings).err().expect("refused");
    assert!(error.to_string().contains("sasl.mechanisn"), "{error}");
}
