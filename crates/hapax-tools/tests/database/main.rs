//! Tools on the database that the ledger is in: a file, and a PostgreSQL server; and beside it.

mod kv;
mod payloads;
mod place;
mod reach_file;
#[cfg(feature = "postgres")]
mod reach_server;
mod sql;
