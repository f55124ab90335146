//! hapax over HTTP.
//!
//! A request with an `Idempotency-Key` is an effect of the ledger. [`idempotency`] gives any service
//! those semantics as a tower layer. [`proxy`] puts them in front of a service that knows nothing of
//! keys. [`watch`] reports its health and metrics, and [`telemetry`] exports them to a collector.
//! [`listener`] accepts connections and closes slow ones. [`server`] serves the ledger itself: the [`api`], for callers with [`access`].

pub mod access;
pub mod api;
mod body;
mod budget;
pub mod idempotency;
pub mod listener;
mod maintenance;
mod metrics;
pub mod problem;
pub mod proxy;
mod runs;
pub mod server;
pub mod telemetry;
pub mod tls;
pub mod watch;
pub mod wire;

/// README's Rust, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
