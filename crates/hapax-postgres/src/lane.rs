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

use hapax_core::effect::Verdict;
use hapax_core::planted::{Bug, planted};
use hapax_core::retry::Backoff;
use hapax_store::effect::peek;
use hapax_store::{Job, StoreError};

use crate::connect::Link;
use crate::error::PgFailure;
use crate::queue::{QueuedJob, Subject};
use crate::quick::QuickStep;
use crate::store::Shared;
use crate::txn::{Access, PgTxn};

mod transaction;

/// The largest batch of a quick statement.
const QUICK_BATCH: usize = 512;

/// The largest batch of a careful transaction.
const CAREFUL_BATCH: usize = 64;

/// How long a command is retried while the database cannot be reached.
const RETRY_FOR: Duration = Duration::from_secs(10);

/// How long a claim waits for another open transaction before its verdict is `Undecided`.
const ROW_WAIT: Duration = Duration::from_secs(1);

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
pub(crate) struct BatchResults {
    /// Commands that have their answers.
    answered: Vec<Job>,
    /// Subjects that are free again.
    freed: Vec<Subject>,
    /// Commands that go back to the queue of this lane.
    to_retry: Vec<QueuedJob>,
    /// Commands that go to the slow lane. Their subjects stay busy in the queue of ordinary lanes.
    to_slow_lane: Vec<QueuedJob>,
}

impl BatchResults {
    /// Keeps a command that has its answer. The lane sends the answer once the batch is over.
    pub(crate) fn answer(&mut self, job: Job) {
        self.freed.push(Subject::of(&job));
        self.answered.push(job);
    }

    fn refuse(&mut self, mut job: Job, error: StoreError) {
        job.fail(error);
        self.answer(job);
    }

    /// Refuses a command because the lane could not reach the database.
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

    /// Takes the lane's connection out of it. The lane connects again when it needs a connection.
    pub(crate) fn take_link(&mut self) -> Option<Link> {
        self.link.take()
    }

    /// Works until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        let shared = self.shared.clone();
        let (queue, most) = match self.kind {
            LaneKind::Ordinary => (&shared.queue, QUICK_BATCH),
            LaneKind::Slow => (&shared.slow, 1),
        };
        while let Some(batch) = queue.take(most) {
            self.carry_out(batch);
        }
    }

    /// Carries out commands that were taken from the queue.
    pub(crate) fn carry_out(&mut self, batch: Vec<QueuedJob>) {
        let mut results = BatchResults::default();
        let panic = catch_unwind(AssertUnwindSafe(|| self.serve(batch, &mut results))).err();
        if let Some(panic) = panic.filter(|_| !planted(Bug::PanicEscapes)) {
            self.link = None;
            self.shared.stop(&StoreError::panicked(&*panic));
        }
        let shared = &self.shared;
        let queue = match self.kind {
            LaneKind::Ordinary => &shared.queue,
            LaneKind::Slow => &shared.slow,
        };
        // A subject on the slow lane stays busy in the queue of the ordinary lanes until its command is done.
        if self.kind == LaneKind::Slow {
            shared.queue.release(&results.freed);
            let queued = results.to_slow_lane.iter().map(|queued| Subject::of(&queued.job));
            shared.slow.release(&queued.collect::<Vec<_>>());
        }
        queue.release(&results.freed);
        shared.slow.push(results.to_slow_lane);
        queue.put_back(results.to_retry);
        for mut job in results.answered {
            job.reply();
        }
    }

    fn serve(&mut self, batch: Vec<QueuedJob>, results: &mut BatchResults) {
        if let Err(failure) = self.connect(&batch) {
            return self.retry_or_refuse(batch, failure, results);
        }
        let claims = batch.iter().filter(|queued| is_claim(queued)).count();
        // If most claims find a row, looking first is cheaper.
        let look_first = self.shared.most_claims_found.load(Ordering::Relaxed);
        let rest = if look_first { self.look(batch, results) } else { batch };
        let unanswered = rest.iter().filter(|queued| is_claim(queued)).count();
        let rest = if self.kind == LaneKind::Ordinary { self.quick(rest, results) } else { rest };
        let left = rest.iter().filter(|queued| is_claim(queued)).count();
        if claims > 0 {
            let found = if look_first { claims - unanswered } else { left };
            self.shared.most_claims_found.store(found * 2 > claims, Ordering::Relaxed);
        }
        let rest = self.look(rest, results);
        let mut rest = rest.into_iter().peekable();
        while rest.peek().is_some() {
            let some: Vec<_> = rest.by_ref().take(CAREFUL_BATCH).collect();
            self.careful(some, results);
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
                    link.set_quick_settings()?;
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
            self.shared.namespaces.find_or_insert(link, namespace)?;
        }
        self.failures = 0;
        Ok(())
    }

    fn link(&self) -> Result<&Link, PgFailure> {
        self.link.as_ref().ok_or_else(|| PgFailure::Lost("not connected".into()))
    }

    /// Puts commands back after the database could not be reached, and refuses those whose time is up.
    /// Claims and settles are idempotent by their attempt.
    fn retry_or_refuse(
        &mut self,
        batch: Vec<QueuedJob>,
        failure: PgFailure,
        results: &mut BatchResults,
    ) {
        self.link = None;
        let closed = self.shared.queue.is_closed();
        let text = match failure {
            PgFailure::Lost(text) | PgFailure::Busy(text) => text,
            PgFailure::Refused(error) => {
                for queued in batch {
                    results.refuse(queued.job, error.clone());
                }
                return;
            }
        };
        self.failures = self.failures.saturating_add(1);
        if self.failures > 1 {
            let random = getrandom::u64().unwrap_or(u64::MAX);
            let pause = RECONNECT.delay_ms(self.failures - 1, random).unwrap_or_default();
            std::thread::sleep(Duration::from_millis(pause));
        }
        for queued in batch {
            if closed || queued.wait.since.elapsed() > RETRY_FOR {
                results.refuse_unreached(queued, text.clone());
            } else {
                results.to_retry.push(queued);
            }
        }
    }

    /// Writes the commands that the quick statement covers. Returns the others.
    fn quick(&mut self, batch: Vec<QueuedJob>, results: &mut BatchResults) -> Vec<QueuedJob> {
        let now = match self.link().and_then(|link| self.shared.clock.estimate(link)) {
            Ok(now) => now,
            Err(failure) => {
                self.retry_or_refuse(batch, failure, results);
                return Vec::new();
            }
        };
        let mut quick = QuickStep::of(&self.shared, now, batch);
        if quick.is_empty() {
            return quick.rest;
        }
        match self.link().and_then(|link| quick.send(link)) {
            Ok(taken) => {
                quick.conclude(&self.shared, &taken, results);
                quick.rest
            }
            Err(failure @ PgFailure::Lost(_)) => {
                self.retry_commits(quick.into_all(), failure, results);
                Vec::new()
            }
            // Another transaction holds a row, or one command fails: the lane tries each command alone.
            Err(PgFailure::Busy(_) | PgFailure::Refused(_)) => {
                let rest = std::mem::take(&mut quick.rest);
                for queued in quick.into_all() {
                    self.alone(queued, results);
                }
                rest
            }
        }
    }

    /// Answers claims whose verdict writes nothing. Returns the other commands.
    fn look(&mut self, mut batch: Vec<QueuedJob>, results: &mut BatchResults) -> Vec<QueuedJob> {
        if !batch.iter().any(is_claim) {
            return batch;
        }
        match self.try_look(&mut batch) {
            Ok(answered) => {
                let mut rest = Vec::new();
                for (queued, answered) in batch.into_iter().zip(answered) {
                    match answered {
                        true => results.answer(queued.job),
                        false => rest.push(queued),
                    }
                }
                rest
            }
            Err(failure @ PgFailure::Lost(_)) => {
                self.retry_or_refuse(batch, failure, results);
                Vec::new()
            }
            Err(_) => batch,
        }
    }

    /// Returns which commands have their answers.
    fn try_look(&self, batch: &mut [QueuedJob]) -> Result<Vec<bool>, PgFailure> {
        let link = self.link()?;
        let now = self.shared.clock.estimate(link)?;
        let mut view = PgTxn::new(link, &self.shared.namespaces, now, Access::ReadOnly);
        let lease = batch.iter().find_map(|queued| match &queued.job {
            Job::Claim(job) => Some(job.command.ask.lease),
            _ => None,
        });
        view.preview(&self.row_keys(batch.iter().filter(|queued| is_claim(queued)))?, lease)?;
        let mut answered = Vec::with_capacity(batch.len());
        for queued in batch {
            let Job::Claim(job) = &mut queued.job else {
                answered.push(false);
                continue;
            };
            let peeked = peek(&mut view, &job.command.name, &job.command.ask);
            if let Some(failure) = view.take_failure() {
                return Err(failure);
            }
            let verdict = match peeked {
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
    fn careful(&mut self, mut batch: Vec<QueuedJob>, results: &mut BatchResults) {
        if let [_] = batch.as_slice() {
            for queued in batch {
                self.alone(queued, results);
            }
            return;
        }
        match self.transact(&mut batch, 50) {
            Ok(done) => self.conclude(batch, done, results),
            Err(failure @ PgFailure::Lost(_)) => self.connection_lost(batch, failure, results),
            Err(failure) => {
                // Claims in an epoch share its row, and would wait for it one after the other.
                let busy = matches!(failure, PgFailure::Busy(_)) && self.kind == LaneKind::Ordinary;
                for queued in batch {
                    match busy && is_bound(&queued.job) {
                        true => results.to_slow_lane.push(queued),
                        false => self.alone(queued, results),
                    }
                }
            }
        }
    }

    /// Carries out one command in a transaction of its own.
    fn alone(&mut self, mut queued: QueuedJob, results: &mut BatchResults) {
        let lock_timeout_ms = if self.kind == LaneKind::Ordinary { 50 } else { 200 };
        match self.transact(std::slice::from_mut(&mut queued), lock_timeout_ms) {
            Ok(done) => self.conclude(vec![queued], done, results),
            Err(failure @ PgFailure::Lost(_)) => {
                self.connection_lost(vec![queued], failure, results)
            }
            Err(PgFailure::Refused(error)) => results.refuse(queued.job, error),
            Err(PgFailure::Busy(text)) => self.row_is_busy(queued, text, results),
        }
    }

    /// Another transaction holds a row of this command. Only the slow lane waits for it.
    fn row_is_busy(&self, mut queued: QueuedJob, text: String, results: &mut BatchResults) {
        let waited = queued.wait.since.elapsed();
        match &mut queued.job {
            _ if self.kind == LaneKind::Ordinary => results.to_slow_lane.push(queued),
            Job::Claim(job) if waited > ROW_WAIT => {
                let reason = format!("another transaction has its row and has not ended: {text}");
                job.answer(Ok(Verdict::Undecided { reason }));
                results.answer(queued.job);
            }
            _ if waited > RETRY_FOR => results.refuse_unreached(queued, text),
            _ => results.to_slow_lane.push(queued),
        }
    }

    /// Answers the commands that were carried out, and puts off the others.
    fn conclude(&self, batch: Vec<QueuedJob>, done: Vec<bool>, results: &mut BatchResults) {
        for (mut queued, done) in batch.into_iter().zip(done) {
            if done {
                results.answer(queued.job);
            } else {
                queued.wait.put_off += 1;
                queued.wait.not_before = Some(Instant::now() + Duration::from_millis(2));
                results.to_retry.push(queued);
            }
        }
    }

    /// Retries idempotent commands after the connection was lost in a transaction, perhaps after its commit
    /// was sent. The outcome of the others is unknown.
    fn connection_lost(
        &mut self,
        batch: Vec<QueuedJob>,
        failure: PgFailure,
        results: &mut BatchResults,
    ) {
        let text = match &failure {
            PgFailure::Lost(text) | PgFailure::Busy(text) => text.clone(),
            PgFailure::Refused(error) => error.to_string(),
        };
        let (idempotent, others): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|queued| is_idempotent(&queued.job));
        for queued in others {
            results.refuse(queued.job, StoreError::CommitUnknown(text.clone()));
        }
        self.retry_commits(idempotent, failure, results);
    }

    /// Retries commands whose commit was sent and whose reply was lost.
    fn retry_commits(
        &mut self,
        mut batch: Vec<QueuedJob>,
        failure: PgFailure,
        results: &mut BatchResults,
    ) {
        batch.iter_mut().for_each(|queued| queued.wait.commit_lost = true);
        self.retry_or_refuse(batch, failure, results);
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
