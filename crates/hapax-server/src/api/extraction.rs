//! Extraction: texts in, entities and relations out, and the ontologies they are of.

use std::convert::Infallible;
use std::io::Write as _;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use hapax::Key;
use hapax_extract::rdf::{self, Syntax};
use hapax_extract::{Error, Explained, Extract, Extracted, Progress};
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Answer, Named, Params, Scope, answer, check_type, malformed, not_found, part};
use crate::access::Caller;
use crate::body::{collected, discard};
use crate::problem::{
    BAD_EXTRACTION, EXTRACTOR_FAILED, HOPELESS, NO_ONTOLOGY, Problem, RESTLESS, WRONG_SYNTAX,
};
use crate::server::Server;
use crate::wire;

/// The largest request with a text or an ontology, in bytes.
const LARGEST: usize = 32 * 1024 * 1024;

/// How much of what is told on the way may wait to be read.
const AHEAD: usize = 1_024;

pub(super) fn reading() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new()
        .routes(routes!(explain))
        .routes(routes!(ontologies))
        .routes(routes!(ontology))
        .routes(routes!(stats))
}

/// The same request has the same answer, with or without a key of the client's own.
pub(super) fn asking() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new().routes(routes!(extract)).routes(routes!(put_ontology))
}

pub(super) fn performing() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new()
        .routes(routes!(remove_ontology))
        .routes(routes!(clear))
        .routes(routes!(invalidate))
}

/// Extraction in the caller's namespace.
struct Of {
    extract: Extract,
    caller: Caller,
}

impl FromRequestParts<Arc<Server>> for Of {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, server: &Arc<Server>) -> Result<Self, Problem> {
        let scope = Scope::from_request_parts(head, server).await?;
        Ok(Self { extract: server.extract.on(scope.hapax), caller: scope.caller })
    }
}

/// The ontology that the path names.
struct Iri(String);

impl FromRequestParts<Arc<Server>> for Iri {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, server: &Arc<Server>) -> Result<Self, Problem> {
        part(head, server, "ontology").await.map(Self)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let (status, kind) = match &error {
            Error::Ledger(error) => return Self::of(error),
            Error::UnknownOntology(_) => (StatusCode::NOT_FOUND, &NO_ONTOLOGY),
            Error::Extractor { .. } => (StatusCode::BAD_GATEWAY, &EXTRACTOR_FAILED),
            Error::Hopeless(_) => (StatusCode::BAD_GATEWAY, &HOPELESS),
            Error::Restless(_) => (StatusCode::CONFLICT, &RESTLESS),
            _ => (StatusCode::BAD_REQUEST, &BAD_EXTRACTION),
        };
        let mut problem = Self::new(status, kind, error.to_string());
        if let Error::Extractor { after: Some(after), .. } = error {
            problem.after_s = Some(u16::try_from(after.as_secs().max(1)).unwrap_or(u16::MAX));
        }
        problem
    }
}

/// A text to be read.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ExtractionRequest {
    /// The text.
    #[schema(min_length = 1)]
    text: String,
    /// The ontology's IRI.
    #[schema(min_length = 1, max_length = 2048)]
    ontology_id: String,
    /// How to read it: `llmModel`, `temperature`, `maxTokens`, `seed`, `chunkSize`, `concurrency`.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    extraction_params: Option<Box<RawValue>>,
    /// For tracing only: another one finds the same result.
    #[serde(default)]
    #[schema(max_length = 255)]
    request_id: Option<String>,
    /// The key of a cache of your own, to be compared with ours.
    #[serde(default)]
    #[schema(max_length = 255)]
    shadow_key: Option<String>,
}

impl ExtractionRequest {
    fn read(self) -> Result<hapax_extract::Request, Problem> {
        let Self { text, ontology_id, extraction_params, request_id, shadow_key } = self;
        for (name, text) in [("requestId", &request_id), ("shadowKey", &shadow_key)] {
            let bad = |text: &String| text.len() > 255 || text.contains(char::is_control);
            if text.as_ref().is_some_and(bad) {
                let what = format!("{name} has more than 255 bytes, or control characters");
                return Err(malformed(what));
            }
        }
        let nothing = || Ok(hapax::json::Json::Object(Vec::new()));
        let params = extraction_params.map_or_else(nothing, |raw| asked(raw.get()))?;
        Ok(hapax_extract::Request {
            params,
            request_id,
            shadow_key,
            ..hapax_extract::Request::new(text, ontology_id)
        })
    }
}

/// Parameters, read strictly: what two readers could understand differently has no key.
fn asked(params: &str) -> Result<hapax::json::Json, Problem> {
    hapax::json::Json::parse(params.as_bytes()).map_err(|error| {
        let detail = format!("/extractionParams: {error}");
        Problem::new(StatusCode::BAD_REQUEST, &BAD_EXTRACTION, detail)
    })
}

/// What a text says.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ExtractionResult {
    /// The key, shortened for people: `sha256-` and 16 hex digits.
    idempotency_key: String,
    /// Whether it was there before it was asked for.
    cache_hit: bool,
    /// The version of the ontology that it is of.
    ontology_version: String,
    /// When it was made.
    computed_at: String,
    /// What the text mentions.
    #[schema(value_type = Vec<Object>)]
    entities: Vec<serde_json::Value>,
    /// What it says of them.
    #[schema(value_type = Vec<Object>)]
    relations: Vec<serde_json::Value>,
    /// Who read it, and what that took.
    #[schema(value_type = Object)]
    metadata: serde_json::Value,
}

/// A result as it is sent: what is kept, with what is different each time in front of it.
fn printed(extracted: &Extracted) -> Vec<u8> {
    let kept = extracted.json();
    let short = extracted.identity.components.short();
    let (hit, version) = (extracted.is_hit(), &extracted.version);
    let mut body = Vec::with_capacity(kept.len() + version.len() + 128);
    // What goes into memory always goes.
    let _ = write!(
        body,
        "{{\"idempotencyKey\":\"{short}\",\"cacheHit\":{hit},\"ontologyVersion\":\"{version}\""
    );
    if kept.len() > 2 {
        body.push(b',');
    }
    body.extend_from_slice(kept.get(1..).unwrap_or(b"}"));
    body
}

/// Read a text, unless it was read before. Whoever accepts `text/event-stream` is told on the way
/// how far it is: events `chunks`, `chunk`, `merging`, and in the end `result` or `problem`.
#[utoipa::path(post, path = "/api/v1/extract", operation_id = "extraction_run", tag = "extraction", request_body = ExtractionRequest,
    responses((status = 200, body = ExtractionResult)))]
async fn extract(
    State(server): State<Arc<Server>>,
    Of { extract, caller }: Of,
    request: Request,
) -> Result<Response, Problem> {
    let streams = accepts_events(request.headers());
    if let Err(problem) = check_type(request.headers()) {
        discard(request.into_body()).await;
        return Err(problem);
    }
    let body = collected(request.into_body(), LARGEST, server.terms.longest_request).await?;
    let asked = read::<ExtractionRequest>(&body)?.read()?;
    if streams {
        let room = server.allowances.follow(&caller.namespace)?;
        let (identity, _) = extract.identify(&asked).await?;
        let mut response = told(extract, asked, identity.components.short(), room).into_response();
        name(&mut response, identity.components.key);
        return Ok(response);
    }
    let mut response = match extract.extract(&asked, None).await {
        Ok(extracted) => {
            let mut response = Response::new(printed(&extracted).into());
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
            name(&mut response, extracted.key);
            return Ok(response);
        }
        Err(error) => Problem::from(error).into_response(),
    };
    // Whoever was not answered still wants to know what for.
    if let Ok((identity, _)) = extract.identify(&asked).await {
        name(&mut response, identity.components.key);
    }
    Ok(response)
}

/// Reads a document; where it is wrong is found out only if it is.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| {
        let mut reader = serde_json::Deserializer::from_slice(body);
        match serde_path_to_error::deserialize::<_, T>(&mut reader) {
            Err(error) => malformed(error.to_string()),
            Ok(_) => malformed(error.to_string()),
        }
    })
}

/// Says in an answer which key it is of.
fn name(response: &mut Response, key: Key) {
    if let Ok(key) = HeaderValue::from_str(&key.to_string()) {
        response.headers_mut().insert(KEY, key);
    }
}

const KEY: HeaderName = HeaderName::from_static("x-idempotency-key");

fn accepts_events(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(',').any(|kind| kind.trim().starts_with("text/event-stream"))
}

/// The stages of a request, as events.
fn told(
    extract: Extract,
    asked: hapax_extract::Request,
    key: String,
    room: impl Send + 'static,
) -> Sse<impl futures_util::Stream<Item = Result<Event, Infallible>>> {
    let (tell, heard) = mpsc::channel(AHEAD);
    let running = tokio::spawn(async move { extract.extract(&asked, Some(tell)).await });
    let events = stream::unfold((heard, Some(running), key, room), async |state| {
        let (mut heard, running, key, room) = state;
        if let Some(progress) = heard.recv().await {
            return Some((Ok(stage(&progress, &key)), (heard, running, key, room)));
        }
        let event = ending(running?).await;
        Some((Ok(event), (heard, None, key, room)))
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}

fn stage(progress: &Progress, key: &str) -> Event {
    let (name, data) = match progress {
        Progress::Chunked { chunks } => {
            ("chunks", serde_json::json!({ "idempotencyKey": key, "chunks": chunks }))
        }
        Progress::Read { chunk, done, of, reused, found } => (
            "chunk",
            serde_json::json!({
                "idempotencyKey": key, "chunk": chunk, "done": done, "of": of, "reused": reused,
                "mentions": found.mentions, "relations": found.said.len(),
            }),
        ),
        _ => ("merging", serde_json::json!({ "idempotencyKey": key })),
    };
    Event::default().event(name).json_data(&data).unwrap_or_default()
}

async fn ending(running: JoinHandle<Result<Extracted, Error>>) -> Event {
    let problem = match running.await {
        Ok(Ok(extracted)) => {
            let text = String::from_utf8(printed(&extracted)).unwrap_or_default();
            return Event::default().event("result").data(text);
        }
        Ok(Err(error)) => Problem::from(error),
        Err(_) => {
            let detail = "the request was cut short";
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, &EXTRACTOR_FAILED, detail)
        }
    };
    Event::default().event("problem").json_data(&problem).unwrap_or_default()
}

/// What to explain.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
struct Why {
    /// The text.
    text: String,
    /// The ontology's IRI.
    ontology_id: String,
    /// The parameters, as JSON.
    #[serde(default)]
    extraction_params: Option<String>,
}

/// A key and what it is made of.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct KeyExplained {
    /// Shortened for people.
    key: String,
    /// The full digest: what is stored and compared.
    digest: String,
    /// What it is made of.
    components: KeyComponents,
    /// Whether there is a result.
    found: bool,
    /// The result that comes nearest, where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    nearest: Option<NearestResult>,
}

/// What a key is made of.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct KeyComponents {
    /// The text after normalisation.
    text: String,
    /// The first 16 hex digits of its SHA-256.
    text_hash: String,
    /// The ontology's IRI.
    ontology_id: String,
    /// Its version.
    ontology_version: String,
    /// The first 16 hex digits of the SHA-256 of the parameters.
    extraction_params_hash: String,
    /// Everything that changes the answer, untruncated.
    fingerprint: String,
}

/// A result that nearly is the one that was asked for.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct NearestResult {
    /// Its key.
    key: String,
    /// The parts that differ.
    differs: Vec<String>,
    /// When it was last used.
    accessed_at: String,
}

/// Explain the key of a request, and why it finds a result or does not.
#[utoipa::path(get, path = "/api/v1/debug/idempotency-key", operation_id = "extraction_explain", tag = "extraction", params(Why),
    responses((status = 200, body = KeyExplained)))]
async fn explain(Of { extract, .. }: Of, Params(why): Params<Why>) -> Answer<KeyExplained> {
    let mut request = hapax_extract::Request::new(why.text, why.ontology_id.clone());
    if let Some(params) = &why.extraction_params {
        request.params = asked(params)?;
    }
    let Explained { identity, version, found, nearest } = extract.explain(&request).await?;
    let components = identity.components;
    answer(KeyExplained {
        key: components.short(),
        digest: components.key.to_string(),
        components: KeyComponents {
            text_hash: components.text_hash,
            text: components.normalized_text,
            ontology_id: why.ontology_id,
            ontology_version: version,
            extraction_params_hash: components.params_hash,
            fingerprint: identity.fingerprint.to_string(),
        },
        found,
        nearest: nearest.map(|nearest| NearestResult {
            key: nearest.key.to_string(),
            differs: nearest.differs.into_iter().map(str::to_owned).collect(),
            accessed_at: wire::time(nearest.used),
        }),
    })
}

/// Ontologies, by id.
#[derive(Debug, Serialize, ToSchema)]
struct OntologyList {
    ontologies: Vec<OntologyInfo>,
}

/// An ontology, without its content.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct OntologyInfo {
    /// Its IRI.
    id: String,
    /// The hash of its content.
    version: String,
    /// What people read of it.
    #[schema(value_type = Object)]
    metadata: serde_json::Value,
    /// When it was put here.
    updated_at: String,
}

impl From<hapax_extract::Listed> for OntologyInfo {
    fn from(listed: hapax_extract::Listed) -> Self {
        Self {
            metadata: serde_json::from_str(&listed.metadata).unwrap_or_default(),
            updated_at: wire::time(listed.updated),
            id: listed.id,
            version: listed.version,
        }
    }
}

/// List the ontologies.
#[utoipa::path(get, path = "/api/v1/ontologies", operation_id = "ontology_list", tag = "extraction",
    responses((status = 200, body = OntologyList)))]
async fn ontologies(Of { extract, .. }: Of) -> Answer<OntologyList> {
    let all = extract.ontologies().await?;
    answer(OntologyList { ontologies: all.into_iter().map(OntologyInfo::from).collect() })
}

/// An ontology.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct OntologyShown {
    #[serde(flatten)]
    info: OntologyInfo,
    /// What extractors read of it.
    #[schema(value_type = Object)]
    content: hapax_extract::Ontology,
}

/// Show an ontology. Its IRI is percent-encoded in the path.
#[utoipa::path(get, path = "/api/v1/ontologies/{ontology}", operation_id = "ontology_show", tag = "extraction",
    params(("ontology" = String, Path, description = "its IRI, percent-encoded")),
    responses((status = 200, body = OntologyShown)))]
async fn ontology(Of { extract, .. }: Of, Iri(id): Iri) -> Answer<OntologyShown> {
    let (content, listed) = extract.ontology(&id).await?;
    answer(OntologyShown { info: listed.into(), content })
}

/// How an ontology is put here.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
struct How {
    /// Its IRI, where the document does not say or is to be overruled.
    #[serde(default)]
    id: Option<String>,
    /// A version that people gave it. What counts is the hash of its content.
    #[serde(default)]
    version: Option<String>,
}

/// What became of an ontology.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct OntologyChange {
    /// Its IRI.
    ontology_id: String,
    /// The version before.
    old_version: Option<String>,
    /// The version now.
    new_version: Option<String>,
    /// How many results were removed because of that.
    entries_invalidated: usize,
}

impl From<hapax_extract::Changed> for OntologyChange {
    fn from(changed: hapax_extract::Changed) -> Self {
        Self {
            ontology_id: changed.id,
            old_version: changed.before,
            new_version: changed.now,
            entries_invalidated: changed.invalidated,
        }
    }
}

/// Put an ontology in place of the one before: JSON, `text/turtle`, `application/rdf+xml` or
/// `application/ld+json`. When this answers, no server answers from the one before any more.
#[utoipa::path(post, path = "/api/v1/ontologies", operation_id = "ontology_put", tag = "extraction", params(How),
    request_body(content = Object, content_type = "application/json"),
    responses((status = 200, body = OntologyChange)))]
async fn put_ontology(
    State(server): State<Arc<Server>>,
    Of { extract, caller }: Of,
    Params(how): Params<How>,
    request: Request,
) -> Answer<OntologyChange> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let syntax = kind.and_then(Syntax::of_media_type);
    let (Some(syntax), false) = (syntax, request.headers().contains_key(CONTENT_ENCODING)) else {
        discard(request.into_body()).await;
        let detail = "its media type is none that an ontology is read in, or it is compressed";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, &WRONG_SYNTAX, detail));
    };
    let body = collected(request.into_body(), LARGEST, server.terms.longest_request).await?;
    let ontology = rdf::import(&body, syntax, None, how.id.as_deref());
    let ontology = ontology.map_err(Error::from)?;
    answer(extract.put_ontology(&ontology, how.version.as_deref(), &caller.holder).await?.into())
}

/// Remove an ontology and all results that were made from it.
#[utoipa::path(delete, path = "/api/v1/ontologies/{ontology}", operation_id = "ontology_remove", tag = "extraction",
    params(("ontology" = String, Path, description = "its IRI, percent-encoded")),
    responses((status = 200, body = OntologyChange)))]
async fn remove_ontology(Of { extract, caller }: Of, Iri(id): Iri) -> Answer<OntologyChange> {
    answer(extract.remove_ontology(&id, &caller.holder).await?.into())
}

/// What is in the cache, and how often it was of use to this server.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct CacheStats {
    /// Results that somebody asked for.
    total_cached_results: u64,
    /// Parts of results: what extractors said of chunks.
    cached_chunks: u64,
    /// The bytes of both.
    bytes: u64,
    /// The bytes there is room for.
    room: u64,
    /// Requests whose result was there.
    hits: u64,
    /// Requests that waited for another that was the same.
    shared: u64,
    /// Requests that were executed.
    executed: u64,
    /// Requests that failed.
    failed: u64,
    /// Of all requests that were answered, how many hit, from 0 to 1.
    cache_hit_rate: f64,
    /// Of all requests that were answered, how many shared another's execution.
    execution_cache_hit_rate: f64,
    /// Calls of this server that cost.
    calls: u64,
    /// The tokens they read.
    tokens_in: u64,
    /// The tokens they wrote.
    tokens_out: u64,
    /// What they cost, in millionths of the currency of the prices, where there are prices.
    cost_micros: Option<u64>,
    /// Requests that brought another cache's key.
    shadow_compared: u64,
    /// It would have missed a result that we had.
    shadow_bypassed: u64,
    /// It would have answered with another request's result.
    shadow_mistaken: u64,
}

/// Count what is in the cache.
#[utoipa::path(get, path = "/api/v1/cache", operation_id = "cache_stats", tag = "extraction",
    responses((status = 200, body = CacheStats)))]
async fn stats(Of { extract, .. }: Of) -> Answer<CacheStats> {
    let stats = extract.stats().await?;
    let answered = (stats.hits + stats.shared + stats.executed).max(1) as f64;
    answer(CacheStats {
        total_cached_results: stats.stock.whole,
        cached_chunks: stats.stock.parts,
        bytes: stats.stock.bytes,
        room: stats.room,
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
    })
}

/// Which results to remove.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
struct Whose {
    /// Only those of this ontology.
    #[serde(default)]
    ontology_id: Option<String>,
}

/// How many results were removed.
#[derive(Debug, Serialize, ToSchema)]
struct Removed {
    removed: usize,
}

/// Remove all results, or all of an ontology.
#[utoipa::path(delete, path = "/api/v1/cache", operation_id = "cache_clear", tag = "extraction", params(Whose),
    responses((status = 200, body = Removed)))]
async fn clear(Of { extract, .. }: Of, Params(whose): Params<Whose>) -> Answer<Removed> {
    let removed = match whose.ontology_id {
        Some(id) => extract.invalidate_ontology(&id).await?,
        None => extract.clear().await?,
    };
    answer(Removed { removed })
}

/// Remove one result, by the full digest of its key.
#[utoipa::path(delete, path = "/api/v1/cache/{key}", operation_id = "cache_invalidate", tag = "extraction",
    params(("key" = String, Path, description = "sha256:<64 hex digits>")),
    responses((status = 200, body = Removed)))]
async fn invalidate(Of { extract, .. }: Of, named: Named) -> Answer<Removed> {
    match extract.invalidate(named.key).await? {
        true => answer(Removed { removed: 1 }),
        false => Err(not_found("there is no result under this key")),
    }
}
