//! Cached results and their ontologies, in memory.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hapax_core::effect::StateName;
use hapax_core::name::{Name, Namespace};
use hapax_core::result_index::{
    CacheAccess, CacheStats, Evict, IndexEntry, IndexedResult, Ontology, ResultFilter,
};
use hapax_core::time::Now;

use super::MemoryTxn;
use crate::error::StoreError;
use crate::result_index::{ShelfTxn, ShelfView};

#[derive(Default)]
#[cfg_attr(feature = "proof", derive(Clone))]
pub(super) struct Shelves {
    pub(super) results: BTreeMap<Name, IndexedResult>,
    ontologies: BTreeMap<(Namespace, String), Ontology>,
}

impl Shelves {
    fn of<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> impl Iterator<Item = (&'a Name, &'a IndexedResult)> {
        self.results.iter().filter(move |(name, _)| name.namespace == *namespace)
    }
}

impl ShelfView for MemoryTxn<'_> {
    fn ontology(
        &mut self,
        namespace: &Namespace,
        id: &str,
    ) -> Result<Option<Ontology>, StoreError> {
        let place = (namespace.clone(), id.to_owned());
        Ok(self.tables.shelf.ontologies.get(&place).cloned())
    }

    fn ontology_version(
        &mut self,
        namespace: &Namespace,
        id: &str,
    ) -> Result<Option<String>, StoreError> {
        Ok(self.ontology(namespace, id)?.map(|ontology| ontology.version))
    }

    fn ontologies(&mut self, namespace: &Namespace) -> Result<Vec<Ontology>, StoreError> {
        let ours = self.tables.shelf.ontologies.iter().filter(|((of, _), _)| of == namespace);
        let listed = |ontology: &Ontology| Ontology { content: String::new(), ..ontology.clone() };
        Ok(ours.map(|(_, ontology)| listed(ontology)).collect())
    }

    fn shelved(
        &mut self,
        namespace: &Namespace,
        sought: &ResultFilter,
    ) -> Result<Vec<IndexedResult>, StoreError> {
        let wanted = |shelf: &&IndexedResult| {
            let IndexEntry { ontology, text_hash, whole, .. } = &shelf.shelved;
            *whole
                && sought.ontology.as_ref().is_none_or(|wanted| wanted == ontology)
                && sought.text_hash.as_ref().is_none_or(|wanted| wanted == text_hash)
        };
        let results = self.tables.shelf.of(namespace).map(|(_, shelf)| shelf);
        let mut found: Vec<IndexedResult> = results.filter(wanted).cloned().collect();
        found.sort_by_key(|shelf| (Reverse(shelf.used), shelf.key));
        found.truncate(sought.limit);
        Ok(found)
    }

    fn stock(&mut self, namespace: &Namespace) -> Result<CacheStats, StoreError> {
        let mut stock = CacheStats::default();
        for (_, shelf) in self.tables.shelf.of(namespace) {
            stock.bytes += shelf.bytes;
            match shelf.shelved.whole {
                true => stock.whole += 1,
                false => stock.parts += 1,
            }
        }
        Ok(stock)
    }
}

impl ShelfTxn for MemoryTxn<'_> {
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
        let place = (namespace.clone(), id.to_owned());
        self.set(|tables| &mut tables.shelf.ontologies, place, ontology.cloned());
        Ok(())
    }

    fn shelve(
        &mut self,
        name: &Name,
        shelved: &IndexEntry,
        bytes: u64,
        now: Now,
    ) -> Result<(), StoreError> {
        let (created, used) = (now.wall, now.wall);
        let shelf = IndexedResult { key: name.key, shelved: shelved.clone(), bytes, created, used };
        self.set(|tables| &mut tables.shelf.results, name.clone(), Some(shelf));
        Ok(())
    }

    /// This store lists no accesses, so it keeps only the time of the last use.
    fn attend(&mut self, heard: &[CacheAccess], now: Now) -> Result<(), StoreError> {
        for CacheAccess { name, what, .. } in heard {
            if let (true, Some(shelf)) = (what.is_use(), self.tables.shelf.results.get(name)) {
                let shelf = IndexedResult { used: now.wall, ..shelf.clone() };
                self.set(|tables| &mut tables.shelf.results, name.clone(), Some(shelf));
            }
        }
        Ok(())
    }

    fn evict(
        &mut self,
        namespace: &Namespace,
        which: &Evict,
        limit: usize,
    ) -> Result<usize, StoreError> {
        let tables = &*self.tables;
        let current = |ontology: &str| {
            let place = (namespace.clone(), ontology.to_owned());
            tables.shelf.ontologies.get(&place).map(|ontology| &ontology.version)
        };
        let wanted = |shelf: &IndexedResult| match which {
            Evict::Outdated { ontology } => {
                shelf.shelved.ontology == *ontology
                    && current(ontology) != Some(&shelf.shelved.version)
            }
            Evict::Of { ontology } => shelf.shelved.ontology == *ontology,
            Evict::One(key) => shelf.key == *key,
            Evict::All | Evict::Oldest => true,
        };
        let done = |name: &Name| {
            let effect = tables.effects.get(name);
            effect.is_none_or(|effect| effect.state.name() == StateName::Succeeded)
        };
        let mut names: Vec<_> = tables
            .shelf
            .of(namespace)
            .filter(|(name, shelf)| wanted(shelf) && done(name))
            .map(|(name, shelf)| (shelf.used, name.clone()))
            .collect();
        names.sort();
        names.truncate(limit);
        for (_, name) in &names {
            self.set(|tables| &mut tables.effects, name.clone(), None);
            self.set(|tables| &mut tables.shelf.results, name.clone(), None);
            self.set(|tables| &mut tables.parts, name.clone(), None);
        }
        Ok(names.len())
    }
}
