//! The parameters that a caller may give for an extraction.

use std::sync::OnceLock;

use hapax::Fingerprint;
use hapax_core::canonical::canonical;
use hapax_core::json::Json;

/// Where the parameters stand in a request.
const ROOT: &str = "/extractionParams";

/// Every name with a meaning, and its alias.
const NAMES: [(&str, Option<&str>); 6] = [
    ("llmModel", Some("model")),
    ("temperature", Some("temp")),
    ("maxTokens", None),
    ("seed", None),
    ("chunkSize", None),
    ("concurrency", None),
];

/// How many warnings a request gets.
const WARNINGS: usize = 16;

/// Integers beyond this are not exact in JavaScript.
const EXACT: i64 = 1 << 53;

/// The canonical form of the defaults, which most requests leave as they are.
static USUAL: OnceLock<String> = OnceLock::new();

/// Parameters with their defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// The model to ask, where the extractor has one.
    pub model: Option<String>,
    /// How freely it answers.
    pub temperature: f64,
    /// How long its answer may be, in tokens.
    pub max_tokens: u32,
    /// The seed of its randomness.
    pub seed: Option<i64>,
    /// How long a chunk is at most, in characters.
    pub chunk_size: usize,
    /// How many chunks are read at once. It changes no answer.
    pub concurrency: usize,
    /// All others: a part of every key. The extractors here do not read them.
    pub extra: ExtraParams,
}

/// Parameters with other names, in the order in which they were sent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ExtraParams {
    members: Vec<(String, Json)>,
    /// The digest of their canonical form; none if there are none. Keys contain it and not the
    /// form, which may be long.
    digest: Option<String>,
}

impl ExtraParams {
    /// The value of one.
    pub fn get(&self, name: &str) -> Option<&Json> {
        self.members.iter().find(|(member, _)| member == name).map(|(_, value)| value)
    }

    /// Their names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.members.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    fn read(members: Vec<(String, Json)>) -> Result<Self, ParamsError> {
        for (name, value) in &members {
            canonical(value).map_err(|error| ParamsError {
                pointer: pointer(name),
                problem: ParamsProblem::NoForm(error.to_string()),
            })?;
        }
        if members.is_empty() {
            return Ok(Self::default());
        }
        let all = Json::Object(members);
        // Each value has a form, so all of them have one.
        let form = canonical(&all).unwrap_or_default();
        let digest = Fingerprint::of_parts(&[form.as_bytes()]).to_string();
        let Json::Object(members) = all else { return Ok(Self::default()) };
        Ok(Self { members, digest: Some(digest) })
    }
}

impl Default for Params {
    fn default() -> Self {
        Self {
            model: None,
            temperature: 0.0,
            max_tokens: 4096,
            seed: None,
            chunk_size: 2000,
            concurrency: 8,
            extra: ExtraParams::default(),
        }
    }
}

/// Why parameters were refused, and which.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", pointer.escape_debug())]
pub struct ParamsError {
    /// The JSON pointer to the parameter.
    pub pointer: String,
    /// The problem with it.
    pub problem: ParamsProblem,
}

/// The problem with a parameter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParamsProblem {
    /// It has another type, or is out of range.
    #[error("expected {0}")]
    Expected(&'static str),
    /// It has a name and an alias, and both are given.
    #[error("this is another name of {0}, which is given too; leave one of them out")]
    Twice(&'static str),
    /// It has no canonical form, and so the request has no key.
    #[error("it has no canonical form: {0}")]
    NoForm(String),
}

impl Params {
    /// Reads the object that a request has as `extractionParams`.
    ///
    /// ```
    /// use hapax_core::json::Json;
    /// use hapax_extract::Params;
    ///
    /// let params = Params::parse(&Json::parse(br#"{"model": "m-1", "temp": 0.5}"#)?)?;
    /// assert_eq!((params.model.as_deref(), params.temperature), (Some("m-1"), 0.5));
    ///
    /// let refused = Params::parse(&Json::parse(br#"{"temperature": 3}"#)?).unwrap_err();
    /// assert_eq!(
    ///     refused.to_string(),
    ///     "/extractionParams/temperature: expected a number from 0 to 2"
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn parse(given: &Json) -> Result<Self, ParamsError> {
        let Json::Object(members) = given else {
            let problem = ParamsProblem::Expected("an object");
            return Err(ParamsError { pointer: ROOT.to_owned(), problem });
        };
        let (mut params, mut extra) = (Self::default(), Vec::new());
        for (written, value) in members {
            let refuse = |problem| ParamsError { pointer: pointer(written), problem };
            let Some(name) = name_of(written) else {
                extra.push((written.clone(), value.clone()));
                continue;
            };
            if written != name && given.get(name).is_some() {
                return Err(refuse(ParamsProblem::Twice(name)));
            }
            params
                .set(name, value)
                .map_err(|expected| refuse(ParamsProblem::Expected(expected)))?;
        }
        params.extra = ExtraParams::read(extra)?;
        Ok(params)
    }

    /// A warning for each extra parameter whose name is close to one with a meaning: it is probably
    /// misspelt.
    pub fn warnings(&self) -> Vec<String> {
        let close = self.extra.iter().filter_map(|(written, _)| {
            let pointer = pointer(written);
            let pointer = pointer.escape_debug();
            let meant = nearest(written)?;
            Some(format!(
                "{pointer}: no such parameter, so it is a part of the key and nothing else; did \
                 you mean {meant}; there are {}",
                known()
            ))
        });
        close.take(WARNINGS).collect()
    }

    /// Sets a parameter, or returns the value that was expected.
    fn set(&mut self, name: &str, value: &Json) -> Result<(), &'static str> {
        match name {
            "llmModel" => {
                let given = value.as_str().filter(|text| is_model(text));
                let expected = "a string of 1 to 200 characters, none of them a control character";
                self.model = Some(given.ok_or(expected)?.to_owned());
            }
            "temperature" => {
                let given = number(value).filter(|given| (0.0..=2.0).contains(given));
                self.temperature = given.ok_or("a number from 0 to 2")?;
            }
            "maxTokens" => {
                let given = integer(value, 1, 200_000).and_then(|given| given.try_into().ok());
                self.max_tokens = given.ok_or("a whole number from 1 to 200000")?;
            }
            "seed" => {
                let given = integer(value, -EXACT, EXACT);
                self.seed = Some(given.ok_or("a whole number from -2^53 to 2^53")?);
            }
            "chunkSize" => {
                let given = integer(value, 200, 50_000).and_then(|given| given.try_into().ok());
                self.chunk_size = given.ok_or("a whole number of characters from 200 to 50000")?;
            }
            // The only remaining name.
            _ => {
                let given = integer(value, 1, 64).and_then(|given| given.try_into().ok());
                self.concurrency = given.ok_or("a whole number from 1 to 64")?;
            }
        }
        Ok(())
    }

    /// [`answer_changing`](Self::answer_changing) as text.
    pub(crate) fn form(&self) -> String {
        // It has no number that could not be printed.
        let print = |params: &Self| canonical(&params.answer_changing()).unwrap_or_default();
        match *self == Self::default() {
            true => USUAL.get_or_init(|| print(self)).clone(),
            false => print(self),
        }
    }

    /// Everything that changes the answer, in one form however it was written: the part of the
    /// parameters that belongs in the key of a result. Numbers that may be negative or fractional
    /// are texts, so that the form does not depend on a JSON serializer.
    pub fn answer_changing(&self) -> Json {
        // Listed one by one: a new field does not compile before its author has decided about it
        // here.
        let Self { model, temperature, max_tokens, seed, chunk_size, concurrency: _, extra } = self;
        // Zero has two signs, and both are the same temperature.
        let temperature = temperature + 0.0;
        let mut form = Json::object([
            ("chunkSize", Json::number(*chunk_size as u64)),
            ("llmModel", model.as_deref().map_or(Json::Null, Json::text)),
            ("maxTokens", Json::number(u64::from(*max_tokens))),
            ("seed", seed.map_or(Json::Null, |seed| Json::text(&seed.to_string()))),
            ("temperature", Json::text(&temperature.to_string())),
        ]);
        // Only where there are any: the form without them is in keys that were made before.
        if let (Json::Object(members), Some(digest)) = (&mut form, &extra.digest) {
            members.push(("extra".to_owned(), Json::text(digest)));
        }
        form
    }
}

fn is_model(text: &str) -> bool {
    (1..=200).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

/// The number, if every JSON reader gets the same value.
fn number(value: &Json) -> Option<f64> {
    matches!(value, Json::Number(_)).then(|| canonical(value).ok())??.parse().ok()
}

/// The whole number, also where it is written as `4096.0` or `4e3`.
fn integer(value: &Json, least: i64, most: i64) -> Option<i64> {
    let text = matches!(value, Json::Number(_)).then(|| canonical(value).ok())??;
    text.parse().ok().filter(|given| (least..=most).contains(given))
}

fn name_of(written: &str) -> Option<&'static str> {
    let fits = |(name, alias): &&(&str, Option<&str>)| *name == written || *alias == Some(written);
    NAMES.iter().find(fits).map(|(name, _)| *name)
}

/// A JSON pointer, of a length that fits a message.
fn pointer(written: &str) -> String {
    let mut name: String = written.chars().take(100).collect();
    if name.len() < written.len() {
        name.push('…');
    }
    format!("{ROOT}/{}", name.replace('~', "~0").replace('/', "~1"))
}

fn known() -> String {
    let one = |(name, alias): &(&str, Option<&str>)| match alias {
        Some(alias) => format!("{name} (or {alias})"),
        None => (*name).to_owned(),
    };
    NAMES.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The name that was probably meant, if one is at most two edits away.
fn nearest(written: &str) -> Option<&'static str> {
    if written.chars().count() > 20 {
        return None;
    }
    let written = written.to_lowercase();
    let names = NAMES.iter().flat_map(|(name, alias)| [Some(*name), *alias]).flatten();
    let measured = names.map(|name| (edits(&written, &name.to_lowercase()), name));
    measured.filter(|(edits, _)| *edits <= 2).min_by_key(|(edits, _)| *edits).map(|(_, name)| name)
}

/// The edit distance: how many characters have to be inserted, removed or changed to turn one into
/// the other.
fn edits(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, character) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, against) in other.iter().enumerate() {
            let changed = diagonal + usize::from(character != *against);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Params, ParamsError> {
        Params::parse(&Json::parse(text.as_bytes()).unwrap())
    }

    fn refusal(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn missing_parameters_have_defaults() {
        assert_eq!(parse("{}"), Ok(Params::default()));
    }

    #[test]
    fn every_name_is_read() {
        let all = r#"{"llmModel": "m", "temperature": 0.7, "maxTokens": 1e2, "seed": -7,
                      "chunkSize": 500.0, "concurrency": 4}"#;
        let expected = Params {
            model: Some("m".into()),
            temperature: 0.7,
            max_tokens: 100,
            seed: Some(-7),
            chunk_size: 500,
            concurrency: 4,
            extra: ExtraParams::default(),
        };
        assert_eq!(parse(all), Ok(expected));
        let aliases = parse(r#"{"model": "m", "temp": 2}"#).unwrap();
        assert_eq!((aliases.model.as_deref(), aliases.temperature), (Some("m"), 2.0));
    }

    #[test]
    fn a_parameter_out_of_range_or_of_another_type_is_refused_with_its_pointer() {
        for (name, values, expected) in [
            ("llmModel", &[r#""""#, "1", "null", r#""a\n""#][..], "a string of 1 to 200"),
            ("model", &[r#""""#], "a string of 1 to 200"),
            ("temperature", &["-0.1", "2.1", "1e400", r#""0""#, "null"], "a number from 0 to 2"),
            ("temp", &["true"], "a number from 0 to 2"),
            ("maxTokens", &["0", "200001", "1.5", "-1", r#""5""#], "a whole number from 1 to"),
            ("seed", &["9007199254740993", "0.5", "-1e300"], "a whole number from -2^53 to 2^53"),
            ("chunkSize", &["199", "50001", "[]"], "a whole number of characters from 200"),
            ("concurrency", &["0", "65", "{}"], "a whole number from 1 to 64"),
        ] {
            for value in values {
                let error = refusal(&format!(r#"{{"{name}": {value}}}"#));
                let start = format!("/extractionParams/{name}: expected {expected}");
                assert!(error.starts_with(&start), "{name} = {value}: {error}");
            }
        }
        assert_eq!(refusal("[]"), "/extractionParams: expected an object");
    }

    #[test]
    fn the_ends_of_each_range_are_in_it() {
        for text in [
            r#"{"temperature": 0, "maxTokens": 1, "chunkSize": 200, "concurrency": 1}"#,
            r#"{"temperature": 2, "maxTokens": 200000, "chunkSize": 50000, "concurrency": 64}"#,
            r#"{"seed": 9007199254740992}"#,
            r#"{"seed": -9007199254740992}"#,
        ] {
            assert!(parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_name_and_its_alias_are_not_given_together() {
        let twice = "this is another name of temperature, which is given too; \
                     leave one of them out";
        for text in [r#"{"temperature": 1, "temp": 1}"#, r#"{"temp": 1, "temperature": 1}"#] {
            assert_eq!(refusal(text), format!("/extractionParams/temp: {twice}"));
        }
    }

    /// Proves X-1: any other parameter is a part of the key, whatever its type and order.
    #[test]
    fn an_extra_parameter_is_taken_and_changes_the_form() {
        let params = parse(r#"{"topK": 5, "stop": ["a", {"b": null}], "seed": 1}"#).unwrap();
        assert_eq!(params.extra.get("topK").and_then(Json::as_u64), Some(5));
        assert_eq!(params.extra.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["topK", "stop"]);
        assert_eq!((params.seed, params.warnings()), (Some(1), vec![]));
        let turned = parse(r#"{"seed": 1, "stop": ["a", {"b": null}], "topK": 5.0}"#).unwrap();
        assert_eq!(params.form(), turned.form());
        for other in [
            r#"{"seed": 1}"#,
            r#"{"topK": 6, "stop": ["a", {"b": null}], "seed": 1}"#,
            r#"{"topK": 5, "stop": ["a", {"b": 1}], "seed": 1}"#,
            r#"{"topK": 5, "seed": 1}"#,
        ] {
            assert_ne!(params.form(), parse(other).unwrap().form(), "{other}");
        }
    }

    #[test]
    fn an_extra_parameter_without_a_canonical_form_is_refused() {
        let refused = refusal(r#"{"topK": {"at": [1e400]}}"#);
        assert!(refused.starts_with("/extractionParams/topK: it has no canonical form: "));
    }

    #[test]
    fn a_name_that_is_probably_misspelt_is_taken_with_a_warning() {
        let warnings = |text: &str| parse(text).unwrap().warnings();
        assert_eq!(
            warnings(r#"{"max_tokens": 5}"#),
            ["/extractionParams/max_tokens: no such parameter, so it is a part of the key and \
                 nothing else; did you mean maxTokens; there are llmModel (or model), temperature \
                 (or temp), maxTokens, seed, chunkSize, concurrency"]
        );
        let typos = r#"{"temprature": 1, "chunk_size": 1, "Seed": 1, "concurency": 1}"#;
        assert_eq!(warnings(typos).len(), 4);
        assert_eq!(warnings(r#"{"a/b~c": 5, "language": "en"}"#), Vec::<String>::new());
        assert_eq!(warnings(&format!(r#"{{"{}": 5}}"#, "ä".repeat(5000))), Vec::<String>::new());
        let odd = warnings(r#"{"see\u0007d": 5}"#);
        assert!(odd[0].starts_with("/extractionParams/see\\u{7}d: "), "{odd:?}");
        let many: Vec<String> = (0..99).map(|nth| format!(r#""see{nth}": 1"#)).collect();
        assert_eq!(warnings(&format!("{{{}}}", many.join(","))).len(), WARNINGS);
    }

    /// Proves X-1.
    #[test]
    fn whatever_changes_the_answer_changes_its_form_and_concurrency_does_not() {
        let plain = Params::default();
        // Listed one by one, so that a new field is altered below too.
        let Params {
            model: _,
            temperature: _,
            max_tokens: _,
            seed: _,
            chunk_size: _,
            concurrency: _,
            extra: _,
        } = &plain;
        let altered = [
            Params { model: Some("m".into()), ..plain.clone() },
            Params { temperature: 0.1, ..plain.clone() },
            Params { max_tokens: 4095, ..plain.clone() },
            Params { seed: Some(0), ..plain.clone() },
            Params { chunk_size: 2001, ..plain.clone() },
            parse(r#"{"promptVersion": 2}"#).unwrap(),
        ];
        let form = |params: &Params| canonical(&params.answer_changing()).unwrap();
        let mut forms: Vec<String> = altered.iter().map(form).collect();
        forms.push(form(&plain));
        forms.sort();
        forms.dedup();
        assert_eq!(forms.len(), altered.len() + 1);
        assert_eq!(form(&plain), form(&Params { concurrency: 64, ..plain.clone() }));
        assert_eq!(form(&plain), form(&Params { temperature: -0.0, ..plain.clone() }));
    }
}
