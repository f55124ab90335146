//! Operations on datasets whose process is killed around the claim and around the settle.
//!
//! ```text
//!  ask ─▶ commit ─▶ reply ─▶ begin ─▶ end ─▶ ask ─▶ commit ─▶ reply
//!  └────── the claim ──────────────┘ └────── the settle ──────────┘
//! ```
//!
//! Nothing is done twice. If nothing can have happened, or all of it is recorded, the lock is free
//! within a lease. If something may have happened, the lock is kept and shown until an operator has
//! decided. Partial work is undone before it is done again: there the judge executes it twice, with the
//! undoing in between. Transactional work that was killed before its own commit is done again: its row
//! was rolled back with that transaction, so that there is one in the end.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use hapax::tokio_postgres::NoTls;
use hapax::{Failure, Hapax, Judged, Key, Outcome, Resolution, Safety, StateName};
use hapax_pipeline::{Error, Finished, Operation, Pipeline, Settings, Work, WorkError, WorkResult};
use hapax_store::failpoint::{self, Point};
use hapax_testkit::Postgres;
use rusqlite::TransactionBehavior;
use rustix::process::{Signal, getpid, kill_process};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::field::{At, blocking, room};
use crate::report::Report;
use crate::sink::{Client, Rule, Sink};
use crate::worker::plant_named;

/// The work of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// The judge executes everything, and offers no lookup.
    Opaque,
    /// The same, and only half of it the first time.
    Partial,
    /// Writes a row, and settles in the same transaction.
    Transactional,
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
    /// The work to do
    #[arg(long, value_enum)]
    pub kind: Kind,
    /// The dataset to work on
    #[arg(long)]
    pub dataset: String,
    /// Die at the first pass of --at after this failpoint
    #[arg(long)]
    pub after: String,
    /// The failpoint to die at, or own.commit
    #[arg(long = "at")]
    pub point: String,
    /// A bug to plant
    #[arg(long)]
    pub plant: Option<String>,
}

/// The moment before a caller commits its own transaction, which is no failpoint of ours.
const OWN_COMMIT: &str = "own.commit";

/// The orders to the judge.
const DO: u64 = 1;
const UNDO: u64 = 2;

/// The step that undoes the judge's execution.
const STEP: &str = "tell the judge";

/// The lease of all processes. Its renewals show that the database has not stalled.
const LEASE: Duration = Duration::from_secs(6);

/// By when a lock is free after the death of its holder: within a lease, plus the time that a busy
/// machine may take to notice.
const FREE: Duration = Duration::from_secs(9);

const TABLE: &str = "CREATE TABLE IF NOT EXISTS operated (dataset TEXT)";
const ROW: &str = "INSERT INTO operated VALUES ($1)";
const ROWS: &str = "SELECT count(*) FROM operated WHERE dataset = $1";

pub(crate) fn operation(dataset: &str, version: &str) -> Operation {
    Operation {
        pipeline_id: "proof".into(),
        task_id: "operate".into(),
        dataset_id: dataset.into(),
        operation_type: "append".into(),
        version: version.into(),
        checksum_in: "sha256:5f2b".into(),
        params_hash: "sha256:9c41".into(),
        timestamp_bucket: "2026-11-16T00:00:00Z".into(),
        ..Operation::default()
    }
}

/// A process that performs operations: one that will be killed, or one that comes after it.
struct Operator {
    hapax: Hapax,
    ledger: String,
    port: u16,
    /// Whether it dies when its own transaction is written and not committed.
    dies: bool,
}

impl Operator {
    fn new(hapax: Hapax, ledger: &str, port: u16, dies: bool) -> Self {
        hapax.on_rollback(STEP, move |dataset| async move {
            let dataset = String::from_utf8(dataset)?;
            judged(port, &dataset, UNDO).map_err(Failure::from)
        });
        Self { hapax, ledger: ledger.to_owned(), port, dies }
    }

    /// A pipeline whose operations wait this long for a lock.
    fn pipeline(&self, lock_wait: Duration) -> Pipeline {
        Pipeline::with(self.hapax.clone(), Settings { lock_wait, ..Settings::default() })
    }

    async fn operate(&self, kind: Kind, dataset: &str) -> Result<Finished, Error> {
        let safety = match kind {
            Kind::Transactional => Safety::Transactional,
            Kind::Opaque | Kind::Partial => Safety::Opaque,
        };
        let pipeline = self.pipeline(FREE);
        let builder = pipeline.operation(operation(dataset, "v1"));
        let builder = builder.with(|effect| effect.safety(safety).wait(FREE));
        builder.run(|work| self.perform(kind, dataset, work)).await
    }

    async fn perform(
        &self,
        kind: Kind,
        dataset: &str,
        work: Work,
    ) -> Result<WorkResult, WorkError> {
        match kind {
            Kind::Opaque => judged(self.port, dataset, DO)?,
            Kind::Partial => {
                work.undo_with(STEP, dataset.as_bytes()).await?;
                judged(self.port, dataset, DO)?;
                if work.nth() == 1 {
                    return Err(WorkError::partial("half of it"));
                }
            }
            Kind::Transactional => self.write(dataset, &work).await?,
        }
        Ok(WorkResult::new("done"))
    }

    /// Writes a row and the outcome, in one transaction.
    async fn write(&self, dataset: &str, work: &Work) -> Result<(), WorkError> {
        let made = WorkResult::new("done");
        if self.ledger.contains("://") {
            let (mut client, connection) =
                hapax::tokio_postgres::connect(&self.ledger, NoTls).await?;
            tokio::spawn(connection);
            let tx = client.transaction().await?;
            tx.execute(ROW, &[&dataset]).await?;
            work.settle_in_postgres(&tx, &made).await?;
            self.about_to_commit();
            tx.commit().await?;
        } else {
            let mut db = self.hapax.connection()?;
            let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            tx.execute(ROW, [dataset])?;
            work.settle_in(&tx, &made)?;
            self.about_to_commit();
            tx.commit()?;
        }
        Ok(())
    }

    fn about_to_commit(&self) {
        if self.dies {
            die();
        }
    }

    /// Another operation on the same dataset, which changes nothing.
    async fn another(
        &self,
        dataset: &str,
        version: &str,
        wait: Duration,
    ) -> Result<Finished, Error> {
        let pipeline = self.pipeline(wait);
        let builder = pipeline.operation(operation(dataset, version));
        let builder = builder.with(|effect| effect.safety(Safety::Transactional));
        builder.run(|_| async { Ok::<_, WorkError>(WorkResult::new("nothing")) }).await
    }

    /// How many rows there are of a dataset.
    async fn rows(&self, dataset: &str) -> Result<usize, WorkError> {
        if self.ledger.contains("://") {
            let (client, connection) = hapax::tokio_postgres::connect(&self.ledger, NoTls).await?;
            tokio::spawn(connection);
            return Ok(client.query_one(ROWS, &[&dataset]).await?.get::<_, i64>(0) as usize);
        }
        let db = self.hapax.connection()?;
        Ok(db.query_row(ROWS, [dataset], |row| row.get::<_, i64>(0))? as usize)
    }
}

fn judged(port: u16, dataset: &str, mark: u64) -> std::io::Result<()> {
    Client::connect(port)?.execute(dataset, mark, 0, Rule::Plain).map(drop)
}

/// Dies as by `kill -9`: nothing is flushed, closed or answered.
pub(crate) fn die() {
    let _ = kill_process(getpid(), Signal::KILL);
}

/// Performs one operation, and dies on the way.
pub fn work(orders: &Orders) -> Result<(), String> {
    plant_named(orders.plant.as_deref())?;
    let point = |name: &str| {
        let point = Point::ALL.iter().find(|point| point.name() == name).copied();
        point.ok_or_else(|| format!("no failpoint is called {name}"))
    };
    let dies = orders.point == OWN_COMMIT;
    if !dies {
        let (after, at, begun) =
            (point(&orders.after)?, point(&orders.point)?, AtomicBool::new(false));
        failpoint::hook(move |passed| {
            if passed == after {
                begun.store(true, Ordering::SeqCst);
            }
            if passed == at && begun.load(Ordering::SeqCst) {
                die();
            }
            Ok(())
        });
    }
    blocking(async {
        let builder = Hapax::builder().lease(LEASE).background(false);
        let opened = builder.signing_key(&orders.at.signing_key).open(&orders.at.ledger).await;
        let hapax = opened.map_err(|error| error.to_string())?;
        let operator = Operator::new(hapax, &orders.at.ledger, orders.sink, dies);
        let done = operator.operate(orders.kind, &orders.dataset).await;
        done.map(drop).map_err(|error| error.to_string())
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Claim,
    Settle,
}

/// Where a process is killed.
#[derive(Debug, Clone, Copy)]
struct KillPoint {
    step: Step,
    after: Point,
    at: &'static str,
    /// Whether the claim or the settle is recorded by then.
    written: bool,
}

/// Every place where a process of this kind is killed.
fn places(kind: Kind, postgres: bool) -> Vec<KillPoint> {
    let (commit, committed) = match (postgres, kind) {
        (false, _) => (Point::SqliteCommit, Point::SqliteCommitted),
        // The only report of these that takes more than one statement.
        (true, Kind::Partial) => (Point::PostgresCommit, Point::PostgresCommitted),
        (true, _) => (Point::QuickSend, Point::QuickSent),
    };
    let at = |step, after, at: Point, written| KillPoint { step, after, at: at.name(), written };
    let claim = |point, written| at(Step::Claim, Point::ClaimAsk, point, written);
    let settle = |point, written| at(Step::Settle, Point::SettleAsk, point, written);
    let end = |written| at(Step::Settle, Point::ClaimAsk, Point::RunEnd, written);
    let claims = vec![
        claim(Point::ClaimAsk, false),
        claim(commit, false),
        claim(committed, true),
        claim(Point::ClaimAnswered, true),
        claim(Point::RunBegin, true),
    ];
    let settles = vec![
        end(false),
        settle(Point::SettleAsk, false),
        settle(commit, false),
        settle(committed, true),
        settle(Point::SettleAnswered, true),
    ];
    let own = KillPoint { at: OWN_COMMIT, ..end(false) };
    match kind {
        Kind::Opaque => [claims, settles].concat(),
        // Its claim is like any other.
        Kind::Partial => settles,
        Kind::Transactional => [claims, vec![own, end(true)]].concat(),
    }
}

impl KillPoint {
    /// Whether the work was done by then.
    fn is_done(self, kind: Kind) -> bool {
        self.step == Step::Settle && (self.written || kind != Kind::Transactional)
    }

    /// Whether other operations get the lock: nothing can have happened, or all of it is recorded.
    fn is_free(self, kind: Kind) -> bool {
        match (kind, self.step) {
            (Kind::Transactional, _) => true,
            (_, Step::Claim) => !self.written,
            (_, Step::Settle) => self.written && kind == Kind::Opaque,
        }
    }

    /// Whether the ledger knows that the work happened in part, and how to undo it.
    fn is_known_to_be_partial(self, kind: Kind) -> bool {
        kind == Kind::Partial && self.written
    }
}

struct Field {
    directory: TempDir,
    judge: Sink,
    operator: Operator,
    postgres: bool,
    bug: Option<String>,
}

impl Field {
    async fn new(postgres: Option<&Postgres>, bug: Option<&str>) -> Self {
        let directory = room();
        let ledger = match postgres {
            Some(server) => server.database("operations"),
            None => directory.path().join("hapax.db").to_string_lossy().into_owned(),
        };
        let judge = Sink::start(&directory.path().join("judge"));
        let builder = Hapax::builder().lease(LEASE).background(false);
        let builder = builder.signing_key(directory.path().join("signing-key"));
        let hapax = builder.open(&ledger).await.expect("a ledger");
        match postgres {
            Some(server) => drop(server.sql("operations", TABLE)),
            None => {
                let db = hapax.connection().expect("a connection");
                db.execute_batch(TABLE).expect("a table");
            }
        }
        let operator = Operator::new(hapax, &ledger, judge.port, false);
        let (postgres, bug) = (postgres.is_some(), bug.map(str::to_owned));
        Self { directory, judge, operator, postgres, bug }
    }

    /// Lets a process die at this place. Returns whether it did.
    fn kill(&self, kind: Kind, place: KillPoint, dataset: &str) -> bool {
        let kind = kind.to_possible_value().expect("each has a name");
        let mut command = Command::new(crate::own_program());
        command.args(["operate", "--ledger", &self.operator.ledger, "--signing-key"]);
        command.arg(self.directory.path().join("signing-key"));
        command.args(["--sink", &self.judge.port.to_string(), "--kind", kind.get_name()]);
        command.args(["--dataset", dataset, "--after", place.after.name(), "--at", place.at]);
        if let Some(bug) = &self.bug {
            command.args(["--plant", bug]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let ended = command.status().expect("it starts");
        ended.signal() == Some(Signal::KILL.as_raw())
    }

    /// The work that was done on a dataset, in order.
    async fn done(&self, kind: Kind, dataset: &str) -> Result<Vec<u64>, WorkError> {
        Ok(match kind {
            Kind::Transactional => vec![DO; self.operator.rows(dataset).await?],
            _ => self.judge.executed().remove(dataset).unwrap_or_default(),
        })
    }

    /// Judges the state that a killed process leaves to later operations.
    async fn look(&self, killed: Killed) -> Report {
        let mut report = Report::default();
        if let Err(error) = self.come_after(&killed, &mut report).await {
            report.violation(format!("{}: {error:?}", killed.dataset));
        }
        report
    }

    async fn come_after(&self, killed: &Killed, report: &mut Report) -> Result<(), WorkError> {
        let (operator, Killed { kind, place, dataset, at }) = (&self.operator, killed);
        let (kind, place) = (*kind, *place);
        let key = operation(dataset, "v1").key()?;
        let before = self.done(kind, dataset).await?;
        let expected: &[u64] = if place.is_done(kind) { &[DO] } else { &[] };
        report.expect(before == expected, || format!("{dataset}: when it died: {before:?}"));

        let other = operator.another(dataset, "v2", FREE.saturating_sub(at.elapsed())).await;
        let free = other.is_ok();
        report.expect(free == place.is_free(kind), || {
            format!("{dataset}: another operation on the dataset: {other:?}")
        });
        if !free {
            report.count("locks that were kept", 1);
            self.is_shown(key, &other, dataset, report).await?;
        }
        if !free && !place.is_known_to_be_partial(kind) {
            let judged = self.decide(key, !before.is_empty()).await?;
            report
                .expect(matches!(judged, Judged::Decided(_)), || format!("{dataset}: {judged:?}"));
            report.count("outcomes that an operator decided", 1);
        }
        let again = operator.operate(kind, dataset).await;
        report.expect(again.is_ok(), || format!("{dataset}: asked again: {again:?}"));
        let after = self.done(kind, dataset).await?;
        let expected: &[u64] = match place.is_known_to_be_partial(kind) {
            true => &[DO, UNDO, DO],
            false => &[DO],
        };
        report.expect(after == expected, || format!("{dataset}: in the end: {after:?}"));
        report.count("undone before they were done again", u64::from(after.contains(&UNDO)));
        let next = operator.another(dataset, "v3", FREE).await;
        report.expect(next.is_ok(), || format!("{dataset}: the lock in the end: {next:?}"));
        report.count("operations done once in the end", u64::from(again.is_ok()));
        Ok(())
    }

    /// The error of a blocked operation names the holder, and doctor names the holder with its lock.
    async fn is_shown(
        &self,
        key: Key,
        other: &Result<Finished, Error>,
        dataset: &str,
        report: &mut Report,
    ) -> Result<(), WorkError> {
        let names_holder = match other {
            Err(Error::Ledger(hapax::Error::Blocked(blocked))) => blocked.holder == Some(key),
            _ => false,
        };
        report.expect(names_holder, || format!("{dataset}: a waiting caller got: {other:?}"));
        let stuck = [StateName::Indeterminate, StateName::Partial];
        let shown = self.operator.hapax.effects().list(&stuck, 1_000).await?;
        let shown = shown.iter().any(|found| found.name.key == key);
        report.expect(shown, || format!("{dataset}: it is not among what is stuck"));
        let doctor = self.operator.hapax.maintenance().doctor().await?;
        let named =
            |text: &str| text.starts_with(&key.to_string()) && text.contains("it holds lock_");
        let named = doctor.findings.iter().any(|finding| named(&finding.what));
        report.expect(named, || format!("{dataset}: doctor does not name it with its lock"));
        Ok(())
    }

    /// An operator looks at the target, and resolves the effect by it.
    async fn decide(&self, key: Key, happened: bool) -> Result<Judged, WorkError> {
        let hapax = &self.operator.hapax;
        let effect =
            hapax.effects().show(key).await?.ok_or_else(|| WorkError::not_done("no record"))?;
        let resolution = match happened {
            true => Resolution::Happened(Outcome::from("done")),
            false => Resolution::DidNotHappen,
        };
        Ok(hapax.effects().resolve(key, effect.seen(), resolution, "ann", "looked").await?)
    }
}

/// A process that was killed.
struct Killed {
    kind: Kind,
    place: KillPoint,
    dataset: String,
    at: Instant,
}

/// Kills a process at each place, this often, and judges the state that it leaves to later operations.
pub fn operations(postgres: Option<&Postgres>, times: u64, bug: Option<&str>, report: &mut Report) {
    blocking(async {
        let field = Arc::new(Field::new(postgres, bug).await);
        for nth in 0..times {
            // The looks run side by side: a lease is long, and runs out for all of them at once.
            let mut looks = JoinSet::new();
            for kind in [Kind::Opaque, Kind::Partial, Kind::Transactional] {
                for place in places(kind, field.postgres) {
                    let dataset = format!("{kind:?}-{:?}-{}-{nth}", place.step, place.at);
                    let died = field.kill(kind, place, &dataset);
                    report.expect(died, || {
                        format!("{dataset}: vacuous: the process did not get there")
                    });
                    report.count(
                        format!("processes killed at the {:?}", place.step).to_lowercase(),
                        1,
                    );
                    let killed = Killed { kind, place, dataset, at: Instant::now() };
                    let field = Arc::clone(&field);
                    looks.spawn(async move { field.look(killed).await });
                }
            }
            looks.join_all().await.into_iter().for_each(|seen| report.add(seen));
        }
        let hapax = &field.operator.hapax;
        let sealed = async {
            while hapax.pass().await?.sealed > 0 {}
            hapax.journal().verify(hapax.journal().verifier()?, |_, _| ()).await
        };
        match sealed.await {
            Ok(verified) => {
                report.count("journal entries verified", verified.sealed);
                report.expect(verified.damage.is_empty(), || format!("{:?}", verified.damage));
            }
            Err(error) => report.violation(format!("the journal cannot be read: {error}")),
        }
    });
}
