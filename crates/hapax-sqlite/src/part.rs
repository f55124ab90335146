//! Effects that belong together.

use hapax_core::effect::StateName;
use hapax_core::name::{Name, Namespace};
use hapax_core::part::{Found, Part, Sought};
use hapax_store::{PartTxn, PartView, StoreError};
use rusqlite::{Connection, params};

use crate::effect;
use crate::outbox::run;
use crate::txn::SqliteTxn;

impl PartView for SqliteTxn<'_> {
    fn part(&mut self, name: &Name) -> Result<Option<Part>, StoreError> {
        let Some(namespace) = self.namespace(&name.namespace)? else { return Ok(None) };
        let which = "namespace = ?1 AND substr(key, 1, 16) = ?2";
        let asked = params![namespace, &name.key.as_bytes()[..16]];
        Ok(effect::parts(self.db, which, asked)?.pop().map(|(_, part)| part))
    }

    fn parts(&mut self, namespace: &Namespace, sought: &Sought) -> Result<Vec<Found>, StoreError> {
        let Some(number) = self.namespace(namespace)? else { return Ok(Vec::new()) };
        let states: Vec<_> = sought.states.iter().map(|s| (*s as u8).to_string()).collect();
        let stuck = sought.states.iter().all(|s| !s.is_settled() && *s != StateName::Running);
        let states = match states.join(", ") {
            all if all.is_empty() => "TRUE".to_owned(),
            // Lets the planner see that the index of stuck effects covers the question.
            some if stuck => format!("stuck IS NOT NULL AND state IN ({some})"),
            some => format!("state IN ({some})"),
        };
        let (beyond, order) = match sought.newest_first {
            true => ("effect < ?4", "DESC"),
            false => ("effect > ?4", "ASC"),
        };
        let by = match sought.whole {
            Some(_) => "substr(whole, 1, 16) = substr(?5, 1, 16) AND whole = ?5",
            None => "?5 IS NULL",
        };
        let which = format!(
            "{by} AND kind = ?2 AND namespace = ?1 AND {states} AND (?4 IS NULL OR {beyond})
             ORDER BY effect {order} LIMIT ?3"
        );
        let whole = sought.whole.map(|whole| *whole.as_bytes());
        let beyond = sought.beyond.map(|place| place as i64);
        let asked = params![number, sought.kind, sought.limit as i64, beyond, whole];
        let found = effect::parts(self.db, &which, asked)?.into_iter().map(|(row, part)| Found {
            place: row.id as u64,
            name: Name { namespace: namespace.clone(), key: row.key },
            effect: row.effect,
            part,
        });
        Ok(found.collect())
    }
}

impl PartTxn for SqliteTxn<'_> {
    fn put_part(&mut self, name: &Name, part: &Part) -> Result<(), StoreError> {
        let row = self.row_id(name).ok_or_else(|| {
            StoreError::Corrupt(format!("{} is to be a part, and is not there", name.key))
        })?;
        let sql = "INSERT OR REPLACE INTO part (effect, whole, kind, kept) VALUES (?1, ?2, ?3, ?4)";
        run(self.db, sql, params![row, part.whole.as_bytes(), part.kind, part.body]).map(drop)
    }
}

/// An effect that is removed is no part any more.
pub(crate) fn forget(db: &Connection, effect: i64) -> Result<(), StoreError> {
    run(db, "DELETE FROM part WHERE effect = ?1", params![effect]).map(drop)
}
