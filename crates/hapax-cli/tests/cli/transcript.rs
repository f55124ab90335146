//! Sessions as an operator reads them. Update with `UPDATE_EXPECT=1`.

use expect_test::expect_file;

use super::LedgerDir;

/// Runs the lines of a session and returns them with their output.
fn session(lines: &[&str]) -> String {
    let dir = LedgerDir::new();
    let mut text = String::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let ran = dir.hapax(&words);
        text += &format!("$ hapax {line}\n{}{}", ran.out, ran.err);
        if ran.code != Some(0) {
            text += &format!("[{}]\n", ran.code.unwrap_or(-1));
        }
    }
    steady(&text)
}

/// Replaces the parts that differ from run to run.
fn steady(text: &str) -> String {
    let mut out = String::new();
    for word in text.split_inclusive([' ', '\n', '(', ')', ',', '"']) {
        let core = word.trim_end_matches([' ', '\n', '(', ')', ',', '"']);
        let rest = &word[core.len()..];
        let known = if core.starts_with("att_") {
            "att_…"
        } else if core.len() == 24 && core.ends_with('Z') {
            "2026-01-01T00:00:00.000Z"
        } else {
            core
        };
        out += known;
        out += rest;
    }
    out
}

/// Proves S-1 for the output that people see.
#[test]
fn a_first_session() {
    let text = session(&[
        "run --key invoice-42 -- echo sent",
        "run --key invoice-42 -- echo sent",
        "run --key invoice-42 -- echo other",
        "run --key broken -- false",
        "effects list",
        "effects show invoice-42",
        "effects show nothing",
        "journal list",
        "journal verify",
        "doctor",
    ]);
    expect_file!["first_session.txt"].assert_eq(&text);
}

/// Proves C-2 and C-4 for the output that people see: computations, and an epoch that ends.
#[test]
fn epochs_and_computations() {
    let text = session(&[
        "control computations",
        "epoch show",
        "epoch advance connector --reason failover --by ann",
        "epoch show",
        "run --key step-3 --epoch connector:1 -- echo migrated",
        "run --key step-3 --epoch connector:1 -- echo migrated",
        "epoch advance connector --reason rollback --by ann",
        "epoch advance connector --reason rollback --by ann --seen 1",
        "run --key step-3 --epoch connector:1 -- echo migrated",
        "run --key step-3 -- echo migrated",
        "run --key step-4 --epoch connector -- echo migrated",
        "epoch advance connector --reason back --to 1",
        "epoch advance connector --reason typo --seen 7",
        "epoch skip connector:1 --note over",
        "epoch skip connector:2 --note over",
        "epoch advance Connector --reason typo",
        "epoch show connector",
    ]);
    expect_file!["epochs.txt"].assert_eq(&text);
}

/// Proves S-1 for the help that every command has.
#[test]
fn the_help() {
    let text = session(&[
        "--help",
        "run --help",
        "key --help",
        "effects --help",
        "effects resolve --help",
        "journal --help",
        "epoch --help",
        "epoch advance --help",
        "control --help",
        "doctor --help",
        "bench --help",
    ]);
    expect_file!["help.txt"].assert_eq(&text);
}

/// Proves S-1 for completions.
#[test]
fn completions_are_printed_for_every_shell() {
    let dir = LedgerDir::new();
    for shell in ["bash", "zsh", "fish"] {
        let ran = dir.hapax(&["completions", shell]).exits(0);
        assert!(ran.out.contains("effects"), "{shell}");
    }
}
