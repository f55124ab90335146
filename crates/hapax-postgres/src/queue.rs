//! Commands that wait to be carried out, and the subjects of those being carried out.
//!
//! The lanes carry out commands about one subject one after the other, in the order in which they came.
//! Commands about different subjects may overtake each other.

use std::collections::{HashSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use hapax_core::epoch::Domain;
use hapax_core::lease::LeaseId;
use hapax_core::name::{Name, Namespace};
use hapax_store::{Job, Pending, Request, StoreError};

/// The subject of a command.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    Effect(Name),
    Lease(LeaseId),
    Outbox(LeaseId),
    Epoch(Namespace, Domain),
    /// The store as a whole: such commands run one after the other.
    Store,
}

impl Subject {
    pub(crate) fn of(job: &Job) -> Self {
        match job {
            Job::Claim(job) => Self::Effect(job.command.name.clone()),
            Job::Settle(job) => Self::Effect(job.command.name.clone()),
            Job::Reconcile(job) => Self::Effect(job.command.name.clone()),
            Job::Resolve(job) => Self::Effect(job.command.name.clone()),
            Job::RegisterStep(job) => Self::Effect(job.command.name.clone()),
            Job::RolledBack(job) => Self::Effect(job.command.name.clone()),
            Job::Reset(job) => Self::Effect(job.command.name.clone()),
            Job::OpenLease(job) => Self::Lease(job.command.id),
            Job::RenewLease(job) => Self::Lease(job.command.id),
            Job::CloseLease(job) => Self::Lease(job.command.id),
            Job::Share(job) => Self::Outbox(job.command.lease),
            Job::Retire(job) => Self::Outbox(job.command.lease),
            Job::Dispatch(job) => Self::Outbox(job.command.lease),
            Job::Advance(job) => {
                Self::Epoch(job.command.namespace.clone(), job.command.domain.clone())
            }
            Job::Expire(_)
            | Job::Sweep(_)
            | Job::Seal(_)
            | Job::AdmitToken(_)
            | Job::Revoke(_)
            | Job::Configure(_)
            | Job::Register(_)
            | Job::Declare(_)
            | Job::PutOntology(_)
            | Job::RecordAccesses(_)
            | Job::Evict(_)
            | Job::Pause(_)
            | Job::Redrive(_) => Self::Store,
        }
    }
}

/// A queued command, of any kind or of one.
pub(crate) struct QueuedJob<J = Job> {
    pub(crate) job: J,
    pub(crate) wait: Wait,
}

/// How long a command has waited, and how long it has to wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    /// When it was queued.
    pub(crate) since: Instant,
    /// When it may be retried, if it was put off.
    pub(crate) not_before: Option<Instant>,
    /// How often it was put off.
    pub(crate) put_off: u32,
    /// Whether the reply to its commit was lost, so that it may have been carried out.
    pub(crate) commit_lost: bool,
}

impl QueuedJob {
    pub(crate) fn new(job: Job) -> Self {
        let since = Instant::now();
        Self { job, wait: Wait { since, not_before: None, put_off: 0, commit_lost: false } }
    }

    /// Whether it can share a transaction with other commands.
    pub(crate) fn is_batchable(&self) -> bool {
        matches!(self.job, Job::Claim(_) | Job::Settle(_))
    }
}

impl<R: Request> QueuedJob<Pending<R>> {
    /// The same command among others of any kind.
    pub(crate) fn untyped(self) -> QueuedJob {
        QueuedJob { job: R::job(self.job), wait: self.wait }
    }
}

#[derive(Default)]
struct State {
    queued: VecDeque<QueuedJob>,
    busy: HashSet<Subject>,
    idle: usize,
    closed: bool,
    /// The error that stopped the queue.
    stopped: Option<StoreError>,
}

#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    ready: Condvar,
}

/// How long a lane sleeps at most while a command waits for its retry.
const RETRY_TICK: Duration = Duration::from_millis(5);

/// How long a lane polls before it sleeps. A caller that was just answered often sends its next command
/// sooner than the system could wake a sleeping lane.
const POLL_FOR: Duration = Duration::from_micros(100);

impl Queue {
    pub(crate) fn push(&self, jobs: impl IntoIterator<Item = QueuedJob>) {
        let mut state = self.lock();
        if let Some(error) = state.stopped.clone() {
            drop(state);
            return refuse(jobs, &error);
        }
        let before = state.queued.len();
        state.queued.extend(jobs);
        if state.idle > 0 && state.queued.len() > before {
            self.ready.notify_one();
        }
    }

    /// Marks the subject of a command that bypasses the queue as busy; refused while commands are
    /// queued.
    pub(crate) fn enter(&self, subject: &Subject) -> bool {
        let mut state = self.lock();
        let open = !state.closed && state.stopped.is_none();
        open && state.queued.is_empty() && state.busy.insert(subject.clone())
    }

    /// Puts commands back at the front, in their order, and frees their subjects.
    pub(crate) fn put_back(&self, jobs: Vec<QueuedJob>) {
        if jobs.is_empty() {
            return;
        }
        let mut state = self.lock();
        if let Some(error) = state.stopped.clone() {
            drop(state);
            return refuse(jobs, &error);
        }
        for job in jobs.into_iter().rev() {
            state.busy.remove(&Subject::of(&job.job));
            state.queued.push_front(job);
        }
        self.ready.notify_one();
    }

    /// Takes the commands that a lane can carry out now: several that share a transaction, or one that
    /// does not. Waits until there is one. `None` if the queue is closed and empty.
    pub(crate) fn take(&self, most: usize) -> Option<Vec<QueuedJob>> {
        let polled = Instant::now();
        let mut state = self.lock();
        loop {
            let batch = state.select(most);
            if !batch.is_empty() {
                if state.idle > 0 && !state.queued.is_empty() {
                    self.ready.notify_one();
                }
                return Some(batch);
            }
            if state.closed && state.queued.is_empty() {
                return None;
            }
            if !state.closed && polled.elapsed() < POLL_FOR {
                drop(state);
                std::thread::yield_now();
                state = self.lock();
                continue;
            }
            state.idle += 1;
            state = if state.queued.iter().any(|queued| queued.wait.not_before.is_some()) {
                let woken = self.ready.wait_timeout(state, RETRY_TICK);
                woken.unwrap_or_else(|poisoned| poisoned.into_inner()).0
            } else {
                self.ready.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner())
            };
            state.idle -= 1;
        }
    }

    /// Frees the subjects of finished commands.
    pub(crate) fn release(&self, subjects: &[Subject]) {
        let mut state = self.lock();
        for subject in subjects {
            state.busy.remove(subject);
        }
        if state.idle > 0 && !state.queued.is_empty() {
            self.ready.notify_one();
        }
    }

    /// Refuses all queued commands, and all later ones.
    pub(crate) fn stop(&self, error: &StoreError) {
        let mut state = self.lock();
        state.stopped = Some(error.clone());
        let queued = std::mem::take(&mut state.queued);
        drop(state);
        refuse(queued, error);
    }

    /// The error that stopped the queue, if one did.
    pub(crate) fn stopped(&self) -> Option<StoreError> {
        self.lock().stopped.clone()
    }

    /// Lets the lanes end once the queue is empty.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.ready.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn refuse(jobs: impl IntoIterator<Item = QueuedJob>, error: &StoreError) {
    for mut queued in jobs {
        queued.job.fail(error.clone());
        queued.job.reply();
    }
}

impl State {
    fn select(&mut self, most: usize) -> Vec<QueuedJob> {
        let mut batch: Vec<QueuedJob> = Vec::new();
        let mut left = VecDeque::new();
        let mut left_subjects = HashSet::new();
        let mut now = None;
        while let Some(queued) = self.queued.pop_front() {
            let early =
                queued.wait.not_before.is_some_and(|at| at > *now.get_or_insert_with(Instant::now));
            let subject = Subject::of(&queued.job);
            let free = !early && !self.busy.contains(&subject) && !left_subjects.contains(&subject);
            if !free || (!queued.is_batchable() && !batch.is_empty()) {
                // A command does not overtake another one about the same subject.
                left_subjects.insert(subject);
                left.push_back(queued);
                continue;
            }
            self.busy.insert(subject);
            let alone = !queued.is_batchable();
            batch.push(queued);
            if alone || batch.len() == most {
                break;
            }
        }
        left.append(&mut self.queued);
        self.queued = left;
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_core::attempt::AttemptId;
    use hapax_core::effect::Report;
    use hapax_core::key::Key;
    use hapax_core::name::Namespace;
    use hapax_store::command::{Settle, Sweep};
    use hapax_store::outbox::Attachments;

    fn settle(key: u8, attempt: u8) -> QueuedJob {
        let settle = Settle {
            name: Name { namespace: Namespace::default(), key: Key::from_bytes([key; 32]) },
            attempt: AttemptId::from_bytes([attempt; 16]),
            fence: None,
            report: Report::Failed(String::new()),
            attachments: Attachments::default(),
        };
        QueuedJob::new(Job::of(settle).0)
    }

    fn sweep() -> QueuedJob {
        QueuedJob::new(Job::of(Sweep { limit: 1 }).0)
    }

    fn attempts(batch: &[QueuedJob]) -> Vec<u8> {
        let attempt = |queued: &QueuedJob| match &queued.job {
            Job::Settle(job) => job.command.attempt.as_bytes()[0],
            _ => 0,
        };
        batch.iter().map(attempt).collect()
    }

    #[test]
    fn one_command_per_key_at_a_time_and_in_order() {
        let queue = Queue::default();
        queue.push([settle(1, 1), settle(1, 2), settle(2, 3), settle(1, 4), sweep(), settle(3, 5)]);
        let first = queue.take(10).unwrap();
        assert_eq!(attempts(&first), [1, 3, 5]);
        assert_eq!(attempts(&queue.take(10).unwrap()), [0], "a command about the store goes alone");
        queue.put_back(first);
        assert_eq!(attempts(&queue.take(2).unwrap()), [1, 3]);
        queue.release(&[Subject::of(&settle(1, 1).job)]);
        assert_eq!(
            attempts(&queue.take(10).unwrap()),
            [5, 2],
            "a command that was put back goes first"
        );
    }

    #[test]
    fn a_closed_queue_is_emptied_first() {
        let queue = Queue::default();
        queue.push([settle(1, 1)]);
        queue.close();
        assert_eq!(attempts(&queue.take(10).unwrap()), [1]);
        assert!(queue.take(10).is_none());
    }
}
