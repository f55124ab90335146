//! The endpoint's answers: a completion, or a complaint.

use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

/// The text that the model wrote, and why it stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Completion {
    pub(super) text: String,
    pub(super) end: End,
}

/// Why a model stopped writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// It had written everything.
    Done,
    /// It was not allowed any more tokens.
    CutOff,
    /// The model, or a filter before it, refuses to answer, in these words.
    Refused(String),
}

/// The parts of an answer's body that are read.
#[derive(Debug, Deserialize)]
pub(super) struct Envelope {
    #[serde(default)]
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<Value>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    message: Message,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Message {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    refusal: Option<String>,
}

impl Envelope {
    pub(super) fn tokens_in(&self) -> u64 {
        self.tokens("prompt_tokens")
    }

    pub(super) fn tokens_out(&self) -> u64 {
        self.tokens("completion_tokens")
    }

    /// A wrong or missing count is read as 0, and a count is capped at `u32::MAX`. It never makes
    /// the answer a failure.
    fn tokens(&self, name: &str) -> u64 {
        let counted = self.usage.as_ref().and_then(|usage| usage.get(name)?.as_u64());
        counted.unwrap_or(0).min(u32::MAX.into())
    }

    /// The status of an answer with an `error` in its body: the error's own code, else 502.
    pub(super) fn failure(&self) -> Option<StatusCode> {
        let error = self.error.as_ref().filter(|error| !error.is_null())?;
        let code = error.get("code").and_then(Value::as_u64).and_then(|code| code.try_into().ok());
        let code = code.and_then(|code| StatusCode::from_u16(code).ok());
        Some(code.filter(|code| !code.is_success()).unwrap_or(StatusCode::BAD_GATEWAY))
    }

    pub(super) fn completion(self) -> Option<Completion> {
        let Choice { message, finish_reason } = self.choices.into_iter().next()?;
        let end = match (message.refusal, finish_reason.as_deref()) {
            (Some(refusal), _) => End::Refused(refusal),
            (None, Some("content_filter")) => End::Refused("a content filter stopped it".into()),
            (None, Some("length")) => End::CutOff,
            (None, _) => End::Done,
        };
        Some(Completion { text: message.content.unwrap_or_default(), end })
    }
}

/// The endpoint's words about a failure, from any of the places where endpoints put them.
pub(super) fn complaint(body: &[u8]) -> String {
    let Ok(value) = serde_json::from_slice::<Value>(body) else {
        return String::from_utf8_lossy(&body[..body.len().min(4096)]).into_owned();
    };
    let places = ["/error/message", "/error", "/message", "/detail"];
    let message = places.iter().filter_map(|place| value.pointer(place)).find_map(Value::as_str);
    message.map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Envelope {
        serde_json::from_str(body).unwrap()
    }

    #[test]
    fn a_complaint_is_found_wherever_it_stands() {
        for body in [
            r#"{"error": {"message": "no", "type": "x"}}"#,
            r#"{"error": "no"}"#,
            r#"{"message": "no"}"#,
            r#"{"detail": "no"}"#,
            "no",
        ] {
            assert_eq!(complaint(body.as_bytes()), "no");
        }
        assert_eq!(complaint(br#"{"detail": [1]}"#), r#"{"detail":[1]}"#);
    }

    #[test]
    fn a_failure_in_the_guise_of_an_answer_is_one() {
        assert_eq!(read(r#"{"choices": [], "error": null}"#).failure(), None);
        let busy = read(r#"{"error": {"code": 429, "message": "slow down"}}"#);
        assert_eq!(busy.failure(), Some(StatusCode::TOO_MANY_REQUESTS));
        let strange = read(r#"{"error": {"code": "oops"}}"#);
        assert_eq!(strange.failure(), Some(StatusCode::BAD_GATEWAY));
    }

    #[test]
    fn a_refusal_differs_from_an_answer_that_was_cut_off() {
        let end = |choice: &str| read(&format!(r#"{{"choices": [{choice}]}}"#)).completion();
        let cut = end(r#"{"message": {"content": "{"}, "finish_reason": "length"}"#).unwrap();
        assert_eq!(cut, Completion { text: "{".into(), end: End::CutOff });
        let refused = end(r#"{"message": {"content": null, "refusal": "no"}}"#).unwrap();
        assert_eq!(refused.end, End::Refused("no".into()));
        assert_eq!(end(""), None);
    }
}
