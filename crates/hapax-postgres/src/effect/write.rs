//! The rows of effects, as they are written: all of a batch in one statement.

use std::sync::LazyLock;

use hapax_core::effect::{Effect, Safety, State};
use hapax_core::outcome::Outcome;
use tokio_postgres::types::Type;

use super::row::{EffectRow, EffectRowKey};
use crate::connect::Link;
use crate::error::PgFailure;

/// Outcomes above this size are stored once, however many effects share them.
pub(crate) const MAX_INLINE: usize = 64 * 1024;

/// A row to write over the version `replaced_entry`; 0 means that there was no row.
pub(crate) struct RowWrite {
    pub(crate) row_key: EffectRowKey,
    pub(crate) replaced_entry: u64,
    pub(crate) row: EffectRow,
}

/// Writes rows, sorted by row key. `Busy` if one of them has moved on meanwhile.
pub(crate) fn put(link: &Link, writes: &[RowWrite]) -> Result<(), PgFailure> {
    if writes.is_empty() {
        return Ok(());
    }
    let mut columns = Columns::default();
    for write in writes {
        let body = match &write.row.effect.state {
            State::Succeeded(outcome) if outcome.size() > MAX_INLINE as u64 => {
                put_body(link, outcome)?
            }
            _ => None,
        };
        columns.push(write, body);
    }
    let changed = link.query_prepared((PUT.as_str(), &columns.params()))?;
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

/// A column of `hapax.effect`.
struct Column {
    name: &'static str,
    /// Its type, as the element of an array.
    sql: &'static str,
    /// Its value in the row of a new claim `n`, whose time is the first parameter.
    claimed: &'static str,
}

macro_rules! columns {
    ($($name:ident: $rust:ty => $sql:literal, $type:ident, $claimed:literal;)*) => {
        /// The rows to write, one vector for each column, and the versions that they replace.
        #[derive(Default)]
        struct Columns<'a> {
            $($name: Vec<$rust>,)*
            replaced_entry: Vec<i64>,
        }

        impl Columns<'_> {
            fn params(&self) -> Vec<crate::connect::Param<'_>> {
                vec![$((&self.$name, Type::$type),)* (&self.replaced_entry, Type::INT8_ARRAY)]
            }
        }

        /// All columns, in the order of the parameters.
        const COLUMNS: &[Column] = &[
            $(Column { name: stringify!($name), sql: $sql, claimed: $claimed },)*
        ];
    };
}

columns! {
    namespace: i32 => "int", INT4_ARRAY, "n.namespace";
    key: &'a [u8] => "bytea", BYTEA_ARRAY, "n.key";
    entry: i64 => "bigint", INT8_ARRAY, "n.entry";
    fingerprint: &'a [u8] => "bytea", BYTEA_ARRAY, "n.fingerprint";
    state: i16 => "smallint", INT2_ARRAY, "0";
    safety: i16 => "smallint", INT2_ARRAY, "n.safety";
    settling_ms: Option<i64> => "bigint", INT8_ARRAY, "n.settling_ms";
    attempt: &'a [u8] => "bytea", BYTEA_ARRAY, "n.attempt";
    fence: i64 => "bigint", INT8_ARRAY, "n.entry";
    generation: i32 => "int", INT4_ARRAY, "1";
    attempts: i32 => "int", INT4_ARRAY, "1";
    created: i64 => "bigint", INT8_ARRAY, "$1";
    updated: i64 => "bigint", INT8_ARRAY, "$1";
    lock: Option<i64> => "bigint", INT8_ARRAY, "n.lock";
    label: Option<&'a str> => "text", TEXT_ARRAY, "n.label";
    ttl_ms: Option<i64> => "bigint", INT8_ARRAY, "n.ttl_ms";
    expires: Option<i64> => "bigint", INT8_ARRAY, "NULL";
    lease: Option<&'a [u8]> => "bytea", BYTEA_ARRAY, "n.lease";
    watch: Option<&'a [u8]> => "bytea", BYTEA_ARRAY, "CASE WHEN n.safety <> 0 THEN n.lease END";
    at_ms: Option<i64> => "bigint", INT8_ARRAY, "n.at_ms";
    tries: Option<i32> => "int", INT4_ARRAY, "NULL";
    stuck: Option<i16> => "smallint", INT2_ARRAY, "NULL";
    cause: Option<i16> => "smallint", INT2_ARRAY, "NULL";
    reason: Option<&'a str> => "text", TEXT_ARRAY, "NULL";
    outcome: Option<&'a [u8]> => "bytea", BYTEA_ARRAY, "NULL";
    body: Option<i64> => "bigint", INT8_ARRAY, "NULL";
    digest: Option<Vec<u8>> => "bytea", BYTEA_ARRAY, "NULL";
    size: Option<i64> => "bigint", INT8_ARRAY, "NULL";
    domain: Option<&'a str> => "text", TEXT_ARRAY, "NULL";
    epoch: Option<i64> => "bigint", INT8_ARRAY, "NULL";
    voidable: Option<&'a str> => "text", TEXT_ARRAY, "NULL";
}

/// The only insertion of effects: each column with its value in a row of the source that follows.
fn insert(value: impl Fn(&Column) -> String) -> String {
    let names = list(|column| column.name.to_owned());
    format!("INSERT INTO hapax.effect AS e ({names})\n    SELECT {}\n    FROM", list(value))
}

/// All columns, separated by commas.
fn list(text: impl Fn(&Column) -> String) -> String {
    COLUMNS.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// The insertion of new claims from a source `n`.
pub(crate) static INSERT_CLAIM: LazyLock<String> =
    LazyLock::new(|| insert(|column| column.claimed.to_owned()));

/// Writes effects over the versions that were read. A row that has another version by now is left
/// alone, and then the statement returns fewer rows than were sent.
static PUT: LazyLock<String> = LazyLock::new(|| {
    let params = (1..).zip(COLUMNS).map(|(nth, column)| format!("${nth}::{}[]", column.sql));
    format!(
        "WITH w AS (SELECT * FROM unnest({}, ${}::bigint[]) AS w ({}, replaced_entry))
        {} w
        ON CONFLICT (namespace, key) DO UPDATE SET {}
        WHERE e.entry = (SELECT w.replaced_entry FROM w WHERE w.namespace = e.namespace AND w.key = e.key)
        RETURNING true",
        params.collect::<Vec<_>>().join(", "),
        COLUMNS.len() + 1,
        list(|column| column.name.to_owned()),
        insert(|column| format!("w.{}", column.name)),
        list(|column| format!("{0} = excluded.{0}", column.name)),
    )
});

impl<'a> Columns<'a> {
    fn push(&mut self, write: &'a RowWrite, body: Option<i64>) {
        let (namespace, key) = &write.row_key;
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
        let inline = outcome.and_then(Outcome::body).filter(|body| body.len() <= MAX_INLINE);
        let out_of_line = outcome.filter(|_| inline.is_none());
        let lease = lease.map(|lease| &lease.as_bytes()[..]);
        self.namespace.push(*namespace);
        self.key.push(key.as_bytes());
        self.replaced_entry.push(write.replaced_entry as i64);
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
        self.digest.push(out_of_line.map(|outcome| outcome.digest().as_bytes().to_vec()));
        self.size.push(out_of_line.map(|outcome| outcome.size() as i64));
        let domain = effect.bound.as_ref().map(|bound| bound.domain.as_str());
        self.domain.push(domain);
        self.epoch.push(effect.bound.as_ref().map(|bound| bound.epoch as i64));
        self.voidable.push(domain.filter(|_| state.is_open()));
    }
}

/// A safety class as its two columns.
pub(crate) fn safety(effect: &Effect) -> (i16, Option<i64>) {
    let (code, settling_ms) = effect.safety.code();
    (code.into(), settling_ms.map(|ms| ms as i64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_testkit::Postgres;

    #[test]
    fn every_column_of_the_table_is_written() {
        let server = Postgres::start();
        crate::PgStore::migrate(&server.database("fresh")).unwrap();
        let columns = "SELECT string_agg(attname, ', ' ORDER BY attname) FROM pg_attribute
            WHERE attrelid = 'hapax.effect'::regclass AND attnum > 0 AND NOT attisdropped";
        let mut names: Vec<_> = COLUMNS.iter().map(|column| column.name).collect();
        names.sort_unstable();
        assert_eq!(server.sql("fresh", columns), names.join(", "));
    }
}
