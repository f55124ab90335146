//! The configuration of an outbox: its sinks, routes and datasets.

use std::collections::BTreeMap;
use std::sync::Arc;

use hapax_core::dataset::{Dataset, Registry};
use hapax_core::guard::Guards;
use hapax_core::route::{Route, SinkName, SinkNameError};
use hapax_store::outbox::Routing;

use super::sink::{DynSink, Sink, SinkSettings};

/// Where events go: sinks by their names, and routes to them.
///
/// ```
/// use std::sync::Arc;
/// use hapax::outbox::{Acks, Delivery, Event, OutboxConfig, Payload, Sink};
/// use hapax::{Failure, Hapax, Key};
///
/// /// Prints what it is given.
/// struct Printer;
///
/// impl Sink for Printer {
///     async fn send(&self, deliveries: &[Delivery], acks: &Acks) {
///         for (position, delivery) in deliveries.iter().enumerate() {
///             println!("{} {}", delivery.record.id, delivery.record.event.payload.as_str());
///             acks.delivered(position);
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let hapax = Hapax::builder().in_memory();
/// let outbox = OutboxConfig::new().sink("printer", Printer)?.route("order_*", "*", &["printer"])?;
/// let dispatcher = hapax.outbox().dispatch(outbox).await?;
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
pub struct OutboxConfig {
    pub(crate) sinks: BTreeMap<SinkName, (Arc<dyn DynSink>, SinkSettings)>,
    routes: Vec<Route>,
    pub(super) registry: Registry,
}

impl OutboxConfig {
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

    pub(super) fn routing(&self) -> Routing {
        let remembers = |(name, (sink, _)): (&SinkName, &(Arc<dyn DynSink>, _))| {
            (name.clone(), sink.remembers().map(|time| time.as_millis() as u64))
        };
        let sinks = self.sinks.iter().map(remembers).collect();
        Routing { sinks, routes: self.routes.clone() }
    }
}
