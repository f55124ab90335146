//! Leases that clients hold.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use hapax::StoreError;
use hapax::remote::{LeaseId, random_id};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::effect::derived;
use super::{Answer, ClientKey, Id, Json, Scope, answer, malformed, parse};
use crate::problem::{OTHER_TERMS, Problem};
use crate::server::Server;
use crate::wire;

pub(super) fn reading() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Responses to openings and renewals are never replayed: the lease may be over. A client repeats
/// the call with the id of the lease.
pub(super) fn asking() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new().routes(routes!(open)).routes(routes!(renew))
}

pub(super) fn performing() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new().routes(routes!(close))
}

/// Leases in force.
#[derive(Debug, Serialize, ToSchema)]
struct Leases {
    leases: Vec<wire::Lease>,
}

/// List the leases that clients of this namespace hold.
#[utoipa::path(get, path = "/v1/leases", operation_id = "lease_list", tag = "leases",
    responses((status = 200, body = Leases)))]
async fn list(scope: Scope) -> Answer<Leases> {
    let leases = scope.hapax.remote().leases().await?;
    answer(Leases { leases: leases.iter().map(wire::Lease::of).collect() })
}

/// Open a lease for claims to depend on. Renew it before a third of its term has passed.
#[utoipa::path(post, path = "/v1/leases", operation_id = "lease_open", tag = "leases", request_body = wire::OpenLease,
    responses((status = 200, body = wire::Lease)))]
async fn open(
    scope: Scope,
    ClientKey(client_key): ClientKey,
    Json(request): Json<wire::OpenLease>,
) -> Answer<wire::Lease> {
    let id = match (&request.lease, &client_key) {
        (Some(text), _) => parse("lease", text)?,
        (None, Some(key)) => LeaseId::from_bytes(derived(&[
            b"lease",
            scope.caller.tenant().as_bytes(),
            key.as_bytes(),
        ])),
        (None, None) => LeaseId::from_bytes(random_id()?),
    };
    if !(5_000..=3_600_000).contains(&request.term_ms) {
        return Err(malformed("term_ms is 5000 to 3600000"));
    }
    let holder = request.holder.trim();
    if holder.is_empty() || holder.len() > 128 || holder.starts_with('-') {
        return Err(malformed("holder is 1 to 128 bytes, and does not begin with a dash"));
    }
    let term = Duration::from_millis(request.term_ms);
    let opened = held(id, scope.hapax.remote().open(id, term, holder).await?)?;
    if client_key.is_some() && (opened.term_ms, opened.holder.as_str()) != (request.term_ms, holder)
    {
        let detail = "the lease of this key has another term or another holder";
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, &OTHER_TERMS, detail));
    }
    Ok(opened)
}

fn held(id: LeaseId, lease: Option<hapax::Lease>) -> Answer<wire::Lease> {
    match lease {
        Some(lease) => answer(wire::Lease::renewed(&lease)),
        None => Err(hapax::Error::from(StoreError::LeaseDead(id)).into()),
    }
}

/// Renew a lease. A lease that has lapsed stays lapsed.
#[utoipa::path(post, path = "/v1/leases/{id}/renew", operation_id = "lease_renew", tag = "leases",
    params(("id" = String, Path, pattern = "^lease_[0-9a-f]{32}$")),
    responses((status = 200, body = wire::Lease)))]
async fn renew(scope: Scope, Id(id): Id<LeaseId>, _: ClientKey) -> Answer<wire::Lease> {
    held(id, scope.hapax.remote().renew(id).await?)
}

/// Close a lease. Claims that still depend on it lapse.
#[utoipa::path(delete, path = "/v1/leases/{id}", operation_id = "lease_close", tag = "leases",
    params(("id" = String, Path, pattern = "^lease_[0-9a-f]{32}$")),
    responses((status = 204)))]
async fn close(scope: Scope, Id(id): Id<LeaseId>) -> Result<StatusCode, Problem> {
    scope.hapax.remote().close(id).await?;
    Ok(StatusCode::NO_CONTENT)
}
