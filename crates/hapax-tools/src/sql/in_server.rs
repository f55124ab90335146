//! A script's statements on a PostgreSQL server, as a role of the script's own.

mod value;
mod words;

use futures_util::{FutureExt as _, TryStreamExt as _};
use hapax::json::Json;
use hapax::tokio_postgres::error::SqlState;
use hapax::tokio_postgres::{Error as PgError, Transaction};
use hapax_items::ToolError;

use super::statement::Statement;
use super::{Limits, Rows, unique};
use crate::database::{Fault as _, Scope, Seal, Work};
use value::Param;

/// Refuses statements that scripts must not run, by their first words.
pub(super) fn check(statements: &[Statement], scope: Scope) -> Result<(), ToolError> {
    statements.iter().try_for_each(|statement| words::check(&statement.sql, scope))
}

/// Runs statements one after the other, and counts what each has changed.
pub(super) fn execute(statements: Vec<Statement>) -> Work {
    Box::new(move |tx| {
        async move {
            let seal = Seal::of(tx).await?;
            let mut changes = Vec::new();
            for statement in &statements {
                // One statement a message: the protocol refuses a second one in it.
                let prepared = tx.prepare(&statement.sql).await.map_err(PgError::tool_error)?;
                statement.takes(prepared.params().len())?;
                let params = statement.params.iter().map(Param::of);
                let changed =
                    tx.execute_raw(&prepared, params).await.map_err(PgError::tool_error)?;
                seal.holds(tx).await?;
                changes.push(Json::number(changed));
            }
            Ok(Json::object([("changes", Json::Array(changes))]))
        }
        .boxed()
    })
}

/// The rows of one statement.
pub(super) fn query(statement: Statement, limits: Limits) -> Work {
    Box::new(move |tx| async move { rows(tx, &statement, limits).await }.boxed())
}

async fn rows(
    tx: &Transaction<'_>,
    statement: &Statement,
    limits: Limits,
) -> Result<Json, ToolError> {
    let seal = Seal::of(tx).await?;
    let prepared = tx.prepare(&statement.sql).await.map_err(read_only_error)?;
    statement.takes(prepared.params().len())?;
    let columns = prepared.columns();
    let names: Vec<String> = columns.iter().map(|column| column.name().to_owned()).collect();
    unique(&names)?;
    let portal = tx.bind_raw(&prepared, statement.params.iter().map(Param::of)).await;
    let portal = portal.map_err(read_only_error)?;
    // One more than there may be, to see that there are more.
    let most = i32::try_from(limits.rows).unwrap_or(i32::MAX).saturating_add(1);
    let mut stream =
        std::pin::pin!(tx.query_portal_raw(&portal, most).await.map_err(read_only_error)?);
    let mut result = Rows::new(limits);
    while let Some(row) = stream.try_next().await.map_err(read_only_error)? {
        result.push(value::members(&row)?)?;
    }
    seal.holds(tx).await?;
    Ok(result.json())
}

/// An error in a transaction that was begun to read only.
fn read_only_error(error: PgError) -> ToolError {
    match error.code() {
        Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => {
            ToolError::logic("a query changes nothing: use execute")
        }
        _ => error.tool_error(),
    }
}
