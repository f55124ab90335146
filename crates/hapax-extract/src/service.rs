//! Requests for extraction: normalise the text, derive the key, look up, share a running
//! extraction, or extract and record.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hapax::json::Json;
use hapax::result_index::{AccessKind, CacheStats, Evict};
use hapax::{Done, Failure, Hapax, How, Key, Name, Safety, State, StoreError};
use hapax_core::outcome::{Cause, DEFAULT_KEEP_LIMIT, Outcome};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::attention::Attention;
use crate::error::Error;
use crate::extractor::{Bill, Extractor, ExtractorError};
use crate::graph::Graph;
use crate::identity::Identity;
use crate::meters::Meters;
use crate::ontologies::{Known, Ontologies};
use crate::ontology::limits;
use crate::params::Params;
use crate::result::{age_ms, body, noted_of};
use crate::shadow::Shadow;
use crate::workflow::{ExtractionUsage, Job, Progress, Read, panicked};

/// The settings of the service.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long results are kept; forever if none. Default 7 days.
    pub ttl: Option<Duration>,
    /// The size limit of a namespace's results, in bytes. Default 1 GiB.
    pub max_cache_bytes: u64,
    /// How long a request waits for an identical one. Default 10 minutes.
    pub wait: Duration,
    /// The longest text, in bytes. Default 16 MiB.
    pub max_text_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ttl: Some(Duration::from_secs(7 * 24 * 60 * 60)),
            max_cache_bytes: 1024 * 1024 * 1024,
            wait: Duration::from_secs(600),
            max_text_bytes: 16 * 1024 * 1024,
        }
    }
}

/// A request to extract from a text.
#[derive(Debug, Clone)]
pub struct ExtractionRequest {
    /// The text, as it was sent.
    pub text: String,
    /// The ontology's IRI.
    pub ontology_id: String,
    /// The parameters, as they were sent: a JSON object.
    pub params: Json,
    /// For tracing only.
    pub request_id: Option<String>,
    /// The key of another cache, to be compared with ours.
    pub shadow_key: Option<String>,
}

impl ExtractionRequest {
    /// A request with default parameters.
    pub fn new(text: impl Into<String>, ontology_id: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ontology_id: ontology_id.into(),
            params: Json::Object(Vec::new()),
            request_id: None,
            shadow_key: None,
        }
    }
}

/// A result.
#[derive(Debug, Clone)]
pub struct Extracted {
    /// Its identity.
    pub identity: Identity,
    /// The key it is recorded under: that of the identity, unless another request holds that.
    pub key: Key,
    /// The version of its ontology.
    pub version: String,
    /// Whether it was replayed, shared or executed.
    pub how: How,
    /// Parameters that are probably misspelt, and why the result is not recorded, if it is not.
    pub warnings: Vec<String>,
    done: Done,
}

impl Extracted {
    /// The result as JSON: `computedAt`, `entities`, `relations` and `metadata`, in this order.
    pub fn json(&self) -> &[u8] {
        self.done.body().unwrap_or(b"{}")
    }

    /// The result.
    pub fn graph(&self) -> Result<Graph, Error> {
        serde_json::from_slice(self.json()).map_err(|error| Error::Extractor {
            reason: format!("the result cannot be read: {error}"),
            after: None,
        })
    }

    /// Whether it was recorded before the request.
    pub fn is_hit(&self) -> bool {
        self.how == How::Replayed
    }
}

/// Extraction in a namespace of a ledger. Cheap to clone.
#[derive(Clone)]
pub struct Extract {
    pub(crate) hapax: Hapax,
    pub(crate) shared: Arc<Shared>,
}

/// The state that all namespaces share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) ontologies: Ontologies,
    pub(crate) meters: Arc<Meters>,
    pub(crate) shadow: Shadow,
    extractor: Arc<dyn Extractor>,
    /// The identity of the extractor.
    pub(crate) identity: String,
    attention: Attention,
    /// How many bytes this process recorded since the size was last measured.
    recorded: AtomicU64,
    room_made: Mutex<Option<Instant>>,
}

/// How often a request is tried while its ontology keeps changing.
const ANEW: usize = 8;

impl Extract {
    /// Extraction on this ledger with this extractor.
    pub fn new(hapax: Hapax, extractor: Arc<dyn Extractor>, settings: Settings) -> Self {
        let shared = Shared {
            identity: extractor.identity(),
            settings,
            ontologies: Ontologies::default(),
            meters: Arc::default(),
            shadow: Shadow::default(),
            extractor,
            attention: Attention::default(),
            recorded: AtomicU64::new(0),
            room_made: Mutex::default(),
        };
        Self { hapax, shared: Arc::new(shared) }
    }

    /// The same service in another namespace.
    pub fn on(&self, hapax: Hapax) -> Self {
        Self { hapax, shared: self.shared.clone() }
    }

    /// The metrics of this process.
    pub fn meters(&self) -> &Meters {
        self.shared.meters.charge(&self.shared.extractor.bill());
        &self.shared.meters
    }

    /// The identity of a request, and its ontology.
    pub async fn identify(
        &self,
        request: &ExtractionRequest,
    ) -> Result<(Identity, Arc<Known>), Error> {
        let identified = self.try_identify(request).await;
        identified.inspect_err(|error| self.count_key_error(error))
    }

    /// Counts a request that cannot be read at all, and so has no key.
    pub fn note_unreadable(&self) {
        self.shared.meters.key_errors.inc();
    }

    /// The key that the result of a request is recorded under: that of its identity, unless another
    /// request holds that.
    pub async fn key_of(&self, identity: &Identity) -> Result<Key, Error> {
        let first = identity.components.key;
        let Some(effect) = self.hapax.effects().show(first).await? else { return Ok(first) };
        let reset =
            matches!(&effect.state, State::Failed(failure) if failure.cause == Cause::Reset);
        if reset || effect.fingerprint == identity.fingerprint {
            return Ok(first);
        }
        let now = self.hapax.maintenance().wall().await?;
        match effect.expires().is_some_and(|expires| expires <= now) {
            true => Ok(first),
            false => Ok(identity.second_key()?),
        }
    }

    fn count_key_error(&self, error: &Error) {
        if error.is_without_key() {
            self.shared.meters.key_errors.inc();
        }
    }

    async fn try_identify(
        &self,
        request: &ExtractionRequest,
    ) -> Result<(Identity, Arc<Known>), Error> {
        let params = self.params(request)?;
        let known = self.shared.ontologies.get(&self.hapax, &request.ontology_id).await?;
        Ok((self.identity(request, &params, &known)?, known))
    }

    /// Extracts from a text, unless its result is recorded. An identical request in the meantime
    /// waits for this one.
    pub async fn extract(
        &self,
        request: &ExtractionRequest,
        progress: Option<mpsc::Sender<Progress>>,
    ) -> Result<Extracted, Error> {
        let began = Instant::now();
        let extracted = self.try_extract(request, progress, began).await;
        let meters = &self.shared.meters;
        if let Err(error) = &extracted {
            self.count_key_error(error);
            if matches!(error, Error::Ledger(_)) {
                meters.lookup_errors.inc();
            }
            meters.became("failed");
        }
        extracted
    }

    async fn try_extract(
        &self,
        request: &ExtractionRequest,
        progress: Option<mpsc::Sender<Progress>>,
        began: Instant,
    ) -> Result<Extracted, Error> {
        let shared = &self.shared;
        let params = self.params(request)?;
        let warnings = params.warnings();
        for warning in &warnings {
            tracing::warn!(name: "parameter_unknown", ontology_id = request.ontology_id, request_id = request.request_id, warning, "a parameter is probably misspelt");
        }
        for _ in 0..ANEW {
            let known = shared.ontologies.get(&self.hapax, &request.ontology_id).await?;
            let identity = self.identity(request, &params, &known)?;
            tracing::info!(name: "extraction_requested", idempotency_key = identity.components.short(), ontology_id = request.ontology_id, text_length = request.text.len(), params_hash = identity.components.params_hash, request_id = request.request_id, "extraction requested");
            let effect = self.hapax.effect(identity.components.key);
            if let Some(done) = effect.fingerprint(identity.fingerprint).remembered() {
                let key = identity.components.key;
                let extracted = self.report(request, identity, &known, (key, done), began);
                return Ok(Extracted { warnings, ..extracted });
            }
            let job = self.job(&identity, &params, &known, progress.clone());
            let settled = self.run(request, &identity, job).await;
            let done = match settled {
                Ok(done) if shared.ontologies.is_current(&self.hapax, &known).await? => done,
                Err(hapax::Error::Store(StoreError::Superseded(_))) => continue,
                Err(error) if shared.ontologies.is_stored(&self.hapax, &known).await? => {
                    if let Some(spent) = discarded(&error) {
                        let read = Read { spent, ..Read::default() };
                        let body = body(shared.made_by(), &params, &known, &read)
                            .map_err(|error| Error::Hopeless(error.to_string()))?;
                        let done = Done { outcome: Outcome::from(body), how: How::Executed };
                        let key = self.key_of(&identity).await?;
                        let discarded = spent.discarded;
                        tracing::warn!(name: "extraction_discarded", idempotency_key = identity.components.short(), ontology_id = request.ontology_id, request_id = request.request_id, discarded, "every entity was discarded, the result is not cached");
                        let things = if discarded == 1 { "entity" } else { "entities" };
                        let why = format!(
                            "the extractor found {discarded} {things}, and nothing that the text \
                             and the ontology have; all was discarded, and this result is not cached"
                        );
                        let warnings = warnings.into_iter().chain([why]).collect();
                        let extracted = self.report(request, identity, &known, (key, done), began);
                        return Ok(Extracted { warnings, ..extracted });
                    }
                    let error = caller_error(error);
                    tracing::warn!(name: "extraction_failed", idempotency_key = identity.components.short(), ontology_id = request.ontology_id, request_id = request.request_id, %error, "extraction failed");
                    return Err(error);
                }
                _ => continue,
            };
            if done.1.body().is_none() {
                return Err(Error::Hopeless("the result is too large to be kept".into()));
            }
            let extracted = self.report(request, identity, &known, done, began);
            return Ok(Extracted { warnings, ..extracted });
        }
        Err(Error::Restless(request.ontology_id.clone()))
    }

    fn params(&self, request: &ExtractionRequest) -> Result<Params, Error> {
        if request.text.len() > self.shared.settings.max_text_bytes {
            let (size, most) = (request.text.len(), self.shared.settings.max_text_bytes);
            return Err(Error::Text(format!("a text of {size} bytes; at most {most} are read")));
        }
        let id = &request.ontology_id;
        if id.len() > limits::MAX_ID || id.contains(char::is_control) {
            return Err(Error::UnknownOntology(id.chars().take(80).collect()));
        }
        Ok(Params::parse(&request.params)?)
    }

    fn identity(
        &self,
        request: &ExtractionRequest,
        params: &Params,
        known: &Known,
    ) -> Result<Identity, Error> {
        let extractor = &self.shared.identity;
        let identity = Identity::of(&request.text, known, &request.params, params, extractor)?;
        if identity.components.normalized_text.is_empty() {
            return Err(Error::Text("the text is empty".into()));
        }
        Ok(identity)
    }

    fn job(
        &self,
        identity: &Identity,
        params: &Params,
        known: &Arc<Known>,
        progress: Option<mpsc::Sender<Progress>>,
    ) -> Job {
        let shared = &self.shared;
        Job {
            hapax: self.hapax.clone(),
            key: identity.components.key,
            extractor: shared.extractor.clone(),
            known: known.clone(),
            params: params.clone(),
            text: identity.components.normalized_text.as_str().into(),
            text_hash: identity.components.text_hash.clone(),
            params_hash: identity.components.params_hash.clone(),
            ttl: shared.settings.ttl,
            shared: shared.clone(),
            progress,
        }
    }

    /// Runs the job under the key that clients know, or under the second key if another request
    /// holds the first.
    async fn run(
        &self,
        request: &ExtractionRequest,
        identity: &Identity,
        job: Job,
    ) -> Result<(Key, Done), hapax::Error> {
        let first = job.key;
        match self.run_job(request, identity, Arc::new(job.clone())).await {
            Err(hapax::Error::Conflict { .. }) => {
                let second = identity.second_key();
                let key = second.map_err(|error| StoreError::Invalid(error.to_string()))?;
                let job = Arc::new(Job { key, ..job });
                Ok((key, self.run_job(request, identity, job).await?))
            }
            done => Ok((first, done?)),
        }
    }

    /// Runs the job in a task of its own, which goes on when the caller has gone.
    async fn run_job(
        &self,
        request: &ExtractionRequest,
        identity: &Identity,
        job: Arc<Job>,
    ) -> Result<Done, hapax::Error> {
        let (shared, key) = (self.shared.clone(), job.key);
        let mut effect = self.hapax.effect(key).fingerprint(identity.fingerprint);
        if let Some(ttl) = shared.settings.ttl {
            effect = effect.ttl(ttl);
        }
        let effect = effect
            .safety(Safety::Transactional)
            .label("extraction")
            .about(about(request, identity, &job.known))
            .wait(shared.settings.wait)
            .share_failures();
        let short = identity.components.short();
        let running = tokio::spawn(async move {
            let read_at = Arc::new(Mutex::new(None));
            let noted = read_at.clone();
            let meters = shared.meters.clone();
            let done = effect
                .run(|claim| async move {
                    shared.note(&job.hapax, key, AccessKind::Miss, &job.known.ontology.id);
                    tracing::info!(name: "extraction_started", idempotency_key = short, ontology_id = job.known.ontology.id, "cache miss, extraction started");
                    let body = read(&job).await?;
                    shared.record(body.len());
                    claim.index_result(job.index_entry());
                    claim.note(noted_of(&body));
                    *noted.lock().unwrap_or_else(|p| p.into_inner()) = Some(Instant::now());
                    Ok::<_, Failure>(body)
                })
                .await;
            let ended = *read_at.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if let (Ok(_), Some(ended)) = (&done, ended) {
                meters.store.took(ended.elapsed());
            }
            done
        });
        running
            .await
            .unwrap_or_else(|error| Err(hapax::Error::Failed { reason: panicked(error).reason() }))
    }

    /// Counts and logs a result.
    fn report(
        &self,
        request: &ExtractionRequest,
        identity: Identity,
        known: &Known,
        (key, done): (Key, Done),
        began: Instant,
    ) -> Extracted {
        let shared = &self.shared;
        shared.shadow.compare(request, &identity);
        let components = &identity.components;
        let took = began.elapsed();
        let wait_ms = took.as_millis() as u64;
        match done.how {
            How::Replayed => {
                shared.meters.hit.inc();
                shared.meters.lookup.took(took);
                shared.note(&self.hapax, key, AccessKind::Hit, &request.ontology_id);
                tracing::info!(name: "cache_hit", idempotency_key = components.short(), hit_source = "result-cache", cache_age_ms = age_ms(&done), lookup_us = took.as_micros() as u64, "cache hit");
            }
            How::Shared => {
                shared.meters.became("shared");
                shared.meters.wait.took(took);
                shared.note(&self.hapax, key, AccessKind::Shared, &request.ontology_id);
                tracing::info!(name: "request_deduplicated", idempotency_key = components.short(), hit_source = "execution-cache", wait_ms, "concurrent request deduplicated");
            }
            How::Executed => {
                shared.meters.became("executed");
                tracing::info!(name: "extraction_completed", idempotency_key = components.short(), ontology_id = request.ontology_id, took_ms = wait_ms, "extraction complete");
            }
        }
        let version = known.version.clone();
        Extracted { identity, key, version, how: done.how, warnings: Vec::new(), done }
    }

    /// One pass of maintenance: records the counted outcomes, and evicts results above the size
    /// limit.
    pub async fn tend(&self) -> Result<MaintenanceReport, Error> {
        let shared = &self.shared;
        shared.meters.charge(&shared.extractor.bill());
        let (accesses, namespaces) = shared.attention.take();
        let mut tended = MaintenanceReport { noted: accesses.len(), evicted: 0 };
        if !accesses.is_empty() {
            let recorded = self.hapax.results().record_accesses(accesses.clone()).await;
            recorded.inspect_err(|_| shared.attention.put_back(accesses))?;
        }
        if !shared.is_room_due() {
            return Ok(tended);
        }
        let mut results = 0;
        for namespace in namespaces {
            let hapax = self.hapax.in_namespace(namespace);
            tended.evicted += self.make_room(&hapax).await?;
            results += hapax.results().stats().await?.whole;
        }
        shared.meters.results.set(results as i64);
        Ok(tended)
    }

    /// Evicts the least recently used results of a namespace while it is above the size limit.
    async fn make_room(&self, hapax: &Hapax) -> Result<usize, Error> {
        let mut evicted = 0;
        for _ in 0..ROUNDS {
            let CacheStats { whole, parts, bytes } = hapax.results().stats().await?;
            let over = bytes.saturating_sub(self.shared.settings.max_cache_bytes);
            if over == 0 {
                break;
            }
            // The share of the results that is too much, if all are of the same size.
            let share = u128::from(over) * u128::from(whole + parts) / u128::from(bytes.max(1));
            let batch = u64::try_from(share).unwrap_or(BATCH).clamp(1, BATCH);
            let gone = hapax.results().evict(Evict::Oldest, batch as usize).await?;
            self.shared.meters.evictions.inc_by(gone as u64);
            evicted += gone;
            if gone == 0 {
                break;
            }
        }
        Ok(evicted)
    }
}

/// How often the size is measured.
const ROOM: Duration = Duration::from_secs(60);

/// The most results evicted before the size is measured again, and how often one pass does that.
const BATCH: u64 = 4_096;
const ROUNDS: usize = 64;

/// The report of one pass of maintenance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MaintenanceReport {
    /// Counted outcomes that were recorded.
    pub noted: usize,
    /// Results evicted.
    pub evicted: usize,
}

impl Shared {
    /// The extractor, and the model that it asks unless a request names another.
    fn made_by(&self) -> (&str, Option<&str>) {
        (&self.identity, self.extractor.model())
    }

    pub(crate) fn bill(&self) -> Bill {
        self.extractor.bill()
    }

    /// Counts recorded bytes.
    pub(crate) fn record(&self, bytes: usize) {
        self.recorded.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Whether to measure the size, which means counting all results: after a minute, or when this
    /// process has recorded so much that the limit may be exceeded.
    fn is_room_due(&self) -> bool {
        let mut made = self.room_made.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let much = self.recorded.load(Ordering::Relaxed) > self.settings.max_cache_bytes / 64;
        let due = much || made.is_none_or(|made| made.elapsed() > ROOM);
        if due {
            self.recorded.store(0, Ordering::Relaxed);
            *made = Some(Instant::now());
        }
        due
    }

    pub(crate) fn note(&self, hapax: &Hapax, key: Key, kind: AccessKind, ontology: &str) {
        let name = Name { namespace: hapax.namespace().clone(), key };
        self.attention.note(name, kind, ontology);
    }
}

/// The error that a failure is for the caller.
fn caller_error(error: hapax::Error) -> Error {
    let hapax::Error::Failed { reason } = error else { return error.into() };
    match ExtractorError::of(&reason) {
        ExtractorError::Never(reason) => Error::Hopeless(reason),
        ExtractorError::Later { reason, after } => Error::Extractor { reason, after },
    }
}

/// Extracts from the text, and serializes the result.
async fn read(job: &Arc<Job>) -> Result<Vec<u8>, Failure> {
    let mut reading = JoinSet::new();
    reading.spawn(job.clone().run());
    let read = match reading.join_next().await {
        Some(Ok(read)) => read,
        Some(Err(error)) => Err(panicked(error)),
        None => return Err(Failure::not_done("nothing was read")),
    };
    let read = read.map_err(|error| Failure::not_done(error.reason()))?;
    if read.spent.discarded > 0 && read.graph.entities.is_empty() {
        return Err(Failure::not_done(read.spent.discarded_reason()));
    }
    let body = body(job.shared.made_by(), &job.params, &job.known, &read)
        .map_err(|error| Failure::not_done(error.to_string()))?;
    match body.len() {
        size if size > DEFAULT_KEEP_LIMIT => {
            let what = format!("a result of {size} bytes; at most {DEFAULT_KEEP_LIMIT} are kept");
            Err(Failure::not_done(ExtractorError::Never(what).reason()))
        }
        _ => Ok(body),
    }
}

/// The use of an extraction of whose entities all were discarded.
fn discarded(error: &hapax::Error) -> Option<ExtractionUsage> {
    match error {
        hapax::Error::Failed { reason } => ExtractionUsage::of_discarded(reason),
        _ => None,
    }
}

/// The note in the journal beside a grant.
fn about(request: &ExtractionRequest, identity: &Identity, known: &Known) -> String {
    let components = &identity.components;
    serde_json::json!({
        "kind": "extraction.v1",
        "ontologyId": known.ontology.id,
        "ontologyVersion": known.version,
        "textHash": components.text_hash,
        "extractionParamsHash": components.params_hash,
        "requestId": request.request_id,
    })
    .to_string()
}
