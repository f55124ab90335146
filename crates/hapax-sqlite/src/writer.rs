//! The one writer: takes what is waiting, commits it together, and tells each its answer.
//!
//! Commands share a transaction but not a fate: when one fails, the rest are tried again with
//! a savepoint around each, and when the transaction as a whole cannot stand, each is tried
//! alone. Answers leave only after the
//! commit has reached the disk. A disk that fails to sync ends the writer's work for good.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use hapax_store::{Answer, Job, StoreError, ledger};
use rusqlite::Connection;

use crate::error::OrStoreError;
use crate::log::Log;
use crate::store::Shared;
use crate::txn::{Memory, SqliteTxn};

/// How many commands share a commit at most.
const BATCH: usize = 1024;

type Answers = Vec<Result<Answer, StoreError>>;

pub(crate) struct Writer {
    db: Connection,
    shared: Arc<Shared>,
    memory: Memory,
    log: Log,
}

impl Writer {
    pub(crate) fn new(mut db: Connection, shared: Arc<Shared>) -> Result<Self, StoreError> {
        let log = Log::of(&mut db, shared.clone())?;
        Ok(Self { db, shared, memory: Memory::default(), log })
    }

    /// Works until every sender is gone.
    pub(crate) fn run(mut self, queue: &Receiver<Vec<Job>>) {
        let mut replied = 0;
        while let Some(jobs) = next(queue, replied) {
            let answers = match self.shared.stopped() {
                Some(error) => vec![Err(error); jobs.len()],
                None => self.together(&jobs),
            };
            replied = jobs.len();
            for (job, answer) in jobs.into_iter().zip(answers) {
                if let Err(error @ StoreError::Stopped(_)) = &answer {
                    self.shared.stop(error.clone());
                }
                let _ = job.reply.send(answer);
            }
            if let Err(error @ StoreError::Stopped(_)) = self.log.mind(&self.db) {
                self.shared.stop(error);
            }
        }
    }

    fn together(&mut self, jobs: &[Job]) -> Answers {
        // Savepoints make a copy of every page they guard, so they wait until they are needed.
        let result = match self.commit(jobs, Guard::None) {
            Err(Undone::Command) => self.commit(jobs, Guard::Savepoints),
            result => result,
        };
        match result {
            Ok(answers) => answers,
            Err(Undone::All(error)) if jobs.len() == 1 || is_final(&error) => {
                vec![Err(error); jobs.len()]
            }
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
    fn commit(&mut self, jobs: &[Job], guard: Guard) -> Result<Answers, Undone> {
        execute(&self.db, "BEGIN IMMEDIATE")?;
        let result = self.carry_out(jobs, guard).and_then(|answers| {
            self.log.make_room();
            execute(&self.db, "COMMIT")?;
            Ok(answers)
        });
        if result.is_err() && !self.db.is_autocommit() {
            let _ = execute(&self.db, "ROLLBACK");
        }
        result
    }

    fn carry_out(&mut self, jobs: &[Job], guard: Guard) -> Result<Answers, Undone> {
        let db = &self.db;
        let mut txn = SqliteTxn::new(db, &self.shared.around, &mut self.memory);
        let mut answers = Vec::with_capacity(jobs.len());
        for job in jobs {
            let before = db.total_changes();
            if guard == Guard::Savepoints {
                execute(db, "SAVEPOINT command")?;
            }
            let answer = txn.begin_command().and_then(|()| ledger::apply(&mut txn, &job.command));
            if let Err(error) = &answer {
                txn.forget();
                if db.is_autocommit() {
                    // The error took the whole transaction with it.
                    return Err(Undone::All(error.clone()));
                }
                match guard {
                    Guard::Savepoints => execute(db, "ROLLBACK TO command")?,
                    Guard::None if db.total_changes() == before => {}
                    Guard::None => return Err(Undone::Command),
                }
            }
            if guard == Guard::Savepoints {
                execute(db, "RELEASE command")?;
            }
            answers.push(answer);
        }
        Ok(answers)
    }
}

/// How long the writer looks whether those it just answered come back before it sleeps or
/// goes on without them: less than it costs to sleep and be woken, or to commit twice.
const LINGER: Duration = Duration::from_micros(50);

/// What is waiting, or what comes first. `None` when every sender is gone.
fn next(queue: &Receiver<Vec<Job>>, replied: usize) -> Option<Vec<Job>> {
    let mut jobs = Vec::new();
    let start = Instant::now();
    loop {
        match queue.try_recv() {
            Ok(more) => jobs.extend(more),
            Err(TryRecvError::Disconnected) => return Some(jobs).filter(|jobs| !jobs.is_empty()),
            Err(TryRecvError::Empty) if jobs.len() < replied && start.elapsed() < LINGER => {
                std::thread::yield_now();
            }
            Err(TryRecvError::Empty) if jobs.is_empty() => jobs = queue.recv().ok()?,
            Err(TryRecvError::Empty) => return Some(jobs),
        }
        if jobs.len() >= BATCH {
            return Some(jobs);
        }
    }
}

/// What stands between a command that fails and its neighbours.
#[derive(Clone, Copy, PartialEq)]
enum Guard {
    /// Nothing: if a command fails after it wrote, the transaction is undone.
    None,
    /// Each command can be undone alone.
    Savepoints,
}

/// Why a transaction was undone.
enum Undone {
    /// A command failed half-way.
    Command,
    /// The transaction as a whole could not stand.
    All(StoreError),
}

impl From<StoreError> for Undone {
    fn from(error: StoreError) -> Self {
        Self::All(error)
    }
}

/// Trying the commands one by one would change nothing.
fn is_final(error: &StoreError) -> bool {
    matches!(error, StoreError::Stopped(_) | StoreError::Corrupt(_))
}

fn execute(db: &Connection, sql: &str) -> Result<(), StoreError> {
    db.prepare_cached(sql).and_then(|mut statement| statement.execute([])).or_store_error()?;
    Ok(())
}
