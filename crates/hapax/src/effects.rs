//! The effects of a ledger: reading their records, and the decisions that only a person can make.

use hapax_core::attempt::AttemptId;
use hapax_core::effect::{Effect, Judged, Resolution, Seen, StateName};
use hapax_core::key::Key;
use hapax_core::planted::{Bug, planted};
use hapax_store::{EffectRecord, Filter, Step, command, read};

use crate::engine::Hapax;
use crate::error::Error;

/// The effects of one namespace: their records, and decisions about them. Made by
/// [`Hapax::effects`].
///
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
/// // What is known: the record, its history, and which effects need an operator.
/// let effects = hapax.effects();
/// let effect = effects.show(key).await?.ok_or("no record")?;
/// assert_eq!(effects.list(&[StateName::Indeterminate], 10).await?.len(), 1);
/// assert!(effects.steps(key, effect.attempt).await?.is_empty());
/// assert_eq!(hapax.journal().history(key, 10).await?.len(), 2);
///
/// // A person has looked: it was sent. And later: it is to be sent again.
/// let sent = Resolution::Happened("seen in the outbox".into());
/// effects.resolve(key, effect.seen(), sent, "grace", "asked ada").await?;
/// let seen = effects.seen(key, effect.attempt).await?;
/// effects.reset(key, seen, "grace", "ada lost it").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Effects<'a> {
    pub(crate) hapax: &'a Hapax,
}

impl Hapax {
    /// The effects of this namespace: their records, and decisions about them.
    pub fn effects(&self) -> Effects<'_> {
        Effects { hapax: self }
    }
}

impl Effects<'_> {
    /// One effect of this namespace, if there is a record.
    pub async fn show(self, key: Key) -> Result<Option<Effect>, Error> {
        let name = self.hapax.name(key);
        let mut effects = read(&*self.hapax.inner.store, move |view| view.effects(&[name])).await?;
        Ok(effects.pop().flatten())
    }

    /// Effects of this namespace, newest first; only in these states, if any are given.
    pub async fn list(
        self,
        states: &[StateName],
        limit: usize,
    ) -> Result<Vec<EffectRecord>, Error> {
        self.search(Filter { states: states.to_vec(), limit, ..Filter::default() }).await
    }

    /// Effects of this namespace that a filter lets through, newest first.
    pub async fn search(self, filter: Filter) -> Result<Vec<EffectRecord>, Error> {
        let filter = Filter { namespace: Some(self.hapax.namespace.clone()), ..filter };
        Ok(read(&*self.hapax.inner.store, move |view| view.list(&filter)).await?)
    }

    /// The rollback steps that an attempt registered, in order.
    pub async fn steps(self, key: Key, attempt: AttemptId) -> Result<Vec<Step>, Error> {
        let name = self.hapax.name(key);
        Ok(read(&*self.hapax.inner.store, move |view| view.steps(&name, attempt)).await?)
    }

    /// The present state of an attempt, for a decision that follows at once. A person who looked
    /// earlier names the state seen then.
    pub async fn seen(self, key: Key, attempt: AttemptId) -> Result<Seen, Error> {
        let state = self.show(key).await?.map(|effect| effect.state.name());
        Ok(Seen { attempt, state: state.unwrap_or(StateName::Running) })
    }

    /// Records a person's decision about an unknown outcome. It names the attempt and the state
    /// that the person was shown, so that a stale screen cannot decide about anything newer.
    pub async fn resolve(
        self,
        key: Key,
        seen: Seen,
        resolution: Resolution,
        actor: &str,
        note: &str,
    ) -> Result<Judged, Error> {
        let (actor, note) = (actor.to_owned(), note.to_owned());
        self.hapax
            .call(command::Resolve { name: self.hapax.name(key), seen, resolution, actor, note })
            .await
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
    /// let attempt = hapax.effects().show(key).await?.ok_or("no record")?.attempt;
    /// // The files were removed by hand.
    /// hapax.effects().rolled_back(key, attempt).await?;
    /// assert_eq!(hapax.effects().list(&[StateName::Failed], 10).await?.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn rolled_back(self, key: Key, attempt: AttemptId) -> Result<Judged, Error> {
        self.hapax.call(command::RolledBack { name: self.hapax.name(key), attempt }).await
    }

    /// Clears a record so that the effect can happen again. Names the state that the person was
    /// shown. Returns once every live process on the ledger has cleared its cache, or has lapsed.
    pub async fn reset(
        self,
        key: Key,
        seen: Seen,
        actor: &str,
        note: &str,
    ) -> Result<Judged, Error> {
        let (actor, note) = (actor.to_owned(), note.to_owned());
        self.hapax.inner.cache.clear();
        let judged = self
            .hapax
            .call(command::Reset { name: self.hapax.name(key), seen, actor, note })
            .await?;
        if let Judged::Decided(_) = judged {
            self.hapax.inner.cache.clear();
            if !planted(Bug::ResetUnawaited) {
                self.hapax.seen_by_all().await?;
            }
        }
        Ok(judged)
    }
}
