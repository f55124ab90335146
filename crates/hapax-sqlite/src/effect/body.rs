//! Outcomes that are too large for the row of their effect: compressed, and stored once.

use hapax_core::outcome::{Digest, Outcome};
use hapax_store::StoreError;
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::error::OrStoreError;

/// Outcomes above this size are compressed and stored once, however many effects share them.
pub(super) const MAX_INLINE: usize = 64 * 1024;

/// Stores a large body once; `None` if the body was not kept.
pub(super) fn store(db: &Connection, outcome: &Outcome) -> Result<Option<i64>, StoreError> {
    let Some(body) = outcome.body() else { return Ok(None) };
    let digest = *outcome.digest().as_bytes();
    let known = db
        .prepare_cached("SELECT id FROM body WHERE digest = ?1")
        .or_store_error()?
        .query_row([digest], |row| row.get(0))
        .optional()
        .or_store_error()?;
    if known.is_some() {
        return Ok(known);
    }
    db.prepare_cached("INSERT INTO body (digest, size, lz4) VALUES (?1, ?2, ?3)")
        .or_store_error()?
        .execute(params![digest, body.len() as i64, lz4_flex::block::compress(body)])
        .or_store_error()?;
    Ok(Some(db.last_insert_rowid()))
}

/// The body of this number, which has to have its digest.
pub(super) fn load(db: &Connection, id: i64) -> Result<Vec<u8>, StoreError> {
    let (size, digest, lz4): (i64, [u8; 32], Vec<u8>) = db
        .prepare_cached("SELECT size, digest, lz4 FROM body WHERE id = ?1")
        .or_store_error()?
        .query_row([id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .or_store_error()?;
    lz4_flex::block::decompress(&lz4, size as usize)
        .ok()
        .filter(|body| Digest::of(body) == Digest::from_bytes(digest))
        .ok_or_else(|| StoreError::Corrupt(format!("body {id} is not what its digest says")))
}
