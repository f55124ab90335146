//! Workflows and the versions of their scripts.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use hapax_items::{Error, Items, MAX_SCRIPT, Script, Version, VersionStatus};
use http::StatusCode;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::effect::{noted, page};
use super::items::{Name, Of};
use super::{Answer, Json, Params, answer, malformed, parse, part};
use crate::body::{collected, discard};
use crate::problem::{Kind, Problem, WRONG_TYPE};
use crate::server::Server;
use crate::wire;

pub(super) fn reading() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(show)).routes(routes!(script))
}

pub(super) fn performing() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new().routes(routes!(publish))
}

pub(super) fn deciding() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new().routes(routes!(decide))
}

/// How many items are shown with a workflow.
const NEWEST: usize = 20;

/// Which workflows to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WorkflowFilter {
    /// For the next page: only workflows whose name comes after this one.
    #[param(max_length = 64)]
    after: Option<String>,
    /// At most this many; default 50.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Workflows, by name.
#[derive(Debug, Serialize, ToSchema)]
struct Workflows {
    workflows: Vec<wire::Workflow>,
    /// Pass it as `after` for the next page. Null: there are no more.
    next: Option<String>,
}

/// List the workflows that have a script, by name.
#[utoipa::path(get, path = "/v1/workflows", operation_id = "workflow_list", tag = "items", params(WorkflowFilter),
    responses((status = 200, body = Workflows)))]
async fn list(
    State(server): State<Arc<Server>>,
    Of { items, .. }: Of,
    Params(filter): Params<WorkflowFilter>,
) -> Answer<Workflows> {
    let limit = page(filter.limit)?;
    let _one_of_few = server.listing.acquire().await;
    let mut names = items.workflows().await?;
    if let Some(after) = &filter.after {
        names.retain(|name| name > after);
    }
    let more = names.len() > limit;
    names.truncate(limit);
    let mut workflows = Vec::with_capacity(names.len());
    for name in &names {
        workflows.push(glance(&items, name, &items.scripts(name).await?).await?);
    }
    answer(Workflows { workflows, next: names.pop().filter(|_| more) })
}

/// A workflow at a glance.
async fn glance(items: &Items, name: &str, scripts: &[Script]) -> Result<wire::Workflow, Problem> {
    let newest = items.runs(name, None, 1).await?;
    let now = items.hapax().maintenance().wall().await?;
    Ok(wire::Workflow {
        workflow: name.to_owned(),
        version: active(scripts).map(|version| version.to_string()),
        held: scripts.iter().filter(|script| script.status == VersionStatus::Held).count(),
        schedule: items.schedule(name),
        next_run: items.next_instant(name, now).map(wire::time),
        newest_run: newest.first().map(wire::RunSummary::of),
    })
}

/// The active version: the highest that may be used.
fn active(scripts: &[Script]) -> Option<Version> {
    let usable = scripts.iter().filter(|script| script.status == VersionStatus::Usable);
    usable.map(|script| script.version).max()
}

/// Show a workflow: its versions, its tools, its newest run and items.
#[utoipa::path(get, path = "/v1/workflows/{workflow}", operation_id = "workflow_show", tag = "items",
    params(("workflow" = String, Path, min_length = 1, max_length = 64)),
    responses((status = 200, body = wire::WorkflowShown)))]
async fn show(
    State(server): State<Arc<Server>>,
    Of { items, .. }: Of,
    Name(name): Name,
) -> Answer<wire::WorkflowShown> {
    let _one_of_few = server.listing.acquire().await;
    let scripts = items.scripts_shown(&name).await?;
    let workflow = glance(&items, &name, &scripts).await?;
    if scripts.is_empty() && workflow.newest_run.is_none() {
        return Err(Error::NotFound(format!("workflow {name:?}")).into());
    }
    let active = active(&scripts);
    let newest = items.list(&name, &[], None, NEWEST).await?;
    answer(wire::WorkflowShown {
        workflow,
        tools: items.tools(&name).into_iter().map(wire::Tool::of).collect(),
        versions: scripts.iter().map(|each| wire::ScriptVersion::of(each, active)).collect(),
        items: newest.iter().map(wire::Item::of).collect(),
    })
}

/// Which version of a script to show.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct VersionQuery {
    /// `major.minor`; default: the active version.
    #[param(pattern = "^[0-9]+[.][0-9]+$")]
    version: Option<String>,
}

/// Show a version of a workflow's script, with its source.
#[utoipa::path(get, path = "/v1/workflows/{workflow}/script", operation_id = "script_show", tag = "items",
    params(("workflow" = String, Path, min_length = 1, max_length = 64), VersionQuery),
    responses((status = 200, body = wire::ScriptVersion)))]
async fn script(
    Of { items, .. }: Of,
    Name(name): Name,
    Params(query): Params<VersionQuery>,
) -> Answer<wire::ScriptVersion> {
    let scripts = items.scripts(&name).await?;
    let active = active(&scripts);
    let version = match query.version.as_deref() {
        Some(text) => Some(parse("version", text)?),
        None => active,
    };
    let found = scripts.into_iter().find(|script| Some(script.version) == version);
    let found = found.ok_or_else(|| Error::NotFound(format!("such script of {name:?}")))?;
    let shown = wire::ScriptVersion::of(&found, active);
    answer(wire::ScriptVersion { source: Some(found.source), ..shown })
}

/// A script is sent as it is, or in JSON.
const NO_SCRIPT: Kind = Kind {
    next: "Send text/javascript, or application/json {\"source\": …}, not compressed.",
    ..WRONG_TYPE
};

/// Publish a script as a new major version, unless it is the active one already. The server parses
/// it before it is recorded, and refuses it if that fails.
#[utoipa::path(put, path = "/v1/workflows/{workflow}/script", operation_id = "script_publish", tag = "items",
    params(("workflow" = String, Path, min_length = 1, max_length = 64)),
    request_body(content((String = "text/javascript"), (wire::Publish = "application/json"))),
    responses((status = 200, body = wire::Published)))]
async fn publish(
    State(server): State<Arc<Server>>,
    Of { items, caller }: Of,
    Name(name): Name,
    request: Request,
) -> Answer<wire::Published> {
    let source = source(&server, request).await?;
    let version = items.publish(&name, &source, &caller.holder).await?;
    // A schedule counts from the first maintenance pass that sees it.
    server.runs.remember(items.hapax().namespace());
    answer(wire::Published { version: version.to_string() })
}

/// The script in the body of a request.
async fn source(server: &Server, request: Request) -> Result<String, Problem> {
    let headers = request.headers();
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let limit = match kind.as_str() {
        _ if headers.contains_key(CONTENT_ENCODING) => None,
        "text/javascript" | "application/javascript" => Some(MAX_SCRIPT),
        "application/json" => Some(server.settings.largest_request),
        _ => None,
    };
    let Some(limit) = limit else {
        discard(request.into_body()).await;
        let detail =
            "Content-Type is neither text/javascript nor application/json, or it is packed";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, &NO_SCRIPT, detail));
    };
    let body = collected(request.into_body(), limit, server.settings.longest_request).await?;
    if kind != "application/json" {
        let text = String::from_utf8(body.into());
        return text.map_err(|_| malformed("the script is not UTF-8"));
    }
    let publish: wire::Publish =
        serde_json::from_slice(&body).map_err(|error| malformed(error.to_string()))?;
    Ok(publish.source)
}

/// The version that the path names.
struct VersionInPath(Version);

impl FromRequestParts<Arc<Server>> for VersionInPath {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, server: &Arc<Server>) -> Result<Self, Problem> {
        let text = part(head, server, "version").await?;
        parse("the version in the path", &text).map(Self)
    }
}

/// Approve or reject a version that waits for approval.
#[utoipa::path(post, path = "/v1/workflows/{workflow}/versions/{version}/decide", operation_id = "script_decide", tag = "items", request_body = wire::Decide,
    params(("workflow" = String, Path, min_length = 1, max_length = 64),
           ("version" = String, Path, description = "major.minor", pattern = "^[0-9]+[.][0-9]+$")),
    responses((status = 200, body = wire::ScriptVersion)))]
async fn decide(
    Of { items, caller }: Of,
    Name(name): Name,
    VersionInPath(version): VersionInPath,
    Json(request): Json<wire::Decide>,
) -> Answer<wire::ScriptVersion> {
    let (attempt, note) = (parse("attempt", &request.attempt)?, noted(&request.note)?);
    known(&items, &name, version).await?;
    let signed_note = (caller.holder.as_str(), note);
    let decided = items.decide_script(&name, version, attempt, request.approve, signed_note).await;
    let (found, active) = known(&items, &name, version).await?;
    let to = if request.approve { VersionStatus::Usable } else { VersionStatus::Rejected };
    match decided {
        // A repeated decision gets the same answer.
        Err(Error::Stale { .. }) if found.attempt == attempt && found.status == to => {}
        decided => decided?,
    }
    answer(wire::ScriptVersion::of(&found, active))
}

/// A version that exists, and the active one.
async fn known(
    items: &Items,
    name: &str,
    version: Version,
) -> Result<(Script, Option<Version>), Problem> {
    let scripts = items.scripts(name).await?;
    let active = active(&scripts);
    let found = scripts.into_iter().find(|script| script.version == version);
    let none = || Error::NotFound(format!("version {version} of workflow {name:?}"));
    Ok((found.ok_or_else(none)?, active))
}
