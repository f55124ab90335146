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
    pub track: OrderingKeyHash,
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
    fn send(&self, letters: &[Delivery], told: &Acks) -> impl Future<Output = ()> + Send;

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
    flight: u64,
    told: mpsc::UnboundedSender<(u64, usize, Sent)>,
}

impl Acks {
    pub(crate) fn new(flight: u64, told: mpsc::UnboundedSender<(u64, usize, Sent)>) -> Self {
        Self { flight, told }
    }

    /// The sink has the delivery at this place, and will not lose it.
    pub fn delivered(&self, nth: usize) {
        self.tell(nth, Sent::Delivered { duplicate: false });
    }

    /// The sink says that it had the delivery before.
    pub fn duplicate(&self, nth: usize) {
        self.tell(nth, Sent::Delivered { duplicate: true });
    }

    /// The delivery failed, or its result is unknown. The reason must not quote the record.
    pub fn refused(&self, nth: usize, reason: impl Into<String>, heals: Retryability) {
        self.tell(nth, Sent::Refused(DeliveryRefusal { reason: reason.into(), heals }));
    }

    fn tell(&self, nth: usize, sent: Sent) {
        let _ = self.told.send((self.flight, nth, sent));
    }
}

/// The same in a form that the engine can keep for sinks of all kinds.
pub(crate) trait DynSink: Send + Sync + 'static {
    fn send<'a>(
        &'a self,
        letters: &'a [Delivery],
        told: &'a Acks,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

    fn remembers(&self) -> Option<Duration>;
}

impl<S: Sink> DynSink for S {
    fn send<'a>(
        &'a self,
        letters: &'a [Delivery],
        told: &'a Acks,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(Sink::send(self, letters, told))
    }

    fn remembers(&self) -> Option<Duration> {
        Sink::remembers(self)
    }
}
