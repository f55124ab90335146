//! The write-ahead log: long enough to be written in place, moved into the file when full.
//!
//! Syncing a file that grows costs about twice as much as syncing one that does not, because its
//! length has to reach the disk too. SQLite writes a log over again once it was moved into the
//! database, and skips everything after its last valid frame. So a busy writer lengthens the log
//! with zeros ahead of itself, while it holds the write lock and no other connection can append.

use std::fs::OpenOptions;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread::JoinHandle;

use hapax_store::StoreError;
use rusqlite::Connection;

use crate::connection;
use crate::error::OrStoreError;
use crate::store::{Shared, spawn};

/// How many pages the log has when it is full, and has to be moved into the file.
const FULL_PAGES: i32 = 2048;
/// A page and the header of its frame.
const FRAME_BYTES: u64 = 4096 + 24;
/// The writer does not lengthen a log of fewer pages than this.
const BUSY_PAGES: i32 = 128;
/// How much room the writer keeps ahead of the newest frame, and how much it adds at a time.
const AHEAD_BYTES: u64 = 1024 * 1024;
const STEP_BYTES: usize = 4 * 1024 * 1024;

pub(crate) struct WriteAheadLog {
    path: PathBuf,
    state: Arc<State>,
    checkpointer: Checkpointer,
    /// The length of the log's file when last read; it never shrinks while it is open. After a failure to
    /// make it longer it is `u64::MAX`, and there is no further try.
    length: u64,
}

#[derive(Default)]
struct State {
    pages: AtomicI32,
    /// Whether the checkpointer has moved all that it could, so that the writer moves the rest.
    nearly_done: AtomicBool,
}

impl WriteAheadLog {
    /// Watches the log of this connection.
    pub(crate) fn of(db: &mut Connection, shared: Arc<Shared>) -> Result<Self, StoreError> {
        let state = Arc::new(State::default());
        let pages = state.clone();
        db.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, count| {
            pages.pages.store(count, Ordering::Relaxed);
            Ok(())
        }))
        .or_store_error()?;
        let mut path = shared.path.clone().into_os_string();
        path.push("-wal");
        let checkpointer = Checkpointer::start(shared, state.clone())?;
        Ok(Self { path: path.into(), state, checkpointer, length: 0 })
    }

    /// Makes room before a commit. Call it with the write lock held. A failure is no error: the
    /// commit is slower, or reports itself that the disk is full.
    pub(crate) fn make_room(&mut self) {
        let pages = self.state.pages.load(Ordering::Relaxed);
        let wanted = pages as u64 * FRAME_BYTES + AHEAD_BYTES;
        if !(BUSY_PAGES..=FULL_PAGES).contains(&pages) || wanted <= self.length {
            return;
        }
        self.length = match lengthen(&self.path, wanted) {
            Ok(length) => length,
            Err(error) => {
                tracing::debug!(%error, "the write-ahead log was not made longer");
                u64::MAX
            }
        };
    }

    /// Moves a full log into the file. The checkpointer moves most of it beside the writer. The writer
    /// moves the rest here, because only then can SQLite write the log from its beginning again.
    pub(crate) fn checkpoint_if_full(&mut self, db: &Connection) -> Result<(), StoreError> {
        if self.state.pages.load(Ordering::Relaxed) < FULL_PAGES {
            return Ok(());
        }
        if self.state.nearly_done.swap(false, Ordering::Acquire) {
            return checkpoint(db);
        }
        if let Err(TrySendError::Disconnected(())) = self.checkpointer.nudge() {
            tracing::error!(name: "checkpointer_gone", "the checkpointer is gone; the write-ahead log grows");
        }
        Ok(())
    }
}

fn lengthen(path: &Path, wanted: u64) -> std::io::Result<u64> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    let length = file.seek(SeekFrom::End(0))?;
    if length >= wanted {
        return Ok(length);
    }
    file.write_all(&vec![0; STEP_BYTES])?;
    Ok(length + STEP_BYTES as u64)
}

/// The thread that moves the log into the file beside the writer. It ends with the writer, so
/// that the last connection to go leaves one tidy file behind.
struct Checkpointer {
    nudge: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    fn start(shared: Arc<Shared>, state: Arc<State>) -> Result<Self, StoreError> {
        let (nudge, nudges) = std::sync::mpsc::sync_channel(1);
        let db = connection::open_reader(&shared.path)?;
        db.pragma_update(None, "query_only", false).or_store_error()?;
        let work = move || {
            while nudges.recv().is_ok() {
                match checkpoint(&db) {
                    Ok(()) => state.nearly_done.store(true, Ordering::Release),
                    Err(error @ StoreError::Stopped(_)) => shared.stop(error),
                    Err(error) => {
                        tracing::warn!(name: "log_not_moved", %error, "the write-ahead log was not moved")
                    }
                }
            }
        };
        Ok(Self { nudge: Some(nudge), thread: Some(spawn("hapax-checkpoint", work)?) })
    }

    fn nudge(&self) -> Result<(), TrySendError<()>> {
        self.nudge.as_ref().map_or(Ok(()), |nudge| nudge.try_send(()))
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.nudge = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn checkpoint(db: &Connection) -> Result<(), StoreError> {
    db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).or_store_error()
}
