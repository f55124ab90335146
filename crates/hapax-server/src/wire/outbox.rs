//! Events, and how far they have come.

use hapax::outbox::{Found, Order, Payload, SinkStats, Status};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::time;

/// Something that happened, to be told.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// What happened, such as `artifact_published`.
    #[schema(min_length = 1, max_length = 256)]
    pub event_name: String,
    /// To which dataset.
    #[schema(min_length = 1, max_length = 1024)]
    pub dataset_id: String,
    /// What there is to say: any JSON.
    #[schema(value_type = Value)]
    pub payload: Box<RawValue>,
    /// In which pipeline run.
    pub pipeline_id: Option<String>,
    /// The dataset's version.
    pub version: Option<String>,
    /// What it waits in line with, if that is not the dataset.
    pub order_key: Option<String>,
    /// Whether it waits in line at all.
    #[serde(default = "yes")]
    pub ordered: bool,
    /// What was published, if it tells of a publication.
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
    /// Where it is.
    pub uri: String,
}

/// Reads an event from its JSON.
pub fn event(json: &str) -> Result<hapax::outbox::Event, String> {
    let event: Event = serde_json::from_str(json).map_err(|error| error.to_string())?;
    event.meant()
}

impl Event {
    pub(crate) fn meant(self) -> Result<hapax::outbox::Event, String> {
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

/// A record of the outbox, under the names that its columns have.
#[derive(Debug, Serialize, ToSchema)]
pub struct Record {
    /// Its id, the same for ever.
    pub outbox_id: String,
    /// Its place.
    pub seq: u64,
    /// In which pipeline run.
    pub pipeline_id: Option<String>,
    /// What happened.
    pub event_name: String,
    /// To which dataset.
    pub dataset_id: String,
    /// The dataset's version.
    pub version: Option<String>,
    /// The key of the effect that it tells of.
    pub idempotency_key: String,
    /// What there is to say.
    #[schema(value_type = Value)]
    pub payload: Box<RawValue>,
    /// How far it has come, over all sinks.
    #[schema(value_type = Statuses)]
    pub status: &'static str,
    /// How often it was tried, at most.
    pub attempt: u32,
    /// Why it is not delivered, where it is not.
    pub last_error: Option<String>,
    /// When it was recorded.
    pub created_at: String,
    /// When something last became of it.
    pub updated_at: String,
    /// What was published, if it tells of a publication.
    pub artifact: Option<Artifact>,
    /// The trace it belongs to, as W3C Trace Context has it.
    pub traceparent: Option<String>,
    /// How far it has come at each sink.
    pub deliveries: Vec<Delivery>,
}

/// The names of how far an event has come, for the schema.
#[derive(ToSchema)]
#[schema(as = Status, rename_all = "lowercase")]
#[expect(dead_code, reason = "only its schema is used")]
enum Statuses {
    Pending,
    Dispatched,
    Failed,
}

impl Record {
    /// A record and how far it has come.
    pub fn of(found: &Found) -> Self {
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
            deliveries: found.deliveries.iter().map(Delivery::of).collect(),
        }
    }
}

/// Why an event is not delivered, where it is not.
pub fn last_error(found: &Found) -> Option<&str> {
    let open = found.deliveries.iter().filter(|d| d.status != Status::Dispatched);
    open.max_by_key(|delivery| delivery.updated)?.error.as_deref()
}

/// How far a record has come at one sink.
#[derive(Debug, Serialize, ToSchema)]
pub struct Delivery {
    /// The sink.
    pub sink: String,
    /// How far.
    #[schema(value_type = Statuses)]
    pub status: &'static str,
    /// How often it was tried.
    pub attempt: u32,
    /// Not before, while it is pending.
    pub next_attempt_at: Option<String>,
    /// Why the last try failed, if one did.
    pub last_error: Option<String>,
    /// When something last became of it.
    pub updated_at: String,
    /// Whether those behind it wait.
    pub parks_its_key: bool,
}

impl Delivery {
    fn of(delivery: &hapax::outbox::Delivery) -> Self {
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
    /// Only this event.
    pub outbox_id: Option<String>,
    /// Only at this sink.
    pub sink: Option<String>,
    /// Also where the receiver may have forgotten that it had it.
    #[serde(default)]
    pub may_duplicate: bool,
    /// At most this many.
    #[schema(minimum = 1, maximum = 10_000)]
    pub limit: Option<usize>,
}

/// What was redriven.
#[derive(Debug, Serialize, ToSchema)]
pub struct Redriven {
    /// How many are tried again.
    pub redriven: usize,
}

/// How much there is at a sink.
#[derive(Debug, Serialize, ToSchema)]
pub struct Sink {
    /// Its name.
    pub sink: String,
    /// Whether nothing is sent to it for now.
    pub paused: bool,
    /// How many wait.
    pub pending: u64,
    /// How many have failed.
    pub failed: u64,
    /// When the oldest that waits was recorded.
    pub oldest_pending: Option<String>,
}

impl Sink {
    /// How much there is.
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
