//! `hapax lineage`: the operations in the journal, in the formats of other systems; and
//! `hapax verify-artifact`.

use std::path::Path;

use hapax::canonical::canonical;
use hapax::json::Json;
use hapax::{Hapax, Verifier};
use hapax_pipeline::catalog::Catalog;
use hapax_pipeline::lineage::{Completed, attestation, cypher, dcat, openlineage, prov, stac};
use hapax_pipeline::replay::{PRODUCER, checksum};
use hapax_pipeline::{Fold, Moment};
use serde_json::json;

use crate::args::Global;
use crate::args::pipeline::{Format, Lineage, VerifyArtifact};
use crate::exit::{Exit, Failed};
use crate::hint::command;
use crate::output;

/// How many entries are read at once.
const PAGE: usize = 1_000;

/// The largest attestation that is read.
const LARGEST: u64 = 4 * 1024 * 1024;

pub(crate) async fn main(global: &Global, lineage: Lineage) -> Result<Exit, Failed> {
    let hapax = output::open(global).await?;
    match lineage {
        Lineage::Export { dataset, to: Some(root), .. } => {
            rebuild(global, &hapax, dataset.as_deref(), &root).await
        }
        Lineage::Export { format, dataset, to: None } => {
            each(&hapax, dataset.as_deref(), |moment| print(format, moment)).await?;
            Ok(Exit::Done)
        }
        Lineage::Attest { dataset, version } => attest(&hapax, &dataset, &version).await,
    }
}

/// Calls `visit` for every moment of this namespace, in the order of the journal.
async fn each(
    hapax: &Hapax,
    dataset: Option<&str>,
    mut visit: impl FnMut(&Moment) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let (mut fold, mut after) = (Fold::default(), 0);
    loop {
        let page = hapax.journal().entries(after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.id;
        for moment in page.iter().filter_map(|entry| fold.push(entry)) {
            let ours = moment.run.namespace == *hapax.namespace();
            if ours && dataset.is_none_or(|name| name == moment.run.about.operation.dataset_id) {
                visit(&moment)?;
            }
        }
    }
}

fn line(json: &Json) {
    output::print(&canonical(json).unwrap_or_default());
}

fn print(format: Format, moment: &Moment) -> Result<(), Failed> {
    let done = Completed::of(moment);
    match (format, done) {
        (Format::Openlineage, _) => line(&openlineage::event(moment, PRODUCER)),
        (Format::Cypher, _) => {
            line(&cypher::transaction(&cypher::statements(moment)));
        }
        (Format::Prov, Some(done)) => line(&prov::json_ld(&done)),
        (Format::Turtle, Some(done)) => output::print(prov::turtle(&done).trim_end()),
        (Format::Dcat, Some(done)) => line(&dcat::json_ld(&done)),
        (Format::Stac, Some(done)) => {
            done.editions().iter().for_each(|edition| line(&stac::item(&done, edition)));
        }
        (_, None) => {}
    }
    Ok(())
}

/// Writes all formats anew, as the sinks write them.
async fn rebuild(
    global: &Global,
    hapax: &Hapax,
    dataset: Option<&str>,
    root: &Path,
) -> Result<Exit, Failed> {
    let failed = |error: std::io::Error| {
        Failed::new(Exit::Unreachable, format!("{}: {error}", root.display()))
    };
    std::fs::create_dir_all(root).map_err(failed)?;
    let (catalog, mut count) = (Catalog::new(root), 0u64);
    let (mut events, mut graph) = (String::new(), String::new());
    let printed = |json: &Json| canonical(json).unwrap_or_default() + "\n";
    each(hapax, dataset, |moment| {
        count += 1;
        events += &printed(&openlineage::event(moment, PRODUCER));
        graph += &printed(&cypher::transaction(&cypher::statements(moment)));
        catalog.write(moment).map_err(failed)
    })
    .await?;
    std::fs::write(root.join("openlineage.jsonl"), events).map_err(failed)?;
    std::fs::write(root.join("cypher.jsonl"), graph).map_err(failed)?;
    match global.json {
        true => output::json(&json!({ "moments": count, "to": root })),
        false => output::print(&format!("{count} moments of operations, in {}", root.display())),
    }
    Ok(Exit::Done)
}

/// Prints a signed statement about the making of a version; of the newest making, if there were several.
async fn attest(hapax: &Hapax, dataset: &str, version: &str) -> Result<Exit, Failed> {
    let builder = hapax.journal().verifier()?.to_string();
    let builder = format!("urn:hapax:ledger:{}", builder.split('+').next().unwrap_or_default());
    let mut statements = Vec::new();
    each(hapax, None, |moment| {
        let Some(done) = Completed::of(moment) else { return Ok(()) };
        let editions = done.editions();
        let wanted = editions.iter().find(|e| (e.dataset, e.version) == (dataset, version));
        if let Some(edition) = wanted {
            let made = edition.artifacts.iter();
            statements = made.filter_map(|a| attestation::statement(&done, a, &builder)).collect();
        }
        Ok(())
    })
    .await?;
    if statements.is_empty() {
        let message =
            format!("no operation made version {version:?} of {dataset:?} with a SHA-256");
        return Err(Failed::usage(message)
            .next(format!("List what there is: {}", command(["lineage", "export"]))));
    }
    // Finds out whether it can sign before it prints anything.
    hapax.journal().sign(b"")?;
    for statement in &statements {
        line(&attestation::seal(statement, |bytes| {
            hapax.journal().sign(bytes).unwrap_or_default()
        }));
    }
    Ok(Exit::Done)
}

/// `hapax verify-artifact`.
pub(crate) async fn check(global: &Global, args: &VerifyArtifact) -> Result<Exit, Failed> {
    let verifier: Verifier = match &args.public_key {
        Some(key) => key.parse().map_err(|_| Failed::usage("--public-key is none of hapax"))?,
        None => output::open(global).await?.journal().verifier()?,
    };
    let refuse = |flaw: String| Failed::usage(format!("{}: {flaw}", args.attestation.display()));
    let size = std::fs::metadata(&args.attestation).map_err(|error| refuse(error.to_string()))?;
    if size.len() > LARGEST {
        return Err(refuse(format!("larger than {LARGEST} bytes")));
    }
    let text = std::fs::read_to_string(&args.attestation);
    let text = text.map_err(|error| refuse(error.to_string()))?;
    let actual = checksum(&args.file)
        .ok_or_else(|| Failed::usage(format!("{} cannot be read", args.file.display())))?;
    // One a line: a version may consist of several files.
    let mut found = None;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let envelope = Json::parse(line.as_bytes()).map_err(|error| refuse(error.to_string()))?;
        let opened = attestation::open(&envelope, |message, signature| {
            verifier.verify_bytes(message, signature)
        });
        let statement = opened.map_err(|error| Failed::new(Exit::Refused, error.to_string()))?;
        let hex = statement.pointer("/subject/0/digest/sha256").and_then(Json::as_str);
        if hex.is_some_and(|hex| format!("sha256:{hex}") == actual) {
            found = Some(statement);
        }
    }
    let Some(statement) = found else {
        let message = format!(
            "{} does not match the attestation: its checksum is {actual}",
            args.file.display()
        );
        return Err(Failed::new(Exit::Refused, message));
    };
    let part =
        |pointer: &str| statement.pointer(pointer).and_then(Json::as_str).unwrap_or_default();
    let name = part("/subject/0/name");
    let run = part("/predicate/runDetails/metadata/invocationId");
    match global.json {
        true => {
            output::json(&json!({ "verified": true, "name": name, "run": run, "checksum": actual }))
        }
        false => output::print(&format!("verified: {name}, made by run {run}")),
    }
    Ok(Exit::Done)
}
