//! The interface of a sink.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hapax_core::delivery::{DeliveryRefusal, Policy, Retryability, Sent};
use hapax_core::outbox::{OrderingKeyHash, Record};
use tokio::sync::mpsc;

/// A record on its way to a sink.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The record to deliver. Its id is the same on every try.
    pub record: Arc<Record>,
    /// Its ordering key: deliveries of one key keep their order.
    pub ordering_hash: OrderingKeyHash,
    /// Which try this is, from 1.
    pub attempt: u32,
}

/// Where events are delivered to.
pub trait Sink: Send + Sync + 'static {
    /// Sends deliveries, and reports the result of each as soon as it is known.
    ///
    /// Deliveries of one ordering key come in order. Once one of them was not delivered, those
    /// behind it must not be sent; simply report nothing about them. A sink that is down may refuse
    /// one delivery and leave the rest.
    fn send(&self, deliveries: &[Delivery], acks: &Acks) -> impl Future<Output = ()> + Send;

    /// How long the receiver remembers ids, so that it recognises a duplicate.
    fn remembers(&self) -> Option<Duration> {
        None
    }
}

/// The settings of a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinkSettings {
    /// When to retry, and when to give up.
    pub policy: Policy,
    /// How many deliveries it gets at once at most.
    pub batch: usize,
    /// How many of its deliveries may be in flight at the same time.
    pub window: usize,
}

impl Default for SinkSettings {
    fn default() -> Self {
        Self { policy: Policy::default(), batch: 512, window: 2048 }
    }
}

/// Where a sink reports the results of deliveries. Cheap to clone.
#[derive(Clone)]
pub struct Acks {
    batch: u64,
    results: mpsc::UnboundedSender<Ack>,
}

/// A sink's report on one delivery of a batch.
pub(crate) struct Ack {
    pub(crate) batch: u64,
    /// The delivery's position in the batch.
    pub(crate) position: usize,
    pub(crate) sent: Sent,
}

impl Acks {
    pub(crate) fn new(batch: u64, results: mpsc::UnboundedSender<Ack>) -> Self {
        Self { batch, results }
    }

    /// The sink has the delivery at this position, and will not lose it.
    pub fn delivered(&self, position: usize) {
        self.report(position, Sent::Delivered { duplicate: false });
    }

    /// The sink says that it had the delivery before.
    pub fn duplicate(&self, position: usize) {
        self.report(position, Sent::Delivered { duplicate: true });
    }

    /// The delivery failed, or its result is unknown. The reason must not quote the record.
    pub fn refused(&self, position: usize, reason: impl Into<String>, retryability: Retryability) {
        self.report(
            position,
            Sent::Refused(DeliveryRefusal { reason: reason.into(), retryability }),
        );
    }

    fn report(&self, position: usize, sent: Sent) {
        let _ = self.results.send(Ack { batch: self.batch, position, sent });
    }
}

/// The same in a form that the engine can keep for sinks of all kinds.
pub(crate) trait DynSink: Send + Sync + 'static {
    fn send<'a>(
        &'a self,
        deliveries: &'a [Delivery],
        acks: &'a Acks,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

    fn remembers(&self) -> Option<Duration>;
}

impl<S: Sink> DynSink for S {
    fn send<'a>(
        &'a self,
        deliveries: &'a [Delivery],
        acks: &'a Acks,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(Sink::send(self, deliveries, acks))
    }

    fn remembers(&self) -> Option<Duration> {
        Sink::remembers(self)
    }
}
