//! One HTTP request to the endpoint, and what its answer means for whoever asked.
//!
//! It repeats nothing, follows no redirect, reads no more than it may, and lets no message out
//! that has the key in it.

use std::error::Error;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::completion::{Completion, Envelope, complaint};
use super::meter::{Meter, Tally};
use super::settings::{ApiKey, Settings, SettingsError};
use crate::extractor::Trouble;

/// A day is long enough for a header.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// How much of the endpoint's own words is passed on, in characters.
const MESSAGE: usize = 300;

pub(super) struct Endpoint {
    uri: Uri,
    bearer: Option<HeaderValue>,
    key: Option<ApiKey>,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// How many calls are under way at once.
    lanes: Semaphore,
    pace: Option<DefaultDirectRateLimiter>,
    timeout: Duration,
    max_response_bytes: usize,
    pub(super) meter: Meter,
}

/// Why a call brought no completion.
#[derive(Debug)]
pub(super) struct Refused {
    /// What it was answered with, if it was answered at all.
    pub(super) status: Option<StatusCode>,
    pub(super) trouble: Trouble,
}

impl Endpoint {
    pub(super) fn new(settings: &Settings) -> Result<Self, SettingsError> {
        let uri = settings.address()?;
        let bearer = settings.api_key.as_ref().map(bearer).transpose()?;
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(settings.connect_timeout));
        let connector = HttpsConnectorBuilder::new()
            .with_native_roots()
            .map_err(SettingsError::Certificates)?
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .pool_timer(TokioTimer::new())
            .build(connector);
        let pace = settings.requests_per_minute;
        Ok(Self {
            uri,
            bearer,
            key: settings.api_key.clone(),
            client,
            lanes: Semaphore::new(settings.max_concurrent_calls.clamp(1, Semaphore::MAX_PERMITS)),
            pace: pace.map(|often| RateLimiter::direct(Quota::per_minute(often))),
            timeout: settings.timeout,
            max_response_bytes: settings.max_response_bytes,
            meter: Meter::default(),
        })
    }

    /// Asks once, when it is this call's turn.
    pub(super) async fn call(
        &self,
        body: &Value,
        tally: &mut Tally,
    ) -> Result<Completion, Refused> {
        let request = self.request(body)?;
        let _lane = self.lanes.acquire().await;
        if let Some(pace) = &self.pace {
            pace.until_ready().await;
        }
        let mut call = self.meter.begin(tally);
        let exchange = tokio::time::timeout(self.timeout, self.exchange(request)).await;
        let (status, headers, body) = exchange.unwrap_or_else(|_| {
            Err(later(format!("the endpoint has not answered within {:?}", self.timeout)))
        })?;
        if !status.is_success() {
            let said = complaint(&body);
            return Err(self.judge(status, retry_after(&headers), &said));
        }
        let unlike = |why: String| Refused {
            status: Some(status),
            trouble: Trouble::Never(format!(
                "the endpoint answered {status}, but with no chat completion: {}",
                self.quotable(&why)
            )),
        };
        let envelope: Envelope =
            serde_json::from_slice(&body).map_err(|error| unlike(error.to_string()))?;
        call.used(envelope.tokens_in(), envelope.tokens_out());
        // Some gateways answer 200 and put the failure into the body.
        if let Some(status) = envelope.failure() {
            return Err(self.judge(status, retry_after(&headers), &complaint(&body)));
        }
        let completion = envelope.completion().ok_or_else(|| unlike("it has no choices".into()))?;
        call.completed();
        Ok(completion)
    }

    fn request(&self, body: &Value) -> Result<Request<Full<Bytes>>, Refused> {
        let mut request = Request::post(&self.uri)
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("hapax/", env!("CARGO_PKG_VERSION")));
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        let request = request.body(Full::from(body.to_string()));
        request.map_err(|error| Refused {
            status: None,
            trouble: Trouble::Never(format!("the request cannot be made: {error}")),
        })
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, HeaderMap, Bytes), Refused> {
        let response = self.client.request(request).await.map_err(|error| {
            let why = self.quotable(&chain(&error));
            later(match error.is_connect() {
                true => format!("the endpoint cannot be reached: {why}"),
                false => format!("the endpoint went away before it answered: {why}"),
            })
        })?;
        let (head, body) = response.into_parts();
        match Limited::new(body, self.max_response_bytes).collect().await {
            Ok(body) => Ok((head.status, head.headers, body.to_bytes())),
            // A failure is a failure, however much or little is said about it.
            Err(_) if !head.status.is_success() => Ok((head.status, head.headers, Bytes::new())),
            Err(error) if error.is::<LengthLimitError>() => {
                let most = self.max_response_bytes;
                let reason = format!("the endpoint answered with more than {most} bytes");
                Err(Refused { status: Some(head.status), trouble: Trouble::Never(reason) })
            }
            Err(error) => {
                let why = self.quotable(&chain(&*error));
                Err(later(format!("the endpoint's answer broke off: {why}")))
            }
        }
    }

    /// What a status that is no success means.
    fn judge(&self, status: StatusCode, after: Option<Duration>, said: &str) -> Refused {
        let said = match self.quotable(said) {
            said if said.is_empty() => said,
            said => format!(": {said}"),
        };
        let trouble = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let key = if self.key.is_some() { "the API key" } else { "a call without a key" };
                Trouble::Never(format!("the endpoint refused {key} ({status}){said}"))
            }
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
                Trouble::Later { reason: format!("the endpoint answered {status}{said}"), after }
            }
            status if status.is_server_error() => {
                Trouble::Later { reason: format!("the endpoint answered {status}{said}"), after }
            }
            status if status.is_redirection() => Trouble::Never(format!(
                "the endpoint answered {status}; redirects are not followed"
            )),
            status => Trouble::Never(format!("the endpoint answered {status}{said}")),
        };
        Refused { status: Some(status), trouble }
    }

    /// Somebody else's words as they may stand in an error.
    fn quotable(&self, text: &str) -> String {
        match &self.key {
            Some(key) => bounded(&text.replace(key.expose(), "…"), MESSAGE),
            None => bounded(text, MESSAGE),
        }
    }
}

/// A text of at most so many characters, without control characters and line ends.
pub(super) fn bounded(text: &str, most: usize) -> String {
    let text = text.trim();
    let mut out = String::new();
    for (nth, letter) in text.chars().enumerate() {
        if nth == most {
            out.push('…');
            break;
        }
        match letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}') {
            true => out.extend(letter.escape_default()),
            false => out.push(letter),
        }
    }
    out
}

fn bearer(key: &ApiKey) -> Result<HeaderValue, SettingsError> {
    let text = format!("Bearer {}", key.expose());
    let mut value = HeaderValue::try_from(text).map_err(|_| SettingsError::ApiKey)?;
    value.set_sensitive(true);
    Ok(value)
}

fn later(reason: String) -> Refused {
    Refused { status: None, trouble: Trouble::Later { reason, after: None } }
}

fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// When the endpoint wants to be asked again: in so many seconds, or at a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = httpdate::parse_http_date(text).ok()?;
            at.duration_since(SystemTime::now()).unwrap_or_default()
        }
    };
    Some(wait.min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_elses_words_are_cut_and_have_no_control_characters() {
        assert_eq!(bounded("  no\u{1b}[31m\nway ", 100), "no\\u{1b}[31m\\nway");
        assert_eq!(bounded("äöüß", 3), "äöü…");
        assert_eq!(bounded("äöü", 3), "äöü");
    }
}
