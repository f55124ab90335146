//! Governed operations on the command line: a story, kills at every step, planted faults.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use hapax_testkit::Postgres;
use serde_json::Value;

use super::{LedgerDir, Ran, wait_until};

/// A ledger of either kind, and a directory to work in.
pub(super) struct Shop {
    pub(super) dir: LedgerDir,
    server: Option<Postgres>,
}

impl Shop {
    pub(super) fn in_a_file() -> Self {
        Self { dir: LedgerDir::new(), server: None }
    }

    fn in_a_database() -> Self {
        Self { dir: LedgerDir::new(), server: Some(Postgres::start()) }
    }

    /// With a server in which `hapax doctor` finds no problem.
    pub(super) fn in_a_sound_database() -> Self {
        let server = Postgres::with(&["shared_buffers=32MB"]);
        Self { dir: LedgerDir::new(), server: Some(server) }
    }

    pub(super) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.dir.command(words);
        command.env("USER", "ann");
        if let Some(server) = &self.server {
            command.env("HAPAX_DB", server.url("postgres"));
            command.env("XDG_DATA_HOME", self.dir.path("home"));
        }
        command
    }

    pub(super) fn hapax(&self, words: &[&str]) -> Ran {
        Ran::from(self.command(words).output().expect("hapax runs"))
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path(name), text).expect("a file");
    }

    pub(super) fn is_in_a_file(&self) -> bool {
        self.server.is_none()
    }

    /// SQL behind hapax's back.
    pub(super) fn sql(&self, sqlite: &str, postgres: &str) {
        match &self.server {
            Some(server) => drop(server.sql("postgres", postgres)),
            None => {
                let db = rusqlite::Connection::open(self.dir.path("hapax.db")).expect("a file");
                db.execute_batch(sqlite).expect("right SQL");
            }
        }
    }
}

/// The words of an operation on a dataset, with more options.
pub(crate) fn operation<'a>(dataset: &'a str, version: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec!["run", "--pipeline", "hydrology", "--task", "load", "--dataset", dataset];
    words.extend(["--operation", "publish", "--version", version]);
    words.extend(["--logical-time", "2026-11-16T06:10:00Z"]);
    words.extend(more);
    words
}

const CONFIG: &str = r#"
[pipeline]
environment = "test"

[datasets.flow]
owner = "hydrology"
output_contract = '{"type":"object","required":["station"]}'

[datasets.sites]
masked = 5
sovereignty = "tribal"
review = true

[sinks.lineage]
kind = "openlineage"
path = "lineage.jsonl"

[sinks.catalog]
kind = "catalog"
path = "catalog"

[[routes]]
event = "lineage"
sinks = ["lineage", "catalog"]

[[routes]]
event = "*"
sinks = ["lineage"]
"#;

/// Every file below a directory, with its contents.
pub(super) fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut files, mut folders) = (BTreeMap::new(), vec![directory.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a directory").flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let relative = path.strip_prefix(directory).expect("below it").to_owned();
                    files.insert(relative, std::fs::read(&path).expect("a file"));
                }
            }
        }
    }
    files
}

const WRITE: &str = r#"echo '{"station":"06887500"}' > out.json; echo x >> runs; echo wrote"#;

/// Proves P-10, P-11, P-16, P-18: a whole day without a line of code: declare, run, repeat, be
/// refused, review, deliver, rebuild, replay, attest, undo.
fn a_day(shop: &Shop) {
    shop.write("hapax.toml", CONFIG);
    shop.write("in.csv", "station,cms\n06887500,214\n");
    shop.hapax(&["outbox", "configure"]).exits(0);
    let more = ["--input", "in.csv", "--param", "unit=cms", "--output", "out.json"];
    let more = [&more[..], &["--publish", "artifact_published"]].concat();
    let program = ["--rollback", "rm out.json", "--", "sh", "-c", WRITE];
    let publish = operation("flow", "v1", &[&more[..], &program].concat());
    shop.hapax(&publish).exits(0).prints("wrote\n");
    shop.hapax(&publish).exits(0).prints("wrote\n");
    assert_eq!(shop.dir.read("runs"), "x\n");
    let other = operation("flow", "v1", &[&more[..], &["--", "echo", "other"]].concat());
    shop.hapax(&other).exits(65);
    let bad = "echo '{}' > out2.json";
    let unfit = operation(
        "flow",
        "v2",
        &["--output", "out2.json", "--rollback", "rm out2.json", "--", "sh", "-c", bad],
    );
    shop.hapax(&unfit).exits(73).says("/station").says("rolled back");
    assert!(!shop.dir.path("out2.json").exists());

    let survey = operation("sites", "v1", &["--", "echo", "at 38.123456, -97.123456"]);
    // A missing argument is wrong usage. There is nothing for a reviewer to decide.
    shop.hapax(&survey).exits(64).says("Give --justification");
    shop.hapax(&["reviews", "list"]).exits(0).shows("There are no pending reviews.");
    let why = ["--justification", "a survey"];
    let echo = ["--", "echo", "at 38.123456, -97.123456"];
    let early = operation("sites", "v1", &[&why[..], &["--pre", "false"], &echo].concat());
    shop.hapax(&early).exits(73).says("check: false");
    let justified = operation("sites", "v1", &[&why[..], &echo].concat());
    shop.hapax(&justified).exits(73).says("its review is pending");
    let reviews = shop.hapax(&["reviews", "list", "--json"]).exits(0).json();
    let review = reviews["review"].as_str().expect("a review");
    shop.hapax(&["doctor"]).exits(78);
    shop.hapax(&["reviews", "approve", review, "--note", "seen"]).exits(0);
    shop.hapax(&["reviews", "reject", review, "--note", "no"]).exits(65);
    shop.hapax(&justified).exits(0).prints("at 38.123456, -97.123456\n");
    let again = shop.hapax(&justified).exits(0);
    assert!(again.out.contains("[h3:") && !again.out.contains("38.123456"), "{again:?}");

    shop.hapax(&["outbox", "dispatch", "--until-idle"]).exits(0);
    let events: Vec<Value> = shop
        .dir
        .read("lineage.jsonl")
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["eventType"].as_str()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "COMPLETE").count(), 2, "{kinds:?}");
    let first =
        events.iter().position(|event| event["eventType"] == "COMPLETE").expect("a success");
    let outputs: Vec<_> =
        events[..first].iter().filter(|event| event["outputs"] != serde_json::json!([])).collect();
    assert!(
        outputs.iter().all(|event| event.get("eventType").is_none()),
        "only what happened claims outputs"
    );

    // Everything that the sinks wrote can be deleted, and written anew from the journal, to the byte.
    let rebuild = || {
        let _ = std::fs::remove_dir_all(shop.dir.path("rebuilt"));
        shop.hapax(&["lineage", "export", "--to", "rebuilt"]).exits(0);
        files(&shop.dir.path("rebuilt"))
    };
    let anew = rebuild();
    assert_eq!(rebuild(), anew);
    let of_sinks = files(&shop.dir.path("catalog"));
    assert!(!of_sinks.is_empty());
    for (path, bytes) in of_sinks {
        assert_eq!(anew.get(&path), Some(&bytes), "{}", path.display());
    }
    // Events of different datasets arrive side by side; a_graph_receives_each_moment has the order of one.
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<String>>();
    let written = lines(&shop.dir.read("rebuilt/openlineage.jsonl"));
    assert_eq!(lines(&shop.dir.read("lineage.jsonl")), written);
    assert_eq!(shop.dir.read("rebuilt/cypher.jsonl").lines().count(), written.len());
    for format in ["prov", "turtle", "stac", "dcat", "cypher"] {
        let printed = shop.hapax(&["lineage", "export", "--format", format]).exits(0);
        assert!(printed.out.contains("flow"), "{format}");
    }

    shop.hapax(&["journal", "replay"]).exits(0);
    let cataloged = || shop.hapax(&["journal", "replay", "--catalog", "rebuilt"]);
    cataloged().exits(0);
    let is_ours = |path: &&PathBuf| path.ends_with("collection.json");
    let collection = anew.keys().find(is_ours).expect("a collection").to_string_lossy();
    let file = format!("rebuilt/{collection}");
    shop.write(&file, &shop.dir.read(&file).replace("v1", "v7"));
    cataloged().exits(73).shows(&collection);
    shop.hapax(&["journal", "replay", "--mode", "dry-run", "--catalog", "rebuilt"]).exits(64);
    let dry = shop.hapax(&["journal", "replay", "--mode", "dry-run", "--json"]).exits(0).json();
    assert_eq!((&dry["executed"], &dry["skipped"]), (&1.into(), &1.into()), "{dry}");
    assert_eq!(shop.dir.read("runs"), "x\n", "done again in a sandbox only");
    let attested = shop.hapax(&["lineage", "attest", "flow", "v1"]).exits(0);
    shop.write("attestation.json", &attested.out);
    let verify = ["verify-artifact", "out.json", "--attestation", "attestation.json"];
    assert!(shop.hapax(&verify).exits(0).out.contains("verified: out.json"));
    shop.write("out.json", "tampered\n");
    shop.hapax(&verify).exits(73).says("does not match the attestation");
    let found = shop.hapax(&["journal", "replay", "--json"]).exits(73);
    let found: Value =
        serde_json::from_str(found.out.lines().next().expect("a line")).expect("JSON");
    assert_eq!(found["divergences"][0]["which"], "out.json");
    shop.write("attestation.json", &attested.out.replace("payload\":\"e", "payload\":\"f"));
    shop.hapax(&verify).exits(73);
    let index = shop.hapax(&["journal", "roll-backs", "--dataset", "flow", "--json"]).exits(0);
    let index: Value = serde_json::from_str(index.out.lines().next().expect("one")).expect("JSON");
    assert_eq!(index["steps"][0]["payload"], "rm out.json", "{index}");
    assert!(index["checksum"].as_str().is_some_and(|sum| sum.starts_with("sha256:")), "{index}");

    // An operation is undone once, by its place in the journal, and may be run again.
    let entries = shop.hapax(&["journal", "list", "--json"]).exits(0);
    let settled = entries.out.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let settled = settled.filter(|entry| entry["state"] == "succeeded");
    let wanted =
        settled.filter(|e| e["note"].as_str().is_some_and(|note| note.contains("out.json")));
    let pointer = wanted.map(|entry| entry["entry"].to_string()).next().expect("the entry");
    assert_eq!(index["pointer"].to_string(), pointer);
    shop.hapax(&["journal", "roll-back", &pointer, "--note", "wrong input"]).exits(0);
    assert!(!shop.dir.path("out.json").exists());
    shop.hapax(&publish).exits(0).prints("wrote\n");
    assert_eq!(shop.dir.read("runs"), "x\nx\n");
    shop.hapax(&["journal", "verify"]).exits(0);
}

#[test]
fn a_day_in_a_file() {
    a_day(&Shop::in_a_file());
}

#[test]
fn a_day_in_a_database() {
    a_day(&Shop::in_a_database());
}

fn kill(child: &mut Child) {
    child.kill().expect("it is killed");
    child.wait().expect("it ends");
}

/// The steps at which a run stops until the test goes on: before the work, in it, after it, while it is undone.
const STEPS: [&str; 4] = ["pre", "program", "post", "rollback"];

fn at(step: &str, then: &str) -> String {
    format!("echo $$ > at-{step}; while [ ! -e go-{step} ]; do sleep 0.01; done; {then}")
}

/// Whether the process that wrote its id to this file is alive.
fn is_alive(file: &Path) -> bool {
    let id = std::fs::read_to_string(file).unwrap_or_default();
    let Ok(id) = id.trim().parse::<u32>() else { return false };
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|state| !state.is_empty() && !state.starts_with(" Z"))
}

/// How long a lease is, and by when a lock is free: within one lease, and some time for a busy machine.
const LEASE: &str = "4s";
const FREE: &str = "6s";

/// Proves P-7, P-8, P-9: killed at each step, nothing is done twice. An operation that cannot have happened is done
/// by the next caller within a lease. One that may have happened keeps its lock, is shown, and can be decided.
///
/// `--safety transactional` is the caller's word that no part of the work is visible before the
/// outcome is recorded. A run that is killed between the two, in `--post`, counts as not done, and
/// the next run does the work. So two executions are right there, and not a double mutation by the
/// terms of the run. The line in the file, which no transaction takes back, shows the second one;
/// `Opaque`, the default, would have kept the lock instead.
fn kills(shop: &Shop) {
    for step in STEPS {
        for safety in ["opaque", "transactional"] {
            let dataset = format!("{step}-{safety}");
            for name in STEPS {
                let _ = std::fs::remove_file(shop.dir.path(&format!("at-{name}")));
                shop.write(&format!("go-{name}"), "");
            }
            let _ = std::fs::remove_file(shop.dir.path(&format!("go-{step}")));
            let _ = std::fs::remove_file(shop.dir.path("runs"));
            let fails = if step == "rollback" { "; exit 3" } else { "" };
            let (pre, program) =
                (at("pre", "true"), at("program", &format!("echo x >> runs{fails}")));
            let (post, undo) = (at("post", "true"), at("rollback", "rm -f runs"));
            let mut more =
                vec!["--safety", safety, "--lease", LEASE, "--pre", &pre, "--post", &post];
            if step == "rollback" {
                more.extend(["--rollback", undo.as_str()]);
            }
            more.extend(["--", "sh", "-c", program.as_str()]);
            let words = operation(&dataset, "v1", &more);
            let mut child = shop.command(&words).spawn().expect("hapax starts");
            let reached = shop.dir.path(&format!("at-{step}"));
            wait_until(step, || is_alive(&reached));
            kill(&mut child);
            if step == "program" {
                wait_until("the watchdog kills the program", || !is_alive(&reached));
            }
            shop.write(&format!("go-{step}"), "");
            let free = safety == "transactional" && step != "rollback";
            let next = operation(&dataset, "v2", &["--lease", LEASE, "--wait", FREE, "--", "true"]);
            let others = shop.hapax(&next);
            if free {
                others.exits(0);
                shop.hapax(&[&words[..1], &["--wait", FREE], &words[1..]].concat()).exits(0);
                let done = shop.dir.read("runs");
                let expected = if step == "post" { "x\nx\n" } else { "x\n" };
                assert_eq!(done, expected, "{step} {safety}");
                continue;
            }
            others.exits(78);
            let again = shop.hapax(&words);
            assert_eq!(again.code, Some(78), "{step} {safety}: {again:?}");
            let stuck = shop.hapax(&["effects", "list", "--stuck", "--json"]).exits(0);
            let stuck: Vec<Value> =
                stuck.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
            let ours = |effect: &&Value| {
                effect["label"].as_str().is_some_and(|label| label.starts_with(&dataset))
            };
            let effect = stuck.iter().find(ours).expect("it is shown");
            assert!(shop.dir.read("runs").len() <= 2, "at most once");
            let (key, attempt) = (
                effect["key"].as_str().expect("a key"),
                effect["attempt"].as_str().expect("an attempt"),
            );
            shop.hapax(&[
                "effects",
                "resolve",
                key,
                "--attempt",
                attempt,
                "--saw",
                effect["state"].as_str().expect("a state"),
                "--did-not-happen",
                "--note",
                "looked",
            ])
            .exits(0);
            shop.hapax(&next).exits(0);
        }
    }
}

#[test]
fn killed_at_every_step_in_a_file() {
    kills(&Shop::in_a_file());
}

#[test]
fn killed_at_every_step_in_a_database() {
    kills(&Shop::in_a_database());
}

/// Proves P-17: each planted fault fails the health check, and is named.
fn doctor_finds_what_was_planted(shop: &Shop) {
    shop.write("hapax.toml", CONFIG);
    shop.hapax(&["outbox", "configure"]).exits(0);
    let fails = operation("levels", "v1", &["--", "false"]);
    shop.hapax(&fails).exits(1);
    shop.hapax(&operation("levels", "v2", &["--", "true"])).exits(0);
    shop.hapax(&["outbox", "dispatch", "--until-idle"]).exits(0);
    shop.hapax(&["doctor"]).exits(0);
    let finds = |what: &str| {
        let ran = shop.hapax(&["doctor"]).exits(78);
        assert!(ran.out.contains(what), "{what} is not in {}", ran.out);
    };
    // A stuck claim.
    shop.hapax(&operation("stuck", "v1", &["--", "sh", "-c", "kill -9 $$"])).exits(78);
    finds("is indeterminate");
    let stuck = shop.hapax(&["effects", "list", "--stuck", "--json"]).json();
    let (key, attempt) =
        (stuck["key"].as_str().expect("a key"), stuck["attempt"].as_str().expect("an attempt"));
    let saw = ["--attempt", attempt, "--saw", "indeterminate"];
    let skip = ["--skip", "--note", "planted"];
    shop.hapax(&[&["effects", "resolve", key][..], &saw, &skip].concat()).exits(0);
    shop.hapax(&["outbox", "dispatch", "--until-idle"]).exits(0);
    shop.hapax(&["doctor"]).exits(0);
    // A missing index.
    shop.sql("DROP INDEX effect_stuck", "DROP INDEX hapax.effect_stuck");
    finds("effect_stuck is missing");
    shop.sql(
        "CREATE INDEX effect_stuck ON effect (stuck) WHERE stuck IS NOT NULL",
        "CREATE INDEX effect_stuck ON hapax.effect (stuck) WHERE stuck IS NOT NULL",
    );
    shop.hapax(&["doctor"]).exits(0);
    // Lineage that the outbox has lost.
    shop.sql(
        "DROP TRIGGER outbox_record_no_delete; PRAGMA foreign_keys = off;
         DELETE FROM outbox_record WHERE seq = 1;
         CREATE TRIGGER outbox_record_no_delete BEFORE DELETE ON outbox_record
         BEGIN SELECT RAISE(FAIL, 'an outbox record cannot be deleted'); END;",
        "SET session_replication_role = replica;
         DELETE FROM hapax.outbox_record WHERE seq = (SELECT min(seq) FROM hapax.outbox_record)",
    );
    finds("a mismatch");
    // A stale key: the journal says that it failed a month ago, and no caller came back.
    shop.sql(
        "DROP TRIGGER journal_no_update; UPDATE journal SET at = at - 2592000000;
         CREATE TRIGGER journal_no_update BEFORE UPDATE ON journal
         BEGIN SELECT RAISE(FAIL, 'the journal cannot be updated'); END;",
        "SET session_replication_role = replica; UPDATE hapax.journal SET at = at - 2592000000",
    );
    finds("it is stale");
}

#[test]
fn doctor_finds_what_was_planted_in_a_file() {
    doctor_finds_what_was_planted(&Shop::in_a_file());
}

#[test]
fn doctor_finds_what_was_planted_in_a_database() {
    doctor_finds_what_was_planted(&Shop::in_a_sound_database());
}

/// Proves P-14: a rollback is kept as it is, so a guard refuses one that names an exact place, and
/// nothing is run or kept.
#[test]
fn a_rollback_that_names_an_exact_place_is_refused() {
    let shop = Shop::in_a_file();
    shop.write("hapax.toml", "[datasets.digs]\nmasked = 5\n");
    shop.hapax(&["datasets", "declare"]).exits(0);
    let run = |undo| {
        let why = ["--justification", "a survey", "--rollback", undo];
        shop.hapax(&operation("digs", "v1", &[&why[..], &["--", "touch", "dug"]].concat()))
    };
    run("fill 38.123456, -97.123456").exits(73).says("--rollback: it names an exact place");
    assert!(!shop.dir.path("dug").exists());
    let journal = shop.hapax(&["journal", "list", "--json"]).exits(0).out;
    assert!(journal.contains("refused: check: --rollback"), "{journal}");
    assert!(!journal.contains("38.123456"), "{journal}");
    run("rm dug").exits(0);
}

/// Proves P-16: escalating is a command of its own, justified and journalled. The operation is
/// refused until the review is approved.
#[test]
fn an_operation_is_escalated_by_a_command() {
    let shop = Shop::in_a_file();
    let words = operation("flow", "v1", &["--", "sh", "-c", "echo x >> runs; test -e ready"]);
    shop.hapax(&words).exits(1);
    let failed = shop.hapax(&["effects", "list", "--json"]).exits(0).json();
    let key = failed["key"].as_str().expect("a key");
    let open = ["reviews", "open", key, "--note"];
    shop.hapax(&open[..3]).exits(64).says("--note");
    shop.hapax(&[&open[..], &[" "]].concat()).exits(64).says("it is blank; say why");
    shop.hapax(&["reviews", "open", "nothing", "--note", "odd"]).exits(64).says("ever begun");
    let opened = shop.hapax(&[&open[..], &["the gauge is odd", "--json"]].concat()).exits(0).json();
    assert_eq!(opened["standing"], "pending");
    let review = opened["review"].as_str().expect("a review");
    let again = shop.hapax(&[&open[..], &["once more"]].concat()).exits(0);
    assert_eq!(again.out, format!("opened: {review}\n"), "one question");
    let listed = shop.hapax(&["reviews", "list", "--json"]).exits(0).json();
    assert_eq!(
        (&listed["asked_by"], &listed["reason"]),
        (&"ann".into(), &"the gauge is odd".into())
    );
    shop.hapax(&["doctor"]).exits(78);
    let journal = shop.hapax(&["journal", "list", "--key", review, "--json"]).exits(0).out;
    assert!(journal.contains("the gauge is odd") && journal.contains("ann"), "{journal}");

    shop.write("ready", "");
    shop.hapax(&words).exits(73).says("its review is pending");
    assert_eq!(shop.dir.read("runs"), "x\n", "not even tried");
    shop.hapax(&["reviews", "approve", review, "--note", "mended"]).exits(0);
    shop.hapax(&words).exits(0);
    assert_eq!(shop.dir.read("runs"), "x\nx\n");
}

/// Proves P-2: the error for a missing or impossible field says how to correct it.
#[test]
fn wrong_operations_are_refused_with_a_reason() {
    let shop = Shop::in_a_file();
    shop.hapax(&["run", "--pipeline", "p", "--", "true"]).exits(64).says("--task");
    let mut words = operation("flow", "v1", &["--", "true"]);
    words[12] = "yesterday";
    shop.hapax(&words).exits(64).says("2026-11-16T06:00:00Z");
    shop.hapax(&operation("flow", "v1", &["--input", "nowhere.csv", "--", "true"]))
        .exits(64)
        .says("nowhere.csv");
    shop.hapax(&operation("flow", "v1", &["--param", "x", "--", "true"]))
        .exits(64)
        .says("NAME=VALUE");
    shop.hapax(&operation(" ", "v1", &["--", "true"])).exits(64).says("dataset_id");
    shop.hapax(&operation("flow", "v1", &["--output", "nothing.csv", "--", "true"]))
        .exits(78)
        .says("it is not there");
}

/// Proves P-18: the same from another language, by the command line and over HTTP.
#[test]
fn the_example_in_python_works() {
    let example = "../../examples/pipeline_python/pipeline.py";
    let python =
        Command::new("/usr/bin/python3").args([example, env!("CARGO_BIN_EXE_hapax")]).output();
    let ran = Ran::from(python.expect("python3 runs"));
    ran.exits(0);
}
