//! Decisions: a person's answers to an escalation, and their effects.
//!
//! The item is decided first, because it shows whether the decision still counts; then its
//! mutations. If the process dies in between, unknown mutations stay unknown: they are escalated
//! again, unless the item was skipped or its attempt given up.

use hapax::json::Json;
use hapax::{AttemptId, Judged, Key, Outcome, Resolution, StateName};

use crate::error::Error;
use crate::escalation::{Escalation, MutationExplanation};
use crate::identity;
use crate::ledger::MutationView;
use crate::manual_result;
use crate::service::Items;
use crate::state::{ItemState, MutationState};

/// A person's decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Look again whether it happened; if nothing is unknown, run the item again.
    TryAgain,
    /// It did not happen, and may be attempted again.
    DidNotHappen,
    /// It happened, with this result.
    Happened,
    /// Skip the item.
    Skip,
    /// Begin a new attempt, which uses no result of this one.
    Reprocess,
}

impl Action {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::TryAgain, Self::DidNotHappen, Self::Happened, Self::Skip, Self::Reprocess];

    /// The name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TryAgain => "try-again",
            Self::DidNotHappen => "did-not-happen",
            Self::Happened => "happened",
            Self::Skip => "skip",
            Self::Reprocess => "reprocess",
        }
    }
}

impl std::str::FromStr for Action {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|action| action.as_str() == text);
        found.ok_or_else(|| {
            format!(
                "invalid action {text:?}; there are: {}",
                Self::ALL.map(Self::as_str).join(", ")
            )
        })
    }
}

/// The possible actions for an item whose handler stopped at these mutations.
pub(crate) fn actions(open: &[MutationView]) -> Vec<Action> {
    let (skip, reprocess) = (Action::Skip, Action::Reprocess);
    if open.is_empty() {
        return vec![Action::TryAgain, skip, reprocess];
    }
    if open.iter().any(|mutation| mutation.state == MutationState::Applied) {
        return vec![Action::Happened, skip, reprocess];
    }
    let mut actions = vec![Action::DidNotHappen, Action::Happened, skip, reprocess];
    if open.iter().all(|mutation| mutation.verifiable) {
        actions.insert(0, Action::TryAgain);
    }
    actions
}

/// # Decisions
impl Items {
    /// Carries out a person's decision. `judged` is the attempt that the person was shown, so that
    /// a stale screen cannot decide about a newer attempt.
    ///
    /// `key` is the key of the escalation. If the outcome of more than one mutation is unknown, the
    /// person decides about each by its own key and attempt, and the item goes on after the last.
    pub async fn act(
        &self,
        key: Key,
        judged: AttemptId,
        action: Action,
        result: Option<&Json>,
        who: (&str, &str),
    ) -> Result<(), Error> {
        let escalation = self.escalation(key).await?;
        let stale = || Error::Stale { what: format!("escalation {key}"), attempt: judged };
        let of_one = escalation.unknown.iter().find(|unknown| unknown.mutation.key == key);
        let shown = of_one.map_or(escalation.judged, |unknown| unknown.mutation.judged);
        if shown != judged || (of_one.is_none() && escalation.key != key) {
            return Err(stale());
        }
        check(&escalation, action, result, of_one.is_some())?;
        let is_last = of_one.is_none() || escalation.unknown.len() == 1;
        if is_last && !self.decide_item(&escalation, action, who).await? {
            return Err(stale());
        }
        for unknown in &escalation.unknown {
            let meant = of_one.is_none_or(|one| one.mutation.key == unknown.mutation.key);
            if meant && !self.decide(&unknown.mutation, (action, result), who).await? {
                return Err(stale());
            }
        }
        Ok(())
    }

    /// Applies a decision to an item or a run. False if the ledger has a newer attempt.
    async fn decide_item(
        &self,
        escalation: &Escalation,
        action: Action,
        (actor, note): (&str, &str),
    ) -> Result<bool, Error> {
        let (hapax, key) = (self.hapax(), escalation.key);
        let seen = hapax.effects().seen(key, escalation.judged).await?;
        // A failed item was not escalated yet, so deciding about its mutations is enough.
        let failed = seen.state == StateName::Failed;
        let judged = match action {
            Action::Reprocess => hapax.effects().reset(key, seen, actor, note).await?,
            Action::Skip => {
                hapax.effects().resolve(key, seen, Resolution::Skip, actor, note).await?
            }
            _ if failed => return Ok(true),
            Action::TryAgain | Action::DidNotHappen | Action::Happened => {
                hapax.effects().resolve(key, seen, Resolution::DidNotHappen, actor, note).await?
            }
        };
        Ok(!matches!(judged, Judged::Fenced(_)))
    }

    /// Applies a decision about a mutation or its item to the mutation. False if the ledger has a
    /// newer attempt.
    async fn decide(
        &self,
        mutation: &MutationView,
        (action, result): (Action, Option<&Json>),
        (actor, note): (&str, &str),
    ) -> Result<bool, Error> {
        let (hapax, key, judged) = (self.hapax(), mutation.key, mutation.judged);
        let resolution = match (action, result, mutation.state) {
            (Action::Happened, Some(result), MutationState::Applied) => {
                manual_result::record(hapax, (key, judged), result, (actor, note)).await?;
                return Ok(true);
            }
            // It happened, whatever the decision about its item.
            (_, _, MutationState::Applied) => return Ok(true),
            (Action::Happened, Some(result), _) => {
                Resolution::Happened(Outcome::from(hapax::document::print(result).as_str()))
            }
            (Action::DidNotHappen, ..) => Resolution::DidNotHappen,
            (Action::TryAgain, _, MutationState::Indeterminate) => Resolution::AskAgain,
            (Action::TryAgain, ..) => return Ok(true),
            _ => Resolution::Skip,
        };
        let seen = hapax.effects().seen(key, judged).await?;
        match hapax.effects().resolve(key, seen, resolution, actor, note).await? {
            Judged::Decided(_) | Judged::Undecided { .. } => Ok(true),
            Judged::Fenced(_) => Ok(false),
        }
    }

    /// Begins a new attempt at an item that is done, failed or skipped: a person's decision.
    pub async fn reprocess(
        &self,
        workflow: &str,
        id: &str,
        judged: AttemptId,
        (actor, note): (&str, &str),
    ) -> Result<(), Error> {
        let key = identity::item(self.hapax().namespace(), workflow, id)?;
        if let Ok(escalation) = self.escalation(key).await
            && escalation.actions.contains(&Action::Reprocess)
        {
            return self.act(key, judged, Action::Reprocess, None, (actor, note)).await;
        }
        let item = self.show(workflow, id).await?;
        if item.state == ItemState::Processing {
            return Err(Error::Running { workflow: workflow.to_owned() });
        }
        let reset = match item.judged == judged {
            true => {
                let seen = self.hapax().effects().seen(key, judged).await?;
                Some(self.hapax().effects().reset(key, seen, actor, note).await?)
            }
            false => None,
        };
        if matches!(reset, None | Some(Judged::Fenced(_))) {
            return Err(Error::Stale { what: format!("item {id:?}"), attempt: judged });
        }
        // Skips the unknown mutations of the old attempt: no pass looks for them any more.
        for mutation in self.open(key, item.attempt).await? {
            let (of, skip) = (mutation.key, Resolution::Skip);
            let seen = self.hapax().effects().seen(of, mutation.judged).await?;
            self.hapax().effects().resolve(of, seen, skip, actor, note).await?;
        }
        Ok(())
    }
}

/// Refuses actions that are of no use here or lack information.
fn check(
    escalation: &Escalation,
    action: Action,
    result: Option<&Json>,
    of_one: bool,
) -> Result<(), Error> {
    let of_mutation = matches!(action, Action::DidNotHappen | Action::Happened);
    if !escalation.actions.contains(&action) || (of_one && !of_mutation) {
        let may = escalation
            .actions
            .iter()
            .filter(|may| !of_one || matches!(may, Action::DidNotHappen | Action::Happened));
        let may: Vec<_> = may.map(|action| action.as_str()).collect();
        let why = format!("{} is of no use here; there are: {}", action.as_str(), may.join(", "));
        return Err(Error::Invalid(why));
    }
    if of_mutation && !of_one && escalation.unknown.len() > 1 {
        let each = |MutationExplanation { mutation, .. }: &MutationExplanation| {
            format!("{} with attempt {}", mutation.key, mutation.judged)
        };
        let keys: Vec<_> = escalation.unknown.iter().map(each).collect();
        let why = format!(
            "more than one outcome is unknown; say {} of each by its own key: {}",
            action.as_str(),
            keys.join(", ")
        );
        return Err(Error::Invalid(why));
    }
    if action == Action::Happened && result.is_none() {
        return Err(Error::Invalid(
            "what happened has a result; give it as JSON, `null` if there is none".into(),
        ));
    }
    Ok(())
}
