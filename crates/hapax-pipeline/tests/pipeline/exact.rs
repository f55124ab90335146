//! Masked datasets: refusals name no place, fields that cannot be masked are refused, and the cells
//! that are kept have bounds.

use hapax::json::Json;
use hapax::outbox::{Event, Order, Payload};
use hapax::{AttemptId, StateName};
use hapax_pipeline::remote::{OperationReport, PermitRequest};
use hapax_pipeline::replay::{self, ReplayScope};
use hapax_pipeline::{Source, lineage, review};

use super::*;

on_both! {
    a_breach_names_no_place
    fields_that_cannot_be_masked_are_refused
    cells_are_as_coarse_as_the_dataset_asks
    a_hundred_outputs_are_recorded
}

/// Places in member names: in one name, in one with a slash, and in two names.
const BREACHES: [&str; 3] = [
    r#"{"38.512347,-97.321234":"x"}"#,
    r#"{"well 38.512347/-97.321234":"x"}"#,
    r#"{"38.512347":{"-97.321234":"x"}}"#,
];

const PLACE: &str = "38.512347,-97.321234";

const CONTRACT: &str = r#"{"additionalProperties":{"type":"integer",
    "additionalProperties":{"type":"integer"}}}"#;

fn masked() -> Dataset {
    Dataset { masked: Some(5), ..Dataset::default() }
}

fn justified(dataset: &str, nth: usize) -> Operation {
    Operation { justification: Some("a survey".into()), ..operation(dataset, nth) }
}

fn json(text: &str) -> Json {
    Json::parse(text.as_bytes()).expect("JSON")
}

fn has_place(text: &str) -> bool {
    text.contains("38.512347") || text.contains("97.321234")
}

/// Replays an operation whose input is a breach by now. Returns the replay and the journal.
async fn replays(breach: &str, request: Operation) -> (replay::ReplayReport, Vec<Entry>) {
    let directory = tempfile::tempdir().expect("a directory");
    let files = directory.path().join("files");
    std::fs::create_dir(&files).expect("a directory");
    std::fs::write(files.join("in.json"), breach).expect("a file");
    let hapax = Hapax::open(directory.path().join("hapax.db")).await.expect("a ledger");
    let pipeline = Pipeline::new(hapax.clone());
    let checksum = replay::checksum(&files.join("in.json"));
    let source = Source { name: "in.json".into(), uri: Some("in.json".into()), checksum };
    let program = vec!["true".to_owned()];
    let request = Operation { inputs: vec![source], program, ..request };
    let count = Count::default();
    done(transactional(pipeline.operation(request)), &count).await.expect("done");
    hapax.pass().await.expect("sealed");
    let now = Dataset { input_contract: Some(CONTRACT.into()), ..masked() };
    hapax.datasets().declare("sites", Some(now)).await.expect("declared");
    let sandbox = directory.path().join("sandbox");
    let scope = ReplayScope { files, ..ReplayScope::default() };
    let again = |_, _| async { Ok(()) };
    let found = replay::execute(&hapax, &scope, "dry-run", &sandbox, again).await;
    (found.expect("a replay"), hapax.journal().entries(0, 1_000).await.expect("a journal"))
}

/// Proves P-14: an operation that named a place in its key, before its dataset was masked, is not
/// replayed, and nothing more is recorded of it.
#[tokio::test]
async fn an_operation_that_names_an_exact_place_is_not_replayed() {
    let request = Operation { task_id: PLACE.into(), ..justified("sites", 1) };
    let (found, journal) = replays("{}", request).await;
    let reason = found.divergences[0].actual.as_deref();
    assert_eq!(reason, Some("check: task_id: it names an exact place of a masked dataset"));
    let noted = journal.iter().filter_map(|entry| entry.note.as_deref());
    assert_eq!(noted.filter(|note| has_place(note)).count(), 1, "the grant, before");
}

/// Proves P-14: the refusal of a replay names no place of its input.
#[tokio::test]
async fn a_refused_replay_names_no_place() {
    for breach in BREACHES {
        let (found, journal) = replays(breach, justified("sites", 1)).await;
        let reason = found.divergences[0].actual.as_deref().expect("a guard");
        assert!(reason.starts_with("contract: inputs 0: /") && !has_place(reason), "{reason}");
        let notes = journal.iter().filter_map(|entry| entry.note.as_deref());
        let refused: Vec<&str> = notes.filter(|note| note.contains("contract: ")).collect();
        assert!(!refused.is_empty() && !refused.iter().any(|note| has_place(note)), "{refused:?}");
    }
}

/// Proves P-14: the message of a panic is written nowhere. Only the panic hook gets it, before it
/// can be masked.
#[tokio::test]
async fn a_panic_is_heard_by_the_hook_alone() {
    let hooked: Arc<Mutex<String>> = Arc::default();
    let hook = hooked.clone();
    std::panic::set_hook(Box::new(move |panic| {
        hook.lock().expect("a lock").push_str(&panic.to_string());
    }));
    let directory = tempfile::tempdir().expect("a directory");
    let hapax = Hapax::open(directory.path().join("hapax.db")).await.expect("a ledger");
    let ledger = Ledger { hapax, directory, server: None };
    ledger.declare("sites", masked()).await;
    let pipeline = ledger.pipeline();
    let builder = transactional(pipeline.operation(justified("sites", 1)));
    let error = builder.run(|_| async { panic!("caved in at {PLACE}") }).await;
    let error = error.expect_err("no result").to_string();
    drop(std::panic::take_hook());
    assert!(error.contains("panicked") && !has_place(&error), "{error}");
    assert!(hooked.lock().expect("a lock").contains(PLACE));
    ledger.hapax.close().await.expect("closed");
    assert!(!has_place(&ledger.bytes()));
}

mod cases {
    use super::*;

    async fn partial(ledger: &Ledger, key: hapax::Key) {
        let effect = ledger.hapax.effects().show(key).await.expect("a read").expect("one");
        assert_eq!(effect.state.name(), StateName::Partial);
        let skip = hapax::Resolution::Skip;
        ledger
            .hapax
            .effects()
            .resolve(key, effect.seen(), skip, "ann", "seen")
            .await
            .expect("decided");
    }

    /// Proves P-14: a breach names members without places, to the caller, in the journal, and in
    /// the review.
    pub(super) async fn a_breach_names_no_place(ledger: Arc<Ledger>) {
        let contract = || Some(CONTRACT.to_owned());
        let read = Dataset { input_contract: contract(), review: true, ..masked() };
        ledger.declare("read", read).await;
        let written = Dataset { output_contract: contract(), review: true, ..masked() };
        ledger.declare("written", written).await;
        let pipeline = ledger.pipeline();
        let mut errors = Vec::new();
        for (nth, breach) in BREACHES.iter().enumerate() {
            let builder = pipeline.operation(justified("read", nth)).input(json(breach));
            errors.push(done(builder, &Count::default()).await.expect_err("a breach").to_string());
            let operation = justified("read", nth + 10);
            let request =
                PermitRequest { operation, inputs: vec![json(breach)], ..PermitRequest::default() };
            let attempt = AttemptId::from_bytes([nth as u8 + 1; 16]);
            let permit = pipeline.permit(request, attempt).await;
            errors.push(permit.expect_err("a breach").to_string());

            let made = || WorkResult::new("").document(json(breach));
            let builder = pipeline.operation(justified("written", nth));
            let unfit = builder.run(|_| async { Ok::<_, WorkError>(made()) }).await;
            errors.push(unfit.expect_err("a breach").to_string());
            partial(&ledger, justified("written", nth).key().expect("a key")).await;
            let request = PermitRequest {
                operation: justified("written", nth + 10),
                ..PermitRequest::default()
            };
            let (key, permit) = pipeline.permit(request, attempt).await.expect("granted");
            let report = OperationReport::WorkResult(Box::new(made()));
            errors
                .push(pipeline.report(key, by(&permit), report).await.expect_err("no").to_string());
            partial(&ledger, key).await;
        }
        for reviewed in review::list(&ledger.hapax, true, 100).await.expect("reviews") {
            errors.push(reviewed.reason);
        }
        assert_eq!(errors.len(), 4 * BREACHES.len() * 2);
        for error in &errors {
            assert!(error.contains("puts 0: /") && error.contains(" breaks #/"), "{error}");
            assert!(!has_place(error), "{error}");
        }
        ledger.hapax.close().await.expect("closed");
        let bytes = ledger.bytes();
        assert!(bytes.contains("contract: ") && !has_place(&bytes));
    }

    /// Proves P-14: a field that is recorded verbatim and names a place is refused by its name,
    /// before it is recorded.
    pub(super) async fn fields_that_cannot_be_masked_are_refused(ledger: Arc<Ledger>) {
        ledger.declare("sites", masked()).await;
        ledger.declare(PLACE, masked()).await;
        let pipeline = ledger.pipeline();
        type Set<T> = (&'static str, fn(&mut T));
        let fields: [Set<Operation>; 8] = [
            ("pipeline_id", |o| o.pipeline_id = PLACE.into()),
            ("task_id", |o| o.task_id = PLACE.into()),
            ("dataset_id", |o| o.dataset_id = PLACE.into()),
            ("operation_type", |o| o.operation_type = PLACE.into()),
            ("version", |o| o.version = PLACE.into()),
            ("checksum_in", |o| o.checksum_in = PLACE.into()),
            ("params_hash", |o| o.params_hash = PLACE.into()),
            ("inputs: checksum", |o| {
                o.inputs = vec![Source { checksum: Some(PLACE.into()), ..Source::default() }];
            }),
        ];
        for (field, set) in fields {
            let mut request = justified("sites", 1);
            set(&mut request);
            let why = format!("{field}: it names an exact place of a masked dataset");
            let error = done(pipeline.operation(request.clone()), &Count::default()).await;
            let error = error.expect_err("it may not be written");
            assert!(matches!(&error, Error::Invalid(reason) if *reason == why), "{error}");
            let request = PermitRequest { operation: request, ..PermitRequest::default() };
            let permit = pipeline.permit(request, AttemptId::from_bytes([7; 16])).await;
            assert_eq!(permit.expect_err("nor over HTTP").to_string(), why);
        }
        let outputs: [Set<Artifact>; 4] = [
            ("outputs 0: dataset", |a| a.dataset = PLACE.into()),
            ("outputs 0: version", |a| a.version = PLACE.into()),
            ("outputs 0: checksum", |a| a.checksum = PLACE.into()),
            ("outputs 0: media_type", |a| a.media_type = Some(PLACE.into())),
        ];
        let events: [Set<Event>; 5] = [
            ("events 0: name", |e| e.name = PLACE.into()),
            ("events 0: dataset", |e| e.dataset = PLACE.into()),
            ("events 0: pipeline", |e| e.pipeline = Some(PLACE.into())),
            ("events 0: version", |e| e.version = Some(PLACE.into())),
            ("events 0: order", |e| e.order = Order::Key(PLACE.into())),
        ];
        let outputs = outputs.into_iter().map(|(field, set)| {
            let mut artifact = output("sites");
            set(&mut artifact);
            (field, WorkResult::new("").output(artifact))
        });
        let events = events.into_iter().map(|(field, set)| {
            let payload = Payload::parse(b"{}").expect("a payload");
            let mut event = Event::new("seen", "sites", payload);
            set(&mut event);
            (field, WorkResult::new("").event(event))
        });
        for (nth, (field, made)) in outputs.chain(events).enumerate() {
            let request = || justified("sites", nth + 10);
            let unfit = pipeline.operation(request());
            let unfit = unfit.run(|_| async { Ok::<_, WorkError>(made.clone()) }).await;
            let unfit = unfit.expect_err("it may not be written").to_string();
            assert!(unfit.starts_with(&format!("refused: check: {field}: it names")), "{unfit}");
            partial(&ledger, request().key().expect("a key")).await;
        }
        // The declaration of the dataset is the operator's own.
        ledger.hapax.datasets().declare(PLACE, None).await.expect("dropped");
        let moments = ledger.moments().await;
        let moments: Vec<String> = moments.iter().map(|moment| print(&moment.document())).collect();
        assert!(
            moments.len() > 10 && !moments.iter().any(|moment| has_place(moment)),
            "{moments:?}"
        );
        let journal = ledger.journal().await;
        let noted = journal.iter().filter_map(|entry| entry.note.as_deref());
        assert!(!noted.into_iter().any(has_place));
    }

    fn print(json: &Json) -> String {
        hapax::canonical::canonical(json).expect("canonical")
    }

    fn settled(product: &Option<hapax_pipeline::Product>) -> &hapax_pipeline::Product {
        product.as_ref().expect("a product")
    }

    /// Proves P-14: cells that the caller gives are no finer than the dataset allows.
    pub(super) async fn cells_are_as_coarse_as_the_dataset_asks(ledger: Arc<Ledger>) {
        ledger.declare("sites", masked()).await;
        let fine = ["8a26e2823867fff", "8a26e28230effff", "nowhere"].map(str::to_owned).to_vec();
        let cells = |dataset| Artifact { cells: fine.clone(), ..output(dataset) };
        let pipeline = ledger.pipeline();
        for (dataset, kept) in
            [("sites", vec!["8526e283fffffff".to_owned()]), ("flow", fine.clone())]
        {
            let made = WorkResult::new("").output(cells(dataset));
            let builder = pipeline.operation(justified(dataset, 1));
            let finished = builder.run(|_| async { Ok::<_, WorkError>(made.clone()) }).await;
            let product = finished.expect("done").product;
            assert_eq!(settled(&product).outputs[0].cells, kept, "{dataset}");
        }
    }

    /// Proves P-14: as many outputs as a client may report are recorded, with their cells, and
    /// lineage renders them alike each time.
    pub(super) async fn a_hundred_outputs_are_recorded(ledger: Arc<Ledger>) {
        ledger.declare("sites", masked()).await;
        // 256 points, each in a cell of its own at resolution 5.
        let wells = (0..16).flat_map(|x| (0..16).map(move |y| (x, y)));
        let wells: Vec<String> = wells
            .map(|(x, y)| {
                format!("[{},{}]", -110.0 + f64::from(x) * 0.7, 30.0 + f64::from(y) * 0.7)
            })
            .collect();
        let wells = format!(r#"{{"type":"MultiPoint","coordinates":[{}]}}"#, wells.join(","));
        let all: Vec<String> = hapax_pipeline::mask(&json(&wells), 5).cells.into_iter().collect();
        assert_eq!(all.len(), 256);
        let fine: Vec<String> = hapax_pipeline::mask(&json(&wells), 9).cells.into_iter().collect();
        let pipeline = ledger.pipeline();
        for (nth, own) in [false, true].into_iter().enumerate() {
            let artifact = |n: usize| Artifact {
                uri: format!("s3://sites/{n}.parquet"),
                checksum: format!("sha256:{n:064x}"),
                // Each output has all cells but one.
                cells: fine.iter().skip(1).filter(|_| own).cloned().collect(),
                ..output("sites")
            };
            let artifact = |n: usize| {
                let mut artifact = artifact(n);
                if own {
                    artifact.cells[n] = fine[0].clone();
                }
                artifact
            };
            let made = || {
                let made = WorkResult::new("").document(json(&wells));
                (0..100).fold(made, |made, n| made.output(artifact(n)))
            };
            let builder = pipeline.operation(justified("sites", nth));
            let finished = builder.run(|_| async { Ok::<_, WorkError>(made()) }).await;
            let finished = finished.expect("settled");
            let request = PermitRequest {
                operation: justified("sites", nth + 10),
                ..PermitRequest::default()
            };
            let attempt = AttemptId::from_bytes([nth as u8 + 1; 16]);
            let (key, permit) = pipeline.permit(request, attempt).await.expect("granted");
            let report = OperationReport::WorkResult(Box::new(made()));
            let reported = pipeline.report(key, by(&permit), report).await.expect("settled");
            assert_eq!(reported, Some(hapax::remote::Settled::Recorded));
            let outputs = &settled(&finished.product).outputs;
            for output in outputs {
                let within = |cells: &[String]| {
                    let cells = cells.iter().map(|cell| cell[1..2].to_owned());
                    cells.collect::<std::collections::BTreeSet<_>>()
                };
                assert!(own || output.cells == all, "{:?}", output.cells);
                assert!(
                    !output.cells.is_empty() && within(&output.cells).iter().all(|r| **r <= *"5")
                );
            }
            // The items that follow from the journal are the same each time.
            for key in [key, finished.key] {
                let (once, again) = (items(&ledger, key).await, items(&ledger, key).await);
                assert_eq!((once.len(), &once), (1, &again));
                let cells = once[0].matches(&outputs[99].cells[0]).count();
                assert!(cells >= 1, "{}", once[0]);
            }
            let moments = ledger.moments().await;
            let read = moments.iter().rev().find_map(|moment| match &moment.change {
                hapax_pipeline::RunChange::Complete { product, .. } => product.clone(),
                _ => None,
            });
            assert_eq!(&read.expect("a product").outputs, outputs);
            let document = moments.last().map(|moment| moment.document()).expect("a moment");
            assert_eq!(Moment::read(&document).as_ref(), moments.last());
        }
    }

    /// The items of a catalog that follow from the journal.
    async fn items(ledger: &Ledger, key: hapax::Key) -> Vec<String> {
        let mut items = Vec::new();
        for moment in ledger.moments().await.iter().filter(|moment| moment.run.key == key) {
            let Some(completed) = lineage::Completed::of(moment) else { continue };
            let editions = completed.editions();
            let item = |edition| print(&lineage::stac::item(&completed, edition));
            items.extend(editions.iter().map(item));
        }
        items
    }
}

/// The attempt and the fence that a client with this permit names.
fn by(permit: &hapax::remote::Permit) -> (AttemptId, hapax::Fence) {
    match permit {
        hapax::remote::Permit::Granted(grant) => (grant.attempt, grant.fence),
        other => panic!("not granted: {other:?}"),
    }
}
