//! Effects: read, perform, decide, clear.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use hapax::remote::{Fenced, Look, Permit, Settled, random_id, work_ms};
use hapax::{
    AttemptId, EffectStatus, Error, Fence, Filter, Finding, Fingerprint, Judged, Name, OnLock,
    Outcome, Resolution, Seen, StateName, Step,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::pipeline::Of;
use super::{
    Answer, ClientKey, Json, Named, Params, Scope, TraceOf, Wait, answer, malformed, not_found,
    parse,
};
use crate::problem::Problem;
use crate::server::Server;
use crate::wire;

pub(super) fn reading() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new()
        .routes(routes!(search))
        .routes(routes!(show))
        .routes(routes!(history))
        .routes(routes!(steps))
}

/// Responses to claims and looks are never replayed: the grant may be over. A client repeats a
/// claim by naming its attempt.
pub(super) fn asking() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new().routes(routes!(claim)).routes(routes!(look))
}

pub(super) fn performing() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new()
        .routes(routes!(settle))
        .routes(routes!(undo))
        .routes(routes!(undone))
        .routes(routes!(found))
        .routes(routes!(resolve))
}

pub(super) fn clearing() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new().routes(routes!(reset))
}

/// The longest that a grant may last, in milliseconds.
pub(super) const LONGEST_DEADLINE_MS: u64 = 24 * 3600 * 1000;

/// Which effects to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Search {
    /// Only in this state; or `stuck`, for those that need attention: partial, unknown, indeterminate, and running
    /// with a holder that is silent or dead.
    #[param(inline)]
    state: Option<Wanted>,
    /// Only those with this text in their label.
    #[param(max_length = 256)]
    label: Option<String>,
    /// For the next page: only effects whose newest attempt has a lower fence.
    before: Option<u64>,
    /// At most this many; default 50.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Wanted {
    Running,
    Succeeded,
    Failed,
    Partial,
    Unknown,
    Indeterminate,
    Skipped,
    Stuck,
}

impl Wanted {
    fn states(self) -> Vec<StateName> {
        match self {
            Self::Running => vec![StateName::Running],
            Self::Succeeded => vec![StateName::Succeeded],
            Self::Failed => vec![StateName::Failed],
            Self::Partial => vec![StateName::Partial],
            Self::Unknown => vec![StateName::Unknown],
            Self::Indeterminate => vec![StateName::Indeterminate],
            Self::Skipped => vec![StateName::Skipped],
            Self::Stuck => Vec::new(),
        }
    }
}

/// Effects, newest first.
#[derive(Debug, Serialize, ToSchema)]
struct Effects {
    effects: Vec<wire::Effect>,
    /// Pass it as `before` for the next page. Null: there are no more.
    next: Option<u64>,
}

/// The size of a page, checked; default 50.
pub(super) fn page(limit: Option<usize>) -> Result<usize, Problem> {
    match limit.unwrap_or(50) {
        limit @ 1..=1000 => Ok(limit),
        _ => Err(malformed("limit is 1 to 1000")),
    }
}

/// The start of a page, checked: a number that an earlier page gave.
pub(super) fn page_cursor(before: Option<u64>) -> Result<Option<u64>, Problem> {
    match before {
        Some(before) if i64::try_from(before).is_err() => Err(malformed("the place is too large")),
        before => Ok(before),
    }
}

/// List effects, newest first.
#[utoipa::path(get, path = "/v1/effects", operation_id = "effect_search", tag = "effects", params(Search),
    responses((status = 200, body = Effects)))]
async fn search(scope: Scope, Params(search): Params<Search>) -> Answer<Effects> {
    let limit = page(search.limit)?;
    if search.label.as_ref().is_some_and(|label| label.len() > 256) {
        return Err(malformed("label is at most 256 bytes"));
    }
    let filter = Filter {
        states: search.state.map(Wanted::states).unwrap_or_default(),
        label: search.label,
        before: page_cursor(search.before)?.map(Fence),
        limit,
        ..Filter::default()
    };
    let effects = scope.hapax.effects();
    let found = match search.state {
        Some(Wanted::Stuck) => effects.stuck(filter).await?,
        _ => effects.statuses(filter).await?,
    };
    let next = found.last().filter(|_| found.len() == limit).map(|found| found.effect.fence.0);
    answer(Effects { effects: found.iter().map(wire::Effect::of).collect(), next })
}

/// Show an effect. With `Prefer: wait=N`, answer when it stops running, or after N seconds.
#[utoipa::path(get, path = "/v1/effects/{key}", operation_id = "effect_show", tag = "effects",
    params(("key" = String, Path, description = "sha256:<64 hex digits>, or a name of your own", min_length = 1),
           ("Prefer" = Option<String>, Header, description = "wait=N: seconds to wait while it runs")),
    responses((status = 200, body = wire::Effect)))]
async fn show(
    State(server): State<Arc<Server>>,
    scope: Scope,
    named: Named,
    Wait(wait): Wait,
) -> Answer<wire::Effect> {
    let remote = scope.hapax.remote();
    let effect = tokio::select! {
        effect = remote.attach(named.key, wait) => effect?,
        // A stopping server answers at once.
        () = server.stopped() => scope.hapax.effects().show(named.key).await?,
    };
    let status = match effect {
        Some(effect) if effect.state.name() != StateName::Running => {
            let name = Name { namespace: scope.hapax.namespace().clone(), key: named.key };
            Some(EffectStatus { name, effect, holder: None })
        }
        _ => scope.hapax.effects().status(named.key).await?,
    };
    let status = status.ok_or_else(|| not_found("no effect of this key is recorded"))?;
    answer(wire::Effect::of(&status))
}

/// The journal entries of an effect.
#[derive(Debug, Serialize, ToSchema)]
struct History {
    entries: Vec<wire::Entry>,
}

/// List the journal entries of an effect, oldest first.
#[utoipa::path(get, path = "/v1/effects/{key}/history", operation_id = "effect_history", tag = "effects",
    params(("key" = String, Path, min_length = 1)),
    responses((status = 200, body = History)))]
async fn history(scope: Scope, named: Named) -> Answer<History> {
    let entries = scope.hapax.journal().history(named.key, 1000).await?;
    answer(History { entries: entries.iter().map(wire::Entry::of).collect() })
}

/// The steps to undo.
#[derive(Debug, Serialize, ToSchema)]
struct Steps {
    steps: Vec<wire::Step>,
}

/// List the steps that the newest attempt registered, in order. Undo them backwards.
#[utoipa::path(get, path = "/v1/effects/{key}/steps", operation_id = "effect_steps", tag = "effects",
    params(("key" = String, Path, min_length = 1)),
    responses((status = 200, body = Steps)))]
async fn steps(scope: Scope, named: Named) -> Answer<Steps> {
    let effect = scope.hapax.effects().show(named.key).await?;
    let effect = effect.ok_or_else(|| not_found("no effect of this key is recorded"))?;
    let steps = scope.hapax.effects().steps(named.key, effect.attempt).await?;
    let steps = steps.into_iter().map(|step| wire::Step {
        step: step.name,
        payload: String::from_utf8_lossy(&step.payload).into_owned(),
    });
    answer(Steps { steps: steps.collect() })
}

/// Claim an effect: ask for permission to perform it. A grant is on disk before it is answered.
#[utoipa::path(post, path = "/v1/effects/{key}/claim", operation_id = "effect_claim", tag = "effects", request_body = wire::Claim,
    params(("key" = String, Path, min_length = 1),
           ("Prefer" = Option<String>, Header, description = "wait=N: seconds to wait while another attempt is running")),
    responses((status = 200, body = wire::Verdict)))]
async fn claim(
    scope: Scope,
    named: Named,
    Wait(wait): Wait,
    _: ClientKey,
    Json(request): Json<wire::Claim>,
) -> Answer<wire::Verdict> {
    let lease = request.lease.as_deref().map(|text| parse("lease", text)).transpose()?;
    let attempt = attempt(request.attempt.as_deref())?;
    let fingerprint = match (&request.payload, &request.fingerprint) {
        (Some(_), Some(_)) => {
            return Err(malformed("give payload or fingerprint, not both"));
        }
        (None, Some(text)) => parse("fingerprint", text)?,
        (payload, None) => Fingerprint::of(payload.as_deref().unwrap_or_default().as_bytes()),
    };
    let mut effect = scope
        .hapax
        .effect(named.key)
        .fingerprint(fingerprint)
        .safety(request.safety.to_domain(within("settling_ms", request.settling_ms, 0..=YEAR_MS)?))
        .wait(wait);
    if let Some(label) = request.label.clone().or_else(|| wire::label(&named.text)) {
        effect = effect.label(label);
    }
    if let Some(names) = &request.lock {
        if names.is_empty() || names.len() > 8 {
            return Err(malformed("lock has 1 to 8 names"));
        }
        effect = effect.lock(&names.iter().map(String::as_str).collect::<Vec<_>>());
    }
    if request.wait_for_lock {
        effect = effect.on_lock(OnLock::Wait);
    }
    if let Some(ms) = within("ttl_ms", request.ttl_ms, 1..=10 * YEAR_MS)? {
        effect = effect.ttl(Duration::from_millis(ms));
    }
    let deadline = within("deadline_ms", request.deadline_ms, 1..=LONGEST_DEADLINE_MS)?;
    if let Some(deadline) = deadline {
        effect = effect.deadline(Duration::from_millis(deadline));
    }
    if let Some(epoch) = &request.epoch {
        effect = effect.in_epoch(epoch.to_domain().map_err(malformed)?);
    }
    match Permit::of(effect.claim_for(attempt, lease).await?)? {
        Permit::Granted(grant) => answer(wire::Verdict::Granted {
            attempt: grant.attempt.to_string(),
            fence: grant.fence.0,
            nth: grant.nth,
            work_ms: work_ms(&grant),
        }),
        Permit::Replayed { outcome, expires } => answer(wire::Verdict::Replayed {
            outcome: wire::Outcome::of(&outcome),
            expires: expires.map(wire::time),
        }),
    }
}

/// The attempt of a claim: the client's own, so that it can repeat the claim, or a new one.
pub(super) fn attempt(given: Option<&str>) -> Result<AttemptId, Problem> {
    match given {
        Some(text) => parse("attempt", text),
        None => Ok(AttemptId::from_bytes(random_id()?)),
    }
}

pub(super) const YEAR_MS: u64 = 365 * 24 * 3600 * 1000;

/// A number, checked against its range.
pub(super) fn within(
    field: &str,
    number: Option<u64>,
    range: std::ops::RangeInclusive<u64>,
) -> Result<Option<u64>, Problem> {
    match number {
        Some(number) if !range.contains(&number) => {
            Err(malformed(format!("{field} is {} to {}", range.start(), range.end())))
        }
        number => Ok(number),
    }
}

/// An id of 128 bits, derived from these parts.
pub(super) fn derived(parts: &[&[u8]]) -> [u8; 16] {
    let mut id = [0; 16];
    id.copy_from_slice(&Fingerprint::of_parts(parts).as_bytes()[..16]);
    id
}

/// Report how an attempt went. Repeating a report changes nothing.
#[utoipa::path(post, path = "/v1/effects/{key}/settle", operation_id = "effect_settle", tag = "effects", request_body = wire::Settle,
    params(("key" = String, Path, min_length = 1)),
    responses((status = 200, body = wire::Settled)))]
async fn settle(
    scope: Scope,
    Of(pipeline): Of,
    named: Named,
    TraceOf(trace): TraceOf,
    Json(request): Json<wire::Settle>,
) -> Answer<wire::Settled> {
    let (attempt, report) =
        (parse("attempt", &request.attempt)?, request.to_domain().map_err(malformed)?);
    let by = (attempt, Fence(request.fence));
    if pipeline.governs(named.key, attempt).await? {
        let key = named.key;
        let path = format!("it is an operation on a dataset: POST /v1/operations/{key}/settle");
        return Err(hapax_pipeline::Error::Invalid(path).into());
    }
    let events =
        request.events.into_iter().map(wire::Event::into_domain).collect::<Result<Vec<_>, _>>();
    let mut events = events.map_err(|flaw| malformed(format!("events: {flaw}")))?;
    // An event without a trace of its own belongs to the trace of the request.
    events.iter_mut().for_each(|event| event.trace = event.trace.take().or(trace.clone()));
    settled(attempt, scope.hapax.remote().settle(named.key, by, report, events, None).await?)
}

pub(super) fn settled(attempt: AttemptId, settled: Settled) -> Answer<wire::Settled> {
    match settled {
        Settled::Recorded => answer(wire::Settled { repeated: false }),
        Settled::Repeated => answer(wire::Settled { repeated: true }),
        Settled::Fenced(fenced) => Err(refused(attempt, fenced)),
        Settled::Outdated(mismatch) => Err(Error::Epoch(mismatch).into()),
    }
}

/// The problem with a report or a decision that the record contradicts.
fn refused(attempt: AttemptId, fenced: Fenced) -> Problem {
    let detail = match (fenced.state, fenced.attempt) {
        (Some(StateName::Running), Some(running)) if running == attempt => {
            "this attempt is at work still; settle it, or wait until its time is up".to_owned()
        }
        (Some(state), Some(recorded)) if recorded == attempt => {
            format!("of this attempt {state} is recorded already, and stays")
        }
        (Some(state), Some(recorded)) => {
            format!("this attempt is not the one that counts: the record is {state}, by {recorded}")
        }
        _ => return not_found("no effect of this key is recorded"),
    };
    Problem { detail: detail.into(), ..Error::Fenced(fenced).into() }
}

/// Register how to undo a step, before it is taken.
#[utoipa::path(post, path = "/v1/effects/{key}/undo", operation_id = "effect_undo", tag = "effects", request_body = wire::Undo,
    params(("key" = String, Path, min_length = 1)),
    responses((status = 200, body = wire::Settled)))]
async fn undo(
    Of(pipeline): Of,
    named: Named,
    Json(request): Json<wire::Undo>,
) -> Answer<wire::Settled> {
    let attempt = parse("attempt", &request.attempt)?;
    let step = Step { name: request.step, payload: request.payload.into_bytes() };
    settled(attempt, pipeline.undo_with(named.key, attempt, request.nth, step).await?)
}

/// Report that all steps of a partial effect were undone.
#[utoipa::path(post, path = "/v1/effects/{key}/undone", operation_id = "effect_undone", tag = "effects", request_body = wire::Undone,
    params(("key" = String, Path, min_length = 1)),
    responses((status = 200, body = wire::Judged)))]
async fn undone(
    scope: Scope,
    named: Named,
    Json(request): Json<wire::Undone>,
) -> Answer<wire::Judged> {
    let attempt = parse("attempt", &request.attempt)?;
    judged(attempt, StateName::Failed, scope.hapax.effects().rolled_back(named.key, attempt).await?)
}

/// The answer to a decision that leads to state `to`. If this attempt is in that state already, the
/// decision is a repeat, and gets the same answer.
pub(super) fn judged(attempt: AttemptId, to: StateName, judged: Judged) -> Answer<wire::Judged> {
    match judged {
        Judged::Decided(state) => answer(wire::Judged::of(state)),
        Judged::Undecided { .. } => answer(wire::Judged::of(StateName::Unknown)),
        Judged::Fenced(fenced)
            if fenced == (Fenced { state: Some(to), attempt: Some(attempt) }) =>
        {
            answer(wire::Judged::of(to))
        }
        Judged::Fenced(fenced) => Err(refused(attempt, fenced)),
    }
}

/// Begin a look for an attempt whose outcome is unknown.
#[utoipa::path(post, path = "/v1/effects/{key}/look", operation_id = "effect_look", tag = "effects",
    params(("key" = String, Path, min_length = 1)),
    responses((status = 200, body = wire::Looked)))]
async fn look(scope: Scope, named: Named, _: ClientKey) -> Answer<wire::Looked> {
    let look = scope.hapax.remote().look(named.key).await?;
    let look = look.ok_or_else(|| not_found("no effect of this key waits to be looked up"))?;
    answer(wire::Looked {
        attempt: look.attempt.to_string(),
        fence: look.fence.0,
        began: format!("{}-{}", look.began.era, look.began.ms),
    })
}

/// Report the finding of a look. "Not found" counts only if the look began after the settling time.
#[utoipa::path(post, path = "/v1/effects/{key}/found", operation_id = "effect_found", tag = "effects", request_body = wire::LookResult,
    params(("key" = String, Path, min_length = 1)),
    responses((status = 200, body = wire::Judged)))]
async fn found(
    Of(pipeline): Of,
    named: Named,
    Json(request): Json<wire::LookResult>,
) -> Answer<wire::Judged> {
    let began = request.began.split_once('-');
    let began = began.and_then(|(era, ms)| Some((era.parse().ok()?, ms.parse().ok()?)));
    let Some((era, ms)) = began else {
        return Err(malformed("began is not a value that POST …/look returned"));
    };
    let look = Look {
        attempt: parse("attempt", &request.attempt)?,
        fence: Fence(request.fence),
        began: hapax::remote::LeaseInstant { era, ms },
    };
    let finding = match (request.happened, request.body) {
        (Some(true), body) => Finding::Happened(body.unwrap_or_default().into()),
        (_, Some(_)) => return Err(malformed("a body goes with happened: true")),
        (Some(false), None) => Finding::NotFound,
        (None, None) => Finding::CannotTell("the target could not say".into()),
    };
    let to = match finding {
        Finding::Happened(_) => StateName::Succeeded,
        _ => StateName::Failed,
    };
    judged(look.attempt, to, pipeline.found(named.key, look, finding).await?)
}

/// Resolve an effect whose outcome is unknown.
#[utoipa::path(post, path = "/v1/effects/{key}/resolve", operation_id = "effect_resolve", tag = "effects", request_body = wire::Resolve,
    params(("key" = String, Path, min_length = 1)),
    responses((status = 200, body = wire::Judged)))]
async fn resolve(
    scope: Scope,
    Of(pipeline): Of,
    named: Named,
    Json(request): Json<wire::Resolve>,
) -> Answer<wire::Judged> {
    let attempt = parse("attempt", &request.attempt)?;
    let resolution = match (request.decision, request.body) {
        (wire::Decision::Happened, body) => {
            Resolution::Happened(Outcome::from(body.unwrap_or_default()))
        }
        (_, Some(_)) => return Err(malformed("a body goes with happened")),
        (wire::Decision::DidNotHappen, None) => Resolution::DidNotHappen,
        (wire::Decision::Skip, None) => Resolution::Skip,
        (wire::Decision::AskAgain, None) => Resolution::AskAgain,
    };
    let note = (scope.caller.holder.as_str(), noted(&request.note)?);
    let to = match resolution {
        Resolution::Happened(_) => StateName::Succeeded,
        Resolution::DidNotHappen => StateName::Failed,
        Resolution::Skip => StateName::Skipped,
        Resolution::AskAgain => StateName::Unknown,
    };
    let seen = Seen { attempt, state: request.state.0 };
    judged(attempt, to, pipeline.resolve(named.key, seen, resolution, note).await?)
}

/// Clear a record, so that the effect can happen again. Answers once every live process has forgotten it.
#[utoipa::path(post, path = "/v1/effects/{key}/reset", operation_id = "effect_reset", tag = "effects", request_body = wire::Reset,
    params(("key" = String, Path, min_length = 1)),
    responses((status = 200, body = wire::Judged)))]
async fn reset(
    scope: Scope,
    Of(pipeline): Of,
    named: Named,
    Json(request): Json<wire::Reset>,
) -> Answer<wire::Judged> {
    let attempt = parse("attempt", &request.attempt)?;
    let note = (scope.caller.holder.as_str(), noted(&request.note)?);
    let seen = Seen { attempt, state: request.state.0 };
    let reset = pipeline.reset(named.key, seen, note).await?;
    judged(attempt, StateName::Failed, reset)
}

/// The note of a decision, checked: a decision needs a reason.
pub(super) fn noted(note: &str) -> Result<&str, Problem> {
    match note.trim().is_empty() || note.len() > 4096 {
        true => Err(malformed("note is 1 to 4096 bytes, and not blank")),
        false => Ok(note),
    }
}
