//! The seam between hapax and a database.
//!
//! [`Store`] is what the engine talks to. A backend implements [`View`] and [`Txn`], which
//! load and write rows, and [`ledger::apply`] does the rest: it loads, asks `hapax-core`, and
//! writes. No backend decides anything, and no SQL crosses this line.
//!
//! [`MemoryStore`] is the oracle the others are compared with, and is public for your own
//! tests. [`conformance!`] runs the one suite that defines what a store is.

mod clock;
mod command;
mod error;
mod memory;
mod txn;

pub mod conformance;
pub mod dataset;
#[doc(hidden)]
pub mod failpoint;
pub mod journal;
pub mod ledger;
pub mod outbox;
pub mod part;
pub mod result_index;

pub use clock::{Clock, ManualClock};
pub use command::{
    Answer, Command, Job, LeaseAnswer, Limits, Reading, Store, call, call_here, read,
};
pub use error::StoreError;
pub use memory::MemoryStore;
pub use outbox::{OutboxTxn, OutboxView};
pub use part::{PartTxn, PartView};
pub use result_index::{ShelfTxn, ShelfView};
pub use txn::{Filter, Found, Head, SealedTile, Step, Txn, View};
