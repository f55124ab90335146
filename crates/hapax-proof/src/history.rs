//! The calls to a key with their answers, and whether one effect per key explains them.
//!
//! A key is a register that is written once: the first call whose work counts writes its outcome,
//! every other reads it, and a reset empties it. A history is right if such a register could have
//! answered its calls in some order. In that order, a call that began after another had ended comes
//! after it.

use std::collections::BTreeMap;

use stateright::semantics::{ConsistencyTester as _, LinearizabilityTester, SequentialSpec};

/// The request of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Run the effect, with this payload. `offer` is the outcome that the call's own work would
    /// have, if that work was begun.
    Run {
        /// The payload.
        payload: u8,
        /// The outcome of its own work, if that was begun.
        offer: Option<u64>,
    },
    /// Reset the effect.
    Reset,
}

/// The answer to a call. A call without a certain answer has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// This is the outcome.
    Outcome(u64),
    /// The effect was reset.
    Forgotten,
    /// No register gives this answer.
    Nothing,
}

#[derive(Debug, Clone, Default)]
struct Register(Option<(u8, u64)>);

impl SequentialSpec for Register {
    type Op = Request;
    type Ret = Reply;

    fn invoke(&mut self, request: &Request) -> Reply {
        match (request, self.0) {
            (Request::Reset, _) => {
                self.0 = None;
                Reply::Forgotten
            }
            (Request::Run { payload, .. }, Some((known, outcome))) if *payload == known => {
                Reply::Outcome(outcome)
            }
            (Request::Run { payload, offer: Some(offer) }, None) => {
                self.0 = Some((*payload, *offer));
                Reply::Outcome(*offer)
            }
            (Request::Run { .. }, _) => Reply::Nothing,
        }
    }
}

/// The calls on one key, each with the moments at which it began and ended.
#[derive(Debug, Default)]
pub struct History {
    calls: Vec<Call>,
}

/// When it began, its request, and when it ended with which answer.
type Call = (u64, Request, Option<(u64, Reply)>);

impl History {
    /// Adds a call. One without an answer may have taken effect at any time after it began.
    pub fn call(&mut self, began: u64, request: Request, reply: Option<(u64, Reply)>) {
        self.calls.push((began, request, reply));
    }

    /// The number of calls.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether a register that is written once explains the history.
    pub fn is_linearizable(&self) -> bool {
        // At the same moment, beginnings come before ends: such calls overlap.
        let mut moments: BTreeMap<(u64, bool, usize), Step<'_>> = BTreeMap::new();
        for (nth, (began, request, reply)) in self.calls.iter().enumerate() {
            moments.insert((*began, false, nth), Step::Begin(request));
            if let Some((ended, reply)) = reply {
                moments.insert((*ended, true, nth), Step::End(reply));
            }
        }
        let mut tester = LinearizabilityTester::new(Register::default());
        for ((_, _, nth), step) in moments {
            let noted = match step {
                Step::Begin(request) => tester.on_invoke(nth, request.clone()).map(|_| ()),
                Step::End(reply) => tester.on_return(nth, reply.clone()).map(|_| ()),
            };
            if noted.is_err() {
                return false;
            }
        }
        tester.is_consistent()
    }
}

enum Step<'a> {
    Begin(&'a Request),
    End(&'a Reply),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(offer: Option<u64>) -> Request {
        Request::Run { payload: 0, offer }
    }

    fn history(calls: &[Call]) -> bool {
        History { calls: calls.to_vec() }.is_linearizable()
    }

    #[test]
    fn one_outcome_for_all_is_right() {
        assert!(history(&[
            (0, run(Some(1)), Some((5, Reply::Outcome(1)))),
            (1, run(None), Some((6, Reply::Outcome(1)))),
            (7, run(None), Some((8, Reply::Outcome(1)))),
        ]));
        // The holder was never answered, and a later caller gets its outcome.
        assert!(history(&[(0, run(Some(1)), None), (3, run(None), Some((4, Reply::Outcome(1)))),]));
    }

    #[test]
    fn a_history_that_no_register_explains_is_wrong() {
        let two_outcomes = [
            (0, run(Some(1)), Some((1, Reply::Outcome(1)))),
            (2, run(Some(2)), Some((3, Reply::Outcome(2)))),
        ];
        assert!(!history(&two_outcomes));
        let out_of_thin_air = [(0, run(None), Some((1, Reply::Outcome(9))))];
        assert!(!history(&out_of_thin_air));
        let before_it_was_offered = [
            (0, run(None), Some((1, Reply::Outcome(1)))),
            (2, run(Some(1)), Some((3, Reply::Outcome(1)))),
        ];
        assert!(!history(&before_it_was_offered));
        let another_payload = [
            (0, run(Some(1)), Some((1, Reply::Outcome(1)))),
            (2, Request::Run { payload: 1, offer: None }, Some((3, Reply::Outcome(1)))),
        ];
        assert!(!history(&another_payload));
        let remembered_after_a_reset = [
            (0, run(Some(1)), Some((1, Reply::Outcome(1)))),
            (2, Request::Reset, Some((3, Reply::Forgotten))),
            (4, run(None), Some((5, Reply::Outcome(1)))),
        ];
        assert!(!history(&remembered_after_a_reset));
    }
}
