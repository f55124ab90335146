//! Settling in a transaction that the caller owns.

use std::sync::Arc;

use hapax::{Error, Failure, How, Safety};
use tokio::sync::Barrier;

use super::{Dir, LONG, key, ok};

/// Proves K-8: a rollback after `settle_in` tells no waiter of success.
#[tokio::test]
async fn a_rolled_back_success_is_returned_to_no_caller() {
    let dir = Dir::new();
    let hapax = dir.open().await;
    let everyone = Arc::new(Barrier::new(11));
    let mut db = hapax.connection().unwrap();
    db.execute_batch("CREATE TABLE mine (a)").unwrap();
    let waiters: Vec<_> = (0..10)
        .map(|_| {
            let (hapax, everyone) = (hapax.clone(), everyone.clone());
            tokio::spawn(async move {
                everyone.wait().await;
                let effect = hapax.effect(key(1)).safety(Safety::Transactional).wait(LONG);
                effect.run(|_| async { ok("retried") }).await
            })
        })
        .collect();
    let liar = hapax.effect(key(1)).safety(Safety::Transactional).run(|claim| async move {
        everyone.wait().await;
        let tx = db.transaction()?;
        tx.execute("INSERT INTO mine VALUES (1)", [])?;
        claim.settle_in(&tx, "false success")?;
        tx.rollback()?;
        ok("false success")
    });
    assert!(matches!(liar.await, Err(Error::NotCommitted)));
    for waiter in waiters {
        match waiter.await.unwrap() {
            Ok(done) => assert_eq!(done.body(), Some(&b"retried"[..])),
            Err(error) => assert!(matches!(error, Error::NotCommitted), "{error}"),
        }
    }
}

/// Proves K-8: a commit that was read back is a success, whatever the handler says after it.
#[tokio::test]
async fn an_outcome_committed_by_the_caller_is_recorded() {
    let dir = Dir::new();
    let hapax = dir.open().await;
    let mut db = hapax.connection().unwrap();
    db.execute_batch("CREATE TABLE mine (a)").unwrap();
    let run = hapax.effect(key(1)).safety(Safety::Transactional).run(|claim| async move {
        let tx = db.transaction()?;
        tx.execute("INSERT INTO mine VALUES (1)", [])?;
        claim.settle_in(&tx, "true success")?;
        tx.commit()?;
        Err::<&str, _>(Failure::ambiguous("the network broke just then"))
    });
    assert_eq!(run.await.unwrap().body(), Some(&b"true success"[..]));
}

/// Proves K-8: claim, work and outcome share the caller's one commit.
#[tokio::test]
async fn once_in_is_all_or_nothing() {
    let dir = Dir::new();
    let hapax = dir.open().await;
    let mut db = hapax.connection().unwrap();
    db.execute_batch("CREATE TABLE mine (a)").unwrap();
    let mut once = |commit: bool| {
        let tx = db.transaction().unwrap();
        let done = hapax.effect(key(1)).once_in(&tx, |tx, _| {
            tx.execute("INSERT INTO mine VALUES (1)", [])?;
            ok("inserted")
        });
        if commit { tx.commit() } else { tx.rollback() }.unwrap();
        let count: u32 = db.query_row("SELECT count(*) FROM mine", [], |row| row.get(0)).unwrap();
        (done.unwrap().how, count)
    };
    assert_eq!(once(false), (How::Executed, 0));
    assert_eq!(once(true), (How::Executed, 1));
    assert_eq!(once(true), (How::Replayed, 1));
}
