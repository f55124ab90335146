//! The ledger's PostgreSQL database: connections that are kept open, and the roles that scripts run
//! as.
//!
//! A script's statements run as a role that has no rights on the ledger; the settle does not. Any
//! session may take its own role back, by `RESET ROLE` or by the function `set_config`.
//! `RESET ROLE` is refused by its words. The right to call `set_config` has to be revoked from the
//! role, and that is checked each time: a function can be called in more ways than could be listed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hapax::document::print;
use hapax::json::Json;
use hapax::tokio_postgres::types::Type;
use hapax::tokio_postgres::{Client, Error as PgError, Transaction};
use hapax::{Claim, Hapax};
use hapax_items::ToolError;

use super::fault::Fault as _;

/// How long the whole work may take. Longer than a statement may.
const WORK_TIMEOUT: Duration = Duration::from_secs(30);

/// The limits of the statements of one transaction. The server cancels a statement whose client is
/// gone.
const LIMITS: &str = "SET LOCAL statement_timeout = '20s';
     SET LOCAL client_connection_check_interval = '500ms';
     SET LOCAL idle_in_transaction_session_timeout = '30s'";

/// Resets everything that a script may have set in the session, and releases its locks. Not
/// DISCARD ALL, because the driver has statements of its own.
const CLEAN: &str = "RESET ALL; RESET ROLE; CLOSE ALL; UNLISTEN *; DISCARD TEMP; DISCARD SEQUENCES;
     SELECT pg_catalog.pg_advisory_unlock_all()";

/// How many connections are kept.
const KEPT: usize = 4;

/// The work of one transaction.
pub(crate) type Work =
    Box<dyn for<'t> FnOnce(&'t Transaction<'t>) -> BoxFuture<'t, Result<Json, ToolError>> + Send>;

/// A database. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Server(Arc<Inner>);

struct Inner {
    url: String,
    idle: Mutex<Vec<Client>>,
}

impl Server {
    pub(crate) fn at(url: &str) -> Self {
        Self(Arc::new(Inner { url: url.to_owned(), idle: Mutex::default() }))
    }

    /// Does the work, as a role if one is given, and settles the claim with its result, in one
    /// transaction.
    pub(crate) async fn settle(
        &self,
        claim: &Claim,
        role: Option<&str>,
        work: Work,
    ) -> Result<Json, ToolError> {
        within_reason(async {
            let mut client = self.client().await?;
            let tx = client.transaction().await.map_err(PgError::tool_error)?;
            tx.batch_execute(LIMITS).await.map_err(PgError::tool_error)?;
            let result = as_role(&tx, role, work).await?;
            claim
                .settle_in_postgres(&tx, print(&result).as_str())
                .await
                .map_err(hapax::Error::tool_error)?;
            if let Some(role) = role {
                // Triggers and constraints that were deferred to the commit run as the script's
                // role, too.
                assume(&tx, role).await?;
            }
            tx.commit().await.map_err(PgError::tool_error)?;
            self.keep(client, role).await;
            Ok(result)
        })
        .await
    }

    /// Does work that changes nothing.
    pub(crate) async fn read(&self, role: Option<&str>, work: Work) -> Result<Json, ToolError> {
        within_reason(async {
            let mut client = self.client().await?;
            let tx = client.build_transaction().read_only(true).start().await;
            let tx = tx.map_err(PgError::tool_error)?;
            tx.batch_execute(LIMITS).await.map_err(PgError::tool_error)?;
            let result = as_role(&tx, role, work).await?;
            tx.rollback().await.map_err(PgError::tool_error)?;
            self.keep(client, role).await;
            Ok(result)
        })
        .await
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Client>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that answers.
    async fn client(&self) -> Result<Client, ToolError> {
        loop {
            let kept = self.idle().pop();
            match kept {
                Some(client) if client.batch_execute("").await.is_ok() => return Ok(client),
                Some(_) => {}
                None => return Hapax::client(&self.0.url).await.map_err(hapax::Error::tool_error),
            }
        }
    }

    /// Keeps a connection after its transaction, unless its session cannot be reset. All others are
    /// dropped.
    async fn keep(&self, client: Client, role: Option<&str>) {
        if role.is_some() && client.batch_execute(CLEAN).await.is_err() {
            return;
        }
        let mut idle = self.idle();
        if idle.len() < KEPT {
            idle.push(client);
        }
    }
}

/// Drops the connection after too long a wait, and nothing is committed. If the wait was for the
/// commit itself, the engine finds the outcome in the ledger, or makes sure that it never gets
/// there.
async fn within_reason(
    work: impl Future<Output = Result<Json, ToolError>>,
) -> Result<Json, ToolError> {
    let late = || Err(ToolError::transient("the server does not answer"));
    tokio::time::timeout(WORK_TIMEOUT, work).await.unwrap_or_else(|_| late())
}

async fn as_role(tx: &Transaction<'_>, role: Option<&str>, work: Work) -> Result<Json, ToolError> {
    let Some(role) = role else { return work(tx).await };
    check(tx, role).await?;
    assume(tx, role).await?;
    let result = work(tx).await?;
    tx.batch_execute("RESET ROLE").await.map_err(PgError::tool_error)?;
    Ok(result)
}

async fn assume(tx: &Transaction<'_>, role: &str) -> Result<(), ToolError> {
    let role = role.replace('"', "\"\"");
    tx.batch_execute(&format!("SET LOCAL ROLE \"{role}\"")).await.map_err(PgError::tool_error)
}

/// The properties that a role must not have, and the remedy for each.
const CHECKS: &str = "
SELECT
    CASE WHEN r.rolsuper THEN 'is a superuser; take another one'
    WHEN pg_catalog.pg_has_role(r.oid, session_user, 'MEMBER')
        THEN 'is a member of the role that the ledger connects as; take another one'
    WHEN pg_catalog.has_schema_privilege(r.oid, 'hapax', 'USAGE')
        OR pg_catalog.has_schema_privilege(r.oid, 'hapax', 'CREATE')
        THEN 'has rights on the schema of the ledger: REVOKE ALL ON SCHEMA hapax FROM it'
    WHEN pg_catalog.has_function_privilege(
        r.oid, 'pg_catalog.set_config(text,text,boolean)', 'EXECUTE')
        THEN 'can take other roles by set_config: '
            || 'REVOKE EXECUTE ON FUNCTION set_config FROM PUBLIC, '
            || 'and GRANT it to the role that the ledger connects as'
    ELSE '' END
FROM pg_catalog.pg_roles r WHERE r.rolname = $1";

async fn check(tx: &Transaction<'_>, role: &str) -> Result<(), ToolError> {
    let row =
        tx.query_typed_opt(CHECKS, &[(&role, Type::NAME)]).await.map_err(PgError::tool_error)?;
    let Some(row) = row else {
        return Err(ToolError::permission(format!("there is no role {role:?}")));
    };
    match row.try_get(0).map_err(PgError::tool_error)? {
        "" => Ok(()),
        why => Err(ToolError::permission(format!("the role {role:?} {why}"))),
    }
}

/// The user, the start and the mode of a transaction, to be compared later.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seal(String, String, String);

impl Seal {
    pub(crate) async fn of(tx: &Transaction<'_>) -> Result<Self, ToolError> {
        let seal = "SELECT current_user::pg_catalog.text,
                 pg_catalog.transaction_timestamp()::pg_catalog.text,
                 pg_catalog.current_setting('transaction_read_only')";
        let row = tx.query_typed_one(seal, &[]).await.map_err(PgError::tool_error)?;
        let text = |column: usize| row.try_get(column).map_err(PgError::tool_error);
        Ok(Self(text(0)?, text(1)?, text(2)?))
    }

    /// Refuses to go on in a transaction that is not the one that was begun.
    pub(crate) async fn holds(&self, tx: &Transaction<'_>) -> Result<(), ToolError> {
        match Self::of(tx).await? == *self {
            true => Ok(()),
            false => Err(ToolError::permission("a statement left its transaction or its role")),
        }
    }
}
