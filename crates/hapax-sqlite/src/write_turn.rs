//! The turn to write, among processes that share a file.
//!
//! SQLite lets any process begin that asks at the right moment, so that a process that writes
//! without pause keeps the others out for as long as it likes. Here a process takes the turn, an
//! operating-system lock on a file, before it asks SQLite to begin, and passes it on once it has
//! begun. So the process that holds the turn is the next to write. The turn is a courtesy: a
//! process that does not get it in time begins without it, and SQLite arbitrates.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::connection::BUSY;

/// How long to wait for the turn: many transactions of other processes. A process that holds it for
/// longer has been stopped.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long to begin without waiting for the turn after a wait was in vain.
const WITHOUT: Duration = Duration::from_secs(5);
/// How long to sleep between looks: at first, and at last. Many processes that look all the time
/// slow down the one that writes.
const LOOK: Duration = Duration::from_micros(200);
const LOOK_SELDOM: Duration = Duration::from_millis(2);

/// The turn at one database.
#[derive(Debug)]
pub(crate) struct WriteTurnLock {
    path: PathBuf,
    file: Option<File>,
    /// Until then the turn is not waited for.
    without: Option<Instant>,
}

impl WriteTurnLock {
    pub(crate) fn beside(database: &Path) -> Self {
        let mut path = database.as_os_str().to_owned();
        path.push("-turn");
        Self { path: path.into(), file: None, without: None }
    }

    /// Begins a transaction, after waiting for the turn.
    pub(crate) fn begin(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let mine = self.wait();
        db.busy_timeout(Duration::ZERO)?;
        let since = Instant::now();
        let begun = loop {
            match begin(db) {
                Err(error) if is_busy(&error) && since.elapsed() < BUSY => pause(since),
                begun => break begun,
            }
        };
        db.busy_timeout(BUSY)?;
        if mine {
            self.pass_on();
        }
        begun
    }

    /// Begins a transaction if no other process is writing or has the turn.
    pub(crate) fn begin_at_once(&mut self, db: &Connection) -> bool {
        if !self.take() {
            return false;
        }
        let begun = db.busy_timeout(Duration::ZERO).and_then(|()| begin(db));
        let _ = db.busy_timeout(BUSY);
        self.pass_on();
        begun.is_ok()
    }

    /// Waits for the turn. Returns whether it came.
    fn wait(&mut self) -> bool {
        if self.without.is_some_and(|until| Instant::now() < until) {
            return self.take();
        }
        let since = Instant::now();
        while !self.take() {
            if since.elapsed() > PATIENCE {
                self.without = Some(Instant::now() + WITHOUT);
                return false;
            }
            pause(since);
        }
        self.without = None;
        true
    }

    /// Takes the turn if it is free. Where its file cannot be opened or locked, every process has
    /// the turn.
    fn take(&mut self) -> bool {
        if self.file.is_none() {
            self.file =
                File::options().create(true).truncate(false).write(true).open(&self.path).ok();
        }
        let taken = self.file.as_ref().map(File::try_lock);
        !matches!(taken, Some(Err(TryLockError::WouldBlock)))
    }

    fn pass_on(&self) {
        if let Some(file) = &self.file {
            let _ = file.unlock();
        }
    }
}

/// Sleeps before the next look, the longer the longer the wait has been.
fn pause(since: Instant) {
    std::thread::sleep((since.elapsed() / 8).clamp(LOOK, LOOK_SELDOM));
}

fn begin(db: &Connection) -> rusqlite::Result<()> {
    db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    Ok(())
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
}
