//! The effects of a ledger: reading their records, and the decisions that only a person can make.

use std::collections::HashSet;

use hapax_core::attempt::AttemptId;
use hapax_core::effect::{Effect, Judged, Resolution, Seen, StateName};
use hapax_core::key::Key;
use hapax_core::lease::Liveness;
use hapax_core::planted::{Bug, planted};
use hapax_store::{
    EffectRecord, EffectStatus, Filter, Step, StoreError, View, command, effect, read,
};

use crate::engine::Hapax;
use crate::error::Error;
use crate::remote::holder_name;

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

    /// One effect of this namespace with the status of its holder, if there is a record.
    ///
    /// ```
    /// use hapax::{Failure, Hapax, Key, Liveness};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let hapax = Hapax::builder().in_memory();
    /// let key = Key::derive("charge.v1", &[("order", b"42")])?;
    /// let reader = hapax.clone();
    /// let work = |_| async move {
    ///     let status = reader.effects().status(key).await.ok().flatten();
    ///     assert_eq!(status.and_then(|status| status.liveness()), Some(Liveness::Alive));
    ///     Ok::<_, Failure>("receipt 7")
    /// };
    /// hapax.effect(key).run(work).await?;
    /// let status = hapax.effects().status(key).await?.ok_or("no record")?;
    /// assert_eq!(status.holder, None);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn status(self, key: Key) -> Result<Option<EffectStatus>, Error> {
        let name = self.hapax.name(key);
        let mut found = self
            .confirmed(move |view| {
                let found = view.effects(std::slice::from_ref(&name))?.pop().flatten();
                let found = found.map(|effect| EffectRecord { name: name.clone(), effect });
                effect::statuses(view, found.into_iter().collect())
            })
            .await?;
        Ok(found.pop())
    }

    /// Effects of this namespace that a filter lets through, newest first, with the status of their
    /// holders.
    pub async fn statuses(self, filter: Filter) -> Result<Vec<EffectStatus>, Error> {
        let filter = Filter { namespace: Some(self.hapax.namespace.clone()), ..filter };
        self.confirmed(move |view| {
            let found = view.list(&filter)?;
            effect::statuses(view, found)
        })
        .await
    }

    /// Effects of this namespace that need attention, newest first: they are partial, unknown or
    /// indeterminate, or they run and their holder is silent or dead. The states of the filter do not
    /// count.
    pub async fn stuck(self, filter: Filter) -> Result<Vec<EffectStatus>, Error> {
        let filter = Filter { namespace: Some(self.hapax.namespace.clone()), ..filter };
        self.confirmed(move |view| effect::stuck(view, &filter)).await
    }

    /// Running effects of all namespaces whose holder is silent or dead.
    pub(crate) async fn unheld(self, limit: usize) -> Result<Vec<EffectStatus>, Error> {
        let filter = Filter { limit, ..Filter::default() };
        let mut found = self.confirmed(move |view| effect::unheld(view, &filter)).await?;
        found.retain(|status| status.liveness() != Some(Liveness::Alive));
        Ok(found)
    }

    /// Reads statuses, and confirms that a dead holder left its effect running. It may have settled
    /// after the snapshot of the read, and ended before its lock was tested. Then a later snapshot
    /// shows the outcome.
    async fn confirmed<S>(self, statuses: S) -> Result<Vec<EffectStatus>, Error>
    where
        S: Fn(&mut dyn View) -> Result<Vec<EffectStatus>, StoreError> + Clone + Send + 'static,
    {
        let store = &*self.hapax.inner.store;
        let is_dead = |status: &EffectStatus| status.liveness() == Some(Liveness::Dead);
        let mut found = read(store, statuses.clone()).await?;
        let dead: HashSet<AttemptId> = found
            .iter()
            .filter(|status| is_dead(status))
            .map(|status| status.effect.attempt)
            .collect();
        if !dead.is_empty() {
            found = read(store, statuses).await?;
        }
        for status in &mut found {
            let is_confirmed = !is_dead(status) || dead.contains(&status.effect.attempt);
            let Some(holder) = &mut status.holder else { continue };
            if !is_confirmed {
                (holder.liveness, holder.since) = (Liveness::Alive, None);
            }
            let name = holder.name.take();
            holder.name = name.and_then(|name| holder_name(&name).map(str::to_owned));
        }
        Ok(found)
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

    /// Clears the record of an effect whose attempt failed, so that its key may be used for another
    /// payload. Unlike [`Effects::reset`] it waits for no process: none remembers an outcome.
    pub async fn unbind(
        self,
        key: Key,
        attempt: AttemptId,
        actor: &str,
        note: &str,
    ) -> Result<Judged, Error> {
        let (name, seen) = (self.hapax.name(key), Seen { attempt, state: StateName::Failed });
        let (actor, note) = (actor.to_owned(), note.to_owned());
        self.hapax.call(command::Reset { name, seen, actor, note }).await
    }
}
