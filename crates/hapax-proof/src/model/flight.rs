//! The election of a leader among identical requests in one process, walked through.

use hapax::election::{Board, Role};
use hapax_core::fingerprint::Fingerprint;
use hapax_core::key::Key;
use hapax_core::name::{Name, Namespace};
use stateright::{Model, Property};

/// Callers that come, lead, follow, land and die, in every order.
#[derive(Debug, Clone)]
pub struct Flight {
    /// How many callers there are; the last one brings another payload.
    pub callers: usize,
    /// How many leaders may end without a result.
    pub deaths: u8,
}

/// The state of each caller, and the board that elects the leader.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hall {
    board: Board<usize>,
    callers: Vec<Caller>,
    deaths: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Caller {
    Coming,
    Leading,
    Following(usize),
    /// Follows a leader that was gone already.
    Stranded,
    Apart,
    DeliveryResult,
    Dead,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Move {
    /// A caller comes, or comes again.
    Come(usize),
    /// A leader ends with a result, or a caller outside the flight is done.
    Land(usize),
    /// A leader ends without a result.
    Die(usize),
    /// A follower hears of its leader.
    Hear(usize),
}

fn name() -> Name {
    Name { namespace: Namespace::default(), key: Key::from_bytes([1; 32]) }
}

impl Flight {
    fn fingerprint(&self, caller: usize) -> Fingerprint {
        Fingerprint::of(if caller + 1 == self.callers { b"other" } else { b"same" })
    }
}

impl Model for Flight {
    type State = Hall;
    type Action = Move;

    fn init_states(&self) -> Vec<Hall> {
        let callers = vec![Caller::Coming; self.callers];
        vec![Hall { board: Board::default(), callers, deaths: 0 }]
    }

    fn actions(&self, hall: &Hall, moves: &mut Vec<Move>) {
        for (c, caller) in hall.callers.iter().enumerate() {
            match caller {
                Caller::Coming => moves.push(Move::Come(c)),
                Caller::Leading => {
                    moves.push(Move::Land(c));
                    if hall.deaths < self.deaths {
                        moves.push(Move::Die(c));
                    }
                }
                Caller::Apart => moves.push(Move::Land(c)),
                Caller::Following(leader) if hall.callers[*leader] != Caller::Leading => {
                    moves.push(Move::Hear(c));
                }
                _ => {}
            }
        }
    }

    fn next_state(&self, hall: &Hall, step: Move) -> Option<Hall> {
        let mut hall = hall.clone();
        match step {
            Move::Come(c) => {
                hall.callers[c] = match hall.board.come(&name(), self.fingerprint(c), || c) {
                    Role::Lead => Caller::Leading,
                    Role::Follow(leader) if hall.callers[leader] == Caller::Leading => {
                        Caller::Following(leader)
                    }
                    Role::Follow(_) => Caller::Stranded,
                    Role::Apart => Caller::Apart,
                };
            }
            Move::Land(c) => {
                if hall.callers[c] == Caller::Leading {
                    hall.board.leave(&name());
                }
                hall.callers[c] = Caller::DeliveryResult;
            }
            Move::Die(c) => {
                hall.deaths += 1;
                hall.board.leave(&name());
                hall.callers[c] = Caller::Dead;
            }
            Move::Hear(c) => {
                let Caller::Following(leader) = hall.callers[c] else { return None };
                hall.callers[c] = match hall.callers[leader] {
                    Caller::Dead => Caller::Coming,
                    _ => Caller::DeliveryResult,
                };
            }
        }
        Some(hall)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one leads at a time", |_, hall: &Hall| {
                hall.callers.iter().filter(|caller| **caller == Caller::Leading).count() <= 1
            }),
            Property::always(
                "a caller follows only its own payload",
                |flight: &Self, hall: &Hall| {
                    hall.callers.iter().enumerate().all(|(c, caller)| match caller {
                        Caller::Following(leader) => {
                            flight.fingerprint(c) == flight.fingerprint(*leader)
                        }
                        _ => true,
                    })
                },
            ),
            Property::always("no caller follows a leader that left", |_, hall: &Hall| {
                !hall.callers.contains(&Caller::Stranded)
            }),
            Property::eventually("everybody is served", |_, hall: &Hall| {
                hall.callers
                    .iter()
                    .all(|caller| matches!(caller, Caller::DeliveryResult | Caller::Dead))
            }),
        ]
    }
}
