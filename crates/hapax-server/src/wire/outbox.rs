//! Events, and their deliveries to sinks.

use hapax::outbox::{Order, Payload, RecordStatus, SinkStats, Status};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::time;

/// An event to be emitted.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// The name of the event, such as `artifact_published`.
    #[schema(min_length = 1, max_length = 256)]
    pub event_name: String,
    /// The dataset that it is about.
    #[schema(min_length = 1, max_length = 1024)]
    pub dataset_id: String,
    /// The payload: any JSON.
    #[schema(value_type = Value)]
    pub payload: Box<RawValue>,
    /// The pipeline run that emits it.
    pub pipeline_id: Option<String>,
    /// The version of the dataset.
    pub version: Option<String>,
    /// The ordering key, if it is not the dataset.
    pub order_key: Option<String>,
    /// Whether the event is delivered in order with the others of its ordering key.
    #[serde(default = "yes")]
    pub ordered: bool,
    /// The published artifact, if the event announces one.
    pub artifact: Option<Artifact>,
}

fn yes() -> bool {
    true
}

/// A published artifact.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Artifact {
    /// Its version. A dataset has each version once.
    pub version: String,
    /// The checksum of its content.
    pub checksum: String,
    /// Its URI.
    pub uri: String,
}

/// Reads an event from its JSON.
pub fn event(json: &str) -> Result<hapax::outbox::Event, String> {
    let event: Event = serde_json::from_str(json).map_err(|error| error.to_string())?;
    event.into_domain()
}

impl Event {
    pub(crate) fn into_domain(self) -> Result<hapax::outbox::Event, String> {
        let payload = Payload::parse(self.payload.get().as_bytes());
        let payload = payload.map_err(|error| format!("payload: {error}"))?;
        let order = match (self.ordered, self.order_key) {
            (false, _) => Order::Free,
            (true, Some(key)) => Order::Key(key),
            (true, None) => Order::Dataset,
        };
        let artifact = self.artifact.map(|Artifact { version, checksum, uri }| {
            hapax::outbox::Artifact { version, checksum, uri }
        });
        let event = hapax::outbox::Event {
            pipeline: self.pipeline_id,
            version: self.version,
            order,
            artifact,
            ..hapax::outbox::Event::new(self.event_name, self.dataset_id, payload)
        };
        match event.flaw() {
            Some(flaw) => Err(flaw),
            None => Ok(event),
        }
    }
}

/// An outbox record, under the names of its columns.
#[derive(Debug, Serialize, ToSchema)]
pub struct Record {
    /// The id of the record; it never changes.
    pub outbox_id: String,
    /// The sequence number of the record.
    pub seq: u64,
    /// The pipeline run that emitted it.
    pub pipeline_id: Option<String>,
    /// The name of the event.
    pub event_name: String,
    /// The dataset that it is about.
    pub dataset_id: String,
    /// The version of the dataset.
    pub version: Option<String>,
    /// The key of the effect that it was emitted with.
    pub idempotency_key: String,
    /// The payload.
    #[schema(value_type = Value)]
    pub payload: Box<RawValue>,
    /// The status over all sinks.
    #[schema(value_type = Statuses)]
    pub status: &'static str,
    /// The number of tries at the sink that was tried most often.
    pub attempt: u32,
    /// The error of the delivery that changed last, among those not dispatched.
    pub last_error: Option<String>,
    /// When it was recorded.
    pub created_at: String,
    /// When one of its deliveries last changed.
    pub updated_at: String,
    /// The published artifact, if the event announces one.
    pub artifact: Option<Artifact>,
    /// The trace it belongs to, as a `traceparent` of W3C Trace Context.
    pub traceparent: Option<String>,
    /// Its deliveries, one for each sink.
    pub deliveries: Vec<DeliveryStatus>,
}

/// The names of the statuses, for the schema.
#[derive(ToSchema)]
#[schema(as = Status, rename_all = "lowercase")]
#[expect(dead_code, reason = "only its schema is used")]
enum Statuses {
    Pending,
    Dispatched,
    Failed,
}

impl Record {
    /// The document of a record and its deliveries.
    pub fn of(found: &RecordStatus) -> Self {
        let (record, event) = (&found.record, &found.record.event);
        let updated = found.deliveries.iter().map(|delivery| delivery.updated).max();
        let artifact = event.artifact.as_ref().map(|artifact| Artifact {
            version: artifact.version.clone(),
            checksum: artifact.checksum.clone(),
            uri: artifact.uri.clone(),
        });
        Self {
            outbox_id: record.id.to_string(),
            seq: record.seq,
            pipeline_id: event.pipeline.clone(),
            event_name: event.name.clone(),
            dataset_id: event.dataset.clone(),
            version: event.version.clone(),
            idempotency_key: record.name.key.to_string(),
            payload: RawValue::from_string(event.payload.as_str().to_owned()).unwrap_or_default(),
            status: found.status.as_str(),
            attempt: found.deliveries.iter().map(|delivery| delivery.tried).max().unwrap_or(0),
            last_error: last_error(found).map(str::to_owned),
            created_at: time(record.created),
            updated_at: time(updated.unwrap_or(record.created)),
            artifact,
            traceparent: event.trace.as_ref().map(ToString::to_string),
            deliveries: found.deliveries.iter().map(DeliveryStatus::of).collect(),
        }
    }
}

/// The error of the delivery that changed last, among those not dispatched.
pub fn last_error(found: &RecordStatus) -> Option<&str> {
    let open = found.deliveries.iter().filter(|d| d.status != Status::Dispatched);
    open.max_by_key(|delivery| delivery.updated)?.error.as_deref()
}

/// The delivery of a record to one sink.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeliveryStatus {
    /// The sink.
    pub sink: String,
    /// The status at this sink.
    #[schema(value_type = Statuses)]
    pub status: &'static str,
    /// How often it was tried.
    pub attempt: u32,
    /// When the next try is due, while it is pending.
    pub next_attempt_at: Option<String>,
    /// The error of the last try, if it failed.
    pub last_error: Option<String>,
    /// When it last changed.
    pub updated_at: String,
    /// Whether it holds back the later events of its ordering key.
    pub parks_its_key: bool,
}

impl DeliveryStatus {
    fn of(delivery: &hapax::outbox::DeliveryStatus) -> Self {
        Self {
            sink: delivery.sink.to_string(),
            status: delivery.status.as_str(),
            attempt: delivery.tried,
            next_attempt_at: delivery.due.map(time),
            last_error: delivery.error.clone(),
            updated_at: time(delivery.updated),
            parks_its_key: delivery.parks,
        }
    }
}

/// Which failed deliveries to try again.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Redrive {
    /// Only this record.
    pub outbox_id: Option<String>,
    /// Only deliveries to this sink.
    pub sink: Option<String>,
    /// Also redrive records so old that the receiver may have forgotten them. It may apply them twice.
    #[serde(default)]
    pub may_duplicate: bool,
    /// At most this many.
    #[schema(minimum = 1, maximum = 10_000)]
    pub limit: Option<usize>,
}

/// The answer to a redrive.
#[derive(Debug, Serialize, ToSchema)]
pub struct Redriven {
    /// How many deliveries are tried again.
    pub redriven: usize,
}

/// The numbers of one sink.
#[derive(Debug, Serialize, ToSchema)]
pub struct Sink {
    /// Its name.
    pub sink: String,
    /// Whether the sink is paused: the dispatcher sends it nothing.
    pub paused: bool,
    /// How many deliveries are pending.
    pub pending: u64,
    /// How many deliveries have failed.
    pub failed: u64,
    /// When the oldest pending record was recorded.
    pub oldest_pending: Option<String>,
}

impl Sink {
    /// The document of a sink's numbers.
    pub fn of(stats: &SinkStats) -> Self {
        Self {
            sink: stats.sink.name.to_string(),
            paused: stats.sink.paused,
            pending: stats.pending,
            failed: stats.failed,
            oldest_pending: stats.oldest.map(time),
        }
    }
}
