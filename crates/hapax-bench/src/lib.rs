//! Measures hapax on this machine, each figure beside its baseline in the same run.
//!
//! | module | measures | beside |
//! |---|---|---|
//! | `embedded`, `engine` | effects on the embedded store | code by hand, raw SQL, bare SHA-256 (`baseline`) |
//! | `postgres` | effects on a PostgreSQL server | pgbench |
//! | `http` | requests through the layer and the proxy | a bare echo |
//! | `outbox` | emitting and delivering events | a queue by hand |
//! | `pipeline` | operations | bare claims and settles |
//! | `extraction` | answers that are known, edits, many results | a bare echo |
//! | `items` | mutations from script to ledger | bare claims and settles |
//!
//! `load` makes callers, `fill` makes a ledger with a past, `report` has the figures and their bars.

mod baseline;
mod embedded;
mod engine;
mod error;
mod extraction;
mod fill;
mod http;
mod items;
mod load;
mod outbox;
mod pipeline;
mod postgres;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use indicatif::ProgressBar;

pub use error::Error;
pub use report::{Line, Report};

/// How often each figure and its baseline are measured; the median counts.
const ROUNDS: usize = 3;

/// The measurements to run, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The subject.
    pub subject: Subject,
    /// Measure also with this many effects, results or events there already.
    pub size: Option<u64>,
    /// How long each measurement lasts.
    pub time: Duration,
    /// The PostgreSQL server to measure on, in a database of its own.
    pub postgres: Option<String>,
    /// Where to put the files that are measured. A temporary directory if none is named.
    pub dir: Option<PathBuf>,
    /// Makes the bar that shows how far a long step is.
    pub progress: Progress,
}

/// Makes a bar for a step of this name that has so many parts.
pub type Progress = fn(&'static str, u64) -> ProgressBar;

/// The part of hapax that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// Effects.
    Effects,
    /// Requests over HTTP.
    Http,
    /// The outbox, on a server.
    Outbox,
    /// Operations of pipelines.
    Pipeline,
    /// Extraction.
    Extraction,
    /// Items and their mutations.
    Items,
}

/// Measures for minutes, and names each measurement on standard error.
pub fn run(options: &Options) -> Result<Report, Error> {
    let temporary = match &options.dir {
        Some(dir) => tempfile::Builder::new().prefix("hapax-bench-").tempdir_in(dir),
        None => tempfile::Builder::new().prefix("hapax-bench-").tempdir(),
    };
    let temporary = temporary.map_err(|error| {
        Error::Invalid(format!("no directory for the files to measure: {error}"))
    })?;
    let (directory, mut report) = (temporary.path(), Report::default());
    match (options.subject, options.postgres.as_deref()) {
        (Subject::Pipeline, url) => pipeline::measure(options, url, directory, &mut report)?,
        (Subject::Outbox, Some(url)) => outbox::measure(options, url, directory, &mut report)?,
        (Subject::Outbox, None) => {
            return Err(Error::Invalid("--outbox is measured on a server: --postgres URL".into()));
        }
        (Subject::Extraction, _) => extraction::measure(options, directory, &mut report)?,
        (Subject::Items, _) => items::measure(directory, &mut report)?,
        (Subject::Http, None) => http::measure(options, directory, &mut report)?,
        (Subject::Http, Some(_)) => {
            return Err(Error::Invalid("--http is measured on the embedded store".into()));
        }
        (Subject::Effects, Some(url)) => postgres::measure(options, url, directory, &mut report)?,
        (Subject::Effects, None) => embedded::measure(options, directory, &mut report)?,
    }
    Ok(report)
}

fn median(mut values: [f64; ROUNDS]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[ROUNDS / 2]
}

/// A size as it stands in the names of figures: `10m`.
fn short(size: u64) -> String {
    match size {
        size if size % 1_000_000 == 0 => format!("{}m", size / 1_000_000),
        size => size.to_string(),
    }
}

fn say(subject: &str) {
    eprintln!("hapax: measuring {subject}");
}
