//! Holders that are cut off from their ledger, or dead, each a `hapax` process.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hapax_testkit::{Postgres, free_port, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::field::{LONG, room};
use crate::program::{self, Act};
use crate::relay::Relay;
use crate::report::Report;
use crate::sink::{Rule, Sink};

/// How long the program of the first holder works before it charges: longer than its lease and the settling
/// time, so that another holder can have charged by then.
const WORK_MS: u64 = 5_000;

/// Freezes the connection of a holder whose program is at work, until another holder has charged.
pub fn frozen_connections(times: u64, bug: Option<&str>, report: &mut Report) {
    let server = Postgres::start();
    for nth in 0..times {
        let name = format!("frozen{nth}");
        let direct = server.database(&name);
        let relay = Relay::before(server.port());
        let charges = charge_twice(&relay.url(&name), &direct, bug, |_| relay.freeze(true));
        relay.freeze(false);
        report.count("connections frozen while a program was at work", 1);
        report.expect(charges == 1, || format!("charged {charges} times"));
    }
}

/// Stops the process of a holder whose program is at work, until another holder has charged.
pub fn stopped_runs(times: u64, bug: Option<&str>, report: &mut Report) {
    for _ in 0..times {
        let directory = room();
        let ledger = directory.path().join("hapax.db").to_string_lossy().into_owned();
        let charges = charge_twice(&ledger, &ledger, bug, |holder| {
            let _ = kill_process(Pid::from_child(holder), Signal::STOP);
        });
        report.count("processes of `hapax run` stopped while their program was at work", 1);
        report.expect(charges == 1, || format!("charged {charges} times"));
    }
}

/// Cuts one holder off while its program is at work, and lets another one charge. Returns the number of
/// charges.
fn charge_twice(
    first: &str,
    second: &str,
    bug: Option<&str>,
    cut_off: impl FnOnce(&Child),
) -> usize {
    let directory = room();
    let sink = Sink::start(&directory.path().join("judge"));
    let started = directory.path().join("started");
    let act = Act {
        sink: sink.port,
        key: "charge".into(),
        rule: Rule::Plain,
        by: 1,
        before_ms: WORK_MS,
        after_ms: 0,
        started: Some(started.clone()),
    };
    let run = |ledger: &str, act: &Act| {
        let mut command = hapax(ledger, directory.path(), bug);
        command.args(["run", "-k", "charge", "--safety", "reconcilable", "--settling", "1s"]);
        command.args(["--lease", "1s", "--wait", "30s", "--reconcile"]);
        command.arg(act.words("look").join(" ")).arg("--").args(act.words("act"));
        act.set_environment(&mut command);
        command
    };
    let mut holder = run(first, &act).spawn().expect("hapax starts");
    until("the program is at work", || started.exists());
    let begun = Instant::now();
    cut_off(&holder);
    let other = Act { by: 2, before_ms: 0, started: None, ..act.clone() };
    let charged = run(second, &other).status().expect("hapax ends");
    assert!(charged.success(), "the other holder charges: {charged}");
    // The program of the first holder, if it is still alive, has charged by then.
    let late = Duration::from_millis(WORK_MS + 1_000);
    while begun.elapsed() < late && sink.executed().values().all(|by| by.len() < 2) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = holder.kill();
    let _ = holder.wait();
    sink.executed().get("charge").map_or(0, Vec::len)
}

fn hapax(ledger: &str, directory: &Path, bug: Option<&str>) -> Command {
    let mut command = program::hapax(bug);
    command.current_dir(directory).args(["--db", ledger, "--signing-key"]);
    command.arg(directory.join("signing-key")).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Kills a holder with a very short lease, and one with a longer one: both lapse in time.
pub fn short_leases(times: u64, bug: Option<&str>, report: &mut Report) {
    let server = Postgres::start();
    for nth in 0..times {
        let url = server.database(&format!("short{nth}"));
        let directory = room();
        let hold = |key: &str, lease: &str| {
            let started = directory.path().join(key);
            let mut command = hapax(&url, directory.path(), bug);
            command.args(["run", "-k", key, "--lease", lease, "--", "sh", "-c"]);
            command.arg(format!("touch {}; sleep 600", started.display()));
            let mut holder = command.spawn().expect("hapax starts");
            until("the program is at work", || started.exists());
            let _ = holder.kill();
            let _ = holder.wait();
        };
        hold("short", "1s");
        hold("victim", "5s");
        let killed = Instant::now();
        report.count("holders killed whose leases differ", 1);
        let _node = Node::start(&url, directory.path(), bug);
        let lapsed = || {
            let mut list = hapax(&url, directory.path(), bug);
            list.args(["--json", "effects", "list", "--state", "indeterminate"]);
            let shown = list.stdout(Stdio::piped()).output().expect("hapax runs");
            String::from_utf8_lossy(&shown.stdout).lines().count() == 2
        };
        while !lapsed() && killed.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(200));
        }
        let took = killed.elapsed();
        report.expect(took < Duration::from_secs(15), || {
            format!("a lease of 5 s did not lapse in {took:.0?}, beside a dead one of 1 s")
        });
    }
}

/// Gets one attempt granted twice, with another client's grant in between: only the report of the
/// second grant counts.
pub fn attempts_granted_twice(times: u64, bug: Option<&str>, report: &mut Report) {
    for nth in 0..times {
        let directory = room();
        let ledger = directory.path().join("hapax.db").to_string_lossy().into_owned();
        let node = Node::start(&ledger, directory.path(), bug);
        let path = |verb: &str| format!("effects/twice-{nth}/{verb}");
        // The API's shortest lease: a grant's own deadline counts while the pulse is steady for a term.
        let opened = node.post("leases", &json!({ "term_ms": 5_000, "holder": "a client" })).1;
        let lease = opened["lease"].as_str().expect("a lease").to_owned();
        let claim = |digit: &str| {
            let renewed = node.post(&format!("leases/{lease}/renew"), &json!({})).0;
            assert_eq!(renewed, 200, "the lease is in force");
            let attempt = format!("att_{}", digit.repeat(32));
            let body = json!({
                "payload": "x", "safety": "transactional", "deadline_ms": 200, "attempt": attempt,
                "lease": lease,
            });
            node.post(&path("claim"), &body).1
        };
        let settle = |grant: &Value, how: &str, body: Option<&str>| {
            let (attempt, fence) = (&grant["attempt"], &grant["fence"]);
            let settle = json!({ "attempt": attempt, "fence": fence, "report": how, "body": body });
            node.post(&path("settle"), &settle)
        };
        let first = claim("1");
        let deadline = Instant::now() + LONG;
        let between = loop {
            let verdict = claim("2");
            if verdict["verdict"] == "granted" {
                break verdict;
            }
            assert!(Instant::now() < deadline, "the first grant lapses: {verdict}");
            std::thread::sleep(Duration::from_millis(50));
        };
        let (status, answer) = settle(&between, "released", None);
        assert_eq!(status, 200, "{answer}");
        let second = claim("1");
        report.expect(second["verdict"] == "granted", || format!("asked again: {second}"));
        report.count("attempts granted twice", 1);
        let (status, answer) = settle(&first, "succeeded", Some("overtaken"));
        report.expect(status == 409, || {
            format!("the report of the overtaken grant was answered {status}: {answer}")
        });
        let (status, answer) = settle(&second, "succeeded", Some("counts"));
        report.expect(status == 200 && answer["repeated"] == false, || {
            format!("the report that counts was answered {status}: {answer}")
        });
        let shown = claim("1");
        report.expect(shown["outcome"]["body"] == "counts", || format!("recorded: {shown}"));
    }
}

/// `hapax dev`, as long as this value lives.
struct Node {
    child: Child,
    port: u16,
}

impl Node {
    fn start(ledger: &str, directory: &Path, bug: Option<&str>) -> Self {
        let port = free_port();
        let mut command = hapax(ledger, directory, bug);
        let child = command.args(["dev", "--listen", &format!("127.0.0.1:{port}")]).spawn();
        let node = Self { child: child.expect("hapax starts"), port };
        until("the node listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        node
    }

    /// Sends it a request.
    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let output = Command::new("curl")
            .args(["-s", "-o", "-", "-w", "\n%{http_code}", "-H", "Content-Type: application/json"])
            .args(["-d", &body.to_string(), &format!("http://127.0.0.1:{}/v1/{path}", self.port)])
            .output()
            .expect("curl runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let (body, status) = text.rsplit_once('\n').unwrap_or_default();
        (status.parse().unwrap_or(0), serde_json::from_str(body).unwrap_or(Value::Null))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
