//! `hapax key`: fields in, keys out.

use std::io::{BufRead as _, Read as _};

use data_encoding::HEXLOWER_PERMISSIVE;
use hapax::json::Json;
use hapax::key::extraction::Extraction;
use hapax::key::http::Request;
use hapax::key::mutation::Mutation;
use hapax::key::pipeline::Operation;
use hapax::key::{control, pipeline};
use hapax::{Key, KeyError};
use serde_json::{Map, Value, json};

use crate::args::{self, Global};
use crate::exit::{Exit, Failed};
use crate::output;

/// The longest input that is read as one document.
const LARGEST: u64 = 64 * 1024 * 1024;

pub(crate) fn main(global: &Global, args: &args::Key) -> Result<Exit, Failed> {
    let mut input = std::io::stdin().lock();
    let mut first = String::new();
    input.read_line(&mut first).map_err(unreadable)?;
    match Json::parse(first.as_bytes()) {
        // One object a line.
        Ok(fields) => {
            derive(global, args, &fields, 1)?;
            for (number, line) in (2..).zip(input.lines()) {
                let line = line.map_err(unreadable)?;
                if !line.trim().is_empty() {
                    let fields = Json::parse(line.as_bytes())
                        .map_err(|error| Failed::usage(format!("input line {number}: {error}")))?;
                    derive(global, args, &fields, number)?;
                }
            }
        }
        // One object over many lines, or malformed input.
        Err(_) => {
            let mut whole = first.into_bytes();
            input.take(LARGEST).read_to_end(&mut whole).map_err(unreadable)?;
            let fields = Json::parse(&whole)
                .map_err(|error| Failed::usage(format!("standard input: {error}")))?;
            derive(global, args, &fields, 1)?;
        }
    }
    Ok(Exit::Done)
}

fn unreadable(error: std::io::Error) -> Failed {
    Failed::usage(format!("standard input cannot be read: {error}"))
}

fn derive(global: &Global, args: &args::Key, fields: &Json, line: usize) -> Result<(), Failed> {
    let wrong = |problem: String| {
        Failed::usage(format!("input line {line}: {problem}"))
            .next(format!("The fields of {} are in docs/keys.md.", args.derivation))
    };
    let mut fields = Fields::of(fields).map_err(wrong)?;
    let (key, components) = fields.derive(&args.derivation).map_err(wrong)?;
    for name in fields.unused() {
        eprintln!(
            "hapax: input line {line}: field {name:?} is not a field of {} and was ignored",
            args.derivation
        );
    }
    if !global.json {
        output::print(&key.to_string());
        return Ok(());
    }
    let mut document = json!({ "key": key.to_string(), "derivation": args.derivation });
    document["components"] = Value::Object(components);
    output::json(&document);
    Ok(())
}

/// The members of an object, and which of them the derivation used.
struct Fields<'a> {
    members: &'a [(String, Json)],
    used: Vec<&'static str>,
    open: bool,
}

type Derived = (Key, Map<String, Value>);

impl<'a> Fields<'a> {
    fn of(value: &'a Json) -> Result<Self, String> {
        match value {
            Json::Object(members) => Ok(Self { members, used: Vec::new(), open: false }),
            _ => Err("expected an object with the key's fields".into()),
        }
    }

    fn derive(&mut self, derivation: &str) -> Result<Derived, String> {
        let text = |error: KeyError| error.to_string();
        match derivation {
            pipeline::V1 | pipeline::KFM_V11 => {
                let operation = Operation {
                    pipeline_id: self.text("pipeline_id")?,
                    task_id: self.text("task_id")?,
                    dataset_id: self.text("dataset_id")?,
                    operation_type: self.text("operation_type")?,
                    version: self.text("version")?,
                    checksum_in: self.text("checksum_in")?,
                    params_hash: self.text("params_hash")?,
                    timestamp_bucket: self.text("timestamp_bucket")?,
                };
                let key =
                    if derivation == pipeline::V1 { operation.key() } else { operation.kfm_v11() };
                Ok((key.map_err(text)?, self.echo()))
            }
            pipeline::KFM_V10 => {
                let (dataset, version) = (self.text("dataset")?, self.text("version")?);
                let key = pipeline::kfm_v10(dataset, version, self.text("source_uri")?);
                Ok((key.map_err(text)?, self.echo()))
            }
            control::V1 => {
                let (computation, epoch) = (self.text("computation_name")?, self.number("epoch")?);
                let request = HEXLOWER_PERMISSIVE
                    .decode(self.text("request_bytes_hex")?.as_bytes())
                    .map_err(|error| {
                        format!("field `request_bytes_hex` is not hexadecimal: {error}")
                    })?;
                let key = control::derive_key(computation, epoch, &request);
                Ok((key.map_err(text)?, self.echo()))
            }
            hapax::key::extraction::V1 => self.extraction(),
            hapax::key::mutation::V1 => {
                let mutation = Mutation {
                    namespace: self.text("namespace")?,
                    workflow: self.text("workflow")?,
                    item_id: self.text("item_id")?,
                    attempt: self.number("attempt")?,
                    tool: self.text("tool")?,
                    target_resource: self.text("target_resource")?,
                    operation: self.text("operation")?,
                    identity: self.json("identity")?,
                    subkey: match self.has("subkey") {
                        true => Some(self.text("subkey")?),
                        false => None,
                    },
                };
                Ok((mutation.key().map_err(text)?, self.echo()))
            }
            hapax::key::http::V1 => {
                let request = Request {
                    tenant: self.text("tenant")?,
                    method: self.text("method")?,
                    path: self.text("path")?,
                    idempotency_key: self.text("idempotency_key")?,
                };
                Ok((request.key().map_err(text)?, self.echo()))
            }
            own => {
                self.open = true;
                let fields: Result<Vec<_>, String> = self
                    .members
                    .iter()
                    .map(|(name, value)| match value {
                        Json::String(text) => Ok((name.as_str(), text.as_bytes())),
                        _ => Err(format!("field `{name}` must be text; quote it")),
                    })
                    .collect();
                Ok((Key::derive(own, &fields?).map_err(text)?, self.echo()))
            }
        }
    }

    fn extraction(&mut self) -> Result<Derived, String> {
        let extraction = Extraction {
            text: self.text("text")?,
            ontology_id: self.text("ontologyId")?,
            ontology_version: self.text("ontologyVersion")?,
            params: self.json("extractionParams")?,
        };
        let parts = extraction.derive().map_err(|error| error.to_string())?;
        let fingerprint = extraction.fingerprint().map_err(|error| error.to_string())?;
        let digest = parts.key.to_string().trim_start_matches("sha256:").to_owned();
        let components = [
            ("short", parts.short()),
            ("digest", digest),
            ("normalizedText", parts.normalized_text),
            ("textHash", parts.text_hash),
            ("ontologyId", extraction.ontology_id.to_owned()),
            ("ontologyVersion", extraction.ontology_version.to_owned()),
            ("extractionParamsHash", parts.params_hash),
            ("fingerprint", fingerprint.to_string()),
        ];
        let components =
            components.into_iter().map(|(name, value)| (name.to_owned(), value.into()));
        Ok((parts.key, components.collect()))
    }

    fn has(&self, name: &str) -> bool {
        self.members.iter().any(|(known, _)| known == name)
    }

    fn json(&mut self, name: &'static str) -> Result<&'a Json, String> {
        self.used.push(name);
        let found = self.members.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value).ok_or_else(|| format!("field `{name}` is missing"))
    }

    fn text(&mut self, name: &'static str) -> Result<&'a str, String> {
        self.json(name)?.as_str().ok_or_else(|| format!("field `{name}` must be text"))
    }

    fn number(&mut self, name: &'static str) -> Result<u64, String> {
        self.json(name)?
            .as_u64()
            .ok_or_else(|| format!("field `{name}` must be a whole number from 0 to {}", u64::MAX))
    }

    fn unused(&self) -> impl Iterator<Item = &str> {
        let names = self.members.iter().map(|(name, _)| name.as_str());
        names.filter(|name| !self.open && !self.used.contains(name))
    }

    /// The fields that the derivation used, as they were given.
    fn echo(&self) -> Map<String, Value> {
        let used =
            self.members.iter().filter(|(name, _)| self.open || self.used.contains(&name.as_str()));
        used.map(|(name, value)| (name.clone(), plain(value))).collect()
    }
}

fn plain(value: &Json) -> Value {
    match value {
        Json::Null => Value::Null,
        Json::Bool(value) => (*value).into(),
        Json::Number(number) => serde_json::from_str(number.as_str()).unwrap_or(Value::Null),
        Json::String(text) => text.as_str().into(),
        Json::Array(items) => items.iter().map(plain).collect(),
        Json::Object(members) => Value::Object(
            members.iter().map(|(name, value)| (name.clone(), plain(value))).collect(),
        ),
    }
}
