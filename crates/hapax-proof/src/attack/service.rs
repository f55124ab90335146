//! The servers of an attack: two nodes, the proxy, and the service behind it.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use rustix::process::Signal;

use super::{Attack, FIRST_BY, signal};
use crate::sink::{Answer, Client, Rule};

/// A service without deduplication: it executes every request, and answers with the number of the call
/// that did it. Prints its port, then serves until it is killed.
pub fn upstream(sink: u16) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        // Its numbers are far from those of callers that come in elsewhere.
        let calls = Arc::new(AtomicU64::new(FIRST_BY + FIRST_BY / 2));
        let routes = Router::new().route("/{target}", post(perform)).with_state((sink, calls));
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await;
        let listener = listener.map_err(|error| error.to_string())?;
        println!("{}", listener.local_addr().map_err(|error| error.to_string())?.port());
        axum::serve(listener, routes).await.map_err(|error| error.to_string())
    })
}

async fn perform(
    State((sink, calls)): State<(u16, Arc<AtomicU64>)>,
    Path(target): Path<String>,
    work_ms: String,
) -> Result<String, StatusCode> {
    let by = calls.fetch_add(1, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(work_ms.parse().unwrap_or(0))).await;
    let done = tokio::task::spawn_blocking(move || {
        Client::connect(sink).and_then(|mut sink| sink.execute(&target, by, 0, Rule::Plain))
    });
    match done.await {
        Ok(Ok(Answer::Found(by))) => Ok(by.to_string()),
        _ => Err(StatusCode::BAD_GATEWAY),
    }
}

/// The servers, by their names.
pub(super) struct Services<'a> {
    attack: &'a Attack,
    upstream: Child,
    upstream_port: u16,
    /// Two nodes and the proxy.
    children: [Option<Child>; 3],
}

impl<'a> Services<'a> {
    pub(super) fn start(attack: &'a Attack) -> Self {
        let mut upstream = Command::new(crate::own_program())
            .args(["upstream", &attack.sink.port.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the service starts");
        let mut line = String::new();
        let output = upstream.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("its port");
        let upstream_port = line.trim().parse().expect("a port");
        let mut services = Self { attack, upstream, upstream_port, children: [None, None, None] };
        for nth in 0..services.children.len() {
            services.restart(nth);
        }
        services
    }

    pub(super) fn name(nth: usize) -> &'static str {
        if nth < 2 { "nodes" } else { "proxies" }
    }

    /// Ends a server as a crash does, and starts it again.
    pub(super) fn restart(&mut self, nth: usize) {
        self.end(nth);
        let attack = self.attack;
        let port = match nth {
            2 => attack.proxy,
            _ => attack.nodes[nth],
        };
        let listen = format!("127.0.0.1:{port}");
        // The first node and the proxy go through the relay, where there is one.
        let way = match (&attack.detour, nth) {
            (Some(detour), 0 | 2) => detour,
            _ => &attack.ledger,
        };
        let mut command = attack.hapax(way);
        match nth {
            2 => {
                let upstream = format!("http://127.0.0.1:{}", self.upstream_port);
                command.args(["proxy", "--upstream", &upstream, "--timeout", "5s"]);
            }
            _ => {
                command.arg("dev");
            }
        }
        command.args(["--listen", &listen]);
        self.children[nth] = Some(command.spawn().expect("a server starts"));
    }

    /// Waits until a server listens, for a few seconds: its ledger may be away.
    pub(super) fn is_up(&self, nth: usize) -> bool {
        let port = if nth == 2 { self.attack.proxy } else { self.attack.nodes[nth] };
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// Stops a server, or lets it go on.
    pub(super) fn stop(&self, nth: usize, stopped: bool) {
        if let Some(child) = &self.children[nth] {
            signal(child.id(), if stopped { Signal::STOP } else { Signal::CONT });
        }
    }

    /// Restarts the servers that have ended by themselves, as a service manager does.
    pub(super) fn revive(&mut self) -> u64 {
        let mut ended = 0;
        for nth in 0..self.children.len() {
            let gone = self.children[nth].as_mut().map(|child| child.try_wait());
            if !matches!(gone, Some(Ok(None))) {
                ended += 1;
                self.restart(nth);
            }
        }
        ended
    }

    fn end(&mut self, nth: usize) {
        if let Some(mut child) = self.children[nth].take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Services<'_> {
    fn drop(&mut self) {
        for nth in 0..self.children.len() {
            self.end(nth);
        }
        let _ = self.upstream.kill();
        let _ = self.upstream.wait();
    }
}
