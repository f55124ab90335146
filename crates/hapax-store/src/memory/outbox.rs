//! The outbox, in memory.

use std::collections::BTreeMap;

use hapax_core::dataset::Registry;
use hapax_core::delivery::Buckets;
use hapax_core::lease::LeaseId;
use hapax_core::name::Namespace;
use hapax_core::outbox::{Artifact, OrderingKeyHash, OutboxId, Record, Status};
use hapax_core::route::SinkName;

use super::MemoryTxn;
use crate::delivery::{DeliveryStatus, SendBatch};
use crate::error::StoreError;
use crate::outbox::{FollowCursor, OutboxTxn, OutboxView, RecordFilter, RecordStatus};
use crate::route::{Routing, Sink};

impl OutboxView for MemoryTxn<'_> {
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

    fn follow_cursor(&mut self) -> Result<FollowCursor, StoreError> {
        let last = self.tables.outbox.records.last_key_value();
        Ok(FollowCursor { floor: last.map_or(0, |(seq, _)| *seq), ..FollowCursor::default() })
    }

    fn records_after(
        &mut self,
        cursor: FollowCursor,
        limit: usize,
    ) -> Result<(Vec<Record>, FollowCursor), StoreError> {
        let records = self.tables.outbox.records.range(cursor.floor + 1..).take(limit);
        let records: Vec<Record> = records.map(|(_, record)| record.clone()).collect();
        let floor = records.last().map_or(cursor.floor, |record| record.seq);
        Ok((records, FollowCursor { floor, ..cursor }))
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
}

impl OutboxTxn for MemoryTxn<'_> {
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
            let open = Open { ordering_hash: record.ordering_hash(), delivery };
            self.put_open(((*sink).clone(), record.seq), Some(open));
        }
        self.set(|tables| &mut tables.outbox.records, record.seq, Some(record));
        Ok(())
    }
}

#[derive(Default)]
#[cfg_attr(feature = "proof", derive(Clone))]
pub(super) struct Outbox {
    pub(super) routing: Routing,
    pub(super) registry: Registry,
    pub(super) sinks: BTreeMap<SinkName, Sink>,
    pub(super) records: BTreeMap<u64, Record>,
    /// The working set: deliveries that are pending or have failed.
    pub(super) open: BTreeMap<(SinkName, u64), Open>,
    pub(super) delivered: BTreeMap<(u64, SinkName), DeliveryStatus>,
    pub(super) dispatchers: BTreeMap<LeaseId, Buckets>,
    pub(super) batches: BTreeMap<(LeaseId, u64), SendBatch>,
}

#[derive(Clone)]
pub(super) struct Open {
    pub(super) ordering_hash: OrderingKeyHash,
    pub(super) delivery: DeliveryStatus,
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
}
