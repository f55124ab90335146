//! Who performs what several want in one process: the election of a [flight](crate)'s leader,
//! without the waiting.

use std::collections::BTreeMap;

use hapax_core::fingerprint::Fingerprint;
use hapax_core::name::Name;
use hapax_core::planted::{Bug, planted};

/// Who leads which flight: the whole election, without the waiting.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Board<T> {
    aloft: BTreeMap<Name, (Fingerprint, T)>,
}

/// Where a caller finds itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place<T> {
    /// Nobody is doing it here.
    Lead,
    /// Somebody is, and this is how to follow.
    Follow(T),
    /// Somebody is doing something else under this key.
    Apart,
}

impl<T> Default for Board<T> {
    fn default() -> Self {
        Self { aloft: BTreeMap::new() }
    }
}

impl<T: Clone> Board<T> {
    /// A caller comes; if it leads, this is how it can be followed.
    pub fn come(
        &mut self,
        name: &Name,
        fingerprint: Fingerprint,
        follow: impl FnOnce() -> T,
    ) -> Place<T> {
        match self.aloft.get(name) {
            Some((known, leader)) if *known == fingerprint => Place::Follow(leader.clone()),
            Some(_) => Place::Apart,
            None => {
                self.aloft.insert(name.clone(), (fingerprint, follow()));
                Place::Lead
            }
        }
    }

    /// The leader is done, with a result or without.
    pub fn leave(&mut self, name: &Name) {
        if !planted(Bug::LeaderStays) {
            self.aloft.remove(name);
        }
    }
}
