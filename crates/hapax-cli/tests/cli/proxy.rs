//! The proxy before a service that knows nothing of keys, with the clients that people have.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::serve::{Server, Systemd, certify, curl, signal, status};
use super::{Place, wait_until};

/// A service that counts, and says nothing to requests whose body is `hang`.
struct Service {
    url: String,
    calls: Arc<AtomicUsize>,
}

impl Service {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (mut client, counted) = (client.expect("a client"), counted.clone());
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(client.try_clone().expect("a copy"));
                    let mut length = 0;
                    let mut line = String::new();
                    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                        let header = line.to_lowercase();
                        if let Some(value) = header.strip_prefix("content-length:") {
                            length = value.trim().parse().expect("a length");
                        }
                        line.clear();
                    }
                    let mut body = vec![0; length];
                    reader.read_exact(&mut body).expect("a body");
                    let nth = counted.fetch_add(1, Ordering::SeqCst) + 1;
                    if body == b"hang" {
                        let _ = client.read(&mut [0]);
                        return;
                    }
                    let answer = format!("charge {nth}\n");
                    let head = format!(
                        "HTTP/1.1 201 Created\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                        answer.len()
                    );
                    let _ = client.write_all(format!("{head}{answer}").as_bytes());
                });
            }
        });
        Self { url, calls }
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

/// A proxy that ends with the test.
struct Proxy {
    child: Child,
    url: String,
}

impl Proxy {
    fn before(service: &Service, place: &Place, more: &[&str]) -> Self {
        let words = ["proxy", "--listen", "127.0.0.1:0", "--upstream", &service.url];
        let mut child = place.start(&[&words[..], more].concat());
        let mut said = String::new();
        let errors = child.stderr.take().expect("piped");
        BufReader::new(errors).read_line(&mut said).expect("its address");
        let url = said.split_whitespace().find(|word| word.starts_with("http://"));
        Self { url: url.unwrap_or_else(|| panic!("no address in {said:?}")).to_owned(), child }
    }

    /// What curl prints: the answer's head and body.
    fn curl(&self, words: &[&str]) -> String {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--include", "--max-time", "20"])
            .args(words)
            .arg(format!("{}/charges", self.url))
            .output()
            .expect("curl; `cargo xtask test` installs it");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn charge(&self, key: &str, body: &str) -> String {
        self.curl(&["-H", &format!("Idempotency-Key: {key}"), "-d", body])
    }
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
    let (place, service) = (Place::new(), Service::start());
    let proxy = Proxy::before(&service, &place, &[]);
    let first = proxy.charge("\"8e03\"", "EUR 10");
    assert!(first.starts_with("HTTP/1.1 201 Created") && first.ends_with("charge 1\n"), "{first}");
    let again = proxy.charge("8e03", "EUR 10");
    assert!(again.ends_with("charge 1\n"), "{again}");
    assert!(again.contains("idempotent-replayed: true"), "{again}");
    assert!(proxy.charge("8e03", "EUR 99").starts_with("HTTP/1.1 422"));
    assert!(proxy.curl(&["-d", "x"]).starts_with("HTTP/1.1 400"));
    assert_eq!(service.calls(), 1);
    let list = place.hapax(&["effects", "list"]).exits(0);
    assert!(list.out.contains("POST /charges"), "{list:?}");
}

/// Proves S-3: Python's httpx, with retries of its own.
#[test]
fn httpx_works_unchanged() {
    let (place, service) = (Place::new(), Service::start());
    let proxy = Proxy::before(&service, &place, &["--wait", "10s"]);
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

/// Proves S-3, K-7: killed between call and reply, the outcome is unknown, and nothing is sent
/// a second time; a person decides.
#[test]
fn a_killed_proxy_does_not_send_again() {
    let (place, service) = (Place::new(), Service::start());
    let mut proxy = Proxy::before(&service, &place, &[]);
    let url = format!("{}/charges", proxy.url);
    let mut waiting = Command::new("curl")
        .args(["--silent", "-H", "Idempotency-Key: k", "-d", "hang", &url])
        .spawn()
        .expect("curl; `cargo xtask test` installs it");
    wait_until("the service is called", || service.calls() == 1);
    proxy.child.kill().expect("killed");
    proxy.child.wait().expect("gone");
    waiting.wait().expect("curl ends");
    let proxy = Proxy::before(&service, &place, &[]);
    for _ in 0..3 {
        let told = proxy.charge("k", "hang");
        assert!(told.starts_with("HTTP/1.1 409"), "{told}");
        assert!(told.contains("urn:hapax:error:HX0203"), "{told}");
    }
    assert_eq!(service.calls(), 1);
    let list = place.hapax(&["--json", "effects", "list", "--state", "indeterminate"]).exits(0);
    assert_eq!(list.json()["label"], "POST /charges k");
}

/// Proves S-6 for the proxy: those who look after it have a door of their own, and every path of the
/// other one is the service's; systemd is told when it is ready and when it is about to stop.
#[test]
fn a_proxy_is_watched_by_a_door_of_its_own() {
    let (place, service) = (Place::new(), Service::start());
    let words = ["proxy", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--upstream"];
    let mut command = place.command(&[&words[..], &[&service.url]].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let systemd = Systemd::listens(&place, &mut command);
    let mut proxy = Server::started(command.spawn().expect("it starts"));
    assert_eq!(systemd.told(), "READY=1");
    let mut said = String::new();
    proxy.errors.read_line(&mut said).expect("another address");
    let metrics = said.split_whitespace().find(|word| word.ends_with("/metrics"));
    let metrics = metrics.unwrap_or_else(|| panic!("no address in {said:?}"));
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

    // While it finishes what was begun, it says that it is no longer ready.
    let waiting = Command::new("curl")
        .args(["--silent", "-H", "Idempotency-Key: h", "-d", "hang", &charges])
        .spawn();
    let mut waiting = waiting.expect("curl; `cargo xtask test` installs it");
    wait_until("the service is called", || service.calls() == 3);
    signal(&proxy.child, "TERM");
    assert_eq!(systemd.told(), "STOPPING=1");
    wait_until("it is no longer ready", || status(&[&ready]) == "503");
    waiting.kill().expect("it is ours");
    waiting.wait().expect("curl ends");
}

/// Proves S-6 for the proxy's TLS: a certificate that is renewed is used without a restart.
#[test]
fn a_proxy_listens_by_tls() {
    let (place, service) = (Place::new(), Service::start());
    certify(&place, "first");
    let words = ["proxy", "--listen", "127.0.0.1:0", "--upstream", &service.url];
    place.hapax(&[&words[..], &["--tls-key", "key.pem"]].concat()).exits(64).says("--tls-certifi");
    let tls = ["--tls-certificate", "certificate.pem", "--tls-key"];
    let wrong = [&words[..], &tls, &["none.pem"]].concat();
    place.hapax(&wrong).exits(64).says("none.pem");
    let proxy = Server::started(place.start(&[&words[..], &tls, &["key.pem"]].concat()));
    let url = format!("https://{}/charges", proxy.address);
    let trusted = || {
        let authority = place.path("certificate.pem");
        let words = ["--cacert", authority.to_str().expect("a path"), "-d", "EUR 10"];
        status(&[&words[..], &["-H", "Idempotency-Key: k", &url]].concat())
    };
    assert_eq!(trusted(), "201");
    certify(&place, "second");
    assert_eq!(trusted(), "000", "the old one is in use still");
    signal(&proxy.child, "HUP");
    wait_until("the new certificate is used", || trusted() == "201");
    assert_eq!(service.calls(), 1);
}
