//! The turn to write, among processes that share a file.
//!
//! SQLite lets any process begin that tries at the right moment. So a process that writes without
//! pause would keep the other processes out for as long as it likes. Here a process takes the turn, an
//! operating-system lock on a file, before it asks SQLite to begin, and passes it on once it has
//! begun. So the process that holds the turn is the next to write. The turn is a courtesy: a
//! process that does not get it in time begins without it, and SQLite arbitrates.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::connection::BUSY_TIMEOUT;

/// How long to wait for the turn: many transactions of other processes. A process that holds it for
/// longer has been stopped.
const MAX_WAIT: Duration = Duration::from_millis(200);
/// How long a process does not wait for the turn after it waited in vain.
const SKIP_WAIT: Duration = Duration::from_secs(5);
/// How long to sleep between two tries: at first, and at last. Many processes that try all the time
/// slow down the process that writes.
const FIRST_PAUSE: Duration = Duration::from_micros(200);
const LAST_PAUSE: Duration = Duration::from_millis(2);

/// The turn at one database.
#[derive(Debug)]
pub(crate) struct WriteTurnLock {
    path: PathBuf,
    file: Option<File>,
    /// Until then this process does not wait for the turn.
    skip_wait_until: Option<Instant>,
}

impl WriteTurnLock {
    pub(crate) fn beside(database: &Path) -> Self {
        let mut path = database.as_os_str().to_owned();
        path.push("-turn");
        Self { path: path.into(), file: None, skip_wait_until: None }
    }

    /// Begins a transaction, after waiting for the turn.
    pub(crate) fn begin(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let mine = self.wait();
        db.busy_timeout(Duration::ZERO)?;
        let since = Instant::now();
        let begun = loop {
            match begin(db) {
                Err(error) if is_busy(&error) && since.elapsed() < BUSY_TIMEOUT => pause(since),
                begun => break begun,
            }
        };
        db.busy_timeout(BUSY_TIMEOUT)?;
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
        let _ = db.busy_timeout(BUSY_TIMEOUT);
        self.pass_on();
        begun.is_ok()
    }

    /// Waits for the turn. Returns whether this process has it.
    fn wait(&mut self) -> bool {
        if self.skip_wait_until.is_some_and(|until| Instant::now() < until) {
            return self.take();
        }
        let since = Instant::now();
        while !self.take() {
            if since.elapsed() > MAX_WAIT {
                self.skip_wait_until = Some(Instant::now() + SKIP_WAIT);
                return false;
            }
            pause(since);
        }
        self.skip_wait_until = None;
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

/// Sleeps before the next try: an eighth of the wait so far, within the two bounds.
fn pause(since: Instant) {
    std::thread::sleep((since.elapsed() / 8).clamp(FIRST_PAUSE, LAST_PAUSE));
}

fn begin(db: &Connection) -> rusqlite::Result<()> {
    db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    Ok(())
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
}
