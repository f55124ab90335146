//! Requests that happen once.
//!
//! ```text
//!  no key ──▶ passed on, or 400 where a key is required
//!  a key  ──▶ another caller's?        409, unless keys are scoped by callers
//!             other request under it?  422 (Stripe, AWS: 400), also while it is in flight
//!             answered before?         the same answer, Idempotent-Replayed: true
//!             in flight?               409, or waited for
//!             outcome unknown?         409 of its own type, until the outcome is known
//!             else                     passed on, once
//! ```
//!
//! The scope of a key is the tenant, the method and the path, and the caller where an [`Identity`]
//! names it. A request with a key is passed on only after the ledger recorded it: without the ledger
//! the answer is 503. A request that the service refused (401, 403, 407, 429) leaves its key free.

mod caller;
mod grpc;
mod keyed;
mod layer;
mod settings;
mod stored;

pub use caller::Identity;
pub use keyed::PendingRequest;
pub use layer::{Idempotency, IdempotencyLayer};
pub(crate) use layer::{RecordedReason, written_down};
pub(crate) use settings::wait_of;
pub use settings::{KeyNeed, OnInFlight, Preset, Settings, Settlement, Tenant};
