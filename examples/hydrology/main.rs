//! The hydrology flow: a delivery of stream-flow readings comes in, a table is made of it and
//! published, subscribers and catalogs get the event, a process is killed twice on the way, and a file
//! is tampered with. The output lists the facts; the first one that does not hold ends the program.
//!
//!   cargo run -p hapax-pipeline --example hydrology
//!
//! The readings in `streamflow.csv` are made up. Everything is in a temporary directory.

mod etl;
mod stage;

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use hapax::How;
use hapax_pipeline::replay::{self, ReplayScope};
use hapax_pipeline::{Meter, Pipeline, Settings};

use etl::{Delivery, Stop};
use stage::{Child, Stage};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Readings of four stations on six days, made up.
const READINGS: &str = include_str!("streamflow.csv");

/// A story that takes longer than a minute has gone wrong.
const LONG: Duration = Duration::from_secs(60);

#[tokio::main]
pub(crate) async fn main() -> Result<()> {
    match Child::from_environment()? {
        Some(child) => child.run().await,
        None => tokio::time::timeout(LONG, story()).await?,
    }
}

async fn story() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let place = directory.path();
    let stage = Stage::set(place).await?;
    let hapax = stage.hapax.clone();
    let settings = Settings { environment: "example".into(), ..Settings::default() };
    let pipeline = Pipeline::with(hapax.clone(), settings);
    let run = async |delivery: &Delivery| {
        etl::publish(&hapax, &pipeline, place, delivery, Stop::Nowhere).await
    };

    headline("1. Readings come in. The event starts the pipeline hydrology_flow.");
    println!("   (The numbers are made up.)");
    let lines: Vec<&str> = READINGS.lines().collect();
    let mut ingests = hapax.outbox().follow("streamflow_ingested", "*").await?;
    let mut bus = hapax.outbox().follow(etl::PUBLISHED, "*").await?;
    let broken = lines[..13].join("\n").replace("148.2", "-999");
    stage.ingest("ingest/1.csv", "v10.3.1", &broken).await?;
    let delivery = stage::delivery(&*ingests.next().await?)?;
    println!("   {} is here, for {}", delivery.file, delivery.version);

    headline("2. The delivery is checked against its contract, transformed, and written.");
    let refused = run(&delivery).await.expect_err("-999 is no discharge");
    println!("   {refused}");
    fact(refused.code() == "HX0502", "a sensor's -999 is refused before anything is done");
    fact(stage.state("v10.3.1")? == (0, 0, 0), "and nothing is published");
    stage.ingest("ingest/2.csv", "v10.3.1", &lines[..13].join("\n")).await?;
    let delivery = stage::delivery(&*ingests.next().await?)?;
    let first = run(&delivery).await?;
    let product = first.product.as_ref().expect("it was performed just now");
    fact(product.contract == ["inputs", "outputs"], "the corrected readings pass, in and out");
    print!("{}", indented(&std::fs::read_to_string(place.join("artifacts/v10.3.1.csv"))?));

    headline("3. The state, the artifact and the event were one transaction.");
    fact(stage.state("v10.3.1")? == (1, 1, 1), "one row, one artifact, one artifact_published");
    let again = run(&delivery).await?;
    fact(again.done.how == How::Replayed, "a repeat gets the recorded outcome:");
    println!("     {}", String::from_utf8_lossy(again.done.body().unwrap_or_default()));
    fact(stage.state("v10.3.1")? == (1, 1, 1), "and nothing is published twice");

    headline(
        "4. The event is on the internal bus, and a dispatcher delivers: to a subscriber, and the lineage to a catalog.",
    );
    let published = bus.next().await?;
    fact(published.event.version.as_deref() == Some("v10.3.1"), "the bus has it");
    stage.deliver().await?;
    let deliveries = stage.deliveries();
    println!("   {}", deliveries.first().map_or("", |(_, payload)| payload));
    fact(deliveries.len() == 1, "the subscriber got it, once");

    headline("5. The catalogs have the outputs and their inputs.");
    print!("{}", indented(&stage.cataloged()?));
    fact(stage.versions()? == ["v10.3.1"], "STAC has the version; DCAT and PROV-O have its run");

    headline("6. The ledger of governance, the telemetry of dispatch, and the counters.");
    stage.print_ledger().await?;
    let dispatched = stage.telemetry(etl::PUBLISHED)?;
    println!("   {}", dispatched.join("\n   "));
    let named =
        ["dispatch_status=\"success\"", "attempt=1", "latency_ms=", "duplicate_detected=false"];
    let all = |line: &String| named.iter().all(|name| line.contains(name));
    fact(dispatched.len() == 1 && dispatched.iter().all(all), "one try, which succeeded");
    let counts = pipeline.meters().counts();
    for (meter, _, count) in &counts {
        let amount = *count as f64 * meter.unit().unwrap_or(1.0);
        println!("   {} {amount}", meter.name());
    }
    let replays = counts.iter().find(|(meter, ..)| *meter == Meter::Replays);
    fact(replays.is_some_and(|(.., count)| *count == 1), "one result was replayed");

    headline("7. More readings come in, and the process that publishes them is killed twice.");
    stage.ingest("ingest/3.csv", "v10.3.2", READINGS).await?;
    let delivery = stage::delivery(&*ingests.next().await?)?;
    Child::start(place, &delivery, Stop::InTheTransaction)?.kill()?;
    fact(stage.state("v10.3.2")? == (0, 0, 0), "killed before its commit, it has left nothing");
    Child::start(place, &delivery, Stop::AfterTheCommit)?.kill()?;
    fact(stage.state("v10.3.2")? == (1, 1, 1), "killed after its commit, it has done everything");
    let third = run(&delivery).await?;
    fact(third.done.how == How::Replayed, "the third time, it gets the recorded outcome");
    stage.deliver().await?;
    fact(stage.state("v10.3.2")? == (1, 1, 1), "still one row, one artifact, one event");
    let deliveries = stage.deliveries();
    fact(
        deliveries.len() == 2 && deliveries[0].0 != deliveries[1].0,
        "the subscriber got each version once",
    );
    fact(stage.versions()? == ["v10.3.1", "v10.3.2"], "and the catalog has both");

    headline("8. A replay compares the journal with the files.");
    let scope = ReplayScope { files: place.to_owned(), ..ReplayScope::default() };
    let intact = replay::verify(&hapax, &scope).await?;
    let found = (intact.operations, intact.executed, intact.divergences.len());
    fact(found == (2, 0, 0), "two operations, none executed again, everything as recorded");
    let artifact = Path::new("artifacts/v10.3.1.csv");
    let text = std::fs::read_to_string(place.join(artifact))?;
    std::fs::write(place.join(artifact), text.replace("148.2", "48.2"))?;
    let tampered = replay::verify(&hapax, &scope).await?;
    for divergence in &tampered.divergences {
        println!("   journal {}: {} {}", divergence.entry, divergence.what, divergence.which);
    }
    let named: Vec<_> =
        tampered.divergences.iter().map(|d| (d.what, Path::new(&d.which))).collect();
    fact(named == [("output", artifact)], "a flood that was made smaller is named");
    fact(tampered.lineage == intact.lineage, "and history is what it was");
    stage.close().await
}

fn headline(text: &str) {
    println!("\n{text}");
}

/// Ends the story if the fact does not hold.
fn fact(holds: bool, text: &str) {
    assert!(holds, "it is not so that {text}");
    println!("   ✓ {text}");
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("     {line}\n")).collect()
}
