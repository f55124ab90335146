//! `hapax journal`: the record, its verification, and proofs for third parties.

mod replay;
mod rollback;

use std::path::Path;

use data_encoding::BASE64;
use hapax::{Entry, Hapax, Proof, Verified, Verifier};
use hapax_postgres::History;
use hapax_server::wire::{self, time};
use serde_json::{Value, json};

use crate::archive;
use crate::args::{Global, Journal};
use crate::exit::{Exit, Failed};
use crate::output;

pub(crate) async fn main(global: &Global, journal: Journal) -> Result<Exit, Failed> {
    match journal {
        Journal::Verify { proof: Some(file), public_key } => {
            check_proof(global, &file, public_key.as_deref())
        }
        Journal::List { key, after, limit } => {
            let hapax = output::open(global).await?;
            list(global, &hapax, key.as_deref(), after, limit).await
        }
        Journal::Verify { proof: None, public_key } => {
            let hapax = output::open(global).await?;
            let found = verify(&hapax, public_key.as_deref()).await?;
            report(global, &found)
        }
        Journal::Prove { entry } => {
            let hapax = output::open(global).await?;
            prove(&hapax, entry).await
        }
        Journal::Archive(args) => {
            let hapax = output::open(global).await?;
            let found = verify(&hapax, None).await?;
            if !found.damage.is_empty() {
                return report(global, &found);
            }
            archive::main(global, History::Journal, &args).await
        }
        Journal::Replay(replay) => replay::main(global, &replay).await,
        Journal::Promote(args) => replay::promote(global, &args).await,
        Journal::RollBack(args) => rollback::main(global, &args).await,
        Journal::RollBacks(args) => rollback::list(global, &args).await,
        Journal::Export => {
            let hapax = output::open(global).await?;
            export(&hapax).await
        }
    }
}

async fn list(
    global: &Global,
    hapax: &Hapax,
    key: Option<&str>,
    after: u64,
    limit: usize,
) -> Result<Exit, Failed> {
    let entries = match key {
        Some(key) => {
            let entries = hapax.journal().history(output::key(key)?, usize::MAX >> 1).await?;
            entries.into_iter().filter(|entry| entry.id > after).take(limit).collect()
        }
        None => hapax.journal().entries(after, limit).await?,
    };
    if global.json {
        entries.iter().for_each(|entry| output::json(&wire::Entry::of(entry)));
        return Ok(Exit::Done);
    }
    let rows: Vec<_> = entries.iter().map(row).collect();
    output::table(&["ENTRY", "TIME", "NAMESPACE", "KEY", "EVENT", "STATE", "NOTE"], &rows);
    if entries.len() == limit
        && let Some(last) = entries.last()
    {
        eprintln!("hapax: there may be more; see --after {}", last.id);
    }
    Ok(Exit::Done)
}

fn row(entry: &Entry) -> Vec<String> {
    vec![
        entry.id.to_string(),
        time(entry.at),
        entry.namespace.to_string(),
        format!("{}…", &entry.key.to_string()[..19]),
        entry.event.to_string(),
        output::state(entry.state),
        entry.note.as_deref().map(short).unwrap_or_default(),
    ]
}

/// A short form of a note that is a document.
fn short(note: &str) -> String {
    let Ok(document) = serde_json::from_str::<Value>(note) else {
        return output::plain(Some(note));
    };
    let part = |name: &str| output::plain(document[name].as_str());
    match document["kind"].as_str() {
        Some("pipeline.v1") => {
            let (pipeline, task, operation_type) =
                (part("pipeline_id"), part("task_id"), part("operation_type"));
            format!(
                "{pipeline}.{task}: {operation_type} {} {}",
                part("dataset_id"),
                part("version")
            )
        }
        Some("pipeline.product.v1") => {
            let outputs = document["outputs"].as_array().map_or(&[][..], |outputs| outputs);
            let places = outputs.iter().filter_map(|output| output["uri"].as_str());
            output::plain(Some(&places.take(3).collect::<Vec<_>>().join(", ")))
        }
        Some("review.v1") => format!("asks about {}: {}", part("dataset_id"), part("reason")),
        _ => output::plain(Some(note)),
    }
}

/// Verifies the whole journal, with a progress bar.
pub(crate) async fn verify(hapax: &Hapax, public_key: Option<&str>) -> Result<Verified, Failed> {
    let verifier = match public_key {
        Some(text) => read_key(text)?,
        None => hapax.journal().verifier()?,
    };
    let bar = output::progress("verifying", 0);
    let shown = bar.clone();
    let found = hapax
        .journal()
        .verify(verifier, move |done, total| {
            shown.set_length(total);
            shown.set_position(done);
        })
        .await?;
    bar.finish_and_clear();
    Ok(found)
}

fn read_key(text: &str) -> Result<Verifier, Failed> {
    text.parse()
        .map_err(|_| Failed::usage("--public-key is not a key as `journal prove` prints it"))
}

fn report(global: &Global, found: &Verified) -> Result<Exit, Failed> {
    let damage: Vec<String> = found.damage.iter().map(ToString::to_string).collect();
    if global.json {
        output::json(&wire::Verification::of(found));
    } else {
        for damage in &damage {
            output::print(&format!("{} {damage}", console::style("damaged:").red().bold()));
        }
        let verdict = if damage.is_empty() {
            console::style("intact").green()
        } else {
            console::style("NOT intact").red()
        };
        let (sealed, heads, pending) = (found.sealed, found.heads, found.pending);
        output::print(&format!(
            "{verdict}: {sealed} entries under {heads} signed heads; {pending} not sealed yet"
        ));
    }
    if damage.is_empty() {
        return Ok(Exit::Done);
    }
    Err(Failed::new(
        Exit::Look,
        format!("the journal was changed behind the ledger's back: {}", damage[0]),
    )
    .next("Copy the file before anything else; compare with a backup or an export."))
}

async fn prove(hapax: &Hapax, entry: u64) -> Result<Exit, Failed> {
    let Some(proof) = hapax.journal().prove(entry).await? else {
        let last = hapax.journal().last_entry().await?;
        return Err(if entry == 0 || entry > last {
            Failed::usage(format!("there is no entry {entry}; the newest is {last}"))
        } else {
            Failed::new(Exit::Later, format!("entry {entry} is not sealed yet"))
                .next("Try again in a moment.")
        });
    };
    output::json(&wire::Proof::of(&proof, &hapax.journal().verifier()?));
    Ok(Exit::Done)
}

fn check_proof(global: &Global, file: &Path, public_key: Option<&str>) -> Result<Exit, Failed> {
    let name = file.display();
    let bytes = std::fs::read(file).map_err(|error| Failed::usage(format!("{name}: {error}")))?;
    let document: Value = serde_json::from_slice(&bytes)
        .map_err(|error| Failed::usage(format!("{name}: {error}")))?;
    let (proof, embedded) = read_proof(&document)
        .ok_or_else(|| Failed::usage(format!("{name} is not a proof made by `journal prove`")))?;
    let verifier = match public_key {
        Some(text) => read_key(text)?,
        None => {
            eprintln!("hapax: trusting the public key inside the proof; pin it with --public-key");
            embedded
        }
    };
    match proof.verify(&verifier) {
        Ok(head) => {
            let entry = wire::Entry::of(&proof.entry);
            if global.json {
                output::json(
                    &json!({ "valid": true, "entry": entry, "origin": head.origin, "size": head.size }),
                );
            } else {
                let (id, origin, size) = (proof.entry.id, head.origin, head.size);
                output::print(&format!(
                    "valid: entry {id} is in the journal of {origin} at size {size}"
                ));
                let Entry { key, event, state, attempt, at, .. } = &proof.entry;
                output::print(&format!("{}  {event} {state}  {key}  {attempt}", time(*at)));
            }
            Ok(Exit::Done)
        }
        Err(error) => {
            Err(Failed::new(Exit::Look, format!("{name}: the proof does not hold: {error}")))
        }
    }
}

/// Only the encoded entry counts; the readable one beside it is for people.
fn read_proof(document: &Value) -> Option<(Proof, Verifier)> {
    let base64 = |value: &Value| BASE64.decode(value.as_str()?.as_bytes()).ok();
    let path = document["path"].as_array()?.iter().map(|hash| base64(hash)?.try_into().ok());
    let proof = Proof {
        entry: Entry::decode(&base64(&document["encoded"])?)?,
        leaf: document["leaf"].as_u64()?,
        path: path.collect::<Option<_>>()?,
        note: document["checkpoint"].as_str()?.to_owned(),
    };
    Some((proof, document["public_key"].as_str()?.parse().ok()?))
}

async fn export(hapax: &Hapax) -> Result<Exit, Failed> {
    let total = hapax.journal().last_entry().await?;
    let bar = output::progress("exporting", total);
    let mut after = 0;
    loop {
        let entries = hapax.journal().entries(after, 1000).await?;
        let Some(last) = entries.last() else { break };
        after = last.id;
        entries.iter().for_each(|entry| output::json(&wire::Entry::of(entry)));
        bar.set_position(after);
    }
    bar.finish_and_clear();
    Ok(Exit::Done)
}
