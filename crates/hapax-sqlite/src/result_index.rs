//! The result index as rows.

use hapax_core::effect::StateName;
use hapax_core::key::Key;
use hapax_core::name::{Name, Namespace};
use hapax_core::result_index::{
    AccessKind, CacheAccess, CacheStats, Evict, IndexEntry, IndexedResult, ResultFilter,
};
use hapax_core::time::{Now, Timestamp};
use hapax_store::{ResultIndexTxn, ResultIndexView, StoreError};
use rusqlite::{Connection, Row, ToSql, params};

use crate::effect;
use crate::error::OrStoreError;
use crate::query::{rows, run};
use crate::txn::SqliteTxn;

/// How long cache accesses are kept: 90 days.
const ACCESSES_MS: i64 = 90 * 24 * 60 * 60 * 1000;

impl ResultIndexView for SqliteTxn<'_> {
    fn indexed_results(
        &mut self,
        namespace: &Namespace,
        filter: &ResultFilter,
    ) -> Result<Vec<IndexedResult>, StoreError> {
        let Some(namespace) = self.namespace(namespace)? else { return Ok(Vec::new()) };
        // Each query has an index of its own.
        let (by, with): (&str, Option<&String>) = match (&filter.text_hash, &filter.ontology) {
            (Some(text), _) => ("text_hash = ?2 AND (?4 IS NULL OR ontology = ?4)", Some(text)),
            (None, Some(ontology)) => ("ontology = ?2 AND ?4 = ontology", Some(ontology)),
            (None, None) => ("?2 IS NULL AND ?4 IS NULL", None),
        };
        let sql = format!(
            "SELECT key, ontology, version, text_hash, params_hash, whole, bytes, created, used
             FROM result_index WHERE namespace = ?1 AND whole = 1 AND {by}
             ORDER BY used DESC, key LIMIT ?3"
        );
        rows(
            self.db,
            &sql,
            params![namespace, with, filter.limit as i64, filter.ontology],
            indexed_result,
        )
    }

    fn cache_stats(&mut self, namespace: &Namespace) -> Result<CacheStats, StoreError> {
        let Some(namespace) = self.namespace(namespace)? else { return Ok(CacheStats::default()) };
        let sql = "SELECT ifnull(sum(whole), 0), count(*), ifnull(sum(bytes), 0) FROM result_index
             WHERE namespace = ?1";
        let counted = rows(self.db, sql, params![namespace], |row| {
            let (whole, all): (i64, i64) = (row.get(0)?, row.get(1)?);
            let (whole, parts) = (whole as u64, (all - whole) as u64);
            Ok(CacheStats { whole, parts, bytes: row.get::<_, i64>(2)? as u64 })
        })?;
        Ok(counted.first().copied().unwrap_or_default())
    }
}

impl ResultIndexTxn for SqliteTxn<'_> {
    fn put_index_entry(
        &mut self,
        name: &Name,
        entry: &IndexEntry,
        bytes: u64,
        now: Now,
    ) -> Result<(), StoreError> {
        let namespace = self.namespace_or_new(&name.namespace)?;
        let IndexEntry { ontology, version, text_hash, params_hash, whole } = entry;
        let sql = "INSERT OR REPLACE INTO result_index
             (namespace, key, ontology, version, text_hash, params_hash, whole, bytes, created, used)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9)";
        let key = name.key.as_bytes();
        let (bytes, at) = (bytes as i64, now.wall.0);
        let written =
            params![namespace, key, ontology, version, text_hash, params_hash, whole, bytes, at];
        run(self.db, sql, written).map(drop)
    }

    fn record_accesses(&mut self, accesses: &[CacheAccess], now: Now) -> Result<(), StoreError> {
        for CacheAccess { name, ontology, kind, times, about } in accesses {
            let namespace = self.namespace_or_new(&name.namespace)?;
            let key = name.key.as_bytes();
            if kind.is_use() {
                let sql = "UPDATE result_index SET used = ?3 WHERE namespace = ?1 AND key = ?2";
                run(self.db, sql, params![namespace, key, now.wall.0])?;
            }
            if *kind == AccessKind::Used {
                continue;
            }
            let sql = "INSERT INTO cache_access (namespace, key, ontology, kind, times, about, at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
            let times = i64::try_from(*times).unwrap_or(i64::MAX);
            let kind = *kind as u8;
            run(self.db, sql, params![namespace, key, ontology, kind, times, about, now.wall.0])?;
        }
        if now.wall_trusted {
            let sql = "DELETE FROM cache_access WHERE id IN
                 (SELECT id FROM cache_access WHERE at < ?1 ORDER BY at LIMIT 4096)";
            run(self.db, sql, params![now.wall.0 - ACCESSES_MS])?;
        }
        Ok(())
    }

    fn evict(
        &mut self,
        namespace: &Namespace,
        which: &Evict,
        limit: usize,
    ) -> Result<usize, StoreError> {
        let Some(namespace) = self.namespace(namespace)? else { return Ok(0) };
        let no: &dyn ToSql = &Option::<String>::None;
        let (by, with): (&str, &dyn ToSql) = match which {
            Evict::Outdated { ontology } => (
                "s.ontology = ?2 AND s.version <> ifnull((SELECT version FROM ontology o
                     WHERE o.namespace = ?1 AND o.id = ?2), '')",
                ontology,
            ),
            Evict::Of { ontology } => ("s.ontology = ?2", ontology),
            Evict::One(key) => ("s.key = ?2", &key.as_bytes().to_vec()),
            Evict::All | Evict::Oldest => ("?2 IS NULL", no),
        };
        let order = if *which == Evict::Oldest { "ORDER BY s.used, s.key" } else { "" };
        let sql =
            format!("SELECT s.key FROM result_index s WHERE s.namespace = ?1 AND {by} {order}");
        let db = self.db;
        let mut found = Vec::new();
        let mut statement = db.prepare_cached(&sql).or_store_error()?;
        let mut entries = statement.query(params![namespace, with]).or_store_error()?;
        while found.len() < limit
            && let Some(row) = entries.next().or_store_error()?
        {
            let key: [u8; 32] = row.get(0).or_store_error()?;
            let number = self.cache.row_number(namespace, Key::from_bytes(key))?;
            let state = number.map(|effect| effect::state(db, effect)).transpose()?.flatten();
            match state {
                None => found.push((key, None)),
                Some(StateName::Succeeded) => found.push((key, number)),
                Some(_) => {}
            }
        }
        drop(entries);
        self.cache.drop_wholes();
        for (key, effect) in &found {
            remove(db, namespace, key)?;
            if let Some(effect) = effect {
                effect::remove(db, *effect)?;
            }
        }
        Ok(found.len())
    }
}

fn indexed_result(row: &Row<'_>) -> rusqlite::Result<IndexedResult> {
    Ok(IndexedResult {
        key: Key::from_bytes(row.get(0)?),
        entry: IndexEntry {
            ontology: row.get(1)?,
            version: row.get(2)?,
            text_hash: row.get(3)?,
            params_hash: row.get(4)?,
            whole: row.get(5)?,
        },
        bytes: row.get::<_, i64>(6)? as u64,
        created: Timestamp(row.get(7)?),
        used: Timestamp(row.get(8)?),
    })
}

/// Removes the index entry of a result, if it has one.
pub(crate) fn remove(db: &Connection, namespace: i64, key: &[u8; 32]) -> Result<(), StoreError> {
    let sql = "DELETE FROM result_index WHERE namespace = ?1 AND key = ?2";
    run(db, sql, params![namespace, key]).map(drop)
}
