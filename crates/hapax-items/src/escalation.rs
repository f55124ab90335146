//! Escalations: questions to a person.
//!
//! An escalation is an item, or a run that failed outside of any item, that needs attention. It
//! exists as long as that is so; there is no second record of it.

use hapax::document::print;
use hapax::part::{PartFilter, PartRecord};
use hapax::{AttemptId, Failure, Key, Safety, StateName};

use crate::class::Class;
use crate::decision::{Action, actions};
use crate::error::Error;
use crate::identity;
use crate::ledger::{ItemView, MutationView, RunView, run_view};
use crate::note::{FailureRecord, ITEM, ItemNote, MUTATION, MutationNote, RUN, StoppedMutation};
use crate::service::Items;
use crate::state::{ItemState, MutationState};
use crate::stop::brief;
use crate::tool::{Call, Plan};

/// A question to a person.
#[derive(Debug, Clone, PartialEq)]
pub struct Escalation {
    /// The key of the item, or of the run.
    pub key: Key,
    /// The attempt that a decision names.
    pub judged: AttemptId,
    /// Its workflow.
    pub workflow: String,
    /// The item, if it is about one.
    pub item: Option<ItemView>,
    /// The run, if it failed outside of any item.
    pub run: Option<RunView>,
    /// Why it is escalated.
    pub reason: String,
    /// The mutations whose outcome or result is unknown, each with an explanation.
    pub unknown: Vec<MutationExplanation>,
    /// The mutation that the item stopped at, where its outcome is known.
    pub stopped_at: Option<MutationExplanation>,
    /// The possible actions.
    pub actions: Vec<Action>,
}

/// A page of escalations.
#[derive(Debug, Clone, PartialEq)]
pub struct Escalations {
    /// The escalations.
    pub escalations: Vec<Escalation>,
    /// The place to continue after; none if there are no more.
    pub next: Option<u64>,
}

/// A mutation that an escalation explains: its outcome or result is unknown, or the item stopped at
/// it.
#[derive(Debug, Clone, PartialEq)]
pub struct MutationExplanation {
    /// The mutation.
    pub mutation: MutationView,
    /// The attempts so far.
    pub tried: String,
    /// Why its outcome or result is unknown, or why the item stopped at it.
    pub why: String,
    /// Whether it can be verified, and how.
    pub verify: String,
    /// The fact to check by hand.
    pub check: String,
}

/// # Escalations
impl Items {
    /// Everything that needs attention, the newest first; of one workflow, if named.
    pub async fn escalations(
        &self,
        workflow: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Escalation>, Error> {
        Ok(self.escalations_beyond(workflow, None, limit).await?.escalations)
    }

    /// The same, after a place, with the place to continue after.
    pub async fn escalations_beyond(
        &self,
        workflow: Option<&str>,
        beyond: Option<u64>,
        limit: usize,
    ) -> Result<Escalations, Error> {
        let found = self.open_escalations(workflow, beyond, limit).await?;
        let next = found.last().filter(|_| found.len() == limit).map(|found| found.position);
        let mut escalations = Vec::with_capacity(found.len());
        for found in found {
            escalations.extend(self.explain(found).await?);
        }
        Ok(Escalations { escalations, next })
    }

    /// The escalated items and runs, the newest first.
    pub(crate) async fn open_escalations(
        &self,
        workflow: Option<&str>,
        beyond: Option<u64>,
        limit: usize,
    ) -> Result<Vec<PartRecord>, Error> {
        let namespace = self.hapax().namespace();
        let whole = workflow.map(|name| identity::workflow(namespace, name)).transpose()?;
        let mut found = Vec::new();
        for kind in [ITEM, RUN] {
            let (kind, states) = (kind.to_owned(), vec![StateName::Partial]);
            let filter = PartFilter { whole, kind, states, newest_first: true, beyond, limit };
            found.extend(self.hapax().parts().search(filter).await?);
        }
        found.sort_by_key(|found| std::cmp::Reverse(found.position));
        found.truncate(limit);
        Ok(found)
    }

    /// One escalation: that of the item or the run of this key, or of the item that a mutation of
    /// this key belongs to.
    pub async fn escalation(&self, key: Key) -> Result<Escalation, Error> {
        let mut found = self.found(key).await?;
        if let Some(part) =
            found.as_ref().map(|found| &found.part).filter(|part| part.kind == MUTATION)
            && let Some(note) = MutationNote::read(&part.body)
        {
            let item = identity::item(self.hapax().namespace(), &note.workflow, &note.item)?;
            found = self.found(item).await?;
        }
        let found = match found {
            Some(found) => self.explain(found).await?,
            None => None,
        };
        found.ok_or_else(|| Error::NotFound(format!("escalation {key}")))
    }

    pub(crate) async fn explain(&self, found: PartRecord) -> Result<Option<Escalation>, Error> {
        let (key, judged) = (found.name.key, found.effect.attempt);
        let reason = found.effect.state.reason().unwrap_or_default().to_owned();
        if found.part.kind == RUN {
            let open = found.effect.state.name() == StateName::Partial;
            return Ok(run_view(&found).filter(|_| open).map(|run| Escalation {
                key,
                judged,
                workflow: run.workflow.clone(),
                item: None,
                run: Some(run),
                reason,
                unknown: Vec::new(),
                stopped_at: None,
                actions: vec![Action::TryAgain, Action::Skip],
            }));
        }
        let Some(item) = self.item_view(found).await? else { return Ok(None) };
        if item.state != ItemState::NeedsAttention {
            return Ok(None);
        }
        let mut open = self.open(key, item.attempt).await?;
        let indeterminate =
            item.failure.as_ref().is_some_and(|failure| failure.class == Class::Indeterminate);
        if open.is_empty() && indeterminate {
            open.extend(self.without_result(key, item.attempt).await?);
        }
        let stopped_at = match &item.failure {
            Some(failure) if open.is_empty() => self.stopped_at(failure).await?,
            _ => None,
        };
        let actions = actions(&open);
        let unknown: Vec<_> = open.into_iter().map(|mutation| self.explained(mutation)).collect();
        let workflow = item.workflow.clone();
        let item = Some(item);
        Ok(Some(Escalation {
            key,
            judged,
            workflow,
            item,
            run: None,
            reason,
            unknown,
            stopped_at,
            actions,
        }))
    }

    /// Explains the mutation that a failure is about, if its outcome is known.
    async fn stopped_at(
        &self,
        failure: &FailureRecord,
    ) -> Result<Option<MutationExplanation>, Error> {
        let Some(StoppedMutation { key, payload: asked }) = &failure.mutation else {
            return Ok(None);
        };
        let Some(found) = self.found(*key).await? else { return Ok(None) };
        let Some(mutation) = self.mutation_view(&found).await? else { return Ok(None) };
        let tried = tried(&mutation);
        let was = brief(&mutation.payload);
        Ok(match mutation.state {
            MutationState::Applied => Some(MutationExplanation {
                tried: format!("{tried}, and applied, with {was}"),
                why: format!("its outcome is known; it is asked for now with {asked}"),
                verify: "there is nothing to look up: it was applied, and is not applied again"
                    .into(),
                check: format!("whether what was applied at {} is right as it is", mutation.target),
                mutation,
            }),
            MutationState::Failed => Some(MutationExplanation {
                tried: format!("{tried}, with {asked}"),
                why: format!("its outcome is known: it did not happen. {}", failure.message),
                verify: "there is nothing to look up: try-again attempts it again".into(),
                check: format!("what keeps it from happening at {}", mutation.target),
                mutation,
            }),
            _ => None,
        })
    }

    fn explained(&self, mutation: MutationView) -> MutationExplanation {
        let MutationView { tool, operation, target, identity, .. } = &mutation;
        let tried = tried(&mutation);
        if mutation.state == MutationState::Applied {
            return MutationExplanation {
                tried: format!("{tried}, and applied"),
                why: "its result was too large to keep".into(),
                verify: "there is nothing to look up: it was applied. skip leaves it so, and \
                         reprocess would apply it again"
                    .into(),
                check: format!(
                    "what came of it at {target}, for {}, to say it with happened",
                    print(identity)
                ),
                mutation,
            };
        }
        let looked = match mutation.looks {
            0 => String::new(),
            1 => "; one look could not tell".to_owned(),
            looks => format!("; {looks} looks could not tell"),
        };
        let call = Call {
            operation: operation.clone(),
            plan: Plan {
                target: target.clone(),
                identity: identity.clone(),
                payload: mutation.payload.clone(),
            },
            key: mutation.key,
            attempt: mutation.judged,
            fence: hapax::Fence(0),
        };
        let check = match self.tool(tool) {
            Some(tool) => tool.check_by_hand(&call),
            None => format!("{target}, for {}", print(identity)),
        };
        MutationExplanation {
            tried: format!("{tried}{looked}"),
            why: mutation.reason.clone().unwrap_or_default(),
            verify: match mutation.verifiable {
                true => format!("{tool} can look it up: say try-again"),
                false => format!("{tool} has no way to look it up"),
            },
            check,
            mutation,
        }
    }

    /// Escalates the item that a run stopped at, or the run: the run of this id, or
    /// the newest.
    pub(crate) async fn escalate(
        &self,
        workflow: &str,
        run: Option<&str>,
        item: Option<&str>,
        why: &str,
    ) -> Result<(), Error> {
        let hapax = self.hapax();
        let namespace = hapax.namespace();
        let whole = identity::workflow(namespace, workflow)?;
        // There is nothing to decide about an item that is done or skipped.
        let item = match item {
            Some(id) => {
                let key = identity::item(namespace, workflow, id)?;
                let state = hapax.effects().show(key).await?.map(|effect| effect.state.name());
                item.filter(|_| !matches!(state, Some(StateName::Succeeded | StateName::Skipped)))
            }
            None => None,
        };
        let (key, part) = match item {
            Some(id) => {
                let key = identity::item(namespace, workflow, id)?;
                let note = hapax.parts().show(key).await?.and_then(|part| ItemNote::read(&part));
                let Some(mut note) = note else { return Ok(()) };
                note.failure.iter_mut().for_each(|failure| failure.next = "escalate".into());
                (key, note.part(whole))
            }
            None => {
                let Some((found, mut note)) = self.run_or_newest(workflow, run).await? else {
                    return Ok(());
                };
                note.failure.iter_mut().for_each(|failure| failure.next = "escalate".into());
                (found.name.key, note.part(whole))
            }
        };
        let effect = hapax.effect(key).safety(Safety::Transactional).part(part);
        let effect = match item {
            Some(id) => effect.payload(id.as_bytes()),
            None => effect.lock(&["items", namespace.as_str(), workflow]),
        };
        match effect.run(|_| async { Err::<(), _>(Failure::partial(why)) }).await {
            Ok(_) | Err(hapax::Error::Blocked(_) | hapax::Error::Refused { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        self.emit_escalations(workflow).await;
        Ok(())
    }
}

/// The mutation, and how often it was attempted.
fn tried(mutation: &MutationView) -> String {
    let MutationView { tool, operation, target, .. } = mutation;
    let times = match mutation.attempts {
        1 => "once".to_owned(),
        times => format!("{times} times"),
    };
    format!("{tool}.{operation} of {target} was attempted {times}")
}
