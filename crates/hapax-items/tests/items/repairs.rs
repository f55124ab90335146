//! Scripts that are repaired.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hapax::Hapax;
use hapax::document::Object;
use hapax::json::Json;
use hapax::outbox::{Acks, Delivery, OutboxConfig, RecordFilter, Sink};
use hapax_items::{
    Action, Class, Difference, Error, FailureBudget, Item, ItemState, Items, MAINTAINER,
    Maintainer, PLANNER, Run, Script, Settings, Version, VersionStatus,
};

use crate::world::{Next, ONE, World, drive, failed, settings};

/// A maintainer that gives these answers and keeps the evidence that it was shown.
struct Mender {
    answers: Mutex<Vec<String>>,
    shown: Arc<Mutex<Vec<Json>>>,
}

#[async_trait]
impl Maintainer for Mender {
    async fn propose(&self, _: &str, evidence: &str) -> Result<String, String> {
        let evidence = Json::parse(evidence.as_bytes()).expect("JSON");
        self.shown.lock().expect("no panic").push(evidence);
        self.answers.lock().expect("no panic").pop().ok_or_else(|| "out of ideas".to_owned())
    }
}

fn answer(script: &str, impact: &str) -> String {
    Object::default()
        .text("script", script)
        .text("impact", impact)
        .text("explanation", "a guard")
        .print()
}

fn paid_answer(script: &str, cost: u64) -> String {
    Object::default().text("script", script).text("impact", "safe").number("cost", cost).print()
}

fn maintained(world: &World, answers: &[String]) -> (Items, Arc<Mutex<Vec<Json>>>) {
    maintained_within(world, answers, settings("letters").budget)
}

fn maintained_within(
    world: &World,
    answers: &[String],
    budget: FailureBudget,
) -> (Items, Arc<Mutex<Vec<Json>>>) {
    let shown = Arc::new(Mutex::new(Vec::new()));
    let answers = Mutex::new(answers.iter().rev().cloned().collect());
    let maintainer: Arc<dyn Maintainer> = Arc::new(Mender { answers, shown: shown.clone() });
    let settings = Settings { maintainer: Some(maintainer), budget, ..settings("letters") };
    let hapax = Hapax::builder().in_memory();
    let items = Items::new(hapax, vec![Arc::new(world.clone())], vec![settings]).expect("set up");
    (items, shown)
}

/// The newest version of the script.
async fn newest(items: &Items) -> Script {
    items.scripts("letters").await.expect("versions").remove(0)
}

/// The same items, with a sink for their events.
async fn listened(items: Items) -> Items {
    let outbox = OutboxConfig::new().sink("people", Deaf).expect("a sink");
    let routed = outbox.route("item-*", "*", &["people"]).expect("a route");
    items.hapax().outbox().configure(&routed).await.expect("configured");
    items
}

struct Deaf;

impl Sink for Deaf {
    async fn send(&self, _: &[Delivery], _: &Acks) {}
}

/// The payloads of the events in the outbox.
async fn events(items: &Items) -> Vec<String> {
    let filter = RecordFilter { limit: 100, ..RecordFilter::default() };
    let records = items.hapax().outbox().records(filter).await.expect("records");
    records.iter().map(|entry| entry.record.event.payload.as_str().to_owned()).collect()
}

const FAULTY: &str = r#"
for (const id of await mail.inbox({})) {
    await withItem(`letter-${id}`, "Letter", async (ctx) => {
        if (ctx.item.isDone) return;
        await mail.send({ to: id, text: "hello", subkey: "greeting" });
        if (id === "b") ctx.nobody.knows();
    });
}
"#;

fn mended() -> String {
    FAULTY.replace("ctx.nobody.knows();", "ctx.nobody?.knows();")
}

async fn run(items: &Items) -> Result<usize, Error> {
    items.publish("letters", FAULTY, "ada").await?;
    items.drive("letters", None).await.map(|ran| ran.items)
}

/// Proves I-11: a repair that passes the checks is a new minor version, and the run goes on with
/// it; applied mutations stay applied.
#[tokio::test]
async fn a_sound_repair_is_used_at_once() {
    let world = World::opaque();
    let (items, shown) = maintained(&world, &[answer(&mended(), "safe")]);
    assert_eq!(run(&items).await.unwrap(), 2);
    assert_eq!(world.done().len(), 2, "{:?}", world.done());
    let script = items.script("letters").await.unwrap();
    assert_eq!(script.version, Version { major: 1, minor: 1 });
    assert_eq!(items.show("letters", "letter-b").await.unwrap().state, ItemState::Done);
    let evidence = shown.lock().unwrap().remove(0);
    for pointer in [
        "/instructions",
        "/script",
        "/failure/message",
        "/failure/stack",
        "/item/id",
        "/mutations/0/identity",
        "/tools/0/operations",
    ] {
        assert!(evidence.pointer(pointer).is_some(), "{pointer}");
    }
    assert!(evidence.pointer("/mutations/0/payload").is_none(), "what was sent is not shown");
}

/// Proves I-11: a repair that builds item ids or subkeys otherwise, uses another tool, cannot be
/// read, or fails again is refused; the maintainer learns why, until the budget is spent and a
/// person is asked.
#[tokio::test]
async fn an_unsound_repair_is_refused_and_the_budget_ends_the_loop() {
    let world = World::opaque();
    let hidden = mended().replace("`letter-${id}`", "`letter:${id}`");
    let subkey = mended().replace("greeting", "hello");
    let (items, shown) = maintained(
        &world,
        &[
            answer(&hidden, "safe"),
            answer(&subkey, "safe"),
            answer(FAULTY, "safe"),
            answer(&mended(), "safe"),
        ],
    );
    let (class, _, _) = failed(run(&items).await);
    assert_eq!(class, Class::Logic);
    let shown: Vec<_> = shown
        .lock()
        .unwrap()
        .iter()
        .map(|evidence| evidence.get("refused").and_then(Json::as_str).unwrap_or("-").to_owned())
        .collect();
    assert_eq!(shown.len(), 3, "three repairs are in the budget: {shown:?}");
    assert!(shown[1].contains("item id") || shown[1].contains("id"), "{}", shown[1]);
    let scripts = items.scripts("letters").await.unwrap();
    let refused = scripts.iter().filter(|script| script.status == VersionStatus::Refused).count();
    assert_eq!((refused, items.script("letters").await.unwrap().version), (3, Version::FIRST));
    let escalation = items.escalations(None, 10).await.unwrap().remove(0);
    assert_eq!(escalation.item.as_ref().map(|item| item.id.as_str()), Some("letter-b"));
    assert!(escalation.reason.contains("could not be repaired"), "{}", escalation.reason);
    assert_eq!(world.done().len(), 2);
}

/// Proves I-11: a repair after which items may have been treated wrongly, and one that is not
/// classified, wait for a person, with the items that they may concern.
#[tokio::test]
async fn an_impactful_repair_waits_for_approval() {
    for impact in ["potentially_impactful", "", "harmless, I swear"] {
        let world = World::opaque();
        let (items, _) = maintained(&world, &[answer(&mended(), impact)]);
        let waits = run(&items).await;
        assert!(matches!(waits, Err(Error::Attention { .. })), "{waits:?}");
        let scripts = items.scripts("letters").await.unwrap();
        let held = scripts.iter().find(|script| script.status == VersionStatus::Held).unwrap();
        let repair = held.repair.as_ref().unwrap();
        let mut radius = repair.blast_radius.clone();
        radius.sort();
        assert_eq!((repair.impactful, radius), (true, vec!["letter-a".into(), "letter-b".into()]));
        assert_eq!(items.script("letters").await.unwrap().version, Version::FIRST);
        let (version, attempt, person) = (held.version, held.attempt, ("ada", "looked at both"));
        items.decide_script("letters", version, attempt, true, person).await.unwrap();
        assert_eq!(items.drive("letters", None).await.unwrap().items, 2);
        assert_eq!(world.done().len(), 2);
    }
}

/// Proves I-10: an unknown outcome never goes to repair.
#[tokio::test]
async fn an_unknown_outcome_is_never_repaired() {
    let world = World::opaque();
    let (items, shown) = maintained(&world, &[answer(&mended(), "safe")]);
    world.next([Next::HappenAnd(Class::Indeterminate)]);
    let (class, next, _) = failed(run(&items).await);
    assert_eq!((class, next.as_str()), (Class::Indeterminate, "escalate"));
    assert!(shown.lock().unwrap().is_empty());
    let escalation = items.escalations(None, 10).await.unwrap().remove(0);
    assert!(escalation.actions.contains(&Action::DidNotHappen));
}

/// Proves I-11: a script that was published before and repaired since is not published again.
#[tokio::test]
async fn an_unchanged_script_goes_on_with_its_repair() {
    let world = World::opaque();
    let (items, shown) = maintained(&world, &[answer(&mended(), "safe")]);
    run(&items).await.unwrap();
    let repaired = Version { major: 1, minor: 1 };
    assert_eq!(items.publish("letters", FAULTY, "ada").await.unwrap(), repaired);
    assert_eq!(items.publish("letters", &mended(), "ada").await.unwrap(), repaired);
    assert_eq!(shown.lock().unwrap().len(), 1);
    let other = format!("{FAULTY}// other");
    assert_eq!(items.publish("letters", &other, "ada").await.unwrap().major, 2);
    assert_eq!(items.publish("letters", FAULTY, "ada").await.unwrap().major, 3);
}

/// Proves I-11: a maintainer is asked about each version, also by a run that goes on under its id.
#[tokio::test]
async fn an_answer_about_one_version_is_not_taken_for_another() {
    let world = World::opaque();
    let two = |script: &str| format!("{script}// two");
    let answers = [answer("not a script(", "safe"), answer(&two(&mended()), "safe")];
    let once = FailureBudget { repairs: 1, ..settings("letters").budget };
    let (items, shown) = maintained_within(&world, &answers, once);
    items.publish("letters", FAULTY, "ada").await.unwrap();
    let ended = items.drive("letters", Some("monday")).await.map(|ran| ran.items);
    assert_eq!(failed(ended).0, Class::Logic);
    let escalation = items.escalations(None, 9).await.unwrap().remove(0);
    let (key, judged) = (escalation.key, escalation.judged);
    items.act(key, judged, Action::TryAgain, None, ("grace", "mended")).await.unwrap();
    items.publish("letters", &two(FAULTY), "ada").await.unwrap();
    assert_eq!(items.drive("letters", Some("monday")).await.unwrap().items, 2);
    assert_eq!(shown.lock().unwrap().len(), 2);
    assert_eq!(items.script("letters").await.unwrap().version, Version { major: 2, minor: 1 });
}

/// Proves I-2, I-11: a mutation on an item that is done or skipped goes to repair. Without a usable
/// repair a person is asked about the run, for nothing is left to decide about the item.
#[tokio::test]
async fn a_mutation_on_a_done_item_goes_to_repair_and_then_to_a_person() {
    for skipped in [false, true] {
        let world = World::opaque();
        let (items, shown) = maintained(&world, &[]);
        let items = listened(items).await;
        if skipped {
            world.next([Next::Fail(Class::Permission)]);
        }
        let ended = drive(&items, ONE).await;
        let state = match skipped {
            true => {
                let open = items.escalations(None, 9).await.unwrap().remove(0);
                let skip = Action::Skip;
                items.act(open.key, open.judged, skip, None, ("ada", "no")).await.unwrap();
                ItemState::Skipped
            }
            false => ItemState::Done,
        };
        assert_eq!(ended.is_err(), skipped);
        let before = events(&items).await.len();

        let careless = r#"await withItem("a", "Delivery", async () => mail.send({ to: "ada" }));"#;
        let (class, next, message) = failed(drive(&items, careless).await);
        assert_eq!((class, next.as_str()), (Class::Logic, "repair"), "{message}");
        assert_eq!(shown.lock().unwrap().len(), 3, "the budget");
        let open = items.escalations(None, 9).await.unwrap();
        assert_eq!(open.len(), 1, "{skipped}");
        assert!(open[0].item.is_none() && open[0].run.is_some());
        assert!(open[0].reason.contains("could not be repaired"), "{}", open[0].reason);
        let events = events(&items).await;
        assert_eq!(events.len(), before + 1);
        let event = events.iter().find(|event| event.contains("could not be repaired")).unwrap();
        assert!(event.contains(&open[0].key.to_string()) && event.contains("try-again"), "{event}");
        assert_eq!(items.show("letters", "a").await.unwrap().state, state);
        assert_eq!(world.done().len(), usize::from(!skipped));
    }
}

/// Proves I-11: a repair that the records cannot judge waits for a person, even if its maintainer
/// calls it safe, with the items that it may concern; an event is emitted.
#[tokio::test]
async fn a_repair_that_cannot_be_judged_waits_with_the_items_it_may_concern() {
    let world = World::opaque();
    let changed_read = format!("await mail.inbox({{ all: true }});{}", mended());
    let (items, _) = maintained(&world, &[answer(&changed_read, "safe")]);
    let items = listened(items).await;
    let waits = run(&items).await;
    assert!(matches!(waits, Err(Error::Attention { .. })), "{waits:?}");
    let held = newest(&items).await;
    assert_eq!(held.status, VersionStatus::Held);
    assert!(
        held.reason.as_deref().unwrap().contains("with arguments that no recorded call had"),
        "{held:?}"
    );
    let repair = held.repair.unwrap();
    let mut radius = repair.blast_radius;
    radius.sort();
    assert_eq!((repair.impactful, radius), (false, vec!["letter-a".into(), "letter-b".into()]));
    let again = items.drive("letters", None).await;
    assert!(matches!(again, Err(Error::Attention { .. })), "{again:?}");
    let events = events(&items).await;
    assert_eq!(events.len(), 1, "once");
    for part in ["a repair waits for approval", "\"1.1\"", "approve", &held.attempt.to_string()] {
        assert!(events[0].contains(part), "{part}: {}", events[0]);
    }
}

/// Proves I-11: a repair that a person rejects is never used; the maintainer is asked for another.
#[tokio::test]
async fn a_rejected_repair_is_never_used() {
    let world = World::opaque();
    let other = format!("{}// other", mended());
    let answers = [answer(&mended(), "potentially_impactful"), answer(&other, "safe")];
    let (items, shown) = maintained(&world, &answers);
    assert!(run(&items).await.is_err());
    let held = newest(&items).await;
    let reject = async |attempt| {
        let person = ("ada", "it greets the wrong people");
        items.decide_script("letters", held.version, attempt, false, person).await
    };
    let stale = reject(hapax::AttemptId::from_bytes([9; 16])).await;
    assert!(matches!(stale, Err(Error::Stale { .. })), "{stale:?}");
    assert_eq!(newest(&items).await.status, VersionStatus::Held);
    reject(held.attempt).await.unwrap();
    assert_eq!(newest(&items).await.status, VersionStatus::Rejected);
    assert_eq!(items.script("letters").await.unwrap().version, Version::FIRST);
    let late =
        items.decide_script("letters", held.version, held.attempt, true, ("ada", "or not")).await;
    assert!(late.is_err(), "what is decided stays decided");
    assert_eq!(items.drive("letters", None).await.unwrap().items, 2);
    assert_eq!(shown.lock().unwrap().len(), 2);
    assert_eq!(items.script("letters").await.unwrap().version, Version { major: 1, minor: 2 });
    assert_eq!(world.done().len(), 2, "{:?}", world.done());
}

/// Proves I-11: a repair is tried against the records. A repair that would do something again or
/// otherwise is refused; one that the records cannot judge waits for a person.
#[tokio::test]
async fn a_repair_is_tried_against_what_is_recorded() {
    let replaced = |what: &str, by: &str| {
        assert!(FAULTY.contains(what), "{what}");
        mended().replace(what, by)
    };
    let (refused, held) = (VersionStatus::Refused, VersionStatus::Held);
    for (proposal, status, why) in [
        (
            replaced("to: id,", "to: `${id}@example.org`,"),
            refused,
            "mail.send was applied for \"letter-b\"; it would be left out, or applied again",
        ),
        (
            replaced("\"hello\"", "\"good day\""),
            refused,
            "mail.send was applied for \"letter-b\" with another payload",
        ),
        (
            replaced("await withItem", "if (id === \"a\") continue;\n    await withItem"),
            refused,
            "it comes to item \"letter-b\" in place of \"letter-a\"",
        ),
        (
            replaced("if (ctx.item.isDone) return;", ""),
            refused,
            "mail.send on \"letter-a\", which is done",
        ),
        (
            replaced("await mail.send", "await mail.inbox({ of: id });\n        await mail.send"),
            held,
            "it calls mail.inbox with arguments that no recorded call had",
        ),
        (
            replaced("await withItem", "if (id === \"b\") continue;\n    await withItem"),
            held,
            "it no longer comes to item \"letter-b\"",
        ),
        (
            replaced("await mail.send", "if (id === \"b\") return;\n        await mail.send"),
            refused,
            "mail.send was applied for \"letter-b\"; it would be left out, and the item be done",
        ),
        (FAULTY.to_owned(), refused, "it still fails"),
    ] {
        let world = World::opaque();
        let once = FailureBudget { repairs: 1, ..settings("letters").budget };
        let (items, _) = maintained_within(&world, &[answer(&proposal, "safe")], once);
        assert!(run(&items).await.is_err());
        let newest = newest(&items).await;
        let reason = newest.reason.unwrap_or_default();
        assert_eq!(newest.status, status, "{reason}");
        assert!(reason.contains(why), "{reason}, not: {why}");
        assert_eq!(world.done().len(), 2, "a trial changes nothing");
    }
}

/// Proves I-6, I-11: a tool that stalls over two payloads does not hold up the trial of a repair,
/// and the difference counts as significant.
#[tokio::test]
async fn a_trial_does_not_wait_for_a_comparison() {
    let world = World::opaque();
    world.compares(|| {
        std::thread::sleep(std::time::Duration::from_secs(60));
        Difference::Equivalent
    });
    let once = FailureBudget { repairs: 1, ..settings("letters").budget };
    let proposal = mended().replace("\"hello\"", "\"good day\"");
    let (items, _) = maintained_within(&world, &[answer(&proposal, "safe")], once);
    let began = std::time::Instant::now();
    assert!(run(&items).await.is_err());
    assert!(began.elapsed() < std::time::Duration::from_secs(30));
    let newest = newest(&items).await;
    let reason = newest.reason.unwrap_or_default();
    assert_eq!(newest.status, VersionStatus::Refused, "{reason}");
    assert!(reason.contains("with another payload"), "{reason}");
}

/// Proves I-10: the costs of maintainers are added up and end the loop; costs from before the time
/// of the budget do not count.
#[tokio::test]
async fn the_cost_of_repairs_is_added_up_within_a_period() {
    let world = World::opaque();
    let budget = FailureBudget { repairs: 100, repair_cost: 3_000, ..settings("letters").budget };
    let bad: Vec<_> = (0..9).map(|n| paid_answer(&format!("{FAULTY}// {n}"), 2)).collect();
    let (items, shown) = maintained_within(&world, &bad, budget);
    assert_eq!(failed(run(&items).await).0, Class::Logic);
    assert_eq!(shown.lock().unwrap().len(), 2, "2 and 2 are more than 3");
    let escalation = items.escalations(None, 9).await.unwrap().remove(0);
    let (key, judged) = (escalation.key, escalation.judged);
    items.act(key, judged, Action::TryAgain, None, ("grace", "once more")).await.unwrap();
    let (_, next, _) = failed(items.drive("letters", None).await.map(|ran| ran.items));
    assert_eq!((next.as_str(), shown.lock().unwrap().len()), ("escalate", 2), "still spent");

    // For a budget that reaches less far back, all of that is over.
    let forgetful = FailureBudget { repair_ms: 0, ..budget };
    let good = [paid_answer(&mended(), 2)];
    let (other, shown) = maintained_within(&world, &good, forgetful);
    let other = other.on(items.hapax().clone());
    let made = newest(&items).await.made;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while items.hapax().maintenance().wall().await.unwrap() <= made.plus_ms(1) {
        assert!(std::time::Instant::now() < deadline, "the clock goes on");
        tokio::task::yield_now().await;
    }
    let escalation = other.escalations(None, 9).await.unwrap().remove(0);
    let (key, judged) = (escalation.key, escalation.judged);
    other.act(key, judged, Action::TryAgain, None, ("grace", "once more")).await.unwrap();
    assert_eq!(other.drive("letters", None).await.unwrap().items, 2);
    assert_eq!(shown.lock().unwrap().len(), 1);
}

/// Proves I-12: a run that failed outside of any item emits one event.
#[tokio::test]
async fn a_run_that_failed_is_emitted_to_the_outbox() {
    let world = World::opaque();
    let items = listened(crate::world::items(&world)).await;
    failed(drive(&items, "await mail.send({ to: 'ada' });").await);
    assert!(items.drive("letters", None).await.is_err());
    let events = events(&items).await;
    assert_eq!(events.len(), 1, "once");
    let run = items.escalations(None, 9).await.unwrap().remove(0);
    for part in ["outside of any item", "\"letters\"", "try-again", "skip", &run.key.to_string()] {
        assert!(events[0].contains(part), "{part}: {}", events[0]);
    }
    assert!(!events[0].contains("\"item\""), "{}", events[0]);
}

/// Proves I-11: the items that a held repair may concern are counted when it is shown, because the
/// faulty version stays in use until then.
#[tokio::test]
async fn items_that_a_held_repair_may_concern_are_counted_when_it_is_shown() {
    let world = World::opaque();
    let (items, _) = maintained(&world, &[answer(&mended(), "potentially_impactful")]);
    assert!(run(&items).await.is_err());
    let radius = async || {
        let shown = items.scripts_shown("letters").await.unwrap().remove(0);
        assert_eq!(shown.status, VersionStatus::Held);
        let repair = shown.repair.unwrap();
        (repair.blast_radius.len(), repair.blast_radius_cut)
    };
    assert_eq!(radius().await, (2, false));
    let more = async |count: usize| {
        let work = |run: Run| async move {
            for n in 0..count {
                let handler = async |_: Item| Ok::<_, String>(Json::Null);
                run.with_item(&format!("more-{n}"), "", handler).await;
            }
            Ok::<_, String>(())
        };
        items.perform("letters", Version::FIRST, None, work).await.unwrap();
    };
    more(1).await;
    assert_eq!(radius().await, (3, false));
    more(999).await;
    assert_eq!(radius().await, (1_000, true));
}

/// Proves I-11: the instructions for agents that write and repair scripts ask for guards on
/// `isDone` and for subkeys that stay as they are, and a maintainer is shown them.
#[tokio::test]
async fn the_instructions_ask_for_guards_and_stable_subkeys() {
    let guard = "if (ctx.item.isDone) return;";
    assert!(PLANNER.contains(guard) && MAINTAINER.contains(guard));
    assert!(PLANNER.contains("`subkey` each, which says what it is for"));
    assert!(PLANNER.contains("Never a number, a time or an order."));
    assert!(MAINTAINER.contains("a `subkey` is added, removed or built in any other way"));
    let (items, shown) = maintained(&World::opaque(), &[answer(&mended(), "safe")]);
    run(&items).await.unwrap();
    let shown = &shown.lock().unwrap()[0];
    assert_eq!(shown.get("instructions").and_then(Json::as_str), Some(MAINTAINER));
}
