//! The tree over the journal, and its signed heads, as rows.

use std::collections::HashMap;

use hapax_core::merkle::{Hash, TILE};
use hapax_store::{Head, SealedTile};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connect::Link;
use crate::error::PgFailure;

pub(super) fn tile(link: &Link, level: u32, index: u64) -> Result<Vec<Hash>, PgFailure> {
    let rows = link.query(
        "SELECT hashes FROM hapax.tile WHERE level = $1 AND place = $2",
        &[(&(level as i32), Type::INT4), (&(index as i64), Type::INT8)],
    )?;
    let Some(row) = rows.first() else { return Ok(Vec::new()) };
    Ok(row.try_get::<_, &[u8]>(0)?.as_chunks().0.to_vec())
}

/// Makes these entries leaves, in this order.
pub(super) fn put_head(
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
    link.execute(include_str!("../sql/sealing.sql"), &[(&leaves, Type::INT8_ARRAY)])?;
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

pub(super) fn heads(link: &Link, after: u64, limit: usize) -> Result<Vec<Head>, PgFailure> {
    let rows = link.query(
        "SELECT size, note FROM hapax.head WHERE size > $1 ORDER BY size LIMIT $2",
        &[(&(after as i64), Type::INT8), (&(limit as i64), Type::INT8)],
    )?;
    rows.iter().map(read_head).collect()
}

/// The newest head. With `lock`, the caller is about to add one: it locks the row of `hapax.sealing`, so
/// that there is one sealer at a time.
pub(super) fn newest_head(link: &Link, lock: bool) -> Result<Option<Head>, PgFailure> {
    if lock {
        link.query("SELECT 1 FROM hapax.sealing FOR UPDATE", &[])?;
    }
    let rows = link.query("SELECT size, note FROM hapax.head ORDER BY size DESC LIMIT 1", &[])?;
    rows.first().map(read_head).transpose()
}

fn read_head(row: &Row) -> Result<Head, PgFailure> {
    Ok(Head { size: row.try_get::<_, i64>(0)? as u64, note: row.try_get(1)? })
}
