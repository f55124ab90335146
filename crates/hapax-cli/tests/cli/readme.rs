//! README's blocks, run as they are written.
//!
//! A block of `sh` is one script of bash; a block of `text` after it is what the script prints. Blocks
//! under one heading share a directory. In the expected text `…` stands for anything on its line.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use hapax_testkit::Postgres;

use super::{LedgerDir, Ran};

const README: &str = include_str!("../../../../README.md");

/// A script under a heading, and what it prints.
struct Block {
    heading: String,
    script: String,
    expected: String,
}

/// All blocks of README. A block of another kind than these is a mistake.
fn blocks() -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut heading = String::new();
    let mut lines = README.lines();
    while let Some(line) = lines.next() {
        if line.starts_with('#') {
            heading = line.trim_start_matches('#').trim().to_owned();
        }
        let Some(kind) = line.strip_prefix("```") else { continue };
        let text: String = lines
            .by_ref()
            .take_while(|line| *line != "```")
            .flat_map(|line| [line, "\n"])
            .collect();
        match kind {
            "sh" => {
                let (heading, expected) = (heading.clone(), String::new());
                blocks.push(Block { heading, script: text, expected });
            }
            "text" => blocks.last_mut().expect("text follows its script").expected = text,
            // `cargo xtask test` builds the workspace, and hapax-server's documentation tests run the Rust.
            "sh build" | "rust" => {}
            other => panic!("README has a block of {other:?}, which no test runs"),
        }
    }
    blocks
}

/// Whether a line is as expected, where `…` stands for anything.
fn is_like(line: &str, expected: &str) -> bool {
    let Some((before, after)) = expected.split_once('…') else { return line == expected };
    let Some(rest) = line.strip_prefix(before) else { return false };
    let ends = (0..=rest.len()).filter(|end| rest.is_char_boundary(*end));
    ends.into_iter().any(|end| is_like(&rest[end..], after))
}

/// A command that runs bash in a network of its own, where all ports are free, if this machine allows it.
fn bash_in_a_network() -> Command {
    let unshare = ["--map-root-user", "--net"];
    let allowed = Command::new("unshare").args(unshare).arg("true").status();
    let mut command = Command::new("bash");
    if allowed.is_ok_and(|status| status.success()) {
        command = Command::new("unshare");
        command.args(unshare).args(["sh", "-c", "ip link set lo up; exec bash \"$@\"", "sh"]);
    }
    command
}

/// Runs a script, and returns everything that it printed.
fn run(script: &str, directory: &Path, database: &str) -> String {
    let hapax = Path::new(env!("CARGO_BIN_EXE_hapax")).parent().expect("a directory");
    let path = std::env::var("PATH").expect("a path");
    fs::write(directory.join("block.sh"), script).expect("a script");
    // The database listens on a port of this machine.
    let mut command = match script.contains("$DATABASE_URL") {
        true => Command::new("bash"),
        false => bash_in_a_network(),
    };
    let all = "exec timeout 100 bash -c 'exec 2>&1; source ./block.sh; wait'";
    command.args(["-c", all]);
    command.current_dir(directory).stdin(Stdio::null());
    command.env("PATH", format!("{}:{path}", hapax.display())).env("HOME", directory);
    command.env("XDG_DATA_HOME", directory.join("data")).env("DATABASE_URL", database);
    for variable in ["HAPAX_CONFIG", "HAPAX_DB", "HAPAX_LISTEN", "HAPAX_NAMESPACE", "USER"] {
        command.env_remove(variable);
    }
    Ran::from(command.output().expect("bash runs")).out
}

/// Proves S-1, N-5: each block of README does what README says, as it is written.
#[test]
fn each_block_of_readme_prints_what_readme_shows() {
    let server = Postgres::start();
    let database = server.url("postgres");
    let blocks = blocks();
    assert!(blocks.len() > 10, "{}", blocks.len());
    let mut dir = LedgerDir::new();
    let mut heading = "";
    for block in &blocks {
        if block.heading != heading {
            (dir, heading) = (LedgerDir::new(), &block.heading);
        }
        let printed = run(&block.script, dir.0.path(), &database);
        let is_same = printed.lines().count() == block.expected.lines().count()
            && printed.lines().zip(block.expected.lines()).all(|(line, like)| is_like(line, like));
        assert!(
            is_same,
            "README under {heading:?}:\n{}prints\n{printed}but README shows\n{}",
            block.script, block.expected
        );
    }
}

#[test]
fn an_ellipsis_stands_for_anything_on_its_line() {
    for (line, expected, is) in [
        ("a b c", "a b c", true),
        ("a b c", "a … c", true),
        ("a b c", "…", true),
        ("a b c", "a b", false),
        ("a b c", "a … d", false),
        ("a b c d", "a … c", false),
        ("abc", "abc…", true),
    ] {
        assert_eq!(is_like(line, expected), is, "{line:?} and {expected:?}");
    }
}
