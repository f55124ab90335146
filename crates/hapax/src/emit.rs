//! Events that an effect has to tell.

use std::sync::{Mutex, MutexGuard};

use hapax_core::outbox::Event;
use hapax_core::part::Part;
use hapax_core::shelf::Shelved;
use hapax_store::outbox::{Emission, Telling};

use crate::claim::Claim;
use crate::error::Error;

/// What an attempt has to tell so far.
#[derive(Default)]
pub(crate) struct Told(Mutex<Telling>);

impl Told {
    fn lock(&self) -> MutexGuard<'_, Telling> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// What is to be recorded with the outcome.
    pub(crate) fn waiting(&self) -> Telling {
        self.lock().clone()
    }

    /// What is to be recorded where there is none.
    pub(crate) fn in_any_case(&self) -> Telling {
        Telling { part: self.lock().part.clone(), ..Telling::default() }
    }
}

impl Claim {
    /// Tells of something that happened: the event is recorded in the transaction that settles
    /// the effect, and delivered afterwards to every sink it is routed to. If the effect does
    /// not succeed, nothing is told.
    pub fn emit(&self, event: Event) -> Result<(), Error> {
        let events = &mut self.told.lock().events;
        let ordinal = events.len() as u32;
        events.push(Emission { ordinal, event });
        Ok(())
    }

    /// The same in place of everything that was to be told so far, for work that is done anew within
    /// one attempt.
    pub fn emit_instead(&self, events: Vec<Event>) {
        let emission = |(ordinal, event)| Emission { ordinal, event };
        self.told.lock().events = (0..).zip(events).map(emission).collect();
    }

    /// What the outcome is found by, if it is a result that may be forgotten. It is recorded only if
    /// it was made from the present version of its ontology.
    pub fn shelve(&self, shelved: Shelved) {
        self.told.lock().shelved = Some(shelved);
    }

    /// What is to be known of this part, however it goes. See [`Hapax::parts`](crate::Hapax::parts).
    pub fn keep(&self, part: Part) {
        self.told.lock().part = Some(part);
    }

    /// What the journal says of the success, if it is one: at most 64 KiB. Said again, the last
    /// one counts.
    pub fn note(&self, note: impl Into<String>) {
        self.told.lock().note = Some(note.into());
    }
}
