//! Problem details (RFC 9457), for programs and for people.

use axum_core::body::Body;
use hapax::{Error, StateName, StoreError};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

use crate::idempotency::Settlement;

/// A problem, as it is sent to the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Problem {
    /// A URN for the kind of problem, which ends in its code.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    pub kind: Box<str>,
    /// The title of the kind.
    pub title: &'static str,
    /// The status it is sent with.
    pub status: u16,
    /// The cause in this case.
    #[schema(value_type = String)]
    pub detail: Box<str>,
    /// The code of the error, which has a page of its own.
    pub code: &'static str,
    /// The name of the error in the control plane, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// The next step for the client.
    pub next_action: &'static str,
    /// The attempt that stands in the way, where one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub attempt: Option<Box<str>>,
    /// How many seconds to wait before the request is sent again.
    #[serde(skip)]
    #[schema(ignore)]
    pub after_s: Option<u16>,
}

impl Problem {
    /// A problem of this kind. Its text must not repeat what a client sent.
    pub(crate) fn new(status: StatusCode, kind: &Kind, detail: impl Into<Box<str>>) -> Self {
        Self {
            kind: format!("urn:hapax:error:{}", kind.code).into(),
            title: kind.title,
            status: status.as_u16(),
            detail: detail.into(),
            code: kind.code,
            error: None,
            retryable: kind.retryable,
            next_action: kind.next,
            attempt: None,
            after_s: kind.retryable.then_some(1),
        }
    }

    /// The response that carries it.
    pub fn into_response(self) -> Response<Body> {
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        // The obstacle may be gone at the next try, so the idempotency layer does not keep this answer.
        response.extensions_mut().insert(Settlement::NotDone);
        response
    }
}

/// The parts that all problems of a kind share.
pub(crate) struct Kind {
    pub(crate) code: &'static str,
    pub(crate) title: &'static str,
    pub(crate) retryable: bool,
    pub(crate) next: &'static str,
}

/// No key can be derived from the request.
pub(crate) const KEY_NOT_DERIVED: Kind = Kind {
    code: "HX0401",
    title: "No key can be derived",
    retryable: false,
    next: "Name a registered computation, GET /v1/control, and send the key that follows from it, \
           the epoch and the bytes.",
};

/// The request has no key, and needs one.
pub(crate) const KEY_MISSING: Kind = Kind {
    code: "HX0301",
    title: "Idempotency-Key is missing",
    retryable: false,
    next: "Send a header Idempotency-Key with a value of your own, the same on every retry.",
};

/// The key is malformed.
pub(crate) const KEY_MALFORMED: Kind = Kind {
    code: "HX0302",
    title: "Idempotency-Key cannot be read",
    retryable: false,
    next: "Send one Idempotency-Key of 1 to 255 visible ASCII characters, quoted or not.",
};

/// The key was used with another request.
pub(crate) const OTHER_TERMS: Kind = Kind {
    code: "HX0202",
    title: "Idempotency-Key was used for another request",
    retryable: false,
    next: "Use a new key for a new request; send the same body with the same key.",
};

/// There is no such ontology.
pub(crate) const NO_ONTOLOGY: Kind = Kind {
    code: "HX0601",
    title: "There is no such ontology",
    retryable: false,
    next: "Put it there first: POST /api/v1/ontologies",
};

/// The ontology is in a format that the server does not read.
pub(crate) const WRONG_SYNTAX: Kind = Kind {
    code: "HX0316",
    title: "This kind of content is not read here",
    retryable: false,
    next: "Send application/json, text/turtle, application/rdf+xml or application/ld+json, not compressed.",
};

/// The text, the parameters or the ontology is invalid.
pub(crate) const BAD_EXTRACTION: Kind = Kind {
    code: "HX0602",
    title: "The text, the parameters or the ontology cannot be used",
    retryable: false,
    next: "Correct the part of the request that the detail names.",
};

/// The extractor failed; a retry may succeed.
pub(crate) const EXTRACTOR_FAILED: Kind = Kind {
    code: "HX0603",
    title: "The extractor failed",
    retryable: true,
    next: "Send it again: the chunks that were read are cached, and are not paid for twice.",
};

/// The extractor cannot answer until the operator or the client changes something.
pub(crate) const HOPELESS: Kind = Kind {
    code: "HX0605",
    title: "The extractor cannot answer",
    retryable: false,
    next: "Change the part that the detail names: the key, the model, the parameters or the text.",
};

/// The ontology changed during each try.
pub(crate) const RESTLESS: Kind = Kind {
    code: "HX0604",
    title: "The ontology keeps changing",
    retryable: true,
    next: "Send it again when the ontology no longer changes.",
};

/// The request is larger than the limit.
pub(crate) const TOO_LARGE: Kind = Kind {
    code: "HX0303",
    title: "The request is too large",
    retryable: false,
    next: "Send less, or have the limit raised.",
};

/// The body broke off or arrived too slowly.
pub(crate) const CUT_SHORT: Kind = Kind {
    code: "HX0304",
    title: "The request broke off",
    retryable: true,
    next: "Send it again with the same Idempotency-Key.",
};

/// The service cannot be reached, so nothing was sent.
pub(crate) const UNREACHABLE: Kind = Kind {
    code: "HX0305",
    title: "The service cannot be reached",
    retryable: true,
    next: "Nothing was sent. Send it again with the same Idempotency-Key.",
};

/// The request was sent and not answered; its outcome is unknown.
pub(crate) const NO_ANSWER: Kind = Kind {
    code: "HX0306",
    title: "The service did not answer",
    retryable: false,
    next: "It may have happened. Ask with the same Idempotency-Key; it is not sent again until the \
           outcome is decided.",
};

/// It happened, and the answer was not kept.
pub(crate) const NOT_KEPT: Kind = Kind {
    code: "HX0307",
    title: "It happened; the answer was too large to keep",
    retryable: false,
    next: "Read the result from the service; do not send it again under another key.",
};

/// The request does not identify its tenant.
pub(crate) const TENANT_UNKNOWN: Kind = Kind {
    code: "HX0308",
    title: "The tenant is missing",
    retryable: false,
    next: "Send the tenant's header once, with a value.",
};

/// The request does not identify its caller.
pub(crate) const CALLER_UNKNOWN: Kind = Kind {
    code: "HX0308",
    title: "The caller is missing",
    retryable: false,
    next: "Send the token, the header or the cookie that names the caller once, with a value.",
};

/// The key is recorded for a request with other credentials.
pub(crate) const OTHER_CALLER: Kind = Kind {
    code: "HX0319",
    title: "Idempotency-Key is recorded for another caller",
    retryable: false,
    next: "Send it with the credentials of the first request. If they were only renewed, look the \
           result up at the service: under a new key it could happen twice.",
};

/// The server is at its limit of concurrent requests or runs, or of memory for bodies.
pub(crate) const TOO_MANY: Kind = Kind {
    code: "HX0309",
    title: "Too many requests at once",
    retryable: true,
    next: "Nothing was sent. Send it again later with the same Idempotency-Key.",
};

/// The request has no valid token.
pub(crate) const UNKNOWN_CALLER: Kind = Kind {
    code: "HX0310",
    title: "The client is not authenticated",
    retryable: false,
    next: "Send Authorization: Bearer hpx_…, a token made by: hapax token create",
};

/// The caller is known, and may not do this.
pub(crate) const FORBIDDEN: Kind = Kind {
    code: "HX0311",
    title: "This is not allowed",
    retryable: false,
    next: "Use a token of a role and a namespace that allow it.",
};

/// The server runs without tokens, and the request is not from a program on this machine.
pub(crate) const NOT_LOCAL: Kind = Kind {
    code: "HX0311",
    title: "This is not allowed",
    retryable: false,
    next: "Call it as localhost or 127.0.0.1, from a program; serve others with: hapax serve",
};

/// The request is malformed.
pub(crate) const MALFORMED: Kind = Kind {
    code: "HX0312",
    title: "The request cannot be understood",
    retryable: false,
    next: "Correct it; /v1/openapi.json describes every request.",
};

/// Not found.
pub(crate) const NOT_FOUND: Kind = Kind {
    code: "HX0313",
    title: "Not found",
    retryable: false,
    next: "Check its name and the namespace.",
};

/// The path does not support the method.
pub(crate) const WRONG_METHOD: Kind = Kind {
    code: "HX0314",
    title: "This cannot be done here",
    retryable: false,
    next: "Use a method that Allow names; /v1/openapi.json describes every request.",
};

/// The caller exceeded its allowance.
pub(crate) const TOO_OFTEN: Kind = Kind {
    code: "HX0315",
    title: "Too many requests",
    retryable: true,
    next: "Send it again after Retry-After.",
};

/// The server does not read this content type or encoding.
pub(crate) const WRONG_TYPE: Kind = Kind {
    code: "HX0316",
    title: "This kind of content is not read here",
    retryable: false,
    next: "Send JSON, not compressed, with Content-Type: application/json.",
};

/// The server is stopping.
pub(crate) const STOPPING: Kind = Kind {
    code: "HX0317",
    title: "This server is stopping",
    retryable: true,
    next: "Ask another one, or this one later.",
};

/// A crash of the database can lose acknowledged writes.
pub(crate) const NOT_DURABLE: Kind = Kind {
    code: "HX0318",
    title: "The database is not durable",
    retryable: true,
    next: "Turn the setting on in the server's configuration, and reload it.",
};

/// The operation is invalid.
pub(crate) const BAD_OPERATION: Kind = Kind {
    code: "HX0501",
    title: "The operation cannot be that",
    retryable: false,
    next: "Change the field that is named.",
};

/// A guard of a dataset refused the operation.
pub(crate) const GUARDED: Kind = Kind {
    code: "HX0502",
    title: "A guard refused it",
    retryable: false,
    next: "See what the dataset requires: GET /v1/datasets/{dataset}; and its reviews: GET /v1/reviews",
};

/// A review of the operation is open.
pub(crate) const IN_REVIEW: Kind = Kind {
    code: "HX0503",
    title: "A review is open",
    retryable: false,
    next: "Wait for the answer: GET /v1/reviews.",
};

/// There is no such workflow, version, run, item or escalation.
pub(crate) const NO_ITEM: Kind = Kind {
    code: "HX0701",
    title: "There is no such workflow, version, run, item or escalation",
    retryable: false,
    next: "Check its name and the namespace: GET /v1/workflows. An escalation is gone once it is decided.",
};

/// The script, the name or the action is invalid.
pub(crate) const BAD_ITEM: Kind = Kind {
    code: "HX0702",
    title: "That cannot be done with a workflow or an item",
    retryable: false,
    next: "Correct the part of the request that the detail names.",
};

/// The workflow is running; there is one run at a time.
pub(crate) const RUNNING: Kind = Kind {
    code: "HX0703",
    title: "The workflow is running already",
    retryable: true,
    next: "Wait for that run: GET /v1/workflows/{workflow}/runs; it goes through the same items.",
};

/// An escalation of the workflow is open.
pub(crate) const ATTENTION: Kind = Kind {
    code: "HX0704",
    title: "A person has to decide first",
    retryable: false,
    next: "See the decision to take: GET /v1/escalations; for a repair, GET /v1/workflows/{workflow}",
};

/// The run ended before its script did.
pub(crate) const RUN_FAILED: Kind = Kind {
    code: "HX0705",
    title: "The run ended before the script did",
    retryable: false,
    next: "See why, and what happens next: GET /v1/workflows/{workflow}/runs; open decisions: GET /v1/escalations",
};

/// The decision names an attempt that is no longer current.
pub(crate) const STALE: Kind = Kind {
    code: "HX0706",
    title: "It has changed since you looked",
    retryable: false,
    next: "Nothing was changed. Look again, and decide anew, naming the attempt you see then.",
};

impl Problem {
    /// The problem for an error about an effect.
    pub(crate) fn of(error: &Error) -> Self {
        let (status, title, retryable, next) = explained(error);
        let kind = Kind { code: error.code(), title, retryable, next };
        // A store's error may name files and hosts. It goes to the log, and not to the client.
        let detail = match error {
            Error::Store(StoreError::Invalid(_)) => error.to_string(),
            Error::Store(error) if status.is_server_error() => {
                tracing::warn!(name: "request_not_served", code = error.code(), %error, "serving a request failed");
                match error {
                    StoreError::CommitUnknown(_) => "whether it was recorded is not known",
                    _ => "the ledger did not record it",
                }
                .to_owned()
            }
            Error::Unrecorded { result, attempt, kept, error } => {
                let kept_in = kept.as_deref().map(std::path::Path::display);
                tracing::error!(name: "outcome_not_recorded", code = "HX0213", %attempt, %result, %error, kept = kept_in.map(tracing::field::display), "work was done, and its outcome could not be recorded");
                format!("the work ran ({result}), and its outcome could not be recorded yet")
            }
            other => other.to_string(),
        };
        let attempt = match error {
            Error::InFlight { attempt } | Error::Unrecorded { attempt, .. } => Some(*attempt),
            Error::Blocked(blocked) => Some(blocked.attempt),
            Error::Fenced(fenced) => fenced.attempt,
            _ => None,
        };
        let attempt = attempt.map(|attempt| attempt.to_string().into());
        let name = matches!(error, Error::Epoch(_)).then_some("ERR_EPOCH_MISMATCH");
        Self { attempt, error: name, ..Self::new(status, &kind, detail) }
    }
}

/// The status, the title, whether a retry may succeed, and the next step.
fn explained(error: &Error) -> (StatusCode, &'static str, bool, &'static str) {
    match error {
        Error::InFlight { .. } => (
            StatusCode::CONFLICT,
            "Another attempt is running",
            true,
            "Ask again later, or wait with Prefer: wait=10.",
        ),
        Error::Undecided { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            "Whether it is granted is not known yet",
            true,
            "Ask again with the same attempt: another transaction has its row and has not ended.",
        ),
        Error::Locked { .. } => (
            StatusCode::CONFLICT,
            "Another effect holds the lock",
            true,
            "Ask again later, or wait with wait_for_lock and Prefer: wait=10.",
        ),
        Error::Conflict { .. } => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "The key was used with another payload",
            false,
            "Use another key, or repeat the recorded request exactly.",
        ),
        Error::Blocked(blocked) => (
            StatusCode::CONFLICT,
            "The record needs attention first",
            false,
            match blocked.state {
                StateName::Unknown => "Look it up: POST …/look, then …/found; or resolve it.",
                StateName::Partial => "Undo its steps, GET …/steps; then POST …/undone.",
                _ => "Find out whether it happened; then POST …/resolve, naming the attempt.",
            },
        ),
        Error::Refused { .. } => (
            StatusCode::CONFLICT,
            "It was refused",
            false,
            "Read its history; ask with a new attempt if this one is over.",
        ),
        Error::Fenced(_) => (
            StatusCode::CONFLICT,
            "The record says otherwise",
            false,
            "The record was not changed. Stop, and read it.",
        ),
        Error::Epoch(_) => (
            StatusCode::CONFLICT,
            "It belongs to another epoch",
            false,
            "Ask in the current epoch: GET /v1/epochs/{domain}; attempts of earlier epochs are void.",
        ),
        Error::Store(StoreError::LeaseDead(_)) => (
            StatusCode::CONFLICT,
            "The lease is over",
            false,
            "Open another lease, and ask again with a new attempt.",
        ),
        Error::Store(StoreError::Invalid(_)) => {
            (StatusCode::BAD_REQUEST, "It is beyond a limit", false, "Change it.")
        }
        Error::Store(
            StoreError::Unrouted { .. }
            | StoreError::Guarded { .. }
            | StoreError::Differs(_)
            | StoreError::Republished { .. },
        ) => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "The events cannot be recorded",
            false,
            "Nothing was settled. Change the events or the configuration, and settle again.",
        ),
        Error::Unsupported(_) => (
            StatusCode::CONFLICT,
            "This ledger cannot do that",
            false,
            "Use another ledger, or another way.",
        ),
        Error::Unrecorded { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            "It ran, and the ledger could not record its outcome",
            true,
            "Ask again later with the same key: it is not performed twice. Do not use another key.",
        ),
        Error::Store(StoreError::CommitUnknown(_)) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "Whether the ledger recorded it is not known",
            true,
            "Send it again, with the same attempt if it names one: it is not performed twice.",
        ),
        Error::Store(StoreError::Full(_)) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "The ledger has no room",
            true,
            "Nothing was recorded. Send it again when there is room.",
        ),
        Error::Store(StoreError::Stopped(_)) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "The ledger has stopped",
            true,
            "Nothing was recorded. Send it again when the server was started anew.",
        ),
        Error::Store(StoreError::Corrupt(_)) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "The ledger is damaged",
            false,
            "An operator has to look: see the server's log.",
        ),
        _ => (
            StatusCode::SERVICE_UNAVAILABLE,
            "The ledger cannot be reached",
            true,
            "Retry later; a repeated request is not performed twice.",
        ),
    }
}
