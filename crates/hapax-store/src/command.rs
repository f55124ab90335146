//! What the engine asks of a store, and what it is told.

use std::future::Future;

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::dataset::{Dataset, Registry};
use hapax_core::delivery::Buckets;
use hapax_core::effect::{Ask, Finding, Judged, Report, Resolution, Seen, Settled, Verdict};
use hapax_core::epoch::{Domain, Transition};
use hapax_core::lease::{Lease, LeaseId};
use hapax_core::name::{Name, Namespace};
use hapax_core::route::SinkName;
use hapax_core::shelf::{Evict, Heard, Ontology};
use hapax_core::time::LeaseInstant;
use hapax_core::token::{Token, TokenId};
use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::outbox::{Flight, Landed, Redrive, Routing, Telling};
use crate::txn::{SealedTile, Step, View};

/// One command. Commands share transactions but not fates.
#[derive(Debug, Clone)]
pub enum Command {
    /// Begin to hold a lease.
    OpenLease {
        /// Which.
        id: LeaseId,
        /// How long a renewal lasts.
        term_ms: u64,
        /// Who, for people.
        holder: String,
        /// Whether the holder remembers no outcomes, so that nobody has to wait for it.
        forgetful: bool,
    },
    /// Be back in time, having acted upon every notice up to `seen`.
    RenewLease {
        /// Which.
        id: LeaseId,
        /// The newest notice acted upon.
        seen: u64,
    },
    /// Give a lease back. Claims that still hang on it lapse.
    CloseLease {
        /// Which.
        id: LeaseId,
    },
    /// Ask for permission.
    Claim {
        /// For what.
        name: Name,
        /// On which terms.
        ask: Ask,
    },
    /// Report how it went.
    Settle {
        /// What.
        name: Name,
        /// The attempt that reports.
        attempt: AttemptId,
        /// The fence it was granted with; none from a claimant that was never told of its grant.
        fence: Option<Fence>,
        /// How.
        report: Report,
        /// What there is to tell of it, if it succeeded.
        telling: Telling,
    },
    /// Say what a reconciler found.
    Reconcile {
        /// What.
        name: Name,
        /// The attempt it looked for.
        attempt: AttemptId,
        /// That attempt's fence.
        fence: Fence,
        /// When it began to look, by the store's clock.
        looked: LeaseInstant,
        /// What it found.
        finding: Finding,
    },
    /// Say what a person decided.
    Resolve {
        /// What.
        name: Name,
        /// What the person was shown.
        seen: Seen,
        /// The decision.
        resolution: Resolution,
        /// Who.
        actor: String,
        /// Why.
        note: String,
    },
    /// Register how to undo a step, before it is taken.
    RegisterStep {
        /// Of what.
        name: Name,
        /// By whom.
        attempt: AttemptId,
        /// The step.
        step: Step,
        /// Which of the attempt's steps it is, from 0, where it may be registered twice.
        nth: Option<usize>,
    },
    /// Say that all registered steps were undone.
    RolledBack {
        /// What.
        name: Name,
        /// The attempt that left it partial.
        attempt: AttemptId,
    },
    /// Clear a record so that a new generation can begin.
    Reset {
        /// What.
        name: Name,
        /// What the person was shown.
        seen: Seen,
        /// Who.
        actor: String,
        /// Why.
        note: String,
    },
    /// Have a domain go over to a new epoch, and void what is under way in the one before.
    Advance {
        /// Whose.
        namespace: Namespace,
        /// Which.
        domain: Domain,
        /// The epoch that is to end. If it is over, nothing happens.
        seen: u64,
        /// The new epoch.
        to: u64,
        /// Who.
        actor: String,
        /// Why.
        reason: String,
    },
    /// Mark what lapsed holders left behind, at most this many.
    Expire {
        /// How many.
        limit: usize,
    },
    /// Forget expired records, at most this many.
    Sweep {
        /// How many.
        limit: usize,
    },
    /// Add leaves to the journal's tree, if it still has the size it was planned on.
    Seal {
        /// The size planned on.
        from: u64,
        /// The entries that become leaves, in order.
        leaves: Vec<u64>,
        /// The tiles that change.
        tiles: Vec<SealedTile>,
        /// The signed checkpoint of the new size.
        note: String,
    },
    /// Let somebody in who shows this token.
    Admit(Token),
    /// Let nobody in any more who shows this token.
    Revoke {
        /// Which.
        token: TokenId,
    },
    /// Declare sinks and routes, in place of those before.
    Configure(Routing),
    /// Declare guards, and datasets, each in place of what was declared of it before.
    Register(Registry),
    /// Declare one dataset, or that it is no longer declared.
    Declare {
        /// Which.
        name: String,
        /// As what.
        dataset: Option<Dataset>,
    },
    /// Keep an ontology in place of the one before, or none.
    Keep {
        /// Whose.
        namespace: Namespace,
        /// Which.
        id: String,
        /// As what; when it was kept is for the store to say.
        ontology: Option<Ontology>,
        /// Who.
        actor: String,
    },
    /// Write down what became of requests for results.
    Attend(Vec<Heard>),
    /// Remove results, at most this many.
    Evict {
        /// Whose.
        namespace: Namespace,
        /// Which.
        which: Evict,
        /// How many.
        limit: usize,
    },
    /// Pause a sink, or let it go on.
    Pause {
        /// Which.
        sink: SinkName,
        /// Whether it stops.
        paused: bool,
    },
    /// Try again what has failed.
    Redrive(Redrive),
    /// Look after some of the outbox's buckets, and let go of the others.
    Share {
        /// On which lease.
        lease: LeaseId,
        /// Those that are still in use.
        keep: Buckets,
    },
    /// Look after no bucket any more.
    Retire {
        /// Whose lease.
        lease: LeaseId,
    },
    /// Say what became of deliveries, and which are tried next.
    Dispatch {
        /// By whom.
        lease: LeaseId,
        /// What became of them.
        landed: Vec<Landed>,
        /// The flights that are over.
        over: Vec<u64>,
        /// The flights that begin once this is durable.
        departing: Vec<Flight>,
    },
}

/// The answer to a [`Command`], in the same order of kinds.
#[derive(Debug, Clone)]
pub enum Answer {
    /// To everything about leases.
    Lease(LeaseAnswer),
    /// To a claim.
    Claim(Verdict),
    /// To a settle, and to the registration of a step.
    Settle(Settled),
    /// To a judgement.
    Judged(Judged),
    /// To a wish for a new epoch.
    Epoch(Transition),
    /// To a pass: how much it did.
    Count(usize),
    /// To an ontology.
    Kept {
        /// The version of the one before.
        before: Option<String>,
    },
    /// To a request for buckets.
    Share {
        /// Those that are the dispatcher's.
        buckets: Buckets,
        /// How many it should have at most.
        fair: usize,
    },
}

/// What became of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// It is held.
    Held {
        /// As it stands now.
        lease: Lease,
        /// The newest notice: what the holder has to act upon.
        notice: u64,
    },
    /// It is gone for good. Open another.
    Dead,
}

/// A command and the one who waits for its answer.
#[derive(Debug)]
pub struct Job {
    /// What is asked.
    pub command: Command,
    /// Where the answer goes. Nobody may be listening; the command is carried out anyway.
    pub reply: oneshot::Sender<Result<Answer, StoreError>>,
}

/// Limits on what is stored. They hold for every store alike.
#[derive(Debug, Clone, Copy)]
pub struct Limits;

impl Limits {
    /// The longest label, holder or actor, in bytes.
    pub const LABEL: usize = 256;
    /// The longest note that a grant or a success has in the journal, in bytes.
    pub const NOTE: usize = 64 * 1024;
    /// How many rollback steps one attempt may register.
    pub const STEPS: usize = 64;
    /// The largest payload of a rollback step, in bytes.
    pub const STEP_PAYLOAD: usize = 64 * 1024;
    /// How many sinks there may be.
    pub const SINKS: usize = 64;
    /// How many routes.
    pub const ROUTES: usize = 1_000;
    /// How many datasets are declared.
    pub const DATASETS: usize = 100_000;
    /// How many domains with epochs there may be.
    pub const DOMAINS: usize = 10_000;
    /// How many ontologies a namespace may have.
    pub const ONTOLOGIES: usize = 10_000;
    /// The largest ontology, in bytes.
    pub const ONTOLOGY: usize = 32 * 1024 * 1024;
    /// The longest id of an ontology, in bytes.
    pub const ONTOLOGY_ID: usize = 2_048;
    /// How much is written down about requests at once.
    pub const HEARD: usize = 4_096;
    /// The most that is kept of a part, in bytes.
    pub const PART: usize = 4 * 1024 * 1024;
    /// How many tokens there may be.
    pub const TOKENS: usize = 10_000;
    /// The shortest lease, in milliseconds.
    pub const SHORTEST_TERM_MS: u64 = 100;
}

/// What a read does, once it has a view or knows that it cannot have one.
pub type Reading = Box<dyn FnOnce(Result<&mut dyn View, StoreError>) + Send>;

/// A ledger, somewhere.
pub trait Store: Send + Sync + 'static {
    /// Carries out commands, in order, each with its own answer. Returns at once; the jobs
    /// are carried out even if nobody waits for them.
    fn submit(&self, jobs: Vec<Job>);

    /// Carries out one command on the calling thread if nobody else is at work, which saves
    /// waking another; gives it back otherwise. Blocks for the length of one commit.
    fn submit_here(&self, job: Job) -> Option<Job> {
        Some(job)
    }

    /// Reads from one consistent view. Returns at once.
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

/// Like [`call`], on this thread if nobody else is at work.
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
