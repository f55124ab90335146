//! Lineage and catalogs: pure functions of the moments that the [fold](crate::Fold) of the journal
//! yields.
//!
//! | module | document | of |
//! |---|---|---|
//! | [`openlineage`] | a run event | every moment |
//! | [`cypher`] | writes to a property graph | every moment |
//! | [`prov`] | PROV-O, as JSON-LD and Turtle | a run that happened |
//! | [`stac`] | an item for each version that was made, a collection for its dataset | the same |
//! | [`dcat`] | datasets and their distributions | the same |
//! | [`attestation`] | SLSA provenance in a DSSE envelope | one artifact of it |
//!
//! They name one another by [`names`], which are derived. Nothing here reads a clock, so the same
//! journal gives the same bytes each time.

pub mod attestation;
pub mod cypher;
pub mod dcat;
mod graph;
pub mod names;
pub mod openlineage;
pub mod prov;
pub mod stac;

use hapax::json::Json;

use crate::run::{Artifact, Mark, Moment, Product, Run, RunChange};
use hapax::document::Object;

/// A run that succeeded, and its product.
#[derive(Debug, Clone, Copy)]
pub struct Completed<'a> {
    /// The run.
    pub run: &'a Run,
    /// The entry of its success.
    pub end: Mark,
    /// Its product, if it is known.
    pub product: Option<&'a Product>,
}

/// One version of a dataset, as a run made it.
#[derive(Debug, Clone)]
pub struct Edition<'a> {
    /// The dataset.
    pub dataset: &'a str,
    /// The version.
    pub version: &'a str,
    /// Its artifacts; at least one.
    pub artifacts: Vec<&'a Artifact>,
}

impl Edition<'_> {
    fn name(&self) -> String {
        names::artifact(self.dataset, self.version)
    }
}

impl<'a> Completed<'a> {
    /// `None` unless this moment is the success of the run.
    pub fn of(moment: &'a Moment) -> Option<Self> {
        match &moment.change {
            RunChange::Complete { product, .. } => {
                Some(Self { run: &moment.run, end: moment.mark, product: product.as_ref() })
            }
            _ => None,
        }
    }

    /// The versions that it made, in the order of its outputs.
    pub fn editions(&self) -> Vec<Edition<'a>> {
        let mut editions: Vec<Edition<'a>> = Vec::new();
        for artifact in self.product.map_or(&[][..], |product| &product.outputs) {
            let (dataset, version) = (artifact.dataset.as_str(), artifact.version.as_str());
            match editions.iter_mut().find(|e| (e.dataset, e.version) == (dataset, version)) {
                Some(edition) => edition.artifacts.push(artifact),
                None => editions.push(Edition { dataset, version, artifacts: vec![artifact] }),
            }
        }
        editions
    }
}

/// The versions that a run has made by this moment. Only a run that succeeded claims any.
fn made(moment: &Moment) -> Option<Vec<Edition<'_>>> {
    Completed::of(moment).map(|done| done.editions())
}

/// The owner of a dataset. The terms of a run are about its own dataset only.
fn owner<'a>(run: &'a Run, dataset: &str) -> Option<&'a str> {
    let owner = run.about.terms.owner.as_deref();
    owner.filter(|_| dataset == run.about.operation.dataset_id)
}

/// The documents about a run as of this entry of the journal, by kind. Only a run that succeeded
/// has provenance, and only its outputs are in the catalogs.
fn documents(run: &Run, mark: Mark, made: Option<&[Edition<'_>]>) -> Vec<(&'static str, String)> {
    let mut documents = vec![
        ("journal", names::journal(&run.namespace, mark.entry)),
        ("openlineage", names::run(run)),
    ];
    documents.extend(made.map(|_| ("prov", names::prov(run))));
    for edition in made.unwrap_or_default() {
        documents.push(("stac", names::stac(edition.dataset, edition.version)));
        documents.push(("dcat", edition.name()));
    }
    documents
}

/// [`documents`] as an object of lists.
fn index(object: Object, documents: &[(&'static str, String)]) -> Json {
    let of = |kind: &str| {
        let documents = documents.iter().filter(move |(other, _)| *other == kind);
        documents.map(|(_, name)| Json::text(name)).collect::<Vec<_>>()
    };
    let kinds = ["dcat", "journal", "openlineage", "prov", "stac"];
    kinds.iter().fold(object, |object, kind| object.list(kind, of(kind))).json()
}

/// Adds the terms of a run's grant. `sovereignty_event` is there whether it is true or false.
fn governance(object: Object, run: &Run) -> Object {
    let (operation, terms) = (&run.about.operation, &run.about.terms);
    object
        .text("care_label", terms.care_label.as_deref())
        .text("governance_ref", operation.governance_ref.as_deref())
        .text("justification", operation.justification.as_deref())
        .number("masked_resolution", terms.masked.map(u64::from))
        .with("sovereignty_event", Json::Bool(terms.sovereign))
}

/// The fields of the operation's key.
fn fields(run: &Run) -> Object {
    let operation = &run.about.operation;
    Object::default()
        .text("checksum_in", operation.checksum_in.as_str())
        .text("dataset_id", operation.dataset_id.as_str())
        .text("operation_type", operation.operation_type.as_str())
        .text("params_hash", operation.params_hash.as_str())
        .text("pipeline_id", operation.pipeline_id.as_str())
        .text("task_id", operation.task_id.as_str())
        .text("timestamp_bucket", operation.timestamp_bucket.as_str())
        .text("version", operation.version.as_str())
}

/// The state of a run, in a word.
fn state(change: &RunChange) -> &'static str {
    match change {
        RunChange::Start => "running",
        RunChange::Running { .. } => "unsettled",
        RunChange::Complete { .. } => "succeeded",
        RunChange::Fail { .. } => "failed",
        RunChange::Abort { .. } => "given_up",
    }
}

/// The reason of that state, if it has one.
fn reason(change: &RunChange) -> Option<&str> {
    match change {
        RunChange::Start | RunChange::Complete { .. } => None,
        RunChange::Running { reason }
        | RunChange::Fail { reason }
        | RunChange::Abort { reason } => Some(reason.as_str()).filter(|reason| !reason.is_empty()),
    }
}

/// A number as JSON carries it: the nearest double.
fn nearest(number: f64) -> Json {
    Json::parse(number.to_string().as_bytes()).unwrap_or(Json::Null)
}

/// A number of bytes, milliseconds or entries. Exact below 2^53.
fn count(number: u64) -> Json {
    nearest(number as f64)
}

/// An estimate that is kept in millionths.
fn millionths(number: u64) -> Json {
    nearest(number as f64 / 1e6)
}
