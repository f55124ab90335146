//! Following events: every process can read them, from when it begins to listen.
//!
//! Nothing is delivered or kept for a follower: it misses the events of the time when it is away.
//! One task of a process reads new records for all its followers.

use std::sync::{Arc, Weak};
use std::time::Duration;

use hapax_core::name::Namespace;
use hapax_core::outbox::Record;
use hapax_core::route::fits;
use hapax_store::outbox::FollowCursor;
use hapax_store::read;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::task::AbortHandle;

use super::Outbox;
use crate::engine::Inner;
use crate::error::Error;

/// How often to poll for new records.
const POLL: Duration = Duration::from_millis(100);
/// How many records are read at once, and how many a follower may be behind.
const BATCH: usize = 1_000;
const BEHIND: usize = 4_096;

/// The channel to the followers of a process, and the task that feeds it. The task ends with its
/// runtime, and another one takes over.
pub(crate) type FollowBus =
    tokio::sync::Mutex<Option<(broadcast::Sender<Arc<Record>>, AbortHandle)>>;

/// Events as any process records them. Made by [`Outbox::follow`].
pub struct Following {
    records: broadcast::Receiver<Arc<Record>>,
    namespace: Namespace,
    event: String,
    dataset: String,
}

/// The follower was slow and missed this many events. Read the whole state again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} events were dropped: the subscriber fell behind")]
pub struct Missed(pub u64);

impl Following {
    /// The next event that fits. It never comes once the ledger is closed.
    pub async fn next(&mut self) -> Result<Arc<Record>, Missed> {
        loop {
            match self.records.recv().await {
                Ok(record)
                    if record.name.namespace == self.namespace
                        && fits(&self.event, &record.event.name)
                        && fits(&self.dataset, &record.event.dataset) =>
                {
                    return Ok(record);
                }
                Ok(_) => {}
                Err(RecvError::Lagged(missed)) => return Err(Missed(missed)),
                Err(RecvError::Closed) => return std::future::pending().await,
            }
        }
    }
}

impl Outbox<'_> {
    /// Follows every event of these names about these datasets that this process or another records
    /// from now on. An event arrives within a fraction of a second. A `*` stands for any text.
    ///
    /// ```
    /// use hapax::outbox::{Event, OutboxConfig, Payload};
    /// use hapax::{Failure, Hapax, Key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let hapax = Hapax::builder().in_memory();
    /// // Events that are only followed need a route, but no sink.
    /// hapax.outbox().configure(&OutboxConfig::new().route("ontology_*", "*", &[])?).await?;
    /// let mut following = hapax.outbox().follow("ontology_*", "*").await?;
    /// let key = Key::derive("ontology.v1", &[("version", b"7")])?;
    /// hapax
    ///     .effect(key)
    ///     .run(|claim| async move {
    ///         claim.emit(Event::new("ontology_updated", "sports", Payload::parse(b"7")?))?;
    ///         Ok::<_, Failure>("updated")
    ///     })
    ///     .await?;
    /// assert_eq!(following.next().await?.event.dataset, "sports");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn follow(self, event: &str, dataset: &str) -> Result<Following, Error> {
        let mut follow_bus = self.hapax.inner.follow_bus.lock().await;
        let records = match &*follow_bus {
            Some((sender, task)) if !task.is_finished() => sender.subscribe(),
            _ => {
                let cursor = read(&*self.hapax.inner.store, |view| view.follow_cursor()).await?;
                let (sender, receiver) = broadcast::channel(BEHIND);
                let inner = Arc::downgrade(&self.hapax.inner);
                let task = tokio::spawn(poll(inner, sender.clone(), cursor));
                *follow_bus = Some((sender, task.abort_handle()));
                receiver
            }
        };
        let (event, dataset) = (event.to_owned(), dataset.to_owned());
        Ok(Following { records, namespace: self.hapax.namespace().clone(), event, dataset })
    }
}

/// Reads new records for as long as there is a follower.
async fn poll(
    inner: Weak<Inner>,
    sender: broadcast::Sender<Arc<Record>>,
    mut cursor: FollowCursor,
) {
    loop {
        tokio::time::sleep(POLL).await;
        let Some(inner) = inner.upgrade().filter(|inner| !inner.is_closed()) else { return };
        {
            let mut follow_bus = inner.follow_bus.lock().await;
            if sender.receiver_count() == 0 {
                *follow_bus = None;
                return;
            }
        }
        loop {
            let from = cursor.clone();
            match read(&*inner.store, move |view| view.records_after(from, BATCH)).await {
                Ok((records, now)) => {
                    let is_last = records.len() < BATCH;
                    cursor = now;
                    for record in records {
                        let _ = sender.send(Arc::new(record));
                    }
                    if is_last {
                        break;
                    }
                }
                Err(error) => {
                    tracing::warn!(name: "following_waits", %error, "reading new records for followers failed; retrying");
                    break;
                }
            }
        }
    }
}
