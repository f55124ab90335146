//! Claims and settles in a transaction that the caller owns, with the SQL functions of every language.

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::effect::{Ask, Blocked, Grant, Safety, Settling, StateName, Verdict};
use hapax_core::epoch::Mismatch;
use hapax_core::fingerprint::Fingerprint;
use hapax_core::key::Key;
use hapax_core::lease::LeaseId;
use hapax_core::name::Name;
use hapax_core::outbox::{Event, Order, Trace};
use hapax_core::outcome::{Digest, Outcome};
use hapax_store::dataset;
use hapax_store::outbox::{Attachments, Emission};
use hapax_store::{Limits, StoreError};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

use crate::dataset::{REGISTRY, registry_of, registry_row};
use crate::error::PgFailure;

/// The statement that claims in the caller's transaction.
///
/// The journal's note travels as a setting of the transaction. It is set before the function is
/// called, because the function's key argument depends on it.
pub(crate) const CLAIM: &str =
    "SELECT c.* FROM (SELECT set_config('hapax.about', $14, true) AS about OFFSET 0) s,
         LATERAL hapax.claim($1 || left(s.about, 0), $2, $11, $3, $4, $5, $6, $7, $8, $9, $10,
             $12, $13) c";

/// The statement that settles in the caller's transaction.
pub(crate) const SETTLE: &str =
    "SELECT hapax.settle($1 || left(s.about, 0), $2, $3, $4, $5, $6, $7)
    FROM (SELECT set_config('hapax.about', $8, true) AS about OFFSET 0) s";

/// The statement that records an event in the caller's transaction.
pub(crate) const EMIT: &str =
    "SELECT hapax.emit($1, $2, $3, $4, $5::text::json, $6, $7, $8, $9, $10, $11,
    $12, $13, $14, $15)::text";

/// Why an outcome could not be recorded.
#[derive(Debug)]
pub enum SettleError {
    /// Another attempt overtook this one, or its epoch is over. Nothing was written; roll back.
    Fenced,
    /// This attempt's settle was committed before. Nothing was written; roll back.
    AlreadyRecorded,
    /// The database's own error.
    Store(StoreError),
}

/// The lease of a claim that ends with its transaction.
pub const NO_LEASE: LeaseId = LeaseId::from_bytes([0; 16]);

/// Claims a key in the caller's transaction. With [`NO_LEASE`] the claim ends with it.
pub async fn claim_in(
    tx: &impl GenericClient,
    name: &Name,
    ask: &Ask,
) -> Result<Verdict, StoreError> {
    if ask.label.as_ref().is_some_and(|label| label.len() > Limits::LABEL) {
        return Err(StoreError::Invalid(format!("the label is longer than {}", Limits::LABEL)));
    }
    let (safety, settling) = safety_args(ask.safety);
    let lease = (ask.lease != NO_LEASE).then(|| ask.lease.to_string());
    let number = |n: Option<u64>| n.map(|n| n as i64);
    let row = tx
        .query_typed(
            CLAIM,
            &[
                (&name.key.to_string(), Type::TEXT),
                (&&ask.fingerprint.as_bytes()[..], Type::BYTEA),
                (&safety, Type::TEXT),
                (&settling, Type::INT8),
                (&ask.lock.map(|lock| lock.0 as i64), Type::INT8),
                (&ask.label, Type::TEXT),
                (&number(ask.ttl_ms), Type::INT8),
                (&number(ask.deadline_ms), Type::INT8),
                (&ask.attempt.to_string(), Type::TEXT),
                (&name.namespace.as_str(), Type::TEXT),
                (&lease, Type::TEXT),
                (&ask.bound.as_ref().map(|bound| bound.domain.as_str()), Type::TEXT),
                (&number(ask.bound.as_ref().map(|bound| bound.epoch)), Type::INT8),
                (&ask.about.as_deref().unwrap_or_default(), Type::TEXT),
            ],
        )
        .await
        .map_err(|error| match error.code().map(SqlState::code) {
            Some(LEASE_DEAD) => StoreError::LeaseDead(ask.lease),
            _ => PgFailure::from(error).into_store_error(),
        })?
        .pop();
    let row = row.ok_or_else(|| StoreError::Corrupt("a claim without a verdict".into()))?;
    let claim = ClaimRow::read(&row).map_err(|error| PgFailure::from(error).into_store_error())?;
    claim.verdict(ask)
}

/// The arguments of `hapax.claim` for a safety class.
pub(crate) fn safety_args(safety: Safety) -> (&'static str, Option<i64>) {
    match safety {
        Safety::Transactional => ("transactional", None),
        Safety::Reconcilable(Settling::TargetRefusesLate) => ("reconcilable", Some(0)),
        Safety::Reconcilable(Settling::AfterMs(ms)) => ("reconcilable", Some(ms.max(1) as i64)),
        Safety::Opaque => ("opaque", None),
    }
}

/// The row that `hapax.claim` returns.
#[derive(Debug, Default)]
pub(crate) struct ClaimRow {
    pub(crate) verdict: String,
    pub(crate) attempt_id: String,
    pub(crate) fence: Option<i64>,
    pub(crate) nth: Option<i32>,
    pub(crate) outcome: Option<Vec<u8>>,
    pub(crate) reason: Option<String>,
    pub(crate) digest: Option<Vec<u8>>,
    pub(crate) size: Option<i64>,
    pub(crate) recorded: Option<Vec<u8>>,
    pub(crate) state: Option<String>,
    pub(crate) holder: Option<String>,
    pub(crate) bound_epoch: Option<i64>,
    pub(crate) current_epoch: Option<i64>,
}

impl ClaimRow {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
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

    pub(crate) fn verdict(self, ask: &Ask) -> Result<Verdict, StoreError> {
        let unreadable = |what: &str| StoreError::Corrupt(format!("a verdict with another {what}"));
        let hash = |bytes: Option<Vec<u8>>| {
            let bytes = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
            bytes.ok_or_else(|| unreadable("hash"))
        };
        let attempt: AttemptId = self.attempt_id.parse().map_err(|_| unreadable("attempt"))?;
        let holder: Option<Key> =
            self.holder.map(|key| key.parse()).transpose().map_err(|_| unreadable("holder"))?;
        let reason = self.reason.unwrap_or_default();
        Ok(match self.verdict.as_str() {
            "granted" => Verdict::Granted(Grant {
                left_ms: None,
                attempt,
                fence: Fence(self.fence.unwrap_or_default() as u64),
                nth: self.nth.unwrap_or_default() as u32,
            }),
            "replayed" => {
                let outcome = match self.outcome {
                    Some(body) => Outcome::new(body),
                    None => {
                        let size = self.size.unwrap_or_default() as u64;
                        Outcome::not_kept(Digest::from_bytes(hash(self.digest)?), size)
                    }
                };
                Verdict::Replayed { outcome, expires: None, left_ms: None }
            }
            "in_flight" => Verdict::InFlight { attempt },
            "undecided" => Verdict::Undecided { reason },
            "conflict" => {
                let recorded = Fingerprint::from_bytes(hash(self.recorded)?);
                Verdict::Conflict { recorded, asked: ask.fingerprint }
            }
            "locked" => Verdict::Locked { holder: holder.ok_or_else(|| unreadable("holder"))? },
            "blocked" => {
                let state = self.state.as_deref().and_then(StateName::from_name);
                let state = state.ok_or_else(|| unreadable("state"))?;
                Verdict::Blocked(Blocked { holder, state, attempt, reason })
            }
            "outdated" => {
                let bound = ask.bound.as_ref().ok_or_else(|| unreadable("epoch"))?;
                Verdict::Outdated(Mismatch {
                    domain: bound.domain.clone(),
                    bound: self.bound_epoch.unwrap_or_default() as u64,
                    current: self.current_epoch.unwrap_or_default() as u64,
                })
            }
            "refused" => Verdict::Refused { reason },
            _ => return Err(unreadable("name")),
        })
    }
}

/// Records a success in the caller's transaction, with its events and its note.
pub async fn settle_in(
    tx: &impl GenericClient,
    name: &Name,
    (attempt, fence): (AttemptId, Fence),
    outcome: &Outcome,
    attachments: &Attachments,
) -> Result<(), SettleError> {
    let events = match attachments.events.is_empty() {
        true => Vec::new(),
        false => admitted_in(tx, &attachments.events).await?,
    };
    let settle = async {
        let (key, by, digest) = (name.key.to_string(), attempt.to_string(), outcome.digest());
        let params: [(&(dyn ToSql + Sync), Type); 8] = [
            (&key, Type::TEXT),
            (&by, Type::TEXT),
            (&(fence.0 as i64), Type::INT8),
            (&outcome.body(), Type::BYTEA),
            (&name.namespace.as_str(), Type::TEXT),
            (&&digest.as_bytes()[..], Type::BYTEA),
            (&(outcome.size() as i64), Type::INT8),
            (&attachments.note.as_deref().unwrap_or_default(), Type::TEXT),
        ];
        tx.query_typed(SETTLE, &params).await
    };
    let settled = match events.split_last() {
        None => settle.await,
        Some((last, others)) => {
            for emission in others {
                emit_in(tx, name, attempt, emission).await?;
            }
            // One round trip: if the first fails, the server refuses the second.
            let (emitted, settled) = tokio::join!(emit_in(tx, name, attempt, last), settle);
            emitted?;
            settled
        }
    };
    settled.map(drop).map_err(settle_error)
}

/// The events as they are recorded, after the guards and by the current declarations.
async fn admitted_in(
    tx: &impl GenericClient,
    events: &[Emission],
) -> Result<Vec<Emission>, SettleError> {
    let names: Vec<&str> = dataset::of(events).into_iter().collect();
    let rows = tx.query_typed(REGISTRY, &[(&names, Type::TEXT_ARRAY)]).await;
    let read = |row: &Row| registry_row!(row);
    let rows = rows.and_then(|rows| rows.iter().map(read).collect()).map_err(settle_error)?;
    let registry = registry_of(rows).map_err(SettleError::Store)?;
    dataset::admitted(&registry, events).map_err(SettleError::Store)
}

fn settle_error(error: tokio_postgres::Error) -> SettleError {
    match error.code().map(SqlState::code) {
        Some(FENCED | OUTDATED) => SettleError::Fenced,
        Some(ALREADY_RECORDED) => SettleError::AlreadyRecorded,
        _ => SettleError::Store(PgFailure::from(error).into_store_error()),
    }
}

/// Records an event in the caller's transaction.
async fn emit_in(
    tx: &impl GenericClient,
    name: &Name,
    attempt: AttemptId,
    Emission { ordinal, event }: &Emission,
) -> Result<(), SettleError> {
    let (order_key, ordered) = ordering(&event.order);
    let artifact = event.artifact.as_ref();
    tx.query_typed(
        EMIT,
        &[
            (&name.key.to_string(), Type::TEXT),
            (&attempt.to_string(), Type::TEXT),
            (&event.name, Type::TEXT),
            (&event.dataset, Type::TEXT),
            (&event.payload.as_str(), Type::TEXT),
            (&(*ordinal as i32), Type::INT4),
            (&event.pipeline, Type::TEXT),
            (&event.version, Type::TEXT),
            (&order_key, Type::TEXT),
            (&ordered, Type::BOOL),
            (&artifact.map(|artifact| &artifact.version), Type::TEXT),
            (&artifact.map(|artifact| &artifact.checksum), Type::TEXT),
            (&artifact.map(|artifact| &artifact.uri), Type::TEXT),
            (&name.namespace.as_str(), Type::TEXT),
            (&event.trace.as_ref().map(Trace::as_str), Type::TEXT),
        ],
    )
    .await
    .map_err(|error| {
        refused(error.code().map(SqlState::code), event).unwrap_or_else(|| settle_error(error))
    })?;
    Ok(())
}

/// The arguments of `hapax.emit` for an ordering.
pub(crate) fn ordering(order: &Order) -> (Option<&str>, bool) {
    match order {
        Order::Dataset => (None, true),
        Order::Key(key) => (Some(key), true),
        Order::Free => (None, false),
    }
}

/// The error for a refusal of `hapax.emit`.
pub(crate) fn refused(code: Option<&str>, event: &Event) -> Option<SettleError> {
    let (name, dataset) = (event.name.clone(), event.dataset.clone());
    let error = match code? {
        "HX111" => StoreError::Unrouted { event: name, dataset },
        "HX112" => StoreError::Differs(name),
        "HX113" => {
            let version = event.artifact.as_ref().map(|artifact| artifact.version.clone());
            StoreError::Republished { dataset, version: version.unwrap_or_default() }
        }
        _ => return None,
    };
    Some(SettleError::Store(error))
}

/// The SQLSTATE of an attempt that was overtaken.
pub(crate) const FENCED: &str = "HX207";

/// The SQLSTATE of an attempt whose epoch is over.
pub(crate) const OUTDATED: &str = "HX211";

/// The SQLSTATE of a settle that was recorded before.
pub(crate) const ALREADY_RECORDED: &str = "HX116";

/// The SQLSTATE of a lease that is over.
pub(crate) const LEASE_DEAD: &str = "HX110";
