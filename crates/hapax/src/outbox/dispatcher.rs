//! The handle on a running dispatcher.
//!
//! Its [task](task) owns [buckets](ownership) of the outbox, [fetches](fetch) the due deliveries in
//! them, [records](record) each attempt before it [sends](send) it, and records the result.

mod fetch;
mod ownership;
mod record;
mod send;
mod task;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use hapax_core::route::SinkName;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use self::task::Task;
use super::sink::{DynSink, SinkSettings};
use crate::engine::Inner;
use crate::error::Error;

/// Delivers events for as long as it is held, or until it is stopped. A ledger that was opened once
/// has one at a time.
///
/// Dropping it stops it too, in the background, once the deliveries in flight have ended.
pub struct Dispatcher {
    orders: mpsc::UnboundedSender<Order>,
    status: watch::Receiver<DispatcherStatus>,
    task: Option<JoinHandle<()>>,
}

/// The status of a dispatcher.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DispatcherStatus {
    /// How many of the 1,024 buckets it serves.
    pub buckets: usize,
    /// How many deliveries are in flight.
    pub in_flight: usize,
    /// How many deliveries wait in this process.
    pub waiting: usize,
    /// How many it has delivered.
    pub delivered: u64,
    /// How many it gave up.
    pub failed: u64,
    /// The sinks that get nothing for now because they are down.
    pub down: Vec<SinkName>,
    /// The sinks that an operator has paused.
    pub paused: Vec<SinkName>,
}

/// The orders to the dispatcher's task.
enum Order {
    /// To answer once it has nothing to do.
    Idle(oneshot::Sender<()>),
    Stop,
}

impl Dispatcher {
    pub(super) fn start(
        inner: Arc<Inner>,
        sinks: BTreeMap<SinkName, (Arc<dyn DynSink>, SinkSettings)>,
    ) -> Self {
        let (orders, received) = mpsc::unbounded_channel();
        let (updates, status) = watch::channel(DispatcherStatus::default());
        let task = tokio::spawn(Task::new(inner, sinks, updates).run(received));
        Self { orders, status, task: Some(task) }
    }

    /// Returns once every record from before the call has been delivered or given up, as far as it
    /// lies in this dispatcher's buckets.
    pub async fn idle(&self) {
        let (answer, answered) = oneshot::channel();
        if self.orders.send(Order::Idle(answer)).is_ok() {
            let _ = answered.await;
        }
    }

    /// Its present status.
    pub fn status(&self) -> DispatcherStatus {
        self.status.borrow().clone()
    }

    /// Takes no further deliveries. Waits up to 20 seconds for the batches that were taken, records
    /// their results, and lets other dispatchers take over.
    pub async fn stop(mut self) -> Result<(), Error> {
        let _ = self.orders.send(Order::Stop);
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
        Ok(())
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Stop);
    }
}

/// A step that is under way, if one is.
type Step<T> = Option<Pin<Box<dyn Future<Output = T> + Send>>>;

/// Waits for the end of a step; for ever, if none is under way.
async fn ended<T>(step: &mut Step<T>) -> T {
    match step {
        Some(pending) => {
            let result = pending.await;
            *step = None;
            result
        }
        None => std::future::pending().await,
    }
}
