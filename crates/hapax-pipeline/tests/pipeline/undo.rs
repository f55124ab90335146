//! Operations that a person takes back.

use std::time::Duration;

use hapax_pipeline::{RollbackResult, review};

use super::*;

on_both! {
    an_operation_is_taken_back_once_and_nothing_else_is
    no_other_operation_on_the_dataset_runs_during_a_rollback
    a_question_is_not_got_round_by_clearing_the_record
}

mod cases {
    use super::*;

    const WHY: (&str, &str) = ("ann", "the gauge was wrong");

    async fn attempt(ledger: &Ledger, nth: usize) -> (hapax::Key, hapax::AttemptId) {
        let key = operation("flow", nth).key().expect("a key");
        (key, ledger.hapax.effects().show(key).await.expect("a read").expect("a record").attempt)
    }

    /// Performs an operation that can be undone. `undone` counts how often it was.
    async fn loaded(ledger: &Ledger, nth: usize, undone: &Count) {
        let count = undone.clone();
        ledger.hapax.on_rollback("drop rows", move |_| {
            count.add();
            async { Ok(()) }
        });
        let pipeline = ledger.pipeline();
        let load = pipeline.operation(operation("flow", nth)).run(|work| async move {
            work.undo_with("drop rows", "7").await?;
            Ok::<_, WorkError>(WorkResult::new("7 rows"))
        });
        load.await.expect("loaded");
    }

    /// Proves P-16: an operation is undone once, and the journal has the person and the reason. An
    /// operation that is under way, or did not happen, is left alone.
    pub(super) async fn an_operation_is_taken_back_once_and_nothing_else_is(ledger: Arc<Ledger>) {
        let (pipeline, undone) = (ledger.pipeline(), Count::default());
        loaded(&ledger, 1, &undone).await;
        let early = pipeline.operation(operation("flow", 2)).run(|work| {
            let pipeline = &pipeline;
            async move {
                work.undo_with("drop rows", "8").await?;
                let early = pipeline.take_back(work.key(), work.attempt(), WHY).await;
                assert!(matches!(&early, Err(Error::Invalid(why)) if why.contains("under way")));
                Err::<WorkResult, _>(WorkError::not_done("no rows"))
            }
        });
        early.await.expect_err("not done");
        let (key, last) = attempt(&ledger, 2).await;
        let nothing = pipeline.take_back(key, last, WHY).await;
        assert!(matches!(&nothing, Err(Error::Invalid(why)) if why.contains("did not happen")));
        assert_eq!(undone.get(), 0);

        let (key, last) = attempt(&ledger, 1).await;
        for _ in 0..2 {
            let taken_back = pipeline.take_back(key, last, WHY).await.expect("undone");
            assert_eq!((taken_back, undone.get()), (RollbackResult::Cleared, 1));
        }
        let names_the_person = |entry: &Entry| {
            entry.event == hapax::EntryKind::Granted
                && entry.note.as_deref().is_some_and(|note| note.contains(WHY.1))
        };
        assert!(ledger.journal().await.iter().any(names_the_person), "before the first step");
        loaded(&ledger, 1, &undone).await;
        let stale = pipeline.take_back(key, last, WHY).await;
        assert!(matches!(&stale, Err(Error::Invalid(why)) if why.contains("not the last")));
        let none = Count::default();
        done(pipeline.operation(operation("flow", 3)), &none).await.expect("done");
        let (key, last) = attempt(&ledger, 3).await;
        let no_way = pipeline.take_back(key, last, WHY).await.expect("nothing to do");
        assert_eq!((no_way, undone.get()), (RollbackResult::NoWay, 1));
    }

    /// Proves P-4 and P-13: what was done is taken back under the lock of its dataset.
    pub(super) async fn no_other_operation_on_the_dataset_runs_during_a_rollback(
        ledger: Arc<Ledger>,
    ) {
        let pipeline = ledger.pipeline();
        // Also where the record was cleared before, and the lock with it.
        for (nth, cleared) in [(1, false), (3, true)] {
            let undone = Count::default();
            loaded(&ledger, nth, &undone).await;
            let (key, last) = attempt(&ledger, nth).await;
            if cleared {
                let seen = ledger
                    .hapax
                    .effects()
                    .show(key)
                    .await
                    .expect("a read")
                    .expect("a record")
                    .seen();
                pipeline.reset(key, seen, WHY).await.expect("cleared");
            }
            let other = transactional(pipeline.operation(operation("flow", nth + 1)));
            let other = other.run(|_| async {
                let waits = pipeline.take_back(key, last, WHY);
                let waits = tokio::time::timeout(Duration::from_millis(300), waits).await;
                assert!(waits.is_err(), "{waits:?}");
                assert_eq!(undone.get(), 0);
                Ok::<_, WorkError>(WorkResult::new("done"))
            });
            other.await.expect("done");
            let taken_back = pipeline.take_back(key, last, WHY).await.expect("undone");
            assert_eq!((taken_back, undone.get()), (RollbackResult::Cleared, 1));
        }
    }

    /// Proves P-16: while a review of an operation is pending, a person can neither clear its
    /// record nor take back what it did, so the operation cannot begin anew.
    pub(super) async fn a_question_is_not_got_round_by_clearing_the_record(ledger: Arc<Ledger>) {
        let (pipeline, undone) = (ledger.pipeline(), Count::default());
        loaded(&ledger, 1, &undone).await;
        let (key, last) = attempt(&ledger, 1).await;
        review::escalate(&pipeline, key, WHY).await.expect("an answer").expect("one");
        let seen = ledger.hapax.effects().seen(key, last).await.expect("a read");
        let reset = pipeline.reset(key, seen, WHY).await;
        assert!(matches!(reset, Err(Error::Refused(hapax::Refusal::Review(_)))), "{reset:?}");
        let undo = pipeline.take_back(key, last, WHY).await;
        assert!(matches!(undo, Err(Error::Refused(hapax::Refusal::Review(_)))), "{undo:?}");
        assert_eq!(undone.get(), 0);
        let open = review::list(&ledger.hapax, true, 10).await.expect("reviews");
        let yes = review::decide(&pipeline, open[0].key, open[0].attempt, true, WHY).await;
        assert!(matches!(yes, Ok(hapax::Judged::Decided(_))), "{yes:?}");
        let taken_back = pipeline.take_back(key, last, WHY).await.expect("undone");
        assert_eq!((taken_back, undone.get()), (RollbackResult::Cleared, 1));
    }
}
