//! Claims and settles in a transaction of sqlx.

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::effect::{Ask, Verdict};
use hapax_core::name::Name;
use hapax_core::outcome::Outcome;
use hapax_store::StoreError;
use hapax_store::dataset;
use hapax_store::outbox::{Attachments, Emission};
use sqlx::Row as _;
use sqlx::postgres::{PgConnection, PgRow};

use crate::dataset::{REGISTRY, registry_of, registry_row};
use crate::foreign::{
    ALREADY_RECORDED, CLAIM, ClaimRow, EMIT, FENCED, LEASE_DEAD, NO_LEASE, OUTDATED, SETTLE,
    SettleError, ordering, refused, safety_args,
};

/// Claims a key in the caller's transaction, as [`claim_in`](crate::foreign::claim_in) does.
pub async fn claim_in(
    tx: &mut PgConnection,
    name: &Name,
    ask: &Ask,
) -> Result<Verdict, StoreError> {
    let (safety, settling) = safety_args(ask.safety);
    let row = sqlx::query(CLAIM)
        .bind(name.key.to_string())
        .bind(&ask.fingerprint.as_bytes()[..])
        .bind(safety)
        .bind(settling)
        .bind(ask.lock.map(|lock| lock.0 as i64))
        .bind(ask.label.as_deref())
        .bind(ask.ttl_ms.map(|ms| ms as i64))
        .bind(ask.deadline_ms.map(|ms| ms as i64))
        .bind(ask.attempt.to_string())
        .bind(name.namespace.as_str())
        .bind((ask.lease != NO_LEASE).then(|| ask.lease.to_string()))
        .bind(ask.bound.as_ref().map(|bound| bound.domain.as_str()))
        .bind(ask.bound.as_ref().map(|bound| bound.epoch as i64))
        .bind(ask.about.as_deref().unwrap_or_default())
        .fetch_one(tx)
        .await
        .map_err(|error| match code(&error).as_deref() {
            Some(LEASE_DEAD) => StoreError::LeaseDead(ask.lease),
            _ => store_error(&error),
        })?;
    read(&row).map_err(|error| store_error(&error))?.verdict(ask)
}

/// Records a success in the caller's transaction.
pub async fn settle_in(
    tx: &mut PgConnection,
    name: &Name,
    (attempt, fence): (AttemptId, Fence),
    outcome: &Outcome,
    attachments: &Attachments,
) -> Result<(), SettleError> {
    let events = &attachments.events;
    if !events.is_empty() {
        let names: Vec<&str> = dataset::of(events).into_iter().collect();
        let rows = sqlx::query(REGISTRY).bind(&names).fetch_all(&mut *tx).await;
        let read = |row: &PgRow| registry_row!(row);
        let rows = rows.and_then(|rows| rows.iter().map(read).collect());
        let rows = rows.map_err(|error| settle_error(&error))?;
        let registry = registry_of(rows).map_err(SettleError::Store)?;
        for emission in &dataset::admitted(&registry, events).map_err(SettleError::Store)? {
            emit_in(&mut *tx, name, attempt, emission).await?;
        }
    }
    let settled = sqlx::query(SETTLE)
        .bind(name.key.to_string())
        .bind(attempt.to_string())
        .bind(fence.0 as i64)
        .bind(outcome.body())
        .bind(name.namespace.as_str())
        .bind(&outcome.digest().as_bytes()[..])
        .bind(outcome.size() as i64)
        .bind(attachments.note.as_deref().unwrap_or_default())
        .fetch_one(&mut *tx)
        .await;
    settled.map(drop).map_err(|error| settle_error(&error))
}

fn settle_error(error: &sqlx::Error) -> SettleError {
    match code(error).as_deref() {
        Some(FENCED | OUTDATED) => SettleError::Fenced,
        Some(ALREADY_RECORDED) => SettleError::AlreadyRecorded,
        _ => SettleError::Store(store_error(error)),
    }
}

/// Records an event in the caller's transaction.
async fn emit_in(
    tx: &mut PgConnection,
    name: &Name,
    attempt: AttemptId,
    Emission { ordinal, event }: &Emission,
) -> Result<(), SettleError> {
    let (order_key, ordered) = ordering(&event.order);
    let artifact = event.artifact.as_ref();
    sqlx::query(EMIT)
        .bind(name.key.to_string())
        .bind(attempt.to_string())
        .bind(&event.name)
        .bind(&event.dataset)
        .bind(event.payload.as_str())
        .bind(*ordinal as i32)
        .bind(event.pipeline.as_deref())
        .bind(event.version.as_deref())
        .bind(order_key)
        .bind(ordered)
        .bind(artifact.map(|artifact| artifact.version.as_str()))
        .bind(artifact.map(|artifact| artifact.checksum.as_str()))
        .bind(artifact.map(|artifact| artifact.uri.as_str()))
        .bind(name.namespace.as_str())
        .bind(event.trace.as_ref().map(|trace| trace.as_str()))
        .fetch_one(tx)
        .await
        .map_err(|error| {
            refused(code(&error).as_deref(), event).unwrap_or_else(|| settle_error(&error))
        })?;
    Ok(())
}

fn read(row: &PgRow) -> Result<ClaimRow, sqlx::Error> {
    Ok(ClaimRow {
        verdict: row.try_get("verdict")?,
        attempt_id: row.try_get("attempt_id")?,
        fence: row.try_get("fence")?,
        nth: row.try_get("nth")?,
        outcome: row.try_get("outcome")?,
        reason: row.try_get("reason")?,
        digest: row.try_get("digest")?,
        size: row.try_get("size")?,
        recorded: row.try_get("recorded")?,
        state: row.try_get("state")?,
        holder: row.try_get("holder")?,
        bound_epoch: row.try_get("bound_epoch")?,
        current_epoch: row.try_get("current_epoch")?,
    })
}

fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error()?.code().map(|code| code.into_owned())
}

fn store_error(error: &sqlx::Error) -> StoreError {
    match code(error).as_deref() {
        Some("HX106") => StoreError::Invalid(error.to_string()),
        Some(state) if state.starts_with("42") => StoreError::Incompatible(error.to_string()),
        _ => StoreError::Unavailable(error.to_string()),
    }
}
