//! Handlers: their results, what they leave behind, and what the engine does about it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hapax::{Error, Failure, Finding, Hapax, How, Outcome, Safety, Settling, StateName};
use tokio::sync::Notify;

use super::{Dir, LONG, becomes, key, ok, state};

/// Proves K-7: a dropped future means what the safety class says.
#[tokio::test]
async fn dropped_work_is_marked_by_its_safety_class() {
    let dir = Dir::new();
    let hapax = dir.open().await;
    let settling = Safety::Reconcilable(Settling::AfterMs(60_000));
    for (n, safety, state) in [
        (1, Safety::Transactional, StateName::Failed),
        (2, settling, StateName::Unknown),
        (3, Safety::Opaque, StateName::Indeterminate),
    ] {
        let started = Arc::new(Notify::new());
        let task = tokio::spawn({
            let (run, started) = (hapax.effect(key(n)).safety(safety), started.clone());
            run.run(|_| async move {
                started.notify_one();
                std::future::pending::<Result<&str, Failure>>().await
            })
        });
        started.notified().await;
        task.abort();
        becomes(&hapax, n, state).await;
    }
}

/// Proves K-7: so does a panic, which goes on to its caller.
#[tokio::test]
async fn a_panic_is_marked_and_passed_on() {
    let dir = Dir::new();
    let hapax = dir.open().await;
    let run = hapax.effect(key(1)).run(|_| async { panic!("boom") as Result<&str, Failure> });
    assert!(tokio::spawn(run).await.unwrap_err().is_panic());
    assert_eq!(state(&hapax, 1).await, Some(StateName::Indeterminate));
    let effect = hapax.effects().show(key(1)).await.unwrap().unwrap();
    assert!(effect.state.reason().unwrap().contains("boom"));
}

/// Proves K-6: a grant that cannot be delivered is released.
#[tokio::test]
async fn a_caller_that_leaves_while_asking_leaves_nothing_running() {
    let dir = Dir::new();
    let hapax = dir.open().await;
    for n in 1..=20 {
        let mut run = Box::pin(hapax.effect(key(n)).run(|_| async { ok("never") }));
        // Some polls send the claim; then the caller goes away.
        for _ in 0..n {
            let poll = std::future::poll_fn(|cx| std::task::Poll::Ready(run.as_mut().poll(cx)));
            if poll.await.is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    // This answer comes after every release that was sent.
    hapax.effect(key(99)).run(|_| async { ok("after") }).await.unwrap();
    let left = hapax.effects().list(&[StateName::Running], 100).await.unwrap();
    assert_eq!(left.len(), 0, "{left:?}");
}

/// Proves K-3 for handlers' errors.
#[tokio::test]
async fn the_failure_of_a_handler_decides_the_state() {
    let dir = Dir::new();
    let hapax = dir.open().await;
    let fail =
        |n, failure: Failure| hapax.effect(key(n)).run(|_| async { Err::<&str, _>(failure) });
    assert!(matches!(fail(1, Failure::not_done("no")).await, Err(Error::Failed { .. })));
    assert!(matches!(fail(2, Failure::partial("half")).await, Err(Error::Blocked(_))));
    let broken = Failure::from(std::io::Error::other("broken pipe"));
    assert!(matches!(fail(3, broken).await, Err(Error::Blocked(_))));
    let again =
        hapax.effect(key(1)).run(|claim| async move { Ok::<_, Failure>(claim.nth().to_string()) });
    assert_eq!(again.await.unwrap().body(), Some(&b"2"[..]));
    assert!(matches!(
        hapax.effect(key(3)).run(|_| async { ok("no") }).await,
        Err(Error::Blocked(_))
    ));
    let other = hapax.effect(key(1)).payload(b"other").run(|_| async { ok("no") }).await;
    assert!(matches!(other, Err(Error::Conflict { .. })));
}

/// Proves K-7: the reconciler is asked first, and its "not found" counts only after the settling time.
#[tokio::test]
async fn an_unknown_outcome_is_looked_up_before_it_is_tried_again() {
    let dir = Dir::new();
    let hapax = dir.open().await;
    let run = |n, settling_ms, finding: Finding| {
        let safety = Safety::Reconcilable(Settling::AfterMs(settling_ms));
        let effect = hapax.effect(key(n)).safety(safety).wait(Duration::ZERO);
        effect.reconcile(move |_| std::future::ready(finding.clone()))
    };
    for n in [1, 2, 3] {
        let first = run(n, if n == 3 { 600_000 } else { 0 }, Finding::NotFound);
        let lost = first.run(|_| async { Err::<&str, _>(Failure::ambiguous("timeout")) }).await;
        assert!(matches!(lost, Err(Error::Blocked(_))));
    }
    let found =
        run(1, 0, Finding::Happened(Outcome::from("found"))).run(|_| async { ok("no") }).await;
    let found = found.unwrap();
    assert_eq!((found.how, found.body()), (How::Replayed, Some(&b"found"[..])));
    let retried = run(2, 0, Finding::NotFound).run(|_| async { ok("again") }).await.unwrap();
    assert_eq!((retried.how, retried.body()), (How::Executed, Some(&b"again"[..])));
    let early = run(3, 600_000, Finding::NotFound).run(|_| async { ok("no") }).await;
    assert!(matches!(early, Err(Error::Blocked(blocked)) if blocked.state == StateName::Unknown));
}

/// Proves P-9: partial work is rolled back in reverse, once, before it is tried again.
#[tokio::test]
async fn a_partial_effect_is_rolled_back_in_reverse_and_retried() {
    let dir = Dir::new();
    let hapax = dir.open().await;
    let undone = Arc::new(std::sync::Mutex::new(Vec::new()));
    let partial = hapax.effect(key(1)).run(|claim| async move {
        claim.undo_with("drop", b"table a".to_vec()).await?;
        claim.undo_with("drop", b"table b".to_vec()).await?;
        Err::<&str, _>(Failure::partial("b failed"))
    });
    assert!(matches!(partial.await, Err(Error::Blocked(b)) if b.state == StateName::Partial));
    let helpless = hapax.effect(key(1)).run(|_| async { ok("no") }).await;
    assert!(matches!(helpless, Err(Error::Blocked(_))), "it has no rollback handler");
    let seen = undone.clone();
    hapax.on_rollback("drop", move |payload| {
        seen.lock().unwrap().push(String::from_utf8(payload).unwrap());
        std::future::ready(Ok(()))
    });
    let left = hapax.effect(key(1)).leave_partial(true).run(|_| async { ok("no") }).await;
    assert!(matches!(left, Err(Error::Blocked(b)) if b.state == StateName::Partial));
    assert!(undone.lock().unwrap().is_empty(), "a person may have to be asked first");
    let retried = hapax.effect(key(1)).run(|_| async { ok("whole") }).await.unwrap();
    assert_eq!(retried.body(), Some(&b"whole"[..]));
    assert_eq!(*undone.lock().unwrap(), ["table b", "table a"]);
}

/// Proves K-10: when the store cannot be reached, nothing is run.
#[tokio::test]
async fn an_unreachable_store_runs_nothing() {
    struct Gone;
    impl hapax::Store for Gone {
        fn submit(&self, _: Vec<hapax_store::Job>) {}
        fn read(&self, _: hapax_store::Reading) {}
    }
    let hapax = Hapax::builder().on(Arc::new(Gone));
    let ran = AtomicU32::new(0);
    let run = hapax.effect(key(1)).run(|_| async {
        ran.fetch_add(1, Ordering::SeqCst);
        ok("no")
    });
    assert!(matches!(run.await, Err(Error::Store(_))));
    assert_eq!(ran.load(Ordering::SeqCst), 0);
}

/// Proves K-12: an outcome too large to keep is still a success, and says so.
#[tokio::test]
async fn an_outcome_beyond_the_limit_is_remembered_by_its_digest() {
    let dir = Dir::new();
    let hapax = Hapax::builder().keep_limit(10).open(dir.file()).await.unwrap();
    for _ in 0..2 {
        let done = hapax.effect(key(1)).run(|_| async { ok("more than ten bytes") }).await.unwrap();
        assert_eq!((done.body(), done.outcome.size()), (None, 19));
    }
}

/// Proves K-6: a lost lease cancels transactional work, and lets opaque work go on.
#[tokio::test]
async fn a_lost_lease_cancels_what_others_may_be_granted() {
    let dir = Dir::new();
    let hapax = dir.open_brief().await;
    let finish = Arc::new(Notify::new());
    let transactional = tokio::spawn({
        let run = hapax.effect(key(1)).safety(Safety::Transactional);
        run.run(|_| std::future::pending::<Result<&str, Failure>>())
    });
    let opaque = tokio::spawn({
        let (run, finish) = (hapax.effect(key(2)), finish.clone());
        run.run(|_| async move {
            finish.notified().await;
            ok("went on")
        })
    });
    becomes(&hapax, 1, StateName::Running).await;
    becomes(&hapax, 2, StateName::Running).await;
    // As if another process had taken the lease over.
    hapax.connection().unwrap().execute("UPDATE lease SET dead = 1", []).unwrap();
    let cancelled = tokio::time::timeout(LONG, transactional).await.expect("cancelled").unwrap();
    assert!(matches!(cancelled, Err(Error::LeaseLost)));
    finish.notify_one();
    assert_eq!(opaque.await.unwrap().unwrap().body(), Some(&b"went on"[..]));
}
