//! The pipeline `hydrology_flow`: from a delivery of readings to a published table.
//!
//! The outcome, the pipeline's row, the artifact and the event are one transaction. A process that
//! dies before its commit leaves nothing, and one that dies after it has done everything.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hapax::json::{Json, JsonError};
use hapax::{Dataset, Digest, Hapax, Safety};
use hapax_pipeline::{
    Artifact, Error, Finished, Operation, Pipeline, Source, Work, WorkError, WorkResult, bucket,
    replay,
};
use rusqlite::Connection;
use serde_json::json;

pub(crate) const DATASET: &str = "hydrology_flow_ks";
pub(crate) const PUBLISHED: &str = "artifact_published";

/// The line that the work prints when it has come to its stop.
pub(crate) const HERE: &str = "here";

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Where the process waits to be killed, for the story's sake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    Nowhere,
    InTheTransaction,
    AfterTheCommit,
}

/// A file of readings that came in, and the version that is made of it.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    /// Relative to the working directory, as it is recorded.
    pub(crate) file: String,
    pub(crate) version: String,
}

/// The dataset's declaration: its owner, its care label, and the contracts of its readings and its
/// rows.
pub(crate) fn declared() -> Dataset {
    let reading = json!({
        "type": "object",
        "required": ["station", "date", "discharge_cms"],
        "properties": {"discharge_cms": {"type": "number", "minimum": 0}},
    });
    let row = json!({
        "type": "object",
        "required": ["station", "days", "mean_cms", "peak_cms"],
        "properties": {"days": {"type": "integer", "minimum": 1}},
        "additionalProperties": {"type": ["string", "number"]},
    });
    Dataset {
        owner: Some("state hydrologist".into()),
        care_label: Some("public".into()),
        input_contract: Some(reading.to_string()),
        output_contract: Some(row.to_string()),
        ..Dataset::default()
    }
}

/// The pipeline's table. Nothing in it forbids a second row for a version.
pub(crate) fn prepare(hapax: &Hapax) -> Result<(), Box<dyn std::error::Error>> {
    let table = "CREATE TABLE IF NOT EXISTS pipeline_state (version TEXT, peak_cms REAL)";
    Ok(hapax.connection()?.execute_batch(table)?)
}

/// Publishes a delivery, unless that was done before.
pub(crate) async fn publish(
    hapax: &Hapax,
    pipeline: &Pipeline,
    place: &Path,
    delivery: &Delivery,
    stop: Stop,
) -> Result<Finished, Error> {
    let invalid = |what: &dyn std::fmt::Display| Error::Invalid(what.to_string());
    let path = place.join(&delivery.file);
    let text = std::fs::read_to_string(&path).map_err(|error| invalid(&error))?;
    let readings = read(&text).map_err(|error| invalid(&error))?;
    let checksum = replay::checksum(&path).ok_or_else(|| invalid(&"the delivery is gone"))?;
    let operation = Operation {
        pipeline_id: "hydrology_flow".into(),
        task_id: "publish".into(),
        dataset_id: DATASET.into(),
        operation_type: "publish".into(),
        version: delivery.version.clone(),
        checksum_in: checksum.clone(),
        params_hash: Digest::of(b"unit=cms").to_string(),
        timestamp_bucket: bucket("2026-06-07T06:30:00Z", DAY)?,
        inputs: vec![Source {
            name: "streamflow".into(),
            checksum: Some(checksum),
            uri: Some(delivery.file.clone()),
        }],
        ..Operation::default()
    };
    let mut builder = pipeline.operation(operation);
    for reading in &readings {
        builder = builder.input(reading.document().map_err(|error| invalid(&error))?);
    }
    let mut connection = hapax.connection()?;
    builder
        .with(|effect| effect.safety(Safety::Transactional))
        .run(|work| {
            let made = perform(&work, &mut connection, place, &readings, stop);
            async { made }
        })
        .await
}

/// Transforms, writes the artifact, and settles everything in one transaction.
fn perform(
    work: &Work,
    connection: &mut Connection,
    place: &Path,
    readings: &[Reading],
    stop: Stop,
) -> Result<WorkResult, WorkError> {
    let version = &work.operation().version;
    let rows = transform(readings);
    let peak = rows.iter().map(|row| row.peak_cms).fold(0.0, f64::max);
    let uri = format!("artifacts/{version}.csv");
    let path = place.join(&uri);
    write(&path, &rows)?;
    let artifact = Artifact {
        dataset: DATASET.into(),
        version: version.clone(),
        checksum: replay::checksum(&path).ok_or_else(|| WorkError::not_done("it is gone"))?,
        uri,
        size: Some(std::fs::metadata(&path)?.len()),
        media_type: Some("text/csv".into()),
        ..Artifact::default()
    };
    let mut made = WorkResult::new(format!("{} stations", rows.len())).output(artifact);
    for row in &rows {
        made = made.document(row.document()?);
    }
    let made = made.publish(PUBLISHED);

    let tx = connection.transaction()?;
    tx.execute("INSERT INTO pipeline_state VALUES (?1, ?2)", (version, peak))?;
    work.settle_in(&tx, &made)?;
    wait_if(stop == Stop::InTheTransaction)?;
    tx.commit()?;
    wait_if(stop == Stop::AfterTheCommit)?;
    Ok(made)
}

/// Prints that it has come here, and waits to be killed, for a minute at most.
fn wait_if(here: bool) -> std::io::Result<()> {
    if here {
        // A test harness captures `println!`, but not this.
        let mut out = std::io::stdout().lock();
        writeln!(out, "{HERE}")?;
        out.flush()?;
        std::thread::sleep(Duration::from_secs(60));
        std::process::exit(1);
    }
    Ok(())
}

struct Reading {
    station: String,
    date: String,
    discharge_cms: f64,
}

impl Reading {
    fn document(&self) -> Result<Json, JsonError> {
        let Self { station, date, discharge_cms } = self;
        document(json!({"station": station, "date": date, "discharge_cms": discharge_cms}))
    }
}

/// A station over all its days.
struct Row {
    station: String,
    days: usize,
    mean_cms: f64,
    peak_cms: f64,
}

impl Row {
    fn document(&self) -> Result<Json, JsonError> {
        let Self { station, days, mean_cms, peak_cms } = self;
        document(json!({
            "station": station, "days": days, "mean_cms": mean_cms, "peak_cms": peak_cms
        }))
    }
}

fn document(value: serde_json::Value) -> Result<Json, JsonError> {
    Json::parse(value.to_string().as_bytes())
}

fn read(text: &str) -> Result<Vec<Reading>, String> {
    let reading = |line: &str| {
        let mut cells = line.split(',');
        let (station, date, cms) = (cells.next()?, cells.next()?, cells.next()?);
        let (station, date) = (station.to_owned(), date.to_owned());
        Some(Reading { station, date, discharge_cms: cms.trim().parse().ok()? })
    };
    let readings = text.lines().skip(1);
    readings.map(|line| reading(line).ok_or_else(|| format!("no reading: {line}"))).collect()
}

fn transform(readings: &[Reading]) -> Vec<Row> {
    let mut stations: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for reading in readings {
        stations.entry(&reading.station).or_default().push(reading.discharge_cms);
    }
    let row = |(station, flows): (&str, Vec<f64>)| Row {
        station: station.to_owned(),
        days: flows.len(),
        mean_cms: (flows.iter().sum::<f64>() / flows.len() as f64 * 100.0).round() / 100.0,
        peak_cms: flows.iter().copied().fold(0.0, f64::max),
    };
    stations.into_iter().map(row).collect()
}

/// Writes a file beside the artifact first: a reader sees all of the artifact or none.
fn write(path: &Path, rows: &[Row]) -> std::io::Result<()> {
    let mut text = String::from("station,days,mean_cms,peak_cms\n");
    for Row { station, days, mean_cms, peak_cms } in rows {
        text += &format!("{station},{days},{mean_cms:.2},{peak_cms:.1}\n");
    }
    let aside: PathBuf = path.with_extension("part");
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    std::fs::write(&aside, text)?;
    std::fs::rename(&aside, path)
}
