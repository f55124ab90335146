//! The journal: read, follow, prove, verify.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use hapax::{Hapax, Namespace};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::effect::{page, page_cursor};
use super::{Answer, Id, Params, Scope, answer, malformed, not_found};
use crate::access::Caller;
use crate::problem::{Problem, TOO_OFTEN};
use crate::server::Server;
use crate::wire;

pub(super) fn reading() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(follow))
        .routes(routes!(checkpoint))
        .routes(routes!(verify))
        .routes(routes!(prove))
}

/// How often a stream looks for new entries.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// How many leaves are read at once.
const PAGE: u64 = 500;

/// Which entries to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Search {
    /// Only sealed entries from this leaf on; default: the first.
    from: Option<u64>,
    /// How many leaves to look at; default 50.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Sealed entries, in the order of their leaves.
#[derive(Debug, Serialize, ToSchema)]
struct Entries {
    entries: Vec<wire::Leaf>,
    /// Pass it as `from` for the next page.
    next: u64,
    /// How many leaves there are.
    size: u64,
}

/// The entries of some leaves that the caller may see.
async fn leaves(hapax: &Hapax, caller: &Caller, from: u64, limit: u64) -> Result<Entries, Problem> {
    let sealed = hapax.journal().sealed(from, limit).await?;
    let visible = |namespace: &Namespace| caller.everywhere || *namespace == caller.namespace;
    let entries = sealed.entries.iter().filter(|(_, entry)| visible(&entry.namespace));
    let entries = entries.map(|(leaf, entry)| wire::Leaf::of(*leaf, entry));
    Ok(Entries { entries: entries.collect(), next: sealed.next, size: sealed.size })
}

/// List sealed entries in the order of their leaves. Those of other namespaces are left out.
#[utoipa::path(get, path = "/v1/journal", operation_id = "journal_list", tag = "journal", params(Search),
    responses((status = 200, body = Entries)))]
async fn list(scope: Scope, Params(search): Params<Search>) -> Answer<Entries> {
    let limit = page(search.limit)? as u64;
    let from = page_cursor(search.from)?.unwrap_or(0);
    answer(leaves(&scope.hapax, &scope.caller, from, limit).await?)
}

/// Follow sealed entries as server-sent events. A client that reconnects with Last-Event-ID misses
/// nothing. A client without it begins at the end.
#[utoipa::path(get, path = "/v1/journal/stream", operation_id = "journal_follow", tag = "journal",
    params(("Last-Event-ID" = Option<u64>, Header, description = "the leaf that was seen last")),
    responses((status = 200, body = String, content_type = "text/event-stream")))]
async fn follow(
    State(server): State<Arc<Server>>,
    scope: Scope,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let room = server.allowances.follow(&scope.caller.namespace)?;
    let seen = headers.get("last-event-id").map(|id| id.to_str().ok()?.parse::<u64>().ok());
    let from = match seen {
        Some(Some(leaf)) => leaf.saturating_add(1),
        Some(None) => return Err(malformed("Last-Event-ID is not the number of a leaf")),
        None => scope.hapax.journal().sealed(u64::MAX, 0).await?.size,
    };
    let pages = stream::unfold((server, scope, from, room), async |state| {
        let (server, scope, from, room) = state;
        loop {
            let admitted = server.access.still_admits(&scope.caller, &server.hapax).await;
            if !admitted || server.is_stopping() {
                return None;
            }
            match leaves(&scope.hapax, &scope.caller, from, PAGE).await {
                Ok(page) if page.next > from => {
                    let next = page.next;
                    return Some((page.entries, (server, scope, next, room)));
                }
                Ok(_) => {}
                Err(problem) => tracing::debug!(code = problem.code, "the journal cannot be read"),
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    });
    let events = futures_util::StreamExt::flat_map(pages, |page| {
        stream::iter(page.into_iter().map(|leaf| {
            let event = Event::default().event(leaf.entry.event).id(leaf.leaf.to_string());
            Ok(event.json_data(&leaf).unwrap_or_default())
        }))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

/// Show the newest signed head.
#[utoipa::path(get, path = "/v1/journal/checkpoint", operation_id = "journal_checkpoint", tag = "journal",
    responses((status = 200, body = wire::Checkpoint)))]
async fn checkpoint(scope: Scope) -> Answer<wire::Checkpoint> {
    let note = scope.hapax.journal().checkpoint().await?;
    let checkpoint = note.ok_or_else(|| not_found("nothing is sealed yet"))?;
    answer(wire::Checkpoint {
        checkpoint,
        public_key: scope.hapax.journal().verifier()?.to_string(),
    })
}

/// Compare every sealed entry with the tree and its signed heads. Reads the whole journal.
#[utoipa::path(get, path = "/v1/journal/verification", operation_id = "journal_verify", tag = "journal",
    responses((status = 200, body = wire::Verification)))]
async fn verify(State(server): State<Arc<Server>>, scope: Scope) -> Answer<wire::Verification> {
    scope.everywhere()?;
    let Ok(_alone) = server.verifying.try_acquire() else {
        let detail = "another request is verifying the journal";
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, &TOO_OFTEN, detail));
    };
    let found = scope.hapax.journal().verify(scope.hapax.journal().verifier()?, |_, _| ()).await?;
    answer(wire::Verification::of(&found))
}

/// Prove that an entry is in the journal. The proof is checked with the public key.
#[utoipa::path(get, path = "/v1/journal/{id}/proof", operation_id = "journal_prove", tag = "journal",
    params(("id" = u64, Path, description = "the number of the entry")),
    responses((status = 200, body = wire::Proof)))]
async fn prove(scope: Scope, Id(entry): Id<u64>) -> Answer<wire::Proof> {
    let proof =
        scope.hapax.journal().prove(entry).await?.filter(|proof| {
            scope.caller.everywhere || proof.entry.namespace == scope.caller.namespace
        });
    let proof = proof.ok_or_else(|| not_found("no such entry is sealed"))?;
    answer(wire::Proof::of(&proof, &scope.hapax.journal().verifier()?))
}
