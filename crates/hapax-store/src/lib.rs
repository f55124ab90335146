//! The seam between hapax and a database.
//!
//! [`Store`] is what the engine talks to. For each noun a backend implements the trait that reads
//! its rows and the one that writes them; [`View`] and [`Txn`] are the sums. [`ledger::apply`] does
//! the rest: it loads, asks `hapax-core`, and writes. No backend decides anything, and no SQL
//! crosses this line.
//!
//! [`MemoryStore`] is the oracle the others are compared with, and is public for your own
//! tests. [`conformance!`] runs the one suite that defines what a store is.

mod clock;
mod epoch;
mod error;
mod job;
mod lease;
mod limits;
mod lock;
mod memory;
mod step;
mod store;
mod token;
mod txn;

pub mod command;
pub mod conformance;
pub mod dataset;
pub mod delivery;
pub mod effect;
#[doc(hidden)]
pub mod failpoint;
pub mod journal;
pub mod ledger;
pub mod ontology;
pub mod outbox;
pub mod part;
pub mod result_index;
pub mod route;
pub mod spool;

pub use clock::{Clock, ManualClock};
pub use command::{LeaseAnswer, ShareAnswer};
pub use dataset::{DatasetTxn, DatasetView};
pub use delivery::{DeliveryTxn, DeliveryView};
pub use effect::{EffectRecord, EffectStatus, EffectTxn, EffectView, Filter, HolderStatus, Unheld};
pub use epoch::{EpochTxn, EpochView};
pub use error::StoreError;
pub use job::{Job, Pending, Request};
pub use journal::{Head, JournalTxn, JournalView, SealedTile};
pub use lease::{LeaseTxn, LeaseView};
pub use limits::Limits;
pub use lock::{LockTxn, LockView};
pub use memory::MemoryStore;
pub use ontology::{OntologyTxn, OntologyView};
pub use outbox::{OutboxTxn, OutboxView};
pub use part::{PartTxn, PartView};
pub use result_index::{ResultIndexTxn, ResultIndexView};
pub use route::{RouteTxn, RouteView};
pub use step::{Step, StepTxn, StepView};
pub use store::{Reading, Store, answered, call, read};
pub use token::{TokenTxn, TokenView};
pub use txn::{Txn, View};
