//! The server: API, metrics and health checks under one address.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use hapax::{Hapax, Namespace, Safety};
use hapax_control::Registry;
use hapax_extract::{Builtin, Extract, Extractor};
use hapax_items::Items;
use hapax_pipeline::{Meters, Pipeline};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio::sync::{Semaphore, watch};

use crate::access::{Access, Allowance, Allowances, Caller, admit};
use crate::api;
use crate::idempotency::{IdempotencyLayer, Identity, KeyNeed, Settings, Tenant};
use crate::maintenance::{Chore, Maintenance, ROUND};
use crate::metrics::{self, Metrics};
use crate::problem::{NOT_DURABLE, NOT_FOUND, Problem, STOPPING, WRONG_METHOD};
use crate::runs::Runs;

/// The namespace of the `Idempotency-Key` values of API requests.
const OWN: &str = "hapax.api";

/// The limits of the server, and how long it keeps keys.
#[derive(Debug, Clone, Copy)]
pub struct ServerSettings {
    /// The largest body of a request, in bytes.
    pub largest_request: usize,
    /// How long a body may take to arrive.
    pub longest_request: Duration,
    /// The longest wait that a request may ask for.
    pub longest_wait: Duration,
    /// How long answers are kept under an `Idempotency-Key`.
    pub key_lifetime: Duration,
    /// The request limits of one tenant.
    pub allowance: Allowance,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            largest_request: 1024 * 1024,
            longest_request: Duration::from_secs(30),
            longest_wait: Duration::from_secs(60),
            key_lifetime: Duration::from_secs(24 * 3600),
            allowance: Allowance::default(),
        }
    }
}

/// The systems that are served on the ledger, and their settings.
pub struct Systems {
    /// The computations of the control plane.
    pub registry: Registry,
    /// The settings of pipelines.
    pub pipeline: hapax_pipeline::Settings,
    /// The extractor that reads texts.
    pub extractor: Arc<dyn Extractor>,
    /// The settings of the result cache.
    pub extraction: hapax_extract::Settings,
    /// Workflows and their tools. Without them the server runs no scripts.
    pub items: Option<Items>,
}

impl Default for Systems {
    fn default() -> Self {
        Self {
            registry: Registry::standard(),
            pipeline: hapax_pipeline::Settings::default(),
            extractor: Arc::new(Builtin::default()),
            extraction: hapax_extract::Settings::default(),
            items: None,
        }
    }
}

/// A ledger, served.
pub struct Server {
    pub(crate) hapax: Hapax,
    pub(crate) access: Access,
    pub(crate) settings: ServerSettings,
    pub(crate) allowances: Allowances,
    pub(crate) metrics: Metrics,
    /// The computations of the control plane.
    pub(crate) registry: Arc<Registry>,
    pub(crate) pipeline: Pipeline,
    pub(crate) extract: Extract,
    pub(crate) items: Option<Items>,
    pub(crate) runs: Runs,
    /// Held by requests that list large records, so that only a few run at once.
    pub(crate) listing: Semaphore,
    /// The idempotency layer of mutating calls.
    idempotency: IdempotencyLayer,
    /// Held by the request that verifies the whole journal.
    pub(crate) verifying: Semaphore,
    stopping: watch::Sender<bool>,
}

impl Server {
    /// Serves this ledger to callers with access, with the standard systems.
    pub fn new(hapax: Hapax, access: Access, settings: ServerSettings) -> Arc<Self> {
        Self::with(hapax, access, settings, Systems::default())
    }

    /// The same, with systems that you have set up.
    pub fn with(
        hapax: Hapax,
        access: Access,
        settings: ServerSettings,
        systems: Systems,
    ) -> Arc<Self> {
        let idempotency = idempotency(&hapax, &settings);
        let pipeline = Pipeline::with(hapax.clone(), systems.pipeline);
        let extract = Extract::new(hapax.clone(), systems.extractor, systems.extraction);
        let items = systems.items.map(|items| items.on(hapax.clone()));
        let metrics = Metrics::default();
        let runs = Runs::new(metrics.runs.clone());
        Arc::new(Self {
            hapax,
            access,
            settings,
            allowances: Allowances::new(settings.allowance),
            metrics,
            registry: Arc::new(systems.registry),
            pipeline,
            extract,
            items,
            runs,
            listing: Semaphore::new(4),
            idempotency,
            verifying: Semaphore::new(1),
            stopping: watch::Sender::new(false),
        })
    }

    /// Extraction on this ledger, with its counts.
    pub fn extract(&self) -> Extract {
        self.extract.clone()
    }

    /// The meters of operations.
    pub fn meters(&self) -> Arc<Meters> {
        self.pipeline.meters()
    }

    /// Announces the stop: the server is not ready any more, streams end, and requests in flight finish.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Waits until no call and no run is in flight any more, even those whose client has left.
    pub async fn drained(&self) {
        tokio::join!(self.idempotency.drained(), self.runs.drained());
    }

    /// Renews the anchors: the leases behind grants that have no lease of a client. Such a grant
    /// outlives this process. Goes on until the server is dropped.
    pub fn keep_anchors(self: &Arc<Self>) {
        let server = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(server) = server.upgrade() {
                if let Err(error) = server.hapax.remote().keep_anchors().await {
                    tracing::warn!(name: "anchors_not_kept", %error, "saving the deadlines of grants failed; retrying");
                }
                drop(server);
                tokio::time::sleep(ANCHORS).await;
            }
        });
    }

    /// Records cache accesses every second, and evicts results when the cache is full. Goes on
    /// until the server is dropped.
    pub fn tend_results(self: &Arc<Self>) {
        let server = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(RESULTS).await;
                let Some(server) = server.upgrade() else { return };
                if let Err(error) = server.extract.tend().await {
                    tracing::warn!(name: "results_not_maintained", %error, "maintaining cached results failed; retrying");
                }
            }
        });
    }

    /// Drives the runs that are due, and looks up mutations whose outcome is unknown, every few
    /// seconds. Does nothing without workflows. Goes on until the server stops or is dropped.
    pub fn tend_items(self: &Arc<Self>) {
        // Each kind of work has its own task, so that runs do not wait for lookups at silent targets.
        for chore in [Chore::RunDue, Chore::Reconcile] {
            let server = Arc::downgrade(self);
            let Some(items) = self.items.clone() else { return };
            tokio::spawn(async move {
                let mut maintenance = Maintenance::new(chore, items);
                loop {
                    tokio::time::sleep(ROUND).await;
                    let Some(server) = server.upgrade() else { return };
                    if server.is_stopping() {
                        return;
                    }
                    match maintenance.pass(&server).await {
                        Ok(pass) => tracing::debug!(name: "workflows_maintained", ?chore, ?pass),
                        Err(error) => {
                            tracing::warn!(name: "workflows_not_maintained", ?chore, %error, "maintaining workflows failed; retrying");
                        }
                    }
                }
            });
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Returns once the stop was announced.
    pub(crate) async fn stopped(&self) {
        let _ = self.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    /// The router of everything that the server serves.
    ///
    /// ```
    /// use hapax::Hapax;
    /// use hapax_server::access::Access;
    /// use hapax_server::server::{Server, ServerSettings};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let hapax = Hapax::builder().in_memory();
    /// let app = Server::new(hapax, Access::Everybody, ServerSettings::default()).router();
    /// # drop(app);
    /// # }
    /// ```
    pub fn router(self: &Arc<Self>) -> Router {
        let api = api::router(self.idempotency.clone())
            .merge(Router::new().route("/metrics", get(metrics::show)))
            .fallback(nothing)
            .method_not_allowed_fallback(wrong_method)
            .layer(from_fn_with_state(self.clone(), admit));
        Router::new()
            .route("/healthz", get(|| async { "alive\n" }))
            .route("/readyz", get(ready))
            .route("/v1/openapi.json", get(openapi))
            .merge(api)
            .layer(from_fn_with_state(self.clone(), surround))
            .layer(DefaultBodyLimit::max(self.settings.largest_request))
            .with_state(self.clone())
    }
}

/// How often the result cache is maintained.
const RESULTS: Duration = Duration::from_secs(1);

/// How often the anchors are renewed.
const ANCHORS: Duration = Duration::from_secs(15);

/// The layer for mutating calls of the API. Each of them may be repeated without harm.
fn idempotency(hapax: &Hapax, settings: &ServerSettings) -> IdempotencyLayer {
    let namespace = Namespace::new(OWN).unwrap_or_default();
    let tenant = |head: &http::request::Parts| {
        head.extensions.get::<Caller>().map(Caller::tenant).unwrap_or_default()
    };
    let layer_settings = Settings::default()
        .need(KeyNeed::Optional)
        .methods([Method::POST, Method::PUT, Method::DELETE])
        .tenant(Tenant::By(Arc::new(tenant)))
        // The tenant is the namespace and the id of the token, which is no secret.
        .identity(Identity::None)
        .lifetime(Some(settings.key_lifetime))
        .largest_request(settings.largest_request)
        .longest_request(settings.longest_request)
        .longest_wait(settings.longest_wait)
        .longest_answer(settings.longest_wait * 2);
    IdempotencyLayer::new(hapax.in_namespace(namespace), layer_settings)
        .safety(Safety::Transactional)
}

async fn ready(State(server): State<Arc<Server>>) -> Response {
    readiness(&server.hapax, server.is_stopping()).await
}

/// Answers whether requests can be served.
pub(crate) async fn readiness(hapax: &Hapax, stopping: bool) -> Response {
    if stopping {
        let detail = "it only finishes running requests";
        let refused = Problem::new(StatusCode::SERVICE_UNAVAILABLE, &STOPPING, detail);
        return refused.into_response();
    }
    match hapax.maintenance().turned_off().await {
        Ok(off) if off.is_empty() => Response::new("ready\n".into()),
        Ok(off) => {
            let detail = format!(
                "{} was turned off: a crash of the database can lose acknowledged commits",
                off.join(", ")
            );
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, &NOT_DURABLE, detail).into_response()
        }
        Err(error) => Problem::of(&error).into_response(),
    }
}

async fn openapi() -> Response {
    let mut response = Response::new(api::openapi_text().into());
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

async fn nothing() -> Response {
    let detail = "nothing is served under this path; a / in a key is written %2F";
    Problem::new(StatusCode::NOT_FOUND, &NOT_FOUND, detail).into_response()
}

async fn wrong_method() -> Response {
    let detail = "this path is served, by another method";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, &WRONG_METHOD, detail).into_response()
}

/// Measures every request and protects every answer. One layer, because each costs.
async fn surround(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let watched = server.metrics.requests.watch(&request);
    let mut response = next.run(request).await;
    server.metrics.requests.count(watched, response.status());
    protect(response.headers_mut());
    response
}

/// Adds headers that keep browsers from running, framing, sharing or caching an answer.
fn protect(headers: &mut HeaderMap) {
    for (name, value) in [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (HeaderName::from_static("content-security-policy"), "default-src 'none'"),
        (HeaderName::from_static("referrer-policy"), "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (CACHE_CONTROL, "no-store"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}
