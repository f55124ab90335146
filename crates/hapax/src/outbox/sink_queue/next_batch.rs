//! Which deliveries are sent next: ordering keys in turns, and each in order.

use std::collections::VecDeque;
use std::time::Duration;

use hapax_core::delivery::OnExhausted;
use hapax_core::outbox::OrderingKeyHash;
use hapax_store::outbox::DeliveryResult;
use tokio::time::Instant;

use super::SinkQueue;
use super::ordering_key::{History, KeyState, OrderingKey, PendingDelivery};
use crate::outbox::sink::Delivery;

/// How long a retry is put off when the retry budget is spent.
const NO_BUDGET: Duration = Duration::from_millis(200);

impl SinkQueue {
    /// The deliveries of the next batch. Deliveries that are not tried any more are added to
    /// `given_up`.
    pub(in crate::outbox) fn next_batch(
        &mut self,
        now: Instant,
        given_up: &mut Vec<(Delivery, DeliveryResult)>,
    ) -> Vec<Delivery> {
        self.wake(now);
        let room = self.room(now);
        let mut batch = Vec::new();
        let attempts = self.settings.policy.attempts;
        while batch.len() < room
            && let Some(namespace) = self.turns.pop_front()
        {
            let Some(hash) = self.ready.get_mut(&namespace).and_then(VecDeque::pop_front) else {
                self.ready.remove(&namespace);
                continue;
            };
            self.turns.push_back(namespace);
            let key = self.keys.get_mut(&hash).filter(|key| key.state == KeyState::Ready);
            let Some(key) = key else { continue };
            let Some(first) = key.deliveries.front() else { continue };
            if first.due > now {
                let due = first.due;
                self.wait(hash, due);
                continue;
            }
            let history = first.history(attempts);
            match history {
                History::Refused if !self.breaker.is_open() && !self.budget.retry(now) => {
                    self.wait(hash, now + NO_BUDGET);
                    continue;
                }
                History::Barred => {
                    given_up.extend(self.give_up(hash, now));
                    continue;
                }
                History::Deadly if self.settings.policy.on_exhausted != OnExhausted::Block => {
                    given_up.extend(self.give_up(hash, now));
                    continue;
                }
                History::Suspect | History::Deadly if self.in_flight > 0 || !batch.is_empty() => {
                    key.state = KeyState::Alone;
                    self.alone.push_back(hash);
                    continue;
                }
                _ => {}
            }
            let count = sent_together(key, history, attempts, room - batch.len(), now);
            key.state = KeyState::InFlight(count);
            batch.extend(key.deliveries.iter().take(count).map(|one| Delivery {
                record: one.record.clone(),
                ordering_hash: hash,
                attempt: one.tried + 1,
            }));
            if history != History::Refused {
                self.budget.first(count);
            }
            if matches!(history, History::Suspect | History::Deadly) {
                self.sent_alone = true;
                break;
            }
        }
        if !batch.is_empty() {
            self.breaker.sends();
        }
        self.in_flight += batch.len();
        batch
    }

    /// Schedules the keys that have waited long enough.
    fn wake(&mut self, now: Instant) {
        while let Some(first) = self.waiting.first().copied().filter(|(due, _)| *due <= now) {
            self.waiting.remove(&first);
            let (due, hash) = first;
            if self.keys.get(&hash).is_some_and(|key| key.state == KeyState::Waiting(due)) {
                self.schedule(hash, now);
            }
        }
    }

    /// How many deliveries can be sent now. A key that is sent alone waits until nothing else is in
    /// flight, and keeps all others from being sent until it has its result.
    fn room(&mut self, now: Instant) -> usize {
        self.sent_alone &= self.in_flight > 0;
        if self.paused || self.sent_alone {
            return 0;
        }
        while let Some(hash) = self.alone.front().copied() {
            match self.keys.get_mut(&hash) {
                Some(key) if key.state == KeyState::Alone => {
                    if self.in_flight > 0 {
                        return 0;
                    }
                    self.alone.pop_front();
                    self.schedule_first(hash);
                    break;
                }
                _ => self.alone.pop_front(),
            };
        }
        let room = self.settings.window.saturating_sub(self.in_flight).min(self.settings.batch);
        self.breaker.admits(now, room)
    }

    /// Puts a key before all others.
    fn schedule_first(&mut self, hash: OrderingKeyHash) {
        let Some(key) = self.keys.get_mut(&hash) else { return };
        key.state = KeyState::Ready;
        let Some(first) = key.deliveries.front() else { return };
        let namespace = first.record.name.namespace.clone();
        self.ready.entry(namespace.clone()).or_default().push_front(hash);
        self.turns.push_front(namespace);
    }

    /// Schedules a key that is drained or waits. One without deliveries is dropped, unless the store
    /// has more of them.
    pub(super) fn schedule(&mut self, hash: OrderingKeyHash, now: Instant) {
        let Some(key) = self.keys.get_mut(&hash) else { return };
        if !matches!(key.state, KeyState::Drained | KeyState::Waiting(_)) {
            return;
        }
        match key.deliveries.front() {
            None if key.left_out.is_some() => key.state = KeyState::Drained,
            None => {
                self.keys.remove(&hash);
            }
            Some(first) if first.due > now => {
                let due = first.due;
                self.wait(hash, due);
            }
            Some(first) => {
                let namespace = first.record.name.namespace.clone();
                key.state = KeyState::Ready;
                self.ready.entry(namespace.clone()).or_default().push_back(hash);
                if !self.turns.contains(&namespace) {
                    self.turns.push_back(namespace);
                }
            }
        }
    }

    fn wait(&mut self, hash: OrderingKeyHash, until: Instant) {
        let Some(key) = self.keys.get_mut(&hash) else { return };
        key.state = KeyState::Waiting(until);
        self.waiting.insert((until, hash));
    }
}

/// How many deliveries of a key are sent in one batch. A delivery that failed before leaves without
/// those behind it, because it may fail again.
fn sent_together(
    key: &OrderingKey,
    history: History,
    attempts: u32,
    room: usize,
    now: Instant,
) -> usize {
    if history != History::Clean {
        return 1;
    }
    let clean = |one: &&PendingDelivery| one.history(attempts) == History::Clean && one.due <= now;
    key.deliveries.iter().take(room).take_while(clean).count()
}
