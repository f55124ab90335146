//! Programs that keep an item, or a run, for longer than they may.

use std::sync::Arc;
use std::time::Duration;

use hapax::json::Json;
use hapax_items::{
    Action, Class, CompletedRun, Error, Item, ItemState, Items, MutationState, Run, Version,
};
use tokio::sync::{Barrier, oneshot};

use crate::world::{Next, World, items};

fn letter() -> Json {
    Json::object([("to", Json::text("ada"))])
}

/// Whether a call of a mutation returns.
async fn returns(item: &Item) -> bool {
    let letter = letter();
    let call = item.call("mail", "send", &letter);
    tokio::time::timeout(Duration::from_millis(300), call).await.is_ok()
}

/// Runs a program that takes up one item, and leaks the item and the run.
async fn leaking(items: &Items, sends: bool) -> (Result<CompletedRun, Error>, Run, Item) {
    let (leak, leaked) = oneshot::channel();
    let work = |run: Run| async move {
        let kept = run.clone();
        run.with_item("a", "Letter", |item| async move {
            assert!(leak.send((kept, item.clone())).is_ok());
            if sends {
                item.call("mail", "send", &letter()).await;
            }
            Ok::<_, String>(Json::Null)
        })
        .await;
        Ok::<_, String>(())
    };
    let ended = items.perform("letters", Version::FIRST, None, work).await;
    let (run, item) = leaked.await.expect("the handler has run");
    (ended, run, item)
}

/// Proves I-2, I-14: once a run has come to its end, an item or a run that was kept changes
/// nothing.
#[tokio::test]
async fn nothing_is_changed_after_a_run_is_over() {
    let world = World::opaque();
    let items = items(&world);
    let (ended, run, item) = leaking(&items, false).await;
    assert_eq!(ended.unwrap().items, 1);
    assert!(item.is_done(), "its handler has ended");
    assert!(!returns(&item).await);
    let again = run.with_item("b", "Another", async |item: Item| {
        item.call("mail", "send", &letter()).await;
        Ok::<_, String>(Json::Null)
    });
    assert!(tokio::time::timeout(Duration::from_millis(300), again).await.is_err());
    assert_eq!(world.done(), [""; 0]);
    assert_eq!(items.show("letters", "a").await.unwrap().state, ItemState::Done);
    assert!(items.show("letters", "b").await.is_err(), "it was never taken up");
    assert_eq!(items.runs("letters", None, 9).await.unwrap()[0].state, "succeeded");
    assert_eq!(items.escalations(None, 9).await.unwrap(), []);
}

/// Proves I-7, I-14: an item that was kept changes nothing after a failed run, and the run's record
/// stays.
#[tokio::test]
async fn nothing_is_changed_after_a_run_has_failed() {
    let world = World::opaque();
    let items = items(&world);
    world.next([Next::Fail(Class::Permission)]);
    let (ended, _run, item) = leaking(&items, true).await;
    assert!(matches!(ended, Err(Error::Failed { .. })), "{ended:?}");
    assert!(item.is_done() && !returns(&item).await);
    assert_eq!(world.done(), [""; 0]);
    let escalation = items.escalations(None, 9).await.unwrap().remove(0);
    assert!(escalation.reason.contains("the post office is closed"), "{}", escalation.reason);
}

/// An item that was kept changes nothing after the run was dropped.
#[tokio::test]
async fn nothing_is_changed_after_a_run_was_dropped() {
    let world = World::opaque();
    let items = items(&world);
    let (leak, leaked) = oneshot::channel();
    let work = |run: Run| async move {
        run.with_item("a", "Letter", |item| async move {
            assert!(leak.send(item).is_ok());
            std::future::pending::<Result<Json, String>>().await
        })
        .await;
        Ok::<_, String>(())
    };
    let item = tokio::select! {
        ended = items.perform("letters", Version::FIRST, None, work) => panic!("{ended:?}"),
        item = leaked => item.expect("the handler has run"),
    };
    assert!(item.is_done() && !returns(&item).await);
    assert_eq!(world.done(), [""; 0]);
}

/// Proves I-2: while the run goes on, a mutation for an item whose handler has ended is a mistake
/// that ends the run. A person is asked about the run; the item that was open then is not blamed,
/// and the next run takes it up.
#[tokio::test]
async fn a_late_mutation_ends_the_run_and_harms_no_other_item() {
    let world = World::opaque();
    let items = items(&world);
    let work = |run: Run, leaks: bool| async move {
        let (leak, leaked) = oneshot::channel();
        run.with_item("a", "Letter", |item| async move {
            let _ = leak.send(item);
            Ok::<_, String>(Json::Null)
        })
        .await;
        let late = leaked.await.expect("the handler has run");
        run.with_item("b", "Letter", |item| async move {
            if leaks {
                tokio::spawn(async move { late.call("mail", "send", &letter()).await });
                std::future::pending::<()>().await;
            }
            item.call("mail", "send", &letter()).await;
            Ok::<_, String>(Json::Null)
        })
        .await;
        Ok::<_, String>(())
    };
    let run = items.perform("letters", Version::FIRST, None, |run| work(run, true));
    let ended = tokio::time::timeout(Duration::from_secs(20), run).await.expect("it ends");
    let Err(Error::Failed { item, failure }) = ended else { panic!("{ended:?}") };
    assert_eq!((item.as_deref(), failure.class), (Some("a"), Class::Logic));
    assert!(failure.message.contains("whose handler has ended"), "{}", failure.message);
    assert_eq!(world.done(), [""; 0]);
    let state = async |id| items.show("letters", id).await.unwrap().state;
    assert_eq!((state("a").await, state("b").await), (ItemState::Done, ItemState::Failed));
    let open = items.escalations(None, 9).await.unwrap();
    assert_eq!(open.len(), 1);
    assert!(open[0].item.is_none() && open[0].run.is_some());

    let (key, judged) = (open[0].key, open[0].judged);
    items.act(key, judged, Action::TryAgain, None, ("ada", "it waits now")).await.unwrap();
    items.perform("letters", Version::FIRST, None, |run| work(run, false)).await.unwrap();
    assert_eq!((state("b").await, world.done().len()), (ItemState::Done, 1));
}

/// Proves I-8: a mutation that was begun comes to its end before its item is done, also if its
/// handler does not wait for it. A run waits in the same way for an item that was taken up.
#[tokio::test]
async fn a_stopping_run_waits_for_mutations_that_were_begun() {
    let world = World::opaque();
    let items = items(&world);
    let gate = Arc::new(Barrier::new(2));
    world.next([Next::Wait(gate.clone())]);
    let begun = gate.clone();
    let work = |run: Run| async move {
        let (taken_up, open) = oneshot::channel();
        tokio::spawn(async move {
            run.with_item("a", "Letter", |item| async move {
                taken_up.send(()).expect("a caller waits");
                tokio::spawn(async move { item.call("mail", "send", &letter()).await });
                begun.wait().await;
                Ok::<_, String>(Json::Null)
            })
            .await;
        });
        open.await.map_err(|error| error.to_string())
    };
    let mut running = tokio::spawn({
        let items = items.clone();
        async move { items.perform("letters", Version::FIRST, Some("first"), work).await }
    });
    // The handler has ended and the letter is in flight: the item is not done before the letter
    // arrives.
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while items.show("letters", "a").await.is_err() {
        assert!(std::time::Instant::now() < deadline, "the item is taken up");
        tokio::task::yield_now().await;
    }
    let item = items.show("letters", "a").await.unwrap();
    let run = items.show_run("letters", "first").await.unwrap();
    assert_eq!((item.state, run.state), (ItemState::Processing, "running"));
    let over = tokio::time::timeout(Duration::from_millis(300), &mut running).await;
    assert!(over.is_err(), "{over:?}");
    gate.wait().await;
    assert_eq!(running.await.unwrap().unwrap().items, 1);
    assert_eq!(world.done().len(), 1);
    let item = items.show("letters", "a").await.unwrap();
    let mutation = items.mutations(item.key, 1).await.unwrap().remove(0);
    assert_eq!((item.state, mutation.state), (ItemState::Done, MutationState::Applied));
}
