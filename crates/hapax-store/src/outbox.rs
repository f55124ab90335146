//! The outbox at the seam: the records that are written with a settle, and the reads and writes of
//! dispatchers.
//!
//! A record is written once and never changed. Each sink it is routed to has a delivery in a small
//! working set, until the sink has acknowledged the record. A dispatcher owns some of the buckets
//! that the hashes of ordering keys fall into; no bucket has two dispatchers.

use std::collections::{BTreeMap, BTreeSet};

use hapax_core::dataset::{Dataset, Registry};
use hapax_core::delivery::{self, Buckets};
use hapax_core::effect::Effect;
use hapax_core::guard::Guards;
use hapax_core::lease::{Lease, LeaseId};
use hapax_core::name::{Name, Namespace};
use hapax_core::outbox::{Artifact, Event, OrderingKeyHash, OutboxId, Record, Status};
use hapax_core::part::Part;
use hapax_core::result_index::IndexEntry;
use hapax_core::route::{self, Route, SinkName};
use hapax_core::time::{Now, Timestamp};

use crate::command::{Answer, Limits};
use crate::dataset;
use crate::error::StoreError;
use crate::ledger;
use crate::txn::Txn;

/// An event of an effect, and its position among the effect's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emission {
    /// From 0.
    pub ordinal: u32,
    /// The event.
    pub event: Event,
}

/// Everything that a settle records beside the report. Only a success records the events, the note
/// and the index entry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attachments {
    /// Events for the outbox.
    pub events: Vec<Emission>,
    /// A note for the journal entry.
    pub note: Option<String>,
    /// The index entry by which the result is found.
    pub shelved: Option<IndexEntry>,
    /// The part's new data, recorded with any report.
    pub part: Option<Part>,
}

/// A sink, as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sink {
    /// Its name.
    pub name: SinkName,
    /// Whether it is paused: nothing is sent to it for now.
    pub paused: bool,
    /// How often a pause, a resume or a redrive changed it. A dispatcher that sees a new number
    /// re-reads its deliveries.
    pub changed: u64,
    /// How long its receiver remembers ids, if that was declared.
    pub remembers_ms: Option<u64>,
}

/// The declared sinks and routes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routing {
    /// All sinks, and how long each receiver remembers ids, where that is known.
    pub sinks: Vec<(SinkName, Option<u64>)>,
    /// Which events go where.
    pub routes: Vec<Route>,
}

/// A request for pending deliveries of one sink in one namespace, after a cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchRequest {
    /// The sink.
    pub sink: SinkName,
    /// The namespace.
    pub namespace: Namespace,
    /// The cursor.
    pub mark: Cursor,
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

/// A follower's cursor over all records. Only its store can interpret it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FollowCursor {
    /// Everything up to this place has been read, and nothing will be added there.
    pub floor: u64,
    /// Once all transactions before the first number are over, all records up to the second are
    /// there.
    pub horizon: Option<(u64, u64)>,
    /// The records that were read beyond the floor.
    pub seen: BTreeSet<u64>,
}

/// One page of a sink's deliveries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// Deliveries to be made, some perhaps not for the first time.
    pub parcels: Vec<QueuedDelivery>,
    /// The cursor after this page.
    pub mark: Cursor,
    /// Whether more may follow.
    pub more: bool,
}

/// A record to be delivered to one sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedDelivery {
    /// The record.
    pub record: Record,
    /// The hash of its ordering key.
    pub track: OrderingKeyHash,
    /// The transaction that recorded it, where transactions overlap.
    pub transaction: u64,
    /// The row that the store read the delivery from, as a hint; 0 if the store gives none.
    pub row: u64,
    /// How often it was tried.
    pub tried: u32,
    /// Whether an earlier attempt ended in an error, and not only in the death of its dispatcher.
    pub refused: bool,
    /// The guards' verdict on it.
    pub passage: GuardCheck,
    /// When it is due.
    pub due: Timestamp,
}

/// The guards' verdict on a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardCheck {
    /// It passed them before it was recorded.
    Free,
    /// The guards have not checked it: a program wrote it to the database itself.
    Unasked,
    /// The guards object to it, for this reason.
    Barred(String),
}

impl QueuedDelivery {
    /// Has the guards check the deliveries that they have not checked yet.
    pub fn judge(
        view: &mut (impl OutboxView + ?Sized),
        parcels: &mut [Self],
    ) -> Result<(), StoreError> {
        let mut unasked: Vec<_> =
            parcels.iter_mut().filter(|parcel| parcel.passage == GuardCheck::Unasked).collect();
        if unasked.is_empty() {
            return Ok(());
        }
        let datasets = unasked.iter().map(|parcel| parcel.record.event.dataset.as_str()).collect();
        let registry = view.registry(&datasets)?;
        for parcel in &mut unasked {
            let against = dataset::objection(&registry, &parcel.record.event);
            parcel.passage = against.map_or(GuardCheck::Free, GuardCheck::Barred);
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
    pub parcels: Vec<BatchedDelivery>,
}

/// A record in a send batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchedDelivery {
    /// Its place in the outbox.
    pub seq: u64,
    /// The hash of its ordering key.
    pub track: OrderingKeyHash,
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
    pub landing: Disposition,
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

/// A record and its deliveries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordStatus {
    /// The record.
    pub record: Record,
    /// Its status over all sinks.
    pub status: Status,
    /// Its delivery to each sink, ordered by sink.
    pub deliveries: Vec<DeliveryStatus>,
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

/// Which records to list, newest first.
#[derive(Debug, Clone, Default)]
pub struct RecordFilter {
    /// Only of this namespace.
    pub namespace: Option<Namespace>,
    /// Only those of this status.
    pub status: Option<Status>,
    /// Only those routed to this sink and not delivered there yet.
    pub sink: Option<SinkName>,
    /// Only before this place, as the cursor of the next page.
    pub before: Option<u64>,
    /// At most this many.
    pub limit: usize,
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

/// The reads of dispatchers and operators.
pub trait OutboxView {
    /// The declared sinks and routes.
    fn routing(&mut self) -> Result<Routing, StoreError>;

    /// A cursor from which a follower misses no record from now on.
    fn tide(&mut self) -> Result<FollowCursor, StoreError>;

    /// The records after this cursor, in every namespace, each once, at most `limit`; and the next
    /// cursor.
    fn recorded(
        &mut self,
        tide: FollowCursor,
        limit: usize,
    ) -> Result<(Vec<Record>, FollowCursor), StoreError>;

    /// The enabled guards, and the declarations of these datasets.
    fn registry(&mut self, datasets: &BTreeSet<&str>) -> Result<Registry, StoreError>;

    /// All dataset declarations, by name.
    fn datasets(&mut self) -> Result<BTreeMap<String, Dataset>, StoreError>;

    /// All sinks.
    fn sinks(&mut self) -> Result<Vec<Sink>, StoreError>;

    /// Records by their ids, in this order.
    fn records(&mut self, ids: &[OutboxId]) -> Result<Vec<Option<RecordStatus>>, StoreError>;

    /// The records that a filter selects.
    fn outbox(&mut self, filter: &RecordFilter) -> Result<Vec<RecordStatus>, StoreError>;

    /// Counts of the deliveries to each sink.
    fn outbox_stats(&mut self) -> Result<Vec<SinkStats>, StoreError>;

    /// Pending deliveries in these buckets: one page for each request, each in order.
    fn feed(&mut self, buckets: &Buckets, lines: &[FetchRequest]) -> Result<Vec<Page>, StoreError>;

    /// Pending deliveries of one ordering key after a place, in order.
    fn feed_track(
        &mut self,
        sink: &SinkName,
        track: OrderingKeyHash,
        after: u64,
        limit: usize,
    ) -> Result<Vec<QueuedDelivery>, StoreError>;

    /// The ordering keys in these buckets that wait behind a failed delivery.
    fn parked(
        &mut self,
        sink: &SinkName,
        buckets: &Buckets,
    ) -> Result<Vec<OrderingKeyHash>, StoreError>;

    /// The artifact that is registered as this version of a dataset.
    fn artifact(
        &mut self,
        namespace: &Namespace,
        dataset: &str,
        version: &str,
    ) -> Result<Option<Artifact>, StoreError>;

    /// All namespaces that the store knows.
    fn namespaces(&mut self) -> Result<Vec<Namespace>, StoreError>;
}

/// The writes of settles, dispatchers and operators.
pub trait OutboxTxn: OutboxView {
    /// Replaces the declared sinks and routes. Sinks that are no longer declared stay known.
    fn put_routing(&mut self, routing: &Routing) -> Result<(), StoreError>;

    /// Sets the enabled guards.
    fn put_guards(&mut self, guards: Guards) -> Result<(), StoreError>;

    /// Declares one dataset, or removes its declaration. Returns whether it was declared before.
    fn put_dataset(&mut self, name: &str, dataset: Option<&Dataset>) -> Result<bool, StoreError>;

    /// Writes a new record, its artifact unless that is registered already, and a pending
    /// delivery for each of these sinks. The store gives the record its place.
    fn put_record(&mut self, record: &Record, sinks: &[&SinkName]) -> Result<(), StoreError>;

    /// Pauses or resumes a sink, and counts the change. Returns whether the sink is known.
    fn put_paused(&mut self, sink: &SinkName, paused: bool) -> Result<bool, StoreError>;

    /// All dispatchers and their buckets, locked until the transaction ends.
    fn dispatchers(&mut self) -> Result<Vec<(LeaseId, Buckets)>, StoreError>;

    /// Whether this lease still has a dispatcher. The answer holds until the transaction ends.
    fn is_dispatcher(&mut self, lease: LeaseId) -> Result<bool, StoreError>;

    /// Writes a dispatcher's buckets.
    fn put_dispatcher(&mut self, lease: LeaseId, buckets: &Buckets) -> Result<(), StoreError>;

    /// Removes a dispatcher. Its deliveries in flight count as attempted.
    fn drop_dispatcher(&mut self, lease: LeaseId) -> Result<(), StoreError>;

    /// Records a batch that is about to be sent.
    fn depart(&mut self, lease: LeaseId, flight: &SendBatch) -> Result<(), StoreError>;

    /// Writes delivery results, and removes the send batches that are over.
    fn land(
        &mut self,
        lease: LeaseId,
        landed: &[DeliveryResult],
        over: &[u64],
        now: Now,
    ) -> Result<(), StoreError>;

    /// Makes failed deliveries pending again, the oldest records first, and counts the change of
    /// their sinks. Skips a record that its receiver may have forgotten, unless the redrive allows
    /// duplicates.
    fn redrive(&mut self, redrive: &Redrive, now: Now) -> Result<usize, StoreError>;
}

/// Records an effect's events. An event that is recorded already must have the same content.
pub(crate) fn record(
    txn: &mut dyn Txn,
    name: &Name,
    effect: &Effect,
    emissions: &[Emission],
) -> Result<(), StoreError> {
    if emissions.is_empty() {
        return Ok(());
    }
    let routing = txn.routing()?;
    let registry = txn.registry(&dataset::of(emissions))?;
    let now = txn.now();
    for Emission { ordinal, event } in &dataset::admitted(&registry, emissions)? {
        if let Some(flaw) = event.flaw() {
            return Err(StoreError::Invalid(flaw));
        }
        if *ordinal >= Event::MOST {
            let most = Event::MOST;
            return Err(StoreError::Invalid(format!("an effect emits at most {most} events")));
        }
        let Some(sinks) = route::sinks(&routing.routes, &event.name, &event.dataset) else {
            let (event, dataset) = (event.name.clone(), event.dataset.clone());
            return Err(StoreError::Unrouted { event, dataset });
        };
        let id = OutboxId::derive(name, effect.created, effect.generation, *ordinal);
        match txn.records(&[id])?.pop().flatten() {
            Some(found) if found.record.event.repeats(event) => {}
            Some(_) => return Err(StoreError::Differs(event.name.clone())),
            None => {
                check_artifact(txn, &name.namespace, event)?;
                let (name, event) = (name.clone(), event.clone());
                let record =
                    Record { id, seq: 0, name, ordinal: *ordinal, event, created: now.wall };
                txn.put_record(&record, &sinks)?;
            }
        }
    }
    Ok(())
}

/// Records the event of a success that the ledger records about itself. It needs no route.
pub(crate) fn record_unrouted(
    txn: &mut dyn Txn,
    now: Now,
    name: &Name,
    effect: &Effect,
    event: Event,
) -> Result<(), StoreError> {
    let routing = txn.routing()?;
    let sinks = route::sinks(&routing.routes, &event.name, &event.dataset).unwrap_or_default();
    let id = OutboxId::derive(name, effect.created, effect.generation, 0);
    let record = Record { id, seq: 0, name: name.clone(), ordinal: 0, event, created: now.wall };
    txn.put_record(&record, &sinks)
}

/// A version of a dataset is published once; publishing the same artifact again changes nothing.
fn check_artifact(
    txn: &mut dyn Txn,
    namespace: &Namespace,
    event: &Event,
) -> Result<(), StoreError> {
    let Some(artifact) = &event.artifact else { return Ok(()) };
    match txn.artifact(namespace, &event.dataset, &artifact.version)? {
        Some(known) if known != *artifact => {
            let (dataset, version) = (event.dataset.clone(), artifact.version.clone());
            Err(StoreError::Republished { dataset, version })
        }
        _ => Ok(()),
    }
}

/// Gives a dispatcher its share of the buckets, after removing lost dispatchers. It keeps the
/// buckets that it holds and still uses, and gets free ones up to its fair share.
pub(crate) fn share(
    txn: &mut dyn Txn,
    lease: LeaseId,
    keep: &Buckets,
) -> Result<Answer, StoreError> {
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
    let kept = mine.without(Buckets::all().without(*keep));
    let buckets = delivery::share(&others, kept);
    txn.put_dispatcher(lease, &buckets)?;
    Ok(Answer::Share { buckets, fair: delivery::fair(others.len() + 1) })
}

/// Whether a dispatcher is lost; then its lease is marked dead for good.
fn is_lost(txn: &mut dyn Txn, now: Now, id: LeaseId) -> Result<bool, StoreError> {
    let Some(lease) = txn.lease(id)?.filter(|lease| !lease.dead) else { return Ok(true) };
    let late = lease.until.reached(now.lease);
    let lost = txn.is_gone(&lease) || late && lease.lapsed(now, &ledger::beat(txn, now)?);
    if lost {
        txn.put_lease(&Lease { dead: true, ..lease })?;
    }
    Ok(lost)
}

/// Writes delivery results and the batches to send next, if the lease still has a dispatcher.
pub(crate) fn dispatch(
    txn: &mut dyn Txn,
    lease: LeaseId,
    landed: &[DeliveryResult],
    over: &[u64],
    departing: &[SendBatch],
) -> Result<Answer, StoreError> {
    if !txn.is_dispatcher(lease)? {
        return Err(StoreError::LeaseDead(lease));
    }
    let now = txn.now();
    if !landed.is_empty() || !over.is_empty() {
        txn.land(lease, landed, over, now)?;
    }
    for flight in departing {
        txn.depart(lease, flight)?;
    }
    Ok(Answer::Count(landed.len()))
}

/// Replaces the routing.
pub(crate) fn configure(txn: &mut dyn Txn, routing: &Routing) -> Result<Answer, StoreError> {
    for route in &routing.routes {
        for sink in &route.sinks {
            if !routing.sinks.iter().any(|(name, _)| name == sink) {
                return Err(StoreError::Invalid(format!("a route names the unknown sink {sink}")));
            }
        }
        for pattern in [&route.event, &route.dataset] {
            if pattern.is_empty() || pattern.len() > Event::LONGEST_FIELD {
                let what = format!("a route's pattern has 1 to {} bytes", Event::LONGEST_FIELD);
                return Err(StoreError::Invalid(what));
            }
        }
    }
    if routing.sinks.len() > Limits::SINKS || routing.routes.len() > Limits::ROUTES {
        return Err(StoreError::Invalid(format!(
            "at most {} sinks and {} routes",
            Limits::SINKS,
            Limits::ROUTES
        )));
    }
    if txn.routing()? != *routing {
        txn.put_routing(routing)?;
    }
    Ok(Answer::Count(routing.routes.len()))
}
