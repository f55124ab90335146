//! Effects that are settled in a transaction of the caller's.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hapax::inbox::{Receipt, postgres as inbox};
use hapax::{EntryKind, Error, Failure, Hapax, How, Safety, StateName, StoreError};
use hapax_testkit::Postgres;

use super::{client, intact, key, open, until};

async fn with_table(server: &Postgres) -> (Hapax, hapax::tokio_postgres::Client) {
    let url = server.url("postgres");
    let hapax = open(&url).await;
    let client = client(&url).await;
    client.batch_execute("CREATE TABLE account (balance int)").await.expect("a table");
    (hapax, client)
}

async fn balances(client: &hapax::tokio_postgres::Client) -> i64 {
    client.query_one("SELECT count(*) FROM account", &[]).await.expect("a count").get(0)
}

/// Proves K-8 for tokio-postgres: writes and outcome are committed together.
#[tokio::test]
async fn writes_and_outcome_are_committed_together() {
    let server = Postgres::start();
    let (hapax, mut client) = with_table(&server).await;
    for round in 0..2 {
        let tx_client = &mut client;
        let done = hapax
            .effect(key(1))
            .safety(Safety::Transactional)
            .run(|claim| async move {
                let tx = tx_client.transaction().await?;
                tx.execute("INSERT INTO account VALUES (100)", &[]).await?;
                claim.settle_in_postgres(&tx, "deposited").await?;
                tx.commit().await?;
                Ok::<_, Failure>("deposited")
            })
            .await
            .expect("an outcome");
        assert_eq!(done.body(), Some(&b"deposited"[..]));
        assert_eq!(done.how == How::Executed, round == 0);
    }
    assert_eq!(balances(&client).await, 1);
    hapax.close().await.expect("closed");
}

/// Proves K-8: a rollback leaves the claim unsettled, and no waiter gets a success.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolled_back_settle_reports_no_success() {
    let server = Postgres::start();
    let (hapax, mut client) = with_table(&server).await;
    let others =
        Hapax::builder().background(false).open(server.url("postgres")).await.expect("open");
    let ran = Arc::new(AtomicUsize::new(0));
    let waiters: Vec<_> = (0..10)
        .map(|_| {
            let (others, ran) = (others.clone(), ran.clone());
            tokio::spawn(async move {
                // Until the first attempt runs there is nothing to wait for.
                until("it runs", || async {
                    others.effects().show(key(1)).await.expect("a read").is_some()
                })
                .await;
                let effect = others.effect(key(1)).safety(Safety::Transactional);
                let work = |_| async move {
                    ran.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, Failure>("by another")
                };
                effect.run(work).await
            })
        })
        .collect();
    let tx_client = &mut client;
    let first = hapax
        .effect(key(1))
        .safety(Safety::Transactional)
        .run(|claim| async move {
            let tx = tx_client.transaction().await?;
            tx.execute("INSERT INTO account VALUES (100)", &[]).await?;
            claim.settle_in_postgres(&tx, "deposited").await?;
            tokio::time::sleep(Duration::from_millis(200)).await;
            tx.rollback().await?;
            Ok::<_, Failure>("deposited")
        })
        .await;
    assert!(matches!(first, Err(Error::NotCommitted)), "{first:?}");
    for waiter in waiters {
        let done = waiter.await.expect("no panic").expect("an outcome");
        assert_eq!(done.body(), Some(&b"by another"[..]));
    }
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    assert_eq!(balances(&client).await, 0);
}

/// Proves K-5 and K-8: an attempt that was overtaken cannot commit through `settle_in_postgres`,
/// nor through `hapax.settle` from psycopg, and its success is journalled as a contradiction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overtaken_attempt_commits_nothing() {
    let server = Postgres::start();
    let (hapax, mut client) = with_table(&server).await;
    let url = server.url("postgres");
    let other = open(&url).await;
    let (tx_client, server_ref, hapax_url) = (&mut client, &server, url.clone());
    let stale = hapax
        .effect(key(1))
        .safety(Safety::Transactional)
        .run(|claim| async move {
            // Its lease is gone, as after a long stop, and another node completes the effect meanwhile.
            server_ref.sql("postgres", "UPDATE hapax.lease SET dead = true");
            let effect = other.effect(key(1)).safety(Safety::Transactional);
            let done = effect.run(|_| async { Ok::<_, Failure>("by another") }).await;
            assert_eq!(done.expect("an outcome").how, How::Executed);

            let tx = tx_client.transaction().await?;
            tx.execute("INSERT INTO account VALUES (100)", &[]).await?;
            let settled = claim.settle_in_postgres(&tx, "deposited").await;
            assert!(matches!(settled, Err(Error::Fenced(_))), "{settled:?}");
            assert!(tx.commit().await.is_err() || balances(tx_client).await == 0);

            let script = "import psycopg, sys\n\
                try:\n\
                \x20   with psycopg.connect(sys.argv[1]) as conn:\n\
                \x20       conn.execute('INSERT INTO account VALUES (100)')\n\
                \x20       conn.execute('SELECT hapax.settle(%s, %s, %s, %s)', (sys.argv[2], sys.argv[3], int(sys.argv[4]), b'x'))\n\
                except psycopg.Error as error:\n\
                \x20   print(error.sqlstate)\n";
            let (key, attempt) = (claim.key().to_string(), claim.attempt().to_string());
            let fence = claim.fence().to_string();
            let python = Command::new("/usr/bin/python3")
                .args(["-c", script, &hapax_url, &key, &attempt, &fence])
                .output()?;
            assert_eq!(String::from_utf8_lossy(&python.stdout).trim(), "HX207", "{python:?}");
            Err::<&str, _>(Failure::not_done("overtaken"))
        })
        .await;
    assert!(stale.is_err());
    assert_eq!(balances(&client).await, 0);
    let history = hapax.journal().history(key(1), 100).await.expect("a history");
    assert!(history.iter().any(|entry| entry.event == EntryKind::Contradicted), "{history:?}");
}

/// Proves K-8: `once_in_postgres` claims, runs and settles in one transaction of the caller's.
#[tokio::test]
async fn once_in_is_recorded_when_the_caller_commits() {
    let server = Postgres::start();
    let (hapax, mut client) = with_table(&server).await;
    let deposit = async |tx: &hapax::tokio_postgres::Transaction<'_>, _: &hapax::Claim| {
        tx.execute("INSERT INTO account VALUES (100)", &[]).await?;
        Ok::<_, Failure>("deposited")
    };
    for (commit, how) in [(false, How::Executed), (true, How::Executed), (true, How::Replayed)] {
        let tx = client.transaction().await.expect("a transaction");
        let done = hapax.effect(key(1)).once_in_postgres(&tx, deposit).await.expect("done");
        assert_eq!((done.body(), done.how), (Some(&b"deposited"[..]), how));
        if commit {
            tx.commit().await.expect("committed");
        } else {
            tx.rollback().await.expect("rolled back");
        }
    }
    assert_eq!(balances(&client).await, 1);
    let tx = client.transaction().await.expect("a transaction");
    let other = hapax.effect(key(1)).payload(b"other").once_in_postgres(&tx, deposit).await;
    assert!(matches!(other, Err(Error::Conflict { .. })), "{other:?}");
    drop(tx);
    intact(&hapax, 2).await;
}

/// Proves K-16 and K-17: a caller's transaction left open on a key delays no other caller and
/// expires no lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_transaction_delays_no_other_caller() {
    let server = Postgres::start();
    let (_, mut client) = with_table(&server).await;
    let lease = Duration::from_millis(900);
    let hapax = Hapax::builder().lease(lease).open(server.url("postgres")).await.expect("open");
    // A healthy effect that runs all the while.
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let long = tokio::spawn({
        let hapax = hapax.clone();
        async move {
            let work = |_| async move {
                let _ = stopped.await;
                Ok::<_, Failure>("long")
            };
            hapax.effect(key(2)).run(work).await
        }
    });
    let tx = client.transaction().await.expect("a transaction");
    let held = async |_: &hapax::tokio_postgres::Transaction<'_>, _: &hapax::Claim| {
        Ok::<_, Failure>("held")
    };
    hapax.effect(key(1)).once_in_postgres(&tx, held).await.expect("done");
    let open_since = std::time::Instant::now();
    let blocked = tokio::spawn({
        let hapax = hapax.clone();
        async move {
            let effect = hapax.effect(key(1)).safety(Safety::Transactional).wait(lease / 2);
            effect.run(|_| async { Ok::<_, Failure>("twice") }).await
        }
    });
    let (mut n, mut slowest) = (100, Duration::ZERO);
    while open_since.elapsed() < lease * 2 {
        let start = std::time::Instant::now();
        let effect = hapax.effect(key(n)).safety(Safety::Transactional);
        effect.run(|_| async { Ok::<_, Failure>("quick") }).await.expect("a neighbour");
        slowest = slowest.max(start.elapsed());
        n += 1;
    }
    assert!(n > 120, "neighbours went on: {n}");
    assert!(slowest < lease, "no neighbour waited for the transaction: {slowest:?}");
    let answer = blocked.await.expect("no panic");
    assert!(matches!(answer, Err(Error::Undecided { .. })), "{answer:?}");
    tx.commit().await.expect("committed");
    let _ = stop.send(());
    assert_eq!(long.await.expect("no panic").expect("done").body(), Some(&b"long"[..]));
    let indeterminate =
        hapax.effects().list(&[StateName::Indeterminate], 10).await.expect("a list");
    assert!(indeterminate.is_empty(), "{indeterminate:?}");
    let replayed = hapax.effect(key(1)).safety(Safety::Transactional);
    let replayed = replayed.run(|_| async { Ok::<_, Failure>("twice") }).await.expect("an outcome");
    assert_eq!(replayed.body(), Some(&b"held"[..]));
}

/// Proves K-16 for background work: effects of lapsed holders are surfaced, also beside an effect
/// that another transaction keeps locked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_row_does_not_hold_up_the_expiry_of_others() {
    let server = Postgres::start();
    let (other, mut client) = with_table(&server).await;
    let hapax = open(&server.url("postgres")).await;
    for n in [1, 2] {
        let hapax = hapax.clone();
        tokio::spawn(async move {
            let never = |_| async { std::future::pending::<Result<&str, Failure>>().await };
            hapax.effect(key(n)).run(never).await
        });
        until("it runs", || async {
            other.effects().show(key(n)).await.expect("a read").is_some()
        })
        .await;
    }
    server.sql("postgres", "UPDATE hapax.lease SET dead = true");
    let tx = client.transaction().await.expect("a transaction");
    let sql = "SELECT 1 FROM hapax.effect ORDER BY fence LIMIT 1 FOR UPDATE";
    tx.query_one(sql, &[]).await.expect("a lock");
    assert_eq!(other.pass().await.expect("a pass").expired, 1);
    tx.rollback().await.expect("rolled back");
    assert_eq!(other.pass().await.expect("a pass").expired, 1);
    assert_eq!(
        other.effects().list(&[StateName::Indeterminate], 10).await.expect("a list").len(),
        2
    );
}

/// No transaction is open while an effect runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_transaction_is_open_while_an_effect_runs() {
    let server = Postgres::start();
    let (hapax, client) = with_table(&server).await;
    let open = hapax
        .effect(key(1))
        .lock(&["gauges"])
        .run(|_| async move {
            let sql = "SELECT count(*) FROM pg_stat_activity
                       WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid()
                           AND backend_type = 'client backend'";
            let open: i64 = client.query_one(sql, &[]).await?.get(0);
            Ok::<_, Failure>(open.to_string())
        })
        .await
        .expect("an outcome");
    assert_eq!(open.body(), Some(&b"0"[..]));
}

/// The example of the documentation, as it stands there.
#[tokio::test]
async fn the_documented_example_in_python_works() {
    let server = Postgres::start();
    let hapax = open(&server.url("postgres")).await;
    let page = "../../docs/sql.md";
    let page = std::fs::read_to_string(page).expect("the page");
    let example = page.split("```python\n").nth(1).and_then(|rest| rest.split("```").next());
    let python = Command::new("/usr/bin/python3")
        .args(["-c", example.expect("an example"), &server.url("postgres")])
        .output()
        .expect("python");
    let printed = String::from_utf8_lossy(&python.stdout);
    assert_eq!(printed, "booked\nbooked\nbooked\n1 row\n", "{python:?}");
    intact(&hapax, 2).await;
}

/// Proves K-5, K-6 and K-8: a node that is stopped past its lease and overtaken cannot commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_node_that_was_overtaken_commits_nothing() {
    let server = Postgres::start();
    let (hapax, client) = with_table(&server).await;
    let this = std::env::current_exe().expect("this program");
    let mut node = Command::new(this)
        .args(["--exact", "callers_transaction::stoppable_node", "--nocapture"])
        .env(STOPPABLE, server.url("postgres"))
        .spawn()
        .expect("a node");
    let running = || async {
        let effect = hapax.effects().show(key(1)).await.expect("a read");
        effect.is_some_and(|effect| effect.state.name() == StateName::Running)
    };
    until("the node is at work", running).await;
    let pid = rustix::process::Pid::from_child(&node);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("stopped");
    // Another node takes over as soon as the lease has lapsed, and not before.
    let effect = hapax.effect(key(1)).safety(Safety::Transactional);
    let done = effect.run(|_| async { Ok::<_, Failure>("by another") }).await.expect("done");
    assert_eq!(done.how, How::Executed);
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("goes on");
    assert!(node.wait().expect("a node").success(), "the node saw that it was fenced");
    assert_eq!(balances(&client).await, 0);
    let recorded = hapax.effects().show(key(1)).await.expect("a read").expect("a record");
    assert!(
        matches!(recorded.state, hapax::State::Succeeded(ref o) if o.body() == Some(b"by another"))
    );
}

const STOPPABLE: &str = "HAPAX_TEST_STOPPABLE_URL";

/// Not a test: the node that is stopped while it works, when this program was started as one.
#[test]
fn stoppable_node() {
    let Ok(url) = std::env::var(STOPPABLE) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let lease = Duration::from_secs(2);
        let hapax = Hapax::builder().lease(lease).open(&url).await.expect("a ledger");
        let mut settled = Ok(());
        let answer = &mut settled;
        let _ = hapax
            .effect(key(1))
            .safety(Safety::Transactional)
            .run(|claim| async move {
                // On a thread of its own, so that the engine, which would cancel the work, does
                // not even notice that the lease was lost.
                *answer = std::thread::scope(|scope| {
                    let stale = scope.spawn(|| settle_when_overtaken(&url, &claim));
                    stale.join().expect("no panic")
                });
                Err::<&str, _>(Failure::not_done("overtaken"))
            })
            .await;
        assert!(matches!(settled, Err(Error::Fenced(_))), "{settled:?}");
    });
}

/// Waits until another attempt is recorded, and then tries to commit this one.
fn settle_when_overtaken(url: &str, claim: &hapax::Claim) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut client = client(url).await;
        until("another attempt is recorded", || async {
            let row = client.query_one("SELECT attempt FROM hapax.effects", &[]).await;
            row.expect("a row").get::<_, String>(0) != claim.attempt().to_string()
        })
        .await;
        let tx = client.transaction().await.expect("a transaction");
        tx.execute("INSERT INTO account VALUES (100)", &[]).await.expect("a write");
        let settled = claim.settle_in_postgres(&tx, "stale").await;
        let _ = tx.commit().await;
        settled
    })
}

/// Proves O-5: of many receivers of one event, one acts on it; a rollback lets another.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_received_once() {
    let server = Postgres::start();
    let url = server.url("postgres");
    server.sql("postgres", inbox::SCHEMA);
    server.sql("postgres", "CREATE TABLE paid (event text)");
    let receive = |event: String, keep: bool| {
        let url = url.clone();
        tokio::spawn(async move {
            let mut client = client(&url).await;
            let tx = client.transaction().await.expect("a transaction");
            let receipt = inbox::receive_in(&tx, "shop", &event).await.expect("an answer");
            if receipt == Receipt::First {
                tx.execute("INSERT INTO paid VALUES ($1)", &[&event]).await.expect("paid");
            }
            if keep {
                tx.commit().await.expect("committed");
            }
        })
    };
    let receivers = (0..40).map(|n| receive(format!("evt{}", n % 4), n >= 8));
    for receiver in receivers.collect::<Vec<_>>() {
        receiver.await.expect("received");
    }
    let paid = "SELECT string_agg(event, ' ' ORDER BY event) FROM paid";
    assert_eq!(server.sql("postgres", paid), "evt0 evt1 evt2 evt3");
    let client = client(&url).await;
    server.sql(
        "postgres",
        "UPDATE hapax_inbox SET received_at = now() - interval '1 hour' WHERE id = 'evt0'",
    );
    let forgotten = inbox::forget(&client, Duration::from_secs(60)).await;
    assert_eq!(forgotten.expect("forgotten"), 1);
}

/// Proves K-20: a transaction that is run again after a lost COMMIT reply books nothing twice, whether it settles
/// by the library or by SQL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_is_run_again_books_nothing_twice() {
    let server = Postgres::start();
    let url = server.url("postgres");
    let hapax = open(&url).await;
    let mut client = super::client(&url).await;
    client.batch_execute("CREATE TABLE account (balance int)").await.expect("a table");
    let done = hapax
        .effect(key(1))
        .safety(Safety::Transactional)
        .run(|claim| async move {
            for again in [false, true, true] {
                let tx = client.transaction().await?;
                tx.execute("INSERT INTO account VALUES (100)", &[]).await?;
                let settled = claim.settle_in_postgres(&tx, "booked").await;
                let recorded =
                    matches!(&settled, Err(Error::Store(StoreError::AlreadyRecorded(_))));
                assert_eq!(recorded, again, "{settled:?}");
                // As if the reply to the first COMMIT had been lost, and the caller did not look at the others.
                let _ = tx.commit().await;
            }
            let by = (claim.key().to_string(), claim.attempt().to_string(), claim.fence().0);
            let sql = format!(
                "BEGIN; INSERT INTO account VALUES (100);
                 SELECT hapax.settle('{}', '{}', {}, 'booked'); COMMIT",
                by.0, by.1, by.2
            );
            let error = client.batch_execute(&sql).await.expect_err("it was recorded before");
            assert_eq!(error.code().map(|code| code.code()), Some("HX116"), "{error:?}");
            let _ = client.batch_execute("ROLLBACK").await;
            assert_eq!(balances(&client).await, 1);
            Err::<&str, _>(Failure::ambiguous("the reply was lost"))
        })
        .await
        .expect("the engine has read the row");
    assert_eq!(done.body(), Some(&b"booked"[..]));
}
