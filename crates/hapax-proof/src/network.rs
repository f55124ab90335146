//! PostgreSQL that cannot be reached: connections cut after a commit, sessions ended, poolers in
//! between, servers killed.

use std::time::{Duration, Instant};

use hapax_testkit::{Cluster, CuttingProxy, PgBouncer, Postgres};

use crate::field::{Field, Running};
use crate::processes::conclude;
use crate::report::Report;

/// Workers that go on from where earlier ones were, so that there is always work.
fn workers(field: &Field, count: usize) -> Vec<Running> {
    let front = field.front().saturating_sub(16);
    (0..count).map(|_| field.worker(front..u64::MAX, &[])).collect()
}

fn at_work(workers: &mut [Running], report: &mut Report) {
    for worker in workers {
        report.expect(worker.is_at_work(), || "a worker ended by itself".into());
    }
}

/// Swallows the reply to a commit, and the connection with it, this often.
pub fn commit_cuts(cuts: u64, bug: Option<&str>, report: &mut Report) {
    let server = Postgres::start();
    let proxy = CuttingProxy::before(server.port());
    let mut field = Field::at(server.database("proof"));
    field.bug = bug.map(str::to_owned);
    field.detour = Some(proxy.url("proof"));
    let mut running = workers(&field, 3);
    at_work(&mut running, report);
    proxy.cut_one_in(20);
    let deadline = Instant::now() + Duration::from_secs(600);
    while proxy.cuts() < cuts && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    report.count("replies to commits swallowed", proxy.cuts());
    report.at_least("replies to commits swallowed", cuts);
    for worker in &mut running {
        report.expect(!worker.has_ended(), || "a worker ended by itself".into());
    }
    running.clear();
    field.detour = None;
    conclude(&field, report);
}

/// Ends sessions at random behind a pooler in transaction mode, this often.
pub fn ended_sessions(times: u64, report: &mut Report) {
    let server = Postgres::start();
    let pooler = PgBouncer::before(&server, 8);
    let mut field = Field::at(server.database("proof"));
    field.detour = Some(pooler.url("proof"));
    let mut running = workers(&field, 3);
    at_work(&mut running, report);
    for _ in 0..times {
        let ended = server.sql(
            "postgres",
            "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity
             WHERE datname = 'proof' ORDER BY random() LIMIT 1) s",
        );
        report.count("sessions ended behind a pooler", ended.parse().unwrap_or(0));
        std::thread::sleep(Duration::from_millis(20));
    }
    report.at_least("sessions ended behind a pooler", times / 2);
    running.clear();
    field.detour = None;
    conclude(&field, report);
}

/// Kills the server, or stops it in order, and starts it again, this often.
pub fn server_kills(times: u64, report: &mut Report) {
    let mut server = Postgres::with(&["shared_buffers=32MB", "max_connections=100"]);
    let field = Field::at(server.database("proof"));
    let mut running = workers(&field, 3);
    for nth in 0..times {
        for worker in &mut running {
            // Some more each time, so that the end does not always come at the same moment.
            let outcomes = 16 + nth as usize % 32;
            report.expect(worker.has_answered(outcomes), || "a worker ended by itself".into());
        }
        if nth % 2 == 0 {
            server.kill();
        } else {
            server.stop();
        }
        report.count("servers killed or stopped under load", 1);
        server.up();
        running = workers(&field, 3);
    }
    running.clear();
    conclude(&field, report);
}

/// Kills the primary of a cluster under load, this often: its server, or its whole machine.
pub fn failovers(times: u64, report: &mut Report) {
    if hapax_testkit::patroni().is_none() {
        return report.skip("failover needs Patroni and etcd");
    }
    let mut cluster = Cluster::start();
    let field = Field::at(cluster.database("proof"));
    for nth in 0..times * 3 {
        if report.figure("failovers under load") >= times {
            break;
        }
        let mut running = workers(&field, 3);
        at_work(&mut running, report);
        std::thread::sleep(Duration::from_millis(500));
        let taken_over = if nth % 2 == 0 {
            cluster.lose_primary();
            report.count("primaries lost with their machine", 1);
            true
        } else {
            report.count("primaries killed", 1);
            cluster.kill_primary()
        };
        cluster.settled();
        report.count("failovers under load", u64::from(taken_over));
    }
    report.at_least("failovers under load", times);
    conclude(&field, report);
}
