//! The handle on what delivers.

use std::collections::BTreeMap;
use std::sync::Arc;

use hapax_core::route::SinkName;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::sink::{DynSink, SinkSettings};
use super::work::Work;
use crate::engine::Inner;
use crate::error::Error;

/// Events are delivered for as long as this is held, or until it is stopped.
///
/// Dropping it stops it too, in the background: what is on its way is waited for.
pub struct Dispatcher {
    orders: mpsc::UnboundedSender<Order>,
    standing: watch::Receiver<Standing>,
    task: Option<JoinHandle<()>>,
}

/// How a dispatcher is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing {
    /// How many of the 1,024 buckets it looks after.
    pub buckets: usize,
    /// How many letters are on their way.
    pub aloft: usize,
    /// How many are waiting here.
    pub waiting: usize,
    /// How many it has delivered.
    pub delivered: u64,
    /// How many it gave up.
    pub failed: u64,
    /// The sinks that are left alone because they are down.
    pub down: Vec<SinkName>,
    /// The sinks that somebody has paused.
    pub paused: Vec<SinkName>,
}

/// What the task is told.
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
        let (standing, seen) = watch::channel(Standing::default());
        let task = tokio::spawn(Work::new(inner, sinks, standing).run(received));
        Self { orders, standing: seen, task: Some(task) }
    }

    /// Returns once everything that was recorded before the call has been delivered or given up,
    /// as far as this dispatcher looks after it.
    pub async fn idle(&self) {
        let (done, told) = oneshot::channel();
        if self.orders.send(Order::Idle(done)).is_ok() {
            let _ = told.await;
        }
    }

    /// How it is doing.
    pub fn standing(&self) -> Standing {
        self.standing.borrow().clone()
    }

    /// Sends nothing more, waits for what is on its way, writes down what became of it, and lets
    /// others take over.
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
