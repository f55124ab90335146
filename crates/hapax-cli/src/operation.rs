//! `hapax run --pipeline`: a program as a governed operation on a dataset.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hapax::json::Json;
use hapax::{Failure, Fingerprint, Hapax, Refusal};
use hapax_pipeline::replay::checksum;
use hapax_pipeline::{
    Artifact, Error, Operation, Pipeline, Source, Work, WorkError, WorkResult, bucket, documents,
};
use hapax_server::telemetry::Telemetry;

use crate::args::{self, Global, Run};
use crate::config::Config;
use crate::events;
use crate::exit::{Exit, Failed};
use crate::hint::command;
use crate::program::{self, End, Program, WorkLimit};
use crate::run::{self, RunFailure, UNDO};

/// The exit code by which a program reports a transient failure.
const TEMPFAIL: u8 = 75;

/// The longest parameters that are kept for a replay.
const KEPT_PARAMS: usize = 8 * 1024;

/// How long a collector may take when everything else is done.
const PATIENCE: Duration = Duration::from_secs(3);

/// How a program ended, for the exit code of this one.
#[derive(Clone, Default)]
struct SeenFailure(Arc<Mutex<Option<RunFailure>>>);

impl SeenFailure {
    fn set(&self, ended: RunFailure) {
        *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(ended);
    }

    fn get(&self) -> Option<RunFailure> {
        *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

pub(crate) async fn once(global: &Global, run: &Run, hapax: &Hapax) -> Result<Exit, Failed> {
    let config = Config::read_or_default(&run.operation.config)?;
    let operation = described(run, config.bucket())?;
    as_declared(&config, hapax, &operation.dataset_id).await?;
    let pipeline = Pipeline::with(hapax.clone(), config.pipeline(run.wait));
    hapax.on_rollback(UNDO, run::undo);
    let (key, seen, show) =
        (operation.key().map_err(Error::from)?, SeenFailure::default(), !global.json);
    let words: Vec<&[u8]> = run.program.iter().map(|word| program::bytes(word)).collect();
    let (bound, wait) = (run::bound(run)?, run.wait.unwrap_or_default());
    let builder = pipeline.operation(operation).fingerprint(Fingerprint::of_parts(&words));
    let mut builder =
        builder.with(move |effect| run::terms(effect.wait(wait), run, key, bound.clone()));
    for input in &run.operation.input {
        builder = match documents(input) {
            Some(documents) => {
                documents.into_iter().fold(builder, |builder, one| builder.input(one))
            }
            None => builder.unreadable(input.display().to_string()),
        };
    }
    if let Some(part) = &run.operation.part {
        builder = builder.part(part);
    }
    if let Some(command) = &run.rollback {
        builder = builder.before("--rollback", move |work| keepable(command, work));
    }
    for check in &run.pre {
        builder = builder.before(check, {
            let seen = seen.clone();
            move |work| checked(check, work, show, seen.clone())
        });
    }
    for check in &run.post {
        builder = builder.after(check, {
            let seen = seen.clone();
            move |work| checked(check, work, show, seen.clone())
        });
    }
    let telemetry = telemetry(hapax, &pipeline);
    let result = builder.run(|work| perform(run, show, work, seen.clone())).await;
    let concluded = match result {
        Ok(finished) => {
            run::show(global, key, &finished.done);
            Ok(Exit::Done)
        }
        Err(error) => conclude(run, hapax, key, error, seen.get()).await,
    };
    // The counters are gone with this process.
    if !telemetry.stop_within(PATIENCE).await {
        eprintln!("hapax: the collector does not answer; some telemetry was not exported");
    }
    concluded
}

/// Begins to export telemetry of this run, if a collector is named and this hapax can. Otherwise
/// the program is run all the same.
fn telemetry(hapax: &Hapax, pipeline: &Pipeline) -> Telemetry {
    if cfg!(not(feature = "otlp")) {
        crate::log::progress();
        return Telemetry::default();
    }
    let telemetry = Telemetry::start(hapax, &pipeline.meters(), None);
    let telemetry = telemetry.unwrap_or_else(|error| {
        Failed::from(error).print();
        Telemetry::default()
    });
    #[cfg(feature = "otlp")]
    if telemetry.is_exporting() {
        crate::log::collect();
    }
    crate::log::progress();
    telemetry
}

/// Refuses a file whose terms differ from those declared on the ledger: their author expects them to count.
async fn as_declared(config: &Config, hapax: &Hapax, dataset: &str) -> Result<(), Failed> {
    let Some(written) = config.datasets()?.remove(dataset) else { return Ok(()) };
    let path = config.path.display();
    let message = match hapax.datasets().registry_of([dataset]).await?.datasets.remove(dataset) {
        Some(declared) if declared == written => return Ok(()),
        Some(_) => format!("{path} and the ledger have different terms for {dataset}"),
        None => format!("{path} has terms for {dataset}, and the ledger has none"),
    };
    Err(Failed::usage(message)
        .next(format!("Declare those of the file: {}", command(["datasets", "declare"]))))
}

/// The operation that the options describe: the checksum of its inputs, the hash of its
/// parameters, the bucket of its time.
fn described(run: &Run, bucket_width: Duration) -> Result<Operation, Failed> {
    let args = &run.operation;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let mut inputs = Vec::new();
    for path in &args.input {
        let sum = checksum(path).ok_or_else(|| {
            Failed::usage(format!("--input {}: it cannot be read", path.display()))
        })?;
        let name = path.display().to_string();
        inputs.push(Source { name: name.clone(), checksum: Some(sum), uri: Some(name) });
    }
    let sums: Vec<&str> = inputs.iter().filter_map(|input| input.checksum.as_deref()).collect();
    let checksum_in = match sums[..] {
        [one] => one.to_owned(),
        _ => hapax::Digest::of(sums.join("\n").as_bytes()).to_string(),
    };
    let params = parameters(args)?;
    let params_hash = hapax::Digest::of(params.as_bytes()).to_string();
    let program: Option<Vec<String>> =
        run.program.iter().map(|word| word.to_str().map(str::to_owned)).collect();
    Ok(Operation {
        pipeline_id: text(&args.pipeline),
        task_id: text(&args.task),
        dataset_id: text(&args.dataset),
        operation_type: text(&args.operation),
        version: text(&args.version),
        checksum_in,
        params_hash,
        timestamp_bucket: bucket(&text(&args.logical_time), args.bucket.unwrap_or(bucket_width))?,
        inputs,
        justification: args.justification.clone(),
        governance_ref: args.governance_ref.clone(),
        program: program.unwrap_or_default(),
        params: Some(params).filter(|params| params != "{}" && params.len() <= KEPT_PARAMS),
    })
}

/// The parameters as canonical JSON.
fn parameters(args: &args::pipeline::Operation) -> Result<String, Failed> {
    let mut members: Vec<(String, Json)> = Vec::new();
    for param in &args.param {
        let (name, value) = param
            .split_once('=')
            .ok_or_else(|| Failed::usage(format!("invalid --param {param:?}: write NAME=VALUE")))?;
        if members.iter().any(|(known, _)| known == name) {
            return Err(Failed::usage(format!("--param {name} is given twice")));
        }
        members.push((name.to_owned(), Json::text(value)));
    }
    hapax::canonical::canonical(&Json::Object(members))
        .map_err(|error| Failed::usage(error.to_string()))
}

fn environment(work: &Work) -> Vec<(&'static str, String)> {
    let operation = work.operation();
    vec![
        ("HAPAX_KEY", work.key().to_string()),
        ("HAPAX_ATTEMPT", work.attempt().to_string()),
        ("HAPAX_FENCE", work.fence().to_string()),
        ("HAPAX_DATASET", operation.dataset_id.clone()),
        ("HAPAX_VERSION", operation.version.clone()),
        ("HAPAX_LOGICAL_TIME", operation.timestamp_bucket.clone()),
    ]
}

async fn checked(check: &str, work: Work, show: bool, seen: SeenFailure) -> Result<(), String> {
    let passed = run::passes(check, &environment(&work), show, Some(&work)).await;
    if passed.is_err() {
        seen.set(RunFailure::Guard);
    }
    passed
}

/// A rollback command is kept as it is, to be run later. It must not name an exact place.
async fn keepable(command: &str, work: Work) -> Result<(), String> {
    match work.masked(command) == command {
        true => Ok(()),
        false => Err("it names an exact place of a masked dataset; read it from a file".into()),
    }
}

/// Runs the program, and returns its outputs and events.
async fn perform(
    run: &Run,
    show: bool,
    work: Work,
    seen: SeenFailure,
) -> Result<WorkResult, WorkError> {
    let events_file = tempfile::NamedTempFile::new();
    let events_file =
        events_file.map_err(|error| WorkError::not_done(format!("no file for events: {error}")))?;
    let mut environment = environment(&work);
    environment.push(("HAPAX_EVENTS", events_file.path().to_string_lossy().into_owned()));
    environment.push(("HAPAX_PARAMS", parameters(&run.operation).unwrap_or_default()));
    if let Some(command) = &run.rollback {
        let registered = work.undo_with(UNDO, command.as_bytes()).await;
        registered.map_err(|error| WorkError::not_done(error.to_string()))?;
    }
    let before = children_time();
    let limits = Some(&work as &dyn WorkLimit);
    let program = Program { words: &run.program, environment: &environment, show, limits };
    // A program that was not started did not happen, for certain.
    let (end, recording) =
        program.run().await.map_err(|error| WorkError::not_done(error.to_string()))?;
    if end != End::Exited(0) {
        seen.set(RunFailure::Program(end));
        let why = format!("the program {end}");
        return Err(match end {
            End::Exited(TEMPFAIL) => WorkError::transient(why),
            _ if run.rollback.is_some() => WorkError::partial(why),
            End::Exited(_) => WorkError::not_done(why),
            End::Killed(_) | End::Stopped => WorkError::ambiguous(why),
        });
    }
    let mut made = WorkResult::new(recording.joined()).cpu(children_time().saturating_sub(before));
    for path in &run.operation.output {
        made = made.output(artifact(path, &work).map_err(WorkError::Failure)?);
        made = match documents(path) {
            Some(documents) => documents.into_iter().fold(made, |made, one| made.document(one)),
            None => made.unreadable(path.display().to_string()),
        };
    }
    if let Some(event) = &run.operation.publish {
        made = made.publish(event);
    }
    // The program is done, and its events cannot be recorded.
    for event in events::read(&events_file).map_err(WorkError::ambiguous)? {
        made = made.event(event);
    }
    Ok(made)
}

/// A file that the program says it wrote.
fn artifact(path: &Path, work: &Work) -> Result<Artifact, Failure> {
    let sum = checksum(path).ok_or_else(|| {
        Failure::ambiguous(format!("--output {}: it is not there", path.display()))
    })?;
    let operation = work.operation();
    let media_type = match path.extension().and_then(|ending| ending.to_str()) {
        Some("csv") => Some("text/csv"),
        Some("json" | "geojson") => Some("application/json"),
        Some("jsonl" | "ndjson") => Some("application/x-ndjson"),
        Some("parquet") => Some("application/vnd.apache.parquet"),
        _ => None,
    };
    Ok(Artifact {
        dataset: operation.dataset_id.clone(),
        version: operation.version.clone(),
        checksum: sum,
        uri: path.display().to_string(),
        size: std::fs::metadata(path).ok().map(|meta| meta.len()),
        media_type: media_type.map(str::to_owned),
        cells: Vec::new(),
    })
}

/// The CPU time of programs that were run and are over, as far as the system tells.
fn children_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name, which may have spaces in it: state, then 12 numbers, then these two.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: u64 = fields.skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Turns an error into a message and an exit code.
async fn conclude(
    run: &Run,
    hapax: &Hapax,
    key: hapax::Key,
    error: Error,
    ended: Option<RunFailure>,
) -> Result<Exit, Failed> {
    let program = match ended {
        Some(RunFailure::Program(end)) => Some(Exit::Program(end.code())),
        _ => None,
    };
    match error {
        Error::Failed { reason, .. } => {
            let failed = Failed::new(program.unwrap_or(Exit::Program(127)), reason);
            Err(failed.next("It did not happen; a repeat runs it again."))
        }
        Error::Ledger(error @ hapax::Error::Unrecorded { .. }) => {
            Err(run::unrecorded(error, ended))
        }
        Error::Ledger(hapax::Error::Blocked(blocked)) if blocked.holder.is_none() => {
            if blocked.state == hapax::StateName::Partial && run.rollback.is_some() {
                run::roll_back(hapax, key, &blocked).await?;
                let exit = program.unwrap_or(Exit::Refused);
                return Err(Failed::new(exit, format!("{}; rolled back", blocked.reason)));
            }
            Err(run::someone_must_look(&key.to_string(), &blocked, Exit::Look))
        }
        Error::Refused(refusal) => {
            let effect = hapax.effects().show(key).await?;
            let partial = effect.filter(|e| e.state.name() == hapax::StateName::Partial);
            // An operation that waits for a review undoes nothing.
            let partial = partial.filter(|_| !matches!(refusal, Refusal::Review(_)));
            if let Some(effect) = partial.as_ref().filter(|_| run.rollback.is_some()) {
                run::roll_back(hapax, key, &hapax::Blocked::by(effect)).await?;
                let message = format!("refused: {refusal}; rolled back");
                return Err(Failed::new(Exit::Refused, message));
            }
            let blocks = partial.map(|effect| effect.attempt);
            let missing = refusal.missing_argument();
            let refused = Failed::from(Error::Refused(refusal));
            let refused = match missing {
                Some(argument) => Failed { exit: Exit::Usage, ..refused }.next(format!(
                    "Give --{}. See what the dataset requires: hapax datasets show",
                    argument.replace('_', "-")
                )),
                None => refused,
            };
            Err(match blocks {
                Some(attempt) => {
                    let (key, attempt) = (key.to_string(), attempt.to_string());
                    refused.next(format!(
                        "It is partial, and blocks its dataset. Undo it by hand, then: {}",
                        command([
                            "effects",
                            "resolve",
                            &key,
                            "--attempt",
                            &attempt,
                            "--saw",
                            "partial",
                            "--did-not-happen",
                            "--note",
                            "undone by hand",
                        ])
                    ))
                }
                None => refused,
            })
        }
        error => Err(error.into()),
    }
}
