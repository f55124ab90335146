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
    fn fetch(
        &mut self,
        buckets: &Buckets,
        requests: &[FetchRequest],
    ) -> Result<Vec<Page>, StoreError> {
        requests.iter().map(|request| self.fetch_page(buckets, request)).collect()
    }

    fn fetch_key(
        &mut self,
        sink: &SinkName,
        ordering_hash: OrderingKeyHash,
        after: u64,
        limit: usize,
    ) -> Result<Vec<QueuedDelivery>, StoreError> {
        let Some(sink) = self.sink_id(sink)? else { return Ok(Vec::new()) };
        let sql = format!(
            "SELECT {RECORD}, d.ordering_hash, d.tried, d.due, d.error IS NOT NULL FROM delivery d JOIN {FROM}
             WHERE d.ordering_hash = ?1 AND d.seq > ?2 AND d.sink = ?3 AND d.due IS NOT NULL
                 AND e.seq = d.seq ORDER BY d.seq LIMIT ?4"
        );
        let params = params![ordering_hash.0 as i64, after as i64, sink, limit as i64];
        rows(self.db, &sql, params, queued)
    }

    fn parked(
        &mut self,
        sink: &SinkName,
        buckets: &Buckets,
    ) -> Result<Vec<OrderingKeyHash>, StoreError> {
        let Some(sink) = self.sink_id(sink)? else { return Ok(Vec::new()) };
        let sql =
            "SELECT DISTINCT ordering_hash FROM delivery WHERE sink = ?1 AND due IS NULL AND parks";
        let ordering_hashes =
            rows(self.db, sql, [sink], |row| Ok(OrderingKeyHash(row.get::<_, i64>(0)? as u64)))?;
        Ok(ordering_hashes
            .into_iter()
            .filter(|ordering_hash| buckets.contains(ordering_hash.bucket()))
            .collect())
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
                   FROM send_batch f, json_each(f.tries) t WHERE f.lease = ?1) AS lost
             WHERE delivery.seq = lost.seq AND delivery.sink = lost.sink",
            [lease],
        )?;
        run(self.db, "DELETE FROM send_batch WHERE lease = ?1", [lease])?;
        run(self.db, "DELETE FROM dispatcher WHERE lease = ?1", [lease])?;
        Ok(())
    }

    fn put_batch(&mut self, lease: LeaseId, batch: &SendBatch) -> Result<(), StoreError> {
        let pair = |queued: &BatchedDelivery| format!("[{},{}]", queued.seq, queued.tried);
        let tries: Vec<_> = batch.deliveries.iter().map(pair).collect();
        let tries = format!("[{}]", tries.join(","));
        let sink = self.sink_id(&batch.sink)?;
        run(
            self.db,
            "INSERT INTO send_batch (lease, id, sink, tries) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT DO UPDATE SET tries = ?4",
            params![lease.as_bytes(), batch.id as i64, sink, tries],
        )?;
        Ok(())
    }

    fn put_results(
        &mut self,
        lease: LeaseId,
        results: &[DeliveryResult],
        ended: &[u64],
        now: Now,
    ) -> Result<(), StoreError> {
        let mut sinks: BTreeMap<&SinkName, Option<i64>> = BTreeMap::new();
        for one in results {
            let known = match sinks.get(&one.sink) {
                Some(known) => *known,
                None => self.sink_id(&one.sink)?,
            };
            sinks.insert(&one.sink, known);
            if let Some(sink) = known {
                self.put_result(sink, one, now)?;
            }
        }
        for batch in ended {
            let sql = "DELETE FROM send_batch WHERE lease = ?1 AND id = ?2";
            run(self.db, sql, params![lease.as_bytes(), *batch as i64])?;
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
    fn fetch_page(
        &mut self,
        buckets: &Buckets,
        request: &FetchRequest,
    ) -> Result<Page, StoreError> {
        let (sink, namespace) = (self.sink_id(&request.sink)?, self.namespace(&request.namespace)?);
        let (Some(sink), Some(namespace)) = (sink, namespace) else {
            return Ok(Page { cursor: request.cursor, ..Page::default() });
        };
        let sql = format!(
            "SELECT {RECORD}, d.ordering_hash, d.tried, d.due, d.error IS NOT NULL
             FROM delivery d JOIN {FROM} WHERE d.sink = ?1 AND d.namespace = ?2 AND d.seq > ?3
                 AND d.due IS NOT NULL AND e.seq = d.seq
             ORDER BY d.seq"
        );
        // One transaction writes at a time, so records become visible in the order of their numbers.
        let mut statement = self.db.prepare_cached(&sql).or_store_error()?;
        let mut found = statement
            .query(params![sink, namespace, request.cursor.seq as i64])
            .or_store_error()?;
        let mut page = Page { cursor: request.cursor, ..Page::default() };
        while let Some(row) = found.next().or_store_error()? {
            if page.deliveries.len() == request.limit {
                page.more = true;
                break;
            }
            page.cursor.seq = row.get::<_, i64>(0).or_store_error()? as u64;
            let ordering_hash = OrderingKeyHash(row.get::<_, i64>(17).or_store_error()? as u64);
            if buckets.contains(ordering_hash.bucket()) {
                page.deliveries.push(queued(row).or_store_error()?);
            }
        }
        Ok(page)
    }

    fn put_result(
        &mut self,
        sink: i64,
        result: &DeliveryResult,
        now: Now,
    ) -> Result<(), StoreError> {
        let (seq, tried, at) = (result.seq as i64, result.tried, now.wall.0);
        let Some(namespace) = self.namespace(&result.namespace)? else { return Ok(()) };
        let condition = "WHERE sink = ?1 AND namespace = ?2 AND seq = ?3";
        match &result.disposition {
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
                    &format!("DELETE FROM delivery {condition}"),
                    params![sink, namespace, seq],
                )
            }
            Disposition::Again { in_ms, error } => run(
                self.db,
                &format!(
                    "UPDATE delivery SET tried = ?4, due = ?5, error = ?6, updated = ?7 {condition}"
                ),
                params![sink, namespace, seq, tried, now.wall.plus_ms(*in_ms).0, error, at],
            ),
            Disposition::Failed { error, park } => run(
                self.db,
                &format!(
                    "UPDATE delivery SET tried = ?4, due = NULL, parks = ?5, error = ?6, updated = ?7 {condition}"
                ),
                params![sink, namespace, seq, tried, park, error, at],
            ),
        }?;
        Ok(())
    }
}

fn queued(row: &Row<'_>) -> rusqlite::Result<QueuedDelivery> {
    Ok(QueuedDelivery {
        record: record(row)?,
        ordering_hash: OrderingKeyHash(row.get::<_, i64>(17)? as u64),
        transaction: 0,
        row: 0,
        tried: row.get(18)?,
        due: Timestamp(row.get(19)?),
        refused: row.get(20)?,
        guards: GuardCheck::Passed,
    })
}
