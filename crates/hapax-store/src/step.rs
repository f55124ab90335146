//! Rollback steps at the seam: how to undo what an attempt does, registered before it is done.

use hapax_core::attempt::AttemptId;
use hapax_core::name::Name;

use crate::error::StoreError;

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
