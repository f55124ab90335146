//! The same random histories on every store, compared answer by answer.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::effect::{
    Ask, Effect, Finding, Report, Resolution, Safety, Seen, Settled, Settling, StateName, Verdict,
};
use hapax_core::epoch::{Bound, Domain};
use hapax_core::fingerprint::Fingerprint;
use hapax_core::journal::Entry;
use hapax_core::journal::EntryKind::Granted;
use hapax_core::key::Key;
use hapax_core::lease::{Lease, LeaseId};
use hapax_core::lock::LockKey;
use hapax_core::name::{Name, Namespace};
use hapax_core::outbox::{Artifact, Event, Order, Payload};
use hapax_core::outcome::Outcome;
use hapax_core::part::{Part, PartFilter};
use hapax_core::route::{Route, SinkName};
use hapax_postgres::foreign::{self, SettleError};
use hapax_postgres::{Options, PgStore, tokio_postgres};
use hapax_sqlite::SqliteStore;
use hapax_store::outbox::{Attachments, Emission, RecordFilter, RecordStatus, Routing};
use hapax_store::{
    Clock, Job, ManualClock, MemoryStore, Request, Step, Store, StoreError, call, command, read,
};
use hapax_testkit::Postgres;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio::runtime::Runtime;
use tokio_postgres::Client;

const TERM_MS: u64 = 9_000;

/// One step of a history, in terms that have the same meaning on every store.
#[derive(Debug, Clone)]
enum Act {
    Pass {
        ms: u64,
    },
    Jump {
        ms: u64,
    },
    Open {
        lease: u8,
    },
    Renew {
        lease: u8,
    },
    Close {
        lease: u8,
    },
    Claim {
        key: u8,
        payload: u8,
        safety: u8,
        lock: Option<u8>,
        /// In the current epoch; in the one before it, if 0.
        epoch: Option<u8>,
        ttl: bool,
        deadline: bool,
        lease: u8,
    },
    /// Settles by the attempt of one of the last claims.
    Settle {
        key: u8,
        back: usize,
        report: u8,
    },
    Reconcile {
        key: u8,
        back: usize,
        finding: u8,
    },
    Resolve {
        key: u8,
        back: usize,
        resolution: u8,
    },
    Step {
        key: u8,
        back: usize,
    },
    RolledBack {
        key: u8,
        back: usize,
    },
    Reset {
        key: u8,
        back: usize,
    },
    Advance {
        by: u8,
    },
    Expire,
    Sweep,
}

fn act(steady: bool) -> impl Strategy<Value = Act> {
    let (key, lease, back) = (0..3u8, 0..2u8, 0..3usize);
    let epoch = prop::option::weighted(0.5, 0..6u8);
    prop_oneof![
        2 => (1..6u64).prop_map(|n| Act::Pass { ms: n * 3_000 }),
        2 => (0..40_000u64).prop_map(move |ms| {
            if steady { Act::Pass { ms: 3_000 } } else { Act::Jump { ms } }
        }),
        2 => lease.clone().prop_map(|lease| Act::Open { lease }),
        1 => lease.clone().prop_map(|lease| Act::Renew { lease }),
        1 => lease.clone().prop_map(|lease| Act::Close { lease }),
        12 => (key.clone(), 0..6u8, 0..4u8, prop::option::of(0..2u8), epoch, any::<bool>(), any::<bool>(), lease)
            .prop_map(|(key, payload, safety, lock, epoch, ttl, deadline, lease)| Act::Claim {
                key, payload, safety, lock, epoch, ttl, deadline, lease
            }),
        8 => (key.clone(), back.clone(), 0..6u8)
            .prop_map(|(key, back, report)| Act::Settle { key, back, report }),
        2 => (key.clone(), back.clone(), 0..3u8)
            .prop_map(|(key, back, finding)| Act::Reconcile { key, back, finding }),
        2 => (key.clone(), back.clone(), 0..4u8)
            .prop_map(|(key, back, resolution)| Act::Resolve { key, back, resolution }),
        1 => (key.clone(), back.clone()).prop_map(|(key, back)| Act::Step { key, back }),
        1 => (key.clone(), back.clone()).prop_map(|(key, back)| Act::RolledBack { key, back }),
        1 => (key, back).prop_map(|(key, back)| Act::Reset { key, back }),
        2 => (0..3u8).prop_map(|by| Act::Advance { by }),
        1 => Just(Act::Expire),
        1 => Just(Act::Sweep),
    ]
}

fn name(key: u8) -> Name {
    Name { namespace: Namespace::default(), key: Key::from_bytes([key + 1; 32]) }
}

fn domain() -> Domain {
    Domain::new("connector").expect("a domain")
}

/// The events of an effect: none, two ordered and one unordered, or one that no route matches.
fn events(key: u8) -> Vec<Emission> {
    let event = |name: &str, order| Event {
        order,
        ..Event::new(name, "flow", Payload::parse(br#"{"a":[1,"x"]}"#).expect("JSON"))
    };
    let artifact = || Artifact {
        version: "v1".into(),
        checksum: "sha256:aa".into(),
        uri: "s3://bucket/flow".into(),
    };
    let events = match key {
        0 => vec![],
        1 => vec![
            Event { artifact: Some(artifact()), ..event("published", Order::Dataset) },
            Event { version: Some("v1".into()), ..event("published", Order::Key("é".into())) },
            Event { pipeline: Some("p".into()), ..event("published", Order::Free) },
        ],
        _ => vec![event("unrouted", Order::Dataset)],
    };
    let numbered = events.into_iter().zip(0..);
    numbered.map(|(event, ordinal)| Emission { ordinal, event }).collect()
}

/// Two sinks, and a route to them for the `published` events.
fn route(stores: &[&dyn Store]) {
    let sink = |name| SinkName::new(name).expect("a name");
    let sinks = vec![(sink("one"), None), (sink("two"), Some(60_000))];
    let (event, dataset) = ("published*".into(), "*".into());
    let routes = vec![Route { event, dataset, sinks: vec![sink("one"), sink("two")] }];
    let routing = Routing { sinks, routes };
    for store in stores {
        wait(call(*store, command::Configure(routing.clone()))).expect("routes");
    }
}

fn lease(n: u8) -> LeaseId {
    LeaseId::from_bytes([n + 1; 16])
}

/// Turns acts into jobs, whose commands name attempts that are the same on every store.
#[derive(Default)]
struct Script {
    claims: u8,
    epoch: u64,
    /// The attempts of the claims so far, by key.
    attempts: [Vec<AttemptId>; 3],
}

impl Script {
    fn attempt(&self, key: u8, back: usize) -> AttemptId {
        let attempts = &self.attempts[usize::from(key)];
        let at = attempts.len().checked_sub(back + 1);
        at.map_or(AttemptId::from_bytes([255; 16]), |at| attempts[at])
    }

    fn job(&mut self, clock: &ManualClock, act: &Act) -> Option<Job> {
        let by = || ("ann".to_owned(), "looked".to_owned());
        Some(match *act {
            Act::Pass { .. } | Act::Jump { .. } => return None,
            Act::Open { lease: n } => job(command::OpenLease {
                id: lease(n),
                term_ms: TERM_MS,
                holder: format!("holder {n}"),
                forgetful: false,
            }),
            Act::Renew { lease: n } => job(command::RenewLease { id: lease(n), seen: 0 }),
            Act::Close { lease: n } => job(command::CloseLease { id: lease(n) }),
            Act::Claim { key, payload, safety, lock, epoch, ttl, deadline, lease: n } => {
                self.claims += 1;
                let attempt = AttemptId::from_bytes([self.claims; 16]);
                self.attempts[usize::from(key)].push(attempt);
                let ask = Ask {
                    // Most claims have the same payload.
                    fingerprint: Fingerprint::of(if payload == 0 { b"other" } else { b"same" }),
                    safety: match safety {
                        0 => Safety::Transactional,
                        1 => Safety::Reconcilable(Settling::AfterMs(20_000)),
                        2 => Safety::Reconcilable(Settling::TargetRefusesLate),
                        _ => Safety::Opaque,
                    },
                    lock: lock.map(|lock| LockKey(u64::from(lock))),
                    bound: epoch.map(|nth| {
                        let before = u64::from(nth == 0);
                        Bound { domain: domain(), epoch: self.epoch.saturating_sub(before) }
                    }),
                    label: Some(format!("claim {}", self.claims)),
                    ttl_ms: ttl.then_some(10_000),
                    attempt,
                    lease: lease(n),
                    deadline_ms: deadline.then_some(5_000),
                    about: deadline.then(|| format!("about {key}")),
                    // An effect is a part from the beginning, or never.
                    part: (key > 0).then(|| Part {
                        whole: Key::from_bytes([200; 32]),
                        kind: "mutation".into(),
                        body: vec![key, self.claims],
                    }),
                };
                job(command::Claim { name: name(key), ask })
            }
            Act::Settle { key, back, report } => {
                let report = match report {
                    0 => Report::Failed("no".into()),
                    1 => Report::Partial("half".into()),
                    2 => Report::Ambiguous("timeout".into()),
                    3 => Report::Succeeded(Outcome::new(vec![7; 100_000])),
                    4 => Report::Succeeded(Outcome::new(vec![7; 100]).within(10)),
                    _ => Report::Succeeded("done".into()),
                };
                let (name, attempt) = (name(key), self.attempt(key, back));
                job(command::Settle {
                    name,
                    attempt,
                    fence: None,
                    report,
                    attachments: Attachments {
                        events: events(key),
                        note: Some(format!("{key} is done")),
                        ..Attachments::default()
                    },
                })
            }
            Act::Reconcile { key, back, finding } => job(command::Reconcile {
                name: name(key),
                attempt: self.attempt(key, back),
                fence: Fence(0),
                looked: clock.now().lease,
                finding: match finding {
                    0 => Finding::NotFound,
                    1 => Finding::CannotTell("503".into()),
                    _ => Finding::Happened("found".into()),
                },
            }),
            Act::Resolve { key, back, resolution } => {
                let (actor, note) = by();
                let resolution = match resolution {
                    0 => Resolution::DidNotHappen,
                    1 => Resolution::Skip,
                    2 => Resolution::AskAgain,
                    _ => Resolution::Happened("seen".into()),
                };
                let seen = Seen { attempt: self.attempt(key, back), state: StateName::Running };
                job(command::Resolve { name: name(key), seen, resolution, actor, note })
            }
            Act::Step { key, back } => job(command::RegisterStep {
                name: name(key),
                attempt: self.attempt(key, back),
                step: Step { name: "undo".into(), payload: vec![1, 2, 3] },
                nth: None,
            }),
            Act::RolledBack { key, back } => {
                job(command::RolledBack { name: name(key), attempt: self.attempt(key, back) })
            }
            Act::Reset { key, back } => {
                let (actor, note) = by();
                let seen = Seen { attempt: self.attempt(key, back), state: StateName::Running };
                job(command::Reset { name: name(key), seen, actor, note })
            }
            Act::Advance { by: steps } => {
                let ((actor, reason), seen) = (by(), self.epoch);
                self.epoch += u64::from(steps);
                let (namespace, to) = (Namespace::default(), self.epoch);
                job(command::Advance { namespace, domain: domain(), seen, to, actor, reason })
            }
            Act::Expire => job(command::Expire { limit: 100 }),
            Act::Sweep => job(command::Sweep { limit: 100 }),
        })
    }
}

fn job(command: impl Request) -> Job {
    Job::of(command).0
}

/// The answer of a store to a command that names the fence which this store gave, and the state that
/// it shows: each store has numbers of its own.
fn answer(store: &dyn Store, job: &Job) -> String {
    match job {
        Job::OpenLease(job) => plain_answer(store, &job.command),
        Job::RenewLease(job) => plain_answer(store, &job.command),
        Job::CloseLease(job) => plain_answer(store, &job.command),
        Job::Claim(job) => verdict(wait(call(store, job.command.clone()))),
        Job::Settle(job) => plain_answer(store, &fenced(store, &job.command)),
        Job::Reconcile(job) => {
            let fence = shown(store, &job.command.name).map_or(Fence(0), |effect| effect.fence);
            plain_answer(store, &command::Reconcile { fence, ..job.command.clone() })
        }
        Job::Resolve(job) => {
            let seen = seen(store, &job.command.name, job.command.seen);
            plain_answer(store, &command::Resolve { seen, ..job.command.clone() })
        }
        Job::RegisterStep(job) => plain_answer(store, &job.command),
        Job::RolledBack(job) => plain_answer(store, &job.command),
        Job::Reset(job) => {
            let seen = seen(store, &job.command.name, job.command.seen);
            plain_answer(store, &command::Reset { seen, ..job.command.clone() })
        }
        Job::Advance(job) => plain_answer(store, &job.command),
        Job::Expire(job) => plain_answer(store, &job.command),
        Job::Sweep(job) => plain_answer(store, &job.command),
        other => panic!("no act leads to {other:?}"),
    }
}

fn shown(store: &dyn Store, name: &Name) -> Option<Effect> {
    let name = name.clone();
    wait(read(store, move |view| view.effects(&[name]))).expect("an effect").remove(0)
}

fn seen(store: &dyn Store, name: &Name, seen: Seen) -> Seen {
    Seen { state: shown(store, name).map_or(seen.state, |effect| effect.state.name()), ..seen }
}

/// The settle with the fence of its attempt's newest grant.
fn fenced(store: &dyn Store, settle: &command::Settle) -> command::Settle {
    let (name, by) = (settle.name.clone(), settle.attempt);
    let entries = wait(read(store, move |view| view.entries(Some(&name), 0, 10_000)));
    let granted = |entry: &&Entry| entry.event == Granted && entry.attempt == by;
    let entries = entries.expect("a journal");
    let entry = entries.iter().rev().find(granted);
    command::Settle { fence: Some(Fence(entry.map_or(0, |entry| entry.id))), ..settle.clone() }
}

fn plain_answer<R: Request>(store: &dyn Store, command: &R) -> String {
    plain(wait(call(store, command.clone())))
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
        assert!(std::time::Instant::now() < deadline, "the store does not answer");
        std::thread::yield_now();
    }
}

/// A verdict without the parts that may differ: fences have gaps.
fn verdict(verdict: Result<Verdict, StoreError>) -> String {
    match verdict {
        Ok(Verdict::Granted(grant)) => {
            format!("granted {} for the {}. time", grant.attempt, grant.nth)
        }
        Ok(Verdict::Replayed { outcome, .. }) => format!("replayed {outcome:?}"),
        verdict => plain(verdict),
    }
}

/// An answer without the parts that may differ: errors have other texts.
fn plain<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(error) => error.code().to_owned(),
    }
}

/// The state of a store, without the numbers.
type Everything =
    (Vec<Option<Effect>>, Vec<Lease>, Vec<Entry>, Vec<RecordStatus>, Vec<(Name, Part)>);

fn everything(store: &dyn Store) -> Everything {
    let all = read(store, |view| {
        let names: Vec<_> = (0..3).map(name).collect();
        let mut leases = view.leases()?;
        leases.sort_by_key(|lease| lease.id);
        let filter = RecordFilter { limit: 10_000, ..RecordFilter::default() };
        let outbox = view.outbox(&filter)?;
        let sought = PartFilter { kind: "mutation".into(), limit: 10_000, ..PartFilter::default() };
        let parts = view.parts(&Namespace::default(), &sought)?;
        Ok((view.effects(&names)?, leases, view.entries(None, 0, 10_000)?, outbox, parts))
    });
    let (mut effects, leases, mut entries, mut outbox, parts) = wait(all).expect("a read");
    let parts = parts.into_iter().map(|found| (found.name, found.part)).collect();
    for effect in effects.iter_mut().flatten() {
        effect.fence = Fence(0);
    }
    for entry in &mut entries {
        entry.id = 0;
    }
    for found in &mut outbox {
        found.record.seq = 0;
    }
    (effects, leases, entries, outbox, parts)
}

/// Lets time pass: in beats that keep every store's pulse steady, or all at once.
fn pass(stores: &[&dyn Store], clock: &ManualClock, act: &Act) {
    match *act {
        Act::Pass { ms } => {
            for _ in 0..ms / 3_000 {
                clock.advance(3_000);
                for store in stores {
                    let beat = command::RenewLease { id: LeaseId::from_bytes([99; 16]), seen: 0 };
                    wait(call(*store, beat)).expect("a beat");
                }
            }
        }
        Act::Jump { ms } => clock.advance(ms),
        _ => {}
    }
}

struct Bench {
    server: Postgres,
    directory: tempfile::TempDir,
    cases: u32,
}

impl Bench {
    fn new() -> Self {
        let server = Postgres::start();
        server.database("empty");
        PgStore::migrate(&server.url("empty")).expect("a schema");
        Self { server, directory: tempfile::tempdir().expect("a directory"), cases: 0 }
    }

    /// A new ledger, and its database's URL.
    fn postgres(&mut self, clock: &Arc<ManualClock>) -> (PgStore, String) {
        self.cases += 1;
        let name = format!("case_{}", self.cases);
        self.server.sql("postgres", &format!("CREATE DATABASE {name} TEMPLATE empty"));
        let clock: Option<Arc<dyn Clock>> = Some(clock.clone());
        let options = Options { clock, ..Options::default() };
        let url = self.server.url(&name);
        (PgStore::open(&url, options).expect("a ledger"), url)
    }

    fn sqlite(&self, clock: &Arc<ManualClock>) -> SqliteStore {
        let path = self.directory.path().join(format!("case-{}.db", self.cases));
        let options = hapax_sqlite::Options { clock: clock.clone() };
        SqliteStore::open(&path, options).expect("a ledger")
    }
}

fn config(cases: u32) -> Config {
    Config { cases, failure_persistence: None, max_shrink_iters: 200, ..Config::default() }
}

/// Proves C-4, K-15: SQLite, PostgreSQL and the oracle give the same answers to the same histories.
#[test]
fn every_store_gives_the_same_answers() {
    let bench = std::cell::RefCell::new(Bench::new());
    let histories = prop::collection::vec(act(false), 1..60);
    let compared = TestRunner::new(config(100)).run(&histories, |acts| {
        let clock = Arc::new(ManualClock::default());
        let oracle = MemoryStore::new(clock.clone());
        let (postgres, _) = bench.borrow_mut().postgres(&clock);
        let sqlite = bench.borrow().sqlite(&clock);
        let stores: [&dyn Store; 3] = [&oracle, &sqlite, &postgres];
        route(&stores);
        let mut script = Script::default();
        for act in &acts {
            pass(&stores, &clock, act);
            let Some(job) = script.job(&clock, act) else { continue };
            let answers = stores.map(|store| answer(store, &job));
            prop_assert_eq!(&answers[0], &answers[1], "SQLite, {:?}", act);
            prop_assert_eq!(&answers[0], &answers[2], "PostgreSQL, {:?}", act);
        }
        let [expected, sqlite, postgres] = stores.map(everything);
        prop_assert_eq!(&expected, &sqlite);
        prop_assert_eq!(&expected, &postgres);
        Ok(())
    });
    compared.expect("the same answers");
}

/// A clock in a table, instead of the server's own.
const TABLE_CLOCK: &str = "CREATE TABLE hapax.test_clock (ms bigint);
INSERT INTO hapax.test_clock VALUES (0);
CREATE OR REPLACE FUNCTION hapax.now_ms() RETURNS bigint LANGUAGE sql VOLATILE
    AS 'SELECT ms FROM hapax.test_clock';";

/// Proves C-4, K-8, K-15, O-2: `hapax.claim`, `hapax.emit` and `hapax.settle` decide as hapax-core does.
#[test]
fn the_sql_functions_give_the_same_answers() {
    let bench = std::cell::RefCell::new(Bench::new());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let histories = prop::collection::vec(act(true), 1..60);
    let compared = TestRunner::new(config(100)).run(&histories, |acts| {
        let clock = Arc::new(ManualClock::default());
        // The server has one clock for wall time and leases.
        clock.change(|now| now.lease.ms = now.wall.0 as u64);
        let oracle = MemoryStore::new(clock.clone());
        let (postgres, url) = bench.borrow_mut().postgres(&clock);
        let client = runtime.block_on(async {
            let (client, connection) =
                tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("a client");
            tokio::spawn(connection);
            client.batch_execute(TABLE_CLOCK).await.expect("a clock");
            client
        });
        let stores: [&dyn Store; 2] = [&oracle, &postgres];
        route(&stores);
        let mut script = Script::default();
        for act in &acts {
            pass(&stores, &clock, act);
            let Some(job) = script.job(&clock, act) else { continue };
            let now = clock.now().wall.0;
            // The functions read no clock for expiry: an expired effect counts until a node has removed
            // it.
            for store in stores {
                wait(call(store, command::Sweep { limit: 1_000 })).expect("removed");
            }
            let expected = answer(&oracle, &job);
            let set = format!("UPDATE hapax.test_clock SET ms = {now}");
            runtime.block_on(client.batch_execute(&set)).expect("a clock");
            let answer = by_sql(&runtime, &client, &postgres, &job);
            prop_assert_eq!(expected, answer, "{:?}", act);
        }
        // The functions do not support parts.
        let [expected, found] = stores.map(|store| {
            let mut all = everything(store);
            all.4.clear();
            all
        });
        prop_assert_eq!(&expected, &found);
        Ok(())
    });
    compared.expect("the same answers");
}

/// Claims and successes go through the functions, all other commands through the store.
fn by_sql(runtime: &Runtime, client: &Client, store: &PgStore, job: &Job) -> String {
    match job {
        Job::Claim(job) => {
            let command::Claim { name, ask } = &job.command;
            verdict(runtime.block_on(foreign::claim_in(client, name, ask)))
        }
        Job::Settle(job) => {
            let settle = fenced(store, &job.command);
            let (Report::Succeeded(outcome), Some(fence)) = (&settle.report, settle.fence) else {
                return plain_answer(store, &settle);
            };
            let by = (settle.attempt, fence);
            let settled = runtime.block_on(async {
                client.batch_execute("BEGIN").await.expect("a transaction");
                let (name, attachments) = (&settle.name, &settle.attachments);
                let settled = foreign::settle_in(client, name, by, outcome, attachments).await;
                let end = if settled.is_ok() { "COMMIT" } else { "ROLLBACK" };
                client.batch_execute(end).await.expect("an end");
                settled
            });
            match settled {
                Ok(()) => plain(Ok(Settled::Recorded)),
                // The store journals the contradiction, as the engine asks it to.
                // A repeated settle is an error in a caller's transaction, and no change to a lone
                // caller.
                Err(SettleError::Fenced | SettleError::AlreadyRecorded) => {
                    plain_answer(store, &settle)
                }
                Err(SettleError::Store(error)) => plain::<Settled>(Err(error)),
            }
        }
        job => answer(store, job),
    }
}
