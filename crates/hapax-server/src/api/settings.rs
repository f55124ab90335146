//! The settings of this server, for clients.

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Answer, Scope, answer};
use crate::server::Server;

pub(super) fn reading() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new().routes(routes!(show))
}

/// The settings and limits of this server.
#[derive(Debug, Serialize, ToSchema)]
struct Config {
    /// The version of hapax.
    version: &'static str,
    /// The namespace of this caller's requests.
    namespace: String,
    /// The role of this caller.
    role: &'static str,
    /// How long answers are kept under an Idempotency-Key, in seconds.
    idempotency_key_lifetime: u64,
    /// The largest body of a request, in bytes.
    largest_request: usize,
    /// The longest that Prefer: wait=N may ask for, in seconds.
    longest_wait: u64,
}

/// Show the limits of this server, and how long it keeps keys.
#[utoipa::path(get, path = "/v1/config", operation_id = "config_show", tag = "config",
    responses((status = 200, body = Config)))]
async fn show(State(server): State<Arc<Server>>, scope: Scope) -> Answer<Config> {
    let settings = &server.settings;
    answer(Config {
        version: env!("CARGO_PKG_VERSION"),
        namespace: scope.caller.namespace.to_string(),
        role: scope.caller.role.as_str(),
        idempotency_key_lifetime: settings.key_lifetime.as_secs(),
        largest_request: settings.largest_request,
        longest_wait: settings.longest_wait.as_secs(),
    })
}
