//! Runs the caller's own code, and catches its panics.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

use crate::claim::Claim;

/// Runs a handler, and catches a panic of the call or of its future.
pub(crate) async fn caught<F, Fut, T>(handler: F, claim: Claim) -> Result<T, Box<dyn Any + Send>>
where
    F: FnOnce(Claim) -> Fut,
    Fut: Future<Output = T>,
{
    let future = catch_unwind(AssertUnwindSafe(|| handler(claim)))?;
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

/// The message of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
