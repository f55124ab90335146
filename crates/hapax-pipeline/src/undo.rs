//! Rollback of an operation because a person wants it. It takes the steps that the operation
//! registered, under the lock of its dataset, and journals the person and the reason.

use hapax::document::Object;
use hapax::{AttemptId, Cause, Failure, Judged, Key, OnLock, Safety, State, StateName};

use crate::error::Error;
use crate::lifecycle::Stage;
use crate::pipeline::Pipeline;
use crate::review;

/// The result of taking an operation back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RollbackResult {
    /// It is undone, and its record is cleared: it may be run again.
    Cleared,
    /// It is undone. Its record changed in the meantime, and was not cleared.
    Undone,
    /// It registered no steps that this process can undo.
    NoWay,
}

impl Pipeline {
    /// Undoes what an operation did, or may have done, once, and clears its record. Refused while
    /// it is under way, where it did not happen, and while its review is pending or rejected.
    pub async fn take_back(
        &self,
        key: Key,
        attempt: AttemptId,
        (actor, note): (&str, &str),
    ) -> Result<RollbackResult, Error> {
        let effect =
            self.hapax.effects().show(key).await?.filter(|effect| effect.attempt == attempt);
        let state = effect.map(|effect| effect.state).ok_or_else(|| {
            Error::Invalid(format!("{attempt} is not the last attempt at this operation"))
        })?;
        may_be_undone(&state).map_err(|why| Error::Invalid(why.into()))?;
        let stage = self.granted(key, Some(attempt)).await?;
        if let Some(refusal) = review::unanswered(&self.hapax, key).await? {
            return Err(Error::Refused(refusal));
        }
        let effect = self.hapax.effect(record_key(attempt)?).label("roll back");
        // Each step is an effect and is undone once; doing the rest again changes nothing.
        let effect =
            effect.safety(Safety::Transactional).about(undo_note(&stage, key, actor, note));
        // An operation with a partial or unknown outcome still holds the lock itself.
        let free = !state.name().keeps_lock();
        let effect = match stage.as_ref().and_then(Stage::lock).filter(|_| free) {
            Some(lock) => effect.lock_key(lock).on_lock(OnLock::Wait),
            None => effect,
        };
        let mut no_way = false;
        let undone = effect.run(async |_| match self.roll_back(key, attempt).await {
            Ok(true) => Ok("undone"),
            Ok(false) => {
                no_way = true;
                Err(Failure::not_done("nothing was registered that can be undone here"))
            }
            Err(error) => Err(Failure::not_done(error.to_string())),
        });
        match undone.await {
            Ok(_) => {}
            Err(_) if no_way => return Ok(RollbackResult::NoWay),
            Err(error) => return Err(error.into()),
        }
        let seen = self.hapax.effects().seen(key, attempt).await?;
        Ok(match self.reset(key, seen, (actor, note)).await? {
            Judged::Decided(_) => RollbackResult::Cleared,
            _ => RollbackResult::Undone,
        })
    }

    /// Whether [`take_back`](Self::take_back) would undo something now: the attempt is the last one
    /// at its operation, it happened or may have, it was not undone before, and no review of it is
    /// pending or rejected. Whether its steps have handlers is not checked.
    pub async fn can_take_back(&self, key: Key, attempt: AttemptId) -> Result<bool, Error> {
        let effect = self.hapax.effects().show(key).await?;
        let Some(effect) = effect.filter(|effect| effect.attempt == attempt) else {
            return Ok(false);
        };
        let rolled_back =
            matches!(&effect.state, State::Failed(failure) if failure.cause == Cause::RolledBack);
        if rolled_back || may_be_undone(&effect.state).is_err() {
            return Ok(false);
        }
        let record = self.hapax.effects().show(record_key(attempt)?).await?;
        if record.is_some_and(|record| record.state.name() == StateName::Succeeded) {
            return Ok(false);
        }
        Ok(review::unanswered(&self.hapax, key).await?.is_none())
    }
}

/// The key of the record that an attempt was taken back.
fn record_key(attempt: AttemptId) -> Result<Key, Error> {
    Ok(Key::derive(KIND, &[("attempt", attempt.as_bytes())])?)
}

/// The `kind` of the note.
const KIND: &str = "roll-back.v1";

fn undo_note(stage: &Option<Stage>, key: Key, actor: &str, note: &str) -> String {
    let clean = |stage: &Stage| stage.clean(note);
    let dataset = stage.as_ref().map(|stage| stage.about.operation.dataset_id.as_str());
    Object::default()
        .text("kind", KIND)
        .text("operation", key.to_string().as_str())
        .text("dataset_id", dataset)
        .text("actor", actor)
        .text("note", stage.as_ref().map_or_else(|| note.to_owned(), clean).as_str())
        .print()
}

/// Whether there is, or may be, something to undo. An operation that was rolled back or reset
/// before passes too.
fn may_be_undone(state: &State) -> Result<(), &'static str> {
    match state {
        State::Running { .. } => Err("it is under way; wait until it is over"),
        State::Skipped { .. } => Err("an operator skipped it; there is nothing to undo"),
        State::Failed(failure) => match failure.cause {
            Cause::RolledBack | Cause::Reset => Ok(()),
            Cause::Reported
            | Cause::Lapsed
            | Cause::Released
            | Cause::Reconciled
            | Cause::Resolved => Err("it did not happen; there is nothing to undo"),
        },
        State::Succeeded(_)
        | State::Partial { .. }
        | State::Unknown { .. }
        | State::Indeterminate { .. } => Ok(()),
    }
}
