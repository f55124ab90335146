//! Rollback steps, in memory.

use hapax_core::attempt::AttemptId;
use hapax_core::name::Name;

use super::MemoryTxn;
use crate::error::StoreError;
use crate::step::{Step, StepTxn, StepView};

impl StepView for MemoryTxn<'_> {
    fn steps(&mut self, name: &Name, attempt: AttemptId) -> Result<Vec<Step>, StoreError> {
        Ok(self.tables.steps.get(&(name.clone(), attempt)).cloned().unwrap_or_default())
    }
}

impl StepTxn for MemoryTxn<'_> {
    fn push_step(
        &mut self,
        name: &Name,
        attempt: AttemptId,
        step: &Step,
    ) -> Result<(), StoreError> {
        let mut steps = self.steps(name, attempt)?;
        steps.push(step.clone());
        self.set(|tables| &mut tables.steps, (name.clone(), attempt), Some(steps));
        Ok(())
    }
}
