//! HTTP endpoints that receive events, as Standard Webhooks specifies it.
//!
//! Each request carries `webhook-id`, which is the outbox id and the same on every try,
//! `webhook-timestamp` and, if there are secrets, `webhook-signature`. The receiver answers 2xx
//! once it has the event.

#[cfg(feature = "axum")]
mod extract;
mod signature;

#[cfg(feature = "axum")]
pub use extract::{Receiver, Rejected, Verified};
pub use signature::{Secret, SecretError, Unverified, verify};

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use hapax::outbox::{Acks, Delivery, DeliveryRefusal, Record, Retryability, Sink};
use http::{HeaderName, HeaderValue, Request, StatusCode, Uri};
use http_body_util::Full;
use tokio::sync::Semaphore;

use crate::form::Form;
use crate::http::{Answer, Client, Reach, Unanswered, is_public, literal, retry_after};
use crate::ordering::{Arrival, Deliver, by_ordering_key};

/// How much of an answer is read, in bytes.
const ANSWER: usize = 64 * 1024;

/// An endpoint.
#[derive(Clone)]
pub struct Webhook {
    inner: Arc<Inner>,
}

struct Inner {
    uri: Uri,
    secrets: Vec<Secret>,
    timeout: Duration,
    remembers: Option<Duration>,
    form: Form,
    headers: Vec<(HeaderName, HeaderValue)>,
    accepts: fn(&[u8]) -> Result<(), String>,
    client: Client,
    /// How many requests are in flight at once.
    lanes: Semaphore,
}

/// How an endpoint is reached.
#[derive(Debug, Clone)]
pub struct WebhookSettings {
    /// The secrets that sign each request; several while a secret is being replaced.
    pub secrets: Vec<Secret>,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Whether the endpoint may have a private address.
    pub allow_private: bool,
    /// How long the receiver remembers ids.
    pub remembers: Option<Duration>,
    /// How many requests are in flight at once.
    pub lanes: usize,
    /// The form in which an event is sent.
    pub form: Form,
    /// Headers that every request has beside its own, such as `authorization`.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Checks the body of an answer with a success status. An error means that the event was not
    /// accepted.
    pub accepts: fn(&[u8]) -> Result<(), String>,
}

impl Default for WebhookSettings {
    fn default() -> Self {
        Self {
            secrets: Vec::new(),
            timeout: Duration::from_secs(15),
            allow_private: false,
            remembers: None,
            lanes: 64,
            form: Form::default(),
            headers: Vec::new(),
            accepts: |_| Ok(()),
        }
    }
}

/// Why an endpoint was refused.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// Its URL is not an http or https URL with a host.
    #[error("{0:?} is not an http or https URL with a host")]
    Url(String),
    /// Its address is private.
    #[error("{0} is a private address; allow private addresses for this sink if that is meant")]
    Private(String),
    /// No certificates are trusted on this machine.
    #[error("no trusted certificates: {0}")]
    Certificates(std::io::Error),
}

impl Webhook {
    /// An endpoint at this URL.
    pub fn new(url: &str, settings: WebhookSettings) -> Result<Self, WebhookError> {
        let refuse = || WebhookError::Url(url.chars().take(200).collect());
        let uri: Uri = url.parse().map_err(|_| refuse())?;
        let host = uri.host().ok_or_else(refuse)?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(refuse());
        }
        if let Some(address) = literal(host)
            && !settings.allow_private
            && !is_public(address)
        {
            return Err(WebhookError::Private(address.to_string()));
        }
        let reach =
            Reach { connect_timeout: settings.timeout, allow_private: settings.allow_private };
        let client = Client::new(reach).map_err(WebhookError::Certificates)?;
        let lanes = Semaphore::new(settings.lanes.max(1));
        let WebhookSettings { secrets, timeout, remembers, form, headers, accepts, .. } = settings;
        let inner =
            Inner { uri, secrets, timeout, remembers, form, headers, accepts, client, lanes };
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl Sink for Webhook {
    async fn send(&self, deliveries: &[Delivery], acks: &Acks) {
        by_ordering_key(&self.inner, deliveries, acks).await;
    }

    fn remembers(&self) -> Option<Duration> {
        self.inner.remembers
    }
}

impl Deliver for Inner {
    fn lanes(&self) -> &Semaphore {
        &self.lanes
    }

    async fn deliver(&self, record: &Record) -> Result<Arrival, DeliveryRefusal> {
        let never = |reason| DeliveryRefusal { reason, retryability: Retryability::Never };
        let Some(body) = self.form.write(record).map_err(never)? else { return Ok(Arrival::New) };
        let unsendable = |error| never(format!("the request cannot be made: {error}"));
        let id = record.id.to_string();
        let mut request = message(&self.uri, &id, &self.secrets, body).map_err(unsendable)?;
        for (name, value) in &self.headers {
            request.headers_mut().append(name, value.clone());
        }
        if let Some(trace) = &record.event.trace {
            let trace = HeaderValue::try_from(trace.as_str()).map_err(|e| unsendable(e.into()))?;
            request.headers_mut().insert("traceparent", trace);
        }
        let answer = self.client.send(request, self.timeout, ANSWER).await.map_err(unanswered)?;
        judge(&answer)?;
        let accepted = (self.accepts)(&answer.body.unwrap_or_default());
        accepted
            .map_err(|reason| DeliveryRefusal { reason, retryability: Retryability::Perhaps })?;
        Ok(Arrival::New)
    }
}

/// A message as Standard Webhooks specifies it. Without secrets it is not signed.
pub fn message<U>(
    uri: U,
    id: &str,
    secrets: &[Secret],
    body: String,
) -> Result<Request<Full<Bytes>>, http::Error>
where
    U: TryInto<Uri, Error: Into<http::Error>>,
{
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut request = Request::post(uri)
        .header("content-type", "application/json")
        .header("user-agent", concat!("hapax/", env!("CARGO_PKG_VERSION")))
        .header("webhook-id", id)
        .header("webhook-timestamp", now);
    if !secrets.is_empty() {
        let signed = |secret: &Secret| secret.sign(id, now, body.as_bytes());
        let signatures: Vec<String> = secrets.iter().map(signed).collect();
        request = request.header("webhook-signature", signatures.join(" "));
    }
    request.body(Full::from(body))
}

fn unanswered(why: Unanswered) -> DeliveryRefusal {
    DeliveryRefusal { reason: why.to_string(), retryability: Retryability::SinkDown }
}

/// Decides whether an answer accepts an event, and if not, when a retry may help.
fn judge(answer: &Answer) -> Result<(), DeliveryRefusal> {
    let status = answer.status;
    let later = retry_after(&answer.headers).map(|ms| Retryability::After { ms });
    if status.is_success() {
        return Ok(());
    }
    let retryability = match status {
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
            later.unwrap_or(Retryability::Perhaps)
        }
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            later.unwrap_or(Retryability::SinkDown)
        }
        status if status.is_server_error() => later.unwrap_or(Retryability::Perhaps),
        _ => Retryability::Never,
    };
    let reason = match status.is_redirection() {
        true => format!("answered {status}; redirects are not followed"),
        false => format!("answered {status}"),
    };
    Err(DeliveryRefusal { reason, retryability })
}
