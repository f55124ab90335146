//! `mutants`: changes the decisions of the kernel in hundreds of small ways, and has the tests of core and the
//! conformance suite on the memory store notice each.
//!
//! A change that no test notices fails the command, unless `mutants.txt` names it with its reason; so does a line
//! there that names nothing any more.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::run::{exists, step, target};

/// The files with the decisions.
const FILES: [&str; 19] = [
    "crates/hapax-core/src/effect.rs",
    "crates/hapax-core/src/effect/reconcile.rs",
    "crates/hapax-core/src/lease.rs",
    "crates/hapax-core/src/lock.rs",
    "crates/hapax-core/src/epoch.rs",
    "crates/hapax-core/src/delivery.rs",
    "crates/hapax-core/src/retry.rs",
    "crates/hapax-store/src/effect/claim.rs",
    "crates/hapax-store/src/effect/expire.rs",
    "crates/hapax-store/src/effect/judge.rs",
    "crates/hapax-store/src/effect/record.rs",
    "crates/hapax-store/src/effect/settle.rs",
    "crates/hapax-store/src/epoch.rs",
    "crates/hapax-store/src/journal/seal.rs",
    "crates/hapax-store/src/lease.rs",
    "crates/hapax-store/src/ledger.rs",
    "crates/hapax-store/src/limits.rs",
    "crates/hapax-store/src/step.rs",
    "crates/hapax-store/src/token.rs",
];

/// The version of cargo-mutants that `mutants.txt` is worded by.
const VERSION: &str = "27.1.0";

/// Changes that no test notices, and why that is right: a line each, the reason after two spaces and `#`.
const ACCEPTED: &str = include_str!("../mutants.txt");

pub(crate) fn mutants(options: &[&str]) -> Result<(), String> {
    let tools = target().join("tools");
    let program = tools.join("bin/cargo-mutants");
    let program = program.to_str().ok_or("the target directory's name is not UTF-8")?;
    if !exists(program, &["mutants", "--version"]) {
        let root = tools.to_string_lossy();
        let version = format!("cargo-mutants@{VERSION}");
        step("cargo", &["install", "--locked", "--root", &root, &version])?;
    }
    let output = target().join("mutants");
    fs::create_dir_all(&output).map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(["mutants", "--no-shuffle", "--colors", "never", "--timeout", "120"]);
    // The harness catches planted bugs, and they are not in this build.
    command.args(["--exclude-re", r"planted\(", "--output"]);
    command.arg(&output).args(["--package", "hapax-core", "--package", "hapax-store"]);
    command.args(["--test-package", "hapax-core", "--test-package", "hapax-store"]);
    command.args(FILES.iter().flat_map(|file| ["--file", file])).args(options);
    command.args(["--", "--lib", "--tests"]);
    // Built hundreds of times, and never debugged.
    command.env("CARGO_PROFILE_DEV_DEBUG", "0").env_remove("CARGO_TARGET_DIR");
    let status = command.status().map_err(|error| format!("{program}: {error}"))?;
    // 0: all were noticed. 2: some were not. 3: a test hung, which is noticed too.
    if !matches!(status.code(), Some(0 | 2 | 3)) {
        return Err(format!("cargo mutants: {status}"));
    }
    let missed = fs::read_to_string(output.join("mutants.out/missed.txt"));
    judge(&missed.map_err(|error| error.to_string())?, ACCEPTED, options.is_empty())
}

/// Compares the missed mutants with the accepted ones.
fn judge(missed: &str, accepted: &str, all: bool) -> Result<(), String> {
    let missed: BTreeSet<String> = missed.lines().map(without_place).collect();
    let lines = accepted.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let accepted: BTreeSet<String> =
        lines.map(|line| line.split("  #").next().unwrap_or_default().trim().to_owned()).collect();
    let mut wrong: Vec<String> =
        missed.difference(&accepted).map(|mutant| format!("no test notices: {mutant}")).collect();
    let stale = accepted.difference(&missed).filter(|_| all);
    wrong.extend(
        stale.map(|mutant| {
            format!("xtask/mutants.txt names a mutant that the tests catch: {mutant}")
        }),
    );
    if wrong.is_empty() {
        println!("xtask: every change was noticed, but for {} that may be missed", accepted.len());
        return Ok(());
    }
    Err(wrong.join("\n       "))
}

/// A mutant without its line and column, which move.
fn without_place(line: &str) -> String {
    let mut parts = line.splitn(4, ':');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(file), Some(_), Some(_), Some(mutant)) => format!("{file}:{mutant}"),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_mutants_have_to_be_named_and_named_mutants_have_to_be_missed() {
        let accepted = "# why\n\na.rs: replace f -> u8 with 0  # it is 0\n";
        assert_eq!(judge("a.rs:7:9: replace f -> u8 with 0\n", accepted, true), Ok(()));
        let other = judge("b.rs:1:2: delete ! in g\n", accepted, true).unwrap_err();
        assert!(other.contains("no test notices: b.rs: delete ! in g"), "{other}");
        assert!(other.contains("names a mutant that the tests catch: a.rs: replace f"), "{other}");
        assert_eq!(judge("", accepted, false), Ok(()), "only some were tried");
    }
}
