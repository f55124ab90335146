//! Items, their mutations, and their escalations.

use hapax::Timestamp;
use hapax::json::Json;
use hapax_items::{ItemState, ItemView, MutationExplanation, MutationView, Script};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::time;
use super::workflow::{Run, RunSummary};

/// Why a run or an item did not finish.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemFailure {
    /// `transient`, `logic`, `permission`, `precondition` or `indeterminate`.
    pub class: &'static str,
    /// The error message.
    pub message: String,
    /// The stack trace, if the script failed.
    pub stack: Option<String>,
    /// The next step: `retry`, `repair`, `reconcile`, `escalate`, or `wait` for the decision on an
    /// open escalation.
    pub next: String,
    /// When it is retried.
    pub retry_at: Option<String>,
    /// The key of the mutation that it failed at.
    pub mutation: Option<String>,
    /// The arguments of that mutation, as JSON; only the beginning, if they are long.
    pub asked: Option<String>,
}

impl ItemFailure {
    /// The document of a failure.
    pub fn of(failure: &hapax_items::FailureRecord) -> Self {
        let stamp = |ms: u64| time(Timestamp(i64::try_from(ms).unwrap_or(i64::MAX)));
        Self {
            class: failure.class.as_str(),
            message: failure.message.clone(),
            stack: failure.stack.clone(),
            next: failure.next.clone(),
            retry_at: failure.retry_at.map(stamp),
            mutation: failure.mutation.as_ref().map(|mutation| mutation.key.to_string()),
            asked: failure.mutation.as_ref().map(|mutation| mutation.payload.clone()),
        }
    }
}

/// An item.
#[derive(Debug, Serialize, ToSchema)]
pub struct Item {
    /// Its key, which is also the key of its escalation.
    pub key: String,
    /// The attempt that a decision names.
    pub judged: String,
    /// Its workflow.
    pub workflow: String,
    /// Its id.
    pub id: String,
    /// Its title, for people.
    pub title: String,
    /// The state it is in.
    pub state: ItemStateName,
    /// The current attempt at it, from 1.
    pub attempt: u32,
    /// The version of the script that processed it last.
    pub version: String,
    /// The key of that run.
    pub run: String,
    /// When a run first took it up.
    pub created: String,
    /// When it last changed.
    pub updated: String,
    /// Why its handler did not finish.
    pub failure: Option<ItemFailure>,
}

/// The state of an item.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ItemStateName {
    /// A run is processing it.
    Processing,
    /// Its handler finished.
    Done,
    /// Its handler did not finish; the next run takes it up again.
    Failed,
    /// A person decided to skip it.
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

    pub(crate) fn to_domain(self) -> ItemState {
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
    /// The document of an item.
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
    /// The attempt at the item that the mutations belong to.
    pub mutations_of: u32,
    /// The mutations, in the order in which the script first requested them; at most 1000.
    pub mutations: Vec<Mutation>,
}

/// A mutation: a change outside of the ledger that belongs to an item.
#[derive(Debug, Serialize, ToSchema)]
pub struct Mutation {
    /// Its key.
    pub key: String,
    /// The newest attempt, which a decision names.
    pub judged: String,
    /// The attempt at the item that it belongs to.
    pub attempt: u32,
    /// The tool.
    pub tool: String,
    /// The operation of the tool.
    pub operation: String,
    /// The target of the operation.
    pub target: String,
    /// The arguments that say which change it is; part of its key.
    #[schema(value_type = Value)]
    pub identity: Option<Box<RawValue>>,
    /// The other arguments; compared on replay, no part of its key.
    #[schema(value_type = Value)]
    pub payload: Option<Box<RawValue>>,
    /// Distinguishes it from mutations with the same identity.
    pub subkey: Option<String>,
    /// The state it is in.
    #[schema(value_type = MutationStateName)]
    pub state: &'static str,
    /// The reason for the state, if there is one.
    pub reason: Option<String>,
    /// The result, if it was applied and the result is known.
    #[schema(value_type = Option<Value>)]
    pub result: Option<Box<RawValue>>,
    /// How many attempts there were.
    pub attempts: u32,
    /// Whether the tool can look up whether it happened.
    pub verifiable: bool,
    /// How many lookups had no finding.
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
    /// The document of a mutation.
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

/// An escalation: a question that a person has to decide.
#[derive(Debug, Serialize, ToSchema)]
pub struct Escalation {
    /// The key of the item, or of the run.
    pub key: String,
    /// The attempt that a decision names.
    pub judged: String,
    /// Its workflow.
    pub workflow: String,
    /// The item, if the escalation is about one.
    pub item: Option<Item>,
    /// The run, if it failed outside of any item.
    pub run: Option<Run>,
    /// The reason for the escalation.
    pub reason: String,
    /// The mutations whose outcome, or whose result, is unknown.
    pub unknown: Vec<UnknownMutation>,
    /// The mutation that the item stopped at, where its outcome is known.
    pub stopped_at: Option<UnknownMutation>,
    /// The actions to choose from.
    pub actions: Vec<ActionName>,
}

/// A mutation that an escalation is about, with what is known of it.
#[derive(Debug, Serialize, ToSchema)]
pub struct UnknownMutation {
    /// The mutation.
    pub mutation: Mutation,
    /// The call that was tried.
    pub tried: String,
    /// Why its outcome or its result is unknown, or what is known.
    pub why: String,
    /// Whether the tool can verify it, and how.
    pub verify: String,
    /// A check that a person can make by hand.
    pub check: String,
}

impl Escalation {
    /// The document of an escalation.
    pub fn of(escalation: &hapax_items::Escalation) -> Self {
        let unknown = |explained: &MutationExplanation| UnknownMutation {
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
    /// The version that waits for approval.
    pub version: String,
    /// The attempt that a decision names.
    pub attempt: String,
    /// Why it needs approval.
    pub reason: Option<String>,
    /// The maintainer's explanation.
    pub explanation: Option<String>,
}

impl HeldRepair {
    /// The document of a version that is held.
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

/// An action on an escalation.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ActionName {
    /// Look up again whether it happened; if no outcome is unknown, run it again.
    TryAgain,
    /// It did not happen; it may be attempted again.
    DidNotHappen,
    /// It happened, with this result.
    Happened,
    /// Skip the item.
    Skip,
    /// Begin a new attempt at the item, which uses nothing of this one.
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

    pub(crate) fn to_domain(self) -> hapax_items::Action {
        match self {
            Self::TryAgain => hapax_items::Action::TryAgain,
            Self::DidNotHappen => hapax_items::Action::DidNotHappen,
            Self::Happened => hapax_items::Action::Happened,
            Self::Skip => hapax_items::Action::Skip,
            Self::Reprocess => hapax_items::Action::Reprocess,
        }
    }
}

/// The decision of a person about an escalation.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Act {
    /// The action.
    pub action: ActionName,
    /// The attempt that the person was shown.
    #[schema(pattern = "^att_[0-9a-f]{32}$")]
    pub attempt: String,
    /// With `happened`: the result; `null` if there is none.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Value>)]
    pub result: Option<Box<RawValue>>,
    /// The reason; kept in the journal.
    #[schema(min_length = 1, max_length = 4096)]
    pub note: String,
}

/// Reads `null` as a value that was given, not as an absent field.
fn given<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(reader).map(Some)
}

/// The answer to a decision: the state of the item or the run now.
#[derive(Debug, Serialize, ToSchema)]
pub struct Acted {
    /// The item, if the decision was about one.
    pub item: Option<Item>,
    /// The run, if the decision was about one.
    pub run: Option<RunSummary>,
}

/// The request to begin a new attempt at an item.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Reprocess {
    /// The attempt that the person was shown.
    #[schema(pattern = "^att_[0-9a-f]{32}$")]
    pub attempt: String,
    /// The reason; kept in the journal.
    #[schema(min_length = 1, max_length = 4096)]
    pub note: String,
}
