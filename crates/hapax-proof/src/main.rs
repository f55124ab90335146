//! Breaks hapax on purpose: one experiment, or all of them with a report.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use hapax_core::planted::{Bug, plant};
use hapax_proof::programme::{Experiment, Tier};
use hapax_proof::{
    attack, lineage, operations, outbox, overlap, program, prove, relay, sink, worker,
};

#[derive(Parser)]
#[command(about, version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run everything and write the report
    Prove {
        /// Where to write it
        #[arg(long, default_value = "docs/proof.md")]
        report: PathBuf,
        /// The seed that everything random follows from
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Only this experiment; the rest of the report stays as it is
        #[arg(long)]
        only: Option<String>,
        /// The program to attack, as it is shipped
        #[arg(long)]
        hapax: Option<PathBuf>,
    },
    /// Run one experiment, and print its figures and violations
    Try {
        /// The experiment's name, as `list` shows it
        experiment: String,
        /// As thoroughly as for the report
        #[arg(long)]
        full: bool,
        /// The seed that everything random follows from
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// A bug to plant first; then the experiment must find something wrong
        #[arg(long)]
        plant: Option<String>,
    },
    /// Name all experiments and all bugs that can be planted
    List,
    /// Be the judge
    #[command(hide = true)]
    Sink {
        /// The file that records its executions
        file: PathBuf,
    },
    /// Be a process under test
    #[command(hide = true)]
    Worker(worker::Orders),
    /// Be a writer or a dispatcher under test
    #[command(hide = true)]
    Post(outbox::Orders),
    /// Perform an operation under test
    #[command(hide = true)]
    Operate(operations::Orders),
    /// Project operations under test
    #[command(hide = true)]
    Project(lineage::Orders),
    /// Perform many operations under test at once
    #[command(hide = true)]
    Occupy(overlap::Orders),
    /// Execute an effect at the judge
    #[command(hide = true)]
    Act(program::Act),
    /// Look whether the judge has executed an effect; exits 1 if it has not
    #[command(hide = true)]
    Look(program::Act),
    /// Be a caller from outside
    #[command(hide = true)]
    Client(attack::client::Orders),
    /// Be the service behind a proxy
    #[command(hide = true)]
    Upstream {
        /// The judge's port
        sink: u16,
    },
    /// Be a relay
    #[command(hide = true)]
    Relay {
        /// The port of this machine to pass connections on to
        to: u16,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Prove { report, seed, only, hapax } => {
            hapax.into_iter().for_each(program::set_shipped);
            match only {
                None => prove::prove(&report, seed),
                Some(name) => named(&name)
                    .and_then(|experiment| prove::prove_again(&report, seed, experiment)),
            }
        }
        Command::Try { experiment, full, seed, plant } => {
            attempt(&experiment, full, seed, plant.as_deref())
        }
        Command::List => {
            for experiment in Experiment::ALL {
                println!("{:22}{}", experiment.name(), experiment.title());
            }
            let bugs: Vec<_> = Bug::ALL.iter().map(|bug| bug.name()).collect();
            println!("\nbugs: {}", bugs.join(", "));
            Ok(())
        }
        Command::Sink { file } => sink::serve(&file).map_err(|error| error.to_string()),
        Command::Worker(orders) => worker::work(orders),
        Command::Post(orders) => outbox::work(&orders),
        Command::Operate(orders) => operations::work(&orders),
        Command::Project(orders) => lineage::work(&orders),
        Command::Occupy(orders) => overlap::work(&orders),
        Command::Act(act) => program::act(&act),
        Command::Look(act) => match program::look(&act) {
            Ok(Some(by)) => {
                println!("{by}");
                Ok(())
            }
            Ok(None) => return ExitCode::from(1),
            Err(_) => return ExitCode::from(2),
        },
        Command::Client(orders) => attack::client::call(&orders).map(|by| println!("{by}")),
        Command::Upstream { sink } => attack::upstream(sink),
        Command::Relay { to } => relay::serve(to).map_err(|error| error.to_string()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hapax-proof: {error}");
            ExitCode::FAILURE
        }
    }
}

fn named(name: &str) -> Result<Experiment, String> {
    let experiment = Experiment::ALL.iter().find(|experiment| experiment.name() == name);
    experiment.copied().ok_or_else(|| format!("no experiment is called {name}; see list"))
}

fn attempt(name: &str, full: bool, seed: u64, bug: Option<&str>) -> Result<(), String> {
    let experiment = named(name)?;
    if let Some(bug) = bug {
        let known = Bug::ALL.iter().find(|known| known.name() == bug);
        plant(*known.ok_or_else(|| format!("no bug is called {bug}; see list"))?);
    }
    let tier = match (full, bug) {
        (true, _) => Tier::Full,
        (false, Some(_)) => Tier::Bug,
        (false, None) => Tier::Quick,
    };
    let report = experiment.run(tier, seed, bug);
    print!("{report}");
    match report.violations.len() {
        0 => Ok(()),
        found => Err(format!("{found} found")),
    }
}
