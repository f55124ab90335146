//! Repair: a maintainer is shown what went wrong, and proposes a better script.
//!
//! A proposal is checked before it is used: it can be read, builds item ids and subkeys as before,
//! uses no other tools, and does the same as the script before it on the recorded data. A repair of
//! a script that may have treated items wrongly waits for a person, and so does every unclear case.

use std::sync::Arc;

use async_trait::async_trait;
use hapax::document::{Object, text};
use hapax::json::Json;
use hapax::{Failure, Safety, StateName};
use hapax_script::Construction;

use crate::error::Error;
use crate::identity;
use crate::ledger::MutationView;
use crate::note::RunNote;
use crate::route::{BudgetUsage, NextStep, route};
use crate::sandbox;
use crate::script::{Draft, MAX_SCRIPT, RepairDetails, Script, VersionStatus};
use crate::service::{Items, Settings};
use crate::version::Version;

mod dry;
mod program;

use dry::TrialResult;
pub use program::Program;

/// The instructions for an agent that writes scripts.
pub const PLANNER: &str = include_str!("instructions/planner.md");

/// The instructions for an agent that repairs them.
pub const MAINTAINER: &str = include_str!("instructions/maintainer.md");

/// A maintainer of scripts: a program, a service, a person with an editor.
#[async_trait]
pub trait Maintainer: Send + Sync + 'static {
    /// Proposes a better script. The evidence is a JSON document; so is the proposal:
    /// `{"script", "impact": "safe" | "potentially_impactful", "explanation", "cost"}`. A question
    /// that is sent again, because it is unknown whether it was answered, has the same id.
    async fn propose(&self, id: &str, evidence: &str) -> Result<String, String>;
}

/// The longest proposal that is read, in bytes.
pub const MAX_PROPOSAL: usize = 1024 * 1024;

/// The result of a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repair {
    /// The next run uses it.
    Activated(Version),
    /// A person has to approve it.
    Held(Version),
    /// There is no proposal that could be used.
    Refused(String),
}

/// A maintainer's proposal.
struct Proposal {
    script: String,
    safe: bool,
    explanation: String,
    cost: u64,
}

/// The result of the checks of a proposal.
enum ProposalCheck {
    Fits,
    Unsure(String),
    Unfit(String),
}

/// How many items are named that were processed while a fault existed.
const BLAST_RADIUS: usize = 1_000;

/// # Repair
impl Items {
    /// Has the maintainer repair the script that the newest run failed on, as often as the
    /// budget allows.
    pub async fn repair(&self, workflow: &str) -> Result<Repair, Error> {
        self.repair_run(workflow, None).await
    }

    /// The same for the run of this id.
    pub(crate) async fn repair_run(
        &self,
        workflow: &str,
        id: Option<&str>,
    ) -> Result<Repair, Error> {
        let settings = self.settings(workflow);
        let Some(maintainer) = settings.maintainer.clone() else {
            return Ok(Repair::Refused("no maintainer is set up to repair the script".into()));
        };
        let Some((run, note)) = self.run_or_newest(workflow, id).await? else {
            return Err(Error::NotFound(format!("run of workflow {workflow:?}")));
        };
        let failed = note.failure.as_ref().filter(|_| run.effect.state.name() == StateName::Failed);
        let Some(failure) = failed else {
            return Err(Error::Invalid(format!("the run of {workflow} has not failed")));
        };
        loop {
            let script = self.script(workflow).await?;
            // The proposals since then, the newest first.
            let mut proposed = self.scripts(workflow).await?;
            proposed.retain(|other| other.version > script.version);
            let newest = proposed.iter().map(|other| other.version);
            let newest = newest.filter(|version| version.major == script.version.major).max();
            let version = newest.unwrap_or(script.version).next_minor();
            // The maintainer gets no new request while a person has to decide about the last
            // proposal.
            if let Some(held) = proposed.iter().find(|other| other.status == VersionStatus::Held) {
                return Ok(Repair::Held(held.version));
            }
            let refused = proposed.into_iter().next().and_then(|newest| newest.reason);
            let (repairs, cost) = self.repaired(workflow, script.version, &settings).await?;
            let spent = BudgetUsage { failures: 1, repairs, cost, ..BudgetUsage::default() };
            if route(failure.class, spent, &settings.budget, true) != NextStep::Repair {
                let why = refused.unwrap_or_else(|| "the budget is spent".to_owned());
                return Ok(Repair::Refused(format!("it could not be repaired: {why}")));
            }
            let evidence = self.evidence(&settings, &script, &note, refused.as_deref()).await?;
            let answer =
                self.request_proposal(&*maintainer, run.name.key, version, &evidence).await?;
            match self.consider(&settings, &script, &note, version, answer).await? {
                Repair::Refused(_) => {}
                repair => return Ok(repair),
            }
        }
    }

    /// Sends a maintainer one request for each version that may come of it: no answer is paid for
    /// twice.
    async fn request_proposal(
        &self,
        maintainer: &dyn Maintainer,
        run: hapax::Key,
        version: Version,
        evidence: &str,
    ) -> Result<Result<String, String>, Error> {
        let key = identity::repair(run, version)?;
        let effect = self.hapax().effect(key).safety(Safety::Transactional).label("repair");
        let answered = effect.run(|_| async {
            let proposal = maintainer.propose(&key.to_string(), evidence).await;
            proposal.map_err(Failure::not_done)
        });
        match answered.await {
            Ok(done) => {
                let body = done.body().map(|body| String::from_utf8_lossy(body).into_owned());
                Ok(body.ok_or_else(|| "the proposal was too large to keep".to_owned()))
            }
            Err(hapax::Error::Failed { reason }) => Ok(Err(reason)),
            Err(error) => Err(error.into()),
        }
    }

    /// Checks a proposal and records the verdict.
    async fn consider(
        &self,
        settings: &Arc<Settings>,
        script: &Script,
        note: &RunNote,
        version: Version,
        answer: Result<String, String>,
    ) -> Result<Repair, Error> {
        let proposal = answer.and_then(|answer| read(&answer));
        let (proposal, checked) = match proposal {
            Ok(proposal) => {
                let checked = self.check(settings, script, note, &proposal).await?;
                (proposal, checked)
            }
            Err(why) => {
                let (source, explanation) = (String::new(), String::new());
                let nothing = Proposal { script: source, safe: false, explanation, cost: 0 };
                (nothing, ProposalCheck::Unfit(why))
            }
        };
        // The reviewer is shown the items that the fault may concern.
        let (blast_radius, blast_radius_cut) =
            match proposal.safe && !matches!(checked, ProposalCheck::Unsure(_)) {
                true => (Vec::new(), false),
                false => self.blast_radius(&script.workflow, script.version).await?,
            };
        let draft = Draft {
            version,
            source: proposal.script,
            by: "maintainer".into(),
            repair: Some(RepairDetails {
                of: script.version,
                explanation: proposal.explanation,
                impactful: !proposal.safe,
                cost: proposal.cost,
                blast_radius,
                blast_radius_cut,
            }),
        };
        let (verdict, repair) = match checked {
            ProposalCheck::Unfit(why) => (Err(Failure::not_done(&why)), Repair::Refused(why)),
            ProposalCheck::Unsure(why) => (Err(Failure::ambiguous(why)), Repair::Held(version)),
            ProposalCheck::Fits if !proposal.safe => {
                let why = "potentially impactful: items may have been dealt with wrongly";
                (Err(Failure::ambiguous(why)), Repair::Held(version))
            }
            ProposalCheck::Fits => (Ok(()), Repair::Activated(version)),
        };
        self.record(&settings.name, &draft, verdict).await?;
        Ok(repair)
    }

    async fn check(
        &self,
        settings: &Arc<Settings>,
        script: &Script,
        note: &RunNote,
        proposal: &Proposal,
    ) -> Result<ProposalCheck, Error> {
        if let Err(error) = sandbox::check(&proposal.script) {
            return Ok(ProposalCheck::Unfit(format!("it cannot be read: {error}")));
        }
        let tools = self.tools_of(settings);
        let tools: Vec<&str> = tools.keys().map(String::as_str).collect();
        match differences(&script.source, &proposal.script, &tools) {
            Ok(none) if none.is_empty() => {}
            Ok(some) => return Ok(ProposalCheck::Unfit(some.join("; "))),
            Err(error) => return Ok(ProposalCheck::Unfit(error)),
        }
        Ok(match self.dry_run(settings, note, &proposal.script).await? {
            TrialResult::Fits => ProposalCheck::Fits,
            TrialResult::Unsure(why) => ProposalCheck::Unsure(why),
            TrialResult::Unfit(why) => ProposalCheck::Unfit(why),
        })
    }

    /// All versions of a workflow's script, the newest first, for a person to look at. A held
    /// version lists the items that it may concern by now, because the faulty version stays in use
    /// until a person decides.
    pub async fn scripts_shown(&self, workflow: &str) -> Result<Vec<Script>, Error> {
        let mut scripts = self.scripts(workflow).await?;
        for script in scripts.iter_mut().filter(|script| script.status == VersionStatus::Held) {
            let Some(repair) = &mut script.repair else { continue };
            (repair.blast_radius, repair.blast_radius_cut) =
                self.blast_radius(workflow, repair.of).await?;
        }
        Ok(scripts)
    }

    /// Items that were processed by the faulty version or by an earlier one of its major version,
    /// and whether there are more than are named.
    async fn blast_radius(
        &self,
        workflow: &str,
        fault: Version,
    ) -> Result<(Vec<String>, bool), Error> {
        let (mut touched, mut beyond) = (Vec::new(), None);
        loop {
            let page = self.page(workflow, &[], beyond, BLAST_RADIUS).await?;
            let items = page
                .items
                .into_iter()
                .filter(|item| item.version.major == fault.major && item.version <= fault);
            touched.extend(items.map(|item| item.id));
            beyond = page.next;
            if touched.len() > BLAST_RADIUS || beyond.is_none() {
                let cut = touched.len() > BLAST_RADIUS;
                touched.truncate(BLAST_RADIUS);
                return Ok((touched, cut));
            }
        }
    }

    /// The evidence for a maintainer.
    async fn evidence(
        &self,
        settings: &Settings,
        script: &Script,
        note: &RunNote,
        refused: Option<&str>,
    ) -> Result<String, Error> {
        let tools = self.tools_of(settings);
        let tools = tools.iter().map(|(name, tool)| {
            let operations = tool.operations().iter().map(|operation| {
                let object = Object::default().text("name", operation.name);
                object.with("mutates", Json::Bool(operation.mutates)).json()
            });
            let operations = Json::Array(operations.collect());
            Object::default().text("name", name.as_str()).with("operations", operations).json()
        });
        let document = Object::default()
            .text("instructions", MAINTAINER)
            .text("workflow", settings.name.as_str())
            .text("version", script.version.to_string().as_str())
            .text("script", script.source.as_str())
            .list("tools", tools)
            .list("log", note.log.iter().map(|line| Json::text(line)))
            .text("refused", refused);
        let document = match &note.failure {
            Some(failure) => {
                let object = Object::default()
                    .text("class", failure.class.as_str())
                    .text("message", failure.message.as_str())
                    .text("stack", failure.stack.as_deref())
                    .text("item", note.item.as_deref());
                document.with("failure", object.json())
            }
            None => document,
        };
        let document = match &note.item {
            Some(id) => {
                let item = self.show(&settings.name, id).await?;
                let mutations = self.mutations(item.key, item.attempt).await?;
                let object = Object::default()
                    .text("id", item.id.as_str())
                    .text("title", item.title.as_str())
                    .number("attempt", u64::from(item.attempt))
                    .text("state", item.state.as_str());
                document
                    .with("item", object.json())
                    .list("mutations", mutations.iter().map(mutation))
            }
            None => document,
        };
        Ok(document.print())
    }
}

/// Everything that keeps a script from replacing another, according to its syntax tree: item ids or
/// subkeys that are built otherwise, other tools.
pub fn differences(before: &str, after: &str, tools: &[&str]) -> Result<Vec<String>, String> {
    let unread =
        |which: &str, error: &dyn std::fmt::Display| format!("the script {which}: {error}");
    let before = Construction::of(before, tools).map_err(|error| unread("before", &error))?;
    let after = Construction::of(after, tools).map_err(|error| unread("after", &error))?;
    Ok(after.differences(&before).iter().map(ToString::to_string).collect())
}

/// The evidence about a mutation: neither its payload nor its result.
fn mutation(mutation: &MutationView) -> Json {
    Object::default()
        .text("tool", mutation.tool.as_str())
        .text("operation", mutation.operation.as_str())
        .text("target", mutation.target.as_str())
        .with("identity", mutation.identity.clone())
        .text("subkey", mutation.subkey.as_deref())
        .text("state", mutation.state.as_str())
        .json()
}

fn read(answer: &str) -> Result<Proposal, String> {
    let json = Json::parse(answer.as_bytes()).map_err(|error| format!("no JSON: {error}"))?;
    let script = text(&json, "script").ok_or("no member `script` that is a text")?;
    if script.len() > MAX_SCRIPT {
        return Err(format!("a script of {} bytes; at most {MAX_SCRIPT}", script.len()));
    }
    let cost = match json.get("cost") {
        Some(Json::Number(number)) => number.as_str().parse::<f64>().unwrap_or(f64::MAX),
        _ => 0.0,
    };
    Ok(Proposal {
        script,
        // Only the word `safe` makes a repair safe.
        safe: text(&json, "impact").as_deref() == Some("safe"),
        explanation: text(&json, "explanation").unwrap_or_default().chars().take(4_000).collect(),
        cost: (cost.max(0.0) * 1_000.0).ceil().min(1e15) as u64,
    })
}
