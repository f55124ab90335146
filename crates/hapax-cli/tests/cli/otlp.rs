//! What a collector is told. `cargo xtask contract` has it decoded by somebody else's program.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use super::serve::{Server, curl};
use super::{Place, wait_until};

/// What was told: a path, a content type, a body.
type Message = (String, String, Vec<u8>);

/// Something that listens as collectors do, and keeps what it is told.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Message>>>);

impl Collector {
    fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let kept = self.0.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let kept = kept.clone();
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(client.try_clone().expect("a copy"));
                    let mut line = String::new();
                    while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
                        let path = line.split_whitespace().nth(1).unwrap_or_default().to_owned();
                        let (mut length, mut kind) = (0, String::new());
                        line.clear();
                        while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                            let header = line.to_lowercase();
                            if let Some(value) = header.strip_prefix("content-length:") {
                                length = value.trim().parse().expect("a length");
                            }
                            if let Some(value) = header.strip_prefix("content-type:") {
                                kind = value.trim().to_owned();
                            }
                            line.clear();
                        }
                        line.clear();
                        let mut body = vec![0; length];
                        reader.read_exact(&mut body).expect("a body");
                        kept.lock().expect("no panic").push((path, kind, body));
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                        let _ = (&client).write_all(answer);
                    }
                });
            }
        });
        url
    }

    /// Whether something was told under this path that has these bytes in it.
    fn heard(&self, path: &str, bytes: &[u8]) -> bool {
        let kept = self.0.lock().expect("no panic");
        kept.iter().any(|(told, kind, body)| {
            told == path
                && kind == "application/x-protobuf"
                && body.windows(bytes.len()).any(|window| window == bytes)
        })
    }
}

/// Proves P-15 for OTLP: the names of the specification, and spans that are the caller's children.
#[test]
fn a_collector_is_told() {
    let (place, collector) = (Place::new(), Collector::default());
    let mut command = place.command(&["dev", "--listen", "127.0.0.1:0"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.start());
    command.env("OTEL_METRIC_EXPORT_INTERVAL", "100");
    let server = Server::started(command.spawn().expect("it starts"));
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let parent = format!("traceparent: 00-{trace}-b7ad6b7169203331-01");
    let url = format!("http://{}/v1/effects/a", server.address);
    curl(&["-H", &parent, &url]);
    for name in ["kfm.idempotent_replays", "kfm.lock_acquire_failures", "hapax.outbox.pending"] {
        wait_until(name, || collector.heard("/v1/metrics", name.as_bytes()));
    }
    // What is left is told before the end.
    assert_eq!(server.stop().0, Some(0));
    let id: Vec<u8> = (0..16)
        .map(|at| u8::from_str_radix(&trace[2 * at..2 * at + 2], 16).expect("hex"))
        .collect();
    assert!(collector.heard("/v1/traces", &id), "the span is part of the caller's trace");
    assert!(collector.heard("/v1/traces", b"GET /v1/effects/{key}"));
}
