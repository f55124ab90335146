//! Scripts that attack the host, from their first line to the escalation.

use std::sync::Arc;
use std::time::Duration;

use hapax::Hapax;
use hapax_items::{Class, ItemState, Items, Limits, Settings};

use crate::world::{ONE, World, drive, failed, settings};

/// Hostile code, and a part of the failure's message.
const HOSTILE: [(&str, &str); 8] = [
    ("for (;;) {}", "the script ran for too long"),
    ("try { for (;;) {} } finally { for (;;) {} }", "the script ran for too long"),
    ("for (;;) await null;", "the script ran for too long"),
    (
        "const all = []; for (;;) all.push(new Array(4096).fill(7));",
        "the script used too much memory",
    ),
    ("let s = 'x'; for (;;) s += s;", ""),
    ("const deep = () => deep() + 1; deep();", "the script went too deep"),
    ("for (;;) await mail.inbox({});", "too often"),
    ("await new Promise(() => {});", "the script waits for something that never comes"),
];

fn guarded(world: &World) -> Items {
    guarding(world, &["letters".to_owned()])
}

fn guarding(world: &World, workflows: &[String]) -> Items {
    let limits = Limits {
        cpu: Duration::from_millis(300),
        memory_bytes: 8 << 20,
        calls: 50,
        ..Limits::default()
    };
    let limited = |name: &String| Settings { limits: limits.clone(), ..settings(name) };
    let tools: Vec<Arc<dyn hapax_items::Tool>> = vec![Arc::new(world.clone())];
    let settings = workflows.iter().map(limited).collect();
    Items::new(Hapax::builder().in_memory(), tools, settings).expect("set up")
}

/// Proves I-14: even if more scripts run than there are threads, the scripts beside one that loops
/// come to their ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_script_holds_up_those_beside_it_and_no_more() {
    let world = World::opaque();
    let workflows: Vec<String> = (0..100).map(|nth| format!("w{nth}")).collect();
    let items = guarding(&world, &workflows);
    let is_hostile = |nth: usize| nth.is_multiple_of(10);
    for (nth, name) in workflows.iter().enumerate() {
        let trick = if is_hostile(nth) { "for (;;) {}" } else { "" };
        let script = format!(
            "await withItem('x', 'Item', async () => {{ await mail.send({{ to: '{name}' }}); {trick} }});"
        );
        items.publish(name, &script, "ada").await.unwrap();
    }
    let runs: Vec<_> = workflows
        .into_iter()
        .map(|name| {
            let items = items.clone();
            tokio::spawn(async move { items.run(&name, None).await })
        })
        .collect();
    for (nth, run) in runs.into_iter().enumerate() {
        let ended = run.await.unwrap();
        assert_eq!(ended.is_err(), is_hostile(nth), "w{nth}: {ended:?}");
    }
    assert_eq!(world.done().len(), 100);
}

/// Proves I-7, I-10, I-14: a script that loops, exhausts memory, calls without end or waits for
/// ever fails with the class `logic`. A person is asked about its item, applied mutations stay, and
/// the host goes on with the next script.
#[tokio::test]
async fn a_hostile_script_fails_as_a_mistake_and_its_item_comes_before_a_person() {
    for (trick, message_part) in HOSTILE {
        let world = World::opaque();
        let items = guarded(&world);
        let script = format!(
            "await withItem('h', 'Hostile', async (ctx) => {{ if (ctx.item.isDone) return; await mail.send({{ to: 'h' }}); {trick} }});"
        );
        let (class, next, message) = failed(drive(&items, &script).await);
        assert_eq!((class, next.as_str()), (Class::Logic, "escalate"), "{trick}: {message}");
        assert!(message.contains(message_part), "{trick}: {message}");
        let item = items.show("letters", "h").await.unwrap();
        assert_eq!(item.state, ItemState::NeedsAttention, "{trick}");
        let open = items.escalations(None, 10).await.unwrap();
        assert_eq!(open.len(), 1, "{trick}");
        assert_eq!(open[0].key, item.key, "{trick}");
        assert!(open[0].reason.contains(&message), "{trick}: {}", open[0].reason);
        assert_eq!(drive(&items, ONE).await.unwrap(), 1, "the host is unharmed by {trick}");
        assert_eq!(world.done().len(), 2, "{trick}");
    }
}

/// Proves I-10, I-14: outside of any item, such a script leads to an escalation of the run.
#[tokio::test]
async fn a_hostile_script_outside_of_items_comes_before_a_person_as_a_run() {
    for (trick, message_part) in HOSTILE {
        let world = World::opaque();
        let items = guarded(&world);
        let (class, next, message) = failed(drive(&items, trick).await);
        assert_eq!((class, next.as_str()), (Class::Logic, "escalate"), "{trick}: {message}");
        assert!(message.contains(message_part), "{trick}: {message}");
        let open = items.escalations(None, 10).await.unwrap();
        assert_eq!(open.len(), 1, "{trick}");
        assert!(open[0].item.is_none() && open[0].run.is_some(), "{trick}");
        assert!(open[0].reason.contains(&message), "{trick}: {}", open[0].reason);
    }
}
