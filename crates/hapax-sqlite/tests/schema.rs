//! The schema of a new file, and files that are refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use expect_test::expect_file;
use hapax_sqlite::{Options, SqliteStore};
use hapax_store::{ManualClock, StoreError};
use rusqlite::Connection;

struct Directory(tempfile::TempDir);

impl Directory {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    /// A file on which these statements were run.
    fn file(&self, sql: &str) -> PathBuf {
        let path = self.0.path().join("ledger.db");
        Connection::open(&path).expect("a file").execute_batch(sql).expect("SQL");
        path
    }

    /// A new ledger.
    fn ledger(&self) -> PathBuf {
        let path = self.0.path().join("ledger.db");
        drop(open(&path).expect("a ledger"));
        path
    }
}

fn open(path: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(path, Options { clock: Arc::new(ManualClock::default()) })
}

/// The error with which the file is refused, with `ledger.db` for its path.
fn refusal(path: &Path) -> String {
    let before = std::fs::read(path).expect("the file");
    let Err(error @ StoreError::Incompatible(_)) = open(path) else { panic!("it is refused") };
    assert_eq!(std::fs::read(path).expect("the file"), before, "it is left alone");
    assert_eq!(error.code(), "HX0108");
    error.to_string().replace(&path.display().to_string(), "ledger.db")
}

/// `schema.sql` shows the tables of a new file. `UPDATE_EXPECT=1` writes it anew.
#[test]
fn the_schema_is_as_shown() {
    let directory = Directory::new();
    let db = Connection::open(directory.ledger()).expect("a file");
    let mut objects = db
        .prepare(
            "SELECT type = 'table', sql || ';' FROM sqlite_master WHERE sql IS NOT NULL
             ORDER BY type = 'view', tbl_name, type <> 'table', type, name",
        )
        .expect("SQL");
    let mut text = String::from(
        "-- The tables, indexes, triggers and views of a new file. Generated from migrations/ by\n\
         -- tests/schema.rs: UPDATE_EXPECT=1 cargo test -p hapax-sqlite --test schema\n",
    );
    let rows = objects.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
    for row in rows {
        let (is_table, sql): (bool, String) = row.expect("a row");
        let gap = if is_table || sql.starts_with("CREATE VIEW") { "\n" } else { "" };
        text += &format!("{gap}{sql}\n");
    }
    expect_file!["../schema.sql"].assert_eq(&text);
}

#[test]
fn a_ledger_from_before_the_first_release_is_refused() {
    for version in 1..=13 {
        let directory = Directory::new();
        let path = directory.file(&format!(
            "CREATE TABLE self (id); PRAGMA application_id = 0x68617078;
             PRAGMA user_version = {version};"
        ));
        assert_eq!(
            refusal(&path),
            "the store cannot be used by this version: ledger.db is a ledger of a development \
             version of hapax before 0.1.0, whose format was never released; start a new ledger in \
             another file, and read this one with the version that made it"
        );
    }
}

#[test]
fn a_ledger_of_a_newer_version_is_refused() {
    let directory = Directory::new();
    directory.ledger();
    let path = directory.file("PRAGMA user_version = 99");
    assert_eq!(
        refusal(&path),
        "the store cannot be used by this version: ledger.db has schema version 99, this hapax \
         knows versions up to 10; use a newer hapax"
    );
}

#[test]
fn the_database_of_another_program_is_refused() {
    let directory = Directory::new();
    let path = directory.file("CREATE TABLE t (a)");
    assert_eq!(
        refusal(&path),
        "the store cannot be used by this version: ledger.db is a database, but not a hapax ledger"
    );
}
