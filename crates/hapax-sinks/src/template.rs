//! The destination of an event in a broker.

use hapax::outbox::Record;

/// The longest name that is given to a broker, in bytes; AMQP allows no more.
const LONGEST: usize = 255;

/// A subject, routing key, stream or topic: a fixed name, or one that depends on the event.
///
/// `{event}`, `{dataset}` and `{namespace}` stand for the event's name, dataset and namespace. A
/// character in them that is neither an ASCII letter, a digit, `-` nor `_` becomes `_`, so that a
/// value cannot change the structure of the name.
///
/// ```
/// use hapax_sinks::template::PathTemplate;
///
/// assert!(PathTemplate::parse("events.{event}").is_ok());
/// assert!(PathTemplate::parse("events.{date}").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathTemplate {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Event,
    Dataset,
    Namespace,
}

/// Why a place was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// It is empty, too long, or has spaces or control characters.
    #[error("a place has 1 to {LONGEST} bytes, and no spaces or control characters")]
    Length,
    /// It has a placeholder that does not exist.
    #[error("{{{0}}} is none of {{event}}, {{dataset}}, {{namespace}}")]
    Unknown(String),
}

impl PathTemplate {
    /// Reads a place.
    pub fn parse(text: &str) -> Result<Self, PlaceError> {
        let blank = |c: char| c.is_whitespace() || c.is_control();
        if text.is_empty() || text.len() > LONGEST || text.contains(blank) {
            return Err(PlaceError::Length);
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, (name, after))) =
            rest.split_once('{').and_then(|(before, after)| Some((before, after.split_once('}')?)))
        {
            parts.push(Part::Text(before.into()));
            parts.push(match name {
                "event" => Part::Event,
                "dataset" => Part::Dataset,
                "namespace" => Part::Namespace,
                other => return Err(PlaceError::Unknown(other.into())),
            });
            rest = after;
        }
        parts.push(Part::Text(rest.into()));
        Ok(Self { parts })
    }

    /// The name for an event; nothing if it would be too long.
    pub(crate) fn of(&self, record: &Record) -> Option<String> {
        let mut name = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => name.push_str(text),
                Part::Event => name.extend(record.event.name.chars().map(plain)),
                Part::Dataset => name.extend(record.event.dataset.chars().map(plain)),
                Part::Namespace => name.extend(record.name.namespace.as_str().chars().map(plain)),
            }
        }
        (name.len() <= LONGEST).then_some(name)
    }
}

fn plain(c: char) -> char {
    if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax::outbox::{Event, OutboxId, Payload};
    use hapax::{Key, Name, Namespace, Timestamp};

    fn record(dataset: &str) -> Record {
        let key = Key::derive("publish.v1", &[("dataset", dataset.as_bytes())]).unwrap();
        let name = Name { namespace: Namespace::default(), key };
        let event = Event::new("published", dataset, Payload::parse(b"{}").unwrap());
        let (created, id) = (Timestamp(0), OutboxId::derive(&name, Timestamp(0), 1, 0));
        Record { id, seq: 1, name, ordinal: 0, event, created }
    }

    #[test]
    fn names_depend_on_the_event_and_stay_in_their_place() {
        let place = PathTemplate::parse("ev.{event}.{dataset}.x").unwrap();
        assert_eq!(place.of(&record("a.b>*é")).unwrap(), "ev.published.a_b___.x");
        assert_eq!(PathTemplate::parse("plain}").unwrap().of(&record("a")).unwrap(), "plain}");
        assert_eq!(PathTemplate::parse("{dataset}").unwrap().of(&record(&"a".repeat(256))), None);
    }

    #[test]
    fn odd_places_are_refused() {
        assert_eq!(PathTemplate::parse(""), Err(PlaceError::Length));
        assert_eq!(PathTemplate::parse("a b"), Err(PlaceError::Length));
        assert_eq!(PathTemplate::parse("{id}"), Err(PlaceError::Unknown("id".into())));
    }
}
