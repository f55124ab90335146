//! Effects by their keys, in three tables that the database itself keeps unique.
//!
//! ```text
//!  key_tail ──▶ key_middle ──▶ key_index      some at a time, in the order of keys
//!  few pages    some pages     all others
//! ```
//!
//! Triggers add the key of a new effect to the tail, refuse a key that is in any of them, and
//! remove the key of an effect that is removed. This file moves keys from table to table; it caches
//! none.

use hapax_core::key::Key;
use hapax_store::StoreError;
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::error::OrStoreError;

/// The namespace of an effect and the first half of its key, by which it is found.
pub(crate) type KeyPrefix = (i64, [u8; 16]);

/// The prefix by which the effect of this key is found.
pub(super) fn prefix(namespace: i64, key: &Key) -> KeyPrefix {
    let mut prefix = [0; 16];
    prefix.copy_from_slice(&key.as_bytes()[..16]);
    (namespace, prefix)
}

/// How many keys a slice has, and after how many new keys a move begins. Few with the feature
/// `proof`, so that short runs have moves.
const SLICE: usize = if cfg!(feature = "proof") { 4 } else { 128 };
/// The most slices of one move, so that one commit does not take long.
const SLICES: i64 = 4;

/// Moves keys to the next table, some at a time.
pub(super) struct KeyMover {
    /// How many keys were added since the last move.
    added: usize,
    levels: [Level; 2],
}

/// One table that keys pass through.
struct Level {
    /// How many keys stay in it. The more there are, the more of them share a page of the next
    /// table when they are moved; but the more pages of this one are written when keys come in.
    keep: i64,
    count: &'static str,
    last: &'static str,
    copy: &'static str,
    drop: &'static str,
    /// Where the last move ended. The next one begins there, so that all parts of the table get
    /// their turn; any other place would do.
    after: Option<KeyPrefix>,
}

macro_rules! level {
    ($from:literal, $to:literal, $keep:expr) => {
        Level {
            keep: $keep,
            count: concat!("SELECT count(*) FROM ", $from),
            last: concat!(
                "SELECT namespace, prefix FROM (SELECT namespace, prefix FROM ",
                $from,
                " WHERE (namespace, prefix) > (?1, ?2) ORDER BY namespace, prefix LIMIT ?3)
                 ORDER BY namespace DESC, prefix DESC LIMIT 1"
            ),
            copy: concat!(
                "INSERT OR IGNORE INTO ",
                $to,
                " SELECT namespace, prefix, effect FROM ",
                $from,
                " WHERE (namespace, prefix) > (?1, ?2) AND (namespace, prefix) <= (?3, ?4)
                 ORDER BY namespace, prefix"
            ),
            drop: concat!(
                "DELETE FROM ",
                $from,
                " WHERE (namespace, prefix) > (?1, ?2) AND (namespace, prefix) <= (?3, ?4)"
            ),
            after: None,
        }
    };
}

impl Default for KeyMover {
    fn default() -> Self {
        let few = cfg!(feature = "proof");
        Self {
            added: 0,
            levels: [
                level!("key_tail", "key_middle", if few { 16 } else { 512 }),
                level!("key_middle", "key_index", if few { 64 } else { 8192 }),
            ],
        }
    }
}

impl KeyMover {
    /// Counts a key that was added.
    pub(super) fn note_added(&mut self) {
        self.added += 1;
    }

    /// Moves some keys if enough were added, as part of the open transaction.
    pub(super) fn move_some(&mut self, db: &Connection) -> Result<(), StoreError> {
        if self.added < SLICE {
            return Ok(());
        }
        self.added = 0;
        self.levels.iter_mut().try_for_each(|level| level.move_some(db))
    }
}

impl Level {
    fn move_some(&mut self, db: &Connection) -> Result<(), StoreError> {
        let count: i64 = db
            .prepare_cached(self.count)
            .and_then(|mut count| count.query_row([], |row| row.get(0)))
            .or_store_error()?;
        match (count - self.keep).min(SLICES * SLICE as i64) {
            due if due > 0 => self.move_slice(db, due),
            _ => Ok(()),
        }
    }

    /// Moves the next `count` keys in their order, or all that are left before the end.
    fn move_slice(&mut self, db: &Connection, count: i64) -> Result<(), StoreError> {
        let (namespace, prefix) = self.after.unwrap_or((i64::MIN, [0; 16]));
        let last: Option<KeyPrefix> = db
            .prepare_cached(self.last)
            .and_then(|mut last| {
                let params = params![namespace, prefix, count];
                last.query_row(params, |row| Ok((row.get(0)?, row.get(1)?))).optional()
            })
            .or_store_error()?;
        if let Some((last_namespace, last_prefix)) = last {
            let slice = params![namespace, prefix, last_namespace, last_prefix];
            for sql in [self.copy, self.drop] {
                db.prepare_cached(sql)
                    .and_then(|mut statement| statement.execute(slice))
                    .or_store_error()?;
            }
        }
        self.after = last;
        Ok(())
    }
}
