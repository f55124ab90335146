//! Rollback steps at the seam: how to undo what an attempt does, registered before it is done.

use hapax_core::attempt::AttemptId;
use hapax_core::effect::{Fenced, Settled, State};
use hapax_core::name::Name;

use crate::command::RegisterStep;
use crate::effect;
use crate::error::StoreError;
use crate::limits::{Limits, check_length};
use crate::txn::Txn;

/// The reads of rollback steps.
pub trait StepView {
    /// The steps an attempt registered, in the order of their registration.
    fn steps(&mut self, name: &Name, attempt: AttemptId) -> Result<Vec<Step>, StoreError>;
}

/// The writes of rollback steps.
pub trait StepTxn {
    /// Adds a step to those an attempt registered.
    fn push_step(&mut self, name: &Name, attempt: AttemptId, step: &Step)
    -> Result<(), StoreError>;
}

/// How to undo one step of an effect, registered before the step is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The handler that undoes it.
    pub name: String,
    /// The handler's input.
    pub payload: Vec<u8>,
}

/// Registers a step of a running attempt, once at each position.
pub(crate) fn register(txn: &mut dyn Txn, command: &RegisterStep) -> Result<Settled, StoreError> {
    let RegisterStep { ref name, attempt, ref step, nth } = *command;
    check_length("the step's name", &step.name)?;
    if step.payload.len() > Limits::STEP_PAYLOAD {
        let (size, limit) = (step.payload.len(), Limits::STEP_PAYLOAD);
        return Err(StoreError::Invalid(format!(
            "a step's payload of {size} bytes exceeds {limit}"
        )));
    }
    let current = effect::find(txn, name)?;
    let running = current
        .as_ref()
        .is_some_and(|e| e.attempt == attempt && matches!(e.state, State::Running { .. }));
    if !running {
        return Ok(Settled::Fenced(Fenced::by(current.as_ref())));
    }
    let steps = txn.steps(name, attempt)?;
    match nth.map(|nth| (steps.get(nth), nth)) {
        Some((Some(there), _)) if there == step => return Ok(Settled::Repeated),
        Some((None, nth)) if nth == steps.len() => {}
        Some((_, nth)) => {
            let there = steps.len();
            let what = format!("it is step {nth} of {there}, and not the same, or not the next");
            return Err(StoreError::Invalid(what));
        }
        None => {}
    }
    if steps.len() >= Limits::STEPS {
        return Err(StoreError::Invalid(format!("more than {} rollback steps", Limits::STEPS)));
    }
    txn.push_step(name, attempt, step)?;
    Ok(Settled::Recorded)
}
