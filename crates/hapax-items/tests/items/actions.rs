//! The decisions of people.

use std::collections::BTreeSet;

use expect_test::expect;
use hapax::json::Json;
use hapax::outbox::{Acks, Delivery, OutboxConfig, RecordFilter, Sink};
use hapax::{AttemptId, Finding, Hapax, Outcome};
use hapax_items::{
    Action, Class, Error, Escalation, Item, ItemState, Items, MutationExplanation, MutationState,
    NEEDS_ATTENTION, Run, Version,
};

use crate::world::{Next, ONE, World, drive, failed, items, items_on};

const PERSON: (&str, &str) = ("grace", "I asked Ada");

/// An item whose letter may have been sent: its outcome is unknown.
async fn unknown(world: &World) -> (Items, Escalation) {
    let items = items(world);
    world.next([Next::HappenAnd(Class::Indeterminate)]);
    failed(drive(&items, ONE).await);
    let escalation = until_escalated(&items).await;
    (items, escalation)
}

/// Runs the workflow until a person is asked.
async fn until_escalated(items: &Items) -> Escalation {
    loop {
        if let Some(escalation) = items.escalations(None, 10).await.expect("a list").pop() {
            return escalation;
        }
        assert!(items.run("letters", None).await.is_err());
    }
}

/// All texts of an escalation about one mutation.
fn texts(escalation: &Escalation) -> String {
    let explained = &escalation.unknown[0];
    let actions: Vec<_> = escalation.actions.iter().map(|action| action.as_str()).collect();
    let MutationExplanation { tried, why, verify, check, .. } = explained;
    [&escalation.reason, tried, why, verify, check, &actions.join(", ")]
        .map(String::as_str)
        .join("\n")
}

async fn act(items: &Items, on: &Escalation, action: Action) -> Result<(), Error> {
    items.act(on.key, on.judged, action, None, PERSON).await
}

/// Proves I-13: an escalation says which mutation it is about, the attempts so far, why the outcome
/// is unknown, whether it can be verified, and what to check by hand.
#[tokio::test]
async fn an_escalation_explains_itself() {
    let (_, escalation) = unknown(&World::opaque()).await;
    expect![[r#"
        indeterminate: mail.send: whether it happened is not known: the line went dead
        mail.send of smtp://example.org was attempted once
        the line went dead
        mail has no way to look it up
        whether a letter to ada is in the Sent folder
        did-not-happen, happened, skip, reprocess"#]]
    .assert_eq(&texts(&escalation));
}

/// Proves I-13: an escalation says how many lookups could not tell, also after a person asked for
/// more.
#[tokio::test]
async fn an_escalation_says_how_often_it_was_looked_for() {
    let world = World::reconcilable();
    let items = items(&world);
    world.next([Next::HappenAnd(Class::Indeterminate)]);
    failed(drive(&items, ONE).await);
    let item = items.show("letters", "a").await.unwrap();
    let looks = async || items.mutations(item.key, 1).await.unwrap()[0].looks;
    assert_eq!((looks().await, world.looks()), (1, 1));
    let escalation = until_escalated(&items).await;
    assert_eq!((looks().await, world.looks()), (8, 8));
    expect![[r#"
        indeterminate: mail.send: whether it happened is not known: the line went dead; the reconciler could not tell 8 times: no answer
        mail.send of smtp://example.org was attempted once; 8 looks could not tell
        the line went dead; the reconciler could not tell 8 times: no answer
        mail can look it up: say try-again
        whether a letter to ada is in the Sent folder
        try-again, did-not-happen, happened, skip, reprocess"#]]
    .assert_eq(&texts(&escalation));
    act(&items, &escalation, Action::TryAgain).await.unwrap();
    assert_eq!(looks().await, 8);
    let tried = &until_escalated(&items).await.unknown[0].tried;
    assert!(tried.ends_with("; 16 looks could not tell"), "{tried}");
    assert_eq!((looks().await, world.looks()), (16, 16));
}

/// Proves I-13: an escalation says which mutation and what was tried also if the outcome is known:
/// a mutation that was refused, and one that was applied with another payload.
#[tokio::test]
async fn an_escalation_says_what_was_tried_where_the_outcome_is_known() {
    let texts = |escalation: &Escalation| {
        let MutationExplanation { mutation, tried, why, verify, check } =
            escalation.stopped_at.as_ref().expect("a mutation");
        let failure = escalation.item.as_ref().and_then(|item| item.failure.as_ref());
        let stopped_at = failure.and_then(|failure| failure.mutation.as_ref());
        assert_eq!(stopped_at.map(|stopped_at| stopped_at.key), Some(mutation.key));
        assert!(escalation.unknown.is_empty());
        [tried, why, verify, check].map(String::as_str).join("\n")
    };
    let world = World::opaque();
    let items = items(&world);
    world.next([Next::Fail(Class::Permission)]);
    failed(drive(&items, ONE).await);
    expect![[r#"
        mail.send of smtp://example.org was attempted once, with {"text":"hello"}
        its outcome is known: it did not happen. mail.send: the post office is closed
        there is nothing to look up: try-again attempts it again
        what keeps it from happening at smtp://example.org"#]]
    .assert_eq(&texts(&until_escalated(&items).await));

    let world = World::opaque();
    let items = crate::world::items(&world);
    failed(drive(&items, &ONE.replace("return sent.nth;", "throw new Error('stop');")).await);
    act(&items, &until_escalated(&items).await, Action::TryAgain).await.unwrap();
    failed(drive(&items, &ONE.replace("hello", "goodbye")).await);
    expect![[r#"
        mail.send of smtp://example.org was attempted once, and applied, with {"text":"hello"}
        its outcome is known; it is asked for now with {"text":"goodbye"}
        there is nothing to look up: it was applied, and is not applied again
        whether what was applied at smtp://example.org is right as it is"#]]
    .assert_eq(&texts(&until_escalated(&items).await));
}

/// An item whose letter was sent, with an answer that was too large to keep.
async fn too_large(world: &World) -> (Items, Escalation) {
    let items = items_on(Hapax::builder().keep_limit(1024).in_memory(), world);
    world.next([Next::Answer(Json::text(&"x".repeat(1024)))]);
    let (class, next, _) = failed(drive(&items, ONE).await);
    assert_eq!((class, next.as_str()), (Class::Indeterminate, "escalate"));
    let escalation = until_escalated(&items).await;
    (items, escalation)
}

/// Proves I-5, I-12, I-13: a mutation that was applied but whose result was not kept is blocked
/// until a person gives the result. A replay returns that result, and the mutation is not applied
/// again.
#[tokio::test]
async fn a_result_that_was_too_large_to_keep_is_given_by_a_person() {
    let world = World::opaque();
    let (items, escalation) = too_large(&world).await;
    expect![[r#"
        indeterminate: mail.send was applied, and its result was too large to keep
        mail.send of smtp://example.org was attempted once, and applied
        its result was too large to keep
        there is nothing to look up: it was applied. skip leaves it so, and reprocess would apply it again
        what came of it at smtp://example.org, for {"to":"ada"}, to say it with happened
        happened, skip, reprocess"#]]
    .assert_eq(&texts(&escalation));
    for refused in [Action::TryAgain, Action::DidNotHappen, Action::Happened] {
        let refused = act(&items, &escalation, refused).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    let result = Json::object([("nth", Json::number(7))]);
    let (key, judged) = (escalation.key, escalation.judged);
    items.act(key, judged, Action::Happened, Some(&result), PERSON).await.unwrap();
    assert!(items.escalations(None, 10).await.unwrap().is_empty());
    assert_eq!(items.drive("letters", None).await.unwrap().items, 1);
    assert_eq!(world.done().len(), 1, "not sent again");
    let record = items.hapax().effects().show(key).await.unwrap().unwrap();
    assert_eq!(record.state, hapax::State::Succeeded(Outcome::from("7")));
    let mutation = items.mutations(key, 1).await.unwrap().remove(0);
    assert_eq!((mutation.state, mutation.attempts), (MutationState::Applied, 1));
    let result = mutation.result.as_ref().map(hapax::document::print);
    assert_eq!(result.as_deref(), Some("{\"nth\":7}"));
    let journal = items.hapax().journal().entries(0, 1_000).await.unwrap();
    let decided = journal.iter().filter(|entry| {
        (entry.actor.as_deref(), entry.note.as_deref()) == (Some(PERSON.0), Some(PERSON.1))
    });
    assert_eq!(decided.count(), 2, "the result, and that the item may go on");
}

/// Proves I-5, I-12: without a result a person may still skip the item, or begin an attempt that
/// applies the mutation again.
#[tokio::test]
async fn an_item_whose_result_is_lost_is_let_go_or_begun_anew() {
    let world = World::opaque();
    let (items, escalation) = too_large(&world).await;
    act(&items, &escalation, Action::Skip).await.unwrap();
    assert_eq!(items.drive("letters", None).await.unwrap().items, 1);
    let item = items.show("letters", "a").await.unwrap();
    assert_eq!((item.state, world.done().len()), (ItemState::Skipped, 1));

    let world = World::opaque();
    let (items, escalation) = too_large(&world).await;
    act(&items, &escalation, Action::Reprocess).await.unwrap();
    assert_eq!(items.drive("letters", None).await.unwrap().items, 1);
    let item = items.show("letters", "a").await.unwrap();
    assert_eq!((item.state, item.attempt, world.done().len()), (ItemState::Done, 2, 2));
}

/// Proves I-12: a mutation that happened according to a person has the person's result, and the
/// script goes on from there.
#[tokio::test]
async fn a_person_gives_the_result_of_an_unknown_mutation() {
    let world = World::opaque();
    let (items, escalation) = unknown(&world).await;
    let missing = act(&items, &escalation, Action::Happened).await;
    assert!(matches!(missing, Err(Error::Invalid(_))), "{missing:?}");
    let result = Json::object([("nth", Json::number(7))]);
    let (key, judged) = (escalation.key, escalation.judged);
    items.act(key, judged, Action::Happened, Some(&result), PERSON).await.unwrap();
    assert_eq!(items.drive("letters", None).await.unwrap().items, 1);
    assert_eq!(world.done().len(), 1, "not sent again");
    let record = items.hapax().effects().show(key).await.unwrap().unwrap();
    assert_eq!(record.state, hapax::State::Succeeded(Outcome::from("7")));
    let history =
        items.hapax().journal().history(escalation.unknown[0].mutation.key, 100).await.unwrap();
    let by_person = history.iter().find(|entry| entry.actor.is_some()).unwrap();
    assert_eq!(
        (by_person.actor.as_deref(), by_person.note.as_deref()),
        (Some("grace"), Some("I asked Ada"))
    );
}

/// Proves I-12: a mutation that did not happen is attempted again.
#[tokio::test]
async fn a_person_says_that_a_mutation_did_not_happen() {
    let world = World::opaque();
    let (items, escalation) = unknown(&world).await;
    act(&items, &escalation, Action::DidNotHappen).await.unwrap();
    assert_eq!(items.drive("letters", None).await.unwrap().items, 1);
    assert_eq!(world.done().len(), 2);
}

/// Proves I-12: try-again is only for tools that can look up the outcome.
#[tokio::test]
async fn a_retry_needs_a_probe() {
    let (items, escalation) = unknown(&World::opaque()).await;
    let refused = act(&items, &escalation, Action::TryAgain).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");

    let world = World::reconcilable();
    let (items, escalation) = unknown(&world).await;
    act(&items, &escalation, Action::TryAgain).await.unwrap();
    world.finds([Finding::Happened(Outcome::from("{\"nth\":1}"))]);
    assert_eq!(items.drive("letters", None).await.unwrap().items, 1);
    assert_eq!(world.done().len(), 1);
}

/// Proves I-9, I-12: a skipped item stays skipped. A new attempt is a person's decision, and leaves
/// the attempt before it as it was.
#[tokio::test]
async fn an_item_is_let_go_or_begun_anew() {
    let world = World::opaque();
    let (items, escalation) = unknown(&world).await;
    act(&items, &escalation, Action::Skip).await.unwrap();
    assert_eq!(items.drive("letters", None).await.unwrap().items, 1);
    let item = items.show("letters", "a").await.unwrap();
    assert_eq!((item.state, world.done().len()), (ItemState::Skipped, 1));

    let world = World::opaque();
    let (items, escalation) = unknown(&world).await;
    act(&items, &escalation, Action::Reprocess).await.unwrap();
    assert_eq!(items.drive("letters", None).await.unwrap().items, 1);
    let item = items.show("letters", "a").await.unwrap();
    assert_eq!((item.state, item.attempt, world.done().len()), (ItemState::Done, 2, 2));
    assert_eq!(items.mutations(item.key, 1).await.unwrap().len(), 1, "as it was");
    assert!(items.escalations(None, 10).await.unwrap().is_empty());
}

/// Proves I-12: a decision names the attempt that it is about; a decision about another one is
/// refused.
#[tokio::test]
async fn a_stale_screen_decides_nothing() {
    let world = World::opaque();
    let (items, escalation) = unknown(&world).await;
    let other = AttemptId::from_bytes([9; 16]);
    let refused = items.act(escalation.key, other, Action::Skip, None, PERSON).await;
    assert!(matches!(refused, Err(Error::Stale { .. })), "{refused:?}");
    act(&items, &escalation, Action::DidNotHappen).await.unwrap();
    let late = act(&items, &escalation, Action::Skip).await;
    assert!(late.is_err(), "{late:?}");
    assert_eq!(items.show("letters", "a").await.unwrap().state, ItemState::Failed);
}

/// Proves I-12: a decision that was cut off between an item and its mutations loses nothing: a
/// person is asked again, and an attempt that was given up asks for nothing.
#[tokio::test]
async fn a_decision_that_was_cut_off_is_asked_for_again() {
    let world = World::opaque();
    let (items, escalation) = unknown(&world).await;
    let (hapax, key, judged) = (items.hapax(), escalation.key, escalation.judged);
    let (item, did_not) = (PERSON, hapax::Resolution::DidNotHappen);
    let seen = hapax.effects().seen(key, judged).await.unwrap();
    hapax.effects().resolve(key, seen, did_not, item.0, item.1).await.unwrap();
    assert_eq!(items.reconcile().await.unwrap().escalated, 1);
    let again = until_escalated(&items).await;
    assert_eq!(again.unknown[0].mutation.key, escalation.unknown[0].mutation.key);

    let seen = hapax.effects().seen(key, again.judged).await.unwrap();
    hapax.effects().reset(key, seen, item.0, item.1).await.unwrap();
    assert_eq!(items.reconcile().await.unwrap().escalated, 0);
    assert_eq!(items.drive("letters", None).await.unwrap().items, 1);
    let item = items.show("letters", "a").await.unwrap();
    assert_eq!((item.state, item.attempt, world.done().len()), (ItemState::Done, 2, 2));
}

/// Proves I-12: the outbox gets one event for an escalation.
#[tokio::test]
async fn an_escalation_is_emitted_to_the_outbox() {
    let world = World::opaque();
    let hapax = Hapax::builder().in_memory();
    let items = items_on(hapax.clone(), &world);
    let outbox = OutboxConfig::new().sink("people", Deaf).unwrap();
    hapax.outbox().configure(&outbox.route("item-*", "*", &["people"]).unwrap()).await.unwrap();
    world.next([Next::Fail(Class::Permission)]);
    failed(drive(&items, ONE).await);
    failed(drive(&items, ONE).await);
    let filter = RecordFilter { limit: 10, ..RecordFilter::default() };
    let records = hapax.outbox().records(filter).await.unwrap();
    assert_eq!(records.len(), 1, "once");
    let event = &records[0].record.event;
    assert_eq!((event.name.as_str(), event.dataset.as_str()), (NEEDS_ATTENTION, "letters"));
    let payload = event.payload.as_str();
    assert!(payload.contains("\"item\":\"a\"") && payload.contains("try-again"), "{payload}");
}

/// How many events about escalations there are.
async fn count_events(hapax: &Hapax) -> usize {
    let filter = RecordFilter { limit: 10, ..RecordFilter::default() };
    hapax.outbox().records(filter).await.expect("records").len()
}

async fn listen(hapax: &Hapax) {
    let outbox = OutboxConfig::new().sink("people", Deaf).expect("a sink");
    let outbox = outbox.route("item-*", "*", &["people"]).expect("a route");
    hapax.outbox().configure(&outbox).await.expect("set up");
}

/// Sends one letter.
async fn send(run: Run) -> Result<(), String> {
    run.with_item("a", "Letter", async |item: Item| {
        item.call("mail", "send", &Json::object([("to", Json::text("ada"))])).await;
        Ok::<_, String>(Json::Null)
    })
    .await;
    Ok(())
}

/// Proves I-12, I-14: programs of one's own emit events about escalations as scripts do.
#[tokio::test]
async fn an_escalation_of_a_program_is_emitted_to_the_outbox() {
    let world = World::opaque();
    let hapax = Hapax::builder().in_memory();
    let items = items_on(hapax.clone(), &world);
    listen(&hapax).await;
    world.next([Next::Fail(Class::Permission)]);
    for _ in 0..2 {
        assert!(items.perform("letters", Version::FIRST, None, send).await.is_err());
        assert_eq!(count_events(&hapax).await, 1);
    }
}

/// Proves I-12: an event that was not emitted when an escalation was recorded is emitted while it
/// is open.
#[tokio::test]
async fn an_escalation_that_was_not_emitted_is_emitted_later() {
    let world = World::opaque();
    let hapax = Hapax::builder().in_memory();
    let items = items_on(hapax.clone(), &world);
    world.next([Next::Fail(Class::Permission)]);
    failed(drive(&items, ONE).await);
    listen(&hapax).await;
    assert_eq!(count_events(&hapax).await, 0, "no caller was there");
    failed(items.run("letters", None).await.map(|ran| ran.items));
    assert_eq!(count_events(&hapax).await, 1);
    items.emit_open_escalations(&mut BTreeSet::new()).await.unwrap();
    assert_eq!(count_events(&hapax).await, 1, "once");
}

/// Proves I-12: all open escalations are listed, the newest first and page by page, those about
/// items and those about runs.
#[tokio::test]
async fn the_newest_is_listed_first() {
    let world = World::opaque();
    let items = items(&world);
    world.next([Next::Fail(Class::Permission)]);
    failed(drive(&items, ONE).await);
    items.publish("notes", "throw new Error('no');", "ada").await.unwrap();
    assert!(items.drive("notes", None).await.is_err());
    let first = items.escalations_beyond(None, None, 1).await.unwrap();
    let second = items.escalations_beyond(None, first.next, 1).await.unwrap();
    let third = items.escalations_beyond(None, second.next, 1).await.unwrap();
    let workflows = [&first, &second].map(|page| page.escalations[0].workflow.as_str());
    assert_eq!((workflows, third.escalations.len(), third.next), (["notes", "letters"], 0, None));
}

struct Deaf;

impl Sink for Deaf {
    async fn send(&self, _: &[Delivery], _: &Acks) {}
}
