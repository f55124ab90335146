//! Objects that are out of a script's reach in the ledger's file.

use hapax_items::Class;

use crate::fixture::{Fixture, change, failed};

/// The schema of the ledger's file, without the script's own objects, as one text.
fn ledger(fixture: &Fixture) -> String {
    let schema = "SELECT group_concat(name || coalesce(sql, ''), char(10)) FROM \
        (SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'mine%' ORDER BY name)";
    fixture.look(schema)
}

/// Each of these statements is refused, and leaves nothing behind.
#[tokio::test]
async fn the_ledgers_tables_are_out_of_reach() {
    let fixture = Fixture::file().await;
    fixture.execute("mine", "CREATE TABLE mine (n INTEGER PRIMARY KEY, t TEXT)").await.unwrap();
    fixture.execute("view", "CREATE VIEW mine_view AS SELECT * FROM effect").await.unwrap();
    let before = ledger(&fixture);
    for (nth, sql) in [
        "DELETE FROM effect",
        "DELETE FROM EFFECT",
        "DELETE FROM main.\"effect\"",
        "UPDATE journal SET at = 0",
        "INSERT INTO kv VALUES ('default', 'kv', 'a', '1')",
        "REPLACE INTO guard (id) VALUES (1)",
        "INSERT INTO mine (t) SELECT key FROM effect",
        "INSERT INTO mine (t) VALUES ((SELECT count(*) FROM token))",
        "UPDATE mine SET t = 1 WHERE EXISTS (SELECT 1 FROM lease)",
        "SELECT * FROM mine_view",
        "SELECT * FROM effects",
        "SELECT * FROM outbox",
        "CREATE TABLE mine2 AS SELECT * FROM token",
        "DROP TABLE part",
        "DROP VIEW effects",
        "DROP INDEX effect_stuck",
        "DROP TRIGGER journal_no_update",
        "ALTER TABLE effect ADD COLUMN mine",
        "ALTER TABLE kv RENAME TO mine3",
        "CREATE INDEX mine_index ON effect (key)",
        "CREATE UNIQUE INDEX mine_unique ON journal (at)",
        "CREATE TRIGGER mine_trigger AFTER INSERT ON mine BEGIN DELETE FROM effect; END",
        "CREATE TRIGGER mine_trigger AFTER INSERT ON effect BEGIN SELECT 1; END",
        "CREATE TEMP TRIGGER mine_trigger AFTER INSERT ON main.effect BEGIN SELECT 1; END",
        "CREATE TEMP TABLE effect (key)",
        "CREATE TEMP VIEW effect AS SELECT 1",
        "CREATE TABLE temp.kv (n)",
        "CREATE VIRTUAL TABLE mine_fts USING fts5(key, content='effect')",
        "CREATE TABLE mine4 (n INTEGER REFERENCES effect (rowid))",
        "ALTER TABLE mine ADD COLUMN e INTEGER REFERENCES part (effect) ON DELETE RESTRICT",
        "CREATE TABLE hapax_inbox (n)",
        "PRAGMA writable_schema = 1",
        "PRAGMA synchronous = 0",
        "PRAGMA wal_autocheckpoint = 1000",
        "PRAGMA user_version = 99",
        "SELECT * FROM pragma_table_info('effect')",
        "SELECT * FROM pragma_user_version",
        "SELECT * FROM dbstat",
        "UPDATE sqlite_schema SET sql = ''",
        "DELETE FROM sqlite_master WHERE name = 'journal_no_update'",
        "ATTACH ':memory:' AS other",
        "DETACH main",
        "VACUUM",
        "VACUUM INTO '/tmp/hapax-copy.db'",
        "ANALYZE",
        "REINDEX effect_stuck",
        "REINDEX",
        "BEGIN",
        "COMMIT",
        "END",
        "ROLLBACK",
        "SAVEPOINT mine",
        "RELEASE hapax_settle",
        "SELECT load_extension('x')",
        "EXPLAIN DELETE FROM effect",
        "SELECT 1; COMMIT",
        "SELECT 1 /* */; DELETE FROM effect",
    ]
    .into_iter()
    .enumerate()
    {
        let both = change("evil", &["INSERT INTO mine (t) VALUES ('trace')", sql]);
        let result = fixture.item(&nth.to_string(), &format!("await sql.execute({both});")).await;
        assert!(result.is_err(), "{sql}: {result:?}");
        let (class, message) = failed(result);
        assert!(matches!(class, Class::Permission | Class::Logic), "{sql}: {class}: {message}");
        let error = fixture.query(sql).await.expect_err(sql);
        assert!(matches!(error.class, Class::Permission | Class::Logic), "{sql}: {error}");
    }
    assert_eq!(fixture.look("SELECT count(*) FROM mine"), "0");
    assert_eq!(ledger(&fixture), before);
    assert_eq!(fixture.look("SELECT count(*) FROM sqlite_schema WHERE name LIKE 'mine%'"), "2");
    // Allowed statements still work on the same connections.
    fixture.execute("last", "INSERT INTO mine (t) VALUES ('last')").await.unwrap();
    assert_eq!(fixture.look("SELECT count(*) FROM mine"), "1");
    let verifier = fixture.items.hapax().journal().verifier().unwrap();
    fixture.items.hapax().pass().await.unwrap();
    let verified = fixture.items.hapax().journal().verify(verifier, |_, _| ()).await.unwrap();
    assert_eq!(verified.damage, Vec::new());
}

/// A script has tables of its own, and changes them as it likes.
#[tokio::test]
async fn own_tables_are_a_scripts_to_change() {
    let fixture = Fixture::file().await;
    for (nth, sql) in [
        "CREATE TABLE mine (n INTEGER PRIMARY KEY AUTOINCREMENT, t TEXT UNIQUE)",
        "CREATE TABLE mine_too (n INTEGER REFERENCES mine (n) ON DELETE CASCADE)",
        "CREATE INDEX mine_index ON mine (t)",
        "CREATE VIEW mine_view AS SELECT count(*) AS n FROM mine",
        "INSERT INTO mine (t) VALUES ('a'), ('b') RETURNING n",
        "INSERT INTO mine_too SELECT n FROM mine",
        "INSERT INTO mine (t) VALUES ('a') ON CONFLICT DO UPDATE SET t = 'c'",
        "DELETE FROM mine WHERE t = 'b'",
        "ALTER TABLE mine ADD COLUMN u TEXT",
        "ALTER TABLE mine RENAME COLUMN u TO v",
        "ALTER TABLE mine DROP COLUMN v",
        "ALTER TABLE mine_too RENAME TO mine_three",
        "DROP INDEX mine_index",
        "CREATE TABLE mine_four AS SELECT * FROM mine_view, json_each('[1, 2]')",
        "DROP VIEW mine_view",
        "DROP TABLE mine_four",
    ]
    .into_iter()
    .enumerate()
    {
        let done = fixture.execute(&nth.to_string(), sql).await;
        assert!(done.is_ok(), "{sql}: {done:?}");
    }
    assert_eq!(fixture.look("SELECT group_concat(t) FROM mine"), "c");
    assert_eq!(fixture.look("SELECT count(*) FROM mine_three"), "1");
    let (class, message) = failed(
        fixture.execute("rolls back", "INSERT OR ROLLBACK INTO mine (t) VALUES ('c')").await,
    );
    assert_eq!(class, Class::Precondition, "{message}");
    fixture.execute("goes on", "INSERT INTO mine (t) VALUES ('d')").await.unwrap();
    assert_eq!(fixture.look("SELECT count(*) FROM mine"), "2");
}
