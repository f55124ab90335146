//! Effects that a client performs: it asks for permission, performs the effect, and reports.

use std::collections::HashMap;
use std::time::Duration;

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::effect::{Effect, Finding, Judged, StateName};
use hapax_core::fingerprint::Fingerprint;
use hapax_core::key::Key;
use hapax_core::lease::Lease;
use hapax_core::name::{Name, Namespace};
use hapax_core::outbox::Event;
use hapax_store::outbox::{Attachments, Emission};
use hapax_store::{LeaseAnswer, Request, Step, StoreError, command, read};
use tokio::time::Instant;

use crate::deadline::Deadline;
use crate::effect::{EffectBuilder, OnLock};
use crate::engine::{Hapax, random};
use crate::error::Error;

/// How the holder's name of a client's lease begins, before the namespace.
const REMOTE: &str = "remote:";

/// The anchors that a process knows, by namespace and term, with when it asked for the last renewal: in
/// milliseconds of the boot-time clock.
pub(crate) type Anchors = HashMap<(Namespace, u64), (LeaseId, u64)>;

/// The holder of an anchor: a lease for grants whose holder has none. No client's name begins like this.
const ANCHOR: &str = "-anchor";

/// The name of a lease's holder, for people: that of a process, or the one that a client gave itself. None for an
/// anchor, because nothing is known of the clients whose grants depend on it.
pub(crate) fn holder_name(holder: &str) -> Option<&str> {
    let Some(rest) = holder.strip_prefix(REMOTE) else { return Some(holder) };
    rest.split_once('/').map(|(_, name)| name).filter(|name| *name != ANCHOR)
}

/// The deadline of a grant that has neither a lease nor a deadline of its own.
const DEADLINE: Duration = Duration::from_secs(60);

/// The shortest term of an anchor, in milliseconds: long enough that it is not forgotten between two renewals.
const ANCHOR_TERM_MS: u64 = 16_000;

/// The term of the anchor for grants with this deadline. It is long enough that the ledger's deadline, an eighth
/// later, has passed when the anchor lapses, even if no server renews it any more. It is a power of two, so that a
/// namespace has few anchors.
fn anchor_term_ms(deadline: Duration) -> u64 {
    let deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX).min(1 << 48);
    (deadline_ms + deadline_ms / 4).max(ANCHOR_TERM_MS).next_power_of_two()
}

/// How many leases the clients of one namespace may hold.
const LEASES: usize = 10_000;

/// How many times a claim is sent when its answer is lost.
const TRIES: usize = 5;

/// How many anchors of one term are tried. An anchor that died is left for the effects that depend on it.
const ANCHORS: u32 = 10_000;

fn anchor_id(namespace: &Namespace, term_ms: u64, number: u32) -> LeaseId {
    let parts: [&[u8]; 4] =
        [b"anchor", namespace.as_str().as_bytes(), &term_ms.to_be_bytes(), &number.to_be_bytes()];
    let mut id = [0; 16];
    id.copy_from_slice(&Fingerprint::of_parts(&parts).as_bytes()[..16]);
    LeaseId::from_bytes(id)
}

impl Hapax {
    /// Leases, claims and reports on behalf of clients that perform effects elsewhere.
    ///
    /// ```
    /// use std::time::Duration;
    /// use hapax::remote::{LeaseId, Report, Verdict};
    /// use hapax::{AttemptId, Hapax, Key, Outcome};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let hapax = Hapax::builder().in_memory();
    /// let remote = hapax.remote();
    /// // Ids are the client's own, so that whatever gets lost can simply be asked again.
    /// let lease = LeaseId::from_bytes([7; 16]);
    /// remote.open(lease, Duration::from_secs(60), "worker 3").await?;
    ///
    /// let key = Key::derive("charge.v1", &[("order", b"42")])?;
    /// let attempt = AttemptId::from_bytes([8; 16]);
    /// let verdict = hapax.effect(key).payload(b"EUR 10").claim_for(attempt, Some(lease)).await?;
    /// let Verdict::Granted(grant) = verdict else { return Err("not granted".into()) };
    /// let report = Report::Succeeded(Outcome::from("receipt 7"));
    /// remote.settle(key, (attempt, grant.fence), report, Vec::new(), None).await?;
    /// remote.close(lease).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn remote(&self) -> Remote<'_> {
        Remote { hapax: self }
    }
}

pub use crate::permit::Permit;
pub use hapax_core::effect::{Fenced, Grant, Report, Settled, Verdict};
pub use hapax_core::lease::LeaseId;
pub use hapax_core::time::LeaseInstant;

/// A look for an attempt that may have happened. It is as old as its beginning: an attempt that
/// arrives at the target during the look may be missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The attempt that is looked for.
    pub attempt: AttemptId,
    /// Its fence.
    pub fence: Fence,
    /// When it began, by the store's clock.
    pub began: LeaseInstant,
}

/// The ledger's service for clients that perform effects elsewhere. Made by [`Hapax::remote`].
#[derive(Clone, Copy)]
pub struct Remote<'a> {
    hapax: &'a Hapax,
}

impl Remote<'_> {
    /// Opens a lease that a client renews. Opening it again renews it. `None` if a lease of this id is over, or of
    /// another namespace.
    pub async fn open(
        &self,
        id: LeaseId,
        term: Duration,
        holder: &str,
    ) -> Result<Option<Lease>, Error> {
        if self.leases().await?.len() >= LEASES {
            let what = format!("{} has {LEASES} leases already", self.hapax.namespace);
            return Err(StoreError::Invalid(what).into());
        }
        self.open_as(id, term, &format!("{}{holder}", self.prefix())).await
    }

    async fn open_as(
        &self,
        id: LeaseId,
        term: Duration,
        holder: &str,
    ) -> Result<Option<Lease>, Error> {
        self.hapax.inner.start();
        let term_ms = u64::try_from(term.as_millis()).unwrap_or(u64::MAX);
        let command = command::OpenLease { id, term_ms, holder: holder.into(), forgetful: true };
        let lease = self.lease(command).await?;
        Ok(lease.filter(|lease| lease.holder.starts_with(&self.prefix())))
    }

    /// Renews a lease of this namespace. `None` if it is over.
    pub async fn renew(&self, id: LeaseId) -> Result<Option<Lease>, Error> {
        match self.is_ours(id).await? {
            true => self.lease(renewal(id)).await,
            false => Ok(None),
        }
    }

    /// Gives a lease of this namespace back. Claims that depend on it lapse.
    pub async fn close(&self, id: LeaseId) -> Result<bool, Error> {
        let ours = self.is_ours(id).await?;
        if ours {
            self.hapax.call(command::CloseLease { id }).await?;
        }
        Ok(ours)
    }

    /// The leases of this namespace that are in force and held by clients.
    pub async fn leases(&self) -> Result<Vec<Lease>, Error> {
        let (prefix, mut leases) = (self.prefix(), self.hapax.maintenance().leases().await?);
        leases.retain_mut(|lease| match lease.holder.strip_prefix(&prefix) {
            Some(holder) if holder != ANCHOR => {
                lease.holder = holder.to_owned();
                true
            }
            _ => false,
        });
        Ok(leases)
    }

    /// Reports the result of an attempt, with the events and the note to record if it succeeded.
    /// `by` names the attempt and the fence of its grant.
    pub async fn settle(
        &self,
        key: Key,
        by: (AttemptId, Fence),
        report: Report,
        events: Vec<Event>,
        note: Option<String>,
    ) -> Result<Settled, Error> {
        let report = match report {
            Report::Succeeded(outcome) => {
                Report::Succeeded(outcome.within(self.hapax.inner.keep_limit))
            }
            other => other,
        };
        let emits = !events.is_empty();
        let events =
            (0..).zip(events).map(|(ordinal, event)| Emission { ordinal, event }).collect();
        let attachments = Attachments { events, note, ..Attachments::default() };
        let inner = &self.hapax.inner;
        let settled = crate::settle::settle(inner, &self.name(key), by, report, attachments).await;
        let settled = settled.map_err(|not| not.error)?;
        if emits {
            inner.emitted.notify_one();
        }
        Ok(settled)
    }

    /// Registers how to undo the next step of an attempt, which is its nth, from 0.
    pub async fn undo_with(
        &self,
        key: Key,
        attempt: AttemptId,
        nth: usize,
        step: Step,
    ) -> Result<Settled, Error> {
        let command = command::RegisterStep { name: self.name(key), attempt, step, nth: Some(nth) };
        self.hapax.call(command).await
    }

    /// The effect, once no attempt is running or this much time has passed.
    pub async fn attach(&self, key: Key, wait: Duration) -> Result<Option<Effect>, Error> {
        let (name, deadline) = (self.name(key), Deadline::until(Instant::now() + wait));
        loop {
            let effect = self.hapax.effects().show(key).await?;
            let running = effect.as_ref().filter(|e| e.state.name() == StateName::Running);
            let (Some(running), Some(left)) = (running, deadline.left()) else { return Ok(effect) };
            self.hapax.inner.waiting.moved(&name, running.attempt, left).await;
        }
    }

    /// Begins to look for an attempt whose outcome is unknown. `None` if there is no such attempt.
    pub async fn look(&self, key: Key) -> Result<Option<Look>, Error> {
        let name = self.name(key);
        let look = read(&*self.hapax.inner.store, move |view| {
            Ok((view.now().lease, view.effects(&[name])?.pop().flatten()))
        });
        let (began, effect) = look.await?;
        let unknown = effect.filter(|effect| effect.state.name() == StateName::Unknown);
        Ok(unknown.map(|Effect { attempt, fence, .. }| Look { attempt, fence, began }))
    }

    /// Reports the finding of a look.
    pub async fn found(&self, key: Key, look: Look, finding: Finding) -> Result<Judged, Error> {
        let Look { attempt, fence, began: looked } = look;
        let command = command::Reconcile { name: self.name(key), attempt, fence, looked, finding };
        self.hapax.call(command).await
    }

    /// The anchor for grants with this deadline, renewed a short while ago. Every process that
    /// [keeps anchors](Self::keep_anchors) renews it.
    ///
    /// Its id follows from namespace, term and number, so all processes have the same one. A claim that is sent
    /// again to another process depends on the same lease as before.
    async fn anchor(&self, deadline: Duration) -> Result<LeaseId, Error> {
        let term_ms = anchor_term_ms(deadline);
        let anchor_key = (self.hapax.namespace.clone(), term_ms);
        let asked_ms = self.hapax.inner.cache.now_ms();
        if let Some((id, renewed_ms)) = self.anchors().get(&anchor_key)
            && asked_ms.saturating_sub(*renewed_ms) < term_ms / 16
        {
            return Ok(*id);
        }
        let (term, holder) = (Duration::from_millis(term_ms), format!("{}{ANCHOR}", self.prefix()));
        for number in 0..ANCHORS {
            let id = anchor_id(&self.hapax.namespace, term_ms, number);
            if let Some(lease) = self.open_as(id, term, &holder).await? {
                self.anchors().insert(anchor_key, (lease.id, asked_ms));
                return Ok(lease.id);
            }
        }
        Err(StoreError::LeaseDead(anchor_id(&self.hapax.namespace, term_ms, 0)).into())
    }

    fn anchors(&self) -> std::sync::MutexGuard<'_, Anchors> {
        self.hapax.inner.anchors.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Renews the anchors of all namespaces, now; a process that grants on behalf of clients calls it every
    /// few seconds.
    pub async fn keep_anchors(&self) -> Result<(), Error> {
        let anchor = |lease: &Lease| {
            let holder = lease.holder.strip_prefix(REMOTE);
            holder.is_some_and(|rest| rest.split_once('/').is_some_and(|(_, name)| name == ANCHOR))
        };
        for lease in self.hapax.maintenance().leases().await?.iter().filter(|lease| anchor(lease)) {
            let asked_ms = self.hapax.inner.cache.now_ms();
            if self.lease(renewal(lease.id)).await?.is_some() {
                let mut anchors = self.anchors();
                let known = anchors.values_mut().find(|(id, _)| *id == lease.id);
                known.into_iter().for_each(|(_, renewed_ms)| *renewed_ms = asked_ms);
            }
        }
        Ok(())
    }

    /// Names of holders in other namespaces, and of processes, begin differently.
    fn prefix(&self) -> String {
        format!("{REMOTE}{}/", self.hapax.namespace)
    }

    async fn is_ours(&self, id: LeaseId) -> Result<bool, Error> {
        let prefix = self.prefix();
        let lease = read(&*self.hapax.inner.store, move |view| view.lease(id)).await?;
        Ok(lease.is_some_and(|lease| lease.holder.starts_with(&prefix)))
    }

    async fn lease(
        &self,
        command: impl Request<Answer = LeaseAnswer>,
    ) -> Result<Option<Lease>, Error> {
        Ok(match self.hapax.call(command).await? {
            LeaseAnswer::Held { lease, .. } => Some(lease),
            LeaseAnswer::Dead => None,
        })
    }

    fn name(&self, key: Key) -> Name {
        Name { namespace: self.hapax.namespace.clone(), key }
    }
}

impl EffectBuilder {
    /// Asks for permission on behalf of a client that performs the effect, and waits for other
    /// attempts as [`wait`](Self::wait) says. Asking again with the same attempt gives the same answer.
    ///
    /// The grant depends on a lease that the client renews, or on none. Without one it lapses at
    /// its [`deadline`](Self::deadline), a minute unless given, and not before.
    pub async fn claim_for(
        mut self,
        attempt: AttemptId,
        lease: Option<LeaseId>,
    ) -> Result<Verdict, Error> {
        let inner = &self.hapax.inner;
        inner.start();
        if let Some(lease) = lease
            && !self.hapax.remote().is_ours(lease).await?
        {
            return Err(StoreError::LeaseDead(lease).into());
        }
        let deadline = self.deadline.unwrap_or(DEADLINE);
        if lease.is_none() {
            self.deadline = Some(deadline);
        }
        let mut waiting = Deadline::until(Instant::now() + self.wait);
        let mut anchors = 0;
        loop {
            // The cache is valid while this process has a lease.
            inner.holder.lease().await?;
            let remembered = match self.bound {
                Some(_) => None,
                None => inner.cache.get_lasting(&self.name, self.fingerprint),
            };
            inner.counters.remembered(remembered.is_some());
            if let Some(outcome) = remembered {
                return Ok(Verdict::Replayed { outcome, expires: None, left_ms: None });
            }
            let asked = inner.cache.asked();
            let lease_id = match lease {
                Some(lease) => lease,
                None => self.hapax.remote().anchor(deadline).await?,
            };
            let ask = self.ask(attempt, lease_id);
            match self.ask_again(command::Claim { name: self.name.clone(), ask }).await {
                Ok(Verdict::InFlight { attempt }) => match waiting.left() {
                    Some(left) => {
                        inner.waiting.moved(&self.name, attempt, left.min(TAKEOVER_POLL)).await
                    }
                    None => return Ok(Verdict::InFlight { attempt }),
                },
                Ok(Verdict::Undecided { reason }) => {
                    if waiting.pause().await.is_none() {
                        return Ok(Verdict::Undecided { reason });
                    }
                }
                Ok(Verdict::Locked { holder }) => {
                    inner.counters.lock_failures.add();
                    if self.on_lock == OnLock::Fail || waiting.pause().await.is_none() {
                        return Ok(Verdict::Locked { holder });
                    }
                }
                Ok(Verdict::Replayed { outcome, expires, left_ms }) => {
                    inner.counters.replayed.add();
                    self.keep(asked, &outcome, left_ms.map(Duration::from_millis));
                    return Ok(Verdict::Replayed { outcome, expires, left_ms });
                }
                Ok(verdict) => {
                    inner.counters.verdict(&verdict);
                    return Ok(verdict);
                }
                // The anchor was given up in between; another is opened.
                Err(Error::Store(StoreError::LeaseDead(_)))
                    if lease.is_none() && anchors < TRIES =>
                {
                    let anchor_key = (self.hapax.namespace.clone(), anchor_term_ms(deadline));
                    self.hapax.remote().anchors().remove(&anchor_key);
                    anchors += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a claim again when its answer was lost: the same attempt gets the same answer.
    async fn ask_again(&self, command: command::Claim) -> Result<Verdict, Error> {
        let inner = &self.hapax.inner;
        let mut tries = 0;
        loop {
            tries += 1;
            match inner.ask(command.clone()).await {
                Ok(verdict) => return Ok(verdict),
                Err(StoreError::CommitUnknown(_)) if tries < TRIES => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Renews a lease whose holder remembers no outcomes.
fn renewal(id: LeaseId) -> command::RenewLease {
    command::RenewLease { id, seen: Lease::FORGETFUL }
}

/// How long a waiter leaves a silent holder alone before it claims again, to take over if it may.
const TAKEOVER_POLL: Duration = Duration::from_millis(500);

/// How long a client may work on a grant that has a deadline of its own: the ledger gives it an eighth more.
pub fn work_ms(grant: &Grant) -> Option<u64> {
    grant.left_ms.map(|left_ms| left_ms.saturating_sub(1) / 9 * 8)
}

/// Random bits for a client that has none of its own.
pub fn random_id() -> Result<[u8; 16], Error> {
    Ok(random()?)
}
