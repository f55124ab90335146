//! `hapax items`.

use std::path::Path;

use hapax::json::Json;
use hapax::{AttemptId, Timestamp};
use hapax_items::{
    Error, Escalation, ItemState, ItemView, Items, MAINTAINER, MAX_SCRIPT, MutationExplanation,
    MutationState, MutationView, PLANNER, RunView, Script, TYPES, Version, VersionStatus,
    differences,
};
use hapax_server::wire;
use serde::Serialize;

use crate::args::Global;
use crate::args::items::{Items as ItemsCommand, Person, Setup};
use crate::config::Config;
use crate::exit::{Exit, Failed};
use crate::hint::command;
use crate::output;

pub(crate) async fn main(global: &Global, command: ItemsCommand) -> Result<Exit, Failed> {
    match command {
        ItemsCommand::Run { script, workflow, id, by, setup } => {
            let items = open(global, &setup).await?;
            let workflow = match script {
                Some(path) => publish(&items, &path, workflow, &by).await?.0,
                None => workflow.unwrap_or_default(),
            };
            run(global, &items, &workflow, id.as_deref()).await
        }
        ItemsCommand::Publish { script, workflow, by, setup } => {
            let items = open(global, &setup).await?;
            let (workflow, version) = publish(&items, &script, workflow, &by).await?;
            match global.json {
                true => output::json(&serde_json::json!({
                    "workflow": workflow, "version": version.to_string(),
                })),
                false => output::print(&format!("{workflow} {version}: published")),
            }
            items.hapax().close().await?;
            Ok(Exit::Done)
        }
        ItemsCommand::Workflows => {
            let items = open_without_tools(global).await?;
            for name in items.workflows().await? {
                match global.json {
                    true => output::json(&serde_json::json!({ "workflow": name })),
                    false => output::print(&name),
                }
            }
            Ok(Exit::Done)
        }
        ItemsCommand::Versions { workflow, show } => versions(global, &workflow, show).await,
        ItemsCommand::Decide { workflow, version, approve, reject: _, person } => {
            let attempt = attempt(&person.attempt)?;
            let items = open_without_tools(global).await?;
            let who = (person.by.as_str(), person.note.as_str());
            items.decide_script(&workflow, version, attempt, approve, who).await?;
            decided(global, &workflow);
            Ok(Exit::Done)
        }
        ItemsCommand::Runs { workflow, limit, log } => runs(global, &workflow, limit, log).await,
        ItemsCommand::List { workflow, state, limit } => {
            let items = open_without_tools(global).await?;
            known(&items, &workflow).await?;
            let found = items.list(&workflow, &state, None, limit).await?;
            let rows: Vec<_> = found.iter().map(item_row).collect();
            let documents = found.iter().map(wire::Item::of);
            listed(
                global,
                documents,
                &["ITEM", "STATE", "ATTEMPT", "CHANGED", "TITLE", "WHY"],
                &rows,
            );
            Ok(Exit::Done)
        }
        ItemsCommand::Show { workflow, item, attempt } => {
            show(global, &workflow, &item, attempt).await
        }
        ItemsCommand::Reprocess { workflow, item, person } => {
            let attempt = attempt(&person.attempt)?;
            let who = (person.by.as_str(), person.note.as_str());
            open_without_tools(global).await?.reprocess(&workflow, &item, attempt, who).await?;
            decided(global, &workflow);
            Ok(Exit::Done)
        }
        ItemsCommand::Escalations { key, workflow, limit, setup } => {
            let items = open(global, &setup).await?;
            escalations(global, &items, key.as_deref(), (workflow.as_deref(), limit)).await
        }
        ItemsCommand::Act { key, action, result, person } => {
            let result = result.map(|text| {
                Json::parse(text.as_bytes())
                    .map_err(|error| Failed::usage(format!("--result: {error}")))
            });
            let key = output::key(&key)?;
            let Person { attempt: judged, by, note } = &person;
            let (judged, items) = (attempt(judged)?, open_without_tools(global).await?);
            let workflow = items.escalation(key).await?.workflow;
            items.act(key, judged, action, result.transpose()?.as_ref(), (by, note)).await?;
            decided(global, &workflow);
            Ok(Exit::Done)
        }
        ItemsCommand::Reconcile { setup } => {
            let pass = open(global, &setup).await?.reconcile().await?;
            match global.json {
                true => output::json(&serde_json::json!({
                    "looked": pass.looked,
                    "decided": pass.decided,
                    "escalated": pass.escalated,
                    "waiting": pass.waiting,
                })),
                false => output::print(&format!(
                    "{} looked for, {} decided, {} before a person, {} not due yet",
                    pass.looked, pass.decided, pass.escalated, pass.waiting
                )),
            }
            Ok(Exit::Done)
        }
        ItemsCommand::Compare { before, after, setup } => compare(global, &before, &after, &setup),
        ItemsCommand::Types => {
            output::print(&format!("{TYPES}\n{}", hapax_tools::TYPES.trim_end()));
            Ok(Exit::Done)
        }
        ItemsCommand::Instructions { role } => {
            let text = if role == "planner" { PLANNER } else { MAINTAINER };
            output::print(text.trim_end());
            Ok(Exit::Done)
        }
    }
}

/// Items for a query: no tools, no lease.
async fn open_without_tools(global: &Global) -> Result<Items, Failed> {
    let hapax = output::open(global).await?;
    Ok(Items::new(hapax, Vec::new(), Vec::new())?)
}

/// Items with their tools, as the file says.
async fn open(global: &Global, setup: &Setup) -> Result<Items, Failed> {
    let namespace = output::namespace(global)?;
    let hapax = output::builder(global).open(&global.db).await?.in_namespace(namespace);
    let config = Config::read_or_default(&setup.config)?;
    config.items(&hapax, &global.db).await
}

/// Publishes a script. Returns the workflow's name and the version.
async fn publish(
    items: &Items,
    script: &Path,
    workflow: Option<String>,
    by: &str,
) -> Result<(String, Version), Failed> {
    let stem = || script.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let workflow = workflow.unwrap_or_else(stem);
    let version = items.publish(&workflow, &source(script)?, by).await?;
    Ok((workflow, version))
}

async fn run(
    global: &Global,
    items: &Items,
    workflow: &str,
    id: Option<&str>,
) -> Result<Exit, Failed> {
    let ran = items.drive(workflow, id).await;
    let ended = match id {
        Some(id) => items.show_run(workflow, id).await.map(Some),
        None => items.runs(workflow, None, 1).await.map(|mut newest| newest.pop()),
    };
    if let Ok(Some(run)) = ended {
        match global.json {
            true => output::json(&wire::Run::of(&run)),
            false => print_run(&run),
        }
    }
    items.hapax().close().await?;
    ran?;
    Ok(Exit::Done)
}

fn source(path: &Path) -> Result<String, Failed> {
    let unreadable =
        |error: &dyn std::fmt::Display| Failed::usage(format!("{}: {error}", path.display()));
    let size = std::fs::metadata(path).map_err(|error| unreadable(&error))?.len();
    if size > MAX_SCRIPT as u64 {
        return Err(unreadable(&format!("{size} bytes; a script has at most {MAX_SCRIPT}")));
    }
    std::fs::read_to_string(path).map_err(|error| unreadable(&error))
}

fn compare(global: &Global, before: &Path, after: &Path, setup: &Setup) -> Result<Exit, Failed> {
    let tools = Config::read_or_default(&setup.config)?.tool_names();
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    let found = differences(&source(before)?, &source(after)?, &tools).map_err(Failed::usage)?;
    match global.json {
        true => output::json(&serde_json::json!({ "differences": found })),
        false => found.iter().for_each(|difference| output::print(difference)),
    }
    match found.is_empty() {
        true => Ok(Exit::Done),
        false => Ok(Exit::Refused),
    }
}

/// Prints the next step after a decision.
fn decided(global: &Global, workflow: &str) {
    let next = command(["items", "run", "--workflow", workflow]);
    match global.json {
        true => output::json(&serde_json::json!({ "decided": true, "next": next })),
        false => output::print(&format!("decided; the next run takes it up: {next}")),
    }
}

/// Refuses a workflow that has neither scripts nor runs.
async fn known(items: &Items, workflow: &str) -> Result<(), Failed> {
    let unknown = items.scripts(workflow).await?.is_empty()
        && items.runs(workflow, None, 1).await?.is_empty();
    match unknown {
        true => Err(Error::NotFound(format!("workflow {workflow:?}")).into()),
        false => Ok(()),
    }
}

async fn versions(global: &Global, workflow: &str, show: Option<Version>) -> Result<Exit, Failed> {
    let items = open_without_tools(global).await?;
    known(&items, workflow).await?;
    let scripts = items.scripts_shown(workflow).await?;
    if let Some(version) = show {
        let found = scripts.iter().find(|script| script.version == version);
        let missing = || Error::NotFound(format!("version {version} of {workflow:?}"));
        output::print(found.ok_or_else(missing)?.source.trim_end());
        return Ok(Exit::Done);
    }
    let rows: Vec<_> = scripts.iter().map(version_row).collect();
    let head = ["VERSION", "STATUS", "BY", "MADE", "COST", "TOUCHES", "ATTEMPT", "WHY"];
    let counts = scripts.iter().filter(|script| script.status == VersionStatus::Usable);
    let counts = counts.map(|script| script.version).max();
    let documents = scripts.iter().map(|script| wire::ScriptVersion::of(script, counts));
    listed(global, documents, &head, &rows);
    Ok(Exit::Done)
}

fn version_row(script: &Script) -> Vec<String> {
    let repair = script.repair.as_ref();
    let cost = repair.map_or("-".into(), |repair| (repair.cost as f64 / 1_000.0).to_string());
    let touches = repair.filter(|repair| repair.impactful || !repair.blast_radius.is_empty());
    let touches = touches.map_or("-".into(), |repair| {
        let more = if repair.blast_radius_cut { "more than " } else { "" };
        format!("{more}{}", repair.blast_radius.len())
    });
    let repair = repair.map(|repair| repair.explanation.as_str());
    vec![
        script.version.to_string(),
        script.status.as_str().to_owned(),
        output::plain(Some(&script.by)),
        output::ago(script.made),
        cost,
        touches,
        script.attempt.to_string(),
        output::plain(script.reason.as_deref().or(repair)),
    ]
}

async fn runs(global: &Global, workflow: &str, limit: usize, log: bool) -> Result<Exit, Failed> {
    let items = open_without_tools(global).await?;
    known(&items, workflow).await?;
    let runs = items.runs(workflow, None, limit).await?;
    if log && !global.json {
        for run in runs.iter().rev() {
            print_run(run);
            run.log
                .iter()
                .for_each(|line| output::print(&format!("  {}", output::plain(Some(line)))));
        }
        return Ok(Exit::Done);
    }
    let row = |run: &RunView| {
        let why = run.failure.as_ref().map(|f| format!("{}: {}", f.class, f.message));
        vec![
            run.id.clone(),
            run.version.to_string(),
            run.state.to_owned(),
            output::ago(run.began),
            run.count.to_string(),
            output::plain(why.as_deref()),
        ]
    };
    let rows: Vec<_> = runs.iter().map(row).collect();
    let head = ["RUN", "VERSION", "STATE", "BEGAN", "ITEMS", "WHY"];
    listed(global, runs.iter().map(wire::Run::of), &head, &rows);
    Ok(Exit::Done)
}

async fn show(
    global: &Global,
    workflow: &str,
    id: &str,
    attempt: Option<u32>,
) -> Result<Exit, Failed> {
    let items = open_without_tools(global).await?;
    let item = items.show(workflow, id).await?;
    let mutations = items.mutations(item.key, attempt.unwrap_or(item.attempt)).await?;
    if global.json {
        output::json(&wire::ItemShown {
            item: wire::Item::of(&item),
            mutations_of: attempt.unwrap_or(item.attempt),
            mutations: mutations.iter().map(wire::Mutation::of).collect(),
        });
        return Ok(Exit::Done);
    }
    output::print(&format!("{}  {}", output::plain(Some(&item.title)), state(item.state)));
    output::print(&format!("  item      {}", output::plain(Some(&item.id))));
    output::print(&format!("  key       {}", item.key));
    output::print(&format!("  attempt   {} ({})", item.attempt, item.judged));
    output::print(&format!("  script    {} {}", item.workflow, item.version));
    if let Some(failure) = &item.failure {
        let why = output::plain(Some(&failure.message));
        output::print(&format!("  why       {}: {why}", failure.class));
        output::print(&format!("  next      {}", failure.next));
    }
    let rows: Vec<_> = mutations.iter().map(mutation_row).collect();
    if !rows.is_empty() {
        output::print("");
        output::table(&["MUTATION", "STATE", "TARGET", "WHICH", "TRIES", "RESULT OR WHY"], &rows);
    }
    Ok(Exit::Done)
}

fn mutation_row(mutation: &MutationView) -> Vec<String> {
    let result = mutation.result.as_ref().map(hapax::document::print);
    let short: String =
        output::plain(result.as_deref().or(mutation.reason.as_deref())).chars().take(60).collect();
    let subkey = mutation.subkey.as_ref().map(|subkey| format!(" {subkey}")).unwrap_or_default();
    let styled = console::style(mutation.state.as_str());
    let styled = match mutation.state {
        MutationState::Applied => styled.green(),
        MutationState::InFlight => styled.cyan(),
        MutationState::Failed => styled.yellow(),
        MutationState::NeedsReconcile | MutationState::Indeterminate => styled.red().bold(),
    };
    vec![
        format!("{}.{}", mutation.tool, mutation.operation),
        styled.to_string(),
        output::plain(Some(&mutation.target)),
        output::plain(Some(&format!("{}{subkey}", hapax::document::print(&mutation.identity)))),
        mutation.attempts.to_string(),
        short,
    ]
}

fn item_row(item: &ItemView) -> Vec<String> {
    let why = item.failure.as_ref().map(|f| format!("{}: {}", f.class, f.message));
    let why = why.filter(|_| item.state != ItemState::Done);
    vec![
        output::plain(Some(&item.id)),
        state(item.state),
        item.attempt.to_string(),
        output::ago(item.updated),
        output::plain(Some(&item.title)),
        output::plain(why.as_deref()),
    ]
}

fn state(state: ItemState) -> String {
    let styled = console::style(state.as_str());
    match state {
        ItemState::Done => styled.green(),
        ItemState::Processing => styled.cyan(),
        ItemState::Failed => styled.yellow(),
        ItemState::Skipped => styled.dim(),
        ItemState::NeedsAttention => styled.red().bold(),
    }
    .to_string()
}

fn print_run(run: &RunView) {
    let took = Timestamp(run.updated.0 - run.began.0).0;
    let items = run.count;
    let things = if items == 1 { "item" } else { "items" };
    let line =
        format!("{} {}: {}, {items} {things}, {took} ms", run.workflow, run.version, run.state);
    output::print(&line);
}

/// Prints one escalation, or all of them and the repairs that wait for approval.
async fn escalations(
    global: &Global,
    items: &Items,
    key: Option<&str>,
    (workflow, limit): (Option<&str>, usize),
) -> Result<Exit, Failed> {
    let (found, held) = match key {
        Some(key) => (vec![items.escalation(output::key(key)?).await?], Vec::new()),
        None => (items.escalations(workflow, limit).await?, items.held(workflow).await?),
    };
    for (nth, escalation) in found.iter().enumerate() {
        match global.json {
            true => output::json(&wire::Escalation::of(escalation)),
            false => print_escalation(nth, escalation),
        }
    }
    for (nth, script) in held.iter().enumerate() {
        match global.json {
            true => output::json(&wire::HeldRepair::of(script)),
            false => print_held(found.len() + nth, script),
        }
    }
    match found.is_empty() && held.is_empty() {
        true => Ok(Exit::Done),
        false => Ok(Exit::Look),
    }
}

/// Prints a repair that waits, and the command that decides it.
fn print_held(nth: usize, script: &Script) {
    if nth > 0 {
        output::print("");
    }
    let Script { workflow, version, attempt, .. } = script;
    output::print(&format!("{}: a repair, {version}", console::style(workflow).bold()));
    output::print(&format!("  why       {}", output::plain(script.reason.as_deref())));
    let version = version.to_string();
    let read = command(["items", "versions", workflow, "--show", &version]);
    output::print(&format!("  read it   {read}"));
    let attempt = attempt.to_string();
    for choice in ["--approve", "--reject"] {
        let words =
            ["items", "decide", workflow, &version, choice, "--attempt", &attempt, "--note"];
        output::print(&format!("  {}", command(words.into_iter().chain(["WHY"]))));
    }
}

/// Prints all facts that a person needs to decide, and the command to type.
fn print_escalation(nth: usize, escalation: &Escalation) {
    if nth > 0 {
        output::print("");
    }
    let title = match (&escalation.item, &escalation.run) {
        (Some(item), _) => {
            format!("{} ({})", output::plain(Some(&item.title)), output::plain(Some(&item.id)))
        }
        (None, Some(run)) => format!("a run as a whole ({})", run.id),
        (None, None) => escalation.key.to_string(),
    };
    output::print(&format!("{}: {title}", console::style(&escalation.workflow).bold()));
    output::print(&format!("  why       {}", output::plain(Some(&escalation.reason))));
    let several = escalation.unknown.len() > 1;
    let stopped_at = escalation.stopped_at.iter();
    for explained in escalation.unknown.iter().chain(stopped_at) {
        let MutationExplanation { mutation, tried, why, verify, check } = explained;
        let known = if escalation.stopped_at.is_some() { "known" } else { "unknown" };
        for (name, text) in [("tried", tried), (known, why), ("verify", verify), ("check", check)] {
            output::print(&format!("  {name:9} {}", output::plain(Some(text))));
        }
        if several {
            let (key, attempt) = (mutation.key, mutation.judged);
            for choice in ["happened", "did-not-happen"] {
                print_act(&key.to_string(), choice, &attempt.to_string());
            }
        }
    }
    let (key, attempt) = (escalation.key.to_string(), escalation.judged.to_string());
    for action in &escalation.actions {
        print_act(&key, action.as_str(), &attempt);
    }
}

fn print_act(key: &str, action: &str, attempt: &str) {
    let words = ["items", "act", key, action, "--attempt", attempt, "--note", "WHY"];
    output::print(&format!("  {}", command(words)));
}

fn attempt(text: &str) -> Result<AttemptId, Failed> {
    text.parse().map_err(|_| {
        Failed::usage(format!("--attempt {text:?} is no attempt"))
            .next(format!("Copy it from the output of: {}", command(["items", "escalations"])))
    })
}

fn listed<D: Serialize>(
    global: &Global,
    documents: impl Iterator<Item = D>,
    head: &[&str],
    rows: &[Vec<String>],
) {
    match global.json {
        true => documents.for_each(|document| output::json(&document)),
        false if rows.is_empty() => {}
        false => output::table(head, rows),
    }
}
