//! Operations on datasets: what is declared of them, and one way to run them.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hapax::json::Json;
use hapax::{
    Backoff, Budget, Claim, Done, EffectBuilder, Failure, Fingerprint, Hapax, How, Key, LockPolicy,
    Outcome, Refusal, StateName, Tally,
};
use tokio::time::Instant;

use crate::declared::{Declarations, Declared};
use crate::energy::Grid;
use crate::error::{Error, Trouble};
use crate::exact;
use crate::lifecycle::{Granted, Inputs, Stage, Stop, admitted, is_refusal};
use crate::mask::mask_text;
use crate::meters::{Labels, Meter, Meters};
use crate::operation::{About, Operation, Terms};
use crate::refusal::{self, Refused};
use crate::review;
use crate::run::Product;
use crate::said::Masking;
use crate::tally::Tallies;
use crate::work::{Check, Made, Work};

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

/// How operations are run here.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What metrics say under `env`.
    pub environment: String,
    /// What CPU time costs.
    pub grid: Grid,
    /// How long to wait for somebody else who is at work on the dataset, where its policy is to
    /// wait.
    pub lock_wait: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let environment = "default".to_owned();
        Self { environment, grid: Grid::default(), lock_wait: Duration::from_secs(30) }
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

    /// The same pipelines, seen from another namespace.
    pub fn on(&self, hapax: Hapax) -> Self {
        Self { hapax, inner: self.inner.clone() }
    }

    /// What was counted here.
    pub fn meters(&self) -> Arc<Meters> {
        self.inner.meters.clone()
    }

    /// Begins to describe an operation.
    pub fn operation(&self, operation: Operation) -> Asked<'_> {
        Asked {
            pipeline: self,
            operation,
            part: None,
            fingerprint: None,
            inputs: Vec::new(),
            unreadable: Vec::new(),
            before: Vec::new(),
            after: Vec::new(),
            with: Box::new(|effect| effect),
        }
    }

    /// What is declared of a dataset. What changes elsewhere is seen here within a second.
    pub(crate) async fn declared(&self, name: &str) -> Result<Arc<Declared>, Error> {
        self.inner.declarations.of(&self.hapax, name).await
    }

    /// Whether anything is declared of any dataset.
    pub(crate) async fn declares(&self) -> Result<bool, Error> {
        self.inner.declarations.any(&self.hapax).await
    }

    /// How operations on a dataset went lately, where that matters.
    pub(crate) async fn lately(&self, stage: &Stage) -> Result<Tally, Error> {
        match stage.declared.dataset.slo {
            Some(slo) => {
                let dataset = &stage.about.operation.dataset_id;
                self.inner.tallies.lately(&self.hapax, dataset, slo).await
            }
            None => Ok(Tally::default()),
        }
    }

    /// Everything that stays the same while an operation is tried.
    pub(crate) async fn stage(
        &self,
        operation: Operation,
        part: Option<&str>,
    ) -> Result<Stage, Error> {
        operation.key()?;
        let declared = self.declared(&operation.dataset_id).await?;
        let dataset = &declared.dataset;
        if let Some(resolution) = dataset.masked {
            exact::asked(&operation, resolution).map_err(Error::Invalid)?;
        }
        let lock = dataset.lock(&operation.dataset_id, &operation.operation_type, part);
        let terms = Terms {
            owner: dataset.owner.clone(),
            care_label: dataset.care_label.clone(),
            sovereign: dataset.sovereignty.is_some(),
            masked: dataset.masked,
            lock: Some(lock.to_string()),
            contract: declared.inputs.is_some(),
        };
        let operation = match declared.missing {
            // Nobody has said how places of it are to be told of.
            true => bare(operation),
            false => written(operation, dataset.masked),
        };
        Ok(Stage { about: About { operation, terms }, declared, grid: self.inner.settings.grid })
    }

    /// What the guards say if an operation is to begin again now, with what it read then. A no is
    /// written down, and said.
    pub(crate) async fn refuses_replay(
        &self,
        operation: &Operation,
        inputs: Inputs<'_>,
    ) -> Result<Option<Refusal>, Error> {
        let masked = self.declared(&operation.dataset_id).await?.dataset.masked;
        // It was asked for before the dataset was masked; nothing more is written of it now.
        if let Some(why) = masked.and_then(|resolution| exact::asked(operation, resolution).err()) {
            return Ok(Some(Refusal::Check(why)));
        }
        let stage = self.stage(operation.clone(), None).await?;
        let lately = self.lately(&stage).await?;
        let Err(refusal) = admitted(&stage, lately, inputs) else { return Ok(None) };
        refusal::record(&self.hapax, &stage.about, Refused::REPLAY, &refusal).await?;
        say_refused(&stage.about, &refusal);
        Ok(Some(refusal))
    }

    /// Whether somebody was asked about this operation and has not said yes. What is refused for
    /// that is written down, and said.
    pub(crate) async fn reviewed(&self, stage: &Stage, key: Key) -> Result<(), Error> {
        let dataset = &stage.declared.dataset;
        if !dataset.review && dataset.on_lock != LockPolicy::Escalate {
            return Ok(());
        }
        let Some(refusal) = review::unanswered(&self.hapax, key).await? else { return Ok(()) };
        // What was done is told, whatever somebody was asked since.
        let effect = self.hapax.show(key).await?;
        if effect.is_some_and(|effect| effect.state.name() == StateName::Succeeded) {
            return Ok(());
        }
        Err(self.turned_away(stage, refusal).await?)
    }

    /// Whether this error is that some of it happened, which is to be undone before it is tried
    /// again. Where somebody was asked about it and has not said yes, that is refused first.
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

    /// Writes down and says that an operation was refused before it was granted.
    async fn turned_away(&self, stage: &Stage, refusal: Refusal) -> Result<Error, Error> {
        refusal::record(&self.hapax, &stage.about, Refused::OPERATION, &refusal).await?;
        say_refused(&stage.about, &refusal);
        Ok(Error::Refused(refusal))
    }

    /// The same of one that is granted again, on whatever terms: a person may have asked since.
    pub(crate) async fn asked_since(&self, key: Key, nth: u32) -> Result<Option<Refusal>, Error> {
        match nth {
            1 => Ok(None),
            _ => review::unanswered(&self.hapax, key).await,
        }
    }

    pub(crate) fn labels(&self, about: &About) -> Labels {
        Labels::of(about, &self.inner.settings.environment)
    }

    pub(crate) fn count(&self, meter: Meter, labels: &Labels) {
        self.inner.meters.add(meter, labels, 1);
    }

    /// Counts what an operation took, as far as that is known.
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

    /// Says that somebody else is at work on the dataset.
    pub(crate) fn lock_failed(&self, labels: &Labels, holder: Key) {
        self.count(Meter::LockFailures, labels);
        tracing::warn!(
            name: "lock_acquire_failed", target: "hapax::pipeline",
            pipeline = labels.pipeline, task = labels.task, dataset_id = labels.dataset_id,
            operation_type = labels.operation_type, sovereignty_event = labels.sovereignty_event,
            %holder, "somebody else is at work on the dataset"
        );
    }

    fn budget(&self) -> MutexGuard<'_, Budget> {
        lock(&self.inner.budget)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The operation with nothing but its key.
fn bare(operation: Operation) -> Operation {
    let (inputs, program) = (Vec::new(), Vec::new());
    Operation { inputs, program, justification: None, governance_ref: None, ..operation }
}

/// The operation as it is written down: no places that are finer than allowed, and no secrets.
fn written(operation: Operation, masked: Option<u8>) -> Operation {
    let clean = |text: &String| {
        let text = hapax::guard::redact(text);
        masked.map_or(text.clone(), |cells| mask_text(&text, cells))
    };
    let mut operation = operation;
    operation.justification = operation.justification.as_ref().map(clean);
    operation.governance_ref = operation.governance_ref.as_ref().map(clean);
    operation.program = operation.program.iter().map(clean).collect();
    for input in &mut operation.inputs {
        input.name = clean(&input.name);
        input.uri = input.uri.as_ref().map(clean);
    }
    operation
}

/// An operation about to be run. Made by [`Pipeline::operation`].
#[must_use = "nothing happens until it is run"]
pub struct Asked<'a> {
    pipeline: &'a Pipeline,
    operation: Operation,
    part: Option<String>,
    fingerprint: Option<Fingerprint>,
    inputs: Vec<Json>,
    unreadable: Vec<String>,
    before: Vec<Check<'a>>,
    after: Vec<Check<'a>>,
    with: Box<dyn Fn(EffectBuilder) -> EffectBuilder + Send + Sync + 'a>,
}

/// An operation that has a result.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Its key.
    pub key: Key,
    /// The result, and how this caller came by it.
    pub done: Done,
    /// What came of it, if it was performed just now by this call.
    pub product: Option<Product>,
}

impl<'a> Asked<'a> {
    /// Which part of the dataset it is about, where that is worked on in parts (`shards`).
    pub fn part(mut self, part: impl Into<String>) -> Self {
        self.part = Some(part.into());
        self
    }

    /// What else has to be the same when it is asked for again.
    pub fn payload(mut self, payload: &[u8]) -> Self {
        self.fingerprint = Some(Fingerprint::of(payload));
        self
    }

    /// The same, by its fingerprint.
    pub fn fingerprint(mut self, fingerprint: Fingerprint) -> Self {
        self.fingerprint = Some(fingerprint);
        self
    }

    /// A document that it reads, for the data contract.
    pub fn input(mut self, document: Json) -> Self {
        self.inputs.push(document);
        self
    }

    /// Something that it reads and that is no JSON: no data contract lets it pass.
    pub fn unreadable(mut self, name: impl Into<String>) -> Self {
        self.unreadable.push(name.into());
        self
    }

    /// Something that has to hold before the work begins. Its error says why it does not.
    pub fn before<F, Fut>(mut self, name: &str, check: F) -> Self
    where
        F: Fn(Work) -> Fut + Send + Sync + 'a,
        Fut: Future<Output = Result<(), String>> + Send + 'a,
    {
        self.before.push(Check::new(name, check));
        self
    }

    /// Something that has to hold of what was made. If it does not, the operation is partial: it
    /// is rolled back before it is tried again.
    pub fn after<F, Fut>(mut self, name: &str, check: F) -> Self
    where
        F: Fn(Work) -> Fut + Send + Sync + 'a,
        Fut: Future<Output = Result<(), String>> + Send + 'a,
    {
        self.after.push(Check::new(name, check));
        self
    }

    /// Whatever else can be said of an effect: its safety class, a deadline, a reconciler.
    pub fn with(
        mut self,
        with: impl Fn(EffectBuilder) -> EffectBuilder + Send + Sync + 'a,
    ) -> Self {
        self.with = Box::new(with);
        self
    }

    /// Performs the operation, unless it was performed before; then tells what came of it.
    ///
    /// The work may be called several times: at once while what is in the way passes by itself,
    /// and as a whole, with the same inputs, as the dataset's policy says.
    pub async fn run<F, Fut>(self, mut work: F) -> Result<Finished, Error>
    where
        F: FnMut(Work) -> Fut,
        Fut: Future<Output = Result<Made, Trouble>>,
    {
        let pipeline = self.pipeline;
        let key = self.operation.key()?;
        let stage = Arc::new(pipeline.stage(self.operation.clone(), self.part.as_deref()).await?);
        let labels = pipeline.labels(&stage.about);
        pipeline.reviewed(&stage, key).await?;
        pipeline.budget().first(1);
        let (until, mut waits, mut tries) =
            (Instant::now() + pipeline.inner.settings.lock_wait, 0, 0);
        let mut undo = false;
        loop {
            let mut end = End::default();
            let effect = pipeline.effect(key, &stage, self.part.as_deref(), self.fingerprint);
            let result = (self.with)(effect.leave_partial(!undo))
                .run(async |claim| self.perform(claim, &stage, &mut work, &labels, &mut end).await)
                .await;
            tries += u32::from(end.granted);
            let error = match result {
                Ok(done) => {
                    pipeline.counted(&labels, done.how != How::Executed);
                    if let Some(product) = &end.product {
                        pipeline.took(&labels, product);
                    }
                    return Ok(Finished { key, done, product: end.product });
                }
                Err(error) => error,
            };
            undo = !undo && !end.granted && pipeline.may_undo(&stage, key, &error).await?;
            if undo {
                continue;
            }
            let pause = match self.judge(&stage, &labels, error, end, tries).await? {
                Next::Again(pause) => pause,
                Next::Wait(holder) => {
                    waits += 1;
                    let pause = LOCKED.delay_ms(waits, dice()).map(Duration::from_millis);
                    let left = until.saturating_duration_since(Instant::now());
                    match pause.filter(|pause| *pause <= left) {
                        Some(pause) => pause,
                        None => return Err(hapax::Error::Locked { holder }.into()),
                    }
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// One attempt, from the grant to the outcome.
    async fn perform<F, Fut>(
        &self,
        claim: Claim,
        stage: &Arc<Stage>,
        work: &mut F,
        labels: &Labels,
        end: &mut End,
    ) -> Result<Outcome, Failure>
    where
        F: FnMut(Work) -> Fut,
        Fut: Future<Output = Result<Made, Trouble>>,
    {
        end.granted = true;
        let lately = self.pipeline.lately(stage).await;
        let not_done = |error: Error| Failure::not_done(error.to_string());
        let lately = lately.map_err(not_done)?;
        let asked = self.pipeline.asked_since(claim.key(), claim.nth()).await.map_err(not_done)?;
        let may_retry = || {
            let may = self.pipeline.budget().retry(Instant::now());
            if may {
                self.pipeline.count(Meter::Retries, labels);
            }
            may
        };
        let inputs = Inputs { documents: &self.inputs, unreadable: &self.unreadable };
        let steps = async {
            if let Some(refusal) = asked {
                return Err(Stop::Refused(refusal));
            }
            let admitted = Granted { claim }.admit(stage, lately, inputs, &self.before).await?;
            let executed = admitted.execute(stage, work, dice, may_retry).await?;
            executed.validate(stage, &self.after).await?.conclude(stage)
        };
        match steps.await {
            Ok((outcome, product)) => {
                end.product = Some(product);
                Ok(outcome)
            }
            Err(stop) => {
                let failure = stop.failure();
                if let Stop::Refused(refusal) | Stop::Unfit(refusal) = stop {
                    end.refusal = Some(refusal);
                }
                Err(failure)
            }
        }
    }

    /// What an error leads to: another try, or what the caller is told.
    async fn judge(
        &self,
        stage: &Stage,
        labels: &Labels,
        error: hapax::Error,
        end: End,
        tries: u32,
    ) -> Result<Next, Error> {
        let (pipeline, dataset) = (self.pipeline, &stage.declared.dataset);
        let reason = match &error {
            &hapax::Error::Locked { holder } => {
                pipeline.lock_failed(labels, holder);
                return match dataset.on_lock {
                    LockPolicy::Skip => Err(Error::Skipped { holder }),
                    LockPolicy::Backoff => Ok(Next::Wait(holder)),
                    LockPolicy::Escalate => {
                        Err(pipeline.escalate(stage, &format!("{holder} holds the lock")).await?)
                    }
                };
            }
            hapax::Error::Failed { reason } => reason.clone(),
            // Some of it happened. It is rolled back before the next try, if somebody knows how.
            hapax::Error::Blocked(blocked)
                if end.granted
                    && blocked.state == StateName::Partial
                    && blocked.holder.is_none() =>
            {
                blocked.reason.clone()
            }
            hapax::Error::Blocked(blocked) if blocked.holder.is_none() => {
                let found = tries == 0;
                if dataset.review || pipeline.gives_up(stage, blocked, found).await? {
                    return Err(pipeline.escalate(stage, &blocked.reason).await?);
                }
                return Err(error.into());
            }
            _ => return Err(error.into()),
        };
        let refused = end.refusal.is_some() || is_refusal(&reason);
        if let Some(refusal) = end.refusal {
            return Err(pipeline.refused(stage, refusal).await?);
        }
        let theirs = dataset.review && dataset.sovereignty.is_some();
        let patient = !(refused || theirs);
        let again = dataset.retries;
        let pauses =
            Backoff { base_ms: again.base_ms, cap_ms: again.cap_ms, attempts: again.again };
        let pause = pauses.delay_ms(tries.max(1), dice()).filter(|_| patient);
        match pause.filter(|_| pipeline.budget().retry(Instant::now())) {
            Some(pause) => {
                pipeline.count(Meter::Retries, labels);
                Ok(Next::Again(Duration::from_millis(pause)))
            }
            None if dataset.review => Err(pipeline.escalate(stage, &reason).await?),
            None => Err(match error {
                hapax::Error::Failed { .. } => Error::Failed { tries, reason },
                partial => partial.into(),
            }),
        }
    }
}

impl Pipeline {
    /// An operation as an effect: under its key, with its lock, and what the journal says of it.
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
            Some(masking) => effect.worded(masking),
            None => effect,
        };
        match fingerprint {
            Some(fingerprint) => effect.fingerprint(fingerprint),
            None => effect,
        }
    }

    pub(crate) fn grid(&self) -> Grid {
        self.inner.settings.grid
    }

    /// What a refusal leads to: a person is asked where the dataset says so.
    pub(crate) async fn refused(&self, stage: &Stage, refusal: Refusal) -> Result<Error, Error> {
        say_refused(&stage.about, &refusal);
        if stage.declared.dataset.review {
            review::open(&self.hapax, &stage.about, &refusal.to_string()).await?;
        }
        Ok(Error::Refused(refusal))
    }

    /// Asks a person, and says so.
    pub(crate) async fn escalate(&self, stage: &Stage, reason: &str) -> Result<Error, Error> {
        let review = review::open(&self.hapax, &stage.about, reason).await?;
        tracing::warn!(
            name: "operation_escalated", target: "hapax::pipeline",
            dataset_id = stage.about.operation.dataset_id, %review, "a person was asked"
        );
        Ok(Error::Escalated { review, reason: reason.to_owned() })
    }
}

fn say_refused(about: &About, refusal: &Refusal) {
    tracing::warn!(
        name: "operation_refused", target: "hapax::pipeline", guard = refusal.guard(),
        dataset_id = about.operation.dataset_id, "a guard said no"
    );
}

/// How one attempt ended, beside what the ledger knows.
#[derive(Default)]
struct End {
    granted: bool,
    refusal: Option<Refusal>,
    product: Option<Product>,
}

enum Next {
    Again(Duration),
    Wait(Key),
}

/// The pauses between looks at a lock that somebody holds.
const LOCKED: Backoff = Backoff { base_ms: 20, cap_ms: 1_000, attempts: u32::MAX };

/// Bits for jitter; if there are none, the longest pause.
fn dice() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_or(u64::MAX, |()| u64::from_be_bytes(bytes))
}
