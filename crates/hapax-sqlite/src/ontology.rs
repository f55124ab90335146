//! Ontologies as rows.

use hapax_core::name::Namespace;
use hapax_core::result_index::Ontology;
use hapax_core::time::Timestamp;
use hapax_store::{OntologyTxn, OntologyView, StoreError};
use rusqlite::{Row, params};

use crate::query::{rows, run};
use crate::txn::SqliteTxn;

impl OntologyView for SqliteTxn<'_> {
    fn ontology(
        &mut self,
        namespace: &Namespace,
        id: &str,
    ) -> Result<Option<Ontology>, StoreError> {
        let Some(namespace) = self.namespace(namespace)? else { return Ok(None) };
        let sql = "SELECT id, version, content, metadata, updated FROM ontology
             WHERE namespace = ?1 AND id = ?2";
        Ok(rows(self.db, sql, params![namespace, id], ontology)?.pop())
    }

    fn ontology_version(
        &mut self,
        namespace: &Namespace,
        id: &str,
    ) -> Result<Option<String>, StoreError> {
        let Some(namespace) = self.namespace(namespace)? else { return Ok(None) };
        let sql = "SELECT version FROM ontology WHERE namespace = ?1 AND id = ?2";
        Ok(rows(self.db, sql, params![namespace, id], |row| row.get(0))?.pop())
    }

    fn ontologies(&mut self, namespace: &Namespace) -> Result<Vec<Ontology>, StoreError> {
        let Some(namespace) = self.namespace(namespace)? else { return Ok(Vec::new()) };
        let sql = "SELECT id, version, '', metadata, updated FROM ontology
             WHERE namespace = ?1 ORDER BY id";
        rows(self.db, sql, params![namespace], ontology)
    }
}

impl OntologyTxn for SqliteTxn<'_> {
    fn hold_ontology(
        &mut self,
        namespace: &Namespace,
        id: &str,
    ) -> Result<Option<String>, StoreError> {
        self.ontology_version(namespace, id)
    }

    fn put_ontology(
        &mut self,
        namespace: &Namespace,
        id: &str,
        ontology: Option<&Ontology>,
    ) -> Result<(), StoreError> {
        let namespace = self.namespace_or_new(namespace)?;
        let Some(Ontology { version, content, metadata, updated, .. }) = ontology else {
            let sql = "DELETE FROM ontology WHERE namespace = ?1 AND id = ?2";
            return run(self.db, sql, params![namespace, id]).map(drop);
        };
        let sql = "INSERT OR REPLACE INTO ontology
             (namespace, id, version, content, metadata, updated) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        run(self.db, sql, params![namespace, id, version, content, metadata, updated.0]).map(drop)
    }
}

fn ontology(row: &Row<'_>) -> rusqlite::Result<Ontology> {
    Ok(Ontology {
        id: row.get(0)?,
        version: row.get(1)?,
        content: row.get(2)?,
        metadata: row.get(3)?,
        updated: Timestamp(row.get(4)?),
    })
}
