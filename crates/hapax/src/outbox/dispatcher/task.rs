//! The dispatcher's task: one loop that begins each step that can begin, and waits for the next
//! thing to happen.
//!
//!   ask for buckets ─▶ fetch their deliveries ─▶ record the attempts ─▶ send them ─▶ record the results

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hapax_core::delivery::Sent;
use hapax_core::planted::{Bug, planted};
use hapax_core::route::SinkName;
use hapax_store::outbox::{DeliveryResult, Disposition};
use hapax_store::{StoreError, call, command};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::fetch::{Fetch, Fetched, LONGEST};
use super::ownership::{Ownership, Share};
use super::record::{DispatchCommand, Recorder};
use super::send::{Reports, Sends};
use super::{DispatcherStatus, Order, ended};
use crate::engine::{Inner, random};
use crate::outbox::sink::{Ack, Delivery, DynSink, SinkSettings};
use crate::outbox::sink_queue::SinkQueue;
use crate::outbox::telemetry::{log, warn_of_horizon};

/// How long it waits for deliveries in flight when it stops.
const DRAIN: Duration = Duration::from_secs(20);

pub(super) struct Task {
    inner: Arc<Inner>,
    queues: Vec<SinkQueue>,
    ownership: Ownership,
    fetch: Fetch,
    sends: Sends,
    reports: Reports,
    recorder: Recorder,
    /// The callers that wait for it to have nothing to do, and since which share request.
    idlers: Vec<(u64, oneshot::Sender<()>)>,
    stopping: Option<Instant>,
    status: watch::Sender<DispatcherStatus>,
    delivered: u64,
    failed: u64,
}

impl Drop for Task {
    /// Lets another dispatcher start, also when this task panicked or its runtime was shut down.
    fn drop(&mut self) {
        self.inner.dispatches.store(false, Ordering::Release);
    }
}

impl Task {
    pub(super) fn new(
        inner: Arc<Inner>,
        sinks: BTreeMap<SinkName, (Arc<dyn DynSink>, SinkSettings)>,
        status: watch::Sender<DispatcherStatus>,
    ) -> Self {
        let now = Instant::now();
        let queue = |(name, (sink, settings)): (SinkName, (Arc<dyn DynSink>, SinkSettings))| {
            warn_of_horizon(&name, &*sink, &settings);
            (sink, SinkQueue::new(name, settings, now))
        };
        let (sinks, queues): (Vec<_>, Vec<_>) = sinks.into_iter().map(queue).unzip();
        let ownership = Ownership::new(sinks.len());
        let (sends, reports) = Sends::new(sinks);
        Self {
            inner,
            queues,
            ownership,
            fetch: Fetch::new(now),
            sends,
            reports,
            recorder: Recorder::default(),
            idlers: Vec::new(),
            stopping: None,
            status,
            delivered: 0,
            failed: 0,
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
                Some(ack) = self.reports.acks.recv() => {
                    self.reported(&ack);
                    self.take_reports();
                }
                Some(batch) = self.reports.ended.recv() => self.batch_ended(batch),
                (sent, answer) = ended(&mut self.recorder.pending) => {
                    self.recorded(sent, answer);
                }
                fetched = ended(&mut self.fetch.pending) => self.fetched(fetched),
                share = ended(&mut self.ownership.pending) => self.shared(share),
                order = orders.recv() => match order {
                    Some(Order::Idle(answer)) => {
                        self.fetch.hurry();
                        self.ownership.hurry();
                        self.idlers.push((self.ownership.requests, answer));
                    }
                    Some(Order::Stop) | None => {
                        self.stopping.get_or_insert_with(Instant::now);
                    }
                },
                () = inner.emitted.notified() => self.fetch.hurry(),
                () = tokio::time::sleep_until(wake) => {}
            }
            self.update_status();
        }
        if let Some(lease) = self.ownership.lease {
            let _ = call(&*inner.store, command::Retire { lease }).await;
        }
    }

    /// Begins each step that can begin now.
    fn begin(&mut self) {
        let now = Instant::now();
        if self.inner.is_closed() {
            self.stopping.get_or_insert(now);
        }
        if self.stopping.is_none() && self.ownership.is_due(now) {
            self.ownership.ask(&self.inner, &mut self.queues, &self.recorder, now);
        }
        if self.recorder.pending.is_none() {
            self.begin_record(now);
        }
        let is_due = self.fetch.next().is_some_and(|next| next <= now);
        if is_due && self.ownership.lease.is_some() && self.stopping.is_none() {
            let bounds = (self.ownership.served(), self.ownership.answered);
            self.fetch.begin(&self.inner.store, &mut self.queues, bounds, now);
        }
    }

    /// When to wake up although nothing has happened.
    fn wake(&self) -> Instant {
        let now = Instant::now();
        let due = self.queues.iter().filter(|queue| !queue.paused);
        let due = due.filter_map(SinkQueue::next_due).min();
        let due = due.filter(|_| self.recorder.pending.is_none());
        let fetches = self.ownership.lease.is_some() && self.stopping.is_none();
        let fetch = self.fetch.next().filter(|_| fetches);
        let next = [fetch, due].into_iter().flatten().min();
        let latest = now + LONGEST;
        next.map_or(latest, |next| next.min(latest)).max(now + Duration::from_millis(1))
    }

    fn is_over(&self) -> bool {
        let Some(since) = self.stopping else { return false };
        let done = self.sends.is_empty() && self.recorder.is_empty();
        done && self.ownership.pending.is_none() || since.elapsed() > DRAIN
    }

    fn shared(&mut self, share: Result<Share, StoreError>) {
        let share = match share {
            Ok(share) => share,
            Err(error) => {
                tracing::warn!(name: "no_outbox_share", %error, "asking for buckets of the outbox failed; retrying");
                if let StoreError::LeaseDead(_) = error {
                    self.lose();
                }
                return;
            }
        };
        self.ownership.answered = self.ownership.requests;
        if self.ownership.lease != Some(share.lease) {
            self.lose();
        }
        if self.ownership.take(share, &mut self.queues, &self.recorder) {
            self.fetch.restart();
        }
    }

    /// Forgets everything: another process may have the buckets.
    fn lose(&mut self) {
        let now = Instant::now();
        for queue in &mut self.queues {
            *queue = queue.emptied(now);
        }
        self.ownership.lose();
        self.sends.forget();
        self.recorder = Recorder::default();
        self.fetch.pending = None;
    }

    fn fetched(&mut self, fetched: Result<Fetched, StoreError>) {
        let new = match fetched {
            Ok(fetched) => {
                let served = self.ownership.served();
                self.fetch.take(fetched, &mut self.queues, &served)
            }
            Err(error) => return self.fetch.failed(&error, &mut self.queues),
        };
        let is_quiet = |queue: &SinkQueue| queue.is_empty() || queue.paused;
        if self.idlers.is_empty() || new || self.recorder.has_results() {
            return;
        }
        if self.queues.iter().all(is_quiet) && !self.ownership.buckets.is_empty() {
            let after = self.fetch.after_request;
            for (_, answer) in self.idlers.extract_if(.., |(since, _)| *since < after) {
                let _ = answer.send(());
            }
        }
    }

    /// Records the results of attempts, and the next attempts.
    fn begin_record(&mut self, now: Instant) {
        let Some(lease) = self.ownership.lease else { return };
        let mut starting = Vec::new();
        for sink_index in 0..self.queues.len() {
            if self.stopping.is_some() {
                break;
            }
            let mut given_up = Vec::new();
            let deliveries = self.queues[sink_index].next_batch(now, &mut given_up);
            for (delivery, result) in given_up {
                self.add_result(sink_index, &delivery, result);
            }
            if !deliveries.is_empty() {
                starting.push(self.sends.prepare(sink_index, &self.queues[sink_index], deliveries));
            }
        }
        if planted(Bug::MarkedBeforeSent) {
            for batch in &starting {
                let delivered = Sent::Delivered { duplicate: false };
                let acks = (0..batch.deliveries.len()).map(|position| Ack {
                    batch: batch.id,
                    position,
                    sent: delivered.clone(),
                });
                acks.for_each(|ack| self.reported(&ack));
            }
        }
        self.recorder.begin(&self.inner.store, lease, starting);
    }

    fn recorded(&mut self, sent: DispatchCommand, answer: Result<(), StoreError>) {
        match answer {
            Ok(()) => {
                self.recorder.recorded();
                for (sink_index, delivery) in sent.ended {
                    let (fetch, request) = (self.fetch.count, self.ownership.requests);
                    self.queues[sink_index].mark_durable(delivery, fetch, request);
                }
                sent.batches.into_iter().for_each(|batch| self.sends.send(batch));
            }
            Err(StoreError::LeaseDead(dead)) => {
                tracing::warn!(name: "outbox_share_lost", "this dispatcher has lost its buckets; it asks for new ones");
                self.inner.holder.give_up(dead);
                self.lose();
            }
            Err(error) => {
                tracing::warn!(name: "deliveries_not_recorded_yet", %error, "recording delivery results failed; retrying");
                self.recorder.retry(&self.inner.store, sent);
            }
        }
    }

    fn take_reports(&mut self) {
        while let Ok(ack) = self.reports.acks.try_recv() {
            self.reported(&ack);
        }
    }

    /// A sink reported the result of a delivery.
    fn reported(&mut self, ack: &Ack) {
        let Some((sink_index, delivery)) = self.sends.reported(ack) else { return };
        let dice = match ack.sent {
            Sent::Delivered { .. } => 0,
            _ => random().map_or(u64::MAX, u64::from_be_bytes),
        };
        let queue = &mut self.queues[sink_index];
        if let Some(result) = queue.result(&delivery, &ack.sent, Instant::now(), dice) {
            self.add_result(sink_index, &delivery, result);
        }
    }

    fn add_result(&mut self, sink_index: usize, delivery: &Delivery, result: DeliveryResult) {
        log(&self.queues[sink_index].sink, delivery, &result.disposition);
        match result.disposition {
            Disposition::Delivered { .. } => self.delivered += 1,
            Disposition::Failed { .. } => self.failed += 1,
            Disposition::Again { .. } => {}
        }
        self.recorder.add(sink_index, delivery.ordering_hash, result);
    }

    fn batch_ended(&mut self, batch: u64) {
        self.take_reports();
        for ack in self.sends.left_out(batch) {
            self.reported(&ack);
        }
        if self.sends.end(batch) {
            self.recorder.add_end(batch);
        }
    }

    fn update_status(&self) {
        let names = |which: fn(&SinkQueue) -> bool| {
            let queues = self.queues.iter().filter(|queue| which(queue));
            queues.map(|queue| queue.sink.clone()).collect()
        };
        let status = DispatcherStatus {
            buckets: self.ownership.buckets.len(),
            in_flight: self.queues.iter().map(SinkQueue::in_flight).sum(),
            waiting: self.queues.iter().map(SinkQueue::len).sum(),
            delivered: self.delivered,
            failed: self.failed,
            down: names(SinkQueue::is_down),
            paused: names(|queue| queue.paused),
        };
        self.status.send_if_modified(|before| {
            let changed = *before != status;
            *before = status;
            changed
        });
    }
}
