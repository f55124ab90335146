//! Attestations: an in-toto statement with SLSA provenance for one artifact, in a DSSE envelope.
//! The caller signs and verifies: this module has no keys.

use data_encoding::{BASE64, BASE64URL};
use hapax::json::Json;

use super::{Completed, fields, names};
use crate::run::Artifact;
use hapax::document::{Object, list, print, text};

/// The media type of a payload that is a statement.
pub const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";

/// The kind of build that an operation is.
pub const BUILD_TYPE: &str = "urn:hapax:build:pipeline.v1";

/// Why an envelope was not opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// It is no envelope.
    #[error("not a DSSE envelope: {0}")]
    Malformed(&'static str),
    /// Its payload is not a statement.
    #[error("the payload is {0:?}, not {PAYLOAD_TYPE}")]
    PayloadType(String),
    /// None of its signatures is good.
    #[error("no signature verifies")]
    Signature,
}

/// The provenance of this artifact: the run that made it, and its inputs. `builder` is the URI of
/// the party that vouches for it. `None` if the artifact has no SHA-256, which a statement needs.
pub fn statement(done: &Completed<'_>, artifact: &Artifact, builder: &str) -> Option<Json> {
    let subject = Object::default()
        .text("name", artifact.uri.as_str())
        .with("digest", digest(Some(&artifact.checksum))?);
    let predicate = Json::object([
        ("buildDefinition", definition(done)),
        ("runDetails", details(done, builder)),
    ]);
    let statement = Object::default()
        .text("_type", "https://in-toto.io/Statement/v1")
        .list("subject", [subject.json()])
        .text("predicateType", "https://slsa.dev/provenance/v1")
        .with("predicate", predicate);
    Some(statement.json())
}

/// The bytes to sign: the payload type and the payload, each with its length.
pub fn pae(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

/// The envelope of a statement. `sign` returns the id of its key, and the signature.
pub fn seal(statement: &Json, sign: impl Fn(&[u8]) -> (String, Vec<u8>)) -> Json {
    let payload = print(statement);
    let (key, signature) = sign(&pae(PAYLOAD_TYPE, payload.as_bytes()));
    let signature = Json::object([
        ("keyid", Json::text(&key)),
        ("sig", Json::text(&BASE64.encode(&signature))),
    ]);
    Json::object([
        ("payload", Json::text(&BASE64.encode(payload.as_bytes()))),
        ("payloadType", Json::text(PAYLOAD_TYPE)),
        ("signatures", Json::Array(vec![signature])),
    ])
}

/// The statement in an envelope, if `verify` finds one of the signatures good. `verify` gets the
/// signed bytes and the signature. The payload is not parsed before.
pub fn open(envelope: &Json, verify: impl Fn(&[u8], &[u8]) -> bool) -> Result<Json, EnvelopeError> {
    let payload_type =
        text(envelope, "payloadType").ok_or(EnvelopeError::Malformed("payloadType"))?;
    if payload_type != PAYLOAD_TYPE {
        return Err(EnvelopeError::PayloadType(payload_type));
    }
    let payload = text(envelope, "payload").and_then(|payload| decoded(&payload));
    let payload = payload.ok_or(EnvelopeError::Malformed("payload"))?;
    let signed = pae(&payload_type, &payload);
    let signatures = list(envelope, "signatures", |signature| decoded(&text(signature, "sig")?));
    if !signatures.iter().any(|signature| verify(&signed, signature)) {
        return Err(EnvelopeError::Signature);
    }
    Json::parse(&payload).map_err(|_| EnvelopeError::Malformed("the payload is not JSON"))
}

fn definition(done: &Completed<'_>) -> Json {
    let operation = &done.run.about.operation;
    let parameters = fields(done.run);
    let parameters = parameters.list("program", operation.program.iter().map(|it| Json::text(it)));
    let dependencies = operation.inputs.iter().map(|source| {
        Object::default()
            .text("name", source.name.as_str())
            .text("uri", source.uri.as_deref().map(names::location).as_deref())
            .with("digest", digest(source.checksum.as_deref()))
            .json()
    });
    Object::default()
        .text("buildType", BUILD_TYPE)
        .with("externalParameters", parameters.json())
        .list("resolvedDependencies", dependencies)
        .json()
}

fn details(done: &Completed<'_>, builder: &str) -> Json {
    let metadata = Object::default()
        .text("invocationId", names::run_id(done.run).as_str())
        .text("startedOn", names::time(done.run.started.at).as_str())
        .text("finishedOn", names::time(done.end.at).as_str());
    Json::object([
        ("builder", Json::object([("id", Json::text(builder))])),
        ("metadata", metadata.json()),
    ])
}

fn digest(checksum: Option<&str>) -> Option<Json> {
    Some(Json::object([("sha256", Json::text(&names::sha256(checksum?)?))]))
}

/// Decodes either alphabet of base64, as the specification requires of readers.
fn decoded(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text.as_bytes()).or_else(|_| BASE64URL.decode(text.as_bytes())).ok()
}
