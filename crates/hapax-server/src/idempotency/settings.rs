//! The rules for clients, and for the answers that are kept.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, ETAG, LAST_MODIFIED, LINK,
    LOCATION, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, StatusCode};
use serde_json::Value;

use super::caller::Identity;
use crate::problem::{KEY_MALFORMED, Problem, TENANT_UNKNOWN};

/// The longest key, in characters.
const LONGEST: usize = 255;

/// The fate of the effect according to an answer. A service that knows better than its status code
/// puts this into the extensions of its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Settlement {
    /// The effect is settled: keep the answer.
    Settled,
    /// It did not happen: the next request with the key is passed on.
    NotDone,
    /// It may have happened: no request with the key is passed on until the outcome is known.
    Unknown,
}

/// Which requests need a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyNeed {
    /// Requests without a key are refused.
    Required,
    /// Requests without a key are passed on.
    Optional,
}

/// The answer to a request while the same one is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnInFlight {
    /// 409 at once; a client may ask to wait with `Prefer: wait=N`.
    Refuse,
    /// Wait this long for the answer of the one in flight.
    Wait(Duration),
}

/// The tenants. Keys of different tenants are independent.
#[derive(Clone, Default)]
pub enum Tenant {
    /// All clients are one tenant.
    #[default]
    One,
    /// The value of a header names the tenant, such as one that a gateway sets.
    Header(HeaderName),
    /// Your function names the tenant.
    By(Arc<dyn Fn(&Parts) -> String + Send + Sync>),
}

/// Ready-made settings that match well-known APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Preset {
    /// The IETF draft: a key is required; 409 in flight, 422 for another body; transient errors are
    /// not kept.
    #[default]
    Ietf,
    /// A key is optional; 400 for another body; all answers but 401, 403, 407, 425 and 429 are
    /// kept, errors of the server included.
    Stripe,
    /// A key in `X-Amz-Client-Token` is optional; 400 for another body; errors of the server are
    /// not kept.
    Aws,
    /// Iceberg's REST catalogs: a UUID is optional; a request waits up to 30 seconds for the same
    /// one in flight; errors of the server are not kept.
    Iceberg,
}

/// The settings of an [`IdempotencyLayer`](super::IdempotencyLayer).
#[derive(Clone)]
pub struct Settings {
    pub(crate) preset: Preset,
    pub(crate) header: HeaderName,
    pub(crate) need: KeyNeed,
    pub(crate) methods: Vec<Method>,
    pub(crate) tenant: Tenant,
    pub(crate) identity: Identity,
    pub(crate) in_flight: OnInFlight,
    /// The longest wait that `Prefer: wait=N` can ask for, unless requests wait longer unasked.
    pub(crate) longest_wait: Duration,
    pub(crate) mismatch: StatusCode,
    pub(crate) lifetime: Option<Duration>,
    pub(crate) largest_request: usize,
    pub(crate) longest_request: Duration,
    pub(crate) largest_answer: usize,
    pub(crate) longest_answer: Duration,
    pub(crate) at_once: usize,
    pub(crate) kept_headers: Vec<HeaderName>,
    /// The fates of statuses that differ from the preset.
    fates: HashMap<StatusCode, Settlement>,
    /// JSON pointers to the parts of answers that are not stored.
    redacted: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self::new(Preset::default())
    }
}

impl Settings {
    /// Settings of this preset.
    pub fn new(preset: Preset) -> Self {
        let ietf = Self {
            preset,
            header: HeaderName::from_static("idempotency-key"),
            need: KeyNeed::Required,
            methods: vec![Method::POST, Method::PATCH],
            tenant: Tenant::One,
            identity: Identity::Credentials,
            in_flight: OnInFlight::Refuse,
            longest_wait: Duration::from_secs(60),
            mismatch: StatusCode::UNPROCESSABLE_ENTITY,
            lifetime: Some(Duration::from_secs(24 * 3600)),
            largest_request: 1024 * 1024,
            longest_request: Duration::from_secs(30),
            largest_answer: 1024 * 1024,
            longest_answer: Duration::from_secs(60),
            at_once: 1024,
            kept_headers: vec![
                CACHE_CONTROL,
                CONTENT_ENCODING,
                CONTENT_LANGUAGE,
                CONTENT_TYPE,
                ETAG,
                LAST_MODIFIED,
                LINK,
                LOCATION,
                VARY,
            ],
            fates: HashMap::new(),
            redacted: Vec::new(),
        };
        match preset {
            Preset::Ietf => ietf,
            Preset::Stripe => Self {
                need: KeyNeed::Optional,
                methods: vec![Method::POST],
                mismatch: StatusCode::BAD_REQUEST,
                ..ietf
            },
            Preset::Aws => Self {
                header: HeaderName::from_static("x-amz-client-token"),
                need: KeyNeed::Optional,
                mismatch: StatusCode::BAD_REQUEST,
                ..ietf
            },
            Preset::Iceberg => Self {
                need: KeyNeed::Optional,
                methods: vec![Method::POST, Method::DELETE],
                in_flight: OnInFlight::Wait(Duration::from_secs(30)),
                ..ietf
            },
        }
    }

    /// Whether requests need a key.
    pub fn need(mut self, need: KeyNeed) -> Self {
        self.need = need;
        self
    }

    /// The methods whose keys count; requests with other methods are passed on as they are.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = methods.into_iter().collect();
        self
    }

    /// How tenants are distinguished.
    pub fn tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = tenant;
        self
    }

    /// The rule that tells callers apart. A stored answer is given only to the caller it was made for.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = identity;
        self
    }

    /// The answer to a request while the same one is in flight.
    pub fn in_flight(mut self, in_flight: OnInFlight) -> Self {
        self.in_flight = in_flight;
        self
    }

    /// The longest that a client may ask to wait for the same request in flight. It may always ask
    /// for as long as [`Settings::in_flight`] waits.
    pub fn longest_wait(mut self, time: Duration) -> Self {
        self.longest_wait = time;
        self
    }

    /// How long answers are kept; for ever with `None`.
    pub fn lifetime(mut self, lifetime: Option<Duration>) -> Self {
        self.lifetime = lifetime;
        self
    }

    /// The largest body of a request that has a key, in bytes.
    pub fn largest_request(mut self, bytes: usize) -> Self {
        self.largest_request = bytes;
        self
    }

    /// How long the body of a request that has a key may take to arrive.
    pub fn longest_request(mut self, time: Duration) -> Self {
        self.longest_request = time;
        self
    }

    /// The largest body of an answer that is kept, in bytes; at most 15 MiB.
    pub fn largest_answer(mut self, bytes: usize) -> Self {
        self.largest_answer = bytes.min(15 * 1024 * 1024);
        self
    }

    /// How long the body of an answer may take to arrive. After that the outcome is unknown.
    pub fn longest_answer(mut self, time: Duration) -> Self {
        self.longest_answer = time;
        self
    }

    /// How many requests with keys are passed on at once; more are refused with 503.
    pub fn at_once(mut self, requests: usize) -> Self {
        self.at_once = requests.max(1);
        self
    }

    /// The headers of an answer that are kept with it. Other headers are not stored.
    pub fn kept_headers(mut self, headers: impl IntoIterator<Item = HeaderName>) -> Self {
        self.kept_headers = headers.into_iter().collect();
        self
    }

    /// Keeps these headers too.
    pub fn and_kept_headers(mut self, headers: impl IntoIterator<Item = HeaderName>) -> Self {
        for header in headers {
            if !self.kept_headers.contains(&header) {
                self.kept_headers.push(header);
            }
        }
        self
    }

    /// Sets the fate for answers of this status, whatever the preset says.
    pub fn meaning(mut self, status: StatusCode, fate: Settlement) -> Self {
        self.fates.insert(status, fate);
        self
    }

    /// Redacts these parts of answers before they are stored, as JSON pointers such as
    /// `/card/number`. A replayed answer has `"[redacted]"` there. An answer that is not JSON could
    /// have the value anywhere, so its body is not kept.
    pub fn redacted(mut self, pointers: impl IntoIterator<Item = String>) -> Self {
        self.redacted = pointers.into_iter().collect();
        self
    }

    /// The body as it may be stored; none if the redaction cannot be applied to it.
    pub(crate) fn writable<'a>(
        &self,
        headers: &HeaderMap,
        body: &'a [u8],
    ) -> Option<Cow<'a, [u8]>> {
        if self.redacted.is_empty() || body.is_empty() {
            return Some(Cow::Borrowed(body));
        }
        let plain = headers.get(CONTENT_ENCODING).is_none_or(|encoding| encoding == "identity");
        let mut json: Value = serde_json::from_slice(body).ok().filter(|_| plain)?;
        let mut cut = false;
        for pointer in &self.redacted {
            if let Some(found) = json.pointer_mut(pointer) {
                (*found, cut) = (Value::from("[redacted]"), true);
            }
        }
        match cut {
            true => serde_json::to_vec(&json).ok().map(Cow::Owned),
            false => Some(Cow::Borrowed(body)),
        }
    }

    /// The fate of the effect according to an answer of this status.
    pub(crate) fn fate(&self, status: StatusCode) -> Settlement {
        if let Some(fate) = self.fates.get(&status) {
            return *fate;
        }
        match (self.preset, status.as_u16()) {
            // Refused before anything was done: not this caller, too early, or too many requests.
            (_, 401 | 403 | 407 | 425 | 429) => Settlement::NotDone,
            (Preset::Stripe, _) => Settlement::Settled,
            // The service itself sends these. 502, 504 and unregistered codes may come from an
            // intermediary, which does not know the outcome either.
            (_, 408 | 500 | 501 | 503 | 505) => Settlement::NotDone,
            (_, 500..) => Settlement::Unknown,
            _ => Settlement::Settled,
        }
    }

    /// The key of a request, unquoted. None if it has none.
    pub(crate) fn key_of(&self, head: &Parts) -> Result<Option<String>, Problem> {
        let mut values = head.headers.get_all(&self.header).iter();
        let Some(value) = values.next() else { return Ok(None) };
        let refuse =
            |detail: &str| Err(Problem::new(StatusCode::BAD_REQUEST, &KEY_MALFORMED, detail));
        if values.next().is_some() {
            return refuse("there is more than one");
        }
        let Ok(text) = value.to_str() else { return refuse("it is not ASCII") };
        let Some(key) = unquoted(text.trim()) else {
            return refuse("spaces, commas and quotes are written in quotes");
        };
        if key.is_empty() || key.len() > LONGEST {
            return refuse("it has 1 to 255 characters");
        }
        if !key.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return refuse("it has characters that cannot be seen");
        }
        if self.preset != Preset::Iceberg {
            return Ok(Some(key));
        }
        match is_uuid(&key) {
            true => Ok(Some(key.to_ascii_lowercase())),
            false => refuse("it is a UUID in this API"),
        }
    }

    /// The tenant of a request. Refused if the header is missing, empty or repeated: a client that
    /// adds a second one must not pass for another tenant.
    pub(crate) fn tenant_of(&self, head: &Parts) -> Result<String, Problem> {
        let name = match &self.tenant {
            // The key derivation refuses an empty tenant.
            Tenant::One => return Ok("-".to_owned()),
            Tenant::By(tenant_of) => return Ok(format!("t:{}", tenant_of(head))),
            Tenant::Header(name) => name,
        };
        let mut values = head.headers.get_all(name).iter();
        match (values.next().map(|value| value.to_str()), values.next()) {
            (Some(Ok(value)), None) if !value.trim().is_empty() => Ok(format!("h:{value}")),
            _ => {
                let detail = format!("{name} must be sent once, with a value");
                Err(Problem::new(StatusCode::BAD_REQUEST, &TENANT_UNKNOWN, detail))
            }
        }
    }

    /// How long this request waits for the same one in flight.
    pub(crate) fn wait_of(&self, head: &Parts) -> Duration {
        let default = match self.in_flight {
            OnInFlight::Refuse => Duration::ZERO,
            OnInFlight::Wait(wait) => wait,
        };
        wait_of(head).map_or(default, |wait| wait.min(self.longest_wait.max(default)))
    }
}

/// How long a client asks to wait: `Prefer: wait=10` (RFC 7240).
pub(crate) fn wait_of(head: &Parts) -> Option<Duration> {
    let seconds = head.headers.get_all("prefer").iter().find_map(|value| {
        let mut preferences = value.to_str().ok()?.split([',', ';']);
        preferences.find_map(|one| one.trim().strip_prefix("wait=")?.trim().parse::<u64>().ok())
    });
    seconds.map(Duration::from_secs)
}

/// The content of a quoted string of structured fields (RFC 9651), or a bare text as it is.
fn unquoted(text: &str) -> Option<String> {
    let Some(inner) = text.strip_prefix('"') else {
        return (!text.contains(['"', ' ', ','])).then(|| text.to_owned());
    };
    let inner = inner.strip_suffix('"')?;
    let mut plain = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => plain.push(chars.next().filter(|c| matches!(c, '"' | '\\'))?),
            '"' => return None,
            c => plain.push(c),
        }
    }
    Some(plain)
}

fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn key(settings: &Settings, values: &[&str]) -> Result<Option<String>, &'static str> {
        let mut request = Request::post("/charges");
        for value in values {
            request = request.header(&settings.header, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        settings.key_of(&head).map_err(|problem| problem.code)
    }

    /// Proves S-2: keys are read quoted or bare, and refused where they are malformed.
    #[test]
    fn keys_are_read_quoted_and_bare() {
        let ietf = Settings::default();
        for (value, read) in [
            ("8e03", "8e03"),
            ("\"8e03\"", "8e03"),
            (r#""a \"b\" \\""#, r#"a "b" \"#),
            (" x ", "x"),
        ] {
            assert_eq!(key(&ietf, &[value]), Ok(Some(read.into())), "{value}");
        }
        assert_eq!(key(&ietf, &[]), Ok(None));
        for odd in ["\"8e03", "8e03\"", "\"a\\b\"", "a b", "a, b", "\"\"", "", "\"a\"b\""] {
            assert_eq!(key(&ietf, &[odd]), Err("HX0302"), "{odd}");
        }
        assert_eq!(key(&ietf, &[&"x".repeat(256)]), Err("HX0302"));
        assert_eq!(key(&ietf, &["a", "a"]), Err("HX0302"));
        let iceberg = Settings::new(Preset::Iceberg);
        assert_eq!(key(&iceberg, &["8e03"]), Err("HX0302"));
        assert!(key(&iceberg, &["017F22E2-79B0-7CC3-98C4-DC0C0C07398F"]).is_ok());
    }

    /// Which answers are kept, status by status.
    #[test]
    fn only_what_is_over_is_kept() {
        let table = |preset| {
            let settings = Settings::new(preset);
            let statuses =
                [200, 303, 400, 401, 403, 404, 408, 409, 422, 425, 429, 500, 502, 503, 504, 524];
            statuses.map(|status| match settings.fate(StatusCode::from_u16(status).unwrap()) {
                Settlement::Settled => 'k',
                Settlement::NotDone => '.',
                Settlement::Unknown => '?',
            })
        };
        assert_eq!(table(Preset::Ietf).iter().collect::<String>(), "kkk..k.kk...?.??");
        assert_eq!(table(Preset::Aws), table(Preset::Ietf));
        assert_eq!(table(Preset::Iceberg), table(Preset::Ietf));
        assert_eq!(table(Preset::Stripe).iter().collect::<String>(), "kkk..kkkk..kkkkk");
        let ours =
            Settings::default().meaning(StatusCode::INTERNAL_SERVER_ERROR, Settlement::Unknown);
        assert_eq!(ours.fate(StatusCode::INTERNAL_SERVER_ERROR), Settlement::Unknown);
    }

    #[test]
    fn redacted_headers_are_not_stored() {
        let settings =
            Settings::default().redacted(["/card/number".to_owned(), "/a~1b".to_owned()]);
        let kept = |headers: &[(HeaderName, &str)], body: &str| {
            let headers =
                headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap()));
            let kept = settings.writable(&headers.collect(), body.as_bytes());
            kept.map(|kept| String::from_utf8(kept.into_owned()).unwrap())
        };
        let (card, cut) = (
            r#"{"id": 7, "card": {"number": "4111", "to": "12/29"}, "a/b": [1]}"#,
            r#"{"id":7,"card":{"number":"[redacted]","to":"12/29"},"a/b":"[redacted]"}"#,
        );
        assert_eq!(kept(&[], card).as_deref(), Some(cut));
        assert_eq!(kept(&[], "").as_deref(), Some(""));
        let none = r#"{"id":  1e400}"#.replace("1e400", "12345678901234567890123");
        assert_eq!(kept(&[], &none).as_deref(), Some(none.as_str()), "as it was");
        assert_eq!(kept(&[], "card 4111"), None, "it could be anywhere");
        assert_eq!(kept(&[(CONTENT_ENCODING, "gzip")], card), None);
        let all = Settings::default();
        assert!(matches!(all.writable(&HeaderMap::new(), b"4111"), Some(Cow::Borrowed(b"4111"))));
    }

    #[test]
    fn clients_may_ask_to_wait() {
        let wait = |settings: &Settings, prefer: &str| {
            let (head, ()) =
                Request::post("/").header("prefer", prefer).body(()).unwrap().into_parts();
            settings.wait_of(&head).as_secs()
        };
        let ietf = Settings::default();
        assert_eq!(wait(&ietf, "respond-async"), 0);
        assert_eq!(wait(&ietf, "respond-async, wait=7"), 7);
        assert_eq!(wait(&ietf, "wait=100000"), 60);
        assert_eq!(wait(&Settings::new(Preset::Iceberg), "x"), 30);
        // The server's own wait is not cut.
        let patient = ietf.in_flight(OnInFlight::Wait(Duration::from_secs(300)));
        assert_eq!(wait(&patient, "x"), 300);
        assert_eq!(wait(&patient, "wait=100000"), 300);
        assert_eq!(wait(&patient, "wait=7"), 7);
    }
}
