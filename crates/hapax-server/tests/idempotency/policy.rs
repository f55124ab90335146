//! Settings: presets, methods, waiting, and which answers are kept.

use super::*;

/// Proves S-3: each preset has its own header, its own need of a key, and its own answer to another body.
#[tokio::test(flavor = "multi_thread")]
async fn presets_set_header_and_format() {
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
    // A request waits while the same one is in flight.
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

/// Proves S-3: the settings decide the fate of a status, the kept headers, and the redacted fields.
#[tokio::test(flavor = "multi_thread")]
async fn the_policy_decides_which_answers_are_kept() {
    let settings = Settings::default()
        .meaning(StatusCode::NOT_FOUND, Settlement::NotDone)
        .meaning(StatusCode::SERVICE_UNAVAILABLE, Settlement::Unknown)
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
        assert_eq!(ask("503").await.problem(), "HX0203", "the outcome is unknown: {}", world.name);
        assert_eq!(world.calls(), 3);
        assert!(ask("card").await.body.contains("4111"), "the first caller gets the whole answer");
        let again = ask("card").await;
        assert_eq!(again.body, r#"{"id":7,"card":{"number":"[redacted]"}}"#);
        assert_eq!(again.header("set-cookie"), Some("session=1"), "{}", world.name);
        ask("200").await;
        assert_eq!(ask("200").await.problem(), "HX0307", "not JSON, so its body is not kept");
    }
}

/// Proves S-2: a key counts for its method, and methods that the settings do not name need no key.
#[tokio::test(flavor = "multi_thread")]
async fn methods_have_keys_of_their_own() {
    let all = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    for world in World::both(&Settings::default().methods(all.clone())).await {
        for (nth, method) in all.iter().enumerate() {
            let ask = async || {
                world.send(method.clone(), "/charges", &[("idempotency-key", "k")], "a").await
            };
            let first = ask().await;
            assert_eq!((first.status(), first.replayed()), (200, false), "{method}");
            assert_eq!((ask().await.replayed(), world.calls()), (true, nth + 1), "{method}");
            let bare = world.send(method.clone(), "/charges", &[], "a").await;
            assert_eq!(bare.problem(), "HX0301", "{} {method}", world.name);
        }
    }
    // Methods that the settings do not name are passed on, with a key or without.
    for world in World::both(&Settings::default()).await {
        for (method, judged) in [("PATCH", true), ("DELETE", false), ("PUT", false), ("GET", false)]
        {
            let (before, method) = (world.calls(), method.parse::<Method>().expect("a method"));
            for _ in 0..2 {
                world.send(method.clone(), "/charges", &[("idempotency-key", "k")], "").await;
            }
            let calls = if judged { 1 } else { 2 };
            assert_eq!(world.calls() - before, calls, "{} {method}", world.name);
        }
    }
}

/// Proves S-2: a client that asks to wait gets the answer, and any other client gets 409. No client
/// waits longer than the server allows.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_may_ask_to_wait() {
    let ask = |world: &Arc<World>, prefer: Option<&'static str>| {
        let world = world.clone();
        tokio::spawn(async move {
            let mut headers = vec![("idempotency-key", "k")];
            headers.extend(prefer.map(|prefer| ("prefer", prefer)));
            world.post("/charges?wait", &headers, "a").await
        })
    };
    for world in World::both(&Settings::default()).await {
        let world = Arc::new(world);
        let first = ask(&world, None);
        called(&world, 1).await;
        let patient = ask(&world, Some("respond-async, wait=30"));
        for hurried in [None, Some("wait=0"), Some("wait=soon")] {
            let response = ask(&world, hurried).await.expect("no panic");
            assert_eq!(
                (response.status(), response.problem()),
                (409, "HX0201".into()),
                "{hurried:?}"
            );
        }
        world.service.gate.add_permits(1);
        let response = patient.await.expect("no panic");
        assert_eq!(
            (response.status(), response.body.as_str()),
            (200, "1: 1 bytes"),
            "{}",
            world.name
        );
        assert!(response.replayed() && !first.await.expect("no panic").replayed());
        assert_eq!(world.calls(), 1);
    }
    for world in World::both(&Settings::default().longest_wait(Duration::from_millis(100))).await {
        let world = Arc::new(world);
        let first = ask(&world, None);
        called(&world, 1).await;
        let response = ask(&world, Some("wait=3600")).await.expect("no panic");
        assert_eq!(
            response.problem(),
            "HX0201",
            "an hour is more than anybody gets: {}",
            world.name
        );
        world.service.gate.add_permits(1);
        assert_eq!(first.await.expect("no panic").status(), 200);
    }
}

/// Proves S-6: a head has a limit of bytes and of lines; a larger head is refused without being
/// read whole.
#[tokio::test(flavor = "multi_thread")]
async fn heads_have_limits() {
    let world = World::layer(Settings::default()).await;
    // The server may answer the last one before it was read whole; the others are read whole, or may be.
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
