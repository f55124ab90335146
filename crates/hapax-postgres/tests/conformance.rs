//! The one suite that defines what a store is, on PostgreSQL.

use std::sync::Arc;

use hapax_postgres::{Options, PgStore};
use hapax_store::{Clock, Job, ManualClock, Reading, Store};
use hapax_testkit::Postgres;

/// A store and the server that it lives on; dropped in this order.
struct OwnServer {
    store: PgStore,
    _server: Postgres,
}

impl Store for OwnServer {
    fn submit(&self, jobs: Vec<Job>) {
        self.store.submit(jobs);
    }

    fn read(&self, reading: Reading) {
        self.store.read(reading);
    }
}

fn open(clock: Arc<ManualClock>) -> OwnServer {
    let server = Postgres::start();
    let clock: Option<Arc<dyn Clock>> = Some(clock);
    let options = Options { clock, ..Options::default() };
    let store = PgStore::open(&server.url("postgres"), options).expect("a ledger");
    OwnServer { store, _server: server }
}

hapax_store::conformance!(open);
