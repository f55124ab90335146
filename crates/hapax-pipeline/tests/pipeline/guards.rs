//! Guards: operations that may not begin, and results that do not count.

use hapax::json::Json;
use hapax::remote::Report;
use hapax::{Failure, Refusal, Slo, StateName};
use hapax_pipeline::remote::{OperationReport, PermitRequest};
use hapax_pipeline::replay::{self, ReplayScope};
use hapax_pipeline::review::{self, ReviewStatus};
use hapax_pipeline::{RefusalEvent, Refusals};

use super::*;

on_both! {
    guards_say_no_and_say_why
    a_spent_error_budget_stops_operations
    the_error_budget_counts_operations_and_not_attempts
    a_missing_argument_opens_no_review
    a_review_is_opened_and_decided_once
    a_refusal_for_want_of_a_yes_is_journalled
    a_person_may_escalate_any_operation
    an_escalated_operation_is_not_undone_before_its_approval
    every_refusal_is_in_the_governance_ledger
}

/// Proves P-9 and P-14: a retry on a sensitive dataset has to read what the first try read, so it
/// cannot fill a gap in.
#[tokio::test]
async fn a_retry_fills_nothing_in() {
    let hapax = Hapax::builder().in_memory();
    hapax
        .datasets()
        .declare("dug", Some(Dataset { masked: Some(5), ..Dataset::default() }))
        .await
        .expect("declared");
    let (pipeline, count) = (Pipeline::new(hapax), Count::default());
    let justification = Some("a survey".to_owned());
    let read = |text: &str| {
        let request = Operation { justification: justification.clone(), ..operation("dug", 1) };
        pipeline.operation(request).input(Json::parse(text.as_bytes()).expect("JSON"))
    };
    let gap = read(r#"{"depth":null}"#)
        .run(|_| async { Err::<WorkResult, _>(WorkError::not_done("no")) });
    gap.await.expect_err("not done");
    let filled = done(read(r#"{"depth":3}"#), &count).await;
    let conflict = matches!(&filled, Err(Error::Ledger(hapax::Error::Conflict { .. })));
    assert!(conflict, "{filled:?}");
    let client = hapax_pipeline::remote::PermitRequest {
        operation: Operation { justification: justification.clone(), ..operation("dug", 1) },
        inputs: vec![Json::parse(br#"{"depth":3}"#).expect("JSON")],
        ..Default::default()
    };
    let client = pipeline.permit(client, hapax::AttemptId::from_bytes([7; 16])).await;
    let conflict = matches!(&client, Err(Error::Ledger(hapax::Error::Conflict { .. })));
    assert!(conflict, "{client:?}");
    done(read(r#"{"depth":null}"#), &count).await.expect("done");
    assert_eq!(count.get(), 1);
}

mod cases {
    use super::*;

    /// Proves P-7, P-14 and P-19: each guard refuses before anything is done; the refusal is
    /// typed, and in the journal.
    pub(super) async fn guards_say_no_and_say_why(ledger: Arc<Ledger>) {
        let contract =
            Some(r#"{"required":["rows"],"properties":{"rows":{"type":"integer"}}}"#.into());
        ledger.declare("masked", Dataset { masked: Some(5), ..Dataset::default() }).await;
        ledger.declare("restricted", Dataset { restricted: true, ..Dataset::default() }).await;
        ledger.declare("agreed", Dataset { input_contract: contract, ..Dataset::default() }).await;
        let (pipeline, count) = (ledger.pipeline(), Count::default());
        let refused = |builder| {
            let count = &count;
            async move {
                match done(builder, count).await {
                    Err(Error::Refused(refusal)) => refusal,
                    other => panic!("not refused: {other:?}"),
                }
            }
        };
        let json = |text: &str| hapax::json::Json::parse(text.as_bytes()).expect("as it should be");
        let care = refused(pipeline.operation(operation("masked", 1))).await;
        assert!(matches!(care, Refusal::Care(_)), "{care}");
        let sovereign = refused(pipeline.operation(operation("restricted", 1))).await;
        assert!(matches!(sovereign, Refusal::Sovereignty(_)), "{sovereign}");
        let nothing = refused(pipeline.operation(operation("agreed", 1))).await;
        assert!(matches!(nothing, Refusal::Contract(_)), "{nothing}");
        let secret = json(r#"{"rows":"4711 secret"}"#);
        let breach = refused(pipeline.operation(operation("agreed", 1)).input(secret)).await;
        assert!(
            breach.to_string().contains("/rows") && !breach.to_string().contains("4711"),
            "{breach}"
        );
        let check = pipeline.operation(operation("agreed", 1)).input(json(r#"{"rows":7}"#));
        let check = check.before("fresh", |_| async { Err("is old".to_owned()) });
        let check = refused(check).await;
        assert_eq!(check, Refusal::Check("fresh: is old".into()));
        let csv = pipeline.operation(operation("agreed", 1)).input(json(r#"{"rows":7}"#));
        let csv = refused(csv.unreadable("in.csv")).await;
        assert!(csv.to_string().contains("in.csv must be JSON or JSON lines"), "{csv}");
        assert_eq!(count.get(), 0);
        let fine = pipeline.operation(operation("agreed", 1)).input(json(r#"{"rows":7}"#));
        done(fine, &count).await.expect("done");
        let why = Operation {
            justification: Some("a new survey".into()),
            governance_ref: Some("board/7".into()),
            ..operation("masked", 1)
        };
        done(pipeline.operation(why), &count).await.expect("done");
        let journal = ledger.journal().await;
        let noted = |what: &str| {
            journal
                .iter()
                .filter(|e| e.note.as_deref().is_some_and(|n| n.starts_with(what)))
                .count()
        };
        assert_eq!(
            (noted("refused: care"), noted("refused: contract"), noted("refused: check")),
            (1, 3, 1)
        );
        let outbox = hapax::outbox::OutboxConfig::new();
        let guards = hapax::guard::Guards { registered: true, ..Default::default() };
        ledger.hapax.outbox().configure(&outbox.guards(guards)).await.expect("configured");
        let unknown = ledger.pipeline();
        let exact = || Some("dug at 38.512347, -97.321234".to_owned());
        let request = Operation { justification: exact(), ..operation("nobody's", 1) };
        let unknown = refused(unknown.operation(request)).await;
        assert_eq!(unknown, Refusal::Unregistered);
        let last = ledger.journal().await.pop().and_then(|entry| entry.note);
        assert_eq!(last, Some(format!("refused: {unknown}")), "it is in the journal too");
        let notes = ledger.journal().await.into_iter().filter_map(|entry| entry.note);
        assert!(
            notes.into_iter().all(|note| !note.contains("38.512347")),
            "with nothing but its key"
        );
    }

    /// Proves P-9: failures use up the error budget, refusals do not. Once it is spent, no
    /// operation begins.
    pub(super) async fn a_spent_error_budget_stops_operations(ledger: Arc<Ledger>) {
        let slo = Some(Slo { window_ms: 3_600_000, objective_ppm: 900_000 });
        ledger.declare("flow", Dataset { slo, ..Dataset::default() }).await;
        let (pipeline, count) = (ledger.pipeline(), Count::default());
        for nth in 0..2 {
            let builder = transactional(pipeline.operation(operation("flow", nth)));
            builder.run(|_| async { Err(WorkError::not_done("no")) }).await.expect_err("failed");
            ledger.hapax.pass().await.expect("sealed");
        }
        for _ in 0..3 {
            let error =
                done(pipeline.operation(operation("flow", 9)), &count).await.expect_err("refused");
            let Error::Refused(Refusal::Budget { failed, of, allowed }) = error else {
                panic!("{error}")
            };
            assert_eq!((failed, of, allowed), (2, 2, 1));
            ledger.hapax.pass().await.expect("sealed");
        }
        done(pipeline.operation(operation("levels", 9)), &count).await.expect("another dataset");
        ledger.declare("flow", Dataset::default()).await;
        let fresh = ledger.pipeline();
        done(fresh.operation(operation("flow", 9)), &count).await.expect("no objective any more");
        assert_eq!(count.get(), 2);
    }

    /// Proves P-9, P-21: however often an operation is tried, it fails once. If its last attempt succeeds,
    /// it did not fail.
    pub(super) async fn the_error_budget_counts_operations_and_not_attempts(ledger: Arc<Ledger>) {
        let slo = Some(Slo { window_ms: 3_600_000, objective_ppm: 900_000 });
        ledger.declare("flow", Dataset { slo, ..Dataset::default() }).await;
        let (pipeline, count) = (ledger.pipeline(), Count::default());
        let fail = async |nth: usize| {
            let builder = transactional(pipeline.operation(operation("flow", nth)));
            let failed = builder.run(|_| async { Err(WorkError::not_done("no")) }).await;
            let failed = failed.expect_err("failed");
            assert!(matches!(failed, Error::Failed { .. }), "{nth}: {failed}");
            ledger.hapax.pass().await.expect("sealed");
        };
        // One operation may fail, and one has failed.
        for _ in 0..4 {
            fail(1).await;
        }
        done(pipeline.operation(operation("flow", 1)), &count).await.expect("done");
        ledger.hapax.pass().await.expect("sealed");
        // It succeeded in the end, so another operation may fail.
        for nth in [2, 2, 2, 3] {
            fail(nth).await;
        }
        let error = done(pipeline.operation(operation("flow", 4)), &count).await;
        let Err(Error::Refused(Refusal::Budget { failed, of, allowed })) = error else {
            panic!("{error:?}")
        };
        assert_eq!((failed, of, allowed), (2, 3, 1));
        assert_eq!(count.get(), 1);
    }

    /// Proves P-7, P-16, P-21: a caller that forgot an argument gives it. A reviewer has nothing to
    /// decide, so no review is opened, and the next call needs no approval.
    pub(super) async fn a_missing_argument_opens_no_review(ledger: Arc<Ledger>) {
        let masked = Dataset { masked: Some(5), review: true, ..Dataset::default() };
        ledger.declare("masked", masked).await;
        let restricted = Dataset { restricted: true, review: true, ..Dataset::default() };
        ledger.declare("restricted", restricted).await;
        let (pipeline, count) = (ledger.pipeline(), Count::default());
        for (dataset, argument) in [("masked", "justification"), ("restricted", "governance_ref")] {
            let refused = done(pipeline.operation(operation(dataset, 1)), &count).await;
            let Err(Error::Refused(refusal)) = refused else { panic!("{refused:?}") };
            assert_eq!(refusal.missing_argument(), Some(argument));
            let client =
                PermitRequest { operation: operation(dataset, 1), ..PermitRequest::default() };
            let attempt = hapax::AttemptId::from_bytes([argument.len() as u8; 16]);
            let refused = pipeline.permit(client, attempt).await;
            assert!(matches!(&refused, Err(Error::Refused(_))), "{refused:?}");
            let reviews = review::list(&ledger.hapax, false, 10).await.expect("reviews");
            assert!(reviews.is_empty(), "{reviews:?}");
            let complete = Operation {
                justification: Some("a survey".into()),
                governance_ref: Some("board/7".into()),
                ..operation(dataset, 1)
            };
            done(pipeline.operation(complete), &count).await.expect("done");
        }
        assert_eq!(count.get(), 2);
    }

    /// Proves P-13 and P-16: a refusal opens a review where the dataset requires one. The operation
    /// is not tried until a reviewer approves, and its guards hold after that.
    pub(super) async fn a_review_is_opened_and_decided_once(ledger: Arc<Ledger>) {
        let theirs = Dataset { masked: Some(5), review: true, ..Dataset::default() };
        ledger.declare("theirs", theirs).await;
        let (pipeline, count, hapax) = (ledger.pipeline(), Count::default(), &ledger.hapax);
        let ask = |nth: usize, ready: bool| {
            let justification = Some("a survey".to_owned());
            let request = Operation { justification, ..operation("theirs", nth) };
            let check = move |_| async move { if ready { Ok(()) } else { Err("no".to_owned()) } };
            done(pipeline.operation(request).before("ready", check), &count)
        };
        let refusal = |result: Result<Finished, Error>| match result {
            Err(Error::Refused(refusal)) => refusal.guard(),
            other => panic!("not refused: {other:?}"),
        };
        assert_eq!(refusal(ask(1, false).await), "check");
        assert_eq!(refusal(ask(1, true).await), "review");
        let open = review::list(hapax, true, 10).await.expect("reviews");
        let [question] = &open[..] else { panic!("{open:?}") };
        assert_eq!(
            (question.status, question.dataset_id.as_str()),
            (ReviewStatus::Pending, "theirs")
        );
        assert!(question.reason.starts_with("check: "));
        let decide = |review: &review::Review, approve| {
            let (pipeline, key, attempt) = (&pipeline, review.key, review.attempt);
            async move {
                review::decide(pipeline, key, attempt, approve, ("ann", "seen"))
                    .await
                    .expect("judged")
            }
        };
        let lost = hapax::Key::derive("transfer.v1", &[("id", b"7")]).expect("a key");
        let lost_run =
            hapax.effect(lost).run(|_| async { Err::<(), _>(Failure::ambiguous("lost")) });
        lost_run.await.expect_err("the outcome is unknown");
        let attempt = hapax.effects().show(lost).await.expect("a read").expect("a record").attempt;
        let decided = review::decide(&pipeline, lost, attempt, true, ("ann", "yes")).await;
        assert!(matches!(decided, Err(Error::Invalid(_))), "no review: {decided:?}");
        let state =
            hapax.effects().show(lost).await.expect("a read").expect("a record").state.name();
        assert_eq!(state, hapax::StateName::Indeterminate, "and so not decided");
        assert!(matches!(decide(question, true).await, hapax::Judged::Decided(_)));
        assert!(matches!(decide(question, false).await, hapax::Judged::Fenced(_)));
        assert_eq!(refusal(ask(1, false).await), "check", "a yes is no way past a guard");
        let again = review::list(hapax, true, 10).await.expect("reviews");
        assert!(matches!(decide(&again[0], true).await, hapax::Judged::Decided(_)));
        ask(1, true).await.expect("done");
        let about = ledger.moments().await.pop().expect("a moment").run.about;
        review::open(hapax, &about, "asked afterwards").await.expect("opened");
        ask(1, true).await.expect("the recorded result");
        assert_eq!(count.get(), 1);
        let reviews = review::list(hapax, true, 10).await.expect("reviews");
        assert!(matches!(decide(&reviews[0], true).await, hapax::Judged::Decided(_)));
        for n in 0..9 {
            let opened = review::open(hapax, &about, "asked once more").await.expect("opened");
            let again = review::open(hapax, &about, "and again").await.expect("opened");
            assert_eq!(opened, again, "one question, {n}");
            let reviews = review::list(hapax, true, 10).await.expect("reviews");
            assert_eq!((reviews.len(), reviews[0].key), (1, opened));
            assert!(matches!(decide(&reviews[0], true).await, hapax::Judged::Decided(_)));
        }

        assert_eq!(refusal(ask(2, false).await), "check");
        let open = review::list(hapax, true, 10).await.expect("reviews");
        decide(&open[0], false).await;
        assert_eq!(refusal(ask(2, true).await), "review");
        assert_eq!(review::list(hapax, false, 100).await.expect("reviews").len(), 4 + 9);
    }

    /// Proves P-13 and P-16: each refusal of an operation for want of an approval is in the
    /// journal, without anything that the caller gave.
    pub(super) async fn a_refusal_for_want_of_a_yes_is_journalled(ledger: Arc<Ledger>) {
        let theirs = Dataset { masked: Some(5), review: true, ..Dataset::default() };
        ledger.declare("theirs", theirs).await;
        let (pipeline, count, hapax) = (ledger.pipeline(), Count::default(), &ledger.hapax);
        let justified =
            || Operation { justification: Some("a survey".into()), ..operation("theirs", 1) };
        let refused = async |result: Result<(), Error>| {
            assert!(matches!(&result, Err(Error::Refused(_))), "{result:?}");
            let journal = ledger.journal().await;
            let is_granted = |entry: &&Entry| {
                let note = entry.note.as_deref().unwrap_or_default();
                note.starts_with("refused: review: ")
            };
            let last = journal.iter().rfind(is_granted);
            let granted = last.and_then(|last| {
                journal.iter().find(|entry| entry.attempt == last.attempt && entry.id < last.id)
            });
            (
                journal.iter().filter(is_granted).count(),
                granted.and_then(|entry| entry.note.clone()),
            )
        };
        let ask = async || done(pipeline.operation(justified()), &count).await.map(drop);
        let early = pipeline.operation(justified());
        let early = early.before("ready", |_| async { Err("no".to_owned()) });
        let early = done(early, &count).await.map(drop);
        assert_eq!(refused(early).await, (0, None));
        let (once, note) = refused(ask().await).await;
        let note = note.expect("what was refused");
        let key = operation("theirs", 1).key().expect("a key").to_string();
        assert!(note.contains(&key) && note.contains("\"theirs\""), "{note}");
        assert!(!note.contains("a survey"), "{note}");
        assert_eq!((once, refused(ask().await).await.0), (1, 2));
        let client = PermitRequest { operation: justified(), ..PermitRequest::default() };
        let attempt = hapax::AttemptId::from_bytes([7; 16]);
        let permit = pipeline.permit(client, attempt).await.map(drop);
        assert_eq!(refused(permit).await.0, 3);
        let open = review::list(hapax, true, 10).await.expect("reviews").remove(0);
        let no = ("ann", "leave it");
        review::decide(&pipeline, open.key, open.attempt, false, no).await.expect("judged");
        assert_eq!(refused(ask().await).await.0, 4);
        let last = ledger.journal().await.pop().and_then(|entry| entry.note);
        assert_eq!(last.as_deref(), Some("refused: review: a reviewer rejected it"));
        assert_eq!(ledger.run_changes().await, ["START", "FAIL"], "and lineage of what began only");
        assert_eq!(count.get(), 0);
    }

    /// Proves P-16: a person may escalate an operation, whatever its dataset declares. From then on
    /// it waits for an approval, from every caller and every client.
    pub(super) async fn a_person_may_escalate_any_operation(ledger: Arc<Ledger>) {
        ledger.declare("digs", Dataset { masked: Some(5), ..Dataset::default() }).await;
        let (pipeline, count, hapax) = (ledger.pipeline(), Count::default(), &ledger.hapax);
        let request =
            || Operation { justification: Some("a survey".into()), ..operation("digs", 1) };
        let key = request().key().expect("a key");
        let escalate = async |note: &str| {
            review::escalate(&pipeline, key, ("ann", note)).await.expect("an answer")
        };
        assert_eq!(escalate("too early").await, None, "it has not begun");
        let failing = transactional(pipeline.operation(request()));
        failing.run(|_| async { Err(WorkError::not_done("no")) }).await.expect_err("failed");
        let (review, status) = escalate("is 38.512347, -97.321234 right?").await.expect("a review");
        assert_eq!(status, ReviewStatus::Pending);
        assert_eq!(
            escalate("and again").await,
            Some((review, ReviewStatus::Pending)),
            "one question"
        );
        let open = review::list(hapax, true, 10).await.expect("reviews").remove(0);
        assert_eq!((open.key, open.operation), (review, key));
        assert_eq!(open.asked_by.as_deref(), Some("ann"));
        assert!(open.reason.starts_with("is [h3:"), "{}", open.reason);

        let again = done(transactional(pipeline.operation(request())), &count).await;
        assert!(matches!(&again, Err(Error::Refused(Refusal::Review(_)))), "{again:?}");
        let deadline = Some(std::time::Duration::from_secs(60));
        let client = PermitRequest { operation: request(), deadline, ..PermitRequest::default() };
        let attempt = hapax::AttemptId::from_bytes([7; 16]);
        let client = pipeline.permit(client, attempt).await;
        assert!(matches!(&client, Err(Error::Refused(Refusal::Review(_)))), "{client:?}");
        assert_eq!(count.get(), 0);
        let fails = ledger.run_changes().await.into_iter().filter(|word| *word == "FAIL").count();
        assert_eq!(fails, 3, "each is in the journal");
        let yes = ("ben", "it is");
        review::decide(&pipeline, review, open.attempt, true, yes).await.expect("judged");
        done(transactional(pipeline.operation(request())), &count).await.expect("done");
        assert_eq!(count.get(), 1);
    }

    /// Proves P-9 and P-16: a partial operation that was escalated is refused before anything of it
    /// is undone, whatever the dataset declares about reviews. After an approval it is undone and
    /// done again.
    pub(super) async fn an_escalated_operation_is_not_undone_before_its_approval(
        ledger: Arc<Ledger>,
    ) {
        let (pipeline, hapax) = (ledger.pipeline(), &ledger.hapax);
        let (count, undone) = (Count::default(), Count::default());
        hapax.on_rollback("drop rows", {
            let undone = undone.clone();
            move |_| {
                undone.add();
                async { Ok(()) }
            }
        });
        let run = async || {
            let builder = pipeline.operation(operation("flow", 1));
            let work = |work: Work| {
                let at = count.add();
                async move {
                    work.undo_with("drop rows", "7").await?;
                    match at {
                        1 => Err(WorkError::partial("half of it")),
                        _ => Ok(WorkResult::new("done")),
                    }
                }
            };
            builder.run(work).await
        };
        let client = || {
            let deadline = Some(std::time::Duration::from_secs(60));
            let request = PermitRequest {
                operation: operation("flow", 1),
                deadline,
                ..PermitRequest::default()
            };
            pipeline.permit(request, hapax::AttemptId::from_bytes([7; 16]))
        };
        run().await.expect_err("half of it");
        let key = operation("flow", 1).key().expect("a key");
        let (review, _) = review::escalate(&pipeline, key, ("ann", "which half?"))
            .await
            .expect("an answer")
            .expect("it was begun");
        for refused in [run().await.map(drop), client().await.map(drop)] {
            assert!(matches!(&refused, Err(Error::Refused(Refusal::Review(_)))), "{refused:?}");
        }
        let state = async || {
            hapax.effects().show(key).await.expect("a read").expect("a record").state.name()
        };
        assert_eq!((undone.get(), count.get(), state().await), (0, 1, StateName::Partial));
        let open = review::list(hapax, true, 10).await.expect("reviews").remove(0);
        review::decide(&pipeline, review, open.attempt, true, ("ben", "go on"))
            .await
            .expect("judged");
        run().await.expect("done");
        assert_eq!((undone.get(), count.get()), (1, 2));
    }

    /// Proves P-7, P-10, P-13: the governance ledger has every refusal: before the work, after it,
    /// before a replay, or for want of an approval. It names the guard and has nothing that the
    /// caller gave. A client's own report of a refusal is not in it.
    pub(super) async fn every_refusal_is_in_the_governance_ledger(ledger: Arc<Ledger>) {
        let contract = || Some(r#"{"required":["rows"]}"#.to_owned());
        let care_label = || Some("TK-NC".to_owned());
        for (name, dataset) in [
            (
                "masked",
                Dataset {
                    masked: Some(5),
                    review: true,
                    care_label: care_label(),
                    ..Dataset::default()
                },
            ),
            ("restricted", Dataset { restricted: true, ..Dataset::default() }),
            ("agreed", Dataset { input_contract: contract(), ..Dataset::default() }),
            ("makes", Dataset { output_contract: contract(), ..Dataset::default() }),
            ("later", Dataset::default()),
        ] {
            ledger.declare(name, dataset).await;
        }
        let (pipeline, count) = (ledger.pipeline(), Count::default());
        let json = |text: &str| hapax::json::Json::parse(text.as_bytes()).expect("JSON");
        let secret = || json(r#"{"depth":"4711 secret"}"#);
        let refused = async |builder: OperationBuilder<'_>| {
            let result = done(builder, &count).await;
            assert!(matches!(result, Err(Error::Refused(_))), "{result:?}");
        };
        refused(pipeline.operation(operation("masked", 1)).input(secret())).await;
        let key = operation("masked", 1).key().expect("a key");
        let question = ("ann", "is it theirs?");
        let asked = review::escalate(&pipeline, key, question).await.expect("an answer");
        assert!(asked.is_some(), "it was begun");
        let why = Some("a 4711 secret".to_owned());
        let justified = Operation { justification: why, ..operation("masked", 1) };
        refused(pipeline.operation(justified)).await;
        refused(pipeline.operation(operation("restricted", 1))).await;
        refused(pipeline.operation(operation("agreed", 1)).input(secret())).await;
        let stale = pipeline.operation(operation("plain", 1));
        refused(stale.before("fresh", |_| async { Err("is old".to_owned()) })).await;
        let builder = pipeline.operation(operation("makes", 1));
        let unfit = builder.run(|work| async move {
            work.undo_with("drop rows", "7").await?;
            Ok::<_, WorkError>(WorkResult::new("").document(json(r#"{"depth":"4711 secret"}"#)))
        });
        unfit.await.expect_err("not as agreed");
        // Undoing it is not another refusal.
        ledger.hapax.on_rollback("drop rows", |_| async { Ok(()) });
        let key = operation("makes", 1).key().expect("a key");
        let attempt =
            ledger.hapax.effects().show(key).await.expect("a read").expect("a record").attempt;
        assert!(ledger.hapax.effects().roll_back(key, attempt).await.expect("rolled back"));
        // The guards refuse a remote client as well, and it cannot report a refusal itself.
        let client = |dataset: &str, id: u8| {
            let deadline = Some(std::time::Duration::from_secs(60));
            let request = PermitRequest {
                operation: operation(dataset, 2),
                deadline,
                ..PermitRequest::default()
            };
            pipeline.permit(request, hapax::AttemptId::from_bytes([id; 16]))
        };
        client("restricted", 1).await.map(drop).expect_err("refused");
        for (id, report) in [(2, Report::Failed as fn(String) -> Report), (3, Report::Released)] {
            let (key, permit) = client("plain", id).await.expect("granted");
            let hapax::remote::Permit::Granted(grant) = permit else { panic!("{permit:?}") };
            let own_report = OperationReport::Otherwise(report("refused: care: not me".into()));
            pipeline
                .report(key, (grant.attempt, grant.fence), own_report)
                .await
                .expect("an answer");
            let last = ledger.journal().await.pop().and_then(|entry| entry.note);
            assert_eq!(last.as_deref(), Some("reported: refused: care: not me"));
        }
        // The dataset is restricted after the operation ran, so its replay is refused.
        let program = vec!["true".to_owned()];
        let later = Operation { program, ..operation("later", 1) };
        done(pipeline.operation(later), &count).await.expect("done");
        ledger.declare("later", Dataset { restricted: true, ..Dataset::default() }).await;
        let scope = ReplayScope { dataset: Some("later".into()), ..ReplayScope::default() };
        let sandbox = ledger.directory.path().join("sandbox");
        let never = |_, _| async { panic!("it is not run") };
        let replayed = replay::execute(&ledger.hapax, &scope, "dry-run", &sandbox, never).await;
        assert_eq!(replayed.expect("a replay").executed, 0);

        let mut fold = Refusals::default();
        let journal = ledger.journal().await;
        let refusals: Vec<RefusalEvent> =
            journal.iter().filter_map(|entry| fold.push(entry)).collect();
        let events: Vec<_> =
            refusals.iter().map(|one| (one.event, one.dataset_id.as_str(), one.guard)).collect();
        const OPERATION: &str = "operation_refused";
        assert_eq!(
            events,
            [
                (OPERATION, "masked", "care"),
                (OPERATION, "masked", "review"),
                (OPERATION, "restricted", "sovereignty"),
                (OPERATION, "agreed", "contract"),
                (OPERATION, "plain", "check"),
                (OPERATION, "makes", "contract"),
                (OPERATION, "restricted", "sovereignty"),
                ("replay_refused", "later", "sovereignty"),
            ]
        );
        for one in &refusals {
            assert_eq!(one.care_label, care_label().filter(|_| one.dataset_id == "masked"));
            assert!(!one.reason.contains("4711"), "{one:?}");
        }
        let nth = |nth: usize| if nth == 6 { 2 } else { 1 };
        for (at, one) in refusals.iter().enumerate() {
            let key = operation(&one.dataset_id, nth(at)).key().expect("a key");
            assert_eq!(one.operation, key, "{one:?}");
        }
    }
}
