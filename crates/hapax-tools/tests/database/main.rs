//! Tools on the database that the ledger is in: a file, and a PostgreSQL server; and beside it.

mod fixture;
mod kv;
mod payloads;
mod reach_file;
#[cfg(feature = "postgres")]
mod reach_server;
mod sql;
