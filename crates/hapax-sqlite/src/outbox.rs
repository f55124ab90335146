//! Outbox records as rows.

use hapax_core::key::Key;
use hapax_core::name::{Name, Namespace};
use hapax_core::outbox::{Artifact, Event, Order, OutboxId, Payload, Record, Status, Trace};
use hapax_core::route::SinkName;
use hapax_core::time::Timestamp;
use hapax_store::outbox::{DeliveryStatus, FollowCursor, RecordFilter, RecordStatus};
use hapax_store::{OutboxTxn, OutboxView, StoreError};
use rusqlite::{Row, params};

use crate::error::decoded;
use crate::namespace;
use crate::query::{rows, run};
use crate::route::sink_name;
use crate::txn::SqliteTxn;

impl OutboxView for SqliteTxn<'_> {
    fn records(&mut self, ids: &[OutboxId]) -> Result<Vec<Option<RecordStatus>>, StoreError> {
        let sql = format!("SELECT {RECORD} FROM {FROM} WHERE e.outbox_id = ?1");
        ids.iter()
            .map(|id| {
                let found = rows(self.db, &sql, [id.as_bytes()], record)?.pop();
                found.map(|record| self.record_status(record)).transpose()
            })
            .collect()
    }

    fn outbox(&mut self, filter: &RecordFilter) -> Result<Vec<RecordStatus>, StoreError> {
        let namespace = match &filter.namespace {
            Some(namespace) => match self.namespace(namespace)? {
                Some(id) => Some(id),
                None => return Ok(Vec::new()),
            },
            None => None,
        };
        let sink = match &filter.sink {
            Some(sink) => Some(self.sink_id(sink)?.unwrap_or(-1)),
            None => None,
        };
        // Open deliveries are few, so the query begins with them.
        let from = match (filter.status, sink) {
            (Some(Status::Failed), _) => {
                "e.seq IN (SELECT seq FROM delivery WHERE due IS NULL AND ifnull(?3 = sink, 1))"
            }
            (Some(Status::Pending), _) => {
                "e.seq IN (SELECT seq FROM delivery WHERE ifnull(?3 = sink, 1))
                 AND e.seq NOT IN (SELECT seq FROM delivery WHERE due IS NULL)"
            }
            (Some(Status::Dispatched), _) => {
                "?3 IS NULL AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.seq = e.seq)"
            }
            (None, Some(_)) => "e.seq IN (SELECT seq FROM delivery WHERE ?3 = sink)",
            (None, None) => "?3 IS NULL",
        };
        let sql = format!(
            "SELECT {RECORD} FROM {FROM} WHERE {from} AND ifnull(e.namespace = ?1, 1) AND e.seq < ?2
             ORDER BY e.seq DESC LIMIT ?4"
        );
        let before = filter.before.map_or(i64::MAX, |seq| seq as i64);
        let params = params![namespace, before, sink, filter.limit as i64];
        let records = rows(self.db, &sql, params, record)?;
        records.into_iter().map(|record| self.record_status(record)).collect()
    }

    fn follow_cursor(&mut self) -> Result<FollowCursor, StoreError> {
        let sql = "SELECT ifnull(max(seq), 0) FROM outbox_record";
        let last = rows(self.db, sql, [], |row| row.get::<_, i64>(0))?;
        Ok(FollowCursor {
            floor: last.first().copied().unwrap_or_default() as u64,
            ..FollowCursor::default()
        })
    }

    /// One transaction writes at a time, so records become visible in their order.
    fn records_after(
        &mut self,
        cursor: FollowCursor,
        limit: usize,
    ) -> Result<(Vec<Record>, FollowCursor), StoreError> {
        let sql = format!("SELECT {RECORD} FROM {FROM} WHERE e.seq > ?1 ORDER BY e.seq LIMIT ?2");
        let records = rows(self.db, &sql, params![cursor.floor as i64, limit as i64], record)?;
        let floor = records.last().map_or(cursor.floor, |record| record.seq);
        Ok((records, FollowCursor { floor, ..cursor }))
    }

    fn artifact(
        &mut self,
        namespace: &Namespace,
        dataset: &str,
        version: &str,
    ) -> Result<Option<Artifact>, StoreError> {
        let Some(namespace) = self.namespace(namespace)? else { return Ok(None) };
        let sql = "SELECT checksum, uri FROM artifact
            WHERE namespace = ?1 AND dataset_id = ?2 AND version = ?3";
        let found = rows(self.db, sql, params![namespace, dataset, version], |row| {
            Ok(Artifact { version: version.to_owned(), checksum: row.get(0)?, uri: row.get(1)? })
        });
        Ok(found?.pop())
    }
}

impl OutboxTxn for SqliteTxn<'_> {
    fn put_record(&mut self, record: &Record, sinks: &[&SinkName]) -> Result<(), StoreError> {
        let (event, ordering_hash) = (&record.event, record.ordering_hash().0 as i64);
        let namespace = self.namespace_or_new(&record.name.namespace)?;
        let (ordering, order_key) = match &event.order {
            Order::Dataset => (0, None),
            Order::Key(key) => (1, Some(key)),
            Order::Free => (2, None),
        };
        run(
            self.db,
            "INSERT INTO outbox_record (outbox_id, namespace, idempotency_key, ordinal, event_name,
                 dataset_id, pipeline_id, version, ordering, order_key, ordering_hash, payload, created_at,
                 artifact_version, checksum, uri, trace)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
            params![
                record.id.as_bytes(),
                namespace,
                record.name.key.as_bytes(),
                record.ordinal,
                event.name,
                event.dataset,
                event.pipeline,
                event.version,
                ordering,
                order_key,
                ordering_hash,
                event.payload.as_str(),
                record.created.0,
                event.artifact.as_ref().map(|artifact| &artifact.version),
                event.artifact.as_ref().map(|artifact| &artifact.checksum),
                event.artifact.as_ref().map(|artifact| &artifact.uri),
                event.trace.as_ref().map(Trace::as_str)
            ],
        )?;
        let seq = self.db.last_insert_rowid();
        if let Some(artifact) = &event.artifact {
            run(
                self.db,
                "INSERT INTO artifact (namespace, dataset_id, version, checksum, uri, record)
                 SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE NOT EXISTS (SELECT 1 FROM artifact
                     WHERE namespace = ?1 AND dataset_id = ?2 AND version = ?3)",
                params![
                    namespace,
                    event.dataset,
                    artifact.version,
                    artifact.checksum,
                    artifact.uri,
                    seq
                ],
            )?;
        }
        for sink in sinks {
            let sink = self.sink_id(sink)?;
            run(
                self.db,
                "INSERT INTO delivery (sink, seq, namespace, ordering_hash, due, updated)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?5)",
                params![sink, seq, namespace, ordering_hash, record.created.0],
            )?;
        }
        Ok(())
    }
}

impl SqliteTxn<'_> {
    fn record_status(&self, record: Record) -> Result<RecordStatus, StoreError> {
        let deliveries = self.deliveries(record.seq)?;
        let status = Status::over(deliveries.iter().map(|delivery| delivery.status));
        Ok(RecordStatus { record, status, deliveries })
    }

    fn deliveries(&self, seq: u64) -> Result<Vec<DeliveryStatus>, StoreError> {
        let sql = "SELECT s.name, d.tried, d.due, d.error, d.updated, d.parks, 0
            FROM delivery d JOIN sink s ON s.id = d.sink WHERE d.seq = ?1
            UNION ALL SELECT s.name, d.tried, NULL, d.error, d.at, 0, 1
            FROM dispatched d JOIN sink s ON s.id = d.sink WHERE d.seq = ?1 ORDER BY 1";
        rows(self.db, sql, [seq as i64], |row| {
            let due: Option<i64> = row.get(2)?;
            let status = match (row.get(6)?, due) {
                (true, _) => Status::Dispatched,
                (false, Some(_)) => Status::Pending,
                (false, None) => Status::Failed,
            };
            Ok(DeliveryStatus {
                sink: sink_name(row, 0)?,
                status,
                tried: row.get(1)?,
                due: due.map(Timestamp),
                error: row.get(3)?,
                updated: Timestamp(row.get(4)?),
                parks: row.get(5)?,
            })
        })
    }
}

/// The columns of a record, in the order in which they are read.
pub(crate) const RECORD: &str =
    "e.seq, e.outbox_id, n.name, e.idempotency_key, e.ordinal, e.event_name,
    e.dataset_id, e.pipeline_id, e.version, e.ordering, e.order_key, e.payload, e.created_at,
    e.artifact_version, e.checksum, e.uri, e.trace";
/// Where they come from.
pub(crate) const FROM: &str = "outbox_record e JOIN namespace n ON n.id = e.namespace";

/// Reads a row with [`RECORD`].
pub(crate) fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    let key = row.get::<_, Option<String>>(10)?;
    let order = decoded(row, 9, "kind of order", |code| match (code, key) {
        (0, _) => Some(Order::Dataset),
        (1, Some(key)) => Some(Order::Key(key)),
        (2, _) => Some(Order::Free),
        _ => None,
    })?;
    let artifact = match row.get::<_, Option<String>>(13)? {
        Some(version) => Some(Artifact { version, checksum: row.get(14)?, uri: row.get(15)? }),
        None => None,
    };
    Ok(Record {
        seq: row.get::<_, i64>(0)? as u64,
        id: OutboxId::from_bytes(row.get(1)?),
        name: Name { namespace: namespace::read(row, 2)?, key: Key::from_bytes(row.get(3)?) },
        ordinal: row.get(4)?,
        event: Event {
            name: row.get(5)?,
            dataset: row.get(6)?,
            pipeline: row.get(7)?,
            version: row.get(8)?,
            order,
            payload: Payload::stored(row.get(11)?),
            artifact,
            trace: row.get::<_, Option<String>>(16)?.and_then(|text| Trace::parse(&text)),
        },
        created: Timestamp(row.get(12)?),
    })
}
