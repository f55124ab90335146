//! Rollback steps as rows.

use hapax_core::attempt::AttemptId;
use hapax_core::name::Name;
use hapax_store::{Step, StepTxn, StepView, StoreError};
use tokio_postgres::types::Type;

use crate::connect::Link;
use crate::effect::EffectRowKey;
use crate::error::PgFailure;
use crate::txn::PgTxn;

impl StepView for PgTxn<'_> {
    fn steps(&mut self, name: &Name, attempt: AttemptId) -> Result<Vec<Step>, StoreError> {
        let row_key = self.row_key(name);
        match self.keep_failure(row_key)? {
            Some(row_key) => self.keep_failure(steps(self.link, row_key, attempt)),
            None => Ok(Vec::new()),
        }
    }
}

impl StepTxn for PgTxn<'_> {
    fn push_step(
        &mut self,
        name: &Name,
        attempt: AttemptId,
        step: &Step,
    ) -> Result<(), StoreError> {
        let id = self.namespace(&name.namespace);
        let row_key = (self.keep_failure(id)?, name.key);
        self.keep_failure(push_step(self.link, row_key, attempt, step))
    }
}

/// The steps an attempt registered, in order.
fn steps(
    link: &Link,
    (namespace, key): EffectRowKey,
    attempt: AttemptId,
) -> Result<Vec<Step>, PgFailure> {
    let rows = link.query(
        "SELECT name, payload FROM hapax.step WHERE attempt = $1 AND namespace = $2 AND key = $3
         ORDER BY id",
        &[
            (&&attempt.as_bytes()[..], Type::BYTEA),
            (&namespace, Type::INT4),
            (&&key.as_bytes()[..], Type::BYTEA),
        ],
    )?;
    rows.iter().map(|row| Ok(Step { name: row.try_get(0)?, payload: row.try_get(1)? })).collect()
}

/// Adds a step.
fn push_step(
    link: &Link,
    (namespace, key): EffectRowKey,
    attempt: AttemptId,
    step: &Step,
) -> Result<(), PgFailure> {
    link.execute(
        "INSERT INTO hapax.step (namespace, key, attempt, name, payload)
         VALUES ($1, $2, $3, $4, $5)",
        &[
            (&namespace, Type::INT4),
            (&&key.as_bytes()[..], Type::BYTEA),
            (&&attempt.as_bytes()[..], Type::BYTEA),
            (&step.name, Type::TEXT),
            (&step.payload, Type::BYTEA),
        ],
    )?;
    Ok(())
}
