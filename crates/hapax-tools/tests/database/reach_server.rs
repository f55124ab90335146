//! Objects that are out of a script's reach on a PostgreSQL server.

use hapax_items::Class;
use hapax_testkit::Postgres;

use crate::fixture::{Fixture, Kind, SETUP, change, failed, quoted};

fn server(fixture: &Fixture) -> &Postgres {
    match &fixture.kind {
        Kind::Server(server) => server,
        Kind::File(_) => panic!("a server"),
    }
}

/// Each of these statements is refused, and leaves nothing behind.
#[tokio::test]
async fn the_ledger_and_its_role_are_out_of_reach() {
    let fixture = Fixture::server().await;
    fixture.execute("mine", "CREATE TABLE mine (n int PRIMARY KEY, t text)").await.unwrap();
    server(&fixture).sql("postgres", "CREATE TABLE public.theirs (n int)");
    for (nth, sql) in [
        "DELETE FROM hapax.effect",
        "UPDATE hapax.journal SET at = 0",
        "TRUNCATE hapax.journal",
        "DROP TABLE hapax.part",
        "DROP TABLE hapax.part CASCADE",
        "SELECT * FROM hapax.token",
        "SELECT hapax.settle('sha256:00', 'att_00', 1, '')",
        "INSERT INTO hapax.kv VALUES ('default', 'kv', 'a', '1')",
        "INSERT INTO theirs VALUES (1)",
        "CREATE TABLE hapax.mine (n int)",
        "CREATE TABLE mine2 (k hapax.bytes32)",
        "CREATE TABLE mine2 () INHERITS (hapax.effect)",
        "ALTER TABLE mine SET SCHEMA hapax",
        "ALTER TABLE mine OWNER TO postgres",
        "COMMIT",
        "COMMIT AND CHAIN",
        "ROLLBACK",
        "END",
        "ABORT",
        "BEGIN",
        "SAVEPOINT s",
        "ROLLBACK TO SAVEPOINT s",
        "PREPARE TRANSACTION 'x'",
        "RESET ROLE",
        "reset /* */ role",
        "RESET ALL",
        "SET ROLE postgres",
        "SET ROLE NONE",
        "SET LOCAL ROLE postgres",
        "SET SESSION AUTHORIZATION postgres",
        "RESET SESSION AUTHORIZATION",
        "SET search_path = hapax",
        "DISCARD ALL",
        "SELECT set_config('role', 'postgres', true)",
        "SELECT pg_catalog.set_config('role', 'none', false)",
        "SELECT \"set_config\"('role', 'none', false)",
        "SELECT U&\"set\\005fconfig\"('role', 'none', false)",
        "SELECT set_config('search_path', 'scripts, pg_catalog', false)",
        "UPDATE pg_settings SET setting = 'none' WHERE name = 'role'",
        "SELECT query_to_xml('SELECT set_' || 'config(''role'', ''none'', true)', true, true, '')",
        "SELECT query_to_xml('RESET ROLE', true, true, '')",
        "SELECT query_to_xml('SELECT * FROM hapax.token', true, true, '')",
        "SELECT * FROM ts_stat('SELECT set_config(''role'', ''none'', true)::tsvector')",
        "WITH x AS (SELECT set_config('role', 'none', true) AS t) \
         DELETE FROM mine USING x WHERE x.t = mine.t",
        "DO $$ BEGIN RESET ROLE; DELETE FROM hapax.effect; END $$",
        "CREATE FUNCTION evil() RETURNS int LANGUAGE plpgsql AS \
         $$ BEGIN RESET ROLE; RETURN 1; END $$",
        "CREATE FUNCTION evil() RETURNS int LANGUAGE sql SET role = 'postgres' AS 'SELECT 1'",
        "CREATE PROCEDURE evil() LANGUAGE plpgsql AS $$ BEGIN COMMIT; END $$",
        "CREATE CONSTRAINT TRIGGER t AFTER INSERT ON mine DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "CREATE RULE r AS ON INSERT TO mine DO ALSO DELETE FROM mine",
        "CREATE SCHEMA evil CREATE TABLE t (n int)",
        "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
        "PREPARE p AS SELECT 1",
        "EXECUTE s0",
        "CREATE TABLE mine2 AS EXECUTE s0",
        "COPY mine TO PROGRAM 'id'",
        "COPY mine FROM '/etc/passwd'",
        "LOCK TABLE hapax.effect",
        "ALTER ROLE scripts SUPERUSER",
        "GRANT postgres TO scripts",
        "CREATE EXTENSION dblink",
        "ALTER SYSTEM SET fsync = off",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE usename = 'postgres' AND pid <> pg_backend_pid()",
        "SELECT 1; RESET ROLE",
        "EXPLAIN ANALYZE DELETE FROM mine",
        "CALL evil()",
        "",
    ]
    .into_iter()
    .enumerate()
    {
        let both = change("evil", &["INSERT INTO mine VALUES (1, 'trace')", sql]);
        let result = fixture.item(&nth.to_string(), &format!("await sql.execute({both});")).await;
        assert!(result.is_err(), "{sql}: {result:?}");
        let (class, message) = failed(result);
        assert!(matches!(class, Class::Permission | Class::Logic), "{sql}: {class}: {message}");
        let error = fixture.query(sql).await.expect_err(sql);
        assert!(matches!(error.class, Class::Permission | Class::Logic), "{sql}: {error}");
    }
    // A default that calls `set_config` is refused when a row is written.
    let default = change(
        "evil",
        &[
            "CREATE TABLE mine2 (t text DEFAULT set_config('role', 'none', true), n int)",
            "INSERT INTO mine2 (n) VALUES (1)",
            "DELETE FROM hapax.effect",
        ],
    );
    let (class, message) =
        failed(fixture.item("default", &format!("await sql.execute({default});")).await);
    assert!(class == Class::Permission && message.contains("set_config"), "{message}");
    assert_eq!(fixture.look("SELECT count(*) FROM mine"), "0");
    let tables = "SELECT string_agg(schemaname || '.' || tablename, ' ') FROM pg_tables
         WHERE tableowner = 'scripts'";
    assert_eq!(fixture.look(tables), "scripts.mine");
    assert_eq!(fixture.look("SELECT count(*) FROM hapax.kv"), "0");
    fixture.execute("last", "INSERT INTO mine VALUES (1, 'last')").await.unwrap();
    assert_eq!(fixture.look("SELECT count(*) FROM mine"), "1");
    let hapax = fixture.items.hapax();
    hapax.pass().await.unwrap();
    let verified =
        hapax.journal().verify(hapax.journal().verifier().unwrap(), |_, _| ()).await.unwrap();
    assert_eq!(verified.damage, Vec::new());
}

/// Triggers and constraints that are deferred to the commit run as the script's role.
#[tokio::test]
async fn deferred_triggers_run_as_the_scripts_role() {
    let fixture = Fixture::server().await;
    let postgres = server(&fixture);
    postgres.sql(
        "postgres",
        "CREATE TABLE scripts.mine (n int, who text);
         ALTER TABLE scripts.mine OWNER TO scripts;
         CREATE FUNCTION public.who() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN UPDATE scripts.mine SET who = current_user; RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER late AFTER INSERT ON scripts.mine DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION public.who();
         CREATE TABLE scripts.parent (n int PRIMARY KEY);
         CREATE TABLE scripts.child (n int REFERENCES scripts.parent DEFERRABLE INITIALLY DEFERRED);
         ALTER TABLE scripts.parent OWNER TO scripts;
         ALTER TABLE scripts.child OWNER TO scripts;",
    );
    fixture.execute("a", "INSERT INTO mine VALUES (1, '')").await.unwrap();
    assert_eq!(fixture.look("SELECT who FROM mine"), "scripts");
    let (class, message) = failed(fixture.execute("b", "INSERT INTO child VALUES (1)").await);
    assert_eq!(class, Class::Precondition, "refused by the commit itself: {message}");
    assert_eq!(fixture.look("SELECT count(*) FROM child"), "0");
}

/// A function of another owner that resets the role undoes the whole change.
#[tokio::test]
async fn a_statement_that_leaves_its_role_is_the_last() {
    let fixture = Fixture::server().await;
    fixture.execute("mine", "CREATE TABLE mine (n int)").await.unwrap();
    server(&fixture).sql(
        "postgres",
        "CREATE FUNCTION public.careless() RETURNS int LANGUAGE plpgsql AS
             $$ BEGIN RESET ROLE; RETURN 1; END $$",
    );
    let evil = ["INSERT INTO mine SELECT public.careless()", "DELETE FROM hapax.effect"];
    let body = format!("await sql.execute({});", change("evil", &evil));
    let (class, message) = failed(fixture.item("x", &body).await);
    assert_eq!(class, Class::Permission);
    assert!(message.contains("left its transaction or its role"), "{message}");
    let error = fixture.query("SELECT public.careless()").await.unwrap_err();
    assert!(error.message.contains("left its transaction or its role"), "{error}");
    assert_eq!(fixture.look("SELECT count(*) FROM mine"), "0");
    assert_eq!(
        fixture
            .query("SELECT current_user::text AS me")
            .await
            .unwrap()
            .pointer("/0/me")
            .and_then(|me| me.as_str()),
        Some("scripts")
    );
}

/// A connection that is kept holds no locks of a script.
#[tokio::test]
async fn a_script_leaves_no_locks_in_its_session() {
    let fixture = Fixture::server().await;
    fixture.execute("lock", "SELECT pg_advisory_lock(7)").await.unwrap();
    fixture.query("SELECT pg_advisory_lock(8)").await.unwrap();
    assert_eq!(fixture.look("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), "0");
    let kept = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tools'";
    assert_eq!(fixture.look(kept), "1");
}

/// Proves K-8: a commit that is cut off does not count as done, and nothing is done twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_cut_off_is_tried_again() {
    let fixture = Fixture::server().await;
    fixture.execute("table", "CREATE TABLE mine (n int)").await.unwrap();
    server(&fixture).sql(
        "postgres",
        "CREATE SEQUENCE public.times;
         GRANT USAGE ON public.times TO scripts;
         CREATE FUNCTION public.late() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN
                 IF nextval('public.times') = 1 THEN PERFORM pg_sleep(60); END IF;
                 RETURN NULL;
             END $$;
         CREATE CONSTRAINT TRIGGER late AFTER INSERT ON scripts.mine DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION public.late()",
    );
    let (driven, ()) = tokio::join!(fixture.execute("one", "INSERT INTO mine VALUES (1)"), async {
        let committing = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE query = 'COMMIT' AND wait_event = 'PgSleep'";
        ended(&fixture, committing).await;
    });
    driven.unwrap();
    assert_eq!(fixture.look("SELECT count(*) FROM mine"), "1");
    let item = fixture.items.show("books", "one").await.unwrap();
    let mutation = fixture.items.mutations(item.key, 1).await.unwrap().remove(0);
    assert_eq!(mutation.attempts, 2, "the first was cut");
}

/// A role that could gain more rights is refused before any statement runs as it.
#[tokio::test]
async fn a_role_that_could_do_more_is_refused() {
    for (setup, why) in [
        ("", "there is no role"),
        ("CREATE ROLE scripts", "set_config"),
        ("CREATE ROLE scripts SUPERUSER", "superuser"),
        ("CREATE ROLE scripts; GRANT postgres TO scripts", "a member"),
        ("MORE GRANT USAGE ON SCHEMA hapax TO scripts", "rights on the schema"),
        ("MORE GRANT pg_write_all_data TO scripts", "rights on the schema"),
    ] {
        let server = Postgres::start();
        let more = setup.strip_prefix("MORE");
        server.sql("postgres", if more.is_some() { SETUP } else { setup });
        let fixture = Fixture::on(server).await;
        if let (Kind::Server(server), Some(more)) = (&fixture.kind, more) {
            server.sql("postgres", more);
        }
        for body in [
            "await sql.query({ sql: 'SELECT 1' });".to_owned(),
            format!("await sql.execute({});", change("a", &["SELECT 1"])),
        ] {
            let (class, message) = failed(fixture.item(&body.len().to_string(), &body).await);
            assert_eq!(class, Class::Permission, "{setup}: {message}");
            assert!(message.contains(why), "{setup}: {message}");
        }
    }
}

/// Proves K-8: a connection that is cut in the middle is opened again, and nothing is done twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_connection_is_made_again() {
    let fixture = Fixture::server().await;
    fixture.execute("table", "CREATE TABLE mine (n int)").await.unwrap();
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
         WHERE application_name = 'tools'";
    assert_eq!(server(&fixture).sql("postgres", cut), "1");
    fixture.execute("idle", "INSERT INTO mine VALUES (1)").await.unwrap();
    assert_eq!(fixture.look("SELECT count(*) FROM mine"), "1");
    let slow = change("busy", &["INSERT INTO mine VALUES (2)", "SELECT pg_sleep(3)"]);
    let body = format!("await sql.execute({slow});");
    let (driven, ()) = tokio::join!(fixture.item("busy", &body), async {
        let sleeping = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE query LIKE 'SELECT pg_sleep(%' AND pid <> pg_backend_pid()";
        ended(&fixture, sleeping).await;
    });
    driven.unwrap();
    assert_eq!(fixture.look("SELECT count(*) FROM mine WHERE n = 2"), "1");
    let item = fixture.items.show("books", "busy").await.unwrap();
    let mutation = fixture.items.mutations(item.key, 1).await.unwrap().remove(0);
    assert_eq!(mutation.attempts, 2, "the first was cut");
}

/// Numbers and texts come back as what they are, and other types say how to ask for them.
#[tokio::test]
async fn values_of_many_types_are_returned() {
    let fixture = Fixture::server().await;
    let sql = "SELECT 1::int2 a, -2::int4 b, 3::int8 c, 0.5::float4 d, 1e300::float8 e, \
        12345.6700::numeric f, 12345678901234567890.5::numeric g, 'x'::varchar h, true i, \
        null::int j, \
        '{\"k\": [1, null]}'::jsonb k, '[1]'::json l, 'NaN'::float8 m, sum(7) n, \
        0.12345678901234567::numeric o";
    fixture
        .item(
            "a",
            &format!(
                "console.log(JSON.stringify((await sql.query({{ sql: {} }}))[0]));",
                quoted(sql)
            ),
        )
        .await
        .unwrap();
    assert_eq!(
        fixture.log().await,
        concat!(
            r#"{"a":1,"b":-2,"c":3,"d":0.5,"e":1e+300,"f":12345.67,"g":"12345678901234567890.5","#,
            r#""h":"x","i":true,"j":null,"k":{"k":[1,null]},"l":[1],"m":null,"n":7,"#,
            r#""o":"0.12345678901234567"}"#
        )
    );
    let (class, message) =
        failed(fixture.item("b", "await sql.query({ sql: 'SELECT now() AS at' });").await);
    assert_eq!(class, Class::Logic);
    assert!(message.contains("at::text"), "{message}");
    let types = r#"
        await sql.execute({ id: "t", statements: [
            { sql: "CREATE TABLE t (at timestamptz, id uuid, d date, n numeric, list int[])" },
            { sql: "INSERT INTO t VALUES ($1, $2, $3, $4, $5)",
              params: ["2024-02-29T12:00:00Z", "00000000-0000-0000-0000-000000000001",
                       "2024-02-29", 12.5, "{1,2}"] },
        ] });
        const all = "SELECT id::text, d::text, n, list::text FROM t";
        console.log(JSON.stringify(await sql.query({ sql: all })));"#;
    fixture.item("c", types).await.unwrap();
    assert_eq!(
        fixture.log().await,
        r#"[{"d":"2024-02-29","id":"00000000-0000-0000-0000-000000000001","list":"{1,2}","n":12.5}]"#
    );
}

/// Waits until the statement `ending` has ended a script's session.
async fn ended(fixture: &Fixture, ending: &str) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while server(fixture).sql("postgres", ending) == "0" {
        assert!(std::time::Instant::now() < deadline, "no session was there to end");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
