//! Deliveries, in memory.

use std::collections::BTreeSet;

use hapax_core::delivery::Buckets;
use hapax_core::lease::LeaseId;
use hapax_core::outbox::{OrderingKeyHash, Record, Status};
use hapax_core::route::SinkName;
use hapax_core::time::Now;

use super::MemoryTxn;
use super::outbox::{Open, Outbox};
use crate::delivery::{
    BatchedDelivery, Cursor, DeliveryResult, DeliveryTxn, DeliveryView, Disposition, FetchRequest,
    GuardCheck, Page, QueuedDelivery, Redrive, SendBatch, SinkStats,
};
use crate::error::StoreError;
use crate::route::Sink;

impl DeliveryView for MemoryTxn<'_> {
    fn fetch(
        &mut self,
        buckets: &Buckets,
        requests: &[FetchRequest],
    ) -> Result<Vec<Page>, StoreError> {
        let outbox = &self.tables.outbox;
        let page = requests.iter().map(|request| {
            let mine = |queued: &QueuedDelivery| {
                queued.record.name.namespace == request.namespace
                    && buckets.contains(queued.ordering_hash.bucket())
            };
            let pending = outbox.pending(&request.sink, request.cursor.seq);
            let deliveries =
                pending.filter_map(|(seq, open)| outbox.queued(seq, open)).filter(mine);
            let deliveries: Vec<_> = deliveries.take(request.limit).collect();
            let more = deliveries.len() == request.limit;
            let last = deliveries.last().map_or(request.cursor.seq, |queued| queued.record.seq);
            Page { deliveries, cursor: Cursor { seq: last, ..request.cursor }, more }
        });
        Ok(page.collect())
    }

    fn fetch_key(
        &mut self,
        sink: &SinkName,
        ordering_hash: OrderingKeyHash,
        after: u64,
        limit: usize,
    ) -> Result<Vec<QueuedDelivery>, StoreError> {
        let outbox = &self.tables.outbox;
        let pending =
            outbox.pending(sink, after).filter(|(_, open)| open.ordering_hash == ordering_hash);
        Ok(pending.filter_map(|(seq, open)| outbox.queued(seq, open)).take(limit).collect())
    }

    fn parked(
        &mut self,
        sink: &SinkName,
        buckets: &Buckets,
    ) -> Result<Vec<OrderingKeyHash>, StoreError> {
        let of = |(name, _): &&(SinkName, u64)| *name == *sink;
        let open = self.tables.outbox.open.iter().filter(|(place, _)| of(place));
        let parked =
            open.filter(|(_, open)| open.delivery.parks).map(|(_, open)| open.ordering_hash);
        let parked: BTreeSet<_> =
            parked.filter(|ordering_hash| buckets.contains(ordering_hash.bucket())).collect();
        Ok(parked.into_iter().collect())
    }

    fn outbox_stats(&mut self) -> Result<Vec<SinkStats>, StoreError> {
        let outbox = &self.tables.outbox;
        let stats = outbox.sinks.values().map(|sink| {
            let open = || outbox.open.iter().filter(|((name, _), _)| *name == sink.name);
            let count = |status| open().filter(|(_, o)| o.delivery.status == status).count() as u64;
            let (pending, failed) = (count(Status::Pending), count(Status::Failed));
            let oldest = outbox.pending(&sink.name, 0).next();
            let oldest = oldest.and_then(|(seq, _)| Some(outbox.records.get(&seq)?.created));
            SinkStats { sink: sink.clone(), pending, failed, oldest }
        });
        Ok(stats.collect())
    }
}

impl DeliveryTxn for MemoryTxn<'_> {
    fn dispatchers(&mut self) -> Result<Vec<(LeaseId, Buckets)>, StoreError> {
        Ok(self.tables.outbox.dispatchers.iter().map(|(id, buckets)| (*id, *buckets)).collect())
    }

    fn is_dispatcher(&mut self, lease: LeaseId) -> Result<bool, StoreError> {
        Ok(self.tables.outbox.dispatchers.contains_key(&lease))
    }

    fn put_dispatcher(&mut self, lease: LeaseId, buckets: &Buckets) -> Result<(), StoreError> {
        self.set(|tables| &mut tables.outbox.dispatchers, lease, Some(*buckets));
        Ok(())
    }

    fn drop_dispatcher(&mut self, lease: LeaseId) -> Result<(), StoreError> {
        let range = (lease, 0)..=(lease, u64::MAX);
        let lost: Vec<_> =
            self.tables.outbox.batches.range(range).map(|(k, v)| (*k, v.clone())).collect();
        for (place, batch) in lost {
            for BatchedDelivery { seq, tried, .. } in batch.deliveries {
                let at = (batch.sink.clone(), seq);
                if let Some(mut open) = self.tables.outbox.open.get(&at).cloned() {
                    open.delivery.tried = open.delivery.tried.max(tried);
                    self.put_open(at, Some(open));
                }
            }
            self.set(|tables| &mut tables.outbox.batches, place, None);
        }
        self.set(|tables| &mut tables.outbox.dispatchers, lease, None);
        Ok(())
    }

    fn put_batch(&mut self, lease: LeaseId, batch: &SendBatch) -> Result<(), StoreError> {
        self.set(|tables| &mut tables.outbox.batches, (lease, batch.id), Some(batch.clone()));
        Ok(())
    }

    fn put_results(
        &mut self,
        lease: LeaseId,
        results: &[DeliveryResult],
        ended: &[u64],
        now: Now,
    ) -> Result<(), StoreError> {
        for DeliveryResult { sink, seq, tried, disposition, .. } in results {
            let place = (sink.clone(), *seq);
            let Some(mut open) = self.tables.outbox.open.get(&place).cloned() else { continue };
            let delivery = &mut open.delivery;
            (delivery.tried, delivery.updated) = (*tried, now.wall);
            match disposition {
                Disposition::Delivered { .. } => {
                    (delivery.status, delivery.due) = (Status::Dispatched, None);
                    let delivery = delivery.clone();
                    let at = (*seq, sink.clone());
                    self.set(|tables| &mut tables.outbox.delivered, at, Some(delivery));
                    self.put_open(place, None);
                    continue;
                }
                Disposition::Again { in_ms, error } => {
                    delivery.due = Some(now.wall.plus_ms(*in_ms));
                    delivery.error = Some(error.clone());
                }
                Disposition::Failed { error, park } => {
                    (delivery.status, delivery.due) = (Status::Failed, None);
                    (delivery.error, delivery.parks) = (Some(error.clone()), *park);
                }
            }
            self.put_open(place, Some(open));
        }
        for batch in ended {
            self.set(|tables| &mut tables.outbox.batches, (lease, *batch), None);
        }
        Ok(())
    }

    fn redrive(&mut self, redrive: &Redrive, now: Now) -> Result<usize, StoreError> {
        let outbox = &self.tables.outbox;
        let remembered = |record: &Record, sink: &SinkName| {
            let remembers = outbox.sinks.get(sink).and_then(|sink| sink.remembers_ms);
            remembers.is_none_or(|ms| record.created.plus_ms(ms) > now.wall)
        };
        let wanted = |(sink, seq): &(SinkName, u64), open: &Open| {
            let Some(record) = outbox.records.get(seq) else { return false };
            open.delivery.status == Status::Failed
                && record.name.namespace == redrive.namespace
                && redrive.sink.as_ref().is_none_or(|wanted| wanted == sink)
                && redrive.id.is_none_or(|id| id == record.id)
                && (redrive.may_duplicate || remembered(record, sink))
        };
        let mut chosen: Vec<(SinkName, u64)> = outbox
            .open
            .iter()
            .filter(|(place, open)| wanted(place, open))
            .map(|(place, _)| place.clone())
            .collect();
        chosen.sort_by_key(|(_, seq)| *seq);
        chosen.truncate(redrive.limit);
        for place in &chosen {
            let Some(mut open) = self.tables.outbox.open.get(place).cloned() else { continue };
            let delivery = &mut open.delivery;
            (delivery.status, delivery.tried, delivery.parks) = (Status::Pending, 0, false);
            (delivery.due, delivery.updated) = (Some(now.wall), now.wall);
            self.put_open(place.clone(), Some(open));
        }
        for sink in chosen.iter().map(|(sink, _)| sink).collect::<BTreeSet<_>>() {
            self.touch(sink, None);
        }
        Ok(chosen.len())
    }
}

impl MemoryTxn<'_> {
    pub(super) fn put_open(&mut self, place: (SinkName, u64), open: Option<Open>) {
        self.set(|tables| &mut tables.outbox.open, place, open);
    }

    /// Counts a change of a sink, which may pause or resume it.
    pub(super) fn touch(&mut self, name: &SinkName, paused: Option<bool>) {
        if let Some(sink) = self.tables.outbox.sinks.get(name).cloned() {
            let paused = paused.unwrap_or(sink.paused);
            let sink = Sink { paused, changed: sink.changed + 1, ..sink };
            self.set(|tables| &mut tables.outbox.sinks, name.clone(), Some(sink));
        }
    }
}

impl Outbox {
    fn queued(&self, seq: u64, open: &Open) -> Option<QueuedDelivery> {
        Some(QueuedDelivery {
            record: self.records.get(&seq)?.clone(),
            ordering_hash: open.ordering_hash,
            transaction: 0,
            row: 0,
            tried: open.delivery.tried,
            refused: open.delivery.error.is_some(),
            guards: GuardCheck::Passed,
            due: open.delivery.due.unwrap_or_default(),
        })
    }

    /// The pending deliveries of a sink, in order.
    fn pending(&self, sink: &SinkName, after: u64) -> impl Iterator<Item = (u64, &Open)> {
        let range = (sink.clone(), after + 1)..=(sink.clone(), u64::MAX);
        let open = self.open.range(range).map(|((_, seq), open)| (*seq, open));
        open.filter(|(_, open)| open.delivery.status == Status::Pending)
    }
}
