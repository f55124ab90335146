//! Events from the settle to their sinks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hapax::outbox::{
    Acks, Delivery, Dispatcher, Event, OnExhausted, Order, OutboxConfig, Payload, Policy,
    RecordFilter, Redrive, Retryability, Sink, SinkName, SinkSettings, Status,
};
use hapax::{Backoff, Error, Failure, Hapax, Namespace, StateName};
use tokio::sync::Notify;

use super::{Dir, LONG, key, ok, state};

/// A sink that keeps its deliveries, and can be made to refuse them.
#[derive(Clone, Default)]
struct Shelf(Arc<Inside>);

#[derive(Default)]
struct Inside {
    arrived: Mutex<Vec<(String, u64)>>,
    tries: AtomicUsize,
    /// Datasets that it refuses, and why.
    refuses: Mutex<HashMap<String, Retryability>>,
    down: AtomicBool,
    came: Notify,
}

impl Shelf {
    fn arrived(&self) -> Vec<(String, u64)> {
        self.0.arrived.lock().expect("no panic").clone()
    }

    fn of(&self, dataset: &str) -> Vec<u64> {
        self.arrived().into_iter().filter(|(d, _)| d == dataset).map(|(_, n)| n).collect()
    }

    fn refuse(&self, dataset: &str, retryability: Option<Retryability>) {
        let mut refuses = self.0.refuses.lock().expect("no panic");
        match retryability {
            Some(retryability) => refuses.insert(dataset.into(), retryability),
            None => refuses.remove(dataset),
        };
    }

    fn tries(&self) -> usize {
        self.0.tries.load(Ordering::SeqCst)
    }

    async fn has(&self, count: usize) {
        let wait = async {
            loop {
                let came = self.0.came.notified();
                if self.arrived().len() >= count {
                    return;
                }
                came.await;
            }
        };
        // The breaker of a sink that was down stays open for up to half a minute.
        tokio::time::timeout(LONG * 10, wait).await.expect("they come");
    }
}

impl Sink for Shelf {
    async fn send(&self, deliveries: &[Delivery], acks: &Acks) {
        let mut stuck = Vec::new();
        for (nth, delivery) in deliveries.iter().enumerate() {
            if stuck.contains(&delivery.ordering_hash) {
                continue;
            }
            self.0.tries.fetch_add(1, Ordering::SeqCst);
            let event = &delivery.record.event;
            let retryability = match self.0.down.load(Ordering::SeqCst) {
                true => Some(Retryability::SinkDown),
                false => self.0.refuses.lock().expect("no panic").get(&event.dataset).copied(),
            };
            match retryability {
                Some(retryability) => {
                    stuck.push(delivery.ordering_hash);
                    acks.refused(nth, "the shelf is full", retryability);
                }
                None => {
                    let n = event.payload.as_str().parse().expect("a number");
                    let arrived = (event.dataset.clone(), n);
                    self.0.arrived.lock().expect("no panic").push(arrived);
                    acks.delivered(nth);
                    self.0.came.notify_one();
                }
            }
        }
    }

    fn remembers(&self) -> Option<Duration> {
        Some(Duration::from_secs(3600))
    }
}

fn outbox(shelf: &Shelf, policy: Policy) -> OutboxConfig {
    let settings = SinkSettings { policy, ..SinkSettings::default() };
    let outbox = OutboxConfig::new().sink_with("shelf", shelf.clone(), settings).expect("a name");
    outbox.route("*", "*", &["shelf"]).expect("a name")
}

fn hasty(on_exhausted: OnExhausted) -> Policy {
    let backoff = Backoff { base_ms: 1, cap_ms: 2, attempts: u32::MAX };
    Policy { backoff, on_exhausted, ..Policy::default() }
}

async fn dispatcher(hapax: &Hapax, shelf: &Shelf, policy: Policy) -> Dispatcher {
    hapax.outbox().dispatch(outbox(shelf, policy)).await.expect("a dispatcher")
}

fn event(dataset: &str, n: u64) -> Event {
    Event::new("counted", dataset, Payload::parse(n.to_string().as_bytes()).expect("JSON"))
}

/// Runs effect `n`, which emits its number to these datasets.
async fn emit(hapax: &Hapax, n: u8, datasets: &[&str]) {
    let events: Vec<_> = datasets.iter().map(|dataset| event(dataset, n.into())).collect();
    let run = hapax.effect(key(n)).run(|claim| async move {
        for event in events {
            claim.emit(event)?;
        }
        ok("emitted")
    });
    run.await.expect("done");
}

async fn idle(dispatcher: &Dispatcher) {
    tokio::time::timeout(LONG, dispatcher.idle()).await.expect("it comes to rest");
}

/// Proves O-2, O-4, O-6: deliveries arrive in order, each once, and are dispatched when the sink has them.
#[tokio::test]
async fn events_arrive_in_order_and_once() {
    let dir = Dir::new();
    let hapax = dir.open().await;
    let shelf = Shelf::default();
    let dispatcher = dispatcher(&hapax, &shelf, Policy::default()).await;
    for n in 0..40 {
        emit(&hapax, n, &["flow", "rain"]).await;
        emit(&hapax, n, &["flow", "rain"]).await;
    }
    idle(&dispatcher).await;
    assert_eq!(shelf.of("flow"), (0..40).collect::<Vec<_>>());
    assert_eq!(shelf.of("rain"), (0..40).collect::<Vec<_>>());
    let all = RecordFilter { limit: 100, ..RecordFilter::default() };
    let records = hapax.outbox().records(all).await.unwrap();
    assert_eq!(records.len(), 80);
    assert!(records.iter().all(|found| found.status == Status::Dispatched));
    assert!(hapax.outbox().record(records[7].record.id).await.unwrap().is_some());
    assert_eq!(dispatcher.status().delivered, 80);
    dispatcher.stop().await.unwrap();
    // Events without a dispatcher wait, and are not lost.
    emit(&hapax, 41, &["flow"]).await;
    hapax.close().await.unwrap();
    let hapax = dir.open().await;
    let dispatcher = self::dispatcher(&hapax, &shelf, Policy::default()).await;
    shelf.has(81).await;
    dispatcher.stop().await.unwrap();
}

/// Proves O-4: two dispatchers with one lease would both own its buckets, so a ledger has one.
#[tokio::test]
async fn a_ledger_has_one_dispatcher_at_a_time() {
    let (hapax, shelf) = (Hapax::builder().in_memory(), Shelf::default());
    let first = dispatcher(&hapax, &shelf, Policy::default()).await;
    let second = hapax.outbox().dispatch(outbox(&shelf, Policy::default())).await;
    assert!(matches!(second, Err(Error::Unsupported(_))));
    first.stop().await.expect("stopped");
    dispatcher(&hapax, &shelf, Policy::default()).await.stop().await.expect("stopped");
}

/// A dispatcher that ended with its runtime is no reason to refuse another.
#[test]
fn a_dispatcher_that_ended_with_its_runtime_is_replaced() {
    let (hapax, shelf) = (Hapax::builder().in_memory(), Shelf::default());
    for _ in 0..2 {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let dispatcher = runtime.block_on(dispatcher(&hapax, &shelf, Policy::default()));
        // Shuts the runtime down, and with it the dispatcher's task, which was not asked to stop.
        drop(runtime);
        drop(dispatcher);
    }
}

/// A new follower gets events, although the task that reads them ended with its runtime.
#[test]
fn a_process_follows_again_after_its_runtime_ended() {
    let hapax = Hapax::builder().in_memory();
    let follow = async |n| {
        hapax.outbox().configure(&outbox(&Shelf::default(), Policy::default())).await.expect("set");
        let mut following = hapax.outbox().follow("*", "*").await.expect("a follower");
        emit(&hapax, n, &["flow"]).await;
        let next = tokio::time::timeout(LONG, following.next()).await.expect("it comes");
        assert_eq!(next.expect("nothing missed").event.payload.as_str(), n.to_string());
    };
    for n in 0..2 {
        tokio::runtime::Runtime::new().expect("a runtime").block_on(follow(n));
    }
}

/// Proves O-4, O-6: a failed delivery stops its own ordering key until it is redriven; then all follow.
#[tokio::test]
async fn a_poisoned_event_parks_its_own_key() {
    let dir = Dir::new();
    let hapax = dir.open().await;
    let shelf = Shelf::default();
    shelf.refuse("flow", Some(Retryability::Perhaps));
    let dispatcher = dispatcher(&hapax, &shelf, hasty(OnExhausted::Park)).await;
    for n in 0..5 {
        emit(&hapax, n, &["flow", "rain"]).await;
    }
    idle(&dispatcher).await;
    assert_eq!((shelf.of("rain").len(), shelf.of("flow").len()), (5, 0));
    assert_eq!(shelf.tries(), 5 + 5, "five tries of the first, and none of those behind it");
    let failed = RecordFilter { status: Some(Status::Failed), limit: 9, ..RecordFilter::default() };
    let failed = hapax.outbox().records(failed).await.unwrap();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].deliveries[0].error.as_deref(), Some("the shelf is full"));
    shelf.refuse("flow", None);
    emit(&hapax, 5, &["flow"]).await;
    let redriven =
        hapax.outbox().redrive(Redrive { limit: 100, ..Redrive::default() }).await.unwrap();
    assert_eq!(redriven, 1);
    shelf.has(11).await;
    assert_eq!(shelf.of("flow"), (0..6).collect::<Vec<_>>());
    idle(&dispatcher).await;
}

/// Proves K-23: the doctor warns of dead letters and of the ordering keys behind them, and says where they are.
#[tokio::test]
async fn the_doctor_finds_dead_letters() {
    let dir = Dir::new();
    let hapax = dir.open().await;
    let shelf = Shelf::default();
    let dispatcher = dispatcher(&hapax, &shelf, hasty(OnExhausted::Park)).await;
    let found = async || {
        let findings = hapax.maintenance().doctor().await.unwrap().findings;
        let whats = findings.into_iter().map(|finding| finding.what);
        whats.filter(|what| what.contains("sink shelf")).collect::<Vec<_>>()
    };
    emit(&hapax, 0, &["rain"]).await;
    idle(&dispatcher).await;
    assert!(found().await.is_empty());
    shelf.refuse("flow", Some(Retryability::Never));
    emit(&hapax, 1, &["flow"]).await;
    idle(&dispatcher).await;
    let letter = "1 delivery to sink shelf is a dead letter";
    assert_eq!(found().await, [format!("{letter}; 1 ordering key is parked")]);
    let billing = hapax.in_namespace(Namespace::new("billing").expect("a name"));
    emit(&billing, 2, &["rain"]).await;
    idle(&dispatcher).await;
    let elsewhere = format!("{letter}, the newest in namespace default; 1 ordering key is parked");
    assert_eq!(found().await, [elsewhere]);
}

/// Proves O-6: a delivery that cannot heal fails at once; with `OnExhausted::Skip`, those behind it go on.
#[tokio::test]
async fn a_permanent_refusal_fails_at_once_and_may_be_skipped() {
    let dir = Dir::new();
    let hapax = dir.open().await;
    let shelf = Shelf::default();
    shelf.refuse("flow", Some(Retryability::Never));
    let dispatcher = dispatcher(&hapax, &shelf, hasty(OnExhausted::Skip)).await;
    emit(&hapax, 0, &["flow"]).await;
    idle(&dispatcher).await;
    assert_eq!(shelf.tries(), 1);
    shelf.refuse("flow", None);
    emit(&hapax, 1, &["flow"]).await;
    idle(&dispatcher).await;
    assert_eq!(shelf.of("flow"), [1]);
    assert_eq!(dispatcher.status().failed, 1);
}

/// Proves O-6: an effect whose event has no route is not recorded as done.
#[tokio::test]
async fn an_event_without_a_route_is_refused() {
    let dir = Dir::new();
    let hapax = dir.open().await;
    let answer = hapax
        .effect(key(1))
        .run(|claim| async move {
            claim.emit(event("flow", 1))?;
            ok("not acknowledged")
        })
        .await;
    assert!(matches!(answer, Err(Error::Store(_))), "{answer:?}");
    assert!(answer.unwrap_err().to_string().contains("no route"));
    assert_eq!(state(&hapax, 1).await, Some(StateName::Indeterminate));
}

/// Proves O-2: events of work that failed, or was rolled back, are never delivered.
#[tokio::test]
async fn events_of_an_effect_that_did_not_happen_are_not_sent() {
    let dir = Dir::new();
    let hapax = dir.open().await;
    let shelf = Shelf::default();
    let dispatcher = dispatcher(&hapax, &shelf, Policy::default()).await;
    let failed = hapax.effect(key(1)).run(|claim| async move {
        claim.emit(event("flow", 1))?;
        Err::<&str, _>(Failure::not_done("changed its mind"))
    });
    assert!(failed.await.is_err());
    let mut db = hapax.connection().unwrap();
    let tx = db.transaction().unwrap();
    let once = hapax.effect(key(2)).once_in(&tx, |_, claim| {
        claim.emit(event("flow", 2))?;
        ok("rolled back")
    });
    once.unwrap();
    tx.rollback().unwrap();
    let tx = db.transaction().unwrap();
    let once = hapax.effect(key(3)).once_in(&tx, |_, claim| {
        claim.emit(event("flow", 3))?;
        ok("committed")
    });
    once.unwrap();
    tx.commit().unwrap();
    idle(&dispatcher).await;
    assert_eq!(shelf.of("flow"), [3]);
}

/// Proves O-4: several dispatchers share the work, and nothing is sent twice.
#[tokio::test(flavor = "multi_thread")]
async fn dispatchers_share_the_work() {
    let dir = Dir::new();
    let (one, two) = (dir.open().await, dir.open().await);
    let shelves = [Shelf::default(), Shelf::default()];
    let first = dispatcher(&one, &shelves[0], Policy::default()).await;
    let second = dispatcher(&two, &shelves[1], Policy::default()).await;
    let wait = async {
        while first.status().buckets != 512 || second.status().buckets != 512 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("each has its half");
    let datasets: Vec<String> = (0..16).map(|n| format!("dataset {n}")).collect();
    let names: Vec<&str> = datasets.iter().map(String::as_str).collect();
    for n in 0..20 {
        emit(&one, n, &names).await;
    }
    idle(&first).await;
    idle(&second).await;
    let both = [shelves[0].arrived(), shelves[1].arrived()];
    assert!(!both[0].is_empty() && !both[1].is_empty());
    for dataset in &datasets {
        let halves = shelves.each_ref().map(|shelf| shelf.of(dataset));
        assert!(halves.contains(&(0..20).collect::<Vec<_>>()), "{halves:?}");
        assert!(halves.contains(&vec![]), "{halves:?}");
    }
    // One dispatcher stops; the other takes over at once.
    first.stop().await.unwrap();
    emit(&two, 20, &names).await;
    shelves[1].has(both[1].len() + 16).await;
    second.stop().await.unwrap();
}

/// Proves O-6: nothing is sent to a sink that is paused, and nothing is lost.
#[tokio::test]
async fn a_paused_sink_gets_nothing() {
    let dir = Dir::new();
    let hapax = dir.open().await;
    let shelf = Shelf::default();
    let dispatcher = dispatcher(&hapax, &shelf, Policy::default()).await;
    let sink = SinkName::new("shelf").unwrap();
    emit(&hapax, 0, &["flow"]).await;
    idle(&dispatcher).await;
    assert!(hapax.outbox().pause(&sink, true).await.unwrap());
    let wait = async {
        while dispatcher.status().paused.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("the dispatcher hears of it");
    emit(&hapax, 1, &["flow"]).await;
    idle(&dispatcher).await;
    assert_eq!(shelf.of("flow"), [0]);
    hapax.outbox().pause(&sink, false).await.unwrap();
    shelf.has(2).await;
}

/// Proves O-6: a sink that is down is hardly tried; when it is back, everything arrives in order,
/// and no delivery has failed for it. In virtual time: a minute each, ten events a second.
#[tokio::test(start_paused = true)]
async fn a_sink_that_is_down_is_not_stormed() {
    let hapax = Hapax::builder().in_memory();
    let shelf = Shelf::default();
    let dispatcher = dispatcher(&hapax, &shelf, Policy::default()).await;
    let minute = async |from: u64| {
        let before = shelf.tries();
        for n in from..from + 600 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let effect =
                hapax.effect(hapax::Key::derive("t.v1", &[("n", &n.to_be_bytes())]).unwrap());
            let run = effect.run(|claim| async move {
                claim
                    .emit(Event { order: Order::Key((n % 50).to_string()), ..event("flow", n) })?;
                ok("emitted")
            });
            run.await.unwrap();
        }
        shelf.tries() - before
    };
    minute(0).await;
    idle(&dispatcher).await;
    let steady = shelf.tries();
    assert_eq!((steady, shelf.arrived().len()), (600, 600));
    shelf.0.down.store(true, Ordering::SeqCst);
    let down = minute(600).await;
    assert!(down * 10 <= steady * 11, "{down} tries while down, {steady} before");
    assert_eq!(dispatcher.status().down.len(), 1);
    shelf.0.down.store(false, Ordering::SeqCst);
    shelf.has(1200).await;
    assert_eq!(dispatcher.status().failed, 0);
    for lane in 0..50 {
        let arrived = shelf.of("flow").into_iter().filter(|n| n % 50 == lane);
        assert!(arrived.is_sorted());
    }
}

/// Proves O-3: a record cannot be undone from outside, nor can an artifact be made up.
#[tokio::test]
async fn the_file_refuses_what_would_break_the_outbox() {
    let dir = Dir::new();
    let hapax = dir.open().await;
    hapax.outbox().configure(&outbox(&Shelf::default(), Policy::default())).await.unwrap();
    emit(&hapax, 1, &["flow"]).await;
    let db = hapax.connection().unwrap();
    for statement in [
        "DELETE FROM outbox_record",
        "UPDATE outbox_record SET payload = '2'",
        "INSERT OR REPLACE INTO outbox_record SELECT * FROM outbox_record",
        "INSERT INTO outbox_record (outbox_id, namespace, idempotency_key, ordinal, event_name,
             dataset_id, ordering, ordering_hash, payload, created_at)
         VALUES (zeroblob(16), 1, NULL, 0, 'e', 'd', 0, 0, '{}', 0)",
        "DELETE FROM delivery",
        "UPDATE delivery SET seq = seq + 1",
        "INSERT OR REPLACE INTO delivery SELECT * FROM delivery",
        "INSERT INTO artifact VALUES (1, 'flow', 'v1', 'sha256:aa', 's3://b', 99)",
    ] {
        let refused = db.execute(statement, []);
        assert!(refused.is_err(), "{statement}: {refused:?}");
    }
    let left: (String, String) = db
        .query_row("SELECT payload, status FROM outbox", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert_eq!(left, ("1".into(), "pending".into()));
}

/// Keeps the fields of each dispatch.
#[derive(Clone, Default)]
struct Telemetry(Arc<Mutex<Vec<HashMap<String, String>>>>);

struct Fields(HashMap<String, String>);

impl tracing::field::Visit for Fields {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}").trim_matches('"').into());
    }
}

impl tracing::Subscriber for Telemetry {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "hapax::dispatch"
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields(HashMap::new());
        event.record(&mut fields);
        self.0.lock().expect("no panic").push(fields.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// Proves O-11 as far as log events go: each try is logged with its fields.
#[tokio::test]
async fn each_try_is_logged_with_its_fields() {
    let telemetry = Telemetry::default();
    let _here = tracing::subscriber::set_default(telemetry.clone());
    let hapax = Hapax::builder().in_memory();
    let shelf = Shelf::default();
    shelf.refuse("flow", Some(Retryability::Never));
    let dispatcher = dispatcher(&hapax, &shelf, hasty(OnExhausted::Skip)).await;
    emit(&hapax, 1, &["rain", "flow"]).await;
    idle(&dispatcher).await;
    let lines = telemetry.0.lock().unwrap().clone();
    assert_eq!(lines.len(), 2);
    let records =
        hapax.outbox().records(RecordFilter { limit: 9, ..RecordFilter::default() }).await.unwrap();
    for (status, dataset) in [("success", "rain"), ("failed", "flow")] {
        let record = records.iter().find(|found| found.record.event.dataset == dataset).unwrap();
        let line = lines.iter().find(|line| line["dispatch_status"] == status).unwrap();
        assert_eq!(line["outbox_id"], record.record.id.to_string());
        assert_eq!((&*line["event_name"], &*line["attempt"]), ("counted", "1"));
        assert_eq!(line["duplicate_detected"], "false");
        assert!(line["latency_ms"].parse::<i64>().unwrap() >= 0);
        assert!(line.contains_key("pipeline_id"));
    }
}
