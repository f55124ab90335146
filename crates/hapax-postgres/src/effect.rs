//! Effects as rows.

use std::collections::HashMap;
use std::sync::LazyLock;

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::effect::{Effect, Safety, State, StateName};
use hapax_core::fingerprint::Fingerprint;
use hapax_core::key::Key;
use hapax_core::lease::{Lease, LeaseId};
use hapax_core::lock::LockKey;
use hapax_core::outcome::{Cause, Digest, Failure, Outcome};
use hapax_core::time::{LeaseInstant, Timestamp};
use hapax_store::{Filter, StoreError};
use tokio_postgres::Row;
use tokio_postgres::row::RowIndex;
use tokio_postgres::types::Type;

use crate::clock::ERA;
use crate::connect::{Link, Param};
use crate::epoch;
use crate::error::{PgFailure, decoded};
use crate::lease;

/// Outcomes above this size are stored once, however many effects share them.
pub(crate) const INLINE: usize = 64 * 1024;

/// An effect with the version of its row.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    /// The newest journal entry, which is the version of the row.
    pub(crate) entry: u64,
    pub(crate) effect: Effect,
}

/// A place in the table: the number of a namespace and a key.
pub(crate) type EffectRow = (i32, Key);

macro_rules! columns {
    () => {
        "SELECT e.namespace, e.key, e.entry, e.fingerprint, e.state, e.safety,
    e.settling_ms, e.attempt, e.fence, e.generation, e.attempts, e.created, e.updated, e.lock,
    e.label, e.ttl_ms, e.lease, e.at_ms, e.tries, e.cause, e.reason, e.digest, e.size,
    e.domain, e.epoch, "
    };
}

const SELECT: &str = concat!(
    columns!(),
    "coalesce(e.outcome, b.data) AS outcome
    FROM hapax.effect e LEFT JOIN hapax.body b ON b.id = e.body"
);

/// Large outcomes by their digests only: a list of bodies would take too much memory.
const SELECT_MANY: &str = concat!(columns!(), "e.outcome FROM hapax.effect e");

/// The existing rows of these places, locked in the order of the table's key.
pub(crate) fn load_locked(link: &Link, places: &[EffectRow]) -> Result<Rows, PgFailure> {
    if places.is_empty() {
        return Ok(Rows::new());
    }
    let (namespaces, keys) = split(places);
    static LOCK: LazyLock<String> = LazyLock::new(|| {
        format!(
            "{SELECT} WHERE (e.namespace, e.key) IN (SELECT * FROM unnest($1::int[], $2::bytea[]))
             ORDER BY e.namespace, e.key FOR UPDATE OF e"
        )
    });
    let params: [Param<'_>; 2] = [(&namespaces, Type::INT4_ARRAY), (&keys, Type::BYTEA_ARRAY)];
    link.often((LOCK.as_str(), &params))?.iter().map(read).collect()
}

/// The existing rows of these places.
pub(crate) fn load(link: &Link, places: &[EffectRow]) -> Result<Rows, PgFailure> {
    if places.is_empty() {
        return Ok(Rows::new());
    }
    let (namespaces, keys) = split(places);
    let params: [Param<'_>; 2] = [(&namespaces, Type::INT4_ARRAY), (&keys, Type::BYTEA_ARRAY)];
    link.often((LOOK, &params))?.iter().map(read).collect()
}

/// The existing rows of these places, and a lease, in one round trip.
pub(crate) fn load_with(
    link: &Link,
    places: &[EffectRow],
    lease: LeaseId,
) -> Result<(Rows, Option<Lease>), PgFailure> {
    let (namespaces, keys) = split(places);
    let params: [Param<'_>; 2] = [(&namespaces, Type::INT4_ARRAY), (&keys, Type::BYTEA_ARRAY)];
    let id = &lease.as_bytes()[..];
    let (effects, leases) = link.both((LOOK, &params), (lease::FIND, &[(&id, Type::BYTEA)]))?;
    let rows = effects.iter().map(read).collect::<Result<_, _>>()?;
    Ok((rows, lease::first(&leases)?))
}

const LOOK: &str = "SELECT * FROM hapax.look($1, $2)";

/// Rows by their places.
pub(crate) type Rows = HashMap<EffectRow, Stored>;

fn split(places: &[EffectRow]) -> (Vec<i32>, Vec<&[u8]>) {
    places.iter().map(|(namespace, key)| (*namespace, &key.as_bytes()[..])).unzip()
}

/// The effects that match a filter, newest first.
pub(crate) fn list(
    link: &Link,
    namespace: Option<i32>,
    filter: &Filter,
) -> Result<Vec<(EffectRow, Stored)>, PgFailure> {
    let states = &filter.states;
    let numbers: Vec<i16> = states.iter().map(|state| state.code().into()).collect();
    let stuck = !states.is_empty() && states.iter().all(|state| state.needs_attention());
    // Lets the planner see that the index of stuck effects covers the query.
    let column = if stuck { "stuck" } else { "state" };
    let rows = link.query(
        &format!(
            "{SELECT_MANY} WHERE (cardinality($2::smallint[]) = 0 OR e.{column} = ANY ($2))
                 AND ($1::int IS NULL OR e.namespace = $1) AND ($4::bigint IS NULL OR e.fence < $4)
                 AND ($5::text IS NULL OR strpos(e.label, $5) > 0)
             ORDER BY e.fence DESC LIMIT $3"
        ),
        &[
            (&namespace, Type::INT4),
            (&numbers, Type::INT2_ARRAY),
            (&(filter.limit as i64), Type::INT8),
            (&filter.before.map(|fence| fence.0 as i64), Type::INT8),
            (&filter.label, Type::TEXT),
        ],
    )?;
    rows.iter().map(read).collect()
}

/// Rows of effects that are parts, with the columns of the part.
pub(crate) fn parts(link: &Link, which: &str, params: &[Param<'_>]) -> Result<Vec<Row>, PgFailure> {
    let sql = format!(
        "{}coalesce(e.outcome, b.data) AS outcome, p.place, p.whole, p.kind, p.kept
         FROM hapax.part p JOIN hapax.effect e ON e.namespace = p.namespace AND e.key = p.key
         LEFT JOIN hapax.body b ON b.id = e.body WHERE {which}",
        columns!()
    );
    link.query(&sql, params)
}

/// How many effects there are in each state.
pub(crate) fn census(link: &Link) -> Result<Vec<(StateName, u64)>, PgFailure> {
    let sql = "SELECT state, count(*) FROM hapax.effect GROUP BY state ORDER BY state";
    let rows = link.query(sql, &[])?;
    rows.iter()
        .map(|row| Ok((state_name(row.try_get(0)?)?, row.try_get::<_, i64>(1)? as u64)))
        .collect()
}

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

pub(crate) fn read(row: &Row) -> Result<(EffectRow, Stored), PgFailure> {
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
    Ok(((row.try_get("namespace")?, key), Stored { entry, effect }))
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

/// A row to write over version `over`; 0 means that there was no row.
pub(crate) struct Write {
    pub(crate) place: EffectRow,
    pub(crate) over: u64,
    pub(crate) row: Stored,
}

/// Writes rows, sorted by place. `Busy` if one of them has moved on meanwhile.
pub(crate) fn put(link: &Link, writes: &[Write]) -> Result<(), PgFailure> {
    if writes.is_empty() {
        return Ok(());
    }
    let mut columns = Columns::default();
    for write in writes {
        let body = match &write.row.effect.state {
            State::Succeeded(outcome) if outcome.size() > INLINE as u64 => put_body(link, outcome)?,
            _ => None,
        };
        columns.push(write, body);
    }
    let changed = link.often((PUT, &columns.params()))?;
    if changed.len() == writes.len() {
        Ok(())
    } else {
        Err(PgFailure::Busy("a row has moved on".into()))
    }
}

/// Stores a large body once; `None` if the body was not kept.
fn put_body(link: &Link, outcome: &Outcome) -> Result<Option<i64>, PgFailure> {
    let Some(body) = outcome.body() else { return Ok(None) };
    // The update locks the row, so that no sweep can take it before the effect refers to it.
    let row = link.one(
        "INSERT INTO hapax.body AS b (digest, data) VALUES ($1, $2)
         ON CONFLICT (digest) DO UPDATE SET digest = b.digest RETURNING id",
        &[(&&outcome.digest().as_bytes()[..], Type::BYTEA), (&body, Type::BYTEA)],
    )?;
    Ok(Some(row.try_get(0)?))
}

macro_rules! columns {
    ($($name:ident: $rust:ty => $sql:literal, $type:ident;)*) => {
        /// The rows to write, one vector for each column.
        #[derive(Default)]
        struct Columns<'a> {
            $($name: Vec<$rust>,)*
        }

        impl Columns<'_> {
            fn params(&self) -> Vec<crate::connect::Param<'_>> {
                vec![$((&self.$name, Type::$type),)*]
            }
        }

        #[cfg(test)]
        const NAMES: &[(&str, &str)] = &[$((stringify!($name), $sql),)*];
    };
}

columns! {
    namespace: i32 => "int", INT4_ARRAY;
    key: &'a [u8] => "bytea", BYTEA_ARRAY;
    over: i64 => "bigint", INT8_ARRAY;
    entry: i64 => "bigint", INT8_ARRAY;
    fingerprint: &'a [u8] => "bytea", BYTEA_ARRAY;
    state: i16 => "smallint", INT2_ARRAY;
    safety: i16 => "smallint", INT2_ARRAY;
    settling_ms: Option<i64> => "bigint", INT8_ARRAY;
    attempt: &'a [u8] => "bytea", BYTEA_ARRAY;
    fence: i64 => "bigint", INT8_ARRAY;
    generation: i32 => "int", INT4_ARRAY;
    attempts: i32 => "int", INT4_ARRAY;
    created: i64 => "bigint", INT8_ARRAY;
    updated: i64 => "bigint", INT8_ARRAY;
    lock: Option<i64> => "bigint", INT8_ARRAY;
    label: Option<&'a str> => "text", TEXT_ARRAY;
    ttl_ms: Option<i64> => "bigint", INT8_ARRAY;
    expires: Option<i64> => "bigint", INT8_ARRAY;
    lease: Option<&'a [u8]> => "bytea", BYTEA_ARRAY;
    watch: Option<&'a [u8]> => "bytea", BYTEA_ARRAY;
    at_ms: Option<i64> => "bigint", INT8_ARRAY;
    tries: Option<i32> => "int", INT4_ARRAY;
    stuck: Option<i16> => "smallint", INT2_ARRAY;
    cause: Option<i16> => "smallint", INT2_ARRAY;
    reason: Option<&'a str> => "text", TEXT_ARRAY;
    outcome: Option<&'a [u8]> => "bytea", BYTEA_ARRAY;
    body: Option<i64> => "bigint", INT8_ARRAY;
    digest: Option<Vec<u8>> => "bytea", BYTEA_ARRAY;
    size: Option<i64> => "bigint", INT8_ARRAY;
    domain: Option<&'a str> => "text", TEXT_ARRAY;
    epoch: Option<i64> => "bigint", INT8_ARRAY;
    voidable: Option<&'a str> => "text", TEXT_ARRAY;
}

impl<'a> Columns<'a> {
    fn push(&mut self, write: &'a Write, body: Option<i64>) {
        let (namespace, key) = &write.place;
        let effect = &write.row.effect;
        let (safety, settling_ms) = safety(effect);
        let state = effect.state.name();
        let (lease, at, tries, cause) = match &effect.state {
            State::Running { lease, deadline } => (Some(lease), *deadline, None, None),
            State::Unknown { since, tries, .. } => (None, Some(*since), Some(*tries), None),
            State::Failed(failure) => (None, None, None, Some(failure.cause)),
            _ => (None, None, None, None),
        };
        let outcome = match &effect.state {
            State::Succeeded(outcome) => Some(outcome),
            _ => None,
        };
        let inline = outcome.and_then(Outcome::body).filter(|body| body.len() <= INLINE);
        let aside = outcome.filter(|_| inline.is_none());
        let lease = lease.map(|lease| &lease.as_bytes()[..]);
        self.namespace.push(*namespace);
        self.key.push(key.as_bytes());
        self.over.push(write.over as i64);
        self.entry.push(write.row.entry as i64);
        self.fingerprint.push(effect.fingerprint.as_bytes());
        self.state.push(state.code().into());
        self.safety.push(safety);
        self.settling_ms.push(settling_ms);
        self.attempt.push(effect.attempt.as_bytes());
        self.fence.push(effect.fence.0 as i64);
        self.generation.push(effect.generation as i32);
        self.attempts.push(effect.attempts as i32);
        self.created.push(effect.created.0);
        self.updated.push(effect.updated.0);
        self.lock.push(effect.lock.map(|lock| lock.0 as i64));
        self.label.push(effect.label.as_deref());
        self.ttl_ms.push(effect.ttl_ms.map(|ms| ms as i64));
        self.expires.push(effect.expires().map(|at| at.0));
        self.lease.push(lease);
        self.watch.push(lease.filter(|_| effect.safety != Safety::Transactional));
        self.at_ms.push(at.map(|at| at.ms as i64));
        self.tries.push(tries.map(|tries| tries as i32));
        self.stuck.push(state.needs_attention().then_some(state.code().into()));
        self.cause.push(cause.map(|cause| cause.code().into()));
        self.reason.push(effect.state.reason());
        self.outcome.push(inline);
        self.body.push(body);
        self.digest.push(aside.map(|outcome| outcome.digest().as_bytes().to_vec()));
        self.size.push(aside.map(|outcome| outcome.size() as i64));
        let domain = effect.bound.as_ref().map(|bound| bound.domain.as_str());
        self.domain.push(domain);
        self.epoch.push(effect.bound.as_ref().map(|bound| bound.epoch as i64));
        self.voidable.push(domain.filter(|_| state.is_open()));
    }
}

const PUT: &str = concat!(include_str!("sql/put_effects.sql"), "RETURNING true");

/// A safety class as its two columns.
pub(crate) fn safety(effect: &Effect) -> (i16, Option<i64>) {
    let (code, settling_ms) = effect.safety.code();
    (code.into(), settling_ms.map(|ms| ms as i64))
}

/// Removes expired effects with their steps, and bodies that nothing refers to any more.
pub(crate) fn sweep(link: &Link, now: Timestamp, limit: usize) -> Result<usize, PgFailure> {
    let rows = link.query(
        "SELECT namespace, key FROM hapax.effect WHERE expires <= $1
         ORDER BY namespace, key LIMIT $2 FOR UPDATE SKIP LOCKED",
        &[(&now.0, Type::INT8), (&(limit as i64), Type::INT8)],
    )?;
    let expired: Vec<EffectRow> = rows.iter().map(place).collect::<Result<_, _>>()?;
    if !expired.is_empty() {
        remove(link, &expired)?;
        let count = expired.len() as i64;
        link.execute("UPDATE hapax.self SET swept = swept + $1", &[(&count, Type::INT8)])?;
    }
    Ok(expired.len())
}

/// Removes effects that are locked, with their steps, their index entries and their parts, and with
/// their bodies if no other effect refers to them.
pub(crate) fn remove(link: &Link, places: &[EffectRow]) -> Result<(), PgFailure> {
    if places.is_empty() {
        return Ok(());
    }
    let namespaces: Vec<i32> = places.iter().map(|(namespace, _)| *namespace).collect();
    let keys: Vec<&[u8]> = places.iter().map(|(_, key)| &key.as_bytes()[..]).collect();
    let removed = link.query(
        "WITH gone AS (
             DELETE FROM hapax.effect WHERE (namespace, key) IN
                 (SELECT * FROM unnest($1::int[], $2::bytea[]))
             RETURNING namespace, key, body, attempt
         ), steps AS (DELETE FROM hapax.step WHERE (attempt, namespace, key) IN
                 (SELECT attempt, namespace, key FROM gone)),
         results AS (DELETE FROM hapax.shelf WHERE (namespace, key) IN
                 (SELECT namespace, key FROM gone)),
         parts AS (DELETE FROM hapax.part WHERE (namespace, key) IN
                 (SELECT namespace, key FROM gone))
         SELECT body FROM gone",
        &[(&namespaces, Type::INT4_ARRAY), (&keys, Type::BYTEA_ARRAY)],
    )?;
    let bodies: Vec<i64> = removed.iter().filter_map(|row| row.get(0)).collect();
    if !bodies.is_empty() {
        // Lock the bodies first: a transaction that begins to refer to one now waits, and the statement
        // that deletes sees every earlier reference.
        link.query(
            "SELECT 1 FROM hapax.body WHERE id = ANY ($1) ORDER BY id FOR UPDATE",
            &[(&bodies, Type::INT8_ARRAY)],
        )?;
        link.execute(
            "DELETE FROM hapax.body b WHERE id = ANY ($1)
                 AND NOT EXISTS (SELECT 1 FROM hapax.effect e WHERE e.body = b.id)",
            &[(&bodies, Type::INT8_ARRAY)],
        )?;
    }
    Ok(())
}

/// Running effects that are not transactional and whose lease is dead or missing, or whose lease's or
/// own time is up. Locked; rows that another transaction has locked are skipped.
pub(crate) fn overdue(
    link: &Link,
    at: LeaseInstant,
    limit: usize,
) -> Result<Vec<EffectRow>, PgFailure> {
    let rows = link.query(
        "SELECT namespace, key FROM hapax.effect WHERE (namespace, key) IN (
             (SELECT e.namespace, e.key FROM hapax.effect e
              WHERE e.watch IN (SELECT DISTINCT watch FROM hapax.effect WHERE watch IS NOT NULL
                                EXCEPT SELECT id FROM hapax.lease WHERE NOT dead AND until_ms > $1))
             UNION
             (SELECT e.namespace, e.key FROM hapax.effect e WHERE e.at_ms <= $1 AND e.watch IS NOT NULL))
         ORDER BY namespace, key LIMIT $2 FOR UPDATE SKIP LOCKED",
        &[(&(at.ms as i64), Type::INT8), (&(limit as i64), Type::INT8)],
    )?;
    rows.iter().map(place).collect()
}

/// A place, from the columns of its name.
pub(crate) fn place(row: &Row) -> Result<EffectRow, PgFailure> {
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

    /// The statement in `sql/put_effects.sql` has one parameter a column, in the order of the columns.
    #[test]
    fn the_statement_names_every_column_in_order() {
        let unnested: Vec<_> =
            (1..).zip(NAMES).map(|(n, (_, sql))| format!("${n}::{sql}[]")).collect();
        let squeezed = |text: &str| text.split_whitespace().collect::<String>();
        assert!(squeezed(PUT).contains(&squeezed(&unnested.join(","))), "{unnested:?}");
        let names: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
        assert!(squeezed(PUT).contains(&squeezed(&format!("ASw({})", names.join(",")))));
    }
}
