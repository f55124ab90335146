//! Stored answers: an HTTP message each, so that people can read it too.

use std::time::SystemTime;

use axum_core::body::Body;
use bytes::Bytes;
use http::header::{DATE, HeaderName};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::grpc;
use super::layer::whole;
use super::settings::Settings;

/// The most headers that a stored answer has.
const HEADERS: usize = 64;

/// The prefix of a trailer that is stored among the headers.
const TRAILER: &str = "hapax-trailer-";

/// The header of a stored answer without its body.
pub(super) const BODY_NOT_KEPT: &str = "hapax-body-not-kept";

/// Serializes an answer as these settings say. The body is left out, and marked so, if it was not
/// read whole or may not be stored.
pub(super) fn kept(
    settings: &Settings,
    head: &http::response::Parts,
    body: Option<&[u8]>,
    trailers: &HeaderMap,
) -> Vec<u8> {
    let now = SystemTime::now();
    if let Some(body) = body.and_then(|body| settings.writable(&head.headers, body)) {
        return write(head, &settings.kept_headers, now, &body, trailers);
    }
    let mut bare = Response::new(()).into_parts().0;
    bare.status = head.status;
    let mark = HeaderName::from_static(BODY_NOT_KEPT);
    bare.headers.insert(&mark, HeaderValue::from_static("true"));
    write(&bare, &[mark], now, b"", &HeaderMap::new())
}

/// Serializes an answer with the time and those of its headers that are kept.
fn write(
    head: &http::response::Parts,
    kept: &[HeaderName],
    now: SystemTime,
    body: &[u8],
    trailers: &HeaderMap,
) -> Vec<u8> {
    let reason = head.status.canonical_reason().unwrap_or_default();
    let mut text = format!("HTTP/1.1 {} {reason}\r\n", head.status.as_u16()).into_bytes();
    let mut header = |name: &str, value: &[u8]| {
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value);
        text.extend_from_slice(b"\r\n");
    };
    header(DATE.as_str(), httpdate::fmt_http_date(now).as_bytes());
    for name in grpc::TRAILERS {
        // An answer without a body has its gRPC status in the head.
        for value in head.headers.get_all(name) {
            header(name, value.as_bytes());
        }
        for value in trailers.get_all(name) {
            header(&format!("{TRAILER}{name}"), value.as_bytes());
        }
    }
    let values = kept.iter().filter(|name| **name != DATE).flat_map(|name| {
        head.headers.get_all(name).iter().map(move |value| (name, value.as_bytes()))
    });
    for (name, value) in values.take(HEADERS - 1 - 2 * grpc::TRAILERS.len()) {
        header(name.as_str(), value);
    }
    text.extend_from_slice(b"\r\n");
    text.extend_from_slice(body);
    text
}

/// Parses a stored answer, and when it was stored.
pub(super) fn read(stored: &[u8]) -> Option<(Response<Body>, SystemTime)> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut message = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = message.parse(stored).ok()? else { return None };
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(message.code?).ok()?;
    let (mut at, mut trailers) = (None, HeaderMap::new());
    for header in message.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        let value = HeaderValue::from_bytes(header.value).ok()?;
        if name == DATE {
            at = httpdate::parse_http_date(value.to_str().ok()?).ok();
        } else if let Some(name) = name.as_str().strip_prefix(TRAILER) {
            trailers.append(HeaderName::from_bytes(name.as_bytes()).ok()?, value);
        } else {
            response.headers_mut().append(name, value);
        }
    }
    let body = Bytes::copy_from_slice(&stored[length..]);
    Some((response.map(|()| whole(body, trailers)), at?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;
    use std::time::Duration;

    #[tokio::test]
    async fn an_answer_survives_storage_without_what_must_not_be_kept() {
        let answer = Response::builder()
            .status(201)
            .header("content-type", "application/json")
            .header("location", "/charges/7")
            .header("set-cookie", "session=secret")
            .body(())
            .unwrap();
        let (head, ()) = answer.into_parts();
        let kept = crate::idempotency::Settings::default().kept_headers;
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_763_060_144);
        let trailers = [("grpc-status", "0"), ("x-other", "secret")];
        let trailers: HeaderMap = trailers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let stored = write(&head, &kept, now, b"{\"id\":7}\r\n\r\n", &trailers);
        assert!(!String::from_utf8_lossy(&stored).contains("secret"));
        let (response, at) = read(&stored).unwrap();
        assert_eq!((response.status(), at), (StatusCode::CREATED, now));
        assert_eq!(response.headers()["location"], "/charges/7");
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(&body.to_bytes()[..], b"{\"id\":7}\r\n\r\n");
        assert!(read(b"something else").is_none());
    }
}
