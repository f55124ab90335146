//! A report as a document, for a file that keeps it until the ledger can record it.

use data_encoding::BASE64;
use hapax_core::attempt::Fence;
use hapax_core::document::{Object, flag, list, text};
use hapax_core::effect::Report;
use hapax_core::json::Json;
use hapax_core::name::{Name, Namespace};
use hapax_core::outbox::{Artifact, Event, Order, Payload, Trace};
use hapax_core::outcome::Outcome;
use hapax_core::part::Part;
use hapax_core::result_index::IndexEntry;

use crate::command::Settle;
use crate::outbox::{Attachments, Emission};

/// The form of these documents.
const FORM: &str = "hapax.report.v1";

/// Writes a report with all that is recorded beside it.
pub fn print(settle: &Settle) -> String {
    let Settle { name, attempt, fence, report, attachments } = settle;
    let (kind, reason, outcome) = match report {
        Report::Succeeded(outcome) => ("succeeded", None, Some(outcome)),
        Report::Failed(reason) => ("failed", Some(reason), None),
        Report::Partial(reason) => ("partial", Some(reason), None),
        Report::Ambiguous(reason) => ("ambiguous", Some(reason), None),
        Report::Released(reason) => ("released", Some(reason), None),
    };
    let events = attachments.events.iter().map(|emission| of_event(&emission.event));
    // Numbers of entries may be larger than a double holds, so they are texts.
    Object::default()
        .text("form", FORM)
        .text("namespace", name.namespace.as_str())
        .text("key", name.key.to_string().as_str())
        .text("attempt", attempt.to_string().as_str())
        .text("fence", fence.map(|fence| fence.0.to_string()).as_deref())
        .text("report", kind)
        .text("reason", reason.map(String::as_str))
        .with("outcome", outcome.map(of_outcome))
        .list("events", events)
        .text("note", attachments.note.as_deref())
        .with("index_entry", attachments.index_entry.as_ref().map(of_index_entry))
        .with("part", attachments.part.as_ref().map(of_part))
        .print()
}

/// Reads a report. `None` if this is not one, or not a whole one.
pub fn parse(document: &[u8]) -> Option<Settle> {
    let json = Json::parse(document).ok()?;
    if text(&json, "form")? != FORM {
        return None;
    }
    let namespace = Namespace::new(&text(&json, "namespace")?).ok()?;
    let name = Name { namespace, key: text(&json, "key")?.parse().ok()? };
    let fence = match text(&json, "fence") {
        Some(fence) => Some(Fence(fence.parse().ok()?)),
        None => None,
    };
    let reason = text(&json, "reason");
    let report = match text(&json, "report")?.as_str() {
        "succeeded" => Report::Succeeded(outcome(json.get("outcome")?)?),
        "failed" => Report::Failed(reason?),
        "partial" => Report::Partial(reason?),
        "ambiguous" => Report::Ambiguous(reason?),
        "released" => Report::Released(reason?),
        _ => return None,
    };
    let written = json.get("events").and_then(Json::as_array).unwrap_or_default();
    let events = list(&json, "events", event);
    if events.len() != written.len() {
        return None;
    }
    let events = (0..).zip(events).map(|(ordinal, event)| Emission { ordinal, event }).collect();
    let index_entry = match json.get("index_entry") {
        Some(entry) => Some(index_entry(entry)?),
        None => None,
    };
    let part = match json.get("part") {
        Some(written) => Some(part(written)?),
        None => None,
    };
    let attachments = Attachments { events, note: text(&json, "note"), index_entry, part };
    let attempt = text(&json, "attempt")?.parse().ok()?;
    Some(Settle { name, attempt, fence, report, attachments })
}

fn of_outcome(outcome: &Outcome) -> Json {
    Object::default()
        .text("digest", outcome.digest().to_string().as_str())
        .text("size", outcome.size().to_string().as_str())
        .text("body", outcome.body().map(|body| BASE64.encode(body)).as_deref())
        .json()
}

fn outcome(json: &Json) -> Option<Outcome> {
    match text(json, "body") {
        Some(body) => Some(Outcome::new(BASE64.decode(body.as_bytes()).ok()?)),
        None => {
            let digest = text(json, "digest")?.parse().ok()?;
            Some(Outcome::not_kept(digest, text(json, "size")?.parse().ok()?))
        }
    }
}

fn of_event(event: &Event) -> Json {
    let artifact = event.artifact.as_ref().map(|artifact| {
        Object::default()
            .text("version", artifact.version.as_str())
            .text("checksum", artifact.checksum.as_str())
            .text("uri", artifact.uri.as_str())
            .json()
    });
    let (ordering_key, free) = match &event.order {
        Order::Dataset => (None, false),
        Order::Key(key) => (Some(key.as_str()), false),
        Order::Free => (None, true),
    };
    Object::default()
        .text("name", event.name.as_str())
        .text("dataset", event.dataset.as_str())
        .text("pipeline", event.pipeline.as_deref())
        .text("version", event.version.as_deref())
        .text("ordering_key", ordering_key)
        .flag("unordered", free)
        .text("payload", event.payload.as_str())
        .with("artifact", artifact)
        .text("trace", event.trace.as_ref().map(|trace| trace.to_string()).as_deref())
        .json()
}

fn event(json: &Json) -> Option<Event> {
    let artifact = match json.get("artifact") {
        Some(artifact) => Some(Artifact {
            version: text(artifact, "version")?,
            checksum: text(artifact, "checksum")?,
            uri: text(artifact, "uri")?,
        }),
        None => None,
    };
    Some(Event {
        name: text(json, "name")?,
        dataset: text(json, "dataset")?,
        pipeline: text(json, "pipeline"),
        version: text(json, "version"),
        order: match text(json, "ordering_key") {
            Some(key) => Order::Key(key),
            None if flag(json, "unordered") => Order::Free,
            None => Order::Dataset,
        },
        payload: Payload::parse(text(json, "payload")?.as_bytes()).ok()?,
        artifact,
        trace: text(json, "trace").and_then(|trace| Trace::parse(&trace)),
    })
}

fn of_index_entry(entry: &IndexEntry) -> Json {
    Object::default()
        .text("ontology", entry.ontology.as_str())
        .text("version", entry.version.as_str())
        .text("text_hash", entry.text_hash.as_str())
        .text("params_hash", entry.params_hash.as_str())
        .flag("whole", entry.whole)
        .json()
}

fn index_entry(json: &Json) -> Option<IndexEntry> {
    Some(IndexEntry {
        ontology: text(json, "ontology")?,
        version: text(json, "version")?,
        text_hash: text(json, "text_hash")?,
        params_hash: text(json, "params_hash")?,
        whole: flag(json, "whole"),
    })
}

fn of_part(part: &Part) -> Json {
    Object::default()
        .text("whole", part.whole.to_string().as_str())
        .text("kind", part.kind.as_str())
        .text("body", BASE64.encode(&part.body).as_str())
        .json()
}

fn part(json: &Json) -> Option<Part> {
    Some(Part {
        whole: text(json, "whole")?.parse().ok()?,
        kind: text(json, "kind")?,
        body: BASE64.decode(text(json, "body")?.as_bytes()).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_core::attempt::AttemptId;
    use hapax_core::key::Key;
    use hapax_core::outcome::Digest;

    fn reports() -> Vec<Settle> {
        let whole = Key::from_bytes([9; 32]);
        let event = Event {
            name: "artifact_published".into(),
            dataset: "flow \"north\"".into(),
            pipeline: Some("p".into()),
            version: Some("2".into()),
            order: Order::Key("k".into()),
            payload: Payload::parse(br#"{"n": 1.5}"#).unwrap(),
            artifact: Some(Artifact {
                version: "2".into(),
                checksum: "sha256:0".into(),
                uri: "file:///x".into(),
            }),
            trace: Trace::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        };
        let plain = Event {
            order: Order::Free,
            pipeline: None,
            version: None,
            artifact: None,
            trace: None,
            ..event.clone()
        };
        let events = [(0, event), (1, plain)];
        let attachments = Attachments {
            events: events.map(|(ordinal, event)| Emission { ordinal, event }).to_vec(),
            note: Some("a note\nof two lines".into()),
            index_entry: Some(IndexEntry {
                ontology: "o".into(),
                version: "v".into(),
                text_hash: "t".into(),
                params_hash: "p".into(),
                whole: true,
            }),
            part: Some(Part { whole, kind: "mutation".into(), body: vec![0, 255] }),
        };
        let settle = |fence, report, attachments| Settle {
            name: Name {
                namespace: Namespace::new("shop").unwrap(),
                key: Key::from_bytes([7; 32]),
            },
            attempt: AttemptId::from_bytes([3; 16]),
            fence,
            report,
            attachments,
        };
        let none = Attachments::default;
        vec![
            settle(Some(Fence(u64::MAX)), Report::Succeeded(Outcome::new([0, 159])), attachments),
            settle(None, Report::Succeeded(Outcome::not_kept(Digest::of(b"x"), 1 << 60)), none()),
            settle(Some(Fence(1)), Report::Failed("no".into()), none()),
            settle(Some(Fence(1)), Report::Partial("half".into()), none()),
            settle(Some(Fence(1)), Report::Ambiguous("?".into()), none()),
            settle(None, Report::Released("not delivered".into()), none()),
        ]
    }

    /// Proves K-24: what is kept of a report is all of it.
    #[test]
    fn a_report_is_read_as_it_was_written() {
        for report in reports() {
            let read = parse(print(&report).as_bytes()).unwrap();
            assert_eq!(format!("{read:?}"), format!("{report:?}"));
        }
    }

    #[test]
    fn half_a_report_is_none() {
        for report in reports() {
            let document = print(&report);
            assert!((0..document.len()).all(|end| parse(&document.as_bytes()[..end]).is_none()));
        }
        assert!(parse(b"{}").is_none());
    }
}
