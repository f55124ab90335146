//! Control-plane requests that run once.
//!
//! A request is one of the [registered](Registry) computations. One that may be retried carries a
//! key derived from its name, the epoch of its domain and its bytes; a key of one epoch is worth
//! nothing in another. The sending side [dispatches](ControlPlane::dispatch), the receiving side
//! [receives](ControlReceiver::receive). Both consult the ledger before they send or run anything.
//!
//! ```
//! use hapax::Hapax;
//! use hapax_control::{ControlPlane, ControlReceiver, Registry, SendError};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let ours = Hapax::builder().in_memory();
//! # let theirs = Hapax::builder().in_memory();
//! let plane = ControlPlane::new(ours, Registry::standard());
//! let peer = ControlReceiver::new(theirs, Registry::standard());
//!
//! for _ in 0..2 {
//!     let answer = plane
//!         .dispatch("connector.rollout_notify.v1", br#"{"release":"1.4.2"}"#, |request| {
//!             let peer = peer.clone();
//!             async move {
//!                 // Over the wire this is a POST with `request.headers()` and `request.payload`.
//!                 let done = peer.receive(&request, |_| async { Ok("notified 3 nodes") }).await?;
//!                 Ok::<_, SendError>(done.outcome)
//!             }
//!         })
//!         .await?;
//!     assert_eq!(answer.body(), Some(&b"notified 3 nodes"[..]));
//! }
//! # Ok(())
//! # }
//! ```

mod epochs;
mod error;
mod event;
#[cfg(feature = "axum")]
mod extract;
mod plane;
mod receive;
mod registry;
pub mod remote;
mod request;

pub use epochs::Epochs;
pub use error::{Error, SendError};
#[cfg(feature = "axum")]
pub use extract::{Incoming, IncomingRejection};
pub use hapax::key::control::derive_key;
pub use plane::ControlPlane;
pub use receive::ControlReceiver;
pub use registry::{Computation, Pause, Registry, RegistryError, Retry, UnresolvedName};
pub use request::ControlRequest;
