//! Effects that belong together.

use hapax_core::effect::StateName;
use hapax_core::key::Key;
use hapax_core::name::{Name, Namespace};
use hapax_core::part::{Found, Part, Sought};
use hapax_store::{PartTxn, PartView, StoreError};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::effect;
use crate::error::OrStoreError as _;
use crate::outbox::run;
use crate::txn::SqliteTxn;

impl PartView for SqliteTxn<'_> {
    fn part(&mut self, name: &Name) -> Result<Option<Part>, StoreError> {
        let Some(namespace) = self.namespace(&name.namespace)? else { return Ok(None) };
        let which = "namespace = ?1 AND substr(key, 1, 16) = ?2";
        let asked = params![namespace, &name.key.as_bytes()[..16]];
        Ok(effect::parts(self.db, None, which, asked)?.pop().map(|(_, part)| part))
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
        let order = if sought.newest_first { "DESC" } else { "ASC" };
        let beyond = match (sought.beyond, sought.newest_first) {
            (None, _) => "?4 IS NULL",
            (Some(_), true) => "part.effect < ?4",
            (Some(_), false) => "part.effect > ?4",
        };
        let whole = match &sought.whole {
            Some(whole) => match self.whole(whole, &sought.kind)? {
                None => return Ok(Vec::new()),
                found => found,
            },
            None => None,
        };
        let by = if whole.is_some() { "part.whole = ?5" } else { "?5 IS NULL AND kind = ?2" };
        let which = format!(
            "{by} AND namespace = ?1 AND {states} AND {beyond}
             ORDER BY part.effect {order} LIMIT ?3"
        );
        let place = sought.beyond.map(|place| place as i64);
        let asked = params![number, sought.kind, sought.limit as i64, place, whole];
        let known = sought.whole.map(|whole| (whole, sought.kind.as_str()));
        let found = effect::parts(self.db, known, &which, asked)?;
        let found = found.into_iter().map(|(row, part)| Found {
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
        let whole = match self.whole(&part.whole, &part.kind)? {
            Some(whole) => whole,
            None => {
                let sql = "INSERT INTO whole (name, kind) VALUES (?1, ?2)";
                run(self.db, sql, params![part.whole.as_bytes(), part.kind])?;
                self.db.last_insert_rowid()
            }
        };
        let sql = "INSERT OR REPLACE INTO part (effect, whole, kept) VALUES (?1, ?2, ?3)";
        run(self.db, sql, params![row, whole, part.body]).map(drop)
    }
}

impl SqliteTxn<'_> {
    /// The number of a whole and a kind of its parts.
    fn whole(&self, whole: &Key, kind: &str) -> Result<Option<i64>, StoreError> {
        let sql = "SELECT number FROM whole
                   WHERE substr(name, 1, 16) = substr(?1, 1, 16) AND kind = ?2 AND name = ?1";
        let asked = params![whole.as_bytes(), kind];
        let mut statement = self.db.prepare_cached(sql).or_store_error()?;
        statement.query_row(asked, |row| row.get(0)).optional().or_store_error()
    }
}

/// An effect that is removed is no part any more, and a whole without parts is none.
pub(crate) fn forget(db: &Connection, effect: i64) -> Result<(), StoreError> {
    let sql = "DELETE FROM part WHERE effect = ?1 RETURNING whole";
    let whole: Option<i64> = db
        .prepare_cached(sql)
        .and_then(|mut gone| gone.query_row([effect], |row| row.get(0)).optional())
        .or_store_error()?;
    let Some(whole) = whole else { return Ok(()) };
    let sql = "DELETE FROM whole WHERE number = ?1
               AND NOT EXISTS (SELECT 1 FROM part WHERE part.whole = ?1)";
    run(db, sql, [whole]).map(drop)
}
