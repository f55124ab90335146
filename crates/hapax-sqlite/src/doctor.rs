//! Looking for what is missing in a file.

use std::collections::BTreeSet;

use hapax_store::StoreError;
use rusqlite::Connection;

use crate::connection::{SCHEMA, number};
use crate::effect;
use crate::error::OrStoreError;
use crate::store::SqliteStore;

/// What is not as it should be in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ailment {
    /// An index, a trigger or a view that the schema has, and the file has not.
    Missing(String),
    /// How many of a hundred pages are empty.
    Bloated(i64),
    /// A row that is not found by its key, because another row of that key is. Made by a version that
    /// let a second row in.
    SecondRow {
        /// The key.
        key: String,
        /// The number of the row that is not found.
        effect: i64,
    },
}

/// From how many empty pages of a hundred on it is worth a word, in files that are not small.
const EMPTY: i64 = 60;
const SMALL: i64 = 10_000;

impl SqliteStore {
    /// Compares the file with the schema, and looks for empty pages.
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
    /// Makes right what can be: removes rows that are not found by their keys, and indexes those whose
    /// key is in no index. What happened to them stays in the journal. Returns how many.
    pub fn repair(&self) -> Result<usize, StoreError> {
        let mut db = self.connection()?;
        let tx = db.transaction().or_store_error()?;
        let missing = tx
            .execute(
                "INSERT OR IGNORE INTO key_tail (namespace, half, effect)
                 SELECT namespace, substr(key, 1, 16), id FROM effect e WHERE NOT EXISTS (
                     SELECT 1 FROM key_index k WHERE k.namespace = e.namespace AND k.half = substr(e.key, 1, 16))
                 AND NOT EXISTS (
                     SELECT 1 FROM key_middle k WHERE k.namespace = e.namespace AND k.half = substr(e.key, 1, 16))
                 AND NOT EXISTS (
                     SELECT 1 FROM key_tail k WHERE k.namespace = e.namespace AND k.half = substr(e.key, 1, 16))
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

/// Effects that their keys do not lead to, at most so many.
const SHOWN: i64 = 100;

fn second_rows(db: &Connection) -> Result<Vec<([u8; 32], i64)>, StoreError> {
    let count = |table: &str| -> Result<i64, StoreError> {
        let sql = format!("SELECT count(*) FROM {table}");
        db.query_row(&sql, [], |row| row.get(0)).or_store_error()
    };
    // Almost always as many as there should be, and then none has to be looked for.
    if count("effect")? == count("key_index")? + count("key_middle")? + count("key_tail")? {
        return Ok(Vec::new());
    }
    let mut statement = db
        .prepare(
            "SELECT e.key, e.id FROM effect e WHERE
                 NOT EXISTS (SELECT 1 FROM key_index k
                     WHERE k.namespace = e.namespace AND k.half = substr(e.key, 1, 16) AND k.effect = e.id)
                 AND NOT EXISTS (SELECT 1 FROM key_middle k
                     WHERE k.namespace = e.namespace AND k.half = substr(e.key, 1, 16) AND k.effect = e.id)
                 AND NOT EXISTS (SELECT 1 FROM key_tail k
                     WHERE k.namespace = e.namespace AND k.half = substr(e.key, 1, 16) AND k.effect = e.id)
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
