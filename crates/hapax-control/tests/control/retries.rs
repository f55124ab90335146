//! Tests of how often and when requests are sent, on a clock that moves only when all tasks wait.

use std::sync::{Arc, Mutex};

use hapax::{Hapax, StateName};
use hapax_control::{Computation, ControlPlane, Error, Registry, Retry, SendError};
use tokio::time::{Duration, Instant};

use super::FENCING;

/// The seconds at which a computation is sent when its peer is down, and the error that the caller
/// gets.
async fn sent(
    plane: &ControlPlane,
    computation: &str,
    error: impl Fn() -> SendError,
) -> (Vec<u64>, Error) {
    let (times, start) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
    let result = plane
        .dispatch(computation, b"{}", |_| {
            times.lock().expect("a lock").push(start.elapsed().as_secs());
            let error = error();
            async move { Err::<(), _>(error) }
        })
        .await;
    let times = times.lock().expect("a lock").clone();
    (times, result.expect_err("no answer"))
}

/// Proves C-2: retries and pauses exactly as the design's table has them, without jitter.
#[tokio::test(start_paused = true)]
async fn requests_are_sent_as_often_as_the_table_says() {
    let plane = ControlPlane::new(Hapax::builder().in_memory(), Registry::standard());
    let table: [(&str, &[u64]); 5] = [
        ("connector.health_probe.v1", &[0, 1, 2]),
        ("connector.rollout_notify.v1", &[0, 2]),
        ("connector.migration_step.v1", &[0, 1, 3, 7]),
        ("federation.sync_delta.v1", &[0, 3, 6]),
        (FENCING, &[0]),
    ];
    for (computation, expected) in table {
        let (times, error) = sent(&plane, computation, || SendError::not_done("refused")).await;
        assert_eq!(times, expected, "{computation}");
        let count = expected.len() as u32;
        assert!(
            matches!(error, Error::Failed { sent, most, .. } if (sent, most) == (count, count)),
            "{error:?}"
        );
    }
}

/// Proves C-2: a computation that is never retried is not retried when its outcome is unknown
/// either; the outcome waits for an operator. Each dispatch of it is an effect of its own.
#[tokio::test(start_paused = true)]
async fn a_fail_fast_request_is_sent_once_whatever_happens() {
    let hapax = Hapax::builder().in_memory();
    let plane = ControlPlane::new(hapax.clone(), Registry::standard());
    for _ in 0..2 {
        let (times, error) = sent(&plane, FENCING, || SendError::ambiguous("timeout")).await;
        assert_eq!(times, [0]);
        assert!(matches!(error, Error::Ledger(hapax::Error::Blocked(_))), "{error:?}");
    }
    let stuck = hapax.effects().list(&[StateName::Indeterminate], 10).await.expect("a list");
    assert_eq!(stuck.len(), 2);
}

/// Proves C-2: a peer that has decided gets no retry.
#[tokio::test(start_paused = true)]
async fn a_refusal_is_not_retried() {
    let plane = ControlPlane::new(Hapax::builder().in_memory(), Registry::standard());
    let refused = || SendError::refused("ERR_EPOCH_MISMATCH");
    let (times, error) = sent(&plane, "connector.migration_step.v1", refused).await;
    assert_eq!(times, [0]);
    assert!(matches!(error, Error::Refused(reason) if reason == "ERR_EPOCH_MISMATCH"));
}

/// Proves C-3: a request that may have reached the peer is not reported as not done because a later
/// try did not reach it, or was refused.
#[tokio::test(start_paused = true)]
async fn one_try_that_may_have_been_heard_is_remembered() {
    let hapax = Hapax::builder().in_memory();
    let plane = ControlPlane::new(hapax.clone(), Registry::standard());
    let then = |last: SendError| {
        let tries = std::cell::Cell::new(0);
        move || match tries.replace(tries.get() + 1) {
            0 => SendError::ambiguous("timeout"),
            _ => last.clone(),
        }
    };
    let (times, error) =
        sent(&plane, "connector.health_probe.v1", then(SendError::not_done("refused"))).await;
    assert_eq!(times.len(), 3);
    assert!(matches!(&error, Error::Unanswered { sent: 3, most: 3, .. }), "{error:?}");
    let refused = then(SendError::refused("ERR_EPOCH_MISMATCH"));
    let (times, error) = sent(&plane, "connector.rollout_notify.v1", refused).await;
    assert_eq!(times.len(), 2);
    assert!(matches!(&error, Error::Unanswered { sent: 2, .. }), "{error:?}");
    // An opaque computation cannot be granted again safely, so an operator has to decide.
    let opaque = Computation::retryable("connector.opaque.v1", Retry::fixed(1, Duration::ZERO));
    let opaque = opaque.expect("a computation").safety(hapax::Safety::Opaque);
    let plane = ControlPlane::new(hapax, Registry::empty().with(opaque).expect("a registry"));
    let (_, error) = sent(&plane, "connector.opaque.v1", then(SendError::refused("no"))).await;
    assert!(matches!(&error, Error::Ledger(hapax::Error::Blocked(_))), "{error:?}");
}

/// Retries have a budget: ten to begin with, then one for ten requests, and one a second.
#[tokio::test(start_paused = true)]
async fn retries_have_a_budget() {
    let retry = Retry::fixed(50, Duration::from_millis(1));
    let often = Computation::retryable("connector.often.v1", retry).expect("a computation");
    let registry = Registry::empty().with(often).expect("a registry");
    let plane = ControlPlane::new(Hapax::builder().in_memory(), registry);
    let (times, error) =
        sent(&plane, "connector.often.v1", || SendError::not_done("refused")).await;
    assert_eq!(times.len(), 11);
    assert!(matches!(&error, Error::Failed { sent: 11, most: 51, .. }), "{error:?}");
    assert!(error.to_string().contains("too many retries"), "{error}");
}

/// Proves C-7: a request that may be sent again after its sender died is released, and sent again;
/// any other waits for an operator.
#[tokio::test]
async fn requests_of_a_dead_node_are_released_or_escalated() {
    use hapax::remote::{LeaseId, Verdict};
    use hapax::{AttemptId, Bound, Key, Safety};
    use hapax_control::derive_key;

    let directory = tempfile::tempdir().expect("a directory");
    let hapax = Hapax::builder()
        .lease(Duration::from_millis(150))
        .open(directory.path().join("hapax.db"))
        .await
        .expect("a ledger");
    let dead = LeaseId::from_bytes([1; 16]);
    hapax.remote().open(dead, Duration::from_millis(600), "a node").await.expect("a lease");
    let (probe, fencing) =
        (derive_key(super::PROBE, 0, b"{}").expect("a key"), Key::from_bytes([9; 32]));
    for (n, key, safety) in [(1, probe, Safety::Transactional), (2, fencing, Safety::Opaque)] {
        let bound = Bound { domain: super::connector(), epoch: 0 };
        let effect = hapax.effect(key).payload(b"{}").in_epoch(bound).safety(safety);
        let verdict = effect.claim_for(AttemptId::from_bytes([n; 16]), Some(dead)).await;
        assert!(matches!(verdict, Ok(Verdict::Granted(_))), "{verdict:?}");
    }
    let plane = ControlPlane::new(hapax.clone(), Registry::standard());
    let send = |_| async { Ok::<_, SendError>("alive") };
    let done = plane.dispatch(super::PROBE, b"{}", send).await.expect("an answer");
    assert_eq!(done.body(), Some(&b"alive"[..]));
    super::until("a caller learns of the other", || async {
        hapax.pass().await.expect("a pass");
        let stuck = hapax.effects().list(&[StateName::Indeterminate], 10).await.expect("a list");
        stuck.iter().any(|found| found.name.key == fencing)
    })
    .await;
}
