//! A result as it is recorded, and what is read of it again.

use std::time::SystemTime;

use hapax::Done;
use serde::Serialize;

use crate::graph::Graph;
use crate::ontologies::Known;
use crate::params::Params;
use crate::workflow::{ExtractionUsage, Read};

/// A result as it is recorded.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StoredResult<'a> {
    computed_at: &'a str,
    #[serde(flatten)]
    graph: &'a Graph,
    metadata: Metadata<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    extractor: &'a str,
    ontology_version: &'a str,
    computed_at: &'a str,
    /// The model that was asked, if one was.
    model: Option<&'a str>,
    temperature: serde_json::Value,
    #[serde(flatten)]
    spent: ExtractionUsage,
}

/// A result, serialized.
pub(crate) fn body(
    (extractor, model): (&str, Option<&str>),
    params: &Params,
    known: &Known,
    read: &Read,
) -> Result<Vec<u8>, serde_json::Error> {
    let computed_at = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
    // A whole number is written as JavaScript writes it.
    let temperature = match params.temperature {
        whole if whole.fract() == 0.0 => (whole as i64).into(),
        other => other.into(),
    };
    serde_json::to_vec(&StoredResult {
        computed_at: &computed_at,
        graph: &read.graph,
        metadata: Metadata {
            extractor,
            ontology_version: &known.version,
            computed_at: &computed_at,
            model: params.model.as_deref().or(model),
            temperature,
            spent: read.spent,
        },
    })
}

/// The age of a result, by the time that stands at its beginning.
pub(crate) fn age_ms(done: &Done) -> Option<u64> {
    let body = done.body()?.strip_prefix(b"{\"computedAt\":\"")?;
    let at = std::str::from_utf8(body.get(..24)?).ok()?;
    let at = humantime::parse_rfc3339(at).ok()?;
    Some(SystemTime::now().duration_since(at).map_or(0, |age| age.as_millis() as u64))
}

/// The note in the journal beside a success: the result's metadata.
pub(crate) fn noted_of(body: &[u8]) -> String {
    let json: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let count = |name: &str| json[name].as_array().map_or(0, Vec::len);
    serde_json::json!({
        "kind": "extraction.v1",
        "entities": count("entities"),
        "relations": count("relations"),
        "metadata": json["metadata"],
    })
    .to_string()
}
