//! A mock endpoint in this process, on a port of its own, that plays a test's answers and keeps
//! every request that reaches it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Barrier;

/// The endpoint's reaction to one request.
#[derive(Debug, Clone)]
pub(crate) enum Play {
    /// A completion with this text.
    Completes(String),
    /// A completion that the limit on tokens ended.
    CutOff(String),
    /// A status, headers and a body, as they are.
    Answers(u16, Vec<(&'static str, String)>, String),
    /// A status, with the key of the request in its message.
    Echoes(u16),
    /// Nothing, for as long as the client waits.
    Stalls,
    /// The first bytes of an answer, and then the connection is lost.
    Breaks,
    /// The connection is lost before there is an answer.
    Vanishes,
    /// A completion, once enough other requests are here.
    Meets(String, Arc<Barrier>),
}

/// A request that came in.
pub(crate) struct HttpRequest {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

#[derive(Default)]
struct Stage {
    plays: Mutex<VecDeque<Play>>,
    requests: Mutex<Vec<HttpRequest>>,
    inside: AtomicUsize,
    most_inside: AtomicUsize,
}

/// The endpoint.
pub(crate) struct StandIn {
    address: SocketAddr,
    stage: Arc<Stage>,
}

impl StandIn {
    /// An endpoint that plays these in turn, and then refuses every request.
    pub(crate) async fn playing(plays: impl IntoIterator<Item = Play>) -> Self {
        let stage = Arc::new(Stage::default());
        stage.plays.lock().expect("no thread panicked").extend(plays);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let app = Router::new().fallback(answer).with_state(Arc::clone(&stage));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, stage }
    }

    pub(crate) fn base(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// How many requests have come in.
    pub(crate) fn calls(&self) -> u64 {
        self.stage.requests.lock().expect("no thread panicked").len() as u64
    }

    /// The bodies of all requests.
    pub(crate) fn bodies(&self) -> Vec<Value> {
        let requests = self.stage.requests.lock().expect("no thread panicked");
        requests.iter().map(|request| request.body.clone()).collect()
    }

    /// The result of a function on one request.
    pub(crate) fn request<T>(&self, nth: usize, look: impl Fn(&HttpRequest) -> T) -> T {
        look(&self.stage.requests.lock().expect("no thread panicked")[nth])
    }

    /// How many requests were answered at the same time, at most.
    pub(crate) fn most_inside(&self) -> usize {
        self.stage.most_inside.load(SeqCst)
    }
}

async fn answer(State(stage): State<Arc<Stage>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 16 << 20).await.expect("a body");
    let body = serde_json::from_slice(&body).expect("a JSON body");
    let shown = head.headers.get("authorization").and_then(|shown| shown.to_str().ok());
    let shown = shown.unwrap_or_default().to_owned();
    let received = HttpRequest { path: head.uri.path().to_owned(), headers: head.headers, body };
    stage.requests.lock().expect("no thread panicked").push(received);
    let play = stage.plays.lock().expect("no thread panicked").pop_front();
    let inside = stage.inside.fetch_add(1, SeqCst) + 1;
    stage.most_inside.fetch_max(inside, SeqCst);
    let response = perform(play, &shown).await;
    stage.inside.fetch_sub(1, SeqCst);
    response
}

async fn perform(play: Option<Play>, shown: &str) -> Response {
    match play {
        None => plain(501, json!({ "error": "the stand-in has nothing left" }).to_string()),
        Some(Play::Completes(text)) => completion(&text, "stop"),
        Some(Play::CutOff(text)) => completion(&text, "length"),
        Some(Play::Answers(status, headers, body)) => {
            let mut response = plain(status, body);
            for (name, value) in headers {
                let value = value.parse().expect("a header");
                response.headers_mut().insert(name, value);
            }
            response
        }
        Some(Play::Echoes(status)) => {
            let message = format!("what is this: {shown}? {shown}");
            plain(status, json!({ "error": { "message": message } }).to_string())
        }
        Some(Play::Stalls) => std::future::pending().await,
        Some(Play::Breaks) => {
            let begun = Ok(Bytes::from_static(b"{\"choices\": [{\"message\": {\"content\": \"{"));
            let gone = Err(std::io::Error::other("the connection goes"));
            // The server sends written bytes whenever there is nothing to write, so the stream has
            // nothing for a moment.
            let pieces = stream::iter([begun, gone]).then(async |piece| {
                tokio::task::yield_now().await;
                piece
            });
            Response::new(Body::from_stream(pieces))
        }
        Some(Play::Vanishes) => {
            let gone = Err::<Bytes, _>(std::io::Error::other("the connection goes"));
            Response::new(Body::from_stream(stream::iter([gone])))
        }
        Some(Play::Meets(text, others)) => {
            others.wait().await;
            completion(&text, "stop")
        }
    }
}

fn completion(text: &str, end: &str) -> Response {
    let body = json!({
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "choices": [{
            "index": 0,
            "message": { "role": "assistant", "content": text, "refusal": null },
            "finish_reason": end,
        }],
        "usage": { "prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110 },
    });
    plain(200, body.to_string())
}

fn plain(status: u16, body: String) -> Response {
    let body = Body::from_stream(stream::iter([Ok::<_, Infallible>(Bytes::from(body))]));
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    response
}
