//! The results of deliveries: how each changes the queue, and what is recorded of it.

use std::time::Duration;

use hapax_core::delivery::{DeliveryRefusal, Next, Retryability, Sent, judge};
use hapax_core::guard::redact;
use hapax_core::outbox::OrderingKeyHash;
use hapax_core::outcome::bounded;
use hapax_store::outbox::{DeliveryResult, Disposition};
use tokio::time::Instant;

use super::SinkQueue;
use super::ordering_key::{KeyState, OrderingKey};
use crate::outbox::sink::Delivery;

impl SinkQueue {
    /// The result of a delivery that was sent, to be recorded. `None` if there is nothing to record.
    pub(in crate::outbox) fn result(
        &mut self,
        delivery: &Delivery,
        sent: &Sent,
        now: Instant,
        dice: u64,
    ) -> Option<DeliveryResult> {
        self.keys.get(&delivery.ordering_hash)?.position(delivery.record.seq)?;
        match sent {
            Sent::Delivered { .. } => self.breaker.answered(),
            Sent::Refused(refusal) if refusal.retryability == Retryability::SinkDown => {
                let was_open = self.breaker.is_open();
                self.breaker.down(now, dice);
                if self.breaker.is_open() && !was_open {
                    let reason = redact(&refusal.reason);
                    tracing::warn!(name: "sink_down", sink = %self.sink, reason, "a sink is down; sending to it pauses");
                }
            }
            Sent::Refused(_) => self.breaker.answered(),
            Sent::Held => {}
        }
        self.decide(delivery, sent, now, dice)
    }

    /// Decides what follows from a result, without telling the breaker: [`give_up`](Self::give_up)
    /// calls it for a delivery that was not sent.
    fn decide(
        &mut self,
        delivery: &Delivery,
        sent: &Sent,
        now: Instant,
        dice: u64,
    ) -> Option<DeliveryResult> {
        let (seq, hash, tried) = (delivery.record.seq, delivery.ordering_hash, delivery.attempt);
        let key = self.keys.get_mut(&hash)?;
        let position = key.position(seq)?;
        let (transaction, row) =
            (key.deliveries[position].transaction, key.deliveries[position].row);
        let policy = &self.settings.policy;
        let next = judge(policy, tried, sent, self.breaker.is_open(), dice);
        let disposition = match (sent, next) {
            (Sent::Delivered { duplicate }, _) => Disposition::Delivered { duplicate: *duplicate },
            (Sent::Held, _) => {
                self.recall(hash, now);
                return None;
            }
            (Sent::Refused(refusal), Next::Fail { park }) => {
                Disposition::Failed { error: bounded(redact(&refusal.reason)), park }
            }
            (Sent::Refused(refusal), Next::Again { ms }) => {
                Disposition::Again { in_ms: ms, error: bounded(redact(&refusal.reason)) }
            }
            (Sent::Refused(_), Next::Done) => return None,
        };
        match &disposition {
            Disposition::Delivered { .. } => {
                self.remove(delivery, position);
                self.schedule(hash, now);
            }
            Disposition::Again { in_ms, .. } => {
                let one = &mut key.deliveries[position];
                (one.tried, one.refused, one.row) = (tried, true, 0);
                one.due = now + Duration::from_millis((*in_ms).max(1));
                self.recall(hash, now);
            }
            Disposition::Failed { park: false, .. } => {
                self.remove(delivery, position);
                self.recall(hash, now);
            }
            Disposition::Failed { park: true, .. } => {
                self.remove(delivery, position);
                self.park(hash, seq);
            }
        }
        let namespace = delivery.record.name.namespace.clone();
        let sink = self.sink.clone();
        Some(DeliveryResult { sink, namespace, transaction, row, seq, tried, disposition })
    }

    /// Removes a delivery that was in flight. Its number stays known until its result is durable.
    fn remove(&mut self, delivery: &Delivery, position: usize) {
        let Some(key) = self.keys.get_mut(&delivery.ordering_hash) else { return };
        key.remove(position);
        self.in_flight -= 1;
        if let Some(intake) = self.intakes.get_mut(&delivery.record.name.namespace) {
            intake.deliveries -= 1;
        }
    }

    /// The remaining deliveries of a key's batch are not in flight any more.
    fn recall(&mut self, hash: OrderingKeyHash, now: Instant) {
        let Some(key) = self.keys.get_mut(&hash) else { return };
        self.in_flight -= key.in_flight();
        if key.in_flight() > 0 {
            key.state = KeyState::Drained;
        }
        self.schedule(hash, now);
    }

    /// Parks a key behind a failed delivery, and drops its other deliveries.
    pub(super) fn park(&mut self, hash: OrderingKeyHash, failed: u64) {
        let key = self.keys.entry(hash).or_insert_with(OrderingKey::new);
        self.in_flight -= key.in_flight();
        key.state = KeyState::Parked { failed, missed_by: None };
        self.drop_deliveries(hash, 0);
    }

    /// The result of a delivery is durable. The newest fetch and the newest share request may have begun
    /// before that.
    pub(in crate::outbox) fn mark_durable(
        &mut self,
        (hash, seq): (OrderingKeyHash, u64),
        fetch: u64,
        request: u64,
    ) {
        self.durable.push_back((fetch, seq));
        self.mark_parked_durable(hash, seq, request);
    }

    /// The failure that parked a key is durable.
    pub(super) fn mark_parked_durable(
        &mut self,
        hash: OrderingKeyHash,
        seq: u64,
        newest_request: u64,
    ) {
        let Some(key) = self.keys.get_mut(&hash) else { return };
        if let KeyState::Parked { failed, missed_by: missed_by @ None } = &mut key.state
            && *failed == seq
        {
            *missed_by = Some(newest_request);
        }
    }

    /// Gives up the first delivery of a key: its dispatchers ended while they sent it, or a guard bars
    /// it. With `block` it is tried again, after a pause.
    pub(super) fn give_up(
        &mut self,
        hash: OrderingKeyHash,
        now: Instant,
    ) -> Option<(Delivery, DeliveryResult)> {
        let key = self.keys.get_mut(&hash)?;
        let first = key.deliveries.front()?;
        let barred = first.barred.clone();
        let record = first.record.clone();
        let delivery = Delivery { record, ordering_hash: hash, attempt: first.tried };
        key.state = KeyState::InFlight(1);
        self.in_flight += 1;
        let reason = match barred {
            Some(objection) => {
                tracing::warn!(name: "event_barred", sink = %self.sink, outbox_id = %delivery.record.id, objection, "the guards bar an event from leaving");
                format!("the guards bar it: {objection}")
            }
            None => {
                let tried = delivery.attempt;
                format!("{tried} dispatchers ended before they had the sink's answer")
            }
        };
        let sent = Sent::Refused(DeliveryRefusal { reason, retryability: Retryability::Never });
        let result = self.decide(&delivery, &sent, now, u64::MAX)?;
        Some((delivery, result))
    }
}
