//! Drives an effect to its outcome: claims, waits, unblocks, performs, settles.
//!
//! ```text
//! drive ──▶ granted ──▶ perform ──▶ settle
//!   ▲ └──▶ replayed ──▶ the recorded outcome
//!   │ └──▶ in flight, locked, blocked ──▶ consider: wait or unblock
//!   └──────────────────────────────────────────┘
//! ```

use std::future::Future;
use std::panic::resume_unwind;
use std::time::Duration;

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::effect::{Blocked, Grant, Judged, Report, Safety, StateName, Verdict};
use hapax_core::lease::LeaseId;
use hapax_core::outcome::Outcome;
use hapax_core::planted::{Bug, planted};
use hapax_store::failpoint::{Point, pass};
use hapax_store::outbox::Attachments;
use hapax_store::{StoreError, call, command, read};
use tokio::time::Instant;

use super::{Done, EffectBuilder, How, LookupRequest, OnLock, ms};
use crate::cache::AskedAt;
use crate::claim::{Claim, Held};
use crate::deadline::Deadline;
use crate::engine::random;
use crate::error::{Error, Failure};
use crate::handler::{caught, message};
use crate::redactor::redact_finding;
use crate::rollback;
use crate::settle::settle;

/// How long a waiter leaves a silent holder alone before it claims again, to take over if it may.
const TAKEOVER_POLL: Duration = Duration::from_millis(500);

/// A claim that is sent, perhaps more than once.
struct ClaimAttempt {
    attempt: AttemptId,
    /// The lease that it depends on.
    lease: LeaseId,
    /// When it was first sent.
    since_ms: u64,
    /// The state of the cache at that time.
    asked_at: AskedAt,
    held: Held,
}

impl EffectBuilder {
    /// Claims until there is a verdict to act upon, and acts upon it.
    pub(super) async fn drive<F, Fut, T>(&self, handler: F, until: Instant) -> Result<Done, Error>
    where
        F: FnOnce(Claim) -> Fut,
        Fut: Future<Output = Result<T, Failure>>,
        T: Into<Outcome>,
    {
        let inner = &self.hapax.inner;
        inner.start();
        let _here = inner.enter();
        let mut wait = Deadline::until(until);
        let mut sent: Option<ClaimAttempt> = None;
        loop {
            let lease = inner.holder.lease().await?;
            if self.within.is_some_and(|within| within != lease) {
                if let Some(claim) = sent {
                    claim.held.over();
                }
                return Err(Error::LeaseLost);
            }
            // An attempt depends on one lease. The claim may have been granted on the lease before;
            // dropping it releases that grant.
            let claim = match sent.take() {
                Some(claim) if claim.lease == lease => claim,
                _ => self.new_attempt(lease)?,
            };
            let ask = self.ask(claim.attempt, lease);
            pass(Point::ClaimAsk)?;
            let verdict = match inner.ask(command::Claim { name: self.name.clone(), ask }).await {
                Ok(verdict) => verdict,
                // The same attempt gets the same answer, so the claim is sent again.
                Err(StoreError::CommitUnknown(_)) => {
                    sent = Some(claim);
                    continue;
                }
                Err(StoreError::LeaseDead(dead)) => {
                    inner.holder.give_up(dead);
                    sent = Some(claim);
                    continue;
                }
                Err(StoreError::Unavailable(_)) if planted(Bug::FailOpen) => {
                    let (attempt, fence) = (claim.attempt, Fence(0));
                    Verdict::Granted(Grant { attempt, fence, nth: 1, left_ms: None })
                }
                Err(error) => return Err(error.into()),
            };
            match verdict {
                // Another transaction has the row. It may be an earlier copy of this very claim whose
                // connection was lost. Asking again is safe: if that copy was granted, so is this one.
                Verdict::Undecided { reason } => {
                    wait.pause().await.ok_or(Error::Undecided { reason })?;
                    sent = Some(claim);
                }
                Verdict::Granted(grant) => {
                    inner.counters.verdict(&verdict);
                    pass(Point::ClaimAnswered)?;
                    return self.perform(grant, claim, handler).await;
                }
                other => {
                    inner.counters.verdict(&other);
                    claim.held.over();
                    if let Some(done) = self.consider(other, claim.asked_at, &mut wait).await? {
                        return Ok(done);
                    }
                }
            }
        }
    }

    /// A new claim, about to be sent.
    fn new_attempt(&self, lease: LeaseId) -> Result<ClaimAttempt, Error> {
        let inner = &self.hapax.inner;
        let attempt = AttemptId::from_bytes(random()?);
        let held = Held::asked(inner.clone(), self.name.clone(), attempt);
        let (since_ms, asked_at) = (inner.cache.now_ms(), inner.cache.asked());
        Ok(ClaimAttempt { attempt, lease, since_ms, asked_at, held })
    }

    /// Acts upon a verdict other than a grant. `None`: claim again.
    async fn consider(
        &self,
        verdict: Verdict,
        asked: AskedAt,
        wait: &mut Deadline,
    ) -> Result<Option<Done>, Error> {
        let inner = &self.hapax.inner;
        match verdict {
            Verdict::Replayed { outcome, left_ms, .. } => {
                self.keep(asked, &outcome, left_ms.map(Duration::from_millis));
                Ok(Some(Done { outcome, how: How::Replayed }))
            }
            Verdict::InFlight { attempt } => {
                let left = wait.left().ok_or(Error::InFlight { attempt })?;
                inner.waiting.moved(&self.name, attempt, left.min(TAKEOVER_POLL)).await;
                match self.shares_failures {
                    true => self.failed_as(attempt).await.map(|()| None),
                    false => Ok(None),
                }
            }
            Verdict::Locked { holder } => {
                let locked = Error::Locked { holder };
                if self.on_lock == OnLock::Fail {
                    return Err(locked);
                }
                wait.pause().await.ok_or(locked).map(|()| None)
            }
            Verdict::Blocked(blocked) => self.unblock(blocked, wait).await.map(|()| None),
            Verdict::Conflict { recorded, asked } => Err(Error::Conflict { recorded, asked }),
            Verdict::Outdated(mismatch) => Err(Error::Epoch(mismatch)),
            Verdict::Refused { reason } => Err(Error::Refused { reason }),
            Verdict::Granted(_) | Verdict::Undecided { .. } => Ok(None),
        }
    }

    /// Asks the reconciler, or rolls back, where that can unblock the effect.
    async fn unblock(&self, blocked: Blocked, wait: &mut Deadline) -> Result<(), Error> {
        let inner = &self.hapax.inner;
        match (&self.reconciler, blocked.state) {
            _ if blocked.holder.is_some() => Err(Error::Blocked(blocked)),
            (Some(reconciler), StateName::Unknown) => {
                let name = self.name.clone();
                let before = read(&*inner.store, move |view| {
                    Ok((view.now().lease, view.effects(&[name])?.pop().flatten()))
                });
                let (looked, effect) = before.await?;
                let Some(effect) = effect.filter(|effect| effect.attempt == blocked.attempt) else {
                    return Ok(());
                };
                let request = LookupRequest { attempt: effect.attempt, fence: effect.fence };
                let finding = reconciler(request).await;
                let finding = match &self.redactor {
                    Some(redactor) => redact_finding(finding, &**redactor),
                    None => finding,
                };
                pass(Point::ReconcileLooked)?;
                let (name, LookupRequest { attempt, fence }) = (self.name.clone(), request);
                let command = command::Reconcile { name, attempt, fence, looked, finding };
                match call(&*inner.store, command).await? {
                    Judged::Undecided { .. } => wait.pause().await.ok_or(Error::Blocked(blocked)),
                    _ => Ok(()),
                }
            }
            (_, StateName::Partial) if !self.leaves_partial => {
                match self.undo(blocked.attempt).await {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(Error::Blocked(blocked)),
                    Err(error @ Error::Store(_)) => Err(error),
                    Err(error) => {
                        let reason = format!("{}; the rollback failed: {error}", blocked.reason);
                        Err(Error::Blocked(Blocked { reason, ..blocked }))
                    }
                }
            }
            _ => Err(Error::Blocked(blocked)),
        }
    }

    async fn undo(&self, attempt: AttemptId) -> Result<bool, Error> {
        rollback::undo(&self.hapax, &self.name, attempt, self.redactor.as_ref()).await
    }

    /// The failure as the ledger keeps it.
    fn redacted(&self, failure: Failure) -> Failure {
        match &self.redactor {
            Some(redactor) => failure.redacted(|reason| redactor.reason(reason)),
            None => failure,
        }
    }

    async fn perform<F, Fut, T>(
        &self,
        grant: Grant,
        ClaimAttempt { lease, since_ms, mut held, .. }: ClaimAttempt,
        handler: F,
    ) -> Result<Done, Error>
    where
        F: FnOnce(Claim) -> Fut,
        Fut: Future<Output = Result<T, Failure>>,
        T: Into<Outcome>,
    {
        let inner = &self.hapax.inner;
        let claim = Claim::new(inner.clone(), self.name.clone(), grant, lease);
        let deadline_ms = self.deadline.map(|deadline| since_ms.saturating_add(ms(deadline)));
        let is_opaque = self.safety == Safety::Opaque;
        let claim = claim.with_redactor(self.redactor.clone()).limited(is_opaque, deadline_ms);
        // The lease may lapse before the work ends. Opaque work begins all the same: no other attempt
        // follows by itself.
        if self.safety != Safety::Opaque && !inner.holder.may_work(lease) {
            return Err(Error::LeaseLost);
        }
        held.running(grant.fence);
        pass(Point::RunBegin)?;
        if planted(Bug::SettleBeforeRun) {
            let report = Report::Succeeded(Outcome::from("too early"));
            let settled = settle(inner, &self.name, claim.by(), report, Attachments::default());
            settled.await.map_err(|not| not.error)?;
        }
        let work = caught(handler, claim.clone());
        let worked = match self.safety {
            // Only a person can let another attempt of opaque work begin, so it is not stopped when the
            // lease is lost.
            Safety::Opaque => work.await,
            Safety::Transactional | Safety::Reconcilable(_) => {
                let worked = inner.holder.working(lease, deadline_ms, work).await;
                worked.ok_or(Error::LeaseLost)?
            }
        };
        pass(Point::RunEnd)?;
        let result = match worked {
            Ok(Ok(value)) => self.succeed(&claim, value.into()).await,
            Ok(Err(failure)) => self.fail(&claim, self.redacted(failure)).await,
            Err(panic) => {
                let failure =
                    Failure::ambiguous(format!("the handler panicked: {}", message(&*panic)));
                let settled = self.fail(&claim, self.redacted(failure)).await;
                if !matches!(settled, Err(Error::Store(_))) {
                    held.over();
                }
                resume_unwind(panic)
            }
        };
        if !matches!(result, Err(Error::Store(_))) {
            held.over();
        }
        result
    }
}
