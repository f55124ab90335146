//! `hapax run`: once, whatever happens around it.

use super::{LedgerDir, Ran};

/// Proves P-18 and K-9: of 64 concurrent calls one runs, and all print its output.
#[test]
fn sixty_four_concurrent_runs_run_once() {
    let dir = LedgerDir::new();
    let words =
        ["run", "--key", "k", "--wait", "25s", "--", "sh", "-c", "echo x >> out; echo done"];
    let children: Vec<_> = (0..64).map(|_| dir.start(&words)).collect();
    for child in children {
        Ran::from(child.wait_with_output().unwrap()).exits(0).prints("done\n");
    }
    assert_eq!(dir.read("out"), "x\n");
}

/// Proves K-3: without waiting, a second call gets its answer at once.
#[test]
fn without_waiting_a_second_call_fails_at_once() {
    let dir = LedgerDir::new();
    let slow = [
        "run",
        "--key",
        "k",
        "--",
        "sh",
        "-c",
        "touch started; while [ ! -e stop ]; do sleep 0.01; done; echo done",
    ];
    let first = dir.start(&slow);
    dir.wait_for("started");
    dir.hapax(&slow).exits(75).prints("").says("in flight").says("HX0201").says("--wait");
    std::fs::write(dir.path("stop"), "").unwrap();
    Ran::from(first.wait_with_output().unwrap()).exits(0).prints("done\n");
    dir.hapax(&slow).exits(0).prints("done\n");
}

/// Proves K-3: another command under the same key is a conflict that names both.
#[test]
fn another_command_under_the_same_key_is_a_conflict() {
    let dir = LedgerDir::new();
    dir.hapax(&["run", "--key", "k", "--", "echo", "one"]).exits(0).prints("one\n");
    let ran = dir.hapax(&["run", "--key", "k", "--", "echo", "two"]).exits(65).prints("");
    assert_eq!(ran.err.matches("sha256:").count(), 2, "{ran:?}");
}

/// Proves P-18: a failure is passed on and may be tried again; a success is not run again.
#[test]
fn a_failing_program_is_tried_again_and_a_succeeding_one_is_not() {
    let dir = LedgerDir::new();
    let flaky = [
        "run",
        "-k",
        "k",
        "--",
        "sh",
        "-c",
        "echo try >> tries; echo oops >&2; [ $(wc -l < tries) -ge 3 ] || exit 7",
    ];
    dir.hapax(&flaky).exits(7).says("oops").says("a repeat runs it again");
    dir.hapax(&flaky).exits(7);
    dir.hapax(&flaky).exits(0);
    dir.hapax(&flaky).exits(0).says("oops");
    assert_eq!(dir.read("tries").lines().count(), 3);
}

#[test]
fn a_program_that_does_not_exist_is_like_in_a_shell() {
    let dir = LedgerDir::new();
    dir.hapax(&["run", "-k", "k", "--", "no-such-program"]).exits(127).says("no-such-program");
}

/// Proves S-1: standard output and standard error are replayed, each on its own stream.
#[test]
fn both_streams_are_replayed() {
    let dir = LedgerDir::new();
    let both = ["run", "-k", "k", "--", "sh", "-c", r"printf 'out\0\377'; echo err >&2"];
    let first = dir.command(&both).output().unwrap();
    let second = dir.command(&both).output().unwrap();
    assert_eq!(first.stdout, b"out\0\xff");
    assert_eq!(first.stdout, second.stdout);
    assert_eq!(first.stderr, second.stderr);
}

/// Proves P-7 for guards: a precondition that fails runs nothing; a postcondition that fails
/// leaves a partial effect.
#[test]
fn guards_refuse_before_and_after() {
    let dir = LedgerDir::new();
    let pre = ["run", "-k", "a", "--pre", "test -e ready", "--", "sh", "-c", "echo ran >> ran"];
    dir.hapax(&pre).exits(73).says("--pre");
    assert_eq!(dir.read("ran"), "");
    std::fs::write(dir.path("ready"), "").unwrap();
    dir.hapax(&pre).exits(0);
    let post = ["run", "-k", "b", "--post", "test -e good", "--", "sh", "-c", "echo ran >> ran"];
    dir.hapax(&post).exits(73).says("--post");
    dir.hapax(&post).exits(78).says("partial");
    assert_eq!(dir.read("ran"), "ran\nran\n");
}

fn with_rollback<'a>(rollback: &'a str, program: &'a str) -> [&'a str; 9] {
    ["run", "-k", "k", "--rollback", rollback, "--", "sh", "-c", program]
}

/// Proves P-9: with a rollback, a failed run is undone at once and may be tried again.
#[test]
fn a_rollback_undoes_what_failed() {
    let dir = LedgerDir::new();
    let words = with_rollback("rm made; echo undone >> log", "touch made; test -e good");
    dir.hapax(&words).exits(1).says("rolled back");
    assert!(!dir.path("made").exists());
    std::fs::write(dir.path("good"), "").unwrap();
    dir.hapax(&words).exits(0);
    assert!(dir.path("made").exists());
    assert_eq!(dir.read("log"), "undone\n");
}

/// Proves P-9: a rollback that fails leaves the effect partial, and is tried again.
#[test]
fn a_rollback_that_fails_stays_owed() {
    let dir = LedgerDir::new();
    let words = with_rollback("test -e can", "echo ran >> ran; test -e can");
    dir.hapax(&words).exits(78).says("rollback failed");
    dir.hapax(&words).exits(78);
    assert_eq!(dir.read("ran"), "ran\n");
    std::fs::write(dir.path("can"), "").unwrap();
    dir.hapax(&words).exits(0);
}

/// Proves P-5: a held lock is skipped, waited for, or escalated.
#[test]
fn a_held_lock_follows_the_flag() {
    let dir = LedgerDir::new();
    let holder = dir.start(&[
        "run",
        "-k",
        "a",
        "--lock",
        "data",
        "--",
        "sh",
        "-c",
        "touch started; while [ ! -e stop ]; do sleep 0.01; done",
    ]);
    dir.wait_for("started");
    let other = |policy, key| {
        ["run", "-k", key, "--lock", "data", "--on-lock", policy, "--", "echo", "ran"]
    };
    dir.hapax(&other("skip", "b")).exits(75).says("locked");
    dir.hapax(&other("escalate", "b")).exits(78).says("lock is held");
    dir.hapax(&["run", "-k", "c", "--lock", "elsewhere", "--", "echo", "free"])
        .exits(0)
        .prints("free\n");
    let waiting = dir.start(&other("backoff", "b"));
    std::fs::write(dir.path("stop"), "").unwrap();
    Ran::from(waiting.wait_with_output().unwrap()).exits(0).prints("ran\n");
    Ran::from(holder.wait_with_output().unwrap()).exits(0);
}

/// Proves K-14: a key in another namespace is another effect.
#[test]
fn namespaces_are_apart() {
    let dir = LedgerDir::new();
    for namespace in ["one", "two"] {
        let words = ["--namespace", namespace, "run", "-k", "k", "--", "sh", "-c", "echo x >> out"];
        dir.hapax(&words).exits(0);
        dir.hapax(&words).exits(0);
    }
    assert_eq!(dir.read("out"), "x\nx\n");
    let listed = dir.hapax(&["effects", "list", "--json", "--namespace", "one"]).exits(0);
    assert_eq!(listed.out.lines().count(), 1);
    dir.hapax(&["--namespace", "No Such", "effects", "list"]).exits(64).says("namespace");
}

/// Proves K-11: with a time to live, the effect may happen again.
#[test]
fn an_expired_outcome_counts_as_absent() {
    let dir = LedgerDir::new();
    let words = ["run", "-k", "k", "--ttl", "50ms", "--", "sh", "-c", "echo x >> out"];
    dir.hapax(&words).exits(0);
    super::wait_until("the outcome to expire", || {
        dir.hapax(&words).exits(0);
        dir.read("out").lines().count() > 1
    });
}

#[test]
fn json_is_one_document() {
    let dir = LedgerDir::new();
    let words = ["run", "-k", "k", "--json", "--", "sh", "-c", "echo out; echo err >&2"];
    for verdict in ["executed", "replayed"] {
        let document = dir.hapax(&words).exits(0).json();
        assert_eq!(document["verdict"], verdict);
        assert_eq!(
            (document["stdout"].as_str(), document["stderr"].as_str()),
            (Some("out\n"), Some("err\n"))
        );
    }
    let refused = dir.hapax(&["run", "-k", "k", "--json", "--", "false"]).exits(65).json();
    assert_eq!(refused["error"]["code"], "HX0202");
}

#[test]
fn wrong_usage_is_64() {
    let dir = LedgerDir::new();
    dir.hapax(&["run", "--key", "k"]).exits(64);
    dir.hapax(&["run", "--key", " ", "--", "true"]).exits(64).says("blank");
    dir.hapax(&["run", "--key", "sha256:zz", "--", "true"])
        .exits(64)
        .says("sha256:<64 hex digits>");
    dir.hapax(&["run", "--key", "k", "--safety", "reconcilable", "--", "true"])
        .exits(64)
        .says("--reconcile");
    dir.hapax(&["run", "--key", "k", "--wait", "soon", "--", "true"]).exits(64);
    dir.hapax(&["frobnicate"]).exits(64);
    dir.hapax(&["--db", "no/such/dir/x.db", "run", "-k", "k", "--", "touch", "ran"])
        .exits(69)
        .says("HX0101");
    assert!(!dir.path("ran").exists());
}
