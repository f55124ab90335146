//! What went wrong, for programs and for people: problem details as RFC 9457 has them.

use std::time::Duration;

use axum_core::body::Body;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;

/// A problem, as it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Names the kind of problem; the code, which has a page of its own, is in it.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it is called.
    pub title: &'static str,
    /// The status it is sent with.
    pub status: u16,
    /// What happened this time.
    pub detail: String,
    /// The code of the error.
    pub code: &'static str,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// What to do about it.
    pub next_action: &'static str,
    /// When to ask again.
    #[serde(skip)]
    pub after: Option<Duration>,
}

impl Problem {
    /// A problem of this kind. Its text must not repeat what a client sent.
    pub(crate) fn new(status: StatusCode, kind: &Kind, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:hapax:error:{}", kind.code),
            title: kind.title,
            status: status.as_u16(),
            detail: detail.into(),
            code: kind.code,
            retryable: kind.retryable,
            next_action: kind.next,
            after: kind.retryable.then_some(Duration::from_secs(1)),
        }
    }

    /// The answer that tells of it.
    pub fn into_response(self) -> Response<Body> {
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(after) = self.after {
            headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
        }
        response
    }
}

/// What all problems of a kind have in common.
pub(crate) struct Kind {
    pub(crate) code: &'static str,
    pub(crate) title: &'static str,
    pub(crate) retryable: bool,
    pub(crate) next: &'static str,
}

/// No key where one is asked for.
pub(crate) const KEY_MISSING: Kind = Kind {
    code: "HX0301",
    title: "Idempotency-Key is missing",
    retryable: false,
    next: "Send a header Idempotency-Key with a value of your own, the same on every retry.",
};

/// A key that cannot be used.
pub(crate) const KEY_MALFORMED: Kind = Kind {
    code: "HX0302",
    title: "Idempotency-Key cannot be read",
    retryable: false,
    next: "Send one Idempotency-Key of 1 to 255 visible ASCII characters, quoted or not.",
};

/// More than is read.
pub(crate) const TOO_LARGE: Kind = Kind {
    code: "HX0303",
    title: "The request is too large",
    retryable: false,
    next: "Send less, or have the limit raised.",
};

/// A body that broke off.
pub(crate) const CUT_SHORT: Kind = Kind {
    code: "HX0304",
    title: "The request broke off",
    retryable: true,
    next: "Send it again with the same Idempotency-Key.",
};

/// Nobody there to send it to.
pub(crate) const UNREACHABLE: Kind = Kind {
    code: "HX0305",
    title: "The service cannot be reached",
    retryable: true,
    next: "Nothing was sent. Send it again with the same Idempotency-Key.",
};

/// It was sent, and nobody knows what became of it.
pub(crate) const NO_ANSWER: Kind = Kind {
    code: "HX0306",
    title: "The service did not answer",
    retryable: false,
    next: "It may have happened. Ask with the same Idempotency-Key; it is not sent again until \
           somebody has found out.",
};

/// It happened, and the answer was not kept.
pub(crate) const NOT_KEPT: Kind = Kind {
    code: "HX0307",
    title: "It happened; the answer was too large to keep",
    retryable: false,
    next: "Read the result from the service; do not send it again under another key.",
};

/// Whose request it is cannot be told.
pub(crate) const TENANT_UNKNOWN: Kind = Kind {
    code: "HX0308",
    title: "Whose request it is cannot be told",
    retryable: false,
    next: "Send the header that tells who asks, once.",
};

/// More than can be passed on at once.
pub(crate) const TOO_MANY: Kind = Kind {
    code: "HX0309",
    title: "Too many requests at once",
    retryable: true,
    next: "Nothing was sent. Send it again later with the same Idempotency-Key.",
};
