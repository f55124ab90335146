//! Tests of an epoch that ends while requests are in flight, and of a ledger that is unavailable.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hapax::{EntryKind, Filter, Hapax, Key, StateName};
use hapax_control::{ControlPlane, ControlRequest, Epochs, Error, Registry, SendError};
use hapax_testkit::Postgres;
use tokio::sync::watch;

use super::{PROBE, connector, open, until};

const STEP: &str = "connector.migration_step.v1";

async fn keys(hapax: &Hapax, state: StateName) -> BTreeSet<Key> {
    let filter = Filter { states: vec![state], limit: 5_000, ..Filter::default() };
    let found = hapax.effects().search(filter).await.expect("a list");
    // Not the transition itself, which is recorded like any other effect.
    let ours = found.iter().filter(|found| found.effect.bound.is_some());
    ours.map(|found| found.name.key).collect()
}

/// Proves C-4: an epoch ends while a thousand requests are in flight on four nodes. Outcomes
/// recorded before its end stay, none is recorded after it, each caller gets a refusal, and the
/// voided requests are listed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_epoch_ends_under_a_thousand_requests_on_four_nodes() {
    const NODES: usize = 4;
    const REQUESTS: usize = 250;
    let (server, directory) = (Postgres::start(), tempfile::tempdir().expect("a directory"));
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        nodes.push(open(&server, directory.path()).await);
    }
    let (sent, (go, gate)) = (Arc::new(AtomicUsize::new(0)), watch::channel(0));
    let mut callers = Vec::new();
    for (node, hapax) in nodes.iter().enumerate() {
        let plane = ControlPlane::new(hapax.clone(), Registry::standard());
        for n in 0..REQUESTS {
            let (plane, sent, gate) = (plane.clone(), sent.clone(), gate.clone());
            callers.push(tokio::spawn(async move {
                let request = format!("{node}/{n}");
                let send = |_: ControlRequest| {
                    sent.fetch_add(1, Ordering::SeqCst);
                    let mut gate = gate.clone();
                    async move {
                        // One in ten is answered early, one when the epoch is over, the others
                        // when it is about to end.
                        let hour = [0, 2].get(n % 10).copied().unwrap_or(1);
                        gate.wait_for(|now| *now >= hour).await?;
                        Ok::<_, SendError>("done")
                    }
                };
                plane.dispatch(STEP, request.as_bytes(), send).await
            }));
        }
    }
    until("all were sent", || async { sent.load(Ordering::SeqCst) >= NODES * REQUESTS }).await;
    let (epochs, domain) = (Epochs::new(nodes[0].clone()), connector());
    let advance = epochs.advance(&domain, 0, "ann", "the leader was replaced");
    // The answers come in while the epoch ends.
    let (transition, _) = tokio::join!(advance, async { go.send(1) });
    let transition = transition.expect("an epoch");
    let recorded = keys(&nodes[1], StateName::Succeeded).await;
    go.send(2).expect("callers");
    let (mut answered, mut refused) = (0, 0);
    for caller in callers {
        match caller.await.expect("no panic") {
            Ok(_) => answered += 1,
            Err(Error::Epoch(mismatch)) => {
                assert_eq!((mismatch.bound, mismatch.current), (0, 1));
                refused += 1;
            }
            Err(other) => panic!("unexpected error: {other:?}"),
        }
    }
    assert_eq!(keys(&nodes[2], StateName::Succeeded).await, recorded, "recorded afterwards");
    assert_eq!((transition.epoch, transition.moved), (1, true));
    assert_eq!((answered + refused, recorded.len()), (NODES * REQUESTS, answered));
    let voided = keys(&nodes[3], StateName::Indeterminate).await;
    assert_eq!((voided.len(), transition.voided), (refused, refused));
    let tenth = NODES * REQUESTS / 10;
    assert!(refused >= tenth && answered >= tenth, "{answered} answered, {refused} refused");
    for key in voided {
        let history = nodes[0].journal().history(key, 10).await.expect("a history");
        let entry =
            history.iter().find(|entry| entry.event == EntryKind::Expired).expect("an entry");
        let note = entry.note.as_deref().unwrap_or_default();
        assert_eq!(note, "epoch 0 of connector is over: the leader was replaced");
    }
    assert!(keys(&nodes[0], StateName::Running).await.is_empty());
}

/// Proves C-4: a request that waits to be sent again when its epoch ends is not sent again.
#[tokio::test]
async fn an_epoch_that_ends_between_two_tries_ends_the_request() {
    let hapax = Hapax::builder().in_memory();
    let plane = ControlPlane::new(hapax.clone(), Registry::standard());
    let sent = AtomicUsize::new(0);
    let result = plane
        .dispatch(PROBE, b"{}", |_| {
            sent.fetch_add(1, Ordering::SeqCst);
            let hapax = hapax.clone();
            async move {
                hapax.epochs().advance(&connector(), (0, 1), "ann", "new leader").await?;
                Err::<(), _>(SendError::not_done("the peer is away"))
            }
        })
        .await;
    assert_eq!(result.expect_err("the epoch is over").code(), "ERR_EPOCH_MISMATCH");
    assert_eq!(sent.load(Ordering::SeqCst), 1);
    assert_eq!(keys(&hapax, StateName::Indeterminate).await.len(), 1);
}

/// Proves C-5: while the ledger is unavailable, nothing is sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_ledger_nothing_is_sent() {
    let (mut server, directory) = (Postgres::start(), tempfile::tempdir().expect("a directory"));
    let hapax = open(&server, directory.path()).await;
    let plane = ControlPlane::new(hapax, Registry::standard());
    plane.dispatch(PROBE, b"before", |_| async { Ok::<_, SendError>("up") }).await.expect("up");
    server.stop();
    let sent = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..20)
        .map(|n: usize| {
            let (plane, sent) = (plane.clone(), sent.clone());
            tokio::spawn(async move {
                // A request that was recorded before the ledger went away is no exception.
                let request = if n == 0 { "before".into() } else { format!("{n}") };
                let name = if n % 5 == 4 { super::FENCING } else { PROBE };
                let send = |_: ControlRequest| {
                    sent.fetch_add(1, Ordering::SeqCst);
                    async { Ok::<_, SendError>("never") }
                };
                let sending = plane.dispatch(name, request.as_bytes(), send);
                tokio::time::timeout(Duration::from_secs(60), sending).await
            })
        })
        .collect();
    for caller in callers {
        let result = caller.await.expect("no panic").expect("an answer in time");
        assert_eq!(result.expect_err("no ledger").code(), "ERR_DEDUP_STORE_UNAVAILABLE");
    }
    assert_eq!(sent.load(Ordering::SeqCst), 0);
}

/// Proves C-4: a request while an epoch ends comes before the end or after it. Were a request
/// granted in an epoch that is over, nothing would ever void it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_granted_in_an_epoch_that_is_over() {
    let (server, directory) = (Postgres::start(), tempfile::tempdir().expect("a directory"));
    let mut callers = Vec::new();
    let (stop, stopped) = watch::channel(false);
    for node in 0..3 {
        let hapax = open(&server, directory.path()).await;
        let plane = ControlPlane::new(hapax, Registry::standard());
        for caller in 0..8 {
            let (plane, stopped) = (plane.clone(), stopped.clone());
            callers.push(tokio::spawn(async move {
                let (mut answered, mut refused) = (0, 0);
                while !*stopped.borrow() {
                    let request = format!("{node}/{caller}/{answered}/{refused}");
                    let send = |_: ControlRequest| async { Ok::<_, SendError>("done") };
                    match plane.dispatch(PROBE, request.as_bytes(), send).await {
                        Ok(_) => answered += 1,
                        Err(Error::Epoch(_)) => refused += 1,
                        Err(other) => panic!("unexpected error: {other:?}"),
                    }
                }
                (answered, refused)
            }));
        }
    }
    let hapax = open(&server, directory.path()).await;
    let epochs = Epochs::new(hapax.clone());
    let mut voided = 0;
    for seen in 0..60 {
        let transition = epochs.advance(&connector(), seen, "ann", "again").await;
        voided += transition.expect("an epoch").voided;
    }
    stop.send_replace(true);
    let (mut answered, mut refused) = (0, 0);
    for caller in callers {
        let counted = caller.await.expect("no panic");
        (answered, refused) = (answered + counted.0, refused + counted.1);
    }
    assert!(keys(&hapax, StateName::Running).await.is_empty(), "granted too late");
    assert_eq!(keys(&hapax, StateName::Indeterminate).await.len(), voided);
    assert!(voided > 0 && refused >= voided && answered > 0, "{answered}, {refused}, {voided}");
}
