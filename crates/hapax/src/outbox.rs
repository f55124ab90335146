//! From the ledger to the outside world.
//!
//! A [`Dispatcher`] serves some of the outbox's buckets; the dispatchers of other processes serve
//! the rest. It records a try, sends it, and then records the result.

mod breaker;
mod dispatcher;
pub(crate) mod follow;
mod pending;
mod sink;
mod sink_queue;
mod telemetry;
mod work;

pub use dispatcher::{Dispatcher, DispatcherStatus};
pub use follow::{Following, Missed};
pub use sink::{Acks, Delivery, Sink, SinkSettings};

pub use hapax_core::dataset::Dataset;
pub use hapax_core::delivery::{DeliveryRefusal, OnExhausted, Policy, Retryability, Sent};
pub use hapax_core::guard::Guards;
pub use hapax_core::outbox::{Artifact, Event, Order, OutboxId, Payload, Record, Status, Trace};
pub use hapax_core::route::{Route, SinkName, SinkNameError, fits, sinks as routed};
pub use hapax_store::outbox::{DeliveryStatus, RecordFilter, RecordStatus, Redrive, SinkStats};

use std::collections::BTreeMap;
use std::sync::Arc;

use hapax_core::dataset::Registry;
use hapax_store::outbox::Routing;
use hapax_store::{command, read};

use crate::engine::Hapax;
use crate::error::Error;

/// Where events go: sinks by their names, and routes to them.
///
/// ```
/// use std::sync::Arc;
/// use hapax::outbox::{Event, Delivery, Outbox, Payload, Sink, Acks};
/// use hapax::{Failure, Hapax, Key};
///
/// /// Prints what it is given.
/// struct Printer;
///
/// impl Sink for Printer {
///     async fn send(&self, letters: &[Delivery], told: &Acks) {
///         for (nth, letter) in letters.iter().enumerate() {
///             println!("{} {}", letter.record.id, letter.record.event.payload.as_str());
///             told.delivered(nth);
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let hapax = Hapax::builder().in_memory();
/// let outbox = Outbox::new().sink("printer", Printer)?.route("order_*", "*", &["printer"])?;
/// let dispatcher = hapax.dispatch(outbox).await?;
///
/// let key = Key::derive("order.v1", &[("id", b"42")])?;
/// hapax
///     .effect(key)
///     .run(|claim| async move {
///         let payload = Payload::parse(br#"{"order": 42}"#)?;
///         claim.emit(Event::new("order_placed", "orders", payload))?;
///         Ok::<_, Failure>("placed")
///     })
///     .await?;
/// dispatcher.idle().await;
/// dispatcher.stop().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct Outbox {
    pub(crate) sinks: BTreeMap<SinkName, (Arc<dyn sink::DynSink>, SinkSettings)>,
    routes: Vec<Route>,
    registry: Registry,
}

impl Outbox {
    /// Without sinks or routes.
    pub fn new() -> Self {
        Self::default()
    }

    /// With this sink, and the settings it comes with.
    pub fn sink(self, name: &str, sink: impl Sink) -> Result<Self, SinkNameError> {
        self.sink_with(name, sink, SinkSettings::default())
    }

    /// With this sink and these settings.
    pub fn sink_with(
        mut self,
        name: &str,
        sink: impl Sink,
        settings: SinkSettings,
    ) -> Result<Self, SinkNameError> {
        self.sinks.insert(SinkName::new(name)?, (Arc::new(sink), settings));
        Ok(self)
    }

    /// With a route: events of these names about these datasets go to these sinks. A `*` stands
    /// for any text.
    pub fn route(
        mut self,
        event: &str,
        dataset: &str,
        sinks: &[&str],
    ) -> Result<Self, SinkNameError> {
        let sinks = sinks.iter().map(|name| SinkName::new(name)).collect::<Result<_, _>>()?;
        self.routes.push(Route { event: event.into(), dataset: dataset.into(), sinks });
        Ok(self)
    }

    /// With these guards; all of them are up unless said otherwise.
    pub fn guards(mut self, guards: Guards) -> Self {
        self.registry.guards = guards;
        self
    }

    /// With the declaration of a dataset.
    pub fn dataset(mut self, name: &str, dataset: Dataset) -> Self {
        self.registry.datasets.insert(name.to_owned(), dataset);
        self
    }

    fn routing(&self) -> Routing {
        let remembers = |(name, (sink, _)): (&SinkName, &(Arc<dyn sink::DynSink>, _))| {
            (name.clone(), sink.remembers().map(|time| time.as_millis() as u64))
        };
        let sinks = self.sinks.iter().map(remembers).collect();
        Routing { sinks, routes: self.routes.clone() }
    }
}

impl Hapax {
    /// Declares sinks and routes in place of the earlier ones, and datasets, each in place of its
    /// earlier declaration. They hold for every process on this ledger, and for events that are
    /// emitted from now on.
    pub async fn configure(&self, outbox: &Outbox) -> Result<(), Error> {
        self.call(command::Register(outbox.registry.clone())).await?;
        self.call(command::Configure(outbox.routing())).await
    }

    /// The routes as they are declared now.
    pub async fn routes(&self) -> Result<Vec<Route>, Error> {
        Ok(read(&*self.inner.store, |view| view.routing()).await?.routes)
    }

    /// Declares sinks and routes, and begins to deliver events of every namespace.
    pub async fn dispatch(&self, outbox: Outbox) -> Result<Dispatcher, Error> {
        self.configure(&outbox).await?;
        self.inner.start();
        Ok(Dispatcher::start(self.inner.clone(), outbox.sinks))
    }

    /// A record of this namespace, and the state of its deliveries.
    pub async fn record(&self, id: OutboxId) -> Result<Option<RecordStatus>, Error> {
        let mut found = read(&*self.inner.store, move |view| view.records(&[id])).await?;
        let mine = |found: &RecordStatus| found.record.name.namespace == self.namespace;
        Ok(found.pop().flatten().filter(mine))
    }

    /// Records of this namespace, newest first.
    pub async fn records(&self, filter: RecordFilter) -> Result<Vec<RecordStatus>, Error> {
        let filter = RecordFilter { namespace: Some(self.namespace.clone()), ..filter };
        Ok(read(&*self.inner.store, move |view| view.outbox(&filter)).await?)
    }

    /// The number of deliveries in each state at each sink, of all namespaces.
    pub async fn outbox_stats(&self) -> Result<Vec<SinkStats>, Error> {
        Ok(read(&*self.inner.store, |view| view.outbox_stats()).await?)
    }

    /// Pauses a sink on every node, or resumes it. Returns whether there is such a sink.
    pub async fn pause(&self, sink: &SinkName, paused: bool) -> Result<bool, Error> {
        self.call(command::Pause { sink: sink.clone(), paused }).await
    }

    /// Redrives dead letters of this namespace, at most so many at once. Returns how many. It
    /// leaves those whose receiver may have forgotten their ids, unless `redrive` allows them.
    pub async fn redrive(&self, redrive: Redrive) -> Result<usize, Error> {
        let namespace = self.namespace.clone();
        self.call(Redrive { namespace, ..redrive }).await
    }
}
