//! The epoch that a domain is in, and the transition to the next.

use hapax_core::epoch::{Bound, Domain, Transition};
use hapax_store::{StoreError, call, command, read};

use crate::engine::Hapax;
use crate::error::Error;

/// How many times a transition is sent when its answer is lost.
const TRIES: usize = 5;

/// The epochs of the domains of one namespace. Made by [`Hapax::epochs`].
///
/// ```
/// use hapax::{Domain, Hapax};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let hapax = Hapax::builder().in_memory();
/// let (epochs, connector) = (hapax.epochs(), Domain::new("connector")?);
/// assert_eq!(epochs.current(&connector).await?, 0);
/// epochs.advance(&connector, (0, 1), "grace", "the leader was replaced").await?;
/// assert_eq!(epochs.current(&connector).await?, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Epochs<'a> {
    hapax: &'a Hapax,
}

impl Hapax {
    /// The epochs that the domains of this namespace are in.
    pub fn epochs(&self) -> Epochs<'_> {
        Epochs { hapax: self }
    }
}

impl Epochs<'_> {
    /// The epoch that a domain of this namespace is in; 0 if it never went over to another.
    pub async fn current(self, domain: &Domain) -> Result<u64, Error> {
        let (namespace, domain) = (self.hapax.namespace.clone(), domain.clone());
        Ok(read(&*self.hapax.inner.store, move |view| view.epoch(&namespace, &domain)).await?)
    }

    /// The domains of this namespace that have left epoch 0, with their epochs, by name.
    pub async fn list(self) -> Result<Vec<Bound>, Error> {
        let namespace = self.hapax.namespace.clone();
        Ok(read(&*self.hapax.inner.store, move |view| view.epochs(&namespace)).await?)
    }

    /// Moves a domain from the epoch that the caller saw to a new one, on all nodes at once. When
    /// this returns, nothing is granted, settled or replayed in an older epoch. Effects that were
    /// under way are void and indeterminate, with this reason. If the epoch that the caller saw is
    /// over, nothing happens, so the call may be repeated.
    pub async fn advance(
        self,
        domain: &Domain,
        (seen, to): (u64, u64),
        actor: &str,
        reason: &str,
    ) -> Result<Transition, Error> {
        let command = command::Advance {
            namespace: self.hapax.namespace.clone(),
            domain: domain.clone(),
            seen,
            to,
            actor: actor.to_owned(),
            reason: reason.to_owned(),
        };
        let mut tries = 0;
        loop {
            tries += 1;
            match call(&*self.hapax.inner.store, command.clone()).await {
                Ok(transition) => return Ok(transition),
                Err(StoreError::CommitUnknown(_)) if tries < TRIES => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
