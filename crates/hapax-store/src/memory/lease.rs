//! Leases, in memory.

use hapax_core::effect::{Safety, State};
use hapax_core::lease::{Lease, LeaseId, Pulse};

use super::MemoryTxn;
use crate::error::StoreError;
use crate::lease::{LeaseTxn, LeaseView};

impl LeaseView for MemoryTxn<'_> {
    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, StoreError> {
        Ok(self.tables.leases.get(&id).cloned())
    }

    fn leases(&mut self) -> Result<Vec<Lease>, StoreError> {
        Ok(self.tables.leases.values().filter(|lease| !lease.dead).cloned().collect())
    }

    fn is_gone(&mut self, _: &Lease) -> bool {
        false
    }

    fn pulse(&mut self) -> Result<Pulse, StoreError> {
        Ok(self.tables.pulse)
    }

    fn notice(&mut self) -> Result<u64, StoreError> {
        Ok(self.tables.notice)
    }
}

impl LeaseTxn for MemoryTxn<'_> {
    fn put_lease(&mut self, lease: &Lease) -> Result<(), StoreError> {
        self.set(|tables| &mut tables.leases, lease.id, Some(lease.clone()));
        Ok(())
    }

    fn drop_lease(&mut self, id: LeaseId) -> Result<(), StoreError> {
        if let Some(lease) = self.tables.leases.get(&id).cloned() {
            self.put_lease(&Lease { dead: true, ..lease })?;
        }
        self.sweep_leases();
        Ok(())
    }

    fn put_pulse(&mut self, pulse: &Pulse) -> Result<(), StoreError> {
        let before = std::mem::replace(&mut self.tables.pulse, *pulse);
        self.undo.push(Box::new(move |tables| tables.pulse = before));
        Ok(())
    }

    fn raise_notice(&mut self) -> Result<u64, StoreError> {
        self.tables.notice += 1;
        self.undo.push(Box::new(|tables| tables.notice -= 1));
        Ok(self.tables.notice)
    }
}

impl MemoryTxn<'_> {
    /// Removes dead leases that no running, non-transactional effect depends on.
    pub(super) fn sweep_leases(&mut self) {
        let effects = &self.tables.effects;
        let watched = |id: LeaseId| {
            effects.values().any(|effect| {
                effect.safety != Safety::Transactional
                    && matches!(effect.state, State::Running { lease, .. } if lease == id)
            })
        };
        let dead = self.tables.leases.values().filter(|lease| lease.dead && !watched(lease.id));
        for id in dead.map(|lease| lease.id).collect::<Vec<_>>() {
            self.set(|tables| &mut tables.leases, id, None);
        }
    }
}
