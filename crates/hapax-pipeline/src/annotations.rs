//! Records of an operation outside its lifecycle, by verbs that work on any effect: people's
//! decisions and reasons, rollback steps, errors of a rollback. None of them is written finer than
//! the dataset allows.

use std::sync::Arc;

use hapax::json::Json;
use hapax::remote::{Look, Settled};
use hapax::{
    AttemptId, Blocked, Dataset, Finding, Judged, Key, Outcome, Redactor, Refusal, Resolution,
    Seen, StateName, Step,
};

use crate::error::Error;
use crate::lifecycle::{Stage, masked_outcome};
use crate::mask::{mask, mask_text};
use crate::pipeline::Pipeline;
use crate::remote::HISTORY;
use crate::review::{self, ReviewStatus};
use hapax::document::text;

/// Masks places to cells of this resolution.
pub(crate) struct Masking(u8);

impl Masking {
    /// The redactor of texts about a dataset, if it is masked.
    pub(crate) fn of(dataset: &Dataset) -> Option<Arc<dyn Redactor>> {
        let resolution = dataset.masked?;
        Some(Arc::new(Self(resolution)))
    }
}

impl Redactor for Masking {
    fn reason(&self, reason: &str) -> String {
        mask_text(reason, self.0)
    }

    fn outcome(&self, outcome: &Outcome) -> Outcome {
        masked_outcome(outcome, self.0)
    }

    fn keeps(&self, bytes: &[u8]) -> bool {
        if let Ok(json) = Json::parse(bytes) {
            return mask(&json, self.0).json == json;
        }
        std::str::from_utf8(bytes).is_ok_and(|text| mask_text(text, self.0) == text)
    }
}

impl Pipeline {
    /// Records a person's decision about an effect whose outcome is unknown. See
    /// [`Effects::resolve`](hapax::Effects::resolve).
    pub async fn resolve(
        &self,
        key: Key,
        seen: Seen,
        resolution: Resolution,
        (actor, note): (&str, &str),
    ) -> Result<Judged, Error> {
        let Some(redactor) = self.redactor(key).await? else {
            return Ok(self.hapax.effects().resolve(key, seen, resolution, actor, note).await?);
        };
        let resolution = match resolution {
            Resolution::Happened(outcome) => Resolution::Happened(redactor.outcome(&outcome)),
            other => other,
        };
        let note = redactor.reason(note);
        Ok(self.hapax.effects().resolve(key, seen, resolution, actor, &note).await?)
    }

    /// Clears a record, so that the effect can happen again. Refused while a review of it is
    /// pending or rejected. See [`Effects::reset`](hapax::Effects::reset).
    pub async fn reset(
        &self,
        key: Key,
        seen: Seen,
        (actor, note): (&str, &str),
    ) -> Result<Judged, Error> {
        // A cleared record begins anew, which would bypass the reviewer.
        if let Some(refusal) = review::unanswered(&self.hapax, key).await? {
            return Err(Error::Refused(refusal));
        }
        let redactor = self.redactor(key).await?;
        let note = redactor.map_or_else(|| note.to_owned(), |redactor| redactor.reason(note));
        Ok(self.hapax.effects().reset(key, seen, actor, &note).await?)
    }

    /// Records a reconciler's finding. See [`Remote::found`](hapax::remote::Remote::found).
    pub async fn found(&self, key: Key, look: Look, finding: Finding) -> Result<Judged, Error> {
        let finding = match (finding, self.redactor(key).await?) {
            (Finding::Happened(outcome), Some(redactor)) => {
                Finding::Happened(redactor.outcome(&outcome))
            }
            (other, _) => other,
        };
        Ok(self.hapax.remote().found(key, look, finding).await?)
    }

    /// Undoes the work of an attempt, done in part or in full. See
    /// [`Effects::roll_back`](hapax::Effects::roll_back).
    pub async fn roll_back(&self, key: Key, attempt: AttemptId) -> Result<bool, Error> {
        Ok(match self.redactor(key).await? {
            Some(redactor) => {
                self.hapax.effects().roll_back_redacted(key, attempt, &redactor).await?
            }
            None => self.hapax.effects().roll_back(key, attempt).await?,
        })
    }

    /// Whether a person has to decide, whatever the dataset declares: undoing failed too often or
    /// has an unknown outcome, or the caller found a partial operation without rollback steps.
    pub(crate) async fn gives_up(
        &self,
        stage: &Stage,
        blocked: &Blocked,
        found: bool,
    ) -> Result<bool, Error> {
        if blocked.state != StateName::Partial {
            return Ok(false);
        }
        let key = stage.about.operation.key()?;
        if found && self.hapax.effects().steps(key, blocked.attempt).await?.is_empty() {
            // An approval undoes nothing: the reviewer has to resolve the effect itself.
            return Ok(review::status_of(&self.hapax, key).await? != Some(ReviewStatus::Approved));
        }
        Ok(self.hapax.effects().gives_up_undoing(key, blocked.attempt, ROLLBACKS).await?)
    }

    /// Registers how to undo what a client is about to do. The step is kept verbatim, so it may not
    /// name an exact place.
    pub async fn undo_with(
        &self,
        key: Key,
        attempt: AttemptId,
        nth: usize,
        step: Step,
    ) -> Result<Settled, Error> {
        if let Some(redactor) = self.redactor(key).await?
            && !redactor.keeps_step(&step)
        {
            return Err(Error::Refused(Refusal::Check(EXACT.into())));
        }
        Ok(self.hapax.remote().undo_with(key, attempt, nth, step).await?)
    }

    /// Whether an effect is an operation on a dataset whose declaration differs from the default.
    /// Its result is then checked against the declaration, and has to be [reported](Self::report).
    pub async fn governs(&self, key: Key, attempt: AttemptId) -> Result<bool, Error> {
        if !self.declares().await? {
            return Ok(false);
        }
        let stage = self.granted(key, Some(attempt)).await?;
        Ok(stage.is_some_and(|stage| stage.declared.dataset != Dataset::default()))
    }

    /// The redactor of texts about an effect, such as an operation or a review of one.
    async fn redactor(&self, key: Key) -> Result<Option<Arc<dyn Redactor>>, Error> {
        if !self.declares().await? {
            return Ok(None);
        }
        let history = self.hapax.journal().history(key, HISTORY).await?;
        let notes = history.iter().rev().filter_map(|entry| entry.note.as_deref());
        let Some(dataset) = notes.filter_map(dataset_of).next() else { return Ok(None) };
        Ok(Masking::of(&self.declared(&dataset).await?.dataset))
    }
}

/// How often undoing a step may fail before an escalation.
const ROLLBACKS: u32 = 3;

const EXACT: &str = "rollback: it names an exact place of a masked dataset, or is not a text";

/// The dataset that a note of this crate names.
fn dataset_of(note: &str) -> Option<String> {
    if !note.starts_with('{') {
        return None;
    }
    let note = Json::parse(note.as_bytes()).ok()?;
    note.get("kind")?.as_str()?;
    text(&note, "dataset_id")
}
