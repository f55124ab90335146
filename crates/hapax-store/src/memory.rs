//! The ledger in memory: the oracle that other stores are compared with.
//!
//! Forgets everything when dropped, and is otherwise a complete store. Each command writes to the
//! tables in place and keeps an undo log, which is played back if the command fails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use hapax_core::attempt::AttemptId;
#[cfg(feature = "proof")]
use hapax_core::attempt::Fence;
use hapax_core::effect::Effect;
#[cfg(not(feature = "proof"))]
use hapax_core::effect::Verdict;
#[cfg(feature = "proof")]
use hapax_core::effect::{Report, Settled, State};
use hapax_core::epoch::Domain;
use hapax_core::journal::Entry;
use hapax_core::lease::{Lease, LeaseId, Pulse};
use hapax_core::lock::{Lock, LockKey};
use hapax_core::merkle::Hash;
use hapax_core::name::{Name, Namespace};
use hapax_core::part::Part;
use hapax_core::result_index::Ontology;
use hapax_core::time::{LeaseInstant, Now, Timestamp};
use hapax_core::token::{Token, TokenId};

mod dataset;
mod delivery;
mod effect;
mod epoch;
mod journal;
mod lease;
mod lock;
mod ontology;
mod outbox;
mod part;
mod result_index;
mod route;
mod step;
mod token;

use crate::clock::Clock;
use crate::error::StoreError;
use crate::job::Job;
use crate::journal::Head;
use crate::ledger;
#[cfg(feature = "proof")]
use crate::outbox::Attachments;
use crate::step::Step;
use crate::store::{Reading, Store};
use crate::txn::{Txn, View};

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

    /// Carries out one command and leaves its answer in the job, for a store that delays answers
    /// or loses them.
    pub fn carry_out(&self, job: &mut Job) {
        let mut tables = self.lock();
        let mut txn = MemoryTxn { now: self.clock.now(), tables: &mut tables, undo: Vec::new() };
        #[cfg(not(feature = "proof"))]
        let peeked = txn.peek(job);
        let failed = ledger::apply(&mut txn, job).is_err();
        #[cfg(not(feature = "proof"))]
        txn.check_peek(peeked, job);
        if failed {
            txn.undo_all();
        }
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
        let settled = crate::effect::settle_in(&mut txn, name, by, report, &Attachments::default());
        if !matches!(settled, Ok(Settled::Recorded | Settled::Repeated)) {
            txn.undo_all();
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
        for mut job in jobs {
            self.carry_out(&mut job);
            job.reply();
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
    ontologies: BTreeMap<(Namespace, String), Ontology>,
    result_index: result_index::ResultIndex,
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
        fn put<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> Option<V> {
            match value {
                Some(value) => map.insert(key, value),
                None => map.remove(&key),
            }
        }
        let before = put(table(self.tables), key.clone(), value);
        self.undo.push(Box::new(move |tables| {
            put(table(tables), key, before);
        }));
    }

    /// The verdict on a claim that a view alone can give.
    #[cfg(not(feature = "proof"))]
    fn peek(&mut self, job: &Job) -> Option<Result<Option<Verdict>, StoreError>> {
        match job {
            Job::Claim(job) if cfg!(debug_assertions) => {
                Some(crate::effect::peek(self, &job.command.name, &job.command.ask))
            }
            _ => None,
        }
    }

    /// Holds [`peek`](crate::effect::peek) to its promise: it knows exactly the verdicts that write
    /// nothing.
    #[cfg(not(feature = "proof"))]
    fn check_peek(&self, peeked: Option<Result<Option<Verdict>, StoreError>>, job: &Job) {
        let (Some(peeked), Job::Claim(job)) = (peeked, job) else { return };
        match (peeked, job.answered()) {
            (Ok(Some(peeked)), Some(Ok(verdict))) => {
                assert_eq!(peeked, *verdict);
                assert!(self.undo.is_empty(), "a verdict that was known wrote something");
            }
            (Ok(None), Some(Ok(_))) => {
                assert!(!self.undo.is_empty(), "a verdict that writes nothing was not known");
            }
            (peeked, answer) => assert_eq!(peeked.is_err(), answer.is_some_and(Result::is_err)),
        }
    }

    fn undo_all(self) {
        for undo in self.undo.into_iter().rev() {
            undo(self.tables);
        }
    }
}

impl View for MemoryTxn<'_> {
    fn now(&mut self) -> Now {
        self.now
    }

    fn namespaces(&mut self) -> Result<Vec<Namespace>, StoreError> {
        let names = self.tables.effects.keys().map(|name| name.namespace.clone());
        Ok(names.collect::<BTreeSet<_>>().into_iter().collect())
    }
}

impl Txn for MemoryTxn<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_core::key::Key;

    use crate::command::Advance;
    use crate::lease::LeaseTxn;
    use crate::limits::Limits;
    use crate::lock::LockTxn;

    /// Proves K-16 for this store: the writes of a failed command are undone, in reverse order.
    #[test]
    fn a_command_that_is_undone_leaves_no_trace() {
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
                txn.undo_all();
            }
            Ok(())
        };
        write(&mut tables, first).unwrap();
        write(&mut tables, second).unwrap();
        assert_eq!(tables.locks.values().copied().collect::<Vec<_>>(), [lock(first)]);
        assert_eq!((tables.leases.len(), tables.notice), (1, 1));
    }

    /// Proves K-16: a namespace that is full of domains takes no other one, and those that it has go
    /// on.
    #[test]
    fn domains_have_a_limit() {
        let mut tables = Tables::default();
        let domain = |n| Domain::new(&format!("d{n}")).unwrap();
        let here = Namespace::default();
        let full = (0..Limits::DOMAINS).map(|n| ((here.clone(), domain(n)), 1));
        tables.epochs.extend(full);
        let mut advance = |namespace: &Namespace, domain: Domain, seen: u64| {
            let mut txn = MemoryTxn { now: Now::default(), tables: &mut tables, undo: Vec::new() };
            let (namespace, to, text) = (namespace.clone(), seen + 1, String::from("why"));
            let (actor, reason) = (text.clone(), text);
            crate::epoch::advance(&mut txn, &Advance { namespace, domain, seen, to, actor, reason })
        };
        let refused = advance(&here, domain(Limits::DOMAINS), 0);
        assert!(matches!(refused, Err(StoreError::Invalid(_))), "{refused:?}");
        assert!(advance(&here, domain(0), 1).unwrap().moved);
        let elsewhere = Namespace::new("elsewhere").unwrap();
        assert!(advance(&elsewhere, domain(0), 0).unwrap().moved);
    }
}
