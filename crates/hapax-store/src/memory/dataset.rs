//! Guards and dataset declarations, in memory.

use std::collections::{BTreeMap, BTreeSet};

use hapax_core::dataset::{Dataset, Registry};
use hapax_core::guard::Guards;

use super::MemoryTxn;
use crate::dataset::{DatasetTxn, DatasetView};
use crate::error::StoreError;

impl DatasetView for MemoryTxn<'_> {
    fn registry(&mut self, datasets: &BTreeSet<&str>) -> Result<Registry, StoreError> {
        let mut registry = self.tables.outbox.registry.clone();
        registry.datasets.retain(|name, _| datasets.contains(name.as_str()));
        Ok(registry)
    }

    fn datasets(&mut self) -> Result<BTreeMap<String, Dataset>, StoreError> {
        Ok(self.tables.outbox.registry.datasets.clone())
    }
}

impl DatasetTxn for MemoryTxn<'_> {
    fn put_guards(&mut self, guards: Guards) -> Result<(), StoreError> {
        let before = std::mem::replace(&mut self.tables.outbox.registry.guards, guards);
        self.undo.push(Box::new(move |tables| tables.outbox.registry.guards = before));
        Ok(())
    }

    fn put_dataset(&mut self, name: &str, dataset: Option<&Dataset>) -> Result<bool, StoreError> {
        let datasets = &mut self.tables.outbox.registry.datasets;
        let before = match dataset {
            Some(dataset) => datasets.insert(name.to_owned(), dataset.clone()),
            None => datasets.remove(name),
        };
        let (name, known) = (name.to_owned(), before.is_some());
        self.undo.push(Box::new(move |tables| {
            let datasets = &mut tables.outbox.registry.datasets;
            match before {
                Some(before) => datasets.insert(name, before),
                None => datasets.remove(&name),
            };
        }));
        Ok(known)
    }
}
