//! SQL that happens once.

use std::time::{Duration, Instant};

use hapax::Hapax;
use hapax_items::{Class, ItemState, MutationState};
use hapax_tools::{Database, Sql};

use crate::fixture::{Fixture, Kind, change, failed};

const TABLE: &str = "CREATE TABLE book (id INTEGER PRIMARY KEY, title TEXT NOT NULL)";

/// Proves K-8, I-5: the rows and the outcome are committed together, however often it runs.
#[tokio::test]
async fn rows_are_written_once_although_the_script_runs_again() {
    for fixture in Fixture::all().await {
        fixture.execute("table", TABLE).await.unwrap();
        let body = |end: &str| {
            format!(
                r#"const done = await sql.execute({{ id: "insert", statements: [
                    {{ sql: "INSERT INTO book VALUES ($1, $2), ($3, 'b')", params: [1, "a", 2] }},
                    {{ sql: "UPDATE book SET title = $2 || title WHERE id = $1",
                       params: [2, "x"] }},
                    {{ sql: "DELETE FROM book WHERE id > 7" }},
                ] }});
                console.log(JSON.stringify(done)); {end}"#
            )
        };
        for _ in 0..3 {
            let (_, message) = failed(fixture.item("x", &body(r#"throw new Error("stop")"#)).await);
            assert!(message.contains("stop"), "{message}");
            assert_eq!(fixture.log().await, r#"{"changes":[2,1,0]}"#);
            fixture.try_again().await;
        }
        assert_eq!(fixture.look("SELECT count(*) FROM book"), "2");
        assert_eq!(fixture.look("SELECT title FROM book WHERE id = 2"), "xb");
        let item = fixture.items.show("books", "x").await.unwrap();
        let mutation = fixture.items.mutations(item.key, 1).await.unwrap().remove(0);
        assert_eq!((mutation.state, mutation.attempts), (MutationState::Applied, 1));
    }
}

/// Proves K-8: a statement that fails undoes those before it, and the change can be made later.
#[tokio::test]
async fn a_failing_statement_undoes_those_before_it() {
    for fixture in Fixture::all().await {
        fixture.execute("table", TABLE).await.unwrap();
        fixture.execute("seven", "INSERT INTO book VALUES (7, 'seven')").await.unwrap();
        let both = change(
            "both",
            &["INSERT INTO book VALUES (1, 'one')", "INSERT INTO book VALUES (7, 'x')"],
        );
        let body = format!("await sql.execute({both});");
        let (class, message) = failed(fixture.item("x", &body).await);
        assert_eq!(class, Class::Precondition, "{message}");
        assert_eq!(fixture.look("SELECT count(*) FROM book"), "1");
        let item = fixture.items.show("books", "x").await.unwrap();
        let mutation = fixture.items.mutations(item.key, 1).await.unwrap().remove(0);
        assert_eq!(mutation.state, MutationState::Failed);
        fixture.execute("away", "DELETE FROM book").await.unwrap();
        fixture.try_again().await;
        fixture.item("x", &body).await.unwrap();
        assert_eq!(fixture.look("SELECT count(*) FROM book"), "2");
    }
}

/// Proves I-6 for statements: white space does not count; comments, capitals and a last semicolon
/// are minor differences; any other statement goes to a person.
#[tokio::test]
async fn other_statements_under_the_same_id_are_judged() {
    for fixture in Fixture::all().await {
        fixture.execute("table", TABLE).await.unwrap();
        let body =
            |sql: &str, end: &str| format!("await sql.execute({}); {end}", change("one", &[sql]));
        let stop = r#"throw new Error("stop");"#;
        for sql in [
            "INSERT INTO book VALUES (1, 'a  b')",
            "INSERT INTO book\n  VALUES (1, 'a  b')",
            "insert into Book values (1, 'a  b'); -- the first",
        ] {
            let (class, message) = failed(fixture.item("x", &body(sql, stop)).await);
            assert!(class == Class::Logic && message.contains("stop"), "{sql}: {message}");
            fixture.try_again().await;
        }
        let (class, message) =
            failed(fixture.item("x", &body("INSERT INTO book VALUES (1, 'a b')", "")).await);
        assert_eq!(class, Class::Precondition);
        assert!(message.contains("another payload"), "{message}");
        let item = fixture.items.show("books", "x").await.unwrap();
        assert_eq!(item.state, ItemState::NeedsAttention);
        assert_eq!(fixture.look("SELECT title FROM book"), "a  b");
    }
}

/// Parameters are values, whatever is in them.
#[tokio::test]
async fn parameters_are_bound_and_never_spliced() {
    for fixture in Fixture::all().await {
        let kind = match fixture.kind {
            Kind::File(_) => ["TEXT", "INTEGER", "REAL", "TEXT"],
            #[cfg(feature = "postgres")]
            Kind::Server(_) => ["text", "int8", "float8", "jsonb"],
        };
        let [text, number, real, json] = kind;
        fixture
            .execute("table", &format!("CREATE TABLE t (a {text}, b {number}, c {real}, d {json})"))
            .await
            .unwrap();
        let body = r#"
            const evil = "'); DROP TABLE t; --";
            await sql.execute({ id: "in", statements: [
                { sql: "INSERT INTO t VALUES ($1, $2, $3, $4)",
                  params: [evil, -7, 0.5, { k: [1] }] },
                { sql: "INSERT INTO t VALUES ($4, $3, $2, $1)", params: [null, 1e-7, 2, "text"] },
            ] });
            const some = "SELECT a, b, c FROM t WHERE a = $1";
            const rows = await sql.query({ sql: some, params: [evil] });
            const other = await sql.query({ sql: "SELECT * FROM t WHERE b = 2" });
            console.log(JSON.stringify([rows, other]));"#;
        fixture.item("x", body).await.unwrap();
        assert_eq!(
            fixture.log().await,
            r#"[[{"a":"'); DROP TABLE t; --","b":-7,"c":0.5}],[{"a":"text","b":2,"c":1e-7,"d":null}]]"#
        );
    }
}

/// A query returns all rows or fails, and in numbers that a script can hold.
#[tokio::test]
async fn a_query_returns_every_row_or_fails() {
    for fixture in Fixture::all().await {
        let all = "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1000) \
            SELECT n FROM n";
        let rows =
            |sql: &str| format!("console.log((await sql.query({{ sql: \"{sql}\" }})).length);");
        fixture.item("a", &rows(all)).await.unwrap();
        assert_eq!(fixture.log().await, "1000");
        let endless = all.replace(" WHERE n < 1000", "");
        for (id, sql) in [("b", all.replace("1000", "1001")), ("c", endless)] {
            let (class, message) = failed(fixture.item(id, &rows(&sql)).await);
            assert_eq!(class, Class::Logic);
            assert!(message.contains("more than 1000 rows"), "{message}");
        }
        let (class, message) = failed(fixture.item("d", &rows("SELECT 1 AS n, 2 AS n")).await);
        assert!(class == Class::Logic && message.contains("two columns"), "{message}");
        let large = "console.log(JSON.stringify(await sql.query({ sql: \
            \"SELECT 9007199254740993 AS a, 9007199254740992 AS b, 1.5 AS c, count(*) AS d\" })));";
        fixture.item("e", large).await.unwrap();
        assert_eq!(
            fixture.log().await,
            r#"[{"a":"9007199254740993","b":9007199254740992,"c":1.5,"d":1}]"#
        );
        for (id, arguments) in [
            ("f", r#"{ sql: "SELECT $1", params: [] }"#),
            ("g", r#"{ sql: "SELECT 1", params: [1] }"#),
            ("h", r#"{ sql: "SELECT 1; SELECT 2" }"#),
            ("i", r#"{ sql: "SELECT * FROM nowhere" }"#),
            ("j", r#"{ sql: " " }"#),
            ("k", r#"{}"#),
        ] {
            let (class, message) =
                failed(fixture.item(id, &format!("await sql.query({arguments});")).await);
            assert_eq!(class, Class::Logic, "{arguments}: {message}");
        }
    }
}

/// A query changes nothing, even if its statement would.
#[tokio::test]
async fn a_query_writes_nothing() {
    for fixture in Fixture::all().await {
        fixture.execute("table", TABLE).await.unwrap();
        for (id, sql) in [
            ("a", "INSERT INTO book VALUES (1, 'a')"),
            ("b", "INSERT INTO book VALUES (1, 'a') RETURNING id"),
            ("c", "DELETE FROM book"),
            ("d", "CREATE TABLE other (n INTEGER)"),
            ("e", "DROP TABLE book"),
            ("f", "WITH x AS (SELECT 1) INSERT INTO book SELECT 1, 'a' FROM x"),
        ] {
            let (class, message) =
                failed(fixture.item(id, &format!("await sql.query({{ sql: \"{sql}\" }});")).await);
            assert!(matches!(class, Class::Permission | Class::Logic), "{sql}: {class} {message}");
        }
        assert_eq!(fixture.look("SELECT count(*) FROM book"), "0");
    }
}

/// Proves K-8: a run that is dropped between the statements and the commit leaves nothing behind,
/// and the next run makes the change once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uncommitted_statement_never_happened() {
    for fixture in Fixture::all().await {
        fixture.execute("table", TABLE).await.unwrap();
        let slow = match &fixture.kind {
            Kind::File(_) => {
                "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n)
                 SELECT count(*) FROM n"
            }
            #[cfg(feature = "postgres")]
            Kind::Server(_) => "SELECT pg_sleep(60)",
        };
        let slow = change("one", &["INSERT INTO book VALUES (1, 'one')", slow]);
        let script =
            format!("await withItem('x', 'Item', async () => {{ await sql.execute({slow}); }});");
        fixture.items.publish("books", &script, "ada").await.unwrap();
        let items = fixture.items.clone();
        let run = tokio::spawn(async move { items.run("books", None).await });
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_at_it(&fixture) {
            assert!(Instant::now() < deadline, "no transaction began");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        run.abort();
        assert!(run.await.is_err());
        assert_eq!(fixture.look("SELECT count(*) FROM book"), "0");
        // The statement is interrupted, and holds no lock any more.
        while is_at_it(&fixture) {
            assert!(Instant::now() < deadline, "it goes on");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let quick = change("one", &["INSERT INTO book VALUES (1, 'one')"]);
        fixture.item("x", &format!("await sql.execute({quick});")).await.unwrap();
        assert_eq!(fixture.look("SELECT count(*) FROM book"), "1");
    }
}

/// Whether a script's statements are under way.
fn is_at_it(fixture: &Fixture) -> bool {
    match &fixture.kind {
        Kind::File(directory) => {
            let db = rusqlite::Connection::open(directory.path().join("hapax.db"));
            let db = db.expect("a connection");
            db.busy_timeout(Duration::from_millis(200)).expect("a timeout");
            db.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_err()
        }
        #[cfg(feature = "postgres")]
        Kind::Server(server) => {
            let sleeping = "SELECT count(*) FROM pg_stat_activity
                 WHERE query LIKE '%pg_sleep(60)%' AND pid <> pg_backend_pid()";
            server.sql("postgres", sleeping) != "0"
        }
    }
}

#[tokio::test]
async fn a_tool_is_set_up_where_it_can_work() {
    let memory = Hapax::builder().in_memory();
    assert!(Database::of(&memory, None).is_err(), "nothing can be settled in there");
    let directory = tempfile::tempdir().unwrap();
    let hapax = Hapax::open(directory.path().join("hapax.db")).await.unwrap();
    let database = Database::of(&hapax, None).unwrap();
    assert!(Sql::new("sql", database, Some("app".into())).is_err(), "there are no roles in a file");
    #[cfg(feature = "postgres")]
    {
        let server = Database::of(&hapax, Some("postgres://localhost/nowhere")).unwrap();
        assert!(Sql::new("sql", server, None).is_err(), "scripts need a role of their own");
    }
}
