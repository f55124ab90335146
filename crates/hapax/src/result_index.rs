//! Results that may be forgotten, and the ontologies they are made from.

pub use hapax_core::result_index::{
    AccessKind, CacheAccess, CacheStats, Evict, IndexEntry, IndexedResult, Ontology, ResultFilter,
};
pub use hapax_store::ontology::CHANGED;
use hapax_store::{command, read};

use crate::engine::Hapax;
use crate::error::Error;

/// How many results are evicted in one transaction.
const AT_ONCE: usize = 1_024;

/// The state of this process's cache. It changes as soon as something happens that every process must act upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp(u64);

/// The results of one namespace that may be forgotten, and the ontologies they are made from. Made
/// by [`Hapax::results`].
#[derive(Clone, Copy)]
pub struct Results<'a> {
    hapax: &'a Hapax,
}

impl Hapax {
    /// The result index of this namespace, and its ontologies.
    pub fn results(&self) -> Results<'_> {
        Results { hapax: self }
    }
}

impl Results<'_> {
    /// The present stamp; `None` while this process may have missed a change. Data that was read
    /// after a stamp was taken is valid while the stamp is the same.
    pub fn stamp(self) -> Option<Stamp> {
        self.hapax.inner.cache.stamp().map(Stamp)
    }

    /// Takes a lease, so that this process learns of changes and has a [`stamp`](Self::stamp).
    pub async fn listen(self) -> Result<(), Error> {
        self.hapax.inner.holder.lease().await?;
        Ok(())
    }

    /// Stores an ontology in place of the earlier one, or removes it. Returns the earlier version,
    /// once every live process on the ledger has seen the change, or has lapsed.
    pub async fn keep_ontology(
        self,
        id: &str,
        ontology: Option<Ontology>,
        actor: &str,
    ) -> Result<Option<String>, Error> {
        let (namespace, id, actor) =
            (self.hapax.namespace.clone(), id.to_owned(), actor.to_owned());
        let changes = ontology.as_ref().map(|ontology| ontology.version.clone());
        let before =
            self.hapax.call(command::PutOntology { namespace, id, ontology, actor }).await?;
        if before != changes {
            self.hapax.inner.emitted.notify_one();
            self.hapax.inner.cache.clear();
        }
        // Also if nothing has changed: an earlier call, whose answer was lost, may have changed it.
        self.hapax.seen_by_all().await?;
        Ok(before)
    }

    /// An ontology.
    pub async fn ontology(self, id: &str) -> Result<Option<Ontology>, Error> {
        let (namespace, id) = (self.hapax.namespace.clone(), id.to_owned());
        Ok(read(&*self.hapax.inner.store, move |view| view.ontology(&namespace, &id)).await?)
    }

    /// The version of an ontology.
    pub async fn ontology_version(self, id: &str) -> Result<Option<String>, Error> {
        let (namespace, id) = (self.hapax.namespace.clone(), id.to_owned());
        Ok(read(&*self.hapax.inner.store, move |view| view.ontology_version(&namespace, &id))
            .await?)
    }

    /// All ontologies of this namespace, without their content, by id.
    pub async fn ontologies(self) -> Result<Vec<Ontology>, Error> {
        let namespace = self.hapax.namespace.clone();
        Ok(read(&*self.hapax.inner.store, move |view| view.ontologies(&namespace)).await?)
    }

    /// Results that callers asked for, the most recently used first.
    pub async fn search(self, filter: ResultFilter) -> Result<Vec<IndexedResult>, Error> {
        let namespace = self.hapax.namespace.clone();
        Ok(read(&*self.hapax.inner.store, move |view| view.indexed_results(&namespace, &filter))
            .await?)
    }

    /// The size of the result index.
    pub async fn stats(self) -> Result<CacheStats, Error> {
        let namespace = self.hapax.namespace.clone();
        Ok(read(&*self.hapax.inner.store, move |view| view.cache_stats(&namespace)).await?)
    }

    /// Records how requests used the results. At most 4,096 at once.
    pub async fn record_accesses(self, accesses: Vec<CacheAccess>) -> Result<(), Error> {
        self.hapax.call(command::RecordAccesses(accesses)).await
    }

    /// Removes results, and returns how many. Unless the oldest results make room, they are gone
    /// from the cache of every live process too when this returns.
    pub async fn evict(self, which: Evict, most: usize) -> Result<usize, Error> {
        let mut evicted = 0;
        while evicted < most {
            let limit = (most - evicted).min(AT_ONCE);
            let (namespace, which) = (self.hapax.namespace.clone(), which.clone());
            let more = self.hapax.call(command::Evict { namespace, which, limit }).await?;
            evicted += more;
            if more == 0 {
                break;
            }
        }
        if which != Evict::Oldest {
            self.hapax.inner.cache.clear();
            self.hapax.seen_by_all().await?;
        }
        Ok(evicted)
    }
}
