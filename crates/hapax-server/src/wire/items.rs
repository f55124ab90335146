//! Items, their mutations, and what people are asked about them.

use hapax::Timestamp;
use hapax::json::Json;
use hapax_items::{Explained, ItemState, ItemView, MutationView, Script};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::time;
use super::workflow::{Run, RunSummary};

/// Why a run or an item did not come to its end.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemFailure {
    /// `transient`, `logic`, `permission`, `precondition` or `indeterminate`.
    pub class: &'static str,
    /// What went wrong.
    pub message: String,
    /// Where in the script, if it was the script.
    pub stack: Option<String>,
    /// What happens next: `retry`, `repair`, `reconcile`, `escalate`, or `wait` for a person who
    /// was asked before.
    pub next: String,
    /// When it is tried again.
    pub retry_at: Option<String>,
    /// The key of the mutation that it is about.
    pub mutation: Option<String>,
    /// What that was asked for with, as JSON; the beginning, if it is long.
    pub asked: Option<String>,
}

impl ItemFailure {
    /// A failure.
    pub fn of(failure: &hapax_items::Failure) -> Self {
        let stamp = |ms: u64| time(Timestamp(i64::try_from(ms).unwrap_or(i64::MAX)));
        Self {
            class: failure.class.as_str(),
            message: failure.message.clone(),
            stack: failure.stack.clone(),
            next: failure.next.clone(),
            retry_at: failure.retry_at.map(stamp),
            mutation: failure.about.as_ref().map(|about| about.mutation.to_string()),
            asked: failure.about.as_ref().map(|about| about.asked.clone()),
        }
    }
}

/// An item.
#[derive(Debug, Serialize, ToSchema)]
pub struct Item {
    /// Its key, which is that of its escalation, too.
    pub key: String,
    /// The attempt of the ledger's that a decision names.
    pub judged: String,
    /// Its workflow.
    pub workflow: String,
    /// Its id.
    pub id: String,
    /// What people call it.
    pub title: String,
    /// Where it stands.
    pub state: ItemStateName,
    /// Which attempt at it counts, from 1.
    pub attempt: u32,
    /// The version of the script that took it up last.
    pub version: String,
    /// The key of the run that did.
    pub run: String,
    /// When it was first seen.
    pub created: String,
    /// When it last changed.
    pub updated: String,
    /// Why its handler did not come to its end.
    pub failure: Option<ItemFailure>,
}

/// Where an item stands.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ItemStateName {
    /// A run is at it.
    Processing,
    /// Its handler came to its end.
    Done,
    /// Its handler did not, and the next run takes it up again.
    Failed,
    /// A person let it go.
    Skipped,
    /// A person has to decide.
    NeedsAttention,
}

impl ItemStateName {
    fn of(state: ItemState) -> Self {
        match state {
            ItemState::Processing => Self::Processing,
            ItemState::Done => Self::Done,
            ItemState::Failed => Self::Failed,
            ItemState::Skipped => Self::Skipped,
            ItemState::NeedsAttention => Self::NeedsAttention,
        }
    }

    pub(crate) fn meant(self) -> ItemState {
        match self {
            Self::Processing => ItemState::Processing,
            Self::Done => ItemState::Done,
            Self::Failed => ItemState::Failed,
            Self::Skipped => ItemState::Skipped,
            Self::NeedsAttention => ItemState::NeedsAttention,
        }
    }
}

impl Item {
    /// An item.
    pub fn of(item: &ItemView) -> Self {
        Self {
            key: item.key.to_string(),
            judged: item.judged.to_string(),
            workflow: item.workflow.clone(),
            id: item.id.clone(),
            title: item.title.clone(),
            state: ItemStateName::of(item.state),
            attempt: item.attempt,
            version: item.version.to_string(),
            run: item.run.to_string(),
            created: time(item.created),
            updated: time(item.updated),
            failure: item.failure.as_ref().map(ItemFailure::of),
        }
    }
}

/// An item with the mutations of one attempt at it.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemShown {
    /// The item.
    #[serde(flatten)]
    pub item: Item,
    /// The attempt that the mutations are of.
    pub mutations_of: u32,
    /// Its mutations, in the order they were first asked for; the first 1000.
    pub mutations: Vec<Mutation>,
}

/// A change of the world that belongs to an item.
#[derive(Debug, Serialize, ToSchema)]
pub struct Mutation {
    /// Its key.
    pub key: String,
    /// The attempt of the ledger's that is the newest.
    pub judged: String,
    /// The attempt at the item that it belongs to.
    pub attempt: u32,
    /// The tool.
    pub tool: String,
    /// What it did.
    pub operation: String,
    /// To what.
    pub target: String,
    /// Which.
    #[schema(value_type = Value)]
    pub identity: Option<Box<RawValue>>,
    /// How.
    #[schema(value_type = Value)]
    pub payload: Option<Box<RawValue>>,
    /// What sets it apart from others like it.
    pub subkey: Option<String>,
    /// Where it stands.
    #[schema(value_type = MutationStateName)]
    pub state: &'static str,
    /// Why, where there is a reason.
    pub reason: Option<String>,
    /// What came of it, if it was applied.
    #[schema(value_type = Option<Value>)]
    pub result: Option<Box<RawValue>>,
    /// How often it was attempted.
    pub attempts: u32,
    /// Whether somebody can look whether it happened.
    pub verifiable: bool,
    /// How often somebody looked and could not tell.
    pub looks: u32,
    /// When it last changed.
    pub updated: String,
}

/// The names of the states of mutations, for the schema.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum MutationStateName {
    InFlight,
    Applied,
    Failed,
    NeedsReconcile,
    Indeterminate,
}

impl Mutation {
    /// A mutation.
    pub fn of(mutation: &MutationView) -> Self {
        Self {
            key: mutation.key.to_string(),
            judged: mutation.judged.to_string(),
            attempt: mutation.attempt,
            tool: mutation.tool.clone(),
            operation: mutation.operation.clone(),
            target: mutation.target.clone(),
            identity: raw(&mutation.identity),
            payload: raw(&mutation.payload),
            subkey: mutation.subkey.clone(),
            state: mutation.state.as_str(),
            reason: mutation.reason.clone(),
            result: mutation.result.as_ref().and_then(raw),
            attempts: mutation.attempts,
            verifiable: mutation.verifiable,
            looks: mutation.looks,
            updated: time(mutation.updated),
        }
    }
}

fn raw(json: &Json) -> Option<Box<RawValue>> {
    RawValue::from_string(hapax::document::print(json)).ok()
}

/// What a person is asked.
#[derive(Debug, Serialize, ToSchema)]
pub struct Escalation {
    /// The key of the item, or of the run.
    pub key: String,
    /// The attempt that a decision names.
    pub judged: String,
    /// Its workflow.
    pub workflow: String,
    /// The item, if it is about one.
    pub item: Option<Item>,
    /// The run, if it failed outside of any item.
    pub run: Option<Run>,
    /// Why somebody is asked.
    pub reason: String,
    /// The mutations whose outcome nobody knows.
    pub unknown: Vec<UnknownMutation>,
    /// The mutation that the item stopped at, where its outcome is known.
    pub stopped_at: Option<UnknownMutation>,
    /// What can be done.
    pub actions: Vec<ActionName>,
}

/// A mutation that somebody is asked about.
#[derive(Debug, Serialize, ToSchema)]
pub struct UnknownMutation {
    /// Which.
    pub mutation: Mutation,
    /// What was tried.
    pub tried: String,
    /// Why its outcome is unknown, or what is known.
    pub why: String,
    /// Whether it can be verified, and how.
    pub verify: String,
    /// What to check by hand.
    pub check: String,
}

impl Escalation {
    /// An escalation.
    pub fn of(escalation: &hapax_items::Escalation) -> Self {
        let unknown = |explained: &Explained| UnknownMutation {
            mutation: Mutation::of(&explained.mutation),
            tried: explained.tried.clone(),
            why: explained.why.clone(),
            verify: explained.verify.clone(),
            check: explained.check.clone(),
        };
        Self {
            key: escalation.key.to_string(),
            judged: escalation.judged.to_string(),
            workflow: escalation.workflow.clone(),
            item: escalation.item.as_ref().map(Item::of),
            run: escalation.run.as_ref().map(Run::of),
            reason: escalation.reason.clone(),
            unknown: escalation.unknown.iter().map(unknown).collect(),
            stopped_at: escalation.stopped_at.as_ref().map(unknown),
            actions: escalation.actions.iter().copied().map(ActionName::of).collect(),
        }
    }
}

/// A repair that waits for approval.
#[derive(Debug, Serialize, ToSchema)]
pub struct HeldRepair {
    /// The workflow.
    pub workflow: String,
    /// The version that would be used.
    pub version: String,
    /// The attempt that a decision names.
    pub attempt: String,
    /// Why somebody is asked.
    pub reason: Option<String>,
    /// What the maintainer says about it.
    pub explanation: Option<String>,
}

impl HeldRepair {
    /// A version that is held.
    pub fn of(script: &Script) -> Self {
        Self {
            workflow: script.workflow.clone(),
            version: script.version.to_string(),
            attempt: script.attempt.to_string(),
            reason: script.reason.clone(),
            explanation: script.repair.as_ref().map(|repair| repair.explanation.clone()),
        }
    }
}

/// What a person may say.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ActionName {
    /// Look again whether it happened, or, where nothing is unknown, run it again.
    TryAgain,
    /// It did not happen, and may be attempted again.
    DidNotHappen,
    /// It happened, with this result.
    Happened,
    /// Let the item go.
    Skip,
    /// Begin a new attempt, which consults none of this one.
    Reprocess,
}

impl ActionName {
    fn of(action: hapax_items::Action) -> Self {
        match action {
            hapax_items::Action::TryAgain => Self::TryAgain,
            hapax_items::Action::DidNotHappen => Self::DidNotHappen,
            hapax_items::Action::Happened => Self::Happened,
            hapax_items::Action::Skip => Self::Skip,
            hapax_items::Action::Reprocess => Self::Reprocess,
        }
    }

    pub(crate) fn meant(self) -> hapax_items::Action {
        match self {
            Self::TryAgain => hapax_items::Action::TryAgain,
            Self::DidNotHappen => hapax_items::Action::DidNotHappen,
            Self::Happened => hapax_items::Action::Happened,
            Self::Skip => hapax_items::Action::Skip,
            Self::Reprocess => hapax_items::Action::Reprocess,
        }
    }
}

/// What a person decided about an escalation.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Act {
    /// What to do.
    pub action: ActionName,
    /// The attempt that the person was shown.
    #[schema(pattern = "^att_[0-9a-f]{32}$")]
    pub attempt: String,
    /// With `happened`: what came of it; `null` if nothing did.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Value>)]
    pub result: Option<Box<RawValue>>,
    /// Why; kept in the journal.
    #[schema(min_length = 1, max_length = 4096)]
    pub note: String,
}

/// `null` is something that was given.
fn given<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(reader).map(Some)
}

/// What became of a decision: how the item or the run stands now.
#[derive(Debug, Serialize, ToSchema)]
pub struct Acted {
    /// The item, if it was about one.
    pub item: Option<Item>,
    /// The run, if it was about one.
    pub run: Option<RunSummary>,
}

/// Begins a new attempt at an item.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Reprocess {
    /// The attempt that was looked at.
    #[schema(pattern = "^att_[0-9a-f]{32}$")]
    pub attempt: String,
    /// Why; kept in the journal.
    #[schema(min_length = 1, max_length = 4096)]
    pub note: String,
}
