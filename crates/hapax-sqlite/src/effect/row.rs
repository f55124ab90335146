//! The row of an effect: how it is read, and how it is written.

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::effect::{Effect, Safety, State, StateName};
use hapax_core::fingerprint::Fingerprint;
use hapax_core::key::Key;
use hapax_core::lease::LeaseId;
use hapax_core::lock::LockKey;
use hapax_core::outcome::{Cause, Digest, Failure, Outcome};
use hapax_core::time::{LeaseInstant, Timestamp};
use hapax_store::StoreError;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::body::{self, MAX_INLINE};
use super::state_name;
use crate::connection_cache::{KeyPrefix, StatementCache};
use crate::epoch;
use crate::error::{OrStoreError, decoded};

macro_rules! columns {
    () => {
        "id, key, fingerprint, state, safety, settling_ms, attempt, fence, generation,
    attempts, created, updated, entry, lock, label, ttl_ms, lease, at_era, at_ms, tries, cause,
    reason, outcome, body, digest, size, namespace, domain, epoch"
    };
}

/// The columns of a row, in the order in which they are read.
pub(crate) const COLUMNS: &str = columns!();

pub(crate) const LOAD: &str = concat!("SELECT ", columns!(), " FROM effect WHERE id = ?1");

macro_rules! number {
    () => {
        "coalesce((SELECT effect FROM key_tail WHERE namespace = ?1 AND prefix = ?2),
                  (SELECT effect FROM key_middle WHERE namespace = ?1 AND prefix = ?2),
                  (SELECT effect FROM key_index WHERE namespace = ?1 AND prefix = ?2))"
    };
}

pub(crate) const LOAD_BY_KEY: &str =
    concat!("SELECT ", columns!(), " FROM effect WHERE id = ", number!());

pub(crate) const NUMBER: &str = concat!("SELECT ", number!());

/// An effect with the columns that only the table has.
pub(crate) struct EffectRow {
    pub(crate) id: i64,
    pub(crate) namespace: i64,
    pub(crate) key: Key,
    pub(crate) entry: i64,
    pub(crate) effect: Effect,
}

/// The row of this number.
pub(crate) fn row_of_number(
    db: &Connection,
    statements: &mut StatementCache<'_>,
    number: i64,
) -> Result<Option<EffectRow>, StoreError> {
    let row = statements.load()?.query_row([number], |row| Ok(read(db, row, LargeOutcome::Whole)));
    row.optional().or_store_error()?.transpose()
}

/// The row whose key has this prefix.
pub(crate) fn row_of_prefix(
    db: &Connection,
    statements: &mut StatementCache<'_>,
    prefix: KeyPrefix,
) -> Result<Option<EffectRow>, StoreError> {
    let row =
        statements.load_by_key()?.query_row(prefix, |row| Ok(read(db, row, LargeOutcome::Whole)));
    row.optional().or_store_error()?.transpose()
}

/// How much of a large outcome a query reads.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum LargeOutcome {
    /// All of it.
    Whole,
    /// Its digest and size only: many large outcomes would be too much.
    DigestOnly,
}

/// Reads a row with [`COLUMNS`].
pub(crate) fn read(
    db: &Connection,
    row: &Row<'_>,
    large: LargeOutcome,
) -> Result<EffectRow, StoreError> {
    let columns = || -> rusqlite::Result<_> {
        let blob16 = |at: usize| row.get::<_, [u8; 16]>(at);
        let blob32 = |at: usize| row.get::<_, [u8; 32]>(at);
        let instant = || -> rusqlite::Result<Option<LeaseInstant>> {
            let (era, ms): (Option<i64>, Option<i64>) = (row.get(17)?, row.get(18)?);
            Ok(era.zip(ms).map(|(era, ms)| LeaseInstant { era: era as u64, ms: ms as u64 }))
        };
        let reason = || row.get::<_, Option<String>>(21).map(Option::unwrap_or_default);
        let state = match state_name(row, 3)? {
            StateName::Running => StoredState::Whole(State::Running {
                lease: LeaseId::from_bytes(blob16(16)?),
                deadline: instant()?,
            }),
            StateName::Succeeded => StoredState::Outcome {
                inline: row.get(22)?,
                body: row.get(23)?,
                digest: row.get::<_, Option<[u8; 32]>>(24)?,
                size: row.get(25)?,
            },
            StateName::Failed => {
                let cause = decoded(row, 20, "cause", Cause::from_code)?;
                StoredState::Whole(State::Failed(Failure { cause, reason: reason()? }))
            }
            StateName::Partial => StoredState::Whole(State::Partial { reason: reason()? }),
            StateName::Unknown => StoredState::Whole(State::Unknown {
                reason: reason()?,
                since: instant()?.unwrap_or_default(),
                tries: row.get(19)?,
            }),
            StateName::Indeterminate => {
                StoredState::Whole(State::Indeterminate { reason: reason()? })
            }
            StateName::Skipped => StoredState::Whole(State::Skipped { reason: reason()? }),
        };
        let settling = row.get::<_, Option<i64>>(5)?.map(|ms| ms as u64);
        let safety = decoded(row, 4, "safety class", |code| Safety::from_code(code, settling))?;
        let effect = Effect {
            fingerprint: Fingerprint::from_bytes(blob32(2)?),
            safety,
            lock: row.get::<_, Option<i64>>(13)?.map(|lock| LockKey(lock as u64)),
            bound: None,
            label: row.get(14)?,
            ttl_ms: row.get::<_, Option<i64>>(15)?.map(|ms| ms as u64),
            generation: row.get(8)?,
            attempts: row.get(9)?,
            attempt: AttemptId::from_bytes(blob16(6)?),
            fence: Fence(row.get::<_, i64>(7)? as u64),
            created: Timestamp(row.get(10)?),
            updated: Timestamp(row.get(11)?),
            state: State::Skipped { reason: String::new() },
        };
        let key = Key::from_bytes(blob32(1)?);
        Ok((
            EffectRow {
                id: row.get(0)?,
                namespace: row.get(26)?,
                key,
                entry: row.get(12)?,
                effect,
            },
            state,
            row.get::<_, Option<String>>(27)?.zip(row.get::<_, Option<i64>>(28)?),
        ))
    };
    let (mut row, state, bound) = columns().or_store_error()?;
    row.effect.bound = bound.map(|(domain, epoch)| epoch::read(domain, epoch)).transpose()?;
    row.effect.state = match state {
        StoredState::Whole(state) => state,
        StoredState::Outcome { inline: Some(body), .. } => State::Succeeded(Outcome::new(body)),
        StoredState::Outcome { body: Some(body), .. } if large == LargeOutcome::DigestOnly => {
            let mut statement = db
                .prepare_cached("SELECT digest, size FROM body WHERE id = ?1")
                .or_store_error()?;
            let not_kept = statement.query_row([body], |row| {
                let digest = Digest::from_bytes(row.get(0)?);
                Ok(Outcome::not_kept(digest, row.get::<_, i64>(1)? as u64))
            });
            State::Succeeded(not_kept.or_store_error()?)
        }
        StoredState::Outcome { body: Some(body), .. } => {
            State::Succeeded(Outcome::new(body::load(db, body)?))
        }
        StoredState::Outcome { digest: Some(digest), size, .. } => State::Succeeded(
            Outcome::not_kept(Digest::from_bytes(digest), size.unwrap_or_default() as u64),
        ),
        StoredState::Outcome { .. } => {
            return Err(StoreError::Corrupt(format!("effect {} has no outcome", row.key)));
        }
    };
    Ok(row)
}

/// A state as its columns hold it. A large body is a row of `body`.
enum StoredState {
    Whole(State),
    Outcome {
        inline: Option<Vec<u8>>,
        body: Option<i64>,
        digest: Option<[u8; 32]>,
        size: Option<i64>,
    },
}

/// Writes only the columns that most settles change, and leaves every other column and index alone:
/// a running effect without deadline or epoch becomes a success without expiry, with a body in its
/// row.
pub(crate) fn update_to_success(
    statements: &mut StatementCache<'_>,
    number: i64,
    entry: i64,
    effect: &Effect,
    body: &[u8],
) -> Result<(), StoreError> {
    let changed = statements.succeed()?.execute(params![number, effect.updated.0, entry, body]);
    check_one(changed.or_store_error()?)
}

pub(crate) const SUCCEED: &str =
    "UPDATE effect SET state = 1, updated = ?2, entry = ?3, lease = NULL,
    outcome = ?4 WHERE id = ?1 AND state = 0";

/// The body of a success that is small enough to lie in its row.
pub(crate) fn inline(effect: &Effect) -> Option<&[u8]> {
    match &effect.state {
        State::Succeeded(outcome) => outcome.body().filter(|body| body.len() <= MAX_INLINE),
        _ => None,
    }
}

/// Writes a new effect, which is running: its other columns are empty. Its number is
/// that of its first entry. `None` if the database has a row of this key already.
pub(crate) fn insert(
    statements: &mut StatementCache<'_>,
    namespace: i64,
    key: Key,
    effect: &Effect,
) -> Result<Option<i64>, StoreError> {
    let State::Running { lease, deadline } = &effect.state else {
        return Err(StoreError::Corrupt(format!("effect {key} began without a claim")));
    };
    let (safety, settling) = effect.safety.code();
    let number = effect.fence.0 as i64;
    let made = statements
        .insert()?
        .execute(params![
            number,
            namespace,
            key.as_bytes(),
            effect.fingerprint.as_bytes(),
            safety,
            settling.map(|ms| ms as i64),
            effect.attempt.as_bytes(),
            effect.generation,
            effect.attempts,
            effect.created.0,
            effect.updated.0,
            effect.lock.map(|lock| lock.0 as i64),
            effect.label,
            effect.ttl_ms.map(|ms| ms as i64),
            lease.as_bytes(),
            deadline.map(|at| at.era as i64),
            deadline.map(|at| at.ms as i64),
            effect.bound.as_ref().map(|bound| bound.domain.as_str()),
            effect.bound.as_ref().map(|bound| bound.epoch as i64),
            voidable(effect),
        ])
        .or_store_error()?;
    Ok((made > 0).then_some(number))
}

pub(crate) const INSERT: &str = "INSERT OR FAIL INTO effect (id, fence, entry, namespace, key, fingerprint,
    state, safety, settling_ms, attempt, generation, attempts, created, updated, lock, label, ttl_ms,
    lease, at_era, at_ms, domain, epoch, voidable)
VALUES (?1, ?1, ?1, ?2, ?3, ?4, 0, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,
    ?20)";

/// Writes an effect over the row it was loaded from.
pub(crate) fn update(
    db: &Connection,
    number: i64,
    entry: i64,
    effect: &Effect,
) -> Result<(), StoreError> {
    let (lease, instant, tries, cause) = match &effect.state {
        State::Running { lease, deadline } => (Some(lease.as_bytes()), *deadline, None, None),
        State::Unknown { since, tries, .. } => (None, Some(*since), Some(*tries), None),
        State::Failed(failure) => (None, None, None, Some(failure.cause.code())),
        _ => (None, None, None, None),
    };
    let (safety, settling) = effect.safety.code();
    let outcome = match &effect.state {
        State::Succeeded(outcome) => Some(outcome),
        _ => None,
    };
    let inline = inline(effect);
    let out_of_line = outcome.filter(|_| inline.is_none());
    let body = match out_of_line {
        Some(outcome) => body::store(db, outcome)?,
        None => None,
    };
    let state = effect.state.name();
    let stuck = state.needs_attention().then_some(state.code());
    let changed = db
        .prepare_cached(UPDATE)
        .or_store_error()?
        .execute(params![
            number,
            effect.fingerprint.as_bytes(),
            state.code(),
            safety,
            settling.map(|ms| ms as i64),
            effect.attempt.as_bytes(),
            effect.fence.0 as i64,
            effect.generation,
            effect.attempts,
            effect.created.0,
            effect.updated.0,
            entry,
            effect.lock.map(|lock| lock.0 as i64),
            effect.label,
            effect.ttl_ms.map(|ms| ms as i64),
            effect.expires().map(|at| at.0),
            lease,
            instant.map(|at| at.era as i64),
            instant.map(|at| at.ms as i64),
            tries,
            cause,
            effect.state.reason(),
            inline,
            body,
            out_of_line.map(|outcome| *outcome.digest().as_bytes()),
            out_of_line.map(|outcome| outcome.size() as i64),
            stuck,
            effect.bound.as_ref().map(|bound| bound.domain.as_str()),
            effect.bound.as_ref().map(|bound| bound.epoch as i64),
            voidable(effect),
        ])
        .or_store_error()?;
    check_one(changed)
}

const UPDATE: &str = "UPDATE effect SET fingerprint = ?2, state = ?3, safety = ?4,
    settling_ms = ?5, attempt = ?6, fence = ?7, generation = ?8, attempts = ?9, created = ?10,
    updated = ?11, entry = ?12, lock = ?13, label = ?14, ttl_ms = ?15, expires = ?16, lease = ?17,
    at_era = ?18, at_ms = ?19, tries = ?20, cause = ?21, reason = ?22, outcome = ?23, body = ?24,
    digest = ?25, size = ?26, stuck = ?27, domain = ?28, epoch = ?29,
    voidable = ?30
WHERE id = ?1";

/// Checks that one row was changed, the one that was loaded.
fn check_one(changed: usize) -> Result<(), StoreError> {
    match changed {
        1 => Ok(()),
        _ => Err(StoreError::Corrupt("a row vanished inside its transaction".into())),
    }
}

/// The domain whose next epoch voids the effect, if one does.
fn voidable(effect: &Effect) -> Option<&str> {
    let bound = effect.bound.as_ref().filter(|_| effect.state.name().is_open());
    bound.map(|bound| bound.domain.as_str())
}
