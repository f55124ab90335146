//! The commands that the engine sends to a store, and the store's answers.

use std::future::Future;

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::dataset::{Dataset, Registry};
use hapax_core::delivery::Buckets;
use hapax_core::effect::{Ask, Finding, Judged, Report, Resolution, Seen, Settled, Verdict};
use hapax_core::epoch::{Domain, Transition};
use hapax_core::lease::{Lease, LeaseId};
use hapax_core::name::{Name, Namespace};
use hapax_core::result_index::{CacheAccess, Evict, Ontology};
use hapax_core::route::SinkName;
use hapax_core::time::LeaseInstant;
use hapax_core::token::{Token, TokenId};
use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::journal::SealedTile;
use crate::outbox::{Attachments, DeliveryResult, Redrive, Routing, SendBatch};
use crate::step::Step;
use crate::txn::View;

/// One command. Commands share transactions but not fates.
#[derive(Debug, Clone)]
pub enum Command {
    /// Open a lease.
    OpenLease {
        /// The lease.
        id: LeaseId,
        /// How long a renewal lasts.
        term_ms: u64,
        /// The holder, for people.
        holder: String,
        /// Whether the holder caches no outcomes, so that no reset or eviction has to wait for it.
        forgetful: bool,
    },
    /// Renew a lease whose holder has acted upon every notice up to `seen`.
    RenewLease {
        /// The lease.
        id: LeaseId,
        /// The newest notice acted upon.
        seen: u64,
    },
    /// Close a lease. Claims that still depend on it lapse.
    CloseLease {
        /// The lease.
        id: LeaseId,
    },
    /// Ask for permission to perform an effect.
    Claim {
        /// The effect's name.
        name: Name,
        /// The terms of the claim.
        ask: Ask,
    },
    /// Report how an attempt went.
    Settle {
        /// The effect's name.
        name: Name,
        /// The attempt that reports.
        attempt: AttemptId,
        /// The fence that the attempt was granted with. A claimant that never learned of its grant
        /// names none.
        fence: Option<Fence>,
        /// How it went.
        report: Report,
        /// The events, note, index entry and part to record with the report.
        telling: Attachments,
    },
    /// Report a reconciler's finding.
    Reconcile {
        /// The effect's name.
        name: Name,
        /// The attempt that the reconciler looked for.
        attempt: AttemptId,
        /// That attempt's fence.
        fence: Fence,
        /// When the reconciler began to look, by the store's clock.
        looked: LeaseInstant,
        /// The finding.
        finding: Finding,
    },
    /// Record a person's decision.
    Resolve {
        /// The effect's name.
        name: Name,
        /// The attempt and state that the person was shown.
        seen: Seen,
        /// The decision.
        resolution: Resolution,
        /// The actor's name, for the journal.
        actor: String,
        /// The reason, for the journal.
        note: String,
    },
    /// Register how to undo a step, before it is taken.
    RegisterStep {
        /// The effect's name.
        name: Name,
        /// The attempt that takes the step.
        attempt: AttemptId,
        /// The step.
        step: Step,
        /// The step's position among the attempt's steps, from 0. A caller that may register a step
        /// twice gives it.
        nth: Option<usize>,
    },
    /// Record that all registered steps were undone.
    RolledBack {
        /// The effect's name.
        name: Name,
        /// The attempt that left the effect partial.
        attempt: AttemptId,
    },
    /// Clear a record so that a new generation can begin.
    Reset {
        /// The effect's name.
        name: Name,
        /// The attempt and state that the person was shown.
        seen: Seen,
        /// The actor's name, for the journal.
        actor: String,
        /// The reason, for the journal.
        note: String,
    },
    /// Move a domain to a new epoch, and void the effects that are open in the old one.
    Advance {
        /// The namespace.
        namespace: Namespace,
        /// The domain.
        domain: Domain,
        /// The epoch to end. If it is over already, nothing happens.
        seen: u64,
        /// The new epoch.
        to: u64,
        /// The actor's name, for the journal.
        actor: String,
        /// The reason, for the journal.
        reason: String,
    },
    /// Expire effects that lapsed holders left running, at most this many.
    Expire {
        /// The most to process.
        limit: usize,
    },
    /// Remove expired records, at most this many.
    Sweep {
        /// The most to process.
        limit: usize,
    },
    /// Add leaves to the journal's tree, if the tree still has the size that the plan was made for.
    Seal {
        /// The tree's size when the plan was made.
        from: u64,
        /// The entries that become leaves, in order.
        leaves: Vec<u64>,
        /// The tiles that change.
        tiles: Vec<SealedTile>,
        /// The signed checkpoint of the new size.
        note: String,
    },
    /// Admit callers that present this token.
    Admit(Token),
    /// Refuse callers that present this token.
    Revoke {
        /// The token.
        token: TokenId,
    },
    /// Replace the declared sinks and routes.
    Configure(Routing),
    /// Replace the guards, and the declaration of each dataset that is given.
    Register(Registry),
    /// Declare one dataset, or remove its declaration.
    Declare {
        /// The dataset's name.
        name: String,
        /// The declaration; none removes it.
        dataset: Option<Dataset>,
    },
    /// Replace an ontology, or remove it.
    Keep {
        /// The namespace.
        namespace: Namespace,
        /// The ontology's id.
        id: String,
        /// The ontology; none removes it. The store sets its time.
        ontology: Option<Ontology>,
        /// The actor's name, for the journal.
        actor: String,
    },
    /// Record cache accesses.
    Attend(Vec<CacheAccess>),
    /// Remove results, at most this many.
    Evict {
        /// The namespace.
        namespace: Namespace,
        /// The results to remove.
        which: Evict,
        /// The most to process.
        limit: usize,
    },
    /// Pause or resume a sink.
    Pause {
        /// The sink.
        sink: SinkName,
        /// Whether the sink is paused.
        paused: bool,
    },
    /// Redrive failed deliveries.
    Redrive(Redrive),
    /// Claim a dispatcher's share of the outbox's buckets, and give up the others.
    Share {
        /// The dispatcher's lease.
        lease: LeaseId,
        /// The buckets that the dispatcher still uses.
        keep: Buckets,
    },
    /// Give up all buckets of a dispatcher.
    Retire {
        /// The dispatcher's lease.
        lease: LeaseId,
    },
    /// Record delivery results, and the deliveries to send next.
    Dispatch {
        /// The dispatcher's lease.
        lease: LeaseId,
        /// The delivery results.
        landed: Vec<DeliveryResult>,
        /// The numbers of the send batches that are over.
        over: Vec<u64>,
        /// The send batches that begin once this command is durable.
        departing: Vec<SendBatch>,
    },
}

/// The answer to a [`Command`], in the same order of kinds.
#[derive(Debug, Clone)]
pub enum Answer {
    /// To the lease commands.
    Lease(LeaseAnswer),
    /// To a claim.
    Claim(Verdict),
    /// To a settle, and to the registration of a step.
    Settle(Settled),
    /// To a reconciler's finding, a person's decision, a rollback or a reset.
    Judged(Judged),
    /// To an epoch transition.
    Epoch(Transition),
    /// To the other commands: how many items each one handled.
    Count(usize),
    /// To a change of an ontology.
    Kept {
        /// The version of the ontology before.
        before: Option<String>,
    },
    /// To a request for buckets.
    Share {
        /// The dispatcher's buckets.
        buckets: Buckets,
        /// The most buckets that it should have.
        fair: usize,
    },
}

/// A dispatcher's share of the buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareAnswer {
    /// The dispatcher's buckets.
    pub buckets: Buckets,
    /// The most buckets that it should have.
    pub fair: usize,
}

/// The state of a lease after a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// It is held.
    Held {
        /// As it stands now.
        lease: Lease,
        /// The newest notice, which the holder must act upon.
        notice: u64,
    },
    /// It is gone for good. Open another.
    Dead,
}

/// A command, and the channel to the caller that waits for its answer.
#[derive(Debug)]
pub struct Job {
    /// The command.
    pub command: Command,
    /// The channel for the answer. The command is carried out even if the caller no longer listens.
    pub reply: oneshot::Sender<Result<Answer, StoreError>>,
}

/// The work of one read. It gets a view, or the error that prevented one.
pub type Reading = Box<dyn FnOnce(Result<&mut dyn View, StoreError>) + Send>;

/// A ledger that carries out commands and reads.
pub trait Store: Send + Sync + 'static {
    /// Carries out commands in order, each with its own answer. The store may return before they
    /// are done, and carries them out even if the caller stops waiting.
    fn submit(&self, jobs: Vec<Job>);

    /// Carries out one command on the calling thread if the store is idle, which saves waking
    /// another thread. Otherwise gives the command back. Blocks for the length of one commit.
    fn submit_here(&self, job: Job) -> Option<Job> {
        Some(job)
    }

    /// Reads from one consistent view. The store may return before the read is done.
    fn read(&self, reading: Reading);

    /// Ties a lease that is about to be opened to the life of this process, where the store
    /// can tell when a process dies.
    fn attach(&self, lease: LeaseId) -> Result<(), StoreError> {
        let _ = lease;
        Ok(())
    }
}

/// Submits one command and waits for its answer. The command is on its way when this
/// returns, not when the future is first polled.
pub fn call(
    store: &dyn Store,
    command: Command,
) -> impl Future<Output = Result<Answer, StoreError>> + Send + use<> {
    let (reply, answer) = oneshot::channel();
    store.submit(vec![Job { command, reply }]);
    async { answer.await.unwrap_or_else(|_| Err(unanswered())) }
}

/// Like [`call`], but on this thread if the store is idle.
pub fn call_here(
    store: &dyn Store,
    command: Command,
) -> impl Future<Output = Result<Answer, StoreError>> + Send + use<> {
    let (reply, answer) = oneshot::channel();
    if let Some(job) = store.submit_here(Job { command, reply }) {
        store.submit(vec![job]);
    }
    async { answer.await.unwrap_or_else(|_| Err(unanswered())) }
}

/// Reads something and waits for it.
pub fn read<T, F>(
    store: &dyn Store,
    reading: F,
) -> impl Future<Output = Result<T, StoreError>> + Send + use<T, F>
where
    T: Send + 'static,
    F: FnOnce(&mut dyn View) -> Result<T, StoreError> + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    store.read(Box::new(move |view| {
        let _ = reply.send(view.and_then(reading));
    }));
    let closed = || StoreError::Unavailable("the store was closed".into());
    async move { answer.await.unwrap_or_else(|_| Err(closed())) }
}

/// A command that was dropped without an answer may have been carried out.
fn unanswered() -> StoreError {
    StoreError::CommitUnknown("the store was closed before it answered".into())
}
