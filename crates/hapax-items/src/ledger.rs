//! Views of the ledger: items with their attempts and mutations, and runs.

use hapax::json::Json;
use hapax::part::{PartFilter, PartRecord};
use hapax::{AttemptId, Effect, EntryKind, Key, Safety, State, StateName, Timestamp};
use hapax_core::outcome::Cause;

use crate::error::Error;
use crate::identity;
use crate::manual_result;
use crate::note::{FailureRecord, ItemNote, MUTATION, MutationNote, RUN, RunNote};
use crate::scope::of_attempt;
use crate::service::Items;
use crate::state::{ItemState, MutationState};
use crate::version::Version;

/// An item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemView {
    /// The key of its effect.
    pub key: Key,
    /// The attempt in the ledger that a decision has to name.
    pub judged: AttemptId,
    /// Its workflow.
    pub workflow: String,
    /// Its id.
    pub id: String,
    /// Its title, for people.
    pub title: String,
    /// Its state.
    pub state: ItemState,
    /// The number of the current attempt at it, from 1.
    pub attempt: u32,
    /// The version of the script that took it up last.
    pub version: Version,
    /// The run that took it up last.
    pub run: Key,
    /// When it was first seen.
    pub created: Timestamp,
    /// When it last changed.
    pub updated: Timestamp,
    /// Why its handler did not come to its end.
    pub failure: Option<FailureRecord>,
    /// Its place in a list, to continue after.
    pub place: u64,
}

/// A mutation.
#[derive(Debug, Clone, PartialEq)]
pub struct MutationView {
    /// Its key.
    pub key: Key,
    /// The attempt in the ledger that a decision has to name.
    pub judged: AttemptId,
    /// The attempt at the item that it belongs to.
    pub attempt: u32,
    /// The tool.
    pub tool: String,
    /// The operation of the tool.
    pub operation: String,
    /// The target that it changes.
    pub target: String,
    /// Its identity within the target.
    pub identity: Json,
    /// Its payload.
    pub payload: Json,
    /// The subkey that separates it from mutations of the same identity.
    pub subkey: Option<String>,
    /// Its state.
    pub state: MutationState,
    /// The reason for its state, if there is one.
    pub reason: Option<String>,
    /// Its result, if it was kept or a person gave it.
    pub result: Option<Json>,
    /// How often it was attempted.
    pub attempts: u32,
    /// Whether its tool can look up whether it happened.
    pub verifiable: bool,
    /// How many lookups did not find out whether it happened; 0 once that is known.
    pub looks: u32,
    /// When it last changed.
    pub updated: Timestamp,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunView {
    /// Its key.
    pub key: Key,
    /// The attempt in the ledger that a decision has to name.
    pub judged: AttemptId,
    /// Its workflow.
    pub workflow: String,
    /// Its id.
    pub id: String,
    /// The version of the script.
    pub version: Version,
    /// `running`, `succeeded`, `failed`, `needs_attention` or `skipped`.
    pub state: &'static str,
    /// When it began.
    pub began: Timestamp,
    /// When it last changed.
    pub updated: Timestamp,
    /// How many items it took up.
    pub count: usize,
    /// Their ids; only the last ones if there were many.
    pub items: Vec<String>,
    /// The item it stopped at.
    pub item: Option<String>,
    /// The lines that the script logged.
    pub log: Vec<String>,
    /// Why it did not come to its end.
    pub failure: Option<FailureRecord>,
    /// Its place in a list, to continue after.
    pub place: u64,
}

/// How many mutations of one attempt are shown.
pub(crate) const SHOWN: usize = 1_000;

/// How much of a mutation's journal is read to count its lookups.
const HISTORY: usize = 1_000;

/// # Views
impl Items {
    /// Items of a workflow, the newest first; only in these states, if any are named.
    pub async fn list(
        &self,
        workflow: &str,
        states: &[ItemState],
        beyond: Option<u64>,
        limit: usize,
    ) -> Result<Vec<ItemView>, Error> {
        Ok(self.page(workflow, states, beyond, limit).await?.items)
    }

    /// One item.
    pub async fn show(&self, workflow: &str, id: &str) -> Result<ItemView, Error> {
        let key = identity::item(self.hapax().namespace(), workflow, id)?;
        let found = self.found(key).await?;
        let found = match found {
            Some(found) => self.item_view(found).await?,
            None => None,
        };
        found.ok_or_else(|| Error::NotFound(format!("item {id:?} in workflow {workflow:?}")))
    }

    /// The mutations of one attempt at an item, in the order of their first requests.
    pub async fn mutations(&self, item: Key, attempt: u32) -> Result<Vec<MutationView>, Error> {
        let (whole, kind) = (Some(of_attempt(item, attempt)), MUTATION.to_owned());
        self.mutation_views(PartFilter { whole, kind, limit: SHOWN, ..PartFilter::default() }).await
    }

    /// Runs of a workflow, the newest first.
    pub async fn runs(
        &self,
        workflow: &str,
        beyond: Option<u64>,
        limit: usize,
    ) -> Result<Vec<RunView>, Error> {
        let whole = Some(identity::workflow(self.hapax().namespace(), workflow)?);
        let kind = RUN.to_owned();
        let filter =
            PartFilter { whole, kind, newest_first: true, beyond, limit, ..PartFilter::default() };
        let found = self.hapax().parts().search(filter).await?;
        Ok(found.iter().filter_map(run_view).collect())
    }

    /// An effect that is a part, with its record as a part.
    pub(crate) async fn found(&self, key: Key) -> Result<Option<PartRecord>, Error> {
        let hapax = self.hapax();
        let (effect, part) = (hapax.effects().show(key).await?, hapax.parts().show(key).await?);
        let name = hapax::Name { namespace: hapax.namespace().clone(), key };
        Ok(effect.zip(part).map(|(effect, part)| PartRecord { position: 0, name, effect, part }))
    }

    pub(crate) async fn item_view(&self, found: PartRecord) -> Result<Option<ItemView>, Error> {
        let Some(note) = ItemNote::read(&found.part) else { return Ok(None) };
        let PartRecord { position: place, name, effect, .. } = found;
        let unknown = match &effect.state {
            // A reset gave up the attempt of these mutations, and the next attempt begins without
            // them.
            State::Failed(failure) if failure.cause == Cause::Reset => false,
            State::Failed(_) => {
                let open = self.open(name.key, effect.generation).await?;
                open.iter().any(|mutation| mutation.state == MutationState::Indeterminate)
            }
            _ => false,
        };
        Ok(Some(ItemView {
            key: name.key,
            judged: effect.attempt,
            workflow: note.workflow,
            id: note.id,
            title: note.title,
            state: ItemState::of(effect.state.name(), unknown),
            attempt: effect.generation,
            version: note.version,
            run: note.run,
            created: effect.created,
            updated: effect.updated,
            failure: note.failure,
            place,
        }))
    }

    /// The mutations of unknown outcome, of one attempt at an item.
    pub(crate) async fn open(&self, item: Key, attempt: u32) -> Result<Vec<MutationView>, Error> {
        let (whole, kind) = (Some(of_attempt(item, attempt)), MUTATION.to_owned());
        let states = vec![StateName::Unknown, StateName::Indeterminate];
        self.mutation_views(PartFilter {
            whole,
            kind,
            states,
            limit: SHOWN,
            ..PartFilter::default()
        })
        .await
    }

    /// The mutation of an attempt at an item that was applied but has no known result. There is at
    /// most one, because the handler gets no further.
    pub(crate) async fn without_result(
        &self,
        item: Key,
        attempt: u32,
    ) -> Result<Option<MutationView>, Error> {
        let (mut beyond, limit) = (None, SHOWN);
        loop {
            let (whole, kind) = (Some(of_attempt(item, attempt)), MUTATION.to_owned());
            let states = vec![StateName::Succeeded];
            let filter = PartFilter { whole, kind, states, newest_first: true, beyond, limit };
            let page = self.hapax().parts().search(filter).await?;
            for found in page.iter().filter(|found| is_bare(&found.effect)) {
                let view = self.mutation_view(found).await?;
                if let Some(view) = view.filter(|view| view.result.is_none()) {
                    return Ok(Some(view));
                }
            }
            beyond = page.last().filter(|_| page.len() == limit).map(|found| found.position);
            if beyond.is_none() {
                return Ok(None);
            }
        }
    }

    async fn mutation_views(&self, filter: PartFilter) -> Result<Vec<MutationView>, Error> {
        let mut views = Vec::new();
        for found in self.hapax().parts().search(filter).await? {
            views.extend(self.mutation_view(&found).await?);
        }
        Ok(views)
    }

    pub(crate) async fn mutation_view(
        &self,
        found: &PartRecord,
    ) -> Result<Option<MutationView>, Error> {
        let Some(note) = MutationNote::read(&found.part.body) else { return Ok(None) };
        let Effect { attempt, attempts, updated, state, safety, .. } = &found.effect;
        let key = found.name.key;
        let result = match state {
            State::Succeeded(outcome) => match outcome.shared_body() {
                Some(result) => Some(result),
                None => manual_result::result_of(self.hapax(), key, *attempt).await?,
            },
            _ => None,
        };
        let verifiable = matches!(safety, Safety::Reconcilable(_));
        let looks = match state.name() {
            StateName::Unknown | StateName::Indeterminate | StateName::Skipped if verifiable => {
                self.looks(key, *attempt).await?
            }
            _ => 0,
        };
        Ok(Some(MutationView {
            key,
            judged: *attempt,
            attempt: note.attempt,
            tool: note.tool,
            operation: note.operation,
            target: note.plan.target,
            identity: note.plan.identity,
            payload: note.plan.payload,
            subkey: note.subkey,
            state: MutationState::of(state.name()),
            reason: state.reason().map(str::to_owned),
            result: result.and_then(|result| Json::parse(&result).ok()),
            attempts: *attempts,
            verifiable,
            looks,
            updated: *updated,
        }))
    }

    /// How many lookups for an attempt found nothing out. The effect's own count starts anew when a
    /// person says try-again, and ends with the escalation; the journal has every lookup.
    async fn looks(&self, key: Key, attempt: AttemptId) -> Result<u32, Error> {
        let history = self.hapax().journal().history(key, HISTORY).await?;
        let in_vain = history.iter().filter(|entry| {
            entry.attempt == attempt
                && entry.event == EntryKind::Reconciled
                && matches!(entry.state, StateName::Unknown | StateName::Indeterminate)
        });
        Ok(u32::try_from(in_vain.count()).unwrap_or(u32::MAX))
    }
}

/// Whether it happened, with a result that was too large to keep.
fn is_bare(effect: &Effect) -> bool {
    matches!(&effect.state, State::Succeeded(outcome) if outcome.body().is_none())
}

pub(crate) fn run_view(found: &PartRecord) -> Option<RunView> {
    let note = RunNote::read(&found.part)?;
    let state = match found.effect.state.name() {
        StateName::Running => "running",
        StateName::Succeeded => "succeeded",
        StateName::Failed => "failed",
        state if state.needs_attention() => "needs_attention",
        _ => "skipped",
    };
    Some(RunView {
        count: note.count(),
        key: found.name.key,
        judged: found.effect.attempt,
        workflow: note.workflow,
        id: note.id,
        version: note.version,
        state,
        began: Timestamp(note.began_ms as i64),
        updated: found.effect.updated,
        items: note.items,
        item: note.item,
        log: note.log,
        failure: note.failure,
        place: found.position,
    })
}
