//! Requests to HTTP servers.
//!
//! The key of a mutation goes with it as `Idempotency-Key`. Each mutation has a connection of its
//! own, so a failure before the request was sent differs visibly from one after it. Redirects are
//! not followed, and private addresses are refused unless they are allowed.

mod address;
mod settings;
mod verdict;

pub use settings::{HttpSettings, Probe};

use async_trait::async_trait;
use bytes::Bytes;
use data_encoding::BASE64;
use hapax::{Claim, Finding, Key, Safety, Settling};
use hapax_core::canonical::canonical;
use hapax_core::json::Json;
use hapax_items::{Call, Class, Difference, Operation, Plan, Tool, ToolError};
use hapax_sinks::excerpt::excerpt;
use hapax_sinks::http::{Answer, Client, Reach, Unanswered, Unread, retry_after};
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::Full;
use url::Url;

use crate::arguments::Arguments;
use crate::likeness::{same, same_words};
use crate::{SettingsError, happened};

pub(crate) use address::resolve;
pub(super) use verdict::{Repeated, failure, repeated};

/// The headers of an answer that scripts see.
const SHOWN_HEADERS: [&str; 7] =
    ["content-type", "etag", "last-modified", "link", "location", "retry-after", "x-request-id"];

/// How much of a server's own words is passed on, in characters, and how long a header may be.
const QUOTED: usize = 300;
const LONGEST_HEADER: usize = 4096;

const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Sends requests to HTTP servers.
pub struct Http {
    settings: HttpSettings,
    client: Client,
}

/// The operation whose arguments name the method.
const ANY: &str = "request";

const OPERATIONS: [Operation; 7] = [
    Operation { name: "get", mutates: false },
    Operation { name: "head", mutates: false },
    Operation { name: "post", mutates: true },
    Operation { name: "put", mutates: true },
    Operation { name: "patch", mutates: true },
    Operation { name: "delete", mutates: true },
    Operation { name: ANY, mutates: true },
];

impl Http {
    /// A tool for the servers that the settings allow.
    pub fn new(settings: HttpSettings) -> Result<Self, SettingsError> {
        let settings = settings.checked()?;
        let reach =
            Reach { connect_timeout: settings.timeout, allow_private: settings.allow_private };
        let client = Client::new(reach)
            .map_err(|error| SettingsError(format!("no trusted certificates: {error}")))?;
        Ok(Self { settings, client })
    }

    /// The URL and the payload that a script requests.
    fn url_and_payload(&self, arguments: &Arguments<'_>) -> Result<(Url, Json), ToolError> {
        let HttpSettings { base, allow_private, .. } = &self.settings;
        let url = resolve(base.as_ref(), *allow_private, arguments.text("url")?)?;
        let body = arguments.get("body").cloned().unwrap_or(Json::Null);
        let size = written(&body)?.len();
        if size > self.settings.max_request {
            let most = self.settings.max_request;
            return Err(ToolError::logic(format!("a body has at most {most} bytes")));
        }
        let headers = self.settings.admitted(arguments.get("headers"))?;
        Ok((url, Json::object([("body", body), ("headers", headers)])))
    }

    fn request(
        &self,
        method: Method,
        url: &Url,
        payload: &Json,
        key: Option<Key>,
    ) -> Result<Request<Full<Bytes>>, ToolError> {
        let wrong = |error: &dyn std::fmt::Display| {
            ToolError::logic(format!("the request cannot be made: {error}"))
        };
        let body = payload.get("body").unwrap_or(&Json::Null);
        let mut request = Request::builder()
            .method(method)
            .uri(url.as_str())
            .body(Full::from(written(body)?))
            .map_err(|error| wrong(&error))?;
        let headers = request.headers_mut();
        headers.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("hapax/", env!("CARGO_PKG_VERSION"))),
        );
        match body {
            Json::Null => None,
            Json::String(_) => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"))
            }
            _ => headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json")),
        };
        if let Some(Json::Object(requested)) = payload.get("headers") {
            for (name, value) in requested {
                let name = HeaderName::try_from(name).map_err(|error| wrong(&error))?;
                let value = HeaderValue::try_from(value.as_str().unwrap_or_default());
                headers.insert(name, value.map_err(|error| wrong(&error))?);
            }
        }
        for (name, value) in &self.settings.headers {
            headers.insert(name, value.clone());
        }
        if let Some(key) = key {
            let value =
                HeaderValue::try_from(format!("\"{key}\"")).map_err(|error| wrong(&error))?;
            headers.insert(KEY, value);
        }
        Ok(request)
    }

    /// The request of a mutation, from its plan.
    fn planned(&self, call: &Call) -> Result<Request<Full<Bytes>>, ToolError> {
        let url = call.plan.identity.get("url").and_then(Json::as_str).unwrap_or_default();
        let HttpSettings { base, allow_private, .. } = &self.settings;
        let url = resolve(base.as_ref(), *allow_private, url)?;
        self.request(method_of(call)?, &url, &call.plan.payload, Some(call.key))
    }

    /// The result of a mutation, from the answer.
    fn concluded(&self, answer: Answer) -> Result<Json, ToolError> {
        let turned_away = retry_after(&answer.headers).is_some();
        if let Some(class) = failure(answer.status, turned_away, self.settings.honours_key) {
            return Err(self.refused(class, &answer));
        }
        match &answer.body {
            Ok(body) => Ok(result(answer.status, &answer.headers, body)),
            Err(unread) => Err(ToolError::indeterminate(format!(
                "the server answered {}, and its answer cannot be read: {unread}",
                answer.status
            ))),
        }
    }

    fn refused(&self, class: Class, answer: &Answer) -> ToolError {
        let body = answer.body.as_ref().map(|body| String::from_utf8_lossy(body));
        let text = self.settings.without_secrets(&body.unwrap_or_default());
        let text = excerpt(&text, QUOTED);
        let redirect =
            if answer.status.is_redirection() { "; redirects are not followed" } else { "" };
        let colon = if text.is_empty() { "" } else { ": " };
        let message = format!("the server answered {}{redirect}{colon}{text}", answer.status);
        ToolError { class, message }
    }

    /// Looks for a mutation by its probe.
    async fn look(&self, probe: &Probe, call: &Call) -> Finding {
        let request = probe.url(self.settings.base.as_ref(), self.settings.allow_private, call.key);
        let request = request.and_then(|url| self.request(Method::GET, &url, &Json::Null, None));
        let request = match request {
            Ok(request) => request,
            Err(error) => return Finding::CannotTell(error.message),
        };
        let HttpSettings { timeout, max_response, .. } = self.settings;
        let answer = match self.client.send(request, timeout, max_response).await {
            Ok(answer) => answer,
            Err(why) => return Finding::CannotTell(format!("the probe has no answer: {why}")),
        };
        let body = match (answer.status, &answer.body) {
            (StatusCode::NOT_FOUND, _) => return Finding::NotFound,
            (status, Ok(body)) if status.is_success() => body,
            (status, Err(why)) if status.is_success() => {
                return Finding::CannotTell(format!("the probe's answer cannot be read: {why}"));
            }
            _ => return Finding::CannotTell(self.refused(Class::Transient, &answer).message),
        };
        let found = result(answer.status, &answer.headers, body);
        let Some(pointer) = probe.pointer(call.key) else { return happened(&found) };
        match found.get("body") {
            Some(body @ (Json::Object(_) | Json::Array(_))) => match body.pointer(&pointer) {
                None | Some(Json::Null) => Finding::NotFound,
                Some(there) => happened(&with_body(&found, there)),
            },
            _ => Finding::CannotTell("the probe did not answer with JSON".into()),
        }
    }

    /// To a server that honours keys, the same request again is a question.
    async fn ask_again(&self, call: &Call) -> Finding {
        let request = match self.planned(call) {
            Ok(request) => request,
            Err(error) => return Finding::CannotTell(error.message),
        };
        let HttpSettings { timeout, max_response, .. } = self.settings;
        let answer = match self.client.send_alone(request, timeout, max_response).await {
            Ok(answer) => answer,
            Err(why) => return Finding::CannotTell(format!("asked again, no answer: {why}")),
        };
        match (repeated(answer.status), &answer.body) {
            (Repeated::Happened, Ok(body)) => {
                happened(&result(answer.status, &answer.headers, body))
            }
            (Repeated::Happened, Err(why)) => {
                Finding::CannotTell(format!("asked again, the answer cannot be read: {why}"))
            }
            (Repeated::Refused, _) => Finding::NotFound,
            (Repeated::Silent, _) => {
                let message = self.refused(Class::Transient, &answer).message;
                Finding::CannotTell(format!("asked again, {message}"))
            }
        }
    }
}

#[async_trait]
impl Tool for Http {
    fn name(&self) -> &str {
        &self.settings.name
    }

    fn operations(&self) -> &[Operation] {
        &OPERATIONS
    }

    fn plan(&self, operation: &str, arguments: &Json) -> Result<Plan, ToolError> {
        let (arguments, named) = match operation {
            ANY => {
                let arguments = Arguments::of(arguments, &["method", "url", "body", "headers"])?;
                let named = token(arguments.text("method")?)?;
                (arguments, Some(named))
            }
            _ => {
                method(operation, true)?;
                (Arguments::of(arguments, &["url", "body", "headers"])?, None)
            }
        };
        let (url, payload) = self.url_and_payload(&arguments)?;
        let url_of = ("url", Json::text(url.as_str()));
        let identity = match named {
            Some(method) => Json::object([("method", Json::text(method.as_str())), url_of]),
            None => Json::object([url_of]),
        };
        Ok(Plan { target: address::server(&url), identity, payload })
    }

    /// The notation of a body does not count. Other values of the same headers are a minor
    /// difference.
    fn compare_payload(&self, _operation: &str, recorded: &Json, requested: &Json) -> Difference {
        let part = |payload: &Json, name: &str| payload.get(name).cloned().unwrap_or(Json::Null);
        let alike = match (part(recorded, "body"), part(requested, "body")) {
            (Json::String(one), Json::String(other)) => same_words(&one, &other),
            (one, other) => same(&one, &other),
        };
        let (one, other) = (part(recorded, "headers"), part(requested, "headers"));
        match (alike, same(&one, &other)) {
            (true, true) => Difference::Equivalent,
            (true, false) if names(&one).eq(names(&other)) => Difference::Minor,
            _ => Difference::Significant,
        }
    }

    fn safety(&self, _operation: &str) -> Safety {
        match (&self.settings.probe, self.settings.honours_key) {
            (_, true) => Safety::Reconcilable(Settling::TargetRefusesLate),
            (Some(_), false) => {
                let settling = self.settings.settling.as_millis();
                Safety::Reconcilable(Settling::AfterMs(u64::try_from(settling).unwrap_or(u64::MAX)))
            }
            (None, false) => Safety::Opaque,
        }
    }

    async fn mutate(&self, call: &Call, _claim: &Claim) -> Result<Json, ToolError> {
        let request = self.planned(call)?;
        let HttpSettings { timeout, max_response, .. } = self.settings;
        let answer = self.client.send_alone(request, timeout, max_response).await;
        self.concluded(answer.map_err(|why| unanswered(&why))?)
    }

    async fn reconcile(&self, call: &Call) -> Finding {
        match (&self.settings.probe, self.settings.honours_key) {
            (Some(probe), _) => self.look(probe, call).await,
            (None, true) => self.ask_again(call).await,
            (None, false) => Finding::CannotTell("the server cannot be asked about keys".into()),
        }
    }

    /// An answer of 404 or 410 is a result as well.
    async fn read(&self, operation: &str, arguments: &Json) -> Result<Json, ToolError> {
        let method = method(operation, false)?;
        let arguments = Arguments::of(arguments, &["url", "body", "headers"])?;
        let (url, payload) = self.url_and_payload(&arguments)?;
        let request = self.request(method, &url, &payload, None)?;
        let HttpSettings { timeout, max_response, .. } = self.settings;
        let answer = self.client.send(request, timeout, max_response).await;
        let answer = answer.map_err(|why| nothing_changed(unanswered(&why)))?;
        let absent = matches!(answer.status, StatusCode::NOT_FOUND | StatusCode::GONE);
        if let Some(class) = failure(answer.status, true, false).filter(|_| !absent) {
            return Err(nothing_changed(self.refused(class, &answer)));
        }
        match &answer.body {
            Ok(body) => Ok(result(answer.status, &answer.headers, body)),
            Err(Unread::TooLarge(most)) => {
                Err(ToolError::precondition(format!("the answer has more than {most} bytes")))
            }
            Err(why) => Err(ToolError::transient(format!("the answer cannot be read: {why}"))),
        }
    }

    fn check_by_hand(&self, call: &Call) -> String {
        let url = call.plan.identity.get("url").and_then(Json::as_str).unwrap_or_default();
        let method = method_of(call).map_or_else(|_| call.operation.clone(), |one| one.to_string());
        format!("whether {method} {url} took effect; it was sent with Idempotency-Key {}", call.key)
    }
}

/// The error for a missing answer.
pub(super) fn unanswered(why: &Unanswered) -> ToolError {
    match why {
        Unanswered::Private(why) => ToolError::permission(why.clone()),
        Unanswered::Unreachable(why) => {
            ToolError::transient(format!("the server cannot be reached: {}", excerpt(why, QUOTED)))
        }
        Unanswered::Lost(why) => ToolError::indeterminate(format!(
            "the connection was lost before there was an answer: {}",
            excerpt(why, QUOTED)
        )),
        late @ Unanswered::Late(_) => ToolError::indeterminate(late.to_string()),
    }
}

/// A read without an answer can be sent again, so it is transient.
fn nothing_changed(error: ToolError) -> ToolError {
    match error.class {
        Class::Indeterminate => ToolError { class: Class::Transient, ..error },
        _ => error,
    }
}

/// The method of a mutation, from its plan.
fn method_of(call: &Call) -> Result<Method, ToolError> {
    match call.operation.as_str() {
        ANY => {
            let named = call.plan.identity.get("method").and_then(Json::as_str);
            token(named.unwrap_or_default())
        }
        operation => method(operation, true),
    }
}

/// A method as a script names it: any token, as it is written. CONNECT opens a tunnel and is
/// refused.
fn token(named: &str) -> Result<Method, ToolError> {
    let method = Method::from_bytes(named.as_bytes()).ok().filter(|one| *one != Method::CONNECT);
    let short: String = named.chars().take(40).collect();
    method.ok_or_else(|| ToolError::logic(format!("invalid request method {short:?}")))
}

fn method(operation: &str, mutates: bool) -> Result<Method, ToolError> {
    let known = OPERATIONS.iter().any(|one| one.name == operation && one.mutates == mutates);
    let method = Method::from_bytes(operation.to_uppercase().as_bytes()).ok().filter(|_| known);
    method.ok_or_else(|| ToolError::logic(format!("there is no such operation: {operation:?}")))
}

/// A body as it is sent: texts as they are, other JSON in its canonical form.
fn written(body: &Json) -> Result<Bytes, ToolError> {
    match body {
        Json::Null => Ok(Bytes::new()),
        Json::String(text) => Ok(Bytes::from(text.clone())),
        other => {
            let text = canonical(other);
            text.map(Bytes::from).map_err(|error| ToolError::logic(format!("the body: {error}")))
        }
    }
}

fn names(headers: &Json) -> impl Iterator<Item = &str> {
    let members = if let Json::Object(members) = headers { members.as_slice() } else { &[] };
    members.iter().map(|(name, _)| name.as_str())
}

/// An answer as scripts see it.
fn result(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Json {
    let shown = SHOWN_HEADERS.iter().filter_map(|name| {
        let value =
            headers.get(*name)?.to_str().ok().filter(|text| text.len() <= LONGEST_HEADER)?;
        Some(((*name).to_owned(), Json::text(value)))
    });
    let is_json =
        headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(|kind| {
            let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
            kind == "application/json" || kind.ends_with("+json")
        });
    // JSON without a canonical form could not be kept, so such a body stays a text.
    let parsed = Json::parse(body).ok().filter(|json| is_json && canonical(json).is_ok());
    let mut members = vec![
        ("status".to_owned(), Json::number(status.as_u16().into())),
        ("headers".to_owned(), Json::Object(shown.collect())),
    ];
    match (parsed, std::str::from_utf8(body)) {
        (Some(json), _) => members.push(("body".to_owned(), json)),
        (None, Ok("")) => members.push(("body".to_owned(), Json::Null)),
        (None, Ok(text)) => members.push(("body".to_owned(), Json::text(text))),
        (None, Err(_)) => {
            members.push(("body".to_owned(), Json::String(BASE64.encode(body))));
            members.push(("encoding".to_owned(), Json::text("base64")));
        }
    }
    Json::Object(members)
}

fn with_body(found: &Json, body: &Json) -> Json {
    let part = |name: &str| found.get(name).cloned().unwrap_or(Json::Null);
    Json::object([("status", part("status")), ("headers", part("headers")), ("body", body.clone())])
}
