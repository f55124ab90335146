//! Tries a repaired script against the records of a run: no tool is called, nothing is changed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, mpsc};

use hapax::Key;
use hapax::document::print;
use hapax::json::Json;
use hapax_core::key::mutation::Mutation;

use crate::error::Error;
use crate::ledger::{ItemView, MutationView, SHOWN};
use crate::note::{Read, RunNote};
use crate::run::now_ms;
use crate::sandbox::{self, Host, ItemStart, RunEnd, Stop};
use crate::scope::{COMPARING, seed, split};
use crate::service::{Items, Settings};
use crate::state::{ItemState, MutationState};
use crate::tool::{Difference, Tool, operations};

/// The result of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TrialResult {
    /// It repeats the recorded steps, and goes on from there.
    Fits,
    /// The records are not enough to decide.
    Unsure(String),
    /// It would do something again or otherwise, or fail.
    Unfit(String),
}

impl Items {
    /// Tries a script against the records of a run that failed.
    pub(super) async fn dry_run(
        &self,
        settings: &Arc<Settings>,
        note: &RunNote,
        source: &str,
    ) -> Result<TrialResult, Error> {
        if note.unnamed > 0 {
            return Ok(TrialResult::Unsure(format!(
                "of {} items only the last are kept",
                note.count()
            )));
        }
        let mut items = HashMap::new();
        for id in &note.items {
            let item = self.show(&settings.name, id).await?;
            // A script may change nothing for an item that is done, so its mutations are not
            // needed.
            let mutations = match item.state {
                ItemState::Done | ItemState::Skipped => Vec::new(),
                _ => self.mutations(item.key, item.attempt).await?,
            };
            if mutations.len() == SHOWN {
                return Ok(TrialResult::Unsure(format!("{id:?} has more than {SHOWN} mutations")));
            }
            let mutations = mutations.into_iter().map(|mutation| (mutation.key, mutation));
            items.insert(id.clone(), (item, mutations.collect()));
        }
        let tools = self.tools_of(settings);
        let mut recorded = RecordedRun {
            namespace: self.hapax().namespace().as_str().to_owned(),
            workflow: settings.name.clone(),
            tools,
            items,
            expected: note.items.iter().rev().cloned().collect(),
            reads: note.reads.clone(),
            reads_cut: note.reads_cut,
            open: None,
            verdict: None,
        };
        let (settings, source) = (settings.clone(), source.to_owned());
        let tried = tokio::task::spawn_blocking(move || recorded.try_out(&settings, &source)).await;
        Ok(tried.unwrap_or_else(|_| TrialResult::Unsure("the trial was cut short".into())))
    }
}

/// The records of a run that failed.
struct RecordedRun {
    namespace: String,
    workflow: String,
    tools: BTreeMap<String, Arc<dyn Tool>>,
    items: HashMap<String, (ItemView, HashMap<Key, MutationView>)>,
    /// The items that come next, the next one last.
    expected: Vec<String>,
    reads: Vec<Read>,
    reads_cut: bool,
    /// The item that is open, and the mutations that were requested again.
    open: Option<(String, HashSet<Key>)>,
    verdict: Option<TrialResult>,
}

impl RecordedRun {
    fn try_out(&mut self, settings: &Settings, source: &str) -> TrialResult {
        let (tools, limits) = (operations(&self.tools), &settings.limits);
        let ended = sandbox::run(source, &settings.name, tools, now_ms() as i64, limits, self);
        if let Some(verdict) = self.verdict.take() {
            return verdict;
        }
        match (ended, self.expected.last()) {
            (RunEnd::Completed, None) => TrialResult::Fits,
            (RunEnd::Completed, Some(id)) => {
                TrialResult::Unsure(format!("it no longer comes to item {id:?}"))
            }
            (RunEnd::Threw { message, .. }, _) => {
                TrialResult::Unfit(format!("it still fails: {message}"))
            }
            (ended, _) => TrialResult::Unfit(format!("it does not come to its end: {ended:?}")),
        }
    }

    fn say(&mut self, verdict: TrialResult) -> Stop {
        self.verdict.get_or_insert(verdict);
        Stop
    }

    fn unfit(&mut self, why: String) -> Stop {
        self.say(TrialResult::Unfit(why))
    }

    fn mutate(
        &mut self,
        tool: &Arc<dyn Tool>,
        operation: &str,
        arguments: &Json,
    ) -> Result<String, Stop> {
        let name = format!("{}.{operation}", tool.name());
        let Some((id, mut repeated)) = self.open.take() else {
            return Err(self.unfit(format!("{name} outside of any item")));
        };
        let Some((item, recorded)) = self.items.get(&id) else { return Err(Stop) };
        let (state, attempt) = (item.state, item.attempt);
        let planned = split(arguments.clone()).and_then(|(subkey, arguments)| {
            let plan = tool.plan(operation, &arguments).map_err(|error| error.to_string())?;
            let mutation = Mutation {
                namespace: &self.namespace,
                workflow: &self.workflow,
                item_id: &id,
                attempt: u64::from(attempt),
                tool: tool.name(),
                target_resource: &plan.target,
                operation,
                identity: &plan.identity,
                subkey: subkey.as_deref(),
            };
            let key = mutation.key().map_err(|error| error.to_string())?;
            Ok((key, plan))
        });
        let (key, plan) = match planned {
            Ok(planned) => planned,
            Err(why) => return Err(self.unfit(format!("{name}: {why}"))),
        };
        let known = recorded.get(&key).filter(|known| known.state == MutationState::Applied);
        let known = known.cloned();
        let omitted = find_omitted(recorded, &repeated);
        if matches!(state, ItemState::Done | ItemState::Skipped) {
            return Err(self.unfit(format!("{name} on {id:?}, which is done")));
        }
        if !repeated.insert(key) {
            return Err(self.unfit(format!("a second {name} of the same for {id:?}")));
        }
        self.open = Some((id.clone(), repeated));
        let Some(known) = known else {
            // From here on there are no records.
            let verdict = match omitted {
                Some(omitted) => TrialResult::Unfit(format!(
                    "{omitted} was applied for {id:?}; it would be left out, or applied again under \
                     another key, before {name}"
                )),
                None => TrialResult::Fits,
            };
            return Err(self.say(verdict));
        };
        let same = print(&known.payload) == print(&plan.payload);
        let near = same
            || compare(tool, operation, (known.payload.clone(), plan.payload))
                != Difference::Significant;
        match (near, &known.result) {
            (true, Some(result)) => Ok(print(result)),
            (true, None) => Err(self.say(TrialResult::Unsure(format!("{name} has no result")))),
            (false, _) => {
                Err(self.unfit(format!("{name} was applied for {id:?} with another payload")))
            }
        }
    }
}

/// An applied mutation that the script did not request again.
fn find_omitted(recorded: &HashMap<Key, MutationView>, repeated: &HashSet<Key>) -> Option<String> {
    let omitted = recorded.values().find(|mutation| {
        mutation.state == MutationState::Applied && !repeated.contains(&mutation.key)
    });
    omitted.map(|mutation| format!("{}.{}", mutation.tool, mutation.operation))
}

/// The tool's comparison of two payloads. If the tool panics or stalls, the difference is
/// significant.
fn compare(tool: &Arc<dyn Tool>, operation: &str, (one, other): (Json, Json)) -> Difference {
    let (tool, operation) = (tool.clone(), operation.to_owned());
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        // The receiver is gone if the comparison took too long.
        let _ = sender.send(tool.compare_payload(&operation, &one, &other));
    });
    receiver.recv_timeout(COMPARING).unwrap_or(Difference::Significant)
}

impl Host for RecordedRun {
    fn begin(&mut self, id: &str, _: &str) -> Result<ItemStart, Stop> {
        match self.expected.pop() {
            Some(expected) if expected == id => {}
            Some(expected) => {
                return Err(self.unfit(format!("it comes to item {id:?} in place of {expected:?}")));
            }
            // The run before got no further.
            None => return Err(self.say(TrialResult::Fits)),
        }
        let Some((item, _)) = self.items.get(id) else { return Err(Stop) };
        let begun = ItemStart {
            is_done: matches!(item.state, ItemState::Done | ItemState::Skipped),
            attempt: item.attempt,
            now_ms: item.created.0,
            seed: seed(item.key, item.attempt),
        };
        self.open = Some((id.to_owned(), HashSet::new()));
        Ok(begun)
    }

    fn end(&mut self, _: &str) -> Result<(), Stop> {
        let Some((id, repeated)) = self.open.take() else { return Ok(()) };
        let omitted =
            self.items.get(&id).and_then(|(_, recorded)| find_omitted(recorded, &repeated));
        match omitted {
            Some(omitted) => Err(self.unfit(format!(
                "{omitted} was applied for {id:?}; it would be left out, and the item be done"
            ))),
            None => Ok(()),
        }
    }

    fn call(&mut self, tool: &str, operation: &str, arguments: &str) -> Result<String, Stop> {
        let Some(found) = self.tools.get(tool).cloned() else { return Err(Stop) };
        let arguments = Json::parse(arguments.as_bytes()).unwrap_or(Json::Null);
        let known = found.operations().iter().find(|known| known.name == operation);
        if known.is_some_and(|known| known.mutates) {
            return self.mutate(&found, operation, &arguments);
        }
        let printed = print(&arguments);
        let same = |read: &Read| {
            read.tool == tool && read.operation == operation && read.arguments == printed
        };
        match self.reads.iter().position(same) {
            Some(at) => Ok(self.reads.remove(at).answer),
            None => {
                let more = if self.reads_cut { "; not all recorded calls were kept" } else { "" };
                let why = format!(
                    "it calls {tool}.{operation} with arguments that no recorded call had{more}"
                );
                Err(self.say(TrialResult::Unsure(why)))
            }
        }
    }

    fn log(&mut self, _: &str) {}
}
