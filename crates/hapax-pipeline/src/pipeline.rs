//! The pipeline: runs operations on datasets, on the terms that are declared of each.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hapax::{
    Budget, EffectBuilder, Fingerprint, Hapax, Key, LockPolicy, Refusal, StateName, Tally,
};
use tokio::time::Instant;

use crate::annotations::Masking;
use crate::builder::OperationBuilder;
use crate::declared::{Declarations, Declared};
use crate::energy::Grid;
use crate::error::Error;
use crate::exact;
use crate::lifecycle::{Inputs, Stage, admitted};
use crate::mask::mask_text;
use crate::meters::{Labels, Meter, Meters};
use crate::operation::{DatasetTerms, Operation, OperationNote};
use crate::refusal::{self, RefusalEvent};
use crate::review;
use crate::run::Product;
use crate::tally::Tallies;

/// Runs operations on datasets. Cheap to clone.
#[derive(Clone)]
pub struct Pipeline {
    pub(crate) hapax: Hapax,
    inner: Arc<Inner>,
}

struct Inner {
    settings: Settings,
    meters: Arc<Meters>,
    budget: Mutex<Budget>,
    tallies: Tallies,
    declarations: Declarations,
}

/// The settings of a pipeline.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The `env` label of metrics.
    pub environment: String,
    /// The coefficients for energy and carbon estimates.
    pub grid: Grid,
    /// The width of the buckets that logical times are rounded down to.
    pub bucket: Duration,
    /// How long to wait for the operation that holds the dataset's lock, where the lock policy is
    /// `backoff`.
    pub lock_wait: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let (environment, grid) = ("default".to_owned(), Grid::default());
        let (bucket, lock_wait) = (Duration::from_secs(1), Duration::from_secs(30));
        Self { environment, grid, bucket, lock_wait }
    }
}

impl Pipeline {
    /// Runs operations on this ledger.
    pub fn new(hapax: Hapax) -> Self {
        Self::with(hapax, Settings::default())
    }

    /// The same, with settings.
    pub fn with(hapax: Hapax, settings: Settings) -> Self {
        let inner = Inner {
            settings,
            meters: Arc::default(),
            budget: Mutex::new(Budget::new(Instant::now())),
            tallies: Tallies::default(),
            declarations: Declarations::default(),
        };
        Self { hapax, inner: Arc::new(inner) }
    }

    /// The same pipeline on another handle, such as one of another namespace.
    pub fn on(&self, hapax: Hapax) -> Self {
        Self { hapax, inner: self.inner.clone() }
    }

    /// The counts of this pipeline.
    pub fn meters(&self) -> Arc<Meters> {
        self.inner.meters.clone()
    }

    /// Begins to describe an operation.
    pub fn operation(&self, operation: Operation) -> OperationBuilder<'_> {
        OperationBuilder::new(self, operation)
    }

    /// The declaration of a dataset. A change by another process is seen here within a second.
    pub(crate) async fn declared(&self, name: &str) -> Result<Arc<Declared>, Error> {
        self.inner.declarations.of(&self.hapax, name).await
    }

    /// Whether any dataset is declared.
    pub(crate) async fn declares(&self) -> Result<bool, Error> {
        self.inner.declarations.any(&self.hapax).await
    }

    /// Recent results on a dataset with an objective; an empty tally where there is none.
    pub(crate) async fn lately(&self, stage: &Stage) -> Result<Tally, Error> {
        match stage.declared.dataset.slo {
            Some(slo) => {
                let dataset = &stage.about.operation.dataset_id;
                self.inner.tallies.lately(&self.hapax, dataset, slo).await
            }
            None => Ok(Tally::default()),
        }
    }

    /// Everything that stays the same over all tries of an operation.
    pub(crate) async fn stage(
        &self,
        operation: Operation,
        part: Option<&str>,
    ) -> Result<Stage, Error> {
        operation.key()?;
        if let Some(flaw) = operation.flaw(self.inner.settings.bucket) {
            return Err(Error::Invalid(flaw));
        }
        let declared = self.declared(&operation.dataset_id).await?;
        let dataset = &declared.dataset;
        if let Some(resolution) = dataset.masked {
            exact::check_operation(&operation, resolution).map_err(Error::Invalid)?;
        }
        let lock = dataset.lock(&operation.dataset_id, &operation.operation_type, part);
        let terms = DatasetTerms {
            owner: dataset.owner.clone(),
            care_label: dataset.care_label.clone(),
            sovereign: dataset.sovereignty.is_some(),
            masked: dataset.masked,
            lock: Some(lock.to_string()),
            contract: declared.inputs.is_some(),
        };
        let operation = match declared.missing {
            // An undeclared dataset does not declare masking, so only the key is recorded.
            true => bare(operation),
            false => written(operation, dataset.masked),
        };
        let about = OperationNote { operation, terms };
        Ok(Stage { about, declared, grid: self.grid(), checked: false })
    }

    /// The guards' refusal of a replay now, with the inputs it would read. The refusal is
    /// journalled and logged, unless a field of the operation names an exact place.
    pub(crate) async fn refuses_replay(
        &self,
        operation: &Operation,
        inputs: Inputs<'_>,
    ) -> Result<Option<Refusal>, Error> {
        let masked = self.declared(&operation.dataset_id).await?.dataset.masked;
        // The request is older than the mask of the dataset. Nothing more of it is recorded now.
        if let Some(why) =
            masked.and_then(|resolution| exact::check_operation(operation, resolution).err())
        {
            return Ok(Some(Refusal::Check(why)));
        }
        let stage = self.stage(operation.clone(), None).await?;
        let lately = self.lately(&stage).await?;
        let Err(refusal) = admitted(&stage, lately, inputs) else { return Ok(None) };
        refusal::record(&self.hapax, &stage.about, RefusalEvent::REPLAY, &refusal).await?;
        say_refused(&stage.about, &refusal);
        Ok(Some(refusal))
    }

    /// Refuses an operation whose newest review is pending or rejected, and journals and logs that.
    /// Skips the check where the dataset never opens reviews.
    pub(crate) async fn reviewed(&self, stage: &Stage, key: Key) -> Result<(), Error> {
        let dataset = &stage.declared.dataset;
        if !dataset.review && dataset.on_lock != LockPolicy::Escalate {
            return Ok(());
        }
        let Some(refusal) = review::unanswered(&self.hapax, key).await? else { return Ok(()) };
        // A recorded success is replayed, whatever reviews were opened since.
        let effect = self.hapax.effects().show(key).await?;
        if effect.is_some_and(|effect| effect.state.name() == StateName::Succeeded) {
            return Ok(());
        }
        Err(self.turned_away(stage, refusal).await?)
    }

    /// Whether this error means that the operation happened in part, and has to be undone before
    /// the next try. An operation whose review is pending or rejected is refused first.
    pub(crate) async fn may_undo(
        &self,
        stage: &Stage,
        key: Key,
        error: &hapax::Error,
    ) -> Result<bool, Error> {
        let hapax::Error::Blocked(blocked) = error else { return Ok(false) };
        if blocked.state != StateName::Partial || blocked.holder.is_some() {
            return Ok(false);
        }
        match review::unanswered(&self.hapax, key).await? {
            Some(refusal) => Err(self.turned_away(stage, refusal).await?),
            None => Ok(true),
        }
    }

    /// Journals and logs that an operation was refused before it was granted.
    async fn turned_away(&self, stage: &Stage, refusal: Refusal) -> Result<Error, Error> {
        refusal::record(&self.hapax, &stage.about, RefusalEvent::OPERATION, &refusal).await?;
        say_refused(&stage.about, &refusal);
        Ok(Error::Refused(refusal))
    }

    /// The review that stops an operation which is granted again: a person may have escalated it
    /// since the first grant.
    pub(crate) async fn review_since(&self, key: Key, nth: u32) -> Result<Option<Refusal>, Error> {
        match nth {
            1 => Ok(None),
            _ => review::unanswered(&self.hapax, key).await,
        }
    }

    pub(crate) fn labels(&self, about: &OperationNote) -> Labels {
        Labels::of(about, &self.inner.settings.environment)
    }

    pub(crate) fn count(&self, meter: Meter, labels: &Labels) {
        self.inner.meters.add(meter, labels, 1);
    }

    /// Counts the energy and carbon of an operation, if they are known.
    pub(crate) fn took(&self, labels: &Labels, product: &Product) {
        if let Some(energy) = product.energy {
            self.inner.meters.add(Meter::Energy, labels, energy.microwatt_hours);
            self.inner.meters.add(Meter::Carbon, labels, energy.micrograms_co2e);
        }
    }

    /// Counts an operation that has a result.
    pub(crate) fn counted(&self, labels: &Labels, replayed: bool) {
        if replayed {
            self.count(Meter::Replays, labels);
            self.count(Meter::Hits, labels);
        } else {
            self.count(Meter::Misses, labels);
        }
    }

    /// Counts and logs that another operation holds the dataset's lock.
    pub(crate) fn lock_failed(&self, labels: &Labels, holder: Key) {
        self.count(Meter::LockFailures, labels);
        tracing::warn!(
            name: "lock_acquire_failed", target: "hapax::pipeline",
            pipeline = labels.pipeline, task = labels.task, dataset_id = labels.dataset_id,
            operation_type = labels.operation_type, sovereignty_event = labels.sovereignty_event,
            %holder, "another operation holds the dataset's lock"
        );
    }

    pub(crate) fn budget(&self) -> MutexGuard<'_, Budget> {
        lock(&self.inner.budget)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The operation with only the fields of its key.
fn bare(operation: Operation) -> Operation {
    let (inputs, program) = (Vec::new(), Vec::new());
    let (justification, governance_ref, params) = (None, None, None);
    Operation { inputs, program, justification, governance_ref, params, ..operation }
}

/// The operation as it is recorded: secrets redacted, places masked to the dataset's resolution.
fn written(operation: Operation, masked: Option<u8>) -> Operation {
    let clean = |text: &String| {
        let text = hapax::guard::redact(text);
        masked.map_or(text.clone(), |cells| mask_text(&text, cells))
    };
    let mut operation = operation;
    operation.justification = operation.justification.as_ref().map(clean);
    operation.governance_ref = operation.governance_ref.as_ref().map(clean);
    operation.program = operation.program.iter().map(clean).collect();
    operation.params = operation.params.as_ref().map(clean);
    for input in &mut operation.inputs {
        input.name = clean(&input.name);
        input.uri = input.uri.as_ref().map(clean);
    }
    operation
}

impl Pipeline {
    /// The effect of an operation, with its key, its lock and its note for the journal.
    pub(crate) fn effect(
        &self,
        key: Key,
        stage: &Stage,
        part: Option<&str>,
        fingerprint: Option<Fingerprint>,
    ) -> EffectBuilder {
        let Operation { dataset_id, operation_type, .. } = &stage.about.operation;
        let lock = stage.declared.dataset.lock(dataset_id, operation_type, part);
        let label: String = format!("{dataset_id} {operation_type}").chars().take(60).collect();
        let effect = self.hapax.effect(key).label(label);
        let effect = effect.lock_key(lock).about(stage.about.note());
        let effect = match Masking::of(&stage.declared.dataset) {
            Some(masking) => effect.redactor(masking),
            None => effect,
        };
        match fingerprint {
            Some(fingerprint) => effect.fingerprint(fingerprint),
            None => effect,
        }
    }

    pub(crate) fn lock_wait(&self) -> Duration {
        self.inner.settings.lock_wait
    }

    pub(crate) fn grid(&self) -> Grid {
        self.inner.settings.grid
    }

    /// Opens a review because another operation holds the lock.
    pub(crate) async fn held(&self, stage: &Stage, holder: Key) -> Result<Error, Error> {
        self.escalate(stage, &format!("{holder} holds the lock")).await
    }

    /// Decides what follows when an operation, or the one that holds its lock, happened in part or
    /// has an unknown outcome. Opens a review where the dataset requires one, or where nothing else
    /// is possible. `found` means that the caller found it so, before any attempt of its own.
    pub(crate) async fn stuck(
        &self,
        stage: &Stage,
        labels: &Labels,
        error: hapax::Error,
        found: bool,
    ) -> Result<Error, Error> {
        let (dataset, hapax::Error::Blocked(blocked)) = (&stage.declared.dataset, &error) else {
            return Ok(error.into());
        };
        if let Some(holder) = blocked.holder {
            self.lock_failed(labels, holder);
            return match dataset.on_lock {
                LockPolicy::Escalate => self.held(stage, holder).await,
                LockPolicy::Skip | LockPolicy::Backoff => Ok(error.into()),
            };
        }
        match dataset.review || self.gives_up(stage, blocked, found).await? {
            true => self.escalate(stage, &blocked.reason).await,
            false => Ok(error.into()),
        }
    }

    /// Logs a refusal, and opens a review where the dataset requires one. A missing argument opens
    /// none: it is the caller's to give, and no approval takes its place.
    pub(crate) async fn refused(&self, stage: &Stage, refusal: Refusal) -> Result<Error, Error> {
        say_refused(&stage.about, &refusal);
        if stage.declared.dataset.review && refusal.missing_argument().is_none() {
            review::open(&self.hapax, &stage.about, &refusal.to_string()).await?;
        }
        Ok(Error::Refused(refusal))
    }

    /// Opens a review, and logs that.
    pub(crate) async fn escalate(&self, stage: &Stage, reason: &str) -> Result<Error, Error> {
        let review = review::open(&self.hapax, &stage.about, reason).await?;
        tracing::warn!(
            name: "operation_escalated", target: "hapax::pipeline",
            dataset_id = stage.about.operation.dataset_id, %review, "a review was opened"
        );
        Ok(Error::Escalated { review, reason: reason.to_owned() })
    }
}

fn say_refused(about: &OperationNote, refusal: &Refusal) {
    tracing::warn!(
        name: "operation_refused", target: "hapax::pipeline", guard = refusal.guard(),
        dataset_id = about.operation.dataset_id, "a guard said no"
    );
}
