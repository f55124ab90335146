//! Results that people tell, of mutations whose own were too large to keep.
//!
//! What was applied stays as it is recorded. Beside it stands an effect of its own, whose outcome is
//! what a person said; a replay is told that.

use std::sync::Arc;

use hapax::document::print;
use hapax::json::Json;
use hapax::{AttemptId, Failure, Hapax, Judged, Key, Outcome, Resolution, Safety, State};

use crate::error::Error;
use crate::identity;

/// The result that a person told of a mutation that was applied by this attempt, if one did.
pub(crate) async fn result_of(
    hapax: &Hapax,
    mutation: Key,
    attempt: AttemptId,
) -> Result<Option<Arc<[u8]>>, hapax::Error> {
    let key = told(mutation, attempt)?;
    Ok(hapax.show(key).await?.and_then(|told| match told.state {
        State::Succeeded(result) => result.shared_body(),
        _ => None,
    }))
}

/// Records what a person says came of a mutation. The first word counts.
pub(crate) async fn record(
    hapax: &Hapax,
    (mutation, attempt): (Key, AttemptId),
    result: &Json,
    (actor, note): (&str, &str),
) -> Result<(), Error> {
    let key = told(mutation, attempt)?;
    // Nobody but a person can say, and the journal has who did.
    let asked =
        hapax.effect(key).safety(Safety::Opaque).label("the result of a mutation").run(|_| async {
            Err::<(), _>(Failure::ambiguous("the result was too large to keep"))
        });
    match asked.await {
        Ok(_) => return Ok(()),
        Err(hapax::Error::Blocked(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let stale = || Error::Stale { what: format!("the result of {mutation}"), attempt };
    let asked = hapax.show(key).await?.ok_or_else(stale)?;
    let result = Resolution::Happened(Outcome::from(print(result).as_str()));
    match hapax.resolve(key, asked.seen(), result, actor, note).await? {
        Judged::Fenced(_) => Err(stale()),
        Judged::Decided(_) | Judged::Undecided { .. } => Ok(()),
    }
}

fn told(mutation: Key, attempt: AttemptId) -> Result<Key, hapax::Error> {
    identity::told(mutation, attempt.as_bytes())
        .map_err(|error| hapax::Error::Refused { reason: error.to_string() })
}
