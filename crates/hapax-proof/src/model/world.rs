//! Everything there is at one moment of the protocol, and every step from there.

mod symmetry;

use std::sync::Arc;

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::effect::{Ask, Effect, Finding, Report, Safety, Settled, State, Verdict};
use hapax_core::fingerprint::Fingerprint;
use hapax_core::key::Key;
use hapax_core::lease::{Lease, LeaseId};
use hapax_core::lock::LockKey;
use hapax_core::name::{Name, Namespace};
use hapax_core::outcome::Outcome;
use hapax_core::time::LeaseInstant;
use hapax_store::outbox::Telling;
use hapax_store::{Answer, Command, Job, LeaseAnswer, ManualClock, MemoryStore, Store as _};
use tokio::sync::oneshot;

use super::{Protocol, Target};

const TERM_MS: u64 = 1_000;

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// A worker begins to want an effect.
    Ask(usize, usize),
    /// A claim reaches the ledger; the reply arrives or is lost.
    Claim(usize, bool),
    /// A caller gives up before it was told of its grant.
    Cancel(usize),
    /// The effect reaches the target.
    Send(usize),
    /// The worker reports; the reply arrives or is lost.
    Report(usize, bool),
    /// The worker reports that it cannot tell.
    Doubt(usize),
    /// A renewal reaches the ledger.
    Renew(usize),
    /// A process dies.
    Crash(usize),
    /// The time of a lease runs out: of a process that lives, or of one that is dead.
    Lapse(LeaseId),
    /// The expiry pass.
    Expire,
    /// A reconciler looks at the target for a key.
    Look(usize),
    /// A reconciler tells the ledger what it found.
    Judge(usize),
    /// The settling time of an unknown outcome runs out.
    Settle(usize),
}

/// Everything there is, at one moment.
#[derive(Debug, Clone)]
pub struct World {
    ledger: Ledger,
    workers: Vec<Worker>,
    targets: Vec<Executed>,
    /// What reconcilers found and have not told yet. At most two are at it.
    looks: Vec<Looked>,
    crashes: u8,
    pauses: u8,
    doubts: u8,
    overtaken: bool,
    revived: bool,
    /// The next attempt or lease. Ids are compared, never counted, so it is no part of the state.
    next: u64,
}

#[derive(Clone)]
struct Ledger {
    store: Arc<MemoryStore>,
    effects: Vec<Option<Effect>>,
    leases: Vec<Lease>,
}

/// What really happened at the target, for one key.
#[derive(Debug, Clone, Default)]
struct Executed {
    by: Vec<AttemptId>,
    /// The highest fence it was shown.
    bar: u64,
}

#[derive(Debug, Clone)]
struct Worker {
    lease: Option<LeaseId>,
    task: Task,
    /// Whose outcome callers were told, for each key.
    told: Vec<Option<AttemptId>>,
}

/// What a reconciler found and has not told yet.
#[derive(Debug, Clone, Copy)]
struct Looked {
    key: usize,
    attempt: AttemptId,
    fence: Fence,
    at: LeaseInstant,
    found: Option<AttemptId>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Task {
    Idle,
    /// A claim is on its way; `reached` if the ledger has carried it out.
    Asking {
        key: usize,
        attempt: AttemptId,
        reached: bool,
    },
    /// Permission was given.
    Running {
        key: usize,
        attempt: AttemptId,
        fence: u64,
        sent: Sent,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Sent {
    NotYet,
    /// It is there, by this attempt: ours, or one that was before us.
    There(AttemptId),
    Refused,
}

impl Ledger {
    fn of(store: MemoryStore, keys: usize) -> Self {
        let (send, receive) = std::sync::mpsc::channel();
        store.read(Box::new(move |view| {
            let names: Vec<_> = (0..keys).map(name).collect();
            let read = view.and_then(|view| Ok((view.effects(&names)?, view.leases()?)));
            let _ = send.send(read.expect("memory can be read"));
        }));
        let (effects, leases) = receive.recv().expect("a view");
        Self { store: Arc::new(store), effects, leases }
    }

    fn lease(&self, id: LeaseId) -> Option<&Lease> {
        self.leases.iter().find(|lease| lease.id == id)
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.effects.iter().map(|e| e.as_ref().map(|e| &e.state))).finish()
    }
}

fn name(key: usize) -> Name {
    Name { namespace: Namespace::default(), key: Key::from_bytes([key as u8 + 1; 32]) }
}

/// The outcome of an attempt is its id, so that everyone can tell whose it is.
fn outcome_of(attempt: AttemptId) -> Outcome {
    Outcome::new(attempt.as_bytes().to_vec())
}

fn author_of(outcome: &Outcome) -> Option<AttemptId> {
    Some(AttemptId::from_bytes(outcome.body()?.try_into().ok()?))
}

impl World {
    pub(super) fn new(protocol: &Protocol) -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::new(clock.clone());
        // A lease that nobody needs keeps the pulse steady for long enough that time counts.
        let id = LeaseId::from_bytes([0xff; 16]);
        carry_out(
            &store,
            Command::OpenLease { id, term_ms: TERM_MS, holder: String::new(), forgetful: false },
        );
        for _ in 0..4 {
            clock.advance(TERM_MS / 2);
            carry_out(&store, Command::RenewLease { id, seen: 0 });
        }
        carry_out(&store, Command::CloseLease { id });
        let worker = Worker { lease: None, task: Task::Idle, told: vec![None; protocol.keys] };
        Self {
            ledger: Ledger::of(store, protocol.keys),
            workers: vec![worker; protocol.workers],
            targets: vec![Executed::default(); protocol.keys],
            looks: Vec::new(),
            crashes: 0,
            pauses: 0,
            doubts: 0,
            overtaken: false,
            revived: false,
            next: 1,
        }
    }

    pub(super) fn keys(&self) -> usize {
        self.targets.len()
    }

    pub(super) fn effect(&self, key: usize) -> Option<&Effect> {
        self.ledger.effects[key].as_ref()
    }

    /// Whose outcome is recorded.
    pub(super) fn outcome(&self, key: usize) -> Option<AttemptId> {
        match &self.effect(key)?.state {
            State::Succeeded(outcome) => author_of(outcome),
            _ => None,
        }
    }

    pub(super) fn executed(&self, key: usize) -> &[AttemptId] {
        &self.targets[key].by
    }

    pub(super) fn told(&self, key: usize) -> impl Iterator<Item = AttemptId> {
        self.workers.iter().filter_map(move |worker| worker.told[key])
    }

    pub(super) fn is_done(&self) -> bool {
        self.workers.iter().all(|worker| worker.told.iter().all(Option::is_some))
    }

    /// Whether a lease that was dead is alive again.
    pub(super) fn was_revived(&self) -> bool {
        self.revived
    }

    /// How many effects somebody has permission for.
    pub(super) fn running(&self) -> usize {
        let running = |effect: &&Effect| matches!(effect.state, State::Running { .. });
        self.ledger.effects.iter().flatten().filter(running).count()
    }

    pub(super) fn was_overtaken(&self) -> bool {
        self.overtaken
    }

    /// Every step that can be taken.
    pub(super) fn acts(&self, protocol: &Protocol, acts: &mut Vec<Act>) {
        let doubtful = self.doubts < protocol.doubts;
        for (w, worker) in self.workers.iter().enumerate() {
            match worker.task {
                Task::Idle => {
                    let wanted = (0..self.keys()).filter(|key| worker.told[*key].is_none());
                    acts.extend(wanted.map(|key| Act::Ask(w, key)));
                }
                Task::Asking { reached, .. } => {
                    acts.push(Act::Claim(w, true));
                    if doubtful && !reached {
                        acts.push(Act::Claim(w, false));
                    }
                    if doubtful && reached {
                        acts.push(Act::Cancel(w));
                    }
                }
                Task::Running { sent, .. } => {
                    let transactional = protocol.target == Target::Transactional;
                    if sent == Sent::NotYet && !transactional {
                        acts.push(Act::Send(w));
                    } else {
                        acts.push(Act::Report(w, true));
                        if doubtful {
                            acts.push(Act::Report(w, false));
                        }
                    }
                    if doubtful {
                        acts.push(Act::Doubt(w));
                    }
                }
            }
            match worker.lease.map(|id| self.ledger.lease(id)) {
                Some(Some(lease)) if !lapsed(lease) && self.pauses < protocol.pauses => {
                    acts.push(Act::Lapse(lease.id));
                }
                // Late, or dead without knowing.
                Some(lease) if lease.is_none_or(lapsed) => acts.push(Act::Renew(w)),
                _ => {}
            }
            if self.crashes < protocol.crashes && worker.lease.is_some() {
                acts.push(Act::Crash(w));
            }
        }
        let held = |id| self.workers.iter().any(|worker| worker.lease == Some(id));
        let orphans = self.ledger.leases.iter().filter(|lease| !held(lease.id) && !lapsed(lease));
        acts.extend(orphans.map(|lease| Act::Lapse(lease.id)));
        if protocol.crashes + protocol.pauses > 0 {
            acts.push(Act::Expire);
        }
        acts.extend((0..self.looks.len()).map(Act::Judge));
        if self.looks.len() < 2 && matches!(protocol.target.safety(), Safety::Reconcilable(_)) {
            acts.extend((0..self.keys()).filter(|key| self.unknown(*key).is_some()).map(Act::Look));
        }
        if protocol.target == Target::Settling {
            let ripe = |key: &usize| {
                self.unknown(*key).is_some_and(|attempt| !self.may_still_send(attempt))
            };
            acts.extend((0..self.keys()).filter(ripe).map(Act::Settle));
        }
    }

    fn unknown(&self, key: usize) -> Option<AttemptId> {
        let effect = self.effect(key)?;
        matches!(effect.state, State::Unknown { .. }).then_some(effect.attempt)
    }

    fn may_still_send(&self, of: AttemptId) -> bool {
        self.workers.iter().any(|worker| {
            matches!(worker.task, Task::Running { attempt, sent: Sent::NotYet, .. } if attempt == of)
                || matches!(worker.task, Task::Asking { attempt, .. } if attempt == of)
        })
    }

    /// The world after a step; `None` if nothing comes of it.
    pub(super) fn after(&self, protocol: &Protocol, act: Act) -> Option<Self> {
        let mut world = self.clone();
        match act {
            Act::Ask(w, key) => world.ask(w, key),
            Act::Claim(w, told) => world.claim(protocol, w, told)?,
            Act::Cancel(w) => {
                let Task::Asking { key, attempt, .. } = world.workers[w].task else { return None };
                world.doubts += 1;
                world.workers[w].task = Task::Idle;
                world.settle(key, attempt, Report::Released("given up".into()));
            }
            Act::Send(w) => world.send(protocol, w)?,
            Act::Report(w, told) => world.report(protocol, w, told)?,
            Act::Doubt(w) => {
                let Task::Running { key, attempt, .. } = world.workers[w].task else { return None };
                world.doubts += 1;
                world.workers[w].task = Task::Idle;
                world.settle(key, attempt, Report::Ambiguous("cannot tell".into()));
            }
            Act::Renew(w) => {
                let id = world.workers[w].lease?;
                let answer = world.submit(Command::RenewLease { id, seen: 0 });
                match answer {
                    Some(Answer::Lease(LeaseAnswer::Held { .. })) => {
                        world.revived |= self.ledger.lease(id).is_none();
                    }
                    _ => world.workers[w].lease = None,
                }
            }
            Act::Crash(w) => {
                world.crashes += 1;
                let worker = &mut world.workers[w];
                (worker.lease, worker.task) = (None, Task::Idle);
            }
            Act::Lapse(id) => {
                let held = world.workers.iter().any(|worker| worker.lease == Some(id));
                world.pauses += u8::from(held);
                let store = world.ledger.store.fork();
                store.let_lapse(id);
                world.ledger = Ledger::of(store, self.keys());
            }
            Act::Expire => {
                world.submit(Command::Expire { limit: 100 });
            }
            Act::Look(key) => world.look(protocol, key)?,
            Act::Judge(nth) => {
                let Looked { key, attempt, fence, at: looked, found } = world.looks.remove(nth);
                let finding = match found {
                    Some(by) => Finding::Happened(outcome_of(by)),
                    None => Finding::NotFound,
                };
                world.submit(Command::Reconcile {
                    name: name(key),
                    attempt,
                    fence,
                    looked,
                    finding,
                });
            }
            Act::Settle(key) => {
                let store = world.ledger.store.fork();
                store.let_settle(&name(key));
                world.ledger = Ledger::of(store, self.keys());
            }
        }
        Some(world)
    }

    fn fresh(&mut self) -> [u8; 16] {
        self.next += 1;
        u128::from(self.next).to_be_bytes()
    }

    fn submit(&mut self, command: Command) -> Option<Answer> {
        let store = self.ledger.store.fork();
        let answer = carry_out(&store, command);
        self.ledger = Ledger::of(store, self.keys());
        answer
    }

    fn settle(&mut self, key: usize, attempt: AttemptId, report: Report) -> Option<Settled> {
        match self.submit(Command::Settle {
            name: name(key),
            attempt,
            report,
            telling: Telling::default(),
        })? {
            Answer::Settle(settled) => {
                self.overtaken |= matches!(settled, Settled::Fenced(_));
                Some(settled)
            }
            _ => None,
        }
    }

    fn ask(&mut self, w: usize, key: usize) {
        if self.workers[w].lease.is_none() {
            let id = LeaseId::from_bytes(self.fresh());
            self.submit(Command::OpenLease {
                id,
                term_ms: TERM_MS,
                holder: String::new(),
                forgetful: false,
            });
            self.workers[w].lease = Some(id);
        }
        let attempt = AttemptId::from_bytes(self.fresh());
        self.workers[w].task = Task::Asking { key, attempt, reached: false };
    }

    fn claim(&mut self, protocol: &Protocol, w: usize, told: bool) -> Option<()> {
        let Task::Asking { key, attempt, .. } = self.workers[w].task else { return None };
        let ask = Ask {
            fingerprint: Fingerprint::of(b""),
            safety: protocol.target.safety(),
            lock: protocol.locked.then_some(LockKey(1)),
            bound: None,
            label: None,
            ttl_ms: None,
            attempt,
            lease: self.workers[w].lease?,
            deadline_ms: None,
            about: None,
            part: None,
        };
        let answer = self.submit(Command::Claim { name: name(key), ask });
        if !told {
            self.doubts += 1;
            self.workers[w].task = Task::Asking { key, attempt, reached: true };
            return Some(());
        }
        let worker = &mut self.workers[w];
        worker.task = match answer {
            Some(Answer::Claim(Verdict::Granted(grant))) => {
                Task::Running { key, attempt, fence: grant.fence.0, sent: Sent::NotYet }
            }
            Some(Answer::Claim(Verdict::Replayed { outcome, .. })) => {
                worker.told[key] = author_of(&outcome);
                Task::Idle
            }
            // The lease is over, and the attempt with it: a copy of it may have been granted.
            None => {
                (worker.lease, worker.task) = (None, Task::Idle);
                self.settle(key, attempt, Report::Released("its lease is over".into()));
                return Some(());
            }
            Some(_) => Task::Idle,
        };
        Some(())
    }

    fn send(&mut self, protocol: &Protocol, w: usize) -> Option<()> {
        let Task::Running { key, attempt, fence, .. } = self.workers[w].task else { return None };
        let target = &mut self.targets[key];
        let sent = match (protocol.target, target.by.first()) {
            (Target::Keyed, Some(first)) => Sent::There(*first),
            (Target::Fenced | Target::FencedUnseen, _) if fence < target.bar => Sent::Refused,
            _ => {
                target.by.push(attempt);
                target.bar = fence;
                Sent::There(attempt)
            }
        };
        self.workers[w].task = Task::Running { key, attempt, fence, sent };
        Some(())
    }

    fn report(&mut self, protocol: &Protocol, w: usize, told: bool) -> Option<()> {
        let Task::Running { key, attempt, sent, .. } = self.workers[w].task else { return None };
        let transactional = protocol.target == Target::Transactional;
        let report = match sent {
            Sent::There(by) => Report::Succeeded(outcome_of(by)),
            Sent::NotYet if transactional => Report::Succeeded(outcome_of(attempt)),
            Sent::NotYet | Sent::Refused => Report::Failed("the target refused it".into()),
        };
        let succeeded = matches!(report, Report::Succeeded(_));
        let settled = self.settle(key, attempt, report)?;
        // The caller's own writes are committed with the settle, or not at all.
        if transactional && settled == Settled::Recorded {
            self.targets[key].by.push(attempt);
        }
        if !told {
            self.doubts += 1;
            return Some(());
        }
        self.workers[w].task = Task::Idle;
        if succeeded && !matches!(settled, Settled::Fenced(_)) {
            self.workers[w].told[key] = self.outcome(key);
        }
        Some(())
    }

    fn look(&mut self, protocol: &Protocol, key: usize) -> Option<()> {
        let attempt = self.unknown(key)?;
        let fence = self.effect(key)?.fence.0;
        let target = &mut self.targets[key];
        if protocol.target == Target::Fenced {
            // Whoever looks shows a fence above that of the attempt it looks for.
            target.bar = target.bar.max(fence + 1);
        }
        let found = target.by.last().copied();
        // Time stands still, so an instant is old only if something has run out since.
        let at = match self.effect(key)?.state {
            State::Unknown { since, .. } if since.ms == 0 => LeaseInstant { era: since.era, ms: 1 },
            State::Unknown { since, .. } => LeaseInstant { ms: 0, ..since },
            _ => return None,
        };
        self.looks.push(Looked { key, attempt, fence: Fence(fence), at, found });
        Some(())
    }
}

/// Whether the time of a lease has run out, which nobody may have noticed yet.
fn lapsed(lease: &Lease) -> bool {
    lease.until.ms == 0
}

/// Carries out one command; `None` if it was refused with an error.
fn carry_out(store: &MemoryStore, command: Command) -> Option<Answer> {
    let (reply, mut answer) = oneshot::channel();
    store.submit(vec![Job { command, reply }]);
    answer.try_recv().expect("memory answers at once").ok()
}

impl Worker {
    fn fence(&self, of: usize) -> Option<u64> {
        match self.task {
            Task::Running { key, fence, .. } if key == of => Some(fence),
            _ => None,
        }
    }
}
