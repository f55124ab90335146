//! One suite for the layer and for the proxy.

mod callers;
mod forwarded;
mod grpc;
mod limits;
mod plain;
mod policy;
mod reasons;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::{any, get};
use bytes::Bytes;
use hapax::{Hapax, Safety, Settling, StateName};
use hapax_server::idempotency::{
    IdempotencyLayer, KeyNeed, OnInFlight, Preset, Settings, Settlement, Tenant,
};
use hapax_server::listener::{ConnectionLimits, ListeningSocket, serve};
use hapax_server::proxy::Upstream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tower_layer::Layer as _;

const LONG: Duration = Duration::from_secs(30);

/// A body that begins and does not end.
mod futures_body {
    use super::Bytes;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    pub(super) struct Stalling(pub(super) Option<Bytes>);

    /// A body that begins and breaks off.
    pub(super) struct Breaking(pub(super) Option<Bytes>);

    impl http_body::Body for Breaking {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
            Poll::Ready(Some(match self.0.take() {
                Some(start) => Ok(http_body::Frame::data(start)),
                None => Err(std::io::ErrorKind::ConnectionReset.into()),
            }))
        }
    }

    impl http_body::Body for Stalling {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
            match self.0.take() {
                Some(start) => Poll::Ready(Some(Ok(http_body::Frame::data(start)))),
                None => Poll::Pending,
            }
        }
    }
}

/// The service behind the layer or the proxy: it counts its calls.
#[derive(Clone)]
struct Service {
    calls: Arc<AtomicUsize>,
    /// Requests with `?wait` each take one permit.
    gate: Arc<Semaphore>,
}

async fn charge(State(service): State<Service>, request: Request<Body>) -> Response<Body> {
    let nth = service.calls.fetch_add(1, Ordering::SeqCst) + 1;
    let behavior = request.uri().query().unwrap_or_default().to_owned();
    let body = request.into_body().collect().await.expect("a body").to_bytes();
    let mut response = Response::new(Body::from(format!("{nth}: {} bytes", body.len())));
    response.headers_mut().insert("location", "/charges/7".parse().expect("a value"));
    response.headers_mut().insert("set-cookie", "session=1".parse().expect("a value"));
    match behavior.as_str() {
        "wait" => service.gate.acquire().await.expect("open").forget(),
        "large" => *response.body_mut() = Body::from(vec![b'x'; 200_000]),
        "never" => std::future::pending().await,
        "stall" => {
            let start = futures_body::Stalling(Some(Bytes::from_static(b"so far")));
            *response.body_mut() = Body::new(start);
        }
        "break" => {
            let start = futures_body::Breaking(Some(Bytes::from_static(b"so far")));
            *response.body_mut() = Body::new(start);
        }
        "break-late" => {
            let start = futures_body::Breaking(Some(vec![b'x'; 200_000].into()));
            *response.body_mut() = Body::new(start);
        }
        "panic" => panic!("the handler panics, on purpose"),
        "card" => *response.body_mut() = Body::from(r#"{"id":7,"card":{"number":"4111"}}"#),
        "fate" => {
            response.extensions_mut().insert(Settlement::NotDone);
        }
        status => {
            if let Ok(status) = status.parse::<u16>() {
                *response.status_mut() = StatusCode::from_u16(status).expect("a status");
            }
        }
    }
    response
}

/// A service that is called over HTTP, behind the layer or the proxy.
struct World {
    name: &'static str,
    url: String,
    service: Service,
    hapax: Hapax,
}

async fn listen<S>(limits: ConnectionLimits, service: S) -> String
where
    S: tower_service::Service<
            Request<Body>,
            Response = Response<Body>,
            Error = std::convert::Infallible,
            Future: Send,
        > + Clone
        + Send
        + Sync
        + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let socket = ListeningSocket { listener, tls: None, limits };
    tokio::spawn(serve(socket, service, std::future::pending()));
    url
}

impl World {
    async fn layer(settings: Settings) -> Self {
        Self::layer_on(Hapax::builder().in_memory(), settings).await
    }

    async fn layer_on(hapax: Hapax, settings: Settings) -> Self {
        let (service, app) = app();
        let layer = IdempotencyLayer::new(hapax.clone(), settings);
        let url = listen(ConnectionLimits::default(), app.layer(layer)).await;
        Self { name: "layer", url, service, hapax }
    }

    async fn proxy(settings: Settings) -> Self {
        Self::proxy_on(Hapax::builder().in_memory(), settings).await
    }

    async fn proxy_on(hapax: Hapax, settings: Settings) -> Self {
        let (service, app) = app();
        let upstream =
            Upstream::new(&listen(ConnectionLimits::default(), app).await, Duration::from_secs(2))
                .expect("a URL");
        let layer = IdempotencyLayer::new(hapax.clone(), settings);
        let url = listen(ConnectionLimits::default(), layer.layer(upstream)).await;
        Self { name: "proxy", url, service, hapax }
    }

    async fn both(settings: &Settings) -> [Self; 2] {
        [Self::layer(settings.clone()).await, Self::proxy(settings.clone()).await]
    }

    fn calls(&self) -> usize {
        self.service.calls.load(Ordering::SeqCst)
    }

    async fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.send(Method::POST, path, headers, body).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(body.to_owned())).expect("a request");
        let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let answered = tokio::time::timeout(LONG, client.request(request)).await;
        let (head, body) = answered.expect("in time").expect("an answer").into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        Answer { head, body: String::from_utf8_lossy(&body).into_owned() }
    }

    async fn charge(&self, key: &str, body: &str) -> Answer {
        self.post("/charges", &[("idempotency-key", key)], body).await
    }
}

fn app() -> (Service, Router) {
    let service = Service { calls: Arc::default(), gate: Arc::new(Semaphore::new(0)) };
    let router = Router::new()
        .route("/charges", any(charge))
        .route("/other", any(charge))
        .with_state(service.clone());
    (service, router)
}

#[derive(Debug)]
struct Answer {
    head: http::response::Parts,
    body: String,
}

impl Answer {
    fn status(&self) -> u16 {
        self.head.status.as_u16()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name).map(|value| value.to_str().expect("text"))
    }

    fn replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// The code of the problem in the answer.
    fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let body: serde_json::Value = serde_json::from_str(&self.body).expect("JSON");
        assert_eq!(body["status"], self.status());
        assert_eq!(body["retryable"] == true, self.header("retry-after").is_some());
        for text in ["type", "title", "detail", "next_action"] {
            assert!(body[text].as_str().is_some_and(|text| !text.is_empty()), "{body}");
        }
        body["code"].as_str().expect("a code").to_owned()
    }
}

/// Waits until a service has been called this often.
async fn called(world: &World, calls: usize) {
    let wait = async {
        while world.calls() < calls {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("the service is called");
}

/// Proves S-2, S-3: a replay has the same answer without a call of the service.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_is_answered_as_before() {
    for world in World::both(&Settings::default()).await {
        let first = world.charge("\"k1\"", "EUR 10").await;
        assert_eq!((first.status(), first.body.as_str()), (200, "1: 6 bytes"), "{}", world.name);
        assert!(!first.replayed());
        assert_eq!(first.header("set-cookie"), Some("session=1"));
        let again = world.charge("k1", "EUR 10").await;
        assert_eq!((again.status(), &again.body), (200, &first.body));
        assert!(again.replayed());
        assert_eq!(again.header("location"), Some("/charges/7"));
        assert_eq!(again.header("set-cookie"), None, "not written down");
        let expires = httpdate::parse_http_date(again.header("idempotency-expires").expect("one"));
        let left = expires.expect("a date").duration_since(std::time::SystemTime::now());
        assert!(left.expect("in the future") > Duration::from_secs(23 * 3600));
        assert_eq!(world.calls(), 1);
    }
}

/// Proves S-2: a key counts for its tenant, method and path only.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_counts_for_its_tenant_method_and_path() {
    let settings = Settings::default().tenant(Tenant::Header("x-tenant".parse().expect("a name")));
    for world in World::both(&settings).await {
        let ask = async |path: &str, tenant: &str| {
            world.post(path, &[("idempotency-key", "k"), ("x-tenant", tenant)], "a").await
        };
        for (nth, (path, tenant)) in
            [("/charges", "a"), ("/charges", "b"), ("/other", "a")].into_iter().enumerate()
        {
            assert!(!ask(path, tenant).await.replayed());
            assert!(ask(path, tenant).await.replayed());
            assert_eq!(world.calls(), nth + 1, "{}", world.name);
        }
        for headers in [vec![], vec![("x-tenant", "a"), ("x-tenant", "b")], vec![("x-tenant", "")]]
        {
            let headers = [vec![("idempotency-key", "k")], headers].concat();
            let response = world.post("/charges", &headers, "a").await;
            assert_eq!((response.status(), response.problem()), (400, "HX0308".into()));
        }
        let other_query = ask("/charges?x=1", "a").await;
        assert_eq!((other_query.status(), other_query.problem()), (422, "HX0202".into()));
    }
}

/// Proves S-2: 400 where a key is missing or malformed; requests that need no key are passed on.
#[tokio::test(flavor = "multi_thread")]
async fn keys_are_asked_for_where_they_are_needed() {
    for world in World::both(&Settings::default()).await {
        let none = world.post("/charges", &[], "a").await;
        assert_eq!((none.status(), none.problem()), (400, "HX0301".into()), "{}", world.name);
        let odd = world.charge("\"k", "a").await;
        assert_eq!((odd.status(), odd.problem()), (400, "HX0302".into()));
        assert_eq!(world.calls(), 0);
        let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let read = client.get(format!("{}/charges", world.url).parse().expect("a URL")).await;
        assert_eq!(read.expect("an answer").status(), 200);
    }
    let optional = Settings::default().need(KeyNeed::Optional);
    for world in World::both(&optional).await {
        assert_eq!(world.post("/charges", &[], "a").await.status(), 200);
        assert_eq!(world.post("/charges", &[], "a").await.body, "2: 1 bytes");
    }
}

/// Proves S-2, K-3: another body under the key is refused, even while the first request is in flight.
#[tokio::test(flavor = "multi_thread")]
async fn another_body_is_refused_before_everything_else() {
    for world in World::both(&Settings::default()).await {
        let world = Arc::new(world);
        let first = tokio::spawn({
            let world = world.clone();
            async move { world.post("/charges?wait", &[("idempotency-key", "k")], "a").await }
        });
        called(&world, 1).await;
        let ask =
            |body: &'static str| world.post("/charges?wait", &[("idempotency-key", "k")], body);
        let other = ask("b").await;
        assert_eq!((other.status(), other.problem()), (422, "HX0202".into()), "{}", world.name);
        let same = ask("a").await;
        assert_eq!((same.status(), same.problem()), (409, "HX0201".into()));
        world.service.gate.add_permits(1);
        assert_eq!(first.await.expect("no panic").status(), 200);
        assert_eq!(ask("b").await.status(), 422);
        assert!(ask("a").await.replayed());
        assert_eq!(world.calls(), 1);
    }
    for world in World::both(&Settings::new(Preset::Stripe)).await {
        assert_eq!(world.charge("k", "a").await.status(), 200);
        assert_eq!(world.charge("k", "b").await.status(), 400);
    }
}

/// Proves S-3, K-9: of 64 requests at once, one reaches the service, and all are answered.
#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_at_once_reach_the_service_once() {
    let settings = Settings::default().in_flight(OnInFlight::Wait(LONG));
    for world in World::both(&settings).await {
        let world = Arc::new(world);
        let ask = |_| {
            let world = world.clone();
            let headers = [("idempotency-key", "k")];
            tokio::spawn(async move { world.post("/charges?wait", &headers, "a").await })
        };
        let requests: Vec<_> = (0..64).map(ask).collect();
        called(&world, 1).await;
        world.service.gate.add_permits(64);
        let mut replayed = 0;
        for answer in requests {
            let answer = answer.await.expect("no panic");
            assert_eq!((answer.status(), answer.body.as_str()), (200, "1: 1 bytes"));
            replayed += usize::from(answer.replayed());
        }
        assert_eq!((world.calls(), replayed), (1, 63), "{}", world.name);
    }
}

/// Proves S-3: only final answers are kept.
#[tokio::test(flavor = "multi_thread")]
async fn transient_answers_are_passed_on_and_not_kept() {
    for world in World::both(&Settings::default()).await {
        for (status, kept) in [
            ("400", true),
            ("404", true),
            ("409", true),
            ("429", false),
            ("500", false),
            ("503", false),
        ] {
            let path = format!("/charges?{status}");
            let ask = async || world.post(&path, &[("idempotency-key", status)], "a").await;
            let before = world.calls();
            assert_eq!(ask().await.status().to_string(), status, "{}", world.name);
            let again = ask().await;
            assert_eq!((again.status().to_string(), again.replayed()), (status.into(), kept));
            assert_eq!(world.calls() - before, if kept { 1 } else { 2 }, "{status}");
        }
    }
    // A service can state the fate itself, whatever its status.
    let world = World::layer(Settings::default()).await;
    for nth in 1..3 {
        world.post("/charges?fate", &[("idempotency-key", "k")], "a").await;
        assert_eq!(world.calls(), nth);
    }
}

/// Proves S-3, K-7: a request with an unknown outcome is not passed on again, and the answer says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_was_not_answered_is_not_sent_again() {
    let settings = Settings::default().longest_answer(Duration::from_millis(300));
    for world in World::both(&settings).await {
        for ending in ["504", "panic", "stall", "break", "never"] {
            // The layer does not limit how long a handler takes.
            if world.name == "layer" && ending == "never" {
                continue;
            }
            let path = format!("/charges?{ending}");
            let ask = async || world.post(&path, &[("idempotency-key", ending)], "a").await;
            let before = world.calls();
            let first = ask().await;
            assert!(first.status() == 502 || first.status() == 504, "{ending}: {first:?}");
            if ending != "504" {
                assert_eq!(first.problem(), "HX0306", "it may have happened");
            }
            for _ in 0..3 {
                let again = ask().await;
                assert_eq!((again.status(), again.problem()), (409, "HX0203".into()), "{ending}");
            }
            assert_eq!(world.calls() - before, 1, "{} {ending}", world.name);
        }
        let unknown =
            world.hapax.effects().list(&[StateName::Indeterminate], 10).await.expect("a list");
        assert_eq!(
            unknown.len(),
            if world.name == "layer" { 4 } else { 5 },
            "shown as needing attention"
        );
    }
}

/// Proves S-3: if nothing was sent, the request may be retried.
#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_cannot_be_reached_did_nothing() {
    let hapax = Hapax::builder().in_memory();
    let port = hapax_testkit::free_port();
    let address = format!("127.0.0.1:{port}");
    let upstream = Upstream::new(&format!("http://{address}"), LONG).expect("a URL");
    let layer = IdempotencyLayer::new(hapax.clone(), Settings::default());
    let url = listen(ConnectionLimits::default(), layer.layer(upstream)).await;
    let (service, app) = app();
    let world = World { name: "proxy", url, service, hapax };
    let down = world.charge("k", "a").await;
    assert_eq!((down.status(), down.problem()), (502, "HX0305".into()));
    let listener = TcpListener::bind(&address).await.expect("the port");
    let socket = ListeningSocket { listener, tls: None, limits: ConnectionLimits::default() };
    tokio::spawn(serve(socket, app, std::future::pending()));
    assert_eq!(world.charge("k", "a").await.status(), 200);
}

/// Proves S-3, K-7: a probe asks the service whether the request happened.
#[tokio::test(flavor = "multi_thread")]
async fn a_probe_finds_out_what_became_of_a_request() {
    let hapax = Hapax::builder().in_memory();
    let (service, app) = app();
    let app = app.route(
        "/by-key/{key}",
        get(|path: axum::extract::Path<String>| async move {
            match path.0.as_str() {
                "found it" => (StatusCode::OK, "charged, as I see now"),
                _ => (StatusCode::NOT_FOUND, "no"),
            }
        }),
    );
    let upstream =
        Upstream::new(&listen(ConnectionLimits::default(), app).await, Duration::from_millis(300))
            .expect("a URL");
    let prober = upstream.clone();
    let layer = IdempotencyLayer::new(hapax.clone(), Settings::default())
        .safety(Safety::Reconcilable(Settling::TargetRefusesLate))
        .look(move |request| {
            let prober = prober.clone();
            async move { prober.probe("/by-key/{key}", &request, &Settings::default()).await }
        });
    let url = listen(ConnectionLimits::default(), layer.layer(upstream)).await;
    let world = World { name: "proxy", url, service, hapax };
    let ask =
        async |key: &str| world.post("/charges?never", &[("idempotency-key", key)], "a").await;
    assert_eq!(ask("\"found it\"").await.problem(), "HX0306");
    let found = ask("\"found it\"").await;
    assert_eq!((found.status(), found.body.as_str()), (200, "charged, as I see now"));
    assert!(found.replayed());
    assert_eq!(world.calls(), 1);
    assert_eq!(ask("lost").await.problem(), "HX0306");
    // It did not happen, so it is passed on once more, and again gets no answer.
    assert_eq!(ask("lost").await.problem(), "HX0306");
    assert_eq!(world.calls(), 3);
}

/// Proves K-10, S-2: without the ledger, no request with a key is passed on.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_ledger_nothing_is_passed_on() {
    let server = hapax_testkit::Postgres::start();
    let open = async |name| Hapax::open(server.database(name)).await.expect("a ledger");
    let worlds = [
        World::layer_on(open("layer").await, Settings::default()).await,
        World::proxy_on(open("proxy").await, Settings::default()).await,
    ];
    for world in &worlds {
        assert_eq!(world.charge("k1", "a").await.status(), 200);
    }
    drop(server);
    let ask = async |world: &World| {
        let down = world.charge("k2", "a").await;
        assert_eq!(down.status(), 503, "{}", world.name);
        assert!(down.problem().starts_with("HX01"), "{down:?}");
        assert_eq!(world.calls(), 1, "{}", world.name);
    };
    let [layer, proxy] = &worlds;
    tokio::join!(ask(layer), ask(proxy));
}

/// Proves S-3: a client that leaves does not cancel the effect.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_finds_the_answer_later() {
    for world in World::both(&Settings::default().in_flight(OnInFlight::Wait(LONG))).await {
        let world = Arc::new(world);
        let leaving = tokio::spawn({
            let world = world.clone();
            async move { world.post("/charges?wait", &[("idempotency-key", "k")], "a").await }
        });
        called(&world, 1).await;
        leaving.abort();
        world.service.gate.add_permits(1);
        let again = world.post("/charges?wait", &[("idempotency-key", "k")], "a").await;
        assert_eq!((again.status(), again.body.as_str()), (200, "1: 1 bytes"));
        assert!(again.replayed());
        assert_eq!(world.calls(), 1, "{}", world.name);
    }
}
