//! Lineage events from the journal: all of them, in order, once.

use hapax::json::Json;
use hapax::outbox::{Acks, Delivery, OutboxConfig, Record, RecordFilter, Sink};
use hapax_pipeline::projector::Projector;

use super::*;

on_both! {
    every_moment_is_emitted_once_and_in_order
    events_of_a_crashed_projector_are_counted_by_the_next
    a_malformed_event_holds_up_no_later_event
}

pub(crate) struct Nowhere;

impl Sink for Nowhere {
    async fn send(&self, deliveries: &[Delivery], acks: &Acks) {
        (0..deliveries.len()).for_each(|nth| acks.delivered(nth));
    }
}

mod cases {
    use super::*;

    /// Proves P-15 for lineage: events that a projector recorded before it crashed are counted when
    /// the next projector comes to them, under the name and the labels of the specification.
    pub(super) async fn events_of_a_crashed_projector_are_counted_by_the_next(ledger: Arc<Ledger>) {
        let outbox = OutboxConfig::new().sink("nowhere", Nowhere).expect("as it should be");
        let outbox = outbox.route("lineage", "*", &["nowhere"]).expect("as it should be");
        ledger.hapax.outbox().configure(&outbox).await.expect("configured");
        let pipeline = ledger.pipeline();
        let builder = transactional(pipeline.operation(operation("flow", 1)));
        builder.run(|_| async { Ok(WorkResult::new("done")) }).await.expect("done");
        // The first batch, as a projector leaves it that is killed before it moves the cursor.
        let from = [("from", &0_u64.to_be_bytes()[..])];
        let batch = hapax::Key::derive("lineage.events.v1", &from).expect("as it should be");
        let batch = ledger.hapax.effect(batch);
        batch.run(|_| async { Ok::<_, hapax::Failure>(()) }).await.expect("done");
        ledger.hapax.pass().await.expect("sealed");
        let meters: Arc<hapax_pipeline::Meters> = Arc::default();
        let projector = Projector::new(&ledger.hapax).expect("a projector");
        let mut projector = projector.counting(meters.clone(), "test");
        assert_eq!(projector.pass().await.expect("a pass").emitted, 2);
        let counts = meters.counts();
        let [(meter, labels, count)] = &counts[..] else { panic!("{counts:?}") };
        assert_eq!((meter.name(), *count), ("kfm.lineage_rewrite_ops", 2));
        assert_eq!((labels.dataset_id.as_str(), labels.env.as_str()), ("flow", "test"));
    }

    /// Proves P-11: an operation with a malformed field is refused. If one was recorded all the
    /// same, its events are withheld, and the events after them are recorded.
    pub(super) async fn a_malformed_event_holds_up_no_later_event(ledger: Arc<Ledger>) {
        let outbox = OutboxConfig::new().sink("nowhere", Nowhere).expect("as it should be");
        let outbox = outbox.route("lineage", "*", &["nowhere"]).expect("as it should be");
        ledger.hapax.outbox().configure(&outbox).await.expect("configured");
        let pipeline = ledger.pipeline();
        for version in ["v1\u{1}".to_owned(), "v".repeat(600)] {
            let odd = Operation { version, ..operation("flow", 1) };
            let odd = done(pipeline.operation(odd), &Count::default()).await;
            let invalid = matches!(&odd, Err(Error::Invalid(why)) if why.starts_with("version "));
            assert!(invalid, "{odd:?}");
        }
        let builder = transactional(pipeline.operation(operation("flow", 1)));
        builder.run(|_| async { Ok(WorkResult::new("done")) }).await.expect("done");
        let journal = ledger.journal().await;
        let about = journal[0].note.clone().expect("what it is about");
        let about = about.replace("\"v1\"", "\"v1\\u0001\"");
        let key = hapax::Key::derive("odd.v1", &[("n", b"1")]).expect("a key");
        let odd = ledger.hapax.effect(key).about(about);
        odd.run(|_| async { Ok::<_, hapax::Failure>("done") }).await.expect("done");
        done(pipeline.operation(operation("flow", 2)), &Count::default()).await.expect("done");
        while ledger.hapax.pass().await.expect("sealed").sealed > 0 {}
        let mut projector = Projector::new(&ledger.hapax).expect("a projector");
        let projected = projector.pass().await.expect("a pass");
        assert_eq!((projected.emitted, projected.withheld, projected.behind), (4, 2, 0));
    }

    /// Proves P-11 and O-8: several projectors at once, new ones in between, in two namespaces
    /// and among effects that are no operations: each moment is recorded once, and those of a
    /// dataset in their order.
    pub(super) async fn every_moment_is_emitted_once_and_in_order(ledger: Arc<Ledger>) {
        let outbox = OutboxConfig::new().sink("nowhere", Nowhere).expect("as it should be");
        let outbox = outbox.route("lineage", "*", &["nowhere"]).expect("as it should be");
        ledger.hapax.outbox().configure(&outbox).await.expect("configured");
        let elsewhere = hapax::Namespace::new("elsewhere").expect("as it should be");
        let theirs = ledger.hapax.in_namespace(elsewhere.clone());
        let pipelines = [ledger.pipeline(), Pipeline::new(theirs.clone())];
        let working = async {
            for nth in 0..120 {
                let pipeline = &pipelines[nth % 2];
                let builder =
                    transactional(pipeline.operation(operation(&format!("d{}", nth % 5), nth)));
                let result = builder.run(|_| async move {
                    match nth % 3 {
                        0 => Err(WorkError::not_done("no; ask ada@example.org")),
                        _ => Ok(WorkResult::new("done").output(output("d"))),
                    }
                });
                assert_eq!(result.await.is_ok(), nth % 3 != 0);
                let key = hapax::Key::derive("other.v1", &[("n", &nth.to_be_bytes())])
                    .expect("as it should be");
                let other = ledger.hapax.effect(key);
                other.run(|_| async { Ok::<_, hapax::Failure>("done") }).await.expect("done");
                if nth % 10 == 0 {
                    ledger.hapax.pass().await.expect("sealed");
                }
            }
        };
        let finished = std::sync::atomic::AtomicBool::new(false);
        let projecting = || async {
            let mut emitted = 0;
            while !finished.load(Ordering::SeqCst) {
                // A new one each time, as after a crash.
                let mut projector = Projector::new(&ledger.hapax).expect("a projector");
                for _ in 0..3 {
                    emitted += projector.pass().await.expect("a pass").emitted;
                    tokio::task::yield_now().await;
                }
            }
            emitted
        };
        let both = async {
            working.await;
            finished.store(true, Ordering::SeqCst);
        };
        tokio::join!(both, projecting(), projecting());
        ledger.hapax.pass().await.expect("sealed");
        let mut last = Projector::new(&ledger.hapax).expect("a projector");
        loop {
            let pass = last.pass().await.expect("a pass");
            assert_eq!(pass.withheld, 0);
            if pass.behind == 0 {
                break;
            }
        }
        for namespace in [&ledger.hapax, &theirs] {
            let filter = RecordFilter { limit: 10_000, ..RecordFilter::default() };
            let mut records: Vec<Record> = namespace
                .outbox()
                .records(filter)
                .await
                .expect("as it should be")
                .into_iter()
                .map(|f| f.record)
                .collect();
            records.sort_by_key(|record| record.seq);
            let read = |record: &Record| {
                let json =
                    Json::parse(record.event.payload.as_str().as_bytes()).expect("as it should be");
                Moment::read(&json).expect("a moment")
            };
            let emitted: Vec<Moment> = records.iter().map(read).collect();
            let ours = |moment: &Moment| moment.run.namespace == *namespace.namespace();
            let mut expected: Vec<Moment> =
                ledger.moments().await.into_iter().filter(ours).collect();
            assert_eq!(emitted.len(), expected.len());
            assert_eq!(expected.len(), 120);
            for dataset in ["d0", "d1", "d2", "d3", "d4"] {
                let of = |moments: &[Moment]| {
                    let of = |moment: &&Moment| moment.run.about.operation.dataset_id == dataset;
                    moments.iter().filter(of).map(|moment| moment.mark.entry).collect::<Vec<_>>()
                };
                assert_eq!(of(&emitted), of(&expected), "{dataset}");
            }
            let mut sorted = emitted.clone();
            sorted.sort_by_key(|moment| moment.mark.entry);
            expected.sort_by_key(|moment| moment.mark.entry);
            assert_eq!(sorted, expected);
        }
    }
}
