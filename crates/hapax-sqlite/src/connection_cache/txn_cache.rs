//! The cache of a connection in one transaction: the only way to find, insert or update the row of an
//! effect, and to read or change a cached row.

use hapax_core::attempt::AttemptId;
use hapax_core::effect::{Effect, State};
use hapax_core::journal::Entry;
use hapax_core::key::Key;
use hapax_core::lease::{Lease, LeaseId};
use hapax_core::name::{Name, Namespace};
use hapax_store::StoreError;
use rusqlite::Connection;

use super::key_index::prefix;
use super::{CAPACITY, ConnectionCache, RunningEffect, StatementCache};
use crate::clock::ClockAnchor;
use crate::effect::{self, EffectRow};
use crate::error::OrStoreError;
use crate::journal::{self, EntryIdentity};
use crate::lease;
use crate::namespace;
use crate::part::Whole;

/// The cache of a connection, and the statements of the open transaction.
pub(crate) struct TxnCache<'a> {
    db: &'a Connection,
    cache: &'a mut ConnectionCache,
    statements: StatementCache<'a>,
    /// The rows that the current command has loaded or written.
    command_rows: Vec<CommandRow>,
    /// The newest entry of the transaction when the current command began.
    appended_before: Option<EntryIdentity>,
}

/// A row of an effect that the current command has loaded or written.
pub(crate) struct CommandRow {
    name: Name,
    pub(crate) number: i64,
    /// Its newest journal entry; none if it has none yet.
    pub(crate) entry: Option<i64>,
    /// The running attempt, if there is one without a deadline and bound to no epoch.
    running: Option<AttemptId>,
    /// Whether the command has inserted it.
    pub(crate) new: bool,
}

impl<'a> TxnCache<'a> {
    pub(crate) fn new(db: &'a Connection, cache: &'a mut ConnectionCache) -> Self {
        let appended_before = cache.appended;
        let statements = StatementCache::of(db);
        Self { db, cache, statements, command_rows: Vec::new(), appended_before }
    }

    /// The prepared statements of the transaction.
    pub(crate) fn statements(&mut self) -> &mut StatementCache<'a> {
        &mut self.statements
    }

    /// Begins a command, which has loaded no rows yet.
    pub(crate) fn begin_command(&mut self) {
        self.command_rows.clear();
        self.appended_before = self.cache.appended;
    }

    /// Drops the rows, namespaces and entries that the undone command may have left.
    pub(crate) fn drop_command(&mut self) {
        self.command_rows.clear();
        self.cache.drop_rows();
        self.cache.appended = self.appended_before;
    }
}

/// Effects.
impl TxnCache<'_> {
    /// The effect of this name.
    pub(crate) fn effect(&mut self, name: &Name) -> Result<Option<Effect>, StoreError> {
        if let Some(running) = self.cache.rows.running.get(name) {
            let (number, entry, effect) = (running.number, running.entry, running.effect.clone());
            self.keep_command_row(name, number, Some(entry), &effect, false);
            return Ok(Some(effect));
        }
        let Some(namespace) = self.namespace(&name.namespace)? else { return Ok(None) };
        let found = self.row(namespace, name.key)?;
        self.cache.last_lookup_found = found.is_some();
        let Some(row) = found else { return Ok(None) };
        self.keep_command_row(name, row.id, Some(row.entry), &row.effect, false);
        Ok(Some(row.effect))
    }

    /// The row of the effect of this name, read from the database.
    pub(crate) fn row(
        &mut self,
        namespace: i64,
        key: Key,
    ) -> Result<Option<EffectRow>, StoreError> {
        let prefix = prefix(namespace, &key);
        if let Some(number) = self.cache.row_numbers.find(&prefix)
            && let Some(row) = effect::row_of_number(self.db, &mut self.statements, number)?
            && row.key == key
            && row.namespace == namespace
        {
            return Ok(Some(row));
        }
        match effect::row_of_prefix(self.db, &mut self.statements, prefix)? {
            Some(row) if row.key != key => Err(StoreError::Collision(key)),
            Some(row) => {
                self.cache.row_numbers.keep(&prefix, row.id);
                Ok(Some(row))
            }
            None => Ok(None),
        }
    }

    /// The number of the row of this name, read from the database.
    pub(crate) fn row_number(
        &mut self,
        namespace: i64,
        key: Key,
    ) -> Result<Option<i64>, StoreError> {
        let prefix = prefix(namespace, &key);
        self.statements.number()?.query_row(prefix, |row| row.get(0)).or_store_error()
    }

    /// Whether to load this effect before it is inserted, because it is probably known. The database
    /// refuses a second row, whatever the answer.
    pub(crate) fn is_probably_known(&self, name: &Name) -> bool {
        self.cache.last_lookup_found || self.cache.rows.running.contains_key(name)
    }

    /// Inserts a running effect, whose newest entry is `entry`, if it has been appended. Returns
    /// false if the database has a row of this key.
    pub(crate) fn insert(
        &mut self,
        namespace: i64,
        name: &Name,
        entry: Option<i64>,
        effect: Effect,
    ) -> Result<bool, StoreError> {
        let made = effect::insert(&mut self.statements, namespace, name.key, &effect)?;
        let Some(number) = made else {
            self.cache.last_lookup_found = true;
            return Ok(false);
        };
        self.cache.key_mover.note_added();
        self.keep_command_row(name, number, entry, &effect, true);
        self.keep_running(name, number, entry.unwrap_or(number), effect);
        Ok(true)
    }

    /// Writes an effect over its row, which this command has loaded. Returns false if it has not.
    pub(crate) fn update(
        &mut self,
        name: &Name,
        entry: i64,
        effect: &Effect,
    ) -> Result<bool, StoreError> {
        let Some(&CommandRow { number, running, .. }) = self.command_row(name) else {
            return Ok(false);
        };
        let only_settles = running == Some(effect.attempt) && effect.expires().is_none();
        match effect::inline(effect).filter(|_| only_settles) {
            Some(body) => {
                effect::update_to_success(&mut self.statements, number, entry, effect, body)?;
            }
            None => effect::update(self.db, number, entry, effect)?,
        }
        self.keep_command_row(name, number, Some(entry), effect, false);
        match effect.state {
            State::Running { .. } => self.keep_running(name, number, entry, effect.clone()),
            _ => _ = self.cache.rows.running.remove(name),
        }
        Ok(true)
    }

    /// The row of this name, if the current command has loaded or written it.
    pub(crate) fn command_row(&self, name: &Name) -> Option<&CommandRow> {
        self.command_rows.iter().find(|row| row.name == *name)
    }

    /// Drops a cached effect whose row the caller changes itself.
    pub(crate) fn drop_running(&mut self, name: &Name) {
        self.cache.rows.running.remove(name);
    }

    fn keep_command_row(
        &mut self,
        name: &Name,
        number: i64,
        entry: Option<i64>,
        effect: &Effect,
        new: bool,
    ) {
        let plain = matches!(effect.state, State::Running { deadline: None, .. });
        let running = plain && effect.bound.is_none();
        let running = running.then_some(effect.attempt);
        self.command_rows.retain(|row| row.name != *name);
        self.command_rows.push(CommandRow { name: name.clone(), number, entry, running, new });
    }

    fn keep_running(&mut self, name: &Name, number: i64, entry: i64, effect: Effect) {
        let running = &mut self.cache.rows.running;
        if running.len() >= CAPACITY {
            running.clear();
        }
        running.insert(name.clone(), RunningEffect { number, entry, effect });
    }
}

/// Namespaces, leases, journal entries, wholes and the clock.
impl TxnCache<'_> {
    /// The number of a namespace, if it has one.
    pub(crate) fn namespace(&mut self, namespace: &Namespace) -> Result<Option<i64>, StoreError> {
        if let Some(number) = self.cache.namespaces.get(namespace) {
            return Ok(Some(*number));
        }
        let number = namespace::load(self.db, namespace)?;
        if let Some(number) = number {
            self.cache.namespaces.insert(namespace.clone(), number);
        }
        Ok(number)
    }

    /// The lease with this id.
    pub(crate) fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, StoreError> {
        let cached = &mut self.cache.rows.lease;
        if cached.as_ref().is_none_or(|lease| lease.id != id) {
            *cached = lease::load(self.db, id)?;
        }
        Ok(cached.clone())
    }

    /// Drops the cached lease. Call it where leases are written or removed.
    pub(crate) fn drop_lease(&mut self) {
        self.cache.rows.lease = None;
    }

    /// The number of the newest entry.
    pub(crate) fn last_entry(&mut self) -> Result<u64, StoreError> {
        match self.cache.rows.last_entry {
            Some(last) => Ok(last),
            None => Ok(*self.cache.rows.last_entry.insert(journal::last(self.db)?)),
        }
    }

    /// Takes note of an entry that was appended: it is the newest.
    pub(crate) fn appended(&mut self, entry: &Entry) {
        self.cache.rows.last_entry = Some(entry.id);
        self.cache.appended = Some(EntryIdentity::of(entry));
    }

    /// The whole that parts of this kind were added to, if that was lately.
    pub(crate) fn whole(&self, name: &Key, kind: &str) -> Option<Whole> {
        let (of, whole) = self.cache.rows.wholes.get(name)?;
        (of == kind).then_some(*whole)
    }

    /// Caches a whole that got a part of this kind.
    pub(crate) fn keep_whole(&mut self, name: Key, kind: &str, whole: Whole) {
        let wholes = &mut self.cache.rows.wholes;
        if wholes.len() >= CAPACITY {
            wholes.clear();
        }
        wholes.insert(name, (kind.to_owned(), whole));
    }

    /// Drops the cached wholes. Call it where effects are removed, because a whole may lose its last
    /// part.
    pub(crate) fn drop_wholes(&mut self) {
        self.cache.rows.wholes.clear();
    }

    /// The clocks at the first use of the store in this era, if they are cached.
    pub(crate) fn clock_anchor(&self) -> Option<ClockAnchor> {
        self.cache.rows.clock_anchor
    }

    pub(crate) fn keep_clock_anchor(&mut self, anchor: ClockAnchor) {
        self.cache.rows.clock_anchor = Some(anchor);
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::params;

    use super::*;

    #[test]
    fn a_cached_number_that_leads_to_another_row_is_not_used() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(crate::SCHEMA).unwrap();
        let keys = [1, 2].map(|byte| Key::from_bytes([byte; 32]));
        for (number, key) in (1_i64..).zip(&keys) {
            let entry =
                "INSERT INTO journal (at, namespace, key, event, state, attempt, generation)
                VALUES (1, 1, ?1, 1, 1, zeroblob(16), 1)";
            db.execute(entry, [key.as_bytes()]).unwrap();
            let effect =
                "INSERT INTO effect (id, namespace, key, fingerprint, state, safety, attempt,
                    fence, generation, attempts, created, updated, entry, outcome)
                VALUES (?2, 1, ?1, ?1, 1, 0, zeroblob(16), ?2, 1, 1, 1, 1, ?2, x'00')";
            db.execute(effect, params![key.as_bytes(), number]).unwrap();
        }
        let mut kept = ConnectionCache::with_room();
        let mut cache = TxnCache::new(&db, &mut kept);
        let prefix = prefix(1, &keys[0]);
        let (another_effect, no_effect) = (2, 77);
        for wrong in [another_effect, no_effect] {
            cache.cache.row_numbers.keep(&prefix, wrong);
            let row = cache.row(1, keys[0]).unwrap();
            assert_eq!(row.map(|row| (row.id, row.key)), Some((1, keys[0])));
            assert_eq!(cache.cache.row_numbers.find(&prefix), Some(1));
        }
    }
}
