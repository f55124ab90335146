//! Tests of ontologies that change after results were made from them.

use super::*;

on_both! {
    a_change_removes_the_results_of_its_ontology_only
    an_extraction_begins_anew_when_its_ontology_changes
    no_request_is_answered_from_before_a_change
}

mod cases {
    use super::*;
    use std::sync::atomic::AtomicBool;

    const OTHER: &str = "https://example.org/other";

    /// Another version, with one river more.
    fn changed(nth: usize) -> Ontology {
        let mut ontology = rivers(IRI);
        ontology.individuals.push(Individual {
            id: format!("{IRI}#new{nth}"),
            label: Some(format!("Newbrook{nth}")),
            types: vec![format!("{IRI}#River")],
            ..Individual::default()
        });
        ontology
    }

    /// Proves X-7: a change or a removal removes exactly the results of its ontology.
    pub(super) async fn a_change_removes_the_results_of_its_ontology_only(ledger: Arc<Ledger>) {
        let probe = Probe::new();
        let extract = ledger.extract(&probe).await;
        let elsewhere = ledger.extract(&probe).await;
        keep(&extract).await;
        extract.put_ontology(&rivers(OTHER), None, "ada").await.expect("it works");
        let text = "The Danube flows through Vienna, and Newbrook1 does not.";
        let (ours, theirs) = (request(text), ExtractionRequest::new(text, OTHER));
        for request in [&ours, &theirs] {
            extract.extract(request, None).await.expect("it works");
            assert!(elsewhere.extract(request, None).await.expect("it works").is_hit());
        }
        let same =
            extract.put_ontology(&rivers(IRI), Some("1.2.3"), "ada").await.expect("it works");
        assert_eq!((same.before == same.now, same.invalidated), (true, 0));
        let change = extract.put_ontology(&changed(1), None, "ada").await.expect("it works");
        assert_ne!(change.before, change.now);
        // The whole result and the one chunk it has.
        assert_eq!(change.invalidated, 2);
        for node in [&extract, &elsewhere] {
            assert!(
                node.extract(&theirs, None).await.expect("it works").is_hit(),
                "others keep theirs"
            );
        }
        let anew = elsewhere.extract(&ours, None).await.expect("it works");
        assert!(!anew.is_hit());
        assert_eq!(anew.graph().expect("it works").entities.len(), 3);
        let gone = extract.remove_ontology(IRI, "ada").await.expect("it works");
        assert_eq!((gone.now, gone.invalidated), (None, 2));
        for node in [&extract, &elsewhere] {
            let refused = node.extract(&ours, None).await;
            assert!(matches!(refused, Err(hapax_extract::Error::UnknownOntology(_))));
            assert!(node.extract(&theirs, None).await.expect("it works").is_hit());
        }
    }

    /// Proves X-7: an execution that ends after the change is not stored, and its caller gets a
    /// result of the present version.
    pub(super) async fn an_extraction_begins_anew_when_its_ontology_changes(ledger: Arc<Ledger>) {
        let (slow, quick) = (Probe::gated(), Probe::new());
        let extract = ledger.extract(&slow).await;
        let elsewhere = ledger.extract(&quick).await;
        keep(&elsewhere).await;
        let text = "Newbrook1 is a river.";
        let late = tokio::spawn({
            let extract = extract.clone();
            async move { extract.extract(&request(text), None).await }
        });
        slow.arrived().await;
        let change = elsewhere.put_ontology(&changed(1), None, "ada").await.expect("it works");
        slow.go();
        slow.arrived().await;
        slow.go();
        let late = late.await.expect("it works").expect("it works");
        assert_eq!(Some(late.version.clone()), change.now);
        let graph = late.graph().expect("it works");
        assert!(graph.entities.iter().any(|entity| entity.name == "Newbrook1"), "{graph:?}");
        assert_eq!(slow.calls(), 2);
        let versions = ledger.sql("SELECT DISTINCT ontology_version FROM extraction_results");
        assert_eq!(Some(versions.trim().to_owned()), change.now);
    }

    /// Proves X-7: under load on two nodes, a request after the call returned gets the new version,
    /// also on the node that did not make it.
    pub(super) async fn no_request_is_answered_from_before_a_change(ledger: Arc<Ledger>) {
        let probe = Probe::new();
        let nodes = [ledger.extract(&probe).await, ledger.extract(&probe).await];
        keep(&nodes[0]).await;
        let stop = Arc::new(AtomicBool::new(false));
        let load: Vec<_> = (0..8)
            .map(|n| {
                let (extract, stop) = (nodes[n % 2].clone(), stop.clone());
                tokio::spawn(async move {
                    let mut answered = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let text =
                            format!("Note {}: the Danube flows through Vienna.", answered % 3);
                        extract.extract(&request(&text), None).await.expect("an answer");
                        answered += 1;
                        tokio::task::yield_now().await;
                    }
                    answered
                })
            })
            .collect();
        for nth in 0..5 {
            let change =
                nodes[nth % 2].put_ontology(&changed(nth), None, "ada").await.expect("it works");
            for node in &nodes {
                for n in 0..3 {
                    let text = format!("Note {n}: the Danube flows through Vienna.");
                    let extracted = node.extract(&request(&text), None).await.expect("it works");
                    assert_eq!(Some(&extracted.version), change.now.as_ref());
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        for load in load {
            assert!(load.await.expect("it works") > 0, "no request was in flight");
        }
    }
}
