//! `hapax journal replay` and `hapax journal promote`: recorded operations, compared with the files
//! there now or run again.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use hapax::{Digest, Hapax};
use hapax_pipeline::promotion::{self, Promotion, PromotionResult};
use hapax_pipeline::replay::{self, Divergence, ReplayReport, ReplayScope};
use hapax_pipeline::{Fold, Run, review};
use serde_json::{Value, json};

use crate::args::Global;
use crate::args::pipeline::{Mode, Promote, Replay};
use crate::exit::{Exit, Failed};
use crate::hint::command;
use crate::output;
use crate::program::{End, Program, shell};

pub(super) async fn main(global: &Global, args: &Replay) -> Result<Exit, Failed> {
    let hapax = output::builder(global)
        .holder(format!("hapax journal replay, process {}", std::process::id()))
        .open(&global.db)
        .await?
        .in_namespace(output::namespace(global)?);
    let result = replayed(global, args, &hapax).await;
    hapax.close().await?;
    result
}

async fn replayed(global: &Global, args: &Replay, hapax: &Hapax) -> Result<Exit, Failed> {
    let (dataset, tasks, files) = (args.dataset.clone(), args.task.clone(), args.files.clone());
    if args.catalog.is_some() && args.mode != Mode::Verify {
        return Err(Failed::usage("--catalog goes with --mode verify"));
    }
    let scope = ReplayScope { dataset, tasks, files, catalog: args.catalog.clone() };
    let room = tempfile::tempdir();
    let room = room.map_err(|error| Failed::new(Exit::Unreachable, error.to_string()))?;
    let (mode, place) = match args.mode {
        Mode::Verify => ("verify", None),
        Mode::DryRun => ("dry-run", Some(room.path().to_owned())),
        Mode::Segment => ("segment", Some(room.path().to_owned())),
        Mode::Full => ("full", args.keep.clone()),
    };
    let found = match &place {
        None => replay::verify(hapax, &scope).await?,
        Some(place) => replay::execute(hapax, &scope, mode, place, again).await?,
    };
    let reviews = match args.mode {
        Mode::Full => ask(hapax, &found).await?,
        _ => Vec::new(),
    };
    report(global, mode, &found, &reviews);
    match found.divergences.is_empty() {
        true => Ok(Exit::Done),
        false if global.json => Ok(Exit::Refused),
        false => {
            Err(Failed::new(Exit::Refused, "an output differs from the journal").next(format!(
                "The record of this replay: {}",
                command(["effects", "show", &found.key.to_string()])
            )))
        }
    }
}

/// Runs a recorded program in a directory of its own. Its events are dropped.
async fn again(run: Run, room: PathBuf) -> Result<(), String> {
    let operation = &run.about.operation;
    let params = operation.params.clone().unwrap_or_else(|| "{}".into());
    let kept = Digest::of(params.as_bytes()).to_string() == operation.params_hash;
    if operation.params.is_some() && !kept {
        return Err("its parameters were not kept word by word".into());
    }
    let inside = format!("cd {} && unset {} && exec \"$@\"", quoted(&room), ours());
    let mut words = shell(&inside);
    words.push("replay".into());
    words.extend(operation.program.iter().map(OsString::from));
    let environment = [
        ("HAPAX_REPLAY", "1".to_owned()),
        ("HAPAX_DATASET", operation.dataset_id.clone()),
        ("HAPAX_VERSION", operation.version.clone()),
        ("HAPAX_LOGICAL_TIME", operation.timestamp_bucket.clone()),
        ("HAPAX_EVENTS", "/dev/null".to_owned()),
        ("HAPAX_PARAMS", params),
    ];
    match (Program { words: &words, environment: &environment, show: false, limits: None })
        .run()
        .await
    {
        Ok((End::Exited(0), _)) => Ok(()),
        Ok((end, _)) => Err(format!("it {end}")),
        Err(error) => Err(format!("it could not be run: {error}")),
    }
}

/// The variables by which a program would find the real ledger and its settings.
fn ours() -> String {
    let kept = [
        "HAPAX_REPLAY",
        "HAPAX_DATASET",
        "HAPAX_VERSION",
        "HAPAX_LOGICAL_TIME",
        "HAPAX_EVENTS",
        "HAPAX_PARAMS",
    ];
    let plain = |name: &String| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let ours = names.filter(|name| name.starts_with("HAPAX_") && plain(name));
    let ours = ours.filter(|name| !kept.contains(&name.as_str()));
    ["HAPAX_DB".to_owned()].into_iter().chain(ours).collect::<Vec<_>>().join(" ")
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

/// Opens a review for each output that was made again and differs: only an approved one is put in place.
async fn ask(hapax: &Hapax, found: &ReplayReport) -> Result<Vec<String>, Failed> {
    let mut reviews = Vec::new();
    for divergence in found.divergences.iter().filter(|divergence| divergence.what == "output") {
        let mut fold = Fold::default();
        let history = hapax.journal().history(divergence.key, usize::MAX >> 1).await?;
        let Some(moment) = history.iter().filter_map(|entry| fold.push(entry)).last() else {
            continue;
        };
        let Divergence { key, which, actual: Some(made), .. } = divergence else { continue };
        let reason = format!("replay {} made {which} anew: {made}", found.key);
        let subject = promotion::subject(found.key, *key, which, made)?;
        let review = review::open_about(hapax, subject, &moment.run.about, &reason).await?;
        reviews.push(review.to_string());
    }
    Ok(reviews)
}

fn report(global: &Global, mode: &str, found: &ReplayReport, reviews: &[String]) {
    if global.json {
        let mut document: Value = serde_json::from_str(&found.document(mode)).unwrap_or_default();
        document["record"] = json!(found.key.to_string());
        document["reviews"] = json!(reviews);
        output::json(&document);
        return;
    }
    let ReplayReport { operations, executed, skipped, elsewhere, .. } = found;
    output::print(&match mode {
        "verify" => format!("compared: {operations}; executed: none"),
        _ => format!(
            "compared: {operations}; executed in a sandbox: {executed}; left alone: {skipped}"
        ),
    });
    if *elsewhere > 0 {
        output::print(&format!("not compared: {elsewhere} outputs, which are not on this machine"));
    }
    output::print(&format!(
        "expected {}\nactual   {}\nlineage  {}",
        found.expected, found.actual, found.lineage
    ));
    if !found.divergences.is_empty() {
        let row = |divergence: &Divergence| {
            vec![
                divergence.entry.to_string(),
                divergence.what.to_owned(),
                output::plain(Some(&divergence.which)),
                output::plain(Some(&divergence.expected)),
                output::plain(Some(divergence.actual.as_deref().unwrap_or("nothing"))),
            ]
        };
        let rows: Vec<_> = found.divergences.iter().map(row).collect();
        output::table(&["ENTRY", "WHAT", "WHICH", "EXPECTED", "ACTUAL"], &rows);
    }
    for review in reviews {
        eprintln!("hapax: a reviewer must approve it before it is put in place: {review}");
    }
}

/// Puts the approved files of a replay in place.
pub(super) async fn promote(global: &Global, args: &Promote) -> Result<Exit, Failed> {
    let replay = args.replay.parse();
    let replay = replay.map_err(|error| Failed::usage(format!("{}: {error}", args.replay)))?;
    let hapax = output::builder(global).open(&global.db).await?;
    let hapax = hapax.in_namespace(output::namespace(global)?);
    let promoted = promotion::promote(&hapax, replay, &args.kept, &args.files).await;
    hapax.close().await?;
    let promoted = promoted?;
    let word = |result| match result {
        PromotionResult::Placed => "in place",
        PromotionResult::PlacedBefore => "in place already",
        PromotionResult::NotApproved => "not approved",
    };
    let waits = promoted.iter().any(|one| one.result == PromotionResult::NotApproved);
    for Promotion { operation, uri, checksum, result } in &promoted {
        match global.json {
            true => output::json(&json!({
                "operation": operation.to_string(), "uri": uri, "checksum": checksum,
                "fate": word(*result),
            })),
            false => output::print(&format!("{}: {}", word(*result), output::plain(Some(uri)))),
        }
    }
    match waits {
        true => Err(Failed::new(Exit::Refused, "a reviewer must approve it first")
            .next(format!("List what waits: {}", command(["reviews", "list"])))),
        false => Ok(Exit::Done),
    }
}
