//! Claims whose caller gave up, and that may still be granted.
//!
//! A commit can outlive its connection: the server waits for a standby that does not confirm, the client gets no
//! answer and gives up, and later the standby confirms. The grant then depends on a lease that this process goes on
//! renewing. So the engine looks for such an attempt until it appears in the ledger, and then releases it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use hapax_core::attempt::AttemptId;
use hapax_core::effect::{Report, State};
use hapax_core::name::Name;
use hapax_core::planted::{Bug, planted};
use hapax_store::outbox::Attachments;
use hapax_store::{call, command, read};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::engine::Inner;

/// The pause between two searches: at first, and at last.
const FIRST: Duration = Duration::from_millis(100);
const LAST: Duration = Duration::from_secs(2);
/// How long the engine looks for an attempt, and how many at once.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
const MOST: usize = 10_000;

#[derive(Default)]
pub(crate) struct Abandoned(Mutex<Search>);

#[derive(Default)]
struct Search {
    attempts: HashMap<(Name, AttemptId), Instant>,
    /// The task that searches for all of them. It ends with its runtime, and another one takes over.
    task: Option<AbortHandle>,
}

impl Abandoned {
    /// Searches, from now on, for an attempt whose caller gave up.
    pub(crate) fn add(&self, inner: &Arc<Inner>, name: &Name, attempt: AttemptId) {
        let mut search = self.lock();
        if planted(Bug::OrphanKept) || search.attempts.len() >= MOST {
            return;
        }
        search.attempts.insert((name.clone(), attempt), Instant::now());
        if let Ok(runtime) = Handle::try_current()
            && search.task.as_ref().is_none_or(AbortHandle::is_finished)
        {
            let task = runtime.spawn(search_for_all(Arc::downgrade(inner)));
            search.task = Some(task.abort_handle());
        }
    }

    /// The names to search for, without those whose time is over. If there are none, the task ends.
    fn names(&self) -> Vec<Name> {
        let mut search = self.lock();
        search.attempts.retain(|_, since| since.elapsed() < LONGEST);
        if search.attempts.is_empty() {
            search.task = None;
        }
        search.attempts.keys().map(|(name, _)| name.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Search> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Searches the ledger for the abandoned attempts, and releases those that it finds granted. Ends when
/// none is left, or with the engine.
async fn search_for_all(engine: Weak<Inner>) {
    let mut pause = FIRST;
    loop {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST);
        let Some(inner) = engine.upgrade().filter(|inner| !inner.is_closed()) else { return };
        let names = inner.abandoned.names();
        if names.is_empty() {
            return;
        }
        let asked = names.clone();
        let Ok(effects) = read(&*inner.store, move |view| view.effects(&asked)).await else {
            continue;
        };
        for (name, effect) in names.iter().zip(effects) {
            let Some(effect) = effect else { continue };
            let key = (name.clone(), effect.attempt);
            let State::Running { .. } = effect.state else { continue };
            if !inner.abandoned.lock().attempts.contains_key(&key) {
                continue;
            }
            let report =
                Report::Released("the grant surfaced after its caller had given up".into());
            let (name, attempt, fence) = (name.clone(), effect.attempt, Some(effect.fence));
            let attachments = Attachments::default();
            let release = command::Settle { name, attempt, fence, report, attachments };
            if call(&*inner.store, release).await.is_ok() {
                inner.abandoned.lock().attempts.remove(&key);
            }
        }
    }
}
