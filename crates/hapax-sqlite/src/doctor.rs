//! Checks of a file's health, and the repair of second rows.

use std::collections::BTreeSet;

use hapax_store::StoreError;
use rusqlite::Connection;

use crate::connection::number;
use crate::effect;
use crate::error::OrStoreError;
use crate::migrate::SCHEMA;
use crate::store::SqliteStore;

/// A problem of a ledger's file, for an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileProblem {
    /// A table, an index, a trigger or a view that the schema has and the file lacks.
    Missing(String),
    /// Too many pages are empty: the percentage.
    Bloated(i64),
    /// A row that its key does not lead to, because the key leads to another row. Versions that
    /// accepted a second row of a key made it.
    SecondRow {
        /// The key.
        key: String,
        /// The number of that row.
        effect: i64,
    },
}

/// The percentage of empty pages from which a file that is not small is reported.
const MIN_EMPTY_PERCENT: i64 = 60;
const MIN_PAGES: i64 = 10_000;

impl SqliteStore {
    /// Compares the file with the schema, and looks for second rows and empty pages.
    pub fn examine(&self) -> Result<Vec<FileProblem>, StoreError> {
        let fresh = Connection::open_in_memory().or_store_error()?;
        fresh.execute_batch(SCHEMA).or_store_error()?;
        let db = self.connection()?;
        let in_file = schema_objects(&db)?;
        let missing =
            schema_objects(&fresh)?.into_iter().filter(|object| !in_file.contains(object));
        let mut problems: Vec<FileProblem> = missing.map(FileProblem::Missing).collect();
        problems.extend(second_rows(&db)?.into_iter().map(|(key, effect)| {
            let key = hapax_core::key::Key::from_bytes(key).to_string();
            FileProblem::SecondRow { key, effect }
        }));
        let (pages, empty) = (number(&db, "page_count")?, number(&db, "freelist_count")?);
        let share = empty * 100 / pages.max(1);
        if pages > MIN_PAGES && share >= MIN_EMPTY_PERCENT {
            problems.push(FileProblem::Bloated(share));
        }
        Ok(problems)
    }
}

impl SqliteStore {
    /// Removes second rows, at most a hundred in one call, and indexes rows whose key is in no
    /// index. The journal keeps its entries about them. Returns how many rows were removed or
    /// indexed.
    pub fn repair(&self) -> Result<usize, StoreError> {
        let mut db = self.connection()?;
        let tx = db.transaction().or_store_error()?;
        let missing = tx
            .execute(
                "INSERT OR IGNORE INTO key_tail (namespace, prefix, effect)
                 SELECT namespace, substr(key, 1, 16), id FROM effect e WHERE NOT EXISTS (
                     SELECT 1 FROM key_index k WHERE k.namespace = e.namespace AND k.prefix = substr(e.key, 1, 16))
                 AND NOT EXISTS (
                     SELECT 1 FROM key_middle k WHERE k.namespace = e.namespace AND k.prefix = substr(e.key, 1, 16))
                 AND NOT EXISTS (
                     SELECT 1 FROM key_tail k WHERE k.namespace = e.namespace AND k.prefix = substr(e.key, 1, 16))
                 ORDER BY e.state <> 1, e.id",
                [],
            )
            .or_store_error()?;
        let second = second_rows(&tx)?;
        for (_, effect) in &second {
            effect::remove(&tx, *effect)?;
        }
        tx.commit().or_store_error()?;
        Ok(missing + second.len())
    }
}

/// The most second rows that one search returns.
const MAX_SECOND_ROWS: i64 = 100;

fn second_rows(db: &Connection) -> Result<Vec<([u8; 32], i64)>, StoreError> {
    let count = |table: &str| -> Result<i64, StoreError> {
        let sql = format!("SELECT count(*) FROM {table}");
        db.query_row(&sql, [], |row| row.get(0)).or_store_error()
    };
    // The counts almost always agree; then there is no second row to look for.
    if count("effect")? == count("key_index")? + count("key_middle")? + count("key_tail")? {
        return Ok(Vec::new());
    }
    let mut statement = db
        .prepare(
            "SELECT e.key, e.id FROM effect e WHERE
                 NOT EXISTS (SELECT 1 FROM key_index k
                     WHERE k.namespace = e.namespace AND k.prefix = substr(e.key, 1, 16) AND k.effect = e.id)
                 AND NOT EXISTS (SELECT 1 FROM key_middle k
                     WHERE k.namespace = e.namespace AND k.prefix = substr(e.key, 1, 16) AND k.effect = e.id)
                 AND NOT EXISTS (SELECT 1 FROM key_tail k
                     WHERE k.namespace = e.namespace AND k.prefix = substr(e.key, 1, 16) AND k.effect = e.id)
             ORDER BY e.id LIMIT ?1",
        )
        .or_store_error()?;
    let rows = statement
        .query_map([MAX_SECOND_ROWS], |row| Ok((row.get(0)?, row.get(1)?)))
        .or_store_error()?;
    rows.collect::<Result<_, _>>().or_store_error()
}

fn schema_objects(db: &Connection) -> Result<BTreeSet<String>, StoreError> {
    let sql = "SELECT type || ' ' || name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'";
    let mut statement = db.prepare(sql).or_store_error()?;
    let rows = statement.query_map([], |row| row.get(0)).or_store_error()?;
    rows.collect::<Result<_, _>>().or_store_error()
}
