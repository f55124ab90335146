//! The wire form of an event: one JSON object.

use std::time::{Duration, UNIX_EPOCH};

use hapax::json::Json;
use hapax::outbox::{Artifact, Record};

/// The text of a record: its fields under the names they have in the outbox, and the payload.
///
/// ```
/// use hapax::outbox::{Event, OutboxId, Payload, Record};
/// use hapax::{Key, Name, Namespace, Timestamp};
/// use hapax_sinks::envelope::text;
///
/// let key = Key::derive("publish.v1", &[("dataset", b"flow")])?;
/// let name = Name { namespace: Namespace::default(), key };
/// let created = Timestamp(1_763_060_144_000);
/// let event = Event::new("artifact_published", "flow", Payload::parse(br#"{"rows": 7}"#)?);
/// let id = OutboxId::derive(&name, created, 1, 0);
/// let record = Record { id, seq: 1, name, ordinal: 0, event, created };
/// let text = text(&record);
/// assert!(text.starts_with(r#"{"created_at":"2025-11-13T18:55:44.000Z","dataset_id":"flow","#));
/// assert!(text.ends_with(r#","payload":{"rows":7}}"#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn text(record: &Record) -> String {
    let event = &record.event;
    let at = UNIX_EPOCH + Duration::from_millis(record.created.0.max(0) as u64);
    let mut fields = vec![
        ("created_at", Json::text(&humantime::format_rfc3339_millis(at).to_string())),
        ("dataset_id", Json::text(&event.dataset)),
        ("event_name", Json::text(&event.name)),
        ("idempotency_key", Json::text(&record.name.key.to_string())),
        ("namespace", Json::text(record.name.namespace.as_str())),
        ("outbox_id", Json::text(&record.id.to_string())),
    ];
    let trace = event.trace.as_ref().map(ToString::to_string);
    let optional =
        [("pipeline_id", &event.pipeline), ("traceparent", &trace), ("version", &event.version)];
    fields.extend(
        optional.iter().filter_map(|(name, text)| Some((*name, Json::text(text.as_ref()?)))),
    );
    fields.extend(event.artifact.as_ref().map(|artifact| ("artifact", published(artifact))));
    let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    // Texts only, which have a canonical form.
    let mut text = hapax::canonical::canonical(&Json::Object(fields)).unwrap_or_default();
    text.pop();
    text.push_str(r#","payload":"#);
    text.push_str(event.payload.as_str());
    text.push('}');
    text
}

fn published(artifact: &Artifact) -> Json {
    Json::object([
        ("checksum", Json::text(&artifact.checksum)),
        ("uri", Json::text(&artifact.uri)),
        ("version", Json::text(&artifact.version)),
    ])
}
