//! The command line, as its users see it.

pub(crate) mod extraction;
pub(crate) mod items;
pub(crate) mod pipeline;
mod serving;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

pub(crate) use serving::{Dev, Listen, LogFormat, Preset, Proxy, Role, Serve, Token};

/// Make effects happen once.
#[derive(Debug, Parser)]
#[command(
    version,
    name = "hapax",
    max_term_width = 100,
    after_help = "\
Exit codes: 0 done or replayed; the program's own code when `run` executed it and it failed;
64 wrong usage; 65 conflict; 69 store unreachable; 73 refused by a guard;
75 in flight or locked, try later; 78 outcome unknown, an operator must decide."
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Global {
    /// The ledger: a file, which is made if it does not exist, or postgres://…
    #[arg(
        long,
        global = true,
        env = "HAPAX_DB",
        value_name = "DB",
        default_value = "hapax.db",
        hide_env_values = true
    )]
    pub(crate) db: PathBuf,
    /// The key that signs the journal's heads [default: beside the file, or in your data directory]
    #[arg(long, global = true, env = "HAPAX_SIGNING_KEY", value_name = "FILE")]
    pub(crate) signing_key: Option<PathBuf>,
    /// The namespace to work in
    #[arg(long, global = true, env = "HAPAX_NAMESPACE", default_value = "default")]
    pub(crate) namespace: String,
    /// Print JSON: one document, or one a line for lists
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program once; a repeat prints what it printed and exits 0
    Run(Box<Run>),
    /// Derive keys from JSON fields on standard input
    Key(Key),
    /// Show effects, and resolve or reset them
    #[command(subcommand)]
    Effects(Effects),
    /// Read, verify, prove and export the journal
    #[command(subcommand)]
    Journal(Journal),
    /// Deliver events, and redrive those that failed
    #[command(subcommand)]
    Outbox(Outbox),
    /// Declare datasets, and list declarations
    #[command(subcommand)]
    Datasets(pipeline::Datasets),
    /// List reviews of operations, and approve or reject them
    #[command(subcommand)]
    Reviews(pipeline::Reviews),
    /// Lineage, catalogs and attestations of operations
    #[command(subcommand)]
    Lineage(pipeline::Lineage),
    /// Check a file against the attestation of its making; exits 73 if they differ
    VerifyArtifact(pipeline::VerifyArtifact),
    /// Find entities and relations in texts; chunks read before are not read again
    Extract(extraction::Extract),
    /// Count and remove cached results of extraction, and explain a miss
    #[command(subcommand)]
    Cache(extraction::Cache),
    /// List, store and remove the ontologies of extraction
    #[command(subcommand)]
    Ontologies(extraction::Ontologies),
    /// Run scripts that process items, and decide escalations
    #[command(subcommand)]
    Items(items::Items),
    /// Show the epoch of a domain, and end it
    #[command(subcommand)]
    Epoch(Epoch),
    /// Find home-made idempotency in source trees; exits 73 if there is any
    Lint(Lint),
    /// Look at the control plane
    #[command(subcommand)]
    Control(Control),
    /// Serve the ledger in ./hapax.db on this machine, with nothing to configure
    Dev(Dev),
    /// Serve a ledger to a team, as hapax.toml says
    Serve(Serve),
    /// Make, list and revoke the tokens that let clients in
    #[command(subcommand)]
    Token(Token),
    /// Stand before any HTTP service and forward each Idempotency-Key once
    Proxy(Box<Proxy>),
    /// Receive webhooks on loopback, check their signatures, and print them
    Listen(Listen),
    /// Look for problems; exits 78 if it finds an error
    Doctor(Doctor),
    /// Bring a PostgreSQL ledger's schema to the newest version
    Migrate(Migrate),
    /// Measure this machine, each figure beside its baseline
    Bench(Bench),
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
}

/// Run a program once.
///
/// Its output is shown while it runs and recorded, the first and the last 256 KiB of it. It sees HAPAX_KEY,
/// HAPAX_ATTEMPT, HAPAX_FENCE and with --epoch HAPAX_EPOCH. Exit code 0 means that it happened, any other that it
/// did not; for a program killed by a signal, --safety decides.
///
/// The program writes its events into the file HAPAX_EVENTS, one JSON object a line with
/// event_name, dataset_id and payload. Events are recorded together with the outcome and delivered
/// by `hapax outbox dispatch`.
///
/// With --pipeline and its options, the run is a governed operation on a dataset: keyed by its
/// eight fields, locked and guarded as the dataset is declared, and kept in the lineage. A program
/// that exits 75 is retried at once.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// The key of the effect: any text, or sha256:<64 hex>
    #[arg(long, short, required_unless_present = "pipeline", conflicts_with = "pipeline")]
    pub(crate) key: Option<String>,
    #[command(flatten)]
    pub(crate) operation: pipeline::Operation,
    /// Wait this long for another attempt in flight (10s, 5m); otherwise exit 75 at once
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) wait: Option<Duration>,
    /// Serialise with all effects on this lock
    #[arg(long, conflicts_with = "pipeline")]
    pub(crate) lock: Option<String>,
    /// How to react when the lock is held
    #[arg(long, value_enum, default_value_t = OnLock::Skip, conflicts_with = "pipeline")]
    pub(crate) on_lock: OnLock,
    /// After this process dies: run again, ask --reconcile first, or ask a person
    #[arg(long, value_enum, default_value_t = Safety::Opaque)]
    pub(crate) safety: Safety,
    /// A shell command that must exit 0 before the program is run
    #[arg(long, value_name = "CMD")]
    pub(crate) pre: Vec<String>,
    /// A shell command that must exit 0 after it; otherwise the effect is partial
    #[arg(long, value_name = "CMD")]
    pub(crate) post: Vec<String>,
    /// A shell command that undoes the program when it or a --post fails
    #[arg(long, value_name = "CMD")]
    pub(crate) rollback: Option<String>,
    /// A shell command that checks whether it happened: 0 it did, 1 it did not, else unknown
    #[arg(long, value_name = "CMD")]
    pub(crate) reconcile: Option<String>,
    /// How long a late arrival is possible; until then a reconciler's no does not count. 0s where the target
    /// refuses late arrivals
    #[arg(long, value_parser = duration, value_name = "DURATION", default_value = "1m")]
    pub(crate) settling: Duration,
    /// Forget the outcome after this long; never unless given
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) ttl: Option<Duration>,
    /// Let the claim lapse after this long, whatever the lease
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) deadline: Option<Duration>,
    /// How long this process may be silent before another takes over
    #[arg(long, value_parser = duration, value_name = "DURATION", default_value = "15s")]
    pub(crate) lease: Duration,
    /// Run it in this epoch of a domain only, such as connector:7. A key counts in one epoch:
    /// put the epoch into it
    #[arg(long, value_name = "DOMAIN:N")]
    pub(crate) epoch: Option<String>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<std::ffi::OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLock {
    /// Exit 75
    Skip,
    /// Try again for as long as --wait allows (30s unless given)
    Backoff,
    /// Exit 78: an operator must look
    Escalate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Safety {
    Transactional,
    Reconcilable,
    Opaque,
}

/// Derive keys from JSON fields on standard input.
///
/// One object, or many, one a line. Prints one sha256:<64 hex> for each; --json adds the
/// components.
#[derive(Debug, clap::Args)]
pub(crate) struct Key {
    /// pipeline.v1, pipeline.kfm-v11, pipeline.kfm-v10, control.v1, extraction.v1,
    /// mutation.v1, http.v1, or a name.vN of your own with text fields
    pub(crate) derivation: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Effects {
    /// List effects, newest first
    List {
        /// Only in this state; may be given several times
        #[arg(long)]
        state: Vec<String>,
        /// Only those that need attention: partial, unknown, indeterminate, or with a holder that is silent or dead
        #[arg(long, conflicts_with = "state")]
        stuck: bool,
        /// At most this many
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show one effect and its history
    Show {
        /// As given to `run`, or sha256:<64 hex>
        key: String,
    },
    /// Decide the outcome of an effect, where it is unknown
    Resolve {
        /// As given to `run`, or sha256:<64 hex>
        key: String,
        /// The attempt you looked at, as shown by `effects show`
        #[arg(long)]
        attempt: String,
        /// The state you saw it in
        #[arg(long, value_name = "STATE")]
        saw: String,
        /// The finding
        #[command(flatten)]
        decision: Decision,
        /// With --happened: a file with the output it would have had
        #[arg(long, value_name = "FILE", requires = "happened")]
        result: Option<PathBuf>,
        #[command(flatten)]
        by: By,
    },
    /// Clear a record, so that the effect can happen again
    Reset {
        /// As given to `run`, or sha256:<64 hex>
        key: String,
        /// The attempt you looked at, as shown by `effects show`
        #[arg(long)]
        attempt: String,
        /// The state you saw it in
        #[arg(long, value_name = "STATE")]
        saw: String,
        #[command(flatten)]
        by: By,
    },
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Decision {
    /// It happened
    #[arg(long)]
    pub(crate) happened: bool,
    /// It did not happen; it may be run again
    #[arg(long)]
    pub(crate) did_not_happen: bool,
    /// Let it go; it will not be run again
    #[arg(long)]
    pub(crate) skip: bool,
    /// Have the reconciler look again
    #[arg(long)]
    pub(crate) ask_again: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct By {
    /// The person who decides
    #[arg(long, env = "USER", default_value = "unknown")]
    pub(crate) by: String,
    /// Why; kept in the journal
    #[arg(long, value_parser = not_blank)]
    pub(crate) note: String,
}

/// A reason that is not blank.
fn not_blank(text: &str) -> Result<String, &'static str> {
    match text.trim().is_empty() {
        true => Err("it is blank; say why"),
        false => Ok(text.to_owned()),
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Epoch {
    /// Show the epochs of all domains, or of one
    Show {
        /// Which domain
        domain: Option<String>,
    },
    /// Skip the indeterminate effects of a past epoch; none of them can be claimed again
    Skip {
        /// Which epoch, such as connector:6
        #[arg(value_name = "DOMAIN:N")]
        epoch: String,
        /// Why; kept in the journal
        #[arg(long)]
        note: String,
        /// The person who decides
        #[arg(long, env = "USER", default_value = "unknown")]
        by: String,
    },
    /// End a domain's epoch, on all nodes at once; effects under way in it are void
    Advance {
        /// Which domain
        domain: String,
        /// Why; kept in the journal
        #[arg(long)]
        reason: String,
        /// The epoch that is to end; nothing happens if it is over [default: the current one]
        #[arg(long, value_name = "N")]
        seen: Option<u64>,
        /// The number of the new epoch [default: the next one]
        #[arg(long, value_name = "N")]
        to: Option<u64>,
        /// The person who decides
        #[arg(long, env = "USER", default_value = "unknown")]
        by: String,
    },
}

/// Find home-made idempotency in source trees; exits 73 if there is any.
///
/// Keys that are hashed by hand, maps and tables that remember what was done, retry loops around
/// remote calls. Rust is read by its syntax tree; Python, JavaScript, TypeScript, Go, Java, Kotlin,
/// C#, Ruby, PHP, SQL and shell by patterns. Code that is right where it is can be allowed, with a
/// reason: in hapax-lint.toml, or beside it with a comment `hapax-lint: allow(rule) reason`.
#[derive(Debug, clap::Args)]
pub(crate) struct Lint {
    /// Files and directories
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// The file with exclusions and allowances [default: hapax-lint.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// For people (the default), for programs, or for code scanning services
    #[arg(long, value_enum)]
    pub(crate) format: Option<LintFormat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LintFormat {
    Human,
    Json,
    Sarif,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Control {
    /// List the computations that may be dispatched, and how each is retried
    Computations {
        /// The file with computations of your own, [control.computations]
        #[arg(long, env = "HAPAX_CONFIG", value_name = "FILE", default_value = "hapax.toml")]
        config: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Journal {
    /// List entries, oldest first
    List {
        /// Only of this effect
        #[arg(long)]
        key: Option<String>,
        /// Only after this entry
        #[arg(long, default_value_t = 0)]
        after: u64,
        /// At most this many
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Compare every entry with the tree and its signed heads; or check one exported proof
    Verify {
        /// Check this proof instead; needs no ledger
        #[arg(long, value_name = "FILE")]
        proof: Option<PathBuf>,
        /// Trust only this public key, as printed by `journal prove`
        #[arg(long, value_name = "KEY")]
        public_key: Option<String>,
    },
    /// Print a proof that an entry is in the journal, which anyone can check
    Prove {
        /// The entry's number
        entry: u64,
    },
    /// Print every entry, one JSON document a line
    Export,
    /// Compare recorded operations with the files there now; exits 73 if something differs
    Replay(pipeline::Replay),
    /// Put the files of an approved full replay in place
    Promote(pipeline::Promote),
    /// Undo an operation by its registered rollback, and clear its record
    RollBack(pipeline::RollBack),
    /// List operations that can be undone: the pointer, the steps and their checksum
    RollBacks(pipeline::RollBacks),
    /// Export the months before one from a database to files, verified, and detach them
    Archive(Archive),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Archive {
    /// The first month to keep, such as 2026-01
    #[arg(long, value_name = "MONTH")]
    pub(crate) before: String,
    /// The directory the files are written to
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Outbox {
    /// List events, newest first
    List {
        /// Only these: pending, dispatched or failed
        #[arg(long)]
        status: Option<String>,
        /// Only those that this sink does not have yet
        #[arg(long)]
        sink: Option<String>,
        /// Only before this one, by its seq
        #[arg(long)]
        before: Option<u64>,
        /// At most this many
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show one event and the state of its deliveries
    Show {
        /// Its outbox id
        id: String,
    },
    /// Redrive failed deliveries
    Redrive(RedriveArgs),
    /// Send nothing to a sink for now, on every node
    Pause {
        /// The sink
        sink: String,
    },
    /// Resume a paused sink
    Resume {
        /// The sink
        sink: String,
    },
    /// Declare the sinks and routes of a file, in place of the earlier ones
    Configure {
        /// The file
        #[arg(long, env = "HAPAX_CONFIG", value_name = "FILE", default_value = "hapax.toml")]
        config: PathBuf,
    },
    /// Declare the sinks and routes of a file, and deliver until a signal stops it
    Dispatch(Dispatch),
    /// Count the deliveries at each sink
    Stats,
    /// Print the governance ledger of all events and refusals, or write it as pipeline_outbox_ledger.json
    Export {
        /// Write it into a directory instead, in place of an earlier one
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
    },
    /// Export events of the months before one from a database to files, and detach them
    Archive(Archive),
}

#[derive(Debug, clap::Args)]
pub(crate) struct RedriveArgs {
    /// Only this event
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// Only at this sink
    #[arg(long)]
    pub(crate) sink: Option<String>,
    /// Also those whose receiver may have forgotten their ids
    #[arg(long)]
    pub(crate) may_duplicate: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Dispatch {
    /// The file with sinks and routes
    #[arg(long, env = "HAPAX_CONFIG", value_name = "FILE", default_value = "hapax.toml")]
    pub(crate) config: PathBuf,
    /// Stop once there is nothing left to deliver
    #[arg(long)]
    pub(crate) until_idle: bool,
    /// Append the result of each try to this file, such as focus-telemetry.json, an object a line
    #[arg(long, env = "HAPAX_TELEMETRY", value_name = "FILE")]
    pub(crate) telemetry: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// Also verify the whole journal
    #[arg(long)]
    pub(crate) deep: bool,
    /// The database was just restored from a backup: end all leases, raise the fences
    #[arg(long)]
    pub(crate) after_restore: bool,
    /// Repair a file: remove second rows of a key, and index rows that are not found by theirs
    #[arg(long)]
    pub(crate) repair: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Migrate {
    /// Print the statements instead, for an administrator to run
    #[arg(long)]
    pub(crate) print: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Bench {
    /// Also measure with this many effects already there, such as 10M
    #[arg(long, value_parser = size, value_name = "N")]
    pub(crate) size: Option<u64>,
    /// How long each measurement lasts
    #[arg(long, value_parser = duration, value_name = "DURATION", default_value = "3s")]
    pub(crate) time: Duration,
    /// Measure on this PostgreSQL server instead, in a database of its own, beside pgbench
    #[arg(long, value_name = "URL")]
    pub(crate) postgres: Option<String>,
    /// Measure requests over HTTP instead
    #[arg(long)]
    pub(crate) http: bool,
    /// Measure the outbox on that server instead
    #[arg(long)]
    pub(crate) outbox: bool,
    /// Measure operations of pipelines instead
    #[arg(long, conflicts_with_all = ["outbox", "http"])]
    pub(crate) pipeline: bool,
    /// Measure extraction instead; with --size, beside this many results that are there already
    #[arg(long, conflicts_with_all = ["outbox", "http", "pipeline", "postgres"])]
    pub(crate) extraction: bool,
    /// Measure items and their mutations instead
    #[arg(long, conflicts_with_all = ["outbox", "http", "pipeline", "extraction", "postgres"])]
    pub(crate) items: bool,
    /// Where to put the files that are measured; a temporary directory unless given
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// `10s`, `500ms`, `1h 5m`; a bare number is seconds.
fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}; write 10s, 500ms or 5m"))
}

/// `10M`, `200k`, `5000`.
fn size(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.trim().char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'm' | 'M')) => (&text[..at], 1_000_000),
        _ => (text, 1),
    };
    let number: u64 =
        digits.trim().parse().map_err(|_| "write a number such as 10M or 200k".to_owned())?;
    number
        .checked_mul(factor)
        .filter(|size| (1..=1_000_000_000).contains(size))
        .ok_or_else(|| "write a number from 1 to 1000M".to_owned())
}
