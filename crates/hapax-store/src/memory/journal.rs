//! The journal, in memory.

use hapax_core::journal::Entry;
use hapax_core::merkle::Hash;
use hapax_core::name::Name;

use super::MemoryTxn;
use crate::error::StoreError;
use crate::journal::{Head, JournalTxn, JournalView, SealedTile};

impl JournalView for MemoryTxn<'_> {
    fn entries(
        &mut self,
        of: Option<&Name>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let wanted = |entry: &&Entry| {
            of.is_none_or(|name| entry.key == name.key && entry.namespace == name.namespace)
        };
        let from = self.tables.journal.get(after as usize..).unwrap_or_default();
        Ok(from.iter().filter(wanted).take(limit).cloned().collect())
    }

    fn leaf_entry(&mut self, leaf: u64) -> Result<Option<Entry>, StoreError> {
        Ok(self.tables.journal.get(leaf as usize).cloned())
    }

    fn leaf_of(&mut self, entry: u64) -> Result<Option<u64>, StoreError> {
        let size = self.newest_head()?.map_or(0, |head| head.size);
        Ok(entry.checked_sub(1).filter(|leaf| *leaf < size))
    }

    fn last_entry(&mut self) -> Result<u64, StoreError> {
        Ok(self.tables.journal.len() as u64)
    }

    fn unsealed(&mut self, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let sealed = self.newest_head()?.map_or(0, |head| head.size);
        self.entries(None, sealed, limit)
    }

    fn pending(&mut self) -> Result<u64, StoreError> {
        let sealed = self.newest_head()?.map_or(0, |head| head.size);
        Ok(self.last_entry()?.saturating_sub(sealed))
    }

    fn tile(&mut self, level: u32, index: u64) -> Result<Vec<Hash>, StoreError> {
        Ok(self.tables.tiles.get(&(level, index)).cloned().unwrap_or_default())
    }

    fn heads(&mut self, after: u64, limit: usize) -> Result<Vec<Head>, StoreError> {
        let heads = self.tables.heads.iter().filter(|head| head.size > after);
        Ok(heads.take(limit).cloned().collect())
    }

    fn newest_head(&mut self) -> Result<Option<Head>, StoreError> {
        Ok(self.tables.heads.last().cloned())
    }
}

impl JournalTxn for MemoryTxn<'_> {
    fn next_entry(&mut self) -> Result<u64, StoreError> {
        Ok(self.last_entry()? + 1)
    }

    fn append(&mut self, entry: &Entry) -> Result<(), StoreError> {
        self.tables.journal.push(entry.clone());
        self.undo.push(Box::new(|tables| {
            tables.journal.pop();
        }));
        Ok(())
    }

    fn put_head(&mut self, _: &[u64], tiles: &[SealedTile], head: &Head) -> Result<(), StoreError> {
        for tile in tiles {
            let key = (tile.level, tile.index);
            self.set(|tables| &mut tables.tiles, key, Some(tile.hashes.clone()));
        }
        self.tables.heads.push(head.clone());
        self.undo.push(Box::new(|tables| {
            tables.heads.pop();
        }));
        Ok(())
    }
}
