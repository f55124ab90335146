//! Archiving of old months. A journal partition is detached once it is sealed and exported, an outbox
//! partition once it is delivered and exported.

use hapax_core::journal::Entry;
use hapax_core::outbox::OutboxId;
use hapax_store::StoreError;
use hapax_store::outbox::RecordStatus;
use tokio_postgres::types::Type;

use crate::connect::{Link, Param};
use crate::error::PgFailure;
use crate::journal;
use crate::outbox::record;
use crate::store::{PgStore, with_retries};
use crate::txn::{Access, PgTxn};

/// How many entries or records are read at a time.
const CHUNK: u64 = 4096;

/// The tables that have one partition a month.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// Every transition.
    Journal,
    /// Every event.
    Outbox,
}

impl History {
    fn table(self) -> &'static str {
        match self {
            Self::Journal => "journal",
            Self::Outbox => "outbox_record",
        }
    }
}

impl PgStore {
    /// The partitions of months before this one (`2026_01`), oldest first. Blocks.
    pub fn partitions_before(
        &self,
        history: History,
        month: &str,
    ) -> Result<Vec<String>, StoreError> {
        with_retries(|| {
            let rows = self.connect()?.query(
                "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                 WHERE i.inhparent = ('hapax.' || $1)::regclass
                     AND c.relname ~ ('^' || $1 || '_\\d{4}_\\d\\d$')
                     AND c.relname < $1 || '_' || $2
                 ORDER BY 1",
                &[(&history.table(), Type::TEXT), (&month, Type::TEXT)],
            )?;
            rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
        })
    }

    /// Passes every entry of a partition, with its leaf, to `each`, in the order of leaves. Returns
    /// the number of entries. Refused while one of them is not sealed. Blocks.
    pub fn export(
        &self,
        partition: &str,
        mut each: impl FnMut(u64, &Entry) -> std::io::Result<()>,
    ) -> Result<u64, StoreError> {
        let link = self.connect().map_err(PgFailure::into_store_error)?;
        let read = || -> Result<Vec<(u64, u64)>, PgFailure> {
            let open = link.one(
                &format!(
                    "SELECT count(*) FROM hapax.{partition} j, hapax.sealing s
                     WHERE j.id > s.sealed OR s.gaps @> j.id"
                ),
                &[],
            )?;
            let open: i64 = open.try_get(0)?;
            if open > 0 {
                let what = format!("{open} entries of {partition} are not sealed yet; try later");
                return Err(StoreError::Invalid(what).into());
            }
            let ranges = link.query(
                &format!("SELECT lower(r), upper(r) FROM unnest(({LEAVES})) AS r")
                    .replace(":partition", partition),
                &[],
            )?;
            ranges
                .iter()
                .map(|row| Ok((row.try_get::<_, i64>(0)? as u64, row.try_get::<_, i64>(1)? as u64)))
                .collect()
        };
        let mut count = 0;
        for (first, end) in read().map_err(PgFailure::into_store_error)? {
            for from in (first..end).step_by(CHUNK as usize) {
                let entries = journal::leaves(&link, from, CHUNK.min(end - from))
                    .map_err(PgFailure::into_store_error)?;
                for (leaf, entry) in (from..).zip(entries) {
                    let entry = entry.ok_or_else(|| {
                        StoreError::Corrupt(format!("the entry of leaf {leaf} cannot be read"))
                    })?;
                    each(leaf, &entry).map_err(|error| StoreError::Full(error.to_string()))?;
                    count += 1;
                }
            }
        }
        Ok(count)
    }

    /// Detaches a partition after its entries were exported to a file of this digest. Needs the
    /// schema's owner. Blocks.
    pub fn detach(&self, partition: &str, digest: [u8; 32]) -> Result<(), StoreError> {
        with_retries(|| {
            let link = self.connect()?;
            link.run("BEGIN; SET LOCAL lock_timeout = '5s'")?;
            link.execute(
                &format!(
                    "INSERT INTO hapax.archive (partition, leaves, digest)
                     SELECT $1, coalesce(({LEAVES}), '{{}}'), $2"
                )
                .replace(":partition", partition),
                &[(&partition, Type::TEXT), (&&digest[..], Type::BYTEA)],
            )?;
            link.run(&format!(
                "ALTER TABLE hapax.journal DETACH PARTITION hapax.{partition}; COMMIT"
            ))
        })
    }
}

impl PgStore {
    /// Passes every record of a partition, with its deliveries, to `each`, in the order of ids.
    /// Returns the number of records. Refused while one of them has a pending or failed delivery.
    /// Blocks.
    pub fn export_records(
        &self,
        partition: &str,
        mut each: impl FnMut(&RecordStatus) -> std::io::Result<()>,
    ) -> Result<u64, StoreError> {
        let link = self.connect().map_err(PgFailure::into_store_error)?;
        let chunk = |after: OutboxId| -> Result<Vec<RecordStatus>, PgFailure> {
            let now = self.shared.clock.estimate(&link)?;
            let txn = PgTxn::new(&link, &self.shared.namespaces, now, Access::ReadOnly);
            let sql = format!(
                "SELECT {} FROM hapax.{partition} e WHERE e.outbox_id > encode($1, 'hex')::uuid
                 ORDER BY e.outbox_id LIMIT $2",
                record!()
            );
            let after: [Param<'_>; 2] =
                [(&&after.as_bytes()[..], Type::BYTEA), (&(CHUNK as i64), Type::INT8)];
            link.query(&sql, &after)?.iter().map(|row| txn.record_status(row)).collect()
        };
        all_delivered(&link, partition).map_err(PgFailure::into_store_error)?;
        let (mut count, mut after) = (0, OutboxId::from_bytes([0; 16]));
        loop {
            let records = chunk(after).map_err(PgFailure::into_store_error)?;
            let Some(last) = records.last() else { return Ok(count) };
            after = last.record.id;
            for found in &records {
                each(found).map_err(|error| StoreError::Full(error.to_string()))?;
                count += 1;
            }
        }
    }

    /// Detaches a partition after its `exported` records were written to a file of this digest.
    /// Refused if a record was added since. Needs the schema's owner. Blocks.
    pub fn detach_records(
        &self,
        partition: &str,
        exported: u64,
        digest: [u8; 32],
    ) -> Result<(), StoreError> {
        with_retries(|| {
            let link = self.connect()?;
            link.run(&format!(
                "BEGIN; SET LOCAL lock_timeout = '5s';
                 LOCK TABLE hapax.{partition} IN ACCESS EXCLUSIVE MODE"
            ))?;
            all_delivered(&link, partition)?;
            let row = link.one(&format!("SELECT count(*) FROM hapax.{partition}"), &[])?;
            if row.try_get::<_, i64>(0)? as u64 != exported {
                let what = format!("a record came to {partition} meanwhile; export it again");
                return Err(StoreError::Invalid(what).into());
            }
            link.execute(
                "INSERT INTO hapax.archive (partition, leaves, digest) VALUES ($1, '{}', $2)",
                &[(&partition, Type::TEXT), (&&digest[..], Type::BYTEA)],
            )?;
            link.run(&format!(
                "ALTER TABLE hapax.outbox_record DETACH PARTITION hapax.{partition}; COMMIT"
            ))
        })
    }
}

fn all_delivered(link: &Link, partition: &str) -> Result<(), PgFailure> {
    let row = link.one(
        &format!(
            "SELECT count(*) FROM hapax.delivery d JOIN hapax.{partition} e
                 ON e.outbox_id = d.outbox_id"
        ),
        &[],
    )?;
    match row.try_get::<_, i64>(0)? {
        0 => Ok(()),
        open => {
            let what = format!("{open} deliveries of {partition} are pending or have failed");
            Err(StoreError::Invalid(what).into())
        }
    }
}

/// The leaves that are entries of a partition, as ranges.
const LEAVES: &str = "SELECT range_agg(int8range(t.place * 256 + u.nth - 1, t.place * 256 + u.nth))
    FROM (SELECT min(id) AS least, max(id) AS greatest FROM hapax.:partition) p
    JOIN hapax.tile t ON t.level = 0 AND t.least <= p.greatest AND t.greatest >= p.least
    CROSS JOIN unnest(t.entries) WITH ORDINALITY AS u (entry, nth)
    JOIN hapax.:partition j ON j.id = u.entry";
