//! From a text to a graph: chunking, entities, resolution, property scoping, relations, merge.
//!
//! An extractor's answer about a chunk is an effect of its own. Its key covers everything that the
//! extractor was shown, and not the text around that. So a changed paragraph costs its own chunk
//! and those that show it as context; the others are reused, and a run that broke off resumes where
//! it was.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hapax::result_index::{AccessKind, IndexEntry};
use hapax::{Failure, Hapax, How, Key, Safety};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use crate::chunk::{Chunk, chunks};
use crate::extractor::{Answered, ChunkRequest, Extractor, ExtractorError};
use crate::graph::{ChunkGraph, Graph, Mention};
use crate::merge::merge;
use crate::ontologies::Known;
use crate::params::Params;
use crate::service::Shared;

/// How long a chunk waits for another text that has the same chunk.
const SHARED_CHUNK_WAIT: Duration = Duration::from_secs(600);

/// How many chunks are read at once by a cheap extractor.
const CHEAP: usize = 256;

/// The progress of an extraction, for the caller that waits for its result.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// The text was cut into chunks.
    Chunked {
        /// The number of chunks.
        chunks: usize,
    },
    /// A chunk was read.
    Read {
        /// The number of the chunk, from 0.
        chunk: usize,
        /// How many chunks have been read.
        done: usize,
        /// The number of all chunks.
        of: usize,
        /// Whether its findings were reused.
        reused: bool,
        /// Its findings.
        found: ChunkGraph,
    },
    /// Every chunk was read, and the findings are being merged.
    Merging,
}

/// The extraction of one text.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) hapax: Hapax,
    /// The key of the result.
    pub(crate) key: Key,
    pub(crate) extractor: Arc<dyn Extractor>,
    pub(crate) known: Arc<Known>,
    pub(crate) params: Params,
    /// Normalised.
    pub(crate) text: Arc<str>,
    pub(crate) text_hash: String,
    pub(crate) params_hash: String,
    pub(crate) ttl: Option<Duration>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) progress: Option<mpsc::Sender<Progress>>,
}

/// The outcome of an extraction.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) graph: Graph,
    pub(crate) spent: ExtractionUsage,
}

/// The use of one extraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtractionUsage {
    /// The number of chunks that the text was cut into.
    pub chunks: usize,
    /// How many of them were reused.
    pub reused: usize,
    /// The number of paid calls that were made now.
    pub calls: u32,
    /// The tokens it read.
    pub tokens_in: u64,
    /// The tokens it wrote.
    pub tokens_out: u64,
    /// The cost in millionths of the currency of the prices, where there are prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
    /// The number of entities that were found and discarded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub discarded: u32,
}

/// The prefix of a recorded failure that is no error: the extractor answered, and every entity in
/// its answer was discarded. Its usage follows, so that every waiting request learns of it, in
/// other processes too.
const DISCARDED: &str = "every entity was discarded: ";

impl ExtractionUsage {
    /// The text that the ledger records for an answer of which nothing can be used.
    pub(crate) fn discarded_reason(&self) -> String {
        format!("{DISCARDED}{}", serde_json::to_string(self).unwrap_or_default())
    }

    /// Reads the text that the ledger recorded, if it is one of these.
    pub(crate) fn of_discarded(reason: &str) -> Option<Self> {
        serde_json::from_str(reason.strip_prefix(DISCARDED)?).ok()
    }
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// An answer as it is recorded.
#[derive(Serialize, Deserialize)]
struct StoredChunk<T> {
    found: T,
    #[serde(default)]
    calls: u32,
    #[serde(default)]
    tokens_in: u64,
    #[serde(default)]
    tokens_out: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    discarded: u32,
}

/// The findings of one chunk, and their cost.
struct Part {
    chunk: usize,
    found: ChunkGraph,
    reused: bool,
    spent: ExtractionUsage,
}

impl Job {
    /// Extracts from the text.
    pub(crate) async fn run(self: Arc<Self>) -> Result<Read, ExtractorError> {
        self.extractor.prepare(&self.known.ontology)?;
        let chunks = chunks(&self.text, self.params.chunk_size);
        self.report(Progress::Chunked { chunks: chunks.len() });
        let mut found = vec![ChunkGraph::default(); chunks.len()];
        let mut spent = ExtractionUsage { chunks: chunks.len(), ..ExtractionUsage::default() };
        let (mut reading, mut waiting) = (JoinSet::new(), chunks.iter());
        let (mut done, mut failed) = (0, None);
        loop {
            // After a failure no other chunk is begun. Chunks in flight finish, and their answers
            // are kept.
            while failed.is_none()
                && reading.len() < self.at_once()
                && let Some(Chunk { index, start, text }) = waiting.next()
            {
                reading.spawn(self.clone().read(*index, *start..*start + text.len()));
            }
            let part = match reading.join_next().await {
                None => break,
                Some(part) => part.map_err(panicked).flatten(),
            };
            let part = match part {
                Ok(part) => part,
                Err(error) => {
                    failed = Some(match failed.take() {
                        Some(first) => ExtractorError::and(first, error),
                        None => error,
                    });
                    continue;
                }
            };
            done += 1;
            spent.reused += usize::from(part.reused);
            spent.calls += part.spent.calls;
            spent.tokens_in += part.spent.tokens_in;
            spent.tokens_out += part.spent.tokens_out;
            spent.discarded = spent.discarded.saturating_add(part.spent.discarded);
            if self.progress.is_some() {
                let Part { chunk, reused, .. } = part;
                let (of, found) = (chunks.len(), part.found.clone());
                self.report(Progress::Read { chunk, done, of, reused, found });
            }
            found[part.chunk] = part.found;
        }
        if let Some(error) = failed {
            return Err(error);
        }
        self.report(Progress::Merging);
        spent.cost_micros = self.extractor.cost_micros(spent.tokens_in, spent.tokens_out);
        let graph = merge(&chunks, &found, &self.known.ontology);
        Ok(Read { graph, spent })
    }

    /// How many chunks are read at once. A cheap extractor waits for the ledger only, which commits
    /// many effects together.
    fn at_once(&self) -> usize {
        match self.extractor.is_cheap() {
            true => CHEAP,
            false => self.params.concurrency,
        }
    }

    /// A caller that does not listen, or not quickly enough, misses progress; it gets the result
    /// anyway.
    fn report(&self, progress: Progress) {
        if let Some(listener) = &self.progress {
            let _ = listener.try_send(progress);
        }
    }

    async fn read(
        self: Arc<Self>,
        chunk: usize,
        span: Range<usize>,
    ) -> Result<Part, ExtractorError> {
        let mut part = Part {
            chunk,
            found: ChunkGraph::default(),
            reused: true,
            spent: ExtractionUsage::default(),
        };
        if self.extractor.is_cheap() {
            let is_empty = |found: &ChunkGraph| found.mentions.is_empty();
            let answer = self.clone().part("found", &span, &[], is_empty, {
                let (job, span) = (self.clone(), span.clone());
                move || async move {
                    let mentions = job.extractor.entities(job.chunk_request(&span)).await?;
                    let related = job.relate(&span, &mentions.found).await?;
                    let discarded = mentions.discarded;
                    let found = ChunkGraph { mentions: mentions.found, statements: related.found };
                    Ok(Answered { found, discarded, ..Answered::default() })
                }
            });
            part.found = part.add(answer.await?);
            return Ok(part);
        }
        let is_empty = |mentions: &Vec<Mention>| mentions.is_empty();
        let answer = self.clone().part("entities", &span, &[], is_empty, {
            let (job, span) = (self.clone(), span.clone());
            move || async move { job.extractor.entities(job.chunk_request(&span)).await }
        });
        let mentions: Vec<Mention> = part.add(answer.await?);
        if mentions.len() > 1 {
            let shown = serde_json::to_vec(&mentions).unwrap_or_default();
            let answer = self.clone().part("relations", &span, &shown, |_| false, {
                let (job, span, mentions) = (self.clone(), span.clone(), mentions.clone());
                move || async move { job.relate(&span, &mentions).await }
            });
            part.found.statements = part.add(answer.await?);
        }
        part.found.mentions = mentions;
        Ok(part)
    }

    /// The relations between these mentions, by the properties that their classes can have.
    async fn relate(
        &self,
        span: &Range<usize>,
        mentions: &[Mention],
    ) -> Result<Answered<Vec<crate::graph::Statement>>, ExtractorError> {
        let properties = self.known.scope.between(mentions);
        if mentions.len() < 2 || properties.is_empty() {
            return Ok(Answered::default());
        }
        self.extractor.relations(self.chunk_request(span), mentions, &properties).await
    }

    fn chunk_request(&self, span: &Range<usize>) -> ChunkRequest<'_> {
        let before = &self.text[..span.start];
        let skipped = before.char_indices().rev().take(self.extractor.context()).last();
        let context = skipped.map_or("", |(at, _)| &before[at..]);
        let (chunk, ontology) = (&self.text[span.clone()], &self.known.ontology);
        ChunkRequest { chunk, context, ontology, params: &self.params }
    }

    /// An extractor's answer about a chunk, requested once. An answer that is empty because all of
    /// it was discarded is not recorded.
    async fn part<T, F, Fut>(
        self: Arc<Self>,
        phase: &str,
        span: &Range<usize>,
        shown: &[u8],
        is_empty: fn(&T) -> bool,
        call: F,
    ) -> Result<(StoredChunk<T>, How), ExtractorError>
    where
        T: Serialize + DeserializeOwned + Default + Send + 'static,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<Answered<T>, ExtractorError>> + Send + 'static,
    {
        let ChunkRequest { chunk, context, .. } = self.chunk_request(span);
        let key = Key::derive(
            "extraction.part.v1",
            &[
                ("phase", phase.as_bytes()),
                ("chunk", chunk.as_bytes()),
                ("context", context.as_bytes()),
                ("ontology", self.known.ontology.id.as_bytes()),
                ("version", self.known.version.as_bytes()),
                ("params", self.params.form().as_bytes()),
                ("extractor", self.shared.identity.as_bytes()),
                ("shown", shown),
            ],
        );
        let key = key.map_err(|error| ExtractorError::Never(error.to_string()))?;
        let mut effect = self.hapax.effect(key).safety(Safety::Transactional);
        if let Some(ttl) = self.ttl {
            effect = effect.ttl(ttl);
        }
        let job = self.clone();
        let asked = Arc::new(AtomicBool::new(false));
        let noted = asked.clone();
        let effect = effect.label("extraction.part").about(self.about(phase));
        let run = effect.wait(SHARED_CHUNK_WAIT).share_failures().run(move |claim| async move {
            noted.store(true, Ordering::Relaxed);
            let answered = Self::guarded(call).await;
            let answered = answered.map_err(|error| Failure::not_done(error.reason()))?;
            let Answered { found, calls, tokens_in, tokens_out, discarded } = answered;
            if discarded > 0 && is_empty(&found) {
                let usage = ExtractionUsage {
                    calls,
                    tokens_in,
                    tokens_out,
                    discarded,
                    ..ExtractionUsage::default()
                };
                return Err(Failure::not_done(usage.discarded_reason()));
            }
            claim.index_result(IndexEntry { whole: false, ..job.index_entry() });
            let kept = StoredChunk { found, calls, tokens_in, tokens_out, discarded };
            let kept = serde_json::to_vec(&kept);
            let kept = kept.map_err(|error| Failure::not_done(error.to_string()))?;
            job.shared.record(kept.len());
            Ok::<_, Failure>(kept)
        });
        let done = match run.await {
            Ok(done) => done,
            Err(hapax::Error::Failed { reason }) => {
                let usage = ExtractionUsage::of_discarded(&reason);
                let Some(ExtractionUsage { calls, tokens_in, tokens_out, discarded, .. }) = usage
                else {
                    return Err(ExtractorError::of(&reason));
                };
                let how = if asked.load(Ordering::Relaxed) { How::Executed } else { How::Shared };
                self.count(how);
                let found = T::default();
                return Ok((StoredChunk { found, calls, tokens_in, tokens_out, discarded }, how));
            }
            Err(error) => return Err(ExtractorError::of(&error.to_string())),
        };
        self.count(done.how);
        if done.how != How::Executed {
            self.shared.note(&self.hapax, key, AccessKind::Used, &self.known.ontology.id);
        }
        let kept = done.body().and_then(|body| serde_json::from_slice(body).ok());
        let kept =
            kept.ok_or_else(|| ExtractorError::Never("a part of the result was not kept".into()))?;
        Ok((kept, done.how))
    }

    /// Counts an answer about a chunk.
    fn count(&self, how: How) {
        let how = if how == How::Executed { "extracted" } else { "reused" };
        self.shared.meters.chunks.with_label_values(&[how]).inc();
    }

    /// Calls the extractor. A panic becomes an error.
    async fn guarded<T, F, Fut>(call: F) -> Result<Answered<T>, ExtractorError>
    where
        T: Send + 'static,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<Answered<T>, ExtractorError>> + Send + 'static,
    {
        let mut calling = JoinSet::new();
        calling.spawn(call());
        match calling.join_next().await {
            Some(answer) => answer.map_err(panicked)?,
            None => Err(ExtractorError::Never("the extractor was never called".into())),
        }
    }

    /// The note in the journal beside a grant: the result that requested it first. Its kind is not
    /// that of a result, so that no view takes a part for a result.
    fn about(&self, phase: &str) -> String {
        serde_json::json!({
            "kind": "extraction.part.v1",
            "idempotencyKey": self.key.to_string(),
            "phase": phase,
        })
        .to_string()
    }

    /// The index entry of the result.
    pub(crate) fn index_entry(&self) -> IndexEntry {
        IndexEntry {
            ontology: self.known.ontology.id.clone(),
            version: self.known.version.clone(),
            text_hash: self.text_hash.clone(),
            params_hash: self.params_hash.clone(),
            whole: true,
        }
    }
}

impl Part {
    fn add<T>(&mut self, (kept, how): (StoredChunk<T>, How)) -> T {
        self.spent.discarded = self.spent.discarded.saturating_add(kept.discarded);
        if how == How::Executed {
            self.reused = false;
            self.spent.calls += kept.calls;
            self.spent.tokens_in += kept.tokens_in;
            self.spent.tokens_out += kept.tokens_out;
        }
        kept.found
    }
}

pub(crate) fn panicked(error: JoinError) -> ExtractorError {
    let why = match error.try_into_panic() {
        Ok(panic) => {
            let text = panic.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            format!("the extractor panicked: {}", text.unwrap_or_default())
        }
        Err(_) => "the extractor was stopped".into(),
    };
    ExtractorError::Later { reason: why, after: None }
}
