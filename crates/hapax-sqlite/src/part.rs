//! Parts as rows.

use hapax_core::key::Key;
use hapax_core::name::{Name, Namespace};
use hapax_core::part::{Part, PartFilter, PartRecord};
use hapax_store::{PartTxn, PartView, StoreError};
use rusqlite::{Connection, OptionalExtension as _, Params, params};

use crate::connection_cache::CommandRow;
use crate::effect::{self, COLUMNS, EffectRow, Large};
use crate::error::OrStoreError as _;
use crate::query::run;
use crate::txn::SqliteTxn;

impl PartView for SqliteTxn<'_> {
    fn part(&mut self, name: &Name) -> Result<Option<Part>, StoreError> {
        let Some(namespace) = self.namespace(&name.namespace)? else { return Ok(None) };
        let Some(effect) = self.cache.row_number(namespace, name.key)? else { return Ok(None) };
        let found = parts(self.db, None, PartScan::All, "id = ?1", [effect])?.pop();
        Ok(found.map(|(_, part)| part))
    }

    fn parts(
        &mut self,
        namespace: &Namespace,
        sought: &PartFilter,
    ) -> Result<Vec<PartRecord>, StoreError> {
        let Some(number) = self.namespace(namespace)? else { return Ok(Vec::new()) };
        let states: Vec<_> = sought.states.iter().map(|s| s.code().to_string()).collect();
        let stuck = !states.is_empty() && sought.states.iter().all(|s| s.needs_attention());
        let among = if stuck { PartScan::Stuck } else { PartScan::All };
        let states = match states.join(", ") {
            all if all.is_empty() => "TRUE".to_owned(),
            some if stuck => format!("stuck IS NOT NULL AND state IN ({some})"),
            some => format!("state IN ({some})"),
        };
        let order = if sought.newest_first { "DESC" } else { "ASC" };
        let beyond = match (sought.beyond, sought.newest_first) {
            (None, _) => "?4 IS NULL",
            (Some(_), true) => "part.effect < ?4",
            (Some(_), false) => "part.effect > ?4",
        };
        let tail = format!(
            "namespace = ?1 AND {states} AND {beyond} ORDER BY part.effect {order} LIMIT ?3"
        );
        let place = sought.beyond.map(|place| place as i64);
        let found = |(row, part): (EffectRow, Part)| PartRecord {
            place: row.id as u64,
            name: Name { namespace: namespace.clone(), key: row.key },
            effect: row.effect,
            part,
        };
        let Some(name) = sought.whole else {
            let which = format!("kind = ?2 AND {tail}");
            let asked = params![number, sought.kind, sought.limit as i64, place];
            let all = parts(self.db, None, among, &which, asked)?;
            return Ok(all.into_iter().map(found).collect());
        };
        let Some(whole) = self.whole(&name, &sought.kind)? else { return Ok(Vec::new()) };
        let known = Some((name, sought.kind.as_str()));
        if stuck {
            let which = format!("part.whole = ?2 AND {tail}");
            let asked = params![number, whole.number, sought.limit as i64, place];
            let all = parts(self.db, known, among, &which, asked)?;
            return Ok(all.into_iter().map(found).collect());
        }
        let which = format!("part.effect >> {DRAWER} = ?2 AND part.whole = ?5 AND {tail}");
        let mut all = Vec::new();
        for drawer in whole.drawers(sought) {
            let room = sought.limit - all.len();
            if room == 0 {
                break;
            }
            let asked = params![number, drawer, room as i64, place, whole.number];
            let some = parts(self.db, known, among, &which, asked)?;
            all.extend(some.into_iter().map(found));
        }
        Ok(all)
    }
}

impl PartTxn for SqliteTxn<'_> {
    fn put_part(&mut self, name: &Name, part: &Part) -> Result<(), StoreError> {
        let Some(&CommandRow { number: row, new, .. }) = self.cache.command_row(name) else {
            let what =
                format!("{} is to become a part, and its command has not loaded it", name.key);
            return Err(StoreError::Corrupt(what));
        };
        let whole = match self.cache.whole(&part.whole, &part.kind) {
            Some(whole) if whole.has(row >> DRAWER) => whole,
            _ => self.widened(part, row >> DRAWER)?,
        };
        let values = params![row, whole.number, part.body];
        // A statement that may replace a row copies pages so that it can undo itself; a new effect
        // needs no such statement.
        match new {
            true => {
                self.cache.statements().insert_part()?.execute(values).or_store_error().map(drop)
            }
            false => {
                let sql = "INSERT OR REPLACE INTO part (effect, whole, kept) VALUES (?1, ?2, ?3)";
                run(self.db, sql, values).map(drop)
            }
        }
    }
}

pub(crate) const INSERT: &str = "INSERT INTO part (effect, whole, kept) VALUES (?1, ?2, ?3)";

/// A drawer is a bucket of 2^11 consecutive effect numbers: a number shifted right by this. The
/// schema says the same.
const DRAWER: u32 = 11;

/// A whole, and the range of drawers that has all of its parts.
#[derive(Clone, Copy)]
pub(crate) struct Whole {
    number: i64,
    first: i64,
    last: i64,
}

impl Whole {
    fn has(&self, drawer: i64) -> bool {
        (self.first..=self.last).contains(&drawer)
    }

    /// The drawers that may hold the requested parts, in the order of the list.
    fn drawers(&self, sought: &PartFilter) -> Box<dyn Iterator<Item = i64>> {
        let beyond = sought.beyond.map(|place| place as i64 >> DRAWER);
        match sought.newest_first {
            true => Box::new((self.first..=beyond.unwrap_or(self.last).min(self.last)).rev()),
            false => Box::new(beyond.unwrap_or(self.first).max(self.first)..=self.last),
        }
    }
}

impl SqliteTxn<'_> {
    /// The whole of a part, with its range widened to this drawer.
    fn widened(&mut self, part: &Part, drawer: i64) -> Result<Whole, StoreError> {
        let whole = match self.whole(&part.whole, &part.kind)? {
            Some(whole) if whole.has(drawer) => whole,
            Some(Whole { number, first, last }) => {
                let (first, last) = (first.min(drawer), last.max(drawer));
                let sql = "UPDATE whole SET first = ?2, last = ?3 WHERE number = ?1";
                run(self.db, sql, [number, first, last])?;
                Whole { number, first, last }
            }
            None => {
                let sql = "INSERT INTO whole (name, kind, first, last) VALUES (?1, ?2, ?3, ?3)";
                run(self.db, sql, params![part.whole.as_bytes(), part.kind, drawer])?;
                Whole { number: self.db.last_insert_rowid(), first: drawer, last: drawer }
            }
        };
        self.cache.keep_whole(part.whole, &part.kind, whole);
        Ok(whole)
    }

    /// The whole of this name, for parts of a kind.
    fn whole(&self, name: &Key, kind: &str) -> Result<Option<Whole>, StoreError> {
        let sql = "SELECT number, first, last FROM whole
                   WHERE substr(name, 1, 16) = substr(?1, 1, 16) AND kind = ?2 AND name = ?1";
        let asked = params![name.as_bytes(), kind];
        let mut statement = self.db.prepare_cached(sql).or_store_error()?;
        let whole = statement.query_row(asked, |row| {
            Ok(Whole { number: row.get(0)?, first: row.get(1)?, last: row.get(2)? })
        });
        whole.optional().or_store_error()
    }
}

/// Removes the part of an effect that is removed, and its whole if no part is left.
pub(crate) fn forget(db: &Connection, effect: i64) -> Result<(), StoreError> {
    let one = |sql: &str, number: i64| -> Result<Option<i64>, StoreError> {
        let mut statement = db.prepare_cached(sql).or_store_error()?;
        statement.query_row([number], |row| row.get(0)).optional().or_store_error()
    };
    let Some(whole) = one("DELETE FROM part WHERE effect = ?1 RETURNING whole", effect)? else {
        return Ok(());
    };
    // Parts that were granted first are mostly removed first, so the range drops the empty drawers
    // at its front.
    let left = one(
        "WITH RECURSIVE drawer (number, last) AS (
             SELECT first, last FROM whole WHERE number = ?1
             UNION ALL SELECT number + 1, last FROM drawer WHERE number < last)
         SELECT number FROM drawer WHERE EXISTS
             (SELECT 1 FROM part WHERE part.effect >> 11 = drawer.number AND part.whole = ?1)
         LIMIT 1",
        whole,
    )?;
    match left {
        None => run(db, "DELETE FROM whole WHERE number = ?1", [whole]),
        Some(left) => {
            let sql = "UPDATE whole SET first = ?2 WHERE number = ?1 AND first < ?2";
            run(db, sql, [whole, left])
        }
    }
    .map(drop)
}

/// The effects among which parts are looked for.
#[derive(Clone, Copy)]
enum PartScan {
    /// All effects.
    All,
    /// Those that wait for a reconciler, a rollback or a person, which are few. Without this hint
    /// SQLite would scan all effects of the namespace.
    Stuck,
}

/// Effects that are parts, with their wholes. The whole and the kind are read if the caller does
/// not know them.
fn parts(
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
    let sql = format!("SELECT {}, kept{of} FROM {from} {whole} WHERE {which}", COLUMNS);
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
        found.push((effect::read(db, row, Large::Whole)?, part().or_store_error()?));
    }
    Ok(found)
}
