//! Runs of workflows.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use axum::response::{IntoResponse, Response};
use hapax::remote::random_id;
use hapax_items::{CompletedRun, Error, Items};
use http::header::LOCATION;
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use tokio::task::JoinError;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::effect::{derived, page, page_cursor};
use super::items::{Name, Of};
use super::{Answer, ClientKey, Json, Params, Wait, answer, malformed, part};
use crate::problem::{Problem, STOPPING};
use crate::server::Server;
use crate::wire;

pub(super) fn reading() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(show))
}

pub(super) fn performing() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new().routes(routes!(begin))
}

/// The run that the path names.
struct RunId(String);

impl FromRequestParts<Arc<Server>> for RunId {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, server: &Arc<Server>) -> Result<Self, Problem> {
        let id = part(head, server, "run").await?;
        match id.len() {
            1..=512 => Ok(Self(id)),
            _ => Err(malformed("a run's id has 1 to 512 bytes")),
        }
    }
}

/// Which runs to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RunFilter {
    /// For the next page: only runs beyond this place.
    beyond: Option<u64>,
    /// At most this many; default 50.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Runs, newest first.
#[derive(Debug, Serialize, ToSchema)]
struct RunList {
    runs: Vec<wire::RunSummary>,
    /// Pass it as `beyond` for the next page. Null: there are no more.
    next: Option<u64>,
}

/// List the runs of a workflow, newest first.
#[utoipa::path(get, path = "/v1/workflows/{workflow}/runs", operation_id = "run_list", tag = "items",
    params(("workflow" = String, Path, min_length = 1, max_length = 64), RunFilter),
    responses((status = 200, body = RunList)))]
async fn list(
    State(server): State<Arc<Server>>,
    Of { items, .. }: Of,
    Name(workflow): Name,
    Params(filter): Params<RunFilter>,
) -> Answer<RunList> {
    let (limit, beyond) = (page(filter.limit)?, page_cursor(filter.beyond)?);
    let _one_of_few = server.listing.acquire().await;
    let runs = items.runs(&workflow, beyond, limit).await?;
    let next = runs.last().filter(|_| runs.len() == limit).map(|run| run.place);
    answer(RunList { runs: runs.iter().map(wire::RunSummary::of).collect(), next })
}

/// Show a run with its items and its log. With `Prefer: wait=N`, answer when it ends, or after N seconds.
#[utoipa::path(get, path = "/v1/workflows/{workflow}/runs/{run}", operation_id = "run_show", tag = "items",
    params(("workflow" = String, Path, min_length = 1, max_length = 64),
           ("run" = String, Path, description = "its id, percent-encoded", min_length = 1, max_length = 512),
           ("Prefer" = Option<String>, Header, description = "wait=N: seconds to wait while it runs")),
    responses((status = 200, body = wire::Run)))]
async fn show(
    State(server): State<Arc<Server>>,
    Of { items, .. }: Of,
    Name(workflow): Name,
    RunId(id): RunId,
    Wait(wait): Wait,
) -> Answer<wire::Run> {
    let run = items.show_run(&workflow, &id).await?;
    let remote = items.hapax().remote();
    tokio::select! {
        ended = remote.attach(run.key, wait) => { ended?; }
        // A stopping server answers at once.
        () = server.stopped() => {}
    }
    answer(wire::Run::of(&items.show_run(&workflow, &id).await?))
}

/// Run a workflow until it ends or is escalated. Failures are retried, and the maintainer repairs
/// the script, where that may help. If the run does not end within `Prefer: wait=N`, the answer is
/// 202 once its start is recorded, and it goes on in the background.
#[utoipa::path(post, path = "/v1/workflows/{workflow}/runs", operation_id = "run_begin", tag = "items", request_body = wire::BeginRun,
    params(("workflow" = String, Path, min_length = 1, max_length = 64),
           ("Prefer" = Option<String>, Header, description = "wait=N: seconds to wait for its end")),
    responses((status = 200, body = wire::Run, description = "it came to its end"),
              (status = 202, body = wire::Run, description = "the run continues; Location is its address")))]
async fn begin(
    State(server): State<Arc<Server>>,
    Of { items, caller }: Of,
    Name(workflow): Name,
    Wait(wait): Wait,
    ClientKey(client_key): ClientKey,
    Json(request): Json<wire::BeginRun>,
) -> Result<Response, Problem> {
    if server.is_stopping() {
        let detail = "it only finishes running requests";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, &STOPPING, detail));
    }
    let id = match (request.id, client_key) {
        (Some(id), _) => own(id)?,
        // A request with the same key asks for the same run.
        (None, Some(key)) => {
            let tenant = caller.tenant();
            named(derived(&[tenant.as_bytes(), workflow.as_bytes(), key.as_bytes()]))
        }
        (None, None) => named(random_id()?),
    };
    let mut running = server.runs.begin(items.clone(), &workflow, id.clone())?;
    let ended = tokio::select! {
        biased;
        ended = &mut running => Some(ended),
        () = tokio::time::sleep(wait) => None,
        () = server.stopped() => None,
    };
    let ended = match ended {
        Some(ended) => Some(ended),
        None => tokio::select! {
            biased;
            ended = &mut running => Some(ended),
            begun = begun(&items, &workflow, &id) => { begun?; None }
        },
    };
    let status = match ended {
        Some(ended) => driven(ended)?,
        None => StatusCode::ACCEPTED,
    };
    let run = wire::Run::of(&items.show_run(&workflow, &id).await?);
    let mut response = (status, axum::Json(run)).into_response();
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/workflows/{workflow}/runs/{id}")) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

/// The id of a run that the client did not name.
fn named(id: [u8; 16]) -> String {
    hapax::AttemptId::from_bytes(id).to_string()
}

/// The client's own id, checked.
fn own(id: String) -> Result<String, Problem> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match (1..=128).contains(&id.len()) && id.bytes().all(plain) {
        true => Ok(id),
        false => Err(malformed("id is 1 to 128 letters, digits, `-`, `_` or `.`")),
    }
}

/// Returns once the start of the run is recorded.
async fn begun(items: &Items, workflow: &str, id: &str) -> Result<(), Problem> {
    loop {
        match items.show_run(workflow, id).await {
            Ok(_) => return Ok(()),
            Err(Error::NotFound(_)) => tokio::time::sleep(Duration::from_millis(10)).await,
            Err(error) => return Err(error.into()),
        }
    }
}

fn driven(ended: Result<Result<CompletedRun, Error>, JoinError>) -> Result<StatusCode, Problem> {
    match ended {
        Ok(Ok(_)) => Ok(StatusCode::OK),
        Ok(Err(error)) => Err(error.into()),
        Err(error) => Err(hapax::Error::Failed { reason: error.to_string() }.into()),
    }
}
