//! Effects performed by a client that holds no lease.

use std::sync::Arc;
use std::time::Duration;

use hapax::remote::{LeaseId, Verdict, work_ms};
use hapax::{AttemptId, Hapax, MemoryStore, Safety, StateName};
use hapax_store::{ManualClock, call, command};

use super::{key, state};

const MINUTE: Duration = Duration::from_secs(60);

fn attempt(n: u8) -> AttemptId {
    AttemptId::from_bytes([n; 16])
}

/// Proves K-18: a client gets its deadline once, so nothing ends its grant before: no server renews anything, and
/// other processes keep the store's pulse steady.
#[tokio::test]
async fn a_grant_without_a_lease_lasts_until_its_deadline() {
    let clock = Arc::new(ManualClock::default());
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let hapax = Hapax::builder().background(false).on(store.clone());
    let claim = |n: u8| {
        let effect = hapax
            .effect(key(1))
            .safety(Safety::Transactional)
            .deadline(10 * MINUTE)
            .wait(Duration::ZERO);
        effect.claim_for(attempt(n), None)
    };
    let pass = |seconds: u64| {
        let (clock, store) = (clock.clone(), store.clone());
        async move {
            for _ in 0..seconds / 20 {
                clock.advance(20_000);
                call(&*store, command::Expire { limit: 100 }).await.expect("a pass");
            }
        }
    };
    pass(20 * 60).await;
    assert!(matches!(claim(1).await, Ok(Verdict::Granted(_))));
    pass(11 * 60).await;
    assert!(matches!(claim(2).await, Ok(Verdict::InFlight { .. })));
    assert_eq!(state(&hapax, 1).await, Some(StateName::Running));
    pass(60).await;
    assert!(matches!(claim(2).await, Ok(Verdict::Granted(_))), "an eighth after its deadline");
}

/// Proves K-18: a client whose answer was lost asks again, and gets the time that is left, not the whole again. A
/// client that opens its lease again renews it.
#[tokio::test]
async fn a_client_that_asks_again_gets_the_time_that_is_left() {
    let clock = Arc::new(ManualClock::default());
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let hapax = Hapax::builder().background(false).on(store.clone());
    let other = Hapax::builder().background(false).on(store);
    let claim = |hapax: &Hapax| hapax.effect(key(1)).claim_for(attempt(1), None);
    let Ok(Verdict::Granted(grant)) = claim(&hapax).await else { panic!("not granted") };
    assert_eq!(work_ms(&grant), Some(60_000));
    clock.advance(50_000);
    let Ok(Verdict::Granted(again)) = claim(&other).await else { panic!("not granted again") };
    assert_eq!((again.attempt, again.fence), (grant.attempt, grant.fence));
    assert_eq!(work_ms(&again), Some(15_552), "an eighth of what the ledger waits is in reserve");

    let (lease, term) = (LeaseId::from_bytes([7; 16]), MINUTE);
    let opened = hapax.remote().open(lease, term, "worker 3").await.expect("open").expect("new");
    clock.advance(50_000);
    let again = other.remote().open(lease, term, "worker 3").await.expect("open").expect("alive");
    assert_eq!(again.until, opened.until.plus_ms(50_000));
}
