//! House rules that a machine can hold, and the table of requirements and their proofs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::paths;

/// Systems whose every requirement has to have a proof. A letter joins when its system is
/// complete.
const FINISHED: [char; 6] = ['C', 'I', 'K', 'O', 'P', 'X'];

/// Names that say nothing.
const EMPTY_NAMES: [&str; 8] =
    ["util", "utils", "common", "manager", "helper", "helpers", "misc", "v2"];

/// Past this many lines, look for a second noun.
const LONG: usize = 650;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Mode {
    Check,
    Write,
}

pub(crate) fn tidy(mode: Mode) -> Result<(), String> {
    // The build may be kept for another clone, so the path is read when it runs.
    let xtask = std::env::var("CARGO_MANIFEST_DIR").map_err(|_| "run it as `cargo xtask tidy`")?;
    let root = Path::new(&xtask).parent().ok_or("no repository around xtask")?;
    let sources = sources(root)?;
    let mut complaints = Vec::new();
    for source in &sources {
        complaints.extend(house_rules(source));
    }
    complaints.extend(error_pages(root, &sources)?);
    complaints.extend(event_names(root, &sources)?);
    complaints.extend(paths::complaints(root)?);
    let spec = read(&root.join("docs/spec.md"))?;
    let requirements = requirements(&spec);
    let proofs = proofs(&sources);
    for (id, tests) in &proofs {
        if !requirements.contains_key(id) {
            complaints.push(format!(
                "{} proves {id}, which docs/spec.md does not have",
                tests.join(", ")
            ));
        }
    }
    for id in requirements.keys().filter(|id| id.starts_with(FINISHED) && !proofs.contains_key(*id))
    {
        complaints.push(format!("{id} belongs to a finished system and has no proof"));
    }
    let table = table(&requirements, &proofs);
    let file = root.join("docs/requirements.md");
    match mode {
        Mode::Write => std::fs::write(&file, table).map_err(|error| error.to_string())?,
        Mode::Check if read(&file)? != table => {
            complaints.push("docs/requirements.md is stale; run cargo xtask tidy".into());
        }
        Mode::Check => {}
    }
    if complaints.is_empty() {
        eprintln!("xtask: tidy: {} files, {} requirements proven", sources.len(), proofs.len());
        return Ok(());
    }
    Err(format!("tidy:\n  {}", complaints.join("\n  ")))
}

struct Source {
    /// Relative to the repository.
    path: PathBuf,
    text: String,
}

impl Source {
    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

fn sources(root: &Path) -> Result<Vec<Source>, String> {
    let mut found = Vec::new();
    let mut folders = vec![root.join("crates"), root.join("xtask")];
    while let Some(folder) = folders.pop() {
        let entries =
            std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let relative = path.strip_prefix(root).unwrap_or(&path).to_owned();
                found.push(Source { text: read(&path)?, path: relative });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn house_rules(source: &Source) -> Vec<String> {
    let name = source.name();
    let mut complaints = Vec::new();
    if !source.text.starts_with("//!") {
        complaints.push(format!("{name} does not open with //! and what it owns"));
    }
    let stem = source.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if EMPTY_NAMES.contains(&stem) {
        complaints.push(format!("{name}: `{stem}` says nothing about what is in it"));
    }
    let lines = source.text.lines().count();
    if lines > LONG {
        complaints.push(format!("{name} has {lines} lines; look for a second noun"));
    }
    let core = source.path.starts_with("crates/hapax-core/src");
    for forbidden in ["SystemTime::now", "Instant::now", "getrandom", "std::fs::", "std::net::"] {
        if core && source.text.contains(forbidden) {
            complaints.push(format!(
                "{name}: core reads no clock, rolls no dice and does no IO ({forbidden})"
            ));
        }
    }
    complaints
}

/// Every event of the log is named on a page in docs.
fn event_names(root: &Path, sources: &[Source]) -> Result<Vec<String>, String> {
    let mut pages = String::new();
    let entries = std::fs::read_dir(root.join("docs")).map_err(|error| error.to_string())?;
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        if path.extension().is_some_and(|ending| ending == "md") {
            pages += &read(&path)?;
        }
    }
    let mut names = BTreeSet::new();
    for source in sources.iter().filter(|source| source.path.iter().any(|part| part == "src")) {
        for (at, mark) in source.text.match_indices("name: \"") {
            let before = source.text[..at].trim_end().strip_suffix("!(").unwrap_or_default();
            let level = before.rsplit("tracing::").next().unwrap_or_default();
            if ["error", "warn", "info"].contains(&level) {
                names.extend(source.text[at + mark.len()..].split('"').next());
            }
        }
    }
    let undocumented = names.into_iter().filter(|name| !pages.contains(&format!("`{name}`")));
    Ok(undocumented.map(|name| format!("the event {name} is on no page in docs")).collect())
}

/// Every code that an error can carry has a page, and every page a code.
fn error_pages(root: &Path, sources: &[Source]) -> Result<Vec<String>, String> {
    let mut codes = BTreeSet::new();
    for source in sources.iter().filter(|source| !source.path.starts_with("xtask")) {
        let quoted =
            source.text.split('"').filter(|word| word.len() == 6 && word.starts_with("HX"));
        codes.extend(quoted.map(str::to_owned));
    }
    let folder = root.join("docs/errors");
    let entries =
        std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let pages: BTreeSet<String> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| Some(entry.path().file_stem()?.to_str()?.to_owned()))
        .filter(|name| name.starts_with("HX"))
        .collect();
    let missing = codes.difference(&pages).map(|code| format!("docs/errors/{code}.md is missing"));
    let orphaned =
        pages.difference(&codes).map(|code| format!("docs/errors/{code}.md explains no code"));
    Ok(missing.chain(orphaned).collect())
}

/// Ids and texts, in the order of the specification.
fn requirements(spec: &str) -> BTreeMap<String, String> {
    let lines = spec.lines().filter_map(|line| line.strip_prefix("- "));
    lines
        .filter_map(|line| {
            let (id, text) = line.split_once(' ')?;
            is_id(id).then(|| (id.to_owned(), text.to_owned()))
        })
        .collect()
}

fn is_id(word: &str) -> bool {
    let Some((letter, number)) = word.split_once('-') else { return false };
    letter.len() == 1
        && "KPOCXIS".contains(letter)
        && !number.is_empty()
        && number.chars().all(|c| c.is_ascii_digit())
}

/// The tests that say that they prove a requirement, by its id.
fn proofs(sources: &[Source]) -> BTreeMap<String, Vec<String>> {
    let mut proofs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.path.starts_with("xtask")) {
        let mut pending: BTreeSet<String> = BTreeSet::new();
        let mut proving = false;
        for line in source.text.lines().map(str::trim) {
            if let Some(comment) = line.strip_prefix("///") {
                proving |= comment.trim_start().starts_with("Proves ");
                if proving {
                    let words = comment.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
                    pending.extend(words.filter(|word| is_id(word)).map(str::to_owned));
                }
                continue;
            }
            proving = false;
            if let Some(test) = test_name(line) {
                for id in std::mem::take(&mut pending) {
                    proofs.entry(id).or_default().push(format!("{}: {test}", source.name()));
                }
            }
        }
    }
    proofs
}

/// The name of a function, of a case in the conformance suite, or of an experiment.
fn test_name(line: &str) -> Option<String> {
    let identifier = |text: &str| {
        let name: String =
            text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        (!name.is_empty()).then_some(name)
    };
    if let Some((_, rest)) = line.split_once("fn ") {
        return identifier(rest);
    }
    let name = identifier(line)?;
    line[name.len()..].starts_with(": ").then_some(name)
}

fn table(
    requirements: &BTreeMap<String, String>,
    proofs: &BTreeMap<String, Vec<String>>,
) -> String {
    let proven = requirements.keys().filter(|id| proofs.contains_key(*id)).count();
    let mut out = format!(
        "# Requirements and their proofs\n\n\
         Made by `cargo xtask tidy` from the comments of the tests; do not edit. A listed test proves\n\
         at least a part of its requirement. {proven} of {} have one.\n\n\
         | requirement | proven by |\n|---|---|\n",
        requirements.len()
    );
    let mut ids: Vec<_> = requirements.keys().collect();
    let place = |id: &str| {
        let (letter, number) = id.split_once('-').unwrap_or((id, "0"));
        ("KPOCXIS".find(letter), number.parse::<u32>().unwrap_or_default())
    };
    ids.sort_by_key(|id| place(id));
    for id in ids {
        let tests = proofs.get(id).map_or_else(String::new, |tests| {
            tests.iter().map(|test| format!("`{test}`")).collect::<Vec<_>>().join("<br>")
        });
        let _ = writeln!(out, "| [{id}](spec.md) | {tests} |");
    }
    out
}
