//! The ledger among the workers: the in-memory store, and what the model reads of it at each
//! moment.

use std::sync::Arc;

use hapax_core::attempt::AttemptId;
use hapax_core::effect::Effect;
use hapax_core::key::Key;
use hapax_core::lease::{Lease, LeaseId};
use hapax_core::name::{Name, Namespace};
use hapax_core::outcome::Outcome;
use hapax_store::{Job, MemoryStore, Request, Store as _};

#[derive(Clone)]
pub(super) struct Ledger {
    pub(super) store: Arc<MemoryStore>,
    pub(super) effects: Vec<Option<Effect>>,
    pub(super) leases: Vec<Lease>,
}

impl Ledger {
    pub(super) fn of(store: MemoryStore, keys: usize) -> Self {
        let (send, receive) = std::sync::mpsc::channel();
        store.read(Box::new(move |view| {
            let names: Vec<_> = (0..keys).map(name).collect();
            let read = view.and_then(|view| Ok((view.effects(&names)?, view.leases()?)));
            let _ = send.send(read.expect("memory can be read"));
        }));
        let (effects, leases) = receive.recv().expect("a view");
        Self { store: Arc::new(store), effects, leases }
    }

    pub(super) fn lease(&self, id: LeaseId) -> Option<&Lease> {
        self.leases.iter().find(|lease| lease.id == id)
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.effects.iter().map(|e| e.as_ref().map(|e| &e.state))).finish()
    }
}

pub(super) fn name(key: usize) -> Name {
    Name { namespace: Namespace::default(), key: Key::from_bytes([key as u8 + 1; 32]) }
}

/// The outcome of a call is its id, which names the author.
pub(super) fn outcome_of(author: AttemptId) -> Outcome {
    Outcome::new(author.as_bytes().to_vec())
}

pub(super) fn author_of(outcome: &Outcome) -> Option<AttemptId> {
    Some(AttemptId::from_bytes(outcome.body()?.try_into().ok()?))
}

/// The attempt that follows from the key of a client, the same for every worker that it asks.
pub(super) fn derived(key: usize) -> AttemptId {
    AttemptId::from_bytes([0xd0 + key as u8; 16])
}

/// Whether the time of a lease has run out; the ledger may not have noticed it yet.
pub(super) fn lapsed(lease: &Lease) -> bool {
    lease.until.ms == 0
}

/// Carries out one command; `None` if it was refused with an error.
pub(super) fn carry_out<R: Request>(store: &MemoryStore, command: R) -> Option<R::Answer> {
    let (job, mut answer) = Job::of(command);
    store.submit(vec![job]);
    answer.try_recv().expect("memory answers at once").ok()
}
