//! Sealing while callers' transactions commit in another order than they began.

use std::sync::Arc;

use hapax_core::checkpoint::Signer;
use hapax_postgres::tokio_postgres::{Client, NoTls};
use hapax_postgres::{Options, PgStore, tokio_postgres};
use hapax_store::journal::plan_seal;
use hapax_store::{call, read};
use hapax_testkit::Postgres;

async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

fn claim(key: u8) -> String {
    format!(
        "SELECT * FROM hapax.claim('sha256:' || repeat('{key:02x}', 32), sha256('x'),
             safety => 'transactional')"
    )
}

async fn seal(store: &PgStore) -> usize {
    let signer = Arc::new(Signer::from_seed(&[5; 32]));
    let planned = read(store, move |view| plan_seal(view, &signer, 1000)).await.expect("a plan");
    match planned {
        None => 0,
        Some(command) => call(store, command).await.expect("sealed"),
    }
}

/// Proves K-13: an entry is sealed once it is committed, although its transaction was newer than
/// those that had ended and stayed open while later entries were sealed.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_is_committed_late_is_sealed() {
    let server = Postgres::start();
    let url = server.url("postgres");
    let place = url.clone();
    let opened = tokio::task::spawn_blocking(move || PgStore::open(&place, Options::default()));
    let store = opened.await.expect("no panic").expect("a ledger");
    let (mut first, mut second) = (client(&url).await, client(&url).await);
    let early = first.transaction().await.expect("a transaction");
    early.batch_execute("SELECT pg_current_xact_id()").await.expect("the lower number");
    let late = second.transaction().await.expect("a transaction");
    // The newer transaction takes the lower number in the journal.
    late.batch_execute(&claim(1)).await.expect("claimed");
    early.batch_execute(&claim(2)).await.expect("claimed");
    early.commit().await.expect("committed");
    assert_eq!(seal(&store).await, 1, "the one that can be seen");
    let third = client(&url).await;
    for key in 3..6 {
        third.batch_execute(&claim(key)).await.expect("claimed");
        assert_eq!(seal(&store).await, 1);
    }
    late.commit().await.expect("committed");
    assert_eq!(seal(&store).await, 1, "the one that came late");
    assert_eq!(read(&store, |view| view.pending()).await.expect("a read"), 0);
    // Dropping the store waits for its threads.
    tokio::task::spawn_blocking(move || drop(store)).await.expect("no panic");
}
