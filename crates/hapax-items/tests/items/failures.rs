//! The next step after a failure, and mutations of unknown outcome.

use hapax::{Finding, Outcome, Safety, Settling};
use hapax_items::{Class, Error, ItemState, MutationState, Reconciled};

use crate::world::{Next, ONE, World, drive, failed, items};

/// Proves I-10: a transient failure is retried with the same script until it succeeds or the budget
/// is spent; then a person is asked.
#[tokio::test]
async fn a_transient_failure_is_retried() {
    let world = World::opaque();
    let items = items(&world);
    world.next([Next::Fail(Class::Transient), Next::Fail(Class::Transient)]);
    assert_eq!(drive(&items, ONE).await.unwrap(), 1);
    assert_eq!(items.runs("letters", None, 10).await.unwrap().len(), 3);

    let world = World::opaque();
    let items = crate::world::items(&world);
    world.next(vec![Next::Fail(Class::Transient); 10]);
    let (class, next, _) = failed(drive(&items, ONE).await);
    assert_eq!((class, next.as_str()), (Class::Transient, "escalate"));
    assert_eq!(items.runs("letters", None, 10).await.unwrap().len(), 4, "three retries");
    assert_eq!(items.show("letters", "a").await.unwrap().state, ItemState::NeedsAttention);
    let blocked = items.drive("letters", None).await;
    let Err(Error::Failed { failure, .. }) = blocked else { panic!("{blocked:?}") };
    assert_eq!(failure.next, "wait", "a person has been asked");
}

/// Proves I-10: classes that only a person can deal with are not retried.
#[tokio::test]
async fn a_failure_that_only_a_person_can_mend_is_escalated_at_once() {
    for class in [Class::Permission, Class::Precondition] {
        let world = World::opaque();
        let items = items(&world);
        world.next([Next::Fail(class)]);
        let (seen, next, _) = failed(drive(&items, ONE).await);
        assert_eq!((seen, next.as_str()), (class, "escalate"));
        assert_eq!(items.runs("letters", None, 10).await.unwrap().len(), 1);
        assert_eq!(items.show("letters", "a").await.unwrap().state, ItemState::NeedsAttention);
    }
}

/// Proves I-7: no code of a script goes on after a failed mutation, not even the code that catches
/// errors.
#[tokio::test]
async fn a_script_cannot_go_on_after_a_failed_mutation() {
    for trick in [
        "try { await mail.send({ to: 'a' }); } catch {} await mail.send({ to: 'b' });",
        "try { await mail.send({ to: 'a' }); } finally { await mail.send({ to: 'b' }); }",
        "await mail.send({ to: 'a' }).catch(() => mail.send({ to: 'b' }));",
        "await Promise.allSettled([mail.send({ to: 'a' }), mail.send({ to: 'b' })]);",
        "mail.send({ to: 'a' }).then(() => 0, () => 0); await null; await mail.send({ to: 'b' });",
        "async function* g() { try { yield await mail.send({ to: 'a' }); } finally { await mail.send({ to: 'b' }); } } for await (const _ of g()) {}",
    ] {
        let world = World::opaque();
        let items = items(&world);
        world.next([Next::Fail(Class::Permission)]);
        let script = format!(
            "await withItem('a', 'Letter', async () => {{ {trick} }}); await withItem('b', 'Letter', async () => mail.send({{ to: 'c' }}));"
        );
        let (class, _, _) = failed(drive(&items, &script).await);
        assert_eq!((class, world.done().len()), (Class::Permission, 0), "{trick}");
    }
}

/// Proves I-8: without a way to look it up, an unknown outcome is indeterminate at once, also if
/// the tool hangs or panics; it never counts as failed.
#[tokio::test]
async fn an_unknown_outcome_without_a_probe_is_indeterminate() {
    for next in [Next::HappenAnd(Class::Indeterminate), Next::Panic, Next::Hang] {
        let world = World::opaque();
        let items = items(&world);
        world.next([next.clone()]);
        let (class, course, _) = failed(drive(&items, ONE).await);
        assert_eq!((class, course.as_str()), (Class::Indeterminate, "escalate"), "{next:?}");
        let item = items.show("letters", "a").await.unwrap();
        assert_eq!(item.state, ItemState::NeedsAttention);
        let mutation = items.mutations(item.key, 1).await.unwrap().remove(0);
        assert_eq!(mutation.state, MutationState::Indeterminate);
        assert!(world.done().len() <= 1 && world.looks() == 0);
    }
}

/// Proves I-8: an outcome that can be looked up is looked up at once, and the script goes on with
/// the finding.
#[tokio::test]
async fn an_unknown_outcome_with_a_probe_is_looked_up_at_once() {
    let world = World::reconcilable();
    let items = items(&world);
    world.next([Next::HappenAnd(Class::Indeterminate)]);
    world.finds([Finding::Happened(Outcome::from("{\"nth\":7}"))]);
    assert_eq!(drive(&items, ONE).await.unwrap(), 1);
    assert_eq!((world.done().len(), world.looks()), (1, 1));

    // It is not there: it did not happen, and is attempted again after a while.
    let world = World::reconcilable();
    let items = crate::world::items(&world);
    world.next([Next::Hang]);
    world.finds([Finding::NotFound]);
    assert_eq!(drive(&items, ONE).await.unwrap(), 1);
    assert_eq!((world.done().len(), items.runs("letters", None, 10).await.unwrap().len()), (1, 2));
}

/// Proves I-5, I-8: a mutation that a lookup cannot decide is looked up again, with pauses and up
/// to a limit, and blocks its item meanwhile; then a person is asked.
#[tokio::test]
async fn an_undecided_probe_is_repeated_until_a_person_is_asked() {
    let world = World::reconcilable();
    let items = items(&world);
    world.next([Next::HappenAnd(Class::Indeterminate)]);
    let (class, course, _) = failed(drive(&items, ONE).await);
    assert_eq!((class, course.as_str()), (Class::Indeterminate, "reconcile"));
    let item = items.show("letters", "a").await.unwrap();
    let state = async || items.mutations(item.key, 1).await.unwrap().remove(0).state;
    assert_eq!((item.state, state().await), (ItemState::Failed, MutationState::NeedsReconcile));
    let pass = items.reconcile().await.unwrap();
    assert_eq!(pass, Reconciled { waiting: 1, ..Reconciled::default() }, "not so soon");
    // Each run looks for it first, and does nothing else.
    while state().await == MutationState::NeedsReconcile {
        assert!(items.run("letters", None).await.is_err());
    }
    assert_eq!((state().await, world.looks()), (MutationState::Indeterminate, 8));
    assert_eq!(world.done().len(), 1);
    assert_eq!(items.show("letters", "a").await.unwrap().state, ItemState::NeedsAttention);
    assert_eq!(items.escalations(None, 10).await.unwrap().len(), 1);
}

/// Proves I-8, I-10: no run is needed for that. The background pass looks it up, each time after a
/// longer pause, and at the limit it asks a person.
#[tokio::test]
async fn the_background_looks_to_its_limit_and_then_asks_a_person() {
    let world = World::reconcilable();
    let items = items(&world);
    world.next([Next::HappenAnd(Class::Indeterminate)]);
    assert_eq!(failed(drive(&items, ONE).await).1, "reconcile");
    let item = items.show("letters", "a").await.unwrap();
    let mut pauses = Vec::new();
    let last = loop {
        let mutation = items.mutations(item.key, 1).await.unwrap().remove(0);
        let changed = items.hapax().effects().show(mutation.key).await.unwrap().unwrap().updated;
        let pause_ms = (2_000 << pauses.len()).min(120_000);
        let early = items.reconcile_by(changed.plus_ms(pause_ms - 1)).await.unwrap();
        assert_eq!(early, Reconciled { waiting: 1, ..Reconciled::default() }, "{pauses:?}");
        pauses.push(pause_ms);
        let pass = items.reconcile_by(changed.plus_ms(pause_ms)).await.unwrap();
        assert_eq!((pass.looked, pass.waiting), (1, 0), "{pauses:?}");
        if pass.decided > 0 {
            break pass;
        }
        assert_eq!(items.escalations(None, 10).await.unwrap(), [], "no operator is asked so soon");
        assert_eq!(items.show("letters", "a").await.unwrap().state, ItemState::Failed);
    };
    assert_eq!(last, Reconciled { looked: 1, decided: 1, escalated: 1, waiting: 0 });
    assert_eq!((pauses.len(), world.looks()), (7, 8), "the run has looked once");
    let mutation = items.mutations(item.key, 1).await.unwrap().remove(0);
    assert_eq!(mutation.state, MutationState::Indeterminate);
    assert_eq!(items.show("letters", "a").await.unwrap().state, ItemState::NeedsAttention);
    let escalation = items.escalations(None, 10).await.unwrap().remove(0);
    assert!(escalation.reason.contains("could not tell 8 times"), "{}", escalation.reason);
    assert_eq!(escalation.unknown.len(), 1);
    let later = items.hapax().maintenance().wall().await.unwrap().plus_ms(3_600_000);
    let after = items.reconcile_by(later).await.unwrap();
    assert_eq!(after, Reconciled::default(), "a person has been asked, once");
    assert_eq!((world.looks(), world.done().len()), (8, 1));
}

/// Proves I-8: lookups go on after a restart, and the next run goes on with the finding.
#[tokio::test]
async fn a_restart_goes_on_looking() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("hapax.db");
    let safety = Safety::Reconcilable(Settling::AfterMs(1));
    let before = World::new(safety);
    let hapax = hapax::Hapax::open(&file).await.unwrap();
    let items = crate::world::items_on(hapax.clone(), &before);
    before.next([Next::HappenAnd(Class::Indeterminate)]);
    assert_eq!(failed(drive(&items, ONE).await).1, "reconcile");
    hapax.close().await.unwrap();
    drop((items, hapax));

    let after = World::new(safety);
    let items = crate::world::items_on(hapax::Hapax::open(&file).await.unwrap(), &after);
    after.finds([Finding::Happened(Outcome::from("{\"nth\":1}"))]);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while items.reconcile().await.unwrap().decided == 0 {
        assert!(std::time::Instant::now() < deadline, "it is looked for after a while");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(items.drive("letters", None).await.unwrap().items, 1);
    assert!(after.done().is_empty(), "it happened before the restart");
    assert_eq!(items.show("letters", "a").await.unwrap().state, ItemState::Done);
}

/// Proves I-10: a transient failure is retried as often as the budget says; waiting for a person or
/// a lookup spends nothing of it.
#[tokio::test]
async fn waiting_spends_nothing_of_the_budget() {
    let world = World::opaque();
    let items = items(&world);
    let script = format!("await mail.inbox({{}});{ONE}");
    world.next([Next::Fail(Class::Permission)]);
    failed(drive(&items, &script).await);
    for _ in 0..6 {
        let (_, next, _) = failed(drive(&items, &script).await);
        assert_eq!(next, "wait");
    }
    let open = items.escalations(None, 10).await.unwrap().remove(0);
    let again = hapax_items::Action::TryAgain;
    items.act(open.key, open.judged, again, None, ("ada", "mended")).await.unwrap();
    world.answers_not(Class::Transient);
    let (class, next, _) = failed(items.run("letters", None).await.map(|ran| ran.items));
    assert_eq!((class, next.as_str()), (Class::Transient, "retry"));

    let world = World::reconcilable();
    let items = crate::world::items(&world);
    world.next([Next::Fail(Class::Indeterminate), Next::Fail(Class::Transient)]);
    for _ in 0..6 {
        let (_, next, _) = failed(drive(&items, ONE).await);
        assert_eq!(next, "reconcile");
    }
    world.finds([Finding::NotFound]);
    let (class, next, _) = failed(items.run("letters", None).await.map(|ran| ran.items));
    assert_eq!((class, next.as_str()), (Class::Transient, "retry"));
}

/// Proves I-7: a failure outside of any item stops the workflow until a person has decided.
#[tokio::test]
async fn a_run_that_fails_outside_of_items_comes_before_a_person() {
    let world = World::opaque();
    let items = items(&world);
    let (class, next, message) = failed(drive(&items, "await mail.send({ to: 'ada' });").await);
    assert_eq!((class, next.as_str()), (Class::Logic, "escalate"));
    assert!(message.contains("outside of any item"), "{message}");
    items.publish("letters", ONE, "ada").await.unwrap();
    let blocked = items.drive("letters", None).await;
    assert!(matches!(blocked, Err(Error::Attention { .. })), "{blocked:?}");
    let open = items.escalations(Some("letters"), 10).await.unwrap().remove(0);
    assert!(open.item.is_none() && open.run.is_some());
    let again = hapax_items::Action::TryAgain;
    items.act(open.key, open.judged, again, None, ("ada", "mended")).await.unwrap();
    assert_eq!(items.drive("letters", None).await.unwrap().items, 1);
}
