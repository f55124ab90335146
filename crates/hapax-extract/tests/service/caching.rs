//! Tests of the result cache: which results are found again, and which are not.

use super::*;

on_both! {
    a_request_id_bypasses_nothing
    a_parameter_makes_a_key_beside_the_old
    a_thousand_equal_requests_run_once
    a_collision_of_the_formula_finds_nothing
    the_least_recently_used_results_are_evicted_first
    an_expired_result_is_extracted_again
}

mod cases {
    use super::*;
    use hapax::How;
    use std::time::Instant;

    /// Proves X-3 and X-4: the same text is read once, whatever its spacing and its request id.
    pub(super) async fn a_request_id_bypasses_nothing(ledger: Arc<Ledger>) {
        let probe = Probe::new();
        let extract = ledger.extract(&probe).await;
        keep(&extract).await;
        let first = extract
            .extract(&request("The Danube flows through Vienna."), None)
            .await
            .expect("it works");
        assert_eq!((first.how, first.is_hit()), (How::Executed, false));
        let graph = first.graph().expect("it works");
        assert_eq!((graph.entities.len(), graph.relations.len()), (2, 1));
        for (nth, text) in
            ["The Danube flows through Vienna.", "  The Danube flows through Vienna.\r\n"]
                .into_iter()
                .enumerate()
        {
            let again = ExtractionRequest { request_id: Some(format!("r-{nth}")), ..request(text) };
            let again = extract.extract(&again, None).await.expect("it works");
            assert!(again.is_hit());
            assert_eq!(again.json(), first.json());
            assert_eq!(again.identity.components.key, first.identity.components.key);
        }
        // A new process finds it in the store.
        let elsewhere = ledger.extract(&probe).await;
        let text = request("The Danube flows through Vienna.");
        assert!(elsewhere.extract(&text, None).await.expect("it works").is_hit());
        assert_eq!(probe.calls(), 1);
    }

    /// Proves X-7: another parameter makes a result beside the old one.
    pub(super) async fn a_parameter_makes_a_key_beside_the_old(ledger: Arc<Ledger>) {
        let probe = Probe::new();
        let extract = ledger.extract(&probe).await;
        keep(&extract).await;
        let warm = with("The Seine.", r#"{"temperature": 0.5}"#);
        let cold = with("The Seine.", r#"{"temperature": 0}"#);
        for request in [&warm, &cold] {
            assert!(!extract.extract(request, None).await.expect("it works").is_hit());
        }
        for request in [&warm, &cold] {
            assert!(extract.extract(request, None).await.expect("it works").is_hit());
        }
        assert_eq!(probe.calls(), 2);
    }

    /// Proves X-4: a thousand equal requests on two nodes at once are one execution.
    pub(super) async fn a_thousand_equal_requests_run_once(ledger: Arc<Ledger>) {
        let probe = Probe::gated();
        let nodes = [ledger.extract(&probe).await, ledger.extract(&probe).await];
        keep(&nodes[0]).await;
        let requests: Vec<_> = (0..1_000)
            .map(|n| {
                let extract = nodes[n % 2].clone();
                tokio::spawn(async move {
                    let text = "The Danube flows through Vienna.";
                    let request =
                        ExtractionRequest { request_id: Some(n.to_string()), ..request(text) };
                    extract.extract(&request, None).await
                })
            })
            .collect();
        probe.arrived().await;
        probe.go();
        let mut bodies = std::collections::BTreeSet::new();
        for request in requests {
            bodies.insert(request.await.expect("it works").expect("it works").json().to_vec());
        }
        assert_eq!((bodies.len(), probe.calls()), (1, 1));
    }

    /// Proves X-1: two requests whose parameters have the same hash of 64 bits, found by search, so
    /// that the formula gives them the same key, have results of their own.
    pub(super) async fn a_collision_of_the_formula_finds_nothing(ledger: Arc<Ledger>) {
        let probe = Probe::new();
        let extract = ledger.extract(&probe).await;
        keep(&extract).await;
        let one = with("The Seine.", r#"{"llmModel":"m-4f5644535ddaa37d"}"#);
        let two = with("The Seine.", r#"{"llmModel":"m-72e302aa6115329c"}"#);
        let (first, _) = extract.identify(&one).await.expect("it works");
        let (second, _) = extract.identify(&two).await.expect("it works");
        assert_eq!(first.components.params_hash, "13b6da346e036886");
        assert_eq!(first.components.key, second.components.key, "they collide");
        assert_ne!(first.fingerprint, second.fingerprint);
        let model = |extracted: &hapax_extract::Extracted| {
            let json: serde_json::Value =
                serde_json::from_slice(extracted.json()).expect("it works");
            json["metadata"]["model"].as_str().unwrap_or_default().to_owned()
        };
        let mut keys = Vec::new();
        for hit in [false, true] {
            for (request, name) in [(&one, "m-4f5644535ddaa37d"), (&two, "m-72e302aa6115329c")] {
                let extracted = extract.extract(request, None).await.expect("it works");
                assert_eq!((extracted.is_hit(), model(&extracted).as_str()), (hit, name));
                keys.push(extracted.key.to_string());
            }
        }
        assert_eq!(probe.calls(), 2);
        assert_eq!(ledger.first_requested_by().await, keys[..2], "each chunk names its own");
    }

    /// Proves X-6: above the size limit, the least recently used results are evicted.
    pub(super) async fn the_least_recently_used_results_are_evicted_first(ledger: Arc<Ledger>) {
        let probe = Probe::new();
        let settings = Settings { max_cache_bytes: 4_000, ..Settings::default() };
        let extract = Extract::new(ledger.node().await, probe.clone(), settings);
        keep(&extract).await;
        let text = |n: usize| request(&format!("Note {n}: the Danube flows through Vienna."));
        let mut evicted = 0;
        for n in 0..8 {
            extract.extract(&text(n), None).await.expect("it works");
            // The first text is requested again in every round.
            assert!(n == 0 || extract.extract(&text(0), None).await.expect("it works").is_hit());
            evicted += extract.tend().await.expect("it works").evicted;
        }
        let stats = extract.stats().await.expect("it works");
        assert!(stats.results.bytes <= 4_000, "{stats:?}");
        // The cache of this process may still have a result that the store has evicted, so another
        // process looks it up.
        let elsewhere = ledger.extract(&probe).await;
        let found = elsewhere.explain(&text(0)).await.expect("it works").found;
        let gone = !elsewhere.explain(&text(1)).await.expect("it works").found;
        assert_eq!((found, gone), (true, true));
        let registry = prometheus::Registry::new();
        extract.meters().register(&registry).expect("it works");
        let metrics = prometheus::TextEncoder::new().encode_to_string(&registry.gather());
        let counted = format!("hapax_extraction_evictions_total {evicted}\n");
        assert!(evicted > 0 && metrics.expect("a text").contains(&counted), "{evicted} went");
    }

    /// Proves X-6: an expired result is extracted again, its chunks too.
    pub(super) async fn an_expired_result_is_extracted_again(ledger: Arc<Ledger>) {
        let probe = Probe::new();
        let ttl = Duration::from_secs(2);
        let settings = Settings { ttl: Some(ttl), ..Settings::default() };
        let extract = Extract::new(ledger.node().await, probe.clone(), settings);
        keep(&extract).await;
        let (text, began) = (request("The Danube."), Instant::now());
        let first = extract.extract(&text, None).await.expect("it works");
        let mut hits = 0;
        let anew = loop {
            let again = extract.extract(&text, None).await.expect("it works");
            if !again.is_hit() {
                break again;
            }
            assert_eq!(again.json(), first.json());
            assert!(began.elapsed() < Duration::from_secs(60), "it never goes");
            hits += 1;
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        assert!(began.elapsed() > ttl / 2, "it went after {:?}", began.elapsed());
        assert!(hits > 0, "no hit while it was valid");
        assert_ne!(anew.json(), first.json(), "it was made at another time");
        assert_eq!(probe.calls(), 2);
    }
}
