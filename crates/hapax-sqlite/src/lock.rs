//! Locks as rows.

use hapax_core::attempt::AttemptId;
use hapax_core::key::Key;
use hapax_core::lock::{Lock, LockKey};
use hapax_store::StoreError;
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::error::OrStoreError;

pub(crate) fn load(
    db: &Connection,
    namespace: i64,
    key: LockKey,
) -> Result<Option<Lock>, StoreError> {
    db.prepare_cached("SELECT holder, attempt FROM lock WHERE namespace = ?1 AND lock = ?2")
        .or_store_error()?
        .query_row(params![namespace, key.0 as i64], |row| {
            let (holder, attempt) =
                (Key::from_bytes(row.get(0)?), AttemptId::from_bytes(row.get(1)?));
            Ok(Lock { key, holder, attempt })
        })
        .optional()
        .or_store_error()
}

pub(crate) fn put(db: &Connection, namespace: i64, lock: &Lock) -> Result<(), StoreError> {
    let (holder, attempt) = (lock.holder.as_bytes(), lock.attempt.as_bytes());
    db.prepare_cached(
        "INSERT INTO lock (namespace, lock, holder, attempt) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT DO UPDATE SET holder = ?3, attempt = ?4",
    )
    .or_store_error()?
    .execute(params![namespace, lock.key.0 as i64, holder, attempt])
    .or_store_error()?;
    Ok(())
}

/// Releases a lock, if this attempt holds it.
pub(crate) fn release(
    db: &Connection,
    namespace: i64,
    key: LockKey,
    attempt: AttemptId,
) -> Result<(), StoreError> {
    db.prepare_cached("DELETE FROM lock WHERE namespace = ?1 AND lock = ?2 AND attempt = ?3")
        .or_store_error()?
        .execute(params![namespace, key.0 as i64, attempt.as_bytes()])
        .or_store_error()?;
    Ok(())
}
