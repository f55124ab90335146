//! The command line on a database: everything that works on a file, and the commands for databases alone.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Stdio;

use hapax_testkit::Postgres;

use super::serve::{Server, curl, status};
use super::{LedgerDir, Ran, wait_until};

/// A server with an empty database, and a directory to work in.
struct Shop {
    server: Postgres,
    dir: LedgerDir,
    url: String,
}

impl Shop {
    fn new() -> Self {
        let server = Postgres::start();
        let url = server.url("postgres");
        Self { server, dir: LedgerDir::new(), url }
    }

    fn hapax(&self, words: &[&str]) -> Ran {
        let mut command = self.dir.command(words);
        // Signing keys are made in the user's data directory, which is this one.
        let home = self.dir.path("home");
        let output = command.env("HAPAX_DB", &self.url).env("XDG_DATA_HOME", home).output();
        Ran::from(output.expect("hapax runs"))
    }
}

impl Shop {
    /// Does something in January 2020, a month without a partition of its own until now.
    fn in_2020(&self, something: impl FnOnce()) {
        let (since, until) = (1_577_836_800_000_i64, 1_580_515_200_000_i64);
        let clock = |now: &str| {
            let sql = format!(
                "CREATE OR REPLACE FUNCTION hapax.now_ms() RETURNS bigint LANGUAGE sql VOLATILE
                     AS 'SELECT {now}::bigint'"
            );
            self.server.sql("postgres", &sql);
        };
        let tables = format!(
            "CREATE TABLE hapax.journal_2020_01 PARTITION OF hapax.journal
                 FOR VALUES FROM ({since}) TO ({until});
             DO $$ BEGIN EXECUTE format(
                 'CREATE TABLE hapax.outbox_record_2020_01 PARTITION OF hapax.outbox_record
                  FOR VALUES FROM (%L) TO (%L)', hapax.first_id({since}), hapax.first_id({until}));
             END $$"
        );
        self.server.sql("postgres", &tables);
        clock(&(since + 1_000).to_string());
        something();
        clock("floor(extract(epoch FROM clock_timestamp()) * 1000)");
    }
}

/// Proves I-1: a workflow has one run at a time, also where two nodes share a database. Once it is over, the other
/// node may begin the next run, and finished items stay done.
#[test]
fn a_workflow_has_one_run_at_a_time_across_nodes() {
    let shop = Shop::new();
    let slow = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = slow.local_addr().expect("an address").port();
    let tool = format!(
        "tools.till = {{ kind = 'http', base = 'http://127.0.0.1:{port}/', allow_private = true }}"
    );
    std::fs::write(shop.dir.path("hapax.toml"), tool).expect("settings");
    let script = "await withItem('a', 'A', async (ctx) => { if (!ctx.item.isDone) await till.post({ url: 'a' }); });";
    std::fs::write(shop.dir.path("charge.js"), script).expect("a script");
    shop.hapax(&["items", "publish", "charge.js"]).exits(0);
    let run = ["items", "run", "--workflow", "charge"];
    let mut first = shop.dir.command(&run);
    let home = shop.dir.path("home");
    first.env("HAPAX_DB", &shop.url).env("XDG_DATA_HOME", home);
    let first = first.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    // The run is in the middle of its item.
    let (mut connection, _) = slow.accept().expect("a request");
    shop.hapax(&run).exits(75);
    let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    // Reads the whole request, or the answer might be lost with the connection.
    let mut request = [0; 4096];
    assert!(connection.read(&mut request).expect("a request") > 0);
    connection.write_all(answer.as_bytes()).expect("it listens");
    drop(connection);
    Ran::from(first.wait_with_output().expect("it ends")).exits(0);
    shop.hapax(&run).exits(0);
    slow.set_nonblocking(true).expect("a listener");
    assert!(slow.accept().is_err(), "the upstream gets no second request");
}

/// Proves K-15 for the command line: the same commands, the same answers.
#[test]
fn the_command_line_works_on_a_database() {
    let shop = Shop::new();
    for _ in 0..2 {
        let ran = shop.hapax(&["run", "-k", "one", "--", "sh", "-c", "echo x >> out; echo done"]);
        assert_eq!(ran.exits(0).out, "done\n");
    }
    assert_eq!(shop.dir.read("out"), "x\n");
    shop.hapax(&["run", "-k", "one", "--", "echo", "other"]).exits(65);
    let listed = shop.hapax(&["effects", "list", "--json"]).exits(0);
    assert!(listed.out.contains("\"succeeded\""), "{}", listed.out);
    shop.hapax(&["effects", "show", "one"]).exits(0);
    let verified = shop.hapax(&["journal", "verify"]).exits(0);
    assert_eq!(verified.out, "intact: 2 entries under 1 signed heads; 0 not sealed yet\n");
    assert_eq!(shop.hapax(&["migrate"]).exits(0).out, "the schema is up to date\n");
    assert!(shop.hapax(&["migrate", "--print"]).exits(0).out.contains("CREATE TABLE hapax.effect"));
    // This server has fsync off, for tests; doctor says so.
    let doctor = shop.hapax(&["doctor"]).exits(78);
    assert!(doctor.out.contains("fsync is off"), "{}", doctor.out);
    shop.server.sql("postgres", "DROP INDEX hapax.effect_watch");
    let doctor = shop.hapax(&["doctor", "--json"]).exits(78);
    assert!(doctor.out.contains("effect_watch is missing"), "{}", doctor.out);
}

/// Proves K-23: in a database a killed holder is silent once its lease is over, and readers see it before any process
/// claims. A server that gets no request expires the effect.
#[test]
fn a_killed_holder_is_seen_by_readers_and_expired_by_an_idle_server() {
    let shop = Shop::new();
    let start = |words: &[&str]| {
        let mut command = shop.dir.command(words);
        command.env("HAPAX_DB", &shop.url).env("XDG_DATA_HOME", shop.dir.path("home"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let program = "touch started; sleep 60";
    let mut run = start(&["run", "-k", "k", "--lease", "2s", "--", "sh", "-c", program]);
    shop.dir.wait_for("started");
    let show = ["--json", "effects", "show", "k"];
    assert_eq!(shop.hapax(&show).exits(0).json()["holder"], "alive");
    run.kill().expect("killed");
    run.wait().expect("gone");
    let stuck = ["effects", "list", "--stuck"];
    wait_until("the holder is shown as silent", || {
        shop.hapax(&stuck).exits(0).out.contains("running (holder silent)")
    });
    let shown = shop.hapax(&show).exits(0).json();
    assert_eq!((&shown["state"], &shown["holder"]), (&"running".into(), &"silent".into()));
    assert!(shown["silent_since"].is_string(), "{shown}");
    let holder = format!("hapax run, process {}", run.id());
    let finding = format!("is running, and its holder ({holder}) is silent");
    // This server has fsync off, for tests, which is an error.
    shop.hapax(&["doctor"]).exits(78).shows(&finding).shows("leases    0 in force");

    let _server = Server::started(start(&["dev", "--listen", "127.0.0.1:0"]));
    wait_until("the effect is expired", || {
        shop.hapax(&show).exits(0).json()["state"] == "indeterminate"
    });
}

#[test]
fn a_newer_schema_is_left_alone() {
    let shop = Shop::new();
    shop.hapax(&["migrate"]).exits(0);
    shop.server.sql("postgres", "INSERT INTO hapax.migration VALUES (99, '0099_later')");
    let refused = shop.hapax(&["run", "-k", "one", "--", "echo"]).exits(69);
    assert!(refused.err.contains("use a newer hapax"), "{}", refused.err);
}

/// Proves K-13: an old month leaves only sealed, verified and exported, and `verify` still spans
/// it. A month that is gone without an export is damage.
#[test]
fn an_old_month_is_archived() {
    let shop = Shop::new();
    shop.hapax(&["migrate"]).exits(0);
    shop.in_2020(|| {
        for key in ["one", "two", "three"] {
            shop.hapax(&["run", "-k", key, "--", "echo", key]).exits(0);
        }
    });
    shop.hapax(&["run", "-k", "new", "--", "echo", "new"]).exits(0);
    let to = shop.dir.path("");
    let archive =
        ["journal", "archive", "--before", "2026-01", "--to", to.to_str().expect("a path")];
    let archived = shop.hapax(&archive).exits(0);
    assert!(archived.out.starts_with("journal_2020_01: 6 entries in "), "{}", archived.out);
    let exported = shop.dir.read("journal_2020_01.jsonl");
    assert_eq!(exported.lines().count(), 6);
    assert!(exported.lines().all(|line| line.contains("\"leaf\":")), "{exported}");
    let left = shop.server.sql("postgres", "SELECT count(*) FROM hapax.journal");
    assert_eq!(left, "2");
    let verified = shop.hapax(&["journal", "verify", "--json"]).exits(0);
    assert!(verified.out.contains("\"archived\":6"), "{}", verified.out);
    assert!(verified.out.contains("\"intact\":true"), "{}", verified.out);
    // Nothing is left to archive.
    assert_eq!(shop.hapax(&archive).exits(0).out, "");
    // Entries that are removed without an export are missed.
    shop.server.sql(
        "postgres",
        "ALTER TABLE hapax.journal DETACH PARTITION hapax.journal_default;
         ALTER TABLE hapax.journal DISABLE TRIGGER ALL; DELETE FROM hapax.journal",
    );
    assert!(shop.hapax(&["journal", "verify"]).exits(78).out.contains("was removed"));
}

/// Proves O-12: an old month of the outbox leaves only delivered and exported; the other months stay.
#[test]
fn an_old_month_of_the_outbox_is_archived() {
    let shop = Shop::new();
    shop.hapax(&["migrate"]).exits(0);
    let config = "[sinks.log]\nkind = \"file\"\npath = \"events.jsonl\"\n\n[[routes]]\nevent = \"*\"\nsinks = [\"log\"]\n";
    std::fs::write(shop.dir.path("hapax.toml"), config).expect("a file");
    shop.hapax(&["outbox", "configure"]).exits(0);
    let emit =
        r#"echo '{"event_name":"counted","dataset_id":"flow","payload":7}' >> $HAPAX_EVENTS"#;
    let run = |key: &str| shop.hapax(&["run", "-k", key, "--", "sh", "-c", emit]).exits(0);
    shop.in_2020(|| {
        run("one");
        run("two");
    });
    let to = shop.dir.path("");
    let archive =
        ["outbox", "archive", "--before", "2026-01", "--to", to.to_str().expect("a path")];
    let early = shop.hapax(&archive).exits(64);
    assert!(early.err.contains("2 deliveries of outbox_record_2020_01"), "{}", early.err);
    run("new");
    shop.hapax(&["outbox", "dispatch", "--until-idle"]).exits(0);
    let archived = shop.hapax(&archive).exits(0);
    assert!(archived.out.starts_with("outbox_record_2020_01: 2 events in "), "{}", archived.out);
    let exported = shop.dir.read("outbox_record_2020_01.jsonl");
    let records: Vec<serde_json::Value> =
        exported.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!(records.len(), 2);
    for one in &records {
        assert_eq!((&one["namespace"], &one["status"]), (&"default".into(), &"dispatched".into()));
        assert_eq!(one["deliveries"][0]["sink"], "log");
    }
    let left = shop.hapax(&["outbox", "list", "--json"]).exits(0);
    assert_eq!(left.out.lines().count(), 1, "{}", left.out);
    assert_eq!(shop.hapax(&archive).exits(0).out, "");
    assert_eq!(shop.dir.read("events.jsonl").lines().count(), 3);
}

/// Proves S-1, K-10: a server whose database is away reports that it is not ready, grants nothing,
/// and is ready again when the database is.
#[test]
fn a_server_whose_database_is_away_is_not_ready() {
    let mut shop = Shop::new();
    let mut command = shop.dir.command(&["dev", "--listen", "127.0.0.1:0"]);
    command.env("HAPAX_DB", &shop.url).env("XDG_DATA_HOME", shop.dir.path("home"));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let server = Server::started(child.expect("it starts"));
    let [ready, alive, claim] = ["readyz", "healthz", "v1/effects/a/claim"]
        .map(|path| format!("http://{}/{path}", server.address));
    let body = format!(r#"{{"attempt":"att_{}"}}"#, "01".repeat(16));
    let json = ["-H", "Content-Type: application/json", "-d", &body];
    assert_eq!(status(&[&ready]), "200");
    shop.server.stop();
    wait_until("it is not ready", || status(&[&ready]) == "503");
    assert_eq!(status(&[&alive]), "200");
    // The server waits for a database that comes back soon.
    let patient = ["--max-time", "60"];
    assert_eq!(status(&[&json[..], &patient, &[&claim]].concat()), "503");
    shop.server.up();
    wait_until("it is ready again", || status(&[&ready]) == "200");
    // Each of its connections finds out for itself, so it may take a second request.
    let ask = || curl(&[&json[..], &[&claim]].concat());
    wait_until("it grants again", || ask().contains("granted"));
}
