//! Events that a program under `hapax run` leaves to be told: JSON lines in a file of its own.

use std::io::Read as _;

use hapax::outbox::{Artifact, Event, Order, Payload};
use serde::Deserialize;
use serde_json::value::RawValue;
use tempfile::NamedTempFile;

/// The largest file that is read.
const LARGEST: u64 = 16 * 1024 * 1024;

/// One line, under the names that the outbox has.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    event_name: String,
    dataset_id: String,
    payload: Box<RawValue>,
    pipeline_id: Option<String>,
    version: Option<String>,
    order_key: Option<String>,
    #[serde(default = "yes")]
    ordered: bool,
    artifact: Option<Published>,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Published {
    version: String,
    checksum: String,
    uri: String,
}

/// Reads what the program has written. What is wrong is said with its line.
pub(crate) fn read(file: &NamedTempFile) -> Result<Vec<Event>, String> {
    let mut text = String::new();
    let opened = file.reopen().map_err(|error| error.to_string())?;
    opened.take(LARGEST + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > LARGEST {
        return Err(format!("more than {LARGEST} bytes of events"));
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let event = |(nth, line): (usize, &str)| {
        one(line).map_err(|why| format!("line {} of HAPAX_EVENTS: {why}", nth + 1))
    };
    lines.map(event).collect()
}

fn one(line: &str) -> Result<Event, String> {
    let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let payload = Payload::parse(line.payload.get().as_bytes());
    let order = match (line.ordered, line.order_key) {
        (false, _) => Order::Free,
        (true, Some(key)) => Order::Key(key),
        (true, None) => Order::Dataset,
    };
    let artifact = line.artifact.map(|Published { version, checksum, uri }| Artifact {
        version,
        checksum,
        uri,
    });
    let event = Event {
        pipeline: line.pipeline_id,
        version: line.version,
        order,
        artifact,
        ..Event::new(
            line.event_name,
            line.dataset_id,
            payload.map_err(|error| format!("payload: {error}"))?,
        )
    };
    match event.flaw() {
        Some(flaw) => Err(flaw),
        None => Ok(event),
    }
}
