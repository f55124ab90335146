//! A lane: one thread, one connection, one batch in flight at a time.
//!
//! An ordinary lane takes a batch through three steps, and most commands need only the first. If
//! most recent claims found a row, the lane looks first. The slow lane skips the quick step.
//!
//! 1. **Quick**: one statement writes the claims of keys that should be new, and the successes of
//!    effects that should still be running. Each write has that as its condition.
//! 2. **Look**: claims that found a row are judged by it; a verdict that writes nothing is final.
//! 3. **Careful**: the other commands are judged under the rows' locks, in transactions of up to 64.
//!    If one fails, the lane carries out its commands one by one, so that only the culprit sees the
//!    error.
//!
//! A command that has to wait for another transaction goes to the slow lane. A panic ends the
//! connection, and with it the transaction; this process writes nothing more.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hapax_core::effect::{Ask, State, Verdict};
use hapax_core::lock::LockKey;
use hapax_core::name::Name;
use hapax_core::planted::{Bug, planted};
use hapax_core::retry::Backoff;
use hapax_store::command::Claim;
use hapax_store::effect::look;
use hapax_store::failpoint::{Point, pass};
use hapax_store::{Job, StoreError, ledger};

use crate::connect::Link;
use crate::effect::{EffectRow, EffectRowKey};
use crate::epoch::EpochRowKey;
use crate::error::PgFailure;
use crate::lock::{self, LockRowKey};
use crate::queue::{QueuedJob, Subject};
use crate::quick::Quick;
use crate::store::Shared;
use crate::txn::{Access, PgTxn};

/// The largest batch of a quick statement, and of a careful transaction.
const BATCH: usize = 512;
const CAREFUL: usize = 64;

/// How long a command is retried while the database cannot be reached.
const RETRY_FOR: Duration = Duration::from_secs(10);

/// How long a claim waits for another open transaction before its caller is told so.
const ROW_PATIENCE: Duration = Duration::from_secs(1);

/// How often a claim is put off because its advisory lock is taken, before the rows decide.
const MAX_PUT_OFFS: u32 = 50;

/// The pauses between attempts to reach the database.
const RECONNECT: Backoff = Backoff { base_ms: 20, cap_ms: 1_000, attempts: u32::MAX };

/// How a lane treats commands that have to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaneKind {
    /// Sends them to the slow lane.
    Ordinary,
    /// Lets them wait.
    Slow,
}

pub(crate) struct Lane {
    shared: Arc<Shared>,
    kind: LaneKind,
    link: Option<Link>,
    failures: u32,
}

/// The results of a batch.
#[derive(Default)]
pub(crate) struct Served {
    /// Commands that have their answers.
    answered: Vec<Job>,
    /// Subjects that are free again.
    over: Vec<Subject>,
    /// Commands that this kind of lane retries.
    again: Vec<QueuedJob>,
    /// Commands that wait on the slow lane, which takes their subjects over.
    slow: Vec<QueuedJob>,
}

impl Served {
    /// Takes a command that has its answer, which is sent once the batch is over.
    pub(crate) fn answer(&mut self, job: Job) {
        self.over.push(Subject::of(&job));
        self.answered.push(job);
    }

    fn refuse(&mut self, mut job: Job, error: StoreError) {
        job.fail(error);
        self.answer(job);
    }

    /// Refuses a command that the database does not answer any more.
    fn refuse_unreached(&mut self, queued: QueuedJob, text: String) {
        let error = match queued.wait.commit_lost {
            true => StoreError::CommitUnknown(text),
            false => StoreError::Unavailable(text),
        };
        self.refuse(queued.job, error);
    }
}

impl Lane {
    pub(crate) fn new(shared: Arc<Shared>, kind: LaneKind) -> Self {
        Self { shared, kind, link: None, failures: 0 }
    }

    /// Takes its connection out; the lane reconnects when it needs one.
    pub(crate) fn take_link(&mut self) -> Option<Link> {
        self.link.take()
    }

    /// Works until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        let shared = self.shared.clone();
        let (queue, most) = match self.kind {
            LaneKind::Ordinary => (&shared.queue, BATCH),
            LaneKind::Slow => (&shared.slow, 1),
        };
        while let Some(batch) = queue.take(most) {
            self.carry_out(batch);
        }
    }

    /// Carries out commands that were taken from the queue.
    pub(crate) fn carry_out(&mut self, batch: Vec<QueuedJob>) {
        let mut served = Served::default();
        let panic = catch_unwind(AssertUnwindSafe(|| self.serve(batch, &mut served))).err();
        if let Some(panic) = panic.filter(|_| !planted(Bug::PanicEscapes)) {
            self.link = None;
            self.shared.stop(&StoreError::panicked(&*panic));
        }
        let shared = &self.shared;
        let queue = match self.kind {
            LaneKind::Ordinary => &shared.queue,
            LaneKind::Slow => &shared.slow,
        };
        // A subject on the slow lane stays busy in the quick queue until its command is done.
        if self.kind == LaneKind::Slow {
            shared.queue.release(&served.over);
            let queued = served.slow.iter().map(|queued| Subject::of(&queued.job));
            shared.slow.release(&queued.collect::<Vec<_>>());
        }
        queue.release(&served.over);
        shared.slow.push(served.slow);
        queue.put_back(served.again);
        for mut job in served.answered {
            job.reply();
        }
    }

    fn serve(&mut self, batch: Vec<QueuedJob>, served: &mut Served) {
        if let Err(failure) = self.connect(&batch) {
            return self.retry_or_refuse(batch, failure, served);
        }
        let claims = batch.iter().filter(|queued| is_claim(queued)).count();
        // If most claims find a row, looking first is cheaper.
        let look_first = self.shared.claims_find.load(Ordering::Relaxed);
        let rest = if look_first { self.look(batch, served) } else { batch };
        let unanswered = rest.iter().filter(|queued| is_claim(queued)).count();
        let rest = if self.kind == LaneKind::Ordinary { self.quick(rest, served) } else { rest };
        let left = rest.iter().filter(|queued| is_claim(queued)).count();
        if claims > 0 {
            let found = if look_first { claims - unanswered } else { left };
            self.shared.claims_find.store(found * 2 > claims, Ordering::Relaxed);
        }
        let rest = self.look(rest, served);
        let mut rest = rest.into_iter().peekable();
        while rest.peek().is_some() {
            let some: Vec<_> = rest.by_ref().take(CAREFUL).collect();
            self.careful(some, served);
        }
    }

    /// Connects if needed, and gives a number to each namespace that the batch writes to.
    fn connect(&mut self, batch: &[QueuedJob]) -> Result<(), PgFailure> {
        if self.link.as_ref().is_some_and(Link::is_closed) {
            self.link = None;
        }
        let link = match &self.link {
            Some(link) => link,
            None => {
                let link = self.shared.connect()?;
                // The database may have been restored since the last connection. It then gives entry
                // numbers a second time, so cached versions prove nothing.
                self.shared.running().clear();
                if self.kind == LaneKind::Ordinary {
                    link.hurry()?;
                }
                self.link.insert(link)
            }
        };
        for queued in batch {
            let namespace = match &queued.job {
                Job::Claim(job) => &job.command.name.namespace,
                Job::Advance(job) => &job.command.namespace,
                Job::PutOntology(job) => &job.command.namespace,
                _ => continue,
            };
            self.shared.namespaces.make(link, namespace)?;
        }
        self.failures = 0;
        Ok(())
    }

    fn link(&self) -> Result<&Link, PgFailure> {
        self.link.as_ref().ok_or_else(|| PgFailure::Lost("not connected".into()))
    }

    /// The database cannot be reached. Puts commands back for a retry, and refuses those whose time is
    /// up. Claims and settles are idempotent by their attempt.
    fn retry_or_refuse(&mut self, batch: Vec<QueuedJob>, failure: PgFailure, served: &mut Served) {
        self.link = None;
        let closed = self.shared.queue.is_closed();
        let text = match failure {
            PgFailure::Lost(text) | PgFailure::Busy(text) => text,
            PgFailure::Refused(error) => {
                for queued in batch {
                    served.refuse(queued.job, error.clone());
                }
                return;
            }
        };
        self.failures = self.failures.saturating_add(1);
        if self.failures > 1 {
            let dice = getrandom::u64().unwrap_or(u64::MAX);
            let pause = RECONNECT.delay_ms(self.failures - 1, dice).unwrap_or_default();
            std::thread::sleep(Duration::from_millis(pause));
        }
        for queued in batch {
            if closed || queued.wait.since.elapsed() > RETRY_FOR {
                served.refuse_unreached(queued, text.clone());
            } else {
                served.again.push(queued);
            }
        }
    }

    /// Writes the commands that the quick statement covers. Returns the others.
    fn quick(&mut self, batch: Vec<QueuedJob>, served: &mut Served) -> Vec<QueuedJob> {
        let now = match self.link().and_then(|link| self.shared.clock.reckon(link)) {
            Ok(now) => now,
            Err(failure) => {
                self.retry_or_refuse(batch, failure, served);
                return Vec::new();
            }
        };
        let mut attempt = Quick::of(&self.shared, now, batch);
        if attempt.is_empty() {
            return attempt.rest;
        }
        match self.link().and_then(|link| attempt.send(link)) {
            Ok(taken) => {
                attempt.conclude(&self.shared, &taken, served);
                attempt.rest
            }
            Err(failure @ PgFailure::Lost(_)) => {
                self.retry_commits(attempt.into_all(), failure, served);
                Vec::new()
            }
            // Another transaction is in the way, or one command is bad: each is tried alone.
            Err(PgFailure::Busy(_) | PgFailure::Refused(_)) => {
                let rest = std::mem::take(&mut attempt.rest);
                for queued in attempt.into_all() {
                    self.alone(queued, served);
                }
                rest
            }
        }
    }

    /// Answers claims whose verdict writes nothing. Returns the other commands.
    fn look(&mut self, mut batch: Vec<QueuedJob>, served: &mut Served) -> Vec<QueuedJob> {
        if !batch.iter().any(is_claim) {
            return batch;
        }
        match self.try_look(&mut batch) {
            Ok(answered) => {
                let mut rest = Vec::new();
                for (queued, answered) in batch.into_iter().zip(answered) {
                    match answered {
                        true => served.answer(queued.job),
                        false => rest.push(queued),
                    }
                }
                rest
            }
            Err(failure @ PgFailure::Lost(_)) => {
                self.retry_or_refuse(batch, failure, served);
                Vec::new()
            }
            Err(_) => batch,
        }
    }

    /// Returns which commands have their answers.
    fn try_look(&self, batch: &mut [QueuedJob]) -> Result<Vec<bool>, PgFailure> {
        let link = self.link()?;
        let now = self.shared.clock.reckon(link)?;
        let mut view = PgTxn::new(link, &self.shared.namespaces, now, Access::Look);
        let lease = batch.iter().find_map(|queued| match &queued.job {
            Job::Claim(job) => Some(job.command.ask.lease),
            _ => None,
        });
        view.preview(&self.places(batch.iter().filter(|queued| is_claim(queued)))?, lease)?;
        let mut answered = Vec::with_capacity(batch.len());
        for queued in batch {
            let Job::Claim(job) = &mut queued.job else {
                answered.push(false);
                continue;
            };
            let looked = look(&mut view, &job.command.name, &job.command.ask);
            if let Some(failure) = view.take_failure() {
                return Err(failure);
            }
            let verdict = match looked {
                // The grant may not have reached a standby yet. So a repeated claim goes to the
                // careful step, whose own commit waits for the standby.
                Ok(None | Some(Verdict::Granted(_))) => None,
                Ok(Some(verdict)) => Some(Ok(verdict)),
                Err(error) => Some(Err(error)),
            };
            answered.push(verdict.is_some());
            if let Some(verdict) = verdict {
                job.answer(verdict);
            }
        }
        Ok(answered)
    }

    /// Carries out commands in one transaction, or one by one if that fails.
    fn careful(&mut self, mut batch: Vec<QueuedJob>, served: &mut Served) {
        if let [_] = batch.as_slice() {
            for queued in batch {
                self.alone(queued, served);
            }
            return;
        }
        match self.transact(&mut batch, 50) {
            Ok(done) => self.conclude(batch, done, served),
            Err(failure @ PgFailure::Lost(_)) => self.connection_lost(batch, failure, served),
            Err(failure) => {
                // Claims in an epoch share its row, and would wait for it one after the other.
                let busy = matches!(failure, PgFailure::Busy(_)) && self.kind == LaneKind::Ordinary;
                for queued in batch {
                    match busy && is_bound(&queued.job) {
                        true => served.slow.push(queued),
                        false => self.alone(queued, served),
                    }
                }
            }
        }
    }

    /// Carries out one command in a transaction of its own.
    fn alone(&mut self, mut queued: QueuedJob, served: &mut Served) {
        let lock_timeout_ms = if self.kind == LaneKind::Ordinary { 50 } else { 200 };
        match self.transact(std::slice::from_mut(&mut queued), lock_timeout_ms) {
            Ok(done) => self.conclude(vec![queued], done, served),
            Err(failure @ PgFailure::Lost(_)) => {
                self.connection_lost(vec![queued], failure, served)
            }
            Err(PgFailure::Refused(error)) => served.refuse(queued.job, error),
            Err(PgFailure::Busy(text)) => self.row_is_busy(queued, text, served),
        }
    }

    /// Another transaction is in the way.
    fn row_is_busy(&self, mut queued: QueuedJob, text: String, served: &mut Served) {
        let waited = queued.wait.since.elapsed();
        match &mut queued.job {
            _ if self.kind == LaneKind::Ordinary => served.slow.push(queued),
            Job::Claim(job) if waited > ROW_PATIENCE => {
                let reason = format!("another transaction has its row and has not ended: {text}");
                job.answer(Ok(Verdict::Undecided { reason }));
                served.answer(queued.job);
            }
            _ if waited > RETRY_FOR => served.refuse_unreached(queued, text),
            _ => served.slow.push(queued),
        }
    }

    /// Answers the commands that were carried out, and puts off the others.
    fn conclude(&self, batch: Vec<QueuedJob>, done: Vec<bool>, served: &mut Served) {
        for (mut queued, done) in batch.into_iter().zip(done) {
            if done {
                served.answer(queued.job);
            } else {
                queued.wait.put_off += 1;
                queued.wait.not_before = Some(Instant::now() + Duration::from_millis(2));
                served.again.push(queued);
            }
        }
    }

    /// The connection was lost in a transaction, perhaps after its commit was sent.
    fn connection_lost(&mut self, batch: Vec<QueuedJob>, failure: PgFailure, served: &mut Served) {
        let text = match &failure {
            PgFailure::Lost(text) | PgFailure::Busy(text) => text.clone(),
            PgFailure::Refused(error) => error.to_string(),
        };
        let (idempotent, others): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|queued| is_idempotent(&queued.job));
        for queued in others {
            served.refuse(queued.job, StoreError::CommitUnknown(text.clone()));
        }
        self.retry_commits(idempotent, failure, served);
    }

    /// The reply to the commit of these commands was lost.
    fn retry_commits(
        &mut self,
        mut batch: Vec<QueuedJob>,
        failure: PgFailure,
        served: &mut Served,
    ) {
        batch.iter_mut().for_each(|queued| queued.wait.commit_lost = true);
        self.retry_or_refuse(batch, failure, served);
    }

    /// Runs one transaction. Returns which commands it has carried out: all but those whose advisory
    /// lock another transaction has.
    fn transact(
        &mut self,
        batch: &mut [QueuedJob],
        lock_timeout_ms: u32,
    ) -> Result<Vec<bool>, PgFailure> {
        let result = self.try_transact(batch, lock_timeout_ms);
        if let Err(PgFailure::Busy(_) | PgFailure::Refused(_)) = &result
            && let Some(link) = &self.link
            && link.run("ROLLBACK").is_err()
        {
            self.link = None;
        }
        result
    }

    fn try_transact(
        &self,
        batch: &mut [QueuedJob],
        lock_timeout_ms: u32,
    ) -> Result<Vec<bool>, PgFailure> {
        let link = self.link()?;
        pass(Point::PostgresBegin).map_err(PgFailure::lost)?;
        // An epoch transition writes to every open effect of the epoch, however many there are.
        let ends = |queued: &QueuedJob| matches!(queued.job, Job::Advance(_));
        let statement_timeout_ms = if batch.iter().any(ends) { 600_000 } else { 10_000 };
        let settings = format!(
            "SET LOCAL lock_timeout = {lock_timeout_ms};
             SET LOCAL statement_timeout = {statement_timeout_ms};
             SET LOCAL idle_in_transaction_session_timeout = 10000;
             SET LOCAL synchronous_commit = on; SET LOCAL jit = off"
        );
        link.begin("ISOLATION LEVEL READ COMMITTED", &settings);
        let wanted = self.locks(batch)?;
        let free = self.hinted(link, batch, &wanted)?;
        let now = self.shared.clock.read_in_transaction(link)?;
        let access = match batch {
            [queued] if matches!(Subject::of(&queued.job), Subject::Lease(_)) => {
                Access::WriteLeases
            }
            _ => Access::Write,
        };
        let mut txn = PgTxn::new(link, &self.shared.namespaces, now, access);
        let going = || batch.iter().zip(&free).filter(|(_, free)| **free).map(|(w, _)| w);
        let locks: Vec<LockRowKey> = wanted
            .iter()
            .zip(&free)
            .filter(|(_, free)| **free)
            .filter_map(|(place, _)| *place)
            .collect();
        let (claimed, ended) = self.epochs(going())?;
        txn.preload_epochs(claimed, ended)?;
        let numbers = going().filter(|queued| queued.is_batchable()).count();
        txn.preload(&locks, &self.places(going())?, numbers)?;
        for (queued, free) in batch.iter_mut().zip(&free) {
            if !free {
                continue;
            }
            let kept = ledger::apply(&mut txn, &mut queued.job).is_ok();
            if let Some(failure) = txn.take_failure() {
                return Err(failure);
            }
            txn.end_command(kept);
        }
        let running: Vec<(EffectRowKey, Option<EffectRow>)> = txn
            .written_effects()
            .map(|(place, row)| {
                let running = matches!(row.effect.state, State::Running { .. });
                (*place, running.then(|| row.clone()))
            })
            .collect();
        txn.flush()?;
        pass(Point::PostgresCommit).map_err(PgFailure::lost)?;
        link.run("COMMIT")?;
        pass(Point::PostgresCommitted).map_err(PgFailure::lost)?;
        for (place, row) in running {
            match row {
                Some(row) => self.shared.remember(place, row),
                None => {
                    self.shared.running().remove(&place);
                }
            }
        }
        Ok(free)
    }

    /// The places of the effects that these commands are about.
    fn places<'a>(
        &self,
        batch: impl Iterator<Item = &'a QueuedJob>,
    ) -> Result<Vec<EffectRowKey>, PgFailure> {
        let link = self.link()?;
        let mut places = Vec::new();
        for queued in batch {
            if let Subject::Effect(name) = Subject::of(&queued.job)
                && let Some(id) = self.shared.namespaces.find(link, &name.namespace)?
            {
                places.push((id, name.key));
            }
        }
        Ok(places)
    }

    /// The epochs that these commands claim in, and the epoch that one of them ends.
    fn epochs<'a>(
        &self,
        batch: impl Iterator<Item = &'a QueuedJob>,
    ) -> Result<(Vec<EpochRowKey>, Option<EpochRowKey>), PgFailure> {
        let link = self.link()?;
        let (mut claimed, mut ended) = (Vec::new(), None);
        for queued in batch {
            match &queued.job {
                Job::Claim(job) => {
                    let Claim { name, ask: Ask { bound: Some(bound), .. } } = &job.command else {
                        continue;
                    };
                    let id = self.shared.namespaces.find(link, &name.namespace)?;
                    claimed.extend(id.map(|id| (id, bound.domain.clone())));
                }
                Job::Advance(job) => {
                    let id = self.shared.namespaces.find(link, &job.command.namespace)?;
                    ended = id.map(|id| (id, job.command.domain.clone()));
                }
                _ => {}
            }
        }
        Ok((claimed, ended))
    }

    /// The lock of each command, if it is known beforehand.
    fn locks(&self, batch: &[QueuedJob]) -> Result<Vec<Option<LockRowKey>>, PgFailure> {
        let link = self.link()?;
        let lock_of = |name: &Name, lock: Option<LockKey>| -> Result<_, PgFailure> {
            let id = self.shared.namespaces.find(link, &name.namespace)?;
            Ok(id.zip(lock))
        };
        batch
            .iter()
            .map(|queued| match &queued.job {
                Job::Claim(job) => lock_of(&job.command.name, job.command.ask.lock),
                Job::Settle(job) => {
                    let name = &job.command.name;
                    let id = self.shared.namespaces.find(link, &name.namespace)?;
                    let running = self.shared.running();
                    let row = id.and_then(|id| running.get(&(id, name.key)));
                    let lock = row.and_then(|row| row.effect.lock);
                    drop(running);
                    lock_of(name, lock)
                }
                _ => Ok(None),
            })
            .collect()
    }

    /// Tries the advisory locks: a cheap hint that another transaction is at the same lock right now.
    /// It can only put a command off; the rows decide.
    fn hinted(
        &self,
        link: &Link,
        batch: &[QueuedJob],
        wanted: &[Option<LockRowKey>],
    ) -> Result<Vec<bool>, PgFailure> {
        let mask = self.shared.hints();
        let hint = |place: &LockRowKey| (place.1.0 & mask) as i64;
        let mut hints: Vec<i64> = wanted.iter().flatten().map(hint).collect();
        if hints.is_empty() {
            return Ok(vec![true; batch.len()]);
        }
        hints.sort_unstable();
        hints.dedup();
        let obtained = lock::hint(link, &hints)?;
        let free = |queued: &QueuedJob, place: &Option<LockRowKey>| match place {
            Some(place) => queued.wait.put_off >= MAX_PUT_OFFS || obtained.contains(&hint(place)),
            None => true,
        };
        Ok(batch.iter().zip(wanted).map(|(queued, place)| free(queued, place)).collect())
    }
}

fn is_claim(queued: &QueuedJob) -> bool {
    matches!(queued.job, Job::Claim(_))
}

fn is_bound(job: &Job) -> bool {
    matches!(job, Job::Claim(job) if job.command.ask.bound.is_some())
}

/// Whether a command may be carried out twice without harm.
fn is_idempotent(job: &Job) -> bool {
    !matches!(
        job,
        Job::Reconcile(_)
            | Job::Resolve(_)
            | Job::RegisterStep(_)
            | Job::RolledBack(_)
            | Job::Reset(_)
    )
}
