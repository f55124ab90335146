//! From the journal to the outbox: each change of a run becomes one lineage event, in the order of
//! the journal.
//!
//! The projector relies on effects itself. One effect, keyed by the first leaf of a batch, decides
//! where the batch ends; for each namespace another one emits the events. The cursor is the epoch
//! of a domain, because an epoch only grows. Two projectors at once, or one that crashes in
//! between, emit nothing twice and miss nothing.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use hapax::json::Json;
use hapax::outbox::{Event, Payload, Record, Route, routed};
use hapax::{Domain, Entry, EntryKind, Failure, Hapax, How, Key, Namespace, Safety};

use crate::error::Error;
use crate::meters::{Labels, Meter, Meters};
use crate::operation::OperationNote;
use crate::run::{Fold, Moment};

/// The name of lineage events.
pub const EVENT: &str = "lineage";

/// How many leaves are read at once.
const PAGE: u64 = 1_024;

/// How many leaves without lineage the cursor may lag behind.
const LAG: u64 = 16_384;

/// Emits the lineage events that the routes ask for.
pub struct Projector {
    hapax: Hapax,
    domain: Domain,
    fold: Fold,
    /// Effects in flight that are no operations of a pipeline.
    others: HashSet<(Namespace, Key)>,
    /// The first leaf not read yet: everything before it is emitted, or had no lineage.
    scanned: u64,
    counted: Option<(Arc<Meters>, String)>,
}

/// The result of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProjectionStatus {
    /// How many events were recorded.
    pub emitted: usize,
    /// How many were withheld: malformed, refused by a guard, or without a route.
    pub withheld: usize,
    /// How many sealed entries are still unread.
    pub behind: u64,
}

impl Projector {
    /// A projector for all namespaces of this ledger.
    pub fn new(hapax: &Hapax) -> Result<Self, Error> {
        let hapax = hapax.in_namespace(Namespace::default());
        let domain = Domain::new("lineage").map_err(|error| Error::Invalid(error.to_string()))?;
        let (fold, others) = (Fold::default(), HashSet::new());
        Ok(Self { hapax, domain, fold, others, scanned: 0, counted: None })
    }

    /// Counts the events that were recorded already, in these meters and under this environment.
    pub fn counting(mut self, meters: Arc<Meters>, environment: &str) -> Self {
        self.counted = Some((meters, environment.to_owned()));
        self
    }

    /// Emits the events of one batch of entries.
    pub async fn pass(&mut self) -> Result<ProjectionStatus, Error> {
        let routes = self.hapax.outbox().routes().await?;
        if !routes.iter().any(|route| hapax::outbox::fits(&route.event, EVENT)) {
            return Ok(ProjectionStatus::default());
        }
        let cursor = self.hapax.epochs().current(&self.domain).await?;
        let from = self.scanned.max(cursor);
        let page = self.hapax.journal().sealed(from, PAGE).await?;
        let mut moments = Vec::new();
        for (_, entry) in &page.entries {
            moments.extend(self.moment(entry).await?);
        }
        let behind = page.size - page.next;
        if moments.is_empty() {
            self.scanned = page.next;
            if page.next - cursor >= LAG {
                self.advance(cursor, page.next).await?;
            }
            return Ok(ProjectionStatus { behind, ..ProjectionStatus::default() });
        }
        // A batch begins where the cursor is, so that each leaf is in one batch only.
        if from > cursor && self.advance(cursor, from).await? != from {
            self.scanned = 0;
            return Ok(ProjectionStatus {
                behind: page.size - from,
                ..ProjectionStatus::default()
            });
        }
        // The end is decided once, because a projector that comes after a crash sees more leaves.
        let end = self.end(from, page.next).await?;
        if end != page.next {
            moments = self.moments_of(from, end).await?;
        }
        let status = self.emit(from, &routes, moments).await?;
        self.advance(from, end).await?;
        self.scanned = end;
        Ok(ProjectionStatus { behind: page.size.saturating_sub(end), ..status })
    }

    /// The change that an entry records. If its grant is older than all entries read here, the
    /// history of the effect supplies the grant.
    async fn moment(&mut self, entry: &Entry) -> Result<Option<Moment>, Error> {
        let name = (entry.namespace.clone(), entry.key);
        if let Some(moment) = self.fold.push(entry) {
            return Ok(Some(moment));
        }
        if entry.event == EntryKind::Granted {
            self.others.insert(name);
            return Ok(None);
        }
        let settled = entry.state.is_settled();
        if self.others.contains(&name) {
            if settled {
                self.others.remove(&name);
            }
            return Ok(None);
        }
        let theirs = self.hapax.in_namespace(entry.namespace.clone());
        let mut fold = Fold::default();
        let history = theirs.journal().history(entry.key, HISTORY).await?;
        let up_to = history.iter().take_while(|earlier| earlier.id <= entry.id);
        let last = up_to.filter_map(|earlier| fold.push(earlier)).last();
        Ok(last.filter(|moment| moment.mark.entry == entry.id))
    }

    /// The same for all entries of a batch that another projector began.
    async fn moments_of(&mut self, from: u64, end: u64) -> Result<Vec<Moment>, Error> {
        let (mut again, mut moments) = (Self::new(&self.hapax)?, Vec::new());
        for (_, entry) in &self.hapax.journal().sealed(from, end - from).await?.entries {
            moments.extend(again.moment(entry).await?);
        }
        Ok(moments)
    }

    /// The end of the batch that begins here, the same for every projector.
    async fn end(&self, from: u64, end: u64) -> Result<u64, Error> {
        let key = Key::derive("lineage.batch.v1", &[("from", &from.to_be_bytes())])?;
        let effect = self.hapax.effect(key).label("lineage").safety(Safety::Transactional);
        let done = effect.run(|_| async { Ok::<_, Failure>(end.to_string()) }).await?;
        let end = done.body().and_then(|body| std::str::from_utf8(body).ok()?.parse().ok());
        end.ok_or_else(|| Error::Invalid(format!("the batch of leaf {from} has no end")))
    }

    /// Records the events of a batch, as one effect for each namespace.
    async fn emit(
        &self,
        from: u64,
        routes: &[Route],
        moments: Vec<Moment>,
    ) -> Result<ProjectionStatus, Error> {
        let mut status = ProjectionStatus::default();
        let mut batches: BTreeMap<Namespace, Vec<(Event, OperationNote)>> = BTreeMap::new();
        for moment in moments {
            let event = lineage_event(&moment)?;
            let registry = self.hapax.datasets().registry_of([event.dataset.as_str()]).await?;
            let found = registry.inspect(&event).first().map(ToString::to_string);
            // A malformed event must not block the events after it.
            let found = event.flaw().or(found);
            if let Some(found) = &found {
                tracing::warn!(
                    name: "lineage_withheld", target: "hapax::pipeline", entry = moment.mark.entry,
                    found, "a guard keeps an event of lineage back"
                );
            }
            match found.is_none() && routed(routes, EVENT, &event.dataset).is_some() {
                true => {
                    let batch = batches.entry(moment.run.namespace).or_default();
                    batch.push((event, moment.run.about));
                }
                false => status.withheld += 1,
            }
        }
        for (namespace, batch) in batches {
            let (events, about): (Vec<Event>, Vec<OperationNote>) = batch.into_iter().unzip();
            status.emitted += events.len();
            let key = Key::derive("lineage.events.v1", &[("from", &from.to_be_bytes())])?;
            let theirs = self.hapax.in_namespace(namespace);
            let effect = theirs.effect(key).label("lineage").safety(Safety::Transactional);
            let emission = effect.run(|claim| async move {
                for event in events {
                    claim.emit(event)?;
                }
                Ok::<_, Failure>(())
            });
            let before = emission.await?.how == How::Replayed;
            if let Some((meters, environment)) = self.counted.as_ref().filter(|_| before) {
                for about in &about {
                    meters.add(Meter::LineageRewrites, &Labels::of(about, environment), 1);
                }
            }
        }
        Ok(status)
    }

    /// Moves the cursor, unless another projector did. Returns its position.
    async fn advance(&self, from: u64, to: u64) -> Result<u64, Error> {
        let why = "lineage emitted up to this leaf";
        Ok(self.hapax.epochs().advance(&self.domain, (from, to), "hapax", why).await?.epoch)
    }
}

/// The most entries of an effect's history that are read.
const HISTORY: usize = 10_000;

/// The change that an outbox record carries, if it is a lineage event.
pub fn moment(record: &Record) -> Option<Moment> {
    let ours = record.event.name == EVENT;
    let payload = ours.then(|| Json::parse(record.event.payload.as_str().as_bytes()))?;
    Moment::read(&payload.ok()?)
}

/// The lineage event of a change.
pub(crate) fn lineage_event(moment: &Moment) -> Result<Event, Error> {
    let invalid = |error: hapax::json::JsonError| Error::Invalid(error.to_string());
    let payload = Payload::of(&moment.document()).map_err(invalid)?;
    let operation = &moment.run.about.operation;
    Ok(Event {
        pipeline: Some(operation.pipeline_id.clone()),
        version: Some(operation.version.clone()),
        ..Event::new(EVENT, &operation.dataset_id, payload)
    })
}
