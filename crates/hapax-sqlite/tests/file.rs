//! Tests that only a store in a file needs.

use std::path::Path;
use std::sync::Arc;

use hapax_core::attempt::{AttemptId, Fence};
use hapax_core::effect::{Ask, Report, Safety, Settled, StateName, Verdict};
use hapax_core::epoch::Domain;
use hapax_core::fingerprint::Fingerprint;
use hapax_core::key::Key;
use hapax_core::lease::LeaseId;
use hapax_core::name::{Name, Namespace};
use hapax_core::outcome::Outcome;
use hapax_core::part::{Part, PartFilter};
use hapax_sqlite::{Options, SqliteStore};
use hapax_store::outbox::Attachments;
use hapax_store::{
    Clock, Job, Limits, ManualClock, Request, Store, StoreError, call, command, read,
};
use rusqlite::Connection;

const LEASE: LeaseId = LeaseId::from_bytes([1; 16]);

struct Ledger {
    store: SqliteStore,
    clock: Arc<ManualClock>,
    directory: tempfile::TempDir,
}

impl Ledger {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let directory = tempfile::tempdir().expect("a directory");
        let store = open(&directory.path().join("ledger.db"), clock.clone()).expect("a store");
        let ledger = Self { store, clock, directory };
        let lease = command::OpenLease {
            id: LEASE,
            term_ms: 9_000,
            holder: "test".into(),
            forgetful: false,
        };
        ledger.run(lease).expect("a lease");
        ledger
    }

    fn run<R: Request>(&self, command: R) -> Result<R::Answer, StoreError> {
        wait(call(&self.store, command))
    }

    fn claim(&self, key: u8) -> Verdict {
        self.run(command::Claim { name: name(key), ask: ask(key) }).expect("a verdict")
    }

    fn state(&self, key: u8) -> Option<StateName> {
        let effects = wait(read(&self.store, move |view| view.effects(&[name(key)])));
        effects.expect("a read").remove(0).map(|effect| effect.state.name())
    }

    /// The fence of the newest attempt.
    fn fence(&self, key: u8) -> Fence {
        let effects = wait(read(&self.store, move |view| view.effects(&[name(key)])));
        effects.expect("a read").remove(0).map_or(Fence(0), |effect| effect.fence)
    }

    fn sql(&self) -> Connection {
        Connection::open(self.store.path()).expect("a connection")
    }
}

fn open(path: &Path, clock: Arc<ManualClock>) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(path, Options { clock })
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

fn name(key: u8) -> Name {
    Name { namespace: Namespace::default(), key: Key::from_bytes([key; 32]) }
}

fn attempt(key: u8) -> AttemptId {
    AttemptId::from_bytes([key; 16])
}

fn ask(key: u8) -> Ask {
    Ask {
        fingerprint: Fingerprint::of(b"payload"),
        safety: Safety::Transactional,
        lock: None,
        bound: None,
        label: Some(format!("effect {key}")),
        ttl_ms: None,
        attempt: attempt(key),
        lease: LEASE,
        deadline_ms: None,
        about: None,
        part: None,
    }
}

fn success() -> Report {
    Report::Succeeded(Outcome::new(*b"done"))
}

/// Proves C-4: with as many domains as are kept, a known one still moves, and a new one does not.
#[test]
fn a_namespace_has_a_limited_number_of_domains() {
    let ledger = Ledger::new();
    let others = format!(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {})
         INSERT INTO epoch (namespace, domain, epoch) SELECT 1, 'd' || n, 1 FROM n",
        Limits::DOMAINS - 1
    );
    ledger.sql().execute_batch(&others).expect("domains");
    let advance = |domain: &str, seen| {
        let (namespace, domain) =
            (Namespace::default(), Domain::new(domain).expect("a plain name"));
        let (to, actor, reason) = (seen + 1, "ann".into(), "full".into());
        ledger.run(command::Advance { namespace, domain, seen, to, actor, reason })
    };
    advance("last", 0).expect("there is room for one");
    let refused = advance("one-more", 0);
    assert!(matches!(refused, Err(StoreError::Invalid(_))), "{refused:?}");
    advance("d7", 1).expect("it is known");
}

/// Proves K-16: a statement that fails in the database takes only its own command with it.
#[test]
fn one_poisoned_command_in_a_batch_of_64_fails_alone() {
    let ledger = Ledger::new();
    ledger
        .sql()
        .execute_batch(
            "CREATE TRIGGER poison BEFORE INSERT ON effect WHEN NEW.label = 'effect 20'
             BEGIN SELECT RAISE(ABORT, 'poisoned'); END;",
        )
        .expect("a trigger");
    let mut answers = Vec::new();
    let jobs = (1..=64).map(|key| {
        let (job, answer) = Job::of(command::Claim { name: name(key), ask: ask(key) });
        answers.push((key, answer));
        job
    });
    ledger.store.submit(jobs.collect());
    for (key, answer) in answers {
        let answer = wait(answer).expect("an answer");
        match key {
            20 => assert!(
                matches!(&answer, Err(StoreError::Invalid(why)) if why.contains("poisoned")),
                "{answer:?}"
            ),
            _ => assert!(matches!(answer, Ok(Verdict::Granted(_))), "{key}: {answer:?}"),
        }
    }
    assert_eq!(ledger.state(20), None);
    assert_eq!(wait(read(&ledger.store, |view| view.last_entry())).expect("a read"), 63);
}

/// Proves K-13: each way around the journal is refused by the database itself.
#[test]
fn the_journal_cannot_be_changed_by_any_statement() {
    let ledger = Ledger::new();
    for key in 1..=3 {
        ledger.claim(key);
    }
    let db = ledger.sql();
    for statement in [
        "UPDATE journal SET note = 'x' WHERE id = 2",
        "DELETE FROM journal WHERE id = 2",
        "DELETE FROM journal",
        "INSERT OR REPLACE INTO journal SELECT * FROM journal WHERE id = 2",
        "REPLACE INTO journal SELECT * FROM journal WHERE id = 3",
        "INSERT OR IGNORE INTO journal SELECT id + 5, prev, at, namespace, key, event, state, attempt,
             generation, digest, actor, note FROM journal WHERE id = 2",
        "INSERT INTO journal SELECT * FROM journal WHERE id = 2
             ON CONFLICT DO UPDATE SET note = 'x'",
    ] {
        let error = db.execute(statement, []).expect_err(statement).to_string();
        assert!(error.contains("the journal"), "{statement}: {error}");
    }
    assert_numbered(&db, 3);
}

/// Proves K-13: an entry has the next number, and not even the number that stands for none can be
/// given.
#[test]
fn an_entry_of_the_journal_has_the_next_number() {
    let ledger = Ledger::new();
    ledger.claim(1);
    ledger.claim(2);
    let db = ledger.sql();
    for number in ["-1", "0", "2", "4"] {
        let statement = format!(
            "INSERT OR REPLACE INTO journal SELECT {number}, prev, at, namespace, key, event, state,
                 attempt, generation, digest, actor, note FROM journal WHERE id = 2"
        );
        let error = db.execute(&statement, []).expect_err(number).to_string();
        assert!(error.contains("the journal only") || error.contains("id > 0"), "{error}");
    }
    assert_numbered(&db, 2);
}

/// Asserts that there are this many entries, with the first numbers, and as they were written.
fn assert_numbered(db: &Connection, entries: u32) {
    let numbers: rusqlite::Result<Vec<u32>> = db
        .prepare("SELECT id FROM journal WHERE note IS NULL ORDER BY id")
        .and_then(|mut all| all.query_map([], |row| row.get(0))?.collect());
    assert_eq!(numbers.expect("numbers"), Vec::from_iter(1..=entries));
}

/// Proves K-8: a connection that would break a promise is refused, and the error says why.
#[test]
fn a_callers_connection_keeps_our_promises_or_is_refused() {
    let ledger = Ledger::new();
    ledger.claim(1);
    let settle = |db: &mut Connection| {
        let tx = db.transaction().expect("a transaction");
        ledger.store.settle_in(
            &tx,
            &name(1),
            (attempt(1), ledger.fence(1)),
            &success(),
            &Attachments::default(),
        )
    };
    let other = ledger.directory.path().join("other.db");
    for (spoil, why) in [
        ("PRAGMA synchronous = NORMAL".to_owned(), "synchronous"),
        ("PRAGMA synchronous = OFF".to_owned(), "synchronous"),
        ("PRAGMA wal_autocheckpoint = 1000".to_owned(), "wal_autocheckpoint"),
        (format!("ATTACH '{}' AS other", other.display()), "attached"),
    ] {
        let mut db = ledger.store.connection().expect("a connection");
        db.execute_batch(&spoil).expect("spoils");
        match settle(&mut db) {
            Err(StoreError::Connection(error)) => assert!(error.contains(why), "{spoil}: {error}"),
            other => panic!("{spoil}: {other:?}"),
        }
    }
    let mut foreign = Connection::open(&other).expect("another file");
    assert!(matches!(settle(&mut foreign), Err(StoreError::Connection(_))));
    assert_eq!(ledger.state(1), Some(StateName::Running));
    let mut good = ledger.store.connection().expect("a connection");
    assert_eq!(settle(&mut good).expect("settles"), Settled::Recorded);
    assert_eq!(ledger.state(1), Some(StateName::Running), "not committed");
}

/// Proves K-5: in the caller's own transaction too, a stale attempt writes nothing.
#[test]
fn a_stale_settle_in_leaves_no_trace_even_if_the_caller_commits() {
    let ledger = Ledger::new();
    ledger.claim(1);
    let mut db = ledger.store.connection().expect("a connection");
    let tx = db.transaction().expect("a transaction");
    let settled = ledger
        .store
        .settle_in(
            &tx,
            &name(1),
            (attempt(9), ledger.fence(1)),
            &success(),
            &Attachments::default(),
        )
        .expect("an answer");
    assert!(matches!(settled, Settled::Fenced(_)));
    tx.commit().expect_err("the transaction is over");
    assert_eq!(ledger.state(1), Some(StateName::Running));
    assert_eq!(wait(read(&ledger.store, |view| view.last_entry())).expect("a read"), 1);
}

/// Proves K-20: a caller that runs its transaction again after a lost reply books nothing twice.
#[test]
fn a_settle_in_that_was_recorded_before_undoes_the_callers_writes() {
    let ledger = Ledger::new();
    ledger.claim(1);
    let mut db = ledger.store.connection().expect("a connection");
    db.execute_batch("CREATE TABLE booking (amount INTEGER)").expect("a table");
    let by = (attempt(1), ledger.fence(1));
    let mut book = || {
        let tx = db.transaction().expect("a transaction");
        tx.execute("INSERT INTO booking VALUES (10)", []).expect("a row");
        let settled =
            ledger.store.settle_in(&tx, &name(1), by, &success(), &Attachments::default());
        // The caller commits, whatever the answer is.
        (settled, tx.commit().is_ok())
    };
    assert!(matches!(book(), (Ok(Settled::Recorded), true)));
    assert!(matches!(book(), (Err(StoreError::AlreadyRecorded(_)), false)));
    let booked: u32 =
        db.query_row("SELECT count(*) FROM booking", [], |row| row.get(0)).expect("rows");
    assert_eq!(booked, 1);
}

/// Proves K-8: another connection's commit counts, and not the writer's cache.
#[test]
fn a_settle_sees_what_another_connection_committed() {
    let ledger = Ledger::new();
    let report = |key| {
        let report = Report::Failed("no".into());
        ledger.run(command::Settle {
            name: name(key),
            attempt: attempt(key),
            fence: Some(ledger.fence(key)),
            report,
            attachments: Attachments::default(),
        })
    };
    ledger.claim(1);
    ledger.claim(2);
    let mut db = ledger.store.connection().expect("a connection");
    let tx = db.transaction().expect("a transaction");
    ledger
        .store
        .settle_in(
            &tx,
            &name(1),
            (attempt(1), ledger.fence(1)),
            &success(),
            &Attachments::default(),
        )
        .expect("settles");
    tx.commit().expect("commits");
    let late = report(1);
    assert!(matches!(late, Ok(Settled::Fenced(_))), "{late:?}");
    assert_eq!(ledger.state(1), Some(StateName::Succeeded));
    assert!(matches!(report(2), Ok(Settled::Recorded)));
}

/// Proves K-8: a read that is asked for after a commit sees it, whatever other read is in progress.
#[test]
fn a_read_never_sees_less_than_was_committed_before_it_was_asked() {
    let ledger = Ledger::new();
    let (started, has_started) = std::sync::mpsc::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    let slow = read(&ledger.store, move |view| {
        let before = view.last_entry()?;
        started.send(()).expect("the test waits");
        may_go_on.recv().expect("the test goes on");
        Ok(before)
    });
    has_started.recv().expect("the slow read has its snapshot");
    ledger.claim(1);
    let quick = read(&ledger.store, |view| view.last_entry());
    go_on.send(()).expect("the slow read waits");
    assert_eq!(wait(slow).expect("a read"), 0);
    assert_eq!(wait(quick).expect("a read"), 1);
}

/// Proves K-17.
#[test]
fn a_wall_clock_that_jumps_ten_years_expires_nothing() {
    let ledger = Ledger::new();
    let brief = Ask { ttl_ms: Some(1_000), ..ask(1) };
    ledger.run(command::Claim { name: name(1), ask: brief.clone() }).expect("a claim");
    let settle = command::Settle {
        name: name(1),
        attempt: attempt(1),
        fence: Some(ledger.fence(1)),
        report: success(),
        attachments: Attachments::default(),
    };
    ledger.run(settle).expect("a settle");
    ledger.clock.change(|now| now.wall = now.wall.plus_ms(10 * 365 * 86_400_000));
    assert!(ledger.clock.now().wall_trusted, "the clock itself suspects nothing");
    let seen = wait(read(&ledger.store, |view| Ok(view.now()))).expect("a read");
    assert!(!seen.wall_trusted, "a reader sees that it is not trusted");
    assert!(matches!(ledger.run(command::Sweep { limit: 10 }), Ok(0)));
    let again = Ask { attempt: attempt(2), ..brief };
    let answer = ledger.run(command::Claim { name: name(1), ask: again });
    assert!(matches!(answer, Ok(Verdict::Replayed { .. })), "{answer:?}");
}

/// Proves K-1: half a key is never trusted alone.
#[test]
fn a_second_key_with_the_same_first_half_is_a_collision() {
    let ledger = Ledger::new();
    ledger.claim(1);
    let mut bytes = [1; 32];
    bytes[31] = 2;
    let twin = Name { key: Key::from_bytes(bytes), ..name(1) };
    let answer = ledger.run(command::Claim { name: twin, ask: ask(2) });
    assert!(matches!(answer, Err(StoreError::Collision(_))), "{answer:?}");
}

/// Proves K-1: half the name of a whole is not trusted either.
#[test]
fn two_wholes_with_the_same_first_half_keep_their_own_parts() {
    let ledger = Ledger::new();
    let wholes = [0, 1, 0].map(|last| {
        let mut bytes = [7; 32];
        bytes[31] = last;
        Key::from_bytes(bytes)
    });
    for (key, whole) in (1..).zip(wholes) {
        let part = Part { whole, kind: "mutation".into(), body: vec![key] };
        let ask = Ask { part: Some(part), ..ask(key) };
        let granted = ledger.run(command::Claim { name: name(key), ask });
        assert!(matches!(granted, Ok(Verdict::Granted(_))), "{granted:?}");
    }
    let bodies = |whole| {
        let (whole, kind) = (Some(whole), "mutation".to_owned());
        let filter = PartFilter { whole, kind, limit: 9, ..PartFilter::default() };
        let found =
            wait(read(&ledger.store, move |view| view.parts(&Namespace::default(), &filter)));
        found.expect("a read").into_iter().map(|found| found.part.body[0]).collect::<Vec<_>>()
    };
    assert_eq!([0, 1].map(|n| bodies(wholes[n])), [vec![1, 3], vec![2]]);
}

/// Proves I-4, K-11: parts are found in their order however much was granted between them, and a
/// whole is gone with its last part.
#[test]
fn parts_that_lie_far_apart_are_found_in_order() {
    let ledger = Ledger::new();
    let [ours, theirs] = [[8; 32], [9; 32]].map(Key::from_bytes);
    let grant = |key: u8, whole: Key, ttl_ms: u64| {
        let part = Part { whole, kind: "mutation".into(), body: vec![key] };
        let ask = Ask { part: Some(part), ttl_ms: Some(ttl_ms), ..ask(key) };
        let granted = ledger.run(command::Claim { name: name(key), ask });
        assert!(matches!(granted, Ok(Verdict::Granted(_))), "{granted:?}");
        let (report, attachments) = (success(), Attachments::default());
        let (name, attempt, fence) = (name(key), attempt(key), Some(ledger.fence(key)));
        let settle = command::Settle { name, attempt, fence, report, attachments };
        ledger.run(settle).expect("settled");
    };
    // The journal grows to this number; the next effect follows it.
    let far = |number: i64| {
        let grown = ledger.sql().execute(
            "INSERT OR FAIL INTO journal (at, namespace, key, event, state, attempt, generation)
             WITH RECURSIVE n (i) AS (SELECT max(id) + 1 FROM journal
                 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
             SELECT 0, 1, zeroblob(32), 0, 0, zeroblob(16), 1 FROM n",
            [number],
        );
        assert!(grown.is_ok(), "{grown:?}");
    };
    grant(1, ours, 1_000);
    grant(2, theirs, 1_000);
    far(10_000);
    grant(4, ours, 1_000);
    grant(5, theirs, 9_000);
    grant(6, ours, 9_000);
    far(50_000);
    grant(8, ours, 9_000);
    let found = |whole, newest_first, limit, beyond| {
        let (whole, kind) = (Some(whole), "mutation".to_owned());
        let filter =
            PartFilter { whole, kind, limit, newest_first, beyond, ..PartFilter::default() };
        let found =
            wait(read(&ledger.store, move |view| view.parts(&Namespace::default(), &filter)));
        let found = found.expect("a read");
        let last = found.last().map(|found| found.position);
        (found.into_iter().map(|found| found.part.body[0]).collect::<Vec<_>>(), last)
    };
    assert_eq!(found(ours, false, 9, None).0, [1, 4, 6, 8]);
    assert_eq!(found(theirs, true, 9, None).0, [5, 2]);
    for newest_first in [false, true] {
        let (mut walked, mut after) = (Vec::new(), None);
        for _ in 0..4 {
            let (one, next) = found(ours, newest_first, 1, after);
            walked.extend(one);
            after = next;
        }
        let expected = if newest_first { [8, 6, 4, 1] } else { [1, 4, 6, 8] };
        assert_eq!(
            (walked.as_slice(), found(ours, newest_first, 1, after)),
            (&expected[..], (vec![], None))
        );
    }
    let buckets = || -> Vec<(i64, i64)> {
        let db = ledger.sql();
        let mut wholes = db.prepare("SELECT first, last FROM whole ORDER BY number").expect("SQL");
        let rows = wholes.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
        rows.collect::<Result<_, _>>().expect("numbers")
    };
    assert_eq!(buckets(), [(0, 24), (0, 4)]);
    ledger.clock.advance(1_001);
    ledger.run(command::Sweep { limit: 10 }).expect("a sweep");
    assert_eq!(
        (found(ours, false, 9, None).0, found(theirs, false, 9, None).0),
        (vec![6, 8], vec![5])
    );
    assert_eq!(buckets(), [(4, 24), (4, 4)], "empty buckets at the front are not searched again");
    ledger.clock.advance(9_000);
    ledger.run(command::Sweep { limit: 10 }).expect("a sweep");
    assert_eq!(buckets(), []);
}

#[test]
fn a_file_that_is_no_database_is_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let garbage = directory.path().join("garbage.db");
    std::fs::write(&garbage, [7; 8192]).expect("writes");
    let clock = Arc::new(ManualClock::default());
    assert!(matches!(open(&garbage, clock), Err(StoreError::Corrupt(_))));
}

/// Proves K-5: fences grow across restarts.
#[test]
fn a_reopened_ledger_has_its_effects() {
    let Ledger { store, clock, directory } = Ledger::new();
    let path = store.path().to_owned();
    let claim = |store: &SqliteStore, key| {
        wait(call(store, command::Claim { name: name(key), ask: ask(key) }))
    };
    assert!(matches!(claim(&store, 1), Ok(Verdict::Granted(grant)) if grant.fence.0 == 1));
    drop(store);
    let store = open(&path, clock).expect("reopens");
    assert!(matches!(claim(&store, 1), Ok(Verdict::Granted(_))), "the same attempt");
    assert!(matches!(claim(&store, 2), Ok(Verdict::Granted(grant)) if grant.fence.0 == 2));
    drop(directory);
}

/// Proves K-12: a body shared by two effects outlives the first, and no longer than the last.
#[test]
fn a_large_body_is_stored_once_and_goes_with_its_last_effect() {
    let ledger = Ledger::new();
    let body = vec![b'x'; 200_000];
    for key in 1..=2u8 {
        let brief = Ask { ttl_ms: Some(u64::from(key) * 1_000), ..ask(key) };
        ledger.run(command::Claim { name: name(key), ask: brief }).expect("a claim");
        let report = Report::Succeeded(Outcome::new(body.clone()));
        ledger
            .run(command::Settle {
                name: name(key),
                attempt: attempt(key),
                fence: Some(ledger.fence(key)),
                report,
                attachments: Attachments::default(),
            })
            .expect("a settle");
    }
    let bodies = || -> u32 {
        ledger.sql().query_row("SELECT count(*) FROM body", [], |row| row.get(0)).expect("a count")
    };
    assert_eq!(bodies(), 1);
    for left in [1, 0] {
        ledger.clock.advance(1_000);
        ledger.run(command::Sweep { limit: 10 }).expect("a sweep");
        assert_eq!(bodies(), left);
    }
}

/// Proves K-8: a deferred transaction that has read nothing yet waits for the connection that is
/// writing.
#[test]
fn a_deferred_transaction_takes_part_while_others_write() {
    let ledger = Ledger::new();
    let mut db = ledger.store.connection().expect("a connection");
    for key in 1..=50 {
        let behaviour = rusqlite::TransactionBehavior::Deferred;
        let tx = db.transaction_with_behavior(behaviour).expect("a transaction");
        std::thread::scope(|scope| {
            // Between the transaction's beginning and its claim the store's writer commits.
            scope.spawn(|| ledger.claim(100 + key)).join().expect("no panic");
            let other = scope.spawn(|| ledger.claim(200_u8.wrapping_add(key)));
            let verdict = ledger.store.claim_in(&tx, &name(key), &ask(key)).expect("a verdict");
            assert!(matches!(verdict, Verdict::Granted(_)));
            tx.commit().expect("committed");
            other.join().expect("no panic");
        });
    }
}

/// Proves K-16: a process that writes without pause does not keep the others out.
#[test]
fn each_process_gets_its_turn_to_write() {
    let ledger = Ledger::new();
    let path = ledger.store.path().to_owned();
    let enough = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut busy = Vec::new();
    for nth in 0..3_u8 {
        let store = Arc::new(open(&path, ledger.clock.clone()).expect("a store"));
        for caller in 0..30_u8 {
            let (store, enough) = (store.clone(), enough.clone());
            busy.push(std::thread::spawn(move || {
                let id = LeaseId::from_bytes([100 + nth * 30 + caller; 16]);
                let mut calls = 0;
                while !enough.load(std::sync::atomic::Ordering::Relaxed) {
                    let holder = format!("{calls}");
                    let lease = command::OpenLease { id, term_ms: 9_000, holder, forgetful: false };
                    wait(call(&*store, lease)).expect("an answer");
                    wait(call(&*store, command::CloseLease { id })).expect("an answer");
                    calls += 1;
                }
                calls
            }));
        }
    }
    for key in 1..=200 {
        assert!(matches!(ledger.claim(key), Verdict::Granted(_)));
    }
    enough.store(true, std::sync::atomic::Ordering::Relaxed);
    let calls: Vec<u32> = busy.into_iter().map(|thread| thread.join().expect("no error")).collect();
    let (fewest, most) = (calls.iter().min().expect("some"), calls.iter().max().expect("some"));
    assert!(fewest * 3 >= *most, "some had {fewest} turns where others had {most}");
}
