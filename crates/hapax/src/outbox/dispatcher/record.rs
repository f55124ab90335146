//! Recording: writes the results of attempts, and the attempts that are next, in one command.

use std::sync::Arc;
use std::time::Duration;

use hapax_core::delivery::Buckets;
use hapax_core::lease::LeaseId;
use hapax_core::outbox::OrderingKeyHash;
use hapax_core::retry::Backoff;
use hapax_store::outbox::{DeliveryResult, Disposition, SendBatch};
use hapax_store::{Store, StoreError, call, command};

use super::Step;
use crate::engine::random;

/// The pauses while the store cannot be reached.
const RETRY: Backoff = Backoff { base_ms: 20, cap_ms: 2_000, attempts: u32::MAX };

/// The results that are to be recorded, and the command that records some of them.
#[derive(Default)]
pub(super) struct Recorder {
    /// Each with the position of its sink and its ordering key.
    results: Vec<(usize, OrderingKeyHash, DeliveryResult)>,
    /// The numbers of the batches that have ended.
    ended: Vec<u64>,
    /// The ordering keys of the results in the command under way, and whether one of them has failed.
    in_command: Vec<OrderingKeyHash>,
    is_failing: bool,
    pub(super) pending: Step<(DispatchCommand, Result<(), StoreError>)>,
}

/// A command under way, with the batches that it starts and the deliveries that it ends.
pub(super) struct DispatchCommand {
    command: command::Dispatch,
    pub(super) batches: Vec<u64>,
    pub(super) ended: Vec<(usize, (OrderingKeyHash, u64))>,
    failures: u32,
}

impl Recorder {
    pub(super) fn add(&mut self, sink_index: usize, hash: OrderingKeyHash, result: DeliveryResult) {
        self.results.push((sink_index, hash, result));
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

    /// Whether all results that are not recorded yet lie in these buckets.
    pub(super) fn is_within(&self, buckets: &Buckets) -> bool {
        let mut waiting = self.results.iter().map(|(_, hash, _)| hash).chain(&self.in_command);
        waiting.all(|hash| buckets.contains(hash.bucket()))
    }

    /// Whether a failure is being recorded, whose answer has not come.
    pub(super) fn is_failing(&self) -> bool {
        self.pending.is_some() && self.is_failing
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
        let failed =
            |result: &DeliveryResult| matches!(result.disposition, Disposition::Failed { .. });
        let ends =
            |result: &DeliveryResult| !matches!(result.disposition, Disposition::Again { .. });
        self.in_command = results.iter().map(|(_, hash, _)| *hash).collect();
        self.is_failing = results.iter().any(|(.., result)| failed(result));
        let ended = results.iter().filter(|(.., result)| ends(result));
        let ended =
            ended.map(|(sink_index, hash, result)| (*sink_index, (*hash, result.seq))).collect();
        let results = results.into_iter().map(|(.., result)| result).collect();
        let batches = starting.iter().map(|batch| batch.id).collect();
        let over = std::mem::take(&mut self.ended);
        let command = command::Dispatch { lease, results, ended: over, starting };
        self.run(store, DispatchCommand { command, batches, ended, failures: 0 });
    }

    /// The command under way was carried out.
    pub(super) fn recorded(&mut self) {
        self.in_command.clear();
    }

    /// Sends a command again that failed.
    pub(super) fn retry(&mut self, store: &Arc<dyn Store>, sent: DispatchCommand) {
        let failures = sent.failures.saturating_add(1);
        self.run(store, DispatchCommand { failures, ..sent });
    }

    fn run(&mut self, store: &Arc<dyn Store>, sent: DispatchCommand) {
        let store = store.clone();
        self.pending = Some(Box::pin(async move {
            if sent.failures > 0 {
                let dice = random().map_or(u64::MAX, u64::from_be_bytes);
                let pause_ms = RETRY.delay_ms(sent.failures, dice).unwrap_or(RETRY.cap_ms);
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            }
            let answer = call(&*store, sent.command.clone()).await;
            (sent, answer)
        }));
    }
}
