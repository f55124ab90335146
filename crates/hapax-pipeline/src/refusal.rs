//! Refusals, for the governance ledger: every refusal by a guard, and which guard it was. A fold
//! over the journal, like lineage. It holds none of the data that was refused.
//!
//! ```text
//!  refused after the grant ──▶ the operation's own history
//!  refused before it, a replay, a promotion ──▶ an effect of its own, labelled "refused: DATASET"
//! ```

use std::collections::HashMap;
use std::time::Duration;

use hapax::document::{Object, text};
use hapax::json::Json;
use hapax::{Entry, EntryKind, Hapax, Key, Namespace, Refusal, Safety};

use crate::error::Error;
use crate::lifecycle::{self, Stop};
use crate::operation::OperationNote;
use crate::review::labelled;
use crate::run::{Fold, Mark};

/// A refusal by a guard, as the governance ledger lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusalEvent {
    /// The kind of refusal: [`OPERATION`](Self::OPERATION), [`REPLAY`](Self::REPLAY) or
    /// [`PROMOTION`](Self::PROMOTION).
    pub event: &'static str,
    /// The namespace.
    pub namespace: Namespace,
    /// The key of the operation.
    pub operation: Key,
    /// The dataset.
    pub dataset_id: String,
    /// How the people the data is about want it treated.
    pub care_label: Option<String>,
    /// The guard.
    pub guard: &'static str,
    /// The guard's reason.
    pub reason: String,
    /// Its position in the journal.
    pub mark: Mark,
}

impl RefusalEvent {
    /// An operation, or its result.
    pub const OPERATION: &str = "operation_refused";
    /// A replay of an operation in a sandbox.
    pub const REPLAY: &str = "replay_refused";
    /// The promotion of a replay's output.
    pub const PROMOTION: &str = "promotion_refused";
}

/// The `kind` of a refusal's note.
const KIND: &str = "refusal.v1";

/// How long to wait for another caller that records a refusal of the same operation.
const RECORD_WAIT: Duration = Duration::from_secs(5);

/// Journals a refusal, each time it happens, that belongs to no attempt: one before the grant, of a
/// replay, or of a promotion.
pub(crate) async fn record(
    hapax: &Hapax,
    about: &OperationNote,
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
    let effect = effect.safety(Safety::Transactional).wait(RECORD_WAIT);
    let failure = Stop::Refused(refusal.clone()).failure();
    match effect.run(|_| async { Err::<(), _>(failure) }).await {
        Ok(_) | Err(hapax::Error::Failed { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Folds the entries of the journal, in order, into refusals.
#[derive(Debug, Default)]
pub struct Refusals {
    runs: Fold,
    /// Refusals that were granted but are not settled yet.
    noted: HashMap<(Namespace, Key), RefusalNote>,
}

#[derive(Debug)]
struct RefusalNote {
    event: &'static str,
    operation: Key,
    dataset_id: String,
    care_label: Option<String>,
}

impl Refusals {
    /// The refusal that this entry records, if any.
    pub fn push(&mut self, entry: &Entry) -> Option<RefusalEvent> {
        let moment = self.runs.push(entry);
        let name = (entry.namespace.clone(), entry.key);
        let noted = match (entry.event, moment) {
            (EntryKind::Granted, _) => {
                let noted = RefusalNote::read(entry.note.as_deref()?)?;
                self.noted.insert(name, noted);
                return None;
            }
            (EntryKind::Settled, Some(moment)) => {
                let about = moment.run.about;
                RefusalNote {
                    event: RefusalEvent::OPERATION,
                    operation: entry.key,
                    dataset_id: about.operation.dataset_id,
                    care_label: about.terms.care_label,
                }
            }
            (EntryKind::Settled, None) => self.noted.remove(&name)?,
            _ => return None,
        };
        let reason = lifecycle::refusal(entry.note.as_deref()?)?;
        let RefusalNote { event, operation, dataset_id, care_label } = noted;
        Some(RefusalEvent {
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

impl RefusalNote {
    fn read(note: &str) -> Option<Self> {
        let note = Json::parse(note.as_bytes()).ok()?;
        (note.get("kind")?.as_str()? == KIND).then_some(())?;
        let event = match text(&note, "event").as_deref() {
            Some(RefusalEvent::REPLAY) => RefusalEvent::REPLAY,
            Some(RefusalEvent::PROMOTION) => RefusalEvent::PROMOTION,
            _ => RefusalEvent::OPERATION,
        };
        Some(Self {
            event,
            operation: text(&note, "operation")?.parse().ok()?,
            dataset_id: text(&note, "dataset_id")?,
            care_label: text(&note, "care_label"),
        })
    }
}
