//! Mutations that earlier runs began for an item and its handler did not ask for again.
//!
//! A handler may take another path the next time. An item is done only once the outcome of every
//! mutation that was begun for it is known.

use std::time::Duration;

use hapax::part::{PartFilter, PartRecord};
use hapax::{Claim, Failure, Fingerprint, StateName};

use crate::class::Class;
use crate::note::{MUTATION, MutationNote};
use crate::scope::{Item, ended_by, look};
use crate::stop::{FollowUp, StopReason, Stopped};

/// States in which a mutation may have happened or may still happen.
const OPEN: [StateName; 3] = [StateName::Running, StateName::Unknown, StateName::Indeterminate];

impl Item {
    /// Looks once for each unfinished mutation, and stops the run if one stays unknown.
    pub(crate) async fn settle_unfinished(&self, claim: &Claim) -> Result<(), Stopped> {
        let run = self.run();
        let settled = async {
            while let Some(unfinished) = self.unfinished().await? {
                if let Some(why) = self.look_for(claim, &unfinished).await? {
                    return Ok(Some(why));
                }
            }
            Ok(None)
        };
        match settled.await {
            Ok(None) => Ok(()),
            Ok(Some(why)) => Err(run.stop(why)),
            Err(error) => Err(run.stop(ended_by(&error))),
        }
    }

    async fn unfinished(&self) -> Result<Option<PartRecord>, hapax::Error> {
        let (whole, kind) = (Some(self.whole()), MUTATION.to_owned());
        let filter =
            PartFilter { whole, kind, states: OPEN.to_vec(), limit: 1, ..PartFilter::default() };
        Ok(self.run().hapax().parts().search(filter).await?.pop())
    }

    /// Looks for one mutation. Returns why the run is over, if the outcome is still unknown.
    async fn look_for(
        &self,
        claim: &Claim,
        unfinished: &PartRecord,
    ) -> Result<Option<StopReason>, hapax::Error> {
        let (run, key) = (self.run(), unfinished.name.key);
        let note = MutationNote::read(&unfinished.part.body);
        if unfinished.effect.state.name() == StateName::Running {
            lapse(claim, unfinished).await?;
        }
        let now = run.hapax().effects().show(key).await?;
        if let Some(note) = &note
            && now.is_some_and(|effect| effect.state.name() == StateName::Unknown)
        {
            let tool = run.known_tool(&note.tool);
            look(run.hapax(), key, note, tool.as_deref(), run.tool_timeout()).await?;
        }
        let Some(effect) = run.hapax().effects().show(key).await? else { return Ok(None) };
        let follow_up = match effect.state.name() {
            StateName::Running | StateName::Unknown => FollowUp::Reconcile,
            StateName::Indeterminate => FollowUp::ByClass,
            _ => return Ok(None),
        };
        let name = note.map_or_else(|| key.to_string(), |note| note.name());
        let why = format!(
            "{name}, which an earlier run began and this one did not ask for: whether it happened \
             is not known: {}",
            effect.state.reason().unwrap_or("it is under way")
        );
        Ok(Some(StopReason::new(Class::Indeterminate, why).follow_up(follow_up)))
    }
}

/// Claims a mutation, so that the ledger notices if its holder is gone. If the claim is granted,
/// nothing can have happened, and it does nothing.
async fn lapse(claim: &Claim, unfinished: &PartRecord) -> Result<(), hapax::Error> {
    let effect = claim
        .effect(unfinished.name.key)
        .fingerprint(Fingerprint::of(unfinished.name.key.as_bytes()))
        .safety(unfinished.effect.safety)
        .part(unfinished.part.clone())
        .wait(Duration::ZERO);
    let nothing = || async { Err::<(), _>(Failure::not_done("no caller waits for it any more")) };
    match effect.run(|_| nothing()).await {
        Ok(_)
        | Err(
            hapax::Error::Failed { .. }
            | hapax::Error::Blocked(_)
            | hapax::Error::InFlight { .. }
            | hapax::Error::Refused { .. },
        ) => Ok(()),
        Err(error) => Err(error),
    }
}
