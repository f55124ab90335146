//! Effects as rows.

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::effect::{Effect, Safety, State, StateName};
use hapax_core::fingerprint::Fingerprint;
use hapax_core::key::Key;
use hapax_core::lease::LeaseId;
use hapax_core::lock::LockKey;
use hapax_core::outcome::{Cause, Digest, Failure, Outcome};
use hapax_core::part::Part;
use hapax_core::time::{LeaseInstant, Timestamp};
use hapax_store::{Filter, StoreError};
use rusqlite::{Connection, OptionalExtension as _, Params, Row, params};

use crate::epoch;
use crate::error::{OrStoreError, decoded};
use crate::key_index::{KeyPrefix, prefix};
use crate::part;
use crate::result_index;
use crate::row_cache::RowCache;
use crate::statement_cache::StatementCache;

/// Outcomes above this size are compressed and stored once, however many effects share them.
const INLINE: usize = 64 * 1024;

macro_rules! columns {
    () => {
        "id, key, fingerprint, state, safety, settling_ms, attempt, fence, generation,
    attempts, created, updated, entry, lock, label, ttl_ms, lease, at_era, at_ms, tries, cause,
    reason, outcome, body, digest, size, namespace, domain, epoch"
    };
}

pub(crate) const LOAD: &str = concat!("SELECT ", columns!(), " FROM effect WHERE id = ?1");

macro_rules! number {
    () => {
        "coalesce((SELECT effect FROM key_tail WHERE namespace = ?1 AND half = ?2),
                  (SELECT effect FROM key_middle WHERE namespace = ?1 AND half = ?2),
                  (SELECT effect FROM key_index WHERE namespace = ?1 AND half = ?2))"
    };
}

pub(crate) const LOAD_BY_KEY: &str =
    concat!("SELECT ", columns!(), " FROM effect WHERE id = ", number!());

pub(crate) const NUMBER: &str = concat!("SELECT ", number!());

/// The number of the effect of this name, if there is one.
pub(crate) fn number(
    hot: &mut StatementCache<'_>,
    namespace: i64,
    key: Key,
) -> Result<Option<i64>, StoreError> {
    let prefix = prefix(namespace, &key);
    hot.number()?.query_row(prefix, |row| row.get(0)).or_store_error()
}

/// The state of an effect, unless its row is gone.
pub(crate) fn state(db: &Connection, number: i64) -> Result<Option<StateName>, StoreError> {
    db.prepare_cached("SELECT state FROM effect WHERE id = ?1")
        .and_then(|mut state| state.query_row([number], |row| state_name(row, 0)).optional())
        .or_store_error()
}

/// The state whose code is in this column.
pub(crate) fn state_name(row: &Row<'_>, at: usize) -> rusqlite::Result<StateName> {
    decoded(row, at, "state", StateName::from_code)
}

/// An effect with the columns that only the table has.
pub(crate) struct EffectRow {
    pub(crate) id: i64,
    pub(crate) namespace: i64,
    pub(crate) key: Key,
    pub(crate) entry: i64,
    pub(crate) effect: Effect,
}

pub(crate) fn load(
    hot: &mut StatementCache<'_>,
    seen: &mut RowCache,
    namespace: i64,
    key: Key,
) -> Result<Option<EffectRow>, StoreError> {
    let db = hot.db;
    let prefix = prefix(namespace, &key);
    let read = |row: &Row<'_>| Ok(read(db, row, Large::Whole));
    let numbered = |hot: &mut StatementCache<'_>, number: i64| {
        hot.load()?.query_row([number], read).optional().or_store_error()?.transpose()
    };
    let row = match seen.find(&prefix) {
        Some(number) => match numbered(hot, number)? {
            Some(row) if row.key == key && row.namespace == namespace => return Ok(Some(row)),
            _ => load_by_key(hot, prefix)?,
        },
        None => load_by_key(hot, prefix)?,
    };
    match row {
        Some(row) if row.key != key => Err(StoreError::Collision(key)),
        Some(row) => {
            seen.keep(&prefix, row.id);
            Ok(Some(row))
        }
        None => Ok(None),
    }
}

fn load_by_key(
    hot: &mut StatementCache<'_>,
    prefix: KeyPrefix,
) -> Result<Option<EffectRow>, StoreError> {
    let db = hot.db;
    let row = hot.load_by_key()?.query_row(prefix, |row| Ok(read(db, row, Large::Whole)));
    row.optional().or_store_error()?.transpose()
}

pub(crate) fn list(
    db: &Connection,
    namespace: Option<i64>,
    filter: &Filter,
) -> Result<Vec<EffectRow>, StoreError> {
    let states = &filter.states;
    let numbers: Vec<_> = states.iter().map(|state| state.code().to_string()).collect();
    let states = match numbers.as_slice() {
        [] => "TRUE".to_owned(),
        numbers => {
            let stuck = states.iter().all(|state| state.needs_attention());
            // Lets the planner see that the index of stuck effects covers the query.
            let hint = if stuck { "stuck IS NOT NULL AND " } else { "" };
            format!("{hint}state IN ({})", numbers.join(", "))
        }
    };
    let mut statement = db
        .prepare(&format!(
            "SELECT {} FROM effect WHERE {states} AND (?1 IS NULL OR namespace = ?1)
             AND (?3 IS NULL OR fence < ?3) AND (?4 IS NULL OR instr(label, ?4) > 0)
             ORDER BY fence DESC LIMIT ?2",
            columns!()
        ))
        .or_store_error()?;
    let before = filter.before.map(|fence| fence.0 as i64);
    let params = params![namespace, filter.limit as i64, before, filter.label];
    let mut rows = statement.query(params).or_store_error()?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().or_store_error()? {
        found.push(read(db, row, Large::Named)?);
    }
    Ok(found)
}

/// The effects among which parts are looked for.
#[derive(Clone, Copy)]
pub(crate) enum PartScan {
    /// All effects.
    All,
    /// Those that wait for a reconciler, a rollback or a person, which are few. Without this hint
    /// SQLite would scan all effects of the namespace.
    Stuck,
}

/// Effects that are parts, with their wholes. The whole and the kind are read if the caller does
/// not know them.
pub(crate) fn parts(
    db: &Connection,
    known: Option<(Key, &str)>,
    among: PartScan,
    which: &str,
    params: impl Params,
) -> Result<Vec<(EffectRow, Part)>, StoreError> {
    let (of, whole) = match known {
        Some(_) => ("", ""),
        None => (", name, kind", "JOIN whole ON number = part.whole"),
    };
    let from = match among {
        PartScan::All => "part JOIN effect ON id = part.effect",
        PartScan::Stuck => "effect INDEXED BY effect_stuck CROSS JOIN part ON part.effect = id",
    };
    let sql = format!("SELECT {}, kept{of} FROM {from} {whole} WHERE {which}", columns!());
    let mut statement = db.prepare_cached(&sql).or_store_error()?;
    let mut rows = statement.query(params).or_store_error()?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().or_store_error()? {
        let part = || -> rusqlite::Result<_> {
            let (whole, kind) = match known {
                Some((whole, kind)) => (whole, kind.to_owned()),
                None => (Key::from_bytes(row.get(30)?), row.get(31)?),
            };
            Ok(Part { whole, kind, body: row.get(29)? })
        };
        found.push((read(db, row, Large::Whole)?, part().or_store_error()?));
    }
    Ok(found)
}

/// How much is read of a large outcome.
#[derive(Clone, Copy, PartialEq)]
enum Large {
    /// All of it.
    Whole,
    /// Its digest and size only: many large outcomes would be too much.
    Named,
}

fn read(db: &Connection, row: &Row<'_>, large: Large) -> Result<EffectRow, StoreError> {
    let columns = || -> rusqlite::Result<_> {
        let blob16 = |at: usize| row.get::<_, [u8; 16]>(at);
        let blob32 = |at: usize| row.get::<_, [u8; 32]>(at);
        let instant = || -> rusqlite::Result<Option<LeaseInstant>> {
            let (era, ms): (Option<i64>, Option<i64>) = (row.get(17)?, row.get(18)?);
            Ok(era.zip(ms).map(|(era, ms)| LeaseInstant { era: era as u64, ms: ms as u64 }))
        };
        let reason = || row.get::<_, Option<String>>(21).map(Option::unwrap_or_default);
        let state = match state_name(row, 3)? {
            StateName::Running => Stored::Whole(State::Running {
                lease: LeaseId::from_bytes(blob16(16)?),
                deadline: instant()?,
            }),
            StateName::Succeeded => Stored::Outcome {
                inline: row.get(22)?,
                body: row.get(23)?,
                digest: row.get::<_, Option<[u8; 32]>>(24)?,
                size: row.get(25)?,
            },
            StateName::Failed => {
                let cause = decoded(row, 20, "cause", Cause::from_code)?;
                Stored::Whole(State::Failed(Failure { cause, reason: reason()? }))
            }
            StateName::Partial => Stored::Whole(State::Partial { reason: reason()? }),
            StateName::Unknown => Stored::Whole(State::Unknown {
                reason: reason()?,
                since: instant()?.unwrap_or_default(),
                tries: row.get(19)?,
            }),
            StateName::Indeterminate => Stored::Whole(State::Indeterminate { reason: reason()? }),
            StateName::Skipped => Stored::Whole(State::Skipped { reason: reason()? }),
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
    row.effect.bound = bound.map(|(domain, epoch)| epoch::bound(domain, epoch)).transpose()?;
    row.effect.state = match state {
        Stored::Whole(state) => state,
        Stored::Outcome { inline: Some(body), .. } => State::Succeeded(Outcome::new(body)),
        Stored::Outcome { body: Some(body), .. } if large == Large::Named => {
            let mut statement = db
                .prepare_cached("SELECT digest, size FROM body WHERE id = ?1")
                .or_store_error()?;
            let named = statement.query_row([body], |row| {
                let digest = Digest::from_bytes(row.get(0)?);
                Ok(Outcome::not_kept(digest, row.get::<_, i64>(1)? as u64))
            });
            State::Succeeded(named.or_store_error()?)
        }
        Stored::Outcome { body: Some(body), .. } => {
            State::Succeeded(Outcome::new(load_body(db, body)?))
        }
        Stored::Outcome { digest: Some(digest), size, .. } => State::Succeeded(Outcome::not_kept(
            Digest::from_bytes(digest),
            size.unwrap_or_default() as u64,
        )),
        Stored::Outcome { .. } => {
            return Err(StoreError::Corrupt(format!("effect {} has no outcome", row.key)));
        }
    };
    Ok(row)
}

/// A state as its columns hold it; a large body lies in another table.
enum Stored {
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
pub(crate) fn put_success(
    hot: &mut StatementCache<'_>,
    row: i64,
    entry: i64,
    effect: &Effect,
    body: &[u8],
) -> Result<(), StoreError> {
    let changed =
        hot.succeed()?.execute(params![row, effect.updated.0, entry, body]).or_store_error()?;
    there(changed)
}

pub(crate) const SUCCEED: &str =
    "UPDATE effect SET state = 1, updated = ?2, entry = ?3, lease = NULL,
    outcome = ?4 WHERE id = ?1 AND state = 0";

/// The body of a success that is small enough to lie in its row.
pub(crate) fn inline(effect: &Effect) -> Option<&[u8]> {
    match &effect.state {
        State::Succeeded(outcome) => outcome.body().filter(|body| body.len() <= INLINE),
        _ => None,
    }
}

/// Writes a new effect, which begins as running: its other columns are still empty. Its number is
/// that of its first entry. `None` if the database has a row of this key already.
pub(crate) fn put_new(
    hot: &mut StatementCache<'_>,
    namespace: i64,
    key: Key,
    effect: &Effect,
) -> Result<Option<i64>, StoreError> {
    let State::Running { lease, deadline } = &effect.state else {
        return Err(StoreError::Corrupt(format!("effect {key} began without a claim")));
    };
    let (safety, settling) = effect.safety.code();
    let number = effect.fence.0 as i64;
    let made = hot
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
pub(crate) fn put(
    db: &Connection,
    row: i64,
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
    let aside = outcome.filter(|_| inline.is_none());
    let body = match aside {
        Some(outcome) => store_body(db, outcome)?,
        None => None,
    };
    let state = effect.state.name();
    let stuck = state.needs_attention().then_some(state.code());
    let changed = db
        .prepare_cached(UPDATE)
        .or_store_error()?
        .execute(params![
            row,
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
            aside.map(|outcome| *outcome.digest().as_bytes()),
            aside.map(|outcome| outcome.size() as i64),
            stuck,
            effect.bound.as_ref().map(|bound| bound.domain.as_str()),
            effect.bound.as_ref().map(|bound| bound.epoch as i64),
            voidable(effect),
        ])
        .or_store_error()?;
    there(changed)
}

const UPDATE: &str = "UPDATE effect SET fingerprint = ?2, state = ?3, safety = ?4,
    settling_ms = ?5, attempt = ?6, fence = ?7, generation = ?8, attempts = ?9, created = ?10,
    updated = ?11, entry = ?12, lock = ?13, label = ?14, ttl_ms = ?15, expires = ?16, lease = ?17,
    at_era = ?18, at_ms = ?19, tries = ?20, cause = ?21, reason = ?22, outcome = ?23, body = ?24,
    digest = ?25, size = ?26, stuck = ?27, domain = ?28, epoch = ?29,
    voidable = ?30
WHERE id = ?1";

/// Checks that one row was changed, the one that was loaded.
fn there(changed: usize) -> Result<(), StoreError> {
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

/// Stores a large body once; `None` if the body was not kept.
fn store_body(db: &Connection, outcome: &Outcome) -> Result<Option<i64>, StoreError> {
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

fn load_body(db: &Connection, id: i64) -> Result<Vec<u8>, StoreError> {
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

/// Removes expired effects, and bodies that nothing refers to any more.
pub(crate) fn sweep(db: &Connection, now: Timestamp, limit: usize) -> Result<usize, StoreError> {
    let expired = db
        .prepare_cached(
            "SELECT id FROM effect WHERE expires IS NOT NULL AND expires <= ?1 LIMIT ?2",
        )
        .or_store_error()?
        .query_map(params![now.0, limit as i64], |row| row.get(0))
        .or_store_error()?
        .collect::<rusqlite::Result<Vec<i64>>>()
        .or_store_error()?;
    for id in &expired {
        remove(db, *id)?;
    }
    if !expired.is_empty() {
        db.execute("UPDATE self SET swept = swept + ?1", [expired.len() as i64])
            .or_store_error()?;
    }
    Ok(expired.len())
}

/// Removes an effect, its steps, its result index entry, its part, and its body if no other effect
/// refers to it.
pub(crate) fn remove(db: &Connection, id: i64) -> Result<(), StoreError> {
    let (body, attempt, key, namespace) = db
        .prepare_cached("DELETE FROM effect WHERE id = ?1 RETURNING body, attempt, key, namespace")
        .or_store_error()?
        .query_row([id], |row| {
            let (attempt, key) = (row.get::<_, [u8; 16]>(1)?, row.get::<_, [u8; 32]>(2)?);
            Ok((row.get::<_, Option<i64>>(0)?, attempt, key, row.get::<_, i64>(3)?))
        })
        .or_store_error()?;
    if let Some(body) = body {
        db.prepare_cached(
            "DELETE FROM body WHERE id = ?1 AND NOT EXISTS
                 (SELECT 1 FROM effect WHERE body = ?1 AND body IS NOT NULL)",
        )
        .or_store_error()?
        .execute([body])
        .or_store_error()?;
    }
    db.prepare_cached("DELETE FROM step WHERE attempt = ?1 AND key = ?2 AND namespace = ?3")
        .or_store_error()?
        .execute(params![attempt, key, namespace])
        .or_store_error()?;
    part::forget(db, id)?;
    result_index::forget(db, namespace, &key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with the row of one success and its journal entry.
    fn ledger() -> Connection {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(crate::SCHEMA).unwrap();
        db.execute_batch(
            "PRAGMA ignore_check_constraints = ON;
             INSERT INTO journal (at, namespace, key, event, state, attempt, generation)
                 VALUES (1, 1, zeroblob(32), 1, 1, zeroblob(16), 1);
             INSERT INTO effect (id, namespace, key, fingerprint, state, safety, attempt, fence,
                     generation, attempts, created, updated, entry, outcome)
                 VALUES (1, 1, zeroblob(32), zeroblob(32), 1, 0, zeroblob(16), 1, 1, 1, 1, 1, 1, x'00');",
        )
        .unwrap();
        db
    }

    #[test]
    fn an_unknown_code_is_corruption() {
        for change in ["state = 7", "state = -1", "safety = 4", "state = 2, cause = 7"] {
            let db = ledger();
            db.execute(&format!("UPDATE effect SET {change}"), []).unwrap();
            let found = list(&db, None, &Filter { limit: 10, ..Filter::default() });
            assert!(matches!(found, Err(StoreError::Corrupt(_))), "{change}");
        }
        let db = ledger();
        assert!(matches!(state(&db, 1), Ok(Some(StateName::Succeeded))));
        db.execute("UPDATE effect SET state = 7", []).unwrap();
        let found = state(&db, 1);
        assert!(matches!(found, Err(StoreError::Corrupt(_))), "{found:?}");
    }
}
