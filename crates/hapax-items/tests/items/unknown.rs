//! Unknown outcomes, and runs that are interrupted.

use std::sync::Arc;
use std::time::Duration;

use hapax::json::Json;
use hapax::{Finding, Hapax};
use hapax_items::{Action, Class, Error, ItemState, Items, MutationState, MutationView, Tool};
use tokio::sync::Barrier;

use crate::world::{Next, ONE, World, drive, failed, items, settings};

fn happened() -> Finding {
    Finding::Happened(hapax::Outcome::from("{\"nth\":1}"))
}

fn no_answer() -> Finding {
    Finding::CannotTell("no answer".into())
}

/// Proves I-6, I-8: a lookup looks for the payload that was sent and not for the one that is
/// requested now, and another payload is not taken for it.
#[tokio::test]
async fn a_sent_mutation_is_looked_up() {
    let world = World::reconcilable();
    let items = items(&world);
    world.next([Next::HappenAnd(Class::Indeterminate)]);
    world.finds([no_answer(), happened()]);
    let (_, next, _) = failed(drive(&items, ONE).await);
    assert_eq!(next, "reconcile");
    let (class, next, message) = failed(drive(&items, &ONE.replace("hello", "goodbye")).await);
    assert_eq!((class, next.as_str()), (Class::Precondition, "escalate"), "{message}");
    assert_eq!(world.lookups(), [r#"{"text":"hello"}"#, r#"{"text":"hello"}"#]);
    assert_eq!(world.done(), [r#"ada: {"text":"hello"}"#]);
}

/// Proves I-8: a mutation that is attempted again and is unknown again is looked up again, at once.
#[tokio::test]
async fn a_second_unknown_outcome_is_looked_for() {
    let world = World::reconcilable();
    let items = items(&world);
    let unknown = Class::Indeterminate;
    world.next([Next::Fail(unknown), Next::HappenAnd(unknown)]);
    world.finds([no_answer(), Finding::NotFound, happened()]);
    let (_, next, _) = failed(drive(&items, ONE).await);
    assert_eq!(next, "reconcile");
    assert_eq!(drive(&items, ONE).await.unwrap(), 1);
    assert_eq!((world.looks(), world.done().len()), (3, 1));
}

/// Proves I-9: no lookup is made for the mutations of an attempt that a person gave up.
#[tokio::test]
async fn an_item_begun_anew_leaves_nothing_to_look_up() {
    let world = World::reconcilable();
    let items = items(&world);
    world.next([Next::Fail(Class::Indeterminate)]);
    world.finds([no_answer()]);
    failed(drive(&items, ONE).await);
    let item = items.show("letters", "a").await.unwrap();
    items.reprocess("letters", "a", item.judged, ("grace", "anew")).await.unwrap();
    assert_eq!(drive(&items, ONE).await.unwrap(), 1);
    let pass = items.reconcile().await.unwrap();
    assert_eq!((pass.looked, pass.waiting, pass.escalated), (0, 0, 0), "{pass:?}");
    assert_eq!((world.looks(), world.done().len()), (1, 1));
}

/// A script that sends to Ada and, the next time, to Bob.
fn another_way() -> [String; 2] {
    [ONE.to_owned(), ONE.replace("\"ada\"", "\"bob\"")]
}

/// Proves I-8: an item is not done while the outcome of one of its mutations is unknown, also if
/// its handler takes another path and does not request it again. A person is asked.
#[tokio::test]
async fn a_mutation_that_a_later_run_does_not_repeat_stays_unknown() {
    let world = World::reconcilable();
    let items = items(&world);
    let [first, second] = another_way();
    world.next([Next::HappenAnd(Class::Indeterminate)]);
    let (_, next, _) = failed(drive(&items, &first).await);
    assert_eq!(next, "reconcile");
    let (class, next, message) = failed(drive(&items, &second).await);
    assert_eq!((class, next.as_str()), (Class::Indeterminate, "reconcile"), "{message}");
    assert!(message.contains("this one did not ask for"), "{message}");
    let escalation = loop {
        if let Some(escalation) = items.escalations(None, 10).await.unwrap().pop() {
            break escalation;
        }
        failed(items.drive("letters", None).await.map(|ran| ran.items));
    };
    let [unknown] = &escalation.unknown[..] else { panic!("{escalation:?}") };
    assert_eq!(hapax::document::print(&unknown.mutation.identity), r#"{"to":"ada"}"#);
    let (key, judged) = (escalation.key, escalation.judged);
    let person = ("grace", "Ada has no letter");
    items.act(key, judged, Action::DidNotHappen, None, person).await.unwrap();
    assert_eq!(items.drive("letters", None).await.unwrap().items, 1);
    assert_eq!(items.show("letters", "a").await.unwrap().state, ItemState::Done);
    assert_eq!(world.done().len(), 2, "to Ada and to Bob, and no more");
}

/// Proves I-8: a mutation that a handler does not ask for again is looked up all the same, and the
/// item is done once its outcome is known.
#[tokio::test]
async fn a_mutation_that_a_later_run_does_not_repeat_is_looked_up() {
    let world = World::reconcilable();
    let items = items(&world);
    let [first, second] = another_way();
    world.next([Next::HappenAnd(Class::Indeterminate)]);
    world.finds([no_answer(), happened()]);
    failed(drive(&items, &first).await);
    assert_eq!(drive(&items, &second).await.unwrap(), 1);
    let item = items.show("letters", "a").await.unwrap();
    let states: Vec<_> = items.mutations(item.key, 1).await.unwrap();
    assert!(states.iter().all(|mutation| mutation.state == MutationState::Applied), "{states:?}");
}

/// Proves I-8: an item is not done while a mutation that an earlier run began is in flight.
#[tokio::test]
async fn a_mutation_under_way_is_waited_for() {
    let world = World::opaque();
    let items = items(&world);
    let [first, second] = another_way();
    let gate = Arc::new(Barrier::new(2));
    world.next([Next::Wait(gate.clone())]);
    items.publish("letters", &first, "ada").await.unwrap();
    let run = tokio::spawn({
        let items = items.clone();
        async move { items.run("letters", None).await.map(|ran| ran.items) }
    });
    gate.wait().await;
    run.abort();
    assert!(run.await.unwrap_err().is_cancelled());
    let ended = async {
        loop {
            match drive(&items, &second).await {
                Err(Error::Running { .. }) => tokio::time::sleep(Duration::from_millis(1)).await,
                ended => return ended,
            }
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(30), ended).await.expect("it ends");
    let (class, next, message) = failed(ended);
    assert_eq!((class, next.as_str()), (Class::Indeterminate, "reconcile"), "{message}");
    gate.wait().await;
    let item = items.show("letters", "a").await.unwrap();
    let applied = async {
        let is_applied = |one: &MutationView| one.state == MutationState::Applied;
        while !items.mutations(item.key, 1).await.unwrap().iter().all(is_applied) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), applied).await.expect("it is applied");
    assert_eq!(items.drive("letters", None).await.unwrap().items, 1);
    assert_eq!(world.done().len(), 2);
}

/// Proves I-12: if more than one outcome is unknown, one decision does not decide about all.
#[tokio::test]
async fn each_unknown_outcome_is_decided_by_its_own_key() {
    let world = World::reconcilable();
    let items = items(&world);
    let [first, second] = another_way();
    let unknown = Class::Indeterminate;
    world.next([Next::HappenAnd(unknown), Next::HappenAnd(unknown)]);
    failed(drive(&items, &first).await);
    failed(drive(&items, &second).await);
    let escalation = loop {
        if let Some(escalation) = items.escalations(None, 10).await.unwrap().pop() {
            break escalation;
        }
        items.reconcile_by(hapax::Timestamp(i64::MAX)).await.unwrap();
    };
    let [ada, bob] = &escalation.unknown[..] else { panic!("{escalation:?}") };
    let person = ("grace", "I asked both");
    let act = async |key, judged, action, result: Option<&Json>| {
        items.act(key, judged, action, result, person).await
    };
    let (key, judged) = (escalation.key, escalation.judged);
    let both = act(key, judged, Action::DidNotHappen, None).await;
    assert!(matches!(both, Err(Error::Invalid(_))), "{both:?}");
    let (key, judged) = (ada.mutation.key, ada.mutation.judged);
    let result = Json::object([("nth", Json::number(1))]);
    act(key, judged, Action::Happened, Some(&result)).await.unwrap();
    assert_eq!(items.show("letters", "a").await.unwrap().state, ItemState::NeedsAttention);
    let twice = act(key, judged, Action::DidNotHappen, None).await;
    assert!(twice.is_err(), "{twice:?}");
    let (key, judged) = (bob.mutation.key, bob.mutation.judged);
    act(key, judged, Action::DidNotHappen, None).await.unwrap();
    assert_eq!(items.show("letters", "a").await.unwrap().state, ItemState::Failed);
    assert_eq!(items.drive("letters", None).await.unwrap().items, 1);
    assert_eq!(world.done().len(), 3, "Bob's once more, and Ada's not");
}

/// Proves I-9, I-12: no decision is made about an item that is being worked on, nor about the
/// mutations that earlier runs left open.
#[tokio::test]
async fn an_item_that_is_worked_on_is_not_begun_anew() {
    let world = World::reconcilable();
    let items = items(&world);
    let [first, second] = another_way();
    world.next([Next::HappenAnd(Class::Indeterminate)]);
    failed(drive(&items, &first).await);
    let gate = Arc::new(Barrier::new(2));
    world.next([Next::Wait(gate.clone())]);
    let run = tokio::spawn({
        let items = items.clone();
        async move { drive(&items, &second).await }
    });
    gate.wait().await;
    let item = items.show("letters", "a").await.unwrap();
    let refused = items.reprocess("letters", "a", item.judged, ("grace", "anew")).await;
    assert!(matches!(refused, Err(Error::Running { .. })), "{refused:?}");
    let unfinished = &items.mutations(item.key, 1).await.unwrap()[0];
    assert_eq!(unfinished.state, MutationState::NeedsReconcile, "as it was");
    gate.wait().await;
    failed(run.await.unwrap());
}

/// Proves I-7: a script does not go on once its run was dropped.
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
