//! The runs of workflows that this server drives.
//!
//! A run has a task of its own, so it goes on when its client leaves. If its process dies, the run
//! is still in the ledger, and the [maintenance](crate::maintenance) of some server continues it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use hapax::Namespace;
use hapax_items::{CompletedRun, Error, Items};
use http::StatusCode;
use prometheus::IntCounterVec;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::problem::{Problem, TOO_MANY};

/// How many runs this server drives at once. Each script has a thread and memory of its own.
const AT_ONCE: u32 = 64;

/// The runs that this server drives.
pub(crate) struct Runs {
    room: Arc<Semaphore>,
    driven: Arc<Driven>,
    /// Counts the runs that ended, by result.
    ended: IntCounterVec,
}

/// The workflows that this server drives now, and the namespaces that it had runs or scripts for.
#[derive(Default)]
struct Driven {
    workflows: Mutex<BTreeSet<(Namespace, String)>>,
    namespaces: Mutex<BTreeSet<Namespace>>,
}

/// How many namespaces are remembered. Maintenance finds the rest when it looks through all.
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
    ) -> Result<JoinHandle<Result<CompletedRun, Error>>, Problem> {
        let namespace = items.hapax().namespace().clone();
        self.remember(&namespace);
        let scoped_name = (namespace, workflow.to_owned());
        let Some(guard) = DrivenGuard::of(&self.driven, scoped_name) else {
            return Err(Error::Running { workflow: workflow.to_owned() }.into());
        };
        let room = self.room.clone().try_acquire_owned().map_err(|_| {
            let detail = "as many runs are under way as may be";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, &TOO_MANY, detail)
        })?;
        let ended = self.ended.clone();
        Ok(tokio::spawn(async move {
            let driven = items.drive(&guard.scoped_name.1, Some(&id)).await;
            ended.with_label_values(&[result(&driven)]).inc();
            drop((guard, room));
            driven
        }))
    }

    /// Whether this server is driving the workflow.
    pub(crate) fn is_driven(&self, namespace: &Namespace, workflow: &str) -> bool {
        lock(&self.driven.workflows).contains(&(namespace.clone(), workflow.to_owned()))
    }

    /// Adds a namespace to those that maintenance looks at in each pass.
    pub(crate) fn remember(&self, namespace: &Namespace) {
        let mut known = lock(&self.driven.namespaces);
        if known.len() < REMEMBERED && !known.contains(namespace) {
            known.insert(namespace.clone());
        }
    }

    /// The namespaces in which this server began a run or published a script.
    pub(crate) fn namespaces(&self) -> BTreeSet<Namespace> {
        lock(&self.driven.namespaces).clone()
    }

    /// Waits until no run is driven here any more. None can begin from then on.
    pub(crate) async fn drained(&self) {
        if let Ok(all) = self.room.acquire_many(AT_ONCE).await {
            all.forget();
        }
    }
}

/// The result of a run, as a metric label.
fn result(driven: &Result<CompletedRun, Error>) -> &'static str {
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

/// Marks a workflow as driven here until it is dropped.
struct DrivenGuard {
    driven: Arc<Driven>,
    scoped_name: (Namespace, String),
}

impl DrivenGuard {
    fn of(driven: &Arc<Driven>, scoped_name: (Namespace, String)) -> Option<Self> {
        let free = lock(&driven.workflows).insert(scoped_name.clone());
        free.then(|| Self { driven: driven.clone(), scoped_name })
    }
}

impl Drop for DrivenGuard {
    fn drop(&mut self) {
        lock(&self.driven.workflows).remove(&self.scoped_name);
    }
}
