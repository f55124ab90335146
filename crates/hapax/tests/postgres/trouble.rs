//! Lost replies, restarts, and servers that will not do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hapax::{Error, Failure, Hapax, Safety, StateName, StoreError};
use hapax_testkit::{CuttingProxy, Postgres};

use super::outbox::{LONG, Shelf, event, outbox, rests};
use super::{intact, key, noted, open, until};

/// Proves K-5: the connection is cut right after the commit, a thousand times. Nothing happens
/// twice, and no caller gets a wrong answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_is_asked_again() {
    let server = Postgres::start();
    open(&server.url("postgres")).await.close().await.expect("closed");
    let proxy = Arc::new(CuttingProxy::before(server.port()));
    let hapax = Hapax::builder().open(proxy.url("postgres")).await.expect("a ledger");
    let directory = tempfile::tempdir().expect("a directory");
    let sink = directory.path().join("sink");
    // Not more often: a session sends several queries before it can be used, and each may be cut.
    proxy.cut_one_in(8);
    let (next, answer) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let until = std::time::Instant::now() + LONG;
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let (hapax, sink) = (hapax.clone(), sink.clone());
            let (next, answer, proxy) = (next.clone(), answer.clone(), proxy.clone());
            tokio::spawn(async move {
                // How many cuts an effect meets depends on how busy the machine is.
                let enough = || proxy.cuts() >= 1000 && answer.load(Ordering::Relaxed) > 150;
                while !enough() && std::time::Instant::now() < until {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let line = format!("{n}");
                    let expected = line.clone();
                    let noted = super::note;
                    let sink = sink.clone();
                    let effect = hapax.effect(key(n)).safety(Safety::Transactional);
                    let done = effect
                        .run(|_| async move {
                            noted(&sink, &line)?;
                            Ok::<_, Failure>(line)
                        })
                        .await;
                    match done {
                        Ok(done) => {
                            assert_eq!(done.body(), Some(expected.as_bytes()));
                            answer.fetch_add(1, Ordering::Relaxed);
                        }
                        // Reads are not retried by themselves; no answer was wrong.
                        Err(Error::Store(error)) => assert!(error.is_transient(), "{error}"),
                        Err(other) => panic!("a wrong answer: {other:?}"),
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no wrong answer");
    }
    proxy.cut_one_in(u64::MAX);
    let counts = noted(&sink);
    assert!(proxy.cuts() >= 1000);
    assert!(counts.len() > 100, "it was about something: {}", counts.len());
    assert!(counts.values().all(|count| *count == 1), "executed twice: {counts:?}");
    for line in counts.keys() {
        let n: u64 = line.parse().expect("a number");
        let effect = hapax.effects().show(key(n)).await.expect("a read").expect("a record");
        assert_eq!(effect.state.name(), StateName::Succeeded, "{line}");
    }
}

/// Proves K-10: while the server is away nothing is run, and work resumes when it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_is_waited_for_and_nothing_runs_meanwhile() {
    let mut server = Postgres::start();
    let hapax = Hapax::open(server.url("postgres")).await.expect("a ledger");
    let once = |n| {
        let effect = hapax.effect(key(n)).safety(Safety::Transactional);
        effect.run(move |_| async move { Ok::<_, Failure>(n.to_string()) })
    };
    once(1).await.expect("done");
    server.kill();
    let meanwhile = tokio::spawn({
        let hapax = hapax.clone();
        async move { hapax.effect(key(2)).run(|_| async { Ok::<_, Failure>("done") }).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!meanwhile.is_finished(), "it waits for the server");
    server.up();
    assert_eq!(meanwhile.await.expect("no panic").expect("done").body(), Some(&b"done"[..]));
    once(3).await.expect("done");
}

/// Proves K-10: callers that ask a server that is gone get their errors together, and not one after
/// the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_time_out_together_and_not_one_after_the_other() {
    let mut server = Postgres::start();
    let hapax = open(&server.url("postgres")).await;
    server.kill();
    let ask = |n| {
        let effect = hapax.effect(key(n));
        tokio::spawn(effect.run(|_| async { Ok::<_, Failure>("done") }))
    };
    let asked: Vec<_> = (0..6).map(ask).collect();
    // Ten seconds for each caller would be a minute.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    for answer in asked {
        let answer = tokio::time::timeout_at(deadline, answer).await.expect("an answer in time");
        let answer = answer.expect("no panic");
        assert!(matches!(&answer, Err(Error::Store(error)) if error.is_transient()), "{answer:?}");
    }
}

/// Proves K-10: a server that cannot be reached is an error of its own kind.
#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", hapax_testkit::free_port());
    let opened = Hapax::open(url).await;
    assert!(matches!(opened, Err(Error::Store(StoreError::Unavailable(_)))));
}

/// A server that may not be written to is refused: its answers may be old.
#[tokio::test]
async fn a_server_that_is_read_only_is_refused() {
    let server = Postgres::with(&["fsync=off", "default_transaction_read_only=on"]);
    let opened = Hapax::open(server.url("postgres")).await;
    let Err(error) = opened else { panic!("it was opened") };
    assert!(
        error.to_string().contains("writable") || error.to_string().contains("write"),
        "{error}"
    );
}

/// Proves K-13: whatever statement is tried, the journal, its tiles and its heads stay as they are.
#[tokio::test]
async fn the_journal_cannot_be_changed() {
    let server = Postgres::start();
    let hapax = open(&server.url("postgres")).await;
    let effect = hapax.effect(key(1)).safety(Safety::Transactional);
    effect.run(|_| async { Ok::<_, Failure>("done") }).await.expect("done");
    hapax.pass().await.expect("sealed");
    let partitions = server.sql(
        "postgres",
        "SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'hapax.journal'::regclass",
    );
    let tables =
        ["hapax.journal", "hapax.tile", "hapax.head"].into_iter().chain(partitions.lines());
    for table in tables {
        for statement in [
            format!("TRUNCATE {table}"),
            format!("DELETE FROM {table}"),
            match table {
                "hapax.tile" => "UPDATE hapax.tile SET hashes = sha256('x')".to_owned(),
                "hapax.head" => "UPDATE hapax.head SET note = 'x'".to_owned(),
                _ => format!("UPDATE {table} SET note = 'x'"),
            },
        ] {
            let tried = server.try_sql("postgres", &statement);
            let empty = tried.is_ok()
                && server.sql("postgres", &format!("SELECT count(*) FROM {table}")) == "0";
            assert!(empty || tried.is_err_and(|error| error.contains("HX105")), "{statement}");
        }
    }
    let verified = hapax
        .journal()
        .verify(hapax.journal().verifier().expect("a key"), |_, _| ())
        .await
        .expect("read");
    assert_eq!((verified.sealed, verified.damage), (2, Vec::new()));
}

/// Proves K-4: the database itself refuses a state that contradicts the row.
#[tokio::test]
async fn a_row_that_no_state_explains_is_refused() {
    let server = Postgres::start();
    let hapax = open(&server.url("postgres")).await;
    let effect = hapax.effect(key(1)).safety(Safety::Transactional);
    effect.run(|_| async { Ok::<_, Failure>("done") }).await.expect("done");
    for change in [
        "state = 0",
        "state = 7",
        "outcome = NULL",
        "state = 2, cause = 1",
        "state = 3, stuck = 3, outcome = NULL",
        "reason = 'why'",
        "safety = 1",
        "settling_ms = 1",
        "epoch = 1",
        "lease = decode(repeat('00', 16), 'hex')",
        "key = 'short'",
    ] {
        let tried = server.try_sql("postgres", &format!("UPDATE hapax.effect SET {change}"));
        assert!(tried.is_err_and(|error| error.contains("23514")), "{change}");
    }
}

/// A session whose commits are not synced has them synced when hapax takes part.
#[tokio::test]
async fn callers_transactions_are_synced() {
    let server = Postgres::with(&["fsync=off", "synchronous_commit=off"]);
    let url = server.url("postgres");
    let hapax = open(&url).await;
    let mut client = super::client(&url).await;
    let tx = client.transaction().await.expect("a transaction");
    let work = async |_: &hapax::tokio_postgres::Transaction<'_>, _: &hapax::Claim| {
        Ok::<_, Failure>("done")
    };
    hapax.effect(key(1)).once_in_postgres(&tx, work).await.expect("done");
    let row = tx.query_one("SHOW synchronous_commit", &[]).await.expect("a setting");
    assert_eq!(row.get::<_, &str>(0), "on");
    tx.commit().await.expect("committed");
    let found = hapax.maintenance().doctor().await.expect("a doctor").findings;
    assert!(found.iter().any(|f| f.what.contains("synchronous_commit is off")), "{found:?}");
    assert!(found.iter().any(|f| f.what.contains("fsync is off")), "{found:?}");
}

/// Proves K-8: a reload that turns `synchronous_commit` off does not reach sessions that are open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_does_not_make_commits_forgetful() {
    let server = Postgres::start();
    let hapax = open(&server.url("postgres")).await;
    let perform = |n| {
        let hapax = hapax.clone();
        async move { hapax.effect(key(n)).run(|_| async { Ok::<_, Failure>("done") }).await }
    };
    perform(1).await.expect("done");
    server.sql(
        "postgres",
        "CREATE TABLE seen (synced text);
         CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL;
         END $$;
         CREATE TRIGGER see AFTER INSERT OR UPDATE ON hapax.effect FOR EACH ROW EXECUTE FUNCTION see()",
    );
    server.sql("postgres", "ALTER SYSTEM SET synchronous_commit = off");
    server.sql("postgres", "SELECT pg_reload_conf()");
    let is_off = async |what: &str| server.sql("postgres", &format!("SHOW {what}")) == "off";
    until("it is reloaded", || is_off("synchronous_commit")).await;
    for n in 2..20 {
        perform(n).await.expect("done");
    }
    assert_eq!(server.sql("postgres", "SELECT DISTINCT synced FROM seen"), "on");
    let found = hapax.maintenance().doctor().await.expect("a doctor").findings;
    assert!(found.iter().any(|f| f.what.contains("synchronous_commit is off")), "{found:?}");
    // Readiness shows the settings that no session can turn on.
    assert!(
        hapax.maintenance().turned_off().await.expect("asked").is_empty(),
        "fsync was off from the beginning"
    );
    server.sql("postgres", "ALTER SYSTEM SET full_page_writes = off");
    server.sql("postgres", "SELECT pg_reload_conf()");
    until("it is reloaded", || is_off("full_page_writes")).await;
    assert_eq!(hapax.maintenance().turned_off().await.expect("asked"), ["full_page_writes"]);
}

/// Commits by hapax itself are synced too, one effect alone and many together, whatever the
/// sessions' default is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_of_hapax_are_synced() {
    let server = Postgres::with(&["fsync=off", "synchronous_commit=off"]);
    let hapax = open(&server.url("postgres")).await;
    server.sql(
        "postgres",
        "CREATE TABLE seen (synced text);
         CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL;
         END $$;
         CREATE TRIGGER see AFTER INSERT OR UPDATE ON hapax.effect FOR EACH ROW EXECUTE FUNCTION see()",
    );
    let perform = |n| {
        let hapax = hapax.clone();
        async move { hapax.effect(key(n)).run(|_| async { Ok::<_, Failure>("done") }).await }
    };
    perform(1).await.expect("done");
    let many: Vec<_> = (2..34).map(|n| tokio::spawn(perform(n))).collect();
    for one in many {
        one.await.expect("a caller").expect("done");
    }
    let client = super::client(&server.url("postgres")).await;
    let seen = "SELECT count(*), count(*) FILTER (WHERE synced = 'on') FROM seen";
    let row = client.query_one(seen, &[]).await.expect("what was seen");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (66, 66));
}

/// Proves K-5: a grant that is found again is answered when the standby has it, and not before: a primary that
/// crashed while its commit waited shows the commit to every session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_is_answered_again_only_when_the_standby_has_it() {
    let server = Postgres::start();
    let hapax = open(&server.url("postgres")).await;
    let attempt = hapax::AttemptId::from_bytes([1; 16]);
    let ask = || hapax.effect(key(1)).claim_for(attempt, None);
    assert!(matches!(ask().await, Ok(hapax::remote::Verdict::Granted(_))));
    let standby = async |name: &str| {
        server.sql("postgres", &format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'"));
        server.sql("postgres", "SELECT pg_reload_conf()");
        let is_so = async || server.sql("postgres", "SHOW synchronous_standby_names") == name;
        until("it is reloaded", is_so).await;
    };
    standby("nobody").await;
    let answer = tokio::time::timeout(Duration::from_secs(2), ask()).await;
    assert!(answer.is_err(), "answered without the standby: {answer:?}");
    standby("").await;
    assert!(matches!(ask().await, Ok(hapax::remote::Verdict::Granted(_))));
}

/// Proves K-5: after a restore, fences begin above all that were ever given, and running effects have no holder.
#[tokio::test]
async fn fences_after_a_restore_are_above_all_before() {
    let server = Postgres::start();
    let hapax = open(&server.url("postgres")).await;
    let fence = |n| {
        let effect = hapax.effect(key(n)).safety(Safety::Transactional);
        effect.run(|claim| async move { Ok::<_, Failure>(claim.fence().to_string()) })
    };
    let number = |done: hapax::Done| -> u64 {
        let body = done.body().expect("a body").to_vec();
        String::from_utf8(body).expect("text").parse().expect("a number")
    };
    let before = number(fence(1).await.expect("done"));
    hapax.maintenance().after_restore().await.expect("recorded");
    let after = number(fence(2).await.expect("done"));
    assert!(after > before + 1_000_000_000, "{before} {after}");
    intact(&hapax, 4).await;
}

async fn results_are_kept_and_removed(hapax: &hapax::Hapax) {
    use hapax::result_index::{AccessKind, CacheAccess, Evict, IndexEntry, Ontology};

    let (id, version) = ("https://example.org/rivers", "v1".to_owned());
    let ontology = Ontology {
        id: id.into(),
        version: version.clone(),
        content: "{}".into(),
        metadata: "{}".into(),
        updated: hapax::Timestamp(0),
    };
    hapax.results().keep_ontology(id, Some(ontology), "ada").await.expect("kept");
    let effect = hapax.effect(key(3)).safety(Safety::Transactional);
    let made = effect.run(|claim| async move {
        let (text_hash, params_hash) = ("t".into(), "p".into());
        claim.index_result(IndexEntry {
            ontology: id.into(),
            version,
            text_hash,
            params_hash,
            whole: true,
        });
        Ok::<_, Failure>("{}")
    });
    made.await.expect("done");
    let whole = hapax::part::Part { whole: key(3), kind: "run".into(), body: vec![1] };
    let part = hapax.effect(key(4)).part(whole).ttl(Duration::from_millis(1));
    part.run(|_| async { Ok::<_, Failure>("{}") }).await.expect("done");
    let name = hapax::Name { namespace: hapax.namespace().clone(), key: key(3) };
    let (ontology, about) = (id.to_owned(), "{}".to_owned());
    let access = CacheAccess { name, ontology, kind: AccessKind::Hit, times: 1, about };
    hapax.results().record_accesses(vec![access]).await.expect("written down");
    assert_eq!(hapax.results().evict(Evict::All, 10).await.expect("removed"), 1);
}

/// Proves K-13: the rights that the documentation gives a node are enough to work, and not enough
/// to take a partition of the journal away.
#[tokio::test]
async fn a_node_needs_no_more_rights_than_documented() {
    let server = Postgres::start();
    let owner = server.url("postgres");
    let made = tokio::task::spawn_blocking(move || hapax_postgres::PgStore::migrate(&owner));
    assert_eq!(made.await.expect("no panic").expect("a schema"), 10);
    let page = "../../docs/operations.md";
    let page = std::fs::read_to_string(page).expect("the page");
    let grants = page.split("```sql\n").nth(1).and_then(|rest| rest.split("```").next());
    server.sql("postgres", grants.expect("the rights"));
    let url = server.url("postgres").replace("postgres@", "hapax_node@");
    let hapax = open(&url).await;
    let effect = hapax.effect(key(1)).lock(&["gauges"]).safety(Safety::Transactional);
    effect.run(|_| async { Ok::<_, Failure>(vec![7; 100_000]) }).await.expect("done");
    let pass = hapax.pass().await.expect("a pass");
    assert_eq!(pass.sealed, 2);
    hapax
        .in_namespace(hapax::Namespace::new("other").expect("a name"))
        .effects()
        .show(key(1))
        .await
        .expect("read");
    results_are_kept_and_removed(&hapax).await;
    let shelf = Shelf::default();
    let dispatcher = hapax.outbox().dispatch(outbox(&shelf)).await.expect("a dispatcher");
    let effect = hapax.effect(key(2)).safety(Safety::Transactional);
    let answer = effect.run(|claim| async move {
        claim.emit(event(2))?;
        Ok::<_, Failure>("emitted")
    });
    answer.await.expect("done");
    rests(&dispatcher).await;
    assert_eq!(shelf.payloads(), ["2"]);
    dispatcher.stop().await.expect("stopped");
    let client = super::client(&url).await;
    for statement in [
        "UPDATE hapax.outbox_record SET payload = '{}'",
        "DELETE FROM hapax.outbox_record",
        "TRUNCATE hapax.delivery",
        "DELETE FROM hapax.dispatched",
        "ALTER TABLE hapax.journal DETACH PARTITION hapax.journal_default",
        "DROP TABLE hapax.journal_default",
        "ALTER TABLE hapax.journal DISABLE TRIGGER ALL",
        "TRUNCATE hapax.journal",
        "DELETE FROM hapax.journal",
        "UPDATE hapax.head SET note = 'x'",
    ] {
        let error = client.batch_execute(statement).await.expect_err(statement);
        assert_eq!(error.code().map(|code| code.code()), Some("42501"), "{statement}");
    }
}

/// Proves K-17: a failover to a synchronous standby loses nothing that was acknowledged, and no
/// live holder lapses by it. A standby by itself is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_loses_nothing_and_expires_no_lease() {
    let mut primary = Postgres::start();
    let standby = primary.standby();
    primary.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.sql("postgres", "SELECT pg_reload_conf()");
    let alone = Hapax::open(standby.url("postgres")).await;
    assert!(matches!(alone, Err(Error::Store(StoreError::Unavailable(_)))), "a standby is refused");

    let (a, b) = (primary.port(), standby.port());
    let url = format!("postgres://postgres@127.0.0.1:{a},127.0.0.1:{b}/postgres");
    let hapax = Hapax::builder().lease(Duration::from_secs(2)).open(url).await.expect("a ledger");
    let once = |n: u64| {
        let effect = hapax.effect(key(n)).wait(Duration::from_secs(60));
        effect.run(move |_| async move { Ok::<_, Failure>(n.to_string()) })
    };
    for n in 0..50 {
        once(n).await.expect("done");
    }
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn({
        let hapax = hapax.clone();
        async move {
            let work = |_| async move {
                let _ = stopped.await;
                Ok::<_, Failure>("all the while")
            };
            hapax.effect(key(100)).run(work).await
        }
    });
    until("it runs", || async { hapax.effects().show(key(100)).await.expect("a read").is_some() })
        .await;
    primary.kill();
    standby.promote();
    for n in 50..60 {
        // While the servers change places, a caller may get an error that it may retry.
        while let Err(error) = once(n).await {
            assert!(matches!(&error, Error::Store(error) if error.is_transient()), "{error}");
        }
    }
    let node =
        Hapax::builder().background(false).open(standby.url("postgres")).await.expect("open");
    for n in 0..60 {
        let effect =
            node.effects().show(key(n)).await.expect("a read").expect("it was acknowledged");
        assert_eq!(effect.state.name(), StateName::Succeeded);
    }
    // Longer than a lease: every live holder has renewed on the new server.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let _ = stop.send(());
    assert_eq!(running.await.expect("no panic").expect("done").body(), Some(&b"all the while"[..]));
    let stuck = node.effects().list(&[StateName::Indeterminate], 10).await.expect("a list");
    assert!(stuck.is_empty(), "{stuck:?}");
    let verified = node
        .journal()
        .verify(node.journal().verifier().expect("a key"), |_, _| ())
        .await
        .expect("read");
    assert_eq!(verified.damage, Vec::new());
}

/// TLS is verified: a server whose certificate is not from a known root is refused, and one whose
/// root is given is accepted.
#[tokio::test]
async fn certificates_are_verified() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let made = std::process::Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
        ])
        .args([
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-addext",
            "subjectAltName=DNS:localhost",
            "-keyout",
            &path("key"),
            "-out",
            &path("crt"),
        ])
        .output()
        .expect("openssl runs");
    assert!(made.status.success(), "{made:?}");
    let (cert, key_file) =
        (format!("ssl_cert_file={}", path("crt")), format!("ssl_key_file={}", path("key")));
    hapax_testkit::readable_by_servers(directory.path());
    let server = Postgres::with(&["fsync=off", "ssl=on", &cert, &key_file]);
    let url = format!("postgres://postgres@localhost:{}/postgres", server.port());
    let unknown = Hapax::open(format!("{url}?sslmode=verify-full")).await;
    assert!(matches!(unknown, Err(Error::Store(StoreError::Unavailable(_)))));
    let known = format!("{url}?sslmode=verify-full&sslrootcert={}", path("crt"));
    let hapax = Hapax::builder().background(false).open(known).await.expect("a ledger");
    let effect = hapax.effect(key(1)).safety(Safety::Transactional);
    effect.run(|_| async { Ok::<_, Failure>("done") }).await.expect("done");
    let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                     WHERE application_name = 'hapax'";
    assert_eq!(server.sql("postgres", encrypted), "t");
}
