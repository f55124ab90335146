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
        sought: &PartFilter,
    ) -> Result<Vec<PartRecord>, StoreError> {
        let ours = self.tables.parts.iter().filter(|(name, (_, part))| {
            name.namespace == *namespace
                && part.kind == sought.kind
                && sought.whole.is_none_or(|whole| part.whole == whole)
        });
        let mut found: Vec<PartRecord> = ours
            .filter_map(|(name, (place, part))| {
                let effect = self.tables.effects.get(name)?.clone();
                Some(PartRecord { place: *place, name: name.clone(), effect, part: part.clone() })
            })
            .filter(|found| {
                sought.states.is_empty() || sought.states.contains(&found.effect.state.name())
            })
            .filter(|found| match sought.beyond {
                Some(place) if sought.newest_first => found.place < place,
                Some(place) => found.place > place,
                None => true,
            })
            .collect();
        found.sort_by_key(|found| found.place);
        if sought.newest_first {
            found.reverse();
        }
        found.truncate(sought.limit);
        Ok(found)
    }
}

impl PartTxn for MemoryTxn<'_> {
    fn put_part(&mut self, name: &Name, part: &Part) -> Result<(), StoreError> {
        let known = self.tables.parts.get(name).map(|(place, _)| *place);
        // A new part comes after all that exist. A place is given again only after the newest part
        // was removed.
        let newest = || self.tables.parts.values().map(|(place, _)| *place).max().unwrap_or(0);
        let place = known.unwrap_or_else(|| newest() + 1);
        self.set(|tables| &mut tables.parts, name.clone(), Some((place, part.clone())));
        Ok(())
    }
}
