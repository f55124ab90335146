//! Tests of extractors that fail, or of whose answers nothing can be used: neither is kept, and
//! every waiting request gets it.

use super::*;

on_both! {
    a_failure_reaches_all_waiting_requests_and_is_not_kept
    a_panic_is_a_failure_like_another
    answers_before_a_failure_are_kept
    an_answer_whose_entities_were_all_discarded_is_not_kept
    waiting_requests_get_the_answer_that_is_not_kept
    a_result_that_has_entities_is_kept_with_the_number_of_the_discarded
}

mod cases {
    use super::*;
    use hapax_extract::Error;

    async fn all_fail(ledger: &Ledger, probe: &Arc<Probe>, reason: &str, after: Option<Duration>) {
        let ledgers = [ledger.node().await, ledger.node().await];
        let on = |hapax: &Hapax| Extract::new(hapax.clone(), probe.clone(), Settings::default());
        let nodes = ledgers.each_ref().map(on);
        keep(&nodes[0]).await;
        let ask = |n: usize| {
            let extract = nodes[n % 2].clone();
            tokio::spawn(async move { extract.extract(&request("The Danube."), None).await })
        };
        let first = ask(0);
        probe.arrived().await;
        let waiting: Vec<_> = (1..20).map(ask).collect();
        // Ten requests on each node, and the one chunk; on the second node one request asks for all
        // of them.
        let requested = async {
            while ledgers[0].counts().cache_misses < 11
                || ledgers[1].counts().cache_misses < 10
                || ledgers[1].counts().in_flight == 0
            {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), requested).await.expect("they ask");
        probe.go();
        let mut results = vec![first.await.expect("it works")];
        for waiting in waiting {
            results.push(waiting.await.expect("it works"));
        }
        for result in results {
            let Err(Error::Extractor { reason: message, after: when }) = result else {
                panic!("{result:?}")
            };
            assert!(message.contains(reason), "{message}");
            assert_eq!(when, after, "every caller learns when to retry");
        }
        assert_eq!(probe.calls(), 1);
        probe.go();
        let again = nodes[1].extract(&request("The Danube."), None).await.expect("it works");
        assert!(!again.is_hit());
        assert_eq!(probe.calls(), 2);
    }

    /// Proves X-5: every waiting request on both nodes gets the same error with the same time to
    /// retry, and a retry at once is possible.
    pub(super) async fn a_failure_reaches_all_waiting_requests_and_is_not_kept(
        ledger: Arc<Ledger>,
    ) {
        let probe = Arc::new(Probe {
            failing: AtomicUsize::new(1),
            gate: Some(Gate::default()),
            ..Probe::default()
        });
        all_fail(&ledger, &probe, "the model is down", Some(Duration::from_secs(7))).await;
        let failed = ledger.sql(
            "SELECT count(*) FROM extraction_audit_log WHERE event_type = 'extraction_failed'",
        );
        assert_eq!(failed.trim(), "1");
    }

    /// Proves X-5, panics included.
    pub(super) async fn a_panic_is_a_failure_like_another(ledger: Arc<Ledger>) {
        let probe = Arc::new(Probe {
            failing: AtomicUsize::new(1),
            panics: true,
            gate: Some(Gate::default()),
            ..Probe::default()
        });
        all_fail(&ledger, &probe, "panicked: out of ink", None).await;
    }

    /// Proves X-8: an extractor's answers about other chunks are not requested again.
    pub(super) async fn answers_before_a_failure_are_kept(ledger: Arc<Ledger>) {
        let probe = Probe::new();
        let extract = ledger.extract(&probe).await;
        keep(&extract).await;
        let text = large()[..40].join("\n");
        let chunks = hapax_extract::chunks(&text, 2_000).len();
        assert!(chunks > 3);
        probe.failing.store(1, Ordering::SeqCst);
        let one = with(&text, r#"{"concurrency": 1}"#);
        let failed = extract.extract(&one, None).await;
        let Err(Error::Extractor { after, .. }) = failed else { panic!("{failed:?}") };
        assert_eq!(after, Some(Duration::from_secs(7)));
        extract.extract(&one, None).await.expect("it works");
        assert_eq!(probe.calls(), chunks + 1, "only the one that failed is read twice");
    }

    fn metadata(extracted: &hapax_extract::Extracted) -> serde_json::Value {
        let json: serde_json::Value = serde_json::from_slice(extracted.json()).expect("JSON");
        json["metadata"].clone()
    }

    /// Proves X-5: a result that is empty because all was discarded says so, and the next request
    /// asks the extractor again.
    pub(super) async fn an_answer_whose_entities_were_all_discarded_is_not_kept(
        ledger: Arc<Ledger>,
    ) {
        let probe = Arc::new(Probe { discarding: AtomicUsize::new(1), ..Probe::default() });
        let extract = ledger.extract(&probe).await;
        keep(&extract).await;
        let empty = extract.extract(&request("The Danube."), None).await.expect("an answer");
        assert!(!empty.is_hit() && empty.graph().expect("a graph").entities.is_empty());
        assert_eq!(empty.warnings.len(), 1);
        let says = |text: &str| empty.warnings[0].contains(text);
        assert!(says("2 entities") && says("not cached"), "{:?}", empty.warnings);
        assert_eq!(metadata(&empty)["discarded"], 2);
        assert!(metadata(&empty)["computedAt"].is_string());
        assert!(!extract.explain(&request("The Danube.")).await.expect("it works").found);
        let kept = extract.stats().await.expect("it works").results;
        assert_eq!((kept.whole, kept.parts), (0, 0));
        let full = extract.extract(&request("The Danube."), None).await.expect("an answer");
        assert!(!full.is_hit() && full.warnings.is_empty());
        assert_eq!(full.graph().expect("a graph").entities.len(), 1);
        assert_eq!(metadata(&full).get("discarded"), None);
        assert!(extract.extract(&request("The Danube."), None).await.expect("it works").is_hit());
        assert_eq!(probe.calls(), 2);
    }

    /// Proves X-4 and X-5.
    pub(super) async fn waiting_requests_get_the_answer_that_is_not_kept(ledger: Arc<Ledger>) {
        let probe = Arc::new(Probe {
            discarding: AtomicUsize::new(1),
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
        let first = ask();
        probe.arrived().await;
        let waiting = [ask(), ask()];
        // The text and its chunk, and the two that wait.
        while hapax.counts().cache_misses < 4 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        probe.go();
        let [one, two] = waiting;
        for asked in [first, one, two] {
            let empty = asked.await.expect("it works").expect("an answer");
            assert_eq!((empty.is_hit(), empty.warnings.len()), (false, 1));
            assert_eq!(metadata(&empty)["discarded"], 2);
        }
        assert_eq!(probe.calls(), 1);
    }

    /// Proves X-5 and X-8.
    pub(super) async fn a_result_that_has_entities_is_kept_with_the_number_of_the_discarded(
        ledger: Arc<Ledger>,
    ) {
        let probe = Arc::new(Probe { discarding: AtomicUsize::new(1), ..Probe::default() });
        let extract = ledger.extract(&probe).await;
        keep(&extract).await;
        let text = large()[..40].join("\n");
        let partial = extract.extract(&request(&text), None).await.expect("an answer");
        assert!(!partial.graph().expect("a graph").entities.is_empty());
        assert_eq!((&metadata(&partial)["discarded"], partial.warnings.len()), (&2.into(), 0));
        let again = extract.extract(&request(&text), None).await.expect("an answer");
        assert!(again.is_hit());
        assert_eq!(metadata(&again), metadata(&partial), "a hit says what its making said");
    }
}
