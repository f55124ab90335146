//! One key, one row: keys are found from the moment they are committed, and the database refuses a
//! second row of one, whatever a process has cached.

use std::sync::Arc;

use hapax_core::attempt::AttemptId;
use hapax_core::effect::{Ask, Report, Safety, Verdict};
use hapax_core::fingerprint::Fingerprint;
use hapax_core::key::Key;
use hapax_core::lease::LeaseId;
use hapax_core::name::{Name, Namespace};
use hapax_core::outcome::Outcome;
use hapax_core::part::Part;
use hapax_sqlite::{FileProblem, Options, SqliteStore};
use hapax_store::outbox::Attachments;
use hapax_store::{ManualClock, Request, StoreError, call, command, read};
use rusqlite::Connection;

/// More keys than stay in the first two tables.
const MANY: u64 = 9_500;

const TABLES: [&str; 3] = ["key_tail", "key_middle", "key_index"];

/// One file, and the stores that are open on it.
struct TestFile {
    clock: Arc<ManualClock>,
    directory: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
}

impl TestFile {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let directory = tempfile::tempdir().expect("a directory");
        Self { clock: Arc::default(), directory, runtime }
    }

    fn open(&self) -> Ledger<'_> {
        let options = Options { clock: self.clock.clone() };
        let store = SqliteStore::open(self.path(), options).expect("a store");
        let ledger = Ledger { file: self, store };
        let (id, holder) = (LEASE, "test".to_owned());
        ledger
            .run(command::OpenLease { id, term_ms: 9_000, holder, forgetful: false })
            .expect("a lease");
        ledger
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("ledger.db")
    }
}

const LEASE: LeaseId = LeaseId::from_bytes([1; 16]);

struct Ledger<'a> {
    file: &'a TestFile,
    store: SqliteStore,
}

impl Ledger<'_> {
    fn run<R: Request>(&self, command: R) -> Result<R::Answer, StoreError> {
        self.file.runtime.block_on(call(&self.store, command))
    }

    /// Many commands, which share transactions.
    fn all<R: Request>(
        &self,
        commands: impl Iterator<Item = R>,
    ) -> Vec<Result<R::Answer, StoreError>> {
        self.file.runtime.block_on(async {
            let pending: Vec<_> = commands.map(|command| call(&self.store, command)).collect();
            let mut answers = Vec::new();
            for answer in pending {
                answers.push(answer.await);
            }
            answers
        })
    }

    /// How many of these keys are granted.
    fn granted(&self, keys: impl Iterator<Item = u64>) -> usize {
        let verdicts =
            self.all(keys.map(claim)).into_iter().map(|answer| answer.expect("a verdict"));
        verdicts.filter(|verdict| matches!(verdict, Verdict::Granted(_))).count()
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
        let fence = |key| {
            let names = [name(key)];
            let found =
                self.file.runtime.block_on(read(&self.store, move |view| view.effects(&names)));
            found.expect("a read").remove(0).map(|effect| effect.fence)
        };
        let settle = |key| command::Settle {
            name: name(key),
            attempt: ask(key).attempt,
            fence: fence(key),
            report: report(),
            attachments: Attachments::default(),
        };
        let commands: Vec<_> = keys.map(settle).collect();
        assert!(self.all(commands.into_iter()).iter().all(Result::is_ok));
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

/// Each key has an attempt of its own, so that no claim is taken for a repeated one.
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

fn claim(key: u64) -> command::Claim {
    command::Claim { name: name(key), ask: ask(key) }
}

/// Claims the key again, with another attempt.
fn again(key: u64) -> command::Claim {
    let attempt = AttemptId::from_bytes([0xff; 16]);
    command::Claim { name: name(key), ask: Ask { attempt, ..ask(key) } }
}

/// Asserts that none of these keys is free, and that each is there once.
fn assert_taken(ledger: &Ledger<'_>, keys: impl Iterator<Item = u64> + Clone) {
    for (key, answer) in keys.clone().zip(ledger.all(keys.clone().map(again))) {
        let free = matches!(answer, Ok(Verdict::Granted(_)) | Err(_));
        assert!(!free, "{key}: {answer:?}");
    }
    let names: Vec<Name> = keys.map(name).collect();
    let found = ledger.file.runtime.block_on(read(&ledger.store, move |view| view.effects(&names)));
    assert!(found.expect("a read").iter().all(Option::is_some), "readers find them too");
    assert_eq!(ledger.number("SELECT count(*) - count(DISTINCT key) FROM effect"), 0);
}

/// Proves K-3, K-15: two processes that add to one file in turns never grant a key twice; nor does one
/// that opens the file later.
#[test]
fn keys_are_found_in_the_tail_and_in_the_index() {
    let file = TestFile::new();
    let stores = [file.open(), file.open()];
    for (nth, from) in (0..MANY).step_by(100).enumerate() {
        let keys = from..from + 100;
        let (one, other) = (&stores[nth / 7 % 2], &stores[(nth / 7 + 1) % 2]);
        assert_eq!(one.granted(keys.clone()), 100);
        assert_taken(other, keys.clone());
        one.settle(keys);
    }
    let counts = TABLES.map(|table| stores[0].number(&format!("SELECT count(*) FROM {table}")));
    assert_eq!(counts.iter().sum::<i64>(), MANY as i64, "each is in one of them");
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    assert_taken(&stores[0], 0..MANY);
    assert_taken(&stores[1], 0..MANY);
    drop(stores);
    assert_taken(&file.open(), 0..MANY);
}

/// Proves K-19: an older copy is restored over the file while two processes have it open. Keys that the copy
/// does not have are granted once again, and to one of the two.
#[test]
fn a_restored_file_has_one_row_for_each_key() {
    let file = TestFile::new();
    let (ours, theirs) = (file.open(), file.open());
    ours.grant(0..700);
    let copy = file.directory.path().join("copy.db");
    backup(&file.path(), &copy);
    ours.grant(700..1_500);
    assert_taken(&theirs, 0..1_500);
    backup(&copy, &file.path());
    // The first process to write notices the older copy, and ends all leases; so does the other.
    for ledger in [&ours, &theirs] {
        let answer = ledger.run(claim(700));
        assert!(matches!(answer, Err(StoreError::LeaseDead(_))), "{answer:?}");
    }
    let lease = LeaseId::from_bytes([2; 16]);
    let holder = "after the restore".to_owned();
    ours.run(command::OpenLease { id: lease, term_ms: 9_000, holder, forgetful: false })
        .expect("a lease");
    let claim = |key: u64, by: u8| {
        let attempt = AttemptId::from_bytes([by; 16]);
        command::Claim { name: name(key), ask: Ask { lease, attempt, ..ask(key) } }
    };
    for key in 700..1_500 {
        let (first, second) = if key % 2 == 0 { (&ours, &theirs) } else { (&theirs, &ours) };
        let granted = [first.run(claim(key, 1)), second.run(claim(key, 2))]
            .map(|answer| matches!(answer, Ok(Verdict::Granted(_))));
        assert_eq!(granted, [true, false], "{key}");
    }
    assert_eq!(ours.number("SELECT count(*) - count(DISTINCT key) FROM effect"), 0);
    assert_eq!(ours.store.examine().expect("looked at"), []);
}

/// Proves K-19: numbers of namespaces are cached, and given anew after a restore.
#[test]
fn namespaces_that_a_restored_file_lacks_are_dropped_from_the_cache() {
    let file = TestFile::new();
    let (ours, theirs) = (file.open(), file.open());
    let copy = file.directory.path().join("copy.db");
    backup(&file.path(), &copy);
    let inside = |space: &str, key: u64, lease: LeaseId| {
        let namespace = Namespace::new(space).expect("a plain name");
        command::Claim { name: Name { namespace, ..name(key) }, ask: Ask { lease, ..ask(key) } }
    };
    ours.run(inside("alpha", 1, LEASE)).expect("granted");
    backup(&copy, &file.path());
    theirs.run(inside("beta", 2, LEASE)).expect("granted; it had nothing to remember");
    ours.run(inside("alpha", 3, LEASE)).expect_err("all leases were ended");
    let lease = LeaseId::from_bytes([2; 16]);
    let holder = "after the restore".to_owned();
    ours.run(command::OpenLease { id: lease, term_ms: 9_000, holder, forgetful: false })
        .expect("a lease");
    ours.run(inside("alpha", 3, lease)).expect("granted");
    let spaces = "SELECT count(DISTINCT namespace) FROM effect";
    assert_eq!(ours.number(spaces), 2, "alpha is not taken for beta");
}

/// Copies one file over another, as `.backup` and `.restore` do.
fn backup(from: &std::path::Path, to: &std::path::Path) {
    let from = Connection::open(from).expect("a file");
    let mut to = Connection::open(to).expect("a file");
    let backup = rusqlite::backup::Backup::new(&from, &mut to).expect("a backup");
    backup.run_to_completion(1_000, std::time::Duration::ZERO, None).expect("all pages");
}

/// Proves K-8: a claim that a caller's transaction rolled back is not cached, although its number
/// is given again. Within the transaction its earlier claims count.
#[test]
fn a_callers_claims_count_until_its_transaction_is_rolled_back() {
    let file = TestFile::new();
    let (ours, theirs) = (file.open(), file.open());
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

/// Proves K-11: keys that another process swept can be claimed again, once, and leave nothing in the index.
#[test]
fn swept_keys_can_be_claimed_again() {
    let file = TestFile::new();
    let (ours, theirs) = (file.open(), file.open());
    let brief = |key| Ask { ttl_ms: Some(1_000), ..ask(key) };
    let keys = 0..2_500;
    for from in keys.clone().step_by(50) {
        let brief = |key| command::Claim { name: name(key), ask: brief(key) };
        ours.all((from..from + 50).map(brief));
    }
    ours.settle(keys.clone());
    let left = "SELECT (SELECT count(*) FROM key_tail) + (SELECT count(*) FROM key_middle)
        + (SELECT count(*) FROM key_index)";
    assert_eq!(ours.number(left), 2_500);
    file.clock.advance(1_001);
    theirs.run(command::Sweep { limit: 10_000 }).expect("a sweep");
    assert_eq!((ours.number("SELECT count(*) FROM effect"), ours.number(left)), (0, 0));
    ours.grant(keys.clone());
    assert_taken(&theirs, keys.clone());
    assert_taken(&ours, keys);
}

/// Proves K-16: a command that is undone after it wrote leaves its key free.
#[test]
fn a_command_that_is_undone_leaves_its_key_free() {
    let file = TestFile::new();
    let ledger = file.open();
    let db = Connection::open(ledger.store.path()).expect("a connection");
    db.execute_batch(
        "CREATE TRIGGER poison BEFORE INSERT ON journal WHEN NEW.note = 'poison'
         BEGIN SELECT RAISE(ABORT, 'poisoned'); END;",
    )
    .expect("a trigger");
    let poisoned = |key| {
        let ask = Ask { about: Some("poison".into()), ..ask(key) };
        command::Claim { name: name(key), ask }
    };
    let answers = ledger.all((0..64).map(|key| if key == 40 { poisoned(key) } else { claim(key) }));
    let failed: Vec<_> = answers.iter().map(Result::is_err).collect();
    assert_eq!(failed, (0..64).map(|key| key == 40).collect::<Vec<_>>());
    assert_eq!(ledger.granted([40].into_iter()), 1);
    assert_taken(&ledger, 0..64);
}

/// Proves K-19: the journal entry of a command that is undone is not taken for one that the file has
/// lost, so no lease is ended.
#[test]
fn a_command_that_is_undone_after_its_entry_does_not_make_the_file_look_restored() {
    let file = TestFile::new();
    let (ours, theirs) = (file.open(), file.open());
    let db = Connection::open(ours.store.path()).expect("a connection");
    db.execute_batch(
        "CREATE TRIGGER poison BEFORE INSERT ON whole BEGIN SELECT RAISE(ABORT, 'poisoned'); END;",
    )
    .expect("a trigger");
    let part = Part { whole: name(0).key, kind: "item".into(), body: b"{}".to_vec() };
    let poisoned = command::Claim { name: name(1), ask: Ask { part: Some(part), ..ask(1) } };
    ours.run(poisoned).expect_err("its part is refused, after its entry was appended");
    assert_eq!(theirs.granted([2].into_iter()), 1, "another process takes the entry's number");
    assert_eq!(ours.granted([1, 3].into_iter()), 2, "the lease is alive");
}

/// Proves K-1: two keys with the same first half are distinguished, in the tail and in the index.
#[test]
fn a_second_key_with_the_same_first_half_is_a_collision() {
    let file = TestFile::new();
    let ledger = file.open();
    ledger.grant(0..MANY);
    for table in TABLES {
        let n = ledger.number(&format!("SELECT min(effect) FROM {table}")) as u64 - 1;
        let mut twin = *name(n).key.as_bytes();
        twin[31] ^= 1;
        let twin = Name { key: Key::from_bytes(twin), ..name(n) };
        let answer = ledger.run(command::Claim { name: twin, ask: ask(9_999) });
        assert!(matches!(answer, Err(StoreError::Collision(_))), "{answer:?}");
    }
}

/// Proves K-19: no program that writes to the file can add a second row of a key, or a row without
/// a number of its own.
#[test]
fn the_database_refuses_a_second_row_of_one_key() {
    let file = TestFile::new();
    let ledger = file.open();
    ledger.grant(0..MANY);
    let next = MANY + 1;
    let db = Connection::open(ledger.store.path()).expect("a connection");
    let copy = |number: &str, of: &str| {
        db.execute_batch(&format!(
            "DROP TABLE IF EXISTS temp.copy; CREATE TEMP TABLE copy AS SELECT * FROM effect WHERE {of};
             UPDATE copy SET id = {number}, fence = {next}, entry = {next};
             INSERT OR FAIL INTO effect SELECT * FROM copy;"
        ))
    };
    let error = copy("NULL", "id = 7").expect_err("without a number").to_string();
    assert!(error.contains("the number of its first entry"), "{error}");
    for table in TABLES {
        let of = format!("id = (SELECT min(effect) FROM {table})");
        copy(&next.to_string(), &of).expect("nothing to do");
        let added = ledger.number(&format!("SELECT count(*) FROM effect WHERE id = {next}"));
        assert_eq!(added, 0, "{table}");
    }
}

/// A file in which an earlier version let two rows of one key in is opened, shown and repaired: the
/// row that was settled first counts, and the other one is removed. The journal keeps its entries.
#[test]
fn two_rows_of_one_key_are_shown_and_repaired() {
    let file = TestFile::new();
    let ledger = file.open();
    ledger.grant(0..10);
    ledger.settle(3..4);
    let db = Connection::open(ledger.store.path()).expect("a connection");
    let unguarded = "DROP TRIGGER effect_new; DROP TRIGGER effect_indexed;";
    db.execute_batch(&format!(
        "BEGIN; CREATE TEMP TABLE rules AS SELECT sql FROM sqlite_schema
             WHERE name IN ('effect_new', 'effect_indexed');
         {unguarded}
         CREATE TEMP TABLE second AS SELECT * FROM effect WHERE id = 4;
         UPDATE second SET id = 12, fence = 12, entry = 12;
         INSERT INTO effect SELECT * FROM second; COMMIT"
    ))
    .expect("SQL");
    let rules: Vec<String> = {
        let mut rules = db.prepare("SELECT sql FROM rules").expect("SQL");
        let rows = rules.query_map([], |row| row.get(0)).expect("rows");
        rows.collect::<Result<_, _>>().expect("rules")
    };
    db.execute_batch(&rules.join(";")).expect("SQL");
    let second = FileProblem::SecondRow { key: name(3).key.to_string(), effect: 12 };
    assert_eq!(ledger.store.examine().expect("looked at"), [second]);
    assert_eq!(ledger.store.repair().expect("repaired"), 1);
    assert_eq!(ledger.store.examine().expect("looked at"), []);
    assert_taken(&ledger, 0..10);
    assert_eq!(ledger.number("SELECT count(*) FROM effect"), 10);
}
