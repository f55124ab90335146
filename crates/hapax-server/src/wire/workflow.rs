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
    /// The active version of its script; null if none may be used.
    pub version: Option<String>,
    /// How many versions wait for approval.
    pub held: usize,
    /// Its schedule: a cron expression in UTC.
    pub schedule: Option<String>,
    /// When the schedule runs it next.
    pub next_run: Option<String>,
    /// Its newest run.
    pub newest_run: Option<RunSummary>,
}

/// A workflow with its tools, versions and newest items.
#[derive(Debug, Serialize, ToSchema)]
pub struct WorkflowShown {
    /// The workflow at a glance.
    #[serde(flatten)]
    pub workflow: Workflow,
    /// The tools that its script may use.
    pub tools: Vec<Tool>,
    /// The versions of its script, the newest first, without their source.
    pub versions: Vec<ScriptVersion>,
    /// Its newest items.
    pub items: Vec<Item>,
}

/// A tool that scripts may call.
#[derive(Debug, Serialize, ToSchema)]
pub struct Tool {
    /// Its name in scripts.
    pub tool: String,
    /// Its operations.
    pub operations: Vec<ToolOperation>,
}

/// An operation of a tool.
#[derive(Debug, Serialize, ToSchema)]
pub struct ToolOperation {
    /// Its name in scripts.
    pub operation: &'static str,
    /// Whether it changes anything outside of the ledger.
    pub mutates: bool,
}

impl Tool {
    /// The document of a tool.
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
    /// Whether it is the active version.
    pub active: bool,
    /// Whether it may be used.
    #[schema(value_type = StandingName)]
    pub standing: &'static str,
    /// The reason for that, for people.
    pub reason: Option<String>,
    /// The author.
    pub by: String,
    /// When it was recorded.
    pub made: String,
    /// The maintainer's account of it, if it is a repair.
    pub repair: Option<Repair>,
    /// The script, where it was requested.
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

/// A maintainer's account of a repair.
#[derive(Debug, Serialize, ToSchema)]
pub struct Repair {
    /// The version it repairs.
    pub of: String,
    /// The change, and the reason for it.
    pub explanation: String,
    /// Whether the fault may have made runs process items wrongly.
    pub impactful: bool,
    /// The cost, in thousandths of the unit that the maintainer counts in.
    pub cost: u64,
    /// The items that were processed while the fault existed, if a person has to decide.
    pub blast_radius: Vec<String>,
    /// Whether there are more of these items than are named.
    pub blast_radius_cut: bool,
}

impl ScriptVersion {
    /// A version without its source; `active` is the active one.
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
            standing: script.status.as_str(),
            reason: script.reason.clone(),
            by: script.by.clone(),
            made: time(script.made),
            repair,
            source: None,
        }
    }
}

/// The request to publish a script.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Publish {
    /// The script.
    #[schema(min_length = 1, max_length = 262_144)]
    pub source: String,
}

/// The answer to a published script.
#[derive(Debug, Serialize, ToSchema)]
pub struct Published {
    /// The version of the script: a new one, or the active one if that has the same source.
    pub version: String,
}

/// The request to begin a run.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BeginRun {
    /// An id of your own. A run that finished under it is not run again.
    #[schema(min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9._-]{1,128}$")]
    pub id: Option<String>,
}

/// A run, without its items and its log.
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
    /// The state it is in.
    #[schema(value_type = RunStateName)]
    pub state: &'static str,
    /// When it began.
    pub began: String,
    /// When it last changed.
    pub updated: String,
    /// The item that it stopped at.
    pub item: Option<String>,
    /// Why it did not finish.
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
    /// The run, without its items and its log.
    #[serde(flatten)]
    pub run: RunSummary,
    /// The items that it processed; only the last ones, if there were many. Recorded when the run ends.
    pub items: Vec<String>,
    /// The log of the script.
    pub log: Vec<String>,
}

impl RunSummary {
    /// The document of a run, without its items and its log.
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
    /// The document of a run.
    pub fn of(run: &RunView) -> Self {
        Self { run: RunSummary::of(run), items: run.items.clone(), log: run.log.clone() }
    }
}
