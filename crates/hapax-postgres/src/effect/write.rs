//! The rows of effects, as they are written: all of a batch in one statement.

use hapax_core::effect::{Effect, Safety, State};
use hapax_core::outcome::Outcome;
use tokio_postgres::types::Type;

use super::row::{EffectRow, Stored};
use crate::connect::Link;
use crate::error::PgFailure;

/// Outcomes above this size are stored once, however many effects share them.
pub(crate) const INLINE: usize = 64 * 1024;

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

const PUT: &str = concat!(include_str!("../sql/put_effects.sql"), "RETURNING true");

/// A safety class as its two columns.
pub(crate) fn safety(effect: &Effect) -> (i16, Option<i64>) {
    let (code, settling_ms) = effect.safety.code();
    (code.into(), settling_ms.map(|ms| ms as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

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
