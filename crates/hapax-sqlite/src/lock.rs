//! Locks as rows.

use hapax_core::attempt::AttemptId;
use hapax_core::key::Key;
use hapax_core::lock::{Lock, LockKey};
use hapax_core::name::Namespace;
use hapax_store::{LockTxn, LockView, StoreError};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::error::OrStoreError;
use crate::txn::SqliteTxn;

impl LockView for SqliteTxn<'_> {
    fn lock(&mut self, namespace: &Namespace, key: LockKey) -> Result<Option<Lock>, StoreError> {
        let Some(namespace) = self.namespace(namespace)? else { return Ok(None) };
        load(self.db, namespace, key)
    }
}

impl LockTxn for SqliteTxn<'_> {
    fn put_lock(&mut self, namespace: &Namespace, lock: &Lock) -> Result<(), StoreError> {
        let namespace = self.namespace_or_new(namespace)?;
        put(self.db, namespace, lock)
    }

    fn drop_lock(
        &mut self,
        namespace: &Namespace,
        key: LockKey,
        attempt: AttemptId,
    ) -> Result<(), StoreError> {
        let namespace = self.namespace_or_new(namespace)?;
        release(self.db, namespace, key, attempt)
    }
}

fn load(db: &Connection, namespace: i64, key: LockKey) -> Result<Option<Lock>, StoreError> {
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

fn put(db: &Connection, namespace: i64, lock: &Lock) -> Result<(), StoreError> {
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
fn release(
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
