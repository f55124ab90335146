//! Parts, in memory.

use hapax_core::name::{Name, Namespace};
use hapax_core::part::{Part, PartFilter, PartRecord};

use super::MemoryTxn;
use crate::error::StoreError;
use crate::part::{PartTxn, PartView};

impl PartView for MemoryTxn<'_> {
    fn part(&mut self, name: &Name) -> Result<Option<Part>, StoreError> {
        Ok(self.tables.parts.get(name).map(|(_, part)| part.clone()))
    }

    fn parts(
        &mut self,
        namespace: &Namespace,
        filter: &PartFilter,
    ) -> Result<Vec<PartRecord>, StoreError> {
        let ours = self.tables.parts.iter().filter(|(name, (_, part))| {
            name.namespace == *namespace
                && part.kind == filter.kind
                && filter.whole.is_none_or(|whole| part.whole == whole)
        });
        let mut found: Vec<PartRecord> = ours
            .filter_map(|(name, (position, part))| {
                let effect = self.tables.effects.get(name)?.clone();
                Some(PartRecord {
                    position: *position,
                    name: name.clone(),
                    effect,
                    part: part.clone(),
                })
            })
            .filter(|found| {
                filter.states.is_empty() || filter.states.contains(&found.effect.state.name())
            })
            .filter(|found| match filter.beyond {
                Some(position) if filter.newest_first => found.position < position,
                Some(position) => found.position > position,
                None => true,
            })
            .collect();
        found.sort_by_key(|found| found.position);
        if filter.newest_first {
            found.reverse();
        }
        found.truncate(filter.limit);
        Ok(found)
    }
}

impl PartTxn for MemoryTxn<'_> {
    fn put_part(&mut self, name: &Name, part: &Part) -> Result<(), StoreError> {
        let known = self.tables.parts.get(name).map(|(position, _)| *position);
        // A new part comes after all that exist. A position is given again only after the newest part
        // was removed.
        let newest =
            || self.tables.parts.values().map(|(position, _)| *position).max().unwrap_or(0);
        let position = known.unwrap_or_else(|| newest() + 1);
        self.set(|tables| &mut tables.parts, name.clone(), Some((position, part.clone())));
        Ok(())
    }
}
