//! Sends events to a broker that is killed and paused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hapax::outbox::{
    Dispatcher, DispatcherStatus, Event, OutboxConfig, Payload, Policy, RecordFilter, Sink,
    SinkSettings, Status, Trace,
};
use hapax::{Backoff, Failure, Hapax, Key};

/// Longer than any wait should take, so that reaching it is a failure. A sink that is down is left
/// alone for up to half a minute, several times if the broker is slow to come back.
pub(crate) const LONG: Duration = Duration::from_secs(180);

/// How many datasets there are, each of which has an order.
const DATASETS: usize = 16;

/// How often the broker is killed or paused.
const STRIKES: u64 = 4;

/// How many events arrive between two strikes.
const BETWEEN: u64 = 150;

/// The trace that all events belong to.
pub(crate) const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A broker that can be killed and paused.
pub(crate) trait Fire {
    fn kill(&mut self);
    fn restart(&mut self);
    fn pause(&mut self);
    fn resume(&mut self);
}

/// A received event.
pub(crate) struct Arrived {
    pub(crate) id: String,
    pub(crate) dataset: String,
    number: u64,
}

impl Arrived {
    pub(crate) fn read(body: &[u8]) -> Self {
        let body: serde_json::Value = serde_json::from_slice(body).expect("an envelope");
        let text = |name: &str| body[name].as_str().expect("a text").to_owned();
        let number = body["payload"]["n"].as_u64().expect("a number");
        assert_eq!(body["traceparent"], TRACE, "it belongs to its emitter's trace");
        Self { id: text("outbox_id"), dataset: text("dataset_id"), number }
    }
}

async fn emit(hapax: &Hapax, dataset: &str, number: u64) {
    let fields = [("dataset", dataset.as_bytes()), ("number", &number.to_be_bytes()[..])];
    let key = Key::derive("count.v1", &fields).expect("a key");
    let run = hapax.effect(key).run(|claim| async move {
        let payload = Payload::parse(format!("{{\"n\":{number}}}").as_bytes())?;
        let trace = Trace::parse(TRACE);
        claim.emit(Event { trace, ..Event::new("counted", dataset, payload) })?;
        Ok::<_, Failure>("emitted")
    });
    run.await.expect("done");
}

fn outbox(sink: impl Sink) -> OutboxConfig {
    let backoff = Backoff { base_ms: 5, cap_ms: 100, attempts: u32::MAX };
    let policy = Policy { backoff, attempts: 1_000, ..Policy::default() };
    let settings = SinkSettings { policy, ..SinkSettings::default() };
    let outbox = OutboxConfig::new().sink_with("broker", sink, settings).expect("a name");
    outbox.route("*", "*", &["broker"]).expect("a name")
}

async fn until(
    what: &str,
    (hapax, dispatcher): (&Hapax, &Dispatcher),
    holds: impl Fn(&DispatcherStatus) -> bool,
) {
    let wait = async {
        while !holds(&dispatcher.status()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(LONG, wait).await.is_err() {
        let error = why_not(hapax).await;
        panic!(
            "waited too long until {what}: {:?}; the last error: {error:?}",
            dispatcher.status()
        );
    }
}

/// The last error of the first event that did not arrive.
async fn why_not(hapax: &Hapax) -> Option<String> {
    let filter =
        RecordFilter { status: Some(Status::Pending), limit: 1, ..RecordFilter::default() };
    let found = hapax.outbox().records(filter).await.expect("a read");
    found.first()?.deliveries.first()?.error.clone()
}

/// Emits events all the while, kills the broker twice and pauses it twice, and returns how many
/// events were emitted of each dataset.
pub(crate) async fn under_fire(broker: &mut impl Fire, sink: impl Sink) -> BTreeMap<String, u64> {
    let directory = tempfile::tempdir().expect("a directory");
    let hapax = Hapax::open(directory.path().join("hapax.db")).await.expect("a ledger");
    let dispatcher = hapax.outbox().dispatch(outbox(sink)).await.expect("a dispatcher");
    let enough = Arc::new(AtomicBool::new(false));
    let writer = |nth: usize| {
        let (hapax, enough, dataset) = (hapax.clone(), enough.clone(), format!("set{nth}"));
        tokio::spawn(async move {
            let mut number = 0;
            while !enough.load(Ordering::Relaxed) {
                emit(&hapax, &dataset, number).await;
                number += 1;
                // Slower than any broker, so that no backlog builds up.
                tokio::time::sleep(Duration::from_millis(40)).await;
            }
            (dataset, number)
        })
    };
    let writers: Vec<_> = (0..DATASETS).map(writer).collect();
    let is_down = |status: &DispatcherStatus| !status.down.is_empty();
    let at = (&hapax, &dispatcher);
    for strike in 0..STRIKES {
        let so_far = dispatcher.status().delivered;
        until("events arrive", at, |now| now.delivered > so_far + BETWEEN).await;
        if strike % 2 == 0 {
            broker.kill();
            until("its death is noticed", at, is_down).await;
            broker.restart();
        } else {
            broker.pause();
            until("its pause is noticed", at, is_down).await;
            broker.resume();
        }
    }
    enough.store(true, Ordering::Relaxed);
    let mut emitted = BTreeMap::new();
    for writer in writers {
        let (dataset, number) = writer.await.expect("a writer");
        emitted.insert(dataset, number);
    }
    tokio::time::timeout(LONG, dispatcher.idle()).await.expect("it comes to rest");
    assert_eq!(dispatcher.status().failed, 0);
    dispatcher.stop().await.expect("it stops");
    emitted
}

/// Checks that nothing is lost and each dataset is in order; returns the number of repeated events.
pub(crate) fn check(emitted: &BTreeMap<String, u64>, arrived: &[Arrived]) -> usize {
    let mut seen = BTreeSet::new();
    let mut next: BTreeMap<&str, u64> = BTreeMap::new();
    let mut again = 0;
    for event in arrived {
        if !seen.insert(&event.id) {
            again += 1;
            continue;
        }
        let next = next.entry(&event.dataset).or_default();
        assert_eq!(event.number, *next, "{} is out of order", event.dataset);
        *next += 1;
    }
    for (dataset, number) in emitted {
        assert_eq!(next.get(dataset.as_str()), Some(number), "of {dataset} some are lost");
    }
    assert!(seen.len() as u64 > STRIKES * BETWEEN);
    again
}

/// The first error of an event that a sink does not take.
pub(crate) async fn first_error(sink: impl Sink) -> String {
    let hapax = Hapax::builder().in_memory();
    let dispatcher = hapax.outbox().dispatch(outbox(sink)).await.expect("a dispatcher");
    emit(&hapax, "flow", 0).await;
    let wait = async {
        loop {
            let filter = RecordFilter { limit: 1, ..RecordFilter::default() };
            let found = hapax.outbox().records(filter).await.expect("a read");
            if let Some(error) = &found[0].deliveries[0].error {
                return error.clone();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let error = tokio::time::timeout(LONG, wait).await.expect("it is refused");
    assert_eq!(dispatcher.status().delivered, 0);
    error
}
