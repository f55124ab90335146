//! Extraction by real processes: the command line, and two servers on one database.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hapax_testkit::Postgres;
use serde_json::{Value, json};

use super::serve::{Server, curl};
use super::{LedgerDir, wait_until};

const IRI: &str = "https://example.org/rivers";

fn rivers() -> Value {
    json!({
        "id": IRI,
        "classes": [{ "id": "e:River", "label": "river" }, { "id": "e:City", "label": "city" }],
        "properties": [{ "id": "e:flowsThrough", "label": "flows through",
            "domain": ["e:River"], "range": ["e:City"] }],
        "individuals": [
            { "id": "e:Danube", "label": "Danube", "type": ["e:River"] },
            { "id": "e:Vienna", "label": "Vienna", "type": ["e:City"] },
        ],
    })
}

/// Proves: the cost of an edit, the reason of a miss, and the results that a
/// change of the ontology removes.
#[test]
fn a_folder_is_read_edited_and_read_again() {
    let dir = LedgerDir::new();
    std::fs::write(dir.path("rivers.json"), rivers().to_string()).expect("a file");
    let paragraph =
        |n: usize| format!("In year {n} the Danube rose. The Danube flows through Vienna.");
    let text = |skip: usize| {
        let kept = (0..60).filter(|n| *n != skip).map(paragraph).collect::<Vec<_>>();
        kept.join("\n")
    };
    std::fs::write(dir.path("a.txt"), text(1_000)).expect("a file");
    std::fs::write(dir.path("b.txt"), "The Danube.").expect("a file");
    let extract = |file: &str| {
        let words = ["--json", "extract", file, "-o", "rivers.json", "--param", "chunkSize=400"];
        let ran = dir.hapax(&words);
        serde_json::from_str::<Value>(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"))
    };
    let first = extract("a.txt");
    assert_eq!(
        (&first["cacheHit"], first["entities"].as_array().map(Vec::len)),
        (&json!(false), Some(2))
    );
    assert_eq!(extract("a.txt")["cacheHit"], json!(true));
    std::fs::write(dir.path("a.txt"), text(30)).expect("a file");
    let edited = extract("a.txt");
    let number = |json: &Value, name: &str| json["metadata"][name].as_u64().expect("a number");
    let (chunks, reused) = (number(&edited, "chunks"), number(&edited, "reused"));
    assert!(reused < chunks && reused + 3 >= chunks, "{reused} of {chunks}");
    extract("b.txt");
    dir.hapax(&[
        "cache",
        "explain",
        "b.txt",
        "-o",
        IRI,
        "--param",
        "chunkSize=400",
        "--param",
        "seed=7",
    ])
    .exits(0)
    .shows("differs   extractionParams");
    dir.hapax(&["cache", "explain", "b.txt", "-o", IRI, "--param", "chunkSize=400"])
        .shows("found     yes");
    dir.hapax(&["cache", "stats"]).exits(0).shows("results: 3");
    let mut changed = rivers();
    changed["classes"][0]["synonyms"] = json!(["stream"]);
    std::fs::write(dir.path("rivers.json"), changed.to_string()).expect("a file");
    dir.hapax(&["ontologies", "put", "rivers.json"]).exits(0).shows("results and chunks are gone");
    dir.hapax(&["ontologies", "put", "rivers.json"]).exits(0).shows("unchanged at");
    dir.hapax(&["ontologies", "list"]).exits(0).shows(IRI);
    dir.hapax(&["cache", "stats"]).exits(0).shows("results: 0, chunks: 0");
    dir.hapax(&["cache", "explain", "b.txt", "-o", IRI, "--param", "chunkSize=400"])
        .exits(0)
        .shows("differs   ontologyVersion");
    dir.hapax(&["extract", "b.txt", "-o", "nobody"]).exits(64).says("HX0601");
    dir.hapax(&["extract", "b.txt", "-o", IRI, "--param", "temp=9"])
        .exits(64)
        .says("/extractionParams/temp");
    dir.hapax(&["ontologies", "remove", IRI]).exits(0).shows("removed");
}

/// The example runs to its end.
#[test]
fn the_example_works() {
    let story = "../../examples/extraction/run.sh";
    let ran = Command::new("sh").arg(story).env("HAPAX", env!("CARGO_BIN_EXE_hapax")).output();
    let ran = ran.expect("sh");
    let output = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{ran:?}");
    assert!(
        output.contains("They have 100 chunks; 51 were read, 49 were not read again."),
        "{output}"
    );
}

/// A model that finds nothing, counts its calls, and waits while it is held.
struct Model {
    address: String,
    calls: Arc<AtomicUsize>,
    held: Arc<AtomicBool>,
}

impl Model {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (calls, held) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counts, holds) = (calls.clone(), held.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (counts, holds) = (counts.clone(), holds.clone());
                std::thread::spawn(move || answer(stream, &counts, &holds));
            }
        });
        Self { address, calls, held }
    }

    fn calls(&self) -> usize {
        self.calls.load(SeqCst)
    }
}

fn answer(mut stream: TcpStream, calls: &AtomicUsize, held: &AtomicBool) {
    loop {
        let mut request = Vec::new();
        let mut byte = [0; 1];
        while !request.ends_with(b"\r\n\r\n") {
            match stream.read(&mut byte) {
                Ok(1) => request.push(byte[0]),
                _ => return,
            }
        }
        let head = String::from_utf8_lossy(&request).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        if stream.read_exact(&mut body).is_err() {
            return;
        }
        calls.fetch_add(1, SeqCst);
        while held.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let content = json!({ "entities": [] }).to_string();
        let completion = json!({
            "choices": [{ "message": { "role": "assistant", "content": content }, "finish_reason": "stop" }],
            "usage": { "prompt_tokens": 10, "completion_tokens": 2 },
        })
        .to_string();
        let sent = write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{completion}",
            completion.len()
        );
        if sent.is_err() {
            return;
        }
    }
}

/// Two servers on one database that ask one model.
struct Two {
    dir: LedgerDir,
    model: Model,
    servers: Mutex<Vec<Server>>,
    _postgres: Postgres,
}

impl Two {
    fn start() -> Self {
        let (dir, model, postgres) = (LedgerDir::new(), Model::start(), Postgres::start());
        let config = format!(
            "[extraction]\nextractor = \"openai\"\nbase_url = \"http://{}/v1\"\nmodel = \"m-1\"\n",
            model.address
        );
        std::fs::write(dir.path("hapax.toml"), config).expect("a file");
        let (db, key) = (postgres.url("postgres"), dir.path("key").display().to_string());
        let words = ["--db", &db, "--signing-key", &key, "dev", "--listen", "127.0.0.1:0"];
        let servers = (0..2).map(|_| Server::started(dir.start(&words))).collect();
        let two = Self { dir, model, servers: Mutex::new(servers), _postgres: postgres };
        let kept = curl(&[
            "-H",
            "Content-Type: application/json",
            "-d",
            &rivers().to_string(),
            &format!("http://{}/api/v1/ontologies", two.address(0)),
        ]);
        assert!(kept.contains("newVersion"), "{kept}");
        two
    }

    fn address(&self, nth: usize) -> String {
        self.servers.lock().expect("no panic")[nth].address.clone()
    }

    /// How many requests are under way on both servers, without those of this query.
    fn under_way(&self) -> usize {
        let counted = |server: &Server| {
            let metrics = curl(&[&format!("http://{}/metrics", server.address)]);
            let name = "hapax_http_requests_under_way ";
            let counted = metrics.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
            counted.unwrap_or(1_usize) - 1
        };
        self.servers.lock().expect("no panic").iter().map(counted).sum()
    }

    /// Sends this many equal requests at once, to these servers in turn, and prints the status of each.
    fn ask(&self, many: usize, servers: &[usize], text: &str) -> std::process::Child {
        let request = json!({ "text": text, "ontologyId": IRI }).to_string();
        let mut config = String::from(
            "parallel\nparallel-immediate\nparallel-max = 300\nsilent\nmax-time = 120\n",
        );
        for n in 0..many {
            let address = self.address(servers[n % servers.len()]);
            let data = request.replace('\\', "\\\\").replace('"', "\\\"");
            config += &format!(
                "{}url = \"http://{address}/api/v1/extract\"\nheader = \"Content-Type: application/json\"\ndata = \"{data}\"\nwrite-out = \"%{{http_code}}\\n\"\noutput = \"/dev/null\"\nmax-time = 120\nsilent\n",
                if n > 0 { "next\n" } else { "" },
            );
        }
        let mut file = tempfile::NamedTempFile::new_in(self.dir.path("")).expect("a file");
        file.write_all(config.as_bytes()).expect("written");
        let (_, file) = file.keep().expect("a file");
        let mut curl = Command::new("curl");
        curl.arg("-Z").arg("--parallel-immediate").args(["--parallel-max", "300", "-K"]).arg(file);
        curl.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("curl")
    }
}

fn statuses(curl: std::process::Child) -> Vec<String> {
    let output = curl.wait_with_output().expect("curl ends");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Proves X-4: a thousand equal requests that are all under way at once, on two servers over one
/// database, ask the model once.
#[test]
fn a_thousand_requests_on_two_servers_are_one_call() {
    let two = Two::start();
    two.model.held.store(true, SeqCst);
    // One curl has at most 300 at once.
    let text = "The Danube flows through Vienna.";
    let asking: Vec<_> = (0..4).map(|_| two.ask(250, &[0, 1], text)).collect();
    wait_until("all of them wait, one of them for the model", || {
        two.under_way() == 1_000 && two.model.calls() > 0
    });
    two.model.held.store(false, SeqCst);
    let received: Vec<_> = asking.into_iter().flat_map(statuses).collect();
    assert_eq!(received.len(), 1_000);
    assert!(received.iter().all(|status| status == "200"), "{received:?}");
    assert_eq!(two.model.calls(), 1);
}

/// Proves X-4: when the server that performs the call is killed, the other one calls once more, and
/// every waiting client gets an answer.
#[test]
fn a_server_that_is_killed_is_overtaken() {
    let two = Two::start();
    two.model.held.store(true, SeqCst);
    let first = two.ask(1, &[0], "The Danube.");
    wait_until("the first call", || two.model.calls() == 1);
    let waiting = two.ask(20, &[1], "The Danube.");
    let killed = two.servers.lock().expect("no panic").remove(0);
    killed.kill();
    two.model.held.store(false, SeqCst);
    let received = statuses(waiting);
    assert_eq!(received, vec!["200"; 20]);
    assert_eq!(two.model.calls(), 2);
    assert_eq!(statuses(first), ["000"], "its server is gone");
}
