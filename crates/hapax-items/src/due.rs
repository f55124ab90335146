//! Runs that ought to be under way: broken off, to be tried again, or scheduled.
//!
//! All of that is in the ledger, so every node finds the same runs. Two nodes may drive the same
//! run: the ledger admits one, and the other gets an error that the run is under way.

use futures_util::future::join_all;
use hapax::part::PartRecord;
use hapax::{State, StateName, Timestamp};
use hapax_core::outcome::Cause;

use crate::error::Error;
use crate::identity;
use crate::note::RunNote;
use crate::service::Items;

/// A run that ought to be under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The workflow.
    pub workflow: String,
    /// The id to drive the run under.
    pub run: String,
}

/// How long after `retry_at` the process that announced a retry has to start it.
const GRACE_MS: u64 = 5_000;

/// How long the process that requested a repair has to go on with it.
const REPAIR_MS: u64 = 15 * 60 * 1_000;

/// # Due runs
impl Items {
    /// Runs that ought to be under way by this time, at most one of each workflow. A run that is
    /// recorded as running is included, because its process may be gone: the process that drives it
    /// finds out.
    pub async fn due(&self, now: Timestamp) -> Result<Vec<Due>, Error> {
        let mut due = Vec::new();
        for workflow in self.workflows().await? {
            let newest = self.newest_run(&workflow).await?;
            let run = match &newest {
                Some((found, note)) if self.goes_on(found, note, now).await? => {
                    Some(note.id.clone())
                }
                // A person has to decide about the whole run; the workflow does not run until then.
                Some((found, _)) if found.effect.state.name() == StateName::Partial => None,
                _ => self.scheduled(&workflow, now).await?,
            };
            due.extend(run.map(|run| Due { workflow, run }));
        }
        Ok(due)
    }

    /// One round: drives every run that is due by this time, and waits for all of them. Returns how
    /// many came to their end.
    pub async fn tick(&self, now: Timestamp) -> Result<usize, Error> {
        let due = self.due(now).await?;
        let driven = due.iter().map(|due| Box::pin(self.drive(&due.workflow, Some(&due.run))));
        let mut ended = 0;
        for driven in join_all(driven).await {
            match driven {
                Ok(_) => ended += 1,
                // These results are recorded, and escalated where needed.
                Err(Error::Running { .. } | Error::Failed { .. } | Error::Attention { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(ended)
    }

    /// Whether a run can go on that no process seems to drive.
    async fn goes_on(
        &self,
        found: &PartRecord,
        note: &RunNote,
        now: Timestamp,
    ) -> Result<bool, Error> {
        // The run itself was escalated, and a person has decided.
        if let State::Failed(failure) = &found.effect.state
            && failure.cause == Cause::Resolved
        {
            return Ok(true);
        }
        let failure = match (found.effect.state.name(), &note.failure) {
            // Its process may be gone, or ended the run without recording a failure.
            (StateName::Running, _) | (StateName::Failed, None) => return Ok(true),
            (StateName::Failed, Some(failure)) => failure,
            _ => return Ok(false),
        };
        let now_ms = u64::try_from(now.0).unwrap_or_default();
        match failure.next.as_str() {
            "retry" => Ok(failure.retry_at.unwrap_or_default().saturating_add(GRACE_MS) <= now_ms),
            "repair" => Ok(found.effect.updated.plus_ms(REPAIR_MS) <= now),
            "reconcile" => self.is_found_out(note).await,
            // The item was escalated, and a person has decided.
            "escalate" | "wait" => {
                let open = self.escalations(Some(&note.workflow), 1).await?;
                Ok(open.is_empty() && note.item.is_some() && self.is_found_out(note).await?)
            }
            _ => Ok(false),
        }
    }

    /// Whether the item that the run stopped at has no mutation of unknown outcome any more.
    async fn is_found_out(&self, note: &RunNote) -> Result<bool, Error> {
        let Some(id) = &note.item else { return Ok(false) };
        let key = identity::item(self.hapax().namespace(), &note.workflow, id)?;
        match self.hapax().effects().show(key).await? {
            Some(item) => Ok(self.open(key, item.generation).await?.is_empty()),
            None => Ok(false),
        }
    }
}
