//! HTTP requests to servers that other operators run.
//!
//! ```text
//!  look up ──▶ connect ──▶ send ──▶ head ──▶ body
//!  └─ nothing was sent ─┘  └─ it may have been ─┘
//! ```
//!
//! A name is looked up once for each connection, and private addresses are refused unless they are
//! allowed. Redirects are not followed, a request that may have been received is not repeated, and
//! an answer is read only up to the given limit.

mod address;

use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{HOST, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::{Instant, timeout_at};
use tower_service::Service as _;

use address::{Private, Resolver};

pub use address::is_public;

/// The longest wait that a `Retry-After` header may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// Sends requests and reads answers.
#[derive(Clone)]
pub struct Client {
    connector: HttpsConnector<HttpConnector<Resolver>>,
    pool: legacy::Client<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>,
    allow_private: bool,
}

/// How a client connects, and where to.
#[derive(Debug, Clone, Copy)]
pub struct Reach {
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// Whether a server may have a private address.
    pub allow_private: bool,
}

/// The answer of a server.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, if that could be read.
    pub body: Result<Bytes, Unread>,
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// The server has an address that is not allowed. Nothing was sent.
    #[error("{0}")]
    Private(String),
    /// There is no connection. Nothing was sent.
    #[error("{0}")]
    Unreachable(String),
    /// It may have been received, all of it or a part.
    #[error("{0}")]
    Lost(String),
    /// It may have been received, and the answer takes too long.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Late(Duration),
}

/// Why the body of an answer could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// It is larger than the limit.
    #[error("it has more than {0} bytes")]
    TooLarge(usize),
    /// It broke off.
    #[error("it broke off: {0}")]
    Broken(String),
    /// It takes too long.
    #[error("it broke off: not complete within {} s", .0.as_secs_f64())]
    Late(Duration),
}

impl Client {
    /// A client that trusts the certificates of this machine, of which there have to be some.
    pub fn new(reach: Reach) -> io::Result<Self> {
        let resolver = Resolver { allow_private: reach.allow_private };
        let mut connector = HttpConnector::new_with_resolver(resolver);
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(reach.connect_timeout));
        let connector = HttpsConnectorBuilder::new()
            .with_native_roots()?
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let pool = legacy::Client::builder(TokioExecutor::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .pool_timer(TokioTimer::new())
            .build(connector.clone());
        Ok(Self { connector, pool, allow_private: reach.allow_private })
    }

    /// Sends a request over a connection that is kept for the next one.
    ///
    /// A server may close a connection at the moment it is used again. A caller that has to know
    /// for certain whether its request was sent uses [`send_alone`](Self::send_alone).
    pub async fn send(
        &self,
        request: Request<Full<Bytes>>,
        timeout: Duration,
        most: usize,
    ) -> Result<Answer, Unanswered> {
        self.admit(request.uri())?;
        let deadline = Instant::now() + timeout;
        let answered = timeout_at(deadline, self.pool.request(request)).await;
        let response =
            answered.map_err(|_| Unanswered::Late(timeout))?.map_err(|error| {
                match error.is_connect() {
                    true => unreachable(&error),
                    false => Unanswered::Lost(chain(&error)),
                }
            })?;
        Ok(read(response, deadline, timeout, most).await)
    }

    /// Sends a request over a connection of its own, so that errors before it was sent can be told
    /// apart from errors after it.
    pub async fn send_alone(
        &self,
        mut request: Request<Full<Bytes>>,
        timeout: Duration,
        most: usize,
    ) -> Result<Answer, Unanswered> {
        let uri = request.uri().clone();
        self.admit(&uri)?;
        let deadline = Instant::now() + timeout;
        let mut connector = self.connector.clone();
        let connected = timeout_at(deadline, connector.call(uri.clone())).await;
        let slow = |_| Unanswered::Unreachable(format!("no connection within {timeout:?}"));
        let stream = connected.map_err(slow)?.map_err(|error| unreachable(&*error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream)
            .await
            .map_err(|error| Unanswered::Unreachable(chain(&error)))?;
        // Ends with the request: no other request uses it.
        let _running = Running(tokio::spawn(async move {
            let _ = connection.await;
        }));
        set_origin_form(&mut request, &uri);
        let answered = timeout_at(deadline, sender.send_request(request)).await;
        let response = answered
            .map_err(|_| Unanswered::Late(timeout))?
            .map_err(|error| Unanswered::Lost(chain(&error)))?;
        Ok(read(response, deadline, timeout, most).await)
    }

    /// Checks an address in a URL. A name is checked when it is looked up.
    fn admit(&self, uri: &Uri) -> Result<(), Unanswered> {
        match uri.host().and_then(literal) {
            Some(address) if !self.allow_private && !is_public(address) => {
                Err(Unanswered::Private(format!("{address} is a private address")))
            }
            _ => Ok(()),
        }
    }
}

/// The address of a host that is given as an address and not as a name.
pub fn literal(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// The wait that a server asks for by `Retry-After`, in seconds or as a date; returned in
/// milliseconds.
pub fn retry_after(headers: &HeaderMap) -> Option<u64> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = httpdate::parse_http_date(text).ok()?;
            at.duration_since(SystemTime::now()).unwrap_or_default()
        }
    };
    Some(wait.min(LONGEST_WAIT).as_millis() as u64)
}

/// A task that ends when it is dropped.
struct Running(tokio::task::JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn set_origin_form(request: &mut Request<Full<Bytes>>, uri: &Uri) {
    let host = match (uri.host(), uri.port_u16()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (host, _) => host.unwrap_or_default().to_owned(),
    };
    if let Ok(host) = HeaderValue::try_from(host) {
        request.headers_mut().insert(HOST, host);
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().unwrap_or_else(|_| Uri::from_static("/"));
}

async fn read(
    response: Response<Incoming>,
    deadline: Instant,
    timeout: Duration,
    most: usize,
) -> Answer {
    let (head, body) = response.into_parts();
    let body = match timeout_at(deadline, Limited::new(body, most).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Unread::TooLarge(most)),
        Ok(Err(error)) => Err(Unread::Broken(chain(&*error))),
        Err(_) => Err(Unread::Late(timeout)),
    };
    Answer { status: head.status, headers: head.headers, body }
}

fn unreachable(error: &(dyn Error + 'static)) -> Unanswered {
    let mut cause = Some(error);
    while let Some(inner) = cause {
        let io = inner.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(private) = io.and_then(|inner| inner.downcast_ref::<Private>()) {
            return Unanswered::Private(private.to_string());
        }
        cause = inner.source();
    }
    Unanswered::Unreachable(chain(error))
}

/// An error and its causes.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
