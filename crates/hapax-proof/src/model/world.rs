//! The state of the protocol at one moment, and every step from there.

mod act;
mod ledger;
mod symmetry;

use std::sync::Arc;

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::effect::{Ask, Effect, Finding, Report, Safety, Settled, State, Verdict};
use hapax_core::fingerprint::Fingerprint;
use hapax_core::lease::LeaseId;
use hapax_core::lock::LockKey;
use hapax_core::planted::{Bug, planted};
use hapax_core::time::LeaseInstant;
use hapax_store::outbox::Attachments;
use hapax_store::{LeaseAnswer, ManualClock, MemoryStore, Request, StoreError, command};

pub use self::act::Act;
use self::ledger::{Ledger, author_of, carry_out, derived, lapsed, name, outcome_of};
use super::{Protocol, Target};

const TERM_MS: u64 = 1_000;

/// The whole state, at one moment.
#[derive(Debug, Clone)]
pub struct World {
    ledger: Ledger,
    workers: Vec<Worker>,
    targets: Vec<Executed>,
    /// Effects in flight to their targets.
    messages: Vec<Message>,
    /// Findings that reconcilers have not reported yet; at most two.
    findings: Vec<PendingFinding>,
    crashes: u8,
    pauses: u8,
    doubts: u8,
    overtaken: bool,
    revived: bool,
    /// A report was recorded that does not name the grant that counts.
    stale: bool,
    copy: Option<Ledger>,
    restores: u8,
    /// The next attempt or lease. Ids are compared, never counted, so it is no part of the state.
    next: u64,
}

/// An effect in flight to its target.
#[derive(Debug, Clone, Copy)]
struct Message {
    key: usize,
    attempt: AttemptId,
    author: AttemptId,
    fence: u64,
}

/// The executions at the target, for one key.
#[derive(Debug, Clone, Default)]
struct Executed {
    by: Vec<AttemptId>,
    /// The highest fence it was shown.
    bar: u64,
}

#[derive(Debug, Clone)]
struct Worker {
    lease: Option<LeaseId>,
    /// Its own clock says that the lease may be about to lapse.
    late: bool,
    task: Task,
    /// The author of the outcome that its callers received, for each key.
    received: Vec<Option<AttemptId>>,
}

/// A finding that a reconciler has not reported yet.
#[derive(Debug, Clone, Copy)]
struct PendingFinding {
    key: usize,
    attempt: AttemptId,
    fence: Fence,
    at: LeaseInstant,
    found: Option<AttemptId>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Task {
    Idle,
    /// A claim is in flight; `reached` if the ledger has carried it out.
    Asking {
        key: usize,
        attempt: AttemptId,
        /// The id of this call, which marks its result.
        author: AttemptId,
        reached: bool,
    },
    /// The claim was granted.
    Running {
        key: usize,
        attempt: AttemptId,
        author: AttemptId,
        fence: u64,
        sent: SendStatus,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum SendStatus {
    NotYet,
    /// It is in flight.
    Departed,
    /// It is there, by this attempt: ours, or an earlier one.
    There(AttemptId),
    Refused,
}

impl World {
    pub(super) fn new(protocol: &Protocol) -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::new(clock.clone());
        // An unused lease keeps the pulse steady for long enough that time counts.
        let id = LeaseId::from_bytes([0xff; 16]);
        carry_out(
            &store,
            command::OpenLease { id, term_ms: TERM_MS, holder: String::new(), forgetful: false },
        );
        for _ in 0..8 {
            clock.advance(TERM_MS / 4);
            carry_out(&store, command::RenewLease { id, seen: 0 });
        }
        carry_out(&store, command::CloseLease { id });
        let received = vec![None; protocol.keys];
        let worker = Worker { lease: None, late: false, task: Task::Idle, received };
        Self {
            ledger: Ledger::of(store, protocol.keys),
            workers: vec![worker; protocol.workers],
            targets: vec![Executed::default(); protocol.keys],
            messages: Vec::new(),
            findings: Vec::new(),
            crashes: 0,
            pauses: 0,
            doubts: 0,
            overtaken: false,
            revived: false,
            stale: false,
            copy: None,
            restores: 0,
            next: 1,
        }
    }

    pub(super) fn keys(&self) -> usize {
        self.targets.len()
    }

    pub(super) fn effect(&self, key: usize) -> Option<&Effect> {
        self.ledger.effects[key].as_ref()
    }

    /// The author of the recorded outcome.
    pub(super) fn outcome(&self, key: usize) -> Option<AttemptId> {
        match &self.effect(key)?.state {
            State::Succeeded(outcome) => author_of(outcome),
            _ => None,
        }
    }

    pub(super) fn executed(&self, key: usize) -> &[AttemptId] {
        &self.targets[key].by
    }

    pub(super) fn received(&self, key: usize) -> impl Iterator<Item = AttemptId> {
        self.workers.iter().filter_map(move |worker| worker.received[key])
    }

    pub(super) fn is_done(&self) -> bool {
        self.workers.iter().all(|worker| worker.received.iter().all(Option::is_some))
    }

    /// Whether a lease that was dead is alive again.
    pub(super) fn was_revived(&self) -> bool {
        self.revived
    }

    /// Whether a report was recorded that does not name the grant that counts.
    pub(super) fn was_stale(&self) -> bool {
        self.stale
    }

    /// How often an older copy was restored.
    pub(super) fn restores(&self) -> usize {
        usize::from(self.restores)
    }

    /// The number of running effects.
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
                    let wanted = (0..self.keys()).filter(|key| worker.received[*key].is_none());
                    for key in wanted {
                        acts.push(Act::Ask(w, key, false));
                        if protocol.derived && self.may_derive(key) {
                            acts.push(Act::Ask(w, key, true));
                        }
                    }
                }
                Task::Asking { reached, .. } => {
                    // The engine renews a lease that is late before it claims on it.
                    if !worker.late {
                        acts.push(Act::Claim(w, true));
                        if doubtful && !reached {
                            acts.push(Act::Claim(w, false));
                        }
                    }
                    if doubtful && reached {
                        acts.push(Act::Cancel(w));
                    }
                }
                Task::Running { sent, .. } => {
                    let transactional = protocol.target == Target::Transactional;
                    // Only work that no other attempt can be granted goes on when its lease may lapse.
                    let goes_on = protocol.target == Target::Opaque || planted(Bug::HolderWorksOn);
                    let stops = worker.late && !goes_on;
                    if sent == SendStatus::NotYet && !transactional {
                        if !stops {
                            acts.push(Act::Depart(w));
                        }
                    } else if sent != SendStatus::Departed {
                        acts.push(Act::Report(w, true));
                        if doubtful {
                            acts.push(Act::Report(w, false));
                        }
                    }
                    if doubtful {
                        acts.push(Act::Doubt(w));
                    }
                    if stops {
                        acts.push(Act::Stop(w));
                    }
                }
            }
            match worker.lease.map(|id| self.ledger.lease(id)) {
                Some(Some(_)) if !worker.late && self.pauses < protocol.pauses => {
                    acts.push(Act::Late(w));
                }
                // By the store's clock it lapses later, because its term began later.
                Some(Some(lease)) if worker.late && !lapsed(lease) => {
                    acts.push(Act::Lapse(lease.id));
                }
                _ => {}
            }
            if let Some(id) = worker.lease
                && (worker.late || self.ledger.lease(id).is_none_or(lapsed))
            {
                acts.push(Act::Renew(w));
            }
            if self.crashes < protocol.crashes && worker.lease.is_some() {
                acts.push(Act::Crash(w));
            }
        }
        let held = |id| self.workers.iter().any(|worker| worker.lease == Some(id));
        let orphans = self.ledger.leases.iter().filter(|lease| !held(lease.id) && !lapsed(lease));
        acts.extend(orphans.map(|lease| Act::Lapse(lease.id)));
        acts.extend((0..self.messages.len()).map(Act::Arrive));
        if self.restores < protocol.restores {
            let act = if self.copy.is_none() { Act::Backup } else { Act::Restore };
            acts.push(act);
        }
        if protocol.crashes + protocol.pauses > 0 {
            acts.push(Act::Expire);
        }
        acts.extend((0..self.findings.len()).map(Act::Judge));
        if self.findings.len() < 2 && matches!(protocol.target.safety(), Safety::Reconcilable(_)) {
            acts.extend((0..self.keys()).filter(|key| self.unknown(*key).is_some()).map(Act::Look));
        }
        if protocol.target == Target::Settling {
            // The target's declaration: a sent effect arrives within the settling time.
            let ripe = |key: &usize| {
                let arrived =
                    |attempt| self.messages.iter().all(|message| message.attempt != attempt);
                self.unknown(*key).is_some_and(arrived)
            };
            acts.extend((0..self.keys()).filter(ripe).map(Act::Settle));
        }
    }

    fn unknown(&self, key: usize) -> Option<AttemptId> {
        let effect = self.effect(key)?;
        matches!(effect.state, State::Unknown { .. }).then_some(effect.attempt)
    }

    /// Whether a client calls again with the same key: it does not while its first call is at work.
    fn may_derive(&self, of: usize) -> bool {
        self.workers.iter().all(|worker| match worker.task {
            Task::Asking { attempt, .. } => attempt != derived(of),
            Task::Running { attempt, .. } => attempt != derived(of) || worker.late,
            Task::Idle => true,
        })
    }

    /// The world after a step; `None` if the step cannot be taken.
    pub(super) fn after(&self, protocol: &Protocol, act: Act) -> Option<Self> {
        let mut world = self.clone();
        match act {
            Act::Ask(w, key, derived) => world.ask(w, key, derived),
            Act::Claim(w, replied) => world.claim(protocol, w, replied)?,
            Act::Cancel(w) => {
                let Task::Asking { key, attempt, .. } = world.workers[w].task else { return None };
                world.doubts += 1;
                world.workers[w].task = Task::Idle;
                world.settle(key, (attempt, None), Report::Released("given up".into()));
            }
            Act::Depart(w) => world.depart(w)?,
            Act::Arrive(nth) => world.arrive(protocol, nth),
            Act::Report(w, replied) => world.report(protocol, w, replied)?,
            Act::Doubt(w) => {
                world.doubts += 1;
                world.stop(w)?;
            }
            Act::Late(w) => {
                world.pauses += 1;
                world.workers[w].late = true;
            }
            Act::Stop(w) => world.stop(w)?,
            Act::Renew(w) => {
                let id = world.workers[w].lease?;
                let answer = world.submit(command::RenewLease { id, seen: 0 });
                match answer {
                    Some(LeaseAnswer::Held { .. }) => {
                        world.revived |= self.ledger.lease(id).is_none();
                        world.workers[w].late = false;
                    }
                    // The engine stops the work on this lease; opaque work goes on, without a lease.
                    _ => (world.workers[w].lease, world.workers[w].late) = (None, true),
                }
            }
            Act::Crash(w) => {
                world.crashes += 1;
                let worker = &mut world.workers[w];
                (worker.lease, worker.late, worker.task) = (None, false, Task::Idle);
            }
            Act::Backup => world.copy = Some(world.ledger.clone()),
            Act::Restore => {
                let copy = world.copy.take()?;
                world.restores += 1;
                let store = copy.store.fork();
                // A process that has cached anything of the file notices, and ends all leases.
                for lease in &copy.leases {
                    carry_out(&store, command::CloseLease { id: lease.id });
                }
                world.ledger = Ledger::of(store, self.keys());
            }
            Act::Lapse(id) => {
                let store = world.ledger.store.fork();
                store.let_lapse(id);
                world.ledger = Ledger::of(store, self.keys());
            }
            Act::Expire => {
                world.submit(command::Expire { limit: 100 });
            }
            Act::Look(key) => world.look(protocol, key)?,
            Act::Judge(nth) => {
                let PendingFinding { key, attempt, fence, at: looked, found } =
                    world.findings.remove(nth);
                let finding = match found {
                    Some(by) => Finding::Happened(outcome_of(by)),
                    None => Finding::NotFound,
                };
                world.submit(command::Reconcile {
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

    fn submit<R: Request>(&mut self, command: R) -> Option<R::Answer> {
        let store = self.ledger.store.fork();
        let answer = carry_out(&store, command);
        self.ledger = Ledger::of(store, self.keys());
        answer
    }

    fn settle(
        &mut self,
        key: usize,
        (attempt, fence): (AttemptId, Option<Fence>),
        report: Report,
    ) -> Option<Settled> {
        let counts = self.effect(key).map(|effect| effect.fence);
        let (name, attachments) = (name(key), Attachments::default());
        let settled = self.submit(command::Settle { name, attempt, fence, report, attachments })?;
        self.overtaken |= matches!(settled, Settled::Fenced(_));
        self.stale |= settled == Settled::Recorded && fence.is_some() && fence != counts;
        Some(settled)
    }

    /// Settles in the worker's own transaction, which is committed only if the settle succeeds.
    fn settle_in(
        &mut self,
        key: usize,
        by: (AttemptId, Fence),
        report: Report,
    ) -> Result<Settled, StoreError> {
        let counts = self.effect(key).map(|effect| effect.fence);
        let store = self.ledger.store.fork();
        let settled = store.settle_in(&name(key), by, &report);
        if settled.is_ok() {
            self.ledger = Ledger::of(store, self.keys());
        }
        self.overtaken |= matches!(settled, Ok(Settled::Fenced(_)));
        self.stale |= matches!(settled, Ok(Settled::Recorded)) && Some(by.1) != counts;
        settled
    }

    /// Drops a worker's task, and reports it to the ledger as ambiguous.
    fn stop(&mut self, w: usize) -> Option<()> {
        let Task::Running { key, attempt, fence, .. } = self.workers[w].task else { return None };
        self.workers[w].task = Task::Idle;
        let by = (attempt, Some(Fence(fence)));
        self.settle(key, by, Report::Ambiguous("cannot tell".into()));
        Some(())
    }

    fn ask(&mut self, w: usize, key: usize, as_derived: bool) {
        if self.workers[w].lease.is_none() {
            let id = LeaseId::from_bytes(self.fresh());
            self.submit(command::OpenLease {
                id,
                term_ms: TERM_MS,
                holder: String::new(),
                forgetful: false,
            });
            (self.workers[w].lease, self.workers[w].late) = (Some(id), false);
        }
        let author = AttemptId::from_bytes(self.fresh());
        let attempt = if as_derived { derived(key) } else { author };
        self.workers[w].task = Task::Asking { key, attempt, author, reached: false };
    }

    fn claim(&mut self, protocol: &Protocol, w: usize, replied: bool) -> Option<()> {
        let Task::Asking { key, attempt, author, .. } = self.workers[w].task else { return None };
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
        let answer = self.submit(command::Claim { name: name(key), ask });
        if !replied {
            self.doubts += 1;
            self.workers[w].task = Task::Asking { key, attempt, author, reached: true };
            return Some(());
        }
        let worker = &mut self.workers[w];
        worker.task = match answer {
            Some(Verdict::Granted(grant)) => {
                let (fence, sent) = (grant.fence.0, SendStatus::NotYet);
                Task::Running { key, attempt, author, fence, sent }
            }
            Some(Verdict::Replayed { outcome, .. }) => {
                worker.received[key] = author_of(&outcome);
                Task::Idle
            }
            // The lease is over, and the attempt with it: a copy of the claim may have been granted.
            None => {
                (worker.lease, worker.late, worker.task) = (None, false, Task::Idle);
                self.settle(key, (attempt, None), Report::Released("its lease is over".into()));
                return Some(());
            }
            Some(_) => Task::Idle,
        };
        Some(())
    }

    fn depart(&mut self, w: usize) -> Option<()> {
        let Task::Running { key, attempt, author, fence, sent } = &mut self.workers[w].task else {
            return None;
        };
        *sent = SendStatus::Departed;
        let message = Message { key: *key, attempt: *attempt, author: *author, fence: *fence };
        self.messages.push(message);
        Some(())
    }

    fn arrive(&mut self, protocol: &Protocol, nth: usize) {
        let Message { key, author: of, fence, .. } = self.messages.remove(nth);
        let target = &mut self.targets[key];
        let sent = match (protocol.target, target.by.first()) {
            (Target::Keyed, Some(first)) => SendStatus::There(*first),
            (Target::Fenced | Target::FencedUnseen, _) if fence < target.bar => SendStatus::Refused,
            _ => {
                target.by.push(of);
                target.bar = fence;
                SendStatus::There(of)
            }
        };
        for worker in &mut self.workers {
            if let Task::Running { author, sent: waits, .. } = &mut worker.task
                && *author == of
            {
                *waits = sent;
            }
        }
    }

    fn report(&mut self, protocol: &Protocol, w: usize, replied: bool) -> Option<()> {
        let Task::Running { key, attempt, author, fence, sent } = self.workers[w].task else {
            return None;
        };
        let transactional = protocol.target == Target::Transactional;
        let report = match sent {
            SendStatus::There(by) => Report::Succeeded(outcome_of(by)),
            SendStatus::NotYet if transactional => Report::Succeeded(outcome_of(author)),
            SendStatus::NotYet | SendStatus::Departed | SendStatus::Refused => {
                Report::Failed("the target refused it".into())
            }
        };
        let succeeded = matches!(report, Report::Succeeded(_));
        let settled = if transactional {
            // The worker's own writes are committed with the settle, or not at all.
            match self.settle_in(key, (attempt, Fence(fence)), report) {
                Ok(settled) => {
                    if matches!(settled, Settled::Recorded | Settled::Repeated) {
                        self.targets[key].by.push(author);
                    }
                    settled
                }
                // It was committed before; the engine reads the row.
                Err(StoreError::AlreadyRecorded(_)) => Settled::Repeated,
                Err(_) => return None,
            }
        } else {
            self.settle(key, (attempt, Some(Fence(fence))), report)?
        };
        if !replied {
            self.doubts += 1;
            return Some(());
        }
        self.workers[w].task = Task::Idle;
        if succeeded && !matches!(settled, Settled::Fenced(_)) {
            self.workers[w].received[key] = self.outcome(key);
        }
        Some(())
    }

    fn look(&mut self, protocol: &Protocol, key: usize) -> Option<()> {
        let attempt = self.unknown(key)?;
        let fence = self.effect(key)?.fence.0;
        let target = &mut self.targets[key];
        if protocol.target == Target::Fenced {
            // A reconciler shows a fence above that of the attempt it looks for.
            target.bar = target.bar.max(fence + 1);
        }
        let found = target.by.last().copied();
        // Time stands still, so an instant is old only if something has run out since.
        let at = match self.effect(key)?.state {
            State::Unknown { since, .. } if since.ms == 0 => LeaseInstant { era: since.era, ms: 1 },
            State::Unknown { since, .. } => LeaseInstant { ms: 0, ..since },
            _ => return None,
        };
        self.findings.push(PendingFinding { key, attempt, fence: Fence(fence), at, found });
        Some(())
    }
}

impl Worker {
    fn fence(&self, of: usize) -> Option<u64> {
        match self.task {
            Task::Running { key, fence, .. } if key == of => Some(fence),
            _ => None,
        }
    }
}
