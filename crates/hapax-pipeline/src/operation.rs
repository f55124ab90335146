//! Operations: changes to datasets, as callers ask for them and as the journal keeps them.

use std::time::{Duration, UNIX_EPOCH};

use hapax::json::Json;
use hapax::key::pipeline;
use hapax::outbox::Event;
use hapax::{Key, KeyError};

use crate::error::Error;
use hapax::document::{Object, flag, list, text, words};

/// One change to a dataset, identified by the eight fields of its key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Operation {
    /// The pipeline.
    pub pipeline_id: String,
    /// The task in the pipeline.
    pub task_id: String,
    /// The dataset it changes.
    pub dataset_id: String,
    /// The kind of change.
    pub operation_type: String,
    /// The version it produces.
    pub version: String,
    /// The checksum of the raw input.
    pub checksum_in: String,
    /// The hash of the parameters.
    pub params_hash: String,
    /// The caller's logical time, rounded down; carried unchanged by every retry.
    pub timestamp_bucket: String,
    /// The inputs it reads, for lineage.
    pub inputs: Vec<Source>,
    /// Why it is done; required where the dataset is sensitive.
    pub justification: Option<String>,
    /// The decision that allows it; required where the dataset is restricted.
    pub governance_ref: Option<String>,
    /// The program that does it and its arguments, if a program does; a replay runs it.
    pub program: Vec<String>,
    /// The parameters it gets, if a replay is to run it again.
    pub params: Option<String>,
}

/// An input of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Source {
    /// Its name: that of a dataset or a file.
    pub name: String,
    /// The checksum of what was read.
    pub checksum: Option<String>,
    /// Where it was read from.
    pub uri: Option<String>,
}

impl Operation {
    /// The key of this operation, `pipeline.v1`.
    pub fn key(&self) -> Result<Key, KeyError> {
        self.fields().key()
    }

    /// The fields of the key, by their names.
    pub(crate) fn named(&self) -> [(&'static str, &String); 8] {
        [
            ("pipeline_id", &self.pipeline_id),
            ("task_id", &self.task_id),
            ("dataset_id", &self.dataset_id),
            ("operation_type", &self.operation_type),
            ("version", &self.version),
            ("checksum_in", &self.checksum_in),
            ("params_hash", &self.params_hash),
            ("timestamp_bucket", &self.timestamp_bucket),
        ]
    }

    /// The flaw in the form of a field, if there is one: the fields are sent in events and
    /// documents.
    pub(crate) fn flaw(&self, width: Duration) -> Option<String> {
        let most = Event::LONGEST_FIELD;
        let bad = |text: &str| text.len() > most || text.contains(char::is_control);
        if let Some((name, _)) = self.named().into_iter().find(|(_, text)| bad(text)) {
            return Some(format!("{name} is longer than {most} bytes or has control characters"));
        }
        // With a time that is not rounded down, each try would be another operation.
        match bucket(&self.timestamp_bucket, width) {
            Ok(rounded) if rounded == self.timestamp_bucket => None,
            Ok(rounded) => Some(format!(
                "timestamp_bucket: {} is in the bucket {rounded}, {} wide; write that",
                self.timestamp_bucket,
                humantime::format_duration(width)
            )),
            Err(_) => Some("timestamp_bucket: not a UTC time; write 2026-11-16T06:00:00Z".into()),
        }
    }

    pub(crate) fn fields(&self) -> pipeline::Operation<'_> {
        pipeline::Operation {
            pipeline_id: &self.pipeline_id,
            task_id: &self.task_id,
            dataset_id: &self.dataset_id,
            operation_type: &self.operation_type,
            version: &self.version,
            checksum_in: &self.checksum_in,
            params_hash: &self.params_hash,
            timestamp_bucket: &self.timestamp_bucket,
        }
    }
}

/// The bucket of a logical time: rounded down to a multiple of the width, in UTC. The time is the
/// caller's and never a clock's, because a retry has to find the same bucket.
///
/// ```
/// use std::time::Duration;
/// use hapax_pipeline::bucket;
///
/// let day = Duration::from_secs(24 * 3600);
/// assert_eq!(bucket("2026-11-16T06:30:00Z", day)?, "2026-11-16T00:00:00Z");
/// # Ok::<(), hapax_pipeline::Error>(())
/// ```
pub fn bucket(time: &str, width: Duration) -> Result<String, Error> {
    let full = if time.len() == 10 { format!("{time}T00:00:00Z") } else { time.to_owned() };
    let at = humantime::parse_rfc3339_weak(&full).map_err(|error| {
        Error::Invalid(format!(
            "the logical time {time:?}: {error}; write it in UTC: 2026-11-16T06:00:00Z"
        ))
    })?;
    let since = at.duration_since(UNIX_EPOCH);
    let since = since.map_err(|_| Error::Invalid(format!("{time} is before 1970")))?;
    let floor = since.as_secs().checked_div(width.as_secs()).map(|n| n * width.as_secs());
    let floor = floor.ok_or_else(|| Error::Invalid("a bucket is a second wide at least".into()))?;
    Ok(humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(floor)).to_string())
}

/// The declaration of the dataset at the time of the grant, as far as lineage needs it. A grant
/// keeps these terms when the declaration changes later.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DatasetTerms {
    /// The owner, who answers for the dataset.
    pub owner: Option<String>,
    /// How the people the data is about want it treated.
    pub care_label: Option<String>,
    /// Whether it is sovereign: tribal, heritage, archaeology, or declared so.
    pub sovereign: bool,
    /// The H3 resolution that its places are masked to.
    pub masked: Option<u8>,
    /// The lock that the grant takes and the settle releases.
    pub lock: Option<String>,
    /// Whether its inputs had a data contract.
    pub contract: bool,
}

/// The journal's note of a grant: the operation and its terms.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OperationNote {
    /// The operation.
    pub operation: Operation,
    /// Its terms.
    pub terms: DatasetTerms,
}

impl OperationNote {
    /// The text that the journal keeps.
    pub(crate) fn note(&self) -> String {
        let (operation, terms) = (&self.operation, &self.terms);
        let source = |source: &Source| {
            let object = Object::default().text("name", source.name.as_str());
            object
                .text("checksum", source.checksum.as_deref())
                .text("uri", source.uri.as_deref())
                .json()
        };
        Object::default()
            .text("kind", KIND)
            .text("pipeline_id", operation.pipeline_id.as_str())
            .text("task_id", operation.task_id.as_str())
            .text("dataset_id", operation.dataset_id.as_str())
            .text("operation_type", operation.operation_type.as_str())
            .text("version", operation.version.as_str())
            .text("checksum_in", operation.checksum_in.as_str())
            .text("params_hash", operation.params_hash.as_str())
            .text("timestamp_bucket", operation.timestamp_bucket.as_str())
            .list("inputs", operation.inputs.iter().map(source))
            .text("justification", operation.justification.as_deref())
            .text("governance_ref", operation.governance_ref.as_deref())
            .list("program", operation.program.iter().map(|word| Json::text(word)))
            .text("params", operation.params.as_deref())
            .text("owner", terms.owner.as_deref())
            .text("care_label", terms.care_label.as_deref())
            .flag("sovereignty_event", terms.sovereign)
            .number("masked", terms.masked.map(u64::from))
            .text("lock", terms.lock.as_deref())
            .flag("contract", terms.contract)
            .print()
    }

    /// Reads what [`note`](Self::note) wrote. `None` for any other note.
    pub(crate) fn read(note: &str) -> Option<Self> {
        if !note.starts_with('{') {
            return None;
        }
        let json = Json::parse(note.as_bytes()).ok()?;
        if json.get("kind")?.as_str()? != KIND {
            return None;
        }
        let source = |json: &Json| {
            Some(Source {
                name: text(json, "name")?,
                checksum: text(json, "checksum"),
                uri: text(json, "uri"),
            })
        };
        Some(Self {
            operation: Operation {
                pipeline_id: text(&json, "pipeline_id")?,
                task_id: text(&json, "task_id")?,
                dataset_id: text(&json, "dataset_id")?,
                operation_type: text(&json, "operation_type")?,
                version: text(&json, "version")?,
                checksum_in: text(&json, "checksum_in")?,
                params_hash: text(&json, "params_hash")?,
                timestamp_bucket: text(&json, "timestamp_bucket")?,
                inputs: list(&json, "inputs", source),
                justification: text(&json, "justification"),
                governance_ref: text(&json, "governance_ref"),
                program: list(&json, "program", words),
                params: text(&json, "params"),
            },
            terms: DatasetTerms {
                owner: text(&json, "owner"),
                care_label: text(&json, "care_label"),
                sovereign: flag(&json, "sovereignty_event"),
                masked: json.get("masked").and_then(Json::as_u64).map(|cells| cells as u8),
                lock: text(&json, "lock"),
                contract: flag(&json, "contract"),
            },
        })
    }
}

/// The `kind` of an operation's note.
pub(crate) const KIND: &str = "pipeline.v1";
