//! Old partitions of the journal: they leave only sealed and exported.

use hapax_core::journal::Entry;
use hapax_store::StoreError;
use tokio_postgres::types::Type;

use crate::error::Trouble;
use crate::journal;
use crate::store::{PgStore, tried};

/// How many entries are read at a time.
const CHUNK: u64 = 4096;

impl PgStore {
    /// The partitions of months before this one (`2026_01`), oldest first. Blocks.
    pub fn partitions_before(&self, month: &str) -> Result<Vec<String>, StoreError> {
        tried(|| {
            let rows = self.connect()?.query(
                "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                 WHERE i.inhparent = 'hapax.journal'::regclass
                     AND c.relname ~ '^journal_\\d{4}_\\d\\d$' AND c.relname < 'journal_' || $1
                 ORDER BY 1",
                &[(&month, Type::TEXT)],
            )?;
            rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
        })
    }

    /// Hands every entry of a partition, with its leaf, to `each`, in the order of leaves, and
    /// returns how many there are. Refused while one of them is not sealed. Blocks.
    pub fn export(
        &self,
        partition: &str,
        mut each: impl FnMut(u64, &Entry) -> std::io::Result<()>,
    ) -> Result<u64, StoreError> {
        let link = self.connect().map_err(Trouble::into_store_error)?;
        let read = || -> Result<Vec<(u64, u64)>, Trouble> {
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
        for (first, end) in read().map_err(Trouble::into_store_error)? {
            for from in (first..end).step_by(CHUNK as usize) {
                let entries = journal::leaves(&link, from, CHUNK.min(end - from))
                    .map_err(Trouble::into_store_error)?;
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

    /// Detaches a partition whose entries have been exported to a file of this digest. Needs the
    /// schema's owner. Blocks.
    pub fn detach(&self, partition: &str, digest: [u8; 32]) -> Result<(), StoreError> {
        tried(|| {
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

/// The leaves that are entries of a partition, as ranges.
const LEAVES: &str = "SELECT range_agg(int8range(t.place * 256 + u.nth - 1, t.place * 256 + u.nth))
    FROM (SELECT min(id) AS least, max(id) AS greatest FROM hapax.:partition) p
    JOIN hapax.tile t ON t.level = 0 AND t.least <= p.greatest AND t.greatest >= p.least
    CROSS JOIN unnest(t.entries) WITH ORDINALITY AS u (entry, nth)
    JOIN hapax.:partition j ON j.id = u.entry";
