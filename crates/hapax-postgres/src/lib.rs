//! The hapax ledger in a PostgreSQL database: many nodes, and the caller's own transactions.
//!
//! SQL only: rows are loaded, `hapax-core` decides, rows are written. The database enforces
//! what must never be wrong: one row a key, an append-only journal, dead leases that stay dead.

mod archive;
mod clock;
mod connect;
mod dataset;
mod delivery;
mod doctor;
mod effect;
mod epoch;
mod error;
mod follow;
pub mod foreign;
#[cfg(feature = "sqlx")]
pub mod foreign_sqlx;
pub mod inbox;
mod journal;
mod lane;
mod lease;
mod lock;
mod migrate;
mod namespace;
mod ontology;
mod outbox;
mod part;
mod queue;
mod quick;
mod reader;
mod result_index;
mod route;
mod statements;
mod step;
mod store;
mod token;
mod txn;
mod writes;

pub use archive::History;
pub use connect::client;
pub use doctor::DatabaseProblem;
pub use migrate::script;
pub use store::{Options, PgStore};
pub use tokio_postgres;
