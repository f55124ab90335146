//! Extraction: texts, results, ontologies, and the result cache.

use hapax_extract::{LookupExplanation, OntologyEntry, Stats, VersionChange};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::time;

/// A text to extract from.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ExtractionRequest {
    /// The text.
    #[schema(min_length = 1)]
    pub(crate) text: String,
    /// The ontology's IRI.
    #[schema(min_length = 1, max_length = 2048)]
    pub(crate) ontology_id: String,
    /// The parameters: `llmModel`, `temperature`, `maxTokens`, `seed`, `chunkSize`, `concurrency`.
    /// Any other is a part of the key and nothing else.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub(crate) extraction_params: Option<Box<RawValue>>,
    /// An id for tracing. It is no part of the key.
    #[serde(default)]
    #[schema(max_length = 255)]
    pub(crate) request_id: Option<String>,
    /// The key that another cache has for this request, to be compared with the key here.
    #[serde(default)]
    #[schema(max_length = 255)]
    pub(crate) shadow_key: Option<String>,
}

/// The result of an extraction.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExtractionResult {
    /// The key, shortened for people: `sha256-` and 16 hex digits.
    pub(crate) idempotency_key: String,
    /// Whether the result was in the cache.
    pub(crate) cache_hit: bool,
    /// The version of the ontology that it was extracted with.
    pub(crate) ontology_version: String,
    /// Parameters that are probably misspelt, and why the result is not cached, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) warnings: Option<Vec<String>>,
    /// When it was computed.
    pub(crate) computed_at: String,
    /// The entities that the text mentions.
    #[schema(value_type = Vec<Object>)]
    pub(crate) entities: Vec<serde_json::Value>,
    /// The relations between them.
    #[schema(value_type = Vec<Object>)]
    pub(crate) relations: Vec<serde_json::Value>,
    /// The extractor, `computedAt`, `model`, `temperature`, and what the extraction took: those of
    /// the time when the result was computed.
    #[schema(value_type = Object)]
    pub(crate) metadata: serde_json::Value,
}

/// A key and its components.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeyExplained {
    /// The key, shortened for people.
    pub(crate) key: String,
    /// The full digest, which is stored and compared.
    pub(crate) digest: String,
    /// The components of the key.
    pub(crate) components: KeyComponents,
    /// Whether the cache has a result.
    pub(crate) found: bool,
    /// The nearest result, where the cache has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nearest: Option<NearestResult>,
}

impl KeyExplained {
    /// Explains why a request about this ontology finds a result, or does not.
    pub(crate) fn of(explained: LookupExplanation, ontology_id: String) -> Self {
        let LookupExplanation { identity, version, found, nearest } = explained;
        let components = identity.components;
        Self {
            key: components.short(),
            digest: components.key.to_string(),
            components: KeyComponents {
                text_hash: components.text_hash,
                text: components.normalized_text,
                ontology_id,
                ontology_version: version,
                extraction_params_hash: components.params_hash,
                fingerprint: identity.fingerprint.to_string(),
            },
            found,
            nearest: nearest.map(|nearest| NearestResult {
                key: nearest.key.to_string(),
                differs: nearest.differs.into_iter().map(str::to_owned).collect(),
                accessed_at: time(nearest.used),
            }),
        }
    }
}

/// The components of a key.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeyComponents {
    /// The text after normalisation.
    pub(crate) text: String,
    /// The first 16 hex digits of its SHA-256.
    pub(crate) text_hash: String,
    /// The ontology's IRI.
    pub(crate) ontology_id: String,
    /// Its version.
    pub(crate) ontology_version: String,
    /// The first 16 hex digits of the SHA-256 of the parameters.
    pub(crate) extraction_params_hash: String,
    /// The fingerprint of everything that changes the answer, untruncated.
    pub(crate) fingerprint: String,
}

/// The cached result whose key is nearest to that of the request.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NearestResult {
    /// Its key.
    pub(crate) key: String,
    /// The components that differ.
    pub(crate) differs: Vec<String>,
    /// When it was last used.
    pub(crate) accessed_at: String,
}

/// Ontologies, by id.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OntologyList {
    pub(crate) ontologies: Vec<OntologyInfo>,
}

/// An ontology, without its content.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OntologyInfo {
    /// Its IRI.
    pub(crate) id: String,
    /// The hash of its content.
    pub(crate) version: String,
    /// Its label, versions and counts, for people.
    #[schema(value_type = Object)]
    pub(crate) metadata: serde_json::Value,
    /// When it was last put.
    pub(crate) updated_at: String,
}

impl From<OntologyEntry> for OntologyInfo {
    fn from(listed: OntologyEntry) -> Self {
        Self {
            metadata: serde_json::from_str(&listed.metadata).unwrap_or_default(),
            updated_at: time(listed.updated),
            id: listed.id,
            version: listed.version,
        }
    }
}

/// An ontology.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OntologyShown {
    #[serde(flatten)]
    pub(crate) info: OntologyInfo,
    /// Its content, as extractors read it.
    #[schema(value_type = Object)]
    pub(crate) content: hapax_extract::Ontology,
}

/// The answer to a change of an ontology.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OntologyChange {
    /// Its IRI.
    pub(crate) ontology_id: String,
    /// The version before; null if there was none.
    pub(crate) old_version: Option<String>,
    /// The version now; null if it was removed.
    pub(crate) new_version: Option<String>,
    /// How many results the change removed from the cache.
    pub(crate) entries_invalidated: usize,
}

impl From<VersionChange> for OntologyChange {
    fn from(changed: VersionChange) -> Self {
        Self {
            ontology_id: changed.id,
            old_version: changed.before,
            new_version: changed.now,
            entries_invalidated: changed.invalidated,
        }
    }
}

/// The size of the result cache, and the counts of this server.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CacheStats {
    /// Whole results.
    pub(crate) total_cached_results: u64,
    /// Results of single chunks.
    pub(crate) cached_chunks: u64,
    /// The size of both, in bytes.
    pub(crate) bytes: u64,
    /// The capacity of the cache, in bytes.
    pub(crate) room: u64,
    /// Requests that the cache answered.
    pub(crate) hits: u64,
    /// Requests that shared the execution of an identical one in flight.
    pub(crate) shared: u64,
    /// Requests that the extractor answered.
    pub(crate) executed: u64,
    /// Requests that failed.
    pub(crate) failed: u64,
    /// The share of answered requests that the cache answered, from 0 to 1.
    pub(crate) cache_hit_rate: f64,
    /// The share of answered requests that shared an execution, from 0 to 1.
    pub(crate) execution_cache_hit_rate: f64,
    /// Paid calls of this server.
    pub(crate) calls: u64,
    /// The tokens they read.
    pub(crate) tokens_in: u64,
    /// The tokens they wrote.
    pub(crate) tokens_out: u64,
    /// The cost of these calls, in millionths of the currency of the prices, where prices are set.
    pub(crate) cost_micros: Option<u64>,
    /// Requests that brought the key of another cache.
    pub(crate) shadow_compared: u64,
    /// Requests for which the other cache would have missed a result that this one has.
    pub(crate) shadow_bypassed: u64,
    /// Requests for which the other cache would have answered with another request's result.
    pub(crate) shadow_mistaken: u64,
}

impl From<Stats> for CacheStats {
    fn from(stats: Stats) -> Self {
        let answered = (stats.hits + stats.shared + stats.executed).max(1) as f64;
        Self {
            total_cached_results: stats.results.whole,
            cached_chunks: stats.results.parts,
            bytes: stats.results.bytes,
            room: stats.max_bytes,
            hits: stats.hits,
            shared: stats.shared,
            executed: stats.executed,
            failed: stats.failed,
            cache_hit_rate: stats.hits as f64 / answered,
            execution_cache_hit_rate: stats.shared as f64 / answered,
            calls: stats.bill.calls,
            tokens_in: stats.bill.tokens_in,
            tokens_out: stats.bill.tokens_out,
            cost_micros: stats.bill.cost_micros,
            shadow_compared: stats.shadow.compared,
            shadow_bypassed: stats.shadow.bypassed,
            shadow_mistaken: stats.shadow.mistaken,
        }
    }
}

/// How many results were removed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Removed {
    pub(crate) removed: usize,
}
