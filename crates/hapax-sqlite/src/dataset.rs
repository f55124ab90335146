//! Guards and dataset declarations as rows.

use std::collections::{BTreeMap, BTreeSet};

use hapax_core::dataset::{Dataset, Registry};
use hapax_core::guard::Guards;
use hapax_store::{DatasetTxn, DatasetView, StoreError};
use rusqlite::params;

use crate::query::{rows, run};
use crate::txn::SqliteTxn;

impl DatasetView for SqliteTxn<'_> {
    fn registry(&mut self, datasets: &BTreeSet<&str>) -> Result<Registry, StoreError> {
        let guards = rows(self.db, "SELECT personal, secrets, registered FROM guard", [], |row| {
            Ok(Guards { personal: row.get(0)?, secrets: row.get(1)?, registered: row.get(2)? })
        })?;
        let guards = guards.first().copied().unwrap_or_default();
        let mut registry = Registry { guards, ..Registry::default() };
        for name in datasets {
            let sql = "SELECT declaration FROM dataset WHERE name = ?1";
            for text in rows(self.db, sql, [name], |row| row.get::<_, String>(0))? {
                registry.datasets.insert((*name).to_owned(), read(&text)?);
            }
        }
        Ok(registry)
    }

    fn datasets(&mut self) -> Result<BTreeMap<String, Dataset>, StoreError> {
        let sql = "SELECT name, declaration FROM dataset";
        let rows = rows(self.db, sql, [], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
        rows.into_iter().map(|(name, text)| Ok((name, read(&text)?))).collect()
    }
}

impl DatasetTxn for SqliteTxn<'_> {
    fn put_guards(&mut self, guards: Guards) -> Result<(), StoreError> {
        let Guards { personal, secrets, registered } = guards;
        let sql = "UPDATE guard SET personal = ?1, secrets = ?2, registered = ?3";
        run(self.db, sql, params![personal, secrets, registered]).map(drop)
    }

    fn put_dataset(&mut self, name: &str, dataset: Option<&Dataset>) -> Result<bool, StoreError> {
        let known = run(self.db, "DELETE FROM dataset WHERE name = ?1", [name])? > 0;
        if let Some(dataset) = dataset {
            let sql = "INSERT INTO dataset (name, declaration) VALUES (?1, ?2)";
            run(self.db, sql, params![name, dataset.text()])?;
        }
        Ok(known)
    }
}

fn read(declaration: &str) -> Result<Dataset, StoreError> {
    Dataset::parse(declaration).map_err(|error| StoreError::Corrupt(error.to_string()))
}
