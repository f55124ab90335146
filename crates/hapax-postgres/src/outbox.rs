//! The outbox as rows.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use hapax_core::dataset::{Dataset, Registry};
use hapax_core::delivery::Buckets;
use hapax_core::guard::Guards;
use hapax_core::key::Key;
use hapax_core::lease::LeaseId;
use hapax_core::name::{Name, Namespace};
use hapax_core::outbox::{
    Artifact, Event, Order, OrderingKeyHash, OutboxId, Payload, Record, Status, Trace,
};
use hapax_core::route::{Route, SinkName};
use hapax_core::time::{Now, Timestamp};
use hapax_store::StoreError;
use hapax_store::outbox::{
    DeliveryResult, DeliveryStatus, FetchRequest, FollowCursor, GuardCheck, OutboxTxn, OutboxView,
    Page, QueuedDelivery, RecordFilter, RecordStatus, Redrive, Routing, SendBatch, Sink, SinkStats,
};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use crate::connect::{Link, Param};
use crate::delivery::RowAddress;
use crate::effect::bytes;
use crate::error::PgFailure;
use crate::txn::PgTxn;

/// The columns of a record. They are read by position, because there may be many rows.
macro_rules! record {
    () => {
        "e.seq, e.outbox_id, e.namespace, e.idempotency_key, e.ordinal, e.event_name, e.dataset_id,
         e.pipeline_id, e.version, e.ordering, e.order_key, e.payload, e.created_at,
         e.artifact_version, e.checksum, e.uri, e.trace"
    };
}
pub(crate) use record;

/// The columns of a record to deliver; the last says whether its payload was judged.
macro_rules! judged {
    () => {
        concat!(crate::outbox::record!(), ", e.judged")
    };
}
pub(crate) use judged;

/// A record's id, as the server keeps it.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Id(pub(crate) OutboxId);

impl<'a> FromSql<'a> for Id {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(OutboxId::from_bytes(raw.try_into()?)))
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::UUID
    }
}

/// A payload as the server keeps it, which saves a conversion to another text.
struct Document(Payload);

impl<'a> FromSql<'a> for Document {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(Payload::stored(std::str::from_utf8(raw)?.to_owned())))
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::JSON
    }
}

impl PgTxn<'_> {
    pub(crate) fn record(&self, row: &Row) -> Result<Record, PgFailure> {
        let order = match (row.try_get::<_, i16>(9)?, row.try_get(10)?) {
            (0, _) => Order::Dataset,
            (1, Some(key)) => Order::Key(key),
            _ => Order::Free,
        };
        let artifact = match row.try_get::<_, Option<String>>(13)? {
            Some(version) => {
                Some(Artifact { version, checksum: row.try_get(14)?, uri: row.try_get(15)? })
            }
            None => None,
        };
        let namespace = self.namespaces.name(self.link, row.try_get(2)?)?;
        Ok(Record {
            seq: row.try_get::<_, i64>(0)? as u64,
            id: row.try_get::<_, Id>(1)?.0,
            name: Name { namespace, key: Key::from_bytes(bytes(row, 3)?) },
            ordinal: row.try_get::<_, i32>(4)? as u32,
            event: Event {
                name: row.try_get(5)?,
                dataset: row.try_get(6)?,
                pipeline: row.try_get(7)?,
                version: row.try_get(8)?,
                order,
                payload: row.try_get::<_, Document>(11)?.0,
                artifact,
                trace: row.try_get::<_, Option<&str>>(16)?.and_then(Trace::parse),
            },
            created: Timestamp(row.try_get(12)?),
        })
    }

    /// A record with its delivery. The delivery's columns begin at `at` in another row: transaction,
    /// ordering key's hash, tries, due time, whether it was refused, and its position.
    pub(crate) fn parcel(
        &self,
        record: &Row,
        (delivery, at): (&Row, usize),
    ) -> Result<QueuedDelivery, PgFailure> {
        Ok(QueuedDelivery {
            record: self.record(record)?,
            passage: if record.try_get(17)? { GuardCheck::Free } else { GuardCheck::Unasked },
            transaction: delivery.try_get::<_, i64>(at)? as u64,
            track: OrderingKeyHash(delivery.try_get::<_, i64>(at + 1)? as u64),
            tried: delivery.try_get::<_, i32>(at + 2)? as u32,
            due: Timestamp(delivery.try_get(at + 3)?),
            refused: delivery.try_get(at + 4)?,
            row: delivery.try_get::<_, RowAddress>(at + 5)?.0,
        })
    }

    pub(crate) fn sink_id(&self, name: &SinkName) -> Result<Option<i16>, PgFailure> {
        let sql = "SELECT id FROM hapax.sink WHERE name = $1";
        let rows = self.link.often((sql, &[(&name.as_str(), Type::TEXT)]))?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
    }

    fn try_routing(&self) -> Result<Routing, PgFailure> {
        let sinks = "SELECT name, remembers_ms FROM hapax.sink WHERE declared ORDER BY id";
        let routes = "SELECT r.nth, r.event, r.dataset, s.name FROM hapax.route r
            LEFT JOIN hapax.sink s ON s.id = r.sink ORDER BY r.id";
        let (sinks, rows) = self.link.both((sinks, &[]), (routes, &[]))?;
        let read = |row: &Row| {
            Ok((sink_name(row, 0)?, row.try_get::<_, Option<i64>>(1)?.map(|ms| ms as u64)))
        };
        let sinks = sinks.iter().map(read).collect::<Result<_, PgFailure>>()?;
        let mut routes: BTreeMap<i32, Route> = BTreeMap::new();
        for row in &rows {
            let (event, dataset) = (row.try_get(1)?, row.try_get(2)?);
            let new = Route { event, dataset, sinks: Vec::new() };
            let route = routes.entry(row.try_get(0)?).or_insert(new);
            if row.try_get::<_, Option<&str>>(3)?.is_some() {
                route.sinks.push(sink_name(row, 3)?);
            }
        }
        Ok(Routing { sinks, routes: routes.into_values().collect() })
    }

    fn try_sinks(&self) -> Result<Vec<Sink>, PgFailure> {
        let sql = "SELECT name, paused, changed, remembers_ms FROM hapax.sink ORDER BY name";
        let read = |row: &Row| {
            Ok(Sink {
                name: sink_name(row, 0)?,
                paused: row.try_get(1)?,
                changed: row.try_get::<_, i64>(2)? as u64,
                remembers_ms: row.try_get::<_, Option<i64>>(3)?.map(|ms| ms as u64),
            })
        };
        self.link.often((sql, &[]))?.iter().map(read).collect()
    }

    pub(crate) fn found(&self, row: &Row) -> Result<RecordStatus, PgFailure> {
        let record = self.record(row)?;
        let (seq, track) = (record.seq as i64, record.track().0 as i64);
        let open = "SELECT s.name, d.tried, d.due, d.error, d.updated, d.parks, false
            FROM hapax.delivery d JOIN hapax.sink s ON s.id = d.sink
            WHERE d.track = $1 AND d.seq = $2";
        let done = "SELECT s.name, d.tried[array_position(d.seqs, $1)], NULL::bigint, NULL::text,
                d.at, false, true
            FROM hapax.dispatched d JOIN hapax.sink s ON s.id = d.sink
            WHERE d.span @> $1 AND $1 = ANY (d.seqs)";
        let place: [Param<'_>; 2] = [(&track, Type::INT8), (&seq, Type::INT8)];
        let (mut rows, done) = self.link.both((open, &place), (done, &[(&seq, Type::INT8)]))?;
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
                let rows = self.link.often((sql, &[(&&id.as_bytes()[..], Type::BYTEA)]))?;
                rows.first().map(|row| self.found(row)).transpose()
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
        let open =
            "EXISTS (SELECT 1 FROM hapax.delivery d WHERE d.track = e.track AND d.seq = e.seq";
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
        self.link.query(&sql, &params)?.iter().map(|row| self.found(row)).collect()
    }

    fn try_stats(&self) -> Result<Vec<SinkStats>, PgFailure> {
        let sinks = self.try_sinks()?;
        let sql = "SELECT count(d.due), count(*) - count(d.due),
                min(e.created_at) FILTER (WHERE d.due IS NOT NULL)
            FROM hapax.delivery d JOIN hapax.sink s ON s.id = d.sink
            JOIN hapax.outbox_record e ON e.outbox_id = d.outbox_id WHERE s.name = $1";
        let stats = sinks.into_iter().map(|sink| {
            let row = self.link.one(sql, &[(&sink.name.as_str(), Type::TEXT)])?;
            let (pending, failed): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            let oldest = row.try_get::<_, Option<i64>>(2)?.map(Timestamp);
            Ok(SinkStats { sink, pending: pending as u64, failed: failed as u64, oldest })
        });
        stats.collect()
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

    fn try_namespaces(&self) -> Result<Vec<Namespace>, PgFailure> {
        let rows = self.link.often(("SELECT name FROM hapax.namespace ORDER BY name", &[]))?;
        rows.iter()
            .map(|row| {
                let name = Namespace::new(row.try_get(0)?);
                name.map_err(|error| StoreError::Corrupt(error.to_string()).into())
            })
            .collect()
    }

    fn try_put_routing(&self, routing: &Routing) -> Result<(), PgFailure> {
        let link = self.link;
        link.run("DELETE FROM hapax.route; UPDATE hapax.sink SET declared = false")?;
        for (name, remembers) in &routing.sinks {
            link.execute(
                "INSERT INTO hapax.sink (name, remembers_ms) VALUES ($1, $2)
                 ON CONFLICT (name) DO UPDATE SET declared = true, remembers_ms = $2",
                &[(&name.as_str(), Type::TEXT), (&remembers.map(|ms| ms as i64), Type::INT8)],
            )?;
        }
        for (nth, route) in routing.routes.iter().enumerate() {
            let put = |sink: Option<i16>| {
                link.execute(
                    "INSERT INTO hapax.route (nth, event, dataset, sink) VALUES ($1, $2, $3, $4)",
                    &[
                        (&(nth as i32), Type::INT4),
                        (&route.event, Type::TEXT),
                        (&route.dataset, Type::TEXT),
                        (&sink, Type::INT2),
                    ],
                )
            };
            if route.sinks.is_empty() {
                put(None)?;
            }
            for sink in &route.sinks {
                put(self.sink_id(sink)?)?;
            }
        }
        Ok(())
    }
}

fn sink_name(row: &Row, at: usize) -> Result<SinkName, PgFailure> {
    let name = SinkName::new(row.try_get(at)?);
    name.map_err(|error| StoreError::Corrupt(error.to_string()).into())
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
    link.often((
        "WITH event AS (
             INSERT INTO hapax.outbox_record (created_at, track, namespace, ordinal, ordering, outbox_id,
                 idempotency_key, event_name, dataset_id, pipeline_id, version, order_key, payload,
                 artifact_version, checksum, uri, trace, judged)
             VALUES ($1, $2, $3, $4, $5, encode($6, 'hex')::uuid, $7, $8, $9, $10, $11, $12,
                 $13::json, $14, $15, $16, $18, true)
             RETURNING seq, outbox_id
         )
         INSERT INTO hapax.delivery (seq, outbox_id, xid, track, due, updated, namespace, sink)
         SELECT e.seq, e.outbox_id, pg_current_xact_id()::text::bigint, $2, $1, $1, $3, s.id
         FROM event e, hapax.sink s WHERE s.name = ANY ($17)",
        &[
            (&record.created.0, Type::INT8),
            (&(record.track().0 as i64), Type::INT8),
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

impl OutboxView for PgTxn<'_> {
    fn routing(&mut self) -> Result<Routing, StoreError> {
        let routing = self.try_routing();
        self.noting(routing)
    }

    fn tide(&mut self) -> Result<FollowCursor, StoreError> {
        let tide = self.try_tide();
        self.noting(tide)
    }

    fn recorded(
        &mut self,
        tide: FollowCursor,
        limit: usize,
    ) -> Result<(Vec<Record>, FollowCursor), StoreError> {
        let recorded = self.try_recorded(tide, limit);
        self.noting(recorded)
    }

    fn registry(&mut self, datasets: &BTreeSet<&str>) -> Result<Registry, StoreError> {
        let registry = self.try_registry(datasets);
        self.noting(registry)
    }

    fn sinks(&mut self) -> Result<Vec<Sink>, StoreError> {
        let sinks = self.try_sinks();
        self.noting(sinks)
    }

    fn records(&mut self, ids: &[OutboxId]) -> Result<Vec<Option<RecordStatus>>, StoreError> {
        let stored = self.try_records(ids);
        let mut found = self.noting(stored)?;
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
        self.noting(found)
    }

    fn outbox_stats(&mut self) -> Result<Vec<SinkStats>, StoreError> {
        let stats = self.try_stats();
        self.noting(stats)
    }

    fn feed(&mut self, buckets: &Buckets, lines: &[FetchRequest]) -> Result<Vec<Page>, StoreError> {
        let fed = self.try_feed(buckets, lines);
        self.noting(fed)
    }

    fn feed_track(
        &mut self,
        sink: &SinkName,
        track: OrderingKeyHash,
        after: u64,
        limit: usize,
    ) -> Result<Vec<QueuedDelivery>, StoreError> {
        let parcels = self.try_feed_track(sink, track, after, limit);
        self.noting(parcels)
    }

    fn parked(
        &mut self,
        sink: &SinkName,
        buckets: &Buckets,
    ) -> Result<Vec<OrderingKeyHash>, StoreError> {
        let parked = self.try_parked(sink, buckets);
        self.noting(parked)
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
        self.noting(artifact)
    }

    fn datasets(&mut self) -> Result<BTreeMap<String, Dataset>, StoreError> {
        let datasets = self.try_datasets();
        self.noting(datasets)
    }

    fn namespaces(&mut self) -> Result<Vec<Namespace>, StoreError> {
        let namespaces = self.try_namespaces();
        self.noting(namespaces)
    }
}

impl OutboxTxn for PgTxn<'_> {
    fn put_guards(&mut self, guards: Guards) -> Result<(), StoreError> {
        let put = self.try_put_guards(guards);
        self.noting(put)
    }

    fn put_dataset(&mut self, name: &str, dataset: Option<&Dataset>) -> Result<bool, StoreError> {
        let put = self.try_put_dataset(name, dataset);
        self.noting(put)
    }

    fn put_routing(&mut self, routing: &Routing) -> Result<(), StoreError> {
        let put = self.try_put_routing(routing);
        self.noting(put)
    }

    fn put_record(&mut self, record: &Record, sinks: &[&SinkName]) -> Result<(), StoreError> {
        self.may_write()?;
        let namespace = self.namespace(&record.name.namespace);
        let namespace = self.noting(namespace)?;
        let sinks = sinks.iter().map(|sink| (*sink).clone()).collect();
        self.stage_record(namespace, record.clone(), sinks);
        Ok(())
    }

    fn put_paused(&mut self, sink: &SinkName, paused: bool) -> Result<bool, StoreError> {
        let sql = "UPDATE hapax.sink SET paused = $2, changed = changed + 1 WHERE name = $1";
        let params: [Param<'_>; 2] = [(&sink.as_str(), Type::TEXT), (&paused, Type::BOOL)];
        self.noting(self.link.execute(sql, &params)).map(|rows| rows > 0)
    }

    fn dispatchers(&mut self) -> Result<Vec<(LeaseId, Buckets)>, StoreError> {
        let dispatchers = self.try_dispatchers();
        self.noting(dispatchers)
    }

    fn is_dispatcher(&mut self, lease: LeaseId) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM hapax.dispatcher WHERE lease = $1 FOR SHARE";
        let rows = self.link.often((sql, &[(&&lease.as_bytes()[..], Type::BYTEA)]));
        self.noting(rows).map(|rows| !rows.is_empty())
    }

    fn put_dispatcher(&mut self, lease: LeaseId, buckets: &Buckets) -> Result<(), StoreError> {
        let put = self.link.execute(
            "INSERT INTO hapax.dispatcher (lease, buckets) VALUES ($1, $2)
             ON CONFLICT (lease) DO UPDATE SET buckets = $2",
            &[(&&lease.as_bytes()[..], Type::BYTEA), (&&buckets.to_bytes()[..], Type::BYTEA)],
        );
        self.noting(put).map(|_| ())
    }

    fn drop_dispatcher(&mut self, lease: LeaseId) -> Result<(), StoreError> {
        let dropped = self.try_drop_dispatcher(lease);
        self.noting(dropped)
    }

    fn depart(&mut self, lease: LeaseId, flight: &SendBatch) -> Result<(), StoreError> {
        let departed = self.try_depart(lease, flight);
        self.noting(departed)
    }

    fn land(
        &mut self,
        lease: LeaseId,
        landed: &[DeliveryResult],
        over: &[u64],
        now: Now,
    ) -> Result<(), StoreError> {
        let landed = self.try_land(lease, landed, over, now);
        self.noting(landed)
    }

    fn redrive(&mut self, redrive: &Redrive, now: Now) -> Result<usize, StoreError> {
        let redriven = self.try_redrive(redrive, now);
        self.noting(redriven)
    }
}
