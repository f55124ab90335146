//! An effect about to be run: its options, and what a caller gets back.

mod driver;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::effect::{Ask, Finding, Safety};
use hapax_core::epoch::Bound;
use hapax_core::fingerprint::Fingerprint;
use hapax_core::lease::LeaseId;
use hapax_core::lock::LockKey;
use hapax_core::name::Name;
use hapax_core::outcome::Outcome;
use hapax_core::part::Part;
use tokio::time::Instant;

use crate::claim::Claim;
use crate::engine::Hapax;
use crate::error::{Error, Failure};
use crate::flight::{Seat, follow};
use crate::redactor::Redactor;

/// The result of an effect that happened.
///
/// ```
/// use hapax::{Failure, Hapax, How, Key};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let hapax = Hapax::builder().in_memory();
/// let key = Key::derive("greeting.v1", &[("to", b"world")])?;
/// let greet = || hapax.effect(key).run(|_| async { Ok::<_, Failure>("hello") });
/// let (first, second) = (greet().await?, greet().await?);
/// assert_eq!((first.how, second.how), (How::Executed, How::Replayed));
/// assert_eq!(first.outcome, second.outcome);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// The outcome of the effect.
    pub outcome: Outcome,
    /// How this caller got it.
    pub how: How,
}

impl Done {
    /// The outcome's body, unless it was too large to keep.
    pub fn body(&self) -> Option<&[u8]> {
        self.outcome.body()
    }
}

/// How a caller got an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum How {
    /// It was performed just now, by this call.
    Executed,
    /// It was performed just now, by another call in this process.
    Shared,
    /// It had been performed before.
    Replayed,
}

/// How to react when another effect holds the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnLock {
    /// Fail at once.
    #[default]
    Fail,
    /// Try again, with backoff and jitter, for as long as [`EffectBuilder::wait`] allows.
    Wait,
}

type Looking = Pin<Box<dyn Future<Output = Finding> + Send>>;
type Reconciler = Arc<dyn Fn(LookupRequest) -> Looking + Send + Sync>;

/// The attempt that a reconciler looks for: it may have happened, or may still be under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LookupRequest {
    /// The attempt, for a target that keeps ids.
    pub attempt: AttemptId,
    /// Its fence. A target that compares numbers refuses the attempt once it has seen a higher
    /// fence; show it `fence.0 + 1` while looking, or declare a settling time.
    pub fence: Fence,
}

/// An effect about to be run. Made by [`Hapax::effect`].
///
/// ```
/// use std::time::Duration;
/// use hapax::{Failure, Hapax, Key, OnLock, Safety};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let hapax = Hapax::builder().in_memory();
/// let key = Key::derive("report.v1", &[("month", b"2026-11")])?;
/// let done = hapax
///     .effect(key)
///     .payload(b"all regions")
///     .safety(Safety::Transactional)
///     .lock(&["warehouse", "reports"])
///     .on_lock(OnLock::Wait)
///     .label("monthly report")
///     .ttl(Duration::from_secs(90 * 24 * 3600))
///     .deadline(Duration::from_secs(600))
///     .wait(Duration::from_secs(5))
///     .run(|_claim| async { Ok::<_, Failure>("42 pages") })
///     .await?;
/// assert_eq!(done.body(), Some(&b"42 pages"[..]));
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing happens until it is run"]
pub struct EffectBuilder {
    pub(crate) hapax: Hapax,
    pub(crate) name: Name,
    pub(crate) fingerprint: Fingerprint,
    safety: Safety,
    lock: Option<LockKey>,
    pub(crate) bound: Option<Bound>,
    label: Option<String>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) deadline: Option<Duration>,
    about: Option<String>,
    part: Option<Part>,
    within: Option<LeaseId>,
    pub(crate) wait: Duration,
    pub(crate) on_lock: OnLock,
    shares_failures: bool,
    reconciler: Option<Reconciler>,
    leaves_partial: bool,
    redactor: Option<Arc<dyn Redactor>>,
}

/// The fingerprint of an effect without a payload.
static NOTHING: LazyLock<Fingerprint> = LazyLock::new(|| Fingerprint::of(b""));

impl EffectBuilder {
    pub(crate) fn new(hapax: Hapax, name: Name) -> Self {
        Self {
            hapax,
            name,
            fingerprint: *NOTHING,
            safety: Safety::default(),
            lock: None,
            bound: None,
            label: None,
            ttl: None,
            deadline: None,
            about: None,
            part: None,
            within: None,
            wait: Duration::from_secs(30),
            on_lock: OnLock::default(),
            shares_failures: false,
            reconciler: None,
            leaves_partial: false,
            redactor: None,
        }
    }

    /// The payload. The same key with another payload is a conflict.
    pub fn payload(self, payload: &[u8]) -> Self {
        self.fingerprint(Fingerprint::of(payload))
    }

    /// The fingerprint of the payload, where you have it already.
    ///
    /// ```
    /// use hapax::Fingerprint;
    ///
    /// // The fields, where a payload would have to be put together first.
    /// let fingerprint = Fingerprint::of_parts(&[b"EUR", b"10.00"]);
    /// assert_ne!(fingerprint, Fingerprint::of_parts(&[b"EUR1", b"0.00"]));
    /// ```
    pub fn fingerprint(mut self, fingerprint: Fingerprint) -> Self {
        self.fingerprint = fingerprint;
        self
    }

    /// The safety class, which decides what a vanished holder means. The default, opaque, is the safe one.
    pub fn safety(mut self, safety: Safety) -> Self {
        self.safety = safety;
        self
    }

    /// Serialises this effect with all other effects on the same lock, such as a dataset and an
    /// operation type.
    pub fn lock(mut self, names: &[&str]) -> Self {
        self.lock = Some(LockKey::of(names));
        self
    }

    /// The same, by a lock key that is derived already.
    pub fn lock_key(mut self, lock: LockKey) -> Self {
        self.lock = Some(lock);
        self
    }

    /// When this call waits for an attempt of another process, it returns that attempt's failure,
    /// as calls in the same process do. Otherwise each waiting call tries for itself.
    pub fn share_failures(mut self) -> Self {
        self.shares_failures = true;
        self
    }

    /// Leaves a partial effect as it is and returns [`Blocked`](Error::Blocked), for callers who
    /// must ask a person before it is undone. Otherwise the engine undoes it and performs it again.
    pub fn leave_partial(mut self, leave: bool) -> Self {
        self.leaves_partial = leave;
        self
    }

    /// Rewords the texts that the ledger keeps about the effect: why it failed, why it could not be
    /// undone, what a reconciler found. A rollback step that may not be kept as it is, is refused.
    pub fn redactor(mut self, redactor: Arc<dyn Redactor>) -> Self {
        self.redactor = Some(redactor);
        self
    }

    /// How to react when the lock is held.
    pub fn on_lock(mut self, on_lock: OnLock) -> Self {
        self.on_lock = on_lock;
        self
    }

    /// Binds this effect to one epoch of a domain. In any other epoch the ledger refuses it, also
    /// when its outcome is known. If the epoch ends while the effect is under way, the effect is
    /// void. The engine always asks the ledger, never this process's cache.
    ///
    /// ```
    /// use hapax::{Bound, Domain, Error, Failure, Hapax, Key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let hapax = Hapax::builder().in_memory();
    /// let domain = Domain::new("connector")?;
    /// let key = Key::derive("rollout.v1", &[("release", b"1.4.2")])?;
    /// let notify = || {
    ///     let epoch = Bound { domain: domain.clone(), epoch: 0 };
    ///     hapax.effect(key).in_epoch(epoch).run(|_| async { Ok::<_, Failure>("moved") })
    /// };
    /// notify().await?;
    /// hapax.epochs().advance(&domain, (0, 1), "grace", "the leader was replaced").await?;
    /// assert!(matches!(notify().await, Err(Error::Epoch(mismatch)) if mismatch.current == 1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn in_epoch(mut self, epoch: Bound) -> Self {
        self.bound = Some(epoch);
        self
    }

    /// The name that people give it. Shown in lists; no part of the key.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// A note for readers of the journal, kept with the grant: at most 64 KiB. No part of the key,
    /// and none of the payload.
    pub fn about(mut self, note: impl Into<String>) -> Self {
        self.about = Some(note.into());
        self
    }

    /// The whole that this effect is a part of, and the data kept with it. See [`Hapax::parts`].
    pub fn part(mut self, part: Part) -> Self {
        self.part = Some(part);
        self
    }

    /// Lets it be granted only while the lease of another claim of this process lives.
    pub(crate) fn within(mut self, lease: LeaseId) -> Self {
        self.within = Some(lease);
        self
    }

    /// How long the ledger remembers it once settled. For ever unless given.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long the work may take, whatever the lease. The engine then stops it unless it is
    /// opaque, and a little later the claim lapses.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// How long to wait for another attempt that is doing it. Default 30 s.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// How to find out whether an attempt happened, for an effect that is
    /// [`Safety::Reconcilable`].
    ///
    /// ```
    /// use hapax::{Failure, Finding, Hapax, Key, Outcome, Safety, Settling};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let hapax = Hapax::builder().in_memory();
    /// let key = Key::derive("transfer.v1", &[("id", b"7")])?;
    /// let transfer = || {
    ///     hapax
    ///         .effect(key)
    ///         .safety(Safety::Reconcilable(Settling::TargetRefusesLate))
    ///         .reconcile(|_sought| async { Finding::Happened(Outcome::from("found at the bank")) })
    /// };
    /// let lost = transfer().run(|_| async { Err::<(), _>(Failure::ambiguous("timeout")) }).await;
    /// assert!(lost.is_err());
    /// let done = transfer().run(|_| async { Ok::<_, Failure>("never runs") }).await?;
    /// assert_eq!(done.body(), Some(&b"found at the bank"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn reconcile<F, Fut>(mut self, reconciler: F) -> Self
    where
        F: Fn(LookupRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Finding> + Send + 'static,
    {
        self.reconciler = Some(Arc::new(move |request| Box::pin(reconciler(request))));
        self
    }

    /// The outcome in this process's cache. It does not ask the store, so `None` says nothing.
    pub fn remembered(&self) -> Option<Done> {
        let bound = self.bound.is_some();
        let cache = &self.hapax.inner.cache;
        let outcome = (!bound).then(|| cache.get(&self.name, self.fingerprint)).flatten()?;
        Some(Done { outcome, how: How::Replayed })
    }

    /// Performs the effect, unless it was performed before; then returns the recorded outcome.
    ///
    /// The handler runs at most once in this call. [`Failure`] says what its error means; a panic
    /// or a dropped future counts as ambiguous.
    pub async fn run<F, Fut, T>(self, handler: F) -> Result<Done, Error>
    where
        F: FnOnce(Claim) -> Fut,
        Fut: Future<Output = Result<T, Failure>>,
        T: Into<Outcome>,
    {
        let inner = self.hapax.inner.clone();
        let until = Instant::now() + self.wait;
        if self.bound.is_some() {
            return self.drive(handler, until).await;
        }
        loop {
            let remembered = inner.cache.get(&self.name, self.fingerprint);
            inner.counters.remembered(remembered.is_some());
            if let Some(outcome) = remembered {
                return Ok(Done { outcome, how: How::Replayed });
            }
            match inner.flights.board(&self.name, self.fingerprint, &inner.cache) {
                Seat::Leader(leader) => {
                    let result = self.drive(handler, until).await;
                    leader.land(&result);
                    return result;
                }
                Seat::Stranger => return self.drive(handler, until).await,
                Seat::Follower(landing) => {
                    match tokio::time::timeout_at(until, follow(landing)).await {
                        Ok(Some(Ok(done))) => return Ok(Done { how: How::Shared, ..done }),
                        // The leader may have had less time than this caller.
                        Ok(
                            None
                            | Some(Err(
                                Error::InFlight { .. } | Error::Locked { .. } | Error::LeaseLost,
                            )),
                        ) => {}
                        Ok(Some(Err(error))) => return Err(error),
                        Err(_) => return self.drive(handler, until).await,
                    }
                }
            }
        }
    }

    /// The content of the claim.
    pub(crate) fn ask(&self, attempt: AttemptId, lease: LeaseId) -> Ask {
        Ask {
            fingerprint: self.fingerprint,
            safety: self.safety,
            lock: self.lock,
            bound: self.bound.clone(),
            label: self.label.clone(),
            ttl_ms: self.ttl.map(|ttl| ttl.as_millis() as u64),
            attempt,
            lease,
            // A little more than the work may take, so that the work is stopped before the claim lapses.
            deadline_ms: self.deadline.map(|deadline| ms(deadline) + ms(deadline) / 8 + 1),
            about: self.about.clone(),
            part: self.part.clone(),
        }
    }
}

/// In milliseconds.
fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 2)
}
