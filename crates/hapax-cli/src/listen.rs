//! `hapax listen`: receive webhooks on loopback, check their signatures, and print them.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use hapax_sinks::webhook::{Secret, verify};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::args::{Global, Listen};
use crate::exit::{Exit, Failed};
use crate::output;

/// The largest request that is read, and how many are read at once.
const LARGEST: usize = 2 * 1024 * 1024;
const CLIENTS: usize = 64;

/// How far a sender's clock may be off.
const TOLERANCE: Duration = Duration::from_secs(300);

struct Inbox {
    secrets: Vec<Secret>,
    answer: StatusCode,
    /// The ids that came before.
    seen: Mutex<HashSet<String>>,
}

pub(crate) async fn main(global: &Global, args: &Listen) -> Result<Exit, Failed> {
    let secrets = args.secret.iter().map(|secret| Secret::parse(secret));
    let secrets = secrets.collect::<Result<_, _>>();
    let secrets = secrets.map_err(|error| Failed::usage(format!("--secret: {error}")))?;
    let answer = StatusCode::from_u16(args.answer).map_err(|_| {
        Failed::usage(format!("invalid --answer {}: not an HTTP status", args.answer))
    })?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)).await;
    let listener = listener
        .map_err(|error| Failed::new(Exit::Unreachable, format!("port {}: {error}", args.port)))?;
    let address =
        listener.local_addr().map_err(|error| Failed::new(Exit::Unreachable, error.to_string()))?;
    eprintln!("hapax: listening on http://{address}/; stop with Ctrl-C");
    let inbox = Arc::new(Inbox { secrets, answer, seen: Mutex::default() });
    let clients = Arc::new(Semaphore::new(CLIENTS));
    let json = global.json;
    loop {
        let Ok(client) = clients.clone().acquire_owned().await else { return Ok(Exit::Done) };
        let (stream, _) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                eprintln!("hapax: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let inbox = inbox.clone();
        tokio::spawn(async move {
            let _client = client;
            let service = service_fn(|request| receive(request, inbox.clone(), json));
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(10))
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                eprintln!("hapax: a connection ended: {error}");
            }
        });
    }
}

async fn receive(
    request: Request<Incoming>,
    inbox: Arc<Inbox>,
    json: bool,
) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    let (head, body) = request.into_parts();
    let body = tokio::time::timeout(Duration::from_secs(30), Limited::new(body, LARGEST).collect());
    let status = match body.await {
        Ok(Ok(body)) => inbox.take(&head.headers, &body.to_bytes(), json),
        _ => StatusCode::PAYLOAD_TOO_LARGE,
    };
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    Ok(response)
}

impl Inbox {
    /// Prints a message. Refuses one that none of the secrets signed, if there are any. One whose
    /// id came before is only reported.
    fn take(&self, headers: &http::HeaderMap, body: &[u8], json: bool) -> StatusCode {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let id = match self.secrets.is_empty() {
            true => header("webhook-id"),
            false => match verify(&self.secrets, header, body, now, TOLERANCE) {
                Ok(id) => Some(id),
                Err(error) => {
                    eprintln!("hapax: refused: {error}");
                    return StatusCode::UNAUTHORIZED;
                }
            },
        };
        let new = id.is_none_or(|id| {
            let mut seen = self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            seen.insert(id.to_owned())
        });
        let text = String::from_utf8_lossy(body);
        if json {
            output::json(&serde_json::json!({ "id": id, "new": new, "body": text }));
        } else if new {
            output::print(&text);
        } else {
            eprintln!("hapax: again: {}", id.unwrap_or_default());
        }
        self.answer
    }
}
