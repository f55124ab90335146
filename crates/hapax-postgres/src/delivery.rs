//! Deliveries as rows: a dispatcher reads them, tries them and records the results.

use std::collections::HashMap;

use hapax_core::delivery::Buckets;
use hapax_core::lease::LeaseId;
use hapax_core::outbox::OrderingKeyHash;
use hapax_core::planted::{Bug, planted};
use hapax_core::route::SinkName;
use hapax_core::time::{Now, Timestamp};
use hapax_store::delivery::{
    Cursor, DeliveryResult, FetchRequest, GuardCheck, Page, QueuedDelivery, Redrive, SendBatch,
    SinkStats,
};
use hapax_store::{DeliveryTxn, DeliveryView, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::effect::bytes;
use crate::error::PgFailure;
use crate::outbox::{RecordId, record_to_deliver};
use crate::txn::PgTxn;

mod results;

use results::RowAddress;

impl DeliveryView for PgTxn<'_> {
    fn fetch(
        &mut self,
        buckets: &Buckets,
        requests: &[FetchRequest],
    ) -> Result<Vec<Page>, StoreError> {
        let page = self.try_fetch(buckets, requests);
        self.keep_failure(page)
    }

    fn fetch_key(
        &mut self,
        sink: &SinkName,
        ordering_hash: OrderingKeyHash,
        after: u64,
        limit: usize,
    ) -> Result<Vec<QueuedDelivery>, StoreError> {
        let deliveries = self.try_fetch_key(sink, ordering_hash, after, limit);
        self.keep_failure(deliveries)
    }

    fn parked(
        &mut self,
        sink: &SinkName,
        buckets: &Buckets,
    ) -> Result<Vec<OrderingKeyHash>, StoreError> {
        let parked = self.try_parked(sink, buckets);
        self.keep_failure(parked)
    }

    fn outbox_stats(&mut self) -> Result<Vec<SinkStats>, StoreError> {
        let stats = self.try_stats();
        self.keep_failure(stats)
    }
}

impl DeliveryTxn for PgTxn<'_> {
    fn dispatchers(&mut self) -> Result<Vec<(LeaseId, Buckets)>, StoreError> {
        let dispatchers = self.try_dispatchers();
        self.keep_failure(dispatchers)
    }

    fn is_dispatcher(&mut self, lease: LeaseId) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM hapax.dispatcher WHERE lease = $1 FOR SHARE";
        let rows = self.link.query_prepared((sql, &[(&&lease.as_bytes()[..], Type::BYTEA)]));
        self.keep_failure(rows).map(|rows| !rows.is_empty())
    }

    fn put_dispatcher(&mut self, lease: LeaseId, buckets: &Buckets) -> Result<(), StoreError> {
        let put = self.link.execute(
            "INSERT INTO hapax.dispatcher (lease, buckets) VALUES ($1, $2)
             ON CONFLICT (lease) DO UPDATE SET buckets = $2",
            &[(&&lease.as_bytes()[..], Type::BYTEA), (&&buckets.to_bytes()[..], Type::BYTEA)],
        );
        self.keep_failure(put).map(|_| ())
    }

    fn drop_dispatcher(&mut self, lease: LeaseId) -> Result<(), StoreError> {
        let dropped = self.try_drop_dispatcher(lease);
        self.keep_failure(dropped)
    }

    fn put_batch(&mut self, lease: LeaseId, batch: &SendBatch) -> Result<(), StoreError> {
        let written = self.try_put_batch(lease, batch);
        self.keep_failure(written)
    }

    fn put_results(
        &mut self,
        lease: LeaseId,
        results: &[DeliveryResult],
        ended: &[u64],
        now: Now,
    ) -> Result<(), StoreError> {
        let results = self.try_put_results(lease, results, ended, now);
        self.keep_failure(results)
    }

    fn redrive(&mut self, redrive: &Redrive, now: Now) -> Result<usize, StoreError> {
        let redriven = self.try_redrive(redrive, now);
        self.keep_failure(redriven)
    }
}

impl PgTxn<'_> {
    fn try_fetch(
        &self,
        buckets: &Buckets,
        requests: &[FetchRequest],
    ) -> Result<Vec<Page>, PgFailure> {
        // All older transactions have ended, for this reader and for every later one.
        let oldest = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint";
        let rows = self.link.query_prepared((oldest, &[]))?;
        let oldest = rows.first().map_or(Ok(0), |row| row.try_get::<_, i64>(0))? as u64;
        requests.iter().map(|request| self.fetch_page(buckets, request, oldest)).collect()
    }

    fn fetch_page(
        &self,
        buckets: &Buckets,
        request: &FetchRequest,
        oldest: u64,
    ) -> Result<Page, PgFailure> {
        let namespace = self.namespaces.find(self.link, &request.namespace)?;
        let (Some(sink), Some(namespace)) = (self.sink_id(&request.sink)?, namespace) else {
            return Ok(Page { cursor: request.cursor, ..Page::default() });
        };
        let rows = self.link.query_prepared((
            "SELECT d.seq, d.outbox_id, d.xid, d.ordering_hash, d.tried, d.due, d.error IS NOT NULL, d.ctid
             FROM hapax.delivery d
             WHERE d.sink = $1 AND d.namespace = $2 AND d.due IS NOT NULL
                 AND (d.xid, d.seq) > ($3, $4)
                 AND get_bit($5, (d.ordering_hash >> 54 & 1023)::int) = 1
             ORDER BY d.xid, d.seq LIMIT $6",
            &[
                (&sink, Type::INT2),
                (&namespace, Type::INT4),
                (&(request.cursor.transaction as i64), Type::INT8),
                (&(request.cursor.seq.min(i64::MAX as u64) as i64), Type::INT8),
                (&&buckets.to_bytes()[..], Type::BYTEA),
                (&(request.limit as i64), Type::INT8),
            ],
        ))?;
        let deliveries = self.with_records(&rows)?;
        let passes_over = planted(Bug::PassedOver) && !rows.is_empty();
        let more = rows.len() == request.limit;
        // Below the oldest open transaction the rows are final. A cursor beyond it could pass rows
        // that this transaction has written and not committed yet.
        let last = deliveries.last().map(|queued| (queued.transaction, queued.record.seq));
        let cursor = match last {
            Some((transaction, seq))
                if more && transaction < oldest || passes_over && transaction > 0 =>
            {
                Cursor { transaction, seq }
            }
            _ => Cursor { transaction: oldest.saturating_sub(1), seq: u64::MAX },
        };
        Ok(Page { deliveries, cursor, more })
    }

    /// Joins each delivery with its record, in the order of deliveries.
    fn with_records(&self, deliveries: &[Row]) -> Result<Vec<QueuedDelivery>, PgFailure> {
        let seqs: Vec<i64> =
            deliveries.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        let (Some(first), Some(last)) = (seqs.iter().min(), seqs.iter().max()) else {
            return Ok(Vec::new());
        };
        // Mostly the deliveries cover a contiguous range of records, and reading a range costs a
        // fraction of one lookup for each record.
        let rows = match last - first < 2 * seqs.len() as i64 {
            true => self.link.query_prepared((
                concat!(
                    "SELECT ",
                    record_to_deliver!(),
                    " FROM hapax.outbox_record e WHERE e.seq BETWEEN $1 AND $2"
                ),
                &[(first, Type::INT8), (last, Type::INT8)],
            ))?,
            false => {
                let ids: Vec<RecordId> =
                    deliveries.iter().map(|row| row.try_get(1)).collect::<Result<_, _>>()?;
                let ids: Vec<&[u8]> = ids.iter().map(|id| &id.0.as_bytes()[..]).collect();
                self.link.query_prepared((
                    concat!(
                        "SELECT ",
                        record_to_deliver!(),
                        " FROM unnest($1, $2) AS d (id, seq) JOIN hapax.outbox_record e
                             ON e.outbox_id = encode(d.id, 'hex')::uuid AND e.seq = d.seq"
                    ),
                    &[(&ids, Type::BYTEA_ARRAY), (&seqs, Type::INT8_ARRAY)],
                ))?
            }
        };
        let which = |row: &Row| Ok::<_, PgFailure>((row.try_get::<_, i64>(0)?, row.try_get(1)?));
        let mut records: HashMap<(i64, RecordId), &Row> = HashMap::with_capacity(rows.len());
        for row in &rows {
            records.insert(which(row)?, row);
        }
        let mut queued = Vec::with_capacity(deliveries.len());
        for delivery in deliveries {
            if let Some(record) = records.get(&which(delivery)?) {
                queued.push(self.queued(record, (delivery, 2))?);
            }
        }
        Ok(queued)
    }

    /// A record with its delivery. The delivery's columns begin at `at` in another row: transaction,
    /// ordering key's hash, tries, due time, whether it was refused, and its position.
    fn queued(
        &self,
        record: &Row,
        (delivery, at): (&Row, usize),
    ) -> Result<QueuedDelivery, PgFailure> {
        Ok(QueuedDelivery {
            record: self.record(record)?,
            guards: if record.try_get(17)? { GuardCheck::Passed } else { GuardCheck::Unchecked },
            transaction: delivery.try_get::<_, i64>(at)? as u64,
            ordering_hash: OrderingKeyHash(delivery.try_get::<_, i64>(at + 1)? as u64),
            tried: delivery.try_get::<_, i32>(at + 2)? as u32,
            due: Timestamp(delivery.try_get(at + 3)?),
            refused: delivery.try_get(at + 4)?,
            row: delivery.try_get::<_, RowAddress>(at + 5)?.0,
        })
    }

    fn try_fetch_key(
        &self,
        sink: &SinkName,
        ordering_hash: OrderingKeyHash,
        after: u64,
        limit: usize,
    ) -> Result<Vec<QueuedDelivery>, PgFailure> {
        let Some(sink) = self.sink_id(sink)? else { return Ok(Vec::new()) };
        let rows = self.link.query_prepared((
            concat!(
                "SELECT ",
                record_to_deliver!(),
                ", d.xid, d.ordering_hash, d.tried, d.due, d.error IS NOT NULL, d.ctid FROM hapax.delivery d
                 JOIN hapax.outbox_record e ON e.outbox_id = d.outbox_id
                 WHERE d.ordering_hash = $1 AND d.seq > $2 AND d.sink = $3 AND d.due IS NOT NULL
                 ORDER BY d.seq LIMIT $4"
            ),
            &[
                (&(ordering_hash.0 as i64), Type::INT8),
                (&(after as i64), Type::INT8),
                (&sink, Type::INT2),
                (&(limit as i64), Type::INT8),
            ],
        ))?;
        rows.iter().map(|row| self.queued(row, (row, 18))).collect()
    }

    fn try_parked(
        &self,
        sink: &SinkName,
        buckets: &Buckets,
    ) -> Result<Vec<OrderingKeyHash>, PgFailure> {
        let Some(sink) = self.sink_id(sink)? else { return Ok(Vec::new()) };
        let sql = "SELECT DISTINCT ordering_hash FROM hapax.delivery
            WHERE sink = $1 AND due IS NULL AND parks ORDER BY ordering_hash";
        let rows = self.link.query_prepared((sql, &[(&sink, Type::INT2)]))?;
        let ordering_hashes =
            rows.iter().map(|row| Ok(OrderingKeyHash(row.try_get::<_, i64>(0)? as u64)));
        let ordering_hashes = ordering_hashes.collect::<Result<Vec<_>, PgFailure>>()?;
        Ok(ordering_hashes
            .into_iter()
            .filter(|ordering_hash| buckets.contains(ordering_hash.bucket()))
            .collect())
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

    fn try_dispatchers(&self) -> Result<Vec<(LeaseId, Buckets)>, PgFailure> {
        // The table's lock admits one writer at a time, also while the table is empty. Readers go
        // on.
        self.link.run("LOCK TABLE hapax.dispatcher IN SHARE ROW EXCLUSIVE MODE")?;
        let sql = "SELECT lease, buckets FROM hapax.dispatcher ORDER BY lease";
        let read = |row: &Row| {
            let buckets = Buckets::from_bytes(&bytes(row, "buckets")?);
            Ok((LeaseId::from_bytes(bytes(row, "lease")?), buckets))
        };
        self.link.query(sql, &[])?.iter().map(read).collect()
    }

    fn try_drop_dispatcher(&self, lease: LeaseId) -> Result<(), PgFailure> {
        for sql in [
            "UPDATE hapax.delivery d SET tried = greatest(d.tried, lost.tried)
             FROM (SELECT f.sink, t.* FROM hapax.send_batch f,
                       unnest(f.seqs, f.ordering_hashes, f.tried) AS t (seq, ordering_hash, tried)
                   WHERE f.lease = $1) lost
             WHERE d.ordering_hash = lost.ordering_hash AND d.seq = lost.seq AND d.sink = lost.sink",
            "DELETE FROM hapax.send_batch WHERE lease = $1",
            "DELETE FROM hapax.dispatcher WHERE lease = $1",
        ] {
            self.link.execute(sql, &[(&&lease.as_bytes()[..], Type::BYTEA)])?;
        }
        Ok(())
    }

    fn try_put_batch(&self, lease: LeaseId, batch: &SendBatch) -> Result<(), PgFailure> {
        let sink = self.sink_id(&batch.sink)?;
        let seqs: Vec<i64> = batch.deliveries.iter().map(|queued| queued.seq as i64).collect();
        let ordering_hashes: Vec<i64> =
            batch.deliveries.iter().map(|queued| queued.ordering_hash.0 as i64).collect();
        let tried: Vec<i32> = batch.deliveries.iter().map(|queued| queued.tried as i32).collect();
        self.link.query_prepared((
            "INSERT INTO hapax.send_batch (lease, id, sink, seqs, ordering_hashes, tried)
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
            &[
                (&&lease.as_bytes()[..], Type::BYTEA),
                (&(batch.id as i64), Type::INT8),
                (&sink, Type::INT2),
                (&seqs, Type::INT8_ARRAY),
                (&ordering_hashes, Type::INT8_ARRAY),
                (&tried, Type::INT4_ARRAY),
            ],
        ))?;
        Ok(())
    }

    fn try_redrive(&self, redrive: &Redrive, now: Now) -> Result<usize, PgFailure> {
        let Some(namespace) = self.namespaces.find(self.link, &redrive.namespace)? else {
            return Ok(0);
        };
        let rows = self.link.query(
            "WITH chosen AS (
                 SELECT d.ordering_hash, d.seq, d.sink FROM hapax.delivery d
                 JOIN hapax.sink s ON s.id = d.sink JOIN hapax.outbox_record e ON e.outbox_id = d.outbox_id
                 WHERE d.due IS NULL AND d.namespace = $1 AND ($2 IS NULL OR s.name = $2)
                     AND ($3 IS NULL OR e.outbox_id = encode($3, 'hex')::uuid)
                     AND ($4 OR s.remembers_ms IS NULL OR e.created_at + s.remembers_ms > $5)
                 ORDER BY d.seq LIMIT $6 FOR UPDATE OF d
             ), again AS (
                 UPDATE hapax.delivery d SET due = $5, tried = 0, parks = false, updated = $5
                 FROM chosen c WHERE d.ordering_hash = c.ordering_hash AND d.seq = c.seq AND d.sink = c.sink
                 RETURNING d.sink
             ), changed AS (
                 UPDATE hapax.sink s SET changed = changed + 1
                 WHERE s.id IN (SELECT a.sink FROM again a)
             )
             SELECT count(*) FROM again",
            &[
                (&namespace, Type::INT4),
                (&redrive.sink.as_ref().map(SinkName::as_str), Type::TEXT),
                (&redrive.id.as_ref().map(|id| &id.as_bytes()[..]), Type::BYTEA),
                (&redrive.may_duplicate, Type::BOOL),
                (&now.wall.0, Type::INT8),
                (&(redrive.limit as i64), Type::INT8),
            ],
        )?;
        Ok(rows.first().map_or(Ok(0), |row| row.try_get::<_, i64>(0))? as usize)
    }
}
