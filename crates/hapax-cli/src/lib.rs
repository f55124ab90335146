//! `hapax`, the one binary. JSON on the wire and text for people live here; decisions do not.
//!
//! A library only so that the proof harness can build the same program with bugs in it.

mod archive;
mod args;
mod bench;
mod config;
mod control;
mod datasets;
mod doctor;
mod effects;
mod epoch;
mod events;
mod exit;
mod extraction;
mod hint;
mod items;
mod journal;
mod key;
mod lineage;
mod lint;
mod listen;
mod log;
mod migrate;
mod operation;
mod outbox;
mod output;
mod program;
mod proxy;
mod recording;
mod reviews;
mod run;
mod serve;
mod service;
mod stop;
mod token;
mod watchdog;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use args::{Args, Command};
use exit::{Exit, Failed};

/// Runs the command that the arguments of this process name.
pub fn main() -> ExitCode {
    if let Some(code) = watchdog::watch().or_else(program::become_program) {
        return code;
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            let code = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            return code.into();
        }
    };
    let json = args.global.json;
    match dispatch(args) {
        Ok(code) => code.into(),
        Err(failed) => {
            if json {
                output::json(&failed.json());
            }
            failed.print();
            failed.exit.into()
        }
    }
}

fn dispatch(args: Args) -> Result<Exit, Failed> {
    let Args { global, command } = args;
    hint::set_ledger(&global);
    match command {
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Args::command(), "hapax", &mut std::io::stdout());
            Ok(Exit::Done)
        }
        Command::Key(key) => key::main(&global, &key),
        Command::Migrate(migrate) => migrate::main(&global, &migrate),
        Command::Bench(bench) => bench::main(&global, &bench),
        // A current-thread runtime keeps the program's parent thread alive as long as we are.
        Command::Run(run) => runtime()?.block_on(run::main(&global, &run)),
        Command::Effects(effects) => runtime()?.block_on(effects::main(&global, effects)),
        Command::Journal(journal) => runtime()?.block_on(journal::main(&global, journal)),
        Command::Outbox(outbox) => runtime()?.block_on(outbox::main(&global, outbox)),
        Command::Dev(dev) => threads()?.block_on(serve::dev(&global, &dev)),
        Command::Serve(args) => threads()?.block_on(serve::serve(&global, &args)),
        Command::Datasets(datasets) => runtime()?.block_on(datasets::main(&global, datasets)),
        Command::Reviews(reviews) => runtime()?.block_on(reviews::main(&global, reviews)),
        Command::Lineage(lineage) => runtime()?.block_on(lineage::main(&global, lineage)),
        Command::VerifyArtifact(args) => runtime()?.block_on(lineage::check(&global, &args)),
        Command::Extract(args) => threads()?.block_on(extraction::extract(&global, &args)),
        Command::Cache(cache) => runtime()?.block_on(extraction::cache(&global, cache)),
        Command::Ontologies(args) => runtime()?.block_on(extraction::ontologies(&global, args)),
        Command::Items(args) => threads()?.block_on(items::main(&global, args)),
        Command::Epoch(epoch) => runtime()?.block_on(epoch::main(&global, epoch)),
        Command::Lint(lint) => lint::main(&global, &lint),
        Command::Control(control) => control::main(&global, &control),
        Command::Token(token) => runtime()?.block_on(token::main(&global, token)),
        Command::Proxy(proxy) => threads()?.block_on(proxy::main(&global, &proxy)),
        Command::Listen(listen) => runtime()?.block_on(listen::main(&global, &listen)),
        Command::Doctor(doctor) => runtime()?.block_on(doctor::main(&global, &doctor)),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failed> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failed::new(Exit::Unreachable, format!("no runtime: {error}")))
}

/// For commands that serve many clients at once.
fn threads() -> Result<tokio::runtime::Runtime, Failed> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failed::new(Exit::Unreachable, format!("no runtime: {error}")))
}
