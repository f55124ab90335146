//! The two addresses of the proxy: its client's, for the upstream, and its upstream's, for the client.

use std::net::IpAddr;

use http::header::{FORWARDED, HOST, HeaderName};
use http::{HeaderMap, HeaderValue};

use crate::listener::Peer;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Tells the upstream the client's address, and the scheme and the host that the client asked for.
/// After a gateway before the proxy, the address is appended, and the scheme and the host stay.
pub(super) fn describe(headers: &mut HeaderMap, peer: Peer) {
    let scheme = if peer.is_tls { "https" } else { "http" };
    let node = match peer.address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("\"[{address}]\""),
    };
    let host = headers.get(HOST).filter(|host| is_plain(host.as_bytes())).cloned();
    let mut element = format!("for={node};proto={scheme}");
    if let Some(host) = host.as_ref().and_then(|host| host.to_str().ok()) {
        element.push_str(&format!(";host=\"{host}\""));
    }
    append(headers, FORWARDED, &element);
    append(headers, FORWARDED_FOR, &peer.address.to_string());
    headers.entry(FORWARDED_PROTO).or_insert_with(|| HeaderValue::from_static(scheme));
    if let Some(host) = host {
        headers.entry(FORWARDED_HOST).or_insert(host);
    }
}

/// Whether a host can stand in quotes.
fn is_plain(host: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(byte);
    !host.is_empty() && host.iter().all(plain)
}

/// Appends an element to a list. The list stays on one line, because some services read only one.
fn append(headers: &mut HeaderMap, name: HeaderName, element: &str) {
    let mut list = Vec::new();
    for value in headers.get_all(&name) {
        list.extend_from_slice(value.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(element.as_bytes());
    if let Ok(list) = HeaderValue::from_bytes(&list) {
        headers.insert(name, list);
    }
}

/// A location at the upstream's own address, as a path of the proxy: it is right under every name
/// that the client may know the proxy by. None if the location is elsewhere.
pub(super) fn path_at_proxy(location: &str, origin: &str, base: &str) -> Option<String> {
    let (start, rest) = location.split_at_checked(origin.len())?;
    let rest = rest.strip_prefix(base).filter(|_| start.eq_ignore_ascii_case(origin))?;
    match rest.as_bytes() {
        // A browser ignores tabs, and takes two slashes of either kind for the start of a host.
        bytes if bytes.iter().any(u8::is_ascii_control) => None,
        [b'/', b'/' | b'\\', ..] => None,
        [b'/', ..] => Some(rest.to_owned()),
        [] | [b'?' | b'#', ..] => Some(format!("/{rest}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upstream_learns_who_asked_for_what() {
        let described = |pairs: &[(HeaderName, &'static str)], peer: Peer| {
            let pairs = pairs.iter().cloned();
            let pairs = pairs.map(|(name, value)| (name, HeaderValue::from_static(value)));
            let mut headers: HeaderMap = pairs.collect();
            describe(&mut headers, peer);
            [FORWARDED, FORWARDED_FOR, FORWARDED_PROTO, FORWARDED_HOST].map(|name| {
                let value = headers.get(name).map(|value| value.to_str().unwrap().to_owned());
                value.unwrap_or_default()
            })
        };
        let peer = Peer { address: [127, 0, 0, 1].into(), is_tls: false };
        assert_eq!(
            described(&[(HOST, "shop.example:8080")], peer),
            [
                "for=127.0.0.1;proto=http;host=\"shop.example:8080\"",
                "127.0.0.1",
                "http",
                "shop.example:8080"
            ]
        );
        let gateway =
            [(FORWARDED_FOR, "203.0.113.9"), (FORWARDED_PROTO, "https"), (HOST, "a\";b=\"c")];
        let peer = Peer { address: std::net::Ipv6Addr::LOCALHOST.into(), is_tls: false };
        assert_eq!(
            described(&gateway, peer),
            ["for=\"[::1]\";proto=http", "203.0.113.9, ::1", "https", ""]
        );
    }

    #[test]
    fn a_location_stays_at_the_proxy() {
        let path = |location: &str| path_at_proxy(location, "http://up:3000", "/api");
        for (location, expected) in [
            ("http://up:3000/api/charges/7?x=1#y", Some("/charges/7?x=1#y")),
            ("HTTP://UP:3000/api", Some("/")),
            ("http://up:3000/api?x", Some("/?x")),
            ("http://up:3000/apis", None),
            ("http://up:30001/api/x", None),
            ("http://up:3000/other", None),
            ("http://up:3000/api//evil.example", None),
            ("http://up:3000/api/\\evil.example", None),
            ("http://up:3000/api/\t/evil.example", None),
            ("https://up:3000/api/x", None),
            ("/api/x", None),
            ("é", None),
        ] {
            assert_eq!(path(location).as_deref(), expected, "{location}");
        }
    }
}
