//! Mutations that happen once, and the results that a replay gets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use expect_test::expect;
use hapax::json::Json;
use hapax::{Hapax, StateName};
use hapax_items::{Class, Difference, Error, ItemState, Items, MutationState, Version};

use crate::world::{Next, ONE, World, drive, failed, items, items_on};

/// Proves I-1: items come one after the other, also if they are requested at the same time, and the
/// handler runs each time.
#[tokio::test]
async fn items_are_worked_on_one_at_a_time_and_once() {
    let world = World::opaque();
    let items = items(&world);
    let script = r#"
        const seen = [];
        const letter = (id) => withItem(id, `Delivery to ${id}`, async (ctx) => {
            seen.push(`${id} begins${ctx.item.isDone ? ", done" : ""}`);
            await null;
            if (!ctx.item.isDone) await mail.send({ to: id });
            seen.push(`${id} ends`);
        });
        await Promise.all([letter("a"), letter("b"), letter("c")]);
        console.log(seen.join(" | "));
    "#;
    assert_eq!(drive(&items, script).await.unwrap(), 3);
    assert_eq!(drive(&items, script).await.unwrap(), 3);
    assert_eq!(world.done().len(), 3, "{:?}", world.done());
    let runs = items.runs("letters", None, 10).await.unwrap();
    let logs: Vec<_> = runs.iter().rev().map(|run| run.log.join("\n")).collect();
    expect![[r#"
        a begins | a ends | b begins | b ends | c begins | c ends
        a begins, done | a ends | b begins, done | b ends | c begins, done | c ends"#]]
    .assert_eq(&logs.join("\n"));
    let done = items.list("letters", &[ItemState::Done], None, 10).await.unwrap();
    assert_eq!(done.iter().map(|item| item.id.as_str()).collect::<Vec<_>>(), ["c", "b", "a"]);
}

/// Proves I-1: there is no item inside an item.
#[tokio::test]
async fn an_item_inside_an_item_is_a_mistake() {
    let world = World::opaque();
    let items = items(&world);
    let script = r#"
        await withItem("a", "outer", async () => {
            try { await withItem("b", "inner", async () => mail.send({ to: "b" })); } catch {}
        });
    "#;
    let (class, _, message) = failed(drive(&items, script).await);
    assert_eq!((class, world.done().len()), (Class::Logic, 0));
    assert!(message.contains("inside of another"), "{message}");
}

/// Proves I-2: a mutation on a done item ends the run as a mistake of the script; it is not skipped
/// in silence.
#[tokio::test]
async fn a_done_item_changes_nothing_any_more() {
    let world = World::opaque();
    let items = items(&world);
    drive(&items, ONE).await.unwrap();
    let careless =
        r#"await withItem("a", "Delivery", async () => mail.send({ to: "ada", text: "hello" }));"#;
    let (class, next, message) = failed(drive(&items, careless).await);
    assert_eq!((class, next.as_str()), (Class::Logic, "escalate"), "there is no maintainer");
    assert!(message.contains("ctx.item.isDone"), "{message}");
    assert_eq!(world.done().len(), 1);
    assert_eq!(items.show("letters", "a").await.unwrap().state, ItemState::Done);
}

/// Proves I-3: the same change twice is a mistake that names the way out. With subkeys both happen,
/// and a new attempt that a person requested uses no result of an earlier one.
#[tokio::test]
async fn two_of_the_same_are_told_apart_by_a_subkey() {
    let world = World::opaque();
    let items = items(&world);
    let twice = r#"await withItem("a", "Two letters", async (ctx) => {
        if (ctx.item.isDone) return;
        await mail.send({ to: "ada", text: "one" });
        await mail.send({ to: "ada", text: "two" });
    });"#;
    let (class, _, message) = failed(drive(&items, twice).await);
    assert_eq!(class, Class::Logic);
    assert!(message.contains("`subkey`"), "{message}");
    assert_eq!(world.done().len(), 1);
    let escalation = items.escalations(None, 10).await.unwrap().remove(0);
    let person = ("ada", "the script is mended");
    let try_again = hapax_items::Action::TryAgain;
    items.act(escalation.key, escalation.judged, try_again, None, person).await.unwrap();
    let apart = twice.replace("\"two\"", "\"two\", subkey: \"second\"");
    drive(&items, &apart).await.unwrap();
    expect![[r#"
        ada: {"text":"one"}
        ada: {"text":"two"}"#]]
    .assert_eq(&world.done().join("\n"));
    let done = items.show("letters", "a").await.unwrap();
    items.reprocess("letters", "a", done.judged, ("ada", "once more")).await.unwrap();
    drive(&items, &apart).await.unwrap();
    assert_eq!(world.done().len(), 4);
    let again = items.show("letters", "a").await.unwrap();
    assert_eq!((again.attempt, again.state), (2, ItemState::Done));
    for attempt in [1, 2] {
        assert_eq!(items.mutations(again.key, attempt).await.unwrap().len(), 2);
    }
}

/// Proves I-3: a subkey that is no text, or a blank or too long one, ends the run as a mistake of
/// the script, and nothing happens.
#[tokio::test]
async fn a_forged_subkey_ends_the_run() {
    let script = |subkey: &str| {
        format!(
            "await withItem('a', 'Delivery', async () => {{
                try {{ await mail.send({{ to: 'ada', subkey: {subkey} }}); }} catch {{}}
            }});"
        )
    };
    for subkey in
        ["7", "true", "null", "{}", "['a']", "''", "' \\n'", "'k'.repeat(513)", "'é'.repeat(257)"]
    {
        let world = World::opaque();
        let (class, _, message) = failed(drive(&items(&world), &script(subkey)).await);
        assert_eq!((class, world.done().len()), (Class::Logic, 0), "{subkey}: {message}");
        assert!(message.contains("a `subkey` is a text of 1 to 512 bytes"), "{message}");
    }
    let world = World::opaque();
    assert_eq!(drive(&items(&world), &script("'k'.repeat(512)")).await.unwrap(), 1);
    assert_eq!(world.done().len(), 1);
}

/// Proves I-5, I-9: an applied mutation returns its result again, a failed one is attempted again,
/// and the item is failed until its handler comes to its end.
#[tokio::test]
async fn a_retry_goes_on_where_the_run_before_stopped() {
    let world = World::opaque();
    let items = items(&world);
    let script = r#"await withItem("a", "Three letters", async (ctx) => {
        const nths = [];
        for (const to of ["ada", "grace", "mary"]) nths.push((await mail.send({ to })).nth);
        return nths;
    });"#;
    items.publish("letters", script, "ada").await.unwrap();
    world.next([Next::Fail(Class::Transient)]);
    let first = items.run("letters", None).await;
    let Err(Error::Failed { failure, .. }) = &first else { panic!("{first:?}") };
    assert_eq!((failure.class, failure.next.as_str()), (Class::Transient, "retry"));
    assert_eq!(items.show("letters", "a").await.unwrap().state, ItemState::Failed);
    let again = items.run("letters", None).await;
    assert!(again.is_ok(), "{again:?}");
    let item = items.show("letters", "a").await.unwrap();
    assert_eq!(item.state, ItemState::Done);
    let record = items.hapax().effects().show(item.key).await.unwrap().unwrap();
    let hapax::State::Succeeded(outcome) = record.state else { panic!("{record:?}") };
    assert_eq!(outcome.body(), Some(&b"[1,2,3]"[..]), "the first answer was replayed");
    let mutations = items.mutations(item.key, 1).await.unwrap();
    let states: Vec<_> = mutations.iter().map(|m| (m.state, m.attempts)).collect();
    assert_eq!(
        states,
        [(MutationState::Applied, 2), (MutationState::Applied, 1), (MutationState::Applied, 1),]
    );
}

/// Proves I-4, I-6: the requested payload is compared with the one that was applied; a
/// mutation is never applied again.
#[tokio::test]
async fn another_payload_is_judged_by_the_tool() {
    let second = |text: &str| {
        format!(
            r#"await withItem("a", "Delivery", async (ctx) => {{
                const first = await mail.send({{ to: "ada", text: "{text}" }});
                const second = await mail.send({{ to: "grace" }});
                return [first.nth, second.nth];
            }});"#
        )
    };
    for (difference, goes_on) in [
        ((|| Difference::Equivalent) as fn() -> Difference, true),
        (|| Difference::Minor, true),
        (|| Difference::Significant, false),
        (|| panic!("a comparison that throws"), false),
        (|| stalls(), false),
    ] {
        let world = World::opaque();
        let items = items(&world);
        world.compares(difference);
        let first = r#"await withItem("a", "Delivery", async (ctx) => {
            await mail.send({ to: "ada", text: "hello" });
            throw new Error("not finished");
        });"#;
        failed(drive(&items, first).await);
        let open = items.escalations(None, 10).await.unwrap().remove(0);
        let try_again = hapax_items::Action::TryAgain;
        items.act(open.key, open.judged, try_again, None, ("ada", "mended")).await.unwrap();
        let ended = drive(&items, &second("HELLO!")).await;
        let sent = world.done().iter().filter(|letter| letter.starts_with("ada")).count();
        assert_eq!(sent, 1, "never applied again");
        let state = items.show("letters", "a").await.unwrap().state;
        match goes_on {
            true => assert_eq!((ended.unwrap(), state), (1, ItemState::Done)),
            false => {
                let (_, next, message) = failed(ended);
                assert_eq!((next.as_str(), state), ("escalate", ItemState::NeedsAttention));
                assert!(message.contains("another payload"), "{message}");
            }
        }
    }
}

/// A comparison that takes longer than its time limit.
fn stalls() -> Difference {
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    Difference::Equivalent
}

/// Proves I-6: a failed mutation is attempted again with the new payload, and that payload is
/// recorded.
#[tokio::test]
async fn a_failed_mutation_takes_its_new_payload() {
    let world = World::opaque();
    let items = items(&world);
    world.next([Next::Fail(Class::Transient)]);
    items.publish("letters", ONE, "ada").await.unwrap();
    assert!(items.run("letters", None).await.is_err());
    drive(&items, &ONE.replace("hello", "good day")).await.unwrap();
    assert_eq!(world.done(), ["ada: {\"text\":\"good day\"}"]);
    let key = items.show("letters", "a").await.unwrap().key;
    let mutation = items.mutations(key, 1).await.unwrap().remove(0);
    assert_eq!(hapax::document::print(&mutation.payload), "{\"text\":\"good day\"}");
}

/// Proves I-14: a Rust program has the same promises as a script: one run at a time, and no code of
/// its own goes on after a failure.
#[tokio::test]
async fn a_program_of_ones_own_is_held_to_the_same() {
    let world = World::opaque();
    let items = items(&world);
    let reached = Arc::new(AtomicBool::new(false));
    let work = |items: Items| {
        let reached = reached.clone();
        async move {
            let work = |run: hapax_items::Run| async move {
                let letter = Json::object([("to", Json::text("ada"))]);
                run.with_item("a", "Letter", |item| async move {
                    item.call("mail", "send", &letter).await;
                    reached.store(true, Ordering::SeqCst);
                    Ok::<_, String>(Json::Null)
                })
                .await;
                Ok::<_, String>(())
            };
            items.perform("letters", Version::FIRST, None, work).await
        }
    };
    world.next([Next::Fail(Class::Permission)]);
    let ended = work(items.clone()).await;
    assert!(
        matches!(&ended, Err(Error::Failed { failure, .. }) if failure.class == Class::Permission),
        "{ended:?}"
    );
    assert!(!reached.load(Ordering::SeqCst), "the handler was cut off");
    let open = items.escalations(None, 10).await.unwrap().remove(0);
    let again = hapax_items::Action::TryAgain;
    items.act(open.key, open.judged, again, None, ("ada", "allowed now")).await.unwrap();
    assert_eq!(work(items).await.unwrap().items, 1);
    assert_eq!(world.done().len(), 1);
}

/// Proves I-1: a workflow has one run at a time, across processes; the next one may begin after its
/// end.
#[tokio::test]
async fn a_workflow_has_one_run_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("hapax.db");
    let world = World::opaque();
    let open = || async { items_on(Hapax::open(&file).await.unwrap(), &world) };
    let (here, there) = (open().await, open().await);
    here.publish("letters", ONE, "ada").await.unwrap();
    let begun = Arc::new(tokio::sync::Notify::new());
    let go_on = Arc::new(tokio::sync::Notify::new());
    let (started, waits) = (begun.clone(), go_on.clone());
    let first = tokio::spawn({
        let here = here.clone();
        async move {
            let work = |_| async move {
                started.notify_one();
                waits.notified().await;
                Ok::<_, String>(())
            };
            here.perform("letters", Version::FIRST, None, work).await
        }
    });
    begun.notified().await;
    let refused = there.run("letters", None).await;
    assert!(matches!(refused, Err(Error::Running { .. })), "{refused:?}");
    go_on.notify_one();
    first.await.unwrap().unwrap();
    there.run("letters", None).await.unwrap();
    assert_eq!(world.done().len(), 1);
}

/// Proves I-8, I-9: the states of effects, and the states of items and mutations that they mean.
#[test]
fn the_states_of_items_and_mutations_follow_from_their_effects() {
    let mut table = String::new();
    for state in StateName::ALL {
        let item = ItemState::of(state, false).as_str();
        let unknown = ItemState::of(state, true).as_str();
        let mutation = MutationState::of(state).as_str();
        table += &format!("{state:14} {item:16} {unknown:16} {mutation}\n");
    }
    expect![[r#"
        running        processing       processing       in_flight
        succeeded      done             done             applied
        failed         failed           needs_attention  failed
        partial        needs_attention  needs_attention  indeterminate
        unknown        needs_attention  needs_attention  needs_reconcile
        indeterminate  needs_attention  needs_attention  indeterminate
        skipped        skipped          skipped          indeterminate
    "#]]
    .assert_eq(&table);
}
