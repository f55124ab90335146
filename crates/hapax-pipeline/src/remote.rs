//! Operations that a remote client performs: it requests a permit, does the work, and reports.
//!
//! The lifecycle is the same. The claim takes the lock, and the guards are checked before the
//! client gets its permit. The result is checked against its contract before it is settled.

use std::time::Duration;

use hapax::json::Json;
use hapax::remote::{LeaseId, Permit, Report, Settled};
use hapax::{AttemptId, Fence, Fingerprint, Key, LockPolicy, Refusal, Safety};

use crate::error::Error;
use crate::lifecycle::{self, Inputs, Progress, Stage, Stop, record};
use crate::meters::Meter;
use crate::operation::{Operation, OperationNote};
use crate::pipeline::Pipeline;
use crate::work::WorkResult;

/// A client's request for a permit.
#[derive(Debug, Clone, Default)]
pub struct PermitRequest {
    /// The operation.
    pub operation: Operation,
    /// The part of the dataset that it changes.
    pub part: Option<String>,
    /// A fingerprint that every later request for the operation has to match.
    pub fingerprint: Option<Fingerprint>,
    /// Documents that it reads, for the data contract.
    pub inputs: Vec<Json>,
    /// The safety class: what follows when the client vanishes.
    pub safety: Safety,
    /// The lease that the permit depends on.
    pub lease: Option<LeaseId>,
    /// How long the permit lasts, whatever the lease.
    pub deadline: Option<Duration>,
    /// How long to wait for another attempt at the same operation.
    pub wait: Duration,
}

/// A client's report.
#[derive(Debug, Clone)]
pub enum OperationReport {
    /// The operation succeeded with this result.
    WorkResult(Box<WorkResult>),
    /// It failed, happened in part, has an unknown outcome, or was released.
    Otherwise(Report),
}

impl Pipeline {
    /// Requests a permit on behalf of a client that does the work itself. A repeated request with
    /// the same attempt gets the same answer.
    pub async fn permit(
        &self,
        request: PermitRequest,
        attempt: AttemptId,
    ) -> Result<(Key, Permit), Error> {
        let PermitRequest { operation, part, fingerprint, inputs, safety, lease, deadline, wait } =
            request;
        let key = operation.key()?;
        let stage = self.stage(operation, part.as_deref()).await?;
        let labels = self.labels(&stage.about);
        self.reviewed(&stage, key).await?;
        let fingerprint = fingerprint.or_else(|| stage.fingerprint(&inputs));
        let claim = async |leave| {
            let effect = self.effect(key, &stage, part.as_deref(), fingerprint);
            let effect = effect.safety(safety).wait(wait).leave_partial(leave);
            let effect = match deadline {
                Some(deadline) => effect.deadline(deadline),
                None => effect,
            };
            effect.claim_for(attempt, lease).await.and_then(Permit::of)
        };
        let mut permit = claim(true).await;
        if let Err(error) = &permit
            && self.may_undo(&stage, key, error).await?
        {
            permit = claim(false).await;
        }
        match permit {
            Ok(Permit::Granted(grant)) => {
                let by = (grant.attempt, grant.fence);
                match self.may_begin(&stage, key, grant.nth, &inputs).await {
                    Ok(Ok(())) => {}
                    Ok(Err(refusal)) => {
                        let report = Report::Failed(Stop::Refused(refusal.clone()).reason());
                        self.hapax.remote().settle(key, by, report, Vec::new(), None).await?;
                        return Err(self.refused(&stage, refusal).await?);
                    }
                    // The client did not get the grant, so it has done nothing.
                    Err(error) => {
                        let report = Report::Released(format!("the guards: {error}"));
                        self.hapax.remote().settle(key, by, report, Vec::new(), None).await?;
                        return Err(error);
                    }
                }
                if grant.nth > 1 {
                    self.count(Meter::Retries, &labels);
                }
                self.counted(&labels, false);
                Ok((key, Permit::Granted(grant)))
            }
            Ok(replayed) => {
                self.counted(&labels, true);
                Ok((key, replayed))
            }
            Err(hapax::Error::Locked { holder }) => {
                self.lock_failed(&labels, holder);
                match stage.declared.dataset.on_lock {
                    LockPolicy::Escalate => Err(self.held(&stage, holder).await?),
                    LockPolicy::Skip | LockPolicy::Backoff => {
                        Err(hapax::Error::Locked { holder }.into())
                    }
                }
            }
            Err(error) => Err(self.stuck(&stage, &labels, error, true).await?),
        }
    }

    /// Checks the guards for an operation that was granted to a client.
    async fn may_begin(
        &self,
        stage: &Stage,
        key: Key,
        nth: u32,
        inputs: &[Json],
    ) -> Result<Result<(), Refusal>, Error> {
        let lately = self.lately(stage).await?;
        let inputs = Inputs { documents: inputs, unreadable: &[] };
        Ok(match self.review_since(key, nth).await? {
            Some(refusal) => Err(refusal),
            None => lifecycle::admitted(stage, lately, inputs).map(drop),
        })
    }

    /// Settles an operation as a client reports it. A result is checked against its contract first;
    /// if it fails, the operation is partial, and the client gets the refusal. `None` if the
    /// attempt was never granted.
    pub async fn report(
        &self,
        key: Key,
        by: (AttemptId, Fence),
        report: OperationReport,
    ) -> Result<Option<Settled>, Error> {
        let Some(stage) = self.granted(key, Some(by.0)).await? else { return Ok(None) };
        let remote = self.hapax.remote();
        let made = match report {
            OperationReport::WorkResult(made) => *made,
            OperationReport::Otherwise(report) => {
                // A client cannot report a guard's refusal.
                let own = |why: String| {
                    let why = stage.mask(&why);
                    match lifecycle::is_refusal(&why) {
                        true => format!("reported: {why}"),
                        false => why,
                    }
                };
                let report = match report {
                    Report::Failed(why) => Report::Failed(own(why)),
                    Report::Partial(why) => Report::Partial(own(why)),
                    Report::Ambiguous(why) => Report::Ambiguous(own(why)),
                    Report::Released(why) => Report::Released(own(why)),
                    // A success has to name its result.
                    Report::Succeeded(_) => {
                        return Err(Error::Invalid("a success names what was made".into()));
                    }
                };
                let failed = match &report {
                    Report::Failed(why) => stage.is_theirs().then(|| why.clone()),
                    _ => None,
                };
                let settled = remote.settle(key, by, report, Vec::new(), None).await?;
                if let Some(why) = failed.filter(|_| settled == Settled::Recorded) {
                    self.escalate(&stage, &why).await?;
                }
                return Ok(Some(settled));
            }
        };
        // The inputs were checked against the contract before the permit.
        let inputs = stage.about.terms.contract.then(|| "inputs".to_owned());
        let agreed = match stage.hold(&made) {
            Ok(outputs) => inputs.into_iter().chain(outputs).collect(),
            Err(refusal) => {
                let report = Report::Partial(Stop::Unfit(refusal.clone()).reason());
                remote.settle(key, by, report, Vec::new(), None).await?;
                return Err(self.refused(&stage, refusal).await?);
            }
        };
        let progress = Progress { agreed, ..Progress::default() };
        let recorded = record(&stage, made, None, progress, Vec::new());
        let (product, outcome, events) =
            recorded.map_err(|failure| Error::Invalid(failure.reason().to_owned()))?;
        let report = Report::Succeeded(outcome);
        let settled = remote.settle(key, by, report, events, Some(product.note())).await?;
        if settled == Settled::Recorded {
            self.took(&self.labels(&stage.about), &product);
        }
        Ok(Some(settled))
    }

    /// The operation that was granted to this attempt, or else last, as the journal has it.
    pub(crate) async fn granted(
        &self,
        key: Key,
        attempt: Option<AttemptId>,
    ) -> Result<Option<Stage>, Error> {
        let history = self.hapax.journal().history(key, HISTORY).await?;
        let ours = history.iter().filter(|e| attempt.is_none_or(|attempt| e.attempt == attempt));
        let about =
            ours.filter_map(|entry| OperationNote::read(entry.note.as_deref()?)).next_back();
        match about {
            Some(about) => {
                let declared = self.declared(&about.operation.dataset_id).await?;
                Ok(Some(Stage { about, declared, grid: self.grid(), checked: false }))
            }
            None => Ok(None),
        }
    }
}

/// The most entries of an operation's history that are read.
pub(crate) const HISTORY: usize = 10_000;
