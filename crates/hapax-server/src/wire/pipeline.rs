//! Operations of pipelines, datasets and reviews.

use hapax::json::Json;
use hapax::remote::Report;
use hapax_pipeline::remote::Told;
use hapax_pipeline::{Made, review};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::effect::{Outcome, ReportName, Safety, bytes};
use super::outbox::Event;
use super::time;

/// What is declared of a dataset. What is left out is as if nobody had declared it.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Dataset {
    /// Who answers for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 255)]
    pub owner: Option<String>,
    /// Places in it are told of only as cells of this H3 resolution.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 15)]
    pub masked: Option<u8>,
    /// How those it is about want it treated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 255)]
    pub care_label: Option<String>,
    /// Whether operations on it name what allows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restricted: Option<bool>,
    /// Whose it is: it is worked on by one at a time, as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sovereignty: Option<Sovereignty>,
    /// Where in an event the key is by which it is ordered, as a JSON pointer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^/.{0,254}$")]
    pub order: Option<String>,
    /// The JSON Schema of what operations read, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_contract: Option<String>,
    /// The JSON Schema of what they make, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_contract: Option<String>,
    /// How much may go wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slo: Option<Slo>,
    /// What to do when somebody else is at work on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_lock: Option<LockPolicy>,
    /// How often operations are tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<Retries>,
    /// Whether a person is asked when a lock, a guard or the last retry ends an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub review: Option<bool>,
    /// In how many parts it can be worked on at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1024)]
    pub shards: Option<u32>,
}

/// Whose a sovereign dataset is.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Sovereignty {
    Sovereign,
    Tribal,
    Heritage,
    Archaeology,
}

/// What to do when somebody else is at work on a dataset.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum LockPolicy {
    Skip,
    Backoff,
    Escalate,
}

/// How much of what is done to a dataset may fail.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Slo {
    /// Over how long.
    #[schema(minimum = 1, maximum = 315_576_000_000_u64)]
    pub window_ms: u64,
    /// How many of a million operations have to succeed.
    #[schema(maximum = 1_000_000)]
    pub objective_ppm: u32,
}

/// How often an operation is tried again.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Retries {
    /// At once, within the attempt.
    #[schema(maximum = 3)]
    pub quick: u32,
    /// As a whole.
    #[schema(maximum = 100)]
    pub again: u32,
    /// The longest pause before the first.
    #[schema(maximum = 315_576_000_000_u64)]
    pub base_ms: u64,
    /// The longest pause of all.
    #[schema(maximum = 315_576_000_000_u64)]
    pub cap_ms: u64,
}

impl Dataset {
    /// A declaration.
    pub fn of(dataset: &hapax::Dataset) -> Self {
        // What core writes is what this reads: one form, tested there.
        serde_json::from_str(&dataset.text()).unwrap_or_else(|_| Self::none())
    }

    fn none() -> Self {
        Self {
            owner: None,
            masked: None,
            care_label: None,
            restricted: None,
            sovereignty: None,
            order: None,
            input_contract: None,
            output_contract: None,
            slo: None,
            on_lock: None,
            retries: None,
            review: None,
            shards: None,
        }
    }

    pub(crate) fn meant(&self) -> Result<hapax::Dataset, String> {
        let text = serde_json::to_string(self).map_err(|error| error.to_string())?;
        hapax::Dataset::parse(&text).map_err(|error| error.to_string())
    }
}

/// Something that an operation reads.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// What it is called.
    #[schema(min_length = 1, max_length = 1024)]
    pub name: String,
    /// The checksum of what is read.
    #[schema(max_length = 256)]
    pub checksum: Option<String>,
    /// Where it is.
    #[schema(max_length = 2048)]
    pub uri: Option<String>,
}

/// An operation that is about to be performed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OperationClaim {
    /// The pipeline. This and the next seven make the key.
    #[schema(min_length = 1, max_length = 512)]
    pub pipeline_id: String,
    /// Its task.
    #[schema(min_length = 1, max_length = 512)]
    pub task_id: String,
    /// The dataset it changes.
    #[schema(min_length = 1, max_length = 512)]
    pub dataset_id: String,
    /// What kind of change.
    #[schema(min_length = 1, max_length = 512)]
    pub operation_type: String,
    /// The version it makes.
    #[schema(min_length = 1, max_length = 512)]
    pub version: String,
    /// The checksum of its input.
    #[schema(min_length = 1, max_length = 512)]
    pub checksum_in: String,
    /// The hash of its parameters.
    #[schema(min_length = 1, max_length = 512)]
    pub params_hash: String,
    /// The time it is about, rounded down; carried unchanged by every retry.
    #[schema(min_length = 1, max_length = 512)]
    pub timestamp_bucket: String,
    /// What it reads, for lineage.
    #[serde(default)]
    #[schema(max_items = 100)]
    pub inputs: Vec<Source>,
    /// Documents that it reads, for the data contract.
    #[serde(default)]
    #[schema(max_items = 1000, value_type = Vec<Value>)]
    pub documents: Vec<Box<RawValue>>,
    /// Why it is done; asked for where the dataset is sensitive.
    #[schema(max_length = 4096)]
    pub justification: Option<String>,
    /// What allows it; asked for where the dataset is restricted.
    #[schema(max_length = 1024)]
    pub governance_ref: Option<String>,
    /// Which part of the dataset it is about, where that has shards.
    #[schema(max_length = 512)]
    pub part: Option<String>,
    /// What it means when the client vanishes.
    #[serde(default)]
    pub safety: Safety,
    /// How long the grant lasts, whatever the lease. A minute unless given, where there is no lease.
    #[schema(minimum = 1, maximum = 86_400_000)]
    pub deadline_ms: Option<u64>,
    /// The lease that the grant hangs on.
    #[schema(pattern = "^lease_[0-9a-f]{32}$")]
    pub lease: Option<String>,
    /// The identity of the attempt, if the client chooses it. The same one gets the same answer.
    #[schema(pattern = "^att_[0-9a-f]{32}$")]
    pub attempt: Option<String>,
}

impl OperationClaim {
    pub(crate) fn operation(&self) -> Result<hapax_pipeline::Operation, String> {
        let source = |source: &Source| hapax_pipeline::Source {
            name: source.name.clone(),
            checksum: source.checksum.clone(),
            uri: source.uri.clone(),
        };
        let operation = hapax_pipeline::Operation {
            pipeline_id: self.pipeline_id.clone(),
            task_id: self.task_id.clone(),
            dataset_id: self.dataset_id.clone(),
            operation_type: self.operation_type.clone(),
            version: self.version.clone(),
            checksum_in: self.checksum_in.clone(),
            params_hash: self.params_hash.clone(),
            timestamp_bucket: self.timestamp_bucket.clone(),
            inputs: self.inputs.iter().map(source).collect(),
            justification: self.justification.clone(),
            governance_ref: self.governance_ref.clone(),
            program: Vec::new(),
            params: None,
        };
        match self.inputs.len() > 100 {
            true => Err("there are at most 100 inputs".into()),
            false => Ok(operation),
        }
    }
}

/// Documents, read strictly.
pub(crate) fn documents(documents: &[Box<RawValue>]) -> Result<Vec<Json>, String> {
    let read = documents.iter().map(|document| Json::parse(document.get().as_bytes()));
    let read = read.collect::<Result<_, _>>();
    read.map_err(|error| format!("documents: {error}"))
}

/// The answer to an operation that is about to be performed.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum OperationVerdict {
    /// Do it, then settle it under its key.
    Granted {
        /// The key of the operation.
        key: String,
        /// The identity of the attempt.
        attempt: String,
        /// A number that only grows, for targets that compare.
        fence: u64,
        /// Which attempt of its generation this is, from 1.
        nth: u32,
        /// Stop working this long after you sent the request, in milliseconds. Nothing where only the
        /// lease counts, which has a `work_ms` of its own.
        work_ms: Option<u64>,
    },
    /// It was done. This is what came of it.
    Replayed {
        /// The key of the operation.
        key: String,
        /// What came of it.
        outcome: Outcome,
    },
}

/// Something that an operation made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Product {
    /// The dataset it belongs to.
    #[schema(min_length = 1, max_length = 512)]
    pub dataset_id: String,
    /// Its version.
    #[schema(min_length = 1, max_length = 512)]
    pub version: String,
    /// Its checksum, `sha256:<hex>`.
    #[schema(min_length = 1, max_length = 512)]
    pub checksum: String,
    /// Where it is.
    #[schema(min_length = 1, max_length = 512)]
    pub uri: String,
    /// How many bytes it has.
    pub size: Option<u64>,
    /// What it is, such as `text/csv`.
    #[schema(max_length = 256)]
    pub media_type: Option<String>,
}

/// How an operation went.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OperationSettle {
    /// The attempt that was granted.
    #[schema(pattern = "^att_[0-9a-f]{32}$")]
    pub attempt: String,
    /// The fence that it was granted with.
    pub fence: u64,
    /// How it went.
    pub report: ReportName,
    /// What came of it, as text; with `succeeded`.
    pub body: Option<String>,
    /// What came of it, as bytes; with `succeeded`.
    pub body_base64: Option<String>,
    /// Why, for people; with anything else.
    #[schema(max_length = 4096)]
    pub reason: Option<String>,
    /// What was made; with `succeeded`.
    #[serde(default)]
    #[schema(max_items = 100)]
    pub outputs: Vec<Product>,
    /// Documents that the data contract is held against; with `succeeded`.
    #[serde(default)]
    #[schema(max_items = 1000, value_type = Vec<Value>)]
    pub documents: Vec<Box<RawValue>>,
    /// What there is to tell; with `succeeded`.
    #[serde(default)]
    #[schema(max_items = 1000)]
    pub events: Vec<Event>,
    /// Tell of each output by an event of this name, which registers it as published.
    #[schema(min_length = 1, max_length = 256)]
    pub publish: Option<String>,
    /// The CPU time that it took, for the estimate of its energy.
    pub cpu_ms: Option<u64>,
}

impl OperationSettle {
    pub(crate) fn meant(self) -> Result<Told, String> {
        let reason = self.reason.clone().unwrap_or_default();
        let body = bytes(self.body.as_deref(), self.body_base64.as_deref())?;
        match self.report {
            ReportName::Succeeded if self.reason.is_some() => {
                return Err("a reason goes with anything but succeeded".into());
            }
            ReportName::Succeeded => {}
            _ if !(body.is_empty() && self.outputs.is_empty() && self.events.is_empty()) => {
                return Err("body, outputs and events go with succeeded".into());
            }
            ReportName::Failed => return Ok(Told::Otherwise(Report::Failed(reason))),
            ReportName::Partial => return Ok(Told::Otherwise(Report::Partial(reason))),
            ReportName::Ambiguous => return Ok(Told::Otherwise(Report::Ambiguous(reason))),
            ReportName::Released => return Ok(Told::Otherwise(Report::Released(reason))),
        }
        if self.outputs.len() > 100 {
            return Err("at most 100 outputs".into());
        }
        let mut made = Made::new(body);
        for output in self.outputs {
            made = made.output(hapax_pipeline::Artifact {
                dataset: output.dataset_id,
                version: output.version,
                checksum: output.checksum,
                uri: output.uri,
                size: output.size,
                media_type: output.media_type,
                cells: Vec::new(),
            });
        }
        for document in documents(&self.documents)? {
            made = made.document(document);
        }
        if let Some(event) = &self.publish {
            made = made.publish(event);
        }
        for event in self.events {
            made = made.event(event.meant().map_err(|flaw| format!("events: {flaw}"))?);
        }
        if let Some(ms) = self.cpu_ms {
            made = made.cpu(std::time::Duration::from_millis(ms));
        }
        Ok(Told::Made(Box::new(made)))
    }
}

/// What a person was asked about an operation.
#[derive(Debug, Serialize, ToSchema)]
pub struct Review {
    /// The key of the review.
    pub review: String,
    /// The attempt that a decision names.
    pub attempt: String,
    /// The operation.
    pub operation: String,
    /// On which dataset.
    pub dataset_id: String,
    /// In which pipeline.
    pub pipeline_id: String,
    /// Why somebody was asked.
    pub reason: String,
    /// Who asked, where that was a person.
    pub asked_by: Option<String>,
    /// When.
    pub opened_at: String,
    /// `pending`, `approved` or `rejected`.
    pub standing: &'static str,
}

impl Review {
    /// A review.
    pub fn of(review: &review::Review) -> Self {
        Self {
            review: review.key.to_string(),
            attempt: review.attempt.to_string(),
            operation: review.operation.to_string(),
            dataset_id: review.dataset_id.clone(),
            pipeline_id: review.pipeline_id.clone(),
            reason: review.reason.clone(),
            asked_by: review.asked_by.clone(),
            opened_at: time(review.opened),
            standing: review.standing.as_str(),
        }
    }
}

/// Why a person wants somebody to look at an operation.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Escalate {
    /// Why; kept in the journal.
    #[schema(min_length = 1, max_length = 4096)]
    pub note: String,
}

/// The question that an operation waits for.
#[derive(Debug, Serialize, ToSchema)]
pub struct Escalated {
    /// The key of the review.
    pub review: String,
    /// `pending`, or `rejected` where somebody was asked before, and said no.
    pub standing: &'static str,
}

/// What a person decided.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Decide {
    /// The attempt that the person was shown.
    #[schema(pattern = "^att_[0-9a-f]{32}$")]
    pub attempt: String,
    /// Whether it may go ahead: the operation be tried again, or the version be used.
    pub approve: bool,
    /// Why; kept in the journal.
    #[schema(min_length = 1, max_length = 4096)]
    pub note: String,
}
