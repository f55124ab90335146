//! From the ledger to the outside world.
//!
//! A [`Dispatcher`] serves some of the outbox's buckets; the dispatchers of other processes serve
//! the rest. It records a try, sends it, and then records the result.

mod breaker;
mod config;
mod dispatcher;
pub(crate) mod follow;
mod sink;
mod sink_queue;
mod telemetry;

pub use config::OutboxConfig;
pub use dispatcher::{Dispatcher, DispatcherStatus};
pub use follow::{Following, Missed};
pub use sink::{Acks, Delivery, Sink, SinkSettings};

pub use hapax_core::dataset::Dataset;
pub use hapax_core::delivery::{DeliveryRefusal, OnExhausted, Policy, Retryability, Sent};
pub use hapax_core::guard::Guards;
pub use hapax_core::outbox::{Artifact, Event, Order, OutboxId, Payload, Record, Status, Trace};
pub use hapax_core::route::{Route, SinkName, SinkNameError, fits, sinks as routed};
pub use hapax_store::outbox::{DeliveryStatus, RecordFilter, RecordStatus, Redrive, SinkStats};

use std::sync::atomic::Ordering;

use hapax_store::{command, read};

use crate::engine::Hapax;
use crate::error::Error;

/// The outbox of a ledger: its sinks and routes, its records, and their delivery. Made by
/// [`Hapax::outbox`].
#[derive(Clone, Copy)]
pub struct Outbox<'a> {
    hapax: &'a Hapax,
}

impl Hapax {
    /// The outbox: sinks and routes, records and their deliveries.
    pub fn outbox(&self) -> Outbox<'_> {
        Outbox { hapax: self }
    }
}

impl Outbox<'_> {
    /// Declares sinks and routes in place of the earlier ones, and datasets, each in place of its
    /// earlier declaration. They hold for every process on this ledger, and for events that are
    /// emitted from now on.
    pub async fn configure(self, outbox: &OutboxConfig) -> Result<(), Error> {
        self.hapax.call(command::Register(outbox.registry.clone())).await?;
        self.hapax.call(command::Configure(outbox.routing())).await
    }

    /// The routes as they are declared now.
    pub async fn routes(self) -> Result<Vec<Route>, Error> {
        Ok(read(&*self.hapax.inner.store, |view| view.routing()).await?.routes)
    }

    /// Declares sinks and routes, and begins to deliver events of every namespace. Stop the last
    /// dispatcher of this ledger first: a ledger that was opened once has one at a time.
    pub async fn dispatch(self, outbox: OutboxConfig) -> Result<Dispatcher, Error> {
        self.configure(&outbox).await?;
        if self.hapax.inner.dispatches.swap(true, Ordering::AcqRel) {
            return Err(Error::Unsupported("this ledger has a dispatcher already; stop it first"));
        }
        self.hapax.inner.start();
        Ok(Dispatcher::start(self.hapax.inner.clone(), outbox.sinks))
    }

    /// A record of this namespace, and the state of its deliveries.
    pub async fn record(self, id: OutboxId) -> Result<Option<RecordStatus>, Error> {
        let mut found = read(&*self.hapax.inner.store, move |view| view.records(&[id])).await?;
        let mine = |found: &RecordStatus| found.record.name.namespace == self.hapax.namespace;
        Ok(found.pop().flatten().filter(mine))
    }

    /// Records of this namespace, newest first.
    pub async fn records(self, filter: RecordFilter) -> Result<Vec<RecordStatus>, Error> {
        let filter = RecordFilter { namespace: Some(self.hapax.namespace.clone()), ..filter };
        Ok(read(&*self.hapax.inner.store, move |view| view.outbox(&filter)).await?)
    }

    /// The number of deliveries in each state at each sink, of all namespaces.
    pub async fn stats(self) -> Result<Vec<SinkStats>, Error> {
        Ok(read(&*self.hapax.inner.store, |view| view.outbox_stats()).await?)
    }

    /// Pauses a sink on every node, or resumes it. Returns whether there is such a sink.
    pub async fn pause(self, sink: &SinkName, paused: bool) -> Result<bool, Error> {
        self.hapax.call(command::Pause { sink: sink.clone(), paused }).await
    }

    /// Redrives dead letters of this namespace, at most so many at once. Returns how many. It
    /// leaves those whose receiver may have forgotten their ids, unless `redrive` allows them.
    pub async fn redrive(self, redrive: Redrive) -> Result<usize, Error> {
        let namespace = self.hapax.namespace.clone();
        self.hapax.call(Redrive { namespace, ..redrive }).await
    }
}
