//! One HTTP request to the endpoint, and the meaning of its answer for the caller.
//!
//! It does not retry, follows no redirect, limits how much it reads, and removes the API key from
//! every message.

use std::time::Duration;

use bytes::Bytes;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use hapax_sinks::excerpt::excerpt;
use hapax_sinks::http::{Client, Reach, Unanswered, Unread};
use http::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use http_body_util::Full;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::completion::{Completion, Envelope, complaint};
use super::meter::{Meter, Tally};
use super::settings::{ApiKey, Settings, SettingsError};
use crate::extractor::ExtractorError;

/// How much of the endpoint's own words is passed on, in characters.
const MESSAGE: usize = 300;

pub(super) struct Endpoint {
    uri: Uri,
    bearer: Option<HeaderValue>,
    key: Option<ApiKey>,
    client: Client,
    /// Limits how many calls are in flight at once.
    lanes: Semaphore,
    pace: Option<DefaultDirectRateLimiter>,
    timeout: Duration,
    max_response_bytes: usize,
    pub(super) meter: Meter,
}

/// Why a call brought no completion.
#[derive(Debug)]
pub(super) struct CallError {
    /// The HTTP status, if there was one to act on.
    pub(super) status: Option<StatusCode>,
    pub(super) error: ExtractorError,
}

impl Endpoint {
    pub(super) fn new(settings: &Settings) -> Result<Self, SettingsError> {
        let uri = settings.address()?;
        let bearer = settings.api_key.as_ref().map(bearer).transpose()?;
        // Models are often served on a private network.
        let reach = Reach { connect_timeout: settings.connect_timeout, allow_private: true };
        let client = Client::new(reach).map_err(SettingsError::Certificates)?;
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

    /// Sends one request, as soon as the limits on calls allow it.
    pub(super) async fn call(
        &self,
        body: &Value,
        tally: &mut Tally,
    ) -> Result<Completion, CallError> {
        let request = self.request(body)?;
        let _lane = self.lanes.acquire().await;
        if let Some(pace) = &self.pace {
            pace.until_ready().await;
        }
        let mut call = self.meter.begin(tally);
        let (status, headers, body) = self.exchange(request).await?;
        if !status.is_success() {
            let message = complaint(&body);
            return Err(self.judge(status, retry_after(&headers), &message));
        }
        let unlike = |why: String| CallError {
            status: Some(status),
            error: ExtractorError::Never(format!(
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

    fn request(&self, body: &Value) -> Result<Request<Full<Bytes>>, CallError> {
        let mut request = Request::post(&self.uri)
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("hapax/", env!("CARGO_PKG_VERSION")));
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        let request = request.body(Full::from(body.to_string()));
        request.map_err(|error| CallError {
            status: None,
            error: ExtractorError::Never(format!("the request cannot be made: {error}")),
        })
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, HeaderMap, Bytes), CallError> {
        let late = || later(format!("the endpoint has not answered within {:?}", self.timeout));
        let most = self.max_response_bytes;
        let answer = self.client.send(request, self.timeout, most).await;
        let answer = answer.map_err(|why| match why {
            Unanswered::Late(_) => late(),
            Unanswered::Lost(why) => {
                let why = self.quotable(&why);
                later(format!("the endpoint went away before it answered: {why}"))
            }
            Unanswered::Private(why) | Unanswered::Unreachable(why) => {
                later(format!("the endpoint cannot be reached: {}", self.quotable(&why)))
            }
        })?;
        match answer.body {
            Ok(body) => Ok((answer.status, answer.headers, body)),
            // A failed status counts, even if its body could not be read.
            Err(_) if !answer.status.is_success() => {
                Ok((answer.status, answer.headers, Bytes::new()))
            }
            Err(Unread::TooLarge(most)) => {
                let reason = format!("the endpoint answered with more than {most} bytes");
                Err(CallError { status: Some(answer.status), error: ExtractorError::Never(reason) })
            }
            Err(Unread::Late(_)) => Err(late()),
            Err(Unread::Broken(why)) => {
                let why = self.quotable(&why);
                Err(later(format!("the endpoint's answer broke off: {why}")))
            }
        }
    }

    /// The meaning of a status that is no success.
    fn judge(&self, status: StatusCode, after: Option<Duration>, message: &str) -> CallError {
        let message = match self.quotable(message) {
            message if message.is_empty() => message,
            message => format!(": {message}"),
        };
        let error = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let key = if self.key.is_some() { "the API key" } else { "a call without a key" };
                ExtractorError::Never(format!("the endpoint refused {key} ({status}){message}"))
            }
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
                ExtractorError::Later {
                    reason: format!("the endpoint answered {status}{message}"),
                    after,
                }
            }
            status if status.is_server_error() => ExtractorError::Later {
                reason: format!("the endpoint answered {status}{message}"),
                after,
            },
            status if status.is_redirection() => ExtractorError::Never(format!(
                "the endpoint answered {status}; redirects are not followed"
            )),
            status => ExtractorError::Never(format!("the endpoint answered {status}{message}")),
        };
        CallError { status: Some(status), error }
    }

    /// The endpoint's words as they may stand in an error: shortened, and without the API key.
    fn quotable(&self, text: &str) -> String {
        match &self.key {
            Some(key) => excerpt(&text.replace(key.expose(), "…"), MESSAGE),
            None => excerpt(text, MESSAGE),
        }
    }
}

fn bearer(key: &ApiKey) -> Result<HeaderValue, SettingsError> {
    let text = format!("Bearer {}", key.expose());
    let mut value = HeaderValue::try_from(text).map_err(|_| SettingsError::ApiKey)?;
    value.set_sensitive(true);
    Ok(value)
}

fn later(reason: String) -> CallError {
    CallError { status: None, error: ExtractorError::Later { reason, after: None } }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    hapax_sinks::http::retry_after(headers).map(Duration::from_millis)
}
