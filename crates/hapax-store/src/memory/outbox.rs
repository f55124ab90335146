//! The outbox in memory.

use std::collections::{BTreeMap, BTreeSet};

use hapax_core::dataset::{Dataset, Registry};
use hapax_core::delivery::Buckets;
use hapax_core::guard::Guards;
use hapax_core::lease::LeaseId;
use hapax_core::name::Namespace;
use hapax_core::outbox::{Artifact, OrderingKeyHash, OutboxId, Record, Status};
use hapax_core::route::SinkName;
use hapax_core::time::Now;

use super::MemoryTxn;
use crate::error::StoreError;
use crate::outbox::{
    BatchedDelivery, Cursor, DeliveryResult, DeliveryStatus, Disposition, FetchRequest,
    FollowCursor, GuardCheck, OutboxTxn, OutboxView, Page, QueuedDelivery, RecordFilter,
    RecordStatus, Redrive, Routing, SendBatch, Sink, SinkStats,
};

#[derive(Default)]
#[cfg_attr(feature = "proof", derive(Clone))]
pub(super) struct Outbox {
    routing: Routing,
    registry: Registry,
    sinks: BTreeMap<SinkName, Sink>,
    records: BTreeMap<u64, Record>,
    /// The working set: deliveries that are pending or have failed.
    open: BTreeMap<(SinkName, u64), Open>,
    delivered: BTreeMap<(u64, SinkName), DeliveryStatus>,
    dispatchers: BTreeMap<LeaseId, Buckets>,
    flights: BTreeMap<(LeaseId, u64), SendBatch>,
}

#[derive(Clone)]
struct Open {
    track: OrderingKeyHash,
    delivery: DeliveryStatus,
}

impl Outbox {
    fn found(&self, record: &Record) -> RecordStatus {
        let seq = record.seq;
        let open = self.open.iter().filter(|((_, at), _)| *at == seq);
        let mut deliveries: Vec<_> = open.map(|(_, open)| open.delivery.clone()).collect();
        let done = self.delivered.iter().filter(|((at, _), _)| *at == seq);
        deliveries.extend(done.map(|(_, delivery)| delivery.clone()));
        deliveries.sort_by(|a, b| a.sink.cmp(&b.sink));
        let status = Status::over(deliveries.iter().map(|delivery| delivery.status));
        RecordStatus { record: record.clone(), status, deliveries }
    }

    fn parcel(&self, seq: u64, open: &Open) -> Option<QueuedDelivery> {
        Some(QueuedDelivery {
            record: self.records.get(&seq)?.clone(),
            track: open.track,
            transaction: 0,
            row: 0,
            tried: open.delivery.tried,
            refused: open.delivery.error.is_some(),
            passage: GuardCheck::Free,
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

impl MemoryTxn<'_> {
    fn put_open(&mut self, place: (SinkName, u64), open: Option<Open>) {
        self.set(|tables| &mut tables.outbox.open, place, open);
    }

    fn touch(&mut self, name: &SinkName, paused: Option<bool>) {
        if let Some(sink) = self.tables.outbox.sinks.get(name).cloned() {
            let paused = paused.unwrap_or(sink.paused);
            let sink = Sink { paused, changed: sink.changed + 1, ..sink };
            self.set(|tables| &mut tables.outbox.sinks, name.clone(), Some(sink));
        }
    }
}

impl OutboxView for MemoryTxn<'_> {
    fn routing(&mut self) -> Result<Routing, StoreError> {
        Ok(self.tables.outbox.routing.clone())
    }

    fn tide(&mut self) -> Result<FollowCursor, StoreError> {
        let last = self.tables.outbox.records.last_key_value();
        Ok(FollowCursor { floor: last.map_or(0, |(seq, _)| *seq), ..FollowCursor::default() })
    }

    fn recorded(
        &mut self,
        tide: FollowCursor,
        limit: usize,
    ) -> Result<(Vec<Record>, FollowCursor), StoreError> {
        let records = self.tables.outbox.records.range(tide.floor + 1..).take(limit);
        let records: Vec<Record> = records.map(|(_, record)| record.clone()).collect();
        let floor = records.last().map_or(tide.floor, |record| record.seq);
        Ok((records, FollowCursor { floor, ..tide }))
    }

    fn registry(&mut self, datasets: &BTreeSet<&str>) -> Result<Registry, StoreError> {
        let mut registry = self.tables.outbox.registry.clone();
        registry.datasets.retain(|name, _| datasets.contains(name.as_str()));
        Ok(registry)
    }

    fn datasets(&mut self) -> Result<BTreeMap<String, Dataset>, StoreError> {
        Ok(self.tables.outbox.registry.datasets.clone())
    }

    fn sinks(&mut self) -> Result<Vec<Sink>, StoreError> {
        Ok(self.tables.outbox.sinks.values().cloned().collect())
    }

    fn records(&mut self, ids: &[OutboxId]) -> Result<Vec<Option<RecordStatus>>, StoreError> {
        let outbox = &self.tables.outbox;
        let by_id = |id: &OutboxId| outbox.records.values().find(|record| record.id == *id);
        Ok(ids.iter().map(|id| by_id(id).map(|record| outbox.found(record))).collect())
    }

    fn outbox(&mut self, filter: &RecordFilter) -> Result<Vec<RecordStatus>, StoreError> {
        let outbox = &self.tables.outbox;
        let wanted = |found: &RecordStatus| {
            let namespace = &found.record.name.namespace;
            let open = |delivery: &DeliveryStatus| {
                delivery.status != Status::Dispatched
                    && Some(&delivery.sink) == filter.sink.as_ref()
            };
            filter.namespace.as_ref().is_none_or(|wanted| wanted == namespace)
                && filter.status.is_none_or(|status| status == found.status)
                && (filter.sink.is_none() || found.deliveries.iter().any(open))
        };
        let before = filter.before.unwrap_or(u64::MAX);
        let records = outbox.records.range(..before).rev();
        let found = records.map(|(_, record)| outbox.found(record)).filter(wanted);
        Ok(found.take(filter.limit).collect())
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

    fn feed(&mut self, buckets: &Buckets, lines: &[FetchRequest]) -> Result<Vec<Page>, StoreError> {
        let outbox = &self.tables.outbox;
        let fed = lines.iter().map(|line| {
            let mine = |parcel: &QueuedDelivery| {
                parcel.record.name.namespace == line.namespace
                    && buckets.contains(parcel.track.bucket())
            };
            let pending = outbox.pending(&line.sink, line.mark.seq);
            let parcels = pending.filter_map(|(seq, open)| outbox.parcel(seq, open)).filter(mine);
            let parcels: Vec<_> = parcels.take(line.limit).collect();
            let more = parcels.len() == line.limit;
            let last = parcels.last().map_or(line.mark.seq, |parcel| parcel.record.seq);
            Page { parcels, mark: Cursor { seq: last, ..line.mark }, more }
        });
        Ok(fed.collect())
    }

    fn feed_track(
        &mut self,
        sink: &SinkName,
        track: OrderingKeyHash,
        after: u64,
        limit: usize,
    ) -> Result<Vec<QueuedDelivery>, StoreError> {
        let outbox = &self.tables.outbox;
        let pending = outbox.pending(sink, after).filter(|(_, open)| open.track == track);
        Ok(pending.filter_map(|(seq, open)| outbox.parcel(seq, open)).take(limit).collect())
    }

    fn parked(
        &mut self,
        sink: &SinkName,
        buckets: &Buckets,
    ) -> Result<Vec<OrderingKeyHash>, StoreError> {
        let of = |(name, _): &&(SinkName, u64)| *name == *sink;
        let open = self.tables.outbox.open.iter().filter(|(place, _)| of(place));
        let parked = open.filter(|(_, open)| open.delivery.parks).map(|(_, open)| open.track);
        let parked: BTreeSet<_> = parked.filter(|track| buckets.contains(track.bucket())).collect();
        Ok(parked.into_iter().collect())
    }

    fn artifact(
        &mut self,
        namespace: &Namespace,
        dataset: &str,
        version: &str,
    ) -> Result<Option<Artifact>, StoreError> {
        let published = self.tables.outbox.records.values().find_map(|record| {
            let artifact = record.event.artifact.as_ref()?;
            let same = record.name.namespace == *namespace
                && record.event.dataset == dataset
                && artifact.version == version;
            same.then(|| artifact.clone())
        });
        Ok(published)
    }

    fn namespaces(&mut self) -> Result<Vec<Namespace>, StoreError> {
        let names = self.tables.effects.keys().map(|name| name.namespace.clone());
        Ok(names.collect::<BTreeSet<_>>().into_iter().collect())
    }
}

impl OutboxTxn for MemoryTxn<'_> {
    fn put_routing(&mut self, routing: &Routing) -> Result<(), StoreError> {
        for (name, remembers_ms) in &routing.sinks {
            let known = self.tables.outbox.sinks.get(name).cloned();
            let new = Sink { name: name.clone(), paused: false, changed: 0, remembers_ms: None };
            let sink = Sink { remembers_ms: *remembers_ms, ..known.unwrap_or(new) };
            self.set(|tables| &mut tables.outbox.sinks, name.clone(), Some(sink));
        }
        let before = std::mem::replace(&mut self.tables.outbox.routing, routing.clone());
        self.undo.push(Box::new(move |tables| tables.outbox.routing = before));
        Ok(())
    }

    fn put_guards(&mut self, guards: Guards) -> Result<(), StoreError> {
        let before = std::mem::replace(&mut self.tables.outbox.registry.guards, guards);
        self.undo.push(Box::new(move |tables| tables.outbox.registry.guards = before));
        Ok(())
    }

    fn put_dataset(&mut self, name: &str, dataset: Option<&Dataset>) -> Result<bool, StoreError> {
        let datasets = &mut self.tables.outbox.registry.datasets;
        let before = match dataset {
            Some(dataset) => datasets.insert(name.to_owned(), dataset.clone()),
            None => datasets.remove(name),
        };
        let (name, known) = (name.to_owned(), before.is_some());
        self.undo.push(Box::new(move |tables| {
            let datasets = &mut tables.outbox.registry.datasets;
            match before {
                Some(before) => datasets.insert(name, before),
                None => datasets.remove(&name),
            };
        }));
        Ok(known)
    }

    fn put_record(&mut self, record: &Record, sinks: &[&SinkName]) -> Result<(), StoreError> {
        let last = self.tables.outbox.records.last_key_value().map_or(0, |(seq, _)| *seq);
        let record = Record { seq: last + 1, ..record.clone() };
        for sink in sinks {
            let delivery = DeliveryStatus {
                sink: (*sink).clone(),
                status: Status::Pending,
                tried: 0,
                due: Some(record.created),
                error: None,
                updated: record.created,
                parks: false,
            };
            let open = Open { track: record.track(), delivery };
            self.put_open(((*sink).clone(), record.seq), Some(open));
        }
        self.set(|tables| &mut tables.outbox.records, record.seq, Some(record));
        Ok(())
    }

    fn put_paused(&mut self, sink: &SinkName, paused: bool) -> Result<bool, StoreError> {
        let known = self.tables.outbox.sinks.contains_key(sink);
        self.touch(sink, Some(paused));
        Ok(known)
    }

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
            self.tables.outbox.flights.range(range).map(|(k, v)| (*k, v.clone())).collect();
        for (place, flight) in lost {
            for BatchedDelivery { seq, tried, .. } in flight.parcels {
                let at = (flight.sink.clone(), seq);
                if let Some(mut open) = self.tables.outbox.open.get(&at).cloned() {
                    open.delivery.tried = open.delivery.tried.max(tried);
                    self.put_open(at, Some(open));
                }
            }
            self.set(|tables| &mut tables.outbox.flights, place, None);
        }
        self.set(|tables| &mut tables.outbox.dispatchers, lease, None);
        Ok(())
    }

    fn depart(&mut self, lease: LeaseId, flight: &SendBatch) -> Result<(), StoreError> {
        self.set(|tables| &mut tables.outbox.flights, (lease, flight.id), Some(flight.clone()));
        Ok(())
    }

    fn land(
        &mut self,
        lease: LeaseId,
        landed: &[DeliveryResult],
        over: &[u64],
        now: Now,
    ) -> Result<(), StoreError> {
        for DeliveryResult { sink, seq, tried, landing, .. } in landed {
            let place = (sink.clone(), *seq);
            let Some(mut open) = self.tables.outbox.open.get(&place).cloned() else { continue };
            let delivery = &mut open.delivery;
            (delivery.tried, delivery.updated) = (*tried, now.wall);
            match landing {
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
        for flight in over {
            self.set(|tables| &mut tables.outbox.flights, (lease, *flight), None);
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
