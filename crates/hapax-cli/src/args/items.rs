//! Command-line arguments of items.

use std::path::PathBuf;

use clap::Subcommand;
use hapax_items::{Action, ItemState, Version};

/// The tools and the workflows.
#[derive(Debug, clap::Args)]
pub(crate) struct Setup {
    /// The file with [tools] and [workflows]
    #[arg(long, env = "HAPAX_CONFIG", value_name = "FILE", default_value = "hapax.toml")]
    pub(crate) config: PathBuf,
}

/// The person who decides, and the reason.
#[derive(Debug, clap::Args)]
pub(crate) struct Person {
    /// The attempt that you were shown; if it has changed since, nothing is decided
    #[arg(long, value_name = "ATTEMPT")]
    pub(crate) attempt: String,
    /// The person who decides; kept in the journal
    #[arg(long, env = "USER", default_value = "unknown")]
    pub(crate) by: String,
    /// Why; kept in the journal
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Items {
    /// Run a script: each item once, each mutation once, whatever happens in between
    ///
    /// A changed script is a new version. A transient failure is retried, an error of the script goes to the
    /// maintainer, if there is one, and the rest to a person: exit code 78.
    Run {
        /// The script; without it, the current version is run
        script: Option<PathBuf>,
        /// The workflow [default: the name of the file]
        #[arg(long, short, required_unless_present = "script")]
        workflow: Option<String>,
        /// Name the run: a run that ended under this name is not run again
        #[arg(long, value_name = "NAME")]
        id: Option<String>,
        /// The person who publishes it; kept with the version
        #[arg(long, env = "USER", default_value = "unknown")]
        by: String,
        #[command(flatten)]
        setup: Setup,
    },
    /// Publish a script without running it: the next run uses it, by hand or by schedule
    Publish {
        /// The script
        script: PathBuf,
        /// The workflow [default: the name of the file]
        #[arg(long, short)]
        workflow: Option<String>,
        /// The person who publishes it; kept with the version
        #[arg(long, env = "USER", default_value = "unknown")]
        by: String,
        #[command(flatten)]
        setup: Setup,
    },
    /// List workflows
    Workflows,
    /// List the versions of a script
    Versions {
        /// The workflow
        workflow: String,
        /// Print the script of this version
        #[arg(long, value_name = "VERSION")]
        show: Option<Version>,
    },
    /// Approve or reject a pending version
    Decide {
        /// The workflow
        workflow: String,
        /// The version
        version: Version,
        /// Let it be used
        #[arg(long, required_unless_present = "reject", conflicts_with = "reject")]
        approve: bool,
        /// Let it never be used
        #[arg(long)]
        reject: bool,
        #[command(flatten)]
        person: Person,
    },
    /// List the runs of a workflow, the newest first
    Runs {
        /// The workflow
        workflow: String,
        /// At most this many
        #[arg(long, default_value_t = 20)]
        limit: usize,
        /// Print the logs of the scripts
        #[arg(long)]
        log: bool,
    },
    /// List the items of a workflow, the newest first
    List {
        /// The workflow
        workflow: String,
        /// Only in this state: processing, done, failed, skipped or needs_attention
        #[arg(long, value_name = "STATE")]
        state: Vec<ItemState>,
        /// At most this many
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show an item and its mutations
    Show {
        /// The workflow
        workflow: String,
        /// The item
        item: String,
        /// The mutations of an earlier attempt
        #[arg(long, value_name = "N")]
        attempt: Option<u32>,
    },
    /// Begin a new attempt at an item, which ignores all earlier ones
    Reprocess {
        /// The workflow
        workflow: String,
        /// The item
        item: String,
        #[command(flatten)]
        person: Person,
    },
    /// Show escalations, what is known about each, and repairs to approve
    Escalations {
        /// Only the one of this key: sha256:<64 hex>
        key: Option<String>,
        /// Only of this workflow
        #[arg(long, short)]
        workflow: Option<String>,
        /// At most this many
        #[arg(long, default_value_t = 20)]
        limit: usize,
        #[command(flatten)]
        setup: Setup,
    },
    /// Decide an escalation
    Act {
        /// Its key, or the key of one of its mutations: sha256:<64 hex>
        key: String,
        /// try-again, did-not-happen, happened, skip or reprocess
        action: Action,
        /// With happened: the result, as JSON
        #[arg(long, value_name = "JSON")]
        result: Option<String>,
        #[command(flatten)]
        person: Person,
    },
    /// Look for mutations whose outcome is unknown, now
    Reconcile {
        #[command(flatten)]
        setup: Setup,
    },
    /// Check whether a script may replace another: item ids, subkeys, tools
    Compare {
        /// The script before
        before: PathBuf,
        /// The script after
        after: PathBuf,
        #[command(flatten)]
        setup: Setup,
    },
    /// Print the types that scripts can use, for TypeScript
    Types,
    /// Print instructions for an agent that writes or repairs scripts
    Instructions {
        /// The agent's role
        #[arg(value_parser = ["planner", "maintainer"])]
        role: String,
    },
}
