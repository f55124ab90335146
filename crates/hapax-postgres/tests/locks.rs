//! Locks of commands that share a statement.

use std::time::{Duration, Instant};

use hapax_core::attempt::AttemptId;
use hapax_core::effect::{Ask, Report, Safety, Settled, Verdict};
use hapax_core::fingerprint::Fingerprint;
use hapax_core::key::Key;
use hapax_core::lease::LeaseId;
use hapax_core::lock::LockKey;
use hapax_core::name::{Name, Namespace};
use hapax_core::outcome::Outcome;
use hapax_postgres::tokio_postgres::types::ToSql;
use hapax_postgres::tokio_postgres::{Client, NoTls};
use hapax_postgres::{Options, PgStore, tokio_postgres};
use hapax_store::outbox::Attachments;
use hapax_store::{Job, Request, Store, StoreError, call, command, read};
use hapax_testkit::Postgres;

const LEASE: LeaseId = LeaseId::from_bytes([9; 16]);

struct Bench {
    server: Postgres,
    store: Option<PgStore>,
    client: Client,
    url: String,
}

impl Bench {
    async fn new() -> Self {
        let server = Postgres::start();
        let url = server.url("postgres");
        let place = url.clone();
        let opened = tokio::task::spawn_blocking(move || PgStore::open(&place, Options::default()));
        let store = opened.await.expect("no panic").expect("a ledger");
        let open = command::OpenLease {
            id: LEASE,
            term_ms: 60_000,
            holder: "a test".into(),
            forgetful: false,
        };
        call(&store, open).await.expect("a lease");
        let client = client(&url).await;
        Self { server, store: Some(store), client, url }
    }

    fn store(&self) -> &PgStore {
        self.store.as_ref().expect("open")
    }

    /// Submits commands together, and returns the answer to each.
    async fn together<R: Request>(&self, commands: Vec<R>) -> Vec<R::Answer> {
        let (jobs, answers): (Vec<_>, Vec<_>) = commands.into_iter().map(Job::of).unzip();
        self.store().submit(jobs);
        let mut answered = Vec::new();
        for answer in answers {
            answered.push(answer.await.expect("an answer").expect("no error"));
        }
        answered
    }

    async fn settle(&self, key: u8) -> Settled {
        let effects = read(self.store(), move |view| view.effects(&[name(key)])).await;
        let settle = command::Settle {
            name: name(key),
            attempt: AttemptId::from_bytes([key; 16]),
            fence: effects.expect("a read").remove(0).map(|effect| effect.fence),
            report: Report::Succeeded(Outcome::from("done")),
            attachments: Attachments {
                note: Some(format!("{key} is done")),
                ..Attachments::default()
            },
        };
        call(self.store(), settle).await.expect("no error")
    }

    async fn held(&self) -> i64 {
        let rows = self.client.query_one("SELECT count(*) FROM hapax.lock", &[]).await;
        rows.expect("a count").get(0)
    }

    async fn over(mut self) {
        // Dropping the store waits for its threads.
        let store = self.store.take();
        tokio::task::spawn_blocking(move || drop(store)).await.expect("no panic");
    }
}

async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

fn name(key: u8) -> Name {
    Name { namespace: Namespace::default(), key: Key::from_bytes([key; 32]) }
}

fn claim(key: u8, lock: Option<u64>) -> command::Claim {
    claim_as(key, key, lock)
}

fn claim_as(attempt: u8, key: u8, lock: Option<u64>) -> command::Claim {
    let ask = Ask {
        fingerprint: Fingerprint::of(b"payload"),
        safety: Safety::Transactional,
        lock: lock.map(LockKey),
        bound: None,
        label: None,
        ttl_ms: None,
        attempt: AttemptId::from_bytes([attempt; 16]),
        lease: LEASE,
        deadline_ms: None,
        about: Some(format!("about {key}")),
        part: None,
    };
    command::Claim { name: name(key), ask }
}

/// Proves P-4: of the claims that ask for the same lock at the same moment, one gets it. The verdict of
/// the others names its holder, and claims without this lock go on. Their notes are in the journal.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_concurrent_claims_one_gets_the_lock() {
    let bench = Bench::new().await;
    let wanted = |key: u8| (!key.is_multiple_of(4)).then_some(u64::from(key % 4));
    let answers = bench.together((1..=40).map(|key| claim(key, wanted(key))).collect()).await;
    let mut holders = [None; 4];
    for (key, answer) in (1u8..).zip(&answers) {
        if let Verdict::Granted(_) = answer
            && let Some(lock) = wanted(key)
        {
            assert_eq!(holders[lock as usize].replace(key), None, "lock {lock} is held");
        }
    }
    for (key, answer) in (1u8..).zip(&answers) {
        let holder = wanted(key).and_then(|lock| holders[lock as usize]);
        match answer {
            Verdict::Granted(_) => assert!(holder.is_none_or(|it| it == key)),
            Verdict::Locked { holder: named } => {
                assert_eq!(Some(*named), holder.map(|it| name(it).key), "{key}");
            }
            other => panic!("{key}: {other:?}"),
        }
    }
    assert_eq!(bench.held().await, 3);

    let holder = holders[1].expect("one of them has it");
    assert_eq!(bench.settle(holder).await, Settled::Recorded);
    assert_eq!(bench.held().await, 2, "it lets go of the lock");
    let next = bench.together(vec![claim(41, Some(1))]).await;
    assert!(matches!(next[..], [Verdict::Granted(_)]), "{next:?}");
    let entries = read(bench.store(), move |view| view.entries(Some(&name(holder)), 0, 10)).await;
    let notes: Vec<_> = entries.expect("a read").into_iter().map(|entry| entry.note).collect();
    assert_eq!(notes, [Some(format!("about {holder}")), Some(format!("{holder} is done"))]);
    bench.over().await;
}

/// Proves P-4: a client that uses an attempt id twice gets the lock only once.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_is_named_twice_has_its_lock_for_one_key() {
    let bench = Bench::new().await;
    let first = bench.together(vec![claim_as(7, 1, Some(1))]).await;
    assert!(matches!(first[..], [Verdict::Granted(_)]), "{first:?}");
    // The other claim makes the statement clean up after itself.
    let again = bench.together(vec![claim_as(7, 2, Some(1)), claim(3, Some(3))]).await;
    let [Verdict::Locked { holder }, Verdict::Granted(_)] = again[..] else { panic!("{again:?}") };
    assert_eq!((holder, bench.held().await), (name(1).key, 2));
    bench.over().await;
}

/// Proves P-4: a claim in a caller's transaction does not take a lock that another transaction took
/// while neither was committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_not_taken_from_an_earlier_claim() {
    let bench = Bench::new().await;
    let (mut one, mut other) = (client(&bench.url).await, client(&bench.url).await);
    let ask = |key: &str| {
        format!(
            "SELECT verdict FROM hapax.claim('sha256:' || encode(sha256('{key}'), 'hex'), sha256('x'),
                 safety => 'transactional', lock => 5)"
        )
    };
    let first = one.transaction().await.expect("a transaction");
    first.batch_execute(&ask("first")).await.expect("granted");
    let second = other.transaction().await.expect("a transaction");
    let pid: i32 = second.query_one("SELECT pg_backend_pid()", &[]).await.expect("a pid").get(0);
    let claims = async {
        second.batch_execute(&ask("second")).await.expect("it waits, and then gets a verdict");
        second.commit().await
    };
    let commits = async {
        let waits = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $1";
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            let row = bench.client.query_one(waits, &[&pid]).await.expect("a row");
            if row.get::<_, Option<bool>>(0) == Some(true) {
                break;
            }
        }
        first.commit().await.expect("committed");
    };
    let (refused, ()) = tokio::join!(claims, commits);
    let refused = refused.expect_err("the lock is held");
    assert_eq!(refused.code().map(|code| code.code()), Some("40001"), "{refused}");
    let held = "SELECT count(*) FROM hapax.lock l WHERE l.holder = sha256('first')";
    let held: i64 = bench.client.query_one(held, &[]).await.expect("a count").get(0);
    assert_eq!(held, 1);
    let effects = "SELECT count(*) FROM hapax.effect WHERE state = 0";
    let effects: i64 = bench.client.query_one(effects, &[]).await.expect("a count").get(0);
    assert_eq!(effects, 1, "the other is not at work");
    bench.over().await;
}

/// Proves P-8: a claim that finds its key taken, between the lock and the record, leaves no lock
/// behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_comes_too_late_leaves_no_lock() {
    const QUICK: &str = "SELECT * FROM hapax.quick_with_locks(hapax.now_ms(), -1, '{}', '{}', '{}',
        '{}', '{}', '{}', '{}', '{}', '{1}', ARRAY[sha256($1)], ARRAY[sha256('x')], '{0}', '{NULL}',
        ARRAY['\\x07070707070707070707070707070707'::bytea], '{NULL}', '{NULL}',
        ARRAY['\\x09090909090909090909090909090909'::bytea], '{NULL}', '{5}', '{NULL}')";
    let bench = Bench::new().await;
    let (mut other, quick) = (client(&bench.url).await, client(&bench.url).await);
    let pid: i32 = quick.query_one("SELECT pg_backend_pid()", &[]).await.expect("a pid").get(0);
    let deadline = Instant::now() + Duration::from_secs(60);
    for n in 0.. {
        let key = format!("key {n}");
        // Another client's claim, not committed yet.
        let theirs = other.transaction().await.expect("a transaction");
        let sql = "SELECT verdict FROM hapax.claim('sha256:' || encode(sha256($1), 'hex'),
                       sha256('x'), safety => 'transactional')";
        theirs.query_one(sql, &[&key.as_bytes()]).await.expect("claimed");
        let bytes = key.clone().into_bytes();
        let params: [&(dyn ToSql + Sync); 1] = [&bytes];
        let ours = quick.query(QUICK, &params);
        let commit = async {
            let waits = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $1";
            while Instant::now() < deadline {
                let row = bench.client.query_one(waits, &[&pid]).await.expect("a row");
                if row.get::<_, Option<bool>>(0) == Some(true) {
                    break;
                }
            }
            theirs.commit().await.expect("committed");
        };
        let (taken, ()) = tokio::join!(ours, commit);
        assert_eq!(bench.held().await, 0, "no lock is left");
        // It waits for fifty milliseconds, no longer, and then the whole statement is undone.
        match taken {
            Ok(taken) => {
                assert!(taken.is_empty(), "the key was another attempt's");
                break;
            }
            Err(_) => assert!(Instant::now() < deadline, "never in time"),
        }
    }
    bench.over().await;
}

/// Proves K-6: a claim whose commit outlived its connection is not called unwritten when the server
/// stays away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_reply_was_lost_is_called_unknown() {
    let mut bench = Bench::new().await;
    bench.server.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = 'no_standby'");
    bench.server.sql("postgres", "SELECT pg_reload_conf()");
    let claimed = call(bench.store(), claim(1, None));
    let start = Instant::now();
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    while bench.server.sql("postgres", waits) == "0" {
        assert!(start.elapsed() < Duration::from_secs(30), "no commit waits for the standby");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    bench.server.stop();
    let answer = claimed.await;
    assert!(matches!(answer, Err(StoreError::CommitUnknown(_))), "{answer:?}");
    let answer = call(bench.store(), claim(2, None)).await;
    assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
    bench.over().await;
}
