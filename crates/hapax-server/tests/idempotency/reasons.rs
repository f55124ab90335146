//! The reasons that the ledger keeps for requests without a final answer.

use super::*;

/// The recorded reason of the request with this key.
async fn reason(world: &World, key: &str) -> String {
    let label = format!("POST /charges {key}");
    let effects = world.hapax.effects().list(&[], 10).await.expect("a list");
    let found = effects.iter().find(|found| found.effect.label.as_deref() == Some(&label[..]));
    found.expect("a record").effect.state.reason().expect("a reason").to_owned()
}

/// Proves S-3: the record says whether the service was not reached, died or was too slow, in the
/// words of an operator and not as a status that it never sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_says_what_became_of_its_request() {
    let proxy = World::proxy(Settings::default()).await;
    let layer = World::layer(Settings::default()).await;
    for (world, ending, start) in [
        (&proxy, "never", "the upstream did not answer within 2 s"),
        (&proxy, "panic", "the connection to the upstream broke off before its answer: "),
        (&proxy, "break", "broke off"),
        (&proxy, "504", "answered 504 Gateway Timeout"),
        (&proxy, "401", "refused: answered 401 Unauthorized"),
        (&layer, "panic", "the handler panicked: "),
        (&layer, "503", "answered 503 Service Unavailable"),
    ] {
        let path = format!("/charges?{ending}");
        world.post(&path, &[("idempotency-key", ending)], "a").await;
        let reason = reason(world, ending).await;
        assert!(reason.contains(start), "{} {ending}: {reason}", world.name);
    }

    let (service, _) = app();
    let hapax = Hapax::builder().in_memory();
    let port = hapax_testkit::free_port();
    let upstream = Upstream::new(&format!("http://127.0.0.1:{port}"), LONG).expect("a URL");
    let layer = IdempotencyLayer::new(hapax.clone(), Settings::default());
    let url = listen(ConnectionLimits::default(), layer.layer(upstream)).await;
    let down = World { name: "proxy", url, service, hapax };
    assert_eq!(down.charge("k", "a").await.problem(), "HX0305");
    assert_eq!(reason(&down, "k").await, "the upstream refused the connection; nothing was sent");
}
