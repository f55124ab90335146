//! The last step of an operation's life, killed wherever it can be: the projector emits the
//! journal's events to the outside world.
//!
//! A process that projects one new operation is killed at the first failpoint it passes, the next
//! process at the second, and so on until one gets to its end. Each time the harness finishes the
//! projection. Then every moment of every run was emitted once, in the order of the journal.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hapax::outbox::{Acks, Delivery, OutboxConfig, RecordFilter, Sink};
use hapax::{Hapax, Safety};
use hapax_pipeline::projector::{self, Projector};
use hapax_pipeline::{Fold, Moment, Pipeline, WorkError, WorkResult};
use hapax_store::failpoint;
use hapax_testkit::Postgres;
use rustix::process::Signal;

use crate::field::{At, blocking, room};
use crate::operations::{die, operation};
use crate::report::Report;

/// The orders of a process.
#[derive(Debug, Clone, clap::Args)]
pub struct Orders {
    /// Where
    #[command(flatten)]
    pub at: At,
    /// Die at this failpoint, counted from the first one passed
    #[arg(long)]
    pub nth: u64,
}

const LEASE: Duration = Duration::from_secs(1);

/// More failpoints than the projection of one operation passes.
const MOST: u64 = 400;

/// More records than there will be.
const ALL: usize = 10_000;

/// A sink that drops its deliveries and acknowledges them.
struct Nowhere;

impl Sink for Nowhere {
    async fn send(&self, deliveries: &[Delivery], acks: &Acks) {
        (0..deliveries.len()).for_each(|nth| acks.delivered(nth));
    }
}

async fn open(ledger: &str, signing_key: &Path) -> Result<Hapax, hapax::Error> {
    let builder = Hapax::builder().lease(LEASE).background(false);
    builder.signing_key(signing_key).open(ledger).await
}

/// Projects all pending events.
async fn project(hapax: &Hapax) -> Result<(), hapax_pipeline::Error> {
    let mut projector = Projector::new(hapax)?;
    while projector.pass().await?.behind > 0 {}
    Ok(())
}

/// Projects, and dies on the way.
pub fn work(orders: &Orders) -> Result<(), String> {
    blocking(async {
        let opened = open(&orders.at.ledger, &orders.at.signing_key).await;
        let hapax = opened.map_err(|error| error.to_string())?;
        let (nth, passed) = (orders.nth, AtomicU64::new(0));
        failpoint::hook(move |point| {
            if passed.fetch_add(1, Ordering::SeqCst) + 1 == nth {
                println!("{}", point.name());
                die();
            }
            Ok(())
        });
        project(&hapax).await.map_err(|error| error.to_string())
    })
}

/// Kills a process that projects an operation at each failpoint it passes; repeats this `times`
/// times.
pub fn lineage(postgres: Option<&Postgres>, times: u64, report: &mut Report) {
    let directory = room();
    let signing_key = directory.path().join("signing-key");
    let ledger = match postgres {
        Some(server) => server.database("lineage"),
        None => directory.path().join("hapax.db").to_string_lossy().into_owned(),
    };
    let result = blocking(async {
        let hapax = open(&ledger, &signing_key).await?;
        let outbox = OutboxConfig::new().sink("nowhere", Nowhere)?;
        hapax.outbox().configure(&outbox.route(projector::EVENT, "*", &["nowhere"])?).await?;
        for time in 0..times {
            for at in 1..=MOST {
                operate(&hapax, &format!("v{time}.{at}"), at.is_multiple_of(3)).await?;
                let at_which = kill(&ledger, &signing_key, at);
                project(&hapax).await?;
                compare(&hapax, at_which.as_deref().unwrap_or("the end"), report).await?;
                let Some(point) = at_which else {
                    report.count("processes that finished", 1);
                    break;
                };
                report.count(format!("processes killed at {point}"), 1);
            }
        }
        Ok::<_, WorkError>(())
    });
    if let Err(error) = result {
        report.violation(format!("{error:?}"));
    }
    // The end of a batch, its events and the cursor: three commits, each with failpoints around it.
    report.at_least("processes that finished", times);
    let killed = |(figure, count): &(String, u64)| figure.contains("killed").then_some(*count);
    let kills: u64 = report.figures.iter().filter_map(killed).sum();
    report.expect(kills >= 12 * times, || format!("vacuous: {kills} kills"));
}

/// Runs one more operation, and seals its entries.
async fn operate(hapax: &Hapax, version: &str, fails: bool) -> Result<(), WorkError> {
    let pipeline = Pipeline::new(hapax.clone());
    let builder = pipeline.operation(operation("levels", version));
    let builder = builder.with(|effect| effect.safety(Safety::Transactional));
    let done = builder.run(|_| async move {
        match fails {
            true => Err(WorkError::not_done("no")),
            false => Ok(WorkResult::new("done")),
        }
    });
    let _ = done.await;
    while hapax.pass().await?.sealed > 0 {}
    Ok(())
}

/// Lets a process die at its nth failpoint. Returns that failpoint, if the process passed so many.
fn kill(ledger: &str, signing_key: &Path, at: u64) -> Option<String> {
    let mut command = Command::new(crate::own_program());
    command.args(["project", "--ledger", ledger, "--nth", &at.to_string(), "--signing-key"]);
    command.arg(signing_key).stdin(Stdio::null()).stderr(Stdio::null());
    let ended = command.output().expect("it starts");
    let killed = ended.status.signal() == Some(Signal::KILL.as_raw());
    killed.then(|| String::from_utf8_lossy(&ended.stdout).trim().to_owned())
}

/// Expects the emitted moments to be those of the journal: each once, in its order.
async fn compare(hapax: &Hapax, place: &str, report: &mut Report) -> Result<(), WorkError> {
    let filter = RecordFilter { limit: ALL, ..RecordFilter::default() };
    let mut records: Vec<_> =
        hapax.outbox().records(filter).await?.into_iter().map(|f| f.record).collect();
    records.sort_by_key(|record| record.seq);
    let emitted: Vec<Moment> = records.iter().filter_map(projector::moment).collect();
    let (mut fold, mut from, mut expected) = (Fold::default(), 0, Vec::new());
    loop {
        let page = hapax.journal().sealed(from, 1_000).await?;
        expected.extend(page.entries.iter().filter_map(|(_, entry)| fold.push(entry)));
        from = page.next;
        if page.next == page.size {
            break;
        }
    }
    report.expect(emitted == expected, || {
        format!("{place}: {} moments emitted, {} in the journal", emitted.len(), expected.len())
    });
    Ok(())
}
