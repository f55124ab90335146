//! Command-line arguments of pipelines.

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
    /// The kind of change, such as publish
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
    /// The width of the buckets of logical time; 24h, unless the file says otherwise
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) bucket: Option<Duration>,
    /// A file that it writes; hashed after the program and kept in the lineage
    #[arg(long, value_name = "FILE", requires = "pipeline")]
    pub(crate) output: Vec<PathBuf>,
    /// Emit an event of this name for each --output, which registers it as published
    #[arg(long, value_name = "EVENT", requires = "output")]
    pub(crate) publish: Option<String>,
    /// Why it is done; required where the dataset is sensitive
    #[arg(long, value_name = "TEXT", requires = "pipeline")]
    pub(crate) justification: Option<String>,
    /// The permission for it; required where the dataset is restricted
    #[arg(long, value_name = "REF", requires = "pipeline")]
    pub(crate) governance_ref: Option<String>,
    /// The part of the dataset it is about, where that has shards
    #[arg(long, value_name = "PART", requires = "pipeline")]
    pub(crate) part: Option<String>,
    /// The file with [pipeline]: environment, watts of a core, emissions of the grid
    #[arg(long, env = "HAPAX_CONFIG", value_name = "FILE", default_value = "hapax.toml")]
    pub(crate) config: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Datasets {
    /// List the declarations
    List,
    /// Show one declaration
    Show {
        /// The dataset
        dataset: String,
    },
    /// Declare the datasets of a file, each in place of its earlier declaration
    Declare {
        /// The file, with sections [datasets.NAME]
        #[arg(long, env = "HAPAX_CONFIG", value_name = "FILE", default_value = "hapax.toml")]
        config: PathBuf,
    },
    /// Remove the declaration of a dataset
    Drop {
        /// The dataset
        dataset: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Reviews {
    /// List reviews, newest first
    List {
        /// Also the decided ones
        #[arg(long)]
        all: bool,
        /// At most this many
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Ask for a review of an operation; it is refused until the review is decided
    Open(OpenReview),
    /// Let the operation be tried again; its guards hold as before
    Approve(DecideReview),
    /// Do not let it be tried again
    Reject(DecideReview),
}

#[derive(Debug, clap::Args)]
pub(crate) struct OpenReview {
    /// The operation, by its key: as `hapax effects list` names it, or idempotency_log.idem_key
    pub(crate) operation: String,
    #[command(flatten)]
    pub(crate) by: By,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DecideReview {
    /// The review, as `reviews list` names it
    pub(crate) review: String,
    #[command(flatten)]
    pub(crate) by: By,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Lineage {
    /// Print the lineage of all operations in the journal, or write it into a directory
    Export {
        /// The format
        #[arg(long, value_enum, default_value_t = Format::Openlineage, conflicts_with = "to")]
        format: Format,
        /// Only of this dataset
        #[arg(long)]
        dataset: Option<String>,
        /// Write all formats into a directory instead, in place of earlier files
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
    /// Trust only this public key, as `hapax journal prove` prints it [default: this ledger's]
    #[arg(long, value_name = "KEY")]
    pub(crate) public_key: Option<String>,
}

/// Compare recorded operations with the files there now, or run them again in a sandbox.
///
/// No operation that succeeded is repeated in its own place: `verify` compares hashes; the other
/// modes run recorded programs in a directory of their own, emit no events, and leave sensitive
/// datasets alone. The findings are recorded as an effect of their own.
#[derive(Debug, clap::Args)]
pub(crate) struct Replay {
    /// How to replay
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
    /// With --mode full: where to keep the files that are made again
    #[arg(long, value_name = "DIR", required_if_eq("mode", "full"))]
    pub(crate) keep: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Compare recorded hashes with the files there now; run nothing
    Verify,
    /// Run everything again in a sandbox and compare
    DryRun,
    /// The same, and keep the files; putting them in place needs approval
    Full,
    /// The same as dry-run, for chosen tasks
    Segment,
}

/// Put the files of an approved full replay in place.
#[derive(Debug, clap::Args)]
pub(crate) struct Promote {
    /// The record of the replay, as `journal replay --mode full` named it
    pub(crate) replay: String,
    /// Where the replay kept its files
    #[arg(long, value_name = "DIR")]
    pub(crate) kept: PathBuf,
    /// Where recorded files lie [default: this directory]
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) files: PathBuf,
}

/// List operations that can be undone.
#[derive(Debug, clap::Args)]
pub(crate) struct RollBacks {
    /// Only of this dataset
    #[arg(long)]
    pub(crate) dataset: Option<String>,
}

/// Undo an operation, by its place in the journal.
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
