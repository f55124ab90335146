//! The command line as its users see it: real processes, real signals, real files.

mod crash;
mod disk;
mod extraction;
mod flood;
mod fuzz;
mod governance;
mod items;
mod journal;
mod key;
mod lineage;
mod lint;
#[cfg(feature = "otlp")]
mod otlp;
mod outbox;
mod pipeline;
mod postgres;
mod proxy;
mod readme;
mod receiver;
mod replay;
mod run;
mod serve;
mod transcript;
mod unrecorded;

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer than any test should take, so that reaching it is a failure.
const LONG: Duration = Duration::from_secs(30);

/// A directory with a ledger in it.
struct LedgerDir(tempfile::TempDir);

impl LedgerDir {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// `hapax` with these arguments, in this directory.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hapax"));
        command.args(words).current_dir(self.0.path()).stdin(Stdio::null());
        for variable in ["HAPAX_CONFIG", "HAPAX_DB", "HAPAX_LISTEN", "HAPAX_NAMESPACE", "USER"] {
            command.env_remove(variable);
        }
        command
    }

    fn hapax(&self, words: &[&str]) -> Ran {
        Ran::from(self.command(words).output().expect("hapax runs"))
    }

    fn hapax_reading(&self, input: &str, words: &[&str]) -> Ran {
        let mut command = self.command(words);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("hapax starts");
        let mut stdin = child.stdin.take().expect("standard input");
        stdin.write_all(input.as_bytes()).expect("hapax reads");
        drop(stdin);
        Ran::from(child.wait_with_output().expect("hapax ends"))
    }

    fn start(&self, words: &[&str]) -> Child {
        let mut command = self.command(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("hapax starts")
    }

    /// Waits until a program has made this file.
    fn wait_for(&self, name: &str) {
        wait_until(name, || self.path(name).exists());
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LONG, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How a process ended and what it printed.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ran {
    #[track_caller]
    fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    #[track_caller]
    fn prints(self, out: &str) -> Self {
        assert_eq!(self.out, out, "{self:?}");
        self
    }

    #[track_caller]
    fn shows(self, part: &str) -> Self {
        assert!(self.out.contains(part), "{part:?} is not in {self:?}");
        self
    }

    #[track_caller]
    fn says(self, part: &str) -> Self {
        assert!(self.err.contains(part), "{part:?} is not in {self:?}");
        self
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Whether a program that a test needs is on this machine; prints a line if it is not.
fn available(program: impl AsRef<OsStr>) -> bool {
    let program = program.as_ref();
    let found =
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        eprintln!("skipped: {} is not installed", program.display());
    }
    found.is_ok()
}
