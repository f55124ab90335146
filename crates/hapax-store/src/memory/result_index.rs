//! The result index, in memory.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hapax_core::effect::StateName;
use hapax_core::name::{Name, Namespace};
use hapax_core::result_index::{
    CacheAccess, CacheStats, Evict, IndexEntry, IndexedResult, ResultFilter,
};
use hapax_core::time::Now;

use super::MemoryTxn;
use crate::error::StoreError;
use crate::result_index::{ResultIndexTxn, ResultIndexView};

impl ResultIndexView for MemoryTxn<'_> {
    fn indexed_results(
        &mut self,
        namespace: &Namespace,
        filter: &ResultFilter,
    ) -> Result<Vec<IndexedResult>, StoreError> {
        let wanted = |result: &&IndexedResult| {
            let IndexEntry { ontology, text_hash, whole, .. } = &result.entry;
            *whole
                && filter.ontology.as_ref().is_none_or(|wanted| wanted == ontology)
                && filter.text_hash.as_ref().is_none_or(|wanted| wanted == text_hash)
        };
        let results = self.tables.result_index.of(namespace).map(|(_, result)| result);
        let mut found: Vec<IndexedResult> = results.filter(wanted).cloned().collect();
        found.sort_by_key(|result| (Reverse(result.used), result.key));
        found.truncate(filter.limit);
        Ok(found)
    }

    fn cache_stats(&mut self, namespace: &Namespace) -> Result<CacheStats, StoreError> {
        let mut stats = CacheStats::default();
        for (_, result) in self.tables.result_index.of(namespace) {
            stats.bytes += result.bytes;
            match result.entry.whole {
                true => stats.whole += 1,
                false => stats.parts += 1,
            }
        }
        Ok(stats)
    }
}

impl ResultIndexTxn for MemoryTxn<'_> {
    fn put_index_entry(
        &mut self,
        name: &Name,
        entry: &IndexEntry,
        bytes: u64,
        now: Now,
    ) -> Result<(), StoreError> {
        let (created, used) = (now.wall, now.wall);
        let result = IndexedResult { key: name.key, entry: entry.clone(), bytes, created, used };
        self.set(|tables| &mut tables.result_index.results, name.clone(), Some(result));
        Ok(())
    }

    /// This store lists no accesses, so it keeps only the time of the last use.
    fn record_accesses(&mut self, accesses: &[CacheAccess], now: Now) -> Result<(), StoreError> {
        for CacheAccess { name, kind, .. } in accesses {
            if let (true, Some(result)) =
                (kind.is_use(), self.tables.result_index.results.get(name))
            {
                let result = IndexedResult { used: now.wall, ..result.clone() };
                self.set(|tables| &mut tables.result_index.results, name.clone(), Some(result));
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
            let key = (namespace.clone(), ontology.to_owned());
            tables.ontologies.get(&key).map(|ontology| &ontology.version)
        };
        let wanted = |result: &IndexedResult| match which {
            Evict::Outdated { ontology } => {
                result.entry.ontology == *ontology
                    && current(ontology) != Some(&result.entry.version)
            }
            Evict::Of { ontology } => result.entry.ontology == *ontology,
            Evict::One(key) => result.key == *key,
            Evict::All | Evict::Oldest => true,
        };
        let done = |name: &Name| {
            let effect = tables.effects.get(name);
            effect.is_none_or(|effect| effect.state.name() == StateName::Succeeded)
        };
        let mut names: Vec<_> = tables
            .result_index
            .of(namespace)
            .filter(|(name, result)| wanted(result) && done(name))
            .map(|(name, result)| (result.used, name.clone()))
            .collect();
        names.sort();
        names.truncate(limit);
        for (_, name) in &names {
            self.set(|tables| &mut tables.effects, name.clone(), None);
            self.set(|tables| &mut tables.result_index.results, name.clone(), None);
            self.set(|tables| &mut tables.parts, name.clone(), None);
        }
        Ok(names.len())
    }
}

#[derive(Default)]
#[cfg_attr(feature = "proof", derive(Clone))]
pub(super) struct ResultIndex {
    pub(super) results: BTreeMap<Name, IndexedResult>,
}

impl ResultIndex {
    fn of<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> impl Iterator<Item = (&'a Name, &'a IndexedResult)> {
        self.results.iter().filter(move |(name, _)| name.namespace == *namespace)
    }
}
