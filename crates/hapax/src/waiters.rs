//! Waiting for effects that other processes perform: one query per tick for all of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hapax_core::attempt::AttemptId;
use hapax_core::effect::{Effect, State};
use hapax_core::name::Name;
use hapax_store::{Store, read};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// The pause between two queries: short at first, longer later.
const FIRST_TICK: Duration = Duration::from_millis(5);
const LAST_TICK: Duration = Duration::from_millis(100);

struct Waiter {
    attempt: AttemptId,
    moved: oneshot::Sender<()>,
}

#[derive(Default)]
struct Room {
    waiters: HashMap<Name, Vec<Waiter>>,
    /// The task that asks for all of them. It ends with its runtime, and another one takes over.
    task: Option<AbortHandle>,
}

pub(crate) struct Waiters {
    store: Arc<dyn Store>,
    room: Mutex<Room>,
}

impl Waiters {
    pub(crate) fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { store, room: Mutex::default() })
    }

    /// Returns once this attempt no longer runs, or after `most`. A holder that died leaves no
    /// trace in its row, so the caller claims again in either case.
    pub(crate) async fn moved(self: &Arc<Self>, name: &Name, attempt: AttemptId, most: Duration) {
        let (moved, receiver) = oneshot::channel();
        {
            let mut room = self.lock();
            room.waiters.entry(name.clone()).or_default().push(Waiter { attempt, moved });
            if room.task.as_ref().is_none_or(AbortHandle::is_finished) {
                room.task = Some(tokio::spawn(self.clone().tick()).abort_handle());
            }
        }
        let _ = tokio::time::timeout(most, receiver).await;
    }

    async fn tick(self: Arc<Self>) {
        let mut pause = FIRST_TICK;
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 3 / 2).min(LAST_TICK);
            let names: Vec<Name> = {
                let mut room = self.lock();
                room.waiters.retain(|_, waiters| {
                    waiters.retain(|waiter| !waiter.moved.is_closed());
                    !waiters.is_empty()
                });
                if room.waiters.is_empty() {
                    room.task = None;
                    return;
                }
                room.waiters.keys().cloned().collect()
            };
            let asked = names.clone();
            match read(&*self.store, move |view| view.effects(&asked)).await {
                Ok(effects) => {
                    if self.wake(&names, &effects) {
                        pause = FIRST_TICK;
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "reading the effects that callers wait for failed; retrying")
                }
            }
        }
    }

    /// Wakes the callers that wait for an attempt that is over. Returns whether there were any.
    fn wake(&self, names: &[Name], effects: &[Option<Effect>]) -> bool {
        let mut room = self.lock();
        let mut woken = false;
        for (name, effect) in names.iter().zip(effects) {
            let Some(waiters) = room.waiters.get_mut(name) else { continue };
            let running = effect.as_ref().filter(|e| matches!(e.state, State::Running { .. }));
            let running = running.map(|effect| effect.attempt);
            for waiter in waiters.extract_if(.., |waiter| running != Some(waiter.attempt)) {
                woken = true;
                let _ = waiter.moved.send(());
            }
        }
        woken
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
