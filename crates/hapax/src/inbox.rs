//! Receiving once.
//!
//! Events arrive at least once, under an id that does not change. A receiver that records the id in
//! the transaction that acts on the event acts on it once. It needs no ledger for that, only a
//! table of its own.
//!
//! ```
//! use hapax::inbox::{Receipt, sqlite};
//!
//! # let mut database = rusqlite::Connection::open_in_memory()?;
//! database.execute_batch(sqlite::SCHEMA)?;
//! for _ in 0..3 {
//!     let tx = database.transaction()?;
//!     if sqlite::receive_in(&tx, "shop", "0195b6f2-0d3c-7c9e-8000-000000000001")? == Receipt::First {
//!         // Act on it, in this transaction.
//!     }
//!     tx.commit()?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use hapax_core::inbox::{InboxError, Receipt};
#[cfg(feature = "postgres")]
pub use hapax_postgres::inbox as postgres;
pub use hapax_sqlite::inbox as sqlite;
