//! An operation about to be run: the caller's request, and the tries until it has a result.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hapax::json::Json;
use hapax::{
    Backoff, Claim, Done, EffectBuilder, Failure, Fingerprint, How, Key, LockPolicy, Outcome,
    Refusal, StateName,
};
use tokio::time::Instant;

use crate::error::{Error, WorkError};
use crate::lifecycle::{Granted, Inputs, Stage, Stop, is_refusal};
use crate::meters::{Labels, Meter};
use crate::operation::Operation;
use crate::pipeline::Pipeline;
use crate::run::Product;
use crate::work::{Check, Work, WorkResult};

/// An operation about to be run. Made by [`Pipeline::operation`].
#[must_use = "nothing happens until it is run"]
pub struct OperationBuilder<'a> {
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
    /// Its product, if this call performed it.
    pub product: Option<Product>,
}

impl<'a> OperationBuilder<'a> {
    pub(crate) fn new(pipeline: &'a Pipeline, operation: Operation) -> Self {
        Self {
            pipeline,
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

    /// The part of the dataset it changes, where operations can work on parts (`shards`).
    pub fn part(mut self, part: impl Into<String>) -> Self {
        self.part = Some(part.into());
        self
    }

    /// A payload that every later request for the operation has to match.
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

    /// An input that is not JSON: every data contract refuses it.
    pub fn unreadable(mut self, name: impl Into<String>) -> Self {
        self.unreadable.push(name.into());
        self
    }

    /// A check that has to pass before the work begins. Its error is the reason if it does not.
    pub fn before<F, Fut>(mut self, name: &str, check: F) -> Self
    where
        F: Fn(Work) -> Fut + Send + Sync + 'a,
        Fut: Future<Output = Result<(), String>> + Send + 'a,
    {
        self.before.push(Check::new(name, check));
        self
    }

    /// A check that the result has to pass. If it does not, the operation is partial: it is rolled
    /// back before it is tried again.
    pub fn after<F, Fut>(mut self, name: &str, check: F) -> Self
    where
        F: Fn(Work) -> Fut + Send + Sync + 'a,
        Fut: Future<Output = Result<(), String>> + Send + 'a,
    {
        self.after.push(Check::new(name, check));
        self
    }

    /// Further settings of the effect: its safety class, a deadline, a reconciler.
    pub fn with(
        mut self,
        with: impl Fn(EffectBuilder) -> EffectBuilder + Send + Sync + 'a,
    ) -> Self {
        self.with = Box::new(with);
        self
    }

    /// Performs the operation, unless it was performed before, and returns its result.
    ///
    /// The work may be called several times: at once after a transient error, and as a whole, with
    /// the same inputs, as the dataset's policy allows.
    pub async fn run<F, Fut>(self, mut work: F) -> Result<Finished, Error>
    where
        F: FnMut(Work) -> Fut,
        Fut: Future<Output = Result<WorkResult, WorkError>>,
    {
        let pipeline = self.pipeline;
        let key = self.operation.key()?;
        let mut stage = pipeline.stage(self.operation.clone(), self.part.as_deref()).await?;
        stage.checked = !self.after.is_empty();
        let stage = Arc::new(stage);
        let fingerprint = self.fingerprint.or_else(|| stage.fingerprint(&self.inputs));
        let labels = pipeline.labels(&stage.about);
        pipeline.reviewed(&stage, key).await?;
        pipeline.budget().first(1);
        let (until, mut waits, mut tries) = (Instant::now() + pipeline.lock_wait(), 0, 0);
        let mut undo = false;
        loop {
            let mut end = End::default();
            let effect = pipeline.effect(key, &stage, self.part.as_deref(), fingerprint);
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
                NextTry::Again(pause) => pause,
                NextTry::Wait(holder) => {
                    waits += 1;
                    let pause = LOCKED.delay_ms(waits, dice()).map(Duration::from_millis);
                    let remaining = until.saturating_duration_since(Instant::now());
                    match pause.filter(|pause| *pause <= remaining) {
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
        Fut: Future<Output = Result<WorkResult, WorkError>>,
    {
        end.granted = true;
        let lately = self.pipeline.lately(stage).await;
        let not_done = |error: Error| Failure::not_done(error.to_string());
        let lately = lately.map_err(not_done)?;
        let open_review =
            self.pipeline.review_since(claim.key(), claim.nth()).await.map_err(not_done)?;
        let may_retry = || {
            let may = self.pipeline.budget().retry(Instant::now());
            if may {
                self.pipeline.count(Meter::Retries, labels);
            }
            may
        };
        let inputs = Inputs { documents: &self.inputs, unreadable: &self.unreadable };
        let steps = async {
            if let Some(refusal) = open_review {
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

    /// Decides after an error: another try, or an error for the caller.
    async fn judge(
        &self,
        stage: &Stage,
        labels: &Labels,
        error: hapax::Error,
        end: End,
        tries: u32,
    ) -> Result<NextTry, Error> {
        let (pipeline, dataset) = (self.pipeline, &stage.declared.dataset);
        let reason = match &error {
            &hapax::Error::Locked { holder } => {
                pipeline.lock_failed(labels, holder);
                return match dataset.on_lock {
                    LockPolicy::Skip => Err(Error::Skipped { holder }),
                    LockPolicy::Backoff => Ok(NextTry::Wait(holder)),
                    LockPolicy::Escalate => Err(pipeline.held(stage, holder).await?),
                };
            }
            hapax::Error::Failed { reason } => reason.clone(),
            // It happened in part. The next try rolls it back first, if a handler for its steps is
            // registered.
            hapax::Error::Blocked(blocked)
                if end.granted
                    && blocked.state == StateName::Partial
                    && blocked.holder.is_none() =>
            {
                blocked.reason.clone()
            }
            hapax::Error::Blocked(_) => {
                return Err(pipeline.stuck(stage, labels, error, tries == 0).await?);
            }
            _ => return Err(error.into()),
        };
        let refused = end.refusal.is_some() || is_refusal(&reason);
        if let Some(refusal) = end.refusal {
            return Err(pipeline.refused(stage, refusal).await?);
        }
        let patient = !(refused || stage.is_theirs());
        let again = dataset.retries;
        let pauses =
            Backoff { base_ms: again.base_ms, cap_ms: again.cap_ms, attempts: again.again };
        let pause = pauses.delay_ms(tries.max(1), dice()).filter(|_| patient);
        match pause.filter(|_| pipeline.budget().retry(Instant::now())) {
            Some(pause) => {
                pipeline.count(Meter::Retries, labels);
                Ok(NextTry::Again(Duration::from_millis(pause)))
            }
            None if dataset.review => Err(pipeline.escalate(stage, &reason).await?),
            None => Err(match error {
                hapax::Error::Failed { .. } => Error::Failed { tries, reason },
                partial => partial.into(),
            }),
        }
    }
}

/// The end of one attempt, as far as the ledger does not know it.
#[derive(Default)]
struct End {
    granted: bool,
    refusal: Option<Refusal>,
    product: Option<Product>,
}

/// When the operation is tried next.
enum NextTry {
    /// After this pause.
    Again(Duration),
    /// After a growing pause, because the operation of this key holds the lock.
    Wait(Key),
}

/// The pauses between tries to take a held lock.
const LOCKED: Backoff = Backoff { base_ms: 20, cap_ms: 1_000, attempts: u32::MAX };

/// Bits for jitter; if there are none, the longest pause.
fn dice() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_or(u64::MAX, |()| u64::from_be_bytes(bytes))
}
