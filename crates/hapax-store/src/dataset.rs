//! Dataset declarations, and how they apply to events.

use std::collections::{BTreeMap, BTreeSet};

use hapax_core::dataset::{Dataset, Registry};
use hapax_core::guard::Guards;
use hapax_core::outbox::Event;

use crate::command::Declare;
use crate::error::StoreError;
use crate::limits::Limits;
use crate::outbox::Emission;
use crate::txn::Txn;

/// The reads of guards and dataset declarations.
pub trait DatasetView {
    /// The enabled guards, and the declarations of these datasets.
    fn registry(&mut self, datasets: &BTreeSet<&str>) -> Result<Registry, StoreError>;

    /// All dataset declarations, by name.
    fn datasets(&mut self) -> Result<BTreeMap<String, Dataset>, StoreError>;
}

/// The writes of guards and dataset declarations.
pub trait DatasetTxn {
    /// Sets the enabled guards.
    fn put_guards(&mut self, guards: Guards) -> Result<(), StoreError>;

    /// Declares one dataset, or removes its declaration. Returns whether it was declared before.
    fn put_dataset(&mut self, name: &str, dataset: Option<&Dataset>) -> Result<bool, StoreError>;
}

/// The datasets that events are about.
pub fn of(emissions: &[Emission]) -> BTreeSet<&str> {
    emissions.iter().map(|emission| emission.event.dataset.as_str()).collect()
}

/// The events as they are recorded, ordered as their datasets declare. Refuses an event that a
/// guard objects to, and names each place.
pub fn admitted(registry: &Registry, emissions: &[Emission]) -> Result<Vec<Emission>, StoreError> {
    let admit = |emission: &Emission| {
        let Emission { ordinal, event } = emission;
        if let Some(found) = objection(registry, event) {
            return Err(StoreError::Guarded { event: event.name.clone(), found });
        }
        let event = Event { order: registry.order(event), ..event.clone() };
        Ok(Emission { ordinal: *ordinal, event })
    };
    emissions.iter().map(admit).collect()
}

/// The guards' objections to an event, each with its place, at most ten. None if the event passes.
pub(crate) fn objection(registry: &Registry, event: &Event) -> Option<String> {
    let found = registry.inspect(event);
    let all: Vec<String> = found.iter().take(10).map(ToString::to_string).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// Replaces the guards, and the declaration of each dataset that is given.
pub(crate) fn register(txn: &mut dyn Txn, registry: &Registry) -> Result<(), StoreError> {
    if registry.datasets.len() > Limits::DATASETS {
        return Err(StoreError::Invalid(format!("at most {} datasets", Limits::DATASETS)));
    }
    for (name, dataset) in &registry.datasets {
        check(name, dataset)?;
    }
    txn.put_guards(registry.guards)?;
    for (name, dataset) in &registry.datasets {
        txn.put_dataset(name, Some(dataset))?;
    }
    Ok(())
}

/// Declares one dataset, or removes its declaration. Returns whether it was declared before.
pub(crate) fn declare(txn: &mut dyn Txn, command: &Declare) -> Result<bool, StoreError> {
    let Declare { name, dataset } = command;
    if let Some(dataset) = dataset {
        check(name, dataset)?;
        if txn.datasets()?.len() >= Limits::DATASETS {
            return Err(StoreError::Invalid(format!("at most {} datasets", Limits::DATASETS)));
        }
    }
    txn.put_dataset(name, dataset.as_ref())
}

fn check(name: &str, dataset: &Dataset) -> Result<(), StoreError> {
    if name.is_empty() || name.len() > Event::LONGEST_FIELD {
        let most = Event::LONGEST_FIELD;
        return Err(StoreError::Invalid(format!("a dataset's name has 1 to {most} bytes")));
    }
    let flaw = dataset.flaw().or_else(|| {
        // A declaration that cannot be read back would fail each later read of the dataset.
        Dataset::parse(&dataset.text()).err().map(|error| format!("it cannot be kept: {error}"))
    });
    match flaw {
        Some(flaw) => Err(StoreError::Invalid(format!("dataset {name}: {flaw}"))),
        None => Ok(()),
    }
}
