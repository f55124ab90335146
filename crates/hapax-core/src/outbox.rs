//! Events on their way to the outside world.
//!
//! An event is recorded in the transaction that changes the state it reports, and never changed
//! afterwards. It has one [delivery](crate::delivery) for each sink it is [routed](crate::route)
//! to.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;

use crate::canonical::canonical;
use crate::digest::{FramedHasher, ParseError};
use crate::json::{Json, JsonError};
use crate::name::Name;
use crate::time::Timestamp;

/// The id of a record: a UUIDv7 that is the same each time the same event of the same effect is
/// emitted, so that a receiver can detect a duplicate.
///
/// ```
/// use hapax_core::key::Key;
/// use hapax_core::name::{Name, Namespace};
/// use hapax_core::outbox::OutboxId;
/// use hapax_core::time::Timestamp;
///
/// let key = Key::derive("publish.v1", &[("dataset", b"flow")])?;
/// let name = Name { namespace: Namespace::default(), key };
/// let id = |ordinal| OutboxId::derive(&name, Timestamp(1_763_060_144_000), 1, ordinal);
/// assert_eq!(id(0), id(0));
/// assert_ne!(id(0), id(1));
/// assert_eq!(id(0).to_string().as_bytes()[14], b'7');
/// # Ok::<(), hapax_core::key::KeyError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OutboxId([u8; 16]);

impl OutboxId {
    /// The id of an effect's event, from the effect's name, the time of its first claim in this
    /// generation, and the event's ordinal.
    pub fn derive(name: &Name, created: Timestamp, generation: u32, ordinal: u32) -> Self {
        let digest = FramedHasher::new("hapax.outbox.v1:")
            .field(name.namespace.as_str().as_bytes())
            .field(name.key.as_bytes())
            .number(u64::from(generation))
            .number(u64::from(ordinal))
            .finish();
        let mut id = [0; 16];
        id[..6].copy_from_slice(&created.0.to_be_bytes()[2..]);
        id[6..].copy_from_slice(&digest[..10]);
        id[6] = id[6] & 0x0f | 0x70;
        id[8] = id[8] & 0x3f | 0x80;
        Self(id)
    }

    /// Wraps raw bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The raw bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for OutboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = HEXLOWER.encode(&self.0);
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        f.write_str(&parts.join("-"))
    }
}

impl fmt::Debug for OutboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for OutboxId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let refuse = || ParseError {
            expected: "an outbox id (a UUID)",
            got: text.chars().take(80).collect(),
        };
        let dashed = [8, 13, 18, 23].iter().all(|at| text.as_bytes().get(*at) == Some(&b'-'));
        if !dashed || text.len() != 36 {
            return Err(refuse());
        }
        let bytes = HEXLOWER.decode(text.replace('-', "").as_bytes()).map_err(|_| refuse())?;
        bytes.try_into().map(Self).map_err(|_| refuse())
    }
}

/// The content of an event: JSON in its canonical form.
///
/// ```
/// use hapax_core::outbox::Payload;
///
/// let payload = Payload::parse(br#"{ "b": 1.0, "a": "x" }"#)?;
/// assert_eq!(payload.as_str(), r#"{"a":"x","b":1}"#);
/// # Ok::<(), hapax_core::json::JsonError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Payload(String);

impl Payload {
    /// Reads JSON strictly: input that two readers could understand differently is refused.
    pub fn parse(json: &[u8]) -> Result<Self, JsonError> {
        Self::of(&Json::parse(json)?)
    }

    /// The payload of a value.
    pub fn of(json: &Json) -> Result<Self, JsonError> {
        canonical(json).map(Self)
    }

    /// A stored payload, which was read strictly before it was stored.
    pub fn stored(json: String) -> Self {
        Self(json)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Payload {
    /// Only its size: the content may be confidential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// Which events wait for one another.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// Those of the same dataset.
    #[default]
    Dataset,
    /// Those of this ordering key. A key that equals a dataset's name waits with that dataset.
    Key(String),
    /// None: it neither waits nor is waited for.
    Free,
}

/// A published artifact, registered with the event that announces it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Artifact {
    /// Its version. A dataset has each version once.
    pub version: String,
    /// The checksum of its content, as `sha256:<hex>` or the like.
    pub checksum: String,
    /// Where it is.
    pub uri: String,
}

/// Something that happened, to be delivered to sinks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Event {
    /// The name of the event, such as `artifact_published`.
    pub name: String,
    /// The dataset that it is about.
    pub dataset: String,
    /// The pipeline run.
    pub pipeline: Option<String>,
    /// The dataset's version.
    pub version: Option<String>,
    /// Which events it waits for.
    pub order: Order,
    /// The content.
    pub payload: Payload,
    /// The artifact, if it announces one.
    pub artifact: Option<Artifact>,
    /// The trace it belongs to. It is not part of the content: emitted again in another trace, it
    /// is the same event.
    pub trace: Option<Trace>,
}

/// A place in a trace, as the header `traceparent` of W3C Trace Context has it.
///
/// ```
/// use hapax_core::outbox::Trace;
///
/// let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// assert_eq!(Trace::parse(text).map(|trace| trace.to_string()).as_deref(), Some(text));
/// assert_eq!(Trace::parse("00-0-0-0"), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Trace(Box<str>);

impl Trace {
    /// The trace in this text, if it is one. Fields that later versions append are left out.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (start, rest) = (text.get(..55)?, &text[55..]);
        let version = start.split('-').next()?;
        let rest_ok = rest.is_empty() || version != "00" && rest.starts_with('-');
        let sizes = start.split('-').map(str::len).eq([2, 32, 16, 2]);
        let hex = start.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f' | b'-'));
        let zero =
            |part: usize| start.split('-').nth(part).is_none_or(|id| id.bytes().all(|b| b == b'0'));
        let ok = rest_ok && sizes && hex && version != "ff" && !zero(1) && !zero(2);
        ok.then(|| Self(start.into()))
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Event {
    /// Whether another event has the same content, whatever its trace.
    pub fn repeats(&self, other: &Self) -> bool {
        *self == Self { trace: self.trace.clone(), ..other.clone() }
    }

    /// An event of this name about this dataset.
    pub fn new(name: impl Into<String>, dataset: impl Into<String>, payload: Payload) -> Self {
        Self {
            name: name.into(),
            dataset: dataset.into(),
            pipeline: None,
            version: None,
            order: Order::default(),
            payload,
            artifact: None,
            trace: None,
        }
    }

    /// The first flaw of its form, if it has one.
    pub fn flaw(&self) -> Option<String> {
        let named = [("event_name", Some(&self.name)), ("dataset_id", Some(&self.dataset))];
        let order = match &self.order {
            Order::Key(key) => Some(key),
            Order::Dataset | Order::Free => None,
        };
        let artifact = self.artifact.as_ref();
        let rest = [
            ("pipeline_id", self.pipeline.as_ref()),
            ("version", self.version.as_ref()),
            ("the ordering key", order),
            ("the artifact's version", artifact.map(|artifact| &artifact.version)),
            ("the artifact's checksum", artifact.map(|artifact| &artifact.checksum)),
            ("the artifact's uri", artifact.map(|artifact| &artifact.uri)),
        ];
        for (what, text) in named.into_iter().chain(rest) {
            let Some(text) = text else { continue };
            if text.trim().is_empty() {
                return Some(format!("{what} is blank"));
            }
            if text.len() > Self::LONGEST_FIELD || text.contains(char::is_control) {
                let most = Self::LONGEST_FIELD;
                return Some(format!(
                    "{what} is longer than {most} bytes or has control characters"
                ));
            }
        }
        let size = self.payload.as_str().len();
        let most = Self::LARGEST_PAYLOAD;
        (size > most).then(|| format!("a payload of {size} bytes exceeds {most}"))
    }

    /// The longest name, dataset, version or ordering key, in bytes.
    pub const LONGEST_FIELD: usize = 512;
    /// The largest payload, in bytes.
    pub const LARGEST_PAYLOAD: usize = 1024 * 1024;
    /// How many events one effect may emit.
    pub const MOST: u32 = 10_000;
}

/// An event as it is recorded: once, for good.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Record {
    /// The id that every receiver sees.
    pub id: OutboxId,
    /// Its place in the order of the outbox; given by the store.
    pub seq: u64,
    /// The effect that emitted it.
    pub name: Name,
    /// Which of the effect's events it is, from 0.
    pub ordinal: u32,
    /// The event.
    pub event: Event,
    /// When it was recorded.
    pub created: Timestamp,
}

impl Record {
    /// The hash of its ordering key.
    pub fn ordering_hash(&self) -> OrderingKeyHash {
        let namespace = self.name.namespace.as_str().as_bytes();
        let framed = FramedHasher::new("hapax.order.v1:").field(namespace);
        let digest = match &self.event.order {
            Order::Dataset => framed.field(self.event.dataset.as_bytes()),
            Order::Key(key) => framed.field(key.as_bytes()),
            Order::Free => framed.number(0).field(self.id.as_bytes()),
        };
        let [a, b, c, d, e, f, g, h, ..] = digest.finish();
        OrderingKeyHash(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }
}

/// The hash of an ordering key, whose records are sent one after the other. Two keys that collide
/// in 64 bits wait for each other, and no more comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OrderingKeyHash(pub u64);

impl OrderingKeyHash {
    /// The bucket it lies in.
    pub fn bucket(self) -> u16 {
        (self.0 >> 54) as u16
    }
}

/// The status of a record, over all its sinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// Some sink does not have it yet.
    Pending,
    /// Every sink has it.
    Dispatched,
    /// Some sink could not be given it, and an operator must redrive it.
    Failed,
}

impl Status {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Dispatched, Self::Failed];

    /// The status of a record, from its status at each of its sinks.
    ///
    /// ```
    /// use hapax_core::outbox::Status::{self, Dispatched, Failed, Pending};
    ///
    /// assert_eq!(Status::over([Dispatched, Pending, Failed]), Failed);
    /// assert_eq!(Status::over([Dispatched, Pending]), Pending);
    /// assert_eq!(Status::over([]), Dispatched);
    /// ```
    pub fn over(sinks: impl IntoIterator<Item = Self>) -> Self {
        sinks.into_iter().fold(Self::Dispatched, |all, one| match (all, one) {
            (Self::Failed, _) | (_, Self::Failed) => Self::Failed,
            (Self::Pending, _) | (_, Self::Pending) => Self::Pending,
            (Self::Dispatched, Self::Dispatched) => Self::Dispatched,
        })
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Dispatched => "dispatched",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;
    use crate::name::Namespace;

    fn record(dataset: &str, order: Order, ordinal: u32) -> Record {
        let name = Name { namespace: Namespace::default(), key: Key::from_bytes([7; 32]) };
        let payload = Payload::parse(b"{}").unwrap();
        let id = OutboxId::derive(&name, Timestamp(1_763_060_144_000), 1, ordinal);
        let event = Event { order, ..Event::new("e", dataset, payload) };
        Record { id, seq: 0, name, ordinal, event, created: Timestamp(0) }
    }

    /// Proves O-1 and O-7: a UUIDv7, the same for the same event, another for another.
    #[test]
    fn ids_are_uuids_that_derive_from_the_effect() {
        let name = Name { namespace: Namespace::default(), key: Key::from_bytes([7; 32]) };
        let at = Timestamp(1_763_060_144_000);
        let id = OutboxId::derive(&name, at, 1, 0);
        assert_eq!(id.to_string(), "019a7e92-d780-7e23-9381-4b4541713a4c");
        assert_eq!(id.to_string().parse(), Ok(id));
        for other in [(at, 2, 0), (at, 1, 1), (Timestamp(at.0 + 1), 1, 0)] {
            assert_ne!(OutboxId::derive(&name, other.0, other.1, other.2), id);
        }
        for bad in ["", "019a7e93", "019a7e92d7807e2393814b4541713a4c0000", "outbox_77431f"] {
            assert!(bad.parse::<OutboxId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn tracks_tell_ordering_keys_apart() {
        let flow = record("flow", Order::Dataset, 0).ordering_hash();
        assert_eq!(flow, record("flow", Order::Dataset, 1).ordering_hash());
        assert_eq!(flow, record("other", Order::Key("flow".into()), 0).ordering_hash());
        assert_ne!(flow, record("rain", Order::Dataset, 0).ordering_hash());
        let free = |ordinal| record("flow", Order::Free, ordinal).ordering_hash();
        assert_ne!(free(0), free(1));
        assert!(flow.bucket() < 1024);
    }

    #[test]
    fn a_flaw_says_which_field_it_is_in() {
        let flaw = |event: Event| event.flaw().unwrap_or_default();
        let good = record("flow", Order::Dataset, 0).event;
        assert_eq!(flaw(good.clone()), "");
        assert_eq!(flaw(Event { name: " ".into(), ..good.clone() }), "event_name is blank");
        let long = "x".repeat(513);
        assert!(
            flaw(Event { version: Some(long), ..good.clone() }).starts_with("version is longer")
        );
        let payload = Payload::stored("1".repeat(Event::LARGEST_PAYLOAD + 1));
        assert!(flaw(Event { payload, ..good }).contains("exceeds"));
    }
}
