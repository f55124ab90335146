//! The events, notes and other data that an attempt emits.

use std::sync::{Mutex, MutexGuard};

use hapax_core::outbox::Event;
use hapax_core::part::Part;
use hapax_core::result_index::IndexEntry;
use hapax_store::outbox::{Attachments, Emission};

use crate::claim::Claim;
use crate::error::Error;

/// The emissions of an attempt so far.
#[derive(Default)]
pub(crate) struct CollectedAttachments(Mutex<Attachments>);

impl CollectedAttachments {
    fn lock(&self) -> MutexGuard<'_, Attachments> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The emissions to record with the outcome.
    pub(crate) fn waiting(&self) -> Attachments {
        self.lock().clone()
    }

    /// The emissions to record when there is no outcome: only the part.
    pub(crate) fn in_any_case(&self) -> Attachments {
        Attachments { part: self.lock().part.clone(), ..Attachments::default() }
    }
}

impl Claim {
    /// Emits an event. It is recorded in the transaction that settles the effect, and delivered
    /// afterwards to every sink it is routed to. If the effect does not succeed, no event is recorded.
    pub fn emit(&self, event: Event) -> Result<(), Error> {
        let events = &mut self.attachments.lock().events;
        let ordinal = events.len() as u32;
        events.push(Emission { ordinal, event });
        Ok(())
    }

    /// Replaces all events emitted so far, for work that is done anew within one attempt.
    pub fn emit_instead(&self, events: Vec<Event>) {
        let emission = |(ordinal, event)| Emission { ordinal, event };
        self.attachments.lock().events = (0..).zip(events).map(emission).collect();
    }

    /// Adds the outcome to the result index, as a result that may be forgotten. It is recorded only
    /// if it was made from the present version of its ontology.
    pub fn index_result(&self, entry: IndexEntry) {
        self.attachments.lock().index_entry = Some(entry);
    }

    /// The data to keep of this part, whatever the result. See
    /// [`Hapax::parts`](crate::Hapax::parts).
    pub fn keep(&self, part: Part) {
        self.attachments.lock().part = Some(part);
    }

    /// A note for the journal entry of a success: at most 64 KiB. A later note replaces an earlier one.
    pub fn note(&self, note: impl Into<String>) {
        self.attachments.lock().note = Some(note.into());
    }
}
