//! The caller of a request. A stored answer is given only to the caller it was made for.
//!
//! ```text
//!  no rule ──▶ the digest of the credentials is a part of the fingerprint:
//!              the same key with other credentials is refused
//!  a rule  ──▶ the digest of the caller is a part of the scope of a key:
//!              the same key of another caller is another key
//! ```
//!
//! A credential is never stored, only a digest of it together with the key. No signature is
//! verified here: the service does that.

use std::fmt;

use data_encoding::BASE64URL_NOPAD;
use hapax::{Fingerprint, Key};
use http::header::{AUTHORIZATION, COOKIE, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Map, Value};

use crate::problem::{CALLER_UNKNOWN, Problem};

/// The headers that clients send credentials in.
const CREDENTIALS: [&str; 12] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "x-api-key",
    "api-key",
    "apikey",
    "x-api-token",
    "x-auth-token",
    "x-access-token",
    "x-goog-api-key",
    "x-functions-key",
    "ocp-apim-subscription-key",
];

/// How many bytes of a fingerprint are the payload's, if the rest is the caller's.
const PAYLOAD: usize = 20;

/// The rule that says what a caller is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Identity {
    /// The credentials of the request: `Authorization`, `Cookie` and the usual headers of API keys.
    /// A renewed token cannot be told from another caller's, so the same key with other credentials
    /// is refused: neither replayed nor passed on.
    #[default]
    Credentials,
    /// The claim of this name in the bearer token, a JWT, within its issuer. Keys are scoped by it.
    /// The signature is not verified.
    Jwt(String),
    /// The value of a header, which a gateway before this server has to set. Keys are scoped by it.
    Header(HeaderName),
    /// The cookie of this name. Keys are scoped by it.
    Cookie(String),
    /// The header `Authorization`. Keys are scoped by it, so they do not survive a renewed token.
    Authorization,
    /// Callers are not told apart: any client that sends the same key and request gets the answer.
    None,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Credentials => f.write_str("credentials"),
            Self::Jwt(claim) => write!(f, "jwt:{claim}"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Authorization => f.write_str("authorization"),
            Self::None => f.write_str("none"),
        }
    }
}

/// A caller by whom keys are scoped.
pub(super) struct Caller {
    /// The digest of the rule and of the caller.
    pub(super) digest: Fingerprint,
    /// The caller in plain text, where that is no credential.
    pub(super) name: String,
}

impl Identity {
    /// The caller of a request; none if keys are not scoped by callers. Refused if the request does
    /// not name one caller.
    pub(super) fn caller(&self, headers: &HeaderMap) -> Result<Option<Caller>, Problem> {
        let caller = match self {
            Self::Credentials | Self::None => return Ok(None),
            Self::Jwt(claim) => from_token(headers, claim),
            Self::Header(name) => only(headers, name).and_then(text).map(|value| Caller {
                digest: Fingerprint::of_parts(&[
                    b"header",
                    name.as_str().as_bytes(),
                    value.as_bytes(),
                ]),
                name: value.to_owned(),
            }),
            Self::Cookie(name) => cookie(headers, name).map(|value| Caller {
                digest: Fingerprint::of_parts(&[b"cookie", name.as_bytes(), value.as_bytes()]),
                name: String::new(),
            }),
            Self::Authorization => only(headers, &AUTHORIZATION).map(|value| Caller {
                digest: Fingerprint::of_parts(&[b"authorization", value.as_bytes()]),
                name: String::new(),
            }),
        };
        caller.map(Some).ok_or_else(|| {
            let detail = match self {
                Self::Jwt(claim) => format!("it has no bearer token with the claim {claim}"),
                Self::Header(name) => format!("{name} must be sent once, with a value"),
                Self::Cookie(name) => format!("the cookie {name} must be sent once, with a value"),
                _ => "Authorization must be sent once, with a value".to_owned(),
            };
            Problem::new(StatusCode::BAD_REQUEST, &CALLER_UNKNOWN, detail)
        })
    }

    /// The fingerprint of a request under this key: of its payload, and of its credentials where
    /// they bind the key.
    pub(super) fn fingerprint(
        &self,
        payload: Fingerprint,
        key: &Key,
        headers: &HeaderMap,
    ) -> Fingerprint {
        if *self != Self::Credentials {
            return payload;
        }
        let mut bytes = *payload.as_bytes();
        let caller = credentials(key, headers);
        bytes[PAYLOAD..].copy_from_slice(&caller.as_bytes()[PAYLOAD..]);
        Fingerprint::from_bytes(bytes)
    }

    /// Whether two fingerprints under one key are of different callers.
    pub(super) fn differs(&self, one: Fingerprint, other: Fingerprint) -> bool {
        *self == Self::Credentials && one.as_bytes()[PAYLOAD..] != other.as_bytes()[PAYLOAD..]
    }
}

/// The digest of the credentials in a request. The key is part of it, so that the records of two
/// keys do not show that their caller is the same.
fn credentials(key: &Key, headers: &HeaderMap) -> Fingerprint {
    let mut parts: Vec<&[u8]> = vec![&b"credentials"[..], &key.as_bytes()[..]];
    for name in CREDENTIALS {
        for value in headers.get_all(name) {
            parts.extend([name.as_bytes(), value.as_bytes()]);
        }
    }
    Fingerprint::of_parts(&parts)
}

/// The value of a header that was sent once and is not empty.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) if !value.as_bytes().trim_ascii().is_empty() => Some(value),
        _ => None,
    }
}

fn text(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok()
}

/// The value of a cookie that was sent once and is not empty.
fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let pairs = headers.get_all(COOKIE).iter().filter_map(text).flat_map(|line| line.split(';'));
    let mut values = pairs
        .filter_map(|pair| pair.trim().split_once('='))
        .filter_map(|(found, value)| (found == name).then_some(value));
    match (values.next(), values.next()) {
        (Some(value), None) if !value.is_empty() => Some(value),
        _ => None,
    }
}

/// The caller whom a claim of the bearer token names. Subjects of two issuers are two callers.
fn from_token(headers: &HeaderMap, claim: &str) -> Option<Caller> {
    let (scheme, token) = only(headers, &AUTHORIZATION).and_then(text)?.trim().split_once(' ')?;
    let mut parts = token.trim().split('.');
    let (Some(_), Some(claims), Some(_), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    let claims = BASE64URL_NOPAD.decode(claims.trim_end_matches('=').as_bytes()).ok()?;
    let claims: Map<String, Value> = serde_json::from_slice(&claims).ok()?;
    let name = match claims.get(claim)? {
        Value::String(name) if !name.trim().is_empty() => name.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let value = claims.get(claim)?.to_string();
    let issuer = claims.get("iss").unwrap_or(&Value::Null).to_string();
    let digest =
        Fingerprint::of_parts(&[b"jwt", claim.as_bytes(), issuer.as_bytes(), value.as_bytes()]);
    scheme.eq_ignore_ascii_case("bearer").then_some(Caller { digest, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), value.parse().unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    fn bearer(claims: &str) -> String {
        let encode = |text: &str| BASE64URL_NOPAD.encode(text.as_bytes());
        format!("Bearer {}.{}.c2ln", encode(r#"{"alg":"RS256"}"#), encode(claims))
    }

    fn caller(rule: &Identity, pairs: &[(&'static str, &str)]) -> Result<String, &'static str> {
        let caller = rule.caller(&headers(pairs)).map_err(|problem| problem.code)?;
        Ok(caller.expect("keys are scoped").digest.to_string())
    }

    /// Proves N-5: a renewed token is the same caller; another subject or issuer is another.
    #[test]
    fn a_claim_outlives_its_token() {
        let rule = Identity::Jwt("sub".into());
        let of = |claims: &str| caller(&rule, &[("authorization", bearer(claims).as_str())]);
        let ada = of(r#"{"iss":"https://a","sub":"ada","exp":1}"#);
        assert!(ada.is_ok());
        assert_eq!(ada, of(r#"{"exp":2,"sub":"ada","iss":"https://a"}"#));
        assert_ne!(ada, of(r#"{"iss":"https://a","sub":"bob","exp":1}"#));
        assert_ne!(ada, of(r#"{"iss":"https://b","sub":"ada","exp":1}"#));
        assert_ne!(of(r#"{"sub":7}"#), of(r#"{"sub":"7"}"#));
        for odd in ["{}", r#"{"sub":null}"#, r#"{"sub":""}"#, r#"{"sub":["ada"]}"#, "[]", "ada"] {
            assert_eq!(of(odd), Err("HX0308"), "{odd}");
        }
        let token = bearer(r#"{"sub":"ada"}"#);
        let basic = token.replace("Bearer", "Basic");
        let longer = format!("{token}.x");
        for odd in ["Bearer", "Bearer x", "Bearer a.b.c", "Bearer a.b", basic.as_str(), &longer] {
            assert_eq!(caller(&rule, &[("authorization", odd)]), Err("HX0308"), "{odd}");
        }
        assert_eq!(caller(&rule, &[]), Err("HX0308"));
        let twice = [("authorization", token.as_str()), ("authorization", token.as_str())];
        assert_eq!(caller(&rule, &twice), Err("HX0308"));
    }

    /// Proves N-5: a header or a cookie names the caller only if it is sent once, with a value.
    #[test]
    fn a_header_or_a_cookie_names_the_caller() {
        let rule = Identity::Cookie("session".into());
        let ada = caller(&rule, &[("cookie", "theme=dark; session=ada")]);
        assert!(ada.is_ok());
        assert_eq!(ada, caller(&rule, &[("cookie", "session=ada"), ("cookie", "seen=7")]));
        assert_ne!(ada, caller(&rule, &[("cookie", "session=bob")]));
        for odd in ["", "session=", "sessions=ada", "session=ada; session=bob"] {
            assert_eq!(caller(&rule, &[("cookie", odd)]), Err("HX0308"), "{odd}");
        }
        let rule = Identity::Header(HeaderName::from_static("x-user"));
        assert_ne!(caller(&rule, &[("x-user", "ada")]), caller(&rule, &[("x-user", "bob")]));
        let none: &[(&'static str, &str)] = &[];
        for odd in [none, &[("x-user", " ")], &[("x-user", "ada"), ("x-user", "bob")]] {
            assert_eq!(caller(&rule, odd), Err("HX0308"), "{odd:?}");
        }
        assert_eq!(caller(&Identity::Authorization, &[]), Err("HX0308"));
    }

    /// Proves N-5: the credentials are a part of the fingerprint, and only a digest of them.
    #[test]
    fn credentials_are_a_part_of_the_fingerprint() {
        let (rule, payload) = (Identity::default(), Fingerprint::of(b"EUR 10"));
        let key = Key::derive("charge.v1", &[("order", b"42")]).unwrap();
        let other_key = Key::derive("charge.v1", &[("order", b"43")]).unwrap();
        let of = |key: &Key, pairs: &[(&'static str, &str)]| {
            rule.fingerprint(payload, key, &headers(pairs))
        };
        let ada = of(&key, &[("authorization", "Bearer ada")]);
        assert_eq!(ada, of(&key, &[("accept", "*/*"), ("authorization", "Bearer ada")]));
        for name in CREDENTIALS {
            let other = of(&key, &[(name, "Bearer bob")]);
            assert!(rule.differs(ada, other), "{name}");
            assert_eq!(ada.as_bytes()[..PAYLOAD], other.as_bytes()[..PAYLOAD]);
        }
        assert!(rule.differs(ada, of(&key, &[])), "no credentials are no caller's");
        assert!(rule.differs(ada, of(&other_key, &[("authorization", "Bearer ada")])));
        assert!(!Identity::None.differs(ada, payload));
        assert_eq!(Identity::None.fingerprint(payload, &key, &headers(&[])), payload);
    }
}
