//! The proxy before a service without idempotency keys, with widely used clients.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex};

use super::serve::{Server, Systemd, certify, curl, signal, status};
use super::{LedgerDir, wait_until};

/// A service that keeps the heads of its requests, and does not answer a body of `hang`.
pub(super) struct Service {
    url: String,
    /// The heads of requests, in lower case.
    requests: Arc<Mutex<Vec<String>>>,
}

impl Service {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = requests.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (mut client, kept) = (client.expect("a client"), kept.clone());
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(client.try_clone().expect("a copy"));
                    let mut head = String::new();
                    while reader.read_line(&mut head).is_ok_and(|read| read > 2) {}
                    let head = head.to_lowercase();
                    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
                    let length = length.map_or(0, |text| text.trim().parse().expect("a length"));
                    let mut body = vec![0; length];
                    reader.read_exact(&mut body).expect("a body");
                    let path = head.split(' ').nth(1).expect("a path").to_owned();
                    let nth = {
                        let mut kept = kept.lock().expect("no panic");
                        kept.push(head);
                        kept.len()
                    };
                    if body == b"hang" {
                        let _ = client.read(&mut [0]);
                        return;
                    }
                    let (status, answer) = answer(&path, nth);
                    let head = format!(
                        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nx-receipt: {nth}\r\n\
                         connection: close\r\n\r\n",
                        answer.len()
                    );
                    let _ = client.write_all(format!("{head}{answer}").as_bytes());
                });
            }
        });
        Self { url, requests }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The heads of requests that began like this.
    pub(super) fn requests(&self, start: &str) -> Vec<String> {
        let requests = self.requests.lock().expect("no panic");
        requests.iter().filter(|head| head.starts_with(start)).cloned().collect()
    }

    pub(super) fn calls(&self) -> usize {
        self.requests("").len()
    }
}

/// The answer to its nth request.
fn answer(path: &str, nth: usize) -> (&'static str, String) {
    match path {
        "/card" => ("200 OK", card(nth)),
        "/large" => ("200 OK", format!("\"{}\"", "x".repeat(2_000))),
        "/broken" => ("500 Internal Server Error", "\n".into()),
        "/busy" => ("503 Service Unavailable", "\n".into()),
        path if path.starts_with("/by-key/") && path.ends_with("found") => ("200 OK", card(nth)),
        path if path.starts_with("/by-key/") => ("404 Not Found", "\n".into()),
        _ => ("201 Created", format!("charge {nth}\n")),
    }
}

fn card(nth: usize) -> String {
    format!(r#"{{"id":{nth},"card":{{"number":"4111"}}}}"#)
}

/// A proxy that ends with the test.
struct Proxy {
    child: Child,
    url: String,
    /// The rest of its log; it is kept open for the proxy.
    errors: BufReader<ChildStderr>,
}

impl Proxy {
    fn before(service: &Service, dir: &LedgerDir, more: &[&str]) -> Self {
        Self::started(&mut dir.command(&[&to(&service.url)[..], more].concat()))
    }

    fn started(command: &mut Command) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("it starts");
        let mut line = String::new();
        let mut errors = BufReader::new(child.stderr.take().expect("piped"));
        errors.read_line(&mut line).expect("its address");
        let url = line.split_whitespace().find(|word| word.starts_with("http://"));
        let url = url.unwrap_or_else(|| panic!("no address in {line:?}")).to_owned();
        Self { child, url, errors }
    }

    /// The next line of its log.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.errors.read_line(&mut line).expect("a line");
        line
    }

    /// The output of curl: the answer's head and body.
    fn curl(&self, words: &[&str]) -> String {
        self.post("/charges", words)
    }

    fn post(&self, path: &str, words: &[&str]) -> String {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--include", "--max-time", "20"])
            .args(words)
            .arg(format!("{}{path}", self.url))
            .output()
            .expect("curl; `cargo xtask test` installs it");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn charge(&self, key: &str, body: &str) -> String {
        self.curl(&["-H", &format!("Idempotency-Key: {key}"), "-d", body])
    }
}

/// A proxy to this upstream, in words.
fn to(upstream: &str) -> [&str; 5] {
    ["proxy", "--listen", "127.0.0.1:0", "--upstream", upstream]
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Proves S-3, S-2: curl, as it is, gets the semantics of the IETF's draft.
#[test]
fn curl_works_unchanged() {
    let (dir, service) = (LedgerDir::new(), Service::start());
    let proxy = Proxy::before(&service, &dir, &[]);
    let first = proxy.charge("\"8e03\"", "EUR 10");
    assert!(first.starts_with("HTTP/1.1 201 Created") && first.ends_with("charge 1\n"), "{first}");
    let again = proxy.charge("8e03", "EUR 10");
    assert!(again.ends_with("charge 1\n"), "{again}");
    assert!(again.contains("idempotent-replayed: true"), "{again}");
    assert!(proxy.charge("8e03", "EUR 99").starts_with("HTTP/1.1 422"));
    assert!(proxy.curl(&["-d", "x"]).starts_with("HTTP/1.1 400"));
    assert_eq!(service.calls(), 1);
    let list = dir.hapax(&["effects", "list"]).exits(0);
    assert!(list.out.contains("POST /charges"), "{list:?}");
}

/// Proves S-3: Python's httpx, with retries of its own.
#[test]
fn httpx_works_unchanged() {
    let (dir, service) = (LedgerDir::new(), Service::start());
    let proxy = Proxy::before(&service, &dir, &["--wait", "10s"]);
    let program = r#"
import asyncio, httpx, sys
async def main(url):
    async with httpx.AsyncClient() as client:
        send = lambda: client.post(url, content="EUR 10", headers={"Idempotency-Key": '"k"'})
        answers = await asyncio.gather(*(send() for _ in range(20)))
    assert {(a.status_code, a.text) for a in answers} == {(201, "charge 1\n")}, answers
    assert sum("idempotent-replayed" in a.headers for a in answers) == 19
asyncio.run(main(sys.argv[1] + "/charges"))
"#;
    let output = Command::new("/usr/bin/python3").args(["-c", program, &proxy.url]).output();
    let output = output.expect("python3");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(service.calls(), 1);
}

/// Proves S-3, K-7: the proxy is killed between call and reply. The outcome is unknown, and nothing
/// is sent a second time; a person decides.
#[test]
fn a_killed_proxy_does_not_send_again() {
    let (dir, service) = (LedgerDir::new(), Service::start());
    let mut proxy = Proxy::before(&service, &dir, &[]);
    let url = format!("{}/charges", proxy.url);
    let mut waiting = Command::new("curl")
        .args(["--silent", "-H", "Idempotency-Key: k", "-d", "hang", &url])
        .spawn()
        .expect("curl; `cargo xtask test` installs it");
    wait_until("the service is called", || service.calls() == 1);
    proxy.child.kill().expect("killed");
    proxy.child.wait().expect("gone");
    waiting.wait().expect("curl ends");
    let proxy = Proxy::before(&service, &dir, &[]);
    for _ in 0..3 {
        let answer = proxy.charge("k", "hang");
        assert!(answer.starts_with("HTTP/1.1 409"), "{answer}");
        assert!(answer.contains("urn:hapax:error:HX0203"), "{answer}");
    }
    assert_eq!(service.calls(), 1);
    let list = dir.hapax(&["--json", "effects", "list", "--state", "indeterminate"]).exits(0);
    assert_eq!(list.json()["label"], "POST /charges k");
}

/// Proves S-6 for the proxy: monitoring has a listener of its own, and every path of the other
/// listener is the service's. The proxy tells systemd when it is ready and when it is about to stop.
#[test]
fn a_proxy_has_metrics_on_a_port_of_its_own() {
    let (dir, service) = (LedgerDir::new(), Service::start());
    let words = ["proxy", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--upstream"];
    let mut command = dir.command(&[&words[..], &[&service.url]].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let systemd = Systemd::listens(&dir, &mut command);
    let mut proxy = Server::started(command.spawn().expect("it starts"));
    assert_eq!(systemd.notification(), "READY=1");
    let mut line = String::new();
    proxy.errors.read_line(&mut line).expect("another address");
    let metrics = line.split_whitespace().find(|word| word.ends_with("/metrics"));
    let metrics = metrics.unwrap_or_else(|| panic!("no address in {line:?}"));
    let ready = metrics.replace("/metrics", "/readyz");
    assert_eq!(status(&[&ready]), "200");

    let charges = format!("http://{}/charges", proxy.address);
    for _ in 0..3 {
        assert_eq!(status(&["-H", "Idempotency-Key: k", "-d", "EUR 10", &charges]), "201");
    }
    assert_eq!(curl(&[&format!("http://{}/metrics", proxy.address)]), "charge 2\n");
    let counted = curl(&[metrics]);
    for line in [
        "hapax_grants_total 1",
        "hapax_http_requests_total{method=\"POST\",route=\"none\",status=\"201\"} 3",
        "hapax_http_requests_total{method=\"GET\",route=\"none\",status=\"201\"} 1",
        "hapax_http_requests_under_way 0",
    ] {
        assert!(counted.lines().any(|counted| counted == line), "{line}: {counted}");
    }
    let check = format!("curl -sS {metrics} | promtool check metrics");
    let checked = Command::new("sh").args(["-c", &check]).output().expect("sh");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));

    // While it finishes running requests, it reports that it is no longer ready.
    let waiting = Command::new("curl")
        .args(["--silent", "-H", "Idempotency-Key: h", "-d", "hang", &charges])
        .spawn();
    let mut waiting = waiting.expect("curl; `cargo xtask test` installs it");
    wait_until("the service is called", || service.calls() == 3);
    signal(&proxy.child, "TERM");
    assert_eq!(systemd.notification(), "STOPPING=1");
    wait_until("it is no longer ready", || status(&[&ready]) == "503");
    waiting.kill().expect("it is ours");
    waiting.wait().expect("curl ends");
}

/// Proves S-6 for the proxy's TLS: a renewed certificate is used without a restart.
#[test]
fn a_proxy_listens_by_tls() {
    let (dir, service) = (LedgerDir::new(), Service::start());
    certify(&dir, "first");
    let words = ["proxy", "--listen", "127.0.0.1:0", "--upstream", &service.url];
    dir.hapax(&[&words[..], &["--tls-key", "key.pem"]].concat()).exits(64).says("--tls-certifi");
    let tls = ["--tls-certificate", "certificate.pem", "--tls-key"];
    let wrong = [&words[..], &tls, &["none.pem"]].concat();
    dir.hapax(&wrong).exits(64).says("none.pem");
    let proxy = Server::started(dir.start(&[&words[..], &tls, &["key.pem"]].concat()));
    let url = format!("https://{}/charges", proxy.address);
    let trusted = || {
        let authority = dir.path("certificate.pem");
        let words = ["--cacert", authority.to_str().expect("a path"), "-d", "EUR 10"];
        status(&[&words[..], &["-H", "Idempotency-Key: k", &url]].concat())
    };
    assert_eq!(trusted(), "201");
    certify(&dir, "second");
    assert_eq!(trusted(), "000", "the old one is in use still");
    signal(&proxy.child, "HUP");
    wait_until("the new certificate is used", || trusted() == "201");
    assert_eq!(service.calls(), 1);
}

/// Proves S-3: the proxy follows its flags for tenants, sizes, headers, statuses and probes.
#[test]
fn a_proxy_does_as_its_flags_say() {
    let (dir, service) = (LedgerDir::new(), Service::start());
    let flags = [
        ["--tenant-header", "x-tenant"],
        ["--probe", "/by-key/{tenant}/{key}"],
        ["--settling", "0s"],
        ["--timeout", "1s"],
        ["--meaning", "500=kept"],
        ["--meaning", "503=unknown"],
        ["--keep-header", "x-receipt"],
        ["--redact", "/card/number"],
        ["--largest-request", "1000"],
        ["--largest-answer", "1500"],
    ];
    let proxy = Proxy::before(&service, &dir, &flags.concat());
    let ask = |path: &str, key: &str, body: &str| {
        let key = format!("Idempotency-Key: {key}");
        proxy.post(path, &["-H", &key, "-H", "X-Tenant: ada", "-d", body])
    };
    let answer = proxy.charge("k", "a");
    assert!(answer.contains("HX0308"), "the tenant is missing: {answer}");
    let answer = ask("/charges", "k", &"x".repeat(1_001));
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert_eq!(service.calls(), 0);

    assert!(ask("/card", "k", "a").contains("4111"), "the first caller gets the whole answer");
    let again = ask("/card", "k", "a");
    assert!(again.ends_with(r#"{"id":1,"card":{"number":"[redacted]"}}"#), "{again}");
    assert!(again.contains("x-receipt: 1"), "{again}");
    let bob = ["-H", "Idempotency-Key: k", "-H", "X-Tenant: bob", "-d", "a"];
    assert!(proxy.post("/card", &bob).contains("4111"), "another tenant's key is another");

    assert!(ask("/large", "k", "a").len() > 2_000, "the first caller gets it all");
    assert!(ask("/large", "k", "a").contains("HX0307"), "and none after that");
    assert!(ask("/broken", "k", "a").starts_with("HTTP/1.1 500"));
    let kept = ask("/broken", "k", "a");
    assert!(kept.starts_with("HTTP/1.1 500") && kept.contains("replayed"), "{kept}");

    // The proxy asks the service about an unknown outcome: it happened, or it is sent once more.
    assert!(ask("/busy", "found", "a").starts_with("HTTP/1.1 503"));
    let found = ask("/busy", "found", "a");
    assert!(found.ends_with(r#""card":{"number":"[redacted]"}}"#), "as any other: {found}");
    assert!(found.contains("x-receipt:"), "{found}");
    assert_eq!(service.requests("get /by-key/ada/found ").len(), 1);
    assert_eq!(service.requests("post /busy ").len(), 1);
    for nth in 1..3 {
        assert!(ask("/busy", "lost", "a").starts_with("HTTP/1.1 503"));
        assert_eq!(service.requests("post /busy ").len(), 1 + nth);
    }
    let late = ask("/charges", "found", "hang");
    assert!(late.starts_with("HTTP/1.1 504") && late.contains("within 1 s"), "{late}");
    drop(proxy);

    // As long as a request may still arrive, its absence says nothing.
    let patient = ["--probe", "/by-key/{key}", "--settling", "1h", "--meaning", "503=unknown"];
    let proxy = Proxy::before(&service, &dir, &patient);
    let ask = || proxy.post("/busy", &["-H", "Idempotency-Key: lost", "-d", "a"]);
    let before = service.requests("post /busy ").len();
    assert!(ask().starts_with("HTTP/1.1 503"));
    assert!(ask().contains("HX0203"));
    assert_eq!(service.requests("get /by-key/lost ").len(), 1);
    assert_eq!(service.requests("post /busy ").len(), before + 1);
}

/// Proves N-5: the proxy says at its start what a caller is, and gives a stored answer only to the
/// caller it was made for.
#[test]
fn a_proxy_tells_callers_apart() {
    let (dir, service) = (LedgerDir::new(), Service::start());
    let ask = |proxy: &Proxy, header: &str| {
        proxy.curl(&["-H", "Idempotency-Key: k", "-H", header, "-d", "a"])
    };
    let (ada, bob) = ("Authorization: Bearer ada", "Authorization: Bearer bob");
    let mut proxy = Proxy::before(&service, &dir, &[]);
    let rule = proxy.line();
    assert!(rule.contains("Authorization, Cookie and API-key headers"), "{rule}");
    assert!(ask(&proxy, ada).ends_with("charge 1\n"));
    assert!(ask(&proxy, ada).contains("idempotent-replayed"));
    let other = ask(&proxy, bob);
    assert!(other.starts_with("HTTP/1.1 409") && other.contains("HX0319"), "{other}");
    assert!(proxy.charge("k", "a").contains("HX0319"), "no credentials are no caller's");
    drop(proxy);

    let mut proxy = Proxy::before(&service, &dir, &["--identity", "header:X-User"]);
    let rule = proxy.line();
    assert!(rule.contains("the header x-user"), "{rule}");
    assert!(ask(&proxy, "X-User: ada").ends_with("charge 2\n"));
    assert!(ask(&proxy, "X-User: bob").ends_with("charge 3\n"));
    assert!(ask(&proxy, "X-User: ada").contains("idempotent-replayed"));
    assert!(ask(&proxy, ada).contains("HX0308"), "nothing names the caller");
    drop(proxy);

    let mut proxy = Proxy::before(&service, &dir, &["--identity", "none"]);
    assert!(proxy.line().contains("not told apart"));
    let ask =
        |header: &str| proxy.curl(&["-H", "Idempotency-Key: shared", "-H", header, "-d", "a"]);
    assert!(ask(ada).ends_with("charge 4\n"));
    assert!(ask(bob).contains("idempotent-replayed"));
    assert_eq!(service.calls(), 4);
}

/// Proves S-3: each preset can be chosen on the command line, with its header, its methods, its
/// statuses and whether it needs a key.
#[test]
fn a_proxy_follows_its_preset() {
    const UUID: &str = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f";
    for (preset, header, mismatch, broken) in [
        ("ietf", "Idempotency-Key", "422", false),
        ("stripe", "Idempotency-Key", "400", true),
        ("aws", "X-Amz-Client-Token", "400", false),
        ("iceberg", "Idempotency-Key", "422", false),
    ] {
        let (dir, service) = (LedgerDir::new(), Service::start());
        let proxy = Proxy::before(&service, &dir, &["--preset", preset]);
        let key = format!("{header}: {UUID}");
        let ask = |path: &str, body: &str| proxy.post(path, &["-H", &key, "-d", body]);
        assert!(ask("/charges", "a").ends_with("charge 1\n"), "{preset}");
        assert!(ask("/charges", "a").contains("idempotent-replayed"), "{preset}");
        let other = ask("/charges", "b");
        assert!(other.starts_with(&format!("HTTP/1.1 {mismatch}")), "{preset}: {other}");
        ask("/broken", "a");
        assert_eq!(ask("/broken", "a").contains("idempotent-replayed"), broken, "{preset}");
        let bare = if preset == "ietf" { "400" } else { "201" };
        assert!(proxy.curl(&["-d", "a"]).starts_with(&format!("HTTP/1.1 {bare}")), "{preset}");
        for method in ["DELETE", "PATCH"] {
            let kept = match method {
                "DELETE" => preset == "iceberg",
                _ => preset == "ietf" || preset == "aws",
            };
            let ask = || proxy.curl(&["-H", &key, "-X", method]);
            ask();
            assert_eq!(ask().contains("idempotent-replayed"), kept, "{preset} {method}");
        }
        let odd = proxy.curl(&["-H", &format!("{header}: no-uuid"), "-d", "a"]);
        assert_eq!(odd.starts_with("HTTP/1.1 400"), preset == "iceberg", "{preset}: {odd}");
    }
}

/// Answers are kept for `--lifetime`, and with `--optional` a request needs no key.
#[test]
fn a_proxy_executes_a_key_again_after_its_lifetime() {
    let (dir, service) = (LedgerDir::new(), Service::start());
    let proxy = Proxy::before(&service, &dir, &["--lifetime", "1s", "--optional"]);
    assert!(proxy.curl(&["-d", "a"]).starts_with("HTTP/1.1 201"));
    proxy.charge("k", "a");
    wait_until("it is forgotten", || !proxy.charge("k", "a").contains("idempotent-replayed"));
    assert_eq!(service.calls(), 3);
}

/// Senseless flags are refused before the proxy listens.
#[test]
fn flags_that_make_no_sense_are_refused() {
    let dir = LedgerDir::new();
    for (flags, message) in [
        (&["--probe", "/charges"][..], "{key}"),
        (&["--probe", "charges/{key}"], "{key}"),
        (&["--probe", "/charges/{key}", "--tenant-header", "x-tenant"], "{tenant}"),
        (&["--tenant-header", "x tenant"], "--tenant-header"),
        (&["--identity", "ours"], "jwt:CLAIM"),
        (&["--identity", "header:x user"], "jwt:CLAIM"),
        (&["--identity", "jwt:sub", "--probe", "/charges/{key}"], "{caller}"),
        (&["--identity", "cookie:id", "--probe", "/charges/{caller}/{key}"], "--probe"),
        (&["--redact", "card"], "JSON pointer"),
        (&["--meaning", "503=maybe"], "not-done"),
        (&["--meaning", "ok=kept"], "not-done"),
        (&["--keep-header", "x receipt"], "--keep-header"),
        (&["--preset", "ours"], "iceberg"),
    ] {
        let words = [&to("http://127.0.0.1:1")[..], flags].concat();
        dir.hapax(&words).exits(64).says(message);
    }
    assert!(!dir.path("hapax.db").exists(), "nothing else is done");
}

/// Proves S-3, S-6: the proxy calls a service behind TLS if its certificate is trusted, and sends
/// it nothing if it is not.
#[test]
fn a_service_is_reached_by_tls() {
    let (outer, inner, service) = (LedgerDir::new(), LedgerDir::new(), Service::start());
    certify(&inner, "service");
    certify(&outer, "another host");
    let tls = ["--tls-certificate", "certificate.pem", "--tls-key", "key.pem"];
    let secured = Server::started(inner.start(&[&to(&service.url)[..], &tls].concat()));
    let upstream = format!("https://{}", secured.address.replace("127.0.0.1", "localhost"));
    let trusting = |dir: &LedgerDir| {
        let mut command = outer.command(&to(&upstream));
        Proxy::started(command.env("SSL_CERT_FILE", dir.path("certificate.pem")))
    };
    let answer = trusting(&outer).charge("k", "EUR 10");
    assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("HX0305"), "{answer}");
    assert_eq!(service.calls(), 0);
    let proxy = trusting(&inner);
    assert!(proxy.charge("k", "EUR 10").ends_with("charge 1\n"), "it was not sent before");
    assert!(proxy.charge("k", "EUR 10").contains("idempotent-replayed"));
    assert_eq!(service.calls(), 1);
}
