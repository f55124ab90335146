//! A process under test: runs many callers at once through a range of keys, and logs their calls
//! and the answers.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hapax::tokio_postgres::{Client as PgClient, NoTls};
use hapax::{
    Claim, Done, EffectBuilder, Error, Failure, Finding, Hapax, Key, Outcome, Safety, Settling,
};
use hapax_core::planted::{Bug, plant};
use hapax_store::StoreError;
use hapax_store::failpoint::{self, Point};
use rusqlite::{Connection, TransactionBehavior};

use crate::sink::{Answer, Client, Rule};

/// The orders of a worker.
#[derive(Debug, Clone, clap::Args)]
pub struct Orders {
    /// The ledger: a file or a URL
    #[arg(long)]
    pub ledger: String,
    /// The judge's port
    #[arg(long)]
    pub sink: u16,
    /// The log of calls and answers
    #[arg(long)]
    pub log: PathBuf,
    /// The key that seals the journal, one for all workers on a ledger
    #[arg(long)]
    pub signing_key: PathBuf,
    /// The salt that keys are derived from
    #[arg(long, default_value = "0")]
    pub salt: u64,
    /// The first key
    #[arg(long, default_value_t = 0)]
    pub first: u64,
    /// The key to stop before
    #[arg(long)]
    pub last: u64,
    /// How many callers there are
    #[arg(long, default_value_t = 8)]
    pub callers: u64,
    /// The lease, in milliseconds
    #[arg(long, default_value_t = 1000)]
    pub lease_ms: u64,
    /// How long callers wait for each other, in milliseconds
    #[arg(long, default_value_t = 100)]
    pub wait_ms: u64,
    /// How long the work takes at most, in milliseconds
    #[arg(long, default_value_t = 3)]
    pub work_ms: u64,
    /// A bug to plant
    #[arg(long)]
    pub plant: Option<String>,
    /// Stay until killed, after every key was tried
    #[arg(long)]
    pub stay: bool,
    /// A failpoint, its action, and the pass to act at: `claim.ask:abort:1`
    #[arg(long)]
    pub failpoint: Option<String>,
}

/// The kinds of effects. Keys take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Settled in the caller's transaction.
    SettledIn,
    /// Claimed, done and settled in the caller's transaction.
    OnceIn,
    /// A target that does nothing twice.
    Keyed,
    /// A target that compares fences.
    Fenced,
    /// A target that does everything, and offers no way to look.
    Opaque,
}

impl Kind {
    /// The kind of a key.
    pub fn of(key: u64) -> Self {
        [Self::SettledIn, Self::OnceIn, Self::Keyed, Self::Fenced, Self::Opaque][key as usize % 5]
    }

    /// Whether it happens in the ledger's own database.
    pub fn is_transactional(self) -> bool {
        matches!(self, Self::SettledIn | Self::OnceIn)
    }

    fn rule(self) -> Rule {
        match self {
            Self::Keyed => Rule::Keyed,
            Self::Fenced => Rule::Fenced,
            _ => Rule::Plain,
        }
    }

    fn safety(self) -> Safety {
        match self {
            Self::SettledIn | Self::OnceIn => Safety::Transactional,
            Self::Keyed | Self::Fenced => Safety::Reconcilable(Settling::TargetRefusesLate),
            Self::Opaque => Safety::Opaque,
        }
    }
}

/// The key of a number.
pub fn key(salt: u64, n: u64) -> Key {
    let fields: [(&str, &[u8]); 2] = [("salt", &salt.to_be_bytes()), ("n", &n.to_be_bytes())];
    Key::derive("proof.v1", &fields).expect("a versioned name")
}

/// The outcome of a call's work is its number, which names the author.
pub fn outcome(by: u64) -> Outcome {
    Outcome::new(by.to_be_bytes().to_vec())
}

/// The author that an outcome names.
pub fn author(outcome: &Outcome) -> Option<u64> {
    Some(u64::from_be_bytes(outcome.body()?.try_into().ok()?))
}

/// The table that stands for a caller's own data.
pub const TABLE: &str = "CREATE TABLE IF NOT EXISTS applied (salt BIGINT, key BIGINT, by BIGINT)";

/// How long a caller waits after the error that the ledger has stopped.
const GONE: Duration = Duration::from_millis(20);

/// The write of a caller in its own transaction, in SQL for either database.
const APPLY: &str = "INSERT INTO applied VALUES ($1, $2, $3)";

/// The worker's log: one line, one write.
#[derive(Clone)]
struct Log(Arc<Mutex<File>>);

impl Log {
    fn write(&self, line: &str) {
        let line = format!("{} {line}\n", boot_ns());
        if let Ok(mut file) = self.0.lock() {
            let _ = file.write_all(line.as_bytes());
        }
    }
}

pub(crate) fn boot_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Works until every key was tried once.
pub fn work(orders: Orders) -> Result<(), String> {
    let log = OpenOptions::new().create(true).append(true).open(&orders.log);
    let log = Log(Arc::new(Mutex::new(log.map_err(|error| error.to_string())?)));
    plant_named(orders.plant.as_deref())?;
    if let Some(failpoint) = &orders.failpoint {
        arm(failpoint, &log, orders.lease_ms)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(walk(orders, log)).map_err(|error| error.to_string())
}

/// Plants the bug of this name, if there is one.
pub(crate) fn plant_named(name: Option<&str>) -> Result<(), String> {
    let Some(name) = name else { return Ok(()) };
    let bug = Bug::ALL.iter().find(|bug| bug.name() == name);
    plant(*bug.ok_or_else(|| format!("no bug is called {name}"))?);
    Ok(())
}

/// Arms one failpoint: its action happens at its nth pass.
fn arm(failpoint: &str, log: &Log, lease_ms: u64) -> Result<(), String> {
    let parts: Vec<&str> = failpoint.split(':').collect();
    let [name, action, nth] = parts[..] else { return Err(format!("not armed: {failpoint}")) };
    let point = *Point::ALL.iter().find(|point| point.name() == name).ok_or("no such failpoint")?;
    let nth: u64 = nth.parse().map_err(|_| "not a number")?;
    let (action, log, passes) = (action.to_owned(), log.clone(), AtomicU64::new(0));
    failpoint::hook(move |passed| {
        if passed != point || passes.fetch_add(1, Ordering::SeqCst) + 1 != nth {
            return Ok(());
        }
        log.write(&format!("fired {}", point.name()));
        match action.as_str() {
            "abort" => std::process::abort(),
            "panic" => panic!("failpoint {}", point.name()),
            "stall" => {
                std::thread::sleep(Duration::from_millis(lease_ms * 2));
                Ok(())
            }
            _ => {
                let why = format!("failpoint {}", point.name());
                // After a commit, the store cannot say that nothing was written.
                Err(match point {
                    Point::SqliteCommitted | Point::SettleAnswered | Point::RenewAnswered => {
                        StoreError::CommitUnknown(why)
                    }
                    _ => StoreError::Unavailable(why),
                })
            }
        }
    });
    Ok(())
}

struct Worker {
    orders: Orders,
    log: Log,
    hapax: Hapax,
    place: CallerDatabase,
    next: AtomicU64,
    calls: AtomicU64,
    sinks: Mutex<Vec<Client>>,
}

/// The caller's own connection to the ledger's database.
enum CallerDatabase {
    File(Mutex<Connection>),
    Database(tokio::sync::Mutex<Option<PgClient>>),
}

async fn walk(orders: Orders, log: Log) -> Result<(), hapax::Error> {
    let opened = Hapax::builder().lease(Duration::from_millis(orders.lease_ms));
    let hapax = opened.signing_key(&orders.signing_key).open(&orders.ledger).await?;
    let place = if orders.ledger.contains("://") {
        CallerDatabase::Database(tokio::sync::Mutex::new(None))
    } else {
        let connection = hapax.connection()?;
        connection
            .execute_batch(TABLE)
            .map_err(|error| StoreError::Unavailable(error.to_string()))?;
        CallerDatabase::File(Mutex::new(connection))
    };
    let worker = Arc::new(Worker {
        next: AtomicU64::new(orders.first),
        // Numbers that no other worker gives, whatever its seed.
        calls: AtomicU64::new(
            u64::from(std::process::id()) << 32 | (boot_ns() / 1_000_000) & 0xffff_ffff,
        ),
        orders,
        log,
        hapax,
        place,
        sinks: Mutex::default(),
    });
    let callers: Vec<_> =
        (0..worker.orders.callers).map(|_| tokio::spawn(worker.clone().call_all())).collect();
    for caller in callers {
        let _ = caller.await;
    }
    // One round of the background work.
    let _ = worker.hapax.pass().await;
    let _ = worker.hapax.close().await;
    worker.log.write("over");
    if worker.orders.stay {
        std::future::pending::<()>().await;
    }
    Ok(())
}

impl Worker {
    async fn call_all(self: Arc<Self>) {
        loop {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            if n >= self.orders.last {
                return;
            }
            self.call(n).await;
        }
    }

    async fn call(self: &Arc<Self>, n: u64) {
        let id = self.calls.fetch_add(1, Ordering::Relaxed);
        self.log.write(&format!("began {id} {n}"));
        let kind = Kind::of(n);
        let result = match kind {
            Kind::OnceIn => self.once_in(n, id).await,
            _ => {
                let worker = self.clone();
                self.effect(n, kind).run(|claim| worker.perform(n, kind, id, claim)).await
            }
        };
        match result {
            Ok(Done { outcome, .. }) => {
                let by = author(&outcome).unwrap_or(u64::MAX);
                self.log.write(&format!("answered {id} {by}"));
            }
            Err(error) => {
                self.log.write(&format!("failed {id} {}", error.code()));
                // The ledger is gone: a caller that retries at once says nothing about earlier
                // calls.
                let (Error::Store(error) | Error::Unrecorded { error, .. }) = error else { return };
                if let StoreError::Stopped(_) | StoreError::Corrupt(_) = error {
                    tokio::time::sleep(GONE).await;
                }
            }
        }
    }

    fn effect(self: &Arc<Self>, n: u64, kind: Kind) -> EffectBuilder {
        let worker = self.clone();
        let effect = self
            .hapax
            .effect(key(self.orders.salt, n))
            .payload(&n.to_be_bytes())
            .safety(kind.safety())
            .wait(Duration::from_millis(self.orders.wait_ms));
        effect.reconcile(move |lookup| {
            let worker = worker.clone();
            async move {
                let key = worker.sink_key(n);
                match worker.ask(|sink| sink.look(&key, lookup.fence.0 + 1, kind.rule())) {
                    Ok(Answer::Found(by)) => Finding::Happened(outcome(by)),
                    Ok(_) => Finding::NotFound,
                    Err(error) => Finding::CannotTell(error.to_string()),
                }
            }
        })
    }

    fn sink_key(&self, n: u64) -> String {
        format!("{}/{n}", self.orders.salt)
    }

    /// Asks the judge, on a connection of its own.
    fn ask(
        &self,
        ask: impl FnOnce(&mut Client) -> std::io::Result<Answer>,
    ) -> std::io::Result<Answer> {
        let free = self.sinks.lock().ok().and_then(|mut sinks| sinks.pop());
        let mut sink = match free {
            Some(sink) => sink,
            None => Client::connect(self.orders.sink)?,
        };
        let answer = ask(&mut sink)?;
        if let Ok(mut sinks) = self.sinks.lock() {
            sinks.push(sink);
        }
        Ok(answer)
    }

    async fn perform(
        self: Arc<Self>,
        n: u64,
        kind: Kind,
        id: u64,
        claim: Claim,
    ) -> Result<Outcome, Failure> {
        self.log.write(&format!("offered {id}"));
        let pause = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let pause = pause % (self.orders.work_ms * 1000 + 1);
        tokio::time::sleep(Duration::from_micros(pause / 2)).await;
        if kind == Kind::SettledIn {
            self.settle_in(n, id, &claim).await?;
            return Ok(outcome(id));
        }
        let (key, fence) = (self.sink_key(n), claim.fence().0);
        let answer = self.ask(|sink| sink.execute(&key, id, fence, kind.rule()))?;
        tokio::time::sleep(Duration::from_micros(pause / 2)).await;
        match answer {
            Answer::Found(by) => Ok(outcome(by)),
            Answer::None | Answer::Refused => Err(Failure::not_done("the target refused it")),
        }
    }

    async fn settle_in(&self, n: u64, id: u64, claim: &Claim) -> Result<(), Failure> {
        match &self.place {
            CallerDatabase::File(connection) => {
                let mut connection =
                    connection.lock().map_err(|_| Failure::not_done("poisoned"))?;
                let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                tx.execute(APPLY, [self.orders.salt as i64, n as i64, id as i64])?;
                claim.settle_in(&tx, outcome(id))?;
                tx.commit()?;
            }
            CallerDatabase::Database(client) => {
                let mut client = client.lock().await;
                let mut own = self.connected(client.take()).await?;
                let tx = own.transaction().await?;
                let salt = self.orders.salt as i64;
                tx.execute(APPLY, &[&salt, &(n as i64), &(id as i64)]).await?;
                claim.settle_in_postgres(&tx, outcome(id)).await?;
                tx.commit().await?;
                *client = Some(own);
            }
        }
        Ok(())
    }

    async fn connected(&self, client: Option<PgClient>) -> Result<PgClient, Failure> {
        if let Some(client) = client.filter(|client| !client.is_closed()) {
            return Ok(client);
        }
        let (client, connection) =
            hapax::tokio_postgres::connect(&self.orders.ledger, NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    async fn once_in(self: &Arc<Self>, n: u64, id: u64) -> Result<Done, hapax::Error> {
        let effect = self.effect(n, Kind::OnceIn);
        let unavailable = |error: &dyn std::fmt::Display| {
            hapax::Error::from(StoreError::Unavailable(error.to_string()))
        };
        self.log.write(&format!("offered {id}"));
        match &self.place {
            CallerDatabase::File(connection) => {
                let mut connection = connection.lock().map_err(|error| unavailable(&error))?;
                let tx = connection
                    .transaction_with_behavior(TransactionBehavior::Immediate)
                    .map_err(|error| unavailable(&error))?;
                let done = effect.once_in(&tx, |tx, _| {
                    tx.execute(APPLY, [self.orders.salt as i64, n as i64, id as i64])?;
                    Ok(outcome(id))
                })?;
                tx.commit().map_err(|error| unavailable(&error))?;
                Ok(done)
            }
            CallerDatabase::Database(client) => {
                let mut client = client.lock().await;
                let own = self.connected(client.take()).await;
                let mut own = own.map_err(|failure| unavailable(&format!("{failure:?}")))?;
                let tx = own.transaction().await.map_err(|error| unavailable(&error))?;
                let done = effect
                    .once_in_postgres(&tx, async |tx, _| {
                        let salt = self.orders.salt as i64;
                        tx.execute(APPLY, &[&salt, &(n as i64), &(id as i64)]).await?;
                        Ok(outcome(id))
                    })
                    .await?;
                tx.commit().await.map_err(|error| unavailable(&error))?;
                *client = Some(own);
                Ok(done)
            }
        }
    }
}
