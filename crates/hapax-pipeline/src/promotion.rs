//! Promotion: puts the outputs of a full replay in place once a reviewer has approved them.
//!
//! The outputs are where the replay was configured to keep them. Promotion puts an output where the
//! journal says that the original was, with one rename, as an effect of its own. No output is put
//! in place without an approval.

use std::path::{Path, PathBuf};

use hapax::document::{Object, list, number, text};
use hapax::json::Json;
use hapax::{Failure, Hapax, How, Key, OnLock, Refusal, Safety, State};

use crate::error::Error;
use crate::lifecycle::Stage;
use crate::pipeline::Pipeline;
use crate::refusal::{self, RefusalEvent};
use crate::replay::{checksum, inside, room};
use crate::review::{self, ReviewStatus};

/// An output of a replay that differs from the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promotion {
    /// The operation.
    pub operation: Key,
    /// Its place, relative to the directory of the files.
    pub uri: String,
    /// The checksum of the new output.
    pub checksum: String,
    /// The result of the promotion.
    pub result: PromotionResult,
}

/// The result of a promotion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PromotionResult {
    /// It is in place now.
    Placed,
    /// It was put in place before.
    PlacedBefore,
    /// It is not approved: its review is pending or rejected, or was never opened.
    NotApproved,
}

/// Puts in place the outputs that a replay kept in `kept`, as far as they are approved.
pub async fn promote(
    hapax: &Hapax,
    replay: Key,
    kept: &Path,
    files: &Path,
) -> Result<Vec<Promotion>, Error> {
    let mut promotions = Vec::new();
    for made in made_anew(hapax, replay).await? {
        let subject = subject(replay, made.operation, &made.uri, &made.checksum)?;
        let result = match review::status_of(hapax, subject).await? {
            Some(ReviewStatus::Approved) => {
                place(hapax, (replay, subject), &made, kept, files).await?
            }
            Some(ReviewStatus::Pending | ReviewStatus::Rejected) | None => {
                refused(hapax, made.operation, subject).await?;
                PromotionResult::NotApproved
            }
        };
        let PromotedOutput { operation, uri, checksum, .. } = made;
        promotions.push(Promotion { operation, uri, checksum, result });
    }
    Ok(promotions)
}

/// Journals that an output was not put in place, each time.
async fn refused(hapax: &Hapax, operation: Key, subject: Key) -> Result<(), Error> {
    let refusal = review::unanswered(hapax, subject).await?;
    let refusal = refusal.unwrap_or_else(|| Refusal::Review("no review was requested".into()));
    match Pipeline::new(hapax.clone()).granted(operation, None).await? {
        Some(stage) => {
            refusal::record(hapax, &stage.about, RefusalEvent::PROMOTION, &refusal).await
        }
        None => Ok(()),
    }
}

/// The subject of the review: these bytes, of this replay, in this place.
pub fn subject(replay: Key, operation: Key, uri: &str, checksum: &str) -> Result<Key, Error> {
    let fields: [(&str, &[u8]); 4] = [
        ("replay", replay.as_bytes()),
        ("operation", operation.as_bytes()),
        ("uri", uri.as_bytes()),
        ("checksum", checksum.as_bytes()),
    ];
    Ok(Key::derive("promotion.v1", &fields)?)
}

struct PromotedOutput {
    operation: Key,
    entry: u64,
    uri: String,
    /// The checksum that the journal has.
    recorded: String,
    checksum: String,
}

/// The outputs that differ, as the record of a replay lists them.
async fn made_anew(hapax: &Hapax, replay: Key) -> Result<Vec<PromotedOutput>, Error> {
    let none = || Error::Invalid(format!("{replay} is not a full replay"));
    let Some(State::Succeeded(outcome)) =
        hapax.effects().show(replay).await?.map(|effect| effect.state)
    else {
        return Err(none());
    };
    let record = outcome.body().and_then(|body| Json::parse(body).ok()).ok_or_else(none)?;
    if text(&record, "kind").as_deref() != Some("replay.v1")
        || text(&record, "mode").as_deref() != Some("full")
    {
        return Err(none());
    }
    Ok(list(&record, "divergences", |one: &Json| {
        (text(one, "what")? == "output").then_some(())?;
        Some(PromotedOutput {
            operation: text(one, "key")?.parse().ok()?,
            entry: number(one, "entry")?,
            uri: text(one, "which")?,
            recorded: text(one, "expected")?,
            checksum: text(one, "actual")?,
        })
    }))
}

async fn place(
    hapax: &Hapax,
    (replay, subject): (Key, Key),
    made: &PromotedOutput,
    kept: &Path,
    files: &Path,
) -> Result<PromotionResult, Error> {
    let entry = hapax.journal().entries(made.entry.saturating_sub(1), 1).await?.into_iter().next();
    let generation = entry.map_or(1, |entry| entry.generation);
    let relative = inside(&made.uri)
        .ok_or_else(|| Error::Invalid(format!("{} is not a place below a directory", made.uri)))?;
    let from = kept.join(room(made.operation, generation)).join(relative);
    let to = files.join(relative);
    let note = Object::default()
        .text("kind", "promotion.v1")
        .text("replay", replay.to_string().as_str())
        .text("operation", made.operation.to_string().as_str())
        .text("uri", made.uri.as_str())
        .text("checksum", made.checksum.as_str());
    let effect = hapax
        .effect(subject)
        // The same bytes in the same place: doing it again changes nothing.
        .safety(Safety::Transactional)
        .label("promotion")
        .about(note.print());
    let stage = Pipeline::new(hapax.clone()).granted(made.operation, None).await?;
    let effect = match stage.as_ref().and_then(Stage::lock) {
        Some(lock) => effect.lock_key(lock).on_lock(OnLock::Wait),
        None => effect,
    };
    let PromotedOutput { recorded, checksum, .. } = made;
    let done = effect.run(|_| async { moved((&from, checksum), (&to, recorded)) }).await?;
    Ok(match done.how {
        How::Executed => PromotionResult::Placed,
        How::Shared | How::Replayed => PromotionResult::PlacedBefore,
    })
}

/// Copies a file next to its destination and renames it into place, if both files are as expected.
fn moved((from, made): (&Path, &str), (to, recorded): (&Path, &str)) -> Result<String, Failure> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| Failure::not_done(format!("{path}: {error}"))
    };
    let there = checksum(to);
    if there.is_some_and(|there| there != recorded && there != made) {
        return Err(Failure::not_done(format!(
            "{} is not what the journal says; move it away, or leave it",
            to.display()
        )));
    }
    let directory = to.parent().map_or(PathBuf::from("."), Path::to_owned);
    std::fs::create_dir_all(&directory).map_err(failed(&directory))?;
    let beside = tempfile::NamedTempFile::new_in(&directory).map_err(failed(&directory))?;
    std::fs::copy(from, beside.path()).map_err(failed(from))?;
    if checksum(beside.path()).as_deref() != Some(made) {
        return Err(Failure::not_done(format!(
            "{} is not what the replay made; run it again",
            from.display()
        )));
    }
    beside.as_file().sync_all().map_err(failed(to))?;
    beside.persist(to).map_err(|error| failed(to)(error.error))?;
    Ok(made.to_owned())
}
