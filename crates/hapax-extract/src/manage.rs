//! Manages ontologies and recorded results: storing, explaining, counting, removing.

use hapax::key::extraction::Extraction;
use hapax::result_index::{self, CacheStats, Evict, IndexedResult, ResultFilter};
use hapax::{Key, State, StateName, Timestamp};

use crate::error::Error;
use crate::extractor::Bill;
use crate::identity::Identity;
use crate::ontology::Ontology;
use crate::service::{Extract, ExtractionRequest};
use crate::shadow::Differences;

/// The result of replacing or removing an ontology.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionChange {
    /// Its IRI.
    pub id: String,
    /// The version before; none if there was none.
    pub before: Option<String>,
    /// The version now; none if it was removed.
    pub now: Option<String>,
    /// How many results were removed because of that.
    pub invalidated: usize,
}

/// An ontology in a list of ontologies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OntologyEntry {
    /// Its IRI.
    pub id: String,
    /// The hash of its content.
    pub version: String,
    /// Its description for people, as JSON: `label`, `declaredVersion`, `earlierVersions`, and the
    /// number of its classes, properties and individuals.
    pub metadata: String,
    /// When it was stored.
    pub updated: Timestamp,
}

/// Why a request finds a result, or does not.
#[derive(Debug, Clone)]
pub struct LookupExplanation {
    /// The identity of the request.
    pub identity: Identity,
    /// The version of the ontology.
    pub version: String,
    /// Whether there is a result.
    pub found: bool,
    /// The result that comes nearest, where the request has none.
    pub nearest: Option<NearestResult>,
}

/// The result nearest to a request. It may be one that was removed when its ontology changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NearestResult {
    /// Its key.
    pub key: Key,
    /// The parts of the key that differ: `text`, `ontologyId`, `ontologyVersion`,
    /// `extractionParams`; or `extractor` where the key is the same, and the extractor or a default
    /// is not.
    pub differs: Vec<&'static str>,
    /// When it was last used.
    pub used: Timestamp,
}

/// The size of the cache, and how often it was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// The results in the store.
    pub results: CacheStats,
    /// The size limit, in bytes.
    pub max_bytes: u64,
    /// Requests of this process that found a recorded result.
    pub hits: u64,
    /// Requests that waited for an identical one.
    pub shared: u64,
    /// Requests that were executed.
    pub executed: u64,
    /// Requests that failed.
    pub failed: u64,
    /// The extractor's cost in this process.
    pub bill: Bill,
    /// Where another cache's keys differ from ours.
    pub shadow: Differences,
}

/// The most results that one call removes.
const MOST: usize = 10_000_000;

/// How many results are compared to find the nearest.
const COMPARED: usize = 100;

/// How many earlier versions of an ontology are listed in its metadata.
const EARLIER: usize = 4;

/// How many of the newest journal entries are searched for a superseded result.
const SEARCHED: u64 = 200_000;

impl Extract {
    /// Stores an ontology in place of the one before. When this returns, no process on the ledger
    /// answers from the one before any more. `declared` is a version that people gave it.
    pub async fn put_ontology(
        &self,
        ontology: &Ontology,
        declared: Option<&str>,
        actor: &str,
    ) -> Result<VersionChange, Error> {
        let version = ontology.version();
        let metadata = serde_json::json!({
            "label": ontology.label,
            "declaredVersion": declared,
            "earlierVersions": self.earlier_than(&version, &ontology.id).await?,
            "classes": ontology.classes.len(),
            "properties": ontology.properties.len(),
            "individuals": ontology.individuals.len(),
        });
        let kept = result_index::Ontology {
            id: ontology.id.clone(),
            version,
            content: ontology.to_json(),
            metadata: metadata.to_string(),
            updated: Timestamp(0),
        };
        let which = Evict::Outdated { ontology: ontology.id.clone() };
        self.change(&ontology.id, Some(kept), which, actor).await
    }

    /// The versions that an ontology had before this one, the newest first.
    async fn earlier_than(&self, version: &str, id: &str) -> Result<Vec<String>, Error> {
        let Some(kept) = self.hapax.results().ontology(id).await? else { return Ok(Vec::new()) };
        let mut versions = earlier(&kept.metadata);
        versions.insert(0, kept.version);
        versions.retain(|earlier| earlier != version);
        versions.truncate(EARLIER);
        Ok(versions)
    }

    /// Removes an ontology and all results that were made from it.
    pub async fn remove_ontology(&self, id: &str, actor: &str) -> Result<VersionChange, Error> {
        let which = Evict::Of { ontology: id.to_owned() };
        let changed = self.change(id, None, which, actor).await?;
        match changed.before {
            Some(_) => Ok(changed),
            None => Err(Error::UnknownOntology(id.to_owned())),
        }
    }

    async fn change(
        &self,
        id: &str,
        kept: Option<result_index::Ontology>,
        which: Evict,
        actor: &str,
    ) -> Result<VersionChange, Error> {
        let hapax = &self.hapax;
        let now = kept.as_ref().map(|kept| kept.version.clone());
        let before = hapax.results().keep_ontology(id, kept, actor).await?;
        // Evicts also if nothing has changed: the process that changed it may have stopped before
        // this line.
        let invalidated = hapax.results().evict(which, MOST).await?;
        if before.is_some() && before != now {
            self.shared.meters.invalidations.inc_by(invalidated as u64);
            tracing::warn!(name: "ontology_cache_invalidation", ontology_id = id, old_version = before, new_version = now, entries_invalidated = invalidated, "the ontology changed; its results are gone");
        }
        Ok(VersionChange { id: id.to_owned(), before, now, invalidated })
    }

    /// All ontologies, by id.
    pub async fn ontologies(&self) -> Result<Vec<OntologyEntry>, Error> {
        let all = self.hapax.results().ontologies().await?;
        Ok(all.into_iter().map(listed).collect())
    }

    /// One ontology.
    pub async fn ontology(&self, id: &str) -> Result<(Ontology, OntologyEntry), Error> {
        let kept = self.hapax.results().ontology(id).await?;
        let kept = kept.ok_or_else(|| Error::UnknownOntology(id.to_owned()))?;
        Ok((Ontology::parse_json(kept.content.as_bytes())?, listed(kept)))
    }

    /// Why a request finds a result, or does not.
    pub async fn explain(&self, request: &ExtractionRequest) -> Result<LookupExplanation, Error> {
        let (identity, known) = self.identify(request).await?;
        let hapax = &self.hapax;
        let version = known.version.clone();
        let (now, mut collides) = (hapax.maintenance().wall().await?, false);
        for key in [identity.components.key, identity.second_key()?] {
            let effect = hapax.effects().show(key).await?;
            let done = effect.filter(|effect| {
                let fresh = effect.expires().is_none_or(|expires| expires > now);
                fresh && matches!(effect.state, State::Succeeded(_))
            });
            match done {
                Some(effect) if effect.fingerprint == identity.fingerprint => {
                    return Ok(LookupExplanation { identity, version, found: true, nearest: None });
                }
                other => collides |= other.is_some(),
            }
        }
        let components = &identity.components;
        let by_text = ResultFilter {
            text_hash: Some(components.text_hash.clone()),
            limit: COMPARED,
            ..ResultFilter::default()
        };
        let mut results = hapax.results().search(by_text).await?;
        if results.is_empty() {
            let ontology = Some(request.ontology_id.clone());
            results = hapax
                .results()
                .search(ResultFilter { ontology, limit: COMPARED, ..ResultFilter::default() })
                .await?;
        }
        let compared = results.iter().map(|result| {
            let mut differs = differences(result, &identity, &request.ontology_id, &version);
            if collides && result.key == components.key {
                differs = vec!["extractor"];
            }
            NearestResult { key: result.key, differs, used: result.used }
        });
        let other_key = |nearest: &NearestResult| nearest.key != components.key;
        let nearest = compared.min_by_key(|nearest| (other_key(nearest), nearest.differs.len()));
        let nearest = match nearest {
            Some(nearest) if !other_key(&nearest) => Some(nearest),
            other => self.superseded(request).await?.or(other),
        };
        Ok(LookupExplanation { identity, version, found: false, nearest })
    }

    /// The result that this request had under an earlier version of its ontology.
    async fn superseded(
        &self,
        request: &ExtractionRequest,
    ) -> Result<Option<NearestResult>, Error> {
        let ExtractionRequest { text, ontology_id, params, .. } = request;
        let Some(kept) = self.hapax.results().ontology(ontology_id).await? else { return Ok(None) };
        let after = self.hapax.journal().last_entry().await?.saturating_sub(SEARCHED);
        for ontology_version in &earlier(&kept.metadata) {
            let key = Extraction { text, ontology_id, ontology_version, params }.derive()?.key;
            let entries = self.hapax.journal().history_after(key, after, COMPARED).await?;
            let mut entries = entries.iter().rev();
            if let Some(entry) = entries.find(|entry| entry.state == StateName::Succeeded) {
                let differs = vec!["ontologyVersion"];
                return Ok(Some(NearestResult { key, differs, used: entry.at }));
            }
        }
        Ok(None)
    }

    /// The size of the cache, and how often this process used it.
    pub async fn stats(&self) -> Result<Stats, Error> {
        let meters = &self.shared.meters;
        let results = self.hapax.results().stats().await?;
        meters.results.set(results.whole as i64);
        Ok(Stats {
            results,
            max_bytes: self.shared.settings.max_cache_bytes,
            hits: meters.requests("hit"),
            shared: meters.requests("shared"),
            executed: meters.requests("executed"),
            failed: meters.requests("failed"),
            bill: self.shared.bill(),
            shadow: self.shared.shadow.differences(),
        })
    }

    /// Removes one result, and returns whether it was there.
    pub async fn invalidate(&self, key: Key) -> Result<bool, Error> {
        Ok(self.remove(Evict::One(key)).await? > 0)
    }

    /// Removes all results of an ontology, and returns how many.
    pub async fn invalidate_ontology(&self, id: &str) -> Result<usize, Error> {
        self.remove(Evict::Of { ontology: id.to_owned() }).await
    }

    /// Removes all results, and returns how many.
    pub async fn clear(&self) -> Result<usize, Error> {
        self.remove(Evict::All).await
    }

    async fn remove(&self, which: Evict) -> Result<usize, Error> {
        let removed = self.hapax.results().evict(which, MOST).await?;
        self.shared.meters.invalidations.inc_by(removed as u64);
        Ok(removed)
    }
}

/// The earlier versions that an ontology's metadata lists.
fn earlier(metadata: &str) -> Vec<String> {
    let metadata = serde_json::from_str::<serde_json::Value>(metadata).unwrap_or_default();
    serde_json::from_value(metadata["earlierVersions"].clone()).unwrap_or_default()
}

fn listed(kept: result_index::Ontology) -> OntologyEntry {
    let result_index::Ontology { id, version, metadata, updated, .. } = kept;
    OntologyEntry { id, version, metadata, updated }
}

fn differences(
    result: &IndexedResult,
    identity: &Identity,
    ontology: &str,
    version: &str,
) -> Vec<&'static str> {
    let there = &result.entry;
    let compared = [
        ("text", there.text_hash != identity.components.text_hash),
        ("ontologyId", there.ontology != ontology),
        ("ontologyVersion", there.version != version),
        ("extractionParams", there.params_hash != identity.components.params_hash),
    ];
    compared.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}
