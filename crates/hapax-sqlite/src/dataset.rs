//! What is declared of datasets.

use std::collections::BTreeSet;

use hapax_core::dataset::{Dataset, Registry};
use hapax_core::guard::Guards;
use hapax_store::StoreError;
use rusqlite::params;

use crate::outbox::{rows, run};
use crate::txn::SqliteTxn;

impl SqliteTxn<'_> {
    pub(crate) fn load_registry(&self, datasets: &BTreeSet<&str>) -> Result<Registry, StoreError> {
        let guards = rows(self.db, "SELECT personal, secrets, registered FROM guard", [], |row| {
            Ok(Guards { personal: row.get(0)?, secrets: row.get(1)?, registered: row.get(2)? })
        })?;
        let guards = guards.first().copied().unwrap_or_default();
        let mut registry = Registry { guards, ..Registry::default() };
        for name in datasets {
            let sql = "SELECT declaration FROM dataset WHERE name = ?1";
            for text in rows(self.db, sql, [name], |row| row.get::<_, String>(0))? {
                let dataset = Dataset::parse(&text);
                let dataset = dataset.map_err(|error| StoreError::Corrupt(error.to_string()))?;
                registry.datasets.insert((*name).to_owned(), dataset);
            }
        }
        Ok(registry)
    }

    pub(crate) fn store_registry(&self, registry: &Registry) -> Result<(), StoreError> {
        let Guards { personal, secrets, registered } = registry.guards;
        let sql = "UPDATE guard SET personal = ?1, secrets = ?2, registered = ?3";
        run(self.db, sql, params![personal, secrets, registered])?;
        run(self.db, "DELETE FROM dataset", [])?;
        for (name, dataset) in &registry.datasets {
            let sql = "INSERT INTO dataset (name, declaration) VALUES (?1, ?2)";
            run(self.db, sql, params![name, dataset.text()])?;
        }
        Ok(())
    }
}
