//! Drives an effect to its outcome: claims, waits, unblocks, performs, settles.
//!
//! ```text
//! lead ──▶ claim ──▶ granted ──▶ perform ──▶ settle
//!            ▲ └──▶ replayed ──▶ the recorded outcome
//!            │ └──▶ in flight, locked, blocked ──▶ consider: wait or unblock
//!            └─────────────────────────────────────────┘
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
use crate::redactor;
use crate::rollback;
use crate::settle::settle;

/// How long a waiter leaves a silent holder alone before it claims again, to take over if it may.
const TAKEOVER_LOOK: Duration = Duration::from_millis(500);

impl EffectBuilder {
    /// Claims until there is a verdict to act upon, and acts upon it.
    pub(super) async fn lead<F, Fut, T>(&self, handler: F, until: Instant) -> Result<Done, Error>
    where
        F: FnOnce(Claim) -> Fut,
        Fut: Future<Output = Result<T, Failure>>,
        T: Into<Outcome>,
    {
        let inner = &self.hapax.inner;
        inner.start();
        let _here = inner.enter();
        let mut patience = Deadline::until(until);
        loop {
            let asked = inner.cache.asked();
            let (verdict, held, lease) = self.claim(&mut patience).await?;
            inner.counters.verdict(&verdict);
            match verdict {
                Verdict::Granted(grant) => {
                    pass(Point::ClaimAnswered)?;
                    return self.perform(grant, held, lease, handler).await;
                }
                other => {
                    held.over();
                    if let Some(done) = self.consider(other, asked, &mut patience).await? {
                        return Ok(done);
                    }
                }
            }
        }
    }

    /// Claims until there is a verdict. Also returns the lease it depends on, and when it was asked for.
    async fn claim(
        &self,
        patience: &mut Deadline,
    ) -> Result<(Verdict, Held, (LeaseId, u64)), Error> {
        let inner = &self.hapax.inner;
        let mut attempt = AttemptId::from_bytes(random()?);
        let mut held = Held::asked(inner.clone(), self.name.clone(), attempt);
        let (mut before, mut since_ms) = (None, inner.cache.now_ms());
        loop {
            let lease = inner.holder.lease().await?;
            if self.within.is_some_and(|within| within != lease) {
                held.over();
                return Err(Error::LeaseLost);
            }
            // An attempt depends on one lease. A copy of it may have been granted on a lease that
            // is over; dropping `held` releases that copy.
            if before.replace(lease).is_some_and(|before| before != lease) {
                attempt = AttemptId::from_bytes(random()?);
                held = Held::asked(inner.clone(), self.name.clone(), attempt);
                since_ms = inner.cache.now_ms();
            }
            let command = command::Claim { name: self.name.clone(), ask: self.ask(attempt, lease) };
            pass(Point::ClaimAsk)?;
            match inner.ask(command).await {
                // Another transaction has the row. It may be an earlier copy of this very claim whose connection
                // was lost. Asking again is safe: if that copy was granted, so is this one.
                Ok(Verdict::Undecided { reason }) => {
                    if patience.pause().await.is_none() {
                        return Err(Error::Undecided { reason });
                    }
                }
                Ok(verdict) => return Ok((verdict, held, (lease, since_ms))),
                // The same attempt gets the same answer, so the claim is sent again.
                Err(StoreError::CommitUnknown(_)) => {}
                Err(StoreError::LeaseDead(dead)) => inner.holder.give_up(dead),
                Err(StoreError::Unavailable(_)) if planted(Bug::FailOpen) => {
                    let grant = Grant { attempt, fence: Fence(0), nth: 1, left_ms: None };
                    return Ok((Verdict::Granted(grant), held, (lease, since_ms)));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Turns a verdict other than a grant into an outcome, an error, or another claim.
    async fn consider(
        &self,
        verdict: Verdict,
        asked: AskedAt,
        patience: &mut Deadline,
    ) -> Result<Option<Done>, Error> {
        let inner = &self.hapax.inner;
        match verdict {
            Verdict::Replayed { outcome, left_ms, .. } => {
                self.keep(asked, &outcome, left_ms.map(Duration::from_millis));
                Ok(Some(Done { outcome, how: How::Replayed }))
            }
            Verdict::InFlight { attempt } => {
                let left = patience.left().ok_or(Error::InFlight { attempt })?;
                inner.waiting.moved(&self.name, attempt, left.min(TAKEOVER_LOOK)).await;
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
                patience.pause().await.ok_or(locked).map(|()| None)
            }
            Verdict::Blocked(blocked) => self.unblock(blocked, patience).await.map(|()| None),
            Verdict::Conflict { recorded, asked } => Err(Error::Conflict { recorded, asked }),
            Verdict::Outdated(mismatch) => Err(Error::Epoch(mismatch)),
            Verdict::Refused { reason } => Err(Error::Refused { reason }),
            Verdict::Granted(_) | Verdict::Undecided { .. } => Ok(None),
        }
    }

    /// Asks the reconciler, or rolls back, where that can unblock the effect.
    async fn unblock(&self, blocked: Blocked, patience: &mut Deadline) -> Result<(), Error> {
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
                let sought = LookupRequest { attempt: effect.attempt, fence: effect.fence };
                let finding = reconciler(sought).await;
                let finding = match &self.wording {
                    Some(wording) => redactor::found(finding, &**wording),
                    None => finding,
                };
                pass(Point::ReconcileLooked)?;
                let (name, LookupRequest { attempt, fence }) = (self.name.clone(), sought);
                let command = command::Reconcile { name, attempt, fence, looked, finding };
                match call(&*inner.store, command).await? {
                    Judged::Undecided { .. } => {
                        patience.pause().await.ok_or(Error::Blocked(blocked))
                    }
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
        rollback::undo(&self.hapax, &self.name, attempt, self.wording.as_ref()).await
    }

    /// The failure in the words that the ledger keeps.
    fn reworded(&self, failure: Failure) -> Failure {
        match &self.wording {
            Some(wording) => failure.reworded(|reason| wording.reason(reason)),
            None => failure,
        }
    }

    async fn perform<F, Fut, T>(
        &self,
        grant: Grant,
        mut held: Held,
        (lease, since_ms): (LeaseId, u64),
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
        let claim = claim.worded(self.wording.clone()).limited(is_opaque, deadline_ms);
        // Too late to begin: nothing was tried.
        if self.safety != Safety::Opaque && !inner.holder.may_work(lease) {
            return Err(Error::LeaseLost);
        }
        held.running(grant.fence);
        pass(Point::RunBegin)?;
        if planted(Bug::SettleBeforeRun) {
            let report = Report::Succeeded(Outcome::from("too early"));
            settle(inner, &self.name, claim.by(), report, Attachments::default()).await?;
        }
        let work = caught(handler, claim.clone());
        let worked = match self.safety {
            // No other attempt can be granted opaque work, so a lost lease is no reason to stop it.
            Safety::Opaque => work.await,
            Safety::Transactional | Safety::Reconcilable(_) => {
                let worked = inner.holder.working(lease, deadline_ms, work).await;
                worked.ok_or(Error::LeaseLost)?
            }
        };
        pass(Point::RunEnd)?;
        let result = match worked {
            Ok(Ok(value)) => self.succeed(&claim, value.into()).await,
            Ok(Err(failure)) => self.fail(&claim, self.reworded(failure)).await,
            Err(panic) => {
                let failure =
                    Failure::ambiguous(format!("the handler panicked: {}", message(&*panic)));
                let told = self.fail(&claim, self.reworded(failure)).await;
                if !matches!(told, Err(Error::Store(_))) {
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
