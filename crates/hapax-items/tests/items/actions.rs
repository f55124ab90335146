//! What people decide.

use expect_test::expect;
use hapax::json::Json;
use hapax::outbox::{Letter, Outbox, RecordFilter, Sink, Told};
use hapax::{AttemptId, Finding, Outcome};
use hapax_items::{Action, Class, Error, Escalation, ItemState, Items, NEEDS_ATTENTION};

use crate::world::{Next, ONE, World, drive, failed, items};

const PERSON: (&str, &str) = ("grace", "I asked Ada");

/// An item whose letter may have been sent, and nobody can tell.
async fn unknown(world: &World) -> (Items, Escalation) {
    let items = items(world);
    world.next([Next::HappenAnd(Class::Indeterminate)]);
    failed(drive(&items, ONE).await);
    loop {
        if let Some(escalation) = items.escalations(None, 10).await.expect("a list").pop() {
            return (items, escalation);
        }
        assert!(items.run("letters", None).await.is_err());
    }
}

async fn act(items: &Items, on: &Escalation, action: Action) -> Result<(), Error> {
    items.act(on.key, on.judged, action, None, PERSON).await
}

/// Proves I-13: which mutation, what was tried, why its outcome is unknown, whether it can be
/// verified, and what to check by hand.
#[tokio::test]
async fn an_escalation_explains_itself() {
    let (_, escalation) = unknown(&World::opaque()).await;
    let explained = &escalation.unknown[0];
    let actions: Vec<_> = escalation.actions.iter().map(|action| action.as_str()).collect();
    let text = format!(
        "{}\n{}\n{}\n{}\n{}\n{}",
        escalation.reason,
        explained.tried,
        explained.why,
        explained.verify,
        explained.check,
        actions.join(", ")
    );
    expect![[r#"
        indeterminate: mail.send: whether it happened is not known: the line went dead
        mail.send of smtp://example.org was attempted once
        the line went dead
        mail has no way to look it up
        whether a letter to ada is in the Sent folder
        did-not-happen, happened, skip, reprocess"#]]
    .assert_eq(&text);
}

/// Proves I-12: what a person says happened is applied with the person's result, and the script goes
/// on from there.
#[tokio::test]
async fn it_happened_with_this_result() {
    let world = World::opaque();
    let (items, escalation) = unknown(&world).await;
    let missing = act(&items, &escalation, Action::Happened).await;
    assert!(matches!(missing, Err(Error::Invalid(_))), "{missing:?}");
    let result = Json::object([("nth", Json::number(7))]);
    let (key, judged) = (escalation.key, escalation.judged);
    items.act(key, judged, Action::Happened, Some(&result), PERSON).await.unwrap();
    assert_eq!(items.drive("letters", None).await.unwrap().items, 1);
    assert_eq!(world.done().len(), 1, "not sent again");
    let record = items.hapax().show(key).await.unwrap().unwrap();
    assert_eq!(record.state, hapax::State::Succeeded(Outcome::from("7")));
    let history = items.hapax().history(escalation.unknown[0].mutation.key, 100).await.unwrap();
    let by_person = history.iter().find(|entry| entry.actor.is_some()).unwrap();
    assert_eq!(
        (by_person.actor.as_deref(), by_person.note.as_deref()),
        (Some("grace"), Some("I asked Ada"))
    );
}

/// Proves I-12: what did not happen is attempted again.
#[tokio::test]
async fn it_did_not_happen() {
    let world = World::opaque();
    let (items, escalation) = unknown(&world).await;
    act(&items, &escalation, Action::DidNotHappen).await.unwrap();
    assert_eq!(items.drive("letters", None).await.unwrap().items, 1);
    assert_eq!(world.done().len(), 2);
}

/// Proves I-12: trying again is for those who can look.
#[tokio::test]
async fn trying_again_needs_somebody_who_can_look() {
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

/// Proves I-9, I-12: an item that was let go stays so, and a new attempt is a person's decision that
/// leaves the one before as it was.
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

/// Proves I-12: a decision names what it is about; one that was made about something else is refused.
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

/// Proves I-12: whoever listens to the outbox hears of an escalation, once.
#[tokio::test]
async fn an_escalation_is_told_through_the_outbox() {
    let world = World::opaque();
    let hapax = hapax::Hapax::builder().in_memory();
    let items = crate::world::items_on(hapax.clone(), &world);
    let outbox = Outbox::new().sink("people", Deaf).unwrap();
    hapax.configure(&outbox.route("item-*", "*", &["people"]).unwrap()).await.unwrap();
    world.next([Next::Fail(Class::Permission)]);
    failed(drive(&items, ONE).await);
    failed(drive(&items, ONE).await);
    let filter = RecordFilter { limit: 10, ..RecordFilter::default() };
    let told = hapax.records(filter).await.unwrap();
    assert_eq!(told.len(), 1, "once");
    let event = &told[0].record.event;
    assert_eq!((event.name.as_str(), event.dataset.as_str()), (NEEDS_ATTENTION, "letters"));
    let payload = event.payload.as_str();
    assert!(payload.contains("\"item\":\"a\"") && payload.contains("try-again"), "{payload}");
}

struct Deaf;

impl Sink for Deaf {
    async fn send(&self, _: &[Letter], _: &Told) {}
}
