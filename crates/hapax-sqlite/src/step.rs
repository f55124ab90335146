//! Rollback steps as rows.

use hapax_core::attempt::AttemptId;
use hapax_core::name::Name;
use hapax_store::{Step, StepTxn, StepView, StoreError};
use rusqlite::params;

use crate::query::{rows, run};
use crate::txn::SqliteTxn;

impl StepView for SqliteTxn<'_> {
    fn steps(&mut self, name: &Name, attempt: AttemptId) -> Result<Vec<Step>, StoreError> {
        let Some(namespace) = self.namespace(&name.namespace)? else { return Ok(Vec::new()) };
        rows(
            self.db,
            "SELECT name, payload FROM step WHERE attempt = ?1 AND key = ?2 AND namespace = ?3
             ORDER BY id",
            params![attempt.as_bytes(), name.key.as_bytes(), namespace],
            |row| Ok(Step { name: row.get(0)?, payload: row.get(1)? }),
        )
    }
}

impl StepTxn for SqliteTxn<'_> {
    fn push_step(
        &mut self,
        name: &Name,
        attempt: AttemptId,
        step: &Step,
    ) -> Result<(), StoreError> {
        let namespace = self.namespace_or_new(&name.namespace)?;
        let (key, by) = (name.key.as_bytes(), attempt.as_bytes());
        run(
            self.db,
            "INSERT INTO step (namespace, key, attempt, name, payload) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![namespace, key, by, step.name, step.payload],
        )
        .map(drop)
    }
}
