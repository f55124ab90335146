//! The API under `/v1`; extraction is under `/api/v1`, where its clients expect it.
//!
//! The role that a route needs is stated here only. An author who adds a route has to choose one.

mod control;
mod effect;
mod epoch;
mod extraction;
mod items;
mod journal;
mod lease;
mod outbox;
mod pipeline;
mod run;
mod settings;
mod workflow;

pub(crate) use control::named_by_path;

use std::fmt::Display;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::extract::{FromRequest, FromRequestParts, Query, RawPathParams, Request};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use hapax::outbox::Trace;
use hapax::{Hapax, Key, Role};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;
use utoipa::OpenApi;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{Content, OpenApi as OpenApiDocument, Ref, ResponseBuilder};
use utoipa_axum::router::OpenApiRouter;

use crate::access::{Caller, require};
use crate::body::{collected, discard};
use crate::idempotency::{IdempotencyLayer, wait_of};
use crate::problem::{FORBIDDEN, MALFORMED, NOT_FOUND, Problem, WRONG_TYPE};
use crate::server::{Server, ServerSettings};
use crate::wire;

/// The OpenAPI document, without its routes.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "hapax",
        description = "Effects that happen once: claim, perform, settle. Every POST, PUT \
                       and DELETE accepts Idempotency-Key, and most are carried out once under it; claims, \
                       looks, opening or renewing a lease, ending an epoch, extraction and putting an \
                       ontology are evaluated anew each time, and say so. Every error is a problem (RFC 9457) \
                       with a code that has a page of its own.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    components(schemas(Problem)),
    modifiers(&Bearer),
    security(("token" = [])),
)]
struct Document;

/// Adds bearer tokens to the document.
struct Bearer;

impl utoipa::Modify for Bearer {
    fn modify(&self, openapi: &mut OpenApiDocument) {
        use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// All routes, each with the role that it needs.
fn documented(idempotency: Option<IdempotencyLayer>) -> OpenApiRouter<Arc<Server>> {
    let viewer = OpenApiRouter::new()
        .merge(effect::reading())
        .merge(control::reading())
        .merge(epoch::reading())
        .merge(extraction::reading())
        .merge(items::reading())
        .merge(journal::reading())
        .merge(outbox::reading())
        .merge(lease::reading())
        .merge(pipeline::reading())
        .merge(run::reading())
        .merge(settings::reading())
        .merge(workflow::reading());
    let operator = OpenApiRouter::new()
        .merge(effect::performing())
        .merge(control::performing())
        .merge(extraction::performing())
        .merge(lease::performing())
        .merge(outbox::performing())
        .merge(pipeline::performing())
        .merge(run::performing())
        .merge(workflow::performing());
    let steward = effect::clearing()
        .merge(items::deciding())
        .merge(pipeline::governing())
        .merge(workflow::deciding());
    let for_role = |router: OpenApiRouter<Arc<Server>>, role| {
        router.route_layer(from_fn_with_state(role, require))
    };
    let kept = |router: OpenApiRouter<Arc<Server>>| match idempotency.clone() {
        Some(layer) => router.route_layer(layer),
        None => router,
    };
    // The responses of these calls are never replayed, but their keys have to be well-formed.
    let read = |router: OpenApiRouter<Arc<Server>>| router.route_layer(from_fn(with_sound_key));
    OpenApiRouter::with_openapi(Document::openapi())
        .merge(for_role(viewer, Role::Viewer))
        .merge(for_role(read(asking()), Role::Operator))
        .merge(for_role(kept(operator), Role::Operator))
        .merge(for_role(kept(steward), Role::Steward))
        .merge(for_role(read(epoch::ending()), Role::Steward))
}

/// Calls of operators whose responses are never replayed: each call is answered by the current state.
fn asking() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new()
        .merge(effect::asking())
        .merge(lease::asking())
        .merge(control::asking())
        .merge(extraction::asking())
        .merge(pipeline::asking())
}

/// Refuses a request whose `Idempotency-Key` is malformed.
async fn with_sound_key(request: Request, next: Next) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    crate::idempotency::Settings::default().key_of(&head)?;
    Ok(next.run(Request::from_parts(head, body)).await)
}

pub(crate) fn router(idempotency: IdempotencyLayer) -> Router<Arc<Server>> {
    documented(Some(idempotency)).split_for_parts().0
}

/// The OpenAPI document as the server serves it; `docs/openapi.json` is a copy.
pub fn openapi_text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let mut document = documented(None).into_openapi();
        complete(&mut document);
        let mut text = document.to_pretty_json().unwrap_or_default();
        text.push('\n');
        text
    });
    &TEXT
}

/// Adds the parts that all operations share: problems, and the key that mutating ones accept.
fn complete(document: &mut OpenApiDocument) {
    let problem = Content::new(Some(Ref::from_schema_name("Problem")));
    let problem = ResponseBuilder::new()
        .description("A problem, as RFC 9457 has it")
        .content("application/problem+json", problem)
        .build();
    let anew = asking().merge(epoch::ending()).into_openapi().paths.paths;
    for (path, item) in &mut document.paths.paths {
        for operation in
            [&mut item.get, &mut item.post, &mut item.put, &mut item.delete].into_iter().flatten()
        {
            for status in ["4XX", "5XX"] {
                operation.responses.responses.insert(status.into(), problem.clone().into());
            }
        }
        let anew = anew.get(path);
        let anew = [
            anew.is_some_and(|anew| anew.post.is_some()),
            anew.is_some_and(|anew| anew.put.is_some()),
            anew.is_some_and(|anew| anew.delete.is_some()),
        ];
        for (operation, anew) in
            [&mut item.post, &mut item.put, &mut item.delete].into_iter().zip(anew)
        {
            if let Some(operation) = operation {
                operation.parameters.get_or_insert_default().push(key(anew).into());
            }
        }
    }
}

/// The `Idempotency-Key` parameter of an operation; `anew` if its responses are never replayed.
fn key(anew: bool) -> Parameter {
    let means = match anew {
        false => "carried out once under it, and answered alike for as long as it is kept",
        true => "evaluated anew each time, and answered from the current state",
    };
    ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .description(Some(format!("Yours, 1 to 255 visible characters: {means}")))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String).pattern(Some(KEY_PATTERN))))
        .build()
}

/// The pattern of an `Idempotency-Key` without quotes.
const KEY_PATTERN: &str = "^[!#-+.-~-]{1,255}$";

/// The result of a handler.
type Answer<T> = Result<axum::Json<T>, Problem>;

fn answer<T>(document: T) -> Answer<T> {
    Ok(axum::Json(document))
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.into_response()
    }
}

impl From<hapax::Error> for Problem {
    fn from(error: hapax::Error) -> Self {
        Self::of(&error)
    }
}

fn malformed(detail: impl Into<Box<str>>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, &MALFORMED, detail)
}

fn not_found(detail: &'static str) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, &NOT_FOUND, detail)
}

/// Parses a printed id; the problem names the field.
fn parse<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, Problem> {
    text.parse().map_err(|error| malformed(format!("{field}: {error}")))
}

/// The ledger in the caller's namespace, and the caller.
struct Scope {
    hapax: Hapax,
    caller: Caller,
}

impl Scope {
    /// Refuses a caller that is not good in every namespace.
    fn everywhere(&self) -> Result<(), Problem> {
        if self.caller.everywhere {
            return Ok(());
        }
        let detail = "this concerns every namespace, and the token is good in one";
        Err(Problem::new(StatusCode::FORBIDDEN, &FORBIDDEN, detail))
    }
}

impl FromRequestParts<Arc<Server>> for Scope {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, server: &Arc<Server>) -> Result<Self, Problem> {
        // `admit` adds the caller to every request. Without it, the request is refused.
        let caller = head.extensions.get::<Caller>().cloned();
        let caller = caller.ok_or_else(|| {
            Problem::new(StatusCode::FORBIDDEN, &FORBIDDEN, "the request was not authorized")
        })?;
        Ok(Self { hapax: server.hapax.in_namespace(caller.namespace.clone()), caller })
    }
}

/// A parameter of the path.
async fn part(head: &mut Parts, server: &Arc<Server>, name: &str) -> Result<String, Problem> {
    let parts = RawPathParams::from_request_parts(head, server).await;
    let parts = parts.map_err(|_| malformed("the path is not UTF-8"))?;
    let found = parts.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned());
    found.ok_or_else(|| not_found("the path has no such part"))
}

/// The effect that the path names: `sha256:<64 hex digits>`, or a name of the client's own.
struct Named {
    key: Key,
    text: String,
}

impl FromRequestParts<Arc<Server>> for Named {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, server: &Arc<Server>) -> Result<Self, Problem> {
        let text = part(head, server, "key").await?;
        let key = wire::key(&text);
        let key = key.map_err(|error| malformed(format!("the key in the path: {error}")))?;
        Ok(Self { key, text })
    }
}

/// The id that the path names.
struct Id<T>(T);

impl<T: FromStr<Err: Display>> FromRequestParts<Arc<Server>> for Id<T> {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, server: &Arc<Server>) -> Result<Self, Problem> {
        let text = part(head, server, "id").await?;
        parse("the id in the path", &text).map(Self)
    }
}

/// The query.
struct Params<T>(T);

impl<T: DeserializeOwned> FromRequestParts<Arc<Server>> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, server: &Arc<Server>) -> Result<Self, Problem> {
        let query = Query::<T>::from_request_parts(head, server).await;
        query.map(|Query(query)| Self(query)).map_err(|error| malformed(error.body_text()))
    }
}

/// How long the caller asks to wait, up to the server's limit.
struct Wait(std::time::Duration);

impl FromRequestParts<Arc<Server>> for Wait {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, server: &Arc<Server>) -> Result<Self, Problem> {
        Ok(Self(wait_of(head).unwrap_or_default().min(server.settings.longest_wait)))
    }
}

/// The client's `Idempotency-Key`, if it sent one.
struct ClientKey(Option<String>);

impl FromRequestParts<Arc<Server>> for ClientKey {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, _: &Arc<Server>) -> Result<Self, Problem> {
        crate::idempotency::Settings::default().key_of(head).map(Self)
    }
}

/// The trace that the request names in `traceparent`.
struct TraceOf(Option<Trace>);

impl FromRequestParts<Arc<Server>> for TraceOf {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, _: &Arc<Server>) -> Result<Self, Problem> {
        let header = head.headers.get("traceparent").and_then(|value| value.to_str().ok());
        Ok(Self(header.and_then(Trace::parse)))
    }
}

/// A body of JSON.
struct Json<T>(T);

impl<T: DeserializeOwned> FromRequest<Arc<Server>> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, server: &Arc<Server>) -> Result<Self, Problem> {
        if let Err(problem) = check_type(request.headers()) {
            discard(request.into_body()).await;
            return Err(problem);
        }
        let ServerSettings { largest_request, longest_request, .. } = server.settings;
        let body = collected(request.into_body(), largest_request, longest_request).await?;
        if body.is_empty() {
            return Err(malformed("the body is empty; send at least {}"));
        }
        let mut reader = serde_json::Deserializer::from_slice(&body);
        let read = serde_path_to_error::deserialize(&mut reader);
        let read = read.map_err(|error| match error.path().iter().next() {
            Some(_) => malformed(error.to_string()),
            None => malformed(error.into_inner().to_string()),
        })?;
        reader.end().map_err(|error| malformed(error.to_string()))?;
        Ok(Self(read))
    }
}

/// Refuses bodies that are not plain JSON. A body that is never unpacked cannot explode.
fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let refuse =
        |detail| Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, &WRONG_TYPE, detail));
    if headers.contains_key(CONTENT_ENCODING) {
        return refuse("compressed bodies are not read");
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    match kind.eq_ignore_ascii_case("application/json") {
        true => Ok(()),
        false => refuse("Content-Type is not application/json"),
    }
}
