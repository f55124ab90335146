//! The upstream of the proxy: a service that knows nothing of keys.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum_core::body::Body;
use hapax::{Finding, Outcome};
use http::header::{CONNECTION, HOST, HeaderName, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use http_body::Body as _;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tower_service::Service;

use crate::idempotency::{PendingRequest, Settings, Settlement, written_down};
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
}

struct Inner {
    scheme: Scheme,
    authority: Authority,
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
        Ok(Self { inner: Arc::new(Inner { scheme, authority, base, timeout, client }) })
    }

    /// Asks the service whether a request happened. `{key}`, `{tenant}` and `{path}` in `path`
    /// stand for those of the request. 2xx means that it happened: this answer is stored as
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
        if [&pending.key, &pending.tenant].iter().any(|text| matches!(text.as_str(), "." | "..")) {
            return unknown("the key cannot be a path segment".into());
        }
        let path = path
            .replace("{key}", &escape(&pending.key))
            .replace("{tenant}", &escape(&pending.tenant))
            .replace("{path}", &escape(&pending.path));
        let uri = path.parse().ok().and_then(|path| self.inner.upstream_uri(&path));
        let request = uri.and_then(|uri| Request::get(uri).body(Body::empty()).ok());
        let Some(request) = request else {
            return unknown("the path of the probe is invalid".into());
        };
        let response = match self.inner.forward(request).await {
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
    ) -> Result<Response<hyper::body::Incoming>, hyper_util::client::legacy::Error> {
        let (mut head, body) = request.into_parts();
        head.version = http::Version::HTTP_11;
        head.headers.remove(HOST);
        strip(&mut head.headers);
        if body.size_hint().exact().is_none() {
            head.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        self.client.request(Request::from_parts(head, body)).await
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
        let inner = self.inner.clone();
        Box::pin(async move {
            let Some(uri) = inner.upstream_uri(request.uri()) else {
                let detail = "its path is too long for the service's address";
                let long = Problem::new(StatusCode::URI_TOO_LONG, &TOO_LARGE, detail);
                return Ok(with_fate(long, Settlement::NotDone));
            };
            *request.uri_mut() = uri;
            let answered = tokio::time::timeout(inner.timeout, inner.forward(request)).await;
            Ok(match answered {
                Ok(Ok(mut response)) => {
                    strip(response.headers_mut());
                    response.map(Body::new)
                }
                Ok(Err(error)) => failed(&error),
                Err(_) => {
                    let detail = format!("nothing came within {} s", inner.timeout.as_secs_f64());
                    let late = Problem::new(StatusCode::GATEWAY_TIMEOUT, &NO_ANSWER, detail);
                    with_fate(late, Settlement::Unknown)
                }
            })
        })
    }
}

/// The answer to a failed call: only a failure to connect proves that nothing was sent.
fn failed(error: &hyper_util::client::legacy::Error) -> Response<Body> {
    tracing::warn!(name: "upstream_silent", %error, "the upstream did not answer");
    let (status, kind, fate, detail) = if error.is_connect() {
        (StatusCode::BAD_GATEWAY, &UNREACHABLE, Settlement::NotDone, "no connection could be made")
    } else {
        (StatusCode::BAD_GATEWAY, &NO_ANSWER, Settlement::Unknown, "the connection broke off")
    };
    with_fate(Problem::new(status, kind, detail), fate)
}

fn with_fate(problem: Problem, fate: Settlement) -> Response<Body> {
    let mut response = problem.into_response();
    response.extensions_mut().insert(fate);
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
