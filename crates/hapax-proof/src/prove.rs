//! The whole programme, and the page it writes.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use hapax_core::planted::Bug;

use crate::programme::{Experiment, Tier, catches};
use crate::report::Report;

/// Runs everything, writes the report, and fails if anything is wrong.
pub fn prove(page: &Path, seed: u64) -> Result<(), String> {
    let (start, code) = (Instant::now(), code());
    let all = || Experiment::ALL.iter().copied().filter(|each| each.is_in(Tier::Full));
    let (attacks, others): (Vec<_>, Vec<_>) = all().partition(|each| each.is_attack());
    let run_all = |experiments: Vec<Experiment>| -> Vec<(Experiment, Report, Duration)> {
        let run = |experiment: Experiment| {
            let begun = Instant::now();
            eprintln!("{}", experiment.title());
            let report = experiment.run(Tier::Full, seed, None);
            eprint!("{report}");
            eprintln!("  {:.0} s", begun.elapsed().as_secs_f64());
            (experiment, report, begun.elapsed())
        };
        experiments.into_iter().map(run).collect()
    };
    // The attacks take as long as all the rest, and mostly wait: they are made beside it.
    let mut tried = std::thread::scope(|scope| {
        let attacks = scope.spawn(|| run_all(attacks));
        let mut tried = run_all(others);
        tried.extend(attacks.join().expect("attacks do not panic"));
        tried
    });
    tried.sort_by_key(|(experiment, ..)| all().position(|each| each == *experiment));
    let reports: Vec<(Report, Duration)> =
        tried.into_iter().map(|(_, report, took)| (report, took)).collect();
    // Written before the planted bugs are tried, in case that does not end.
    write(page, &page_of(&code, &reports, &[], seed, start.elapsed()))?;
    let planted = Bug::ALL.iter().flat_map(|bug| catches(*bug).iter().map(move |by| (*bug, *by)));
    let bugs: Vec<(Bug, Experiment, Caught)> = planted
        .map(|(bug, experiment)| {
            let caught = catch(bug, experiment, seed);
            eprintln!("{}, {}: {caught:?}", bug.name(), experiment.name());
            (bug, experiment, caught)
        })
        .collect();
    write(page, &page_of(&code, &reports, &bugs, seed, start.elapsed()))?;
    let wrong: usize = reports.iter().map(|(report, _)| report.violations.len()).sum();
    let missed = bugs.iter().filter(|(.., caught)| *caught == Caught::No).count();
    match wrong + missed {
        0 => Ok(()),
        _ => Err(format!("{wrong} found, {missed} planted bugs missed; see {}", page.display())),
    }
}

/// Runs one experiment again, and writes its section of the report anew.
pub fn prove_again(page: &Path, seed: u64, experiment: Experiment) -> Result<(), String> {
    let begun = Instant::now();
    let report = experiment.run(Tier::Full, seed, None);
    eprint!("{report}");
    let text =
        std::fs::read_to_string(page).map_err(|error| format!("{}: {error}", page.display()))?;
    let opening = format!("{SECTION}{}\n", report.title);
    let start =
        text.find(&opening).ok_or("the report has no such section; prove everything first")?;
    let after = start + opening.len();
    let end = text[after..].find(SECTION).map_or(text.len(), |next| after + next);
    let section = format!("{}\nTried again: {}.\n", section_of(&report, begun.elapsed()), code());
    write(page, &[&text[..start], &section, &text[end..]].concat())?;
    match report.violations.len() {
        0 => Ok(()),
        wrong => Err(format!("{wrong} found; see {}", page.display())),
    }
}

fn write(page: &Path, text: &str) -> Result<(), String> {
    std::fs::write(page, text).map_err(|error| format!("{}: {error}", page.display()))
}

/// The result of the search for a planted bug.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caught {
    /// It was caught; this is the first violation.
    Yes(String),
    /// No violation was found.
    No,
    /// It could not be looked for on this machine.
    Skipped(String),
}

/// How often a planted bug is looked for, each time with a seed of its own: some show only when a
/// process is stopped or killed at the right moment.
const TRIES: u64 = 5;

/// Plants a bug in a process of its own, in which this experiment looks for it.
pub fn catch(bug: Bug, experiment: Experiment, seed: u64) -> Caught {
    let tried = (seed..seed + TRIES).map(|seed| try_to_catch(bug, experiment, seed));
    let mut tried = tried.skip_while(|caught| *caught == Caught::No);
    tried.next().unwrap_or(Caught::No)
}

fn try_to_catch(bug: Bug, experiment: Experiment, seed: u64) -> Caught {
    let output = Command::new(crate::own_program())
        .args(["try", experiment.name(), "--plant", bug.name(), "--seed", &seed.to_string()])
        .output()
        .expect("this program can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    let first = |mark: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(mark));
        line.map(|line| line.chars().take(160).collect::<String>())
    };
    match (first("WRONG: "), first("skipped: ")) {
        (Some(violation), _) => Caught::Yes(violation),
        (None, Some(why)) => Caught::Skipped(why),
        // A process that fails has caught it too.
        (None, None) if !output.status.success() => {
            Caught::Yes("the process did not survive it".into())
        }
        (None, None) => Caught::No,
    }
}

fn page_of(
    code: &str,
    reports: &[(Report, Duration)],
    bugs: &[(Bug, Experiment, Caught)],
    seed: u64,
    took: Duration,
) -> String {
    let mut page = String::from(HEAD);
    let minutes = took.as_secs_f64() / 60.0;
    let _ = writeln!(page, "{code}; seed {seed}; {minutes:.0} minutes; {}.\n", versions());
    let _ = writeln!(page, "## Planted bugs\n");
    let caught = |bug: Bug| {
        let mut of = bugs.iter().filter(|(planted, ..)| *planted == bug);
        of.all(|(.., caught)| matches!(caught, Caught::Yes(_)))
    };
    let caught =
        if bugs.is_empty() { 0 } else { Bug::ALL.iter().filter(|bug| caught(**bug)).count() };
    let all = Bug::ALL.len();
    let _ =
        writeln!(page, "{caught} of {all} were caught, each looked for at most {TRIES} times.\n");
    let _ = writeln!(page, "| bug | looked for by | what was said first |\n|---|---|---|");
    for (bug, experiment, caught) in bugs {
        let result = match caught {
            Caught::Yes(violation) => format!("`{}`", violation.replace(['|', '`'], "/")),
            Caught::No => "**not caught**".into(),
            Caught::Skipped(why) => format!("skipped: {why}"),
        };
        let _ = writeln!(page, "| {} | {} | {result} |", bug.name(), experiment.name());
    }
    let _ = writeln!(page, "\n## What was tried");
    page.extend(reports.iter().map(|(report, took)| section_of(report, *took)));
    page
}

/// The opening of a section about an experiment.
const SECTION: &str = "\n### ";

fn section_of(report: &Report, took: Duration) -> String {
    let mut section = format!("{SECTION}{}\n\n", report.title);
    for why in &report.skipped {
        let _ = writeln!(section, "Skipped: {why}\n");
    }
    let _ = writeln!(section, "| N | what |\n|---:|---|");
    for (figure, count) in &report.figures {
        let _ = writeln!(section, "| {count} | {figure} |");
    }
    let _ = writeln!(section, "| **{}** | **found wrong** |", report.violations.len());
    for violation in &report.violations {
        let _ = writeln!(section, "\n> {violation}");
    }
    let _ = writeln!(section, "\n{:.0} s", took.as_secs_f64());
    section
}

const HEAD: &str = "# Proof

Written by `cargo xtask prove`, which breaks hapax on purpose. A separate process that appends and syncs is the
only judge of what happened; callers write down what they asked and were told; the ledger is compared with both.
For every key: executed at most once, every acknowledged outcome still there, every unknown outcome shown as
needing attention, a history that one write-once register explains, a record that its journal leads to, a
journal that verifies. A run in which too little succeeded, or in which a fault never overlapped work, counts as wrong.
The attack from outside is on the binary as it is shipped; all else is built with failpoints.

";

/// The commit under test, and the date.
fn code() -> String {
    let commit = first_line("git", &["rev-parse", "--short=10", "HEAD"]);
    let commit = commit.unwrap_or_else(|| "unknown".into());
    let changed = first_line("git", &["status", "--porcelain", "--", ":!docs/proof.md"]).is_some();
    let and = if changed { " and changes that are not committed" } else { "" };
    let date = first_line("date", &["-u", "+%F"]).unwrap_or_default();
    format!("Commit {commit}{and}, {date}")
}

/// The first line that a program prints.
fn first_line(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned())
}

fn versions() -> String {
    let kernel = first_line("uname", &["-sr"])
        .map(|text| text.split_once('-').map_or(text.clone(), |(version, _)| version.to_owned()));
    let postgres = first_line("psql", &["--version"])
        .and_then(|text| Some(format!("PostgreSQL {}", text.split(' ').nth(2)?)));
    let sqlite = Some(format!("SQLite {}", rusqlite::version()));
    let hapax = Some(format!("hapax {}", env!("CARGO_PKG_VERSION")));
    let patroni = first_line("patroni", &["--version"]);
    let all = [hapax, sqlite, postgres, patroni, kernel];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
