//! Identical requests run once, in one process and in several.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hapax::{Error, Failure, Hapax, How, Judged, Key, Safety, StateName};
use tokio::sync::Notify;

use super::{Dir, LONG, key, ok};

/// Proves K-9: identical requests in one process run once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_identical_requests_run_once() {
    let dir = Dir::new();
    let (hapax, runs) = (dir.open().await, Arc::new(AtomicU32::new(0)));
    let tasks: Vec<_> = (0..1000)
        .map(|_| {
            let (hapax, runs) = (hapax.clone(), runs.clone());
            tokio::spawn(async move {
                let run = hapax.effect(key(1)).run(|_| async move {
                    runs.fetch_add(1, Ordering::SeqCst);
                    ok("once")
                });
                run.await.map(|done| done.body().map(<[u8]>::to_vec))
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap(), Some(b"once".to_vec()));
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// Proves K-9: two engines on one file are two processes to each other.
#[tokio::test]
async fn another_process_waits_for_the_outcome() {
    let dir = Dir::new();
    let (a, b) = (dir.open().await, dir.open().await);
    let (started, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let first = {
        let (started, finish) = (started.clone(), finish.clone());
        tokio::spawn(a.effect(key(1)).run(|_| async move {
            started.notify_one();
            finish.notified().await;
            ok("slow")
        }))
    };
    started.notified().await;
    let impatient = b.effect(key(1)).wait(Duration::ZERO).run(|_| async { ok("twice") }).await;
    assert!(matches!(impatient, Err(Error::InFlight { .. })), "{impatient:?}");
    let patient = tokio::spawn(b.effect(key(1)).wait(LONG).run(|_| async { ok("twice") }));
    finish.notify_one();
    assert_eq!(first.await.unwrap().unwrap().how, How::Executed);
    let done = patient.await.unwrap().unwrap();
    assert_eq!((done.how, done.body()), (How::Replayed, Some(&b"slow"[..])));
}

/// Proves K-9: when a leader ends without a result, its followers elect another.
#[tokio::test]
async fn followers_of_a_dropped_leader_elect_another() {
    let dir = Dir::new();
    let (hapax, started) = (dir.open().await, Arc::new(Notify::new()));
    let effect = |hapax: &Hapax| hapax.effect(key(1)).safety(Safety::Transactional).wait(LONG);
    let leader = {
        let (run, started) = (effect(&hapax), started.clone());
        tokio::spawn(run.run(|_| async move {
            started.notify_one();
            std::future::pending::<Result<&str, Failure>>().await
        }))
    };
    started.notified().await;
    let followers: Vec<_> =
        (0..10).map(|_| tokio::spawn(effect(&hapax).run(|_| async { ok("second try") }))).collect();
    tokio::task::yield_now().await;
    leader.abort();
    for follower in followers {
        let done = tokio::time::timeout(LONG, follower).await.expect("not hung").unwrap().unwrap();
        assert_eq!(done.body(), Some(&b"second try"[..]));
    }
}

/// Proves K-11: no process replays a reset outcome from its cache.
#[tokio::test]
async fn a_reset_reaches_every_process_before_it_returns() {
    let dir = Dir::new();
    let (a, b) = (dir.open().await, dir.open().await);
    for hapax in [&a, &b] {
        hapax.effect(key(1)).run(|_| async { ok("first") }).await.unwrap();
        let again = hapax.effect(key(1)).run(|_| async { ok("no") }).await.unwrap();
        assert_eq!(again.how, How::Replayed);
    }
    let seen = a.effects().show(key(1)).await.unwrap().unwrap().seen();
    let reset = tokio::time::timeout(LONG, a.effects().reset(key(1), seen, "ann", "wrong input"));
    assert_eq!(reset.await.expect("in time").unwrap(), Judged::Decided(StateName::Failed));
    let again = b.effect(key(1)).run(|_| async { ok("second") }).await.unwrap();
    assert_eq!((again.how, again.body()), (How::Executed, Some(&b"second"[..])));
}

/// A round seals the entries that it finds, once, however many come meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_under_load_makes_one_head() {
    let dir = Dir::new();
    let hapax = Hapax::builder().background(false).open(dir.file()).await.expect("a ledger");
    let busy: Vec<_> = (0..8)
        .map(|caller: u32| {
            let hapax = hapax.clone();
            tokio::spawn(async move {
                for n in 0..100u32 {
                    let fields = [("caller", &caller.to_be_bytes()[..]), ("n", &n.to_be_bytes())];
                    let key = Key::derive("load.v1", &fields).expect("a key");
                    hapax.effect(key).run(|_| async { ok("done") }).await.expect("an outcome");
                }
            })
        })
        .collect();
    while hapax.journal().last_entry().await.expect("a read") == 0 {
        tokio::task::yield_now().await;
    }
    assert!(hapax.pass().await.expect("a round").sealed > 0);
    let verified = hapax
        .journal()
        .verify(hapax.journal().verifier().expect("a key"), |_, _| ())
        .await
        .expect("a look");
    assert_eq!((verified.heads, verified.damage.len()), (1, 0));
    for caller in busy {
        caller.await.expect("a caller");
    }
}
