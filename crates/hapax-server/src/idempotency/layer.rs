//! The tower layer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::SystemTime;

use axum_core::body::Body;
use bytes::{Bytes, BytesMut};
use hapax::{Done, EffectBuilder, Error, Failure, Finding, Hapax, How, Outcome, Safety, State};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use tokio::sync::Semaphore;
use tower_layer::Layer;
use tower_service::Service;

use super::grpc::{self, Protocol};
use super::keyed::{KeyedRequest, PendingRequest};
use super::settings::{KeyNeed, Settings, Settlement};
use super::stored;
use crate::access::Room;
use crate::body::collected;
use crate::problem::{KEY_MISSING, Kind, NO_ANSWER, NOT_KEPT, OTHER_CALLER, Problem, TOO_MANY};

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Looking = Pin<Box<dyn Future<Output = Finding> + Send>>;
type Look = Arc<dyn Fn(PendingRequest) -> Looking + Send + Sync>;

/// How the reason begins for which a request that its service refused did not happen.
const REFUSED: &str = "refused: ";

/// The reason to record for an answer, in place of its status. Among the extensions of a response.
#[derive(Debug, Clone)]
pub(crate) struct RecordedReason(pub(crate) String);

/// Gives a service the semantics of `Idempotency-Key`. The service takes requests with axum's body
/// type, as axum's and tonic's routers do. The layer itself takes any request body of bytes.
///
/// ```
/// use axum::routing::post;
/// use hapax::Hapax;
/// use hapax_server::idempotency::{IdempotencyLayer, Settings};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let hapax = Hapax::builder().in_memory();
/// let app: axum::Router = axum::Router::new()
///     .route("/charges", post(|| async { "charged" }))
///     .layer(IdempotencyLayer::new(hapax, Settings::default()));
/// # }
/// ```
#[derive(Clone)]
pub struct IdempotencyLayer {
    hapax: Hapax,
    settings: Arc<Settings>,
    safety: Safety,
    look: Option<Look>,
    /// Limits the requests that are passed on at once.
    room: Arc<Semaphore>,
}

impl IdempotencyLayer {
    /// A layer whose requests are effects of this ledger.
    pub fn new(hapax: Hapax, settings: Settings) -> Self {
        let room = Arc::new(Semaphore::new(settings.at_once));
        let settings = Arc::new(settings);
        Self { hapax, settings, safety: Safety::Opaque, look: None, room }
    }

    /// Waits until no request is being passed on, even for clients that have left. None is passed
    /// on from then on.
    pub async fn drained(&self) {
        let all = u32::try_from(self.settings.at_once).unwrap_or(u32::MAX);
        if let Ok(all) = self.room.acquire_many(all).await {
            all.forget();
        }
    }

    /// Whether the outcome can be found out when this process dies while the service is at work.
    /// Default: [`Safety::Opaque`], so a person has to find out.
    pub fn safety(mut self, safety: Safety) -> Self {
        self.safety = safety;
        self
    }

    /// Sets the lookup for a request that was passed on and not answered; for
    /// [`Safety::Reconcilable`].
    pub fn look<F, Fut>(mut self, look: F) -> Self
    where
        F: Fn(PendingRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Finding> + Send + 'static,
    {
        self.look = Some(Arc::new(move |request| Box::pin(look(request))));
        self
    }

    fn effect(&self, keyed: &KeyedRequest) -> EffectBuilder {
        let mut effect = self
            .hapax
            .effect(keyed.name)
            .fingerprint(keyed.fingerprint)
            .label(keyed.label.as_str())
            .safety(self.safety)
            .wait(keyed.wait);
        if let Some(lifetime) = self.settings.lifetime {
            effect = effect.ttl(lifetime);
        }
        if let Some(look) = self.look.clone() {
            let request = keyed.pending.clone();
            effect = effect.reconcile(move |_| look(request.clone()));
        }
        effect
    }

    /// Frees the key of a recorded request that did not happen, if that request does not bind this
    /// one: the service refused it, or it was another caller's. Otherwise returns the error to
    /// answer with.
    async fn unbind(&self, keyed: &KeyedRequest, conflict: Error) -> Result<(), Error> {
        let effects = self.hapax.effects();
        let effect = effects.show(keyed.name).await?;
        let Some(effect) = effect.filter(|effect| effect.fingerprint != keyed.fingerprint) else {
            return Ok(());
        };
        let other_caller = self.settings.identity.differs(effect.fingerprint, keyed.fingerprint);
        match &effect.state {
            State::Failed(failure) if other_caller || failure.reason.starts_with(REFUSED) => {}
            // The service may refuse that caller, and then the key is free.
            State::Running { .. } if other_caller => {
                return Err(Error::InFlight { attempt: effect.attempt });
            }
            _ => return Err(conflict),
        }
        let note = "the request that is recorded under this key did not happen";
        effects.unbind(keyed.name, effect.attempt, "hapax", note).await?;
        Ok(())
    }

    /// Passes a request on, unless one with its key was passed on before.
    async fn once<S, R>(&self, inner: S, head: Parts, key: String, body: Bytes) -> Answered
    where
        S: Service<Request<Body>, Response = Response<R>> + Send + 'static,
        S::Future: Send,
        S::Error: fmt::Display + Send,
        R: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        R::Error: Into<BoxError>,
    {
        let keyed = KeyedRequest::of(&self.settings, &head, key, &body)?;
        let Ok(room) = self.room.clone().try_acquire_owned() else {
            let detail = "too many requests are being passed on at once";
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, &TOO_MANY, detail));
        };
        let protocol = Protocol::of(&head.headers);
        let passed: Arc<Mutex<Passed>> = Arc::default();
        let held = head.extensions.get::<Room>().cloned();
        let request = Request::from_parts(head, Body::from(body));
        // The claim that is granted takes the request out of here.
        let unsent = Arc::new(Mutex::new(Some((inner, request))));
        let (layer, progress) = (self.clone(), passed.clone());
        // A task of its own: a client that leaves does not cancel the effect.
        let run = tokio::spawn(async move {
            let _room = (room, held);
            let send = || {
                let (unsent, passed) = (unsent.clone(), progress.clone());
                let settings = layer.settings.clone();
                layer.effect(&keyed).run(move |_| async move {
                    let taken =
                        unsent.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
                    match taken {
                        Some((inner, request)) => pass_on(inner, request, settings, passed).await,
                        None => Err(Failure::ambiguous("the request was passed on before")),
                    }
                })
            };
            match send().await {
                Err(conflict @ Error::Conflict { .. }) => {
                    match layer.unbind(&keyed, conflict).await {
                        Ok(()) => send().await,
                        Err(error) => Err(error),
                    }
                }
                done => done,
            }
        });
        let done = run.await;
        let passed =
            std::mem::take(&mut *passed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        match (done, passed) {
            (Ok(Ok(Done { how: How::Executed, .. })), Passed::Answered(live)) => {
                Ok(self.kept_until(live, now()))
            }
            (Ok(Ok(done)), _) => self.replayed(&done.outcome, protocol),
            // This request was passed on, and its outcome could not be recorded.
            (_, Passed::Answered(live)) => Ok(live),
            (_, Passed::On) => {
                let detail = "the request was passed on, and no readable answer came";
                Err(Problem::new(StatusCode::BAD_GATEWAY, &NO_ANSWER, detail))
            }
            (Ok(Err(error)), Passed::Not) => Err(problem(&error, &self.settings)),
            (Err(error), Passed::Not) => {
                let error = Error::Failed { reason: error.to_string() };
                Err(problem(&error, &self.settings))
            }
        }
    }

    fn replayed(&self, outcome: &Outcome, protocol: Protocol) -> Answered {
        let read = outcome.body().and_then(stored::read);
        let Some((mut response, at)) = read else {
            let detail = "the recorded outcome is not an HTTP answer";
            return Err(Problem::new(StatusCode::CONFLICT, &NOT_KEPT, detail));
        };
        if response.headers_mut().remove(stored::BODY_NOT_KEPT).is_some() {
            let detail = "the answer was too large to record, or could not be redacted";
            response = protocol.refuse(Problem::new(response.status(), &NOT_KEPT, detail));
        }
        response.headers_mut().insert("idempotent-replayed", HeaderValue::from_static("true"));
        Ok(self.kept_until(response, at))
    }

    fn kept_until(&self, mut response: Response<Body>, since: SystemTime) -> Response<Body> {
        let until = self.settings.lifetime.and_then(|lifetime| since.checked_add(lifetime));
        let text = until.map(httpdate::fmt_http_date);
        if let Some(value) = text.and_then(|text| HeaderValue::from_str(&text).ok()) {
            response.headers_mut().insert("idempotency-expires", value);
        }
        response
    }
}

/// The response for the client, or the problem.
type Answered = Result<Response<Body>, Problem>;

/// How far this request came, apart from earlier ones with its key.
#[derive(Default)]
enum Passed {
    /// The service has not seen it.
    #[default]
    Not,
    /// The service may have seen it.
    On,
    /// The service has answered.
    Answered(Response<Body>),
}

/// Calls the service, and derives from its answer what happened to the effect.
async fn pass_on<S, R>(
    mut inner: S,
    request: Request<Body>,
    settings: Arc<Settings>,
    passed: Arc<Mutex<Passed>>,
) -> Result<Outcome, Failure>
where
    S: Service<Request<Body>, Response = Response<R>>,
    S::Error: fmt::Display,
    R: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    R::Error: Into<BoxError>,
{
    let note = |how| *passed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = how;
    note(Passed::On);
    let response = inner.call(request).await;
    let response = response.map_err(|error| {
        Failure::ambiguous(format!("the service failed before its answer: {error}"))
    })?;
    let (head, body) = response.into_parts();
    let status = head.status;
    let read = read_up_to(settings.largest_answer, body);
    let Read { start, trailers, rest } = tokio::time::timeout(settings.longest_answer, read)
        .await
        .map_err(|_| Failure::ambiguous(format!("answered {status} and did not come to an end")))?
        .map_err(|error| Failure::ambiguous(format!("answered {status} and broke off: {error}")))?;
    let is_refusal = matches!(status.as_u16(), 401 | 403 | 407 | 429)
        || grpc::refuses_caller(&head.headers, &trailers);
    let reason =
        match (head.extensions.get::<RecordedReason>(), grpc::code(&head.headers, &trailers)) {
            (Some(RecordedReason(reason)), _) => reason.clone(),
            (None, Some(code)) => format!("answered gRPC status {code}"),
            (None, None) => format!("answered {status}"),
        };
    let fate = head.extensions.get().copied();
    let fate = fate.or_else(|| grpc::fate(&head.headers, &trailers));
    let fate = fate.unwrap_or_else(|| settings.fate(status));
    let whole_body = rest.is_none().then_some(&start[..]);
    let outcome = stored::kept(&settings, &head, whole_body, &trailers);
    let body = match rest {
        None => whole(start, trailers),
        Some(rest) => Body::new(Prefixed { start: Some(start), rest }),
    };
    note(Passed::Answered(Response::from_parts(head, body)));
    match fate {
        Settlement::Settled => Ok(Outcome::new(outcome)),
        Settlement::NotDone if is_refusal => Err(Failure::not_done(format!("{REFUSED}{reason}"))),
        Settlement::NotDone => Err(Failure::not_done(reason)),
        Settlement::Unknown => Err(Failure::ambiguous(reason)),
    }
}

/// Reads an answer, and serializes it as these settings say.
pub(crate) async fn written_down<R>(
    settings: &Settings,
    response: Response<R>,
) -> Result<Vec<u8>, BoxError>
where
    R: http_body::Body<Data = Bytes> + Unpin,
    R::Error: Into<BoxError>,
{
    let (head, body) = response.into_parts();
    let Read { start, trailers, rest } = read_up_to(settings.largest_answer, body).await?;
    Ok(stored::kept(settings, &head, rest.is_none().then_some(&start[..]), &trailers))
}

/// The part of a body that was read.
struct Read<R> {
    start: Bytes,
    trailers: HeaderMap,
    /// The unread part, if the body is larger than the limit.
    rest: Option<R>,
}

async fn read_up_to<R>(largest: usize, mut body: R) -> Result<Read<R>, BoxError>
where
    R: http_body::Body<Data = Bytes> + Unpin,
    R::Error: Into<BoxError>,
{
    let (mut read, mut trailers) = (BytesMut::new(), HeaderMap::new());
    while let Some(frame) = body.frame().await {
        match frame.map_err(Into::into)?.into_data() {
            Ok(data) => read.extend_from_slice(&data),
            Err(frame) => trailers.extend(frame.into_trailers().unwrap_or_default()),
        }
        if read.len() > largest {
            return Ok(Read { start: read.freeze(), trailers, rest: Some(body) });
        }
    }
    Ok(Read { start: read.freeze(), trailers, rest: None })
}

/// A body of known bytes, followed by its trailers.
pub(super) fn whole(body: Bytes, trailers: HeaderMap) -> Body {
    match trailers.is_empty() {
        true => Body::from(body),
        false => {
            let trailers = async { Some(Ok(trailers)) };
            Body::new(Full::new(body).with_trailers(trailers))
        }
    }
}

/// A body whose beginning was already read.
struct Prefixed<R> {
    start: Option<Bytes>,
    rest: R,
}

impl<R: http_body::Body<Data = Bytes> + Unpin> http_body::Body for Prefixed<R> {
    type Data = Bytes;
    type Error = R::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, R::Error>>> {
        match self.start.take() {
            Some(start) => Poll::Ready(Some(Ok(http_body::Frame::data(start)))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }
}

fn now() -> SystemTime {
    SystemTime::now()
}

/// The problem for a request that gets no answer.
fn problem(error: &Error, settings: &Settings) -> Problem {
    let kind = |title, retryable, next| Kind { code: error.code(), title, retryable, next };
    let (status, kind, detail) = match error {
        Error::Conflict { recorded, asked } if settings.identity.differs(*recorded, *asked) => {
            let detail = "a request with other credentials is recorded under this key";
            return Problem::new(StatusCode::CONFLICT, &OTHER_CALLER, detail);
        }
        Error::Conflict { .. } => (
            settings.mismatch,
            kind(
                "Idempotency-Key was used for another request",
                false,
                "Use a new key for a new request; send the same body with the same key.",
            ),
            "the key is recorded with another body, query or content type",
        ),
        Error::InFlight { .. } | Error::Locked { .. } => (
            StatusCode::CONFLICT,
            kind(
                "The same request is in flight",
                true,
                "Send it again later with the same key, or ask to wait with Prefer: wait=10.",
            ),
            "its answer is not known yet",
        ),
        Error::Blocked(_) => (
            StatusCode::CONFLICT,
            kind(
                "The outcome is unknown",
                false,
                "It is not sent again. Find out whether it happened, then: hapax effects resolve",
            ),
            "an earlier request with this key was passed on and not answered",
        ),
        Error::Failed { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            kind("It did not happen", true, "Send it again with the same key."),
            "the request that this one waited for did not happen",
        ),
        Error::Unrecorded { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            kind(
                "It was passed on, and the ledger could not record its answer",
                true,
                "Send it again later with the same key; it is not sent twice. Do not use another key.",
            ),
            "the request was passed on, and its answer could not be recorded yet",
        ),
        Error::Undecided { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            kind(
                "Whether it may be passed on is not known yet",
                true,
                "Send it again later with the same key; it is not sent twice.",
            ),
            "another transaction has its record and has not ended",
        ),
        Error::Store(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            kind(
                "The ledger cannot be reached",
                true,
                "Send it again later with the same key; it is not sent twice.",
            ),
            "a request that cannot be recorded is not passed on",
        ),
        _ => (
            StatusCode::INTERNAL_SERVER_ERROR,
            kind("No answer", false, "Ask with the same key; it is not sent twice."),
            "the request could not be carried to its end",
        ),
    };
    // Only server errors are logged; a client's own mistake is in its response.
    if status.is_server_error() {
        let code = kind.code;
        tracing::warn!(name: "request_not_passed_on", code, %error, "a request was not passed on");
    }
    Problem::new(status, &kind, detail)
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotency<S>;

    fn layer(&self, inner: S) -> Idempotency<S> {
        Idempotency { inner, layer: self.clone() }
    }
}

/// A service with the semantics of `Idempotency-Key`. Made by [`IdempotencyLayer`].
#[derive(Clone)]
pub struct Idempotency<S> {
    inner: S,
    layer: IdempotencyLayer,
}

impl<S, B, R> Service<Request<B>> for Idempotency<S>
where
    S: Service<Request<Body>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: fmt::Display + Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // `self.inner` is the ready one. The call takes it, and its clone stays for the next.
        let copy = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, copy);
        let layer = self.layer.clone();
        Box::pin(async move {
            let settings = &layer.settings;
            let (head, body) = request.into_parts();
            let protocol = Protocol::of(&head.headers);
            let looked_at = settings.methods.contains(&head.method);
            let key = if looked_at { settings.key_of(&head) } else { Ok(None) };
            let answered = match key {
                Err(problem) => Err(problem),
                Ok(None) if looked_at && settings.need == KeyNeed::Required => {
                    let detail = format!("{} needs one here", head.method);
                    Err(Problem::new(StatusCode::BAD_REQUEST, &KEY_MISSING, detail))
                }
                Ok(None) => {
                    let request = Request::from_parts(head, Body::new(body));
                    Ok(inner.call(request).await?.map(Body::new))
                }
                Ok(Some(key)) => {
                    match collected(body, settings.largest_request, settings.longest_request).await
                    {
                        Ok(body) => layer.once(inner, head, key, body).await,
                        Err(problem) => Err(problem),
                    }
                }
            };
            Ok(answered.unwrap_or_else(|problem| protocol.refuse(problem)))
        })
    }
}
