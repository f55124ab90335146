//! Reviews: questions to a person about an operation, and the answers.
//!
//! A review is an effect that only a person can settle. An open review is indeterminate, an
//! approved one succeeded, a rejected one is skipped. So a review is journalled, decided once, and
//! found by `hapax effects`, like any other effect.

use hapax::json::Json;
use hapax::{
    AttemptId, EffectRecord, Failure, Filter, Hapax, Judged, Key, Name, Outcome, Refusal,
    Resolution, State, StateName, Timestamp,
};

use crate::error::Error;
use crate::operation::OperationNote;
use crate::pipeline::Pipeline;
use hapax::document::{Object, text};

/// A question to a person about an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Review {
    /// The key of the review itself.
    pub key: Key,
    /// The attempt that a decision names, so that a stale screen cannot decide a newer question.
    pub attempt: AttemptId,
    /// The operation.
    pub operation: Key,
    /// The dataset of the operation.
    pub dataset_id: String,
    /// The pipeline of the operation.
    pub pipeline_id: String,
    /// Why the review was opened.
    pub reason: String,
    /// The person who escalated, if a person did.
    pub asked_by: Option<String>,
    /// When it was opened.
    pub opened: Timestamp,
    /// Its status.
    pub status: ReviewStatus,
}

/// The status of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReviewStatus {
    /// No reviewer has decided yet.
    Pending,
    /// The operation may be tried again; its guards hold as before.
    Approved,
    /// The operation may not be tried again.
    Rejected,
}

impl ReviewStatus {
    /// The name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Rejected => "rejected",
        }
    }

    fn of(state: &State) -> Self {
        match state {
            State::Succeeded(_) => Self::Approved,
            State::Skipped { .. } => Self::Rejected,
            _ => Self::Pending,
        }
    }
}

/// The prefix of a review's label.
const LABEL: &str = "review: ";

/// The `kind` of a review's note.
const KIND: &str = "review.v1";

fn key(subject: Key, nth: u64) -> Result<Key, Error> {
    let fields: [(&str, &[u8]); 2] =
        [("operation", subject.as_bytes()), ("nth", &nth.to_be_bytes())];
    Ok(Key::derive(KIND, &fields)?)
}

/// The number of a subject's newest review, and its status.
async fn newest(hapax: &Hapax, subject: Key) -> Result<(u64, Option<ReviewStatus>), Error> {
    let show = async |nth| hapax.effects().show(key(subject, nth)?).await.map_err(Error::from);
    let Some(mut found) = show(0).await? else { return Ok((0, None)) };
    // Reviews are numbered without gaps.
    let (mut newest, mut absent) = (0, 1);
    while let Some(effect) = show(absent).await? {
        (found, newest, absent) = (effect, absent, absent * 2);
    }
    while absent - newest > 1 {
        let middle = newest + (absent - newest) / 2;
        match show(middle).await? {
            Some(effect) => (found, newest) = (effect, middle),
            None => absent = middle,
        }
    }
    Ok((newest, Some(ReviewStatus::of(&found.state))))
}

/// The status of a subject's newest review, if there is one. A subject is an operation, or
/// something that came of one.
pub async fn status_of(hapax: &Hapax, subject: Key) -> Result<Option<ReviewStatus>, Error> {
    Ok(newest(hapax, subject).await?.1)
}

/// The refusal of an operation whose newest review is pending or rejected.
pub(crate) async fn unanswered(hapax: &Hapax, operation: Key) -> Result<Option<Refusal>, Error> {
    let why = match status_of(hapax, operation).await? {
        Some(ReviewStatus::Pending) => "its review is pending",
        Some(ReviewStatus::Rejected) => "a reviewer rejected it",
        Some(ReviewStatus::Approved) | None => return Ok(None),
    };
    Ok(Some(Refusal::Review(why.into())))
}

/// Opens a review of an operation. A pending or rejected review stays as it is; after an approved
/// one a new one opens.
pub async fn open(hapax: &Hapax, about: &OperationNote, reason: &str) -> Result<Key, Error> {
    open_about(hapax, about.operation.key()?, about, reason).await
}

/// Opens a review of something that came of an operation. An approval covers this subject only.
pub async fn open_about(
    hapax: &Hapax,
    subject: Key,
    about: &OperationNote,
    reason: &str,
) -> Result<Key, Error> {
    open_by(hapax, subject, about, reason, None).await
}

/// Opens a review because a person requests it, whatever the dataset declares. `None` if no
/// operation of this key was ever granted.
pub async fn escalate(
    pipeline: &Pipeline,
    operation: Key,
    (actor, note): (&str, &str),
) -> Result<Option<(Key, ReviewStatus)>, Error> {
    let Some(stage) = pipeline.granted(operation, None).await? else { return Ok(None) };
    let (hapax, reason) = (&pipeline.hapax, stage.clean(note));
    let review = open_by(hapax, operation, &stage.about, &reason, Some(actor)).await?;
    Ok(status_of(hapax, operation).await?.map(|status| (review, status)))
}

async fn open_by(
    hapax: &Hapax,
    subject: Key,
    about: &OperationNote,
    reason: &str,
    asked_by: Option<&str>,
) -> Result<Key, Error> {
    let operation = about.operation.key()?;
    let nth = match newest(hapax, subject).await? {
        (_, None) => 0,
        (nth, Some(ReviewStatus::Pending | ReviewStatus::Rejected)) => nth,
        (nth, Some(ReviewStatus::Approved)) => nth + 1,
    };
    let key = key(subject, nth)?;
    let note = Object::default()
        .text("kind", KIND)
        .text("operation", operation.to_string().as_str())
        .text("dataset_id", about.operation.dataset_id.as_str())
        .text("pipeline_id", about.operation.pipeline_id.as_str())
        .text("reason", reason)
        .text("asked_by", asked_by);
    let label = labelled(LABEL, about);
    let effect = hapax.effect(key).payload(subject.as_bytes()).label(label).about(note.print());
    match effect.run(|_| async { Err::<(), _>(Failure::ambiguous(reason)) }).await {
        Ok(_) | Err(hapax::Error::Blocked(_) | hapax::Error::Refused { .. }) => Ok(key),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn labelled(what: &str, about: &OperationNote) -> String {
    format!("{what}{}", about.operation.dataset_id).chars().take(60).collect()
}

/// Reviews of this namespace, newest first; with `pending`, only the undecided ones.
pub async fn list(hapax: &Hapax, pending: bool, limit: usize) -> Result<Vec<Review>, Error> {
    let states = match pending {
        true => vec![StateName::Indeterminate],
        false => vec![StateName::Indeterminate, StateName::Succeeded, StateName::Skipped],
    };
    let filter = Filter { states, label: Some(LABEL.into()), limit, ..Filter::default() };
    let mut reviews = Vec::new();
    for found in hapax.effects().search(filter).await? {
        reviews.extend(read(hapax, found).await?);
    }
    Ok(reviews)
}

async fn read(hapax: &Hapax, found: EffectRecord) -> Result<Option<Review>, Error> {
    let EffectRecord { name, effect } = found;
    let granted = hapax.journal().history(name.key, 1).await?.into_iter().next();
    let note = granted.and_then(|entry| entry.note);
    let note = note.and_then(|note| Json::parse(note.as_bytes()).ok());
    let Some(note) = note.filter(|note| text(note, "kind").as_deref() == Some(KIND)) else {
        return Ok(None);
    };
    let part = |name: &str| text(&note, name).unwrap_or_default();
    let Ok(operation) = part("operation").parse() else { return Ok(None) };
    Ok(Some(Review {
        key: name.key,
        attempt: effect.attempt,
        operation,
        dataset_id: part("dataset_id"),
        pipeline_id: part("pipeline_id"),
        reason: part("reason"),
        asked_by: text(&note, "asked_by"),
        opened: effect.created,
        status: ReviewStatus::of(&effect.state),
    }))
}

/// Records a reviewer's decision. The answer is whether it counts: a decided review stays
/// decided.
pub async fn decide(
    pipeline: &Pipeline,
    review: Key,
    attempt: AttemptId,
    approve: bool,
    by: (&str, &str),
) -> Result<Judged, Error> {
    let hapax = &pipeline.hapax;
    let name = Name { namespace: hapax.namespace().clone(), key: review };
    let is_review = match hapax.effects().show(review).await? {
        Some(effect) => read(hapax, EffectRecord { name, effect }).await?.is_some(),
        None => false,
    };
    if !is_review {
        return Err(Error::Invalid(format!("{review} is not a review; see: hapax reviews list")));
    }
    let resolution = match approve {
        true => Resolution::Happened(Outcome::from("approved")),
        false => Resolution::Skip,
    };
    let seen = hapax.effects().seen(review, attempt).await?;
    pipeline.resolve(review, seen, resolution, by).await
}
