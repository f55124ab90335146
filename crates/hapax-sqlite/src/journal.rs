//! Journal entries, tiles and heads as rows.

use std::collections::HashMap;

use hapax_core::attempt::AttemptId;
use hapax_core::journal::{Entry, EntryKind};
use hapax_core::key::Key;
use hapax_core::merkle::Hash;
use hapax_core::name::{Name, Namespace};
use hapax_core::time::Timestamp;
use hapax_store::{Head, JournalTxn, JournalView, SealedTile, StoreError};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::connection_cache::StatementCache;
use crate::effect::state_name;
use crate::error::{OrStoreError, decoded};
use crate::txn::SqliteTxn;

impl JournalView for SqliteTxn<'_> {
    fn entries(
        &mut self,
        of: Option<&Name>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let Some(name) = of else { return entries_after(self.db, after, limit) };
        let Some(namespace) = self.namespace(&name.namespace)? else { return Ok(Vec::new()) };
        let newest = self.cache.row(namespace, name.key)?;
        let newest = newest.map(|row| row.entry);
        entries_of(self.db, namespace, name.key, newest, after, limit)
    }

    fn leaf_entry(&mut self, leaf: u64) -> Result<Option<Entry>, StoreError> {
        one(self.db, leaf + 1)
    }

    fn leaf_of(&mut self, entry: u64) -> Result<Option<u64>, StoreError> {
        let sealed = self.newest_head()?.map_or(0, |head| head.size);
        Ok(entry.checked_sub(1).filter(|leaf| *leaf < sealed))
    }

    fn last_entry(&mut self) -> Result<u64, StoreError> {
        self.cache.last_entry()
    }

    fn unsealed(&mut self, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let sealed = self.newest_head()?.map_or(0, |head| head.size);
        entries_after(self.db, sealed, limit)
    }

    fn pending(&mut self) -> Result<u64, StoreError> {
        let sealed = self.newest_head()?.map_or(0, |head| head.size);
        Ok(self.last_entry()?.saturating_sub(sealed))
    }

    fn tile(&mut self, level: u32, index: u64) -> Result<Vec<Hash>, StoreError> {
        tile(self.db, level, index)
    }

    fn heads(&mut self, after: u64, limit: usize) -> Result<Vec<Head>, StoreError> {
        heads(self.db, after, limit)
    }

    fn newest_head(&mut self) -> Result<Option<Head>, StoreError> {
        newest_head(self.db)
    }
}

impl JournalTxn for SqliteTxn<'_> {
    fn next_entry(&mut self) -> Result<u64, StoreError> {
        Ok(self.last_entry()? + 1)
    }

    fn append(&mut self, entry: &Entry) -> Result<(), StoreError> {
        let name = Name { namespace: entry.namespace.clone(), key: entry.key };
        let id = self.namespace_or_new(&name.namespace)?;
        let loaded = self.cache.command_row(&name).map(|row| (row.number, row.entry));
        append(self.cache.statements(), id, loaded.and_then(|(_, newest)| newest), entry)?;
        self.cache.appended(entry);
        if let (EntryKind::Contradicted, Some((number, _))) = (entry.event, loaded) {
            // The record stays as it is; only its history has one more entry.
            self.cache.drop_running(&name);
            self.db
                .execute(
                    "UPDATE effect SET entry = ?1 WHERE id = ?2",
                    params![entry.id as i64, number],
                )
                .or_store_error()?;
        }
        Ok(())
    }

    fn put_head(&mut self, _: &[u64], tiles: &[SealedTile], head: &Head) -> Result<(), StoreError> {
        put_head(self.db, tiles, head)
    }
}

const COLUMNS: &str = "j.id, j.at, j.namespace, j.key, j.event, j.state, j.attempt, j.generation,
    j.digest, j.actor, j.note FROM journal j";

/// Appends an entry. SQLite numbers it, and another number than the entry's own is corruption.
fn append(
    statements: &mut StatementCache<'_>,
    namespace: i64,
    prev: Option<i64>,
    entry: &Entry,
) -> Result<(), StoreError> {
    let number = statements.append()?.insert(params![
        prev,
        entry.at.0,
        namespace,
        entry.key.as_bytes(),
        entry.event.code(),
        entry.state.code(),
        entry.attempt.as_bytes(),
        entry.generation,
        entry.digest,
        entry.actor,
        entry.note,
    ]);
    match number.or_store_error()? {
        number if number == entry.id as i64 => Ok(()),
        number => Err(StoreError::Corrupt(format!("entry {} became {number}", entry.id))),
    }
}

pub(crate) const APPEND: &str = "INSERT OR FAIL INTO journal (prev, at, namespace, key, event, state,
    attempt, generation, digest, actor, note) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

/// The fields that distinguish an entry from every other entry that could have its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryIdentity {
    pub(crate) id: i64,
    at: i64,
    event: u8,
    key: [u8; 32],
    attempt: [u8; 16],
}

impl EntryIdentity {
    pub(crate) fn of(entry: &Entry) -> Self {
        Self {
            id: entry.id as i64,
            at: entry.at.0,
            event: entry.event.code(),
            key: *entry.key.as_bytes(),
            attempt: *entry.attempt.as_bytes(),
        }
    }
}

/// The identity of the entry of this number, or of the newest entry.
pub(crate) fn identity(
    db: &Connection,
    id: Option<i64>,
) -> Result<Option<EntryIdentity>, StoreError> {
    let sql = match id {
        Some(_) => "SELECT id, at, event, key, attempt FROM journal WHERE id = ?1",
        None => "SELECT id, at, event, key, attempt FROM journal ORDER BY id DESC LIMIT 1",
    };
    let read = |row: &Row<'_>| {
        let (event, key, attempt) = (row.get(2)?, row.get(3)?, row.get(4)?);
        Ok(EntryIdentity { id: row.get(0)?, at: row.get(1)?, event, key, attempt })
    };
    let mut statement = db.prepare_cached(sql).or_store_error()?;
    match id {
        Some(id) => statement.query_row([id], read),
        None => statement.query_row([], read),
    }
    .optional()
    .or_store_error()
}

/// The number of the newest entry.
pub(crate) fn last(db: &Connection) -> Result<u64, StoreError> {
    db.prepare_cached("SELECT ifnull(max(id), 0) FROM journal")
        .or_store_error()?
        .query_row([], |row| row.get::<_, i64>(0))
        .map(|id| id as u64)
        .or_store_error()
}

fn entries_after(db: &Connection, after: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
    query(
        db,
        &format!("SELECT {COLUMNS} WHERE j.id > ?1 ORDER BY j.id LIMIT ?2"),
        params![after as i64, limit as i64],
    )
}

fn one(db: &Connection, id: u64) -> Result<Option<Entry>, StoreError> {
    Ok(query(db, &format!("SELECT {COLUMNS} WHERE j.id = ?1"), [id as i64])?.pop())
}

/// The entries of one effect, found by following them back from its newest. If the effect has no
/// row, or if records were ever swept, older entries are searched for as well.
fn entries_of(
    db: &Connection,
    namespace: i64,
    key: Key,
    newest: Option<i64>,
    after: u64,
    limit: usize,
) -> Result<Vec<Entry>, StoreError> {
    let mut chain = Vec::new();
    let mut next = newest;
    while let Some(id) = next {
        next = db
            .prepare_cached("SELECT prev FROM journal WHERE id = ?1")
            .or_store_error()?
            .query_row([id], |row| row.get(0))
            .or_store_error()?;
        chain.push(id);
    }
    chain.reverse();
    let swept: bool =
        db.query_row("SELECT swept > 0 FROM self", [], |row| row.get(0)).or_store_error()?;
    let mut found = Vec::new();
    if swept || newest.is_none() {
        let before = chain.first().copied().unwrap_or(i64::MAX);
        let sql = format!(
            "SELECT {COLUMNS} WHERE j.namespace = ?1 AND j.key = ?2 AND j.id > ?3 AND j.id < ?4
             ORDER BY j.id LIMIT ?5"
        );
        found = query(
            db,
            &sql,
            params![namespace, key.as_bytes(), after as i64, before, limit as i64],
        )?;
    }
    for id in chain.into_iter().filter(|id| *id as u64 > after) {
        if found.len() >= limit {
            break;
        }
        found.extend(one(db, id as u64)?);
    }
    Ok(found)
}

fn query(
    db: &Connection,
    sql: &str,
    params: impl rusqlite::Params,
) -> Result<Vec<Entry>, StoreError> {
    let names = namespaces(db)?;
    let mut statement = db.prepare_cached(sql).or_store_error()?;
    let rows = statement.query_map(params, |row| read(row, &names)).or_store_error()?;
    rows.collect::<rusqlite::Result<_>>().or_store_error()
}

/// The names of all namespaces, which are few and never change.
fn namespaces(db: &Connection) -> Result<HashMap<i64, Namespace>, StoreError> {
    let mut statement = db.prepare_cached("SELECT id, name FROM namespace").or_store_error()?;
    let rows = statement
        .query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))
        .or_store_error()?
        .collect::<rusqlite::Result<Vec<_>>>()
        .or_store_error()?;
    let name = |(id, name): (i64, String)| Some((id, Namespace::new(&name).ok()?));
    Ok(rows.into_iter().filter_map(name).collect())
}

fn read(row: &Row<'_>, names: &HashMap<i64, Namespace>) -> rusqlite::Result<Entry> {
    Ok(Entry {
        id: row.get::<_, i64>(0)? as u64,
        at: Timestamp(row.get(1)?),
        namespace: names.get(&row.get(2)?).cloned().ok_or_else(|| {
            let error = "not the number of a namespace".into();
            rusqlite::Error::FromSqlConversionFailure(2, Type::Integer, error)
        })?,
        key: Key::from_bytes(row.get(3)?),
        event: decoded(row, 4, "journal event", EntryKind::from_code)?,
        state: state_name(row, 5)?,
        attempt: AttemptId::from_bytes(row.get(6)?),
        generation: row.get(7)?,
        digest: row.get(8)?,
        actor: row.get(9)?,
        note: row.get(10)?,
    })
}

fn tile(db: &Connection, level: u32, index: u64) -> Result<Vec<Hash>, StoreError> {
    let hashes: Option<Vec<u8>> = db
        .prepare_cached("SELECT hashes FROM tile WHERE level = ?1 AND place = ?2")
        .or_store_error()?
        .query_row(params![level, index as i64], |row| row.get(0))
        .optional()
        .or_store_error()?;
    Ok(hashes.unwrap_or_default().as_chunks().0.to_vec())
}

fn put_head(db: &Connection, tiles: &[SealedTile], head: &Head) -> Result<(), StoreError> {
    let mut put = db
        .prepare_cached(
            "INSERT INTO tile (level, place, hashes) VALUES (?1, ?2, ?3)
             ON CONFLICT DO UPDATE SET hashes = excluded.hashes",
        )
        .or_store_error()?;
    for tile in tiles {
        put.execute(params![tile.level, tile.index as i64, tile.hashes.as_flattened()])
            .or_store_error()?;
    }
    db.prepare_cached("INSERT INTO head (size, note) VALUES (?1, ?2)")
        .or_store_error()?
        .execute(params![head.size as i64, head.note])
        .or_store_error()?;
    Ok(())
}

fn heads(db: &Connection, after: u64, limit: usize) -> Result<Vec<Head>, StoreError> {
    let mut statement = db
        .prepare_cached("SELECT size, note FROM head WHERE size > ?1 ORDER BY size LIMIT ?2")
        .or_store_error()?;
    let rows =
        statement.query_map(params![after as i64, limit as i64], read_head).or_store_error()?;
    rows.collect::<rusqlite::Result<_>>().or_store_error()
}

fn newest_head(db: &Connection) -> Result<Option<Head>, StoreError> {
    db.prepare_cached("SELECT size, note FROM head ORDER BY size DESC LIMIT 1")
        .or_store_error()?
        .query_row([], read_head)
        .optional()
        .or_store_error()
}

fn read_head(row: &Row<'_>) -> rusqlite::Result<Head> {
    Ok(Head { size: row.get::<_, i64>(0)? as u64, note: row.get(1)? })
}
