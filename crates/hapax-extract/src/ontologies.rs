//! A cache of the ledger's ontologies in this process.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use hapax::result_index::Stamp;
use hapax::{Hapax, Namespace};

use crate::error::Error;
use crate::ontology::Ontology;
use crate::scope::PropertyScope;

/// How many ontologies are cached. When there are more, the cache is cleared.
const MOST: usize = 256;

/// A parsed ontology.
#[derive(Debug)]
pub struct Known {
    /// The ontology that extractors read.
    pub ontology: Arc<Ontology>,
    /// Its hash.
    pub version: String,
    /// Decides which of its properties can hold between which classes.
    pub(crate) scope: PropertyScope,
}

/// The cached ontologies. An entry counts while the stamp of the ledger is the one it was read
/// under.
#[derive(Default)]
pub(crate) struct Ontologies(RwLock<HashMap<Namespace, ById>>);

type ById = HashMap<String, (Stamp, Arc<Known>)>;

impl Ontologies {
    /// The ontology as it is now.
    pub(crate) async fn get(&self, hapax: &Hapax, id: &str) -> Result<Arc<Known>, Error> {
        if hapax.results().stamp().is_none() {
            hapax.results().listen().await?;
        }
        match (hapax.results().stamp(), self.remembered(hapax.namespace(), id)) {
            (Some(stamp), Some((at, known))) if at == stamp => Ok(known),
            _ => self.read(hapax, id).await,
        }
    }

    /// Reads the ontology's version from the store, and its content too if the cached version is
    /// another.
    async fn read(&self, hapax: &Hapax, id: &str) -> Result<Arc<Known>, Error> {
        let (stamp, before) = (hapax.results().stamp(), self.remembered(hapax.namespace(), id));
        let unknown = || Error::UnknownOntology(id.to_owned());
        let version = hapax.results().ontology_version(id).await?.ok_or_else(unknown)?;
        let known = match before {
            Some((_, known)) if known.version == version => known,
            _ => {
                let kept = hapax.results().ontology(id).await?.ok_or_else(unknown)?;
                let ontology = Arc::new(Ontology::parse_json(kept.content.as_bytes())?);
                let scope = PropertyScope::new(&ontology);
                Arc::new(Known { ontology, version: kept.version, scope })
            }
        };
        if let Some(stamp) = stamp {
            self.remember(hapax.namespace(), id, stamp, known.clone());
        }
        Ok(known)
    }

    /// Whether an ontology is still the one that was read, as far as this process has to know.
    pub(crate) async fn is_current(&self, hapax: &Hapax, known: &Known) -> Result<bool, Error> {
        same(known, self.get(hapax, &known.ontology.id).await)
    }

    /// The same, read from the store: the store may refuse a result before this process has seen
    /// the change.
    pub(crate) async fn is_stored(&self, hapax: &Hapax, known: &Known) -> Result<bool, Error> {
        same(known, self.read(hapax, &known.ontology.id).await)
    }

    fn remembered(&self, namespace: &Namespace, id: &str) -> Option<(Stamp, Arc<Known>)> {
        let all = self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        all.get(namespace)?.get(id).cloned()
    }

    fn remember(&self, namespace: &Namespace, id: &str, stamp: Stamp, known: Arc<Known>) {
        let mut all = self.0.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        if all.values().map(HashMap::len).sum::<usize>() >= MOST {
            all.clear();
        }
        all.entry(namespace.clone()).or_default().insert(id.to_owned(), (stamp, known));
    }
}

fn same(known: &Known, now: Result<Arc<Known>, Error>) -> Result<bool, Error> {
    match now {
        Ok(now) => Ok(now.version == known.version),
        Err(Error::UnknownOntology(_)) => Ok(false),
        Err(error) => Err(error),
    }
}
