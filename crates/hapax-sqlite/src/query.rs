//! Shorthands for statements: read all rows, or run one.

use hapax_store::StoreError;
use rusqlite::{Connection, Params, Row};

use crate::error::OrStoreError;

/// All rows of a query.
pub(crate) fn rows<T>(
    db: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = db.prepare_cached(sql).or_store_error()?;
    let rows = statement.query_map(params, read).or_store_error()?;
    rows.collect::<rusqlite::Result<_>>().or_store_error()
}

/// Runs a statement. Returns how many rows it changed.
pub(crate) fn run(db: &Connection, sql: &str, params: impl Params) -> Result<usize, StoreError> {
    db.prepare_cached(sql).or_store_error()?.execute(params).or_store_error()
}
