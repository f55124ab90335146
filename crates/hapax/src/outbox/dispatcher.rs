//! The handle on a running dispatcher.

use std::collections::BTreeMap;
use std::sync::Arc;

use hapax_core::route::SinkName;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::sink::{DynSink, SinkSettings};
use super::work::Work;
use crate::engine::Inner;
use crate::error::Error;

/// Delivers events for as long as it is held, or until it is stopped.
///
/// Dropping it stops it too, in the background, once the deliveries in flight have ended.
pub struct Dispatcher {
    orders: mpsc::UnboundedSender<Order>,
    standing: watch::Receiver<DispatcherStatus>,
    task: Option<JoinHandle<()>>,
}

/// The status of a dispatcher.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DispatcherStatus {
    /// How many of the 1,024 buckets it serves.
    pub buckets: usize,
    /// How many deliveries are in flight.
    pub aloft: usize,
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
pub(super) enum Order {
    Idle(oneshot::Sender<()>),
    Stop,
}

impl Dispatcher {
    pub(super) fn start(
        inner: Arc<Inner>,
        sinks: BTreeMap<SinkName, (Arc<dyn DynSink>, SinkSettings)>,
    ) -> Self {
        let (orders, received) = mpsc::unbounded_channel();
        let (standing, seen) = watch::channel(DispatcherStatus::default());
        let task = tokio::spawn(Work::new(inner, sinks, standing).run(received));
        Self { orders, standing: seen, task: Some(task) }
    }

    /// Returns once every record from before the call has been delivered or given up, as far as it
    /// lies in this dispatcher's buckets.
    pub async fn idle(&self) {
        let (done, told) = oneshot::channel();
        if self.orders.send(Order::Idle(done)).is_ok() {
            let _ = told.await;
        }
    }

    /// Its present status.
    pub fn standing(&self) -> DispatcherStatus {
        self.standing.borrow().clone()
    }

    /// Sends nothing more, waits for deliveries in flight, records their results, and lets other
    /// dispatchers take over.
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
