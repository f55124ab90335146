//! Tests of explaining and counting results, of the tables, and of the comparison with another
//! cache.

use super::*;

on_both! {
    a_miss_is_explained_by_what_differs
    a_miss_after_a_change_is_explained_by_the_ontologys_version
    the_tables_have_what_the_document_says
    the_audit_log_tells_what_became_of_each_request
    another_caches_keys_are_compared
    results_are_removed_by_hand
}

mod cases {
    use super::*;

    /// Proves X-3: the explanation names the part of the key that differs from the nearest result.
    pub(super) async fn a_miss_is_explained_by_what_differs(ledger: Arc<Ledger>) {
        let extract = ledger.extract(&Probe::new()).await;
        keep(&extract).await;
        let nothing = extract.explain(&request("The Seine.")).await.expect("it works");
        assert!(!nothing.found && nothing.nearest.is_none());
        extract.extract(&request("The Seine."), None).await.expect("it works");
        assert!(extract.explain(&request(" The Seine.\n")).await.expect("it works").found);
        let differs = |request: ExtractionRequest| {
            let extract = extract.clone();
            async move {
                extract
                    .explain(&request)
                    .await
                    .expect("it works")
                    .nearest
                    .expect("it works")
                    .differs
            }
        };
        assert_eq!(differs(with("The Seine.", r#"{"seed": 7}"#)).await, ["extractionParams"]);
        assert_eq!(differs(request("The Danube.")).await, ["text"]);
        extract.put_ontology(&rivers("o2"), None, "ada").await.expect("it works");
        let other = ExtractionRequest::new("The Seine.", "o2");
        assert_eq!(differs(other).await, ["ontologyId"]);
    }

    /// Proves X-3, X-7: a result that a change of the ontology removed is still named, also after
    /// several changes, and not where the same content was stored again.
    pub(super) async fn a_miss_after_a_change_is_explained_by_the_ontologys_version(
        ledger: Arc<Ledger>,
    ) {
        let extract = ledger.extract(&Probe::new()).await;
        keep(&extract).await;
        let made = extract.extract(&request("The Seine."), None).await.expect("it works");
        extract.extract(&request("The Danube."), None).await.expect("it works");
        let nearest = async |text: &str| {
            let explained = extract.explain(&request(text)).await.expect("it works");
            assert!(!explained.found);
            explained.nearest
        };
        for synonym in ["stream", "brook"] {
            let mut changed = rivers(IRI);
            changed.classes[0].synonyms.push(synonym.into());
            for _ in 0..2 {
                extract.put_ontology(&changed, None, "ada").await.expect("it works");
            }
            let gone = nearest("The Seine.").await.expect("it was there");
            assert_eq!((gone.key, gone.differs), (made.key, vec!["ontologyVersion"]));
            assert_eq!(nearest("The Elbe.").await, None, "it never was there");
        }
        // A result that the same request had comes before stored results of other requests.
        extract.extract(&with("The Seine.", r#"{"seed": 7}"#), None).await.expect("it works");
        assert_eq!(nearest("The Seine.").await.expect("one").differs, ["ontologyVersion"]);
        assert_eq!(nearest("The Elbe.").await.expect("one").differs, ["text", "extractionParams"]);
        extract.extract(&request("The Seine."), None).await.expect("it works");
        assert!(extract.explain(&request("The Seine.")).await.expect("it works").found);
        // The first version again: it is current, and not an earlier version.
        keep(&extract).await;
        let (_, listed) = extract.ontology(IRI).await.expect("it works");
        assert_eq!(listed.metadata.matches("sha256:").count(), 2, "{}", listed.metadata);
    }

    /// Proves X-10: tables and events under the names and with the columns of the document.
    pub(super) async fn the_tables_have_what_the_document_says(ledger: Arc<Ledger>) {
        let extract = ledger.extract(&Probe::new()).await;
        keep(&extract).await;
        let identified =
            ExtractionRequest { request_id: Some("r-1".into()), ..request("The Danube.") };
        let made = extract.extract(&identified, None).await.expect("it works");
        for _ in 0..3 {
            extract.extract(&identified, None).await.expect("it works");
        }
        extract.tend().await.expect("it works");
        let components = &made.identity.components;
        let key = components.key.to_string();
        let found = ledger.sql(
            "SELECT idempotency_key, ontology_id, ontology_version, text_hash,
                 extraction_params_hash, created_at <= accessed_at, expires_at > created_at
             FROM extraction_results",
        );
        let yes = |text: &str| text.replace("|t|t", "|1|1");
        let (text, params) = (&components.text_hash, &components.params_hash);
        assert_eq!(yes(found.trim()), format!("{key}|{IRI}|{}|{text}|{params}|1|1", made.version));
        let documents = ledger.sql("SELECT entities, relations, metadata FROM extraction_results");
        assert!(documents.contains("Danube") && documents.contains("probe.1"), "{documents}");
        let handles = ledger.sql(
            "SELECT idempotency_key, status, error IS NULL, started_at <= completed_at,
                 result IS NOT NULL FROM execution_handles",
        );
        let handles = handles.trim().replace("|t", "|1");
        assert_eq!(handles, format!("{key}|completed|1|1|1"));
        let events = ledger.sql(
            "SELECT event_type, idempotency_key, ontology_id FROM extraction_audit_log
             ORDER BY event_type",
        );
        let of = |event: &str| format!("{event}|{key}|{IRI}");
        let expected =
            ["cache_hit", "cache_miss", "extraction_completed", "extraction_started"].map(of);
        assert_eq!(events.trim().lines().collect::<Vec<_>>(), expected);
        let hits = ledger.sql(
            "SELECT metadata ->> 'times' FROM extraction_audit_log WHERE event_type = 'cache_hit'",
        );
        assert_eq!(hits.trim(), "3");
        let traced = ledger.sql(
            "SELECT metadata ->> 'requestId' FROM extraction_audit_log
             WHERE event_type = 'extraction_started'",
        );
        assert_eq!(traced.trim(), "r-1");
        let ontologies =
            ledger.sql("SELECT id, version, content_hash, updated_at IS NOT NULL FROM ontologies");
        let short = &made.version["sha256:".len()..][..16];
        let ontologies = ontologies.trim().replace("|t", "|1");
        assert_eq!(ontologies, format!("{IRI}|{}|{short}|1", made.version));
    }

    /// Proves X-10: executions, failures, waiting requests and hits are logged under these names.
    pub(super) async fn the_audit_log_tells_what_became_of_each_request(ledger: Arc<Ledger>) {
        let probe = Arc::new(Probe {
            failing: AtomicUsize::new(1),
            gate: Some(Gate::default()),
            ..Probe::default()
        });
        let hapax = ledger.node().await;
        let extract = Extract::new(hapax.clone(), probe.clone(), Settings::default());
        keep(&extract).await;
        let ask = || {
            let extract = extract.clone();
            tokio::spawn(async move { extract.extract(&request("The Danube."), None).await })
        };
        let failing = ask();
        probe.arrived().await;
        probe.go();
        assert!(failing.await.expect("it works").is_err());
        let first = ask();
        probe.arrived().await;
        let waiting = [ask(), ask()];
        // The text and its chunk, twice, and the two that wait.
        let requested = async {
            while hapax.counts().cache_misses < 6 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), requested).await.expect("they ask");
        probe.go();
        let made = first.await.expect("it works").expect("it works");
        for waiting in waiting {
            let result = waiting.await.expect("it works").expect("it works");
            assert_eq!(result.how, hapax::How::Shared);
        }
        assert!(extract.extract(&request("The Danube."), None).await.expect("it works").is_hit());
        extract.tend().await.expect("it works");
        let events = ledger.sql(
            "SELECT event_type, coalesce(metadata ->> 'times', metadata ->> 'error', ''),
                 idempotency_key, ontology_id FROM extraction_audit_log ORDER BY event_type",
        );
        let key = made.key.to_string();
        let expected = [
            ("cache_hit", "1"),
            ("cache_miss", "2"),
            ("concurrent_deduplicated", "2"),
            ("extraction_completed", ""),
            ("extraction_failed", "it may work after 7s: the model is down"),
            ("extraction_started", ""),
            ("extraction_started", ""),
        ]
        .map(|(event, text)| format!("{event}|{text}|{key}|{IRI}"));
        assert_eq!(events.trim().lines().collect::<Vec<_>>(), expected);
    }

    /// Proves X-13: requests that another cache would have missed, or answered with another result,
    /// are counted.
    pub(super) async fn another_caches_keys_are_compared(ledger: Arc<Ledger>) {
        let extract = ledger.extract(&Probe::new()).await;
        keep(&extract).await;
        let shadowed = |text: &str, params: &str, key: &str| ExtractionRequest {
            shadow_key: Some(key.into()),
            ..with(text, params)
        };
        for (text, params, key) in [
            ("The Danube.", "{}", "k1"),
            ("The Danube.", "{}", "k1"),
            // A new request id in the key: the same request again, and theirs would have missed.
            ("The Danube.", "{}", "k2"),
            // No parameters in the key: theirs would have answered with another's result.
            ("The Danube.", r#"{"temperature": 1}"#, "k1"),
        ] {
            extract.extract(&shadowed(text, params, key), None).await.expect("it works");
        }
        let shadow = extract.stats().await.expect("it works").shadow;
        assert_eq!((shadow.compared, shadow.bypassed, shadow.mistaken), (4, 1, 1));
    }

    /// Proves X-7: one result, or all, are removed by hand, from the cache of every process.
    pub(super) async fn results_are_removed_by_hand(ledger: Arc<Ledger>) {
        let probe = Probe::new();
        let nodes = [ledger.extract(&probe).await, ledger.extract(&probe).await];
        keep(&nodes[0]).await;
        let one = nodes[0].extract(&request("The Danube."), None).await.expect("it works");
        nodes[0].extract(&request("The Seine."), None).await.expect("it works");
        assert!(nodes[1].extract(&request("The Danube."), None).await.expect("it works").is_hit());
        assert!(nodes[0].invalidate(one.identity.components.key).await.expect("it works"));
        assert!(!nodes[0].invalidate(one.identity.components.key).await.expect("it works"));
        assert!(!nodes[1].extract(&request("The Danube."), None).await.expect("it works").is_hit());
        assert!(nodes[1].extract(&request("The Seine."), None).await.expect("it works").is_hit());
        // Two results and two chunks.
        assert_eq!(nodes[0].clear().await.expect("it works"), 4);
        for text in ["The Danube.", "The Seine."] {
            assert!(!nodes[1].extract(&request(text), None).await.expect("it works").is_hit());
        }
    }
}
