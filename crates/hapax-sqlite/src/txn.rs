//! A transaction on a connection, ours or a caller's: rows in, rows out.

use std::sync::Arc;

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::effect::{Effect, State, StateName};
use hapax_core::epoch::{Bound, Domain};
use hapax_core::journal::{Entry, Event};
use hapax_core::key::Key;
use hapax_core::lease::{Lease, LeaseId, Pulse};
use hapax_core::lock::{Lock, LockKey};
use hapax_core::merkle::Hash;
use hapax_core::name::{Name, Namespace};
use hapax_core::time::{LeaseInstant, Now, Timestamp};
use hapax_core::token::{Token, TokenId};
use hapax_store::{Clock, Filter, Found, Head, SealedTile, Step, StoreError, Txn, View};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::clock::Anchor;
use crate::connection_cache::{ConnectionCache, EntryAnchor};
use crate::effect::{self, EffectRow};
use crate::epoch;
use crate::error::OrStoreError;
use crate::journal;
use crate::lease;
use crate::liveness::LivenessLocks;
use crate::lock;
use crate::statement_cache::StatementCache;
use crate::token;

/// The clock and the liveness locks, which every transaction of a store gets.
pub(crate) struct StoreContext {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) presence: LivenessLocks,
}

pub(crate) struct SqliteTxn<'a> {
    pub(crate) db: &'a Connection,
    around: &'a StoreContext,
    pub(crate) hot: StatementCache<'a>,
    pub(crate) memory: &'a mut ConnectionCache,
    now: Now,
    loaded: Vec<Loaded>,
}

/// A row this command has loaded.
struct Loaded {
    name: Name,
    row: i64,
    /// Its newest journal entry; none if it has none yet.
    entry: Option<i64>,
    /// The running attempt, if there is one without a deadline and bound to no epoch.
    running: Option<AttemptId>,
    /// Whether this command has made it.
    new: bool,
}

impl<'a> SqliteTxn<'a> {
    pub(crate) fn new(
        db: &'a Connection,
        around: &'a StoreContext,
        memory: &'a mut ConnectionCache,
    ) -> Self {
        let now = around.clock.now();
        Self { db, around, hot: StatementCache::of(db), memory, now, loaded: Vec::new() }
    }

    /// Drops the cached wholes. Call it where effects are removed, because a whole may lose its
    /// last part.
    pub(crate) fn forget_wholes(&mut self) {
        self.memory.rows.wholes.clear();
    }

    /// Begins a command: nothing is loaded.
    pub(crate) fn begin_command(&mut self) {
        self.loaded.clear();
    }

    /// Reads the clock, for the commands that come next.
    pub(crate) fn read_clock(&mut self) -> Result<(), StoreError> {
        self.now = self.around.clock.now();
        let anchor = match self.memory.rows.anchor {
            Some(anchor) if anchor.lease.era == self.now.lease.era => anchor,
            _ => *self.memory.rows.anchor.insert(self.anchored()?),
        };
        self.now.wall_trusted &= anchor.trusts(self.now);
        Ok(())
    }

    /// Drops data that an undone command may have left in the cache.
    pub(crate) fn forget(&mut self) {
        self.loaded.clear();
        self.memory.forget();
    }

    /// The clocks at the first use in this era, set now if this is it.
    fn anchored(&self) -> Result<Anchor, StoreError> {
        if let Some(anchor) = self.stored_anchor()? {
            return Ok(anchor);
        }
        let anchor = Anchor { wall: self.now.wall, lease: self.now.lease };
        let (era, ms) = (anchor.lease.era as i64, anchor.lease.ms as i64);
        self.db
            .prepare_cached("UPDATE self SET anchor_era = ?1, anchor_wall = ?2, anchor_ms = ?3")
            .or_store_error()?
            .execute(params![era, anchor.wall.0, ms])
            .or_store_error()?;
        Ok(anchor)
    }

    /// The anchor of this era, if it has been set.
    fn stored_anchor(&self) -> Result<Option<Anchor>, StoreError> {
        let read = |row: &Row<'_>| {
            let (era, ms) = (row.get::<_, i64>(0)? as u64, row.get::<_, i64>(2)? as u64);
            Ok(Anchor { wall: Timestamp(row.get(1)?), lease: LeaseInstant { era, ms } })
        };
        let anchor = self
            .db
            .prepare_cached("SELECT anchor_era, anchor_wall, anchor_ms FROM self")
            .or_store_error()?
            .query_row([], read)
            .or_store_error()?;
        Ok(Some(anchor).filter(|anchor| anchor.lease.era == self.now.lease.era))
    }

    pub(crate) fn namespace(&mut self, namespace: &Namespace) -> Result<Option<i64>, StoreError> {
        if let Some(id) = self.memory.namespaces.get(namespace) {
            return Ok(Some(*id));
        }
        let id = self
            .db
            .prepare_cached("SELECT id FROM namespace WHERE name = ?1")
            .or_store_error()?
            .query_row([namespace.as_str()], |row| row.get(0))
            .optional()
            .or_store_error()?;
        if let Some(id) = id {
            self.memory.namespaces.insert(namespace.clone(), id);
        }
        Ok(id)
    }

    pub(crate) fn namespace_or_new(&mut self, namespace: &Namespace) -> Result<i64, StoreError> {
        if let Some(id) = self.namespace(namespace)? {
            return Ok(id);
        }
        self.db
            .execute("INSERT INTO namespace (name) VALUES (?1)", [namespace.as_str()])
            .or_store_error()?;
        Ok(self.db.last_insert_rowid())
    }

    fn namespace_name(&self, id: i64) -> Result<Namespace, StoreError> {
        let name: String = self
            .db
            .prepare_cached("SELECT name FROM namespace WHERE id = ?1")
            .or_store_error()?
            .query_row([id], |row| row.get(0))
            .or_store_error()?;
        Namespace::new(&name).map_err(|error| StoreError::Corrupt(error.to_string()))
    }

    fn load(&mut self, name: &Name) -> Result<Option<Effect>, StoreError> {
        if let Some((row, entry, effect)) = self.memory.rows.running.get(name) {
            let (row, entry, effect) = (*row, *entry, effect.clone());
            self.remember(name, row, Some(entry), &effect, false);
            return Ok(Some(effect));
        }
        let Some(namespace) = self.namespace(&name.namespace)? else { return Ok(None) };
        let found = self.load_row(namespace, name.key)?;
        self.memory.claims_find = found.is_some();
        let Some(row) = found else { return Ok(None) };
        self.remember(name, row.id, Some(row.entry), &row.effect, false);
        Ok(Some(row.effect))
    }

    fn load_row(&mut self, namespace: i64, key: Key) -> Result<Option<EffectRow>, StoreError> {
        effect::load(&mut self.hot, &mut self.memory.seen, namespace, key)
    }

    /// The number of the effect of this name, if there is one.
    pub(crate) fn number(&mut self, namespace: i64, key: Key) -> Result<Option<i64>, StoreError> {
        effect::number(&mut self.hot, namespace, key)
    }

    fn put_new(
        &mut self,
        namespace: i64,
        key: Key,
        effect: &Effect,
    ) -> Result<Option<i64>, StoreError> {
        let made = effect::put_new(&mut self.hot, namespace, key, effect)?;
        if made.is_some() {
            self.memory.mover.note_added();
        }
        Ok(made)
    }

    fn remember(&mut self, name: &Name, row: i64, entry: Option<i64>, effect: &Effect, new: bool) {
        let plain = matches!(effect.state, State::Running { deadline: None, .. });
        let running = plain && effect.bound.is_none();
        let running = running.then_some(effect.attempt);
        self.loaded.retain(|loaded| loaded.name != *name);
        self.loaded.push(Loaded { name: name.clone(), row, entry, running, new });
    }

    /// The row of an effect that this command has loaded or written, and whether it is new.
    pub(crate) fn row_id(&self, name: &Name) -> Option<(i64, bool)> {
        self.row(name).map(|loaded| (loaded.row, loaded.new))
    }

    fn row(&self, name: &Name) -> Option<&Loaded> {
        self.loaded.iter().find(|loaded| loaded.name == *name)
    }

    fn effects_on(
        &mut self,
        sql: &str,
        params: impl rusqlite::Params,
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

impl View for SqliteTxn<'_> {
    /// In a command the clock was judged when it was read; for a reader it is judged here.
    fn now(&mut self) -> Now {
        let known = self.memory.rows.anchor;
        let anchor = known.or_else(|| self.stored_anchor().ok().flatten());
        if let Some(anchor) = anchor {
            self.memory.rows.anchor = Some(anchor);
            self.now.wall_trusted &= anchor.trusts(self.now);
        }
        self.now
    }

    fn effects(&mut self, names: &[Name]) -> Result<Vec<Option<Effect>>, StoreError> {
        names.iter().map(|name| self.load(name)).collect()
    }

    fn list(&mut self, filter: &Filter) -> Result<Vec<Found>, StoreError> {
        let namespace = match &filter.namespace {
            None => None,
            Some(namespace) => match self.namespace(namespace)? {
                None => return Ok(Vec::new()),
                known => known,
            },
        };
        let rows = effect::list(self.db, namespace, filter)?;
        rows.into_iter()
            .map(|row| {
                let namespace = self.namespace_name(row.namespace)?;
                Ok(Found { name: Name { namespace, key: row.key }, effect: row.effect })
            })
            .collect()
    }

    fn census(&mut self) -> Result<Vec<(StateName, u64)>, StoreError> {
        let mut statement = self
            .db
            .prepare_cached("SELECT state, count(*) FROM effect GROUP BY state ORDER BY state")
            .or_store_error()?;
        let rows = statement
            .query_map([], |row| Ok((effect::state_name(row, 0)?, row.get::<_, i64>(1)? as u64)))
            .or_store_error()?;
        rows.collect::<rusqlite::Result<_>>().or_store_error()
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, StoreError> {
        if let Some(lease) = self.memory.rows.lease.as_ref().filter(|lease| lease.id == id) {
            return Ok(Some(lease.clone()));
        }
        self.memory.rows.lease = lease::load(self.db, id)?;
        Ok(self.memory.rows.lease.clone())
    }

    fn leases(&mut self) -> Result<Vec<Lease>, StoreError> {
        lease::live(self.db)
    }

    fn is_gone(&mut self, lease: &Lease) -> bool {
        self.around.presence.is_gone(lease.id)
    }

    fn pulse(&mut self) -> Result<Pulse, StoreError> {
        lease::pulse(self.db)
    }

    fn lock(&mut self, namespace: &Namespace, key: LockKey) -> Result<Option<Lock>, StoreError> {
        let Some(namespace) = self.namespace(namespace)? else { return Ok(None) };
        lock::load(self.db, namespace, key)
    }

    fn steps(&mut self, name: &Name, attempt: AttemptId) -> Result<Vec<Step>, StoreError> {
        let Some(namespace) = self.namespace(&name.namespace)? else { return Ok(Vec::new()) };
        let mut statement = self
            .db
            .prepare_cached(
                "SELECT name, payload FROM step WHERE attempt = ?1 AND key = ?2 AND namespace = ?3
                 ORDER BY id",
            )
            .or_store_error()?;
        let rows = statement
            .query_map(params![attempt.as_bytes(), name.key.as_bytes(), namespace], |row| {
                Ok(Step { name: row.get(0)?, payload: row.get(1)? })
            })
            .or_store_error()?;
        rows.collect::<rusqlite::Result<_>>().or_store_error()
    }

    fn epoch(&mut self, namespace: &Namespace, domain: &Domain) -> Result<u64, StoreError> {
        match self.namespace(namespace)? {
            Some(namespace) => epoch::load(self.db, namespace, domain),
            None => Ok(0),
        }
    }

    fn epochs(&mut self, namespace: &Namespace) -> Result<Vec<Bound>, StoreError> {
        match self.namespace(namespace)? {
            Some(namespace) => epoch::all(self.db, namespace),
            None => Ok(Vec::new()),
        }
    }

    fn notice(&mut self) -> Result<u64, StoreError> {
        self.db
            .prepare_cached("SELECT notice FROM self")
            .or_store_error()?
            .query_row([], |row| row.get::<_, i64>(0))
            .map(|notice| notice as u64)
            .or_store_error()
    }

    fn entries(
        &mut self,
        of: Option<&Name>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let Some(name) = of else { return journal::after(self.db, after, limit) };
        let Some(namespace) = self.namespace(&name.namespace)? else { return Ok(Vec::new()) };
        let newest = self.load_row(namespace, name.key)?;
        let newest = newest.map(|row| row.entry);
        journal::of(self.db, namespace, name.key, newest, after, limit)
    }

    fn leaf_entry(&mut self, leaf: u64) -> Result<Option<Entry>, StoreError> {
        journal::one(self.db, leaf + 1)
    }

    fn leaf_of(&mut self, entry: u64) -> Result<Option<u64>, StoreError> {
        let sealed = self.newest_head()?.map_or(0, |head| head.size);
        Ok(entry.checked_sub(1).filter(|leaf| *leaf < sealed))
    }

    fn last_entry(&mut self) -> Result<u64, StoreError> {
        match self.memory.rows.last_entry {
            Some(last) => Ok(last),
            None => Ok(*self.memory.rows.last_entry.insert(journal::last(self.db)?)),
        }
    }

    fn unsealed(&mut self, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let sealed = self.newest_head()?.map_or(0, |head| head.size);
        journal::after(self.db, sealed, limit)
    }

    fn pending(&mut self) -> Result<u64, StoreError> {
        let sealed = self.newest_head()?.map_or(0, |head| head.size);
        Ok(self.last_entry()?.saturating_sub(sealed))
    }

    fn tile(&mut self, level: u32, index: u64) -> Result<Vec<Hash>, StoreError> {
        journal::tile(self.db, level, index)
    }

    fn heads(&mut self, after: u64, limit: usize) -> Result<Vec<Head>, StoreError> {
        journal::heads(self.db, after, limit)
    }

    fn newest_head(&mut self) -> Result<Option<Head>, StoreError> {
        journal::newest_head(self.db)
    }

    fn tokens(&mut self) -> Result<Vec<Token>, StoreError> {
        token::all(self.db)
    }
}

impl Txn for SqliteTxn<'_> {
    fn put_first(&mut self, name: &Name, effect: &Effect) -> Result<Option<Fence>, StoreError> {
        if self.memory.claims_find || self.memory.rows.running.contains_key(name) {
            return Ok(None);
        }
        let namespace = self.namespace_or_new(&name.namespace)?;
        let fence = Fence(self.next_entry()?);
        let effect = Effect { fence, ..effect.clone() };
        let Some(row) = self.put_new(namespace, name.key, &effect)? else {
            self.memory.claims_find = true;
            return Ok(None);
        };
        self.remember(name, row, None, &effect, true);
        self.memory.rows.keep(name, row, row, effect);
        Ok(Some(fence))
    }

    fn put_effect(&mut self, name: &Name, effect: &Effect) -> Result<(), StoreError> {
        let entry = self.last_entry()? as i64;
        let loaded = self.row(name);
        let new = loaded.is_none();
        let row = match (loaded, effect::inline(effect)) {
            (Some(&Loaded { row, running: Some(attempt), .. }), Some(body))
                if attempt == effect.attempt && effect.expires().is_none() =>
            {
                effect::put_success(&mut self.hot, row, entry, effect, body)?;
                row
            }
            (Some(&Loaded { row, .. }), _) => {
                effect::put(self.db, row, entry, effect)?;
                row
            }
            (None, _) => {
                let namespace = self.namespace_or_new(&name.namespace)?;
                self.put_new(namespace, name.key, effect)?
                    .ok_or_else(|| StoreError::Corrupt(format!("{} came from nowhere", name.key)))?
            }
        };
        self.remember(name, row, Some(entry), effect, new);
        match effect.state {
            State::Running { .. } => self.memory.rows.keep(name, row, entry, effect.clone()),
            _ => _ = self.memory.rows.running.remove(name),
        }
        Ok(())
    }

    fn sweep(&mut self, now: Now, limit: usize) -> Result<usize, StoreError> {
        self.memory.rows.lease = None;
        self.forget_wholes();
        lease::sweep(self.db)?;
        effect::sweep(self.db, now.wall, limit)
    }

    fn overdue(&mut self, at: LeaseInstant, limit: usize) -> Result<Vec<Name>, StoreError> {
        let (era, ms, limit) = (at.era as i64, at.ms as i64, limit as i64);
        let mut names = self.effects_on(
            "SELECT e.namespace, e.key FROM lease l CROSS JOIN effect e ON e.lease = l.id
             WHERE (l.dead OR l.until_era <> ?1 OR l.until_ms <= ?2) AND e.safety <> 0
             LIMIT ?3",
            params![era, ms, limit],
        )?;
        names.extend(self.effects_on(
            "SELECT namespace, key FROM effect WHERE at_ms <= ?2 AND state = 0
                 AND at_era = ?1 AND safety <> 0 LIMIT ?3",
            params![era, ms, limit - names.len() as i64],
        )?);
        Ok(names)
    }

    fn put_lease(&mut self, lease: &Lease) -> Result<(), StoreError> {
        self.memory.rows.lease = None;
        lease::put(self.db, lease)?;
        if lease.dead && self.around.presence.is_gone(lease.id) {
            self.around.presence.forget(lease.id);
        }
        Ok(())
    }

    fn drop_lease(&mut self, id: LeaseId) -> Result<(), StoreError> {
        self.memory.rows.lease = None;
        lease::end(self.db, id)?;
        self.around.presence.forget(id);
        Ok(())
    }

    fn put_pulse(&mut self, pulse: &Pulse) -> Result<(), StoreError> {
        lease::put_pulse(self.db, pulse)
    }

    fn put_lock(&mut self, namespace: &Namespace, lock: &Lock) -> Result<(), StoreError> {
        let namespace = self.namespace_or_new(namespace)?;
        lock::put(self.db, namespace, lock)
    }

    fn drop_lock(
        &mut self,
        namespace: &Namespace,
        key: LockKey,
        attempt: AttemptId,
    ) -> Result<(), StoreError> {
        let namespace = self.namespace_or_new(namespace)?;
        lock::release(self.db, namespace, key, attempt)
    }

    fn put_epoch(&mut self, namespace: &Namespace, epoch: &Bound) -> Result<(), StoreError> {
        let namespace = self.namespace_or_new(namespace)?;
        epoch::put(self.db, namespace, epoch)
    }

    fn bound(&mut self, namespace: &Namespace, epoch: &Bound) -> Result<Vec<Name>, StoreError> {
        let Some(namespace) = self.namespace(namespace)? else { return Ok(Vec::new()) };
        self.effects_on(
            "SELECT namespace, key FROM effect
             WHERE voidable = ?2 AND voidable IS NOT NULL AND namespace = ?1 AND epoch = ?3",
            params![namespace, epoch.domain.as_str(), epoch.epoch as i64],
        )
    }

    fn push_step(
        &mut self,
        name: &Name,
        attempt: AttemptId,
        step: &Step,
    ) -> Result<(), StoreError> {
        let namespace = self.namespace_or_new(&name.namespace)?;
        self.db
            .prepare_cached("INSERT INTO step (namespace, key, attempt, name, payload) VALUES (?1, ?2, ?3, ?4, ?5)")
            .or_store_error()?
            .execute(params![namespace, name.key.as_bytes(), attempt.as_bytes(), step.name, step.payload])
            .or_store_error()?;
        Ok(())
    }

    fn raise_notice(&mut self) -> Result<u64, StoreError> {
        self.db.execute("UPDATE self SET notice = notice + 1", []).or_store_error()?;
        self.notice()
    }

    fn next_entry(&mut self) -> Result<u64, StoreError> {
        Ok(self.last_entry()? + 1)
    }

    fn append(&mut self, entry: &Entry) -> Result<(), StoreError> {
        let name = Name { namespace: entry.namespace.clone(), key: entry.key };
        let id = self.namespace_or_new(&name.namespace)?;
        let loaded = self.row(&name).map(|loaded| (loaded.row, loaded.entry));
        journal::append(&mut self.hot, id, loaded.and_then(|(_, newest)| newest), entry)?;
        self.memory.rows.last_entry = Some(entry.id);
        self.memory.appended = Some(EntryAnchor {
            id: entry.id as i64,
            at: entry.at.0,
            event: entry.event.code(),
            key: *entry.key.as_bytes(),
            attempt: *entry.attempt.as_bytes(),
        });
        if let (Event::Contradicted, Some((row, _))) = (entry.event, loaded) {
            // The record stays as it is; only its history has one more entry.
            self.memory.rows.running.remove(&name);
            self.db
                .execute(
                    "UPDATE effect SET entry = ?1 WHERE id = ?2",
                    params![entry.id as i64, row],
                )
                .or_store_error()?;
        }
        Ok(())
    }

    fn put_head(&mut self, _: &[u64], tiles: &[SealedTile], head: &Head) -> Result<(), StoreError> {
        journal::put_head(self.db, tiles, head)
    }

    fn put_token(&mut self, token: &Token) -> Result<(), StoreError> {
        token::put(self.db, token)
    }

    fn drop_token(&mut self, id: TokenId) -> Result<bool, StoreError> {
        token::drop(self.db, id)
    }
}
