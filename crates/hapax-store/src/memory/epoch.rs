//! Epochs, in memory.

use hapax_core::epoch::{Bound, Domain};
use hapax_core::name::{Name, Namespace};

use super::MemoryTxn;
use crate::epoch::{EpochTxn, EpochView};
use crate::error::StoreError;

impl EpochView for MemoryTxn<'_> {
    fn epoch(&mut self, namespace: &Namespace, domain: &Domain) -> Result<u64, StoreError> {
        let key = (namespace.clone(), domain.clone());
        Ok(self.tables.epochs.get(&key).copied().unwrap_or_default())
    }

    fn epochs(&mut self, namespace: &Namespace) -> Result<Vec<Bound>, StoreError> {
        let ours = self.tables.epochs.iter().filter(|((of, _), _)| of == namespace);
        Ok(ours
            .map(|((_, domain), epoch)| Bound { domain: domain.clone(), epoch: *epoch })
            .collect())
    }
}

impl EpochTxn for MemoryTxn<'_> {
    fn put_epoch(&mut self, namespace: &Namespace, epoch: &Bound) -> Result<(), StoreError> {
        let key = (namespace.clone(), epoch.domain.clone());
        self.set(|tables| &mut tables.epochs, key, Some(epoch.epoch));
        Ok(())
    }

    fn bound(&mut self, namespace: &Namespace, epoch: &Bound) -> Result<Vec<Name>, StoreError> {
        let found = self.tables.effects.iter().filter(|(name, effect)| {
            name.namespace == *namespace
                && effect.bound.as_ref() == Some(epoch)
                && effect.state.name().is_open()
        });
        Ok(found.map(|(name, _)| name.clone()).collect())
    }
}
