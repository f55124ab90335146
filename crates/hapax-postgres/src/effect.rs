//! Effects: the rows that commands load, and the rows that they write.

use std::collections::HashMap;
use std::sync::LazyLock;

use hapax_core::effect::{Effect, StateName};
use hapax_core::lease::{Lease, LeaseId};
use hapax_core::name::Name;
use hapax_core::time::{LeaseInstant, Now, Timestamp};
use hapax_store::{EffectRecord, EffectTxn, EffectView, Filter, StoreError};
use tokio_postgres::types::Type;

use crate::connect::{Link, Param};
use crate::error::PgFailure;
use crate::journal;
use crate::lease;
use crate::txn::{Access, PgTxn};

mod row;
mod write;

pub(crate) use row::{COLUMNS, EffectRow, EffectRowKey, bytes, read, row_key, state_name};
use row::{SELECT, SELECT_MANY};
pub(crate) use write::{INSERT_CLAIM, MAX_INLINE, RowWrite, put, safety};

impl EffectView for PgTxn<'_> {
    fn effects(&mut self, names: &[Name]) -> Result<Vec<Option<Effect>>, StoreError> {
        let effects = self.try_effects(names);
        self.keep_failure(effects)
    }

    fn list(&mut self, filter: &Filter) -> Result<Vec<EffectRecord>, StoreError> {
        let found = self.try_list(filter);
        self.keep_failure(found)
    }

    fn census(&mut self) -> Result<Vec<(StateName, u64)>, StoreError> {
        self.keep_failure(census(self.link))
    }
}

impl EffectTxn for PgTxn<'_> {
    fn put_effect(&mut self, name: &Name, effect: &Effect) -> Result<(), StoreError> {
        let put = self.try_put_effect(name, effect);
        self.keep_failure(put)
    }

    fn sweep(&mut self, now: Now, limit: usize) -> Result<usize, StoreError> {
        let swept = sweep(self.link, now.wall, limit).and_then(|swept| {
            lease::sweep(self.link)?;
            journal::make_partitions(self.link)?;
            Ok(swept)
        });
        self.keep_failure(swept)
    }

    fn overdue(&mut self, at: LeaseInstant, limit: usize) -> Result<Vec<Name>, StoreError> {
        let overdue = self.try_overdue(at, limit);
        self.keep_failure(overdue)
    }
}

impl PgTxn<'_> {
    pub(crate) fn load_effects(&mut self, row_keys: &[EffectRowKey]) -> Result<(), PgFailure> {
        let mut missing: Vec<EffectRowKey> = row_keys
            .iter()
            .filter(|row_key| !self.loaded.effects.contains_key(*row_key))
            .copied()
            .collect();
        missing.sort_unstable();
        missing.dedup();
        let mut rows = match self.access {
            Access::ReadOnly => load(self.link, &missing)?,
            Access::Write | Access::WriteLeases => load_locked(self.link, &missing)?,
        };
        let found = missing.into_iter().map(|row_key| (row_key, rows.remove(&row_key)));
        self.loaded.effects.extend(found);
        Ok(())
    }

    /// The row as the commands so far have left it.
    pub(crate) fn row(&mut self, row_key: EffectRowKey) -> Result<Option<&EffectRow>, PgFailure> {
        self.load_effects(&[row_key])?;
        let written =
            self.staged.effects.get(&row_key).or_else(|| self.written.effects.get(&row_key));
        Ok(written.or_else(|| self.loaded.effects.get(&row_key).and_then(Option::as_ref)))
    }

    /// The row key of an effect, if its namespace has a number.
    pub(crate) fn row_key(&self, name: &Name) -> Result<Option<EffectRowKey>, PgFailure> {
        Ok(self.namespaces.find(self.link, &name.namespace)?.map(|id| (id, name.key)))
    }

    fn try_effects(&mut self, names: &[Name]) -> Result<Vec<Option<Effect>>, PgFailure> {
        let row_keys: Vec<_> =
            names.iter().map(|name| self.row_key(name)).collect::<Result<_, _>>()?;
        let known: Vec<EffectRowKey> = row_keys.iter().flatten().copied().collect();
        self.load_effects(&known)?;
        row_keys
            .into_iter()
            .map(|row_key| match row_key {
                Some(row_key) => Ok(self.row(row_key)?.map(|row| row.effect.clone())),
                None => Ok(None),
            })
            .collect()
    }

    fn try_list(&mut self, filter: &Filter) -> Result<Vec<EffectRecord>, PgFailure> {
        let namespace = match &filter.namespace {
            Some(namespace) => match self.namespaces.find(self.link, namespace)? {
                Some(id) => Some(id),
                None => return Ok(Vec::new()),
            },
            None => None,
        };
        let rows = list(self.link, namespace, filter)?;
        rows.into_iter()
            .map(|((namespace, key), row)| {
                let namespace = self.namespaces.name(self.link, namespace)?;
                Ok(EffectRecord { name: Name { namespace, key }, effect: row.effect })
            })
            .collect()
    }

    fn try_overdue(&mut self, at: LeaseInstant, limit: usize) -> Result<Vec<Name>, PgFailure> {
        let row_keys = overdue(self.link, at, limit)?;
        self.load_effects(&row_keys)?;
        row_keys
            .into_iter()
            .map(|(namespace, key)| {
                Ok(Name { namespace: self.namespaces.name(self.link, namespace)?, key })
            })
            .collect()
    }

    fn try_put_effect(&mut self, name: &Name, effect: &Effect) -> Result<(), PgFailure> {
        let row_key = (self.namespace(&name.namespace)?, name.key);
        self.load_effects(&[row_key])?;
        let newest = self
            .staged
            .entries
            .iter()
            .rev()
            .find(|new| new.entry.key == name.key && new.entry.namespace == name.namespace);
        let entry = newest
            .map(|new| new.entry.id)
            .ok_or_else(|| StoreError::Corrupt("a change without an entry".into()))?;
        self.staged.effects.insert(row_key, EffectRow { entry, effect: effect.clone() });
        Ok(())
    }
}

/// The existing rows of these effects, locked in the order of the table's key.
fn load_locked(link: &Link, row_keys: &[EffectRowKey]) -> Result<Rows, PgFailure> {
    if row_keys.is_empty() {
        return Ok(Rows::new());
    }
    let (namespaces, keys) = split(row_keys);
    static LOCK: LazyLock<String> = LazyLock::new(|| {
        format!(
            "{SELECT} WHERE (e.namespace, e.key) IN (SELECT * FROM unnest($1::int[], $2::bytea[]))
             ORDER BY e.namespace, e.key FOR UPDATE OF e"
        )
    });
    let params: [Param<'_>; 2] = [(&namespaces, Type::INT4_ARRAY), (&keys, Type::BYTEA_ARRAY)];
    link.query_prepared((LOCK.as_str(), &params))?.iter().map(read).collect()
}

/// The existing rows of these effects.
fn load(link: &Link, row_keys: &[EffectRowKey]) -> Result<Rows, PgFailure> {
    if row_keys.is_empty() {
        return Ok(Rows::new());
    }
    let (namespaces, keys) = split(row_keys);
    let params: [Param<'_>; 2] = [(&namespaces, Type::INT4_ARRAY), (&keys, Type::BYTEA_ARRAY)];
    link.query_prepared((LOOK, &params))?.iter().map(read).collect()
}

/// The existing rows of these effects, and a lease, in one round trip.
pub(crate) fn load_with(
    link: &Link,
    row_keys: &[EffectRowKey],
    lease: LeaseId,
) -> Result<(Rows, Option<Lease>), PgFailure> {
    let (namespaces, keys) = split(row_keys);
    let params: [Param<'_>; 2] = [(&namespaces, Type::INT4_ARRAY), (&keys, Type::BYTEA_ARRAY)];
    let id = &lease.as_bytes()[..];
    let (effects, leases) =
        link.query_both((LOOK, &params), (lease::FIND, &[(&id, Type::BYTEA)]))?;
    let rows = effects.iter().map(read).collect::<Result<_, _>>()?;
    Ok((rows, lease::first(&leases)?))
}

const LOOK: &str = "SELECT * FROM hapax.look($1, $2)";

/// Rows by their keys.
pub(crate) type Rows = HashMap<EffectRowKey, EffectRow>;

fn split(row_keys: &[EffectRowKey]) -> (Vec<i32>, Vec<&[u8]>) {
    row_keys.iter().map(|(namespace, key)| (*namespace, &key.as_bytes()[..])).unzip()
}

/// The effects that match a filter, newest first.
fn list(
    link: &Link,
    namespace: Option<i32>,
    filter: &Filter,
) -> Result<Vec<(EffectRowKey, EffectRow)>, PgFailure> {
    let states = &filter.states;
    let numbers: Vec<i16> = states.iter().map(|state| state.code().into()).collect();
    let stuck = !states.is_empty() && states.iter().all(|state| state.needs_attention());
    // Lets the planner see that the index of stuck effects covers the query.
    let column = if stuck { "stuck" } else { "state" };
    let in_force: Option<Vec<&[u8]>> = filter
        .unheld
        .as_ref()
        .map(|unheld| unheld.in_force.iter().map(|id| &id.as_bytes()[..]).collect());
    let rows = link.query(
        &format!(
            "{SELECT_MANY} WHERE (cardinality($2::smallint[]) = 0 OR e.{column} = ANY ($2))
                 AND ($1::int IS NULL OR e.namespace = $1) AND ($4::bigint IS NULL OR e.fence < $4)
                 AND ($5::text IS NULL OR strpos(e.label, $5) > 0)
                 AND ($6::bytea[] IS NULL
                      OR e.state = 0 AND (e.at_ms <= $7 OR e.lease <> ALL ($6)))
             ORDER BY e.fence DESC LIMIT $3"
        ),
        &[
            (&namespace, Type::INT4),
            (&numbers, Type::INT2_ARRAY),
            (&(filter.limit as i64), Type::INT8),
            (&filter.before.map(|fence| fence.0 as i64), Type::INT8),
            (&filter.label, Type::TEXT),
            (&in_force, Type::BYTEA_ARRAY),
            (&filter.unheld.as_ref().map(|unheld| unheld.at.ms as i64), Type::INT8),
        ],
    )?;
    rows.iter().map(read).collect()
}

/// How many effects there are in each state.
fn census(link: &Link) -> Result<Vec<(StateName, u64)>, PgFailure> {
    let sql = "SELECT state, count(*) FROM hapax.effect GROUP BY state ORDER BY state";
    let rows = link.query(sql, &[])?;
    rows.iter()
        .map(|row| Ok((state_name(row.try_get(0)?)?, row.try_get::<_, i64>(1)? as u64)))
        .collect()
}

/// Removes expired effects, with all that belongs to them.
fn sweep(link: &Link, now: Timestamp, limit: usize) -> Result<usize, PgFailure> {
    let rows = link.query(
        "SELECT namespace, key FROM hapax.effect WHERE expires <= $1
         ORDER BY namespace, key LIMIT $2 FOR UPDATE SKIP LOCKED",
        &[(&now.0, Type::INT8), (&(limit as i64), Type::INT8)],
    )?;
    let expired: Vec<EffectRowKey> = rows.iter().map(row_key).collect::<Result<_, _>>()?;
    if !expired.is_empty() {
        remove(link, &expired)?;
        let count = expired.len() as i64;
        link.execute("UPDATE hapax.self SET swept = swept + $1", &[(&count, Type::INT8)])?;
    }
    Ok(expired.len())
}

/// Removes effects that are locked, with their steps, their index entries and their parts, and with
/// their bodies if no other effect refers to them.
pub(crate) fn remove(link: &Link, row_keys: &[EffectRowKey]) -> Result<(), PgFailure> {
    if row_keys.is_empty() {
        return Ok(());
    }
    let namespaces: Vec<i32> = row_keys.iter().map(|(namespace, _)| *namespace).collect();
    let keys: Vec<&[u8]> = row_keys.iter().map(|(_, key)| &key.as_bytes()[..]).collect();
    let removed = link.query(
        "WITH gone AS (
             DELETE FROM hapax.effect WHERE (namespace, key) IN
                 (SELECT * FROM unnest($1::int[], $2::bytea[]))
             RETURNING namespace, key, body, attempt
         ), steps AS (DELETE FROM hapax.step WHERE (attempt, namespace, key) IN
                 (SELECT attempt, namespace, key FROM gone)),
         results AS (DELETE FROM hapax.result_index WHERE (namespace, key) IN
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
fn overdue(link: &Link, at: LeaseInstant, limit: usize) -> Result<Vec<EffectRowKey>, PgFailure> {
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
    rows.iter().map(row_key).collect()
}
