//! Looking for what is missing in a file.

use std::collections::BTreeSet;

use hapax_store::StoreError;
use rusqlite::Connection;

use crate::connection::{SCHEMA, number};
use crate::error::OrStoreError;
use crate::store::SqliteStore;

/// What is not as it should be in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ailment {
    /// An index, a trigger or a view that the schema has, and the file has not.
    Missing(String),
    /// How many of a hundred pages are empty.
    Bloated(i64),
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
        let (pages, empty) = (number(&db, "page_count")?, number(&db, "freelist_count")?);
        let share = empty * 100 / pages.max(1);
        if pages > SMALL && share >= EMPTY {
            ailments.push(Ailment::Bloated(share));
        }
        Ok(ailments)
    }
}

fn parts(db: &Connection) -> Result<BTreeSet<String>, StoreError> {
    let sql = "SELECT type || ' ' || name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'";
    let mut statement = db.prepare(sql).or_store_error()?;
    let rows = statement.query_map([], |row| row.get(0)).or_store_error()?;
    rows.collect::<Result<_, _>>().or_store_error()
}
