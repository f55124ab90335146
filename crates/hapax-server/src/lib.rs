//! hapax over HTTP.
//!
//! A request with an `Idempotency-Key` is an effect of the ledger. [`idempotency`] gives any
//! service those semantics as a tower layer; [`proxy`] puts them in front of a service that knows
//! nothing of them; [`listener`] accepts connections and gives up on slow ones.

pub mod idempotency;
pub mod listener;
pub mod problem;
pub mod proxy;
