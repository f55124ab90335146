//! Items, their mutations, and their escalations.

use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use hapax_items::{Error, Items};
use http::StatusCode;
use http::request::Parts;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::effect::{noted, page, page_cursor};
use super::{Answer, Json, Named, Params, Scope, answer, malformed, not_found, parse, part};
use crate::access::Caller;
use crate::problem::{ATTENTION, BAD_ITEM, NO_ITEM, Problem, RUN_FAILED, RUNNING, STALE};
use crate::server::Server;
use crate::wire;

pub(super) fn reading() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(escalations))
        .routes(routes!(escalation))
}

pub(super) fn deciding() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new().routes(routes!(reprocess)).routes(routes!(act))
}

/// The workflows of the caller's namespace.
pub(super) struct Of {
    pub(super) items: Items,
    pub(super) caller: Caller,
}

impl FromRequestParts<Arc<Server>> for Of {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, server: &Arc<Server>) -> Result<Self, Problem> {
        let scope = Scope::from_request_parts(head, server).await?;
        let items = server.items.as_ref();
        let items = items.ok_or_else(|| not_found("no workflows are set up on this server"))?;
        Ok(Self { items: items.on(scope.hapax), caller: scope.caller })
    }
}

/// The workflow that the path names.
pub(super) struct Name(pub(super) String);

impl FromRequestParts<Arc<Server>> for Name {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, server: &Arc<Server>) -> Result<Self, Problem> {
        let name = part(head, server, "workflow").await?;
        match name.len() {
            1..=64 => Ok(Self(name)),
            _ => Err(malformed("a workflow's name has 1 to 64 bytes")),
        }
    }
}

/// The item that the path names.
struct ItemId(String);

impl FromRequestParts<Arc<Server>> for ItemId {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, server: &Arc<Server>) -> Result<Self, Problem> {
        let id = part(head, server, "item").await?;
        match id.len() {
            1..=512 => Ok(Self(id)),
            _ => Err(malformed("an item's id has 1 to 512 bytes")),
        }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let (status, kind) = match &error {
            Error::Hapax(error) => return Self::of(error),
            Error::NotFound(_) => (StatusCode::NOT_FOUND, &NO_ITEM),
            Error::Running { .. } => (StatusCode::CONFLICT, &RUNNING),
            Error::Attention { .. } => (StatusCode::CONFLICT, &ATTENTION),
            // A logic failure is a fault of the client's script; other failures are not.
            Error::Failed { failure, .. } if failure.class == hapax_items::Class::Logic => {
                (StatusCode::UNPROCESSABLE_ENTITY, &RUN_FAILED)
            }
            Error::Failed { .. } => (StatusCode::BAD_GATEWAY, &RUN_FAILED),
            Error::Stale { .. } => (StatusCode::CONFLICT, &STALE),
            _ => (StatusCode::BAD_REQUEST, &BAD_ITEM),
        };
        Self::new(status, kind, error.to_string())
    }
}

/// Which items to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ItemFilter {
    /// Only in this state.
    state: Option<wire::ItemStateName>,
    /// For the next page: only items beyond this place.
    beyond: Option<u64>,
    /// How many items to look at; default 50.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Items, newest first.
#[derive(Debug, Serialize, ToSchema)]
struct ItemList {
    /// The items. A page of one state may be short or empty although more pages follow.
    items: Vec<wire::Item>,
    /// Pass it as `beyond` for the next page. Null: there are no more.
    next: Option<u64>,
}

/// List the items of a workflow, newest first.
#[utoipa::path(get, path = "/v1/workflows/{workflow}/items", operation_id = "item_list", tag = "items",
    params(("workflow" = String, Path, min_length = 1, max_length = 64), ItemFilter),
    responses((status = 200, body = ItemList)))]
async fn list(
    State(server): State<Arc<Server>>,
    Of { items, .. }: Of,
    Name(workflow): Name,
    Params(filter): Params<ItemFilter>,
) -> Answer<ItemList> {
    let (limit, beyond) = (page(filter.limit)?, page_cursor(filter.beyond)?);
    let _one_of_few = server.listing.acquire().await;
    let states: Vec<_> = filter.state.map(wire::ItemStateName::to_domain).into_iter().collect();
    let page = items.page(&workflow, &states, beyond, limit).await?;
    answer(ItemList { items: page.items.iter().map(wire::Item::of).collect(), next: page.next })
}

/// Which attempt at an item to show.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AttemptQuery {
    /// The attempt whose mutations to show; default: the current one.
    #[param(minimum = 1)]
    attempt: Option<u32>,
}

/// Show an item with its mutations. Its id is percent-encoded in the path.
#[utoipa::path(get, path = "/v1/workflows/{workflow}/items/{item}", operation_id = "item_show", tag = "items",
    params(("workflow" = String, Path, min_length = 1, max_length = 64),
           ("item" = String, Path, description = "its id, percent-encoded", min_length = 1, max_length = 512),
           AttemptQuery),
    responses((status = 200, body = wire::ItemShown)))]
async fn show(
    Of { items, .. }: Of,
    Name(workflow): Name,
    ItemId(id): ItemId,
    Params(query): Params<AttemptQuery>,
) -> Answer<wire::ItemShown> {
    let item = items.show(&workflow, &id).await?;
    let attempt = query.attempt.unwrap_or(item.attempt);
    if !(1..=item.attempt).contains(&attempt) {
        return Err(not_found("there was no such attempt at this item"));
    }
    let mutations = items.mutations(item.key, attempt).await?;
    answer(wire::ItemShown {
        item: wire::Item::of(&item),
        mutations_of: attempt,
        mutations: mutations.iter().map(wire::Mutation::of).collect(),
    })
}

/// Begin a new attempt at an item, which uses nothing of the earlier ones. The next run processes
/// the item, and its mutations may happen again.
#[utoipa::path(post, path = "/v1/workflows/{workflow}/items/{item}/reprocess", operation_id = "item_reprocess", tag = "items", request_body = wire::Reprocess,
    params(("workflow" = String, Path, min_length = 1, max_length = 64),
           ("item" = String, Path, description = "its id, percent-encoded", min_length = 1, max_length = 512)),
    responses((status = 200, body = wire::Item)))]
async fn reprocess(
    Of { items, caller }: Of,
    Name(workflow): Name,
    ItemId(id): ItemId,
    Json(request): Json<wire::Reprocess>,
) -> Answer<wire::Item> {
    let (attempt, note) = (parse("attempt", &request.attempt)?, noted(&request.note)?);
    items.show(&workflow, &id).await?;
    items.reprocess(&workflow, &id, attempt, (&caller.holder, note)).await?;
    answer(wire::Item::of(&items.show(&workflow, &id).await?))
}

/// Which escalations to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EscalationFilter {
    /// Only of this workflow.
    #[param(max_length = 64)]
    workflow: Option<String>,
    /// For the next page: only escalations beyond this place.
    beyond: Option<u64>,
    /// At most this many; default 50.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Escalations, newest first.
#[derive(Debug, Serialize, ToSchema)]
struct Escalations {
    escalations: Vec<wire::Escalation>,
    /// Pass it as `beyond` for the next page. Null: there are no more.
    next: Option<u64>,
    /// Repairs that wait for approval; every page has all of them. Decide with POST
    /// /v1/workflows/{workflow}/versions/{version}/decide.
    held: Vec<wire::HeldRepair>,
}

/// List the escalations of items and runs, newest first, and the repairs that wait for approval.
#[utoipa::path(get, path = "/v1/escalations", operation_id = "escalation_list", tag = "items", params(EscalationFilter),
    responses((status = 200, body = Escalations)))]
async fn escalations(
    State(server): State<Arc<Server>>,
    Of { items, .. }: Of,
    Params(filter): Params<EscalationFilter>,
) -> Answer<Escalations> {
    let (limit, beyond) = (page(filter.limit)?, page_cursor(filter.beyond)?);
    if filter.workflow.as_ref().is_some_and(|name| name.is_empty() || name.len() > 64) {
        return Err(malformed("a workflow's name has 1 to 64 bytes"));
    }
    let _one_of_few = server.listing.acquire().await;
    let workflow = filter.workflow.as_deref();
    let found = items.escalations_beyond(workflow, beyond, limit).await?;
    answer(Escalations {
        escalations: found.escalations.iter().map(wire::Escalation::of).collect(),
        next: found.next,
        held: items.held(workflow).await?.iter().map(wire::HeldRepair::of).collect(),
    })
}

/// Show an escalation: what was tried, why its outcome is unknown, what to check.
#[utoipa::path(get, path = "/v1/escalations/{key}", operation_id = "escalation_show", tag = "items",
    params(("key" = String, Path, description = "that of the item or the run, or of one of the item's mutations", min_length = 1)),
    responses((status = 200, body = wire::Escalation)))]
async fn escalation(Of { items, .. }: Of, named: Named) -> Answer<wire::Escalation> {
    answer(wire::Escalation::of(&items.escalation(named.key).await?))
}

/// Decide about an escalation. The decision names the attempt that was shown, so that a stale
/// screen cannot decide about something newer. Where several outcomes are unknown, decide
/// `happened` or `did-not-happen` for each mutation, by its own key and attempt.
#[utoipa::path(post, path = "/v1/escalations/{key}/act", operation_id = "escalation_act", tag = "items", request_body = wire::Act,
    params(("key" = String, Path, description = "that of the item, the run or the mutation", min_length = 1)),
    responses((status = 200, body = wire::Acted)))]
async fn act(
    Of { items, caller }: Of,
    named: Named,
    Json(request): Json<wire::Act>,
) -> Answer<wire::Acted> {
    let (attempt, note) = (parse("attempt", &request.attempt)?, noted(&request.note)?);
    let action = request.action.to_domain();
    let result = match &request.result {
        Some(_) if action != hapax_items::Action::Happened => {
            return Err(malformed("a result goes with happened"));
        }
        Some(raw) => {
            let result = hapax::json::Json::parse(raw.get().as_bytes());
            Some(result.map_err(|error| malformed(format!("result: {error}")))?)
        }
        None => None,
    };
    let escalation = items.escalation(named.key).await?;
    items.act(named.key, attempt, action, result.as_ref(), (&caller.holder, note)).await?;
    let item = match &escalation.item {
        Some(item) => Some(wire::Item::of(&items.show(&item.workflow, &item.id).await?)),
        None => None,
    };
    let run = match &escalation.run {
        Some(run) => Some(wire::RunSummary::of(&items.show_run(&run.workflow, &run.id).await?)),
        None => None,
    };
    answer(wire::Acted { item, run })
}
