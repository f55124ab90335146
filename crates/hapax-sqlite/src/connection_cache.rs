//! The cache of a connection: where the rows of effects are, and which rows need no second read.
//!
//! **Invariant**: a cached row equals the row that the open transaction sees, and a cached row number
//! counts only if its row has the key that the caller looks for.
//!
//! One rule keeps it, and [`refresh`](ConnectionCache::refresh) applies it at the start of each
//! transaction. A commit of another connection changes `data_version`; then the cached rows are
//! dropped. The cache also keeps the identity of the newest journal entry. If the file has another entry
//! of that number, or none, the file was replaced by an older copy; then the whole cache is dropped.
//! The connection's own writes go through [`TxnCache`], which keeps the two equal.
//!
//! No promise rests on this. The database refuses a second row of one key even if the cache is wrong
//! (`effect_new` in `migrations/0009_rules.sql`).

use std::collections::HashMap;

use hapax_core::effect::Effect;
use hapax_core::key::Key;
use hapax_core::lease::Lease;
use hapax_core::name::{Name, Namespace};
use hapax_core::planted::{Bug, planted};
use hapax_store::StoreError;
use rusqlite::Connection;

use crate::clock::ClockAnchor;
use crate::error::OrStoreError;
use crate::journal::{self, EntryIdentity};
use crate::part::Whole;

mod key_index;
mod row_number_cache;
mod statement_cache;
mod txn_cache;

use key_index::KeyMover;
pub(crate) use key_index::KeyPrefix;
use row_number_cache::RowNumberCache;
pub(crate) use statement_cache::StatementCache;
pub(crate) use txn_cache::{CommandRow, TxnCache};

/// The data that a connection keeps between transactions. A transaction reads and changes it through
/// [`TxnCache`] only.
#[derive(Default)]
pub(crate) struct ConnectionCache {
    /// The numbers of namespaces, which never change once given.
    namespaces: HashMap<Namespace, i64>,
    rows: CachedRows,
    row_numbers: RowNumberCache,
    /// Moves unindexed keys into the index; it caches none.
    key_mover: KeyMover,
    /// The `data_version` at which the cache was last known to be right; none if that is not known.
    version: Option<i64>,
    /// The newest journal entry that was committed then.
    newest_entry: Option<EntryIdentity>,
    /// The newest entry of the open transaction.
    appended: Option<EntryIdentity>,
    /// The file was found to have been replaced by an older copy, and no transaction that acted on it
    /// has been committed yet.
    replaced: bool,
    /// Whether the key that was looked up last has an effect; then the next key may have one, too.
    last_lookup_found: bool,
}

/// Rows that were read or written. They need not be read again until another connection writes to
/// the file.
#[derive(Default)]
struct CachedRows {
    running: HashMap<Name, RunningEffect>,
    clock_anchor: Option<ClockAnchor>,
    last_entry: Option<u64>,
    /// The lease that was loaded last, which most commands use.
    lease: Option<Lease>,
    /// Wholes that got parts lately, each with the kind of its last part.
    wholes: HashMap<Key, (String, Whole)>,
}

/// A running effect, the number of its row, and its newest journal entry.
struct RunningEffect {
    number: i64,
    entry: i64,
    effect: Effect,
}

/// How many running effects are cached, and how many wholes.
const CAPACITY: usize = 8192;

impl ConnectionCache {
    /// A cache for a connection that stays open. Only such a cache has room for row numbers.
    pub(crate) fn with_room() -> Self {
        Self { row_numbers: RowNumberCache::with_room(), ..Self::default() }
    }

    /// Drops everything that another connection may have changed. The caller has begun a
    /// transaction.
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
        let known = self.newest_entry.filter(|_| !planted(Bug::AnchorUnchecked));
        if let Some(newest) = known
            && journal::identity(db, Some(newest.id))? != Some(newest)
        {
            *self = match self.row_numbers.has_room() {
                true => Self::with_room(),
                false => Self::default(),
            };
            self.replaced = true;
        }
        self.newest_entry = journal::identity(db, None)?;
        self.version = Some(version);
        Ok(())
    }

    /// Whether the file was replaced by an older copy, and no transaction that acted on it has been
    /// committed yet.
    pub(crate) fn file_was_replaced(&self) -> bool {
        self.replaced
    }

    /// Moves some unindexed keys into the index, as part of the open transaction.
    pub(crate) fn move_keys(&mut self, db: &Connection) -> Result<(), StoreError> {
        self.key_mover.move_some(db)
    }

    /// Takes note of a commit, and of the newest entry that it committed.
    pub(crate) fn committed(&mut self) {
        self.newest_entry = self.appended.take().or(self.newest_entry);
        self.replaced = false;
    }

    /// Drops the rows and namespaces that a rolled back transaction may have left, and distrusts the
    /// rest until the next [`refresh`](Self::refresh).
    pub(crate) fn drop_uncommitted(&mut self) {
        self.drop_rows();
        (self.version, self.appended) = (None, None);
    }

    /// Drops the rows, and the namespaces, which may have been added with them.
    fn drop_rows(&mut self) {
        self.namespaces.clear();
        self.rows = CachedRows::default();
    }
}
