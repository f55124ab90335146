//! Outbox records as rows.

use std::error::Error;

use hapax_core::key::Key;
use hapax_core::name::{Name, Namespace};
use hapax_core::outbox::{Artifact, Event, Order, OutboxId, Payload, Record, Status, Trace};
use hapax_core::route::SinkName;
use hapax_core::time::Timestamp;
use hapax_store::outbox::{DeliveryStatus, FollowCursor, RecordFilter, RecordStatus};
use hapax_store::{OutboxTxn, OutboxView, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use crate::connect::{Link, Param};
use crate::effect::bytes;
use crate::error::{PgFailure, decoded};
use crate::route::sink_name;
use crate::txn::PgTxn;
use crate::writes::NewRecord;

/// The columns of a record. They are read by position, because there may be many rows.
macro_rules! record {
    () => {
        "e.seq, e.outbox_id, e.namespace, e.idempotency_key, e.ordinal, e.event_name, e.dataset_id,
         e.pipeline_id, e.version, e.ordering, e.order_key, e.payload, e.created_at,
         e.artifact_version, e.checksum, e.uri, e.trace"
    };
}
pub(crate) use record;

/// The columns of a record to deliver. The last says whether its payload has passed the guards.
macro_rules! record_to_deliver {
    () => {
        concat!(crate::outbox::record!(), ", e.judged")
    };
}
pub(crate) use record_to_deliver;

impl OutboxView for PgTxn<'_> {
    fn records(&mut self, ids: &[OutboxId]) -> Result<Vec<Option<RecordStatus>>, StoreError> {
        let stored = self.try_records(ids);
        let mut found = self.keep_failure(stored)?;
        for (id, found) in ids.iter().zip(&mut found) {
            let staged = self.unsent_records().find(|record| record.id == *id);
            if let Some(record) = staged {
                let (record, status) = (record.clone(), Status::Pending);
                *found = Some(RecordStatus { record, status, deliveries: Vec::new() });
            }
        }
        Ok(found)
    }

    fn outbox(&mut self, filter: &RecordFilter) -> Result<Vec<RecordStatus>, StoreError> {
        let found = self.try_outbox(filter);
        self.keep_failure(found)
    }

    fn follow_cursor(&mut self) -> Result<FollowCursor, StoreError> {
        let cursor = self.try_follow_cursor();
        self.keep_failure(cursor)
    }

    fn records_after(
        &mut self,
        cursor: FollowCursor,
        limit: usize,
    ) -> Result<(Vec<Record>, FollowCursor), StoreError> {
        let recorded = self.try_records_after(cursor, limit);
        self.keep_failure(recorded)
    }

    fn artifact(
        &mut self,
        namespace: &Namespace,
        dataset: &str,
        version: &str,
    ) -> Result<Option<Artifact>, StoreError> {
        let staged = self.unsent_records().find_map(|record| {
            let artifact = record.event.artifact.as_ref()?;
            let same = record.name.namespace == *namespace
                && record.event.dataset == dataset
                && artifact.version == version;
            same.then(|| artifact.clone())
        });
        if staged.is_some() {
            return Ok(staged);
        }
        let artifact = self.try_artifact(namespace, dataset, version);
        self.keep_failure(artifact)
    }
}

impl OutboxTxn for PgTxn<'_> {
    fn put_record(&mut self, record: &Record, sinks: &[&SinkName]) -> Result<(), StoreError> {
        let namespace = self.namespace(&record.name.namespace);
        let namespace = self.keep_failure(namespace)?;
        let sinks = sinks.iter().map(|sink| (*sink).clone()).collect();
        self.stage_record(namespace, record.clone(), sinks);
        Ok(())
    }
}

impl PgTxn<'_> {
    /// Stages a record, which is written when all commands have been judged.
    fn stage_record(&mut self, namespace: i32, record: Record, sinks: Vec<SinkName>) {
        self.staged.records.push(NewRecord { namespace, record, sinks });
    }

    /// The records that commands have staged and the transaction has not sent.
    fn unsent_records(&self) -> impl Iterator<Item = &Record> {
        self.written.records.iter().chain(&self.staged.records).map(|new| &new.record)
    }

    /// Reads a row with the columns of a record.
    pub(crate) fn record(&self, row: &Row) -> Result<Record, PgFailure> {
        let key = row.try_get::<_, Option<String>>(10)?;
        let order = decoded(row.try_get(9)?, "kind of order", |code| match (code, key) {
            (0, _) => Some(Order::Dataset),
            (1, Some(key)) => Some(Order::Key(key)),
            (2, _) => Some(Order::Free),
            _ => None,
        })?;
        let artifact = match row.try_get::<_, Option<String>>(13)? {
            Some(version) => {
                Some(Artifact { version, checksum: row.try_get(14)?, uri: row.try_get(15)? })
            }
            None => None,
        };
        let namespace = self.namespaces.name(self.link, row.try_get(2)?)?;
        Ok(Record {
            seq: row.try_get::<_, i64>(0)? as u64,
            id: row.try_get::<_, RecordId>(1)?.0,
            name: Name { namespace, key: Key::from_bytes(bytes(row, 3)?) },
            ordinal: row.try_get::<_, i32>(4)? as u32,
            event: Event {
                name: row.try_get(5)?,
                dataset: row.try_get(6)?,
                pipeline: row.try_get(7)?,
                version: row.try_get(8)?,
                order,
                payload: row.try_get::<_, StoredPayload>(11)?.0,
                artifact,
                trace: row.try_get::<_, Option<&str>>(16)?.and_then(Trace::parse),
            },
            created: Timestamp(row.try_get(12)?),
        })
    }

    pub(crate) fn record_status(&self, row: &Row) -> Result<RecordStatus, PgFailure> {
        let record = self.record(row)?;
        let (seq, ordering_hash) = (record.seq as i64, record.ordering_hash().0 as i64);
        let open = "SELECT s.name, d.tried, d.due, d.error, d.updated, d.parks, false
            FROM hapax.delivery d JOIN hapax.sink s ON s.id = d.sink
            WHERE d.ordering_hash = $1 AND d.seq = $2";
        let done = "SELECT s.name, d.tried[array_position(d.seqs, $1)], NULL::bigint, NULL::text,
                d.at, false, true
            FROM hapax.dispatched d JOIN hapax.sink s ON s.id = d.sink
            WHERE d.span @> $1 AND $1 = ANY (d.seqs)";
        let delivery_key: [Param<'_>; 2] = [(&ordering_hash, Type::INT8), (&seq, Type::INT8)];
        let (mut rows, done) =
            self.link.query_both((open, &delivery_key), (done, &[(&seq, Type::INT8)]))?;
        rows.extend(done);
        let mut deliveries = rows.iter().map(delivery).collect::<Result<Vec<_>, _>>()?;
        deliveries.sort_by(|a, b| a.sink.cmp(&b.sink));
        let status = Status::over(deliveries.iter().map(|delivery| delivery.status));
        Ok(RecordStatus { record, status, deliveries })
    }

    fn try_records(&self, ids: &[OutboxId]) -> Result<Vec<Option<RecordStatus>>, PgFailure> {
        let sql = concat!(
            "SELECT ",
            record!(),
            " FROM hapax.outbox_record e WHERE e.outbox_id = encode($1, 'hex')::uuid"
        );
        ids.iter()
            .map(|id| {
                let rows =
                    self.link.query_prepared((sql, &[(&&id.as_bytes()[..], Type::BYTEA)]))?;
                rows.first().map(|row| self.record_status(row)).transpose()
            })
            .collect()
    }

    fn try_outbox(&self, filter: &RecordFilter) -> Result<Vec<RecordStatus>, PgFailure> {
        let namespace = match &filter.namespace {
            Some(namespace) => match self.namespaces.find(self.link, namespace)? {
                Some(id) => Some(id),
                None => return Ok(Vec::new()),
            },
            None => None,
        };
        let sink = match &filter.sink {
            Some(sink) => Some(self.sink_id(sink)?.unwrap_or(-1)),
            None => None,
        };
        let open = "EXISTS (SELECT 1 FROM hapax.delivery d WHERE d.ordering_hash = e.ordering_hash AND d.seq = e.seq";
        let which = match filter.status {
            Some(Status::Failed) => "e.outbox_id IN (SELECT d.outbox_id FROM hapax.delivery d
                WHERE d.due IS NULL AND ($3 IS NULL OR d.sink = $3))"
                .into(),
            Some(Status::Pending) => format!(
                "e.outbox_id IN (SELECT d.outbox_id FROM hapax.delivery d
                     WHERE $3 IS NULL OR d.sink = $3)
                 AND NOT {open} AND d.due IS NULL)"
            ),
            Some(Status::Dispatched) => format!("$3 IS NULL AND NOT {open})"),
            None => format!("($3 IS NULL OR {open} AND d.sink = $3))"),
        };
        let sql = format!(
            "SELECT {} FROM hapax.outbox_record e
             WHERE {which} AND ($1 IS NULL OR e.namespace = $1) AND e.seq < $2
             ORDER BY e.seq DESC LIMIT $4",
            record!()
        );
        let params: [Param<'_>; 4] = [
            (&namespace, Type::INT4),
            (&filter.before.map_or(i64::MAX, |seq| seq as i64), Type::INT8),
            (&sink, Type::INT2),
            (&(filter.limit as i64), Type::INT8),
        ];
        self.link.query(&sql, &params)?.iter().map(|row| self.record_status(row)).collect()
    }

    fn try_artifact(
        &self,
        namespace: &Namespace,
        dataset: &str,
        version: &str,
    ) -> Result<Option<Artifact>, PgFailure> {
        let Some(namespace) = self.namespaces.find(self.link, namespace)? else { return Ok(None) };
        let sql = "SELECT checksum, uri FROM hapax.artifact
            WHERE namespace = $1 AND dataset_id = $2 AND version = $3";
        let params: [Param<'_>; 3] =
            [(&namespace, Type::INT4), (&dataset, Type::TEXT), (&version, Type::TEXT)];
        let rows = self.link.query(sql, &params)?;
        let Some(row) = rows.first() else { return Ok(None) };
        let version = version.to_owned();
        Ok(Some(Artifact { version, checksum: row.try_get(0)?, uri: row.try_get(1)? }))
    }
}

/// A record's id, as the server keeps it.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct RecordId(pub(crate) OutboxId);

impl<'a> FromSql<'a> for RecordId {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(OutboxId::from_bytes(raw.try_into()?)))
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::UUID
    }
}

/// A payload as the server keeps it, which saves a conversion to another text.
struct StoredPayload(Payload);

impl<'a> FromSql<'a> for StoredPayload {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(Payload::stored(std::str::from_utf8(raw)?.to_owned())))
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::JSON
    }
}

fn delivery(row: &Row) -> Result<DeliveryStatus, PgFailure> {
    let due = row.try_get::<_, Option<i64>>(2)?;
    let status = match (row.try_get(6)?, due) {
        (true, _) => Status::Dispatched,
        (false, Some(_)) => Status::Pending,
        (false, None) => Status::Failed,
    };
    Ok(DeliveryStatus {
        sink: sink_name(row, 0)?,
        status,
        tried: row.try_get::<_, i32>(1)? as u32,
        due: due.map(Timestamp),
        error: row.try_get(3)?,
        updated: Timestamp(row.try_get(4)?),
        parks: row.try_get(5)?,
    })
}

/// Writes a record that a command has staged, its artifact and its deliveries.
pub(crate) fn put(
    link: &Link,
    namespace: i32,
    record: &Record,
    sinks: &[SinkName],
) -> Result<(), PgFailure> {
    let event = &record.event;
    let (ordering, order_key): (i16, _) = match &event.order {
        Order::Dataset => (0, None),
        Order::Key(key) => (1, Some(key)),
        Order::Free => (2, None),
    };
    let artifact = event.artifact.as_ref();
    let sinks: Vec<&str> = sinks.iter().map(SinkName::as_str).collect();
    link.query_prepared((
        "WITH event AS (
             INSERT INTO hapax.outbox_record (created_at, ordering_hash, namespace, ordinal, ordering, outbox_id,
                 idempotency_key, event_name, dataset_id, pipeline_id, version, order_key, payload,
                 artifact_version, checksum, uri, trace, judged)
             VALUES ($1, $2, $3, $4, $5, encode($6, 'hex')::uuid, $7, $8, $9, $10, $11, $12,
                 $13::json, $14, $15, $16, $18, true)
             RETURNING seq, outbox_id
         )
         INSERT INTO hapax.delivery (seq, outbox_id, xid, ordering_hash, due, updated, namespace, sink)
         SELECT e.seq, e.outbox_id, pg_current_xact_id()::text::bigint, $2, $1, $1, $3, s.id
         FROM event e, hapax.sink s WHERE s.name = ANY ($17)",
        &[
            (&record.created.0, Type::INT8),
            (&(record.ordering_hash().0 as i64), Type::INT8),
            (&namespace, Type::INT4),
            (&(record.ordinal as i32), Type::INT4),
            (&ordering, Type::INT2),
            (&&record.id.as_bytes()[..], Type::BYTEA),
            (&&record.name.key.as_bytes()[..], Type::BYTEA),
            (&event.name, Type::TEXT),
            (&event.dataset, Type::TEXT),
            (&event.pipeline, Type::TEXT),
            (&event.version, Type::TEXT),
            (&order_key, Type::TEXT),
            (&event.payload.as_str(), Type::TEXT),
            (&artifact.map(|artifact| &artifact.version), Type::TEXT),
            (&artifact.map(|artifact| &artifact.checksum), Type::TEXT),
            (&artifact.map(|artifact| &artifact.uri), Type::TEXT),
            (&sinks, Type::TEXT_ARRAY),
            (&event.trace.as_ref().map(Trace::as_str), Type::TEXT),
        ],
    ))?;
    if let Some(artifact) = artifact {
        link.execute(
            "INSERT INTO hapax.artifact (namespace, dataset_id, version, checksum, uri, record)
             SELECT $1, $2, $3, $4, $5, e.seq FROM hapax.outbox_record e
             WHERE e.outbox_id = encode($6, 'hex')::uuid ON CONFLICT DO NOTHING",
            &[
                (&namespace, Type::INT4),
                (&event.dataset, Type::TEXT),
                (&artifact.version, Type::TEXT),
                (&artifact.checksum, Type::TEXT),
                (&artifact.uri, Type::TEXT),
                (&&record.id.as_bytes()[..], Type::BYTEA),
            ],
        )?;
    }
    Ok(())
}
