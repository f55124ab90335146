//! The outbox as rows.

use std::collections::{BTreeMap, BTreeSet};

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
    BatchedDelivery, DeliveryResult, DeliveryStatus, Disposition, FetchRequest, FollowCursor,
    GuardCheck, OutboxTxn, OutboxView, Page, QueuedDelivery, RecordFilter, RecordStatus, Redrive,
    Routing, SendBatch, Sink, SinkStats,
};
use rusqlite::{Connection, Params, Row, params};

use crate::error::OrStoreError;
use crate::txn::SqliteTxn;

/// The columns of a record, in the order in which they are read.
const RECORD: &str = "e.seq, e.outbox_id, n.name, e.idempotency_key, e.ordinal, e.event_name,
    e.dataset_id, e.pipeline_id, e.version, e.ordering, e.order_key, e.payload, e.created_at,
    e.artifact_version, e.checksum, e.uri, e.trace";
/// Where they come from.
const FROM: &str = "outbox_record e JOIN namespace n ON n.id = e.namespace";

fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    let order = match (row.get::<_, i64>(9)?, row.get(10)?) {
        (0, _) => Order::Dataset,
        (1, Some(key)) => Order::Key(key),
        _ => Order::Free,
    };
    let artifact = match row.get::<_, Option<String>>(13)? {
        Some(version) => Some(Artifact { version, checksum: row.get(14)?, uri: row.get(15)? }),
        None => None,
    };
    let namespace = Namespace::new(&row.get::<_, String>(2)?).unwrap_or_default();
    Ok(Record {
        seq: row.get::<_, i64>(0)? as u64,
        id: OutboxId::from_bytes(row.get(1)?),
        name: Name { namespace, key: Key::from_bytes(row.get(3)?) },
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

fn parcel(row: &Row<'_>) -> rusqlite::Result<QueuedDelivery> {
    Ok(QueuedDelivery {
        record: record(row)?,
        track: OrderingKeyHash(row.get::<_, i64>(17)? as u64),
        transaction: 0,
        row: 0,
        tried: row.get(18)?,
        due: Timestamp(row.get(19)?),
        refused: row.get(20)?,
        passage: GuardCheck::Free,
    })
}

fn sink_name(row: &Row<'_>, at: usize) -> rusqlite::Result<SinkName> {
    let name: String = row.get(at)?;
    SinkName::new(&name).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(at, rusqlite::types::Type::Text, Box::new(error))
    })
}

/// All rows of a query.
pub(crate) fn rows<T>(
    db: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = db.prepare_cached(sql).or_store_error()?;
    let rows = statement.query_map(params, read).or_store_error()?;
    rows.collect::<rusqlite::Result<_>>().or_store_error()
}

pub(crate) fn run(db: &Connection, sql: &str, params: impl Params) -> Result<usize, StoreError> {
    db.prepare_cached(sql).or_store_error()?.execute(params).or_store_error()
}

impl SqliteTxn<'_> {
    fn sink_id(&self, name: &SinkName) -> Result<Option<i64>, StoreError> {
        let sql = "SELECT id FROM sink WHERE name = ?1";
        Ok(rows(self.db, sql, [name.as_str()], |row| row.get(0))?.pop())
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

    fn found(&self, record: Record) -> Result<RecordStatus, StoreError> {
        let deliveries = self.deliveries(record.seq)?;
        let status = Status::over(deliveries.iter().map(|delivery| delivery.status));
        Ok(RecordStatus { record, status, deliveries })
    }

    fn feed_line(&mut self, buckets: &Buckets, line: &FetchRequest) -> Result<Page, StoreError> {
        let (sink, namespace) = (self.sink_id(&line.sink)?, self.namespace(&line.namespace)?);
        let (Some(sink), Some(namespace)) = (sink, namespace) else {
            return Ok(Page { mark: line.mark, ..Page::default() });
        };
        let sql = format!(
            "SELECT {RECORD}, d.track, d.tried, d.due, d.error IS NOT NULL
             FROM delivery d JOIN {FROM} WHERE d.sink = ?1 AND d.namespace = ?2 AND d.seq > ?3
                 AND d.due IS NOT NULL AND e.seq = d.seq
             ORDER BY d.seq"
        );
        // One transaction writes at a time, so places become visible in their order.
        let mut statement = self.db.prepare_cached(&sql).or_store_error()?;
        let mut found =
            statement.query(params![sink, namespace, line.mark.seq as i64]).or_store_error()?;
        let mut fed = Page { mark: line.mark, ..Page::default() };
        while let Some(row) = found.next().or_store_error()? {
            if fed.parcels.len() == line.limit {
                fed.more = true;
                break;
            }
            fed.mark.seq = row.get::<_, i64>(0).or_store_error()? as u64;
            let track = OrderingKeyHash(row.get::<_, i64>(17).or_store_error()? as u64);
            if buckets.contains(track.bucket()) {
                fed.parcels.push(parcel(row).or_store_error()?);
            }
        }
        Ok(fed)
    }

    fn land_one(&mut self, sink: i64, landed: &DeliveryResult, now: Now) -> Result<(), StoreError> {
        let (seq, tried, at) = (landed.seq as i64, landed.tried, now.wall.0);
        let Some(namespace) = self.namespace(&landed.namespace)? else { return Ok(()) };
        let place = "WHERE sink = ?1 AND namespace = ?2 AND seq = ?3";
        match &landed.landing {
            Disposition::Delivered { duplicate } => {
                run(
                    self.db,
                    "INSERT INTO dispatched (seq, sink, tried, duplicate, at, error)
                     SELECT seq, sink, ?4, ?5, ?6, error FROM delivery
                     WHERE sink = ?1 AND namespace = ?2 AND seq = ?3",
                    params![sink, namespace, seq, tried, duplicate, at],
                )?;
                run(
                    self.db,
                    &format!("DELETE FROM delivery {place}"),
                    params![sink, namespace, seq],
                )
            }
            Disposition::Again { in_ms, error } => run(
                self.db,
                &format!(
                    "UPDATE delivery SET tried = ?4, due = ?5, error = ?6, updated = ?7 {place}"
                ),
                params![sink, namespace, seq, tried, now.wall.plus_ms(*in_ms).0, error, at],
            ),
            Disposition::Failed { error, park } => run(
                self.db,
                &format!(
                    "UPDATE delivery SET tried = ?4, due = NULL, parks = ?5, error = ?6, updated = ?7 {place}"
                ),
                params![sink, namespace, seq, tried, park, error, at],
            ),
        }?;
        Ok(())
    }
}

impl OutboxView for SqliteTxn<'_> {
    fn routing(&mut self) -> Result<Routing, StoreError> {
        let sql = "SELECT name, remembers_ms FROM sink WHERE declared ORDER BY id";
        let sinks = rows(self.db, sql, [], |row| {
            Ok((sink_name(row, 0)?, row.get::<_, Option<i64>>(1)?.map(|ms| ms as u64)))
        })?;
        let sql = "SELECT r.nth, r.event, r.dataset, s.name FROM route r
            LEFT JOIN sink s ON s.id = r.sink ORDER BY r.id";
        let mut routes: BTreeMap<i64, Route> = BTreeMap::new();
        rows(self.db, sql, [], |row| {
            let (event, dataset) = (row.get(1)?, row.get(2)?);
            let new = Route { event, dataset, sinks: Vec::new() };
            let route = routes.entry(row.get(0)?).or_insert(new);
            if row.get::<_, Option<String>>(3)?.is_some() {
                route.sinks.push(sink_name(row, 3)?);
            }
            Ok(())
        })?;
        Ok(Routing { sinks, routes: routes.into_values().collect() })
    }

    fn tide(&mut self) -> Result<FollowCursor, StoreError> {
        let sql = "SELECT ifnull(max(seq), 0) FROM outbox_record";
        let last = rows(self.db, sql, [], |row| row.get::<_, i64>(0))?;
        Ok(FollowCursor {
            floor: last.first().copied().unwrap_or_default() as u64,
            ..FollowCursor::default()
        })
    }

    /// One transaction writes at a time, so records become visible in their order.
    fn recorded(
        &mut self,
        tide: FollowCursor,
        limit: usize,
    ) -> Result<(Vec<Record>, FollowCursor), StoreError> {
        let sql = format!("SELECT {RECORD} FROM {FROM} WHERE e.seq > ?1 ORDER BY e.seq LIMIT ?2");
        let records = rows(self.db, &sql, params![tide.floor as i64, limit as i64], record)?;
        let floor = records.last().map_or(tide.floor, |record| record.seq);
        Ok((records, FollowCursor { floor, ..tide }))
    }

    fn registry(&mut self, datasets: &BTreeSet<&str>) -> Result<Registry, StoreError> {
        self.load_registry(datasets)
    }

    fn datasets(&mut self) -> Result<BTreeMap<String, Dataset>, StoreError> {
        self.load_datasets()
    }

    fn sinks(&mut self) -> Result<Vec<Sink>, StoreError> {
        let sql = "SELECT name, paused, changed, remembers_ms FROM sink ORDER BY name";
        rows(self.db, sql, [], |row| {
            Ok(Sink {
                name: sink_name(row, 0)?,
                paused: row.get(1)?,
                changed: row.get::<_, i64>(2)? as u64,
                remembers_ms: row.get::<_, Option<i64>>(3)?.map(|ms| ms as u64),
            })
        })
    }

    fn records(&mut self, ids: &[OutboxId]) -> Result<Vec<Option<RecordStatus>>, StoreError> {
        let sql = format!("SELECT {RECORD} FROM {FROM} WHERE e.outbox_id = ?1");
        ids.iter()
            .map(|id| {
                let found = rows(self.db, &sql, [id.as_bytes()], record)?.pop();
                found.map(|record| self.found(record)).transpose()
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
        records.into_iter().map(|record| self.found(record)).collect()
    }

    fn outbox_stats(&mut self) -> Result<Vec<SinkStats>, StoreError> {
        let sinks = self.sinks()?;
        let sql = "SELECT count(d.due), count(*) - count(d.due),
            min(iif(d.due IS NULL, NULL, e.created_at))
            FROM delivery d JOIN sink s ON s.id = d.sink JOIN outbox_record e ON e.seq = d.seq
            WHERE s.name = ?1";
        let stats = sinks.into_iter().map(|sink| {
            let counts = rows(self.db, sql, [sink.name.as_str()], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, Option<i64>>(2)?))
            })?;
            let (pending, failed, oldest) = counts.first().copied().unwrap_or_default();
            let (pending, failed) = (pending as u64, failed as u64);
            Ok(SinkStats { sink, pending, failed, oldest: oldest.map(Timestamp) })
        });
        stats.collect()
    }

    fn feed(&mut self, buckets: &Buckets, lines: &[FetchRequest]) -> Result<Vec<Page>, StoreError> {
        lines.iter().map(|line| self.feed_line(buckets, line)).collect()
    }

    fn feed_track(
        &mut self,
        sink: &SinkName,
        track: OrderingKeyHash,
        after: u64,
        limit: usize,
    ) -> Result<Vec<QueuedDelivery>, StoreError> {
        let Some(sink) = self.sink_id(sink)? else { return Ok(Vec::new()) };
        let sql = format!(
            "SELECT {RECORD}, d.track, d.tried, d.due, d.error IS NOT NULL FROM delivery d JOIN {FROM}
             WHERE d.track = ?1 AND d.seq > ?2 AND d.sink = ?3 AND d.due IS NOT NULL
                 AND e.seq = d.seq ORDER BY d.seq LIMIT ?4"
        );
        let params = params![track.0 as i64, after as i64, sink, limit as i64];
        rows(self.db, &sql, params, parcel)
    }

    fn parked(
        &mut self,
        sink: &SinkName,
        buckets: &Buckets,
    ) -> Result<Vec<OrderingKeyHash>, StoreError> {
        let Some(sink) = self.sink_id(sink)? else { return Ok(Vec::new()) };
        let sql = "SELECT DISTINCT track FROM delivery WHERE sink = ?1 AND due IS NULL AND parks";
        let tracks =
            rows(self.db, sql, [sink], |row| Ok(OrderingKeyHash(row.get::<_, i64>(0)? as u64)))?;
        Ok(tracks.into_iter().filter(|track| buckets.contains(track.bucket())).collect())
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

    fn namespaces(&mut self) -> Result<Vec<Namespace>, StoreError> {
        let sql = "SELECT name FROM namespace ORDER BY name";
        let names = rows(self.db, sql, [], |row| row.get::<_, String>(0))?;
        let read = |name: String| Namespace::new(&name);
        let names = names.into_iter().map(read).collect::<Result<_, _>>();
        names.map_err(|error| StoreError::Corrupt(error.to_string()))
    }
}

impl OutboxTxn for SqliteTxn<'_> {
    fn put_guards(&mut self, guards: Guards) -> Result<(), StoreError> {
        self.store_guards(guards)
    }

    fn put_dataset(&mut self, name: &str, dataset: Option<&Dataset>) -> Result<bool, StoreError> {
        self.store_dataset(name, dataset)
    }

    fn put_routing(&mut self, routing: &Routing) -> Result<(), StoreError> {
        run(self.db, "DELETE FROM route", [])?;
        run(self.db, "UPDATE sink SET declared = 0", [])?;
        for (name, remembers) in &routing.sinks {
            run(
                self.db,
                "INSERT INTO sink (name, remembers_ms) VALUES (?1, ?2)
                 ON CONFLICT (name) DO UPDATE SET declared = 1, remembers_ms = ?2",
                params![name.as_str(), remembers.map(|ms| ms as i64)],
            )?;
        }
        for (nth, route) in routing.routes.iter().enumerate() {
            let sql = "INSERT INTO route (nth, event, dataset, sink) VALUES (?1, ?2, ?3, ?4)";
            let put = |sink: Option<i64>| {
                run(self.db, sql, params![nth as i64, route.event, route.dataset, sink])
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

    fn put_record(&mut self, record: &Record, sinks: &[&SinkName]) -> Result<(), StoreError> {
        let (event, track) = (&record.event, record.track().0 as i64);
        let namespace = self.namespace_or_new(&record.name.namespace)?;
        let (ordering, order_key) = match &event.order {
            Order::Dataset => (0, None),
            Order::Key(key) => (1, Some(key)),
            Order::Free => (2, None),
        };
        run(
            self.db,
            "INSERT INTO outbox_record (outbox_id, namespace, idempotency_key, ordinal, event_name,
                 dataset_id, pipeline_id, version, ordering, order_key, track, payload, created_at,
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
                track,
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
                "INSERT INTO delivery (sink, seq, namespace, track, due, updated)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?5)",
                params![sink, seq, namespace, track, record.created.0],
            )?;
        }
        Ok(())
    }

    fn put_paused(&mut self, sink: &SinkName, paused: bool) -> Result<bool, StoreError> {
        let sql = "UPDATE sink SET paused = ?2, changed = changed + 1 WHERE name = ?1";
        Ok(run(self.db, sql, params![sink.as_str(), paused])? > 0)
    }

    fn dispatchers(&mut self) -> Result<Vec<(LeaseId, Buckets)>, StoreError> {
        rows(self.db, "SELECT lease, buckets FROM dispatcher ORDER BY lease", [], |row| {
            Ok((LeaseId::from_bytes(row.get(0)?), Buckets::from_bytes(&row.get(1)?)))
        })
    }

    fn is_dispatcher(&mut self, lease: LeaseId) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM dispatcher WHERE lease = ?1";
        Ok(!rows(self.db, sql, [lease.as_bytes()], |_| Ok(()))?.is_empty())
    }

    fn put_dispatcher(&mut self, lease: LeaseId, buckets: &Buckets) -> Result<(), StoreError> {
        run(
            self.db,
            "INSERT INTO dispatcher (lease, buckets) VALUES (?1, ?2)
             ON CONFLICT DO UPDATE SET buckets = ?2",
            params![lease.as_bytes(), buckets.to_bytes()],
        )?;
        Ok(())
    }

    fn drop_dispatcher(&mut self, lease: LeaseId) -> Result<(), StoreError> {
        let lease = lease.as_bytes();
        run(
            self.db,
            "UPDATE delivery SET tried = max(delivery.tried, lost.tried)
             FROM (SELECT f.sink, t.value ->> 0 AS seq, t.value ->> 1 AS tried
                   FROM flight f, json_each(f.tries) t WHERE f.lease = ?1) AS lost
             WHERE delivery.seq = lost.seq AND delivery.sink = lost.sink",
            [lease],
        )?;
        run(self.db, "DELETE FROM flight WHERE lease = ?1", [lease])?;
        run(self.db, "DELETE FROM dispatcher WHERE lease = ?1", [lease])?;
        Ok(())
    }

    fn depart(&mut self, lease: LeaseId, flight: &SendBatch) -> Result<(), StoreError> {
        let pair = |parcel: &BatchedDelivery| format!("[{},{}]", parcel.seq, parcel.tried);
        let tries: Vec<_> = flight.parcels.iter().map(pair).collect();
        let tries = format!("[{}]", tries.join(","));
        let sink = self.sink_id(&flight.sink)?;
        run(
            self.db,
            "INSERT INTO flight (lease, id, sink, tries) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT DO UPDATE SET tries = ?4",
            params![lease.as_bytes(), flight.id as i64, sink, tries],
        )?;
        Ok(())
    }

    fn land(
        &mut self,
        lease: LeaseId,
        landed: &[DeliveryResult],
        over: &[u64],
        now: Now,
    ) -> Result<(), StoreError> {
        let mut sinks: BTreeMap<&SinkName, Option<i64>> = BTreeMap::new();
        for one in landed {
            let known = match sinks.get(&one.sink) {
                Some(known) => *known,
                None => self.sink_id(&one.sink)?,
            };
            sinks.insert(&one.sink, known);
            if let Some(sink) = known {
                self.land_one(sink, one, now)?;
            }
        }
        for flight in over {
            let sql = "DELETE FROM flight WHERE lease = ?1 AND id = ?2";
            run(self.db, sql, params![lease.as_bytes(), *flight as i64])?;
        }
        Ok(())
    }

    fn redrive(&mut self, redrive: &Redrive, now: Now) -> Result<usize, StoreError> {
        let Some(namespace) = self.namespace(&redrive.namespace)? else { return Ok(0) };
        let sql = "SELECT d.sink, d.seq FROM delivery d JOIN sink s ON s.id = d.sink
                JOIN outbox_record e ON e.seq = d.seq
            WHERE d.due IS NULL AND d.namespace = ?1 AND ifnull(s.name = ?2, 1)
                AND ifnull(e.outbox_id = ?3, 1)
                AND (?4 OR s.remembers_ms IS NULL OR e.created_at + s.remembers_ms > ?5)
            ORDER BY d.seq LIMIT ?6";
        let params = params![
            namespace,
            redrive.sink.as_ref().map(SinkName::as_str),
            redrive.id.as_ref().map(OutboxId::as_bytes),
            redrive.may_duplicate,
            now.wall.0,
            redrive.limit as i64
        ];
        let chosen = rows(self.db, sql, params, |row| Ok((row.get(0)?, row.get(1)?)))?;
        for (sink, seq) in &chosen {
            let (sink, seq): (i64, i64) = (*sink, *seq);
            run(
                self.db,
                "UPDATE delivery SET due = ?4, tried = 0, parks = 0, updated = ?4
                 WHERE sink = ?1 AND namespace = ?2 AND seq = ?3",
                params![sink, namespace, seq, now.wall.0],
            )?;
            run(self.db, "UPDATE sink SET changed = changed + 1 WHERE id = ?1", [sink])?;
        }
        Ok(chosen.len())
    }
}
