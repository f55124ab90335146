//! Journal entries, tiles and heads as rows.

use std::collections::HashMap;

use hapax_core::attempt::AttemptId;
use hapax_core::journal::{Entry, Event};
use hapax_core::key::Key;
use hapax_core::merkle::{Hash, TILE};
use hapax_core::name::Namespace;
use hapax_core::planted::{Bug, planted};
use hapax_core::time::Timestamp;
use hapax_store::{Head, SealedTile, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connect::{Link, Param};
use crate::effect::{EffectRow, bytes, state_name};
use crate::error::{PgFailure, decoded};

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
pub(crate) fn numbers(link: &Link, count: usize) -> Result<Vec<u64>, PgFailure> {
    let rows = link.often((
        "SELECT hapax.next_entry() FROM generate_series(1, $1::int)",
        &[(&(count as i32), Type::INT4)],
    ))?;
    rows.iter().map(|row| Ok(row.try_get::<_, i64>(0)? as u64)).collect()
}

/// An entry to be written.
pub(crate) struct Note {
    pub(crate) namespace: i32,
    /// The entry before it of the same effect.
    pub(crate) prev: Option<u64>,
    pub(crate) entry: Entry,
}

pub(crate) fn append(link: &Link, notes: &[Note]) -> Result<(), PgFailure> {
    if notes.is_empty() {
        return Ok(());
    }
    let entries = || notes.iter().map(|note| &note.entry);
    let id: Vec<i64> = entries().map(|entry| entry.id as i64).collect();
    let prev: Vec<_> = notes.iter().map(|note| note.prev.map(|prev| prev as i64)).collect();
    let at: Vec<i64> = entries().map(|entry| entry.at.0).collect();
    let namespace: Vec<i32> = notes.iter().map(|note| note.namespace).collect();
    let generation: Vec<i32> = entries().map(|entry| entry.generation as i32).collect();
    let event: Vec<i16> = entries().map(|entry| entry.event.code().into()).collect();
    let state: Vec<i16> = entries().map(|entry| entry.state.code().into()).collect();
    let key: Vec<&[u8]> = entries().map(|entry| &entry.key.as_bytes()[..]).collect();
    let attempt: Vec<&[u8]> = entries().map(|entry| &entry.attempt.as_bytes()[..]).collect();
    let digest: Vec<_> = entries().map(|entry| entry.digest.as_ref().map(|d| &d[..])).collect();
    let actor: Vec<_> = entries().map(|entry| entry.actor.as_deref()).collect();
    let note: Vec<_> = entries().map(|entry| entry.note.as_deref()).collect();
    link.often((
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
    link.often(("SELECT hapax.make_partitions()", &[])).map(|_| ())
}

pub(crate) fn last(link: &Link) -> Result<u64, PgFailure> {
    let row = link.one("SELECT coalesce(max(id), 0) FROM hapax.journal", &[])?;
    Ok(row.try_get::<_, i64>(0)? as u64)
}

pub(crate) fn after(link: &Link, after: u64, limit: usize) -> Result<Vec<Entry>, PgFailure> {
    let sql = format!("{SELECT} WHERE j.id > $1 ORDER BY j.id LIMIT $2");
    query(link, &sql, &[(&(after as i64), Type::INT8), (&(limit as i64), Type::INT8)])
}

/// The entries of one effect, found by the chain that leads back from the newest. If effects were
/// ever swept, or this one has no chain, the journal is searched as well.
pub(crate) fn of(
    link: &Link,
    (namespace, key): EffectRow,
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

pub(crate) fn unsealed(link: &Link, limit: usize) -> Result<Vec<Entry>, PgFailure> {
    let sql = format!(
        "SELECT n.name, {} FROM {} j JOIN hapax.namespace n ON n.id = j.namespace
         ORDER BY j.id LIMIT $1",
        entry_columns!(),
        unsealed_entries()
    );
    query(link, &sql, &[(&(limit as i64), Type::INT8)])
}

pub(crate) fn pending(link: &Link) -> Result<u64, PgFailure> {
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
        if let Some(place) = found.get_mut((leaf - first) as usize) {
            *place = read(&row).ok();
        }
    }
    Ok(found)
}

/// The leaves of detached partitions.
pub(crate) fn archived(link: &Link) -> Result<Vec<std::ops::Range<u64>>, PgFailure> {
    let sql = "SELECT lower(r), upper(r) FROM hapax.archive a, unnest(a.leaves) AS r ORDER BY 1";
    let rows = link.query(sql, &[])?;
    rows.iter()
        .map(|row| Ok(row.try_get::<_, i64>(0)? as u64..row.try_get::<_, i64>(1)? as u64))
        .collect()
}

/// The leaf of this entry, if it is sealed.
pub(crate) fn leaf_of(link: &Link, entry: u64) -> Result<Option<u64>, PgFailure> {
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
        event: decoded(row.try_get("event")?, "journal event", Event::from_code)?,
        state: state_name(row.try_get("state")?)?,
        attempt: AttemptId::from_bytes(bytes(row, "attempt")?),
        generation: row.try_get::<_, i32>("generation")? as u32,
        digest: digest.map_err(|_| corrupt())?,
        actor: row.try_get("actor")?,
        note: row.try_get("note")?,
    })
}

pub(crate) fn tile(link: &Link, level: u32, place: u64) -> Result<Vec<Hash>, PgFailure> {
    let rows = link.query(
        "SELECT hashes FROM hapax.tile WHERE level = $1 AND place = $2",
        &[(&(level as i32), Type::INT4), (&(place as i64), Type::INT8)],
    )?;
    let Some(row) = rows.first() else { return Ok(Vec::new()) };
    Ok(row.try_get::<_, &[u8]>(0)?.as_chunks().0.to_vec())
}

/// Makes these entries leaves, in this order.
pub(crate) fn put_head(
    link: &Link,
    leaves: &[u64],
    tiles: &[SealedTile],
    head: &Head,
) -> Result<(), PgFailure> {
    let mut entries = leaves_by_tile(link, leaves, head.size)?;
    for tile in tiles {
        let entries = if tile.level == 0 { entries.remove(&tile.index) } else { None };
        link.execute(
            "INSERT INTO hapax.tile (level, place, hashes, entries, least, greatest)
             SELECT $1, $2, $3, $4, min(e), max(e) FROM unnest($4::bigint[]) AS u (e)
             ON CONFLICT (level, place) DO UPDATE SET hashes = excluded.hashes,
                 entries = excluded.entries, least = excluded.least, greatest = excluded.greatest",
            &[
                (&(tile.level as i32), Type::INT4),
                (&(tile.index as i64), Type::INT8),
                (&tile.hashes.as_flattened(), Type::BYTEA),
                (&entries, Type::INT8_ARRAY),
            ],
        )?;
    }
    link.execute(
        "INSERT INTO hapax.head (size, note) VALUES ($1, $2)",
        &[(&(head.size as i64), Type::INT8), (&head.note, Type::TEXT)],
    )?;
    let leaves: Vec<i64> = leaves.iter().map(|leaf| *leaf as i64).collect();
    link.execute(include_str!("sql/sealing.sql"), &[(&leaves, Type::INT8_ARRAY)])?;
    Ok(())
}

/// The entries of each level-0 tile that grows, old and new.
fn leaves_by_tile(
    link: &Link,
    leaves: &[u64],
    size: u64,
) -> Result<HashMap<u64, Vec<i64>>, PgFailure> {
    let from = size - leaves.len() as u64;
    let rows = link.query(
        "SELECT entries FROM hapax.tile WHERE level = 0 AND place = $1",
        &[(&((from / TILE) as i64), Type::INT8)],
    )?;
    let mut tiles: HashMap<u64, Vec<i64>> = HashMap::new();
    if let Some(row) = rows.first() {
        tiles.insert(from / TILE, row.try_get(0)?);
    }
    for (leaf, entry) in (from..).zip(leaves) {
        tiles.entry(leaf / TILE).or_default().push(*entry as i64);
    }
    Ok(tiles)
}

pub(crate) fn heads(link: &Link, after: u64, limit: usize) -> Result<Vec<Head>, PgFailure> {
    let rows = link.query(
        "SELECT size, note FROM hapax.head WHERE size > $1 ORDER BY size LIMIT $2",
        &[(&(after as i64), Type::INT8), (&(limit as i64), Type::INT8)],
    )?;
    rows.iter().map(read_head).collect()
}

/// The newest head. With `lock`, the caller is about to add one and holds the store's own row, so
/// that there is one sealer at a time.
pub(crate) fn newest_head(link: &Link, lock: bool) -> Result<Option<Head>, PgFailure> {
    if lock {
        link.query("SELECT 1 FROM hapax.sealing FOR UPDATE", &[])?;
    }
    let rows = link.query("SELECT size, note FROM hapax.head ORDER BY size DESC LIMIT 1", &[])?;
    rows.first().map(read_head).transpose()
}

fn read_head(row: &Row) -> Result<Head, PgFailure> {
    Ok(Head { size: row.try_get::<_, i64>(0)? as u64, note: row.try_get(1)? })
}
