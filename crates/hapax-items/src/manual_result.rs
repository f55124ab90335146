//! Results that people give, for mutations whose own results were too large to keep.
//!
//! The record of the mutation stays as it is. A second effect has the person's result as its
//! outcome; a replay returns that.

use std::sync::Arc;

use hapax::document::print;
use hapax::json::Json;
use hapax::{AttemptId, Failure, Hapax, Judged, Key, Outcome, Resolution, Safety, State};

use crate::error::Error;
use crate::identity;

/// The result that a person gave for a mutation that this attempt applied, if there is one.
pub(crate) async fn result_of(
    hapax: &Hapax,
    mutation: Key,
    attempt: AttemptId,
) -> Result<Option<Arc<[u8]>>, hapax::Error> {
    let key = key_of(mutation, attempt)?;
    Ok(hapax.effects().show(key).await?.and_then(|effect| match effect.state {
        State::Succeeded(result) => result.shared_body(),
        _ => None,
    }))
}

/// Records the result that a person gives for a mutation. The first one counts.
pub(crate) async fn record(
    hapax: &Hapax,
    (mutation, attempt): (Key, AttemptId),
    result: &Json,
    (actor, note): (&str, &str),
) -> Result<(), Error> {
    let key = key_of(mutation, attempt)?;
    // Only a person can decide about this effect, and the journal names that person.
    let effect =
        hapax.effect(key).safety(Safety::Opaque).label("the result of a mutation").run(|_| async {
            Err::<(), _>(Failure::ambiguous("the result was too large to keep"))
        });
    match effect.await {
        Ok(_) => return Ok(()),
        Err(hapax::Error::Blocked(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let stale = || Error::Stale { what: format!("the result of {mutation}"), attempt };
    let effect = hapax.effects().show(key).await?.ok_or_else(stale)?;
    let result = Resolution::Happened(Outcome::from(print(result).as_str()));
    match hapax.effects().resolve(key, effect.seen(), result, actor, note).await? {
        Judged::Fenced(_) => Err(stale()),
        Judged::Decided(_) | Judged::Undecided { .. } => Ok(()),
    }
}

fn key_of(mutation: Key, attempt: AttemptId) -> Result<Key, hapax::Error> {
    identity::manual_result(mutation, attempt.as_bytes())
        .map_err(|error| hapax::Error::Refused { reason: error.to_string() })
}
