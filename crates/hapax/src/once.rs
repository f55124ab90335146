//! Claim, run and settle in one transaction of the caller's: the fast path when the effect
//! is a change in the same file.

use hapax_core::attempt::AttemptId;
use hapax_core::effect::{Report, Safety, Settled};
use hapax_core::lease::LeaseId;
use hapax_core::outcome::Outcome;
use rusqlite::{Connection, Transaction};

use crate::claim::Claim;
use crate::effect::{Done, EffectBuilder, How};
use crate::engine::{Hapax, random};
use crate::error::{Error, Failure};
use crate::permit::Permit;

/// A claim that ends with its transaction depends on no lease.
pub(crate) const NO_LEASE: LeaseId = LeaseId::from_bytes([0; 16]);

impl Hapax {
    /// A connection to the ledger's file for your own tables, fit for
    /// [`settle_in`](crate::Claim::settle_in) and [`once_in`](EffectBuilder::once_in).
    ///
    /// ```
    /// use hapax::Hapax;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("hapax.db");
    /// let hapax = Hapax::open(&path).await?;
    /// hapax.connection()?.execute_batch("CREATE TABLE account (balance INTEGER)")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connection(&self) -> Result<Connection, Error> {
        let sqlite =
            self.inner.sqlite.as_ref().ok_or(Error::Unsupported("this ledger is not in a file"))?;
        Ok(sqlite.connection()?)
    }

    /// The SQL that makes the ledger's own tables in a file. A program that lets other code write
    /// to that file uses it to keep that code off these tables.
    ///
    /// ```
    /// assert!(hapax::Hapax::schema().contains("CREATE TABLE journal"));
    /// ```
    pub fn schema() -> &'static str {
        hapax_sqlite::SCHEMA
    }
}

impl EffectBuilder {
    /// Performs the effect inside your transaction, unless it was performed before. It is
    /// recorded when you commit, and never happened when you roll back.
    ///
    /// On an error, roll back: your writes and the claim go together.
    ///
    /// ```
    /// use hapax::{Failure, Hapax, Key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// let hapax = Hapax::open(directory.path().join("hapax.db")).await?;
    /// let mut connection = hapax.connection()?;
    /// connection.execute_batch("CREATE TABLE visit (page TEXT)")?;
    /// let key = Key::derive("visit.v1", &[("id", b"7")])?;
    /// for _ in 0..2 {
    ///     let tx = connection.transaction()?;
    ///     hapax.effect(key).once_in(&tx, |tx, _claim| {
    ///         tx.execute("INSERT INTO visit VALUES ('/')", [])?;
    ///         Ok::<_, Failure>("counted")
    ///     })?;
    ///     tx.commit()?;
    /// }
    /// let visits: u32 = connection.query_row("SELECT count(*) FROM visit", [], |row| row.get(0))?;
    /// assert_eq!(visits, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn once_in<T: Into<Outcome>>(
        self,
        tx: &Transaction<'_>,
        work: impl FnOnce(&Transaction<'_>, &Claim) -> Result<T, Failure>,
    ) -> Result<Done, Error> {
        let effect = self.safety(Safety::Transactional);
        let (hapax, name) = (&effect.hapax, &effect.name);
        let sqlite = hapax
            .inner
            .sqlite
            .as_ref()
            .ok_or(Error::Unsupported("once_in needs a ledger in a file"))?;
        let attempt = AttemptId::from_bytes(random()?);
        let verdict = sqlite.claim_in(tx, name, &effect.ask(attempt, NO_LEASE))?;
        let claim = match Permit::of(verdict)? {
            Permit::Granted(grant) => Claim::new(hapax.inner.clone(), name.clone(), grant, None),
            Permit::Replayed { outcome, .. } => return Ok(Done { outcome, how: How::Replayed }),
        };
        let outcome = match work(tx, &claim) {
            Ok(outcome) => outcome.into().within(hapax.inner.keep_limit),
            Err(failure) => return Err(Error::Failed { reason: failure.reason }),
        };
        let (report, attachments) =
            (Report::Succeeded(outcome.clone()), claim.attachments.waiting());
        match sqlite.settle_in(tx, name, claim.by(), &report, &attachments)? {
            Settled::Fenced(fenced) => Err(Error::Fenced(fenced)),
            Settled::Outdated(mismatch) => Err(Error::Epoch(mismatch)),
            Settled::Recorded | Settled::Repeated => Ok(Done { outcome, how: How::Executed }),
        }
    }
}
