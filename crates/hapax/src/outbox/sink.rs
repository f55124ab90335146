//! What a sink is.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hapax_core::delivery::{Heals, Policy, Refusal, Sent};
use hapax_core::outbox::{Record, Track};
use tokio::sync::mpsc;

/// A record on its way to a sink.
#[derive(Debug, Clone)]
pub struct Letter {
    /// What to deliver. Its id is the same on every try.
    pub record: Arc<Record>,
    /// What it waits in line with.
    pub track: Track,
    /// Which try this is, from 1.
    pub attempt: u32,
}

/// Where events are delivered to.
pub trait Sink: Send + Sync + 'static {
    /// Sends letters, and tells of each what became of it, as soon as that is known.
    ///
    /// Letters of one track come in order. Once one of them was not delivered, those behind it
    /// must not be sent; simply do not tell of them. A sink that is down may refuse one and leave
    /// the rest.
    fn send(&self, letters: &[Letter], told: &Told) -> impl Future<Output = ()> + Send;

    /// How long the receiver remembers ids, so that it can tell a repetition.
    fn remembers(&self) -> Option<Duration> {
        None
    }
}

/// How a sink is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinkSettings {
    /// What to do about trouble.
    pub policy: Policy,
    /// How many letters it is given at once at most.
    pub batch: usize,
    /// How many it may have at the same time.
    pub window: usize,
}

impl Default for SinkSettings {
    fn default() -> Self {
        Self { policy: Policy::default(), batch: 512, window: 2048 }
    }
}

/// Where a sink says what became of letters. Cheap to clone.
#[derive(Clone)]
pub struct Told {
    flight: u64,
    told: mpsc::UnboundedSender<(u64, usize, Sent)>,
}

impl Told {
    pub(crate) fn new(flight: u64, told: mpsc::UnboundedSender<(u64, usize, Sent)>) -> Self {
        Self { flight, told }
    }

    /// The sink has the letter at this place, and will not lose it.
    pub fn delivered(&self, nth: usize) {
        self.tell(nth, Sent::Delivered { duplicate: false });
    }

    /// The sink says that it had the letter before.
    pub fn duplicate(&self, nth: usize) {
        self.tell(nth, Sent::Delivered { duplicate: true });
    }

    /// The letter was not delivered, or nobody knows. Say nothing of what it says.
    pub fn refused(&self, nth: usize, reason: impl Into<String>, heals: Heals) {
        self.tell(nth, Sent::Refused(Refusal { reason: reason.into(), heals }));
    }

    fn tell(&self, nth: usize, sent: Sent) {
        let _ = self.told.send((self.flight, nth, sent));
    }
}

/// The same for the engine, which keeps sinks of all kinds.
pub(crate) trait DynSink: Send + Sync + 'static {
    fn send<'a>(
        &'a self,
        letters: &'a [Letter],
        told: &'a Told,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

    fn remembers(&self) -> Option<Duration>;
}

impl<S: Sink> DynSink for S {
    fn send<'a>(
        &'a self,
        letters: &'a [Letter],
        told: &'a Told,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(Sink::send(self, letters, told))
    }

    fn remembers(&self) -> Option<Duration> {
        Sink::remembers(self)
    }
}
