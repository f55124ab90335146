//! The lifecycle of an operation: from the key to the telemetry, in order, and once.

use hapax::json::Json;
use hapax::{How, StateName};
use hapax_pipeline::{Meter, RunChange};

use super::*;

on_both! {
    an_operation_goes_through_its_steps_in_order_and_once
    the_log_has_the_columns_that_pipelines_know
    every_end_of_a_run_is_in_the_lineage
    work_settles_in_its_own_transaction
}

/// Proves O-2 and O-7: work that is retried within one attempt, after a transient error, emits its
/// events once.
#[tokio::test]
async fn an_operation_done_anew_emits_its_events_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let hapax = Hapax::open(directory.path().join("hapax.db")).await.expect("a ledger");
    let outbox = hapax::outbox::OutboxConfig::new().sink("nowhere", projection::Nowhere);
    let outbox = outbox.and_then(|outbox| outbox.route("*", "*", &["nowhere"]));
    hapax.outbox().configure(&outbox.expect("as it should be")).await.expect("configured");
    let (pipeline, tries) = (Pipeline::new(hapax.clone()), Count::default());
    let mut db = hapax.connection().expect("a connection");
    let builder = transactional(pipeline.operation(operation("flow", 1)));
    let run = builder.run(|work| {
        let settled = (|| {
            let tx = db.transaction()?;
            let made =
                WorkResult::new("7 rows").output(output("flow")).publish("artifact_published");
            work.settle_in(&tx, &made)?;
            if tries.add() == 1 {
                return Err(WorkError::transient("the disk is busy"));
            }
            tx.commit()?;
            Ok(made)
        })();
        async { settled }
    });
    run.await.expect("done");
    assert_eq!(tries.get(), 2);
    let records = hapax
        .outbox()
        .records(hapax::outbox::RecordFilter { limit: 10, ..Default::default() })
        .await
        .expect("records");
    assert_eq!(records.len(), 1);
}

/// Proves P-7: a settle in the caller's own transaction skips no check. The contract is checked
/// first, and an operation with `after` checks is not settled.
#[tokio::test]
async fn a_transaction_of_its_own_goes_past_no_check() {
    let directory = tempfile::tempdir().expect("a directory");
    let hapax = Hapax::open(directory.path().join("hapax.db")).await.expect("a ledger");
    let output_contract = Some(r#"{"required":["rows"]}"#.to_owned());
    hapax
        .datasets()
        .declare("flow", Some(Dataset { output_contract, ..Dataset::default() }))
        .await
        .expect("declared");
    let (pipeline, hapax) = (Pipeline::new(hapax.clone()), hapax);
    let mut db = hapax.connection().expect("a connection");
    db.execute_batch("CREATE TABLE state (n)").expect("a table");
    let mut settle = |work: Work, made: &WorkResult| {
        let tx = db.transaction()?;
        tx.execute("INSERT INTO state VALUES (1)", [])?;
        work.settle_in(&tx, made)?;
        tx.commit()?;
        Ok::<_, WorkError>(made.clone())
    };
    let unfit = WorkResult::new("none").document(Json::parse(br#"{"none":0}"#).expect("JSON"));
    let builder = transactional(pipeline.operation(operation("flow", 1)));
    let refused = builder.run(|work| {
        let settled = settle(work, &unfit);
        async { settled }
    });
    let refused = refused.await;
    assert!(matches!(refused, Err(Error::Refused(hapax::Refusal::Contract(_)))), "{refused:?}");
    let fit = WorkResult::new("7 rows").document(Json::parse(br#"{"rows":7}"#).expect("JSON"));
    let builder = transactional(pipeline.operation(operation("flow", 2)));
    let builder = builder.after("many", |_| async { Err("too few".to_owned()) });
    let unchecked = builder.run(|work| {
        let settled = settle(work, &fit);
        async { settled }
    });
    let unchecked = unchecked.await.expect_err("it cannot be checked").to_string();
    assert!(unchecked.contains("`after` checks"), "{unchecked}");
    let rows = db.query_row("SELECT count(*) FROM state", [], |row| row.get::<_, i64>(0));
    assert_eq!(rows.expect("a count"), 0);
}

mod cases {
    use super::*;

    /// Proves P-7, P-11 and P-19: the journal has the grant with its lock, and the product with its
    /// contract, checks and estimate. A repeated call does nothing.
    pub(super) async fn an_operation_goes_through_its_steps_in_order_and_once(ledger: Arc<Ledger>) {
        let contract = Some(r#"{"required":["rows"]}"#.to_owned());
        let flow = Dataset {
            owner: Some("hydrology".into()),
            input_contract: contract.clone(),
            output_contract: contract,
            ..Dataset::default()
        };
        ledger.declare("flow", flow).await;
        let (pipeline, steps) = (ledger.pipeline(), Arc::new(Mutex::new(Vec::new())));
        let step = |name: &'static str| {
            let steps = steps.clone();
            move |_: Work| {
                steps.lock().expect("a lock").push(name);
                async { Ok(()) }
            }
        };
        let rows = || Json::parse(br#"{"rows": 7}"#).expect("as it should be");
        let run = || async {
            let builder = pipeline.operation(operation("flow", 1)).input(rows());
            let builder = builder.before("fresh", step("before")).after("complete", step("after"));
            builder
                .run(|work| {
                    steps.lock().expect("a lock").push("work");
                    assert_eq!(work.operation().version, "v1");
                    let spin: u64 = (0..3_000_000u64).map(std::hint::black_box).sum();
                    let made = WorkResult::new(format!("{} rows", spin.min(7)));
                    async { Ok::<_, WorkError>(made.output(output("flow")).document(rows())) }
                })
                .await
                .expect("done")
        };
        let (first, second) = (run().await, run().await);
        assert_eq!(*steps.lock().expect("a lock"), ["before", "work", "after"]);
        assert_eq!((first.done.how, second.done.how), (How::Executed, How::Replayed));
        assert_eq!(first.done.outcome, second.done.outcome);
        assert!(first.product.is_some() && second.product.is_none());

        let moments = ledger.moments().await;
        let [start, end] = &moments[..] else { panic!("{moments:?}") };
        assert_eq!((start.word(), end.word()), ("START", "COMPLETE"));
        assert!(start.run.about.terms.lock.as_ref().is_some_and(|lock| lock.starts_with("lock_")));
        assert_eq!(start.run.about.terms.owner.as_deref(), Some("hydrology"));
        let RunChange::Complete { product: Some(product), digest } = &end.change else { panic!() };
        assert_eq!(*digest, Some(first.done.outcome.digest()));
        assert_eq!(product.outputs, [output("flow")]);
        assert_eq!(product.contract, ["inputs", "outputs"]);
        assert_eq!(product.checks, ["complete"]);
        let energy = product.energy.expect("an estimate");
        assert!(energy.microwatt_hours > 0, "{energy:?}");
        let journal = ledger.journal().await;
        let notes: String = journal.into_iter().filter_map(|entry| entry.note).collect();
        assert!(notes.contains(r#""estimate":true"#), "{notes}");

        let counted: Vec<_> = pipeline.meters().counts();
        let count = |meter| counted.iter().find(|(other, ..)| *other == meter).map(|(.., n)| *n);
        assert_eq!(
            (count(Meter::Misses), count(Meter::Hits), count(Meter::Replays)),
            (Some(1), Some(1), Some(1))
        );
        let took = (count(Meter::Energy), count(Meter::Carbon));
        assert_eq!(took, (Some(energy.microwatt_hours), Some(energy.micrograms_co2e)));
        let labels = &counted[0].1;
        assert_eq!(labels.values(), ["hydrology", "load", "flow", "default", "append", "false"]);
    }

    /// Proves P-3.
    pub(super) async fn the_log_has_the_columns_that_pipelines_know(ledger: Arc<Ledger>) {
        let pipeline = ledger.pipeline();
        let finished = done(pipeline.operation(operation("flow", 1)), &Count::default()).await;
        let finished = finished.expect("done");
        let failing = pipeline.operation(operation("flow", 2));
        failing.run(|_| async { Err(WorkError::not_done("no")) }).await.expect_err("failed");
        let stuck = pipeline.operation(operation("levels", 3));
        stuck.run(|_| async { Err(WorkError::ambiguous("timeout")) }).await.expect_err("unknown");
        let rows = ledger.query(
            "SELECT idem_key, pipeline_id, task_id, dataset_id, operation_type, status, result_hash,
                 raw_checksum, params_hash, wal_pointer FROM hapax.idempotency_log ORDER BY wal_pointer",
        );
        let (key, digest) = (finished.key, finished.done.outcome.digest());
        assert_eq!(
            rows[0],
            format!("{key}|hydrology|load|flow|append|success|{digest}|sha256:5f2b|sha256:9c41|2")
        );
        assert!(
            rows[1].ends_with("|hydrology|load|flow|append|failure||sha256:5f2b|sha256:9c41|4")
        );
        assert!(rows[2].contains("|hydrology|load|levels|append|partial||"));
        assert_eq!(rows.len(), 3);
        // An effect that is no operation, a review, and an imitation of a note are not in it.
        let about = ledger.moments().await.pop().expect("a moment").run.about;
        let count = |rows: &str| ledger.query(&format!("SELECT count(*) || '' FROM hapax.{rows}"));
        let effects = || count("effects")[0].parse::<usize>().expect("a number");
        let before = effects();
        let opened = hapax_pipeline::review::open(&ledger.hapax, &about, "is it late?").await;
        opened.expect("a review");
        for note in ["a note", r#"{"kind":"pipeline.v1"}"#] {
            let key = hapax::Key::derive("other.v1", &[("note", note.as_bytes())]).expect("a key");
            let other = ledger.hapax.effect(key).about(note);
            other.run(|_| async { Ok::<_, hapax::Failure>("done") }).await.expect("done");
        }
        assert_eq!((count("idempotency_log"), effects()), (vec!["3".to_owned()], before + 3));
        // The columns that the table of section 8.1 has as NOT NULL.
        let named = ["idem_key", "pipeline_id", "task_id", "dataset_id", "operation_type"];
        for column in named.into_iter().chain(["status", "created_at", "updated_at"]) {
            let gaps = count(&format!("idempotency_log WHERE {column} IS NULL"));
            assert_eq!(gaps, ["0"], "{column}");
        }

        // A partial operation is `partial`, one under way has no row, a skipped one is `failure`.
        let status = |nth: usize| {
            let key = operation("sites", nth).key().expect("a key");
            let sql = "SELECT status FROM hapax.idempotency_log WHERE idem_key =";
            ledger.query(&format!("{sql} '{key}'"))
        };
        let half = pipeline.operation(operation("sites", 4));
        half.run(|_| async { Err(WorkError::partial("half of it")) }).await.expect_err("partial");
        assert_eq!(status(4), ["partial"]);
        let key = operation("sites", 4).key().expect("a key");
        let attempt = ledger.hapax.effects().show(key).await.expect("a read").expect("one").attempt;
        let letting = (hapax::Resolution::Skip, ("ann", "left"));
        let seen = ledger.hapax.effects().seen(key, attempt).await.expect("a read");
        pipeline.resolve(key, seen, letting.0, letting.1).await.expect("let go");
        assert_eq!(status(4), ["failure"]);
        let under_way = pipeline.operation(operation("sites", 5)).run(|_| async {
            assert!(status(5).is_empty());
            Ok::<_, WorkError>(WorkResult::new("done"))
        });
        under_way.await.expect("done");
        assert_eq!(status(5), ["success"]);
    }

    /// Proves P-7 and P-11: every end of a run is in the lineage, and only a run that succeeded
    /// claims an output.
    pub(super) async fn every_end_of_a_run_is_in_the_lineage(ledger: Arc<Ledger>) {
        let pipeline = ledger.pipeline();
        let run = |nth, error: WorkError| {
            let builder = pipeline.operation(operation(&format!("d{nth}"), nth));
            async move { builder.run(|_| async { Err(error.clone()) }).await.expect_err("no result") }
        };
        run(1, WorkError::not_done("no")).await;
        run(2, WorkError::ambiguous("timeout")).await;
        let key = operation("d2", 2).key().expect("a key");
        let attempt = ledger
            .hapax
            .effects()
            .show(key)
            .await
            .expect("as it should be")
            .expect("as it should be")
            .attempt;
        let skip = hapax::Resolution::Skip;
        let seen = ledger.hapax.effects().seen(key, attempt).await.expect("a read");
        ledger
            .hapax
            .effects()
            .resolve(key, seen, skip, "ann", "never mind")
            .await
            .expect("decided");
        run(3, WorkError::ambiguous("timeout")).await;
        let key = operation("d3", 3).key().expect("a key");
        let attempt = ledger
            .hapax
            .effects()
            .show(key)
            .await
            .expect("as it should be")
            .expect("as it should be")
            .attempt;
        let happened = hapax::Resolution::Happened("seen".into());
        let seen = ledger.hapax.effects().seen(key, attempt).await.expect("a read");
        ledger
            .hapax
            .effects()
            .resolve(key, seen, happened, "ann", "looked")
            .await
            .expect("decided");
        assert_eq!(
            ledger.run_changes().await,
            ["START", "FAIL", "START", "RUNNING", "ABORT", "START", "RUNNING", "COMPLETE"]
        );
        let moments = ledger.moments().await;
        assert!(matches!(&moments[7].change, RunChange::Complete { product: None, .. }));
        assert!(moments.iter().all(|moment| {
            hapax_pipeline::Moment::read(&moment.document()).as_ref() == Some(moment)
        }));
    }

    /// Proves O-2 and P-7: the state, the product and the event are one transaction.
    pub(super) async fn work_settles_in_its_own_transaction(ledger: Arc<Ledger>) {
        use hapax::outbox::{Acks, Delivery, OutboxConfig, Sink};
        struct Nowhere;
        impl Sink for Nowhere {
            async fn send(&self, deliveries: &[Delivery], acks: &Acks) {
                (0..deliveries.len()).for_each(|nth| acks.delivered(nth));
            }
        }
        let outbox = OutboxConfig::new().sink("nowhere", Nowhere).expect("as it should be");
        let outbox = outbox.route("*", "*", &["nowhere"]).expect("as it should be");
        ledger.hapax.outbox().configure(&outbox).await.expect("configured");
        let pipeline = ledger.pipeline();
        let agreed = || Some(r#"{"required":["rows"]}"#.to_owned());
        let flow =
            Dataset { input_contract: agreed(), output_contract: agreed(), ..Dataset::default() };
        ledger.declare("flow", flow).await;
        let rows = || Json::parse(br#"{"rows":7}"#).expect("JSON");
        let made = || {
            let made = WorkResult::new("7 rows").output(output("flow")).document(rows());
            made.publish("artifact_published")
        };
        for (nth, commits) in [(1, false), (1, true)] {
            let builder = transactional(pipeline.operation(operation("flow", nth))).input(rows());
            let result = match &ledger.server {
                None => {
                    let mut db = ledger.hapax.connection().expect("a connection");
                    db.execute_batch("CREATE TABLE IF NOT EXISTS state (n)")
                        .expect("as it should be");
                    builder
                        .run(|work| {
                            let settled = (|| {
                                let tx = db.transaction()?;
                                tx.execute("INSERT INTO state VALUES (1)", [])?;
                                work.settle_in(&tx, &made())?;
                                match commits {
                                    true => tx.commit()?,
                                    false => tx.rollback()?,
                                }
                                Ok::<_, WorkError>(made())
                            })();
                            async { settled }
                        })
                        .await
                }
                Some(server) => {
                    server.sql("postgres", "CREATE TABLE IF NOT EXISTS state (n int)");
                    let url = server.url("postgres");
                    builder
                        .run(|work| {
                            let url = url.clone();
                            async move {
                                use hapax::tokio_postgres::{NoTls, connect};
                                let (mut client, connection) = connect(&url, NoTls).await?;
                                tokio::spawn(connection);
                                let tx = client.transaction().await?;
                                tx.execute("INSERT INTO state VALUES (1)", &[]).await?;
                                work.settle_in_postgres(&tx, &made()).await?;
                                match commits {
                                    true => tx.commit().await?,
                                    false => tx.rollback().await?,
                                }
                                Ok::<_, WorkError>(made())
                            }
                        })
                        .await
                }
            };
            assert_eq!(result.is_ok(), commits, "{result:?}");
        }
        assert_eq!(ledger.query("SELECT count(*) || '' FROM state"), ["1"]);
        let artifacts = "SELECT dataset_id, version, checksum FROM hapax.artifact";
        assert_eq!(ledger.query(artifacts), ["flow|v1|sha256:9393aa"]);
        let events = "SELECT event_name, dataset_id, pipeline_id FROM hapax.outbox";
        assert_eq!(ledger.query(events), ["artifact_published|flow|hydrology"]);
        let moments = ledger.moments().await;
        let Some(RunChange::Complete { product: Some(product), .. }) =
            moments.last().map(|m| &m.change)
        else {
            panic!("{moments:?}")
        };
        assert_eq!(product.outputs, [output("flow")]);
        assert_eq!(product.contract, ["inputs", "outputs"], "as it is journalled");
        assert!(product.energy.is_some(), "{product:?}");
        let state = ledger
            .hapax
            .effects()
            .show(operation("flow", 1).key().expect("a key"))
            .await
            .expect("as it should be");
        assert_eq!(state.map(|effect| effect.state.name()), Some(StateName::Succeeded));
    }
}

/// Proves P-2: a bucket is the logical time rounded down, whatever the clock says. Two times in one
/// bucket share a key, and a missing field is refused by name.
#[tokio::test]
async fn buckets_are_rounded_down_and_fields_are_asked_for() {
    use hapax_pipeline::bucket;
    use std::time::Duration;
    let hour = Duration::from_secs(3_600);
    assert_eq!(
        bucket("2026-11-16T06:59:59.9Z", hour).expect("as it should be"),
        "2026-11-16T06:00:00Z"
    );
    assert_eq!(
        bucket("2026-11-16T06:00:00Z", hour).expect("as it should be"),
        "2026-11-16T06:00:00Z"
    );
    assert_eq!(bucket("2026-11-16", 24 * hour).expect("as it should be"), "2026-11-16T00:00:00Z");
    let at = |time: &str| Operation {
        timestamp_bucket: bucket(time, hour).expect("as it should be"),
        ..operation("flow", 1)
    };
    assert_eq!(at("2026-11-16T06:10:00Z").key(), at("2026-11-16T06:50:00Z").key());
    assert_ne!(at("2026-11-16T06:10:00Z").key(), at("2026-11-16T07:10:00Z").key());
    assert!(bucket("yesterday", hour).is_err());
    assert!(bucket("2026-11-16", Duration::ZERO).is_err());

    let pipeline = Pipeline::new(Hapax::builder().in_memory());
    let count = Count::default();
    let blank = Operation { checksum_in: " ".into(), ..operation("flow", 1) };
    let error = done(pipeline.operation(blank), &count).await.expect_err("refused");
    assert!(error.to_string().contains("checksum_in"), "{error}");
    assert_eq!((error.code(), count.get()), ("HX0501", 0));
    let settings = hapax_pipeline::Settings { bucket: hour, ..Default::default() };
    let pipeline = Pipeline::with(Hapax::builder().in_memory(), settings);
    for time in ["now", "2026-11-16T06:10:00Z", "2026-11-16"] {
        let odd = Operation { timestamp_bucket: time.into(), ..operation("flow", 1) };
        let error = done(pipeline.operation(odd), &count).await.expect_err("refused");
        assert!(error.to_string().starts_with("timestamp_bucket: "), "{error}");
        assert_eq!((error.code(), count.get()), ("HX0501", 0));
    }
    done(pipeline.operation(at("2026-11-16T06:10:00Z")), &count).await.expect("done");
}
