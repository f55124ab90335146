//! Deliveries as rows: a dispatcher reads them, tries them and records the results.

use std::collections::BTreeMap;

use hapax_core::delivery::Buckets;
use hapax_core::lease::LeaseId;
use hapax_core::outbox::{OrderingKeyHash, OutboxId};
use hapax_core::route::SinkName;
use hapax_core::time::{Now, Timestamp};
use hapax_store::delivery::{
    BatchedDelivery, DeliveryResult, Disposition, FetchRequest, GuardCheck, Page, QueuedDelivery,
    Redrive, SendBatch, SinkStats,
};
use hapax_store::{DeliveryTxn, DeliveryView, RouteView, StoreError};
use rusqlite::{Row, params};

use crate::error::OrStoreError;
use crate::outbox::{FROM, RECORD, record};
use crate::query::{rows, run};
use crate::txn::SqliteTxn;

impl DeliveryView for SqliteTxn<'_> {
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
}

impl DeliveryTxn for SqliteTxn<'_> {
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

impl SqliteTxn<'_> {
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
