//! Sending: the batches that are in flight, and the sinks' reports on their deliveries.

use std::collections::HashMap;
use std::sync::Arc;

use hapax_core::delivery::{DeliveryRefusal, Retryability, Sent};
use hapax_store::outbox::{BatchedDelivery, SendBatch};
use tokio::sync::mpsc;

use crate::outbox::sink::{Ack, Acks, Delivery, DynSink};
use crate::outbox::sink_queue::SinkQueue;

pub(super) struct Sends {
    sinks: Vec<Arc<dyn DynSink>>,
    batches: HashMap<u64, InFlightBatch>,
    next_id: u64,
    acks: mpsc::UnboundedSender<Ack>,
    ended: mpsc::UnboundedSender<u64>,
}

/// The reports of sinks, and the numbers of the batches that have ended.
pub(super) struct Reports {
    pub(super) acks: mpsc::UnboundedReceiver<Ack>,
    pub(super) ended: mpsc::UnboundedReceiver<u64>,
}

struct InFlightBatch {
    /// The position of its sink.
    sink_index: usize,
    deliveries: Vec<Delivery>,
    /// Which of them need no further report.
    reported: Vec<bool>,
    /// Whether the sink has refused one of them.
    refused: bool,
}

impl Sends {
    pub(super) fn new(sinks: Vec<Arc<dyn DynSink>>) -> (Self, Reports) {
        let (acks, acks_received) = mpsc::unbounded_channel();
        let (ended, ended_received) = mpsc::unbounded_channel();
        let sends = Self { sinks, batches: HashMap::new(), next_id: 1, acks, ended };
        (sends, Reports { acks: acks_received, ended: ended_received })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Prepares a batch for the sink of a queue. It is sent once the attempt is recorded.
    pub(super) fn prepare(
        &mut self,
        sink_index: usize,
        queue: &SinkQueue,
        deliveries: Vec<Delivery>,
    ) -> SendBatch {
        let id = self.next_id;
        self.next_id += 1;
        let batched = deliveries.iter().map(|delivery| BatchedDelivery {
            seq: delivery.record.seq,
            ordering_hash: delivery.ordering_hash,
            tried: delivery.attempt,
        });
        let batch = SendBatch { id, sink: queue.sink.clone(), deliveries: batched.collect() };
        let reported = vec![false; deliveries.len()];
        let in_flight = InFlightBatch { sink_index, deliveries, reported, refused: false };
        self.batches.insert(id, in_flight);
        batch
    }

    /// Sends a batch: its attempt is recorded.
    pub(super) fn send(&self, id: u64) {
        let Some(batch) = self.batches.get(&id) else { return };
        let (sink, deliveries) = (self.sinks[batch.sink_index].clone(), batch.deliveries.clone());
        let (acks, ended) = (Acks::new(id, self.acks.clone()), self.ended.clone());
        tokio::spawn(async move {
            // Also when the sink panics.
            let _ended = BatchEnd(id, ended);
            sink.send(&deliveries, &acks).await;
        });
    }

    /// The delivery that a report is about, with the position of its sink. `None` if it needs no
    /// further report.
    pub(super) fn reported(&mut self, ack: &Ack) -> Option<(usize, Delivery)> {
        let batch = self.batches.get_mut(&ack.batch)?;
        let delivery = batch.deliveries.get(ack.position)?.clone();
        if std::mem::replace(&mut batch.reported[ack.position], true) {
            return None;
        }
        // Deliveries of the same key behind one that was not delivered were not sent.
        if !matches!(ack.sent, Sent::Delivered { .. }) {
            batch.refused |= matches!(ack.sent, Sent::Refused(_));
            for (at, other) in batch.deliveries.iter().enumerate().skip(ack.position + 1) {
                batch.reported[at] |= other.ordering_hash == delivery.ordering_hash;
            }
        }
        Some((batch.sink_index, delivery))
    }

    /// The reports that a sink left out of a batch that has ended. If the sink refused another delivery,
    /// it is taken to have stopped there; otherwise the result is unknown.
    pub(super) fn left_out(&self, id: u64) -> Vec<Ack> {
        let Some(batch) = self.batches.get(&id) else { return Vec::new() };
        let sent = match batch.refused {
            true => Sent::Held,
            false => Sent::Refused(DeliveryRefusal {
                reason: "the sink reported no result".into(),
                retryability: Retryability::Perhaps,
            }),
        };
        let unreported = (0..batch.deliveries.len()).filter(|position| !batch.reported[*position]);
        unreported.map(|position| Ack { batch: id, position, sent: sent.clone() }).collect()
    }

    /// Removes a batch that has ended. Returns whether it was in flight.
    pub(super) fn end(&mut self, id: u64) -> bool {
        self.batches.remove(&id).is_some()
    }

    /// Forgets all batches. Their deliveries may still arrive; the receiver recognises a duplicate
    /// by its id.
    pub(super) fn forget(&mut self) {
        self.batches.clear();
    }
}

/// Reports that a batch has ended, also when its sink panicked.
struct BatchEnd(u64, mpsc::UnboundedSender<u64>);

impl Drop for BatchEnd {
    fn drop(&mut self) {
        let _ = self.1.send(self.0);
    }
}
