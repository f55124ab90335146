//! Refusals, for the governance ledger: what guards said no to, each time, and which guard it was.
//! A fold over the journal, like lineage; never with anything of what was refused.
//!
//! ```text
//!  refused after the grant ──▶ the operation's own history
//!  refused before it, or of a replay ──▶ an effect beside it, labelled "refused: DATASET"
//! ```

use std::collections::HashMap;
use std::time::Duration;

use hapax::document::{Object, text};
use hapax::json::Json;
use hapax::{Entry, Event, Hapax, Key, Namespace, Refusal, Safety};

use crate::error::Error;
use crate::lifecycle::{self, Stop};
use crate::operation::About;
use crate::review::labelled;
use crate::run::{Fold, Mark};

/// Something that a guard said no to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// What was refused: [`OPERATION`](Self::OPERATION), [`REPLAY`](Self::REPLAY) or
    /// [`PROMOTION`](Self::PROMOTION).
    pub event: &'static str,
    /// Whose.
    pub namespace: Namespace,
    /// The key of the operation.
    pub operation: Key,
    /// On which dataset.
    pub dataset_id: String,
    /// How those it is about want it treated.
    pub care_label: Option<String>,
    /// The guard.
    pub guard: &'static str,
    /// What it said.
    pub reason: String,
    /// Where in the journal.
    pub mark: Mark,
}

impl Refused {
    /// An operation, or what it made.
    pub const OPERATION: &str = "operation_refused";
    /// Doing an operation again in a sandbox.
    pub const REPLAY: &str = "replay_refused";
    /// Putting in place what a replay made anew.
    pub const PROMOTION: &str = "promotion_refused";
}

/// What tells the note of a refusal from others.
const KIND: &str = "refusal.v1";

/// How long to wait for somebody else who writes down the same.
const PATIENCE: Duration = Duration::from_secs(5);

/// Writes down that something was refused, each time it is, where the operation was not granted, so
/// that its own history has no place for that.
pub(crate) async fn record(
    hapax: &Hapax,
    about: &About,
    event: &'static str,
    refusal: &Refusal,
) -> Result<(), Error> {
    let operation = about.operation.key()?;
    let note = Object::default()
        .text("kind", KIND)
        .text("event", event)
        .text("operation", operation.to_string().as_str())
        .text("dataset_id", about.operation.dataset_id.as_str())
        .text("pipeline_id", about.operation.pipeline_id.as_str())
        .text("care_label", about.terms.care_label.as_deref());
    let effect = hapax.effect(Key::derive(KIND, &[("operation", operation.as_bytes())])?);
    let effect = effect.label(labelled("refused: ", about)).about(note.print());
    let effect = effect.safety(Safety::Transactional).wait(PATIENCE);
    let failure = Stop::Refused(refusal.clone()).failure();
    match effect.run(|_| async { Err::<(), _>(failure) }).await {
        Ok(_) | Err(hapax::Error::Failed { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Turns entries of the journal, in their order, into what was refused.
#[derive(Debug, Default)]
pub struct Refusals {
    runs: Fold,
    /// Those that are being written down.
    noted: HashMap<(Namespace, Key), Noted>,
}

#[derive(Debug)]
struct Noted {
    event: &'static str,
    operation: Key,
    dataset_id: String,
    care_label: Option<String>,
}

impl Refusals {
    /// What this entry says was refused, if it does.
    pub fn push(&mut self, entry: &Entry) -> Option<Refused> {
        let moment = self.runs.push(entry);
        let name = (entry.namespace.clone(), entry.key);
        let noted = match (entry.event, moment) {
            (Event::Granted, _) => {
                let noted = Noted::read(entry.note.as_deref()?)?;
                self.noted.insert(name, noted);
                return None;
            }
            (Event::Settled, Some(moment)) => {
                let about = moment.run.about;
                Noted {
                    event: Refused::OPERATION,
                    operation: entry.key,
                    dataset_id: about.operation.dataset_id,
                    care_label: about.terms.care_label,
                }
            }
            (Event::Settled, None) => self.noted.remove(&name)?,
            _ => return None,
        };
        let reason = lifecycle::refusal(entry.note.as_deref()?)?;
        let Noted { event, operation, dataset_id, care_label } = noted;
        Some(Refused {
            event,
            namespace: name.0,
            operation,
            dataset_id,
            care_label,
            guard: Refusal::guard_of(reason)?,
            reason: reason.to_owned(),
            mark: Mark { entry: entry.id, at: entry.at },
        })
    }
}

impl Noted {
    fn read(note: &str) -> Option<Self> {
        let note = Json::parse(note.as_bytes()).ok()?;
        (note.get("kind")?.as_str()? == KIND).then_some(())?;
        let event = match text(&note, "event").as_deref() {
            Some(Refused::REPLAY) => Refused::REPLAY,
            Some(Refused::PROMOTION) => Refused::PROMOTION,
            _ => Refused::OPERATION,
        };
        Some(Self {
            event,
            operation: text(&note, "operation")?.parse().ok()?,
            dataset_id: text(&note, "dataset_id")?,
            care_label: text(&note, "care_label"),
        })
    }
}
