//! Mutations that earlier runs of an attempt applied, so that a replay need not ask for each.
//!
//! They are read while the handler runs, in the order in which they were done, which is the order
//! in which the handler requests them again. A mutation that is not found here is looked up in the
//! ledger.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hapax::part::{PartFilter, PartRecord};
use hapax::{Hapax, Key, State};
use tokio::sync::mpsc;

use crate::note::MUTATION;

/// The size of a page of mutations, and how many pages are read ahead.
const PAGE: usize = 256;
const AHEAD: usize = 4;

/// Mutations that were applied: those that were read, and the pages that are still to be read.
#[derive(Default)]
pub(crate) struct AppliedMutations {
    applied: Mutex<HashMap<Key, AppliedMutation>>,
    unread: tokio::sync::Mutex<Option<mpsc::Receiver<Vec<PartRecord>>>>,
}

struct AppliedMutation {
    /// The record of the request that was applied.
    body: Vec<u8>,
    result: Arc<[u8]>,
}

impl AppliedMutations {
    /// The mutations that are parts of this whole.
    pub(crate) fn of(hapax: Hapax, whole: Key) -> Self {
        let (page, unread) = mpsc::channel(AHEAD);
        tokio::spawn(read(hapax, whole, page));
        Self { unread: tokio::sync::Mutex::new(Some(unread)), ..Self::default() }
    }

    /// The result of a mutation that was requested in the same way, if that was read already.
    pub(crate) fn known(&self, key: Key, body: &[u8]) -> Option<Arc<[u8]>> {
        let applied = self.applied();
        applied.get(&key).filter(|applied| applied.body == body).map(|found| found.result.clone())
    }

    /// The result of a mutation that was requested in the same way.
    pub(crate) async fn find(&self, key: Key, body: &[u8]) -> Option<Arc<[u8]>> {
        loop {
            if let Some(result) = self.known(key, body) {
                return Some(result);
            }
            let mut unread = self.unread.lock().await;
            match unread.as_mut()?.recv().await {
                Some(page) => self.keep(page),
                None => *unread = None,
            }
        }
    }

    fn keep(&self, page: Vec<PartRecord>) {
        let mut applied = self.applied();
        for PartRecord { name, effect, part, .. } in page {
            let State::Succeeded(outcome) = &effect.state else { continue };
            let Some(result) = outcome.shared_body() else { continue };
            applied.insert(name.key, AppliedMutation { body: part.body, result });
        }
    }

    fn applied(&self) -> MutexGuard<'_, HashMap<Key, AppliedMutation>> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads pages until the last one, until the receiver is gone, or until one cannot be read: then
/// the handler's own claim reports the error.
async fn read(hapax: Hapax, whole: Key, pages: mpsc::Sender<Vec<PartRecord>>) {
    let mut beyond = None;
    loop {
        let (whole, kind) = (Some(whole), MUTATION.to_owned());
        let filter = PartFilter { whole, kind, beyond, limit: PAGE, ..PartFilter::default() };
        let Ok(page) = hapax.parts().search(filter).await else { return };
        let is_last = page.len() < PAGE;
        beyond = page.last().map(|found| found.position);
        if pages.send(page).await.is_err() || is_last {
            return;
        }
    }
}
