//! When two states are equal: no later step distinguishes them.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use hapax_core::effect::State;

use super::{SendStatus, Task, Worker, World, author_of, lapsed};

/// Gives ids the names of their first appearance, so that states which differ only in ids are the
/// same.
#[derive(Default)]
struct Names(HashMap<[u8; 16], usize>);

impl Names {
    fn of(&mut self, id: &[u8; 16]) -> usize {
        let next = self.0.len();
        *self.0.entry(*id).or_insert(next)
    }
}

impl Hash for World {
    /// States are equal when no property or step distinguishes them. The order of workers, the names of ids
    /// and the size of fences do not matter; the order of fences does.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let mut names = Names::default();
        (self.crashes, self.pauses, self.doubts, self.restores).hash(hasher);
        (self.overtaken, self.revived, self.stale).hash(hasher);
        for effect in self.copy.iter().flat_map(|copy| &copy.effects).flatten() {
            (names.of(effect.attempt.as_bytes()), effect.state.name()).hash(hasher);
        }
        self.copy.is_some().hash(hasher);
        for (key, target) in self.targets.iter().enumerate() {
            let mut fences: Vec<u64> = vec![target.bar];
            fences.extend(self.effect(key).map(|effect| effect.fence.0));
            fences.extend(self.workers.iter().filter_map(|worker| worker.fence(key)));
            let messages = self.messages.iter().filter(|message| message.key == key);
            fences.extend(messages.map(|message| message.fence));
            fences.sort_unstable();
            fences.dedup();
            let rank = |fence: u64| fences.iter().position(|known| *known == fence);
            rank(target.bar).hash(hasher);
            if let Some(effect) = self.effect(key) {
                (names.of(effect.attempt.as_bytes()), rank(effect.fence.0)).hash(hasher);
                self.hash_state(&effect.state, &mut names, hasher);
            }
            for by in &target.by {
                names.of(by.as_bytes()).hash(hasher);
            }
        }
        let mut workers: Vec<&Worker> = self.workers.iter().collect();
        workers.sort_by_key(|worker| self.signature(worker, &names));
        for worker in workers {
            self.hash_worker(worker, &mut names, hasher);
        }
        let mut messages: Vec<_> = self
            .messages
            .iter()
            .map(|message| {
                let bar = self.targets[message.key].bar.cmp(&message.fence);
                let (author, attempt) =
                    (names.of(message.author.as_bytes()), names.of(message.attempt.as_bytes()));
                (message.key, author, attempt, bar)
            })
            .collect();
        messages.sort_unstable();
        messages.hash(hasher);
        let mut findings: Vec<_> = self
            .findings
            .iter()
            .map(|look| {
                let found = look.found.map(|by| names.of(by.as_bytes()));
                (look.key, names.of(look.attempt.as_bytes()), look.at.ms, found)
            })
            .collect();
        findings.sort_unstable();
        findings.hash(hasher);
        // A lease that no worker holds matters by the effects that run on it.
        for lease in &self.ledger.leases {
            if let Some(known) = names.0.get(lease.id.as_bytes()) {
                (*known, lapsed(lease)).hash(hasher);
            }
        }
    }
}

impl World {
    fn hash_state<H: Hasher>(&self, state: &State, names: &mut Names, hasher: &mut H) {
        state.name().hash(hasher);
        match state {
            State::Running { lease, .. } => {
                names.of(lease.as_bytes()).hash(hasher);
                self.ledger.lease(*lease).map(lapsed).hash(hasher);
            }
            State::Succeeded(outcome) => {
                author_of(outcome).map(|by| names.of(by.as_bytes())).hash(hasher);
            }
            State::Failed(failure) => (failure.cause as u8).hash(hasher),
            State::Unknown { since, .. } => (since.ms == 0).hash(hasher),
            _ => {}
        }
    }

    fn hash_worker<H: Hasher>(&self, worker: &Worker, names: &mut Names, hasher: &mut H) {
        let lease =
            worker.lease.map(|id| (names.of(id.as_bytes()), self.ledger.lease(id).map(lapsed)));
        (lease, worker.late).hash(hasher);
        match worker.task {
            Task::Idle => 0.hash(hasher),
            Task::Asking { key, attempt, author, reached } => {
                let author = names.of(author.as_bytes());
                (1, key, names.of(attempt.as_bytes()), author, reached).hash(hasher);
            }
            Task::Running { key, attempt, author, fence, sent } => {
                names.of(author.as_bytes()).hash(hasher);
                let rank = self.workers.iter().filter_map(|w| w.fence(key)).filter(|f| *f < fence);
                let bar = self.targets[key].bar.cmp(&fence);
                let recorded = self.effect(key).map(|effect| effect.fence.0.cmp(&fence));
                (2, key, names.of(attempt.as_bytes()), rank.count(), bar, recorded).hash(hasher);
                match sent {
                    SendStatus::NotYet => 0.hash(hasher),
                    SendStatus::There(by) => (1, names.of(by.as_bytes())).hash(hasher),
                    SendStatus::Refused => 2.hash(hasher),
                    SendStatus::Departed => 3.hash(hasher),
                }
            }
        }
        for received in &worker.received {
            received.map(|by| names.of(by.as_bytes())).hash(hasher);
        }
    }

    /// Orders workers, as far as possible without naming them.
    fn signature(&self, worker: &Worker, names: &Names) -> impl Ord + use<> {
        let known = |id: &[u8; 16]| names.0.get(id).copied();
        let lease =
            worker.lease.map(|id| (known(id.as_bytes()), self.ledger.lease(id).map(lapsed)));
        let task = match worker.task {
            Task::Idle => (0, 0, None, 0),
            Task::Asking { key, attempt, reached, .. } => {
                (1, key, known(attempt.as_bytes()), u8::from(reached))
            }
            Task::Running { key, attempt, sent, .. } => {
                let sent = match sent {
                    SendStatus::NotYet => 0,
                    SendStatus::There(_) => 1,
                    SendStatus::Refused => 2,
                    SendStatus::Departed => 3,
                };
                (2, key, known(attempt.as_bytes()), sent)
            }
        };
        let received: Vec<bool> = worker.received.iter().map(Option::is_some).collect();
        (task, lease, received, worker.late)
    }
}

impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        fn digest(world: &World) -> u64 {
            let mut hasher = std::hash::DefaultHasher::new();
            world.hash(&mut hasher);
            hasher.finish()
        }
        digest(self) == digest(other)
    }
}
