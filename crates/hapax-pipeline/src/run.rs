//! Runs: the attempts at operations, folded from the journal. The fold is pure: the same entries
//! always give the same runs.
//!
//! ```text
//!  granted ──▶ Start ──succeeded──▶ Complete
//!                │ │ └─failed, released, rolled back──▶ Fail
//!                │ └───lapsed, skipped, reset, found not to have happened──▶ Abort
//!                └─────partial, unknown, indeterminate──▶ Running, until it is decided
//! ```

use std::collections::HashMap;

use hapax::json::Json;
use hapax::{AttemptId, Digest, Entry, EntryKind, Key, Namespace, StateName, Timestamp};

use crate::operation::OperationNote;
use hapax::document::{Object, list, number, print, text, words};

/// A position in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The number of the entry.
    pub entry: u64,
    /// When, by the store's clock.
    pub at: Timestamp,
}

/// One attempt at an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The namespace.
    pub namespace: Namespace,
    /// The key of the operation.
    pub key: Key,
    /// The generation of the record; a reset begins the next.
    pub generation: u32,
    /// The attempt.
    pub attempt: AttemptId,
    /// The note of its grant: the operation and the terms of its dataset.
    pub about: OperationNote,
    /// The entry of its grant.
    pub started: Mark,
}

/// A change of a run, as the journal records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    /// The run.
    pub run: Run,
    /// Its position in the journal.
    pub mark: Mark,
    /// The change.
    pub change: RunChange,
}

/// The kinds of changes of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunChange {
    /// It was granted. Its outputs are not known yet.
    Start,
    /// It happened in part, or its outcome is unknown: it has to be reconciled, resolved or rolled
    /// back.
    Running {
        /// Why.
        reason: String,
    },
    /// It happened.
    Complete {
        /// Its product; `None` where a person or a reconciler recorded the success.
        product: Option<Product>,
        /// The digest of the recorded outcome.
        digest: Option<Digest>,
    },
    /// It did not happen, or was rolled back.
    Fail {
        /// Why.
        reason: String,
    },
    /// It lapsed, was skipped or reset, or was found not to have happened.
    Abort {
        /// Why.
        reason: String,
    },
}

/// The product of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Product {
    /// The artifacts that were published or written.
    pub outputs: Vec<Artifact>,
    /// The parts that were checked against a data contract: `inputs`, `outputs`.
    pub contract: Vec<String>,
    /// The checks that passed.
    pub checks: Vec<String>,
    /// An estimate of its energy and carbon.
    pub energy: Option<Energy>,
    /// The number of quick retries within the attempt.
    pub retries: u32,
}

impl Moment {
    /// The event type of OpenLineage for this change.
    pub fn word(&self) -> &'static str {
        match self.change {
            RunChange::Start => "START",
            RunChange::Running { .. } => "RUNNING",
            RunChange::Complete { .. } => "COMPLETE",
            RunChange::Fail { .. } => "FAIL",
            RunChange::Abort { .. } => "ABORT",
        }
    }

    /// Why, where there is a reason.
    pub fn reason(&self) -> Option<&str> {
        match &self.change {
            RunChange::Running { reason }
            | RunChange::Fail { reason }
            | RunChange::Abort { reason } => Some(reason),
            RunChange::Start | RunChange::Complete { .. } => None,
        }
    }

    /// The payload of the lineage event, from which lineage and catalogs are rendered. The members
    /// that a dataset requires of events, `care_label` and `governance_ref`, are at the top level.
    pub fn document(&self) -> Json {
        let (run, terms) = (&self.run, &self.run.about.terms);
        let mark = |mark: Mark| {
            let at = Json::number(u64::try_from(mark.at.0).unwrap_or_default());
            Json::object([("entry", Json::number(mark.entry)), ("at_ms", at)])
        };
        let (product, digest) = match &self.change {
            RunChange::Complete { product, digest } => (product.as_ref(), digest.as_ref()),
            _ => (None, None),
        };
        let parsed = |note: String| Json::parse(note.as_bytes()).ok();
        Object::default()
            .text("kind", EVENT_KIND)
            .text("what", self.word())
            .text("care_label", terms.care_label.as_deref())
            .text("governance_ref", run.about.operation.governance_ref.as_deref())
            .text("namespace", run.namespace.as_str())
            .text("key", run.key.to_string().as_str())
            .number("generation", u64::from(run.generation))
            .text("attempt", run.attempt.to_string().as_str())
            .with("started", mark(run.started))
            .with("mark", mark(self.mark))
            .text("reason", self.reason())
            .text("digest", digest.map(ToString::to_string).as_deref())
            .with("about", parsed(run.about.note()))
            .with("product", product.and_then(|product| parsed(product.note())))
            .json()
    }

    /// Reads what [`document`](Self::document) wrote.
    pub fn read(json: &Json) -> Option<Self> {
        if json.get("kind")?.as_str()? != EVENT_KIND {
            return None;
        }
        let mark = |name: &str| {
            let mark = json.get(name)?;
            let at = Timestamp(i64::try_from(number(mark, "at_ms")?).ok()?);
            Some(Mark { entry: number(mark, "entry")?, at })
        };
        let reason = text(json, "reason").unwrap_or_default();
        let change = match json.get("what")?.as_str()? {
            "START" => RunChange::Start,
            "RUNNING" => RunChange::Running { reason },
            "COMPLETE" => RunChange::Complete {
                product: json.get("product").map(print).and_then(|note| Product::read(&note)),
                digest: text(json, "digest").and_then(|digest| digest.parse().ok()),
            },
            "FAIL" => RunChange::Fail { reason },
            "ABORT" => RunChange::Abort { reason },
            _ => return None,
        };
        let run = Run {
            namespace: Namespace::new(json.get("namespace")?.as_str()?).ok()?,
            key: json.get("key")?.as_str()?.parse().ok()?,
            generation: u32::try_from(number(json, "generation")?).ok()?,
            attempt: json.get("attempt")?.as_str()?.parse().ok()?,
            about: OperationNote::read(&print(json.get("about")?))?,
            started: mark("started")?,
        };
        Some(Self { run, mark: mark("mark")?, change })
    }
}

/// The `kind` of a lineage event's payload.
const EVENT_KIND: &str = "hapax.run.v1";

/// A file or object that an operation made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Artifact {
    /// The dataset it belongs to.
    pub dataset: String,
    /// Its version.
    pub version: String,
    /// Its checksum, `sha256:<hex>`.
    pub checksum: String,
    /// Where it is.
    pub uri: String,
    /// How many bytes it has.
    pub size: Option<u64>,
    /// Its media type, such as `text/csv`.
    pub media_type: Option<String>,
    /// The H3 cells that its content is about, if they are known.
    pub cells: Vec<String>,
}

/// An estimate, from CPU time and configured coefficients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Energy {
    /// CPU time, measured.
    pub cpu_ms: u64,
    /// Energy, estimated, in millionths of a watt-hour.
    pub microwatt_hours: u64,
    /// Carbon dioxide and its equivalents, estimated, in millionths of a gram.
    pub micrograms_co2e: u64,
}

impl Product {
    /// The text that the journal keeps.
    pub(crate) fn note(&self) -> String {
        let shared = self.shared();
        let cells =
            |cells: &[String]| cells.iter().map(|cell| Json::text(cell)).collect::<Vec<_>>();
        let artifact = |artifact: &Artifact| {
            let area = shared.iter().position(|shared| *shared == artifact.cells);
            let own = if area.is_some() { &[][..] } else { &artifact.cells };
            Object::default()
                .text("dataset", artifact.dataset.as_str())
                .text("version", artifact.version.as_str())
                .text("checksum", artifact.checksum.as_str())
                .text("uri", artifact.uri.as_str())
                .number("size", artifact.size.map(|size| size.min(LARGEST)))
                .text("media_type", artifact.media_type.as_deref())
                .list("cells", cells(own))
                .number("area", area.map(|nth| nth as u64))
                .json()
        };
        let energy = self.energy.map(|energy| {
            Object::default()
                .number("cpu_ms", energy.cpu_ms)
                .number("microwatt_hours", energy.microwatt_hours)
                .number("micrograms_co2e", energy.micrograms_co2e)
                .flag("estimate", true)
                .json()
        });
        Object::default()
            .text("kind", KIND)
            .list("outputs", self.outputs.iter().map(artifact))
            .list("areas", shared.iter().map(|shared| Json::Array(cells(shared))))
            .list("contract", self.contract.iter().map(|part| Json::text(part)))
            .list("checks", self.checks.iter().map(|check| Json::text(check)))
            .with("energy", energy)
            .number("retries", (self.retries > 0).then_some(u64::from(self.retries)))
            .print()
    }

    /// The lists of cells that two or more outputs share, each list once.
    fn shared(&self) -> Vec<&[String]> {
        let mut seen: HashMap<&[String], usize> = HashMap::new();
        let lists = self.outputs.iter().map(|output| &output.cells[..]);
        let mut shared = Vec::new();
        for cells in lists.filter(|cells| !cells.is_empty()) {
            let times = seen.entry(cells).or_default();
            *times += 1;
            if *times == 2 {
                shared.push(cells);
            }
        }
        shared
    }

    /// Reads what [`note`](Self::note) wrote.
    pub(crate) fn read(note: &str) -> Option<Self> {
        let json = Json::parse(note.as_bytes()).ok()?;
        if json.get("kind")?.as_str()? != KIND {
            return None;
        }
        let area =
            |area: &Json| Some(area.as_array()?.iter().filter_map(words).collect::<Vec<String>>());
        let areas: Vec<Vec<String>> = list(&json, "areas", area);
        let cells = |json: &Json| match number(json, "area") {
            Some(nth) => areas.get(usize::try_from(nth).ok()?).cloned(),
            None => Some(list(json, "cells", words)),
        };
        let artifact = |json: &Json| {
            Some(Artifact {
                dataset: text(json, "dataset")?,
                version: text(json, "version")?,
                checksum: text(json, "checksum")?,
                uri: text(json, "uri")?,
                size: number(json, "size"),
                media_type: text(json, "media_type"),
                cells: cells(json)?,
            })
        };
        let energy = |json: &Json| {
            Some(Energy {
                cpu_ms: number(json, "cpu_ms")?,
                microwatt_hours: number(json, "microwatt_hours")?,
                micrograms_co2e: number(json, "micrograms_co2e")?,
            })
        };
        Some(Self {
            outputs: list(&json, "outputs", artifact),
            contract: list(&json, "contract", words),
            checks: list(&json, "checks", words),
            energy: json.get("energy").and_then(energy),
            retries: number(&json, "retries").unwrap_or(0) as u32,
        })
    }
}

/// The largest whole number that every reader of JSON understands alike.
const LARGEST: u64 = 1 << 53;

/// The `kind` of a product's note.
const KIND: &str = "pipeline.product.v1";

/// Folds the entries of the journal, in order, into the changes of runs.
#[derive(Debug, Default)]
pub struct Fold {
    open: HashMap<(Namespace, Key), Run>,
}

impl Fold {
    /// The change that this entry records, if it is about a run.
    pub fn push(&mut self, entry: &Entry) -> Option<Moment> {
        let mark = Mark { entry: entry.id, at: entry.at };
        let name = (entry.namespace.clone(), entry.key);
        if entry.event == EntryKind::Granted {
            let about = OperationNote::read(entry.note.as_deref()?)?;
            let (namespace, key) = name.clone();
            let (generation, attempt) = (entry.generation, entry.attempt);
            let run = Run { namespace, key, generation, attempt, about, started: mark };
            self.open.insert(name, run.clone());
            return Some(Moment { run, mark, change: RunChange::Start });
        }
        if self.open.get(&name)?.attempt != entry.attempt {
            return None;
        }
        let change = change(entry)?;
        let run = match change {
            RunChange::Running { .. } => self.open.get(&name)?.clone(),
            _ => self.open.remove(&name)?,
        };
        Some(Moment { run, mark, change })
    }

    /// The runs that have not ended.
    pub fn open(&self) -> impl Iterator<Item = &Run> {
        self.open.values()
    }
}

/// The change that an entry other than a grant records.
fn change(entry: &Entry) -> Option<RunChange> {
    let reason = || entry.note.as_deref().map(hapax::guard::redact).unwrap_or_default();
    Some(match (entry.event, entry.state) {
        (EntryKind::Granted | EntryKind::Contradicted, _) | (_, StateName::Running) => return None,
        (_, StateName::Succeeded) => RunChange::Complete {
            product: entry.note.as_deref().and_then(Product::read),
            digest: entry.digest.map(Digest::from_bytes),
        },
        (EntryKind::Settled | EntryKind::RolledBack, StateName::Failed) => {
            RunChange::Fail { reason: reason() }
        }
        (_, state) if state.needs_attention() => RunChange::Running { reason: reason() },
        _ => RunChange::Abort { reason: reason() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(cells: &[&[&str]]) -> Product {
        let output = |cells: &&[&str]| Artifact {
            cells: cells.iter().map(|cell| (*cell).to_owned()).collect(),
            ..Artifact::default()
        };
        Product { outputs: cells.iter().map(output).collect(), ..Product::default() }
    }

    /// Proves P-14: a list of cells that several outputs share is noted once, and notes that repeat
    /// the list are still read.
    #[test]
    fn cells_are_noted_once() {
        let shared = product(&[&["a", "b"], &[], &["a", "b"], &["c"], &["a", "b"]]);
        let note = shared.note();
        assert_eq!((note.matches("\"a\"").count(), note.matches("\"c\"").count()), (1, 1));
        assert_eq!(Product::read(&note), Some(shared));
        let each = r#"{"kind":"pipeline.product.v1","outputs":[
            {"dataset":"","version":"","checksum":"","uri":"","cells":["a","b"]},
            {"dataset":"","version":"","checksum":"","uri":"","cells":["a","b"]}]}"#;
        assert_eq!(Product::read(each), Some(product(&[&["a", "b"], &["a", "b"]])));
        assert!(!product(&[&["a"], &["b"]]).note().contains("area"));
    }
}
