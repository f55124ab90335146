//! Operations of pipelines, the datasets they change, and their reviews.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use hapax::StateName;
use hapax::remote::{Permit, work_ms};
use hapax_pipeline::lineage::openlineage;
use hapax_pipeline::remote::{OperationReport, PermitRequest};
use hapax_pipeline::replay::PRODUCER;
use hapax_pipeline::{Error, Fold, Pipeline, review};
use http::StatusCode;
use http::request::Parts;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::effect::{LONGEST_DEADLINE_MS, attempt, noted, page, settled, within};
use super::{
    Answer, ClientKey, Json, Named, Params, Scope, TraceOf, Wait, answer, malformed, not_found,
    parse, part,
};
use crate::problem::{BAD_OPERATION, GUARDED, IN_REVIEW, Problem};
use crate::server::Server;
use crate::wire;

pub(super) fn reading() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new()
        .routes(routes!(datasets))
        .routes(routes!(dataset))
        .routes(routes!(lineage))
        .routes(routes!(reviews))
}

/// Responses to claims are never replayed. A client repeats a claim by naming its attempt.
pub(super) fn asking() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new().routes(routes!(claim))
}

pub(super) fn performing() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new().routes(routes!(settle)).routes(routes!(escalate))
}

pub(super) fn governing() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new().routes(routes!(declare)).routes(routes!(drop)).routes(routes!(decide))
}

/// The pipelines of the caller's namespace.
pub(super) struct Of(pub(super) Pipeline);

impl FromRequestParts<Arc<Server>> for Of {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, server: &Arc<Server>) -> Result<Self, Problem> {
        let scope = Scope::from_request_parts(head, server).await?;
        Ok(Self(server.pipeline.on(scope.hapax)))
    }
}

/// The dataset that the path names.
struct Name(String);

impl FromRequestParts<Arc<Server>> for Name {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, server: &Arc<Server>) -> Result<Self, Problem> {
        let name = part(head, server, "dataset").await?;
        match name.len() {
            1..=512 => Ok(Self(name)),
            _ => Err(malformed("a dataset's name has 1 to 512 bytes")),
        }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Ledger(error) => return Self::of(error),
            Error::Skipped { holder } => {
                return Self::of(&hapax::Error::Locked { holder: *holder });
            }
            Error::Invalid(detail) => {
                return Self::new(StatusCode::BAD_REQUEST, &BAD_OPERATION, detail.clone());
            }
            Error::Refused(_) => &GUARDED,
            _ => &IN_REVIEW,
        };
        Self::new(StatusCode::CONFLICT, kind, error.to_string())
    }
}

/// Datasets, by name.
#[derive(Debug, Serialize, ToSchema)]
struct Datasets {
    datasets: Vec<NamedDataset>,
}

/// A dataset and its declaration.
#[derive(Debug, Serialize, ToSchema)]
struct NamedDataset {
    /// Its name.
    dataset: String,
    /// Its declaration.
    declared: wire::Dataset,
}

/// List the datasets that are declared.
#[utoipa::path(get, path = "/v1/datasets", operation_id = "dataset_list", tag = "pipelines",
    responses((status = 200, body = Datasets)))]
async fn datasets(scope: Scope) -> Answer<Datasets> {
    let declared = scope.hapax.datasets().list().await?.into_iter();
    let datasets = declared.map(|(dataset, declared)| NamedDataset {
        dataset,
        declared: wire::Dataset::of(&declared),
    });
    answer(Datasets { datasets: datasets.collect() })
}

/// Show the declaration of a dataset.
#[utoipa::path(get, path = "/v1/datasets/{dataset}", operation_id = "dataset_show", tag = "pipelines",
    params(("dataset" = String, Path, min_length = 1, max_length = 512)),
    responses((status = 200, body = wire::Dataset)))]
async fn dataset(scope: Scope, Name(name): Name) -> Answer<wire::Dataset> {
    let declared = scope.hapax.datasets().list().await?.remove(&name);
    let declared = declared.ok_or_else(|| not_found("this dataset is not declared"))?;
    answer(wire::Dataset::of(&declared))
}

/// The answer to a change of a declaration.
#[derive(Debug, Serialize, ToSchema)]
struct Known {
    /// Whether it was declared before.
    known: bool,
}

/// Declare a dataset in every namespace, in place of its earlier declaration.
#[utoipa::path(post, path = "/v1/datasets/{dataset}", operation_id = "dataset_declare", tag = "pipelines", request_body = wire::Dataset,
    params(("dataset" = String, Path, min_length = 1, max_length = 512)),
    responses((status = 200, body = Known)))]
async fn declare(
    scope: Scope,
    Name(name): Name,
    Json(declared): Json<wire::Dataset>,
) -> Answer<Known> {
    scope.everywhere()?;
    let dataset = declared.to_domain().map_err(malformed)?;
    for contract in [&dataset.input_contract, &dataset.output_contract].into_iter().flatten() {
        let schema = hapax::json::Json::parse(contract.as_bytes());
        let schema = schema.map_err(|error| malformed(error.to_string()))?;
        hapax_pipeline::Contract::new(&schema).map_err(|error| malformed(error.to_string()))?;
    }
    answer(Known { known: scope.hapax.datasets().declare(&name, Some(dataset)).await? })
}

/// Remove the declaration of a dataset, in every namespace.
#[utoipa::path(delete, path = "/v1/datasets/{dataset}", operation_id = "dataset_drop", tag = "pipelines",
    params(("dataset" = String, Path, min_length = 1, max_length = 512)),
    responses((status = 200, body = Known)))]
async fn drop(scope: Scope, Name(name): Name) -> Answer<Known> {
    scope.everywhere()?;
    answer(Known { known: scope.hapax.datasets().declare(&name, None).await? })
}

/// Claim an operation: derives its key, takes its lock, checks its guards.
#[utoipa::path(post, path = "/v1/operations", operation_id = "operation_claim", tag = "pipelines", request_body = wire::OperationClaim,
    params(("Prefer" = Option<String>, Header, description = "wait=N: seconds to wait while another attempt is running")),
    responses((status = 200, body = wire::OperationVerdict)))]
async fn claim(
    _: Scope,
    Of(pipeline): Of,
    Wait(wait): Wait,
    _: ClientKey,
    Json(request): Json<wire::OperationClaim>,
) -> Answer<wire::OperationVerdict> {
    let operation = request.operation().map_err(malformed)?;
    let lease = request.lease.as_deref().map(|text| parse("lease", text)).transpose()?;
    let deadline = within("deadline_ms", request.deadline_ms, 1..=LONGEST_DEADLINE_MS)?;
    let deadline = deadline.map(Duration::from_millis);
    let attempt = attempt(request.attempt.as_deref())?;
    let permit_request = PermitRequest {
        operation,
        part: request.part.clone(),
        fingerprint: None,
        inputs: wire::documents(&request.documents).map_err(malformed)?,
        safety: request.safety.to_domain(None),
        lease,
        deadline,
        wait,
    };
    let (key, permit) = pipeline.permit(permit_request, attempt).await?;
    let key = key.to_string();
    answer(match permit {
        Permit::Granted(grant) => wire::OperationVerdict::Granted {
            key,
            attempt: grant.attempt.to_string(),
            fence: grant.fence.0,
            nth: grant.nth,
            work_ms: work_ms(&grant),
        },
        Permit::Replayed { outcome, .. } => {
            wire::OperationVerdict::Replayed { key, outcome: wire::Outcome::of(&outcome) }
        }
    })
}

/// Report how an operation went. Its outputs are checked against the contract, masked and recorded.
#[utoipa::path(post, path = "/v1/operations/{key}/settle", operation_id = "operation_settle", tag = "pipelines", request_body = wire::OperationSettle,
    params(("key" = String, Path, description = "the operation, as it was granted", min_length = 1)),
    responses((status = 200, body = wire::Settled)))]
async fn settle(
    Of(pipeline): Of,
    named: Named,
    TraceOf(trace): TraceOf,
    Json(request): Json<wire::OperationSettle>,
) -> Answer<wire::Settled> {
    let by = parse("attempt", &request.attempt)?;
    let fence = hapax::Fence(request.fence);
    let report = match request.into_domain().map_err(malformed)? {
        OperationReport::WorkResult(made) => {
            OperationReport::WorkResult(Box::new(made.traced(trace)))
        }
        otherwise => otherwise,
    };
    match pipeline.report(named.key, (by, fence), report).await? {
        Some(settlement) => settled(by, settlement),
        None => Err(not_found("no operation of this key was granted to this attempt")),
    }
}

/// Escalate an operation to a reviewer. Until the reviewer approves, it is refused.
#[utoipa::path(post, path = "/v1/operations/{key}/escalate", operation_id = "operation_escalate", tag = "pipelines", request_body = wire::Escalate,
    params(("key" = String, Path, min_length = 1)),
    responses((status = 200, body = wire::Escalated)))]
async fn escalate(
    scope: Scope,
    Of(pipeline): Of,
    named: Named,
    Json(request): Json<wire::Escalate>,
) -> Answer<wire::Escalated> {
    let note = (scope.caller.holder.as_str(), noted(&request.note)?);
    match review::escalate(&pipeline, named.key, note).await? {
        Some((review, status)) => {
            answer(wire::Escalated { review: review.to_string(), standing: status.as_str() })
        }
        None => Err(not_found("no operation of this key was ever granted")),
    }
}

/// The lineage of one operation.
#[derive(Debug, Serialize, ToSchema)]
struct Lineage {
    /// OpenLineage run events, oldest first.
    #[schema(value_type = Vec<Value>)]
    events: Vec<Box<RawValue>>,
}

/// Show the lineage of an operation, as OpenLineage events.
#[utoipa::path(get, path = "/v1/operations/{key}/lineage", operation_id = "operation_lineage", tag = "pipelines",
    params(("key" = String, Path, min_length = 1)),
    responses((status = 200, body = Lineage)))]
async fn lineage(scope: Scope, named: Named) -> Answer<Lineage> {
    let mut fold = Fold::default();
    let history = scope.hapax.journal().history(named.key, 1000).await?;
    let moments = history.iter().filter_map(|entry| fold.push(entry));
    let text = |moment| hapax::canonical::canonical(&openlineage::event(&moment, PRODUCER)).ok();
    let events = moments.filter_map(text).filter_map(|text| RawValue::from_string(text).ok());
    answer(Lineage { events: events.collect() })
}

/// Which reviews to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ReviewFilter {
    /// Also reviews that are decided.
    all: Option<bool>,
    /// At most this many; default 50.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Reviews, newest first.
#[derive(Debug, Serialize, ToSchema)]
struct Reviews {
    reviews: Vec<wire::Review>,
}

/// List the reviews, newest first.
#[utoipa::path(get, path = "/v1/reviews", operation_id = "review_list", tag = "pipelines", params(ReviewFilter),
    responses((status = 200, body = Reviews)))]
async fn reviews(
    State(server): State<Arc<Server>>,
    scope: Scope,
    Params(filter): Params<ReviewFilter>,
) -> Answer<Reviews> {
    let _one_of_few = server.listing.acquire().await;
    let pending = !filter.all.unwrap_or(false);
    let reviews = review::list(&scope.hapax, pending, page(filter.limit)?).await?;
    answer(Reviews { reviews: reviews.iter().map(wire::Review::of).collect() })
}

/// Decide a review: whether the operation may be tried again. Its guards are still checked.
#[utoipa::path(post, path = "/v1/reviews/{key}/decide", operation_id = "review_decide", tag = "pipelines", request_body = wire::Decide,
    params(("key" = String, Path, min_length = 1)),
    responses((status = 200, body = wire::Judged)))]
async fn decide(
    scope: Scope,
    Of(pipeline): Of,
    named: Named,
    Json(request): Json<wire::Decide>,
) -> Answer<wire::Judged> {
    let by = parse("attempt", &request.attempt)?;
    let note = (scope.caller.holder.as_str(), noted(&request.note)?);
    let judged = review::decide(&pipeline, named.key, by, request.approve, note).await?;
    let to = if request.approve { StateName::Succeeded } else { StateName::Skipped };
    super::effect::judged(by, to, judged)
}
