//! The engine on PostgreSQL: many nodes, poolers, cut connections, the caller's transaction.

mod callers_transaction;
mod many_nodes;
mod outbox;
mod trouble;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use hapax::tokio_postgres::{Client, NoTls};
use hapax::{Hapax, Key};

/// A connection of the caller's own.
async fn client(url: &str) -> Client {
    let (client, connection) = hapax::tokio_postgres::connect(url, NoTls).await.expect("a client");
    tokio::spawn(connection);
    client
}

/// A handle on the ledger with its own signing key.
async fn open(url: &str) -> Hapax {
    Hapax::builder().background(false).open(url).await.expect("a ledger")
}

fn key(n: u64) -> Key {
    Key::derive("test.v1", &[("n", &n.to_be_bytes())]).expect("a key")
}

/// Notes an execution: one line for each, appended and synced.
fn note(sink: &Path, line: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(sink)?;
    file.write_all(format!("{line}\n").as_bytes())?;
    file.sync_data()
}

/// How often each line was noted.
fn noted(sink: &Path) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in std::fs::read_to_string(sink).unwrap_or_default().lines() {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    counts
}

/// Waits until a condition holds; panics with `what` if it takes too long.
async fn until<Look: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> Look) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The journal has this many sealed entries, and they are as they were sealed.
async fn intact(hapax: &Hapax, sealed: u64) {
    hapax.pass().await.expect("sealed");
    let verified = hapax
        .journal()
        .verify(hapax.journal().verifier().expect("a key"), |_, _| ())
        .await
        .expect("read");
    assert_eq!((verified.sealed, verified.pending, verified.damage), (sealed, 0, Vec::new()));
}
