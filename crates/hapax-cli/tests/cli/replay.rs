//! Operations replayed on the command line: chosen tasks, files made anew, and the environment of a
//! program that is run again.

use serde_json::{Value, json};

use super::governance::lines;
use super::pipeline::{Shop, operation};

/// Proves P-10: a segment is replayed by its tasks, and no other task of the pipeline is.
#[test]
fn a_segment_is_replayed_by_its_tasks() {
    let shop = Shop::in_a_file();
    shop.write("in.csv", "1\n2\n");
    for (task, from, to) in [("load", "in.csv", "raw.csv"), ("clean", "raw.csv", "clean.csv")] {
        let script =
            format!("echo {task} >> {}; sort {from} > {to}", shop.dir.path("ran").display());
        let more = ["--input", from, "--output", to, "--", "sh", "-c", &script];
        let mut words = operation(task, "v1", &more);
        words[4] = task;
        shop.hapax(&words).exits(0);
    }
    let segment = |tasks: &[&str]| {
        std::fs::remove_file(shop.dir.path("ran")).expect("a file");
        shop.write("ran", "");
        let mode = ["journal", "replay", "--mode", "segment", "--json"];
        let ran = shop.hapax(&[&mode[..], tasks].concat());
        (ran, shop.dir.read("ran"))
    };
    let (clean, ran) = segment(&["--task", "clean"]);
    let clean = clean.exits(0).json();
    assert_eq!((&clean["mode"], &clean["operations"]), (&json!("segment"), &json!(1)), "{clean}");
    assert_eq!((&clean["executed"], ran.as_str()), (&json!(1), "clean\n"), "{clean}");
    let (both, ran) = segment(&["--task", "load", "--task", "clean"]);
    assert_eq!((&both.exits(0).json()["executed"], ran.as_str()), (&json!(2), "load\nclean\n"));
    let (none, ran) = segment(&["--task", "publish"]);
    assert_eq!((&none.exits(0).json()["operations"], ran.as_str()), (&json!(0), ""));
    segment(&[]).0.exits(64).says("--task");
    // Each replay has its record, and the files in place are unchanged.
    let records = lines(&shop.hapax(&["effects", "list", "--json"]).exits(0));
    let labelled = records.iter().filter(|effect| effect["label"] == "replay: segment");
    assert_eq!(labelled.count(), 3);
    assert_eq!(shop.dir.read("clean.csv"), "1\n2\n");
}

/// Proves P-10: a file that a full replay made anew is put in place once, and only after an approval.
#[test]
fn a_reproduced_output_replaces_the_recorded_one_only_after_approval() {
    let shop = Shop::in_a_file();
    shop.write("in.csv", "1\n");
    let more = ["--input", "in.csv", "--output", "out.txt"];
    // It writes something else each time.
    let work = ["--", "sh", "-c", "date +%s%N > out.txt"];
    shop.hapax(&operation("times", "v1", &[&more[..], &work].concat())).exits(0);
    let before = shop.dir.read("out.txt");
    let replay = ["journal", "replay", "--mode", "full", "--keep", "kept", "--json"];
    let found = shop.hapax(&replay).exits(73);
    let found: Value = serde_json::from_str(found.out.lines().next().expect("one")).expect("JSON");
    let record = found["record"].as_str().expect("a record");
    let promote = ["journal", "promote", record, "--kept", "kept"];
    shop.hapax(&promote).exits(73).says("approve it first");
    assert_eq!(shop.dir.read("out.txt"), before);
    let ledger = shop.hapax(&["outbox", "export"]).exits(0).json();
    let event = (&ledger[0]["event_name"], &ledger[0]["refused_by"], &ledger[0]["dataset_id"]);
    assert_eq!(event, (&"promotion_refused".into(), &"review".into(), &"times".into()), "{ledger}");
    // An approval of another replay's file does not approve this one.
    let other = shop.hapax(&["journal", "replay", "--mode", "full", "--keep", "other", "--json"]);
    let other: Value = serde_json::from_str(other.out.lines().next().expect("one")).expect("JSON");
    let theirs = other["reviews"][0].as_str().expect("a review");
    shop.hapax(&["reviews", "approve", theirs, "--note", "compared"]).exits(0);
    shop.hapax(&promote).exits(73);
    let review = found["reviews"][0].as_str().expect("a review");
    shop.hapax(&["reviews", "approve", review, "--note", "compared"]).exits(0);
    assert!(shop.hapax(&promote).exits(0).out.contains("in place: out.txt"));
    let after = shop.dir.read("out.txt");
    assert_ne!(after, before);
    shop.write("out.txt", "mended by hand\n");
    assert!(shop.hapax(&promote).exits(0).out.contains("in place already"));
    assert_eq!(shop.dir.read("out.txt"), "mended by hand\n", "once");
    shop.hapax(&["journal", "promote", review, "--kept", "kept"]).exits(64).says("full replay");
}

/// Proves P-10: a program that is run again gets its parameters, and no way to the real ledger.
#[test]
fn a_program_is_given_its_parameters_again_and_no_ledger() {
    let shop = Shop::in_a_file();
    let work = "echo \"$HAPAX_PARAMS\" > out.txt; echo \"${HAPAX_DB-none}\" > $SEEN";
    let more = ["--param", "unit=cms", "--output", "out.txt", "--", "sh", "-c", work];
    let words = operation("flow", "v1", &more);
    let run = |words: &[&str]| {
        let mut command = shop.command(words);
        command.env("SEEN", shop.dir.path("seen")).env("HAPAX_DB", shop.dir.path("hapax.db"));
        command.output().expect("hapax runs")
    };
    assert!(run(&words).status.success());
    assert_eq!(shop.dir.read("out.txt"), "{\"unit\":\"cms\"}\n");
    assert_ne!(shop.dir.read("seen"), "none\n");
    let again = run(&["journal", "replay", "--mode", "dry-run", "--json"]);
    assert!(again.status.success(), "{again:?}");
    assert_eq!(shop.dir.read("seen"), "none\n");
}

/// Proves P-10: an operation that wrote outside of its directory is not run again.
#[test]
fn a_replay_skips_a_program_that_writes_outside_its_sandbox() {
    let shop = Shop::in_a_file();
    let out = shop.dir.path("elsewhere.txt").display().to_string();
    let work = format!("echo x >> {out}");
    shop.hapax(&operation("flow", "v1", &["--output", &out, "--", "sh", "-c", &work])).exits(0);
    let again = shop.hapax(&["journal", "replay", "--mode", "dry-run", "--json"]).exits(0).json();
    assert_eq!((&again["executed"], &again["skipped"]), (&json!(0), &json!(1)), "{again}");
    assert_eq!(shop.dir.read("elsewhere.txt"), "x\n");
}
