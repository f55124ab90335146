//! The permission that an operation's work gets, and the result that it returns.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hapax::json::Json;
use hapax::outbox::{Artifact as Registered, Event, Payload, Trace};
use hapax::{AttemptId, Claim, Fence, Key, Outcome};
use rusqlite::Transaction;

use crate::error::WorkError;
use crate::lifecycle::{Progress, Stage, attach, record};
use crate::operation::Operation;
use crate::run::Artifact;
use hapax::document::Object;

/// Permission to perform an operation: it has its lock, and every guard has let it pass. A caller
/// cannot make one, so no operation is settled without the steps before:
///
/// ```compile_fail
/// fn forged(claim: hapax::Claim, work: hapax_pipeline::Work) -> hapax_pipeline::Work {
///     hapax_pipeline::Work { claim, ..work }
/// }
/// ```
///
/// A caller cannot reach its claim either, so every outcome that is settled was checked against its
/// contract and masked:
///
/// ```compile_fail
/// fn past_the_guards(tx: &rusqlite::Transaction<'_>, work: hapax_pipeline::Work) {
///     work.claim.settle_in(tx, "38.91, -94.64").expect("settled");
/// }
/// ```
#[derive(Clone)]
pub struct Work {
    claim: Claim,
    stage: Arc<Stage>,
    progress: Progress,
}

impl Work {
    pub(crate) fn new(claim: Claim, stage: Arc<Stage>, progress: Progress) -> Self {
        Self { claim, stage, progress }
    }

    /// The operation.
    pub fn operation(&self) -> &Operation {
        &self.stage.about.operation
    }

    /// The key of the operation.
    pub fn key(&self) -> Key {
        self.claim.key()
    }

    /// The identity of this attempt. Hand it to a target that keeps ids.
    pub fn attempt(&self) -> AttemptId {
        self.claim.attempt()
    }

    /// A number that only grows. Hand it to a target that compares numbers and refuses smaller
    /// ones.
    pub fn fence(&self) -> Fence {
        self.claim.fence()
    }

    /// Which attempt this is, from 1.
    pub fn nth(&self) -> u32 {
        self.claim.nth()
    }

    /// Whether this attempt may still go on, as far as the ledger knows now. Ask before you send
    /// something again.
    pub async fn check(&self) -> Result<(), hapax::Error> {
        self.claim.check().await
    }

    /// Registers how to undo what is about to be done. Durable when this returns, so call it
    /// before the step is taken. See [`Hapax::on_rollback`](hapax::Hapax::on_rollback).
    pub async fn undo_with(
        &self,
        step: impl Into<String>,
        payload: impl Into<Vec<u8>>,
    ) -> Result<(), hapax::Error> {
        self.claim.undo_with(step, payload).await
    }

    /// A text with its places masked to the dataset's resolution.
    pub fn masked(&self, text: &str) -> String {
        self.stage.mask(text)
    }

    /// Until when the work may go on. See [`Claim::work_until_ms`](hapax::Claim::work_until_ms).
    pub fn work_until_ms(&self) -> Option<u64> {
        self.claim.work_until_ms()
    }

    /// The file whose lock shows that the holder lives. See
    /// [`Claim::lease_file`](hapax::Claim::lease_file).
    pub fn lease_file(&self) -> Option<std::path::PathBuf> {
        self.claim.lease_file()
    }

    /// Settles the operation inside your own transaction on the ledger's file, so that your writes,
    /// the outcome and its events are committed together or not at all. The result is checked
    /// against its contract first. `after` checks cannot run before the commit, so there may be
    /// none. See [`Claim::settle_in`](hapax::Claim::settle_in).
    ///
    /// ```
    /// use hapax::{Hapax, Safety};
    /// use hapax_pipeline::{WorkResult, Operation, Pipeline, WorkError};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// let hapax = Hapax::open(directory.path().join("hapax.db")).await?;
    /// let mut connection = hapax.connection()?;
    /// connection.execute_batch("CREATE TABLE flow (station TEXT, cms REAL)")?;
    /// # let operation = Operation {
    /// #     pipeline_id: "hydrology".into(),
    /// #     task_id: "load".into(),
    /// #     dataset_id: "flow".into(),
    /// #     operation_type: "append".into(),
    /// #     version: "v1".into(),
    /// #     checksum_in: "sha256:5f2b".into(),
    /// #     params_hash: "sha256:9c41".into(),
    /// #     timestamp_bucket: "2026-11-16T00:00:00Z".into(),
    /// #     ..Operation::default()
    /// # };
    /// let pipeline = Pipeline::new(hapax);
    /// pipeline
    ///     .operation(operation)
    ///     .with(|effect| effect.safety(Safety::Transactional))
    ///     .run(|work| {
    ///         let loaded = (|| {
    ///             let tx = connection.transaction()?;
    ///             tx.execute("INSERT INTO flow VALUES ('06887500', 214.0)", [])?;
    ///             let made = WorkResult::new("1 row");
    ///             work.settle_in(&tx, &made)?;
    ///             tx.commit()?;
    ///             Ok::<_, WorkError>(made)
    ///         })();
    ///         async { loaded }
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn settle_in(&self, tx: &Transaction<'_>, made: &WorkResult) -> Result<(), WorkError> {
        let outcome = self.prepare(made)?;
        Ok(self.claim.settle_in(tx, outcome)?)
    }

    /// The same inside your own transaction on the ledger's database.
    #[cfg(feature = "postgres")]
    pub async fn settle_in_postgres(
        &self,
        tx: &hapax::tokio_postgres::Transaction<'_>,
        made: &WorkResult,
    ) -> Result<(), WorkError> {
        let outcome = self.prepare(made)?;
        Ok(self.claim.settle_in_postgres(tx, outcome).await?)
    }

    /// The same inside your own transaction on the ledger's database, where it is sqlx's.
    #[cfg(feature = "sqlx")]
    pub async fn settle_in_sqlx(
        &self,
        tx: &mut sqlx::PgTransaction<'_>,
        made: &WorkResult,
    ) -> Result<(), WorkError> {
        let outcome = self.prepare(made)?;
        Ok(self.claim.settle_in_sqlx(tx, outcome).await?)
    }

    /// Gives the claim everything that is recorded with the outcome, and returns the outcome.
    fn prepare(&self, made: &WorkResult) -> Result<Outcome, WorkError> {
        if self.stage.checked {
            let why = "`after` checks run on the result, but this settles it before they can; do these checks in the work";
            return Err(WorkError::not_done(why));
        }
        let held = self.stage.hold(made).map_err(WorkError::Refused)?;
        let mut progress = self.progress.clone();
        progress.agreed.extend(held);
        let cpu = Some(progress.cpu.so_far());
        let recorded = record(&self.stage, made.clone(), cpu, progress, Vec::new());
        let (product, outcome, events) = recorded.map_err(WorkError::Failure)?;
        attach(&self.claim, &product, events);
        Ok(outcome)
    }
}

/// The result of work.
#[derive(Debug, Clone)]
pub struct WorkResult {
    pub(crate) result: Outcome,
    pub(crate) outputs: Vec<Artifact>,
    pub(crate) documents: Vec<Json>,
    pub(crate) unreadable: Vec<String>,
    pub(crate) events: Vec<Event>,
    pub(crate) cpu: Option<Duration>,
}

impl WorkResult {
    /// A result, which later calls for the operation replay.
    pub fn new(result: impl Into<Outcome>) -> Self {
        Self {
            result: result.into(),
            outputs: Vec::new(),
            documents: Vec::new(),
            unreadable: Vec::new(),
            events: Vec::new(),
            cpu: None,
        }
    }

    /// Adds an artifact that was written or published.
    pub fn output(mut self, artifact: Artifact) -> Self {
        self.outputs.push(artifact);
        self
    }

    /// Adds a document that is checked against the data contract.
    pub fn document(mut self, document: Json) -> Self {
        self.documents.push(document);
        self
    }

    /// Adds something that a data contract would check and that is not JSON: every contract refuses
    /// it.
    pub fn unreadable(mut self, name: impl Into<String>) -> Self {
        self.unreadable.push(name.into());
        self
    }

    /// Adds an event, which is emitted in the transaction that settles the operation.
    pub fn event(mut self, event: Event) -> Self {
        self.events.push(event);
        self
    }

    /// Puts the events added so far into this trace, except those that have one.
    pub fn traced(mut self, trace: Option<Trace>) -> Self {
        for event in &mut self.events {
            event.trace = event.trace.take().or(trace.clone());
        }
        self
    }

    /// Adds an event of this name for each output so far, which registers it as published.
    pub fn publish(mut self, event: &str) -> Self {
        for artifact in &self.outputs {
            let payload = Object::default()
                .text("artifact_uri", artifact.uri.as_str())
                .text("checksum", artifact.checksum.as_str())
                .number("size", artifact.size)
                .json();
            // Texts and whole numbers have a canonical form.
            let Ok(payload) = Payload::of(&payload) else { continue };
            self.events.push(Event {
                version: Some(artifact.version.clone()),
                artifact: Some(Registered {
                    version: artifact.version.clone(),
                    checksum: artifact.checksum.clone(),
                    uri: artifact.uri.clone(),
                }),
                ..Event::new(event, &artifact.dataset, payload)
            });
        }
        self
    }

    /// Sets the CPU time it took, where another process spent it.
    pub fn cpu(mut self, cpu: Duration) -> Self {
        self.cpu = Some(cpu);
        self
    }
}

type Checking<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// A check of the caller's, before or after the work.
pub(crate) struct Check<'a> {
    pub(crate) name: String,
    pub(crate) check: Box<dyn Fn(Work) -> Checking<'a> + Send + Sync + 'a>,
}

impl<'a> Check<'a> {
    pub(crate) fn new<F, Fut>(name: &str, check: F) -> Self
    where
        F: Fn(Work) -> Fut + Send + Sync + 'a,
        Fut: Future<Output = Result<(), String>> + Send + 'a,
    {
        Self { name: name.to_owned(), check: Box::new(move |work| Box::pin(check(work))) }
    }
}
