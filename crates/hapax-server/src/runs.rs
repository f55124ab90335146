//! Runs of workflows that this server drives, for a client that waits or for nobody in particular.
//!
//! A run is driven on its own: a client that goes away does not take it with it. What is broken off
//! all the same is in the ledger, and goes on by [what is due](crate::caretaker).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use hapax::Namespace;
use hapax_items::{Error, Items, Ran};
use http::StatusCode;
use prometheus::IntCounterVec;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::problem::{Problem, TOO_MANY};

/// How many runs are driven at once. A script has a thread and memory of its own.
const AT_ONCE: u32 = 64;

/// What this server drives.
pub(crate) struct Runs {
    room: Arc<Semaphore>,
    driven: Arc<Driven>,
    /// Runs that ended, by how.
    ended: IntCounterVec,
}

/// Workflows that are being driven here, and where anything was ever asked for.
#[derive(Default)]
struct Driven {
    workflows: Mutex<BTreeSet<(Namespace, String)>>,
    namespaces: Mutex<BTreeSet<Namespace>>,
}

/// How many namespaces are remembered. The others are found when all are looked through.
const REMEMBERED: usize = 10_000;

impl Runs {
    pub(crate) fn new(ended: IntCounterVec) -> Self {
        let room = Arc::new(Semaphore::new(AT_ONCE as usize));
        Self { room, driven: Arc::default(), ended }
    }

    /// Begins to drive a run.
    pub(crate) fn begin(
        &self,
        items: Items,
        workflow: &str,
        id: String,
    ) -> Result<JoinHandle<Result<Ran, Error>>, Problem> {
        let namespace = items.hapax().namespace().clone();
        self.remember(&namespace);
        let place = (namespace, workflow.to_owned());
        let Some(taken) = Taken::of(&self.driven, place) else {
            return Err(Error::Running { workflow: workflow.to_owned() }.into());
        };
        let room = self.room.clone().try_acquire_owned().map_err(|_| {
            let detail = "as many runs are under way as may be";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, &TOO_MANY, detail)
        })?;
        let ended = self.ended.clone();
        Ok(tokio::spawn(async move {
            let driven = items.drive(&taken.place.1, Some(&id)).await;
            ended.with_label_values(&[result(&driven)]).inc();
            drop((taken, room));
            driven
        }))
    }

    /// Whether somebody is at it here.
    pub(crate) fn is_driven(&self, namespace: &Namespace, workflow: &str) -> bool {
        lock(&self.driven.workflows).contains(&(namespace.clone(), workflow.to_owned()))
    }

    /// Has a namespace be looked after soon.
    pub(crate) fn remember(&self, namespace: &Namespace) {
        let mut known = lock(&self.driven.namespaces);
        if known.len() < REMEMBERED && !known.contains(namespace) {
            known.insert(namespace.clone());
        }
    }

    /// Where anything was asked for.
    pub(crate) fn namespaces(&self) -> BTreeSet<Namespace> {
        lock(&self.driven.namespaces).clone()
    }

    /// Waits until nothing is being driven any more. Nothing is begun from then on.
    pub(crate) async fn drained(&self) {
        if let Ok(all) = self.room.acquire_many(AT_ONCE).await {
            all.forget();
        }
    }
}

/// How a run ended, for those who count.
fn result(driven: &Result<Ran, Error>) -> &'static str {
    match driven {
        Ok(_) => "succeeded",
        Err(Error::Failed { .. }) => "failed",
        Err(Error::Attention { .. }) => "needs_attention",
        Err(_) => "not_run",
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A workflow that is being driven here, for as long as this is held.
struct Taken {
    driven: Arc<Driven>,
    place: (Namespace, String),
}

impl Taken {
    fn of(driven: &Arc<Driven>, place: (Namespace, String)) -> Option<Self> {
        let free = lock(&driven.workflows).insert(place.clone());
        free.then(|| Self { driven: driven.clone(), place })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        lock(&self.driven.workflows).remove(&self.place);
    }
}
