//! `hapax journal roll-back` and `hapax journal roll-backs`: lists operations that can be undone,
//! and undoes one.

use std::collections::HashMap;

use hapax::{Digest, Key, Step};
use hapax_pipeline::{Fold, Moment, Pipeline, RollbackResult, RunChange};
use serde_json::{Value, json};

use crate::args::Global;
use crate::args::pipeline::{RollBack, RollBacks};
use crate::exit::{Exit, Failed};
use crate::hint::command;
use crate::{output, run};

/// How many entries are read at once.
const PAGE: usize = 1_000;

/// Lists the operations that `roll-back` would undo now: the place of each in the journal, its
/// steps, and their checksum.
pub(super) async fn list(global: &Global, args: &RollBacks) -> Result<Exit, Failed> {
    let hapax = output::builder(global).open(&global.db).await?;
    let hapax = hapax.in_namespace(output::namespace(global)?);
    let pipeline = Pipeline::new(hapax.clone());
    // An attempt may have several entries, such as when its outcome was found out later.
    let mut newest: HashMap<Key, (Moment, Vec<Step>)> = HashMap::new();
    let (mut fold, mut after) = (Fold::default(), 0);
    loop {
        let page = hapax.journal().entries(after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = last.id;
        for moment in page.iter().filter_map(|entry| fold.push(entry)) {
            let (key, attempt) = (moment.run.key, moment.run.attempt);
            let dataset = &moment.run.about.operation.dataset_id;
            let wanted = args.dataset.as_ref().is_none_or(|wanted| wanted == dataset);
            let done =
                matches!(moment.change, RunChange::Complete { .. } | RunChange::Running { .. });
            if !done || !wanted || moment.run.namespace != *hapax.namespace() {
                continue;
            }
            let steps = hapax.effects().steps(key, attempt).await?;
            // The command undoes steps of `hapax run`; others have their handlers elsewhere.
            let ours = !steps.is_empty() && steps.iter().all(|step| step.name == run::UNDO);
            if ours && pipeline.can_take_back(key, attempt).await? {
                newest.insert(key, (moment, steps));
            }
        }
    }
    hapax.close().await?;
    let mut found: Vec<_> = newest.into_values().collect();
    found.sort_by_key(|(moment, _)| moment.mark.entry);
    let mut rows = Vec::new();
    for (moment, steps) in &found {
        let (pointer, dataset) = (moment.mark.entry, &moment.run.about.operation.dataset_id);
        let (bundle, checksum) = bundle(steps);
        if global.json {
            output::json(&json!({
                "pointer": pointer, "key": moment.run.key.to_string(), "dataset_id": dataset,
                "attempt": moment.run.attempt.to_string(), "steps": bundle, "checksum": checksum,
                "restore": command(["journal", "roll-back", &pointer.to_string(), "--checksum", &checksum, "--note", "WHY"]),
            }));
        }
        let last = steps.last().map(|step| text(&step.payload)).unwrap_or_default();
        rows.push(vec![
            pointer.to_string(),
            dataset.clone(),
            steps.len().to_string(),
            output::plain(Some(&last)),
            checksum,
        ]);
    }
    if !global.json {
        output::table(&["POINTER", "DATASET", "STEPS", "LAST", "CHECKSUM"], &rows);
    }
    Ok(Exit::Done)
}

/// The steps as a document, and its checksum.
fn bundle(steps: &[Step]) -> (Value, String) {
    let one = |step: &Step| json!({ "name": step.name, "payload": text(&step.payload) });
    let bundle: Value = steps.iter().map(one).collect();
    let checksum = Digest::of(bundle.to_string().as_bytes()).to_string();
    (bundle, checksum)
}

fn text(payload: &[u8]) -> String {
    String::from_utf8_lossy(payload).into_owned()
}

/// Undoes an operation by the steps that it registered, each once, and clears its record.
pub(super) async fn main(global: &Global, args: &RollBack) -> Result<Exit, Failed> {
    let hapax = output::builder(global).open(&global.db).await?;
    let hapax = hapax.in_namespace(output::namespace(global)?);
    let entry =
        hapax.journal().entries(args.pointer.saturating_sub(1), 1).await?.into_iter().next();
    let ours =
        |entry: &hapax::Entry| entry.id == args.pointer && entry.namespace == *hapax.namespace();
    let Some(entry) = entry.filter(ours) else {
        return Err(Failed::usage(format!("there is no entry {} here", args.pointer))
            .next(format!("List them: {}", command(["journal", "list"]))));
    };
    let (key, attempt) = (entry.key, entry.attempt);
    // The steps of an earlier attempt would undo the work of a later one.
    if hapax.effects().show(key).await?.is_none_or(|effect| effect.attempt != attempt) {
        let message =
            format!("entry {} is of an attempt that is over; another came after it", entry.id);
        return Err(Failed::new(Exit::Conflict, message)
            .next(format!("List them: {}", command(["journal", "roll-backs"]))));
    }
    if let Some(expected) = &args.checksum {
        let (_, actual) = bundle(&hapax.effects().steps(key, attempt).await?);
        if actual != *expected {
            let message = format!("the steps of entry {} have checksum {actual}", entry.id);
            return Err(Failed::new(Exit::Conflict, message)
                .next(format!("List them: {}", command(["journal", "roll-backs"]))));
        }
    }
    hapax.on_rollback(run::UNDO, run::undo);
    let pipeline = Pipeline::new(hapax.clone());
    let taken_back = pipeline.take_back(key, attempt, (&args.by.by, &args.by.note)).await?;
    hapax.close().await?;
    if taken_back == RollbackResult::NoWay {
        return Err(Failed::new(
            Exit::Look,
            format!("{attempt} registered nothing that can be undone here"),
        )
        .next(format!(
            "Undo it by hand, then reset it: {}",
            command(["effects", "show", &key.to_string()])
        )));
    }
    let cleared = taken_back == RollbackResult::Cleared;
    match global.json {
        true => output::json(&json!({ "rolled_back": key.to_string(), "cleared": cleared })),
        false => output::print(&format!(
            "rolled back: {key}{}",
            if cleared { "; it may be run again" } else { "" }
        )),
    }
    Ok(Exit::Done)
}
