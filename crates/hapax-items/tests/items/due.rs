//! Work that goes on by itself: runs that were interrupted, and runs whose time has come. The tests
//! set the time and never wait for it.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use hapax::{Finding, Hapax, Outcome, Timestamp};
use hapax_items::{Action, Class, Due, Error, ItemState, Items, Settings, Version};

use crate::world::{Next, ONE, World, failed, items, items_on, settings};

fn at(text: &str) -> Timestamp {
    let time = humantime::parse_rfc3339(text).expect("a time");
    Timestamp(time.duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as i64)
}

fn due(run: &str) -> Vec<Due> {
    vec![Due { workflow: "letters".into(), run: run.into() }]
}

/// Proves I-10: a retry takes place also if the process that announced it is gone, under the run's
/// own id and not before its time.
#[tokio::test]
async fn a_missed_retry_is_made_by_a_node_that_is_alive() {
    let world = World::opaque();
    let items = items(&world);
    items.publish("letters", ONE, "ada").await.unwrap();
    world.next([Next::Fail(Class::Transient)]);
    // It fails, and no process drives it on.
    assert_eq!(failed(items.run("letters", Some("first")).await.map(|ran| ran.items)).1, "retry");
    let now = items.hapax().maintenance().wall().await.unwrap();
    assert_eq!(items.due(now).await.unwrap(), [], "the decision is given time");
    let later = now.plus_ms(60_000);
    assert_eq!(items.due(later).await.unwrap(), due("first"));
    assert_eq!(items.tick(later).await.unwrap(), 1);
    assert_eq!(items.show("letters", "a").await.unwrap().state, ItemState::Done);
    assert_eq!(items.runs("letters", None, 10).await.unwrap().len(), 1);
    assert_eq!(items.due(later).await.unwrap(), []);
}

/// Proves I-8: once the outcome of a mutation is known, the run that stopped at it goes on.
#[tokio::test]
async fn a_run_goes_on_when_what_it_stopped_at_is_found_out() {
    let world = World::reconcilable();
    let items = items(&world);
    items.publish("letters", ONE, "ada").await.unwrap();
    world.next([Next::HappenAnd(Class::Indeterminate)]);
    let ended = items.drive("letters", Some("first")).await.map(|ran| ran.items);
    assert_eq!(failed(ended).1, "reconcile");
    let later = items.hapax().maintenance().wall().await.unwrap().plus_ms(60_000);
    assert_eq!(items.due(later).await.unwrap(), []);
    let item = items.show("letters", "a").await.unwrap();
    let lost = items.mutations(item.key, 1).await.unwrap().remove(0);
    let hapax = items.hapax();
    let look = hapax.remote().look(lost.key).await.unwrap().unwrap();
    let finding = Finding::Happened(Outcome::from("{\"nth\":1}"));
    hapax.remote().found(lost.key, look, finding).await.unwrap();
    assert_eq!(items.tick(later).await.unwrap(), 1);
    assert_eq!(world.done().len(), 1);
    assert_eq!(items.show("letters", "a").await.unwrap().state, ItemState::Done);
}

/// A run whose process is gone is taken up by the next process; a run in progress is left alone.
#[tokio::test]
async fn a_run_whose_process_is_gone_is_taken_up() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("hapax.db");
    let world = World::opaque();
    let hapax = Hapax::open(&file).await.unwrap();
    let items = items_on(hapax.clone(), &world);
    items.publish("letters", ONE, "ada").await.unwrap();
    let (begun, running) = tokio::sync::oneshot::channel();
    let at_work = tokio::spawn({
        let items = items.clone();
        async move {
            let work = |_| async move {
                begun.send(()).unwrap();
                std::future::pending::<Result<(), String>>().await
            };
            items.perform("letters", Version::FIRST, Some("first"), work).await
        }
    });
    running.await.unwrap();
    let now = hapax.maintenance().wall().await.unwrap();
    assert_eq!(items.due(now).await.unwrap(), due("first"), "this process cannot know it");
    assert_eq!(items.tick(now).await.unwrap(), 0, "another node is at it");
    at_work.abort();
    assert!(at_work.await.is_err());
    hapax.close().await.unwrap();
    drop((items, hapax));

    let items = items_on(Hapax::open(&file).await.unwrap(), &world);
    assert_eq!(items.tick(now).await.unwrap(), 1);
    assert_eq!(items.show_run("letters", "first").await.unwrap().state, "succeeded");
    assert_eq!(world.done().len(), 1);
}

fn scheduled(hapax: Hapax, world: &World, schedule: &str) -> Result<Items, Error> {
    let settings = Settings { schedule: Some(schedule.into()), ..settings("letters") };
    Items::new(hapax, vec![Arc::new(world.clone())], vec![settings])
}

/// Proves I-14: a scheduled run happens once, on the node that comes first; of the runs that were
/// missed, the latest is made up for.
#[tokio::test]
async fn a_scheduled_run_happens_once_and_a_missed_one_is_made_up_for() {
    let world = World::opaque();
    let hapax = Hapax::builder().in_memory();
    let one = scheduled(hapax.clone(), &world, "0 6 * * *").unwrap();
    let other = scheduled(hapax, &world, "0 6 * * *").unwrap();
    assert_eq!(one.tick(at("2100-01-01T07:00:00Z")).await.unwrap(), 0, "there is no script");
    one.publish("letters", ONE, "ada").await.unwrap();
    assert_eq!(one.due(at("2020-01-01T07:00:00Z")).await.unwrap(), [], "that was before");
    let next = one.next_instant("letters", at("2100-01-01T05:59:59Z")).unwrap();
    assert_eq!(next, at("2100-01-01T06:00:00Z"));

    let first = at("2100-01-01T06:00:00Z");
    assert_eq!(one.due(first).await.unwrap(), due("scheduled:2100-01-01T06:00:00Z"));
    let (a, b) = tokio::join!(one.tick(first), other.tick(first));
    assert!(a.unwrap() + b.unwrap() >= 1);
    assert_eq!(other.due(at("2100-01-02T05:59:59Z")).await.unwrap(), []);
    assert_eq!(one.runs("letters", None, 10).await.unwrap().len(), 1);

    // No node was up for three days.
    let late = at("2100-01-05T12:00:00Z");
    assert_eq!(other.due(late).await.unwrap(), due("scheduled:2100-01-05T06:00:00Z"));
    assert_eq!(other.tick(late).await.unwrap(), 1);
    assert_eq!(one.due(late).await.unwrap(), []);
    let runs = one.runs("letters", None, 10).await.unwrap();
    let ids: Vec<_> = runs.iter().map(|run| run.id.as_str()).collect();
    assert_eq!(ids, ["scheduled:2100-01-05T06:00:00Z", "scheduled:2100-01-01T06:00:00Z"]);
    assert_eq!(world.done().len(), 1, "what is done stays done");
    assert!(scheduled(Hapax::builder().in_memory(), &world, "at dawn").is_err());
}

/// Proves I-14: a workflow whose run waits for a person's decision is not begun again and again.
#[tokio::test]
async fn nothing_is_scheduled_while_a_person_is_asked() {
    let world = World::opaque();
    let items = scheduled(Hapax::builder().in_memory(), &world, "* * * * *").unwrap();
    items.publish("letters", "await mail.send({ to: 'ada' });", "ada").await.unwrap();
    items.due(at("2100-01-01T06:00:00Z")).await.unwrap();
    assert_eq!(items.tick(at("2100-01-01T06:00:00Z")).await.unwrap(), 0);
    assert_eq!(items.count_escalations().await.unwrap(), 1);
    assert_eq!(items.due(at("2100-01-01T06:05:00Z")).await.unwrap(), []);
}

/// Proves I-12: a run that failed outside of any item goes on by itself once a person says so.
#[tokio::test]
async fn a_run_goes_on_when_a_person_says_so() {
    let world = World::opaque();
    let items = items(&world);
    items.publish("letters", &format!("await mail.inbox({{}});{ONE}"), "ada").await.unwrap();
    world.answers_not(Class::Permission);
    assert!(items.drive("letters", Some("r")).await.is_err());
    let now = at("2100-01-01T06:00:00Z");
    assert_eq!(items.due(now).await.unwrap(), []);
    let open = items.escalations(None, 1).await.unwrap().remove(0);
    let (key, judged) = (open.key, open.judged);
    items.act(key, judged, Action::TryAgain, None, ("ada", "allowed now")).await.unwrap();
    assert_eq!(items.due(now).await.unwrap(), due("r"));
    assert_eq!(items.tick(now).await.unwrap(), 1);
    assert_eq!((items.due(now).await.unwrap(), world.done().len()), (Vec::new(), 1));
}
