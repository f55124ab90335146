//! The upstream of the proxy: a service that knows nothing of keys.

mod forwarded;

use std::convert::Infallible;
use std::error::Error as _;
use std::future::Future;
use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum_core::body::Body;
use hapax::{Finding, Outcome};
use http::header::{
    CONNECTION, HOST, HeaderName, LOCATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use http_body::Body as _;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tower_service::Service;

use crate::idempotency::{PendingRequest, RecordedReason, Settings, Settlement, written_down};
use crate::listener::Peer;
use crate::problem::{NO_ANSWER, Problem, TOO_LARGE, UNREACHABLE};

/// Headers of a single connection, which are not passed on.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authenticate"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The service behind the proxy.
#[derive(Clone)]
pub struct Upstream {
    inner: Arc<Inner>,
    preserves_host: bool,
}

struct Inner {
    scheme: Scheme,
    authority: Authority,
    /// The scheme and the host, as they begin a location at the upstream.
    origin: String,
    /// The path of the upstream's URL, which goes before the path of a request.
    base: String,
    timeout: Duration,
    client: Client<HttpsConnector<HttpConnector>, Body>,
}

/// Why an upstream was refused.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The URL is not an http or https URL with a host.
    #[error("{0:?} is not an http or https URL with a host")]
    Url(String),
    /// No certificates are trusted on this machine.
    #[error("no trusted certificates: {0}")]
    Certificates(std::io::Error),
}

impl Upstream {
    /// The service at this URL, which must answer within `timeout`.
    pub fn new(url: &str, timeout: Duration) -> Result<Self, UpstreamError> {
        let refuse = || UpstreamError::Url(url.chars().take(200).collect());
        let uri: Uri = url.parse().map_err(|_| refuse())?;
        let scheme = uri.scheme().filter(|scheme| matches!(scheme.as_str(), "http" | "https"));
        let (Some(scheme), Some(authority)) = (scheme.cloned(), uri.authority().cloned()) else {
            return Err(refuse());
        };
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        // At most half of it, so that a slow connect fails before anything was sent.
        connector.set_connect_timeout(Some((timeout / 2).min(Duration::from_secs(10))));
        let connector = HttpsConnectorBuilder::new()
            .with_native_roots()
            .map_err(UpstreamError::Certificates)?
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            // Shorter than services keep idle connections open. A request on a connection that the
            // service has just closed is lost, and its outcome unknown.
            .pool_idle_timeout(Duration::from_secs(3))
            .pool_timer(TokioTimer::new())
            .build(connector);
        let base = uri.path().trim_end_matches('/').to_owned();
        let host = authority.as_str().rsplit('@').next().unwrap_or_default();
        let origin = format!("{scheme}://{host}");
        let inner = Arc::new(Inner { scheme, authority, origin, base, timeout, client });
        Ok(Self { inner, preserves_host: false })
    }

    /// The same service, which gets the client's `Host` in place of its own.
    pub fn preserve_host(self) -> Self {
        Self { preserves_host: true, ..self }
    }

    /// Asks the service whether a request happened. `{key}`, `{tenant}`, `{caller}` and `{path}` in
    /// `path` stand for those of the request. 2xx means that it happened: this answer is stored as
    /// `settings` say, and replayed. 404 and 410 mean that it did not happen. With any other answer
    /// the outcome stays unknown.
    pub async fn probe(
        &self,
        path: &str,
        pending: &PendingRequest,
        settings: &Settings,
    ) -> Finding {
        let asking = tokio::time::timeout(self.inner.timeout, self.ask(path, pending, settings));
        asking.await.unwrap_or_else(|_| Finding::CannotTell("the probe was not answered".into()))
    }

    async fn ask(&self, path: &str, pending: &PendingRequest, settings: &Settings) -> Finding {
        let unknown = |reason: String| Finding::CannotTell(reason);
        // As a segment of a path, `.` and `..` lead elsewhere, even percent-encoded.
        let segments = [&pending.key, &pending.tenant, &pending.caller];
        if segments.iter().any(|text| matches!(text.as_str(), "." | "..")) {
            return unknown("the key cannot be a path segment".into());
        }
        let path = path
            .replace("{key}", &escape(&pending.key))
            .replace("{tenant}", &escape(&pending.tenant))
            .replace("{caller}", &escape(&pending.caller))
            .replace("{path}", &escape(&pending.path));
        let uri = path.parse().ok().and_then(|path| self.inner.upstream_uri(&path));
        let request = uri.and_then(|uri| Request::get(uri).body(Body::empty()).ok());
        let Some(request) = request else {
            return unknown("the path of the probe is invalid".into());
        };
        let response = match self.inner.forward(request, false).await {
            Ok(response) => response,
            Err(error) => return unknown(error.to_string()),
        };
        match response.status() {
            status if status.is_success() => match written_down(settings, response).await {
                Ok(answer) => Finding::Happened(Outcome::new(answer)),
                Err(error) => unknown(error.to_string()),
            },
            StatusCode::NOT_FOUND | StatusCode::GONE => Finding::NotFound,
            status => unknown(format!("the probe was answered {status}")),
        }
    }
}

/// Percent-encodes a text as one segment of a path.
fn escape(key: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    key.bytes().fold(String::new(), |mut text, byte| {
        match plain(byte) {
            true => text.push(char::from(byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
        text
    })
}

impl Inner {
    /// The URL at the upstream; none if it would be too long.
    fn upstream_uri(&self, uri: &Uri) -> Option<Uri> {
        let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(format!("{}{path}", self.base).parse().ok()?);
        Uri::from_parts(parts).ok()
    }

    async fn forward(
        &self,
        request: Request<Body>,
        preserves_host: bool,
    ) -> Result<Response<hyper::body::Incoming>, hyper_util::client::legacy::Error> {
        let (mut head, body) = request.into_parts();
        head.version = http::Version::HTTP_11;
        // First of all: a client must not be able to name the headers that are added here.
        strip(&mut head.headers);
        if let Some(peer) = head.extensions.get::<Peer>() {
            forwarded::describe(&mut head.headers, *peer);
        }
        if !preserves_host {
            head.headers.remove(HOST);
        }
        if body.size_hint().exact().is_none() {
            head.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        let mut response = self.client.request(Request::from_parts(head, body)).await?;
        let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let path = location.and_then(|location| {
            forwarded::path_at_proxy(location, &self.origin, &self.base)?
                .parse::<HeaderValue>()
                .ok()
        });
        if let Some(path) = path {
            response.headers_mut().insert(LOCATION, path);
        }
        Ok(response)
    }
}

fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

impl Service<Request<Body>> for Upstream {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let (inner, preserves_host) = (self.inner.clone(), self.preserves_host);
        Box::pin(async move {
            let Some(uri) = inner.upstream_uri(request.uri()) else {
                let detail = "its path is too long for the service's address";
                let long = Problem::new(StatusCode::URI_TOO_LONG, &TOO_LARGE, detail);
                return Ok(recorded_as(long, Settlement::NotDone, detail));
            };
            *request.uri_mut() = uri;
            let forwarding = inner.forward(request, preserves_host);
            let answered = tokio::time::timeout(inner.timeout, forwarding).await;
            Ok(match answered {
                Ok(Ok(mut response)) => {
                    strip(response.headers_mut());
                    response.map(Body::new)
                }
                Ok(Err(error)) => failed(&error),
                Err(_) => {
                    let limit = format!("within {} s", inner.timeout.as_secs_f64());
                    let detail = format!("nothing came {limit}");
                    let late = Problem::new(StatusCode::GATEWAY_TIMEOUT, &NO_ANSWER, detail);
                    let reason = format!("the upstream did not answer {limit}");
                    recorded_as(late, Settlement::Unknown, reason)
                }
            })
        })
    }
}

/// The answer to a failed call: only a failure to connect proves that nothing was sent.
fn failed(error: &hyper_util::client::legacy::Error) -> Response<Body> {
    tracing::warn!(name: "upstream_silent", %error, "the upstream did not answer");
    let causes = || std::iter::successors(error.source(), |&cause| cause.source());
    let cause = causes().last().map_or_else(|| error.to_string(), ToString::to_string);
    if !error.is_connect() {
        let problem = Problem::new(StatusCode::BAD_GATEWAY, &NO_ANSWER, "the connection broke off");
        let reason = format!("the connection to the upstream broke off before its answer: {cause}");
        return recorded_as(problem, Settlement::Unknown, reason);
    }
    let is_refused = causes().any(|cause| {
        let cause = cause.downcast_ref::<std::io::Error>();
        cause.is_some_and(|cause| cause.kind() == ErrorKind::ConnectionRefused)
    });
    let reason = match is_refused {
        true => "the upstream refused the connection; nothing was sent".to_owned(),
        false => format!("no connection to the upstream, so nothing was sent: {cause}"),
    };
    let problem =
        Problem::new(StatusCode::BAD_GATEWAY, &UNREACHABLE, "no connection could be made");
    recorded_as(problem, Settlement::NotDone, reason)
}

/// The response for a problem that the proxy found itself, with its meaning for the ledger.
fn recorded_as(problem: Problem, fate: Settlement, reason: impl Into<String>) -> Response<Body> {
    let mut response = problem.into_response();
    response.extensions_mut().insert(fate);
    response.extensions_mut().insert(RecordedReason(reason.into()));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hop_by_hop_headers_are_not_passed_on() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("connection", "close, X-Mine"), ("x-mine", "1"), ("x-yours", "1")] {
            headers.insert(HeaderName::from_static(name), value.parse().unwrap());
        }
        strip(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-yours"]);
    }

    #[test]
    fn odd_upstreams_are_refused() {
        for odd in ["", "localhost:80", "ftp://example.org", "/path"] {
            assert!(Upstream::new(odd, Duration::from_secs(1)).is_err(), "{odd}");
        }
    }

    #[test]
    fn keys_stay_in_their_place() {
        assert_eq!(escape("a/b?c=../é"), "a%2Fb%3Fc%3D..%2F%C3%A9");
    }
}
