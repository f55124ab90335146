//! A hundred operations at once, in several processes. On one dataset no two overlap; on many
//! datasets, and on parts of one dataset, several do. The judge records each beginning and each end.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::ValueEnum;
use hapax::{Dataset, Hapax, Safety};
use hapax_pipeline::{Operation, Pipeline, Settings, WorkError, WorkResult};
use hapax_testkit::Postgres;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::field::{At, LONG, blocking, room};
use crate::operations::operation;
use crate::report::Report;
use crate::sink::{Client, Rule, Sink};

/// The datasets that operations are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum On {
    /// All on one dataset.
    One,
    /// Each on its own.
    Many,
    /// Each on a part of one.
    Parts,
}

/// The orders of a process.
#[derive(Debug, Clone, clap::Args)]
pub struct Orders {
    /// Where
    #[command(flatten)]
    pub at: At,
    /// The judge's port
    #[arg(long)]
    pub sink: u16,
    /// The datasets to operate on
    #[arg(long, value_enum)]
    pub on: On,
    /// The first operation
    #[arg(long)]
    pub first: u64,
}

const PROCESSES: u64 = 4;
const EACH: u64 = 25;

/// The dataset that is worked on in parts.
const SHARED: &str = "shared";

impl On {
    fn name(self) -> String {
        self.to_possible_value().expect("each has a name").get_name().to_owned()
    }

    /// The nth operation, and the part of the dataset it is on.
    fn operation(self, nth: u64) -> (Operation, Option<String>) {
        let version = format!("v{nth}");
        match self {
            Self::One => (operation("one", &version), None),
            Self::Many => (operation(&format!("many-{nth}"), &version), None),
            Self::Parts => (operation(SHARED, &version), Some(format!("part-{nth}"))),
        }
    }
}

async fn open(ledger: &str, signing_key: &Path) -> Result<Hapax, hapax::Error> {
    Hapax::builder().background(false).signing_key(signing_key).open(ledger).await
}

/// Performs its share of operations, all at once.
pub fn work(orders: &Orders) -> Result<(), String> {
    blocking(async {
        let opened = open(&orders.at.ledger, &orders.at.signing_key).await;
        let hapax = opened.map_err(|error| error.to_string())?;
        let settings = Settings { lock_wait: LONG, ..Settings::default() };
        let (pipeline, on, port) = (Pipeline::with(hapax, settings), orders.on, orders.sink);
        let meeting = Meeting { arrived: AtomicU64::new(0), both: Barrier::new(2) };
        let (meeting, mut working) = (Arc::new(meeting), JoinSet::new());
        for nth in orders.first..orders.first + EACH {
            let (pipeline, meeting) = (pipeline.clone(), meeting.clone());
            working.spawn(async move {
                let (operation, part) = on.operation(nth);
                let builder = pipeline.operation(operation);
                let builder = match part {
                    Some(part) => builder.part(part),
                    None => builder,
                };
                let builder =
                    builder.with(|effect| effect.safety(Safety::Transactional).wait(LONG));
                builder.run(|_| occupy(port, on, nth, &meeting)).await.map(drop)
            });
        }
        let done: Result<Vec<()>, _> = working.join_all().await.into_iter().collect();
        done.map(drop).map_err(|error| error.to_string())
    })
}

/// The meeting point of a process's first two operations, so that two are at work at once.
struct Meeting {
    arrived: AtomicU64,
    both: Barrier,
}

impl Meeting {
    async fn attend(&self) -> Result<(), WorkError> {
        if self.arrived.fetch_add(1, Ordering::SeqCst) < 2 {
            tokio::time::timeout(LONG, self.both.wait()).await?;
        }
        Ok(())
    }
}

/// Reports the beginning to the judge, and then the end.
async fn occupy(port: u16, on: On, nth: u64, meeting: &Meeting) -> Result<WorkResult, WorkError> {
    execute(port, on, 2 * nth).await?;
    if on != On::One {
        meeting.attend().await?;
    }
    execute(port, on, 2 * nth + 1).await?;
    Ok(WorkResult::new("done"))
}

async fn execute(port: u16, on: On, mark: u64) -> Result<(), WorkError> {
    let executed = tokio::task::spawn_blocking(move || {
        Client::connect(port)?.execute(&on.name(), mark, 0, Rule::Plain)
    });
    executed.await??;
    Ok(())
}

/// The largest number of operations at work at once, from beginnings (even) and ends (odd) in order.
fn most_at_once(marks: &[u64]) -> usize {
    let (mut under_way, mut most) = (BTreeSet::new(), 0);
    for mark in marks {
        match mark % 2 {
            0 => under_way.insert(mark / 2),
            _ => under_way.remove(&(mark / 2)),
        };
        most = most.max(under_way.len());
    }
    most
}

/// Runs operations in several processes, and asks the judge how many overlapped.
pub fn overlap(postgres: Option<&Postgres>, times: u64, report: &mut Report) {
    for _ in 0..times {
        let directory = room();
        let signing_key = directory.path().join("signing-key");
        let ledger = match postgres {
            Some(server) => server.database(&format!("overlap_{}", getrandom::u64().unwrap_or(0))),
            None => directory.path().join("hapax.db").to_string_lossy().into_owned(),
        };
        let parted = Dataset { shards: 1_024, ..Dataset::default() };
        let declared = blocking(async {
            open(&ledger, &signing_key).await?.datasets().declare(SHARED, Some(parted)).await
        });
        report.expect(declared.is_ok(), || format!("{declared:?}"));
        let judge = Sink::start(&directory.path().join("judge"));
        for on in [On::One, On::Many, On::Parts] {
            let start = |nth: u64| {
                let mut command = Command::new(crate::own_program());
                command.args(["occupy", "--ledger", &ledger, "--on", &on.name()]);
                command.args(["--sink", &judge.port.to_string()]);
                command.args(["--first", &(nth * EACH).to_string(), "--signing-key"]);
                command.arg(&signing_key).stdin(Stdio::null()).stdout(Stdio::null());
                command.spawn().expect("it starts")
            };
            let running: Vec<Child> = (0..PROCESSES).map(start).collect();
            for mut child in running {
                let ended = child.wait().expect("it ends");
                report.expect(ended.success(), || format!("{on:?}: a process {ended}"));
            }
            let marks = judge.executed().remove(&on.name()).unwrap_or_default();
            let all = 2 * PROCESSES * EACH;
            report.expect(marks.len() as u64 == all, || {
                format!("{on:?}: {} begins and ends", marks.len())
            });
            let most = most_at_once(&marks);
            match on {
                On::One => report.expect(most == 1, || format!("{most} at once on one dataset")),
                On::Many | On::Parts => {
                    report.expect(most > 1, || format!("{on:?}: vacuous: never two at once"));
                }
            }
            report.count(format!("operations on {}", on.name()), marks.len() as u64 / 2);
        }
    }
}
