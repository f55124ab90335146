//! The outbox at the seam: the records that are written with a settle.
//!
//! A record is written once and never changed. Its state at each sink is a
//! [delivery](crate::delivery).

use std::collections::BTreeSet;

use hapax_core::effect::Effect;
use hapax_core::name::{Name, Namespace};
use hapax_core::outbox::{Artifact, Event, OutboxId, Record, Status};
use hapax_core::part::Part;
use hapax_core::result_index::IndexEntry;
use hapax_core::route::{self, SinkName};
use hapax_core::time::Now;

use crate::dataset;
pub use crate::delivery::{
    BatchedDelivery, Cursor, DeliveryResult, DeliveryStatus, Disposition, FetchRequest, GuardCheck,
    Page, QueuedDelivery, Redrive, SendBatch, SinkStats,
};
use crate::error::StoreError;
pub use crate::route::{Routing, Sink};
use crate::txn::Txn;

/// The reads of records.
pub trait OutboxView {
    /// Records by their ids, in this order.
    fn records(&mut self, ids: &[OutboxId]) -> Result<Vec<Option<RecordStatus>>, StoreError>;

    /// The records that a filter selects.
    fn outbox(&mut self, filter: &RecordFilter) -> Result<Vec<RecordStatus>, StoreError>;

    /// A cursor from which a follower misses no record from now on.
    fn follow_cursor(&mut self) -> Result<FollowCursor, StoreError>;

    /// The records after this cursor, in every namespace, each once, at most `limit`; and the next
    /// cursor.
    fn records_after(
        &mut self,
        cursor: FollowCursor,
        limit: usize,
    ) -> Result<(Vec<Record>, FollowCursor), StoreError>;

    /// The artifact that is registered as this version of a dataset.
    fn artifact(
        &mut self,
        namespace: &Namespace,
        dataset: &str,
        version: &str,
    ) -> Result<Option<Artifact>, StoreError>;
}

/// The writes of records.
pub trait OutboxTxn {
    /// Writes a new record, its artifact unless that is registered already, and a pending
    /// delivery for each of these sinks. The store gives the record its place.
    fn put_record(&mut self, record: &Record, sinks: &[&SinkName]) -> Result<(), StoreError>;
}

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
    pub index_entry: Option<IndexEntry>,
    /// The part's new data, recorded with any report.
    pub part: Option<Part>,
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
