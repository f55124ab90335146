//! Permission to perform an effect, as the handler sees it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::effect::{Effect, Fenced, Grant, Report, Settled, State};
use hapax_core::key::Key;
use hapax_core::lease::LeaseId;
use hapax_core::name::Name;
use hapax_core::outcome::Outcome;
use hapax_core::planted::{Bug, planted};
use hapax_core::retry::Backoff;
use hapax_store::command::{self, Settle};
use hapax_store::outbox::Attachments;
use hapax_store::{Step, StoreError, call, read};
use rusqlite::Transaction;
use tokio::runtime::Handle;

use crate::effect::EffectBuilder;
use crate::engine::{Hapax, Inner, random};
use crate::error::Error;
use crate::redactor::Redactor;
use crate::settle::CollectedAttachments;
use crate::spool;

/// Permission to perform one effect, once. Cheap to clone.
///
/// ```
/// use hapax::{Failure, Hapax, Key};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let hapax = Hapax::builder().in_memory();
/// let key = Key::derive("transfer.v1", &[("id", b"7")])?;
/// hapax
///     .effect(key)
///     .run(|claim| async move {
///         assert_eq!((claim.key(), claim.nth()), (key, 1));
///         claim.undo_with("refund", "EUR 10.00").await?;
///         // Targets that refuse old fences or known ids keep out an attempt that was overtaken.
///         let request = format!("fence={} id={}", claim.fence(), claim.attempt());
///         Ok::<_, Failure>(request)
///     })
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Claim {
    pub(crate) inner: Arc<Inner>,
    pub(crate) name: Name,
    pub(crate) grant: Grant,
    /// The lease that the grant depends on; `None` in the caller's own transaction.
    lease: Option<LeaseId>,
    /// Whether no other attempt can be granted the effect while this one may be at work.
    is_opaque: bool,
    /// The claim's own deadline, by the boot-time clock.
    deadline_ms: Option<u64>,
    settled_in: Arc<AtomicBool>,
    pub(crate) attachments: Arc<CollectedAttachments>,
    redactor: Option<Arc<dyn Redactor>>,
}

impl Claim {
    pub(crate) fn new(
        inner: Arc<Inner>,
        name: Name,
        grant: Grant,
        lease: impl Into<Option<LeaseId>>,
    ) -> Self {
        let lease = lease.into();
        let (settled_in, attachments) = (Arc::default(), Arc::default());
        Self {
            inner,
            name,
            grant,
            lease,
            is_opaque: false,
            deadline_ms: None,
            settled_in,
            attachments,
            redactor: None,
        }
    }

    pub(crate) fn limited(self, is_opaque: bool, deadline_ms: Option<u64>) -> Self {
        Self { is_opaque, deadline_ms, ..self }
    }

    pub(crate) fn with_redactor(self, redactor: Option<Arc<dyn Redactor>>) -> Self {
        Self { redactor, ..self }
    }

    /// Begins to describe an effect that is granted only while this claim cannot have been taken
    /// over: both depend on one lease, and the store grants nothing on a lease that is over.
    ///
    /// ```
    /// use hapax::{Failure, Hapax, Key, Safety};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let hapax = Hapax::builder().in_memory();
    /// let order = Key::derive("order.v1", &[("id", b"42")])?;
    /// hapax
    ///     .effect(order)
    ///     .safety(Safety::Transactional)
    ///     .run(|claim| async move {
    ///         let charge = Key::derive("charge.v1", &[("order", b"42")])?;
    ///         let done = claim.effect(charge).run(|_| async { Ok::<_, Failure>("receipt 7") });
    ///         Ok::<_, Failure>(done.await?.outcome)
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn effect(&self, key: Key) -> EffectBuilder {
        let name = Name { namespace: self.name.namespace.clone(), key };
        let hapax = Hapax { inner: self.inner.clone(), namespace: self.name.namespace.clone() };
        let effect = EffectBuilder::new(hapax, name);
        match self.lease {
            Some(lease) => effect.within(lease),
            None => effect,
        }
    }

    /// The attempt and the fence, which every report of this claim names.
    pub(crate) fn by(&self) -> (AttemptId, Fence) {
        (self.grant.attempt, self.grant.fence)
    }

    /// The key of the effect.
    pub fn key(&self) -> Key {
        self.name.key
    }

    /// The identity of this attempt. Hand it to a target that keeps ids.
    pub fn attempt(&self) -> AttemptId {
        self.grant.attempt
    }

    /// A number that only grows. Hand it to a target that compares numbers and refuses
    /// smaller ones.
    pub fn fence(&self) -> Fence {
        self.grant.fence
    }

    /// Which attempt this is, from 1.
    pub fn nth(&self) -> u32 {
        self.grant.nth
    }

    /// Registers how to undo the next step. The registration is durable when this returns, so call
    /// it before the step is taken. See [`Hapax::on_rollback`](crate::Hapax::on_rollback).
    pub async fn undo_with(
        &self,
        step: impl Into<String>,
        payload: impl Into<Vec<u8>>,
    ) -> Result<(), Error> {
        let step = Step { name: step.into(), payload: payload.into() };
        if let Some(redactor) = &self.redactor
            && !redactor.keeps_step(&step)
        {
            let what = "a step to undo it is kept as it is, and this one may not be";
            return Err(StoreError::Invalid(what.into()).into());
        }
        let (name, attempt) = (self.name.clone(), self.grant.attempt);
        let command = command::RegisterStep { name, attempt, step, nth: None };
        match call(&*self.inner.store, command).await? {
            Settled::Fenced(fenced) => Err(Error::Fenced(fenced)),
            Settled::Outdated(mismatch) => Err(Error::Epoch(mismatch)),
            _ => Ok(()),
        }
    }

    /// Until when the work may go on, in milliseconds of the boot-time clock, as far as is known now: each renewal
    /// extends it. `None` for opaque work and in the caller's own transaction, which nothing limits. Use it for
    /// work outside of this process, which dropping a future does not stop.
    pub fn work_until_ms(&self) -> Option<u64> {
        if self.is_opaque || planted(Bug::WatchdogWaits) || planted(Bug::HolderWorksOn) {
            return None;
        }
        let lease = self.lease?;
        let in_force = self.inner.holder.current() == Some(lease);
        let until_ms = if in_force { self.inner.holder.work_until_ms() } else { 1 };
        Some(until_ms.min(self.deadline_ms.unwrap_or(u64::MAX)))
    }

    /// The file whose lock shows that the holder of this claim lives, if the ledger is in a file. A
    /// process that works for the holder takes a shared lock on it as well.
    pub fn lease_file(&self) -> Option<std::path::PathBuf> {
        Some(self.inner.sqlite.as_ref()?.lease_file(self.lease?))
    }

    /// Whether this attempt may still go on, as far as the ledger knows now: no other attempt
    /// overtook it, and its epoch is not over. Call it before you send something once more.
    pub async fn check(&self) -> Result<(), Error> {
        let name = self.name.clone();
        let (effect, epoch) = read(&*self.inner.store, move |view| {
            let effect = view.effects(std::slice::from_ref(&name))?.pop().flatten();
            let epoch = match effect.as_ref().and_then(|effect| effect.bound.as_ref()) {
                Some(bound) => Some(view.epoch(&name.namespace, &bound.domain)?),
                None => None,
            };
            Ok((effect, epoch))
        })
        .await?;
        let is_ours = |effect: &&Effect| {
            (effect.attempt, effect.fence) == (self.grant.attempt, self.grant.fence)
        };
        let ours = effect.as_ref().filter(is_ours);
        if let (Some(bound), Some(epoch)) = (ours.and_then(|ours| ours.bound.as_ref()), epoch) {
            bound.check(epoch).map_err(Error::Epoch)?;
        }
        match ours.map(|ours| &ours.state) {
            Some(State::Running { .. }) => Ok(()),
            _ => Err(Error::Fenced(Fenced::by(effect.as_ref()))),
        }
    }

    /// Settles the effect as succeeded inside your own transaction on the ledger's file, so
    /// that your writes and the outcome are committed together or not at all.
    ///
    /// An attempt that was overtaken is an error, and so is one whose settle was committed before. Your transaction
    /// is then rolled back, so running it again after a lost reply writes nothing twice. No caller gets the outcome
    /// before the engine has read the committed row. Open the connection with
    /// [`Hapax::connection`](crate::Hapax::connection).
    ///
    /// ```
    /// use hapax::{Failure, Hapax, Key, Safety};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// let hapax = Hapax::open(directory.path().join("hapax.db")).await?;
    /// let mut connection = hapax.connection()?;
    /// connection.execute_batch("CREATE TABLE account (balance INTEGER)")?;
    ///
    /// let key = Key::derive("deposit.v1", &[("id", b"7")])?;
    /// let done = hapax
    ///     .effect(key)
    ///     .safety(Safety::Transactional)
    ///     .run(|claim| async move {
    ///         let tx = connection.transaction()?;
    ///         tx.execute("INSERT INTO account VALUES (100)", [])?;
    ///         claim.settle_in(&tx, "deposited")?;
    ///         tx.commit()?;
    ///         Ok::<_, Failure>("deposited")
    ///     })
    ///     .await?;
    /// assert_eq!(done.body(), Some(&b"deposited"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn settle_in(
        &self,
        tx: &Transaction<'_>,
        outcome: impl Into<Outcome>,
    ) -> Result<(), Error> {
        let sqlite = self
            .inner
            .sqlite
            .as_ref()
            .ok_or(Error::Unsupported("settle_in needs a ledger in a file"))?;
        let report = Report::Succeeded(outcome.into().within(self.inner.keep_limit));
        match sqlite.settle_in(tx, &self.name, self.by(), &report, &self.attachments.waiting())? {
            Settled::Recorded | Settled::Repeated => {
                self.note_settled_in();
                Ok(())
            }
            Settled::Fenced(fenced) => {
                self.contradict(report);
                Err(Error::Fenced(fenced))
            }
            Settled::Outdated(mismatch) => {
                self.contradict(report);
                Err(Error::Epoch(mismatch))
            }
        }
    }

    /// Journals a stale success in the engine's own transaction: nothing of it may stay in the caller's.
    pub(crate) fn contradict(&self, report: Report) {
        let (attempt, fence) = (self.grant.attempt, Some(self.grant.fence));
        let (name, attachments) = (self.name.clone(), Attachments::default());
        report_later(&self.inner, Settle { name, attempt, fence, report, attachments }, None);
    }

    /// Notes that a caller's transaction settled the effect.
    pub(crate) fn note_settled_in(&self) {
        self.settled_in.store(true, Ordering::Release);
    }

    /// Whether a caller's transaction settled the effect; it may not have been committed.
    pub(crate) fn settled_in(&self) -> bool {
        self.settled_in.load(Ordering::Acquire)
    }
}

/// A claim that was sent and is not settled yet. If the future that holds it is dropped, the engine
/// reports that to the ledger.
pub(crate) struct Held {
    inner: Arc<Inner>,
    name: Name,
    attempt: AttemptId,
    /// The fence of the grant, once it is known.
    fence: Option<Fence>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Asked,
    Running,
    Over,
}

impl Held {
    pub(crate) fn asked(inner: Arc<Inner>, name: Name, attempt: AttemptId) -> Self {
        Self { inner, name, attempt, fence: None, stage: Stage::Asked }
    }

    pub(crate) fn running(&mut self, fence: Fence) {
        (self.fence, self.stage) = (Some(fence), Stage::Running);
    }

    pub(crate) fn over(mut self) {
        self.stage = Stage::Over;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let report = match self.stage {
            Stage::Over => return,
            Stage::Asked => Report::Released("the grant was not delivered".into()),
            Stage::Running => Report::Ambiguous("the work was dropped before it ended".into()),
        };
        let (name, attachments) = (self.name.clone(), Attachments::default());
        let (attempt, fence) = (self.attempt, self.fence);
        report_later(&self.inner, Settle { name, attempt, fence, report, attachments }, None);
    }
}

/// The pause before a report that the store did not answer is sent again.
const AGAIN: Backoff = Backoff { base_ms: 20, cap_ms: 2_000, attempts: u32::MAX };

/// Sends a report in the background: at once, and again until the store answers. Without it, other
/// callers would wait for this attempt for as long as the engine renews its lease. Once it is recorded, the
/// file that keeps it is removed.
pub(crate) fn report_later(inner: &Arc<Inner>, command: Settle, kept: Option<PathBuf>) {
    let (undelivered, attempt, name) =
        (command.fence.is_none(), command.attempt, command.name.clone());
    let mut answer = Box::pin(call(&*inner.store, command.clone()));
    let (engine, Ok(runtime)) = (Arc::downgrade(inner), Handle::try_current()) else { return };
    runtime.spawn(async move {
        for nth in 1.. {
            match answer.await {
                Err(error) if error.is_transient() => {}
                // The grant is not recorded, and may still appear.
                Ok(Settled::Fenced(found)) if undelivered && found.attempt != Some(attempt) => {
                    if let Some(inner) = engine.upgrade() {
                        inner.abandoned.add(&inner, &name, attempt);
                    }
                    return;
                }
                Ok(_) => return spool::remove(kept.as_deref()),
                Err(_) => return,
            }
            let dice = random().map_or(u64::MAX, u64::from_be_bytes);
            let pause = AGAIN.delay_ms(nth, dice).unwrap_or(AGAIN.cap_ms);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let Some(inner) = engine.upgrade().filter(|inner| !inner.is_closed()) else { return };
            answer = Box::pin(call(&*inner.store, command.clone()));
        }
    });
}
