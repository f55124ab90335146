//! OpenLineage run events, of version 2-0-2 of its specification.
//!
//! Only COMPLETE has outputs. A run that has started, failed or was given up claims none.

use hapax::json::Json;

use super::{
    Edition, count, documents, governance, index, made, millionths, names, owner, reason, state,
};
use crate::operation::Source;
use crate::run::{Energy, Moment, Product, Run, RunChange};
use hapax::document::Object;

const SCHEMA: &str = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent";

/// The event of this moment. `producer` is the URI of its sender.
pub fn event(moment: &Moment, producer: &str) -> Json {
    let (run, facets) = (&moment.run, Facets { producer });
    let operation = &run.about.operation;
    let job = Object::default()
        .text("namespace", run.namespace.as_str())
        .text("name", format!("{}.{}", operation.pipeline_id, operation.task_id).as_str());
    let of_run = Object::default()
        .text("runId", names::run_id(run).as_str())
        .with("facets", facets.run(moment));
    let inputs = operation.inputs.iter().map(|source| facets.input(run, source));
    let editions = made(moment).unwrap_or_default();
    let outputs = editions.iter().map(|edition| facets.output(run, edition));
    Object::default()
        .text("eventType", event_type(&moment.change))
        .text("eventTime", names::time(moment.mark.at).as_str())
        .with("run", of_run.json())
        .with("job", job.json())
        .with("inputs", Json::Array(inputs.collect()))
        .with("outputs", Json::Array(outputs.collect()))
        .text("producer", producer)
        .text("schemaURL", SCHEMA)
        .json()
}

fn event_type(change: &RunChange) -> &'static str {
    match change {
        RunChange::Start => "START",
        RunChange::Running { .. } => "RUNNING",
        RunChange::Complete { .. } => "COMPLETE",
        RunChange::Fail { .. } => "FAIL",
        RunChange::Abort { .. } => "ABORT",
    }
}

/// Makes facets, each with its producer and its schema.
struct Facets<'a> {
    producer: &'a str,
}

impl Facets<'_> {
    fn run(&self, moment: &Moment) -> Json {
        let (run, operation) = (&moment.run, &moment.run.about.operation);
        let bucket = Some(operation.timestamp_bucket.as_str());
        let bucket = bucket.filter(|bucket| humantime::parse_rfc3339(bucket).is_ok());
        let nominal = bucket.map(|bucket| {
            self.standard("1-0-1", "NominalTimeRunFacet").text("nominalStartTime", bucket).json()
        });
        let error = reason(&moment.change).map(|reason| {
            let error = self.standard("1-0-1", "ErrorMessageRunFacet").text("message", reason);
            error.text("programmingLanguage", "unknown").json()
        });
        let product = match &moment.change {
            RunChange::Complete { product, .. } => product.as_ref(),
            _ => None,
        };
        let documents = documents(run, moment.mark, made(moment).as_deref());
        Object::default()
            .with("nominalTime", nominal)
            .with("errorMessage", error)
            .with("hapax_idempotency", self.idempotency(moment))
            .with("hapax_governance", governance(self.ours("GovernanceRunFacet"), run).json())
            .with("hapax_contract", product.and_then(|product| self.contract(product)))
            .with("hapax_energy", product.and_then(|it| it.energy).map(|it| self.energy(it)))
            .with("hapax_documents", index(self.ours("DocumentsRunFacet"), &documents))
            .json()
    }

    fn idempotency(&self, moment: &Moment) -> Json {
        let run = &moment.run;
        let outcome = match &moment.change {
            RunChange::Complete { digest, .. } => digest.map(|digest| digest.to_string()),
            _ => None,
        };
        self.ours("IdempotencyRunFacet")
            .text("key", run.key.to_string().as_str())
            .number("generation", u64::from(run.generation))
            .text("attempt", run.attempt.to_string().as_str())
            .text("operation", names::operation(&run.key).as_str())
            .text("granted", names::journal(&run.namespace, run.started.entry).as_str())
            .text("journal", names::journal(&run.namespace, moment.mark.entry).as_str())
            .text("state", state(&moment.change))
            .text("outcome", outcome.as_deref())
            .json()
    }

    /// The parts of the contract and the checks that the run passed.
    fn contract(&self, product: &Product) -> Option<Json> {
        if product.contract.is_empty() && product.checks.is_empty() {
            return None;
        }
        let facet = self
            .ours("ContractRunFacet")
            .list("contract", product.contract.iter().map(|part| Json::text(part)))
            .list("checks", product.checks.iter().map(|check| Json::text(check)));
        Some(facet.json())
    }

    fn energy(&self, energy: Energy) -> Json {
        self.ours("EnergyRunFacet")
            .with("cpu_ms", count(energy.cpu_ms))
            .with("energy_wh", millionths(energy.microwatt_hours))
            .with("co2e_g", millionths(energy.micrograms_co2e))
            .flag("estimate", true)
            .json()
    }

    fn input(&self, run: &Run, source: &Source) -> Json {
        let known = source.checksum.is_some() || source.uri.is_some();
        let file = known.then(|| {
            let file = Object::default().text("checksum", source.checksum.as_deref());
            file.text("uri", source.uri.as_deref()).json()
        });
        dataset(run, &source.name, self.dataset(run, &source.name, file).json()).json()
    }

    fn output(&self, run: &Run, edition: &Edition<'_>) -> Json {
        let files = edition.artifacts.iter().map(|artifact| {
            Object::default()
                .text("checksum", artifact.checksum.as_str())
                .text("uri", artifact.uri.as_str())
                .text("media_type", artifact.media_type.as_deref())
                .with("size", artifact.size.map(count))
                .json()
        });
        let version = self.standard("1-0-1", "DatasetVersionDatasetFacet");
        let facets = self
            .dataset(run, edition.dataset, files)
            .with("version", version.text("datasetVersion", edition.version).json());
        let mut sizes = edition.artifacts.iter().map(|artifact| artifact.size);
        let size = sizes.try_fold(0_u64, |sum, size| Some(sum.saturating_add(size?)));
        let statistics = self
            .standard("1-0-2", "OutputStatisticsOutputDatasetFacet")
            .with("size", size.map(count))
            .number("fileCount", edition.artifacts.len() as u64);
        let statistics = Json::object([("outputStatistics", statistics.json())]);
        dataset(run, edition.dataset, facets.json()).with("outputFacets", statistics).json()
    }

    fn dataset(&self, run: &Run, dataset: &str, files: impl IntoIterator<Item = Json>) -> Object {
        let ownership = owner(run, dataset).map(|owner| {
            let owner = Json::object([("name", Json::text(owner))]);
            self.standard("1-0-1", "OwnershipDatasetFacet").list("owners", [owner]).json()
        });
        let files: Vec<Json> = files.into_iter().collect();
        let content = (!files.is_empty())
            .then(|| self.ours("ContentDatasetFacet").list("files", files).json());
        Object::default().with("ownership", ownership).with("hapax_content", content)
    }

    fn standard(&self, version: &str, name: &str) -> Object {
        let schema =
            format!("https://openlineage.io/spec/facets/{version}/{name}.json#/$defs/{name}");
        Object::default().text("_producer", self.producer).text("_schemaURL", schema.as_str())
    }

    fn ours(&self, name: &str) -> Object {
        let schema = format!("urn:hapax:openlineage:1-0-0:{name}");
        Object::default().text("_producer", self.producer).text("_schemaURL", schema.as_str())
    }
}

fn dataset(run: &Run, name: &str, facets: Json) -> Object {
    let dataset = Object::default().text("namespace", run.namespace.as_str());
    dataset.text("name", name).with("facets", facets)
}
