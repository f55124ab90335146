//! An HTTP server that gives the answers that a test sets, and records its requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, Uri};

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Got {
    pub(crate) method: Method,
    pub(crate) uri: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// An answer: a status, headers, a body.
pub(crate) type Answer = (u16, Vec<(&'static str, String)>, Vec<u8>);

#[derive(Default)]
struct Memory {
    got: Vec<Got>,
    answers: HashMap<String, Answer>,
    stalled: bool,
    honours_keys: bool,
    by_key: HashMap<String, Answer>,
    done: u32,
}

/// The server, for as long as the test runs.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) port: u16,
    memory: Arc<Mutex<Memory>>,
}

impl Site {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let site = Self { port, memory: Arc::default() };
        let app = Router::new().fallback(serve).with_state(site.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        site
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Sets the answer to requests for this path.
    pub(crate) fn answers(&self, path: &str, status: u16, body: impl Into<Vec<u8>>) {
        let json = vec![("content-type", "application/json".to_owned())];
        self.answers_with(path, (status, json, body.into()));
    }

    pub(crate) fn answers_with(&self, path: &str, answer: Answer) {
        self.memory().answers.insert(path.to_owned(), answer);
    }

    /// From now on, requests are taken and not answered.
    pub(crate) fn stall(&self) {
        self.memory().stalled = true;
    }

    /// From now on, a request with a known key gets the first answer again.
    pub(crate) fn honour_keys(&self) {
        self.memory().honours_keys = true;
    }

    pub(crate) fn got(&self) -> Vec<Got> {
        self.memory().got.clone()
    }

    /// How many mutations it has performed.
    pub(crate) fn done(&self) -> u32 {
        self.memory().done
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().expect("no panic")
    }
}

async fn serve(
    State(site): State<Site>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let answer = {
        let mut memory = site.memory();
        let body = String::from_utf8_lossy(&body).into_owned();
        let got = Got { method: method.clone(), uri: uri.to_string(), headers, body };
        let key = got.header("idempotency-key").or(got.header("webhook-id")).map(str::to_owned);
        memory.got.push(got);
        let known = key.as_ref().filter(|_| memory.honours_keys);
        match known.and_then(|key| memory.by_key.get(key)).cloned() {
            Some(answer) => answer,
            None => {
                let answer = memory.answers.get(uri.path()).cloned();
                let answer = answer.unwrap_or_else(|| (404, Vec::new(), Vec::new()));
                if !method.is_safe() && (200..300).contains(&answer.0) {
                    memory.done += 1;
                }
                if let Some(key) = key {
                    memory.by_key.insert(key, answer.clone());
                }
                answer
            }
        }
    };
    let stalled = site.memory().stalled;
    if stalled {
        tokio::time::sleep(Duration::from_secs(3600)).await;
    }
    let (status, headers, body) = answer;
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    response.body(Body::from(body)).expect("a response")
}
