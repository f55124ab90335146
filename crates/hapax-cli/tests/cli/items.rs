//! Items by real processes that are killed, and the requests that arrived at real servers.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hapax_testkit::Mail;

use super::serve::Server;
use super::{LedgerDir, wait_until};

/// A server that carries out each request as often as it comes, and answers probes whether
/// it did something.
#[derive(Clone)]
struct Till {
    port: u16,
    /// Its actions: the first part of the path, and the key.
    rung: Arc<Mutex<Vec<(String, String)>>>,
    /// How many probes found their action.
    found: Arc<AtomicUsize>,
    /// How many probes did not.
    missed: Arc<AtomicUsize>,
    /// Connections that are still open.
    open: Arc<AtomicUsize>,
    /// Whether it closes every connection and does nothing.
    hangs_up: Arc<AtomicBool>,
}

impl Till {
    fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let till = Self {
            port,
            rung: Arc::default(),
            found: Arc::default(),
            missed: Arc::default(),
            open: Arc::default(),
            hangs_up: Arc::default(),
        };
        let served = till.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let till = served.clone();
                till.open.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    till.serve(connection);
                    till.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        till
    }

    /// The keys of its actions of one kind.
    fn rung(&self, kind: &str) -> Vec<String> {
        let rung = self.rung.lock().expect("no panic");
        rung.iter().filter(|(of, _)| of == kind).map(|(_, key)| key.clone()).collect()
    }

    /// Waits until the server has read everything that was sent before: connections are accepted in order.
    fn quiet(&self) {
        let mut last = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        last.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("it reads");
        last.read_exact(&mut [0]).expect("it answers");
        drop(last);
        wait_until("no client is connected", || self.open.load(Ordering::SeqCst) == 0);
    }

    fn serve(&self, connection: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(connection.try_clone().ok()?);
        loop {
            let mut head = Vec::new();
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).ok()? == 0 {
                    return None;
                }
                if line.trim().is_empty() {
                    break;
                }
                head.push(line.trim().to_owned());
            }
            let header = |name: &str| {
                let found = head.iter().filter_map(|line| line.split_once(": "));
                found
                    .filter(|(n, _)| n.eq_ignore_ascii_case(name))
                    .map(|(_, v)| v.to_owned())
                    .next()
            };
            let length =
                header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
            let mut body = vec![0; length];
            reader.read_exact(&mut body).ok()?;
            if self.hangs_up.load(Ordering::SeqCst) {
                return None;
            }
            let kind = head[0].split('/').nth(1).unwrap_or_default();
            let key = header("idempotency-key");
            let wanted = digits(key.as_ref().unwrap_or(&head[0]));
            let mut rung = self.rung.lock().ok()?;
            let known = rung.iter().any(|(_, known)| *known == wanted);
            let status = match (key, known) {
                (Some(_), _) => {
                    rung.push((kind.to_owned(), wanted));
                    "201 Created"
                }
                (None, true) => {
                    self.found.fetch_add(1, Ordering::SeqCst);
                    "200 OK"
                }
                (None, false) => {
                    self.missed.fetch_add(usize::from(kind == "probe"), Ordering::SeqCst);
                    "404 Not Found"
                }
            };
            drop(rung);
            if status == "201 Created" {
                // Long enough that some runs are killed while they wait for an answer.
                std::thread::sleep(Duration::from_millis(10));
            }
            let answer = "{\"receipt\":7}";
            let length = answer.len();
            let mut connection = &connection;
            write!(connection, "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{answer}").ok()?;
        }
    }
}

/// The 64 hexadecimal digits of a key, wherever they are in a text.
fn digits(text: &str) -> String {
    // A colon before them may be written as %3A.
    let mut words = text.split(|c: char| !c.is_ascii_hexdigit());
    let found = words.find(|word| word.len() >= 64).unwrap_or_default();
    found[found.len().saturating_sub(64)..].to_owned()
}

const SCRIPT: &str = r#"
const { content } = await file.read({ path: "batch" });
for (let n = 0; n < 3; n++) {
    const id = `${content.trim()}-${n}`;
    await withItem(id, `Invoice ${id}`, async (ctx) => {
        if (ctx.item.isDone) return;
        await rows.execute({ id, statements: [
            { sql: "CREATE TABLE IF NOT EXISTS invoice (id TEXT)" },
            { sql: "INSERT INTO invoice VALUES (?1)", params: [id] },
        ] });
        const charged = await till.post({ url: `charges/${id}`, body: { amount: 10 } });
        await desk.post({ url: `notes/${id}`, body: { charged: id } });
        await mail.send({ to: `${id}@example.org`, subject: "Invoice", text: `receipt ${charged.body.receipt}` });
    });
}
"#;

/// Does the work of an operator of the till: decides for each note of unknown outcome whether it
/// happened. Returns how many notes there were.
fn look_after(dir: &LedgerDir, till: &Till) -> usize {
    till.quiet();
    let open = dir.hapax(&["--json", "items", "escalations"]).exits(78);
    for escalation in open.out.lines() {
        let escalation: serde_json::Value = serde_json::from_str(escalation).expect("JSON");
        let text = |pointer: &str| {
            let found = escalation.pointer(pointer).and_then(|found| found.as_str());
            found.unwrap_or_else(|| panic!("{pointer}: {escalation}")).to_owned()
        };
        assert_eq!(text("/unknown/0/mutation/tool"), "desk", "the others can be looked up");
        let note = digits(&text("/unknown/0/mutation/key"));
        let (key, attempt) = (text("/key"), text("/judged"));
        let who = ["--attempt", &attempt, "--by", "ada", "--note", "looked"];
        let action: &[&str] = match till.rung("notes").contains(&note) {
            true => &["happened", "--result", "null"],
            false => &["did-not-happen"],
        };
        dir.hapax(&[&["items", "act", &key], action, &who].concat()).exits(0);
    }
    open.out.lines().count()
}

/// How many items and mutations fulfil this condition.
fn parts(dir: &LedgerDir, which: &str) -> usize {
    let db = rusqlite::Connection::open(dir.path("hapax.db")).expect("the ledger");
    let sql = format!(
        "SELECT count(*) FROM part JOIN effect ON effect.id = part.effect
         JOIN whole ON whole.number = part.whole WHERE {which}"
    );
    let count: i64 = db.query_row(&sql, [], |row| row.get(0)).expect("a count");
    usize::try_from(count).expect("not less than none")
}

/// Proves I-5, I-8, I-9: a run that is killed leaves nothing undone and nothing done twice, at an
/// HTTP server, an SMTP server and in the database. Mutations in flight are looked up; where no
/// tool can look one up, a person is asked.
#[test]
fn runs_may_be_killed_at_every_step() {
    let kills = std::env::var("HAPAX_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(25);
    let (mail, till, dir) = (Mail::open(), Till::open(), LedgerDir::new());
    let (smtp, imap, port) = (mail.smtp(), mail.imap(), till.port);
    std::fs::write(dir.path("invoices.js"), SCRIPT).expect("a script");
    std::fs::write(
        dir.path("hapax.toml"),
        format!(
            "tools.file = {{ kind = 'file', root = '.' }}
             tools.rows = {{ kind = 'sql' }}
             [tools.till]
             kind = 'http'
             base = 'http://127.0.0.1:{port}/'
             allow_private = true
             probe = 'probe/{{key}}'
             settling = '300ms'
             [tools.desk]
             kind = 'http'
             base = 'http://127.0.0.1:{port}/'
             allow_private = true
             [tools.mail]
             kind = 'email'
             host = '127.0.0.1'
             port = {smtp}
             tls = 'none'
             from = 'shop@example.org'
             imap = {{ host = '127.0.0.1', port = {imap}, tls = 'none', user = 'ada', password = 'secret', mailbox = 'INBOX', settling = '300ms' }}
             [workflows.invoices]
             retry_pause = '10ms'
             retries = 1000"
        ),
    )
    .expect("settings");
    let (mut killed, mut escalated, mut mailing, mut batch, mut dice) = (0, 0, 0, 0, 7_u64);
    let looked = || [&till.found, &till.missed].map(|looks| looks.load(Ordering::SeqCst));
    let write_batch =
        |batch: u64| std::fs::write(dir.path("batch"), format!("b{batch}")).expect("a file");
    write_batch(batch);
    let deadline = Instant::now() + Duration::from_secs(120 + kills * 2);
    // Until some runs were killed with a mutation in flight that was looked up or came before a
    // person, and one run with a mail in flight.
    while killed < kills || looked()[0] == 0 || escalated == 0 || mailing == 0 {
        let so_far = format!(
            "{killed} of {kills} kills, {mailing} of them at a letter, {:?} looked for, {escalated} escalated",
            looked()
        );
        assert!(Instant::now() < deadline, "{so_far}");
        let mut child = dir.start(&["items", "run", "invoices.js"]);
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let moment = Instant::now() + Duration::from_micros(dice >> 45);
        let ended = loop {
            match child.try_wait().expect("a child") {
                Some(status) => break Some(status),
                None if Instant::now() >= moment => break None,
                None => std::thread::yield_now(),
            }
        };
        match ended {
            None => {
                child.kill().expect("killed");
                child.wait().expect("gone");
                killed += 1;
                mailing += parts(&dir, "kind = 'mutation' AND state = 0 AND label LIKE 'mail.%'");
            }
            Some(status) if status.success() => {
                batch += 1;
                write_batch(batch);
            }
            Some(status) if status.code() == Some(78) => escalated += look_after(&dir, &till),
            Some(status) => {
                assert_eq!(status.code(), Some(75), "waits for an outcome that is not known yet")
            }
        }
    }
    wait_until("the last batch is done", || {
        let code = dir.hapax(&["items", "run", "invoices.js"]).code;
        if code == Some(78) {
            escalated += look_after(&dir, &till);
        }
        code == Some(0)
    });
    let expected: Vec<String> =
        (0..=batch).flat_map(|b| (0..3).map(move |n| format!("b{b}-{n}"))).collect();
    let once = |what: &str, seen: Vec<String>| {
        let mut counted: BTreeMap<String, usize> = BTreeMap::new();
        seen.into_iter().for_each(|one| *counted.entry(one).or_default() += 1);
        let twice: Vec<_> = counted.iter().filter(|(_, times)| **times != 1).collect();
        assert!(twice.is_empty(), "{what}: {twice:?}");
        assert_eq!(counted.len(), expected.len(), "{what}: {batch} batches, {killed} kills");
    };
    once("charges", till.rung("charges"));
    once("notes", till.rung("notes"));
    let recipient = |message: &String| {
        let to = message.lines().find(|line| line.to_ascii_lowercase().starts_with("to:"));
        to.unwrap_or_default().to_owned()
    };
    once("letters", mail.delivered().iter().map(recipient).collect());
    let db = rusqlite::Connection::open(dir.path("hapax.db")).expect("the ledger");
    let rows: rusqlite::Result<Vec<String>> = db
        .prepare("SELECT id FROM invoice")
        .and_then(|mut rows| rows.query_map([], |row| row.get(0))?.collect());
    once("rows", rows.expect("rows"));
    let done =
        dir.hapax(&["--json", "items", "list", "invoices", "--state", "done", "--limit", "100000"]);
    assert_eq!(done.out.lines().count(), expected.len(), "{done:?}");
    assert_eq!(dir.hapax(&["items", "escalations"]).code, Some(0), "nothing is left to decide");
    let open = "kind IN ('item', 'mutation') AND state IN (0, 3, 4, 5)";
    assert_eq!(parts(&dir, open), 0, "nothing is running, unknown or indeterminate");
    let ([found, missed], items) = (looked(), expected.len());
    println!(
        "{killed} kills, {items} items, each charge, note, letter and row once; of the charges on \
         their way {found} were found and {missed} were not; {escalated} notes came before a person, and \
         {mailing} letters were on their way"
    );
}

/// Tools at this till: one that can look up its mutations, and one that cannot.
fn tools(till: &Till) -> String {
    let port = till.port;
    format!(
        "[tools.till]
         kind = 'http'
         base = 'http://127.0.0.1:{port}/'
         allow_private = true
         probe = 'probe/{{key}}'
         settling = '1ms'
         [tools.desk]
         kind = 'http'
         base = 'http://127.0.0.1:{port}/'
         allow_private = true
         [workflows.mended]
         maintainer = {{ command = ['cat', 'proposal.json'] }}
         "
    )
}

/// The key, the attempt and the actions of the open escalation, as the command line prints it.
fn the_escalation(dir: &LedgerDir) -> (String, String, serde_json::Value) {
    let open = dir.hapax(&["--json", "items", "escalations"]).exits(78).json();
    let text = |name: &str| open[name].as_str().unwrap_or_default().to_owned();
    (text("key"), text("judged"), open["actions"].clone())
}

/// The key of the first mutation whose outcome is unknown.
fn shown_mutation(dir: &LedgerDir) -> String {
    let open = dir.hapax(&["--json", "items", "escalations"]).exits(78).json();
    let key = open.pointer("/unknown/0/mutation/key").and_then(|key| key.as_str());
    key.expect("a key").to_owned()
}

/// Proves I-12, I-13: the actions of a person on the command line, one after the other: look at an item, decide
/// that it did not happen, have it looked up again, skip it.
#[test]
fn a_person_decides_on_the_command_line() {
    let (till, dir) = (Till::open(), LedgerDir::new());
    std::fs::write(dir.path("hapax.toml"), tools(&till)).expect("settings");
    let publish = |name: &str, tool: &str| {
        let script = format!(
            "await withItem('{name}', 'The {name}', async (ctx) => {{ if (!ctx.item.isDone) await {tool}.post({{ url: '{name}/1' }}); }});"
        );
        std::fs::write(dir.path(&format!("{name}.js")), script).expect("a script");
        dir.hapax(&["items", "publish", &format!("{name}.js")]).exits(0);
    };
    let run = |name: &str| dir.hapax(&["items", "run", "--workflow", name]);
    let act = |action: &str, key: &str, attempt: &str| {
        let who = ["--attempt", attempt, "--by", "ada", "--note", "I asked"];
        dir.hapax(&[&["items", "act", key, action][..], &who].concat())
    };
    let hang_up = |hangs_up: bool| till.hangs_up.store(hangs_up, Ordering::SeqCst);

    // This tool cannot look its mutation up: a person decides that it did not happen, and so it is done.
    publish("note", "desk");
    hang_up(true);
    run("note").exits(78).says("hapax items escalations");
    let shown = dir.hapax(&["items", "show", "note", "note"]).exits(0);
    shown.shows("The note  needs_attention").shows("desk.post").shows("indeterminate");
    let (key, attempt, actions) = the_escalation(&dir);
    let may = serde_json::json!(["did-not-happen", "happened", "skip", "reprocess"]);
    assert_eq!(actions, may);
    let one = dir.hapax(&["items", "escalations", &key]).exits(78);
    let one = one.shows("note: The note (note)").shows("desk has no way to look it up");
    let mutation = shown_mutation(&dir);
    dir.hapax(&["items", "escalations", &mutation]).exits(78).prints(&one.out);
    act("try-again", &key, &attempt).exits(64).says("is of no use here");
    act("skip", &key, "att_00000000000000000000000000000000").exits(65);
    act("did-not-happen", &key, &attempt).exits(0).shows("hapax items run --workflow note");
    hang_up(false);
    run("note").exits(0).shows("note 1.0: succeeded, 1 item");
    dir.hapax(&["items", "show", "note", "note"]).exits(0).shows("done").shows("applied");
    act("skip", &key, &attempt).exits(64).says("It may have been decided");

    // This tool can look its mutation up, and gets no answer for long; asked to try again, it does.
    publish("charge", "till");
    hang_up(true);
    run("charge").exits(75);
    let waits = "0 looked for, 0 decided, 0 before a person, 1 not due yet\n";
    dir.hapax(&["items", "reconcile"]).exits(0).prints(waits);
    wait_until("a person is asked", || run("charge").code == Some(78));
    let (key, attempt, actions) = the_escalation(&dir);
    assert_eq!(actions[0], "try-again");
    act("try-again", &key, &attempt).exits(0);
    hang_up(false);
    run("charge").exits(0);
    let shown = dir.hapax(&["--json", "items", "show", "charge", "charge"]).exits(0).json();
    assert_eq!(
        (&shown["state"], &shown["mutations"][0]["state"]),
        (&"done".into(), &"applied".into())
    );
    let nothing = "0 looked for, 0 decided, 0 before a person, 0 not due yet\n";
    dir.hapax(&["items", "reconcile"]).exits(0).prints(nothing);

    // A person skips it.
    publish("letter", "desk");
    hang_up(true);
    run("letter").exits(78);
    let (key, attempt, _) = the_escalation(&dir);
    act("skip", &key, &attempt).exits(0);
    run("letter").exits(0);
    dir.hapax(&["items", "show", "letter", "letter"]).exits(0).shows("skipped");
    dir.hapax(&["items", "escalations"]).exits(0).prints("");
    let done = ["note", "charge", "letter"].map(|kind| till.rung(kind).len());
    assert_eq!(done, [1, 1, 0]);
}

/// Proves I-11: a repair that waits for a person is shown with the items that it touches. It is used once it is
/// approved, and not if it is rejected.
#[test]
fn a_repair_is_decided_on_the_command_line() {
    for approve in [true, false] {
        let (till, dir) = (Till::open(), LedgerDir::new());
        std::fs::write(dir.path("hapax.toml"), tools(&till)).expect("settings");
        let script = "await withItem('a', 'A', async (ctx) => { if (ctx.item.isDone) return; await desk.post({ url: 'a/1' }); ctx.no.body(); });";
        std::fs::write(dir.path("mended.js"), script).expect("a script");
        let mended = script.replace("ctx.no.body", "ctx.no?.body");
        let proposal = serde_json::json!({ "script": mended, "impact": "potentially_impactful", "explanation": "nobody" });
        std::fs::write(dir.path("proposal.json"), proposal.to_string()).expect("a proposal");
        dir.hapax(&["items", "run", "mended.js"]).exits(78).says("hapax items escalations");
        let versions = dir.hapax(&["--json", "items", "versions", "mended"]).exits(0);
        let held: serde_json::Value =
            serde_json::from_str(versions.out.lines().next().unwrap_or_default()).expect("JSON");
        assert_eq!(held["standing"], "held");
        assert_eq!(held["repair"]["blast_radius"], serde_json::json!(["a"]));
        let escalations = dir.hapax(&["items", "escalations"]).exits(78);
        escalations.shows("mended: a repair, 1.1").shows("hapax items decide mended 1.1 --approve");
        let decide = |attempt: &str| {
            let say = if approve { "--approve" } else { "--reject" };
            let what = ["items", "decide", "mended", "1.1", say, "--attempt", attempt];
            dir.hapax(&[&what[..], &["--by", "ada", "--note", "read it"]].concat())
        };
        decide("att_00000000000000000000000000000000").exits(65);
        decide(held["judged"].as_str().unwrap_or_default()).exits(0).shows("decided");
        let again = dir.hapax(&["items", "run", "--workflow", "mended"]);
        match approve {
            true => drop(again.exits(0).shows("mended 1.1: succeeded")),
            false => drop(again.exits(78)),
        }
        let status = if approve { "usable" } else { "rejected" };
        let versions = dir.hapax(&["items", "versions", "mended"]).exits(0);
        assert!(versions.out.contains(status), "{versions:?}");
        assert_eq!(till.rung("a").len(), 1);
    }
}

/// A script is published without being run, and a run with a name happens once.
#[test]
fn a_run_that_has_a_name_happens_once() {
    let dir = LedgerDir::new();
    std::fs::write(dir.path("greet.js"), "console.log('hello');").expect("a script");
    dir.hapax(&["items", "publish", "greet.js"]).exits(0).prints("greet 1.0: published\n");
    dir.hapax(&["items", "runs", "greet"]).exits(0).prints("");
    for _ in 0..2 {
        let words = ["items", "run", "--workflow", "greet", "--id", "monday"];
        dir.hapax(&words).exits(0).shows("greet 1.0: succeeded, 0 items");
    }
    let runs = dir.hapax(&["--json", "items", "runs", "greet"]).exits(0);
    assert_eq!(runs.out.lines().count(), 1, "{runs:?}");
    dir.hapax(&["items", "publish", "greet.js", "-w", "no name"]).exits(64).says("HX0702");
}

/// The example runs to its end: every invoice is booked, paid and answered once.
#[test]
fn the_example_works() {
    let story = "../../examples/invoices/run.sh";
    let ran = Command::new("sh").arg(story).env("HAPAX", env!("CARGO_BIN_EXE_hapax")).output();
    let ran = ran.expect("sh");
    let output = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{ran:?}");
    assert!(output.contains("hapax: exit code 78") && output.contains("invoices 1.1: succeeded"));
    for number in ["A-2041", "2026/77", "C-9", "D-1203", "E-55"] {
        let line = output.lines().rfind(|line| line.starts_with(number)).unwrap_or_default();
        let counts: Vec<&str> = line.split_whitespace().skip(2).collect();
        assert_eq!(counts, ["1", "1", "1"], "rows, payments and mails of {number}: {output}");
    }
}

/// Proves I-14: `hapax serve` begins the workflows that the file schedules, also where no workflow needs a tool.
#[test]
fn a_schedule_of_the_file_is_kept_by_the_server() {
    let dir = LedgerDir::new();
    std::fs::write(dir.path("hapax.toml"), "workflows.tick.schedule = '* * * * * *'")
        .expect("settings");
    let script = "await withItem('a', 'A', async (ctx) => { console.log('here'); });";
    std::fs::write(dir.path("tick.js"), script).expect("a script");
    dir.hapax(&["items", "publish", "tick.js"]).exits(0);
    let server = Server::start(&dir, &["serve", "--listen", "127.0.0.1:0"]);
    wait_until("a scheduled run has come to its end", || {
        let runs = dir.hapax(&["--json", "items", "runs", "tick"]).exits(0).out;
        runs.lines().any(|run| {
            let run: serde_json::Value = serde_json::from_str(run).expect("JSON");
            let id = run["id"].as_str().unwrap_or_default();
            id.starts_with("scheduled:") && run["state"] == "succeeded"
        })
    });
    dir.hapax(&["items", "show", "tick", "a"]).exits(0).shows("done");
    server.kill();
}
