//! The one writer: takes the waiting commands, commits them together, and answers each caller.
//!
//! Commands share a transaction but not a fate. If one fails after it wrote, the writer undoes the
//! transaction and tries all unanswered commands again, each in a savepoint. If the transaction as a
//! whole fails, it tries each command alone. An answer leaves when everything it rests on has reached
//! the disk. A disk that fails to sync ends the writer's work for good, and so does a panic: the writer
//! rolls the transaction back, so that other processes can write, and this process writes nothing more.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hapax_core::planted::{Bug, planted};
use hapax_store::failpoint::{Point, pass};
use hapax_store::{Job, StoreError, ledger};
use rusqlite::Connection;

use crate::connection_cache::ConnectionCache;
use crate::error::OrStoreError;
use crate::lease;
use crate::store::Shared;
use crate::txn::SqliteTxn;
use crate::write_ahead_log::WriteAheadLog;
use crate::write_turn::WriteTurnLock;

/// A transaction accepts no more commands once it has this many.
const BATCH: usize = 1024;
/// How long a transaction accepts late commands: other processes wait for it to end.
const ACCEPT_FOR: Duration = Duration::from_millis(5);

pub(crate) struct Writer {
    db: Connection,
    shared: Arc<Shared>,
    cache: ConnectionCache,
    log: WriteAheadLog,
    turn: WriteTurnLock,
    /// Whether the writer has begun the next transaction already.
    begun: bool,
}

/// Works until every sender is gone. The thread holds the writer from the first command of a busy
/// spell to its end, so that commands of the spell are committed together.
pub(crate) fn run(writer: &Mutex<Writer>, queue: &Receiver<Vec<Job>>) {
    while let Ok(first) = queue.recv() {
        let mut writer = writer.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut arrivals = Arrivals { queue: Some(queue), awaited: 0 };
        let mut jobs = first;
        while !jobs.is_empty() {
            arrivals.awaited = writer.serve(jobs, &arrivals);
            jobs = arrivals.next(0, arrivals.awaited);
        }
    }
}

/// How long the writer waits for the callers that it has just answered. Sleeping and waking, or a second
/// commit, would cost more.
const MAX_CALLER_WAIT: Duration = Duration::from_micros(150);

/// The commands that come while a transaction is open, and join it.
pub(crate) struct Arrivals<'a> {
    queue: Option<&'a Receiver<Vec<Job>>>,
    /// How many callers had to wait for the last commit, and may be back soon.
    awaited: usize,
}

impl Arrivals<'_> {
    pub(crate) const NONE: Self = Self { queue: None, awaited: 0 };

    /// The next commands; none if the `joined` ones fill the batch, or if none come. If `expected`
    /// callers were just answered, the writer waits for them, because they may be back soon. It
    /// does not wait for a lone caller, which is served on its own thread as soon as this one
    /// releases the writer.
    fn next(&self, joined: usize, expected: usize) -> Vec<Job> {
        let Some(queue) = self.queue.filter(|_| joined < BATCH) else { return Vec::new() };
        let since = Instant::now();
        loop {
            match queue.try_recv() {
                Ok(first) => {
                    let more = queue.try_iter().take(BATCH - joined);
                    return std::iter::once(first).chain(more).flatten().collect();
                }
                Err(_) if expected < 2 || since.elapsed() >= MAX_CALLER_WAIT => return Vec::new(),
                Err(_) => std::thread::yield_now(),
            }
        }
    }
}

impl Writer {
    pub(crate) fn new(mut db: Connection, shared: Arc<Shared>) -> Result<Self, StoreError> {
        let log = WriteAheadLog::of(&mut db, shared.clone())?;
        let turn = WriteTurnLock::beside(&shared.path);
        Ok(Self { db, shared, cache: ConnectionCache::with_room(), log, turn, begun: false })
    }

    /// Begins a transaction at once, unless another process is writing. The next [`Writer::serve`]
    /// goes on with it.
    pub(crate) fn begin_at_once(&mut self) -> bool {
        self.begun = self.shared.stopped().is_none() && self.turn.begin_at_once(&self.db);
        self.begun
    }

    /// Carries out one batch and answers it: these commands, and those that come before it is
    /// committed. Returns how many callers had to wait for the commit.
    pub(crate) fn serve(&mut self, mut batch: Vec<Job>, arrivals: &Arrivals<'_>) -> usize {
        if let Some(error) = self.shared.stopped() {
            return refuse_all(&mut batch, &error);
        }
        // A savepoint copies every page that it guards, so the first try goes without.
        let result = match self.commit(&mut batch, UndoUnit::Transaction, arrivals) {
            Err(UndoReason::CommandFailed) => {
                self.commit(&mut batch, UndoUnit::Command, &Arrivals::NONE)
            }
            result => result,
        };
        let awaited = match result {
            Ok(()) => batch.iter_mut().map(Job::reply).filter(|sent| *sent).count(),
            Err(UndoReason::TransactionFailed(error)) if batch.len() == 1 || is_final(&error) => {
                if let StoreError::Stopped(_) = error {
                    self.shared.stop(error.clone());
                }
                refuse_all(&mut batch, &error)
            }
            Err(_) => {
                let left = batch.into_iter().filter(Job::waits);
                left.map(|alone| self.serve(vec![alone], &Arrivals::NONE)).sum()
            }
        };
        if let Err(error @ StoreError::Stopped(_)) = self.log.checkpoint_if_full(&self.db) {
            self.shared.stop(error);
        }
        awaited
    }

    /// Carries out one transaction. An error undoes it, except after a panic or a failed sync: then the file
    /// may have it.
    fn commit(
        &mut self,
        batch: &mut Vec<Job>,
        undo: UndoUnit,
        arrivals: &Arrivals<'_>,
    ) -> Result<(), UndoReason> {
        if !std::mem::take(&mut self.begun) {
            self.turn.begin(&self.db).or_store_error()?;
        }
        let result = match catch_unwind(AssertUnwindSafe(|| self.transact(batch, undo, arrivals))) {
            Ok(result) => result,
            Err(panic) if planted(Bug::PanicEscapes) => std::panic::resume_unwind(panic),
            Err(panic) => Err(UndoReason::TransactionFailed(StoreError::panicked(&*panic))),
        };
        if result.is_err() {
            self.cache.drop_uncommitted();
            if !self.db.is_autocommit() {
                let _ = execute(&self.db, "ROLLBACK");
            }
        }
        result
    }

    /// The work after BEGIN, and COMMIT. Commands join the batch meanwhile: callers that were
    /// just answered come back while the first of them are served.
    fn transact(
        &mut self,
        batch: &mut Vec<Job>,
        undo: UndoUnit,
        arrivals: &Arrivals<'_>,
    ) -> Result<(), UndoReason> {
        pass(Point::SqliteBegin)?;
        let db = &self.db;
        self.cache.refresh(db)?;
        if self.cache.file_was_replaced() {
            // This copy knows nothing of the grants that processes hold now.
            tracing::error!(name: "ledger_replaced",
                "the file was replaced by an older copy; all leases in it are ended");
            lease::end_all(db)?;
        }
        let mut txn = SqliteTxn::new(db, &self.shared.context, &mut self.cache);
        let (start, since) = (db.total_changes(), Instant::now());
        let mut done = 0;
        while done < batch.len() {
            txn.read_clock()?;
            for job in batch[done..].iter_mut().filter(|job| job.waits()) {
                if undo == UndoUnit::Command {
                    execute(db, "SAVEPOINT command")?;
                }
                let changes = db.total_changes();
                txn.begin_command();
                let error = ledger::apply(&mut txn, job).err().cloned();
                end_command(&mut txn, db, (error, changes), undo)?;
            }
            let expected = if db.total_changes() == start {
                // These answers rest only on what was committed before, so they need not wait.
                batch[done..].iter_mut().map(Job::reply).filter(|sent| *sent).count()
            } else {
                arrivals.awaited.saturating_sub(batch.len())
            };
            done = batch.len();
            if since.elapsed() < ACCEPT_FOR {
                batch.extend(arrivals.next(done, expected));
            }
        }
        drop(txn);
        self.cache.move_keys(db)?;
        self.log.make_room();
        if planted(Bug::AnswerBeforeCommit) {
            batch.iter_mut().for_each(|job| _ = job.reply());
        }
        pass(Point::SqliteCommit)?;
        execute(db, "COMMIT")?;
        self.cache.committed();
        if let Err(error) = pass(Point::SqliteCommitted) {
            refuse_all(batch, &error);
        }
        Ok(())
    }
}

/// Decides whether the transaction can go on after a command. An error of the command itself is its
/// answer.
fn end_command(
    txn: &mut SqliteTxn<'_>,
    db: &Connection,
    (error, changes): (Option<StoreError>, u64),
    undo: UndoUnit,
) -> Result<(), UndoReason> {
    if let Some(error) = error {
        txn.drop_command();
        if db.is_autocommit() {
            // The error took the whole transaction with it.
            return Err(UndoReason::TransactionFailed(error));
        }
        match undo {
            UndoUnit::Command => execute(db, "ROLLBACK TO command")?,
            UndoUnit::Transaction if db.total_changes() == changes || planted(Bug::HalfCommand) => {
            }
            UndoUnit::Transaction => return Err(UndoReason::CommandFailed),
        }
    }
    if undo == UndoUnit::Command {
        execute(db, "RELEASE command")?;
    }
    Ok(())
}

/// Refuses a batch. Returns its size.
fn refuse_all(batch: &mut [Job], error: &StoreError) -> usize {
    for job in batch.iter_mut() {
        job.fail(error.clone());
        job.reply();
    }
    batch.len()
}

/// The unit that the writer undoes when a command fails after it wrote.
#[derive(Clone, Copy, PartialEq)]
enum UndoUnit {
    /// The whole transaction.
    Transaction,
    /// The command alone, which has a savepoint.
    Command,
}

/// Why a transaction was undone.
enum UndoReason {
    /// A command failed after it wrote.
    CommandFailed,
    /// The transaction as a whole failed.
    TransactionFailed(StoreError),
}

impl From<StoreError> for UndoReason {
    fn from(error: StoreError) -> Self {
        Self::TransactionFailed(error)
    }
}

/// Whether trying the commands one by one would change nothing.
fn is_final(error: &StoreError) -> bool {
    matches!(error, StoreError::Stopped(_) | StoreError::Corrupt(_))
}

fn execute(db: &Connection, sql: &str) -> Result<(), StoreError> {
    db.prepare_cached(sql).and_then(|mut statement| statement.execute([])).or_store_error()?;
    Ok(())
}
