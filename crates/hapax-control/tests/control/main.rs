//! The control plane on real ledgers: its invariants, its table of retries, its epochs.

mod epochs;
mod events;
mod invariants;
mod keys;
mod retries;

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hapax::{Domain, Hapax};
use hapax_control::{ControlReceiver, ControlRequest, Registry, SendError};
use hapax_testkit::Postgres;

const PROBE: &str = "connector.health_probe.v1";
const FENCING: &str = "connector.fencing_acquire.v1";

fn connector() -> Domain {
    Domain::new("connector").expect("a domain")
}

type Case = fn(Hapax) -> Pin<Box<dyn Future<Output = ()>>>;

/// Runs a case on a ledger in a file.
async fn in_a_file(case: Case) {
    let directory = tempfile::tempdir().expect("a directory");
    case(Hapax::open(directory.path().join("hapax.db")).await.expect("a ledger")).await;
}

/// Runs a case on a ledger in a database.
async fn in_a_database(case: Case) {
    let (server, directory) = (Postgres::start(), tempfile::tempdir().expect("a directory"));
    case(open(&server, directory.path()).await).await;
}

async fn open(server: &Postgres, directory: &Path) -> Hapax {
    let key = directory.join("key");
    let builder = Hapax::builder().signing_key(key);
    builder.open(server.url("postgres")).await.expect("a ledger")
}

/// A peer that performs each request, and keeps the requests that it got.
#[derive(Clone)]
struct Peer {
    receiver: ControlReceiver,
    seen: Arc<Mutex<Vec<ControlRequest>>>,
    done: Arc<AtomicUsize>,
}

impl Peer {
    fn new(hapax: Hapax) -> Self {
        let receiver = ControlReceiver::new(hapax, Registry::standard());
        Self { receiver, seen: Arc::default(), done: Arc::default() }
    }

    async fn ask(self, request: ControlRequest) -> Result<hapax::Outcome, SendError> {
        self.seen.lock().expect("a lock").push(request.clone());
        let done = self.done.clone();
        let result = self.receiver.receive(&request, |payload| async move {
            done.fetch_add(1, Ordering::SeqCst);
            Ok(payload)
        });
        result.await.map(|done| done.outcome).map_err(|error| match error.code() {
            name if name.starts_with("ERR_") => SendError::refused(name),
            other => SendError::ambiguous(other),
        })
    }

    fn seen(&self) -> Vec<ControlRequest> {
        self.seen.lock().expect("a lock").clone()
    }

    fn done(&self) -> usize {
        self.done.load(Ordering::SeqCst)
    }
}

/// Waits until a condition holds; panics with `what` if it takes too long.
async fn until<Look: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> Look) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
