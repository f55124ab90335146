//! The receiving side: check the epoch, the payload and the key, then run once.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hapax::{Bound, Done, EffectBuilder, Failure, Fingerprint, Hapax, How, Key, Outcome, Safety};

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
        let known = self.known(request)?;
        let subject = subject(known, request);
        let result = self.run(known, request, work).await;
        match &result {
            Ok(done) if done.how == How::Replayed => event::replayed(subject),
            Ok(_) => event::committed(subject),
            Err(error) => event::refused(subject, error),
        }
        result
    }

    async fn run<F, Fut, T>(
        &self,
        known: &Computation,
        request: &ControlRequest,
        work: F,
    ) -> Result<Done, Error>
    where
        F: FnOnce(Vec<u8>) -> Fut,
        Fut: Future<Output = Result<T, Failure>>,
        T: Into<Outcome>,
    {
        let record = match self.check(known, request).await? {
            Some(record) => record,
            None => Key::from_bytes(dice()?),
        };
        let mut ran = false;
        let result = self.effect(known, record, request).run(|_| {
            ran = true;
            work(request.payload.clone())
        });
        result.await.map_err(|error| match (Error::from(error), ran) {
            (Error::Unavailable(error), true) => Error::Unrecorded(error),
            (error, _) => error,
        })
    }

    pub(crate) fn known(&self, request: &ControlRequest) -> Result<&Computation, Error> {
        Ok(self.registry.resolve(&request.computation)?)
    }

    /// The effect of a request that was checked, under the key of its record.
    pub(crate) fn effect(
        &self,
        known: &Computation,
        record: Key,
        request: &ControlRequest,
    ) -> EffectBuilder {
        let effect = self.hapax.effect(record).payload(&request.payload);
        let effect = effect.in_epoch(bound(known, request)).safety(self.safety);
        effect.label(received_label(known)).wait(self.wait)
    }

    /// Checks a request before it is claimed: the epoch, then the recorded payload, then the key.
    /// Returns the key of its record; none if the computation is never retried.
    pub(crate) async fn check(
        &self,
        known: &Computation,
        request: &ControlRequest,
    ) -> Result<Option<Key>, Error> {
        let current = self.hapax.epochs().current(known.domain()).await?;
        bound(known, request).check(current)?;
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
        let record = Key::derive(RECEIVED, &[("key", key.as_bytes())])?;
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

/// The derivation of the keys under which received requests are recorded.
pub(crate) const RECEIVED: &str = "control.received.v1";

/// The label of the record of a received request.
pub(crate) fn received_label(known: &Computation) -> String {
    format!("received: {}", known.name())
}

pub(crate) fn subject<'a>(known: &'a Computation, request: &ControlRequest) -> EventSubject<'a> {
    EventSubject { computation: known.name(), epoch: request.epoch, key: request.key }
}

fn bound(known: &Computation, request: &ControlRequest) -> Bound {
    Bound { domain: known.domain().clone(), epoch: request.epoch }
}
