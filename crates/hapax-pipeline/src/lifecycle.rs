//! The steps of an operation: granted, admitted, executed, validated, concluded. Each step consumes
//! the one before and returns the next, so none can be skipped or done twice.
//!
//! ```text
//!  key ─▶ lock ─▶ Granted ─admit─▶ Admitted ─execute─▶ Executed ─validate─▶ Validated ─conclude─▶ outcome
//! ```
//!
//! The claim takes the key and the lock in one transaction. The settle journals the outcome, from
//! which lineage follows, and releases the lock in another. No transaction is open in between.

use std::future::Future;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use hapax::canonical::canonical;
use hapax::guard::is_precise;
use hapax::json::Json;
use hapax::outbox::{Artifact as Registered, Event, Payload};
use hapax::{
    Backoff, Claim, Dataset, Failure, Fingerprint, Limits, LockKey, Outcome, Refusal, Tally,
};

use crate::contract::Contract;
use crate::declared::Declared;
use crate::energy::{CpuTime, Grid, Metered};
use crate::error::WorkError;
use crate::exact;
use crate::mask::{coarse, mask, mask_text};
use crate::operation::OperationNote;
use crate::run::Product;
use crate::work::{Check, Work, WorkResult};

/// The prefix of a refusal in the journal.
const REFUSED: &str = "refused: ";

/// Whether the reason of a failure is a guard's refusal.
pub(crate) fn is_refusal(reason: &str) -> bool {
    refusal(reason).is_some()
}

/// The guard's refusal, if that is the reason of a failure.
pub(crate) fn refusal(reason: &str) -> Option<&str> {
    reason.strip_prefix(REFUSED).filter(|text| Refusal::guard_of(text).is_some())
}

/// Why an operation stopped.
pub(crate) enum Stop {
    /// A guard refused it before anything was done.
    Refused(Refusal),
    /// A guard refused its result.
    Unfit(Refusal),
    /// The work failed.
    Failed(Failure),
}

impl Stop {
    /// The failure to settle with.
    pub(crate) fn failure(&self) -> Failure {
        match self {
            Self::Refused(_) => Failure::not_done(self.reason()),
            Self::Unfit(_) => Failure::partial(self.reason()),
            Self::Failed(failure) => failure.clone(),
        }
    }

    /// Why, for the journal.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Refused(refusal) | Self::Unfit(refusal) => format!("{REFUSED}{refusal}"),
            Self::Failed(failure) => failure.reason().to_owned(),
        }
    }
}

/// The guards that need neither a person nor the caller's checks: registration, error budget, CARE,
/// sovereignty, input contract. Returns the parts that were checked against a contract.
pub(crate) fn admitted(
    stage: &Stage,
    lately: Tally,
    inputs: Inputs<'_>,
) -> Result<Vec<String>, Refusal> {
    if stage.declared.missing {
        return Err(Refusal::Unregistered);
    }
    let operation = &stage.about.operation;
    let (why, by) = (operation.justification.as_deref(), operation.governance_ref.as_deref());
    stage.dataset().admit(why, by, lately)?;
    let Some(contract) = &stage.declared.inputs else { return Ok(Vec::new()) };
    hold(stage, contract, inputs, "inputs")?;
    Ok(vec!["inputs".to_owned()])
}

/// Everything that stays the same over all steps.
pub(crate) struct Stage {
    pub(crate) about: OperationNote,
    pub(crate) declared: Arc<Declared>,
    pub(crate) grid: Grid,
    /// Whether the caller added `after` checks.
    pub(crate) checked: bool,
}

impl Stage {
    /// Whether the people the dataset belongs to decide what happens after a failure: it is
    /// sovereign and requires reviews.
    pub(crate) fn is_theirs(&self) -> bool {
        self.dataset().review && self.dataset().sovereignty.is_some()
    }

    /// The fingerprint of the inputs, for a sensitive dataset where the caller gave no fingerprint.
    /// A retry with other inputs is then a conflict, so it cannot fill gaps in.
    pub(crate) fn fingerprint(&self, inputs: &[Json]) -> Option<Fingerprint> {
        if inputs.is_empty() || !self.dataset().is_sensitive() {
            return None;
        }
        let texts: Option<Vec<String>> = inputs.iter().map(|input| canonical(input).ok()).collect();
        let texts = texts?;
        Some(Fingerprint::of_parts(&texts.iter().map(String::as_bytes).collect::<Vec<_>>()))
    }

    /// The lock that the grant took.
    pub(crate) fn lock(&self) -> Option<LockKey> {
        self.about.terms.lock.as_deref().and_then(|lock| lock.parse().ok())
    }

    fn dataset(&self) -> &Dataset {
        &self.declared.dataset
    }

    /// Checks the documents of a result against the output contract, if there is one, and its names
    /// against the masking of the dataset.
    pub(crate) fn hold(&self, made: &WorkResult) -> Result<Option<String>, Refusal> {
        if let Some(resolution) = self.dataset().masked {
            exact::made(made, resolution).map_err(Refusal::Check)?;
        }
        let Some(contract) = &self.declared.outputs else { return Ok(None) };
        hold(
            self,
            contract,
            Inputs { documents: &made.documents, unreadable: &made.unreadable },
            "outputs",
        )
        .map(|()| Some("outputs".to_owned()))
    }

    /// A text as it may be recorded: secrets redacted, places masked.
    pub(crate) fn clean(&self, text: &str) -> String {
        self.mask(&hapax::guard::redact(text))
    }

    /// A text with its places masked to the dataset's resolution.
    pub(crate) fn mask(&self, text: &str) -> String {
        self.dataset().masked.map_or_else(|| text.to_owned(), |cells| mask_text(text, cells))
    }
}

/// The ledger has granted the operation, and the operation has its lock.
pub(crate) struct Granted {
    pub(crate) claim: Claim,
}

impl Granted {
    /// Checks the guards, then the caller's `before` checks.
    pub(crate) async fn admit(
        self,
        stage: &Arc<Stage>,
        lately: Tally,
        inputs: Inputs<'_>,
        checks: &[Check<'_>],
    ) -> Result<Admitted, Stop> {
        let agreed = admitted(stage, lately, inputs).map_err(Stop::Refused)?;
        let progress = Progress { agreed, ..Progress::default() };
        let work = Work::new(self.claim.clone(), stage.clone(), progress.clone());
        for Check { name, check } in checks {
            let passed = check(work.clone()).await;
            passed.map_err(|why| {
                Stop::Refused(Refusal::Check(stage.clean(&format!("{name}: {why}"))))
            })?;
        }
        Ok(Admitted { claim: self.claim, progress })
    }
}

/// Documents to check against a data contract.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) documents: &'a [Json],
    pub(crate) unreadable: &'a [String],
}

/// Checks every document against the contract. There has to be at least one.
fn hold(stage: &Stage, contract: &Contract, given: Inputs<'_>, what: &str) -> Result<(), Refusal> {
    let Inputs { documents, unreadable } = given;
    if let Some(name) = unreadable.first() {
        let name = stage.clean(name);
        let why = format!("{what}: {name} must be JSON or JSON lines");
        return Err(Refusal::Contract(why));
    }
    if documents.is_empty() {
        let why = format!("there is one for {what}, and nothing was given to hold against it");
        return Err(Refusal::Contract(why));
    }
    for (nth, document) in documents.iter().enumerate() {
        contract.check(document).map_err(|breach| {
            // The caller's member names may hold a place too, or half of one.
            let half =
                |name: &str| stage.dataset().masked.is_some() && is_precise(&Json::text(name));
            let breach = breach.rename_pointers(|name| match half(name) {
                true => "[masked]".to_owned(),
                false => stage.clean(name),
            });
            Refusal::Contract(stage.clean(&format!("{what} {nth}: {breach}")))
        })?;
    }
    Ok(())
}

/// The state of an attempt in progress, recorded with its outcome.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    /// The parts that were checked against a data contract.
    pub(crate) agreed: Vec<String>,
    /// CPU time.
    pub(crate) cpu: CpuTime,
    /// The number of quick retries.
    pub(crate) retries: u32,
}

/// Every guard has let it pass.
pub(crate) struct Admitted {
    claim: Claim,
    progress: Progress,
}

impl Admitted {
    /// Does the work, with a few quick retries after transient errors.
    pub(crate) async fn execute<F, Fut>(
        self,
        stage: &Arc<Stage>,
        mut work: F,
        mut dice: impl FnMut() -> u64,
        mut may_retry: impl FnMut() -> bool,
    ) -> Result<Executed, Stop>
    where
        F: FnMut(Work) -> Fut,
        Fut: Future<Output = Result<WorkResult, WorkError>>,
    {
        let quick = stage.dataset().retries;
        let attempts = if stage.is_theirs() { 0 } else { quick.quick };
        let pauses = Backoff { base_ms: quick.base_ms, cap_ms: quick.cap_ms, attempts };
        let mut progress = self.progress;
        loop {
            let doing = Work::new(self.claim.clone(), stage.clone(), progress.clone());
            let done = Metered::new(async { work(doing).await }, progress.cpu.clone()).await;
            let done = done.unwrap_or_else(|panic| match stage.dataset().masked {
                // A panic's message would pass by the masking, so it is replaced.
                Some(_) => Err(WorkError::ambiguous("the work panicked")),
                None => resume_unwind(panic),
            });
            let reason = match done {
                Ok(made) => return Ok(Executed { claim: self.claim, progress, made }),
                Err(WorkError::Failure(failure)) => {
                    return Err(Stop::Failed(failure.redacted(|reason| stage.mask(reason))));
                }
                Err(WorkError::Refused(refusal)) => return Err(Stop::Refused(refusal)),
                Err(WorkError::Transient(reason)) => stage.mask(&reason),
            };
            let Some(pause) = pauses.delay_ms(progress.retries + 1, dice()) else {
                return Err(Stop::Failed(Failure::not_done(reason)));
            };
            if !may_retry() {
                let reason = format!("{reason}; too many retries are under way");
                return Err(Stop::Failed(Failure::not_done(reason)));
            }
            tokio::time::sleep(Duration::from_millis(pause)).await;
            // Another attempt may have taken over.
            if let Err(stop) = self.claim.check().await {
                return Err(Stop::Failed(Failure::ambiguous(format!("{reason}; then: {stop}"))));
            }
            progress.retries += 1;
        }
    }
}

/// The work is done. Its result is not checked yet.
pub(crate) struct Executed {
    claim: Claim,
    progress: Progress,
    made: WorkResult,
}

impl Executed {
    /// Checks the result against the contract and the caller's `after` checks. A result that fails
    /// has happened all the same, and has to be rolled back.
    pub(crate) async fn validate(
        mut self,
        stage: &Arc<Stage>,
        checks: &[Check<'_>],
    ) -> Result<Validated, Stop> {
        self.progress.agreed.extend(stage.hold(&self.made).map_err(Stop::Unfit)?);
        let work = Work::new(self.claim.clone(), stage.clone(), self.progress.clone());
        let mut passed = Vec::new();
        for Check { name, check } in checks {
            check(work.clone()).await.map_err(|why| {
                Stop::Unfit(Refusal::Check(stage.clean(&format!("{name}: {why}"))))
            })?;
            passed.push(name.clone());
        }
        Ok(Validated { executed: self, passed })
    }
}

/// The result passed every check.
pub(crate) struct Validated {
    executed: Executed,
    passed: Vec<String>,
}

impl Validated {
    /// Gives the claim the masked product and events to record, and returns the outcome.
    pub(crate) fn conclude(self, stage: &Arc<Stage>) -> Result<(Outcome, Product), Stop> {
        let Self { executed: Executed { claim, progress, made }, passed } = self;
        let cpu = Some(progress.cpu.total());
        let (product, outcome, events) =
            record(stage, made, cpu, progress, passed).map_err(Stop::Failed)?;
        attach(&claim, &product, events);
        Ok((outcome, product))
    }
}

/// Gives a claim the product and the events that are recorded with its outcome.
pub(crate) fn attach(claim: &Claim, product: &Product, events: Vec<Event>) {
    claim.emit_instead(events);
    claim.note(product.note());
}

/// The product, outcome and events of a result: nothing in them is finer than the dataset allows.
pub(crate) fn record(
    stage: &Stage,
    made: WorkResult,
    cpu: Option<Duration>,
    progress: Progress,
    checks: Vec<String>,
) -> Result<(Product, Outcome, Vec<Event>), Failure> {
    let WorkResult { result, mut outputs, documents, events, cpu: measured, .. } = made;
    let masked = stage.dataset().masked;
    let checks = checks.iter().map(|check| stage.clean(check)).collect();
    for output in &mut outputs {
        output.uri = stage.clean(&output.uri);
    }
    if let Some(finest) = masked {
        let cells = documents.iter().flat_map(|document| mask(document, finest).cells);
        let cells = coarse(cells, finest, MOST_CELLS);
        for output in &mut outputs {
            match output.cells.is_empty() {
                true => output.cells.clone_from(&cells),
                false => output.cells = coarse(output.cells.drain(..), finest, MOST_CELLS),
            }
        }
    }
    let result = match masked {
        Some(resolution) => masked_outcome(&result, resolution),
        None => result,
    };
    let events = events.into_iter().map(|event| outgoing(stage, event));
    let events = events.collect::<Result<Vec<_>, _>>()?;
    let energy = measured.or(cpu).map(|cpu| stage.grid.estimate(cpu));
    let Progress { agreed: contract, retries, .. } = progress;
    let product = fit(Product { outputs, contract, checks, energy, retries })?;
    Ok((product, result, events))
}

/// The most cells that are kept for one output.
const MOST_CELLS: usize = 256;

/// Makes a product fit into a note of the journal: as long as it is too large, each output keeps
/// half as many cells, and coarser ones.
fn fit(mut product: Product) -> Result<Product, Failure> {
    let mut most = MOST_CELLS;
    while product.note().len() > Limits::NOTE {
        if most == 0 {
            let why = format!("what was made takes more than the {} bytes of a note", Limits::NOTE);
            return Err(Failure::partial(why));
        }
        most /= 2;
        for output in &mut product.outputs {
            output.cells = coarse(output.cells.drain(..), u8::MAX, most);
        }
    }
    Ok(product)
}

/// An event as it may be sent: masked, with the label and the reference that its dataset requires.
fn outgoing(stage: &Stage, event: Event) -> Result<Event, Failure> {
    let json = Json::parse(event.payload.as_str().as_bytes())?;
    let mut json = match stage.dataset().masked {
        Some(resolution) => mask(&json, resolution).json,
        None => json,
    };
    let governance = stage.about.operation.governance_ref.as_deref();
    let owed = [
        ("care_label", stage.dataset().care_label.as_deref()),
        ("governance_ref", governance.filter(|_| stage.dataset().restricted)),
    ];
    for (name, text) in owed {
        if let (Json::Object(members), Some(text)) = (&mut json, text)
            && !members.iter().any(|(there, _)| there == name)
        {
            members.push((name.to_owned(), Json::text(text)));
        }
    }
    let pipeline = event.pipeline.or_else(|| Some(stage.about.operation.pipeline_id.clone()));
    let artifact = event.artifact.map(|one| Registered { uri: stage.clean(&one.uri), ..one });
    Ok(Event { payload: Payload::of(&json)?, pipeline, artifact, ..event })
}

/// An outcome with its places masked. A body that cannot be read cannot be masked: only its digest
/// and size are kept.
pub(crate) fn masked_outcome(result: &Outcome, resolution: u8) -> Outcome {
    let not_kept = || Outcome::not_kept(result.digest(), result.size());
    let Some(body) = result.body() else { return not_kept() };
    if let Ok(json) = Json::parse(body) {
        return match Payload::of(&mask(&json, resolution).json) {
            Ok(payload) => Outcome::from(payload.as_str()),
            Err(_) => not_kept(),
        };
    }
    match std::str::from_utf8(body) {
        Ok(text) => Outcome::from(mask_text(text, resolution)),
        Err(_) => not_kept(),
    }
}
