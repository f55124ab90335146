//! Effects, in memory.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hapax_core::attempt::Fence;
use hapax_core::effect::{Effect, Safety, State, StateName};
use hapax_core::name::Name;
use hapax_core::time::{LeaseInstant, Now};

use super::MemoryTxn;
use crate::effect::{EffectRecord, EffectTxn, EffectView, Filter, Unheld};
use crate::error::StoreError;
use crate::journal::JournalTxn;

impl EffectView for MemoryTxn<'_> {
    fn effects(&mut self, names: &[Name]) -> Result<Vec<Option<Effect>>, StoreError> {
        Ok(names.iter().map(|name| self.tables.effects.get(name).cloned()).collect())
    }

    fn list(&mut self, filter: &Filter) -> Result<Vec<EffectRecord>, StoreError> {
        let wanted = |name: &Name, effect: &Effect| {
            filter.namespace.as_ref().is_none_or(|namespace| *namespace == name.namespace)
                && (filter.states.is_empty() || filter.states.contains(&effect.state.name()))
                && filter.unheld.as_ref().is_none_or(|unheld| is_unheld(effect, unheld))
                && filter.before.is_none_or(|before| effect.fence < before)
                && filter.label.as_ref().is_none_or(|text| {
                    effect.label.as_ref().is_some_and(|label| label.contains(text))
                })
        };
        let mut found: Vec<_> = self
            .tables
            .effects
            .iter()
            .filter(|(name, effect)| wanted(name, effect))
            .map(|(name, effect)| EffectRecord { name: name.clone(), effect: effect.clone() })
            .collect();
        found.sort_by_key(|found| Reverse(found.effect.fence));
        found.truncate(filter.limit);
        Ok(found)
    }

    fn census(&mut self) -> Result<Vec<(StateName, u64)>, StoreError> {
        let mut counts = BTreeMap::new();
        for effect in self.tables.effects.values() {
            *counts.entry(effect.state.name()).or_default() += 1;
        }
        Ok(counts.into_iter().collect())
    }
}

impl EffectTxn for MemoryTxn<'_> {
    fn put_first(&mut self, name: &Name, effect: &Effect) -> Result<Option<Fence>, StoreError> {
        if self.tables.effects.contains_key(name) {
            return Ok(None);
        }
        let fence = Fence(self.next_entry()?);
        self.put_effect(name, &Effect { fence, ..effect.clone() })?;
        Ok(Some(fence))
    }

    fn put_effect(&mut self, name: &Name, effect: &Effect) -> Result<(), StoreError> {
        self.set(|tables| &mut tables.effects, name.clone(), Some(effect.clone()));
        Ok(())
    }

    fn sweep(&mut self, now: Now, limit: usize) -> Result<usize, StoreError> {
        let expired = self.tables.effects.iter().filter(|(_, effect)| effect.expired(now));
        let names: Vec<_> = expired.map(|(name, _)| name.clone()).take(limit).collect();
        for name in &names {
            self.set(|tables| &mut tables.effects, name.clone(), None);
            self.set(|tables| &mut tables.result_index.results, name.clone(), None);
            self.set(|tables| &mut tables.parts, name.clone(), None);
        }
        self.sweep_leases();
        Ok(names.len())
    }

    fn overdue(&mut self, at: LeaseInstant, limit: usize) -> Result<Vec<Name>, StoreError> {
        let leases = &self.tables.leases;
        let late = |effect: &Effect| match effect.state {
            State::Running { lease, deadline } if effect.safety != Safety::Transactional => {
                leases.get(&lease).is_none_or(|lease| lease.dead || lease.until.reached(at))
                    || deadline.is_some_and(|deadline| deadline.reached(at))
            }
            _ => false,
        };
        let overdue = self.tables.effects.iter().filter(|(_, effect)| late(effect));
        Ok(overdue.map(|(name, _)| name.clone()).take(limit).collect())
    }
}

fn is_unheld(effect: &Effect, unheld: &Unheld) -> bool {
    let State::Running { lease, deadline } = effect.state else { return false };
    !unheld.in_force.contains(&lease)
        || deadline.is_some_and(|deadline| deadline.reached(unheld.at))
}
