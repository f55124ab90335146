//! gRPC: the status comes after the body, or in the head where there is no body.

use axum_core::body::Body;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};

use super::settings::Settlement;
use crate::problem::Problem;

/// The trailers that say how a call went.
pub(super) const TRAILERS: [&str; 3] = ["grpc-status", "grpc-message", "grpc-status-details-bin"];

/// The protocol of a client, which problems follow, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    Grpc,
}

impl Protocol {
    /// The protocol of a request or of an answer.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        match kind.is_some_and(|kind| kind.starts_with("application/grpc")) {
            true => Self::Grpc,
            false => Self::Http,
        }
    }

    /// The response for a problem. A gRPC client would take a JSON document for a broken message,
    /// so it gets a status and no body.
    pub(super) fn refuse(self, problem: Problem) -> Response<Body> {
        if self == Self::Http {
            return problem.into_response();
        }
        let (status, message) = (status(&problem), message(&problem));
        let mut response = problem.into_response();
        *response.status_mut() = http::StatusCode::OK;
        *response.body_mut() = Body::empty();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(TRAILERS[0], HeaderValue::from(status));
        if let Ok(message) = HeaderValue::from_str(&message) {
            headers.insert(TRAILERS[1], message);
        }
        response
    }
}

/// The gRPC status nearest to a problem: above all, it says whether to retry.
fn status(problem: &Problem) -> u16 {
    match (problem.status, problem.retryable) {
        // Aborted: retry, but not at once. Unavailable: retry.
        (409, true) => 10,
        (_, true) => 14,
        // Failed precondition: do not retry until the outcome is known.
        (409, false) => 9,
        // Invalid argument: the client's mistake.
        (400..=499, false) => 3,
        // Data loss: it happened, and the answer was not kept.
        (..=399, false) => 15,
        (_, false) => 2,
    }
}

/// The code, the detail and the next step; bytes other than plain ASCII are percent-encoded, as
/// gRPC requires.
fn message(problem: &Problem) -> String {
    let text = format!("{}: {}. {}", problem.code, problem.detail, problem.next_action);
    text.bytes().fold(String::new(), |mut message, byte| {
        match byte {
            b' '..=b'~' if byte != b'%' => message.push(char::from(byte)),
            _ => message.push_str(&format!("%{byte:02X}")),
        }
        message
    })
}

/// The fate of the effect according to a gRPC answer; none if the answer is not gRPC.
pub(super) fn fate(headers: &HeaderMap, trailers: &HeaderMap) -> Option<Settlement> {
    if Protocol::of(headers) != Protocol::Grpc {
        return None;
    }
    Some(match code(headers, trailers) {
        // Permission denied, resource exhausted, aborted, unavailable, unauthenticated: refused
        // before anything was done.
        Some(7 | 8 | 10 | 14 | 16) => Settlement::NotDone,
        // Cancelled, unknown, deadline exceeded, internal, data loss, or no status at all.
        Some(1 | 2 | 4 | 13 | 15) | None => Settlement::Unknown,
        // Done, or refused for its content: a retry would be refused too.
        Some(_) => Settlement::Settled,
    })
}

/// Whether a gRPC answer refuses the caller: permission denied, resource exhausted, unauthenticated.
pub(super) fn refuses_caller(headers: &HeaderMap, trailers: &HeaderMap) -> bool {
    matches!(code(headers, trailers), Some(7 | 8 | 16))
}

/// The status of a gRPC answer; none if there is none, or the answer is not gRPC.
pub(super) fn code(headers: &HeaderMap, trailers: &HeaderMap) -> Option<u8> {
    if Protocol::of(headers) != Protocol::Grpc {
        return None;
    }
    // A call that fails before it sends a message has its status in the head.
    let status = trailers.get("grpc-status").or_else(|| headers.get("grpc-status"))?;
    status.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_what_an_answer_means() {
        let headers = |pairs: &[(&'static str, &'static str)]| -> HeaderMap {
            let pair = |(name, value): &(&'static str, &'static str)| {
                ((*name).parse().unwrap(), (*value).parse().unwrap())
            };
            pairs.iter().map(pair).collect()
        };
        let kind = ("content-type", "application/grpc+proto");
        let head = headers(&[kind]);
        for (status, expected) in
            [("0", Settlement::Settled), ("5", Settlement::Settled), ("14", Settlement::NotDone)]
        {
            let trailers = headers(&[("grpc-status", status)]);
            assert_eq!(fate(&head, &trailers), Some(expected));
            assert!(!refuses_caller(&head, &trailers), "{status}");
        }
        for status in ["7", "8", "16"] {
            let trailers = headers(&[("grpc-status", status)]);
            assert_eq!(fate(&head, &trailers), Some(Settlement::NotDone));
            assert!(refuses_caller(&head, &trailers), "{status}");
        }
        assert_eq!(fate(&head, &headers(&[("grpc-status", "4")])), Some(Settlement::Unknown));
        assert_eq!(fate(&head, &HeaderMap::new()), Some(Settlement::Unknown), "it broke off");
        let at_once = headers(&[kind, ("grpc-status", "3")]);
        assert_eq!(fate(&at_once, &HeaderMap::new()), Some(Settlement::Settled));
        let other = headers(&[("content-type", "application/json")]);
        assert_eq!(fate(&other, &HeaderMap::new()), None);
    }

    #[test]
    fn a_refusal_says_whether_to_ask_again() {
        use crate::problem::{KEY_MISSING, NO_ANSWER, NOT_KEPT, TOO_MANY};
        let refused = |status: u16, kind, detail: &str| {
            let status = http::StatusCode::from_u16(status).unwrap();
            let response = Protocol::Grpc.refuse(Problem::new(status, kind, detail));
            let header = |name| response.headers()[name].to_str().unwrap().to_owned();
            (response.status().as_u16(), header("grpc-status"), header("grpc-message"))
        };
        let (code, status, message) = refused(400, &KEY_MISSING, "100 % of ü");
        assert_eq!((code, status.as_str()), (200, "3"));
        assert!(message.starts_with("HX0301: 100 %25 of %C3%BC. Send"), "{message}");
        assert_eq!(refused(503, &TOO_MANY, "x").1, "14");
        assert_eq!(refused(502, &NO_ANSWER, "x").1, "2");
        assert_eq!(refused(200, &NOT_KEPT, "x").1, "15");
        assert_eq!(refused(409, &NOT_KEPT, "x").1, "9");
    }
}
