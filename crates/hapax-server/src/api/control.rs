//! Control-plane requests that clients send, or receive and perform, themselves.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use data_encoding::BASE64;
use hapax::remote::{Permit, Settled, work_ms};
use hapax_control::remote::{PermitOptions, Permitted};
use hapax_control::{ControlPlane, ControlReceiver, ControlRequest, Error, UnresolvedName};
use http::StatusCode;
use http::request::Parts;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::effect::{LONGEST_DEADLINE_MS, YEAR_MS, attempt, settled, within};
use super::{
    Answer, ClientKey, Json, Named, Scope, Wait, answer, malformed, not_found, parse, part,
};
use crate::problem::{KEY_NOT_DERIVED, Problem};
use crate::server::Server;
use crate::wire;

pub(super) fn reading() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Responses to claims are never replayed: the epoch may be over. A client repeats a claim by
/// naming its attempt.
pub(super) fn asking() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new().routes(routes!(claim)).routes(routes!(receive))
}

pub(super) fn performing() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new().routes(routes!(settle))
}

/// The computation that the path names, and the control plane.
struct Of {
    computation: String,
    plane: ControlPlane,
}

impl FromRequestParts<Arc<Server>> for Of {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, server: &Arc<Server>) -> Result<Self, Problem> {
        let name = part(head, server, "computation").await?;
        let computation = match server.registry.resolve(&name) {
            Ok(known) => known.name().to_owned(),
            Err(UnresolvedName::Unknown(_)) => {
                let detail = "no computation of this name is registered";
                let unknown = named(Error::KeyDerivation(detail.into()));
                return Err(Problem { status: StatusCode::NOT_FOUND.as_u16(), ..unknown });
            }
            Err(ambiguous) => return Err(named(ambiguous.into())),
        };
        let scope = Scope::from_request_parts(head, server).await?;
        let plane = ControlPlane::new(scope.hapax, server.registry.clone());
        Ok(Self { computation, plane })
    }
}

/// A problem with the error's name in the control plane.
pub(super) fn named(error: Error) -> Problem {
    let name = error.code().starts_with("ERR_").then(|| error.code());
    let problem = match error {
        Error::KeyDerivation(detail) => {
            Problem::new(StatusCode::BAD_REQUEST, &KEY_NOT_DERIVED, detail)
        }
        Error::Conflict { recorded, asked } => hapax::Error::Conflict { recorded, asked }.into(),
        Error::Epoch(mismatch) => hapax::Error::Epoch(mismatch).into(),
        Error::Unavailable(error) => hapax::Error::Store(error).into(),
        Error::Ledger(error) => error.into(),
        other => hapax::Error::Failed { reason: other.to_string() }.into(),
    };
    // A request beyond a limit is the caller's mistake, not a failure of the store.
    let name = name.filter(|name| *name != UNAVAILABLE || problem.status >= 500);
    Problem { error: name, ..problem }
}

const UNAVAILABLE: &str = "ERR_DEDUP_STORE_UNAVAILABLE";

/// A refusal before the request reached its route. It gets its name in the control plane, if this
/// is a path of the control plane and the ledger could not be read.
pub(crate) fn named_by_path(path: &str, problem: Problem) -> Problem {
    let away = problem.status == StatusCode::SERVICE_UNAVAILABLE.as_u16();
    let ours = path.split('/').nth(2) == Some("control");
    match away && ours {
        true => Problem { error: Some(UNAVAILABLE), ..problem },
        false => problem,
    }
}

/// Computations, by name.
#[derive(Debug, Serialize, ToSchema)]
struct Computations {
    computations: Vec<wire::Computation>,
}

/// List the computations that are registered.
#[utoipa::path(get, path = "/v1/control", operation_id = "control_list", tag = "control",
    responses((status = 200, body = Computations)))]
async fn list(State(server): State<Arc<Server>>) -> Answer<Computations> {
    let computations = server.registry.iter().map(wire::Computation::of).collect();
    answer(Computations { computations })
}

/// Claim a request before it is sent to a peer: derives its key and consults the ledger. Claim it
/// again, with the same attempt, before it is sent again.
#[utoipa::path(post, path = "/v1/control/{computation}", operation_id = "control_claim", tag = "control", request_body = wire::ControlClaim,
    params(("computation" = String, Path, description = "domain.computation.vN, or computation", min_length = 1),
           ("Prefer" = Option<String>, Header, description = "wait=N: seconds to wait while another node is sending it")),
    responses((status = 200, body = wire::ControlVerdict)))]
async fn claim(
    _: Scope,
    Of { computation, plane }: Of,
    Wait(wait): Wait,
    _: ClientKey,
    Json(claim): Json<wire::ControlClaim>,
) -> Answer<wire::ControlVerdict> {
    let request = payload(claim.request.as_deref(), claim.request_base64.as_deref())?;
    // In another epoch the same attempt would be another request, under a key that the client does
    // not know.
    if claim.attempt.is_some() && claim.epoch.is_none() {
        return Err(malformed("a repeated attempt needs its epoch: give epoch as well"));
    }
    let lease = claim.lease.as_deref().map(|text| parse("lease", text)).transpose()?;
    let deadline = within("deadline_ms", claim.deadline_ms, 1..=LONGEST_DEADLINE_MS)?;
    let deadline = deadline.map(Duration::from_millis);
    let attempt = attempt(claim.attempt.as_deref())?;
    let options = PermitOptions {
        epoch: within("epoch", claim.epoch, 0..=i64::MAX as u64)?,
        lease,
        deadline,
        wait,
    };
    let permitted = plane.permit(&computation, &request, attempt, options).await.map_err(named)?;
    answer(verdict(permitted))
}

/// Claim a request that was received from a peer, before it is performed. Checks its epoch, then
/// the payload that is recorded under its key, then its key, and consults the ledger.
#[utoipa::path(post, path = "/v1/control/{computation}/receive", operation_id = "control_receive", tag = "control", request_body = wire::ControlReceive,
    params(("computation" = String, Path, description = "domain.computation.vN, or computation", min_length = 1),
           ("Prefer" = Option<String>, Header, description = "wait=N: seconds to wait while another node is performing it")),
    responses((status = 200, body = wire::ControlVerdict)))]
async fn receive(
    State(server): State<Arc<Server>>,
    scope: Scope,
    Of { computation, .. }: Of,
    Wait(wait): Wait,
    _: ClientKey,
    Json(received): Json<wire::ControlReceive>,
) -> Answer<wire::ControlVerdict> {
    let payload = payload(received.request.as_deref(), received.request_base64.as_deref())?;
    within("epoch", Some(received.epoch), 0..=i64::MAX as u64)?;
    let key = received.key.as_deref().map(|text| parse("key", text)).transpose()?;
    let lease = received.lease.as_deref().map(|text| parse("lease", text)).transpose()?;
    let deadline = within("deadline_ms", received.deadline_ms, 1..=LONGEST_DEADLINE_MS)?;
    let settling_ms = within("settling_ms", received.settling_ms, 0..=YEAR_MS)?;
    let attempt = attempt(received.attempt.as_deref())?;
    let request = ControlRequest { computation, epoch: received.epoch, key, payload };
    let receiver = ControlReceiver::new(scope.hapax, server.registry.clone())
        .safety(received.safety.to_domain(settling_ms))
        .wait(wait);
    let permitted =
        receiver.permit(&request, attempt, lease, deadline.map(Duration::from_millis)).await;
    answer(verdict(permitted.map_err(named)?))
}

/// The bytes of a request, which is given as text or in base64.
fn payload(text: Option<&str>, base64: Option<&str>) -> Result<Vec<u8>, Problem> {
    match (text, base64) {
        (Some(text), None) => Ok(text.as_bytes().to_vec()),
        (None, Some(text)) => {
            BASE64.decode(text.as_bytes()).map_err(|_| malformed("request_base64 is not base64"))
        }
        _ => Err(malformed("give request or request_base64, and not both")),
    }
}

fn verdict(permitted: Permitted<'_>) -> wire::ControlVerdict {
    let (key, epoch) = (permitted.key.map(|key| key.to_string()), permitted.epoch);
    match permitted.permit {
        Permit::Granted(grant) => wire::ControlVerdict::Granted {
            key,
            epoch,
            record: permitted.record.to_string(),
            attempt: grant.attempt.to_string(),
            fence: grant.fence.0,
            nth: grant.nth,
            work_ms: work_ms(&grant),
            pauses_ms: wire::pauses_ms(permitted.computation),
        },
        Permit::Replayed { outcome, .. } => {
            wire::ControlVerdict::Replayed { key, epoch, outcome: wire::Outcome::of(&outcome) }
        }
    }
}

/// Report how a request went that was sent, or received. Repeating a report changes nothing.
#[utoipa::path(post, path = "/v1/control/{computation}/{key}/settle", operation_id = "control_settle", tag = "control", request_body = wire::Settle,
    params(("computation" = String, Path, min_length = 1),
           ("key" = String, Path, description = "the record, as it was granted", min_length = 1)),
    responses((status = 200, body = wire::Settled)))]
async fn settle(
    Of { computation, plane }: Of,
    recorded: Named,
    Json(request): Json<wire::Settle>,
) -> Answer<wire::Settled> {
    let (attempt, report) =
        (parse("attempt", &request.attempt)?, request.to_domain().map_err(malformed)?);
    if !request.events.is_empty() {
        return Err(malformed("a control request emits no events"));
    }
    let by = (attempt, hapax::Fence(request.fence));
    let settlement = plane.report(&computation, recorded.key, by, report).await.map_err(named)?;
    match settlement {
        Some(Settled::Outdated(mismatch)) => Err(named(mismatch.into())),
        Some(settlement) => settled(attempt, settlement),
        None => Err(not_found("no request of this computation has such a record")),
    }
}
