//! Authentication, namespaces and allowances.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use hapax::{Hapax, Namespace, Role, Secret, Timestamp, Token, TokenId};
use http::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::named_by_path;
use crate::problem::{FORBIDDEN, MALFORMED, NOT_LOCAL, Problem, TOO_OFTEN, UNKNOWN_CALLER};
use crate::server::Server;

/// The longest age of the token list: a revoked token is refused after this long.
const FRESH: Duration = Duration::from_secs(1);

/// The longest age of the list when it lacks the token, which may be new. It bounds how often a
/// client that guesses tokens makes the server read the ledger.
const FRESH_FOR_STRANGERS: Duration = Duration::from_millis(20);

/// The header that names the namespace, for a token that is good in all of them.
const NAMESPACE: &str = "hapax-namespace";

/// The caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The role of the caller.
    pub role: Role,
    /// The namespace of the request.
    pub namespace: Namespace,
    /// Whether the caller may name any namespace.
    pub everywhere: bool,
    /// The token that the caller showed; none on a server without tokens.
    pub token: Option<TokenId>,
    /// The holder of the token, for the journal.
    pub holder: String,
}

impl Caller {
    /// The tenant whose `Idempotency-Key` values are kept apart from those of other tenants.
    pub(crate) fn tenant(&self) -> String {
        let token = self.token.map_or_else(|| "-".to_owned(), |token| token.to_string());
        format!("{}/{token}", self.namespace)
    }
}

/// The callers that a server lets in.
pub enum Access {
    /// Programs on this machine, without a token. Pages of other origins are refused. For development.
    Everybody,
    /// Callers that show a token of the ledger.
    Tokens(TokenCache),
}

impl Access {
    async fn caller(&self, head: &Parts, hapax: &Hapax) -> Result<Caller, Problem> {
        match self {
            Self::Everybody => {
                refuse_pages(head)?;
                let (role, holder) = (Role::Steward, "development".to_owned());
                let namespace = named(head)?;
                Ok(Caller { role, namespace, everywhere: true, token: None, holder })
            }
            Self::Tokens(tokens) => {
                let token = tokens.shown(head, hapax).await?;
                let namespace = match (&token.namespace, head.headers.contains_key(NAMESPACE)) {
                    (None, _) => named(head)?,
                    (Some(namespace), false) => namespace.clone(),
                    (Some(namespace), true) if named(head)? == *namespace => namespace.clone(),
                    (Some(_), true) => {
                        let detail = "the token is good in another namespace";
                        return Err(Problem::new(StatusCode::FORBIDDEN, &FORBIDDEN, detail));
                    }
                };
                let everywhere = token.namespace.is_none();
                let Token { role, id, holder, .. } = token;
                Ok(Caller { role, namespace, everywhere, token: Some(id), holder })
            }
        }
    }

    /// Whether a caller that was let in still has a valid token.
    pub(crate) async fn still_admits(&self, caller: &Caller, hapax: &Hapax) -> bool {
        match (self, caller.token) {
            (Self::Everybody, _) => true,
            (Self::Tokens(_), None) => false,
            (Self::Tokens(tokens), Some(id)) => match tokens.known(hapax, FRESH).await {
                Ok(known) => known.get(&id).is_some_and(|token| token.counts(now())),
                // The journal cannot be read now either, so the stream sends nothing.
                Err(_) => true,
            },
        }
    }
}

fn now() -> Timestamp {
    let since = std::time::UNIX_EPOCH.elapsed();
    Timestamp(since.map_or(i64::MAX, |since| since.as_millis() as i64))
}

/// The namespace that the request names, or the default one.
fn named(head: &Parts) -> Result<Namespace, Problem> {
    let Some(value) = head.headers.get(NAMESPACE) else { return Ok(Namespace::default()) };
    let namespace = value.to_str().ok().and_then(|name| Namespace::new(name).ok());
    namespace.ok_or_else(|| {
        let detail = "invalid namespace in Hapax-Namespace";
        Problem::new(StatusCode::BAD_REQUEST, &MALFORMED, detail)
    })
}

/// Refuses pages of other origins. A page in a local browser can reach this server, even under a
/// host name that its author chose. It cannot forge `Host` and `Origin`.
fn refuse_pages(head: &Parts) -> Result<(), Problem> {
    let host = head.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let own = |host: &str| {
        let name = host.rsplit_once(':').map_or(host, |(name, port)| {
            if port.bytes().all(|byte| byte.is_ascii_digit()) { name } else { host }
        });
        matches!(name, "localhost" | "127.0.0.1" | "[::1]")
    };
    let origin = head.headers.get(ORIGIN).map(|origin| origin.to_str().unwrap_or_default());
    let same = origin.is_none_or(|origin| origin.strip_prefix("http://") == Some(host));
    match own(host) && same {
        true => Ok(()),
        false => {
            let detail = "without tokens, only programs on this machine are served";
            Err(Problem::new(StatusCode::FORBIDDEN, &NOT_LOCAL, detail))
        }
    }
}

/// The tokens of a ledger, as they were read last.
#[derive(Default)]
pub struct TokenCache {
    known: tokio::sync::Mutex<Option<(Instant, Known)>>,
}

type Known = Arc<HashMap<TokenId, Token>>;

impl TokenCache {
    async fn shown(&self, head: &Parts, hapax: &Hapax) -> Result<Token, Problem> {
        let unknown = || {
            let detail = "no token was shown that is good here";
            Problem::new(StatusCode::UNAUTHORIZED, &UNKNOWN_CALLER, detail)
        };
        let shown = head.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let secret: Secret = shown
            .and_then(|text| text.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .and_then(|(_, secret)| secret.trim().parse().ok())
            .ok_or_else(unknown)?;
        let mut known = self.known(hapax, FRESH).await?;
        if !known.contains_key(&secret.id()) {
            tokio::time::sleep(FRESH_FOR_STRANGERS).await;
            known = self.known(hapax, FRESH_FOR_STRANGERS).await?;
        }
        let token = known.get(&secret.id()).filter(|token| token.admits(&secret, now()));
        token.cloned().ok_or_else(unknown)
    }

    /// All tokens, no older than `oldest`. One caller reads them again; other callers wait for it.
    async fn known(&self, hapax: &Hapax, oldest: Duration) -> Result<Known, Problem> {
        let mut known = self.known.lock().await;
        if let Some((read, tokens)) = &*known
            && read.elapsed() < oldest
        {
            return Ok(tokens.clone());
        }
        let begun = Instant::now();
        let tokens = hapax.tokens().list().await.map_err(|error| Problem::of(&error))?;
        let tokens: HashMap<_, _> = tokens.into_iter().map(|token| (token.id, token)).collect();
        let tokens = Arc::new(tokens);
        *known = Some((begun, tokens.clone()));
        Ok(tokens)
    }
}

/// The request limits of one tenant.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    /// Requests a second, on average.
    pub rate: u32,
    /// Requests at once, in a burst.
    pub burst: u32,
    /// Requests in flight at the same time.
    pub at_once: usize,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { rate: 200_000, burst: 400_000, at_once: 512 }
    }
}

/// The use that each tenant has made of its allowance.
pub(crate) struct Allowances {
    allowance: Allowance,
    tenants: Mutex<HashMap<Namespace, Arc<Tenant>>>,
}

struct Tenant {
    rate: DefaultDirectRateLimiter,
    room: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

/// How many streams one namespace may have: of the journal and of extractions together.
const STREAMS: usize = 32;

impl Allowances {
    pub(crate) fn new(allowance: Allowance) -> Self {
        Self { allowance, tenants: Mutex::default() }
    }

    /// Takes room for one more request of this tenant, which is held until the permit is dropped.
    fn take(&self, namespace: &Namespace) -> Result<OwnedSemaphorePermit, Problem> {
        let tenant = self.tenant(namespace);
        let refuse = |detail| Problem::new(StatusCode::TOO_MANY_REQUESTS, &TOO_OFTEN, detail);
        if tenant.rate.check().is_err() {
            return Err(refuse("more requests a second than this namespace may send"));
        }
        let room = tenant.room.clone().try_acquire_owned();
        room.map_err(|_| refuse("as many requests of this namespace are under way as may be"))
    }

    /// Takes room for one more stream of this namespace.
    pub(crate) fn follow(&self, namespace: &Namespace) -> Result<OwnedSemaphorePermit, Problem> {
        let room = self.tenant(namespace).streams.clone().try_acquire_owned();
        let detail = "as many of this namespace follow the journal as may";
        room.map_err(|_| Problem::new(StatusCode::TOO_MANY_REQUESTS, &TOO_OFTEN, detail))
    }

    fn tenant(&self, namespace: &Namespace) -> Arc<Tenant> {
        let mut tenants = self.tenants.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(tenant) = tenants.get(namespace) {
            return tenant.clone();
        }
        // A caller that is good everywhere can name any number of namespaces.
        if tenants.len() >= 10_000 {
            tenants.clear();
        }
        let Allowance { rate, burst, at_once } = self.allowance;
        let some = |number: u32| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::per_second(some(rate)).allow_burst(some(burst));
        let room = Arc::new(Semaphore::new(at_once));
        let streams = Arc::new(Semaphore::new(STREAMS));
        let tenant = Arc::new(Tenant { rate: RateLimiter::direct(quota), room, streams });
        tenants.insert(namespace.clone(), tenant.clone());
        tenant
    }
}

/// Held by a request until all work for it has ended, even if its client has left.
#[derive(Clone)]
pub(crate) struct Room {
    _permit: Arc<OwnedSemaphorePermit>,
}

/// Lets a request in, or answers why it is refused.
pub(crate) async fn admit(
    State(server): State<Arc<Server>>,
    request: Request,
    next: Next,
) -> Response {
    let (mut head, body) = request.into_parts();
    let caller = match server.access.caller(&head, &server.hapax).await {
        Ok(caller) => caller,
        Err(problem) => {
            let unknown = problem.status == StatusCode::UNAUTHORIZED.as_u16();
            let mut response = named_by_path(head.uri.path(), problem).into_response();
            if unknown {
                let ask = HeaderValue::from_static("Bearer");
                response.headers_mut().insert(WWW_AUTHENTICATE, ask);
            }
            return response;
        }
    };
    let room = match server.allowances.take(&caller.namespace) {
        Ok(permit) => Room { _permit: Arc::new(permit) },
        Err(problem) => return problem.into_response(),
    };
    head.extensions.insert(caller);
    head.extensions.insert(room.clone());
    let response = next.run(Request::from_parts(head, body)).await;
    drop(room);
    response
}

/// Lets a request pass if its caller has this role, or one above it.
pub(crate) async fn require(State(role): State<Role>, request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>();
    if caller.is_some_and(|caller| caller.role >= role) {
        return next.run(request).await;
    }
    let detail = format!("this needs the role {role}");
    Problem::new(StatusCode::FORBIDDEN, &FORBIDDEN, detail).into_response()
}
