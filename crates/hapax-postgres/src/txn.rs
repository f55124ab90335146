//! One view of the database, or one transaction on it.
//!
//! A row is cached when a command first reads it. Writes of commands are kept beside the cache and
//! sent when all commands have been judged. So a batch costs as many round trips as there are kinds
//! of rows, and a command that fails leaves nothing behind.

use std::collections::{BTreeMap, HashMap, VecDeque};

use hapax_core::attempt::AttemptId;
use hapax_core::effect::{Effect, StateName};
use hapax_core::epoch::{Bound, Domain};
use hapax_core::journal::{Entry, Event};
use hapax_core::lease::{Lease, LeaseId, Pulse};
use hapax_core::lock::{Lock, LockKey};
use hapax_core::merkle::Hash;
use hapax_core::name::{Name, Namespace};
use hapax_core::outbox::Record;
use hapax_core::route::SinkName;
use hapax_core::time::{LeaseInstant, Now};
use hapax_core::token::{Token, TokenId};
use hapax_store::{Filter, Found, Head, SealedTile, Step, StoreError, Txn, View};

use crate::connect::Link;
use crate::effect::{self, EffectRow, Stored, Write};
use crate::epoch::{self, EpochRow};
use crate::error::PgFailure;
use crate::journal::{self, Note};
use crate::lease;
use crate::lock::{self, LockRow, Taken};
use crate::namespace::Namespaces;
use crate::outbox;
use crate::part;
use crate::result_index;
use crate::token;
use crate::writes::{NewRecord, Writes};

/// The rights of a view to the rows that it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Only read. A command that wants to write is stopped, and nothing is lost.
    Look,
    /// Lock effects and locks when they are read. Lock a lease only when its time seems to be up: a
    /// healthy one is only read.
    Write,
    /// Lock leases as well: the command is about them.
    WriteLeases,
}

pub(crate) struct PgTxn<'a> {
    pub(crate) link: &'a Link,
    pub(crate) namespaces: &'a Namespaces,
    /// The epochs that were read, and may be held.
    pub(crate) epochs: HashMap<EpochRow, u64>,
    /// The versions of ontologies that were read, and are held.
    pub(crate) ontologies: HashMap<(i32, String), Option<String>>,
    now: Now,
    access: Access,
    loaded: Loaded,
    /// The writes of earlier commands.
    written: Writes,
    /// The writes of the current command.
    pub(crate) staged: Writes,
    pub(crate) numbers: VecDeque<u64>,
    /// Why a read or write failed; the lane that runs the transaction takes it.
    trouble: Option<PgFailure>,
    wanted_to_write: bool,
}

#[derive(Default)]
struct Loaded {
    effects: HashMap<EffectRow, Option<Stored>>,
    leases: HashMap<LeaseId, Option<Lease>>,
    locks: HashMap<LockRow, Option<Lock>>,
    pulse: Option<Pulse>,
}

impl<'a> PgTxn<'a> {
    pub(crate) fn new(
        link: &'a Link,
        namespaces: &'a Namespaces,
        now: Now,
        access: Access,
    ) -> Self {
        Self {
            link,
            namespaces,
            now,
            access,
            epochs: HashMap::new(),
            ontologies: HashMap::new(),
            loaded: Loaded::default(),
            written: Writes::default(),
            staged: Writes::default(),
            numbers: VecDeque::new(),
            trouble: None,
            wanted_to_write: false,
        }
    }

    /// Reads what a batch will surely need: locks, then effects, each in order.
    pub(crate) fn preload(
        &mut self,
        locks: &[LockRow],
        effects: &[EffectRow],
        numbers: usize,
    ) -> Result<(), PgFailure> {
        self.load_locks(locks)?;
        self.load_effects(effects)?;
        if numbers > 0 {
            self.numbers.extend(journal::numbers(self.link, numbers)?);
        }
        Ok(())
    }

    /// Reads what a look at claims will surely need, in one round trip.
    pub(crate) fn preview(
        &mut self,
        effects: &[EffectRow],
        lease: Option<LeaseId>,
    ) -> Result<(), PgFailure> {
        let Some(id) = lease else { return self.load_effects(effects) };
        let (mut rows, lease) = effect::load_with(self.link, effects, id)?;
        self.loaded.effects.extend(effects.iter().map(|place| (*place, rows.remove(place))));
        self.loaded.leases.insert(id, lease);
        Ok(())
    }

    /// Ends a command: its writes are kept or dropped.
    pub(crate) fn end_command(&mut self, keep: bool) {
        let staged = std::mem::take(&mut self.staged);
        if keep {
            self.written.take(staged);
        }
    }

    /// Why the last command failed, if the database was the reason.
    pub(crate) fn take_trouble(&mut self) -> Option<PgFailure> {
        self.trouble.take()
    }

    /// Whether a command was stopped because it wanted to write.
    pub(crate) fn wanted_to_write(&mut self) -> bool {
        std::mem::take(&mut self.wanted_to_write)
    }

    /// The effects that commands have written, with their versions.
    pub(crate) fn written_effects(&self) -> impl Iterator<Item = (&EffectRow, &Stored)> {
        self.written.effects.iter()
    }

    /// Sends all writes, in the order of locks: leases, locks, effects.
    pub(crate) fn flush(&mut self) -> Result<(), PgFailure> {
        let written = std::mem::take(&mut self.written);
        for lease in written.leases.values() {
            lease::put(self.link, lease)?;
        }
        let (mut taken, mut released) = (Vec::new(), Vec::new());
        for (place, lock) in &written.locks {
            let over = self.loaded.locks.get(place).copied().flatten().map(|held| held.attempt);
            match (lock, over) {
                (Some(lock), over) => {
                    taken.push(Taken { namespace: place.0, over, lock: *lock });
                }
                (None, Some(attempt)) => released.push((*place, attempt)),
                (None, None) => {}
            }
        }
        lock::put(self.link, &taken)?;
        lock::release(self.link, &released)?;
        let over = |place: &EffectRow| {
            self.loaded.effects.get(place).and_then(Option::as_ref).map_or(0, |row| row.entry)
        };
        let effects: Vec<_> = written
            .effects
            .into_iter()
            .map(|(place, row)| Write { over: over(&place), place, row })
            .collect();
        effect::put(self.link, &effects)?;
        journal::append(self.link, &written.notes)?;
        for new in &written.records {
            outbox::put(self.link, new.namespace, &new.record, &new.sinks)?;
        }
        result_index::put(self.link, &written.shelved)?;
        part::put(self.link, &Vec::from_iter(written.parts))?;
        if let Some(pulse) = &written.pulse {
            lease::put_pulse(self.link, pulse)?;
        }
        Ok(())
    }

    pub(crate) fn load_effects(&mut self, places: &[EffectRow]) -> Result<(), PgFailure> {
        let mut missing: Vec<EffectRow> = places
            .iter()
            .filter(|place| !self.loaded.effects.contains_key(*place))
            .copied()
            .collect();
        missing.sort_unstable();
        missing.dedup();
        let mut rows = match self.access {
            Access::Look => effect::load(self.link, &missing)?,
            Access::Write | Access::WriteLeases => effect::load_locked(self.link, &missing)?,
        };
        let found = missing.into_iter().map(|place| (place, rows.remove(&place)));
        self.loaded.effects.extend(found);
        Ok(())
    }

    fn load_locks(&mut self, places: &[LockRow]) -> Result<(), PgFailure> {
        let mut missing: Vec<LockRow> = places
            .iter()
            .filter(|place| !self.loaded.locks.contains_key(*place))
            .copied()
            .collect();
        missing.sort_unstable();
        missing.dedup();
        let mut rows = lock::load(self.link, &missing, self.access != Access::Look)?;
        let found = missing.into_iter().map(|place| (place, rows.remove(&place)));
        self.loaded.locks.extend(found);
        Ok(())
    }

    fn load_lease(&mut self, id: LeaseId) -> Result<Option<Lease>, PgFailure> {
        if let Some(lease) = self.loaded.leases.get(&id) {
            return Ok(lease.clone());
        }
        let mut lease = lease::load(self.link, id, self.access == Access::WriteLeases)?;
        let seems_lapsed =
            lease.as_ref().is_some_and(|l| !l.dead && l.until.reached(self.now.lease));
        if seems_lapsed && self.access == Access::Write {
            lease = lease::load(self.link, id, true)?;
        }
        self.loaded.leases.insert(id, lease.clone());
        Ok(lease)
    }

    /// The row as the commands so far have left it.
    fn row(&mut self, place: EffectRow) -> Result<Option<&Stored>, PgFailure> {
        self.load_effects(&[place])?;
        let written = self.staged.effects.get(&place).or_else(|| self.written.effects.get(&place));
        Ok(written.or_else(|| self.loaded.effects.get(&place).and_then(Option::as_ref)))
    }

    fn current_lock(&mut self, place: LockRow) -> Result<Option<Lock>, PgFailure> {
        self.load_locks(&[place])?;
        let written = self.staged.locks.get(&place).or_else(|| self.written.locks.get(&place));
        Ok(written.copied().unwrap_or_else(|| self.loaded.locks.get(&place).copied().flatten()))
    }

    fn place(&self, name: &Name) -> Result<Option<EffectRow>, PgFailure> {
        Ok(self.namespaces.find(self.link, &name.namespace)?.map(|id| (id, name.key)))
    }

    /// Stages a record, which is written when all commands have been judged.
    pub(crate) fn stage_record(&mut self, namespace: i32, record: Record, sinks: Vec<SinkName>) {
        self.staged.records.push(NewRecord { namespace, record, sinks });
    }

    /// Whether this view only reads.
    pub(crate) fn is_look(&self) -> bool {
        self.access == Access::Look
    }

    /// The records that are yet to be written.
    pub(crate) fn unsent_records(&self) -> impl Iterator<Item = &Record> {
        self.written.records.iter().chain(&self.staged.records).map(|new| &new.record)
    }

    /// The number of a namespace for a write; it was given before the transaction.
    pub(crate) fn namespace(&self, namespace: &Namespace) -> Result<i32, PgFailure> {
        let id = self.namespaces.find(self.link, namespace)?;
        id.ok_or_else(|| StoreError::Corrupt(format!("no namespace {namespace}")).into())
    }

    /// Stops a command in a view that only reads.
    pub(crate) fn may_write(&mut self) -> Result<(), StoreError> {
        if self.access == Access::Look {
            self.wanted_to_write = true;
            return Err(StoreError::Unavailable("this view is only for reading".into()));
        }
        Ok(())
    }

    /// Keeps the reason of a failure for the lane that runs the transaction.
    pub(crate) fn noting<T>(&mut self, result: Result<T, PgFailure>) -> Result<T, StoreError> {
        result.map_err(|trouble| {
            let error = match &trouble {
                PgFailure::Lost(text) | PgFailure::Busy(text) => {
                    StoreError::Unavailable(text.clone())
                }
                PgFailure::Refused(error) => error.clone(),
            };
            self.trouble = Some(trouble);
            error
        })
    }

    fn try_effects(&mut self, names: &[Name]) -> Result<Vec<Option<Effect>>, PgFailure> {
        let places: Vec<_> = names.iter().map(|name| self.place(name)).collect::<Result<_, _>>()?;
        let known: Vec<EffectRow> = places.iter().flatten().copied().collect();
        self.load_effects(&known)?;
        places
            .into_iter()
            .map(|place| match place {
                Some(place) => Ok(self.row(place)?.map(|row| row.effect.clone())),
                None => Ok(None),
            })
            .collect()
    }

    fn try_list(&mut self, filter: &Filter) -> Result<Vec<Found>, PgFailure> {
        let namespace = match &filter.namespace {
            Some(namespace) => match self.namespaces.find(self.link, namespace)? {
                Some(id) => Some(id),
                None => return Ok(Vec::new()),
            },
            None => None,
        };
        let rows = effect::list(self.link, namespace, filter)?;
        rows.into_iter()
            .map(|((namespace, key), row)| {
                let namespace = self.namespaces.name(self.link, namespace)?;
                Ok(Found { name: Name { namespace, key }, effect: row.effect })
            })
            .collect()
    }

    fn try_overdue(&mut self, at: LeaseInstant, limit: usize) -> Result<Vec<Name>, PgFailure> {
        let places = effect::overdue(self.link, at, limit)?;
        self.load_effects(&places)?;
        places
            .into_iter()
            .map(|(namespace, key)| {
                Ok(Name { namespace: self.namespaces.name(self.link, namespace)?, key })
            })
            .collect()
    }

    fn try_append(&mut self, entry: &Entry) -> Result<(), PgFailure> {
        let place = (self.namespace(&entry.namespace)?, entry.key);
        let before = self.row(place)?.cloned();
        let prev = before.as_ref().map(|row| row.entry);
        self.staged.notes.push(Note { namespace: place.0, prev, entry: entry.clone() });
        if let (Event::Contradicted, Some(row)) = (entry.event, before) {
            // The record stays as it is; only its history has one more entry.
            self.staged.effects.insert(place, Stored { entry: entry.id, ..row });
        }
        Ok(())
    }

    fn try_put_effect(&mut self, name: &Name, effect: &Effect) -> Result<(), PgFailure> {
        let place = (self.namespace(&name.namespace)?, name.key);
        self.load_effects(&[place])?;
        let note = self
            .staged
            .notes
            .iter()
            .rev()
            .find(|note| note.entry.key == name.key && note.entry.namespace == name.namespace);
        let entry = note
            .map(|note| note.entry.id)
            .ok_or_else(|| StoreError::Corrupt("a change without an entry".into()))?;
        self.staged.effects.insert(place, Stored { entry, effect: effect.clone() });
        Ok(())
    }
}

impl View for PgTxn<'_> {
    fn now(&mut self) -> Now {
        self.now
    }

    fn effects(&mut self, names: &[Name]) -> Result<Vec<Option<Effect>>, StoreError> {
        let effects = self.try_effects(names);
        self.noting(effects)
    }

    fn list(&mut self, filter: &Filter) -> Result<Vec<Found>, StoreError> {
        let found = self.try_list(filter);
        self.noting(found)
    }

    fn census(&mut self) -> Result<Vec<(StateName, u64)>, StoreError> {
        self.noting(effect::census(self.link))
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, StoreError> {
        let written = self.staged.leases.get(&id).or_else(|| self.written.leases.get(&id));
        if let Some(lease) = written {
            return Ok(Some(lease.clone()));
        }
        let lease = self.load_lease(id);
        self.noting(lease)
    }

    fn leases(&mut self) -> Result<Vec<Lease>, StoreError> {
        let live = self.noting(lease::live(self.link))?;
        let mut leases: BTreeMap<_, _> = live.into_iter().map(|lease| (lease.id, lease)).collect();
        for writes in [&self.written, &self.staged] {
            leases.extend(writes.leases.iter().map(|(id, lease)| (*id, lease.clone())));
        }
        Ok(leases.into_values().filter(|lease| !lease.dead).collect())
    }

    fn is_gone(&mut self, _: &Lease) -> bool {
        false
    }

    fn pulse(&mut self) -> Result<Pulse, StoreError> {
        let known = self.staged.pulse.or(self.written.pulse).or(self.loaded.pulse);
        if let Some(pulse) = known {
            return Ok(pulse);
        }
        let pulse = self.noting(lease::pulse(self.link))?;
        self.loaded.pulse = Some(pulse);
        Ok(pulse)
    }

    fn lock(&mut self, namespace: &Namespace, key: LockKey) -> Result<Option<Lock>, StoreError> {
        let found = self.namespaces.find(self.link, namespace);
        match self.noting(found)? {
            Some(id) => {
                let lock = self.current_lock((id, key));
                self.noting(lock)
            }
            None => Ok(None),
        }
    }

    fn steps(&mut self, name: &Name, attempt: AttemptId) -> Result<Vec<Step>, StoreError> {
        let place = self.place(name);
        match self.noting(place)? {
            Some(place) => self.noting(lock::steps(self.link, place, attempt)),
            None => Ok(Vec::new()),
        }
    }

    fn epoch(&mut self, namespace: &Namespace, domain: &Domain) -> Result<u64, StoreError> {
        let epoch = self.try_epoch(namespace, domain);
        self.noting(epoch)
    }

    fn epochs(&mut self, namespace: &Namespace) -> Result<Vec<Bound>, StoreError> {
        let found = self.namespaces.find(self.link, namespace);
        match self.noting(found)? {
            Some(id) => self.noting(epoch::all(self.link, id)),
            None => Ok(Vec::new()),
        }
    }

    fn notice(&mut self) -> Result<u64, StoreError> {
        self.noting(lease::notice(self.link))
    }

    fn entries(
        &mut self,
        of: Option<&Name>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let entries = match of {
            None => journal::after(self.link, after, limit),
            Some(name) => self.place(name).and_then(|place| match place {
                Some(place) => journal::of(self.link, place, after, limit),
                None => Ok(Vec::new()),
            }),
        };
        self.noting(entries)
    }

    fn leaf_entry(&mut self, leaf: u64) -> Result<Option<Entry>, StoreError> {
        Ok(self.leaf_entries(leaf, 1)?.pop().flatten())
    }

    fn leaf_entries(&mut self, first: u64, count: u64) -> Result<Vec<Option<Entry>>, StoreError> {
        self.noting(journal::leaves(self.link, first, count))
    }

    fn archived(&mut self) -> Result<Vec<std::ops::Range<u64>>, StoreError> {
        self.noting(journal::archived(self.link))
    }

    fn leaf_of(&mut self, entry: u64) -> Result<Option<u64>, StoreError> {
        self.noting(journal::leaf_of(self.link, entry))
    }

    fn last_entry(&mut self) -> Result<u64, StoreError> {
        self.noting(journal::last(self.link))
    }

    fn unsealed(&mut self, limit: usize) -> Result<Vec<Entry>, StoreError> {
        self.noting(journal::unsealed(self.link, limit))
    }

    fn pending(&mut self) -> Result<u64, StoreError> {
        self.noting(journal::pending(self.link))
    }

    fn tile(&mut self, level: u32, index: u64) -> Result<Vec<Hash>, StoreError> {
        self.noting(journal::tile(self.link, level, index))
    }

    fn heads(&mut self, after: u64, limit: usize) -> Result<Vec<Head>, StoreError> {
        self.noting(journal::heads(self.link, after, limit))
    }

    fn newest_head(&mut self) -> Result<Option<Head>, StoreError> {
        let lock = self.access != Access::Look;
        self.noting(journal::newest_head(self.link, lock))
    }

    fn tokens(&mut self) -> Result<Vec<Token>, StoreError> {
        self.noting(token::all(self.link))
    }
}

impl Txn for PgTxn<'_> {
    fn put_effect(&mut self, name: &Name, effect: &Effect) -> Result<(), StoreError> {
        self.may_write()?;
        let put = self.try_put_effect(name, effect);
        self.noting(put)
    }

    fn sweep(&mut self, now: Now, limit: usize) -> Result<usize, StoreError> {
        self.may_write()?;
        let swept = effect::sweep(self.link, now.wall, limit).and_then(|swept| {
            lease::sweep(self.link)?;
            journal::make_partitions(self.link)?;
            Ok(swept)
        });
        self.noting(swept)
    }

    fn overdue(&mut self, at: LeaseInstant, limit: usize) -> Result<Vec<Name>, StoreError> {
        let overdue = self.try_overdue(at, limit);
        self.noting(overdue)
    }

    fn put_lease(&mut self, lease: &Lease) -> Result<(), StoreError> {
        self.may_write()?;
        self.staged.leases.insert(lease.id, lease.clone());
        Ok(())
    }

    fn drop_lease(&mut self, id: LeaseId) -> Result<(), StoreError> {
        self.may_write()?;
        self.noting(lease::end(self.link, id))
    }

    fn put_pulse(&mut self, pulse: &Pulse) -> Result<(), StoreError> {
        self.may_write()?;
        self.staged.pulse = Some(*pulse);
        Ok(())
    }

    fn put_lock(&mut self, namespace: &Namespace, lock: &Lock) -> Result<(), StoreError> {
        self.may_write()?;
        let id = self.namespace(namespace);
        let place = (self.noting(id)?, lock.key);
        let loaded = self.load_locks(&[place]);
        self.noting(loaded)?;
        self.staged.locks.insert(place, Some(*lock));
        Ok(())
    }

    fn drop_lock(
        &mut self,
        namespace: &Namespace,
        key: LockKey,
        attempt: AttemptId,
    ) -> Result<(), StoreError> {
        self.may_write()?;
        let id = self.namespace(namespace);
        let place = (self.noting(id)?, key);
        let lock = self.current_lock(place);
        if self.noting(lock)?.is_some_and(|lock| lock.attempt == attempt) {
            self.staged.locks.insert(place, None);
        }
        Ok(())
    }

    fn put_epoch(&mut self, namespace: &Namespace, epoch: &Bound) -> Result<(), StoreError> {
        self.may_write()?;
        let id = self.namespace(namespace);
        let id = self.noting(id)?;
        self.noting(epoch::put(self.link, id, epoch))
    }

    fn bound(&mut self, namespace: &Namespace, epoch: &Bound) -> Result<Vec<Name>, StoreError> {
        let bound = self.try_bound(namespace, epoch);
        self.noting(bound)
    }

    fn push_step(
        &mut self,
        name: &Name,
        attempt: AttemptId,
        step: &Step,
    ) -> Result<(), StoreError> {
        self.may_write()?;
        let id = self.namespace(&name.namespace);
        let place = (self.noting(id)?, name.key);
        self.noting(lock::push_step(self.link, place, attempt, step))
    }

    fn raise_notice(&mut self) -> Result<u64, StoreError> {
        self.may_write()?;
        self.noting(lease::raise_notice(self.link))
    }

    fn next_entry(&mut self) -> Result<u64, StoreError> {
        self.may_write()?;
        if self.numbers.is_empty() {
            let numbers = self.noting(journal::numbers(self.link, 1))?;
            self.numbers.extend(numbers);
        }
        let none = || StoreError::Corrupt("no number for an entry".into());
        self.numbers.pop_front().ok_or_else(none)
    }

    fn append(&mut self, entry: &Entry) -> Result<(), StoreError> {
        self.may_write()?;
        let appended = self.try_append(entry);
        self.noting(appended)
    }

    fn put_head(
        &mut self,
        leaves: &[u64],
        tiles: &[SealedTile],
        head: &Head,
    ) -> Result<(), StoreError> {
        self.may_write()?;
        self.noting(journal::put_head(self.link, leaves, tiles, head))
    }

    fn put_token(&mut self, token: &Token) -> Result<(), StoreError> {
        self.may_write()?;
        self.noting(token::put(self.link, token))
    }

    fn drop_token(&mut self, id: TokenId) -> Result<bool, StoreError> {
        self.may_write()?;
        self.noting(token::drop(self.link, id))
    }
}
