//! Data that must not leave in a payload: personal data and secrets.
//!
//! A guard reports the kind of a finding and its place as a JSON pointer, never its content.
//! Numbers that look like identities count only with their checksum, so that ids and timestamps
//! pass.

mod numbers;
mod places;
mod secrets;

use std::fmt;

pub use self::places::{
    Coordinate, Location, axes, called, is_cell_name, is_exact, is_index, is_precise,
};
use crate::json::Json;

/// The kind of a guard's finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// An e-mail address.
    Email,
    /// A telephone number.
    Phone,
    /// A payment card's number.
    Card,
    /// A number by which a state knows a person.
    NationalId,
    /// A key, token or password.
    Secret,
    /// A place that is more exact than its dataset allows.
    Coordinates,
    /// It does not carry its dataset's CARE label.
    CareLabel,
    /// Its governance reference is missing.
    Governance,
    /// Its dataset was not declared.
    Unregistered,
}

impl Kind {
    /// Its name, for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Email => "an e-mail address",
            Self::Phone => "a telephone number",
            Self::Card => "a payment card number",
            Self::NationalId => "a national id",
            Self::Secret => "a secret",
            Self::Coordinates => "exact coordinates",
            Self::CareLabel => "not its dataset's care_label",
            Self::Governance => "no governance reference",
            Self::Unregistered => "a dataset that is not registered",
        }
    }
}

/// Something that must not leave, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardFinding {
    /// Where: a JSON pointer (RFC 6901) into the payload.
    pub pointer: String,
    /// The kind.
    pub kind: Kind,
}

impl fmt::Display for GuardFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == Kind::Unregistered {
            return f.write_str(self.kind.as_str());
        }
        let pointer = if self.pointer.is_empty() { "/" } else { &self.pointer };
        write!(f, "{} at {pointer}", self.kind.as_str())
    }
}

/// The enabled guards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Guards {
    /// E-mail addresses, telephone numbers, card numbers, national ids.
    pub personal: bool,
    /// Keys, tokens, passwords.
    pub secrets: bool,
    /// Datasets that were not declared.
    pub registered: bool,
}

impl Default for Guards {
    /// All that need no declarations.
    fn default() -> Self {
        Self { personal: true, secrets: true, registered: false }
    }
}

/// The findings in a payload, at most one for each name and value.
///
/// ```
/// use hapax_core::guard::{Guards, Kind, inspect};
/// use hapax_core::json::Json;
///
/// let payload = Json::parse(br#"{"order": 42, "to": {"mail": "ada@example.org"}}"#)?;
/// let found = inspect(&payload, Guards::default());
/// assert_eq!((found[0].pointer.as_str(), found[0].kind), ("/to/mail", Kind::Email));
/// assert_eq!(found[0].to_string(), "an e-mail address at /to/mail");
/// # Ok::<(), hapax_core::json::JsonError>(())
/// ```
pub fn inspect(payload: &Json, guards: Guards) -> Vec<GuardFinding> {
    let mut found = Vec::new();
    walk(payload, "", &mut String::new(), guards, &mut found);
    found
}

/// Every exact place in a payload.
///
/// ```
/// use hapax_core::guard::places;
/// use hapax_core::json::Json;
///
/// let payload = Json::parse(br#"{"station": {"lat": 38.89, "lon": -77.03}}"#)?;
/// let found: Vec<String> = places(&payload).into_iter().map(|found| found.pointer).collect();
/// assert_eq!(found, ["/station/lat", "/station/lon"]);
/// # Ok::<(), hapax_core::json::JsonError>(())
/// ```
pub fn places(payload: &Json) -> Vec<GuardFinding> {
    let mut found = Vec::new();
    places::find("", payload, &mut String::new(), &mut found);
    found
}

fn walk(value: &Json, name: &str, at: &mut String, guards: Guards, found: &mut Vec<GuardFinding>) {
    let length = at.len();
    match value {
        Json::Object(members) => {
            for (name, value) in members {
                // A name that must not leave is not repeated; the object that has it is named.
                if let Some(kind) = judge(name, "", guards) {
                    found.push(GuardFinding { pointer: at.clone(), kind });
                    continue;
                }
                at.push('/');
                at.push_str(&name.replace('~', "~0").replace('/', "~1"));
                walk(value, name, at, guards, found);
                at.truncate(length);
            }
        }
        Json::Array(items) => {
            for (nth, value) in items.iter().enumerate() {
                at.push_str(&format!("/{nth}"));
                walk(value, name, at, guards, found);
                at.truncate(length);
            }
        }
        Json::String(text) => {
            let kind = judge(text, name, guards);
            found.extend(kind.map(|kind| GuardFinding { pointer: at.clone(), kind }));
        }
        Json::Number(number) => {
            let card = guards.personal && numbers::is_card(number.as_str());
            found.extend(card.then(|| GuardFinding { pointer: at.clone(), kind: Kind::Card }));
        }
        Json::Null | Json::Bool(_) => {}
    }
}

/// The kind of a text, given the name of its member.
fn judge(text: &str, name: &str, guards: Guards) -> Option<Kind> {
    if guards.secrets && secrets::has_secret(text, name) {
        return Some(Kind::Secret);
    }
    if !guards.personal {
        return None;
    }
    if has_email(text) {
        return Some(Kind::Email);
    }
    numbers::find(text, name)
}

/// The same text with everything that must not leave cut out.
///
/// ```
/// use hapax_core::guard::redact;
///
/// assert_eq!(redact("no user ada@example.org here"), "no user [an e-mail address] here");
/// ```
pub fn redact(text: &str) -> String {
    let redacted = text.split(' ').map(|word| {
        let bare = word.trim_matches(|c: char| "\"'()<>,;:".contains(c));
        match judge(bare, "", Guards::default()) {
            Some(kind) => word.replace(bare, &format!("[{}]", kind.as_str())),
            None => word.to_owned(),
        }
    });
    let redacted = redacted.collect::<Vec<_>>().join(" ");
    // A number that is written with spaces is not found word by word.
    match judge(&redacted, "", Guards::default()) {
        Some(kind) => format!("[a message with {}]", kind.as_str()),
        None => redacted,
    }
}

fn has_email(text: &str) -> bool {
    let local = |c: char| c.is_alphanumeric() || ".!#$%&'*+/=?^_`{|}~-".contains(c);
    text.match_indices('@').any(|(at, _)| {
        let before = text[..at].chars().next_back().is_some_and(local);
        let domain = text[at + 1..].split(|c: char| !(c.is_alphanumeric() || c == '.' || c == '-'));
        let domain = domain.into_iter().next().unwrap_or_default().trim_matches('.');
        let top = domain.rsplit_once('.').map(|(_, top)| top);
        before && top.is_some_and(|top| top.len() >= 2 && top.chars().all(char::is_alphabetic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(json: &str) -> Vec<(String, Kind)> {
        let found = inspect(&Json::parse(json.as_bytes()).unwrap(), Guards::default());
        found.into_iter().map(|found| (found.pointer, found.kind)).collect()
    }

    /// Proves O-9: guarded data is found wherever it is, and its place is named.
    #[test]
    fn each_kind_of_guarded_text_is_found_with_its_pointer() {
        for (json, pointer, kind) in [
            (r#"{"a":[1,{"b":"mail Ada <ada@example.org>"}]}"#, "/a/1/b", Kind::Email),
            (r#"{"a/b":{"c~d":"x@y.co"}}"#, "/a~1b/c~0d", Kind::Email),
            (r#""+1 785 555 0134""#, "", Kind::Phone),
            (r#"{"t":"call (785) 555-0134 now"}"#, "/t", Kind::Phone),
            (r#"{"phone":"5550134 99"}"#, "/phone", Kind::Phone),
            (r#"{"n":"4111 1111 1111 1111"}"#, "/n", Kind::Card),
            (r#"{"n":5555555555554444}"#, "/n", Kind::Card),
            (r#"{"id":"078-05-1120"}"#, "/id", Kind::NationalId),
            (r#"{"key":"-----BEGIN RSA PRIVATE KEY-----\nMII"}"#, "/key", Kind::Secret),
            (r#"{"k":"AKIAIOSFODNN7EXAMPLE"}"#, "/k", Kind::Secret),
            (r#"{"password":"hunter2"}"#, "/password", Kind::Secret),
            (r#"{"ada@example.org":1}"#, "", Kind::Email),
        ] {
            assert_eq!(kinds(json), [(pointer.to_owned(), kind)], "{json}");
        }
    }

    /// Proves O-9: ordinary payloads of data pipelines pass.
    #[test]
    fn ordinary_payloads_pass() {
        for json in [
            r#"{"artifact_uri":"s3://kfm/v10.3.1/output.parquet","checksum":"sha256:9393aa3310"}"#,
            r#"{"at":"2025-11-13T18:55:44Z","ms":1763060144000,"rows":1234567890123456}"#,
            r#"{"id":"019a7e92-d780-7e23-9381-4b4541713a4c","n":"000123456789"}"#,
            r#"{"handle":"@ada","at":"5 @ 3.20","version":"1.2.3-rc.4","phone":null,"tel":7}"#,
            r#"{"order":"2025-1113-000042","isbn":"978-3-16-148410-0","ip":"192.168.100.200"}"#,
            r#"{"digest":"4111111111111112","token_count":"1200","secret_santa":true}"#,
            r#"[38.51234567,-97.3212345678901]"#,
        ] {
            assert_eq!(kinds(json), [], "{json}");
        }
    }

    #[test]
    fn a_guard_that_is_off_finds_nothing() {
        let both = Json::parse(br#"{"a":"x@y.co","b":"AKIAIOSFODNN7EXAMPLE"}"#).unwrap();
        let count = |personal, secrets| {
            inspect(&both, Guards { personal, secrets, registered: false }).len()
        };
        assert_eq!([count(true, true), count(true, false), count(false, false)], [2, 1, 0]);
    }

    /// Proves O-9: a recorded error is redacted by the same rules.
    #[test]
    fn errors_are_redacted() {
        assert_eq!(redact("bad row for \"x@y.co\": 7"), "bad row for \"[an e-mail address]\": 7");
        assert_eq!(redact("card 4111 1111 1111 1111"), "[a message with a payment card number]");
        assert_eq!(redact("answered 503 Service Unavailable"), "answered 503 Service Unavailable");
    }
}
