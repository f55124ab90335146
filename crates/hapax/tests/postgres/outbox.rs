//! Events that are emitted in callers' transactions, and changes that the database itself refuses.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hapax::outbox::{
    Acks, Dataset, Delivery, Event, Guards, OutboxConfig, Payload, RecordFilter, Redrive, Sink,
    Status,
};
use hapax::{Error, Failure, Hapax};
use hapax_testkit::Postgres;

use super::{client, key, open};

/// A sink that keeps its deliveries.
#[derive(Clone, Default)]
pub(super) struct Shelf(Arc<Mutex<Vec<String>>>);

impl Shelf {
    pub(super) fn payloads(&self) -> Vec<String> {
        self.0.lock().expect("no panic").clone()
    }
}

impl Sink for Shelf {
    async fn send(&self, deliveries: &[Delivery], acks: &Acks) {
        for (nth, delivery) in deliveries.iter().enumerate() {
            let payload = delivery.record.event.payload.as_str().to_owned();
            self.0.lock().expect("no panic").push(payload);
            acks.delivered(nth);
        }
    }
}

pub(super) fn outbox(shelf: &Shelf) -> OutboxConfig {
    let outbox = OutboxConfig::new().sink("shelf", shelf.clone()).expect("a name");
    outbox.route("*", "*", &["shelf"]).expect("a name")
}

pub(super) fn event(n: u64) -> Event {
    Event::new("counted", "flow", Payload::parse(n.to_string().as_bytes()).expect("JSON"))
}

/// A claim, an event and a settle as any language makes them.
const BY_SQL: &str = "DO $$
DECLARE c record;
BEGIN
    SELECT * INTO c FROM hapax.claim('sha256:' || repeat('KK', 32), sha256('x'),
                                     safety => 'transactional');
    PERFORM hapax.emit('sha256:' || repeat('KK', 32), c.attempt_id, 'counted', 'flow', 'PAYLOAD');
    PERFORM hapax.settle('sha256:' || repeat('KK', 32), c.attempt_id, c.fence, 'done');
END $$";

/// How long any step may take.
pub(super) const LONG: Duration = Duration::from_secs(60);

fn by_sql(key: &str, payload: &str) -> String {
    BY_SQL.replace("KK", key).replace("PAYLOAD", payload)
}

pub(super) async fn rests(dispatcher: &hapax::outbox::Dispatcher) {
    let idle = tokio::time::timeout(LONG, dispatcher.idle());
    idle.await.expect("it comes to rest");
}

/// Proves O-2, O-4: committed events are delivered, in the order of the commits; events that were
/// rolled back are not.
#[tokio::test(flavor = "multi_thread")]
async fn events_of_callers_transactions_are_delivered() {
    let server = Postgres::start();
    let url = server.database("outbox");
    let hapax = open(&url).await;
    let shelf = Shelf::default();
    let dispatcher = hapax.outbox().dispatch(outbox(&shelf)).await.expect("a dispatcher");
    let mut client = client(&url).await;
    for n in 0..6 {
        let tx = client.transaction().await.expect("a transaction");
        let emit = async |_: &hapax::tokio_postgres::Transaction<'_>, claim: &hapax::Claim| {
            claim.emit(event(n))?;
            Ok::<_, Failure>("emitted")
        };
        hapax.effect(key(n)).once_in_postgres(&tx, emit).await.expect("done");
        match n % 2 {
            0 => tx.commit().await.expect("committed"),
            _ => tx.rollback().await.expect("rolled back"),
        }
    }
    client.batch_execute(&by_sql("07", "7")).await.expect("by SQL");
    client.batch_execute(&format!("BEGIN; {}; ROLLBACK", by_sql("08", "8"))).await.expect("by SQL");
    let run = hapax.effect(key(9)).run(|claim| async move {
        claim.emit(event(9))?;
        Ok::<_, Failure>("emitted")
    });
    run.await.expect("done");
    rests(&dispatcher).await;
    assert_eq!(shelf.payloads(), ["0", "2", "4", "7", "9"]);
    let all = RecordFilter { limit: 100, ..RecordFilter::default() };
    let found = hapax.outbox().records(all).await.expect("records");
    assert!(found.iter().all(|found| found.status == Status::Dispatched), "{found:?}");
    let view = "SELECT count(*) FROM hapax.outbox WHERE status = 'dispatched' AND attempt = 1";
    assert_eq!(server.sql("outbox", view).trim(), "5");
    dispatcher.stop().await.expect("stopped");
}

/// Proves O-8: followers on every node also get an event that was begun first and committed last.
#[tokio::test(flavor = "multi_thread")]
async fn followers_hear_of_transactions_that_end_late() {
    let server = Postgres::start();
    let url = server.database("outbox");
    let (here, there) = (open(&url).await, open(&url).await);
    here.outbox().configure(&outbox(&Shelf::default())).await.expect("routes");
    let (mut one, mut two) = (
        here.outbox().follow("*", "*").await.expect("one"),
        there.outbox().follow("*", "flow").await.expect("two"),
    );
    let mut first = client(&url).await;
    let early = first.transaction().await.expect("a transaction");
    early.batch_execute(&by_sql("01", "1")).await.expect("emitted, not committed");
    for n in 2..5 {
        server.sql("outbox", &by_sql(&format!("0{n}"), &n.to_string()));
    }
    let mut heard = Vec::new();
    for _ in 2..5 {
        let next = tokio::time::timeout(LONG, one.next()).await.expect("in time");
        heard.push(next.expect("nothing missed").event.payload.as_str().to_owned());
    }
    assert_eq!(heard, ["2", "3", "4"]);
    early.commit().await.expect("committed");
    let late = tokio::time::timeout(LONG, one.next()).await.expect("in time");
    assert_eq!(late.expect("nothing missed").event.payload.as_str(), "1");
    let mut heard = Vec::new();
    for _ in 0..4 {
        let next = tokio::time::timeout(LONG, two.next()).await.expect("in time");
        heard.push(next.expect("nothing missed").event.payload.as_str().to_owned());
    }
    heard.sort();
    assert_eq!(heard, ["1", "2", "3", "4"]);
}

/// Proves O-9: guards hold in the caller's own transaction too.
#[tokio::test(flavor = "multi_thread")]
async fn guards_hold_in_callers_transactions() {
    let server = Postgres::start();
    let url = server.database("outbox");
    let hapax = open(&url).await;
    hapax.outbox().configure(&outbox(&Shelf::default())).await.expect("routes");
    let mut client = client(&url).await;
    let tx = client.transaction().await.expect("a transaction");
    let emit = async |_: &hapax::tokio_postgres::Transaction<'_>, claim: &hapax::Claim| {
        let payload = Payload::parse(br#"{"to":"ada@example.org"}"#)?;
        claim.emit(Event::new("sent", "mail", payload))?;
        Ok::<_, Failure>("emitted")
    };
    let answer = hapax.effect(key(1)).once_in_postgres(&tx, emit).await;
    let error = answer.expect_err("refused");
    assert!(matches!(error, Error::Store(_)), "{error}");
    assert!(error.to_string().ends_with("has an e-mail address at /to"), "{error}");
    drop(tx);

    let wells = Dataset { masked: Some(7), order: Some("/well".into()), ..Dataset::default() };
    let declared = outbox(&Shelf::default()).dataset("wells", wells);
    hapax.outbox().configure(&declared).await.expect("datasets");
    for (n, payload, refusal) in [
        (2, r#"{"well":3,"lat":38.25}"#, "has exact coordinates at /lat"),
        (3, r#"{"well":3}"#, ""),
    ] {
        let tx = client.transaction().await.expect("a transaction");
        let emit = async |_: &hapax::tokio_postgres::Transaction<'_>, claim: &hapax::Claim| {
            let payload = Payload::parse(payload.as_bytes())?;
            claim.emit(Event::new("sent", "wells", payload))?;
            Ok::<_, Failure>("emitted")
        };
        let answer = hapax.effect(key(n)).once_in_postgres(&tx, emit).await;
        match answer {
            Ok(_) => tx.commit().await.expect("committed"),
            Err(error) => assert!(error.to_string().ends_with(refusal), "{error}"),
        }
    }
    let order = "SELECT order_key FROM hapax.outbox_record";
    assert_eq!(server.sql("outbox", order), "wells/well=3");
}

/// Proves O-9: events emitted by SQL alone are judged before they leave; events that must not leave
/// wait for an operator.
#[tokio::test(flavor = "multi_thread")]
async fn events_emitted_by_sql_are_guarded_before_they_are_sent() {
    let server = Postgres::start();
    let hapax = open(&server.database("outbox")).await;
    let shelf = Shelf::default();
    let wells = Dataset { masked: Some(7), ..Dataset::default() };
    let declared = || outbox(&shelf).dataset("wells", wells.clone());
    let dispatcher = hapax.outbox().dispatch(declared()).await.expect("a dispatcher");
    for (key, dataset, payload) in [
        ("01", "flow", r#"{"n":1}"#),
        ("02", "flow", r#"{"to":"ada@example.org"}"#),
        ("03", "flow", r#"{"n":3}"#),
        ("04", "wells", r#"{"lat":38.25}"#),
        ("05", "places", r#"{"lat":38.25}"#),
    ] {
        let emit = by_sql(key, payload).replace("flow", dataset);
        server.sql("outbox", &emit);
    }
    rests(&dispatcher).await;
    let mut arrived = shelf.payloads();
    arrived.sort();
    assert_eq!(arrived, [r#"{"lat":38.25}"#, r#"{"n":1}"#], "what is behind it waits too");
    let failed = RecordFilter { status: Some(Status::Failed), limit: 9, ..RecordFilter::default() };
    let failed = hapax.outbox().records(failed).await.expect("records");
    let said: Vec<_> = failed.iter().filter_map(|f| f.deliveries[0].error.as_deref()).collect();
    let barred = |what: &str| format!("the guards bar it: {what}");
    assert_eq!(said, [barred("exact coordinates at /lat"), barred("an e-mail address at /to")]);

    let lenient = Guards { personal: false, ..Guards::default() };
    hapax.outbox().configure(&declared().guards(lenient)).await.expect("guards");
    let (namespace, limit) = (hapax.namespace().clone(), 9);
    let again = Redrive { namespace, sink: None, id: None, may_duplicate: false, limit };
    assert_eq!(hapax.outbox().redrive(again).await.expect("a redrive"), 2);
    rests(&dispatcher).await;
    let arrived = shelf.payloads();
    assert_eq!(arrived[2..], [r#"{"to":"ada@example.org"}"#, r#"{"n":3}"#]);
    dispatcher.stop().await.expect("stopped");
}

/// Proves O-2, O-3: a stale claimant cannot emit, and no record can be undone.
#[tokio::test(flavor = "multi_thread")]
async fn the_database_refuses_what_would_break_the_outbox() {
    let server = Postgres::start();
    let url = server.database("outbox");
    let hapax: Hapax = open(&url).await;
    let none = server.try_sql("outbox", &by_sql("01", "1")).expect_err("no route");
    assert!(none.contains("no route takes the event counted of dataset flow"), "{none}");
    hapax.outbox().configure(&outbox(&Shelf::default())).await.expect("routes");
    server.sql("outbox", &by_sql("01", "1"));
    let stale = "SELECT hapax.emit('sha256:' || repeat('01', 32), 'att_' || repeat('00', 16),
                 'counted', 'flow', '2')";
    let stale = server.try_sql("outbox", stale).expect_err("stale");
    assert!(stale.contains("fenced"), "{stale}");
    for statement in [
        "DELETE FROM hapax.outbox_record",
        "UPDATE hapax.outbox_record SET payload = '2'",
        "TRUNCATE hapax.outbox_record CASCADE",
        "INSERT INTO hapax.outbox_record (created_at, ordering_hash, namespace, ordinal, ordering, outbox_id,
             idempotency_key, event_name, dataset_id, payload)
         VALUES (0, 0, 1, 0, 0, gen_random_uuid(), NULL, 'e', 'd', '{}')",
        "DELETE FROM hapax.delivery",
        "TRUNCATE hapax.delivery",
        "UPDATE hapax.delivery SET seq = seq + 1",
        "INSERT INTO hapax.artifact VALUES (1, 'flow', 'v1', 'sha256:aa', 's3://b', 99)",
        "INSERT INTO hapax.artifact SELECT 1, 'flow', 'v1', 'sha256:aa', 's3://b', seq
         FROM hapax.outbox_record",
    ] {
        let refused = server.try_sql("outbox", statement);
        assert!(refused.is_err(), "{statement}: {refused:?}");
    }
    let left = "SELECT payload, status FROM hapax.outbox";
    assert_eq!(server.sql("outbox", left).trim(), "1|pending");
}

/// Proves K-8, O-2: the database refuses to commit an event without the outcome of its effect, so no
/// sink gets it.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_without_an_outcome_is_not_committed() {
    let server = Postgres::start();
    let hapax: Hapax = open(&server.database("outbox")).await;
    let shelf = Shelf::default();
    let dispatcher = hapax.outbox().dispatch(outbox(&shelf)).await.expect("a dispatcher");
    let claim = "SELECT verdict FROM hapax.claim('sha256:' || repeat('01', 32), sha256('x'),
        safety => 'transactional', attempt => 'att_' || repeat('11', 16));";
    let emit = "SELECT hapax.emit('sha256:' || repeat('01', 32), 'att_' || repeat('11', 16),
        'counted', 'flow', '1');";
    let settle = "SELECT hapax.settle(e.key, e.attempt, e.fence, 'done') FROM hapax.effects e;";
    let recorded = "SELECT (SELECT count(*) FROM hapax.outbox_record),
        (SELECT count(*) FROM hapax.delivery), (SELECT count(*) FROM hapax.effect)";

    for unsettled in [
        format!("BEGIN; {claim} {emit} COMMIT"),
        format!("BEGIN; {claim} {emit} SAVEPOINT s; {settle} ROLLBACK TO s; COMMIT"),
    ] {
        let refused = server.try_sql("outbox", &unsettled).expect_err("no outcome");
        let expected = "HX209: not committed: the transaction recorded the event counted and did \
                        not settle sha256:0101";
        assert!(refused.contains(expected), "{refused}");
        assert_eq!(server.sql("outbox", recorded), "0|0|0");
    }
    let late = server.try_sql("outbox", &format!("BEGIN; {claim} {settle} {emit} COMMIT"));
    let late = late.expect_err("it has settled");
    assert!(late.contains("HX207: fenced: this attempt was overtaken or has settled"), "{late}");
    assert_eq!(server.sql("outbox", recorded), "0|0|0");

    // The claim is committed first, on a lease.
    let lease = "'lease_' || repeat('22', 16)";
    let leased = claim.replace("safety =>", &format!("lease => {lease}, safety =>"));
    server.sql("outbox", &format!("SELECT hapax.renew({lease})"));
    server.sql("outbox", &leased);
    let refused = server.try_sql("outbox", emit).expect_err("no outcome");
    assert!(refused.contains("HX209"), "{refused}");
    assert_eq!(server.sql("outbox", recorded), "0|0|1", "it runs");
    rests(&dispatcher).await;
    assert!(shelf.payloads().is_empty(), "{:?}", shelf.payloads());

    server.sql("outbox", &format!("BEGIN; {emit} {emit} {settle} COMMIT"));
    rests(&dispatcher).await;
    assert_eq!(shelf.payloads(), ["1"]);
    dispatcher.stop().await.expect("stopped");
}

/// Proves O-6: an event emitted by SQL goes once to each sink, however many routes name it, and
/// nowhere where that was declared. Without a route it is refused, also when it is emitted again.
#[tokio::test(flavor = "multi_thread")]
async fn events_emitted_by_sql_are_routed_as_declared() {
    let server = Postgres::start();
    let url = server.database("outbox");
    let hapax: Hapax = open(&url).await;
    let routes = outbox(&Shelf::default()).route("counted", "flow", &["shelf"]).expect("a name");
    hapax.outbox().configure(&routes).await.expect("routes");
    server.sql("outbox", &by_sql("01", "1"));
    let deliveries = "SELECT count(*) FROM hapax.delivery";
    assert_eq!(server.sql("outbox", deliveries), "1", "two routes, one sink");

    let nowhere = OutboxConfig::new().route("counted", "*", &[]).expect("a route");
    hapax.outbox().configure(&nowhere).await.expect("routes");
    server.sql("outbox", &by_sql("02", "2"));
    assert_eq!(server.sql("outbox", deliveries), "1", "it goes nowhere");
    let recorded = "SELECT count(*) FROM hapax.outbox_record";
    assert_eq!(server.sql("outbox", recorded), "2");

    let emit = "SELECT hapax.emit('sha256:' || repeat('03', 32), 'att_' || repeat('11', 16),
                'counted', 'flow', '3');";
    let twice = format!(
        "BEGIN; SELECT verdict FROM hapax.claim('sha256:' || repeat('03', 32), sha256('x'),
             safety => 'transactional', attempt => 'att_' || repeat('11', 16)); {emit} {emit}"
    );
    server.sql("outbox", &format!("{twice} ROLLBACK"));
    let unrouted = format!("{twice} DELETE FROM hapax.route; {emit} ROLLBACK");
    let unrouted = server.try_sql("outbox", &unrouted).expect_err("no route any more");
    assert!(unrouted.contains("no route takes the event counted of dataset flow"), "{unrouted}");
    assert_eq!(server.sql("outbox", recorded), "2");
}

/// Proves O-12: a record lies in the partition of its month, and the next months have theirs.
#[tokio::test(flavor = "multi_thread")]
async fn records_have_a_partition_a_month() {
    let server = Postgres::start();
    let url = server.database("months");
    let hapax = open(&url).await;
    let shelf = Shelf::default();
    let dispatcher = hapax.outbox().dispatch(outbox(&shelf)).await.expect("a dispatcher");
    server.sql("months", &by_sql("01", "1"));
    rests(&dispatcher).await;
    assert_eq!(shelf.payloads(), ["1"]);
    let its_own = "SELECT count(*) FROM hapax.outbox_record
        WHERE tableoid::regclass::text = 'hapax.outbox_record_' || to_char(now() AT TIME ZONE 'UTC', 'YYYY_MM')";
    assert_eq!(server.sql("months", its_own), "1");
    let months = "SELECT count(*) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'hapax.outbox_record'::regclass AND c.relname ~ '_\\d{4}_\\d\\d$'";
    assert_eq!(server.sql("months", months), "3", "this month's and those of the next two");
    dispatcher.stop().await.expect("stopped");
}
