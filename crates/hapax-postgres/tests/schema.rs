//! The schema of a new database, and databases that are refused.

use std::path::Path;

use expect_test::expect_file;
use hapax_postgres::{Options, PgStore};
use hapax_store::StoreError;
use hapax_testkit::Postgres;

/// The error with which both opening and migrating refuse this database.
fn refusal(server: &Postgres, database: &str) -> String {
    let contents = "SELECT string_agg(version::text, ' ' ORDER BY version) FROM hapax.migration";
    let before = server.sql(database, contents);
    let url = server.url(database);
    let migrated = PgStore::migrate(&url).map(|_| ());
    let opened = PgStore::open(&url, Options::default()).map(|_| ());
    assert_eq!(server.sql(database, contents), before, "it is left alone");
    let Err(error @ StoreError::Incompatible(_)) = &opened else { panic!("it is refused") };
    assert_eq!(migrated.expect_err("it is refused").to_string(), error.to_string());
    assert_eq!(error.code(), "HX0108");
    error.to_string()
}

/// `schema.sql` shows the tables of a new database. `UPDATE_EXPECT=1` writes it anew.
#[test]
fn the_schema_is_as_shown() {
    let server = Postgres::start();
    PgStore::migrate(&server.database("fresh")).expect("a schema");
    let head = "\
-- The schema `hapax` of a new database: tables, indexes and triggers, functions without their bodies,
-- views without their queries, and no partitions of months. Generated from migrations/ by
-- tests/schema.rs: UPDATE_EXPECT=1 cargo test -p hapax-postgres --test schema\n";
    let catalog = server.sql("fresh", include_str!("catalog.sql"));
    expect_file!["../schema.sql"].assert_eq(&format!("{head}\n{catalog}\n"));
}

/// The script that `hapax migrate --print` prints leads to the same schema as `hapax migrate`.
#[test]
fn the_script_makes_the_same_schema() {
    let server = Postgres::start();
    PgStore::migrate(&server.database("migrated")).expect("a schema");
    server.database("by_hand");
    server.sql("by_hand", &hapax_postgres::script());
    let contents = "SELECT version, name FROM hapax.migration ORDER BY version";
    for sql in [include_str!("catalog.sql"), contents] {
        assert_eq!(server.sql("by_hand", sql), server.sql("migrated", sql));
    }
    PgStore::open(&server.url("by_hand"), Options::default()).expect("a ledger");
}

#[test]
fn both_stores_have_the_same_migrations() {
    let names = |directory: &str| {
        let files = Path::new(directory).read_dir();
        let names = files.expect("a directory").map(|file| file.expect("a file").file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    let ours = names("migrations");
    assert_eq!(ours, names("../hapax-sqlite/migrations"));
    for (number, name) in (1..).zip(&ours) {
        let name = name.to_str().and_then(|name| name.strip_suffix(".sql")).expect("a name");
        assert!(name.starts_with(&format!("{number:04}_")), "{name}");
        let applied = format!("VALUES ({number}, '{name}');");
        assert!(hapax_postgres::script().contains(&applied), "{name} is not applied");
    }
}

#[test]
fn a_ledger_from_before_the_first_release_is_refused() {
    let server = Postgres::start();
    server.database("shop");
    server.sql(
        "shop",
        "CREATE SCHEMA hapax;
         CREATE TABLE hapax.migration (version int PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());
         CREATE TABLE hapax.self (id int PRIMARY KEY)",
    );
    for version in 1..=13 {
        server.sql("shop", &format!("INSERT INTO hapax.migration VALUES ({version})"));
        assert_eq!(
            refusal(&server, "shop"),
            "the store cannot be used by this version: the database shop has a ledger of a development \
             version of hapax before 0.1.0, whose format was never released; start a new ledger in \
             another database, and read this one with the version that made it"
        );
    }
}

#[test]
fn a_ledger_of_a_newer_version_is_refused() {
    let server = Postgres::start();
    PgStore::migrate(&server.database("newer")).expect("a schema");
    server.sql("newer", "INSERT INTO hapax.migration VALUES (99, '0099_later')");
    assert_eq!(
        refusal(&server, "newer"),
        "the store cannot be used by this version: the database newer has schema version 99, this \
         hapax knows versions up to 10; use a newer hapax"
    );
}
