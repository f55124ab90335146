//! The row of an effect, as it is read.

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::effect::{Effect, Safety, State, StateName};
use hapax_core::fingerprint::Fingerprint;
use hapax_core::key::Key;
use hapax_core::lease::LeaseId;
use hapax_core::lock::LockKey;
use hapax_core::outcome::{Cause, Digest, Failure, Outcome};
use hapax_core::time::{LeaseInstant, Timestamp};
use hapax_store::StoreError;
use tokio_postgres::Row;
use tokio_postgres::row::RowIndex;

use crate::clock::ERA;
use crate::epoch;
use crate::error::{PgFailure, decoded};

/// An effect with the version of its row.
#[derive(Debug, Clone)]
pub(crate) struct EffectRow {
    /// The newest journal entry, which is the version of the row.
    pub(crate) entry: u64,
    pub(crate) effect: Effect,
}

/// The primary key of `hapax.effect`: the number of a namespace, and a key.
pub(crate) type EffectRowKey = (i32, Key);

/// The columns of a row, which are read by their names.
macro_rules! columns {
    () => {
        "SELECT e.namespace, e.key, e.entry, e.fingerprint, e.state, e.safety,
    e.settling_ms, e.attempt, e.fence, e.generation, e.attempts, e.created, e.updated, e.lock,
    e.label, e.ttl_ms, e.lease, e.at_ms, e.tries, e.cause, e.reason, e.digest, e.size,
    e.domain, e.epoch, "
    };
}

/// Rows with their outcomes.
pub(crate) const SELECT: &str = concat!(
    columns!(),
    "coalesce(e.outcome, b.data) AS outcome
    FROM hapax.effect e LEFT JOIN hapax.body b ON b.id = e.body"
);

/// Large outcomes by their digests only: a list of bodies would take too much memory.
pub(crate) const SELECT_MANY: &str = concat!(columns!(), "e.outcome FROM hapax.effect e");

/// The columns without the outcome, for a statement that selects more.
pub(crate) const COLUMNS: &str = columns!();

pub(crate) fn state_name(code: i16) -> Result<StateName, StoreError> {
    decoded(code, "state", StateName::from_code)
}

pub(crate) fn bytes<const N: usize>(
    row: &Row,
    column: impl RowIndex + std::fmt::Display,
) -> Result<[u8; N], PgFailure> {
    let bytes: &[u8] = row.try_get(&column)?;
    let bytes = bytes.try_into();
    bytes.map_err(|_| StoreError::Corrupt(format!("column {column} is not {N} bytes long")).into())
}

pub(crate) fn read(row: &Row) -> Result<(EffectRowKey, EffectRow), PgFailure> {
    let number = |column: &str| row.try_get::<_, Option<i64>>(column);
    let instant = number("at_ms")?.map(|ms| LeaseInstant { era: ERA, ms: ms as u64 });
    let reason = || -> Result<String, PgFailure> {
        Ok(row.try_get::<_, Option<String>>("reason")?.unwrap_or_default())
    };
    let key = Key::from_bytes(bytes(row, "key")?);
    let state = match state_name(row.try_get("state")?)? {
        StateName::Running => {
            State::Running { lease: LeaseId::from_bytes(bytes(row, "lease")?), deadline: instant }
        }
        StateName::Succeeded => State::Succeeded(outcome(row, key)?),
        StateName::Failed => {
            let code = row.try_get::<_, Option<i16>>("cause")?.unwrap_or_default();
            let cause = decoded(code, "cause", Cause::from_code)?;
            State::Failed(Failure { cause, reason: reason()? })
        }
        StateName::Partial => State::Partial { reason: reason()? },
        StateName::Unknown => State::Unknown {
            reason: reason()?,
            since: instant.unwrap_or_default(),
            tries: row.try_get::<_, Option<i32>>("tries")?.unwrap_or_default() as u32,
        },
        StateName::Indeterminate => State::Indeterminate { reason: reason()? },
        StateName::Skipped => State::Skipped { reason: reason()? },
    };
    let settling_ms = number("settling_ms")?.map(|ms| ms as u64);
    let effect = Effect {
        fingerprint: Fingerprint::from_bytes(bytes(row, "fingerprint")?),
        safety: decoded(row.try_get("safety")?, "safety class", |code| {
            Safety::from_code(code, settling_ms)
        })?,
        lock: number("lock")?.map(|lock| LockKey(lock as u64)),
        bound: epoch::read(row)?,
        label: row.try_get("label")?,
        ttl_ms: number("ttl_ms")?.map(|ms| ms as u64),
        generation: row.try_get::<_, i32>("generation")? as u32,
        attempts: row.try_get::<_, i32>("attempts")? as u32,
        attempt: AttemptId::from_bytes(bytes(row, "attempt")?),
        fence: Fence(row.try_get::<_, i64>("fence")? as u64),
        created: Timestamp(row.try_get("created")?),
        updated: Timestamp(row.try_get("updated")?),
        state,
    };
    let entry = row.try_get::<_, i64>("entry")? as u64;
    Ok(((row.try_get("namespace")?, key), EffectRow { entry, effect }))
}

fn outcome(row: &Row, key: Key) -> Result<Outcome, PgFailure> {
    let digest = row.try_get::<_, Option<&[u8]>>("digest")?;
    let digest = digest.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok()).map(Digest::from_bytes);
    match (row.try_get::<_, Option<&[u8]>>("outcome")?, digest) {
        (Some(body), digest) => {
            let outcome = Outcome::new(body);
            if digest.is_some_and(|digest| digest != outcome.digest()) {
                let what = format!("the outcome of {key} is not what its digest says");
                return Err(StoreError::Corrupt(what).into());
            }
            Ok(outcome)
        }
        (None, Some(digest)) => {
            let size = row.try_get::<_, Option<i64>>("size")?.unwrap_or_default();
            Ok(Outcome::not_kept(digest, size as u64))
        }
        (None, None) => Err(StoreError::Corrupt(format!("effect {key} has no outcome")).into()),
    }
}

/// The row key of an effect, from its columns.
pub(crate) fn row_key(row: &Row) -> Result<EffectRowKey, PgFailure> {
    Ok((row.try_get("namespace")?, Key::from_bytes(bytes(row, "key")?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_code_is_corruption() {
        assert_eq!(state_name(6).ok(), Some(StateName::Skipped));
        for code in [-1, 7, 256, i16::MAX] {
            let state = state_name(code);
            assert!(matches!(state, Err(StoreError::Corrupt(_))), "{code}: {state:?}");
            let safety = decoded(code, "safety class", |code| Safety::from_code(code, None));
            assert!(matches!(safety, Err(StoreError::Corrupt(_))), "{code}: {safety:?}");
            let cause = decoded(code, "cause", Cause::from_code);
            assert!(matches!(cause, Err(StoreError::Corrupt(_))), "{code}: {cause:?}");
        }
    }
}
