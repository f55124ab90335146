//! Guards and dataset declarations as rows.

use std::collections::{BTreeMap, BTreeSet};

use hapax_core::dataset::{Dataset, Registry};
use hapax_core::guard::Guards;
use hapax_store::{DatasetTxn, DatasetView, StoreError};
use tokio_postgres::types::Type;

use crate::error::PgFailure;
use crate::txn::PgTxn;

impl DatasetView for PgTxn<'_> {
    fn registry(&mut self, datasets: &BTreeSet<&str>) -> Result<Registry, StoreError> {
        let registry = self.try_registry(datasets);
        self.keep_failure(registry)
    }

    fn datasets(&mut self) -> Result<BTreeMap<String, Dataset>, StoreError> {
        let datasets = self.try_datasets();
        self.keep_failure(datasets)
    }
}

impl DatasetTxn for PgTxn<'_> {
    fn put_guards(&mut self, guards: Guards) -> Result<(), StoreError> {
        let put = self.try_put_guards(guards);
        self.keep_failure(put)
    }

    fn put_dataset(&mut self, name: &str, dataset: Option<&Dataset>) -> Result<bool, StoreError> {
        let put = self.try_put_dataset(name, dataset);
        self.keep_failure(put)
    }
}

impl PgTxn<'_> {
    fn try_registry(&self, datasets: &BTreeSet<&str>) -> Result<Registry, PgFailure> {
        let names: Vec<&str> = datasets.iter().copied().collect();
        let rows = self.link.query_prepared((REGISTRY, &[(&names, Type::TEXT_ARRAY)]))?;
        let rows = rows.iter().map(|row| registry_row!(row)).collect::<Result<_, PgFailure>>()?;
        Ok(registry_of(rows)?)
    }

    fn try_datasets(&self) -> Result<BTreeMap<String, Dataset>, PgFailure> {
        let rows = self.link.query("SELECT name, declaration FROM hapax.dataset", &[])?;
        rows.iter().map(|row| Ok((row.try_get(0)?, read(row.try_get(1)?)?))).collect()
    }

    fn try_put_dataset(&self, name: &str, dataset: Option<&Dataset>) -> Result<bool, PgFailure> {
        let known = self.link.query(
            "DELETE FROM hapax.dataset WHERE name = $1 RETURNING name",
            &[(&name, Type::TEXT)],
        )?;
        if let Some(dataset) = dataset {
            self.link.execute(
                "INSERT INTO hapax.dataset (name, declaration) VALUES ($1, $2)
                 ON CONFLICT (name) DO UPDATE SET declaration = excluded.declaration",
                &[(&name, Type::TEXT), (&dataset.text(), Type::TEXT)],
            )?;
        }
        Ok(!known.is_empty())
    }

    fn try_put_guards(&self, guards: Guards) -> Result<(), PgFailure> {
        let Guards { personal, secrets, registered } = guards;
        self.link.execute(
            "UPDATE hapax.guard SET personal = $1, secrets = $2, registered = $3",
            &[(&personal, Type::BOOL), (&secrets, Type::BOOL), (&registered, Type::BOOL)],
        )?;
        Ok(())
    }
}

/// The statement that reads which guards are on, and the declarations of some datasets: one row for
/// each declaration, and one row without a declaration if there is none.
pub(crate) const REGISTRY: &str = "
    SELECT g.personal, g.secrets, g.registered, d.name, d.declaration
      FROM hapax.guard g LEFT JOIN hapax.dataset d ON d.name = ANY ($1)";

/// One row of [`REGISTRY`].
pub(crate) struct RegistryRow {
    pub(crate) guards: Guards,
    pub(crate) dataset: Option<(String, String)>,
}

/// Reads a row of [`REGISTRY`] with tokio-postgres or with sqlx.
macro_rules! registry_row {
    ($row:expr) => {{
        let row = $row;
        let guards = hapax_core::guard::Guards {
            personal: row.try_get(0)?,
            secrets: row.try_get(1)?,
            registered: row.try_get(2)?,
        };
        let name: Option<String> = row.try_get(3)?;
        let text: Option<String> = row.try_get(4)?;
        Ok($crate::dataset::RegistryRow { guards, dataset: name.zip(text) })
    }};
}
pub(crate) use registry_row;

/// The registry that these rows describe.
pub(crate) fn registry_of(rows: Vec<RegistryRow>) -> Result<Registry, StoreError> {
    let mut registry = Registry::default();
    for RegistryRow { guards, dataset } in rows {
        registry.guards = guards;
        if let Some((name, text)) = dataset {
            registry.datasets.insert(name, read(&text)?);
        }
    }
    Ok(registry)
}

fn read(declaration: &str) -> Result<Dataset, StoreError> {
    Dataset::parse(declaration).map_err(|error| StoreError::Corrupt(error.to_string()))
}
