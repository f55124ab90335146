//! Callers: a stored answer is given only to the caller it was made for.

use data_encoding::BASE64URL_NOPAD;
use hapax_server::idempotency::Identity;

use super::*;

const ADA: (&str, &str) = ("authorization", "Bearer ada");
const BOB: (&str, &str) = ("authorization", "Bearer bob");

/// Proves N-5: the same key with other credentials is neither replayed nor passed on, whatever its
/// body.
#[tokio::test(flavor = "multi_thread")]
async fn other_credentials_get_no_stored_answer() {
    for world in World::both(&Settings::default()).await {
        let ask = async |credentials: &[(&str, &str)], body: &str| {
            let headers = [&[("idempotency-key", "k")][..], credentials].concat();
            world.post("/charges", &headers, body).await
        };
        let first = ask(&[ADA], "a").await;
        assert_eq!((first.status(), first.replayed()), (200, false), "{}", world.name);
        assert!(ask(&[ADA], "a").await.replayed());
        let others: [&[(&str, &str)]; 4] =
            [&[], &[BOB], &[ADA, ("cookie", "session=1")], &[ADA, ("x-api-key", "7")]];
        for other in others {
            for body in ["a", "b"] {
                let refused = ask(other, body).await;
                assert_eq!((refused.status(), refused.problem()), (409, "HX0319".into()));
                assert!(!refused.replayed(), "{} {other:?}", world.name);
            }
        }
        let other_body = ask(&[ADA], "b").await;
        assert_eq!((other_body.status(), other_body.problem()), (422, "HX0202".into()));
        assert_eq!(world.calls(), 1, "{}", world.name);
    }
}

/// Proves N-5: while another caller's request is in flight, a request with its key is neither
/// passed on nor answered like it.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_flight_is_its_callers() {
    for world in World::both(&Settings::default().in_flight(OnInFlight::Wait(LONG))).await {
        let world = Arc::new(world);
        let first = tokio::spawn({
            let world = world.clone();
            let headers = [("idempotency-key", "k"), ADA];
            async move { world.post("/charges?wait", &headers, "a").await }
        });
        called(&world, 1).await;
        let ask = || world.post("/charges?wait", &[("idempotency-key", "k"), BOB], "a");
        let early = ask().await;
        assert_eq!((early.status(), early.problem()), (409, "HX0201".into()), "{}", world.name);
        world.service.gate.add_permits(1);
        assert_eq!(first.await.expect("no panic").status(), 200);
        let late = ask().await;
        assert_eq!((late.status(), late.problem()), (409, "HX0319".into()), "{}", world.name);
        assert_eq!(world.calls(), 1);
    }
}

/// Proves N-5: where a rule says what a caller is, keys are scoped by callers, and a renewed token
/// is the same caller.
#[tokio::test(flavor = "multi_thread")]
async fn keys_are_scoped_by_callers() {
    let tokens = [r#"{"sub":"ada","exp":1}"#, r#"{"sub":"ada","exp":2}"#, r#"{"sub":"bob"}"#]
        .map(|claims| format!("Bearer e30.{}.c2ln", BASE64URL_NOPAD.encode(claims.as_bytes())));
    let cookies = ["session=ada", "seen=7; session=ada", "session=bob"];
    let users = ["ada", "ada", "bob"];
    let basic = ["Basic YWRh", "Basic YWRh", "Basic Ym9i"];
    let rules = [
        (Identity::Jwt("sub".into()), "authorization", tokens.each_ref().map(String::as_str)),
        (Identity::Header("x-user".parse().expect("a name")), "x-user", users),
        (Identity::Cookie("session".into()), "cookie", cookies),
        (Identity::Authorization, "authorization", basic),
    ];
    for (identity, header, [ada, renewed, bob]) in rules {
        for world in World::both(&Settings::default().identity(identity.clone())).await {
            let ask = async |value: &str| {
                world.post("/charges", &[("idempotency-key", "k"), (header, value)], "a").await
            };
            assert!(!ask(ada).await.replayed(), "{} {identity}", world.name);
            assert!(ask(renewed).await.replayed(), "{} {identity}", world.name);
            let other = ask(bob).await;
            assert_eq!((other.status(), other.replayed()), (200, false), "{identity}");
            assert!(ask(bob).await.replayed(), "{} {identity}", world.name);
            assert_eq!(world.calls(), 2);
            let nameless = world.charge("k", "a").await;
            assert_eq!((nameless.status(), nameless.problem()), (400, "HX0308".into()));
            assert_eq!(world.calls(), 2, "{} {identity}", world.name);
        }
    }
    for world in World::both(&Settings::default().identity(Identity::None)).await {
        let ask =
            async |caller| world.post("/charges", &[("idempotency-key", "k"), caller], "a").await;
        assert!(!ask(ADA).await.replayed());
        assert!(ask(BOB).await.replayed(), "{}: callers are not told apart", world.name);
    }
}

/// Proves N-5: a request that the service refused binds nothing. Its key is free for another caller
/// and another body.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_leaves_its_key_free() {
    for settings in [Settings::default(), Settings::new(Preset::Stripe)] {
        for world in World::both(&settings).await {
            for status in ["401", "403", "407", "429"] {
                let path = format!("/charges?{status}");
                let refused = async |caller, body: &str| {
                    let answer =
                        world.post(&path, &[("idempotency-key", status), caller], body).await;
                    assert_eq!(answer.status().to_string(), status, "{}", world.name);
                    assert!(!answer.replayed(), "{} {status}", world.name);
                };
                let before = world.calls();
                refused(BOB, "a").await;
                refused(BOB, "b").await;
                refused(ADA, "b").await;
                assert_eq!(world.calls() - before, 3, "each was passed on: {status}");
                let ask = async |caller| {
                    world.post("/charges", &[("idempotency-key", status), caller], "a").await
                };
                let done = ask(ADA).await;
                assert_eq!((done.status(), done.replayed()), (200, false), "{status}");
                assert!(ask(ADA).await.replayed(), "{} {status}", world.name);
                assert_eq!(ask(BOB).await.problem(), "HX0319", "{} {status}", world.name);
                assert_eq!(world.calls() - before, 4, "{} {status}", world.name);
            }
        }
    }
}

/// Proves N-5: a request that failed for another reason binds its body, but not its caller: with a
/// renewed token it is passed on again.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_did_not_happen_may_be_another_callers() {
    for world in World::both(&Settings::default()).await {
        let ask = async |caller, body: &str| {
            world.post("/charges?503", &[("idempotency-key", "k"), caller], body).await
        };
        assert_eq!(ask(ADA, "a").await.status(), 503);
        assert_eq!(ask(ADA, "b").await.problem(), "HX0202", "{}", world.name);
        assert_eq!(ask(BOB, "a").await.status(), 503);
        assert_eq!(world.calls(), 2, "{}", world.name);
    }
    // An unknown outcome stays its caller's.
    for world in World::both(&Settings::default()).await {
        let ask = async |caller| {
            world.post("/charges?504", &[("idempotency-key", "k"), caller], "a").await
        };
        assert_eq!(ask(ADA).await.status(), 504);
        assert_eq!(ask(BOB).await.problem(), "HX0319", "{}", world.name);
        assert_eq!(ask(ADA).await.problem(), "HX0203", "{}", world.name);
        assert_eq!(world.calls(), 1, "{}", world.name);
    }
}

/// Proves N-5: no part of a credential is in the ledger.
#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_not_recorded() {
    for identity in [Identity::Credentials, Identity::Authorization] {
        for world in World::both(&Settings::default().identity(identity)).await {
            let secret = ("authorization", "Bearer s3cr3t");
            world.post("/charges", &[("idempotency-key", "k"), secret], "a").await;
            let effects = world.hapax.effects().list(&[], 10).await.expect("a list");
            assert_eq!(effects.len(), 1);
            assert!(!format!("{effects:?}").contains("s3cr3t"), "{}", world.name);
            let body = match &effects[0].effect.state {
                hapax::State::Succeeded(outcome) => outcome.body().expect("kept").to_vec(),
                other => panic!("{other:?}"),
            };
            assert!(!String::from_utf8_lossy(&body).contains("s3cr3t"), "{}", world.name);
        }
    }
}
