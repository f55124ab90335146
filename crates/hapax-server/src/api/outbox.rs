//! The outbox: records, their deliveries, and sinks.

use std::sync::Arc;

use axum::extract::State;
use hapax::outbox::{OutboxId, RecordFilter, SinkName, Status};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::effect::page_cursor;
use super::{Answer, Id, Json, Params, Scope, answer, malformed, not_found, parse};
use crate::problem::Problem;
use crate::server::Server;
use crate::wire;

pub(super) fn reading() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(show)).routes(routes!(sinks))
}

pub(super) fn performing() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new().routes(routes!(redrive)).routes(routes!(pause)).routes(routes!(resume))
}

/// Which events to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Search {
    /// Only records with this status.
    #[param(inline)]
    status: Option<Wanted>,
    /// Only records that are routed to this sink and not dispatched to it yet.
    sink: Option<String>,
    /// For the next page: only records with a lower seq.
    before: Option<u64>,
    /// At most this many; default 50.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<usize>,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Wanted {
    Pending,
    Dispatched,
    Failed,
}

/// Outbox records, newest first.
#[derive(Debug, Serialize, ToSchema)]
struct Records {
    records: Vec<wire::Record>,
    /// Pass it as `before` for the next page. Null: there are no more.
    next: Option<u64>,
}

fn sink_named(text: &str) -> Result<SinkName, Problem> {
    SinkName::new(text).map_err(|_| malformed("invalid sink name"))
}

/// List events, newest first.
#[utoipa::path(get, path = "/v1/outbox", operation_id = "outbox_list", tag = "outbox", params(Search),
    responses((status = 200, body = Records)))]
async fn list(
    State(server): State<Arc<Server>>,
    scope: Scope,
    Params(search): Params<Search>,
) -> Answer<Records> {
    let limit = match search.limit.unwrap_or(50) {
        limit @ 1..=100 => limit,
        _ => return Err(malformed("limit is 1 to 100")),
    };
    // Payloads may be large, so only a few lists are read at once.
    let _few = server.listing.acquire().await;
    let status = search.status.map(|status| match status {
        Wanted::Pending => Status::Pending,
        Wanted::Dispatched => Status::Dispatched,
        Wanted::Failed => Status::Failed,
    });
    let sink = search.sink.as_deref().map(sink_named).transpose()?;
    let before = page_cursor(search.before)?;
    let filter = RecordFilter { status, sink, before, limit, ..RecordFilter::default() };
    let found = scope.hapax.outbox().records(filter).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|found| found.record.seq);
    answer(Records { records: found.iter().map(wire::Record::of).collect(), next })
}

/// Show an event and its delivery to each sink.
#[utoipa::path(get, path = "/v1/outbox/{id}", operation_id = "outbox_show", tag = "outbox",
    params(("id" = String, Path, format = "uuid")),
    responses((status = 200, body = wire::Record)))]
async fn show(scope: Scope, Id(id): Id<OutboxId>) -> Answer<wire::Record> {
    let found = scope.hapax.outbox().record(id).await?;
    answer(wire::Record::of(&found.ok_or_else(|| not_found("there is no such event"))?))
}

/// The sinks.
#[derive(Debug, Serialize, ToSchema)]
struct Sinks {
    sinks: Vec<wire::Sink>,
}

/// Count the pending and failed deliveries of each sink, over all namespaces.
#[utoipa::path(get, path = "/v1/sinks", operation_id = "outbox_sinks", tag = "outbox",
    responses((status = 200, body = Sinks)))]
async fn sinks(scope: Scope) -> Answer<Sinks> {
    scope.everywhere()?;
    let stats = scope.hapax.outbox().stats().await?;
    answer(Sinks { sinks: stats.iter().map(wire::Sink::of).collect() })
}

/// Redrive failed deliveries.
#[utoipa::path(post, path = "/v1/outbox/redrive", operation_id = "outbox_redrive", tag = "outbox", request_body = wire::Redrive,
    responses((status = 200, body = wire::Redriven)))]
async fn redrive(scope: Scope, Json(request): Json<wire::Redrive>) -> Answer<wire::Redriven> {
    let limit = request.limit.unwrap_or(10_000);
    if !(1..=10_000).contains(&limit) {
        return Err(malformed("limit is 1 to 10000"));
    }
    let redrive = hapax::outbox::Redrive {
        id: request.outbox_id.as_deref().map(|text| parse("outbox_id", text)).transpose()?,
        sink: request.sink.as_deref().map(sink_named).transpose()?,
        may_duplicate: request.may_duplicate,
        limit,
        ..hapax::outbox::Redrive::default()
    };
    answer(wire::Redriven { redriven: scope.hapax.outbox().redrive(redrive).await? })
}

/// Whether a sink is paused.
#[derive(Debug, Serialize, ToSchema)]
struct Paused {
    sink: String,
    paused: bool,
}

async fn set_paused(scope: &Scope, sink: &SinkName, paused: bool) -> Answer<Paused> {
    scope.everywhere()?;
    if !scope.hapax.outbox().pause(sink, paused).await? {
        return Err(not_found("there is no such sink"));
    }
    answer(Paused { sink: sink.to_string(), paused })
}

/// Pause a sink: no node sends it anything.
#[utoipa::path(post, path = "/v1/sinks/{id}/pause", operation_id = "outbox_pause", tag = "outbox",
    params(("id" = String, Path, min_length = 1)),
    responses((status = 200, body = Paused)))]
async fn pause(scope: Scope, Id(sink): Id<SinkName>) -> Answer<Paused> {
    set_paused(&scope, &sink, true).await
}

/// Resume a paused sink.
#[utoipa::path(post, path = "/v1/sinks/{id}/resume", operation_id = "outbox_resume", tag = "outbox",
    params(("id" = String, Path, min_length = 1)),
    responses((status = 200, body = Paused)))]
async fn resume(scope: Scope, Id(sink): Id<SinkName>) -> Answer<Paused> {
    set_paused(&scope, &sink, false).await
}
