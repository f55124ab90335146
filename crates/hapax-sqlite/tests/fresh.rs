//! Keys are found from the moment they are committed, whether they are filed or fresh.

use std::sync::Arc;

use hapax_core::attempt::AttemptId;
use hapax_core::effect::{Ask, Report, Safety, Verdict};
use hapax_core::fingerprint::Fingerprint;
use hapax_core::key::Key;
use hapax_core::lease::LeaseId;
use hapax_core::name::{Name, Namespace};
use hapax_core::outcome::Outcome;
use hapax_sqlite::{Options, SqliteStore};
use hapax_store::outbox::Telling;
use hapax_store::{Answer, Command, ManualClock, StoreError, call, read};
use rusqlite::Connection;

/// More than are ever left fresh while the journal is short.
const MANY: u64 = 6_000;

/// One file, and the stores that are open on it.
struct Place {
    clock: Arc<ManualClock>,
    directory: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
}

impl Place {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let directory = tempfile::tempdir().expect("a directory");
        Self { clock: Arc::default(), directory, runtime }
    }

    fn open(&self) -> Ledger<'_> {
        let options = Options { clock: self.clock.clone() };
        let store = SqliteStore::open(self.path(), options).expect("a store");
        let ledger = Ledger { place: self, store };
        let (id, holder) = (LEASE, "test".to_owned());
        ledger
            .run(Command::OpenLease { id, term_ms: 9_000, holder, forgetful: false })
            .expect("a lease");
        ledger
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("ledger.db")
    }
}

const LEASE: LeaseId = LeaseId::from_bytes([1; 16]);

struct Ledger<'a> {
    place: &'a Place,
    store: SqliteStore,
}

impl Ledger<'_> {
    fn run(&self, command: Command) -> Result<Answer, StoreError> {
        self.place.runtime.block_on(call(&self.store, command))
    }

    /// Many commands, which share transactions.
    fn all(&self, commands: impl Iterator<Item = Command>) -> Vec<Result<Answer, StoreError>> {
        self.place.runtime.block_on(async {
            let asked: Vec<_> = commands.map(|command| call(&self.store, command)).collect();
            let mut answers = Vec::new();
            for answer in asked {
                answers.push(answer.await);
            }
            answers
        })
    }

    /// How many of these keys are granted.
    fn granted(&self, keys: impl Iterator<Item = u64>) -> usize {
        let is_granted = |answer: &Result<Answer, StoreError>| match answer {
            Ok(Answer::Claim(verdict)) => matches!(verdict, Verdict::Granted(_)),
            other => panic!("not an answer to a claim: {other:?}"),
        };
        self.all(keys.map(claim)).iter().filter(|answer| is_granted(answer)).count()
    }

    /// Grants these keys, a few at a time.
    fn grant(&self, keys: std::ops::Range<u64>) {
        for from in keys.clone().step_by(50) {
            let some = from..keys.end.min(from + 50);
            assert_eq!(self.granted(some.clone()), some.count());
        }
    }

    fn settle(&self, keys: impl Iterator<Item = u64>) {
        let report = || Report::Succeeded(Outcome::new(*b"done"));
        let settle = |key| Command::Settle {
            name: name(key),
            attempt: ask(key).attempt,
            report: report(),
            telling: Telling::default(),
        };
        assert!(self.all(keys.map(settle)).iter().all(Result::is_ok));
    }

    fn number(&self, sql: &str) -> i64 {
        let db = Connection::open(self.store.path()).expect("a connection");
        db.query_row(sql, [], |row| row.get(0)).expect(sql)
    }
}

fn name(key: u64) -> Name {
    let key = Key::derive("test.v1", &[("n", &key.to_be_bytes())]).expect("a key");
    Name { namespace: Namespace::default(), key }
}

/// Each attempt is another, so that nobody is taken for one who asks again.
fn ask(key: u64) -> Ask {
    let mut attempt = [0; 16];
    attempt[..8].copy_from_slice(&key.to_be_bytes());
    Ask {
        fingerprint: Fingerprint::of(b"payload"),
        safety: Safety::Opaque,
        lock: None,
        bound: None,
        label: None,
        ttl_ms: None,
        attempt: AttemptId::from_bytes(attempt),
        lease: LEASE,
        deadline_ms: None,
        about: None,
        part: None,
    }
}

fn claim(key: u64) -> Command {
    Command::Claim { name: name(key), ask: ask(key) }
}

/// Asks as somebody else.
fn again(key: u64) -> Command {
    let attempt = AttemptId::from_bytes([0xff; 16]);
    Command::Claim { name: name(key), ask: Ask { attempt, ..ask(key) } }
}

/// None of these keys is free, and each is there once.
fn assert_taken(ledger: &Ledger<'_>, keys: impl Iterator<Item = u64> + Clone) {
    for (key, answer) in keys.clone().zip(ledger.all(keys.clone().map(again))) {
        let free = matches!(answer, Ok(Answer::Claim(Verdict::Granted(_))) | Err(_));
        assert!(!free, "{key}: {answer:?}");
    }
    let names: Vec<Name> = keys.map(name).collect();
    let found =
        ledger.place.runtime.block_on(read(&ledger.store, move |view| view.effects(&names)));
    assert!(found.expect("a read").iter().all(Option::is_some), "readers find them too");
    assert_eq!(ledger.number("SELECT count(*) - count(DISTINCT key) FROM effect"), 0);
}

/// Proves K-3, K-15: two processes that add to one file in turns, through rounds of filing that begin in
/// one and end in the other, never grant a key twice; nor does one that opens the file later.
#[test]
fn keys_are_found_whether_they_are_filed_or_fresh() {
    let place = Place::new();
    let stores = [place.open(), place.open()];
    for (nth, from) in (0..MANY).step_by(100).enumerate() {
        let keys = from..from + 100;
        let (one, other) = (&stores[nth / 7 % 2], &stores[(nth / 7 + 1) % 2]);
        assert_eq!(one.granted(keys.clone()), 100);
        assert_taken(other, keys.clone());
        one.settle(keys);
    }
    let filed = stores[0].number("SELECT count(*) FROM filed");
    assert!((MANY as i64 / 2..MANY as i64).contains(&filed), "{filed}: some are, some are not");
    assert_taken(&stores[0], 0..MANY);
    assert_taken(&stores[1], 0..MANY);
    drop(stores);
    assert_taken(&place.open(), 0..MANY);
}

/// Whoever leaves files what is due, and whoever finds far too many files them at once.
#[test]
fn what_nobody_filed_is_filed() {
    let place = Place::new();
    let ledger = place.open();
    ledger.grant(0..1_100);
    let fresh = "SELECT count(*) FROM effect WHERE id > (SELECT filed FROM self)";
    assert_eq!(ledger.number(fresh), 1_100);
    drop(ledger);
    let ledger = place.open();
    assert_eq!(ledger.number(fresh), 0);
    ledger.grant(1_100..4_100);
    // As if all had come and gone without filing anything.
    let db = Connection::open(ledger.store.path()).expect("a connection");
    db.execute_batch("DELETE FROM filed; UPDATE self SET filed = 0").expect("SQL");
    assert_eq!((ledger.number(fresh), ledger.granted(4_100..4_101)), (4_100, 1));
    assert_eq!(ledger.number(fresh), 0);
    assert_taken(&ledger, 0..4_101);
}

/// Proves K-8: what a caller's transaction claimed and rolled back is not remembered, although its number
/// is given again; what it claimed before is known to itself.
#[test]
fn a_callers_claims_are_known_while_they_stand() {
    let place = Place::new();
    let (ours, theirs) = (place.open(), place.open());
    let mut db = ours.store.connection().expect("a connection");
    let claim_in = |tx: &rusqlite::Transaction<'_>, key, attempt: u8| {
        let ask = Ask { attempt: AttemptId::from_bytes([attempt; 16]), ..ask(key) };
        let verdict = ours.store.claim_in(tx, &name(key), &ask).expect("a verdict");
        matches!(verdict, Verdict::Granted(_))
    };
    let tx = db.transaction().expect("a transaction");
    assert!(claim_in(&tx, 1, 1));
    assert!(!claim_in(&tx, 1, 2), "it is claimed already");
    assert!(claim_in(&tx, 2, 1));
    tx.rollback().expect("rolled back");
    assert_eq!(theirs.granted([3, 4, 5].into_iter()), 3);
    let tx = db.transaction().expect("a transaction");
    for key in [3, 4, 5] {
        assert!(!claim_in(&tx, key, 3), "{key}");
    }
    assert!(claim_in(&tx, 1, 4));
    tx.commit().expect("committed");
    assert_taken(&theirs, [1, 3, 4, 5].into_iter());
    assert_eq!(ours.granted([2].into_iter()), 1);
}

/// Proves K-11: keys that another process swept can be claimed again, once, whether they were filed or
/// fresh where they are claimed.
#[test]
fn swept_keys_can_be_claimed_again() {
    let place = Place::new();
    let (ours, theirs) = (place.open(), place.open());
    let brief = |key| Ask { ttl_ms: Some(1_000), ..ask(key) };
    let keys = 0..2_500;
    for from in keys.clone().step_by(50) {
        let brief = |key| Command::Claim { name: name(key), ask: brief(key) };
        ours.all((from..from + 50).map(brief));
    }
    ours.settle(keys.clone());
    let filed = ours.number("SELECT filed FROM self");
    assert!(filed > 0 && filed < 2_500, "{filed}: some are filed, some are fresh");
    place.clock.advance(1_001);
    theirs.run(Command::Sweep { limit: 10_000 }).expect("a sweep");
    assert_eq!(ours.number("SELECT count(*) FROM effect"), 0);
    // What is gone is filed as well, by whoever does not know.
    ours.grant(10_000..12_500);
    let gone = "SELECT count(*) FROM filed WHERE effect NOT IN (SELECT id FROM effect)";
    assert!(ours.number(gone) > 0);
    ours.grant(keys.clone());
    ours.grant(20_000..26_000);
    assert!(ours.number("SELECT filed FROM self") > 10_000, "all of them are filed again");
    assert_taken(&theirs, keys.clone());
    assert_taken(&ours, keys);
}

/// Proves K-16: a command that is undone after it wrote leaves its key free.
#[test]
fn a_command_that_is_undone_leaves_its_key_free() {
    let place = Place::new();
    let ledger = place.open();
    let db = Connection::open(ledger.store.path()).expect("a connection");
    db.execute_batch(
        "CREATE TRIGGER poison BEFORE INSERT ON journal WHEN NEW.note = 'poison'
         BEGIN SELECT RAISE(ABORT, 'poisoned'); END;",
    )
    .expect("a trigger");
    let poisoned = |key| {
        let ask = Ask { about: Some("poison".into()), ..ask(key) };
        Command::Claim { name: name(key), ask }
    };
    let answers = ledger.all((0..64).map(|key| if key == 40 { poisoned(key) } else { claim(key) }));
    let failed: Vec<_> = answers.iter().map(Result::is_err).collect();
    assert_eq!(failed, (0..64).map(|key| key == 40).collect::<Vec<_>>());
    assert_eq!(ledger.granted([40].into_iter()), 1);
    assert_taken(&ledger, 0..64);
}

/// Proves K-1: two keys with the same first half are told apart where they are filed, too.
#[test]
fn two_keys_with_the_same_head_are_told_apart() {
    let place = Place::new();
    let ledger = place.open();
    ledger.grant(0..2_500);
    let filed = ledger.number("SELECT min(effect) FROM filed") as u64 - 1;
    let mut twin = *name(filed).key.as_bytes();
    twin[31] ^= 1;
    let twin = Name { key: Key::from_bytes(twin), ..name(filed) };
    let answer = ledger.run(Command::Claim { name: twin, ask: ask(9_999) });
    assert!(matches!(answer, Err(StoreError::Collision(_))), "{answer:?}");
}

/// Nothing counts as filed that is not: a second effect under one key stops the ledger.
#[test]
fn a_second_effect_under_one_key_is_noticed() {
    let place = Place::new();
    let ledger = place.open();
    assert_eq!(ledger.granted(0..10), 10);
    let db = Connection::open(ledger.store.path()).expect("a connection");
    db.execute_batch(
        "INSERT OR FAIL INTO journal (at, namespace, key, event, state, attempt, generation)
             SELECT at, namespace, key, event, state, attempt, generation FROM journal WHERE id = 3;
         CREATE TEMP TABLE second AS SELECT * FROM effect WHERE id = 3;
         UPDATE second SET id = 11, fence = 11, entry = 11;
         INSERT INTO effect SELECT * FROM second;",
    )
    .expect("SQL");
    let some = |from| ledger.all((from..from + 50).map(claim)).into_iter().find_map(Result::err);
    let error = (10..3_000).step_by(50).find_map(some).expect("an error");
    assert!(matches!(&error, StoreError::Corrupt(why) if why.contains("filed")), "{error:?}");
    assert_eq!(ledger.number("SELECT filed FROM self"), 0);
}

/// A program of an earlier version that has the file open can add nothing that others would not find.
#[test]
fn whoever_does_not_know_how_keys_are_filed_adds_nothing() {
    let place = Place::new();
    let ledger = place.open();
    ledger.grant(0..2_500);
    let db = Connection::open(ledger.store.path()).expect("a connection");
    let copy = |number: &str, of: &str| {
        db.execute_batch(&format!(
            "DROP TABLE IF EXISTS temp.copy; CREATE TEMP TABLE copy AS SELECT * FROM effect WHERE {of};
             UPDATE copy SET id = {number}, fence = 2501, entry = 2501;
             INSERT OR FAIL INTO effect SELECT * FROM copy;"
        ))
    };
    let error = copy("NULL", "id = 7").expect_err("without a number").to_string();
    assert!(error.contains("the number of its first entry"), "{error}");
    copy("2501", "id = (SELECT min(effect) FROM filed)").expect("nothing to do");
    assert_eq!(ledger.number("SELECT count(*) FROM effect WHERE id = 2501"), 0, "its key is filed");
}
