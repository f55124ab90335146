//! Workflows, the versions of their scripts, and their runs.

use hapax_items::{Operation, RunView, Script, Version};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::items::{Item, ItemFailure};
use super::time;

/// A workflow at a glance.
#[derive(Debug, Serialize, ToSchema)]
pub struct Workflow {
    /// Its name.
    pub workflow: String,
    /// The version of its script that counts; nothing if none may be used.
    pub version: Option<String>,
    /// How many versions wait for a person.
    pub held: usize,
    /// When it runs by itself: a cron expression in UTC.
    pub schedule: Option<String>,
    /// When it runs next by itself.
    pub next_run: Option<String>,
    /// Its newest run.
    pub newest_run: Option<RunSummary>,
}

/// A workflow with what belongs to it.
#[derive(Debug, Serialize, ToSchema)]
pub struct WorkflowShown {
    /// At a glance.
    #[serde(flatten)]
    pub workflow: Workflow,
    /// The tools that its script may use.
    pub tools: Vec<Tool>,
    /// The versions of its script, the newest first, without their source.
    pub versions: Vec<ScriptVersion>,
    /// Its newest items.
    pub items: Vec<Item>,
}

/// Something that scripts may call.
#[derive(Debug, Serialize, ToSchema)]
pub struct Tool {
    /// What scripts call it.
    pub tool: String,
    /// What it can do.
    pub operations: Vec<ToolOperation>,
}

/// One thing that a tool can do.
#[derive(Debug, Serialize, ToSchema)]
pub struct ToolOperation {
    /// What scripts call it.
    pub operation: &'static str,
    /// Whether it changes anything outside.
    pub mutates: bool,
}

impl Tool {
    /// A tool.
    pub fn of((tool, operations): (String, Vec<Operation>)) -> Self {
        let operations = operations
            .into_iter()
            .map(|Operation { name: operation, mutates }| ToolOperation { operation, mutates });
        Self { tool, operations: operations.collect() }
    }
}

/// A version of a script.
#[derive(Debug, Serialize, ToSchema)]
pub struct ScriptVersion {
    /// Its key.
    pub key: String,
    /// The attempt that a decision names.
    pub judged: String,
    /// `major.minor`: an author raises the first number, a repair the second.
    pub version: String,
    /// Whether it is the one that counts.
    pub active: bool,
    /// What became of it.
    #[schema(value_type = StandingName)]
    pub standing: &'static str,
    /// Why it stands there, for people.
    pub reason: Option<String>,
    /// Who made it.
    pub by: String,
    /// When.
    pub made: String,
    /// What a repair says of itself.
    pub repair: Option<Repair>,
    /// The script, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// The names of standings, for the schema.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum StandingName {
    Usable,
    Held,
    Rejected,
    Refused,
}

/// What a repair says of itself.
#[derive(Debug, Serialize, ToSchema)]
pub struct Repair {
    /// The version it repairs.
    pub of: String,
    /// What it changes, and why.
    pub explanation: String,
    /// Whether items may have been dealt with wrongly while the fault existed.
    pub impactful: bool,
    /// What it cost, in thousandths of whatever the maintainer counts in.
    pub cost: u64,
    /// Items that were processed while the fault existed, if a person has to decide.
    pub blast_radius: Vec<String>,
    /// Whether there are more of them than are named.
    pub blast_radius_cut: bool,
}

impl ScriptVersion {
    /// A version without its source; `active` is the one that counts.
    pub fn of(script: &Script, active: Option<Version>) -> Self {
        let repair = script.repair.as_ref().map(|repair| Repair {
            of: repair.of.to_string(),
            explanation: repair.explanation.clone(),
            impactful: repair.impactful,
            cost: repair.cost,
            blast_radius: repair.blast_radius.clone(),
            blast_radius_cut: repair.blast_radius_cut,
        });
        Self {
            key: script.key.to_string(),
            judged: script.attempt.to_string(),
            version: script.version.to_string(),
            active: active == Some(script.version),
            standing: script.standing.as_str(),
            reason: script.reason.clone(),
            by: script.by.clone(),
            made: time(script.made),
            repair,
            source: None,
        }
    }
}

/// A script to be published.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Publish {
    /// The script.
    #[schema(min_length = 1, max_length = 262_144)]
    pub source: String,
}

/// A script that was published.
#[derive(Debug, Serialize, ToSchema)]
pub struct Published {
    /// The version it has: a new one, or the one that counts already if it is the same.
    pub version: String,
}

/// A run to be begun.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BeginRun {
    /// An id of your own. A run that has come to its end under it is not run again.
    #[schema(min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9._-]{1,128}$")]
    pub id: Option<String>,
}

/// A run, without what it said.
#[derive(Debug, Serialize, ToSchema)]
pub struct RunSummary {
    /// Its key.
    pub key: String,
    /// The attempt that a decision names.
    pub judged: String,
    /// Its workflow.
    pub workflow: String,
    /// Its id.
    pub id: String,
    /// The version of the script.
    pub version: String,
    /// Where it stands.
    #[schema(value_type = RunStateName)]
    pub state: &'static str,
    /// When it began.
    pub began: String,
    /// When it last changed.
    pub updated: String,
    /// The item it stopped at.
    pub item: Option<String>,
    /// Why it did not come to its end.
    pub failure: Option<ItemFailure>,
}

/// The names of the states of runs, for the schema.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum RunStateName {
    Running,
    Succeeded,
    Failed,
    NeedsAttention,
    Skipped,
}

/// A run.
#[derive(Debug, Serialize, ToSchema)]
pub struct Run {
    /// Without what it said.
    #[serde(flatten)]
    pub run: RunSummary,
    /// The items it took up, the last ones if there were many. While it runs, those are not told.
    pub items: Vec<String>,
    /// What the script said.
    pub log: Vec<String>,
}

impl RunSummary {
    /// A run.
    pub fn of(run: &RunView) -> Self {
        Self {
            key: run.key.to_string(),
            judged: run.judged.to_string(),
            workflow: run.workflow.clone(),
            id: run.id.clone(),
            version: run.version.to_string(),
            state: run.state,
            began: time(run.began),
            updated: time(run.updated),
            item: run.item.clone(),
            failure: run.failure.as_ref().map(ItemFailure::of),
        }
    }
}

impl Run {
    /// A run.
    pub fn of(run: &RunView) -> Self {
        Self { run: RunSummary::of(run), items: run.items.clone(), log: run.log.clone() }
    }
}
