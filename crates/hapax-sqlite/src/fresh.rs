//! The newest effects, which are not filed by their keys yet.
//!
//!   effect   … 93 95 97 │ 98 100 101 103 …    in the order of arrival
//!   filed    every one  │ some of them        in the order of keys
//!            self.filed ┘
//!
//! A key that is filed as soon as it comes costs a page of the log. So keys are filed by the
//! hundred, in rounds through all that are fresh, in their order: many fall on one page then. Until
//! then an effect is found because whoever looks for one has read all that are fresh.
//!
//! What is remembered here follows from what is committed and what the open transaction has added.
//! Who may have missed a commit reads what is new before it answers anything. Nothing counts as
//! filed before the file itself has been asked.

use std::collections::BTreeMap;
use std::ops::Bound;

use hapax_core::key::Key;
use hapax_store::StoreError;
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::error::OrStoreError;

/// What an effect is found by: its namespace, and the first half of its key.
pub(crate) type Half = (i64, [u8; 16]);

pub(crate) fn half(namespace: i64, key: &Key) -> Half {
    let mut half = [0; 16];
    half.copy_from_slice(&key.as_bytes()[..16]);
    (namespace, half)
}

/// How many are filed at once, at the least. Few where it is to be shown what happens then.
const SLICE: usize = if cfg!(feature = "proof") { 4 } else { 128 };
/// How many are left fresh before a round begins: one for so many entries of the journal, and
/// in these bounds. The more there are, the more of them share a page; but whoever opens the file
/// has to read them.
const ENTRIES: i64 = 16;
const FEWEST: i64 = if cfg!(feature = "proof") { 16 } else { 1024 };
const MOST: i64 = 16_384;
/// How many times as many there may be before all are filed at once.
const TOO_MANY: usize = 4;

#[derive(Default)]
pub(crate) struct Fresh {
    /// All effects up to this one are filed.
    filed: i64,
    /// All effects up to this one have been read.
    known: i64,
    places: BTreeMap<Half, i64>,
    /// What the open transaction has added: what was in its place, and what was known before.
    added: Vec<(Half, Option<i64>, i64)>,
    round: Option<Round>,
    /// How many may be filed for what was added lately.
    due: usize,
}

/// A round through what is fresh.
#[derive(Clone, Copy)]
struct Round {
    /// The newest effect that belongs to it.
    upto: i64,
    /// The last that was filed.
    after: Option<Half>,
    /// How many of the round were found to be filed.
    count: usize,
}

impl Fresh {
    /// The fresh effect of this name, if there is one. Its row may be gone.
    pub(crate) fn find(&self, half: &Half) -> Option<i64> {
        self.places.get(half).copied()
    }

    /// Reads what is new, as part of the open transaction.
    pub(crate) fn read(&mut self, db: &Connection) -> Result<(), StoreError> {
        let filed = db
            .prepare_cached("SELECT filed FROM self")
            .and_then(|mut filed| filed.query_row([], |row| row.get::<_, i64>(0)))
            .or_store_error()?;
        if filed < self.filed {
            // A round came to its end in a transaction that was undone.
            *self = Self::default();
        }
        if filed != self.filed {
            self.end_round(filed);
        }
        let mut newer = db
            .prepare_cached(
                "SELECT id, namespace, substr(key, 1, 16) FROM effect WHERE id > ?1 ORDER BY id",
            )
            .or_store_error()?;
        let mut rows = newer.query([self.known]).or_store_error()?;
        while let Some(row) = rows.next().or_store_error()? {
            let place = (|| Ok(((row.get(1)?, row.get(2)?), row.get(0)?)))();
            let (half, effect) = place.or_store_error()?;
            self.add(half, effect);
        }
        Ok(())
    }

    /// Adds an effect, as part of the open transaction.
    pub(crate) fn add(&mut self, half: Half, effect: i64) {
        let before = self.places.insert(half, effect);
        self.added.push((half, before, self.known));
        self.known = self.known.max(effect);
    }

    /// How much the open transaction has added.
    pub(crate) fn added(&self) -> usize {
        self.added.len()
    }

    /// Takes back what the open transaction has added behind this much.
    pub(crate) fn take_back(&mut self, to: usize) {
        while self.added.len() > to
            && let Some((half, before, known)) = self.added.pop()
        {
            match before {
                Some(effect) => self.places.insert(half, effect),
                None => self.places.remove(&half),
            };
            self.known = known;
        }
    }

    /// The transaction is committed.
    pub(crate) fn keep(&mut self) {
        self.added.clear();
    }

    /// The transaction is undone, and with it whatever it has filed.
    pub(crate) fn undo(&mut self) {
        self.take_back(0);
        self.round = None;
    }

    /// Files some of what is fresh if it is due: about as many as the open transaction has added.
    pub(crate) fn file_some(&mut self, db: &Connection) -> Result<(), StoreError> {
        let times = self.places.len() / self.generation();
        if times >= TOO_MANY {
            return self.file_all(db);
        }
        if self.round.is_none() && times == 0 {
            return Ok(());
        }
        self.due += self.added.len() * times.max(1);
        if self.due < SLICE {
            return Ok(());
        }
        let count = std::mem::take(&mut self.due);
        self.file(db, count)
    }

    /// Whether there is enough to be filed that a round would begin.
    pub(crate) fn is_due(&self) -> bool {
        self.places.len() >= self.generation()
    }

    /// Files everything.
    pub(crate) fn file_all(&mut self, db: &Connection) -> Result<(), StoreError> {
        self.round = None;
        self.file(db, usize::MAX)
    }

    fn generation(&self) -> usize {
        (self.known / ENTRIES).clamp(FEWEST, MOST) as usize
    }

    /// Files the next of the round, which begins here if none is under way.
    fn file(&mut self, db: &Connection, count: usize) -> Result<(), StoreError> {
        let mut round = self.round.unwrap_or(Round { upto: self.known, after: None, count: 0 });
        let from = round.after.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.places.range((from, Bound::Unbounded));
        let next = rest.filter(|(_, effect)| **effect <= round.upto).take(count);
        let next: Vec<(Half, i64)> = next.map(|(half, effect)| (*half, *effect)).collect();
        for (half, effect) in &next {
            file(db, half, *effect)?;
        }
        round.count += next.len();
        round.after = next.last().map(|(half, _)| *half).or(round.after);
        self.round = Some(round);
        if next.len() < count {
            self.close_round(db, round)?;
        }
        Ok(())
    }

    /// Ends a round: what belonged to it is not read as fresh any more.
    fn close_round(&mut self, db: &Connection, round: Round) -> Result<(), StoreError> {
        let there: i64 = db
            .prepare_cached("SELECT count(*) FROM effect WHERE id > ?1 AND id <= ?2")
            .and_then(|mut count| count.query_row([self.filed, round.upto], |row| row.get(0)))
            .or_store_error()?;
        if there > round.count as i64 {
            let (filed, upto, count) = (self.filed, round.upto, round.count);
            return Err(StoreError::Corrupt(format!(
                "{there} effects from {filed} to {upto}, and {count} of them were filed"
            )));
        }
        db.prepare_cached("UPDATE self SET filed = ?1")
            .and_then(|mut filed| filed.execute([round.upto]))
            .or_store_error()?;
        self.end_round(round.upto);
        Ok(())
    }

    /// Forgets what is filed.
    fn end_round(&mut self, filed: i64) {
        self.places.retain(|_, effect| *effect > filed);
        (self.filed, self.known) = (filed, self.known.max(filed));
        (self.round, self.due) = (None, 0);
    }
}

/// Files one effect.
fn file(db: &Connection, half: &Half, effect: i64) -> Result<(), StoreError> {
    let (namespace, half) = half;
    let made = db
        .prepare_cached("INSERT INTO filed VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING")
        .and_then(|mut insert| insert.execute(params![namespace, half, effect]))
        .or_store_error()?;
    if made == 1 {
        return Ok(());
    }
    // It was filed by a round that did not come to its end, or is what became of the one that was.
    let live: Option<i64> = db
        .prepare_cached(
            "SELECT filed.effect FROM filed JOIN effect ON id = filed.effect
             WHERE filed.namespace = ?1 AND half = ?2 AND filed.effect <> ?3",
        )
        .and_then(|mut other| {
            other.query_row(params![namespace, half, effect], |row| row.get(0)).optional()
        })
        .or_store_error()?;
    if let Some(other) = live {
        return Err(StoreError::Corrupt(format!("effects {other} and {effect} have one key")));
    }
    db.prepare_cached("UPDATE filed SET effect = ?3 WHERE namespace = ?1 AND half = ?2")
        .and_then(|mut update| update.execute(params![namespace, half, effect]))
        .or_store_error()?;
    Ok(())
}

/// Takes an effect that is removed out of what is filed, if it is there.
pub(crate) fn forget(db: &Connection, half: &Half, effect: i64) -> Result<(), StoreError> {
    let (namespace, half) = half;
    db.prepare_cached("DELETE FROM filed WHERE namespace = ?1 AND half = ?2 AND effect = ?3")
        .and_then(|mut delete| delete.execute(params![namespace, half, effect]))
        .or_store_error()?;
    Ok(())
}
