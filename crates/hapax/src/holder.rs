//! This process's lease: one for all its claims, renewed while it lives.

use std::sync::{Arc, Weak};
use std::time::Duration;

use hapax_core::lease::LeaseId;
use hapax_store::failpoint::{Point, pass};
use hapax_store::{Answer, Command, LeaseAnswer, Store, StoreError, call, read};
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use crate::cache::Cache;

/// How often the holder looks whether there is something every node must act upon.
const LOOK: Duration = Duration::from_millis(200);

pub(crate) struct Holder {
    store: Arc<dyn Store>,
    cache: Arc<Cache>,
    term: Duration,
    title: String,
    /// The lease in force. Replaced when it is lost, so that work on the old one can tell.
    current: watch::Sender<Option<LeaseId>>,
    /// Held by whoever opens a lease; when that failed last, and why.
    opening: Mutex<Option<(Instant, StoreError)>>,
}

impl Holder {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        cache: Arc<Cache>,
        term: Duration,
        title: String,
    ) -> Arc<Self> {
        let current = watch::Sender::new(None);
        Arc::new(Self { store, cache, term, title, current, opening: Mutex::default() })
    }

    /// The lease to hang a claim on, opened if there is none.
    pub(crate) async fn lease(self: &Arc<Self>) -> Result<LeaseId, StoreError> {
        if let Some(lease) = *self.current.borrow() {
            return Ok(lease);
        }
        let came = Instant::now();
        let mut failed = self.opening.lock().await;
        if let Some(lease) = *self.current.borrow() {
            return Ok(lease);
        }
        // Whoever waited while another one tried is told what that one was told: a store that is
        // away takes its time to say so, and it would take it for each of them in turn.
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
            Command::OpenLease { id, term_ms, holder: self.title.clone(), forgetful: false };
        match call(&*self.store, command).await? {
            Answer::Lease(LeaseAnswer::Held { notice, .. }) => {
                // A reset waits for the leases it finds. What was asked for before there was this
                // one may be older than a reset that never heard of us.
                self.cache.clear();
                self.cache.fresh(asked, self.term);
                self.current.send_replace(Some(id));
                tokio::spawn(keep(Arc::downgrade(self), id, notice));
                Ok(id)
            }
            _ => Err(StoreError::Corrupt("a new lease was dead at birth".into())),
        }
    }

    /// The lease in force, if there is one.
    pub(crate) fn current(&self) -> Option<LeaseId> {
        *self.current.borrow()
    }

    /// Returns once this lease is no longer the one in force.
    pub(crate) async fn lost(&self, lease: LeaseId) {
        let mut current = self.current.subscribe();
        let _ = current.wait_for(|held| *held != Some(lease)).await;
    }

    /// Lets go of a lease that the store says is over.
    pub(crate) fn give_up(&self, dead: LeaseId) {
        tracing::warn!(name: "lease_lost", lease = %dead, "the lease was lost");
        self.cache.doubt();
        self.current.send_if_modified(|held| held.take_if(|held| *held == dead).is_some());
    }

    /// Gives the lease back.
    pub(crate) async fn close(&self) -> Result<(), StoreError> {
        self.cache.doubt();
        if let Some(id) = self.current.send_replace(None) {
            call(&*self.store, Command::CloseLease { id }).await?;
        }
        Ok(())
    }

    /// One look: acts upon a notice, and renews when it is time. `false` when the lease is over.
    async fn tend(&self, id: LeaseId, tended: &mut Tended) -> Result<bool, StoreError> {
        if *self.current.borrow() != Some(id) {
            return Ok(false);
        }
        let mut notice = tended.seen;
        if !tended.is_due(self.term) {
            notice = read(&*self.store, |view| view.notice()).await?;
        }
        if notice == tended.seen && !tended.is_due(self.term) {
            return Ok(true);
        }
        // Whoever is busy renewing hears of a notice by the answer, and says so at once.
        loop {
            if notice > tended.seen {
                self.cache.clear();
            }
            let Some(newest) = self.renew(id, notice).await? else { return Ok(false) };
            *tended = Tended { seen: notice, renewed: Instant::now() };
            if newest <= notice {
                return Ok(true);
            }
            notice = newest;
        }
    }

    /// Renews a lease, having acted upon this notice. Returns the newest one, unless it is over.
    async fn renew(&self, id: LeaseId, seen: u64) -> Result<Option<u64>, StoreError> {
        let asked = self.cache.now_ms();
        pass(Point::RenewAsk)?;
        let answer = call(&*self.store, Command::RenewLease { id, seen }).await?;
        pass(Point::RenewTold)?;
        match answer {
            Answer::Lease(LeaseAnswer::Held { notice, .. }) => {
                // Before anything is believed again: whoever was late may not have been waited for.
                if notice > seen {
                    self.cache.clear();
                }
                self.cache.fresh(asked, self.term);
                Ok(Some(notice))
            }
            _ => {
                self.give_up(id);
                Ok(None)
            }
        }
    }
}

/// How far a lease is tended.
struct Tended {
    /// The newest notice that was acted upon.
    seen: u64,
    renewed: Instant,
}

impl Tended {
    /// A third of the term has passed. Asked again after everything that may have taken long:
    /// whoever renews as soon as it can outlasts any stall that the store's pulse forgives.
    fn is_due(&self, term: Duration) -> bool {
        self.renewed.elapsed() >= term / 3
    }
}

/// Tends a lease until it is over or the engine is dropped.
async fn keep(holder: Weak<Holder>, id: LeaseId, seen: u64) {
    let Some(third) = holder.upgrade().map(|holder| holder.term / 3) else { return };
    let mut tended = Tended { seen, renewed: Instant::now() };
    loop {
        tokio::time::sleep(LOOK.min(third)).await;
        let Some(holder) = holder.upgrade() else { return };
        match holder.tend(id, &mut tended).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(name: "lease_not_renewed", %error, "the lease could not be renewed yet")
            }
        }
    }
}
