//! The epochs of domains: reading them, and advancing to the next.

use hapax::{Bound, Domain, Hapax, Transition};

use crate::error::Error;

/// The epochs of a namespace's domains. Cheap to clone.
///
/// ```
/// use hapax::{Domain, Hapax};
/// use hapax_control::Epochs;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let hapax = Hapax::builder().in_memory();
/// let (epochs, connector) = (Epochs::new(hapax), Domain::new("connector")?);
/// let seen = epochs.current(&connector).await?;
/// let transition = epochs.advance(&connector, seen, "grace", "the leader was replaced").await?;
/// assert_eq!((transition.epoch, transition.moved), (1, true));
/// // A repeated call changes nothing.
/// assert!(!epochs.advance(&connector, seen, "grace", "the leader was replaced").await?.moved);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Epochs {
    hapax: Hapax,
}

impl Epochs {
    /// The epochs of this ledger's namespace.
    pub fn new(hapax: Hapax) -> Self {
        Self { hapax }
    }

    /// The epoch a domain is in; 0 if it was never advanced.
    pub async fn current(&self, domain: &Domain) -> Result<u64, Error> {
        Ok(self.hapax.epochs().current(domain).await?)
    }

    /// All domains that are known, with their epochs.
    pub async fn all(&self) -> Result<Vec<Bound>, Error> {
        Ok(self.hapax.epochs().list().await?)
    }

    /// Ends the epoch that was seen, on all nodes at once. When this returns, no key of that epoch
    /// counts any more, and requests in flight are void. Nothing happens if the epoch is over
    /// already.
    pub async fn advance(
        &self,
        domain: &Domain,
        seen: u64,
        actor: &str,
        reason: &str,
    ) -> Result<Transition, Error> {
        self.advance_to(domain, (seen, seen.saturating_add(1)), actor, reason).await
    }

    /// The same, from the epoch that was seen to one that another system has numbered.
    pub async fn advance_to(
        &self,
        domain: &Domain,
        (seen, to): (u64, u64),
        actor: &str,
        reason: &str,
    ) -> Result<Transition, Error> {
        Ok(self.hapax.epochs().advance(domain, (seen, to), actor, reason).await?)
    }
}
