//! The caller's own transaction in the ledger's PostgreSQL database.

use hapax_core::attempt::AttemptId;
use hapax_core::effect::{Fenced, Report, Safety};
use hapax_core::outcome::Outcome;
use hapax_postgres::foreign::{self, SettleError};
use hapax_postgres::tokio_postgres::{Client, Transaction};
use hapax_store::StoreError;

use crate::claim::Claim;
use crate::effect::{Done, EffectBuilder, How};
use crate::engine::{Hapax, Inner, random};
use crate::error::{Error, Failure};
use crate::once::NO_LEASE;
use crate::permit::Permit;

impl Hapax {
    /// A connection to a database for your own transactions, as the ledger makes them: encrypted
    /// and checked unless the server is on this machine. This runtime drives it.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = hapax::Hapax::client("postgres://localhost/shop").await?;
    /// client.batch_execute("CREATE TABLE account (balance int)").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn client(url: &str) -> Result<Client, Error> {
        Ok(hapax_postgres::client(url).await?)
    }
}

impl Claim {
    /// Settles the effect as succeeded inside your own transaction on the ledger's database, so
    /// that your writes and the outcome are committed together or not at all.
    ///
    /// An attempt that was overtaken is an error, and so is one whose settle was committed before. Your transaction
    /// can then only be rolled back. No caller gets the outcome before the engine has read the committed row.
    ///
    /// ```no_run
    /// use hapax::tokio_postgres::{Client, Error as SqlError};
    /// use hapax::{Failure, Hapax, Key, Safety};
    ///
    /// # async fn example(mut client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let hapax = Hapax::open("postgres://localhost/shop").await?;
    /// let key = Key::derive("deposit.v1", &[("id", b"7")])?;
    /// hapax
    ///     .effect(key)
    ///     .safety(Safety::Transactional)
    ///     .run(|claim| async move {
    ///         let tx = client.transaction().await?;
    ///         tx.execute("INSERT INTO account VALUES (100)", &[]).await?;
    ///         claim.settle_in_postgres(&tx, "deposited").await?;
    ///         tx.commit().await?;
    ///         Ok::<_, Failure>("deposited")
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn settle_in_postgres(
        &self,
        tx: &Transaction<'_>,
        outcome: impl Into<Outcome>,
    ) -> Result<(), Error> {
        self.inner.on_postgres()?;
        let outcome = outcome.into().within(self.inner.keep_limit);
        let attachments = self.attachments.waiting();
        let settled = foreign::settle_in(tx, &self.name, self.by(), &outcome, &attachments).await;
        self.settled_by(settled, outcome).await
    }

    /// The caller's result of a settle in a transaction.
    pub(crate) async fn settled_by(
        &self,
        settled: Result<(), SettleError>,
        outcome: Outcome,
    ) -> Result<(), Error> {
        match settled {
            Ok(()) => {
                self.note_settled_in();
                Ok(())
            }
            Err(SettleError::Store(error)) => Err(error.into()),
            Err(SettleError::AlreadyRecorded) => {
                Err(StoreError::AlreadyRecorded(self.attempt()).into())
            }
            Err(SettleError::Fenced) => {
                self.contradict(Report::Succeeded(outcome));
                let found = self.check().await.err();
                Err(found.unwrap_or(Error::Fenced(Fenced { state: None, attempt: None })))
            }
        }
    }
}

impl EffectBuilder {
    /// Performs the effect inside your transaction on the ledger's database, unless it was
    /// performed before. It is recorded when you commit, and never happened when you roll back.
    ///
    /// On an error, roll back: your writes and the claim go together.
    ///
    /// ```no_run
    /// use hapax::tokio_postgres::Client;
    /// use hapax::{Claim, Failure, Hapax, Key};
    ///
    /// # async fn example(mut client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let hapax = Hapax::open("postgres://localhost/shop").await?;
    /// let key = Key::derive("visit.v1", &[("id", b"7")])?;
    /// let tx = client.transaction().await?;
    /// let counted = async |tx: &hapax::tokio_postgres::Transaction<'_>, _claim: &Claim| {
    ///     tx.execute("INSERT INTO visit VALUES ('/')", &[]).await?;
    ///     Ok::<_, Failure>("counted")
    /// };
    /// hapax.effect(key).once_in_postgres(&tx, counted).await?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn once_in_postgres<T: Into<Outcome>>(
        self,
        tx: &Transaction<'_>,
        work: impl AsyncFnOnce(&Transaction<'_>, &Claim) -> Result<T, Failure>,
    ) -> Result<Done, Error> {
        let effect = self.safety(Safety::Transactional);
        let (hapax, name) = (&effect.hapax, &effect.name);
        hapax.inner.on_postgres()?;
        let attempt = AttemptId::from_bytes(random()?);
        let verdict = foreign::claim_in(tx, name, &effect.ask(attempt, NO_LEASE)).await?;
        let claim = match Permit::of(verdict)? {
            Permit::Granted(grant) => Claim::new(hapax.inner.clone(), name.clone(), grant, None),
            Permit::Replayed { outcome, .. } => return Ok(Done { outcome, how: How::Replayed }),
        };
        let outcome = match work(tx, &claim).await {
            Ok(outcome) => outcome.into().within(hapax.inner.keep_limit),
            Err(failure) => return Err(Error::Failed { reason: failure.reason }),
        };
        let attachments = claim.attachments.waiting();
        done(
            foreign::settle_in(tx, name, claim.by(), &outcome, &attachments).await,
            attempt,
            outcome,
        )
    }
}

/// The caller's result of an effect that was settled in its own transaction.
pub(crate) fn done(
    settled: Result<(), SettleError>,
    attempt: AttemptId,
    outcome: Outcome,
) -> Result<Done, Error> {
    match settled {
        Ok(()) => Ok(Done { outcome, how: How::Executed }),
        Err(SettleError::Fenced) => Err(Error::Fenced(Fenced { state: None, attempt: None })),
        Err(SettleError::AlreadyRecorded) => Err(StoreError::AlreadyRecorded(attempt).into()),
        Err(SettleError::Store(error)) => Err(error.into()),
    }
}

impl Inner {
    /// Refuses a ledger that is not in a database.
    pub(crate) fn on_postgres(&self) -> Result<(), Error> {
        let there = self.postgres.is_some();
        there.then_some(()).ok_or(Error::Unsupported("this ledger is not in a database"))
    }
}
