//! Effects: the rows that a command loads, and the rows that it writes.

use hapax_core::attempt::Fence;
use hapax_core::effect::{Effect, StateName};
use hapax_core::key::Key;
use hapax_core::name::Name;
use hapax_core::time::{LeaseInstant, Now, Timestamp};
use hapax_store::{
    EffectRecord, EffectTxn, EffectView, Filter, JournalTxn, JournalView, StoreError,
};
use rusqlite::{Connection, OptionalExtension as _, Params, Row, params};

use crate::error::{OrStoreError, decoded};
use crate::lease;
use crate::part;
use crate::result_index;
use crate::txn::SqliteTxn;

mod body;
mod row;

pub(crate) use row::{
    COLUMNS, EffectRow, INSERT, LOAD, LOAD_BY_KEY, LargeOutcome, NUMBER, SUCCEED, inline, insert,
    read, row_of_number, row_of_prefix, update, update_to_success,
};

impl EffectView for SqliteTxn<'_> {
    fn effects(&mut self, names: &[Name]) -> Result<Vec<Option<Effect>>, StoreError> {
        names.iter().map(|name| self.cache.effect(name)).collect()
    }

    fn list(&mut self, filter: &Filter) -> Result<Vec<EffectRecord>, StoreError> {
        let namespace = match &filter.namespace {
            None => None,
            Some(namespace) => match self.namespace(namespace)? {
                None => return Ok(Vec::new()),
                known => known,
            },
        };
        let rows = list(self.db, namespace, filter)?;
        rows.into_iter()
            .map(|row| {
                let namespace = self.namespace_name(row.namespace)?;
                Ok(EffectRecord { name: Name { namespace, key: row.key }, effect: row.effect })
            })
            .collect()
    }

    fn census(&mut self) -> Result<Vec<(StateName, u64)>, StoreError> {
        let mut statement = self
            .db
            .prepare_cached("SELECT state, count(*) FROM effect GROUP BY state ORDER BY state")
            .or_store_error()?;
        let rows = statement
            .query_map([], |row| Ok((state_name(row, 0)?, row.get::<_, i64>(1)? as u64)))
            .or_store_error()?;
        rows.collect::<rusqlite::Result<_>>().or_store_error()
    }
}

impl EffectTxn for SqliteTxn<'_> {
    fn put_first(&mut self, name: &Name, effect: &Effect) -> Result<Option<Fence>, StoreError> {
        if self.cache.is_probably_known(name) {
            return Ok(None);
        }
        let namespace = self.namespace_or_new(&name.namespace)?;
        let fence = Fence(self.next_entry()?);
        let effect = Effect { fence, ..effect.clone() };
        let inserted = self.cache.insert(namespace, name, None, effect)?;
        Ok(inserted.then_some(fence))
    }

    fn put_effect(&mut self, name: &Name, effect: &Effect) -> Result<(), StoreError> {
        let entry = self.last_entry()? as i64;
        if self.cache.update(name, entry, effect)? {
            return Ok(());
        }
        let namespace = self.namespace_or_new(&name.namespace)?;
        match self.cache.insert(namespace, name, Some(entry), effect.clone())? {
            true => Ok(()),
            false => Err(StoreError::Corrupt(format!(
                "effect {} is in the database, and its command has not loaded it",
                name.key
            ))),
        }
    }

    fn sweep(&mut self, now: Now, limit: usize) -> Result<usize, StoreError> {
        self.cache.drop_lease();
        self.cache.drop_wholes();
        lease::sweep(self.db)?;
        sweep(self.db, now.wall, limit)
    }

    fn overdue(&mut self, at: LeaseInstant, limit: usize) -> Result<Vec<Name>, StoreError> {
        let (era, ms, limit) = (at.era as i64, at.ms as i64, limit as i64);
        let mut names = self.effect_names(
            "SELECT e.namespace, e.key FROM lease l CROSS JOIN effect e ON e.lease = l.id
             WHERE (l.dead OR l.until_era <> ?1 OR l.until_ms <= ?2) AND e.safety <> 0
             LIMIT ?3",
            params![era, ms, limit],
        )?;
        names.extend(self.effect_names(
            "SELECT namespace, key FROM effect WHERE at_ms <= ?2 AND state = 0
                 AND at_era = ?1 AND safety <> 0 LIMIT ?3",
            params![era, ms, limit - names.len() as i64],
        )?);
        Ok(names)
    }
}

impl SqliteTxn<'_> {
    /// The names of the effects that a query finds by their namespaces and keys.
    pub(crate) fn effect_names(
        &mut self,
        sql: &str,
        params: impl Params,
    ) -> Result<Vec<Name>, StoreError> {
        let rows = self
            .db
            .prepare_cached(sql)
            .or_store_error()?
            .query_map(params, |row| Ok((row.get(0)?, row.get::<_, [u8; 32]>(1)?)))
            .or_store_error()?
            .collect::<rusqlite::Result<Vec<(i64, _)>>>()
            .or_store_error()?;
        rows.into_iter()
            .map(|(id, key)| {
                Ok(Name { namespace: self.namespace_name(id)?, key: Key::from_bytes(key) })
            })
            .collect()
    }
}

fn list(
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
            let partial_index = if stuck { "stuck IS NOT NULL AND " } else { "" };
            format!("{partial_index}state IN ({})", numbers.join(", "))
        }
    };
    let mut statement = db
        .prepare(&format!(
            "SELECT {} FROM effect WHERE {states} AND (?1 IS NULL OR namespace = ?1)
             AND (?3 IS NULL OR fence < ?3) AND (?4 IS NULL OR instr(label, ?4) > 0)
             AND (?5 IS NULL OR state = 0 AND (at_era <> ?6 OR at_ms <= ?7
                 OR lease NOT IN (SELECT unhex(substr(value, 7)) FROM json_each(?5))))
             ORDER BY fence DESC LIMIT ?2",
            COLUMNS
        ))
        .or_store_error()?;
    let before = filter.before.map(|fence| fence.0 as i64);
    // As JSON, which the query reads back: their printed ids begin with `lease_`.
    let in_force = filter.unheld.as_ref().map(|unheld| {
        let ids: Vec<_> = unheld.in_force.iter().map(|id| format!("\"{id}\"")).collect();
        format!("[{}]", ids.join(","))
    });
    let at = filter.unheld.as_ref().map(|unheld| unheld.at);
    let (era, ms) = (at.map(|at| at.era as i64), at.map(|at| at.ms as i64));
    let params = params![namespace, filter.limit as i64, before, filter.label, in_force, era, ms];
    let mut rows = statement.query(params).or_store_error()?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().or_store_error()? {
        found.push(read(db, row, LargeOutcome::DigestOnly)?);
    }
    Ok(found)
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

/// Removes expired effects, with all that belongs to them.
fn sweep(db: &Connection, now: Timestamp, limit: usize) -> Result<usize, StoreError> {
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
    part::remove(db, id)?;
    result_index::remove(db, namespace, &key)
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
