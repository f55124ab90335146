//! Locks as rows.

use std::collections::HashMap;

use hapax_core::attempt::AttemptId;
use hapax_core::key::Key;
use hapax_core::lock::{Lock, LockKey};
use hapax_core::name::Namespace;
use hapax_store::{LockTxn, LockView, StoreError};
use tokio_postgres::types::Type;

use crate::connect::Link;
use crate::effect::bytes;
use crate::error::PgFailure;
use crate::txn::{Access, PgTxn};

impl LockView for PgTxn<'_> {
    fn lock(&mut self, namespace: &Namespace, key: LockKey) -> Result<Option<Lock>, StoreError> {
        let found = self.namespaces.find(self.link, namespace);
        match self.keep_failure(found)? {
            Some(id) => {
                let lock = self.current_lock((id, key));
                self.keep_failure(lock)
            }
            None => Ok(None),
        }
    }
}

impl LockTxn for PgTxn<'_> {
    fn put_lock(&mut self, namespace: &Namespace, lock: &Lock) -> Result<(), StoreError> {
        let id = self.namespace(namespace);
        let row_key = (self.keep_failure(id)?, lock.key);
        let loaded = self.load_locks(&[row_key]);
        self.keep_failure(loaded)?;
        self.staged.locks.insert(row_key, Some(*lock));
        Ok(())
    }

    fn drop_lock(
        &mut self,
        namespace: &Namespace,
        key: LockKey,
        attempt: AttemptId,
    ) -> Result<(), StoreError> {
        let id = self.namespace(namespace);
        let row_key = (self.keep_failure(id)?, key);
        let lock = self.current_lock(row_key);
        if self.keep_failure(lock)?.is_some_and(|lock| lock.attempt == attempt) {
            self.staged.locks.insert(row_key, None);
        }
        Ok(())
    }
}

impl PgTxn<'_> {
    /// Reads the locks that are not in the cache.
    pub(crate) fn load_locks(&mut self, row_keys: &[LockRowKey]) -> Result<(), PgFailure> {
        let mut missing: Vec<LockRowKey> = row_keys
            .iter()
            .filter(|row_key| !self.loaded.locks.contains_key(*row_key))
            .copied()
            .collect();
        missing.sort_unstable();
        missing.dedup();
        let mut rows = load(self.link, &missing, self.access != Access::ReadOnly)?;
        let found = missing.into_iter().map(|row_key| (row_key, rows.remove(&row_key)));
        self.loaded.locks.extend(found);
        Ok(())
    }

    /// The lock as the commands so far have left it.
    fn current_lock(&mut self, row_key: LockRowKey) -> Result<Option<Lock>, PgFailure> {
        self.load_locks(&[row_key])?;
        let written = self.staged.locks.get(&row_key).or_else(|| self.written.locks.get(&row_key));
        Ok(written.copied().unwrap_or_else(|| self.loaded.locks.get(&row_key).copied().flatten()))
    }
}

/// The primary key of `hapax.lock`: the number of a namespace, and the key of a lock.
pub(crate) type LockRowKey = (i32, LockKey);

/// Tries the advisory locks of these keys for the length of the transaction. The answer omits those
/// that another transaction has.
pub(crate) fn try_advisory_locks(link: &Link, keys: &[i64]) -> Result<Vec<i64>, PgFailure> {
    let rows = link.query_prepared((
        "SELECT k FROM unnest($1::bigint[]) AS u (k) WHERE pg_try_advisory_xact_lock(k)",
        &[(&keys, Type::INT8_ARRAY)],
    ))?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// The held locks with these row keys; with `lock`, under the locks of their rows.
fn load(
    link: &Link,
    row_keys: &[LockRowKey],
    lock: bool,
) -> Result<HashMap<LockRowKey, Lock>, PgFailure> {
    if row_keys.is_empty() {
        return Ok(HashMap::new());
    }
    let namespaces: Vec<i32> = row_keys.iter().map(|(namespace, _)| *namespace).collect();
    let keys: Vec<i64> = row_keys.iter().map(|(_, key)| key.0 as i64).collect();
    let sql = match lock {
        true => {
            "SELECT namespace, lock, holder, attempt FROM hapax.lock
             WHERE (namespace, lock) IN (SELECT * FROM unnest($1::int[], $2::bigint[]))
             ORDER BY namespace, lock FOR UPDATE"
        }
        false => {
            "SELECT namespace, lock, holder, attempt FROM hapax.lock
             WHERE (namespace, lock) IN (SELECT * FROM unnest($1::int[], $2::bigint[]))"
        }
    };
    let rows =
        link.query_prepared((sql, &[(&namespaces, Type::INT4_ARRAY), (&keys, Type::INT8_ARRAY)]))?;
    rows.iter()
        .map(|row| {
            let key = LockKey(row.try_get::<_, i64>(1)? as u64);
            let holder = Key::from_bytes(bytes(row, "holder")?);
            let attempt = AttemptId::from_bytes(bytes(row, "attempt")?);
            Ok(((row.try_get(0)?, key), Lock { key, holder, attempt }))
        })
        .collect()
}

/// A lock to write over the attempt that was read, or where there was none.
pub(crate) struct LockWrite {
    pub(crate) namespace: i32,
    pub(crate) replaced_attempt: Option<AttemptId>,
    pub(crate) lock: Lock,
}

/// Writes locks, in their order. `Busy` if another transaction was quicker with one of them.
pub(crate) fn put(link: &Link, taken: &[LockWrite]) -> Result<(), PgFailure> {
    if taken.is_empty() {
        return Ok(());
    }
    let namespace: Vec<i32> = taken.iter().map(|taken| taken.namespace).collect();
    let key: Vec<i64> = taken.iter().map(|taken| taken.lock.key.0 as i64).collect();
    let holder: Vec<&[u8]> = taken.iter().map(|taken| &taken.lock.holder.as_bytes()[..]).collect();
    let attempt: Vec<&[u8]> =
        taken.iter().map(|taken| &taken.lock.attempt.as_bytes()[..]).collect();
    let replaced: Vec<Option<&[u8]>> = taken
        .iter()
        .map(|taken| taken.replaced_attempt.as_ref().map(|attempt| &attempt.as_bytes()[..]))
        .collect();
    let written = link.query_prepared((
        "WITH w AS (
             SELECT * FROM unnest($1::int[], $2::bigint[], $3::bytea[], $4::bytea[], $5::bytea[])
                 AS w (namespace, lock, holder, attempt, replaced)
         )
         INSERT INTO hapax.lock AS l (namespace, lock, holder, attempt)
         SELECT namespace, lock, holder, attempt FROM w
         ON CONFLICT (namespace, lock) DO UPDATE
             SET holder = excluded.holder, attempt = excluded.attempt
         WHERE l.attempt = (SELECT w.replaced FROM w WHERE w.namespace = l.namespace AND w.lock = l.lock)
         RETURNING l.lock",
        &[
            (&namespace, Type::INT4_ARRAY),
            (&key, Type::INT8_ARRAY),
            (&holder, Type::BYTEA_ARRAY),
            (&attempt, Type::BYTEA_ARRAY),
            (&replaced, Type::BYTEA_ARRAY),
        ],
    ))?;
    if written.len() == taken.len() {
        return Ok(());
    }
    Err(PgFailure::Busy("a lock has moved on".into()))
}

/// Releases locks, each if this attempt holds it.
pub(crate) fn release(link: &Link, held: &[(LockRowKey, AttemptId)]) -> Result<(), PgFailure> {
    if held.is_empty() {
        return Ok(());
    }
    let namespace: Vec<i32> = held.iter().map(|((namespace, _), _)| *namespace).collect();
    let key: Vec<i64> = held.iter().map(|((_, key), _)| key.0 as i64).collect();
    let attempt: Vec<&[u8]> = held.iter().map(|(_, attempt)| &attempt.as_bytes()[..]).collect();
    link.query_prepared((
        "DELETE FROM hapax.lock l
         USING unnest($1::int[], $2::bigint[], $3::bytea[]) AS w (namespace, lock, attempt)
         WHERE l.namespace = w.namespace AND l.lock = w.lock AND l.attempt = w.attempt",
        &[(&namespace, Type::INT4_ARRAY), (&key, Type::INT8_ARRAY), (&attempt, Type::BYTEA_ARRAY)],
    ))?;
    Ok(())
}
