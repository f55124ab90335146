//! Writers and dispatchers that are killed under load: every committed event arrives, in order, and
//! under one id.

use std::collections::{BTreeSet, HashSet};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hapax::outbox::{
    Acks, Delivery, Event, Order, OutboxConfig, Payload, Redrive, Retryability, Sink,
};
use hapax::tokio_postgres::NoTls;
use hapax::{Claim, Failure, Hapax};
use hapax_testkit::Postgres;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use rusqlite::TransactionBehavior;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::deliveries::{Difference, compare};
use crate::field::{At, LONG, blocking, room};
use crate::report::Report;
use crate::sink;
use crate::worker::{key, plant_named};

const WRITERS: usize = 8;
const DISPATCHERS: usize = 2;
/// How many streams each writer has, and how many events each transaction.
const STREAMS: u64 = 4;
const EVENTS: u64 = 12;

/// The orders of a writer or a dispatcher.
#[derive(Debug, Clone, clap::Args)]
pub struct Orders {
    /// Where
    #[command(flatten)]
    pub at: At,
    /// Deliver to the judge at this port, instead of writing
    #[arg(long)]
    pub deliver: Option<u16>,
    /// The number of this process
    #[arg(long)]
    pub number: u64,
    /// The log of begun and committed transactions
    #[arg(long)]
    pub log: PathBuf,
    /// A bug to plant
    #[arg(long)]
    pub plant: Option<String>,
}

/// The judge as a sink. It records everything that it is sent.
struct Judge(Mutex<BufReader<TcpStream>>);

impl Judge {
    async fn connect(port: u16) -> std::io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self(Mutex::new(BufReader::new(stream))))
    }

    async fn deliver(&self, deliveries: &[Delivery], acks: &Acks) -> std::io::Result<()> {
        let mut stream = self.0.lock().await;
        let mut lines = String::new();
        for delivery in deliveries {
            let (id, event) = (delivery.record.id, &delivery.record.event);
            lines += &format!("do {id}/{} {} 0 plain\n", event.dataset, event.payload.as_str());
        }
        stream.write_all(lines.as_bytes()).await?;
        let mut answer = String::new();
        for nth in 0..deliveries.len() {
            answer.clear();
            stream.read_line(&mut answer).await?;
            match answer.starts_with("found") {
                true => acks.delivered(nth),
                false => acks.refused(nth, "the judge did not take it", Retryability::Never),
            }
        }
        Ok(())
    }
}

impl Sink for Judge {
    async fn send(&self, deliveries: &[Delivery], acks: &Acks) {
        // A delivery without an answer is tried again.
        let _ = self.deliver(deliveries, acks).await;
    }
}

/// A sink that delivers nothing, for processes that only write.
struct Nowhere;

impl Sink for Nowhere {
    async fn send(&self, _: &[Delivery], _: &Acks) {}
}

fn routed_to(sink: impl Sink) -> OutboxConfig {
    let outbox =
        OutboxConfig::new().sink("judge", sink).and_then(|o| o.route("*", "*", &["judge"]));
    outbox.expect("a name")
}

/// Writes or delivers, until it is killed.
pub fn work(orders: &Orders) -> Result<(), String> {
    plant_named(orders.plant.as_deref())?;
    blocking(async {
        let builder = Hapax::builder()
            .lease(Duration::from_secs(1))
            .signing_key(&orders.at.signing_key)
            .open(&orders.at.ledger);
        let hapax = builder.await.map_err(|error| error.to_string())?;
        match orders.deliver {
            Some(port) => deliver(&hapax, port, orders).await,
            None => write(&hapax, orders).await,
        }
    })
}

async fn deliver(hapax: &Hapax, port: u16, orders: &Orders) -> Result<(), String> {
    let mut tries = 0;
    let dispatcher = loop {
        tries += 1;
        let judge = Judge::connect(port).await.map_err(|error| error.to_string())?;
        match hapax.outbox().dispatch(routed_to(judge)).await {
            Ok(dispatcher) => break dispatcher,
            // Many writers of a file may keep the dispatcher waiting for too long.
            Err(_) if tries < 5 => {}
            Err(error) => return Err(error.to_string()),
        }
    };
    let mut log = log(orders)?;
    loop {
        let status = dispatcher.status();
        if status.delivered > 0 {
            let _ = writeln!(log, "at work: {status:?}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn log(orders: &Orders) -> Result<File, String> {
    let file = OpenOptions::new().create(true).append(true).open(&orders.log);
    file.map_err(|error| error.to_string())
}

/// Runs transactions of its own, each with some events, and a pause before the commit.
async fn write(hapax: &Hapax, orders: &Orders) -> Result<(), String> {
    let mut log = log(orders)?;
    let mut dice = SmallRng::seed_from_u64(orders.number);
    let mut client = None;
    if orders.at.ledger.contains("://") {
        let (connected, connection) = hapax::tokio_postgres::connect(&orders.at.ledger, NoTls)
            .await
            .map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        client = Some(connected);
    }
    for transaction in 0.. {
        let events: Vec<(u64, u64)> = (0..EVENTS)
            .map(|nth| (dice.random_range(0..STREAMS), transaction * EVENTS + nth))
            .collect();
        let begun: Vec<String> = events.iter().map(|(s, n)| format!("{s}:{n}")).collect();
        let _ = writeln!(log, "begun {transaction} {}", begun.join(" "));
        let emit = |claim: &Claim| {
            for (stream, n) in &events {
                let dataset = format!("{}.{stream}", orders.number);
                let payload = Payload::parse(n.to_string().as_bytes())?;
                let order = if n % 9 == 0 { Order::Free } else { Order::Dataset };
                claim.emit(Event { order, ..Event::new("counted", dataset, payload) })?;
            }
            Ok::<_, Failure>("told")
        };
        let effect = hapax.effect(key(orders.number, transaction));
        let done = match &mut client {
            Some(client) => {
                let tx = client.transaction().await.map_err(|error| error.to_string())?;
                let done = effect.once_in_postgres(&tx, async |_, claim| emit(claim)).await;
                tokio::time::sleep(Duration::from_micros(dice.random_range(0..20_000))).await;
                done.is_ok() && tx.commit().await.is_ok()
            }
            None => {
                let mut db = hapax.connection().map_err(|error| error.to_string())?;
                // A writer that does not get its turn in time tries the next transaction.
                let Ok(tx) = db.transaction_with_behavior(TransactionBehavior::Immediate) else {
                    continue;
                };
                let done = effect.once_in(&tx, |_, claim| emit(claim));
                std::thread::sleep(Duration::from_micros(dice.random_range(0..300)));
                done.is_ok() && tx.commit().is_ok()
            }
        };
        if done {
            let _ = writeln!(log, "committed {transaction}");
        }
    }
    Ok(())
}

/// A process that is running.
struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    fn is_at_work(&mut self, word: &str) -> bool {
        let deadline = Instant::now() + LONG;
        while Instant::now() < deadline {
            if std::fs::read_to_string(&self.log).unwrap_or_default().contains(word) {
                return true;
            }
            if self.child.try_wait().is_ok_and(|status| status.is_some()) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An event: its stream, and its number in it.
type Numbered = (String, u64);

struct Field {
    directory: TempDir,
    judge: sink::Sink,
    ledger: String,
    bug: Option<String>,
    started: u64,
}

impl Field {
    fn start(&mut self, options: &[&str]) -> Running {
        self.started += 1;
        let log = self.directory.path().join(format!("log-{}", self.started));
        let mut command = Command::new(crate::own_program());
        command.args(["post", "--ledger", &self.ledger, "--signing-key"]);
        command.arg(self.directory.path().join("signing-key"));
        command.args(["--number", &self.started.to_string(), "--log"]).arg(&log);
        if let Some(bug) = &self.bug {
            command.args(["--plant", bug]);
        }
        command.args(options).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Running { child: command.spawn().expect("it starts"), log }
    }

    fn writer(&mut self) -> Running {
        self.start(&[])
    }

    fn dispatcher(&mut self) -> Running {
        let port = self.judge.port.to_string();
        self.start(&["--deliver", &port])
    }

    /// The events that writers began, and those that they committed.
    fn written(&self) -> (Vec<Numbered>, Vec<Numbered>) {
        let (mut begun, mut committed) = (Vec::new(), Vec::new());
        for number in 1..=self.started {
            let log = self.directory.path().join(format!("log-{number}"));
            let text = std::fs::read_to_string(log).unwrap_or_default();
            let mut open: Vec<Numbered> = Vec::new();
            // A line that the writer did not finish was not followed by a commit.
            for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
                let mut words = line.split_whitespace();
                match words.next() {
                    Some("begun") => {
                        let events = words.skip(1).filter_map(|word| {
                            let (stream, n) = word.split_once(':')?;
                            Some((format!("{number}.{stream}"), n.parse().ok()?))
                        });
                        open = events.collect();
                        begun.extend(open.iter().cloned());
                    }
                    Some("committed") => committed.append(&mut open),
                    _ => {}
                }
            }
        }
        (begun, committed)
    }
}

/// Kills writers and dispatchers at work, this often, and compares the committed events with those
/// that arrived.
pub fn outbox(
    postgres: Option<&Postgres>,
    kills: u64,
    seed: u64,
    bug: Option<&str>,
    report: &mut Report,
) {
    let directory = room();
    let ledger = match postgres {
        Some(server) => server.database("outbox"),
        None => directory.path().join("hapax.db").to_string_lossy().into_owned(),
    };
    let judge = sink::Sink::start(&directory.path().join("judge"));
    let mut field = Field { directory, judge, ledger, bug: bug.map(str::to_owned), started: 0 };
    let signing_key = field.directory.path().join("signing-key");
    blocking(async {
        let builder = Hapax::builder().background(false).signing_key(signing_key);
        let hapax = builder.open(&field.ledger).await.expect("a ledger");
        hapax.outbox().configure(&routed_to(Nowhere)).await.expect("routes");
        hapax.close().await.expect("closed");
    });
    let mut dice = SmallRng::seed_from_u64(seed);
    let mut writers: Vec<Running> = (0..WRITERS).map(|_| field.writer()).collect();
    let mut dispatchers: Vec<Running> = (0..DISPATCHERS).map(|_| field.dispatcher()).collect();
    for _ in 0..kills {
        let is_writer = dice.random_range(0..2) == 0;
        let (victims, word) = match is_writer {
            true => (&mut writers, "committed"),
            false => (&mut dispatchers, "at work"),
        };
        let nth = dice.random_range(0..victims.len());
        let at_work = victims[nth].is_at_work(word);
        report.expect(at_work, || format!("no process was ever {word}"));
        std::thread::sleep(Duration::from_micros(dice.random_range(0..100_000)));
        victims[nth].kill();
        let figure = if is_writer { "writers killed" } else { "dispatchers killed" };
        report.count(figure, 1);
        match is_writer {
            true => writers[nth] = field.writer(),
            false => dispatchers[nth] = field.dispatcher(),
        }
    }
    // The processes that are alive now must find everything: a new dispatcher would find events
    // that an earlier one passed over.
    for (processes, word) in [(&mut dispatchers, "at work"), (&mut writers, "committed")] {
        let at_work = processes.iter_mut().all(|process| process.is_at_work(word));
        report.expect(at_work, || format!("no process was ever {word}"));
    }
    writers.clear();
    match blocking(drained(&field.ledger, field.directory.path().join("signing-key"))) {
        Ok(redriven) => {
            report.count("parked because their dispatchers died, and redriven", redriven);
        }
        Err(left) => report.violation(format!("the dispatchers leave behind: {left}")),
    }
    dispatchers.clear();
    judge_field(&field, report);
}

/// Waits until nothing is pending. Deliveries in flight whenever a dispatcher was killed are
/// suspected and become dead letters; the operator redrives them. Returns how many there were.
async fn drained(ledger: &str, signing_key: PathBuf) -> Result<u64, String> {
    let builder = Hapax::builder().background(false).signing_key(signing_key);
    let hapax = builder.open(ledger).await.expect("a ledger");
    let (mut redriven, deadline) = (0, Instant::now() + LONG);
    loop {
        let stats = hapax.outbox().stats().await.expect("a read");
        let waiting = stats.iter().map(|sink| sink.pending + sink.failed).sum::<u64>();
        if waiting == 0 {
            return Ok(redriven);
        }
        if Instant::now() > deadline {
            return Err(format!("{stats:?}"));
        }
        let again = Redrive { may_duplicate: true, limit: 10_000, ..Redrive::default() };
        redriven += hapax.outbox().redrive(again).await.expect("redriven") as u64;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn judge_field(field: &Field, report: &mut Report) {
    let (begun, committed) = field.written();
    let text = std::fs::read_to_string(field.directory.path().join("judge")).unwrap_or_default();
    let mut ids = HashSet::new();
    let (mut repeated, mut arrived) = (0, Vec::new());
    for line in text.lines() {
        let (place, n) = line.split_once(' ').expect("a line of the judge's");
        let (id, stream) = place.split_once('/').expect("an id and a stream");
        // Like an inbox: nothing counts twice under one id.
        match ids.insert(id.to_owned()) {
            true => arrived.push((stream.to_owned(), n.parse().expect("a number"))),
            false => repeated += 1,
        }
    }
    // Unordered events may arrive in any order.
    let free = |(_, n): &&Numbered| n % 9 == 0;
    let ordered: Vec<_> = arrived.iter().filter(|event| !free(event)).cloned().collect();
    let Difference { lost, duplicate, unexpected, .. } = compare(&committed, &begun, &arrived);
    let Difference { reordered, .. } = compare(&[], &begun, &ordered);
    let streams: BTreeSet<&String> = arrived.iter().map(|(stream, _)| stream).collect();
    report.count("events committed", committed.len() as u64);
    report.count("streams", streams.len() as u64);
    report.count("sent again after a kill, and recognised by their ids", repeated);
    for (count, figure) in [
        (lost, "committed and lost"),
        (duplicate, "arrived twice under different ids"),
        (unexpected, "arrived without a delivery attempt"),
        (reordered, "arrived before an earlier one of their stream"),
    ] {
        report.count(figure, count);
        report.expect(count == 0, || format!("{count} {figure}"));
    }
    report.at_least("events committed", report.figure("writers killed") * EVENTS);
}
