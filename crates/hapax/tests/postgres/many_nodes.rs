//! Several processes on one database.

use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hapax::{Error, Failure, Hapax, Safety, StateName};
use hapax_postgres::{Options, PgStore};
use hapax_testkit::{PgBouncer, Postgres};

use super::{key, note, noted, open};

const URL: &str = "HAPAX_TEST_NODE_URL";
const SINK: &str = "HAPAX_TEST_NODE_SINK";
const KEYS: &str = "HAPAX_TEST_NODE_KEYS";
const LOCKS: &str = "HAPAX_TEST_NODE_LOCKS";
const CALLERS: usize = 64;

/// Not a test: the work of a node, when this program was started as one.
#[test]
fn node() {
    let (Ok(url), Ok(sink), Ok(keys), Ok(locks)) =
        (std::env::var(URL), std::env::var(SINK), std::env::var(KEYS), std::env::var(LOCKS))
    else {
        return;
    };
    let (keys, locks): (u64, u64) = (keys.parse().expect("keys"), locks.parse().expect("locks"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let hapax = match locks {
            0 => Hapax::open(url).await.expect("a ledger"),
            // Advisory locks of four bits: they collide all the time.
            _ => {
                let options = Options { advisory_lock_bits: 4, ..Options::default() };
                let store = tokio::task::spawn_blocking(move || PgStore::open(&url, options));
                let store = store.await.expect("no panic").expect("a ledger");
                Hapax::builder().on(Arc::new(store))
            }
        };
        let next = Arc::new(AtomicU64::new(0));
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let (hapax, next, sink) = (hapax.clone(), next.clone(), sink.clone());
                tokio::spawn(async move {
                    loop {
                        let n = next.fetch_add(1, Ordering::Relaxed);
                        if n >= keys {
                            return;
                        }
                        match locks {
                            0 => until_done(&hapax, n, Path::new(&sink)).await,
                            _ => until_hot(&hapax, n % HOT, locks, Path::new(&sink)).await,
                        }
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.await.expect("no wrong answer");
        }
        // The node is left to its lease if its session is ended just now.
        let _ = hapax.close().await;
    });
}

/// Asks for one effect until it is answered, as a caller does whose connection may break.
async fn until_done(hapax: &Hapax, n: u64, sink: &Path) {
    let expected = format!("{n}");
    for _ in 0..200 {
        let effect = hapax.effect(key(n)).safety(Safety::Transactional);
        let (line, sink) = (expected.clone(), sink.to_owned());
        let done = effect
            .wait(Duration::from_secs(60))
            .run(|_| async move {
                note(&sink, &line)?;
                Ok::<_, Failure>(line)
            })
            .await;
        match done {
            Ok(done) => return assert_eq!(done.body(), Some(expected.as_bytes())),
            Err(Error::Store(error)) => assert!(error.is_transient(), "{error}"),
            Err(Error::InFlight { .. }) => {}
            Err(other) => panic!("a wrong answer about {n}: {other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{n} was never done");
}

/// How many keys are hot, and how often each is tried in vain before it succeeds.
const HOT: u64 = 10;
const VAIN: u32 = 40;

/// Tries a hot effect once. Each attempt of a key is noted, and all but the last one fail.
async fn until_hot(hapax: &Hapax, n: u64, locks: u64, sink: &Path) {
    let sink = sink.to_owned();
    let done = hapax
        .effect(key(n))
        .safety(Safety::Transactional)
        .lock(&[&(n % locks).to_string()])
        .run(|claim| async move {
            note(&sink, &format!("{n} {}", claim.nth()))?;
            if claim.nth() <= VAIN { Err(Failure::not_done("not yet")) } else { Ok("done") }
        })
        .await;
    match done {
        Ok(done) => assert_eq!(done.body(), Some(&b"done"[..])),
        Err(Error::Failed { .. } | Error::InFlight { .. } | Error::Locked { .. }) => {}
        Err(other) => panic!("a wrong verdict about {n}: {other:?}"),
    }
}

fn start(url: &str, sink: &Path, keys: u64, locks: u64) -> Child {
    let this = std::env::current_exe().expect("this program");
    Command::new(this)
        .args(["--exact", "many_nodes::node", "--nocapture"])
        .env(URL, url)
        .env(SINK, sink)
        .env(KEYS, keys.to_string())
        .env(LOCKS, locks.to_string())
        .spawn()
        .expect("a node")
}

/// Proves K-9 and K-15: four processes, 10,000 keys, 64 callers each, PgBouncer in between,
/// sessions ended at random: every key is executed once and nothing is left behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_nodes_behind_a_pooler_that_lose_their_sessions() {
    const KEYS: u64 = 10_000;
    let server = Postgres::start();
    let hapax = open(&server.url("postgres")).await;
    let pooler = PgBouncer::before(&server, 12);
    let directory = tempfile::tempdir().expect("a directory");
    let sink = directory.path().join("sink");
    let mut nodes: Vec<_> =
        (0..4).map(|_| start(&pooler.url("postgres"), &sink, KEYS, 0)).collect();
    let mut ended = 0;
    let admin = super::client(&server.url("postgres")).await;
    while nodes.iter_mut().any(|node| node.try_wait().expect("a node").is_none()) {
        let sql = "SELECT count(pg_terminate_backend(pid)) FROM (
                       SELECT pid FROM pg_stat_activity
                       WHERE pid <> pg_backend_pid() AND usename = 'postgres'
                           AND application_name = 'hapax'
                       ORDER BY random() LIMIT 1) p";
        ended += admin.query_one(sql, &[]).await.expect("a count").get::<_, i64>(0);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for mut node in nodes {
        assert!(node.wait().expect("a node").success());
    }
    let counts = noted(&sink);
    assert!(ended > 5, "sessions were ended: {ended}");
    assert_eq!(counts.len() as u64, KEYS);
    let twice: Vec<_> = counts.iter().filter(|(_, count)| **count != 1).collect();
    assert!(twice.is_empty(), "executed twice, {ended} sessions ended: {twice:?}");
    let hapax = if hapax.effects().show(key(0)).await.is_ok() {
        hapax
    } else {
        open(&server.url("postgres")).await
    };
    let others = StateName::ALL.into_iter().filter(|state| *state != StateName::Succeeded);
    let left = hapax.effects().list(&others.collect::<Vec<_>>(), 10).await.expect("a list");
    assert!(left.is_empty(), "left behind: {left:?}");
}

/// Proves P-4: claims and settles of ten hot keys on three locks from four processes, advisory
/// locks shrunk to four bits: no caller sees a deadlock or a wrong verdict.
#[test]
fn hot_keys_and_colliding_locks() {
    let server = Postgres::start();
    let directory = tempfile::tempdir().expect("a directory");
    let sink = directory.path().join("sink");
    let nodes: Vec<_> = (0..4).map(|_| start(&server.url("postgres"), &sink, 3_000, 3)).collect();
    for mut node in nodes {
        assert!(node.wait().expect("a node").success());
    }
    let counts = noted(&sink);
    assert!(counts.len() > 100, "attempts were made: {}", counts.len());
    assert!(counts.values().all(|count| *count == 1), "an attempt was granted twice: {counts:?}");
}
