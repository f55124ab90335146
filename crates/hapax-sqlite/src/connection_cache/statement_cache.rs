//! The statements of claims and settles, looked up once per transaction: finding a statement by its
//! text costs a tenth of executing it.

use hapax_store::StoreError;
use rusqlite::{CachedStatement, Connection};

use crate::effect;
use crate::error::OrStoreError;
use crate::journal;
use crate::part;

/// Prepared statements of one connection, each looked up on first use.
pub(crate) struct StatementCache<'a> {
    db: &'a Connection,
    load: Option<CachedStatement<'a>>,
    load_by_key: Option<CachedStatement<'a>>,
    number: Option<CachedStatement<'a>>,
    insert: Option<CachedStatement<'a>>,
    succeed: Option<CachedStatement<'a>>,
    append: Option<CachedStatement<'a>>,
    insert_part: Option<CachedStatement<'a>>,
}

impl<'a> StatementCache<'a> {
    pub(crate) fn of(db: &'a Connection) -> Self {
        Self {
            db,
            load: None,
            load_by_key: None,
            number: None,
            insert: None,
            succeed: None,
            append: None,
            insert_part: None,
        }
    }

    /// Reads an effect by its number.
    pub(crate) fn load(&mut self) -> Result<&mut CachedStatement<'a>, StoreError> {
        ready(self.db, &mut self.load, effect::LOAD)
    }

    /// Reads an effect by its key.
    pub(crate) fn load_by_key(&mut self) -> Result<&mut CachedStatement<'a>, StoreError> {
        ready(self.db, &mut self.load_by_key, effect::LOAD_BY_KEY)
    }

    /// Finds the number of an effect by its key.
    pub(crate) fn number(&mut self) -> Result<&mut CachedStatement<'a>, StoreError> {
        ready(self.db, &mut self.number, effect::NUMBER)
    }

    /// Writes a new effect.
    pub(crate) fn insert(&mut self) -> Result<&mut CachedStatement<'a>, StoreError> {
        ready(self.db, &mut self.insert, effect::INSERT)
    }

    /// Writes the columns that most settles change.
    pub(crate) fn succeed(&mut self) -> Result<&mut CachedStatement<'a>, StoreError> {
        ready(self.db, &mut self.succeed, effect::SUCCEED)
    }

    /// Appends to the journal.
    pub(crate) fn append(&mut self) -> Result<&mut CachedStatement<'a>, StoreError> {
        ready(self.db, &mut self.append, journal::APPEND)
    }

    /// Writes the part of a new effect.
    pub(crate) fn insert_part(&mut self) -> Result<&mut CachedStatement<'a>, StoreError> {
        ready(self.db, &mut self.insert_part, part::INSERT)
    }
}

fn ready<'a, 's>(
    db: &'a Connection,
    statement: &'s mut Option<CachedStatement<'a>>,
    sql: &str,
) -> Result<&'s mut CachedStatement<'a>, StoreError> {
    match statement {
        Some(statement) => Ok(statement),
        none => Ok(none.insert(db.prepare_cached(sql).or_store_error()?)),
    }
}
