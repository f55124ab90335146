//! Software retries, crashes and restarts, and then things happen twice or not at all: a dataset is
//! written twice, an e-mail is sent again, an extraction is paid for twice. hapax makes effects happen
//! once. Give an effect a key, and run it through the ledger:
//!
//! ```
//! use hapax::{Failure, Hapax, Key};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("hapax.db");
//! let hapax = Hapax::open(&path).await?;
//! let key = Key::derive("charge.v1", &[("order", b"42")])?;
//!
//! for _ in 0..3 {
//!     let done = hapax
//!         .effect(key)
//!         .payload(b"EUR 10.00")
//!         .run(|claim| async move {
//!             // Runs once. Hand `claim.fence()` to a target that compares numbers.
//!             assert_eq!(claim.nth(), 1);
//!             Ok::<_, Failure>("receipt 7")
//!         })
//!         .await?;
//!     assert_eq!(done.body(), Some(&b"receipt 7"[..]));
//! }
//! hapax.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The guarantee: *at most one recorded effect per key; at most one executed effect where
//! the target is transactional, or honours the key or the fence; otherwise the outcome is
//! called unknown and shown to someone. Never silently twice, never silently lost.*
//!
//! # Where things are
//!
//! [`Hapax`] is a ledger that is open in this process; it is cheap to clone. [`Hapax::effect`] runs an
//! effect. Inside your own transaction, [`EffectBuilder::once_in`] runs it, and [`Claim::settle_in`]
//! settles it. Everything else is under a noun:
//!
//! | handle | what it is for |
//! |---|---|
//! | [`hapax.effects()`](Hapax::effects) | shows and lists effects, and whether their holders live; records a person's decision about one; rolls back |
//! | [`hapax.journal()`](Hapax::journal) | the record of every transition: entries, histories, signed heads, proofs |
//! | [`hapax.outbox()`](Hapax::outbox) | events: sinks and routes, records, deliveries, dead letters, followers |
//! | [`hapax.datasets()`](Hapax::datasets) | declares datasets, and the rules that hold for them |
//! | [`hapax.epochs()`](Hapax::epochs) | the epoch that a domain is in, and the transition to the next |
//! | [`hapax.parts()`](Hapax::parts) | effects that belong to a whole, and the data kept with them |
//! | [`hapax.results()`](Hapax::results) | the result index, ontologies, and what the result cache holds |
//! | [`hapax.tokens()`](Hapax::tokens) | lets clients in where a ledger is served, and out again |
//! | [`hapax.remote()`](Hapax::remote) | leases, claims and reports for clients that perform effects elsewhere |
//! | [`hapax.maintenance()`](Hapax::maintenance) | the doctor, repairs, leases, namespaces, the store's clock |
//!
//! [`inbox`] is for the receivers of events. It needs no ledger, only a table.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | none | the ledger in one SQLite file, and a store in memory for tests |
//! | `postgres` | the ledger in a PostgreSQL database, shared by many nodes: [`Hapax::open`] takes its URL |
//! | `sqlx` | your own transactions in that database, where they are sqlx's; includes `postgres` |

mod abandoned;
mod budget;
mod cache;
mod claim;
mod counters;
mod dataset;
mod deadline;
mod doctor;
mod effect;
mod effects;
#[doc(hidden)]
pub mod election;
mod engine;
mod epoch;
mod error;
mod flight;
mod handler;
mod holder;
pub mod inbox;
mod journal;
mod maintenance;
mod notice;
mod once;
pub mod outbox;
pub mod part;
mod passes;
mod permit;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "proof")]
#[doc(hidden)]
pub mod proof;
mod redactor;
pub mod remote;
pub mod result_index;
mod rollback;
mod seal;
mod settle;
mod spool;
#[cfg(feature = "sqlx")]
mod sqlx;
mod token;
mod waiters;

pub use budget::Budget;
pub use claim::Claim;
pub use counters::Counts;
pub use dataset::Datasets;
pub use doctor::{Doctor, DoctorFinding, Severity};
pub use effect::{Done, EffectBuilder, How, LookupRequest, OnLock};
pub use effects::Effects;
pub use engine::{Builder, Hapax};
pub use epoch::Epochs;
pub use error::{Error, Failure, WorkResult};
pub use journal::{Journal, Sealed};
pub use maintenance::Maintenance;
pub use passes::Pass;
pub use redactor::Redactor;
pub use token::Tokens;

pub use hapax_core::attempt::{AttemptId, Fence};
pub use hapax_core::checkpoint::Verifier;
pub use hapax_core::dataset::{
    Dataset, LockPolicy, Refusal, Registry, Retries, Slo, Sovereignty, Tally,
};
pub use hapax_core::effect::{
    Blocked, Effect, Finding, Judged, Resolution, Safety, Seen, Settling, State, StateName,
};
pub use hapax_core::epoch::{Bound, Domain, DomainError, Mismatch, Transition};
pub use hapax_core::fingerprint::Fingerprint;
pub use hapax_core::journal::{Entry, EntryKind};
pub use hapax_core::key::{Key, KeyError};
pub use hapax_core::lease::{Lease, Liveness};
pub use hapax_core::lock::LockKey;
pub use hapax_core::name::{Name, Namespace};
pub use hapax_core::outcome::{Cause, Digest, Outcome};
pub use hapax_core::retry::Backoff;
pub use hapax_core::time::Timestamp;
pub use hapax_core::token::{Role, Secret, Token, TokenId};
pub use hapax_core::{canonical, checkpoint, document, guard, json, key, merkle};
#[cfg(feature = "postgres")]
pub use hapax_postgres::tokio_postgres;
pub use hapax_store::journal::{Damage, Proof, Verified};
pub use hapax_store::{
    EffectRecord, EffectStatus, Filter, HolderStatus, Limits, MemoryStore, Step, Store, StoreError,
    Unheld,
};
