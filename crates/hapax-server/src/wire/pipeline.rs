//! Operations of pipelines, datasets and reviews.

use hapax::json::Json;
use hapax::remote::Report;
use hapax_pipeline::remote::OperationReport;
use hapax_pipeline::{WorkResult, review};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::effect::{Outcome, ReportName, Safety, bytes};
use super::outbox::Event;
use super::time;

/// The declaration of a dataset. A field that is absent has its default.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Dataset {
    /// The person or team responsible for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 255)]
    pub owner: Option<String>,
    /// Places in the dataset are replaced by H3 cells of this resolution.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 15)]
    pub masked: Option<u8>,
    /// How the people it is about want it treated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 255)]
    pub care_label: Option<String>,
    /// Whether operations on it must name a `governance_ref`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restricted: Option<bool>,
    /// The kind of sovereign dataset. Only one operation at a time works on it, and on all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sovereignty: Option<Sovereignty>,
    /// A JSON pointer to the ordering key in the payload of an event.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^/.{0,254}$")]
    pub order: Option<String>,
    /// The JSON Schema of what operations read, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_contract: Option<String>,
    /// The JSON Schema of what operations make, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_contract: Option<String>,
    /// The error budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slo: Option<Slo>,
    /// The policy for an operation that finds the dataset locked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_lock: Option<LockPolicy>,
    /// How often operations on it are retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<Retries>,
    /// Whether a review is opened when a lock, a guard or the last retry ends an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub review: Option<bool>,
    /// The number of shards that operations can work on at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1024)]
    pub shards: Option<u32>,
}

/// The kind of a sovereign dataset.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Sovereignty {
    Sovereign,
    Tribal,
    Heritage,
    Archaeology,
}

/// The policy for an operation that finds its dataset locked.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum LockPolicy {
    Skip,
    Backoff,
    Escalate,
}

/// The share of operations on a dataset that may fail.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Slo {
    /// The length of the window.
    #[schema(minimum = 1, maximum = 315_576_000_000_u64)]
    pub window_ms: u64,
    /// How many of a million operations have to succeed.
    #[schema(maximum = 1_000_000)]
    pub objective_ppm: u32,
}

/// How often an operation is retried.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Retries {
    /// Quick retries, within the attempt.
    #[schema(maximum = 3)]
    pub quick: u32,
    /// Retries of the whole operation.
    #[schema(maximum = 100)]
    pub again: u32,
    /// The longest pause before the first retry.
    #[schema(maximum = 315_576_000_000_u64)]
    pub base_ms: u64,
    /// The longest pause before any retry.
    #[schema(maximum = 315_576_000_000_u64)]
    pub cap_ms: u64,
}

impl Dataset {
    /// The document of a declaration.
    pub fn of(dataset: &hapax::Dataset) -> Self {
        // This type reads the form that core writes; core tests that form.
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

    pub(crate) fn to_domain(&self) -> Result<hapax::Dataset, String> {
        let text = serde_json::to_string(self).map_err(|error| error.to_string())?;
        hapax::Dataset::parse(&text).map_err(|error| error.to_string())
    }
}

/// An input of an operation.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Its name.
    #[schema(min_length = 1, max_length = 1024)]
    pub name: String,
    /// The checksum of its content.
    #[schema(max_length = 256)]
    pub checksum: Option<String>,
    /// Its URI.
    #[schema(max_length = 2048)]
    pub uri: Option<String>,
}

/// The claim of an operation.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OperationClaim {
    /// The pipeline. This field and the next seven make the key.
    #[schema(min_length = 1, max_length = 512)]
    pub pipeline_id: String,
    /// The task within the pipeline.
    #[schema(min_length = 1, max_length = 512)]
    pub task_id: String,
    /// The dataset it changes.
    #[schema(min_length = 1, max_length = 512)]
    pub dataset_id: String,
    /// The kind of change.
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
    /// The time that the operation is about, rounded down. Every retry sends the same value.
    #[schema(min_length = 1, max_length = 512)]
    pub timestamp_bucket: String,
    /// The inputs, for lineage.
    #[serde(default)]
    #[schema(max_items = 100)]
    pub inputs: Vec<Source>,
    /// The documents that the operation reads; the input contract is checked against them.
    #[serde(default)]
    #[schema(max_items = 1000, value_type = Vec<Value>)]
    pub documents: Vec<Box<RawValue>>,
    /// The reason for the operation; required where the dataset is sensitive.
    #[schema(max_length = 4096)]
    pub justification: Option<String>,
    /// The permission for the operation; required where the dataset is restricted.
    #[schema(max_length = 1024)]
    pub governance_ref: Option<String>,
    /// The part of the dataset that it works on, where the dataset has shards.
    #[schema(max_length = 512)]
    pub part: Option<String>,
    /// Whether the outcome can be found out when the client vanishes.
    #[serde(default)]
    pub safety: Safety,
    /// The grant lapses after this long, even if its lease is renewed. Default without lease: 1 minute.
    #[schema(minimum = 1, maximum = 86_400_000)]
    pub deadline_ms: Option<u64>,
    /// The lease that the grant depends on.
    #[schema(pattern = "^lease_[0-9a-f]{32}$")]
    pub lease: Option<String>,
    /// The id of the attempt, if the client chooses it. A claim with the same id gets the same answer.
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

/// Parses documents strictly: a text that two parsers could read differently is refused.
pub(crate) fn documents(documents: &[Box<RawValue>]) -> Result<Vec<Json>, String> {
    let read = documents.iter().map(|document| Json::parse(document.get().as_bytes()));
    let read = read.collect::<Result<_, _>>();
    read.map_err(|error| format!("documents: {error}"))
}

/// The answer to the claim of an operation.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum OperationVerdict {
    /// Do it, then settle it under its key.
    Granted {
        /// The key of the operation.
        key: String,
        /// The id of the attempt.
        attempt: String,
        /// A number that only grows, for targets that compare fences.
        fence: u64,
        /// Which attempt of its generation this is, from 1.
        nth: u32,
        /// Stop working this many milliseconds after you sent the request. Null if only the lease
        /// limits the grant: then the lease's own `work_ms` counts.
        work_ms: Option<u64>,
    },
    /// It was done. Here is what came of it.
    Replayed {
        /// The key of the operation.
        key: String,
        /// The recorded outcome.
        outcome: Outcome,
    },
}

/// An output of an operation.
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
    /// Its URI.
    #[schema(min_length = 1, max_length = 512)]
    pub uri: String,
    /// Its size in bytes.
    pub size: Option<u64>,
    /// Its media type, such as `text/csv`.
    #[schema(max_length = 256)]
    pub media_type: Option<String>,
}

/// The report that settles an operation.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OperationSettle {
    /// The attempt that was granted.
    #[schema(pattern = "^att_[0-9a-f]{32}$")]
    pub attempt: String,
    /// The fence that it was granted with.
    pub fence: u64,
    /// The result.
    pub report: ReportName,
    /// The body of the outcome, as text; only with `succeeded`.
    pub body: Option<String>,
    /// The body of the outcome, in base64; only with `succeeded`.
    pub body_base64: Option<String>,
    /// The reason, for people; with every report except `succeeded`.
    #[schema(max_length = 4096)]
    pub reason: Option<String>,
    /// The outputs; only with `succeeded`.
    #[serde(default)]
    #[schema(max_items = 100)]
    pub outputs: Vec<Product>,
    /// The documents that the output contract is checked against; only with `succeeded`.
    #[serde(default)]
    #[schema(max_items = 1000, value_type = Vec<Value>)]
    pub documents: Vec<Box<RawValue>>,
    /// The events to emit; only with `succeeded`.
    #[serde(default)]
    #[schema(max_items = 1000)]
    pub events: Vec<Event>,
    /// Emit an event of this name for each output, which registers the output as published.
    #[schema(min_length = 1, max_length = 256)]
    pub publish: Option<String>,
    /// The CPU time that the operation took, for the estimate of its energy.
    pub cpu_ms: Option<u64>,
}

impl OperationSettle {
    pub(crate) fn into_domain(self) -> Result<OperationReport, String> {
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
            ReportName::Failed => return Ok(OperationReport::Otherwise(Report::Failed(reason))),
            ReportName::Partial => return Ok(OperationReport::Otherwise(Report::Partial(reason))),
            ReportName::Ambiguous => {
                return Ok(OperationReport::Otherwise(Report::Ambiguous(reason)));
            }
            ReportName::Released => {
                return Ok(OperationReport::Otherwise(Report::Released(reason)));
            }
        }
        if self.outputs.len() > 100 {
            return Err("at most 100 outputs".into());
        }
        let mut made = WorkResult::new(body);
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
            made = made.event(event.into_domain().map_err(|flaw| format!("events: {flaw}"))?);
        }
        if let Some(ms) = self.cpu_ms {
            made = made.cpu(std::time::Duration::from_millis(ms));
        }
        Ok(OperationReport::WorkResult(Box::new(made)))
    }
}

/// A review: the question whether an operation may go ahead.
#[derive(Debug, Serialize, ToSchema)]
pub struct Review {
    /// The key of the review.
    pub review: String,
    /// The attempt that a decision names.
    pub attempt: String,
    /// The operation.
    pub operation: String,
    /// The dataset.
    pub dataset_id: String,
    /// The pipeline.
    pub pipeline_id: String,
    /// The reason for the review.
    pub reason: String,
    /// The person who opened it, if a person did.
    pub asked_by: Option<String>,
    /// When the review was opened.
    pub opened_at: String,
    /// `pending`, `approved` or `rejected`.
    pub standing: &'static str,
}

impl Review {
    /// The document of a review.
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
            standing: review.status.as_str(),
        }
    }
}

/// The request to escalate an operation to a reviewer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Escalate {
    /// The reason; kept in the journal.
    #[schema(min_length = 1, max_length = 4096)]
    pub note: String,
}

/// The review that an operation waits for.
#[derive(Debug, Serialize, ToSchema)]
pub struct Escalated {
    /// The key of the review.
    pub review: String,
    /// `pending`, or `rejected` where a reviewer has already said no.
    pub standing: &'static str,
}

/// The decision of a reviewer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Decide {
    /// The attempt that the reviewer was shown.
    #[schema(pattern = "^att_[0-9a-f]{32}$")]
    pub attempt: String,
    /// Whether it may go ahead: the operation be tried again, or the version of the script be used.
    pub approve: bool,
    /// The reason; kept in the journal.
    #[schema(min_length = 1, max_length = 4096)]
    pub note: String,
}
