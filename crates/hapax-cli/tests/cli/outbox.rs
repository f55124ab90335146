//! Events from a program to a file and an endpoint, as a user would try it.

use std::io::{BufRead as _, BufReader};

use super::LedgerDir;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn emit(payload: &str) -> String {
    format!(
        r#"echo '{{"event_name":"artifact_published","dataset_id":"flow","payload":{payload}}}' >> $HAPAX_EVENTS; echo done"#
    )
}

fn configure(dir: &LedgerDir, url: &str) {
    let config = format!(
        r#"
[sinks.log]
kind = "file"
path = "events.jsonl"

[sinks.hook]
kind = "webhook"
url = "{url}"
secrets = ["{SECRET}"]
allow_private = true
attempts = 2
backoff = "10ms"
max_backoff = "20ms"

[[routes]]
event = "artifact_*"
sinks = ["log", "hook"]
"#
    );
    std::fs::write(dir.path("hapax.toml"), config).expect("a file");
}

/// Proves O-2, O-6, O-10: an event is recorded with the outcome, fails at the sink that is down,
/// and is redriven.
#[test]
fn a_programs_events_reach_a_file_and_an_endpoint() {
    let dir = LedgerDir::new();
    // No server listens there: the port is taken and released.
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let free = port.local_addr().expect("an address").port();
    drop(port);
    configure(&dir, &format!("http://127.0.0.1:{free}/"));
    let run =
        |key: &str, payload: &str| dir.hapax(&["run", "-k", key, "--", "sh", "-c", &emit(payload)]);
    run("early", "1").exits(73).says("no route takes the event");
    dir.hapax(&["outbox", "configure"]).exits(0).prints("From now on: sinks 2, routes 1.\n");
    run("flow", r#"{"rows":7}"#).exits(0).prints("done\n");
    run("flow", r#"{"rows":7}"#).exits(0).prints("done\n");
    run("leak", r#"{"to":"ada@example.org"}"#).exits(73).says("an e-mail address at /to");
    let dispatch = ["outbox", "dispatch", "--until-idle", "--telemetry", "focus-telemetry.json"];
    dir.hapax(&dispatch).exits(78).says("1 delivered, 1 failed");
    let telemetry = dir.read("focus-telemetry.json");
    let records: Vec<serde_json::Value> =
        telemetry.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!(records.len(), 3, "{telemetry}");
    for field in [
        "outbox_id",
        "pipeline_id",
        "event_name",
        "dispatch_status",
        "attempt",
        "latency_ms",
        "duplicate_detected",
        "timestamp",
        "sink",
    ] {
        assert!(records.iter().all(|record| record.get(field).is_some()), "{field}: {telemetry}");
    }
    assert!(records.iter().any(|record| record["dispatch_status"] == "success"), "{telemetry}");
    assert_eq!(dir.read("events.jsonl").lines().count(), 1);
    let failed = dir.hapax(&["--json", "outbox", "list", "--status", "failed"]).exits(0).json();
    assert_eq!(failed["attempt"], 2);

    let mut listener = dir
        .command(&["listen", "--secret", SECRET])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("hapax starts");
    let mut line = String::new();
    let errors = listener.stderr.take().expect("piped");
    BufReader::new(errors).read_line(&mut line).expect("its address");
    let url = line.split_whitespace().find(|word| word.starts_with("http://")).expect("a URL");
    configure(&dir, url.trim_end_matches(';'));
    dir.hapax(&["outbox", "redrive"]).exits(0).prints("1 will be tried again.\n");
    dir.hapax(&["outbox", "dispatch", "--until-idle"]).exits(0).says("1 delivered, 0 failed");
    let mut got = String::new();
    let output = listener.stdout.take().expect("piped");
    BufReader::new(output).read_line(&mut got).expect("a message");
    listener.kill().expect("killed");
    let _ = listener.wait();
    assert_eq!(got, dir.read("events.jsonl"), "both sinks have the same events");
    assert!(got.ends_with("\"payload\":{\"rows\":7}}\n"), "{got}");

    let ledger = dir.hapax(&["outbox", "export"]).exits(0).json();
    assert_eq!(ledger[0]["status"], "dispatched");
    assert_eq!(ledger[0]["outbox_id"], failed["outbox_id"]);
    // In a directory it has the name that pipelines look for.
    let file = "reports/audit/pipeline_outbox_ledger.json";
    for _ in 0..2 {
        let summary = format!("1 events, 0 refusals, in {file}\n");
        dir.hapax(&["outbox", "export", "--to", "reports/audit"]).exits(0).prints(&summary);
        assert_eq!(dir.read(file), dir.hapax(&["outbox", "export"]).out);
    }
    assert_eq!(std::fs::read_dir(dir.path("reports/audit")).expect("it is there").count(), 1);
    let id = failed["outbox_id"].as_str().expect("an id");
    let shown = dir.hapax(&["--json", "outbox", "show", id]).exits(0).json();
    assert_eq!(shown["deliveries"][0]["sink"], "hook");
    dir.hapax(&["outbox", "pause", "hook"])
        .exits(0)
        .prints("hook gets nothing until it is resumed.\n");
    let stats = dir.hapax(&["outbox", "stats"]).exits(0).out;
    assert!(stats.contains("hook  paused  0        0"), "{stats}");
    dir.hapax(&["outbox", "resume", "hook"]).exits(0);
}

/// An error names the place of the mistake.
#[test]
fn bad_input_is_refused_with_its_place() {
    let dir = LedgerDir::new();
    dir.hapax(&["outbox", "configure"]).exits(64).says("hapax.toml");
    for (config, part) in [
        ("[sinks.a]\nkind = \"telepathy\"", "telepathy"),
        ("[sinks.a]\nkind = \"webhook\"\nurl = \"http://10.0.0.1/\"", "private address"),
        ("[sinks.a]\nkind = \"webhook\"\nurl = \"nowhere\"", "not an http or https URL"),
        ("[sinks.a]\nkind = \"webhook\"\nurl = \"https://x.org\"\nsecrets = [\"no\"]", "whsec_"),
        ("[sinks.a]\nkind = \"stdout\"\non_exhausted = \"drink\"", "park, skip, block"),
        ("[[routes]]\nevent = \"*\"\nsinks = [\"a\"]", "unknown sink a"),
        ("[routs]\n", "routs"),
    ] {
        std::fs::write(dir.path("hapax.toml"), config).expect("a file");
        dir.hapax(&["outbox", "configure"]).exits(64).says(part);
    }
    dir.hapax(&["outbox", "show", "nonsense"]).exits(64).says("an outbox id");
    dir.hapax(&["outbox", "list", "--status", "lost"]).exits(64).says("none of pending");
    dir.hapax(&["outbox", "pause", "nobody"]).exits(64).says("there is no sink");
    let bad = "echo '{\"event\":1}' > $HAPAX_EVENTS";
    dir.hapax(&["run", "-k", "bad", "--", "sh", "-c", bad])
        .exits(78)
        .says("line 1 of HAPAX_EVENTS");
}

/// Proves O-8: brokers are declared in the file, and errors name the sink.
#[test]
#[cfg(feature = "brokers")]
fn brokers_are_declared_in_the_file() {
    let dir = LedgerDir::new();
    let declare = |sinks: &str| {
        std::fs::write(dir.path("hapax.toml"), sinks).expect("a file");
        dir.hapax(&["outbox", "configure"])
    };
    let good = r#"
[sinks.stream]
kind = "nats"
url = "nats://127.0.0.1:4222"
subject = "events.{event}"
timeout = "5s"

[sinks.queue]
kind = "rabbitmq"
url = "amqp://guest:guest@127.0.0.1/%2F"
exchange = "events"
routing_key = "{dataset}"
remembers = "7d"

[sinks.log]
kind = "redis"
url = "redis://127.0.0.1"
stream = "events"
"#;
    declare(good).exits(0).prints("From now on: sinks 3, routes 0.\n");
    declare(&good.replace("timeout", "timeuot"))
        .exits(64)
        .says("sinks.stream: there is no setting");
    declare(&good.replace("{event}", "{date}")).exits(64).says("sinks.stream: \"events.{date}\"");
    declare(&good.replace("amqp:", "http:")).exits(64).says("sinks.queue: not a URL like amqp:");
    declare(&good.replace("redis://", "env:NOT_SET_")).exits(64).says("sinks.log: the variable");
    let kafka = "[sinks.topic]\nkind = \"kafka\"\nbrokers = \"127.0.0.1:9092\"\ntopic = \"t\"\n";
    match cfg!(feature = "kafka") {
        true => declare(kafka).exits(0),
        false => declare(kafka).exits(64).says("build it with --features kafka"),
    };
}

/// Proves O-9: the file's declaration of a dataset holds for the events of programs.
#[test]
fn datasets_are_declared_in_the_file() {
    let dir = LedgerDir::new();
    let config = r#"
[guards]
registered = true

[datasets.flow]
masked = 7
care_label = "TK-NC"
restricted = true

[sinks.log]
kind = "file"
path = "events.jsonl"

[[routes]]
event = "*"
sinks = ["log"]
"#;
    std::fs::write(dir.path("hapax.toml"), config).expect("a file");
    dir.hapax(&["outbox", "configure"]).exits(0);
    let run = |payload: &str| dir.hapax(&["run", "-k", payload, "--", "sh", "-c", &emit(payload)]);
    run(r#"{"site":{"lat":38.25,"lon":-98.5}}"#)
        .exits(73)
        .says("exact coordinates at /site/lat, exact coordinates at /site/lon")
        .says("no governance reference at /governance_ref");
    let good = r#"{"h3":"872830828ffffff","care_label":"TK-NC","governance_ref":"board/7"}"#;
    run(good).exits(0);
    std::fs::write(dir.path("hapax.toml"), config.replace("datasets.flow", "datasets.other"))
        .expect("a file");
    dir.hapax(&["outbox", "configure"]).exits(0);
    // Each declaration replaces the earlier one; a dataset that the file leaves out stays.
    dir.hapax(&["datasets", "drop", "flow"]).exits(0).prints("flow is no longer declared.\n");
    let other = dir.hapax(&["run", "-k", "other", "--", "sh", "-c", &emit(good)]);
    other.exits(73).says("a dataset that is not registered");
    let odd = config.replace("masked = 7", "masked = 16");
    std::fs::write(dir.path("hapax.toml"), odd).expect("a file");
    dir.hapax(&["outbox", "configure"]).exits(64).says("masked is a resolution from 0 to 15");
}
