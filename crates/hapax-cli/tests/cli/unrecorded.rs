//! The ledger goes away while a program runs: what people are told, and what the next process records.

use std::fs::File;
use std::process::Child;
use std::time::{Duration, Instant};

use hapax_testkit::Postgres;
use rusqlite::Connection;

use super::{LedgerDir, Ran};

/// A program that runs until a file is there, and writes how often it ran.
const PROGRAM: &str = "echo ran >> ran; touch started; until [ -e go ]; do sleep 0.01; done";

fn ran(child: Child) -> Ran {
    Ran::from(child.wait_with_output().expect("it ends"))
}

/// Proves K-24: the message says that the program ran, how it ended, and where its outcome is kept; the
/// next command records it.
#[test]
fn an_outcome_that_a_file_cannot_take_is_recorded_later() {
    let dir = LedgerDir::new();
    dir.hapax(&["run", "-k", "before", "--", "true"]).exits(0);
    for (key, ending, state) in [("paid", "", "succeeded"), ("refused", "; exit 3", "failed")] {
        let _ = (std::fs::remove_file(dir.path("go")), std::fs::remove_file(dir.path("started")));
        let program = format!("{PROGRAM}{ending}");
        let child = dir.start(&["run", "-k", key, "--lease", "60s", "--", "sh", "-c", &program]);
        dir.wait_for("started");
        // Another program holds the write lock of the file.
        let held = Connection::open(dir.path("hapax.db")).expect("the file");
        held.execute_batch("BEGIN IMMEDIATE").expect("the lock");
        File::create(dir.path("go")).expect("a file");
        let begun = Instant::now();
        let run = ran(child).exits(78).says("HX0213").says("its outcome could not be recorded");
        assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
        let run = match state {
            "succeeded" => run.says("the program ran and exited 0"),
            _ => run.says("the program ran and exited with 3"),
        };
        run.says("waiting until the outcome is recorded").says("hapax.db-spool");
        held.execute_batch("ROLLBACK").expect("the lock is free");
        dir.hapax(&["effects", "show", key]).exits(0).shows(state);
        let spool = dir.path("hapax.db-spool").read_dir().expect("a directory");
        assert_eq!(spool.count(), 0, "the file is removed");
    }
    dir.hapax(&["run", "-k", "paid", "--", "sh", "-c", PROGRAM]).exits(0);
    assert_eq!(dir.read("ran"), "ran\nran\n", "once for each key");
    dir.hapax(&["journal", "verify"]).exits(0);
}

/// Proves K-24: the same with a database that is stopped, and with its events.
#[test]
fn an_outcome_that_a_database_cannot_take_is_recorded_later() {
    let (mut server, dir) = (Postgres::start(), LedgerDir::new());
    let url = server.url("postgres");
    let command = |words: &[&str]| {
        let mut command = dir.command(words);
        command.env("HAPAX_DB", &url).env("XDG_DATA_HOME", dir.path("home"));
        command.env("XDG_STATE_HOME", dir.path("state"));
        command
    };
    let hapax = |words: &[&str]| Ran::from(command(words).output().expect("hapax runs"));
    let config = "[sinks.log]\nkind = \"file\"\npath = \"events.jsonl\"\n\
                  [[routes]]\nevent = \"*\"\nsinks = [\"log\"]\n";
    std::fs::write(dir.path("hapax.toml"), config).expect("a file");
    hapax(&["outbox", "configure"]).exits(0);
    let event = r#"{"event_name":"paid","dataset_id":"d","payload":{"n":1}}"#;
    let program = format!("{PROGRAM}; echo '{event}' > \"$HAPAX_EVENTS\"");
    let mut run = command(&["run", "-k", "paid", "--lease", "60s", "--", "sh", "-c", &program]);
    let child = run
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    dir.wait_for("started");
    server.stop();
    File::create(dir.path("go")).expect("a file");
    let begun = Instant::now();
    ran(child).exits(78).says("the program ran and exited 0").says("-spool");
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    server.up();
    hapax(&["effects", "show", "paid"]).exits(0).shows("succeeded");
    hapax(&["outbox", "list"]).exits(0).shows("paid");
    hapax(&["run", "-k", "paid", "--", "sh", "-c", &program]).exits(0);
    assert_eq!(dir.read("ran"), "ran\n");
}
