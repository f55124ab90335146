//! Finding and repairing the flaws of a file.

use std::collections::BTreeSet;

use hapax_store::StoreError;
use rusqlite::Connection;

use crate::connection::number;
use crate::effect;
use crate::error::OrStoreError;
use crate::migrate::SCHEMA;
use crate::store::SqliteStore;

/// A flaw of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ailment {
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
const EMPTY: i64 = 60;
const SMALL: i64 = 10_000;

impl SqliteStore {
    /// Compares the file with the schema, and looks for second rows and empty pages.
    pub fn examine(&self) -> Result<Vec<Ailment>, StoreError> {
        let fresh = Connection::open_in_memory().or_store_error()?;
        fresh.execute_batch(SCHEMA).or_store_error()?;
        let db = self.connection()?;
        let there = parts(&db)?;
        let missing = parts(&fresh)?.into_iter().filter(|part| !there.contains(part));
        let mut ailments: Vec<Ailment> = missing.map(Ailment::Missing).collect();
        ailments.extend(second_rows(&db)?.into_iter().map(|(key, effect)| {
            let key = hapax_core::key::Key::from_bytes(key).to_string();
            Ailment::SecondRow { key, effect }
        }));
        let (pages, empty) = (number(&db, "page_count")?, number(&db, "freelist_count")?);
        let share = empty * 100 / pages.max(1);
        if pages > SMALL && share >= EMPTY {
            ailments.push(Ailment::Bloated(share));
        }
        Ok(ailments)
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
const SHOWN: i64 = 100;

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
    let rows =
        statement.query_map([SHOWN], |row| Ok((row.get(0)?, row.get(1)?))).or_store_error()?;
    rows.collect::<Result<_, _>>().or_store_error()
}

fn parts(db: &Connection) -> Result<BTreeSet<String>, StoreError> {
    let sql = "SELECT type || ' ' || name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'";
    let mut statement = db.prepare(sql).or_store_error()?;
    let rows = statement.query_map([], |row| row.get(0)).or_store_error()?;
    rows.collect::<Result<_, _>>().or_store_error()
}
