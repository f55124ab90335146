//! Items by real processes, which are killed, and what arrived at real servers.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hapax_testkit::Mail;

use super::{Place, wait_until};

/// A server that does everything it is asked, as often as it is asked, and tells who asks whether
/// it did.
#[derive(Clone)]
struct Till {
    port: u16,
    rung: Arc<Mutex<Vec<String>>>,
}

impl Till {
    fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let till = Self { port, rung: Arc::default() };
        let served = till.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let till = served.clone();
                std::thread::spawn(move || till.serve(connection));
            }
        });
        till
    }

    fn rung(&self) -> Vec<String> {
        self.rung.lock().expect("no panic").clone()
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
            let status = match header("idempotency-key") {
                Some(key) => {
                    self.rung.lock().ok()?.push(digits(&key));
                    "201 Created"
                }
                None if self.rung().contains(&digits(&head[0])) => "200 OK",
                None => "404 Not Found",
            };
            let answer = "{\"receipt\":7}";
            let length = answer.len();
            let mut connection = &connection;
            write!(connection, "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{answer}").ok()?;
        }
    }
}

/// The 64 hexadecimal digits of a key, wherever they stand.
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
        await mail.send({ to: `${id}@example.org`, subject: "Invoice", text: `receipt ${charged.body.receipt}` });
    });
}
"#;

/// Proves I-5, I-8, I-9: whoever is killed in the middle of a run leaves nothing undone and nothing
/// done twice, at an HTTP server, an SMTP server and in the database.
#[test]
fn runs_may_be_killed_at_every_step() {
    let kills = std::env::var("HAPAX_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(25);
    let (mail, till, place) = (Mail::open(), Till::open(), Place::new());
    let (smtp, imap, port) = (mail.smtp(), mail.imap(), till.port);
    std::fs::write(place.path("invoices.js"), SCRIPT).expect("a script");
    std::fs::write(
        place.path("hapax.toml"),
        format!(
            "tools.file = {{ kind = 'file', root = '.' }}
             tools.rows = {{ kind = 'sql' }}
             [tools.till]
             kind = 'http'
             base = 'http://127.0.0.1:{port}/'
             allow_private = true
             probe = 'probe/{{key}}'
             settling = '300ms'
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
    let (mut killed, mut batch, mut dice) = (0, 0, 7_u64);
    let write_batch =
        |batch: u64| std::fs::write(place.path("batch"), format!("b{batch}")).expect("a file");
    write_batch(batch);
    let deadline = Instant::now() + Duration::from_secs(30 + kills * 2);
    while killed < kills {
        assert!(Instant::now() < deadline, "{killed} of {kills} kills");
        let mut child = place.start(&["items", "run", "invoices.js"]);
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
            }
            Some(status) if status.success() => {
                batch += 1;
                write_batch(batch);
            }
            Some(status) => {
                assert_eq!(status.code(), Some(75), "waits for what cannot be told yet")
            }
        }
    }
    wait_until("the last batch is done", || {
        place.hapax(&["items", "run", "invoices.js"]).code == Some(0)
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
    once("charges", till.rung());
    let recipient = |message: &String| {
        let to = message.lines().find(|line| line.to_ascii_lowercase().starts_with("to:"));
        to.unwrap_or_default().to_owned()
    };
    once("letters", mail.delivered().iter().map(recipient).collect());
    let db = rusqlite::Connection::open(place.path("hapax.db")).expect("the ledger");
    let rows: rusqlite::Result<Vec<String>> = db
        .prepare("SELECT id FROM invoice")
        .and_then(|mut rows| rows.query_map([], |row| row.get(0))?.collect());
    once("rows", rows.expect("rows"));
    let done = place
        .hapax(&["--json", "items", "list", "invoices", "--state", "done", "--limit", "100000"]);
    assert_eq!(done.out.lines().count(), expected.len(), "{done:?}");
    assert_eq!(place.hapax(&["items", "escalations"]).code, Some(0), "nothing is left to decide");
    println!("{killed} kills, {} items, each charge, letter and row once", expected.len());
}

/// A script is published without being run, and a run that has a name happens once.
#[test]
fn a_run_that_has_a_name_happens_once() {
    let place = Place::new();
    std::fs::write(place.path("greet.js"), "console.log('hello');").expect("a script");
    place.hapax(&["items", "publish", "greet.js"]).exits(0).prints("greet 1.0: published\n");
    place.hapax(&["items", "runs", "greet"]).exits(0).prints("");
    for _ in 0..2 {
        let words = ["items", "run", "--workflow", "greet", "--id", "monday"];
        place.hapax(&words).exits(0).shows("greet 1.0: succeeded, 0 items");
    }
    let runs = place.hapax(&["--json", "items", "runs", "greet"]).exits(0);
    assert_eq!(runs.out.lines().count(), 1, "{runs:?}");
    place.hapax(&["items", "publish", "greet.js", "-w", "no name"]).exits(64).says("HX0702");
}

/// The example tells its story to the end: every invoice is booked, paid and answered once.
#[test]
fn the_example_works() {
    let story = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/invoices/run.sh");
    let ran = Command::new("sh").arg(story).env("HAPAX", env!("CARGO_BIN_EXE_hapax")).output();
    let ran = ran.expect("sh");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{ran:?}");
    assert!(said.contains("hapax: exit code 78") && said.contains("invoices 1.1: succeeded"));
    for number in ["A-2041", "2026/77", "C-9", "D-1203", "E-55"] {
        let line = said.lines().rfind(|line| line.starts_with(number)).unwrap_or_default();
        let counts: Vec<&str> = line.split_whitespace().skip(2).collect();
        assert_eq!(counts, ["1", "1", "1"], "rows, payments and mails of {number}: {said}");
    }
}
