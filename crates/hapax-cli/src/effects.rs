//! `hapax effects`: lists and shows effects, and records what a person decides about them.

use std::path::Path;

use hapax::{
    EffectStatus, Entry, Filter, Hapax, HolderStatus, Judged, Key, Liveness, Outcome, Resolution,
    Safety, Seen, Settling, StateName,
};
use hapax_pipeline::Pipeline;
use hapax_server::wire::{self, time};
use serde::Serialize;
use serde_json::json;

use crate::args::{By, Decision, Effects, Global};
use crate::exit::{Exit, Failed};
use crate::hint::{self, command};
use crate::output::{self, ago};
use crate::recording::pieces;

pub(crate) async fn main(global: &Global, effects: Effects) -> Result<Exit, Failed> {
    let hapax = output::open(global).await?;
    match effects {
        Effects::List { state, stuck, limit } => list(global, &hapax, &state, stuck, limit).await,
        Effects::Show { key } => show(global, &hapax, &key).await,
        Effects::Resolve { key, attempt, saw, decision, result, by } => {
            let outcome = read_result(result.as_deref())?;
            let seen = seen(&attempt, &saw)?;
            resolve(global, &hapax, &key, seen, &decision, outcome, &by).await
        }
        Effects::Reset { key, attempt, saw, by } => {
            reset(global, &hapax, &key, seen(&attempt, &saw)?, &by).await
        }
    }
}

async fn list(
    global: &Global,
    hapax: &Hapax,
    states: &[String],
    stuck: bool,
    limit: usize,
) -> Result<Exit, Failed> {
    let states = states.iter().map(|state| state_named("--state", state));
    let filter = Filter { states: states.collect::<Result<_, _>>()?, limit, ..Filter::default() };
    let found = match stuck {
        true => hapax.effects().stuck(filter).await?,
        false => hapax.effects().statuses(filter).await?,
    };
    if global.json {
        found.iter().for_each(|status| output::json(&wire::Effect::of(status)));
        return Ok(Exit::Done);
    }
    if found.is_empty() {
        output::print(if stuck { "Nothing is stuck." } else { "No effects." });
        return Ok(Exit::Done);
    }
    let rows: Vec<_> = found.iter().map(row).collect();
    output::table(&["KEY", "LABEL", "STATE", "ATTEMPTS", "CHANGED", "REASON"], &rows);
    if found.len() == limit {
        eprintln!("hapax: the newest {limit} are shown; see more with --limit");
    }
    Ok(Exit::Done)
}

fn state_named(option: &str, text: &str) -> Result<StateName, Failed> {
    StateName::from_name(text).ok_or_else(|| {
        let all: Vec<_> = StateName::ALL.iter().map(|state| state.as_str()).collect();
        Failed::usage(format!("{option} {text:?} is none of {}", all.join(", ")))
    })
}

fn row(status: &EffectStatus) -> Vec<String> {
    let EffectStatus { name, effect, .. } = status;
    let reason: String = match status.liveness() {
        Some(Liveness::Dead) => "the next claim or a server expires it".into(),
        Some(Liveness::Silent) => "the next claim or a server expires it if it lapsed".into(),
        _ => output::plain(effect.state.reason()),
    };
    vec![
        format!("{}…", &name.key.to_string()[..19]),
        output::plain(effect.label.as_deref()),
        state(status),
        effect.attempts.to_string(),
        ago(effect.updated),
        console::truncate_str(&reason, 60, "…").into_owned(),
    ]
}

/// The state of an effect, and what is wrong with its holder.
fn state(status: &EffectStatus) -> String {
    let state = output::state(status.effect.state.name());
    match status.liveness() {
        None | Some(Liveness::Alive) => state,
        Some(liveness) => format!("{state} (holder {liveness})"),
    }
}

/// The holder of a running effect, in one line.
fn holder(holder: &HolderStatus) -> String {
    let name = holder.name.as_deref().unwrap_or("unnamed");
    let since = holder.since.map(|since| format!(", last seen {}", time(since)));
    let since = since.unwrap_or_default();
    let then = match holder.liveness {
        Liveness::Alive => "",
        Liveness::Silent => "; the next claim or a server expires the effect if it lapsed",
        Liveness::Dead => "; the next claim or a server expires the effect",
    };
    format!("{}: {}{since}{then}", output::plain(Some(name)), holder.liveness)
}

/// An effect and its history.
#[derive(Serialize)]
struct EffectWithHistory {
    #[serde(flatten)]
    effect: wire::Effect,
    history: Vec<wire::Entry>,
}

async fn show(global: &Global, hapax: &Hapax, text: &str) -> Result<Exit, Failed> {
    let key = output::key(text)?;
    let Some(status) = hapax.effects().status(key).await? else {
        return Err(unknown(hapax, text, key));
    };
    let effect = &status.effect;
    let history = hapax.journal().history(key, 1000).await?;
    if global.json {
        let history = history.iter().map(wire::Entry::of).collect();
        output::json(&EffectWithHistory { effect: wire::Effect::of(&status), history });
        return Ok(Exit::Done);
    }
    let line = |name: &str, value: &str| {
        output::print(&format!("{:<12} {value}", console::style(name).bold()))
    };
    line("key", &key.to_string());
    if let Some(label) = &effect.label {
        line("label", label);
    }
    line("state", &state(&status));
    if let Some(found) = &status.holder {
        line("holder", &holder(found));
    }
    if let Some(reason) = effect.state.reason() {
        line("reason", reason);
    }
    line(
        "attempt",
        &format!("{} (number {}, fence {})", effect.attempt, effect.attempts, effect.fence),
    );
    line("safety", &safety(effect.safety));
    line("fingerprint", &effect.fingerprint.to_string());
    if let Some(bound) = &effect.bound {
        line("epoch", &format!("{} of {}", bound.epoch, bound.domain));
    }
    if let Some(expires) = effect.expires() {
        line("expires", &time(expires));
    }
    if let hapax::State::Succeeded(outcome) = &effect.state {
        show_outcome(outcome, line);
    }
    output::print("");
    let rows: Vec<_> = history.iter().map(history_row).collect();
    output::table(&["ENTRY", "TIME", "EVENT", "STATE", "ATTEMPT", "BY", "NOTE"], &rows);
    if effect.state.name().needs_attention() {
        let resolve = hint::resolve(text, effect.attempt, effect.state.name());
        output::print(&format!("\n{resolve}"));
    }
    Ok(Exit::Done)
}

fn show_outcome(outcome: &Outcome, line: impl Fn(&str, &str)) {
    let kept = if outcome.body().is_some() { "" } else { ", not kept" };
    line("outcome", &format!("{} bytes, {}{kept}", outcome.size(), outcome.digest()));
    for (_, bytes) in pieces(outcome) {
        let text = String::from_utf8_lossy(&bytes);
        for text in text.lines().take(20) {
            output::print(&format!("             {}", console::style(text).dim()));
        }
    }
}

fn history_row(entry: &Entry) -> Vec<String> {
    vec![
        entry.id.to_string(),
        time(entry.at),
        entry.event.to_string(),
        output::state(entry.state),
        format!("{}…", &entry.attempt.to_string()[..12]),
        output::plain(entry.actor.as_deref()),
        output::plain(entry.note.as_deref()),
    ]
}

fn unknown(hapax: &Hapax, text: &str, key: Key) -> Failed {
    let shown = output::plain(Some(text));
    Failed::usage(format!("no effect {shown} in namespace {}", hapax.namespace()))
        .next(format!("Looked for {key}. List what there is: {}", command(["effects", "list"])))
}

async fn resolve(
    global: &Global,
    hapax: &Hapax,
    text: &str,
    seen: Seen,
    decision: &Decision,
    outcome: Outcome,
    by: &By,
) -> Result<Exit, Failed> {
    let key = output::key(text)?;
    let resolution = match decision {
        Decision { happened: true, .. } => Resolution::Happened(outcome),
        Decision { did_not_happen: true, .. } => Resolution::DidNotHappen,
        Decision { skip: true, .. } => Resolution::Skip,
        _ => Resolution::AskAgain,
    };
    let pipeline = Pipeline::new(hapax.clone());
    let judged = pipeline.resolve(key, seen, resolution, (&by.by, &by.note)).await?;
    conclude(global, hapax, text, key, judged).await
}

async fn reset(
    global: &Global,
    hapax: &Hapax,
    text: &str,
    seen: Seen,
    by: &By,
) -> Result<Exit, Failed> {
    let key = output::key(text)?;
    let pipeline = Pipeline::new(hapax.clone());
    let judged = pipeline.reset(key, seen, (&by.by, &by.note)).await?;
    conclude(global, hapax, text, key, judged).await
}

/// The result that the person who looked has supplied.
fn read_result(file: Option<&Path>) -> Result<Outcome, Failed> {
    let Some(file) = file else { return Ok(Outcome::from(())) };
    let unreadable = |error| Failed::usage(format!("--result {}: {error}", file.display()));
    Ok(Outcome::from(std::fs::read(file).map_err(unreadable)?))
}

/// The attempt and the state that the person who decides has seen.
fn seen(attempt: &str, saw: &str) -> Result<Seen, Failed> {
    let attempt = attempt.parse().map_err(|error| Failed::usage(format!("--attempt: {error}")))?;
    Ok(Seen { attempt, state: state_named("--saw", saw)? })
}

async fn conclude(
    global: &Global,
    hapax: &Hapax,
    text: &str,
    key: Key,
    judged: Judged,
) -> Result<Exit, Failed> {
    hapax.close().await?;
    match judged {
        Judged::Decided(state) => {
            if global.json {
                output::json(&json!({ "key": key.to_string(), "state": state.as_str() }));
            } else {
                output::print(&format!("{text} is now {}", output::state(state)));
            }
            Ok(Exit::Done)
        }
        Judged::Undecided { .. } => Err(Failed::new(Exit::Later, "not decided yet")),
        Judged::Fenced(fenced) if fenced.state.is_none() => Err(unknown(hapax, text, key)),
        Judged::Fenced(fenced) => Err(Failed::new(
            Exit::Conflict,
            format!("nothing was changed; the record is: {fenced}"),
        )
        .next(format!("Look again, it may have moved on: {}", hint::show(text)))),
    }
}

fn safety(safety: Safety) -> String {
    match safety {
        Safety::Transactional => "transactional".into(),
        Safety::Opaque => "opaque".into(),
        Safety::Reconcilable(Settling::TargetRefusesLate) => {
            "reconcilable; the target refuses late arrivals".into()
        }
        Safety::Reconcilable(Settling::AfterMs(ms)) => format!("reconcilable; settles in {ms} ms"),
    }
}
