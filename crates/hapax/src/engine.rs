//! The handle on a ledger, and its parts.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use hapax_core::checkpoint::{Signer, Verifier};
use hapax_core::key::Key;
use hapax_core::name::{Name, Namespace};
use hapax_core::outcome::DEFAULT_KEEP_LIMIT;
#[cfg(feature = "postgres")]
use hapax_postgres::PgStore;
use hapax_sqlite::{BootClock, Options, SqliteStore};
use hapax_store::{Clock, Job, Request, Store, StoreError, answered, call};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;

use crate::abandoned::Abandoned;
use crate::cache::{self, Cache};
use crate::counters::{Counters, Counts};
use crate::effect::EffectBuilder;
use crate::error::Error;
use crate::flight::Flights;
use crate::holder::Holder;
use crate::outbox::follow::FollowBus;
use crate::passes::{self, Pass};
use crate::rollback::Rollbacks;
use crate::seal;
use crate::spool::{self, Spool};
use crate::waiters::Waiters;

/// A ledger of effects, open in this process. Cheap to clone.
///
/// ```
/// use hapax::{Failure, Hapax, Key, Namespace};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("hapax.db");
/// let hapax = Hapax::open(&path).await?;
/// let billing = hapax.in_namespace(Namespace::new("billing")?);
/// let key = Key::derive("invoice.v1", &[("order", b"42")])?;
/// billing.effect(key).run(|_| async { Ok::<_, Failure>("invoice 7") }).await?;
/// assert!(billing.effects().show(key).await?.is_some());
/// assert!(hapax.effects().show(key).await?.is_none());
///
/// let pass = hapax.pass().await?;
/// assert_eq!(pass.sealed, 2);
/// hapax.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Hapax {
    pub(crate) inner: Arc<Inner>,
    pub(crate) namespace: Namespace,
}

pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) sqlite: Option<Arc<SqliteStore>>,
    #[cfg(feature = "postgres")]
    pub(crate) postgres: Option<Arc<PgStore>>,
    pub(crate) signer: Option<Arc<Signer>>,
    pub(crate) verifier: Option<Verifier>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) flights: Arc<Flights>,
    pub(crate) holder: Arc<Holder>,
    pub(crate) waiting: Arc<Waiters>,
    pub(crate) rollbacks: Rollbacks,
    pub(crate) keep_limit: usize,
    pub(crate) callers: AtomicUsize,
    pub(crate) counters: Counters,
    /// Claims whose caller has given up and that may still be granted.
    pub(crate) abandoned: Abandoned,
    /// Keeps the reports that could not be recorded. `None` for a ledger that is not kept on disk.
    pub(crate) spool: Option<Spool>,
    /// How long a caller waits for its outcome to be recorded.
    pub(crate) record_within: Duration,
    /// The leases that grants without a lease of their own depend on, as far as this process knows them.
    pub(crate) anchors: Mutex<crate::remote::Anchors>,
    /// Notified when this process emits an event.
    pub(crate) emitted: Notify,
    /// Sends new events to the followers in this process.
    pub(crate) follow_bus: FollowBus,
    /// Whether a dispatcher is at work: two with one lease would both own its buckets.
    pub(crate) dispatches: AtomicBool,
    background: bool,
    started: OnceLock<()>,
    closed: AtomicBool,
}

impl Inner {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Counts a caller, for as long as it is at work.
    pub(crate) fn enter(&self) -> Caller<'_> {
        self.callers.fetch_add(1, Ordering::Relaxed);
        Caller(&self.callers)
    }

    /// Sends a command on the hot path. On a runtime with several threads, a lone caller's command
    /// runs on the caller's own thread: that thread waits for one commit, and no other thread has
    /// to be woken. On a runtime with one thread, that would keep other callers from joining the commit.
    pub(crate) async fn ask<R: Request>(&self, command: R) -> Result<R::Answer, StoreError> {
        let alone = self.callers.load(Ordering::Relaxed) == 1
            && Handle::try_current()
                .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
        let (job, answer) = Job::of(command);
        let left = if alone { self.store.submit_here(job) } else { Some(job) };
        if let Some(job) = left {
            self.store.submit(vec![job]);
        }
        answered(answer).await
    }

    /// Begins background work with the first claim, so that a process that only reads does none.
    pub(crate) fn start(self: &Arc<Self>) {
        if self.background && self.started.set(()).is_ok() {
            tokio::spawn(passes::forever(Arc::downgrade(self)));
        }
    }

    /// Begins background work before the first claim, and opens the lease by which the nodes divide
    /// that work.
    pub(crate) async fn start_now(self: &Arc<Self>) -> Result<(), StoreError> {
        self.start();
        if self.background {
            self.holder.lease().await?;
        }
        Ok(())
    }
}

/// A caller at work.
pub(crate) struct Caller<'a>(&'a AtomicUsize);

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How to open a ledger, where the defaults do not fit.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use hapax::{Hapax, MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("hapax.db");
/// let hapax = Hapax::builder()
///     .lease(Duration::from_secs(10))
///     .keep_limit(1024 * 1024)
///     .background(false)
///     .remember(16 * 1024 * 1024)
///     .holder("worker 3")
///     .open(&path)
///     .await?;
/// hapax.close().await?;
///
/// // In tests of your own: nothing is written to disk.
/// let forgetful = Hapax::builder().in_memory();
/// let shared = Hapax::builder().on(Arc::new(MemoryStore::with_system_clock()));
/// # drop((forgetful, shared));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Builder {
    lease: Duration,
    keep_limit: usize,
    background: bool,
    remember: u64,
    holder: String,
    signing_key: Option<PathBuf>,
    record_within: Duration,
}

/// The parts of an open ledger.
#[derive(Default)]
struct Parts {
    sqlite: Option<Arc<SqliteStore>>,
    #[cfg(feature = "postgres")]
    postgres: Option<Arc<PgStore>>,
    signer: Option<Arc<Signer>>,
    verifier: Option<Verifier>,
    spool: Option<Spool>,
    /// The clock that leases are judged by, where it is not the machine's.
    clock: Option<Arc<dyn Clock>>,
}

impl Builder {
    /// How long this process may be silent before its claims can be taken over. Default 15 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The largest outcome that is kept. A larger one still counts as a success, remembered
    /// by digest and size. Default 16 MiB.
    pub fn keep_limit(mut self, bytes: usize) -> Self {
        self.keep_limit = bytes;
        self
    }

    /// Whether this process expires, sweeps and seals in the background. Default yes.
    pub fn background(mut self, background: bool) -> Self {
        self.background = background;
        self
    }

    /// How many bytes of outcomes this process caches, so that it need not ask the store for them. Default 64 MiB.
    pub fn remember(mut self, bytes: u64) -> Self {
        self.remember = bytes;
        self
    }

    /// The holder of this process's lease, as shown to people. Default: the process id.
    pub fn holder(mut self, title: impl Into<String>) -> Self {
        self.holder = title.into();
        self
    }

    /// How long a caller waits for its outcome to be recorded while the store cannot be reached. Then
    /// it gets [`Error::Unrecorded`], and the outcome is kept in a file until it can be recorded.
    /// Default 15 s.
    pub fn record_within(mut self, longest: Duration) -> Self {
        self.record_within = longest;
        self
    }

    /// The file of the key that signs the journal's heads; made if it does not exist. Default:
    /// beside the ledger's file, or for a database in the user's data directory.
    pub fn signing_key(mut self, path: impl Into<PathBuf>) -> Self {
        self.signing_key = Some(path.into());
        self
    }

    /// Opens the ledger in this file, which is made if it does not exist, or in the database of
    /// a `postgres://` URL, which gets a schema if it has none.
    pub async fn open(self, location: impl Into<PathBuf>) -> Result<Hapax, Error> {
        let location = location.into();
        let url = location.to_str().filter(|text| text.starts_with("postgres"));
        match url.filter(|text| text.contains("://")).map(str::to_owned) {
            Some(url) => self.open_database(url).await,
            None => self.open_file(location).await,
        }
    }

    async fn open_file(self, path: PathBuf) -> Result<Hapax, Error> {
        let key = self.signing_key.clone();
        let (store, parts) = blocking(move || {
            let store = Arc::new(SqliteStore::open(&path, Options::default())?);
            let key = key.unwrap_or_else(|| seal::beside(store.path()));
            let signer = Arc::new(seal::signer(&key)?);
            let verifier = Some(signer.verifier());
            let parts = Parts {
                sqlite: Some(store.clone()),
                signer: Some(signer),
                verifier,
                spool: Some(Spool::of_file(store.path())),
                ..Parts::default()
            };
            Ok((store, parts))
        })
        .await?;
        Ok(self.build(store, parts).recording_kept().await)
    }

    #[cfg(not(feature = "postgres"))]
    async fn open_database(self, _: String) -> Result<Hapax, Error> {
        Err(Error::Unsupported("a database, without the feature `postgres`"))
    }

    #[cfg(feature = "postgres")]
    async fn open_database(self, url: String) -> Result<Hapax, Error> {
        let key = self.signing_key.clone();
        let (store, parts) = blocking(move || {
            let store = Arc::new(PgStore::open(&url, hapax_postgres::Options::default())?);
            let (signer, verifier) = shared_signer(&store, key)?;
            let parts = Parts {
                postgres: Some(store.clone()),
                signer,
                verifier,
                spool: Some(Spool::of_database(store.ledger())),
                ..Parts::default()
            };
            Ok((store, parts))
        })
        .await?;
        Ok(self.build(store, parts).recording_kept().await)
    }

    /// A ledger that forgets everything when it is dropped, for your own tests.
    pub fn in_memory(self) -> Hapax {
        self.on(Arc::new(hapax_store::MemoryStore::with_system_clock()))
    }

    /// A ledger on a store of your own. Its journal is not sealed.
    pub fn on(self, store: Arc<dyn Store>) -> Hapax {
        self.build(store, Parts::default())
    }

    /// A ledger on a store and a clock of the harness's.
    #[cfg(feature = "proof")]
    #[doc(hidden)]
    pub fn on_clock(self, store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Hapax {
        self.build(store, Parts { clock: Some(clock), ..Parts::default() })
    }

    fn build(self, store: Arc<dyn Store>, parts: Parts) -> Hapax {
        let clock = parts.clock.unwrap_or_else(|| Arc::new(BootClock::default()));
        let cache = Arc::new(Cache::new(clock, self.remember));
        let holder = Holder::new(store.clone(), cache.clone(), self.lease, self.holder);
        let inner = Inner {
            waiting: Waiters::new(store.clone()),
            store,
            sqlite: parts.sqlite,
            #[cfg(feature = "postgres")]
            postgres: parts.postgres,
            signer: parts.signer,
            verifier: parts.verifier,
            cache,
            flights: Arc::default(),
            holder,
            rollbacks: Rollbacks::default(),
            keep_limit: self.keep_limit,
            callers: AtomicUsize::new(0),
            counters: Counters::default(),
            abandoned: Abandoned::default(),
            spool: parts.spool,
            record_within: self.record_within,
            anchors: Mutex::default(),
            emitted: Notify::new(),
            follow_bus: FollowBus::default(),
            dispatches: AtomicBool::new(false),
            background: self.background,
            started: OnceLock::new(),
            closed: AtomicBool::new(false),
        };
        Hapax { inner: Arc::new(inner), namespace: Namespace::default() }
    }
}

impl Hapax {
    /// Records the outcomes that earlier processes could not record.
    async fn recording_kept(self) -> Self {
        spool::record_kept(&self.inner).await;
        self
    }
}

/// Does something that blocks, such as opening a store.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        Err(StoreError::Unavailable(format!("opening was cut short: {error}")))
    })
}

/// The signing key of a ledger that many nodes share. The key of the first node that sealed counts;
/// a node without that key leaves sealing to the nodes that have it.
#[cfg(feature = "postgres")]
fn shared_signer(
    store: &PgStore,
    path: Option<PathBuf>,
) -> Result<(Option<Arc<Signer>>, Option<Verifier>), StoreError> {
    let known = store.public_key(None)?;
    let Some(path) = path.or_else(|| seal::at_home(store.ledger())) else {
        return Ok((None, known.and_then(|key| key.parse().ok())));
    };
    let signer = match &known {
        Some(_) if !path.exists() => None,
        _ => Some(Arc::new(seal::signer(&path)?)),
    };
    let ours = signer.as_ref().map(|signer| signer.verifier());
    let offer = ours.as_ref().map(ToString::to_string);
    let counts: Option<Verifier> =
        store.public_key(offer.as_deref())?.and_then(|key| key.parse().ok());
    let signer = signer.filter(|_| ours == counts);
    if signer.is_none() {
        tracing::info!(name: "sealing_left_to_others", key = %path.display(), "no key to seal the journal with; others do it");
    }
    Ok((signer, counts))
}

impl Hapax {
    /// Opens the ledger in this file, which is made if it does not exist, or in the database of
    /// a `postgres://` URL.
    pub async fn open(location: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().open(location.as_ref()).await
    }

    /// How to open a ledger, where the defaults do not fit.
    pub fn builder() -> Builder {
        Builder {
            lease: Duration::from_secs(15),
            keep_limit: DEFAULT_KEEP_LIMIT,
            background: true,
            remember: cache::BYTES,
            holder: format!("process {}", std::process::id()),
            signing_key: None,
            record_within: Duration::from_secs(15),
        }
    }

    /// The same ledger, seen from another namespace.
    pub fn in_namespace(&self, namespace: Namespace) -> Self {
        Self { inner: self.inner.clone(), namespace }
    }

    /// The namespace this handle sees.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Begins to describe an effect.
    pub fn effect(&self, key: Key) -> EffectBuilder {
        EffectBuilder::new(self.clone(), self.name(key))
    }

    /// The counters of this process since it opened the ledger, over all namespaces.
    ///
    /// ```
    /// use hapax::{Failure, Hapax, Key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let hapax = Hapax::builder().in_memory();
    /// let key = Key::derive("charge.v1", &[("order", b"42")])?;
    /// for _ in 0..3 {
    ///     hapax.effect(key).run(|_| async { Ok::<_, Failure>("receipt 7") }).await?;
    /// }
    /// assert_eq!((hapax.counts().granted, hapax.counts().replayed), (1, 2));
    /// # Ok(())
    /// # }
    /// ```
    pub fn counts(&self) -> Counts {
        self.inner.counters.counts()
    }

    /// One round of background work, now.
    pub async fn pass(&self) -> Result<Pass, Error> {
        Ok(passes::round(&self.inner).await?)
    }

    /// Gives the lease back, and seals the journal. Work that still runs is left to its lease, as after a crash.
    pub async fn close(&self) -> Result<(), Error> {
        self.inner.closed.store(true, Ordering::Release);
        self.inner.holder.close().await?;
        if let Some(signer) = &self.inner.signer {
            passes::seal(&*self.inner.store, signer).await?;
        }
        Ok(())
    }

    /// Sends a command and waits for its answer.
    pub(crate) async fn call<R: Request>(&self, command: R) -> Result<R::Answer, Error> {
        Ok(call(&*self.inner.store, command).await?)
    }

    /// The name of an effect of this namespace.
    pub(crate) fn name(&self, key: Key) -> Name {
        Name { namespace: self.namespace.clone(), key }
    }
}

/// Random bytes of the operating system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], StoreError> {
    #[cfg(feature = "proof")]
    if let Some(rolled) = crate::proof::rolled() {
        return Ok(rolled);
    }
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| StoreError::Unavailable(format!("no random bytes: {error}")))?;
    Ok(bytes)
}
