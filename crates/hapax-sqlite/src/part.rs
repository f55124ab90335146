//! Parts as rows.

use hapax_core::key::Key;
use hapax_core::name::{Name, Namespace};
use hapax_core::part::{Part, PartFilter, PartRecord};
use hapax_store::{PartTxn, PartView, StoreError};
use rusqlite::{Connection, OptionalExtension as _, Params, params};

use crate::connection_cache::CommandRow;
use crate::effect::{self, COLUMNS, EffectRow, LargeOutcome};
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
        filter: &PartFilter,
    ) -> Result<Vec<PartRecord>, StoreError> {
        let Some(number) = self.namespace(namespace)? else { return Ok(Vec::new()) };
        let states: Vec<_> = filter.states.iter().map(|s| s.code().to_string()).collect();
        let stuck = !states.is_empty() && filter.states.iter().all(|s| s.needs_attention());
        let scan = if stuck { PartScan::Stuck } else { PartScan::All };
        let states = match states.join(", ") {
            all if all.is_empty() => "TRUE".to_owned(),
            some if stuck => format!("stuck IS NOT NULL AND state IN ({some})"),
            some => format!("state IN ({some})"),
        };
        let order = if filter.newest_first { "DESC" } else { "ASC" };
        let is_beyond = match (filter.beyond, filter.newest_first) {
            (None, _) => "?4 IS NULL",
            (Some(_), true) => "part.effect < ?4",
            (Some(_), false) => "part.effect > ?4",
        };
        let tail = format!(
            "namespace = ?1 AND {states} AND {is_beyond} ORDER BY part.effect {order} LIMIT ?3"
        );
        let beyond_row = filter.beyond.map(|row| row as i64);
        let record = |(row, part): (EffectRow, Part)| PartRecord {
            position: row.id as u64,
            name: Name { namespace: namespace.clone(), key: row.key },
            effect: row.effect,
            part,
        };
        let Some(name) = filter.whole else {
            let condition = format!("kind = ?2 AND {tail}");
            let values = params![number, filter.kind, filter.limit as i64, beyond_row];
            let all = parts(self.db, None, scan, &condition, values)?;
            return Ok(all.into_iter().map(record).collect());
        };
        let Some(whole) = self.whole(&name, &filter.kind)? else { return Ok(Vec::new()) };
        let known = Some((name, filter.kind.as_str()));
        if stuck {
            let condition = format!("part.whole = ?2 AND {tail}");
            let values = params![number, whole.number, filter.limit as i64, beyond_row];
            let all = parts(self.db, known, scan, &condition, values)?;
            return Ok(all.into_iter().map(record).collect());
        }
        let condition = format!("part.effect >> {BUCKET_BITS} = ?2 AND part.whole = ?5 AND {tail}");
        let mut all = Vec::new();
        for bucket in whole.buckets(filter) {
            let room = filter.limit - all.len();
            if room == 0 {
                break;
            }
            let values = params![number, bucket, room as i64, beyond_row, whole.number];
            let some = parts(self.db, known, scan, &condition, values)?;
            all.extend(some.into_iter().map(record));
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
            Some(whole) if whole.has(row >> BUCKET_BITS) => whole,
            _ => self.whole_with_bucket(part, row >> BUCKET_BITS)?,
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

/// The bucket of a part is the number of its effect, shifted right by this: 2,048 effects share one.
/// The schema says the same.
const BUCKET_BITS: u32 = 11;

/// A whole, and the range of buckets that has all of its parts.
#[derive(Clone, Copy)]
pub(crate) struct Whole {
    number: i64,
    first: i64,
    last: i64,
}

impl Whole {
    fn has(&self, bucket: i64) -> bool {
        (self.first..=self.last).contains(&bucket)
    }

    /// The buckets that may hold the requested parts, in the order of the list.
    fn buckets(&self, filter: &PartFilter) -> Box<dyn Iterator<Item = i64>> {
        let beyond = filter.beyond.map(|row| row as i64 >> BUCKET_BITS);
        match filter.newest_first {
            true => Box::new((self.first..=beyond.unwrap_or(self.last).min(self.last)).rev()),
            false => Box::new(beyond.unwrap_or(self.first).max(self.first)..=self.last),
        }
    }
}

impl SqliteTxn<'_> {
    /// The whole of a part, with its range widened to this bucket.
    fn whole_with_bucket(&mut self, part: &Part, bucket: i64) -> Result<Whole, StoreError> {
        let whole = match self.whole(&part.whole, &part.kind)? {
            Some(whole) if whole.has(bucket) => whole,
            Some(Whole { number, first, last }) => {
                let (first, last) = (first.min(bucket), last.max(bucket));
                let sql = "UPDATE whole SET first = ?2, last = ?3 WHERE number = ?1";
                run(self.db, sql, [number, first, last])?;
                Whole { number, first, last }
            }
            None => {
                let sql = "INSERT INTO whole (name, kind, first, last) VALUES (?1, ?2, ?3, ?3)";
                run(self.db, sql, params![part.whole.as_bytes(), part.kind, bucket])?;
                Whole { number: self.db.last_insert_rowid(), first: bucket, last: bucket }
            }
        };
        self.cache.keep_whole(part.whole, &part.kind, whole);
        Ok(whole)
    }

    /// The whole of this name, for parts of a kind.
    fn whole(&self, name: &Key, kind: &str) -> Result<Option<Whole>, StoreError> {
        let sql = "SELECT number, first, last FROM whole
                   WHERE substr(name, 1, 16) = substr(?1, 1, 16) AND kind = ?2 AND name = ?1";
        let values = params![name.as_bytes(), kind];
        let mut statement = self.db.prepare_cached(sql).or_store_error()?;
        let whole = statement.query_row(values, |row| {
            Ok(Whole { number: row.get(0)?, first: row.get(1)?, last: row.get(2)? })
        });
        whole.optional().or_store_error()
    }
}

/// Removes the part of an effect that is removed, and its whole if no part is left.
pub(crate) fn remove(db: &Connection, effect: i64) -> Result<(), StoreError> {
    let one = |sql: &str, number: i64| -> Result<Option<i64>, StoreError> {
        let mut statement = db.prepare_cached(sql).or_store_error()?;
        statement.query_row([number], |row| row.get(0)).optional().or_store_error()
    };
    let Some(whole) = one("DELETE FROM part WHERE effect = ?1 RETURNING whole", effect)? else {
        return Ok(());
    };
    // Parts that were granted first are mostly removed first, so the range drops the empty buckets
    // at its front.
    let left = one(
        "WITH RECURSIVE bucket (number, last) AS (
             SELECT first, last FROM whole WHERE number = ?1
             UNION ALL SELECT number + 1, last FROM bucket WHERE number < last)
         SELECT number FROM bucket WHERE EXISTS
             (SELECT 1 FROM part WHERE part.effect >> 11 = bucket.number AND part.whole = ?1)
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
    scan: PartScan,
    condition: &str,
    params: impl Params,
) -> Result<Vec<(EffectRow, Part)>, StoreError> {
    let (of, whole) = match known {
        Some(_) => ("", ""),
        None => (", name, kind", "JOIN whole ON number = part.whole"),
    };
    let from = match scan {
        PartScan::All => "part JOIN effect ON id = part.effect",
        PartScan::Stuck => "effect INDEXED BY effect_stuck CROSS JOIN part ON part.effect = id",
    };
    let sql = format!("SELECT {}, kept{of} FROM {from} {whole} WHERE {condition}", COLUMNS);
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
        found.push((effect::read(db, row, LargeOutcome::Whole)?, part().or_store_error()?));
    }
    Ok(found)
}
