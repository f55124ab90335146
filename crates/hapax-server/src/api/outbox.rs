//! Events on their way, and the sinks they go to.

use std::sync::Arc;

use axum::extract::State;
use hapax::outbox::{OutboxId, RecordFilter, SinkName, Status};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::effect::place;
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
    /// Only those that have come so far.
    #[param(inline)]
    status: Option<Wanted>,
    /// Only those that this sink does not have yet.
    sink: Option<String>,
    /// Only those with a lower seq, to page on.
    before: Option<u64>,
    /// At most this many; 50 unless given.
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

/// Events, newest first.
#[derive(Debug, Serialize, ToSchema)]
struct Records {
    records: Vec<wire::Record>,
    /// To be given as `before` for those after these; nothing if there are no more.
    next: Option<u64>,
}

fn sink_named(text: &str) -> Result<SinkName, Problem> {
    SinkName::new(text).map_err(|_| malformed("sink is no name of a sink"))
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
    // Payloads may be large; a few at a time are enough for people.
    let _few = server.listing.acquire().await;
    let status = search.status.map(|status| match status {
        Wanted::Pending => Status::Pending,
        Wanted::Dispatched => Status::Dispatched,
        Wanted::Failed => Status::Failed,
    });
    let sink = search.sink.as_deref().map(sink_named).transpose()?;
    let before = place(search.before)?;
    let filter = RecordFilter { status, sink, before, limit, ..RecordFilter::default() };
    let found = scope.hapax.records(filter).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|found| found.record.seq);
    answer(Records { records: found.iter().map(wire::Record::of).collect(), next })
}

/// Show an event and how far it has come at each sink.
#[utoipa::path(get, path = "/v1/outbox/{id}", operation_id = "outbox_show", tag = "outbox",
    params(("id" = String, Path, format = "uuid")),
    responses((status = 200, body = wire::Record)))]
async fn show(scope: Scope, Id(id): Id<OutboxId>) -> Answer<wire::Record> {
    let found = scope.hapax.record(id).await?;
    answer(wire::Record::of(&found.ok_or_else(|| not_found("there is no such event"))?))
}

/// Sinks.
#[derive(Debug, Serialize, ToSchema)]
struct Sinks {
    sinks: Vec<wire::Sink>,
}

/// Say how much waits at each sink, over all namespaces.
#[utoipa::path(get, path = "/v1/sinks", operation_id = "outbox_sinks", tag = "outbox",
    responses((status = 200, body = Sinks)))]
async fn sinks(scope: Scope) -> Answer<Sinks> {
    scope.everywhere()?;
    let stats = scope.hapax.outbox_stats().await?;
    answer(Sinks { sinks: stats.iter().map(wire::Sink::of).collect() })
}

/// Try again what has failed.
#[utoipa::path(post, path = "/v1/outbox/redrive", operation_id = "outbox_redrive", tag = "outbox", request_body = wire::Redrive,
    responses((status = 200, body = wire::Redriven)))]
async fn redrive(scope: Scope, Json(asked): Json<wire::Redrive>) -> Answer<wire::Redriven> {
    let limit = asked.limit.unwrap_or(10_000);
    if !(1..=10_000).contains(&limit) {
        return Err(malformed("limit is 1 to 10000"));
    }
    let redrive = hapax::outbox::Redrive {
        id: asked.outbox_id.as_deref().map(|text| parse("outbox_id", text)).transpose()?,
        sink: asked.sink.as_deref().map(sink_named).transpose()?,
        may_duplicate: asked.may_duplicate,
        limit,
        ..hapax::outbox::Redrive::default()
    };
    answer(wire::Redriven { redriven: scope.hapax.redrive(redrive).await? })
}

/// Whether a sink gets nothing for now.
#[derive(Debug, Serialize, ToSchema)]
struct Paused {
    sink: String,
    paused: bool,
}

async fn set_paused(scope: &Scope, sink: &SinkName, paused: bool) -> Answer<Paused> {
    scope.everywhere()?;
    if !scope.hapax.pause(sink, paused).await? {
        return Err(not_found("there is no such sink"));
    }
    answer(Paused { sink: sink.to_string(), paused })
}

/// Send nothing to a sink for now, on every node.
#[utoipa::path(post, path = "/v1/sinks/{id}/pause", operation_id = "outbox_pause", tag = "outbox",
    params(("id" = String, Path, min_length = 1)),
    responses((status = 200, body = Paused)))]
async fn pause(scope: Scope, Id(sink): Id<SinkName>) -> Answer<Paused> {
    set_paused(&scope, &sink, true).await
}

/// Let a paused sink go on.
#[utoipa::path(post, path = "/v1/sinks/{id}/resume", operation_id = "outbox_resume", tag = "outbox",
    params(("id" = String, Path, min_length = 1)),
    responses((status = 200, body = Paused)))]
async fn resume(scope: Scope, Id(sink): Id<SinkName>) -> Answer<Paused> {
    set_paused(&scope, &sink, false).await
}
