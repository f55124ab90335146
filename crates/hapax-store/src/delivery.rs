//! Deliveries at the seam: dispatchers, what they fetch, and what they report.
//!
//! Each sink that a record is routed to has a delivery in a small working set, until the sink has
//! acknowledged the record. A dispatcher owns some of the buckets that the hashes of ordering keys
//! fall into; no bucket has two dispatchers.

use hapax_core::delivery::{self, Buckets};
use hapax_core::lease::{Lease, LeaseId};
use hapax_core::name::Namespace;
use hapax_core::outbox::{OrderingKeyHash, OutboxId, Record, Status};
use hapax_core::route::SinkName;
use hapax_core::time::{Now, Timestamp};

use crate::command::{Dispatch, Share, ShareAnswer};
use crate::dataset::{self, DatasetView};
use crate::error::StoreError;
use crate::lease;
use crate::route::Sink;
use crate::txn::Txn;

/// The reads of dispatchers and operators.
pub trait DeliveryView {
    /// Pending deliveries in these buckets: one page for each request, each in order.
    fn fetch(
        &mut self,
        buckets: &Buckets,
        requests: &[FetchRequest],
    ) -> Result<Vec<Page>, StoreError>;

    /// Pending deliveries of one ordering key after a place, in order.
    fn fetch_key(
        &mut self,
        sink: &SinkName,
        ordering_hash: OrderingKeyHash,
        after: u64,
        limit: usize,
    ) -> Result<Vec<QueuedDelivery>, StoreError>;

    /// The ordering keys in these buckets that wait behind a failed delivery.
    fn parked(
        &mut self,
        sink: &SinkName,
        buckets: &Buckets,
    ) -> Result<Vec<OrderingKeyHash>, StoreError>;

    /// Counts of the deliveries to each sink.
    fn outbox_stats(&mut self) -> Result<Vec<SinkStats>, StoreError>;
}

/// The writes of dispatchers and operators.
pub trait DeliveryTxn {
    /// All dispatchers and their buckets, locked until the transaction ends.
    fn dispatchers(&mut self) -> Result<Vec<(LeaseId, Buckets)>, StoreError>;

    /// Whether this lease still has a dispatcher. The answer holds until the transaction ends.
    fn is_dispatcher(&mut self, lease: LeaseId) -> Result<bool, StoreError>;

    /// Writes a dispatcher's buckets.
    fn put_dispatcher(&mut self, lease: LeaseId, buckets: &Buckets) -> Result<(), StoreError>;

    /// Removes a dispatcher. Its deliveries in flight count as attempted.
    fn drop_dispatcher(&mut self, lease: LeaseId) -> Result<(), StoreError>;

    /// Records a batch that is about to be sent.
    fn put_batch(&mut self, lease: LeaseId, batch: &SendBatch) -> Result<(), StoreError>;

    /// Writes delivery results, and removes the send batches that are over.
    fn put_results(
        &mut self,
        lease: LeaseId,
        results: &[DeliveryResult],
        ended: &[u64],
        now: Now,
    ) -> Result<(), StoreError>;

    /// Makes failed deliveries pending again, the oldest records first, and counts the change of
    /// their sinks. Skips a record that its receiver may have forgotten, unless the redrive allows
    /// duplicates.
    fn redrive(&mut self, redrive: &Redrive, now: Now) -> Result<usize, StoreError>;
}

/// A request for pending deliveries of one sink in one namespace, after a cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchRequest {
    /// The sink.
    pub sink: SinkName,
    /// The namespace.
    pub namespace: Namespace,
    /// The cursor.
    pub cursor: Cursor,
    /// How many to read at most.
    pub limit: usize,
}

/// A cursor over the deliveries of one sink. Only its store can interpret it: commits may finish
/// out of order, and the cursor passes over none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor {
    /// The transaction of the last delivery that was read, where transactions overlap.
    pub transaction: u64,
    /// The place of the last delivery that was read.
    pub seq: u64,
}

/// One page of a sink's deliveries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// Deliveries to be made, some perhaps not for the first time.
    pub deliveries: Vec<QueuedDelivery>,
    /// The cursor after this page.
    pub cursor: Cursor,
    /// Whether more may follow.
    pub more: bool,
}

/// A record to be delivered to one sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedDelivery {
    /// The record.
    pub record: Record,
    /// The hash of its ordering key.
    pub ordering_hash: OrderingKeyHash,
    /// The transaction that recorded it, where transactions overlap.
    pub transaction: u64,
    /// The row that the store read the delivery from, as a hint; 0 if the store gives none.
    pub row: u64,
    /// How often it was tried.
    pub tried: u32,
    /// Whether an earlier attempt ended in an error, and not only in the death of its dispatcher.
    pub refused: bool,
    /// The guards' verdict on it.
    pub guards: GuardCheck,
    /// When it is due.
    pub due: Timestamp,
}

/// The guards' verdict on a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardCheck {
    /// It passed them before it was recorded.
    Passed,
    /// The guards have not checked it: a program wrote it to the database itself.
    Unchecked,
    /// The guards object to it, for this reason.
    Barred(String),
}

impl QueuedDelivery {
    /// Has the guards check the deliveries that they have not checked yet.
    pub fn judge(
        view: &mut (impl DatasetView + ?Sized),
        deliveries: &mut [Self],
    ) -> Result<(), StoreError> {
        let mut unchecked: Vec<_> =
            deliveries.iter_mut().filter(|queued| queued.guards == GuardCheck::Unchecked).collect();
        if unchecked.is_empty() {
            return Ok(());
        }
        let datasets =
            unchecked.iter().map(|queued| queued.record.event.dataset.as_str()).collect();
        let registry = view.registry(&datasets)?;
        for queued in &mut unchecked {
            let against = dataset::objection(&registry, &queued.record.event);
            queued.guards = against.map_or(GuardCheck::Passed, GuardCheck::Barred);
        }
        Ok(())
    }
}

/// A batch of records that a dispatcher is about to send to one sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendBatch {
    /// Its number, which the dispatcher chose.
    pub id: u64,
    /// The sink.
    pub sink: SinkName,
    /// The records.
    pub deliveries: Vec<BatchedDelivery>,
}

/// A record in a send batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchedDelivery {
    /// Its place in the outbox.
    pub seq: u64,
    /// The hash of its ordering key.
    pub ordering_hash: OrderingKeyHash,
    /// How often it was tried, this attempt included.
    pub tried: u32,
}

/// The result of one attempt to deliver a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryResult {
    /// The sink.
    pub sink: SinkName,
    /// The record's namespace.
    pub namespace: Namespace,
    /// The transaction that recorded it.
    pub transaction: u64,
    /// The row that the store read the delivery from, which may have moved since.
    pub row: u64,
    /// Its place in the outbox.
    pub seq: u64,
    /// How often it was tried, this attempt included.
    pub tried: u32,
    /// The result.
    pub disposition: Disposition,
}

/// The disposition of a delivery after an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disposition {
    /// The sink has it.
    Delivered {
        /// Whether the sink had it before.
        duplicate: bool,
    },
    /// To be retried after this long.
    Again {
        /// How long.
        in_ms: u64,
        /// Why.
        error: String,
    },
    /// A dead letter, until an operator redrives it.
    Failed {
        /// Why.
        error: String,
        /// Whether later records of its ordering key wait.
        park: bool,
    },
}

/// The delivery of one record to one sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryStatus {
    /// The sink.
    pub sink: SinkName,
    /// The delivery's status.
    pub status: Status,
    /// How often it was tried.
    pub tried: u32,
    /// When it is due, while it is pending.
    pub due: Option<Timestamp>,
    /// Why the last try failed, if one did.
    pub error: Option<String>,
    /// When it last changed.
    pub updated: Timestamp,
    /// Whether later records of its ordering key wait.
    pub parks: bool,
}

/// Counts of the deliveries to one sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkStats {
    /// The sink.
    pub sink: Sink,
    /// How many are pending.
    pub pending: u64,
    /// How many have failed.
    pub failed: u64,
    /// When the oldest pending one was recorded.
    pub oldest: Option<Timestamp>,
}

/// Which failed deliveries to redrive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Redrive {
    /// Of this namespace.
    pub namespace: Namespace,
    /// Only at this sink.
    pub sink: Option<SinkName>,
    /// Only this record.
    pub id: Option<OutboxId>,
    /// Also where the receiver may have forgotten the record's id, and would take it for new.
    pub may_duplicate: bool,
    /// At most this many.
    pub limit: usize,
}

/// Gives a dispatcher its share of the buckets, after removing lost dispatchers. It keeps the
/// buckets that it holds and still uses, and gets free ones up to its fair share.
pub(crate) fn share(txn: &mut dyn Txn, command: &Share) -> Result<ShareAnswer, StoreError> {
    let Share { lease, keep } = *command;
    if txn.lease(lease)?.is_none_or(|lease| lease.dead) {
        return Err(StoreError::LeaseDead(lease));
    }
    let now = txn.now();
    let mut others = Vec::new();
    let mut mine = Buckets::default();
    for (owner, buckets) in txn.dispatchers()? {
        if owner == lease {
            mine = buckets;
        } else if is_lost(txn, now, owner)? {
            txn.drop_dispatcher(owner)?;
        } else {
            others.push(buckets);
        }
    }
    // A dispatcher keeps only buckets that it was given.
    let kept = mine.without(Buckets::all().without(keep));
    let buckets = delivery::share(&others, kept);
    txn.put_dispatcher(lease, &buckets)?;
    Ok(ShareAnswer { buckets, fair: delivery::fair(others.len() + 1) })
}

/// Whether a dispatcher is lost; then its lease is marked dead for good.
fn is_lost(txn: &mut dyn Txn, now: Now, id: LeaseId) -> Result<bool, StoreError> {
    let Some(lease) = txn.lease(id)?.filter(|lease| !lease.dead) else { return Ok(true) };
    let late = lease.until.reached(now.lease);
    let lost = txn.is_gone(&lease) || late && lease.lapsed(now, &lease::beat(txn, now)?);
    if lost {
        txn.put_lease(&Lease { dead: true, ..lease })?;
    }
    Ok(lost)
}

/// Writes delivery results and the batches to send next, if the lease still has a dispatcher.
pub(crate) fn dispatch(txn: &mut dyn Txn, command: &Dispatch) -> Result<(), StoreError> {
    let Dispatch { lease, ref results, ref ended, ref starting } = *command;
    if !txn.is_dispatcher(lease)? {
        return Err(StoreError::LeaseDead(lease));
    }
    let now = txn.now();
    if !results.is_empty() || !ended.is_empty() {
        txn.put_results(lease, results, ended, now)?;
    }
    for batch in starting {
        txn.put_batch(lease, batch)?;
    }
    Ok(())
}

/// Makes failed deliveries pending again. Returns how many.
pub(crate) fn redrive(txn: &mut dyn Txn, redrive: &Redrive) -> Result<usize, StoreError> {
    let now = txn.now();
    txn.redrive(redrive, now)
}
