//! A cache of the declarations of datasets.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hapax::json::Json;
use hapax::{Dataset, Hapax};
use tokio::time::Instant;

use crate::contract::Contract;
use crate::error::Error;

/// The declaration of a dataset, with its contracts compiled.
pub(crate) struct Declared {
    pub(crate) dataset: Dataset,
    pub(crate) inputs: Option<Contract>,
    pub(crate) outputs: Option<Contract>,
    /// Whether every dataset has to be declared, and this one is not.
    pub(crate) missing: bool,
}

/// A cached declaration.
struct Known {
    read: Instant,
    /// Whether a caller has used it since.
    used: bool,
    declared: Arc<Declared>,
}

/// How long a cached declaration is valid.
const FRESH: Duration = Duration::from_secs(1);

/// How many declarations the cache may hold before it is emptied.
const KEPT: usize = 10_000;

impl Declared {
    fn read(name: &str, dataset: Option<&Dataset>, registered: bool) -> Result<Self, Error> {
        let missing = registered && dataset.is_none();
        let dataset = dataset.cloned().unwrap_or_default();
        let compiled = |text: &Option<String>| -> Result<Option<Contract>, Error> {
            let Some(text) = text else { return Ok(None) };
            let schema = Json::parse(text.as_bytes()).map_err(|error| error.to_string());
            let contract = schema.and_then(|s| Contract::new(&s).map_err(|e| e.to_string()));
            contract
                .map(Some)
                .map_err(|why| Error::Invalid(format!("the contract of {name}: {why}")))
        };
        let (inputs, outputs) =
            (compiled(&dataset.input_contract)?, compiled(&dataset.output_contract)?);
        Ok(Self { dataset, inputs, outputs, missing })
    }

    /// Whether this still matches the declaration that was read.
    fn is_still(&self, dataset: Option<&Dataset>, registered: bool) -> bool {
        let same = match dataset {
            Some(dataset) => self.dataset == *dataset,
            None => self.dataset == Dataset::default(),
        };
        same && self.missing == (registered && dataset.is_none())
    }
}

/// The cache of declarations.
#[derive(Default)]
pub(crate) struct Declarations {
    known: Mutex<HashMap<String, Known>>,
    /// Whether there is any declaration, and when that was read.
    any: Mutex<Option<(Instant, bool)>>,
    /// Held by the caller that reads the store.
    reading: tokio::sync::Mutex<()>,
}

impl Declarations {
    /// The declaration of a dataset. A change by another process is seen here within a second.
    pub(crate) async fn of(&self, hapax: &Hapax, name: &str) -> Result<Arc<Declared>, Error> {
        if let Some(declared) = self.fresh(name) {
            return Ok(declared);
        }
        let _one_reads_for_all = self.reading.lock().await;
        if let Some(declared) = self.fresh(name) {
            return Ok(declared);
        }
        // Expired declarations that callers used are read in the same query, because they will be
        // used again.
        let due = self.due();
        let names = due.keys().map(String::as_str).chain([name]);
        let (read, registry) = (Instant::now(), hapax.datasets().registry_of(names).await?);
        let registered = registry.guards.registered;
        let mut known = self.known();
        for (name, declared) in due {
            if declared.is_still(registry.datasets.get(&name), registered) {
                known.insert(name, Known { read, used: false, declared });
            }
        }
        if let Some(found) = known.get(name) {
            return Ok(found.declared.clone());
        }
        let declared = Declared::read(name, registry.datasets.get(name), registered)?;
        let declared = Arc::new(declared);
        let found = Known { read, used: false, declared: declared.clone() };
        known.insert(name.to_owned(), found);
        Ok(declared)
    }

    /// Whether any dataset is declared. A change is seen here within a second.
    pub(crate) async fn any(&self, hapax: &Hapax) -> Result<bool, Error> {
        let known = *self.any.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, any)) = known.filter(|(read, _)| read.elapsed() < FRESH) {
            return Ok(any);
        }
        let (read, any) = (Instant::now(), !hapax.datasets().list().await?.is_empty());
        *self.any.lock().unwrap_or_else(PoisonError::into_inner) = Some((read, any));
        Ok(any)
    }

    fn fresh(&self, name: &str) -> Option<Arc<Declared>> {
        let mut known = self.known();
        let found = known.get_mut(name)?;
        found.used = true;
        (found.read.elapsed() < FRESH).then(|| found.declared.clone())
    }

    /// Removes expired declarations, and returns those that callers have used.
    fn due(&self) -> HashMap<String, Arc<Declared>> {
        let mut known = self.known();
        if known.len() >= KEPT {
            known.clear();
        }
        let due = known.extract_if(|_, found| found.read.elapsed() >= FRESH);
        let due = due.filter(|(_, found)| found.used);
        due.map(|(name, found)| (name, found.declared)).collect()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
