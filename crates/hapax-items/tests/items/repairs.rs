//! Scripts that are repaired.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hapax::Hapax;
use hapax::document::Object;
use hapax::json::Json;
use hapax_items::{
    Action, Budget, Class, Error, ItemState, Items, Maintainer, Settings, Standing, Version,
};

use crate::world::{Next, World, failed, settings};

/// A maintainer with these answers, and what it was shown.
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

fn maintained(world: &World, answers: &[String]) -> (Items, Arc<Mutex<Vec<Json>>>) {
    maintained_within(world, answers, settings("letters").budget)
}

fn maintained_within(
    world: &World,
    answers: &[String],
    budget: Budget,
) -> (Items, Arc<Mutex<Vec<Json>>>) {
    let shown = Arc::new(Mutex::new(Vec::new()));
    let answers = Mutex::new(answers.iter().rev().cloned().collect());
    let maintainer: Arc<dyn Maintainer> = Arc::new(Mender { answers, shown: shown.clone() });
    let settings = Settings { maintainer: Some(maintainer), budget, ..settings("letters") };
    let hapax = Hapax::builder().in_memory();
    let items = Items::new(hapax, vec![Arc::new(world.clone())], vec![settings]).expect("set up");
    (items, shown)
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

/// Proves I-11: a repair that passes the checks is a new minor version, and the run goes on with it;
/// what was applied stays applied.
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

/// Proves I-11: a repair that builds item ids or subkeys otherwise, uses another tool, does not read,
/// or fails again is refused; the maintainer is told why, until the budget is spent and a person is
/// asked.
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
    let refused = scripts.iter().filter(|script| script.standing == Standing::Refused).count();
    assert_eq!((refused, items.script("letters").await.unwrap().version), (3, Version::FIRST));
    let escalation = items.escalations(None, 10).await.unwrap().remove(0);
    assert_eq!(escalation.item.as_ref().map(|item| item.id.as_str()), Some("letter-b"));
    assert!(escalation.reason.contains("could not be repaired"), "{}", escalation.reason);
    assert_eq!(world.done().len(), 2);
}

/// Proves I-11: what may have dealt with items wrongly, and what is not classified, waits for a
/// person, with the items that it may concern.
#[tokio::test]
async fn an_impactful_repair_waits_for_approval() {
    for impact in ["potentially_impactful", "", "harmless, I swear"] {
        let world = World::opaque();
        let (items, _) = maintained(&world, &[answer(&mended(), impact)]);
        let waits = run(&items).await;
        assert!(matches!(waits, Err(Error::Attention { .. })), "{waits:?}");
        let scripts = items.scripts("letters").await.unwrap();
        let held = scripts.iter().find(|script| script.standing == Standing::Held).unwrap();
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

/// Proves I-10: what nobody knows never goes to repair.
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

/// Proves I-11: a maintainer is asked about each version, also by a run that goes on under its name.
#[tokio::test]
async fn an_answer_about_one_version_is_not_taken_for_another() {
    let world = World::opaque();
    let two = |script: &str| format!("{script}// two");
    let answers = [answer("not a script(", "safe"), answer(&two(&mended()), "safe")];
    let once = Budget { repairs: 1, ..settings("letters").budget };
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
