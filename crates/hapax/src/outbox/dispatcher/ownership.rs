//! Bucket ownership: which of the outbox's buckets this dispatcher serves, and how operators have
//! changed its sinks.
//!
//! A dispatcher asks again and again. When another one joins, it takes in deliveries of its fair share
//! only. It keeps the other buckets until nothing in them is in flight, and all results are recorded.

use std::sync::Arc;
use std::time::Duration;

use hapax_core::delivery::Buckets;
use hapax_core::lease::LeaseId;
use hapax_core::name::Namespace;
use hapax_core::outbox::OrderingKeyHash;
use hapax_core::route::SinkName;
use hapax_store::{ShareAnswer, StoreError, call, command, read};
use tokio::time::Instant;

use super::Step;
use super::record::Recorder;
use crate::engine::Inner;
use crate::outbox::sink_queue::SinkQueue;

/// How often a dispatcher asks for its share, and looks for changes that operators made.
const INTERVAL: Duration = Duration::from_millis(500);

pub(super) struct Ownership {
    pub(super) lease: Option<LeaseId>,
    pub(super) buckets: Buckets,
    /// The buckets that this dispatcher will keep, while it gives up the others.
    keep_only: Option<Buckets>,
    /// How many operator changes of each sink were seen.
    changes: Vec<Option<u64>>,
    asked_at: Option<Instant>,
    /// How many share requests were begun, and the newest that was answered.
    pub(super) requests: u64,
    pub(super) answered: u64,
    pub(super) pending: Step<Result<Share, StoreError>>,
}

/// The answer to a request for buckets.
pub(super) struct Share {
    pub(super) lease: LeaseId,
    answer: ShareAnswer,
    namespaces: Vec<Namespace>,
    sinks: Vec<SinkState>,
}

/// One sink, as a share request found it.
struct SinkState {
    sink_index: usize,
    changes: u64,
    paused: bool,
    parked: Vec<OrderingKeyHash>,
}

impl Ownership {
    pub(super) fn new(sinks: usize) -> Self {
        Self {
            lease: None,
            buckets: Buckets::default(),
            keep_only: None,
            changes: vec![None; sinks],
            asked_at: None,
            requests: 0,
            answered: 0,
            pending: None,
        }
    }

    /// The buckets whose deliveries are taken in.
    pub(super) fn served(&self) -> Buckets {
        self.keep_only.unwrap_or(self.buckets)
    }

    /// Asks again at once.
    pub(super) fn hurry(&mut self) {
        self.asked_at = None;
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.pending.is_none() && self.asked_at.is_none_or(|at| now - at >= INTERVAL)
    }

    /// Asks for the share of the buckets, and reads the state of the sinks.
    pub(super) fn ask(
        &mut self,
        inner: &Arc<Inner>,
        queues: &mut [SinkQueue],
        recorder: &Recorder,
        now: Instant,
    ) {
        self.asked_at = Some(now);
        self.requests += 1;
        let mut keep = self.buckets;
        if let Some(kept) = self.keep_only {
            let mut is_clear = recorder.is_within(&kept);
            for queue in &mut *queues {
                is_clear &= queue.shed(&kept);
            }
            // Until the buckets to give up are clear, this process keeps them all.
            keep = if is_clear { kept } else { self.buckets };
        }
        let (inner, held) = (inner.clone(), self.lease);
        let names: Vec<SinkName> = queues.iter().map(|queue| queue.sink.clone()).collect();
        self.pending = Some(Box::pin(async move {
            let lease = inner.holder.lease().await?;
            let keep = if held == Some(lease) { keep } else { Buckets::default() };
            let answer = call(&*inner.store, command::Share { lease, keep }).await;
            if let Err(StoreError::LeaseDead(dead)) = &answer {
                inner.holder.give_up(*dead);
            }
            let answer = answer?;
            let buckets = answer.buckets;
            let seen = read(&*inner.store, move |view| {
                let known = view.sinks()?;
                let mut sinks = Vec::new();
                for (sink_index, name) in names.iter().enumerate() {
                    let Some(sink) = known.iter().find(|sink| sink.name == *name) else { continue };
                    let parked = view.parked(name, &buckets)?;
                    let (changes, paused) = (sink.changed, sink.paused);
                    sinks.push(SinkState { sink_index, changes, paused, parked });
                }
                Ok((view.namespaces()?, sinks))
            });
            let (namespaces, sinks) = seen.await?;
            Ok(Share { lease, answer, namespaces, sinks })
        }));
    }

    /// Takes over the answer. Returns whether deliveries must be fetched from the beginning.
    pub(super) fn take(
        &mut self,
        share: Share,
        queues: &mut [SinkQueue],
        recorder: &Recorder,
    ) -> bool {
        let ShareAnswer { buckets, fair } = share.answer;
        let before = self.served();
        self.lease = Some(share.lease);
        self.buckets = buckets;
        self.keep_only = (buckets.len() > fair).then(|| buckets.first(fair));
        let gained = !self.served().without(before).is_empty();
        let has_changed = |sink: &SinkState| self.changes[sink.sink_index] != Some(sink.changes);
        let anew = gained || share.sinks.iter().any(has_changed);
        for SinkState { sink_index, changes, paused, parked } in share.sinks {
            queues[sink_index].paused = paused;
            self.changes[sink_index] = Some(changes);
            // A redrive that this request saw may be of a failure whose record is not answered yet.
            if anew
                && (queues[sink_index].start_over(&parked, self.requests) | recorder.is_failing())
            {
                self.changes[sink_index] = None;
            }
        }
        for queue in queues {
            queue.serve(&share.namespaces);
        }
        anew
    }

    /// Forgets all buckets: another process may have them.
    pub(super) fn lose(&mut self) {
        (self.lease, self.buckets, self.keep_only) = (None, Buckets::default(), None);
        self.changes.fill(None);
        self.asked_at = None;
    }
}
