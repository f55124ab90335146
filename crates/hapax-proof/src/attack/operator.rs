//! The operator of an attack: decides by the judge's record, and only on keys without a caller at work.

use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Attack, Kind};
use crate::report::Report;

/// How long a command of the operator may take.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Decides and resets until the attack is over.
pub(super) fn operate(attack: &Attack) -> Report {
    let mut report = Report::default();
    let mut round: u64 = 0;
    while !attack.over.load(Ordering::Acquire) {
        round += 1;
        let mut list = attack.hapax(&attack.ledger);
        list.args(["--json", "effects", "list", "--stuck", "--limit", "200"]);
        let stuck = run(&mut list).map(|(_, text)| text).unwrap_or_default();
        let numbers = attack.numbers();
        for effect in stuck.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let Some(n) = effect["key"].as_str().and_then(|key| numbers.get(key).copied()) else {
                continue;
            };
            if attack.progress().is_quiet(n) {
                decide(attack, n, &effect, &mut report);
            }
        }
        if round.is_multiple_of(4) {
            reset(attack, round, &mut report);
        }
        std::thread::sleep(Duration::from_millis(250));
    }
    report
}

/// Resolves a stuck effect by the judge's record.
fn decide(attack: &Attack, n: u64, effect: &Value, report: &mut Report) {
    // After a reset, the judge's record may be of the time before.
    if attack.progress().resets.contains_key(&n) {
        return;
    }
    let done = attack.executed(n);
    let mut command = attack.hapax(&attack.ledger);
    let key = effect["key"].as_str().unwrap_or_default();
    command.args(["effects", "resolve", key, "--note", "asked the judge"]);
    command.args(["--attempt", effect["attempt"].as_str().unwrap_or_default()]);
    command.args(["--saw", effect["state"].as_str().unwrap_or_default()]);
    let result = attack.directory.path().join("result");
    match done.last() {
        Some(by) => {
            std::fs::write(&result, by.to_string()).expect("a file");
            command.arg("--happened").arg("--result").arg(&result);
        }
        None if n.is_multiple_of(7) => {
            command.arg("--skip");
        }
        None => {
            command.arg("--did-not-happen");
        }
    }
    if let Some((0, _)) = run(&mut command) {
        report.count("effects that an operator decided", 1);
    }
}

/// Resets a finished effect that no caller is at work on.
fn reset(attack: &Attack, round: u64, report: &mut Report) {
    let n = {
        let progress = attack.progress();
        let front = progress.front.saturating_sub(30);
        let n = front.saturating_sub(round % 40);
        let fits = attack.kind(n) != Kind::Proxy && progress.is_quiet(n);
        if !fits || progress.authors.get(&n).is_none_or(Vec::is_empty) {
            return;
        }
        n
    };
    let key = attack.key(n).to_string();
    let mut show = attack.hapax(&attack.ledger);
    show.args(["--json", "effects", "show", &key]);
    let Some((0, shown)) = run(&mut show) else { return };
    let shown: Value = serde_json::from_str(&shown).unwrap_or(Value::Null);
    let shown = shown.get("effect").unwrap_or(&shown);
    let (Some(attempt), Some(state)) = (shown["attempt"].as_str(), shown["state"].as_str()) else {
        return report.violation(format!("effects show does not say enough: {shown}"));
    };
    // Counted before the command: from now on the effect may happen once more.
    *attack.progress().resets.entry(n).or_default() += 1;
    let mut command = attack.hapax(&attack.ledger);
    command.args([
        "effects",
        "reset",
        &key,
        "--attempt",
        attempt,
        "--saw",
        state,
        "--note",
        "again",
    ]);
    match run(&mut command) {
        Some((0, _)) => {
            attack.progress().open.insert(n);
            report.count("effects that an operator reset", 1);
        }
        Some((65, _)) => {
            // Refused for certain.
            if let Some(resets) = attack.progress().resets.get_mut(&n) {
                *resets -= 1;
            }
        }
        _ => report.count("resets without an answer", 1),
    }
}

/// Runs a command to its end. Returns its exit code and its output; `None` if it took too long.
fn run(command: &mut Command) -> Option<(i32, String)> {
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().expect("hapax starts");
    // Read on another thread: a long answer would fill the pipe.
    let mut output = child.stdout.take().expect("piped");
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = std::io::Read::read_to_string(&mut output, &mut text);
        text
    });
    let deadline = Instant::now() + TIMEOUT;
    let code = loop {
        match child.try_wait().expect("a child can be waited for") {
            Some(status) => break status.code(),
            None if Instant::now() > deadline => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(3)),
        }
    };
    let text = reading.join().unwrap_or_default();
    code.map(|code| (code, text))
}
