//! Exact places of a sensitive dataset are nowhere in what is written.

use hapax::json::Json;
use hapax::outbox::{Acks, Delivery, Event, OutboxConfig, Payload, Sink};
use hapax_pipeline::lineage::stac;
use hapax_pipeline::projector::Projector;
use hapax_pipeline::replay::PRODUCER;
use hapax_pipeline::{Source, lineage, review};

use super::*;
use hapax::Failure;

on_both! { exact_places_are_written_nowhere }

/// Digits that occur in the planted places and nowhere else.
const PLANTED: [&str; 6] =
    ["38.512347", "97.321234", "37.912345", "98.454321", "39.023456", "96.187654"];

#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<String>>>);

impl Sink for Collector {
    async fn send(&self, deliveries: &[Delivery], acks: &Acks) {
        for (nth, delivery) in deliveries.iter().enumerate() {
            self.0.lock().expect("a lock").push(delivery.record.event.payload.as_str().to_owned());
            acks.delivered(nth);
        }
    }
}

/// Keeps everything that is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Log {
    /// Of all threads, from now on.
    fn listen() -> Self {
        static LOG: std::sync::OnceLock<Log> = std::sync::OnceLock::new();
        let listen = || {
            let (log, subscriber) = (Self::default(), tracing_subscriber::fmt());
            let (writer, subscriber) =
                (log.clone(), subscriber.with_max_level(tracing::Level::TRACE));
            subscriber.with_writer(move || writer.clone()).init();
            log
        };
        LOG.get_or_init(listen).clone()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("a lock").push_str(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

mod cases {
    use super::*;

    /// Texts about an operation by rollbacks, reconcilers and people.
    async fn beside_the_lifecycle(
        ledger: &Ledger,
        exact_text: &'static str,
        geojson: &'static str,
    ) {
        let dug = Dataset { masked: Some(5), ..Dataset::default() };
        ledger.declare("dug", dug).await;
        let pipeline = ledger.pipeline();
        let justification = Some("a survey".to_owned());
        let request =
            |nth| Operation { justification: justification.clone(), ..operation("dug", nth) };
        ledger
            .hapax
            .on_rollback("fill", move |_| async move { Err(Failure::not_done(exact_text)) });
        ledger.hapax.on_rollback("panic", move |_| async move { panic!("{exact_text}") });
        for (nth, step) in [(1, "fill"), (2, "panic")] {
            let partial = pipeline.operation(request(nth)).run(|work| async move {
                for exact in [exact_text.as_bytes(), geojson.as_bytes(), &[0xff, 0xfe]] {
                    work.undo_with("fill", exact).await.expect_err("it may not be kept");
                }
                work.undo_with(exact_text, "7").await.expect_err("nor may this");
                work.undo_with(step, r#"{"hole":7}"#).await?;
                Err::<WorkResult, _>(WorkError::partial(exact_text))
            });
            partial.await.expect_err("some of it");
            let key = request(nth).key().expect("a key");
            let attempt =
                ledger.hapax.effects().show(key).await.expect("a read").expect("one").attempt;
            let ours = ledger.pipeline();
            let undoing = tokio::spawn(async move { ours.roll_back(key, attempt).await });
            let undone = undoing.await.map(|undone| undone.expect_err("it fails").to_string());
            assert_eq!(undone.is_err(), step == "panic", "{undone:?}");
            assert!(undone.is_err() || undone.is_ok_and(|why| why.contains("[h3:")));
            let again = pipeline.operation(request(nth));
            let error = again.run(|_| async { Ok::<_, WorkError>(WorkResult::new("")) }).await;
            let error = error.expect_err("it cannot be undone").to_string();
            assert!(!PLANTED.iter().any(|digits| error.contains(digits)), "{error}");
            let happened = hapax::Resolution::Happened(geojson.into());
            let judged = pipeline
                .resolve(key, seen(ledger, key, attempt).await, happened, ("ann", exact_text))
                .await;
            assert!(matches!(judged, Ok(hapax::Judged::Decided(_))), "{judged:?}");
            for open in review::list(&ledger.hapax, true, 10).await.expect("reviews") {
                let yes =
                    review::decide(&pipeline, open.key, open.attempt, true, ("ann", exact_text));
                assert!(matches!(yes.await, Ok(hapax::Judged::Decided(_))));
            }
            let judged =
                pipeline.reset(key, seen(ledger, key, attempt).await, ("ann", exact_text)).await;
            assert!(matches!(judged, Ok(hapax::Judged::Decided(_))), "{judged:?}");
        }
        // A reconciler's finding is masked too.
        let lost = || {
            let settling = hapax::Settling::TargetRefusesLate;
            pipeline.operation(request(3)).with(move |effect| {
                let found = move |_| async move { hapax::Finding::Happened(geojson.into()) };
                effect.safety(Safety::Reconcilable(settling)).reconcile(found)
            })
        };
        let never = |_| async { Err::<WorkResult, _>(WorkError::ambiguous("no answer")) };
        lost().run(never).await.expect_err("the outcome is unknown");
        let found = lost().run(never).await.expect("found");
        let found = String::from_utf8_lossy(found.done.body().expect("kept")).into_owned();
        assert!(found.contains("h3") && !found.contains("38.512347"), "{found}");
    }

    /// Proves P-14: no planted place is in the database, the events, the lineage, the catalogs, the
    /// attestations or the log, byte by byte, after a success, failures of all kinds, and retries.
    pub(super) async fn exact_places_are_written_nowhere(ledger: Arc<Ledger>) {
        let log = Log::listen();
        let sites = Dataset {
            masked: Some(5),
            care_label: Some("TK-NC".into()),
            review: true,
            retries: Retries { quick: 2, again: 1, base_ms: 1, cap_ms: 2 },
            ..Dataset::default()
        };
        let collector = Collector::default();
        let outbox = OutboxConfig::new().sink("shelf", collector.clone()).expect("as it should be");
        let outbox =
            outbox.route("*", "*", &["shelf"]).expect("as it should be").dataset("sites", sites);
        let dispatcher = ledger.hapax.outbox().dispatch(outbox).await.expect("a dispatcher");
        let pipeline = ledger.pipeline();
        let why = |nth| Operation {
            justification: Some("dug at 38.512347, -97.321234".into()),
            inputs: vec![Source {
                name: "geo:37.912345,-98.454321".into(),
                uri: Some("s3://x/POINT(-96.187654 39.023456)".into()),
                checksum: None,
            }],
            governance_ref: Some("board, on 38.512347, -97.321234".into()),
            program: vec!["dig".into(), "--at=38.512347,-97.321234".into()],
            ..operation("sites", nth)
        };
        let geojson = r#"{"type":"Feature","geometry":{"type":"LineString","coordinates":[[-97.321234,38.512347],[-98.454321,37.912345]]},"properties":{"site_lat":39.023456,"site_lon":-96.187654,"note":"by 38.512347, -97.321234"}}"#;
        let exact_text = "the well at 38.512347, -97.321234 (POINT(-98.454321 37.912345)) caved in";

        let finished = pipeline
            .operation(why(1))
            .input(Json::parse(geojson.as_bytes()).expect("as it should be"))
            .run(|_| async {
                let event = Event::new("surveyed", "sites", Payload::parse(geojson.as_bytes())?);
                let uri = "s3://sites/geo:38.512347,-97.321234".to_owned();
                let checksum = format!("sha256:{}", "9".repeat(64));
                let file = Artifact { uri, checksum, ..output("sites") };
                let made = WorkResult::new(geojson).output(file);
                let made = made.publish("artifact_published").event(event);
                Ok::<_, WorkError>(made.document(Json::parse(geojson.as_bytes())?))
            })
            .await
            .expect("done");
        let product = finished.product.expect("a product");
        assert!(!product.outputs[0].cells.is_empty());
        let kept = String::from_utf8_lossy(finished.done.body().expect("kept")).into_owned();
        assert!(kept.contains("H3") || kept.contains("h3"), "{kept}");
        let panics = tokio::spawn({
            let request = why(6);
            let pipeline = pipeline.clone();
            async move {
                transactional(pipeline.operation(request))
                    .run(|_| async move { panic!("{exact_text}") })
                    .await
                    .map(drop)
            }
        });
        let error = panics.await.expect("no panic gets through").expect_err("no result");
        assert!(error.to_string().contains("panicked"), "{error}");
        for (nth, failure) in [
            (2, WorkError::not_done(exact_text)),
            (3, WorkError::transient(exact_text)),
            (4, WorkError::ambiguous(exact_text)),
        ] {
            let builder = pipeline.operation(Operation { dataset_id: "sites".into(), ..why(nth) });
            builder.run(|_| async { Err(failure.clone()) }).await.expect_err("no result");
        }
        // The stuck operation holds the lock. Skip it, so that a check can fail after the work too.
        let key = why(4).key().expect("a key");
        let attempt = ledger
            .hapax
            .effects()
            .show(key)
            .await
            .expect("as it should be")
            .expect("as it should be")
            .attempt;
        ledger
            .hapax
            .effects()
            .resolve(key, seen(&ledger, key, attempt).await, hapax::Resolution::Skip, "ann", "no")
            .await
            .expect("decided");
        let contract = Some("true".to_owned());
        let named = Dataset { masked: Some(5), input_contract: contract, ..Dataset::default() };
        ledger.declare("named", named).await;
        let builder = ledger.pipeline();
        let builder = builder.operation(Operation { dataset_id: "named".into(), ..why(7) });
        let refused = builder.unreadable("site_38.512347,-97.321234.csv");
        refused
            .run(|_| async { Ok::<_, WorkError>(WorkResult::new("")) })
            .await
            .expect_err("no JSON");
        let builder = ledger.pipeline();
        let builder = builder.operation(Operation { dataset_id: "named".into(), ..why(8) });
        let placed = builder.input(Json::parse(b"1").expect("JSON"));
        let placed = placed.after("check --at 38.512347,-97.321234", |_| async { Ok(()) });
        placed.run(|_| async { Ok::<_, WorkError>(WorkResult::new("")) }).await.expect("done");
        let checked = pipeline.operation(why(5));
        let checked = checked.after("placed", move |_| async move { Err(exact_text.to_owned()) });
        checked
            .run(|_| async { Ok::<_, WorkError>(WorkResult::new(exact_text)) })
            .await
            .expect_err("unfit");

        beside_the_lifecycle(&ledger, exact_text, geojson).await;

        ledger.hapax.pass().await.expect("sealed");
        let mut projector = Projector::new(&ledger.hapax).expect("a projector");
        let projected = projector.pass().await.expect("a pass");
        assert_eq!((projected.withheld, projected.behind), (0, 0));
        assert!(projected.emitted >= 10, "{projected:?}");
        dispatcher.idle().await;
        dispatcher.stop().await.expect("stopped");
        let events = collector.0.lock().expect("a lock").join("\n");
        assert!(events.contains("surveyed") || events.contains("TK-NC"));

        let mut written = vec![("events", events), ("log", log.0.lock().expect("a lock").clone())];
        let (mut documents, mut attested) = (String::new(), String::new());
        for moment in ledger.moments().await {
            let json = |json: &Json| hapax::canonical::canonical(json).expect("canonical");
            documents += &json(&lineage::openlineage::event(&moment, PRODUCER));
            documents +=
                &json(&lineage::cypher::transaction(&lineage::cypher::statements(&moment)));
            if let Some(completed) = lineage::Completed::of(&moment) {
                documents += &lineage::prov::turtle(&completed);
                documents += &json(&lineage::prov::json_ld(&completed));
                documents += &json(&lineage::dcat::json_ld(&completed));
                for edition in completed.editions() {
                    documents += &json(&lineage::stac::item(&completed, &edition));
                    let items = [edition.version.to_owned()].into();
                    let dataset = edition.dataset;
                    documents += &json(&stac::collection(
                        &stac::Newest::of(&completed, dataset),
                        dataset,
                        &items,
                    ));
                    for artifact in &edition.artifacts {
                        let statement =
                            lineage::attestation::statement(&completed, artifact, "urn:us");
                        attested += &json(&statement.expect("it has a checksum"));
                    }
                }
            }
        }
        written.push(("lineage and catalogs", documents));
        written.push(("attestations", attested));
        ledger.hapax.close().await.expect("closed");
        written.push(("database", ledger.bytes()));
        for (place, text) in &written {
            assert!(text.len() > 100, "{place} is empty");
            for digits in PLANTED {
                assert!(!text.contains(digits), "{digits} is in the {place}");
            }
        }
    }
}

/// The state that a person sees now.
async fn seen(ledger: &Ledger, key: hapax::Key, attempt: hapax::AttemptId) -> hapax::Seen {
    ledger.hapax.effects().seen(key, attempt).await.expect("a read")
}
