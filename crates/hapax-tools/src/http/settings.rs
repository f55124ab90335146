//! The servers that a tool sends requests to, and how.

use std::fmt;
use std::time::Duration;

use hapax::Key;
use hapax_core::json::Json;
use hapax_items::ToolError;
use http::header::{HeaderName, HeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use super::address;
use crate::{SettingsError, named};

/// Headers that scripts may set, unless others are named.
const ALLOWED: [&str; 9] = [
    "accept",
    "accept-language",
    "content-language",
    "content-type",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-unmodified-since",
    "prefer",
];

/// Headers that no script may set, whatever is allowed: they name the sender or the request, or
/// control its transport.
const NEVER: [&str; 15] = [
    "authorization",
    "connection",
    "content-length",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "idempotency-key",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "x-http-method-override",
];

/// How many bytes the value of a header may have.
const LONGEST_VALUE: usize = 4096;

/// The servers that a tool sends requests to, and how.
#[derive(Clone)]
pub struct HttpSettings {
    /// The name that scripts call it by.
    pub name: String,
    /// The URL that every other URL has to be under; without it, any URL is allowed.
    pub base: Option<Url>,
    /// Headers that every request has, such as `authorization`. They need a base, so that no
    /// script can send them elsewhere.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The headers that scripts may set.
    pub allow_headers: Vec<HeaderName>,
    /// How long a request may take, with its answer.
    pub timeout: Duration,
    /// Whether servers may have private addresses.
    pub allow_private: bool,
    /// How large a body may be, in bytes.
    pub max_request: usize,
    /// How large an answer may be, in bytes.
    pub max_response: usize,
    /// How to find out whether a mutation happened.
    pub probe: Option<Probe>,
    /// Whether the server remembers `Idempotency-Key` and repeats its first answer.
    pub honours_key: bool,
    /// How long a mutation may still take effect after it could last have been sent.
    pub settling: Duration,
}

impl HttpSettings {
    /// Any public server, called by scripts under this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            base: None,
            headers: Vec::new(),
            allow_headers: ALLOWED.map(HeaderName::from_static).to_vec(),
            timeout: Duration::from_secs(30),
            allow_private: false,
            max_request: 1024 * 1024,
            max_response: 1024 * 1024,
            probe: None,
            honours_key: false,
            settling: Duration::from_secs(60),
        }
    }

    pub(super) fn checked(mut self) -> Result<Self, SettingsError> {
        self.name = named(self.name)?;
        let wrong = |why: String| Err(SettingsError(why));
        if let Some(base) = self.base.take() {
            let plain = base.query().is_none() && base.fragment().is_none();
            let base = match address::resolve(None, self.allow_private, base.as_str()) {
                Ok(base) if plain => address::directory(base),
                Ok(base) => return wrong(format!("{base} cannot be the base of other URLs")),
                Err(error) => return wrong(error.message),
            };
            self.base = Some(base);
        }
        if self.base.is_none() && !self.headers.is_empty() {
            return wrong("headers need a base, so that no script sends them elsewhere".into());
        }
        let own = |name: &HeaderName| self.headers.iter().any(|(own, _)| own == name);
        if let Some(name) =
            self.allow_headers.iter().find(|name| NEVER.contains(&name.as_str()) || own(name))
        {
            return wrong(format!("scripts may not set the header {name}"));
        }
        if let Some(probe) = &self.probe {
            if !format!("{}{}", probe.url, probe.pointer.as_deref().unwrap_or_default())
                .contains("{key}")
            {
                return wrong("a probe has to have {key} in its URL or its pointer".into());
            }
            let example = Key::from_bytes([0; 32]);
            if let Err(error) = probe.url(self.base.as_ref(), self.allow_private, example) {
                return wrong(error.message);
            }
        }
        for (_, value) in &mut self.headers {
            value.set_sensitive(true);
        }
        Ok(self)
    }

    /// The headers that a script requests, sorted by name, if it may set them.
    pub(super) fn admitted(&self, requested: Option<&Json>) -> Result<Json, ToolError> {
        let Some(requested) = requested else { return Ok(Json::Object(Vec::new())) };
        let Json::Object(members) = requested else {
            return Err(ToolError::logic("headers have to be an object of texts"));
        };
        let mut admitted = Vec::new();
        for (name, value) in members {
            let known = HeaderName::try_from(name.as_str()).ok();
            let Some(known) = known.filter(|known| self.allow_headers.contains(known)) else {
                return Err(ToolError::logic(format!("the header {name:?} may not be set")));
            };
            let fits =
                |text: &&str| text.len() <= LONGEST_VALUE && HeaderValue::try_from(*text).is_ok();
            let Some(value) = value.as_str().filter(fits) else {
                return Err(ToolError::logic(format!("the header {name:?} needs a short text")));
            };
            admitted.push((known.as_str().to_owned(), Json::text(value)));
        }
        admitted.sort_by(|(one, _), (other, _)| one.cmp(other));
        if let Some(twice) = admitted.windows(2).find(|two| two[0].0 == two[1].0) {
            return Err(ToolError::logic(format!("the header {:?} is given twice", twice[0].0)));
        }
        Ok(Json::Object(admitted))
    }

    /// A text without the values of the tool's own headers, or their last words, such as the token
    /// after `Bearer`.
    pub(super) fn without_secrets(&self, text: &str) -> String {
        let secrets = self.headers.iter().filter_map(|(_, value)| value.to_str().ok());
        let words = secrets.flat_map(|value| [Some(value), value.split_whitespace().last()]);
        let words = words.flatten().filter(|word| word.len() >= 4);
        words.fold(text.to_owned(), |text, word| text.replace(word, "…"))
    }
}

impl fmt::Debug for HttpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("HttpSettings")
            .field("name", &self.name)
            .field("base", &self.base.as_ref().map(Url::as_str))
            .field("headers", &names)
            .finish_non_exhaustive()
    }
}

/// How to find out whether a mutation happened: by asking for the thing that it would have made.
///
/// An answer of 2xx means that it happened, and is the result; 404 means that it was not found; any
/// other answer proves nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The URL to ask, under the base, with `{key}` where the mutation's key belongs.
    pub url: String,
    /// The place in the answer where the thing has to be, as a JSON pointer, for servers that
    /// answer 200 to every question. May have `{key}` in it as well.
    pub pointer: Option<String>,
}

impl Probe {
    pub(super) fn url(
        &self,
        base: Option<&Url>,
        allow_private: bool,
        key: Key,
    ) -> Result<Url, ToolError> {
        let key = key.to_string();
        let key = utf8_percent_encode(&key, NON_ALPHANUMERIC).to_string();
        address::resolve(base, allow_private, &self.url.replace("{key}", &key))
    }

    pub(super) fn pointer(&self, key: Key) -> Option<String> {
        Some(self.pointer.as_ref()?.replace("{key}", &key.to_string()))
    }
}
