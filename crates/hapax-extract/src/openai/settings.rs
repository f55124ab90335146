//! How an endpoint is reached, what it may take, and what it costs.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use http::Uri;
use http::uri::PathAndQuery;

/// How an endpoint is reached and called.
#[derive(Clone)]
pub struct Settings {
    /// The URL before `/chat/completions`, such as `https://api.openai.com/v1`. It has no
    /// credentials and no query.
    pub base_url: String,
    /// The API key for the endpoint, if it needs one.
    pub api_key: Option<ApiKey>,
    /// The model that is called where a caller names none.
    pub model: String,
    /// How long one call may take, from connecting to the last byte of the answer.
    pub timeout: Duration,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long an answer may be, in bytes. A longer one is refused as it arrives.
    pub max_response_bytes: usize,
    /// How many calls may be in flight at once.
    pub max_concurrent_calls: usize,
    /// How many calls may begin in a minute; any number, if none.
    pub requests_per_minute: Option<NonZeroU32>,
    /// The prices of tokens, if the cost is to be counted.
    pub prices: Option<Prices>,
    /// The version of the prompt.
    pub prompt: Prompt,
}

impl Settings {
    /// An endpoint and its model, with defaults for everything else.
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            api_key: None,
            model: model.into(),
            timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(10),
            max_response_bytes: 4 * 1024 * 1024,
            max_concurrent_calls: 8,
            requests_per_minute: None,
            prices: None,
            prompt: Prompt::default(),
        }
    }

    /// The URL that questions are posted to.
    pub(super) fn address(&self) -> Result<Uri, SettingsError> {
        let refuse = || SettingsError::BaseUrl(shown(&self.base_url));
        if self.base_url.contains(['?', '#']) {
            return Err(refuse());
        }
        let uri: Uri = self.base_url.parse().map_err(|_| refuse())?;
        let authority = uri.authority().ok_or_else(refuse)?;
        if authority.as_str().contains('@') {
            return Err(SettingsError::Credentials);
        }
        if !matches!(uri.scheme_str(), Some("http" | "https")) || authority.host().is_empty() {
            return Err(refuse());
        }
        let path = format!("{}/chat/completions", uri.path().trim_end_matches('/'));
        let mut parts = uri.into_parts();
        parts.path_and_query = Some(PathAndQuery::try_from(path).map_err(|_| refuse())?);
        Uri::from_parts(parts).map_err(|_| refuse())
    }
}

/// Shows neither the key nor what may be a password in the URL.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("base_url", &shown(&self.base_url))
            .field("api_key", &self.api_key)
            .field("model", &self.model)
            .field("timeout", &self.timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("max_response_bytes", &self.max_response_bytes)
            .field("max_concurrent_calls", &self.max_concurrent_calls)
            .field("requests_per_minute", &self.requests_per_minute)
            .field("prices", &self.prices)
            .field("prompt", &self.prompt)
            .finish()
    }
}

/// A URL without the parts that may be secret: before an `@`, after a `?` or a `#`.
fn shown(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let url = match (url.find("//"), url.rfind('@')) {
        (Some(slashes), Some(at)) if slashes < at => {
            format!("{}…{}", &url[..slashes + 2], &url[at..])
        }
        (None, Some(at)) => format!("…{}", &url[at..]),
        _ => url.to_owned(),
    };
    url.chars().take(200).collect()
}

/// The secret that is sent to the endpoint. Errors and debug output do not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// A key, which is one word of visible ASCII.
    pub fn new(text: &str) -> Result<Self, SettingsError> {
        let fits = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
        match !text.is_empty() && text.bytes().all(fits) {
            true => Ok(Self(text.to_owned())),
            false => Err(SettingsError::ApiKey),
        }
    }

    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// Prices of tokens, in millionths of a currency. A dollar for a million tokens is 1,000,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Prices {
    /// The price of a million tokens that are read.
    pub input_micros_per_million: u64,
    /// The price of a million tokens that are written.
    pub output_micros_per_million: u64,
}

/// The version of the prompt. Another version gives other answers, so it is in the identity of the
/// extractor. An old version stays for as long as results are kept that were made by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Prompt {
    /// The first version.
    #[default]
    V1,
}

impl fmt::Display for Prompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V1 => f.write_str("1"),
        }
    }
}

/// Why settings were refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The base URL is not a usable URL.
    #[error("{0:?} is not an http or https URL with a host and without a query")]
    BaseUrl(String),
    /// The base URL has a user or a password in it.
    #[error("the base URL has credentials in it; give them as the API key")]
    Credentials,
    /// The API key cannot be sent in a header.
    #[error("the API key is empty, or has characters that no header may have")]
    ApiKey,
    /// The model has no name, or too long a name.
    #[error("the model is not named, or by more than 200 characters")]
    Model,
    /// No certificates are trusted on this machine.
    #[error("no trusted certificates: {0}")]
    Certificates(std::io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(base: &str) -> Result<String, String> {
        let address = Settings::new(base, "m").address();
        address.map(|uri| uri.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn questions_are_posted_below_the_base() {
        for (base, expected) in [
            ("https://api.example.org/v1", "https://api.example.org/v1/chat/completions"),
            ("https://api.example.org/v1/", "https://api.example.org/v1/chat/completions"),
            ("http://[::1]:8000", "http://[::1]:8000/chat/completions"),
        ] {
            assert_eq!(address(base).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn a_base_that_is_none_or_carries_secrets_is_refused_and_not_repeated() {
        for base in ["", "api.example.org/v1", "ftp://api.example.org", "/v1", "https://"] {
            assert!(address(base).is_err(), "{base}");
        }
        for base in [
            "https://ada:hush@example.org/v1",
            "https://example.org/v1?key=hush",
            "ada:hush@example.org",
            "ftp://ada:hush@example.org#hush",
        ] {
            let error = address(base).unwrap_err();
            assert!(!error.contains("hush"), "{error}");
            let shown = format!("{:?}", Settings::new(base, "m"));
            assert!(!shown.contains("hush"), "{shown}");
        }
    }

    #[test]
    fn a_key_that_no_header_may_have_is_refused() {
        for key in ["", "two words", "line\nend", "schlüssel", "quo\"te"] {
            assert!(ApiKey::new(key).is_err(), "{key:?}");
        }
        assert!(ApiKey::new("sk-aB_9.~").is_ok());
    }
}
