//! The store: a queue, a few lanes that empty it, and readers beside them.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use hapax_store::{Clock, Job, Reading, Store, StoreError};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio_postgres::types::Type;

use crate::clock::ServerClock;
use crate::connect::{Address, Link};
use crate::doctor;
use crate::effect::{EffectRow, EffectRowKey};
use crate::error::PgFailure;
use crate::lane::{Lane, LaneKind};
use crate::migrate;
use crate::namespace::Namespaces;
use crate::queue::{Queue, QueuedJob, Subject};

/// How the store uses the database.
#[derive(Clone)]
pub struct Options {
    /// How many batches are in flight at once, each on a connection of its own.
    pub lanes: usize,
    /// How many connections serve reads.
    pub readers: usize,
    /// How many bits of a lock's key its advisory lock has. With fewer bits, more claims are put off.
    pub advisory_lock_bits: u32,
    /// A clock for tests, instead of the server's.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Default for Options {
    fn default() -> Self {
        Self { lanes: 2, readers: 2, advisory_lock_bits: 64, clock: None }
    }
}

/// State that the lanes and readers share.
pub(crate) struct Shared {
    pub(crate) address: Address,
    pub(crate) clock: ServerClock,
    pub(crate) namespaces: Namespaces,
    pub(crate) advisory_lock_bits: u32,
    pub(crate) queue: Queue,
    /// Commands that had to wait for another open transaction.
    pub(crate) slow: Queue,
    /// Whether most of the recent claims found a row.
    pub(crate) most_claims_found: AtomicBool,
    running: Mutex<HashMap<EffectRowKey, EffectRow>>,
}

/// How many running effects are cached.
const RUNNING_CAPACITY: usize = 1 << 17;

impl Shared {
    pub(crate) fn connect(&self) -> Result<Link, PgFailure> {
        Link::connect(&self.address)
    }

    /// Refuses all further commands, because the store's own code panicked.
    pub(crate) fn stop(&self, error: &StoreError) {
        tracing::error!(name: "ledger_stopped", %error, "the ledger answers nothing until it is reopened");
        self.queue.stop(error);
        self.slow.stop(error);
    }

    /// The bits of a lock's key that its advisory lock has.
    pub(crate) fn advisory_lock_mask(&self) -> u64 {
        u64::MAX.checked_shr(64 - self.advisory_lock_bits.clamp(1, 64)).unwrap_or(0)
    }

    /// Running effects that this process was granted, as it last saw them. They may be out of date: a
    /// write that relies on one names its version.
    pub(crate) fn running(&self) -> MutexGuard<'_, HashMap<EffectRowKey, EffectRow>> {
        self.running.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn cache_running(&self, row_key: EffectRowKey, row: EffectRow) {
        let mut running = self.running();
        // Effects that were settled elsewhere, in a caller's transaction or by an operator, are never
        // removed: the cache is cleared when it is full.
        if running.len() >= RUNNING_CAPACITY {
            running.clear();
        }
        running.insert(row_key, row);
    }
}

/// A ledger in a PostgreSQL database.
pub struct PgStore {
    pub(crate) shared: Arc<Shared>,
    ledger: String,
    /// The durability settings that were off when it was opened.
    off_at_open: Vec<String>,
    readings: Option<Sender<Reading>>,
    /// The lane that a lone caller uses on its own thread.
    caller_lane: Mutex<Lane>,
    lanes: Vec<JoinHandle<()>>,
    other_threads: Vec<JoinHandle<()>>,
}

impl PgStore {
    /// Opens the ledger of this database, which gets a schema if it has none. Blocks: call it on a
    /// thread that may block.
    pub fn open(url: &str, options: Options) -> Result<Self, StoreError> {
        let address = Address::parse(url)?;
        let (ledger, off_at_open) = with_retries(|| {
            let link = Link::connect(&address)?;
            migrate::check(&link)?;
            let ledger = link.one("SELECT ledger::text FROM hapax.self", &[])?.try_get(0)?;
            Ok((ledger, doctor::turned_off(&link)?))
        })?;
        if !off_at_open.is_empty() {
            let off = off_at_open.join(", ");
            tracing::error!(name: "server_not_durable", off, "a crash of the server can lose what was acknowledged");
        }
        let shared = Arc::new(Shared {
            address,
            clock: ServerClock::new(options.clock),
            namespaces: Namespaces::default(),
            advisory_lock_bits: options.advisory_lock_bits,
            queue: Queue::default(),
            slow: Queue::default(),
            most_claims_found: AtomicBool::new(false),
            running: Mutex::default(),
        });
        let caller_lane = Mutex::new(Lane::new(shared.clone(), LaneKind::Ordinary));
        let (readings, received) = std::sync::mpsc::channel();
        let received = Arc::new(Mutex::new(received));
        let mut store = Self {
            shared,
            ledger,
            off_at_open,
            readings: Some(readings),
            caller_lane,
            lanes: Vec::new(),
            other_threads: Vec::new(),
        };
        for _ in 0..options.lanes.max(1) {
            let lane = Lane::new(store.shared.clone(), LaneKind::Ordinary);
            store.lanes.push(spawn("lane", move || lane.run())?);
        }
        let lane = Lane::new(store.shared.clone(), LaneKind::Slow);
        store.other_threads.push(spawn("slow lane", move || lane.run())?);
        for _ in 0..options.readers.max(1) {
            let (shared, received) = (store.shared.clone(), received.clone());
            let reader = move || crate::reader::run(&shared, &received);
            store.other_threads.push(spawn("reader", reader)?);
        }
        Ok(store)
    }

    pub(crate) fn connect(&self) -> Result<Link, PgFailure> {
        self.shared.connect()
    }

    /// The durability settings that were turned off since the ledger was opened, as a reload of the
    /// server's configuration can. Blocks.
    pub fn turned_off(&self) -> Result<Vec<String>, StoreError> {
        let mut off = with_retries(|| doctor::turned_off(&self.connect()?))?;
        off.retain(|setting| !self.off_at_open.contains(setting));
        Ok(off)
    }

    /// The random id of this ledger, which is the same on every node.
    pub fn ledger(&self) -> &str {
        &self.ledger
    }

    /// The public key that this ledger's journal is sealed with: the first that was offered.
    /// Blocks.
    pub fn public_key(&self, offer: Option<&str>) -> Result<Option<String>, StoreError> {
        with_retries(|| {
            let link = self.shared.connect()?;
            let known = link.one("SELECT public_key FROM hapax.self", &[])?.try_get(0)?;
            let (None, Some(offer)) = (&known, offer) else { return Ok(known) };
            let row = link.one(
                "UPDATE hapax.self SET public_key = coalesce(public_key, $1) RETURNING public_key",
                &[(&offer, Type::TEXT)],
            )?;
            Ok(row.try_get(0)?)
        })
    }

    /// Brings the schema of this database to the newest version. Returns how many versions it went up.
    /// Blocks.
    pub fn migrate(url: &str) -> Result<usize, StoreError> {
        let link = Link::connect(&Address::parse(url)?).map_err(PgFailure::into_store_error)?;
        migrate::migrate(&link).map_err(PgFailure::into_store_error)
    }
}

/// Does `work`, up to three times if it loses the connection.
pub(crate) fn with_retries<T>(
    mut work: impl FnMut() -> Result<T, PgFailure>,
) -> Result<T, StoreError> {
    for _ in 0..2 {
        match work() {
            Err(PgFailure::Lost(_)) => std::thread::sleep(std::time::Duration::from_millis(20)),
            other => return other.map_err(PgFailure::into_store_error),
        }
    }
    work().map_err(PgFailure::into_store_error)
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StoreError> {
    let thread = std::thread::Builder::new().name(format!("hapax {name}")).spawn(work);
    thread.map_err(|error| StoreError::Unavailable(format!("no thread: {error}")))
}

impl Store for PgStore {
    fn submit(&self, jobs: Vec<Job>) {
        self.shared.queue.push(jobs.into_iter().map(QueuedJob::new));
    }

    fn submit_here(&self, job: Job) -> Option<Job> {
        let many = Handle::try_current()
            .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
        let (true, Ok(mut lane)) = (many, self.caller_lane.try_lock()) else { return Some(job) };
        if !self.shared.queue.enter(&Subject::of(&job)) {
            return Some(job);
        }
        tokio::task::block_in_place(|| lane.carry_out(vec![QueuedJob::new(job)]));
        None
    }

    fn read(&self, reading: Reading) {
        if let Some(readings) = &self.readings
            && let Err(unsent) = readings.send(reading)
        {
            (unsent.0)(Err(StoreError::Unavailable("the store was closed".into())));
        }
    }
}

impl Drop for PgStore {
    fn drop(&mut self) {
        self.readings = None;
        // A connection has a runtime, which must not end inside another one.
        let link =
            self.caller_lane.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()).take_link();
        let _ = std::thread::spawn(move || drop(link)).join();
        self.shared.queue.close();
        for lane in self.lanes.drain(..) {
            let _ = lane.join();
        }
        // The slow queue closes last: until the lanes end, they send it commands that have to wait.
        self.shared.slow.close();
        for thread in self.other_threads.drain(..) {
            let _ = thread.join();
        }
    }
}
