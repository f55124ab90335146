//! Journal entries as rows.

use std::ops::Range;

use hapax_core::attempt::AttemptId;
use hapax_core::journal::{Entry, EntryKind};
use hapax_core::key::Key;
use hapax_core::merkle::Hash;
use hapax_core::name::{Name, Namespace};
use hapax_core::planted::{Bug, planted};
use hapax_core::time::Timestamp;
use hapax_store::{Head, JournalTxn, JournalView, SealedTile, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connect::{Link, Param};
use crate::effect::{EffectRow, EffectRowKey, bytes, state_name};
use crate::error::{PgFailure, decoded};
use crate::txn::{Access, PgTxn};

mod tree;

impl JournalView for PgTxn<'_> {
    fn entries(
        &mut self,
        of: Option<&Name>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let entries = match of {
            None => entries_after(self.link, after, limit),
            Some(name) => self.row_key(name).and_then(|row_key| match row_key {
                Some(row_key) => entries_of(self.link, row_key, after, limit),
                None => Ok(Vec::new()),
            }),
        };
        self.keep_failure(entries)
    }

    fn leaf_entry(&mut self, leaf: u64) -> Result<Option<Entry>, StoreError> {
        Ok(self.leaf_entries(leaf, 1)?.pop().flatten())
    }

    fn leaf_entries(&mut self, first: u64, count: u64) -> Result<Vec<Option<Entry>>, StoreError> {
        self.keep_failure(leaves(self.link, first, count))
    }

    fn archived(&mut self) -> Result<Vec<Range<u64>>, StoreError> {
        self.keep_failure(archived(self.link))
    }

    fn leaf_of(&mut self, entry: u64) -> Result<Option<u64>, StoreError> {
        self.keep_failure(leaf_of(self.link, entry))
    }

    fn last_entry(&mut self) -> Result<u64, StoreError> {
        self.keep_failure(last(self.link))
    }

    fn unsealed(&mut self, limit: usize) -> Result<Vec<Entry>, StoreError> {
        self.keep_failure(unsealed(self.link, limit))
    }

    fn pending(&mut self) -> Result<u64, StoreError> {
        self.keep_failure(pending(self.link))
    }

    fn tile(&mut self, level: u32, index: u64) -> Result<Vec<Hash>, StoreError> {
        self.keep_failure(tree::tile(self.link, level, index))
    }

    fn heads(&mut self, after: u64, limit: usize) -> Result<Vec<Head>, StoreError> {
        self.keep_failure(tree::heads(self.link, after, limit))
    }

    fn newest_head(&mut self) -> Result<Option<Head>, StoreError> {
        let lock = self.access != Access::ReadOnly;
        self.keep_failure(tree::newest_head(self.link, lock))
    }
}

impl JournalTxn for PgTxn<'_> {
    fn next_entry(&mut self) -> Result<u64, StoreError> {
        if self.entry_numbers.is_empty() {
            let numbers = self.keep_failure(take_entry_numbers(self.link, 1))?;
            self.entry_numbers.extend(numbers);
        }
        let none = || StoreError::Corrupt("no number for an entry".into());
        self.entry_numbers.pop_front().ok_or_else(none)
    }

    fn append(&mut self, entry: &Entry) -> Result<(), StoreError> {
        let appended = self.try_append(entry);
        self.keep_failure(appended)
    }

    fn put_head(
        &mut self,
        leaves: &[u64],
        tiles: &[SealedTile],
        head: &Head,
    ) -> Result<(), StoreError> {
        self.keep_failure(tree::put_head(self.link, leaves, tiles, head))
    }
}

impl PgTxn<'_> {
    fn try_append(&mut self, entry: &Entry) -> Result<(), PgFailure> {
        let row_key = (self.namespace(&entry.namespace)?, entry.key);
        let before = self.row(row_key)?.cloned();
        let prev = before.as_ref().map(|row| row.entry);
        self.staged.entries.push(NewEntry { namespace: row_key.0, prev, entry: entry.clone() });
        if let (EntryKind::Contradicted, Some(row)) = (entry.event, before) {
            // The record stays as it is; only its history has one more entry.
            self.staged.effects.insert(row_key, EffectRow { entry: entry.id, ..row });
        }
        Ok(())
    }
}

macro_rules! entry_columns {
    () => {
        "j.id, j.at, j.namespace, j.key, j.event, j.state, j.attempt, j.generation, j.digest,
         j.actor, j.note"
    };
}

const SELECT: &str = concat!(
    "SELECT n.name, ",
    entry_columns!(),
    " FROM hapax.journal j JOIN hapax.namespace n ON n.id = j.namespace"
);

/// Takes the next entry numbers.
pub(crate) fn take_entry_numbers(link: &Link, count: usize) -> Result<Vec<u64>, PgFailure> {
    let rows = link.query_prepared((
        "SELECT hapax.next_entry() FROM generate_series(1, $1::int)",
        &[(&(count as i32), Type::INT4)],
    ))?;
    rows.iter().map(|row| Ok(row.try_get::<_, i64>(0)? as u64)).collect()
}

/// An entry to be written.
pub(crate) struct NewEntry {
    pub(crate) namespace: i32,
    /// The entry before it of the same effect.
    pub(crate) prev: Option<u64>,
    pub(crate) entry: Entry,
}

pub(crate) fn append(link: &Link, new_entries: &[NewEntry]) -> Result<(), PgFailure> {
    if new_entries.is_empty() {
        return Ok(());
    }
    let entries = || new_entries.iter().map(|new| &new.entry);
    let id: Vec<i64> = entries().map(|entry| entry.id as i64).collect();
    let prev: Vec<_> = new_entries.iter().map(|new| new.prev.map(|prev| prev as i64)).collect();
    let at: Vec<i64> = entries().map(|entry| entry.at.0).collect();
    let namespace: Vec<i32> = new_entries.iter().map(|new| new.namespace).collect();
    let generation: Vec<i32> = entries().map(|entry| entry.generation as i32).collect();
    let event: Vec<i16> = entries().map(|entry| entry.event.code().into()).collect();
    let state: Vec<i16> = entries().map(|entry| entry.state.code().into()).collect();
    let key: Vec<&[u8]> = entries().map(|entry| &entry.key.as_bytes()[..]).collect();
    let attempt: Vec<&[u8]> = entries().map(|entry| &entry.attempt.as_bytes()[..]).collect();
    let digest: Vec<_> = entries().map(|entry| entry.digest.as_ref().map(|d| &d[..])).collect();
    let actor: Vec<_> = entries().map(|entry| entry.actor.as_deref()).collect();
    let note: Vec<_> = entries().map(|entry| entry.note.as_deref()).collect();
    link.query_prepared((
        "INSERT INTO hapax.journal (id, prev, at, namespace, generation, event, state, key,
             attempt, digest, actor, note)
         SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::int[], $5::int[],
             $6::smallint[], $7::smallint[], $8::bytea[], $9::bytea[], $10::bytea[],
             $11::text[], $12::text[])",
        &[
            (&id, Type::INT8_ARRAY),
            (&prev, Type::INT8_ARRAY),
            (&at, Type::INT8_ARRAY),
            (&namespace, Type::INT4_ARRAY),
            (&generation, Type::INT4_ARRAY),
            (&event, Type::INT2_ARRAY),
            (&state, Type::INT2_ARRAY),
            (&key, Type::BYTEA_ARRAY),
            (&attempt, Type::BYTEA_ARRAY),
            (&digest, Type::BYTEA_ARRAY),
            (&actor, Type::TEXT_ARRAY),
            (&note, Type::TEXT_ARRAY),
        ],
    ))?;
    Ok(())
}

/// Makes partitions ahead of time, where they are missing.
pub(crate) fn make_partitions(link: &Link) -> Result<(), PgFailure> {
    link.query_prepared(("SELECT hapax.make_partitions()", &[])).map(|_| ())
}

fn last(link: &Link) -> Result<u64, PgFailure> {
    let row = link.one("SELECT coalesce(max(id), 0) FROM hapax.journal", &[])?;
    Ok(row.try_get::<_, i64>(0)? as u64)
}

fn entries_after(link: &Link, after: u64, limit: usize) -> Result<Vec<Entry>, PgFailure> {
    let sql = format!("{SELECT} WHERE j.id > $1 ORDER BY j.id LIMIT $2");
    query(link, &sql, &[(&(after as i64), Type::INT8), (&(limit as i64), Type::INT8)])
}

/// The entries of one effect, found by the chain that leads back from the newest. If effects were
/// ever swept, or this one has no chain, the journal is searched as well.
fn entries_of(
    link: &Link,
    (namespace, key): EffectRowKey,
    after: u64,
    limit: usize,
) -> Result<Vec<Entry>, PgFailure> {
    let sql = format!(
        "WITH RECURSIVE chain AS (
             SELECT j.id, j.prev FROM hapax.effect e JOIN hapax.journal j ON j.id = e.entry
             WHERE e.namespace = $1 AND e.key = $2
             UNION ALL
             SELECT j.id, j.prev FROM chain c JOIN hapax.journal j ON j.id = c.prev
         ), found AS (
             SELECT id FROM chain
             UNION
             SELECT j.id FROM hapax.journal j, hapax.self s
             WHERE (s.swept > 0 OR NOT EXISTS (SELECT 1 FROM chain))
                 AND j.namespace = $1 AND j.key = $2 AND j.id > $3
         )
         {SELECT} JOIN found f ON f.id = j.id WHERE j.id > $3 ORDER BY j.id LIMIT $4"
    );
    let key = &key.as_bytes()[..];
    query(
        link,
        &sql,
        &[
            (&namespace, Type::INT4),
            (&key, Type::BYTEA),
            (&(after as i64), Type::INT8),
            (&(limit as i64), Type::INT8),
        ],
    )
}

/// The first entries that are no leaves yet: those that appeared in gaps, then those above every
/// leaf. The latter have a limit of their own, so that the index yields them in its order and no more
/// than are wanted.
const UNSEALED: &str = "(
    SELECT j.* FROM hapax.sealing s, unnest(s.gaps) AS g (r), LATERAL (
        SELECT j.* FROM hapax.journal j WHERE j.id >= lower(g.r) AND j.id < upper(g.r) OFFSET 0) j
    UNION ALL
    (SELECT j.* FROM hapax.journal j WHERE j.id > (SELECT sealed FROM hapax.sealing)
     ORDER BY j.id LIMIT $1)
)";

fn unsealed_entries() -> &'static str {
    const ABOVE: &str = "(SELECT j.* FROM hapax.journal j
        WHERE j.id > (SELECT sealed FROM hapax.sealing) ORDER BY j.id LIMIT $1)";
    if planted(Bug::IdCursor) { ABOVE } else { UNSEALED }
}

fn unsealed(link: &Link, limit: usize) -> Result<Vec<Entry>, PgFailure> {
    let sql = format!(
        "SELECT n.name, {} FROM {} j JOIN hapax.namespace n ON n.id = j.namespace
         ORDER BY j.id LIMIT $1",
        entry_columns!(),
        unsealed_entries()
    );
    query(link, &sql, &[(&(limit as i64), Type::INT8)])
}

fn pending(link: &Link) -> Result<u64, PgFailure> {
    let sql = format!("SELECT count(*) FROM {} j", unsealed_entries());
    let row = link.one(&sql, &[(&i64::MAX, Type::INT8)])?;
    Ok(row.try_get::<_, i64>(0)? as u64)
}

/// The entries of consecutive leaves; `None` where one is missing or cannot be read.
pub(crate) fn leaves(link: &Link, first: u64, count: u64) -> Result<Vec<Option<Entry>>, PgFailure> {
    let sql = format!(
        "SELECT t.place * 256 + u.nth - 1 AS leaf, n.name, {}
         FROM hapax.tile t, unnest(t.entries) WITH ORDINALITY AS u (entry, nth)
         JOIN hapax.journal j ON j.id = u.entry JOIN hapax.namespace n ON n.id = j.namespace
         WHERE t.level = 0 AND t.place BETWEEN $1 / 256 AND ($2 - 1) / 256
             AND t.place * 256 + u.nth - 1 >= $1 AND t.place * 256 + u.nth - 1 < $2",
        entry_columns!()
    );
    let ends = ((first as i64), (first + count) as i64);
    let rows = link.query(&sql, &[(&ends.0, Type::INT8), (&ends.1, Type::INT8)])?;
    let mut found = vec![None; count as usize];
    for row in rows {
        let leaf = row.try_get::<_, i64>("leaf")? as u64;
        if let Some(slot) = found.get_mut((leaf - first) as usize) {
            *slot = read(&row).ok();
        }
    }
    Ok(found)
}

/// The leaves of detached partitions.
fn archived(link: &Link) -> Result<Vec<std::ops::Range<u64>>, PgFailure> {
    let sql = "SELECT lower(r), upper(r) FROM hapax.archive a, unnest(a.leaves) AS r ORDER BY 1";
    let rows = link.query(sql, &[])?;
    rows.iter()
        .map(|row| Ok(row.try_get::<_, i64>(0)? as u64..row.try_get::<_, i64>(1)? as u64))
        .collect()
}

/// The leaf of this entry, if it is sealed.
fn leaf_of(link: &Link, entry: u64) -> Result<Option<u64>, PgFailure> {
    let rows = link.query(
        "SELECT place * 256 + array_position(entries, $1) - 1 FROM hapax.tile
         WHERE level = 0 AND least <= $1 AND greatest >= $1 AND $1 = ANY (entries)",
        &[(&(entry as i64), Type::INT8)],
    )?;
    rows.first().map(|row| Ok(row.try_get::<_, i64>(0)? as u64)).transpose()
}

fn query(link: &Link, sql: &str, params: &[Param<'_>]) -> Result<Vec<Entry>, PgFailure> {
    link.query(sql, params)?.iter().map(read).collect()
}

fn read(row: &Row) -> Result<Entry, PgFailure> {
    let corrupt = || StoreError::Corrupt("an entry has a digest of another length".into());
    let digest = row.try_get::<_, Option<&[u8]>>("digest")?;
    let digest = digest.map(<[u8; 32]>::try_from).transpose();
    Ok(Entry {
        id: row.try_get::<_, i64>("id")? as u64,
        at: Timestamp(row.try_get("at")?),
        namespace: Namespace::new(row.try_get("name")?)
            .map_err(|error| StoreError::Corrupt(error.to_string()))?,
        key: Key::from_bytes(bytes(row, "key")?),
        event: decoded(row.try_get("event")?, "journal event", EntryKind::from_code)?,
        state: state_name(row.try_get("state")?)?,
        attempt: AttemptId::from_bytes(bytes(row, "attempt")?),
        generation: row.try_get::<_, i32>("generation")? as u32,
        digest: digest.map_err(|_| corrupt())?,
        actor: row.try_get("actor")?,
        note: row.try_get("note")?,
    })
}
