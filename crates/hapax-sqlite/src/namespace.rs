//! Namespaces as numbers. They are few and never change, so each connection looks each up once.

use hapax_core::name::Namespace;
use hapax_store::StoreError;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row};

use crate::error::OrStoreError;
use crate::txn::SqliteTxn;

impl SqliteTxn<'_> {
    /// The number of a namespace, if it has one.
    pub(crate) fn namespace(&mut self, namespace: &Namespace) -> Result<Option<i64>, StoreError> {
        self.cache.namespace(namespace)
    }

    /// The number of a namespace, which gets one if it has none.
    pub(crate) fn namespace_or_new(&mut self, namespace: &Namespace) -> Result<i64, StoreError> {
        if let Some(id) = self.namespace(namespace)? {
            return Ok(id);
        }
        self.db
            .execute("INSERT INTO namespace (name) VALUES (?1)", [namespace.as_str()])
            .or_store_error()?;
        Ok(self.db.last_insert_rowid())
    }

    /// The name of a number.
    pub(crate) fn namespace_name(&self, id: i64) -> Result<Namespace, StoreError> {
        self.db
            .prepare_cached("SELECT name FROM namespace WHERE id = ?1")
            .or_store_error()?
            .query_row([id], |row| read(row, 0))
            .or_store_error()
    }
}

/// The number of a namespace, read from the database.
pub(crate) fn load(db: &Connection, namespace: &Namespace) -> Result<Option<i64>, StoreError> {
    db.prepare_cached("SELECT id FROM namespace WHERE name = ?1")
        .or_store_error()?
        .query_row([namespace.as_str()], |row| row.get(0))
        .optional()
        .or_store_error()
}

/// The namespace whose name is in this column. A name that none can have is corruption.
pub(crate) fn read(row: &Row<'_>, at: usize) -> rusqlite::Result<Namespace> {
    let name: String = row.get(at)?;
    Namespace::new(&name)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(at, Type::Text, Box::new(error)))
}
