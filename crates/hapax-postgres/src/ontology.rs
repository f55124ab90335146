//! Ontologies as rows.

use hapax_core::name::Namespace;
use hapax_core::result_index::Ontology;
use hapax_core::time::Timestamp;
use hapax_store::{OntologyTxn, OntologyView, StoreError};
use tokio_postgres::types::Type;

use crate::error::PgFailure;
use crate::txn::PgTxn;

impl OntologyView for PgTxn<'_> {
    fn ontology(
        &mut self,
        namespace: &Namespace,
        id: &str,
    ) -> Result<Option<Ontology>, StoreError> {
        let found = self.try_ontologies(namespace, Some(id));
        Ok(self.keep_failure(found)?.pop())
    }

    fn ontology_version(
        &mut self,
        namespace: &Namespace,
        id: &str,
    ) -> Result<Option<String>, StoreError> {
        let version = self.try_version(namespace, id);
        self.keep_failure(version)
    }

    fn ontologies(&mut self, namespace: &Namespace) -> Result<Vec<Ontology>, StoreError> {
        let found = self.try_ontologies(namespace, None);
        self.keep_failure(found)
    }
}

impl OntologyTxn for PgTxn<'_> {
    fn hold_ontology(
        &mut self,
        namespace: &Namespace,
        id: &str,
    ) -> Result<Option<String>, StoreError> {
        let held = self.try_hold(namespace, id);
        self.keep_failure(held)
    }

    fn put_ontology(
        &mut self,
        namespace: &Namespace,
        id: &str,
        ontology: Option<&Ontology>,
    ) -> Result<(), StoreError> {
        let put = self.try_put_ontology(namespace, id, ontology);
        self.keep_failure(put)
    }
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
        let row = (number, id.to_owned());
        if let Some(version) = self.ontologies.get(&row) {
            return Ok(version.clone());
        }
        // A shared lock: a transaction that changes the ontology waits for ours, or we see its
        // change.
        let sql = match self.is_read_only() {
            true => "SELECT version FROM hapax.ontology WHERE namespace = $1 AND id = $2",
            false => {
                "SELECT version FROM hapax.ontology WHERE namespace = $1 AND id = $2 FOR SHARE"
            }
        };
        let rows = self.link.query_prepared((sql, &[(&number, Type::INT4), (&id, Type::TEXT)]))?;
        let version = rows.first().map(|row| row.try_get(0)).transpose()?;
        self.ontologies.insert(row, version.clone());
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
}
