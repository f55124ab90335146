//! The caller's own transaction in the ledger's PostgreSQL database, where it is sqlx's.

use hapax_core::attempt::AttemptId;
use hapax_core::effect::Safety;
use hapax_core::outcome::Outcome;
use hapax_postgres::foreign_sqlx;
use sqlx::PgTransaction;

use crate::claim::Claim;
use crate::effect::{Done, EffectBuilder, How};
use crate::engine::random;
use crate::error::{Error, Failure};
use crate::once::NO_LEASE;
use crate::permit::Permit;
use crate::postgres::done;

impl Claim {
    /// Settles the effect as succeeded inside your own transaction on the ledger's database, as
    /// [`settle_in_postgres`](Self::settle_in_postgres) does.
    pub async fn settle_in_sqlx(
        &self,
        tx: &mut PgTransaction<'_>,
        outcome: impl Into<Outcome>,
    ) -> Result<(), Error> {
        self.inner.on_postgres()?;
        let outcome = outcome.into().within(self.inner.keep_limit);
        let attachments = self.attachments.waiting();
        let settled =
            foreign_sqlx::settle_in(tx, &self.name, self.by(), &outcome, &attachments).await;
        self.settled_by(settled, outcome).await
    }
}

impl EffectBuilder {
    /// Performs the effect inside your transaction on the ledger's database, as
    /// [`once_in_postgres`](Self::once_in_postgres) does.
    pub async fn once_in_sqlx<T: Into<Outcome>>(
        self,
        tx: &mut PgTransaction<'_>,
        work: impl AsyncFnOnce(&mut PgTransaction<'_>, &Claim) -> Result<T, Failure>,
    ) -> Result<Done, Error> {
        let effect = self.safety(Safety::Transactional);
        let (hapax, name) = (&effect.hapax, &effect.name);
        hapax.inner.on_postgres()?;
        let attempt = AttemptId::from_bytes(random()?);
        let verdict = foreign_sqlx::claim_in(tx, name, &effect.ask(attempt, NO_LEASE)).await?;
        let claim = match Permit::of(verdict)? {
            Permit::Granted(grant) => Claim::new(hapax.inner.clone(), name.clone(), grant, None),
            Permit::Replayed { outcome, .. } => return Ok(Done { outcome, how: How::Replayed }),
        };
        let outcome = match work(tx, &claim).await {
            Ok(outcome) => outcome.into().within(hapax.inner.keep_limit),
            Err(failure) => return Err(Error::Failed { reason: failure.reason }),
        };
        let attachments = claim.attachments.waiting();
        let settled = foreign_sqlx::settle_in(tx, name, claim.by(), &outcome, &attachments).await;
        done(settled, attempt, outcome)
    }
}
