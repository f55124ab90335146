//! Background work: expiring, sweeping, sealing. Each pass takes no input, does a bounded amount,
//! and returns what it did. A lost pass costs latency, never work.

use std::sync::{Arc, Weak};
use std::time::Duration;

use hapax_core::checkpoint::Signer;
use hapax_core::lease::Lease;
use hapax_store::failpoint::{Point, pass};
use hapax_store::journal::plan_seal;
use hapax_store::{Store, StoreError, call, command, read};

use crate::engine::Inner;
use crate::spool;

/// The result of one round of background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pass {
    /// Effects whose holder is gone and which now wait for a reconciler or an operator.
    pub expired: usize,
    /// Records forgotten because their time was up.
    pub swept: usize,
    /// Journal entries sealed.
    pub sealed: usize,
}

/// How much one pass does at most.
const EXPIRE: usize = 256;
const SWEEP: usize = 1024;
const SEAL: usize = 16 * 1024;

/// How often a round is made.
const ROUND: Duration = Duration::from_millis(1000);
const SOONEST: Duration = Duration::from_millis(10);

pub(crate) async fn round(inner: &Inner) -> Result<Pass, StoreError> {
    let store = &*inner.store;
    pass(Point::ExpireAsk)?;
    let expired = call(store, command::Expire { limit: EXPIRE }).await?;
    pass(Point::SweepAsk)?;
    Ok(Pass {
        expired,
        swept: call(store, command::Sweep { limit: SWEEP }).await?,
        sealed: match &inner.signer {
            Some(signer) => seal(store, signer).await?,
            None => 0,
        },
    })
}

/// Seals the entries that it finds, unless another process seals them first. Later entries are left
/// for the next round, or under load there would be a seal, and a head, for every few entries.
pub(crate) async fn seal(store: &dyn Store, signer: &Arc<Signer>) -> Result<usize, StoreError> {
    let mut sealed = 0;
    loop {
        let by = signer.clone();
        let Some(plan) = read(store, move |view| plan_seal(view, &by, SEAL)).await? else {
            return Ok(sealed);
        };
        pass(Point::SealPlanned)?;
        let more = call(store, plan).await?;
        sealed += more;
        if more < SEAL || sealed >= SEAL * 16 {
            return Ok(sealed);
        }
    }
}

/// Makes rounds until the engine is dropped.
pub(crate) async fn forever(inner: Weak<Inner>) {
    let mut pause = ROUND;
    loop {
        tokio::time::sleep(pause).await;
        let Some(inner) = inner.upgrade() else { return };
        if inner.is_closed() {
            return;
        }
        spool::record_kept(&inner).await;
        match on_duty(&inner).await {
            Ok(Some(next)) => pause = next,
            Ok(None) => {
                pause = ROUND;
                continue;
            }
            Err(error) => {
                tracing::warn!(name: "background_work_waits", %error, "a background pass failed; retrying");
                continue;
            }
        }
        match round(&inner).await {
            Ok(pass) if pass.expired > 0 => {
                tracing::warn!(name: "effects_left_behind",
                    expired = pass.expired,
                    "effects were left by holders that died"
                );
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(name: "background_work_waits", %error, "a background pass failed; retrying")
            }
        }
    }
}

/// Whether this process does the background work, and how soon it does it again. Of the processes whose lease is in
/// force, the one with the smallest lease id does it. A lease that has seen every notice there will ever be belongs
/// to a client, not to an engine. The store's pulse is beaten often enough to judge the shortest lease by its own
/// term.
async fn on_duty(inner: &Inner) -> Result<Option<Duration>, StoreError> {
    let mine = inner.holder.current();
    read(&*inner.store, move |view| {
        let (now, leases) = (view.now(), view.leases()?);
        let is_before = |lease: &&Lease| {
            mine.is_some_and(|mine| lease.id < mine) && lease.seen < Lease::FORGETFUL
        };
        for other in leases.iter().filter(is_before) {
            if !other.until.reached(now.lease) && !view.is_gone(other) {
                return Ok(None);
            }
        }
        // Lapsed leases that delay no caller are left alone until they are forgotten.
        let pulse = view.pulse()?;
        let open = leases.iter().filter(|lease| !lease.lapsed(now, &pulse));
        let shortest = open.map(|lease| lease.term_ms).min().unwrap_or(u64::MAX);
        Ok(Some(Duration::from_millis(shortest / 8).clamp(SOONEST, ROUND)))
    })
    .await
}
