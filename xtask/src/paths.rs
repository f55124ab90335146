//! Holds ARCHITECTURE.md and the glossary to the code: each path exists, each crate and each dependency is
//! named, and a crate depends only on crates that the picture draws below it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The documents whose paths are checked.
const DOCUMENTS: [&str; 2] = ["ARCHITECTURE.md", "docs/glossary.md"];

/// The folders that documents name files of.
const FOLDERS: [&str; 5] = ["crates", "docs", "examples", "packaging", "xtask"];

/// A word that ends like this is the name of a file.
const ENDINGS: [&str; 7] = [".js", ".json", ".md", ".rs", ".sql", ".toml", ".txt"];

/// The heading of the dependencies and their reasons.
const REASONS: &str = "## Dependencies, and why";

/// The heading of the picture of the crates.
const PICTURE: &str = "## What depends on what";

/// Everything in the documents that does not hold.
pub(crate) fn complaints(root: &Path) -> Result<Vec<String>, String> {
    let files = files(root)?;
    let mut complaints = Vec::new();
    for name in DOCUMENTS {
        let text = read(&root.join(name))?;
        for (line, path) in named(root, name, &text) {
            if !expanded(&path).iter().all(|path| exists(root, name, path, &files)) {
                complaints.push(format!("{name}:{line} names {path}, which does not exist"));
            }
        }
    }
    let architecture = read(&root.join(DOCUMENTS[0]))?;
    complaints.extend(crates(root, &architecture)?);
    complaints.extend(reasons(&architecture, &read(&root.join("Cargo.toml"))?));
    Ok(complaints)
}

/// The paths in a text, each with the number of its line. In a table whose heading is a folder, the
/// names below it are files of that folder.
fn named(root: &Path, document: &str, text: &str) -> Vec<(usize, String)> {
    let (mut found, mut columns, mut is_fenced) = (Vec::new(), Vec::new(), false);
    for (number, line) in text.lines().enumerate().map(|(nth, line)| (nth + 1, line)) {
        if line.starts_with("```") {
            is_fenced = !is_fenced;
        } else if is_fenced {
            let words = line.split_whitespace().filter(|word| is_path(root, word));
            found.extend(words.map(|word| (number, word.to_owned())));
        } else if line.starts_with('|') {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            if columns.is_empty() {
                columns = cells.iter().map(|cell| folder(root, cell)).collect();
            }
            for (nth, cell) in cells.iter().enumerate() {
                let folder = columns.get(nth).cloned().flatten();
                for span in spans(cell) {
                    match &folder {
                        Some(folder) if !span.contains('/') => {
                            found.push((number, format!("{folder}/{span}")));
                        }
                        _ if is_path(root, span) => found.push((number, span.to_owned())),
                        _ => {}
                    }
                }
            }
            continue;
        } else {
            let paths = spans(line).filter(|span| is_path(root, span));
            found.extend(paths.map(|span| (number, span.to_owned())));
            let beside = Path::new(document).parent().unwrap_or(Path::new(""));
            let links = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
            let links = links.filter(|link| !link.is_empty() && !link.contains(':'));
            found.extend(links.map(|link| (number, beside.join(link).display().to_string())));
        }
        columns.clear();
    }
    found
}

/// The folder that a cell names.
fn folder(root: &Path, cell: &str) -> Option<String> {
    let span = spans(cell).next()?;
    root.join("crates").join(span).is_dir().then(|| span.to_owned())
}

/// The words of a line that are set as code.
fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn is_path(root: &Path, word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.{},/-".contains(c);
    if !word.chars().all(plain) || word.starts_with(['/', '.', '-', ',']) {
        return false;
    }
    let first = word.split('/').next().unwrap_or_default();
    let is_below = first.starts_with("hapax") || root.join(first).is_dir();
    ENDINGS.iter().any(|ending| word.ends_with(ending)) || (word.contains('/') && is_below)
}

/// `a/{b,c}.rs` is two paths.
fn expanded(path: &str) -> Vec<String> {
    let parts = path.split_once('{').and_then(|(before, rest)| {
        let (inside, after) = rest.split_once('}')?;
        Some((before, inside, after))
    });
    match parts {
        Some((before, inside, after)) => {
            inside.split(',').map(|part| format!("{before}{part}{after}")).collect()
        }
        None => vec![path.to_owned()],
    }
}

/// Whether there is such a path, from the repository, from its crates, or at the end of another.
fn exists(root: &Path, document: &str, path: &str, files: &[PathBuf]) -> bool {
    let beside = root.join(document).parent().is_some_and(|folder| folder.join(path).exists());
    beside
        || root.join(path).exists()
        || root.join("crates").join(path).exists()
        || files.iter().any(|file| file.ends_with(path))
}

fn files(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(|folder| root.join(folder)).collect();
    while let Some(folder) = folders.pop() {
        let entries =
            std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path),
            }
        }
    }
    Ok(found)
}

/// The errors in the picture of the crates.
fn crates(root: &Path, text: &str) -> Result<Vec<String>, String> {
    let after = text.split_once(PICTURE).map(|(_, after)| after);
    let picture = after.and_then(|after| after.split("```").nth(1));
    let picture = picture.ok_or(format!("{} has no picture under {PICTURE:?}", DOCUMENTS[0]))?;
    let dependencies = dependencies(root)?;
    let mut complaints = Vec::new();
    let mut drawn = BTreeMap::new();
    for (nth, line) in picture.lines().enumerate() {
        for word in line.split(|c: char| !c.is_ascii_alphanumeric() && c != '-') {
            let name = if word == "hapax" { word.to_owned() } else { format!("hapax-{word}") };
            if dependencies.contains_key(&name) && drawn.insert(name, nth).is_some() {
                complaints.push(format!("the picture of the crates has {word} twice"));
            }
        }
    }
    for (name, needed) in &dependencies {
        let Some(line) = drawn.get(name) else {
            complaints.push(format!("the picture of the crates does not have {name}"));
            continue;
        };
        let above = needed.iter().filter(|other| drawn.get(*other).is_some_and(|at| at <= line));
        complaints.extend(above.map(|other| {
            format!(
                "{name} depends on {other}, which the picture of the crates does not draw below it"
            )
        }));
        if !text.contains(&format!("  {name} ")) {
            complaints.push(format!("{} does not say what {name} is", DOCUMENTS[0]));
        }
    }
    Ok(complaints)
}

/// The dependencies of the workspace without a reason in the text, and reasons for dependencies that
/// are gone.
fn reasons(text: &str, manifest: &str) -> Vec<String> {
    let after = text.split_once(REASONS).map(|(_, after)| after).unwrap_or_default();
    let rows = after.lines().filter_map(|line| line.strip_prefix("| ")?.split('|').next());
    let names = rows
        .flat_map(|cell| cell.split(','))
        .filter_map(|name| name.split(' ').find(|word| !word.is_empty()));
    let named: BTreeSet<&str> = names.filter(|name| *name != "crate").collect();
    let section = manifest.split("\n[workspace.dependencies]\n").nth(1).unwrap_or_default();
    let section = section.split("\n[").next().unwrap_or_default();
    let needed = section.lines().filter_map(|line| line.split_once(" = ").map(|(name, _)| name));
    let needed: BTreeSet<&str> = needed.filter(|name| !name.starts_with("hapax")).collect();
    let missing = needed.difference(&named);
    let missing = missing.map(|name| format!("{} has no reason for {name}", DOCUMENTS[0]));
    let gone = named.difference(&needed);
    missing
        .chain(gone.map(|name| format!("{} has a reason for {name}, which is gone", DOCUMENTS[0])))
        .collect()
}

/// The crates, and those of them that each depends on outside of its tests.
fn dependencies(root: &Path) -> Result<BTreeMap<String, Vec<String>>, String> {
    let mut found = BTreeMap::new();
    let entries = std::fs::read_dir(root.join("crates")).map_err(|error| error.to_string())?;
    for folder in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        let Some(name) = folder.file_name().and_then(|name| name.to_str()) else { continue };
        let manifest = read(&folder.join("Cargo.toml"))?;
        let section = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default();
        let section = section.split("\n[").next().unwrap_or_default();
        let names = section.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
        let ours = names.filter(|name| name.starts_with("hapax")).map(str::to_owned);
        found.insert(name.to_owned(), ours.collect());
    }
    Ok(found)
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let found = named(Path::new(".."), "docs/glossary.md", text);
        found.into_iter().map(|(_, path)| path).collect()
    }

    /// Paths are found in text, tables, links and pictures; types, functions and commands are not.
    #[test]
    fn paths_are_told_from_other_words() {
        let text = "See `hapax-core/src/{name,token}.rs` and `schema.sql`, not `Claim::emit`,\n\
                    `cargo xtask tidy` or `/v1/effects`, and [that](spec.md#keys).\n\
                    \n\
                    | noun | `hapax-core/src` | where |\n\
                    |---|---|---|\n\
                    | key | `key.rs` | `hapax/src/gone.rs` |\n\
                    \n\
                    | word | file |\n\
                    |---|---|\n\
                    | `key` | `docs/gone` |\n\
                    ```\n\
                    run ─▶ ledger.rs\n\
                    ```\n";
        let expected = [
            "hapax-core/src/{name,token}.rs",
            "schema.sql",
            "docs/spec.md",
            "hapax-core/src",
            "hapax-core/src/key.rs",
            "hapax/src/gone.rs",
            "docs/gone",
            "ledger.rs",
        ];
        assert_eq!(paths(text), expected);
    }

    /// A path that does not exist, and one half of a pair that does not exist, are found.
    #[test]
    fn a_path_that_is_gone_is_found() {
        let root = Path::new("..");
        let files = files(root).expect("files");
        let there = |path: &str| {
            expanded(path).iter().all(|path| exists(root, "docs/glossary.md", path, &files))
        };
        assert!(there("hapax-core/src/{name,token}.rs") && there("xtask/src/paths.rs"));
        assert!(there("schema.sql") && there("paths.rs") && there("spec.md"));
        assert!(!there("hapax-core/src/{name,gone}.rs") && !there("gone.rs"));
    }

    /// A dependency without a reason, and a reason without a dependency, are found.
    #[test]
    fn each_dependency_has_a_reason() {
        let manifest = "[workspace]\n\n[workspace.dependencies]\nhapax = { path = \"x\" }\na = \"1\"\n\
                        b = { version = \"2\" }\n\n[profile.dev]\nc = 1\n";
        let text = |row: &str| format!("{REASONS}\n\n| crate | why |\n|---|---|\n{row}\n");
        assert!(reasons(&text("| a (feature), b | both |"), manifest).is_empty());
        let wrong = reasons(&text("| a, c | neither |"), manifest);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
    }

    /// A crate that is drawn above what depends on it, and one that is not drawn, are found.
    #[test]
    fn a_wrong_picture_is_found() {
        let root = Path::new("..");
        let names: Vec<String> = dependencies(root).expect("crates").into_keys().collect();
        let text = format!("{PICTURE}\n```\ncore\nstore\n```\n");
        let wrong = crates(root, &text).expect("a picture");
        let upside_down = "hapax-store depends on hapax-core, which the picture of the crates does \
                           not draw below it";
        assert!(wrong.iter().any(|complaint| complaint == upside_down), "{wrong:?}");
        let missing = wrong.iter().filter(|complaint| complaint.contains("does not have"));
        assert_eq!(missing.count(), names.len() - 2);
    }
}
