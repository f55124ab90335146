//! Recording: writes the results of attempts, and the attempts that are next, in one command.

use std::sync::Arc;
use std::time::Duration;

use hapax_core::lease::LeaseId;
use hapax_core::outbox::OrderingKeyHash;
use hapax_core::retry::Backoff;
use hapax_store::outbox::{DeliveryResult, Disposition, SendBatch};
use hapax_store::{Store, StoreError, call, command};

use super::Pending;
use crate::engine::random;

/// The pauses while the store cannot be reached.
const RETRY: Backoff = Backoff { base_ms: 20, cap_ms: 2_000, attempts: u32::MAX };

/// The results to be recorded, each with the position of its sink and its ordering key.
#[derive(Default)]
pub(super) struct Records {
    results: Vec<(usize, OrderingKeyHash, DeliveryResult)>,
    /// The numbers of the batches that have ended.
    ended: Vec<u64>,
    pub(super) pending: Pending<(Recording, Result<(), StoreError>)>,
}

/// A command under way, with the batches that it starts and the deliveries that it settles.
pub(super) struct Recording {
    command: command::Dispatch,
    pub(super) batches: Vec<u64>,
    pub(super) settled: Vec<(usize, (OrderingKeyHash, u64))>,
    failures: u32,
}

impl Records {
    pub(super) fn add(&mut self, nth: usize, hash: OrderingKeyHash, result: DeliveryResult) {
        self.results.push((nth, hash, result));
    }

    pub(super) fn add_end(&mut self, batch: u64) {
        self.ended.push(batch);
    }

    /// Whether nothing is left to record.
    pub(super) fn is_empty(&self) -> bool {
        self.results.is_empty() && self.ended.is_empty() && self.pending.is_none()
    }

    /// Whether results are left to record, or are being recorded.
    pub(super) fn has_results(&self) -> bool {
        !self.results.is_empty() || self.pending.is_some()
    }

    /// Records what there is, and that these batches are about to be sent.
    pub(super) fn begin(
        &mut self,
        store: &Arc<dyn Store>,
        lease: LeaseId,
        starting: Vec<SendBatch>,
    ) {
        if starting.is_empty() && self.results.is_empty() && self.ended.is_empty() {
            return;
        }
        let results = std::mem::take(&mut self.results);
        let is_settled =
            |result: &DeliveryResult| !matches!(result.disposition, Disposition::Again { .. });
        let settled = results.iter().filter(|(.., result)| is_settled(result));
        let settled = settled.map(|(nth, hash, result)| (*nth, (*hash, result.seq))).collect();
        let results = results.into_iter().map(|(.., result)| result).collect();
        let ended = std::mem::take(&mut self.ended);
        let batches = starting.iter().map(|batch| batch.id).collect();
        let command = command::Dispatch { lease, results, ended, starting };
        self.run(store, Recording { command, batches, settled, failures: 0 });
    }

    /// Sends a command again that failed.
    pub(super) fn retry(&mut self, store: &Arc<dyn Store>, recording: Recording) {
        let failures = recording.failures.saturating_add(1);
        self.run(store, Recording { failures, ..recording });
    }

    fn run(&mut self, store: &Arc<dyn Store>, recording: Recording) {
        let store = store.clone();
        self.pending = Some(Box::pin(async move {
            if recording.failures > 0 {
                let dice = random().map_or(u64::MAX, u64::from_be_bytes);
                let pause_ms = RETRY.delay_ms(recording.failures, dice).unwrap_or(RETRY.cap_ms);
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            }
            let answer = call(&*store, recording.command.clone()).await;
            (recording, answer)
        }));
    }
}
