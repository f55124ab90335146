//! The hapax ledger in one SQLite file.
//!
//! One writer thread commits the waiting commands in one transaction; two reader threads read
//! beside it; a checkpointer moves the write-ahead log into the file. Several processes may share
//! the file. SQL lives here and decides nothing.

mod clock;
mod connection;
mod connection_cache;
mod dataset;
mod delivery;
mod doctor;
mod effect;
mod epoch;
mod error;
mod foreign;
pub mod inbox;
mod journal;
mod lease;
mod liveness;
mod lock;
mod migrate;
mod namespace;
mod ontology;
mod outbox;
mod part;
mod query;
mod reader;
mod result_index;
mod route;
mod step;
mod store;
mod token;
mod txn;
mod write_ahead_log;
mod write_turn;
mod writer;

pub use clock::BootClock;
pub use doctor::FileProblem;
pub use migrate::SCHEMA;
pub use store::{Options, SqliteStore};
