//! Hostile and slow clients: their cost is bounded, and other clients are served.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use super::proxy::Service;
use super::serve::{Server, status};
use super::{LONG, LedgerDir, wait_until};

/// The answer to a client that sends a gigabyte after this head, and reads even when it is cut off.
fn answer_to_a_gigabyte(address: &str, head: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(head.as_bytes()).expect("a head");
    let mut reader = stream.try_clone().expect("a copy");
    reader.set_read_timeout(Some(LONG)).expect("a deadline");
    let sending = std::thread::spawn(move || {
        let chunk = [b"10000\r\n", &[0; 65_536][..], b"\r\n"].concat();
        let sent = (0..16_384).take_while(|_| stream.write_all(&chunk).is_ok()).count();
        // The rest of the answer may still be on its way.
        (stream, sent)
    });
    let mut line = String::new();
    let read = BufReader::new(&mut reader).read_line(&mut line);
    read.expect("an answer comes before the connection is cut off");
    let _ = reader.shutdown(std::net::Shutdown::Both);
    let (_, sent) = sending.join().expect("no panic");
    assert!(sent < 16_384, "a gigabyte is not read");
    line
}

/// Floods a server. `path` takes requests with these headers, and answers a valid one with the status `fine`.
fn flood(server: &Server, path: &str, headers: &[&str], fine: &str) {
    let dir = LedgerDir::new();
    let head = |length: &str| {
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}{length}")
    };
    let url = format!("http://{}{path}", server.address);
    let with: Vec<&str> = headers.iter().flat_map(|header| ["-H", header]).collect();
    let send = |words: &[&str]| status(&[&with[..], words, &[&url]].concat());
    let mut dripping: Vec<TcpStream> = (0..500)
        .map(|_| {
            let mut stream = TcpStream::connect(&server.address).expect("a connection");
            stream.write_all(head("").as_bytes()).expect("a drop");
            stream
        })
        .collect();
    for (nth, stream) in dripping.iter_mut().enumerate() {
        stream.write_all(b"X-Drop: 1\r\n").expect("another drop");
        if nth % 100 == 0 {
            assert_eq!(send(&["-d", "{}"]), fine);
        }
    }
    // A gigabyte with a declared length, and one without.
    for length in ["Transfer-Encoding: chunked\r\n\r\n", "Content-Length: 1073741824\r\n\r\n"] {
        let answer = answer_to_a_gigabyte(&server.address, &head(length));
        assert_eq!(answer, "HTTP/1.1 413 Payload Too Large\r\n", "{path} {length}");
    }
    // A body that is a little too large gets its error, whether the client asks before it sends or not.
    let large = dir.path("large.json");
    std::fs::write(&large, vec![b' '; 3_000_000]).expect("written");
    let large = format!("@{}", large.display());
    for expect in ["Expect:", "Expect: 100-continue"] {
        assert_eq!(send(&["-H", expect, "--data-binary", &large]), "413");
    }
    assert_eq!(send(&["-d", "{}"]), fine);
    let peak = server.peak_mb();
    assert!(peak < 256, "{peak} MB");
    drop(dripping);
}

/// Has 500 clients send almost a mebibyte each, and stall: some of them get a 503, and a
/// well-behaved client is served meanwhile.
fn stall(server: &Server, path: &str, headers: &[&str], fine: &str) {
    const ALMOST: usize = 1024 * 1024 - 1;
    let headers_text: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers_text}Content-Length: {}\r\n\r\n",
        ALMOST + 1
    );
    let part = [head.as_bytes(), &vec![b' '; ALMOST]].concat();
    let url = format!("http://{}{path}", server.address);
    let with: Vec<&str> = headers.iter().flat_map(|header| ["-H", header]).collect();
    let mut stalling: Vec<TcpStream> = (0..500)
        .map(|nth| {
            let mut stream = TcpStream::connect(&server.address).expect("a connection");
            stream.set_write_timeout(Some(LONG)).expect("a deadline");
            stream.set_read_timeout(Some(LONG)).expect("a deadline");
            // A client that is turned away may find out while it sends.
            let _ = stream.write_all(&part);
            if nth % 50 == 0 {
                assert_eq!(status(&[&with[..], &["-d", "{}", &url]].concat()), fine);
            }
            stream
        })
        .collect();
    let mut answer = String::new();
    let _ = stalling.last_mut().expect("500").read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer:?}");
    assert!(answer.contains("retry-after: ") && answer.contains("HX0309"), "{answer}");
    assert_eq!(status(&[&with[..], &["-d", "{}", &url]].concat()), fine);
    let peak = server.peak_mb();
    assert!(peak < 256, "{peak} MB");
    // The memory that they held is free again.
    drop(stalling);
    let large = LedgerDir::new();
    std::fs::write(large.path("large.json"), [b"{}", &vec![b' '; 900_000][..]].concat())
        .expect("written");
    let large = format!("@{}", large.path("large.json").display());
    let send = [&with[..], &["--data-binary", &large, &url]].concat();
    wait_until("there is room again", || status(&send) != "503");
}

/// Proves S-6 for floods: 500 clients that send almost all of a large body and stall do not cost
/// more memory than there is for bodies.
#[test]
fn bodies_share_their_memory() {
    const JSON: &str = "Content-Type: application/json";
    let (dir, service) = (LedgerDir::new(), Service::start());
    let server = Server::start(&dir, &["dev", "--listen", "127.0.0.1:0"]);
    let claim = format!("http://{}/v1/effects/a/claim", server.address);
    assert_eq!(status(&["-H", JSON, "-d", "{}", &claim]), "200");
    stall(&server, "/v1/effects/a/claim", &[JSON], "409");
    server.stop();
    let words = ["proxy", "--listen", "127.0.0.1:0", "--upstream", service.url()];
    stall(&Server::start(&dir, &words), "/charges", &[JSON, "Idempotency-Key: k"], "201");
}

/// Proves S-6 for floods: 500 connections that drip, bodies without end, depth and packed bombs;
/// memory stays bounded, and well-behaved clients are served.
#[test]
fn floods_are_survived() {
    const JSON: &str = "Content-Type: application/json";
    let dir = LedgerDir::new();
    for command in ["dev", "serve"] {
        let server = Server::start(&dir, &[command, "--listen", "127.0.0.1:0"]);
        let made = dir.hapax(&["token", "create", "--role", "operator"]).exits(0);
        let token = format!("Authorization: Bearer {}", made.out.trim());
        let claim = "/v1/effects/a/claim";
        let url = format!("http://{}{claim}", server.address);
        let attempt = "01".repeat(16);
        let attempt = format!(r#"{{"attempt":"att_{attempt}","deadline_ms":600000}}"#);
        assert_eq!(status(&["-H", &token, "-H", JSON, "-d", &attempt, &url]), "200");
        flood(&server, claim, &[JSON, &token], "409");
        let bomb = dir.path("bomb.json");
        std::fs::write(&bomb, format!("{}{}", "[".repeat(500_000), "]".repeat(500_000)))
            .expect("written");
        let bomb = format!("@{}", bomb.display());
        assert_eq!(status(&["-H", &token, "-H", JSON, "-d", &bomb, &url]), "400");
        let packed = format!(
            "head -c 268435456 /dev/zero | gzip -1 | curl -sS -o /dev/null -w '%{{http_code}}' \
             -H '{JSON}' -H '{token}' -H 'Content-Encoding: gzip' --data-binary @- {url}"
        );
        let sent = Command::new("sh").args(["-c", &packed]).output();
        assert_eq!(String::from_utf8_lossy(&sent.expect("sh").stdout), "415");
        assert_eq!(status(&["-H", &token, "-H", JSON, "-d", &attempt, &url]), "200");
        let peak = server.peak_mb();
        assert!(peak < 256, "{peak} MB");
    }
}

/// Proves S-6 for floods of the proxy: the same, and only one of all requests reaches the service.
#[test]
fn a_proxy_survives_floods() {
    let (dir, service) = (LedgerDir::new(), Service::start());
    let words = ["proxy", "--listen", "127.0.0.1:0", "--upstream", service.url()];
    let server = Server::start(&dir, &words);
    let headers = ["Content-Type: application/json", "Idempotency-Key: k"];
    flood(&server, "/charges", &headers, "201");
    assert_eq!(service.calls(), 1);
}
