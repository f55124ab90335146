//! The queue of one sink, in memory: which delivery is next, and which must wait.
//!
//! The deliveries of one ordering key leave one after the other, or several in one batch and in
//! order. Ordering keys do not wait for each other, and namespaces take turns.
//!
//! An [`OrderingKey`] has the state of its key. The three schedules (`ready`, `waiting`, `alone`)
//! say which key to look at next; an entry that the key's state contradicts is skipped.

mod ordering_key;
mod results;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use hapax_core::delivery::{Buckets, OnExhausted};
use hapax_core::name::Namespace;
use hapax_core::outbox::OrderingKeyHash;
use hapax_core::route::SinkName;
use hapax_core::time::Timestamp;
use hapax_store::outbox::{Cursor, DeliveryResult, FetchRequest, Page, QueuedDelivery};
use tokio::time::Instant;

use self::ordering_key::{History, KeyState, OrderingKey, PendingDelivery};
use super::breaker::Breaker;
use super::sink::{Delivery, SinkSettings};
use crate::budget::Budget;

/// How many deliveries of one namespace are kept here, and of one ordering key.
const PER_NAMESPACE: usize = 8_192;
const PER_KEY: usize = 1_024;

/// The most deliveries of one namespace that are fetched at once.
const PAGE: usize = 2_000;

/// How long a retry is put off when the retry budget is spent.
const NO_BUDGET: Duration = Duration::from_millis(200);

pub(super) struct SinkQueue {
    pub(super) sink: SinkName,
    settings: SinkSettings,
    intakes: BTreeMap<Namespace, Intake>,
    keys: HashMap<OrderingKeyHash, OrderingKey>,
    /// Keys that can be sent, by namespace; `turns` says which namespace is next.
    ready: HashMap<Namespace, VecDeque<OrderingKeyHash>>,
    turns: VecDeque<Namespace>,
    waiting: BTreeSet<(Instant, OrderingKeyHash)>,
    alone: VecDeque<OrderingKeyHash>,
    /// The sequence numbers of all deliveries that are here, or were until recently.
    known: HashSet<u64>,
    /// Fetches and sequence numbers whose results are durable: once a later fetch has ended, the
    /// number leaves `known`.
    durable: VecDeque<(u64, u64)>,
    in_flight: usize,
    /// Whether the delivery in flight is sent alone.
    sent_alone: bool,
    breaker: Breaker,
    budget: Budget,
    pub(super) paused: bool,
}

/// The deliveries that were taken in from one namespace.
#[derive(Default)]
struct Intake {
    cursor: Cursor,
    deliveries: usize,
}

impl SinkQueue {
    pub(super) fn new(sink: SinkName, settings: SinkSettings, now: Instant) -> Self {
        Self {
            sink,
            settings,
            intakes: BTreeMap::new(),
            keys: HashMap::new(),
            ready: HashMap::new(),
            turns: VecDeque::new(),
            waiting: BTreeSet::new(),
            alone: VecDeque::new(),
            known: HashSet::new(),
            durable: VecDeque::new(),
            in_flight: 0,
            sent_alone: false,
            breaker: Breaker::new(),
            budget: Budget::new(now),
            paused: false,
        }
    }

    /// The same queue, empty.
    pub(super) fn emptied(&self, now: Instant) -> Self {
        Self::new(self.sink.clone(), self.settings, now)
    }

    /// Takes in deliveries of these namespaces, too.
    pub(super) fn serve(&mut self, namespaces: &[Namespace]) {
        for namespace in namespaces {
            self.intakes.entry(namespace.clone()).or_default();
        }
    }

    /// Fetches from the beginning, because an operator changed something or this process gained
    /// buckets. `parked` are the keys that this share request found parked. Returns whether a key stays
    /// parked that the request did not find: only a later one can say whether it was redriven.
    pub(super) fn start_over(&mut self, parked: &[OrderingKeyHash], request: u64) -> bool {
        let found: HashSet<OrderingKeyHash> = parked.iter().copied().collect();
        let mut is_open = false;
        self.keys.retain(|hash, key| {
            let KeyState::Parked { missed_by, .. } = key.state else { return true };
            let stays = missed_by.is_none_or(|last| last >= request);
            is_open |= stays && !found.contains(hash);
            stays
        });
        for hash in found {
            let key = self.keys.get(&hash);
            if !key.is_some_and(|key| key.is_parked() || key.in_flight() > 0) {
                self.park(hash, 0);
                self.mark_parked_durable(hash, 0, 0);
            }
        }
        self.fetch_anew();
        is_open
    }

    /// Fetches from the beginning, because a pending fetch is lost, and with it the refills that it
    /// was to bring.
    pub(super) fn fetch_anew(&mut self) {
        self.intakes.values_mut().for_each(|intake| intake.cursor = Cursor::default());
    }

    /// The next requests: a page of each namespace that has room.
    pub(super) fn fetch_requests(&self) -> Vec<FetchRequest> {
        let roomy = self.intakes.iter().filter(|(_, one)| one.deliveries < PER_NAMESPACE / 2);
        let request = |(namespace, intake): (&Namespace, &Intake)| FetchRequest {
            sink: self.sink.clone(),
            namespace: namespace.clone(),
            cursor: intake.cursor,
            // Deliveries that are here already may be read again.
            limit: intake.deliveries + (PER_NAMESPACE - intake.deliveries).min(PAGE),
        };
        roomy.map(request).collect()
    }

    /// Takes in the deliveries of a page. Returns whether any of them was new.
    pub(super) fn take_page(
        &mut self,
        namespace: &Namespace,
        page: Page,
        mine: &Buckets,
        at: (Instant, Timestamp),
    ) -> bool {
        if let Some(intake) = self.intakes.get_mut(namespace) {
            intake.cursor = page.cursor;
        }
        let mut new = false;
        for queued in page.deliveries {
            new |= self.take(namespace, queued, mine, at);
        }
        new
    }

    /// Takes in a delivery, unless it is here already, its bucket is not ours, or its key is parked.
    fn take(
        &mut self,
        namespace: &Namespace,
        queued: QueuedDelivery,
        mine: &Buckets,
        at: (Instant, Timestamp),
    ) -> bool {
        let (hash, seq) = (queued.ordering_hash, queued.record.seq);
        if !mine.contains(hash.bucket()) || self.known.contains(&seq) {
            return false;
        }
        let key = self.keys.entry(hash).or_insert_with(OrderingKey::new);
        if key.is_parked() {
            return false;
        }
        if key.left_out.is_some() || key.deliveries.len() >= PER_KEY {
            key.left_out = Some(key.left_out.map_or(seq, |least| least.min(seq)));
            return false;
        }
        // Records of overlapping transactions may come in any order; here they are sorted.
        let behind = key.deliveries.iter().skip(key.in_flight());
        let before = behind.take_while(|other| other.record.seq < seq).count();
        key.deliveries.insert(key.in_flight() + before, PendingDelivery::new(queued, at));
        self.known.insert(seq);
        if let Some(intake) = self.intakes.get_mut(namespace) {
            intake.deliveries += 1;
        }
        self.schedule(hash, at.0);
        true
    }

    /// Keys that have room again for deliveries that were left out, and the place these lie after. A
    /// transaction that took long may have recorded some that lie before others that are here.
    pub(super) fn refill_requests(&mut self) -> Vec<(OrderingKeyHash, u64)> {
        let roomy = self.keys.iter_mut().filter(|(_, key)| key.deliveries.len() <= PER_KEY / 2);
        let request = roomy.filter_map(|(hash, key)| {
            let before = key.left_out.take()?.saturating_sub(1);
            let last = key.deliveries.back().map_or(0, |last| last.record.seq);
            Some((*hash, last.min(before)))
        });
        request.collect()
    }

    /// Takes in deliveries of a key that were left out. There are more if `requested` came.
    pub(super) fn take_refill(
        &mut self,
        hash: OrderingKeyHash,
        deliveries: Vec<QueuedDelivery>,
        requested: usize,
        mine: &Buckets,
        at: (Instant, Timestamp),
    ) {
        let more = deliveries.len() == requested;
        for queued in deliveries {
            let namespace = queued.record.name.namespace.clone();
            self.take(&namespace, queued, mine, at);
        }
        if more && let Some(key) = self.keys.get_mut(&hash).filter(|key| !key.is_parked()) {
            key.left_out.get_or_insert(u64::MAX);
        }
        self.schedule(hash, at.0);
    }

    /// This fetch has ended. Results that were durable when it began keep their deliveries out of it
    /// and of all later ones.
    pub(super) fn fetched(&mut self, fetch: u64) {
        while self.durable.front().is_some_and(|(last, _)| *last < fetch) {
            if let Some((_, seq)) = self.durable.pop_front() {
                self.known.remove(&seq);
            }
        }
    }

    /// Drops everything outside these buckets that is not in flight. Returns whether nothing there
    /// is in flight.
    pub(super) fn shed(&mut self, keep: &Buckets) -> bool {
        let outside = |hash: &OrderingKeyHash| !keep.contains(hash.bucket());
        let hashes: Vec<OrderingKeyHash> = self.keys.keys().copied().filter(outside).collect();
        let mut clear = true;
        for hash in hashes {
            let in_flight = self.keys.get(&hash).map_or(0, OrderingKey::in_flight);
            self.drop_deliveries(hash, in_flight);
            clear &= in_flight == 0;
        }
        clear
    }

    /// Drops the deliveries of a key behind the first `keep`. A key without deliveries goes too,
    /// unless it is parked.
    fn drop_deliveries(&mut self, hash: OrderingKeyHash, keep: usize) {
        let Some(key) = self.keys.get_mut(&hash) else { return };
        key.left_out = None;
        for dropped in key.deliveries.drain(keep..) {
            self.known.remove(&dropped.record.seq);
            if let Some(intake) = self.intakes.get_mut(&dropped.record.name.namespace) {
                intake.deliveries -= 1;
            }
        }
        if key.deliveries.is_empty() && !key.is_parked() {
            self.keys.remove(&hash);
        }
    }

    /// When the next waiting delivery, or the breaker's probe, is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let due = self.waiting.first().map(|(due, _)| *due);
        let has_ready = self.ready.values().any(|keys| !keys.is_empty());
        let probe = self.breaker.next().filter(|_| has_ready || !self.alone.is_empty());
        [due, probe].into_iter().flatten().min()
    }

    /// Whether nothing is in flight, and nothing waits that could be sent without an operator.
    pub(super) fn is_empty(&self) -> bool {
        self.in_flight == 0 && self.keys.values().all(OrderingKey::is_parked)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn is_down(&self) -> bool {
        self.breaker.is_open()
    }

    /// How many deliveries are here.
    pub(super) fn len(&self) -> usize {
        self.intakes.values().map(|intake| intake.deliveries).sum()
    }

    /// The deliveries of the next batch. Deliveries that are not tried any more are added to
    /// `given_up`.
    pub(super) fn next_batch(
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
    fn schedule(&mut self, hash: OrderingKeyHash, now: Instant) {
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

#[cfg(test)]
mod tests;
