//! An answer as it is kept: an HTTP message, so that people can read it too.

use std::time::SystemTime;

use axum_core::body::Body;
use bytes::Bytes;
use http::header::{DATE, HeaderName};
use http::{HeaderValue, Response, StatusCode};

/// How many headers an answer has at most.
const HEADERS: usize = 64;

/// Writes an answer down, with those of its headers that may be kept and the time.
pub(super) fn write(
    head: &http::response::Parts,
    kept: &[HeaderName],
    now: SystemTime,
    body: &[u8],
) -> Vec<u8> {
    let reason = head.status.canonical_reason().unwrap_or_default();
    let mut text = format!("HTTP/1.1 {} {reason}\r\n", head.status.as_u16()).into_bytes();
    let mut header = |name: &HeaderName, value: &[u8]| {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value);
        text.extend_from_slice(b"\r\n");
    };
    header(&DATE, httpdate::fmt_http_date(now).as_bytes());
    let values = kept.iter().filter(|name| **name != DATE).flat_map(|name| {
        head.headers.get_all(name).iter().map(move |value| (name, value.as_bytes()))
    });
    for (name, value) in values.take(HEADERS - 1) {
        header(name, value);
    }
    text.extend_from_slice(b"\r\n");
    text.extend_from_slice(body);
    text
}

/// Reads an answer that was written down, and when that was.
pub(super) fn read(stored: &[u8]) -> Option<(Response<Body>, SystemTime)> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut message = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = message.parse(stored).ok()? else { return None };
    let body = Bytes::copy_from_slice(&stored[length..]);
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(message.code?).ok()?;
    let mut at = None;
    for header in message.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        if name == DATE {
            at = httpdate::parse_http_date(std::str::from_utf8(header.value).ok()?).ok();
        } else {
            response.headers_mut().append(name, HeaderValue::from_bytes(header.value).ok()?);
        }
    }
    Some((response, at?))
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
        let stored = write(&head, &kept, now, b"{\"id\":7}\r\n\r\n");
        assert!(!String::from_utf8_lossy(&stored).contains("secret"));
        let (response, at) = read(&stored).unwrap();
        assert_eq!((response.status(), at), (StatusCode::CREATED, now));
        assert_eq!(response.headers()["location"], "/charges/7");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(&body[..], b"{\"id\":7}\r\n\r\n");
        assert!(read(b"something else").is_none());
    }
}
