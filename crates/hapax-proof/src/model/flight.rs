//! The election of a leader among identical requests in one process, walked through.

use hapax::election::{Board, Role};
use hapax_core::fingerprint::Fingerprint;
use hapax_core::key::Key;
use hapax_core::name::{Name, Namespace};
use stateright::{Model, Property};

/// Callers that come, lead, follow, finish and die, in every order.
#[derive(Debug, Clone)]
pub struct Flight {
    /// How many callers there are; the last one brings another payload.
    pub callers: usize,
    /// How many leaders may end without a result.
    pub deaths: u8,
}

/// The state of each caller, and the board that elects the leader.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FlightState {
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
    Done,
    Dead,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Move {
    /// A caller comes, or comes again.
    Come(usize),
    /// A leader ends with a result, or a caller outside the flight is done.
    Finish(usize),
    /// A leader ends without a result.
    Die(usize),
    /// A follower gets the result of its leader, or learns that it died.
    Receive(usize),
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
    type State = FlightState;
    type Action = Move;

    fn init_states(&self) -> Vec<FlightState> {
        let callers = vec![Caller::Coming; self.callers];
        vec![FlightState { board: Board::default(), callers, deaths: 0 }]
    }

    fn actions(&self, state: &FlightState, moves: &mut Vec<Move>) {
        for (c, caller) in state.callers.iter().enumerate() {
            match caller {
                Caller::Coming => moves.push(Move::Come(c)),
                Caller::Leading => {
                    moves.push(Move::Finish(c));
                    if state.deaths < self.deaths {
                        moves.push(Move::Die(c));
                    }
                }
                Caller::Apart => moves.push(Move::Finish(c)),
                Caller::Following(leader) if state.callers[*leader] != Caller::Leading => {
                    moves.push(Move::Receive(c));
                }
                _ => {}
            }
        }
    }

    fn next_state(&self, state: &FlightState, step: Move) -> Option<FlightState> {
        let mut state = state.clone();
        match step {
            Move::Come(c) => {
                state.callers[c] = match state.board.come(&name(), self.fingerprint(c), || c) {
                    Role::Lead => Caller::Leading,
                    Role::Follow(leader) if state.callers[leader] == Caller::Leading => {
                        Caller::Following(leader)
                    }
                    Role::Follow(_) => Caller::Stranded,
                    Role::Apart => Caller::Apart,
                };
            }
            Move::Finish(c) => {
                if state.callers[c] == Caller::Leading {
                    state.board.leave(&name());
                }
                state.callers[c] = Caller::Done;
            }
            Move::Die(c) => {
                state.deaths += 1;
                state.board.leave(&name());
                state.callers[c] = Caller::Dead;
            }
            Move::Receive(c) => {
                let Caller::Following(leader) = state.callers[c] else { return None };
                state.callers[c] = match state.callers[leader] {
                    Caller::Dead => Caller::Coming,
                    _ => Caller::Done,
                };
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one leads at a time", |_, state: &FlightState| {
                state.callers.iter().filter(|caller| **caller == Caller::Leading).count() <= 1
            }),
            Property::always(
                "a caller follows only its own payload",
                |flight: &Self, state: &FlightState| {
                    state.callers.iter().enumerate().all(|(c, caller)| match caller {
                        Caller::Following(leader) => {
                            flight.fingerprint(c) == flight.fingerprint(*leader)
                        }
                        _ => true,
                    })
                },
            ),
            Property::always("no caller follows a leader that left", |_, state: &FlightState| {
                !state.callers.contains(&Caller::Stranded)
            }),
            Property::eventually("everybody is served", |_, state: &FlightState| {
                state.callers.iter().all(|caller| matches!(caller, Caller::Done | Caller::Dead))
            }),
        ]
    }
}
