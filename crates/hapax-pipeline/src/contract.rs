//! Data contracts: what a value must look like, as a JSON Schema.
//!
//! A breach names the place and the rule, and never the value. Nothing is fetched: a schema that
//! refers to another document is refused.

use std::fmt;
use std::path::Path;

use hapax::json::Json;
use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use serde_json::{Number, Value};

/// The most bytes of a schema.
pub(crate) const MAX_SCHEMA: usize = 256 * 1024;

/// The most violations that a breach lists.
pub(crate) const MAX_VIOLATIONS: usize = 10;

/// A schema, ready to check values by.
///
/// ```
/// use hapax::json::Json;
/// use hapax_pipeline::Contract;
///
/// let schema = Json::parse(br#"{"required": ["id"], "properties": {"id": {"type": "integer"}}}"#)?;
/// let contract = Contract::new(&schema)?;
/// assert!(contract.check(&Json::parse(br#"{"id": 7}"#)?).is_ok());
/// let breach = contract.check(&Json::parse(br#"{"id": "seven"}"#)?).unwrap_err();
/// assert_eq!(breach.to_string(), "/id breaks #/properties/id/type");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Contract {
    schema: Validator,
}

/// The largest file that is checked against a contract.
const LARGEST_DOCUMENT: u64 = 64 * 1024 * 1024;

/// The documents in a file, for a data contract: one JSON value, or one a line. `None` if the file
/// has neither, or is too large.
pub fn documents(path: &Path) -> Option<Vec<Json>> {
    let small = std::fs::metadata(path).is_ok_and(|meta| meta.len() <= LARGEST_DOCUMENT);
    let text = small.then(|| std::fs::read(path).ok()).flatten().unwrap_or_default();
    if let Ok(json) = Json::parse(&text) {
        return Some(vec![json]);
    }
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let lines: Result<Vec<Json>, _> = lines.map(Json::parse).collect();
    lines.ok().filter(|lines| !lines.is_empty())
}

/// Why a schema cannot be a contract.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContractError {
    /// It is too large.
    #[error("a schema has at most {MAX_SCHEMA} bytes")]
    TooLarge,
    /// A reference in it leads to another document, or to nothing.
    #[error("a schema refers to nothing outside itself: {0}")]
    Reference(String),
    /// It is not a JSON Schema.
    #[error("not a schema at {at}: {problem}")]
    Invalid {
        /// Where: a JSON pointer into the schema.
        at: String,
        /// The problem.
        problem: String,
    },
}

/// A value that breaks its contract.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Breach {
    /// The first violations, at most [`MAX_VIOLATIONS`].
    pub violations: Vec<Violation>,
    /// How many there are in all.
    pub total: usize,
}

/// One rule that is broken in one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Where: a JSON pointer into the value, or to the member that is missing.
    pub pointer: String,
    /// The keyword that is broken.
    pub keyword: String,
    /// Where the rule is: a JSON pointer into the schema.
    pub schema: String,
}

impl Contract {
    /// Compiles a schema: draft 2020-12, unless its `$schema` names another. `format` is checked.
    pub fn new(schema: &Json) -> Result<Self, ContractError> {
        let schema = value(schema);
        if schema.to_string().len() > MAX_SCHEMA {
            return Err(ContractError::TooLarge);
        }
        let options = jsonschema::options().offline().should_validate_formats(true);
        let schema = options.build(&schema).map_err(|error| match error.kind() {
            ValidationErrorKind::Referencing(problem) => {
                ContractError::Reference(problem.to_string())
            }
            _ => ContractError::Invalid {
                at: pointer(error.instance_path().as_str()),
                problem: error.to_string(),
            },
        })?;
        Ok(Self { schema })
    }

    /// Whether a value keeps to the contract.
    pub fn check(&self, value: &Json) -> Result<(), Breach> {
        let value = self::value(value);
        if self.schema.is_valid(&value) {
            return Ok(());
        }
        let mut violations: Vec<_> =
            self.schema.iter_errors(&value).map(|error| Violation::from(&error)).collect();
        let total = violations.len();
        violations.truncate(MAX_VIOLATIONS);
        Err(Breach { violations, total })
    }
}

impl Breach {
    /// The same, with each name in its pointers replaced by the result of `word`.
    pub(crate) fn rename_pointers(mut self, word: impl Fn(&str) -> String) -> Self {
        let name = |name: &str| {
            let name = word(&name.replace("~1", "/").replace("~0", "~"));
            name.replace('~', "~0").replace('/', "~1")
        };
        for violation in &mut self.violations {
            let names: Vec<String> = violation.pointer.split('/').map(name).collect();
            violation.pointer = names.join("/");
        }
        self
    }
}

impl From<&ValidationError<'_>> for Violation {
    fn from(error: &ValidationError<'_>) -> Self {
        let mut pointer = error.instance_path().as_str().to_owned();
        if let ValidationErrorKind::Required { property: Value::String(name) } = error.kind() {
            pointer = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
        }
        let keyword = error.kind().keyword().to_owned();
        Self { pointer, keyword, schema: error.schema_path().as_str().to_owned() }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, violation) in self.violations.iter().enumerate() {
            write!(f, "{}{violation}", if nth > 0 { ", " } else { "" })?;
        }
        match self.total - self.violations.len() {
            0 => Ok(()),
            more => write!(f, ", and {more} more"),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} breaks #{}", pointer(&self.pointer), self.schema)
    }
}

fn pointer(pointer: &str) -> String {
    if pointer.is_empty() { "/".to_owned() } else { pointer.to_owned() }
}

/// The value for the validator. A number beyond the doubles becomes the largest double of its sign.
fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Number(number) => {
            let exact = serde_json::from_str::<Number>(number.as_str()).ok();
            let nearest = || {
                let most = if number.as_str().starts_with('-') { f64::MIN } else { f64::MAX };
                Number::from_f64(most)
            };
            exact.or_else(nearest).map_or(Value::Null, Value::Number)
        }
        Json::String(text) => Value::String(text.clone()),
        Json::Array(items) => Value::Array(items.iter().map(value).collect()),
        Json::Object(members) => {
            Value::Object(members.iter().map(|(name, json)| (name.clone(), value(json))).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text.as_bytes()).unwrap()
    }

    fn contract(schema: &str) -> Result<Contract, ContractError> {
        Contract::new(&json(schema))
    }

    fn breach(schema: &str, value: &str) -> Breach {
        contract(schema).unwrap().check(&json(value)).unwrap_err()
    }

    #[test]
    fn a_breach_says_where_and_by_which_rule_and_never_what() {
        let schema = r##"{
            "$defs": {"level": {"type": "number", "maximum": 10}},
            "required": ["id", "a/b"],
            "properties": {
                "levels": {"type": "array", "items": {"$ref": "#/$defs/level"}},
                "status": {"enum": ["ok", "bad"]},
                "mail": {"pattern": "^x", "format": "email"}
            },
            "additionalProperties": false
        }"##;
        let value =
            r#"{"id": 1, "levels": [3, 4711.5], "status": "s3cret", "mail": "hush", "pin9": 0}"#;
        let breach = breach(schema, value);
        let mut violations: Vec<String> =
            breach.violations.iter().map(ToString::to_string).collect();
        violations.sort();
        assert_eq!(
            violations,
            [
                "/ breaks #/additionalProperties",
                "/a~1b breaks #/required",
                "/levels/1 breaks #/$defs/level/maximum",
                "/mail breaks #/properties/mail/format",
                "/mail breaks #/properties/mail/pattern",
                "/status breaks #/properties/status/enum",
            ]
        );
        let all = format!("{breach} {breach:?}");
        for secret in ["4711", "s3cret", "hush", "pin9"] {
            assert!(!all.contains(secret), "{all}");
        }
    }

    #[test]
    fn a_breach_lists_ten_violations_and_counts_the_rest() {
        let many = format!("[{}]", vec!["\"x\""; 25].join(","));
        let breach = breach(r#"{"items": {"type": "integer"}}"#, &many);
        assert_eq!((breach.violations.len(), breach.total), (10, 25));
        assert_eq!(breach.violations[9].pointer, "/9");
        assert!(breach.to_string().ends_with("/9 breaks #/items/type, and 15 more"));
    }

    #[test]
    fn a_schema_needs_nothing_but_itself() {
        for schema in [
            r#"{"$ref": "https://example.org/schema.json"}"#,
            r#"{"properties": {"a": {"$ref": "file:///etc/passwd"}}}"#,
            r#"{"$ref": "other.json#/a"}"#,
            r##"{"$ref": "#/$defs/none"}"##,
            r#"{"$schema": "https://example.org/my-draft"}"#,
        ] {
            let refused = contract(schema).unwrap_err();
            assert!(matches!(refused, ContractError::Reference(_)), "{schema}: {refused}");
        }
    }

    #[test]
    fn a_malformed_schema_is_refused_with_its_position() {
        let refused = contract(r#"{"properties": {"a": {"type": "nothing"}}}"#).unwrap_err();
        assert!(
            matches!(&refused, ContractError::Invalid { at, .. } if at == "/properties/a/type"),
            "{refused:?}"
        );
        let large = format!(r#"{{"title": "{}"}}"#, "x".repeat(MAX_SCHEMA));
        assert_eq!(contract(&large).unwrap_err(), ContractError::TooLarge);
    }

    #[test]
    fn the_draft_that_a_schema_names_is_obeyed() {
        // Before 2020-12, items could be a list; now that is prefixItems.
        let of =
            |draft: &str| format!(r#"{{"$schema": "{draft}", "items": [{{"type": "null"}}]}}"#);
        let seventh = contract(&of("http://json-schema.org/draft-07/schema#")).unwrap();
        assert!(seventh.check(&json("[1]")).is_err());
        assert!(contract(r#"{"items": [{"type": "null"}]}"#).is_err());
        let newest = contract(r#"{"prefixItems": [{"type": "null"}]}"#).unwrap();
        assert!(newest.check(&json("[1]")).is_err());
    }

    #[test]
    fn numbers_are_compared_as_they_were_written() {
        let whole = contract(r#"{"const": 9007199254740993}"#).unwrap();
        assert!(whole.check(&json("9007199254740993")).is_ok());
        assert!(whole.check(&json("9007199254740992")).is_err());
        let small = contract(r#"{"maximum": 10}"#).unwrap();
        assert!(small.check(&json("1e999")).is_err() && small.check(&json("-1e999")).is_ok());
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let tree = r##"{"properties": {"next": {"$ref": "#"}}, "required": ["id"]}"##;
        let breach = breach(tree, r#"{"id": 1, "next": {"id": 2, "next": {}}}"#);
        assert_eq!(breach.violations[0].pointer, "/next/next/id");
        let endless = contract(r##"{"$ref": "#"}"##);
        assert!(endless.is_err() || endless.unwrap().check(&json("1")).is_ok());
    }
}
