//! `hapax lint`: a gate for source trees.

use std::path::Path;

use hapax_lint::{Config, ScanError, scan};

use crate::args::{Global, Lint, LintFormat};
use crate::exit::{Exit, Failed};
use crate::output;

/// The file in the working directory, unless the caller names another.
const CONFIG: &str = "hapax-lint.toml";

pub(crate) fn main(global: &Global, args: &Lint) -> Result<Exit, Failed> {
    let config = config(args.config.as_deref())?;
    let report = scan(&args.paths, &config).map_err(failed)?;
    if report.files == 0 && report.is_clean() {
        return Err(Failed::usage("no source file was found there, so nothing was checked")
            .next("Name directories with sources; see what hapax-lint.toml excludes."));
    }
    let usual = if global.json { LintFormat::Json } else { LintFormat::Human };
    let text = match args.format.unwrap_or(usual) {
        LintFormat::Human => report.human(),
        LintFormat::Json => report.json(),
        LintFormat::Sarif => report.sarif(),
    };
    output::print(text.trim_end());
    Ok(if report.is_clean() { Exit::Done } else { Exit::Refused })
}

fn config(named: Option<&Path>) -> Result<Config, Failed> {
    let path = named.unwrap_or(Path::new(CONFIG));
    if named.is_none() && !path.exists() {
        return Ok(Config::default());
    }
    let refuse = |flaw: String| {
        Failed::usage(format!("{}: {flaw}", path.display()))
            .next("docs/lint.md says what may be in it.")
    };
    let size = std::fs::metadata(path).map_err(|error| refuse(error.to_string()))?.len();
    if size > hapax_lint::CONFIG_MAX_BYTES as u64 {
        return Err(refuse(format!("larger than {} bytes", hapax_lint::CONFIG_MAX_BYTES)));
    }
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    Config::parse(&text).map_err(|error| refuse(error.to_string()))
}

fn failed(error: ScanError) -> Failed {
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
    let message = format!("{error}{}", cause.unwrap_or_default());
    match error {
        ScanError::NoRoot(_) | ScanError::TooManyFiles => Failed::usage(message),
        _ => Failed::new(Exit::Unreachable, message).next("Nothing passes that was not read."),
    }
}
