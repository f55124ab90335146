//! Epochs: read, end.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use hapax::{Domain, EntryKind};
use hapax_control::Epochs;
use http::request::Parts;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::control::named;
use super::{Answer, ClientKey, Json, Scope, answer, malformed, part};
use crate::problem::Problem;
use crate::server::Server;
use crate::wire;

pub(super) fn reading() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(show))
}

/// The response to the end of an epoch is never replayed. A client repeats the call with the epoch
/// that it saw.
pub(super) fn ending() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new().routes(routes!(advance))
}

/// The domain that the path names.
struct Of(Domain);

impl FromRequestParts<Arc<Server>> for Of {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, server: &Arc<Server>) -> Result<Self, Problem> {
        let text = part(head, server, "domain").await?;
        Domain::new(&text).map(Self).map_err(|_| {
            malformed("a domain is 1 to 64 of a-z, 0-9, - and _, and starts with a letter")
        })
    }
}

/// Epochs, by domain.
#[derive(Debug, Serialize, ToSchema)]
struct EpochList {
    epochs: Vec<wire::Epoch>,
}

/// List the domains that have left epoch 0, with their epochs.
#[utoipa::path(get, path = "/v1/epochs", operation_id = "epoch_list", tag = "epochs",
    responses((status = 200, body = EpochList)))]
async fn list(scope: Scope) -> Answer<EpochList> {
    let epochs = scope.hapax.epochs().list().await?;
    answer(EpochList { epochs: epochs.iter().map(wire::Epoch::of).collect() })
}

/// Show the epoch that a domain is in. An unknown domain is in epoch 0.
#[utoipa::path(get, path = "/v1/epochs/{domain}", operation_id = "epoch_show", tag = "epochs",
    params(("domain" = String, Path, pattern = "^[a-z][a-z0-9_-]{0,63}$")),
    responses((status = 200, body = wire::Current)))]
async fn show(scope: Scope, Of(domain): Of) -> Answer<wire::Current> {
    let epoch = scope.hapax.epochs().current(&domain).await?;
    let transition = domain.transition(epoch);
    let history = scope.hapax.journal().history(transition, 100).await?;
    let since = history.iter().rev().find(|entry| entry.event == EntryKind::Settled);
    answer(wire::Current {
        domain: domain.to_string(),
        epoch,
        since: since.map(|entry| wire::time(entry.at)),
        by: since.and_then(|entry| entry.actor.clone()),
        reason: since.and_then(|entry| entry.note.clone()),
    })
}

/// End an epoch, on all nodes at once. Attempts in flight become void, and are listed as stuck.
#[utoipa::path(post, path = "/v1/epochs/{domain}", operation_id = "epoch_advance", tag = "epochs", request_body = wire::Advance,
    params(("domain" = String, Path, pattern = "^[a-z][a-z0-9_-]{0,63}$")),
    responses((status = 200, body = wire::Transition)))]
async fn advance(
    scope: Scope,
    Of(domain): Of,
    _: ClientKey,
    Json(request): Json<wire::Advance>,
) -> Answer<wire::Transition> {
    let reason = request.reason.trim();
    if reason.is_empty() || reason.len() > 4096 {
        return Err(malformed("reason is 1 to 4096 bytes"));
    }
    let (seen, to) = (request.seen, request.to.unwrap_or(request.seen.saturating_add(1)));
    let epochs = Epochs::new(scope.hapax.clone());
    let transition = epochs.advance_to(&domain, (seen, to), &scope.caller.holder, reason).await;
    answer(wire::Transition::of(&domain, transition.map_err(named)?))
}
