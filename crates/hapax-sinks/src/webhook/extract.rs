//! Incoming webhooks, as an extractor for axum handlers.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum_core::extract::{FromRef, FromRequest, Request};
use axum_core::response::{IntoResponse, Response};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, Limited};

use super::{Secret, Unverified, verify};

/// The secrets and limits that webhooks are verified with; a part of the router's state.
#[derive(Debug, Clone)]
pub struct Receiver {
    secrets: Arc<[Secret]>,
    tolerance: Duration,
    largest: usize,
}

impl Receiver {
    /// Accepts webhooks of at most a mebibyte that were signed with one of these secrets, with a
    /// timestamp within five minutes of our clock.
    pub fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        let secrets = secrets.into_iter().collect();
        Self { secrets, tolerance: Duration::from_secs(300), largest: 1024 * 1024 }
    }

    /// How far the sender's clock may be from ours.
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// How large a webhook may be, in bytes.
    pub fn largest(mut self, bytes: usize) -> Self {
        self.largest = bytes;
        self
    }
}

/// A webhook that was signed with a known secret.
///
/// It may come more than once: receive its id in the transaction that acts on it, with
/// [`hapax::inbox`].
///
/// ```
/// use axum::extract::State;
/// use axum::routing::post;
/// use hapax_sinks::webhook::{Receiver, Secret, Verified};
///
/// async fn event(webhook: Verified) -> String {
///     format!("{} has {} bytes", webhook.id, webhook.body.len())
/// }
///
/// let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
/// let app: axum::Router =
///     axum::Router::new().route("/events", post(event)).with_state(Receiver::new([secret]));
/// # Ok::<(), hapax_sinks::webhook::SecretError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Verified {
    /// `webhook-id`: the same each time it comes.
    pub id: String,
    /// Its body.
    pub body: Bytes,
}

/// Why a webhook was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// It is larger than the limit, or broke off.
    #[error("larger than is accepted, or cut off")]
    Body,
    /// Its headers, its timestamp or its signature are not valid.
    #[error(transparent)]
    Unverified(#[from] Unverified),
}

impl IntoResponse for Rejected {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Body => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unverified(_) => StatusCode::UNAUTHORIZED,
        };
        (status, self.to_string()).into_response()
    }
}

impl<S> FromRequest<S> for Verified
where
    Receiver: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = Rejected;

    async fn from_request(request: Request, state: &S) -> Result<Self, Rejected> {
        let receiver = Receiver::from_ref(state);
        let (head, body) = request.into_parts();
        let body = Limited::new(body, receiver.largest).collect().await;
        let body = body.map_err(|_| Rejected::Body)?.to_bytes();
        let header = |name: &str| head.headers.get(name)?.to_str().ok();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let id = verify(&receiver.secrets, header, &body, now, receiver.tolerance)?;
        Ok(Self { id: id.to_owned(), body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum_core::body::Body;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    async fn receive(signed: &'static str, sent: &'static str) -> Result<Verified, Rejected> {
        let secret = Secret::parse(SECRET).unwrap();
        let now = UNIX_EPOCH.elapsed().unwrap().as_secs();
        let request = Request::post("/")
            .header("webhook-id", "evt")
            .header("webhook-timestamp", now)
            .header("webhook-signature", secret.sign("evt", now, signed.as_bytes()))
            .body(Body::from(sent))
            .unwrap();
        Verified::from_request(request, &Receiver::new([secret]).largest(8)).await
    }

    /// Proves O-5: a webhook that was not signed, or is too large, does not reach the handler.
    #[tokio::test]
    async fn only_signed_webhooks_reach_a_handler() {
        let got = receive("{}", "{}").await.unwrap();
        assert_eq!((got.id.as_str(), &got.body[..]), ("evt", &b"{}"[..]));
        let forged = receive("{}", "{1}").await.unwrap_err();
        assert_eq!(forged, Rejected::Unverified(Unverified::Forged));
        assert_eq!(forged.into_response().status(), 401);
        let large = receive("123456789", "123456789").await.unwrap_err();
        assert_eq!(large.into_response().status(), 413);
    }
}
