//! Health and metrics of a service behind the proxy, on an address apart from its own paths.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use hapax::Hapax;
use hapax_pipeline::Meters;
use prometheus::Registry;

use crate::metrics::{Requests, register_counts, text};
use crate::server::readiness;

/// Counts the requests of a service, and reports its health. Its router asks for no token, so only
/// operators should be able to reach it.
pub struct Watch {
    hapax: Hapax,
    requests: Requests,
    stopping: AtomicBool,
}

impl Watch {
    /// A watch over a service on this ledger.
    pub fn new(hapax: Hapax) -> Arc<Self> {
        Arc::new(Self { hapax, requests: Requests::default(), stopping: AtomicBool::new(false) })
    }

    /// The same service, with its requests counted.
    pub fn over(self: &Arc<Self>, app: Router) -> Router {
        app.layer(from_fn_with_state(self.clone(), counted))
    }

    /// Serves `/metrics`, `/healthz` and `/readyz`.
    pub fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/healthz", get(|| async { "alive\n" }))
            .route("/readyz", get(ready))
            .route("/metrics", get(show))
            .with_state(self.clone())
    }

    /// Announces the stop: `/readyz` reports not ready from now on.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

async fn counted(State(watch): State<Arc<Watch>>, request: Request, next: Next) -> Response {
    let watched = watch.requests.watch(&request);
    let response = next.run(request).await;
    watch.requests.count(watched, response.status());
    response
}

async fn ready(State(watch): State<Arc<Watch>>) -> Response {
    readiness(&watch.hapax, watch.stopping.load(Ordering::Relaxed)).await
}

async fn show(State(watch): State<Arc<Watch>>) -> Response {
    let registry = Registry::new();
    let registered = watch
        .requests
        .register(&registry)
        .and_then(|()| register_counts(&registry, watch.hapax.counts(), &Meters::default()));
    text(registered.map(|()| registry))
}
