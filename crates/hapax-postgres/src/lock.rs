//! Locks and rollback steps as rows.

use std::collections::HashMap;

use hapax_core::attempt::AttemptId;
use hapax_core::key::Key;
use hapax_core::lock::{Lock, LockKey};
use hapax_store::Step;
use tokio_postgres::types::Type;

use crate::connect::Link;
use crate::effect::{Place, bytes};
use crate::error::Trouble;

/// A place in the table: the number of a namespace and a lock.
pub(crate) type LockPlace = (i32, LockKey);

/// Tries the advisory locks of these keys for the length of the transaction. Those that
/// somebody else has are not in the answer.
pub(crate) fn hint(link: &Link, keys: &[i64]) -> Result<Vec<i64>, Trouble> {
    let rows = link.query(
        "SELECT k FROM unnest($1::bigint[]) AS u (k) WHERE pg_try_advisory_xact_lock(k)",
        &[(&keys, Type::INT8_ARRAY)],
    )?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// The locks of these places that are held; under their rows' locks, if asked.
pub(crate) fn load(
    link: &Link,
    places: &[LockPlace],
    lock: bool,
) -> Result<HashMap<LockPlace, Lock>, Trouble> {
    if places.is_empty() {
        return Ok(HashMap::new());
    }
    let namespaces: Vec<i32> = places.iter().map(|(namespace, _)| *namespace).collect();
    let keys: Vec<i64> = places.iter().map(|(_, key)| key.0 as i64).collect();
    let lock = if lock { "ORDER BY namespace, lock FOR UPDATE" } else { "" };
    let rows = link.query(
        &format!(
            "SELECT namespace, lock, holder, attempt FROM hapax.lock
             WHERE (namespace, lock) IN (SELECT * FROM unnest($1::int[], $2::bigint[])) {lock}"
        ),
        &[(&namespaces, Type::INT4_ARRAY), (&keys, Type::INT8_ARRAY)],
    )?;
    rows.iter()
        .map(|row| {
            let key = LockKey(row.try_get::<_, i64>(1)? as u64);
            let holder = Key::from_bytes(bytes(row, "holder")?);
            let attempt = AttemptId::from_bytes(bytes(row, "attempt")?);
            Ok(((row.try_get(0)?, key), Lock { key, holder, attempt }))
        })
        .collect()
}

/// Writes a lock over the attempt that was read, or where there was none. `Busy` if somebody
/// else was quicker.
pub(crate) fn put(
    link: &Link,
    namespace: i32,
    over: Option<AttemptId>,
    lock: &Lock,
) -> Result<(), Trouble> {
    let written = link.execute(
        "INSERT INTO hapax.lock AS l (namespace, lock, holder, attempt) VALUES ($1, $2, $3, $4)
         ON CONFLICT (namespace, lock) DO UPDATE SET holder = $3, attempt = $4
         WHERE l.attempt = $5",
        &[
            (&namespace, Type::INT4),
            (&(lock.key.0 as i64), Type::INT8),
            (&&lock.holder.as_bytes()[..], Type::BYTEA),
            (&&lock.attempt.as_bytes()[..], Type::BYTEA),
            (&over.as_ref().map(|attempt| &attempt.as_bytes()[..]), Type::BYTEA),
        ],
    )?;
    if written == 1 { Ok(()) } else { Err(Trouble::Busy("a lock has moved on".into())) }
}

/// Releases a lock, if this attempt holds it.
pub(crate) fn release(
    link: &Link,
    (namespace, key): LockPlace,
    attempt: AttemptId,
) -> Result<(), Trouble> {
    link.execute(
        "DELETE FROM hapax.lock WHERE namespace = $1 AND lock = $2 AND attempt = $3",
        &[
            (&namespace, Type::INT4),
            (&(key.0 as i64), Type::INT8),
            (&&attempt.as_bytes()[..], Type::BYTEA),
        ],
    )?;
    Ok(())
}

/// The steps an attempt registered, in order.
pub(crate) fn steps(
    link: &Link,
    (namespace, key): Place,
    attempt: AttemptId,
) -> Result<Vec<Step>, Trouble> {
    let rows = link.query(
        "SELECT name, payload FROM hapax.step WHERE attempt = $1 AND namespace = $2 AND key = $3
         ORDER BY id",
        &[
            (&&attempt.as_bytes()[..], Type::BYTEA),
            (&namespace, Type::INT4),
            (&&key.as_bytes()[..], Type::BYTEA),
        ],
    )?;
    rows.iter().map(|row| Ok(Step { name: row.try_get(0)?, payload: row.try_get(1)? })).collect()
}

/// Adds a step.
pub(crate) fn push_step(
    link: &Link,
    (namespace, key): Place,
    attempt: AttemptId,
    step: &Step,
) -> Result<(), Trouble> {
    link.execute(
        "INSERT INTO hapax.step (namespace, key, attempt, name, payload)
         VALUES ($1, $2, $3, $4, $5)",
        &[
            (&namespace, Type::INT4),
            (&&key.as_bytes()[..], Type::BYTEA),
            (&&attempt.as_bytes()[..], Type::BYTEA),
            (&step.name, Type::TEXT),
            (&step.payload, Type::BYTEA),
        ],
    )?;
    Ok(())
}
