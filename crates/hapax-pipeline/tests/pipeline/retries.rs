//! Retries: quick ones, whole operations, and their limits.

use std::sync::atomic::AtomicBool;

use hapax::StateName;
use hapax_pipeline::{Meter, RunChange, review};

use super::*;

on_both! {
    a_transient_error_is_retried_at_once
    a_whole_operation_is_tried_again_as_its_dataset_says
    a_partial_operation_is_rolled_back_first
    a_rollback_that_fails_for_the_third_time_is_escalated
    retries_stop_when_their_budget_is_spent
}

const QUICK: Retries = Retries { quick: 3, again: 0, base_ms: 1, cap_ms: 2 };

/// Proves P-9 and P-13: a failure on a sovereign dataset that requires a review is not retried, not
/// even at once. A review is opened.
#[tokio::test]
async fn an_operation_on_a_sovereign_dataset_is_not_retried() {
    let hapax = Hapax::builder().in_memory();
    let theirs = Dataset {
        sovereignty: Some(hapax::Sovereignty::Tribal),
        review: true,
        ..Dataset::default()
    };
    hapax.datasets().declare("theirs", Some(theirs)).await.expect("declared");
    let (pipeline, tries) = (Pipeline::new(hapax), Count::default());
    let justification = Some("a survey".to_owned());
    let builder = pipeline.operation(Operation { justification, ..operation("theirs", 1) });
    let run = builder.run(|_| {
        tries.add();
        async { Err::<WorkResult, _>(WorkError::transient("busy")) }
    });
    let run = run.await;
    assert!(matches!(run, Err(Error::Escalated { .. })), "{run:?}");
    assert_eq!(tries.get(), 1);

    // The same for a client that does the work itself.
    let justification = Some("a survey".to_owned());
    let theirs = Operation { justification, ..operation("theirs", 2) };
    let mut tries = [&theirs, &operation("flow", 1)].map(|operation| {
        let (pipeline, operation) = (pipeline.clone(), operation.clone());
        async move |attempt: u8| {
            let attempt = hapax::AttemptId::from_bytes([attempt; 16]);
            let request = hapax_pipeline::remote::PermitRequest {
                operation: operation.clone(),
                ..Default::default()
            };
            let (key, permit) = pipeline.permit(request, attempt).await?;
            let hapax::remote::Permit::Granted(grant) = permit else { panic!("{permit:?}") };
            let failed = hapax::remote::Report::Failed("busy".into());
            let report = hapax_pipeline::remote::OperationReport::Otherwise(failed);
            pipeline.report(key, (grant.attempt, grant.fence), report).await
        }
    });
    for again in &mut tries {
        again(1).await.expect("reported");
    }
    let refused = tries[0](2).await;
    assert!(matches!(refused, Err(Error::Refused(hapax::Refusal::Review(_)))), "{refused:?}");
    tries[1](2).await.expect("reported");
    let counts = pipeline.meters().counts();
    let retried = counts.iter().filter(|(meter, ..)| *meter == Meter::Retries);
    let retried: Vec<_> = retried.map(|(_, of, n)| (of.dataset_id.as_str(), *n)).collect();
    assert_eq!(retried, [("flow", 1)]);
}

mod cases {
    use super::*;

    /// Proves P-9: a transient error has three quick retries, each counted, and no more.
    pub(super) async fn a_transient_error_is_retried_at_once(ledger: Arc<Ledger>) {
        ledger.declare("flow", Dataset { retries: QUICK, ..Dataset::default() }).await;
        let pipeline = ledger.pipeline();
        for (nth, passes_at, tries) in [(1, 4, 4), (2, 9, 4), (3, 2, 2)] {
            let count = Count::default();
            let builder = transactional(pipeline.operation(operation("flow", nth)));
            let result = builder
                .run(|_| {
                    let at = count.add();
                    async move {
                        match at < passes_at {
                            true => Err(WorkError::transient("the line is busy")),
                            false => Ok(WorkResult::new("done")),
                        }
                    }
                })
                .await;
            assert_eq!((result.is_ok(), count.get()), (passes_at <= 4, tries));
        }
        let counts = pipeline.meters().counts();
        let retried = counts.iter().find(|(meter, ..)| *meter == Meter::Retries).expect("counted");
        assert_eq!((retried.0.name(), retried.2), ("kfm.retry_events", 3 + 3 + 1));
        let moments = ledger.moments().await;
        let products = moments.iter().filter_map(|moment| match &moment.change {
            RunChange::Complete { product, .. } => product.as_ref().map(|product| product.retries),
            _ => None,
        });
        assert_eq!(products.collect::<Vec<_>>(), [3, 1]);
    }

    /// Proves P-9: a whole operation is retried as often as the dataset allows. After the last
    /// retry a review is opened where the dataset declares it. A sovereign dataset that requires a
    /// review has no retry.
    pub(super) async fn a_whole_operation_is_tried_again_as_its_dataset_says(ledger: Arc<Ledger>) {
        let retries = Retries { again: 2, ..QUICK };
        let sovereignty = Some(hapax::Sovereignty::Tribal);
        ledger.declare("flow", Dataset { retries, ..Dataset::default() }).await;
        ledger.declare("asks", Dataset { retries, review: true, ..Dataset::default() }).await;
        ledger
            .declare("theirs", Dataset { retries, review: true, sovereignty, ..Dataset::default() })
            .await;
        let pipeline = ledger.pipeline();
        for (dataset, tries) in [("flow", 3), ("asks", 3), ("theirs", 1)] {
            let count = Count::default();
            let request =
                Operation { justification: Some("a survey".into()), ..operation(dataset, 1) };
            let builder = transactional(pipeline.operation(request));
            let error = builder
                .run(|_| {
                    count.add();
                    async { Err(WorkError::not_done("no")) }
                })
                .await
                .expect_err("failed");
            assert_eq!(count.get(), tries, "{dataset}");
            match dataset {
                "flow" => assert!(matches!(error, Error::Failed { tries: 3, .. }), "{error}"),
                _ => assert!(matches!(error, Error::Escalated { .. }), "{error}"),
            }
        }
        assert_eq!(review::list(&ledger.hapax, true, 10).await.expect("reviews").len(), 2);
        let changes = ledger.run_changes().await;
        assert_eq!(changes, ["START", "FAIL"].repeat(7));
    }

    /// Proves P-8, P-9 and P-16: a partial operation is rolled back, once, before the retry.
    /// Without rollback steps it stays partial, and blocks.
    pub(super) async fn a_partial_operation_is_rolled_back_first(ledger: Arc<Ledger>) {
        let retries = Retries { again: 3, ..QUICK };
        ledger.declare("flow", Dataset { retries, ..Dataset::default() }).await;
        let (pipeline, steps) = (ledger.pipeline(), Arc::new(Mutex::new(Vec::new())));
        let undone = steps.clone();
        ledger.hapax.on_rollback("drop rows", move |rows| {
            undone.lock().expect("a lock").push(format!("undo {}", String::from_utf8_lossy(&rows)));
            async { Ok(()) }
        });
        let count = Count::default();
        let builder = pipeline.operation(operation("flow", 1));
        let finished = builder
            .run(|work| {
                let (at, steps) = (count.add(), steps.clone());
                async move {
                    work.undo_with("drop rows", format!("first {at}")).await?;
                    work.undo_with("drop rows", format!("second {at}")).await?;
                    steps.lock().expect("a lock").push(format!("do {at}"));
                    match at {
                        1 => Err(WorkError::partial("half of it")),
                        _ => Ok(WorkResult::new("done")),
                    }
                }
            })
            .await;
        finished.expect("done the second time");
        assert_eq!(
            *steps.lock().expect("a lock"),
            ["do 1", "undo second 1", "undo first 1", "do 2"]
        );
        assert_eq!(ledger.run_changes().await, ["START", "RUNNING", "FAIL", "START", "COMPLETE"]);

        let builder = pipeline.operation(operation("flow", 2));
        let stays = builder.run(|_| async { Err(WorkError::partial("half of it")) }).await;
        assert!(matches!(stays, Err(Error::Ledger(hapax::Error::Blocked(_)))), "{stays:?}");
        let effect = ledger
            .hapax
            .effects()
            .show(operation("flow", 2).key().expect("a key"))
            .await
            .expect("as it should be");
        assert_eq!(effect.map(|effect| effect.state.name()), Some(StateName::Partial));
        let other = done(pipeline.operation(operation("flow", 3)), &count).await;
        assert!(matches!(other, Err(Error::Ledger(hapax::Error::Blocked(_)))), "{other:?}");
        // A later caller that finds it partial, without rollback steps, escalates it.
        let again = done(pipeline.operation(operation("flow", 2)), &count).await;
        assert!(matches!(again, Err(Error::Escalated { .. })), "{again:?}");
        let again = done(pipeline.operation(operation("flow", 2)), &count).await;
        assert!(matches!(again, Err(Error::Refused(hapax::Refusal::Review(_)))), "{again:?}");

        // A check that fails after the work leaves it partial too.
        let checked = pipeline.operation(operation("levels", 1));
        let checked = checked.after("complete", |_| async { Err("rows are missing".to_owned()) });
        let error = done(checked, &count).await.expect_err("unfit");
        assert!(matches!(error, Error::Refused(hapax::Refusal::Check(_))), "{error}");
        let effect = ledger
            .hapax
            .effects()
            .show(operation("levels", 1).key().expect("a key"))
            .await
            .expect("as it should be");
        assert_eq!(effect.map(|effect| effect.state.name()), Some(StateName::Partial));
    }

    /// Proves P-9: a rollback that keeps failing leaves the operation partial and blocked. The
    /// third failure opens a review, whatever the dataset declares. After an approval the rollback
    /// is tried again.
    pub(super) async fn a_rollback_that_fails_for_the_third_time_is_escalated(ledger: Arc<Ledger>) {
        let (pipeline, tried, mended) =
            (ledger.pipeline(), Count::default(), Arc::new(AtomicBool::new(false)));
        let (tries, works) = (tried.clone(), mended.clone());
        ledger.hapax.on_rollback("drop rows", move |_| {
            tries.add();
            let works = works.load(Ordering::SeqCst);
            async move { works.then_some(()).ok_or(hapax::Failure::not_done("the disk is full")) }
        });
        let builder = || pipeline.operation(operation("flow", 1));
        let partial = builder().run(|work| async move {
            work.undo_with("drop rows", "7").await?;
            Err::<WorkResult, _>(WorkError::partial("some rows"))
        });
        partial.await.expect_err("some of it");
        let again = || builder().run(|_| async { Ok::<_, WorkError>(WorkResult::new("done")) });
        let key = operation("flow", 1).key().expect("a key");
        for nth in 1..=5 {
            let error = again().await.expect_err("it cannot be undone");
            match (nth, error) {
                (1 | 2, Error::Ledger(hapax::Error::Blocked(blocked))) => {
                    assert!(blocked.reason.contains("the rollback failed"), "{blocked:?}");
                }
                (3, Error::Escalated { reason, .. }) => {
                    assert!(reason.contains("the disk is full"), "{reason}");
                }
                (4.., Error::Refused(hapax::Refusal::Review(_))) => {}
                (nth, error) => panic!("{nth}: {error}"),
            }
            let effect = ledger.hapax.effects().show(key).await.expect("a read").expect("a record");
            assert_eq!(effect.state.name(), hapax::StateName::Partial);
        }
        assert_eq!(tried.get(), 3, "it is not approved");
        mended.store(true, Ordering::SeqCst);
        let open = review::list(&ledger.hapax, true, 10).await.expect("reviews");
        let [question] = &open[..] else { panic!("{open:?}") };
        let yes = ("ann", "there is room again");
        let decided = review::decide(&pipeline, question.key, question.attempt, true, yes).await;
        assert!(matches!(decided, Ok(hapax::Judged::Decided(_))), "{decided:?}");
        assert_eq!(again().await.expect("done").done.body(), Some(&b"done"[..]));
        assert_eq!(tried.get(), 4);
    }

    /// Proves P-9: retries do not bury a target that is down. The budget is ten retries, one more
    /// for ten operations and one a second. Once it is spent, there are no retries, quick or whole.
    pub(super) async fn retries_stop_when_their_budget_is_spent(ledger: Arc<Ledger>) {
        const OPERATIONS: usize = 20;
        let retries = Retries { again: 50, ..QUICK };
        ledger.declare("quick", Dataset { retries: QUICK, ..Dataset::default() }).await;
        ledger.declare("whole", Dataset { retries, ..Dataset::default() }).await;
        for (dataset, error) in
            [("quick", WorkError::transient("busy")), ("whole", WorkError::not_done("no"))]
        {
            let (pipeline, count) = (ledger.pipeline(), Count::default());
            let (began, mut errors) = (std::time::Instant::now(), Vec::new());
            for nth in 0..OPERATIONS {
                let builder = transactional(pipeline.operation(operation(dataset, nth)));
                let failed = builder.run(|_| {
                    count.add();
                    let error = error.clone();
                    async { Err(error) }
                });
                errors.push(failed.await.expect_err("it is down").to_string());
            }
            let seconds = began.elapsed().as_secs() as usize;
            let allowed = 10 + OPERATIONS / 10 + seconds;
            let retried = count.get() - OPERATIONS;
            assert!((10..=allowed).contains(&retried), "{dataset}: {retried}, not {allowed}");
            let counts = pipeline.meters().counts();
            let counted = counts.iter().find(|(meter, ..)| *meter == Meter::Retries);
            assert_eq!(counted.map(|(.., count)| *count as usize), Some(retried));
            if dataset == "quick" {
                let last = errors.last().expect("one");
                assert!(last.contains("too many retries are under way"), "{last}");
            }
        }
    }
}
