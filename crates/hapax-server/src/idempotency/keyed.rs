//! A request with a key, as an effect of the ledger.

use std::time::Duration;

use hapax::key::http::Request as Scope;
use hapax::{Fingerprint, Key};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, StatusCode};

use super::settings::Settings;
use crate::problem::{KEY_MALFORMED, Problem};

/// A request whose outcome is unknown, as the lookup gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingRequest {
    /// The tenant, as [`Settings::tenant`] says; empty where all clients are one tenant.
    pub tenant: String,
    /// The caller, where [`Settings::identity`] scopes keys by a claim or a header; else empty.
    pub caller: String,
    /// Its method.
    pub method: String,
    /// Its path, without the query.
    pub path: String,
    /// The client's key.
    pub key: String,
}

/// A request with a key.
pub(super) struct KeyedRequest {
    /// The effect's key.
    pub(super) name: Key,
    /// The fingerprint of its payload, and of its credentials where they bind the key.
    pub(super) fingerprint: Fingerprint,
    pub(super) label: String,
    /// How long it waits for the same request in flight.
    pub(super) wait: Duration,
    pub(super) pending: PendingRequest,
}

impl KeyedRequest {
    pub(super) fn of(
        settings: &Settings,
        head: &Parts,
        key: String,
        body: &[u8],
    ) -> Result<Self, Problem> {
        let (method, path) = (head.method.as_str(), head.uri.path());
        let tenant = settings.tenant_of(head)?;
        let caller = settings.identity.caller(&head.headers)?;
        // A tenant begins with another letter, and a digest has one length: no two scopes are equal.
        let scope = caller.as_ref().map(|caller| format!("i:{}/{tenant}", caller.digest));
        let scope = scope.as_ref().unwrap_or(&tenant);
        let name = Scope { tenant: scope, method, path, idempotency_key: &key }.key();
        let name = name.map_err(|error| {
            Problem::new(StatusCode::BAD_REQUEST, &KEY_MALFORMED, error.to_string())
        })?;
        let kind = head.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        let query = head.uri.query().unwrap_or_default().as_bytes();
        let payload = Fingerprint::of_parts(&[query, kind, body]);
        let tenant = tenant.strip_prefix("h:").or(tenant.strip_prefix("t:"));
        Ok(Self {
            name,
            fingerprint: settings.identity.fingerprint(payload, &name, &head.headers),
            label: format!(
                "{method} {} {}",
                path.chars().take(80).collect::<String>(),
                key.chars().take(80).collect::<String>()
            ),
            wait: settings.wait_of(head),
            pending: PendingRequest {
                tenant: tenant.unwrap_or_default().into(),
                caller: caller.map(|caller| caller.name).unwrap_or_default(),
                method: method.into(),
                path: path.into(),
                key,
            },
        })
    }
}
