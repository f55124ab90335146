//! `hapax extract`, `hapax cache` and `hapax ontologies`.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use hapax::json::Json;
use hapax::result_index::ResultFilter;
use hapax_extract::rdf::{self, Syntax};
use hapax_extract::{
    Builtin, Error, Extract, Extracted, ExtractionRequest, LookupExplanation, Ontology, Progress,
    Settings,
};
use hapax_server::wire;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::args::Global;
use crate::args::extraction::{self as args, Cache, How, Ontologies};
use crate::config::Config;
use crate::exit::{Exit, Failed};
use crate::hint::command;
use crate::output;

/// The largest file that is read.
const LARGEST: u64 = 32 * 1024 * 1024;

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        let (exit, next) = match &error {
            Error::Ledger(error) => return Self::from(error.clone()),
            Error::UnknownOntology(_) => {
                (Exit::Usage, "See: hapax ontologies list; keep one: hapax ontologies put FILE")
            }
            Error::Hopeless(_) => (Exit::Refused, "Change what it names; a retry fails, too."),
            Error::Extractor { .. } => (
                Exit::Later,
                "Run it again: the chunks that were read are cached, and are not paid for twice.",
            ),
            Error::Restless(_) => {
                (Exit::Later, "Run it again when the ontology no longer changes.")
            }
            _ => (Exit::Usage, "See docs/extraction.md for the valid values."),
        };
        Self { code: Some(error.code()), ..Self::new(exit, error.to_string()).next(next) }
    }
}

/// `hapax extract`.
pub(crate) async fn extract(global: &Global, args: &args::Extract) -> Result<Exit, Failed> {
    let extract = open(global, &args.how.config).await?;
    let ontology_id = ontology_of(&extract, &args.ontology).await?;
    let params = params(&args.how)?;
    let mut read = Vec::new();
    for file in &args.files {
        read.push((file, text_of(file)?));
    }
    let (mut rows, mut failed) = (Vec::new(), None);
    for (file, text) in read {
        let request = ExtractionRequest {
            params: params.clone(),
            ..ExtractionRequest::new(text, ontology_id.clone())
        };
        let extracted = match watched(&extract, &request, file).await {
            Ok(extracted) => extracted,
            Err(error) => {
                failed = Some(error);
                break;
            }
        };
        for warning in &extracted.warnings {
            eprintln!("hapax: {}: {warning}", file.display());
        }
        let document: Value = serde_json::from_slice(extracted.json()).unwrap_or_default();
        match (global.json, args.full) {
            (true, _) => output::json(&printed(file, &extracted, &document)),
            (false, true) => print_full(file, &document),
            (false, false) => rows.push(row(file, &extracted, &document)),
        }
    }
    if !rows.is_empty() {
        let head = ["FILE", "KEY", "HOW", "ENTITIES", "RELATIONS", "CHUNKS", "REUSED", "CALLS"];
        output::table(&head, &rows);
    }
    extract.tend().await?;
    failed.map_or(Ok(Exit::Done), Err)
}

/// Prints the contents of a text, a line for each entity and each relation.
fn print_full(file: &Path, document: &Value) {
    let list = |name: &str| document[name].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| output::plain(value.as_str());
    // The end of an IRI says enough to people.
    let short = |value: &Value| {
        let iri = text(value);
        iri.rsplit(['#', '/', ':']).next().unwrap_or_default().to_owned()
    };
    let entities = list("entities");
    let name = |id: &Value| {
        let found = entities.iter().find(|entity| entity["id"] == *id);
        found.map_or_else(|| text(id), |entity| text(&entity["name"]))
    };
    output::print(&format!("{}:", file.display()));
    for entity in &entities {
        let times = entity["mentions"].as_array().map_or(0, Vec::len);
        let (class, name) = (short(&entity["type"]), text(&entity["name"]));
        output::print(&format!("  {class} {name:?}, {times} times"));
    }
    for relation in list("relations") {
        let (subject, object) = (name(&relation["subject"]), name(&relation["object"]));
        output::print(&format!("  {subject:?} {} {object:?}", short(&relation["predicate"])));
    }
}

/// Reads a text, with a bar on a terminal.
async fn watched(
    extract: &Extract,
    request: &ExtractionRequest,
    file: &Path,
) -> Result<Extracted, Failed> {
    let (sender, mut updates) = mpsc::channel(1_024);
    let bar = output::progress("chunks", 0);
    let watching = {
        let bar = bar.clone();
        tokio::spawn(async move {
            while let Some(progress) = updates.recv().await {
                match progress {
                    Progress::Chunked { chunks } => bar.set_length(chunks as u64),
                    Progress::Read { done, .. } => bar.set_position(done as u64),
                    _ => {}
                }
            }
        })
    };
    let extracted = extract.extract(request, Some(sender)).await;
    let _ = watching.await;
    bar.finish_and_clear();
    extracted.map_err(|error| {
        let failed = Failed::from(error);
        Failed { message: format!("{}: {}", file.display(), failed.message), ..failed }
    })
}

fn printed(file: &Path, extracted: &Extracted, document: &Value) -> Value {
    let components = &extracted.identity.components;
    let mut whole = json!({
        "file": file,
        "idempotencyKey": components.short(),
        "digest": extracted.key.to_string(),
        "cacheHit": extracted.is_hit(),
        "ontologyVersion": extracted.version,
    });
    if let (Some(whole), Some(document)) = (whole.as_object_mut(), document.as_object()) {
        if !extracted.warnings.is_empty() {
            whole.insert("warnings".to_owned(), json!(extracted.warnings));
        }
        whole.extend(document.clone());
    }
    whole
}

fn row(file: &Path, extracted: &Extracted, document: &Value) -> Vec<String> {
    let count = |name: &str| document[name].as_array().map_or(0, Vec::len).to_string();
    // A hit spends nothing: its figures are from when the result was made.
    let spent = |name: &str| match extracted.is_hit() {
        true => "-".to_owned(),
        false => document["metadata"][name].to_string(),
    };
    let how = if extracted.is_hit() { "known" } else { "read" };
    vec![
        file.display().to_string(),
        extracted.identity.components.short(),
        how.to_owned(),
        count("entities"),
        count("relations"),
        document["metadata"]["chunks"].to_string(),
        spent("reused"),
        spent("calls"),
    ]
}

async fn open(global: &Global, config: &Path) -> Result<Extract, Failed> {
    let config = Config::read_or_default(config)?;
    let (extractor, settings) = (config.extractor()?, config.extraction()?);
    Ok(Extract::new(output::open(global).await?, extractor, settings))
}

/// The IRI of the ontology, which is stored first if it is a file.
async fn ontology_of(extract: &Extract, named: &str) -> Result<String, Failed> {
    let Some(ontology) = named_file(named)? else { return Ok(named.to_owned()) };
    extract.put_ontology(&ontology, None, "hapax extract").await?;
    Ok(ontology.id)
}

/// The ontology in a file, if it is the name of one and not an IRI.
fn named_file(named: &str) -> Result<Option<Ontology>, Failed> {
    let path = Path::new(named);
    let is_file = path.is_file() || Syntax::of_path(path).is_some() && !named.contains("://");
    is_file.then(|| read_ontology(path, None)).transpose()
}

fn read_ontology(path: &Path, id: Option<&str>) -> Result<Ontology, Failed> {
    let refuse = |flaw: String| Failed::usage(format!("{}: {flaw}", path.display()));
    let syntax = Syntax::of_path(path).ok_or_else(|| {
        refuse("its name ends in none of .json .ttl .rdf .owl .xml .jsonld".into())
    })?;
    let bytes = bytes_of(path)?;
    rdf::import(&bytes, syntax, None, id).map_err(|error| refuse(error.to_string()))
}

fn bytes_of(path: &Path) -> Result<Vec<u8>, Failed> {
    let refuse = |flaw: String| Failed::usage(format!("{}: {flaw}", path.display()));
    let mut bytes = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => std::io::stdin().take(LARGEST + 1).read_to_end(&mut bytes),
        false => std::fs::File::open(path)
            .and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes)),
    };
    read.map_err(|error| refuse(error.to_string()))?;
    if bytes.len() as u64 > LARGEST {
        return Err(refuse(format!("larger than {LARGEST} bytes")));
    }
    Ok(bytes)
}

fn text_of(path: &Path) -> Result<String, Failed> {
    String::from_utf8(bytes_of(path)?)
        .map_err(|_| Failed::usage(format!("{}: not UTF-8", path.display())))
}

/// Parameters: a value that reads as a number is one.
fn params(how: &How) -> Result<Json, Failed> {
    let read = |text: &String| {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| Failed::usage(format!("--param {text}: write NAME=VALUE")))?;
        let number = Json::parse(value.as_bytes()).ok();
        let number = number.filter(|json| matches!(json, Json::Number(_)));
        Ok((name.to_owned(), number.unwrap_or_else(|| Json::text(value))))
    };
    let members: Vec<(String, Json)> = how.param.iter().map(read).collect::<Result<_, Failed>>()?;
    for (at, (name, _)) in members.iter().enumerate() {
        if members[..at].iter().any(|(before, _)| before == name) {
            return Err(Failed::usage(format!("--param {name} is given twice")));
        }
    }
    Ok(Json::Object(members))
}

/// `hapax cache`.
pub(crate) async fn cache(global: &Global, cache: Cache) -> Result<Exit, Failed> {
    match cache {
        Cache::Explain { file, ontology, how } => {
            let extract = open(global, &how.config).await?;
            let params = params(&how)?;
            let ontology = named_file(&ontology)?.map_or(ontology, |ontology| ontology.id);
            let request =
                ExtractionRequest { params, ..ExtractionRequest::new(text_of(&file)?, ontology) };
            explained(global, &request, &extract.explain(&request).await?);
        }
        Cache::Stats => stats(global).await?,
        Cache::Invalidate { key, ontology } => {
            let extract = plain(global).await?;
            let removed = match (key, ontology) {
                (Some(key), _) => invalidate(&extract, &key).await?,
                (None, id) => extract.invalidate_ontology(&id.unwrap_or_default()).await?,
            };
            print_removed(global, removed);
        }
        Cache::Clear { .. } => print_removed(global, plain(global).await?.clear().await?),
    }
    Ok(Exit::Done)
}

async fn invalidate(extract: &Extract, key: &str) -> Result<usize, Failed> {
    if key.starts_with("sha256-") {
        return Err(Failed::usage(format!("{key} is a key shortened for people"))
            .next("Give all of it: sha256:<64 hex>, as cache explain and --json print it."));
    }
    match extract.invalidate(output::key(key)?).await? {
        true => Ok(1),
        false => Err(Failed::usage(format!("there is no result under {key}"))
            .next(format!("Count what there is: {}", command(["cache", "stats"])))),
    }
}

/// For commands that read no text.
async fn plain(global: &Global) -> Result<Extract, Failed> {
    let (extractor, settings) = (Arc::new(Builtin::default()), Settings::default());
    Ok(Extract::new(output::open(global).await?, extractor, settings))
}

fn print_removed(global: &Global, removed: usize) {
    match global.json {
        true => output::json(&json!({ "removed": removed })),
        false => output::print(&format!("Removed {removed}, results and chunks.")),
    }
}

async fn stats(global: &Global) -> Result<(), Failed> {
    let stock = output::open(global).await?.results().stats().await?;
    if global.json {
        output::json(&json!({
            "totalCachedResults": stock.whole, "cachedChunks": stock.parts, "bytes": stock.bytes,
        }));
        return Ok(());
    }
    output::print(&format!(
        "results: {}, chunks: {}, bytes: {}",
        stock.whole, stock.parts, stock.bytes
    ));
    let filter = ResultFilter { limit: 10, ..ResultFilter::default() };
    let newest = output::open(global).await?.results().search(filter).await?;
    let rows: Vec<_> = newest
        .iter()
        .map(|result| {
            vec![
                result.key.to_string(),
                output::plain(Some(&result.entry.ontology)),
                result.bytes.to_string(),
                output::ago(result.used),
            ]
        })
        .collect();
    if !rows.is_empty() {
        output::table(&["KEY", "ONTOLOGY", "BYTES", "USED"], &rows);
    }
    Ok(())
}

fn explained(global: &Global, request: &ExtractionRequest, explained: &LookupExplanation) {
    let LookupExplanation { identity, version, found, nearest } = explained;
    let components = &identity.components;
    if global.json {
        output::json(&json!({
            "key": components.short(),
            "digest": components.key.to_string(),
            "components": {
                "textHash": components.text_hash,
                "ontologyId": request.ontology_id,
                "ontologyVersion": version,
                "extractionParamsHash": components.params_hash,
                "fingerprint": identity.fingerprint.to_string(),
            },
            "found": found,
            "nearest": nearest.as_ref().map(|nearest| json!({
                "key": nearest.key.to_string(), "differs": nearest.differs,
                "accessedAt": wire::time(nearest.used),
            })),
        }));
        return;
    }
    output::print(&format!("key       {} ({})", components.short(), components.key));
    output::print(&format!("text      {}", components.text_hash));
    output::print(&format!("ontology  {} at {version}", request.ontology_id));
    output::print(&format!("params    {}", components.params_hash));
    match (found, nearest) {
        (true, _) => output::print("found     yes"),
        (false, None) => output::print("found     no, and nothing comes near"),
        (false, Some(nearest)) => {
            output::print("found     no");
            let differs = match nearest.differs.is_empty() {
                true => "a part of the key that is not shown".to_owned(),
                false => nearest.differs.join(", "),
            };
            output::print(&format!("nearest   {}", nearest.key));
            output::print(&format!("differs   {differs}"));
        }
    }
}

/// `hapax ontologies`.
pub(crate) async fn ontologies(global: &Global, command: Ontologies) -> Result<Exit, Failed> {
    let extract = plain(global).await?;
    let changed = match command {
        Ontologies::List => {
            list(global, &extract).await?;
            return Ok(Exit::Done);
        }
        Ontologies::Show { id } => {
            let (ontology, listed) = extract.ontology(&id).await?;
            output::json(&json!({
                "id": listed.id, "version": listed.version,
                "updatedAt": wire::time(listed.updated), "content": ontology,
            }));
            return Ok(Exit::Done);
        }
        Ontologies::Put { file, id, label_version, by } => {
            let ontology = read_ontology(&file, id.as_deref())?;
            extract.put_ontology(&ontology, label_version.as_deref(), &by).await?
        }
        Ontologies::Remove { id, by } => extract.remove_ontology(&id, &by).await?,
    };
    if global.json {
        output::json(&json!({
            "ontologyId": changed.id, "oldVersion": changed.before, "newVersion": changed.now,
            "entriesInvalidated": changed.invalidated,
        }));
        return Ok(Exit::Done);
    }
    let change = match (&changed.before, &changed.now) {
        (None, Some(now)) => format!("kept at {now}"),
        (Some(before), Some(now)) if before == now => format!("unchanged at {now}"),
        (Some(_), Some(now)) => {
            format!("now at {now}; {} results and chunks are gone", changed.invalidated)
        }
        (_, None) => format!("removed; {} results and chunks are gone", changed.invalidated),
    };
    output::print(&format!("{}: {change}", changed.id));
    Ok(Exit::Done)
}

async fn list(global: &Global, extract: &Extract) -> Result<(), Failed> {
    let all = extract.ontologies().await?;
    let metadata = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    if global.json {
        for listed in &all {
            output::json(&json!({
                "id": listed.id, "version": listed.version,
                "metadata": metadata(&listed.metadata), "updatedAt": wire::time(listed.updated),
            }));
        }
        return Ok(());
    }
    if all.is_empty() {
        output::print("No ontologies. Keep one: hapax ontologies put FILE");
        return Ok(());
    }
    let rows: Vec<_> = all
        .iter()
        .map(|listed| {
            let metadata = metadata(&listed.metadata);
            vec![
                output::plain(Some(&listed.id)),
                listed.version.chars().take(23).collect(),
                metadata["classes"].to_string(),
                metadata["properties"].to_string(),
                metadata["individuals"].to_string(),
                output::ago(listed.updated),
            ]
        })
        .collect();
    output::table(&["ID", "VERSION", "CLASSES", "PROPERTIES", "INDIVIDUALS", "KEPT"], &rows);
    Ok(())
}
