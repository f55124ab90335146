//! The request options that an endpoint accepts for a model, learnt from its refusals.
//!
//!   json_schema ──▶ json_object ──▶ no response_format
//!   max_tokens  ──▶ max_completion_tokens
//!
//! Compatible endpoints differ in how a request names the form of an answer, and in the name of
//! the length limit. If an endpoint answers 400 and names an option that it does not know, the
//! request is repeated in the next dialect. The learnt dialect is kept while the process lives.
//!
//! A model may answer otherwise in another dialect, but the dialect is in no key. It is not known
//! before the first request, so a new process would miss answers that another one paid for; and
//! every answer is checked in the same way.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value, json};

/// Callers name models; this keeps them from filling the memory with names.
const MODELS: usize = 256;

/// The options that an endpoint accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Dialect {
    form: Form,
    limit: Limit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Form {
    /// A JSON schema that the endpoint enforces.
    #[default]
    Schema,
    /// Any JSON object.
    Object,
    /// No option: only the prompt requires JSON.
    Plain,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Limit {
    #[default]
    Tokens,
    CompletionTokens,
}

impl Dialect {
    /// Writes the options of this dialect into a request.
    pub(super) fn write(
        self,
        request: &mut Map<String, Value>,
        name: &str,
        schema: &Value,
        limit: u32,
    ) {
        let form = match self.form {
            Form::Schema => Some(json!({
                "type": "json_schema",
                "json_schema": { "name": name, "strict": true, "schema": schema },
            })),
            Form::Object => Some(json!({ "type": "json_object" })),
            Form::Plain => None,
        };
        if let Some(form) = form {
            request.insert("response_format".into(), form);
        }
        let limit_name = match self.limit {
            Limit::Tokens => "max_tokens",
            Limit::CompletionTokens => "max_completion_tokens",
        };
        request.insert(limit_name.into(), limit.into());
    }

    /// The dialect to try after this complaint about a bad request, if it is about the dialect.
    pub(super) fn after(self, complaint: &str) -> Option<Self> {
        let complaint = complaint.to_lowercase();
        let names = |words: &[&str]| words.iter().any(|word| complaint.contains(word));
        if self.limit == Limit::Tokens && names(&["max_completion_tokens"]) {
            return Some(Self { limit: Limit::CompletionTokens, ..self });
        }
        if !names(&["response_format", "json_schema", "json_object", "structured output"]) {
            return None;
        }
        match self.form {
            Form::Schema => Some(Self { form: Form::Object, ..self }),
            Form::Object => Some(Self { form: Form::Plain, ..self }),
            Form::Plain => None,
        }
    }
}

/// The learnt dialects, by model.
#[derive(Debug, Default)]
pub(super) struct Dialects(Mutex<HashMap<String, Dialect>>);

impl Dialects {
    pub(super) fn of(&self, model: &str) -> Dialect {
        let learnt = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        learnt.get(model).copied().unwrap_or_default()
    }

    pub(super) fn learn(&self, model: &str, dialect: Dialect) {
        let mut learnt = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if learnt.len() < MODELS || learnt.contains_key(model) {
            learnt.insert(model.to_owned(), dialect);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dialect_that_is_refused_has_a_next_one_until_there_is_none() {
        let mut dialect = Dialect::default();
        let mut steps = 0;
        let complaint = "Invalid: response_format is unknown, use max_completion_tokens instead";
        while let Some(next) = dialect.after(complaint) {
            (dialect, steps) = (next, steps + 1);
        }
        assert_eq!(steps, 3);
        assert_eq!(Dialect::default().after("temperature is not supported"), None);
        let mut request = Map::new();
        dialect.write(&mut request, "entities", &json!({}), 7);
        assert_eq!(Value::Object(request), json!({ "max_completion_tokens": 7 }));
    }

    #[test]
    fn no_more_models_are_remembered_than_fit() {
        let dialects = Dialects::default();
        let plain = Dialect { form: Form::Plain, ..Dialect::default() };
        for nth in 0..MODELS + 1 {
            dialects.learn(&format!("m-{nth}"), plain);
        }
        assert_eq!(dialects.of("m-0"), plain);
        assert_eq!(dialects.of(&format!("m-{MODELS}")), Dialect::default());
    }
}
