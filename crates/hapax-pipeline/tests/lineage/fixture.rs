//! Runs to render, and a way to show documents in a snapshot.

use hapax::json::Json;
use hapax::{AttemptId, Digest, Namespace, Timestamp};
use hapax_pipeline::{
    Artifact, DatasetTerms, Energy, Mark, Moment, Operation, OperationNote, Product, Run,
    RunChange, Source,
};

/// Daily discharge of a river, published from the readings of a gauge and their calibration.
pub(crate) fn run() -> Run {
    let operation = Operation {
        pipeline_id: "hydrology".into(),
        task_id: "publish".into(),
        dataset_id: "river/discharge".into(),
        operation_type: "publish".into(),
        version: "7".into(),
        checksum_in: checksum("readings"),
        params_hash: checksum("params"),
        timestamp_bucket: "2025-11-13T00:00:00Z".into(),
        inputs: vec![
            Source {
                name: "river/readings".into(),
                checksum: Some(checksum("readings")),
                uri: Some("s3://gauges/2025-11-13.csv".into()),
            },
            Source { name: "calibration".into(), ..Source::default() },
        ],
        justification: Some("monthly release".into()),
        governance_ref: None,
        program: vec!["publish".into(), "--daily".into()],
        params: None,
    };
    let terms = DatasetTerms {
        owner: Some("hydrology team".into()),
        care_label: Some("public".into()),
        ..DatasetTerms::default()
    };
    of(OperationNote { operation, terms })
}

/// The moment of its success.
pub(crate) fn completed() -> Moment {
    let product = Product {
        outputs: vec![Artifact {
            dataset: "river/discharge".into(),
            version: "7".into(),
            checksum: checksum("discharge"),
            uri: "s3://published/discharge.parquet".into(),
            size: Some(48_213),
            media_type: Some("application/vnd.apache.parquet".into()),
            cells: vec!["842664dffffffff".into()],
        }],
        contract: vec!["outputs".into()],
        checks: vec!["no negative discharge".into()],
        energy: Some(Energy { cpu_ms: 4200, microwatt_hours: 23_333, micrograms_co2e: 9_100 }),
        retries: 0,
    };
    let digest = Some(Digest::of(b"discharge"));
    moment(run(), RunChange::Complete { product: Some(product), digest })
}

/// A run with texts that every format has to escape. It made two versions, one of them of two
/// files.
pub(crate) fn awkward() -> Moment {
    let awkward = "a \"b\" <c> \\d\n{e}|f^`g%h:i/j#k?é\u{1}";
    let operation = Operation {
        pipeline_id: awkward.into(),
        dataset_id: awkward.into(),
        timestamp_bucket: awkward.into(),
        inputs: vec![
            Source { name: awkward.into(), checksum: Some("crc:1".into()), uri: None },
            Source { name: "x".into(), checksum: None, uri: Some(r"C:\data\x y.csv".into()) },
        ],
        justification: Some(awkward.into()),
        governance_ref: Some(awkward.into()),
        ..run().about.operation
    };
    let terms = DatasetTerms {
        owner: Some(awkward.into()),
        care_label: Some(awkward.into()),
        sovereign: true,
        masked: Some(5),
        lock: None,
        contract: true,
    };
    let artifact = |dataset: &str, uri: &str| Artifact {
        dataset: dataset.into(),
        version: awkward.into(),
        checksum: checksum(uri),
        uri: uri.into(),
        size: Some(u64::MAX / 3),
        ..Artifact::default()
    };
    let product = Product {
        outputs: vec![
            artifact(awkward, awkward),
            artifact("y", "prov:y"),
            artifact(awkward, "/data/z z.csv"),
        ],
        energy: Some(Energy { cpu_ms: 1, microwatt_hours: u64::MAX, micrograms_co2e: 1 }),
        ..Product::default()
    };
    let run = of(OperationNote { operation, terms });
    moment(run, RunChange::Complete { product: Some(product), digest: None })
}

/// A change of a run, four seconds after its grant.
pub(crate) fn moment(run: Run, change: RunChange) -> Moment {
    Moment { run, mark: Mark { entry: 44, at: Timestamp(1_763_060_148_250) }, change }
}

/// Every kind of change of a run.
pub(crate) fn moments() -> Vec<Moment> {
    let reason = || "disk full".to_owned();
    let mut moments: Vec<Moment> = [
        RunChange::Start,
        RunChange::Running { reason: reason() },
        RunChange::Fail { reason: reason() },
        RunChange::Abort { reason: String::new() },
        RunChange::Complete { product: None, digest: None },
    ]
    .map(|change| moment(run(), change))
    .into();
    moments.push(completed());
    moments
}

fn of(about: OperationNote) -> Run {
    Run {
        namespace: Namespace::default(),
        key: about.operation.key().expect("a key"),
        generation: 1,
        attempt: AttemptId::from_bytes([7; 16]),
        about,
        started: Mark { entry: 41, at: Timestamp(1_763_060_144_000) },
    }
}

fn checksum(of: &str) -> String {
    Digest::of(of.as_bytes()).to_string()
}

/// A document with its members in their canonical order, broken where a line would be long, and
/// digests cut short.
pub(crate) fn shown(json: &Json) -> String {
    let canonical = hapax::canonical::canonical(json).expect("canonical");
    cut(&pretty(&Json::parse(canonical.as_bytes()).expect("JSON"), 0)) + "\n"
}

/// A text in which each digest is cut after its first eight digits.
pub(crate) fn cut(text: &str) -> String {
    let mut out = String::new();
    let mut hex = 0;
    for c in text.chars() {
        hex = if c.is_ascii_digit() || ('a'..='f').contains(&c) { hex + 1 } else { 0 };
        out.push(c);
        if hex == 64 {
            out.truncate(out.len() - 56);
            out.push('…');
        }
    }
    out
}

fn pretty(json: &Json, depth: usize) -> String {
    let line = hapax::canonical::canonical(json).expect("canonical");
    let (open, close, items) = match json {
        Json::Object(members) if cut(&line).len() > 88 => {
            let member =
                |(name, value): &(String, Json)| format!("{name:?}: {}", pretty(value, depth + 1));
            ('{', '}', members.iter().map(member).collect::<Vec<_>>())
        }
        Json::Array(items) if cut(&line).len() > 88 => {
            ('[', ']', items.iter().map(|item| pretty(item, depth + 1)).collect())
        }
        _ => return line,
    };
    let indent = "  ".repeat(depth);
    let items = items.iter().map(|item| format!("{indent}  {item}")).collect::<Vec<_>>();
    format!("{open}\n{}\n{indent}{close}", items.join(",\n"))
}

/// The ids of the items of editions.
pub(crate) fn ids(
    editions: &[hapax_pipeline::lineage::Edition<'_>],
) -> std::collections::BTreeSet<String> {
    let id = |edition: &hapax_pipeline::lineage::Edition<'_>| {
        hapax_pipeline::lineage::names::stac_item(edition.dataset, edition.version)
    };
    editions.iter().map(id).collect()
}
