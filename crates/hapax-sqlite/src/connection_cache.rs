//! The cache of a connection.
//!
//! Cached rows count in a transaction only if no other connection has committed since they were
//! cached: such a commit changes `data_version`, and the rows are dropped. Everything in the cache
//! counts only if the file still has the journal entry that was the newest then. If that entry is
//! gone, or another stands in its place, the file was replaced by an older copy, and the whole
//! cache is dropped.

use std::collections::HashMap;

use hapax_core::effect::Effect;
use hapax_core::key::Key;
use hapax_core::lease::Lease;
use hapax_core::name::{Name, Namespace};
use hapax_core::planted::{Bug, planted};
use hapax_store::StoreError;
use rusqlite::Connection;

use crate::clock::Anchor;
use crate::error::OrStoreError;
use crate::journal;
use crate::key_index::Mover;
use crate::part::Whole;
use crate::row_cache::RowCache;

/// The data that a connection keeps between transactions.
#[derive(Default)]
pub(crate) struct ConnectionCache {
    /// The numbers of namespaces, which never change once given.
    pub(crate) namespaces: HashMap<Namespace, i64>,
    pub(crate) rows: Rows,
    /// The row numbers of effects.
    pub(crate) seen: RowCache,
    /// Moves keys into the index; it caches none.
    pub(crate) mover: Mover,
    /// The `data_version` at which the above was last known to be right; none if that is not known.
    version: Option<i64>,
    /// The newest journal entry that was committed then.
    anchor: Option<EntryAnchor>,
    /// The file was found to have been replaced by an older copy, and no transaction that acted on it
    /// has been committed yet.
    pub(crate) replaced: bool,
    /// The newest entry of the open transaction.
    pub(crate) appended: Option<EntryAnchor>,
    /// Whether the last key that was looked up was found; then the next may be, too.
    pub(crate) claims_find: bool,
}

/// The fields that tell one journal entry from every other that could have its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryAnchor {
    pub(crate) id: i64,
    pub(crate) at: i64,
    pub(crate) event: u8,
    pub(crate) key: [u8; 32],
    pub(crate) attempt: [u8; 16],
}

/// Rows that were read or written. They need not be read again until another connection writes to
/// the file.
#[derive(Default)]
pub(crate) struct Rows {
    /// Running effects: the row, the newest entry and the record.
    pub(crate) running: HashMap<Name, (i64, i64, Effect)>,
    pub(crate) anchor: Option<Anchor>,
    pub(crate) last_entry: Option<u64>,
    /// The lease that was loaded last, which most commands use.
    pub(crate) lease: Option<Lease>,
    /// Wholes that got parts lately, each with the kind of its last part.
    pub(crate) wholes: HashMap<Key, (String, Whole)>,
}

/// How many running effects are cached, and how many wholes.
const REMEMBERED: usize = 8192;

impl ConnectionCache {
    /// A cache for a connection that stays open.
    pub(crate) fn with_room() -> Self {
        Self { seen: RowCache::with_room(), ..Self::default() }
    }

    /// Drops rows that another connection may have changed. Call it inside a transaction.
    pub(crate) fn refresh(&mut self, db: &Connection) -> Result<(), StoreError> {
        let version = db
            .prepare_cached("PRAGMA data_version")
            .or_store_error()?
            .query_row([], |row| row.get(0))
            .or_store_error()?;
        if self.version == Some(version) {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.rows);
        if planted(Bug::StaleRows) {
            self.rows.running = rows.running;
        }
        let known = self.anchor.filter(|_| !planted(Bug::AnchorUnchecked));
        if let Some(anchor) = known
            && journal::mark(db, Some(anchor.id))? != Some(anchor)
        {
            *self = if self.seen.has_room() { Self::with_room() } else { Self::default() };
            self.replaced = true;
        }
        self.anchor = journal::mark(db, None)?;
        self.version = Some(version);
        Ok(())
    }

    /// The transaction is committed.
    pub(crate) fn committed(&mut self) {
        self.anchor = self.appended.take().or(self.anchor);
        self.replaced = false;
    }

    /// Drops data that an undone command may have left here.
    pub(crate) fn forget(&mut self) {
        self.namespaces.clear();
        self.rows = Rows::default();
    }

    /// Drops data that an undone transaction may have left here.
    pub(crate) fn undo(&mut self) {
        self.forget();
        (self.version, self.appended) = (None, None);
    }
}

impl Rows {
    /// Caches a running effect.
    pub(crate) fn keep(&mut self, name: &Name, row: i64, entry: i64, effect: Effect) {
        if self.running.len() >= REMEMBERED {
            self.running.clear();
        }
        self.running.insert(name.clone(), (row, entry, effect));
    }

    /// The whole that parts of this kind were added to, if that was lately.
    pub(crate) fn whole(&self, name: &Key, kind: &str) -> Option<Whole> {
        let (of, whole) = self.wholes.get(name)?;
        (of == kind).then_some(*whole)
    }

    pub(crate) fn keep_whole(&mut self, name: Key, kind: &str, whole: Whole) {
        if self.wholes.len() >= REMEMBERED {
            self.wholes.clear();
        }
        self.wholes.insert(name, (kind.to_owned(), whole));
    }
}
