//! This process's lease: one for all its claims, renewed while it lives.
//!
//! A holder stops by its own clock. The store counts a term from when a renewal arrived. This process counts from
//! before it asked, on the boot-time clock, and for less. When seven eighths have passed since the last
//! acknowledged renewal, it stops work that another attempt may be granted, whether or not the store can be
//! reached. A process that was stopped itself looks at the clock before it does anything else.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use hapax_core::lease::{Lease, LeaseId};
use hapax_core::planted::{Bug, planted};
use hapax_store::failpoint::{Point, pass};
use hapax_store::{LeaseAnswer, Store, StoreError, call, command, read};
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use crate::cache::Cache;

/// How often the holder looks for a notice that every node must act upon.
const NOTICE_POLL: Duration = Duration::from_millis(200);

/// How long a claim waits for a lease that may have lapsed to be renewed.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Holder {
    store: Arc<dyn Store>,
    cache: Arc<Cache>,
    term: Duration,
    title: String,
    /// The lease in force. Replaced when it is lost, so that work on the old one can tell.
    current: watch::Sender<Option<LeaseId>>,
    /// Until when work on it may go on, by the cache's clock.
    work_until_ms: AtomicU64,
    /// The newest notice that was acted upon.
    seen: AtomicU64,
    /// Held by the caller that opens a lease. Keeps when that failed last, and why.
    opening: Mutex<Option<(Instant, StoreError)>>,
}

impl Holder {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        cache: Arc<Cache>,
        term: Duration,
        title: String,
    ) -> Arc<Self> {
        let (current, opening) = (watch::Sender::new(None), Mutex::default());
        let (work_until_ms, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { store, cache, term, title, current, work_until_ms, seen, opening })
    }

    /// The lease for a claim: opened if there is none, and renewed first if it may be about to lapse.
    pub(crate) async fn lease(self: &Arc<Self>) -> Result<LeaseId, StoreError> {
        if let Some(lease) = self.current() {
            if self.may_work(lease) {
                return Ok(lease);
            }
            let renewal = self.renew(lease, self.seen.load(Ordering::Acquire));
            match tokio::time::timeout(PATIENCE, renewal).await {
                Ok(Ok(Some(_))) => return Ok(lease),
                Ok(Ok(None)) => {}
                Ok(Err(error)) => return Err(error),
                Err(_) => {
                    let what =
                        format!("{lease} may have lapsed, and is not renewed in {PATIENCE:?}");
                    return Err(StoreError::Unavailable(what));
                }
            }
        }
        let came = Instant::now();
        let mut failed = self.opening.lock().await;
        if let Some(lease) = *self.current.borrow() {
            return Ok(lease);
        }
        // A caller that waited while another caller tried gets the same error. A store that is away
        // takes its time to say so, and it would take that time for each caller in turn.
        if let Some((ended, error)) = &*failed
            && *ended >= came
        {
            return Err(error.clone());
        }
        let opened = self.open().await;
        *failed = opened.as_ref().err().map(|error| (Instant::now(), error.clone()));
        opened
    }

    async fn open(self: &Arc<Self>) -> Result<LeaseId, StoreError> {
        let id = LeaseId::from_bytes(crate::engine::random()?);
        self.store.attach(id)?;
        let asked = self.cache.now_ms();
        let term_ms = self.term.as_millis() as u64;
        let command =
            command::OpenLease { id, term_ms, holder: self.title.clone(), forgetful: false };
        match call(&*self.store, command).await? {
            LeaseAnswer::Held { notice, .. } => {
                // A reset waits for the leases it finds. An answer requested before this lease
                // existed may be older than a reset that did not wait for this process.
                self.cache.clear();
                self.confirmed(asked);
                self.seen.store(notice, Ordering::Release);
                self.current.send_replace(Some(id));
                tokio::spawn(keep(Arc::downgrade(self), id));
                Ok(id)
            }
            LeaseAnswer::Dead => Err(StoreError::Corrupt("a new lease was dead at birth".into())),
        }
    }

    /// The lease in force, if there is one.
    pub(crate) fn current(&self) -> Option<LeaseId> {
        *self.current.borrow()
    }

    /// The lease was good when the store was asked at `asked_ms`.
    fn confirmed(&self, asked_ms: u64) {
        let work_ms = Lease::working_ms(self.term.as_millis() as u64);
        self.work_until_ms.store(asked_ms.saturating_add(work_ms), Ordering::Release);
        self.cache.fresh(asked_ms, self.term);
    }

    /// Whether work that depends on this lease may go on, by this process's own clock.
    pub(crate) fn may_work(&self, lease: LeaseId) -> bool {
        planted(Bug::HolderWorksOn)
            || self.current() == Some(lease)
                && self.cache.now_ms() < self.work_until_ms.load(Ordering::Acquire)
    }

    /// Until when work on the lease in force may go on, by the boot-time clock.
    pub(crate) fn work_until_ms(&self) -> u64 {
        self.work_until_ms.load(Ordering::Acquire)
    }

    /// Runs this work until the lease may have lapsed, or until `deadline_ms`. `None` if it was
    /// stopped. The clock is looked at before each step of the work.
    pub(crate) async fn working<T>(
        &self,
        lease: LeaseId,
        deadline_ms: Option<u64>,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let in_time = || deadline_ms.is_none_or(|at| self.cache.now_ms() < at);
        let mut work = std::pin::pin!(work);
        let guarded = std::future::poll_fn(|context| match self.may_work(lease) && in_time() {
            true => work.as_mut().poll(context).map(Some),
            false => Poll::Ready(None),
        });
        let stopped = async {
            if planted(Bug::HolderWorksOn) {
                return std::future::pending().await;
            }
            let mut current = self.current.subscribe();
            loop {
                let until_ms = self.work_until_ms().min(deadline_ms.unwrap_or(u64::MAX));
                let left_ms = until_ms.saturating_sub(self.cache.now_ms());
                if !self.may_work(lease) || left_ms == 0 {
                    return;
                }
                let left = Duration::from_millis(left_ms);
                let _ = tokio::time::timeout(left, current.changed()).await;
            }
        };
        tokio::select! {
            biased;
            worked = guarded => worked,
            () = stopped => None,
        }
    }

    /// Drops a lease that the store says is over.
    pub(crate) fn give_up(&self, dead: LeaseId) {
        tracing::warn!(name: "lease_lost", lease = %dead, "the lease was lost");
        self.cache.doubt();
        self.current.send_if_modified(|held| held.take_if(|held| *held == dead).is_some());
    }

    /// Gives the lease back.
    pub(crate) async fn close(&self) -> Result<(), StoreError> {
        self.cache.doubt();
        if let Some(id) = self.current.send_replace(None) {
            call(&*self.store, command::CloseLease { id }).await?;
        }
        Ok(())
    }

    /// Acts upon a new notice, and renews when it is time. `false` when the lease is over.
    async fn tend(&self, id: LeaseId, renewed: &mut Instant) -> Result<bool, StoreError> {
        if self.current() != Some(id) {
            return Ok(false);
        }
        // Due when a third of the term has passed. Asked again after each step that may have taken
        // long: a holder that renews as soon as it can outlasts any stall that the store's pulse forgives.
        let is_due = |renewed: &Instant| renewed.elapsed() >= self.term / 3;
        let seen = self.seen.load(Ordering::Acquire);
        let mut notice = seen;
        if !is_due(renewed) {
            notice = read(&*self.store, |view| view.notice()).await?;
        }
        if notice == seen && !is_due(renewed) {
            return Ok(true);
        }
        // A holder that is busy renewing learns of a notice from the answer, and acknowledges it at once.
        loop {
            if notice > self.seen.load(Ordering::Acquire) {
                self.cache.clear();
            }
            let Some(newest) = self.renew(id, notice).await? else { return Ok(false) };
            *renewed = Instant::now();
            if newest <= notice {
                return Ok(true);
            }
            notice = newest;
        }
    }

    /// Renews a lease, having acted upon this notice. Returns the newest notice, or `None` if the lease is over.
    async fn renew(&self, id: LeaseId, seen: u64) -> Result<Option<u64>, StoreError> {
        let asked = self.cache.now_ms();
        pass(Point::RenewAsk)?;
        let answer = call(&*self.store, command::RenewLease { id, seen }).await?;
        pass(Point::RenewAnswered)?;
        match answer {
            LeaseAnswer::Held { notice, .. } => {
                // Before the cache is trusted again: a reset may not have waited for a late holder.
                if notice > seen {
                    self.cache.clear();
                }
                self.seen.fetch_max(seen, Ordering::AcqRel);
                self.confirmed(asked);
                Ok(Some(notice))
            }
            LeaseAnswer::Dead => {
                self.give_up(id);
                Ok(None)
            }
        }
    }
}

/// Keeps a lease until it is over or the engine is dropped.
async fn keep(holder: Weak<Holder>, id: LeaseId) {
    let Some(third) = holder.upgrade().map(|holder| holder.term / 3) else { return };
    let mut renewed = Instant::now();
    loop {
        tokio::time::sleep(NOTICE_POLL.min(third)).await;
        let Some(holder) = holder.upgrade() else { return };
        match holder.tend(id, &mut renewed).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(name: "lease_not_renewed", %error, "renewing the lease failed; retrying")
            }
        }
    }
}
