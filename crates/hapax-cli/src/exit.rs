//! Exit codes that scripts can rely on, and the errors that lead to them.

use std::path::Path;
use std::process::ExitCode;

use hapax::{Error, StoreError};
use hapax_server::telemetry::TelemetryError;

use crate::hint::command;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done, or replayed.
    Done,
    /// With the exit code of the program that `run` executed.
    Program(u8),
    /// Wrong usage or malformed input.
    Usage,
    /// The key is recorded with another payload.
    Conflict,
    /// The store cannot be reached, or is damaged.
    Unreachable,
    /// A guard refused it.
    Refused,
    /// In flight or locked; try later.
    Later,
    /// The outcome is unknown; an operator must look.
    Look,
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Program(code) => code,
            Self::Usage => 64,
            Self::Conflict => 65,
            Self::Unreachable => 69,
            Self::Refused => 73,
            Self::Later => 75,
            Self::Look => 78,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// An error for people: what went wrong, and what to do next.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) exit: Exit,
    pub(crate) code: Option<&'static str>,
    pub(crate) message: String,
    pub(crate) next: Option<String>,
}

impl Failed {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, code: None, message: message.into(), next: None }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub(crate) fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::json!({ "error": {
            "code": self.code, "message": self.message, "next": self.next, "exit": self.exit.code(),
        }})
    }

    pub(crate) fn print(&self) {
        let code = self.code.map(|code| format!(" [{code}]")).unwrap_or_default();
        eprintln!("{} {}{code}", console::style("hapax:").for_stderr().red().bold(), self.message);
        for line in self.next.iter().flat_map(|next| next.lines()) {
            eprintln!("       {line}");
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        let stuck = || command(["effects", "list", "--stuck"]);
        let (exit, next) = match &error {
            Error::Undecided { .. } => (
                Exit::Later,
                "Another transaction has its row and has not ended. Nothing was run. Try again later."
                    .into(),
            ),
            Error::InFlight { .. } => {
                (Exit::Later, "Try again later, or wait for it with --wait.".into())
            }
            Error::Locked { .. } => {
                (Exit::Later, "Try again later, or wait with --on-lock backoff --wait.".into())
            }
            Error::Conflict { .. } => {
                (Exit::Conflict, "Use another key, or run the recorded command exactly.".into())
            }
            Error::Blocked(_) => {
                (Exit::Look, format!("Find out whether it happened: {}", stuck()))
            }
            Error::Refused { .. } => {
                (Exit::Refused, format!("Find its record: {}", command(["effects", "list"])))
            }
            Error::Failed { .. } => {
                (Exit::Program(1), "It did not happen and may be tried again.".into())
            }
            Error::Epoch(_) => (
                Exit::Refused,
                format!(
                    "A key counts in one epoch; use another in this one: {}",
                    command(["epoch", "show"])
                ),
            ),
            Error::Fenced(_) => (
                Exit::Look,
                format!(
                    "This attempt may have happened. Compare it with the record: {}",
                    command(["effects", "list"])
                ),
            ),
            Error::Unrecorded { attempt, kept, .. } => {
                (Exit::Look, unrecorded(&attempt.to_string(), kept.as_deref()))
            }
            Error::LeaseLost => (
                Exit::Look,
                "The work was stopped before another attempt could be granted. Run it again to find out how it stands."
                    .into(),
            ),
            Error::NotCommitted => {
                (Exit::Program(1), "It did not happen and may be tried again.".into())
            }
            Error::Unsupported(_) => (Exit::Usage, "Use a ledger in a file.".into()),
            Error::Store(StoreError::Unrouted { .. }) => (
                Exit::Refused,
                format!(
                    "Declare a route for it: {}. If a program ran, say what came of it: {}",
                    command(["outbox", "configure"]),
                    stuck()
                ),
            ),
            Error::Store(StoreError::Guarded { .. }) => (
                Exit::Refused,
                format!(
                    "Change the event or the configuration. If a program ran, say what came of it: {}",
                    stuck()
                ),
            ),
            Error::Store(StoreError::Differs(_)) => {
                (Exit::Conflict, "Derive each event from the effect's input alone.".into())
            }
            Error::Store(StoreError::Republished { .. }) => {
                (Exit::Conflict, "Publish it as a new version.".into())
            }
            Error::Store(StoreError::Invalid(_)) => {
                (Exit::Usage, "Correct it, and try again.".into())
            }
            Error::Store(StoreError::Incompatible(_)) => {
                (Exit::Unreachable, "Check --db, or use the version that made the file.".into())
            }
            Error::Store(StoreError::Full(_)) => {
                (Exit::Unreachable, "Nothing was recorded. Make room, and try again.".into())
            }
            Error::Store(StoreError::CommitUnknown(_)) => (
                Exit::Unreachable,
                "Whether it was recorded is not known. Try again: nothing happens twice.".into(),
            ),
            Error::Store(StoreError::Stopped(_)) => {
                (Exit::Unreachable, "Nothing was recorded. Start it again.".into())
            }
            Error::Store(StoreError::Corrupt(_)) => (
                Exit::Unreachable,
                format!(
                    "Copy the file before anything else; then: {}",
                    command(["journal", "verify"])
                ),
            ),
            _ => (Exit::Unreachable, "Nothing was recorded. Check --db and try again.".into()),
        };
        Self { exit, code: Some(error.code()), message: error.to_string(), next: Some(next) }
    }
}

/// The next step when work ran and its outcome could not be recorded.
fn unrecorded(attempt: &str, kept: Option<&Path>) -> String {
    let look = command(["effects", "list"]);
    match kept {
        Some(file) => format!(
            "The outcome is kept in {}. The next hapax command on this ledger that can reach it records it. \
             Until then the ledger shows {attempt} as running, and later as unknown. Do not run it under another key. \
             Look: {look}",
            file.display()
        ),
        None => format!(
            "The outcome could not be kept in a file either, so the ledger will call {attempt} unknown. \
             When the ledger is back, say what happened: {look}",
        ),
    }
}

impl From<hapax_control::Error> for Failed {
    fn from(error: hapax_control::Error) -> Self {
        use hapax_control::Error as Control;
        match error {
            Control::Conflict { recorded, asked } => Error::Conflict { recorded, asked }.into(),
            Control::Epoch(mismatch) => Error::Epoch(mismatch).into(),
            Control::Unavailable(error) | Control::Unrecorded(error) => error.into(),
            Control::Ledger(error) => error.into(),
            other => {
                Self { code: Some(other.page()), ..Self::new(Exit::Refused, other.to_string()) }
            }
        }
    }
}

impl From<hapax_pipeline::Error> for Failed {
    fn from(error: hapax_pipeline::Error) -> Self {
        use hapax_pipeline::Error as Pipeline;
        let (exit, next) = match &error {
            Pipeline::Ledger(Error::Locked { .. }) => {
                (Exit::Later, "Try again later, or wait longer: --wait 5m.".into())
            }
            Pipeline::Ledger(error) => return error.clone().into(),
            Pipeline::Invalid(_) => (Exit::Usage, "Correct it, and try again.".into()),
            Pipeline::Refused(_) => (
                Exit::Refused,
                format!(
                    "See what the datasets require: {}; and the reviews: {}",
                    command(["datasets", "list"]),
                    command(["reviews", "list"])
                ),
            ),
            Pipeline::Skipped { .. } => (Exit::Later, "Try again later.".into()),
            Pipeline::Escalated { .. } => (
                Exit::Look,
                format!("Approve or reject its review: {}", command(["reviews", "list"])),
            ),
            _ => (Exit::Program(1), "It did not happen and may be tried again.".into()),
        };
        Self { exit, code: Some(error.code()), message: error.to_string(), next: Some(next) }
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Error::from(error).into()
    }
}

impl From<hapax_items::Error> for Failed {
    fn from(error: hapax_items::Error) -> Self {
        use hapax_items::Error as Items;
        let escalations = || command(["items", "escalations"]);
        let decide = || format!("Decide, then run it again: {}", escalations());
        let (exit, next) = match &error {
            Items::Hapax(error) => return Self::from(error.clone()),
            Items::NotFound(what) if what.starts_with("escalation") => (
                Exit::Usage,
                format!("It may have been decided. List open escalations: {}", escalations()),
            ),
            Items::NotFound(_) => {
                (Exit::Usage, format!("List workflows: {}", command(["items", "workflows"])))
            }
            Items::Running { workflow } => {
                (Exit::Later, format!("Wait for it: {}", command(["items", "runs", workflow])))
            }
            Items::Attention { .. } => (Exit::Look, decide()),
            Items::Stale { .. } => {
                (Exit::Conflict, "Look again, and name the attempt of now.".into())
            }
            Items::Failed { failure, .. } => match failure.next.as_str() {
                "retry" | "reconcile" => {
                    (Exit::Later, "Run it again; a finished mutation is not repeated.".into())
                }
                _ => (Exit::Look, decide()),
            },
            _ => (Exit::Usage, "See docs/items.md for the valid values.".into()),
        };
        Self { code: Some(error.code()), ..Self::new(exit, error.to_string()).next(next) }
    }
}

impl From<TelemetryError> for Failed {
    fn from(error: TelemetryError) -> Self {
        let failed = Self::usage(error.to_string());
        match error {
            TelemetryError::Unsupported => {
                failed.next("Build it with --features otlp, or unset the variable.")
            }
            _ => failed,
        }
    }
}

impl From<hapax_bench::Error> for Failed {
    fn from(error: hapax_bench::Error) -> Self {
        use hapax_bench::Error as Bench;
        match error {
            Bench::Hapax(error) => error.into(),
            Bench::Pipeline(error) => error.into(),
            Bench::Extract(error) => error.into(),
            Bench::Items(error) => error.into(),
            Bench::Invalid(message) => Self::usage(message),
            other => Self::new(Exit::Unreachable, other.to_string()),
        }
    }
}
