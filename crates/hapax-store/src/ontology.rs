//! Ontologies at the seam. A change of one is recorded, and every node must act upon it.

use hapax_core::attempt::Fence;
use hapax_core::fingerprint::Fingerprint;
use hapax_core::json::Json;
use hapax_core::key::Key;
use hapax_core::name::{Name, Namespace};
use hapax_core::outbox::{Event, Payload};
use hapax_core::outcome::Outcome;
use hapax_core::result_index::{IndexEntry, Ontology};
use hapax_core::time::Now;

use crate::command::PutOntology;
use crate::effect::{self, EntryNote, LedgerEffect};
use crate::error::StoreError;
use crate::limits::{Limits, check_length};
use crate::txn::Txn;

/// The reads of ontologies.
pub trait OntologyView {
    /// An ontology.
    fn ontology(&mut self, namespace: &Namespace, id: &str)
    -> Result<Option<Ontology>, StoreError>;

    /// Its version alone. In a transaction the version stays the same until that ends.
    fn ontology_version(
        &mut self,
        namespace: &Namespace,
        id: &str,
    ) -> Result<Option<String>, StoreError>;

    /// All ontologies by id, without their content.
    fn ontologies(&mut self, namespace: &Namespace) -> Result<Vec<Ontology>, StoreError>;
}

/// The writes of ontologies.
pub trait OntologyTxn {
    /// The version of an ontology that is about to change. No other writer changes it meanwhile.
    fn hold_ontology(
        &mut self,
        namespace: &Namespace,
        id: &str,
    ) -> Result<Option<String>, StoreError>;

    /// Replaces an ontology, or removes it.
    fn put_ontology(
        &mut self,
        namespace: &Namespace,
        id: &str,
        ontology: Option<&Ontology>,
    ) -> Result<(), StoreError>;
}

/// Replaces an ontology, or removes it. If its version changes, an event is recorded, and a notice
/// is raised that every node must act upon. Returns the version before.
pub(crate) fn put(txn: &mut dyn Txn, command: &PutOntology) -> Result<Option<String>, StoreError> {
    let PutOntology { namespace, id, ontology, actor } = command;
    check(id, ontology.as_ref())?;
    check_length("the actor", actor)?;
    let before = txn.hold_ontology(namespace, id)?;
    let after = ontology.as_ref().map(|ontology| ontology.version.clone());
    if before.is_none() && after.is_some() && txn.ontologies(namespace)?.len() >= Limits::ONTOLOGIES
    {
        let most = Limits::ONTOLOGIES;
        return Err(StoreError::Invalid(format!("there are {most} ontologies; remove some")));
    }
    let now = txn.now();
    let ontology = ontology.clone().map(|ontology| Ontology { updated: now.wall, ..ontology });
    txn.put_ontology(namespace, id, ontology.as_ref())?;
    if before != after {
        record_change(txn, now, namespace, id, (before.as_deref(), after.as_deref()), actor)?;
        txn.raise_notice()?;
    }
    Ok(before)
}

fn check(id: &str, ontology: Option<&Ontology>) -> Result<(), StoreError> {
    let refuse = |what: String| Err(StoreError::Invalid(what));
    if id.is_empty() || id.len() > Limits::ONTOLOGY_ID {
        return refuse(format!("an ontology's id has 1 to {} bytes", Limits::ONTOLOGY_ID));
    }
    let Some(ontology) = ontology else { return Ok(()) };
    let size = ontology.content.len() + ontology.metadata.len();
    if size > Limits::ONTOLOGY {
        return refuse(format!("an ontology of {size} bytes; at most {}", Limits::ONTOLOGY));
    }
    check_length("the version", &ontology.version)
}

/// Refuses a result whose ontology has changed since.
pub(crate) fn check_version(
    txn: &mut dyn Txn,
    namespace: &Namespace,
    entry: &IndexEntry,
) -> Result<(), StoreError> {
    match txn.ontology_version(namespace, &entry.ontology)? {
        Some(version) if version == entry.version => Ok(()),
        _ => Err(StoreError::Superseded(entry.ontology.clone())),
    }
}

/// Records a change of an ontology as an effect of its own, with an event for followers.
fn record_change(
    txn: &mut dyn Txn,
    now: Now,
    namespace: &Namespace,
    id: &str,
    (before, after): (Option<&str>, Option<&str>),
    actor: &str,
) -> Result<(), StoreError> {
    let fence = Fence(txn.next_entry()?);
    let digest = Fingerprint::of_parts(&[id.as_bytes(), &fence.0.to_be_bytes()]);
    let what = format!("{id}: {} → {}", before.unwrap_or("none"), after.unwrap_or("none"));
    let done = LedgerEffect {
        name: Name { namespace: namespace.clone(), key: Key::from_bytes(*digest.as_bytes()) },
        fingerprint: digest,
        label: CHANGED.into(),
        outcome: Outcome::from(after.unwrap_or_default()),
        event: Some(change(now, id, before, after)?),
        note: EntryNote::by(actor, &what),
    };
    effect::record_ledger_effect(txn, now, fence, done)
}

/// The name of the event that announces a change.
pub const CHANGED: &str = "ontology-updated";

fn change(
    now: Now,
    id: &str,
    before: Option<&str>,
    after: Option<&str>,
) -> Result<Event, StoreError> {
    let version = |version: Option<&str>| version.map_or(Json::Null, Json::text);
    let payload = Json::object([
        ("newVersion", version(after)),
        ("oldVersion", version(before)),
        ("ontologyId", Json::text(id)),
        ("timestamp", Json::number(now.wall.0.max(0) as u64)),
    ]);
    let payload = Payload::of(&payload).map_err(|error| StoreError::Invalid(error.to_string()))?;
    Ok(Event::new(CHANGED, "ontologies", payload))
}
