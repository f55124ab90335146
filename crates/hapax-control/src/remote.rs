//! Requests that a client sends or performs itself: it requests permission, acts, and reports.

use std::time::Duration;

use hapax::remote::{LeaseId, Permit, Report, Settled};
use hapax::{AttemptId, Bound, Fence, Key};

use crate::derive_key;
use crate::error::Error;
use crate::event::{self, EventSubject};
use crate::plane::ControlPlane;
use crate::receive::{ControlReceiver, RECEIVED, received_label, subject};
use crate::registry::Computation;
use crate::request::ControlRequest;

/// The epoch, lease and times of a client's request for permission.
#[derive(Debug, Clone, Default)]
pub struct PermitOptions {
    /// The epoch of the request; the current one unless given.
    pub epoch: Option<u64>,
    /// The lease that the permission depends on.
    pub lease: Option<LeaseId>,
    /// How long the permission lasts, whatever the lease.
    pub deadline: Option<Duration>,
    /// How long to wait for another caller that is sending the same request.
    pub wait: Duration,
}

/// The answer to a client: whether to send or perform the request, and with which key.
#[derive(Debug, Clone)]
pub struct Permitted<'a> {
    /// The computation, with its policy.
    pub computation: &'a Computation,
    /// The epoch it counts in.
    pub epoch: u64,
    /// The key for the peer; none if the computation is never retried.
    pub key: Option<Key>,
    /// The key of the record to settle.
    pub record: Key,
    /// The permission to send or perform it, or the recorded outcome.
    pub permit: Permit,
}

impl ControlPlane {
    /// Requests permission on behalf of a client that sends the request itself. A repeated call
    /// with the same attempt gives the same answer.
    pub async fn permit(
        &self,
        computation: &str,
        request: &[u8],
        attempt: AttemptId,
        options: PermitOptions,
    ) -> Result<Permitted<'_>, Error> {
        let computation = self.known(computation)?;
        let epoch = match options.epoch {
            Some(epoch) => epoch,
            None => self.hapax.epochs().current(computation.domain()).await?,
        };
        let key = match computation.retry() {
            Some(_) => Some(derive_key(computation.name(), epoch, request)?),
            None => None,
        };
        let subject = EventSubject { computation: computation.name(), epoch, key };
        if key.is_some() {
            event::derived(subject);
        }
        let record = match key {
            Some(key) => key,
            None => {
                let computation = ("computation", computation.name().as_bytes());
                let attempt = ("attempt", &attempt.as_bytes()[..]);
                Key::derive("control.record.v1", &[attempt, computation])?
            }
        };
        let bound = Bound { domain: computation.domain().clone(), epoch };
        let mut effect = self.effect(computation, record, request, bound).wait(options.wait);
        if let Some(deadline) = options.deadline {
            effect = effect.deadline(deadline);
        }
        let verdict = effect.claim_for(attempt, options.lease).await;
        let permit = verdict.and_then(Permit::of).map_err(Error::from);
        log_decision(subject, permit.as_ref());
        Ok(Permitted { computation, epoch, key, record, permit: permit? })
    }

    /// Records a client's report about a request that it sent, or received. None if no request of
    /// this computation has such a record.
    pub async fn report(
        &self,
        computation: &str,
        record: Key,
        by: (AttemptId, Fence),
        report: Report,
    ) -> Result<Option<Settled>, Error> {
        let computation = self.known(computation)?;
        let effect = self.hapax.effects().show(record).await?;
        let received = received_label(computation);
        let labels = [computation.name(), received.as_str()];
        let ours = effect
            .filter(|effect| effect.label.as_deref().is_some_and(|label| labels.contains(&label)));
        let Some(bound) = ours.and_then(|effect| effect.bound) else { return Ok(None) };
        let key = computation.retry().map(|_| record);
        let subject = EventSubject { computation: computation.name(), epoch: bound.epoch, key };
        let succeeded = matches!(report, Report::Succeeded(_));
        let settled = self.hapax.remote().settle(record, by, report, Vec::new(), None).await?;
        match &settled {
            Settled::Recorded if succeeded => event::committed(subject),
            Settled::Outdated(mismatch) => event::refused(subject, &Error::Epoch(mismatch.clone())),
            _ => {}
        }
        Ok(Some(settled))
    }
}

impl ControlReceiver {
    /// Requests permission on behalf of a client that received the request and performs it itself.
    /// It refuses what [`receive`](Self::receive) refuses, in the same order. A repeated call with
    /// the same attempt gives the same answer.
    ///
    /// The grant depends on a lease, if one is given. The deadline says how long it lasts in any
    /// case. The client's report goes to [`ControlPlane::report`].
    pub async fn permit(
        &self,
        request: &ControlRequest,
        attempt: AttemptId,
        lease: Option<LeaseId>,
        deadline: Option<Duration>,
    ) -> Result<Permitted<'_>, Error> {
        let computation = self.known(request)?;
        let result = self.claim(computation, request, attempt, (lease, deadline)).await;
        let permit = result.as_ref().map(|(_, permit)| permit);
        log_decision(subject(computation, request), permit);
        let (record, permit) = result?;
        Ok(Permitted { computation, epoch: request.epoch, key: request.key, record, permit })
    }

    async fn claim(
        &self,
        computation: &Computation,
        request: &ControlRequest,
        attempt: AttemptId,
        (lease, deadline): (Option<LeaseId>, Option<Duration>),
    ) -> Result<(Key, Permit), Error> {
        let record = match self.check(computation, request).await? {
            Some(record) => record,
            // A request without a key is recorded for its attempt, which the client may repeat.
            None => {
                let computation = ("computation", computation.name().as_bytes());
                Key::derive(RECEIVED, &[("attempt", &attempt.as_bytes()[..]), computation])?
            }
        };
        let mut effect = self.effect(computation, record, request);
        if let Some(deadline) = deadline {
            effect = effect.deadline(deadline);
        }
        Ok((record, Permit::of(effect.claim_for(attempt, lease).await?)?))
    }
}

/// Logs the answer to a client, unless it is a grant: the client's report decides that one.
fn log_decision(subject: EventSubject<'_>, permit: Result<&Permit, &Error>) {
    match permit {
        Ok(Permit::Replayed { .. }) => event::replayed(subject),
        Ok(Permit::Granted(_)) => {}
        Err(error) => event::refused(subject, error),
    }
}
