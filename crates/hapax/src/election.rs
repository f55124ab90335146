//! The election of a [flight](crate)'s leader, without the waiting: which of several callers in one
//! process performs the effect.

use std::collections::BTreeMap;

use hapax_core::fingerprint::Fingerprint;
use hapax_core::name::Name;
use hapax_core::planted::{Bug, planted};

/// Which caller leads which flight.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Board<T> {
    aloft: BTreeMap<Name, (Fingerprint, T)>,
}

/// The role of a caller.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Role<T> {
    /// No other caller in this process is doing it.
    Lead,
    /// Another caller is doing it, and this is how to follow.
    Follow(T),
    /// Another caller is doing something else under this key.
    Apart,
}

impl<T> Default for Board<T> {
    fn default() -> Self {
        Self { aloft: BTreeMap::new() }
    }
}

impl<T: Clone> Board<T> {
    /// Adds a caller. If it leads, `follow` makes the value that later callers follow it by.
    pub fn come(
        &mut self,
        name: &Name,
        fingerprint: Fingerprint,
        follow: impl FnOnce() -> T,
    ) -> Role<T> {
        match self.aloft.get(name) {
            Some((known, leader)) if *known == fingerprint => Role::Follow(leader.clone()),
            Some(_) => Role::Apart,
            None => {
                self.aloft.insert(name.clone(), (fingerprint, follow()));
                Role::Lead
            }
        }
    }

    /// The leader has ended, with a result or without.
    pub fn leave(&mut self, name: &Name) {
        if !planted(Bug::LeaderStays) {
            self.aloft.remove(name);
        }
    }
}
