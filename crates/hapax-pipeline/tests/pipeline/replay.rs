//! Replays: the journal compared with the files that are there.

use hapax::{Slo, Sovereignty};
use hapax_pipeline::catalog::Catalog;
use hapax_pipeline::replay::{self, ReplayScope};
use hapax_pipeline::{RunChange, Source};

use super::*;

/// Proves P-10: ten thousand operations are replayed without executing any, the lineage is the
/// same to the byte each time, and the one output that was changed is named.
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_executes_nothing_and_finds_what_was_changed() {
    const OPERATIONS: usize = 10_000;
    let directory = tempfile::tempdir().expect("a directory");
    let hapax = Hapax::open(directory.path().join("hapax.db")).await.expect("a ledger");
    let (pipeline, count, files) =
        (Pipeline::new(hapax.clone()), Count::default(), directory.path().join("files"));
    std::fs::create_dir(&files).expect("as it should be");
    let runs = (0..OPERATIONS).map(|nth| {
        let (pipeline, count, files) = (pipeline.clone(), count.clone(), files.clone());
        async move {
            let builder = transactional(pipeline.operation(operation(&format!("d{nth}"), nth)));
            let run = builder.run(|_| {
                count.add();
                let name = format!("{nth}.csv");
                std::fs::write(files.join(&name), format!("row {nth}\n")).expect("as it should be");
                let checksum = replay::checksum(&files.join(&name)).expect("a checksum");
                let size = Some(format!("row {nth}\n").len() as u64);
                let file = Artifact { uri: name, checksum, size, ..output(&format!("d{nth}")) };
                async { Ok::<_, WorkError>(WorkResult::new("1 row").output(file)) }
            });
            run.await.expect("done");
        }
    });
    let mut runs = runs.collect::<Vec<_>>();
    while !runs.is_empty() {
        let batch: Vec<_> = runs.drain(..runs.len().min(100)).map(tokio::spawn).collect();
        for run in batch {
            run.await.expect("no panic");
        }
    }
    let scope = ReplayScope { files: files.clone(), ..ReplayScope::default() };
    let first = replay::verify(&hapax, &scope).await.expect("a replay");
    assert_eq!((first.operations, first.executed), (OPERATIONS as u64, 0));
    assert_eq!((first.divergences.as_slice(), first.expected), (&[][..], first.actual));
    std::fs::write(files.join("4711.csv"), "row 4712\n").expect("as it should be");
    let second = replay::verify(&hapax, &scope).await.expect("a replay");
    let [changed] = &second.divergences[..] else { panic!("{:?}", second.divergences) };
    assert_eq!((changed.what, changed.which.as_str()), ("output", "4711.csv"));
    assert_eq!(changed.key, operation("d4711", 4711).key().expect("a key"));
    assert_ne!(second.expected, second.actual);
    assert_eq!((first.lineage, first.expected), (second.lineage, second.expected));
    assert_eq!(count.get(), OPERATIONS);
    // Each replay has its record, and history is as it was.
    let record =
        hapax.effects().show(second.key).await.expect("as it should be").expect("a record");
    assert_eq!(record.label.as_deref(), Some("replay: verify"));
    assert_eq!(
        hapax.journal().entries(0, 100_000).await.expect("as it should be").len(),
        2 * OPERATIONS + 4
    );
}

/// Proves P-10: an output is compared wherever it lies on this machine. An output elsewhere does
/// not count as compared.
#[tokio::test]
async fn outputs_are_compared_wherever_they_lie() {
    let directory = tempfile::tempdir().expect("a directory");
    let (files, other) = (directory.path().join("files"), directory.path().join("other.csv"));
    std::fs::create_dir(&files).expect("as it should be");
    std::fs::write(&other, "1\n").expect("as it should be");
    let hapax = Hapax::open(directory.path().join("hapax.db")).await.expect("a ledger");
    let pipeline = Pipeline::new(hapax.clone());
    let checksum = replay::checksum(&other).expect("a checksum");
    let absolute = other.display().to_string();
    let places = [absolute.as_str(), "../other.csv", "s3://flow/other.csv"];
    for (nth, uri) in places.into_iter().enumerate() {
        let (uri, checksum) = (uri.to_owned(), checksum.clone());
        let file = Artifact { uri, checksum, size: Some(2), ..output("flow") };
        let builder = transactional(pipeline.operation(operation("flow", nth)));
        let run = builder.run(|_| {
            let file = file.clone();
            async { Ok::<_, WorkError>(WorkResult::new("1 row").output(file)) }
        });
        run.await.expect("done");
    }
    let scope = ReplayScope { files, ..ReplayScope::default() };
    let found = replay::verify(&hapax, &scope).await.expect("a replay");
    assert_eq!((found.divergences.len(), found.elsewhere), (0, 1));
    std::fs::write(&other, "2\n").expect("as it should be");
    let found = replay::verify(&hapax, &scope).await.expect("a replay");
    let changed: Vec<_> = found.divergences.iter().map(|one| one.which.as_str()).collect();
    assert_eq!((changed, found.elsewhere), (places[..2].to_vec(), 1));
}

/// Proves P-10: metadata is compared too. The recorded size of a file, and the documents of a
/// catalog, are each compared with what follows from the journal.
#[tokio::test]
async fn sizes_and_the_documents_of_a_catalog_are_compared() {
    let directory = tempfile::tempdir().expect("a directory");
    let (files, root) = (directory.path().join("files"), directory.path().join("catalog"));
    std::fs::create_dir(&files).expect("as it should be");
    std::fs::write(files.join("flow.csv"), "1\n").expect("as it should be");
    let hapax = Hapax::open(directory.path().join("hapax.db")).await.expect("a ledger");
    let (pipeline, catalog) = (Pipeline::new(hapax.clone()), Catalog::new(&root));
    let checksum = replay::checksum(&files.join("flow.csv")).expect("a checksum");
    for (nth, size) in [(1, 2), (2, 3)] {
        let (checksum, version) = (checksum.clone(), format!("v{nth}"));
        let file = Artifact { checksum, version, size: Some(size), ..output("flow") };
        let builder = transactional(pipeline.operation(operation("flow", nth)));
        let run = builder.run(|_| {
            let file = file.clone();
            async { Ok::<_, WorkError>(WorkResult::new("1 row").output(file)) }
        });
        run.await.expect("done");
    }
    let scope = ReplayScope { files, catalog: Some(root.clone()), ..ReplayScope::default() };
    let found = replay::verify(&hapax, &scope).await.expect("a replay");
    let missing = found.divergences.iter().filter(|one| one.what == "document");
    assert!(missing.clone().all(|one| one.actual.is_none()), "nothing is written yet");
    let documents: Vec<String> = missing.map(|one| one.which.clone()).collect();
    assert_eq!(documents.len(), 9, "two of PROV-O, DCAT and STAC, twice, and one: {documents:?}");
    assert!(documents.iter().any(|place| place.ends_with("/collection.json")), "{documents:?}");

    let mut fold = Fold::default();
    for entry in hapax.journal().entries(0, 1_000).await.expect("a journal") {
        fold.push(&entry).map(|moment| catalog.write(&moment)).transpose().expect("written");
    }
    let found = replay::verify(&hapax, &scope).await.expect("a replay");
    let [size] = &found.divergences[..] else { panic!("{:?}", found.divergences) };
    let shown = (size.what, size.expected.as_str(), size.actual.as_deref());
    assert_eq!(shown, ("size", "3", Some("2")), "the file is as it was; the journal is wrong");

    for document in &documents {
        let path = root.join(document);
        let text = std::fs::read_to_string(&path).expect("it is there");
        std::fs::write(&path, text.replace('v', "w")).expect("changed");
        let found = replay::verify(&hapax, &scope).await.expect("a replay");
        let changed: Vec<_> = found.divergences.iter().map(|one| one.which.as_str()).collect();
        assert_eq!(changed, ["flow.csv", document]);
        assert_ne!(found.expected, found.actual);
        std::fs::write(&path, text).expect("as it was");
    }
}

/// Proves P-11: a collection is the same whichever of its runs is added last.
#[tokio::test]
async fn a_collection_does_not_depend_on_the_order_of_its_datasets() {
    let directory = tempfile::tempdir().expect("a directory");
    let hapax = Hapax::open(directory.path().join("hapax.db")).await.expect("a ledger");
    let owned = |owner: &str| Dataset { owner: Some(owner.into()), ..Dataset::default() };
    let pipeline = Pipeline::new(hapax.clone());
    for (nth, dataset) in [(1, "flow"), (2, "level")] {
        hapax.datasets().declare(dataset, Some(owned("ann"))).await.expect("declared");
        let file = Artifact { version: format!("v{nth}"), ..output("flow") };
        let builder = transactional(pipeline.operation(operation(dataset, nth)));
        let run = builder.run(|_| {
            let file = file.clone();
            async { Ok::<_, WorkError>(WorkResult::new("1 row").output(file)) }
        });
        run.await.expect("done");
    }
    let mut fold = Fold::default();
    let journal = hapax.journal().entries(0, 100).await.expect("a journal");
    let mut moments: Vec<Moment> = journal.iter().filter_map(|entry| fold.push(entry)).collect();
    let mut written = || {
        moments.reverse();
        let root = directory.path().join(moments[0].word());
        let catalog = Catalog::new(&root);
        moments.iter().for_each(|moment| catalog.write(moment).expect("written"));
        let scope = ReplayScope { catalog: Some(root), ..ReplayScope::default() };
        (scope, hapax.clone())
    };
    for (scope, hapax) in [written(), written()] {
        let found = replay::verify(&hapax, &scope).await.expect("a replay");
        let differs = found.divergences.iter().filter(|one| one.what == "document");
        assert_eq!(differs.count(), 0, "{:?}", found.divergences);
    }
}

/// Proves P-10: in a sandbox programs are run again with their inputs, what they make is compared,
/// and sensitive datasets are left alone.
#[tokio::test]
async fn a_sandbox_runs_programs_again_and_leaves_sensitive_datasets_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let (files, sandbox) = (directory.path().join("files"), directory.path().join("sandbox"));
    std::fs::create_dir(&files).expect("as it should be");
    std::fs::write(files.join("in.csv"), "1\n2\n").expect("as it should be");
    let hapax = Hapax::open(directory.path().join("hapax.db")).await.expect("a ledger");
    hapax
        .datasets()
        .declare("sites", Some(Dataset { masked: Some(5), ..Dataset::default() }))
        .await
        .expect("as it should be");
    let pipeline = Pipeline::new(hapax.clone());
    let input = Source {
        name: "in.csv".into(),
        uri: Some("in.csv".into()),
        checksum: replay::checksum(&files.join("in.csv")),
    };
    for (nth, dataset, script) in [
        (1, "flow", "sort -r in.csv > out.csv"),
        (2, "sites", "true"),
        (3, "times", "date +%N > out.csv"),
    ] {
        let request = Operation {
            inputs: vec![input.clone()],
            justification: Some("a survey".into()),
            program: ["sh", "-c", script].map(str::to_owned).to_vec(),
            ..operation(dataset, nth)
        };
        let run = transactional(pipeline.operation(request)).run(|_| {
            assert!(
                std::process::Command::new("sh")
                    .args(["-c", script])
                    .current_dir(&files)
                    .status()
                    .expect("as it should be")
                    .success()
            );
            let checksum = replay::checksum(&files.join("out.csv")).unwrap_or_default();
            let (uri, size) = ("out.csv".into(), None);
            let file = Artifact { uri, checksum, size, ..output(dataset) };
            async { Ok::<_, WorkError>(WorkResult::new("done").output(file)) }
        });
        run.await.expect("done");
    }
    let execute = |run: hapax_pipeline::Run, room: std::path::PathBuf| async move {
        let words = &run.about.operation.program;
        let status =
            std::process::Command::new(&words[0]).args(&words[1..]).current_dir(room).status();
        status.map_err(|error| error.to_string())?.success().then_some(()).ok_or("it failed".into())
    };
    let scope = ReplayScope { files: files.clone(), ..ReplayScope::default() };
    let found =
        replay::execute(&hapax, &scope, "dry-run", &sandbox, execute).await.expect("a replay");
    assert_eq!((found.operations, found.executed, found.skipped), (3, 2, 1));
    let differs: Vec<_> = found.divergences.iter().map(|d| (d.what, d.key)).collect();
    assert_eq!(differs, [("output", operation("times", 3).key().expect("a key"))]);
    std::fs::write(files.join("in.csv"), "changed\n").expect("as it should be");
    let scope = ReplayScope { dataset: Some("flow".into()), ..scope };
    let found =
        replay::execute(&hapax, &scope, "segment", &sandbox, execute).await.expect("a replay");
    assert_eq!((found.executed, found.divergences[0].what), (0, "input"));
    // The dataset is restricted by now, so the replay is refused.
    hapax
        .datasets()
        .declare("flow", Some(Dataset { restricted: true, ..Dataset::default() }))
        .await
        .expect("declared");
    let found =
        replay::execute(&hapax, &scope, "segment", &sandbox, execute).await.expect("a replay");
    assert_eq!((found.executed, found.divergences[0].what), (0, "guard"));
    let mut fold = Fold::default();
    let journal = hapax.journal().entries(0, 1_000).await.expect("as it should be");
    let completed = journal.iter().filter_map(|entry| fold.push(entry));
    assert_eq!(completed.filter(|m| matches!(m.change, RunChange::Complete { .. })).count(), 3);
}

/// Proves P-7 and P-10: every guard is checked again before a replay. An operation from before the
/// declaration is not replayed if it does not meet the terms, or if its dataset is sensitive by
/// now.
#[tokio::test]
async fn guards_are_asked_again_before_a_replay() {
    let contract = |schema: &str| Some(schema.to_owned());
    let slo = Some(Slo { window_ms: 3_600_000, objective_ppm: 900_000 });
    let plain = Dataset::default;
    let cases = [
        ("fine", "in.json", Some(plain()), None),
        ("budget", "in.json", Some(Dataset { slo, ..plain() }), Some("error budget: 2 of 3")),
        ("masked", "in.json", Some(Dataset { masked: Some(5), ..plain() }), Some("care: ")),
        (
            "theirs",
            "in.json",
            Some(Dataset { sovereignty: Some(Sovereignty::Tribal), ..plain() }),
            Some("care: "),
        ),
        (
            "restricted",
            "in.json",
            Some(Dataset { restricted: true, ..plain() }),
            Some("sovereignty: "),
        ),
        (
            "breached",
            "in.json",
            Some(Dataset { input_contract: contract(r#"{"required":["cms"]}"#), ..plain() }),
            Some("contract: inputs 0: "),
        ),
        (
            "no JSON",
            "in.csv",
            Some(Dataset { input_contract: contract("true"), ..plain() }),
            Some("contract: inputs: in.csv must be JSON"),
        ),
        (
            "nothing",
            "",
            Some(Dataset { input_contract: contract("true"), ..plain() }),
            Some("contract: there is one for inputs, and nothing was given"),
        ),
        ("nobody's", "in.json", None, Some("registry: ")),
    ];
    for (name, input, now, refused) in cases {
        let found = replayed_after(input, None, now.clone()).await;
        let reasons: Vec<_> =
            found.divergences.iter().map(|one| (one.what, one.actual.as_deref())).collect();
        match refused {
            None => assert_eq!((found.executed, reasons), (1, vec![]), "{name}"),
            Some(why) => {
                let [("guard", Some(actual))] = reasons[..] else { panic!("{name}: {reasons:?}") };
                assert!(actual.starts_with(why), "{name}: {actual}");
                assert_eq!((found.executed, found.skipped), (0, 1), "{name}");
            }
        }
        // Even with a justification, an operation is left alone if its dataset is sensitive by now.
        if name == "masked" || name == "theirs" {
            let found = replayed_after(input, Some("a survey"), now).await;
            let counts = (found.executed, found.skipped, found.divergences.len());
            assert_eq!(counts, (0, 1, 0), "{name}");
        }
    }
}

/// Performs an operation that reads this, fails two others, declares the dataset, and replays.
async fn replayed_after(
    input: &str,
    justification: Option<&str>,
    now: Option<Dataset>,
) -> replay::ReplayReport {
    let directory = tempfile::tempdir().expect("a directory");
    let files = directory.path().join("files");
    std::fs::create_dir(&files).expect("a directory");
    std::fs::write(files.join("in.json"), "{}\n").expect("a file");
    std::fs::write(files.join("in.csv"), "station\n").expect("a file");
    let hapax = Hapax::open(directory.path().join("hapax.db")).await.expect("a ledger");
    let (pipeline, count) = (Pipeline::new(hapax.clone()), Count::default());
    let source = |name: &str| Source {
        name: name.into(),
        uri: Some(name.into()),
        checksum: replay::checksum(&files.join(name)),
    };
    let request = Operation {
        inputs: Some(input).filter(|name| !name.is_empty()).map(source).into_iter().collect(),
        justification: justification.map(str::to_owned),
        program: vec!["true".into()],
        ..operation("flow", 1)
    };
    done(transactional(pipeline.operation(request)), &count).await.expect("done");
    for nth in 2..4 {
        let fails = transactional(pipeline.operation(operation("flow", nth)));
        fails.run(|_| async { Err(WorkError::not_done("no")) }).await.expect_err("failed");
    }
    hapax.pass().await.expect("sealed");
    match now {
        Some(dataset) => {
            hapax.datasets().declare("flow", Some(dataset)).await.expect("declared");
        }
        None => {
            let guards = hapax::guard::Guards { registered: true, ..Default::default() };
            let outbox = hapax::outbox::OutboxConfig::new().guards(guards);
            hapax.outbox().configure(&outbox).await.expect("configured");
        }
    }
    let scope = ReplayScope { files, ..ReplayScope::default() };
    let sandbox = directory.path().join("sandbox");
    let again = |_, _| async { Ok(()) };
    replay::execute(&hapax, &scope, "dry-run", &sandbox, again).await.expect("a replay")
}
