//! The result index as rows.

use hapax_core::key::Key;
use hapax_core::name::{Name, Namespace};
use hapax_core::result_index::{
    AccessKind, CacheAccess, CacheStats, Evict, IndexEntry, IndexedResult, ResultFilter,
};
use hapax_core::time::{Now, Timestamp};
use hapax_store::{ResultIndexTxn, ResultIndexView, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connect::Link;
use crate::effect::{self, EffectRowKey, bytes, row_key};
use crate::error::PgFailure;
use crate::txn::PgTxn;

/// How long cache accesses are kept: 90 days.
const ACCESSES_MS: i64 = 90 * 24 * 60 * 60 * 1000;

impl ResultIndexView for PgTxn<'_> {
    fn indexed_results(
        &mut self,
        namespace: &Namespace,
        filter: &ResultFilter,
    ) -> Result<Vec<IndexedResult>, StoreError> {
        let found = self.try_indexed_results(namespace, filter);
        self.keep_failure(found)
    }

    fn cache_stats(&mut self, namespace: &Namespace) -> Result<CacheStats, StoreError> {
        let stats = self.try_cache_stats(namespace);
        self.keep_failure(stats)
    }
}

impl ResultIndexTxn for PgTxn<'_> {
    fn put_index_entry(
        &mut self,
        name: &Name,
        entry: &IndexEntry,
        bytes: u64,
        now: Now,
    ) -> Result<(), StoreError> {
        let number = self.namespace(&name.namespace);
        let row_key = (self.keep_failure(number)?, name.key);
        let (entry, at) = (entry.clone(), now.wall);
        self.staged.index_entries.push(NewIndexEntry { row_key, entry, bytes, at });
        Ok(())
    }

    fn record_accesses(&mut self, accesses: &[CacheAccess], now: Now) -> Result<(), StoreError> {
        let recorded = self.try_record_accesses(accesses, now);
        self.keep_failure(recorded)
    }

    fn evict(
        &mut self,
        namespace: &Namespace,
        which: &Evict,
        limit: usize,
    ) -> Result<usize, StoreError> {
        let evicted = self.try_evict(namespace, which, limit);
        self.keep_failure(evicted)
    }
}

impl PgTxn<'_> {
    fn try_indexed_results(
        &self,
        namespace: &Namespace,
        filter: &ResultFilter,
    ) -> Result<Vec<IndexedResult>, PgFailure> {
        let Some(number) = self.namespaces.find(self.link, namespace)? else {
            return Ok(Vec::new());
        };
        let rows = self.link.query(
            "SELECT key, bytes, created, used, whole, ontology, version, text_hash, params_hash
             FROM hapax.result_index WHERE namespace = $1 AND whole
                 AND ($2::text IS NULL OR ontology = $2) AND ($3::text IS NULL OR text_hash = $3)
             ORDER BY used DESC, key LIMIT $4",
            &[
                (&number, Type::INT4),
                (&filter.ontology, Type::TEXT),
                (&filter.text_hash, Type::TEXT),
                (&(filter.limit as i64), Type::INT8),
            ],
        )?;
        rows.iter().map(indexed_result).collect()
    }

    fn try_cache_stats(&self, namespace: &Namespace) -> Result<CacheStats, PgFailure> {
        let Some(number) = self.namespaces.find(self.link, namespace)? else {
            return Ok(CacheStats::default());
        };
        let row = self.link.one(
            "SELECT count(*) FILTER (WHERE whole), count(*) FILTER (WHERE NOT whole),
                 coalesce(sum(bytes), 0)::bigint FROM hapax.result_index WHERE namespace = $1",
            &[(&number, Type::INT4)],
        )?;
        let number = |at: usize| Ok::<_, PgFailure>(row.try_get::<_, i64>(at)? as u64);
        Ok(CacheStats { whole: number(0)?, parts: number(1)?, bytes: number(2)? })
    }

    fn try_record_accesses(&mut self, accesses: &[CacheAccess], now: Now) -> Result<(), PgFailure> {
        let numbers: Vec<i32> = accesses
            .iter()
            .map(|access| self.namespace(&access.name.namespace))
            .collect::<Result<_, _>>()?;
        let keys: Vec<&[u8]> =
            accesses.iter().map(|access| &access.name.key.as_bytes()[..]).collect();
        let kind: Vec<i16> = accesses.iter().map(|access| access.kind as i16).collect();
        let used: Vec<bool> = accesses.iter().map(|access| access.kind.is_use()).collect();
        let times: Vec<i64> =
            accesses.iter().map(|access| i64::try_from(access.times).unwrap_or(i64::MAX)).collect();
        let ontologies: Vec<&str> =
            accesses.iter().map(|access| access.ontology.as_str()).collect();
        let about: Vec<&str> = accesses.iter().map(|access| access.about.as_str()).collect();
        self.link.execute(
            "WITH access AS (
                 SELECT * FROM unnest($1::int[], $2::bytea[], $3::smallint[], $4::bigint[],
                     $5::text[], $6::text[], $8::boolean[])
                     AS u (namespace, key, kind, times, ontology, about, used)
             ), hit AS (
                 SELECT s.namespace, s.key FROM hapax.result_index s
                 WHERE (s.namespace, s.key) IN (SELECT namespace, key FROM access WHERE used)
                 ORDER BY s.namespace, s.key FOR UPDATE SKIP LOCKED
             ), used AS (
                 UPDATE hapax.result_index s SET used = $7 FROM hit
                 WHERE s.namespace = hit.namespace AND s.key = hit.key
             ), old AS (
                 DELETE FROM hapax.cache_access WHERE id IN
                     (SELECT id FROM hapax.cache_access WHERE $11 AND at < $7 - $9 ORDER BY at LIMIT 4096)
             )
             INSERT INTO hapax.cache_access (namespace, key, kind, times, ontology, about, at)
             SELECT namespace, key, kind, times, ontology, about, $7 FROM access WHERE kind <> $10",
            &[
                (&numbers, Type::INT4_ARRAY),
                (&keys, Type::BYTEA_ARRAY),
                (&kind, Type::INT2_ARRAY),
                (&times, Type::INT8_ARRAY),
                (&ontologies, Type::TEXT_ARRAY),
                (&about, Type::TEXT_ARRAY),
                (&now.wall.0, Type::INT8),
                (&used, Type::BOOL_ARRAY),
                (&ACCESSES_MS, Type::INT8),
                (&(AccessKind::Used as i16), Type::INT2),
                (&now.wall_trusted, Type::BOOL),
            ],
        )?;
        Ok(())
    }

    /// Skips results whose effect another transaction has locked: they are being made again.
    /// [`Evict::One`] waits.
    fn try_evict(
        &self,
        namespace: &Namespace,
        which: &Evict,
        limit: usize,
    ) -> Result<usize, PgFailure> {
        let Some(number) = self.namespaces.find(self.link, namespace)? else { return Ok(0) };
        let (by, ontology, key) = match which {
            Evict::Outdated { ontology } => (
                "s.ontology = $3 AND s.version <> coalesce((SELECT version FROM hapax.ontology o
                     WHERE o.namespace = $1 AND o.id = $3), '') AND $4::bytea IS NULL",
                Some(ontology),
                None,
            ),
            Evict::Of { ontology } => {
                ("s.ontology = $3 AND $4::bytea IS NULL", Some(ontology), None)
            }
            Evict::One(key) => {
                ("s.key = $4 AND $3::text IS NULL", None, Some(key.as_bytes().to_vec()))
            }
            Evict::All | Evict::Oldest => ("$3::text IS NULL AND $4::bytea IS NULL", None, None),
        };
        let order = if *which == Evict::Oldest { "ORDER BY s.used, s.key" } else { "" };
        let others = if matches!(which, Evict::One(_)) { "" } else { "SKIP LOCKED" };
        let found = self.link.query(
            &format!(
                "SELECT s.namespace, s.key FROM hapax.result_index s
                     JOIN hapax.effect e ON e.namespace = s.namespace AND e.key = s.key
                 WHERE s.namespace = $1 AND {by} AND e.state = 1
                 {order} LIMIT $2 FOR UPDATE OF e {others}"
            ),
            &[
                (&number, Type::INT4),
                (&(limit as i64), Type::INT8),
                (&ontology, Type::TEXT),
                (&key, Type::BYTEA),
            ],
        )?;
        let row_keys: Vec<EffectRowKey> = found.iter().map(row_key).collect::<Result<_, _>>()?;
        effect::remove(self.link, &row_keys)?;
        Ok(row_keys.len())
    }
}

/// An index entry, which is written when all commands of the batch have been judged.
pub(crate) struct NewIndexEntry {
    pub(crate) row_key: EffectRowKey,
    pub(crate) entry: IndexEntry,
    pub(crate) bytes: u64,
    pub(crate) at: Timestamp,
}

/// Writes index entries, in their order.
pub(crate) fn put(link: &Link, results: &[NewIndexEntry]) -> Result<(), PgFailure> {
    if results.is_empty() {
        return Ok(());
    }
    let namespace: Vec<i32> = results.iter().map(|result| result.row_key.0).collect();
    let key: Vec<&[u8]> = results.iter().map(|result| &result.row_key.1.as_bytes()[..]).collect();
    let bytes: Vec<i64> = results.iter().map(|result| result.bytes as i64).collect();
    let at: Vec<i64> = results.iter().map(|result| result.at.0).collect();
    let whole: Vec<bool> = results.iter().map(|result| result.entry.whole).collect();
    let text = |of: fn(&IndexEntry) -> &String| -> Vec<&str> {
        results.iter().map(|result| of(&result.entry).as_str()).collect()
    };
    link.query_prepared((
        "INSERT INTO hapax.result_index
             (namespace, key, bytes, created, used, whole, ontology, version, text_hash, params_hash)
         SELECT n, k, b, a, a, w, o, v, t, p
         FROM unnest($1::int[], $2::bytea[], $3::bigint[], $4::bigint[], $5::boolean[], $6::text[],
                     $7::text[], $8::text[], $9::text[]) AS u (n, k, b, a, w, o, v, t, p)
         ORDER BY n, k
         ON CONFLICT (namespace, key) DO UPDATE SET bytes = excluded.bytes,
             created = excluded.created, used = excluded.used, whole = excluded.whole,
             ontology = excluded.ontology, version = excluded.version,
             text_hash = excluded.text_hash, params_hash = excluded.params_hash",
        &[
            (&namespace, Type::INT4_ARRAY),
            (&key, Type::BYTEA_ARRAY),
            (&bytes, Type::INT8_ARRAY),
            (&at, Type::INT8_ARRAY),
            (&whole, Type::BOOL_ARRAY),
            (&text(|entry| &entry.ontology), Type::TEXT_ARRAY),
            (&text(|entry| &entry.version), Type::TEXT_ARRAY),
            (&text(|entry| &entry.text_hash), Type::TEXT_ARRAY),
            (&text(|entry| &entry.params_hash), Type::TEXT_ARRAY),
        ],
    ))?;
    Ok(())
}

fn indexed_result(row: &Row) -> Result<IndexedResult, PgFailure> {
    Ok(IndexedResult {
        key: Key::from_bytes(bytes(row, "key")?),
        bytes: row.try_get::<_, i64>(1)? as u64,
        created: Timestamp(row.try_get(2)?),
        used: Timestamp(row.try_get(3)?),
        entry: IndexEntry {
            whole: row.try_get(4)?,
            ontology: row.try_get(5)?,
            version: row.try_get(6)?,
            text_hash: row.try_get(7)?,
            params_hash: row.try_get(8)?,
        },
    })
}
