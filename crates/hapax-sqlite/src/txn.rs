//! A transaction on a connection, ours or a caller's: its clock, its cache and its commands.
//!
//! The reads and writes of each noun are in that noun's file.

use std::sync::Arc;

use hapax_core::name::Namespace;
use hapax_core::time::{LeaseInstant, Now, Timestamp};
use hapax_store::{Clock, StoreError, Txn, View};
use rusqlite::{Connection, Row, params};

use crate::clock::ClockAnchor;
use crate::connection_cache::{ConnectionCache, TxnCache};
use crate::error::OrStoreError;
use crate::liveness::LivenessLocks;
use crate::namespace;
use crate::query::rows;

/// The clock and the liveness locks, which every transaction of a store gets.
pub(crate) struct StoreContext {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) liveness: LivenessLocks,
}

pub(crate) struct SqliteTxn<'a> {
    pub(crate) db: &'a Connection,
    pub(crate) context: &'a StoreContext,
    pub(crate) cache: TxnCache<'a>,
    now: Now,
}

impl<'a> SqliteTxn<'a> {
    pub(crate) fn new(
        db: &'a Connection,
        context: &'a StoreContext,
        cache: &'a mut ConnectionCache,
    ) -> Self {
        Self { db, context, cache: TxnCache::new(db, cache), now: context.clock.now() }
    }

    /// Begins a command: nothing is loaded.
    pub(crate) fn begin_command(&mut self) {
        self.cache.begin_command();
    }

    /// Reads the clock, for the commands that come next.
    pub(crate) fn read_clock(&mut self) -> Result<(), StoreError> {
        self.now = self.context.clock.now();
        let anchor = match self.cache.clock_anchor() {
            Some(anchor) if anchor.lease.era == self.now.lease.era => anchor,
            _ => self.clock_anchor_or_new()?,
        };
        self.cache.keep_clock_anchor(anchor);
        self.now.wall_trusted &= anchor.trusts(self.now);
        Ok(())
    }

    /// Drops the data that an undone command may have left in the cache.
    pub(crate) fn drop_command(&mut self) {
        self.cache.drop_command();
    }

    /// The clock anchor of this era, set now if this is its first use.
    fn clock_anchor_or_new(&self) -> Result<ClockAnchor, StoreError> {
        if let Some(anchor) = self.stored_clock_anchor()? {
            return Ok(anchor);
        }
        let anchor = ClockAnchor { wall: self.now.wall, lease: self.now.lease };
        let (era, ms) = (anchor.lease.era as i64, anchor.lease.ms as i64);
        self.db
            .prepare_cached("UPDATE self SET anchor_era = ?1, anchor_wall = ?2, anchor_ms = ?3")
            .or_store_error()?
            .execute(params![era, anchor.wall.0, ms])
            .or_store_error()?;
        Ok(anchor)
    }

    /// The clock anchor of this era, if a process has set it.
    fn stored_clock_anchor(&self) -> Result<Option<ClockAnchor>, StoreError> {
        let read = |row: &Row<'_>| {
            let (era, ms) = (row.get::<_, i64>(0)? as u64, row.get::<_, i64>(2)? as u64);
            Ok(ClockAnchor { wall: Timestamp(row.get(1)?), lease: LeaseInstant { era, ms } })
        };
        let anchor = self
            .db
            .prepare_cached("SELECT anchor_era, anchor_wall, anchor_ms FROM self")
            .or_store_error()?
            .query_row([], read)
            .or_store_error()?;
        Ok(Some(anchor).filter(|anchor| anchor.lease.era == self.now.lease.era))
    }
}

impl View for SqliteTxn<'_> {
    /// In a command the clock was judged when it was read; for a reader it is judged here.
    fn now(&mut self) -> Now {
        let known = self.cache.clock_anchor();
        let anchor = known.or_else(|| self.stored_clock_anchor().ok().flatten());
        if let Some(anchor) = anchor {
            self.cache.keep_clock_anchor(anchor);
            self.now.wall_trusted &= anchor.trusts(self.now);
        }
        self.now
    }

    fn namespaces(&mut self) -> Result<Vec<Namespace>, StoreError> {
        let sql = "SELECT name FROM namespace ORDER BY name";
        rows(self.db, sql, [], |row| namespace::read(row, 0))
    }
}

impl Txn for SqliteTxn<'_> {}
