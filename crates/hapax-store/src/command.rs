//! The commands that the engine sends to a store.
//!
//! [`Request::Answer`](crate::Request::Answer) is what a command is answered with.

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::dataset::{Dataset, Registry};
use hapax_core::delivery::Buckets;
use hapax_core::effect::{Ask, Finding, Report, Resolution, Seen};
use hapax_core::epoch::Domain;
use hapax_core::lease::{Lease, LeaseId};
use hapax_core::name::{Name, Namespace};
use hapax_core::result_index::{CacheAccess, Evict as Eviction, Ontology};
use hapax_core::route::SinkName;
use hapax_core::time::LeaseInstant;
use hapax_core::token::{Token, TokenId};

pub use crate::delivery::Redrive;
use crate::journal::SealedTile;
use crate::outbox::{Attachments, DeliveryResult, Routing, SendBatch};
use crate::step::Step;

/// Open a lease.
#[derive(Debug, Clone)]
pub struct OpenLease {
    /// The lease.
    pub id: LeaseId,
    /// How long a renewal lasts.
    pub term_ms: u64,
    /// The holder, for people.
    pub holder: String,
    /// Whether the holder caches no outcomes, so that no reset or eviction has to wait for it.
    pub forgetful: bool,
}

/// Renew a lease whose holder has acted upon every notice up to `seen`.
#[derive(Debug, Clone)]
pub struct RenewLease {
    /// The lease.
    pub id: LeaseId,
    /// The newest notice acted upon.
    pub seen: u64,
}

/// Close a lease. Claims that still depend on it lapse.
#[derive(Debug, Clone)]
pub struct CloseLease {
    /// The lease.
    pub id: LeaseId,
}

/// Ask for permission to perform an effect.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The effect's name.
    pub name: Name,
    /// The terms of the claim.
    pub ask: Ask,
}

/// Report how an attempt went.
#[derive(Debug, Clone)]
pub struct Settle {
    /// The effect's name.
    pub name: Name,
    /// The attempt that reports.
    pub attempt: AttemptId,
    /// The fence that the attempt was granted with. A claimant that never learned of its grant
    /// names none.
    pub fence: Option<Fence>,
    /// How it went.
    pub report: Report,
    /// The events, note, index entry and part to record with the report.
    pub attachments: Attachments,
}

/// Report a reconciler's finding.
#[derive(Debug, Clone)]
pub struct Reconcile {
    /// The effect's name.
    pub name: Name,
    /// The attempt that the reconciler looked for.
    pub attempt: AttemptId,
    /// That attempt's fence.
    pub fence: Fence,
    /// When the reconciler began to look, by the store's clock.
    pub looked: LeaseInstant,
    /// The finding.
    pub finding: Finding,
}

/// Record a person's decision.
#[derive(Debug, Clone)]
pub struct Resolve {
    /// The effect's name.
    pub name: Name,
    /// The attempt and state that the person was shown.
    pub seen: Seen,
    /// The decision.
    pub resolution: Resolution,
    /// The actor's name, for the journal.
    pub actor: String,
    /// The reason, for the journal.
    pub note: String,
}

/// Register how to undo a step, before it is taken.
#[derive(Debug, Clone)]
pub struct RegisterStep {
    /// The effect's name.
    pub name: Name,
    /// The attempt that takes the step.
    pub attempt: AttemptId,
    /// The step.
    pub step: Step,
    /// The step's position among the attempt's steps, from 0. A caller that may register a step
    /// twice gives it.
    pub nth: Option<usize>,
}

/// Record that all registered steps were undone.
#[derive(Debug, Clone)]
pub struct RolledBack {
    /// The effect's name.
    pub name: Name,
    /// The attempt that left the effect partial.
    pub attempt: AttemptId,
}

/// Clear a record so that a new generation can begin.
#[derive(Debug, Clone)]
pub struct Reset {
    /// The effect's name.
    pub name: Name,
    /// The attempt and state that the person was shown.
    pub seen: Seen,
    /// The actor's name, for the journal.
    pub actor: String,
    /// The reason, for the journal.
    pub note: String,
}

/// Move a domain to a new epoch, and void the effects that are open in the old one.
#[derive(Debug, Clone)]
pub struct Advance {
    /// The namespace.
    pub namespace: Namespace,
    /// The domain.
    pub domain: Domain,
    /// The epoch to end. If it is over already, nothing happens.
    pub seen: u64,
    /// The new epoch.
    pub to: u64,
    /// The actor's name, for the journal.
    pub actor: String,
    /// The reason, for the journal.
    pub reason: String,
}

/// Expire effects that lapsed holders left running, at most this many.
#[derive(Debug, Clone)]
pub struct Expire {
    /// The most to process.
    pub limit: usize,
}

/// Remove expired records, at most this many.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// The most to process.
    pub limit: usize,
}

/// Add leaves to the journal's tree, if the tree still has the size that the plan was made for.
#[derive(Debug, Clone)]
pub struct Seal {
    /// The tree's size when the plan was made.
    pub from: u64,
    /// The entries that become leaves, in order.
    pub leaves: Vec<u64>,
    /// The tiles that change.
    pub tiles: Vec<SealedTile>,
    /// The signed checkpoint of the new size.
    pub note: String,
}

/// Admit callers that present this token.
#[derive(Debug, Clone)]
pub struct AdmitToken(
    /// The token.
    pub Token,
);

/// Refuse callers that present this token.
#[derive(Debug, Clone)]
pub struct Revoke {
    /// The token.
    pub token: TokenId,
}

/// Replace the declared sinks and routes.
#[derive(Debug, Clone)]
pub struct Configure(
    /// The sinks and routes.
    pub Routing,
);

/// Replace the guards, and the declaration of each dataset that is given.
#[derive(Debug, Clone)]
pub struct Register(
    /// The guards and the declarations.
    pub Registry,
);

/// Declare one dataset, or remove its declaration.
#[derive(Debug, Clone)]
pub struct Declare {
    /// The dataset's name.
    pub name: String,
    /// The declaration; none removes it.
    pub dataset: Option<Dataset>,
}

/// Replace an ontology, or remove it.
#[derive(Debug, Clone)]
pub struct PutOntology {
    /// The namespace.
    pub namespace: Namespace,
    /// The ontology's id.
    pub id: String,
    /// The ontology; none removes it. The store sets its time.
    pub ontology: Option<Ontology>,
    /// The actor's name, for the journal.
    pub actor: String,
}

/// Record cache accesses.
#[derive(Debug, Clone)]
pub struct RecordAccesses(
    /// The accesses.
    pub Vec<CacheAccess>,
);

/// Remove results, at most this many.
#[derive(Debug, Clone)]
pub struct Evict {
    /// The namespace.
    pub namespace: Namespace,
    /// The results to remove.
    pub which: Eviction,
    /// The most to process.
    pub limit: usize,
}

/// Pause or resume a sink.
#[derive(Debug, Clone)]
pub struct Pause {
    /// The sink.
    pub sink: SinkName,
    /// Whether the sink is paused.
    pub paused: bool,
}

/// Claim a dispatcher's share of the outbox's buckets, and give up the others.
#[derive(Debug, Clone)]
pub struct Share {
    /// The dispatcher's lease.
    pub lease: LeaseId,
    /// The buckets that the dispatcher still uses.
    pub keep: Buckets,
}

/// Give up all buckets of a dispatcher.
#[derive(Debug, Clone)]
pub struct Retire {
    /// The dispatcher's lease.
    pub lease: LeaseId,
}

/// Record delivery results, and the deliveries to send next.
#[derive(Debug, Clone)]
pub struct Dispatch {
    /// The dispatcher's lease.
    pub lease: LeaseId,
    /// The delivery results.
    pub results: Vec<DeliveryResult>,
    /// The numbers of the send batches that are over.
    pub ended: Vec<u64>,
    /// The send batches that begin once this command is durable.
    pub starting: Vec<SendBatch>,
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
