//! Extraction: texts in, entities and relations out; the ontologies; the result cache.

use std::convert::Infallible;
use std::io::Write as _;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use hapax::Key;
use hapax_extract::rdf::{self, Syntax};
use hapax_extract::{Error, Extract, Extracted, Progress};
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use utoipa::IntoParams;
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

/// How many progress events may wait for a slow client; more are dropped.
const AHEAD: usize = 1_024;

pub(super) fn reading() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new()
        .routes(routes!(explain))
        .routes(routes!(ontologies))
        .routes(routes!(ontology))
        .routes(routes!(stats))
}

/// These responses need no replay: the same request has the same answer, with or without a key.
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

impl wire::ExtractionRequest {
    fn read(self, extract: &Extract) -> Result<hapax_extract::ExtractionRequest, Problem> {
        let Self { text, ontology_id, extraction_params, request_id, shadow_key } = self;
        for (name, text) in [("requestId", &request_id), ("shadowKey", &shadow_key)] {
            let bad = |text: &String| text.len() > 255 || text.contains(char::is_control);
            if text.as_ref().is_some_and(bad) {
                let detail = format!("{name} has more than 255 bytes, or control characters");
                return Err(malformed(detail));
            }
        }
        let nothing = || Ok(hapax::json::Json::Object(Vec::new()));
        let params =
            extraction_params.map_or_else(nothing, |raw| parse_params(extract, raw.get()))?;
        Ok(hapax_extract::ExtractionRequest {
            params,
            request_id,
            shadow_key,
            ..hapax_extract::ExtractionRequest::new(text, ontology_id)
        })
    }
}

/// Parses parameters strictly: a text that two parsers could read differently has no key.
fn parse_params(extract: &Extract, params: &str) -> Result<hapax::json::Json, Problem> {
    hapax::json::Json::parse(params.as_bytes()).map_err(|error| {
        extract.note_unreadable();
        let detail = format!("/extractionParams: {error}");
        Problem::new(StatusCode::BAD_REQUEST, &BAD_EXTRACTION, detail)
    })
}

/// The body of an answer: the cached result, preceded by the fields that differ each time.
fn printed(extracted: &Extracted) -> Vec<u8> {
    let kept = extracted.json();
    let short = extracted.identity.components.short();
    let (hit, version) = (extracted.is_hit(), &extracted.version);
    let mut body = Vec::with_capacity(kept.len() + version.len() + 128);
    // Writing to a `Vec` cannot fail.
    let _ = write!(
        body,
        "{{\"idempotencyKey\":\"{short}\",\"cacheHit\":{hit},\"ontologyVersion\":\"{version}\""
    );
    if !extracted.warnings.is_empty() {
        let warnings = serde_json::Value::from(extracted.warnings.as_slice());
        let _ = write!(body, ",\"warnings\":{warnings}");
    }
    if kept.len() > 2 {
        body.push(b',');
    }
    body.extend_from_slice(kept.get(1..).unwrap_or(b"}"));
    body
}

/// Extract from a text, or answer from the cache. A client that accepts `text/event-stream` gets
/// progress: events `chunks`, `chunk`, `merging`, and in the end `result` or `problem`.
#[utoipa::path(post, path = "/api/v1/extract", operation_id = "extraction_run", tag = "extraction", request_body = wire::ExtractionRequest,
    responses((status = 200, body = wire::ExtractionResult)))]
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
    let body = collected(request.into_body(), LARGEST, server.settings.longest_request).await?;
    let extraction = read::<wire::ExtractionRequest>(&body)?.read(&extract)?;
    // Gives the body's share of the memory budget back before the extraction.
    drop(body);
    if streams {
        let room = server.allowances.follow(&caller.namespace)?;
        let (identity, _) = extract.identify(&extraction).await?;
        let key = extract.key_of(&identity).await?;
        let mut response =
            progress_events(extract, extraction, identity.components.short(), room).into_response();
        name(&mut response, key);
        return Ok(response);
    }
    let mut response = match extract.extract(&extraction, None).await {
        Ok(extracted) => {
            let mut response = Response::new(printed(&extracted).into());
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
            name(&mut response, extracted.key);
            return Ok(response);
        }
        Err(error) if error.is_without_key() => return Err(error.into()),
        Err(error) => Problem::from(error).into_response(),
    };
    // A failed request names its key, too.
    if let Ok((identity, _)) = extract.identify(&extraction).await
        && let Ok(key) = extract.key_of(&identity).await
    {
        name(&mut response, key);
    }
    Ok(response)
}

/// Parses a document. Only a failed parse runs again, to find the path of the error.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| {
        let mut reader = serde_json::Deserializer::from_slice(body);
        match serde_path_to_error::deserialize::<_, T>(&mut reader) {
            Err(error) => malformed(error.to_string()),
            Ok(_) => malformed(error.to_string()),
        }
    })
}

/// Adds the key to a response.
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

/// The progress of an extraction, as server-sent events.
fn progress_events(
    extract: Extract,
    request: hapax_extract::ExtractionRequest,
    key: String,
    room: impl Send + 'static,
) -> Sse<impl futures_util::Stream<Item = Result<Event, Infallible>>> {
    let (sender, updates) = mpsc::channel(AHEAD);
    let running = tokio::spawn(async move { extract.extract(&request, Some(sender)).await });
    let events = stream::unfold((updates, Some(running), key, room), async |state| {
        let (mut updates, running, key, room) = state;
        if let Some(progress) = updates.recv().await {
            return Some((Ok(stage(&progress, &key)), (updates, running, key, room)));
        }
        let event = ending(running?, &key).await;
        Some((Ok(event), (updates, None, key, room)))
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
                "mentions": found.mentions, "relations": found.statements.len(),
            }),
        ),
        _ => ("merging", serde_json::json!({ "idempotencyKey": key })),
    };
    Event::default().event(name).json_data(&data).unwrap_or_default()
}

/// A problem as an event. It includes the key and the delay, which a response has in its headers.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EventProblem<'a> {
    idempotency_key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u16>,
    #[serde(flatten)]
    problem: &'a Problem,
}

async fn ending(running: JoinHandle<Result<Extracted, Error>>, key: &str) -> Event {
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
    let data =
        EventProblem { idempotency_key: key, retry_after: problem.after_s, problem: &problem };
    Event::default().event("problem").json_data(data).unwrap_or_default()
}

/// The request to explain.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
struct ExplainQuery {
    /// The text.
    text: String,
    /// The ontology's IRI.
    ontology_id: String,
    /// The parameters, as JSON.
    #[serde(default)]
    extraction_params: Option<String>,
}

/// Explain the key of a request, and why the cache has a result for it or not.
#[utoipa::path(get, path = "/api/v1/debug/idempotency-key", operation_id = "extraction_explain", tag = "extraction", params(ExplainQuery),
    responses((status = 200, body = wire::KeyExplained)))]
async fn explain(
    Of { extract, .. }: Of,
    Params(query): Params<ExplainQuery>,
) -> Answer<wire::KeyExplained> {
    let mut request = hapax_extract::ExtractionRequest::new(query.text, query.ontology_id.clone());
    if let Some(params) = &query.extraction_params {
        request.params = parse_params(&extract, params)?;
    }
    let explained = extract.explain(&request).await?;
    answer(wire::KeyExplained::of(explained, query.ontology_id))
}

/// List the ontologies.
#[utoipa::path(get, path = "/api/v1/ontologies", operation_id = "ontology_list", tag = "extraction",
    responses((status = 200, body = wire::OntologyList)))]
async fn ontologies(Of { extract, .. }: Of) -> Answer<wire::OntologyList> {
    let all = extract.ontologies().await?;
    answer(wire::OntologyList {
        ontologies: all.into_iter().map(wire::OntologyInfo::from).collect(),
    })
}

/// Show an ontology. Its IRI is percent-encoded in the path.
#[utoipa::path(get, path = "/api/v1/ontologies/{ontology}", operation_id = "ontology_show", tag = "extraction",
    params(("ontology" = String, Path, description = "its IRI, percent-encoded")),
    responses((status = 200, body = wire::OntologyShown)))]
async fn ontology(Of { extract, .. }: Of, Iri(id): Iri) -> Answer<wire::OntologyShown> {
    let (content, listed) = extract.ontology(&id).await?;
    answer(wire::OntologyShown { info: listed.into(), content })
}

/// The parameters of an ontology that is put.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
struct How {
    /// Its IRI, if the document does not state one or states another.
    #[serde(default)]
    id: Option<String>,
    /// A version for people. Results depend on the hash of the content instead.
    #[serde(default)]
    version: Option<String>,
}

/// Put an ontology in place of the one before: JSON, `text/turtle`, `application/rdf+xml` or
/// `application/ld+json`. Once this answers, no server uses the one before.
#[utoipa::path(post, path = "/api/v1/ontologies", operation_id = "ontology_put", tag = "extraction", params(How),
    request_body(content = Object, content_type = "application/json"),
    responses((status = 200, body = wire::OntologyChange)))]
async fn put_ontology(
    State(server): State<Arc<Server>>,
    Of { extract, caller }: Of,
    Params(how): Params<How>,
    request: Request,
) -> Answer<wire::OntologyChange> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let syntax = kind.and_then(Syntax::of_media_type);
    let (Some(syntax), false) = (syntax, request.headers().contains_key(CONTENT_ENCODING)) else {
        discard(request.into_body()).await;
        let detail = "its media type is none that an ontology is read in, or it is compressed";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, &WRONG_SYNTAX, detail));
    };
    let body = collected(request.into_body(), LARGEST, server.settings.longest_request).await?;
    let ontology = rdf::import(&body, syntax, None, how.id.as_deref());
    let ontology = ontology.map_err(Error::from)?;
    drop(body);
    answer(extract.put_ontology(&ontology, how.version.as_deref(), &caller.holder).await?.into())
}

/// Remove an ontology and all results that were made from it.
#[utoipa::path(delete, path = "/api/v1/ontologies/{ontology}", operation_id = "ontology_remove", tag = "extraction",
    params(("ontology" = String, Path, description = "its IRI, percent-encoded")),
    responses((status = 200, body = wire::OntologyChange)))]
async fn remove_ontology(Of { extract, caller }: Of, Iri(id): Iri) -> Answer<wire::OntologyChange> {
    answer(extract.remove_ontology(&id, &caller.holder).await?.into())
}

/// Show the size of the result cache, and how often it was used.
#[utoipa::path(get, path = "/api/v1/cache", operation_id = "cache_stats", tag = "extraction",
    responses((status = 200, body = wire::CacheStats)))]
async fn stats(Of { extract, .. }: Of) -> Answer<wire::CacheStats> {
    answer(extract.stats().await?.into())
}

/// Which results to remove.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
struct ClearFilter {
    /// Only results of this ontology.
    #[serde(default)]
    ontology_id: Option<String>,
}

/// Remove all results, or all of an ontology.
#[utoipa::path(delete, path = "/api/v1/cache", operation_id = "cache_clear", tag = "extraction", params(ClearFilter),
    responses((status = 200, body = wire::Removed)))]
async fn clear(
    Of { extract, .. }: Of,
    Params(filter): Params<ClearFilter>,
) -> Answer<wire::Removed> {
    let removed = match filter.ontology_id {
        Some(id) => extract.invalidate_ontology(&id).await?,
        None => extract.clear().await?,
    };
    answer(wire::Removed { removed })
}

/// Remove one result, by the full digest of its key.
#[utoipa::path(delete, path = "/api/v1/cache/{key}", operation_id = "cache_invalidate", tag = "extraction",
    params(("key" = String, Path, description = "sha256:<64 hex digits>")),
    responses((status = 200, body = wire::Removed)))]
async fn invalidate(Of { extract, .. }: Of, named: Named) -> Answer<wire::Removed> {
    match extract.invalidate(named.key).await? {
        true => answer(wire::Removed { removed: 1 }),
        false => Err(not_found("there is no result under this key")),
    }
}
