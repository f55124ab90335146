//! Answers of gRPC, whose status comes after the body.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

use super::settings::Fate;

/// The trailers that say how a call went.
pub(super) const TRAILERS: [&str; 3] = ["grpc-status", "grpc-message", "grpc-status-details-bin"];

/// What an answer of gRPC means; nothing if it is none.
pub(super) fn fate(headers: &HeaderMap, trailers: &HeaderMap) -> Option<Fate> {
    let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    if !kind.starts_with("application/grpc") {
        return None;
    }
    // A call that fails before anything is sent has its status in the head.
    let status = trailers.get("grpc-status").or_else(|| headers.get("grpc-status"));
    let status = status.and_then(|status| status.to_str().ok()?.parse::<u8>().ok());
    Some(match status {
        // Out of resources, aborted, unavailable, unauthenticated: turned away.
        Some(8 | 10 | 14 | 16) => Fate::NotDone,
        // Cancelled, unknown, deadline exceeded, internal, data loss, or no status at all.
        Some(1 | 2 | 4 | 13 | 15) | None => Fate::Unknown,
        // Done, or refused for what it is: it would be again.
        Some(_) => Fate::Settled,
    })
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
        for (status, meant) in [("0", Fate::Settled), ("5", Fate::Settled), ("14", Fate::NotDone)] {
            assert_eq!(fate(&head, &headers(&[("grpc-status", status)])), Some(meant));
        }
        assert_eq!(fate(&head, &headers(&[("grpc-status", "4")])), Some(Fate::Unknown));
        assert_eq!(fate(&head, &HeaderMap::new()), Some(Fate::Unknown), "it broke off");
        let at_once = headers(&[kind, ("grpc-status", "3")]);
        assert_eq!(fate(&at_once, &HeaderMap::new()), Some(Fate::Settled));
        let other = headers(&[("content-type", "application/json")]);
        assert_eq!(fate(&other, &HeaderMap::new()), None);
    }
}
