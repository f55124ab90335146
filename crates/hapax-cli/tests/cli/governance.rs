//! The governance of operations on the command line: refusals in the ledger, rolling back and
//! resetting, settings of `hapax.toml`, doctor's findings, masked output.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::pipeline::{Shop, operation};
use super::{LONG, Ran, wait_until};

/// The documents that a command prints, one a line.
pub(super) fn lines(ran: &Ran) -> Vec<Value> {
    ran.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A shop with these settings, declared.
fn declared(config: &str) -> Shop {
    let shop = Shop::in_a_file();
    shop.write("hapax.toml", config);
    shop.hapax(&["datasets", "declare"]).exits(0);
    shop
}

/// Starts an operation that makes the file `held`, and works until the file `go` is there.
struct Holder<'a> {
    shop: &'a Shop,
    child: std::process::Child,
}

impl<'a> Holder<'a> {
    fn start(shop: &'a Shop, dataset: &str, more: &[&str]) -> Self {
        let wait = "touch held; while [ ! -e go ]; do sleep 0.01; done";
        let words = operation(dataset, "held", &[more, &["--", "sh", "-c", wait]].concat());
        let child = shop.command(&words).stdout(Stdio::null()).spawn().expect("hapax starts");
        wait_until("the lock", || shop.dir.path("held").exists());
        Self { shop, child }
    }

    fn lets_go(mut self) {
        self.shop.write("go", "");
        assert!(self.child.wait().expect("it ends").success());
        for name in ["held", "go"] {
            std::fs::remove_file(self.shop.dir.path(name)).expect("a file");
        }
    }
}

impl Drop for Holder<'_> {
    /// A test that fails leaves no process behind.
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.shop.write("go", "");
            let _ = self.child.wait();
        }
    }
}

/// Proves P-7, P-10, P-13 and O-10: the exported governance ledger has each refusal beside the
/// events. It names the guard, and quotes nothing of the input.
#[test]
fn refusals_are_in_the_governance_ledger() {
    let shop = declared(
        "[datasets.sites]\nmasked = 5\ncare_label = \"TK-NC\"\nreview = true\n\
         [datasets.flow]\n[sinks]\nlog = { kind = \"file\", path = \"events.jsonl\" }\n\
         [[routes]]\nevent = \"artifact_published\"\nsinks = [\"log\"]\n",
    );
    shop.hapax(&["outbox", "configure"]).exits(0);
    let publish = ["--output", "out.txt", "--publish", "artifact_published"];
    let work = ["--", "sh", "-c", "echo 4711 > out.txt"];
    shop.hapax(&operation("flow", "v1", &[&publish[..], &work].concat())).exits(0);
    shop.hapax(&operation("sites", "v1", &["--", "echo", "4711"])).exits(64);
    let effects = lines(&shop.hapax(&["effects", "list", "--json"]).exits(0));
    let is_survey = |label: &str| label.starts_with("sites ");
    let survey = effects.iter().find(|effect| effect["label"].as_str().is_some_and(is_survey));
    let key = survey.and_then(|effect| effect["key"].as_str()).expect("a key");
    shop.hapax(&["reviews", "open", key, "--note", "is it theirs?"]).exits(0);
    let justified = ["--justification", "because of 4711", "--", "echo", "4711"];
    shop.hapax(&operation("sites", "v1", &justified)).exits(73);
    shop.hapax(&operation("flow", "v2", &["--pre", "false", "--", "true"])).exits(73);
    shop.write("hapax.toml", "[datasets.flow]\nrestricted = true\n");
    shop.hapax(&["datasets", "declare"]).exits(0);
    shop.hapax(&["journal", "replay", "--mode", "dry-run"]).exits(73);

    let ledger = shop.hapax(&["outbox", "export"]).exits(0).json();
    let ledger = ledger.as_array().expect("entries");
    let column = |name: &str| ledger.iter().map(|entry| entry[name].clone()).collect::<Vec<_>>();
    let refused = ["operation_refused", "operation_refused", "operation_refused", "replay_refused"];
    assert_eq!(column("event_name"), [&["artifact_published"], &refused[..]].concat());
    let guards =
        [json!(null), json!("care"), json!("review"), json!("check"), json!("sovereignty")];
    assert_eq!(column("refused_by"), guards);
    assert_eq!(column("dataset_id"), ["flow", "sites", "sites", "flow", "flow"]);
    assert_eq!(column("care_label")[1..3], ["TK-NC", "TK-NC"]);
    assert!(column("status")[1..].iter().all(|status| status == "refused"), "{ledger:?}");
    assert!(column("last_error")[1..].iter().all(|error| error.is_string()), "{ledger:?}");
    for entry in &ledger[1..] {
        assert!(!entry.to_string().contains("4711"), "{entry}");
        let pointer = &entry["wal_pointer"];
        let listed = shop.hapax(&["journal", "list", "--json"]).exits(0);
        let listed = lines(&listed).into_iter().find(|listed| listed["entry"] == *pointer);
        let note = listed.and_then(|e| e["note"].as_str().map(str::to_owned)).unwrap_or_default();
        assert_eq!(note, format!("refused: {}", entry["last_error"].as_str().expect("why")));
    }
    let to = shop.hapax(&["outbox", "export", "--to", "audit", "--json"]).exits(0).json();
    assert_eq!((&to["events"], &to["refusals"]), (&json!(1), &json!(4)), "{to}");
}

/// Proves P-16: on the command line, an escalated operation is refused and left as it was, also by
/// a run that knows how to undo it.
#[test]
fn a_run_does_not_roll_back_an_escalated_operation() {
    let shop = Shop::in_a_file();
    shop.write("half.txt", "half\n");
    // Undoing it fails the first time, so that it stays partial.
    let undo = ["--rollback", "test -e may && rm -f half.txt"];
    let work = ["--", "sh", "-c", "echo x >> runs; exit 3"];
    let words = operation("flow", "v1", &[&undo[..], &work].concat());
    shop.hapax(&words).exits(78).says("the rollback failed");
    let key = shop.hapax(&["effects", "list", "--stuck", "--json"]).exits(0).json();
    let key = key["key"].as_str().expect("a key");
    let opened = shop.hapax(&["reviews", "open", key, "--note", "odd", "--json"]).exits(0).json();
    shop.write("may", "");
    shop.hapax(&words).exits(73).says("its review is pending");
    assert!(shop.dir.path("half.txt").exists(), "nothing is undone");
    assert_eq!(shop.dir.read("runs"), "x\n");
    let review = opened["review"].as_str().expect("a review");
    shop.hapax(&["reviews", "approve", review, "--note", "go on"]).exits(0);
    shop.hapax(&words).exits(3).says("rolled back");
    assert_eq!(
        (shop.dir.path("half.txt").exists(), shop.dir.read("runs")),
        (false, "x\nx\n".into())
    );
}

/// Proves P-18: terms that are in the file and not declared are refused, not ignored.
#[test]
fn a_change_of_a_dataset_in_the_file_has_to_be_declared() {
    let shop = Shop::in_a_file();
    shop.write("hapax.toml", "[datasets.dug]\nmasked = 5\n");
    let words = operation("dug", "v1", &["--justification", "a survey", "--", "true"]);
    shop.hapax(&words).exits(64).says("the ledger has none").says("hapax datasets declare");
    shop.hapax(&["datasets", "declare"]).exits(0);
    shop.hapax(&words).exits(0);
    shop.write("hapax.toml", "[datasets.dug]\nmasked = 4\n");
    shop.hapax(&words).exits(64).says("different terms for dug");
    shop.hapax(&operation("flow", "v1", &["--", "true"])).exits(0);
}

/// Proves P-16: the registry names the command that undoes an operation. Given twice, it undoes
/// once; the pointer of an attempt that a later one followed undoes nothing.
#[test]
fn a_roll_back_undoes_once_and_only_what_stands() {
    let shop = Shop::in_a_file();
    // The first attempt fails, and registers how it would have been undone.
    let work = "echo x >> runs; test -e ready || exit 75; echo made > out.txt";
    let more = ["--output", "out.txt", "--rollback", "rm out.txt; echo undone >> undone"];
    shop.write("hapax.toml", "[datasets.flow]\nretries = { quick = 0 }\n");
    shop.hapax(&["datasets", "declare"]).exits(0);
    let words = operation("flow", "v1", &[&more[..], &["--", "sh", "-c", work]].concat());
    shop.hapax(&words).exits(75);
    let entries = || lines(&shop.hapax(&["journal", "list", "--json"]).exits(0));
    let first = entries().last().expect("an entry")["entry"].to_string();
    shop.write("ready", "");
    shop.hapax(&words).exits(0);
    let listed = || lines(&shop.hapax(&["journal", "roll-backs", "--json"]).exits(0));
    let index = listed().pop().expect("one can be undone");
    let pointer = index["pointer"].to_string();
    let sum = index["checksum"].as_str().expect("a checksum");
    let command = |pointer: &str, sum: &str| {
        format!("hapax journal roll-back {pointer} --checksum {sum} --note WHY")
    };
    assert_eq!(index["restore"], command(&pointer, sum));
    let restore_as = |pointer: &str, sum: &str| {
        let command = command(pointer, sum);
        shop.hapax(&command.split(' ').skip(1).collect::<Vec<_>>())
    };
    let restore = |pointer: &str| restore_as(pointer, sum);
    // An operation whose review is pending is not listed, because it would be refused.
    let key = index["key"].as_str().expect("a key");
    let opened = shop.hapax(&["reviews", "open", key, "--note", "odd", "--json"]).exits(0).json();
    assert_eq!(listed(), Vec::<Value>::new());
    restore(&pointer).exits(73).says("its review is pending");
    let review = opened["review"].as_str().expect("a review");
    shop.hapax(&["reviews", "approve", review, "--note", "go on"]).exits(0);
    assert_eq!(listed(), std::slice::from_ref(&index));
    restore_as(&pointer, "sha256:00").exits(65).says(sum);
    restore(&first).exits(65).says("an attempt that is over");
    assert!(shop.dir.path("out.txt").exists(), "what a later attempt made stays");
    for _ in 0..2 {
        restore(&pointer).exits(0).shows("it may be run again");
        assert_eq!(shop.dir.read("undone"), "undone\n", "once");
        assert_eq!(listed(), Vec::<Value>::new(), "it is undone");
    }
    assert!(!shop.dir.path("out.txt").exists());
    shop.hapax(&words).exits(0);
    restore(&pointer).exits(65).says("an attempt that is over");
    assert!(shop.dir.path("out.txt").exists(), "what was made anew stays");
    assert_eq!(shop.dir.read("undone"), "undone\n");
    let again = listed();
    let [newest] = &again[..] else { panic!("{again:?}") };
    let newest = newest["pointer"].to_string();
    assert_ne!(newest, pointer);
    restore(&newest).exits(0);
    assert!(!shop.dir.path("out.txt").exists());
    restore("4711").exits(64).says("no entry 4711");
}

/// Proves P-16: a person resets a key by naming the attempt and the reason, which is in the journal.
#[test]
fn a_key_is_reset_with_a_reason() {
    let shop = Shop::in_a_file();
    let words = operation("flow", "v1", &["--", "sh", "-c", "echo x >> runs"]);
    shop.hapax(&words).exits(0);
    let effect = shop.hapax(&["effects", "list", "--json"]).exits(0).json();
    let key = effect["key"].as_str().expect("a key");
    let attempt = effect["attempt"].as_str().expect("an attempt");
    let reset = ["effects", "reset", key, "--saw", "succeeded", "--attempt"];
    shop.hapax(&[&reset[..], &[attempt]].concat()).exits(64).says("--note");
    let other = "att_00000000000000000000000000000000";
    shop.hapax(&[&reset[..], &[other, "--note", "odd"]].concat())
        .exits(65)
        .says("nothing was changed");
    shop.hapax(&words).exits(0);
    assert_eq!(shop.dir.read("runs"), "x\n", "still done");
    let why = [&reset[..], &[attempt, "--note", "the input was wrong"]].concat();
    shop.hapax(&why).exits(0).shows("is now failed");
    let entries = lines(&shop.hapax(&["journal", "list", "--key", key, "--json"]).exits(0));
    let last = entries.last().expect("an entry");
    assert_eq!((&last["event"], &last["note"]), (&json!("reset"), &json!("the input was wrong")));
    assert_eq!(last["actor"], "ann", "{last}");
    shop.hapax(&words).exits(0);
    assert_eq!(shop.dir.read("runs"), "x\nx\n", "and done again");
    shop.hapax(&why).exits(65);
}

/// Energy and carbon follow from CPU time by the coefficients of the file, and are labelled an
/// estimate.
#[test]
fn coefficients_are_the_files() {
    let mut per_second = Vec::new();
    for (watts, grams, rate) in [(10.0, 450.0, 0.45), (2.5, 40.0, 0.04)] {
        let shop = declared(&format!(
            "[pipeline]\nwatts_per_core = {watts}\ngrams_per_kwh = {grams}\n[datasets.flow]\n"
        ));
        let burn = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        shop.hapax(&operation("flow", "v1", &["--", "sh", "-c", burn])).exits(0);
        let events = lines(&shop.hapax(&["lineage", "export"]).exits(0));
        let energy = &events[1]["run"]["facets"]["hapax_energy"];
        assert_eq!(energy["estimate"], true, "{energy}");
        let of = |name: &str| energy[name].as_f64().unwrap_or_else(|| panic!("{name}: {energy}"));
        let hours = of("cpu_ms") / 3_600_000.0;
        assert!(hours > 0.0, "{energy}");
        assert!((of("energy_wh") - hours * watts).abs() < 2e-6, "{energy}");
        assert!((of("co2e_g") - of("energy_wh") * rate).abs() < 2e-6, "{energy}");
        per_second.push(of("energy_wh") / hours);
    }
    assert!(per_second[0] > 3.9 * per_second[1], "{per_second:?}");
}

/// Proves P-5: `on_lock` and `lock_wait` of the file decide how an operation reacts to a held lock.
#[test]
fn a_held_lock_follows_the_configuration() {
    let shop = declared(
        "[pipeline]\nlock_wait = \"300ms\"\n[datasets.left]\non_lock = \"skip\"\n\
         [datasets.asked]\non_lock = \"escalate\"\n[datasets.waited]\non_lock = \"backoff\"\n",
    );
    for (dataset, code, reviews) in [("left", 75, 0), ("asked", 78, 1), ("waited", 75, 1)] {
        let holder = Holder::start(&shop, dataset, &[]);
        let (began, other) = (Instant::now(), operation(dataset, "v2", &["--", "true"]));
        let refused = shop.hapax(&other).exits(code);
        assert_eq!(refused.err.contains("hapax: skipped: "), dataset == "left", "{refused:?}");
        // Without the file, it would wait for half a minute.
        let waited = dataset == "waited";
        assert!(!waited || began.elapsed() >= Duration::from_millis(20), "{:?}", began.elapsed());
        assert!(began.elapsed() < LONG / 2, "{dataset}: {:?}", began.elapsed());
        let open = lines(&shop.hapax(&["reviews", "list", "--json"]).exits(0)).len();
        assert_eq!(open, reviews, "{dataset}");
        holder.lets_go();
        let again = if dataset == "asked" { 73 } else { 0 };
        shop.hapax(&other).exits(again);
    }
}

/// Proves P-6: with `shards` in the file, operations on different parts of a dataset run side by side.
#[test]
fn parts_are_worked_on_at_once_where_the_file_says_so() {
    let shop = declared(
        "[datasets.parts]\nshards = 1024\non_lock = \"skip\"\n[datasets.whole]\non_lock = \"skip\"\n",
    );
    for (dataset, other, same) in [("parts", 0, 75), ("whole", 75, 75)] {
        let holder = Holder::start(&shop, dataset, &["--part", "north"]);
        for (version, part, code) in [("v2", "south", other), ("v3", "north", same)] {
            shop.hapax(&operation(dataset, version, &["--part", part, "--", "true"])).exits(code);
        }
        holder.lets_go();
    }
}

/// Proves P-9: `retries` of the file: quick ones in each attempt, and whole ones after that.
#[test]
fn tries_are_as_many_as_the_file_says() {
    let shop = declared(
        "[datasets.often]\nretries = { quick = 1, again = 2, backoff = \"1ms\", max_backoff = \"2ms\" }\n\
         [datasets.once]\nretries = { quick = 0 }\n",
    );
    for (dataset, tries) in [("often", 6), ("once", 1)] {
        let work = format!("echo x >> {dataset}; exit 75");
        shop.hapax(&operation(dataset, "v1", &["--", "sh", "-c", &work])).exits(75);
        assert_eq!(shop.dir.read(dataset).lines().count(), tries, "{dataset}");
    }
}

/// Proves P-7 and P-9: with `slo` in the file, a spent error budget stops later operations.
#[test]
fn an_error_budget_is_the_files() {
    let shop = declared(
        "[datasets.flow]\nslo = { window = \"1h\", objective = 0.9 }\n[datasets.levels]\n[sinks]\n\
         log = { kind = \"file\", path = \"events.jsonl\" }\n",
    );
    for dataset in ["flow", "levels"] {
        for version in ["v1", "v2"] {
            shop.hapax(&operation(dataset, version, &["--", "false"])).exits(1);
        }
    }
    // The budget counts sealed entries only.
    shop.hapax(&["outbox", "dispatch", "--until-idle"]).exits(0);
    let refused = shop.hapax(&operation("flow", "v3", &["--", "touch", "flowed"])).exits(73);
    refused.says("error budget: 2 of 2 operations failed; 1 may");
    assert!(!shop.dir.path("flowed").exists());
    shop.hapax(&operation("levels", "v3", &["--", "true"])).exits(0);
}

/// Proves O-4: with `order` in the file, the ordering key is a value of the payload.
#[test]
fn events_are_ordered_as_the_file_says() {
    let shop = declared(
        "[datasets.flow]\norder = \"/station\"\n[datasets.levels]\n[sinks]\n\
         log = { kind = \"file\", path = \"events.jsonl\" }\n[[routes]]\nevent = \"*\"\nsinks = [\"log\"]\n",
    );
    shop.hapax(&["outbox", "configure"]).exits(0);
    for (dataset, key) in [("flow", Some("flow/station=\"elm-fork\"")), ("levels", None)] {
        let event = json!({ "event_name": "measured", "dataset_id": dataset,
            "payload": { "station": "elm-fork" } });
        let emit = format!("echo '{event}' > \"$HAPAX_EVENTS\"");
        shop.hapax(&operation(dataset, "v1", &["--", "sh", "-c", &emit])).exits(0);
        let db = rusqlite::Connection::open(shop.dir.path("hapax.db")).expect("a file");
        let sql = "SELECT order_key FROM outbox_record WHERE dataset_id = ?1";
        let found: Option<String> =
            db.query_row(sql, [dataset], |row| row.get(0)).expect("a record");
        assert_eq!(found.as_deref(), key, "{dataset}");
    }
}

const SECRET: [&str; 4] = ["38.512347", "97.321234", "37.912345", "98.454321"];

/// Proves P-14: hapax prints nothing about operations on a masked dataset that is finer than
/// allowed, whether it comes from their results, output or errors, or from people's notes. The test
/// searches the output of every command, and the database, byte by byte.
#[test]
fn exact_places_are_not_printed() {
    let shop = declared(
        "[datasets.sites]\nmasked = 5\nreview = true\nretries = { quick = 1, backoff = \"1ms\" }\n[sinks]\n\
         log = { kind = \"file\", path = \"events.jsonl\" }\n\
         catalog = { kind = \"catalog\", path = \"catalog\" }\n\
         [[routes]]\nevent = \"*\"\nsinks = [\"log\"]\n\
         [[routes]]\nevent = \"lineage\"\nsinks = [\"log\", \"catalog\"]\n",
    );
    shop.hapax(&["outbox", "configure"]).exits(0);
    let place = "dug at 38.512347, -97.321234";
    let feature = r#"{"type":"Point","coordinates":[-98.454321,37.912345]}"#;
    shop.write("in.json", feature);
    let mut printed = String::new();
    let mut run = |words: &[&str]| {
        let ran = shop.hapax(&[&["--json"], words].concat());
        printed += &format!("{}\n{}\n", ran.out, ran.err);
        ran
    };
    let why = ["--justification", place, "--governance-ref", place];
    let event = json!({ "event_name": "surveyed", "dataset_id": "sites",
        "payload": { "geometry": serde_json::from_str::<Value>(feature).expect("JSON"),
            "care_label": "x" } });
    let emit = format!(
        "cat in.json | tee out.json; echo '{event}' > \"$HAPAX_EVENTS\"; echo '{place}' >&2"
    );
    let more = ["--input", "in.json", "--output", "out.json", "--publish", "artifact_published"];
    let made = operation("sites", "v1", &[&why[..], &more, &["--", "sh", "-c", &emit]].concat());
    assert_eq!(run(&made).code, Some(0));
    assert_eq!(run(&made).code, Some(0));
    for (version, check, script, code) in [
        ("v2", "true", "exit 3", 78),
        ("v3", "true", "exit 75", 78),
        ("v4", "test -e 38.512347,-97.321234", "true", 73),
    ] {
        let script = format!("echo '{place}'; {script}");
        let more = ["--pre", check, "--", "sh", "-c", &script];
        let ran = run(&operation("sites", version, &[&why[..], &more].concat()));
        assert_eq!(ran.code, Some(code), "{version}: {ran:?}");
    }
    let refused = run(&operation("sites", "v5", &["--", "echo", place]));
    assert_eq!(refused.code, Some(64));
    // Notes and results from people, with a place in each.
    let partial = ["--rollback", "test -e ready", "--", "sh", "-c", "exit 3"];
    let partial = operation("sites", "v6", &[&why[..], &partial].concat());
    assert_eq!(run(&partial).code, Some(78));
    for review in lines(&shop.hapax(&["reviews", "list", "--json"]).exits(0)) {
        let review = review["review"].as_str().expect("a review").to_owned();
        run(&["reviews", "approve", &review, "--note", place]).exits(0);
    }
    let stuck = shop.hapax(&["effects", "list", "--stuck", "--json"]).exits(0).json();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let (key, attempt) = (text(&stuck["key"]), text(&stuck["attempt"]));
    let decision = ["--attempt", &attempt, "--note", place];
    let partial = ["--saw", "partial"];
    let succeeded = ["--saw", "succeeded"];
    shop.write("found.json", feature);
    let found = ["effects", "resolve", &key, "--happened", "--result", "found.json"];
    run(&[&found[..], &decision, &partial].concat()).exits(0);
    run(&[&["effects", "reset", &key][..], &decision, &succeeded].concat()).exits(0);
    let undone = ["--rollback", "true", "--", "echo", place];
    run(&operation("sites", "v7", &[&why[..], &undone].concat())).exits(0);
    let listed = lines(&shop.hapax(&["journal", "roll-backs", "--json"]).exits(0));
    let pointer = listed.last().expect("one")["pointer"].to_string();
    run(&["journal", "roll-back", &pointer, "--note", place]).exits(0);
    run(&["outbox", "dispatch", "--until-idle"]);
    for words in [
        &["effects", "list"][..],
        &["journal", "list"],
        &["journal", "export"],
        &["journal", "replay"],
        &["journal", "roll-backs"],
        &["outbox", "list"],
        &["outbox", "export"],
        &["reviews", "list"],
        &["datasets", "list"],
        &["doctor"],
        &["lineage", "export", "--to", "anew"],
    ] {
        run(words);
    }
    for format in ["openlineage", "prov", "turtle", "stac", "dcat", "cypher"] {
        let exported = run(&["lineage", "export", "--format", format]).exits(0).out;
        assert!(exported.contains("sites"), "{format}: {exported}");
    }
    let attested = run(&["lineage", "attest", "sites", "v1"]).exits(0).json();
    let payload = attested["payload"].as_str().expect("a payload");
    let payload = data_encoding::BASE64.decode(payload.as_bytes()).expect("base64");
    printed += &String::from_utf8(payload).expect("text");
    for effect in lines(&shop.hapax(&["effects", "list", "--json"]).exits(0)) {
        for words in [&["effects", "show"][..], &["--json", "effects", "show"]] {
            let ran = shop.hapax(&[words, &[effect["key"].as_str().expect("a key")]].concat());
            printed += &format!("{}\n{}\n", ran.out, ran.err);
        }
    }
    for directory in ["catalog", "anew"] {
        let files = super::pipeline::files(&shop.dir.path(directory));
        assert!(files.keys().any(|path| path.ends_with("collection.json")), "{directory}");
        printed += &files.values().map(|bytes| String::from_utf8_lossy(bytes)).collect::<String>();
    }
    printed += &shop.dir.read("events.jsonl");
    let database = super::pipeline::files(&shop.dir.path("."));
    let ours = |path: &Path| path.to_string_lossy().starts_with("hapax.db");
    let database = database.iter().filter(|(path, _)| ours(path));
    let database: String =
        database.map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).collect();
    assert!(database.contains("rolled back") || database.contains("h3:"), "the database");
    printed += &database;
    assert!(printed.contains("h3") && printed.contains("in-toto"), "{printed}");
    for digits in SECRET {
        let at = printed.find(digits).map(|at| &printed[at.saturating_sub(200)..at + 20]);
        assert_eq!(at, None, "{digits} was printed");
    }
}

/// Proves P-18: a checkpoint of Great Expectations, or a script in its place, is a check after the
/// work, and its result is the contract of the next operation.
#[test]
fn a_checkpoint_is_a_check_and_a_contract() {
    let shop = Shop::in_a_file();
    let example = "../../examples/great_expectations";
    for name in ["checkpoint.py", "suite.json", "hapax.toml"] {
        let copied = std::fs::copy(format!("{example}/{name}"), shop.dir.path(name));
        copied.expect("the example");
    }
    shop.hapax(&["datasets", "declare"]).exits(0);
    let check = "/usr/bin/python3 checkpoint.py raw.csv validation.json";
    let load = |version| {
        let more =
            ["--rollback", "rm raw.csv", "--post", check, "--", "cp", "readings.csv", "raw.csv"];
        shop.hapax(&operation("raw", version, &more))
    };
    let publish = |version| {
        let more = ["--input", "validation.json", "--output", "flow.csv", "--"];
        shop.hapax(&operation(
            "flow",
            version,
            &[&more[..], &["cp", "readings.csv", "flow.csv"]].concat(),
        ))
    };
    shop.write("readings.csv", "station,cms\nelm-fork,-4711\n,5\n");
    load("v1").exits(73).says("check: ").says("rolled back");
    assert!(!shop.dir.path("raw.csv").exists(), "what did not pass is undone");
    let result: Value = serde_json::from_str(&shop.dir.read("validation.json")).expect("JSON");
    assert_eq!(
        (&result["success"], &result["statistics"]["unsuccessful_expectations"]),
        (&json!(false), &json!(2))
    );
    let refused = publish("v1")
        .exits(73)
        .says("contract: inputs 0: /success breaks #/properties/success/const");
    assert!(!refused.err.contains("4711") && !shop.dir.path("flow.csv").exists(), "{refused:?}");
    shop.write("readings.csv", "station,cms\nelm-fork,5.17\n");
    load("v2").exits(0);
    publish("v2").exits(0);
    assert_eq!(shop.dir.read("flow.csv"), shop.dir.read("readings.csv"));
    let journal = shop.hapax(&["journal", "list", "--json"]).exits(0).out;
    assert!(journal.contains(r#"\"checks\":[\"/usr/bin/python3 checkpoint.py"#), "{journal}");
}

/// Moves the journal's entries back in time, or changes them otherwise, behind the ledger's back.
fn forge(shop: &Shop, sqlite: &str, postgres: &str) {
    shop.sql(
        &format!(
            "DROP TRIGGER journal_no_update; {sqlite};
             CREATE TRIGGER journal_no_update BEFORE UPDATE ON journal
             BEGIN SELECT RAISE(FAIL, 'the journal cannot be updated'); END;"
        ),
        &format!("SET session_replication_role = replica; {postgres}"),
    );
}

/// Proves P-17: doctor finds a loop, starvation, overlapping writes to a sovereign dataset and
/// bloat, each by its name, and did not find them before.
fn doctor_finds_what_goes_wrong_slowly(shop: &Shop) {
    shop.write("hapax.toml", "[datasets.theirs]\nsovereignty = \"tribal\"\n");
    shop.hapax(&["datasets", "declare"]).exits(0);
    let finds = |what: &str, code| {
        let ran = shop.hapax(&["doctor"]).exits(code);
        assert!(ran.out.contains(what), "{what} is not in {}", ran.out);
    };
    let fails = operation("levels", "v1", &["--", "sh", "-c", "test -e ready"]);
    for _ in 0..9 {
        shop.hapax(&fails).exits(1);
    }
    shop.hapax(&["doctor"]).exits(0);
    shop.hapax(&fails).exits(1);
    finds("was tried 10 times without success: a loop", 78);
    shop.write("ready", "");
    shop.hapax(&fails).exits(0);
    shop.hapax(&["doctor"]).exits(0);

    let holder = Holder::start(shop, "busy", &[]);
    shop.hapax(&["doctor"]).exits(0);
    let ago = "UPDATE journal SET at = at - 7200000";
    forge(shop, ago, &ago.replace("journal", "hapax.journal"));
    finds("at work on busy for 2 h, and others wait: starvation", 78);
    holder.lets_go();
    shop.hapax(&["doctor"]).exits(0);

    // Two operations that ran one after the other, recorded as if the second had not waited.
    for version in ["v1", "v2"] {
        let more = ["--justification", "a survey", "--", "true"];
        shop.hapax(&operation("theirs", version, &more)).exits(0);
    }
    shop.hapax(&["doctor"]).exits(0);
    let listed = lines(&shop.hapax(&["journal", "list", "--json"]).exits(0));
    let [.., _, settled, granted, _] = &listed[..] else { panic!("{listed:?}") };
    let (settled, granted) = (&settled["entry"], &granted["entry"]);
    let swap = format!(
        "UPDATE journal SET id = 999999 WHERE id = {settled};
         UPDATE journal SET id = {settled} WHERE id = {granted};
         UPDATE journal SET id = {granted} WHERE id = 999999"
    );
    forge(shop, &swap, &swap.replace("journal", "hapax.journal"));
    finds("began on the sovereign dataset theirs while", 78);
    let back = swap.clone();
    forge(shop, &back, &back.replace("journal", "hapax.journal"));
    shop.hapax(&["doctor"]).exits(0);

    shop.sql(
        "CREATE TABLE ballast (x); INSERT INTO ballast VALUES (zeroblob(60000000)); DROP TABLE ballast",
        "CREATE TABLE hapax.ballast (n int) WITH (autovacuum_enabled = false);
         INSERT INTO hapax.ballast SELECT generate_series(1, 110000); DELETE FROM hapax.ballast",
    );
    let bloat =
        if shop.is_in_a_file() { "of 100 pages of the file are empty" } else { "dead rows beside" };
    wait_until(bloat, || shop.hapax(&["doctor"]).exits(0).out.contains(bloat));
}

#[test]
fn doctor_finds_what_goes_wrong_slowly_in_a_file() {
    doctor_finds_what_goes_wrong_slowly(&Shop::in_a_file());
}

#[test]
fn doctor_finds_what_goes_wrong_slowly_in_a_database() {
    doctor_finds_what_goes_wrong_slowly(&Shop::in_a_sound_database());
}
