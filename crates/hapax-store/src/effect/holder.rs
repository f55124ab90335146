//! Holders as readers see them: which process or client holds a running effect, and whether it lives.
//!
//! A reader judges and writes nothing. Expiry acts on the same facts later, by a pulse that it has
//! beaten; [`liveness`] needs no pulse, because it never takes silence for death.

use std::cmp::Reverse;
use std::collections::HashMap;

use hapax_core::effect::{Effect, State, StateName, liveness};
use hapax_core::lease::{Lease, LeaseId, Liveness};
use hapax_core::name::Name;
use hapax_core::time::{LeaseInstant, Now, Timestamp};

use super::{EffectRecord, Filter, Unheld};
use crate::error::StoreError;
use crate::txn::View;

/// An effect, and the status of its holder while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectStatus {
    /// Its name.
    pub name: Name,
    /// The record.
    pub effect: Effect,
    /// Its holder; none if it does not run.
    pub holder: Option<HolderStatus>,
}

impl EffectStatus {
    /// Whether its holder lives; none if it does not run.
    pub fn liveness(&self) -> Option<Liveness> {
        self.holder.as_ref().map(|holder| holder.liveness)
    }
}

/// The status of the holder of a running effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HolderStatus {
    /// Whether it lives.
    pub liveness: Liveness,
    /// Its name, for people; none if it has none, or if its lease was removed.
    pub name: Option<String>,
    /// For a silent or dead holder: when it last renewed its lease, or its deadline. None if that was before
    /// the machine's last boot, or if its lease was removed.
    pub since: Option<Timestamp>,
}

/// The effects that a filter selects and that need attention: those in such a state, and running ones
/// whose holder is silent or dead. Newest first; the filter's own states do not count.
pub fn stuck(view: &mut dyn View, filter: &Filter) -> Result<Vec<EffectStatus>, StoreError> {
    let states = StateName::NEEDING_ATTENTION.to_vec();
    let mut found = view.list(&Filter { states, unheld: None, ..filter.clone() })?;
    found.extend(list_unheld(view, filter)?);
    found.sort_by_key(|found| Reverse(found.effect.fence));
    found.truncate(filter.limit);
    statuses(view, found)
}

/// The running effects that a filter selects and whose holder is silent or dead. Newest first.
pub fn unheld(view: &mut dyn View, filter: &Filter) -> Result<Vec<EffectStatus>, StoreError> {
    let found = list_unheld(view, filter)?;
    statuses(view, found)
}

fn list_unheld(view: &mut dyn View, filter: &Filter) -> Result<Vec<EffectRecord>, StoreError> {
    let now = view.now();
    let mut in_force = Vec::new();
    for lease in view.leases()? {
        let gone = view.is_gone(&lease);
        if lease.liveness(now, gone) == Liveness::Alive {
            in_force.push(lease.id);
        }
    }
    let unheld = Some(Unheld { in_force, at: now.lease });
    view.list(&Filter { states: vec![StateName::Running], unheld, ..filter.clone() })
}

/// These effects, each with the status of its holder.
pub fn statuses(
    view: &mut dyn View,
    found: Vec<EffectRecord>,
) -> Result<Vec<EffectStatus>, StoreError> {
    let now = view.now();
    let running = found.iter().filter(|found| found.effect.state.name() == StateName::Running);
    let mut leases = match running.count() {
        0 | 1 => Leases::default(),
        _ => Leases::all(view)?,
    };
    let mut statuses = Vec::with_capacity(found.len());
    for EffectRecord { name, effect } in found {
        let holder = match effect.state {
            State::Running { lease, deadline } => {
                let (lease, gone) = leases.find(view, lease)?;
                status(now, &effect.state, deadline, lease, gone)
            }
            _ => None,
        };
        statuses.push(EffectStatus { name, effect, holder });
    }
    Ok(statuses)
}

fn status(
    now: Now,
    state: &State,
    deadline: Option<LeaseInstant>,
    lease: Option<&Lease>,
    gone: bool,
) -> Option<HolderStatus> {
    let liveness = liveness(now, state, lease, gone)?;
    let since = match lease {
        _ if liveness == Liveness::Alive => None,
        // Its lease is in force, so its deadline is over.
        Some(lease) if lease.liveness(now, gone) == Liveness::Alive => deadline,
        Some(lease) => Some(lease.renewed()),
        None => None,
    };
    let name = lease.map(|lease| lease.holder.clone());
    Some(HolderStatus { liveness, name, since: since.and_then(|since| now.wall_at(since)) })
}

/// Leases, each read and tested once.
#[derive(Default)]
struct Leases {
    listed: HashMap<LeaseId, Lease>,
    /// With whether the store has evidence that the holder died.
    tested: HashMap<LeaseId, (Option<Lease>, bool)>,
}

impl Leases {
    /// With those that are not dead, for which one statement is enough.
    fn all(view: &mut dyn View) -> Result<Self, StoreError> {
        let listed = view.leases()?.into_iter().map(|lease| (lease.id, lease)).collect();
        Ok(Self { listed, tested: HashMap::new() })
    }

    fn find(
        &mut self,
        view: &mut dyn View,
        id: LeaseId,
    ) -> Result<(Option<&Lease>, bool), StoreError> {
        if !self.tested.contains_key(&id) {
            let lease = match self.listed.remove(&id) {
                None => view.lease(id)?,
                listed => listed,
            };
            let gone = lease.as_ref().is_some_and(|lease| view.is_gone(lease));
            self.tested.insert(id, (lease, gone));
        }
        Ok(self.tested.get(&id).map_or((None, false), |(lease, gone)| (lease.as_ref(), *gone)))
    }
}
