//! `hapax run`: any program, once.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use hapax::{
    Bound, Claim, Done, EffectBuilder, Error, Failure, Finding, Fingerprint, Hapax, How, Outcome,
    Safety, Settling, StateName,
};
use hapax_pipeline::Pipeline;
use serde_json::json;

use crate::args::{self, Global, Run};
use crate::epoch;
use crate::events;
use crate::exit::{Exit, Failed};
use crate::hint::{self, command};
use crate::log;
use crate::operation;
use crate::output;
use crate::program::{self, End, Program, WorkLimit, shell};
use crate::recording::{Stream, pieces};

/// The name under which `run` registers how to undo a program.
pub(crate) const UNDO: &str = "run.rollback";

/// How long a caller waits until the outcome is recorded, and until the ledger is closed.
const RECORD: Duration = Duration::from_secs(10);
const CLOSE: Duration = Duration::from_secs(2);

pub(crate) async fn main(global: &Global, run: &Run) -> Result<Exit, Failed> {
    if run.safety == args::Safety::Reconcilable && run.reconcile.is_none() {
        return Err(Failed::usage(
            "--safety reconcilable needs a program that looks: --reconcile CMD",
        ));
    }
    if run.reconcile.is_some() && run.safety != args::Safety::Reconcilable {
        return Err(Failed::usage("--reconcile needs --safety reconcilable"));
    }
    let hapax = output::builder(global)
        .lease(run.lease)
        .record_within(RECORD)
        .holder(format!("hapax run, process {}", std::process::id()))
        .open(&global.db)
        .await?
        .in_namespace(output::namespace(global)?);
    let result = match &run.key {
        Some(name) => once(global, run, &hapax, name).await,
        None => operation::once(global, run, &hapax).await,
    };
    match tokio::time::timeout(CLOSE, hapax.close()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) if result.is_ok() => Failed::from(error).print(),
        // The threads of a store that does not answer are not waited for; the process ends.
        _ => std::mem::forget(hapax),
    }
    result
}

async fn once(global: &Global, run: &Run, hapax: &Hapax, name: &str) -> Result<Exit, Failed> {
    let key = output::key(name)?;
    log::progress();
    hapax.on_rollback(UNDO, undo);
    let words: Vec<&[u8]> = run.program.iter().map(|word| program::bytes(word)).collect();
    let wait = match (run.wait, run.on_lock) {
        (Some(wait), _) => wait,
        (None, args::OnLock::Backoff) => Duration::from_secs(30),
        (None, _) => Duration::ZERO,
    };
    let effect = hapax.effect(key).fingerprint(Fingerprint::of_parts(&words)).wait(wait);
    let mut effect = terms(effect, run, key, bound(run)?);
    if let Some(lock) = &run.lock {
        effect = effect.lock(&[lock]).on_lock(match run.on_lock {
            args::OnLock::Backoff => hapax::OnLock::Wait,
            args::OnLock::Skip | args::OnLock::Escalate => hapax::OnLock::Fail,
        });
    }
    if let Some(label) = hapax_server::wire::label(name) {
        effect = effect.label(label);
    }
    let ended = Rc::new(Cell::new(None));
    let result = {
        let ended = ended.clone();
        let show = !global.json;
        effect.run(|claim| async move { perform(run, show, &claim, &ended).await }).await
    };
    conclude(global, run, hapax, (name, key), result, ended.get()).await
}

/// The epoch that the effect is bound to, if `--epoch` names one.
pub(crate) fn bound(run: &Run) -> Result<Option<Bound>, Failed> {
    run.epoch.as_deref().map(epoch::bound).transpose()
}

/// Applies the options that effects with a key and operations have in common.
pub(crate) fn terms(
    effect: EffectBuilder,
    run: &Run,
    key: hapax::Key,
    bound: Option<Bound>,
) -> EffectBuilder {
    let mut effect = effect.safety(match run.safety {
        args::Safety::Transactional => Safety::Transactional,
        args::Safety::Opaque => Safety::Opaque,
        args::Safety::Reconcilable => {
            Safety::Reconcilable(Settling::of_ms(run.settling.as_millis() as u64))
        }
    });
    if let Some(command) = run.reconcile.clone() {
        effect = effect.reconcile(move |request| look(command.clone(), key, request));
    }
    if let Some(bound) = bound {
        effect = effect.in_epoch(bound);
    }
    if let Some(ttl) = run.ttl {
        effect = effect.ttl(ttl);
    }
    if let Some(deadline) = run.deadline {
        effect = effect.deadline(deadline);
    }
    effect
}

/// Why a program's run was no success, for the exit code.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RunFailure {
    Program(End),
    Guard,
}

async fn perform(
    run: &Run,
    show: bool,
    claim: &Claim,
    ended: &Cell<Option<RunFailure>>,
) -> Result<Outcome, Failure> {
    let events_file = tempfile::NamedTempFile::new();
    let events_file =
        events_file.map_err(|error| Failure::not_done(format!("no file for events: {error}")))?;
    let environment: Vec<_> = [
        ("HAPAX_KEY", claim.key().to_string()),
        ("HAPAX_ATTEMPT", claim.attempt().to_string()),
        ("HAPAX_FENCE", claim.fence().to_string()),
        ("HAPAX_EVENTS", events_file.path().to_string_lossy().into_owned()),
    ]
    .into_iter()
    .chain(run.epoch.clone().map(|epoch| ("HAPAX_EPOCH", epoch)))
    .collect();
    for check in &run.pre {
        if let Err(why) = passes(check, &environment, show, Some(claim)).await {
            ended.set(Some(RunFailure::Guard));
            return Err(Failure::not_done(format!("--pre {check:?} {why}")));
        }
    }
    if let Some(command) = &run.rollback {
        let registered = claim.undo_with(UNDO, command.as_bytes()).await;
        registered.map_err(|error| Failure::not_done(error.to_string()))?;
    }
    let program =
        Program { words: &run.program, environment: &environment, show, limits: Some(claim) };
    // A program that was not started did not happen, for certain.
    let (end, recording) =
        program.run().await.map_err(|error| Failure::not_done(error.to_string()))?;
    if end != End::Exited(0) {
        ended.set(Some(RunFailure::Program(end)));
        return Err(failure(run, &end));
    }
    for check in &run.post {
        if let Err(why) = passes(check, &environment, show, Some(claim)).await {
            ended.set(Some(RunFailure::Guard));
            return Err(Failure::partial(format!("--post {check:?} {why}")));
        }
    }
    // The program is done, and its events cannot be recorded.
    for event in events::read(&events_file).map_err(Failure::ambiguous)? {
        claim.emit(event)?;
    }
    Ok(recording.outcome())
}

fn failure(run: &Run, end: &End) -> Failure {
    let why = format!("the program {end}");
    match end {
        _ if run.rollback.is_some() => Failure::partial(why),
        End::Exited(_) => Failure::not_done(why),
        End::Killed(_) | End::Stopped => Failure::ambiguous(why),
    }
}

pub(crate) async fn passes(
    check: &str,
    environment: &[(&'static str, String)],
    show: bool,
    limits: Option<&dyn WorkLimit>,
) -> Result<(), String> {
    match (Program { words: &shell(check), environment, show, limits }).run().await {
        Ok((End::Exited(0), _)) => Ok(()),
        Ok((end, _)) => Err(end.to_string()),
        Err(error) => Err(format!("could not be run: {error}")),
    }
}

/// Undoes a program by its registered shell command.
pub(crate) async fn undo(command: Vec<u8>) -> Result<(), Failure> {
    let command = String::from_utf8_lossy(&command).into_owned();
    passes(&command, &[], true, None)
        .await
        .map_err(|why| Failure::not_done(format!("--rollback {command:?} {why}")))
}

/// Asks the reconciler whether an attempt happened.
async fn look(command: String, key: hapax::Key, request: hapax::LookupRequest) -> Finding {
    let environment = [
        ("HAPAX_KEY", key.to_string()),
        ("HAPAX_ATTEMPT", request.attempt.to_string()),
        ("HAPAX_FENCE", request.fence.to_string()),
    ];
    let words = shell(&command);
    let program = Program { words: &words, environment: &environment, show: false, limits: None };
    match program.run().await {
        Ok((End::Exited(0), recording)) => Finding::Happened(recording.outcome()),
        Ok((End::Exited(1), _)) => Finding::NotFound,
        Ok((end, _)) => Finding::CannotTell(format!("--reconcile {end}")),
        Err(error) => Finding::CannotTell(format!("--reconcile could not be run: {error}")),
    }
}

/// Turns a result into a message and an exit code.
async fn conclude(
    global: &Global,
    run: &Run,
    hapax: &Hapax,
    (name, key): (&str, hapax::Key),
    result: Result<Done, Error>,
    ended: Option<RunFailure>,
) -> Result<Exit, Failed> {
    let error = match result {
        Ok(done) => {
            show(global, key, &done);
            return Ok(Exit::Done);
        }
        Err(error) => error,
    };
    let exit = match ended {
        Some(RunFailure::Program(end)) => Exit::Program(end.code()),
        Some(RunFailure::Guard) => Exit::Refused,
        None => Exit::Look,
    };
    match error {
        Error::Blocked(blocked)
            if blocked.state == StateName::Partial && run.rollback.is_some() && ended.is_some() =>
        {
            roll_back(hapax, key, &blocked).await?;
            Err(Failed::new(exit, format!("{}; rolled back", blocked.reason)))
        }
        Error::Blocked(blocked) if blocked.holder.is_none() => {
            let exit = if matches!(ended, Some(RunFailure::Guard)) { exit } else { Exit::Look };
            Err(someone_must_look(name, &blocked, exit))
        }
        Error::Failed { reason } if ended.is_some() => {
            let failed = Failed::new(exit, reason);
            Err(if exit == Exit::Refused {
                failed
            } else {
                failed.next("It did not happen; a repeat runs it again.")
            })
        }
        Error::Failed { reason } => Err(Failed::new(Exit::Program(127), reason)),
        Error::Locked { holder } if run.on_lock == args::OnLock::Escalate => {
            Err(Failed::new(Exit::Look, format!("the lock is held by {holder}"))
                .next(format!("Look at it: {}", command(["effects", "show", &holder.to_string()]))))
        }
        error @ Error::Unrecorded { .. } => Err(unrecorded(error, ended)),
        error @ (Error::Refused { .. } | Error::Fenced(_)) => Err(Failed::from(error)
            .next(format!("See the record and its history: {}", hint::show(name)))),
        error => Err(error.into()),
    }
}

/// The program ran, and the ledger does not know how it ended.
pub(crate) fn unrecorded(error: Error, ended: Option<RunFailure>) -> Failed {
    let Error::Unrecorded { error: cause, .. } = &error else { return error.into() };
    let ran = match ended {
        Some(RunFailure::Program(end)) => format!("the program ran and {end}"),
        _ => "the program ran and exited 0".into(),
    };
    let message = format!("{ran}; its outcome could not be recorded: {cause}");
    Failed { message, ..Failed::from(error) }
}

/// Rolls back at once, rather than at the next call.
pub(crate) async fn roll_back(
    hapax: &Hapax,
    key: hapax::Key,
    blocked: &hapax::Blocked,
) -> Result<(), Failed> {
    match Pipeline::new(hapax.clone()).roll_back(key, blocked.attempt).await {
        Ok(_) => Ok(()),
        Err(error) => {
            let message = format!("{}; the rollback failed too: {error}", blocked.reason);
            let next = "It stays partial. Run the same command again to roll back and retry.";
            Err(Failed::new(Exit::Look, message).next(next))
        }
    }
}

pub(crate) fn someone_must_look(name: &str, blocked: &hapax::Blocked, exit: Exit) -> Failed {
    let state = blocked.state;
    let shown = output::plain(Some(name));
    Failed::new(exit, format!("the outcome of {shown} is {state}: {}", blocked.reason))
        .next(hint::resolve(name, blocked.attempt, state))
}

pub(crate) fn show(global: &Global, key: hapax::Key, done: &Done) {
    if global.json {
        let text = |wanted: Stream| {
            let of_stream =
                pieces(&done.outcome).into_iter().filter(|(stream, _)| *stream == wanted);
            String::from_utf8_lossy(&of_stream.flat_map(|(_, bytes)| bytes).collect::<Vec<_>>())
                .into_owned()
        };
        output::json(&json!({
            "verdict": if done.how == How::Executed { "executed" } else { "replayed" },
            "key": key.to_string(),
            "exit": 0,
            "stdout": text(Stream::Out),
            "stderr": text(Stream::Err),
            "digest": done.outcome.digest().to_string(),
            "kept": done.outcome.body().is_some(),
        }));
        return;
    }
    if done.how == How::Executed {
        return;
    }
    if done.body().is_none() {
        let (size, digest) = (done.outcome.size(), done.outcome.digest());
        eprintln!("hapax: it happened; its output was too large to keep ({size} bytes, {digest})");
    }
    for (stream, bytes) in pieces(&done.outcome) {
        stream.write(&bytes);
    }
}
