//! Queries on a ledger, and the decisions that only a person can make.

use hapax_core::attempt::AttemptId;
use hapax_core::checkpoint::Verifier;
use hapax_core::effect::{Effect, Judged, Resolution, Seen, StateName};
use hapax_core::journal::{Entry, EntryKind};
use hapax_core::key::Key;
use hapax_core::lease::Lease;
use hapax_core::name::{Name, Namespace};
use hapax_core::planted::{Bug, planted};
use hapax_sqlite::Ailment;
use hapax_store::journal::{Proof, Verified, verify};
use hapax_store::{EffectRecord, Filter, Request, Step, StoreError, call, command, read};

use crate::engine::Hapax;
use crate::error::Error;

///
/// # Looking, and deciding
/// ```
/// use hapax::{Failure, Hapax, Key, Resolution, StateName};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let hapax = Hapax::builder().in_memory();
/// let key = Key::derive("e-mail.v1", &[("to", b"ada")])?;
/// let lost = hapax.effect(key).run(|_| async { Err::<(), _>(Failure::ambiguous("timeout")) });
/// assert!(lost.await.is_err());
///
/// // What is known: the record, its history, and what needs somebody.
/// let effect = hapax.show(key).await?.ok_or("no record")?;
/// assert_eq!(hapax.list(&[StateName::Indeterminate], 10).await?.len(), 1);
/// assert_eq!(hapax.history(key, 10).await?.len(), 2);
/// assert_eq!(hapax.journal(0, 10).await?.len() as u64, hapax.last_entry().await?);
/// assert!(hapax.steps(key, effect.attempt).await?.is_empty());
/// assert_eq!(hapax.leases().await?.len(), 1);
/// assert_eq!(hapax.namespace().as_str(), "default");
/// for finding in hapax.doctor().await?.findings {
///     println!("{:?}: {}; {}", finding.severity, finding.what, finding.next);
/// }
///
/// // A person has looked: it was sent. And later: it is to be sent again.
/// let sent = Resolution::Happened("seen in the outbox".into());
/// hapax.resolve(key, effect.seen(), sent, "grace", "asked ada").await?;
/// let seen = hapax.seen(key, effect.attempt).await?;
/// hapax.reset(key, seen, "grace", "ada lost it").await?;
/// # Ok(())
/// # }
/// ```
impl Hapax {
    /// One effect of this namespace, if there is a record.
    pub async fn show(&self, key: Key) -> Result<Option<Effect>, Error> {
        let name = self.name(key);
        let mut effects = read(&*self.inner.store, move |view| view.effects(&[name])).await?;
        Ok(effects.pop().flatten())
    }

    /// Effects of this namespace, newest first; only in these states, if any are given.
    pub async fn list(
        &self,
        states: &[StateName],
        limit: usize,
    ) -> Result<Vec<EffectRecord>, Error> {
        self.search(Filter { states: states.to_vec(), limit, ..Filter::default() }).await
    }

    /// Effects of this namespace that a filter lets through, newest first.
    pub async fn search(&self, filter: Filter) -> Result<Vec<EffectRecord>, Error> {
        let filter = Filter { namespace: Some(self.namespace.clone()), ..filter };
        Ok(read(&*self.inner.store, move |view| view.list(&filter)).await?)
    }

    /// The journal of one effect of this namespace, oldest first.
    pub async fn history(&self, key: Key, limit: usize) -> Result<Vec<Entry>, Error> {
        self.history_after(key, 0, limit).await
    }

    /// The same after an entry. For an effect whose record is gone, the store searches the journal
    /// from there on.
    pub async fn history_after(
        &self,
        key: Key,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Entry>, Error> {
        let name = self.name(key);
        Ok(read(&*self.inner.store, move |view| view.entries(Some(&name), after, limit)).await?)
    }

    /// The journal of the whole ledger after an entry, oldest first.
    pub async fn journal(&self, after: u64, limit: usize) -> Result<Vec<Entry>, Error> {
        Ok(read(&*self.inner.store, move |view| view.entries(None, after, limit)).await?)
    }

    /// Sealed entries from this leaf on, each with its leaf; archived entries are left out. Leaves
    /// have no gaps and never change places, so a reader that takes them in order misses nothing.
    pub async fn sealed(&self, first: u64, limit: u64) -> Result<Sealed, Error> {
        let sealed = read(&*self.inner.store, move |view| {
            let size = view.newest_head()?.map_or(0, |head| head.size);
            let first = first.min(size);
            let count = (size - first).min(limit);
            let entries = view.leaf_entries(first, count)?;
            let entries = (first..).zip(entries).filter_map(|(leaf, entry)| Some((leaf, entry?)));
            Ok(Sealed { entries: entries.collect(), next: first + count, size })
        });
        Ok(sealed.await?)
    }

    /// The newest signed head of the journal, if there is one.
    pub async fn checkpoint(&self) -> Result<Option<String>, Error> {
        let head = read(&*self.inner.store, |view| view.newest_head()).await?;
        Ok(head.map(|head| head.note))
    }

    /// The number of the newest journal entry.
    pub async fn last_entry(&self) -> Result<u64, Error> {
        Ok(read(&*self.inner.store, |view| view.last_entry()).await?)
    }

    /// The rollback steps that an attempt registered, in order.
    pub async fn steps(&self, key: Key, attempt: AttemptId) -> Result<Vec<Step>, Error> {
        let name = self.name(key);
        Ok(read(&*self.inner.store, move |view| view.steps(&name, attempt)).await?)
    }

    /// The leases that are in force.
    pub async fn leases(&self) -> Result<Vec<Lease>, Error> {
        Ok(read(&*self.inner.store, |view| view.leases()).await?)
    }

    /// All namespaces that have ever been used on this ledger.
    pub async fn namespaces(&self) -> Result<Vec<Namespace>, Error> {
        Ok(read(&*self.inner.store, |view| view.namespaces()).await?)
    }

    /// The namespace this handle sees.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The present state of an attempt, for a decision that follows at once. A person who looked
    /// earlier names the state seen then.
    pub async fn seen(&self, key: Key, attempt: AttemptId) -> Result<Seen, Error> {
        let state = self.show(key).await?.map(|effect| effect.state.name());
        Ok(Seen { attempt, state: state.unwrap_or(StateName::Running) })
    }

    /// Records a person's decision about an unknown outcome. It names the attempt and the state
    /// that the person was shown, so that a stale screen cannot decide about anything newer.
    pub async fn resolve(
        &self,
        key: Key,
        seen: Seen,
        resolution: Resolution,
        actor: &str,
        note: &str,
    ) -> Result<Judged, Error> {
        let (actor, note) = (actor.to_owned(), note.to_owned());
        self.call(command::Resolve { name: self.name(key), seen, resolution, actor, note }).await
    }

    /// Records that a partial effect of this attempt was rolled back.
    ///
    /// ```
    /// use hapax::{Failure, Hapax, Key, StateName};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let hapax = Hapax::builder().in_memory();
    /// let key = Key::derive("export.v1", &[("day", b"2026-11-16")])?;
    /// let half = hapax.effect(key).run(|_| async { Err::<(), _>(Failure::partial("disk full")) });
    /// assert!(half.await.is_err());
    /// let attempt = hapax.show(key).await?.ok_or("no record")?.attempt;
    /// // The files were removed by hand.
    /// hapax.rolled_back(key, attempt).await?;
    /// assert_eq!(hapax.list(&[StateName::Failed], 10).await?.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn rolled_back(&self, key: Key, attempt: AttemptId) -> Result<Judged, Error> {
        self.call(command::RolledBack { name: self.name(key), attempt }).await
    }

    /// Clears a record so that the effect can happen again. Names the state that the person was
    /// shown. Returns once every live process on the ledger has cleared its cache, or has lapsed.
    pub async fn reset(
        &self,
        key: Key,
        seen: Seen,
        actor: &str,
        note: &str,
    ) -> Result<Judged, Error> {
        let (actor, note) = (actor.to_owned(), note.to_owned());
        self.inner.cache.clear();
        let judged = self.call(command::Reset { name: self.name(key), seen, actor, note }).await?;
        if let Judged::Decided(_) = judged {
            self.inner.cache.clear();
            if !planted(Bug::ResetUnawaited) {
                self.seen_by_all().await?;
            }
        }
        Ok(judged)
    }

    /// Waits until every lease in force has seen the newest notice. A dead holder stops counting as soon as the
    /// store knows of its death. A silent one stops counting once its lease has lapsed by the store's pulse, so a
    /// clock that jumps excuses no live holder.
    pub(crate) async fn seen_by_all(&self) -> Result<(), Error> {
        let store = &*self.inner.store;
        let notice = read(store, |view| view.notice()).await?;
        loop {
            let behind = read(store, move |view| {
                let (now, pulse) = (view.now(), view.pulse()?);
                let mut behind = view.leases()?;
                behind.retain(|lease| lease.seen < notice && !lease.lapsed(now, &pulse));
                behind.retain(|lease| !view.is_gone(lease));
                let late = behind.iter().filter(|lease| lease.until.reached(now.lease));
                Ok((behind.len(), late.map(|lease| lease.term_ms).min()))
            });
            let (behind, late) = behind.await?;
            if behind == 0 {
                return Ok(());
            }
            // This process must beat the pulse, or a silent lease would never be judged.
            if let Some(term_ms) = late {
                call(store, command::Expire { limit: 0 }).await?;
                let pause = std::time::Duration::from_millis((term_ms / 8).clamp(5, 100));
                tokio::time::sleep(pause).await;
            } else {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        }
    }

    /// Sends a command and waits for its answer.
    pub(crate) async fn call<R: Request>(&self, command: R) -> Result<R::Answer, Error> {
        Ok(call(&*self.inner.store, command).await?)
    }

    fn name(&self, key: Key) -> Name {
        Name { namespace: self.namespace.clone(), key }
    }

    /// The public key that verifies this ledger's journal.
    pub fn verifier(&self) -> Result<Verifier, Error> {
        let verifier = self.inner.verifier.clone();
        verifier.ok_or(Error::Unsupported("this ledger's journal is not sealed"))
    }

    /// Signs a message with the key that signs the journal's heads, and says which key that is. The
    /// message should name its own type, as an envelope of DSSE does.
    pub fn sign(&self, message: &[u8]) -> Result<(String, Vec<u8>), Error> {
        let signer = self.inner.signer.as_ref();
        let signer = signer.ok_or(Error::Unsupported("this node has no key to sign with"))?;
        Ok(signer.sign_bytes(message))
    }

    /// Compares every sealed entry of the journal with its tree and its signed heads. `progress`
    /// gets the number of entries read so far, and of all entries.
    pub async fn verify(
        &self,
        verifier: Verifier,
        progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Result<Verified, Error> {
        Ok(read(&*self.inner.store, move |view| verify(view, &verifier, progress)).await?)
    }

    /// A proof that an entry is in the journal; `None` if it is not there or not sealed yet.
    ///
    /// ```
    /// use hapax::{Failure, Hapax, Key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("hapax.db");
    /// let hapax = Hapax::open(&path).await?;
    /// let key = Key::derive("charge.v1", &[("order", b"42")])?;
    /// hapax.effect(key).run(|_| async { Ok::<_, Failure>("receipt 7") }).await?;
    /// hapax.pass().await?;
    ///
    /// let verifier = hapax.verifier()?;
    /// let verified = hapax.verify(verifier.clone(), |_done, _of| ()).await?;
    /// assert_eq!((verified.sealed, verified.damage.len()), (2, 0));
    /// // A proof needs neither the ledger nor us, only the public key.
    /// let proof = hapax.prove(1).await?.ok_or("not sealed yet")?;
    /// assert_eq!(proof.verify(&verifier)?.size, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn prove(&self, entry: u64) -> Result<Option<Proof>, Error> {
        Ok(read(&*self.inner.store, move |view| Proof::of(view, entry)).await?)
    }

    /// Looks for problems that need attention.
    pub async fn doctor(&self) -> Result<Doctor, Error> {
        let mut doctor = read(&*self.inner.store, examine).await?;
        if let Some(sqlite) = self.inner.sqlite.clone() {
            let ailments = crate::engine::blocking(move || sqlite.examine()).await?;
            doctor.findings.extend(ailments.into_iter().map(Finding::from));
            doctor.findings.sort_by_key(|finding| finding.severity);
        }
        #[cfg(feature = "postgres")]
        let doctor = match self.inner.postgres.clone() {
            Some(postgres) => {
                let ailments = crate::engine::blocking(move || postgres.examine()).await?;
                doctor.with(ailments)
            }
            None => doctor,
        };
        Ok(doctor)
    }

    /// Repairs a ledger in a file: removes second rows of one key, and indexes rows that are not
    /// found by their keys. Their history stays in the journal. Returns how many rows.
    pub async fn repair(&self) -> Result<usize, Error> {
        let sqlite = self.inner.sqlite.clone();
        let sqlite = sqlite.ok_or(Error::Unsupported("only a ledger in a file is repaired"))?;
        Ok(crate::engine::blocking(move || sqlite.repair()).await?)
    }

    /// Call this once after the ledger's database was restored from a backup, before any work is
    /// done. It ends all leases, so no holder keeps the effects that were running, and raises the
    /// fences above all that were ever given. Returns how many effects were running. A ledger in a
    /// file needs none of this: its leases end with the boot they were taken in.
    pub async fn after_restore(&self) -> Result<u64, Error> {
        #[cfg(feature = "postgres")]
        if let Some(postgres) = self.inner.postgres.clone() {
            return Ok(crate::engine::blocking(move || postgres.after_restore()).await?);
        }
        Err(Error::Unsupported("this ledger is not in a database"))
    }
}

/// Sealed entries of the journal. See [`Hapax::sealed`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sealed {
    /// Each with its leaf, in order.
    pub entries: Vec<(u64, Entry)>,
    /// The leaf to go on from.
    pub next: u64,
    /// How many leaves there are.
    pub size: u64,
}

/// The findings of [`Hapax::doctor`].
#[derive(Debug, Clone, Default)]
pub struct Doctor {
    /// How many effects there are in each state.
    pub census: Vec<(StateName, u64)>,
    /// How many processes hold a lease.
    pub leases: usize,
    /// How many entries the journal has.
    pub entries: u64,
    /// How many of them are sealed.
    pub sealed: u64,
    /// The problems, worst first.
    pub findings: Vec<Finding>,
}

/// A problem that needs attention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The problem.
    pub what: String,
    /// The next step.
    pub next: String,
}

impl From<Ailment> for Finding {
    fn from(ailment: Ailment) -> Self {
        match ailment {
            Ailment::Missing(part) => Self {
                severity: Severity::Error,
                what: format!("the {part} is missing"),
                next: "copy the file; then make it again as `hapax_sqlite::SCHEMA` has it".into(),
            },
            Ailment::SecondRow { key, effect } => Self {
                severity: Severity::Error,
                what: format!(
                    "{key} has a second row, number {effect}, which is not found by its key"
                ),
                next: "compare both in the history of the key, then: hapax doctor --repair".into(),
            },
            Ailment::Bloated(share) => Self {
                severity: Severity::Warning,
                what: format!("{share} of 100 pages of the file are empty"),
                next: "while no process writes: VACUUM".into(),
            },
        }
    }
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// An operator must act: something is stuck or wrong.
    Error,
    /// An operator should look.
    Warning,
}

#[cfg(feature = "postgres")]
impl Doctor {
    fn with(mut self, ailments: Vec<hapax_postgres::Ailment>) -> Self {
        self.findings.extend(ailments.into_iter().map(|ailment| Finding {
            severity: if ailment.severe { Severity::Error } else { Severity::Warning },
            what: ailment.what,
            next: ailment.next,
        }));
        self.findings.sort_by_key(|finding| finding.severity);
        self
    }
}

/// How many stuck effects are named one by one.
const NAMED: usize = 20;

fn examine(view: &mut dyn hapax_store::View) -> Result<Doctor, StoreError> {
    let sealed = view.newest_head()?.map_or(0, |head| head.size);
    let mut doctor = Doctor {
        census: view.census()?,
        leases: view.leases()?.len(),
        entries: sealed + view.pending()?,
        sealed,
        findings: Vec::new(),
    };
    let states = StateName::NEEDING_ATTENTION.to_vec();
    for found in view.list(&Filter { states, limit: NAMED, ..Filter::default() })? {
        doctor.findings.push(stuck_effect(&found));
    }
    for entry in recent_contradictions(view)? {
        doctor.findings.push(Finding {
            severity: Severity::Error,
            what: format!(
                "{}: a stale attempt, {}, reported success (entry {})",
                entry.key, entry.attempt, entry.id
            ),
            next: "compare what both attempts did at the target".into(),
        });
    }
    let now = view.now();
    for lease in view.leases()? {
        if view.is_gone(&lease) || lease.until.reached(now.lease) {
            doctor.findings.push(Finding {
                severity: Severity::Warning,
                what: format!("{} ({}) is dead or silent", lease.id, lease.holder),
                next: "nothing, if it was stopped; what it left is taken over when asked for"
                    .into(),
            });
        }
    }
    if !now.wall_trusted {
        doctor.findings.push(Finding {
            severity: Severity::Error,
            what: "the wall clock ran ahead of the machine's uptime; nothing expires".into(),
            next: "set the clock right; expiry resumes by itself".into(),
        });
    }
    doctor.findings.sort_by_key(|finding| finding.severity);
    Ok(doctor)
}

fn stuck_effect(found: &EffectRecord) -> Finding {
    let EffectRecord { name, effect } = found;
    let label = effect.label.as_ref().map(|label| format!(" ({label})")).unwrap_or_default();
    let state = effect.state.name();
    let held = effect.lock.map(|lock| format!("; it holds {lock}")).unwrap_or_default();
    Finding {
        severity: Severity::Error,
        what: format!(
            "{}{label} is {state}: {}{held}",
            name.key,
            effect.state.reason().unwrap_or_default()
        ),
        next: match state {
            StateName::Unknown => {
                "run it again with its reconciler, or decide: hapax effects resolve".into()
            }
            StateName::Partial => {
                "run it again with its rollback, or decide: hapax effects resolve".into()
            }
            _ => "find out whether it happened, then: hapax effects resolve".into(),
        },
    }
}

/// How far back contradictions are looked for.
const RECENT: u64 = 10_000;

fn recent_contradictions(view: &mut dyn hapax_store::View) -> Result<Vec<Entry>, StoreError> {
    let after = view.last_entry()?.saturating_sub(RECENT);
    let entries = view.entries(None, after, RECENT as usize)?;
    Ok(entries
        .into_iter()
        .filter(|entry| entry.event == EntryKind::Contradicted)
        .take(NAMED)
        .collect())
}
