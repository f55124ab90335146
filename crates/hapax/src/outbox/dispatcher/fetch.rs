//! Fetching: reads the pending deliveries of the buckets that this dispatcher serves.

use std::sync::Arc;
use std::time::Duration;

use hapax_core::delivery::Buckets;
use hapax_core::outbox::OrderingKeyHash;
use hapax_core::time::Timestamp;
use hapax_store::outbox::{FetchRequest, Page, QueuedDelivery};
use hapax_store::{Store, StoreError, read};
use tokio::time::Instant;

use super::Step;
use crate::outbox::sink_queue::SinkQueue;

/// How long to pause when there is nothing new: short at first, longer later.
const SHORTEST: Duration = Duration::from_millis(5);
pub(super) const LONGEST: Duration = Duration::from_millis(100);

/// How many deliveries of an ordering key are refilled at once.
const REFILL: usize = 512;

pub(super) struct Fetch {
    /// How many were begun.
    pub(super) count: u64,
    /// The newest share request that was answered before the newest fetch began.
    pub(super) after_request: u64,
    pause: Duration,
    begun_at: Instant,
    pub(super) pending: Step<Result<Fetched, StoreError>>,
}

/// The result of a fetch. A sink is named by its position; `wall` is the store's clock at the read.
pub(super) struct Fetched {
    pages: Vec<(usize, FetchRequest, Page)>,
    refills: Vec<(usize, OrderingKeyHash, Vec<QueuedDelivery>)>,
    wall: Timestamp,
}

impl Fetch {
    pub(super) fn new(now: Instant) -> Self {
        Self { count: 0, after_request: 0, pause: SHORTEST, begun_at: now, pending: None }
    }

    /// When to fetch again.
    pub(super) fn next(&self) -> Option<Instant> {
        self.pending.is_none().then(|| self.begun_at + self.pause)
    }

    /// Fetches again at once: there is something new.
    pub(super) fn hurry(&mut self) {
        self.pause = Duration::ZERO;
    }

    /// Drops the fetch that is pending: it began before a change, and does not see it.
    pub(super) fn restart(&mut self) {
        self.pending = None;
        self.hurry();
    }

    pub(super) fn begin(
        &mut self,
        store: &Arc<dyn Store>,
        queues: &mut [SinkQueue],
        (served, answered): (Buckets, u64),
        now: Instant,
    ) {
        let mut requests = Vec::new();
        let mut refills = Vec::new();
        for (sink_index, queue) in queues.iter_mut().enumerate() {
            requests
                .extend(queue.fetch_requests().into_iter().map(|request| (sink_index, request)));
            let keys = queue.refill_requests().into_iter();
            refills.extend(keys.map(|(hash, after)| (sink_index, queue.sink.clone(), hash, after)));
        }
        self.begun_at = now;
        if requests.is_empty() && refills.is_empty() {
            // A full queue that is being sent has room again soon.
            return match queues.iter().any(|queue| queue.in_flight() > 0) {
                true => self.pause = SHORTEST,
                false => self.slow_down(),
            };
        }
        self.count += 1;
        self.after_request = answered;
        let store = store.clone();
        self.pending = Some(Box::pin(async move {
            let fetched = read(&*store, move |view| {
                let (sinks, requests): (Vec<_>, Vec<_>) = requests.into_iter().unzip();
                let mut pages = view.fetch(&served, &requests)?;
                for page in &mut pages {
                    QueuedDelivery::judge(view, &mut page.deliveries)?;
                }
                let pages = sinks.into_iter().zip(requests).zip(pages);
                let pages = pages
                    .map(|((sink_index, request), page)| (sink_index, request, page))
                    .collect();
                let mut refilled = Vec::new();
                for (sink_index, sink, hash, after) in refills {
                    let mut deliveries = view.fetch_key(&sink, hash, after, REFILL)?;
                    QueuedDelivery::judge(view, &mut deliveries)?;
                    refilled.push((sink_index, hash, deliveries));
                }
                Ok(Fetched { pages, refills: refilled, wall: view.now().wall })
            });
            fetched.await
        }));
    }

    /// Hands the deliveries to the queues. Returns whether it brought a new one, or more may follow.
    pub(super) fn take(
        &mut self,
        fetched: Fetched,
        queues: &mut [SinkQueue],
        served: &Buckets,
    ) -> bool {
        for queue in &mut *queues {
            queue.fetched(self.count);
        }
        let (mut new, at) = (false, (Instant::now(), fetched.wall));
        // First the refills: while the store has older deliveries of a key, newer ones of a page are
        // left out.
        for (sink_index, hash, deliveries) in fetched.refills {
            queues[sink_index].take_refill(hash, deliveries, REFILL, served, at);
        }
        for (sink_index, request, page) in fetched.pages {
            new |= page.more;
            new |= queues[sink_index].take_page(&request.namespace, page, served, at);
        }
        match new {
            true => self.pause = SHORTEST,
            false => self.slow_down(),
        }
        new
    }

    fn slow_down(&mut self) {
        self.pause = (self.pause.max(SHORTEST) * 3 / 2).min(LONGEST);
    }

    /// A fetch failed, and with it its refills.
    pub(super) fn failed(&mut self, error: &StoreError, queues: &mut [SinkQueue]) {
        tracing::warn!(name: "outbox_not_read", %error, "reading the outbox failed; retrying");
        queues.iter_mut().for_each(SinkQueue::fetch_anew);
        self.pause = LONGEST;
    }
}
