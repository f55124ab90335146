//! Requests that happen once.
//!
//! ```text
//!  no key ──▶ passed on, or 400 where a key is required
//!  a key  ──▶ other body under it?  422, also while it is in flight
//!             answered before?      the same answer, Idempotent-Replayed: true
//!             in flight?            409, or waited for
//!             outcome unknown?      409 of its own type, until somebody has found out
//!             else                  passed on, once
//! ```
//!
//! The scope of a key is the tenant, the method and the path. Nothing is passed on that the ledger
//! could not write down first: without it the answer is 503.

mod grpc;
mod layer;
mod settings;
mod stored;

pub(crate) use layer::written_down;
pub use layer::{Asked, Idempotency, IdempotencyLayer};
pub(crate) use settings::wait_of;
pub use settings::{Fate, KeyNeed, OnInFlight, Preset, Settings, Tenant};
