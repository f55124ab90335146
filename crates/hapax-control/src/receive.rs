//! The receiving side: check the epoch, the payload and the key, then run once.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hapax::{Bound, Done, Failure, Fingerprint, Hapax, How, Key, Outcome, Safety};

use crate::derive_key;
use crate::error::Error;
use crate::event::{self, EventSubject};
use crate::plane::dice;
use crate::registry::{Computation, Registry};
use crate::request::ControlRequest;

/// Receives requests, each once. Cheap to clone.
#[derive(Clone)]
pub struct ControlReceiver {
    hapax: Hapax,
    registry: Arc<Registry>,
    wait: Duration,
    safety: Safety,
    pub(crate) largest: usize,
}

impl ControlReceiver {
    /// Receives registered computations, and records their outcomes in this ledger. It may be the
    /// sender's own ledger and namespace: the records of the two have different keys.
    pub fn new(hapax: Hapax, registry: impl Into<Arc<Registry>>) -> Self {
        let (registry, wait) = (registry.into(), Duration::from_secs(30));
        Self { hapax, registry, wait, safety: Safety::Opaque, largest: 1024 * 1024 }
    }

    /// How long to wait for another caller that is doing the same. Default 30 s.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// The safety of the work: what happens if this process dies while it runs. The default is the
    /// safe one, opaque: an operator decides before it is done again.
    pub fn safety(mut self, safety: Safety) -> Self {
        self.safety = safety;
        self
    }

    /// How large a request may be that is read from HTTP, in bytes. Default 1 MiB.
    pub fn largest(mut self, bytes: usize) -> Self {
        self.largest = bytes;
        self
    }

    /// Performs a request once. It refuses, in this order, a key of another epoch, a key that is
    /// recorded with another payload, and a key that does not follow from the request.
    pub async fn receive<F, Fut, T>(&self, request: &ControlRequest, work: F) -> Result<Done, Error>
    where
        F: FnOnce(Vec<u8>) -> Fut,
        Fut: Future<Output = Result<T, Failure>>,
        T: Into<Outcome>,
    {
        let computation = request.computation.as_str();
        let subject = EventSubject { computation, epoch: request.epoch, key: request.key };
        let result = self.run(request, work).await;
        match &result {
            Ok(done) if done.how == How::Replayed => event::replayed(subject),
            Ok(_) => event::committed(subject),
            Err(error) => event::refused(subject, error),
        }
        result
    }

    async fn run<F, Fut, T>(&self, request: &ControlRequest, work: F) -> Result<Done, Error>
    where
        F: FnOnce(Vec<u8>) -> Fut,
        Fut: Future<Output = Result<T, Failure>>,
        T: Into<Outcome>,
    {
        let name = &request.computation;
        let unknown = || {
            let name: String = name.chars().take(200).collect();
            Error::KeyDerivation(format!("computation {name:?} is not registered"))
        };
        let known = self.registry.find(name).ok_or_else(unknown)?;
        let bound = Bound { domain: known.domain().clone(), epoch: request.epoch };
        bound.check(self.hapax.epochs().current(known.domain()).await?)?;
        let key = match self.checked(known, request).await? {
            Some(key) => key,
            None => Key::from_bytes(dice()?),
        };
        let effect = self.hapax.effect(key).payload(&request.payload).in_epoch(bound);
        let effect = effect.safety(self.safety).label(format!("received: {name}")).wait(self.wait);
        let mut ran = false;
        let result = effect.run(|_| {
            ran = true;
            work(request.payload.clone())
        });
        result.await.map_err(|error| match (Error::from(error), ran) {
            (Error::Unavailable(error), true) => Error::Unrecorded(error),
            (error, _) => error,
        })
    }

    /// The key under which a request is recorded here, once its own key is checked.
    async fn checked(
        &self,
        known: &Computation,
        request: &ControlRequest,
    ) -> Result<Option<Key>, Error> {
        let key = match (known.retry(), request.key) {
            (Some(_), Some(key)) => key,
            (None, None) => return Ok(None),
            (Some(_), None) => {
                return Err(Error::KeyDerivation(format!("{} came without a key", known.name())));
            }
            (None, Some(_)) => {
                return Err(Error::KeyDerivation(format!(
                    "{} has no key, and came with one",
                    known.name()
                )));
            }
        };
        let record = Key::derive("control.received.v1", &[("key", key.as_bytes())])?;
        let asked = Fingerprint::of(&request.payload);
        if let Some(recorded) =
            self.hapax.effects().show(record).await?.map(|effect| effect.fingerprint)
            && recorded != asked
        {
            return Err(Error::Conflict { recorded, asked });
        }
        if derive_key(known.name(), request.epoch, &request.payload)? != key {
            let what = "the key that came is not the one that follows from what came with it";
            return Err(Error::KeyDerivation(what.into()));
        }
        Ok(Some(record))
    }
}
