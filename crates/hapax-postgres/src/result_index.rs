//! The index of cached results, which may be evicted, and the ontologies they are made from.

use hapax_core::key::Key;
use hapax_core::name::{Name, Namespace};
use hapax_core::result_index::{
    CacheAccess, CacheStats, Evict, IndexEntry, IndexedResult, Ontology, ResultFilter, What,
};
use hapax_core::time::{Now, Timestamp};
use hapax_store::{ShelfTxn, ShelfView, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connect::Link;
use crate::effect::{self, EffectRow, bytes, place};
use crate::error::PgFailure;
use crate::txn::PgTxn;

/// How long cache accesses are kept: 90 days.
const HEARD_MS: i64 = 90 * 24 * 60 * 60 * 1000;

/// An index entry, which is written when all commands of the batch have been judged.
pub(crate) struct ToShelve {
    pub(crate) place: EffectRow,
    pub(crate) shelved: IndexEntry,
    pub(crate) bytes: u64,
    pub(crate) at: Timestamp,
}

/// Writes index entries, in their order.
pub(crate) fn put(link: &Link, results: &[ToShelve]) -> Result<(), PgFailure> {
    if results.is_empty() {
        return Ok(());
    }
    let namespace: Vec<i32> = results.iter().map(|result| result.place.0).collect();
    let key: Vec<&[u8]> = results.iter().map(|result| &result.place.1.as_bytes()[..]).collect();
    let bytes: Vec<i64> = results.iter().map(|result| result.bytes as i64).collect();
    let at: Vec<i64> = results.iter().map(|result| result.at.0).collect();
    let whole: Vec<bool> = results.iter().map(|result| result.shelved.whole).collect();
    let text = |of: fn(&IndexEntry) -> &String| -> Vec<&str> {
        results.iter().map(|result| of(&result.shelved).as_str()).collect()
    };
    link.often((
        "INSERT INTO hapax.shelf
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
            (&text(|shelved| &shelved.ontology), Type::TEXT_ARRAY),
            (&text(|shelved| &shelved.version), Type::TEXT_ARRAY),
            (&text(|shelved| &shelved.text_hash), Type::TEXT_ARRAY),
            (&text(|shelved| &shelved.params_hash), Type::TEXT_ARRAY),
        ],
    ))?;
    Ok(())
}

impl PgTxn<'_> {
    fn try_ontologies(
        &self,
        namespace: &Namespace,
        id: Option<&str>,
    ) -> Result<Vec<Ontology>, PgFailure> {
        let Some(number) = self.namespaces.find(self.link, namespace)? else {
            return Ok(Vec::new());
        };
        let rows = self.link.query(
            "SELECT id, version, CASE WHEN $2 IS NULL THEN '' ELSE content END, metadata, updated
             FROM hapax.ontology WHERE namespace = $1 AND ($2 IS NULL OR id = $2) ORDER BY id",
            &[(&number, Type::INT4), (&id, Type::TEXT)],
        )?;
        rows.iter()
            .map(|row| {
                Ok(Ontology {
                    id: row.try_get(0)?,
                    version: row.try_get(1)?,
                    content: row.try_get(2)?,
                    metadata: row.try_get(3)?,
                    updated: Timestamp(row.try_get(4)?),
                })
            })
            .collect()
    }

    fn try_version(
        &mut self,
        namespace: &Namespace,
        id: &str,
    ) -> Result<Option<String>, PgFailure> {
        let Some(number) = self.namespaces.find(self.link, namespace)? else { return Ok(None) };
        let asked = (number, id.to_owned());
        if let Some(version) = self.ontologies.get(&asked) {
            return Ok(version.clone());
        }
        // A shared lock: a transaction that changes the ontology waits for ours, or we see its
        // change.
        let sql = match self.is_look() {
            true => "SELECT version FROM hapax.ontology WHERE namespace = $1 AND id = $2",
            false => {
                "SELECT version FROM hapax.ontology WHERE namespace = $1 AND id = $2 FOR SHARE"
            }
        };
        let rows = self.link.often((sql, &[(&number, Type::INT4), (&id, Type::TEXT)]))?;
        let version = rows.first().map(|row| row.try_get(0)).transpose()?;
        self.ontologies.insert(asked, version.clone());
        Ok(version)
    }

    /// Transactions that change the same ontology wait for each other, also while there is none
    /// yet.
    fn try_hold(&mut self, namespace: &Namespace, id: &str) -> Result<Option<String>, PgFailure> {
        let number = self.namespace(namespace)?;
        let params = [(&number as _, Type::INT4), (&id as _, Type::TEXT)];
        self.link.query(
            "SELECT pg_advisory_xact_lock(hashtextextended('ontology ' || $1::text || ' ' || $2, 0))",
            &params,
        )?;
        let rows = self.link.query(
            "SELECT version FROM hapax.ontology WHERE namespace = $1 AND id = $2 FOR UPDATE",
            &params,
        )?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
    }

    fn try_put_ontology(
        &mut self,
        namespace: &Namespace,
        id: &str,
        ontology: Option<&Ontology>,
    ) -> Result<(), PgFailure> {
        let number = self.namespace(namespace)?;
        self.ontologies.remove(&(number, id.to_owned()));
        match ontology {
            None => self.link.execute(
                "DELETE FROM hapax.ontology WHERE namespace = $1 AND id = $2",
                &[(&number, Type::INT4), (&id, Type::TEXT)],
            )?,
            Some(Ontology { version, content, metadata, updated, .. }) => self.link.execute(
                "INSERT INTO hapax.ontology (namespace, id, version, content, metadata, updated)
                 VALUES ($1, $2, $3, $4, $5, $6)
                 ON CONFLICT (namespace, id) DO UPDATE SET version = excluded.version,
                     content = excluded.content, metadata = excluded.metadata,
                     updated = excluded.updated",
                &[
                    (&number, Type::INT4),
                    (&id, Type::TEXT),
                    (version, Type::TEXT),
                    (content, Type::TEXT),
                    (metadata, Type::TEXT),
                    (&updated.0, Type::INT8),
                ],
            )?,
        };
        Ok(())
    }

    fn try_shelved(
        &self,
        namespace: &Namespace,
        sought: &ResultFilter,
    ) -> Result<Vec<IndexedResult>, PgFailure> {
        let Some(number) = self.namespaces.find(self.link, namespace)? else {
            return Ok(Vec::new());
        };
        let rows = self.link.query(
            "SELECT key, bytes, created, used, whole, ontology, version, text_hash, params_hash
             FROM hapax.shelf WHERE namespace = $1 AND whole
                 AND ($2::text IS NULL OR ontology = $2) AND ($3::text IS NULL OR text_hash = $3)
             ORDER BY used DESC, key LIMIT $4",
            &[
                (&number, Type::INT4),
                (&sought.ontology, Type::TEXT),
                (&sought.text_hash, Type::TEXT),
                (&(sought.limit as i64), Type::INT8),
            ],
        )?;
        rows.iter().map(shelf).collect()
    }

    fn try_stock(&self, namespace: &Namespace) -> Result<CacheStats, PgFailure> {
        let Some(number) = self.namespaces.find(self.link, namespace)? else {
            return Ok(CacheStats::default());
        };
        let row = self.link.one(
            "SELECT count(*) FILTER (WHERE whole), count(*) FILTER (WHERE NOT whole),
                 coalesce(sum(bytes), 0)::bigint FROM hapax.shelf WHERE namespace = $1",
            &[(&number, Type::INT4)],
        )?;
        let number = |at: usize| Ok::<_, PgFailure>(row.try_get::<_, i64>(at)? as u64);
        Ok(CacheStats { whole: number(0)?, parts: number(1)?, bytes: number(2)? })
    }

    fn try_attend(&mut self, heard: &[CacheAccess], now: Now) -> Result<(), PgFailure> {
        let numbers: Vec<i32> = heard
            .iter()
            .map(|heard| self.namespace(&heard.name.namespace))
            .collect::<Result<_, _>>()?;
        let keys: Vec<&[u8]> = heard.iter().map(|heard| &heard.name.key.as_bytes()[..]).collect();
        let what: Vec<i16> = heard.iter().map(|heard| heard.what as i16).collect();
        let used: Vec<bool> = heard.iter().map(|heard| heard.what.is_use()).collect();
        let times: Vec<i64> =
            heard.iter().map(|heard| i64::try_from(heard.times).unwrap_or(i64::MAX)).collect();
        let ontologies: Vec<&str> = heard.iter().map(|heard| heard.ontology.as_str()).collect();
        let about: Vec<&str> = heard.iter().map(|heard| heard.about.as_str()).collect();
        self.link.execute(
            "WITH told AS (
                 SELECT * FROM unnest($1::int[], $2::bytea[], $3::smallint[], $4::bigint[],
                     $5::text[], $6::text[], $8::boolean[])
                     AS u (namespace, key, what, times, ontology, about, used)
             ), hit AS (
                 SELECT s.namespace, s.key FROM hapax.shelf s
                 WHERE (s.namespace, s.key) IN (SELECT namespace, key FROM told WHERE used)
                 ORDER BY s.namespace, s.key FOR UPDATE SKIP LOCKED
             ), used AS (
                 UPDATE hapax.shelf s SET used = $7 FROM hit
                 WHERE s.namespace = hit.namespace AND s.key = hit.key
             ), old AS (
                 DELETE FROM hapax.heard WHERE id IN
                     (SELECT id FROM hapax.heard WHERE at < $7 - $9 ORDER BY at LIMIT 4096)
             )
             INSERT INTO hapax.heard (namespace, key, what, times, ontology, about, at)
             SELECT namespace, key, what, times, ontology, about, $7 FROM told WHERE what <> $10",
            &[
                (&numbers, Type::INT4_ARRAY),
                (&keys, Type::BYTEA_ARRAY),
                (&what, Type::INT2_ARRAY),
                (&times, Type::INT8_ARRAY),
                (&ontologies, Type::TEXT_ARRAY),
                (&about, Type::TEXT_ARRAY),
                (&now.wall.0, Type::INT8),
                (&used, Type::BOOL_ARRAY),
                (&HEARD_MS, Type::INT8),
                (&(What::Used as i16), Type::INT2),
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
                "SELECT s.namespace, s.key FROM hapax.shelf s
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
        let places: Vec<EffectRow> = found.iter().map(place).collect::<Result<_, _>>()?;
        effect::remove(self.link, &places)?;
        Ok(places.len())
    }
}

fn shelf(row: &Row) -> Result<IndexedResult, PgFailure> {
    Ok(IndexedResult {
        key: Key::from_bytes(bytes(row, "key")?),
        bytes: row.try_get::<_, i64>(1)? as u64,
        created: Timestamp(row.try_get(2)?),
        used: Timestamp(row.try_get(3)?),
        shelved: IndexEntry {
            whole: row.try_get(4)?,
            ontology: row.try_get(5)?,
            version: row.try_get(6)?,
            text_hash: row.try_get(7)?,
            params_hash: row.try_get(8)?,
        },
    })
}

impl ShelfView for PgTxn<'_> {
    fn ontology(
        &mut self,
        namespace: &Namespace,
        id: &str,
    ) -> Result<Option<Ontology>, StoreError> {
        let found = self.try_ontologies(namespace, Some(id));
        Ok(self.noting(found)?.pop())
    }

    fn ontology_version(
        &mut self,
        namespace: &Namespace,
        id: &str,
    ) -> Result<Option<String>, StoreError> {
        let version = self.try_version(namespace, id);
        self.noting(version)
    }

    fn ontologies(&mut self, namespace: &Namespace) -> Result<Vec<Ontology>, StoreError> {
        let found = self.try_ontologies(namespace, None);
        self.noting(found)
    }

    fn shelved(
        &mut self,
        namespace: &Namespace,
        sought: &ResultFilter,
    ) -> Result<Vec<IndexedResult>, StoreError> {
        let found = self.try_shelved(namespace, sought);
        self.noting(found)
    }

    fn stock(&mut self, namespace: &Namespace) -> Result<CacheStats, StoreError> {
        let stock = self.try_stock(namespace);
        self.noting(stock)
    }
}

impl ShelfTxn for PgTxn<'_> {
    fn hold_ontology(
        &mut self,
        namespace: &Namespace,
        id: &str,
    ) -> Result<Option<String>, StoreError> {
        self.may_write()?;
        let held = self.try_hold(namespace, id);
        self.noting(held)
    }

    fn put_ontology(
        &mut self,
        namespace: &Namespace,
        id: &str,
        ontology: Option<&Ontology>,
    ) -> Result<(), StoreError> {
        self.may_write()?;
        let put = self.try_put_ontology(namespace, id, ontology);
        self.noting(put)
    }

    fn shelve(
        &mut self,
        name: &Name,
        shelved: &IndexEntry,
        bytes: u64,
        now: Now,
    ) -> Result<(), StoreError> {
        self.may_write()?;
        let number = self.namespace(&name.namespace);
        let place = (self.noting(number)?, name.key);
        let (shelved, at) = (shelved.clone(), now.wall);
        self.staged.shelved.push(ToShelve { place, shelved, bytes, at });
        Ok(())
    }

    fn attend(&mut self, heard: &[CacheAccess], now: Now) -> Result<(), StoreError> {
        self.may_write()?;
        let attended = self.try_attend(heard, now);
        self.noting(attended)
    }

    fn evict(
        &mut self,
        namespace: &Namespace,
        which: &Evict,
        limit: usize,
    ) -> Result<usize, StoreError> {
        self.may_write()?;
        let evicted = self.try_evict(namespace, which, limit);
        self.noting(evicted)
    }
}
