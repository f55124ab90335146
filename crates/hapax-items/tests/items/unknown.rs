//! Outcomes that are not known, and runs that are broken off.

use std::sync::Arc;
use std::time::Duration;

use hapax::{Finding, Hapax};
use hapax_items::{Class, Items, Tool};
use tokio::sync::Barrier;

use crate::world::{Next, ONE, World, drive, failed, items, settings};

fn happened() -> Finding {
    Finding::Happened(hapax::Outcome::from("{\"nth\":1}"))
}

fn nobody_knows() -> Finding {
    Finding::CannotTell("nobody answers".into())
}

/// Proves I-6, I-8: what was sent is looked for, not what is asked for now, and another payload is
/// not taken for it.
#[tokio::test]
async fn what_was_sent_is_looked_for() {
    let world = World::reconcilable();
    let items = items(&world);
    world.next([Next::HappenAnd(Class::Indeterminate)]);
    world.finds([nobody_knows(), happened()]);
    let (_, next, _) = failed(drive(&items, ONE).await);
    assert_eq!(next, "reconcile");
    let (class, next, message) = failed(drive(&items, &ONE.replace("hello", "goodbye")).await);
    assert_eq!((class, next.as_str()), (Class::Precondition, "escalate"), "{message}");
    assert_eq!(world.sought(), [r#"{"text":"hello"}"#, r#"{"text":"hello"}"#]);
    assert_eq!(world.done(), [r#"ada: {"text":"hello"}"#]);
}

/// Proves I-8: what is attempted again and is unknown again is looked for again, at once.
#[tokio::test]
async fn a_second_unknown_outcome_is_looked_for() {
    let world = World::reconcilable();
    let items = items(&world);
    let unknown = Class::Indeterminate;
    world.next([Next::Fail(unknown), Next::HappenAnd(unknown)]);
    world.finds([nobody_knows(), Finding::NotFound, happened()]);
    let (_, next, _) = failed(drive(&items, ONE).await);
    assert_eq!(next, "reconcile");
    assert_eq!(drive(&items, ONE).await.unwrap(), 1);
    assert_eq!((world.looks(), world.done().len()), (3, 1));
}

/// Proves I-9: nobody looks for what an attempt has left that a person gave up.
#[tokio::test]
async fn what_is_begun_anew_leaves_nothing_to_look_for() {
    let world = World::reconcilable();
    let items = items(&world);
    world.next([Next::Fail(Class::Indeterminate)]);
    world.finds([nobody_knows()]);
    failed(drive(&items, ONE).await);
    let item = items.show("letters", "a").await.unwrap();
    items.reprocess("letters", "a", item.judged, ("grace", "anew")).await.unwrap();
    assert_eq!(drive(&items, ONE).await.unwrap(), 1);
    let pass = items.reconcile().await.unwrap();
    assert_eq!((pass.looked, pass.waiting, pass.escalated), (0, 0, 0), "{pass:?}");
    assert_eq!((world.looks(), world.done().len()), (1, 1));
}

/// Proves I-7: a script does not go on once its run was broken off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_dropped_takes_its_script_with_it() {
    let world = World::opaque();
    let tool: Arc<dyn Tool> = Arc::new(world.clone());
    let held = Arc::downgrade(&tool);
    let hapax = Hapax::builder().in_memory();
    let items = Items::new(hapax, vec![tool], vec![settings("letters")]).expect("set up");
    let gate = Arc::new(Barrier::new(2));
    world.next([Next::Wait(gate.clone())]);
    let script = ONE.replace("return sent.nth;", "await mail.send({ to: 'bob' });");
    items.publish("letters", &script, "ada").await.unwrap();
    let run = tokio::spawn(async move { items.run("letters", None).await.map(|ran| ran.items) });
    gate.wait().await;
    run.abort();
    assert!(run.await.unwrap_err().is_cancelled());
    gate.wait().await;
    // The script's thread is the last that holds the tool.
    let ended = async {
        while held.strong_count() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ended).await.expect("the script ends");
    assert_eq!(world.done(), [r#"ada: {"text":"hello"}"#]);
}

/// A run names the last thousand items that it took up, and counts all.
#[tokio::test]
async fn all_items_are_counted() {
    let items = items(&World::opaque());
    let script = "for (let n = 0; n < 1001; n++) await withItem(`${n}`, '', async () => {});";
    assert_eq!(drive(&items, script).await.unwrap(), 1_001);
    let run = items.runs("letters", None, 1).await.unwrap().remove(0);
    assert_eq!((run.count, run.items.len(), run.items[0].as_str()), (1_001, 1_000, "1"));
}
