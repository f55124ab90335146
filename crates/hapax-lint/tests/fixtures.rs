//! Planted cases are found, each on its line; look-alikes pass.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use hapax_lint::{Config, scan};

fn tree(name: &str) -> PathBuf {
    fs::canonicalize(Path::new("tests/fixtures").join(name)).expect("a tree")
}

/// Every `FIND rule` in a tree: rule, file, line.
fn markers(root: &Path, at: &Path) -> BTreeSet<(String, String, usize)> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(at).expect("a tree") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(markers(root, &path));
            continue;
        }
        let file = path.strip_prefix(root).expect("beneath").to_string_lossy().replace('\\', "/");
        for (nth, line) in fs::read_to_string(&path).expect("a text").lines().enumerate() {
            let marked = line.split_once(" FIND ").map(|(_, rule)| rule.trim().to_owned());
            found.extend(marked.map(|rule| (rule, file.clone(), nth + 1)));
        }
    }
    found
}

/// Proves C-8: home-made idempotency is found, in Rust by syntax tree, elsewhere by pattern.
#[test]
fn planted_findings_are_found_and_nothing_else() {
    let root = tree("positive");
    let planted = markers(&root, &root);
    assert!(planted.len() >= 60, "{} cases", planted.len());
    let report = scan(&[root], &Config::default()).unwrap();
    let found = report.findings.iter();
    let found: BTreeSet<_> =
        found.map(|found| (found.rule.to_string(), found.path.clone(), found.line)).collect();
    let missed: Vec<_> = planted.difference(&found).collect();
    let extra: Vec<_> = found.difference(&planted).collect();
    assert!(missed.is_empty() && extra.is_empty(), "missed {missed:#?}\nextra {extra:#?}");
    assert_eq!(report.unparsed.len(), 1);
}

/// Proves C-8: code that only looks like it passes.
#[test]
fn lookalikes_pass() {
    let report = scan(&[tree("lookalike")], &Config::default()).unwrap();
    assert!(report.is_clean(), "{}", report.human());
    assert_eq!((report.unparsed.len(), report.files), (0, 13));
}
