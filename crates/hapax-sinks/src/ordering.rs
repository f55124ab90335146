//! Delivers events of one ordering key in order, and ordering keys in parallel.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use hapax::outbox::{Acks, Delivery, DeliveryRefusal, Record};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// The receiver's acknowledgement of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The event is new, as far as the receiver can tell.
    New,
    /// The receiver had the event already.
    #[cfg_attr(
        not(any(feature = "nats", feature = "redis")),
        expect(dead_code, reason = "only these receivers can tell")
    )]
    Known,
}

/// A receiver that takes one event at a time of each ordering key.
pub(crate) trait Deliver: Send + Sync + 'static {
    /// Limits how many ordering keys are sent at once.
    fn lanes(&self) -> &Semaphore;

    fn deliver(
        &self,
        record: &Record,
    ) -> impl Future<Output = Result<Arrival, DeliveryRefusal>> + Send;
}

/// Delivers events, those of an ordering key in order. After a refusal nothing more of that
/// ordering key is sent.
pub(crate) async fn by_ordering_key(to: &Arc<impl Deliver>, deliveries: &[Delivery], acks: &Acks) {
    let mut ordering_hashes: BTreeMap<_, Vec<(usize, Arc<Record>)>> = BTreeMap::new();
    for (nth, delivery) in deliveries.iter().enumerate() {
        ordering_hashes
            .entry(delivery.ordering_hash)
            .or_default()
            .push((nth, delivery.record.clone()));
    }
    let mut senders = JoinSet::new();
    for ordering_hash in ordering_hashes.into_values() {
        let (to, acks) = (to.clone(), acks.clone());
        senders.spawn(async move {
            let Ok(_lane) = to.lanes().acquire().await else { return };
            for (nth, record) in ordering_hash {
                match to.deliver(&record).await {
                    Ok(Arrival::New) => acks.delivered(nth),
                    Ok(Arrival::Known) => acks.duplicate(nth),
                    Err(DeliveryRefusal { reason, retryability }) => {
                        return acks.refused(nth, reason, retryability);
                    }
                }
            }
        });
    }
    while senders.join_next().await.is_some() {}
}
