//! The `hapax` program under attack, and the program that it runs.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use crate::sink::{Answer, Client, Rule};

static SHIPPED: OnceLock<PathBuf> = OnceLock::new();

/// Names the program to attack: the one that is shipped, in place of the one with bugs beside this program.
pub fn set_shipped(path: impl Into<PathBuf>) {
    let _ = SHIPPED.set(path.into());
}

/// `hapax`, with this bug if there is one.
pub fn hapax(bug: Option<&str>) -> Command {
    let beside = || crate::own_program().with_file_name("hapax-planted");
    let path = SHIPPED.get().filter(|_| bug.is_none()).cloned().unwrap_or_else(beside);
    let mut command = Command::new(path);
    for variable in ["HAPAX_CONFIG", "HAPAX_DB", "HAPAX_LISTEN", "HAPAX_NAMESPACE", "HAPAX_PLANT"] {
        command.env_remove(variable);
    }
    if let Some(bug) = bug {
        command.env("HAPAX_PLANT", bug);
    }
    command.stdin(Stdio::null());
    command
}

/// The work of a program under `hapax run`, at the judge. Its arguments name the effect, and are the
/// same for all callers; the environment sets the rest.
#[derive(Debug, Clone, clap::Args)]
pub struct Act {
    /// The judge's port
    #[arg(long)]
    pub sink: u16,
    /// The judge's name for the effect
    #[arg(long)]
    pub key: String,
    /// How the target treats repetitions and late arrivals
    #[arg(long)]
    pub rule: Rule,
    /// The number of the caller
    #[arg(long, env = "HAPAX_PROOF_BY", default_value_t = 0)]
    pub by: u64,
    /// How long it works before it sends, in milliseconds
    #[arg(long, env = "HAPAX_PROOF_BEFORE_MS", default_value_t = 0)]
    pub before_ms: u64,
    /// How long it works after that, in milliseconds
    #[arg(long, env = "HAPAX_PROOF_AFTER_MS", default_value_t = 0)]
    pub after_ms: u64,
    /// A file that is made when it starts
    #[arg(long, env = "HAPAX_PROOF_STARTED")]
    pub started: Option<PathBuf>,
}

impl Act {
    /// The command line of this program: `act` executes the effect, `look` looks whether it was
    /// executed.
    pub fn words(&self, verb: &str) -> Vec<String> {
        let own = crate::own_program().to_string_lossy().into_owned();
        let (sink, rule) = (self.sink.to_string(), self.rule.to_string());
        let words = [&own, verb, "--sink", &sink, "--key", &self.key, "--rule", &rule];
        words.map(str::to_owned).to_vec()
    }

    /// Sets the environment of a command that runs this program.
    pub fn set_environment(&self, command: &mut Command) {
        command.env("HAPAX_PROOF_BY", self.by.to_string());
        command.env("HAPAX_PROOF_BEFORE_MS", self.before_ms.to_string());
        command.env("HAPAX_PROOF_AFTER_MS", self.after_ms.to_string());
        if let Some(started) = &self.started {
            command.env("HAPAX_PROOF_STARTED", started);
        }
    }
}

/// Executes the effect once more; prints the caller that did it.
pub fn act(act: &Act) -> Result<(), String> {
    if let Some(started) = &act.started {
        File::create(started).map_err(|error| error.to_string())?;
    }
    std::thread::sleep(Duration::from_millis(act.before_ms));
    let answer = Client::connect(act.sink)
        .and_then(|mut sink| sink.execute(&act.key, act.by, fence()?, act.rule));
    let answer = answer.map_err(|error| error.to_string())?;
    std::thread::sleep(Duration::from_millis(act.after_ms));
    match answer {
        Answer::Found(by) => {
            println!("{by}");
            Ok(())
        }
        Answer::None | Answer::Refused => Err("the target refused it".into()),
    }
}

/// Looks, as a reconciler, whether the effect was executed: the caller that did it, or `None`.
pub fn look(act: &Act) -> Result<Option<u64>, String> {
    let answer =
        Client::connect(act.sink).and_then(|mut sink| sink.look(&act.key, fence()? + 1, act.rule));
    match answer.map_err(|error| error.to_string())? {
        Answer::Found(by) => Ok(Some(by)),
        Answer::None | Answer::Refused => Ok(None),
    }
}

/// The fence that `hapax run` passes to its programs.
fn fence() -> std::io::Result<u64> {
    let fence = std::env::var("HAPAX_FENCE").ok().and_then(|fence| fence.parse().ok());
    fence.ok_or_else(|| std::io::Error::other("HAPAX_FENCE is not set"))
}
