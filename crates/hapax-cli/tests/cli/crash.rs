//! Processes killed and stopped in mid-program.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::serve::Server;
use super::{LedgerDir, Ran, wait_until};

/// A program that appends a line, makes the file `started`, and then waits to be killed, unless the
/// file `stop` is there.
const PROGRAM: &str =
    "echo run >> runs; touch started; while [ ! -e stop ]; do sleep 0.01; done; echo done";

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(child.id().to_string()).status();
    assert!(status.expect("kill runs").success());
}

/// Starts a run, kills `hapax` in mid-program, and returns how long the next call took.
fn kill_and_ask_again(dir: &LedgerDir, words: &[&str]) -> (Ran, Duration) {
    let mut first = dir.start(words);
    dir.wait_for("started");
    signal(&first, "KILL");
    first.wait().expect("it ends");
    std::fs::write(dir.path("stop"), "").expect("a file");
    let start = Instant::now();
    (dir.hapax(words), start.elapsed())
}

/// Proves K-7: opaque work of a killed process needs a person, and the error names the command.
#[test]
fn a_killed_opaque_run_needs_a_person() {
    let dir = LedgerDir::new();
    let words = ["run", "-k", "k", "--", "sh", "-c", PROGRAM];
    let (ran, took) = kill_and_ask_again(&dir, &words);
    let ran = ran.exits(78).says("indeterminate").says("hapax effects resolve k --attempt att_");
    assert!(took < Duration::from_secs(5), "did not wait out the lease: {took:?}");
    assert_eq!(dir.read("runs"), "run\n");
    dir.hapax(&["effects", "list", "--stuck"]).exits(0);
    dir.hapax(&["doctor"]).exits(78);
    let attempt = ran.err.split_whitespace().find(|word| word.starts_with("att_")).unwrap();
    let resolve = |decision| {
        dir.hapax(&[
            "effects",
            "resolve",
            "k",
            "--attempt",
            attempt,
            "--saw",
            "indeterminate",
            "--by",
            "ann",
            "--note",
            "checked",
            decision,
        ])
    };
    resolve("--did-not-happen").exits(0);
    resolve("--happened").exits(65).says("nothing was changed");
    dir.hapax(&words).exits(0).prints("done\n");
    dir.hapax(&["doctor"]).exits(0);
    assert_eq!(dir.read("runs"), "run\nrun\n");
}

/// Proves K-23: readers see at once that a holder was killed, before any process claims. A server or proxy that gets
/// no request expires the effect.
#[test]
fn a_killed_holder_is_seen_by_readers_and_expired_by_an_idle_server() {
    let servers: [&[&str]; 2] = [
        &["dev", "--listen", "127.0.0.1:0"],
        &["proxy", "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:9"],
    ];
    for server in servers {
        let dir = LedgerDir::new();
        let mut run = dir.start(&["run", "-k", "k", "--", "sh", "-c", PROGRAM]);
        dir.wait_for("started");
        let holder = format!("hapax run, process {}", run.id());
        let show = ["effects", "show", "k"];
        dir.hapax(&show).exits(0).shows(&format!("{holder}: alive"));
        dir.hapax(&["effects", "list", "--stuck"]).exits(0).prints("Nothing is stuck.\n");
        dir.hapax(&["doctor"]).exits(0).shows("leases    1 in force");
        signal(&run, "KILL");
        run.wait().expect("it ends");
        // The watchdog kills the program first.
        let is_shown = "running (holder dead)";
        wait_until("the holder is shown as dead", || {
            dir.hapax(&["effects", "list", "--stuck"]).exits(0).out.contains(is_shown)
        });
        dir.hapax(&show).exits(0).shows(is_shown).shows(&format!("{holder}: dead"));
        let shown = dir.hapax(&["--json", "effects", "show", "k"]).exits(0).json();
        assert_eq!((&shown["state"], &shown["holder"]), (&"running".into(), &"dead".into()));
        assert_eq!(shown["held_by"], holder);
        let finding = format!("is running, and its holder ({holder}) is dead");
        dir.hapax(&["doctor"]).exits(0).shows(&finding).shows("leases    0 in force");

        let _server = Server::start(&dir, server);
        wait_until("the effect is expired", || {
            let shown = dir.hapax(&["--json", "effects", "show", "k"]).exits(0).json();
            shown["state"] == "indeterminate" && shown["holder"].is_null()
        });
    }
}

/// Proves K-4: a person who knows the result records it, and a repeat prints it.
#[test]
fn a_result_given_by_a_person_is_replayed() {
    let dir = LedgerDir::new();
    let words = ["run", "-k", "k", "--", "sh", "-c", PROGRAM];
    let (ran, _) = kill_and_ask_again(&dir, &words);
    let attempt = ran.err.split_whitespace().find(|word| word.starts_with("att_")).unwrap();
    std::fs::write(dir.path("result"), "receipt 7\n").unwrap();
    let resolve = [
        "effects",
        "resolve",
        "k",
        "--attempt",
        attempt,
        "--saw",
        "indeterminate",
        "--note",
        "n",
        "--happened",
        "--result",
        "result",
    ];
    dir.hapax(&resolve).exits(0);
    dir.hapax(&words).exits(0).prints("receipt 7\n");
}

/// Proves K-7: transactional work of a killed process is run again at once.
#[test]
fn a_killed_transactional_run_is_run_again() {
    let dir = LedgerDir::new();
    let words = ["run", "-k", "k", "--safety", "transactional", "--", "sh", "-c", PROGRAM];
    let (ran, took) = kill_and_ask_again(&dir, &words);
    ran.exits(0).prints("done\n");
    assert!(took < Duration::from_secs(5), "did not wait out the lease: {took:?}");
    assert_eq!(dir.read("runs"), "run\nrun\n");
}

/// Proves K-7: for reconcilable work the reconciler looks first.
#[test]
fn a_killed_reconcilable_run_is_looked_up_first() {
    for (finding, expected, runs) in [("echo found", "found\n", 1), ("exit 1", "done\n", 2)] {
        let dir = LedgerDir::new();
        let look = format!("echo asked >> asked; {finding}");
        let words = [
            "run",
            "-k",
            "k",
            "--safety",
            "reconcilable",
            "--settling",
            "0s",
            "--reconcile",
            &look,
            "--",
            "sh",
            "-c",
            PROGRAM,
        ];
        let (ran, took) = kill_and_ask_again(&dir, &words);
        ran.exits(0).prints(expected);
        assert!(took < Duration::from_secs(5), "did not wait out the lease: {took:?}");
        assert_eq!(dir.read("asked"), "asked\n");
        assert_eq!(dir.read("runs").lines().count(), runs);
    }
    let dir = LedgerDir::new();
    let words = [
        "run",
        "-k",
        "k",
        "--safety",
        "reconcilable",
        "--reconcile",
        "exit 9",
        "--",
        "sh",
        "-c",
        PROGRAM,
    ];
    let (ran, _) = kill_and_ask_again(&dir, &words);
    ran.exits(78).says("unknown");
    assert_eq!(dir.read("runs"), "run\n");
}

/// Proves K-7: the program does not outlive the process that runs it.
#[test]
fn a_killed_run_takes_its_program_with_it() {
    let dir = LedgerDir::new();
    let mut first =
        dir.start(&["run", "-k", "k", "--", "sh", "-c", "echo $$ > pid; exec sleep 60"]);
    wait_until("the program to start", || dir.read("pid").ends_with('\n'));
    let process = std::path::PathBuf::from(format!("/proc/{}", dir.read("pid").trim()));
    signal(&first, "KILL");
    first.wait().unwrap();
    wait_until("the program to die", || {
        let status = std::fs::read_to_string(process.join("status")).unwrap_or_default();
        status.is_empty() || status.contains("Z (zombie)")
    });
}

/// A run with a lease so short that a test can outlast it.
fn briefly_leased(options: &[&'static str]) -> Vec<&'static str> {
    let run = ["run", "-k", "k", "--safety", "transactional", "--lease", "300ms", "--wait", "25s"];
    [&run, options, &["--", "sh", "-c", PROGRAM]].concat()
}

/// Proves K-5 and K-6: a stopped holder that is overtaken is fenced when it comes back.
#[test]
fn a_stopped_holder_is_overtaken_and_fenced() {
    let dir = LedgerDir::new();
    let words = briefly_leased(&[]);
    let first = dir.start(&words);
    dir.wait_for("started");
    signal(&first, "STOP");
    std::fs::write(dir.path("stop"), "").unwrap();
    dir.hapax(&words).exits(0).prints("done\n");
    signal(&first, "CONT");
    let stale = Ran::from(first.wait_with_output().unwrap());
    stale.exits(78).says("HX020");
    dir.hapax(&words).exits(0).prints("done\n");
    assert_eq!(dir.read("runs"), "run\nrun\n");
}

/// Proves K-5: the holder is fenced also when its record was swept and made again meanwhile.
#[test]
fn a_stopped_holder_of_a_record_that_was_made_anew_is_fenced() {
    let dir = LedgerDir::new();
    let words = briefly_leased(&["--ttl", "1ms"]);
    let first = dir.start(&words);
    dir.wait_for("started");
    signal(&first, "STOP");
    std::fs::write(dir.path("stop"), "").unwrap();
    // Each of these overtakes, settles, expires and is made anew by the next.
    for _ in 0..3 {
        dir.hapax(&words).exits(0);
    }
    signal(&first, "CONT");
    Ran::from(first.wait_with_output().unwrap()).exits(78).says("HX020");
    let shown = dir.hapax(&["effects", "show", "k", "--json"]).exits(0).json();
    assert_eq!(
        (shown["state"].as_str(), shown["generation"].as_u64()),
        (Some("succeeded"), Some(3))
    );
}

/// Proves P-18: a signal reaches the program, and the safety class decides what it means.
#[test]
fn signals_are_passed_on() {
    let dir = LedgerDir::new();
    let trap = "trap 'echo caught; exit 3' TERM; touch started; while :; do sleep 0.01; done";
    let first = dir.start(&["run", "-k", "a", "--", "sh", "-c", trap]);
    dir.wait_for("started");
    signal(&first, "TERM");
    Ran::from(first.wait_with_output().unwrap()).exits(3).prints("caught\n");
    for (key, safety, code) in [("b", "opaque", 78), ("c", "transactional", 137)] {
        let words = ["run", "-k", key, "--safety", safety, "--", "sh", "-c", "kill -9 $$"];
        dir.hapax(&words).exits(code).says("signal 9");
    }
}

/// Proves C-4 for any program: one that runs when its epoch ends learns it at its own end, and its
/// result does not count. An operator can skip all effects that the epoch has left.
#[test]
fn a_program_whose_epoch_ends_is_void() {
    let dir = LedgerDir::new();
    let program =
        "echo $HAPAX_EPOCH > epoch; touch started; while [ ! -e stop ]; do sleep 0.01; done";
    let words = ["run", "-k", "k", "--epoch", "connector:0", "--", "sh", "-c", program];
    let running = dir.start(&words);
    dir.wait_for("started");
    let advance = ["epoch", "advance", "connector", "--reason", "failover"];
    dir.hapax(&advance).exits(0).says("1 attempt was under way and void");
    std::fs::write(dir.path("stop"), "").expect("a file");
    let ran = Ran::from(running.wait_with_output().expect("it ends"));
    ran.exits(73).says("HX0211");
    assert_eq!(dir.read("epoch"), "connector:0\n");
    let stuck = dir.hapax(&["effects", "list", "--stuck", "--json"]).exits(0).out;
    assert!(stuck.contains("since then its holder says that it happened"), "{stuck}");
    dir.hapax(&["doctor"]).exits(78);
    dir.hapax(&["epoch", "skip", "connector:0", "--note", "not needed"])
        .exits(0)
        .prints("Effects skipped: 1.\n");
    dir.hapax(&["doctor"]).exits(0);
}

/// Proves K-18: `hapax run` is stopped while its program works, and so does not renew its lease. The program and
/// every process that it has started in a session of its own are killed before another attempt can be granted.
#[test]
fn a_program_is_killed_while_its_runner_is_stopped() {
    let dir = LedgerDir::new();
    // A process that lives on after the lease has lapsed leaves a trace.
    let program = "echo run >> runs; touch started
        setsid sh -c 'while sleep 0.05; do echo alive >> grandchild; done' &
        while sleep 0.05; do echo alive >> child; done";
    let words = ["run", "-k", "k", "--safety", "reconcilable", "--settling", "1s", "--lease", "2s"];
    let look = ["--reconcile", "exit 1"];
    let first = [&words[..], &look, &["--", "sh", "-c", program]].concat();
    let mut runner = dir.command(&first).spawn().expect("hapax starts");
    wait_until("the program works", || {
        dir.path("started").exists() && dir.path("grandchild").exists()
    });
    let pid = rustix::process::Pid::from_raw(runner.id() as i32).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("stopped");
    // The same command, so that the payload is the same: it waits until it is granted, and is stopped by us.
    let second = [&words[..], &look, &["--wait", "60s", "--", "sh", "-c", program]].concat();
    let mut other = dir.command(&second).spawn().expect("hapax starts");
    wait_until("it is granted again", || dir.read("runs") == "run\nrun\n");
    let size = |name| std::fs::metadata(dir.path(name)).map_or(0, |meta| meta.len());
    // Only processes of the second run still write to the two files.
    end(&mut other);
    wait_until("the second run is over", || {
        let before = (size("child"), size("grandchild"));
        std::thread::sleep(Duration::from_millis(300));
        before == (size("child"), size("grandchild"))
    });
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("continued");
    let ended = runner.wait().expect("it ends");
    assert!(!ended.success(), "{ended:?}");
    let states = dir.hapax(&["effects", "show", "k"]);
    assert!(!states.out.contains("succeeded"), "{states:?}");
}

/// Proves K-18: a deadline that is shorter than the lease is kept as well while `hapax run` is stopped.
#[test]
fn a_program_is_killed_at_its_deadline_while_its_runner_is_stopped() {
    let dir = LedgerDir::new();
    let program = "touch started; while sleep 0.05; do echo alive >> child; done";
    let terms = ["--safety", "transactional", "--lease", "10m", "--deadline", "2s"];
    let words = [&["run", "-k", "k"][..], &terms, &["--", "sh", "-c", program]].concat();
    let mut runner = dir.command(&words).spawn().expect("hapax starts");
    wait_until("the program works", || dir.path("child").exists());
    let pid = rustix::process::Pid::from_raw(runner.id() as i32).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("stopped");
    let size = || std::fs::metadata(dir.path("child")).map_or(0, |meta| meta.len());
    wait_until("the program is dead", || {
        let before = size();
        std::thread::sleep(Duration::from_millis(300));
        before == size()
    });
    end(&mut runner);
}

/// Proves K-18: a program and its descendants die with `hapax run`, and nothing is granted before they are dead.
#[test]
fn processes_started_by_a_program_die_with_its_runner() {
    let dir = LedgerDir::new();
    let program = "setsid sh -c 'while sleep 0.02; do echo alive >> grandchild; done' & touch started; sleep 60";
    let words = ["run", "-k", "k", "--safety", "transactional", "--", "sh", "-c", program];
    let mut runner = dir.command(&words).spawn().expect("hapax starts");
    wait_until("it works", || dir.path("started").exists() && dir.path("grandchild").exists());
    end(&mut runner);
    let size = || std::fs::metadata(dir.path("grandchild")).map_or(0, |meta| meta.len());
    wait_until("it is dead", || {
        let before = size();
        std::thread::sleep(Duration::from_millis(200));
        before == size()
    });
}

/// Kills one of this test's processes.
fn end(child: &mut Child) {
    child.kill().expect("killed");
    child.wait().expect("gone");
}

/// A hint names the ledger and the namespace, and a shell that gets it pasted runs nothing else.
#[test]
fn a_hint_that_is_pasted_decides() {
    let dir = LedgerDir::new();
    let ledger = ["--db", "my ledger.db", "--namespace", "shop"];
    let run = ["run", "-k", "a`touch x`$(touch x)'", "--", "sh", "-c", "kill -9 $$"];
    let ran = dir.hapax(&[&ledger[..], &run].concat()).exits(78);
    let hints: Vec<&str> =
        ran.err.lines().map(str::trim).filter(|line| line.starts_with("hapax ")).collect();
    assert_eq!(hints.len(), 3, "one for each decision: {ran:?}");
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_hapax"));
    let path = format!("{}:/usr/bin:/bin", program.parent().expect("a directory").display());
    let pasted = Command::new("/bin/sh")
        .args(["-c", hints[2]])
        .env("PATH", path)
        .current_dir(dir.path(""))
        .output();
    Ran::from(pasted.expect("sh runs")).exits(0).shows("is now skipped");
    assert!(!dir.path("x").exists(), "part of the key was run");
}
