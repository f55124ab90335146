//! The ledger in memory: the oracle that other stores are compared with.
//!
//! Forgets everything when dropped, and is otherwise a complete store. Each command writes to the
//! tables in place and keeps an undo log, which is played back if the command fails.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::effect::{Effect, Safety, State, StateName};
#[cfg(feature = "proof")]
use hapax_core::effect::{Report, Settled};
use hapax_core::epoch::{Bound, Domain};
use hapax_core::journal::Entry;
use hapax_core::lease::{Lease, LeaseId, Pulse};
use hapax_core::lock::{Lock, LockKey};
use hapax_core::merkle::Hash;
use hapax_core::name::{Name, Namespace};
use hapax_core::part::Part;
use hapax_core::time::{LeaseInstant, Now, Timestamp};
use hapax_core::token::{Token, TokenId};

mod outbox;
mod part;
mod result_index;

use crate::clock::Clock;
use crate::command::{Job, Reading, Store};
use crate::error::StoreError;
use crate::ledger;
#[cfg(feature = "proof")]
use crate::outbox::Attachments;
use crate::txn::{Filter, Found, Head, SealedTile, Step, Txn, View};

/// A ledger that lives as long as the process.
///
/// ```
/// use std::sync::Arc;
/// use hapax_store::{ManualClock, MemoryStore};
///
/// let clock = Arc::new(ManualClock::default());
/// let store = MemoryStore::new(clock.clone());
/// clock.advance(30_000);
/// # drop(store);
/// ```
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    tables: Mutex<Tables>,
}

impl MemoryStore {
    /// An empty ledger on this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, tables: Mutex::default() }
    }

    /// An empty ledger on the machine's own clock.
    pub fn with_system_clock() -> Self {
        Self::new(Arc::new(SystemClock(std::time::Instant::now())))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Operations of a model checker, which no caller has.
#[cfg(feature = "proof")]
#[doc(hidden)]
impl MemoryStore {
    /// A copy of this ledger, on the same clock, that changes independently from now on.
    pub fn fork(&self) -> Self {
        Self { clock: self.clock.clone(), tables: Mutex::new(self.lock().clone()) }
    }

    /// Settles in a caller's transaction that writes nothing else here. After any answer but
    /// `Recorded` and `Repeated` the writes are undone. An error means that the caller rolls back.
    pub fn settle_in(
        &self,
        name: &Name,
        by: (AttemptId, Fence),
        report: &Report,
    ) -> Result<Settled, StoreError> {
        let mut tables = self.lock();
        let mut txn = MemoryTxn { now: self.clock.now(), tables: &mut tables, undo: Vec::new() };
        let settled = ledger::settle_in(&mut txn, name, by, report, &Attachments::default());
        if !matches!(settled, Ok(Settled::Recorded | Settled::Repeated)) {
            txn.take_back();
        }
        settled
    }

    /// Ends the time of a lease.
    pub fn let_lapse(&self, id: LeaseId) {
        if let Some(lease) = self.lock().leases.get_mut(&id) {
            lease.until = LeaseInstant { ms: 0, ..lease.until };
        }
    }

    /// Ends the settling time of an unknown outcome.
    pub fn let_settle(&self, name: &Name) {
        if let Some(effect) = self.lock().effects.get_mut(name)
            && let State::Unknown { since, .. } = &mut effect.state
        {
            since.ms = 0;
        }
    }
}

struct SystemClock(std::time::Instant);

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Now {
            wall: Timestamp(wall.map_or(0, |d| d.as_millis() as i64)),
            lease: LeaseInstant { era: 1, ms: self.0.elapsed().as_millis() as u64 },
            wall_trusted: true,
        }
    }
}

impl Store for MemoryStore {
    fn submit(&self, jobs: Vec<Job>) {
        for job in jobs {
            let mut tables = self.lock();
            let mut txn =
                MemoryTxn { now: self.clock.now(), tables: &mut tables, undo: Vec::new() };
            let answer = ledger::apply(&mut txn, &job.command);
            if answer.is_err() {
                txn.take_back();
            }
            drop(tables);
            let _ = job.reply.send(answer);
        }
    }

    fn read(&self, reading: Reading) {
        let mut tables = self.lock();
        reading(Ok(&mut MemoryTxn {
            now: self.clock.now(),
            tables: &mut tables,
            undo: Vec::new(),
        }));
    }
}

#[derive(Default)]
#[cfg_attr(feature = "proof", derive(Clone))]
struct Tables {
    effects: BTreeMap<Name, Effect>,
    leases: BTreeMap<LeaseId, Lease>,
    locks: BTreeMap<(Namespace, LockKey), Lock>,
    steps: BTreeMap<(Name, AttemptId), Vec<Step>>,
    journal: Vec<Entry>,
    tiles: BTreeMap<(u32, u64), Vec<Hash>>,
    heads: Vec<Head>,
    pulse: Pulse,
    notice: u64,
    epochs: BTreeMap<(Namespace, Domain), u64>,
    tokens: BTreeMap<TokenId, Token>,
    outbox: outbox::Outbox,
    shelf: result_index::Shelves,
    parts: BTreeMap<Name, (u64, Part)>,
}

type Undo = Box<dyn FnOnce(&mut Tables)>;

struct MemoryTxn<'a> {
    now: Now,
    tables: &'a mut Tables,
    undo: Vec<Undo>,
}

impl MemoryTxn<'_> {
    /// Puts or removes a row, and notes how to undo that.
    fn set<K: Ord + Clone + 'static, V: 'static>(
        &mut self,
        table: fn(&mut Tables) -> &mut BTreeMap<K, V>,
        key: K,
        value: Option<V>,
    ) {
        fn place<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> Option<V> {
            match value {
                Some(value) => map.insert(key, value),
                None => map.remove(&key),
            }
        }
        let before = place(table(self.tables), key.clone(), value);
        self.undo.push(Box::new(move |tables| {
            place(table(tables), key, before);
        }));
    }

    /// Removes dead leases that no running, non-transactional effect depends on.
    fn sweep_leases(&mut self) {
        let effects = &self.tables.effects;
        let watched = |id: LeaseId| {
            effects.values().any(|effect| {
                effect.safety != Safety::Transactional
                    && matches!(effect.state, State::Running { lease, .. } if lease == id)
            })
        };
        let dead = self.tables.leases.values().filter(|lease| lease.dead && !watched(lease.id));
        for id in dead.map(|lease| lease.id).collect::<Vec<_>>() {
            self.set(|tables| &mut tables.leases, id, None);
        }
    }

    fn take_back(self) {
        for undo in self.undo.into_iter().rev() {
            undo(self.tables);
        }
    }
}

impl View for MemoryTxn<'_> {
    fn now(&mut self) -> Now {
        self.now
    }

    fn effects(&mut self, names: &[Name]) -> Result<Vec<Option<Effect>>, StoreError> {
        Ok(names.iter().map(|name| self.tables.effects.get(name).cloned()).collect())
    }

    fn list(&mut self, filter: &Filter) -> Result<Vec<Found>, StoreError> {
        let wanted = |name: &Name, effect: &Effect| {
            filter.namespace.as_ref().is_none_or(|namespace| *namespace == name.namespace)
                && (filter.states.is_empty() || filter.states.contains(&effect.state.name()))
                && filter.before.is_none_or(|before| effect.fence < before)
                && filter.label.as_ref().is_none_or(|text| {
                    effect.label.as_ref().is_some_and(|label| label.contains(text))
                })
        };
        let mut found: Vec<_> = self
            .tables
            .effects
            .iter()
            .filter(|(name, effect)| wanted(name, effect))
            .map(|(name, effect)| Found { name: name.clone(), effect: effect.clone() })
            .collect();
        found.sort_by_key(|found| std::cmp::Reverse(found.effect.fence));
        found.truncate(filter.limit);
        Ok(found)
    }

    fn census(&mut self) -> Result<Vec<(StateName, u64)>, StoreError> {
        let mut counts = BTreeMap::new();
        for effect in self.tables.effects.values() {
            *counts.entry(effect.state.name()).or_default() += 1;
        }
        Ok(counts.into_iter().collect())
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, StoreError> {
        Ok(self.tables.leases.get(&id).cloned())
    }

    fn leases(&mut self) -> Result<Vec<Lease>, StoreError> {
        Ok(self.tables.leases.values().filter(|lease| !lease.dead).cloned().collect())
    }

    fn is_gone(&mut self, _: &Lease) -> bool {
        false
    }

    fn pulse(&mut self) -> Result<Pulse, StoreError> {
        Ok(self.tables.pulse)
    }

    fn lock(&mut self, namespace: &Namespace, key: LockKey) -> Result<Option<Lock>, StoreError> {
        Ok(self.tables.locks.get(&(namespace.clone(), key)).copied())
    }

    fn steps(&mut self, name: &Name, attempt: AttemptId) -> Result<Vec<Step>, StoreError> {
        Ok(self.tables.steps.get(&(name.clone(), attempt)).cloned().unwrap_or_default())
    }

    fn notice(&mut self) -> Result<u64, StoreError> {
        Ok(self.tables.notice)
    }

    fn epoch(&mut self, namespace: &Namespace, domain: &Domain) -> Result<u64, StoreError> {
        let place = (namespace.clone(), domain.clone());
        Ok(self.tables.epochs.get(&place).copied().unwrap_or_default())
    }

    fn epochs(&mut self, namespace: &Namespace) -> Result<Vec<Bound>, StoreError> {
        let ours = self.tables.epochs.iter().filter(|((of, _), _)| of == namespace);
        Ok(ours
            .map(|((_, domain), epoch)| Bound { domain: domain.clone(), epoch: *epoch })
            .collect())
    }

    fn entries(
        &mut self,
        of: Option<&Name>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let wanted = |entry: &&Entry| {
            of.is_none_or(|name| entry.key == name.key && entry.namespace == name.namespace)
        };
        let from = self.tables.journal.get(after as usize..).unwrap_or_default();
        Ok(from.iter().filter(wanted).take(limit).cloned().collect())
    }

    fn leaf_entry(&mut self, leaf: u64) -> Result<Option<Entry>, StoreError> {
        Ok(self.tables.journal.get(leaf as usize).cloned())
    }

    fn leaf_of(&mut self, entry: u64) -> Result<Option<u64>, StoreError> {
        let size = self.newest_head()?.map_or(0, |head| head.size);
        Ok(entry.checked_sub(1).filter(|leaf| *leaf < size))
    }

    fn last_entry(&mut self) -> Result<u64, StoreError> {
        Ok(self.tables.journal.len() as u64)
    }

    fn unsealed(&mut self, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let sealed = self.newest_head()?.map_or(0, |head| head.size);
        self.entries(None, sealed, limit)
    }

    fn pending(&mut self) -> Result<u64, StoreError> {
        let sealed = self.newest_head()?.map_or(0, |head| head.size);
        Ok(self.last_entry()?.saturating_sub(sealed))
    }

    fn tile(&mut self, level: u32, index: u64) -> Result<Vec<Hash>, StoreError> {
        Ok(self.tables.tiles.get(&(level, index)).cloned().unwrap_or_default())
    }

    fn heads(&mut self, after: u64, limit: usize) -> Result<Vec<Head>, StoreError> {
        let heads = self.tables.heads.iter().filter(|head| head.size > after);
        Ok(heads.take(limit).cloned().collect())
    }

    fn newest_head(&mut self) -> Result<Option<Head>, StoreError> {
        Ok(self.tables.heads.last().cloned())
    }

    fn tokens(&mut self) -> Result<Vec<Token>, StoreError> {
        let mut tokens: Vec<_> = self.tables.tokens.values().cloned().collect();
        tokens.sort_by_key(|token| (token.created, token.id));
        Ok(tokens)
    }
}

impl Txn for MemoryTxn<'_> {
    fn put_token(&mut self, token: &Token) -> Result<(), StoreError> {
        self.set(|tables| &mut tables.tokens, token.id, Some(token.clone()));
        Ok(())
    }

    fn drop_token(&mut self, id: TokenId) -> Result<bool, StoreError> {
        let known = self.tables.tokens.contains_key(&id);
        self.set(|tables| &mut tables.tokens, id, None);
        Ok(known)
    }

    fn put_first(&mut self, name: &Name, effect: &Effect) -> Result<Option<Fence>, StoreError> {
        if self.tables.effects.contains_key(name) {
            return Ok(None);
        }
        let fence = Fence(self.next_entry()?);
        self.put_effect(name, &Effect { fence, ..effect.clone() })?;
        Ok(Some(fence))
    }

    fn put_effect(&mut self, name: &Name, effect: &Effect) -> Result<(), StoreError> {
        self.set(|tables| &mut tables.effects, name.clone(), Some(effect.clone()));
        Ok(())
    }

    fn sweep(&mut self, now: Now, limit: usize) -> Result<usize, StoreError> {
        let expired = self.tables.effects.iter().filter(|(_, effect)| effect.expired(now));
        let names: Vec<_> = expired.map(|(name, _)| name.clone()).take(limit).collect();
        for name in &names {
            self.set(|tables| &mut tables.effects, name.clone(), None);
            self.set(|tables| &mut tables.shelf.results, name.clone(), None);
            self.set(|tables| &mut tables.parts, name.clone(), None);
        }
        self.sweep_leases();
        Ok(names.len())
    }

    fn overdue(&mut self, at: LeaseInstant, limit: usize) -> Result<Vec<Name>, StoreError> {
        let leases = &self.tables.leases;
        let late = |effect: &Effect| match effect.state {
            State::Running { lease, deadline } if effect.safety != Safety::Transactional => {
                leases.get(&lease).is_none_or(|lease| lease.dead || lease.until.reached(at))
                    || deadline.is_some_and(|deadline| deadline.reached(at))
            }
            _ => false,
        };
        let overdue = self.tables.effects.iter().filter(|(_, effect)| late(effect));
        Ok(overdue.map(|(name, _)| name.clone()).take(limit).collect())
    }

    fn put_lease(&mut self, lease: &Lease) -> Result<(), StoreError> {
        self.set(|tables| &mut tables.leases, lease.id, Some(lease.clone()));
        Ok(())
    }

    fn drop_lease(&mut self, id: LeaseId) -> Result<(), StoreError> {
        if let Some(lease) = self.tables.leases.get(&id).cloned() {
            self.put_lease(&Lease { dead: true, ..lease })?;
        }
        self.sweep_leases();
        Ok(())
    }

    fn put_pulse(&mut self, pulse: &Pulse) -> Result<(), StoreError> {
        let before = std::mem::replace(&mut self.tables.pulse, *pulse);
        self.undo.push(Box::new(move |tables| tables.pulse = before));
        Ok(())
    }

    fn put_lock(&mut self, namespace: &Namespace, lock: &Lock) -> Result<(), StoreError> {
        self.set(|tables| &mut tables.locks, (namespace.clone(), lock.key), Some(*lock));
        Ok(())
    }

    fn drop_lock(
        &mut self,
        namespace: &Namespace,
        key: LockKey,
        attempt: AttemptId,
    ) -> Result<(), StoreError> {
        if self.lock(namespace, key)?.is_some_and(|lock| lock.attempt == attempt) {
            self.set(|tables| &mut tables.locks, (namespace.clone(), key), None);
        }
        Ok(())
    }

    fn push_step(
        &mut self,
        name: &Name,
        attempt: AttemptId,
        step: &Step,
    ) -> Result<(), StoreError> {
        let mut steps = self.steps(name, attempt)?;
        steps.push(step.clone());
        self.set(|tables| &mut tables.steps, (name.clone(), attempt), Some(steps));
        Ok(())
    }

    fn put_epoch(&mut self, namespace: &Namespace, epoch: &Bound) -> Result<(), StoreError> {
        let place = (namespace.clone(), epoch.domain.clone());
        self.set(|tables| &mut tables.epochs, place, Some(epoch.epoch));
        Ok(())
    }

    fn bound(&mut self, namespace: &Namespace, epoch: &Bound) -> Result<Vec<Name>, StoreError> {
        let found = self.tables.effects.iter().filter(|(name, effect)| {
            name.namespace == *namespace
                && effect.bound.as_ref() == Some(epoch)
                && effect.state.name().is_open()
        });
        Ok(found.map(|(name, _)| name.clone()).collect())
    }

    fn raise_notice(&mut self) -> Result<u64, StoreError> {
        self.tables.notice += 1;
        self.undo.push(Box::new(|tables| tables.notice -= 1));
        Ok(self.tables.notice)
    }

    fn next_entry(&mut self) -> Result<u64, StoreError> {
        Ok(self.last_entry()? + 1)
    }

    fn append(&mut self, entry: &Entry) -> Result<(), StoreError> {
        self.tables.journal.push(entry.clone());
        self.undo.push(Box::new(|tables| {
            tables.journal.pop();
        }));
        Ok(())
    }

    fn put_head(&mut self, _: &[u64], tiles: &[SealedTile], head: &Head) -> Result<(), StoreError> {
        for tile in tiles {
            let place = (tile.level, tile.index);
            self.set(|tables| &mut tables.tiles, place, Some(tile.hashes.clone()));
        }
        self.tables.heads.push(head.clone());
        self.undo.push(Box::new(|tables| {
            tables.heads.pop();
        }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_core::key::Key;

    /// Proves K-16 for this store: the writes of a failed command are undone, in reverse order.
    #[test]
    fn what_is_taken_back_was_never_there() {
        let mut tables = Tables::default();
        let lease = LeaseId::from_bytes([1; 16]);
        let lock = |attempt| Lock { key: LockKey(1), holder: Key::from_bytes([2; 32]), attempt };
        let (first, second) = (AttemptId::from_bytes([3; 16]), AttemptId::from_bytes([4; 16]));
        let namespace = Namespace::default();
        let write = |tables: &mut Tables, attempt: AttemptId| -> Result<(), StoreError> {
            let mut txn = MemoryTxn { now: Now::default(), tables, undo: Vec::new() };
            txn.put_lock(&namespace, &lock(attempt))?;
            txn.put_lease(&Lease::open(Now::default(), lease, 100, "me".into(), 0))?;
            txn.raise_notice()?;
            if attempt == second {
                txn.drop_lock(&namespace, LockKey(1), second)?;
                txn.drop_lease(lease)?;
                txn.take_back();
            }
            Ok(())
        };
        write(&mut tables, first).unwrap();
        write(&mut tables, second).unwrap();
        assert_eq!(tables.locks.values().copied().collect::<Vec<_>>(), [lock(first)]);
        assert_eq!((tables.leases.len(), tables.notice), (1, 1));
    }
}
