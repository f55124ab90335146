//! The task behind a [dispatcher](super::Dispatcher): it reads due deliveries, records each try,
//! sends it, and records the result.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hapax_core::delivery::{Buckets, DeliveryRefusal, Retryability, Sent};
use hapax_core::lease::LeaseId;
use hapax_core::name::Namespace;
use hapax_core::outbox::OrderingKeyHash;
use hapax_core::planted::{Bug, planted};
use hapax_core::retry::Backoff;
use hapax_core::route::SinkName;
use hapax_core::time::Timestamp;
use hapax_store::outbox::{
    BatchedDelivery, DeliveryResult, Disposition, FetchRequest, Page, QueuedDelivery, SendBatch,
};
use hapax_store::{ShareAnswer, StoreError, call, command, read};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::dispatcher::{DispatcherStatus, Order};
use super::sink::{Acks, Delivery, DynSink, SinkSettings};
use super::sink_queue::SinkQueue;
use super::telemetry::{tell, warn_of_horizon};
use crate::engine::{Inner, random};

/// How often a dispatcher asks for its share, and looks for changes that operators made.
const SHARE: Duration = Duration::from_millis(500);

/// How long it sleeps when there is nothing to do: short at first, longer later.
const SHORTEST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(100);

/// How long it waits for deliveries in flight when it stops.
const DRAIN: Duration = Duration::from_secs(20);

/// The pauses while the store cannot be reached.
const AGAIN: Backoff = Backoff { base_ms: 20, cap_ms: 2_000, attempts: u32::MAX };

type Pending<T> = Option<Pin<Box<dyn Future<Output = T> + Send>>>;

/// Waits for a pending future; for ever, if there is none.
async fn pending<T>(pending: &mut Pending<T>) -> T {
    match pending {
        Some(future) => {
            let done = future.await;
            *pending = None;
            done
        }
        None => std::future::pending().await,
    }
}

/// The result of a feed: each line, each track that is refilled, and the store's time.
struct Read {
    fed: Vec<(usize, FetchRequest, Page)>,
    refilled: Vec<(usize, OrderingKeyHash, Vec<QueuedDelivery>)>,
    wall: Timestamp,
}

/// The result of a look: the namespaces, and the state of each sink, which operators may change.
struct Look {
    namespaces: Vec<Namespace>,
    sinks: Vec<(usize, u64, bool, Vec<OrderingKeyHash>)>,
}

struct InFlightBatch {
    desk: usize,
    letters: Vec<Delivery>,
    told: Vec<bool>,
    /// Whether the sink has refused a delivery of this batch.
    refused: bool,
}

/// A command in flight, with the batches that it starts and the deliveries that it settles.
struct Sending {
    command: command::Dispatch,
    flights: Vec<u64>,
    settled: Vec<(usize, u64)>,
    failures: u32,
}

pub(super) struct Work {
    inner: Arc<Inner>,
    sinks: Vec<Arc<dyn DynSink>>,
    desks: Vec<SinkQueue>,
    changed: Vec<Option<u64>>,
    lease: Option<LeaseId>,
    mine: Buckets,
    /// The buckets to keep, while the rest is given up.
    shedding: Option<Buckets>,
    flights: HashMap<u64, InFlightBatch>,
    next_flight: u64,
    /// Only with a bug planted.
    written_off: Vec<u64>,
    landed: Vec<(usize, DeliveryResult)>,
    over: Vec<u64>,
    told: mpsc::UnboundedSender<(u64, usize, Sent)>,
    tells: mpsc::UnboundedReceiver<(u64, usize, Sent)>,
    ends: mpsc::UnboundedReceiver<u64>,
    ended: mpsc::UnboundedSender<u64>,
    /// How many feeds and looks were begun.
    feeds: u64,
    looks: u64,
    dispatching: Pending<(Sending, Result<(), StoreError>)>,
    reading: Pending<Result<Read, StoreError>>,
    sharing: Pending<Result<(LeaseId, Buckets, usize, Look), StoreError>>,
    pause: Duration,
    fed_at: Instant,
    shared_at: Option<Instant>,
    /// The newest look that ended, and the newest one that had ended when the newest feed began.
    looked: u64,
    fed_after: u64,
    /// The callers that wait for it to have nothing to do, and since which look.
    idlers: Vec<(u64, oneshot::Sender<()>)>,
    stopping: Option<Instant>,
    standing: watch::Sender<DispatcherStatus>,
    counts: (u64, u64),
}

impl Work {
    pub(super) fn new(
        inner: Arc<Inner>,
        sinks: BTreeMap<SinkName, (Arc<dyn DynSink>, SinkSettings)>,
        standing: watch::Sender<DispatcherStatus>,
    ) -> Self {
        let now = Instant::now();
        let (told, tells) = mpsc::unbounded_channel();
        let (ended, ends) = mpsc::unbounded_channel();
        let desk = |(name, (sink, settings)): (SinkName, (Arc<dyn DynSink>, SinkSettings))| {
            warn_of_horizon(&name, &*sink, &settings);
            (sink, SinkQueue::new(name, settings, now))
        };
        let (sinks, desks): (Vec<_>, Vec<_>) = sinks.into_iter().map(desk).unzip();
        Self {
            inner,
            changed: vec![None; sinks.len()],
            sinks,
            desks,
            lease: None,
            mine: Buckets::default(),
            shedding: None,
            flights: HashMap::new(),
            next_flight: 1,
            written_off: Vec::new(),
            landed: Vec::new(),
            over: Vec::new(),
            told,
            tells,
            ends,
            ended,
            feeds: 0,
            looks: 0,
            dispatching: None,
            reading: None,
            sharing: None,
            pause: SHORTEST,
            fed_at: now,
            shared_at: None,
            looked: 0,
            fed_after: 0,
            idlers: Vec::new(),
            stopping: None,
            standing,
            counts: (0, 0),
        }
    }

    pub(super) async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let inner = self.inner.clone();
        loop {
            self.begin();
            if self.is_over() {
                break;
            }
            let wake = self.wake();
            tokio::select! {
                Some((flight, nth, sent)) = self.tells.recv() => {
                    self.lands(flight, nth, sent);
                    while let Ok((flight, nth, sent)) = self.tells.try_recv() {
                        self.lands(flight, nth, sent);
                    }
                }
                Some(flight) = self.ends.recv() => self.ends(flight),
                (sending, answer) = pending(&mut self.dispatching) => self.written(sending, answer),
                fed = pending(&mut self.reading) => self.was_read(fed),
                shared = pending(&mut self.sharing) => self.was_shared(shared),
                order = orders.recv() => match order {
                    Some(Order::Idle(told)) => {
                        (self.pause, self.shared_at) = (SHORTEST, None);
                        self.idlers.push((self.looks, told));
                    }
                    Some(Order::Stop) | None => {
                        self.stopping.get_or_insert_with(Instant::now);
                    }
                },
                () = inner.emitted.notified() => self.pause = Duration::ZERO,
                () = tokio::time::sleep_until(wake) => {}
            }
            self.report();
        }
        if let Some(lease) = self.lease {
            let _ = call(&*inner.store, command::Retire { lease }).await;
        }
    }

    /// Begins each step that can begin now.
    fn begin(&mut self) {
        let now = Instant::now();
        if self.inner.is_closed() {
            self.stopping.get_or_insert(now);
        }
        if self.sharing.is_none() && self.shared_at.is_none_or(|at| now - at >= SHARE) {
            self.begin_share();
        }
        if self.dispatching.is_none() && self.lease.is_some() {
            self.begin_dispatch(now);
        }
        let rested = now - self.fed_at >= self.pause;
        if self.reading.is_none() && self.lease.is_some() && self.stopping.is_none() && rested {
            self.begin_read(now);
        }
    }

    /// When to wake up although nothing has happened.
    fn wake(&self) -> Instant {
        let now = Instant::now();
        let mut next = now + LONGEST;
        if self.reading.is_none() {
            next = next.min(self.fed_at + self.pause);
        }
        let due = self.desks.iter().filter(|desk| !desk.paused).filter_map(SinkQueue::next).min();
        if let Some(due) = due.filter(|_| self.dispatching.is_none()) {
            next = next.min(due);
        }
        next.max(now + Duration::from_millis(1))
    }

    fn is_over(&self) -> bool {
        let Some(since) = self.stopping else { return false };
        let done = self.flights.is_empty()
            && self.landed.is_empty()
            && self.over.is_empty()
            && self.dispatching.is_none();
        done && self.sharing.is_none() || since.elapsed() > DRAIN
    }

    /// Asks for its share of the buckets, and looks for changes that operators made.
    fn begin_share(&mut self) {
        self.shared_at = Some(Instant::now());
        if self.stopping.is_some() {
            return;
        }
        self.looks += 1;
        let inner = self.inner.clone();
        let mut keep = self.mine;
        if let Some(rest) = self.shedding {
            let clear: Vec<bool> = self.desks.iter_mut().map(|desk| desk.shed(&rest)).collect();
            // While a delivery in the buckets to give up is in flight, this process keeps them all.
            keep = if clear.contains(&false) { self.mine } else { rest };
        }
        let held = self.lease;
        let names: Vec<SinkName> = self.desks.iter().map(|desk| desk.sink.clone()).collect();
        self.sharing = Some(Box::pin(async move {
            let lease = inner.holder.lease().await?;
            let keep = if held == Some(lease) { keep } else { Buckets::default() };
            let answer = call(&*inner.store, command::Share { lease, keep }).await;
            if let Err(StoreError::LeaseDead(dead)) = &answer {
                inner.holder.give_up(*dead);
            }
            let ShareAnswer { buckets, fair } = answer?;
            let look = read(&*inner.store, move |view| {
                let known = view.sinks()?;
                let mut sinks = Vec::new();
                for (nth, name) in names.iter().enumerate() {
                    let Some(sink) = known.iter().find(|sink| sink.name == *name) else { continue };
                    let parked = view.parked(name, &buckets)?;
                    sinks.push((nth, sink.changed, sink.paused, parked));
                }
                Ok(Look { namespaces: view.namespaces()?, sinks })
            });
            Ok((lease, buckets, fair, look.await?))
        }));
    }

    fn was_shared(&mut self, shared: Result<(LeaseId, Buckets, usize, Look), StoreError>) {
        let (lease, buckets, fair, look) = match shared {
            Ok(shared) => shared,
            Err(error) => {
                tracing::warn!(name: "no_outbox_share", %error, "no share of the outbox yet");
                if let StoreError::LeaseDead(_) = error {
                    self.lose();
                }
                return;
            }
        };
        self.looked = self.looks;
        if self.lease != Some(lease) {
            self.lose();
            self.lease = Some(lease);
        }
        let before = self.served();
        self.mine = buckets;
        self.shedding = (buckets.len() > fair).then(|| buckets.first(fair));
        let gained = !self.served().without(before).is_empty();
        let changed = |(nth, changed, ..): &(usize, u64, bool, Vec<OrderingKeyHash>)| {
            self.changed[*nth] != Some(*changed)
        };
        let anew = gained || look.sinks.iter().any(changed);
        for (nth, changed, paused, parked) in look.sinks {
            self.desks[nth].paused = paused;
            self.changed[nth] = Some(changed);
            if anew {
                self.desks[nth].look_anew(parked, self.looks);
            }
        }
        if anew {
            // The read that is pending began before this change, and does not see it.
            (self.reading, self.pause) = (None, Duration::ZERO);
        }
        for desk in &mut self.desks {
            desk.serve(&look.namespaces);
        }
    }

    /// The buckets whose deliveries are taken in.
    fn served(&self) -> Buckets {
        self.shedding.unwrap_or(self.mine)
    }

    /// Forgets everything: another process may have the buckets. Deliveries in flight will arrive,
    /// and the receiver recognises a duplicate by its id.
    fn lose(&mut self) {
        let now = Instant::now();
        for desk in &mut self.desks {
            *desk = desk.anew(now);
        }
        self.changed.fill(None);
        (self.lease, self.mine, self.shedding) = (None, Buckets::default(), None);
        self.flights.clear();
        self.landed.clear();
        self.over.clear();
        (self.dispatching, self.reading) = (None, None);
        self.shared_at = None;
    }

    fn begin_read(&mut self, now: Instant) {
        let mut lines = Vec::new();
        let mut refills = Vec::new();
        for (nth, desk) in self.desks.iter_mut().enumerate() {
            lines.extend(desk.wants().into_iter().map(|line| (nth, line)));
            let sink = desk.sink.clone();
            refills.extend(
                desk.take_refills().into_iter().map(|(t, after)| (nth, sink.clone(), t, after)),
            );
        }
        self.fed_at = now;
        if lines.is_empty() && refills.is_empty() {
            return;
        }
        self.feeds += 1;
        self.fed_after = self.looked;
        let mine = self.served();
        let store = self.inner.store.clone();
        self.reading = Some(Box::pin(async move {
            let asked = read(&*store, move |view| {
                let (desks, lines): (Vec<_>, Vec<_>) = lines.into_iter().unzip();
                let mut fed = view.feed(&mine, &lines)?;
                for fed in &mut fed {
                    QueuedDelivery::judge(view, &mut fed.parcels)?;
                }
                let fed = desks.into_iter().zip(lines).zip(fed);
                let fed = fed.map(|((desk, line), fed)| (desk, line, fed)).collect();
                let mut refilled = Vec::new();
                for (nth, sink, track, after) in refills {
                    let mut parcels = view.feed_track(&sink, track, after, REFILL)?;
                    QueuedDelivery::judge(view, &mut parcels)?;
                    refilled.push((nth, track, parcels));
                }
                Ok(Read { fed, refilled, wall: view.now().wall })
            });
            asked.await
        }));
    }

    fn was_read(&mut self, read: Result<Read, StoreError>) {
        let now = Instant::now();
        let read = match read {
            Ok(read) => read,
            Err(error) => {
                tracing::warn!(name: "outbox_not_read", %error, "the outbox cannot be read");
                self.desks.iter_mut().for_each(SinkQueue::read_anew);
                self.pause = LONGEST;
                return;
            }
        };
        let mine = self.served();
        for desk in &mut self.desks {
            desk.read(self.feeds);
        }
        let (mut new, at) = (false, (now, read.wall));
        // First the refills: until all of a track is here, nothing behind it is taken in.
        for (nth, track, parcels) in read.refilled {
            self.desks[nth].refilled(track, parcels, REFILL, &mine, at);
        }
        for (nth, line, fed) in read.fed {
            new |= fed.more;
            new |= self.desks[nth].fed(&line.namespace, fed, &mine, at);
        }
        self.pause = match new {
            true => SHORTEST,
            false => (self.pause.max(SHORTEST) * 3 / 2).min(LONGEST),
        };
        let quiet = !new
            && self.landed.is_empty()
            && self.dispatching.is_none()
            && self.desks.iter().all(|desk| desk.is_empty() || desk.paused);
        if quiet && !self.mine.is_empty() {
            let after = self.fed_after;
            for (_, told) in self.idlers.extract_if(.., |(since, _)| *since < after) {
                let _ = told.send(());
            }
        }
    }

    /// Records the results of tries, and the next tries.
    fn begin_dispatch(&mut self, now: Instant) {
        let Some(lease) = self.lease else { return };
        let (mut departing, mut flights) = (Vec::new(), Vec::new());
        if self.stopping.is_none() {
            for (nth, desk) in self.desks.iter_mut().enumerate() {
                let mut given_up = Vec::new();
                let letters = desk.depart(now, &mut given_up);
                let failed =
                    |landed: &&DeliveryResult| matches!(landed.landing, Disposition::Failed { .. });
                self.counts.1 += given_up.iter().filter(failed).count() as u64;
                self.landed.extend(given_up.into_iter().map(|landed| (nth, landed)));
                if letters.is_empty() {
                    continue;
                }
                let aboard = letters.iter().map(|letter| BatchedDelivery {
                    seq: letter.record.seq,
                    track: letter.track,
                    tried: letter.attempt,
                });
                let id = self.next_flight;
                self.next_flight += 1;
                departing.push(SendBatch {
                    id,
                    sink: desk.sink.clone(),
                    parcels: aboard.collect(),
                });
                flights.push(id);
                let told = vec![false; letters.len()];
                self.flights.insert(id, InFlightBatch { desk: nth, letters, told, refused: false });
            }
        }
        if departing.is_empty() && self.landed.is_empty() && self.over.is_empty() {
            return;
        }
        let landed = std::mem::take(&mut self.landed);
        let settled = landed
            .iter()
            .filter(|(_, landed)| !matches!(landed.landing, Disposition::Again { .. }))
            .map(|(nth, landed)| (*nth, landed.seq))
            .collect();
        let landed = landed.into_iter().map(|(_, landed)| landed).collect();
        let over = std::mem::take(&mut self.over);
        let command = command::Dispatch { lease, landed, over, departing };
        self.send(Sending { command, flights, settled, failures: 0 });
    }

    fn send(&mut self, sending: Sending) {
        let store = self.inner.store.clone();
        self.dispatching = Some(Box::pin(async move {
            if sending.failures > 0 {
                let dice = random().map_or(u64::MAX, u64::from_be_bytes);
                let pause = AGAIN.delay_ms(sending.failures, dice).unwrap_or(AGAIN.cap_ms);
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            let answer = call(&*store, sending.command.clone()).await;
            (sending, answer)
        }));
    }

    fn written(&mut self, sending: Sending, answer: Result<(), StoreError>) {
        match answer {
            Ok(_) => {
                for (nth, seq) in sending.settled {
                    self.desks[nth].settled(seq, self.feeds, self.looks);
                }
                for flight in std::mem::take(&mut self.written_off) {
                    self.fly(flight);
                }
                for flight in sending.flights {
                    match planted(Bug::MarkedBeforeSent) {
                        true => self.write_off(flight),
                        false => self.fly(flight),
                    }
                }
            }
            Err(StoreError::LeaseDead(dead)) => {
                tracing::warn!(name: "outbox_share_lost", "another process looks after these events now");
                self.inner.holder.give_up(dead);
                self.lose();
            }
            Err(error) => {
                tracing::warn!(name: "deliveries_not_recorded_yet", %error, "what was delivered is not written down yet");
                let failures = sending.failures.saturating_add(1);
                self.send(Sending { failures, ..sending });
            }
        }
    }

    /// The try is recorded; the batch is sent.
    fn fly(&mut self, id: u64) {
        let Some(flight) = self.flights.get(&id) else { return };
        let (sink, letters) = (self.sinks[flight.desk].clone(), flight.letters.clone());
        let (told, ended) = (Acks::new(id, self.told.clone()), self.ended.clone());
        tokio::spawn(async move {
            // Also when the sink panics.
            let _ended = BatchEnd(id, ended);
            sink.send(&letters, &told).await;
        });
    }

    /// The planted bug: reports a batch as delivered, and sends it when that is recorded.
    fn write_off(&mut self, id: u64) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        let (desk, letters) = (flight.desk, flight.letters.clone());
        flight.told.fill(true);
        for letter in &letters {
            self.land(desk, letter, &Sent::Delivered { duplicate: false });
        }
        self.written_off.push(id);
    }

    fn lands(&mut self, id: u64, nth: usize, sent: Sent) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        let Some(letter) = flight.letters.get(nth) else { return };
        if std::mem::replace(&mut flight.told[nth], true) {
            return;
        }
        // Deliveries of the same track behind one that was not delivered were not sent.
        if !matches!(sent, Sent::Delivered { .. }) {
            flight.refused |= matches!(sent, Sent::Refused(_));
            for (at, other) in flight.letters.iter().enumerate().skip(nth + 1) {
                flight.told[at] |= other.track == letter.track;
            }
        }
        let (desk, letter) = (flight.desk, letter.clone());
        self.land(desk, &letter, &sent);
    }

    fn land(&mut self, desk: usize, letter: &Delivery, sent: &Sent) {
        let dice = match sent {
            Sent::Delivered { .. } => 0,
            _ => random().map_or(u64::MAX, u64::from_be_bytes),
        };
        let landed = self.desks[desk].landed(letter, sent, Instant::now(), dice);
        let Some(landed) = landed else { return };
        tell(&self.desks[desk].sink, letter, &landed.landing);
        match landed.landing {
            Disposition::Delivered { .. } => self.counts.0 += 1,
            Disposition::Failed { .. } => self.counts.1 += 1,
            Disposition::Again { .. } => {}
        }
        self.landed.push((desk, landed));
    }

    /// A batch has ended. A delivery that the sink did not report was not sent if the sink refused
    /// another one; otherwise its result is unknown.
    fn ends(&mut self, id: u64) {
        while let Ok((flight, nth, sent)) = self.tells.try_recv() {
            self.lands(flight, nth, sent);
        }
        let Some(flight) = self.flights.get(&id) else { return };
        let untold = (0..flight.letters.len()).filter(|nth| !flight.told[*nth]);
        let (untold, refused): (Vec<_>, _) = (untold.collect(), flight.refused);
        for nth in untold {
            let reason = "the sink did not say what became of it".into();
            let sent = match refused {
                true => Sent::Held,
                false => Sent::Refused(DeliveryRefusal { reason, heals: Retryability::Perhaps }),
            };
            self.lands(id, nth, sent);
        }
        self.flights.remove(&id);
        self.over.push(id);
    }

    fn report(&self) {
        let names = |which: fn(&SinkQueue) -> bool| {
            let desks = self.desks.iter().filter(|desk| which(desk));
            desks.map(|desk| desk.sink.clone()).collect()
        };
        let standing = DispatcherStatus {
            buckets: self.mine.len(),
            aloft: self.desks.iter().map(SinkQueue::aloft).sum(),
            waiting: self.desks.iter().map(SinkQueue::letters).sum(),
            delivered: self.counts.0,
            failed: self.counts.1,
            down: names(SinkQueue::is_down),
            paused: names(|desk| desk.paused),
        };
        self.standing.send_if_modified(|before| {
            let changed = *before != standing;
            *before = standing;
            changed
        });
    }
}

/// How many deliveries a track is refilled with at once.
const REFILL: usize = 512;

/// Reports that a batch has ended, also when its sink panicked.
struct BatchEnd(u64, mpsc::UnboundedSender<u64>);

impl Drop for BatchEnd {
    fn drop(&mut self) {
        let _ = self.1.send(self.0);
    }
}
