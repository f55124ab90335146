//! The stage of the story: a ledger, a dispatcher with a subscriber and a catalog, and a process
//! that can be killed.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use hapax::json::Json;
use hapax::outbox::{
    Acks, Delivery as OutboxDelivery, Dispatcher, Event, OutboxConfig, Payload, Record,
    RecordFilter, Sink,
};
use hapax::{Failure, Hapax, Key};
use hapax_pipeline::catalog::Catalog;
use hapax_pipeline::lineage::names;
use hapax_pipeline::projector::Projector;
use hapax_pipeline::{Pipeline, replay};
use serde_json::json;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use super::Result;
use super::etl::{self, DATASET, Delivery, HERE, PUBLISHED, Stop};

/// The file of the dispatcher's telemetry.
const TELEMETRY: &str = "focus-telemetry.log";

pub(crate) struct Stage {
    pub(crate) hapax: Hapax,
    place: PathBuf,
    dispatcher: Dispatcher,
    projector: tokio::sync::Mutex<Projector>,
    subscriber: Subscriber,
}

impl Stage {
    /// Opens the ledger, declares the dataset, and begins to deliver.
    pub(crate) async fn set(place: &Path) -> Result<Self> {
        let hapax = Hapax::builder().holder("the narrator").open(ledger(place)).await?;
        etl::prepare(&hapax)?;
        let file = std::fs::File::create(place.join(TELEMETRY))?;
        let layer = tracing_subscriber::fmt::layer().with_writer(Mutex::new(file)).with_ansi(false);
        let dispatch = Targets::new().with_target("hapax::dispatch", tracing::Level::DEBUG);
        tracing_subscriber::registry().with(layer.with_filter(dispatch)).try_init()?;
        let subscriber = Subscriber::default();
        let outbox = OutboxConfig::new()
            .sink("subscriber", subscriber.clone())?
            .sink("catalog", Catalog::new(place.join("catalog")))?
            .route(PUBLISHED, "*", &["subscriber"])?
            .route("lineage", "*", &["catalog"])?
            .route("streamflow_ingested", "*", &[])?
            .dataset(DATASET, etl::declared());
        let dispatcher = hapax.outbox().dispatch(outbox).await?;
        let projector = tokio::sync::Mutex::new(Projector::new(&hapax)?);
        Ok(Self { hapax, place: place.to_owned(), dispatcher, projector, subscriber })
    }

    /// Writes a file that comes in, and emits its event; once, however often the same file comes.
    pub(crate) async fn ingest(&self, file: &str, version: &str, text: &str) -> Result<()> {
        let path = self.place.join(file);
        std::fs::create_dir_all(path.parent().unwrap_or(&self.place))?;
        std::fs::write(&path, text)?;
        let checksum = replay::checksum(&path).unwrap_or_default();
        let key = Key::derive("ingest.v1", &[("checksum", checksum.as_bytes())])?;
        let payload = json!({"file": file, "checksum": checksum, "version": version}).to_string();
        let arrival = self.hapax.effect(key).run(|claim| async move {
            let payload = Payload::parse(payload.as_bytes())?;
            claim.emit(Event::new("streamflow_ingested", "streamflow", payload))?;
            Ok::<_, Failure>("arrived")
        });
        arrival.await?;
        Ok(())
    }

    /// Seals the journal, projects its runs, and waits until everything is delivered.
    pub(crate) async fn deliver(&self) -> Result<()> {
        self.hapax.pass().await?;
        let mut projector = self.projector.lock().await;
        while projector.pass().await?.behind > 0 {}
        self.dispatcher.idle().await;
        Ok(())
    }

    /// The numbers of rows, artifacts and events of a version.
    pub(crate) fn state(&self, version: &str) -> Result<(u32, u32, u32)> {
        let connection = self.hapax.connection()?;
        let count = |of: &str| {
            let sql = format!("SELECT count(*) FROM {of} AND version = ?1");
            connection.query_row(&sql, [version], |row| row.get(0))
        };
        Ok((
            count("pipeline_state WHERE true")?,
            count(&format!("artifact WHERE dataset_id = '{DATASET}'"))?,
            count(&format!("outbox WHERE event_name = '{PUBLISHED}'"))?,
        ))
    }

    /// The subscriber's deliveries: the id of each event, and its payload.
    pub(crate) fn deliveries(&self) -> Vec<(String, String)> {
        self.subscriber.deliveries.lock().expect("no thread panics with it").clone()
    }

    /// The files of the catalogs.
    pub(crate) fn cataloged(&self) -> Result<String> {
        let root = self.place.join("catalog");
        let (mut folders, mut files) = (vec![root.clone()], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder)? {
                let path = entry?.path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => files.push(path.strip_prefix(&root)?.display().to_string()),
                }
            }
        }
        files.sort();
        Ok(files.join("\n"))
    }

    /// The versions in the dataset's collection.
    pub(crate) fn versions(&self) -> Result<Vec<String>> {
        let collection = self.place.join("catalog/stac").join(names::stac_collection(DATASET));
        let mut versions = Vec::new();
        for entry in std::fs::read_dir(collection)? {
            let entry = entry?;
            let item = entry.path().join(entry.file_name()).with_extension("json");
            if entry.path().is_dir() {
                let item: serde_json::Value = serde_json::from_slice(&std::fs::read(item)?)?;
                versions.extend(item["properties"]["hapax:version"].as_str().map(str::to_owned));
            }
        }
        versions.sort();
        Ok(versions)
    }

    /// Prints the ledger of governance, a line for each record, oldest first.
    pub(crate) async fn print_ledger(&self) -> Result<()> {
        println!("   outbox_id  event_name  dataset_id  care_label  status  attempt");
        let filter = RecordFilter { limit: 100, ..RecordFilter::default() };
        for found in self.hapax.outbox().records(filter).await?.iter().rev() {
            let event = &found.record.event;
            let label = member(&found.record, "care_label");
            let attempt = found.deliveries.iter().map(|delivery| delivery.tried).max();
            println!(
                "   {}  {}  {}  {}  {}  {}",
                found.record.id,
                event.name,
                event.dataset,
                label.as_deref().unwrap_or("-"),
                found.status.as_str(),
                attempt.unwrap_or_default(),
            );
        }
        Ok(())
    }

    /// The dispatcher's log of each try to deliver events of this name.
    pub(crate) fn telemetry(&self, event: &str) -> Result<Vec<String>> {
        let text = std::fs::read_to_string(self.place.join(TELEMETRY))?;
        let ours = text.lines().filter(|line| line.contains(&format!("event_name=\"{event}\"")));
        let message = |line: &str| {
            line.split_once("hapax::dispatch: ").map(|(_, message)| message.to_owned())
        };
        Ok(ours.filter_map(message).collect())
    }

    pub(crate) async fn close(self) -> Result<()> {
        self.dispatcher.stop().await?;
        self.hapax.close().await?;
        Ok(())
    }
}

/// The delivery that an event names.
pub(crate) fn delivery(record: &Record) -> Result<Delivery> {
    let file = member(record, "file").ok_or("the event names no file")?;
    Ok(Delivery { file, version: member(record, "version").ok_or("and no version")? })
}

fn member(record: &Record, name: &str) -> Option<String> {
    let payload = Json::parse(record.event.payload.as_str().as_bytes()).ok()?;
    payload.get(name)?.as_str().map(str::to_owned)
}

fn ledger(place: &Path) -> PathBuf {
    place.join("hapax.db")
}

/// A sink that keeps its deliveries.
#[derive(Clone, Default)]
struct Subscriber {
    deliveries: Arc<Mutex<Vec<(String, String)>>>,
}

impl Sink for Subscriber {
    async fn send(&self, batch: &[OutboxDelivery], acks: &Acks) {
        for (nth, OutboxDelivery { record, .. }) in batch.iter().enumerate() {
            let delivery = (record.id.to_string(), record.event.payload.as_str().to_owned());
            self.deliveries.lock().expect("no thread panics with it").push(delivery);
            acks.delivered(nth);
        }
    }
}

/// A process that publishes one delivery and waits somewhere to be killed: this program, started
/// again with its own arguments.
pub(crate) struct Child {
    place: PathBuf,
    delivery: Delivery,
    stop: Stop,
}

/// The variable with the orders of a child process.
const ERRAND: &str = "HYDROLOGY_ERRAND";

impl Child {
    /// The child that this process is, if it is one.
    pub(crate) fn from_environment() -> Result<Option<Self>> {
        let Some(errand) = std::env::var_os(ERRAND) else { return Ok(None) };
        let errand = errand.into_string().map_err(|_| "no errand")?;
        let [place, file, version, stop] = errand.split('|').collect::<Vec<_>>()[..] else {
            return Err("no errand".into());
        };
        let stop = if stop == "commit" { Stop::AfterTheCommit } else { Stop::InTheTransaction };
        let delivery = Delivery { file: file.into(), version: version.into() };
        Ok(Some(Self { place: place.into(), delivery, stop }))
    }

    pub(crate) async fn run(self) -> Result<()> {
        let hapax = Hapax::builder().holder("the pipeline").open(ledger(&self.place)).await?;
        let pipeline = Pipeline::new(hapax.clone());
        etl::publish(&hapax, &pipeline, &self.place, &self.delivery, self.stop).await?;
        Err("it was not killed".into())
    }

    /// Starts the process, and returns when it waits to be killed.
    pub(crate) fn start(place: &Path, delivery: &Delivery, stop: Stop) -> Result<PausedProcess> {
        let stop = if stop == Stop::AfterTheCommit { "commit" } else { "transaction" };
        let Delivery { file, version } = delivery;
        let mut child = Command::new(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .env(ERRAND, format!("{}|{file}|{version}|{stop}", place.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("its output is not piped")?;
        let waiting = PausedProcess(child);
        for line in BufReader::new(output).lines() {
            if line? == HERE {
                return Ok(waiting);
            }
        }
        Err("the process ended before it could be killed".into())
    }
}

/// A process that waits to be killed, and is killed when this value is dropped.
pub(crate) struct PausedProcess(std::process::Child);

impl PausedProcess {
    /// Kills it by its id.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.0.kill()?;
        let status = self.0.wait()?;
        println!("   process {}: killed ({status})", self.0.id());
        Ok(())
    }
}

impl Drop for PausedProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
