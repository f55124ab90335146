//! How a store handles events.

use hapax_core::dataset::{Dataset, Registry};
use hapax_core::delivery::Buckets;
use hapax_core::guard::Guards;
use hapax_core::outbox::{
    Artifact, Event, Order, OrderingKeyHash, OutboxId, Payload, Record, Status, Trace,
};
use hapax_core::route::{Route, SinkName};
use hapax_core::time::Timestamp;

use super::{Bench, OTHER, TERM_MS, ask, attempt, fenced, name, ok, replayed};
use crate::clock::Clock as _;
use crate::command::{self, ShareAnswer};
use crate::error::StoreError;
use crate::outbox::{
    Attachments, BatchedDelivery, Cursor, DeliveryResult, Disposition, Emission, FetchRequest,
    QueuedDelivery, RecordFilter, RecordStatus, Redrive, Routing, SendBatch,
};
use hapax_core::effect::{Ask, Settled, StateName};
use hapax_core::lease::LeaseId;
use hapax_core::name::Namespace;
use hapax_core::outcome::Outcome;

fn sink(name: &str) -> SinkName {
    SinkName::new(name).expect("a name")
}

fn event(name: &str, dataset: &str) -> Event {
    Event::new(name, dataset, Payload::parse(br#"{"a":1}"#).expect("JSON"))
}

fn events(events: &[Event]) -> Vec<Emission> {
    let numbered = events.iter().cloned().zip(0..);
    numbered.map(|(event, ordinal)| Emission { ordinal, event }).collect()
}

impl Bench<'_> {
    /// `e*` goes to `one`; `both` to `one` and `two`; `kept` nowhere.
    fn route(&self) {
        let route = |event: &str, sinks: &[&str]| Route {
            event: event.into(),
            dataset: "*".into(),
            sinks: sinks.iter().map(|name| sink(name)).collect(),
        };
        let sinks = vec![(sink("one"), None), (sink("two"), Some(60_000))];
        let routes =
            vec![route("e*", &["one"]), route("both", &["one", "two"]), route("kept", &[])];
        self.run(command::Configure(Routing { sinks, routes })).expect("it is configured");
    }

    fn try_settle(&self, key: u8, events: Vec<Emission>) -> Result<Settled, StoreError> {
        let attachments = Attachments { events, ..Attachments::default() };
        self.settle_with(key, attempt(key), ok(), attachments)
    }

    /// Runs an effect that emits these.
    fn emit(&self, key: u8, emitted: &[Event]) {
        self.granted(key, ask(key));
        assert_eq!(self.try_settle(key, events(emitted)).expect("recorded"), Settled::Recorded);
    }

    fn outbox(&self) -> Vec<RecordStatus> {
        let filter = RecordFilter { limit: 100, ..RecordFilter::default() };
        let mut found = self.view(move |view| view.outbox(&filter));
        found.reverse();
        found
    }

    fn share(&self, lease: LeaseId, keep: Buckets) -> (Buckets, usize) {
        let ShareAnswer { buckets, fair } =
            self.run(command::Share { lease, keep }).expect("a share");
        (buckets, fair)
    }

    fn fetch(&self, to: &str, cursor: Cursor, limit: usize) -> (Vec<QueuedDelivery>, Cursor) {
        let request =
            FetchRequest { sink: sink(to), namespace: Namespace::default(), cursor, limit };
        let mut page = self.view(move |view| view.fetch(&Buckets::all(), &[request]));
        let page = page.remove(0);
        (page.deliveries, page.cursor)
    }

    fn put_batch(&self, lease: LeaseId, id: u64, to: &str, deliveries: &[QueuedDelivery]) {
        let deliveries = deliveries.iter().map(|queued| BatchedDelivery {
            seq: queued.record.seq,
            ordering_hash: queued.ordering_hash,
            tried: queued.tried + 1,
        });
        let batch = SendBatch { id, sink: sink(to), deliveries: deliveries.collect() };
        let (results, ended, starting) = (Vec::new(), Vec::new(), vec![batch]);
        self.run(command::Dispatch { lease, results, ended, starting })
            .expect("the batch is recorded");
    }

    fn put_results(
        &self,
        lease: LeaseId,
        to: &str,
        queued: &QueuedDelivery,
        disposition: Disposition,
    ) -> Result<(), StoreError> {
        let results = vec![DeliveryResult {
            sink: sink(to),
            namespace: Namespace::default(),
            transaction: queued.transaction,
            row: queued.row,
            seq: queued.record.seq,
            tried: queued.tried + 1,
            disposition,
        }];
        let (ended, starting) = (vec![1], Vec::new());
        self.run(command::Dispatch { lease, results, ended, starting })
    }

    fn fail(&self, to: &str, queued: &QueuedDelivery) {
        let failed = Disposition::Failed { error: "no such table".into(), park: true };
        self.put_results(self.lease, to, queued, failed).expect("the result is recorded");
    }
}

cases! {
    /// Proves O-1, O-2.
    events_are_recorded_with_the_settle: |b| {
        b.route();
        b.granted(1, ask(1));
        assert_eq!(b.outbox(), []);
        let emitted = [event("e", "flow"), event("both", "rain"), event("kept", "soil")];
        assert_eq!(b.try_settle(1, events(&emitted)).expect("recorded"), Settled::Recorded);
        let found = b.outbox();
        let recorded: Vec<_> = found.iter().map(|found| found.record.event.clone()).collect();
        assert_eq!(recorded, emitted);
        let statuses: Vec<_> = found.iter().map(|found| found.status).collect();
        assert_eq!(statuses, [Status::Pending, Status::Pending, Status::Dispatched]);
        let sinks: Vec<_> = found.iter().map(|found| found.deliveries.len()).collect();
        assert_eq!(sinks, [1, 2, 0]);
        let now = b.clock.now().wall;
        assert_eq!(found[1].record.id, OutboxId::derive(&name(1), now, 1, 1));
        assert!(found[0].record.seq < found[1].record.seq);
        b.granted(2, ask(2));
        let report = hapax_core::effect::Report::Failed("no".into());
        let events = events(&[event("e", "flow")]);
        let attachments = Attachments { events, ..Attachments::default() };
        b.settle_with(2, attempt(2), report, attachments).expect("an answer");
        assert_eq!(b.outbox().len(), 3, "an effect that did not happen has no records");
    }

    /// Proves K-5, O-2.
    a_stale_claimant_emits_nothing: |b| {
        b.route();
        b.granted(1, ask(9));
        assert!(fenced(&b.try_settle(1, events(&[event("e", "flow")])).expect("an answer")));
        assert_eq!(b.outbox(), []);
    }

    /// Proves O-2, O-6, O-9: an event without a route, with a blank or too long name, or with
    /// guarded content is refused, and nothing is settled.
    an_event_that_cannot_be_recorded_settles_nothing: |b| {
        b.route();
        b.granted(1, ask(1));
        let good = event("e", "flow");
        let refused = |bad: Event| b.try_settle(1, events(&[good.clone(), bad])).expect_err("refused");
        assert!(matches!(refused(event("other", "flow")), StoreError::Unrouted { .. }));
        assert!(matches!(refused(event("", "flow")), StoreError::Invalid(_)));
        assert!(matches!(refused(event("e", &"x".repeat(600))), StoreError::Invalid(_)));
        let payload = Payload::parse(br#"{"to":["x@y.co"]}"#).expect("JSON");
        let changed = Event { payload, ..good.clone() };
        match refused(changed.clone()) {
            StoreError::Guarded { found, .. } => assert_eq!(found, "an e-mail address at /to/0"),
            other => panic!("not guarded: {other}"),
        }
        assert_eq!((b.outbox(), b.state(1)), (vec![], Some(StateName::Running)));
        let guards = Guards { personal: false, ..Guards::default() };
        b.run(command::Register(Registry { guards, ..Registry::default() })).expect("it registers");
        b.granted(2, ask(2));
        assert_eq!(b.try_settle(2, events(&[changed])).expect("let through"), Settled::Recorded);
        let bad = Routing {
            sinks: vec![],
            routes: vec![Route { event: "*".into(), dataset: "*".into(), sinks: vec![sink("x")] }],
        };
        assert!(matches!(b.run(command::Configure(bad)), Err(StoreError::Invalid(_))));
    }

    /// Proves O-8: a follower reads each record once, from the moment at which it began.
    what_is_recorded_can_be_followed: |b| {
        b.route();
        let emit = |key: u8| {
            b.granted(key, ask(key));
            b.try_settle(key, events(&[event("e", "flow"), event("kept", "flow")])).expect("recorded");
        };
        emit(1);
        let mut cursor = b.view(|view| view.follow_cursor());
        let mut heard = |limit: usize| {
            let from = cursor.clone();
            let (records, now) = b.view(move |view| view.records_after(from.clone(), limit));
            cursor = now;
            records.iter().map(|record| (record.name.key, record.ordinal)).collect::<Vec<_>>()
        };
        assert_eq!(heard(10), []);
        emit(2);
        emit(3);
        let (two, three) = (name(2).key, name(3).key);
        assert_eq!(heard(3), [(two, 0), (two, 1), (three, 0)]);
        assert_eq!(heard(3), [(three, 1)]);
        for _ in 0..5 {
            assert_eq!(heard(3), []);
        }
        emit(4);
        assert_eq!(heard(3).len(), 2);
    }

    /// Proves O-4: also where most of the records between them are routed elsewhere.
    deliveries_that_lie_far_apart_are_fed_in_order: |b| {
        b.route();
        let kept: Vec<Event> = (0..20).map(|_| event("kept", "flow")).collect();
        let emitted = [&[event("e1", "flow")][..], &kept, &[event("e2", "flow")]].concat();
        b.emit(1, &emitted);
        let (deliveries, _) = b.fetch("one", Cursor::default(), 10);
        let page: Vec<&str> = deliveries.iter().map(|p| p.record.event.name.as_str()).collect();
        assert_eq!(page, ["e1", "e2"]);
    }

    /// Proves O-4: the row that a delivery was read from is a hint; its result is recorded wherever
    /// the row is now.
    the_result_of_a_delivery_whose_row_moved_is_recorded: |b| {
        b.route();
        let emitted: Vec<Event> = (0..3).map(|n| event("e", &format!("flow-{n}"))).collect();
        b.emit(1, &emitted);
        b.share(b.lease, Buckets::default());
        let (deliveries, _) = b.fetch("one", Cursor::default(), 10);
        let [moved, misled, other] = deliveries.as_slice() else { panic!("not three: {deliveries:?}") };
        let again = Disposition::Again { in_ms: 0, error: "busy".into() };
        b.put_results(b.lease, "one", moved, again).expect("the result is recorded");
        let misled = QueuedDelivery { row: other.row, ..misled.clone() };
        for queued in [moved, &misled] {
            b.put_results(b.lease, "one", queued, Disposition::Delivered { duplicate: false }).expect("the result is recorded");
        }
        let (left, _) = b.fetch("one", Cursor::default(), 10);
        assert_eq!(left, std::slice::from_ref(other));
        let status: Vec<Status> = b.outbox().iter().map(|found| found.status).collect();
        assert_eq!(status, [Status::Dispatched, Status::Dispatched, Status::Pending]);
    }

    /// Proves O-9: a dataset's declaration holds for its events, and for no others.
    events_are_judged_by_what_is_declared_of_their_dataset: |b| {
        b.route();
        let wells = Dataset {
            masked: Some(7),
            care_label: Some("TK-NC".into()),
            order: Some("/well".into()),
            ..Dataset::default()
        };
        let register = |registered: bool, names: &[&str]| {
            let datasets = names.iter().map(|name| ((*name).to_owned(), wells.clone())).collect();
            let guards = Guards { registered, ..Guards::default() };
            command::Register(Registry { guards, datasets })
        };
        b.run(register(true, &["wells", "bores"])).expect("it registers");
        let about = |dataset: &str, payload: &str| {
            let payload = Payload::parse(payload.as_bytes()).expect("JSON");
            events(&[Event { payload, ..event("e", dataset) }])
        };
        b.granted(1, ask(1));
        let refused = |b: &Bench, events| match b.try_settle(1, events) {
            Err(StoreError::Guarded { found, .. }) => found,
            other => panic!("not guarded: {other:?}"),
        };
        let exact = about("wells", r#"{"lat":38.25,"care_label":"TK-NC"}"#);
        assert_eq!(refused(b, exact), "exact coordinates at /lat");
        let bare = about("bores", r#"{"well":1}"#);
        assert_eq!(refused(b, bare), "not its dataset's care_label at /care_label");
        assert_eq!(refused(b, about("flow", "1")), "a dataset that is not registered");
        assert_eq!((b.outbox(), b.state(1)), (vec![], Some(StateName::Running)));

        let good = about("wells", r#"{"well":1,"care_label":"TK-NC"}"#);
        assert_eq!(b.try_settle(1, good.clone()).expect("recorded"), Settled::Recorded);
        assert_eq!(b.outbox()[0].record.event.order, Order::Key("wells/well=1".into()));
        assert_eq!(b.try_settle(1, good).expect("the same"), Settled::Repeated);

        b.run(register(false, &[])).expect("it registers");
        let names = || b.view(|view| view.datasets()).into_keys().collect::<Vec<_>>();
        assert_eq!(names(), ["bores", "wells"]);
        let declare = |dataset| {
            b.run(command::Declare { name: "wells".into(), dataset }).expect("an answer")
        };
        assert!(declare(None), "it was declared");
        assert_eq!((declare(None), names()), (false, vec!["bores".to_owned()]));
        b.granted(2, ask(2));
        let anything = about("wells", r#"{"lat":38.25}"#);
        assert_eq!(b.try_settle(2, anything).expect("not declared"), Settled::Recorded);
        assert!(!declare(Some(wells.clone())));
        assert_eq!(b.view(|view| view.datasets()).get("wells"), Some(&wells));
        let bad = Dataset { order: Some("well".into()), ..Dataset::default() };
        let bad = Registry { datasets: [("wells".to_owned(), bad)].into(), ..Registry::default() };
        assert!(matches!(b.run(command::Register(bad)), Err(StoreError::Invalid(_))));
    }

    /// Proves O-7.
    an_event_that_is_emitted_again_is_the_same_record: |b| {
        b.route();
        b.emit(1, &[event("e", "flow")]);
        let trace = Trace::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        let elsewhere = Event { trace, ..event("e", "flow") };
        assert!(elsewhere.repeats(&event("e", "flow")) && !elsewhere.repeats(&event("e", "other")));
        let repeated = b.try_settle(1, events(&[elsewhere])).expect("an answer");
        assert_eq!((repeated, b.outbox().len()), (Settled::Repeated, 1));
        assert_eq!(b.claim(1, ask(7)), replayed(Outcome::new(*b"done")));
        // A new generation emits the event again.
        b.reset(1, attempt(1));
        b.clock.advance(1);
        b.granted(1, Ask { attempt: attempt(8), ..ask(1) });
        let attachments = Attachments { events: events(&[event("e", "flow")]), ..Attachments::default() };
        b.settle_with(1, attempt(8), ok(), attachments).expect("an answer");
        let ids: Vec<_> = b.outbox().into_iter().map(|found| found.record.id).collect();
        assert_eq!(ids.len(), 2);
        assert_ne!(ids[0], ids[1]);
    }

    /// Proves O-2, O-7: with the event that announces it, and with one checksum only.
    a_version_is_published_once: |b| {
        b.route();
        let artifact = |checksum: &str| Artifact {
            version: "v1".into(),
            checksum: checksum.into(),
            uri: "s3://bucket/flow".into(),
        };
        let publish = |checksum| Event { artifact: Some(artifact(checksum)), ..event("e", "flow") };
        b.emit(1, &[publish("sha256:aa")]);
        let known = b.view(|view| view.artifact(&Namespace::default(), "flow", "v1"));
        assert_eq!(known, Some(artifact("sha256:aa")));
        b.emit(2, &[publish("sha256:aa")]);
        b.granted(3, ask(3));
        let refused = b.try_settle(3, events(&[publish("sha256:bb")])).expect_err("refused");
        assert!(matches!(refused, StoreError::Republished { .. }), "{refused}");
        assert_eq!((b.outbox().len(), b.state(3)), (2, Some(StateName::Running)));
    }

    /// Proves O-6: one sink down, the other unaffected, and the record stays pending.
    each_sink_has_a_delivery_of_its_own: |b| {
        b.route();
        b.emit(1, &[event("both", "flow")]);
        b.share(b.lease, Buckets::default());
        let (one, two) = (b.fetch("one", Cursor::default(), 9).0, b.fetch("two", Cursor::default(), 9).0);
        assert_eq!((one.len(), two.len()), (1, 1));
        b.put_results(b.lease, "one", &one[0], Disposition::Delivered { duplicate: false }).expect("the result is recorded");
        let again = Disposition::Again { in_ms: 500, error: "timeout".into() };
        b.put_results(b.lease, "two", &two[0], again).expect("the result is recorded");
        let found = b.outbox().remove(0);
        let statuses: Vec<_> = found.deliveries.iter().map(|d| (d.status, d.tried)).collect();
        assert_eq!(found.status, Status::Pending);
        assert_eq!(statuses, [(Status::Dispatched, 1), (Status::Pending, 1)]);
        assert_eq!(found.deliveries[1].error.as_deref(), Some("timeout"));
        let (later, _) = b.fetch("two", Cursor::default(), 9);
        assert_eq!((later[0].tried, later[0].due), (1, b.clock.now().wall.plus_ms(500)));
        assert_eq!(b.fetch("one", Cursor::default(), 9).0, []);
        b.put_results(b.lease, "two", &later[0], Disposition::Delivered { duplicate: true }).expect("the result is recorded");
        let found = b.outbox().remove(0);
        assert_eq!((found.status, found.deliveries[1].tried), (Status::Dispatched, 2));
    }

    /// Proves O-6: an exhausted delivery has failed until an operator redrives it.
    a_failed_delivery_waits_until_it_is_redriven: |b| {
        b.route();
        b.emit(1, &[event("e", "flow"), event("e", "flow")]);
        b.share(b.lease, Buckets::default());
        let (deliveries, _) = b.fetch("one", Cursor::default(), 9);
        b.fail("one", &deliveries[0]);
        let ordering_hash = deliveries[0].ordering_hash;
        let parked = || b.view(|view| view.parked(&sink("one"), &Buckets::all()));
        assert_eq!((parked(), b.outbox()[0].status), (vec![ordering_hash], Status::Failed));
        let (left, _) = b.fetch("one", Cursor::default(), 9);
        assert_eq!(left.iter().map(|p| p.record.seq).collect::<Vec<_>>(), [deliveries[1].record.seq]);
        let stats = b.view(|view| view.outbox_stats()).remove(0);
        assert_eq!((stats.pending, stats.failed), (1, 1));
        let redrive = |sink| Redrive { sink, limit: 10, ..Redrive::default() };
        assert_eq!(b.count(redrive(Some(sink("two")))), 0);
        assert_eq!(b.count(redrive(None)), 1);
        let after = b.view(|view| view.outbox_stats()).remove(0);
        assert_eq!((after.pending, after.failed), (2, 0));
        assert!(after.sink.changed > stats.sink.changed, "dispatchers look anew");
        assert_eq!(parked(), []);
        let (all, _) = b.fetch("one", Cursor::default(), 9);
        assert_eq!((all.len(), all[0].tried, all[0].record.seq), (2, 0, deliveries[0].record.seq));
        let ordering_hash = b.view(move |view| view.fetch_key(&sink("one"), ordering_hash, all[0].record.seq, 9));
        assert_eq!(ordering_hash.len(), 1);
    }

    /// Proves O-7.
    what_a_receiver_forgot_is_not_redriven_by_accident: |b| {
        b.route();
        b.emit(1, &[event("both", "flow")]);
        b.share(b.lease, Buckets::default());
        for to in ["one", "two"] {
            let (deliveries, _) = b.fetch(to, Cursor::default(), 9);
            b.fail(to, &deliveries[0]);
        }
        b.clock.advance(60_001);
        let redrive = Redrive { limit: 10, ..Redrive::default() };
        assert_eq!(b.count(redrive.clone()), 1, "`two` has forgotten");
        let redrive = Redrive { may_duplicate: true, ..redrive };
        assert_eq!(b.count(redrive), 1);
        let pause = |name| b.run(command::Pause { sink: sink(name), paused: true });
        assert!(pause("two").expect("an answer"));
        assert!(!pause("three").expect("an answer"));
        let paused = b.view(|view| view.sinks()).into_iter().map(|sink| sink.paused);
        assert_eq!(paused.collect::<Vec<_>>(), [false, true]);
    }

    /// Proves O-4.
    buckets_belong_to_one_dispatcher: |b| {
        b.open_lease(OTHER);
        assert_eq!(b.share(b.lease, Buckets::default()), (Buckets::all(), 1024));
        let (none, fair) = b.share(OTHER, Buckets::default());
        assert_eq!((none.len(), fair), (0, 512));
        let (all, fair) = b.share(b.lease, Buckets::all());
        assert_eq!((all.len(), fair), (1024, 512));
        let (half, _) = b.share(b.lease, Buckets::all().first(512));
        assert_eq!(half, Buckets::all().first(512));
        let (rest, _) = b.share(OTHER, Buckets::all());
        assert_eq!(rest, Buckets::all().without(half), "a dispatcher keeps only its own");
        b.run(command::Retire { lease: b.lease }).expect("an answer");
        assert_eq!(b.share(OTHER, rest).0, Buckets::all());
        let dead = b.run(command::Share { lease: LeaseId::from_bytes([9; 16]), keep: half });
        assert!(matches!(dead, Err(StoreError::LeaseDead(_))));
    }

    /// Proves O-4: and the deliveries that it had in flight count as attempted.
    a_dispatcher_that_was_overtaken_writes_nothing: |b| {
        b.route();
        b.emit(1, &[event("e", "flow")]);
        b.share(b.lease, Buckets::default());
        let (deliveries, _) = b.fetch("one", Cursor::default(), 9);
        b.put_batch(b.lease, 1, "one", &deliveries);
        b.open_lease(OTHER);
        assert_eq!(b.share(OTHER, Buckets::default()).0.len(), 0);
        b.pass(TERM_MS + 30_000, &[OTHER]);
        assert_eq!(b.share(OTHER, Buckets::default()).0, Buckets::all());
        let late = b.put_results(b.lease, "one", &deliveries[0], Disposition::Delivered { duplicate: false });
        assert!(matches!(late, Err(StoreError::LeaseDead(_))), "{late:?}");
        let (found, _) = b.fetch("one", Cursor::default(), 9);
        assert_eq!((found.len(), found[0].tried), (1, 1));
        b.put_results(OTHER, "one", &found[0], Disposition::Delivered { duplicate: false }).expect("the result is recorded");
        assert_eq!(b.outbox()[0].deliveries[0].tried, 2);
    }

    /// Proves O-4, O-12.
    deliveries_are_read_in_order_and_none_is_passed_over: |b| {
        b.route();
        for key in 1..=3 {
            b.emit(key, &[event("e", "flow"), event("e", "rain")]);
        }
        b.share(b.lease, Buckets::default());
        let seqs = |deliveries: &[QueuedDelivery]| deliveries.iter().map(|p| p.record.seq).collect::<Vec<_>>();
        let (all, _) = b.fetch("one", Cursor::default(), 99);
        assert!(all.is_sorted_by_key(|queued| queued.record.seq));
        let (first, cursor) = b.fetch("one", Cursor::default(), 4);
        let (second, cursor) = b.fetch("one", cursor, 4);
        assert_eq!([seqs(&first), seqs(&second)].concat(), seqs(&all));
        b.emit(4, &[event("e", "flow")]);
        let (new, _) = b.fetch("one", cursor, 99);
        let newest = b.outbox().pop().expect("a record").record.seq;
        assert_eq!(new.last().map(|queued| queued.record.seq), Some(newest));
        let mine = all[0].ordering_hash;
        let mut one = Buckets::default();
        one.insert(mine.bucket());
        let request = |namespace: Namespace| {
            FetchRequest { sink: sink("one"), namespace, cursor: Cursor::default(), limit: 99 }
        };
        let other = Namespace::new("other").expect("a name");
        let requests = [request(Namespace::default()), request(other)];
        let page = b.view(move |view| view.fetch(&one, &requests));
        let ordering_hashes: Vec<OrderingKeyHash> = page[0].deliveries.iter().map(|queued| queued.ordering_hash).collect();
        assert_eq!((ordering_hashes, page[1].deliveries.len()), (vec![mine; 4], 0));
    }

    /// Proves O-1, K-15.
    every_field_of_a_record_survives_storage: |b| {
        b.route();
        let full = Event {
            pipeline: Some("hydrology_flow_2025_v10.3.1".into()),
            version: Some("v10.3.1".into()),
            order: Order::Key("Kansas \u{1f33e}".into()),
            payload: Payload::parse(r#"{"b":[1.5,null,"é\u0001\"\\"],"a":{}}"#.as_bytes())
                .expect("JSON"),
            artifact: Some(Artifact {
                version: "v10.3.1".into(),
                checksum: "sha256:9393aa331".into(),
                uri: "s3://kfm/output.parquet".into(),
            }),
            trace: Trace::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
            ..event("e", "hydrology_flow_ks")
        };
        let free = Event { order: Order::Free, ..event("e", "flow") };
        b.emit(1, &[full.clone(), free.clone()]);
        let found = b.outbox();
        let now: Timestamp = b.clock.now().wall;
        for (nth, event) in [full, free].into_iter().enumerate() {
            let (id, ordinal) = (OutboxId::derive(&name(1), now, 1, nth as u32), nth as u32);
            let seq = found[nth].record.seq;
            let record = Record { id, seq, name: name(1), ordinal, event, created: now };
            assert_eq!(found[nth].record, record);
            let by_id = b.view(move |view| view.records(&[id])).remove(0);
            assert_eq!(by_id.as_ref(), Some(&found[nth]));
            let (deliveries, _) = b.fetch("one", Cursor::default(), 9);
            assert_eq!((&deliveries[nth].record, deliveries[nth].ordering_hash), (&record, record.ordering_hash()));
        }
        let unknown = OutboxId::from_bytes([1; 16]);
        assert_eq!(b.view(move |view| view.records(&[unknown])), [None]);
    }
}
