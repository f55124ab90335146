//! The key-value store.

use hapax_items::{Class, ItemState, MutationState};

use crate::fixture::{Fixture, failed};

/// Proves K-8, I-5: a value that a script keeps is there for later runs, and is set once.
#[tokio::test]
async fn a_value_is_there_for_other_items_and_runs() {
    for fixture in Fixture::all().await {
        let set = r#"await kv.set({ key: "a", value: { n: 1, list: ["x", null, 0.5] } });"#;
        fixture.item("first", set).await.unwrap();
        fixture
            .item("second", r#"console.log(JSON.stringify(await kv.get({ key: "a" })));"#)
            .await
            .unwrap();
        assert_eq!(fixture.log().await, r#"{"list":["x",null,0.5],"n":1}"#);
        let body = r#"
            const before = await kv.get({ key: "a" });
            await kv.set({ key: "a", value: "other" });
            const removed = [await kv.remove({ key: "a" }), await kv.remove({ key: "b" })];
            console.log(JSON.stringify([before.n, removed, await kv.get({ key: "a" })]));"#;
        fixture.item("third", body).await.unwrap();
        assert_eq!(fixture.log().await, r#"[1,[{"removed":true},{"removed":false}],null]"#);
    }
}

/// Proves I-5: a run that stops later on does not set it again.
#[tokio::test]
async fn a_value_that_was_set_is_not_set_again() {
    for fixture in Fixture::all().await {
        let stops = r#"await kv.set({ key: "a", value: 1 }); throw new Error("stop");"#;
        assert_eq!(failed(fixture.item("x", stops).await).0, Class::Logic);
        fixture.item("y", r#"await kv.set({ key: "a", value: 2 });"#).await.unwrap();
        let goes_on = r#"await kv.set({ key: "a", value: 1 });"#;
        fixture.try_again().await;
        fixture.item("x", goes_on).await.unwrap();
        fixture.item("z", r#"console.log(await kv.get({ key: "a" }));"#).await.unwrap();
        assert_eq!(fixture.log().await, "2", "it was set before, and since then by another item");
    }
}

/// Proves K-14: each store is its own.
#[tokio::test]
async fn stores_do_not_see_each_other() {
    for fixture in Fixture::all().await {
        let body = r#"
            await kv.set({ key: "a", value: 1 });
            await other.set({ key: "a", value: 2 });
            console.log(await kv.get({ key: "a" }), await other.get({ key: "a" }));"#;
        fixture.item("x", body).await.unwrap();
        assert_eq!(fixture.log().await, "1 2");
    }
}

/// Proves I-6 for values: another notation of the same value is accepted, and so is a member that
/// is null instead of absent; another value goes to a person.
#[tokio::test]
async fn another_value_for_the_same_key_is_judged() {
    for fixture in Fixture::all().await {
        let body = |value: &str, end: &str| {
            format!(r#"await kv.set({{ key: "a", value: {value} }}); {end}"#)
        };
        let stop = r#"throw new Error("stop");"#;
        for value in ["{ a: 1, b: 2 }", "{ b: 2, a: 1 }", "{ a: 1, b: 2, c: null }"] {
            let (class, message) = failed(fixture.item("x", &body(value, stop)).await);
            assert!(class == Class::Logic && message.contains("stop"), "{value}: {message}");
            fixture.try_again().await;
        }
        let (class, message) = failed(fixture.item("x", &body("{ a: 1, b: 3 }", "")).await);
        assert_eq!(class, Class::Precondition);
        assert!(message.contains("another payload"), "{message}");
        let item = fixture.items.show("books", "x").await.unwrap();
        assert_eq!(item.state, ItemState::NeedsAttention);
        let mutations = fixture.items.mutations(item.key, 1).await.unwrap();
        assert_eq!(mutations[0].state, MutationState::Applied);
        fixture.item("y", r#"console.log((await kv.get({ key: "a" })).b);"#).await.unwrap();
        assert_eq!(fixture.log().await, "2");
    }
}

#[tokio::test]
async fn keys_and_values_have_limits() {
    for fixture in Fixture::all().await {
        for (id, call) in [
            ("1", r#"kv.set({ key: "", value: 1 })"#),
            ("2", r#"kv.set({ key: "k".repeat(513), value: 1 })"#),
            ("3", r#"kv.set({ key: "a" })"#),
            ("4", r#"kv.set({ key: "a", value: "v".repeat(65535) })"#),
            ("5", r#"kv.get({ key: 1 })"#),
            ("6", r#"kv.set({ key: "a\u0000", value: 1 })"#),
        ] {
            let (class, message) = failed(fixture.item(id, &format!("await {call};")).await);
            assert_eq!(class, Class::Logic, "{call}: {message}");
        }
        let fits = r#"
            const value = "v".repeat(65534);
            await kv.set({ key: "k".repeat(512), value });
            console.log(await kv.get({ key: "k".repeat(512) }) === value);"#;
        fixture.item("fits", fits).await.unwrap();
        assert_eq!(fixture.log().await, "true");
    }
}
