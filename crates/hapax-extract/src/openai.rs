//! Any endpoint that speaks OpenAI's chat completions, as an extractor.
//!
//!   question ──▶ answer ──▶ checked against the chunk ──▶ findings
//!                              │ with faults
//!                              ▼
//!                           sent back, once ──▶ the items that pass, or an error
//!
//! It repeats a request by itself only in three cases. A faulty answer is sent back once. A `429`
//! that requests a short pause gets it once. A dialect that the endpoint refuses is replaced by the
//! next one. All other retries are the caller's. Each HTTP request is counted, whatever its
//! outcome.

mod completion;
mod dialect;
mod endpoint;
mod kinds;
mod meter;
mod places;
mod question;
mod reading;
mod settings;

pub use meter::EndpointUsage;
pub use settings::{ApiKey, Prices, Prompt, Settings, SettingsError};

use std::fmt;
use std::time::Duration;

use hapax_sinks::excerpt::excerpt;
use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::extractor::{Answer, Answered, Bill, ChunkRequest, Extractor, ExtractorError};
use crate::graph::{Mention, Statement};
use crate::ontology::Property;
use crate::params::Params;
use completion::{Completion, End};
use dialect::Dialects;
use endpoint::{CallError, Endpoint};
use meter::Tally;
use question::Question;
use reading::Reading;

/// How many characters before a chunk are shown with it.
const CONTEXT: usize = 600;

/// The longest pause that is waited out instead of being passed on to the caller.
const POLITE: Duration = Duration::from_secs(5);

/// How much of a wrong answer is sent back, in characters.
const SENT_BACK: usize = 20_000;

/// How many of its faults are listed.
const FAULTS: usize = 20;

/// An extractor that calls a model behind an endpoint.
///
/// ```
/// use hapax_extract::Extractor as _;
/// use hapax_extract::openai::{ApiKey, OpenAi, Settings};
///
/// let mut settings = Settings::new("http://127.0.0.1:8000/v1", "qwen3-8b");
/// settings.api_key = Some(ApiKey::new("sk-secret")?);
/// let extractor = OpenAi::new(settings)?;
/// assert!(!extractor.identity().contains("secret"));
/// assert_eq!(extractor.spent().calls, 0);
/// # Ok::<(), hapax_extract::openai::SettingsError>(())
/// ```
pub struct OpenAi {
    settings: Settings,
    endpoint: Endpoint,
    dialects: Dialects,
}

impl OpenAi {
    /// An extractor with these settings. It calls nothing yet.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        if !(1..=200).contains(&settings.model.chars().count()) {
            return Err(SettingsError::Model);
        }
        let endpoint = Endpoint::new(&settings)?;
        Ok(Self { settings, endpoint, dialects: Dialects::default() })
    }

    /// The total use until now.
    pub fn spent(&self) -> EndpointUsage {
        self.endpoint.meter.spent(self.settings.prices)
    }

    /// Sends the question, and a faulty answer back once.
    async fn converse<T>(
        &self,
        params: &Params,
        question: Question,
        read: impl Fn(&str) -> Reading<T>,
    ) -> Result<Answered<Vec<T>>, ExtractorError> {
        let mut talk = Talk::new(params, question, &self.settings.model);
        let first = self.complete(&mut talk).await?;
        let reading = talk.judge(&first, &read)?;
        let (kept, discarded) = match reading {
            Reading { found: Some(found), faults } if faults.is_empty() => (found, 0),
            reading => {
                self.endpoint.meter.repaired();
                talk.send_back(&first, &reading.faults);
                let second = self.complete(&mut talk).await?;
                let again = talk.judge(&second, &read)?;
                self.better(reading, again)?
            }
        };
        let Tally { calls, tokens_in, tokens_out } = talk.tally;
        Ok(Answered { found: kept, calls, tokens_in, tokens_out, discarded })
    }

    /// Of two answers, the one with more usable items; the later one, if both have as many. With it
    /// the number of its items that cannot be used.
    fn better<T>(
        &self,
        first: Reading<T>,
        second: Reading<T>,
    ) -> Result<(Vec<T>, u32), ExtractorError> {
        let size = |reading: &Reading<T>| reading.found.as_ref().map(Vec::len);
        let chosen = if size(&first) > size(&second) { first } else { second };
        let Reading { found, faults } = chosen;
        let Some(found) = found else {
            let why = faults.first().map(String::as_str).unwrap_or_default();
            return Err(ExtractorError::Never(format!(
                "the model's answer cannot be used, nor could it after it was sent back: {why}"
            )));
        };
        self.endpoint.meter.left_out(faults.len());
        Ok((found, u32::try_from(faults.len()).unwrap_or(u32::MAX)))
    }

    /// One answer of the model, in a dialect that the endpoint understands.
    async fn complete(&self, talk: &mut Talk) -> Result<Completion, ExtractorError> {
        let mut dialect = self.dialects.of(&talk.model);
        loop {
            let mut request = talk.request();
            dialect.write(&mut request, talk.name, &talk.schema, talk.max_tokens);
            let called = self.endpoint.call(&Value::Object(request), &mut talk.tally).await;
            let refused = match called {
                Ok(completion) => return Ok(completion),
                Err(refused) => refused,
            };
            if refused.status == Some(StatusCode::BAD_REQUEST)
                && let Some(next) = dialect.after(&refused.error.to_string())
            {
                dialect = next;
                self.dialects.learn(&talk.model, next);
                continue;
            }
            match short_pause(&refused) {
                Some(pause) if !talk.paused => {
                    talk.paused = true;
                    tokio::time::sleep(pause).await;
                }
                _ => return Err(refused.error),
            }
        }
    }
}

/// The pause that the endpoint requests, if it is busy and the pause is short.
fn short_pause(refused: &CallError) -> Option<Duration> {
    match (refused.status, &refused.error) {
        (Some(StatusCode::TOO_MANY_REQUESTS), ExtractorError::Later { after, .. }) => {
            after.filter(|after| *after <= POLITE)
        }
        _ => None,
    }
}

impl fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (settings, spent) = (&self.settings, self.spent());
        f.debug_struct("OpenAi").field("settings", settings).field("spent", &spent).finish()
    }
}

impl Extractor for OpenAi {
    fn identity(&self) -> String {
        // Every setting is listed, so that a new one does not compile before its author has thought
        // of the key.
        let Settings {
            base_url,
            model,
            prompt,
            // The account and its prices: the same model answers.
            api_key: _,
            prices: _,
            // Timing and rate: they do not change the answer.
            timeout: _,
            connect_timeout: _,
            max_concurrent_calls: _,
            requests_per_minute: _,
            // A longer answer is an error, and errors are not recorded.
            max_response_bytes: _,
        } = &self.settings;
        let base_url = base_url.trim_end_matches('/');
        format!("openai.1 base={base_url} model={model:?} prompt={prompt}")
    }

    fn context(&self) -> usize {
        CONTEXT
    }

    fn model(&self) -> Option<&str> {
        Some(&self.settings.model)
    }

    fn bill(&self) -> Bill {
        let EndpointUsage { calls, tokens_in, tokens_out, cost_micros, .. } = self.spent();
        Bill { calls, tokens_in, tokens_out, cost_micros }
    }

    fn cost_micros(&self, tokens_in: u64, tokens_out: u64) -> Option<u64> {
        self.settings.prices.map(|prices| meter::cost(prices, tokens_in, tokens_out))
    }

    fn entities<'a>(&'a self, request: ChunkRequest<'a>) -> Answer<'a, Vec<Mention>> {
        Box::pin(async move {
            if request.chunk.trim().is_empty() || request.ontology.classes.is_empty() {
                return Ok(Answered::default());
            }
            let question = match self.settings.prompt {
                Prompt::V1 => question::entities(&request),
            };
            self.converse(request.params, question, |answer| reading::entities(answer, &request))
                .await
        })
    }

    fn relations<'a>(
        &'a self,
        request: ChunkRequest<'a>,
        mentions: &'a [Mention],
        properties: &'a [&'a Property],
    ) -> Answer<'a, Vec<Statement>> {
        Box::pin(async move {
            if mentions.len() < 2 || properties.is_empty() {
                return Ok(Answered::default());
            }
            let question = match self.settings.prompt {
                Prompt::V1 => question::relations(&request, mentions, properties),
            };
            let read = |answer: &str| reading::relations(answer, &request, mentions, properties);
            let answered = self.converse(request.params, question, read).await?;
            // Only entities count as discarded.
            Ok(Answered { discarded: 0, ..answered })
        })
    }
}

/// One question and the conversation about it.
struct Talk {
    model: String,
    temperature: f64,
    seed: Option<i64>,
    max_tokens: u32,
    messages: Vec<Value>,
    name: &'static str,
    schema: Value,
    tally: Tally,
    /// Whether a pause was waited out.
    paused: bool,
}

impl Talk {
    fn new(params: &Params, question: Question, model: &str) -> Self {
        let Question { system, user, name, schema } = question;
        Self {
            model: params.model.as_deref().unwrap_or(model).to_owned(),
            temperature: params.temperature,
            seed: params.seed,
            max_tokens: params.max_tokens,
            messages: vec![message("system", &system), message("user", &user)],
            name,
            schema,
            tally: Tally::default(),
            paused: false,
        }
    }

    fn request(&self) -> Map<String, Value> {
        let mut request = Map::new();
        request.insert("model".into(), self.model.as_str().into());
        request.insert("messages".into(), self.messages.as_slice().into());
        request.insert("temperature".into(), self.temperature.into());
        if let Some(seed) = self.seed {
            request.insert("seed".into(), seed.into());
        }
        request
    }

    /// Reads an answer. An error means that no other answer is to be expected.
    fn judge<T>(
        &self,
        completion: &Completion,
        read: impl Fn(&str) -> Reading<T>,
    ) -> Result<Reading<T>, ExtractorError> {
        match &completion.end {
            End::Done => Ok(read(&completion.text)),
            End::CutOff => Ok(Reading::unreadable(format!(
                "the answer was cut off after {} tokens; a larger maxTokens or a smaller \
                 chunkSize may help",
                self.max_tokens
            ))),
            End::Refused(words) => {
                let words = excerpt(words, 200);
                Err(ExtractorError::Never(format!("the model will not answer this: {words}")))
            }
        }
    }

    fn send_back(&mut self, completion: &Completion, faults: &[String]) {
        let mut answer: String = completion.text.chars().take(SENT_BACK).collect();
        if answer.trim().is_empty() {
            answer = "(nothing)".into();
        }
        let mut complaint = String::from("That answer cannot be used as it is:\n");
        for fault in faults.iter().take(FAULTS) {
            complaint.push_str(&format!("- {fault}\n"));
        }
        if faults.len() > FAULTS {
            complaint.push_str(&format!("- and {} more\n", faults.len() - FAULTS));
        }
        complaint.push_str("Answer again, in full and with JSON only.");
        self.messages.extend([message("assistant", &answer), message("user", &complaint)]);
    }
}

fn message(role: &str, content: &str) -> Value {
    json!({ "role": role, "content": content })
}
