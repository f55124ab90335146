//! The one writer: takes what is waiting, commits it together, and tells each its answer.
//!
//! Commands share a transaction but not a fate: each runs in a savepoint of its own, and when
//! the transaction as a whole cannot stand, each is tried alone. Answers leave only after the
//! commit has reached the disk. A disk that fails to sync ends the writer's work for good.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};

use hapax_store::{Answer, Job, StoreError, ledger};
use rusqlite::Connection;

use crate::connection;
use crate::error::OrStoreError;
use crate::store::Shared;
use crate::txn::{Memory, SqliteTxn};

/// How many commands share a commit at most.
const BATCH: usize = 1024;

/// How many pages of write-ahead log there are before they are moved into the file.
const LOG_PAGES: i32 = 8192;

type Answers = Vec<Result<Answer, StoreError>>;

pub(crate) struct Writer {
    db: Connection,
    shared: Arc<Shared>,
    memory: Memory,
    log: Arc<Log>,
    checkpointer: SyncSender<()>,
}

/// What the writer and the checkpointer know of the write-ahead log.
#[derive(Default)]
struct Log {
    pages: AtomicI32,
    /// The checkpointer has moved what it could; the rest is the writer's.
    nearly_done: AtomicBool,
}

impl Writer {
    pub(crate) fn new(mut db: Connection, shared: Arc<Shared>) -> Result<Self, StoreError> {
        let log = Arc::new(Log::default());
        let pages = log.clone();
        db.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, count| {
            pages.pages.store(count, Ordering::Relaxed);
            Ok(())
        }))
        .or_store_error()?;
        let checkpointer = spawn_checkpointer(shared.clone(), log.clone())?;
        Ok(Self { db, shared, memory: Memory::default(), log, checkpointer })
    }

    /// Works until every sender is gone.
    pub(crate) fn run(mut self, queue: &Receiver<Vec<Job>>) {
        while let Ok(mut jobs) = queue.recv() {
            while jobs.len() < BATCH
                && let Ok(more) = queue.try_recv()
            {
                jobs.extend(more);
            }
            let answers = match self.shared.stopped() {
                Some(error) => vec![Err(error); jobs.len()],
                None => self.together(&jobs),
            };
            for (job, answer) in jobs.into_iter().zip(answers) {
                if let Err(error @ StoreError::Stopped(_)) = &answer {
                    self.shared.stop(error.clone());
                }
                let _ = job.reply.send(answer);
            }
            self.mind_the_log();
        }
    }

    fn together(&mut self, jobs: &[Job]) -> Answers {
        match self.commit(jobs) {
            Ok(answers) => answers,
            Err(error @ (StoreError::Stopped(_) | StoreError::Corrupt(_))) => {
                vec![Err(error); jobs.len()]
            }
            Err(error) if jobs.len() == 1 => vec![Err(error)],
            Err(_) => jobs.iter().flat_map(|job| self.alone(job)).collect(),
        }
    }

    fn alone(&mut self, job: &Job) -> Answers {
        match self.shared.stopped() {
            Some(error) => vec![Err(error)],
            None => self.together(std::slice::from_ref(job)),
        }
    }

    /// One transaction. An error means that nothing of it is there.
    fn commit(&mut self, jobs: &[Job]) -> Result<Answers, StoreError> {
        execute(&self.db, "BEGIN IMMEDIATE")?;
        let result = self.carry_out(jobs).and_then(|answers| {
            execute(&self.db, "COMMIT")?;
            Ok(answers)
        });
        if result.is_err() && !self.db.is_autocommit() {
            let _ = execute(&self.db, "ROLLBACK");
        }
        result
    }

    fn carry_out(&mut self, jobs: &[Job]) -> Result<Answers, StoreError> {
        let db = &self.db;
        let mut txn = SqliteTxn::new(db, &self.shared.around, &mut self.memory);
        let mut answers = Vec::with_capacity(jobs.len());
        for job in jobs {
            execute(db, "SAVEPOINT command")?;
            let answer = txn.begin_command().and_then(|()| ledger::apply(&mut txn, &job.command));
            if let Err(error) = &answer {
                txn.forget();
                if db.is_autocommit() {
                    // The error took the whole transaction with it.
                    return Err(error.clone());
                }
                execute(db, "ROLLBACK TO command")?;
            }
            execute(db, "RELEASE command")?;
            answers.push(answer);
        }
        Ok(answers)
    }

    /// Has the log moved into the file when it is long: most of it beside the writer, the
    /// last of it here, because only then can the log begin anew.
    fn mind_the_log(&mut self) {
        if self.log.pages.load(Ordering::Relaxed) < LOG_PAGES {
            return;
        }
        if self.log.nearly_done.swap(false, Ordering::Acquire) {
            if let Err(error @ StoreError::Stopped(_)) = checkpoint(&self.db) {
                self.shared.stop(error);
            }
        } else if let Err(TrySendError::Disconnected(())) = self.checkpointer.try_send(()) {
            tracing::error!("the checkpointer is gone; the write-ahead log grows");
        }
    }
}

fn spawn_checkpointer(shared: Arc<Shared>, log: Arc<Log>) -> Result<SyncSender<()>, StoreError> {
    let (nudge, nudges) = std::sync::mpsc::sync_channel(1);
    let path: PathBuf = shared.path.clone();
    let db = connection::open_reader(&path)?;
    db.pragma_update(None, "query_only", false).or_store_error()?;
    let work = move || {
        while nudges.recv().is_ok() {
            match checkpoint(&db) {
                Ok(()) => log.nearly_done.store(true, Ordering::Release),
                Err(error @ StoreError::Stopped(_)) => shared.stop(error),
                Err(error) => tracing::warn!(%error, "the write-ahead log was not moved"),
            }
        }
    };
    crate::store::spawn("hapax-checkpoint", work)?;
    Ok(nudge)
}

fn checkpoint(db: &Connection) -> Result<(), StoreError> {
    db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).or_store_error()
}

fn execute(db: &Connection, sql: &str) -> Result<(), StoreError> {
    db.prepare_cached(sql).and_then(|mut statement| statement.execute([])).or_store_error()?;
    Ok(())
}
