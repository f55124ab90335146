//! Undoing a partial effect: its registered steps in reverse, each an effect of its own.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, RwLock};

use hapax_core::attempt::AttemptId;
use hapax_core::effect::StateName;
use hapax_core::key::Key;
use hapax_core::name::Name;
use hapax_store::{StoreError, call, command, read};

use crate::effects::Effects;
use crate::engine::Hapax;
use crate::error::{Error, Failure};
use crate::redactor::Redactor;

type Undoing = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;
type Handler = Arc<dyn Fn(Vec<u8>) -> Undoing + Send + Sync>;

#[derive(Default)]
pub(crate) struct Rollbacks(RwLock<HashMap<String, Handler>>);

impl Rollbacks {
    fn get(&self, step: &str) -> Option<Handler> {
        self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner()).get(step).cloned()
    }
}

impl Hapax {
    /// Sets how to undo the steps of this name, which claims register with
    /// [`Claim::undo_with`](crate::Claim::undo_with). Each step is undone once.
    ///
    /// When an effect is `partial`, the next call for it undoes its steps in reverse and then
    /// performs it again.
    ///
    /// ```
    /// use hapax::{Failure, Hapax, Key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let hapax = Hapax::builder().in_memory();
    /// hapax.on_rollback("remove file", |name| async move {
    ///     let name = String::from_utf8(name)?;
    ///     println!("removing {name}");
    ///     Ok(())
    /// });
    /// let key = Key::derive("export.v1", &[("day", b"2026-11-16")])?;
    /// let export = hapax.effect(key).run(|claim| async move {
    ///     claim.undo_with("remove file", "part-1.csv").await?;
    ///     Err::<(), _>(Failure::partial("the disk is full"))
    /// });
    /// assert!(export.await.is_err());
    ///
    /// let attempt = hapax.effects().show(key).await?.ok_or("no record")?.attempt;
    /// assert!(hapax.effects().roll_back(key, attempt).await?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_rollback<F, Fut>(&self, step: impl Into<String>, undo: F)
    where
        F: Fn(Vec<u8>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |payload| Box::pin(undo(payload)));
        let mut handlers =
            self.inner.rollbacks.0.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        handlers.insert(step.into(), handler);
    }
}

impl Effects<'_> {
    /// Rolls back the partial effect of an attempt, now. `false` if the attempt registered no
    /// steps, or this process has no handler for one of them.
    pub async fn roll_back(self, key: Key, attempt: AttemptId) -> Result<bool, Error> {
        undo(self.hapax, &self.hapax.name(key), attempt, None).await
    }

    /// The same, with the reason of a failed rollback redacted.
    pub async fn roll_back_redacted(
        self,
        key: Key,
        attempt: AttemptId,
        redactor: &Arc<dyn Redactor>,
    ) -> Result<bool, Error> {
        undo(self.hapax, &self.hapax.name(key), attempt, Some(redactor)).await
    }

    /// Whether to stop undoing the steps of an attempt: one of them failed this often, or its own
    /// outcome is partial or unknown.
    pub async fn gives_up_undoing(
        self,
        key: Key,
        attempt: AttemptId,
        tries: u32,
    ) -> Result<bool, Error> {
        for ordinal in 0..self.steps(key, attempt).await?.len() {
            let undone = self.show(undo_key(attempt, ordinal)?).await?;
            let in_vain = undone.is_some_and(|effect| match effect.state.name() {
                StateName::Failed => effect.attempts >= tries,
                state => state.needs_attention(),
            });
            if in_vain {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Undoes the steps of an attempt. `false` if there are none, or one of them has no handler.
pub(crate) async fn undo(
    hapax: &Hapax,
    name: &Name,
    attempt: AttemptId,
    redactor: Option<&Arc<dyn Redactor>>,
) -> Result<bool, Error> {
    let of = name.clone();
    let steps = read(&*hapax.inner.store, move |view| view.steps(&of, attempt)).await?;
    let known: Option<Vec<_>> = steps
        .into_iter()
        .map(|step| hapax.inner.rollbacks.get(&step.name).map(|handler| (step, handler)))
        .collect();
    let Some(steps) = known.filter(|steps| !steps.is_empty()) else { return Ok(false) };
    for (ordinal, (step, handler)) in steps.into_iter().enumerate().rev() {
        let effect = hapax.effect(undo_key(attempt, ordinal)?);
        let effect = effect.label(format!("roll back {}", step.name)).payload(&step.payload);
        let effect = match redactor {
            Some(redactor) => effect.redactor(redactor.clone()),
            None => effect,
        };
        Box::pin(effect.run(|_| async move { handler(step.payload).await })).await?;
    }
    let (name, store) = (name.clone(), &*hapax.inner.store);
    call(store, command::RolledBack { name, attempt }).await?;
    Ok(true)
}

/// The effect of undoing one step of an attempt.
fn undo_key(attempt: AttemptId, ordinal: usize) -> Result<Key, Error> {
    let fields: [(&str, &[u8]); 2] =
        [("attempt", attempt.as_bytes()), ("step", &(ordinal as u64).to_be_bytes())];
    let key = Key::derive("rollback.v1", &fields);
    Ok(key.map_err(|error| StoreError::Invalid(error.to_string()))?)
}
