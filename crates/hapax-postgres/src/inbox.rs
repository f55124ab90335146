//! The inbox of a receiver that keeps its data in PostgreSQL.

use std::time::Duration;

use hapax_core::inbox::{InboxError, Receipt, check};
use tokio_postgres::{GenericClient, Transaction};

/// The table, for the receiver's own migrations.
pub const SCHEMA: &str = "\
CREATE TABLE IF NOT EXISTS hapax_inbox (
    source      text NOT NULL,
    id          text NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (source, id)
);
CREATE INDEX IF NOT EXISTS hapax_inbox_age ON hapax_inbox (received_at);
";

const RECEIVE: &str = "INSERT INTO hapax_inbox (source, id) VALUES ($1, $2) ON CONFLICT DO NOTHING";

const FORGET: &str = "DELETE FROM hapax_inbox WHERE (source, id) IN
    (SELECT source, id FROM hapax_inbox WHERE received_at < now() - make_interval(secs => $1)
      LIMIT 10000)";

fn receipt(inserted: u64) -> Receipt {
    if inserted == 0 { Receipt::Again } else { Receipt::First }
}

/// Receives an event in your transaction: if you roll it back, the event was not received. If
/// another transaction is receiving the same event, this call waits until that one ends.
pub async fn receive_in(
    tx: &Transaction<'_>,
    source: &str,
    id: &str,
) -> Result<Receipt, InboxError<tokio_postgres::Error>> {
    check(source, id)?;
    Ok(receipt(tx.execute(RECEIVE, &[&source, &id]).await?))
}

/// Forgets ids that were received longer ago than this, ten thousand at a time; returns how many.
/// Keep them for longer than the sender may send again.
pub async fn forget(
    client: &impl GenericClient,
    older_than: Duration,
) -> Result<u64, tokio_postgres::Error> {
    client.execute(FORGET, &[&older_than.as_secs_f64()]).await
}

/// The same for a transaction of sqlx.
#[cfg(feature = "sqlx")]
pub mod sqlx {
    use super::*;

    /// Receives an event in your transaction, as [`receive_in`](super::receive_in) does.
    pub async fn receive_in(
        tx: &mut ::sqlx::PgTransaction<'_>,
        source: &str,
        id: &str,
    ) -> Result<Receipt, InboxError<::sqlx::Error>> {
        check(source, id)?;
        let done = ::sqlx::query(RECEIVE).bind(source).bind(id).execute(&mut **tx).await?;
        Ok(receipt(done.rows_affected()))
    }

    /// Forgets old ids, as [`forget`](super::forget) does.
    pub async fn forget(
        tx: &mut ::sqlx::PgTransaction<'_>,
        older_than: Duration,
    ) -> Result<u64, ::sqlx::Error> {
        let done = ::sqlx::query(FORGET).bind(older_than.as_secs_f64()).execute(&mut **tx).await?;
        Ok(done.rows_affected())
    }
}
