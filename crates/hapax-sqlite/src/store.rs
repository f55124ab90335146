//! The store: a writer thread, reader threads, and what they share.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hapax_core::lease::LeaseId;
use hapax_store::{Clock, Job, Reading, Store, StoreError};

use crate::clock::BootClock;
use crate::connection;
use crate::liveness::LivenessLocks;
use crate::reader;
use crate::txn::StoreContext;
use crate::writer::{self, Arrivals, Writer};

/// How long a lone caller waits until the writer thread has released the writer.
const MAX_RELEASE_WAIT: Duration = Duration::from_micros(20);

/// How many threads read.
const READERS: usize = 2;

/// How to open a ledger.
#[derive(Clone)]
pub struct Options {
    /// The clock that the store reads.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Self {
        Self { clock: Arc::new(BootClock::default()) }
    }
}

/// A ledger in one file. Dropping it ends its threads, after all submitted work is done.
pub struct SqliteStore {
    pub(crate) shared: Arc<Shared>,
    writer: Arc<Mutex<Writer>>,
    jobs: Option<Sender<Vec<Job>>>,
    readings: Option<Sender<Reading>>,
    threads: Vec<JoinHandle<()>>,
}

pub(crate) struct Shared {
    pub(crate) path: PathBuf,
    pub(crate) context: StoreContext,
    stopped: OnceLock<StoreError>,
}

impl Shared {
    /// The error that stopped the store, if one did.
    pub(crate) fn stopped(&self) -> Option<StoreError> {
        self.stopped.get().cloned()
    }

    pub(crate) fn stop(&self, error: StoreError) {
        if self.stopped.set(error.clone()).is_ok() {
            tracing::error!(name: "ledger_stopped", %error, "the ledger answers nothing until it is reopened");
        }
    }
}

impl SqliteStore {
    /// Opens the ledger in this file, which is made if it does not exist.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let db = connection::open_writer(path)?;
        let path = std::fs::canonicalize(path)
            .map_err(|error| StoreError::Unavailable(format!("{}: {error}", path.display())))?;
        let context = StoreContext { clock: options.clock, liveness: LivenessLocks::beside(&path) };
        let shared = Arc::new(Shared { path, context, stopped: OnceLock::new() });
        let (jobs, queued_jobs) = channel();
        let (readings, queued_readings) = channel();
        let writer = Arc::new(Mutex::new(Writer::new(db, shared.clone())?));
        let thread_writer = writer.clone();
        let mut threads =
            vec![spawn("hapax-write", move || writer::run(&thread_writer, &queued_jobs))?];
        let queued_readings = Arc::new(Mutex::new(queued_readings));
        for _ in 0..READERS {
            let reading = connection::open_reader(&shared.path)?;
            let (shared, waiting) = (shared.clone(), queued_readings.clone());
            threads.push(spawn("hapax-read", move || reader::run(&reading, &shared, &waiting))?);
        }
        Ok(Self { shared, writer, jobs: Some(jobs), readings: Some(readings), threads })
    }

    /// The file whose lock shows that the holder of a lease lives.
    pub fn lease_file(&self, lease: LeaseId) -> PathBuf {
        self.shared.context.liveness.path(lease)
    }

    /// The canonical path of the file.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }
}

impl Store for SqliteStore {
    fn submit(&self, jobs: Vec<Job>) {
        // A writer thread that is gone drops the reply channels, so the waiting callers notice.
        if let Some(queue) = &self.jobs {
            let _ = queue.send(jobs);
        }
    }

    fn submit_here(&self, job: Job) -> Option<Job> {
        // The writer thread answers just before it releases the writer, so an answered caller may
        // be back a moment too soon.
        let start = Instant::now();
        loop {
            match self.writer.try_lock() {
                Ok(mut writer) => {
                    if !writer.begin_at_once() {
                        return Some(job);
                    }
                    writer.serve(vec![job], &Arrivals::NONE);
                    return None;
                }
                Err(_) if start.elapsed() < MAX_RELEASE_WAIT => std::thread::yield_now(),
                Err(_) => return Some(job),
            }
        }
    }

    fn read(&self, reading: Reading) {
        if let Some(queue) = &self.readings {
            let _ = queue.send(reading);
        }
    }

    fn attach(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.shared.context.liveness.hold(lease)
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        (self.jobs, self.readings) = (None, None);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

pub(crate) fn spawn(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StoreError> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(work)
        .map_err(|error| StoreError::Unavailable(format!("no thread for {name}: {error}")))
}
