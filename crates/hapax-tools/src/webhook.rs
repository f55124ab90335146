//! Webhooks that are sent once, signed as Standard Webhooks has it.
//!
//! The id of a webhook is made from the mutation's key, so it is the same each time that it is
//! sent, and a receiver that remembers ids takes it once.

use std::time::Duration;

use async_trait::async_trait;
use data_encoding::HEXLOWER;
use hapax::{Claim, Finding, Safety, Settling};
use hapax_core::canonical::canonical;
use hapax_core::json::Json;
use hapax_items::{Call, Class, Difference, Operation, Plan, Tool, ToolError};
use hapax_sinks::excerpt::excerpt;
use hapax_sinks::http::{Answer, Client, Reach, retry_after};
use hapax_sinks::webhook::{Secret, message};
use url::Url;

use crate::arguments::Arguments;
use crate::http::{Repeated, failure, repeated, resolve, unanswered};
use crate::likeness::{same, without_nulls};
use crate::{SettingsError, happened, named};

/// How much of an answer is read, and how much of it is passed on.
const ANSWER: usize = 64 * 1024;
const QUOTED: usize = 300;

/// How long the name of an event may be, in bytes.
const LONGEST_EVENT: usize = 256;

/// Sends webhooks to an endpoint.
pub struct Webhook {
    settings: WebhookToolSettings,
    url: Url,
    client: Client,
}

/// The endpoint that gets webhooks, and how.
#[derive(Debug, Clone)]
pub struct WebhookToolSettings {
    /// The name that scripts call it by.
    pub name: String,
    /// The URL of the endpoint.
    pub url: String,
    /// The secrets that sign webhooks; several while one is being replaced.
    pub secrets: Vec<Secret>,
    /// How long a webhook may take, including the answer.
    pub timeout: Duration,
    /// Whether the endpoint may have a private address.
    pub allow_private: bool,
    /// How large a webhook may be, in bytes.
    pub max_request: usize,
    /// Whether the receiver remembers ids and takes each once.
    pub honours_id: bool,
}

impl WebhookToolSettings {
    /// An endpoint with default settings.
    pub fn new(url: impl Into<String>, secrets: Vec<Secret>) -> Self {
        Self {
            name: "webhook".into(),
            url: url.into(),
            secrets,
            timeout: Duration::from_secs(15),
            allow_private: false,
            max_request: 256 * 1024,
            honours_id: false,
        }
    }
}

impl Webhook {
    /// A tool for one endpoint.
    pub fn new(mut settings: WebhookToolSettings) -> Result<Self, SettingsError> {
        settings.name = named(settings.name)?;
        if settings.secrets.is_empty() {
            return Err(SettingsError("a webhook needs a secret to be signed with".into()));
        }
        let url = resolve(None, settings.allow_private, &settings.url)
            .map_err(|error| SettingsError(error.message))?;
        let reach =
            Reach { connect_timeout: settings.timeout, allow_private: settings.allow_private };
        let client = Client::new(reach)
            .map_err(|error| SettingsError(format!("no trusted certificates: {error}")))?;
        Ok(Self { settings, url, client })
    }

    async fn send(&self, call: &Call) -> Result<Answer, ToolError> {
        let part = |of: &Json, name| of.get(name).cloned().unwrap_or(Json::Null);
        let body = body(&part(&call.plan.identity, "event"), &part(&call.plan.payload, "data"))?;
        let request = message(self.url.as_str(), &id(call), &self.settings.secrets, body)
            .map_err(|error| ToolError::logic(format!("the request cannot be made: {error}")))?;
        let answer = self.client.send_alone(request, self.settings.timeout, ANSWER).await;
        answer.map_err(|why| unanswered(&why))
    }
}

#[async_trait]
impl Tool for Webhook {
    fn name(&self) -> &str {
        &self.settings.name
    }

    fn operations(&self) -> &[Operation] {
        &[Operation { name: "send", mutates: true }]
    }

    fn plan(&self, operation: &str, arguments: &Json) -> Result<Plan, ToolError> {
        if operation != "send" {
            return Err(ToolError::logic(format!("{} cannot {operation}", self.settings.name)));
        }
        let arguments = Arguments::of(arguments, &["event", "data"])?;
        let event = arguments.text("event")?;
        if event.trim().is_empty() || event.len() > LONGEST_EVENT {
            return Err(ToolError::logic("an event has a name of 1 to 256 bytes"));
        }
        let event = Json::text(event);
        let data = arguments.get("data").cloned().unwrap_or(Json::Null);
        if body(&event, &data)?.len() > self.settings.max_request {
            let most = self.settings.max_request;
            return Err(ToolError::logic(format!("a webhook has at most {most} bytes")));
        }
        let identity = Json::object([("event", event)]);
        Ok(Plan { target: self.url.to_string(), identity, payload: Json::object([("data", data)]) })
    }

    /// The notation of the data does not count. A member that is null instead of absent is a minor
    /// difference.
    fn compare_payload(&self, _operation: &str, recorded: &Json, requested: &Json) -> Difference {
        match (same(recorded, requested), same(&without_nulls(recorded), &without_nulls(requested)))
        {
            (true, _) => Difference::Equivalent,
            (false, true) => Difference::Minor,
            (false, false) => Difference::Significant,
        }
    }

    fn safety(&self, _operation: &str) -> Safety {
        match self.settings.honours_id {
            true => Safety::Reconcilable(Settling::TargetRefusesLate),
            false => Safety::Opaque,
        }
    }

    async fn mutate(&self, call: &Call, _claim: &Claim) -> Result<Json, ToolError> {
        let answer = self.send(call).await?;
        let turned_away = retry_after(&answer.headers).is_some();
        match failure(answer.status, turned_away, self.settings.honours_id) {
            None => Ok(result(call)),
            Some(class) => Err(refused(class, &answer)),
        }
    }

    /// To a receiver that remembers ids, the same webhook again is a question.
    async fn reconcile(&self, call: &Call) -> Finding {
        if !self.settings.honours_id {
            return Finding::CannotTell("the receiver cannot be asked about ids".into());
        }
        match self.send(call).await {
            Err(error) => Finding::CannotTell(format!("sent again, {}", error.message)),
            Ok(answer) => match repeated(answer.status) {
                Repeated::Happened => happened(&result(call)),
                Repeated::Refused => Finding::NotFound,
                Repeated::Silent => {
                    let message = refused(Class::Transient, &answer).message;
                    Finding::CannotTell(format!("sent again, {message}"))
                }
            },
        }
    }

    fn check_by_hand(&self, call: &Call) -> String {
        format!("whether the receiver at {} has webhook-id {}", self.url, id(call))
    }
}

/// The webhook's id: the same each time, so that the receiver recognises it.
fn id(call: &Call) -> String {
    format!("msg_{}", HEXLOWER.encode(call.key.as_bytes()))
}

fn result(call: &Call) -> Json {
    Json::object([("id", Json::String(id(call)))])
}

/// The body: the same bytes each time, for the time of sending is in a header.
fn body(event: &Json, data: &Json) -> Result<String, ToolError> {
    let body = Json::object([("type", event.clone()), ("data", data.clone())]);
    canonical(&body).map_err(|error| ToolError::logic(format!("the data: {error}")))
}

fn refused(class: Class, answer: &Answer) -> ToolError {
    let text = answer.body.as_ref().map(|body| String::from_utf8_lossy(body));
    let text = excerpt(&text.unwrap_or_default(), QUOTED);
    let colon = if text.is_empty() { "" } else { ": " };
    ToolError { class, message: format!("the receiver answered {}{colon}{text}", answer.status) }
}
