//! What is a matter of taste: presets, and which answers are kept.

use super::*;

/// Proves S-3: each preset has its own header, need of a key and answer to another body.
#[tokio::test(flavor = "multi_thread")]
async fn presets_have_their_manners() {
    const UUID: &str = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f";
    for (preset, header, mismatch) in [
        (Preset::Stripe, "idempotency-key", 400),
        (Preset::Aws, "x-amz-client-token", 400),
        (Preset::Iceberg, "idempotency-key", 422),
    ] {
        for world in World::both(&Settings::new(preset)).await {
            let ask = async |body| world.post("/charges", &[(header, UUID)], body).await;
            assert_eq!(ask("a").await.status(), 200, "{preset:?} {}", world.name);
            assert!(ask("a").await.replayed(), "{preset:?} {}", world.name);
            assert_eq!(ask("b").await.status(), mismatch, "{preset:?} {}", world.name);
            let (before, bare) = (world.calls(), async || world.post("/charges", &[], "a").await);
            assert_eq!((bare().await.status(), bare().await.replayed()), (200, false));
            assert_eq!(world.calls(), before + 2, "without a key it is passed on each time");
        }
    }
    // Who asks while the same is in flight waits for it.
    for world in World::both(&Settings::new(Preset::Iceberg)).await {
        let ask = async || world.post("/charges?wait", &[("idempotency-key", UUID)], "a").await;
        let open = async {
            called(&world, 1).await;
            world.service.gate.add_permits(1);
        };
        let (one, other, ()) = tokio::join!(ask(), ask(), open);
        assert_eq!((one.status(), other.status(), world.calls()), (200, 200, 1), "{}", world.name);
        assert!(one.replayed() != other.replayed());
    }
}

/// Proves S-3: what a status means, which headers are kept and what is not written down is policy.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_is_policy() {
    let settings = Settings::default()
        .meaning(StatusCode::NOT_FOUND, Fate::NotDone)
        .meaning(StatusCode::SERVICE_UNAVAILABLE, Fate::Unknown)
        .and_kept_headers([http::header::SET_COOKIE])
        .redacted(["/card/number".to_owned()]);
    for world in World::both(&settings).await {
        let ask = async |status: &str| {
            let path = format!("/charges?{status}");
            world.post(&path, &[("idempotency-key", status)], "a").await
        };
        assert_eq!((ask("404").await.status(), ask("404").await.replayed()), (404, false));
        assert_eq!(world.calls(), 2, "{}", world.name);
        ask("503").await;
        assert_eq!(ask("503").await.problem(), "HX0203", "nobody knows: {}", world.name);
        assert_eq!(world.calls(), 3);
        assert!(ask("card").await.body.contains("4111"), "the first caller is told all of it");
        let again = ask("card").await;
        assert_eq!(again.body, r#"{"id":7,"card":{"number":"[redacted]"}}"#);
        assert_eq!(again.header("set-cookie"), Some("session=1"), "{}", world.name);
        ask("200").await;
        assert_eq!(ask("200").await.problem(), "HX0307", "not JSON, so its body is not kept");
    }
}

/// Proves S-6: a head has a size and so many lines, and what is more is refused without being read.
#[tokio::test(flavor = "multi_thread")]
async fn heads_have_limits() {
    let world = World::layer(Settings::default()).await;
    // The last is refused before it is read to its end; the others arrive whole, or may.
    for (size, status) in [(60_000, 200), (66_000, 431), (100_000, 431), (300_000, 431)] {
        let long = "x".repeat(size);
        let headers = [("idempotency-key", "long"), ("x-long", long.as_str())];
        assert_eq!(world.post("/charges", &headers, "a").await.status(), status, "{size}");
    }
    let many: Vec<String> = (0..200).map(|nth| format!("x-{nth}")).collect();
    let mut headers: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "1")).collect();
    headers.push(("idempotency-key", "k"));
    assert_eq!(world.post("/charges", &headers, "a").await.status(), 431);
    assert_eq!(world.charge("k", "a").await.status(), 200, "others are served");
    assert_eq!(world.calls(), 2);
}
