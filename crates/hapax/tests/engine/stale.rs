//! Holders that come back after another attempt took their place.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hapax::{Claim, Done, Error, Failure, Hapax, How, OnLock, Safety, StateName};

use super::{Dir, LONG, key, ok, state};

/// A holder on a thread of its own that does not let its runtime renew, like a stopped
/// process, until `wake` is set.
struct Stalled {
    running: Arc<AtomicBool>,
    wake: Arc<AtomicBool>,
    thread: JoinHandle<Result<Done, Error>>,
}

type Work = fn(&Hapax, Claim) -> Result<&'static str, Failure>;

impl Stalled {
    fn hold(file: PathBuf, n: u8, lock: &'static [&'static str], work: Work) -> Self {
        let (running, wake) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (started, woken) = (running.clone(), wake.clone());
        let stall = async move |hapax: Hapax| {
            let effect = hapax.effect(key(n)).safety(Safety::Transactional).lock(lock);
            effect
                .run(|claim| async {
                    started.store(true, Ordering::SeqCst);
                    let start = Instant::now();
                    while !woken.load(Ordering::SeqCst) {
                        assert!(start.elapsed() < LONG, "the holder was not woken");
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    work(&hapax, claim)
                })
                .await
        };
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let builder = Hapax::builder().lease(Duration::from_millis(150));
                stall(builder.open(file).await.expect("a ledger")).await
            })
        });
        Self { running, wake, thread }
    }

    async fn runs(&self) {
        let wait = async {
            while !self.running.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(LONG, wait).await.expect("the holder runs");
    }

    fn wakes(self) -> Result<Done, Error> {
        self.wake.store(true, Ordering::SeqCst);
        self.thread.join().expect("the holder's thread")
    }
}

/// Proves K-5 and K-6: an overtaken holder's settle, and its own transaction, write nothing.
#[tokio::test]
async fn a_stale_holder_is_fenced_also_in_its_own_transaction() {
    let dir = Dir::new();
    let hapax = dir.open_brief().await;
    hapax.connection().unwrap().execute_batch("CREATE TABLE mine (a)").unwrap();
    let stale = Stalled::hold(dir.file(), 1, &["one"], |hapax, claim| {
        let mut db = hapax.connection()?;
        let tx = db.transaction()?;
        tx.execute("INSERT INTO mine VALUES ('stale')", [])?;
        assert!(matches!(claim.settle_in(&tx, "stale"), Err(Error::Fenced(_))));
        drop(tx);
        ok("stale")
    });
    stale.runs().await;
    let effect = hapax.effect(key(1)).safety(Safety::Transactional).wait(LONG);
    assert_eq!(effect.run(|_| async { ok("fresh") }).await.unwrap().how, How::Executed);
    let answer = stale.wakes();
    assert!(matches!(answer, Err(Error::Fenced(_))), "{answer:?}");
    let db = hapax.connection().unwrap();
    let rows: u32 = db.query_row("SELECT count(*) FROM mine", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 0);
    let effect = hapax.effects().show(key(1)).await.unwrap().unwrap();
    assert!(
        matches!(effect.state, hapax::State::Succeeded(outcome) if outcome.body() == Some(b"fresh"))
    );
    let doctor = hapax.maintenance().doctor().await.unwrap();
    assert!(
        doctor.findings.iter().any(|finding| finding.what.contains("stale attempt")),
        "{doctor:?}"
    );
}

/// Proves K-5: a holder that lost only its lock is fenced as well.
#[tokio::test]
async fn a_stale_holder_that_lost_only_its_lock_is_fenced() {
    let dir = Dir::new();
    let hapax = dir.open_brief().await;
    let stale = Stalled::hold(dir.file(), 1, &["dataset"], |_, _| ok("stale"));
    stale.runs().await;
    let locked = hapax.effect(key(2)).lock(&["dataset"]).run(|_| async { ok("no") }).await;
    assert!(matches!(locked, Err(Error::Locked { .. })), "{locked:?}");
    let patient = hapax.effect(key(2)).lock(&["dataset"]).on_lock(OnLock::Wait).wait(LONG);
    assert_eq!(patient.run(|_| async { ok("took it") }).await.unwrap().how, How::Executed);
    let answer = stale.wakes();
    assert!(matches!(answer, Err(Error::Fenced(_))), "{answer:?}");
    assert_eq!(state(&hapax, 1).await, Some(StateName::Failed));
}
