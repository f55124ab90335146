//! What is declared of datasets, and what that means for their events.

use std::collections::BTreeSet;

use hapax_core::dataset::{Dataset, Registry};
use hapax_core::outbox::Event;

use crate::command::{Answer, Limits};
use crate::error::StoreError;
use crate::outbox::Emission;
use crate::txn::Txn;

/// The datasets that events are about.
pub fn of(emissions: &[Emission]) -> BTreeSet<&str> {
    emissions.iter().map(|emission| emission.event.dataset.as_str()).collect()
}

/// The events as they are recorded: ordered as their dataset says. Refuses what must not leave,
/// and says where it is.
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

/// What guards have against an event, and where.
pub(crate) fn objection(registry: &Registry, event: &Event) -> Option<String> {
    let found = registry.inspect(event);
    let all: Vec<String> = found.iter().take(10).map(ToString::to_string).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// Declares guards, and datasets, each in place of what was declared of it before.
pub(crate) fn register(txn: &mut dyn Txn, registry: &Registry) -> Result<Answer, StoreError> {
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
    Ok(Answer::Count(registry.datasets.len()))
}

/// Declares one dataset, or that it is no longer declared. Counts what was declared of it before.
pub(crate) fn declare(
    txn: &mut dyn Txn,
    name: &str,
    dataset: Option<&Dataset>,
) -> Result<Answer, StoreError> {
    if let Some(dataset) = dataset {
        check(name, dataset)?;
        if txn.datasets()?.len() >= Limits::DATASETS {
            return Err(StoreError::Invalid(format!("at most {} datasets", Limits::DATASETS)));
        }
    }
    txn.put_dataset(name, dataset).map(|known| Answer::Count(usize::from(known)))
}

fn check(name: &str, dataset: &Dataset) -> Result<(), StoreError> {
    if name.is_empty() || name.len() > Event::LONGEST_FIELD {
        let most = Event::LONGEST_FIELD;
        return Err(StoreError::Invalid(format!("a dataset's name has 1 to {most} bytes")));
    }
    let flaw = dataset.flaw().or_else(|| {
        // What cannot be read back would stand in the way of everything that asks for it.
        Dataset::parse(&dataset.text()).err().map(|error| format!("it cannot be kept: {error}"))
    });
    match flaw {
        Some(flaw) => Err(StoreError::Invalid(format!("dataset {name}: {flaw}"))),
        None => Ok(()),
    }
}
