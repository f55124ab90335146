//! The protocol, walked through exhaustively.
//!
//! Workers claim, send, report, renew, look and crash, in every order. The ledger among them is
//! no model: each step is carried out by the in-memory store, which is the same `ledger::apply`
//! and the same decisions of `hapax-core` that every store uses. Time does not pass by itself;
//! running out of it is a step like any other.

mod flight;
mod world;

pub use flight::Flight;
pub use world::{Act, World};

use std::time::Instant;

use hapax_core::effect::{Safety, Settling, State, StateName};
use stateright::{Checker as _, Model, Property};

use crate::report::Report;

/// The target of an effect, which decides what can be promised about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A change in the ledger's own database: it happens when the settle does.
    Transactional,
    /// Remembers keys and does nothing twice.
    Keyed,
    /// Refuses fences below the highest it was shown, by a reconciler as well.
    Fenced,
    /// Refuses fences below the highest it has executed; a reconciler leaves no trace.
    FencedUnseen,
    /// Accepts everything; late arrivals come within the settling time.
    Settling,
    /// Accepts everything, and offers no way to look.
    Opaque,
}

impl Target {
    pub(crate) fn safety(self) -> Safety {
        match self {
            Self::Transactional => Safety::Transactional,
            Self::Keyed | Self::Fenced | Self::FencedUnseen => {
                Safety::Reconcilable(Settling::TargetRefusesLate)
            }
            Self::Settling => Safety::Reconcilable(Settling::AfterMs(1)),
            Self::Opaque => Safety::Opaque,
        }
    }
}

/// A protocol to walk through.
#[derive(Debug, Clone)]
pub struct Protocol {
    /// The target of the effects.
    pub target: Target,
    /// How many processes there are.
    pub workers: usize,
    /// How many effects.
    pub keys: usize,
    /// Whether the effects exclude each other.
    pub locked: bool,
    /// How often a process may die.
    pub crashes: u8,
    /// How often the time of a lease may run out while its holder lives.
    pub pauses: u8,
    /// How often a reply may be lost, a caller give up, or a holder report an ambiguous outcome.
    pub doubts: u8,
    /// Whether attempts may follow from a client's key, so that one may be granted twice.
    pub derived: bool,
    /// How often an older copy of the ledger may be restored.
    pub restores: u8,
}

impl Protocol {
    /// A protocol with so many workers and keys, and no faults.
    pub fn calm(target: Target, workers: usize, keys: usize) -> Self {
        let (locked, derived) = (false, false);
        Self {
            target,
            workers,
            keys,
            locked,
            crashes: 0,
            pauses: 0,
            doubts: 0,
            derived,
            restores: 0,
        }
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Act;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn actions(&self, world: &World, acts: &mut Vec<Act>) {
        world.acts(self, acts);
    }

    fn next_state(&self, world: &World, act: Act) -> Option<World> {
        world.after(self, act)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("executed at most once", |_, world: &World| {
                (0..world.keys()).all(|key| world.executed(key).len() <= 1 + world.restores())
            }),
            Property::always("what callers were told is recorded", |_, world: &World| {
                // An outcome that a caller received before a restore may be missing from the older copy.
                world.restores() > 0
                    || (0..world.keys()).all(|key| {
                        world
                            .received(key)
                            .all(|received| world.outcome(key).is_some_and(|by| by == received))
                    })
            }),
            Property::always("no report of an overtaken grant is recorded", |_, world: &World| {
                !world.was_stale()
            }),
            Property::always("what is recorded was executed", |_, world: &World| {
                (0..world.keys()).all(|key| {
                    world.outcome(key).is_none_or(|by| world.executed(key).contains(&by))
                })
            }),
            Property::always("each execution is recorded, or shown as needing attention", surfaced),
            Property::always(
                "one effect at a time has the lock",
                |protocol: &Self, world: &World| !protocol.locked || world.running() <= 1,
            ),
            Property::always("the dead stay dead", |_, world: &World| !world.was_revived()),
            Property::sometimes("everything is done", |_, world: &World| world.is_done()),
        ];
        if self.crashes + self.pauses + self.doubts == 0 {
            properties
                .push(Property::eventually("it all ends well", |_, world: &World| world.is_done()));
        } else if self.pauses > 0
            && matches!(self.target, Target::Transactional | Target::Keyed | Target::Fenced)
        {
            properties.push(Property::sometimes("a worker is overtaken", |_, world: &World| {
                world.was_overtaken()
            }));
        }
        properties
    }
}

fn surfaced(protocol: &Protocol, world: &World) -> bool {
    world.restores() > 0
        || (0..world.keys()).all(|key| {
            let Some(effect) = world.effect(key) else { return world.executed(key).is_empty() };
            match &effect.state {
                // A target that knows keys takes a late first arrival. Its sender gets the error
                // that it was overtaken, which is journalled; the target answers the next caller with it.
                State::Failed(_) if protocol.target == Target::Keyed => true,
                state => state.name() != StateName::Failed || world.executed(key).is_empty(),
            }
        })
}

/// The protocols to walk through, by name.
pub fn protocols(full: bool) -> Vec<(String, Protocol)> {
    let targets =
        [Target::Transactional, Target::Keyed, Target::Fenced, Target::Settling, Target::Opaque];
    let mut protocols = Vec::new();
    for target in targets {
        let mut push = |protocol: Protocol| {
            let Protocol { workers, keys, crashes, pauses, doubts, restores, .. } = protocol;
            let lock = if protocol.locked { ", one lock" } else { "" };
            let derived = if protocol.derived { ", attempts of clients" } else { "" };
            let restored = if restores > 0 { ", restored" } else { "" };
            let name = format!(
                "{target:?}: {workers} workers, {keys} keys, {crashes} crashes, {pauses} pauses, \
                 {doubts} doubts{lock}{derived}{restored}"
            );
            protocols.push((name, protocol));
        };
        // A client's attempt is granted again after another one came in between.
        let pauses = if full { 2 } else { 1 };
        push(Protocol { derived: true, pauses, doubts: 1, ..Protocol::calm(target, 2, 1) });
        push(Protocol { restores: 1, doubts: 1, ..Protocol::calm(target, 2, 1) });
        let mut add = |workers, keys, crashes, pauses, doubts, locked| {
            let calm = Protocol::calm(target, workers, keys);
            push(Protocol { locked, crashes, pauses, doubts, ..calm });
        };
        add(3, 2, 0, 0, 0, true);
        add(2, 1, 1, 1, 1, false);
        add(2, 2, 0, 1, 0, true);
        if full {
            add(3, 2, 2, 0, 0, true);
            add(2, 1, 2, 2, 1, false);
            add(2, 2, 1, 1, 0, false);
            add(3, 1, 1, 1, 1, false);
        }
    }
    protocols
}

/// Walks through a protocol. Counts its states, and reports each property that fails.
pub fn check(name: &str, protocol: Protocol, report: &mut Report) {
    let begun = Instant::now();
    let checker = protocol.checker().threads(2).spawn_bfs().join();
    eprintln!("  {name}: {} states, {:.0?}", checker.unique_state_count(), begun.elapsed());
    walked(name, &checker, report);
}

/// Walks through the election of leaders in one process.
pub fn check_flight(flight: Flight, report: &mut Report) {
    let name = format!("flight: {} callers, {} deaths", flight.callers, flight.deaths);
    let checker = flight.checker().threads(2).spawn_bfs().join();
    walked(&name, &checker, report);
}

fn walked<M>(name: &str, checker: &impl stateright::Checker<M>, report: &mut Report)
where
    M: Model,
    M::State: Clone + std::fmt::Debug + std::hash::Hash + PartialEq,
    M::Action: Clone + std::fmt::Debug + PartialEq,
{
    report.count(format!("{name}: states"), checker.unique_state_count() as u64);
    for property in checker.model().properties() {
        use stateright::Expectation::{Always, Eventually, Sometimes};
        let discovery = checker.discovery(property.name);
        match (&property.expectation, discovery) {
            (Always | Eventually, Some(path)) => {
                let steps: Vec<_> =
                    path.into_actions().iter().map(|act| format!("{act:?}")).collect();
                report.violation(format!(
                    "{name}: not so: {}: {}",
                    property.name,
                    steps.join(", ")
                ));
            }
            (Sometimes, None) => {
                report.violation(format!("{name}: vacuous: never: {}", property.name));
            }
            _ => {}
        }
    }
}
