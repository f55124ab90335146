//! Cases that were constructed to break the promise and once did, each with real stores.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hapax::remote::LeaseId;
use hapax::{Error, Failure, Hapax, How, Judged, Key, Namespace, Safety, Seen, StateName};
use hapax_testkit::Postgres;
use rusqlite::Connection;
use tokio::sync::Notify;

use crate::field::{LONG, blocking, room};
use crate::report::Report;

fn key(n: u64) -> Key {
    Key::derive("constructed.v1", &[("n", &n.to_be_bytes())]).expect("a key")
}

async fn open(place: impl AsRef<Path>, signing_key: &Path) -> Hapax {
    let builder = Hapax::builder().background(false).signing_key(signing_key);
    builder.lease(Duration::from_secs(2)).open(place.as_ref()).await.expect("a ledger")
}

/// Runs an effect, and counts its executions. If the lease was ended, the effect runs on a new one.
async fn run(hapax: &Hapax, key: Key, executed: &Arc<AtomicU64>) -> Result<How, Error> {
    for _ in 0..10 {
        let count = executed.clone();
        let work = |_| async move {
            count.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Failure>("done")
        };
        match hapax.effect(key).run(work).await {
            Err(Error::LeaseLost) => {}
            other => return other.map(|done| done.how),
        }
    }
    Err(Error::LeaseLost)
}

/// Copies one file over another, as `.backup` and `.restore` do.
fn copy(from: &Path, to: &Path) {
    let from = Connection::open(from).expect("a file");
    let mut to = Connection::open(to).expect("a file");
    let backup = rusqlite::backup::Backup::new(&from, &mut to).expect("a backup");
    backup.run_to_completion(1_000, Duration::ZERO, None).expect("all pages");
}

/// Restores an older copy of a file while two engines use it. A key that the copy lacks is granted to
/// one of them, and neither is misled by its cache.
pub fn restores(times: u64, report: &mut Report) {
    for _ in 0..times {
        let directory = room();
        let (file, older) = (directory.path().join("hapax.db"), directory.path().join("older.db"));
        blocking(async {
            let signing_key = directory.path().join("signing-key");
            let engines = [open(&file, &signing_key).await, open(&file, &signing_key).await];
            let none = Arc::new(AtomicU64::new(0));
            for n in 0..40 {
                run(&engines[n as usize % 2], key(n), &none).await.expect("done");
            }
            copy(&file, &older);
            let alpha = Namespace::new("alpha").expect("a name");
            for n in 40..80 {
                run(&engines[n as usize % 2], key(n), &none).await.expect("done");
            }
            run(&engines[0].in_namespace(alpha.clone()), key(1_000), &none).await.expect("done");
            copy(&older, &file);
            report.count("files restored under two engines", 1);
            // Another namespace gets the number that the first engine has cached.
            let beta = Namespace::new("beta").expect("a name");
            run(&engines[1].in_namespace(beta), key(2_000), &none).await.expect("done");
            run(&engines[0].in_namespace(alpha), key(3_000), &none).await.expect("done");
            for n in 100..140 {
                let executed = Arc::new(AtomicU64::new(0));
                let [a, b] = [0, 1].map(|nth: usize| {
                    let (hapax, executed) = (engines[nth].clone(), executed.clone());
                    tokio::spawn(async move { run(&hapax, key(n), &executed).await })
                });
                for one in [a, b] {
                    let result = one.await.expect("no panic");
                    report.expect(result.is_ok(), || format!("key {n}: {result:?}"));
                }
                let executed = executed.load(Ordering::SeqCst);
                report.count("keys claimed by both after a restore", 1);
                report.expect(executed == 1, || format!("key {n}: executed {executed} times"));
            }
            let findings = engines[0].maintenance().doctor().await.expect("a doctor").findings;
            let second = findings.iter().filter(|finding| finding.what.contains("second row"));
            report.expect(second.count() == 0, || "a key has a second row".into());
        });
        let db = Connection::open(&file).expect("the file");
        let number = |sql: &str| -> i64 { db.query_row(sql, [], |row| row.get(0)).expect(sql) };
        let twice = number("SELECT count(*) - count(DISTINCT hex(key) || namespace) FROM effect");
        report.expect(twice == 0, || format!("{twice} keys have a second row"));
        let misplaced =
            "SELECT count(*) FROM effect WHERE namespace NOT IN (SELECT id FROM namespace)";
        let misplaced =
            number(misplaced) + i64::from(number("SELECT count(*) FROM namespace") != 3);
        report.expect(misplaced == 0, || {
            "an effect is in a namespace that it was not claimed in".into()
        });
    }
}

/// Lets an overtaken holder settle while the next attempt is at work. The holder does not know it was
/// overtaken: its process has cached the old row.
pub fn overtaken(server: Option<&Postgres>, times: u64, report: &mut Report) {
    for n in 0..times {
        let directory = room();
        let database = server.map(|server| {
            let name = format!("overtaken{n}");
            (server, server.database(&name), name)
        });
        let file = directory.path().join("hapax.db");
        let place = database.as_ref().map_or(file.clone(), |(_, url, _)| url.into());
        let kill_lease = |id: LeaseId| match &database {
            Some((server, _, name)) => {
                let hex = id.to_string().replace("lease_", "");
                let dead =
                    format!("UPDATE hapax.lease SET dead = true WHERE encode(id, 'hex') = '{hex}'");
                server.sql(name, &dead);
            }
            None => kill_lease_in_file(&file, id),
        };
        blocking(async {
            let long = || Hapax::builder().background(false).lease(Duration::from_secs(60));
            let long = || long().signing_key(directory.path().join("signing-key"));
            let engines = [
                long().open(&place).await.expect("a ledger"),
                long().open(&place).await.expect("a ledger"),
            ];
            // The namespace is known, so that the claim and the settle are written without reading.
            run(&engines[0], key(1_000_000 + n), &Arc::default()).await.expect("done");
            let [first, second] = engines.clone().map(|hapax| {
                let (started, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
                let (begun, may) = (started.clone(), go.clone());
                let work = async move {
                    let effect = hapax.effect(key(n)).safety(Safety::Transactional).wait(LONG);
                    let work = |_| async move {
                        begun.notify_one();
                        may.notified().await;
                        Ok::<_, Failure>("done")
                    };
                    effect.run(work).await
                };
                (work, started, go)
            });
            let overtaken = tokio::spawn(first.0);
            first.1.notified().await;
            let lease = engines[0].maintenance().leases().await.expect("leases").remove(0).id;
            kill_lease(lease);
            let at_work = tokio::spawn(second.0);
            second.1.notified().await;
            first.2.notify_one();
            let result = overtaken.await.expect("no panic");
            report.count("holders that were overtaken without knowing", 1);
            report.expect(matches!(result, Err(Error::Fenced(_))), || {
                format!("an overtaken holder got {result:?}")
            });
            second.2.notify_one();
            let result = at_work.await.expect("no panic");
            report.expect(result.is_ok(), || format!("the attempt that counts got {result:?}"));
        });
    }
}

/// Resets an effect that was shown as running; the reset itself finds the holder dead.
pub fn unseen_resets(times: u64, report: &mut Report) {
    for n in 0..times {
        let directory = room();
        blocking(async {
            let signing_key = directory.path().join("signing-key");
            let file = directory.path().join("hapax.db");
            let holder = open(&file, &signing_key).await;
            let work =
                holder.effect(key(n)).run(|_| std::future::pending::<Result<&str, Failure>>());
            let work = tokio::spawn(work);
            let person = open(&file, &signing_key).await;
            let deadline = Instant::now() + LONG;
            let shown = loop {
                match person.effects().show(key(n)).await.expect("a read") {
                    Some(effect) => break effect,
                    None => assert!(Instant::now() < deadline, "it runs"),
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            };
            report.count(
                "effects shown as running",
                u64::from(shown.state.name() == StateName::Running),
            );
            // The holder dies: its lease is not renewed, and its lock is free.
            let lease = holder.maintenance().leases().await.expect("leases").remove(0).id;
            work.abort();
            std::mem::drop(holder);
            let _ = work.await;
            kill_lease_in_file(&file, lease);
            let seen = Seen { attempt: shown.attempt, state: StateName::Running };
            let judged =
                person.effects().reset(key(n), seen, "ann", "impatient").await.expect("an answer");
            report.expect(matches!(judged, Judged::Fenced(_)), || {
                format!("a reset of what was shown as running was accepted: {judged:?}")
            });
        });
    }
    report.at_least("effects shown as running", times);
}

/// Ends a lease in the file, as its holder's death does.
fn kill_lease_in_file(file: &Path, id: LeaseId) {
    let db = Connection::open(file).expect("the file");
    let hex = id.to_string().trim_start_matches("lease_").to_uppercase();
    db.execute("UPDATE lease SET dead = 1 WHERE hex(id) = ?1", [hex]).expect("SQL");
}

/// Turns `synchronous_commit` off by a reload while a node has its sessions open.
pub fn reloads(times: u64, report: &mut Report) {
    let server = Postgres::start();
    for nth in 0..times {
        let name = format!("reload{nth}");
        let url = server.database(&name);
        let directory = room();
        blocking(async {
            let hapax = open(&url, &directory.path().join("signing-key")).await;
            let none = Arc::new(AtomicU64::new(0));
            run(&hapax, key(0), &none).await.expect("done");
            server.sql(
                &name,
                "CREATE TABLE seen (synced text);
                 CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                     INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL;
                 END $$;
                 CREATE TRIGGER see AFTER INSERT OR UPDATE ON hapax.effect
                     FOR EACH ROW EXECUTE FUNCTION see()",
            );
            server.sql("postgres", "ALTER SYSTEM SET synchronous_commit = off");
            server.sql("postgres", "SELECT pg_reload_conf()");
            let deadline = Instant::now() + LONG;
            while server.sql("postgres", "SHOW synchronous_commit") != "off" {
                assert!(Instant::now() < deadline, "the configuration is reloaded");
            }
            for n in 1..50 {
                run(&hapax, key(n), &none).await.expect("done");
            }
        });
        let number = |sql: &str| server.sql(&name, sql).parse::<u64>().unwrap_or(0);
        report.count("commits after a reload", number("SELECT count(*) FROM seen"));
        let off = number("SELECT count(*) FROM seen WHERE synced <> 'on'");
        report.expect(off == 0, || format!("{off} commits did not wait for the disk"));
        server.sql("postgres", "ALTER SYSTEM RESET synchronous_commit");
        server.sql("postgres", "SELECT pg_reload_conf()");
    }
    report.at_least("commits after a reload", times * 50);
}

/// Lets the commit of a claim wait for a standby that does not confirm, until its caller has given up.
/// Then the commit becomes visible, and the key can be claimed soon after.
pub fn orphans(times: u64, report: &mut Report) {
    let server = Postgres::start();
    for nth in 0..times {
        let url = server.database(&format!("orphan{nth}"));
        let directory = room();
        let standby = |name: &str| {
            server
                .sql("postgres", &format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'"));
            server.sql("postgres", "SELECT pg_reload_conf()");
        };
        blocking(async {
            let signing_key = directory.path().join("signing-key");
            let hapax = Hapax::builder().lease(Duration::from_secs(60)).signing_key(&signing_key);
            let hapax = hapax.background(false).open(&url).await.expect("a ledger");
            let none = Arc::new(AtomicU64::new(0));
            run(&hapax, key(0), &none).await.expect("done");
            standby("absent");
            let claim = hapax.effect(key(1)).safety(Safety::Opaque).wait(Duration::from_secs(1));
            let result = tokio::time::timeout(
                Duration::from_secs(120),
                claim.run(|_| async { Ok::<_, Failure>("not acknowledged") }),
            );
            let result = result.await;
            report.expect(!matches!(result, Ok(Ok(_))), || {
                "a commit was acknowledged without a standby".into()
            });
            report.count("claims whose commit outlived their caller", 1);
            // Every layer gives up its command in flight, and then the commit becomes visible.
            tokio::time::sleep(Duration::from_secs(12)).await;
            standby("");
            let other = open(&url, &signing_key).await;
            let deadline = Instant::now() + Duration::from_secs(20);
            loop {
                let again = run(&other, key(1), &none).await;
                if again.is_ok() {
                    break;
                }
                if Instant::now() >= deadline {
                    report
                        .violation(format!("the claim stays granted without a holder: {again:?}"));
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
    }
}
