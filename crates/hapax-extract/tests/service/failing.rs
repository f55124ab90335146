//! Tests of extractors that fail: no failure is kept, and every waiting request gets it.

use super::*;

on_both! {
    a_failure_reaches_all_waiting_requests_and_is_not_kept
    a_panic_is_a_failure_like_another
    answers_before_a_failure_are_kept
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
}
