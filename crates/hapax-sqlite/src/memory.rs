//! What a connection remembers, so that it need not be read again.

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
use crate::fresh::Fresh;
use crate::part::Whole;
use crate::seen::Seen;

/// What a connection remembers between transactions.
#[derive(Default)]
pub(crate) struct Memory {
    /// Numbers that never change once given.
    pub(crate) namespaces: HashMap<Namespace, i64>,
    pub(crate) rows: Rows,
    /// Effects that are found by what is remembered of them.
    pub(crate) fresh: Fresh,
    /// Where effects were found.
    pub(crate) seen: Seen,
    /// What the file said when the above was last read; nothing, if it has to be read again.
    version: Option<i64>,
    /// The last key that was looked for was there, so the next may be, too.
    pub(crate) claims_find: bool,
}

/// What was read or written and need not be read again while nobody else writes to the file.
#[derive(Default)]
pub(crate) struct Rows {
    /// What is known to be running: its row, its newest entry and what it is.
    pub(crate) running: HashMap<Name, (i64, i64, Effect)>,
    pub(crate) anchor: Option<Anchor>,
    pub(crate) last_entry: Option<u64>,
    /// The lease most commands hang on.
    pub(crate) lease: Option<Lease>,
    /// Wholes that got parts lately, each with the kind of the last.
    pub(crate) wholes: HashMap<Key, (String, Whole)>,
}

/// How many running effects are remembered, and how many wholes.
const REMEMBERED: usize = 8192;

impl Memory {
    /// For a connection that stays open.
    pub(crate) fn with_room() -> Self {
        Self { seen: Seen::with_room(), ..Self::default() }
    }

    /// Nothing but the newest effects, as they are in the transaction that is open.
    pub(crate) fn with(fresh: Fresh) -> Self {
        Self { fresh, ..Self::default() }
    }

    /// To be called inside a transaction: forgets what another connection may have changed.
    pub(crate) fn refresh(&mut self, db: &Connection) -> Result<(), StoreError> {
        let version = db
            .prepare_cached("PRAGMA data_version")
            .or_store_error()?
            .query_row([], |row| row.get(0))
            .or_store_error()?;
        if self.version != Some(version) {
            self.forget_rows();
            self.read_fresh(db)?;
            self.version = Some(version);
        }
        Ok(())
    }

    /// Reads what others have added, all of which is committed.
    fn read_fresh(&mut self, db: &Connection) -> Result<(), StoreError> {
        if self.version.is_some() && planted(Bug::FreshUnread) {
            return Ok(());
        }
        self.fresh.read(db)?;
        self.fresh.keep();
        Ok(())
    }

    /// To be called where somebody else may have written since.
    fn forget_rows(&mut self) {
        self.rows = Rows::default();
    }

    /// Forgets what a command that was undone may have left here.
    pub(crate) fn forget(&mut self) {
        self.namespaces.clear();
        self.forget_rows();
    }

    /// Forgets what a transaction that was undone may have left here.
    pub(crate) fn undo(&mut self) {
        self.forget();
        self.fresh.undo();
        self.version = None;
    }
}

impl Rows {
    /// Remembers what is running now.
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
