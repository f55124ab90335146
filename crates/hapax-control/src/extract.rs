//! Incoming HTTP requests, as an extractor for axum handlers.

use axum_core::extract::{FromRef, FromRequest, Request as HttpRequest};
use axum_core::response::{IntoResponse, Response};
use bytes::Bytes;
use hapax::canonical::canonical;
use hapax::json::Json;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt as _, Limited};

use crate::error::Error;
use crate::receive::ControlReceiver;
use crate::request::ControlRequest;

/// A request as it came in, not checked yet: hand it to [`ControlReceiver::receive`].
///
/// ```
/// use axum::extract::State;
/// use axum::routing::post;
/// use hapax::Hapax;
/// use hapax_control::{Error, Incoming, ControlReceiver, Registry};
///
/// async fn control(
///     State(receiver): State<ControlReceiver>,
///     Incoming(request): Incoming,
/// ) -> Result<Vec<u8>, Error> {
///     let done = receiver.receive(&request, |_payload| async { Ok("notified 3 nodes") }).await?;
///     Ok(done.body().unwrap_or_default().to_vec())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let hapax = Hapax::builder().in_memory();
/// let receiver = ControlReceiver::new(hapax, Registry::standard());
/// let app: axum::Router =
///     axum::Router::new().route("/control", post(control)).with_state(receiver);
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming(pub ControlRequest);

/// Why a request could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IncomingRejection {
    /// It is larger than the limit, or broke off.
    #[error("the request is larger than is accepted, or was cut off")]
    Body,
    /// A header is missing, sent twice, or cannot be read.
    #[error("the header {0} is missing, there twice, or not what it should be")]
    Header(&'static str),
}

impl<S> FromRequest<S> for Incoming
where
    ControlReceiver: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = IncomingRejection;

    async fn from_request(request: HttpRequest, state: &S) -> Result<Self, IncomingRejection> {
        let receiver = ControlReceiver::from_ref(state);
        let (head, body) = request.into_parts();
        let computation = header(&head.headers, ControlRequest::COMPUTATION)?;
        let computation =
            computation.ok_or(IncomingRejection::Header(ControlRequest::COMPUTATION))?.to_owned();
        let epoch =
            header(&head.headers, ControlRequest::EPOCH)?.and_then(|text| text.parse().ok());
        let epoch = epoch.ok_or(IncomingRejection::Header(ControlRequest::EPOCH))?;
        let key = match header(&head.headers, ControlRequest::KEY)? {
            Some(text) => {
                let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
                let key = bare.unwrap_or(text).parse();
                Some(key.map_err(|_| IncomingRejection::Header(ControlRequest::KEY))?)
            }
            None => None,
        };
        let body = Limited::new(body, receiver.largest).collect().await;
        let payload = body.map_err(|_| IncomingRejection::Body)?.to_bytes().to_vec();
        Ok(Self(ControlRequest { computation, epoch, key, payload }))
    }
}

/// The one value of a header.
fn header<'a>(
    headers: &'a HeaderMap,
    name: &'static str,
) -> Result<Option<&'a str>, IncomingRejection> {
    let mut values = headers.get_all(name).iter();
    let (value, more) = (values.next(), values.next());
    match (value.map(|value| value.to_str()), more) {
        (None, _) => Ok(None),
        (Some(Ok(text)), None) => Ok(Some(text)),
        _ => Err(IncomingRejection::Header(name)),
    }
}

impl IntoResponse for IncomingRejection {
    fn into_response(self) -> Response {
        let (status, code) = match self {
            Self::Body => (StatusCode::PAYLOAD_TOO_LARGE, "HX0303"),
            Self::Header(_) => (StatusCode::BAD_REQUEST, "HX0312"),
        };
        problem(status, "The request cannot be read", &self.to_string(), code, code)
    }
}

/// The error as an HTTP answer: a problem as in RFC 9457, under the name in the design. A sender
/// retries a `retryable` problem, and takes any other for a refusal.
impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let (status, title) = match &self {
            Self::Conflict { .. } => {
                (StatusCode::UNPROCESSABLE_ENTITY, "The key came with another payload")
            }
            Self::Epoch(_) => (StatusCode::CONFLICT, "It belongs to another epoch"),
            Self::KeyDerivation(_) => (StatusCode::BAD_REQUEST, "No key can be derived"),
            Self::Unavailable(_) | Self::Unrecorded(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, "The ledger cannot be asked")
            }
            Self::Failed { .. } | Self::Refused(_) => (StatusCode::BAD_GATEWAY, "It was not done"),
            Self::Unanswered { .. } => {
                (StatusCode::GATEWAY_TIMEOUT, "The outcome is not known yet")
            }
            Self::Ledger(hapax::Error::InFlight { .. } | hapax::Error::Locked { .. }) => {
                (StatusCode::CONFLICT, "Another attempt is running")
            }
            Self::Ledger(hapax::Error::Failed { .. }) => {
                (StatusCode::SERVICE_UNAVAILABLE, "It was not done")
            }
            Self::Ledger(_) => (StatusCode::CONFLICT, "The record needs attention first"),
        };
        // The message of a store may name files and hosts, which a remote sender must not see.
        let detail = match &self {
            Self::Unavailable(_) => "the ledger cannot record it, so nothing was done".to_owned(),
            Self::Unrecorded(_) => "it was done or begun, and is not written down yet".to_owned(),
            other => other.to_string(),
        };
        problem(status, title, &detail, self.page(), self.code())
    }
}

fn problem(status: StatusCode, title: &str, detail: &str, page: &str, error: &str) -> Response {
    // A request that is in flight or locked will be over soon, so a retry helps.
    let retryable = status.is_server_error() || page == "HX0201" || page == "HX0204";
    let document = Json::object([
        ("type", Json::text(&format!("urn:hapax:error:{page}"))),
        ("title", Json::text(title)),
        ("detail", Json::text(detail)),
        ("code", Json::text(page)),
        ("error", Json::text(error)),
        ("retryable", Json::Bool(retryable)),
    ]);
    let body = Bytes::from(canonical(&document).unwrap_or_default());
    let mut response = (status, [(CONTENT_TYPE, "application/problem+json")], body).into_response();
    if retryable {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use axum_core::body::Body;
    use hapax::Hapax;

    const PROBE: &str = "connector.health_probe.v1";

    async fn incoming(
        headers: &[(&str, &str)],
        body: &'static str,
    ) -> Result<ControlRequest, IncomingRejection> {
        let mut request = HttpRequest::post("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body)).unwrap();
        let receiver = ControlReceiver::new(Hapax::builder().in_memory(), Registry::standard());
        Incoming::from_request(request, &receiver.largest(8)).await.map(|Incoming(request)| request)
    }

    /// Proves C-10: a receiver reads the headers as the sender wrote them.
    #[tokio::test]
    async fn the_receiver_reads_what_the_sender_wrote() {
        let key = crate::derive_key(PROBE, 7, b"{}").unwrap();
        let (epoch, payload) = (7, b"{}".to_vec());
        let sent = ControlRequest { computation: PROBE.into(), epoch, key: Some(key), payload };
        let headers: Vec<_> = sent.headers().collect();
        let mut headers: Vec<_> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_eq!(incoming(&headers, "{}").await, Ok(sent.clone()));
        let quoted = format!("\"{key}\"");
        headers.retain(|(name, _)| *name != ControlRequest::KEY);
        assert_eq!(
            incoming(&headers, "{}").await,
            Ok(ControlRequest { key: None, ..sent.clone() })
        );
        headers.push((ControlRequest::KEY, &quoted));
        assert_eq!(incoming(&headers, "{}").await, Ok(sent));
        assert_eq!(incoming(&headers, "123456789").await, Err(IncomingRejection::Body));
    }

    #[tokio::test]
    async fn an_unreadable_header_is_named() {
        let (name, epoch) = ((ControlRequest::COMPUTATION, PROBE), (ControlRequest::EPOCH, "7"));
        for (headers, missing) in [
            (vec![epoch], ControlRequest::COMPUTATION),
            (vec![name], ControlRequest::EPOCH),
            (vec![name, (ControlRequest::EPOCH, "-1")], ControlRequest::EPOCH),
            (vec![name, epoch, epoch], ControlRequest::EPOCH),
            (vec![name, epoch, (ControlRequest::KEY, "sha256:12")], ControlRequest::KEY),
        ] {
            assert_eq!(incoming(&headers, "{}").await, Err(IncomingRejection::Header(missing)));
        }
    }

    #[tokio::test]
    async fn an_error_is_a_problem_under_its_name() {
        let epoch = hapax::Domain::new("connector").unwrap();
        let mismatch = hapax::Mismatch { domain: epoch, bound: 6, current: 7 };
        let response = Error::Epoch(mismatch).into_response();
        assert_eq!(response.status(), StatusCode::CONFLICT);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body = Json::parse(&body).unwrap();
        assert_eq!(body.get("error").and_then(Json::as_str), Some("ERR_EPOCH_MISMATCH"));
        assert_eq!(body.get("code").and_then(Json::as_str), Some("HX0211"));
    }
}
