//! The hapax ledger in one SQLite file.
//!
//! One writer thread commits the waiting commands in one transaction; two reader threads read
//! beside it; a checkpointer moves the write-ahead log into the file. Several processes may share
//! the file. SQL lives here and decides nothing.

mod clock;
mod connection;
mod dataset;
mod doctor;
mod effect;
mod epoch;
mod error;
mod foreign;
mod hot;
pub mod inbox;
mod journal;
mod key_index;
mod lease;
mod lock;
mod log;
mod memory;
mod outbox;
mod part;
mod presence;
mod reader;
mod seen;
mod shelf;
mod store;
mod token;
mod turn;
mod txn;
mod writer;

pub use clock::BootClock;
pub use connection::SCHEMA;
pub use doctor::Ailment;
pub use store::{Options, SqliteStore};
