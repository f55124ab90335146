//! What is said of pipelines on the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};

use super::{By, duration};

/// An operation of a pipeline: with these, `run` needs no --key.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Pipeline operations (instead of --key)")]
pub(crate) struct Operation {
    /// The pipeline; the key is derived from this and the seven that follow
    #[arg(long, value_name = "ID", requires_all = ["task", "dataset", "operation", "version", "logical_time"])]
    pub(crate) pipeline: Option<String>,
    /// Its task
    #[arg(long, value_name = "ID", requires = "pipeline")]
    pub(crate) task: Option<String>,
    /// The dataset it changes, which is locked meanwhile
    #[arg(long, value_name = "ID", requires = "pipeline")]
    pub(crate) dataset: Option<String>,
    /// What kind of change, such as publish
    #[arg(long, value_name = "TYPE", requires = "pipeline")]
    pub(crate) operation: Option<String>,
    /// The version it makes
    #[arg(long, value_name = "VERSION", requires = "pipeline")]
    pub(crate) version: Option<String>,
    /// A file that it reads; its checksum is part of the key. May be given several times
    #[arg(long, value_name = "FILE", requires = "pipeline")]
    pub(crate) input: Vec<PathBuf>,
    /// A parameter; their hash is part of the key. May be given several times
    #[arg(long, value_name = "NAME=VALUE", requires = "pipeline")]
    pub(crate) param: Vec<String>,
    /// The time the operation is about (2026-11-16T06:00:00Z), never the time it is run at
    #[arg(long, value_name = "TIME", requires = "pipeline")]
    pub(crate) logical_time: Option<String>,
    /// How wide the buckets are that it is rounded down to; 24h, unless the file says otherwise
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) bucket: Option<Duration>,
    /// A file that it writes; hashed after the program and kept in the lineage
    #[arg(long, value_name = "FILE", requires = "pipeline")]
    pub(crate) output: Vec<PathBuf>,
    /// Tell of each --output by an event of this name, which registers it as published
    #[arg(long, value_name = "EVENT", requires = "output")]
    pub(crate) publish: Option<String>,
    /// Why it is done; asked for where the dataset is sensitive
    #[arg(long, value_name = "TEXT", requires = "pipeline")]
    pub(crate) justification: Option<String>,
    /// What allows it; asked for where the dataset is restricted
    #[arg(long, value_name = "REF", requires = "pipeline")]
    pub(crate) governance_ref: Option<String>,
    /// Which part of the dataset it is about, where that has shards
    #[arg(long, value_name = "PART", requires = "pipeline")]
    pub(crate) part: Option<String>,
    /// The file with [pipeline]: environment, what a core draws, what the grid emits
    #[arg(long, env = "HAPAX_CONFIG", value_name = "FILE", default_value = "hapax.toml")]
    pub(crate) config: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Datasets {
    /// List what is declared
    List,
    /// Show one declaration
    Show {
        /// Which
        dataset: String,
    },
    /// Declare the datasets of a file, each in place of what was declared of it before
    Declare {
        /// The file, with sections [datasets.NAME]
        #[arg(long, env = "HAPAX_CONFIG", value_name = "FILE", default_value = "hapax.toml")]
        config: PathBuf,
    },
    /// Say that a dataset is no longer declared
    Drop {
        /// Which
        dataset: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Reviews {
    /// List what somebody was asked, newest first
    List {
        /// Also what is decided
        #[arg(long)]
        all: bool,
        /// At most this many
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Ask somebody about an operation; it is refused until there is an answer
    Open(Opened),
    /// Let the operation be tried again; its guards hold as before
    Approve(Decided),
    /// Do not
    Reject(Decided),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Opened {
    /// The operation, by its key: as `hapax effects list` names it, or idempotency_log.idem_key
    pub(crate) operation: String,
    #[command(flatten)]
    pub(crate) by: By,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Decided {
    /// The review, as `reviews list` names it
    pub(crate) review: String,
    #[command(flatten)]
    pub(crate) by: By,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Lineage {
    /// Print lineage of everything the journal tells, or write it into a directory
    Export {
        /// As what
        #[arg(long, value_enum, default_value_t = Format::Openlineage, conflicts_with = "to")]
        format: Format,
        /// Only of this dataset
        #[arg(long)]
        dataset: Option<String>,
        /// Write all of them into a directory instead; what is there is written anew
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
    },
    /// Print a signed attestation of a published version, or of an output of an operation
    Attest {
        /// The dataset
        dataset: String,
        /// The version
        version: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Run events, one JSON document a line
    Openlineage,
    /// PROV-O as JSON-LD
    Prov,
    /// PROV-O as Turtle
    Turtle,
    /// STAC items, and with --to their collections
    Stac,
    /// DCAT datasets as JSON-LD
    Dcat,
    /// Statements for a graph, with their parameters
    Cypher,
}

/// Check a file against the signed attestation of its making.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArtifact {
    /// The file
    pub(crate) file: PathBuf,
    /// The attestation, as `hapax lineage attest` printed it
    #[arg(long, value_name = "FILE")]
    pub(crate) attestation: PathBuf,
    /// Believe only this public key, as `hapax journal prove` prints it [default: this ledger's]
    #[arg(long, value_name = "KEY")]
    pub(crate) public_key: Option<String>,
}

/// Hold what the journal says of operations against what is there, or do them again in a sandbox.
///
/// Nothing that succeeded is done again where it was done: `verify` compares hashes; the other
/// modes run recorded programs in a directory of their own, tell nobody, and leave sensitive
/// datasets alone. What was found is recorded as an effect of its own.
#[derive(Debug, clap::Args)]
pub(crate) struct Replay {
    /// What to do
    #[arg(long, value_enum, default_value_t = Mode::Verify)]
    pub(crate) mode: Mode,
    /// Only of this dataset
    #[arg(long)]
    pub(crate) dataset: Option<String>,
    /// With --mode segment: only these tasks; may be given several times
    #[arg(long, value_name = "TASK", required_if_eq("mode", "segment"))]
    pub(crate) task: Vec<String>,
    /// Where recorded files lie, if not where they were [default: this directory]
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) files: PathBuf,
    /// With --mode verify: also compare the catalog in this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) catalog: Option<PathBuf>,
    /// With --mode full: where to keep what was made again
    #[arg(long, value_name = "DIR", required_if_eq("mode", "full"))]
    pub(crate) keep: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Compare recorded hashes with what is there; run nothing
    Verify,
    /// Run everything again in a sandbox and compare
    DryRun,
    /// The same, and keep what was made; putting it in place needs approval
    Full,
    /// The same as dry-run, for chosen tasks
    Segment,
}

/// Put in place what a full replay made anew, where somebody has approved it.
#[derive(Debug, clap::Args)]
pub(crate) struct Promote {
    /// The record of the replay, as `journal replay --mode full` named it
    pub(crate) replay: String,
    /// Where the replay kept what it made
    #[arg(long, value_name = "DIR")]
    pub(crate) kept: PathBuf,
    /// Where recorded files lie [default: this directory]
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) files: PathBuf,
}

/// List what can be undone.
#[derive(Debug, clap::Args)]
pub(crate) struct RollBacks {
    /// Only of this dataset
    #[arg(long)]
    pub(crate) dataset: Option<String>,
}

/// Undo what an operation did, by its place in the journal.
#[derive(Debug, clap::Args)]
pub(crate) struct RollBack {
    /// The entry, as `journal list` or idempotency_log.wal_pointer has it
    pub(crate) pointer: u64,
    /// Only if its steps have this checksum, as `roll-backs` lists it
    #[arg(long, value_name = "SUM")]
    pub(crate) checksum: Option<String>,
    #[command(flatten)]
    pub(crate) by: By,
}
