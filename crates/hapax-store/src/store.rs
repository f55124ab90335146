//! The store: what carries out commands and reads, and how a caller waits for it.

use std::future::Future;

use hapax_core::lease::LeaseId;
use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::job::{Job, Request};
use crate::txn::View;

/// The work of one read. It gets a view, or the error that prevented one.
pub type Reading = Box<dyn FnOnce(Result<&mut dyn View, StoreError>) + Send>;

/// A ledger that carries out commands and reads.
pub trait Store: Send + Sync + 'static {
    /// Carries out commands in order, each with its own answer. The store may return before they
    /// are done, and carries them out even if the caller stops waiting.
    fn submit(&self, jobs: Vec<Job>);

    /// Carries out one command on the calling thread if the store is idle, which saves waking
    /// another thread. Otherwise gives the command back. Blocks for the length of one commit.
    fn submit_here(&self, job: Job) -> Option<Job> {
        Some(job)
    }

    /// Reads from one consistent view. The store may return before the read is done.
    fn read(&self, reading: Reading);

    /// Ties a lease that is about to be opened to the life of this process, where the store
    /// can tell when a process dies.
    fn attach(&self, lease: LeaseId) -> Result<(), StoreError> {
        let _ = lease;
        Ok(())
    }
}

/// Submits one command and waits for its answer. The command is on its way when this
/// returns, not when the future is first polled.
pub fn call<R: Request>(
    store: &dyn Store,
    command: R,
) -> impl Future<Output = Result<R::Answer, StoreError>> + Send + use<R> {
    let (job, answer) = Job::of(command);
    store.submit(vec![job]);
    answered(answer)
}

/// Reads something and waits for it.
pub fn read<T, F>(
    store: &dyn Store,
    reading: F,
) -> impl Future<Output = Result<T, StoreError>> + Send + use<T, F>
where
    T: Send + 'static,
    F: FnOnce(&mut dyn View) -> Result<T, StoreError> + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    store.read(Box::new(move |view| {
        let _ = reply.send(view.and_then(reading));
    }));
    let closed = || StoreError::Unavailable("the store was closed".into());
    async move { answer.await.unwrap_or_else(|_| Err(closed())) }
}

/// Waits for the answer to a command. A command that was dropped without one may have been carried
/// out.
pub async fn answered<T>(
    answer: oneshot::Receiver<Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let unanswered = || StoreError::CommitUnknown("the store was closed before it answered".into());
    answer.await.unwrap_or_else(|_| Err(unanswered()))
}
