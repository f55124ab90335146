//! Events that an effect has to tell.

use std::sync::{Mutex, MutexGuard};

use hapax_core::outbox::Event;
use hapax_store::outbox::Emission;

use crate::claim::Claim;
use crate::error::Error;

/// What an attempt has emitted so far.
#[derive(Default)]
pub(crate) struct Emitted(Mutex<Vec<Emission>>);

impl Emitted {
    fn lock(&self) -> MutexGuard<'_, Vec<Emission>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// What is to be recorded with the outcome.
    pub(crate) fn waiting(&self) -> Vec<Emission> {
        self.lock().clone()
    }
}

impl Claim {
    /// Tells of something that happened: the event is recorded in the transaction that settles
    /// the effect, and delivered afterwards to every sink it is routed to. If the effect does
    /// not succeed, nothing is told.
    pub fn emit(&self, event: Event) -> Result<(), Error> {
        let mut emitted = self.emitted.lock();
        let ordinal = emitted.len() as u32;
        emitted.push(Emission { ordinal, event });
        Ok(())
    }
}
