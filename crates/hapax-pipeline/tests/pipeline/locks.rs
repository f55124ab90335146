//! Locks: one operation at a time on a dataset.

use std::time::Instant;

use hapax::{LockPolicy, Sovereignty};
use hapax_pipeline::{Meter, Settings, review};
use tokio::sync::Notify;

use super::*;

on_both! {
    operations_on_one_dataset_never_overlap
    a_held_lock_is_left_waited_for_or_escalated
    a_lock_is_kept_while_the_outcome_is_unknown
}

/// Runs a hundred operations at once, and returns the most that were at work at the same time.
async fn crowd(ledger: &Ledger, dataset: impl Fn(usize) -> String, part: bool) -> usize {
    let settings =
        Settings { lock_wait: std::time::Duration::from_secs(120), ..Settings::default() };
    let pipeline = Pipeline::with(ledger.hapax.clone(), settings);
    let intervals = Arc::new(Mutex::new(Vec::new()));
    let runs = (0..100).map(|nth| {
        let (pipeline, dataset, intervals) = (pipeline.clone(), dataset(nth), intervals.clone());
        tokio::spawn(async move {
            let mut builder = transactional(pipeline.operation(operation(&dataset, nth)));
            if part {
                builder = builder.part(nth.to_string());
            }
            let run = builder.run(|_| {
                let intervals = intervals.clone();
                async move {
                    let began = Instant::now();
                    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
                    intervals.lock().expect("a lock").push((began, Instant::now()));
                    Ok::<_, WorkError>(WorkResult::new("done"))
                }
            });
            run.await.expect("done");
        })
    });
    for run in runs.collect::<Vec<_>>() {
        run.await.expect("no panic");
    }
    let intervals = intervals.lock().expect("a lock");
    assert_eq!(intervals.len(), 100);
    let at =
        |time: Instant| intervals.iter().filter(move |(began, end)| *began <= time && time < *end);
    intervals.iter().map(|(began, _)| at(*began).count()).max().unwrap_or(0)
}

/// Proves P-5, P-13 and P-19: a lock whose holder has an unknown outcome cannot be taken. That is
/// counted, and escalated where the dataset declares it.
#[tokio::test]
async fn a_lock_that_is_kept_is_counted_and_escalated() {
    let hapax = Hapax::builder().in_memory();
    let theirs = Dataset { on_lock: LockPolicy::Escalate, ..Dataset::default() };
    hapax.datasets().declare("theirs", Some(theirs)).await.expect("declared");
    let pipeline = Pipeline::new(hapax);
    for dataset in ["flow", "theirs"] {
        let lost = pipeline.operation(operation(dataset, 1));
        let lost = lost.run(|_| async { Err::<WorkResult, _>(WorkError::ambiguous("no answer")) });
        lost.await.expect_err("the outcome is unknown");
        let request = hapax_pipeline::remote::PermitRequest {
            operation: operation(dataset, 2),
            ..Default::default()
        };
        let client =
            pipeline.permit(request, hapax::AttemptId::from_bytes([7; 16])).await.map(drop);
        let own = done(pipeline.operation(operation(dataset, 2)), &Count::default()).await;
        for result in [client, own.map(drop)] {
            match dataset {
                "flow" => assert!(matches!(&result, Err(Error::Ledger(hapax::Error::Blocked(_))))),
                // The second call is refused, because the review is open already.
                _ => assert!(matches!(&result, Err(Error::Escalated { .. } | Error::Refused(_)))),
            }
        }
    }
    let failures = pipeline.meters().counts();
    let failures = failures.iter().filter(|(meter, ..)| *meter == Meter::LockFailures);
    let failures: Vec<_> =
        failures.map(|(_, of, count)| (of.dataset_id.as_str(), *count)).collect();
    assert_eq!(failures, [("flow", 2), ("theirs", 1)]);
}

mod cases {
    use super::*;

    /// Proves P-4 and P-6: a hundred operations at once on one dataset never overlap. On a hundred
    /// datasets, or on one with parts, they do.
    pub(super) async fn operations_on_one_dataset_never_overlap(ledger: Arc<Ledger>) {
        assert_eq!(crowd(&ledger, |_| "one".into(), false).await, 1);
        assert!(crowd(&ledger, |nth| format!("many-{nth}"), false).await > 1);
        ledger.declare("parts", Dataset { shards: 64, ..Dataset::default() }).await;
        assert!(crowd(&ledger, |_| "parts".into(), true).await > 1);
        let tribal = Dataset { sovereignty: Some(Sovereignty::Tribal), ..Dataset::default() };
        let refused = Dataset { shards: 4, ..tribal };
        assert!(ledger.hapax.datasets().declare("theirs", Some(refused)).await.is_err());
    }

    /// Proves P-5 and P-13: the dataset's policy decides what a held lock means, and each time is
    /// counted.
    pub(super) async fn a_held_lock_is_left_waited_for_or_escalated(ledger: Arc<Ledger>) {
        let (entered, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let pipeline = ledger.pipeline();
        let theirs = Dataset {
            sovereignty: Some(Sovereignty::Heritage),
            on_lock: LockPolicy::Escalate,
            ..Dataset::default()
        };
        ledger.declare("theirs", theirs).await;
        ledger.declare("busy", Dataset { on_lock: LockPolicy::Skip, ..Dataset::default() }).await;
        for (dataset, policy) in [
            ("busy", LockPolicy::Skip),
            ("theirs", LockPolicy::Escalate),
            ("flow", LockPolicy::Backoff),
        ] {
            let why = |nth| Operation {
                justification: Some("a survey".into()),
                ..operation(dataset, nth)
            };
            let holder = tokio::spawn({
                let (pipeline, entered, go, request) =
                    (pipeline.clone(), entered.clone(), go.clone(), why(1));
                async move {
                    let run = transactional(pipeline.operation(request)).run(|_| {
                        let (entered, go) = (entered.clone(), go.clone());
                        async move {
                            entered.notify_one();
                            go.notified().await;
                            Ok::<_, WorkError>(WorkResult::new("done"))
                        }
                    });
                    run.await.expect("done")
                }
            });
            entered.notified().await;
            let count = Count::default();
            let other = tokio::spawn({
                let (pipeline, request, count) = (pipeline.clone(), why(2), count.clone());
                async move { done(pipeline.operation(request), &count).await }
            });
            if policy != LockPolicy::Backoff {
                let error = other.await.expect("no panic").expect_err("not done");
                match policy {
                    LockPolicy::Skip => assert!(matches!(error, Error::Skipped { .. }), "{error}"),
                    _ => assert!(matches!(error, Error::Escalated { .. }), "{error}"),
                }
                assert_eq!(count.get(), 0);
                go.notify_one();
                holder.await.expect("no panic");
                let again = done(pipeline.operation(why(2)), &count).await;
                match policy {
                    LockPolicy::Skip => drop(again.expect("done")),
                    _ => assert!(
                        matches!(again, Err(Error::Refused(hapax::Refusal::Review(_)))),
                        "the review is pending: {again:?}"
                    ),
                }
                continue;
            }
            let failures = || {
                let counts = pipeline.meters().counts();
                let of = |labels: &hapax_pipeline::Labels| labels.dataset_id == "flow";
                let mine = counts.iter().find(|(m, l, _)| *m == Meter::LockFailures && of(l));
                mine.map_or(0, |(.., count)| *count)
            };
            let deadline = Instant::now() + std::time::Duration::from_secs(30);
            while failures() == 0 {
                assert!(Instant::now() < deadline, "no caller was turned away");
                tokio::task::yield_now().await;
            }
            go.notify_one();
            other.await.expect("no panic").expect("done after a while");
            holder.await.expect("no panic");
            assert_eq!(count.get(), 1);
        }
        let reviews = review::list(&ledger.hapax, true, 10).await.expect("reviews");
        assert_eq!(reviews.len(), 1);
        assert_eq!(
            (reviews[0].dataset_id.as_str(), reviews[0].operation),
            ("theirs", operation("theirs", 2).key().expect("a key"))
        );
        let sovereign =
            ledger.moments().await.into_iter().filter(|moment| moment.run.about.terms.sovereign);
        assert_eq!(sovereign.count(), 2);
    }

    /// Proves P-8: a success, a failure, a panic and a dropped future release the lock where
    /// nothing can have happened. An unknown outcome keeps it.
    pub(super) async fn a_lock_is_kept_while_the_outcome_is_unknown(ledger: Arc<Ledger>) {
        let (pipeline, count) = (ledger.pipeline(), Count::default());
        let next = |nth| transactional(pipeline.operation(operation("flow", nth)));
        next(1).run(|_| async { Err(WorkError::not_done("no")) }).await.expect_err("failed");
        done(next(2), &count).await.expect("the lock is free after a failure");
        let panics = tokio::spawn({
            let pipeline = pipeline.clone();
            async move {
                let builder = transactional(pipeline.operation(operation("flow", 3)));
                builder.run(|_| async { panic!("on purpose") }).await.map(drop)
            }
        });
        assert!(panics.await.is_err());
        done(next(4), &count).await.expect("free after a panic");
        {
            let never = next(5).run(|_| std::future::pending::<Result<WorkResult, WorkError>>());
            tokio::time::timeout(std::time::Duration::from_millis(200), never)
                .await
                .expect_err("dropped");
        }
        done(next(6), &count).await.expect("free after a cancellation");
        let opaque = pipeline.operation(operation("flow", 7));
        opaque.run(|_| async { Err(WorkError::ambiguous("timeout")) }).await.expect_err("unknown");
        let error = done(next(8), &count).await.expect_err("blocked");
        assert!(matches!(error, Error::Ledger(hapax::Error::Blocked(_))), "{error}");
        let doctor = ledger.hapax.maintenance().doctor().await.expect("a doctor");
        assert!(doctor.findings.iter().any(|finding| finding.what.contains("it holds lock_")));
        assert_eq!(count.get(), 3);
    }
}
