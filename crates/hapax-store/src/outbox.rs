//! The outbox at the seam: what is written with a settle, and what dispatchers ask for.
//!
//! A record is written once and never again. For each sink it is routed to there is a delivery in
//! a small working set, which is gone when the sink has it. A dispatcher looks after some of the
//! buckets that tracks fall into; no two look after the same one.

use std::collections::{BTreeMap, BTreeSet};

use hapax_core::dataset::{Dataset, Registry};
use hapax_core::delivery::{self, Buckets};
use hapax_core::effect::Effect;
use hapax_core::guard::Guards;
use hapax_core::lease::{Lease, LeaseId};
use hapax_core::name::{Name, Namespace};
use hapax_core::outbox::{Artifact, Event, OutboxId, Record, Status, Track};
use hapax_core::part::Part;
use hapax_core::route::{self, Route, SinkName};
use hapax_core::shelf::Shelved;
use hapax_core::time::{Now, Timestamp};

use crate::command::{Answer, Limits};
use crate::dataset;
use crate::error::StoreError;
use crate::ledger;
use crate::txn::Txn;

/// An event of an effect, and which of its events it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emission {
    /// From 0.
    pub ordinal: u32,
    /// What happened.
    pub event: Event,
}

/// What there is to tell of an effect that succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Telling {
    /// To the outside world.
    pub events: Vec<Emission>,
    /// To whoever reads the journal.
    pub note: Option<String>,
    /// To whoever looks for results: what this one is found by.
    pub shelved: Option<Shelved>,
    /// To whoever looks at parts: what is to be known of this one, however it went.
    pub part: Option<Part>,
}

/// What a store knows of a sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sink {
    /// Its name.
    pub name: SinkName,
    /// Nothing is sent to it for now.
    pub paused: bool,
    /// How often something was changed about it by hand: whoever sends to it looks anew.
    pub changed: u64,
    /// How long its receiver remembers ids, if that was declared.
    pub remembers_ms: Option<u64>,
}

/// What events are routed by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routing {
    /// All sinks, and how long each receiver remembers ids, where that is known.
    pub sinks: Vec<(SinkName, Option<u64>)>,
    /// Which events go where.
    pub routes: Vec<Route>,
}

/// The deliveries of one sink in one namespace, and how far they have been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The sink.
    pub sink: SinkName,
    /// The namespace.
    pub namespace: Namespace,
    /// How far.
    pub mark: Mark,
    /// How many to read at most.
    pub limit: usize,
}

/// How far a line has been read. What it means is its store's own business: commits may finish
/// out of order, and nothing is passed over for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    /// The transaction of the last delivery that was read, where transactions overlap.
    pub transaction: u64,
    /// The place of the last delivery that was read.
    pub seq: u64,
}

/// How far somebody has followed what is recorded. What it is made of is the store's affair.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tide {
    /// Everything up to this place has been read, and nothing will be added there.
    pub floor: u64,
    /// Once all transactions before the first are over, everything up to the second is there.
    pub horizon: Option<(u64, u64)>,
    /// What has been read beyond the floor.
    pub seen: BTreeSet<u64>,
}

/// What was read of a line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fed {
    /// Deliveries to be made, some perhaps not for the first time.
    pub parcels: Vec<Parcel>,
    /// How far it is read now.
    pub mark: Mark,
    /// Whether there was more.
    pub more: bool,
}

/// A record to be delivered to one sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parcel {
    /// What.
    pub record: Record,
    /// What it waits in line with.
    pub track: Track,
    /// The transaction that recorded it, where transactions overlap.
    pub transaction: u64,
    /// Where the store has read its delivery, in the store's own words; 0 if it does not say.
    pub row: u64,
    /// How often it was tried.
    pub tried: u32,
    /// Whether the sink has refused it, and not only its dispatcher died.
    pub refused: bool,
    /// What guards say of it.
    pub passage: Passage,
    /// Not before.
    pub due: Timestamp,
}

/// What guards say of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Passage {
    /// It passed them before it was recorded.
    Free,
    /// They were not asked: whoever recorded it spoke to the database and not to us.
    Unasked,
    /// They have something against it.
    Barred(String),
}

impl Parcel {
    /// Asks the guards, where nobody has.
    pub fn judge(
        view: &mut (impl OutboxView + ?Sized),
        parcels: &mut [Self],
    ) -> Result<(), StoreError> {
        let mut unasked: Vec<_> =
            parcels.iter_mut().filter(|parcel| parcel.passage == Passage::Unasked).collect();
        if unasked.is_empty() {
            return Ok(());
        }
        let datasets = unasked.iter().map(|parcel| parcel.record.event.dataset.as_str()).collect();
        let registry = view.registry(&datasets)?;
        for parcel in &mut unasked {
            let against = dataset::objection(&registry, &parcel.record.event);
            parcel.passage = against.map_or(Passage::Free, Passage::Barred);
        }
        Ok(())
    }
}

/// A try that is about to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flight {
    /// Its number, the dispatcher's own.
    pub id: u64,
    /// Where to.
    pub sink: SinkName,
    /// Which records.
    pub parcels: Vec<Aboard>,
}

/// A record on a flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aboard {
    /// Its place.
    pub seq: u64,
    /// Its track.
    pub track: Track,
    /// How often it was tried, with this one.
    pub tried: u32,
}

/// What became of a try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Landed {
    /// The sink.
    pub sink: SinkName,
    /// The record's namespace.
    pub namespace: Namespace,
    /// The transaction that recorded it.
    pub transaction: u64,
    /// Where the store had read its delivery, which may be elsewhere by now.
    pub row: u64,
    /// Its place.
    pub seq: u64,
    /// How often it was tried, with this one.
    pub tried: u32,
    /// What became of it.
    pub landing: Landing,
}

/// What becomes of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Landing {
    /// The sink has it.
    Delivered {
        /// It had it before.
        duplicate: bool,
    },
    /// To be tried again after this long.
    Again {
        /// How long.
        in_ms: u64,
        /// Why.
        error: String,
    },
    /// Given up, until somebody redrives it.
    Failed {
        /// Why.
        error: String,
        /// Whether those behind it wait.
        park: bool,
    },
}

/// A record and how far it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The record.
    pub record: Record,
    /// How far, over all sinks.
    pub status: Status,
    /// Each sink, in order.
    pub deliveries: Vec<Delivery>,
}

/// How far a record has come at one sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The sink.
    pub sink: SinkName,
    /// How far.
    pub status: Status,
    /// How often it was tried.
    pub tried: u32,
    /// Not before, while it is pending.
    pub due: Option<Timestamp>,
    /// Why the last try failed, if one did.
    pub error: Option<String>,
    /// When something last became of it.
    pub updated: Timestamp,
    /// Whether those behind it wait.
    pub parks: bool,
}

/// Which records to list: newest first, or from a place on.
#[derive(Debug, Clone, Default)]
pub struct RecordFilter {
    /// Only of this namespace.
    pub namespace: Option<Namespace>,
    /// Only with a delivery that is still open, or has failed.
    pub status: Option<Status>,
    /// Only those routed to this sink and still open there.
    pub sink: Option<SinkName>,
    /// Only before this place, to page on.
    pub before: Option<u64>,
    /// At most this many.
    pub limit: usize,
}

/// How much of what there is at a sink.
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

/// Which failed deliveries to try again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Redrive {
    /// Of this namespace.
    pub namespace: Namespace,
    /// Only at this sink.
    pub sink: Option<SinkName>,
    /// Only this record.
    pub id: Option<OutboxId>,
    /// Also where the receiver may have forgotten that it had it.
    pub may_duplicate: bool,
    /// At most this many.
    pub limit: usize,
}

/// What dispatchers and people read.
pub trait OutboxView {
    /// What events are routed by.
    fn routing(&mut self) -> Result<Routing, StoreError>;

    /// Where to begin to follow, to miss nothing that is recorded from now on.
    fn tide(&mut self) -> Result<Tide, StoreError>;

    /// What was recorded since, in every namespace; each record once, at most so many.
    fn recorded(&mut self, tide: Tide, limit: usize) -> Result<(Vec<Record>, Tide), StoreError>;

    /// Which guards are up, and what is declared of these datasets.
    fn registry(&mut self, datasets: &BTreeSet<&str>) -> Result<Registry, StoreError>;

    /// Everything that is declared of datasets, by their names.
    fn datasets(&mut self) -> Result<BTreeMap<String, Dataset>, StoreError>;

    /// All sinks.
    fn sinks(&mut self) -> Result<Vec<Sink>, StoreError>;

    /// Records by their ids, in this order.
    fn records(&mut self, ids: &[OutboxId]) -> Result<Vec<Option<Found>>, StoreError>;

    /// Records of a kind.
    fn outbox(&mut self, filter: &RecordFilter) -> Result<Vec<Found>, StoreError>;

    /// How much there is at each sink.
    fn outbox_stats(&mut self) -> Result<Vec<SinkStats>, StoreError>;

    /// Pending deliveries on these lines that lie in these buckets, each line in order.
    fn feed(&mut self, buckets: &Buckets, lines: &[Line]) -> Result<Vec<Fed>, StoreError>;

    /// Pending deliveries of one track after a place, in order.
    fn feed_track(
        &mut self,
        sink: &SinkName,
        track: Track,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Parcel>, StoreError>;

    /// The tracks in these buckets that wait for a delivery that has failed.
    fn parked(&mut self, sink: &SinkName, buckets: &Buckets) -> Result<Vec<Track>, StoreError>;

    /// The artifact that is registered as this version of a dataset.
    fn artifact(
        &mut self,
        namespace: &Namespace,
        dataset: &str,
        version: &str,
    ) -> Result<Option<Artifact>, StoreError>;

    /// All namespaces that have ever been used.
    fn namespaces(&mut self) -> Result<Vec<Namespace>, StoreError>;
}

/// What is written.
pub trait OutboxTxn: OutboxView {
    /// Replaces what events are routed by. Sinks that are no longer named stay known.
    fn put_routing(&mut self, routing: &Routing) -> Result<(), StoreError>;

    /// Says which guards are up.
    fn put_guards(&mut self, guards: Guards) -> Result<(), StoreError>;

    /// Declares one dataset, or that it is no longer declared. Whether it was before.
    fn put_dataset(&mut self, name: &str, dataset: Option<&Dataset>) -> Result<bool, StoreError>;

    /// Writes a new record, its artifact unless that is registered already, and a pending
    /// delivery for each of these sinks. The store gives the record its place.
    fn put_record(&mut self, record: &Record, sinks: &[&SinkName]) -> Result<(), StoreError>;

    /// Pauses or resumes a sink, and says that it was changed. Whether it is known.
    fn put_paused(&mut self, sink: &SinkName, paused: bool) -> Result<bool, StoreError>;

    /// All dispatchers and what each looks after, locked until the transaction ends.
    fn dispatchers(&mut self) -> Result<Vec<(LeaseId, Buckets)>, StoreError>;

    /// Whether this is a dispatcher still; it stays one until the transaction ends.
    fn is_dispatcher(&mut self, lease: LeaseId) -> Result<bool, StoreError>;

    /// Writes what a dispatcher looks after.
    fn put_dispatcher(&mut self, lease: LeaseId, buckets: &Buckets) -> Result<(), StoreError>;

    /// Removes a dispatcher. What it was trying counts as tried.
    fn drop_dispatcher(&mut self, lease: LeaseId) -> Result<(), StoreError>;

    /// Writes down what is about to be tried.
    fn depart(&mut self, lease: LeaseId, flight: &Flight) -> Result<(), StoreError>;

    /// Writes what became of tries, and removes the flights that are over.
    fn land(
        &mut self,
        lease: LeaseId,
        landed: &[Landed],
        over: &[u64],
        now: Now,
    ) -> Result<(), StoreError>;

    /// Makes failed deliveries pending again, those first that were recorded first, and says that
    /// their sinks were changed. None that was recorded before its receiver forgot.
    fn redrive(&mut self, redrive: &Redrive, now: Now) -> Result<usize, StoreError>;
}

/// Records an effect's events. One that is there already must be the same.
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

/// A version of a dataset is published once; saying so again changes nothing.
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

/// Gives a dispatcher its share of the buckets: of those it still uses, all that nobody else has.
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
    // Nobody keeps what it was not given.
    let kept = mine.without(Buckets::all().without(*keep));
    let buckets = delivery::share(&others, kept);
    txn.put_dispatcher(lease, &buckets)?;
    Ok(Answer::Share { buckets, fair: delivery::fair(others.len() + 1) })
}

/// Whether a dispatcher can no longer be counted on; then its lease is dead for good.
fn is_lost(txn: &mut dyn Txn, now: Now, id: LeaseId) -> Result<bool, StoreError> {
    let Some(lease) = txn.lease(id)?.filter(|lease| !lease.dead) else { return Ok(true) };
    let late = lease.until.reached(now.lease);
    let lost = txn.is_gone(&lease) || late && lease.lapsed(now, &ledger::beat(txn, now)?);
    if lost {
        txn.put_lease(&Lease { dead: true, ..lease })?;
    }
    Ok(lost)
}

/// Writes what became of tries and which ones are made next, for a dispatcher that still is one.
pub(crate) fn dispatch(
    txn: &mut dyn Txn,
    lease: LeaseId,
    landed: &[Landed],
    over: &[u64],
    departing: &[Flight],
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
