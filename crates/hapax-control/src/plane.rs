//! The sending side: derive, consult, send, retry, record.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hapax::{Bound, Budget, Claim, Done, EffectBuilder, Failure, Hapax, How, Key, Outcome};

use crate::derive_key;
use crate::error::{Error, Kind, SendError};
use crate::event::{self, EventSubject};
use crate::registry::{Computation, Registry};
use crate::request::ControlRequest;

/// How often a dispatch moves on to the next epoch, because its epoch ended before the request was
/// sent.
const MOVED: usize = 4;

/// Sends requests to peers, each once. Cheap to clone.
#[derive(Clone)]
pub struct ControlPlane {
    pub(crate) hapax: Hapax,
    registry: Arc<Registry>,
    budget: Arc<Mutex<Budget>>,
    wait: Duration,
}

impl ControlPlane {
    /// Sends registered computations, and consults this ledger first.
    pub fn new(hapax: Hapax, registry: impl Into<Arc<Registry>>) -> Self {
        let budget = Arc::new(Mutex::new(Budget::new(tokio::time::Instant::now())));
        Self { hapax, registry: registry.into(), budget, wait: Duration::from_secs(30) }
    }

    /// How long to wait for another caller that is sending the same request. Default 30 s.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// The computations it knows.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Has a peer do something once, in the current epoch of its domain.
    ///
    /// The ledger is consulted before the request is sent for the first time and before each retry.
    /// If an answer is recorded, it is returned and nothing is sent. A retryable computation is
    /// retried by its policy, as long as the retry budget lasts. Any other is sent once, whatever
    /// happens.
    pub async fn dispatch<F, Fut, T>(
        &self,
        computation: &str,
        request: &[u8],
        send: F,
    ) -> Result<Done, Error>
    where
        F: FnMut(ControlRequest) -> Fut,
        Fut: Future<Output = Result<T, SendError>>,
        T: Into<Outcome>,
    {
        let (known, mut send, mut moved) = (self.known(computation)?, send, 0);
        loop {
            let epoch = self.hapax.epochs().current(known.domain()).await?;
            let mut sent = false;
            let sending = |request| {
                sent = true;
                send(request)
            };
            match self.dispatch_in(epoch, computation, request, sending).await {
                // The epoch ended before anything was sent, and the caller did not name that epoch.
                Err(Error::Epoch(_)) if !sent && moved < MOVED => moved += 1,
                result => return result,
            }
        }
    }

    /// The same in an epoch that the caller names, and in no other.
    pub async fn dispatch_in<F, Fut, T>(
        &self,
        epoch: u64,
        computation: &str,
        request: &[u8],
        send: F,
    ) -> Result<Done, Error>
    where
        F: FnMut(ControlRequest) -> Fut,
        Fut: Future<Output = Result<T, SendError>>,
        T: Into<Outcome>,
    {
        let known = self.known(computation)?;
        let key = match known.retry() {
            Some(_) => Some(derive_key(known.name(), epoch, request)?),
            None => None,
        };
        let subject = EventSubject { computation: known.name(), epoch, key };
        if key.is_some() {
            event::derived(subject);
        }
        let request = ControlRequest {
            computation: known.name().to_owned(),
            epoch,
            key,
            payload: request.to_vec(),
        };
        let result = self.run(known, request, send).await;
        match &result {
            Ok(done) if done.how == How::Replayed => event::replayed(subject),
            Ok(_) => event::committed(subject),
            Err(error) => event::refused(subject, error),
        }
        result
    }

    pub(crate) fn known(&self, computation: &str) -> Result<&Computation, Error> {
        Ok(self.registry.resolve(computation)?)
    }

    async fn run<F, Fut, T>(
        &self,
        known: &Computation,
        request: ControlRequest,
        send: F,
    ) -> Result<Done, Error>
    where
        F: FnMut(ControlRequest) -> Fut,
        Fut: Future<Output = Result<T, SendError>>,
        T: Into<Outcome>,
    {
        // A request without a key gets a random one: it is recorded, and never found again.
        let key = match request.key {
            Some(key) => key,
            None => Key::from_bytes(dice()?),
        };
        let bound = Bound { domain: known.domain().clone(), epoch: request.epoch };
        let mut trail = Trail::default();
        let done = self
            .effect(known, key, &request.payload, bound)
            .wait(self.wait)
            .run(async |claim| self.send(known, request, claim, send, &mut trail).await)
            .await;
        done.map_err(|error| trail.judge(known, error))
    }

    pub(crate) fn effect(
        &self,
        known: &Computation,
        key: Key,
        payload: &[u8],
        bound: Bound,
    ) -> EffectBuilder {
        let effect = self.hapax.effect(key).payload(payload).in_epoch(bound);
        effect.safety(known.meaning()).label(known.name())
    }

    /// Sends until there is an answer, or the policy ends it.
    async fn send<F, Fut, T>(
        &self,
        known: &Computation,
        request: ControlRequest,
        claim: Claim,
        mut send: F,
        trail: &mut Trail,
    ) -> Result<T, Failure>
    where
        F: FnMut(ControlRequest) -> Fut,
        Fut: Future<Output = Result<T, SendError>>,
        T: Into<Outcome>,
    {
        self.budget().first(1);
        loop {
            trail.sent += 1;
            let error = match send(request.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let pause = known.retry().and_then(|retry| retry.pause_before(trail.sent));
            let pause = pause.filter(|_| error.kind != Kind::Refused);
            trail.ambiguous |= error.kind == Kind::Ambiguous;
            trail.refused = error.kind == Kind::Refused && !trail.ambiguous;
            let Some(pause) = pause else { return Err(trail.failure(error)) };
            tokio::time::sleep(pause).await;
            if !self.budget().retry(tokio::time::Instant::now()) {
                let reason = format!("{}; too many retries are under way", error.reason);
                return Err(trail.failure(SendError { reason, ..error }));
            }
            // Another node may have taken over, and the epoch may be over.
            if let Err(stop) = claim.check().await {
                return Err(Failure::ambiguous(format!("{}; then: {stop}", error.reason)));
            }
        }
    }

    fn budget(&self) -> std::sync::MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The tries so far.
#[derive(Default)]
struct Trail {
    sent: u32,
    /// Whether one of the tries may have reached the peer.
    ambiguous: bool,
    /// Whether the peer refused the last try, and no other may have reached it.
    refused: bool,
}

impl Trail {
    /// The failure after the last error. A try that may have reached the peer is not undone by
    /// another that did not, nor by a refusal: the peer may have refused a repetition.
    fn failure(&self, error: SendError) -> Failure {
        match self.ambiguous {
            true => Failure::ambiguous(error.reason),
            false => error.into(),
        }
    }

    fn judge(self, known: &Computation, error: hapax::Error) -> Error {
        let (sent, most) = (self.sent, known.retry().map_or(1, |retry| retry.retries + 1));
        match (Error::from(error), sent) {
            (Error::Unavailable(error), 1..) => Error::Unrecorded(error),
            (Error::Ledger(hapax::Error::Failed { reason }), _) => match self {
                Self { refused: true, .. } => Error::Refused(reason),
                Self { ambiguous: true, .. } => Error::Unanswered { sent, most, reason },
                Self { .. } => Error::Failed { sent, most, reason },
            },
            (error, _) => error,
        }
    }
}

/// Random bytes for the key of a record without one.
pub(crate) fn dice() -> Result<[u8; 32], Error> {
    let mut bytes = [0; 32];
    let rolled = getrandom::fill(&mut bytes);
    rolled.map_err(|error| Error::KeyDerivation(format!("no random bytes: {error}")))?;
    Ok(bytes)
}
